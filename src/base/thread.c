/* Threads with names, and condition variables on the library's clock. */
#include "base/base.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

/* Signals raised by a fault of the thread itself, or that profilers need in each thread. */
static const int own_signals[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGTRAP,
                                  SIGSYS,  SIGABRT, SIGPROF, SIGURG};

/* Blocks other signals: the program's handlers must not run on our threads. */
int mr_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
    sigset_t block, before;
    sigfillset(&block);
    for (size_t i = 0; i < MR_COUNT(own_signals); i++)
        sigdelset(&block, own_signals[i]);
    pthread_sigmask(SIG_SETMASK, &block, &before);
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return mr_error_errno(
            rc, "thread '%s': cannot start (limits: ulimit -u, the cgroup's pids.max)", name);
    char text[16]; /* the kernel's limit */
    snprintf(text, sizeof text, "%s", name);
    pthread_setname_np(thread, text);
    *out = thread;
    return 0;
}

int mr_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc)
        return mr_error_errno(rc, "condition variable");
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc ? mr_error_errno(rc, "condition variable") : 0;
}

bool mr_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t time_ns)
{
    struct timespec ts = {(time_t)(time_ns / 1000000000u), (long)(time_ns % 1000000000u)};
    return pthread_cond_timedwait(cond, lock, &ts) == 0;
}
