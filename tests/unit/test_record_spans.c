/* The library's own spans in a recording: they go there from the start, and traces that a program
 * runs itself go on beside. */
#include "record_run.h"

#include <millrace/trace.h>
#include <pthread.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 90 + 1;                                                              \
    } while (0)

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *work(void *unused)
{
    mr_trace_thread("worker 7");
    uint64_t start = now();
    mr_trace_span("decode", start, start + 1000, "sample", 42);
    return unused;
}

static int run_spans(void)
{
    pthread_t thread;
    uint64_t start = now();
    EXPECT(mr_trace_on() == 1);
    mr_trace_span("before", start, start + 10, NULL, 0);
    EXPECT(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(mr_trace_start(0) == 0);
    for (uint64_t i = 0; i < 3; i++) {
        mr_trace_span_on("engine A", "copy", start + 100 * i, start + 100 * i + 50, "bytes", i);
        mr_trace_span_on(i % 2 ? "engine B" : "engine A", "kernel", start + 100 * i,
                         start + 100 * i + 50, NULL, 0);
        mr_trace_counter("ready", start + i, -(int64_t)i);
    }
    EXPECT(mr_trace_stop(getenv("PERFETTO"), NULL) == 0);
    EXPECT(mr_trace_on() == 1);
    mr_trace_span("after", start, start + 10, NULL, 0);
    pid_t child = fork();
    if (child == 0) {
        mr_trace_span_on("engine B", "in the child", start, start + 5, NULL, 0);
        exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

static int run_off(void)
{
    EXPECT(mr_trace_on() == 0);
    mr_trace_span("nowhere", 1, 2, NULL, 0);
    EXPECT(mr_trace_start(0) == 0 && mr_trace_on() == 1 && mr_trace_stop(NULL, NULL) == 0 &&
           mr_trace_on() == 0);
    return 0;
}

static const struct record_mode modes[] = {{"spans", run_spans}, {"off", run_off}};

static void check_parent(const struct part_look *look)
{
    struct mr_part_range range, other;
    assert_int_equal(look->n[MR_PART_RANGE], 9);
    assert_int_equal(ranges_named(look, "before", &range), 1);
    assert_string_equal(text_of(look, range.domain), "millrace");
    assert_int_equal(range.tid, look->header.pid);
    assert_int_equal(ranges_named(look, "after", &range), 1);
    assert_int_equal(ranges_named(look, "decode", &range), 1);
    assert_int_equal(range.end_ns - range.start_ns, 1000);
    assert_int_equal(range.payload, 42);
    assert_string_equal(text_of(look, range.category_name), "sample");
    assert_string_equal(thread_name(look, range.tid), "worker 7");
    assert_int_equal(ranges_named(look, "copy", &range), 3);
    assert_true(range.tid >= MR_PART_FIRST_TRACK && range.tid < 1u << 24);
    assert_string_equal(thread_name(look, range.tid), "engine A");
    assert_int_equal(ranges_named(look, "kernel", &other), 3);
    assert_int_equal(other.tid, range.tid);
    assert_int_equal(look->n[MR_PART_METRIC], 3);
    for (uint64_t i = 0; i < 3; i++) {
        struct mr_part_metric metric;
        memcpy(&metric, look->of[MR_PART_METRIC] + i * sizeof metric, sizeof metric);
        assert_string_equal(text_of(look, metric.name), "ready");
        assert_true(metric.value == -(double)i);
        assert_int_equal(metric.device, UINT32_MAX);
    }
}

static void test_spans(void **state)
{
    (void)state;
    char perfetto[4200], variable[4300];
    struct stat written;
    struct mr_part_range range;
    if (!getenv("MILLRACE_RECORD_MODULE")) {
        print_message("SKIP: MILLRACE_RECORD_MODULE does not name the recorder's module\n");
        skip();
    }
    snprintf(perfetto, sizeof perfetto, "%.4000s/trace", record_folder);
    snprintf(variable, sizeof variable, "PERFETTO=%s", perfetto);
    assert_int_equal(
        record_run("MODE=spans", "MILLRACE_RECORD_TRACE=16", (const char *const[]){variable, NULL}),
        0);
    assert_int_equal(n_looks, 2);
    int parent = looks[0].header.pid == looks[1].header.ppid ? 0 : 1;
    check_parent(&looks[parent]);
    assert_int_equal(looks[1 - parent].n[MR_PART_RANGE], 1);
    assert_int_equal(ranges_named(&looks[1 - parent], "in the child", &range), 1);
    assert_string_equal(thread_name(&looks[1 - parent], range.tid), "engine B");
    assert_int_equal(stat(perfetto, &written), 0);
    assert_true(written.st_size > 0);
}

static void test_not_asked(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=off", "MILLRACE_RECORD_TRACE=4", NULL), 0);
    assert_int_equal(
        record_run("MODE=off", "MILLRACE_RECORD_TRACE=16",
                   (const char *const[]){"MILLRACE_RECORD_MODULE=/nowhere/at/all.so", NULL}),
        0);
    assert_int_equal(n_looks, 0);
}

int main(void)
{
    int code = record_main(modes, sizeof modes / sizeof modes[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_spans, record_setup, record_teardown),
        cmocka_unit_test_setup_teardown(test_not_asked, record_setup, record_teardown),
    };
    return code >= 0 ? code : cmocka_run_group_tests(tests, NULL, NULL);
}
