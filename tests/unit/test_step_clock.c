/* The clock of a step on a device. White-box: the kernels, as the host runs them. */
#include "kernels/sum/sum.h"
#include "unit.h"

#include <time.h>

#define MS 1000000u

static void pass(unsigned ms)
{
    const struct timespec t = {0, ms * (long)MS};
    nanosleep(&t, NULL);
}

/* Times are at least as long as told: a busy machine makes them longer. */
static void step(struct mr_sum_run *run, bool empty, unsigned idle, unsigned passes, unsigned wait)
{
    run->step = MR_SUM_PHASE;
    uint64_t net_step;
    float sums[MR_SUM_TOTALS] = {0}, grads[2] = {1, 2}, to[2 + MR_SUM_TOTALS];
    const struct mr_sum_begin begin = {
        .run = run, .net_step = &net_step, .count = 1, .leaves = 2, .share = 1, .first = 1};
    const struct mr_sum_begin second = {
        .run = run, .net_step = &net_step, .count = 1, .leaves = 2, .leaf = 1, .share = 1};
    const struct mr_sum_stamp ready = {run, 1, MR_SUM_READY};
    const struct mr_sum_take take = {
        .to = to, .grads = grads, .run = run, .clock = &run->clock, .count = 2, .n_params = 2};
    const struct mr_sum_give give = {.from = sums, .run = run, .count = 1};
    pass(idle);
    if (!empty)
        mr_sum_begin_at(&begin, 0);
    pass(passes);
    if (!empty)
        mr_sum_begin_at(&second, 0);
    if (empty)
        mr_sum_stamp_at(&ready, 0);
    else
        mr_sum_take_at(&take, 0);
    pass(wait);
    if (!empty)
        mr_sum_take_at(&take, 1); /* its first element alone stamps */
    mr_sum_give_at(&give, 0);
}

static void test_step(void **state)
{
    (void)state;
    struct mr_sum_run run = {.totals = {.first_not_finite = UINT64_MAX}};
    const struct mr_sum_clock *c = &run.clock;
    const struct mr_sum_stamp updated = {&run, 1, MR_SUM_UPDATED};
    step(&run, false, 0, 4, 6);
    assert_int_equal(c->n, 1);
    assert_int_equal(c->last[0].before_ns, 0); /* what was before it is not known */
    assert_true(c->last[0].pass_ns >= 4 * MS);
    assert_true(c->last[0].sum_ns >= 6 * MS);
    pass(2);
    mr_sum_stamp_at(&updated, 0);
    assert_true(c->update_ns >= 2 * MS);
    step(&run, false, 5, 1, 1);
    assert_true(c->last[1].before_ns >= c->update_ns + 5 * MS);
    step(&run, true, 1, 3, 2); /* an empty part of the batch: no pass */
    assert_int_equal(c->last[2].pass_ns, 0);
    assert_true(c->last[2].before_ns >= 4 * MS && c->last[2].sum_ns >= 2 * MS);
    run.clock.given_ns = 0; /* a checkpoint came between, perhaps on this rank alone */
    step(&run, false, 2, 1, 1);
    assert_int_equal(c->n, 4);
    assert_int_equal(c->last[3].before_ns, 0);
    step(&run, false, 1, 1, 1);
    assert_int_equal(c->n, 5);
    assert_true(c->last[4].before_ns >= 1 * MS);
}

static void test_others(void **state)
{
    (void)state;
    struct mr_sum_run run = {.totals = {.first_not_finite = UINT64_MAX}};
    const struct mr_sum_clock *c = &run.clock;
    float sums[MR_SUM_TOTALS] = {0};
    const struct mr_sum_give give = {.from = sums, .run = &run, .count = 1};
    const struct mr_sum_stamp ready = {&run, 1, MR_SUM_READY};
    for (uint64_t i = 0; i < MR_SUM_PHASE; i++) {
        mr_sum_stamp_at(&ready, 0);
        assert_int_equal(c->ready_ns, 0);
        assert_int_equal(c->given_ns, 0);
        mr_sum_give_at(&give, 0);
    }
    assert_int_equal(c->n, 0);
    assert_int_not_equal(c->given_ns, 0); /* of the one before */
    step(&run, false, 3, 0, 0);
    assert_true(c->n == 1 && c->last[0].before_ns >= 3 * MS);
}

static void test_ring(void **state)
{
    (void)state;
    struct mr_sum_run run = {.totals = {.first_not_finite = UINT64_MAX}};
    for (int i = 0; i < MR_SUM_TIMED; i++)
        step(&run, false, 0, 0, 0);
    step(&run, false, 0, 0, 3);
    assert_int_equal(run.clock.n, MR_SUM_TIMED + 1);
    assert_true(run.clock.last[0].sum_ns >= 3 * MS); /* in place of the oldest */
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(mr_sum_between(0, 5), 0);
    assert_int_equal(mr_sum_between(7, 5), 0);
    assert_int_equal(mr_sum_between(5, 7), 2);
    assert_int_equal(mr_sum_between(1, UINT64_MAX), UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
