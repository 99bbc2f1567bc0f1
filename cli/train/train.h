/*
 * Training: what `millrace train` does, and what predict and the benches of it are made of.
 *
 * A struct train_data holds the device, the data sets and their loaders' options; a struct train one net's training on them:
 * several, one after the other, may share the data.
 */
#ifndef CLI_TRAIN_TRAIN_H
#define CLI_TRAIN_TRAIN_H

#include "cli.h"
#include "train/checkpoint.h"

enum train_amp { TRAIN_OFF, TRAIN_TF32, TRAIN_BF16, TRAIN_FP16 };
enum train_on_nan { TRAIN_STOP, TRAIN_SKIP };

struct train_opts {
    struct cli_common common;
    /* model */
    char *model, *optimizer, *schedule;
    double lr, clip_norm, clip_value;
    int loss, amp;
    uint64_t classes;
    /* data */
    char *transform, *test, *test_transform;
    uint64_t batch_size, epochs, seed;
    int shuffle, cache;
    /* machine */
    char *device;
    uint64_t workers, prefetch, threads;
    int graph, pin, blocking, device_transforms;
    /* the run */
    double target;
    uint64_t patience, max_steps;
    int on_nan;
    char *checkpoint, *checkpoint_every;
    int resume, force;
    char *log, *plot;
    uint64_t log_every;
};

extern const struct mr_option train_options[];
extern const char *const train_losses[], *const train_amps[]; /* by enum mr_loss, enum train_amp; end with NULL */

/* How a field of samples looks to a net. */
struct train_shape {
    uint32_t c, h, w;
    enum mr_layout layout;
};

struct train_data {
    const struct train_opts *opts;
    struct mr_device *dev;
    struct mr_device_info info;
    struct mr_stream *stream;
    struct mr_dataset *ds, *test;
    struct mr_transform *chain, *test_chain;
    const char *chain_text, *test_chain_text; /* "": none */
    char *test_uri, *own_test_uri;            /* NULL: none; the second is freed */
    char test_note[160];                      /* where the test set comes from, or why there is none */
    char chain_note[96];
    uint32_t classes;
    int label; /* which field */
    struct train_shape shape;
    uint64_t start_ns;             /* when opening began */
    struct mr_loader *test_loader; /* endless: stopped at each pass's last batch */
};

/* A pass over the training or test set. */
struct train_sums {
    double loss; /* sum */
    uint64_t n_right, n_samples;
};

struct train_epoch {
    uint64_t epoch, steps; /* from 1; steps: done at its end, from the run's start */
    double loss, accuracy, test_loss, test_accuracy, seconds, test_seconds, lr, samples_per_s, waited; /* NaN: none */
};

/* How long batches kept the device, by its own clock. */
struct train_use {
    uint64_t batches, ns, step; /* the loader's count, and where the run was, at the latest look */
    double seconds;             /* from the window's begin to that look */
};

struct train_graph {
    const void *input, *labels;
    uint32_t n;
    struct mr_graph *graph;
};

enum train_end { TRAIN_EPOCHS, TRAIN_TARGET, TRAIN_PATIENCE, TRAIN_STEPS, TRAIN_INTERRUPTED, TRAIN_FAILED };

struct train {
    struct train_data *data;
    const struct train_opts *opts;
    struct mr_sampler *sampler;
    struct mr_loader *ld;
    struct mr_net *net;
    struct mr_optim *optim;
    struct mr_schedule *schedule;
    char *optim_text; /* with lr and clipping; without threads, which change no bits */
    struct train_graph *graph;
    uint32_t n_graphs, cap_graphs;
    uint32_t eager[8], n_eager; /* batch sizes that ran once without a graph */

    uint64_t step, epoch;            /* done, from the run's start */
    struct train_sums sums;          /* of this epoch, what was taken from the net's totals so far */
    struct train_sums sums_at_start; /* of the epoch's part before a resume, which took none of this process's time */
    uint64_t skipped;                /* steps left out for a loss that was not finite */
    uint32_t skipped_in_row;
    bool stepped; /* in this run: the net's low precision copy, which the optimizer writes, holds the parameters */
    struct train_epoch *history;
    struct train_epoch unfinished; /* the steps of an epoch that the run ended in; epoch 0: none */
    uint32_t n_history, cap_history;
    uint32_t best;         /* in history; by test accuracy, or training accuracy without a test set */
    double best_test_loss; /* for patience */
    uint64_t since_best;   /* epochs */
    enum train_end end;
    uint64_t resumed_step;
    double seconds_to_target; /* NaN: not reached */
    double earlier_seconds;   /* of the runs before a resume */

