/* Which batch a free slot is opened for. */
#include "loader/engine.h"

#include <stdlib.h>

int mr_opening_create(struct mr_loader *ld)
{
    struct mr_plan_batch first;
    if (ld->opts.in_order)
        return 0;
    if (ld->plan.finds)
        return mr_error_set(MR_EOPTION,
                            "in_order = 0 needs batches that are known before they are made: not "
                            "those of a batch sampler or an iterable data set");
    ld->opening.being_made = calloc(ld->ring.n_places, sizeof(bool));
    if (!ld->opening.being_made)
        return mr_error_nomem("slots", ld->ring.n_places);
    mr_plan_get(&ld->plan, 0, &first);
    return mr_arrivals_create(&ld->ring.arrivals, ld->ring.n_slots, first.epoch);
}

void mr_opening_destroy(struct mr_loader *ld)
{
    mr_arrivals_destroy(&ld->ring.arrivals);
    free(ld->opening.being_made);
}

void mr_open_batch(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    if (t >= mr_ring_total(&ld->ring))
        return;
    slot->bad = NULL;
    slot->bad_lost = false;
    if (ld->plan.finds) {
        atomic_store_explicit(&slot->n_found, 0, memory_order_relaxed);
        mr_ring_open(slot, t, ld->plan.batch_size);
        return;
    }
    mr_plan_get(&ld->plan, t, &slot->info);
    mr_ring_open(slot, t, slot->info.rows);
}

/* Gives the slot the next batch and its place; false: the place is taken. [ring.lock] */
static bool assign(struct mr_loader *ld, struct mr_slot *slot, uint64_t *t)
{
    struct mr_opening *o = &ld->opening;
    uint64_t next = o->next, place = next % ld->ring.n_places;
    if (o->being_made[place])
        return false;
    o->being_made[place] = true;
    slot->unfinished = *t = next;
    atomic_store(&ld->ring.slot[place], slot);
    atomic_store(&o->next, next + 1);
    return true;
}

bool mr_open_next(struct mr_loader *ld, struct mr_slot *slot)
{
    struct mr_opening *o = &ld->opening;
    uint64_t t;
    bool assigned = false;
    pthread_mutex_lock(&ld->ring.lock);
    bool opens = o->n_active < ld->ring.n_slots && o->next < mr_ring_total(&ld->ring);
    if (opens) {
        o->n_active++;
        assigned = assign(ld, slot, &t);
    }
    if (opens && !assigned) {
        slot->next_released = o->waiting;
        o->waiting = slot;
    }
    pthread_mutex_unlock(&ld->ring.lock);
    if (assigned)
        mr_open_batch(ld, slot, t);
    return opens;
}

bool mr_open_wants(struct mr_loader *ld, uint32_t least)
{
    return atomic_load_explicit(&ld->opening.n_active, memory_order_relaxed) < least &&
           atomic_load(&ld->opening.next) < mr_ring_total(&ld->ring);
}

void mr_open_made(struct mr_loader *ld, uint64_t t)
{
    struct mr_opening *o = &ld->opening;
    bool opened = false;
    pthread_mutex_lock(&ld->ring.lock);
    o->being_made[t % ld->ring.n_places] = false;
    struct mr_slot *slot;
    while ((slot = o->waiting) && assign(ld, slot, &t)) {
        o->waiting = slot->next_released;
        mr_open_batch(ld, slot, t);
        opened = true;
    }
    pthread_mutex_unlock(&ld->ring.lock);
    if (opened)
        mr_ring_wake_workers(&ld->ring);
}

/* Of the batch behind those that were handed out. */
static uint64_t next_epoch(const struct mr_loader *ld, uint64_t n_taken)
{
    struct mr_plan_batch next;
    if (ld->plan.finds || n_taken >= mr_ring_total(&ld->ring))
        return ld->ring.arrivals.epoch + 1;
    mr_plan_get(&ld->plan, n_taken, &next);
    return next.epoch;
}

bool mr_open_taken(struct mr_loader *ld, struct mr_slot *slot, uint64_t n_taken)
{
    pthread_mutex_lock(&ld->ring.lock);
    ld->opening.n_active--;
    slot->unfinished = UINT64_MAX;
    bool complete = ld->ring.arrivals.end == n_taken;
    if (complete)
        mr_arrivals_set_epoch(&ld->ring.arrivals, next_epoch(ld, n_taken));
    pthread_mutex_unlock(&ld->ring.lock);
    return complete;
}
