/*
 * Copies on the simulated accelerator.
 *
 * Between page-locked and device memory an engine works alone. From and to pageable memory the
 * caller stages chunks through a small bounce buffer of the stream, at the rate `pageable`, after
 * the stream's earlier work; the engine moves a chunk between the bounce buffer and the device
 * while the caller stages the next. A copy to the device returns when the source has been staged;
 * one from the device returns when the destination is complete. A recording has all of it as one
 * copy, the caller's part included, as CUPTI has of a GPU's.
 */
#include "device/sim/sim.h"

#include <millrace/trace.h>
#include <string.h>

#define CHUNK_BYTES (1ull << 20)
#define N_BOUNCE    2

static uint64_t nanoseconds(uint64_t bytes, double gb_per_s)
{
    return (uint64_t)((double)bytes / gb_per_s); /* GB/s are bytes a nanosecond */
}

struct staged {
    struct mr_stream *stream;
    const struct sim_options *opts;
    enum sim_engine_kind engine;
    char *bounce;
    uint64_t ticket[N_BOUNCE]; /* of the engine's last use of each half */
    uint64_t end_ns;           /* model time at which the caller's last chunk was staged */
    bool latency_paid;         /* one a copy, not one a chunk */
    uint64_t left;             /* bytes that are not enqueued yet */
    struct sim_row row;
};

/* The caller's part: a real copy, then the time that it takes in the model. */
static void stage(struct staged *st, void *dst, const void *src, uint64_t bytes, uint64_t ready_ns)
{
    uint64_t start_ns = MR_MAX(st->end_ns, ready_ns);
    memcpy(dst, src, bytes);
    st->end_ns = MR_MAX(start_ns + nanoseconds(bytes, st->opts->pageable), mr_time_ns());
    mr_sleep_until(st->end_ns);
    mr_trace_span("stage pageable", start_ns, st->end_ns, "bytes", bytes);
}

static int enqueue_chunk(struct staged *st, int half, void *dst, const void *src, uint64_t bytes)
{
    double rate = st->engine == SIM_H2D ? st->opts->h2d : st->opts->d2h;
    struct sim_work work = {
        .engine = st->engine, .ready_ns = st->end_ns, .dst = dst, .src = src, .bytes = bytes};
    work.cost_ns = nanoseconds(bytes, rate) + (st->latency_paid ? 0 : st->opts->latency_ns);
    work.row = st->row;
    work.row.later = st->latency_paid;
    st->left -= bytes;
    work.row.more = st->left > 0;
    st->latency_paid = true;
    return mr_sim_enqueue(st->stream, &work, &st->ticket[half]);
}

