/* A callback that blocks is told from one that computes. */
#include "run_loader.h"

#include <millrace/system.h>
#include <unistd.h>

#define N        200
#define BATCH    10
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
static void run(const struct mr_callback_opts *source, unsigned busy_us,
                struct mr_loader_stats *out)
{
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(source, &ds));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.workers = 2;
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    struct mr_batch b;
    while (mr_loader_next(ld, NULL, &b) > 0) {
        if (busy_us)
            usleep(busy_us);
        must(mr_loader_release(ld, &b, NULL));
    }
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
        struct mr_loader_stats st;
        run(&opts, 0, &st);
        assert_string_equal(st.bottleneck, "decode");
        double ms = number_after(st.reason, "waiting in get(): ");
        assert_true(ms > SLEEP_US / 1000.0 / 3 && ms < SLEEP_US / 1000.0 * 3);
        assert_non_null(strstr(st.reason, "% of it without using a processor: "));
        assert_true(number_after(st.reason, "throughput grows with workers, up to about ") > 2);
    }
}

/* A batch of 10 is 20 ms of waiting, and the consumer takes 2 ms for it: some 10 workers. */
static void the_consumer_sets_the_number_of_workers(void **state)
{
    (void)state;
    struct mr_callback_opts opts = source();
    opts.get = sleep_get;
    struct mr_loader_stats st;
    run(&opts, 2000, &st);
    double n = number_after(st.reason, "without using a processor: about ");
    assert_non_null(strstr(st.reason, " workers would hide it"));
    assert_true(n >= 3 && n <= 30);
}

static void a_spinning_callback_does_not_wait(void **state)
{
    (void)state;
    struct mr_callback_opts opts = source();
    opts.get = spin_get;
    struct mr_loader_stats st;
    run(&opts, 0, &st);
    assert_string_equal(st.bottleneck, "decode");
    assert_null(strstr(st.reason, "waiting"));
    assert_non_null(strstr(st.reason, "more workers where processors are free"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeping_callback_waits),
        cmocka_unit_test(the_consumer_sets_the_number_of_workers),
        cmocka_unit_test(a_spinning_callback_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
