/* The slots: their memory; opened, written, ready; who sleeps until then, and who wakes whom. */
#include "loader/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int mr_ring_init(struct mr_ring *ring)
{
    pthread_mutex_init(&ring->lock, NULL);
    atomic_store(&ring->awaited, UINT64_MAX);
    atomic_store(&ring->polled, UINT64_MAX);
    atomic_store(&ring->fd, -1);
    sem_init(&ring->bell, 0, 0); /* cannot fail with these arguments */
    return mr_cond_init(&ring->slot_opened);
}

/* All slots in one piece each on host and device: few large pages, one page-locking. */
static int acquire_memory(struct mr_ring *ring, const struct mr_layout *layout, bool two_halves)
{
    uint64_t bytes = (layout->slot_bytes + layout->output_bytes) * ring->n_slots;
    int rc = mr_memory_acquire(ring->device, ring->host_kind, layout->host_bytes * ring->n_slots,
                               (void **)&ring->host);
    if (rc == 0 && two_halves)
        rc = mr_memory_acquire(ring->device, MR_DEVICE, bytes, (void **)&ring->on_device);
    return rc;
}

static int create_slot(struct mr_ring *ring, uint64_t i, const struct mr_layout *layout,
                       uint64_t rows)
{
    struct mr_slot *slot = &ring->slot[i];
    unsigned char *outputs = ring->on_device + ring->n_slots * layout->slot_bytes;
    atomic_store(&slot->ready_for, UINT64_MAX);
    atomic_store(&slot->open_for, UINT64_MAX);
    slot->host = ring->host + i * layout->host_bytes;
    slot->device = ring->on_device ? ring->on_device + i * layout->slot_bytes : NULL;
    slot->output = layout->output_bytes > 0 ? outputs + i * layout->output_bytes : NULL;
    slot->indices = calloc(rows, sizeof *slot->indices);
    slot->positions = calloc(rows, sizeof *slot->positions);
    slot->maker = calloc(rows, sizeof *slot->maker);
    bool got = slot->indices && slot->positions && slot->maker;
    if (layout->varies && got) {
        slot->dims = calloc(rows * (uint64_t)layout->n_fields, MR_MAX_RANK * sizeof *slot->dims);
        got = slot->dims;
    }
    for (int f = 0; f < layout->n_fields && got; f++) {
        if (!layout->field[f].varies)
            continue;
        slot->lengths[f] = calloc(rows, sizeof(uint64_t));
        slot->offsets[f] = calloc(rows + 1, sizeof(uint64_t));
        got = slot->lengths[f] && slot->offsets[f];
    }
    return got ? 0 : mr_error_nomem("batch slot", rows * sizeof *slot->indices);
}

int mr_ring_create(struct mr_ring *ring, const struct mr_layout *layout, uint64_t rows,
                   bool two_halves)
{
    ring->slot = aligned_alloc(_Alignof(struct mr_slot), ring->n_slots * sizeof *ring->slot);
    if (!ring->slot)
        return mr_error_nomem("slots", ring->n_slots * sizeof *ring->slot);
    memset(ring->slot, 0, ring->n_slots * sizeof *ring->slot);
    int rc = acquire_memory(ring, layout, two_halves);
    for (uint32_t i = 0; i < ring->n_slots && rc == 0; i++)
        rc = create_slot(ring, i, layout, rows);
    return rc;
}

static void destroy_slot(struct mr_slot *slot)
{
    free(slot->indices);
    free(slot->positions);
    free(slot->maker);
    free(slot->dims);
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        free(slot->lengths[f]);
        free(slot->offsets[f]);
    }
}

