/*
 * The machine, the clock and the random functions that the library uses itself, for programs that
 * want to use the same.
 *
 *     struct mr_host_memory_info memory = {.size = sizeof memory};
 *     mr_host_memory_query(&memory);
 *     printf("%d threads, %.1f GiB free\n", mr_cpu_count(), memory.available_bytes / 0x1p30);
 *
 * Processors and memory are those that this process may use: affinity masks and the limits of
 * cgroups (v1 and v2) are taken into account.
 *
 * Threads: every function here may be called from any thread. fork: a child may call everything; a
 * request of mr_interrupt() that is in effect at the fork is in effect there, too.
 */
#ifndef MILLRACE_SYSTEM_H
#define MILLRACE_SYSTEM_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CLOCK_MONOTONIC in nanoseconds. All times in this library, traces included, are on this clock. */
MR_API uint64_t mr_time_ns(void);

/* How many threads can run at once in this process: the affinity mask, limited by the cgroup's CPU
 * quota (rounded up). At least 1. */
MR_API int mr_cpu_count(void);

/* What mr_cpu_count() is computed from. */
struct mr_cpu_info {
    size_t size;    /* of this struct, set by the caller */
    int online;     /* processors of the system that are online */
    int affinity;   /* of these, in this process's affinity mask */
    double quota;   /* the cgroup's CPU quota in processors; 0: none */
    char model[96]; /* the processor's name; "": unknown */
};

/* Describes the processors. [out] out: on success, all but size. Returns 0, MR_EMISUSE (a wrong
 * size). */
MR_API int mr_cpu_query(struct mr_cpu_info *out);

struct mr_host_memory_info {
    size_t size;               /* of this struct, set by the caller */
    uint64_t total_bytes;      /* of the machine, or the cgroup's limit if that is lower */
    uint64_t available_bytes;  /* can be allocated without swapping */
    uint64_t lock_limit_bytes; /* RLIMIT_MEMLOCK; UINT64_MAX: no limit for this process */
    uint64_t page_bytes;
    uint64_t huge_page_bytes;  /* the default huge page size; 0: unknown */
    uint64_t huge_pages_free;  /* free huge pages in the reserved pool */
    char transparent_huge[16]; /* "always", "madvise", "never"; "": unknown */
    uint64_t resident_bytes;   /* of this process, now */
};

/* Describes the host's memory. For a device's memory pools see mr_memory_query() in device.h.
 * [out] out: on success, all but size. Returns 0, MR_EMISUSE (a wrong size). */
MR_API int mr_host_memory_query(struct mr_host_memory_info *out);

/*
 * Interrupts calls that have no handle to cancel: mr_dataset_open() and the other constructors,
 * which may list, index and unpack for minutes, and mr_dataset_read(). Until it is withdrawn
 * they return MR_ECANCELLED soon, in every thread of the process. mr_loader_open() does so while it
 * starts a sandbox's processes. Loaders that are open are not affected; use mr_loader_cancel().
 * on: 1: request it; 0: withdraw the request. Async-signal-safe.
 */
MR_API void mr_interrupt(int on);

/* Extends mr_interrupt() to allocations by the calling thread: mr_memory_acquire() of new pages,
 * which may take seconds, returns MR_ECANCELLED soon.
 * on: 1: begin; 0: end. Calls nest: mr_interruptible(0) ends what the latest mr_interruptible(1)
 * began. One without a beginning does nothing. */
MR_API void mr_interruptible(int on);

/*
 * Philox-4x32-10, a counter-based random number generator: four 32-bit random numbers from a
 * 128-bit counter and a 64-bit key. Pure: the same input gives the same output on every machine.
 * (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011.)
 */
MR_API void mr_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* CRC-32C (Castagnoli) of n bytes, as TFRecord, iSCSI and ext4 have it. Pure. data: NULL counts as
 * no bytes. */
MR_API uint32_t mr_crc32c(const void *data, size_t n);

/*
 * The keyed permutation behind shuffling: a bijection on [0, n) that needs no memory. Returns the
 * index at a position of an epoch. Pure.
 * position: less than n. n: 1 to 2^63. seed, epoch: any.
 * (A balanced Feistel network with cycle walking; Black, Rogaway: Ciphers with arbitrary finite
 * domains, CT-RSA 2002.)
 */
MR_API uint64_t mr_permute(uint64_t position, uint64_t n, uint64_t seed, uint64_t epoch);

/*
 * Makes room in an array, as realloc() does, but rarely: it grows by half at least, so that
 * appending one element at a time is cheap.
 * what: for the error. array: the address of a pointer to elements of any type, NULL before the
 * first call; freed with free(). want: elements that are needed. size: of an element, in bytes.
 * [in, out] room: elements that fit; 0 before the first call. New elements are not cleared.
 * Returns 0, or -ENOMEM with array and room unchanged.
 */
MR_API int mr_grow(const char *what, void *array, uint64_t *room, uint64_t want, size_t size);

#ifdef __cplusplus
}
#endif
#endif
