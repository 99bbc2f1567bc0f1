/* Callback sets: the context, what belongs to each worker, several samples in one call. */
#include "run_loader.h"

#include <errno.h>
#include <millrace/random.h>
#include <pthread.h>
#include <stdatomic.h>

#define N 1000

/* What the callbacks saw. */
struct source {
    _Atomic int inits, exits, samples, calls, largest, closed;
    int fail_init;      /* this worker's init fails; -1: none */
    uint64_t bad_every; /* samples with index % bad_every == 3 are bad; 0: none */
    int wrong;          /* what get_run does wrong, see get_run() */
};

/* A worker's own. */
struct mine {
    pthread_t thread;
    uint32_t worker;
};

static int init(void *user, uint32_t worker, void **out)
{
    struct source *s = user;
    if (s->fail_init >= 0 && worker == (uint32_t)s->fail_init)
        return mr_error_set(-ECONNREFUSED, "no connection");
    struct mine *mine = malloc(sizeof *mine);
    assert_non_null(mine);
    *mine = (struct mine){pthread_self(), worker};
    *out = mine;
    s->inits++;
    return 0;
}

static void exit_worker(void *user, uint32_t worker, void *of_worker)
{
    struct source *s = user;
    struct mine *mine = of_worker;
    assert_int_equal(worker, mine->worker);
    assert_true(pthread_equal(pthread_self(), mine->thread));
    s->exits++;
    mr_error_set(-1, "exit says something of its own");
    free(mine);
}

static void close_source(void *user)
{
    ((struct source *)user)->closed++;
}

/* A sample: what keys it, and numbers drawn with that. */
static void write_sample(const struct mr_sample_context *c, void *const row[],
                         uint64_t (*dim)[MR_MAX_RANK])
{
    struct mr_rng rng;
    uint64_t *key = row[0], *x = row[1];
    mr_rng_init(&rng, c->seed, c->epoch, c->index, 0);
    key[0] = c->index;
    key[1] = c->epoch;
    key[2] = c->seed;
    key[3] = c->position;
    dim[1][0] = mr_rng_below(&rng, 9);
    for (uint64_t i = 0; i < dim[1][0]; i++)
        x[i] = mr_rng_u64(&rng);
}

static void check_context(struct source *s, const struct mr_sample_context *c)
{
    const struct mine *mine = c->worker_state;
    assert_int_equal(c->size, sizeof *c);
    assert_non_null(mine);
    assert_int_equal(mine->worker, c->worker);
    assert_true(pthread_equal(mine->thread, pthread_self()));
    s->samples++;
}

static int bad(const struct source *s, uint64_t index)
{
    return s->bad_every && index % s->bad_every == 3;
}

static int get_ctx(void *user, const struct mr_sample_context *c, void *const row[],
                   uint64_t (*dim)[MR_MAX_RANK])
{
    struct source *s = user;
    check_context(s, c);
    s->calls++;
    if (bad(s, c->index))
        return mr_error_set(MR_EFORMAT, "record %llu is torn", (unsigned long long)c->index);
    write_sample(c, row, dim);
    return 0;
}

enum { NOTHING, LEAVES_LAST, LEAVES_ALL, LONG_DIM, POSITIVE_RC, GARBAGE_RC, POSITIVE, FAILS };

static int get_run(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[])
{
    struct source *s = user;
    s->calls++;
    s->largest = MR_MAX(s->largest, (int)n);
    for (uint64_t i = 0; i < n; i++) {
        check_context(s, &context[i]);
        bool hit = s->wrong != NOTHING && i + 1 == n;
        if (bad(s, context[i].index)) {
            rc[i] = mr_error_set(MR_EFORMAT, "record %llu is torn",
                                 (unsigned long long)context[i].index);
            continue;
        }
        write_sample(&context[i], row[i], dim[i]);
        rc[i] = 0;
        if (hit && s->wrong == LONG_DIM)
            dim[i][1][0] = UINT64_MAX;
        if (hit && s->wrong == POSITIVE_RC)
            rc[i] = 77;
        if (hit && s->wrong == GARBAGE_RC)
            rc[i] = -123456789;
        if ((hit && s->wrong == LEAVES_LAST) || s->wrong == LEAVES_ALL)
            rc[i] = 1;
    }
    return s->wrong == POSITIVE ? 5 : s->wrong == FAILS ? mr_error_set(-EIO, "store is gone") : 0;
}

static struct mr_callback_opts source_opts(struct source *s, bool run)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "store";
    o.n = N;
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "key", .dtype = MR_U64, .rank = 1, .dim = {4}};
    o.field[1] =
        (struct mr_spec){.name = "x", .dtype = MR_U64, .rank = 1, .var_dims = 1, .dim = {8}};
    o.get_ctx = run ? NULL : get_ctx;
    o.get_run = run ? get_run : NULL;
    o.init = init;
    o.exit = exit_worker;
    o.close = close_source;
    o.user = s;
    o.changes = 1;
    return o;
}

