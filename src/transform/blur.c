/* gaussian_blur: pixels made of their neighbours, in f32. */
#include "transform/transform.h"

#include <math.h>
#include <string.h>

#define LAYOUT_OPTION(T)                                                                           \
    {                                                                                              \
        .name = "layout", .type = MR_OPT_ENUM, .offset = offsetof(T, layout), .initial = "auto",   \
        .choices = mr_layout_choices, .help = "where height and width are"                         \
    }
#define MAX_KERNEL 255

/* gaussian_blur(kernel[,sigma_min,sigma_max]) */
struct blur_args {
    uint64_t kernel;
    double sigma_min, sigma_max;
    int layout;
};

static const struct mr_option blur_options[] = {
    {.name = "kernel",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct blur_args, kernel),
     .max = MAX_KERNEL,
     .unit = "pixels",
     .help = "across, odd"},
    {.name = "sigma_min",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct blur_args, sigma_min),
     .initial = "0.1",
     .max = 1000,
     .unit = "pixels",
     .help = "least standard deviation"},
    {.name = "sigma_max",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct blur_args, sigma_max),
     .initial = "2",
     .max = 1000,
     .unit = "pixels",
     .help = "largest"},
    LAYOUT_OPTION(struct blur_args),
    {0},
};

static int blur_check(const struct mr_op *op)
{
    const struct blur_args *a = op->args;
    if (a->kernel % 2 == 0 || !(a->sigma_min > 0 && a->sigma_min <= a->sigma_max))
        return mr_op_error(op, MR_EOPTION,
                           "expected gaussian_blur(kernel[,sigma_min,sigma_max]), kernel odd, 0 < "
                           "sigma_min <= sigma_max");
    return 0;
}

static int small_only(const struct mr_op *op, const struct mr_spec *spec)
{
    bool good = mr_load_f32(spec->dtype) && mr_store_f32(spec->dtype) && spec->dtype != MR_BOOL;
    return good ? 0 : mr_op_misfit(op, spec, "u8, i8, u16, i16, f16, bf16 and f32 only; not for");
}

static int blur_infer(struct mr_op *op, struct mr_spec *spec)
{
    int rc = mr_op_find_axes(op, spec, ((const struct blur_args *)op->args)->layout);
    return rc ? rc : small_only(op, spec);
}

static uint64_t row_elements(const struct mr_op *op, const uint64_t *dim)
{
    return mr_dims_after(dim, op->in.rank, op->image.h);
}

/* A ring of rows blurred across, and one row each as loaded and of the result. */
static uint64_t blur_work(const struct mr_op *op)
{
    const struct blur_args *a = op->args;
    return (a->kernel + 2) *
           mr_round_up(row_elements(op, op->in.dim) * sizeof(float), MR_CACHE_LINE);
}

/* Mirrored at the edge's pixel, as torchvision pads: ... 2 1 0 1 2 ... */
static uint64_t mirrored(int64_t i, uint64_t n)
{
    if (i < 0)
        i = -i;
    return (uint64_t)(i < (int64_t)n ? i : 2 * ((int64_t)n - 1) - i);
}

MR_CLONES static void add_weighted(float *restrict sum, const float *restrict row, float w,
                                   uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += row[i] * w;
}

static void blur_across(const float *in, float *out, uint64_t width, uint64_t channels,
                        const float *w, int64_t half)
{
    uint64_t edge = MR_MIN((uint64_t)half, width), n = width * channels;
    memset(out, 0, n * sizeof *out);
    for (int64_t k = -half; k <= half; k++) {
        for (uint64_t x = 0; x < width; x++) {
            if (x == edge && width > 2 * edge) { /* the middle in one piece */
                uint64_t middle = width - 2 * edge;
                add_weighted(out + x * channels, in + ((int64_t)x + k) * (int64_t)channels,
                             w[k + half], middle * channels);
                x += middle;
            }
            uint64_t from = mirrored((int64_t)x + k, width);
            for (uint64_t c = 0; c < channels && x < width; c++)
                out[x * channels + c] += in[from * channels + c] * w[k + half];
        }
    }
}

static void gauss(double sigma, uint64_t kernel, float out[MAX_KERNEL])
{
    double sum = 0, w[MAX_KERNEL] = {0};
    for (uint64_t k = 0; k < kernel; k++) {
        uint64_t middle = kernel / 2;
        double x = ((double)k - (double)middle) / sigma;
        w[k] = exp(-0.5 * x * x);
        sum += w[k];
    }
    for (uint64_t k = 0; k < MAX_KERNEL; k++)
        out[k] = (float)(w[k] / sum);
}

static int blur_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct blur_args *a = op->args;
    struct mr_pixels p = mr_pixels_of(op, call->in_dim);
    int64_t half = (int64_t)a->kernel / 2;
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    if (p.h <= (uint64_t)half || p.w <= (uint64_t)half)
        return mr_op_error(op, MR_ESHAPE,
                           "half of the kernel reaches past a sample of height %llu and width %llu",
                           (unsigned long long)p.h, (unsigned long long)p.w);
    float w[MAX_KERNEL];
    gauss(a->sigma_min +
              (a->sigma_max - a->sigma_min) * mr_unit_f64(call->random[0], call->random[1]),
          a->kernel, w);
    uint64_t channels = p.pixel / mr_dtype_size(op->in.dtype), n = p.w * channels,
             row = p.w * p.pixel;
    uint64_t step = mr_round_up(n * sizeof(float), MR_CACHE_LINE) / sizeof(float);
    float *ring = call->work, *line = ring + a->kernel * step, *sum = line + step;
    for (uint64_t o = 0; o < p.outer; o++) {
        const char *in = (const char *)call->in + o * p.h * row;
        char *out = (char *)call->out + o * p.h * row;
        uint64_t next = 0;
        for (uint64_t y = 0; y < p.h; y++) {
            for (; next < p.h && next <= y + (uint64_t)half; next++) {
                mr_load_f32(op->in.dtype)(in + next * row, line, n);
                blur_across(line, ring + next % a->kernel * step, p.w, channels, w, half);
            }
            memset(sum, 0, n * sizeof *sum);
            for (int64_t k = -half; k <= half; k++)
                add_weighted(sum, ring + mirrored((int64_t)y + k, p.h) % a->kernel * step,
                             w[k + half], n);
            mr_store_f32(op->in.dtype)(sum, out + y * row, n);
        }
    }
    return 0;
}

const struct mr_op_ops mr_op_gaussian_blur = {
    .name = "gaussian_blur",
    .arguments = "kernel[,sigma_min,sigma_max][,layout=]",
    .summary = "blur by a Gaussian of random width",
    .options = blur_options,
    .positional = (const char *const[]){"kernel", "sigma_min", "sigma_max", NULL},
    .args_bytes = sizeof(struct blur_args),
    .random = true,
    .check = blur_check,
    .infer = blur_infer,
    .apply = blur_apply,
    .work = blur_work,
};
