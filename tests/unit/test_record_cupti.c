/*
 * The CUPTI injection, with a CUPTI that is not there: a small program (tests/support/fake_app.c)
 * is injected as the driver would do it, and the parts that it left are read.
 */
#include "part_look.h"
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PARTS 4
/* How long programs with samplers take: under an emulator these come to fewer samples. */
#ifdef MILLRACE_EMULATED
#define SLOWNESS 10ull
#define MS(n)    #n "0"
#else
#define SLOWNESS 1ull
#define MS(n)    #n
#endif
static char folder[64];
static struct part_look looks[MAX_PARTS];
static int n_looks;

/* Runs fake_app; words: its arguments, NULL, then "NAME=VALUE" ..., NULL. Returns waitpid's status;
 * it must print nothing. */
static int record(const char *const *words)
{
    char output[128];
    const char *arguments[16] = {FAKE_APP};
    int n = 1, status;
    struct stat printed;
    snprintf(output, sizeof output, "%s/output", folder);
    for (; *words; words++)
        arguments[n++] = *words;
    arguments[n] = NULL;
    pid_t child = fork();
    if (child == 0) {
        int fd = open(output, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv("CUDA_INJECTION64_PATH", RECORD_MODULE, 1);
        setenv("MILLRACE_CUPTI", FAKE_CUPTI, 1);
        setenv("MILLRACE_RECORD_DIR", folder, 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0",
               1); /* its search prints when threads of ours are about to end */
        setenv("MILLRACE_RECORD_TRACE", "1", 1);
        setenv("MILLRACE_RECORD_FLUSH_MS", "50", 1);
        for (words++; *words; words++)
            putenv((char *)*words);
        execv(FAKE_APP, (char *const *)arguments);
        _exit(97);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(stat(output, &printed), 0);
    if (printed.st_size) {
        char command[256];
        snprintf(command, sizeof command, "cat %s", output);
        fail_msg("printed %d bytes; cat: %d", (int)printed.st_size, system(command));
    }
    n_looks = part_look_folder(folder, looks, MAX_PARTS);
    return status;
}

#define RECORD(...) record((const char *const[]){__VA_ARGS__, NULL, NULL})
#define AT(look, type, index, record)                                                              \
    memcpy(&(record), (look)->of[type] + (index) * sizeof(record), sizeof(record))

static const char *text(const struct part_look *look, uint32_t id)
{
    return id < 65536 && look->text[id] ? look->text[id] : "";
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/millrace-cupti.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    for (int i = 0; i < n_looks; i++)
        part_look_free(&looks[i]);
    n_looks = 0;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Each step's copy of 1000 + its number, once. In any order: a buffer that is flushed may be
 * written after the one that was begun next. */
static void check_copies(const struct part_look *look, uint64_t n, uint32_t copies_in_one)
{
    bool seen[1000] = {false};
    assert_true(n <= sizeof seen);
    for (uint64_t i = 0; i < 2 * n; i++) {
        struct mr_part_copy copy;
        AT(look, MR_PART_COPY, i, copy);
        if (copy.bytes == 5) /* the other one of each step */
            continue;
        uint64_t step = copy.bytes - 1000;
        assert_true(step < n && !seen[step]);
        seen[step] = true;
        assert_true(copy.src_kind == (step % 2 ? 1 : 2) && copy.dst_kind == 3);
        assert_true(copy.count == copies_in_one && copy.kind == 1 &&
                    copy.end_ns - copy.start_ns == 500);
    }
    for (uint64_t i = 0; i < n; i++)
        assert_true(seen[i]);
}

/* 300 steps of the program: what matters of each is there, once, with its fields; queries and inner
 * driver calls are not. */
static void check_steps(const struct part_look *look, uint64_t n, uint32_t copies_in_one)
{
    uint64_t lost = 0, launches = 0, driver = 0;
    assert_int_equal(look->n[MR_PART_KERNEL], n);
    assert_int_equal(look->n[MR_PART_COPY], 2 * n);
    assert_int_equal(look->n[MR_PART_API], 4 * n);
    uint64_t named[2] = {0};
    for (uint64_t i = 0; i < n; i++) {
        struct mr_part_kernel kernel;
        AT(look, MR_PART_KERNEL, i, kernel);
        lost += kernel.start_ns == 0 && kernel.end_ns == 0;
        named[0] += strcmp(text(look, kernel.name), "_Z3mulPf") == 0;
        named[1] += strcmp(text(look, kernel.name), "_Z3addPf") == 0;
        assert_true(kernel.grid[0] == 10 && kernel.grid[1] == 2 && kernel.block[0] == 256 &&
                    kernel.registers == 32);
        assert_true(kernel.dynamic_shared == 1024 && kernel.graph == 5 && kernel.graph_node == 77 &&
                    kernel.stream == 7);
    }
    assert_int_equal(lost, n / 100);
    assert_true(named[0] == (n + 1) / 2 && named[1] == n / 2);
    check_copies(look, n, copies_in_one);
    for (uint64_t i = 0; i < 4 * n; i++) {
        struct mr_part_api api;
        AT(look, MR_PART_API, i, api);
        const char *name = text(look, api.name);
        assert_string_not_equal(name, "cudaGetDevice_v3020");
        assert_string_not_equal(name, "cuLaunchKernel");
        launches += strcmp(name, "cudaLaunchKernel_v7000") == 0;
        driver += strcmp(name, "cuMemcpyHtoDAsync_v2") == 0 && api.class == MR_PART_DRIVER;
        assert_int_equal(api.tid, look->header.pid);
    }
    assert_int_equal(launches, n);
    assert_int_equal(driver, n);
    assert_true(part_look_note(look, "exit", NULL) > 0);
}

static void test_steps(void **state)
{
    (void)state;
    assert_int_equal(RECORD("steps", "300"), 0);
    assert_int_equal(n_looks, 1);
    check_steps(&looks[0], 300, 3);
    assert_int_equal(part_look_note(&looks[0], "no_cuda", NULL), -1);
    assert_int_equal(part_look_note(&looks[0], "warning", NULL), -1);
}

/* CUDA 12.0, 12.4, 12.8, 13.1: their records have other sizes. */
static void test_versions(void **state)
{
    static const char *const versions[] = {"19", "22", "26", "130100"};
    for (size_t i = 0; i < 4; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "FAKE_CUPTI_VERSION=%s", versions[i]);
        assert_int_equal(record((const char *const[]){"steps", "300", NULL, variable, NULL}), 0);
        assert_int_equal(n_looks, 1);
        check_steps(&looks[0], 300, i < 2 ? 1 : 3);
        teardown(state);
        setup(state);
    }
}

static void test_unknown_version_warns(void **state)
{
    (void)state;
    assert_int_equal(
        record((const char *const[]){"steps", "300", NULL, "FAKE_CUPTI_VERSION=140000", NULL}), 0);
    check_steps(&looks[0], 300, 3);
    assert_int_equal(part_look_note(&looks[0], "warning", NULL), 140000);
}

static void test_other_kinds(void **state)
{
    (void)state;
    assert_int_equal(record((const char *const[]){"others", NULL, "MILLRACE_RECORD_API=all", NULL}),
                     0);
    assert_int_equal(n_looks, 1);
    const struct part_look *look = &looks[0];
    struct mr_part_set set;
    struct mr_part_copy peer;
    struct mr_part_memory memory;
    struct mr_part_overhead overhead;
    struct mr_part_device device;
    struct mr_part_context context;
    struct mr_part_stream stream;
    assert_true(look->n[MR_PART_SET] == 1 && look->n[MR_PART_COPY] == 1 &&
                look->n[MR_PART_SYNC] == 1);
    assert_true(look->n[MR_PART_MEMORY] == 1 && look->n[MR_PART_OVERHEAD] == 1 &&
                look->n[MR_PART_DEVICE] == 1);
    assert_true(look->n[MR_PART_CONTEXT] == 1 && look->n[MR_PART_STREAM] == 1 &&
                look->n[MR_PART_GRAPH] == 0);
    AT(look, MR_PART_SET, 0, set);
    assert_true(set.bytes == 4096 && set.value == 5 && set.kind == 3);
    AT(look, MR_PART_COPY, 0, peer);
    assert_true(peer.src_device == 1 && peer.dst_device == 2 && peer.kind == 10 &&
                peer.count == 1 && peer.bytes == 99);
    AT(look, MR_PART_MEMORY, 0, memory);
    assert_true(memory.address == 0x1000 && memory.bytes == 512 && memory.operation == 1);
    AT(look, MR_PART_OVERHEAD, 0, overhead);
    assert_int_equal(overhead.tid, 4242);
    AT(look, MR_PART_DEVICE, 0, device);
    assert_string_equal(text(look, device.name), "Fake H200");
    assert_true(device.n_sms == 132 && device.n_copy_engines == 3 &&
                device.memory_bandwidth == 4000000000ull);
    AT(look, MR_PART_CONTEXT, 0, context);
    assert_true(context.null_stream == 7 && context.green_parent == 9);
    AT(look, MR_PART_STREAM, 0, stream);
    assert_true(stream.stream == 13 && stream.flags == 2);
}

static void test_light(void **state)
{
    (void)state;
    assert_int_equal(
        record((const char *const[]){"steps", "50", NULL, "MILLRACE_RECORD_TRACE=2", NULL}), 0);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 0);
    assert_int_equal(looks[0].n[MR_PART_COPY], 100);
    assert_int_equal(looks[0].n[MR_PART_API], 150);
}

static void test_all_calls(void **state)
{
    (void)state;
    assert_int_equal(
        record((const char *const[]){"steps", "50", NULL, "MILLRACE_RECORD_API=all", NULL}), 0);
    assert_int_equal(looks[0].n[MR_PART_API], 50 * 15);
}

static void test_another_subscriber(void **state)
{
    (void)state;
    const char *why = NULL;
    assert_int_equal(
        record((const char *const[]){"steps", "50", NULL, "FAKE_CUPTI_REFUSE=39", NULL}), 0);
    assert_int_equal(n_looks, 1);
    assert_int_equal(part_look_note(&looks[0], "no_cuda", &why), 39);
    assert_non_null(strstr(why, "another profiler"));
    assert_int_equal(looks[0].n[MR_PART_API], 0);
    assert_true(part_look_note(&looks[0], "exit", NULL) > 0);
}

static void test_too_old(void **state)
{
    (void)state;
    const char *why = NULL;
    assert_int_equal(
        record((const char *const[]){"steps", "50", NULL, "FAKE_CUPTI_VERSION=18", NULL}), 0);
    assert_int_equal(part_look_note(&looks[0], "no_cuda", &why), 0);
    assert_non_null(strstr(why, "version 18"));
}

static void test_drops_and_refused_kinds(void **state)
{
    (void)state;
    const char *why = NULL;
    assert_int_equal(record((const char *const[]){"steps", "50", NULL, "FAKE_CUPTI_DROP=17",
                                                  "FAKE_CUPTI_NO_KIND=49", NULL}),
                     0);
    assert_int_equal(part_look_note(&looks[0], "dropped", NULL), 17);
    assert_int_equal(part_look_note(&looks[0], "warning", &why), 21);
    assert_non_null(strstr(why, "allocations"));
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 50);
}

