/*
 * Counter-based random numbers and the keyed permutation.
 *
 * Cycle walking: Black and Rogaway: Ciphers with arbitrary finite domains (CT-RSA 2002), method 2.
 */
#include "base/base.h"
#include "base/philox.h"

void mr_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    if (!counter || !key || !out)
        return;
    mr_philox_4x32(counter, key, out);
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

/* The key has 64 bits and the counter 128: seed and purpose form the key, the rest the counter. The
 * high words of a and b are combined with c, so that none is lost for indices and epochs below
 * 2^48. */
void mr_draw4(uint64_t seed, enum mr_draw purpose, uint64_t a, uint64_t b, uint32_t c,
              uint32_t out[4])
{
    uint64_t k = mr_mix64(seed + 0x9E3779B97F4A7C15ull * (uint64_t)purpose);
    uint32_t key[2] = {(uint32_t)k, (uint32_t)(k >> 32)};
    uint32_t counter[4] = {(uint32_t)a, (uint32_t)b,
                           (uint32_t)(a >> 32) ^ (uint32_t)(b >> 32) << 16, c};
    mr_philox(counter, key, out);
}

/*
 * The permutation's parameters for one (n, seed, epoch). They are cached in thread-local memory and
 * computed again when one of the three changes, so that consecutive calls cost only the rounds.
 *
 * n <= SMALL: the order itself, drawn by Fisher and Yates' shuffle; a network over so few elements
 * would not reach all orders equally often.
 *
 * Above, a Feistel network over pairs (left, right) of [0, a) x [0, 2^k), with a = ceil(n / 2^k)
 * and 2^k near the square root of n: fewer than 2^k elements are outside [0, n), so a second walk
 * is rarely needed. 10 rounds with independent keys; 4 make a strong pseudorandom permutation of
 * random round functions (Luby and Rackoff, SIAM J. Comput. 17(2)), but halves of a few bits need
 * more before tests see no difference.
 */
#define SMALL  64
#define ROUNDS 10

struct permutation {
    uint64_t n, seed, epoch; /* n 0: empty */
    uint64_t a;
    unsigned k;
    uint64_t key[ROUNDS];
    uint8_t order[SMALL];
};

static _Thread_local struct permutation current;

static void set_permutation(struct permutation *p, uint64_t n, uint64_t seed, uint64_t epoch)
{
    *p = (struct permutation){.n = n, .seed = seed, .epoch = epoch};
    uint64_t base =
        mr_mix64(mr_mix64(seed ^ 0x6d696c6c72616365ull) + epoch * 0xD1B54A32D192ED03ull);
    for (unsigned i = 0; n <= SMALL && i < n; i++) {
        uint64_t draw = mr_mix64(base + i * 0x9E3779B97F4A7C15ull);
        unsigned j = (unsigned)((unsigned __int128)draw * (i + 1) >> 64);
        p->order[i] = p->order[j];
        p->order[j] = (uint8_t)i;
    }
    unsigned bits = n > 1 ? 64 - (unsigned)__builtin_clzll(n - 1) : 0;
    p->k = bits / 2;
    p->a = ((n - 1) >> p->k) + 1;
    for (unsigned i = 0; i < ROUNDS; i++)
        p->key[i] = mr_mix64(base + i * 0x9E3779B97F4A7C15ull);
}

/* half: up to 32 bits, <= 2^32; key: of this round. The upper bits of the result are mixed best. */
static inline uint64_t feistel_round(uint64_t half, uint64_t key)
{
    uint64_t t = (half + key) * 0xbf58476d1ce4e5b9ull;
    t = (t ^ t >> 32) * 0x94d049bb133111ebull;
    return t >> 32;
}

uint64_t mr_permute(uint64_t position, uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct permutation *p = &current;
    if (n < 2)
        return 0;
    if (p->n != n || p->seed != seed || p->epoch != epoch)
        set_permutation(p, n, seed, epoch);
    if (n <= SMALL)
        return p->order[position];
    uint64_t a = p->a, x = position;
    unsigned k = p->k;
    do {
        uint64_t left = x >> k, right = x & ((1ull << k) - 1);
        for (unsigned i = 0; i < ROUNDS; i += 2) {
            left += feistel_round(right, p->key[i]) * a >> 32;
            left -= left >= a ? a : 0;
            right ^= feistel_round(left, p->key[i + 1]) >> (32 - k);
        }
        x = left << k | right;
    } while (x >= n);
    return x;
}
