/*
 * Counter-based random numbers and the keyed permutation.
 *
 * Philox-4x32-10: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
 * Cycle walking: Black and Rogaway: Ciphers with arbitrary finite domains (CT-RSA 2002), method 2.
 */
#include "base/base.h"

void mr_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
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

uint64_t mr_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t mr_hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

/* The key is 64 bits and the counter 128: seed and purpose make the key, the rest the counter; a's and b's high words are
 * folded in with c so that none is lost for indices and epochs below 2^48. */
void mr_draw4(uint64_t seed, enum mr_draw purpose, uint64_t a, uint64_t b, uint32_t c, uint32_t out[4])
{
    uint64_t k = mr_mix64(seed + 0x9E3779B97F4A7C15ull * (uint64_t)purpose);
    uint32_t key[2] = {(uint32_t)k, (uint32_t)(k >> 32)};
    uint32_t counter[4] = {(uint32_t)a, (uint32_t)b, (uint32_t)(a >> 32) ^ (uint32_t)(b >> 32) << 16, c};
    mr_philox(counter, key, out);
}

/* The round function: a 32-bit half mixed with a 64-bit round key. */
static uint32_t feistel_round(uint32_t half, uint64_t key)
{
    return (uint32_t)(mr_mix64(key ^ (uint64_t)half * 0x9E3779B97F4A7C15ull) >> 16);
}

/*
 * A Feistel network over [0, 2^bits) with halves of bits/2 (rounded both ways when odd: an unbalanced network whose halves
 * swap widths each round), so that less than half of the domain is walked over. 6 rounds with independent keys: more than
 * the 4 that make a strong pseudorandom permutation of a random round function (Luby and Rackoff, SIAM J. Comput. 17(2)).
 */
#define FEISTEL_ROUNDS 6

uint64_t mr_permute(uint64_t position, uint64_t n, uint64_t seed, uint64_t epoch)
{
    if (n < 2)
        return 0;
    unsigned bits = 64 - (unsigned)__builtin_clzll(n - 1);
    unsigned left_bits = bits / 2, right_bits = bits - left_bits;
    uint64_t base = mr_mix64(mr_mix64(seed ^ 0x6d696c6c72616365ull) + epoch * 0xD1B54A32D192ED03ull);
    uint64_t key[FEISTEL_ROUNDS];
    for (unsigned round = 0; round < FEISTEL_ROUNDS; round++)
        key[round] = mr_mix64(base + round * 0x9E3779B97F4A7C15ull);
    uint64_t x = position;
    do {
        unsigned lb = left_bits, rb = right_bits;
        uint64_t left = x >> rb, right = x & ((1ull << rb) - 1);
        for (unsigned round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t f = feistel_round((uint32_t)right, key[round]);
            uint64_t next = (left ^ f) & ((1ull << lb) - 1);
            left = right; /* the halves swap, and their widths with them */
            right = next;
            unsigned t = lb;
            lb = rb;
            rb = t;
        }
        x = left << rb | right;
    } while (x >= n);
    return x;
}
