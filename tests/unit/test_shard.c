/* White-box. Properties of the split of one global order over ranks. */
#include "sampler/sampler.h"
#include <millrace/loader.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MAX_LENGTH 200

/* How often each position is taken by all ranks of a part together. */
static void count_part(uint64_t length, uint64_t start, uint32_t world, enum mr_remainder rest,
                       unsigned *count)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        struct mr_shard shard = {.length = length,
                                 .start = start,
                                 .rank = rank,
                                 .world = world,
                                 .pad = rest == MR_REMAINDER_PAD,
                                 .exact = rest == MR_REMAINDER_EXACT};
        uint64_t n = mr_shard_length(&shard);
        for (uint64_t q = 0; q < n; q++) {
            uint64_t position = mr_shard_position(&shard, q);
            assert_true(position < length);
            assert_int_equal(mr_shard_global(&shard, q) % length, position);
            count[position]++;
        }
    }
}

static void check_part(uint64_t length, uint64_t start, uint32_t world, enum mr_remainder rest)
{
    unsigned count[MAX_LENGTH] = {0};
    count_part(length, start, world, rest, count);
    uint64_t left = length - start, dropped = 0, extra = 0;
    for (uint64_t p = start; p < length; p++) {
        dropped += count[p] == 0;
        extra += count[p] > 1 ? count[p] - 1 : 0;
    }
    for (uint64_t p = 0; p < start; p++)
        extra += count[p];
    if (rest == MR_REMAINDER_PAD) {
        assert_int_equal(dropped, 0);
        assert_int_equal(extra, (world - left % world) % world);
        return;
    }
    assert_int_equal(extra, 0);
    assert_int_equal(dropped, rest == MR_REMAINDER_EXACT ? 0 : left % world);
    for (uint64_t p = length - dropped; p < length; p++) /* the tail, and only that */
        assert_int_equal(count[p], 0);
}

static void test_every_position_once(void **state)
{
    (void)state;
    for (uint64_t length = 1; length <= 40; length++)
        for (uint32_t world = 1; world <= 45; world++)
            for (uint64_t start = 0; start <= length; start += 1 + length / 5) {
                check_part(length, start, world, MR_REMAINDER_DROP);
                check_part(length, start, world, MR_REMAINDER_PAD);
                check_part(length, start, world, MR_REMAINDER_EXACT);
            }
    check_part(MAX_LENGTH, 0, 7, MR_REMAINDER_DROP);
    check_part(MAX_LENGTH, 13, 64, MR_REMAINDER_PAD);
}

/* Step q of all ranks, in rank order, is the next stretch of the one global order: what one process
 * would see. */
static void test_interleaved_ranks_are_the_global_order(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= 9; world++) {
        struct mr_shard one = {.length = 101, .start = 4, .world = 1};
        uint64_t p = 0;
        struct mr_shard shard = {.length = 101, .start = 4, .world = world};
        for (uint64_t q = 0; q < mr_shard_length(&shard); q++)
            for (shard.rank = 0; shard.rank < world; shard.rank++)
                assert_int_equal(mr_shard_position(&shard, q), mr_shard_position(&one, p++));
    }
}

/* After k steps of w ranks, v ranks go on from the global position: together each position exactly
 * once. */
static void test_resume_with_another_world(void **state)
{
    (void)state;
    for (uint32_t before = 1; before <= 6; before++)
        for (uint32_t after = 1; after <= 6; after++)
            for (uint64_t steps = 0; steps <= 60 / before; steps++) {
                unsigned count[60] = {0};
                for (uint32_t rank = 0; rank < before; rank++) {
                    struct mr_shard shard = {.length = 60, .rank = rank, .world = before};
                    for (uint64_t q = 0; q < steps; q++)
                        count[mr_shard_position(&shard, q)]++;
                }
                count_part(60, steps * before, after, MR_REMAINDER_DROP, count);
                uint64_t tail = (60 - steps * before) % after;
                for (uint64_t p = 0; p < 60; p++)
                    assert_int_equal(count[p], p < 60 - tail);
            }
}

static void test_huge_epochs(void **state)
{
    (void)state;
    struct mr_shard shard = {.length = 1ull << 63, .rank = 6, .world = 7, .pad = true};
    uint64_t n = mr_shard_length(&shard);
    assert_int_equal(n, (1ull << 63) / 7 + 1);
    assert_true(mr_shard_global(&shard, n - 1) >= shard.length);
    assert_int_equal(mr_shard_position(&shard, n - 1),
                     mr_shard_global(&shard, n - 1) - shard.length);
    shard.start = shard.length + 5;
    assert_int_equal(mr_shard_length(&shard), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_position_once),
        cmocka_unit_test(test_interleaved_ranks_are_the_global_order),
        cmocka_unit_test(test_resume_with_another_world),
        cmocka_unit_test(test_huge_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
