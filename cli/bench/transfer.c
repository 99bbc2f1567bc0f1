/* Measuring for bench transfer. */
#include "bench/bench.h"
#include "bench/stats.h"
#include "bench/transfer_work.h"

#include <string.h>

const char *const transfer_directions[] = {"h2d", "d2h", "both", "d2d", "peer", NULL};
const char *const transfer_memories[] = {"pageable",   "pinned",     "write_combined",
                                         "registered", "huge_pages", "device"};
const char *const transfer_ways[] = {"async", "blocking", "batch", "graph", "kernel"};

#define BURST_BYTES (256ull << 20) /* copies back to back: about so much, at most BATCH */

/* The two ends of one way that bytes go. */
struct route {
    const struct transfer_block *dst, *src;
    uint32_t seed; /* of what the source holds */
};

static struct route route_of(const struct transfer *t, enum transfer_direction direction, int side)
{
    if (direction == TRANSFER_PEER)
        return (struct route){&t->device[0], &t->peer, 3};
    if (direction == TRANSFER_D2D)
        return (struct route){&t->device[0], &t->device[1], 2};
    if (direction == TRANSFER_D2H || (direction == TRANSFER_BOTH && side == 1))
        return (struct route){&t->host[1], &t->device[1], 2};
    return (struct route){&t->device[0], &t->host[0], 1};
}

/* Copies are spread over the whole of the memory. */
static struct mr_copy copy_at(struct route r, uint64_t bytes, uint64_t i)
{
    uint64_t slots =
        r.src->bytes / bytes < r.dst->bytes / bytes ? r.src->bytes / bytes : r.dst->bytes / bytes;
    uint64_t at = i % slots * bytes;
    return (struct mr_copy){r.dst->ptr + at, r.src->ptr + at, bytes, r.dst->kind, r.src->kind};
}

static int enqueue(const struct transfer *t, struct mr_stream *stream, enum transfer_way way,
                   struct route r, uint64_t bytes, uint64_t n)
{
    struct mr_copy copies[BATCH];
    int rc = 0;
    for (uint64_t i = 0; i < n; i++)
        copies[i] = copy_at(r, bytes, i);
    if (way == TRANSFER_GRAPH && t->graph)
        return mr_graph_launch(t->graph, stream);
    if (way == TRANSFER_BATCH)
        return mr_copy_batch_async(stream, copies, n);
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        const struct mr_copy *c = &copies[i];
        struct mr_kernel_copy args = {c->dst, c->src, c->bytes};
        if (r.src->dev != r.dst->dev)
            rc = mr_copy_peer_async(stream, c->dst, r.dst->dev, c->src, r.src->dev, c->bytes);
        else if (way == TRANSFER_KERNEL)
            rc = mr_launch(stream, "copy", &args, sizeof args);
        else
            rc = mr_copy_async(stream, c->dst, c->dst_kind, c->src, c->src_kind, c->bytes);
        if (rc == 0 && way == TRANSFER_BLOCKING)
            rc = mr_stream_synchronize(stream);
    }
    return rc;
}

static int synchronize(struct transfer *t, int sides)
{
    int rc = 0;
    for (int i = 0; i < sides && rc == 0; i++)
        rc = mr_stream_synchronize(t->stream[i]);
    return rc;
}

/* By the host's clock, which counts submitting. [out] ns: of all together. */
static int time_on_host(struct transfer *t, const struct transfer_series *s, uint64_t bytes,
                        uint64_t n, int64_t ns[3])
{
    uint64_t start = mr_time_ns();
    int rc = enqueue(t, t->stream[0], s->way, route_of(t, s->direction, 0), bytes, n);
    if (rc == 0)
        rc = synchronize(t, 1);
    ns[0] = ns[1] = ns[2] = (int64_t)(mr_time_ns() - start);
    return rc;
}

