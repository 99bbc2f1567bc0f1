/* Read-ahead that nobody set grows until the latency of reads is hidden, within max_memory; what
 * was set stays. */
#include "unit.h"

#include <millrace/millrace.h>

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%d: %s", rc, mr_last_error());
}

/* Runs through the data set; [out] the statistics at the start and at the end. */
static void run(const char *uri, const struct mr_loader_opts *opts, struct mr_loader_stats st[2])
{
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc;
    must(mr_dataset_open(uri, &ds));
    must(mr_loader_open(ds, NULL, NULL, NULL, opts, &ld));
    st[0].size = st[1].size = sizeof st[0];
    mr_loader_stats(ld, &st[0]);
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(((const uint64_t *)b.field[0].data)[i], b.indices[i]);
        n += b.n;
        must(mr_loader_release(ld, &b, NULL));
    }
    must(rc);
    assert_int_equal(n, mr_dataset_length(ds));
    mr_loader_stats(ld, &st[1]);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

#define SLOW "synthetic:n=30000,shape=,dtype=u64,values=index,delay=60ms"

static void it_grows_with_the_latency(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        struct mr_loader_opts opts;
        struct mr_loader_stats st[2];
        mr_loader_opts_init(&opts);
        opts.workers = workers;
        opts.prefetch = 4; /* little ahead at the start: any machine's pace is beyond it */
        run(SLOW, &opts, st);
        print_message("%u workers: ahead %llu -> %llu, latency %.1f ms\n", workers,
                      (unsigned long long)st[0].read_ahead, (unsigned long long)st[1].read_ahead,
                      (double)st[1].read_latency_ns / 1e6);
        assert_true(st[1].read_ahead >= 2 * st[0].read_ahead);
        assert_true(st[1].queue_depth >= st[1].read_ahead / 2);
        assert_true(st[1].read_latency_ns >= 60000000);
    }
}

static void what_was_set_stays(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    struct mr_loader_stats st[2];
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    opts.read_ahead = 4096;
    opts.queue_depth = 3000;
    run(SLOW, &opts, st);
    assert_int_equal(st[0].read_ahead, 4096);
    assert_int_equal(st[1].read_ahead, 4096);
    assert_int_equal(st[1].queue_depth, 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_grows_with_the_latency),
                                       cmocka_unit_test(what_was_set_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
