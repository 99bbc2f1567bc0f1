/*
 * The trainer's insides. A trainer owns a net, an optimizer, a schedule and two loaders, over data
 * sets of the caller's.
 *
 * trainer.c opens and closes it; step.c is what is repeated for each batch; epochs.c what is done
 * at an epoch's end, and why a run ends; sample.c says how samples and labels must look; state.c
 * writes what a run is to a checkpoint, and resume.c reads it; leaves.c is a step over several
 * ranks, or parts of a batch, leaves_device.c the same on a device. On a GPU a step only enqueues:
 * the net adds up loss and right answers in the device's memory, and mr_train_take_totals() fetches
 * them every 256 steps, at an epoch's end, and whenever a caller asks.
 */
#ifndef MR_TRAIN_TRAINER_H
#define MR_TRAIN_TRAINER_H

#include "train/checkpoint.h"
#include <millrace/comm.h>
#include <millrace/sampler.h>
#include <millrace/train.h>
#include <millrace/transform.h>

/* How long batches kept the device, by its own clock. */
struct mr_train_use {
    uint64_t batches, ns, step; /* the loader's count, and where the run was, at the latest look */
    double seconds;             /* from the begin to that look */
};

/* A stretch of steps: an epoch, or a caller's window. */
struct mr_train_stretch {
    uint64_t start_ns, wait_ns, first_step; /* wait_ns: the loader's count at its begin */
    struct mr_train_sums before;            /* sums at its begin */
    struct mr_train_use use;
};

struct mr_train_graph {
    const void *input, *labels;
    uint32_t n;
    struct mr_graph *graph;
};

#define MR_TRAIN_STAGES 8

/* Steps between looks of ranks at a device's totals, each of which waits for it: they also tell
 * whether a rank wants to end, and how long steps took. */
#define MR_TRAIN_LOOK   64

#define MR_TRAIN_TIMES  256

/* Of the latest steps, until the caller takes them. */
struct mr_train_times {
    struct mr_trainer_step_times last[MR_TRAIN_TIMES]; /* step i's at i % MR_TRAIN_TIMES */
    uint64_t n, taken;
};

/* A part of the net on a device; of a net that isn't split, all of it. */
struct mr_train_stage {
    struct mr_device *dev; /* the caller's */
    struct mr_stream *stream;
    struct mr_net *net;
    struct mr_optim *optim;
};

struct mr_trainer {
    struct mr_trainer_opts opts; /* its texts are copies; resume and loader are gone */
    struct mr_train_stage stage[MR_TRAIN_STAGES];
    uint32_t n_stages;
    /* The first stage's, as are net and optim. */
    struct mr_device *dev;
    struct mr_device_info info;
    struct mr_stream *stream;
    struct mr_dataset *ds, *test;
    struct mr_transform *chain, *test_chain;
    struct mr_net_opts sample; /* channels, height, width, layout */
    uint32_t classes;
    int label; /* which field */

    struct mr_sampler *sampler;
    struct mr_budget *budget; /* of both loaders; NULL: there is one, or the caller's is used */
    struct mr_loader *ld,
        *test_loader; /* the second is endless: each pass stops at its last batch */
    struct mr_net *net;
    struct mr_optim *optim;
    struct mr_schedule *schedule;
    /* what the run's optimizer is, for people and for checkpoints: with lr and clipping */
    char *optim_text;
    struct mr_train_graph *graph;
    uint32_t n_graphs;
    uint64_t room_graphs;
    uint32_t eager[8], n_eager; /* batch sizes that ran once without a graph */

    uint64_t step, epoch;      /* done, from the run's start */
    struct mr_train_sums sums; /* of this epoch, what was taken from the net's totals so far */
    struct mr_train_stretch pass, window; /* this epoch; the caller's */
    uint64_t pass_steps;                  /* of this epoch, in this process */
    uint64_t skipped;                     /* steps left out for a loss that was not finite */
    uint32_t skipped_in_row;
    struct mr_train_pipeline *pipeline; /* of stages.h; NULL: one stage, without micro-batches */
    struct mr_train_leaves *leaves;     /* of leaves.c; NULL: a batch is one pass of this process */
    struct mr_train_copies *copies;     /* of state.c, while a checkpoint is written */
    struct mr_train_shard *shard;       /* of shard.h; NULL: the optimizer is of all parameters */
    uint32_t rank, world, n_leaves;     /* 0 of 1, and 1, without */
    bool stopping;                      /* mr_trainer_ask_stop(), as all ranks have heard */
    bool looked; /* of the loss that was not finite: bad_layer was looked for */
    const struct mr_net_layer *bad_layer; /* NULL: none here */
    const char *bad_what;
    bool started;
    /* in this process: the net's low precision copy, which the optimizer writes, holds the
     * parameters */
    bool stepped;
    struct mr_train_epoch *history;
    uint32_t n_history;
    uint64_t room_history;
    uint32_t best;         /* in history */
    double best_test_loss; /* for patience */
    uint64_t since_best;   /* epochs */
    enum mr_trainer_end end;
    uint64_t resumed_step;
    double seconds_to_target;                  /* NaN: not reached */
    double earlier_seconds;                    /* of the runs before a resume */
    double waiting, stepping, testing, saving; /* seconds, of this process */
    uint64_t step_ns, batch_ns;        /* of times.c: this step's begin; its batch was there */
    double sum_seconds;                /* the communicator's count at the step's begin */
    struct mr_trainer_step_times last; /* of the last step, by the host's clock */
    struct mr_train_times times;
};

