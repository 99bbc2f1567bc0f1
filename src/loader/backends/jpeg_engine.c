/*
 * The device's decoder and the thread that drives it: one, since decoders hinder each other
 * (device/cuda/jpeg.c), and of its own, since a call keeps a processor busy for as long as the
 * device decodes, and workers can decode meanwhile.
 *
 * Workers append pictures, of any batches, to one list; the thread takes what is there, decodes it
 * at once, and has one kernel for each batch resample the windows into rows of that batch. It opens
 * the decoder itself, which takes most of a second, while the workers make the first batches.
 */
#include "loader/backends/jpeg.h"
#include "loader/engine.h"

#include <string.h>

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

/* [lock] Takes as many as the scratch holds. */
static uint32_t take(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e)
{
    uint64_t at = 0;
    uint32_t n = 0;
    for (struct mr_kept_picture *k = e->first; k && n < MR_JPEG_CHUNK; k = e->first) {
        uint64_t bytes = mr_round_up((uint64_t)k->width * k->height * 3, 256);
        if (bytes > g->scratch_bytes - at)
            break;
        e->picture[n] = (struct mr_jpeg){.bytes = k->bytes,
                                         .n_bytes = k->n_bytes,
                                         .width = k->width,
                                         .height = k->height,
                                         .to = e->scratch + at};
        e->kept[n++] = k;
        e->first = k->next;
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
    uint32_t begin = *at;
    for (uint32_t i = first; i < n; i++) {
        if (e->kept[i]->slot != slot)
            continue;
        e->rows[*at] = e->kept[i]->window; /* of one that is refused, too: nobody reads it */
        e->rows[(*at)++].at += (uint64_t)((unsigned char *)e->picture[i].to - e->scratch);
    }
    uint64_t bytes = (*at - begin) * sizeof *e->rows;
    struct mr_resample_args args = {.rows = e->rows_on_device + begin,
                                    .in = e->scratch,
                                    .out = slot->rows + e->kept[first]->place * g->row_bytes,
                                    .n = *at - begin,
                                    .in_bytes = g->scratch_bytes,
                                    .out_w = g->out_w,
                                    .out_h = g->out_h};
    int rc = mr_copy_async(e->stream, e->rows_on_device + begin, MR_DEVICE, e->rows + begin,
                           MR_PINNED, bytes);
    if (rc == 0)
        rc = mr_launch(e->stream, "resample", &args, sizeof args);
    return rc < 0 ? rc : mr_event_record(slot->done, e->stream);
}

static bool is_first_of_slot(const struct mr_jpeg_engine *e, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (e->kept[k]->slot == e->kept[i]->slot)
            return false;
    return true;
}

static int decode(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e, uint32_t n)
{
    uint32_t at = 0;
    int rc = e->recorded ? mr_event_synchronize(e->done) : 0;
    if (rc == 0)
        rc = mr_jpeg_decode(e->unit, e->stream, e->picture, n);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        e->kept[i]->refused = e->picture[i].refused;
        if (is_first_of_slot(e, i))
            rc = resample(g, e, i, n, &at);
    }
    int recorded = mr_event_record(e->done, e->stream); /* also behind what preceded an error */
    e->recorded |= recorded == 0;
    return rc < 0 ? rc : recorded;
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

static void decode_chunk(const struct mr_jpeg_state *g, struct mr_jpeg_engine *e, uint32_t n)
{
    uint64_t start = mr_time_ns();
    pthread_mutex_unlock(&e->lock);
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
        uint32_t n = take(g, e);
        if (n > 0)
            decode_chunk(g, e, n);
        else
            pthread_cond_wait(&e->wanted, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    if (e->recorded)
        mr_event_synchronize(e->done);
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
