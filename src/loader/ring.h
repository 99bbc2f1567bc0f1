/*
 * The ring: the slots that batches are made in.
 *
 * Batch t is in the slot at place t % n_places; at most n_slots batches are under way. A slot goes
 * round:
 *
 *   open      The consumer has released the batch before (open.h); `open_for` is t. Workers may
 *             write rows of batch t once the copy of the batch before has passed (host_busy), which
 *             they wait for, if need be one of them for all. If workers also write the device half,
 *             or there is none, they wait for the consumer's work on the batch before, too
 *             (awaits_release). Large page-locked slots, except for the first one, get their host
 *             half only now (lacks_host), from the worker that waits: the first batch does not wait
 *             for memory that it does not use.
 *   written   Each worker subtracts its rows from rows_left. The one that brings it to 0 sees all
 *             rows written (acquire/release) and owns the slot: it completes the batch
 *             (complete.c). If the number of rows is found while they are made (plan.h), rows_left
 *             begins with the slot's capacity, runs subtract their whole spans, and n_found sums
 *             the rows that there really are.
 *   ready     `ready_for` is t: the consumer may take the batch. On devices this means that its
 *             copy is enqueued, not that it has passed.
 *   held      by the program, until it releases the batch (hold.h).
 *
 * The number of batches may be found during the run, too: mr_ring_end() wakes all who wait for a
 * batch that there will not be.
 *
 * The ring knows neither samples nor devices' queues; it calls nothing else in the loader. One lock
 * guards workers' sleeping and waking, and what is marked [lock] elsewhere; no other lock is taken
 * under it. The consumer sleeps without it: cancelling must work in a signal handler.
 */
#ifndef MR_LOADER_RING_H
#define MR_LOADER_RING_H

#include "base/base.h"
#include "device/device.h"
#include "loader/arrive.h"
#include "loader/slot.h"
#include <pthread.h>
#include <semaphore.h>

struct mr_ring {
    struct mr_device *device;
    struct mr_shared_memory *shared; /* see mr_slot_memory_create() */
    enum mr_memory host_kind;
    bool awaits_release;           /* workers write where the consumer's work reads */
    struct mr_slot *_Atomic *slot; /* where batch t is made: [t % n_places] */
    uint32_t n_slots, n_places;    /* as many places as slots, if batches come in order (open.h) */
    uint32_t n_first;              /* slots made at the start; the others when needed (hold.h) */
    _Atomic uint32_t ahead;        /* batches prepared ahead; n_slots: as many as there are slots */
    struct mr_arrivals arrivals;   /* if not */
    struct mr_slot *_Atomic all;   /* all slots there are, the latest first */
    _Atomic uint32_t n_all;
    struct mr_leases *leases; /* each slot gets it */

    /* Batches in all; UINT64_MAX: no end, or none known yet. mr_ring_end() lowers it. */
    _Atomic uint64_t total;
    _Atomic bool stop;      /* workers: the loader is being closed */
    _Atomic bool cancelled; /* the consumer, by mr_loader_cancel() */

    /* Written for each batch: not on the lines above, which workers read for each sample. */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t closed_from; /* no batch from here on is open yet */
    pthread_mutex_t lock;
    pthread_cond_t slot_opened;         /* workers wait: a slot was released */
    _Atomic uint32_t n_waiting_workers; /* written under lock */
    /* The consumer waits at the bell for the batch that is handed out as number `awaited`;
     * UINT64_MAX: it does not wait. A semaphore, since a signal handler may post it. It may ring
     * once too often, never once too few. */
    _Atomic uint64_t awaited;
    sem_t bell;
    /* mr_loader_fd(): a counter that is not 0 when batch `polled` is ready, or the run is over. It
     * may be so once too often. -1 and UINT64_MAX: no one asked for it. */
    _Atomic int fd;
    _Atomic uint64_t polled;
    _Atomic uint64_t n_ready; /* batches made ready so far; written under lock */
    struct mr_hist make;      /* [lock] from a batch's first claim to its being ready */
};

/* Batches in all, as far as it is known: see total. Any thread. */
static inline uint64_t mr_ring_total(const struct mr_ring *ring)
{
    return atomic_load_explicit(&ring->total, memory_order_relaxed);
}

