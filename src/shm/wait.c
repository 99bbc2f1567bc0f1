/* Waiting for other processes, and for their end. */
#include "shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 5000000

struct mr_shm_limit mr_shm_limit(int64_t timeout_ns)
{
    uint64_t until = timeout_ns > 0 ? mr_time_ns() + (uint64_t)timeout_ns : 0;
    return (struct mr_shm_limit){timeout_ns, until};
}

int mr_shm_wait(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *waiters,
                const struct mr_shm_limit *limit, const char *what)
{
    int64_t slice = SLICE_NS;
    if (limit->timeout_ns == 0)
        return mr_error_set(-EAGAIN, "%s", what);
    if (limit->timeout_ns > 0) {
        uint64_t now = mr_time_ns();
        if (now >= limit->until_ns)
            return mr_error_set(-ETIMEDOUT, "%s after %.3g s", what,
                                (double)limit->timeout_ns / 1e9);
        slice = MR_MIN(slice, (int64_t)(limit->until_ns - now));
    }
    atomic_fetch_add(waiters, 1);
    mr_futex_wait(word, seen, slice);
    atomic_fetch_sub(waiters, 1);
    return 0;
}

void mr_shm_notify(_Atomic uint32_t *word, _Atomic uint32_t *waiters, int n)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(waiters) > 0)
        mr_futex_wake(word, n);
}

static bool has_program(const char *process)
{
    char path[64], program;
    snprintf(path, sizeof path, "/proc/%s/exe", process);
    return readlink(path, &program, 1) >= 0 || errno != ENOENT;
}

/* Without a descriptor. kill() finds zombies too; these have no program any more. */
static bool has_ended_by_name(int64_t pid)
{
    char text[24];
    if (kill((pid_t)pid, 0) < 0)
        return errno == ESRCH;
    snprintf(text, sizeof text, "%lld", (long long)pid);
    return !has_program(text) && has_program("self"); /* else there is no /proc */
}

bool mr_shm_has_ended(int64_t pid)
{
    if (pid <= 0 || pid > INT_MAX)
        return true;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd < 0)
        return errno == ESRCH || errno == EINVAL || has_ended_by_name(pid);
    bool ended = poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
    close(fd);
    return ended;
}

/* ---- stamps ---- */

#define START_BITS  26 /* in clock ticks, 100 a second: the lower bits differ, if not in one tick */
#define PID_BITS    22 /* the most that Linux gives */
#define LOW(x, n)   ((uint64_t)(x) & ((1ull << (n)) - 1))
#define START_FIELD 22 /* of a stat file in /proc */

/* When a process started; 0: not known. From its first thread, which started with it: qemu-user
 * makes up /proc/PID/stat for the process itself, and not what its threads have. */
static uint64_t start_of(int64_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/task/%lld/stat", (long long)pid, (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* of the name, field 2, which may have any characters */
    for (int field = 2; at && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? LOW(strtoull(at, NULL, 10), START_BITS) : 0;
}

static _Atomic uint64_t own_start; /* 0: not asked yet */

static void begin_child(void)
{
    atomic_store_explicit(&own_start, 0, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, begin_child);
}

uint64_t mr_shm_stamp(uint32_t pid, uint64_t round)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t start = atomic_load_explicit(&own_start, memory_order_relaxed);
    if (start == 0) {
        pthread_once(&once, watch_forks);
        start = start_of(getpid());
        atomic_store_explicit(&own_start, start, memory_order_relaxed);
    }
    return round << (START_BITS + PID_BITS) | LOW(pid, PID_BITS) << START_BITS | start;
}

bool mr_shm_holder_has_ended(int64_t pid, uint64_t round, uint64_t stamp)
{
    if (mr_shm_has_ended(pid))
        return true;
    uint64_t start = LOW(stamp, START_BITS);
    uint64_t whose = round << PID_BITS | LOW(pid, PID_BITS);
    if (start == 0 || stamp >> START_BITS != LOW(whose, 64 - START_BITS))
        return false;
    uint64_t now = start_of(pid);
    return now != 0 && now != start;
}
