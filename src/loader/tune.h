/*
 * Tuning: in the first seconds of a run, tries numbers of workers and batches ahead on the consumer
 * itself.
 *
 * A trial compares a setting with another one in four windows: A B B A, so that a drift of the
 * machine falls on both alike; where B is a third faster, A B is enough. Batches that
 * were ready before a window and were not made again do not count: that a store of them is used up
 * shows only later.
 * First more workers are tried, then more batches ahead, each doubled while that gains; then fewer
 * workers, by bisection, against the fastest setting. A consumer that hardly waits goes straight to
 * the last step. All runs in mr_loader_next(), under consumers.lock.
 */
#ifndef MR_LOADER_TUNE_H
#define MR_LOADER_TUNE_H

#include <stdbool.h>
#include <stdint.h>

struct mr_loader;

enum mr_tune_phase { MR_TUNE_BASE, MR_TUNE_WORKERS, MR_TUNE_PREFETCH, MR_TUNE_FEWER, MR_TUNE_DONE };

struct mr_tune_setting {
    uint32_t workers, prefetch;
};

struct mr_tune {
    enum mr_tune_phase phase;
    struct mr_tune_setting first, best;
    /* other: what is compared with the best; in MR_TUNE_FEWER with the top, the fastest. */
    struct mr_tune_setting other, top;
    uint32_t low;             /* workers that are too few */
    uint32_t window, n_tried; /* window: of the trial, 0 to 3 */
    uint32_t n_again;         /* trials of this setting that were too unsteady to judge */
    double rate[4];
    double first_rate, best_rate; /* samples/s */
    double gained;                /* what more of either has brought, as compared in turn */
    bool complete;                /* nothing was left to try */
    double waited;                /* the consumer's share of the base window */
    uint64_t begun_ns, ended_ns;  /* begun: the first batch */
    uint64_t skip;                /* batches that are still of the setting before */
    uint64_t ready;               /* batches, when this window began */
    uint64_t from_ns, from_wait_ns, batches, samples; /* of this window; from_ns 0: not begun */
};

/* A batch of so many samples was handed out. [consumers.lock] */
void mr_tune_batch(struct mr_loader *ld, uint64_t samples);

#endif
