/*
 * A program whose stacks are known, for tests of `millrace profile --sample`.
 *
 *   stacks_app MODE     exit status 0: all went as without a sampler
 */
#include <errno.h>
#include <fcntl.h>
#include <millrace/callback.h>
#include <millrace/dataset.h>
#include <millrace/error.h>
#include <millrace/loader.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline __attribute__((always_inline)) unsigned long inlined_mix(unsigned long x)
{
    for (int i = 0; i < 2000; i++)
        x = (x ^ x >> 31) * 0x7fb5d329728ea185ul;
    return x;
}

NOINLINE static void hot_function(double for_s)
{
    for (double end = seconds() + for_s; seconds() < end;)
        for (unsigned long i = 0; i < 50; i++)
            sink += inlined_mix(i);
}

NOINLINE static void known_wait(double for_s)
{
    usleep((useconds_t)(for_s * 1e6)); /* WAITS */
    sink++;
}

/* Without the C library, whose functions the recorder has wrappers of. */
NOINLINE static void bare_wait(double for_s)
{
    struct timespec time = {(time_t)for_s, (long)((for_s - (double)(time_t)for_s) * 1e9)};
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_nanosleep), "D"(&time), "S"(NULL)
                     : "rcx", "r11", "memory");
#else
    nanosleep(&time, NULL);
#endif
    sink++;
}

NOINLINE static int deep(int n)
{
    if (n == 0)
        known_wait(0.3);
    else
        sink += (unsigned long)deep(n - 1);
    return n + 1;
}

/* ---- threads ---- */

static void *brief(void *unused)
{
    (void)unused;
    hot_function(0.002);
    return NULL;
}

/* Threads that end while they are looked at. */
static int threads(void)
{
    for (int i = 0; i < 100; i++) {
        pthread_t all[4];
        for (int k = 0; k < 4; k++)
            if (pthread_create(&all[k], NULL, brief, NULL))
                return 1;
        for (int k = 0; k < 4; k++)
            pthread_join(all[k], NULL);
    }
    return 0;
}

static void *deaf(void *unused)
{
    sigset_t all;
    (void)unused;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    hot_function(0.6);
    return NULL;
}

static int blocked(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, deaf, NULL) || pthread_join(thread, NULL);
}

/* ---- processes ---- */

static int forks(const char *self)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        known_wait(0.4);
        hot_function(0.4);
        _exit(3);
    }
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3)
        return 1;
    for (int i = 0; i < 20; i++) { /* an exec as the sampler looks */
        child = fork();
        if (child == 0) {
            hot_function(0.01);
            execl(self, self, "none", (char *)NULL);
            _exit(9);
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            return 2;
    }
    return 0;
}

/* ---- signals ---- */

static atomic_int n_prof, n_urg, n_strange;

static void on_prof(int number, siginfo_t *info, void *context)
{
    (void)context;
    atomic_fetch_add(number == SIGURG ? &n_urg : &n_prof, 1);
    if (number == SIGURG && (info->si_code != SI_TKILL || info->si_pid != getpid()))
        atomic_fetch_add(&n_strange, 1);
}

/* A profiler of the program's own, and a handler of SIGURG: both get what is theirs. */
static int signals(void)
{
    struct sigaction action = {.sa_sigaction = on_prof, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct itimerval timer = {{0, 2000}, {0, 2000}}, none = {{0, 0}, {0, 0}};
    hot_function(0.3);
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &timer, NULL);
    for (int i = 0; i < 100 && n_prof <= 5; i++) /* the timer counts processor time, of which a busy
                                                  * machine may give little */
        hot_function(0.3);
    setitimer(ITIMER_PROF, &none, NULL);
    sigaction(SIGURG, &action, NULL);
    raise(SIGURG);
    hot_function(0.5);
    return n_prof > 5 && n_urg >= 1 && n_strange <= 1 ? 0 : 1;
}

/* Calls that signals may hardly interrupt: none is sent to a thread that waits, but one may come
 * some microseconds late, when a call has begun. Signals that are sent to all interrupt each. */
static int interrupted(void)
{
    int pipe_fds[2], n = 0;
    struct pollfd fd;
    if (pipe(pipe_fds))
        return 1;
    fd = (struct pollfd){pipe_fds[0], POLLIN, 0};
    for (int i = 0; i < 5; i++) {
        struct timespec time = {0, 150000000};
        n += poll(&fd, 1, 150) != 0;
        n += nanosleep(&time, NULL) != 0;
        n += syscall(SYS_nanosleep, &time, NULL) != 0;
    }
    if (n)
        fprintf(stderr, "%d of 15 calls were interrupted\n", n);
    return n > 5;
}

/* ---- a loader ---- */

NOINLINE static int slow_get(void *user, uint64_t index, void *const row[],
                             uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    (void)dim;
    usleep(4000); /* SLEEPS */
    *(float *)row[0] = (float)index;
    return 0;
}

static int loads(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds = NULL;
    struct mr_loader_opts opts;
    struct mr_loader *loader = NULL;
    struct mr_batch batch = {.size = sizeof batch};
    mr_callback_opts_init(&o);
    o.name = "slow";
    o.n = 400;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32};
    o.get = slow_get;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.workers = 2;
    int rc = mr_dataset_open_callback(&o, &ds);
    if (rc == 0)
        rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    for (int i = 0; i < 40 && rc >= 0 && (rc = mr_loader_next(loader, NULL, &batch)) > 0; i++) {
        hot_function(0.001);
        mr_loader_release(loader, &batch, NULL);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_loader_close(loader);
    mr_dataset_close(ds);
    return rc < 0;
}

int main(int n_args, char **args)
{
    const char *mode = n_args > 1 ? args[1] : "none";
    if (strcmp(mode, "hot") == 0)
        hot_function(0.7), known_wait(0.5), bare_wait(0.5), deep(60);
    else if (strcmp(mode, "threads") == 0)
        return threads();
    else if (strcmp(mode, "blocked") == 0)
        return blocked();
    else if (strcmp(mode, "forks") == 0)
        return forks(args[0]);
    else if (strcmp(mode, "signals") == 0)
        return signals();
    else if (strcmp(mode, "interrupted") == 0)
        return interrupted();
    else if (strcmp(mode, "loads") == 0)
        return loads();
    else if (strcmp(mode, "work") == 0) /* as much work each time */
        for (unsigned long i = 0; i < 600000; i++)
            sink += inlined_mix(i);
    return 0;
}
