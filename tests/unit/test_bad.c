/* Bad samples: the policies choose the same for any number of workers; limits; the quarantine
 * list. */
#include "run_loader.h"

#define N 300

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)dim;
    uint64_t every = *(const uint64_t *)user;
    if (every && index % every == 5)
        return mr_error_set(MR_EFORMAT, "sample %llu: broken on purpose",
                            (unsigned long long)index);
    *(uint64_t *)row[0] = index;
    return 0;
}

static struct mr_dataset *broken_set(const uint64_t *every)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "broken";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get;
    o.user = (void *)(uintptr_t)every;
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static struct run_config config(struct mr_dataset *ds, enum mr_bad_policy policy)
{
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.sampler = "random";
    c.sampler_seed = 3;
    c.opts.batch_size = 16;
    c.opts.bad = policy;
    return c;
}

static void fail_stops_at_the_first_in_order(void **state)
{
    (void)state;
    uint64_t every = 50;
    struct mr_dataset *ds = broken_set(&every);
    struct run_config c = config(ds, MR_BAD_FAIL);
    c.opts.workers = 1;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, MR_EFORMAT);
    assert_non_null(strstr(one.error, "broken on purpose"));
    for (uint32_t workers = 2; workers < 7; workers++) {
        c.opts.workers = workers;
        struct run run = run_loader(&c);
        assert_same_rows(&one, &run);
        assert_string_equal(one.error, run.error);
        run_free(&run);
    }
    run_free(&one);
    mr_dataset_close(ds);
}

static void skip_leaves_them_out(void **state)
{
    (void)state;
    for (uint64_t every = 6; every < 40; every += 11) {
        struct mr_dataset *ds = broken_set(&every);
        struct run_config c = config(ds, MR_BAD_SKIP);
        struct run one = run_loader(&c);
        assert_int_equal(one.rc, 0);
        uint64_t bad = 0;
        for (uint64_t i = 0; i < N; i++)
            bad += i % every == 5;
        assert_int_equal(one.n, N - bad);
        for (uint64_t i = 0; i < one.n; i++) {
            assert_true(one.row[i].index % every != 5);
            assert_int_equal(one.row[i].hash, mr_hash(MR_HASH_START, &one.row[i].index, 8));
            assert_true(i == 0 || one.row[i].position > one.row[i - 1].position);
        }
        c.opts.workers = 5;
        struct run run = run_loader(&c);
        assert_same_rows(&one, &run);
        run_free(&one);
        run_free(&run);
        mr_dataset_close(ds);
    }
}

/* The next position that decodes takes the place: batches keep their size. */
static void replace_takes_the_next_position(void **state)
{
    (void)state;
    uint64_t every = 6, none = 0;
    struct mr_dataset *good = broken_set(&none), *ds = broken_set(&every);
    struct run_config c = config(good, MR_BAD_FAIL);
    struct run order = run_loader(&c);
    c = config(ds, MR_BAD_REPLACE);
    for (uint32_t workers = 1; workers < 6; workers++) {
        c.opts.workers = workers;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, N);
        for (uint64_t i = 0; i < N; i++) {
            uint64_t p = i;
            while (order.row[p % N].index % every == 5)
                p++;
            assert_int_equal(run.row[i].index, order.row[p % N].index);
            assert_int_equal(run.row[i].hash, mr_hash(MR_HASH_START, &run.row[i].index, 8));
        }
        run_free(&run);
    }
    run_free(&order);
    mr_dataset_close(ds);
    mr_dataset_close(good);
}

static int always_bad(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)row, (void)dim;
    return mr_error_set(-5, "sample %llu is unreadable", (unsigned long long)index);
}

static void all_bad_ends_with_an_error(void **state)
{
    (void)state;
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "all bad";
    o.n = 20;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8};
    o.get = always_bad;
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(&o, &ds));
    struct run_config c = config(ds, MR_BAD_REPLACE);
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EBADSAMPLES);
    assert_non_null(strstr(run.error, "nothing can replace it"));
    c = config(ds, MR_BAD_SKIP); /* every batch is empty: an endless run would never return */
    for (uint64_t epochs = 0; epochs < 3; epochs++) {
        c.opts.epochs = epochs;
        c.opts.workers = 1 + (uint32_t)epochs;
        struct run skipped = run_loader(&c);
        assert_int_equal(skipped.rc, MR_EBADSAMPLES);
        assert_int_equal(skipped.batches, 0);
        assert_non_null(strstr(skipped.error, "no good sample in a whole epoch of 20"));
        assert_non_null(strstr(skipped.error, "is unreadable"));
        run_free(&skipped);
    }
    run_free(&run);
    mr_dataset_close(ds);
}

static void limits_hold_at_the_same_batch(void **state)
{
    (void)state;
    uint64_t every = 10;
    struct mr_dataset *ds = broken_set(&every);
    struct run_config c = config(ds, MR_BAD_REPLACE);
    c.opts.max_bad = 7;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, MR_EBADSAMPLES);
    assert_non_null(strstr(one.error, "broken on purpose"));
    c.opts.workers = 6;
    struct run run = run_loader(&c);
    assert_same_rows(&one, &run);
    assert_string_equal(one.error, run.error);
    c.opts.max_bad = 30;
    struct run enough = run_loader(&c);
    assert_int_equal(enough.rc, 0);
    c.opts.max_bad = UINT64_MAX;
    c.opts.max_bad_fraction = 0.01;
    struct run fraction = run_loader(&c);
    assert_int_equal(fraction.rc, MR_EBADSAMPLES);
    run_free(&one);
    run_free(&run);
    run_free(&enough);
    run_free(&fraction);
    mr_dataset_close(ds);
}

static void the_quarantine_list_names_them(void **state)
{
    (void)state;
    uint64_t every = 100;
    struct mr_dataset *ds = broken_set(&every);
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.bad = MR_BAD_SKIP;
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    struct mr_batch b = {.size = sizeof b};
    while (mr_loader_next(ld, NULL, &b) > 0)
        must(mr_loader_release(ld, &b, NULL));
    struct mr_bad_sample bad = {.size = sizeof bad};
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(mr_loader_bad(ld, i, &bad), 1);
        assert_int_equal(bad.index, 100 * i + 5);
        assert_int_equal(bad.position, 100 * i + 5);
        assert_non_null(strstr(bad.file, "broken"));
        assert_non_null(strstr(bad.reason, "broken on purpose"));
    }
    assert_int_equal(mr_loader_bad(ld, 3, &bad), 0);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_stops_at_the_first_in_order),
        cmocka_unit_test(skip_leaves_them_out),
        cmocka_unit_test(replace_takes_the_next_position),
        cmocka_unit_test(all_bad_ends_with_an_error),
        cmocka_unit_test(limits_hold_at_the_same_batch),
        cmocka_unit_test(the_quarantine_list_names_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
