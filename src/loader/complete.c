/* What the worker does whose rows complete a batch: finish rows, collate, ship. */
#include "base/copy.h"
#include "loader/engine.h"

static void complete(struct mr_worker *w, struct mr_slot *slot, uint64_t t)
{
    struct mr_loader *ld = w->ld;
    uint64_t start = mr_time_ns();
    mr_watch_since(&w->watch, start);
    mr_watch_note(&w->watch, t, 0, MR_TASK_COMPLETE);
    mr_backends_complete(w, slot, t);
    if (ld->past_caches) /* it may have made rows that another backend refused */
        mr_copy_fence();
    int rc = mr_collate(w, slot);
    if (rc < 0)
        mr_bad_add(ld, slot, 0, NULL, rc, true);
    if (rc < 0 || !ld->ships)
        mr_ring_ready(&ld->ring, slot, t);
    else
        mr_ship(ld, slot, t);
    uint64_t end = mr_time_ns();
    atomic_fetch_add_explicit(&ld->stats.collate_ns, end - start, memory_order_relaxed);
    mr_trace_span("collate+ship", start, end, "batch", t);
    if (!ld->opts.in_order)
        mr_open_made(ld, t);
    w->lap_ns = mr_time_ns(); /* what completing took has been counted */
}

static void add_late(struct mr_late *late, struct mr_slot *slot, uint64_t t)
{
    slot->late_t = t;
    slot->next_late = NULL;
    pthread_mutex_lock(&late->lock);
    *(late->first ? late->last : &late->first) = slot;
    late->last = &slot->next_late;
    atomic_fetch_add_explicit(&late->n, 1, memory_order_relaxed);
    pthread_mutex_unlock(&late->lock);
}

void mr_complete_rows(struct mr_worker *w, uint64_t t, uint64_t rows)
{
    struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
    if (ld->past_caches)
        mr_copy_fence();
    if (!mr_ring_rows_done(slot, rows))
        return;
    if (ld->plan.finds) {
        uint64_t found = atomic_load_explicit(&slot->n_found, memory_order_relaxed);
        slot->info.last |= (found & MR_FOUND_LAST) != 0;
        found &= ~MR_FOUND_LAST;
        slot->info.rows = found < MR_RUN_FAILED ? found : 0;
    }
    if (mr_backends_late(ld, slot, t))
        add_late(&ld->late, slot, t);
    else
        complete(w, slot, t);
}

bool mr_complete_late(struct mr_worker *w, bool wait)
{
    struct mr_late *late = &w->ld->late;
    if (atomic_load_explicit(&late->n, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&late->lock);
    struct mr_slot *slot = late->first;
    if (slot && !wait && mr_backends_late(w->ld, slot, slot->late_t))
        slot = NULL;
    if (slot) {
        late->first = slot->next_late;
        atomic_fetch_sub_explicit(&late->n, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&late->lock);
    if (slot)
        complete(w, slot, slot->late_t);
    return slot;
}
