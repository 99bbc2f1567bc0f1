/*
 * color_jitter and to_gray, matching torchvision's operations on tensors: u8 is truncated to an
 * integer after each step, as there; f32 is clamped to 0..1. All sums are f32, in a fixed order.
 * With like=pillow the u8 results are those of Pillow, which torchvision calls for PIL images.
 */
#include "transform/color.h"

#include <math.h>
#include <string.h>

#define BLOCK MR_COLOR_BLOCK

static const char *const likes[] = {"tensor", "pillow", NULL};

/* Images of three channels at any strides, counted in elements. */
struct colors {
    bool u8, pillow;
    uint64_t images, pixels, image_step, channel_step, pixel_step;
};

static int find_colors(struct mr_op *op, const struct mr_spec *spec, int layout, int like)
{
    int rc = mr_op_find_axes(op, spec, layout);
    if (rc)
        return rc;
    int h = op->image.h, w = op->image.w, channels = w + 1 < spec->rank ? w + 1 : h - 1;
    if (channels < 0 || spec->rank > w + 2 || spec->dim[channels] != 3 ||
        spec->var_dims >> channels & 1)
        return mr_op_misfit(op, spec, "three channels only; not for");
    if (spec->dtype != MR_U8 && spec->dtype != MR_F32)
        return mr_op_misfit(op, spec, "u8 and f32 only; not for");
    if (like && spec->dtype != MR_U8)
        return mr_op_misfit(op, spec, "like=pillow: u8 only; not for");
    return 0;
}

static struct colors colors_of(const struct mr_op *op, const uint64_t *dim, int like)
{
    struct mr_pixels p = mr_pixels_of(op, dim);
    struct colors c = {.u8 = op->in.dtype == MR_U8,
                       .pillow = like,
                       .pixels = p.h * p.w,
                       .image_step = 3 * p.h * p.w};
    bool behind = op->image.w + 1 < op->in.rank;
    c.images = behind ? p.outer : p.outer / 3;
    c.channel_step = behind ? 1 : c.pixels;
    c.pixel_step = behind ? 3 : 1;
    return c;
}

static void load(const struct colors *c, const void *image, uint64_t at, size_t n,
                 float x[3][BLOCK])
{
    for (int k = 0; k < 3; k++) {
        uint64_t first = (uint64_t)k * c->channel_step + at * c->pixel_step;
        for (size_t i = 0; i < n && c->u8; i++)
            x[k][i] = ((const uint8_t *)image)[first + i * c->pixel_step];
        for (size_t i = 0; i < n && !c->u8; i++)
            memcpy(&x[k][i], (const char *)image + (first + i * c->pixel_step) * 4, 4);
    }
}

/* Clamps to the range; u8: truncates. */
static void store(const struct colors *c, void *image, uint64_t at, size_t n, float x[3][BLOCK])
{
    float most = c->u8 ? 255 : 1;
    for (int k = 0; k < 3; k++) {
        uint64_t first = (uint64_t)k * c->channel_step + at * c->pixel_step;
        for (size_t i = 0; i < n; i++)
            x[k][i] = x[k][i] < 0 ? 0 : x[k][i] > most ? most : x[k][i];
        for (size_t i = 0; i < n && c->u8; i++)
            ((uint8_t *)image)[first + i * c->pixel_step] = (uint8_t)(int32_t)x[k][i];
        for (size_t i = 0; i < n && !c->u8; i++)
            memcpy((char *)image + (first + i * c->pixel_step) * 4, &x[k][i], 4);
    }
}

/* ITU-R 601's luma with torchvision's digits. */
static void gray_of(const struct colors *c, size_t n, float x[3][BLOCK], float *out)
{
    if (c->pillow) {
        mr_pillow_gray(n, x, out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = 0.2989f * x[0][i] + 0.587f * x[1][i] + 0.114f * x[2][i];
    for (size_t i = 0; i < n && c->u8; i++)
        out[i] = (float)(int32_t)out[i];
}

static void brighten(size_t n, float factor, float x[3][BLOCK])
{
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < n; i++)
            x[k][i] *= factor;
}

static void blend(size_t n, float factor, const float *other, float x[3][BLOCK])
{
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < n; i++)
            x[k][i] = factor * x[k][i] + (1 - factor) * other[i];
}

