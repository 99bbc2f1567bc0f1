/*
 * Runs: what workers claim, and the reads that bring their bytes.
 *
 * A run is a few neighbouring rows of one batch. Filling it maps its positions to indices (the
 * sampler), asks the data set where the bytes are, takes views of those that are in memory, and
 * plans one read for each group of neighbouring ranges of the others. A worker keeps several runs
 * in flight, submits their reads as far as its queue depth allows, and makes each sample once its
 * reads have landed and its slot is open.
 *
 * If the bytes are the tensor as it is and the slot is already open, a read goes straight into the
 * row; other reads go to the run's part of the worker's read buffer.
 *
 * Whatever fails here is kept in the run and reported by the thread that makes the sample: the slot
 * on which a bad sample is noted may not be open yet.
 */
#ifndef MR_LOADER_RUN_H
#define MR_LOADER_RUN_H

#include "dataset/dataset.h"
#include "loader/plan.h"

struct mr_loader;
struct mr_worker;

struct mr_run_extent {
    struct mr_extent at;
    const void *view; /* in memory; NULL: see read */
    struct mr_read *read;
    uint64_t skip;  /* bytes into the read */
    bool on_device; /* it has been read into its row in the device half */
};

struct mr_run_sample {
    uint64_t index, position;  /* position: global, unwrapped */
    int n_extents;             /* of which bytes were had or are on their way */
    int status;                /* negative: it could not be located, see mr_run_error() */
    int failed_extent;         /* whose bytes could not be had */
    uint32_t row, from, count; /* of a batch sampler's item; else 0 */
    bool done;
    struct mr_item *item;         /* of an iterable data set: its bytes */
    uint8_t maker;                /* the backend that makes it: its number among the used ones */
    struct mr_run_extent *extent; /* mr_extents_most() of them */
};

/* The latest batch that a worker asked a batch sampler for. */
struct mr_found {
    struct mr_batch_item *items; /* max_batch of them; NULL: no batch sampler */
    struct mr_plan_batch info;
    uint64_t t, n; /* t UINT64_MAX: none yet. n: samples; 0: there is no such batch */
    struct mr_error_kept error;
};

struct mr_run {
    uint64_t t;
    struct mr_plan_batch info;
    uint32_t row0, n, n_done;
    bool last; /* of its epoch, if the plan finds its batches */
    uint64_t posted_ns;
    bool posted;     /* the data set makes it (posted.c) */
    uint32_t n_left; /* of its batch's rows_left, this run's part that it has not subtracted */
    uint32_t n_reads, n_landed, n_submitted;
    struct mr_run_sample *sample; /* run_rows of them */
    struct mr_read *read;         /* run_rows x mr_extents_most() of them */
    struct mr_error_kept error;   /* code < 0: no order, no buffer: fatal */
    bool *landed; /* of each read: reaped. Until then its result is its store's, on any thread */
    unsigned char *buffer;
    uint64_t buffer_bytes;
    bool own_buffer; /* larger than its part of the worker's */
};

/* Fills a run: order, extents, views, reads (made, not submitted). open: the slot of its batch is,
 * so reads may go to its rows. */
void mr_run_fill(struct mr_worker *w, struct mr_run *run, uint64_t number, bool open);
/* Of a loader that gathers: where a sample's bytes are, before it is made alone. */
void mr_run_locate(struct mr_worker *w, struct mr_run *run, uint32_t i);
/* find.c: what run->t and row0 are with a batch sampler: info, n, and the samples' positions and
 * indices. Says so to the ring if there is no such batch. Returns 0 or an error; n is 0 then. */
int mr_run_find(struct mr_worker *w, struct mr_run *run);
int mr_found_create(struct mr_worker *w);
uint64_t mr_found_bytes(const struct mr_loader *ld);
void mr_found_free(struct mr_worker *w);
/* Sets the error of a sample with a negative status, on the thread that makes it; returns its code.
 */
int mr_run_error(const struct mr_worker *w, const struct mr_run *run, uint32_t i);
/* What the tables of one sample of a run in flight take, beside its bytes. */
uint64_t mr_run_row_bytes(const struct mr_loader *ld);
/* The parts of all runs of a worker. */
int mr_runs_create(struct mr_worker *w);
void mr_runs_free(struct mr_worker *w); /* after its reader is closed */
/* Frees the errors of reads that have landed, and gives memory of whole files back to the reader,
 * items back to the source. */
void mr_run_end(struct mr_worker *w, struct mr_run *run);
#endif
