/*
 * When batches were copied and used, by the device's clock.
 *
 * Timing costs some ten driver calls a batch. If batches come fast, only some are timed, in whole
 * bursts of neighbours: a batch's copy overlaps the use of the n_slots batches before it, so these
 * must be timed as well before its overlap counts. The first batches of a burst only serve those
 * that follow (`lead`).
 *
 * All of it is the shipper's, under ship.lock.
 */
#ifndef MR_LOADER_TIMES_H
#define MR_LOADER_TIMES_H

#include "base/base.h"

struct mr_loader;
struct mr_slot;
struct mr_slot_clock;
struct mr_loader_stats;

/* When a batch was copied and used, in ns after the loader's first event. */
struct mr_batch_times {
    int64_t copy_start, copy_end, use_start, use_end;
    bool
        lead; /* not all uses that may overlap its copy were timed: it only serves those after it */
};
#define MR_TIMES 4096 /* batches whose times are kept, the latest */

struct mr_times {
    struct mr_event *base;       /* time 0 */
    uint64_t base_ns;            /* the same by mr_time_ns */
    struct mr_batch_times *kept; /* ring of MR_TIMES */
    uint64_t n;                  /* kept so far */
    /* Which batches are timed. burst: the last decided on, at burst_ns; last_timed: the last timed.
     */
    uint64_t n_shipped, burst_batches, burst, burst_ns, last_timed;
    bool burst_timed[2]; /* of burst b: [b % 2] */
    bool burst_leads;    /* the last timed burst did not follow a timed one */
    _Atomic uint64_t copy_ns, used_ns, used_batches;
};

int mr_times_init(struct mr_loader *ld); /* after streams are created */
void mr_times_free(struct mr_loader *ld);
/* The events that time this batch, or NULL. [ship.lock] */
struct mr_slot_clock *mr_times_choose(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);
/* How long copies and use took, and for how long they overlapped, over the batches whose times are
 * kept. out->batches and elapsed_ns are set. */
void mr_times_overlap(struct mr_loader *ld, struct mr_loader_stats *out);

#endif
