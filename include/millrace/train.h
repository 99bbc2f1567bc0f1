/*
 * The trainer: one net's training on a data set, fed by a loader. examples/train_mnist.c is a whole
 * program.
 *
 *     mr_trainer_create(device, ds, test, &opts, &t);
 *     while ((rc = mr_trainer_epoch(t, &e)) > 0)
 *         printf("epoch %llu: %.2f%%\n", (unsigned long long)e.epoch, 100 * e.test_accuracy);
 *     mr_trainer_save(t, "run.safetensors");
 *     mr_trainer_destroy(t);
 *
 * mr_trainer_epoch() is mr_trainer_step() until the epoch's last batch, then
 * mr_trainer_end_epoch(); a program with more to do between steps calls these itself.
 *
 * Samples: field 0 is the input, of one to three dimensions (after `transform`); the label is the
 * field named "label", or else the second: one class, u8, i32 or i64, from 0; for MR_MSE f32 or
 * f64, a number for each output.
 * Determinism: on "cpu" the same bits for any number of workers and threads, and for a run that is
 * resumed.
 * Threads: a trainer belongs to one thread at a time; no call may follow fork() in the child. Every
 * call blocks but mr_trainer_step() on a GPU, which only enqueues and looks at the loss every 256
 * steps. Part of libmillrace-train.
 */
#ifndef MILLRACE_TRAIN_H
#define MILLRACE_TRAIN_H

#include <millrace/checkpoint.h>
#include <millrace/loader.h>
#include <millrace/nn.h>
#include <millrace/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_trainer;

/* What products are computed in, on GPUs; "cpu" computes in f32. Parameters are f32 always. */
enum mr_precision { MR_PRECISION_F32, MR_PRECISION_TF32, MR_PRECISION_BF16, MR_PRECISION_FP16 };
/* A loss that is not finite: an error that names step and layer, or the step is left out (then
 * every step waits for its loss). */
enum mr_on_nan { MR_ON_NAN_STOP, MR_ON_NAN_SKIP };

struct mr_trainer_opts {
    size_t size;
    const char *model;           /* as in mr_net_opts; default "mnist-cnn" */
    const char *optimizer;       /* as mr_optim_parse() reads it; default "adam" */
    const char *schedule;        /* as mr_schedule_parse() reads it; default "constant" */
    double lr;                   /* 0..1e30; -1 (default): the optimizer's */
    double clip_norm;            /* in the optimizer's place, where above 0; default 0 */
    double clip_value;           /* the same */
    enum mr_loss loss;           /* default MR_CROSS_ENTROPY */
    enum mr_precision precision; /* default MR_PRECISION_TF32 */
    uint32_t classes; /* outputs of built-in models, 1..2^20; 0 (default): as the data set says */
    const char *transform;      /* chain for each sample; NULL (default): none */
    const char *test_transform; /* for each test sample; NULL (default): `transform` */
    uint64_t batch_size; /* samples, 1..2^20; default 64; at most the data set's length is used */
    uint64_t epochs;     /* default 10 */
    uint64_t max_steps;  /* 0 (default): no limit */
    uint64_t seed;       /* of parameters, order, dropout, random transforms; default 0 */
    int shuffle;         /* default 1 */
    /* Accuracy, 0..1, to stop at: on the test set, or in training without one; 0 (default):
     * none. */
    double target;
    uint64_t patience;     /* epochs without a lower (test) loss to stop after; 0 (default): none */
    enum mr_on_nan on_nan; /* default MR_ON_NAN_STOP */
    uint32_t threads;      /* on "cpu"; 0 (default): all this process may use */
    int graph;             /* GPUs: 1 (default): a step is one graph */
    /* Of the loaders; NULL (default): their defaults. The trainer sets batch_size, epochs, seed and
     * state; it has no use for drop_last, rank, world, remainder, collate and bad. */
    const struct mr_loader_opts *loader;
    const struct mr_checkpoint *resume; /* to go on from; NULL (default): start */
    /* JSON of the caller's, kept in checkpoints as "config"; NULL (default): none. */
    const char *config;
    /* mr_time_ns() when the run began, for its seconds; 0 (default): when it is created. */
    uint64_t start_ns;
};
MR_API void mr_trainer_opts_fill(struct mr_trainer_opts *opts, size_t size);
static inline void mr_trainer_opts_init(struct mr_trainer_opts *opts)
{
    mr_trainer_opts_fill(opts, sizeof *opts);
}

