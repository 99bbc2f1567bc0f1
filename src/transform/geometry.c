/* Where an image's axes are; pad and hflip. */
#include "transform/transform.h"

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
    bool images = rank == 3 || rank == 4; /* one, or a clip of them */
    if (layout == LAYOUT_AUTO && images && channel_like(spec, rank - 1) &&
        !channel_like(spec, rank - 3))
        layout = LAYOUT_NHWC;
    int behind = layout == LAYOUT_NHWC;
    if (rank < 2 + behind)
        return false;
    *out = (struct mr_image){.h = rank - 2 - behind, .w = rank - 1 - behind};
    return true;
}

int mr_op_find_axes(struct mr_op *op, const struct mr_spec *spec, int layout)
{
    if (op->follows && spec->rank == 2) /* labels have no channels */
        layout = LAYOUT_AUTO;
    if (!mr_image_axes(spec, layout, &op->image))
        return mr_op_misfit(op, spec, "no height and width in");
    return 0;
}

struct mr_pixels mr_pixels_of(const struct mr_op *op, const uint64_t *dim)
{
    struct mr_pixels p = {1, dim[op->image.h], dim[op->image.w], mr_dtype_size(op->in.dtype)};
    for (int d = 0; d < op->image.h; d++)
        p.outer *= dim[d];
    p.pixel *= mr_dims_after(dim, op->in.rank, op->image.w);
    return p;
}

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
    {.name = "value",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct pad_args, value),
     .help = "of the new pixels"},
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
        return mr_op_error(
            op, MR_EOPTION,
            "expected pad(n[,value]) or pad(top:bottom:left:right[,value]), whole pixels");
    return 0;
}

static int pad_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct pad_args *a = op->args;
    int rc = mr_op_find_axes(op, spec, a->layout);
    if (rc)
        return rc;
    mr_element_from_double(spec->dtype, a->value, op->bound.value);
    bool fits = mr_add(spec->dim[op->image.h], pad_size(op, TOP) + pad_size(op, BOTTOM),
                       &spec->dim[op->image.h]) &&
                mr_add(spec->dim[op->image.w], pad_size(op, LEFT) + pad_size(op, RIGHT),
                       &spec->dim[op->image.w]);
    return fits ? 0 : mr_op_misfit(op, spec, "is too much for");
}

static void pad_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    out_dim[op->image.h] += pad_size(op, TOP) + pad_size(op, BOTTOM);
    out_dim[op->image.w] += pad_size(op, LEFT) + pad_size(op, RIGHT);
}

static int pad_apply(const struct mr_op *op, struct mr_op_call *call)
{
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    pad_shape(op, call->in_dim, call->out_dim);
    const char *in = call->in;
    char *out = call->out;
    size_t element = mr_dtype_size(op->in.dtype);
    uint64_t left = pad_size(op, LEFT) * p.pixel, right = pad_size(op, RIGHT) * p.pixel,
             row = p.w * p.pixel;
    uint64_t above = pad_size(op, TOP) * (left + row + right),
             below_rows = pad_size(op, BOTTOM) * (left + row + right);
    for (uint64_t o = 0; o < p.outer; o++) {
        out = mr_op_fill(out, above, op->bound.value, element);
        for (uint64_t y = 0; y < p.h; y++) {
            out = mr_op_fill(out, left, op->bound.value, element);
            memcpy(out, in, row);
            in += row;
            out = mr_op_fill(out + row, right, op->bound.value, element);
        }
        out = mr_op_fill(out, below_rows, op->bound.value, element);
    }
    return 0;
}

static void pad_map(const struct mr_op *op, const struct mr_at *at, uint64_t width, uint64_t height,
                    double m[6])
{
    (void)at, (void)width, (void)height;
    m[2] = (double)pad_size(op, LEFT);
    m[5] = (double)pad_size(op, TOP);
}

const struct mr_op_ops mr_op_pad = {
    .name = "pad",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "n|top:bottom:left:right[,value][,layout=]",
    .summary = "zeros, or value, around height and width",
    .options = pad_options,
    .positional = (const char *const[]){"size", "value", NULL},
    .args_bytes = sizeof(struct pad_args),
    .check = pad_check,
    .infer = pad_infer,
    .shape = pad_shape,
    .apply = pad_apply,
    .map = pad_map,
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
    return mr_op_find_axes(op, spec, a->layout);
}

/* The loops are apart so that each vectorises. */
#define MIRROR(bits)                                                                               \
    MR_CLONES static void mirror_##bits(const void *in, void *out, size_t n)                       \
    {                                                                                              \
        typedef uint##bits##_t element __attribute__((aligned(1), may_alias));                     \
        const element *restrict p = in;                                                            \
        element *restrict q = out;                                                                 \
        for (size_t i = 0; i < n; i++)                                                             \
            q[i] = p[n - 1 - i];                                                                   \
    }
MIRROR(8)
MIRROR(16)
MIRROR(32)
MIRROR(64)

void mr_mirror_u8(const void *in, void *out, size_t n)
{
    mirror_8(in, out, n);
}

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

bool mr_hflip_mirrors(const struct mr_op *op, const uint32_t random[4])
{
    const struct hflip_args *a = op->args;
    return mr_unit_f64(random[0], random[1]) < a->p;
}

static int hflip_apply(const struct mr_op *op, struct mr_op_call *call)
{
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    uint64_t rows = p.outer * p.h, row = p.w * p.pixel;
    if (!mr_hflip_mirrors(op, call->random)) {
        memcpy(call->out, call->in, rows * row);
        return 0;
    }
    for (uint64_t y = 0; y < rows; y++)
        mirror_row((const char *)call->in + y * row, (char *)call->out + y * row, p.w, p.pixel);
    return 0;
}

static void hflip_map(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                      uint64_t height, double m[6])
{
    uint32_t random[4];
    (void)height;
    mr_op_draw(op, at, 0, random);
    if (!mr_hflip_mirrors(op, random))
        return;
    m[0] = -1;
    m[2] = (double)width - 1;
}

const struct mr_op_ops mr_op_hflip = {
    .name = "hflip",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "[p][,layout=]",
    .summary = "mirror left to right with probability p (0.5)",
    .options = hflip_options,
    .positional = (const char *const[]){"p", NULL},
    .args_bytes = sizeof(struct hflip_args),
    .random = true,
    .infer = hflip_infer,
    .apply = hflip_apply,
    .map = hflip_map,
};
