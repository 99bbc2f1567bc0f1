/* White-box (mr_mix64). The packing sampler: every element of every document once in each epoch,
 * in rows that hold it, and the same rows whoever asks, in whatever order. */
#include "base/base.h"
#include <millrace/sampler.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N       500
#define LONGEST 90
#define ITEMS   4096

struct set {
    struct mr_sampler_opts opts;
    uint32_t length[N];
    struct mr_sampler *s;
};

static void open_set(struct set *set, uint64_t seed, uint32_t row_length, uint32_t rows)
{
    mr_sampler_opts_init(&set->opts);
    for (uint64_t i = 0; i < N; i++)
        set->length[i] = (uint32_t)(mr_mix64(i + seed * N) % (LONGEST + 1)); /* some are empty */
    set->opts.kind = MR_SAMPLER_PACK;
    set->opts.seed = seed;
    set->opts.lengths = set->length;
    set->opts.n_lengths = N;
    set->opts.row_length = row_length;
    set->opts.rows = rows;
    set->opts.window = seed % 2 ? 1 + mr_mix64(seed) % 300 : 0;
    set->opts.max_per_row = seed % 3 ? 0 : 1 + (uint32_t)(mr_mix64(seed + 9) % 5);
    set->opts.truncate = seed % 5 == 4;
}

static void create(struct set *set)
{
    if (mr_sampler_create(&set->opts, N, &set->s) < 0)
        fail_msg("%s", mr_last_error());
    assert_true(mr_sampler_max_batch(set->s) <= ITEMS);
}

/* Rows of a batch: none is overfull, none is missing. Returns how many there are. */
static uint64_t check_rows(const struct set *set, const struct mr_batch_item *items, int n)
{
    uint64_t rows = 0, filled[64] = {0}, docs[64] = {0};
    for (int i = 0; i < n; i++) {
        const struct mr_batch_item *item = &items[i];
        assert_true(item->row < set->opts.rows && item->count > 0);
        assert_true(i == 0 || item->row >= items[i - 1].row);
        filled[item->row] += item->count;
        docs[item->row]++;
        rows = item->row + 1;
    }
    for (uint64_t r = 0; r < rows; r++) {
        assert_true(filled[r] >= 1 && filled[r] <= set->opts.row_length);
        assert_true(!set->opts.max_per_row || docs[r] <= set->opts.max_per_row);
    }
    return rows;
}

/* One epoch. Returns its rows; *used: elements in them. */
static uint64_t check_epoch(const struct set *set, uint64_t epoch, uint64_t *used)
{
    static unsigned char seen[N][LONGEST];
    struct mr_batch_item items[ITEMS];
    uint64_t n, rows = 0;
    memset(seen, 0, sizeof seen);
    *used = 0;
    assert_int_equal(mr_sampler_batches(set->s, epoch, &n), 0);
    for (uint64_t b = 0; b < n; b++) {
        int got = mr_sampler_batch(set->s, epoch, b, items, ITEMS);
        assert_true(got >= 1 && (uint64_t)got <= mr_sampler_max_batch(set->s));
        uint64_t here = check_rows(set, items, got);
        assert_true(here == set->opts.rows || b + 1 == n);
        rows += here;
        for (int i = 0; i < got; i++) {
            const struct mr_batch_item *item = &items[i];
            assert_true(item->index < N && item->from + item->count <= set->length[item->index]);
            for (uint32_t k = 0; k < item->count; k++)
                assert_int_equal(seen[item->index][item->from + k]++, 0);
            *used += item->count;
        }
    }
    for (uint64_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < set->length[i]; k++)
            assert_int_equal(seen[i][k], !set->opts.truncate || k < set->opts.row_length);
    return rows;
}

static void every_element_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct set set;
        uint64_t used;
        double fill;
        open_set(&set, seed, 20 + (uint32_t)(mr_mix64(seed) % 150), 1 + (uint32_t)(seed % 7));
        create(&set);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t rows = check_epoch(&set, epoch, &used);
            double expected = (double)used / (double)(rows * set.opts.row_length);
            assert_int_equal(mr_sampler_fill(set.s, epoch, &fill), 0);
            assert_true(fill > expected - 1e-9 && fill < expected + 1e-9);
        }
        mr_sampler_destroy(set.s);
    }
}

/* Rows of one document each would be half empty. */
static void rows_are_full(void **state)
{
    (void)state;
    struct set set;
    uint64_t used;
    double fill;
    open_set(&set, 1, 128, 4);
    set.opts.window = 0;
    create(&set);
    check_epoch(&set, 0, &used);
    assert_int_equal(mr_sampler_fill(set.s, 0, &fill), 0);
    assert_true(fill > 0.97);
    mr_sampler_destroy(set.s);
}

/* By hand: 6, 5, 4, 3, 2 into rows of 10: 6 4, 5 3 2. */
static void best_fit_decreasing(void **state)
{
    (void)state;
    const uint32_t length[] = {2, 6, 3, 5, 4};
    struct mr_sampler_opts o;
    struct mr_sampler *s;
    struct mr_batch_item items[8];
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_PACK;
    o.lengths = length;
    o.n_lengths = 5;
    o.row_length = 10;
    o.rows = 2;
    assert_int_equal(mr_sampler_create(&o, 5, &s), 0);
    assert_int_equal(mr_sampler_batch(s, 0, 0, items, 8), 5);
    uint32_t of[5];
    for (int i = 0; i < 5; i++)
        of[items[i].index] = items[i].row;
    assert_true(of[1] == of[4] && of[3] == of[2] && of[3] == of[0] && of[1] != of[0]);
    mr_sampler_destroy(s);
}

static void *ask(void *set)
{
    struct mr_batch_item items[ITEMS];
    for (uint64_t k = 0; k < 80; k++)
        assert_true(mr_sampler_batch(((struct set *)set)->s, k % 3, k * 7 % 30, items, ITEMS) > 0);
    return NULL;
}

/* More epochs and windows than are kept, from several threads; then all is as before. */
static void threads_share_tables(void **state)
{
    (void)state;
    struct set set;
    pthread_t thread[4];
    uint64_t used;
    open_set(&set, 2, 64, 5);
    set.opts.window = 20;
    create(&set);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &set), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    check_epoch(&set, 1, &used);
    mr_sampler_destroy(set.s);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct set set;
    open_set(&set, 2, 64, 5);
    struct mr_sampler_opts o = set.opts;
    struct mr_sampler *s = NULL;
    o.row_length = 0;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o = set.opts;
    o.rows = 0;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o = set.opts;
    o.n_lengths = 3;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o = set.opts;
    memset(set.length, 0, sizeof set.length);
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "empty"));
    set.length[7] = UINT32_MAX; /* many rows, but one at a time */
    o.row_length = 1u << 30;
    o.rows = 3;
    assert_int_equal(mr_sampler_create(&o, N, &s), 0);
    uint64_t n;
    assert_int_equal(mr_sampler_batches(s, 0, &n), 0);
    assert_int_equal(n, 2);
    mr_sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_once),  cmocka_unit_test(rows_are_full),
        cmocka_unit_test(best_fit_decreasing), cmocka_unit_test(threads_share_tables),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