/* leaves.c. open: as options and device say; prepare: with the net. */
int mr_train_leaves_open(struct mr_trainer *t);
int mr_train_leaves_prepare(struct mr_trainer *t);
void mr_train_leaves_destroy(struct mr_trainer *t);
int mr_train_leaves_step(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch);
/* On devices: whether a loss of any rank was bad since the host looked, in the device's memory;
 * NULL: look at the net. */
const uint32_t *mr_train_leaves_bad_loss(const struct mr_trainer *t);
/* What leaves.c and step.c want of leaves_device.c. */
struct mr_train_part;
struct mr_train_leaves_ops {
    int (*prepare)(struct mr_trainer *t, uint32_t levels); /* levels: vectors */
    void (*destroy)(struct mr_trainer *t);
    int (*rows)(struct mr_trainer *t, const struct mr_train_part *p, uint32_t a, uint32_t n,
                struct mr_net_batch *out);
    int (*step)(struct mr_trainer *t, const struct mr_train_part *p,
                const struct mr_net_batch *batch);
    /* Takes the sums of the steps since this was called last. Blocks. good: the errors stay, for a
     * look that all ranks take at the same step; then all sums are 0. */
    int (*take)(struct mr_trainer *t, bool good, struct mr_net_totals *out);
    /* Has a rank asked for the end, as of the last look? All call it at the same step. */
    void (*hear)(struct mr_trainer *t);
};
extern const struct mr_train_leaves_ops mr_train_on_device;
bool mr_train_leaves_on_device(const struct mr_trainer *t);
/* A pass over the test set. index: of the batch in it. */
void mr_train_leaves_test_begin(struct mr_trainer *t);
int mr_train_leaves_test(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch, uint64_t index);
int mr_train_leaves_test_end(struct mr_trainer *t, struct mr_net_totals *out);
/* Where a loss that all ranks know to be bad came from; all call it. text: what this rank knows,
 * "": nothing. [out] text: on rank 0 what the first rank knows that does. Returns 0 or MR_EPEER. */
int mr_train_leaves_where(struct mr_trainer *t, char *text, size_t bytes);
void mr_train_phase(const struct mr_trainer *t, const char *what); /* for errors on other ranks */

/* stages.c. open: as options say, before the data; nets: the stages; bad_loss: where the optimizer
 * looks, NULL: at the net. */
int mr_train_pipeline_open(struct mr_trainer *t);
int mr_train_pipeline_nets(struct mr_trainer *t, const struct mr_net_opts *no);
/* The optimizer of a stage. */
int mr_train_pipeline_optim(struct mr_trainer *t, const struct mr_optim_opts *opts, uint32_t s);
void mr_train_pipeline_destroy(struct mr_trainer *t);
const uint32_t *mr_train_pipeline_bad_loss(const struct mr_trainer *t, uint32_t stage);
void mr_train_pipeline_find_bad(struct mr_trainer *t);
bool mr_train_has_last_stage(const struct mr_trainer *t);
void mr_train_pipeline_hear(struct mr_trainer *t); /* after a look at the totals */
/* What step.c wants of pipeline.c: step and test as those of leaves.c, take as that of struct
 * mr_train_leaves_ops. */
struct mr_train_pipeline_ops {
    int (*step)(struct mr_trainer *t, const struct mr_batch *b, const struct mr_net_batch *batch);
    int (*take)(struct mr_trainer *t, bool good, struct mr_net_totals *out);
    int (*test)(struct mr_trainer *t, const struct mr_batch *b, const struct mr_net_batch *batch,
                uint64_t index);
};
extern const struct mr_train_pipeline_ops mr_train_in_stages;

/* stages.c. Stages of the net, wherever they are; those of other ranks have no memory. NULL: no
 * such stage. */
