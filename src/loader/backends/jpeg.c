/*
 * Pictures that the device decodes. A worker that comes to one only keeps its compressed bytes,
 * works out its window, and gives it to the engine (jpeg_engine.c), which decodes it into a row of
 * its own. Who completes the batch waits until the engine has decoded all of it: what the decoder
 * refuses is decoded on the host, so that bad samples are those of the host's decoders. Behind the
 * batch's copy a kernel moves the rows to where they belong.
 *
 * With AUTO a worker gives a picture to the engine whenever few wait there, and else decodes it:
 * both sides always have work, at whatever rates, so there is no share to be found. With a share
 * the pictures are drawn, and the engine gets them however many wait.
 */
#include "loader/backends/jpeg.h"
#include "codec/image_codec.h"
#include "loader/backends/host.h"
#include "loader/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES  (1u << 20) /* of a compressed picture: each row of a slot may hold one */
#define WORKER_NICE 5          /* where the engine's thread is refused a better one */
#define END_WITHIN  32         /* last bytes that hold the end's marker; else it may be cut off */

static bool has_end(const struct mr_bytes *in)
{
    const unsigned char *b = in->data;
    for (uint64_t i = in->n; i >= 2 && in->n - i < END_WITHIN; i--)
        if (b[i - 2] == 0xff && b[i - 1] == 0xd9)
            return true;
    return false;
}

static int keep_bytes(struct mr_kept_picture *to, const struct mr_bytes *in)
{
    if (to->cap < in->n) {
        free(to->bytes);
        to->cap = 0;
        to->bytes = malloc(in->n);
        if (!to->bytes)
            return mr_error_nomem("picture for the device", in->n);
        to->cap = in->n;
    }
    memcpy(to->bytes, in->data, in->n);
    to->n_bytes = in->n;
    return 0;
}

/* As transform/resample.c's, of a picture that is all there. false: more weights than the kernel
 * has room for. */
static bool set_axis(const struct mr_cut *cut, bool down, struct mr_resample_axis *out)
{
    *out = (struct mr_resample_axis){.start = down ? cut->y : cut->x,
                                     .scale = (down ? cut->h : cut->w) /
                                              (double)(down ? cut->size_h : cut->size_w),
                                     .clip = (int32_t)(down ? cut->clip_y : cut->clip_x),
                                     .n_clip = (int32_t)(down ? cut->clip_h : cut->clip_w),
                                     .skip = (int32_t)(down ? cut->y0 : cut->x0),
                                     .filter = cut->filter};
    return ceil(mr_resample_support(out)) * 2 + 1 < MR_RESAMPLE_TAPS;
}

/* Where the upright pixels of a stored picture lie. width, height: as stored. */
static void set_steps(struct mr_turn turn, uint32_t width, uint32_t height,
                      struct mr_resample_row *r)
{
    int64_t x = 3, y = (int64_t)width * 3;
    r->at = 0;
    if (turn.flip_x) {
        r->at += (uint64_t)(width - 1) * 3;
        x = -x;
    }
    if (turn.flip_y) {
        r->at += (uint64_t)(height - 1) * width * 3;
        y = -y;
    }
    r->step_x = turn.swap ? y : x;
    r->step_y = turn.swap ? x : y;
}

/* Keeps a picture's bytes for the device. Returns 1, 0: the host is to decode it; -ENOMEM. */
static int keep_picture(const struct mr_backend *b, struct mr_kept_picture *to,
                        const struct mr_at *at, const struct mr_bytes *bytes,
                        struct mr_picture *out)
{
    const struct mr_jpeg_state *g = b->state;
    const struct mr_loader *ld = b->ld;
    struct mr_image_info info;
    struct mr_cut cut;
    if (bytes->n > MOST_BYTES || mr_image_sniff(bytes->data, bytes->n) != MR_IMAGE_JPEG ||
        !has_end(bytes) || mr_image_probe("", bytes->data, bytes->n, &info) < 0 || !info.plain)
        return 0; /* what is wrong with it the host's decoder tells */
    uint64_t pixels = (uint64_t)info.width * info.height;
    if (pixels > g->most_pixels || (ld->ds->image.max_pixels && pixels > ld->ds->image.max_pixels))
        return 0;
    struct mr_turn turn = mr_turn_of(info.orientation);
    uint32_t width = turn.swap ? info.height : info.width,
             height = turn.swap ? info.width : info.height;
    if (ld->ds->image.ignore_orientation) {
        turn = mr_turn_of(1);
        info.width = width;
        info.height = height;
    }
    struct mr_jpeg asked = {
        .bytes = bytes->data, .n_bytes = bytes->n, .width = width, .height = height};
    if (mr_transform_cut(ld->chain, g->field, at, info.width, info.height, &cut) != 0 ||
        cut.out_w != g->out_w || cut.out_h != g->out_h ||
        !set_axis(&cut, false, &to->window.across) || !set_axis(&cut, true, &to->window.down) ||
        !mr_jpeg_takes(g->engine.unit, &asked))
        return 0;
    set_steps(turn, width, height, &to->window);
    to->width = width;
    to->height = height;
    *out = (struct mr_picture){.full_width = info.width, .full_height = info.height};
    int rc = keep_bytes(to, bytes);
    return rc == 0 ? 1 : rc;
}

