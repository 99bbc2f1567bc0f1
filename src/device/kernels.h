/*
 * Kernels that finish a batch on the device, launched by name: their arguments, and the arithmetic of one element, which the
 * C implementation (kernels.c: cpu, sim) and the CUDA one (kernels/batch.cu) both compile. So they are bit-equal.
 *
 * A pair (a, m) stands for y = (x + a) * m, two rounded operations, never contracted.
 */
#ifndef MR_DEVICE_KERNELS_H
#define MR_DEVICE_KERNELS_H

#include <math.h>
#include <millrace/tensor.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define MR_ELEMENT static __host__ __device__ inline
#else
#define MR_ELEMENT static inline
#endif

#define MR_POINT_DIMS  5
#define MR_POINT_PAIRS 64 /* of all channels together */

/*
 * "pointwise": rows of `elements` each. Output element o of a row is computed from the input element that dim, stride and
 * flips say, in f32, by the pairs of o's channel, (o / channel_inner) % channels.
 */
struct mr_point_args {
    const void *in;
    void *out;
    const uint8_t *flip; /* a byte a row: is dimension flip_dim mirrored? NULL: nowhere */
    uint64_t rows;
    uint32_t elements;
    int32_t from, to;                                   /* enum mr_dtype: bool, u8, i8, u16 or i16; f32, f16 or bf16 */
    uint32_t n_dims;                                    /* of the output */
    uint32_t dim[MR_POINT_DIMS], stride[MR_POINT_DIMS]; /* stride: in elements of the input row */
    int32_t flip_dim;
    uint32_t n_pairs, channels, channel_inner;
    float pair[MR_POINT_PAIRS][2]; /* [channel][pair] */
};

/* "one_hot": a row is one label in 0..classes-1; it becomes `classes` elements, one of them `value`, the others 0. */
struct mr_one_hot_args {
    const void *in;
    void *out;
    uint64_t rows;
    uint32_t classes;
    uint32_t label_bytes, element_bytes; /* 1, 2, 4 or 8 */
    uint32_t value[2];                   /* little-endian */
};

/*
 * How rows of a batch are mixed with each other: row r with row partner[r], which is below `rows`, else with itself. A value and
 * the partner's become value * part + the partner's * rest, each product and the sum rounded; or, with cuts, elements in a
 * rectangle are the partner's. The rectangle: element o of a row belongs to pixel o / pixel of pictures of height x width pixels.
 */
struct mr_mix_how {
    const uint32_t *partner;
    float part, rest;
    uint32_t cuts;
    uint32_t height, width, pixel, x0, x1, y0, y1; /* set when it cuts */
};

/* "pointwise_mix": "pointwise", whose results are mixed as they would be stored. */
struct mr_point_mix_args {
    struct mr_point_args point;
    struct mr_mix_how mix;
};

/* "one_hot_mix": element c of a row is value[(c is the row's label) + 2 * (c is its partner's)]; hot.value is not used. */
struct mr_one_hot_mix_args {
    struct mr_one_hot_args hot;
    const uint32_t *partner;
    uint32_t value[4][2]; /* little-endian */
};

/* "gather": row r of the output is row index[r] of the input. */
struct mr_gather_args {
    const void *in;
    void *out;
    const uint64_t *index;
    uint64_t rows, in_rows, row_bytes; /* an index that is not below in_rows leaves its row as it is */
};

/*
 * "resample": windows of RGB pictures, resampled as Pillow does it: across first, rounded to u8, then down, with weights of 22
 * fractional bits. transform/resample.c does the same of rows; the bits are the same.
 */
#define MR_RESAMPLE_TAPS 64 /* weights of one output at most */
#define MR_RESAMPLE_HALF (1 << 21)

/* As enum mr_filter of the transform room. */
enum mr_resample_filter { MR_RESAMPLE_BILINEAR, MR_RESAMPLE_BICUBIC, MR_RESAMPLE_NEAREST };

/* Output i stands at start + (i + 0.5) * scale pixels behind the clip's first. */
struct mr_resample_axis {
    double start, scale;
    int32_t clip, n_clip; /* first pixel that filters look at, and how many */
    int32_t skip;         /* outputs in front of the first that is wanted */
    int32_t filter;       /* enum mr_resample_filter */
};

