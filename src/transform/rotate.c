/* rotate: pixels from where an angle moves them, in f32, or as Pillow computes them. */
#include "transform/transform.h"

#include <math.h>
#include <string.h>

#define LAYOUT_OPTION(T)                                                                           \
    {                                                                                              \
        .name = "layout", .type = MR_OPT_ENUM, .offset = offsetof(T, layout), .initial = "auto",   \
        .choices = mr_layout_choices, .help = "where height and width are"                         \
    }

enum { BILINEAR, NEAREST };
static const char *const filters[] = {"bilinear", "nearest", NULL};
static const char *const likes[] = {"tensor", "pillow", NULL};

/* rotate(degrees[,fill]) */
struct rotate_args {
    struct mr_doubles degrees; /* one number: either way; two: from, to */
    double fill;
    int filter, like, layout;
};

static const struct mr_option rotate_options[] = {
    {.name = "degrees",
     .type = MR_OPT_DOUBLES,
     .offset = offsetof(struct rotate_args, degrees),
     .unit = "degrees",
     .help = "the largest angle, either way; a:b: from a to b, counter-clockwise"},
    {.name = "fill",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct rotate_args, fill),
     .help = "value outside of the picture"},
    {.name = "filter",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct rotate_args, filter),
     .initial = "bilinear",
     .choices = filters,
     .help = "how pixels are resampled"},
    {.name = "like",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct rotate_args, like),
     .initial = "tensor",
     .choices = likes,
     .help = "whose results: torchvision's on tensors, or Pillow's (u8 only)"},
    LAYOUT_OPTION(struct rotate_args),
    {0},
};

static int rotate_check(const struct mr_op *op)
{
    const struct rotate_args *a = op->args;
    const struct mr_doubles *d = &a->degrees;
    bool one = d->n == 1 && d->v[0] >= 0 && d->v[0] <= 180;
    bool range = d->n == 2 && d->v[0] >= -3600 && d->v[0] <= d->v[1] && d->v[1] <= 3600;
    if (d->n != 0 && !one && !range)
        return mr_op_error(op, MR_EOPTION,
                           "expected rotate(degrees), 0 to 180, or rotate(a:b), -3600 <= a <= b <= "
                           "3600");
    return 0;
}

static int rotate_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct rotate_args *a = op->args;
    int rc = mr_op_find_axes(op, spec, a->layout);
    bool good = mr_load_f32(spec->dtype) && mr_store_f32(spec->dtype) && spec->dtype != MR_BOOL;
    if (rc)
        return rc;
    if (!good)
        return mr_op_misfit(op, spec, "u8, i8, u16, i16, f16, bf16 and f32 only; not for");
    if (a->like && spec->dtype != MR_U8)
        return mr_op_misfit(op, spec, "like=pillow: u8 only; not for");
    return 0;
}

static uint64_t rotate_work(const struct mr_op *op)
{
    uint64_t n = mr_dims_after(op->in.dim, op->in.rank, op->image.h);
    return mr_round_up(n * sizeof(float), MR_CACHE_LINE);
}

static double degrees_of(const struct mr_op *op, const uint32_t random[4])
{
    const struct rotate_args *a = op->args;
    const struct mr_doubles *d = &a->degrees;
    double unit = mr_unit_f64(random[0], random[1]);
    if (d->n == 2)
        return d->v[0] + (d->v[1] - d->v[0]) * unit;
    return (2 * unit - 1) * (d->n > 0 ? d->v[0] : 0);
}

static double angle_of(const struct mr_op *op, const uint32_t random[4])
{
    return degrees_of(op, random) * (3.14159265358979323846 / 180);
}

/* Counter-clockwise about the middle; y goes down. */
static void rotate_map(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                       uint64_t height, double m[6])
{
    uint32_t random[4];
    mr_op_draw(op, at, 0, random);
    double angle = angle_of(op, random), c = cos(angle), s = sin(angle);
    double x = ((double)width - 1) / 2, y = ((double)height - 1) / 2;
    memcpy(m, (const double[6]){c, s, x - c * x - s * y, -s, c, y + s * x - c * y}, 6 * sizeof *m);
}

/* Four neighbours, weighted; those outside are `fill`. */
struct corner {
    const char *at; /* NULL: outside */
    float w;
};

static void find_corners(const struct mr_pixels *p, const char *image, double x, double y,
                         struct corner out[4])
{
    double left = floor(x), top = floor(y);
    float fx = (float)(x - left), fy = (float)(y - top);
    for (int k = 0; k < 4; k++) {
        double cx = left + (k & 1), cy = top + (k >> 1);
        bool in = cx >= 0 && cy >= 0 && cx < (double)p->w && cy < (double)p->h;
        out[k].at = in ? image + ((uint64_t)cy * p->w + (uint64_t)cx) * p->pixel : NULL;
        out[k].w = (k % 2 ? fx : 1 - fx) * (k / 2 ? fy : 1 - fy);
    }
}

/* 15 decimals, as Pillow rounds the matrix. */
static double decimals(double x)
{
    return rint(x * 1e15) / 1e15;
}

/* Places in the picture of the centres of output pixels: (m[0] x + m[1] y + m[2], ...). */
static void pillow_matrix(double degrees, const struct mr_pixels *p, double m[6])
{
    double angle = -(degrees * (3.14159265358979323846 / 180)), c = decimals(cos(angle)),
           s = decimals(sin(angle)), x = (double)p->w / 2, y = (double)p->h / 2;
    memcpy(m, (const double[6]){c, s, c * -x + s * -y + x, -s, c, -s * -x + c * -y + y},
           6 * sizeof *m);
}

/* Fixed point with 16 bits behind the point. */
static int64_t fixed(double x)
{
    return (int64_t)floor(x * 65536 + 0.5);
}