static void jpeg_lay_out(struct mr_backend *b, uint64_t *at)
{
    struct mr_jpeg_state *g = b->state;
    g->from_offset = *at;
    *at = mr_round_up(*at + b->ld->opts.batch_size * sizeof(uint64_t), 256);
}

/* A draw by seed, epoch and index: not by time, so that a run can be repeated. */
static bool jpeg_takes(const struct mr_backend *b, uint64_t epoch, uint64_t index,
                       const struct mr_extent *at, int n)
{
    (void)at;
    (void)n;
    const struct mr_jpeg_state *g = b->state;
    uint32_t random[4];
    if (g->automatic)
        return true; /* jpeg_make() may decline */
    mr_draw4(b->ld->opts.seed, MR_DRAW_DECODE, index, epoch, 0, random);
    return random[0] < g->below;
}

/* Has the engine enough to do? It always is given more below a quarter of g->ahead; from there on
 * ever fewer, evenly spread: if it were all or none, each chunk that it takes would bring the next
 * samples of all workers in one burst, and the batches would come as unevenly. */
static bool has_enough(struct mr_jpeg_state *g)
{
    uint32_t waiting = atomic_load_explicit(&g->engine.n_waiting, memory_order_relaxed);
    uint32_t low = g->ahead / 4;
    if (waiting < low || waiting >= g->ahead)
        return waiting >= g->ahead;
    uint64_t turn = atomic_fetch_add_explicit(&g->turn, 1, memory_order_relaxed);
    uint64_t spread = (turn * 0x9e3779b97f4a7c15u) >> 32; /* of 2^32, by the golden ratio */
    return spread * (g->ahead - low) >= (uint64_t)(g->ahead - waiting) << 32;
}

static bool declines(struct mr_jpeg_state *g)
{
    if (!g->automatic)
        return false;
    if (atomic_load(&g->engine.state) != MR_JPEG_WORKS)
        return true;
    bool enough = has_enough(g);
    if (enough)
        atomic_fetch_add_explicit(&g->declined, 1, memory_order_relaxed);
    return enough;
}

/* 1, 0: the host's; or the sample's error. */
static int keep(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                struct mr_run_sample *s, struct mr_kept_picture *kept)
{
    const struct mr_jpeg_state *g = b->state;
    struct mr_bytes stored = {NULL, 0};
    struct mr_decoding d;
    int rc = mr_host_decode(w, row, s, &stored, &d);
    if (rc < 0 || !stored.data)
        return rc;
    rc = keep_picture(b, kept, &d.at, &stored, &d.sample.picture);
    if (rc <= 0)
        return rc;
    rc = mr_host_write(w, row, &d, 1u << g->field);
    return rc < 0 ? rc : 1;
}

/* Behind the engine's thread, which could not be put before the workers. */
static void step_back(const struct mr_jpeg_state *g)
{
    static _Thread_local bool stepped_back; /* a worker is of one loader */
    if (stepped_back || !atomic_load_explicit(&g->engine.crowded, memory_order_relaxed) ||
        atomic_load(&g->engine.state) != MR_JPEG_WORKS)
        return;
    stepped_back = true;
    mr_jpeg_nice(WORKER_NICE);
}

static int jpeg_make(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                     struct mr_run_sample *s)
{
    struct mr_jpeg_state *g = b->state;
    struct mr_jpeg_slot *own = mr_backend_own(b, row->slot);
    step_back(g);
    int rc = declines(g) ? 0 : keep(b, w, row, s, &own->kept[row->at]);
    if (rc == 1)
        mr_jpeg_engine_push(&g->engine, own, row->t, &own->kept[row->at]);
    else
        atomic_fetch_add_explicit(&g->by_host, 1, memory_order_relaxed);
    return rc;
}

static uint64_t *from_of(const struct mr_backend *b, const struct mr_slot *slot)
{
    const struct mr_jpeg_state *g = b->state;
    return (uint64_t *)(void *)(slot->host + g->from_offset);
}

static bool jpeg_late(const struct mr_backend *b, const struct mr_slot *slot, uint64_t t)
{
    return mr_jpeg_engine_has(&((struct mr_jpeg_state *)b->state)->engine, mr_backend_own(b, slot),
                              t);
}