static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(RECORD("threads", "16"), 0);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 16000);
    assert_int_equal(looks[0].n[MR_PART_COPY], 32000);
    assert_int_equal(part_look_note(&looks[0], "dropped", NULL), -1);
}

static void test_killed(void **state)
{
    (void)state;
    int status = RECORD("kill", "1000");
    assert_true(WIFSIGNALED(status));
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 100);
    assert_int_equal(part_look_note(&looks[0], "exit", NULL), -1);
}

/* _exit(), as Python's multiprocessing ends its workers, where OS calls are traced: nothing waits
 * for a flush that does not come. */
static void test_quick_exit(void **state)
{
    (void)state;
    int status = record((const char *const[]){"leave", "100", NULL, "MILLRACE_RECORD_TRACE=9",
                                              "MILLRACE_RECORD_FLUSH_MS=3600000", NULL});
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 100);
    assert_int_equal(part_look_note(&looks[0], "warning", NULL), -1);
    assert_true(part_look_note(&looks[0], "exit", NULL) > 0);
}

static void test_capture_range(void **state)
{
    (void)state;
    const char *const once[] = {"capture", NULL, "MILLRACE_RECORD_CAPTURE=cudaProfilerApi", NULL};
    const char *const each[] = {"capture", NULL, "MILLRACE_RECORD_CAPTURE=cudaProfilerApi",
                                "MILLRACE_RECORD_CAPTURE_END=repeat", NULL};
    assert_int_equal(record(once), 0);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 100);
    assert_true(part_look_note(&looks[0], "capture_start", NULL) <
                part_look_note(&looks[0], "capture_stop", NULL));
    teardown(state);
    setup(state);
    assert_int_equal(record(each), 0);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 200);
    assert_int_equal(looks[0].n[MR_PART_COPY], 400);
}

