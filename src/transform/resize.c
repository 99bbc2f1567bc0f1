/* resize and random_resized_crop. */
#include "transform/resample.h"

#include <math.h>
#include <string.h>

static const char *const filters[] = {"bilinear", "bicubic", "nearest", NULL};
static const char *const orders[] = {"across", "pillow13", NULL};

#define SIZE_OPTION(T, member, text)                                                               \
    {                                                                                              \
        .name = #member, .type = MR_OPT_UINT, .offset = offsetof(T, member), .max = 65535,         \
        .unit = "pixels", .help = text                                                             \
    }
#define FILTER_OPTIONS(T)                                                                          \
    {.name = "filter",                                                                             \
     .type = MR_OPT_ENUM,                                                                          \
     .offset = offsetof(T, filter),                                                                \
     .initial = "bilinear",                                                                        \
     .choices = filters,                                                                           \
     .help = "how pixels are resampled"},                                                          \
        {.name = "order",                                                                          \
         .type = MR_OPT_ENUM,                                                                      \
         .offset = offsetof(T, order),                                                             \
         .initial = "across",                                                                      \
         .choices = orders,                                                                        \
         .help =                                                                                   \
             "of the passes for u8; pillow13: down first where that version of Pillow does so"},   \
    {                                                                                              \
        .name = "layout", .type = MR_OPT_ENUM, .offset = offsetof(T, layout), .initial = "auto",   \
        .choices = mr_layout_choices, .help = "where height and width are"                         \
    }

/* Pillow 13's rule: down first if the height loses more than twice as many pixels as the width. */
static bool is_down_first(int order, const struct mr_cut *cut)
{
    int64_t across = (int64_t)cut->clip_w - (int64_t)cut->size_w,
            down = (int64_t)cut->clip_h - (int64_t)cut->size_h;
    return order && down > 0 && down > 2 * across;
}

static int no_complex(const struct mr_op *op, const struct mr_spec *spec)
{
    bool complex = spec->dtype == MR_C64 || spec->dtype == MR_C128;
    return complex ? mr_op_misfit(op, spec, "cannot resample complex numbers:") : 0;
}

/* resize(size) or resize(height,width) */
struct resize_args {
    uint64_t height, width, max; /* width 0: height is the shorter side's */
    int filter, order, layout;
};

static const struct mr_option resize_options[] = {
    SIZE_OPTION(struct resize_args, height, "of the result; without width the shorter side's"),
    SIZE_OPTION(struct resize_args, width, "of the result"),
    SIZE_OPTION(struct resize_args, max, "the longer side is at most this, without width"),
    FILTER_OPTIONS(struct resize_args),
    {0},
};

static int resize_check(const struct mr_op *op)
{
    const struct resize_args *a = op->args;
    if (a->height == 0 || (a->max > 0 && (a->width > 0 || a->max < a->height)))
        return mr_op_error(
            op, MR_EOPTION,
            "expected resize(size) for the shorter side, with max= of at least size, or "
            "resize(height,width), above 0");
    return 0;
}

/* The size of the result, as torchvision has it. */
static void resized(const struct resize_args *a, uint64_t height, uint64_t width, uint64_t *out_h,
                    uint64_t *out_w)
{
    uint64_t shorter = MR_MIN(height, width), longer = MR_MAX(height, width), small = a->height;
    if (a->width > 0 || shorter == 0) {
        *out_h = a->height;
        *out_w = a->width > 0 ? a->width : a->height;
        return;
    }
    uint64_t big = (uint64_t)((double)small * (double)longer / (double)shorter);
    if (a->max > 0 && big > a->max) {
        small = MR_MAX((uint64_t)((double)a->max * (double)small / (double)big), 1);
        big = a->max;
    }
    *out_h = height <= width ? small : big;
    *out_w = height <= width ? big : small;
}

