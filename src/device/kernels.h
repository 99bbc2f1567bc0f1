/*
 * Kernels that finish a batch on the device, launched by name: their arguments, and the arithmetic of one element, which the
 * C implementation (kernels.c: cpu, sim) and the CUDA one (kernels/batch.cu) both compile. So they are bit-equal.
 *
 * A pair (a, m) stands for y = (x + a) * m, two rounded operations, never contracted.
 */
#ifndef MR_DEVICE_KERNELS_H
#define MR_DEVICE_KERNELS_H

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

#define MR_KERNEL_ARGS   1024 /* bytes at most */
#define MR_KERNEL_RANGES 4    /* parts of memory at most: in and out, then what may be NULL */

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
};

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
