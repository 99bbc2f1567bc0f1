/*
 * Pages of the host, made fast and near: touched by several threads, on the memory node nearest a
 * device. First touch is what places a page, and where page-locking spends its time.
 */
#include "base/futex.h"
#include "device/host.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE              (2u << 20)
#define TOUCH_THREADS          8
#define TOUCH_BYTES_PER_THREAD (32ull << 20) /* fewer are touched sooner than a thread starts */
#define LOOK_BYTES             (1ull << 20)  /* between checks for an interrupt */
#define MPOL_PREFERRED         1
#define MAX_NODES              1024

struct touch {
    volatile char *start;
    uint64_t bytes;
    const cpu_set_t *cpus; /* NULL: anywhere */
    struct mr_interrupt_flags stops;
};

static void *touch_pages(void *arg)
{
    struct touch *part = arg;
    if (part->cpus)
        sched_setaffinity(0, sizeof *part->cpus, part->cpus); /* best effort */
    uint64_t page = mr_page_bytes();
    for (uint64_t at = 0; at < part->bytes; at += page) {
        if (at % LOOK_BYTES == 0 && mr_interrupt_is_set(&part->stops))
            break;
        part->start[at] = 0;
    }
    return NULL;
}

/* Faults the pages in, large memory by several threads; the caller does what those that could not
 * start leave over. With processors given, all parts are for threads: the caller's own affinity is
 * not ours to change. Returns 0 or MR_ECANCELLED. */
static int touch_all(char *start, uint64_t bytes, const cpu_set_t *cpus)
{
    struct mr_interrupt_flags stops = mr_interrupt_flags();
    uint64_t most = MR_MIN((uint64_t)TOUCH_THREADS, (uint64_t)mr_cpu_count());
    int n = (int)MR_MAX(MR_MIN(most, bytes / TOUCH_BYTES_PER_THREAD), (uint64_t)1);
    struct touch part[TOUCH_THREADS];
    pthread_t thread[TOUCH_THREADS];
    bool started[TOUCH_THREADS] = {0};
    uint64_t each = mr_round_up(bytes / (uint64_t)n, HUGE_PAGE);
    for (int i = 0; i < n; i++) {
        uint64_t from = MR_MIN(bytes, each * (uint64_t)i),
                 to = i == n - 1 ? bytes : MR_MIN(bytes, from + each);
        part[i] = (struct touch){start + from, to - from, cpus, stops};
        started[i] =
            (i > 0 || cpus) && mr_thread_start(&thread[i], "mr-touch", touch_pages, &part[i]) == 0;
        if (!started[i])
            part[i].cpus = NULL;
    }
    for (int i = 0; i < n; i++) {
        if (started[i])
            pthread_join(thread[i], NULL);
        else
            touch_pages(&part[i]);
    }
    return mr_interrupt_is_set(&stops)
               ? mr_error_set(MR_ECANCELLED, "interrupted while %llu bytes were allocated",
                              (unsigned long long)bytes)
               : 0;
}

bool mr_host_prefer_node(void *ptr, uint64_t bytes, int node)
{
    unsigned long mask[MAX_NODES / (8 * sizeof(unsigned long))] = {0};
    if (node < 0 || node >= MAX_NODES)
        return false;
    mask[(size_t)node / (8 * sizeof *mask)] |= 1ul << ((size_t)node % (8 * sizeof *mask));
    return syscall(SYS_mbind, ptr, bytes, MPOL_PREFERRED, mask, (unsigned long)MAX_NODES, 0) == 0;
}

/* Large memory begins with a huge page: the system aligns only what is a multiple of one. */
static void *map_pages(uint64_t bytes)
{
    uint64_t page = mr_page_bytes(), spare = bytes >= HUGE_PAGE ? HUGE_PAGE - page : 0;
    bytes = mr_round_up(bytes, page);
    char *ptr =
        mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED || spare == 0)
        return ptr;
    uint64_t before = mr_round_up((uintptr_t)ptr, HUGE_PAGE) - (uintptr_t)ptr;
    if (before > 0)
        munmap(ptr, before);
    if (before < spare)
        munmap(ptr + before + bytes, spare - before);
    madvise(ptr + before, bytes, MADV_HUGEPAGE); /* advice: fewer faults and TLB misses */
    return ptr + before;
}

int mr_host_pages_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes,
                         const struct mr_host_near *near, void **out)
{
    cpu_set_t cpus;
    void *ptr = map_pages(bytes);
    if (ptr == MAP_FAILED)
        return mr_error_set(
            -ENOMEM,
            "device %s: the system refused %llu bytes of %s memory: %s; lower the batch size, "
            "prefetch, or the samples' size",
            dev->ops->name, (unsigned long long)bytes, mr_memory_name(kind), mr_strerror(-errno));
    if (kind != MR_PAGEABLE) { /* a device's memory does not fault at the first copy, and simulated
                                  memory must not */
        bool placed = near && mr_host_prefer_node(ptr, bytes, near->node);
        int rc = touch_all(ptr, bytes,
                           near && !placed && mr_host_near_cpus(near, &cpus) > 0 ? &cpus : NULL);
        if (rc < 0) {
            mr_host_memory_destroy(ptr, bytes);
            return rc;
        }
    }
    *out = ptr;
    return 0;
}

void mr_host_memory_destroy(void *ptr, uint64_t bytes)
{
    munmap(ptr, bytes); /* unlocks, too */
}