static void test_fork(void **state)
{
    (void)state;
    assert_int_equal(RECORD("fork"), 0);
    assert_int_equal(n_looks, 1); /* the child has nothing to say */
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 20);
}

/* The part's samples are one for each metric and time, on our clock and inside of the process's
 * life. */
static uint64_t check_samples(const struct part_look *look, uint64_t n_metrics)
{
    uint64_t n = look->n[MR_PART_METRIC], last = 0;
    assert_int_equal(n % n_metrics, 0);
    for (uint64_t i = 0; i < n; i++) {
        struct mr_part_metric sample;
        AT(look, MR_PART_METRIC, i, sample);
        assert_float_equal(sample.value, 10 * (double)(i % n_metrics + 1), 1e-4);
        assert_int_equal(sample.device, 0);
        assert_non_null(strstr(text(look, sample.name), "%]"));
        assert_true(sample.time_ns + 1000000000 > look->header.start_ns);
        assert_true(sample.time_ns < look->header.start_ns + 60000000000ull * SLOWNESS);
        if (i % n_metrics)
            assert_int_equal(sample.time_ns, last);
        else if (i) /* the clock's distance is found more exactly as time passes */
            assert_true(sample.time_ns >= last || last - sample.time_ns < 1000000000);
        last = sample.time_ns;
    }
    return n / n_metrics;
}

