/*
 * Rows and errors of the jobs that workers made (results.c), for jobs.c, which posts jobs and waits
 * for them.
 */
#ifndef MR_DATASET_WORKERS_RESULTS_H
#define MR_DATASET_WORKERS_RESULTS_H

#include "dataset/workers/workers.h"

#define MR_KEPT_ERRORS 512 /* of a run: samples with more are made again */

/* An error that a sample of a thread's latest run had, for when it is asked for alone. */
struct mr_kept_error {
    uint64_t index, epoch, position;
    struct mr_error_kept error;
};

struct mr_kept_errors {
    uint32_t n;
    struct mr_kept_error kept[MR_KEPT_ERRORS];
};

/* What a thread wants. */
struct mr_wanted {
    const struct mr_dataset *ds;
    const struct mr_sample_context *context;
    void *const (*row)[MR_MAX_FIELDS];
    uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK]; /* NULL: they are the fields' own */
    int *rc;
    struct mr_kept_errors *thread; /* NULL: none */
    struct mr_shared_block slots;  /* rows in it are written by the workers; data NULL: none */
    bool in_slots;                 /* all rows are */
    struct mr_due due;
};

/* A job of it: samples [from, from + n). */
struct mr_job_piece {
    uint32_t job, from, n;
    bool over; /* its rows were taken, and the job is free */
};

/* Where in the shared memory a row's field is; 0: not there. */
uint64_t mr_job_direct(const struct mr_wanted *w, uint32_t at, uint32_t f);
/* Where a job has memory of its own for it. */
uint64_t mr_job_staged(const struct mr_process_pool *p, const struct mr_job_piece *piece,
                       uint32_t i, uint32_t f);
/* Sets the error of a sample; keeps it, too, as the loader asks for that sample again. */
int mr_job_keep_error(const struct mr_wanted *w, uint32_t i, int rc);
/* Copies what a worker made of sample i of a job that is done. Returns 0 or the sample's error. */
int mr_job_take_row(const struct mr_wanted *w, const struct mr_job_piece *piece, uint32_t i);
/* Sets the error of a sample during which so many workers ended; d: the last of them. */
int mr_job_death_error(const struct mr_wanted *w, uint32_t at, const struct mr_death *d,
                       uint32_t deaths);
/* The error of a sample of this thread's latest run; NULL: none. */
const struct mr_kept_error *mr_job_find_error(const struct mr_kept_errors *t,
                                              const struct mr_sample *s, uint64_t index);

#endif