static int stage_to_device(struct staged *st, char *dst, const char *src, uint64_t bytes)
{
    int half = 0;
    for (uint64_t at = 0; at < bytes; at += CHUNK_BYTES, half ^= 1) {
        char *bounce = st->bounce + (uint64_t)half * CHUNK_BYTES;
        uint64_t n = MR_MIN(CHUNK_BYTES, bytes - at);
        mr_sim_wait_done(st->stream, st->ticket[half]);
        stage(st, bounce, src + at, n, 0);
        int rc = enqueue_chunk(st, half, dst + at, bounce, n);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int stage_from_device(struct staged *st, char *dst, const char *src, uint64_t bytes)
{
    uint64_t asked = 0, got = 0;
    while (got < bytes) {
        int rc = 0;
        for (; asked < bytes && asked - got < N_BOUNCE * CHUNK_BYTES && rc >= 0;
             asked += CHUNK_BYTES) {
            int half = (int)(asked / CHUNK_BYTES % N_BOUNCE);
            rc = enqueue_chunk(st, half, st->bounce + (uint64_t)half * CHUNK_BYTES, src + asked,
                               MR_MIN(CHUNK_BYTES, bytes - asked));
        }
        if (rc < 0)
            return rc; /* chunks under way only touch the bounce buffer, which outlives them */
        int half = (int)(got / CHUNK_BYTES % N_BOUNCE);
        mr_sim_wait_done(st->stream, st->ticket[half]);
        stage(st, dst + got, st->bounce + (uint64_t)half * CHUNK_BYTES,
              MR_MIN(CHUNK_BYTES, bytes - got), mr_time_ns());
        got += CHUNK_BYTES;
    }
    return 0;
}

/* With `submit` held. */
static int copy_staged(struct mr_stream *stream, enum sim_engine_kind engine, void *dst,
                       const void *src, uint64_t bytes, const struct sim_row *row)
{
    struct sim_device *sim = stream->dev->state;
    struct sim_stream *s = stream->state;
    if (!s->bounce)
        s->bounce = malloc(N_BOUNCE * CHUNK_BYTES);
    if (!s->bounce)
        return mr_error_nomem("sim: bounce buffer for pageable copies", N_BOUNCE * CHUNK_BYTES);
    mr_sim_wait_done(stream, mr_sim_last_ticket(stream));
    struct staged st = {.stream = stream,
                        .opts = &sim->opts,
                        .engine = engine,
                        .bounce = s->bounce,
                        .left = bytes,
                        .row = *row,
                        .end_ns = mr_time_ns()};
    if (engine == SIM_H2D) {
        st.row.start_ns = st.end_ns;
        return stage_to_device(&st, dst, src, bytes);
    }
    st.row.staged_out = true;
    int rc = stage_from_device(&st, dst, src, bytes);
    if (rc == 0)
        mr_sim_rows_staged(s, &st.row, st.end_ns);
    return rc;
}

static int copy_pinned(struct mr_stream *stream, enum sim_engine_kind engine, void *dst,
                       const void *src, uint64_t bytes, const struct sim_row *row)
{
    const struct sim_options *opts = &((struct sim_device *)stream->dev->state)->opts;
    struct sim_work work = {
        .engine = engine, .ready_ns = mr_time_ns(), .dst = dst, .src = src, .bytes = bytes};
    work.row = *row;
    work.cost_ns = opts->latency_ns;
    if (engine != SIM_COMPUTE) /* inside the device: as fast as it goes */
        work.cost_ns += nanoseconds(bytes, engine == SIM_H2D ? opts->h2d : opts->d2h);
    return mr_sim_enqueue(stream, &work, NULL);
}

bool mr_sim_on_device(struct sim_device *sim, const void *ptr)
{
    bool inside = false;
    pthread_mutex_lock(&mr_sim_lock);
    for (const struct sim_block *b = sim->blocks; b && !inside; b = b->next)
        inside = (uintptr_t)ptr - (uintptr_t)b->ptr < b->bytes;
    pthread_mutex_unlock(&mr_sim_lock);
    return inside;
}

int mr_sim_check_range(struct mr_device *dev, const char *what, const void *ptr, uint64_t bytes)
{
    struct sim_device *sim = dev->state;
    bool inside = false;
    pthread_mutex_lock(&mr_sim_lock);
    for (const struct sim_block *b = sim->blocks; b && !inside; b = b->next) {
        uint64_t offset = (uintptr_t)ptr - (uintptr_t)b->ptr;
        inside =
            (uintptr_t)ptr >= (uintptr_t)b->ptr && offset <= b->bytes && bytes <= b->bytes - offset;
    }
    pthread_mutex_unlock(&mr_sim_lock);
    if (!inside)
        return mr_error_set(MR_EDEVICE, "sim: %llu bytes: the %s %p is not within device memory",
                            (unsigned long long)bytes, what, ptr);
    return 0;
}

int mr_sim_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                      enum mr_memory src_kind, uint64_t bytes)
{
    struct sim_stream *s = stream->state;
    int rc = dst_kind == MR_DEVICE ? mr_sim_check_range(stream->dev, "destination", dst, bytes) : 0;
    if (rc >= 0 && src_kind == MR_DEVICE)
        rc = mr_sim_check_range(stream->dev, "source", src, bytes);
    if (rc < 0)
        return rc;
    bool to_device = dst_kind == MR_DEVICE, from_device = src_kind == MR_DEVICE;
    enum sim_engine_kind engine = to_device && from_device ? SIM_COMPUTE
                                  : to_device              ? SIM_H2D
                                                           : SIM_D2H;
    struct sim_call call = mr_sim_call_begin("simMemcpyAsync");
    struct sim_row row = {.correlation = call.correlation,
                          .copy = engine == SIM_COMPUTE ? SIM_COPY_D2D
                                  : engine == SIM_H2D   ? SIM_COPY_H2D
                                                        : SIM_COPY_D2H,
                          .src_kind = (uint8_t)src_kind,
                          .dst_kind = (uint8_t)dst_kind};
    pthread_mutex_lock(&s->submit);
    if (!to_device &&
        !from_device) { /* nothing for the device to do: the caller copies, in the stream's order */
        mr_sim_wait_done(stream, mr_sim_last_ticket(stream));
        memmove(dst, src, bytes);
    } else if (dst_kind == MR_PAGEABLE || src_kind == MR_PAGEABLE) {
        rc = copy_staged(stream, engine, dst, src, bytes, &row);
    } else {
        rc = copy_pinned(stream, engine, dst, src, bytes, &row);
    }
    pthread_mutex_unlock(&s->submit);
    mr_sim_call_end(&call);
    return rc;
}

int mr_sim_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                        uint64_t bytes)
{
    struct sim_stream *s = stream->state;
    const struct sim_options *opts = &((struct sim_device *)stream->dev->state)->opts;
    int rc = kind == MR_DEVICE ? mr_sim_check_range(stream->dev, "destination", dst, bytes) : 0;
    if (rc < 0)
        return rc;
    struct sim_call call = mr_sim_call_begin("simMemsetAsync");
    pthread_mutex_lock(&s->submit);
    if (kind == MR_DEVICE) {
        struct sim_work work = {
            .engine = SIM_COMPUTE, .ready_ns = mr_time_ns(), .dst = dst, .bytes = bytes};
        work.cost_ns = opts->latency_ns;
        work.byte = byte;
        work.row = (struct sim_row){.correlation = call.correlation, .dst_kind = MR_DEVICE};
        rc = mr_sim_enqueue(stream, &work, NULL);
    } else {
        mr_sim_wait_done(stream, mr_sim_last_ticket(stream));
        memset(dst, byte, bytes);
    }
    pthread_mutex_unlock(&s->submit);
    mr_sim_call_end(&call);
    return rc;
}