static void test_metrics(void **state)
{
    (void)state;
    assert_int_equal(
        record((const char *const[]){"pause", MS(1000), NULL, "MILLRACE_RECORD_TRACE=33", NULL}),
        0);
    assert_true(check_samples(&looks[0], 6) > 1000);
    struct mr_part_metric first, second;
    AT(&looks[0], MR_PART_METRIC, 0, first);
    AT(&looks[0], MR_PART_METRIC, 6, second);
    assert_true((int64_t)(second.time_ns - first.time_ns) <
                50000000); /* what began before sampling is left out */
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 10);
    assert_true(part_look_note(&looks[0], "metrics_clock", NULL) > -1);
    assert_int_equal(part_look_note(&looks[0], "no_metrics", NULL), -1);
    teardown(state);
    setup(state);
    assert_int_equal(
        record((const char *const[]){"pause", MS(400), NULL, "MILLRACE_RECORD_TRACE=32",
                                     "MILLRACE_RECORD_METRICS_HZ=200",
                                     "FAKE_CUPTI_PM_UNKNOWN=sm__pipe_tensor", NULL}),
        0);
    uint64_t n = check_samples(&looks[0], 6);
    assert_true(n > 10 && n < 2000);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 0);
}

/* Names that no chip has: the others are sampled all the same. */
static void test_metrics_unknown(void **state)
{
    (void)state;
    assert_int_equal(
        record((const char *const[]){"pause", MS(600), NULL, "MILLRACE_RECORD_TRACE=33",
                                     "FAKE_CUPTI_PM_UNKNOWN=pcie__", NULL}),
        0);
    assert_true(check_samples(&looks[0], 4) > 100);
    teardown(state);
    setup(state);
    assert_int_equal(record((const char *const[]){"pause", MS(50), NULL, "MILLRACE_RECORD_TRACE=33",
                                                  "FAKE_CUPTI_PM_UNKNOWN=__", NULL}),
                     0);
    assert_int_equal(looks[0].n[MR_PART_METRIC], 0);
    assert_true(part_look_note(&looks[0], "no_metrics", NULL) >= 0);
}