    /* where the time went, seconds; of this process */
    double opening, waiting, stepping, testing, saving;
    struct train_use use; /* of this epoch */
    uint64_t start_ns, epoch_ns, saved_ns, epoch_wait_ns, epoch_steps;
    uint64_t every_steps, every_ns; /* checkpoints */
    struct mr_loader_stats stats;   /* at the end */
    struct cli_progress progress;
    void *log;  /* struct train_log */
    bool saved; /* the checkpoint is as --checkpoint's file has it */
    int code;   /* of files that could not be written */
};

/* train_data.c. dataset: URI. Returns 0 or an error (mr_last_error()); close in either case. */
int train_data_open(struct train_data *data, const char *dataset, const struct train_opts *opts);
void train_data_close(struct train_data *data);
int train_label_field(const struct mr_dataset *ds); /* where the labels are; -1: nowhere */
/* No batch is larger than the data set. */
uint64_t train_batch_size(const struct mr_dataset *ds, uint64_t asked);
int train_shape_of(const struct mr_spec *spec, struct train_shape *out);
int train_loader_open(struct train_data *data, bool test, struct mr_sampler *sampler, const char *state,
                      struct mr_loader **out);
/* Does the loader's field of labels hold what a net of so many outputs reads of each sample: one class, or (mse) a number an
 * output? who: the data set, for the error. */
int train_check_label(const struct mr_loader *ld, int field, int loss, uint32_t outputs, const char *who);
/* How labels lie, for the error on those out of range. */
void train_label_range(const struct train_data *data, int64_t *low, int64_t *high, uint64_t *looked_at);

/* train.c: one net on the data. from: the checkpoint to go on from, or NULL. The data's options must stay. */
int train_open(struct train *t, struct train_data *data, const struct train_opts *opts, const struct checkpoint *from);
void train_close(struct train *t);
/* What the net computes in, by --amp and the device. */
enum mr_dtype train_dtype(const struct train_opts *opts);
/* How many outputs its last layer has. */
uint32_t train_outputs(const struct mr_net *net);
int train_net_open(struct train_data *data, const struct train_opts *opts, uint32_t max_batch, struct mr_net **out);

/* train_step.c: one batch, taken from the loader and released. [out] last: the epoch's. Returns 1, 0 at the end, or an error. */
int train_step(struct train *t, bool *last);
/* Takes the net's totals into t->sums; looks for what is wrong: labels, losses that are not finite. Blocks. */
int train_take_totals(struct train *t);
/* Goes over the test set. [out] out: sums. */
int train_test(struct train *t, struct train_sums *out);
/* The share of the time that the device (or, on cpu, the step's thread) had no batch, in the `seconds` since train_use_begin(). */
void train_use_begin(struct train *t);
double train_waited(struct train *t, double seconds, uint64_t wait_ns);

/* train_run.c: to the end. Returns 0 or the error. */
int train_run(struct train *t);

/* train_state.c */
int train_save(struct train *t); /* prints errors; exit code */
int train_check_state(const struct train *t, const struct checkpoint *c);
int train_restore(struct train *t, const struct checkpoint *c);
/* The net's parameters and buffers from a checkpoint. */
int train_load_net(struct mr_net *net, const struct checkpoint *c);

/* train_names.c: the names of classes. text: from cli_class_names(), perhaps from a file, or NULL: none. of: whose names.
 * [out] names: n of them, NULL where a class has none; free with train_names_free(), also after an error.
 * Returns 0, MR_EFORMAT, -ENOMEM. */
int train_names_parse(const char *text, const char *of, char ***names, uint32_t *n);
void train_names_free(char **names, uint32_t n);
/* Do the data set's names say of each number what these say? Returns 0, MR_ESTATE (says which class: `of` is the other's name), -ENOMEM. */
int train_names_check(const struct mr_dataset *ds, char *const *names, uint32_t n, const char *of);

/* train_files.c: --log and --plot. Print errors, return an exit code. */
struct train_files {
    struct cli_lock checkpoint, log;
};
/* May this run write its files, and does no other? release is due whether this succeeded or not. */
int train_files_claim(struct train_files *claims, const struct train_opts *opts);
void train_files_release(struct train_files *claims);
int train_log_open(struct train *t);
int train_log_steps(
    struct train *t); /* a row every --log-every steps; what train_take_totals() returns, if that is an error */
void train_log_epoch(struct train *t, const struct train_epoch *e);
int train_log_close(struct train *t);
int train_draw(const struct train *t);

/* train_report.c */
void train_print_head(const struct train *t);
void train_print_epoch(const struct train *t, const struct train_epoch *e);
int train_print_end(const struct train *t);
int train_print_json(const struct train *t);
void train_json_epoch(struct mr_json *json, const struct train_epoch *e);
void train_json_number(struct mr_json *json, const char *key, double value); /* NaN: null */

#endif
