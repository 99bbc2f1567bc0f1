/*
 * Arrivals: batches that are handed out as they complete (in_order = 0).
 *
 * The k-th batch that becomes ready is arrival k, whatever its number, and the consumer waits for
 * arrivals instead of batch numbers. Epochs are not mixed: a batch of a later epoch becomes an
 * arrival when all batches of the epoch before have been handed out; until then it waits in a list.
 * So a loop over an epoch stays one, and the batch that is handed out last completes its epoch. The
 * price is that an epoch's end waits for its slowest sample, while workers make the next epoch's
 * batches as far as there are slots.
 *
 * An epoch is complete when as many batches have been handed out as the number of its last batch
 * says, for all with lower numbers are of it or of epochs before.
 */
#ifndef MR_LOADER_ARRIVE_H
#define MR_LOADER_ARRIVE_H

#include "loader/slot.h"

/* [ring.lock] but for arrivals that are there. */
struct mr_arrivals {
    struct mr_slot *_Atomic *slot; /* of arrival k: [k % n_slots]; NULL: batches come in order */
    uint32_t n_slots;
    uint64_t n;
    uint64_t epoch; /* whose batches are arrivals */
    uint64_t end;   /* the number behind its last batch; UINT64_MAX: that is not ready yet */
    struct mr_slot *later, *later_newest; /* ready batches of later epochs, oldest first */
};

/* epoch: the first batch's. Returns 0, -ENOMEM. */
int mr_arrivals_create(struct mr_arrivals *a, uint32_t n_slots, uint64_t epoch);
void mr_arrivals_destroy(struct mr_arrivals *a);
/* Batch t, in this slot, is ready. Returns its arrival; UINT64_MAX: it is of a later epoch. */
uint64_t mr_arrivals_add(struct mr_arrivals *a, struct mr_slot *slot, uint64_t t);
/* Arrivals are of this epoch from now on. */
void mr_arrivals_set_epoch(struct mr_arrivals *a, uint64_t epoch);

/* The slot of arrival k; NULL: it has not come yet. Any thread. */
static inline struct mr_slot *mr_arrivals_get(const struct mr_arrivals *a, uint64_t k)
{
    struct mr_slot *slot = atomic_load(&a->slot[k % a->n_slots]);
    return slot && atomic_load(&slot->arrival) == k ? slot : NULL;
}

#endif
