/*
 * White-box. The recorder's core: what threads put arrives, whatever becomes of the process. Each
 * test runs this program again as the recorded one, with the environment that `millrace profile`
 * sets, and reads the parts that it left.
 */
#include "part_look.h"
#include "recorder/private.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define SLOW true
#else
#define SLOW false
#endif
#define MAX_PARTS 8
static char self[4096], folder[4096];
static struct part_look looks[MAX_PARTS];
static int n_looks;

static void put_range(uint64_t payload, const char *text)
{
    struct mr_part_range range = {.start_ns = record_now(),
                                  .payload = payload,
                                  .text = record_string(text),
                                  .tid = record_tid(),
                                  .type = MR_RANGE_PUSH_POP};
    range.end_ns = range.start_ns + 1;
    record_put(MR_PART_RANGE, &range);
}

/* The recorded programs. */

static void *put_thousand(void *base)
{
    char text[32];
    for (uint64_t i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "text %u", (unsigned)(i % 50));
        put_range((uint64_t)(uintptr_t)base + i, text);
    }
    return NULL;
}

static int run_plain(void)
{
    put_thousand(NULL);
    return 0;
}

static int run_threads(void)
{
    pthread_t threads[16];
    for (uintptr_t round = 0; round < 64; round++) {
        for (uintptr_t i = 0; i < 16; i++)
            if (pthread_create(&threads[i], NULL, put_thousand,
                               (void *)((round * 16 + i) * 1000)) != 0)
                return 1;
        for (int i = 0; i < 16; i++)
            pthread_join(threads[i], NULL);
        if (round == 7 && getenv("FEWER"))
            return 0;
    }
    return 0;
}

/* The writer has had its turn by then, whatever else the machine does. */
static void wait_for_the_writer(void)
{
    usleep(1000 * record_flush_ms() * 30);
}

static int run_killed(void)
{
    put_thousand(NULL);
    wait_for_the_writer();
    raise(SIGKILL);
    return 0;
}

static int run_fork(void)
{
    put_range(1, "parent before");
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 10; i++)
            put_range(100, "child");
        exit(0);
    }
    put_range(2, "parent after");
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static atomic_bool stop;
static void *put_for_ever(void *unused)
{
    (void)unused;
    char text[32];
    for (unsigned i = 0; !stop; i++) {
        snprintf(text, sizeof text, "busy %u", i % 2000);
        put_range(7, text);
        if (i % 64 == 0)
            usleep(50);
    }
    return NULL;
}

/* Forks while other threads hold whatever they hold. */
static int run_forks(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, put_for_ever, NULL) != 0)
            return 1;
    for (int i = 0; i < 5; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            put_range(100, "child");
            exit(0);
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            return 1;
    }
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static int run_exec(void)
{
    put_range(1, "before exec");
    record_flush();
    setenv("MODE", "plain", 1);
    execl(self, self, (char *)NULL);
    return 1;
}

static int run_quick_exit(void)
{
    put_range(1, "quick");
    wait_for_the_writer();
    _exit(3);
}

static int run_closer(void)
{
    put_range(1, "one");
    record_flush();
    for (int fd = 3; fd < 2000; fd++)
        close(fd);
    /* Something of the program's own takes the numbers. */
    int other = open(getenv("OTHER"), O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 600; i++)
        if (dup(other) < 0)
            return 1;
    put_range(2, "two");
    return 0;
}

