/* Computes weights, and walks over rows: each input row is resampled horizontally once, and kept
 * while an output row needs it. */
#include "transform/resample.h"
#include "kernels/batch/resample.h"

#include <math.h>
#include <string.h>

#define WIDEST 2 /* the widest filter's support */

/* One axis of a cut in the coordinates of the held pixels. */
struct axis {
    double start, scale; /* of output 0 (x0 not counted in), of one output; relative to the clip */
    int64_t clip;        /* pixels of the clip */
    int64_t held,
        held_n;       /* where the held ones begin in the clip's coordinates, how many they are */
    uint64_t skip, n; /* the first output wanted, and how many */
    double support;   /* of the filter, scaled */
    int filter;
};

static struct axis make_axis(const struct mr_cut *cut, const struct mr_source *src, bool down)
{
    double s = down ? src->scale_y : src->scale_x;
    double clip = (double)(down ? cut->clip_y : cut->clip_x) * s;
    double end = (double)(down ? cut->clip_y + cut->clip_h : cut->clip_x + cut->clip_w) * s;
    double box = down ? cut->h : cut->w, from = down ? cut->y : cut->x;
    struct axis a = {.filter = cut->filter,
                     .skip = down ? cut->y0 : cut->x0,
                     .n = down ? cut->out_h : cut->out_w,
                     .scale = box * s / (double)(down ? cut->size_h : cut->size_w),
                     .clip = (int64_t)(ceil(end) - floor(clip)),
                     .held = (int64_t)(down ? src->y : src->x) - (int64_t)floor(clip),
                     .held_n = (int64_t)(down ? src->height : src->width)};
    a.start = from * s + (clip - floor(clip));
    a.support = (a.filter == MR_FILTER_BICUBIC ? 2 : 1) * (a.scale > 1 ? a.scale : 1);
    return a;
}

static uint32_t room_of(const struct axis *a)
{
    return (uint32_t)mr_round_up((uint64_t)ceil(a->support) * 2 + 1, 4);
}

/* What lies in work. */
struct room {
    struct mr_taps across, down;
    double *weight; /* of one output */
    uint8_t *line;  /* 4 padded input rows of u8, or one of f64 */
    uint8_t *ring;
    const uint8_t **rows; /* of one output row */
    double *sum;          /* f64: one output row */
    uint64_t ring_rows, row_bytes, line_bytes, total;
};

static void *take(struct room *r, unsigned char *work, uint64_t bytes)
{
    void *p = work && bytes > 0 ? work + r->total : NULL;
    r->total += mr_round_up(bytes, MR_CACHE_LINE);
    return p;
}

static void take_taps(struct room *r, struct mr_taps *t, unsigned char *work, uint64_t n,
                      uint64_t weights, bool u8)
{
    t->n = n;
    t->first = take(r, work, n * sizeof *t->first);
    t->count = take(r, work, n * sizeof *t->count);
    t->high = take(r, work, u8 ? weights * sizeof *t->high : 0);
    t->low = take(r, work, u8 ? weights * sizeof *t->low : 0);
    t->weight = take(r, work, u8 ? 0 : weights * sizeof *t->weight);
}

struct sizes {
    uint64_t width, height, out_w, out_h, across, down, taps,
        ring_rows; /* across, down: weights; taps: of one output */
};

static void lay_out(struct room *r, unsigned char *work, bool u8, uint32_t channels,
                    const struct sizes *s)
{
    *r = (struct room){.ring_rows = s->ring_rows};
    r->row_bytes =
        u8 ? mr_round_up(s->out_w * channels + MR_ROW_PAD, MR_CACHE_LINE) : s->out_w * channels * 8;
    r->line_bytes =
        u8 ? mr_round_up(s->width * channels + MR_ROW_PAD, MR_CACHE_LINE) : s->width * channels * 8;
    take_taps(r, &r->across, work, s->out_w, s->across, u8);
    take_taps(r, &r->down, work, s->out_h, s->down, u8);
    r->weight = take(r, work, s->taps * sizeof *r->weight);
    r->rows = take(r, work, s->taps * sizeof *r->rows);
    r->line = take(r, work, (u8 ? 4 : 1) * r->line_bytes);
    r->ring = take(r, work, r->ring_rows * r->row_bytes);
    r->sum = take(r, work, u8 ? 0 : r->row_bytes);
}

/* Upper bound for an axis's weights: out outputs with at most 2 * WIDEST * scale + 8, where out *
 * scale is at most the input. */
static uint64_t most_weights(uint64_t in, uint64_t out)
{
    return 2 * WIDEST * in + (2 * WIDEST + 8) * out;
}

uint64_t mr_resample_work(enum mr_dtype dtype, uint32_t channels, uint64_t width, uint64_t height,
                          uint64_t out_w, uint64_t out_h)
{
    struct sizes s = {.width = width, .height = height, .out_w = out_w, .out_h = out_h};
    uint64_t down = 2 * WIDEST * (height / out_h + 1) + 8;
    s.across = most_weights(width, out_w);
    s.down = most_weights(height, out_h);
    s.taps = 2 * WIDEST * MR_MAX(width / out_w + 1, height / out_h + 1) + 8;
    s.ring_rows = MR_MIN(down, height + 2) + 4;
    struct room r;
    lay_out(&r, NULL, dtype == MR_U8, channels, &s);
    return r.total;
}

