/* What the parts of source.h share: source.c, source_order.c, source_open.c. */
#ifndef MR_LOADER_SOURCE_PRIVATE_H
#define MR_LOADER_SOURCE_PRIVATE_H

#include "loader/engine.h"
#include "loader/source.h"

struct mr_item_list {
    struct mr_item *first, *last;
    uint64_t n;
};

struct mr_source {
    struct mr_loader *ld;
    const struct mr_iterable_ops *ops;
    uint64_t keep; /* items in the shuffle buffer; 0: none */

    pthread_mutex_t lock; /* all that follows. ring.lock may be taken under it */
    pthread_cond_t changed;
    uint32_t n_waiting, n_reading;
    uint64_t reading_ns; /* since when */
    bool stopped;

    /* The pass. */
    uint64_t epoch, start; /* start: positions before it are skipped */
    bool begun;            /* rewound */
    bool ended;            /* there are no more items */
    uint32_t n_ended;      /* unordered: workers that got MR_END */
    uint64_t n_read, n_drawn, n_bad_in_a_row;
    struct mr_item **buffer;
    uint64_t n_buffered;
    struct mr_item *own; /* this rank's of the latest group, which is not whole yet */
    struct mr_item_list ready;

    /* Claims: the next run begins at this row of batch t. */
    uint64_t t, row, index, q; /* index: of the batch in its epoch; q: this rank's local position */
    uint64_t n_batches;        /* of this pass, so far */
    bool failed;               /* the last item in `ready` is the error that ends the run */
    bool over;

    struct mr_item *spare, *last_one; /* last_one: for an error without memory */
};

/* ---- source_order.c; with the lock held ---- */

/* An item without contents; NULL: no memory. */
struct mr_item *mr_source_spare(struct mr_source *s);
void mr_source_recycle(struct mr_source *s, struct mr_item *item);
/* The first of `ready`, or NULL. */
struct mr_item *mr_source_pop(struct mr_source *s);
/* An item that was read: its position comes of the order. */
void mr_source_push(struct mr_source *s, struct mr_item *item);
/* The calling thread's error, which ends the run, as the last item. item: a spare one, or NULL. */
void mr_source_push_error(struct mr_source *s, struct mr_item *item, int rc);
/* Empties the shuffle buffer. */
void mr_source_drain(struct mr_source *s);

/* ---- source.c ---- */

/* start: positions before it are skipped. */
void mr_source_begin_pass(struct mr_source *s, uint64_t epoch, uint64_t start);

#endif