struct mr_resample_row {
    uint64_t at; /* of the upright picture's first pixel, in bytes of `in` */
    int64_t step_x,
        step_y; /* bytes to the next pixel to the right and below, upright: a turned picture's are negative or swapped */
    struct mr_resample_axis across, down;
};

struct mr_resample_args {
    const struct mr_resample_row *rows; /* n, in device memory */
    const void *in;
    void *out; /* n rows of out_h x out_w RGB pixels */
    uint64_t n, in_bytes;
    uint32_t out_w, out_h;
};

#define MR_KERNEL_ARGS   1024 /* bytes at most */
#define MR_KERNEL_RANGES 12   /* parts of memory at most: in and out, then what may be NULL */

struct mr_kernel_range {
    const void *ptr;
    uint64_t bytes;
};

struct mr_kernel {
    const char *name;
    size_t arg_bytes;
    /* NULL: the arguments make sense; else what does not. [out] out: the memory that is touched, behind it
     * nothing is written. */
    const char *(*check)(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES]);
    void (*run)(const void *args); /* on the host */
    int image;                     /* enum mr_kernel_image: where the CUDA one is */
    /* Blocks of 256 threads on a GPU; 0 in grid[1]: there is nothing to do. NULL: cuda_launch.c knows. */
    void (*shape)(const void *args, unsigned grid[2]);
};

/* The fatbins, a source in kernels/ each. */
enum mr_kernel_image { MR_IMAGE_BATCH, MR_IMAGE_OPTIM, MR_N_IMAGES };

/* The i-th of all kernels, in no order; NULL behind the last. */
const struct mr_kernel *mr_kernel_at(size_t i);

/* NULL: no such kernel. */
const struct mr_kernel *mr_kernel_find(const char *name);
/* Finds and checks. Returns 0, MR_EUNSUPPORTED, MR_EMISUSE. [out] out, ranges: on success. */
int mr_kernel_args(const char *device, const char *name, const void *args, size_t arg_bytes,
                   const struct mr_kernel **out, struct mr_kernel_range ranges[MR_KERNEL_RANGES]);

MR_ELEMENT uint32_t mr_bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

MR_ELEMENT float mr_f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest even. Subnormals: adding 0.5 puts their bits, rounded, at the low end of the mantissa. Else: the rounding carry
 * may run into the exponent, up to infinity. */
MR_ELEMENT uint16_t mr_f16_of_f32(float f)
{
    uint32_t all = mr_bits_of_f32(f), u = all & 0x7fffffff;
    uint32_t subnormal = mr_bits_of_f32(mr_f32_of_bits(u) + 0.5f) - 0x3f000000;
    uint32_t normal = (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13;
    uint32_t special = u > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t r = u >= 0x47800000 ? special : u < 0x38800000 ? subnormal : normal;
    return (uint16_t)(r | (all >> 16 & 0x8000));
}

MR_ELEMENT uint16_t mr_bf16_of_f32(float f)
{
    uint32_t u = mr_bits_of_f32(f);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? (u >> 16 & 0x8000) | 0x7fc0 : rounded);
}

/* The exponent moves by a multiplication by 2^112, which also normalises subnormals. */
MR_ELEMENT float mr_f32_of_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t scaled = mr_bits_of_f32(mr_f32_of_bits(magnitude) * mr_f32_of_bits(0x77800000));
    uint32_t special = magnitude | 0x7f800000;
    return mr_f32_of_bits((magnitude >= 0x0f800000 ? special : scaled) | (uint32_t)(h & 0x8000) << 16);
}

MR_ELEMENT float mr_f32_of_bf16(uint16_t h)
{
    return mr_f32_of_bits((uint32_t)h << 16);
}

MR_ELEMENT float mr_point_pair(float x, const float pair[2])
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(__fadd_rn(x, pair[0]), pair[1]);
#else
    return (x + pair[0]) * pair[1];
#endif
}

