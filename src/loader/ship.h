/*
 * Shipping: the copy of a full slot to the device, and the events that order it against the
 * consumer's work without a host thread that waits.
 *
 * The worker that completes a batch enqueues its copy itself. If another worker is already at that,
 * it pushes its slot on that one's list and goes on, for driver calls would queue up behind each
 * other anyway. `n_full` counts the slots on the list: who raises it from 0 is the shipper, and its
 * turn ends when the count is back at 0, at the latest when the ring is full.
 *
 * A batch needs three driver calls: the copy stream waits for the consumer's last work on the slot
 * (`released`), the copy, an event behind it (`copied`). Row backends and device parts of chains
 * add theirs after the copy. With several copy streams a slot keeps to one, so that its batches
 * stay in order. On devices without memory of their own nothing is shipped.
 *
 * ship.lock is the shipper's, and that of threads which read its times; the ring's lock is never
 * held when it is taken.
 */
#ifndef MR_LOADER_SHIP_H
#define MR_LOADER_SHIP_H

#include "base/base.h"
#include <pthread.h>

#define MR_MAX_STREAMS 16

struct mr_loader;
struct mr_slot;
struct mr_stream;

struct mr_ship {
    struct mr_stream *stream[MR_MAX_STREAMS]; /* a slot keeps to one: [slot % opts.streams] */
    pthread_mutex_t lock;
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t n_full; /* slots left with the shipper */
    struct mr_slot *_Atomic full;                    /* newest first */
    struct mr_slot *to_ship; /* the shipper's: taken from `full`, oldest first */
    _Atomic uint64_t copied_bytes;
};

/* Streams, and the events of slots that exist. On failure it is still to be destroyed. */
int mr_ship_create(struct mr_loader *ld);
/* The events of one more slot, likewise. */
int mr_ship_slot(struct mr_loader *ld, struct mr_slot *slot);
void mr_ship_slot_end(struct mr_slot *slot);
/* Waits for all that is enqueued, the consumer's work on slots included. */
void mr_ship_wait(struct mr_loader *ld);
void mr_ship_destroy(struct mr_loader *ld); /* after mr_ship_wait() */
/* Enqueues the copy of batch t and makes it ready, or leaves both to the shipper. An error is kept
 * with the batch. */
void mr_ship(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);
/* Work enqueued to the consumer's stream from now on sees the batch; stream NULL: the host waits.
 */
int mr_ship_hand_out(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream);
/* One of several holds of the batch ends where its stream stands. [leases.lock] */
int mr_ship_release_part(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream);
/* The consumer's work on the batch ends where its stream stands. */
int mr_ship_release(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream);

#endif
