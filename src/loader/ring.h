/*
 * The ring: the slots that batches are made in.
 *
 * Batch t is in slot t % n_slots, so at most n_slots batches are under way. A slot goes round:
 *
 *   open     The consumer has released batch t - n; `open_for` is t. Workers may write rows of
 * batch t once the copy of the batch before has passed (host_busy), which they wait for, if need be
 * one of them for all. If workers also write the device half (awaits_release), they wait for the
 * consumer's work on the batch before, too. written  Each worker subtracts its rows from rows_left.
 * The one that brings it to 0 sees all rows written (acquire/release) and owns the slot: it
 * completes the batch (complete.c). ready    `ready_for` is t: the consumer may take the batch. On
 * devices this means that its copy is enqueued, not that it has passed. held     by the consumer,
 * until it releases the batch.
 *
 * The ring knows neither samples nor devices' queues; it calls nothing else in the loader. One lock
 * guards workers' sleeping and waking, and what is marked [lock] elsewhere; no other lock is taken
 * under it. The consumer sleeps without it: cancelling must work in a signal handler.
 */
#ifndef MR_LOADER_RING_H
#define MR_LOADER_RING_H

#include "base/base.h"
#include "device/device.h"
#include "loader/layout.h"
#include "loader/plan.h"
#include "transform/device_part.h"
#include <pthread.h>
#include <semaphore.h>

struct mr_bad;

/* Events with timing around one batch's copy and use (times.c). A slot has two sets, used in turn
 * by its batches that are timed, so that a batch's times can be read two rounds later, when they
 * have almost certainly passed, without waiting. */
struct mr_slot_clock {
    struct mr_event *copy_start, *copy_end; /* copy stream: around the copy */
    struct mr_event *use_start, *use_end;   /* consumer's stream: around its work on the batch */
    uint64_t t;
    int stream;
    bool lead; /* see struct mr_batch_times */
    _Atomic bool copy_recorded, start_recorded, end_recorded;
};

struct mr_slot {
    /* The ring's. */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t rows_left; /* of the batch being written */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t open_for;  /* may be written; UINT64_MAX: none yet */
    _Atomic bool host_busy;     /* the copy of the batch before may still read the host half */
    _Atomic bool asking;        /* one worker asks the device about that: the others wait for it */
    _Atomic uint64_t claim_ns;  /* when its first run was started; 0: not yet */
    _Atomic uint64_t ready_for; /* ready to be handed out; UINT64_MAX: none */
    bool held;                  /* by the consumer */
    /* Read for each row: not on a line that is written for each batch. */
    _Alignas(MR_CACHE_LINE) unsigned char *host;
    unsigned char *device;
    unsigned char *output; /* on the device: of device parts of chains; NULL: none */

    /* The batch. Rows are their workers' until it is complete, then the completing worker's, then
     * the consumer's. */
    struct mr_plan_batch info;
    struct mr_mixture mixture; /* a chain that mixes rows: how those of this batch */
    uint64_t size;             /* rows delivered: info.rows less the skipped */
    uint64_t *indices, *positions;
    uint8_t *maker; /* of each row: the number of the backend that made it */
    uint64_t *dims; /* [row][field][MR_MAX_RANK], when some field varies; else NULL */
    uint64_t *lengths[MR_MAX_FIELDS], *offsets[MR_MAX_FIELDS];
    struct mr_spec spec[MR_MAX_FIELDS]; /* of the batch as delivered */
    uint64_t bytes[MR_MAX_FIELDS];
    struct mr_bad *bad; /* [lock while being filled] unordered; the consumer's once ready */
    bool bad_lost;      /* [the same] no memory to note one: the batch cannot be handed out */

    /* Shipping (ship.c). */
    struct mr_event *copied, *released; /* ends of the last copy, of the consumer's last work */
    bool copy_recorded, release_recorded;
    struct mr_slot_clock clock[2]; /* of batch t: [t / n_slots % 2] */
    struct mr_slot_clock *clocked; /* that of the batch in it; NULL: it is not timed */
    struct mr_slot *next_full;     /* of those left with the shipper */
    uint64_t full_for;             /* the batch it was left for */
};

struct mr_ring {
    struct mr_device *device;
    enum mr_memory host_kind;
    bool awaits_release; /* workers write device halves, too */
    struct mr_slot *slot;
    uint32_t n_slots;
    unsigned char *host;      /* all slots' host halves, host_bytes apart */
    unsigned char *on_device; /* all device halves, slot_bytes apart; behind these all outputs */

