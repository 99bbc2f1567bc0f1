/* Time, locks, waiting and memory by direct system calls, which are not wrapped. */
#include "recorder/private.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sanitizer must see that memory came and went, or takes the next owner's writes for a race with
 * the last one's. */
#ifdef __SANITIZE_THREAD__
#define MMAP   mmap
#define MUNMAP munmap
#else
#define MMAP(...)   (void *)record_syscall(SYS_mmap, __VA_ARGS__)
#define MUNMAP(...) record_syscall(SYS_munmap, __VA_ARGS__)
#endif

#define LOOK_NS 20000000u /* a wake-up may go to another that waits */

uint64_t record_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Saved by those who call from wrappers: what the program sees of errno is the wrapped call's. */
static void futex(atomic_uint *word, int operation, unsigned value, const struct timespec *timeout)
{
    int saved = errno;
    bool inside = record_inside; /* for a signal handler that runs meanwhile: record_is_busy() */
    record_inside = true;
    record_syscall(SYS_futex, word, operation, value, timeout, (void *)NULL, 0);
    record_inside = inside;
    errno = saved;
}

void record_lock(struct record_lock *lock)
{
    unsigned seen = 0;
    if (atomic_compare_exchange_strong_explicit(&lock->word, &seen, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return;
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        futex(&lock->word, FUTEX_WAIT_PRIVATE, 2, NULL);
}

void record_unlock(struct record_lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        futex(&lock->word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

void record_wait(atomic_uint *word, unsigned value, uint64_t ns)
{
    struct timespec timeout = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    futex(word, FUTEX_WAIT_PRIVATE, value, ns ? &timeout : NULL);
}

void record_wake(atomic_uint *word)
{
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    futex(word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

bool record_wait_for(atomic_uint *stage, unsigned until, atomic_uint *wake, uint64_t ns)
{
    uint64_t begin = record_now();
    for (;;) {
        unsigned seen = atomic_load(wake);
        if (atomic_load(stage) == until)
            return true;
        if (record_now() - begin >= ns)
            return false;
        record_wait(wake, seen, LOOK_NS);
    }
}

void *record_map(size_t bytes)
{
    int saved = errno;
    void *address =
        MMAP((void *)NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    errno = saved;
    return address == MAP_FAILED ? NULL : address;
}

void record_unmap(void *memory, size_t bytes)
{
    int saved = errno;
    MUNMAP(memory, bytes);
    errno = saved;
}

void *record_map_file(int fd, size_t bytes)
{
    void *address = MMAP((void *)NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    return address == MAP_FAILED ? NULL : address;
}
