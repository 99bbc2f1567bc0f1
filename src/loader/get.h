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
    uint32_t n_made; /* by the latest mr_get_sample(): how many samples took its time */
};

/* Whether get_run writes all that there is of a row, so that its samples need nothing else. */
bool mr_get_plan(const struct mr_loader *ld);
/* Makes a run of such a loader by one call. Returns how many samples it made: others are made, or
 * fail, one by one. */
uint32_t mr_get_run(struct mr_worker *w, struct mr_run *run, bool timed);
int mr_get_create(struct mr_worker *w);
void mr_get_free(struct mr_worker *w);
/* What it takes, beside the struct. */
uint64_t mr_get_bytes(const struct mr_loader *ld);

/* Makes a sample: the ops' get, or what get_run made before. Returns 0 or the sample's error. */
int mr_get_sample(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                  struct mr_sample *out);

#endif