static int run_full(void)
{
    struct rlimit limit = {20000, 20000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    for (int i = 0; i < 5; i++) {
        put_thousand(NULL);
        record_flush();
    }
    return 0;
}

static void listen_capture(bool on)
{
    put_range(on ? 501 : 500, "listener");
}

static int run_capture(void)
{
    record_on_capture(listen_capture);
    for (uint64_t i = 0; i < 6; i++) {
        record_capture(i % 2);
        for (int j = 0; j < 10; j++)
            if (record_wants(MR_TRACE_NVTX))
                put_range(i, "inside");
    }
    return 0;
}

static int run_delay(void)
{
    uint64_t begin = record_now();
    while (record_now() - begin < 1500000000) {
        if (record_wants(MR_TRACE_NVTX))
            put_range(record_now() - begin, "tick");
        usleep(1000);
    }
    return 0;
}

static int run_many(void)
{
    struct mr_part_kernel *kernels = calloc(5000, sizeof *kernels);
    if (!kernels)
        return 1;
    for (uint32_t i = 0; i < 5000; i++)
        kernels[i].correlation = i;
    record_put_many(MR_PART_KERNEL, kernels, 10);
    record_inside = true;
    record_put_many(MR_PART_KERNEL, kernels, 5000);
    record_inside = false;
    record_note("warning", 5, "a note");
    free(kernels);
    return 0;
}

static void listen_to_nothing(bool on)
{
    (void)on;
}

/* A range for each short step, and CUPTI's records of its calls long after. Moments of the last
 * 4000 are known; older ones count. */
static int run_many_ranges(void)
{
    enum { N = 5000 };
    static uint64_t inside[N], outside[N];
    record_on_capture(listen_to_nothing);
    if (record_in_capture(record_now()))
        return 1;
    uint64_t before = record_now();
    for (int i = 0; i < N; i++) {
        record_capture(true);
        inside[i] = record_now();
        while (record_now() <= inside[i])
            ;
        record_capture(false);
        outside[i] = record_now();
        while (record_now() <= outside[i])
            ;
    }
    for (int i = N - 4000; i < N; i++)
        if (!record_in_capture(inside[i]) || record_in_capture(outside[i]))
            return 2;
    for (int i = 0; i < 100; i++)
        if (record_in_capture(inside[i]))
            return 3;
    return record_in_capture(before) ? 4 : 0; /* not even perhaps */
}

/* Plays a CUPTI that lets nobody switch it while a callback runs. */
static pthread_mutex_t cupti_lock;
static pthread_t callback_thread;
static atomic_bool writer_waits, told_on;
static void switch_cupti(bool on)
{
    if (!pthread_equal(pthread_self(), callback_thread))
        atomic_store(&writer_waits, true);
    pthread_mutex_lock(&cupti_lock);
    atomic_store(&told_on, on);
    pthread_mutex_unlock(&cupti_lock);
}

/* The duration ends within a callback of the program's thread, which then ends the range. */
static int run_callbacks(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&cupti_lock, &recursive);
    callback_thread = pthread_self();
    alarm(40); /* ends us where we hang */
    put_range(1, "the writer runs");
    record_on_capture(switch_cupti);
    pthread_mutex_lock(&cupti_lock);
    record_capture(true);
    if (!atomic_load(&told_on))
        return 2;
    while (!atomic_load(&writer_waits))
        usleep(1000);
    record_capture(false);
    pthread_mutex_unlock(&cupti_lock);
    while (atomic_load(&told_on))
        usleep(1000);
    return 0;
}

static void exit_in_a_handler(int number)
{
    (void)number;
    if (record_is_busy())
        exit(7);
}

/* Until a signal comes while a new text is made. TSan gives signals only between calls: there it
 * may never come so. */
static int run_handler_exits(void)
{
    struct sigaction action = {.sa_handler = exit_in_a_handler};
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    uint64_t begin = record_now();
    char text[32];
    alarm(40); /* ends us where we hang */
    put_range(1, "first");
    if (sigaction(SIGVTALRM, &action, NULL) != 0 || setitimer(ITIMER_VIRTUAL, &timer, NULL) != 0)
        return 1;
    for (unsigned i = 0; record_now() - begin < (SLOW ? 500000000u : 20000000000u); i++) {
        snprintf(text, sizeof text, "%u", i % 1000000);
        record_string(text);
    }
    return SLOW ? 7 : 2;
}

/* Names that the program gives: to itself, then to tracks and threads whose numbers are alike
 * modulo powers of two. */
static int run_names(void)
{
    const uint32_t apart[] = {MR_PART_FIRST_TRACK, 1024, 2048, 4096, 8192};
    for (uint32_t i = 0; i <= sizeof apart / sizeof *apart; i++) {
        uint32_t tid = i == 0   ? record_tid()
                       : i == 1 ? apart[0] + record_tid() % 1024
                                : record_tid() + apart[i - 1];
        record_put(MR_PART_THREAD,
                   &(struct mr_part_thread){tid, record_string(i ? "another" : "given")});
        record_flush();
    }
    return 0;
}

static const struct mode {
    const char *name;
    int (*run)(void);
} modes[] = {{"plain", run_plain},
             {"threads", run_threads},
             {"killed", run_killed},
             {"fork", run_fork},
             {"forks", run_forks},
             {"exec", run_exec},
             {"quick", run_quick_exit},
             {"closer", run_closer},
             {"full", run_full},
             {"capture", run_capture},
             {"delay", run_delay},
             {"many", run_many},
             {"handler", run_handler_exits},
             {"callbacks", run_callbacks},
             {"ranges", run_many_ranges},
             {"names", run_names}};

static int run_mode(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, name) == 0)
            return modes[i].run();
    return 99;
}

/* The tests. */

/* Runs a mode; environment: "NAME=VALUE" ..., NULL. Returns waitpid's status; its output must be
 * empty. */
