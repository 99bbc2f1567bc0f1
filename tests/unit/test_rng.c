/* Streams of keyed random numbers: the same for the same key only, of the right distribution. */
#include "unit.h"

#include <math.h>
#include <millrace/random.h>

static void equal_keys_give_equal_streams(void **state)
{
    (void)state;
    struct mr_rng a, b;
    for (uint32_t i = 0; i < 200; i++) {
        uint64_t key[4];
        for (uint32_t k = 0; k < 4; k++)
            key[k] = test_u64(4 * i + k) >> (i % 64);
        mr_rng_init(&a, key[0], key[1], key[2], key[3]);
        mr_rng_init(&b, key[0], key[1], key[2], key[3]);
        uint32_t odd[5];
        for (uint32_t k = 0; k < 5; k++)
            odd[k] = mr_rng_u32(&a);
        for (uint32_t k = 0; k < 5; k++)
            assert_int_equal(mr_rng_u32(&b), odd[k]);
        b = a; /* a copy goes on like the original */
        assert_true(mr_rng_u64(&a) == mr_rng_u64(&b));
        assert_true(mr_rng_normal(&a) == mr_rng_normal(&b));
        assert_true(mr_rng_uniform(&a) == mr_rng_uniform(&b));
    }
}

/* Any bit of any part of the key makes another stream. */
static void every_part_of_the_key_counts(void **state)
{
    (void)state;
    static uint64_t seen[4 * 64 + 1];
    size_t n = 0;
    struct mr_rng rng;
    mr_rng_init(&rng, 0, 0, 0, 0);
    seen[n++] = mr_rng_u64(&rng);
    for (uint32_t part = 0; part < 4; part++)
        for (uint32_t bit = 0; bit < 64; bit++) {
            uint64_t key[4] = {0};
            key[part] = 1ull << bit;
            mr_rng_init(&rng, key[0], key[1], key[2], key[3]);
            seen[n++] = mr_rng_u64(&rng);
        }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    const uint32_t random[4] = {1, 2, 3, 4};
    for (int word = 0; word < 4; word++) {
        uint32_t other[4] = {1, 2, 3, 4};
        struct mr_rng changed;
        other[word] ^= 1u << 31;
        mr_rng_init_op(&rng, random);
        mr_rng_init_op(&changed, other);
        assert_true(mr_rng_u64(&rng) != mr_rng_u64(&changed));
    }
}

/* The words are Philox's, block after block; the block's number carries into its second word. */
static void words_are_those_of_philox(void **state)
{
    (void)state;
    struct mr_rng rng;
    const uint32_t random[4] = {7, 8, 9, 10};
    mr_rng_init_op(&rng, random);
    for (uint32_t block = 0; block < 5; block++) {
        const uint32_t counter[4] = {block, 0, 9, 10}, key[2] = {7, 8};
        uint32_t out[4];
        mr_philox(counter, key, out);
        for (int w = 0; w < 4; w++)
            assert_int_equal(mr_rng_u32(&rng), out[w]);
    }
}

static void integers_are_below_and_equally_likely(void **state)
{
    (void)state;
    struct mr_rng rng;
    mr_rng_init(&rng, 1, 2, 3, 4);
    assert_int_equal(mr_rng_below(&rng, 0), 0);
    assert_int_equal(mr_rng_below(&rng, 1), 0);
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t n = 1 + (test_u64(i) >> i % 64);
        assert_true(mr_rng_below(&rng, n) < n);
    }
    enum { N = 7, DRAWS = 70000 };
    unsigned count[N] = {0};
    for (int i = 0; i < DRAWS; i++)
        count[mr_rng_below(&rng, N)]++;
    for (int k = 0; k < N; k++) /* 5 standard deviations of 92.6 */
        assert_true(fabs((double)count[k] - (double)DRAWS / N) < 463);
    /* of n = 3/4 * 2^64, one draw in four is thrown away: what is kept must stay even */
    unsigned low = 0;
    for (int i = 0; i < 10000; i++)
        low += mr_rng_below(&rng, 3ull << 62) < 3ull << 61;
    assert_true(low > 4750 && low < 5250);
}

static void doubles_have_their_moments(void **state)
{
    (void)state;
    struct mr_rng rng;
    double sum = 0, sum2 = 0, normal = 0, normal2 = 0;
    enum { DRAWS = 100000 };
    mr_rng_init(&rng, 11, 0, 0, 0);
    for (int i = 0; i < DRAWS; i++) {
        double u = mr_rng_uniform(&rng), x = mr_rng_normal(&rng);
        assert_true(u >= 0 && u < 1);
        assert_true(fabs(x) < 7);
        sum += u;
        sum2 += u * u;
        normal += x;
        normal2 += x * x;
    }
    assert_true(fabs(sum / DRAWS - 0.5) < 0.005);
    assert_true(fabs(sum2 / DRAWS - 1.0 / 3) < 0.005);
    assert_true(fabs(normal / DRAWS) < 0.016);
    assert_true(fabs(normal2 / DRAWS - 1) < 0.023);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_keys_give_equal_streams),
        cmocka_unit_test(every_part_of_the_key_counts),
        cmocka_unit_test(words_are_those_of_philox),
        cmocka_unit_test(integers_are_below_and_equally_likely),
        cmocka_unit_test(doubles_have_their_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
