/*
 * The ring of slots. Batch t lives in slot t % n. A slot opens for batch t when the consumer has
 * released batch t - n; its host half is written once the copy of that batch has passed, and its
 * device half once the consumer's stream has passed the event recorded at release: the copy stream
 * waits for that, no thread does, but for workers who write there themselves (gds.c).
 */
#include "loader/engine.h"

#include <string.h>

static int slot_create(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t rows = ld->opts.batch_size;
    uint64_t at = (uint64_t)(slot - ld->ring.slot) * ld->layout.slot_bytes;
    int rc = 0;
    slot->host = ld->ring.host + (uint64_t)(slot - ld->ring.slot) * ld->layout.host_bytes;
    slot->device = ld->ring.on_device ? ld->ring.on_device + at : NULL;
    if (ld->layout.output_bytes > 0)
        slot->output = ld->ring.on_device + ld->ring.n_slots * ld->layout.slot_bytes +
                       (uint64_t)(slot - ld->ring.slot) * ld->layout.output_bytes;
    if (slot->device)
        rc = mr_slot_events_create(ld, slot);
    if (rc < 0)
        return rc;
    slot->indices = calloc(rows, sizeof *slot->indices);
    slot->positions = calloc(rows, sizeof *slot->positions);
    bool got = slot->indices && slot->positions;
    if (ld->layout.varies)
        got = got && (slot->dims = calloc(rows * (uint64_t)ld->layout.n_fields,
                                          MR_MAX_RANK * sizeof *slot->dims));
    for (int f = 0; f < ld->layout.n_fields && got; f++)
        if (ld->layout.field[f].varies)
            got = (slot->lengths[f] = calloc(rows, sizeof(uint64_t))) &&
                  (slot->offsets[f] = calloc(rows + 1, sizeof(uint64_t)));
    if (!got)
        return mr_error_nomem("batch slot", rows * sizeof *slot->indices);
    return ld->gds ? mr_gds_slot_create(ld, slot) : 0;
}

void mr_ring_open_for(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    if (t >= ld->plan.total)
        return;
    mr_plan_get(&ld->plan, t, &slot->info);
    slot->bad = NULL;
    slot->bad_lost = false;
    atomic_store_explicit(&slot->claim_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->rows_left, slot->info.rows, memory_order_relaxed);
    atomic_store(&slot->open_for,
                 t); /* before a look at n_waiting_workers: see give_back() in handout.c */
}

static enum mr_memory host_kind(const struct mr_loader *ld)
{
    return ld->device_info.unified || ld->opts.pageable ? MR_PAGEABLE : MR_PINNED;
}

/* All slots in one piece each on host and device: few large pages, one page-locking. */
static int acquire_memory(struct mr_loader *ld)
{
    uint64_t bytes = ld->layout.slot_bytes * ld->ring.n_slots;
    int rc = mr_memory_acquire(ld->device, host_kind(ld), ld->layout.host_bytes * ld->ring.n_slots,
                               (void **)&ld->ring.host);
    if (rc == 0 && !ld->device_info.unified)
        rc = mr_memory_acquire(ld->device, MR_DEVICE,
                               bytes + ld->layout.output_bytes * ld->ring.n_slots,
                               (void **)&ld->ring.on_device);
    return rc;
}

int mr_ring_create(struct mr_loader *ld)
{
    ld->ring.slot =
        aligned_alloc(_Alignof(struct mr_slot), ld->ring.n_slots * sizeof *ld->ring.slot);
    if (!ld->ring.slot)
        return mr_error_nomem("slots", ld->ring.n_slots * sizeof *ld->ring.slot);
    memset(ld->ring.slot, 0, ld->ring.n_slots * sizeof *ld->ring.slot);
    for (uint32_t i = 0; i < ld->ring.n_slots; i++) {
        atomic_store(&ld->ring.slot[i].ready_for, UINT64_MAX);
        atomic_store(&ld->ring.slot[i].open_for, UINT64_MAX);
    }
    int rc = acquire_memory(ld);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < ld->ring.n_slots; i++) {
        rc = slot_create(ld, &ld->ring.slot[i]);
        if (rc < 0)
            return rc;
        mr_ring_open_for(ld, &ld->ring.slot[i], i);
    }
    return ld->device_info.unified ? 0 : mr_ship_init(ld);
}

static void slot_destroy(struct mr_loader *ld, struct mr_slot *slot)
{
    for (uint64_t row = 0; slot->gpu && row < ld->opts.batch_size; row++)
        free(slot->gpu[row].bytes);
    free(slot->gpu);
    if (slot->gpu_done)
        mr_event_destroy(slot->gpu_done);
    mr_slot_events_destroy(slot);
    mr_bad_free(slot->bad);
    free(slot->indices);
    free(slot->positions);
    free(slot->dims);
    mr_gds_slot_free(slot);
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        free(slot->lengths[f]);
        free(slot->offsets[f]);
    }
}