/* What the decoder refuses the host decodes after all. */
static void jpeg_complete(struct mr_backend *b, struct mr_worker *w, struct mr_slot *slot,
                          uint64_t t)
{
    struct mr_jpeg_state *g = b->state;
    struct mr_jpeg_slot *own = mr_backend_own(b, slot);
    uint64_t *from = from_of(b, slot), start = mr_time_ns();
    uint32_t refused = 0;
    int rc = mr_jpeg_engine_finish(&g->engine, own, t);
    mr_trace_span("wait: decoder", start, mr_time_ns(), "batch", t);
    if (rc < 0) {
        own->n = 0;
        mr_bad_add(b->ld, slot, 0, NULL, rc, true);
        return;
    }
    for (uint64_t row = 0; row < slot->info.rows; row++) {
        const struct mr_kept_picture *kept = &own->kept[row];
        from[row] = UINT64_MAX;
        if (!mr_backend_made(b, slot, row))
            continue;
        if (!kept->refused) {
            from[row] = kept->place;
            continue;
        }
        mr_sample_make_again(w, slot, t, (uint32_t)row);
        refused++;
    }
    atomic_fetch_add_explicit(&g->refused, refused, memory_order_relaxed);
    atomic_fetch_add_explicit(&g->decoded, own->n - refused, memory_order_relaxed);
}

static void jpeg_move(struct mr_backend *b, struct mr_slot *slot, uint64_t to, uint64_t from)
{
    from_of(b, slot)[to] = from_of(b, slot)[from];
}

static int jpeg_enqueue(struct mr_backend *b, struct mr_slot *slot, struct mr_stream *stream,
                        uint64_t *copied)
{
    (void)copied;
    const struct mr_jpeg_state *g = b->state;
    const struct mr_jpeg_slot *own = mr_backend_own(b, slot);
    const unsigned char *from = slot->device + g->from_offset;
    if (own->n == 0 || slot->size == 0)
        return 0;
    struct mr_gather_args args = {.in = own->rows,
                                  .out = slot->device + b->ld->layout.field[g->field].offset,
                                  .index = (const uint64_t *)(const void *)from,
                                  .rows = slot->size,
                                  .in_rows = own->n,
                                  .row_bytes = g->row_bytes};
    int rc = mr_stream_wait(stream, own->done);
    return rc < 0 ? rc : mr_launch(stream, "gather", &args, sizeof args);
}

/* While both decoded. */
static void stats_of_both(const struct mr_jpeg_state *g, struct mr_loader_stats *out)
{
    const struct mr_jpeg_engine *e = &g->engine;
    uint64_t busy = mr_counted(&e->busy_ns), from = mr_counted(&e->from_ns),
             to = mr_counted(&e->to_ns), all = out->gpu_decoded + mr_counted(&g->by_host);
    out->gpu_decode = all > 0 ? (double)out->gpu_decoded / (double)all : 0;
    if (busy > 0)
        out->gpu_decode_rate = (double)mr_counted(&e->decoded) * 1e9 / (double)busy;
    if (to > from)
        out->cpu_decode_rate = (double)mr_counted(&g->declined) * 1e9 / (double)(to - from);
}

static void jpeg_stats(const struct mr_backend *b, struct mr_loader_stats *out)
{
    const struct mr_jpeg_state *g = b->state;
    const struct mr_jpeg_engine *e = &g->engine;
    if (!b->used) {
        snprintf(out->gpu_why_not, sizeof out->gpu_why_not, "%s", b->note);
        return;
    }
    out->gpu_decode = g->fraction;
    out->gpu_decoded = mr_counted(&g->decoded);
    out->gpu_refused = mr_counted(&g->refused);
    if (g->automatic)
        stats_of_both(g, out);
    if (g->automatic && atomic_load(&e->state) == MR_JPEG_FAILED)
        snprintf(out->gpu_why_not, sizeof out->gpu_why_not, "%.255s", e->error.text);
}

static void jpeg_stop(struct mr_backend *b)
{
    mr_jpeg_engine_stop(&((struct mr_jpeg_state *)b->state)->engine);
}

const struct mr_row_backend mr_row_jpeg = {
    .name = "jpeg",
    .state_size = sizeof(struct mr_jpeg_state),
    .reads = true,
    .deep = true,
    .plan = mr_jpeg_plan,
    .lay_out = jpeg_lay_out,
    .bytes = mr_jpeg_bytes,
    .open = mr_jpeg_open_all,
    .slot_size = sizeof(struct mr_jpeg_slot),
    .slot_open = mr_jpeg_slot_open,
    .slot_close = mr_jpeg_slot_close,
    .takes = jpeg_takes,
    .make = jpeg_make,
    .late = jpeg_late,
    .complete = jpeg_complete,
    .move = jpeg_move,
    .enqueue = jpeg_enqueue,
    .stats = jpeg_stats,
    .stop = jpeg_stop,
    .close = mr_jpeg_close_all,
};