static struct mr_dataset *source_open(struct source *s, bool run)
{
    struct mr_callback_opts o = source_opts(s, run);
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static struct run_config config(struct mr_dataset *ds, uint32_t workers)
{
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.sampler = "random";
    c.opts.workers = workers;
    c.opts.batch_size = 48;
    c.opts.epochs = 2;
    c.opts.seed = 99;
    c.opts.collate = MR_COLLATE_PAD;
    return c;
}

static struct source source(void)
{
    return (struct source){.fail_init = -1};
}

/* A sample depends on the epoch, but not on workers or a resume; each worker has its own. */
static void contexts_say_where_a_sample_stands(void **state)
{
    (void)state;
    for (int run = 0; run < 2; run++) {
        struct source s = source();
        struct mr_dataset *ds = source_open(&s, run);
        struct run_config c = config(ds, 1);
        struct run one = run_loader(&c);
        assert_int_equal(one.n, 2 * N);
        assert_int_equal(s.inits, 1);
        assert_int_equal(s.exits, 1);
        c = config(ds, 5);
        struct run five = run_loader(&c);
        assert_same_rows(&one, &five);
        assert_int_equal(s.inits, 6);
        assert_int_equal(s.exits, 6);
        assert_int_equal(s.samples, 4 * N);
        c.stop_after = 25;
        struct run front = run_loader(&c);
        c.stop_after = 0;
        c.opts.state = front.state;
        struct run back = run_loader(&c);
        assert_int_equal(front.n + back.n, one.n);
        for (uint64_t i = 0; i < back.n; i++)
            assert_int_equal(back.row[i].hash, one.row[front.n + i].hash);
        run_free(&one);
        run_free(&five);
        run_free(&front);
        run_free(&back);
        mr_dataset_close(ds);
        assert_int_equal(s.closed, 1);
    }
}

static void delivered_keys_are_the_batchs(void **state)
{
    (void)state;
    struct source s = source();
    struct mr_dataset *ds = source_open(&s, true);
    struct mr_loader_opts o;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&o);
    o.batch_size = 64;
    o.epochs = 2;
    o.seed = 5;
    o.workers = 3;
    o.collate = MR_COLLATE_PAD;
    must(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld));
    int rc;
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        const uint64_t(*key)[4] = b.field[0].data;
        for (uint64_t r = 0; r < b.n; r++) {
            assert_int_equal(key[r][0], b.indices[r]);
            assert_int_equal(key[r][1], b.epoch);
            assert_int_equal(key[r][2], 5);
            assert_int_equal(key[r][3], b.positions[r]);
        }
        must(mr_loader_release(ld, &b, NULL));
    }
    must(rc);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

/* Many samples a call, and the same ones as one by one, through transforms too. */
static void runs_make_the_same_samples(void **state)
{
    (void)state;
    for (int pad = MR_COLLATE_PAD; pad <= MR_COLLATE_RAGGED; pad++)
        for (int chain = 0; chain < 2; chain++) {
            struct source single = source(), many = source();
            struct mr_dataset *a = source_open(&single, false), *b = source_open(&many, true);
            struct run_config c = config(a, 3);
            c.opts.collate = (enum mr_collate)pad;
            c.opts.batch_size = 192;
            c.chain = chain ? "key.cast(f32)" : NULL;
            struct run alone = run_loader(&c);
            c.ds = b;
            struct run together = run_loader(&c);
            assert_int_equal(alone.rc, 0);
            assert_int_equal(alone.n, 2 * N);
            assert_same_rows(&alone, &together);
            assert_int_equal(single.calls, 2 * N);
            assert_true(many.largest > 1 && many.calls < N);
            run_free(&alone);
            run_free(&together);
            mr_dataset_close(a);
            mr_dataset_close(b);
        }
}

static void policies_do_not_notice_runs(void **state)
{
    (void)state;
    static const enum mr_bad_policy policies[] = {MR_BAD_SKIP, MR_BAD_REPLACE};
    for (size_t p = 0; p < MR_COUNT(policies); p++)
        for (uint32_t workers = 1; workers < 5; workers += 3) {
            struct source single = source(), many = source();
            single.bad_every = many.bad_every = 7;
            struct mr_dataset *a = source_open(&single, false), *b = source_open(&many, true);
            struct run_config c = config(a, workers);
            c.opts.bad = policies[p];
            c.opts.max_bad = 1000;
            struct run alone = run_loader(&c);
            c.ds = b;
            struct run together = run_loader(&c);
            assert_int_equal(alone.rc, 0);
            assert_same_rows(&alone, &together);
            assert_int_equal(alone.n, policies[p] == MR_BAD_SKIP ? 2 * (N - 143) : 2 * N);
            assert_int_equal(alone.stats.bad_samples, together.stats.bad_samples);
            run_free(&alone);
            run_free(&together);
            mr_dataset_close(a);
            mr_dataset_close(b);
        }
    struct source s = source();
    s.bad_every = N;
    struct mr_dataset *ds = source_open(&s, true);
    struct run_config c = config(ds, 2);
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EFORMAT);
    assert_non_null(strstr(run.error, "store: sample 3: record 3 is torn"));
    run_free(&run);
    mr_dataset_close(ds);
}

