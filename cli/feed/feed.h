/*
 * One run of the pipeline into a device: what `millrace feed` does, and `millrace bench loader`
 * measures.
 */
#ifndef CLI_FEED_FEED_H
#define CLI_FEED_FEED_H

#include "pipeline.h"
#include "ranks/ranks.h"

struct feed_opts {
    struct cli_common common;
    /* order */
    int shuffle;
    char *sampler;
    int affinity;
    char *rank_text, *world_text; /* cli_place() makes loader.rank and loader.world of them */
    /* pipeline */
    struct mr_loader_opts loader;
    char *transform, *device, *cache_dir;
    uint64_t cache_limit, retries, stall_ns;
    /* the run */
    char *quarantine;
    int force;
    uint64_t time_ns, warmup_ns, batches, max_cpus;
    double sink_ms;
    int digest;
    char *digest_from, *state_in, *state_out, *trace, *save, *report_dir;
    bool until_tuned; /* ends when tuning has */
};

/* Additive: the digests of two ranks, or of the parts of a run, add up to the whole's. */
struct feed_digest {
    uint64_t lo, hi;
};

extern const struct mr_option feed_options[];

struct feed_result {
    struct mr_loader_stats stats;
    double seconds;      /* from open to the last batch's end */
    double span_seconds; /* first step's end to the last step's end, on the consumer's stream */
    uint64_t step_ns;    /* of the simulated consumer; 0: none */
    /* with --warmup: the first batch after it, the last one, samples between; 0: none yet */
    uint64_t warm_from_ns, warm_end_ns, warm_samples;
    /* Steps' time / span, without the first step (as MLPerf Storage's AU); < 0: no steps. */
    double utilization;
    struct feed_digest digest;
    struct mr_memory_counters memory[MR_N_MEMORY];
    uint64_t lost_spans;
    struct mr_loader_tuning tuning; /* with --tune */
    bool finished;      /* nothing to feed: --state-in is of a run that has done its epochs */
    int stopped;        /* by time, batches, a signal or an error, before the epochs' end */
    int failed;         /* the exit code of the error that ended the run; CLI_OK: none */
    uint64_t cut_steps; /* that took less than step_ns, or no time, because the run was stopped */
    char state[1024 + 40 * 1024]; /* of the largest prefetch */
};

#define FEED_STEPS_ENDS 101

/* Steps of the simulated consumer (steps.c). */
struct feed_steps {
    struct mr_event *first, *last;
    struct mr_event *end[FEED_STEPS_ENDS]; /* of the latest steps; n_ends: 0 for short steps, and on
                                            * the host */
    uint32_t n_ends;
    uint64_t n, cut_ns; /* cut_ns: what is missing of steps that were cut short */
    bool can_stop;
    volatile uint32_t stop; /* read by the device */
};

struct feed {
    const struct feed_opts *opts;
    struct cli_pipeline pipe;
    char *state_text;
    /* host memory for the digest */
    unsigned char *back;
    uint64_t back_bytes;
    struct ranks_own own; /* with --report-dir */
    struct feed_steps steps;
    struct feed_result result;
};

/* Opens everything that the options say. Returns 0 or an error (mr_last_error()); feed_close() in
 * either case. */
int feed_open(struct feed *feed, const char *dataset, const struct feed_opts *opts);

/* Runs to the end, the time limit, or an interrupt. tick is called after each batch with what has
 * been delivered so far; NULL: not. Fills feed->result, also when it fails part-way. Returns 0 or
 * the error. */
int feed_run(struct feed *feed, void (*tick)(void *user, uint64_t samples), void *user);

void feed_close(struct feed *feed);

/* steps.c. Of the pipeline's device, once it is open. */
int feed_steps_open(struct feed *feed);
/* Enqueues a step, once few enough are in the queue. */
int feed_steps_add(struct feed *feed);
/* Cuts long steps short, those that are enqueued too; from any thread. GPUs' steps are waited
 * for. */
void feed_steps_stop(struct feed *feed);
/* Waits for all of them, and sets result.span_seconds and cut_steps. */
void feed_steps_end(struct feed *feed);
/* result.utilization, once the loader's figures are there. */
double feed_steps_utilization(const struct feed *feed);
void feed_steps_close(struct feed *feed); /* after cli_pipeline_stop() */

/* What came of it; return an exit code. */
int feed_print_json(const struct feed *feed);
int feed_print_text(const struct feed *feed);

/* Write the files that --quarantine and --state-out name; print errors, return an exit code. */
int feed_write_quarantine(const struct feed *feed);
int feed_write_state(const struct feed *feed);
/* Can the files be made where they are wanted? Asked before the run. */
int feed_check_files(const struct feed_opts *opts);

/* tuned.c: what --tune has found. save writes --save's file; an exit code. */
/* NULL: without --tune. */
const struct mr_loader_tuning *feed_tuning(const struct feed *feed);
int feed_save_tuning(const struct feed *feed);

/* The whole command, once the options are read; an exit code. */
int feed_command(struct feed_opts *opts, const char *dataset,
                 int (*print)(const struct feed *feed));

/* feed_remote.c: http and s3. The options must be set before the data set is opened. */
int feed_set_remote(const struct feed_opts *opts);
void feed_json_remote(struct mr_json *json);
void feed_print_remote(void);

/* Adds the digest of each row of a batch in host memory: data[f] has the
 * layout of the batch's field f. */
void feed_digest_add(struct feed_digest *digest, const struct mr_batch *batch,
                     const unsigned char *const data[]);

/* 32 hex digits and a NUL; and back: 0 or MR_EOPTION. */
void feed_digest_format(const struct feed_digest *digest, char out[33]);
int feed_digest_parse(const char *text, struct feed_digest *out);

#endif
