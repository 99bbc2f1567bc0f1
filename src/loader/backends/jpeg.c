/*
 * Pictures that the device decodes. A worker that comes to one only keeps its compressed bytes and
 * works out its window. Who completes the batch hands its pictures to a decoder of the device,
 * before it is collated: what the decoder refuses is decoded on the host, so that bad samples are
 * those of the host's decoders. One kernel resamples the windows into rows of their own; behind the
 * batch's copy another one moves these to where they belong.
 *
 * The decoder's host part, and waiting for it, are the completing worker's: hence several contexts.
 */
#include "loader/backends/jpeg.h"
#include "codec/image_codec.h"
#include "loader/backends/host.h"
#include "loader/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES (1u << 20) /* of a compressed picture: each row of a slot may hold one */
#define END_WITHIN 32         /* last bytes that hold the end's marker; else it may be cut off */

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

int mr_jpeg_keep(const struct mr_backend *b, struct mr_kept_picture *to, const struct mr_at *at,
                 const struct mr_bytes *bytes, struct mr_picture *out)
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
    if (mr_transform_cut(ld->chain, g->field, at, info.width, info.height, &cut) != 0 ||
        cut.out_w != g->out_w || cut.out_h != g->out_h ||
        !set_axis(&cut, false, &to->window.across) || !set_axis(&cut, true, &to->window.down))
        return 0;
    set_steps(turn, width, height, &to->window);
    to->width = width;
    to->height = height;
    *out = (struct mr_picture){.full_width = info.width, .full_height = info.height};
    int rc = keep_bytes(to, bytes);
    return rc == 0 ? 1 : rc;
}

/* The context's first n pictures: decoded into its scratch, resampled into `out`. */
static int decode_some(const struct mr_backend *b, struct mr_jpeg_context *c,
                       const struct mr_kept_picture *kept, uint32_t n, unsigned char *out,
                       uint64_t *from, uint32_t *n_out)
{
    const struct mr_jpeg_state *g = b->state;
    uint32_t done = 0;
    int rc = mr_jpeg_decode(c->unit, c->stream, c->picture, n);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        const struct mr_jpeg *p = &c->picture[i];
        if (p->refused)
            continue;
        c->rows[done] = kept[c->row[i]].window;
        c->rows[done].at += (uint64_t)((unsigned char *)p->to - c->scratch);
        from[c->row[i]] = *n_out + done++;
    }
    if (done == 0)
        return 0;
    struct mr_resample_args args = {.rows = c->rows_on_device,
                                    .in = c->scratch,
                                    .out = out + *n_out * g->row_bytes,
                                    .n = done,
                                    .in_bytes = g->scratch_bytes,
                                    .out_w = g->out_w,
                                    .out_h = g->out_h};
    *n_out += done;
    rc = mr_copy_async(c->stream, c->rows_on_device, MR_DEVICE, c->rows, MR_PINNED,
                       done * sizeof *c->rows);
    return rc < 0 ? rc : mr_launch(c->stream, "resample", &args, sizeof args);
}

/* Puts kept pictures from row *row on into the context, as many as its scratch holds. */
static uint32_t gather_some(const struct mr_backend *b, struct mr_jpeg_context *c,
                            const struct mr_kept_picture *kept, uint64_t n, uint64_t *row)
{
    const struct mr_jpeg_state *g = b->state;
    uint64_t at = 0;
    uint32_t k = 0;
    for (; *row < n; ++*row) {
        const struct mr_kept_picture *s = &kept[*row];
        uint64_t bytes = mr_round_up((uint64_t)s->width * s->height * 3, 256);
        if (!s->used)
            continue;
        if (bytes > g->scratch_bytes - at)
            break;
        c->picture[k] = (struct mr_jpeg){.bytes = s->bytes,
                                         .n_bytes = s->n_bytes,
                                         .width = s->width,
                                         .height = s->height,
                                         .to = c->scratch + at};
        c->row[k++] = (uint32_t)*row;
        at += bytes;
    }
    return k;
}

int mr_jpeg_decode_rows(const struct mr_backend *b, struct mr_jpeg_context *c,
                        struct mr_kept_picture *kept, uint64_t n, unsigned char *out,
                        uint64_t *from, uint32_t *n_out)
{
    int rc = 0;
    *n_out = 0;
    for (uint64_t row = 0; row < n && rc == 0;) {
        uint32_t k = gather_some(b, c, kept, n, &row);
        rc = c->recorded ? mr_event_synchronize(c->done) : 0;
        if (rc == 0 && k > 0)
            rc = decode_some(b, c, kept, k, out, from, n_out);
        int recorded = mr_event_record(c->done, c->stream); /* also behind what preceded an error */
        c->recorded |= recorded == 0;
        rc = rc < 0 ? rc : recorded;
    }
    return rc;
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
    uint32_t random[4];
    mr_draw4(b->ld->opts.seed, MR_DRAW_DECODE, index, epoch, 0, random);
    return random[0] < ((const struct mr_jpeg_state *)b->state)->below;
}