void mr_ring_destroy(struct mr_loader *ld)
{
    mr_gpu_close(ld); /* waits for its work, whose bytes are the slots' */
    for (uint32_t i = 0; ld->ring.slot && i < ld->ring.n_slots; i++)
        slot_destroy(ld, &ld->ring.slot[i]);
    mr_ship_free(ld);
    if (ld->ring.host)
        mr_memory_release(ld->device, host_kind(ld), ld->ring.host, NULL);
    if (ld->ring.on_device)
        mr_memory_release(ld->device, MR_DEVICE, ld->ring.on_device, NULL);
    free(ld->ring.slot);
    for (uint64_t i = 0; i < ld->quarantine.n_listed; i++)
        free(ld->quarantine.listed[i]);
    free(ld->quarantine.listed);
}

void mr_ring_wake_workers(struct mr_ring *ring)
{
    if (atomic_load(&ring->n_waiting_workers) == 0)
        return;
    pthread_mutex_lock(&ring->lock);
    pthread_cond_broadcast(&ring->slot_opened);
    pthread_mutex_unlock(&ring->lock);
}

bool mr_ring_is_open(struct mr_loader *ld, uint64_t t)
{
    struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
    if (atomic_load_explicit(&slot->open_for, memory_order_acquire) != t)
        return false;
    if (atomic_load_explicit(&slot->host_busy, memory_order_acquire)) {
        if (atomic_load_explicit(&slot->asking, memory_order_relaxed) ||
            mr_event_query(slot->copied) == 0 || (ld->gds && mr_gds_slot_passed(slot) == 0))
            return false;
        atomic_store(&slot->host_busy, false); /* passed, or failed: its batch reports it */
    }
    return true;
}

/* Until the copy of the slot's batch before has passed. One worker waits for the device, the others
 * for that one. */
static void wait_host_free(struct mr_loader *ld, struct mr_slot *slot)
{
    while (atomic_load(&slot->host_busy) && !atomic_load(&ld->ring.stop)) {
        if (!atomic_exchange(&slot->asking, true)) {
            mr_event_synchronize(slot->copied);
            if (ld->gds && slot->release_recorded)
                mr_event_synchronize(slot->released);
            atomic_store(&slot->host_busy, false);
            atomic_store(&slot->asking, false);
            mr_ring_wake_workers(&ld->ring);
            return;
        }
        pthread_mutex_lock(&ld->ring.lock);
        atomic_fetch_add(&ld->ring.n_waiting_workers, 1);
        while (atomic_load(&slot->host_busy) && atomic_load(&slot->asking) &&
               !atomic_load(&ld->ring.stop))
            pthread_cond_wait(&ld->ring.slot_opened, &ld->ring.lock);
        atomic_fetch_sub(&ld->ring.n_waiting_workers, 1);
        pthread_mutex_unlock(&ld->ring.lock);
    }
}

bool mr_ring_wait_open(struct mr_loader *ld, uint64_t t)
{
    struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
    pthread_mutex_lock(&ld->ring.lock);
    atomic_fetch_add(&ld->ring.n_waiting_workers, 1);
    while (atomic_load(&slot->open_for) != t && !atomic_load(&ld->ring.stop))
        pthread_cond_wait(&ld->ring.slot_opened, &ld->ring.lock);
    atomic_fetch_sub(&ld->ring.n_waiting_workers, 1);
    pthread_mutex_unlock(&ld->ring.lock);
    if (!atomic_load(&ld->ring.stop))
        wait_host_free(ld, slot);
    return !atomic_load(&ld->ring.stop);
}

void mr_ring_ready(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    uint64_t claimed = mr_counted(&slot->claim_ns), now = mr_time_ns();
    pthread_mutex_lock(&ld->ring.lock);
    mr_hist_add(&ld->stats.make, now > claimed ? now - claimed : 0);
    mr_count(&ld->ring.n_ready, 1);
    atomic_store_explicit(&slot->ready_for, t, memory_order_release);
    bool awaited = ld->ring.consumer_waits && t == ld->handout.next_batch;
    pthread_mutex_unlock(&ld->ring.lock);
    if (awaited)
        pthread_cond_signal(&ld->ring.batch_ready);
}

bool mr_ring_rows_done(struct mr_worker *w, uint64_t t, uint64_t rows)
{
    struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
    if (atomic_fetch_sub_explicit(&slot->rows_left, rows, memory_order_acq_rel) != rows)
        return false;
    uint64_t start = mr_time_ns();
    if (ld->gpu)
        mr_gpu_batch(w, slot, t);
    mr_collate(ld, slot, w->place_room);
    if (ld->device_info.unified)
        mr_ring_ready(ld, slot, t);
    else
        mr_ship(ld, slot, t);
    uint64_t end = mr_time_ns();
    atomic_fetch_add_explicit(&ld->stats.collate_ns, end - start, memory_order_relaxed);
    mr_trace_span("collate+ship", start, end, "batch", t);
    return true;
}
