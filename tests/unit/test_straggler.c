/* Who comes last, by made-up steps of ranks in lock step. */
#include "unit.h"

#include <math.h>
#include <millrace/random.h>
#include <millrace/straggler.h>

#define ROUNDS 20

static const uint32_t worlds[] = {2, 3, 4, 8, 64};

struct late {
    uint32_t rank;        /* MR_NO_RANK: none */
    double data, compute; /* ms longer, mean */
    uint32_t steps;       /* in which it is late; of all */
};

/* One step: all leave the sum together, 0.2 ms after the last one came. Work varies by a third. */
static void make_step(struct mr_rng *rng, uint32_t world, const struct late *late, bool is_late,
                      struct mr_rank_step *out)
{
    double most = 0;
    for (uint32_t r = 0; r < world; r++) {
        bool slow = is_late && r == late->rank;
        double x = slow ? -log(1 - mr_rng_uniform(rng)) : 0; /* its mean is 1 */
        out[r].data_ns =
            1e6 * (0.5 * mr_rng_uniform(rng) + (slow ? late->data * (0.5 + x / 2) : 0));
        out[r].compute_ns =
            1e6 * (4 * exp(mr_rng_normal(rng) / 8) + (slow ? late->compute * (0.5 + x / 2) : 0));
        most = fmax(most, out[r].data_ns + out[r].compute_ns);
    }
    for (uint32_t r = 0; r < world; r++)
        out[r].sum_ns = 0.2e6 + most - out[r].data_ns - out[r].compute_ns;
}

static struct mr_straggler judge(uint64_t round, uint32_t world, uint32_t steps,
                                 const struct late *late)
{
    struct mr_step_log *log;
    struct mr_straggler s = {.size = sizeof s};
    struct mr_rank_step *step = calloc(world, sizeof *step);
    struct mr_rng rng;
    mr_rng_init(&rng, 7, round, world, steps);
    assert_non_null(step);
    assert_int_equal(mr_step_log_create(world, &log), 0);
    for (uint32_t i = 0; i < steps; i++) {
        make_step(&rng, world, late, i < late->steps, step);
        assert_int_equal(mr_step_log_add(log, step), 0);
    }
    assert_int_equal(mr_step_log_query(log, &s), 0);
    assert_int_equal(s.steps, steps);
    uint64_t last = 0;
    for (uint32_t r = 0; r < world; r++) {
        struct mr_rank_sums sums = {.size = sizeof sums};
        assert_int_equal(mr_step_log_get(log, r, &sums), 0);
        last += sums.last;
    }
    assert_int_equal(last, steps); /* each step has one last */
    mr_step_log_destroy(log);
    free(step);
    return s;
}

static void test_named_with_its_cause(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const double ms = round % 4 < 2 ? 5 : 2.5;
            struct late late = {round % worlds[w], round & 1 ? ms : 0, round & 1 ? 0 : ms, 300};
            struct mr_straggler s = judge(round, worlds[w], 300, &late);
            assert_int_equal(s.rank, late.rank);
            assert_int_equal(s.cause, round & 1 ? MR_LATE_DATA : MR_LATE_COMPUTE);
            assert_true(s.cost_ns > 0.2e6 * ms && s.cost_ns < 1.6e6 * ms);
            double more =
                round & 1 ? s.data_ns - s.others_data_ns : s.compute_ns - s.others_compute_ns;
            assert_true(more > 0.7e6 * ms && more < 1.8e6 * ms);
        }
}

static void test_nobody_named_without_one(void **state)
{
    (void)state;
    const uint32_t steps[] = {19, 40, 300};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (size_t n = 0; n < 3; n++)
            for (uint32_t round = 0; round < ROUNDS; round++) {
                const struct late none = {MR_NO_RANK, 0, 0, 0};
                struct mr_straggler s = judge(round, worlds[w], steps[n], &none);
                assert_int_equal(s.rank, MR_NO_RANK);
                assert_int_equal(s.cause, MR_LATE_NONE);
                assert_true(s.cost_ns == 0 && s.step_ns > 4e6);
            }
}

/* Late for a part of the run, however much: that is an event, not a straggler. */
static void test_burst(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const struct late late = {round % 4, 500, 0, 100};
        assert_int_equal(judge(round, 4, 300, &late).rank, MR_NO_RANK);
    }
}

/* Always last, but by little. */
static void test_cheap(void **state)
{
    (void)state;
    struct mr_step_log *log;
    struct mr_straggler s = {.size = sizeof s};
    const struct mr_rank_step step[] = {{0, 10e6, 0.2e6}, {0, 10.1e6, 0.1e6}, {0, 10e6, 0.2e6}};
    assert_int_equal(mr_step_log_create(3, &log), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(mr_step_log_add(log, step), 0);
    assert_int_equal(mr_step_log_query(log, &s), 0);
    assert_int_equal(s.rank, MR_NO_RANK);
    mr_step_log_destroy(log);
}

static void test_misuse(void **state)
{
    (void)state;
    struct mr_step_log *log;
    struct mr_straggler s = {.size = sizeof s};
    struct mr_rank_sums sums = {.size = sizeof sums};
    const struct mr_rank_step one[] = {{1, 2, 3}}, bad[] = {{1, NAN, 3}};
    assert_int_equal(mr_step_log_create(0, &log), MR_EMISUSE);
    assert_int_equal(mr_step_log_create(1, NULL), MR_EMISUSE);
    assert_int_equal(mr_step_log_create(1, &log), 0);
    assert_int_equal(mr_step_log_query(log, &s), 0); /* no step yet */
    assert_int_equal(mr_step_log_add(log, bad), MR_EMISUSE);
    for (int i = 0; i < 100; i++)
        assert_int_equal(mr_step_log_add(log, one), 0);
    assert_int_equal(mr_step_log_query(log, &s), 0);
    assert_int_equal(s.rank, MR_NO_RANK); /* one rank waits for nobody */
    assert_int_equal(s.steps, 100);
    assert_int_equal(mr_step_log_get(log, 1, &sums), MR_EMISUSE);
    assert_int_equal(mr_step_log_get(log, 0, &sums), 0);
    assert_true(sums.data_ns == 100 && sums.compute_ns == 200 && sums.sum_ns == 300);
    mr_step_log_destroy(log);
    mr_step_log_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_with_its_cause),
        cmocka_unit_test(test_nobody_named_without_one),
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_cheap),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
