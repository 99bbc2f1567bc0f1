/*
 * The rows of a run field by field, so that little is done for each sample alone: by one call of
 * the data set for each field that no chain changes (the ops' gather and find), or from records in
 * memory, which are copied or go through the field's chain. Their samples are not located. What
 * fails is left to be made one by one, which reports it.
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
/* Records are still being inflated: locating a sample waits for them, as its reading would. */
bool mr_gather_waits(const struct mr_loader *ld);
/* Makes samples of a run from the first one on. Returns how many; the others have to be made one by
 * one. timed: for the statistics. */
uint32_t mr_gather_run(struct mr_worker *w, struct mr_run *run, bool timed);

#endif
