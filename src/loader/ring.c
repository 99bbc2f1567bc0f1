/* The slots in turn: opened, written, ready; who sleeps until then, and who wakes whom. */
#include "loader/ring.h"

#include <stdlib.h>

int mr_ring_init(struct mr_ring *ring)
{
    pthread_mutex_init(&ring->lock, NULL);
    int rc = mr_cond_init(&ring->slot_opened);
    return rc == 0 ? mr_cond_init(&ring->batch_ready) : rc;
}

int mr_ring_create(struct mr_ring *ring, const struct mr_layout *layout, uint64_t rows,
                   bool two_halves)
{
    struct mr_slot_memory *memory;
    ring->slot = calloc(ring->n_slots, sizeof *ring->slot);
    if (!ring->slot)
        return mr_error_nomem("slots", ring->n_slots * sizeof *ring->slot);
    int rc = mr_slot_memory_create(ring->device, ring->host_kind, layout, ring->n_slots, two_halves,
                                   &memory);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        struct mr_slot *slot;
        rc = mr_slot_create(memory, i, ring->n_slots, layout, rows, &slot);
        if (rc < 0) {
            if (memory->n_users == 0)
                mr_slot_memory_destroy(memory);
            return rc;
        }
        mr_ring_add(ring, slot);
        atomic_store(&ring->slot[i], slot);
    }
    return 0;
}

void mr_ring_add(struct mr_ring *ring, struct mr_slot *slot)
{
    slot->id = atomic_load(&ring->n_all);
    slot->leases = ring->leases;
    slot->next_all = mr_ring_all(ring);
    atomic_store(&ring->n_all, slot->id + 1);
    atomic_store_explicit(&ring->all, slot, memory_order_release);
}

void mr_ring_destroy(struct mr_ring *ring)
{
    free((void *)ring->slot);
    pthread_cond_destroy(&ring->slot_opened);
    pthread_cond_destroy(&ring->batch_ready);
    pthread_mutex_destroy(&ring->lock);
}

void mr_ring_open(struct mr_slot *slot, uint64_t t, uint64_t rows)
{
    atomic_store_explicit(&slot->claim_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->rows_left, rows, memory_order_relaxed);
    /* Before a look at n_waiting_workers: a worker raises that before it looks at the slot, so one
     * of the two sees the other (mr_ring_wake_workers()). */
    atomic_store(&slot->open_for, t);
}

void mr_ring_wake_workers(struct mr_ring *ring)
{
    if (atomic_load(&ring->n_waiting_workers) == 0)
        return;
    pthread_mutex_lock(&ring->lock);
    pthread_cond_broadcast(&ring->slot_opened);
    pthread_mutex_unlock(&ring->lock);
}

void mr_ring_stop(struct mr_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    atomic_store(&ring->stop, true);
    pthread_cond_broadcast(&ring->slot_opened);
    pthread_mutex_unlock(&ring->lock);
}

/* Do workers have to wait for the consumer's last work on the slot? */
static bool awaits_release(const struct mr_ring *ring, const struct mr_slot *slot)
{
    return (ring->awaits_release || slot->host_read) && slot->release_recorded;
}

static bool is_released(const struct mr_ring *ring, const struct mr_slot *slot)
{
    return !awaits_release(ring, slot) || mr_event_query(slot->released) != 0;
}

bool mr_ring_is_open(struct mr_ring *ring, uint64_t t)
{
    struct mr_slot *slot = mr_ring_slot(ring, t);
    if (atomic_load_explicit(&slot->open_for, memory_order_acquire) != t)
        return false;
    if (!atomic_load_explicit(&slot->host_busy, memory_order_acquire))
        return true;
    if (atomic_load_explicit(&slot->asking, memory_order_relaxed) ||
        mr_event_query(slot->copied) == 0 || !is_released(ring, slot))
        return false;
    atomic_store(&slot->host_busy, false); /* passed, or failed: its batch reports it */
    return true;
}

/* Until the copy of the slot's batch before has passed. One worker waits for the device, the others
 * for that one. */
