/*
 * Which of several ranks in lock step the others wait for, and why.
 *
 *     mr_step_log_create(world, &log);
 *     for (each step)
 *         mr_step_log_add(log, steps);             // what each rank did in it
 *     struct mr_straggler s = {.size = sizeof s};
 *     mr_step_log_query(log, &s);
 *     if (s.rank != MR_NO_RANK)
 *         printf("rank %u came last in %.0f%% of the steps\n", s.rank, 100 * s.last_share);
 *
 * A sum over the ranks makes all their steps equally long, so a step's length does not show who is
 * slow. But who comes last to the sum waits least in it: of each step that is the rank with the
 * least time in the sum, and it cost the others the median of these times less its own. Clocks of
 * different machines are never compared.
 *
 * A rank is named only where it comes last clearly more often than by chance, during most of the
 * run, and costs the others 5% of their time or more.
 *
 * Threads: one at a time. fork: a child has a copy. This is part of libmillrace-train; it does no
 * input or output.
 */
#ifndef MILLRACE_STRAGGLER_H
#define MILLRACE_STRAGGLER_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_NO_RANK UINT32_MAX

struct mr_step_log;

/* A rank's step, in ns: waiting for its batch, computing, in sums over the ranks. */
struct mr_rank_step {
    double data_ns, compute_ns, sum_ns;
};

/* Creates an empty log. world: ranks, 1 to 2^20. [out] out: on success; free it with
 * mr_step_log_destroy(). Returns 0, MR_EMISUSE, -ENOMEM. */
MR_API int mr_step_log_create(uint32_t world, struct mr_step_log **out);

/* Frees the log. NULL is allowed. */
MR_API void mr_step_log_destroy(struct mr_step_log *log);

/* Adds a step. steps: of each rank, `world` elements; times below 0 count as 0. Returns 0, or
 * MR_EMISUSE (NULL, or a time that is not finite: then nothing is added). */
MR_API int mr_step_log_add(struct mr_step_log *log, const struct mr_rank_step *steps);

/* Why a rank is late: its batches, or its computing. */
enum mr_straggler_cause { MR_LATE_NONE, MR_LATE_DATA, MR_LATE_COMPUTE };

struct mr_straggler {
    size_t size;    /* of this struct, set by the caller */
    uint64_t steps; /* added */
    double step_ns; /* mean, of all ranks */
    uint32_t rank;  /* that the others wait for; MR_NO_RANK: none, and then the rest is 0 */
    enum mr_straggler_cause cause;
    double last_share; /* of the steps, in which it came last; the rest is means of these */
    double cost_ns;    /* that the others waited for it in a step */
    double data_ns, others_data_ns; /* waiting for a batch: the rank, the mean of the others */
    double compute_ns, others_compute_ns;
};

/* Names the straggler. [out] out: on success, all but size. Returns 0, MR_EMISUSE. */
MR_API int mr_step_log_query(const struct mr_step_log *log, struct mr_straggler *out);

struct mr_rank_sums {
    size_t size;                        /* of this struct, set by the caller */
    double data_ns, compute_ns, sum_ns; /* over all steps */
    uint64_t last;                      /* steps in which it came last */
    double cost_ns;                     /* that the others waited for it in these, summed up */
};

/* Sums of one rank. [out] out: on success, all but size. Returns 0, MR_EMISUSE (NULL, no such
 * rank). */
MR_API int mr_step_log_get(const struct mr_step_log *log, uint32_t rank, struct mr_rank_sums *out);

#ifdef __cplusplus
}
#endif
#endif
