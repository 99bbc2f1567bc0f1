/* White-box. Traces: what is recorded comes out, whole, nested and in order. */
#include "base/base.h"
#include "read_trace.h"
#include <errno.h>
#include <fcntl.h>
#include <millrace/trace.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- the tests ---- */

static char folder[] = "/tmp/millrace-trace-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/t.pftrace", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails when a test left something behind */
}

static void test_off(void **state)
{
    (void)state;
    assert_int_equal(mr_trace_on(), 0);
    mr_trace_span("nothing", 1, 2, NULL, 0); /* no harm */
    mr_trace_counter("nothing", 1, 2);
    assert_int_equal(mr_trace_stop(path, NULL), MR_EMISUSE);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(mr_trace_start(0), 0);
    assert_int_equal(mr_trace_on(), 1);
    assert_int_equal(mr_trace_start(0), MR_EMISUSE);
    assert_int_equal(mr_trace_stop(NULL, NULL), 0);
    assert_int_equal(mr_trace_on(), 0);
}

static void test_nesting(void **state)
{
    (void)state;
    uint64_t lost = 99;
    mr_trace_thread("the main thread");
    assert_int_equal(mr_trace_start(0), 0);
    /* Recorded when they end, as spans are: the inner ones first. */
    mr_trace_span("inner", 1000, 2000, "bytes", 1ull << 40);
    mr_trace_span("point", 2000, 2000, NULL, 0);
    mr_trace_span("second", 2000, 5000, NULL, 0);
    mr_trace_span("outer", 1000, 5000, "batch", 7);
    mr_trace_span("crossing", 4000, 9000, NULL, 0); /* cannot be told in the format: cut */
    mr_trace_span("backwards", 9500, 9000, NULL, 0);
    mr_trace_span_on("engine", "copy", 300, 400, "bytes", 5);
    mr_trace_span_on("engine", "copy", 100, 300, "bytes", 4);
    mr_trace_counter("ready", 50, 3);
    mr_trace_counter("ready", 20, -4);
    assert_int_equal(mr_trace_stop(path, &lost), 0);
    assert_int_equal(lost, 0);
    decode(path);

    static const struct {
        int type, depth;
        uint64_t time_ns;
        const char *name, *arg_name;
        uint64_t arg;
    } want[] = {
        {1, 0, 1000, "outer", "batch", 7}, {1, 1, 1000, "inner", "bytes", 1ull << 40},
        {2, 1, 2000, "", "", 0},           {1, 1, 2000, "second", "", 0},
        {1, 2, 2000, "point", "", 0},      {2, 2, 2000, "", "", 0},
        {1, 2, 4000, "crossing", "", 0},   {2, 2, 5000, "", "", 0},
        {2, 1, 5000, "", "", 0},           {2, 0, 5000, "", "", 0},
        {1, 0, 9500, "backwards", "", 0},  {2, 0, 9500, "", "", 0},
    };
    const struct track *own = track_named("the main thread"), *engine = track_named("engine"),
                       *ready = track_named("ready");
    assert_true(own->thread && !engine->thread && ready->counter);
    for (size_t i = 0; i < MR_COUNT(want); i++) {
        const struct event *e = nth(own, (int)i);
        assert_int_equal(e->type, want[i].type);
        assert_int_equal(e->depth, want[i].depth);
        assert_int_equal(e->time_ns, want[i].time_ns);
        assert_string_equal(e->name, want[i].name);
        assert_string_equal(e->arg_name, want[i].arg_name);
        assert_int_equal(e->arg, want[i].arg);
    }
    assert_int_equal(own->n_spans, 6);
    assert_int_equal(engine->n_spans, 2);
    assert_true(nth(engine, 0)->time_ns == 100 && nth(engine, 1)->time_ns == 300 &&
                nth(engine, 2)->time_ns == 300);
    assert_int_equal(nth(engine, 1)->type, 2); /* the end comes before the next begin */
    assert_true(nth(ready, 0)->time_ns == 20 && (int64_t)nth(ready, 0)->arg == -4);
    assert_true(nth(ready, 1)->time_ns == 50 && nth(ready, 1)->arg == 3);
}

/* A full ring keeps the newest and counts the rest; sizes need not be powers of two. */
static void test_ring(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 7, 1000};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        for (uint64_t n = sizes[i] - 1; n <= 3 * sizes[i]; n += sizes[i] / 2 + 1) {
            uint64_t lost = 0, kept = MR_MIN(n, (uint64_t)sizes[i]);
            mr_trace_thread("ring");
            assert_int_equal(mr_trace_start(sizes[i]), 0);
            for (uint64_t k = 0; k < n; k++)
                mr_trace_span("span", 10 * k, 10 * k + 5, "k", k);
            assert_int_equal(mr_trace_stop(path, &lost), 0);
            assert_int_equal(lost, n - kept);
            decode(path);
            assert_int_equal(trace.n_events, 2 * kept);
            for (uint64_t k = 0; k < kept; k++)
                assert_int_equal(nth(track_named("ring"), (int)(2 * k))->arg, n - kept + k);
        }
    }
}

struct work {
    int number;
    char name[32];
};

static void *record_some(void *arg)
{
    struct work *w = arg;
    mr_trace_thread(w->name);
    for (uint64_t k = 0; k < 500; k++) {
        mr_trace_span("work", 1000 * k, 1000 * k + 400, "k", k);
        mr_trace_span_on("shared", "turn", 8 * k + (uint64_t)w->number,
                         8 * k + (uint64_t)w->number + 1, NULL, 0);
        mr_trace_counter("count", 8 * k + (uint64_t)w->number, (int64_t)k);
    }
    return NULL;
}

