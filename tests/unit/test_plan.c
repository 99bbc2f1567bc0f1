/* White-box. Plans: every global position is in exactly one row of one batch, for any batch size,
 * ranks, tail and resume. */
#include "loader/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static uint32_t draw(uint32_t *n, uint32_t below)
{
    uint32_t out[4];
    mr_draw4(7, MR_DRAW_VALUES, (*n)++, 0, 0, out);
    return out[0] % below;
}

struct config {
    struct mr_loader_opts opts;
    uint64_t length;
};

static struct config random_config(uint32_t *n)
{
    struct config c;
    mr_loader_opts_init(&c.opts);
    c.opts.batch_size = 1 + draw(n, 9);
    c.opts.world = 1 + draw(n, 4);
    c.opts.remainder = (enum mr_remainder)draw(n, 3);
    c.opts.epochs = 1 + draw(n, 3);
    c.length = c.opts.world * c.opts.batch_size + draw(n, 60);
    return c;
}

/* Marks what one rank's plan covers from (epoch, position) on; returns its batches. */
static uint64_t cover(const struct config *c, uint32_t rank, uint64_t epoch, uint64_t position,
                      uint64_t stop, uint8_t *seen)
{
    struct mr_loader_opts opts = c->opts;
    opts.rank = rank;
    struct mr_plan plan;
    assert_int_equal(mr_plan_init(&plan, &opts, c->length, epoch, position), 0);
    for (uint64_t t = 0; t < plan.total && t < stop; t++) {
        struct mr_plan_batch b;
        mr_plan_get(&plan, t, &b);
        assert_true(b.rows >= 1 && b.rows <= opts.batch_size);
        for (uint64_t r = 0; r < b.rows; r++)
            seen[b.epoch * c->length + mr_shard_global(b.shard, b.row0 + r) % c->length]++;
    }
    return plan.total;
}

static void every_position_once(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (int round = 0; round < 400; round++) {
        struct config c = random_config(&n);
        uint8_t seen[3 * 128] = {0};
        for (uint32_t rank = 0; rank < c.opts.world; rank++)
            cover(&c, rank, 0, 0, UINT64_MAX, seen);
        uint64_t tail = c.length % c.opts.world;
        uint64_t twice = 0, never = 0;
        for (uint64_t i = 0; i < c.opts.epochs * c.length; i++) {
            assert_true(seen[i] <= 2);
            twice += seen[i] == 2;
            never += seen[i] == 0;
        }
        bool pad = c.opts.remainder == MR_REMAINDER_PAD;
        bool drop = c.opts.remainder == MR_REMAINDER_DROP;
        assert_int_equal(never, drop ? tail * c.opts.epochs : 0);
        assert_int_equal(twice, pad && tail ? (c.opts.world - tail) * c.opts.epochs : 0);
    }
}

/* Stops all ranks after some batches of an epoch, goes on with another world: the epoch's rest,
 * once. */
static void resume_with_another_world(void **state)
{
    (void)state;
    uint32_t n = 100000;
    for (int round = 0; round < 400; round++) {
        struct config c = random_config(&n);
        c.opts.epochs = 2;
        c.opts.remainder = draw(&n, 2) ? MR_REMAINDER_PAD : MR_REMAINDER_EXACT;
        uint64_t batches = c.length / c.opts.world / c.opts.batch_size;
        uint64_t stop = draw(&n, (uint32_t)batches + 1);
        if (stop * c.opts.batch_size * c.opts.world == c.length)
            stop--;
        uint8_t seen[3 * 128] = {0};
        for (uint32_t rank = 0; rank < c.opts.world; rank++)
            cover(&c, rank, 0, 0, stop, seen);
        uint64_t position = stop * c.opts.batch_size * c.opts.world;
        c.opts.world = 1;
        cover(&c, 0, 0, position, UINT64_MAX, seen);
        for (uint64_t i = 0; i < 2 * c.length; i++)
            assert_int_equal(seen[i], 1);
    }
}

/* Every rank refuses it, also those that would have samples: else these would wait for the rest. */
static void exact_needs_a_sample_each(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.remainder = MR_REMAINDER_EXACT;
    opts.world = 4;
    struct mr_plan plan;
    for (opts.rank = 0; opts.rank < 4; opts.rank++) {
        assert_int_equal(mr_plan_init(&plan, &opts, 3, 0, 0), MR_EOPTION);
        assert_int_equal(mr_plan_init(&plan, &opts, 4, 0, 0), 0);
        assert_int_equal(plan.total, 1);
    }
}

static void drop_last_gives_full_batches(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.drop_last = 1;
    opts.epochs = 3;
    struct mr_plan plan;
    assert_int_equal(mr_plan_init(&plan, &opts, 35, 0, 0), 0);
    assert_int_equal(plan.total, 9);
    for (uint64_t t = 0; t < 9; t++) {
        struct mr_plan_batch b;
        mr_plan_get(&plan, t, &b);
        assert_int_equal(b.rows, 10);
        assert_int_equal(b.epoch, t / 3);
        assert_int_equal(b.index, t % 3);
        assert_int_equal(b.last, t % 3 == 2);
    }
    assert_int_equal(mr_plan_init(&plan, &opts, 9, 0, 0), MR_EOPTION);
    /* A place in the dropped tail: the next epoch comes at once. */
    assert_int_equal(mr_plan_init(&plan, &opts, 35, 0, 30), 0);
    struct mr_plan_batch b;
    mr_plan_get(&plan, 0, &b);
    assert_int_equal(b.epoch, 1);
    assert_int_equal(plan.total, 6);
}

static void huge_sets_need_no_time(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.epochs = 0;
    struct mr_plan plan;
    assert_int_equal(mr_plan_init(&plan, &opts, 1ull << 62, 5, 1ull << 61), 0);
    assert_true(plan.total == UINT64_MAX);
    struct mr_plan_batch b;
    mr_plan_get(&plan, (1ull << 55) - 1, &b);
    assert_int_equal(b.epoch, 5);
    assert_int_equal(b.last, 1);
    assert_int_equal(mr_shard_global(b.shard, b.row0 + 63), (1ull << 62) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_position_once),       cmocka_unit_test(resume_with_another_world),
        cmocka_unit_test(exact_needs_a_sample_each), cmocka_unit_test(drop_last_gives_full_batches),
        cmocka_unit_test(huge_sets_need_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
