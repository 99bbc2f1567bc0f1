/* What devices without a driver need from the host: memory locked in place by the system, and exact sleep. */
#include "device/device.h"
#include "device/kernels.h"

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
    mr_log(MR_LOG_WARNING,
           "device %s: the system refused to page-lock %llu bytes (%s); going on with memory that is not locked. "
           "RLIMIT_MEMLOCK is %llu bytes: raise it with `ulimit -l`, or in /etc/security/limits.conf",
           dev->ops->name, (unsigned long long)bytes, why, (unsigned long long)limit.rlim_cur);
}

int mr_host_memory_make(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out, uint64_t *out_locked)
{
    char why[128];
    void *ptr = NULL;
    int rc = mr_host_pages_make(dev, kind, bytes, NULL, &ptr);
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
        return mr_error_errno(errnum, "device %s: mlock(%llu bytes)", dev->ops->name, (unsigned long long)bytes);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return mr_error_set(MR_ELIMIT,
                        "device %s: the system refused to page-lock %llu bytes (mlock: %s); RLIMIT_MEMLOCK is %llu "
                        "bytes: raise it with `ulimit -l`, or in /etc/security/limits.conf",
                        dev->ops->name, (unsigned long long)bytes, mr_strerror(-errnum),
                        (unsigned long long)limit.rlim_cur);
}

int mr_host_unregister(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    if (munlock(ptr, bytes) == 0)
        return 0;
    return mr_error_errno(errno, "device %s: munlock(%llu bytes)", dev->ops->name, (unsigned long long)bytes);
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

static const struct {
    const char *name;
    size_t bytes;
} simple[MR_N_KERNELS] = {
    [MR_KERNEL_BUSY] = {"busy", sizeof(uint64_t)},
    [MR_KERNEL_WAIT] = {"wait", sizeof(uint32_t *)},
    [MR_KERNEL_COPY] = {"copy", sizeof(struct mr_kernel_copy)},
    [MR_KERNEL_MATMUL] = {"matmul_f32", sizeof(struct mr_kernel_matmul)},
};

int mr_simple_find(const char *name)
{
    for (int i = 0; i < MR_N_KERNELS; i++)
        if (strcmp(simple[i].name, name) == 0)
            return i;
    return -1;
}

static int unknown_kernel(const char *device, int n_kernels, const char *kernel)
{
    char known[64] = "";
    for (int i = 0; i < n_kernels; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", simple[i].name);
    }
    return mr_error_set(MR_EUNSUPPORTED, "device %s: no kernel \"%.64s\"; it has: %s", device, kernel, known);
}

int mr_launch_args(const char *device, int n_kernels, const char *kernel, const void *args, size_t arg_bytes,
                   struct mr_launched *out)
{
    int found = mr_simple_find(kernel);
    if (found < 0 || found >= n_kernels)
        return unknown_kernel(device, n_kernels, kernel);
    *out = (struct mr_launched){.kernel = (enum mr_simple_kernel)found};
    bool whole = found == MR_KERNEL_MATMUL && arg_bytes == offsetof(struct mr_kernel_matmul, rows);
    if (arg_bytes != simple[found].bytes && !whole)
        return mr_error_set(MR_EMISUSE, "kernel %s: want %zu bytes of arguments, got %zu", kernel, simple[found].bytes,
                            arg_bytes);
    memcpy(&out->matmul, args, arg_bytes); /* all of the union begin at one place */
    if (found == MR_KERNEL_MATMUL && out->matmul.rows == 0)
        out->matmul.rows = out->matmul.n;
    return 0;
}

int mr_kernel_args(const char *device, const char *name, const void *args, size_t arg_bytes,
                   const struct mr_kernel **out, struct mr_kernel_range ranges[MR_KERNEL_RANGES])
{
    const struct mr_kernel *k = mr_kernel_find(name);
    if (!k)
        return mr_error_set(MR_EUNSUPPORTED, "%s: no kernel \"%s\"", device, name);
    if (arg_bytes != k->arg_bytes)
        return mr_error_set(MR_EMISUSE, "%s: kernel \"%s\": arguments of %zu bytes, want %zu", device, name, arg_bytes,
                            k->arg_bytes);
    memset(ranges, 0, MR_KERNEL_RANGES * sizeof *ranges);
    const char *wrong = k->check(args, ranges);
    for (int i = 0; i < 2 && !wrong; i++)
        wrong = ranges[i].ptr || ranges[i].bytes == 0 ? NULL : "in or out is NULL";
    if (wrong)
        return mr_error_set(MR_EMISUSE, "%s: kernel \"%s\": %s", device, name, wrong);
    *out = k;
    return 0;
}
