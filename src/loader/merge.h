/*
 * Merging: the samples of a block of the order (random:block=B) come by one request.
 *
 * A block's samples are read at about the same time, each at its own, by any worker. So a read of a
 * remote file names the range that holds its neighbours, all of the block that is within reach in
 * that file, and the storage brings that by one request (storage/ranges.h). What a block's ranges
 * are is found by locating its samples, once by each worker, and remembered for two windows.
 *
 * It is worth it while the bytes that are not wanted, those of the other ranks that share the block
 * (all, or those of the node it belongs to), cost less than a request: as long as they are few
 * between two samples of this rank.
 */
#ifndef MR_LOADER_MERGE_H
#define MR_LOADER_MERGE_H

#include "storage/storage.h"

struct mr_loader;
struct mr_worker;
struct mr_run;

#define MR_MERGE_RANGES 8 /* of a block; one with more is read sample by sample */

struct mr_merge_range {
    int file;
    uint64_t at, end;
};

struct mr_merge_block {
    uint64_t number; /* of the block, + 1; 0: none yet */
    uint32_t n;
    struct mr_merge_range range[MR_MERGE_RANGES];
};

/* Sets sizes.n_merged and merged_bytes, before memory is summed. 0: nothing is merged. */
void mr_merge_plan(struct mr_loader *ld, const struct mr_files_kinds *kinds);
/* What workers remember, all together. */
uint64_t mr_merge_bytes(const struct mr_loader *ld);
int mr_merge_create(struct mr_worker *w); /* 0 or -ENOMEM */
/* Names the range around sample i's read. */
void mr_merge_read(struct mr_worker *w, const struct mr_run *run, uint32_t i, struct mr_read *read);

#endif
