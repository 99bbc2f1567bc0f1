/*
 * The machine, the clock and the random functions that the library itself uses, for callers that want the same.
 *
 * Threads: every function here may be called from any thread.
 */
#ifndef MILLRACE_SYSTEM_H
#define MILLRACE_SYSTEM_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CLOCK_MONOTONIC in nanoseconds: the clock of every time in this library, traces included. */
MR_API uint64_t mr_time_ns(void);

/* Threads that may run at once here: the affinity mask, cut by the cgroup's CPU quota (v1 or v2), rounded up; >= 1. */
MR_API int mr_cpu_count(void);

/* What mr_cpu_count() was made from. */
struct mr_cpu_info {
    int online;     /* processors that the system has on line */
    int affinity;   /* of these, in this process's mask */
    double quota;   /* cgroup CPU quota in processors; 0: none */
    char model[96]; /* "" when unknown */
};
MR_API void mr_cpu_query(struct mr_cpu_info *out);

struct mr_host_memory_info {
    uint64_t total_bytes;      /* of the machine, or the cgroup's limit when that is lower */
    uint64_t available_bytes;  /* that can be taken without swapping */
    uint64_t lock_limit_bytes; /* RLIMIT_MEMLOCK; UINT64_MAX: none, or this process may exceed it (CAP_IPC_LOCK) */
    uint64_t page_bytes;
    uint64_t huge_page_bytes;  /* default huge page size; 0: unknown */
    uint64_t huge_pages_free;  /* reserved huge pages that are free */
    char transparent_huge[16]; /* "always", "madvise", "never" or "" */
    uint64_t resident_bytes;   /* this process, now */
};
MR_API void mr_host_memory_query(struct mr_host_memory_info *out);

/*
 * Asks calls that have no handle to be stopped by to end soon: mr_dataset_open() and its kin, which may list, index and unpack
 * for minutes, and mr_dataset_read(). They return MR_ECANCELLED, and so does every one that begins while the request stands.
 * Loaders go on: mr_loader_cancel() ends them.
 * on: 1: from now on, in every thread of this process; 0: the request is withdrawn. Async-signal-safe: for signal handlers.
 */
MR_API void mr_interrupt(int on);

/*
 * Philox-4x32-10: four 32-bit random numbers from a 128-bit counter and a 64-bit key.
 * (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011.)
 */
MR_API void mr_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/*
 * The keyed permutation behind shuffling: a bijection on [0, n), in O(1) memory, by a balanced Feistel network with
 * cycle walking (Black and Rogaway: Ciphers with arbitrary finite domains, CT-RSA 2002).
 * position: < n. n: 1..2^63. Returns the index at that position of epoch `epoch` under `seed`.
 */
MR_API uint64_t mr_permute(uint64_t position, uint64_t n, uint64_t seed, uint64_t epoch);

#ifdef __cplusplus
}
#endif
#endif
