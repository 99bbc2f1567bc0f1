/*
 * Functions of newer glibc, and what does their work with other C libraries (musl). __GLIBC__ is
 * defined by any header of glibc's.
 */
#ifndef MR_BASE_LIBC_H
#define MR_BASE_LIBC_H

#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* An errno's text in English. NULL or some text: no errno. Never translated or overwritten. */
static inline const char *mr_libc_error_text(int errnum)
{
#ifdef __GLIBC__
    return strerrordesc_np(errnum);
#else
    return strerror(errnum); /* musl's is constant; nothing here calls setlocale() */
#endif
}

/* A signal's name without "SIG"; NULL: not known here. */
static inline const char *mr_libc_signal_name(int signal)
{
#ifdef __GLIBC__
    return sigabbrev_np(signal);
#else
    switch (signal) {
    case SIGABRT:
        return "ABRT";
    case SIGBUS:
        return "BUS";
    case SIGFPE:
        return "FPE";
    case SIGILL:
        return "ILL";
    case SIGINT:
        return "INT";
    case SIGKILL:
        return "KILL";
    case SIGSEGV:
        return "SEGV";
    case SIGTERM:
        return "TERM";
    default:
        return NULL;
    }
#endif
}

/* sem_clockwait() with CLOCK_MONOTONIC. Where only the clock of the day can be waited for, it may
 * return ETIMEDOUT early or late when that clock is set: callers look at the time themselves. */
static inline int mr_libc_sem_wait_until(sem_t *semaphore, const struct timespec *until)
{
#ifdef __GLIBC__
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, until);
#else
    struct timespec now, day;
    clock_gettime(CLOCK_MONOTONIC, &now);
    clock_gettime(CLOCK_REALTIME, &day);
    day.tv_sec += until->tv_sec - now.tv_sec;
    day.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (day.tv_nsec < 0) {
        day.tv_sec--;
        day.tv_nsec += 1000000000;
    } else if (day.tv_nsec >= 1000000000) {
        day.tv_sec++;
        day.tv_nsec -= 1000000000;
    }
    return sem_timedwait(semaphore, &day);
#endif
}

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8 /* of the kernel: only what is in the page cache */
#endif

static inline ssize_t mr_libc_preadv2(int fd, const struct iovec *part, int n, off_t at, int flags)
{
#ifdef __GLIBC__
    return preadv2(fd, part, n, at, flags);
#else
    _Static_assert(sizeof(long) >= sizeof(off_t), "the position is passed in one word");
    return syscall(SYS_preadv2, fd, part, n, (long)at, 0L, flags);
#endif
}

#endif