MR_ELEMENT float mr_point_compute(const struct mr_point_args *a, uint32_t o, float x)
{
    const float(*pair)[2] = a->pair;
    if (a->channels > 1)
        pair += o / a->channel_inner % a->channels * a->n_pairs;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t k = 0; k < a->n_pairs; k++)
        x = mr_point_pair(x, pair[k]);
    return x;
}

/* The input element of output element o. */
MR_ELEMENT uint32_t mr_point_source(const struct mr_point_args *a, uint32_t o, int flipped)
{
    uint32_t at = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (int k = (int)a->n_dims - 1; k >= 0; k--) {
        uint32_t c = o % a->dim[k];
        o /= a->dim[k];
        if (flipped && k == a->flip_dim)
            c = a->dim[k] - 1 - c;
        at += c * a->stride[k];
    }
    return at;
}

MR_ELEMENT double mr_resample_weight(int32_t filter, double x)
{
    x = fabs(x);
    if (filter == MR_RESAMPLE_BILINEAR)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return (1.5 * x - 2.5) * x * x + 1; /* Keys' cubic, a = -0.5 */
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

MR_ELEMENT double mr_resample_support(const struct mr_resample_axis *a)
{
    return (a->filter == MR_RESAMPLE_BICUBIC ? 2 : 1) * (a->scale > 1 ? a->scale : 1);
}

/*
 * The weights of output i, stride apart, in 2^-22, their sum about 1; and the first pixel that they belong to. Returns how many.
 * Weights are computed twice, for their sum and for themselves, since a thread has no room to keep them as f64.
 */
MR_ELEMENT int32_t mr_resample_taps(const struct mr_resample_axis *a, int32_t i, int32_t *weight, int32_t stride,
                                    int32_t *out_first)
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
        weight[k * stride] = w < 0 ? (int32_t)(-0.5 + w * (1 << 22)) : (int32_t)(0.5 + w * (1 << 22));
    }
    *out_first = (int32_t)from + a->clip;
    return n;
}

MR_ELEMENT uint8_t mr_resample_round(int32_t sum)
{
    sum >>= 22;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One output pixel. in: the upright pixel that the first weights across and down belong to. */
MR_ELEMENT void mr_resample_pixel(const struct mr_resample_row *r, const uint8_t *in, const int32_t *across,
                                  int32_t n_across, int32_t stride_across, const int32_t *down, int32_t n_down,
                                  int32_t stride_down, uint8_t out[3])
{
    int32_t sum[3] = {MR_RESAMPLE_HALF, MR_RESAMPLE_HALF, MR_RESAMPLE_HALF};
    for (int32_t y = 0; y < n_down; y++, in += r->step_y) {
        const uint8_t *p = in;
        int32_t line[3] = {MR_RESAMPLE_HALF, MR_RESAMPLE_HALF, MR_RESAMPLE_HALF}, w = down[y * stride_down];
        for (int32_t x = 0; x < n_across; x++, p += r->step_x)
            for (int c = 0; c < 3; c++)
                line[c] += p[c] * across[x * stride_across];
        for (int c = 0; c < 3; c++)
            sum[c] += mr_resample_round(line[c]) * w;
    }
    for (int c = 0; c < 3; c++)
        out[c] = mr_resample_round(sum[c]);
}

MR_ELEMENT float mr_mix_two(float own, float other, float part, float rest)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(__fmul_rn(own, part), __fmul_rn(other, rest));
#else
    return own * part + other * rest;
#endif
}

/* Does element o of a row come from its partner? */
MR_ELEMENT int mr_mix_cut(const struct mr_mix_how *m, uint32_t o)
{
    uint32_t p = o / m->pixel, x = p % m->width, y = p / m->width % m->height;
    return x >= m->x0 && x < m->x1 && y >= m->y0 && y < m->y1;
}

MR_ELEMENT uint64_t mr_mix_partner(const uint32_t *partner, uint64_t row, uint64_t rows)
{
    return partner[row] < rows ? partner[row] : row;
}

/* Output rows are input rows, element by element. */
MR_ELEMENT int mr_point_is_linear(const struct mr_point_args *a)
{
    return !a->flip && a->n_dims == 1 && a->stride[0] == 1;
}

#endif
