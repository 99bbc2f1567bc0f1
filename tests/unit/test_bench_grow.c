/* White-box: when the sizes of bench batch-size end, and how large a batch memory holds. */
#include "bench/batch_grow.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void growing_rates_are_not_flat(void **state)
{
    (void)state;
    double rates[12] = {100};
    for (int n = 1; n < 12; n++) {
        assert_false(batch_is_flat(rates, n));
        rates[n] = 1.06 * rates[n - 1];
    }
    for (int n = 2; n < 12; n++) { /* one size that brings nothing is chance, if the next does */
        double dip[12] = {100, 50, 200, 150, 400, 300, 800, 600, 1600, 1000, 3200, 2400};
        assert_false(batch_is_flat(dip, n));
    }
}

static void two_in_a_row_are_flat(void **state)
{
    (void)state;
    const double level[] = {10, 20, 40, 41, 41.5}, falls[] = {10, 20, 40, 30, 20};
    assert_true(batch_is_flat(level, 5) && batch_is_flat(falls, 5));
    assert_false(batch_is_flat(level, 4) || batch_is_flat(falls, 4));
    const double creeps[] = {100, 104, 108}; /* each by less than 5% */
    assert_true(batch_is_flat(creeps, 3));
}

/* Whatever a net and a sample take, the size found fills nine tenths of what is free. */
static void largest_fills_the_memory(void **state)
{
    (void)state;
    const uint64_t size[] = {16, 32, 64, 128};
    const double nets[] = {0, 1e6, 1e7, 2e8}, samples[] = {10, 300, 4000, 1e5};
    for (int k = 0; k < 16; k++) {
        double need[4], per_sample, free_bytes = 4e9, net = nets[k / 4], each = samples[k % 4];
        for (int i = 0; i < 4; i++)
            need[i] = net + each * (double)size[i];
        double most = batch_largest(size, need, 3, free_bytes, &per_sample);
        assert_true(per_sample > 0.99 * each && per_sample < 1.01 * each);
        assert_true((net + most * each) / free_bytes > 0.899);
        assert_true((net + most * each) / free_bytes < 0.901);
        assert_int_equal(batch_fits(size, need, 3, free_bytes), most >= 128);
    }
}

static void unknown_memory_stops_nothing(void **state)
{
    (void)state;
    const uint64_t size[] = {16, 32, 64};
    const double need[] = {100, 100, 100}, grows[] = {100, 200, 0};
    double per_sample;
    assert_true(batch_largest(size, need, 2, 1e9, &per_sample) == 0); /* no growth is known */
    assert_true(batch_largest(size, grows, 2, 0, &per_sample) == 0);
    assert_true(batch_largest(size, grows, 1, 1e9, &per_sample) == 0);
    assert_true(batch_fits(size, need, 2, 1e9) && batch_fits(size, grows, 2, 0));
    assert_false(batch_fits(size, grows, 2, 300)); /* 64 take 400 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_rates_are_not_flat),
        cmocka_unit_test(two_in_a_row_are_flat),
        cmocka_unit_test(largest_fills_the_memory),
        cmocka_unit_test(unknown_memory_stops_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