static int jpeg_make(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                     struct mr_run_sample *s)
{
    struct mr_jpeg_state *g = b->state;
    const struct mr_jpeg_slot *own = mr_backend_own(b, row->slot);
    struct mr_kept_picture *kept = &own->kept[row->at];
    struct mr_bytes stored = {NULL, 0};
    struct mr_decoding d;
    int rc = mr_host_decode(w, row, s, &stored, &d);
    if (rc < 0 || !stored.data)
        return rc;
    rc = mr_jpeg_keep(b, kept, &d.at, &stored, &d.sample.picture);
    if (rc <= 0)
        return rc;
    rc = mr_host_write(w, row, &d, 1u << g->field);
    if (rc < 0)
        return rc;
    kept->used = true;
    return 1;
}

static uint64_t *from_of(const struct mr_backend *b, const struct mr_slot *slot)
{
    const struct mr_jpeg_state *g = b->state;
    return (uint64_t *)(void *)(slot->host + g->from_offset);
}

static int decode_batch(struct mr_backend *b, struct mr_slot *slot, uint64_t t)
{
    struct mr_jpeg_state *g = b->state;
    struct mr_jpeg_slot *own = mr_backend_own(b, slot);
    struct mr_jpeg_context *c = &g->context[slot->id % MR_JPEG_CONTEXTS];
    uint64_t *from = from_of(b, slot), rows = slot->info.rows, start = mr_time_ns();
    for (uint64_t row = 0; row < rows; row++) {
        from[row] = UINT64_MAX;
        own->kept[row].used &= mr_backend_made(b, slot, row);
    }
    pthread_mutex_lock(&c->lock);
    int rc = mr_jpeg_decode_rows(b, c, own->kept, rows, own->rows, from, &own->n);
    if (rc == 0)
        rc = mr_event_record(own->done, c->stream);
    pthread_mutex_unlock(&c->lock);
    mr_trace_span("decode: device", start, mr_time_ns(), "batch", t);
    return rc;
}

/* What the decoder refuses the host decodes after all. */
static void jpeg_complete(struct mr_backend *b, struct mr_worker *w, struct mr_slot *slot,
                          uint64_t t)
{
    struct mr_jpeg_state *g = b->state;
    struct mr_jpeg_slot *own = mr_backend_own(b, slot);
    const uint64_t *from = from_of(b, slot);
    uint32_t refused = 0;
    int rc = decode_batch(b, slot, t);
    if (rc < 0) {
        own->n = 0;
        mr_bad_add(b->ld, slot, 0, NULL, rc, true);
        return;
    }
    for (uint64_t row = 0; row < slot->info.rows; row++)
        if (own->kept[row].used && from[row] == UINT64_MAX) {
            mr_sample_make_again(w, slot, t, (uint32_t)row);
            refused++;
        }
    atomic_fetch_add_explicit(&g->decoded, own->n, memory_order_relaxed);
    atomic_fetch_add_explicit(&g->refused, refused, memory_order_relaxed);
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

static void jpeg_stats(const struct mr_backend *b, struct mr_loader_stats *out)
{
    const struct mr_jpeg_state *g = b->state;
    if (!b->used) {
        snprintf(out->gpu_why_not, sizeof out->gpu_why_not, "%s", b->note);
        return;
    }
    out->gpu_decode = g->fraction;
    out->gpu_decoded = mr_counted(&g->decoded);
    out->gpu_refused = mr_counted(&g->refused);
    out->cpu_decode_rate = g->cpu_rate;
    out->gpu_decode_rate = g->gpu_rate;
}

const struct mr_row_backend mr_row_jpeg = {
    .name = "jpeg",
    .state_size = sizeof(struct mr_jpeg_state),
    .reads = true,
    .plan = mr_jpeg_plan,
    .lay_out = jpeg_lay_out,
    .bytes = mr_jpeg_bytes,
    .open = mr_jpeg_open_all,
    .slot_size = sizeof(struct mr_jpeg_slot),
    .slot_open = mr_jpeg_slot_open,
    .slot_close = mr_jpeg_slot_close,
    .takes = jpeg_takes,
    .make = jpeg_make,
    .complete = jpeg_complete,
    .move = jpeg_move,
    .enqueue = jpeg_enqueue,
    .stats = jpeg_stats,
    .close = mr_jpeg_close_all,
};
