/*
 * Samples of sets in memory that no chain changes, field by field: all rows of a run with one call
 * of the data set for each field (the ops' gather and find). Such samples cannot fail, so nothing
 * is done for each of them alone.
 */
#ifndef MR_LOADER_GATHER_H
#define MR_LOADER_GATHER_H

#include <stdbool.h>
#include <stdint.h>

struct mr_loader;
struct mr_run;
struct mr_worker;

/* Whether a loader's samples can be made so. Once backends and layout are planned. */
bool mr_gather_plan(const struct mr_loader *ld);
/* Makes all samples of a run. Returns how many; 0: one of them has an error, which making them one
 * by one reports. timed: for the statistics. */
uint32_t mr_gather_run(struct mr_worker *w, struct mr_run *run, bool timed);

#endif