static void pillow_nearest(const struct mr_pixels *p, const double m[6], uint8_t fill,
                           const uint8_t *in, uint8_t *out)
{
    int64_t step_x = fixed(m[0]), step_y = fixed(m[3]);
    int64_t row_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5),
            row_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    for (uint64_t y = 0; y < p->h; y++, row_x += fixed(m[1]), row_y += fixed(m[4])) {
        int64_t at_x = row_x, at_y = row_y;
        for (uint64_t x = 0; x < p->w; x++, out += p->pixel, at_x += step_x, at_y += step_y) {
            int64_t fx = at_x >> 16, fy = at_y >> 16;
            if (fx >= 0 && fy >= 0 && fx < (int64_t)p->w && fy < (int64_t)p->h)
                memcpy(out, in + ((uint64_t)fy * p->w + (uint64_t)fx) * p->pixel, p->pixel);
            else
                memset(out, fill, p->pixel);
        }
    }
}

static int64_t clamp(int64_t i, uint64_t n)
{
    return MR_MAX(MR_MIN(i, (int64_t)n - 1), 0);
}

/* One output pixel, from (x, y) in the picture; truncated. */
static void pillow_mix(const struct mr_pixels *p, const uint8_t *in, double x, double y,
                       uint8_t *out)
{
    double left = floor(x - 0.5), top = floor(y - 0.5), dx = x - 0.5 - left, dy = y - 0.5 - top;
    uint64_t x0 = (uint64_t)clamp((int64_t)left, p->w) * p->pixel,
             x1 = (uint64_t)clamp((int64_t)left + 1, p->w) * p->pixel, row = p->w * p->pixel;
    const uint8_t *a = in + (uint64_t)clamp((int64_t)top, p->h) * row,
                  *b = in + (uint64_t)clamp((int64_t)top + 1, p->h) * row;
    for (uint64_t k = 0; k < p->pixel; k++) {
        double above = a[x0 + k] + (a[x1 + k] - a[x0 + k]) * dx,
               below = b[x0 + k] + (b[x1 + k] - b[x0 + k]) * dx;
        out[k] = (uint8_t)(above + (below - above) * dy);
    }
}

static void pillow_bilinear(const struct mr_pixels *p, const double m[6], uint8_t fill,
                            const uint8_t *in, uint8_t *out)
{
    for (uint64_t i = 0; i < p->h * p->w; i++, out += p->pixel) {
        uint64_t row = i / p->w;
        double x = (double)(i - row * p->w) + 0.5, y = (double)row + 0.5;
        double from_x = m[0] * x + m[1] * y + m[2], from_y = m[3] * x + m[4] * y + m[5];
        if (from_x >= 0 && from_y >= 0 && from_x < (double)p->w && from_y < (double)p->h)
            pillow_mix(p, in, from_x, from_y, out);
        else
            memset(out, fill, p->pixel);
    }
}

static int pillow_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct rotate_args *a = op->args;
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    double m[6];
    uint8_t fill = (uint8_t)MR_MIN(MR_MAX(a->fill, 0), 255);
    uint64_t image = p.h * p.w * p.pixel;
    pillow_matrix(degrees_of(op, call->random), &p, m);
    for (uint64_t o = 0; o < p.outer; o++) {
        const uint8_t *in = (const uint8_t *)call->in + o * image;
        uint8_t *out = (uint8_t *)call->out + o * image;
        if (a->filter == NEAREST || op->follows)
            pillow_nearest(&p, m, fill, in, out);
        else
            pillow_bilinear(&p, m, fill, in, out);
    }
    return 0;
}

static int rotate_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct rotate_args *a = op->args;
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    size_t size = mr_dtype_size(op->in.dtype);
    uint64_t channels = p.pixel / size, n = p.w * channels;
    double angle = angle_of(op, call->random), c = cos(angle), s = sin(angle);
    double mx = ((double)p.w - 1) / 2, my = ((double)p.h - 1) / 2;
    float *row = call->work;
    mr_convert *load = mr_load_f32(op->in.dtype), *store = mr_store_f32(op->in.dtype);
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    if (a->like)
        return pillow_apply(op, call);
    for (uint64_t y = 0; y < p.outer * p.h; y++) {
        const char *image = (const char *)call->in + y / MR_MAX(p.h, 1) * p.h * p.w * p.pixel;
        double dy = (double)(y % MR_MAX(p.h, 1)) - my;
        for (uint64_t x = 0; x < p.w; x++) {
            struct corner corner[4];
            double dx = (double)x - mx;
            double from_x = mx + c * dx - s * dy, from_y = my + s * dx + c * dy;
            if (op->follows || a->filter == NEAREST) /* of labels always */
                find_corners(&p, image, rint(from_x), rint(from_y), corner);
            else
                find_corners(&p, image, from_x, from_y, corner);
            for (uint64_t k = 0; k < channels; k++) {
                float sum = 0, v;
                for (int q = 0; q < 4; q++) {
                    v = (float)a->fill;
                    if (corner[q].at)
                        load(corner[q].at + k * size, &v, 1);
                    sum += corner[q].w * v;
                }
                row[x * channels + k] = sum;
            }
        }
        store(row, (char *)call->out + y * n * size, n);
    }
    return 0;
}

const struct mr_op_ops mr_op_rotate = {
    .name = "rotate",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "degrees[,fill][,filter=][,like=][,layout=]",
    .summary = "turn by a random angle of up to degrees, same size",
    .options = rotate_options,
    .positional = (const char *const[]){"degrees", "fill", NULL},
    .args_bytes = sizeof(struct rotate_args),
    .random = true,
    .check = rotate_check,
    .infer = rotate_infer,
    .apply = rotate_apply,
    .map = rotate_map,
    .work = rotate_work,
};