uint32_t mr_train_n_stages(const struct mr_trainer *t);
struct mr_net *mr_train_net_of(const struct mr_trainer *t, uint32_t stage);

static inline struct mr_net *mr_train_last_net(const struct mr_trainer *t)
{
    return mr_train_net_of(t, mr_train_n_stages(t) - 1);
}

/* Where the parts are that other ranks have; comm NULL: nowhere. */
struct mr_train_collection;
struct mr_train_collection mr_train_collection_of(const struct mr_trainer *t);

/* options.c. NULL: a net without layers. */
const struct mr_net_layer *mr_train_last_layer(const struct mr_net *net);

/* sample.c. Of all ranks together; at most the data set's length, rounded up to whole leaves. */
uint64_t mr_train_batch_size(const struct mr_trainer *t);
/* Label, classes, chains, shape; the test set's loader. */
int mr_train_open_data(struct mr_trainer *t);
/* state: of a loader to continue from; NULL: none. */
int mr_train_open_loader(struct mr_trainer *t, bool test, const char *state,
                         struct mr_loader **out);
/* The range of labels, for the error about labels out of range. */
void mr_train_label_range(const struct mr_trainer *t, int64_t *low, int64_t *high,
                          uint64_t *looked_at);

/* step.c. What `work` enqueues for this batch, as a graph once it has run before. */
int mr_train_recorded(struct mr_trainer *t, const struct mr_net_batch *batch,
                      int (*work)(struct mr_trainer *t, const void *job), const void *job);
/* Takes the net's totals into t->sums; looks for what is wrong: labels, losses that are not
 * finite. Blocks. Returns 0, 1 where a step was left out, or an error. */
int mr_train_take_totals(struct mr_trainer *t);
/* The same for totals that somebody else took. */
int mr_train_judge_totals(struct mr_trainer *t, const struct mr_net_totals *now);
/* Looks where the pass that was just done first went wrong. Blocks. */
void mr_train_find_bad(struct mr_trainer *t);
/* The share of the stretch's time that the device (or, on cpu, the step's thread) had no batch. */
void mr_train_stretch_begin(struct mr_trainer *t, struct mr_train_stretch *s);
double mr_train_stretch_waited(const struct mr_trainer *t, struct mr_train_stretch *s,
                               double seconds);
/* Once an epoch is warm: what the loader's clocks have said so far. */
void mr_train_stretch_look(const struct mr_trainer *t, struct mr_train_stretch *s);

/* times.c: of one step: before its batch is asked for, when it is there, at the step's end. */
void mr_train_time_begin(struct mr_trainer *t);
void mr_train_time_batch(struct mr_trainer *t);
void mr_train_time_end(struct mr_trainer *t);
/* A test or a checkpoint comes between two steps. */
void mr_train_times_break(struct mr_trainer *t);

/* epochs.c. What the history says of the run's end. */
void mr_train_judge_history(struct mr_trainer *t);
void mr_train_begin(struct mr_trainer *t); /* before the first step */
/* Is the run over? */
bool mr_train_is_over(struct mr_trainer *t);

/* state.c, resume.c. What a checkpoint must have in common with the run that goes on from it; said
 * in this order. */
#define MR_TRAIN_COMMON 13
struct mr_train_common {
    const char *key, *what;
    char *text;
};
/* [out] out: texts to be freed by mr_train_common_free(), also after an error. Returns 0 or
 * -ENOMEM. */
int mr_train_describe(const struct mr_trainer *t, struct mr_train_common out[MR_TRAIN_COMMON]);
void mr_train_common_free(struct mr_train_common common[MR_TRAIN_COMMON]);
/* An optimizer's i-th array over all stages: its length; and work on each stage's part of it. */
uint64_t mr_train_state_length(const struct mr_trainer *t, uint32_t i, enum mr_dtype *dtype);
int mr_train_state_each(struct mr_trainer *t, uint32_t i, char *all,
                        int (*work)(struct mr_optim *optim, uint32_t i, void *data, uint64_t bytes,
                                    struct mr_stream *stream));
/* All parts of it, on rank 0. all: of that length; elsewhere NULL. */
int mr_train_state_collect(struct mr_trainer *t, uint32_t i, char *all);
void mr_train_copies_free(struct mr_trainer *t);
int mr_train_check_state(const struct mr_trainer *t, const struct mr_checkpoint *c);
int mr_train_restore(struct mr_trainer *t, const struct mr_checkpoint *c);

static inline double mr_train_since(uint64_t start_ns)
{
    return (double)(mr_time_ns() - start_ns) * 1e-9;
}

#endif