static void test_metrics_refused(void **state)
{
    static const struct {
        const char *setting, *why;
    } cases[] = {{"FAKE_CUPTI_PM_ENABLE=35", "35)"},
                 {"FAKE_CUPTI_PM_ENABLE=26", "another profiler"},
                 {"FAKE_CUPTI_PM_ENABLE=43", "MIG"},
                 {"MILLRACE_CUPTI=" FAKE_CUPTI_OLD, "CUDA 12.6"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *why = NULL;
        assert_int_equal(
            record((const char *const[]){"pause", MS(500), NULL, "MILLRACE_RECORD_TRACE=33",
                                         cases[i].setting, NULL}),
            0);
        assert_int_equal(part_look_note(&looks[0], "no_metrics", &why), 0);
        assert_non_null(strstr(why, cases[i].why));
        assert_int_equal(looks[0].n[MR_PART_KERNEL], 10);
        assert_int_equal(looks[0].n[MR_PART_METRIC], 0);
        teardown(state);
        setup(state);
    }
}

/* One sample, the first, which begins before sampling and is left out: that there are none is
 * said. */
static void test_metrics_first_only(void **state)
{
    (void)state;
    const char *why = NULL;
    assert_int_equal(record((const char *const[]){"pause", "1300", NULL, "MILLRACE_RECORD_TRACE=33",
                                                  "MILLRACE_RECORD_METRICS_HZ=1", NULL}),
                     0);
    if (looks[0].n[MR_PART_METRIC] > 0) /* it took so long that there was a second one */
        skip();
    assert_true(part_look_note(&looks[0], "no_metrics", &why) >= 0);
    assert_non_null(strstr(why, "before the first sample"));
}

/* The device's buffer was full: sampling goes on, and the recording says so. */
static void test_metrics_overflow(void **state)
{
    (void)state;
    const char *why = NULL;
    assert_int_equal(
        record((const char *const[]){"pause", MS(600), NULL, "MILLRACE_RECORD_TRACE=33",
                                     "FAKE_CUPTI_PM_OVERFLOW=5", NULL}),
        0);
    assert_true(part_look_note(&looks[0], "warning", &why) >= 0);
    assert_non_null(strstr(why, "frequency"));
    assert_true(check_samples(&looks[0], 6) > 100);
}

/* However many samples come while others are decoded: sampling ends with the program. */
static void test_metrics_slow(void **state)
{
    (void)state;
    const char *why = "";
    assert_int_equal(
        record((const char *const[]){"pause", MS(800), NULL, "MILLRACE_RECORD_TRACE=33",
                                     "FAKE_CUPTI_PM_SLOW=20", NULL}),
        0);
    assert_int_equal(part_look_note(&looks[0], "warning", &why), -1);
    assert_true(check_samples(&looks[0], 6) > 1000);
}

/* Each of the calls fails in turn, alone and with all after it: the program does not notice, and
 * there are samples or a note. */
static void test_metrics_failures(void **state)
{
    for (unsigned n = 1; n < 40; n++) {
        char fail[64];
        snprintf(fail, sizeof fail, "FAKE_CUPTI_PM_FAIL=%u%s", n, n % 2 ? "" : "+");
        assert_int_equal(record((const char *const[]){"pause", MS(40), NULL,
                                                      "MILLRACE_RECORD_TRACE=33", fail, NULL}),
                         0);
        assert_int_equal(n_looks, 1);
        assert_int_equal(looks[0].n[MR_PART_KERNEL], 10);
        bool told = part_look_note(&looks[0], "no_metrics", NULL) >= 0 ||
                    part_look_note(&looks[0], "warning", NULL) >= 0;
        assert_true(told || looks[0].n[MR_PART_METRIC] > 0);
        teardown(state);
        setup(state);
    }
}

static void test_metrics_killed(void **state)
{
    (void)state;
    int status =
        record((const char *const[]){"kill", MS(1000), NULL, "MILLRACE_RECORD_TRACE=33", NULL});
    assert_true(WIFSIGNALED(status));
    assert_true(check_samples(&looks[0], 6) > 500);
}

/* _exit(): sampling ends in good order, so that the last samples are there. */
static void test_metrics_quick_exit(void **state)
{
    (void)state;
    int status = record(
        (const char *const[]){"leave", "10", MS(600), NULL, "MILLRACE_RECORD_TRACE=41", NULL});
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 10);
    assert_true(check_samples(&looks[0], 6) > 100);
    assert_true(part_look_note(&looks[0], "metrics_clock", NULL) >= 0);
    assert_int_equal(part_look_note(&looks[0], "warning", NULL), -1);
}

/* Only in the range; not in a forked child. */
static void test_metrics_capture(void **state)
{
    (void)state;
    assert_int_equal(
        record((const char *const[]){"pause", MS(200), NULL, "MILLRACE_RECORD_TRACE=33",
                                     "MILLRACE_RECORD_CAPTURE=cudaProfilerApi", NULL}),
        0);
    for (int i = 0; i < n_looks; i++)
        assert_int_equal(looks[i].n[MR_PART_METRIC], 0);
    teardown(state);
    setup(state);
    assert_int_equal(record((const char *const[]){"fork", NULL, "MILLRACE_RECORD_TRACE=33", NULL}),
                     0);
    assert_int_equal(n_looks, 1);
    teardown(state);
    setup(state);
    assert_int_equal(
        record((const char *const[]){"pause", MS(1600), NULL, "MILLRACE_RECORD_TRACE=32",
                                     "MILLRACE_RECORD_DURATION_NS=" MS(400) "000000", NULL}),
        0);
    struct mr_part_metric first, last;
    assert_true(looks[0].n[MR_PART_METRIC] > 6);
    AT(&looks[0], MR_PART_METRIC, 0, first);
    AT(&looks[0], MR_PART_METRIC, looks[0].n[MR_PART_METRIC] - 1, last);
    assert_true(last.time_ns - first.time_ns < 1100000000 * SLOWNESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_version_warns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_light, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_subscriber, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_old, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drops_and_refused_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quick_exit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_capture_range, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_first_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_overflow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_slow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_quick_exit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_capture, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
