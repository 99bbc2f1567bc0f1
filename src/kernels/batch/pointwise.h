/*
 * "pointwise" and "pointwise_mix": the end of a chain that casts, scales, normalizes and reorders
 * elements, and the mixing of rows with each other.
 *
 * A pair (a, m) stands for y = (x + a) * m, two rounded operations, never contracted.
 */
#ifndef MR_KERNELS_BATCH_POINTWISE_H
#define MR_KERNELS_BATCH_POINTWISE_H

#include "kernels/half.h"
#include "kernels/kernels.h"
#include <millrace/tensor.h>

#define MR_POINT_DIMS  5
#define MR_POINT_PAIRS 64 /* of all channels together */

/*
 * "pointwise": rows of `elements` each. Output element o of a row is computed from the input
 * element that dim, stride and flips say, in f32, by the pairs of o's channel, (o / channel_inner)
 * % channels.
 */
struct mr_point_args {
    const void *in;
    void *out;
    const uint8_t *flip; /* a byte a row: is dimension flip_dim mirrored? NULL: nowhere */
    uint64_t rows;
    uint32_t elements;
    int32_t from, to; /* enum mr_dtype: bool, u8, i8, u16 or i16; f32, f16 or bf16 */
    uint32_t n_dims;  /* of the output */
    uint32_t dim[MR_POINT_DIMS], stride[MR_POINT_DIMS]; /* stride: in elements of the input row */
    int32_t flip_dim;
    uint32_t n_pairs, channels, channel_inner;
    float pair[MR_POINT_PAIRS][2]; /* [channel][pair] */
};

/*
 * How rows of a batch are mixed with each other: row r with row partner[r], which is below `rows`,
 * else with itself. A value and the partner's become value * part + the partner's * rest, each
 * product and the sum rounded; or, with cuts, elements in a rectangle are the partner's. The
 * rectangle: element o of a row belongs to pixel o / pixel of pictures of height x width pixels.
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

MR_HOST_DEVICE float mr_point_pair(float x, const float pair[2])
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(__fadd_rn(x, pair[0]), pair[1]);
#else
    return (x + pair[0]) * pair[1];
#endif
}

MR_HOST_DEVICE float mr_point_compute(const struct mr_point_args *a, uint32_t o, float x)
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
MR_HOST_DEVICE uint32_t mr_point_source(const struct mr_point_args *a, uint32_t o, int flipped)
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

/* Output rows are input rows, element by element. */
MR_HOST_DEVICE int mr_point_is_linear(const struct mr_point_args *a)
{
    return !a->flip && a->n_dims == 1 && a->stride[0] == 1;
}

MR_HOST_DEVICE float mr_mix_two(float own, float other, float part, float rest)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(__fmul_rn(own, part), __fmul_rn(other, rest));
#else
    return own * part + other * rest;
#endif
}

/* Does element o of a row come from its partner? */
MR_HOST_DEVICE int mr_mix_cut(const struct mr_mix_how *m, uint32_t o)
{
    uint32_t p = o / m->pixel, x = p % m->width, y = p / m->width % m->height;
    return x >= m->x0 && x < m->x1 && y >= m->y0 && y < m->y1;
}

MR_HOST_DEVICE uint64_t mr_mix_partner(const uint32_t *partner, uint64_t row, uint64_t rows)
{
    return partner[row] < rows ? partner[row] : row;
}

const char *mr_batch_point_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES]);
void mr_batch_point_run(const void *args);
void mr_batch_point_grid(void *args, unsigned grid[2]);
const char *mr_batch_point_mix_check(const void *args,
                                     struct mr_kernel_range out[MR_KERNEL_RANGES]);
void mr_batch_point_mix_run(const void *args);
void mr_batch_point_mix_grid(void *args, unsigned grid[2]);

#endif
