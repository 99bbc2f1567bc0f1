/*
 * White-box. Philox against Random123's published vectors, and the keyed permutation: a bijection
 * for every n, and uniform.
 *
 * Statistics: each check is a chi-square statistic turned into a normal deviate by the
 * Wilson-Hilferty transformation. Seeds are fixed, so that the outcome never changes. A check fails
 * beyond 4.5 deviates (two-sided significance 7e-6): the checks here are a few hundred, so a sound
 * permutation fails any of them with a probability below 0.3%.
 */
#include "base/base.h"
#include "unit.h"

#include <math.h>

#define LIMIT  4.5
#define PINNED 0x806432b1e98387c5ull

static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        uint32_t out[4];
        mr_philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

static void draws_differ_in_every_argument(void **state)
{
    (void)state;
    uint32_t base[4], other[4];
    mr_draw4(7, MR_DRAW_TRANSFORM, 11, 13, 17, base);
    mr_draw4(7, MR_DRAW_TRANSFORM, 11, 13, 17, other);
    assert_memory_equal(base, other, sizeof base);
    for (int bit = 0; bit < 48; bit++) {
        uint64_t flip = 1ull << bit;
        mr_draw4(7 ^ flip, MR_DRAW_TRANSFORM, 11, 13, 17, other);
        assert_memory_not_equal(base, other, sizeof base);
        mr_draw4(7, MR_DRAW_TRANSFORM, 11 ^ flip, 13, 17, other);
        assert_memory_not_equal(base, other, sizeof base);
        mr_draw4(7, MR_DRAW_TRANSFORM, 11, 13 ^ flip, 17, other);
        assert_memory_not_equal(base, other, sizeof base);
    }
    mr_draw4(7, MR_DRAW_VALUES, 11, 13, 17, other);
    assert_memory_not_equal(base, other, sizeof base);
    mr_draw4(7, MR_DRAW_TRANSFORM, 11, 13, 18, other);
    assert_memory_not_equal(base, other, sizeof base);
}

static void units_stay_below_one(void **state)
{
    (void)state;
    assert_true(mr_unit_f32(0) == 0 && mr_unit_f32(UINT32_MAX) < 1);
    assert_true(mr_unit_f64(0, 0) == 0 && mr_unit_f64(UINT32_MAX, UINT32_MAX) < 1);
}

static void check_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
    unsigned char *seen = calloc(1, n);
    assert_non_null(seen);
    for (uint64_t p = 0; p < n; p++) {
        uint64_t i = mr_permute(p, n, seed, epoch);
        if (i >= n || seen[i])
            fail_msg("n %llu, seed %llu, epoch %llu: position %llu gives %llu %s",
                     (unsigned long long)n, (unsigned long long)seed, (unsigned long long)epoch,
                     (unsigned long long)p, (unsigned long long)i,
                     i >= n ? "out of range" : "again");
        seen[i] = 1;
    }
    free(seen);
}

static void every_small_n_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {0, 1, 42, UINT64_MAX};
    for (uint64_t n = 1; n <= 700; n++)
        for (size_t s = 0; s < MR_COUNT(seeds); s++)
            for (uint64_t epoch = 0; epoch < 3; epoch++)
                check_bijection(n, seeds[s], epoch);
}

