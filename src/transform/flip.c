/* vflip and erase: whole rows moved, a rectangle filled. */
#include "transform/transform.h"

#include <math.h>
#include <string.h>

#define LAYOUT_OPTION(T)                                                                           \
    {                                                                                              \
        .name = "layout", .type = MR_OPT_ENUM, .offset = offsetof(T, layout), .initial = "auto",   \
        .choices = mr_layout_choices, .help = "where height and width are"                         \
    }
#define P_OPTION(T)                                                                                \
    {                                                                                              \
        .name = "p", .type = MR_OPT_PERCENT, .offset = offsetof(T, p), .initial = "0.5", .max = 1, \
        .help = "probability"                                                                      \
    }

struct vflip_args {
    double p;
    int layout;
};

static const struct mr_option vflip_options[] = {
    P_OPTION(struct vflip_args), LAYOUT_OPTION(struct vflip_args), {0}};

static int vflip_infer(struct mr_op *op, struct mr_spec *spec)
{
    return mr_op_find_axes(op, spec, ((const struct vflip_args *)op->args)->layout);
}

static bool turns(const struct mr_op *op, const uint32_t random[4])
{
    return mr_unit_f64(random[0], random[1]) < ((const struct vflip_args *)op->args)->p;
}

static int vflip_apply(const struct mr_op *op, struct mr_op_call *call)
{
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    uint64_t row = p.w * p.pixel, image = p.h * row;
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    if (!turns(op, call->random)) {
        memcpy(call->out, call->in, p.outer * image);
        return 0;
    }
    for (uint64_t o = 0; o < p.outer; o++)
        for (uint64_t y = 0; y < p.h; y++)
            memcpy((char *)call->out + o * image + y * row,
                   (const char *)call->in + o * image + (p.h - 1 - y) * row, row);
    return 0;
}

static void vflip_map(const struct mr_op *op, const struct mr_at *at, uint64_t width,
                      uint64_t height, double m[6])
{
    uint32_t random[4];
    (void)width;
    mr_op_draw(op, at, 0, random);
    if (!turns(op, random))
        return;
    m[4] = -1;
    m[5] = (double)height - 1;
}

const struct mr_op_ops mr_op_vflip = {
    .name = "vflip",
    .several = MR_SEVERAL_IMAGES,
    .arguments = "[p][,layout=]",
    .summary = "mirror top to bottom with probability p (0.5)",
    .options = vflip_options,
    .positional = (const char *const[]){"p", NULL},
    .args_bytes = sizeof(struct vflip_args),
    .random = true,
    .infer = vflip_infer,
    .apply = vflip_apply,
    .map = vflip_map,
};

/* erase([p,scale_min,scale_max,ratio_min,ratio_max,value]) */
struct erase_args {
    double p, scale_min, scale_max, ratio_min, ratio_max, value;
    int layout;
};

#define RANGE_OPTION(member, start, most, text)                                                    \
    {                                                                                              \
        .name = #member, .type = MR_OPT_DOUBLE, .offset = offsetof(struct erase_args, member),     \
        .initial = start, .max = (most), .help = text                                              \
    }

static const struct mr_option erase_options[] = {
    P_OPTION(struct erase_args),
    RANGE_OPTION(scale_min, "0.02", 1, "least part of the area"),
    RANGE_OPTION(scale_max, "0.33", 1, "largest part of the area"),
    RANGE_OPTION(ratio_min, "0.3", 1000, "least height / width"),
    RANGE_OPTION(ratio_max, "3.3", 1000, "largest height / width"),
    {.name = "value",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct erase_args, value),
     .help = "of the erased pixels"},
    LAYOUT_OPTION(struct erase_args),
    {0},
};

static int erase_check(const struct mr_op *op)
{
    const struct erase_args *a = op->args;
    if (!(a->scale_min > 0 && a->scale_min <= a->scale_max && a->ratio_min > 0 &&
          a->ratio_min <= a->ratio_max))
        return mr_op_error(
            op, MR_EOPTION,
            "expected 0 < scale_min <= scale_max <= 1 and 0 < ratio_min <= ratio_max");
    return 0;
}

static int erase_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct erase_args *a = op->args;
    mr_element_from_double(spec->dtype, a->value, op->bound.value);
    return mr_op_find_axes(op, spec, a->layout);
}

struct part {
    uint64_t top, left, h, w;
};

static double between(uint32_t random, double a, double b)
{
    return a + (b - a) * ((double)random * 0x1p-32);
}

#define TRIES 10
static bool choose_part(const struct mr_op *op, const struct mr_at *at, const struct mr_pixels *p,
                        struct part *out)
{
    const struct erase_args *a = op->args;
    for (uint32_t k = 1; k <= TRIES; k++) {
        uint32_t random[4];
        mr_op_draw(op, at, k, random);
        double area = (double)p->h * (double)p->w * between(random[0], a->scale_min, a->scale_max);
        double ratio = exp(between(random[1], log(a->ratio_min), log(a->ratio_max)));
        double h = rint(sqrt(area * ratio)), w = rint(sqrt(area / ratio));
        if (!(h < (double)p->h && w < (double)p->w))
            continue;
        out->h = (uint64_t)h;
        out->w = (uint64_t)w;
        out->top = random[2] * (p->h - out->h + 1) >> 32;
        out->left = random[3] * (p->w - out->w + 1) >> 32;
        return true;
    }
    return false;
}

static int erase_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct erase_args *a = op->args;
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    struct part part;
    uint64_t row = p.w * p.pixel, image = p.h * row;
    size_t element = mr_dtype_size(op->in.dtype);
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    memcpy(call->out, call->in, p.outer * image);
    if (mr_unit_f64(call->random[0], call->random[1]) >= a->p ||
        !choose_part(op, call->at, &p, &part))
        return 0;
    for (uint64_t o = 0; o < p.outer; o++)
        for (uint64_t y = part.top; y < part.top + part.h; y++) {
            char *to = (char *)call->out + o * image + y * row + part.left * p.pixel;
            for (uint64_t i = 0; i < part.w * p.pixel; i += element)
                memcpy(to + i, op->bound.value, element);
        }
    return 0;
}

const struct mr_op_ops mr_op_erase = {
    .name = "erase",
    .arguments = "[p,scale_min,scale_max,ratio_min,ratio_max,value][,layout=]",
    .summary = "with probability p (0.5) fill a random rectangle with value",
    .options = erase_options,
    .positional = (const char *const[]){"p", "scale_min", "scale_max", "ratio_min", "ratio_max",
                                        "value", NULL},
    .args_bytes = sizeof(struct erase_args),
    .random = true,
    .check = erase_check,
    .infer = erase_infer,
    .apply = erase_apply,
};
