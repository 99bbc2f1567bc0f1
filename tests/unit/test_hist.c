/* White-box. The histogram against a sorted array. */
#include "base/base.h"
#include "unit.h"

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Over every scale from nanoseconds to centuries, each quantile is at or above the exact one, by
 * 6.25% at most. */
static void quantiles_are_within_a_sixteenth(void **state)
{
    (void)state;
    enum { N = 5000 };
    static struct mr_hist h;
    static uint64_t values[N];
    for (unsigned shift = 0; shift < 64; shift++) {
        memset(&h, 0, sizeof h);
        for (uint32_t i = 0; i < N; i++) {
            values[i] = test_u64(shift * N + i) >> shift >> (i % 3);
            mr_hist_add(&h, values[i]);
        }
        qsort(values, N, sizeof values[0], compare);
        assert_int_equal(atomic_load(&h.n), N);
        for (int step = 0; step <= 100; step++) {
            double q = step / 100.0;
            uint64_t rank = (uint64_t)(q * N);
            rank += (double)rank < q * N;
            uint64_t exact = values[rank ? rank - 1 : 0], got = mr_hist_quantile(&h, q);
            assert_true(got >= exact);
            assert_true(got - exact <= exact / 16);
        }
        assert_true(mr_hist_quantile(&h, 1) == values[N - 1]);
    }
}

static void ends(void **state)
{
    (void)state;
    static struct mr_hist h;
    assert_int_equal(mr_hist_quantile(&h, 0.5), 0);
    mr_hist_add(&h, UINT64_MAX);
    assert_true(mr_hist_quantile(&h, 0) == UINT64_MAX);
    mr_hist_add(&h, 0);
    assert_int_equal(mr_hist_quantile(&h, 0.5), 0);
    assert_true(mr_hist_quantile(&h, 0.51) == UINT64_MAX);
}

static void *read_all_the_time(void *arg)
{
    struct mr_hist *h = arg;
    uint64_t wrong = 0;
    while (atomic_load(&h->n) < 200000) {
        uint64_t p = mr_hist_quantile(h, 0.99);
        wrong += p > 1000;
    }
    return (void *)(uintptr_t)wrong;
}

static void readers_may_look_meanwhile(void **state)
{
    (void)state;
    static struct mr_hist h;
    pthread_t reader;
    void *wrong;
    assert_int_equal(mr_thread_start(&reader, "reader", read_all_the_time, &h), 0);
    for (uint32_t i = 0; i < 200000; i++)
        mr_hist_add(&h, i % 1001);
    pthread_join(reader, &wrong);
    assert_int_equal((uintptr_t)wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_a_sixteenth),
        cmocka_unit_test(ends),
        cmocka_unit_test(readers_may_look_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
