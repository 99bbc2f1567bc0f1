/*
 * Pictures that the device decodes. A worker that comes to one only keeps its bytes, and works out
 * its window. Whoever completes a batch hands its pictures to a decoder of the device, before it is
 * collated: what the decoder refuses it decodes itself, so that bad samples are those of the host's
 * decoders. One kernel resamples the windows into rows of their own; behind the batch's copy
 * another one moves these to where they belong.
 *
 * The decoder's host part and its waiting are the completing worker's: there are MR_GPU_LANES, so
 * that one's host part runs beside another's device part.
 */
#include "codec/image_codec.h"
#include "loader/engine.h"

#include <math.h>
#include <string.h>

#define MOST_BYTES                                                                                 \
    (1u                                                                                            \
     << 20) /* of a compressed picture: each row of a slot may come to hold one                 \
                */
#define END_WITHIN                                                                                 \
    32 /* last bytes in which the end's marker stands; else the picture may be cut off */

bool mr_gpu_wants(const struct mr_loader *ld, uint64_t epoch, uint64_t index)
{
    uint32_t random[4];
    mr_draw4(ld->opts.seed, MR_DRAW_DECODE, index, epoch, 0, random);
    return random[0] < ld->gpu->below;
}

static bool has_end(const struct mr_bytes *in)
{
    const unsigned char *b = in->data;
    for (uint64_t i = in->n; i >= 2 && in->n - i < END_WITHIN; i--)
        if (b[i - 2] == 0xff && b[i - 1] == 0xd9)
            return true;
    return false;
}

static int keep_bytes(struct mr_gpu_sample *to, const struct mr_bytes *in)
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

int mr_gpu_take(struct mr_loader *ld, struct mr_gpu_sample *to, const struct mr_at *at,
                const struct mr_bytes *bytes, struct mr_picture *out)
{
    const struct mr_gpu_decode *g = ld->gpu;
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

/* The lane's first n pictures: decoded into its scratch, resampled into `out`. */
static int decode_some(struct mr_loader *ld, struct mr_gpu_lane *lane,
                       const struct mr_gpu_sample *sample, uint32_t n, unsigned char *out,
                       uint64_t *from, uint32_t *n_out)
{
    struct mr_gpu_decode *g = ld->gpu;
    uint32_t done = 0;
    int rc = mr_jpeg_decode(lane->unit, lane->stream, lane->picture, n);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const struct mr_jpeg *p = &lane->picture[i];
        if (p->refused)
            continue;
        lane->rows[done] = sample[lane->row[i]].window;
        lane->rows[done].at += (uint64_t)((unsigned char *)p->to - lane->scratch);
        from[lane->row[i]] = *n_out + done++;
    }
    struct mr_resample_args args = {.rows = lane->rows_on_device,
                                    .in = lane->scratch,
                                    .out = out + *n_out * g->row_bytes,
                                    .n = done,
                                    .in_bytes = g->scratch_bytes,
                                    .out_w = g->out_w,
                                    .out_h = g->out_h};
    if (rc == 0 && done > 0)
        rc = mr_copy_async(lane->stream, lane->rows_on_device, MR_DEVICE, lane->rows, MR_PINNED,
                           done * sizeof *lane->rows);
    if (rc == 0 && done > 0)
        rc = mr_launch(lane->stream, "resample", &args, sizeof args);
    *n_out += done;
    return rc;
}

int mr_gpu_decode_rows(struct mr_loader *ld, struct mr_gpu_lane *lane, struct mr_gpu_sample *sample,
                       uint64_t n, unsigned char *out, uint64_t *from, uint32_t *n_out)
{
    int rc = 0;
    *n_out = 0;
    for (uint64_t row = 0; row < n && rc == 0;) {
        uint64_t at = 0;
        uint32_t k = 0;
        for (; row < n; row++) {
            struct mr_gpu_sample *s = &sample[row];
            uint64_t bytes = mr_round_up((uint64_t)s->width * s->height * 3, 256);
            if (!s->used)
                continue;
            if (bytes > ld->gpu->scratch_bytes - at)
                break;
            lane->picture[k] = (struct mr_jpeg){.bytes = s->bytes,
                                                .n_bytes = s->n_bytes,
                                                .width = s->width,
                                                .height = s->height,
                                                .to = lane->scratch + at};
            lane->row[k++] = (uint32_t)row;
            at += bytes;
        }
        rc = lane->recorded ? mr_event_synchronize(lane->done) : 0;
        if (rc == 0 && k > 0)
            rc = decode_some(ld, lane, sample, k, out, from, n_out);
        int recorded = mr_event_record(
            lane->done, lane->stream); /* also behind what was enqueued before an error */
        lane->recorded |= recorded == 0;
        rc = rc < 0 ? rc : recorded;
    }
    return rc;
}

static uint64_t *from_of(const struct mr_loader *ld, const struct mr_slot *slot)
{
    return (uint64_t *)(void *)(slot->host + ld->gpu->from_offset);
}

void mr_gpu_batch(struct mr_worker *w, struct mr_slot *slot, uint64_t t)
{
    struct mr_loader *ld = w->ld;
    struct mr_gpu_decode *g = ld->gpu;
    struct mr_gpu_lane *lane = &g->lane[t % ld->ring.n_slots % MR_GPU_LANES];
    uint64_t *from = from_of(ld, slot), rows = slot->info.rows, start = mr_time_ns();
    uint32_t refused = 0;
    for (uint64_t row = 0; row < rows; row++)
        from[row] = UINT64_MAX;
    pthread_mutex_lock(&lane->lock);
    int rc = mr_gpu_decode_rows(ld, lane, slot->gpu, rows, slot->gpu_rows, from, &slot->n_gpu);
    if (rc == 0)
        rc = mr_event_record(slot->gpu_done, lane->stream);
    pthread_mutex_unlock(&lane->lock);
    mr_trace_span("decode: device", start, mr_time_ns(), "batch", t);
    if (rc < 0) {
        struct mr_run_sample none = {.n_extents = 0};
        slot->n_gpu = 0;
        mr_bad_add(ld, t, 0, &none, slot->info.epoch, rc, true);
        return;
    }
    for (uint64_t row = 0; row < rows; row++)
        if (slot->gpu[row].used && from[row] == UINT64_MAX) {
            mr_sample_make_again(w, t, (uint32_t)row);
            refused++;
        }
    atomic_fetch_add_explicit(&g->decoded, slot->n_gpu, memory_order_relaxed);
    atomic_fetch_add_explicit(&g->refused, refused, memory_order_relaxed);
}

int mr_gpu_place(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream)
{
    const struct mr_gpu_decode *g = ld->gpu;
    if (slot->n_gpu == 0 || slot->size == 0)
        return 0;
    struct mr_gather_args args = {
        .in = slot->gpu_rows,
        .out = slot->device + ld->layout.field[g->field].offset,
        .index = (const uint64_t *)(const void *)(slot->device + g->from_offset),
        .rows = slot->size,
        .in_rows = slot->n_gpu,
        .row_bytes = g->row_bytes};
    int rc = mr_stream_wait(stream, slot->gpu_done);
    return rc == 0 ? mr_launch(stream, "gather", &args, sizeof args) : rc;
}
