/*
 * The trainer: trains one net on a data set, which a loader feeds. examples/train_mnist.c is a
 * complete program.
 *
 *     mr_trainer_create(device, ds, test, &opts, &t);
 *     while ((rc = mr_trainer_epoch(t, &e)) > 0)
 *         printf("epoch %llu: %.2f%%\n", (unsigned long long)e.epoch, 100 * e.test_accuracy);
 *     mr_trainer_save(t, "run.safetensors");
 *     mr_trainer_destroy(t);
 *
 * mr_trainer_epoch() calls mr_trainer_step() until the epoch's last batch, then
 * mr_trainer_end_epoch(). A program that has work to do between steps calls these itself.
 *
 * Samples: field 0 is the input, with one to three dimensions (after `transform`). The label is the
 * field named "label", else the second field: one class (u8, i32 or i64, counted from 0), or for
 * MR_MSE one number per output (f32 or f64).
 * Determinism: on "cpu" the result has the same bits for any number of workers and threads, also
 * after a resume.
 * Threads: a trainer belongs to one thread at a time and cannot be used in a forked child. All
 * calls block, except mr_trainer_step() on a GPU, which enqueues the step and checks the loss every
 * 256 steps.
 * This is part of libmillrace-train.
 */
#ifndef MILLRACE_TRAIN_H
#define MILLRACE_TRAIN_H

#include <millrace/checkpoint.h>
#include <millrace/comm.h>
#include <millrace/loader.h>
#include <millrace/nn.h>
#include <millrace/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_trainer;

/* The type in which GPUs compute products. "cpu" computes in f32. Parameters are always f32. */
enum mr_precision { MR_PRECISION_F32, MR_PRECISION_TF32, MR_PRECISION_BF16, MR_PRECISION_FP16 };
/* What to do when a loss is not finite: fail with an error that names step and layer, or skip the
 * step (then every step waits for its loss). */
enum mr_on_nan { MR_ON_NAN_STOP, MR_ON_NAN_SKIP };
/* The order of a pipeline's passes. One forward, one backward: a stage begins backward passes as
 * soon as it can, and keeps the activations of at most as many micro-batches as there are stages.
 * GPipe: all forward, then all backward; it keeps those of all micro-batches. Both take the same
 * time, and give the same bits. */
enum mr_pipeline { MR_PIPELINE_1F1B, MR_PIPELINE_GPIPE };

