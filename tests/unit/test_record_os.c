/*
 * White-box. Calls of the operating system: recorded when they take long enough, and unharmed. The
 * recorded programs run under the preloaded module; sanitizers want to be first themselves, so
 * there only the wrappers' common part is tried, linked into this program.
 */
#include "record_run.h"
#include "recorder/os/os.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 90 + 1;                                                              \
    } while (0)

/* ---- the recorded programs ---- */

static const char *made(void)
{
    return getenv("MADE");
}

static int run_files(void)
{
    char text[100];
    struct stat found;
    mode_t mask = umask(0);
    int fd = open(made(), O_CREAT | O_RDWR | O_EXCL, 0640);
    EXPECT(fd >= 0 && fstat(fd, &found) == 0 && (found.st_mode & 0777) == 0640);
    umask(mask);
    EXPECT(write(fd, "0123456789", 10) == 10 && pwrite(fd, "abc", 3, 20) == 3);
    struct iovec pieces[2] = {{text, 4}, {text + 4, 3}};
    EXPECT(lseek(fd, 0, SEEK_SET) == 0 && read(fd, text, 7) == 7 &&
           memcmp(text, "0123456", 7) == 0);
    EXPECT(pread(fd, text, 5, 20) == 3 && memcmp(text, "abc", 3) == 0 && readv(fd, pieces, 2) == 7);
    EXPECT(fsync(fd) == 0);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT(map != MAP_FAILED && memcmp(map, "0123", 4) == 0 && munmap(map, 4096) == 0);
    EXPECT(openat(AT_FDCWD, made(), O_RDONLY) == fd + 1 && close(fd) == 0 && close(fd + 1) == 0);
    errno = 0;
    EXPECT(read(fd, text, 1) == -1 && errno == EBADF);
    EXPECT(open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT);
    errno = 7;
    EXPECT(usleep(10) == 0 && errno == 7);
    return 0;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static bool told;

static atomic_bool at_wait;

/* The main thread said that it goes for the mutex, or the futex, and sleeps. Its own file tells: an
 * emulator makes up /proc/self/stat, where it runs for ever. */
static bool main_waits(void)
{
    char path[64], text[400] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    FILE *file = at_wait ? fopen(path, "r") : NULL;
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
    }
    return strstr(text, ") S ") != NULL;
}

