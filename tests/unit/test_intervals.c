/* White-box. Sets of time against a bitmap. */
#include "unit.h"

#include "recording/intervals.h"

#define BITS   192
#define ROUNDS 3000

static void draw(uint32_t seed, struct mr_intervals *list, bool *bit)
{
    memset(bit, 0, BITS * sizeof *bit);
    uint64_t n = test_u64(seed) % 20;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = test_u64(seed + 1 + 2 * i) % BITS,
                 length = test_u64(seed + 2 + 2 * i) % 24;
        uint64_t end = start + length > BITS ? BITS : start + length;
        mr_intervals_add(list, start, end);
        for (uint64_t b = start; b < end; b++)
            bit[b] = true;
    }
    mr_intervals_unite(list);
}

static void check(const struct mr_intervals *list, const bool *bit)
{
    bool mine[BITS] = {false};
    uint64_t n = 0;
    assert_false(list->lost);
    for (size_t i = 0; i < list->n; i++) {
        assert_true(list->at[i].start_ns < list->at[i].end_ns);
        if (i > 0)
            assert_true(list->at[i - 1].end_ns < list->at[i].start_ns);
        for (uint64_t b = list->at[i].start_ns; b < list->at[i].end_ns; b++)
            mine[b] = true;
    }
    for (int b = 0; b < BITS; b++)
        n += bit[b];
    assert_memory_equal(mine, bit, sizeof mine);
    assert_int_equal(mr_intervals_measure(list), n);
}

static void sets_equal_bitmaps(void **state)
{
    bool a[BITS], b[BITS], both[BITS], either[BITS], only[BITS];
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct mr_intervals x = {0}, y = {0}, out[3] = {{0}};
        draw(round * 101, &x, a);
        draw(round * 103 + 7777777, &y, b);
        uint64_t common = 0, inside = 0, from = test_u64(round + 1) % BITS,
                 to = from + test_u64(round + 2) % BITS;
        for (int i = 0; i < BITS; i++) {
            both[i] = a[i] && b[i];
            either[i] = a[i] || b[i];
            only[i] = a[i] && !b[i];
            common += both[i];
            inside += a[i] && (uint64_t)i >= from && (uint64_t)i < to;
        }
        mr_intervals_and(&x, &y, &out[0]);
        mr_intervals_or(&x, &y, &out[1]);
        mr_intervals_without(&x, &y, &out[2]);
        check(&x, a);
        check(&out[0], both);
        check(&out[1], either);
        check(&out[2], only);
        assert_int_equal(mr_intervals_common(&x, &y), common);
        assert_int_equal(mr_intervals_within(&x, from, to), inside);
        size_t found = mr_intervals_find(&x, from);
        assert_true(found == x.n || x.at[found].end_ns > from);
        assert_true(found == 0 || x.at[found - 1].end_ns <= from);
        for (int i = 0; i < 3; i++)
            mr_intervals_free(&out[i]);
        mr_intervals_free(&x);
        mr_intervals_free(&y);
    }
}

static void ends_of_time(void **state)
{
    struct mr_intervals x = {0}, y = {0}, out = {0};
    (void)state;
    mr_intervals_add(&x, 5, 5);
    mr_intervals_add(&x, 9, 3);
    mr_intervals_unite(&x);
    assert_int_equal(x.n, 0);
    mr_intervals_add(&x, 0, UINT64_MAX);
    mr_intervals_unite(&x);
    mr_intervals_add(&y, UINT64_MAX - 1, UINT64_MAX);
    mr_intervals_without(&x, &y, &out);
    assert_int_equal(mr_intervals_measure(&out), UINT64_MAX - 1);
    x.lost = true;
    mr_intervals_and(&x, &y, &out);
    assert_true(out.lost);
    mr_intervals_free(&x);
    mr_intervals_free(&y);
    mr_intervals_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_equal_bitmaps),
        cmocka_unit_test(ends_of_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
