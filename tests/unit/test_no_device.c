/* White-box. Programs without a device: where the time of the thread that takes batches goes. */
#include "recording_make.h"

#include "advice/rules.h"
#include <unistd.h>

#define PATH "test_no_device.sqlite"
#define MS   1000000ull

/* A loop whose truth is known: `n` steps of the loader, then own code, then another call. */
struct cpu_loop {
    const char *range; /* of the loader; NULL: none */
    const char *call;  /* of the loader's time; NULL: none recorded */
    uint64_t load_ns, own_ns, other_ns;
    uint32_t n;
};

static void make_cpu_loop(struct make *m, const struct cpu_loop *l, uint64_t at)
{
    make_range(m, "setup", at - 5 * MS, at);
    for (uint32_t i = 0; i < l->n; i++) {
        uint64_t loaded = at + l->load_ns, own = loaded + l->own_ns;
        if (l->range)
            make_range(m, l->range, at, loaded);
        if (l->call)
            make_os(m, l->call, at, loaded, 4096);
        make_range(m, "forward", loaded, own);
        if (l->other_ns)
            make_os(m, "nanosleep", own, own + l->other_ns, 0);
        at = own + l->other_ns;
    }
    make_note(m, "exit", (int64_t)(MAKE_BASE + at), NULL);
}

static struct mr_recording *record(const struct cpu_loop *l)
{
    struct make m;
    make_begin(&m, PATH);
    make_cpu_loop(&m, l, 10 * MS);
    make_end(&m);
    return make_load(PATH);
}

static const struct mr_finding *starvation(const struct mr_advice *advice)
{
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (strcmp(f->rule, "data_starvation") == 0)
            return f;
        assert_true(i > 0 || f->verdict == MR_CANNOT_TELL);
    }
    fail();
    return NULL;
}

static struct mr_advice *advise(struct mr_recording *rec, const char *range)
{
    struct mr_advice *advice = NULL;
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.range = (char *)(uintptr_t)range;
    opts.n_cores = 64;
    assert_int_equal(mr_analyze(rec, &opts, &advice), 0);
    return advice;
}

static void ranges(void **state)
{
    (void)state;
    const struct cpu_loop slow = {"DataLoader", "sem_wait", 6 * MS, 3 * MS, MS, 40};
    struct mr_recording *rec = record(&slow);
    struct mr_advice *advice = advise(rec, NULL);
    const struct mr_finding *f = starvation(advice);
    const char *summary = mr_advice_summary(advice);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_DATA);
    assert_ptr_equal(strstr(summary, "data-bound: no device was used"), summary);
    assert_non_null(strstr(summary, "60.0% of the step (6.000 of 10.000 ms) in its loader (the "
                                    "range \"DataLoader\"), 30% in its own code and 10% in other"));
    assert_int_equal(f->verdict, MR_FOUND);
    assert_true(f->per_step && f->saving_ms > 5.999 && f->saving_ms < 6.001);
    assert_non_null(strstr(f->why, "in the range \"forward\""));
    assert_int_equal(mr_table_rows(f->evidence), 38);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
}

/* The counter-case: the loader keeps up. */
static void loader_keeps_up(void **state)
{
    (void)state;
    const struct cpu_loop fast = {"DataLoader", "sem_wait", MS / 20, 9 * MS, MS / 4, 40};
    struct mr_recording *rec = record(&fast);
    struct mr_advice *advice = advise(rec, NULL);
    const char *summary = mr_advice_summary(advice);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_OTHER);
    assert_ptr_equal(strstr(summary, "not data-bound: no device was used"), summary);
    assert_non_null(strstr(summary, "0.5% of the step"));
    assert_int_equal(starvation(advice)->verdict, MR_FINE);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
}

/* Without ranges, calls that read or wait for others are taken for the loader's, and it is said;
 * those that wait for a time are not. */
static void calls(void **state)
{
    (void)state;
    const struct cpu_loop reads = {NULL, "pread64", 6 * MS, 3 * MS, MS, 40},
                          sleeps = {NULL, "clock_nanosleep", 6 * MS, 3 * MS, MS, 40};
    struct mr_recording *rec = record(&reads);
    struct mr_advice *advice = advise(rec, NULL);
    const struct mr_finding *f = starvation(advice);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_DATA);
    assert_non_null(strstr(mr_advice_summary(advice), "by system calls alone"));
    assert_int_equal(f->verdict, MR_FOUND);
    assert_true(!f->per_step && f->saving_ms > 239.9 && f->saving_ms < 240.1);
    assert_true(f->confidence < 0.5);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    rec = record(&sleeps);
    advice = advise(rec, NULL);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_OTHER);
    assert_int_equal(starvation(advice)->verdict, MR_FINE);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
}

