/*
 * Unfinished batches: those before the place of a state that a resumed run has to make again.
 *
 * The place of a state is behind the batch with the highest number that was handed out. In order,
 * all batches before it were handed out, too. With in_order = 0 some were not: each is in some
 * slot, so there are never more of them than slots. Seen from the last released batch, batches that
 * are held are unfinished as well. A run that was resumed adds those of its state that it
 * has not come to yet, in order or not.
 */
#ifndef MR_LOADER_UNFINISHED_H
#define MR_LOADER_UNFINISHED_H

#include "base/base.h"

struct mr_loader;

/* Where a run stands. */
struct mr_standing {
    uint64_t next, bad;       /* the first batch behind all; bad samples before it */
    uint64_t epoch, position; /* of an iterable data set: where `next` begins */
    uint64_t *unfinished;     /* the numbers of those before, ascending */
    uint64_t n, n_reserved;   /* of them */
};

/* released: from the view of the last batch that was released. Returns 0, -ENOMEM. The caller frees
 * out->unfinished. */
int mr_standing_query(const struct mr_loader *ld, bool released, struct mr_standing *out);

#endif
