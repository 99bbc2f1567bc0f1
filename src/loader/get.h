/*
 * Samples of data sets that make them themselves (the ops' get).
 *
 * If the data set can make several in one call (get_run), the first sample of a run asks for all of
 * them, and the others take theirs from what it made. A sample that get_run could not make is asked
 * for again alone: so its error has a text, and policies for bad samples need to know nothing of
 * this.
 */
#ifndef MR_LOADER_GET_H
#define MR_LOADER_GET_H

#include "dataset/dataset.h"

struct mr_loader;
struct mr_row;
struct mr_run;
struct mr_run_sample;
struct mr_worker;

/* A run that the data set makes while the worker does other things: what it reads and writes. */
struct mr_get_posted {
    struct mr_sample_context *context;
    void *(*row)[MR_MAX_FIELDS];
    int *rc;
    void *run; /* the data set's; NULL: none yet */
};

/* A worker's. The arrays have run_rows entries; NULL if the data set has no get_run. */
struct mr_get {
    struct mr_sample_context *context;
    void *(*row)[MR_MAX_FIELDS];
    uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK];
    int *rc;
    unsigned char *memory;       /* of rows that are not made in place */
    struct mr_error_kept failed; /* code < 0: the error of all of them */

    /* The latest run: of batch t, n rows from row `at` on, which belong to s[0] .. s[n - 1]. */
    const struct mr_run_sample *s;
    uint64_t t;
    uint32_t at, n;
    struct mr_get_posted *posted; /* of each of the worker's runs; NULL: they are not posted */
    void **waiting;               /* as many */
    uint32_t n_made; /* by the latest mr_get_sample(): how many samples took its time */
};

/* Whether get_run writes all that there is of a row, so that its samples need nothing else. */
bool mr_get_plan(const struct mr_loader *ld);
/* Makes a run of such a loader by one call. Returns how many samples it made: others are made, or
 * fail, one by one. */
uint32_t mr_get_run(struct mr_worker *w, struct mr_run *run, bool timed);

/* ---- posted.c: runs that are made while the worker does other things ---- */
/* Whether they can be; few workers are enough then. */
bool mr_posted_plan(const struct mr_loader *ld);
int mr_posted_create(struct mr_worker *w);
void mr_posted_free(struct mr_worker *w);
uint64_t mr_posted_bytes(const struct mr_loader *ld);
/* Begins a run whose slot is open. false: not now. */
bool mr_posted_begin(struct mr_worker *w, struct mr_run *run);
bool mr_posted_made(const struct mr_worker *w, const struct mr_run *run);
/* Waits until the first of the worker's runs is made, or a few are. The first one is posted. */
void mr_posted_wait(struct mr_worker *w);
/* Waits for its rows. The run is the worker's latest then. */
void mr_posted_finish(struct mr_worker *w, struct mr_run *run);
/* Ends all of a worker that stops. */
void mr_posted_drop(struct mr_worker *w);

/* What the data set is told of a sample. */
struct mr_sample_context mr_get_context(const struct mr_worker *w, uint64_t epoch, uint64_t index,
                                        uint64_t position);
int mr_get_create(struct mr_worker *w);
void mr_get_free(struct mr_worker *w);
/* What it takes, beside the struct. */
uint64_t mr_get_bytes(const struct mr_loader *ld);

/* Makes a sample: the ops' get, or what get_run made before. Returns 0 or the sample's error. */
int mr_get_sample(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                  struct mr_sample *out);

#endif