static void *hold(void *unused)
{
    pthread_mutex_lock(&mutex);
    sem_post(&semaphore);
    while (!main_waits())
        usleep(1000);
    usleep(5000);
    pthread_mutex_unlock(&mutex);
    sem_wait(&semaphore);
    pthread_mutex_lock(&mutex); /* which the main thread has, until it waits for the condition */
    usleep(5000);
    told = true;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static int run_waits(void)
{
    pthread_t thread;
    struct timespec until;
    struct pollfd none = {.fd = -1};
    EXPECT(sem_init(&semaphore, 0, 0) == 0);
    for (int i = 0; i < 1000; i++) { /* free: no waits */
        EXPECT(pthread_mutex_lock(&mutex) == 0);
        EXPECT(pthread_mutex_unlock(&mutex) == 0);
    }
    EXPECT(pthread_create(&thread, NULL, hold, NULL) == 0 && sem_wait(&semaphore) == 0);
    at_wait = true;
    EXPECT(pthread_mutex_lock(&mutex) == 0 && sem_post(&semaphore) == 0);
    while (!told)
        EXPECT(pthread_cond_wait(&condition, &mutex) == 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000000; /* it may take a while until we wait */
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int rc;
    do
        rc = pthread_cond_timedwait(&condition, &mutex, &until);
    while (rc == 0);
    EXPECT(rc == ETIMEDOUT && pthread_mutex_unlock(&mutex) == 0);
    EXPECT(pthread_join(thread, NULL) == 0 && poll(&none, 1, 10) == 0);
    pthread_mutexattr_t attributes;
    pthread_mutex_t checked;
    EXPECT(pthread_mutexattr_init(&attributes) == 0);
    EXPECT(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK) == 0);
    EXPECT(pthread_mutex_init(&checked, &attributes) == 0 && pthread_mutex_lock(&checked) == 0);
    EXPECT(pthread_mutex_lock(&checked) == EDEADLK);
    EXPECT(pthread_mutex_unlock(&checked) == 0);
    EXPECT(pthread_mutex_unlock(&checked) == EPERM);
    return 0;
}

static int ends[2];
static bool cleaned;
static void clean(void *unused)
{
    (void)unused;
    cleaned = true;
}

static void *read_for_ever(void *unused)
{
    char byte;
    pthread_cleanup_push(clean, NULL);
    while (read(ends[0], &byte, 1) >= 0) {
    }
    pthread_cleanup_pop(0);
    return unused;
}

/* Reads are points of cancellation, as without us. */
static int run_cancelled(void)
{
    pthread_t thread;
    void *result;
    EXPECT(pipe(ends) == 0 && pthread_create(&thread, NULL, read_for_ever, NULL) == 0);
    usleep(20000);
    EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    EXPECT(result == PTHREAD_CANCELED && cleaned);
    EXPECT(write(ends[1], "x", 1) == 1 && usleep(1000) == 0);
    return 0;
}

static sigjmp_buf back;
static void jump(int number)
{
    siglongjmp(back, number);
}

static int run_jumps(void)
{
    char byte;
    struct itimerval soon = {{0, 0}, {0, 10000}};
    EXPECT(pipe(ends) == 0 && signal(SIGALRM, jump) != SIG_ERR);
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, NULL);
            return read(ends[0], &byte, 1) == 1 ? 2 : 3;
        }
    }
    EXPECT(usleep(2000) == 0 && write(ends[1], "x", 1) == 1);
    return 0;
}

static volatile sig_atomic_t n_signals;
static void chat(int number)
{
    char byte;
    int saved = errno;
    (void)number;
    n_signals++;
    if (write(ends[1], "y", 1) != 1 || read(ends[0], &byte, 1) != 1)
        abort();
    errno = saved;
}

static int run_handlers(void)
{
    struct sigaction action = {.sa_handler = chat, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 300}, {0, 300}};
    int other[2];
    char byte;
    EXPECT(pipe(ends) == 0 && pipe(other) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    EXPECT(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    while (n_signals < 300)
        EXPECT(write(other[1], "x", 1) == 1 && read(other[0], &byte, 1) == 1 && byte == 'x');
    timer = (struct itimerval){0};
    EXPECT(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    return 0;
}

static int run_children(void)
{
    int status;
    EXPECT(usleep(1000) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(3000);
        _exit(5);
    }
    EXPECT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    /* Programs do so. */
    /* NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork) */
    child = vfork();
    if (child == 0) {
        close(-1);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    child = vfork();
    if (child == 0)
        _exit(6);
    /* NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork) */
    EXPECT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 6);
    EXPECT(usleep(1000) == 0);
    return 0;
}

static int run_threshold(void)
{
    EXPECT(usleep(30000) == 0 && usleep(100) == 0 && getppid() > 0);
    return 0;
}

static atomic_uint word;
static void *wake_later(void *unused)
{
    while (!main_waits())
        usleep(1000);
    usleep(5000);
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return unused;
}

static int run_futex(void)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, wake_later, NULL) == 0);
    at_wait = true;
    while (word == 0)
        EXPECT(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0 ||
               errno == EAGAIN);
    errno = 0;
    EXPECT(syscall(SYS_close, -1) == -1 && errno == EBADF);
    EXPECT(pthread_join(thread, NULL) == 0);
    return 0;
}

