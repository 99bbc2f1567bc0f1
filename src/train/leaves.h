/* What leaves.c and leaves_device.c share: see leaves.c. */
#ifndef MR_TRAIN_LEAVES_H
#define MR_TRAIN_LEAVES_H

#include "comm/engine.h"
#include "kernels/sum/sum.h"
#include "train/shard.h"
#include "train/trainer.h"

struct mr_train_leaves {
    struct mr_comm *comm;          /* NULL: alone */
    uint32_t rank, world, n, mine; /* n: leaves of a batch; mine: of these, this rank's */
    enum mr_sum_order order;
    enum mr_dtype wire;
    bool device; /* vector, buffers, input and labels are the device's memory, else the host's */
    bool graphs; /* the sum can be recorded with the rest of the step */
    uint64_t n_params, n_buffers, length; /* length: of a vector: gradients, buffers, totals */
    float *vector;                        /* mine: one for each level of the tree, and one */
    float *buffers;                       /* before the step */
    double *tests;                        /* 4 sums for each of this rank's leaves */
    char *input, *labels;                 /* of a leaf */
    uint64_t room;
    bool stop; /* this rank asks for the run's end */
    /* leaves_device.c */
    struct mr_sum_run *run;
    uint64_t run_step; /* that it counts to, or UINT64_MAX */
    bool stop_told, stop_heard;
    struct mr_train_overlap *overlap; /* NULL: one sum, behind the passes */
    uint64_t timed;                   /* steps of run->clock that times.c has read */
    bool apart;                       /* something else was done since the last step */
    float *overflow; /* fp16 with t->shard: whether a rank's part had one, then of all ranks */
};

/*
 * leaves_overlap.c: sums that run beside the backward pass. The vector is cut into the same parts
 * on all ranks. A part is taken, added to this rank's other leaves and summed over the ranks in a
 * stream of its own, as soon as the last leaf's pass has its gradients.
 */
struct mr_train_last {
    struct mr_sum_take take; /* of the last leaf's whole vector; to NULL: it is 0 already */
    uint32_t i, height;      /* which leaf; vectors below its own */
};
int mr_train_overlap_open(struct mr_trainer *t);
void mr_train_overlap_close(struct mr_trainer *t);
/* The pass that comes is of the last leaf. */
void mr_train_overlap_begin(struct mr_trainer *t, const struct mr_train_last *last);
/* What the pass has left; rc: the pass's, whose error it returns. The stream then waits for all
 * parts. */
int mr_train_overlap_end(struct mr_trainer *t, int rc);

/* What the parts of a test batch are. */
struct mr_train_leaves *mr_train_parts(const struct mr_trainer *t);

/* What a rank's batch is of the whole one. */
struct mr_train_part {
    const struct mr_batch *b;
    uint64_t before, length; /* samples of the epoch before this batch; in the epoch */
    uint64_t total;          /* samples of the whole batch */
};

struct mr_train_part mr_train_part_of(const struct mr_trainer *t, const struct mr_batch *b,
                                      uint64_t index, uint64_t length);
/* Rows of the a-th of this rank's leaves. */
uint32_t mr_train_rows_of(const struct mr_train_leaves *l, const struct mr_train_part *p,
                          uint32_t a);
/* The a-th leaf as a batch of its own. */
int mr_train_take_leaf(struct mr_trainer *t, const struct mr_train_part *p, uint32_t a, uint32_t n,
                       struct mr_net_batch *out);
/* Bytes for so many rows of a field, whatever the type of its elements is: a test set's may be
 * another one than the training set's. */
uint64_t mr_train_room(const struct mr_batch_field *field, uint64_t rows_in_batch, uint64_t rows);
/* The i-th of k in the order of the tree's leaves, from left to right. */
uint32_t mr_train_tree_order(uint32_t i, uint32_t k);
/* This part of the rank's vector becomes that of all; with t->shard of the gradients only this
 * rank's part. stream: NULL: in host memory. */
int mr_train_sum_range(struct mr_trainer *t, struct mr_train_range part, struct mr_stream *stream);
int mr_train_sum_vector(struct mr_trainer *t, struct mr_stream *stream);
/* leaves_device.c: enqueues a time of the step, with other ranks. */
int mr_train_stamp(struct mr_trainer *t, enum mr_sum_stamp_of what);
/* times.c: what the device's clock said when the host looked. */
void mr_train_times_look(struct mr_trainer *t, const struct mr_sum_clock *clock);
/* leaves_device.c: to += from. */
int mr_train_add_range(const struct mr_train_leaves *l, float *to, const float *from,
                       struct mr_train_range part, struct mr_stream *stream);

#endif
