/*
 * The ring of slots. Batch t lives in slot t % n. A slot opens for batch t when the consumer has released batch t - n; its
 * host half is written once the copy of that batch has passed, and its device half once the consumer's stream has passed
 * the event recorded at release: the copy stream waits for that, no thread does.
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
        slot->output = ld->on_device + ld->n_slots * ld->slot_bytes + (uint64_t)(slot - ld->slot) * ld->output_bytes;
    if (slot->device)
        rc = mr_slot_events_create(ld, slot);
    if (rc < 0)
        return rc;
    slot->indices = calloc(rows, sizeof *slot->indices);
    slot->positions = calloc(rows, sizeof *slot->positions);
    bool got = slot->indices && slot->positions;
    if (ld->varies)
        got = got && (slot->dims = calloc(rows * (uint64_t)ld->n_fields, MR_MAX_RANK * sizeof *slot->dims));
    for (int f = 0; f < ld->n_fields && got; f++)
        if (ld->field[f].varies)
            got = (slot->lengths[f] = calloc(rows, sizeof(uint64_t))) &&
                  (slot->offsets[f] = calloc(rows + 1, sizeof(uint64_t)));
    return got ? 0 : mr_error_nomem("batch slot", rows * sizeof *slot->indices);
}

static void open_for(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    if (t >= ld->plan.total)
        return;
    mr_plan_get(&ld->plan, t, &slot->info);
    slot->bad = NULL;
    slot->bad_lost = false;
    atomic_store_explicit(&slot->claim_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->rows_left, slot->info.rows, memory_order_relaxed);
    atomic_store(&slot->open_for, t); /* before a look at n_waiting_workers: see give_back() */
}

static enum mr_memory host_kind(const struct mr_loader *ld)
{
    return ld->device_info.unified || ld->opts.pageable ? MR_PAGEABLE : MR_PINNED;
}

/* All slots in one piece each on host and device: few large pages, one page-locking. */
static int acquire_memory(struct mr_loader *ld)
{
    uint64_t bytes = ld->slot_bytes * ld->n_slots;
    int rc = mr_memory_acquire(ld->device, host_kind(ld), ld->host_bytes * ld->n_slots, (void **)&ld->host);
    if (rc == 0 && !ld->device_info.unified)
        rc = mr_memory_acquire(ld->device, MR_DEVICE, bytes + ld->output_bytes * ld->n_slots, (void **)&ld->on_device);
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
        open_for(ld, &ld->slot[i], i);
    }
    return ld->device_info.unified ? 0 : mr_ship_init(ld);
}

static void slot_destroy(struct mr_slot *slot)
{
    mr_slot_events_destroy(slot);
    mr_bad_free(slot->bad);
    free(slot->indices);
    free(slot->positions);
    free(slot->dims);
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        free(slot->lengths[f]);
        free(slot->offsets[f]);
    }
}

void mr_ring_destroy(struct mr_loader *ld)
{
    for (uint32_t i = 0; ld->slot && i < ld->n_slots; i++)
        slot_destroy(&ld->slot[i]);
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

static void wake_workers(struct mr_loader *ld)
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
        if (atomic_load_explicit(&slot->asking, memory_order_relaxed) || mr_event_query(slot->copied) == 0)
            return false;
        atomic_store(&slot->host_busy, false); /* passed, or failed: its batch reports it */
    }
    return true;
}