/* The slot of batch t. */
static inline struct mr_slot *mr_ring_slot(const struct mr_ring *ring, uint64_t t)
{
    return atomic_load_explicit(&ring->slot[t % ring->n_places], memory_order_acquire);
}

/* All slots: the first; from each the next is next_all. Any thread. */
static inline struct mr_slot *mr_ring_all(const struct mr_ring *ring)
{
    return atomic_load_explicit(&ring->all, memory_order_acquire);
}

/* The slot of the k-th batch that is handed out, from 0: batch k, or arrival k. NULL: it is not
 * ready. */
static inline struct mr_slot *mr_ring_get_ready(const struct mr_ring *ring, uint64_t k)
{
    if (ring->arrivals.slot)
        return mr_arrivals_get(&ring->arrivals, k);
    struct mr_slot *slot = mr_ring_slot(ring, k);
    return atomic_load(&slot->ready_for) == k ? slot : NULL;
}

/* Locks; of a zeroed ring. Before anything else, mr_ring_destroy() included. */
int mr_ring_init(struct mr_ring *ring);
/* n_first slots of `rows` rows; two_halves: on the device as well. device and host_kind are set. On
 * failure the ring is still to be destroyed. */
int mr_ring_create(struct mr_ring *ring, const struct mr_layout *layout, uint64_t rows,
                   bool two_halves);
void mr_ring_destroy(struct mr_ring *ring); /* slots are not its own: mr_leases_close() */
/* Adds a slot to the list of all, which owns it from now on. One thread. */
void mr_ring_add(struct mr_ring *ring, struct mr_slot *slot);

/* There are at most `total` batches: who waits for a later one stops waiting. A number that is not
 * lower than the known one changes nothing. Any thread. */
void mr_ring_end(struct mr_ring *ring, uint64_t total);
/* Workers may write the rows of batch t from now on. Who calls this for several slots in a row
 * wakes workers once, afterwards. */
void mr_ring_open(struct mr_slot *slot, uint64_t t, uint64_t rows);
void mr_ring_wake_workers(struct mr_ring *ring);
/* n_taken batches have been handed out: those that lie `ahead` further are open from now on. The
 * caller wakes workers. */
void mr_ring_advance(struct mr_ring *ring, uint64_t n_taken);
/* Workers stop waiting. */
void mr_ring_stop(struct mr_ring *ring);
/* May rows of batch t be written now? */
bool mr_ring_is_open(struct mr_ring *ring, uint64_t t);
/* Has the slot of batch t no host half yet? [out] asked: a worker acquires it now. */
bool mr_ring_lacks_host(struct mr_ring *ring, uint64_t t, bool *asked);
/* Acquires it, or waits for the worker that does. Returns as mr_ring_wait_open(). */
int mr_ring_acquire_host(struct mr_ring *ring, uint64_t t);
/* Waits until they may, or it is known that there is no batch t. Returns 1; 0: stop; or, to one of
 * the workers, why the slot has no memory: the batch fails. */
int mr_ring_wait_open(struct mr_ring *ring, uint64_t t);
/* `rows` more rows are written; true: they were the last ones, and the slot is the caller's. */
bool mr_ring_rows_done(struct mr_slot *slot, uint64_t rows);
/* The batch in this slot is complete and shipped: it may be handed out. */
void mr_ring_ready(struct mr_ring *ring, struct mr_slot *slot, uint64_t t);
#define MR_FOREVER UINT64_MAX
/* Waits until the k-th batch that is handed out is ready, it is known that there is none, the run
 * is cancelled, or it is until_ns (0: does not wait). look_first: look for a short while first. */
void mr_ring_wait_ready(struct mr_ring *ring, uint64_t k, bool look_first, uint64_t until_ns);
/* Makes the descriptor, if there is none yet. Returns it or -errno. The consumer's, as is poll:
 * from now on it says whether the k-th batch is ready, or there is none. over: it stays readable.
 */
int mr_ring_fd(struct mr_ring *ring);
bool mr_ring_is_polled(const struct mr_ring *ring); /* there is a descriptor */
void mr_ring_poll(struct mr_ring *ring, uint64_t k, bool over);
/* Makes the descriptor readable, once: a call may find more than before. Any thread. */
void mr_ring_signal(struct mr_ring *ring);
/* Async-signal-safe. */
void mr_ring_cancel(struct mr_ring *ring);

#endif