static int record(const char *mode, const char *const *environment)
{
    char output[4200];
    int status;
    snprintf(output, sizeof output, "%.4000s/output", folder);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(output, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        close(fd);
        setenv("MILLRACE_RECORD_DIR", folder, 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0",
               1); /* its search prints when threads of ours are about to end */
        setenv("MILLRACE_RECORD_TRACE", "4", 1);
        setenv("MILLRACE_RECORD_FLUSH_MS", "50", 1);
        setenv("MODE", mode, 1);
        for (; environment && *environment; environment++)
            putenv((char *)*environment);
        execl(self, self, (char *)NULL);
        _exit(98);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    struct stat printed;
    assert_int_equal(stat(output, &printed), 0);
    if (printed.st_size != 0) {
        char text[2000] = "";
        FILE *file = fopen(output, "r");
        if (file) {
            text[fread(text, 1, sizeof text - 1, file)] = 0;
            fclose(file);
        }
        fail_msg("%s printed: %s", mode, text);
    }
    n_looks = part_look_folder(folder, looks, MAX_PARTS);
    return status;
}

static struct mr_part_range range_at(const struct part_look *look, uint64_t i)
{
    struct mr_part_range range;
    memcpy(&range, look->of[MR_PART_RANGE] + i * sizeof range, sizeof range);
    return range;
}

/* Every payload of [0, n) once, each with its own text. */
static void check_all(const struct part_look *look, uint64_t n)
{
    assert_int_equal(look->n[MR_PART_RANGE], n);
    uint8_t *seen = calloc(n, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        struct mr_part_range range = range_at(look, i);
        char want[32];
        snprintf(want, sizeof want, "text %u", (unsigned)(range.payload % 1000 % 50));
        assert_true(range.payload < n && !seen[range.payload]);
        seen[range.payload] = 1;
        assert_non_null(look->text[range.text]);
        assert_string_equal(look->text[range.text], want);
    }
    free(seen);
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", "/tmp/millrace-record.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[4200];
    for (int i = 0; i < n_looks; i++)
        part_look_free(&looks[i]);
    n_looks = 0;
    snprintf(command, sizeof command, "rm -rf '%.4000s'", folder);
    return system(command);
}

static void test_plain(void **state)
{
    (void)state;
    assert_int_equal(record("plain", NULL), 0);
    assert_int_equal(n_looks, 1);
    check_all(&looks[0], 1000);
    assert_false(looks[0].cut);
    assert_int_equal(looks[0].header.traced, MR_TRACE_NVTX);
    assert_true(part_look_note(&looks[0], "exit", NULL) > (int64_t)looks[0].header.start_ns);
    assert_int_equal(looks[0].n[MR_PART_PROCESS], 1);
    struct mr_part_process process;
    memcpy(&process, looks[0].of[MR_PART_PROCESS], sizeof process);
    assert_string_equal(looks[0].text[process.executable], self);
    assert_true(looks[0].n[MR_PART_THREAD] >= 1);
}

static void test_nothing_asked_nothing_made(void **state)
{
    (void)state;
    assert_int_equal(record("plain", (const char *const[]){"MILLRACE_RECORD_DIR=", NULL}), 0);
    assert_int_equal(n_looks, 0);
    assert_int_equal(record("plain", (const char *const[]){"MILLRACE_RECORD_TRACE=0", NULL}), 0);
    assert_int_equal(n_looks, 0);
    assert_int_equal(
        record("plain", (const char *const[]){"MILLRACE_RECORD_DIR=/nowhere/at/all", NULL}), 0);
    assert_int_equal(n_looks, 0);
}

static void test_thousands_of_threads(void **state)
{
    (void)state;
    bool slow = SLOW;
    assert_int_equal(record("threads", slow ? (const char *const[]){"FEWER=1", NULL} : NULL), 0);
    assert_int_equal(n_looks, 1);
    check_all(&looks[0], slow ? 128000 : 1024000);
    assert_int_equal(part_look_note(&looks[0], "dropped", NULL), -1);
}

static void test_killed(void **state)
{
    (void)state;
    int status = record("killed", NULL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(n_looks, 1);
    check_all(&looks[0], 1000);
    assert_int_equal(part_look_note(&looks[0], "exit", NULL), -1);
}

/* ThreadSanitizer ends a child that makes a thread after a fork of several. */
static void skip_forks(void)
{
    if (SLOW) {
        print_message("SKIP forks under ThreadSanitizer: it permits no threads in the child\n");
        skip();
    }
}

static void test_fork(void **state)
{
    (void)state;
    skip_forks();
    assert_int_equal(record("fork", NULL), 0);
    assert_int_equal(n_looks, 2);
    int parent = looks[0].header.pid == looks[1].header.ppid ? 0 : 1;
    assert_int_equal(looks[parent].header.pid, looks[1 - parent].header.ppid);
    assert_int_equal(looks[parent].n[MR_PART_RANGE], 2);
    assert_int_equal(looks[1 - parent].n[MR_PART_RANGE], 10);
    for (int i = 0; i < 10; i++) {
        struct mr_part_range range = range_at(&looks[1 - parent], (uint64_t)i);
        assert_int_equal(range.payload, 100);
        assert_int_equal(range.tid, looks[1 - parent].header.pid);
        assert_string_equal(looks[1 - parent].text[range.text], "child");
    }
    for (int i = 0; i < 2; i++)
        assert_true(part_look_note(&looks[i], "exit", NULL) > 0);
}

/* qemu-user's child may wait for ever for a lock of the emulator itself, which another thread had
 * when it was forked. */
static void test_forks_of_a_busy_parent(void **state)
{
    (void)state;
#ifdef MILLRACE_EMULATED
    print_message("SKIP forks of several threads: the emulator hangs\n");
    skip();
#endif
    skip_forks();
    assert_int_equal(record("forks", NULL), 0);
    assert_int_equal(n_looks, 6);
    int children = 0;
    for (int i = 0; i < 6; i++) {
        assert_true(part_look_note(&looks[i], "exit", NULL) > 0);
        children += looks[i].n[MR_PART_RANGE] == 1 && range_at(&looks[i], 0).payload == 100;
    }
    assert_int_equal(children, 5);
}

static void test_exec(void **state)
{
    (void)state;
    assert_int_equal(record("exec", NULL), 0);
    assert_int_equal(n_looks, 2);
    int first = looks[0].n[MR_PART_RANGE] == 1 ? 0 : 1;
    assert_int_equal(looks[0].header.pid, looks[1].header.pid);
    assert_int_equal(looks[first].n[MR_PART_RANGE], 1);
    check_all(&looks[1 - first], 1000);
}

static void test_quick_exit(void **state)
{
    (void)state;
    int status = record("quick", NULL);
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_RANGE], 1);
}