/* By the device's clock, from the latch's opening. [out] ns: all together, each side. */
static int time_on_device(struct transfer *t, const struct transfer_series *s, uint64_t bytes,
                          uint64_t n, int64_t ns[3])
{
    int sides = s->direction == TRANSFER_BOTH ? 2 : 1, rc = latch_close(&t->latch);
    for (int i = 0; i < sides && rc == 0; i++) {
        rc = latch_hold(&t->latch, t->stream[i]);
        if (rc == 0)
            rc = mr_event_record(t->start[i], t->stream[i]);
        if (rc == 0)
            rc = enqueue(t, t->stream[i], s->way, route_of(t, s->direction, i), bytes, n);
        if (rc == 0)
            rc = mr_event_record(t->end[i], t->stream[i]);
    }
    latch_open(&t->latch);
    int done = synchronize(t, 2);
    if (rc == 0)
        rc = done;
    ns[0] = 0;
    for (int from = 0; from < sides && rc == 0; from++) {
        for (int to = 0; to < sides && rc == 0; to++) {
            int64_t took = 0;
            rc = mr_event_elapsed(t->start[from], t->end[to], &took);
            ns[0] = took > ns[0] ? took : ns[0];
            if (from == to)
                ns[1 + to] = took;
        }
    }
    return rc;
}

/* ---- did the bytes arrive? ---- */

/* Calls fn for the pieces of [0, bytes) that are looked at: all, or both ends and 64 places
 * between. */
static int each_piece(struct transfer *t, struct route r, uint64_t bytes,
                      int (*fn)(struct transfer *t, struct route r, uint64_t from, uint64_t n))
{
    int rc = 0;
    if (bytes <= 4 * CHECK_BYTES) {
        for (uint64_t at = 0; at < bytes && rc == 0; at += CHECK_BYTES)
            rc = fn(t, r, at, bytes - at < CHECK_BYTES ? bytes - at : CHECK_BYTES);
        return rc;
    }
    for (uint64_t i = 0; i <= 64 && rc == 0; i++)
        rc = fn(t, r, (bytes - CHECK_BYTES) / 64 * i / 64 * 64, i % 64 ? 4096 : CHECK_BYTES);
    return rc;
}

static int clear_piece(struct transfer *t, struct route r, uint64_t from, uint64_t n)
{
    return mr_memset_async(t->stream[0], r.dst->ptr + from, r.dst->kind, 0, n);
}

static int check_piece(struct transfer *t, struct route r, uint64_t from, uint64_t n)
{
    const unsigned char *ptr = r.dst->ptr + from;
    if (r.dst->kind == MR_DEVICE) {
        int rc = mr_copy_async(t->stream[0], t->check, MR_PINNED, ptr, MR_DEVICE, n);
        if (rc == 0)
            rc = synchronize(t, 1);
        if (rc < 0)
            return rc;
        ptr = t->check;
    }
    uint64_t good = transfer_differs(ptr, from, n, r.seed);
    if (good == n)
        return 0;
    return mr_error_set(
        MR_EDEVICE,
        "after a copy from %s to %s memory the bytes at offset %llu are not those that were sent",
        transfer_memories[r.src->how], transfer_memories[r.dst->how],
        (unsigned long long)(from + good));
}

static int each_side(struct transfer *t, const struct transfer_series *s, uint64_t bytes,
                     uint64_t n,
                     int (*fn)(struct transfer *t, struct route r, uint64_t from, uint64_t n))
{
    int rc = 0;
    for (int i = 0; i < (s->direction == TRANSFER_BOTH ? 2 : 1) && rc == 0; i++) {
        struct route r = route_of(t, s->direction, i);
        uint64_t slots = r.src->bytes / bytes;
        rc = each_piece(t, r, bytes * (n < slots ? n : slots), fn);
    }
    return rc == 0 ? synchronize(t, 2) : rc;
}

/* ---- one series ---- */

static uint64_t copies_for(const struct transfer_series *s, uint64_t bytes)
{
    uint64_t n = (s->host_timed ? BURST_BYTES / 4 : BURST_BYTES) / bytes,
             most = s->host_timed ? BATCH / 4 : BATCH;
    if (s->way == TRANSFER_BATCH || s->way == TRANSFER_GRAPH)
        return BATCH;
    return n < 1 ? 1 : n > most ? most : n;
}

/* The copies of one point. */
static int record(struct transfer *t, const struct transfer_series *s, uint64_t bytes, uint64_t n)
{
    struct mr_graph *graph = NULL;
    int rc = mr_graph_begin(t->stream[0]);
    if (rc < 0)
        return rc;
    rc = enqueue(t, t->stream[0], TRANSFER_ASYNC, route_of(t, s->direction, 0), bytes, n);
    int ended = mr_graph_end(t->stream[0], rc == 0 ? &graph : NULL);
    t->graph = graph;
    return rc < 0 ? rc : ended;
}

/* The first run warms up, outside the latch: what a driver loads at first use it may load only
 * while nothing runs. */
