/*
 * Held batches: a program may hold as many as there is memory for, and release them in any order
 * from any thread.
 *
 * A slot whose batch is released is opened for the batch n_slots later by the thread that releases
 * it. If it is held for so long that workers would run out of slots, the consumer takes it out of
 * the ring: it sets MR_DETACHED in the slot's `hold` and puts another slot in its place, one that
 * was released after it had left the ring, or a new one. That happens when a batch is more than
 * n_slots / 2 batches old: holding fewer takes no memory, if all slots were made. Without memory
 * for a new slot the place stays vacant until some batch is released.
 *
 * Places for more batches ahead than a loader begins with (knobs.h) are vacant from the start. They
 * are filled in the same way, once so many batches are prepared; while there are vacant places,
 * each batch that is handed out leaves one more, and its slot, once released, fills the next.
 *
 * With in_order = 0 no place waits for a certain slot: the consumer only sees to it that half of
 * n_slots slots are active (open.h), and a released slot is opened unless n_slots are.
 *
 * In order, `hold` decides who opens a slot: MR_DETACHED is only set while the batch is held, and a
 * release acts on what it finds when it ends the hold. So releasing takes no lock, and only the
 * consumer whose turn it is changes the ring.
 */
#ifndef MR_LOADER_HOLD_H
#define MR_LOADER_HOLD_H

#include "loader/slot.h"

#define MR_HELD     (1u << 31) /* the program has the batch */
#define MR_DETACHED (1u << 30) /* another slot took the place in the ring */
/* The other bits: how many leases hold it (lease.h). */

struct mr_batch;
struct mr_loader;
struct mr_stream;

struct mr_hold {
    struct mr_slot *_Atomic released; /* slots out of the ring that are free, the latest first */
    /* The consumers', in their turns. */
    struct mr_slot *spare; /* taken from there, the oldest first */
    bool *vacant;          /* places in the ring whose slot was detached and not replaced yet */
    uint32_t n_vacant;
    bool no_memory; /* no slot could be made */
    /* Any thread's. */
    _Atomic bool waits;        /* the consumer waits: workers are woken for each slot */
    _Atomic uint32_t n_opened; /* slots opened since workers were last woken */
};

/* Is batch t in this slot, and held? */
static inline bool mr_slot_holds(const struct mr_slot *slot, uint64_t t)
{
    return (atomic_load_explicit(&slot->hold, memory_order_acquire) & ~MR_DETACHED) != 0 &&
           atomic_load_explicit(&slot->ready_for, memory_order_relaxed) == t;
}

int mr_hold_create(struct mr_loader *ld);
void mr_hold_destroy(struct mr_loader *ld);
/* Puts other slots in the place of those that were held for long, before the consumer takes batch
 * t. Returns 0, MR_ELIMIT: batch t needs a slot that is held, and no other one can be made; or the
 * device's error. */
int mr_hold_make_room(struct mr_loader *ld, uint64_t t);
/* More batches may be prepared than before: makes slots for them, if there is memory.
 * [consumers.lock] */
void mr_hold_add_slots(struct mr_loader *ld);
/* The batch in this slot is handed out. */
void mr_hold_begin(struct mr_loader *ld, struct mr_slot *slot);
/* More is open than before: workers are woken, for several changes at once. */
void mr_hold_note_opened(struct mr_loader *ld);
/* The consumer is about to wait for a batch: all that is open is shown to workers. */
void mr_hold_wait_begin(struct mr_loader *ld);
void mr_hold_wait_end(struct mr_loader *ld);
/* Opens the slot of a batch that is no longer used for another one (open.h), or keeps it. Workers
 * are woken for several slots at once, at the latest when the consumer itself has to wait. */
void mr_hold_reopen(struct mr_loader *ld, struct mr_slot *slot);
/* No one holds the slot's batch any more: opens the slot, or keeps it. Any thread, once. */
void mr_hold_end(struct mr_loader *ld, struct mr_slot *slot);
/* Any thread. */
int mr_hold_release(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *stream);

#endif