void mr_ring_destroy(struct mr_ring *ring)
{
    for (uint32_t i = 0; ring->slot && i < ring->n_slots; i++)
        destroy_slot(&ring->slot[i]);
    if (ring->host)
        mr_memory_release(ring->device, ring->host_kind, ring->host, NULL);
    if (ring->on_device)
        mr_memory_release(ring->device, MR_DEVICE, ring->on_device, NULL);
    free(ring->slot);
    pthread_cond_destroy(&ring->slot_opened);
    sem_destroy(&ring->bell);
    if (ring->fd >= 0)
        close(ring->fd);
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

/* Has the consumer's last work on the slot passed, as far as workers have to wait for it? */
static bool is_released(const struct mr_ring *ring, const struct mr_slot *slot)
{
    return !ring->awaits_release || !slot->release_recorded || mr_event_query(slot->released) != 0;
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
            if (ring->awaits_release && slot->release_recorded)
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
    struct mr_slot *slot = mr_ring_slot(ring, t);
    pthread_mutex_lock(&ring->lock);
    atomic_fetch_add(&ring->n_waiting_workers, 1);
    while (atomic_load(&slot->open_for) != t && !atomic_load(&ring->stop))
        pthread_cond_wait(&ring->slot_opened, &ring->lock);
    atomic_fetch_sub(&ring->n_waiting_workers, 1);
    pthread_mutex_unlock(&ring->lock);
    if (!atomic_load(&ring->stop))
        wait_host_free(ring, slot);
    return !atomic_load(&ring->stop);
}

bool mr_ring_rows_done(struct mr_slot *slot, uint64_t rows)
{
    return atomic_fetch_sub_explicit(&slot->rows_left, rows, memory_order_acq_rel) == rows;
}

/* Also in signal handlers. It cannot fail but by a full counter. */
static void signal_fd(struct mr_ring *ring)
{
    int fd = atomic_load(&ring->fd), before = errno;
    if (fd >= 0)
        (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
    errno = before;
}

int mr_ring_fd(struct mr_ring *ring)
{
    int fd = atomic_load(&ring->fd);
    if (fd >= 0)
        return fd;
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return mr_error_errno(errno, "mr_loader_fd: eventfd");
    atomic_store(&ring->fd, fd);
    return fd;
}

void mr_ring_poll(struct mr_ring *ring, uint64_t t, bool over)
{
    int fd = atomic_load_explicit(&ring->fd, memory_order_relaxed);
    uint64_t count;
    if (fd < 0)
        return;
    (void)!read(fd, &count, sizeof count);
    atomic_store(&ring->polled, t); /* before a look at the slot, see mr_ring_ready() */
    if (over || atomic_load(&ring->cancelled) ||
        atomic_load(&mr_ring_slot(ring, t)->ready_for) == t)
        signal_fd(ring);
}

void mr_ring_ready(struct mr_ring *ring, struct mr_slot *slot, uint64_t t)
{
    uint64_t claimed = atomic_load_explicit(&slot->claim_ns, memory_order_relaxed);
    uint64_t now = mr_time_ns();
    pthread_mutex_lock(&ring->lock);
    mr_hist_add(&ring->make, now > claimed ? now - claimed : 0);
    atomic_fetch_add_explicit(&ring->n_ready, 1, memory_order_relaxed);
    pthread_mutex_unlock(&ring->lock);
    /* Before a look at `awaited`: the consumer sets that before it looks at the slot, so one of the
     * two sees the other. */
    atomic_store(&slot->ready_for, t);
    if (atomic_load(&ring->awaited) == t)
        sem_post(&ring->bell);
    if (atomic_load(&ring->polled) == t)
        signal_fd(ring);
}

/* The worker that wakes a sleeper is often the shipper, which all batches wait for: if there is a
 * processor for it, the consumer looks for a short while first. */
#define LOOK_NS 20000

static void look_until_ready(const struct mr_ring *ring, const struct mr_slot *slot, uint64_t t,
                             uint64_t most_ns)
{
    uint64_t until = MR_MIN(mr_time_ns() + LOOK_NS, most_ns);
    while (!mr_ring_is_ready(slot, t) &&
           !atomic_load_explicit(&ring->cancelled, memory_order_relaxed) && mr_time_ns() < until)
        ;
}

/* Until the bell rings, a signal is handled, or it is until_ns: then false. */
static bool sleep_at_bell(struct mr_ring *ring, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    if (until_ns == 0)
        return false;
    if (until_ns == MR_FOREVER) {
        sem_wait(&ring->bell);
        return true;
    }
    if (sem_clockwait(&ring->bell, CLOCK_MONOTONIC, &until) == 0)
        return true;
    return errno == EINTR && mr_time_ns() < until_ns;
}

void mr_ring_wait_ready(struct mr_ring *ring, uint64_t t, bool look_first, uint64_t until_ns)
{
    struct mr_slot *slot = mr_ring_slot(ring, t);
    if (look_first)
        look_until_ready(ring, slot, t, until_ns);
    atomic_store(&ring->awaited, t);
    while (atomic_load(&slot->ready_for) != t && !atomic_load(&ring->cancelled) &&
           sleep_at_bell(ring, until_ns))
        ;
    atomic_store(&ring->awaited, UINT64_MAX);
}

/* The first call alone posts, so the semaphore cannot overflow. */
void mr_ring_cancel(struct mr_ring *ring)
{
    if (atomic_exchange(&ring->cancelled, true))
        return;
    sem_post(&ring->bell);
    signal_fd(ring);
}
