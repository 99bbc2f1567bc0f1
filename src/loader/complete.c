/* What the worker does whose rows complete a batch: finish rows, collate, ship. */
#include "loader/engine.h"

bool mr_complete_rows(struct mr_worker *w, uint64_t t, uint64_t rows)
{
    struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
    if (!mr_ring_rows_done(slot, rows))
        return false;
    if (ld->plan.finds) {
        uint64_t found = atomic_load_explicit(&slot->n_found, memory_order_relaxed);
        slot->info.last |= (found & MR_FOUND_LAST) != 0;
        found &= ~MR_FOUND_LAST;
        slot->info.rows = found < MR_RUN_FAILED ? found : 0;
    }
    uint64_t start = mr_time_ns();
    mr_watch_since(&w->watch, start);
    mr_watch_note(&w->watch, t, 0, MR_TASK_COMPLETE);
    mr_backends_complete(w, slot, t);
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
    return true;
}
