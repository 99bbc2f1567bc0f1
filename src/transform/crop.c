/* crop and random_crop. */
#include "transform/transform.h"

#include <string.h>

/* A window of every image, to `out` of the window's size. */
static void copy_window(const struct mr_pixels *p, uint64_t top, uint64_t left, uint64_t h, uint64_t w, const char *in,
                        char *out)
{
    uint64_t row = p->w * p->pixel, out_row = w * p->pixel;
    for (uint64_t o = 0; o < p->outer; o++) {
        const char *from = in + (o * p->h + top) * row + left * p->pixel;
        if (out_row == row) {
            memcpy(out, from, h * row);
            out += h * row;
            continue;
        }
        for (uint64_t y = 0; y < h; y++, from += row, out += out_row)
            memcpy(out, from, out_row);
    }
}

/* crop(height,width[,top,left]) and random_crop(height,width) */
struct crop_args {
    uint64_t height, width;
    int64_t top, left; /* -1: the centre */
    int layout;
};

#define CROP_OPTIONS                                                                                                   \
    {.name = "height",                                                                                                 \
     .type = MR_OPT_UINT,                                                                                              \
     .offset = offsetof(struct crop_args, height),                                                                     \
     .unit = "rows",                                                                                                   \
     .help = "of the window"},                                                                                         \
        {.name = "width",                                                                                              \
         .type = MR_OPT_UINT,                                                                                          \
         .offset = offsetof(struct crop_args, width),                                                                  \
         .unit = "columns",                                                                                            \
         .help = "of the window"},                                                                                     \
        {.name = "layout",                                                                                             \
         .type = MR_OPT_ENUM,                                                                                          \
         .offset = offsetof(struct crop_args, layout),                                                                 \
         .initial = "auto",                                                                                            \
         .choices = mr_layout_choices,                                                                                 \
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
        return mr_op_error(op, MR_EOPTION, "want %s(height,width), both above 0", op->ops->name);
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
    if (!window_fits(spec->dim[h], a->height, a->top) || !window_fits(spec->dim[w], a->width, a->left))
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

static int too_small(const struct mr_op *op, const struct mr_pixels *p)
{
    return mr_op_error(op, MR_ESHAPE, "does not fit a sample of height %llu and width %llu", (unsigned long long)p->h,
                       (unsigned long long)p->w);
}

static int crop_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct crop_args *a = op->args;
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    if (!window_fits(p.h, a->height, a->top) || !window_fits(p.w, a->width, a->left))
        return too_small(op, &p);
    crop_shape(op, call->in_dim, call->out_dim);
    copy_window(&p, first_of(p.h, a->height, a->top), first_of(p.w, a->width, a->left), a->height, a->width, call->in,
                call->out);
    return 0;
}

/* [0, n): the high word of a product; n fits 32 bits or the draw is of 64. */
static uint64_t below(uint32_t high, uint32_t low, uint64_t n)
{
    return (uint64_t)((unsigned __int128)((uint64_t)high << 32 | low) * n >> 64);
}

static int random_crop_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct crop_args *a = op->args;
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    if (!window_fits(p.h, a->height, 0) || !window_fits(p.w, a->width, 0))
        return too_small(op, &p);
    crop_shape(op, call->in_dim, call->out_dim);
    uint64_t top = below(call->random[0], call->random[1], p.h - a->height + 1);
    uint64_t left = below(call->random[2], call->random[3], p.w - a->width + 1);
    copy_window(&p, top, left, a->height, a->width, call->in, call->out);
    return 0;
}

const struct mr_op_ops mr_op_crop = {
    .name = "crop",
    .arguments = "height,width[,top,left][,layout=]",
    .summary = "a fixed window, the centre by default",
    .options = crop_options,
    .positional = (const char *const[]){"height", "width", "top", "left", NULL},
    .args_bytes = sizeof(struct crop_args),
    .preset = crop_preset,
    .check = crop_check,
    .infer = crop_infer,
    .shape = crop_shape,
    .apply = crop_apply,
};

const struct mr_op_ops mr_op_random_crop = {
    .name = "random_crop",
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
    .apply = random_crop_apply,
};