struct mr_trainer_opts {
    size_t size;
    const char *model;           /* as in mr_net_opts; default "mnist-cnn" */
    const char *optimizer;       /* as mr_optim_parse() reads it; default "adam" */
    const char *schedule;        /* as mr_schedule_parse() reads it; default "constant" */
    double lr;                   /* 0..1e30; -1 (default): the optimizer's */
    double clip_norm;            /* overrides the optimizer's if above 0; default 0 */
    double clip_value;           /* the same */
    enum mr_loss loss;           /* default MR_CROSS_ENTROPY */
    enum mr_precision precision; /* default MR_PRECISION_TF32 */
    uint32_t classes;      /* outputs of built-in models, 1..2^20; 0 (default): the data set's */
    const char *transform; /* chain for each sample; NULL (default): none */
    const char *test_transform; /* for each test sample; NULL (default): `transform` */
    uint64_t batch_size;        /* samples, 1..2^20; default 64; limited to the data set's length */
    uint64_t epochs;            /* default 10 */
    uint64_t max_steps;         /* 0 (default): no limit */
    uint64_t seed;              /* of parameters, order, dropout, random transforms; default 0 */
    int shuffle;                /* default 1 */
    /* Stop at this accuracy, 0..1, of the test set, or of training if there is none; 0 (default):
     * never. */
    double target;
    uint64_t patience;     /* stop after so many epochs without a lower (test) loss; 0: never */
    enum mr_on_nan on_nan; /* default MR_ON_NAN_STOP */
    uint32_t threads;      /* on "cpu"; 0 (default): all that this process may use */
    int graph;             /* GPUs: 1 (default): a step is one graph */
    /* Of the loaders; NULL (default): their defaults. The trainer sets batch_size, epochs, seed,
     * state, rank, world and remainder; it has no use for drop_last, collate and bad. Both loaders
     * share one budget of `workers` threads, or the one that is given. */
    const struct mr_loader_opts *loader;
    const struct mr_checkpoint *resume; /* continue from it; NULL (default): start a new run */
    /* The caller's JSON, stored in checkpoints under "config"; NULL (default): none. */
    const char *config;
    /* mr_time_ns() at the start of the run, from which seconds count; 0 (default): now. */
    uint64_t start_ns;
    /* The ranks that train together; it must outlive the trainer. NULL (default): this process
     * alone. batch_size is then of all ranks together. mr_trainer_save() writes on rank 0
     * alone. The other calls that compute are collective: every rank creates the same trainer, and
     * makes the same calls of _step, _end_epoch, _epoch, _unfinished and _test. */
    struct mr_comm *comm;
    /* Parts of a batch, each with a pass of its own, whose gradients are added up by a fixed tree:
     * a power of two up to 1,024 that divides batch_size. The parameters then have the same bits
     * for any number of ranks that divides it, on "cpu", and on GPUs of one kind. 0 (default): as
     * many as ranks, added up as is fastest; a checkpoint then goes on with another number of
     * ranks, too, but with other bits.
     * 1 is 0 with one rank. Batch-norm has the statistics of a part. */
    uint32_t leaves;
    /* How gradients travel: MR_F32 (default), or MR_BF16, which halves the bytes. They are then
     * rounded in each addition, also of a rank's own parts. */
    enum mr_dtype wire;
    /* The net over several devices: the first stage of layers is on the device of
     * mr_trainer_create(), the next ones on these, of the same kind ("cpu", "cuda", or "sim": host
     * arithmetic at simulated speed). They must outlive the trainer. At most 7; default 0: none.
     * Not with comm. */
    struct mr_device *const *devices;
    uint32_t n_devices;
    /* The layer that begins each stage but the first, "conv3,fc1", by the names of
     * mr_net_layer.name; "auto" (default): the stages of least longest time, as measured on the
     * first device (by the products alone, if the net doesn't fit into it). */
    const char *split;
    /* Parts of a batch that follow one another through the stages. They are leaves: the parameters
     * have the same bits as on one device with as many leaves. 0 (default): `leaves`, or 1. */
    uint32_t micro_batches;
    enum mr_pipeline pipeline; /* default MR_PIPELINE_1F1B */
    /* The order of training samples as mr_sampler_open() reads it, such as
     * "random:block=1024,window=16", in place of `shuffle`. It must have each sample once an epoch:
     * "sequential" or "random". NULL (default): as `shuffle` says. */
    const char *sampler;
    /* 1: the ranks of `comm`, at most 8, are the stages of the net, rank 0 the first, in place of
     * parts of each batch; every rank reads all samples. `split` "auto" then goes by the products
     * alone. Results and checkpoints are those of one device with as many leaves as micro-batches.
     * mr_trainer_save() is collective. Not with devices and shard_optimizer. 0 (default). */
    int split_ranks;
    /* 1: each rank of `comm` keeps the optimizer's state of its part of the parameters alone, and
     * updates that part (ZeRO-1). With `leaves`, results and checkpoints have the same bits as
     * without it; mr_trainer_save() is then collective. Parts are multiples of 4,096 parameters.
     * 0 (default): each keeps all of it. */
    int shard_optimizer;
};

/* Sets opts to the defaults. C and C++ call mr_trainer_opts_init(); see millrace.h. */
MR_API void mr_trainer_opts_fill(struct mr_trainer_opts *opts, size_t size);
static inline void mr_trainer_opts_init(struct mr_trainer_opts *opts)
{
    mr_trainer_opts_fill(opts, sizeof *opts);
}

/*
 * Creates a trainer with its net, optimizer, schedule and loaders, and restores opts->resume. With
 * opts->comm every rank does so; a rank where it fails tells the others (mr_comm_collect()), which
 * else wait for it in their first step, or calls mr_comm_abort().
 * device: "cpu" or "cuda". test: the test set; NULL: none. The device and both data sets must
 * outlive the trainer. opts, its texts and opts->resume are used only during this call.
 * [out] out: on success; free it with mr_trainer_destroy().
 * Returns 0, MR_EOPTION (a model, optimizer, schedule or chain), MR_ESHAPE (samples or labels do
 * not fit the net), MR_ESTATE (the checkpoint is of another run, or the test set numbers its
 * classes differently), MR_EMISUSE, MR_EUNSUPPORTED, MR_ELIMIT, MR_EFORMAT, MR_EDEVICE,
 * MR_EDEVICEMEM, -ENOMEM, -errno.
 */
MR_API int mr_trainer_create(struct mr_device *device, struct mr_dataset *ds,
                             struct mr_dataset *test, const struct mr_trainer_opts *opts,
                             struct mr_trainer **out);

/* Frees a trainer. Blocks until the device has finished its work. NULL is allowed. */
MR_API void mr_trainer_destroy(struct mr_trainer *t);

/* Sums over a pass, or over a part of one. */
struct mr_train_sums {
    size_t size; /* of this struct, set by the caller */
    double loss; /* sum over samples */
    uint64_t n_right, n_samples;
};

