/*
 * Knobs: how many workers make samples and how many batches are prepared ahead, which may change
 * while a loader runs.
 *
 * All threads are started when it opens. Slots for more batches ahead than it begins with are made
 * when that many are prepared (hold.h). Worker i claims runs while i is below
 * n_active; others finish what they have claimed and sleep here. Batches are open up to `ahead`
 * behind those that were handed out (ring.h); with as many slots as that, slots alone decide.
 * Neither changes which samples a batch has.
 */
#ifndef MR_LOADER_KNOBS_H
#define MR_LOADER_KNOBS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_loader;

struct mr_knobs {
    pthread_mutex_t lock;    /* of sleeping workers; no other is taken under it */
    pthread_cond_t changed;  /* n_active, or the loader stops */
    uint32_t first_prefetch; /* to begin with; ring.n_slots may be less */
    /* Ranks in lock step, without an option for batches ahead: more of them when one is late though
     * all were ready before. [consumers.lock] */
    bool grows;
    bool was_full; /* since there are so many */
};

void mr_knobs_init(struct mr_knobs *knobs);
void mr_knobs_destroy(struct mr_knobs *knobs);
/* How many threads to start, and slots to make, if the loader begins with so many; these numbers
 * are kept. */
uint32_t mr_knobs_most_workers(struct mr_loader *ld, uint32_t first);
uint32_t mr_knobs_most_prefetch(struct mr_loader *ld, uint32_t first);
/* How many of ring.n_slots slots to make at the start. */
uint32_t mr_knobs_first_slots(const struct mr_loader *ld);
/* One worker less to begin with, of at least two: another thread needs its processor. Before
 * workers start. */
void mr_knobs_spare_one(struct mr_loader *ld);
/* The number of slots is settled; none is open yet. */
void mr_knobs_start(struct mr_loader *ld);
/* Changes both; they are in range. [consumers.lock] */
void mr_knobs_set(struct mr_loader *ld, uint32_t workers, uint32_t prefetch);
/* One more batch was handed out. Returns whether that opened another one, of which workers are to
 * be told. [consumers.lock] */
bool mr_knobs_taken(struct mr_loader *ld);
/* A batch was handed out, for which the consumer waited so long. [consumers.lock] */
void mr_knobs_waited(struct mr_loader *ld, uint64_t waited_ns);
/* Workers that may claim runs. Any thread. */
uint32_t mr_knobs_workers(const struct mr_loader *ld);
/* What each of them may have of so many; 1 at least. */
uint32_t mr_knobs_share(const struct mr_loader *ld, uint64_t of);
/* Sleeps while worker `id` may claim none. false: the loader stops. */
bool mr_knobs_park(struct mr_loader *ld, uint32_t id);
void mr_knobs_stop(struct mr_loader *ld); /* sleeping workers wake */

#endif