static void wait_host_free(struct mr_ring *ring, struct mr_slot *slot)
{
    while (atomic_load(&slot->host_busy) && !atomic_load(&ring->stop)) {
        if (!atomic_exchange(&slot->asking, true)) {
            mr_event_synchronize(slot->copied);
            if (awaits_release(ring, slot))
                mr_event_synchronize(slot->released);
            atomic_store(&slot->host_busy, false);
            atomic_store(&slot->asking, false);
            mr_ring_wake_workers(ring);
            return;
        }
        pthread_mutex_lock(&ring->lock);
        atomic_fetch_add(&ring->n_waiting_workers, 1);
        while (atomic_load(&slot->host_busy) && atomic_load(&slot->asking) &&
               !atomic_load(&ring->stop))
            pthread_cond_wait(&ring->slot_opened, &ring->lock);
        atomic_fetch_sub(&ring->n_waiting_workers, 1);
        pthread_mutex_unlock(&ring->lock);
    }
}

bool mr_ring_wait_open(struct mr_ring *ring, uint64_t t)
{
    struct mr_slot *_Atomic *place = &ring->slot[t % ring->n_slots]; /* slots change meanwhile */
    pthread_mutex_lock(&ring->lock);
    atomic_fetch_add(&ring->n_waiting_workers, 1);
    while (atomic_load(&atomic_load(place)->open_for) != t && !atomic_load(&ring->stop))
        pthread_cond_wait(&ring->slot_opened, &ring->lock);
    atomic_fetch_sub(&ring->n_waiting_workers, 1);
    pthread_mutex_unlock(&ring->lock);
    if (!atomic_load(&ring->stop))
        wait_host_free(ring, mr_ring_slot(ring, t));
    return !atomic_load(&ring->stop);
}

bool mr_ring_rows_done(struct mr_slot *slot, uint64_t rows)
{
    return atomic_fetch_sub_explicit(&slot->rows_left, rows, memory_order_acq_rel) == rows;
}

void mr_ring_ready(struct mr_ring *ring, struct mr_slot *slot, uint64_t t)
{
    uint64_t claimed = atomic_load_explicit(&slot->claim_ns, memory_order_relaxed);
    uint64_t now = mr_time_ns();
    pthread_mutex_lock(&ring->lock);
    mr_hist_add(&ring->make, now > claimed ? now - claimed : 0);
    atomic_fetch_add_explicit(&ring->n_ready, 1, memory_order_relaxed);
    atomic_store_explicit(&slot->ready_for, t, memory_order_release);
    bool awaited = ring->consumer_waits && t == ring->awaited;
    pthread_mutex_unlock(&ring->lock);
    if (awaited)
        pthread_cond_signal(&ring->batch_ready);
}

/* The worker that wakes a sleeper is often the shipper, which all batches wait for: if there is a
 * processor for it, the consumer looks for a short while first. */
#define LOOK_NS 20000

static void look_until_ready(const struct mr_ring *ring, const struct mr_slot *slot, uint64_t t)
{
    uint64_t until = mr_time_ns() + LOOK_NS;
    while (!mr_ring_is_ready(slot, t) &&
           !atomic_load_explicit(&ring->cancelled, memory_order_relaxed) && mr_time_ns() < until)
        ;
}

void mr_ring_wait_ready(struct mr_ring *ring, uint64_t t, bool look_first)
{
    struct mr_slot *slot = mr_ring_slot(ring, t);
    if (look_first)
        look_until_ready(ring, slot, t);
    pthread_mutex_lock(&ring->lock);
    ring->consumer_waits = true;
    ring->awaited = t;
    while (!mr_ring_is_ready(slot, t) && !atomic_load(&ring->cancelled))
        pthread_cond_wait(&ring->batch_ready, &ring->lock);
    ring->consumer_waits = false;
    pthread_mutex_unlock(&ring->lock);
}

void mr_ring_cancel(struct mr_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    atomic_store(&ring->cancelled, true);
    pthread_cond_broadcast(&ring->batch_ready);
    pthread_mutex_unlock(&ring->lock);
}