/*
 * Makes net, optimizer, schedule and loaders, and restores what opts->resume holds.
 * device: of kind "cpu" or "cuda". test: NULL: none. Both data sets and the device are borrowed and
 * outlive the trainer; opts, its texts and opts->resume are read by this call alone.
 * [out] out: on success; mr_trainer_destroy() frees it.
 * Returns 0; MR_EOPTION: a model, optimizer, schedule or chain; MR_ESHAPE: samples or labels do not
 * fit; MR_ESTATE: the checkpoint is of another run, or the test set numbers its classes otherwise;
 * MR_EMISUSE, MR_EUNSUPPORTED, MR_ELIMIT, MR_EFORMAT, MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM, -errno.
 */
MR_API int mr_trainer_create(struct mr_device *device, struct mr_dataset *ds,
                             struct mr_dataset *test, const struct mr_trainer_opts *opts,
                             struct mr_trainer **out);
MR_API void mr_trainer_destroy(struct mr_trainer *t); /* NULL is allowed */

/* A pass, or a part of one. */
struct mr_train_sums {
    double loss; /* sum over samples */
    uint64_t n_right, n_samples;
};

/* NaN: not measured. */
struct mr_train_epoch {
    uint64_t epoch, steps; /* from 1; steps done at its end, from the run's start */
    double loss, accuracy; /* mean over samples */
    double test_loss, test_accuracy;
    double seconds, test_seconds;
    double lr; /* of its last step */
    double samples_per_s;
    double waited; /* share of its time that the device had no batch: 0..1 */
};

/*
 * One batch. [out] last: it was its epoch's last: mr_trainer_end_epoch() is due.
 * Returns 1; 0: the run is over (mr_trainer_info.end says why); MR_EFORMAT: labels out of range;
 * MR_EMISUSE: a loss that is not finite; what the loader returns.
 */
MR_API int mr_trainer_step(struct mr_trainer *t, int *last);
/* Tests, where there is a test set, adds the epoch to the history, and looks whether it ends the
 * run.
 * [out] out: may be NULL. Returns 0 or as mr_trainer_step(). */
MR_API int mr_trainer_end_epoch(struct mr_trainer *t, struct mr_train_epoch *out);
/* Steps to the epoch's end, and ends it. [out] out: where 1 is returned; may be NULL. Returns as
 * mr_trainer_step(). */
MR_API int mr_trainer_epoch(struct mr_trainer *t, struct mr_train_epoch *out);
/* The epoch so far, without ending it: for a run that stops within one. test: 1: go over the test
 * set, where there is one.
 * [out] out: where 1 is returned. Returns 1; 0: no sample of it was seen; or as
 * mr_trainer_step(). */
MR_API int mr_trainer_unfinished(struct mr_trainer *t, int test, struct mr_train_epoch *out);
/* Goes over the test set once. [out] out: on success. Returns 0; MR_EMISUSE: there is none;
 * MR_EFORMAT, MR_EDEVICE, ... */
MR_API int mr_trainer_test(struct mr_trainer *t, struct mr_train_sums *out);

/* Writes a checkpoint, whole or not at all. Returns 0, -errno, MR_EFORMAT, MR_EMISUSE, MR_EDEVICE,
 * MR_ELIMIT, -ENOMEM. */
MR_API int mr_trainer_save(struct mr_trainer *t, const char *path);