/* Pillow's numbers: weights over what lies in the clip, their sum 1, then rounded. */
static void set_weights(struct mr_taps *t, uint64_t i, const double *weight, uint32_t n, double sum)
{
    for (uint32_t k = 0; k < t->room; k++) {
        double w = k < n ? sum != 0 ? weight[k] / sum : weight[k] : 0;
        if (t->weight) {
            t->weight[i * t->room + k] = w;
            continue;
        }
        int32_t fixed = w < 0 ? (int32_t)(-0.5 + w * (1 << 22)) : (int32_t)(0.5 + w * (1 << 22));
        t->high[i * t->room + k] = (int16_t)(fixed >> 11);
        t->low[i * t->room + k] = (int16_t)(fixed & 2047);
    }
}

static void make_taps(struct mr_taps *t, const struct axis *a, double *weight)
{
    double narrow = 1 / (a->scale > 1 ? a->scale : 1);
    int64_t least = MR_MAX(a->held, 0), most = MR_MIN(a->held + a->held_n, a->clip);
    t->room = room_of(a);
    for (uint64_t i = 0; i < t->n; i++) {
        double centre = a->start + ((double)(a->skip + i) + 0.5) * a->scale, sum = 0;
        int64_t from = (int64_t)(centre - a->support + 0.5),
                to = (int64_t)(centre + a->support + 0.5);
        from = MR_MIN(MR_MAX(from, least), most - 1);
        to = MR_MAX(MR_MIN(to, most), from + 1);
        uint32_t n = (uint32_t)MR_MIN(to - from, t->room);
        for (uint32_t k = 0; k < n; k++) {
            weight[k] = mr_resample_weight(a->filter, ((double)(from + k) - centre + 0.5) * narrow);
            sum += weight[k];
        }
        if (sum == 0) /* none of its pixels were decoded: use the nearest decoded one */
            weight[0] = sum = 1;
        t->first[i] = (uint32_t)(from - a->held);
        t->count[i] = n;
        set_weights(t, i, weight, n, sum);
    }
}

/* Rows y .. y + 3 of u8, resampled across into the ring. */
static void four_across(const struct room *r, const struct mr_source *src, const uint8_t *image,
                        uint64_t y)
{
    const uint8_t *in[4];
    uint8_t *out[4];
    uint64_t bytes = src->width * src->channels;
    const uint8_t *end =
        src->data + (src->images - 1) * src->plane + (src->height - 1) * src->stride + bytes;
    for (uint64_t k = 0; k < 4; k++) {
        in[k] = image + MR_MIN(y + k, src->height - 1) * src->stride;
        out[k] = r->ring + (y + k) % r->ring_rows * r->row_bytes;
        if ((uint64_t)(end - in[k]) >= bytes + MR_ROW_PAD)
            continue;
        memcpy(r->line + k * r->line_bytes, in[k], bytes); /* reads go past its end */
        in[k] = r->line + k * r->line_bytes;
    }
    mr_resample_across(&r->across, in, out, src->channels);
}

static void run_u8(const struct room *r, const struct mr_source *src, const uint8_t *image,
                   uint8_t *out)
{
    uint64_t next = 0, bytes = r->across.n * src->channels;
    for (uint64_t y = 0; y < r->down.n; y++, out += bytes) {
        uint64_t first = r->down.first[y], n = r->down.count[y];
        next = MR_MAX(next, first);
        for (; next < first + n; next += 4)
            four_across(r, src, image, next);
        for (uint64_t k = 0; k < n; k++)
            r->rows[k] = r->ring + (first + k) % r->ring_rows * r->row_bytes;
        mr_resample_down(r->rows, r->down.high + y * r->down.room, r->down.low + y * r->down.room,
                         (uint32_t)n, out, bytes);
    }
}

/* One row of the weighted sum of input rows, which have no padding. */
static void down_row(const struct room *r, uint64_t y, uint64_t bytes, uint8_t *out)
{
    const int16_t *high = r->down.high + y * r->down.room, *low = r->down.low + y * r->down.room;
    uint32_t n = r->down.count[y];
    uint64_t whole = bytes / 32 * 32; /* of these the kernel reads no byte more */
    mr_resample_down(r->rows, high, low, n, out, whole);
    for (uint64_t i = whole; i < bytes; i++) {
        int32_t sum = 1 << 21;
        for (uint32_t t = 0; t < n; t++)
            sum += r->rows[t][i] * (high[t] * 2048 + low[t]);
        out[i] = (uint8_t)MR_MIN(MR_MAX(sum >> 22, 0), 255);
    }
}

