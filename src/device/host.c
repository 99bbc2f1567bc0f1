/* What devices without a driver need from the host: memory that is locked in place, and exact sleep. */
#include "device/device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define PAGE                   4096
#define HUGE_PAGE              (2u << 20)
#define TOUCH_THREADS          8
#define TOUCH_BYTES_PER_THREAD (32ull << 20) /* fewer are touched sooner than a thread starts */
#define SPIN_NS                30000

struct touch {
    volatile char *start;
    uint64_t bytes;
};

static void *touch_pages(void *arg)
{
    struct touch *part = arg;
    for (uint64_t at = 0; at < part->bytes; at += PAGE)
        part->start[at] = 0;
    return NULL;
}

/* Faults the pages in, large memory by several threads; the caller does the part of those that could not start. */
static void touch_all(char *start, uint64_t bytes)
{
    uint64_t most = MR_MIN((uint64_t)TOUCH_THREADS, (uint64_t)mr_cpu_count());
    int n = (int)MR_MAX(MR_MIN(most, bytes / TOUCH_BYTES_PER_THREAD), (uint64_t)1);
    struct touch part[TOUCH_THREADS];
    pthread_t thread[TOUCH_THREADS];
    bool started[TOUCH_THREADS] = {0};
    uint64_t each = mr_round_up(bytes / (uint64_t)n, HUGE_PAGE);
    for (int i = 0; i < n; i++) {
        uint64_t from = MR_MIN(bytes, each * (uint64_t)i), to = i == n - 1 ? bytes : MR_MIN(bytes, from + each);
        part[i] = (struct touch){start + from, to - from};
        started[i] = i > 0 && mr_thread_start(&thread[i], "mr-touch", touch_pages, &part[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (started[i])
            pthread_join(thread[i], NULL);
        else
            touch_pages(&part[i]);
    }
}

static void warn_not_locked(struct mr_device *dev, uint64_t bytes, int errnum)
{
    if (atomic_exchange(&dev->lock_warned, true))
        return;
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    mr_log(
        MR_LOG_WARNING,
        "device %s: the system refused to page-lock %llu bytes (mlock: %s); going on with memory that is not locked. "
        "RLIMIT_MEMLOCK is %llu bytes: raise it with `ulimit -l`, or in /etc/security/limits.conf",
        dev->ops->name, (unsigned long long)bytes, mr_strerror(-errnum), (unsigned long long)limit.rlim_cur);
}

int mr_host_memory_make(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out, uint64_t *out_locked)
{
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return mr_error_set(-ENOMEM, "device %s: the system refused %llu bytes of %s memory: %s", dev->ops->name,
                            (unsigned long long)bytes, mr_memory_name(kind), mr_strerror(-errno));
    if (bytes >= HUGE_PAGE)
        madvise(ptr, bytes, MADV_HUGEPAGE); /* advice: fewer faults and TLB misses where the system follows it */
    uint64_t locked = 0;
    if (kind != MR_PAGEABLE)
        touch_all(ptr, bytes); /* a device's memory does not fault at the first copy */
    if (kind == MR_PINNED) {
        if (mlock(ptr, bytes) == 0)
            locked = bytes;
        else
            warn_not_locked(dev, bytes, errno);
    }
    *out = ptr;
    *out_locked = locked;
    return 0;
}

void mr_host_memory_drop(void *ptr, uint64_t bytes)
{
    munmap(ptr, bytes); /* unlocks, too */
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

int mr_busy_args(const char *device, const char *kernel, const void *args, size_t arg_bytes, uint64_t *out_ns)
{
    if (strcmp(kernel, "busy"))
        return mr_error_set(MR_EUNSUPPORTED, "device %s: no kernel \"%.64s\"; it has: busy", device, kernel);
    if (arg_bytes != sizeof *out_ns)
        return mr_error_set(MR_EMISUSE, "kernel busy: want one uint64_t (8 bytes) of arguments, got %zu bytes",
                            arg_bytes);
    memcpy(out_ns, args, sizeof *out_ns);
    return 0;
}
