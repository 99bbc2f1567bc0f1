/* Starts of bench processes: from the call until the new thread or process has reported that it
 * runs, and until it has ended. */
#include "bench/bench.h"
#include "bench/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct start {
    struct processes_server *server;
    enum processes_start way;
    int report[2]; /* a byte from each that runs */
    uint64_t begin_ns, runs_ns, ended_ns;
    double server_cpu_us; /* of the latest start */
};

static int failed(const char *what, int error)
{
    return mr_error_set(-error, "%s: %s", what, strerror(error));
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return failed("waitpid", errno);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : mr_error_set(MR_ESTATE, "a process that was started ended with status %d: want 0",
                              status);
}

static int hear(struct start *s, int fd)
{
    char byte;
    int rc = processes_read(fd, &byte, 1);
    s->runs_ns = mr_time_ns();
    return rc < 0 ? failed("the new thread or process did not report that it runs", -rc) : 0;
}

static int tell(void *user)
{
    return processes_write(*(int *)user, "", 1) < 0;
}

static void *tell_thread(void *user)
{
    tell(user);
    return NULL;
}

static int start_thread(struct start *s)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, tell_thread, &s->report[1]);
    if (error)
        return failed("pthread_create", error);
    int rc = hear(s, s->report[0]);
    pthread_join(thread, NULL);
    return rc;
}

static int start_fork(struct start *s)
{
    pid_t pid = processes_fork(tell, &s->report[1]);
    if (pid < 0)
        return failed("fork", -pid);
    int rc = hear(s, s->report[0]);
    int ended = wait_for(pid);
    return rc < 0 ? rc : ended;
}

/* Starts this program again: it runs once it has written its version. */
static int spawn(int out, pid_t *pid)
{
    static char name[] = "millrace", option[] = "--version";
    char *args[] = {name, option, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int error = posix_spawn(pid, "/proc/self/exe", &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error ? failed("posix_spawn", error) : 0;
}

static int start_spawn(struct start *s)
{
    int ends[2];
    char rest[256];
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return failed("pipe", errno);
    int rc = spawn(ends[1], &pid);
    close(ends[1]);
    if (rc == 0) {
        rc = hear(s, ends[0]);
        while (read(ends[0], rest, sizeof rest) > 0)
            ;
        int ended = wait_for(pid);
        rc = rc < 0 ? rc : ended;
    }
    close(ends[0]);
    return rc;
}

/* ---- the server ---- */

/* CPU time of this process and of its children that have ended. */
static double family_cpu_us(void)
{
    struct rusage of;
    getrusage(RUSAGE_CHILDREN, &of);
    return processes_cpu_us(0) + 1e6 * (double)(of.ru_utime.tv_sec + of.ru_stime.tv_sec) +
           (double)(of.ru_utime.tv_usec + of.ru_stime.tv_usec);
}

struct service {
    int fd, other, report; /* its end, its parent's */
};

/* A byte asks for a child. The answer, once that has ended: CPU time, negative after an error. */
static int serve(void *user)
{
    struct service *s = user;
    char byte;
    close(s->other);
    while (processes_read(s->fd, &byte, 1) == 0) {
        double before = family_cpu_us();
        pid_t child = processes_fork(tell, &s->report);
        int rc = child < 0 ? -1 : wait_for(child);
        double cpu_us = rc < 0 ? -1 : family_cpu_us() - before;
        if (processes_write(s->fd, &cpu_us, sizeof cpu_us) < 0)
            return 1;
    }
    return 0;
}

int processes_server_open(struct processes_server *server)
{
    int pair[2], report[2];
    *server = (struct processes_server){0, -1, -1};
    if (pipe2(report, O_CLOEXEC) != 0)
        return failed("pipe", errno);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        int rc = failed("socketpair", errno);
        close(report[0]);
        close(report[1]);
        return rc;
    }
    pid_t pid = processes_fork(serve, &(struct service){pair[1], pair[0], report[1]});
    close(pair[1]);
    close(report[1]);
    *server = (struct processes_server){pid, pair[0], report[0]};
    if (pid > 0)
        return 0;
    processes_server_close(server);
    return failed("fork", (int)-pid);
}

void processes_server_close(struct processes_server *server)
{
    processes_end(server->pid, &server->fd);
    if (server->report >= 0)
        close(server->report);
    *server = (struct processes_server){0, -1, -1};
}

static int start_by_server(struct start *s)
{
    int rc = processes_write(s->server->fd, "", 1);
    if (rc == 0)
        rc = hear(s, s->server->report);
    if (rc == 0)
        rc = processes_read(s->server->fd, &s->server_cpu_us, sizeof s->server_cpu_us);
    if (rc == 0 && s->server_cpu_us < 0)
        rc = -ECHILD;
    return rc < 0 ? failed("the server that forks", -rc) : 0;
}

/* ---- measuring ---- */

static int start_once(struct start *s)
{
    s->begin_ns = mr_time_ns();
    int rc = s->way == START_THREAD   ? start_thread(s)
             : s->way == START_SPAWN  ? start_spawn(s)
             : s->way == START_SERVER ? start_by_server(s)
                                      : start_fork(s);
    s->ended_ns = mr_time_ns();
    return rc;
}

static int repeat(const struct processes_opts *opts, struct start *s, double *runs, double *ended,
                  struct processes_result *out)
{
    double before = 0, server_us = 0;
    for (uint64_t i = 0; i <= opts->starts; i++) {
        int rc = start_once(s);
        if (rc < 0)
            return rc;
        if (i == 0) { /* that was to warm up */
            before = family_cpu_us();
            continue;
        }
        runs[i - 1] = 1e-3 * (double)(s->runs_ns - s->begin_ns);
        ended[i - 1] = 1e-3 * (double)(s->ended_ns - s->begin_ns);
        server_us += s->server_cpu_us;
        if (cli_interrupted())
            break;
    }
    double n = (double)opts->starts;
    *out = (struct processes_result){bench_median(runs, opts->starts),
                                     bench_median(ended, opts->starts),
                                     (family_cpu_us() - before + server_us) / n, opts->starts, 0};
    return 0;
}

/* Memory that a fork has to copy the page tables of. Small pages: huge ones have few tables, and a
 * program's memory is seldom in huge ones alone. */
static int fill(uint64_t bytes, void **out)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return failed("memory to fork with", errno);
    madvise(pages, bytes, MADV_NOHUGEPAGE);
    memset(pages, 1, bytes);
    *out = pages;
    return 0;
}

int processes_start(const struct processes_opts *opts, struct processes_server *server,
                    enum processes_start way, struct processes_result *out)
{
    struct start s = {.server = server, .way = way};
    double *runs = calloc(2 * opts->starts, sizeof *runs);
    void *pages = NULL;
    if (!runs)
        return mr_error_set(-ENOMEM, "no memory for %llu starts", (unsigned long long)opts->starts);
    int rc = way == START_FORK_FULL ? fill(opts->resident_bytes, &pages) : 0;
    if (rc == 0 && pipe2(s.report, O_CLOEXEC) != 0)
        rc = failed("pipe", errno);
    if (rc == 0) {
        rc = repeat(opts, &s, runs, runs + opts->starts, out);
        close(s.report[0]);
        close(s.report[1]);
    }
    if (pages)
        munmap(pages, opts->resident_bytes);
    free(runs);
    return rc;
}
