/*
 * What the process that opened a data set and its workers share: one memfd, with
 *
 *   a head      what the data set is, which workers there are, where they sleep
 *   jobs        runs of up to MR_JOB_ROWS samples: what is asked for, who makes it, what came of it
 *   rows        each job's memory for its samples' fields
 *
 * and behind these the slots of loaders: rows go there directly where nothing has to be done to
 * them first. The parent says for each field of each sample where it is to be written.
 *
 * A job's life. A thread of the parent takes a free one, fills it, and posts it: state POSTED,
 * owner 0, its number at the end of `queue`, or, if its samples were lost with a worker, its bit in
 * `urgent`. A worker that changes the owner from 0 to itself makes it. It writes the rows and the
 * results, and last the state: DONE. The thread that waits for that takes the rows and frees the
 * job.
 *
 * No step of a worker has to be followed by another one, so it may be killed at any instruction:
 * - between jobs it holds nothing;
 * - once it owns a job, the monitor, when it sees that the process has ended, sets the state of
 *   every POSTED job of that owner to LOST, and wakes those who wait for its jobs whatever their
 *   state. Who waited posts the samples again.
 * Workers own no counter. The queue's front and the urgent bits are hints where to look: jobs found
 * there may have an owner already, and a worker moves the front only past jobs that it saw taken.
 * Sleepers have a bit each, which the monitor clears when they die.
 *
 * The parent trusts nothing in here that a worker can write: lengths, codes and texts are checked,
 * and what a job is for is kept in memory of its own.
 */
#ifndef MR_DATASET_WORKERS_SHARED_H
#define MR_DATASET_WORKERS_SHARED_H

#include "base/base.h"
#include "base/futex.h"
#include <millrace/workers.h>

#define MR_JOB_ROWS     128
#define MR_MAX_JOBS     512
#define MR_WORKERS_MARK 0x6d72776b72303037ull /* which layout this is */
#define MR_JOB_QUEUE    (2 * MR_MAX_JOBS)     /* more than can be posted */
#define MR_JOB_NO_OWNER 0
#define MR_URGENT       UINT64_MAX
#define MR_JOB_IDLE     UINT32_MAX /* its owner while it is not posted: no worker can take it */

enum mr_job_state { MR_JOB_FREE, MR_JOB_POSTED, MR_JOB_DONE, MR_JOB_LOST };

/* A worker, by its number. */
struct mr_shared_worker {
    _Alignas(MR_CACHE_LINE) _Atomic int64_t pid; /* written by the parent when start returned */
    _Atomic uint32_t ready;                      /* init has returned 0 */
    _Atomic uint64_t n_made;                     /* samples of jobs that this process finished */
    /* Which process this is in its place, from 1; written by the parent before start. The first one
     * notes the signals that it blocks, as bits; others block the same: they are started by the
     * monitor, which blocks most. At first those of the thread that opens the data set. */
    _Atomic uint32_t n_started;
    _Atomic uint64_t blocked;
    _Atomic int32_t code; /* negative: what init returned; its text: */
    char text[MR_ERROR_BYTES];
};

/* A signal mask as bits: signal s is bit s - 1. */
uint64_t mr_signals_blocked(void);
void mr_signals_block(uint64_t bits);

struct mr_shared_head {
    uint64_t mark, bytes; /* of all */
    uint64_t jobs_at, job_bytes, rows_at, job_rows_bytes;
    uint64_t row_bytes;  /* of one sample: its fields one after the other */
    uint32_t rows_a_job; /* that have memory of their own */
    uint32_t n_jobs, n_workers;
    int64_t parent; /* its process */
    int32_t n_fields;
    uint64_t field_at[MR_MAX_FIELDS]; /* in a row */
    struct mr_spec field[MR_MAX_FIELDS];
    /* Changes with each post: what idle workers wait for. */
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t work;
    _Atomic uint32_t closed;
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t n_queued; /* ever: the parent's */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t front;    /* all jobs before it have been taken */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t urgent[MR_MAX_JOBS / 64];
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t asleep[MR_MAX_WORKER_PROCESSES / 64];
    _Alignas(MR_CACHE_LINE) _Atomic uint16_t queue[MR_JOB_QUEUE];
    struct mr_shared_worker worker[]; /* n_workers */
};

/* One sample of a job: what the parent asks for, */
struct mr_shared_row {
    uint64_t index, epoch, seed, position;
};

/* and what the worker answers. Apart, so that neither takes cache lines from the other. */
struct mr_shared_result {
    int32_t rc;
    uint16_t has_text;
    uint16_t has_dims; /* dimensions that are not the field's own: see mr_shared_dims() */
};

struct mr_shared_job {
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t owner; /* worker + 1 */
    _Atomic uint32_t state;   /* enum mr_job_state; the thread of the parent waits here */
    _Atomic uint32_t waiting; /* it does */
    uint32_t n;
    _Atomic uint64_t order;    /* its place in the queue, of all ever; MR_URGENT: in none */
    _Atomic uint64_t due;      /* of jobs in no queue: made before those of later runs */
    _Atomic uint64_t start_ns; /* when a worker took it; 0: none yet */
    uint64_t took_ns;
    struct mr_shared_row row[MR_JOB_ROWS];
    _Alignas(MR_CACHE_LINE) struct mr_shared_result result[MR_JOB_ROWS];
    char text[MR_JOB_ROWS][MR_ERROR_BYTES];  /* of errors */
    _Alignas(MR_CACHE_LINE) uint64_t tail[]; /* places, then dimensions: MR_JOB_ROWS x n_fields */
};

static inline uint64_t mr_shared_job_bytes(uint64_t n_fields)
{
    return sizeof(struct mr_shared_job) + MR_JOB_ROWS * n_fields * (1 + MR_MAX_RANK) * 8;
}

/* Where the fields of a job's sample are to be written, as offsets in the shared memory. */
static inline uint64_t *mr_shared_places(struct mr_shared_job *job, uint64_t n_fields, uint32_t i)
{
    return &job->tail[i * n_fields];
}

/* Their dimensions. */
static inline uint64_t *mr_shared_dims(struct mr_shared_job *job, uint64_t n_fields, uint32_t i)
{
    return &job->tail[n_fields * (MR_JOB_ROWS + (uint64_t)i * MR_MAX_RANK)];
}

static inline struct mr_shared_job *mr_shared_job(struct mr_shared_head *head, uint64_t jobs_at,
                                                  uint64_t job_bytes, uint32_t i)
{
    return (struct mr_shared_job *)((unsigned char *)head + jobs_at + i * job_bytes);
}

#endif