/* A program that closes every number, and then uses them itself, is not written into. */
static void test_closed_descriptors(void **state)
{
    (void)state;
    char other[4200], variable[4300];
    struct stat status;
    snprintf(other, sizeof other, "%.4000s/other", folder);
    snprintf(variable, sizeof variable, "OTHER=%s", other);
    assert_int_equal(record("closer", (const char *const[]){variable, NULL}), 0);
    assert_int_equal(stat(other, &status), 0);
    assert_int_equal(status.st_size, 0);
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_RANGE], 2);
}

static void test_full_disk(void **state)
{
    (void)state;
    assert_int_equal(record("full", NULL), 0);
    assert_int_equal(n_looks, 1);
    assert_true(looks[0].bytes <= 20000);
    assert_false(looks[0].cut);
}

static void test_capture(void **state)
{
    (void)state;
    assert_int_equal(
        record("capture", (const char *const[]){"MILLRACE_RECORD_CAPTURE=cudaProfilerApi", NULL}),
        0);
    assert_int_equal(n_looks, 1);
    uint64_t inside = 0, on = 0, off = 0;
    for (uint64_t i = 0; i < looks[0].n[MR_PART_RANGE]; i++) {
        uint64_t payload = range_at(&looks[0], i).payload;
        inside += payload == 1;
        on += payload == 501;
        off += payload == 500;
    }
    assert_int_equal(inside, 10);
    assert_int_equal(on, 1);
    assert_int_equal(off, 2);
    assert_int_equal(looks[0].n[MR_PART_RANGE], 13);
    assert_true(part_look_note(&looks[0], "capture_start", NULL) <=
                part_look_note(&looks[0], "capture_stop", NULL));
}

static void test_capture_repeats(void **state)
{
    (void)state;
    const char *const environment[] = {"MILLRACE_RECORD_CAPTURE=nvtx:x",
                                       "MILLRACE_RECORD_CAPTURE_END=repeat", NULL};
    assert_int_equal(record("capture", environment), 0);
    assert_int_equal(n_looks, 1);
    uint64_t inside = 0;
    for (uint64_t i = 0; i < looks[0].n[MR_PART_RANGE]; i++) {
        uint64_t payload = range_at(&looks[0], i).payload;
        assert_true(payload % 2 == 1 || payload == 500);
        inside += payload < 500;
    }
    assert_int_equal(inside, 30);
}