static int resize_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct resize_args *a = op->args;
    int rc = mr_op_find_axes(op, spec, a->layout);
    if (!rc)
        rc = no_complex(op, spec);
    if (rc)
        return rc;
    uint64_t *h = &spec->dim[op->image.h], *w = &spec->dim[op->image.w];
    uint32_t axes = 1u << op->image.h | 1u << op->image.w;
    if (a->width > 0 || !(spec->var_dims & axes)) {
        resized(a, *h, *w, h, w);
        spec->var_dims &= ~axes;
        return 0;
    }
    uint64_t height = *h, width = *w; /* bounds: the other side may be 1 */
    bool fits = mr_mul(a->height, width, w) && mr_mul(a->height, height, h);
    *h = a->max ? MR_MIN(*h, a->max) : *h;
    *w = a->max ? MR_MIN(*w, a->max) : *w;
    spec->var_dims |= axes;
    return fits ? 0 : mr_op_misfit(op, spec, "is too much for");
}

static void resize_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    resized(op->args, in_dim[op->image.h], in_dim[op->image.w], &out_dim[op->image.h],
            &out_dim[op->image.w]);
}

static int resize_window(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                         uint64_t height, struct mr_cut *out)
{
    const struct resize_args *a = op->args;
    (void)at;
    if (width == 0 || height == 0)
        return mr_op_error(op, MR_ESHAPE, "a sample without pixels");
    mr_cut_all(width, height, out);
    resized(a, height, width, &out->size_h, &out->size_w);
    out->out_w = out->size_w;
    out->out_h = out->size_h;
    out->filter = op->follows ? MR_FILTER_NEAREST : a->filter;
    out->resamples = out->out_w != width || out->out_h != height;
    out->down_first = is_down_first(a->order, out);
    return 0;
}

const struct mr_op_ops mr_op_resize = {
    .name = "resize",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "size|height,width[,filter=][,max=][,order=][,layout=]",
    .summary = "another size, antialiased; one number: the shorter side's",
    .options = resize_options,
    .positional = (const char *const[]){"height", "width", "filter", NULL},
    .args_bytes = sizeof(struct resize_args),
    .check = resize_check,
    .infer = resize_infer,
    .shape = resize_shape,
    .window = resize_window,
    .resamples = true,
};

/* random_resized_crop(size[,scale_min,scale_max,ratio_min,ratio_max][,filter]) */
struct rrc_args {
    uint64_t size, width;
    double scale_min, scale_max, ratio_min, ratio_max;
    int filter, order, layout;
};

#define RANGE_OPTION(member, value, most, text)                                                    \
    {                                                                                              \
        .name = #member, .type = MR_OPT_DOUBLE, .offset = offsetof(struct rrc_args, member),       \
        .initial = value, .max = (most), .help = text                                              \
    }

static const struct mr_option rrc_options[] = {
    SIZE_OPTION(struct rrc_args, size,
                "height of the result, and its width when that is not given"),
    SIZE_OPTION(struct rrc_args, width, "of the result"),
    RANGE_OPTION(scale_min, "0.08", 1, "least part of the area"),
    RANGE_OPTION(scale_max, "1", 1, "largest part of the area"),
    RANGE_OPTION(ratio_min, "3/4", 1000, "least width / height"),
    RANGE_OPTION(ratio_max, "4/3", 1000, "largest width / height"),
    FILTER_OPTIONS(struct rrc_args),
    {0},
};

static int rrc_check(const struct mr_op *op)
{
    struct rrc_args *a = op->args;
    if (a->width == 0)
        a->width = a->size;
    if (a->size == 0 || !(a->scale_min > 0 && a->scale_min <= a->scale_max) ||
        !(a->ratio_min > 0 && a->ratio_min <= a->ratio_max))
        return mr_op_error(
            op, MR_EOPTION,
            "expected random_resized_crop(size[,scale_min,scale_max,ratio_min,ratio_max]), a size "
            "above 0, "
            "0 < scale_min <= scale_max <= 1, 0 < ratio_min <= ratio_max");
    return 0;
}

