/*
 * The family of row backends, through one more of them (tests/support/row_backend_test.c): the same
 * batches, order and state whoever makes a row, and the host makes what the backend declines.
 */
#include "samples.h"

#include "row_backend_test.h"
#include "run_loader.h"

#define N         1000
#define ROW_BYTES 2304 /* more than 1 MiB in all: the file is read, not kept in memory */

static int make_set(void **state)
{
    static uint8_t bytes[N * ROW_BYTES];
    if (test_dir_make(state) < 0)
        return -1;
    for (uint64_t i = 0; i < N; i++)
        for (uint64_t k = 0; k < ROW_BYTES; k++)
            bytes[i * ROW_BYTES + k] = pattern_byte(i, k);
    return test_write("x.raw", bytes, sizeof bytes) ? 0 : -1;
}

static struct run run_as(enum pattern_mode mode, const char *device, uint32_t workers, int bad)
{
    char uri[400];
    snprintf(uri, sizeof uri, "raw:%s,shape=48x48,dtype=u8", test_path("x.raw"));
    struct run_config c = run_config(uri);
    c.device = device;
    c.sampler = "random";
    c.opts.epochs = 2;
    c.opts.batch_size = 33;
    c.opts.workers = workers;
    c.opts.bad = bad;
    uint64_t bad_every = pattern.bad_every;
    pattern = (struct pattern){.mode = mode, .bad_every = bad_every};
    return run_loader(&c);
}

/* What the engine asked of the backend, beside making rows. */
static void check_calls(const struct run *run, enum pattern_mode mode, bool ships)
{
    uint64_t taken = 0, declined = 0;
    for (uint64_t i = 0; i < run->n; i++) {
        bool takes = mode == PATTERN_SOME && pattern_takes(run->row[i].index);
        taken += takes;
        declined += takes && pattern_declines(run->row[i].index);
    }
    if (mode == PATTERN_ALL)
        assert_int_equal(pattern.made, run->n);
    else
        assert_int_equal(pattern.made, taken - declined);
    assert_int_equal(pattern.declined, declined);
    assert_int_equal(pattern.completed, mode == PATTERN_OFF ? 0 : run->batches);
    assert_int_equal(pattern.enqueued, ships && mode == PATTERN_SOME ? run->batches : 0);
    assert_int_equal(pattern.closed, 2); /* also those that are not used */
    assert_int_equal(pattern.moved, 0);
}

static void test_same_batches(void **state)
{
    (void)state;
    static const struct {
        enum pattern_mode mode;
        const char *device;
        uint32_t workers;
    } cases[] = {{PATTERN_OFF, "cpu", 1},
                 {PATTERN_SOME, "cpu", 1},
                 {PATTERN_SOME, "cpu", 7},
                 {PATTERN_SOME, "sim:latency=1us", 2},
                 {PATTERN_OFF, "sim:latency=1us", 3},
                 {PATTERN_ALL, "cpu", 5}};
    struct run want = {0};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        bool ships = strcmp(cases[i].device, "cpu") != 0;
        struct run got = run_as(cases[i].mode, cases[i].device, cases[i].workers, MR_BAD_FAIL);
        assert_int_equal(got.rc, 0);
        assert_int_equal(got.n, 2 * N);
        check_calls(&got, cases[i].mode, ships);
        /* A backend that takes all samples without their bytes has nothing read. */
        assert_int_equal(got.stats.read_bytes > 0, cases[i].mode != PATTERN_ALL);
        if (i == 0)
            want = got;
        assert_same_rows(&want, &got);
        assert_string_equal(want.state, got.state);
        if (i > 0)
            run_free(&got);
    }
    run_free(&want);
}

static bool is_bad(uint64_t index)
{
    return index % pattern.bad_every == 4 && pattern_takes(index) && !pattern_declines(index);
}

/* A backend's bad samples are the engine's to handle: skipped or replaced, whoever makes them. */
static void test_bad_samples(void **state)
{
    (void)state;
    static const int policies[] = {MR_BAD_SKIP, MR_BAD_REPLACE};
    uint64_t n_bad = 0;
    pattern.bad_every = 13;
    for (uint64_t i = 0; i < N; i++)
        n_bad += is_bad(i);
    for (size_t p = 0; p < MR_COUNT(policies); p++) {
        struct run one = run_as(PATTERN_SOME, "cpu", 1, policies[p]);
        struct run many = run_as(PATTERN_SOME, "sim:latency=1us", 6, policies[p]);
        assert_int_equal(one.rc, 0);
        assert_int_equal(one.stats.bad_samples, 2 * n_bad);
        assert_int_equal(one.n, policies[p] == MR_BAD_SKIP ? 2 * (N - n_bad) : 2 * N);
        for (uint64_t i = 0; i < one.n; i++) {
            assert_false(is_bad(one.row[i].index));
            uint8_t row[ROW_BYTES];
            for (uint64_t k = 0; k < ROW_BYTES; k++)
                row[k] = pattern_byte(one.row[i].index, k);
            assert_int_equal(one.row[i].hash, mr_hash(MR_HASH_START, row, ROW_BYTES));
        }
        assert_same_rows(&one, &many);
        assert_string_equal(one.state, many.state);
        assert_int_equal(pattern.moved > 0, policies[p] == MR_BAD_SKIP);
        run_free(&one);
        run_free(&many);
    }
    struct run failed = run_as(PATTERN_SOME, "cpu", 3, MR_BAD_FAIL);
    assert_int_equal(failed.rc, MR_EFORMAT);
    assert_non_null(strstr(failed.error, "pattern: sample "));
    run_free(&failed);
    pattern.bad_every = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_batches),
        cmocka_unit_test(test_bad_samples),
    };
    return cmocka_run_group_tests(tests, make_set, test_dir_drop);
}
