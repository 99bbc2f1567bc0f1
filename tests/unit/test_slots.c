/* White-box: how many batches ranks in lock step prepare ahead (loader/slots.h). */
#include "run_loader.h"

#include "base/base.h"
#include "loader/slots.h"

#include <math.h>
#include <stdlib.h>

#define STEPS 300

static uint64_t state;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)((state >> 11) + 1) / 9007199254740993.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(2 * acos(-1) * uniform());
}

/* Share of the time in which `world` ranks are not kept waiting for data: each makes batches of
 * lognormal times (mean 0.8 of a step) one after another, at most `ahead` before those used up;
 * all begin a step together. */
static double utilization(uint32_t world, uint32_t ahead, double spread)
{
    double *made = calloc(world, sizeof *made), begun[STEPS], now = 0;
    assert_non_null(made);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t r = 0; r < world; r++) {
            double from = step < ahead ? made[r] : fmax(made[r], begun[step - ahead]);
            made[r] = from + 0.8 * exp(spread * normal() - spread * spread / 2);
            now = fmax(now, made[r]);
        }
        begun[step] = now++;
    }
    free(made);
    return STEPS / now;
}

static void the_choice_keeps_ranks_busy(void **unused)
{
    (void)unused;
    static const uint32_t worlds[] = {8, 64, 512};
    static const double spreads[] = {0.25, 0.5, 0.75};
    for (size_t w = 0; w < MR_COUNT(worlds); w++)
        for (size_t s = 0; s < MR_COUNT(spreads); s++) {
            uint32_t ahead = MR_MAX(mr_slots_for_ranks(worlds[w], spreads[s]), 4);
            state = 1;
            double share = utilization(worlds[w], ahead, spreads[s]);
            state = 1;
            double most = utilization(worlds[w], STEPS, spreads[s]);
            print_message("%u ranks, spread %.2f: %u ahead: %.3f of %.3f\n", worlds[w], spreads[s],
                          ahead, share, most);
            assert_true(share >= 0.94 * most);
        }
}

/* What the choice is for: a fixed number does not do. */
static void four_are_too_few_for_many(void **unused)
{
    (void)unused;
    state = 1;
    assert_true(utilization(512, 4, 0.5) < 0.9);
    state = 1;
    assert_true(utilization(8, 4, 0.5) > 0.95);
}

static void more_ranks_and_more_spread_want_more(void **unused)
{
    (void)unused;
    for (uint32_t world = 1; world < 1u << 20; world *= 2)
        for (int eighths = 0; eighths < 16; eighths++) {
            double spread = eighths / 8.0;
            uint32_t n = mr_slots_for_ranks(world, spread);
            assert_true(n >= 1 && n <= mr_slots_for_ranks(2 * world, spread));
            assert_true(n <= mr_slots_for_ranks(world, spread + 0.125));
        }
}

static void odd_arguments_are_bounded(void **unused)
{
    (void)unused;
    assert_int_equal(mr_slots_for_ranks(0, 0.5), mr_slots_for_ranks(1, 0.5));
    assert_int_equal(mr_slots_for_ranks(1, 0.5), 1);
    assert_int_equal(mr_slots_for_ranks(64, -1), mr_slots_for_ranks(64, 0));
    assert_int_equal(mr_slots_for_ranks(64, NAN), mr_slots_for_ranks(64, 0));
    assert_int_equal(mr_slots_for_ranks(64, INFINITY), mr_slots_for_ranks(64, 2));
    assert_true(mr_slots_for_ranks(UINT32_MAX, 2) <= 4096);
}

static uint32_t chosen_by_loader(uint32_t world, uint32_t wanted)
{
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct mr_loader_opts opts;
    struct mr_loader_stats stats = {.size = sizeof stats};
    mr_loader_opts_init(&opts);
    opts.world = world;
    opts.prefetch = wanted;
    opts.workers = 1;
    opts.batch_size = 2; /* of 1 MiB each: so large that size alone asks for the fewest, 4 */
    must(mr_dataset_open("synthetic:n=4096,shape=1048576,dtype=u8", &ds));
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    must(mr_loader_stats(ld, &stats));
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return stats.prefetch;
}

static void loaders_follow_it(void **unused)
{
    (void)unused;
    assert_int_equal(chosen_by_loader(1, 0), 4);
    assert_int_equal(chosen_by_loader(2, 0), 4);
    assert_int_equal(chosen_by_loader(512, 0), mr_slots_for_ranks(512, MR_SLOTS_SPREAD));
    assert_int_equal(chosen_by_loader(512, 3), 3); /* the user's word stands */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_keeps_ranks_busy),
        cmocka_unit_test(four_are_too_few_for_many),
        cmocka_unit_test(more_ranks_and_more_spread_want_more),
        cmocka_unit_test(odd_arguments_are_bounded),
        cmocka_unit_test(loaders_follow_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
