/*
 * Iterable data sets as the engine sees them: samples come one after the other.
 *
 * A format with mr_dataset_ops.iterable has neither locate() nor get(). The loader
 * (loader/source.h) calls next() for one item after the other, and decode() makes a sample of an
 * item on any thread: its only input is the item's block of bytes, whose layout is the format's
 * own.
 */
#ifndef MR_DATASET_ITERABLE_H
#define MR_DATASET_ITERABLE_H

#include "dataset/dataset.h"

/* A sample between its source and its row. */
struct mr_item {
    /* The format's: written by next(). */
    unsigned char *data; /* `bytes` of them; mr_item_reserve() makes space */
    uint64_t bytes;
    int status; /* negative: it is a bad sample, whose text next() has set */

    /* The loader's. */
    uint64_t space;
    uint64_t index, position; /* its number in the pass; its place in the order */
    bool fatal;               /* it is no sample, but the error that ends the run */
    char *error;              /* the text of a negative status; NULL: no memory for it */
    struct mr_item *next;
};

/* What an iterable format does. Calls come from workers; next() from one at a time unless
 * ds->unordered. */
struct mr_iterable_ops {
    /* Begins the pass of an epoch. Not called after the first pass if ds->once. Returns 0 or the
     * error that ends the run. */
    int (*rewind)(const struct mr_dataset *ds, uint64_t epoch);
    /* Reads the next item. Returns 0, also for a bad sample (item->status); MR_END; or the error
     * that ends the run. */
    int (*next)(const struct mr_dataset *ds, const struct mr_sample_context *context,
                struct mr_item *item);
    /* Makes a next() that blocks return soon, and later ones at once, until resume(). Any thread.
     */
    void (*stop)(const struct mr_dataset *ds);
    void (*resume)(const struct mr_dataset *ds);
};

/* Makes space for n bytes in all, keeping the `bytes` that are there. Returns 0 or -ENOMEM. */
int mr_item_reserve(struct mr_item *item, uint64_t n);
void mr_item_destroy(struct mr_item *item); /* NULL is allowed */

/* Fails with MR_EMISUSE if samples of ds cannot be read by their index. */
int mr_dataset_check_random(const struct mr_dataset *ds);

#endif
