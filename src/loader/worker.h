/*
 * The workers: threads that claim runs from one shared counter and make their samples.
 *
 * A worker goes round: claim runs, submit and reap reads, make the samples whose bytes are there
 * and whose slots are open. It sleeps only if none of that is possible. Claims are handed out in
 * order, so some worker has the earliest unfinished run; its slot is the next to be consumed and
 * therefore open, and its reads are in flight: there is no deadlock.
 *
 * How many runs it keeps in flight is ahead.c's to decide. It begins with what suits a local disk
 * and grows while reads are waited for with a slot open, by Little's law: to work at its own pace a
 * worker needs latency / (its time for a sample) samples in flight.
 */
#ifndef MR_LOADER_WORKER_H
#define MR_LOADER_WORKER_H

#include "base/base.h"
#include "loader/blocked.h"
#include "loader/budget.h"
#include "loader/get.h"
#include "loader/merge.h"
#include "loader/run.h"
#include "loader/watch.h"
#include <millrace/loader.h>
#include <pthread.h>
#include <sched.h>

struct mr_slot;

/* How far a worker reads ahead. Its own, but for the atomics, which any thread reads. */
struct mr_ahead {
    _Atomic uint64_t runs;             /* in flight at most */
    _Atomic uint32_t depth;            /* reads in flight at most */
    _Atomic uint64_t latency_ns;       /* of reads: the shortest of the latest period */
    uint64_t reads;                    /* in flight at most, were there runs and depth for them */
    uint64_t low_ns, landed, since_ns; /* this period's; since 0: before the first one */
    uint64_t all_before;               /* of all workers, when it began */
    uint64_t busy_ns, samples;         /* made_ns and n_samples when it began */
    double best_ns;                    /* the shortest latency, slowly forgotten */
    double rate;                       /* reads landed a ns, before the latest trial */
    double last_rate;                  /* of the period before */
    double mean_rate;                  /* of the latest periods that were no trials */
    uint64_t reads_before;             /* that trial */
    uint64_t least_ns;                 /* of a period */
    uint32_t step;                     /* of growth */
    uint32_t patience, next_patience;  /* periods until the next trial */
    uint32_t n_slow;                   /* periods much slower than the mean */
    uint32_t n_queues;                 /* periods in which reads waited for each other */
    bool settles;                      /* this period is not judged */
    bool starved, trial, fewer;        /* fewer: the trial, or the next one, is of fewer reads */
};

struct mr_worker {
    _Alignas(2 * MR_CACHE_LINE) struct mr_loader *ld;
    uint32_t id;
    pthread_t thread;
    struct mr_reader *reader; /* NULL: nothing is read */

    /* Runs. */
    struct mr_run *run;        /* all it can have */
    struct mr_run **in_flight; /* ring, in the order they were claimed */
    struct mr_run **spare; /* the others, last used on top: only memory that is needed is touched */
    uint32_t first, n_runs, n_spare;
    uint32_t n_sent; /* runs from the first on whose reads were all submitted */
    struct mr_run_extent *run_extents;
    struct mr_run_sample *run_samples; /* all runs' parts; unused pages are not touched */
    struct mr_read *run_reads;
    bool *run_landed;
    unsigned char *run_buffers;
    uint64_t *order; /* for mapping: run_rows indices */
    struct mr_found found;
    struct mr_merge_block *merged; /* sizes.n_merged, each in one of its places; NULL: none */
    uint32_t next_merged;
    struct mr_ahead ahead;

    /* Claims. */
    bool no_more;
    bool held_back;   /* from a claim: it has its share of that batch */
    uint64_t lacking; /* from a claim: this batch's slot has no memory yet; UINT64_MAX: no */
    uint64_t claimed_batch, n_claimed; /* the last batch it claimed runs of, and how many */
    uint64_t n_samples;                /* made */
    uint64_t held_bytes;               /* of whole files that have landed */

    /* Memory for making samples. */
    void *scratch;                         /* the chain's */
    struct mr_decoder *decoder;            /* NULL: the data set needs none */
    unsigned char *decoded[MR_MAX_FIELDS]; /* by decode if a chain follows; pictures: NULL */
    unsigned char *row_buffer;             /* the largest row: for collating */

    struct mr_watch watch;
    struct mr_permit permit; /* in the budget */

    /* Its time. Atomics are written by this worker and read by any thread. */
    uint64_t lap_ns; /* up to when its time has been accounted for */
    uint64_t n_made; /* rounds that made samples: every few, one sample is timed */
    bool lengthy;    /* samples of the latest run took MR_BLOCKED_SAMPLE_NS or more */
    bool measure;    /* whether the timed sample blocks */
    struct mr_blocked_sums blocked;
    _Atomic uint64_t stage_ns[MR_N_STAGES];
    _Atomic uint64_t timed_decode_ns, timed_transform_ns; /* of the samples that were timed */
    _Atomic uint64_t direct_reads, direct_bytes;          /* by a backend, while making samples */
    uint64_t direct_ns;                                   /* of made_ns, since the last lap */
    _Atomic uint64_t made_ns;                 /* decode and transform together, all samples */
    _Atomic uint64_t permit_ns;               /* waited for its permit */
    _Atomic uint64_t parked_ns, parked_since; /* since: 0, it is not parked */
    _Atomic uint64_t life_ns;
    _Atomic uint64_t reads, read_bytes, in_flight_sum, in_flight_n;

    /* What the data set makes for each worker. */
    void *state;
    struct mr_error_kept entered; /* code < 0: it could not */
    struct mr_get get;
    uint64_t ended_pass; /* of a source: its epoch + 1 in which this worker got MR_END */
};

struct mr_workers {
    struct mr_worker *worker;
    uint32_t n, n_started;
    /* The processors nearest the device, for as many workers as there are; the others run anywhere.
     * n_near 0: all do. */
    cpu_set_t near;
    uint32_t n_near;
    _Atomic uint32_t n_active;                         /* the first so many claim runs (knobs.h) */
    _Atomic uint64_t n_landed;                         /* reads of remote files */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t next_run; /* the claims: all workers write it */
    _Atomic uint64_t newest_posted;                    /* see mr_due */
};

int mr_worker_init(struct mr_worker *w, struct mr_loader *ld, uint32_t id);
/* What a worker holds beside its runs: buffers for a sample's fields, the chain's scratch. Without
 * its decoder's memory: that is as large as the pictures that come. */
uint64_t mr_worker_bytes(const struct mr_loader *ld);
void mr_worker_free(struct mr_worker *w);
void *mr_worker_main(void *worker);

/* Makes sample i of a run into its row. timed: its decoding and transforming are timed. The slot is
 * open and the sample's reads have landed. */
void mr_sample_make(struct mr_worker *w, struct mr_run *run, uint32_t i, bool timed);
/* Makes a row of batch t again, on this thread and by the last backend, in a slot whose rows are
 * all made. */
void mr_sample_make_again(struct mr_worker *w, struct mr_slot *slot, uint64_t t, uint32_t at);

void mr_ahead_init(struct mr_worker *w);
/* n reads have landed, the shortest after low_ns. Grows the window when it has to. */
void mr_ahead_landed(struct mr_worker *w, uint32_t n, uint64_t low_ns, uint64_t now_ns);

#endif
