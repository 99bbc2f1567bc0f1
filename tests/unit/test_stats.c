/* The figures that the experiments make of what they measure. */
#include "../../cli/bench/stats.c"
#include "unit.h"

/* A line is found again whatever its latency and rate, from sizes over seven decades. */
static void fit_finds_the_line(void **state)
{
    (void)state;
    const double latencies[] = {0, 1, 900, 2e4}, rates[] = {0.1, 7, 55};
    double x[13], y[13], latency = 0, rate = 0;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 3; k++) {
            for (int j = 0; j < 13; j++) {
                x[j] = 64 * pow(4, j);
                y[j] = latencies[i] + x[j] / rates[k];
            }
            assert_int_equal(stats_fit(x, y, 13, &latency, &rate), 0);
            assert_true(fabs(latency - latencies[i]) <= 1e-6 * latencies[i] + 1e-3 &&
                        fabs(rate / rates[k] - 1) < 1e-6);
        }
    }
}

static void fit_refuses(void **state)
{
    (void)state;
    double x[] = {8, 8, 8}, y[] = {1, 2, 3}, falling[] = {3, 2, 1}, up[] = {1, 100, 10000}, latency,
           rate;
    assert_int_equal(stats_fit(x, y, 1, &latency, &rate), -1);
    assert_int_equal(stats_fit(x, y, 3, &latency, &rate), -1);
    if (stats_fit(up, falling, 3, &latency, &rate) == 0)
        assert_true(latency >= 0 && rate > 0);
}

static void variation(void **state)
{
    (void)state;
    double same[] = {5, 5, 5}, two[] = {9, 11};
    assert_true(stats_variation(same, 3) == 0 && stats_variation(same, 1) == 0);
    assert_true(fabs(stats_variation(two, 2) - sqrt(2) / 10) < 1e-12);
}

/* Against counting whole numbers. */
static void unions(void **state)
{
    (void)state;
    uint32_t x = 12345;
    for (int round = 0; round < 500; round++) {
        struct stats_span span[2][6];
        int in[2][64] = {{0}}, n[2], length = 0, both = 0;
        for (int s = 0; s < 2; s++) {
            n[s] = (int)((x = x * 1664525u + 1013904223u) >> 16) % 7;
            for (int i = 0; i < n[s]; i++) {
                int from = (int)((x = x * 1664525u + 1013904223u) >> 16) % 50;
                int to = from + (int)((x = x * 1664525u + 1013904223u) >> 16) % 12;
                span[s][i] = (struct stats_span){from, to};
                for (int at = from; at < to; at++)
                    in[s][at] = 1;
            }
        }
        for (int at = 0; at < 64; at++) {
            length += in[0][at];
            both += in[0][at] && in[1][at];
        }
        struct stats_span again[6];
        for (int i = 0; i < n[0]; i++)
            again[i] = span[0][i];
        assert_true(stats_union(again, n[0]) == length);
        assert_true(stats_both(span[0], n[0], span[1], n[1]) == both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_finds_the_line),
        cmocka_unit_test(fit_refuses),
        cmocka_unit_test(variation),
        cmocka_unit_test(unions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
