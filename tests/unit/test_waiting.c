/* A callback that blocks is told from one that computes, and decoding from transforming. */
#include "run_loader.h"

#include <millrace/system.h>
#include <unistd.h>

#define N        200
#define BATCH    8
#define SLEEP_US 2000

static int sleep_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    *(uint64_t *)row[0] = index;
    usleep(SLEEP_US);
    return 0;
}

static int spin_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    *(uint64_t *)row[0] = index;
    for (uint64_t start = mr_time_ns(); mr_time_ns() - start < 500000;)
        ;
    return 0;
}

static int sleep_run(void *user, uint64_t n, const struct mr_sample_context context[],
                     void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                     int rc[])
{
    for (uint64_t i = 0; i < n; i++)
        rc[i] = sleep_get(user, context[i].index, row[i], dim[i]);
    return 0;
}

/* busy_us: the consumer sleeps so long for each batch. */
static void run(const struct mr_callback_opts *source, struct mr_transform *chain, unsigned busy_us,
                struct mr_loader_stats *out)
{
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(source, &ds));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.workers = 2;
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &ld));
    struct mr_batch b = {.size = sizeof b};
    while (mr_loader_next(ld, NULL, &b) > 0) {
        if (busy_us)
            usleep(busy_us);
        must(mr_loader_release(ld, &b, NULL));
    }
    out->size = sizeof *out;
    mr_loader_stats(ld, out);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static struct mr_callback_opts source(void)
{
    struct mr_callback_opts opts;
    mr_callback_opts_init(&opts);
    opts.n = N;
    opts.n_fields = 1;
    opts.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    return opts;
}

/* The number behind a text of the reason. */
static double number_after(const char *reason, const char *text)
{
    const char *at = strstr(reason, text);
    if (!at)
        fail_msg("expected \"%s\" in \"%s\"", text, reason);
    return strtod(at + strlen(text), NULL);
}

static void a_sleeping_callback_waits(void **state)
{
    (void)state;
    for (int whole_runs = 0; whole_runs < 2; whole_runs++) {
        struct mr_callback_opts opts = source();
        if (whole_runs)
            opts.get_run = sleep_run;
        else
            opts.get = sleep_get;
        struct mr_loader_stats st = {.size = sizeof st};
        run(&opts, NULL, 0, &st);
        assert_string_equal(st.bottleneck, "decode");
        double ms = number_after(st.reason, "waiting in get(): ");
        assert_true(ms > SLEEP_US / 1000.0 / 3 && ms < SLEEP_US / 1000.0 * 3);
        assert_non_null(strstr(st.reason, "% of it without using a processor: "));
        assert_true(number_after(st.reason, "throughput grows with workers, up to about ") > 2);
    }
}

/* A batch is 16 ms of waiting, and the consumer takes 2 ms for it: some 8 workers. */
static void the_consumer_sets_the_number_of_workers(void **state)
{
    (void)state;
    struct mr_callback_opts opts = source();
    opts.get = sleep_get;
    struct mr_loader_stats st = {.size = sizeof st};
    run(&opts, NULL, 2000, &st);
    double n = number_after(st.reason, "without using a processor: about ");
    assert_non_null(strstr(st.reason, " workers would hide it"));
    assert_true(n >= 3 && n <= 30);
}

static void a_spinning_callback_does_not_wait(void **state)
{
    (void)state;
    struct mr_callback_opts opts = source();
    opts.get = spin_get;
    struct mr_loader_stats st = {.size = sizeof st};
    run(&opts, NULL, 0, &st);
    assert_string_equal(st.bottleneck, "decode");
    assert_null(strstr(st.reason, "waiting"));
    assert_non_null(strstr(st.reason, "more workers where processors are free"));
}

/* Every fourth sample, the first of each run, is decoded at once. */
static int uneven_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    if (index % 4 != 0)
        return sleep_get(user, index, row, dim);
    *(uint64_t *)row[0] = index;
    return 0;
}

static int sleep_apply(void *user, const struct mr_spec *in_spec, const void *in,
                       const uint64_t *in_dim, const struct mr_spec *out_spec, void *out,
                       uint64_t *out_dim, const uint32_t random[4])
{
    (void)user, (void)in_spec, (void)in_dim, (void)out_spec, (void)out_dim, (void)random;
    memcpy(out, in, sizeof(uint64_t));
    usleep(300);
    return 0;
}

/* Decoding takes four times as long as transforming, but not that of the first samples of runs. */
static void decode_is_told_from_transform_by_all_slow_samples(void **state)
{
    (void)state;
    struct mr_transform *chain;
    must(mr_transform_create(&chain));
    struct mr_transform_fn fn = {.size = sizeof fn, .name = "sleep", .apply = sleep_apply};
    must(mr_transform_add_fn(chain, &fn));
    struct mr_callback_opts opts = source();
    opts.get = uneven_get;
    struct mr_loader_stats st = {.size = sizeof st};
    run(&opts, chain, 0, &st);
    assert_string_equal(st.bottleneck, "decode");
    assert_true(st.stage_ns[MR_STAGE_DECODE] > st.stage_ns[MR_STAGE_TRANSFORM]);
    mr_transform_destroy(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeping_callback_waits),
        cmocka_unit_test(the_consumer_sets_the_number_of_workers),
        cmocka_unit_test(a_spinning_callback_does_not_wait),
        cmocka_unit_test(decode_is_told_from_transform_by_all_slow_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
