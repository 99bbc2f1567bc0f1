/*
 * Leases: parts of batches that are used beyond mr_loader_release(), and beyond mr_loader_close().
 *
 * A lease holds its slot's batch as the program does: they are counted in the low bits of the
 * slot's `hold`. Who ends the last hold opens the slot. A lease may end at any time and on any
 * thread, during close too. So leases have a lock, and an object of their own that lives until the
 * loader is closed and all of them have ended:
 *
 *   ld set      the loader is open; whoever ends a hold may use it
 *   ld NULL     it is being closed: the holds are only counted
 *   orphaned    it is closed: a slot's last lease destroys it, the last of all destroys this
 *
 * Programs that take no leases never take the lock. In a forked child nothing ends: locks may have
 * been held by threads that are not there, and the parent's leases are its own.
 */
#ifndef MR_LOADER_LEASE_H
#define MR_LOADER_LEASE_H

#include "loader/hold.h"
#include <pthread.h>

struct mr_leases {
    pthread_mutex_t lock; /* guards all below; ring.lock and device locks may be taken under it */
    struct mr_loader *ld;
    bool orphaned;
    uint64_t n;                   /* not yet ended */
    struct mr_device *own_device; /* orphaned: opened by the loader */
    struct mr_device_info info;   /* only read */
    struct mr_process process;    /* only read */
};

struct mr_lease {
    struct mr_leases *all;
    struct mr_slot *slot;
    struct mr_stream *stream; /* where the bytes are used; NULL: the host says when it is done */
};

struct mr_deferred;

int mr_leases_create(struct mr_loader *ld);
/* From now on no lease's end uses the loader. */
void mr_leases_detach(struct mr_loader *ld);
/* Destroys the slots that no lease holds, and the leases if there are none. */
void mr_leases_close(struct mr_loader *ld);

/* One more hold of a batch that is held. host: the host half is read. Returns 0, MR_EMISUSE (also
 * in a forked child). */
int mr_lease_begin(const struct mr_batch *batch, struct mr_stream *stream, bool host,
                   struct mr_lease *out);
/* true: it has ended, or this is a forked child. false: its stream is mr_stream_any(), and a stream
 * is being captured: later->run is called after the capture, and ends it. */
bool mr_lease_end(struct mr_lease *lease, struct mr_deferred *later);
/* mr_hold_release() of a batch that has or had leases. */
int mr_lease_release(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream);

#endif