    _Atomic bool stop;      /* workers: the loader is being closed */
    _Atomic bool cancelled; /* the consumer, by mr_loader_cancel() */

    /* Written for each batch: not on the lines above, which workers read for each sample. */
    _Alignas(MR_CACHE_LINE) pthread_mutex_t lock;
    pthread_cond_t slot_opened;         /* workers wait: a slot was released */
    _Atomic uint32_t n_waiting_workers; /* written under lock */
    /* The consumer waits at the bell for batch `awaited`; UINT64_MAX: it does not wait. A
     * semaphore, since a signal handler may post it. It may ring once too often, never once too
     * few. */
    _Atomic uint64_t awaited;
    sem_t bell;
    /* mr_loader_fd(): a counter that is not 0 when batch `polled` is ready, or the run is over. It
     * may be so once too often. -1 and UINT64_MAX: no one asked for it. */
    _Atomic int fd;
    _Atomic uint64_t polled;
    _Atomic uint64_t n_ready; /* batches made ready so far; written under lock */
    struct mr_hist make;      /* [lock] from a batch's first claim to its being ready */
};

/* The slot of batch t. */
static inline struct mr_slot *mr_ring_slot(const struct mr_ring *ring, uint64_t t)
{
    return &ring->slot[t % ring->n_slots];
}

/* A row of a field in the host half. */
static inline unsigned char *mr_field_row(const struct mr_field *fp, const struct mr_slot *slot,
                                          uint64_t row)
{
    return slot->host + fp->offset + row * fp->row_bytes;
}

/* Neighbouring rows, of several workers, share a cache line: it is written only to change it, which
 * a loader with one backend never does. */
static inline void mr_slot_set_maker(struct mr_slot *slot, uint64_t row, uint8_t maker)
{
    if (slot->maker[row] != maker)
        slot->maker[row] = maker;
}

/* The shape of a row of a field, when some field varies. */
static inline uint64_t *mr_slot_dims(const struct mr_layout *layout, const struct mr_slot *slot,
                                     uint64_t row, int f)
{
    return slot->dims + (row * (uint64_t)layout->n_fields + (uint64_t)f) * MR_MAX_RANK;
}

static inline bool mr_ring_is_ready(const struct mr_slot *slot, uint64_t t)
{
    return atomic_load_explicit(&slot->ready_for, memory_order_acquire) == t;
}

/* Locks; of a zeroed ring. Before anything else, mr_ring_destroy() included. */
int mr_ring_init(struct mr_ring *ring);
/* Memory for n_slots slots of `rows` rows; two_halves: on the device as well. device and host_kind
 * are set. On failure the ring is still to be destroyed. */
int mr_ring_create(struct mr_ring *ring, const struct mr_layout *layout, uint64_t rows,
                   bool two_halves);
void mr_ring_destroy(struct mr_ring *ring);

/* Workers may write the rows of batch t from now on. Who calls this for several slots in a row
 * wakes workers once, afterwards. */
void mr_ring_open(struct mr_slot *slot, uint64_t t, uint64_t rows);
void mr_ring_wake_workers(struct mr_ring *ring);
/* Workers stop waiting. */
void mr_ring_stop(struct mr_ring *ring);
/* May rows of batch t be written now? */
bool mr_ring_is_open(struct mr_ring *ring, uint64_t t);
/* Waits until they may; false: stop. */
bool mr_ring_wait_open(struct mr_ring *ring, uint64_t t);
/* `rows` more rows are written; true: they were the last ones, and the slot is the caller's. */
bool mr_ring_rows_done(struct mr_slot *slot, uint64_t rows);
/* The batch in this slot is complete and shipped: it may be handed out. */
void mr_ring_ready(struct mr_ring *ring, struct mr_slot *slot, uint64_t t);
#define MR_FOREVER UINT64_MAX
/* Waits until batch t is ready, the run is cancelled, or it is until_ns (0: does not wait).
 * look_first: a short while without sleeping. */
void mr_ring_wait_ready(struct mr_ring *ring, uint64_t t, bool look_first, uint64_t until_ns);
/* Makes the descriptor, if there is none yet. Returns it or -errno. The consumer's, as is poll:
 * from now on it says whether batch t is ready. over: it stays readable. */
int mr_ring_fd(struct mr_ring *ring);
void mr_ring_poll(struct mr_ring *ring, uint64_t t, bool over);
/* Async-signal-safe. */
void mr_ring_cancel(struct mr_ring *ring);

#endif
