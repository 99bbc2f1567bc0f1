/*
 * What `millrace train` adds to the library's trainer (millrace/train.h): options, default chains
 * and test sets, progress, logs, curves, reports. The benches of training are made of the same.
 *
 * A struct train_data holds the device and the data sets; a struct train one net's training on
 * them: several, one after the other, may share the data.
 */
#ifndef CLI_TRAIN_TRAIN_H
#define CLI_TRAIN_TRAIN_H

#include "pipeline.h"

struct train_opts {
    struct cli_common common;
    /* model */
    char *model, *optimizer, *schedule;
    double lr, clip_norm, clip_value;
    int loss, amp;
    uint64_t classes;
    /* data */
    char *transform, *test, *test_transform;
    uint64_t epochs, seed;
    int shuffle;
    char *sampler; /* NULL: by shuffle */
    int affinity;
    /* machine */
    struct mr_loader_opts loader; /* and its batch_size */
    char *device;
    uint64_t threads, max_cpus;
    int graph;
    /* stages */
    char *split;
    uint64_t micro_batches;
    int pipeline, split_ranks;
    /* the run */
    double target;
    uint64_t patience, max_steps;
    int on_nan;
    /* ranks */
    int comm, wire, shard_optimizer;
    uint64_t leaves, comm_timeout, report_every;
    char *metrics, *report_dir;
    char *checkpoint, *checkpoint_every;
    int resume, force;
    char *log, *plot;
    uint64_t log_every;
};

extern const struct mr_option train_options[];
extern const char *const train_pipelines[]; /* by enum mr_pipeline */
extern const char *const train_comms[];     /* "auto", "none", "mpi", "nccl" */
extern const char *const train_losses[],
    *const train_amps[]; /* by enum mr_loss, enum mr_precision; end with NULL */

enum { TRAIN_DEVICES = 7 }; /* besides the first */

struct train_ranks;
struct train_data {
    const struct train_opts *opts;
    const struct train_ranks *ranks; /* set behind train_data_open(); NULL: alone */
    struct cli_pipeline pipe;        /* the device and the training set; the trainer has the rest */
    struct mr_device *more[TRAIN_DEVICES]; /* of the stages behind the first */
    uint32_t n_more;
    struct mr_dataset *test;
    const char *chain_text, *test_chain_text; /* "": none */
    char *test_uri, *own_test_uri;            /* NULL: none; the second is freed */
    char test_note[160]; /* where the test set comes from, or why there is none */
    char chain_note[96];
    uint32_t classes;  /* 0: as the data set says */
    uint64_t start_ns; /* when opening began */
};

/* The first five as enum mr_trainer_end. */
enum train_end {
    TRAIN_EPOCHS,
    TRAIN_TARGET,
    TRAIN_PATIENCE,
    TRAIN_STEPS,
    TRAIN_INTERRUPTED,
    TRAIN_FAILED
};

/* ranks.c: the processes that train together. comm NULL: this one is alone. */
struct train_ranks {
    struct mr_comm *comm;
    struct mr_place place;
    uint64_t timeout_ns;
    char device[256];      /* that this rank uses */
    struct mr_device *dev; /* it, for comm; train_data_open() takes it */
    bool nccl;
    char no_nccl[320]; /* why auto did not take it on GPUs; "": it did, or there are none */
    int errors;        /* standard error, of ranks that print nothing; -1: it is where it was */
};

struct train_steps;
struct train {
    struct train_data *data;
    const struct train_ranks *ranks; /* NULL: alone */
    const struct train_opts *opts;
    struct mr_trainer *trainer;
    uint64_t micro;              /* micro-batches; 0: it is no pipeline */
    struct mr_trainer_info info; /* as of the last step */
    struct mr_train_epoch
        unfinished;                 /* the steps of an epoch that the run ended in; epoch 0: none */
    struct mr_trainer_times times;  /* at the end */
    struct mr_loader_stats stats;   /* the same */
    struct mr_loader_tuning tuning; /* the same */
    enum train_end end;
    double opening; /* seconds */
    uint64_t start_ns, saved_ns;
    uint64_t every_steps, every_ns; /* checkpoints */
    struct cli_progress progress;
    struct train_steps *steps; /* of lockstep.c; NULL: nobody asks */
    void *log;                 /* struct log */
    bool broken;               /* it ended before its end, on this rank alone perhaps */
    bool saved;                /* the checkpoint is as --checkpoint's file has it */
    int code;                  /* of files that could not be written */
};

