/*
 * "resample": windows of RGB pictures, resampled as Pillow does it: across first, rounded to u8,
 * then down, with weights of 22 fractional bits. transform/resample.c does the same of rows; the
 * bits are the same.
 */
#ifndef MR_KERNELS_BATCH_RESAMPLE_H
#define MR_KERNELS_BATCH_RESAMPLE_H

#include "kernels/kernels.h"
#include <math.h>

#define MR_RESAMPLE_TAPS 64 /* weights of one output at most */
#define MR_RESAMPLE_HALF (1 << 21)

/* As enum mr_filter of transform/. */
enum mr_resample_filter { MR_RESAMPLE_BILINEAR, MR_RESAMPLE_BICUBIC, MR_RESAMPLE_NEAREST };

/* Output i stands at start + (i + 0.5) * scale pixels behind the clip's first. */
struct mr_resample_axis {
    double start, scale;
    int32_t clip, n_clip; /* first pixel that filters look at, and how many */
    int32_t skip;         /* outputs in front of the first that is wanted */
    int32_t filter;       /* enum mr_resample_filter */
};

struct mr_resample_row {
    uint64_t at;            /* of the upright picture's first pixel, in bytes of `in` */
    int64_t step_x, step_y; /* bytes to the next pixel to the right and below, upright: a turned
                               picture's are negative or swapped */
    struct mr_resample_axis across, down;
};

struct mr_resample_args {
    const struct mr_resample_row *rows; /* n, in device memory */
    const void *in;
    void *out; /* n rows of out_h x out_w RGB pixels */
    uint64_t n, in_bytes;
    uint32_t out_w, out_h;
};

MR_HOST_DEVICE double mr_resample_weight(int32_t filter, double x)
{
    x = fabs(x);
    if (filter == MR_RESAMPLE_BILINEAR)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return (1.5 * x - 2.5) * x * x + 1; /* Keys' cubic, a = -0.5 */
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

MR_HOST_DEVICE double mr_resample_support(const struct mr_resample_axis *a)
{
    return (a->filter == MR_RESAMPLE_BICUBIC ? 2 : 1) * (a->scale > 1 ? a->scale : 1);
}

/*
 * The weights of output i, stride apart, in 2^-22, their sum about 1; and the first pixel that they
 * belong to. Returns how many. Weights are computed twice, for their sum and for themselves, since
 * a thread has no memory for them as f64.
 */
MR_HOST_DEVICE int32_t mr_resample_taps(const struct mr_resample_axis *a, int32_t i,
                                        int32_t *weight, int32_t stride, int32_t *out_first)
{
    double centre = a->start + ((double)(a->skip + i) + 0.5) * a->scale, sum = 0;
    double support = mr_resample_support(a), narrow = 1 / (a->scale > 1 ? a->scale : 1);
    if (a->filter == MR_RESAMPLE_NEAREST) {
        int64_t at = (int64_t)floor(centre);
        at = at < 0 ? 0 : at >= a->n_clip ? a->n_clip - 1 : at;
        *out_first = (int32_t)at + a->clip;
        weight[0] = 1 << 22;
        return 1;
    }
    int64_t from = (int64_t)(centre - support + 0.5), to = (int64_t)(centre + support + 0.5);
    from = from < 0 ? 0 : from > a->n_clip - 1 ? a->n_clip - 1 : from;
    to = to > a->n_clip ? a->n_clip : to;
    to = to < from + 1 ? from + 1 : to;
    int32_t n = (int32_t)(to - from < MR_RESAMPLE_TAPS ? to - from : MR_RESAMPLE_TAPS);
    for (int32_t k = 0; k < n; k++)
        sum += mr_resample_weight(a->filter, ((double)(from + k) - centre + 0.5) * narrow);
    for (int32_t k = 0; k < n; k++) {
        double w = mr_resample_weight(a->filter, ((double)(from + k) - centre + 0.5) * narrow);
        w = sum != 0 ? w / sum : k == 0;
        weight[k * stride] =
            w < 0 ? (int32_t)(-0.5 + w * (1 << 22)) : (int32_t)(0.5 + w * (1 << 22));
    }
    *out_first = (int32_t)from + a->clip;
    return n;
}

MR_HOST_DEVICE uint8_t mr_resample_round(int32_t sum)
{
    sum >>= 22;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One output pixel. in: the upright pixel that the first weights across and down belong to. */
MR_HOST_DEVICE void mr_resample_pixel(const struct mr_resample_row *r, const uint8_t *in,
                                      const int32_t *across, int32_t n_across,
                                      int32_t stride_across, const int32_t *down, int32_t n_down,
                                      int32_t stride_down, uint8_t out[3])
{
    int32_t sum[3] = {MR_RESAMPLE_HALF, MR_RESAMPLE_HALF, MR_RESAMPLE_HALF};
    for (int32_t y = 0; y < n_down; y++, in += r->step_y) {
        const uint8_t *p = in;
        int32_t line[3] = {MR_RESAMPLE_HALF, MR_RESAMPLE_HALF, MR_RESAMPLE_HALF},
                w = down[y * stride_down];
        for (int32_t x = 0; x < n_across; x++, p += r->step_x)
            for (int c = 0; c < 3; c++)
                line[c] += p[c] * across[x * stride_across];
        for (int c = 0; c < 3; c++)
            sum[c] += mr_resample_round(line[c]) * w;
    }
    for (int c = 0; c < 3; c++)
        out[c] = mr_resample_round(sum[c]);
}

const char *mr_batch_resample_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES]);
void mr_batch_resample_run(const void *args);
void mr_batch_resample_grid(void *args, unsigned grid[2]);

#endif
