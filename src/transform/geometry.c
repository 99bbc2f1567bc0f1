/*
 * Ops that move pixels: pad, crop, random_crop, hflip; and where the image's axes are.
 *
 * A tensor is seen as `outer` images of H x W pixels of `pixel` bytes: channels in front of H and W are part of outer,
 * channels behind them part of the pixel.
 */
#include "transform/transform.h"

#include <stdio.h>
#include <string.h>

const char *const mr_layout_choices[] = {"auto", "nchw", "nhwc", NULL};

enum { LAYOUT_AUTO, LAYOUT_NCHW, LAYOUT_NHWC };

static bool channel_like(const struct mr_spec *spec, int d)
{
    uint64_t n = spec->dim[d];
    return !(spec->var_dims >> d & 1) && (n == 1 || n == 3 || n == 4);
}

bool mr_image_axes(const struct mr_spec *spec, int layout, struct mr_image *out)
{
    int rank = spec->rank;
    if (layout == LAYOUT_AUTO && rank == 3 && channel_like(spec, 2) && !channel_like(spec, 0))
        layout = LAYOUT_NHWC;
    int behind = layout == LAYOUT_NHWC;
    if (rank < 2 + behind)
        return false;
    *out = (struct mr_image){.h = rank - 2 - behind, .w = rank - 1 - behind};
    return true;
}

static int find_axes(struct mr_op *op, const struct mr_spec *spec, int layout)
{
    if (!mr_image_axes(spec, layout, &op->image))
        return mr_op_misfit(op, spec, "no height and width in");
    return 0;
}

/* The bytes of one sample as images. */
struct pixels {
    uint64_t outer, h, w, pixel;
};

static struct pixels pixels_of(const struct mr_op *op, const uint64_t *dim)
{
    struct pixels p = {1, dim[op->image.h], dim[op->image.w], mr_dtype_size(op->in.dtype)};
    for (int d = 0; d < op->image.h; d++)
        p.outer *= dim[d];
    p.pixel *= mr_dims_after(dim, op->in.rank, op->image.w);
    return p;
}

/* A window of every image, to `out` of the window's size. */
static void copy_window(const struct pixels *p, uint64_t top, uint64_t left, uint64_t h, uint64_t w, const char *in,
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
    int rc = find_axes(op, spec, a->layout);
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

static int too_small(const struct mr_op *op, const struct pixels *p)
{
    return mr_op_error(op, MR_ESHAPE, "does not fit a sample of height %llu and width %llu", (unsigned long long)p->h,
                       (unsigned long long)p->w);
}

static int crop_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct crop_args *a = op->args;
    struct pixels p = pixels_of(op, call->in_dim);
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
    struct pixels p = pixels_of(op, call->in_dim);
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

/* pad(n[,value]), pad(top:bottom:left:right[,value]) */
struct pad_args {
    struct mr_doubles size;
    double value;
    int layout;
};

enum { TOP, BOTTOM, LEFT, RIGHT };

static const struct mr_option pad_options[] = {
    {.name = "size",
     .type = MR_OPT_DOUBLES,
     .offset = offsetof(struct pad_args, size),
     .max = 1 << 30,
     .unit = "pixels",
     .help = "on all sides, or top:bottom:left:right"},
    {.name = "value", .type = MR_OPT_DOUBLE, .offset = offsetof(struct pad_args, value), .help = "of the new pixels"},
    {.name = "layout",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct pad_args, layout),
     .initial = "auto",
     .choices = mr_layout_choices,
     .help = "where height and width are"},
    {0},
};

static uint64_t pad_size(const struct mr_op *op, int side)
{
    const struct pad_args *a = op->args;
    return (uint64_t)a->size.v[a->size.n == 1 ? 0 : side];
}

static int pad_check(const struct mr_op *op)
{
    const struct pad_args *a = op->args;
    bool whole = a->size.n == 1 || a->size.n == 4;
    for (int i = 0; i < a->size.n; i++)
        whole = whole && a->size.v[i] == (double)(uint64_t)a->size.v[i];
    if (!whole)
        return mr_op_error(op, MR_EOPTION, "want pad(n[,value]) or pad(top:bottom:left:right[,value]), whole pixels");
    return 0;
}

static int pad_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct pad_args *a = op->args;
    int rc = find_axes(op, spec, a->layout);
    if (rc)
        return rc;
    mr_element_from_double(spec->dtype, a->value, op->bound.value);
    bool fits = mr_add(spec->dim[op->image.h], pad_size(op, TOP) + pad_size(op, BOTTOM), &spec->dim[op->image.h]) &&
                mr_add(spec->dim[op->image.w], pad_size(op, LEFT) + pad_size(op, RIGHT), &spec->dim[op->image.w]);
    return fits ? 0 : mr_op_misfit(op, spec, "is too much for");
}

static void pad_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    out_dim[op->image.h] += pad_size(op, TOP) + pad_size(op, BOTTOM);
    out_dim[op->image.w] += pad_size(op, LEFT) + pad_size(op, RIGHT);
}