static int run_sockets(void)
{
    int pair[2];
    char text[10];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    EXPECT(send(pair[0], "hello", 5, 0) == 5 && recv(pair[1], text, 10, 0) == 5);
    struct iovec piece = {text, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    EXPECT(sendmsg(pair[0], &message, 0) == 10 && recvmsg(pair[1], &message, 0) == 10);
    return 0;
}

/* Without the module: the wrappers' common part. */
static int run_direct(void)
{
    uint64_t start = record_os_begin();
    EXPECT(start != 0);
    errno = 9;
    usleep(120000);
    errno = 9;
    record_os_end(OS_read, start, 77, 77);
    EXPECT(errno == 9);
    start = record_os_begin();
    record_os_end(OS_write, start, 1, 1); /* at once, or nearly: see the threshold */
    start = record_os_begin();
    usleep(120000);
    record_os_end(OS_close, start, -1, -1);
    for (unsigned i = 0; i < N_OS_CALLS; i++)
        if (i != OS_pthread_cond_clockwait && i != OS_sem_clockwait) /* of newer C libraries */
            EXPECT(record_os_real(i) != NULL);
    return 0;
}

static const struct record_mode modes[] = {
    {"files", run_files},         {"waits", run_waits},       {"cancelled", run_cancelled},
    {"jumps", run_jumps},         {"handlers", run_handlers}, {"children", run_children},
    {"threshold", run_threshold}, {"sockets", run_sockets},   {"direct", run_direct},
    {"futex", run_futex},
};

/* ---- the tests ---- */

#define TRACE "MILLRACE_RECORD_TRACE=8"
#define ALL   "MILLRACE_RECORD_OSRT_NS=0"

/* "LD_PRELOAD=..."; skips the test where that cannot be. */
static const char *preload(void)
{
    static char variable[4200];
    const char *module = getenv("MILLRACE_RECORD_MODULE");
    if (SANITIZED || !module) {
        print_message("SKIP: %s\n",
                      SANITIZED ? "a sanitizer's own wrappers stand where the module's would"
                                : "MILLRACE_RECORD_MODULE does not name the recorder's module");
        skip();
    }
    snprintf(variable, sizeof variable, "LD_PRELOAD=%.4000s", module);
    return variable;
}

/* How many calls of this name moved so many bytes with this result. */
static uint64_t moved(const struct part_look *look, const char *name, int64_t result,
                      uint64_t bytes)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < look->n[MR_PART_OS]; i++) {
        struct mr_part_os os = os_of(look, i);
        n += strcmp(text_of(look, os.name), name) == 0 && os.result == result && os.bytes == bytes;
    }
    return n;
}

static uint64_t longest(const struct part_look *look, const char *name)
{
    struct mr_part_os os;
    calls_named(look, name, &os);
    return os.end_ns - os.start_ns;
}

/* A part is made at its first record's end; that record, and what another thread began earlier, is
 * in its time all the same. */
static void check_none_is_before(const struct part_look *look)
{
    for (uint64_t i = 0; i < look->n[MR_PART_OS]; i++)
        assert_true(os_of(look, i).start_ns >= look->header.start_ns);
}

static void test_files(void **state)
{
    (void)state;
    char made_file[4300];
    struct mr_part_os os;
    snprintf(made_file, sizeof made_file, "MADE=%.4000s/made", record_folder);
    assert_int_equal(
        record_run("MODE=files", TRACE, (const char *const[]){preload(), ALL, made_file, NULL}), 0);
    assert_int_equal(n_looks, 1);
    const struct part_look *look = &looks[0];
    assert_int_equal(moved(look, "write", 10, 10), 1);
    assert_int_equal(moved(look, "pwrite", 3, 3), 1);
    assert_int_equal(moved(look, "read", 7, 7), 1);
    assert_int_equal(moved(look, "readv", 7, 7), 1);
    assert_int_equal(moved(look, "pread", 3, 3), 1);
    assert_int_equal(moved(look, "read", -1, 0), 1);
    assert_int_equal(moved(look, "fsync", 0, 0), 1);
    assert_int_equal(moved(look, "munmap", 0, 4096), 1);
    assert_int_equal(calls_named(look, "mmap", &os), 1);
    assert_int_equal(os.bytes, 4096);
    assert_int_equal(calls_named(look, "open", &os), 2);
    assert_int_equal(calls_named(look, "openat", &os), 1);
    assert_int_equal(calls_named(look, "close", &os), 2);
    assert_int_equal(os.tid, look->header.pid);
    assert_true(part_look_note(look, "exit", NULL) > 0);
}

