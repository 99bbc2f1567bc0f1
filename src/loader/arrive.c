/* Batches in the order in which they complete, epoch after epoch. */
#include "loader/arrive.h"

#include <stdlib.h>

int mr_arrivals_create(struct mr_arrivals *a, uint32_t n_slots, uint64_t epoch)
{
    *a = (struct mr_arrivals){.n_slots = n_slots, .epoch = epoch, .end = UINT64_MAX};
    a->slot = calloc(n_slots, sizeof *a->slot);
    return a->slot ? 0 : mr_error_nomem("slots", n_slots * sizeof *a->slot);
}

void mr_arrivals_destroy(struct mr_arrivals *a)
{
    free((void *)a->slot);
}

/* At most n_slots batches are ready or being made, so arrival k - n_slots has been handed out. */
static uint64_t arrive(struct mr_arrivals *a, struct mr_slot *slot)
{
    uint64_t k = a->n++;
    atomic_store(&slot->arrival, k);
    atomic_store(&a->slot[k % a->n_slots], slot);
    if (slot->info.last)
        a->end = slot->ready_for + 1;
    return k;
}

static void wait_in_list(struct mr_arrivals *a, struct mr_slot *slot)
{
    slot->next_later = NULL;
    if (a->later)
        a->later_newest->next_later = slot;
    else
        a->later = slot;
    a->later_newest = slot;
}

uint64_t mr_arrivals_add(struct mr_arrivals *a, struct mr_slot *slot, uint64_t t)
{
    atomic_store(&slot->ready_for, t);
    if (slot->info.epoch == a->epoch)
        return arrive(a, slot);
    wait_in_list(a, slot);
    return UINT64_MAX;
}

void mr_arrivals_set_epoch(struct mr_arrivals *a, uint64_t epoch)
{
    struct mr_slot *slot = a->later;
    a->epoch = epoch;
    a->end = UINT64_MAX;
    a->later = a->later_newest = NULL;
    while (slot) {
        struct mr_slot *next = slot->next_later;
        mr_arrivals_add(a, slot, slot->ready_for);
        slot = next;
    }
}
