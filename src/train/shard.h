/*
 * The optimizer's state in parts, one of each rank (ZeRO-1). A step adds the gradients up so that
 * each rank gets the sums of its part (mr_comm_sum_scatter()), updates that part of the parameters,
 * and gets the others' (mr_comm_gather()): as many bytes as a sum, and with leaves the same bits.
 *
 * Parts begin where the sums of squares of clip_norm do, so that the norm has its bits, too: each
 * rank adds up its own, and one more mr_comm_gather() brings all of them to all. A net of less
 * than some thousand parameters may leave ranks without any.
 */
#ifndef MR_TRAIN_SHARD_H
#define MR_TRAIN_SHARD_H

#include "comm/engine.h"
#include "optim/optim.h"

struct mr_train_shard {
    struct mr_comm *comm;
    uint32_t rank, world;
    uint64_t n;      /* parameters */
    uint64_t *first; /* world + 1: where the ranks' parts begin */
    uint64_t *norm;  /* the same of the sums of squares */
    uint64_t *part;  /* of a sum of a part of the gradients */
};

/* Elements first to end of an array. */
struct mr_train_range {
    uint64_t first, end;
};

int mr_train_shard_open(struct mr_comm *comm, uint64_t n, struct mr_train_shard **out);
void mr_train_shard_close(struct mr_train_shard *s); /* NULL is allowed */

static inline uint64_t mr_train_shard_first(const struct mr_train_shard *s)
{
    return s->first[s->rank];
}

/* This rank's optimizer. */
int mr_train_shard_optim(const struct mr_train_shard *s, struct mr_device *device,
                         const struct mr_optim_opts *opts, struct mr_optim **out);
/* Of these elements of the vector, those of this rank's part become the sums. stream: NULL: in host
 * memory. */
int mr_train_shard_sum(struct mr_train_shard *s, float *vector, struct mr_train_range range,
                       enum mr_dtype wire, enum mr_sum_order order, struct mr_stream *stream);
/* params, grads: all, of which this rank has the sums of its part. stream: the optimizer's.
 * unified: its memory is the host's. */
int mr_train_shard_step(struct mr_train_shard *s, struct mr_optim *optim, float *params,
                        const float *grads, bool unified, struct mr_stream *stream);
/* What has an element for each parameter, in parts of ranks: with shard.h, and of stages that are
 * ranks. */
struct mr_train_collection {
    struct mr_comm *comm; /* NULL: this process has all */
    uint32_t rank, world;
    const uint64_t *first; /* world + 1: where the ranks' parts begin */
};
/* The i-th array of the optimizer's state comes to rank 0. all: there, of first[world] elements.
 * After MR_EPEER it may still be written to. */
int mr_train_collect(const struct mr_train_collection *c, struct mr_optim *optim, uint32_t i,
                     void *all, struct mr_stream *stream);

#endif
