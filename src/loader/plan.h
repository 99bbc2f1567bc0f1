/*
 * The plan: which samples make up batch number t.
 *
 * Batches are numbered from 0 over all epochs of a run. The plan turns that number into an epoch,
 * the batch's place in the epoch, and a range of positions in this rank's share of the epoch's
 * order. Row r of rank k of w stands at the global position start + q * w + k, where q counts this
 * rank's rows. A resumed run differs from a new one only in `start`, and only in its first epoch:
 * hence two shards, one for that epoch and one for all later ones.
 *
 * A run with in_order = 0 leaves batches unfinished before the place of its state. A run that is
 * resumed from that makes them first: they are its batches 0 to n_again - 1.
 *
 * This is arithmetic on the options a loader was opened with. Nothing here changes while it runs,
 * so any thread may ask for any batch.
 *
 * A plan that `finds` its batches knows only their capacity, batch_size. What a batch is and how
 * many rows it has is found when its runs are filled or made. A run has a span of rows: run_rows of
 * them, fewer at the end of the capacity. It may have fewer rows than that if all later runs of its
 * batch have none, so that a batch has no gaps; once those it has are made it subtracts the whole
 * span. The run at row 0 says what the batch is (run->info). Whoever finds that there are no more
 * batches says so to the ring: mr_ring_end().
 */
#ifndef MR_LOADER_PLAN_H
#define MR_LOADER_PLAN_H

#include "base/base.h"
#include "loader/epochs.h"
#include "sampler/sampler.h"
#include <millrace/loader.h>

/* An unfinished batch of an earlier run. */
struct mr_plan_again {
    uint64_t epoch;
    struct mr_shard shard; /* starts at the batch */
    bool last;             /* of its epoch, here */
};

struct mr_plan {
    uint64_t batch_size, length; /* length: of the sampler, all ranks */
    uint64_t epochs;             /* 0: endless */
    struct mr_shard first;       /* of the epoch where this run starts */
    struct mr_shard shard;       /* of all later ones */
    uint64_t first_epoch, first_batches;
    uint64_t first_index; /* batches of the first epoch before the start */
    uint64_t n_batches;   /* of a whole epoch */
    uint64_t total;       /* batches in all, as known at open; UINT64_MAX: endless, or unknown */
    bool drop_last;
    bool finds;               /* its batches while it runs */
    struct mr_epochs *starts; /* of a batch sampler; else NULL */
    struct mr_plan_again *again;
    uint64_t n_again;
};

struct mr_plan_batch {
    uint64_t epoch, index, row0; /* row0: local position of the first row in its shard */
    uint64_t rows;
    const struct mr_shard *shard;
    uint64_t batch; /* of a batch sampler: its number in the epoch, all ranks together */
    bool last;
};

/* This rank's share, without its length. */
struct mr_shard mr_plan_shard(const struct mr_loader_opts *opts);
int mr_plan_init(struct mr_plan *plan, const struct mr_loader_opts *opts, uint64_t length,
                 uint64_t epoch, uint64_t position);
/* Sorts unfinished batches, of which epoch and shard.start are set. span: positions that a batch
 * takes. Returns 0, MR_ESTATE: some overlap. */
int mr_plan_sort_again(struct mr_plan_again *again, uint64_t n, uint64_t span);
/* Makes these n batches, sorted, first; those that a run with these options has not are left out.
 * Owns again, made with malloc(), from now on. Once, after mr_plan_init(). */
void mr_plan_add_again(struct mr_plan *plan, struct mr_plan_again *again, uint64_t n);
/* The same for a batch sampler: the plan finds its batches (mr_epochs_find()). opts.batch_size is
 * the sampler's max_batch. */
int mr_plan_init_batches(struct mr_plan *plan, const struct mr_loader_opts *opts,
                         const struct mr_sampler *sampler, uint64_t epoch, uint64_t position);
void mr_plan_end(struct mr_plan *plan); /* also of a zeroed one */
void mr_plan_get(const struct mr_plan *plan, uint64_t t, struct mr_plan_batch *out);

#endif