/* Down, then across: four rows at a time. */
static void run_u8_down_first(const struct room *r, const struct mr_source *src,
                              const uint8_t *image, uint8_t *out)
{
    uint64_t bytes = src->width * src->channels, out_bytes = r->across.n * src->channels;
    for (uint64_t y = 0; y < r->down.n; y += 4) {
        uint64_t rows = MR_MIN(r->down.n - y, 4);
        const uint8_t *in[4];
        uint8_t *to[4];
        for (uint64_t k = 0; k < 4; k++) {
            in[k] = r->line + MR_MIN(k, rows - 1) * r->line_bytes;
            to[k] = r->ring + k * r->row_bytes;
            if (k >= rows)
                continue;
            for (uint64_t t = 0; t < r->down.count[y + k]; t++)
                r->rows[t] = image + (r->down.first[y + k] + t) * src->stride;
            down_row(r, y + k, bytes, r->line + k * r->line_bytes);
        }
        mr_resample_across(&r->across, in, to, src->channels);
        for (uint64_t k = 0; k < rows; k++, out += out_bytes)
            memcpy(out, to[k], out_bytes);
    }
}

static void f64_across(const struct mr_taps *taps, const double *in, double *out, uint32_t channels)
{
    for (uint64_t i = 0; i < taps->n; i++) {
        const double *from = in + (uint64_t)taps->first[i] * channels,
                     *w = taps->weight + i * taps->room;
        for (uint32_t c = 0; c < channels; c++) {
            double sum = 0;
            for (uint32_t t = 0; t < taps->count[i]; t++)
                sum += from[t * channels + c] * w[t];
            out[i * channels + c] = sum;
        }
    }
}

MR_CLONES static void f64_down(double *restrict sum, const double *restrict row, double w,
                               uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += row[i] * w;
}

static void run_f64(const struct room *r, const struct mr_source *src, const uint8_t *image,
                    uint8_t *out)
{
    uint64_t next = 0, elements = r->across.n * src->channels;
    mr_convert *load = mr_load_f64(src->dtype), *store = mr_store_f64(src->dtype);
    for (uint64_t y = 0; y < r->down.n; y++, out += elements * mr_dtype_size(src->dtype)) {
        uint64_t first = r->down.first[y], n = r->down.count[y];
        for (next = MR_MAX(next, first); next < first + n; next++) {
            load(image + next * src->stride, r->line, src->width * src->channels);
            f64_across(&r->across, (double *)(void *)r->line,
                       (double *)(void *)(r->ring + next % r->ring_rows * r->row_bytes),
                       src->channels);
        }
        memset(r->sum, 0, r->row_bytes);
        for (uint64_t k = 0; k < n; k++)
            f64_down(r->sum,
                     (double *)(void *)(r->ring + (first + k) % r->ring_rows * r->row_bytes),
                     r->down.weight[y * r->down.room + k], elements);
        store(r->sum, out, elements);
    }
}

static uint64_t nearest_at(const struct axis *a, uint64_t i)
{
    int64_t at = (int64_t)floor(a->start + ((double)(a->skip + i) + 0.5) * a->scale) - a->held;
    return (uint64_t)MR_MIN(MR_MAX(at, 0), a->held_n - 1);
}

static void run_nearest(const struct axis *across, const struct axis *down,
                        const struct mr_source *src, const uint8_t *image, uint8_t *out)
{
    size_t pixel = src->channels * mr_dtype_size(src->dtype);
    for (uint64_t y = 0; y < down->n; y++) {
        const uint8_t *row = image + nearest_at(down, y) * src->stride;
        for (uint64_t x = 0; x < across->n; x++, out += pixel)
            memcpy(out, row + nearest_at(across, x) * pixel, pixel);
    }
}

void mr_resample(const struct mr_cut *cut, const struct mr_source *src, void *out, void *work)
{
    struct axis across = make_axis(cut, src, false), down = make_axis(cut, src, true);
    bool u8 = src->dtype == MR_U8, nearest = cut->filter == MR_FILTER_NEAREST;
    struct sizes s = {
        .width = src->width, .height = src->height, .out_w = across.n, .out_h = down.n};
    struct room r;
    if (!nearest) {
        s.across = across.n * room_of(&across);
        s.down = down.n * room_of(&down);
        s.taps = MR_MAX(room_of(&across), room_of(&down));
        s.ring_rows = MR_MIN(room_of(&down), src->height) + 3; /* 4 or more */
        lay_out(&r, work, u8, src->channels, &s);
        make_taps(&r.across, &across, r.weight);
        make_taps(&r.down, &down, r.weight);
    }
    uint64_t image_bytes = across.n * down.n * src->channels * mr_dtype_size(src->dtype);
    for (uint64_t k = 0; k < src->images; k++) {
        const uint8_t *image = src->data + k * src->plane;
        uint8_t *to = (uint8_t *)out + k * image_bytes;
        if (nearest)
            run_nearest(&across, &down, src, image, to);
        else if (u8 && cut->down_first)
            run_u8_down_first(&r, src, image, to);
        else if (u8)
            run_u8(&r, src, image, to);
        else
            run_f64(&r, src, image, to);
    }
}
