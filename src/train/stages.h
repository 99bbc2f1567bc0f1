/*
 * A net over several devices: a pipeline of stages.
 *
 * Each stage is a part of the net (nn/part.c) on a device of its own, with its own flat arrays and
 * optimizer. A batch is cut into micro-batches, which are the leaves of leaves.c: micro-batch a has
 * the samples at positions p with p mod M = a, and its gradients are added up by the same tree. So
 * the bits are those of the net on one device with as many leaves.
 *
 * stages.c opens the stages, split.c says where the net is cut, pipeline.c is a step, and
 * pipeline_update.c its end.
 */
#ifndef MR_TRAIN_STAGES_H
#define MR_TRAIN_STAGES_H

#include "nn/net.h"
#include "train/leaves.h"

/* What a micro-batch on its way has in a stage. Events are of the stage's device. */
struct mr_train_slot {
    struct mr_net *net;            /* that of slot 0 is the stage's */
    struct mr_event *there, *back; /* its pass is done: forward, backward */
    struct mr_event *value, *grad; /* its output was sent on; its input's gradient was sent back */
};

/* What stages have beside trainer.h's. */
struct mr_train_pipe {
    struct mr_stream *send;
    struct mr_train_slot *slot;
    uint64_t n_params, n_buffers, length; /* length: of a vector, as in leaves.h */
    float *vector, *buffers;              /* in the device's memory, as in leaves.h */
    float *piece;    /* gradients of a sum of squares that lies over the border to the next stage */
    float *overflow; /* fp16: what each stage has found, of n_stages */
    struct mr_sum_run *run;
    struct mr_event *done, *sums, *sent; /* the step's work; its sums; they were sent */
};

struct mr_train_pipeline {
    struct mr_train_leaves leaves; /* n, mine: micro-batches, of this process alone */
    uint32_t n_slots;
    struct mr_train_pipe stage[MR_TRAIN_STAGES];
    char *input;                        /* of a micro-batch, on the first device */
    char *labels, *last_labels;         /* of all of them, on the first and on the last */
    uint64_t label_bytes;               /* of a micro-batch's */
    struct mr_event *packed, *labelled; /* the labels on the first device; on the last */
    float *share;                       /* of each micro-batch in the batch, on the last device */
    uint64_t share_of;                  /* batches of so many samples; 0: of none yet */
    uint64_t run_step;                  /* that the devices count to; UINT64_MAX: none */
};

/* pipeline_update.c: the parameters of all stages. */
int mr_train_pipeline_update(struct mr_trainer *t);

/* split.c. [out] first: of each stage, its first node, and behind them the number of nodes. no: of
 * the whole net. */
int mr_train_split(const struct mr_trainer *t, const struct mr_net_opts *no, uint32_t *first);

#endif
