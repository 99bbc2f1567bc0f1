/*
 * The source: what takes the place of sampler and claims when a data set is iterable.
 *
 * Workers that want a run come here. If there are items enough for one, a worker takes them;
 * otherwise it reads the next item itself, or waits for the worker that does. So no thread is
 * needed, and items come in the source's order whatever the number of workers. (An unordered data
 * set is read by all of them at once.)
 *
 * Each item goes through these steps, under `lock`, which is never held while the data set reads:
 *
 *   buffer   With shuffle_buffer = K, items collect here; from K on, step p takes out element
 *            draw(seed, epoch, p) % K. At the end of the pass it empties in the same way.
 *   order    The p-th item to come out has position p. Those before a resumed run's position are
 *            skipped; of the others each rank keeps every world-th, once a whole group of `world`
 *            of them has come.
 *   queue    A run takes its items from here. It leaves one (with drop_last, at the end of a batch,
 *            a whole batch), so that it is known which batch is the last one of its epoch.
 *
 * An error that is no sample's (the archive is cut off, rewind failed) becomes an item, too, the
 * last one: so it reaches the consumer behind all batches before it.
 *
 * How many batches there are is found when the last one is claimed (plan.h, `finds`). Items go back
 * to a list of spare ones when their run is made: in the steady state nothing is allocated.
 */
#ifndef MR_LOADER_SOURCE_H
#define MR_LOADER_SOURCE_H

#include "dataset/iterable.h"
#include "loader/run.h"

struct mr_loader;
struct mr_worker;

/* Checks what an iterable data set (or one that is not) does not allow. Returns 0 or an error. */
int mr_source_check(const struct mr_loader *ld);
/* Makes ld->source for the plan's epoch and position, if ds is iterable. The data set is this
 * loader's from now on. */
int mr_source_create(struct mr_loader *ld);
/* Workers are gone, and their runs' items given back. */
void mr_source_destroy(struct mr_loader *ld);

/* Claims a run for this worker; may read, and block while the source does. false: there is none any
 * more, or the loader is being closed. */
bool mr_source_claim(struct mr_worker *w, struct mr_run *run);
/* The run is made: its items may be used again. */
void mr_source_release(struct mr_loader *ld, struct mr_run *run);
/* Sets the error of a bad sample of a run. Returns its code. */
int mr_source_error(const struct mr_run_sample *s);
/* Workers stop waiting, and the data set reading. */
void mr_source_stop(struct mr_loader *ld);

/* What the source is at, for a batch that is late: which sample is being read, since when. false:
 * none is. */
bool mr_source_reading(const struct mr_loader *ld, uint64_t *index, uint64_t *since_ns);
/* What its items take, for the sum. */
uint64_t mr_source_bytes(const struct mr_loader *ld);

#endif