/* Why it ends; MR_TRAINER_EPOCHS also while it goes on. */
enum mr_trainer_end { MR_TRAINER_EPOCHS, MR_TRAINER_TARGET, MR_TRAINER_PATIENCE, MR_TRAINER_STEPS };

struct mr_trainer_info {
    size_t size;          /* set by the caller to sizeof: no more is written */
    uint64_t step, epoch; /* done, from the run's start, runs before a resume included */
    uint64_t resumed_step;
    uint64_t skipped;  /* steps left out by MR_ON_NAN_SKIP */
    uint32_t n_epochs; /* of the history */
    uint32_t best;     /* in the history, by test accuracy, or accuracy without a test set */
    enum mr_trainer_end end;
    uint32_t classes;
    int label;                /* field */
    const char *optimizer;    /* text with lr and clipping */
    double seconds;           /* from the run's start */
    double seconds_to_target; /* NaN: not reached */
    double epoch_seconds;     /* since the epoch began */
};
/* [out] out: all but size. Returns 0, MR_EMISUSE for a wrong size. Cheap: call it between steps. */
MR_API int mr_trainer_query(const struct mr_trainer *t, struct mr_trainer_info *out);
/* The i-th epoch of the history, those before a resume included; NULL after the last. Owned by the
 * trainer, until the next ends. */
MR_API const struct mr_train_epoch *mr_trainer_epoch_get(const struct mr_trainer *t, uint32_t i);
/* Where this process's time went, the epoch that has not ended included. Seconds. */
struct mr_trainer_times {
    size_t size; /* set by the caller to sizeof: no more is written */
    double waiting, stepping, testing, saving;
};
/* [out] out: all but size. Returns 0, MR_EMISUSE for a wrong size. */
MR_API int mr_trainer_query_times(const struct mr_trainer *t, struct mr_trainer_times *out);
/* [out] out: the epoch so far, the part before a resume included. Blocks. Returns 0 or as
 * mr_trainer_step(). */
MR_API int mr_trainer_sums(struct mr_trainer *t, struct mr_train_sums *out);

/* A stretch of steps, for measurements: from begin to end, which both block. No epoch ends in
 * between. */
struct mr_train_window {
    uint64_t steps;
    struct mr_train_sums sums;
    double seconds, waited; /* as in mr_train_epoch */
};
/* Return 0 or as mr_trainer_step(). [out] out: on success. */
MR_API int mr_trainer_window_begin(struct mr_trainer *t);
MR_API int mr_trainer_window_end(struct mr_trainer *t, struct mr_train_window *out);

/* Its parts. Owned by the trainer. */
MR_API struct mr_net *mr_trainer_get_net(struct mr_trainer *t);
MR_API struct mr_optim *mr_trainer_get_optim(struct mr_trainer *t);
MR_API struct mr_loader *mr_trainer_get_loader(struct mr_trainer *t);

/* The data set's field of labels; -1: it has none. */
MR_API int mr_train_label_field(const struct mr_dataset *ds);
/* Sets channels, height, width and layout to what a sample's field looks like to a net. Returns 0,
 * MR_ESHAPE. */
MR_API int mr_train_sample(const struct mr_spec *spec, struct mr_net_opts *opts);
/* Does the loader's field hold what a net of so many outputs reads: one class, or for MR_MSE as
 * many numbers? who: the data set, for the error. Returns 0, MR_ESHAPE. */
MR_API int mr_train_check_labels(const struct mr_loader *ld, int field, enum mr_loss loss,
                                 uint32_t outputs, const char *who);
/* How many numbers the net's last layer gives for a sample. */
MR_API uint32_t mr_train_outputs(const struct mr_net *net);
/* "cross-entropy", "nll", "mse". */
MR_API const char *mr_loss_name(enum mr_loss loss);

#ifdef __cplusplus
}
#endif
#endif
