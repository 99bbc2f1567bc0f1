/*
 * Dropout's draws: Philox, keyed by seed and layer, counted by step and element, so that the
 * backward pass draws again what the forward pass drew and nothing is stored. Compiled for the host
 * and for GPUs: both drop the same elements.
 */
#ifndef MR_KERNELS_NN_DRAW_H
#define MR_KERNELS_NN_DRAW_H

#include "base/philox.h"
#ifndef __CUDACC__
#include "base/base.h"
#endif

/* Four draws: those of elements 4 * quad to 4 * quad + 3. */
MR_HOST_DEVICE void mr_nn_draw(uint64_t key, uint64_t step, uint64_t quad, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)quad, (uint32_t)(quad >> 32), (uint32_t)step,
                                 (uint32_t)(step >> 32)};
    const uint32_t keys[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    mr_philox_4x32(counter, keys, out);
}

#ifndef __CUDACC__
/* The key of a layer's draws. */
static inline uint64_t mr_nn_draw_key(uint64_t seed, uint32_t layer)
{
    return mr_mix64(seed + 0x9E3779B97F4A7C15ull * (layer + 1ull));
}
#endif

/* Whether a draw keeps its element, dropped with probability p: p's threshold in 1 / 2^32. */
MR_HOST_DEVICE uint32_t mr_nn_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

#endif
