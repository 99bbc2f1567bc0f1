/*
 * A latch in front of work on a device: what is enqueued behind it starts when the host opens it,
 * so that the time between two events is the device's alone and not that of submitting.
 */
#ifndef CLI_BENCH_LATCH_H
#define CLI_BENCH_LATCH_H

#include <millrace/millrace.h>
#include <stdatomic.h>

struct latch {
    struct mr_device *dev;
    _Atomic uint32_t *flag; /* page-locked */
    struct mr_stream *stream;
    struct mr_event *open;
};

/* Whether all of the pool's page-locked memory really is: a GPU's kernels must not touch what is
 * not, and copies of it would wait for the latch with the host. Returns 0, MR_ELIMIT. A simulated
 * device does not care. */
int latch_check_locked(struct mr_device *dev);

/* Functions return 0 or the library's error. */
int latch_create(struct latch *latch, struct mr_device *dev);
void latch_destroy(struct latch *latch); /* opens it; of a zeroed or failed one, too */
int latch_close(struct latch *latch);    /* what the streams get from now on waits ... */
int latch_hold(struct latch *latch,
               struct mr_stream *stream); /* ... when they have been given to this */
void latch_open(struct latch *latch);

#endif