/* An epoch. NaN: not measured. */
struct mr_train_epoch {
    size_t size;           /* of this struct, set by the caller */
    uint64_t epoch, steps; /* from 1; steps done at its end, since the run's start */
    double loss, accuracy; /* mean over samples */
    double test_loss, test_accuracy;
    double seconds, test_seconds;
    double lr; /* of its last step */
    double samples_per_s;
    double waited; /* fraction of its time in which the device had no batch: 0..1 */
};

/*
 * Trains on one batch.
 * [out] last: 1 if it was the epoch's last batch; call mr_trainer_end_epoch() next.
 * Returns 1, 0 (the run is over; mr_trainer_info.end says why), MR_EFORMAT (labels out of range),
 * MR_EMISUSE (a loss that is not finite; with ranks, rank 0's text names the layer), MR_EPEER (a
 * rank is missing: comm.h), or an error of the loader.
 */
MR_API int mr_trainer_step(struct mr_trainer *t, int *last);

/* Ends the run on all ranks, after at most one more step. One rank asks, for all: a step's sum
 * tells the others. Returns 0, MR_EMISUSE. */
MR_API int mr_trainer_ask_stop(struct mr_trainer *t);

/* Ends an epoch: runs the test set if there is one, adds the epoch to the history, and decides
 * whether the run is over. [out] out: on success; may be NULL. Returns 0, or an error as
 * mr_trainer_step(). */
MR_API int mr_trainer_end_epoch(struct mr_trainer *t, struct mr_train_epoch *out);

/* Trains to the end of the epoch and ends it. [out] out: when 1 is returned; may be NULL. Returns
 * as mr_trainer_step(). */
MR_API int mr_trainer_epoch(struct mr_trainer *t, struct mr_train_epoch *out);

/* Measures the epoch so far without ending it, for a run that stops within an epoch.
 * With ranks it is collective. test: 1: run the test set, if there is one. [out] out: when 1 is
 * returned. Returns 1, 0 (the epoch has no samples yet), or an error as mr_trainer_step(). */
MR_API int mr_trainer_unfinished(struct mr_trainer *t, int test, struct mr_train_epoch *out);

/* Runs the test set once. With ranks it is collective. [out] out: on success. Returns 0, MR_EMISUSE
 * (there is no test set), MR_EFORMAT, MR_EDEVICE, MR_EPEER, or an error of the loader. */
MR_API int mr_trainer_test(struct mr_trainer *t, struct mr_train_sums *out);

/* Writes a checkpoint. The file is replaced as a whole or not at all. With shard_optimizer and
 * split_ranks it is collective: rank 0 writes, and if it fails to write the file, it alone returns
 * the error; others have returned 0, or do so. Returns 0, -errno, MR_EFORMAT, MR_EMISUSE,
 * MR_EDEVICE, MR_EPEER, MR_ECANCELLED (another rank had no memory: nothing was moved), MR_ELIMIT,
 * -ENOMEM. */
MR_API int mr_trainer_save(struct mr_trainer *t, const char *path);

/* Why the run ended; MR_TRAINER_EPOCHS also while it is running. */
enum mr_trainer_end {
    MR_TRAINER_EPOCHS,
    MR_TRAINER_TARGET,
    MR_TRAINER_PATIENCE,
    MR_TRAINER_STEPS,
    MR_TRAINER_STOPPED /* mr_trainer_ask_stop() */
};

struct mr_trainer_info {
    size_t size;          /* set it to sizeof; no more is written */
    uint64_t step, epoch; /* done since the run's start, including what came before a resume */
    uint64_t resumed_step;
    uint64_t skipped;  /* steps skipped by MR_ON_NAN_SKIP */
    uint32_t n_epochs; /* in the history */
    uint32_t best;     /* index in the history, by test accuracy, or accuracy without a test set */
    enum mr_trainer_end end;
    uint32_t classes;
    int label;                /* the field of labels */
    const char *optimizer;    /* text with lr and clipping */
    double seconds;           /* since the run's start */
    double seconds_to_target; /* NaN: not reached */
    double epoch_seconds;     /* since the epoch began */
    uint64_t optim_bytes;     /* of the optimizer's state, in this process */
};

/* Describes the run. Cheap: it can be called between steps. [out] out: on success, all but size.
 * Returns 0, MR_EMISUSE (a wrong size). */
MR_API int mr_trainer_query(const struct mr_trainer *t, struct mr_trainer_info *out);

/* The i-th epoch of the history, which includes epochs before a resume; NULL after the last. Owned
 * by the trainer; valid until the next epoch ends. */
MR_API const struct mr_train_epoch *mr_trainer_epoch_get(const struct mr_trainer *t, uint32_t i);

