/*
 * Batches that other processes read: slots whose host halves are in shared memory. Needs none of
 * the loader's other headers.
 */
#ifndef MR_LOADER_SHARED_H
#define MR_LOADER_SHARED_H

#include "base/shared_memory.h"
#include <millrace/loader.h>

/* Where a batch's host half is in the file. */
struct mr_batch_place {
    uint32_t slot; /* its number: a slot stays where it is unless it grows */
    uint64_t offset, bytes;
    const unsigned char *host;
};

/* Says what slots are made in. Returns 0 or an error. */
int mr_loader_share(struct mr_loader *ld);
/* What slots are in. Returns 0; MR_EMISUSE: other processes cannot read the loader's batches. */
int mr_loader_shared(const struct mr_loader *ld, struct mr_shared_memory **out);
/* Of a held batch. Returns 0; -ENOMEM: there was no shared memory for its slot. */
int mr_batch_find(const struct mr_batch *batch, struct mr_batch_place *out);
/* Other processes read the slot of a held batch even after the loader is closed. slot: the
 * batch's. */
void mr_batch_keep(void *slot);
/* Whether there is no further batch: the next call says so, or why. */
bool mr_loader_is_over(struct mr_loader *ld);

#endif
