/* What data sets of many files share. */
#ifndef MR_DATASET_SHARDS_H
#define MR_DATASET_SHARDS_H

#include "base/base.h"

/*
 * Calls step(user, i) for each i below n, on a few threads and this one. thread: their name.
 * Returns 0, or the error of the lowest i that failed, whatever the timing; some of those behind it
 * may not have been called then.
 */
int mr_each_shard(uint64_t n, const char *thread, int (*step)(void *user, uint64_t i), void *user);

#endif