/* A shell that waits for the program is not the program; ranges decide before that. */
static void which_process(void **state)
{
    (void)state;
    const struct cpu_loop loop = {NULL, "read", 6 * MS, 3 * MS, MS, 40};
    struct make m;
    make_begin(&m, PATH);
    make_os(&m, "wait4", 1000, 500 * MS, 0);
    make_os(&m, "read", 500 * MS, 501 * MS, 1);
    make_note(&m, "exit", (int64_t)(MAKE_BASE + 502 * MS), NULL);
    make_process(&m, 101, "python3 train.py");
    make_cpu_loop(&m, &loop, 10 * MS);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_advice *advice = advise(rec, NULL);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_DATA);
    mr_advice_destroy(advice);
    /* named, on another thread, of which it is 10 of 100 ms */
    mr_recording_close(rec);
    make_begin(&m, PATH);
    make_cpu_loop(&m, &loop, 10 * MS);
    make_process(&m, 101, "python3 train.py");
    for (uint64_t i = 0; i < 20; i++) {
        make_range(&m, "mine", i * 100 * MS, i * 100 * MS + 5 * MS);
        make_range(&m, "load", i * 100 * MS + 20 * MS, i * 100 * MS + 70 * MS);
    }
    make_end(&m);
    rec = make_load(PATH);
    advice = advise(rec, "mine");
    assert_non_null(strstr(mr_advice_summary(advice),
                           "5.0% of the step (5.000 of 100.000 ms) in its "
                           "loader (the range \"mine\")"));
    mr_advice_destroy(advice);
    advice = advise(rec, NULL);
    assert_non_null(strstr(mr_advice_summary(advice), "50.0% of the step (50.000 of 100.000 ms)"));
    mr_advice_destroy(advice);
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.range = (char *)(uintptr_t) "nobody";
    assert_int_equal(mr_analyze(rec, &opts, &advice), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "nobody"));
    mr_recording_close(rec);
}

/* Two processes that run the same program and work for it: w S / (S - W) of them would do. */
static void workers(void **state)
{
    (void)state;
    const struct cpu_loop loop = {"load", "poll", 6 * MS, 3 * MS, MS, 40};
    struct make m;
    make_begin(&m, PATH);
    make_cpu_loop(&m, &loop, 10 * MS);
    for (uint32_t w = 0; w < 2; w++) {
        make_process(&m, 200 + w, "python3 train.py");
        make_os(&m, "read", 10 * MS, 400 * MS, 1);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_advice *advice = advise(rec, NULL);
    assert_non_null(strstr(starvation(advice)->advice, "= 5 workers would keep up"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
}

/* Loader, own code and other calls are all of the time, whatever overlaps. */
static void adds_up(void **state)
{
    (void)state;
    static const char *const names[] = {"read", "sem_wait", "nanosleep", "brk"};
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct make m;
        struct mr_host_look host;
        struct mr_advice_opts opts;
        uint64_t random = seed;
        mr_advice_opts_init(&opts);
        make_begin(&m, PATH);
        for (int i = 0; i < 60; i++) {
            random = mr_mix64(random + (uint64_t)i);
            uint64_t at = random % (100 * MS), ns = 1 + (random >> 32) % (5 * MS);
            if (i % 3 == 0 && seed % 2)
                make_range(&m, "load", at, at + ns);
            else
                make_os(&m, names[(random >> 20) % 4], at, at + ns, 0);
        }
        make_note(&m, "exit", (int64_t)(MAKE_BASE + 110 * MS), NULL);
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        assert_int_equal(mr_host_look_make(rec, &opts, &host), 1);
        uint64_t sum = 0;
        for (int k = 0; k < MR_N_IDLE; k++) {
            assert_true(host.c.idle_ns[k] <= host.look.wall_ns);
            sum += host.c.idle_ns[k];
        }
        assert_int_equal(sum, host.look.wall_ns);
        mr_host_look_free(&host);
        mr_recording_close(rec);
    }
}

/* CUDA was there and could not be recorded: nothing is said of the rest. */
static void not_recorded(void **state)
{
    (void)state;
    const struct cpu_loop loop = {"load", "poll", 6 * MS, 3 * MS, MS, 40};
    struct make m;
    make_begin(&m, PATH);
    make_cpu_loop(&m, &loop, 10 * MS);
    make_note(&m, "no_cuda", 0, "another profiler has it");
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_advice *advice = advise(rec, NULL);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_UNKNOWN);
    assert_non_null(strstr(mr_advice_summary(advice), "another profiler has it"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
}

/* Neither ranges of a loader nor system calls. */
static void nothing(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, PATH);
    make_range(&m, "forward", 0, 10 * MS);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_advice *advice = advise(rec, NULL);
    assert_int_equal(mr_advice_bound(advice), MR_BOUND_UNKNOWN);
    assert_non_null(strstr(mr_advice_summary(advice), "cannot tell: this recording has no device"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),       cmocka_unit_test(loader_keeps_up),
        cmocka_unit_test(calls),        cmocka_unit_test(which_process),
        cmocka_unit_test(workers),      cmocka_unit_test(adds_up),
        cmocka_unit_test(not_recorded), cmocka_unit_test(nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