static int rrc_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct rrc_args *a = op->args;
    int rc = mr_op_find_axes(op, spec, a->layout);
    if (!rc)
        rc = no_complex(op, spec);
    if (rc)
        return rc;
    spec->dim[op->image.h] = a->size;
    spec->dim[op->image.w] = a->width;
    spec->var_dims &= ~(1u << op->image.h | 1u << op->image.w);
    return 0;
}

static void rrc_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    const struct rrc_args *a = op->args;
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    out_dim[op->image.h] = a->size;
    out_dim[op->image.w] = a->width;
}

/* The n-th of [0, n). */
static uint64_t below(uint32_t random, uint64_t n)
{
    return (uint64_t)random * n >> 32;
}

static double between(uint32_t random, double a, double b)
{
    return a + (b - a) * ((double)random * 0x1p-32);
}

/* One draw of a part's size and place, as torchvision makes it; false: it does not fit. */
static bool try_part(const struct rrc_args *a, const uint32_t random[4], double width,
                     double height, struct mr_cut *out)
{
    double area = width * height * between(random[0], a->scale_min, a->scale_max);
    double ratio = exp(between(random[1], log(a->ratio_min), log(a->ratio_max)));
    double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
    if (!(w > 0 && w <= width && h > 0 && h <= height))
        return false;
    out->clip_w = (uint64_t)w;
    out->clip_h = (uint64_t)h;
    out->clip_y = below(random[2], (uint64_t)(height - h) + 1);
    out->clip_x = below(random[3], (uint64_t)(width - w) + 1);
    return true;
}

/* The middle, as large as the ratios allow. */
static void middle_part(const struct rrc_args *a, double width, double height, struct mr_cut *out)
{
    double w = width, h = height;
    if (width / height < a->ratio_min)
        h = rint(w / a->ratio_min);
    else if (width / height > a->ratio_max)
        w = rint(h * a->ratio_max);
    out->clip_w = (uint64_t)MR_MAX(MR_MIN(w, width), 1);
    out->clip_h = (uint64_t)MR_MAX(MR_MIN(h, height), 1);
    out->clip_x = ((uint64_t)width - out->clip_w) / 2;
    out->clip_y = ((uint64_t)height - out->clip_h) / 2;
}

#define TRIES 10
static int rrc_window(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                      uint64_t height, struct mr_cut *out)
{
    const struct rrc_args *a = op->args;
    if (width == 0 || height == 0)
        return mr_op_error(op, MR_ESHAPE, "a sample without pixels");
    mr_cut_all(width, height, out);
    bool found = false;
    for (uint32_t k = 0; k < TRIES && !found; k++) {
        uint32_t random[4];
        mr_op_draw(op, at, k, random);
        found = try_part(a, random, (double)width, (double)height, out);
    }
    if (!found)
        middle_part(a, (double)width, (double)height, out);
    out->w = (double)out->clip_w;
    out->h = (double)out->clip_h;
    out->size_w = out->out_w = a->width;
    out->size_h = out->out_h = a->size;
    out->filter = op->follows ? MR_FILTER_NEAREST : a->filter;
    out->resamples = out->clip_w != out->out_w || out->clip_h != out->out_h;
    out->down_first = is_down_first(a->order, out);
    return 0;
}

const struct mr_op_ops mr_op_random_resized_crop = {
    .name = "random_resized_crop",
    .several = MR_SEVERAL_IMAGES,
    .arguments =
        "size[,scale_min,scale_max,ratio_min,ratio_max][,filter=][,width=][,order=][,layout=]",
    .summary = "a random part of random size and shape, resized to size x size",
    .options = rrc_options,
    .positional = (const char *const[]){"size", "scale_min", "scale_max", "ratio_min", "ratio_max",
                                        "filter", NULL},
    .args_bytes = sizeof(struct rrc_args),
    .random = true,
    .check = rrc_check,
    .infer = rrc_infer,
    .shape = rrc_shape,
    .window = rrc_window,
    .resamples = true,
};
