/* The slots in turn: opened, written, ready; who sleeps until then, and who wakes whom. */
#include "loader/ring.h"
#include "base/libc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int mr_ring_init(struct mr_ring *ring)
{
    pthread_mutex_init(&ring->lock, NULL);
    atomic_store(&ring->awaited, UINT64_MAX);
    atomic_store(&ring->polled, UINT64_MAX);
    atomic_store(&ring->total, UINT64_MAX);
    atomic_store(&ring->fd, -1);
    atomic_store(&ring->closed_from, UINT64_MAX);
    sem_init(&ring->bell, 0, 0); /* cannot fail with these arguments */
    return mr_cond_init(&ring->slot_opened);
}

/* Page-locking a slot of this size takes longer than a batch of small rows. */
#define LARGE_SLOT (2u << 20)

int mr_ring_create(struct mr_ring *ring, const struct mr_layout *layout, uint64_t rows,
                   bool two_halves)
{
    struct mr_slot_memory *memory = NULL;
    bool pinned = ring->host_kind == MR_PINNED, large = layout->host_bytes >= LARGE_SLOT;
    /* Slots in one piece of memory. */
    bool later = pinned && large;
    uint32_t n = layout->collates || later ? 1 : ring->n_first;
    ring->slot = calloc(ring->n_places, sizeof *ring->slot);
    if (!ring->slot)
        return mr_error_nomem("slots", ring->n_places * sizeof *ring->slot);
    for (uint32_t i = 0; i < ring->n_first; i++) {
        struct mr_slot *slot;
        int rc = i % n ? 0
                       : mr_slot_memory_create(ring->device, ring->shared, ring->host_kind, layout,
                                               n, two_halves, later && i > 0, &memory);
        if (rc < 0)
            return rc;
        rc = mr_slot_create(memory, i % n, n, layout, rows, &slot);
        if (rc < 0) {
            if (memory->n_users == 0)
                mr_slot_memory_destroy(memory);
            return rc;
        }
        mr_ring_add(ring, slot);
        atomic_store(&ring->slot[i], slot);
    }
    for (uint32_t i = ring->n_first; i < ring->n_places;
         i++) /* a slot that is open for none here */
        atomic_store(&ring->slot[i], ring->slot[0]);
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

void mr_ring_advance(struct mr_ring *ring, uint64_t n_taken)
{
    uint32_t ahead = atomic_load(&ring->ahead);
    atomic_store(&ring->closed_from, ahead < ring->n_slots ? n_taken + ahead : UINT64_MAX);
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
    return (ring->awaits_release || atomic_load(&slot->host_read)) && slot->release_recorded;
}

static bool is_released(const struct mr_ring *ring, const struct mr_slot *slot)
{
    return !awaits_release(ring, slot) || mr_event_query(slot->released) != 0;
}

bool mr_ring_is_open(struct mr_ring *ring, uint64_t t)
{
    struct mr_slot *slot = mr_ring_slot(ring, t);
    if (atomic_load_explicit(&slot->open_for, memory_order_acquire) != t ||
        t >= atomic_load_explicit(&ring->closed_from, memory_order_relaxed))
        return false;
    if (!atomic_load_explicit(&slot->host_busy, memory_order_acquire))
        return true;
    if (atomic_load(&slot->lacks_host) ||
        atomic_load_explicit(&slot->asking, memory_order_relaxed) ||
        mr_event_query(slot->copied) == 0 || !is_released(ring, slot))
        return false;
    atomic_store(&slot->host_busy, false); /* passed, or failed: its batch reports it */
    return true;
}

/* Gives the slot its host half, or waits until the copy of its batch before has passed. */
static int free_host(struct mr_ring *ring, struct mr_slot *slot)
{
    if (atomic_load(&slot->lacks_host)) {
        const _Atomic bool *before = mr_interruptible_by(&ring->stop);
        int rc = mr_slot_acquire_host(slot, ring->shared);
        mr_interruptible_by(before);
        return rc;
    }
    mr_event_synchronize(slot->copied);
    if (awaits_release(ring, slot))
        mr_event_synchronize(slot->released);
    return 0;
}

/* Until the host half may be written. One worker sees to that, the others wait for that one; for
 * ever, if it failed. */
static int wait_host_free(struct mr_ring *ring, struct mr_slot *slot)
{
    while (atomic_load(&slot->host_busy) && !atomic_load(&ring->stop)) {
        if (!atomic_exchange(&slot->asking, true)) {
            int rc = free_host(ring, slot);
            if (rc < 0)
                return rc;
            atomic_store(&slot->host_busy, false);
            atomic_store(&slot->asking, false);
            mr_ring_wake_workers(ring);
            return 0;
        }
        pthread_mutex_lock(&ring->lock);
        atomic_fetch_add(&ring->n_waiting_workers, 1);
        while (atomic_load(&slot->host_busy) && atomic_load(&slot->asking) &&
               !atomic_load(&ring->stop))
            pthread_cond_wait(&ring->slot_opened, &ring->lock);
        atomic_fetch_sub(&ring->n_waiting_workers, 1);
        pthread_mutex_unlock(&ring->lock);
    }
    return 0;
}

bool mr_ring_lacks_host(struct mr_ring *ring, uint64_t t, bool *asked)
{
    struct mr_slot *slot = mr_ring_slot(ring, t);
    *asked = atomic_load_explicit(&slot->asking, memory_order_relaxed);
    return atomic_load_explicit(&slot->lacks_host, memory_order_relaxed);
}

int mr_ring_acquire_host(struct mr_ring *ring, uint64_t t)
{
    int rc = wait_host_free(ring, mr_ring_slot(ring, t));
    return atomic_load(&ring->stop) ? 0 : rc < 0 ? rc : 1;
}

int mr_ring_wait_open(struct mr_ring *ring, uint64_t t)
{
    struct mr_slot *_Atomic *place = &ring->slot[t % ring->n_places]; /* slots change meanwhile */
    pthread_mutex_lock(&ring->lock);
    atomic_fetch_add(&ring->n_waiting_workers, 1);
    while (
        (atomic_load(&atomic_load(place)->open_for) != t || t >= atomic_load(&ring->closed_from)) &&
        !atomic_load(&ring->stop) && t < atomic_load(&ring->total))
        pthread_cond_wait(&ring->slot_opened, &ring->lock);
    atomic_fetch_sub(&ring->n_waiting_workers, 1);
    pthread_mutex_unlock(&ring->lock);
    int rc = 0;
    if (!atomic_load(&ring->stop) && t < atomic_load(&ring->total))
        rc = wait_host_free(ring, mr_ring_slot(ring, t));
    return atomic_load(&ring->stop) ? 0 : rc < 0 ? rc : 1;
}

bool mr_ring_rows_done(struct mr_slot *slot, uint64_t rows)
{
    return atomic_fetch_sub_explicit(&slot->rows_left, rows, memory_order_acq_rel) == rows;
}

/* Also in signal handlers. It cannot fail but by a full counter. */
void mr_ring_signal(struct mr_ring *ring)
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

bool mr_ring_is_polled(const struct mr_ring *ring)
{
    return atomic_load_explicit(&ring->fd, memory_order_relaxed) >= 0;
}

void mr_ring_poll(struct mr_ring *ring, uint64_t k, bool over)
{
    int fd = atomic_load_explicit(&ring->fd, memory_order_relaxed);
    uint64_t count;
    if (fd < 0)
        return;
    (void)!read(fd, &count, sizeof count);
    atomic_store(&ring->polled, k); /* before a look at the slot, see mr_ring_ready() */
    if (over || atomic_load(&ring->cancelled) || k >= atomic_load(&ring->total) ||
        mr_ring_get_ready(ring, k))
        mr_ring_signal(ring);
}

void mr_ring_ready(struct mr_ring *ring, struct mr_slot *slot, uint64_t t)
{
    uint64_t claimed = atomic_load_explicit(&slot->claim_ns, memory_order_relaxed);
    uint64_t now = mr_time_ns(), k = t;
    pthread_mutex_lock(&ring->lock);
    atomic_fetch_add_explicit(&ring->n_ready, 1, memory_order_relaxed);
    if (claimed > 0) /* else its slot got no memory */
        mr_hist_add(&ring->make, now > claimed ? now - claimed : 0);
    if (ring->arrivals.slot)
        k = mr_arrivals_add(&ring->arrivals, slot, t);
    pthread_mutex_unlock(&ring->lock);
    /* Before a look at `awaited`: the consumer sets that before it looks at the slot, so one of the
     * two sees the other. */
    if (!ring->arrivals.slot)
        atomic_store(&slot->ready_for, t);
    if (k == UINT64_MAX) /* the consumer itself will make it an arrival */
        return;
    if (atomic_load(&ring->awaited) == k)
        sem_post(&ring->bell);
    if (atomic_load(&ring->polled) == k)
        mr_ring_signal(ring);
}

/* The worker that wakes a sleeper is often the shipper, which all batches wait for: if there is a
 * processor for it, the consumer looks for a short while first. */
#define LOOK_NS 20000

static void look_until_ready(const struct mr_ring *ring, uint64_t k, uint64_t most_ns)
{
    uint64_t until = MR_MIN(mr_time_ns() + LOOK_NS, most_ns);
    while (!mr_ring_get_ready(ring, k) && k < mr_ring_total(ring) &&
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
    if (mr_libc_sem_wait_until(&ring->bell, &until) == 0)
        return true;
    return (errno == EINTR || errno == ETIMEDOUT) && mr_time_ns() < until_ns;
}

void mr_ring_wait_ready(struct mr_ring *ring, uint64_t k, bool look_first, uint64_t until_ns)
{
    if (look_first)
        look_until_ready(ring, k, until_ns);
    atomic_store(&ring->awaited, k);
    while (!mr_ring_get_ready(ring, k) && !atomic_load(&ring->cancelled) &&
           k < atomic_load(&ring->total) && sleep_at_bell(ring, until_ns))
        ;
    atomic_store(&ring->awaited, UINT64_MAX);
}

/* The consumer sets `awaited` or `polled` before it looks at `total`: as in mr_ring_ready(). */
void mr_ring_end(struct mr_ring *ring, uint64_t total)
{
    uint64_t known = atomic_load(&ring->total);
    do {
        if (total >= known)
            return;
    } while (!atomic_compare_exchange_weak(&ring->total, &known, total));
    uint64_t awaited = atomic_load(&ring->awaited), polled = atomic_load(&ring->polled);
    if (awaited != UINT64_MAX && awaited >= total)
        sem_post(&ring->bell);
    if (polled != UINT64_MAX && polled >= total)
        mr_ring_signal(ring);
    pthread_mutex_lock(&ring->lock);
    pthread_cond_broadcast(&ring->slot_opened);
    pthread_mutex_unlock(&ring->lock);
}

/* The first call alone posts, so the semaphore cannot overflow. */
void mr_ring_cancel(struct mr_ring *ring)
{
    if (atomic_exchange(&ring->cancelled, true))
        return;
    sem_post(&ring->bell);
    mr_ring_signal(ring);
}