static int measure_recorded(struct transfer *t, const struct transfer_series *s, uint64_t bytes,
                            struct transfer_point *out)
{
    double rates[3][TRANSFER_REPEATS];
    int64_t ns[3] = {0};
    uint64_t n = copies_for(s, bytes);
    int sides = s->direction == TRANSFER_BOTH ? 2 : 1, rc = each_side(t, s, bytes, n, clear_piece);
    for (int i = 0; i < sides && rc == 0; i++)
        rc = enqueue(t, t->stream[i], s->way, route_of(t, s->direction, i), bytes, n);
    if (rc == 0)
        rc = synchronize(t, 2);
    for (uint64_t k = 0; k < t->o->repeats && rc == 0; k++) {
        rc = bench_go_on();
        if (rc == 0)
            rc = s->host_timed ? time_on_host(t, s, bytes, n, ns)
                               : time_on_device(t, s, bytes, n, ns);
        for (int i = 0; i < 3 && rc == 0; i++)
            rates[i][k] =
                (double)(n * bytes) * (i == 0 ? sides : 1) / (double)(ns[i] > 0 ? ns[i] : 1);
    }
    if (rc == 0)
        rc = each_side(t, s, bytes, n, check_piece);
    if (rc < 0)
        return rc;
    *out = (struct transfer_point){.bytes = bytes, .copies = n};
    out->variation = stats_variation(rates[0], (int)t->o->repeats);
    out->gb_per_s = bench_median(rates[0], t->o->repeats);
    for (int i = 0; i < 2 && sides == 2; i++)
        out->each_gb_per_s[i] = bench_median(rates[1 + i], t->o->repeats);
    return 0;
}

static int measure_point(struct transfer *t, const struct transfer_series *s, uint64_t bytes,
                         struct transfer_point *out)
{
    int rc = s->way == TRANSFER_GRAPH ? record(t, s, bytes, copies_for(s, bytes)) : 0;
    if (rc == 0)
        rc = measure_recorded(t, s, bytes, out);
    mr_graph_destroy(t->graph);
    t->graph = NULL;
    return rc;
}

int transfer_series_measure(struct transfer *t, const struct mr_device_info *info,
                            struct transfer_series *s)
{
    double x[TRANSFER_MAX_SIZES], y[TRANSFER_MAX_SIZES];
    double limits[] = {info->h2d_gb_per_s, info->d2h_gb_per_s,
                       info->h2d_gb_per_s + info->d2h_gb_per_s, 0, t->peer_gb_per_s};
    static const char *const kinds[] = {"pageable",   "pinned",     "write-combined",
                                        "registered", "huge pages", "device"};
    static const char *const ways[] = {"", ", blocking", ", batch of 64", ", graph of 64",
                                       ", kernel"};
    snprintf(s->name, sizeof s->name, "%s%s", kinds[s->memory], ways[s->way]);
    s->host_timed = s->memory == TRANSFER_PAGEABLE || s->way == TRANSFER_BLOCKING;
    s->limit_gb_per_s = limits[s->direction];
    if (s->memory == TRANSFER_PAGEABLE && info->pageable_gb_per_s > 0 &&
        info->pageable_gb_per_s < s->limit_gb_per_s)
        s->limit_gb_per_s = info->pageable_gb_per_s;
    int rc = 0;
    for (uint64_t bytes = t->o->min_bytes; bytes <= t->o->max_bytes && rc == 0; bytes *= 4) {
        if (s->n == TRANSFER_MAX_SIZES ||
            ((s->way == TRANSFER_BATCH || s->way == TRANSFER_GRAPH) && bytes > BATCH_MAX_BYTES))
            break;
        if (cli_interrupted()) {
            rc = mr_error_set(MR_ECANCELLED, "interrupted");
            break;
        }
        rc = measure_point(t, s, bytes, &s->points[s->n]);
        s->n += rc == 0;
    }
    for (int i = 0; i < s->n; i++) {
        x[i] = (double)s->points[i].bytes;
        y[i] = x[i] / s->points[i].gb_per_s * (s->direction == TRANSFER_BOTH ? 2 : 1);
    }
    s->fitted = stats_fit(x, y, s->n, &s->latency_ns, &s->fit_gb_per_s) == 0;
    if (s->fitted && s->direction == TRANSFER_BOTH)
        s->fit_gb_per_s *= 2;
    return rc;
}
