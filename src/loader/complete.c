/* The worker whose rows complete a batch: what the device decodes, collating, shipping. */
#include "loader/engine.h"

bool mr_complete_rows(struct mr_worker *w, uint64_t t, uint64_t rows)
{
    struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
    if (!mr_ring_rows_done(slot, rows))
        return false;
    uint64_t start = mr_time_ns();
    if (ld->gpu)
        mr_gpu_batch(w, slot, t);
    mr_collate(ld, slot, w->place_room);
    if (ld->device_info.unified)
        mr_ring_ready(&ld->ring, slot, t);
    else
        mr_ship(ld, slot, t);
    uint64_t end = mr_time_ns();
    atomic_fetch_add_explicit(&ld->stats.collate_ns, end - start, memory_order_relaxed);
    mr_trace_span("collate+ship", start, end, "batch", t);
    return true;
}
