/* Child processes of bench processes. */
#include "bench/processes.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pid_t processes_fork(int (*main)(void *user), void *user)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return -errno;
    if (pid > 0)
        return pid;
    signal(SIGINT, SIG_IGN); /* a terminal sends it to all; the parent tidies up */
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGPIPE, SIG_IGN); /* a write to a parent that has closed its end is an error */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? main(user) : 1);
}

double processes_cpu_us(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return NAN;
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

int processes_read(int fd, void *to, uint64_t n)
{
    for (char *at = to; n > 0;) {
        ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EPIPE;
        at += got;
        n -= (uint64_t)got;
    }
    return 0;
}

int processes_write(int fd, const void *from, uint64_t n)
{
    for (const char *at = from; n > 0;) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        at += put;
        n -= (uint64_t)put;
    }
    return 0;
}

void processes_end(pid_t pid, int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
