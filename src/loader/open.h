/*
 * Opening: which batch is made next in a free slot.
 *
 * In order, the slot of batch t is opened for batch t + n_slots. With in_order = 0 it is opened for
 * the next batch that has no slot yet, so a batch that takes long stops no other one. Batch t then
 * has place t % n_places in the ring, of many more places than there are slots. It keeps the place
 * until its rows are made: at most n_places batches behind the earliest one that is being made are
 * opened. A slot that is free when that many are waits in a list, until rows are made of the batch
 * that has the next one's place.
 *
 * At most n_slots batches are being made or ready, however many the program holds.
 */
#ifndef MR_LOADER_OPEN_H
#define MR_LOADER_OPEN_H

#include "base/base.h"

struct mr_loader;
struct mr_slot;

/* Places of a ring whose batches come as they complete. */
#define MR_PLACES_A_SLOT 16
#define MR_MIN_PLACES    256

/* [ring.lock] Only with in_order = 0. */
struct mr_opening {
    _Atomic uint64_t next;     /* the batch to be opened next */
    bool *being_made;          /* for each place */
    struct mr_slot *waiting;   /* for the place of batch `next` */
    _Atomic uint32_t n_active; /* slots that wait, are open or ready */
};

int mr_opening_create(struct mr_loader *ld);
void mr_opening_destroy(struct mr_loader *ld);
/* Opens a slot for batch t, if there is such a batch. */
void mr_open_batch(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);

/* ---- in_order = 0 ---- */
/* Opens a free slot for the next batch, now or once it has a place. false: enough slots are active,
 * or there are no more batches. Any thread. */
bool mr_open_next(struct mr_loader *ld, struct mr_slot *slot);
/* Are there fewer than `least` active slots, and more batches? */
bool mr_open_wants(struct mr_loader *ld, uint32_t least);
/* The rows of batch t are made. */
void mr_open_made(struct mr_loader *ld, uint64_t t);
/* The batch in this slot is handed out, the n_taken-th. Returns whether its epoch is complete.
 * [consumers.lock] */
bool mr_open_taken(struct mr_loader *ld, struct mr_slot *slot, uint64_t n_taken);

#endif