/* data.c. dataset: URI. device: one that is open, and becomes the data's; NULL, or of NULL: by
 * opts. Returns 0 or an error (mr_last_error()); close in either case. */
int train_data_open(struct train_data *data, const char *dataset, const struct train_opts *opts,
                    struct mr_device **device);
void train_data_close(struct train_data *data);

/* Joins the ranks that a launcher started, as --comm says. All but rank 0 print nothing from here
 * on. Returns an exit code; it has printed the error. */
int train_ranks_open(struct train_ranks *r, const struct train_opts *o, const char *dataset);
/* Ends all ranks where this one failed during training; else leaves them. Returns the code. */
int train_ranks_close(struct train_ranks *r, int code, bool running);
/* Before the first step: do all ranks begin, and with the same parameters? code: of this one. t:
 * its trainer, or NULL. Returns the code of all; rank 0 prints the others' errors. */
int train_ranks_agree(struct train_ranks *r, int code, const struct train *t);
/* Checkpoints by the clock: is one due on rank 0? mine: on this rank. Where ranks have parts of it
 * all take part in one, so they ask from time to time; all of them call it after each step. [out]
 * due: whether to write one now. Returns 0 or an error. */
int train_ranks_due(struct train *t, bool mine, bool *due);
void train_ranks_print(const struct train *t);
void train_ranks_json(const struct train *t, struct mr_json *json);

/* lockstep.c: what the ranks do in each step, and who holds the others up. check: --metrics and
 * --report-dir, before the run; an exit code. add: after each step; end: after the last; all ranks
 * call both. Return 0 or an error. */
int train_steps_check(const struct train_opts *o, const struct train_ranks *ranks);
int train_steps_open(struct train *t);
int train_steps_add(struct train *t, bool last);
int train_steps_end(struct train *t);
void train_steps_close(struct train *t);
void train_steps_print(const struct train *t);
void train_steps_json(const struct train *t, struct mr_json *json);

/* devices.c: text: "cuda:0+cuda:1". Returns 0 or an error; close in either case. */
int train_devices_open(struct train_data *d, const char *text);
void train_devices_close(struct train_data *d);
/* The i-th layer of the net, over all stages. NULL behind the last. */
const struct mr_net_layer *train_layer(const struct train *t, uint32_t i);
/* Bytes of activations and what is with them, of all stages. */
uint64_t train_stages_memory(const struct train *t);
/* Is each rank a stage of the net? */
bool train_ranks_are_stages(const struct train *t);
void train_stages_print(const struct train *t);
void train_stages_json(const struct train *t, struct mr_json *json);

/* restart.c: how a job is named in checkpoints, with its NUL. */
enum { TRAIN_JOB = 256 };
/* After a restart by the launcher: resume, unless --force is given. Returns whether it did that. */
bool train_restart_resumes(struct train_opts *o, const struct mr_place *place);
/* Did this job write the checkpoint? Returns an exit code; it has printed the error. */
int train_restart_check(const struct train_opts *o, const struct mr_checkpoint *from);

/* open.c: one net on the data. from: the checkpoint to go on from, or NULL. The data's options must
 * stay. */
int train_open(struct train *t, struct train_data *data, const struct train_opts *opts,
               const struct mr_checkpoint *from);
void train_close(struct train *t);

/* run.c: to the end. Returns 0 or the error. */
int train_run(struct train *t);

/* files.c: --log and --plot. Print errors, return an exit code. */
struct train_files {
    struct cli_lock checkpoint, log;
};
/* May this run write its files, and does no other? release is due whether this succeeded or not. */
int train_files_claim(struct train_files *claims, const struct train_opts *opts);
void train_files_release(struct train_files *claims);
int train_log_open(struct train *t);
/* A row every --log-every steps. Returns 0 or an error of the trainer's. */
int train_log_steps(struct train *t);
void train_log_epoch(struct train *t, const struct mr_train_epoch *e);
int train_log_close(struct train *t);
int train_draw(const struct train *t);

/* report.c */
void train_print_head(const struct train *t);
void train_print_epoch(const struct train *t, const struct mr_train_epoch *e);
int train_print_end(const struct train *t);
int train_print_json(const struct train *t);
void train_json_number(struct mr_json *json, const char *key, double value); /* NaN: null */

#endif
