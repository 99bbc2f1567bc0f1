/*
 * How long a worker blocks while it decodes a sample.
 *
 * Time off the processor is the wall time less the thread's CPU time. It counts as blocked only if
 * the thread gave up the processor itself at least as often as the kernel took it away: on a busy
 * host a thread that computes is off the processor, too. The four system calls take some 2 us, so
 * only samples that take longer than MR_BLOCKED_SAMPLE_NS are measured, at most one of a run.
 */
#ifndef MR_LOADER_BLOCKED_H
#define MR_LOADER_BLOCKED_H

#include "base/base.h"

#define MR_BLOCKED_SAMPLE_NS 10000u

struct mr_blocked {
    uint64_t cpu_ns;
    long gave_up, taken; /* context switches */
};

/* A worker's sums, of the samples that were measured. Any thread reads them. */
struct mr_blocked_sums {
    _Atomic uint64_t n, wall_ns, blocked_ns;
};

/* The calling thread, now. */
void mr_blocked_begin(struct mr_blocked *out);
/* Adds what n samples took since, as one sample's share of it. Same thread. */
void mr_blocked_end(const struct mr_blocked *begin, uint64_t wall_ns, uint32_t n,
                    struct mr_blocked_sums *sums);

#endif
