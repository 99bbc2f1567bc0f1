/*
 * A net over several devices: a pipeline of stages.
 *
 * Each stage is a part of the net (nn/part.c) on a device of its own, with its own flat arrays and
 * optimizer. A batch is cut into micro-batches, which are the leaves of leaves.c: micro-batch a has
 * the samples at positions p with p mod M = a, and its gradients are added up by the same tree. So
 * the bits are those of the net on one device with as many leaves.
 *
 * stages.c opens the stages, split.c says where the net is cut, pipeline.c is a step (pipeline.h
 * has its parts), pipeline_update.c its end, and pipeline_ranks.c is for stages that are ranks.
 */
#ifndef MR_TRAIN_STAGES_H
#define MR_TRAIN_STAGES_H

#include "nn/net.h"
#include "optim/optim.h"
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

/*
 * Over ranks (pipeline_ranks.c) this process has one stage, which is stage[0] here and the at-th of
 * the net; of the others there is a plan.
 */
struct mr_train_pipeline {
    struct mr_train_leaves leaves; /* n, mine: micro-batches, of this process alone */
    struct mr_comm *comm;          /* the ranks that are stages; NULL: all are in this process */
    uint32_t at, of;               /* of stage[0], among how many */
    struct mr_net *plan[MR_TRAIN_STAGES]; /* over ranks: nets without memory */
    uint64_t param[MR_TRAIN_STAGES + 1];  /* where the stages' parameters begin */
    uint64_t part[MR_TRAIN_STAGES + 1];   /* of what the ranks share */
    bool stop_told, stop_heard;
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

/* The number in the net of stage s of this process. */
static inline uint32_t mr_train_stage_number(const struct mr_trainer *t, uint32_t s)
{
    return t->pipeline->at + s;
}

static inline bool mr_train_is_last_stage(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_stage_number(t, s) + 1 == t->pipeline->of;
}

/* Of what goes on in a stage's memory; NULL: it is the host's. */
static inline struct mr_stream *mr_train_comm_stream(const struct mr_trainer *t)
{
    return t->info.unified ? NULL : t->stream;
}

/*
 * pipeline_ranks.c: what goes between stages that are ranks. Between two passes of a stage the
 * output of the one goes to another rank, and what the next one needs comes, both at once: so no
 * two ranks wait for each other. bytes 0: nothing.
 */
struct mr_train_hop {
    const void *out;
    void *in;
    uint64_t out_bytes, in_bytes;
    bool out_forward, in_forward; /* to the next stage; from the one before; else the other ones */
};
int mr_train_hop(struct mr_trainer *t, const struct mr_train_hop *hop);
/* All ranks get the last one's totals. */
int mr_train_share_totals(struct mr_trainer *t);
/* In place of pipeline_update.c's copies. */
int mr_train_share_squares(struct mr_trainer *t, const struct mr_optim_grads *grads);
int mr_train_share_overflow(struct mr_trainer *t);

/* pipeline_update.c: the sum of squares that stage s of the net begins and others end, if there is
 * one. [out] n: its elements, 0: none; begin: the first, in the whole net. Returns its number. */
uint32_t mr_train_shared_square(const struct mr_trainer *t, uint32_t s, uint64_t *begin,
                                uint64_t *n);
/* The sums of squares that begin in stage s of the net. */
struct mr_train_squares {
    uint32_t first, end;
};
struct mr_train_squares mr_train_squares_of(const struct mr_trainer *t, uint32_t s);

/* pipeline_update.c: the parameters of all stages. */
int mr_train_pipeline_update(struct mr_trainer *t);

/* split.c. [out] first: of each stage, its first node, and behind them the number of nodes. no: of
 * the whole net. */
int mr_train_split(const struct mr_trainer *t, const struct mr_net_opts *no, uint32_t *first);

#endif
