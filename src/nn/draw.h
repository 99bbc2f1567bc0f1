/*
 * Dropout's draws: Philox, keyed by seed and layer, counted by step and element, so that the backward pass draws again what the
 * forward pass drew and nothing is stored. Compiled for the host and for GPUs: both drop the same elements.
 */
#ifndef MR_NN_DRAW_H
#define MR_NN_DRAW_H

#include <stdint.h>

#ifdef __CUDACC__
#define MR_NN_INLINE static __host__ __device__ inline
#else
#define MR_NN_INLINE static inline
#endif

/* Four draws: those of elements 4 * quad to 4 * quad + 3. Philox-4x32-10: Salmon et al., SC 2011. */
MR_NN_INLINE void mr_nn_draw(uint64_t key, uint64_t step, uint64_t quad, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)quad, c1 = (uint32_t)(quad >> 32), c2 = (uint32_t)step, c3 = (uint32_t)(step >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The key of a layer's draws. */
MR_NN_INLINE uint64_t mr_nn_draw_key(uint64_t seed, uint32_t layer)
{
    uint64_t x = seed + 0x9E3779B97F4A7C15ull * (layer + 1ull);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Whether a draw keeps its element, dropped with probability p: p's threshold in 1 / 2^32. */
MR_NN_INLINE uint32_t mr_nn_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

#endif