static void test_waits(void **state)
{
    (void)state;
    struct mr_part_os os;
    assert_int_equal(record_run("MODE=waits", TRACE, (const char *const[]){preload(), ALL, NULL}),
                     0);
    const struct part_look *look = &looks[0];
    assert_true(calls_named(look, "pthread_mutex_lock", &os) < 100);
    assert_true(os.end_ns - os.start_ns > 1000000);
    assert_true(longest(look, "pthread_cond_wait") > 1000000);
    assert_true(longest(look, "pthread_cond_timedwait") > 1000000);
    assert_true(longest(look, "poll") >= 9000000);
    assert_true(longest(look, "usleep") >= 5000000);
    assert_true(calls_named(look, "sem_wait", &os) == 2 &&
                calls_named(look, "pthread_join", &os) == 1);
}

static void test_programs_that_leave_calls(void **state)
{
    (void)state;
    struct mr_part_os os;
    const char *const *environment = (const char *const[]){preload(), ALL, NULL};
    assert_int_equal(record_run("MODE=cancelled", TRACE, environment), 0);
    assert_int_equal(moved(&looks[0], "write", 1, 1), 1);
    record_teardown(NULL);
    record_setup(NULL);
    assert_int_equal(record_run("MODE=jumps", TRACE, environment), 0);
    assert_true(longest(&looks[0], "usleep") >= 2000000);
    assert_int_equal(calls_named(&looks[0], "read", &os), 0); /* none came back */
    record_teardown(NULL);
    record_setup(NULL);
    assert_int_equal(record_run("MODE=handlers", TRACE, environment), 0);
    assert_true(calls_named(&looks[0], "read", &os) > 300);
    assert_true(part_look_note(&looks[0], "exit", NULL) > 0);
}

/* The shell under an emulator is the machine's own, which cannot load the recorder. */
static void skip_shells(void)
{
#ifdef MILLRACE_EMULATED
    print_message("SKIP shells with the recorder: they are of another architecture here\n");
    skip();
#endif
}

static void test_children(void **state)
{
    (void)state;
    skip_shells();
    struct mr_part_os os;
    assert_int_equal(
        record_run("MODE=children", TRACE, (const char *const[]){preload(), ALL, NULL}), 0);
    uint64_t n_forked = 0;
    for (int i = 0; i < n_looks; i++) {
        assert_false(looks[i].cut);
        check_none_is_before(&looks[i]);
        if (calls_named(&looks[i], "waitpid", &os) > 0) {
            assert_int_equal(calls_named(&looks[i], "waitpid", &os), 3);
            assert_int_equal(calls_named(&looks[i], "usleep", &os), 2);
            assert_int_equal(calls_named(&looks[i], "close", &os),
                             0); /* that of the vfork()ed one is not its parent's */
        }
        n_forked += calls_named(&looks[i], "usleep", &os) == 1 &&
                    part_look_note(&looks[i], "exit", NULL) > 0;
    }
    assert_int_equal(n_forked, 1);
}

static void test_threshold(void **state)
{
    (void)state;
    struct mr_part_os os;
    const char *const environment[] = {preload(), "MILLRACE_RECORD_OSRT_NS=20000000", NULL};
    assert_int_equal(record_run("MODE=threshold", TRACE, environment), 0);
    assert_true(calls_named(&looks[0], "usleep", &os) >= 1);
    check_none_is_before(&looks[0]);
    for (uint64_t i = 0; i < looks[0].n[MR_PART_OS]; i++)
        assert_true(os_of(&looks[0], i).end_ns - os_of(&looks[0], i).start_ns >= 20000000);
}

