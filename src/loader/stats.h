/*
 * The figures of a run, and what they say about its bottleneck.
 *
 * Counters are written by the consumer, or by workers where several threads do, and read by any
 * thread at any time: so they are atomic, with relaxed order. Workers account for all of their
 * time, one look at the clock for each change of stage. What happened before the first batch was
 * handed out is left out of the search for the bottleneck.
 */
#ifndef MR_LOADER_STATS_H
#define MR_LOADER_STATS_H

#include "base/base.h"
#include <millrace/loader.h>

struct mr_loader;

struct mr_counters {
    uint64_t open_ns;
    _Atomic uint64_t first_batch_ns, first_wait_ns, samples, batches, bytes, wait_ns, busy_ns;
    _Atomic uint64_t ready_sum; /* batches that were ready at each call of mr_loader_next() */
    _Atomic uint64_t warm_samples, warm_ns; /* see mr_loader_stats */
    _Atomic uint64_t collate_ns;
    struct mr_hist interval, wait;
    /* Workers' stages when the first batch was handed out; last: their lives. */
    _Atomic uint64_t start_ns[MR_N_STAGES + 1];
};

/* Adds to a counter that one thread writes. */
static inline void mr_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + more, memory_order_relaxed);
}

static inline uint64_t mr_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The first batch is out: what is measured from now on is steady state. */
void mr_stats_started(struct mr_loader *ld);

#endif
