/* crop, center_crop and random_crop: windows of a given size. */
#include "transform/transform.h"

#include <string.h>

/* crop(height,width[,top,left]) and random_crop(height,width) */
struct crop_args {
    uint64_t height, width;
    int64_t top, left; /* -1: the centre */
    int layout;
};

#define CROP_OPTIONS                                                                               \
    {.name = "height",                                                                             \
     .type = MR_OPT_UINT,                                                                          \
     .offset = offsetof(struct crop_args, height),                                                 \
     .unit = "rows",                                                                               \
     .help = "of the window"},                                                                     \
        {.name = "width",                                                                          \
         .type = MR_OPT_UINT,                                                                      \
         .offset = offsetof(struct crop_args, width),                                              \
         .unit = "columns",                                                                        \
         .help = "of the window"},                                                                 \
        {.name = "layout",                                                                         \
         .type = MR_OPT_ENUM,                                                                      \
         .offset = offsetof(struct crop_args, layout),                                             \
         .initial = "auto",                                                                        \
         .choices = mr_layout_choices,                                                             \
         .help = "where height and width are"},

static const struct mr_option crop_options[] = {
    CROP_OPTIONS{.name = "top",
                 .type = MR_OPT_INT,
                 .offset = offsetof(struct crop_args, top),
                 .max = 0x1p62,
                 .unit = "rows",
                 .help = "above the window; the centre by default"},
    {.name = "left",
     .type = MR_OPT_INT,
     .offset = offsetof(struct crop_args, left),
     .max = 0x1p62,
     .unit = "columns",
     .help = "left of the window; the centre by default"},
    {0},
};

static const struct mr_option random_crop_options[] = {CROP_OPTIONS{0}};

static void crop_preset(void *args)
{
    struct crop_args *a = args;
    a->top = a->left = -1;
}

static int crop_check(const struct mr_op *op)
{
    const struct crop_args *a = op->args;
    if (a->height == 0 || a->width == 0)
        return mr_op_error(op, MR_EOPTION, "expected %s(height,width), both above 0",
                           op->ops->name);
    return 0;
}

/* The window's first row or column: the centre's half is rounded to even, as PyTorch does. */
static uint64_t first_of(uint64_t have, uint64_t want, int64_t given)
{
    uint64_t spare = have - want, half = spare / 2;
    return given >= 0 ? (uint64_t)given : half + (spare % 2 && half % 2);
}

static bool window_fits(uint64_t have, uint64_t want, int64_t given)
{
    uint64_t past = given > 0 ? (uint64_t)given : 0;
    return want <= have && past <= have - want;
}

static int crop_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct crop_args *a = op->args;
    int rc = mr_op_find_axes(op, spec, a->layout);
    if (rc)
        return rc;
    int h = op->image.h, w = op->image.w;
    if (!window_fits(spec->dim[h], a->height, a->top) ||
        !window_fits(spec->dim[w], a->width, a->left))
        return mr_op_misfit(op, spec, "does not fit");
    spec->dim[h] = a->height;
    spec->dim[w] = a->width;
    spec->var_dims &= ~(1u << h | 1u << w);
    return 0;
}

static void crop_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    const struct crop_args *a = op->args;
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    out_dim[op->image.h] = a->height;
    out_dim[op->image.w] = a->width;
}

static int cut(const struct mr_op *op, uint64_t width, uint64_t height, struct mr_cut *out)
{
    const struct crop_args *a = op->args;
    mr_cut_all(width, height, out);
    if (!window_fits(height, a->height, a->top) || !window_fits(width, a->width, a->left))
        return mr_op_error(op, MR_ESHAPE, "does not fit a sample of height %llu and width %llu",
                           (unsigned long long)height, (unsigned long long)width);
    out->clip_w = out->size_w = out->out_w = a->width;
    out->clip_h = out->size_h = out->out_h = a->height;
    out->w = (double)a->width;
    out->h = (double)a->height;
    return 0;
}

static int crop_window(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                       uint64_t height, struct mr_cut *out)
{
    const struct crop_args *a = op->args;
    (void)at;
    int rc = cut(op, width, height, out);
    if (rc)
        return rc;
    out->clip_x = first_of(width, a->width, a->left);
    out->clip_y = first_of(height, a->height, a->top);
    return 0;
}

/* [0, n): the high word of a product. */
static uint64_t below(uint32_t high, uint32_t low, uint64_t n)
{
    return (uint64_t)((unsigned __int128)((uint64_t)high << 32 | low) * n >> 64);
}

static int random_crop_window(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                              uint64_t height, struct mr_cut *out)
{
    const struct crop_args *a = op->args;
    uint32_t random[4];
    int rc = cut(op, width, height, out);
    if (rc)
        return rc;
    mr_op_draw(op, at, 0, random);
    out->clip_y = below(random[0], random[1], height - a->height + 1);
    out->clip_x = below(random[2], random[3], width - a->width + 1);
    return 0;
}

/* center_crop(size) or center_crop(height,width) */
static const struct mr_option center_crop_options[] = {CROP_OPTIONS{0}};

static int center_crop_check(const struct mr_op *op)
{
    struct crop_args *a = op->args;
    if (a->width == 0)
        a->width = a->height;
    if (a->height == 0)
        return mr_op_error(op, MR_EOPTION,
                           "expected center_crop(size) or center_crop(height,width), above 0");
    return 0;
}

const struct mr_op_ops mr_op_crop = {
    .name = "crop",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "height,width[,top,left][,layout=]",
    .summary = "a fixed window, the centre by default",
    .options = crop_options,
    .positional = (const char *const[]){"height", "width", "top", "left", NULL},
    .args_bytes = sizeof(struct crop_args),
    .preset = crop_preset,
    .check = crop_check,
    .infer = crop_infer,
    .shape = crop_shape,
    .window = crop_window,
};

const struct mr_op_ops mr_op_random_crop = {
    .name = "random_crop",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "height,width[,layout=]",
    .summary = "a window at a random place",
    .options = random_crop_options,
    .positional = (const char *const[]){"height", "width", NULL},
    .args_bytes = sizeof(struct crop_args),
    .random = true,
    .preset = crop_preset,
    .check = crop_check,
    .infer = crop_infer,
    .shape = crop_shape,
    .window = random_crop_window,
};

const struct mr_op_ops mr_op_center_crop = {
    .name = "center_crop",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "size|height,width[,layout=]",
    .summary = "the middle of a picture",
    .options = center_crop_options,
    .positional = (const char *const[]){"height", "width", NULL},
    .args_bytes = sizeof(struct crop_args),
    .preset = crop_preset,
    .check = center_crop_check,
    .infer = crop_infer,
    .shape = crop_shape,
    .window = crop_window,
};