/* Until the copy of the slot's batch before has passed. One worker waits for the device, the others for that one. */
static void wait_host_free(struct mr_loader *ld, struct mr_slot *slot)
{
    while (atomic_load(&slot->host_busy) && !atomic_load(&ld->stop)) {
        if (!atomic_exchange(&slot->asking, true)) {
            mr_event_synchronize(slot->copied);
            atomic_store(&slot->host_busy, false);
            atomic_store(&slot->asking, false);
            wake_workers(ld);
            return;
        }
        pthread_mutex_lock(&ld->lock);
        atomic_fetch_add(&ld->n_waiting_workers, 1);
        while (atomic_load(&slot->host_busy) && atomic_load(&slot->asking) && !atomic_load(&ld->stop))
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

bool mr_ring_rows_done(struct mr_loader *ld, uint64_t t, uint64_t rows, void *room)
{
    struct mr_slot *slot = mr_ring_slot(ld, t);
    if (atomic_fetch_sub_explicit(&slot->rows_left, rows, memory_order_acq_rel) != rows)
        return false;
    uint64_t start = mr_time_ns();
    mr_collate(ld, slot, room);
    if (ld->device_info.unified)
        mr_ring_ready(ld, slot, t);
    else
        mr_ship(ld, slot, t);
    uint64_t end = mr_time_ns();
    atomic_fetch_add_explicit(&ld->collate_ns, end - start, memory_order_relaxed);
    mr_trace_span("collate+ship", start, end, "batch", t);
    return true;
}

/* Ends the run with an error, which later calls return again. */
static int end_with(struct mr_loader *ld, int code)
{
    mr_error_keep(code, &ld->end_error);
    ld->ended = code;
    return code;
}

static bool is_ready(const struct mr_loader *ld, const struct mr_slot *slot)
{
    return atomic_load_explicit(&slot->ready_for, memory_order_acquire) == ld->next_batch;
}

/* The worker that wakes a sleeper is often the shipper, which all batches wait for: where there is a processor for it the
 * consumer looks for a little while instead. */
#define LOOK_NS 20000

static void look_until_ready(const struct mr_loader *ld, const struct mr_slot *slot)
{
    uint64_t until = mr_time_ns() + LOOK_NS;
    while (!is_ready(ld, slot) && !atomic_load_explicit(&ld->cancelled, memory_order_relaxed) && mr_time_ns() < until)
        ;
}

static void sleep_until_ready(struct mr_loader *ld, struct mr_slot *slot)
{
    ld->n_opened = 0;
    wake_workers(ld);
    if (ld->spare_processor)
        look_until_ready(ld, slot);
    pthread_mutex_lock(&ld->lock);
    ld->consumer_waits = true;
    while (!is_ready(ld, slot) && !atomic_load(&ld->cancelled))
        pthread_cond_wait(&ld->batch_ready, &ld->lock);
    ld->consumer_waits = false;
    pthread_mutex_unlock(&ld->lock);
}

/* Waits for the next batch's slot. Returns 0, or the error. */
static int wait_ready(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t ready = mr_counted(&ld->n_ready) - ld->next_batch; /* in whatever order */
    if (!is_ready(ld, slot))
        sleep_until_ready(ld, slot);
    mr_count(&ld->ready_sum, ready);
    if (mr_trace_on())
        mr_trace_counter("ready batches", mr_time_ns(), (int64_t)ready);
    return atomic_load(&ld->cancelled) ? end_with(ld, mr_error_set(MR_ECANCELLED, "the loader was cancelled")) : 0;
}

static void fill_batch(struct mr_loader *ld, struct mr_slot *slot, struct mr_batch *out)
{
    *out = (struct mr_batch){.size = slot->size,
                             .epoch = slot->info.epoch,
                             .index = slot->info.index,
                             .last = slot->info.last,
                             .n_fields = ld->n_fields,
                             .indices = slot->indices,
                             .positions = slot->positions,
                             .slot = slot,
                             .number = slot->ready_for};
    bool ragged = ld->opts.collate == MR_COLLATE_RAGGED;
    for (int f = 0; f < ld->n_fields; f++) {
        struct mr_batch_field *bf = &out->field[f];
        bf->spec = slot->spec[f];
        const struct mr_loader_field *fp = &ld->field[f];
        bf->host = fp->tail || ld->resident ? NULL : slot->host + fp->offset;
        bf->data = fp->tail ? slot->output + fp->out_offset : (slot->device ? slot->device : slot->host) + fp->offset;
        bf->bytes = slot->bytes[f];
        bf->offsets = ragged ? slot->offsets[f] : NULL;
        bf->lengths = slot->lengths[f];
    }
}

static void count_batch(struct mr_loader *ld, const struct mr_slot *slot, uint64_t entered)
{
    uint64_t now = mr_time_ns();
    if (ld->last_return_ns) {
        mr_hist_add(&ld->interval, now - ld->last_return_ns);
        mr_count(&ld->busy_ns, entered - ld->last_return_ns);
    } else {
        atomic_store(&ld->first_batch_ns, now - ld->open_ns);
        atomic_store(&ld->first_wait_ns, now - entered);
        mr_stats_started(ld);
    }
    ld->last_return_ns = now;
    mr_count(&ld->wait_ns, now - entered);
    mr_hist_add(&ld->wait, now - entered);
    mr_trace_span("wait: batch", entered, now, "batch", ld->next_batch);
    mr_count(&ld->batches, 1);
    mr_count(&ld->samples, slot->size);
    for (int f = 0; f < ld->n_fields; f++)
        mr_count(&ld->bytes, slot->bytes[f]);
}

/*
 * Workers are woken for several slots at once; at the latest when the consumer itself has to wait. No lock: a worker raises
 * n_waiting_workers before it looks at the slot, and here the slot is opened before that is looked at, so one sees the other.
 */
static void give_back(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    if (!ld->device_info.unified)
        atomic_store_explicit(&slot->host_busy, true, memory_order_release);
    open_for(ld, slot, t + ld->n_slots);
    if (++ld->n_opened * 4 < ld->n_slots)
        return;
    ld->n_opened = 0;
    wake_workers(ld);
}

int mr_loader_next(struct mr_loader *ld, struct mr_stream *stream, struct mr_batch *out)
{
    uint64_t entered = mr_time_ns();
    for (;;) {
        if (ld->ended < 0)
            return mr_error_put(&ld->end_error);
        if (ld->next_batch >= ld->plan.total)
            return 0;
        struct mr_slot *slot = mr_ring_slot(ld, ld->next_batch);
        if (slot->held)
            return mr_error_set(MR_EMISUSE,
                                "the next batch needs the slot of batch %llu, which is held: release it first, or "
                                "raise prefetch above %u",
                                (unsigned long long)atomic_load(&slot->ready_for), ld->n_slots);
        int rc = wait_ready(ld, slot);
        if (rc == 0)
            rc = mr_bad_take(ld, slot);
        if (rc == 0)
            rc = mr_ship_hand_out(ld, slot, stream);
        if (rc < 0)
            return ld->ended < 0 ? rc : end_with(ld, rc);
        ld->next_batch++;
        if (slot->size == 0) { /* every sample was bad and skipped */
            give_back(ld, slot, ld->next_batch - 1);
            continue;
        }
        count_batch(ld, slot, entered);
        fill_batch(ld, slot, out);
        slot->held = true;
        return 1;
    }
}

int mr_loader_release(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *stream)
{
    struct mr_slot *slot = batch->slot;
    if (!slot || !slot->held || slot->ready_for != batch->number)
        return mr_error_set(MR_EMISUSE, "this batch is not held: it was released before");
    int rc = mr_ship_release(ld, slot, stream);
    slot->held = false;
    batch->slot = NULL;
    give_back(ld, slot, slot->ready_for);
    return rc;
}

void mr_loader_cancel(struct mr_loader *ld)
{
    pthread_mutex_lock(&ld->lock);
    atomic_store(&ld->cancelled, true);
    pthread_cond_broadcast(&ld->batch_ready);
    pthread_mutex_unlock(&ld->lock);
}
