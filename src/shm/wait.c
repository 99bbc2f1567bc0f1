/* Waiting for other processes, and for their end. */
#include "shm/shm.h"

#include <errno.h>
#include <poll.h>
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

bool mr_shm_has_ended(int64_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd < 0)
        return errno == ESRCH || errno == EINVAL;
    bool ended = poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
    close(fd);
    return ended;
}