/* One pixel's hue turned; 0..1. Smith, Color gamut transform pairs, SIGGRAPH 1978. */
static void turn_hue(float turn, float *r, float *g, float *b)
{
    float most = fmaxf(*r, fmaxf(*g, *b)), least = fminf(*r, fminf(*g, *b)), range = most - least;
    if (range == 0)
        return;
    float s = range / most, rc = (most - *r) / range, gc = (most - *g) / range,
          bc = (most - *b) / range;
    float h = most == *r ? bc - gc : most == *g ? 2 + rc - bc : 4 + gc - rc;
    h = h / 6 + 1 + turn;
    h -= floorf(h);
    float f = h * 6, i = floorf(f);
    f -= i;
    float p = most * (1 - s), q = most * (1 - s * f), t = most * (1 - s * (1 - f));
    const float table[6][3] = {{most, t, p}, {q, most, p}, {p, most, t},
                               {p, q, most}, {t, p, most}, {most, p, q}};
    /* 6: rounding; NaN: of a pixel that is no colour */
    const float *rgb = table[i >= 0 && i < 6 ? (int)i : 0];
    *r = rgb[0];
    *g = rgb[1];
    *b = rgb[2];
}

static void turn_hues(const struct colors *c, size_t n, float turn, float x[3][BLOCK])
{
    for (size_t i = 0; i < n; i++) {
        float in = c->u8 ? 1 / 255.0f : 1,
              out = c->u8 ? 255.999f : 1; /* torchvision's conversion back to u8 */
        float r = x[0][i] * in, g = x[1][i] * in, b = x[2][i] * in;
        turn_hue(turn, &r, &g, &b);
        x[0][i] = r * out;
        x[1][i] = g * out;
        x[2][i] = b * out;
    }
}

enum step { BRIGHTNESS, CONTRAST, SATURATION, HUE, N_STEPS };

static float mean_gray(const struct colors *c, const void *image)
{
    double sum = 0;
    for (uint64_t at = 0; at < c->pixels; at += BLOCK) {
        float x[3][BLOCK], gray[BLOCK];
        size_t n = (size_t)MR_MIN(c->pixels - at, BLOCK);
        load(c, image, at, n, x);
        gray_of(c, n, x, gray);
        for (size_t i = 0; i < n; i++)
            sum += gray[i];
    }
    double mean = sum / (double)MR_MAX(c->pixels, 1);
    return c->pillow ? (float)floor(mean + 0.5) : (float)mean;
}

/* In place. */
static void run_step(const struct colors *c, enum step step, double factor, void *image)
{
    float x[3][BLOCK], other[BLOCK], mean = step == CONTRAST ? mean_gray(c, image) : 0;
    for (size_t i = 0; i < BLOCK; i++)
        other[i] = mean;
    for (uint64_t at = 0; at < c->pixels; at += BLOCK) {
        size_t n = (size_t)MR_MIN(c->pixels - at, BLOCK);
        load(c, image, at, n, x);
        if (step == SATURATION)
            gray_of(c, n, x, other);
        if (step == HUE && c->pillow)
            mr_pillow_turn_hues(n, factor, x);
        else if (step == HUE)
            turn_hues(c, n, (float)factor, x);
        else if (c->pillow)
            mr_pillow_blend(n, (float)factor, other, x);
        else if (step == BRIGHTNESS)
            brighten(n, (float)factor, x);
        else
            blend(n, (float)factor, other, x);
        store(c, image, at, n, x);
    }
}

struct jitter_args {
    struct mr_doubles amount[N_STEPS]; /* one number: either way; two: the range of factors */
    int layout, like;
};

#define AMOUNT_OPTION(step, title, text)                                                           \
    {                                                                                              \
        .name = title, .type = MR_OPT_DOUBLES,                                                     \
        .offset = offsetof(struct jitter_args, amount[step]), .help = text                         \
    }
#define LIKE_OPTION(T)                                                                             \
    {                                                                                              \
        .name = "like", .type = MR_OPT_ENUM, .offset = offsetof(T, like), .initial = "tensor",     \
        .choices = likes, .help = "whose results: torchvision's on tensors, or Pillow's (u8 only)" \
    }
#define LAYOUT_OPTION(T)                                                                           \
    {                                                                                              \
        .name = "layout", .type = MR_OPT_ENUM, .offset = offsetof(T, layout), .initial = "auto",   \
        .choices = mr_layout_choices, .help = "where height and width are"                         \
    }

static const struct mr_option jitter_options[] = {
    AMOUNT_OPTION(BRIGHTNESS, "brightness",
                  "a factor of 1 - this (0 at least) to 1 + this; a:b: of a to b"),
    AMOUNT_OPTION(CONTRAST, "contrast", "the same, about the mean luma"),
    AMOUNT_OPTION(SATURATION, "saturation", "the same, about each pixel's luma"),
    AMOUNT_OPTION(HUE, "hue",
                  "part of the circle that hues turn by at most, either way; a:b: from a to b"),
    LIKE_OPTION(struct jitter_args),
    LAYOUT_OPTION(struct jitter_args),
    {0},
};

/* The range of a step's factor. */
static void range_of(const struct jitter_args *a, enum step step, double *low, double *high)
{
    const struct mr_doubles *given = &a->amount[step];
    double amount = given->n > 0 ? given->v[0] : 0, middle = step == HUE ? 0 : 1;
    *low = given->n == 2 ? amount : step == HUE ? -amount : MR_MAX(0, 1 - amount);
    *high = given->n == 2 ? given->v[1] : middle + amount;
}