static void what_get_run_does_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        int wrong, code;
        const char *text;
    } cases[] = {
        {LEAVES_LAST, MR_ECALLBACK, "get_run did not set rc[0] of 1 samples"},
        {LEAVES_ALL, MR_ECALLBACK, "get_run did not set rc[0] of 1 samples"},
        {LONG_DIM, MR_ECALLBACK, "field 'x': dimension 0 is 18446744073709551615: expected at"},
        {POSITIVE_RC, MR_ECALLBACK, "get_run returned 77: expected 0 or a negative error"},
        {GARBAGE_RC, MR_ECALLBACK, "get_run returned -123456789: expected 0 or a negative"},
        {POSITIVE, MR_ECALLBACK, "get_run returned 5: expected 0 or a negative error"},
        {FAILS, -EIO, "store is gone"},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct source s = source();
        s.wrong = cases[i].wrong;
        struct mr_dataset *ds = source_open(&s, true);
        struct run_config c = config(ds, 2);
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, cases[i].code);
        if (!strstr(run.error, cases[i].text) || strncmp(run.error, "store: sample ", 14) != 0)
            fail_msg("'%s' is not in: %s", cases[i].text, run.error);
        run_free(&run);
        mr_dataset_close(ds);
    }
}

static void an_init_that_fails_ends_the_run(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct source s = source();
        s.fail_init = 0;
        struct mr_dataset *ds = source_open(&s, all);
        struct run_config c = config(ds, 1);
        c.opts.bad = MR_BAD_SKIP;
        c.opts.max_bad = N;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, -ECONNREFUSED);
        assert_non_null(strstr(run.error, "store: init of worker 0: no connection"));
        assert_int_equal(s.samples, 0);
        assert_int_equal(s.exits, 0);
        run_free(&run);
        mr_dataset_close(ds);
    }
}

static void single_reads_have_a_context_too(void **state)
{
    (void)state;
    struct source s = source();
    s.bad_every = 10;
    for (int run = 0; run < 2; run++) {
        struct mr_dataset *ds = source_open(&s, run);
        uint64_t key[4], x[8], dim[2][MR_MAX_RANK];
        must(mr_dataset_read(ds, 17, (void *[]){key, x}, dim));
        assert_int_equal(key[0], 17);
        assert_int_equal(mr_dataset_read(ds, 13, (void *[]){key, x}, dim), MR_EFORMAT);
        assert_string_equal(mr_last_error(), "store: sample 13: record 13 is torn");
        assert_int_equal(s.inits, s.exits);
        s.fail_init = INT32_MAX; /* not MR_NO_WORKER */
        must(mr_dataset_read(ds, 17, (void *[]){key, x}, dim));
        mr_dataset_close(ds);
    }
    assert_int_equal(s.closed, 2);
}

static void samples_that_change_are_not_kept_on_the_device(void **state)
{
    (void)state;
    struct source s = source();
    struct mr_dataset *ds = source_open(&s, false);
    struct run_config c = config(ds, 2);
    c.opts.cache = MR_CACHE_DEVICE;
    c.device = "sim:latency=1us";
    struct run run = run_loader(&c);
    assert_true(run.rc < 0);
    run_free(&run);
    mr_dataset_close(ds);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct source s = source();
    struct mr_dataset *ds;
    struct mr_callback_opts o = source_opts(&s, true);
    o.get_ctx = get_ctx;
    assert_int_equal(mr_dataset_open_callback(&o, &ds), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "store: more than one get function"));
    o = source_opts(&s, true);
    o.init = NULL;
    assert_int_equal(mr_dataset_open_callback(&o, &ds), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "store: exit without init"));
    assert_int_equal(s.closed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_say_where_a_sample_stands),
        cmocka_unit_test(delivered_keys_are_the_batchs),
        cmocka_unit_test(runs_make_the_same_samples),
        cmocka_unit_test(policies_do_not_notice_runs),
        cmocka_unit_test(what_get_run_does_wrong_is_named),
        cmocka_unit_test(an_init_that_fails_ends_the_run),
        cmocka_unit_test(single_reads_have_a_context_too),
        cmocka_unit_test(samples_that_change_are_not_kept_on_the_device),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