/* Threads that have ended by the time of the stop are there, each with all it did; a second trace
 * starts empty. */
static void test_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        pthread_t thread[8];
        struct work work[8];
        assert_int_equal(mr_trace_start(2000), 0);
        for (int i = 0; i < 8; i++) {
            work[i].number = i;
            snprintf(work[i].name, sizeof work[i].name, "worker %d.%d", round, i);
            assert_int_equal(pthread_create(&thread[i], NULL, record_some, &work[i]), 0);
        }
        for (int i = 0; i < 8; i++)
            pthread_join(thread[i], NULL);
        uint64_t lost = 1;
        assert_int_equal(mr_trace_stop(path, &lost), 0);
        assert_int_equal(lost, 0);
        decode(path);
        for (int i = 0; i < 8; i++)
            assert_int_equal(track_named(work[i].name)->n_spans, 500);
        assert_int_equal(track_named("shared")->n_spans, 8 * 500);
        assert_true(track_named("count")->counter);
        assert_int_equal(trace.n_events, 2 * 8 * 500 * 2 + 8 * 500);
    }
}

static atomic_bool enough;

static void *record_on_and_on(void *arg)
{
    while (!atomic_load(&enough)) {
        mr_trace_span("on", 1, 2, NULL, 0);
        mr_trace_counter("and on", 1, 2);
    }
    return arg;
}

static void *come_and_go(void *arg)
{
    while (!atomic_load(&enough)) {
        pthread_t thread;
        struct work work = {.name = "guest"};
        if (pthread_create(&thread, NULL, record_some, &work) == 0)
            pthread_join(thread, NULL);
    }
    return arg;
}

/* Traces start and stop under threads that record, begin and end all the while. For the thread
 * sanitizer, too. */
static void test_start_and_stop(void **state)
{
    (void)state;
    pthread_t thread[3];
    atomic_store(&enough, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, i ? record_on_and_on : come_and_go, NULL),
                         0);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(mr_trace_start(100), 0);
        usleep(500);
        assert_int_equal(mr_trace_stop(i % 3 ? NULL : path, NULL), 0);
        if (i % 3 == 0)
            decode(path);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
}

/* A write that fails ends the trace all the same, and leaves neither a partial file nor a changed
 * one. */
static void test_write_fails(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int code;
    } bad[] = {{"/nonexistent/t.pftrace", -ENOENT}, {"/dev/full", -ENOSPC}, {"/", -EISDIR}};
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        assert_int_equal(mr_trace_start(0), 0);
        mr_trace_span("span", 1, 2, NULL, 0);
        int rc = mr_trace_stop(bad[i].path, NULL);
        assert_true(rc < 0);
        if (bad[i].code != -EISDIR) /* some other name for it will do */
            assert_int_equal(rc, bad[i].code);
        assert_non_null(strstr(mr_last_error(), bad[i].path));
        assert_int_equal(mr_trace_on(), 0);
    }
}

/* The disk fills up half-way: the file that was there stays, and nothing else is left
 * (remove_folder would fail). */
static void test_write_fails_half_way(void **state)
{
    (void)state;
    assert_int_equal(mr_trace_start(0), 0);
    mr_trace_span("kept", 1, 2, NULL, 0);
    assert_int_equal(mr_trace_stop(path, NULL), 0);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 20000;
    assert_int_equal(mr_trace_start(0), 0);
    for (uint64_t i = 0; i < 5000; i++)
        mr_trace_span("lost", i, i + 1, NULL, 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = mr_trace_stop(path, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(mr_last_error(), path));
    decode(path);
    assert_int_equal(trace.n_events, 2);
}

/* Names too long for the format's reader to like are cut, not written past the end of a buffer. */
static void test_long_names(void **state)
{
    (void)state;
    static char name[5000];
    memset(name, 'x', sizeof name - 1);
    assert_int_equal(mr_trace_start(0), 0);
    mr_trace_thread(name);
    mr_trace_span(name, 1, 2, name, 3);
    mr_trace_span_on(name, name, 1, 2, name, 3);
    mr_trace_counter(name, 1, 2);
    assert_int_equal(mr_trace_stop(path, NULL), 0);
    decode(path);
    assert_int_equal(trace.n_events, 5);
    mr_trace_thread("main");
}

/* What a span costs, on and off: printed, for the record. */
static void test_cost(void **state)
{
    (void)state;
    static const int n = 200000;
    uint64_t cost[2];
    for (int on = 0; on < 2; on++) {
        if (on)
            assert_int_equal(mr_trace_start(4096), 0);
        uint64_t before = mr_time_ns();
        for (int i = 0; i < n; i++)
            mr_trace_span("span", (uint64_t)i, (uint64_t)i + 1, "i", (uint64_t)i);
        cost[on] = mr_time_ns() - before;
    }
    uint64_t lost = 0;
    assert_int_equal(mr_trace_stop(NULL, &lost), 0);
    assert_int_equal(lost, n - 4096);
    print_message("a span costs %.1f ns with a trace and %.1f ns without\n", (double)cost[1] / n,
                  (double)cost[0] / n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_start_and_stop),
        cmocka_unit_test(test_write_fails),
        cmocka_unit_test(test_write_fails_half_way),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