static void test_sockets(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=sockets", TRACE, (const char *const[]){preload(), ALL, NULL}),
                     0);
    assert_int_equal(moved(&looks[0], "send", 5, 5), 1);
    assert_int_equal(moved(&looks[0], "recv", 5, 5), 1);
    assert_int_equal(moved(&looks[0], "sendmsg", 10, 10), 1);
    assert_int_equal(moved(&looks[0], "recvmsg", 10, 10), 1);
}

static void test_futexes(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=futex", TRACE, (const char *const[]){preload(), ALL, NULL}),
                     0);
    assert_true(longest(&looks[0], "futex") > 1000000);
}

static void test_not_traced(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=sockets", "MILLRACE_RECORD_TRACE=4",
                                (const char *const[]){preload(), NULL}),
                     0);
    assert_int_equal(n_looks, 0);
}

/* The same output and exit code with us and without. */
static void test_other_programs(void **state)
{
    (void)state;
    skip_shells();
    static const char python[] =
        "import threading, time, subprocess, multiprocessing as mp\n"
        "def f(x):\n    time.sleep(0.001)\n    return x * x\n"
        "if __name__ == '__main__':\n"
        "    ts = [threading.Thread(target=f, args=(i,)) for i in range(8)]\n"
        "    [t.start() for t in ts]; [t.join() for t in ts]\n"
        "    print(subprocess.run(['sh', '-c', 'echo out; exit 3'], capture_output=True))\n"
        "    with mp.get_context('fork').Pool(3) as p: print(p.map(f, range(20)))\n"
        "    raise SystemExit(7)\n";
    static const char *const programs[][4] = {
        {"bash", "-c",
         "echo a | tr a b; (exit 4); echo $?; for i in 1 2 3; do /bin/echo $i; done; exit 9"},
        {"python3", "-c", python},
        {"git", "--version"},
        {"perl", "-e", "$x = `echo hi`; print $x, fork() ? wait() > 0 : 'child'; exit 2"},
        {"sort", "--parallel=2", "/etc/passwd"},
    };
    const char *const environment[] = {TRACE, preload(), NULL};
    const char *const without[] = {"MILLRACE_RECORD_DIR=", NULL};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        char plain[4096], recorded[4096];
        int want = record_program(programs[i], without, plain);
        if (WEXITSTATUS(want) == 98) {
            print_message("SKIP %s: not installed\n", programs[i][0]);
            continue;
        }
        int got = record_program(programs[i], environment, recorded);
        assert_int_equal(got, want);
        assert_string_equal(recorded, plain);
        assert_true(n_looks > 0);
        record_teardown(NULL);
        record_setup(NULL);
    }
}

static void test_the_common_part(void **state)
{
    (void)state;
    struct mr_part_os os;
    assert_int_equal(record_run("MODE=direct", TRACE,
                                (const char *const[]){"MILLRACE_RECORD_OSRT_NS=100000000", NULL}),
                     0);
    assert_int_equal(looks[0].n[MR_PART_OS], 2);
    check_none_is_before(&looks[0]);
    assert_int_equal(calls_named(&looks[0], "read", &os), 1);
    assert_int_equal(os.result, 77);
    assert_int_equal(os.bytes, 77);
    assert_true(os.end_ns - os.start_ns >= 120000000);
    assert_int_equal(calls_named(&looks[0], "close", &os), 1);
    assert_int_equal(os.result, -1);
    assert_int_equal(os.bytes, 0);
}

int main(void)
{
    int code = record_main(modes, sizeof modes / sizeof modes[0]);
    if (code >= 0)
        return code;
#define TEST(function) cmocka_unit_test_setup_teardown(function, record_setup, record_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_files),           TEST(test_waits),      TEST(test_programs_that_leave_calls),
        TEST(test_children),        TEST(test_sockets),    TEST(test_threshold),
        TEST(test_futexes),         TEST(test_not_traced), TEST(test_other_programs),
        TEST(test_the_common_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
