/*
 * The gate: who may call a loader, and how closing waits for those who are in a call.
 *
 * A loader serves the process that opened it, and all of its threads but its own workers: a
 * callback that waited for the batch that it makes, or closed the loader that it runs in, would
 * wait for ever. Calls are counted while they are in; the loader itself counts as one until it is
 * closed. Who brings the count to 0 wakes the thread that closes.
 */
#ifndef MR_LOADER_GATE_H
#define MR_LOADER_GATE_H

#include "base/base.h"
#include <semaphore.h>

struct mr_loader;

struct mr_gate {
    struct mr_process process;
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t n_inside; /* calls, and 1 while it is not closed */
    _Atomic bool closing;
    sem_t empty;
};

void mr_gate_init(struct mr_gate *gate);
void mr_gate_destroy(struct mr_gate *gate);
/* Before and after a call that uses the loader. enter: 0, to be followed by a leave, MR_EMISUSE, or
 * MR_ECANCELLED while the loader is being closed. call: its name. */
int mr_gate_enter(struct mr_loader *ld, const char *call);
void mr_gate_leave(struct mr_loader *ld);
/* Lets no one in any more, cancels the run and waits until all have left. 0, or MR_EMISUSE: this
 * thread may not close it. */
int mr_gate_close(struct mr_loader *ld);

/* The calling thread is a worker of this loader from now on. */
void mr_gate_worker(const struct mr_loader *ld);

#endif