static void larger_n_are_bijections(void **state)
{
    (void)state;
    for (unsigned bits = 10; bits <= 20; bits++)
        for (int d = -1; d <= 1; d++)
            check_bijection((1ull << bits) + (uint64_t)(int64_t)d, bits, 5);
    static const uint64_t some[] = {1000, 9973, 60000, 50000, 65521, 99991, 1000003, 1281167};
    for (size_t i = 0; i < MR_COUNT(some); i++)
        check_bijection(some[i], 99, i);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Distinct positions give distinct indices below n: the first ones, the last ones and scattered
 * ones. */
static void huge_n_are_injective(void **state)
{
    (void)state;
    enum { THIRD = 60000 };
    static const uint64_t sizes[] = {
        1000000000,       (1ull << 32) - 1,       1ull << 32,       (1ull << 32) + 1, 1ull << 40,
        (1ull << 40) + 1, 1000000000000000003ull, (1ull << 63) - 1, 1ull << 63};
    uint64_t *got = malloc(3 * THIRD * sizeof *got);
    assert_non_null(got);
    for (size_t s = 0; s < MR_COUNT(sizes); s++) {
        uint64_t n = sizes[s];
        for (uint64_t k = 0; k < THIRD; k++) {
            got[3 * k] = mr_permute(k, n, 3, s);
            got[3 * k + 1] = mr_permute(n - 1 - k, n, 3, s);
            got[3 * k + 2] = mr_permute(n / 4 + k * (n / 4 / THIRD), n, 3, s);
        }
        qsort(got, 3 * THIRD, sizeof *got, compare);
        assert_true(got[3 * THIRD - 1] < n);
        for (size_t k = 1; k < 3 * THIRD; k++)
            assert_true(got[k] != got[k - 1]);
    }
    free(got);
}

/* How far the counts are from `expected` each, in standard deviations (Wilson and Hilferty
 * 1931). */
static double deviate(const uint32_t *count, size_t cells, double expected)
{
    double chi2 = 0, k = (double)cells - 1;
    for (size_t i = 0; i < cells; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    return (cbrt(chi2 / k) - (1 - 2 / (9 * k))) / sqrt(2 / (9 * k));
}

static void check(const char *what, uint64_t n, double z)
{
    if (getenv("MR_TEST_VERBOSE"))
        printf("%-28s n %-10llu z %+.2f\n", what, (unsigned long long)n, z);
    if (!(fabs(z) < LIMIT))
        fail_msg("%s, n %llu: %.2f standard deviations off", what, (unsigned long long)n, z);
}

static const uint64_t sizes[] = {3,  4,  5,  7,  8,  9,   13,  16,  17,  31,
                                 32, 33, 50, 64, 65, 100, 127, 128, 200, 257};

/* Where a fixed position goes, over many seeds, then over many epochs: each index as often. */
static void positions_are_uniform(void **state)
{
    (void)state;
    enum { EACH = 500 };
    static uint32_t count[2][257];
    for (size_t s = 0; s < MR_COUNT(sizes); s++) {
        uint64_t n = sizes[s];
        uint64_t at[] = {0, 1, n / 2, n - 1};
        for (size_t a = 0; a < MR_COUNT(at); a++) {
            memset(count, 0, sizeof count);
            for (uint64_t k = 0; k < EACH * n; k++) {
                count[0][mr_permute(at[a], n, k, 0)]++;
                count[1][mr_permute(at[a], n, 12345, k)]++;
            }
            check("position over seeds", n, deviate(count[0], n, EACH));
            check("position over epochs", n, deviate(count[1], n, EACH));
        }
    }
}

/* pi(p+1) - pi(p) mod n: each of 1..n-1 as often. One pair an order, so that the draws are
 * independent. */
static void neighbours_are_uniform(void **state)
{
    (void)state;
    enum { EACH = 500 };
    static uint32_t count[257];
    for (size_t s = 0; s < MR_COUNT(sizes); s++) {
        uint64_t n = sizes[s];
        memset(count, 0, sizeof count);
        for (uint64_t k = 0; k < EACH * (n - 1); k++) {
            uint64_t p = k % (n - 1);
            count[(mr_permute(p + 1, n, k, 1) + n - mr_permute(p, n, k, 1)) % n]++;
        }
        assert_int_equal(count[0], 0);
        check("neighbours' difference", n, deviate(count + 1, n - 1, EACH));
    }
}

/* (pi(p), pi(q)) and, for few elements, (pi(p), pi(q), pi(r)): each pair and triple of indices as
 * often. */
static void pairs_and_triples_are_uniform(void **state)
{
    (void)state;
    enum { EACH = 80 };
    static const uint64_t few[] = {6, 8, 12, 17, 33, 64, 65, 66, 72, 80, 127, 128, 129};
    static uint32_t count[129 * 129 + 12 * 12 * 12], packed[129 * 129];
    for (size_t s = 0; s < MR_COUNT(few); s++) {
        uint64_t n = few[s], pairs = n * (n - 1), triples = pairs * (n - 2);
        for (uint64_t gap = 1; gap <= n / 2; gap = gap * 4 + (n & 1)) {
            size_t cells = 0;
            memset(count, 0, sizeof count);
            for (uint64_t k = 0; k < EACH * pairs; k++)
                count[mr_permute(1, n, k, gap) * n + mr_permute(1 + gap, n, k, gap)]++;
            for (size_t i = 0; i < n * n; i++)
                if (count[i])
                    packed[cells++] = count[i];
            assert_int_equal(cells, pairs);
            check("pairs", n, deviate(packed, cells, EACH));
        }
        if (n > 12)
            continue;
        size_t cells = 0;
        memset(count, 0, sizeof count);
        for (uint64_t k = 0; k < EACH * triples; k++)
            count[(mr_permute(0, n, k, 9) * n + mr_permute(1, n, k, 9)) * n +
                  mr_permute(n - 1, n, k, 9)]++;
        for (size_t i = 0; i < n * n * n; i++)
            if (count[i])
                packed[cells++] = count[i];
        assert_int_equal(cells, triples);
        check("triples", n, deviate(packed, cells, EACH));
    }
}

/* All n! orders of few elements are as often. */
static void small_orders_are_uniform(void **state)
{
    (void)state;
    enum { EACH = 400 };
    static uint32_t count[5 * 5 * 5 * 5 * 5];
    for (uint64_t n = 3; n <= 5; n++) {
        uint32_t orders = n == 3 ? 6 : n == 4 ? 24 : 120, found = 0;
        memset(count, 0, sizeof count);
        for (uint64_t seed = 0; seed < (uint64_t)EACH * orders; seed++) {
            uint32_t code = 0;
            for (uint64_t p = 0; p < n; p++)
                code = code * 5 + (uint32_t)mr_permute(p, n, seed, 2);
            count[code]++;
        }
        for (size_t i = 0; i < MR_COUNT(count); i++)
            if (count[i])
                count[found++] = count[i];
        assert_int_equal(found, orders);
        check("whole orders", n, deviate(count, orders, EACH));
    }
}

/* A large order in 256 cells by (where from, where to): no coarse structure. Within one order. */
static void large_orders_are_mixed(void **state)
{
    (void)state;
    static uint32_t count[256];
    static const uint64_t large[] = {60000, 65536, 65537, 1000000, 1 << 20};
    for (size_t s = 0; s < MR_COUNT(large); s++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            uint64_t n = large[s], step[2] = {0};
            memset(count, 0, sizeof count);
            for (uint64_t p = 0; p < n; p++)
                count[p * 16 / n * 16 + mr_permute(p, n, seed, 0) * 16 / n]++;
            check("from-to cells", n, deviate(count, 256, (double)n / 256));
            /* ascents: mean (n-1)/2, variance (n+1)/12 */
            for (uint64_t p = 1; p < n; p++)
                step[mr_permute(p, n, seed, 0) > mr_permute(p - 1, n, seed, 0)]++;
            check("ascents", n,
                  ((double)step[1] - ((double)n - 1) / 2) / sqrt(((double)n + 1) / 12));
        }
}

/* Two orders agree at one position on average, and nearly Poisson, whether seeds or epochs differ;
 * seeds and epochs that differ in single bits or in swapped roles included. */
static void orders_are_unrelated(void **state)
{
    (void)state;
    static const uint64_t pairs[][4] = {/* seed, epoch; seed, epoch */
                                        {1, 0, 2, 0},
                                        {1, 0, 1, 1},
                                        {5, 7, 7, 5},
                                        {0, 0, 1ull << 63, 0},
                                        {0, 1, 1, 0}};
    enum { ROUNDS = 2000 };
    for (size_t k = 0; k < MR_COUNT(pairs); k++)
        for (uint64_t n = 100; n <= 129; n += 28) {
            uint64_t same = 0, fixed = 0;
            for (uint64_t r = 0; r < ROUNDS; r++)
                for (uint64_t p = 0; p < n; p++) {
                    uint64_t i = mr_permute(p, n, pairs[k][0] + r * 1000, pairs[k][1]);
                    same += i == mr_permute(p, n, pairs[k][2] + r * 1000, pairs[k][3]);
                    fixed += i == p;
                }
            check("agreement of two orders", n, ((double)same - ROUNDS) / sqrt(ROUNDS));
            check("fixed points", n, ((double)fixed - ROUNDS) / sqrt(ROUNDS));
        }
}

static void equal_keys_give_equal_orders(void **state)
{
    (void)state;
    /* pinned: saved states and recorded digests rely on the order never changing */
    uint64_t h = MR_HASH_START;
    for (uint64_t n = 1; n < 2000; n += 37)
        for (uint64_t p = 0; p < n; p++) {
            uint64_t i = mr_permute(p, n, 42, n);
            h = mr_hash(h, &i, sizeof i);
        }
    if (h != PINNED)
        fail_msg("orders hash to 0x%llx", (unsigned long long)h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(draws_differ_in_every_argument),
        cmocka_unit_test(units_stay_below_one),
        cmocka_unit_test(every_small_n_is_a_bijection),
        cmocka_unit_test(larger_n_are_bijections),
        cmocka_unit_test(huge_n_are_injective),
        cmocka_unit_test(positions_are_uniform),
        cmocka_unit_test(neighbours_are_uniform),
        cmocka_unit_test(pairs_and_triples_are_uniform),
        cmocka_unit_test(small_orders_are_uniform),
        cmocka_unit_test(large_orders_are_mixed),
        cmocka_unit_test(orders_are_unrelated),
        cmocka_unit_test(equal_keys_give_equal_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
