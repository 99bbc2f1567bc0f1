/*
 * Bad samples: noted by workers on their batch, judged by the consumer in delivery order.
 *
 * A worker that cannot make a sample hangs a note with the error's text on the slot. What happens
 * to the run is decided when the batch is handed out, lowest row first: so the same input gives the
 * same decision whatever the number of workers. Under MR_BAD_REPLACE the worker has put another
 * sample in the row's place (sample.c); under MR_BAD_SKIP collating leaves the row out. Notes then
 * move to the quarantine list. A fatal note is not a sample's fault (no memory, a failed device):
 * it ends the run whatever the policy.
 */
#ifndef MR_LOADER_BAD_H
#define MR_LOADER_BAD_H

#include "base/base.h"

struct mr_loader;
struct mr_slot;
struct mr_run_sample;

struct mr_bad {
    struct mr_bad *next;
    uint64_t index, epoch, position, offset;
    uint32_t row;
    int code;
    bool fatal; /* ends the run whatever the policy */
    const char *file;
    char text[];
};

/* The consumers'. [consumers.lock] */
struct mr_quarantine {
    struct mr_bad **listed;
    uint64_t n_listed, room;
    uint64_t n_bad, n_bad_before; /* before: from the state */
    _Atomic uint64_t n_counted;   /* n_bad, for other threads */
};

/* Notes a bad sample on its slot, which is open; takes the calling thread's error text. s NULL: it
 * is no sample's fault, but the batch's. */
void mr_bad_add(struct mr_loader *ld, struct mr_slot *slot, uint32_t row,
                const struct mr_run_sample *s, int code, bool fatal);
/* Moves a batch's bad samples to the quarantine list and applies policy and limits. Returns 0, or
 * the error that ends the run. */
int mr_bad_take(struct mr_loader *ld, struct mr_slot *slot);
/* Frees the list, and notes of batches that were not handed out. */
void mr_bad_free(struct mr_loader *ld);

#endif
