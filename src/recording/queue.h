/*
 * How many launches are queued ahead of a device, by stream.
 *
 * The depth at a launch is the number of operations that its stream was given before and has not
 * finished when the call begins: at 0 the launch finds the stream empty. An operation waits in the
 * queue from its call's return to the end of the operation before it on its stream; where none
 * waits, the queue is empty. What the way to the device takes is no waiting.
 */
#ifndef MR_RECORDING_QUEUE_H
#define MR_RECORDING_QUEUE_H

#include "recording/path.h"

struct mr_queue {
    uint64_t n, n_empty; /* launches in look->in; those that found the stream empty */
    uint64_t min, median, max;
    uint64_t waiting_ns; /* of look->in: some operation waits */
};

/* [out] out: one for each of streams->n, to be freed by the caller; waiting: empty before: when an
 * operation of any stream waits, in look->in. Returns 0 or -ENOMEM. */
int mr_queues_find(const struct mr_look *look, const struct mr_streams *streams,
                   struct mr_queue **out, struct mr_intervals *waiting);

#endif