static bool range_fits(const struct jitter_args *a, enum step step)
{
    double low, high, least = step == HUE ? -0.5 : 0, most = step == HUE ? 0.5 : 101;
    range_of(a, step, &low, &high);
    return a->amount[step].n <= 2 && low >= least && low <= high && high <= most;
}

static int jitter_check(const struct mr_op *op)
{
    for (int k = 0; k < N_STEPS; k++)
        if (!range_fits(op->args, (enum step)k))
            return mr_op_error(op, MR_EOPTION,
                               "%s: expected a number, 0 to %s, or a range a:b of %s",
                               op->ops->positional[k], k == HUE ? "0.5" : "100",
                               k == HUE ? "turns, -0.5 to 0.5" : "factors, 0 to 101");
    return 0;
}

static int jitter_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct jitter_args *a = op->args;
    return find_colors(op, spec, a->layout, a->like);
}

static double between(uint32_t random, double a, double b)
{
    return a + (b - a) * ((double)random * 0x1p-32);
}

/* One of 24 orders: the n-th of those left is taken each time. */
static void choose_order(uint32_t random, int order[N_STEPS])
{
    int left[N_STEPS] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    uint32_t rest = (uint32_t)((uint64_t)random * 24 >> 32);
    for (int n = N_STEPS; n > 0; n--) {
        int k = (int)(rest % (uint32_t)n);
        rest /= (uint32_t)n;
        order[N_STEPS - n] = left[k];
        left[k] = left[n - 1];
    }
}

static int jitter_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct jitter_args *a = op->args;
    struct colors c = colors_of(op, call->in_dim, a->like);
    size_t size = c.u8 ? 1 : 4;
    int order[N_STEPS];
    uint32_t more[4];
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    memcpy(call->out, call->in, c.images * c.image_step * size);
    mr_op_draw(op, call->at, 1, more);
    choose_order(more[0], order);
    for (int k = 0; k < N_STEPS; k++) {
        enum step step = (enum step)order[k];
        double low, high, still = step == HUE ? 0 : 1;
        range_of(a, step, &low, &high);
        double factor = between(call->random[step], low, high);
        bool changes = low != still || high != still;
        for (uint64_t i = 0; i < c.images && changes; i++)
            run_step(&c, step, factor, (char *)call->out + i * c.image_step * size);
    }
    return 0;
}

const struct mr_op_ops mr_op_color_jitter = {
    .name = "color_jitter",
    .arguments = "brightness[,contrast,saturation,hue][,like=][,layout=]",
    .summary = "random brightness, contrast, saturation and hue, in random order",
    .options = jitter_options,
    .positional = (const char *const[]){"brightness", "contrast", "saturation", "hue", NULL},
    .args_bytes = sizeof(struct jitter_args),
    .random = true,
    .check = jitter_check,
    .infer = jitter_infer,
    .apply = jitter_apply,
};

/* to_gray([p]) */
struct gray_args {
    double p;
    int layout, like;
};

static const struct mr_option gray_options[] = {
    {.name = "p",
     .type = MR_OPT_PERCENT,
     .offset = offsetof(struct gray_args, p),
     .initial = "1",
     .max = 1,
     .help = "probability"},
    LIKE_OPTION(struct gray_args),
    LAYOUT_OPTION(struct gray_args),
    {0},
};

static int gray_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct gray_args *a = op->args;
    return find_colors(op, spec, a->layout, a->like);
}

static void make_gray(const struct colors *c, void *image)
{
    for (uint64_t at = 0; at < c->pixels; at += BLOCK) {
        float x[3][BLOCK], gray[BLOCK];
        size_t n = (size_t)MR_MIN(c->pixels - at, BLOCK);
        load(c, image, at, n, x);
        gray_of(c, n, x, gray);
        for (int k = 0; k < 3; k++)
            memcpy(x[k], gray, n * sizeof *gray);
        store(c, image, at, n, x);
    }
}

static int gray_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct gray_args *a = op->args;
    struct colors c = colors_of(op, call->in_dim, a->like);
    size_t size = c.u8 ? 1 : 4;
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    memcpy(call->out, call->in, c.images * c.image_step * size);
    for (uint64_t i = 0; i < c.images && mr_unit_f64(call->random[0], call->random[1]) < a->p; i++)
        make_gray(&c, (char *)call->out + i * c.image_step * size);
    return 0;
}

const struct mr_op_ops mr_op_to_gray = {
    .name = "to_gray",
    .arguments = "[p][,like=][,layout=]",
    .summary = "three equal channels of luma, with probability p (1)",
    .options = gray_options,
    .positional = (const char *const[]){"p", NULL},
    .args_bytes = sizeof(struct gray_args),
    .random = true,
    .infer = gray_infer,
    .apply = gray_apply,
};