static void test_delay_and_duration(void **state)
{
    (void)state;
    const char *const environment[] = {"MILLRACE_RECORD_DELAY_NS=500000000",
                                       "MILLRACE_RECORD_DURATION_NS=300000000", NULL};
    assert_int_equal(record("delay", environment), 0);
    assert_int_equal(n_looks, 1);
    assert_true(looks[0].n[MR_PART_RANGE] > 0);
    for (uint64_t i = 0; i < looks[0].n[MR_PART_RANGE]; i++) {
        struct mr_part_range range = range_at(&looks[0], i);
        uint64_t first = range_at(&looks[0], 0).payload;
        assert_true(range.payload >= 100000000 && range.payload - first <= 600000000);
    }
}

/* The kernel's name of a thread is not told after the program's. */
static void test_given_names(void **state)
{
    (void)state;
    const char *last = NULL;
    assert_int_equal(record("names", NULL), 0);
    assert_int_equal(n_looks, 1);
    for (uint64_t i = 0; i < looks[0].n[MR_PART_THREAD]; i++) {
        struct mr_part_thread thread;
        memcpy(&thread, looks[0].of[MR_PART_THREAD] + i * sizeof thread, sizeof thread);
        if (thread.tid == looks[0].header.pid)
            last = looks[0].text[thread.name];
    }
    assert_non_null(last);
    assert_string_equal(last, "given");
}

static void test_many_at_once(void **state)
{
    (void)state;
    assert_int_equal(record("many", (const char *const[]){"MILLRACE_RECORD_TRACE=1", NULL}), 0);
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 5010);
    const char *text = NULL;
    assert_int_equal(part_look_note(&looks[0], "warning", &text), 5);
    assert_string_equal(text, "a note");
}

static void test_exit_in_a_handler(void **state)
{
    (void)state;
    int status = record("handler", NULL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_int_equal(n_looks, 1);
}

static void test_no_waiting_for_callbacks(void **state)
{
    (void)state;
    const char *const environment[] = {"MILLRACE_RECORD_CAPTURE=cudaProfilerApi",
                                       "MILLRACE_RECORD_CAPTURE_END=repeat",
                                       "MILLRACE_RECORD_DURATION_NS=3000000000", NULL};
    assert_int_equal(record("callbacks", environment), 0);
}

static void test_many_capture_ranges(void **state)
{
    (void)state;
    const char *const environment[] = {"MILLRACE_RECORD_CAPTURE=cudaProfilerApi",
                                       "MILLRACE_RECORD_CAPTURE_END=repeat", NULL};
    assert_int_equal(record("ranges", environment), 0);
    int64_t dropped = 0; /* told in parts, as the writer comes by */
    for (uint64_t i = 0; i < looks[0].n[MR_PART_NOTE]; i++) {
        struct mr_part_note note;
        memcpy(&note, looks[0].of[MR_PART_NOTE] + i * sizeof note, sizeof note);
        if (looks[0].text[note.name] && strcmp(looks[0].text[note.name], "dropped") == 0)
            dropped += note.value;
    }
    assert_int_equal(dropped, 100);
}

/* All six arguments arrive, and failures are the C library's: -1 and errno. */
static void test_direct_system_calls(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = memfd_create("pages", MFD_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pwrite(fd, i ? "b" : "a", 1, (off_t)(i * page)), 1);
    assert_int_equal(ftruncate(fd, (off_t)(2 * page)), 0);
    char *second =
        (void *)record_syscall(SYS_mmap, NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)page);
    assert_ptr_not_equal(second, MAP_FAILED);
    assert_int_equal(second[0], 'b');
    const char *first = record_map_file(fd, page);
    assert_non_null(first);
    assert_int_equal(first[0], 'a');
    assert_int_equal(record_syscall(SYS_munmap, second, page), 0);
    record_unmap((void *)first, page);
    errno = 0;
    assert_int_equal(record_syscall(SYS_close, fd), 0);
    assert_int_equal(errno, 0);
    assert_int_equal(record_syscall(SYS_close, fd), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(record_syscall(SYS_getpid), getpid());
    assert_null(record_map_file(-1, page));
}

int main(void)
{
    const char *mode = getenv("MODE");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    if (mode)
        return run_mode(mode);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct_system_calls),
        cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_asked_nothing_made, setup, teardown),
        cmocka_unit_test_setup_teardown(test_thousands_of_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forks_of_a_busy_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exec, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quick_exit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_capture, setup, teardown),
        cmocka_unit_test_setup_teardown(test_capture_repeats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_delay_and_duration, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exit_in_a_handler, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_waiting_for_callbacks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_capture_ranges, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
