/*
 * Two recordings, before and after: what mr_compare() makes.
 *
 * measure.c reads the figures of each, noise.c tests step times, compare.c judges and says it in a
 * line, tables.c makes the tables.
 */
#ifndef MR_COMPARE_COMPARE_H
#define MR_COMPARE_COMPARE_H

#include "compare/measure.h"
#include "compare/noise.h"

enum {
    MR_COMPARED_STEPS,
    MR_COMPARED_COPIES,
    MR_COMPARED_LONGEST,
    MR_COMPARED_FINDINGS,
    MR_N_COMPARED
};

/* Of the step before: a smaller change of a part of it is none, whatever its own percentage. */
#define MR_LEAST_OF_STEP 0.001

/* A part of the step in both recordings. */
struct mr_part_change {
    double mean[2], median[2], deviation[2]; /* ns; of a sample */
    struct mr_noise noise;
    enum mr_change change;
};

struct mr_compared { /* before, after */
    struct mr_recording *rec[2];
    struct mr_advice *advice[2];
    struct mr_measured measured[2];
    struct mr_part_change part[MR_N_OF_STEP];
    double least_percent;
};

int mr_compared_steps(const struct mr_compared *c, struct mr_table **out);
int mr_compared_copies(const struct mr_compared *c, struct mr_table **out);
int mr_compared_longest(const struct mr_compared *c, struct mr_table **out);
int mr_compared_findings(const struct mr_compared *c, struct mr_table **out);

/* How many rules found something before only, after only, and in both. */
struct mr_findings_change {
    uint32_t n_gone, n_new, n_remaining;
};
struct mr_findings_change mr_compared_count(const struct mr_compared *c);

#endif
