/* What devices without a driver need from the host: memory locked in place by the system, and exact
 * sleep. */
#include "device/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define SPIN_NS 30000

void mr_host_warn_not_locked(struct mr_device *dev, uint64_t bytes, const char *why)
{
    if (atomic_exchange(&dev->lock_warned, true))
        return;
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    mr_log(
        MR_LOG_WARNING,
        "device %s: the system refused to page-lock %llu bytes (%s); going on with memory that is "
        "not locked. "
        "RLIMIT_MEMLOCK is %llu bytes: raise it with `ulimit -l`, or in /etc/security/limits.conf",
        dev->ops->name, (unsigned long long)bytes, why, (unsigned long long)limit.rlim_cur);
}

int mr_host_memory_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out,
                          uint64_t *out_locked)
{
    char why[128];
    void *ptr = NULL;
    int rc = mr_host_pages_create(dev, kind, bytes, NULL, &ptr);
    if (rc < 0)
        return rc;
    uint64_t locked = 0;
    if (kind == MR_PINNED) {
        if (mlock(ptr, bytes) == 0) {
            locked = bytes;
        } else {
            snprintf(why, sizeof why, "mlock: %s", mr_strerror(-errno));
            mr_host_warn_not_locked(dev, bytes, why);
        }
    }
    *out = ptr;
    *out_locked = locked;
    return 0;
}

int mr_host_register(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    struct rlimit limit = {0};
    if (mlock(ptr, bytes) == 0)
        return 0;
    int errnum = errno;
    if (errnum != ENOMEM && errnum != EPERM && errnum != EAGAIN)
        return mr_error_errno(errnum, "device %s: mlock(%llu bytes)", dev->ops->name,
                              (unsigned long long)bytes);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return mr_error_set(
        MR_ELIMIT,
        "device %s: the system refused to page-lock %llu bytes (mlock: %s); RLIMIT_MEMLOCK is %llu "
        "bytes: raise it with `ulimit -l`, or in /etc/security/limits.conf",
        dev->ops->name, (unsigned long long)bytes, mr_strerror(-errnum),
        (unsigned long long)limit.rlim_cur);
}

int mr_host_unregister(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    if (munlock(ptr, bytes) == 0)
        return 0;
    return mr_error_errno(errno, "device %s: munlock(%llu bytes)", dev->ops->name,
                          (unsigned long long)bytes);
}

void mr_sleep_until(uint64_t time_ns)
{
    struct timespec until = {(time_t)(time_ns / 1000000000), (long)(time_ns % 1000000000)};
    uint64_t now = mr_time_ns();
    if (now + SPIN_NS < time_ns) {
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            continue;
    }
    while (mr_time_ns() < time_ns)
        continue;
}
