/*
 * Remote files: settings and counts, which every build has.
 */
#ifndef MR_STORAGE_REMOTE_H
#define MR_STORAGE_REMOTE_H

#include "base/base.h"
#include <millrace/storage.h>

/* Totals of all remote reading in this process; written by any thread. */
struct mr_remote_counts {
    _Atomic uint64_t requests, retries, bytes, cache_hits, cache_bytes, cache_stored_bytes,
        cache_damaged, cache_errors;
};
extern struct mr_remote_counts mr_remote_counts;

static inline void mr_remote_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The options in effect: from mr_remote_opts_set(), else from the environment. dir: a buffer of cap
 * bytes, which holds cache_dir. */
int mr_remote_opts_now(struct mr_remote_opts *out, char *dir, size_t cap);

#endif
