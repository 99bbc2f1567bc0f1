/*
 * Consumers: how several threads take batches from one loader.
 *
 * A thread in mr_loader_next() has the turn until it returns. `lock` guards all that handing out a
 * batch changes (struct mr_handout, the quarantine list, a slot's bad_before): a call that finds
 * its batch ready takes it once and releases it. A thread that has to wait for its batch keeps the
 * turn but not the lock, so that states, mr_loader_bad() and mr_loader_fd() never wait for it. The
 * other consumers wait for the turn, no longer than they may.
 *
 * ring.lock and locks of devices may be taken under the lock; it is taken under no other.
 */
#ifndef MR_LOADER_CONSUMERS_H
#define MR_LOADER_CONSUMERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_loader;

struct mr_consumers {
    pthread_mutex_t lock;
    pthread_cond_t over; /* a turn is */
    bool taken;          /* by a thread that waits for its batch without the lock */
    uint32_t n_waiting;  /* for their turn */
};

int mr_consumers_init(struct mr_consumers *all);
void mr_consumers_destroy(struct mr_consumers *all);
/* Locks, and waits for the turn until until_ns (0: does not wait; UINT64_MAX: for ever). false: it
 * did not come; the lock is held in either case. */
bool mr_consumers_begin(struct mr_consumers *all, uint64_t until_ns);
/* Unlocks and keeps the turn; locks again. */
void mr_consumers_pause(struct mr_consumers *all);
void mr_consumers_resume(struct mr_consumers *all);
/* The turn, if this thread has it, is the next one's. Unlocks. */
void mr_consumers_end(struct mr_consumers *all);

/* For looking at what the lock guards. In a forked child, whose only thread this is, no one would
 * unlock what was locked: there it takes no lock. */
void mr_consumers_lock(const struct mr_loader *ld);
void mr_consumers_unlock(const struct mr_loader *ld);

#endif
