/* White-box (mr_mix64). The bucket sampler: every sample once in each epoch, no batch over its
 * budget, less padding than without sorting, and the same batches whoever asks, in whatever
 * order. */
#include "base/base.h"
#include <millrace/sampler.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N 700

struct set {
    struct mr_sampler_opts opts;
    uint32_t length[N];
    struct mr_sampler *s;
};

static void open_set(struct set *set, uint64_t seed, uint64_t budget, uint64_t window)
{
    mr_sampler_opts_init(&set->opts);
    for (uint64_t i = 0; i < N; i++)
        set->length[i] = 1 + (uint32_t)(mr_mix64(i + seed * N) % 60);
    set->opts.kind = MR_SAMPLER_BUCKETS;
    set->opts.seed = seed;
    set->opts.lengths = set->length;
    set->opts.n_lengths = N;
    set->opts.max_tokens = budget;
    set->opts.window = window;
    if (mr_sampler_create(&set->opts, N, &set->s) < 0)
        fail_msg("%s", mr_last_error());
}

/* One epoch's batches: within budget, each sample once; *fill: what was no padding. */
static uint64_t check_epoch(const struct set *set, uint64_t epoch, double *fill)
{
    uint64_t max = mr_sampler_max_batch(set->s), n, used = 0, padded = 0;
    struct mr_batch_item *items = calloc(max, sizeof *items);
    unsigned char seen[N] = {0};
    assert_int_equal(mr_sampler_batches(set->s, epoch, &n), 0);
    for (uint64_t b = 0; b < n; b++) {
        uint64_t longest = 0;
        int got = mr_sampler_batch(set->s, epoch, b, items, max);
        assert_true(got >= 1 && (uint64_t)got <= max);
        for (int i = 0; i < got; i++) {
            assert_true(items[i].index < N && !seen[items[i].index]);
            assert_true(items[i].row == 0 && items[i].from == 0 && items[i].count == 0);
            seen[items[i].index] = 1;
            longest = MR_MAX(longest, set->length[items[i].index]);
            used += set->length[items[i].index];
        }
        assert_true(longest * (uint64_t)got <= set->opts.max_tokens);
        padded += longest * (uint64_t)got;
    }
    for (uint64_t i = 0; i < N; i++)
        assert_true(seen[i]);
    free(items);
    *fill = (double)used / (double)padded;
    return n;
}

static void every_sample_once_within_the_budget(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct set set;
        double fill, told;
        open_set(&set, seed, 60 + mr_mix64(seed) % 400, seed % 3 ? 1 + mr_mix64(seed) % 200 : 0);
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            check_epoch(&set, epoch, &fill);
            assert_int_equal(mr_sampler_efficiency(set.s, epoch, &told), 0);
            assert_true(told > fill - 1e-9 && told < fill + 1e-9);
        }
        mr_sampler_destroy(set.s);
    }
}

static void larger_windows_pad_less(void **state)
{
    (void)state;
    double none, all;
    struct set set;
    open_set(&set, 3, 240, 1);
    assert_int_equal(check_epoch(&set, 0, &none), N); /* each alone */
    mr_sampler_destroy(set.s);
    open_set(&set, 3, 240, 16);
    check_epoch(&set, 0, &none);
    mr_sampler_destroy(set.s);
    open_set(&set, 3, 240, 0);
    check_epoch(&set, 0, &all);
    assert_true(all > none && all > 0.9);
    mr_sampler_destroy(set.s);
}

static void epochs_and_seeds_differ(void **state)
{
    (void)state;
    struct set a, b;
    struct mr_batch_item x[300], y[300];
    open_set(&a, 1, 300, 100);
    open_set(&b, 1, 300, 100);
    int differs = 0;
    for (uint64_t k = 0; k < 8; k++) {
        int n = mr_sampler_batch(a.s, 1, k, x, 300), m = mr_sampler_batch(b.s, 1, k, y, 300);
        assert_true(n == m && memcmp(x, y, (size_t)n * sizeof *x) == 0);
        m = mr_sampler_batch(a.s, 2, k, y, 300);
        differs += n != m || memcmp(x, y, (size_t)n * sizeof *x) != 0;
    }
    assert_true(differs >= 7);
    assert_string_equal(mr_sampler_text(a.s), mr_sampler_text(b.s));
    mr_sampler_destroy(b.s);
    b.length[5]++;
    assert_int_equal(mr_sampler_create(&b.opts, N, &b.s), 0);
    assert_string_not_equal(mr_sampler_text(a.s), mr_sampler_text(b.s));
    mr_sampler_destroy(a.s);
    mr_sampler_destroy(b.s);
}

static void *ask(void *set)
{
    struct mr_batch_item items[300];
    for (uint64_t k = 0; k < 60; k++)
        assert_true(mr_sampler_batch(((struct set *)set)->s, k % 5, k % 7, items, 300) > 0);
    return NULL;
}

/* More epochs than are kept, from several threads. */
static void threads_share_tables(void **state)
{
    (void)state;
    struct set set;
    pthread_t thread[4];
    open_set(&set, 2, 300, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &set), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    mr_sampler_destroy(set.s);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct set set;
    struct mr_sampler *s = NULL;
    struct mr_batch_item items[300];
    double fill;
    open_set(&set, 2, 300, 0);
    assert_int_equal(mr_sampler_batch(set.s, 0, 0, items, 1), MR_EMISUSE);
    assert_int_equal(mr_sampler_batch(set.s, 0, 1u << 30, items, 300), MR_EMISUSE);
    struct mr_sampler_opts o = set.opts;
    o.max_batch = 3;
    assert_int_equal(mr_sampler_create(&o, N, &s), 0);
    assert_int_equal(mr_sampler_max_batch(s), 3);
    mr_sampler_destroy(s);
    o.max_batch = 0;
    o.max_tokens = 0;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o.max_tokens = 10;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "max_tokens is 10"));
    o = set.opts;
    o.n_lengths = N - 1;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o.lengths = NULL;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    mr_sampler_destroy(set.s);
    assert_int_equal(mr_sampler_open("random", 5, 0, &s), 0);
    assert_int_equal(mr_sampler_max_batch(s), 0);
    assert_int_equal(mr_sampler_batch(s, 0, 0, items, 300), MR_EMISUSE);
    assert_int_equal(mr_sampler_efficiency(s, 0, &fill), MR_EMISUSE);
    mr_sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_within_the_budget),
        cmocka_unit_test(larger_windows_pad_less),
        cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(threads_share_tables),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
