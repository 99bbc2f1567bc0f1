/*
 * The ring of slots. Batch t lives in slot t % n. A slot opens for batch t when the consumer has
 * released batch t - n; its host half is written once the copy of that batch has passed, and its
 * device half once the consumer's stream has passed the event recorded at release: the copy stream
 * waits for that, no thread does, but for workers who write there themselves (gds.c).
 */
#include "loader/loader.h"

#include <string.h>

static int slot_create(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t rows = ld->opts.batch_size;
    uint64_t at = (uint64_t)(slot - ld->slot) * ld->slot_bytes;
    int rc = 0;
    slot->host = ld->host + (uint64_t)(slot - ld->slot) * ld->host_bytes;
    slot->device = ld->on_device ? ld->on_device + at : NULL;
    if (ld->output_bytes > 0)
        slot->output = ld->on_device + ld->n_slots * ld->slot_bytes +
                       (uint64_t)(slot - ld->slot) * ld->output_bytes;
    if (slot->device)
        rc = mr_slot_events_create(ld, slot);
    if (rc < 0)
        return rc;
    slot->indices = calloc(rows, sizeof *slot->indices);
    slot->positions = calloc(rows, sizeof *slot->positions);
    bool got = slot->indices && slot->positions;
    if (ld->varies)
        got = got && (slot->dims =
                          calloc(rows * (uint64_t)ld->n_fields, MR_MAX_RANK * sizeof *slot->dims));
    for (int f = 0; f < ld->n_fields && got; f++)
        if (ld->field[f].varies)
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
    uint64_t bytes = ld->slot_bytes * ld->n_slots;
    int rc = mr_memory_acquire(ld->device, host_kind(ld), ld->host_bytes * ld->n_slots,
                               (void **)&ld->host);
    if (rc == 0 && !ld->device_info.unified)
        rc = mr_memory_acquire(ld->device, MR_DEVICE, bytes + ld->output_bytes * ld->n_slots,
                               (void **)&ld->on_device);
    return rc;
}

int mr_ring_create(struct mr_loader *ld)
{
    ld->slot = aligned_alloc(_Alignof(struct mr_slot), ld->n_slots * sizeof *ld->slot);
    if (!ld->slot)
        return mr_error_nomem("slots", ld->n_slots * sizeof *ld->slot);
    memset(ld->slot, 0, ld->n_slots * sizeof *ld->slot);
    for (uint32_t i = 0; i < ld->n_slots; i++) {
        atomic_store(&ld->slot[i].ready_for, UINT64_MAX);
        atomic_store(&ld->slot[i].open_for, UINT64_MAX);
    }
    int rc = acquire_memory(ld);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < ld->n_slots; i++) {
        rc = slot_create(ld, &ld->slot[i]);
        if (rc < 0)
            return rc;
        mr_ring_open_for(ld, &ld->slot[i], i);
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
    for (uint32_t i = 0; ld->slot && i < ld->n_slots; i++)
        slot_destroy(ld, &ld->slot[i]);
    mr_ship_free(ld);
    if (ld->host)
        mr_memory_release(ld->device, host_kind(ld), ld->host, NULL);
    if (ld->on_device)
        mr_memory_release(ld->device, MR_DEVICE, ld->on_device, NULL);
    free(ld->slot);
    for (uint64_t i = 0; i < ld->n_listed; i++)
        free(ld->listed[i]);
    free(ld->listed);
}

void mr_ring_wake_workers(struct mr_loader *ld)
{
    if (atomic_load(&ld->n_waiting_workers) == 0)
        return;
    pthread_mutex_lock(&ld->lock);
    pthread_cond_broadcast(&ld->slot_opened);
    pthread_mutex_unlock(&ld->lock);
}

bool mr_ring_is_open(struct mr_loader *ld, uint64_t t)
{
    struct mr_slot *slot = mr_ring_slot(ld, t);
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
    while (atomic_load(&slot->host_busy) && !atomic_load(&ld->stop)) {
        if (!atomic_exchange(&slot->asking, true)) {
            mr_event_synchronize(slot->copied);
            if (ld->gds && slot->release_recorded)
                mr_event_synchronize(slot->released);
            atomic_store(&slot->host_busy, false);
            atomic_store(&slot->asking, false);
            mr_ring_wake_workers(ld);
            return;
        }
        pthread_mutex_lock(&ld->lock);
        atomic_fetch_add(&ld->n_waiting_workers, 1);
        while (atomic_load(&slot->host_busy) && atomic_load(&slot->asking) &&
               !atomic_load(&ld->stop))
            pthread_cond_wait(&ld->slot_opened, &ld->lock);
        atomic_fetch_sub(&ld->n_waiting_workers, 1);
        pthread_mutex_unlock(&ld->lock);
    }
}

bool mr_ring_wait_open(struct mr_loader *ld, uint64_t t)
{
    struct mr_slot *slot = mr_ring_slot(ld, t);
    pthread_mutex_lock(&ld->lock);
    atomic_fetch_add(&ld->n_waiting_workers, 1);
    while (atomic_load(&slot->open_for) != t && !atomic_load(&ld->stop))
        pthread_cond_wait(&ld->slot_opened, &ld->lock);
    atomic_fetch_sub(&ld->n_waiting_workers, 1);
    pthread_mutex_unlock(&ld->lock);
    if (!atomic_load(&ld->stop))
        wait_host_free(ld, slot);
    return !atomic_load(&ld->stop);
}

void mr_ring_ready(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    uint64_t claimed = mr_counted(&slot->claim_ns), now = mr_time_ns();
    pthread_mutex_lock(&ld->lock);
    mr_hist_add(&ld->make, now > claimed ? now - claimed : 0);
    mr_count(&ld->n_ready, 1);
    atomic_store_explicit(&slot->ready_for, t, memory_order_release);
    bool awaited = ld->consumer_waits && t == ld->next_batch;
    pthread_mutex_unlock(&ld->lock);
    if (awaited)
        pthread_cond_signal(&ld->batch_ready);
}

bool mr_ring_rows_done(struct mr_worker *w, uint64_t t, uint64_t rows)
{
    struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(ld, t);
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
    atomic_fetch_add_explicit(&ld->collate_ns, end - start, memory_order_relaxed);
    mr_trace_span("collate+ship", start, end, "batch", t);
    return true;
}