/* n bytes, a multiple of the element's. Doubles what is filled: few calls for any element size. */
static char *fill(char *to, uint64_t n, const unsigned char *value, size_t element)
{
    bool bytes = true;
    for (size_t i = 1; i < element; i++)
        bytes = bytes && value[i] == value[0];
    if (bytes) {
        memset(to, value[0], n);
        return to + n;
    }
    uint64_t done = MR_MIN(element, n);
    memcpy(to, value, done);
    for (; done < n; done += MR_MIN(done, n - done))
        memcpy(to + done, to, MR_MIN(done, n - done));
    return to + n;
}

static int pad_apply(const struct mr_op *op, struct mr_op_call *call)
{
    struct pixels p = pixels_of(op, call->in_dim);
    pad_shape(op, call->in_dim, call->out_dim);
    const char *in = call->in;
    char *out = call->out;
    size_t element = mr_dtype_size(op->in.dtype);
    uint64_t left = pad_size(op, LEFT) * p.pixel, right = pad_size(op, RIGHT) * p.pixel, row = p.w * p.pixel;
    uint64_t above = pad_size(op, TOP) * (left + row + right), below_rows = pad_size(op, BOTTOM) * (left + row + right);
    for (uint64_t o = 0; o < p.outer; o++) {
        out = fill(out, above, op->bound.value, element);
        for (uint64_t y = 0; y < p.h; y++) {
            out = fill(out, left, op->bound.value, element);
            memcpy(out, in, row);
            in += row;
            out = fill(out + row, right, op->bound.value, element);
        }
        out = fill(out, below_rows, op->bound.value, element);
    }
    return 0;
}

const struct mr_op_ops mr_op_pad = {
    .name = "pad",
    .arguments = "n|top:bottom:left:right[,value][,layout=]",
    .summary = "zeros, or value, around height and width",
    .options = pad_options,
    .positional = (const char *const[]){"size", "value", NULL},
    .args_bytes = sizeof(struct pad_args),
    .check = pad_check,
    .infer = pad_infer,
    .shape = pad_shape,
    .apply = pad_apply,
};

/* hflip([p]) */
struct hflip_args {
    double p;
    int layout;
};

static const struct mr_option hflip_options[] = {
    {.name = "p",
     .type = MR_OPT_PERCENT,
     .offset = offsetof(struct hflip_args, p),
     .initial = "0.5",
     .max = 1,
     .help = "probability"},
    {.name = "layout",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct hflip_args, layout),
     .initial = "auto",
     .choices = mr_layout_choices,
     .help = "where height and width are"},
    {0},
};

static int hflip_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct hflip_args *a = op->args;
    return find_axes(op, spec, a->layout);
}

/* The loops are apart so that each vectorises. */
#define MIRROR(bits)                                                                                                   \
    MR_CLONES static void mirror_##bits(const void *in, void *out, size_t n)                                           \
    {                                                                                                                  \
        typedef uint##bits##_t element __attribute__((aligned(1), may_alias));                                         \
        const element *restrict p = in;                                                                                \
        element *restrict q = out;                                                                                     \
        for (size_t i = 0; i < n; i++)                                                                                 \
            q[i] = p[n - 1 - i];                                                                                       \
    }
MIRROR(8)
MIRROR(16)
MIRROR(32)
MIRROR(64)

/* 8..63 bytes, too short for vectors: 8 at a time, the last 8 overlapping. */
static void mirror_short(const char *in, char *out, uint64_t w)
{
    for (uint64_t x = 0; x < w; x += 8) {
        uint64_t at = MR_MIN(x, w - 8), eight;
        memcpy(&eight, in + w - 8 - at, 8);
        eight = __builtin_bswap64(eight);
        memcpy(out + at, &eight, 8);
    }
}

static void mirror_row(const char *in, char *out, uint64_t w, uint64_t pixel)
{
    switch (pixel) {
    case 1:
        if (w >= 8 && w < 64)
            mirror_short(in, out, w);
        else
            mirror_8(in, out, w);
        return;
    case 2:
        mirror_16(in, out, w);
        return;
    case 4:
        mirror_32(in, out, w);
        return;
    case 8:
        mirror_64(in, out, w);
        return;
    case 3: /* RGB bytes */
        for (uint64_t x = 0; x < w; x++)
            memcpy(out + x * 3, in + (w - 1 - x) * 3, 3);
        return;
    default:
        for (uint64_t x = 0; x < w; x++)
            memcpy(out + x * pixel, in + (w - 1 - x) * pixel, pixel);
    }
}

static int hflip_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct hflip_args *a = op->args;
    struct pixels p = pixels_of(op, call->in_dim);
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    uint64_t rows = p.outer * p.h, row = p.w * p.pixel;
    if (!(mr_unit_f64(call->random[0], call->random[1]) < a->p)) {
        memcpy(call->out, call->in, rows * row);
        return 0;
    }
    for (uint64_t y = 0; y < rows; y++)
        mirror_row((const char *)call->in + y * row, (char *)call->out + y * row, p.w, p.pixel);
    return 0;
}

const struct mr_op_ops mr_op_hflip = {
    .name = "hflip",
    .arguments = "[p][,layout=]",
    .summary = "mirror left to right with probability p (0.5)",
    .options = hflip_options,
    .positional = (const char *const[]){"p", NULL},
    .args_bytes = sizeof(struct hflip_args),
    .random = true,
    .infer = hflip_infer,
    .apply = hflip_apply,
};
