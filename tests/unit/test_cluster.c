/* The limits of the model of many ranks: what it must say without simulating. */
#include "unit.h"

#include <math.h>
#include <millrace/cluster.h>

static struct mr_cluster_step predict(const struct mr_cluster_opts *o)
{
    struct mr_cluster_step s = {.size = sizeof s};
    assert_int_equal(mr_cluster_predict(o, &s), 0);
    double parts = s.compute_ns + s.data_ns + s.spread_ns + s.sum_ns;
    assert_true(fabs(parts - s.step_ns) <= 1e-6 * s.step_ns);
    assert_true(s.data_ns >= 0 && s.sum_ns >= 0);
    return s;
}

static struct mr_cluster_opts some(uint32_t ranks)
{
    struct mr_cluster_opts o;
    mr_cluster_opts_init(&o);
    o.ranks = ranks;
    o.step_ns = 10e6;
    o.make_ns = 8e6;
    o.steps = 400;
    return o;
}

static void near(double x, double y, double part)
{
    if (!(fabs(x - y) <= part * y))
        fail_msg("%g is not within %g of %g", x, part, y);
}

/* One rank is what was measured: the longer of computing and making. */
static void test_one_rank(void **state)
{
    (void)state;
    struct mr_cluster_opts o = some(1);
    o.grad_bytes = 1e8;
    o.node_alpha_ns = 1e6;
    struct mr_cluster_step s = predict(&o);
    near(s.step_ns, 10e6, 1e-9);
    near(s.efficiency, 1, 1e-9);
    assert_true(s.sum_ns == 0 && s.whole_sum_ns == 0);
    o.make_ns = 25e6;
    s = predict(&o);
    near(s.step_ns, 25e6, 1e-9);
    near(s.data_ns, 15e6, 1e-9);
    o.make_sigma = 0.5;
    o.steps = 20000;
    near(predict(&o).step_ns, 25e6, 0.03);
}

static void test_no_spread_no_loss(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4096; n *= 8) {
        struct mr_cluster_opts o = some(n);
        near(predict(&o).efficiency, 1, 1e-9);
    }
}

/* What one rank draws may have a mean below what it is drawn around. */
static void test_spread_of_one(void **state)
{
    (void)state;
    bool any = false;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct mr_cluster_opts o = some(1);
        o.step_sigma = 0.1;
        o.seed = seed;
        struct mr_cluster_step s = predict(&o);
        assert_true(s.spread_ns >= 0 && s.step_ns >= s.compute_ns);
        any |= s.spread_ns > 0;
        near(s.efficiency, 1, 1e-9);
    }
    assert_true(any);
}

/* The slowest of more ranks is slower; more slots help; never faster than one rank. */
static void test_spread(void **state)
{
    (void)state;
    double before = 1;
    for (uint32_t n = 1; n <= 512; n *= 8) {
        struct mr_cluster_opts o = some(n);
        o.make_sigma = 0.5;
        o.prefetch = 2;
        double few = predict(&o).step_ns;
        o.prefetch = 16;
        double many = predict(&o).step_ns;
        assert_true(many <= few * 1.001 && few >= before && many >= 10e6 * (1 - 1e-9));
        before = few;
        o.step_sigma = 0.2;
        assert_true(n == 1 || predict(&o).spread_ns > 0.1e6);
    }
    /* late.py's table in the notes, whose slots are free one step earlier: 512 ranks, 16 slots */
    struct mr_cluster_opts o = some(512);
    o.make_sigma = 0.5;
    o.prefetch = 17;
    near(predict(&o).efficiency, 0.993, 0.02);
}

static void test_store_is_a_cap(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 64; n *= 4) {
        struct mr_cluster_opts o = some(n);
        o.batch_bytes = 1e6;
        o.store_bytes_per_s = 1e6 * n / 20e-3; /* 20 ms for what a step reads */
        struct mr_cluster_step s = predict(&o);
        near(s.step_ns, 20e6, 1e-3);
        near(s.store_bytes_per_s, o.store_bytes_per_s, 1e-3);
        near(s.efficiency, 0.5, 1e-3); /* alone it has a store of its own */
        o.store_bytes_per_s *= 3;
        near(predict(&o).step_ns, 10e6, 1e-9);
    }
    /* With a fifth to spare it holds nobody up, though some ask late and others ahead. */
    struct mr_cluster_opts o = some(1024);
    o.make_sigma = 0.5;
    o.prefetch = 8;
    const double without = predict(&o).step_ns;
    o.batch_bytes = 1e6;
    o.store_bytes_per_s = 1.2 * 1e6 * 1024 / 10e-3;
    near(predict(&o).step_ns, without, 0.03);
}

static void test_sums(void **state)
{
    (void)state;
    struct mr_cluster_opts o = some(16);
    o.make_ns = 0;
    o.grad_bytes = 100e6;
    o.bucket_bytes = 1e18;
    o.backward_share = 0;
    o.node_bytes_per_s = 100e9;
    o.net_bytes_per_s = 50e9;
    o.node_alpha_ns = 10e3;
    o.net_alpha_ns = 30e3;
    const double two_nodes = 10e3 + 30e3 + 100e6 * 2 * 15 / 16 / 50;
    struct mr_cluster_step s = predict(&o);
    near(s.sum_ns, two_nodes, 1e-9);
    near(s.step_ns, 10e6 + two_nodes, 1e-9);
    o.per_node = 16;
    near(predict(&o).sum_ns, 10e3 + 100e6 * 2 * 15 / 16 / 100, 1e-9);
    /* All but the last bucket's sum is hidden where there is time for it. */
    o.per_node = 8;
    o.backward_share = 0.8;
    o.bucket_bytes = 10e6;
    near(predict(&o).sum_ns, 40e3 + 10e6 * 2 * 15 / 16 / 50, 1e-9);
    o.net_bytes_per_s = 1e9; /* and where there is not, what exceeds it is not */
    s = predict(&o);
    near(s.sum_ns, s.whole_sum_ns - 0.9 * 8e6, 1e-9);
}

static void test_misuse(void **state)
{
    (void)state;
    struct mr_cluster_step s = {.size = sizeof s};
    struct mr_cluster_opts o = some(2);
    assert_int_equal(mr_cluster_predict(&o, NULL), MR_EMISUSE);
    assert_int_equal(mr_cluster_predict(NULL, &s), MR_EMISUSE);
    o.ranks = 0;
    assert_int_equal(mr_cluster_predict(&o, &s), MR_EOPTION);
    o = some(2);
    o.make_sigma = NAN;
    assert_int_equal(mr_cluster_predict(&o, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "make_sigma"));
    o = some(2);
    o.step_ns = o.make_ns = 0;
    assert_int_equal(mr_cluster_predict(&o, &s), 0);
    assert_true(s.step_ns == 0 && s.efficiency == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),       cmocka_unit_test(test_no_spread_no_loss),
        cmocka_unit_test(test_spread),         cmocka_unit_test(test_spread_of_one),
        cmocka_unit_test(test_store_is_a_cap), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