/* Where this process's time went so far, in seconds. */
struct mr_trainer_times {
    size_t size; /* set it to sizeof; no more is written */
    double waiting, stepping, testing, saving;
};

/* Reads these times. [out] out: on success, all but size. Returns 0, MR_EMISUSE (a wrong size). */
MR_API int mr_trainer_query_times(const struct mr_trainer *t, struct mr_trainer_times *out);

/* Of a step, in ns. */
struct mr_trainer_step_times {
    size_t size;      /* set it to sizeof; no more is written */
    uint64_t data_ns; /* waiting for the batch */
    uint64_t compute_ns;
    uint64_t sum_ns; /* in sums over the ranks, waiting for other ranks included */
};

/* Reads the last step's times by the host's clock: zeroes before the first step. On a GPU steps are
 * only enqueued, so these say little: see mr_trainer_next_step_times(). [out] out: on success, all
 * but size. Returns 0, MR_EMISUSE (NULL, a wrong size). */
MR_API int mr_trainer_query_step_times(const struct mr_trainer *t,
                                       struct mr_trainer_step_times *out);

/* Takes the times of one step, the oldest that is known and was not taken; up to 256 are kept. The
 * times of ranks on a GPU, or another device that enqueues, are by the device's clock, of every 8th
 * step, become known 8 at once, and data_ns is how long the device had no work before the step.
 * Elsewhere they are known after each step, by the host's clock. [out] out: on 1. Returns 1, 0
 * (none is known), or MR_EMISUSE (NULL, a wrong size). */
MR_API int mr_trainer_next_step_times(struct mr_trainer *t, struct mr_trainer_step_times *out);

/* Reads the sums of the current epoch, including its part before a resume. Blocks. [out] out: on
 * success. Returns 0, or an error as mr_trainer_step(). */
MR_API int mr_trainer_sums(struct mr_trainer *t, struct mr_train_sums *out);

/* A sequence of steps to be measured, between two calls that both block. No epoch may end within
 * it. */
struct mr_train_window {
    size_t size; /* of this struct, set by the caller */
    uint64_t steps;
    double loss; /* as in mr_train_sums */
    uint64_t n_right, n_samples;
    double seconds, waited; /* as in mr_train_epoch */
};

/* Begin and end a measurement. [out] out: on success. Return 0, or an error as
 * mr_trainer_step(). */
MR_API int mr_trainer_window_begin(struct mr_trainer *t);
MR_API int mr_trainer_window_end(struct mr_trainer *t, struct mr_train_window *out);

/* The trainer's parts. Owned by the trainer. With split_ranks net and optimizer are those of this
 * rank's stage, and get_stage gives of the other ranks' nets only layers and parameters' names,
 * without memory. With shard_optimizer the optimizer is of this rank's
 * part, and its arrays have that many elements. Of a split net, net and optimizer are the first
 * stage's; get_stage gives the net of any, from 0, and NULL behind the last. */
MR_API struct mr_net *mr_trainer_get_net(struct mr_trainer *t);
MR_API struct mr_net *mr_trainer_get_stage(struct mr_trainer *t, uint32_t stage);
MR_API struct mr_optim *mr_trainer_get_optim(struct mr_trainer *t);
MR_API struct mr_loader *mr_trainer_get_loader(struct mr_trainer *t);

/* Bytes of a stage's activations, of all micro-batches that it keeps, and of its workspace, 16-bit
 * copy of the parameters and running statistics. Of a net that is not split stage 0 is all of it;
 * 0: no such stage, or it is another rank's. */
MR_API uint64_t mr_trainer_stage_memory(const struct mr_trainer *t, uint32_t stage);

/* The data set's field of labels; -1: none. */
MR_API int mr_train_label_field(const struct mr_dataset *ds);

/* Sets channels, height, width and layout for samples of this shape. Returns 0, MR_ESHAPE. */
MR_API int mr_train_sample(const struct mr_spec *spec, struct mr_net_opts *opts);

/*
 * Checks that the loader's field has labels for this loss: one class, or for MR_MSE one number per
 * output.
 * outputs: mr_train_outputs(). who: the data set's name, for the error. Returns 0, MR_ESHAPE.
 */
MR_API int mr_train_check_labels(const struct mr_loader *ld, int field, enum mr_loss loss,
                                 uint32_t outputs, const char *who);

/* The number of outputs of the net's last layer per sample. */
MR_API uint32_t mr_train_outputs(const struct mr_net *net);

/* The name of a loss: "cross-entropy", "nll", "mse". Constant. */
MR_API const char *mr_loss_name(enum mr_loss loss);

#ifdef __cplusplus
}
#endif
#endif
