/*
 * Epochs of a batch sampler: with which batch of the run each begins.
 *
 * Epochs may differ in their number of batches, so where one begins is known when all before it
 * have been counted. The table grows when a worker gets to an epoch that is not in it. Ranks share
 * batches as they share positions otherwise: the unit of the shards here is the batch.
 */
#ifndef MR_LOADER_EPOCHS_H
#define MR_LOADER_EPOCHS_H

#include "sampler/sampler.h"
#include <stdbool.h>

struct mr_loader_opts;
struct mr_plan_batch;

struct mr_epoch {
    uint64_t first;        /* its first batch's number in the run */
    uint64_t n;            /* batches of this rank in this run */
    struct mr_shard shard; /* of the epoch's batches */
};

struct mr_epochs {
    const struct mr_sampler *sampler;
    struct mr_shard shard; /* length and start 0 */
    uint64_t first_epoch, start, epochs;
    pthread_mutex_t lock;
    struct mr_epoch *epoch; /* [lock] those counted so far: number i is first_epoch + i */
    uint64_t n, room;
};

/* epoch, position: where the run begins. Returns 0, MR_EOPTION (an epoch without batches for
 * this rank), MR_ESTATE (the position is no batch's), -ENOMEM, or the sampler's error. [out] out:
 * on 0. */
int mr_epochs_create(const struct mr_sampler *sampler, const struct mr_loader_opts *opts,
                     uint64_t epoch, uint64_t position, struct mr_epochs **out);
void mr_epochs_destroy(struct mr_epochs *epochs); /* NULL is allowed */
/* What batch t of the run is. [out] out: on 1, all but rows; row0 is the position of its row 0,
 * not wrapped. [out] total: on 0, the number of batches. Returns 1, 0: there is no batch t, or an
 * error. Any thread. Waits for the sampler if the epoch has not been counted. */
int mr_epochs_find(struct mr_epochs *epochs, uint64_t t, struct mr_plan_batch *out,
                   uint64_t *total);
/* Before any other thread uses it: all batches of the run, UINT64_MAX: not known yet; and those
 * of a whole first epoch of this rank, 0: the run is over. */
uint64_t mr_epochs_total(const struct mr_epochs *epochs);
uint64_t mr_epochs_batches(const struct mr_epochs *epochs);

#endif
