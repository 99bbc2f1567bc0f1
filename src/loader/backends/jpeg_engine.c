/*
 * The device's decoder and the thread that drives it: one, since decoders hinder each other
 * (device/cuda/jpeg.c), and of its own, since a call keeps a processor busy for as long as the
 * device decodes, and workers can decode meanwhile.
 *
 * Workers append pictures, of any batches, to one list; the thread takes what is there, decodes it
 * at once, and has one kernel for each batch resample the windows into rows of that batch. It opens
 * the decoder itself, which takes most of a second, while the workers make the first batches.
 *
 * Between two calls the decoder stands still, so little is done there: windows are resampled beside
 * the next call, the list is taken as a whole, and the thread is put before the workers. If it has
 * to wait until one of them leaves a processor, for milliseconds, the decoder waits with it.
 */
#include "loader/backends/jpeg.h"
#include "loader/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define ENGINE_NICE   -10
#define ROWS_OF(half) ((half)*MR_JPEG_CHUNK)

bool mr_jpeg_nice(int more)
{
    id_t self = (id_t)gettid();
    errno = 0;
    int now = getpriority(PRIO_PROCESS, self);
    return (now != -1 || errno == 0) && setpriority(PRIO_PROCESS, self, now + more) == 0;
}

int mr_jpeg_engine_wait(struct mr_jpeg_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (atomic_load(&e->state) == MR_JPEG_OPENING)
        pthread_cond_wait(&e->passed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return atomic_load(&e->state) == MR_JPEG_FAILED ? mr_error_put(&e->error) : 0;
}

void mr_jpeg_engine_push(struct mr_jpeg_engine *e, struct mr_jpeg_slot *slot, uint64_t t,
                         struct mr_kept_picture *kept)
{
    kept->slot = slot;
    kept->refused = false;
    kept->next = NULL;
    pthread_mutex_lock(&e->lock);
    if (slot->t != t) {
        slot->t = t;
        slot->n = slot->n_left = 0;
    }
    kept->place = slot->n++;
    slot->n_left++;
    bool sleeps = !e->first;
    *(e->first ? e->last : &e->first) = kept;
    e->last = &kept->next;
    atomic_fetch_add_explicit(&e->n_waiting, 1, memory_order_relaxed);
    pthread_mutex_unlock(&e->lock);
    if (sleeps)
        pthread_cond_signal(&e->wanted);
}

bool mr_jpeg_engine_has(struct mr_jpeg_engine *e, const struct mr_jpeg_slot *slot, uint64_t t)
{
    pthread_mutex_lock(&e->lock);
    bool has = slot->t == t && slot->n_left > 0;
    pthread_mutex_unlock(&e->lock);
    return has;
}

int mr_jpeg_engine_finish(struct mr_jpeg_engine *e, struct mr_jpeg_slot *slot, uint64_t t)
{
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    while (slot->t == t && slot->n_left > 0)
        pthread_cond_wait(&e->passed, &e->lock);
    if (slot->t != t)
        slot->n = 0;
    else if (atomic_load(&e->state) == MR_JPEG_FAILED)
        rc = mr_error_put(&e->error);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* [lock] Behind what it has. Returns whether it has any. */
static bool take_list(struct mr_jpeg_engine *e)
{
    if (e->first) {
        *(e->next ? e->next_end : &e->next) = e->first;
        e->next_end = e->last;
        e->first = NULL;
    }
    return e->next != NULL;
}

static unsigned char *scratch_of(const struct mr_jpeg_state *g, const struct mr_jpeg_engine *e)
{
    return e->scratch + e->half * g->scratch_bytes;
}

/* Takes a chunk off its list, for the other half: as many as that holds, and a call takes. */
static uint32_t take_chunk(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e)
{
    uint64_t at = 0;
    uint32_t n = 0;
    e->half ^= 1;
    for (struct mr_kept_picture *k = e->next; k && n < MR_JPEG_CHUNK; k = e->next) {
        uint64_t bytes = mr_round_up((uint64_t)k->width * k->height * 3, 256);
        if (bytes > g->scratch_bytes - at)
            break;
        e->picture[n] = (struct mr_jpeg){.bytes = k->bytes,
                                         .n_bytes = k->n_bytes,
                                         .width = k->width,
                                         .height = k->height,
                                         .to = scratch_of(g, e) + at};
        e->kept[n++] = k;
        e->next = k->next;
        at += bytes;
    }
    atomic_fetch_sub_explicit(&e->n_waiting, n, memory_order_relaxed);
    return n;
}

/* The windows of one slot's pictures, from number `first` on, into its rows. They have got places
 * in a row, as they came. at: how many of the chunk's rows are written; moved on. */
static int resample(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e, uint32_t first,
                    uint32_t n, uint32_t *at)
{
    const struct mr_jpeg_slot *slot = e->kept[first]->slot;
    unsigned char *in = scratch_of(g, e);
    uint32_t begin = *at;
    for (uint32_t i = first; i < n; i++) {
        if (e->kept[i]->slot != slot)
            continue;
        e->rows[*at] = e->kept[i]->window; /* of one that is refused, too: nobody reads it */
        e->rows[(*at)++].at += (uint64_t)((unsigned char *)e->picture[i].to - in);
    }
    uint64_t bytes = (*at - begin) * sizeof *e->rows;
    struct mr_resample_args args = {.rows = e->rows_on_device + begin,
                                    .in = in,
                                    .out = slot->rows + e->kept[first]->place * g->row_bytes,
                                    .n = *at - begin,
                                    .in_bytes = g->scratch_bytes,
                                    .out_w = g->out_w,
                                    .out_h = g->out_h};
    int rc = mr_copy_async(e->resampling, e->rows_on_device + begin, MR_DEVICE, e->rows + begin,
                           MR_PINNED, bytes);
    if (rc == 0)
        rc = mr_launch(e->resampling, "resample", &args, sizeof args);
    return rc < 0 ? rc : mr_event_record(slot->done, e->resampling);
}

/* What both, the decoder's state and this half, were used for before has passed. */
static int wait_for_half(struct mr_jpeg_engine *e)
{
    int rc = e->recorded ? mr_event_synchronize(e->through) : 0;
    return rc == 0 && e->half_recorded[e->half] ? mr_event_synchronize(e->done[e->half]) : rc;
}

/* The windows of a chunk, behind its decoding: slot by slot. */
static int resample_all(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e, uint32_t n)
{
    const struct mr_jpeg_slot *seen[MR_JPEG_CHUNK];
    uint32_t at = ROWS_OF(e->half), n_seen = 0;
    int rc = mr_stream_wait(e->resampling, e->through);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        uint32_t k = 0;
        e->kept[i]->refused = e->picture[i].refused;
        while (k < n_seen && seen[k] != e->kept[i]->slot)
            k++;
        if (k < n_seen)
            continue;
        seen[n_seen++] = e->kept[i]->slot;
        rc = resample(g, e, i, n, &at);
    }
    int recorded = mr_event_record(e->done[e->half], e->resampling); /* also of what is not all */
    e->half_recorded[e->half] |= recorded == 0;
    return rc < 0 ? rc : recorded;
}

static int decode(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e, uint32_t n)
{
    int rc = wait_for_half(e);
    if (rc == 0)
        rc = mr_jpeg_decode(e->unit, e->stream, e->picture, n);
    int recorded = mr_event_record(e->through, e->stream); /* also behind what preceded an error */
    e->recorded |= recorded == 0;
    rc = rc < 0 ? rc : recorded;
    return rc < 0 ? rc : resample_all(g, e, n);
}

/* [lock] */
static void set_state(struct mr_jpeg_engine *e, int rc)
{
    if (rc < 0 && atomic_load(&e->state) != MR_JPEG_FAILED)
        mr_error_keep(rc, &e->error);
    if (rc < 0)
        atomic_store(&e->state, MR_JPEG_FAILED);
    else if (atomic_load(&e->state) == MR_JPEG_OPENING)
        atomic_store(&e->state, MR_JPEG_WORKS);
    pthread_cond_broadcast(&e->passed);
}

/* [lock] It is left meanwhile. */
static void decode_chunk(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e)
{
    pthread_mutex_unlock(&e->lock);
    uint64_t start = mr_time_ns();
    uint32_t n = take_chunk(g, e);
    int rc = atomic_load(&e->state) == MR_JPEG_WORKS ? decode(g, e, n) : 0;
    uint64_t end = mr_time_ns();
    mr_trace_span("decode: device", start, end, "pictures", n);
    atomic_fetch_add_explicit(&e->busy_ns, end - start, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->decoded, n, memory_order_relaxed);
    atomic_store_explicit(&e->to_ns, end, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < n; i++)
        e->kept[i]->slot->n_left--;
    set_state(e, rc);
}

static void *engine_main(void *backend)
{
    struct mr_backend *b = backend;
    struct mr_device *device = b->ld->device;
    struct mr_jpeg_state *g = b->state;
    struct mr_jpeg_engine *e = &g->engine;
    mr_trace_thread("jpeg");
    prctl(PR_SET_TIMERSLACK, MR_NAP_SLACK_NS, 0, 0, 0);
    atomic_store(&e->crowded, !mr_jpeg_nice(ENGINE_NICE));
    bool entered = mr_device_enter(device) == 0; /* else each call says so */
    uint64_t start = mr_time_ns(), end;
    int rc = mr_jpeg_open(device, &e->unit);
    end = mr_time_ns();
    mr_trace_span("open decoder", start, end, NULL, 0);
    atomic_store(&e->from_ns, end);
    atomic_store(&e->to_ns, end);
    pthread_mutex_lock(&e->lock);
    set_state(e, rc);
    while (!e->stop) {
        if (take_list(e))
            decode_chunk(g, e);
        else
            pthread_cond_wait(&e->wanted, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    if (e->recorded)
        mr_event_synchronize(e->through);
    for (int half = 0; half < 2; half++)
        if (e->half_recorded[half])
            mr_event_synchronize(e->done[half]);
    mr_jpeg_close(e->unit);
    if (entered)
        mr_device_leave(device);
    return NULL;
}

int mr_jpeg_engine_start(struct mr_backend *b)
{
    struct mr_jpeg_engine *e = &((struct mr_jpeg_state *)b->state)->engine;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wanted, NULL);
    pthread_cond_init(&e->passed, NULL);
    e->has_lock = true;
    int rc = mr_thread_start(&e->thread, "mr-jpeg", engine_main, b);
    e->started = rc == 0;
    return rc;
}

void mr_jpeg_engine_stop(struct mr_jpeg_engine *e)
{
    if (e->started) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_mutex_unlock(&e->lock);
        pthread_cond_signal(&e->wanted);
        pthread_join(e->thread, NULL);
    }
    if (e->has_lock) {
        pthread_mutex_destroy(&e->lock);
        pthread_cond_destroy(&e->wanted);
        pthread_cond_destroy(&e->passed);
    }
}
