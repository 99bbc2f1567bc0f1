/*
 * Kept tables: what a sampler computes when it is first needed, such as the batches of an epoch,
 * and keeps the latest few of.
 *
 * A table is built by the first thread that asks for its key, without the lock, while others that
 * want the same one wait. One that is in use is not replaced: who needs a place then waits until
 * some table is released, so a thread holds one table of a kind at a time.
 */
#ifndef MR_SAMPLER_KEPT_H
#define MR_SAMPLER_KEPT_H

#include <pthread.h>
#include <stdint.h>

#define MR_KEPT_MOST 8

struct mr_kept_table {
    uint64_t epoch, part, last_use;
    void *table;
    uint32_t readers;
    enum { MR_KEPT_EMPTY, MR_KEPT_BUILDING, MR_KEPT_READY } state;
};

struct mr_kept {
    /* Guards all, but the table of a READY one with readers and of a BUILDING one. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t clock;
    uint32_t n;
    void (*destroy)(void *table);
    struct mr_kept_table slot[MR_KEPT_MOST];
};

/* n: tables to keep, at most MR_KEPT_MOST. destroy: frees one. Of a zeroed struct. */
void mr_kept_init(struct mr_kept *kept, uint32_t n, void (*destroy)(void *table));
void mr_kept_end(struct mr_kept *kept); /* nothing is in use; also of a zeroed struct */
/* The table of (epoch, part), built by this call if it is not kept. build returns 0 and a table, or
 * an error, which this returns. [out] out: in use until it is released. */
int mr_kept_acquire(struct mr_kept *kept, uint64_t epoch, uint64_t part,
                    int (*build)(const void *context, uint64_t epoch, uint64_t part, void **table),
                    const void *context, struct mr_kept_table **out);
void mr_kept_release(struct mr_kept *kept, struct mr_kept_table *table);

#endif
