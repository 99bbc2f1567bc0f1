/*
 * The watch: what each worker does at this moment, for the text of a batch that is late.
 *
 * A worker notes each sample that it begins with one store to a line of its own. It releases the
 * time that was stored before: who sees a note sees no older time than its own. Only a consumer
 * whose patience ended reads the notes. The time beside a note is that of the worker's latest look
 * at the clock, which it takes a run; while samples are slow it takes one a sample, so that the
 * time is right where it matters.
 */
#ifndef MR_LOADER_WATCH_H
#define MR_LOADER_WATCH_H

#include "base/base.h"

struct mr_loader;
struct mr_worker;

enum mr_task {
    MR_TASK_NONE, /* it waits for a free slot, or has ended */
    MR_TASK_LOCATE,
    MR_TASK_READ,
    MR_TASK_DECODE,
    MR_TASK_TRANSFORM,
    MR_TASK_COMPLETE,
    MR_TASK_PERMIT, /* waits for its permit in the budget */
};

struct mr_watch {
    _Atomic uint64_t note;     /* batch, row and task, see mr_watch_note() */
    _Atomic uint64_t since_ns; /* when it began, or a little before */
    bool slow;                 /* the worker's: samples take so long that a clock is nothing */
};

#define MR_WATCH_BATCH_BITS 28 /* of the batch's number: enough to tell those in the ring apart */

static inline uint64_t mr_watch_pack(uint64_t t, uint32_t row, enum mr_task task)
{
    return t << (64 - MR_WATCH_BATCH_BITS) | (uint64_t)row << 4 | (uint64_t)task;
}

static inline void mr_watch_note(struct mr_watch *watch, uint64_t t, uint32_t row,
                                 enum mr_task task)
{
    atomic_store_explicit(&watch->note, mr_watch_pack(t, row, task), memory_order_release);
}

/* The same sample, another task. */
static inline void mr_watch_task(struct mr_watch *watch, enum mr_task task)
{
    uint64_t note = atomic_load_explicit(&watch->note, memory_order_relaxed);
    atomic_store_explicit(&watch->note, (note & ~15ull) | (uint64_t)task, memory_order_release);
}

static inline void mr_watch_since(struct mr_watch *watch, uint64_t ns)
{
    atomic_store_explicit(&watch->since_ns, ns, memory_order_relaxed);
}

/* Sets the error of the batch that the consumer waits for, after waiting for so long: which sample
 * is late, and who has it. Returns -ETIMEDOUT. */
int mr_watch_late(const struct mr_loader *ld, uint64_t waited_ns);

/* Writes to the log that closing waits for this worker, and what the worker is doing. */
void mr_watch_closing(const struct mr_loader *ld, const struct mr_worker *w);

#endif
