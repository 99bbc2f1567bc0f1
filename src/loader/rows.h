/*
 * Rows that wait for their batch.
 *
 * How large a varying field gets in a batch is known when all rows are made. Until then a row is
 * kept densely in its slot's pageable memory, which is handed out from the front (an atomic
 * addition) and is empty again when the batch has been collated. So a slot takes what its samples
 * take, not their bound. The memory is a list of chunks that grows on demand; chunks stay, so a
 * steady run allocates nothing.
 */
#ifndef MR_LOADER_ROWS_H
#define MR_LOADER_ROWS_H

#include "base/base.h"

#define MR_ROWS_ALIGNMENT 16 /* of a row: that of the largest element */

struct mr_rows_chunk;

struct mr_rows {
    struct mr_rows_chunk *_Atomic chunk; /* the one that is being filled */
    struct mr_rows_chunk *first;
    pthread_mutex_t lock; /* guards the list; `may` is called under it */
    uint64_t bytes;       /* [lock] of all chunks */
};

/* bytes: of the first chunk. On failure it is still to be destroyed. Returns 0, -ENOMEM. */
int mr_rows_create(struct mr_rows *rows, uint64_t bytes);
void mr_rows_destroy(struct mr_rows *rows); /* also one that is all zeros */
/* Memory for one row, aligned for every dtype. may: asked before a chunk is added. [out] out.
 * Returns 0, -ENOMEM, what `may` returned. Several threads at once. */
int mr_rows_take(struct mr_rows *rows, uint64_t bytes, int (*may)(void *user, uint64_t bytes),
                 void *user, unsigned char **out);
/* All rows are given up. One thread, while no other takes. */
void mr_rows_clear(struct mr_rows *rows);

#endif
