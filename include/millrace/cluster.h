/*
 * A model of many ranks in lock step, from what one of them measured: `millrace plan` in C.
 *
 *     struct mr_cluster_opts opts;
 *     mr_cluster_opts_init(&opts);
 *     opts.ranks = 512;
 *     opts.step_ns = 40e6;                          // measured on one GPU
 *     opts.make_ns = 25e6, opts.make_sigma = 0.5;   // its loader, alone
 *     struct mr_cluster_step step = {.size = sizeof step};
 *     mr_cluster_predict(&opts, &step);
 *
 * Each rank has a loader, which makes one batch after the other into a ring of `prefetch` slots; a
 * slot is free again at its step's end. A step begins on each rank when its batch is there, and the
 * sum over the ranks ends when the last one has come. Times of making and of computing are
 * lognormal, independent of each other. All ranks read through one store, which serves requests in
 * their order at a limited rate. Gradients are added up bucket by bucket while the backward pass
 * goes on. Not in the model: routes and congestion of networks, and failures.
 *
 * Threads: any. fork: a child may call everything. The same options give the same numbers. This is
 * part of libmillrace-train.
 */
#ifndef MILLRACE_CLUSTER_H
#define MILLRACE_CLUSTER_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Times of a batch are those of a rank's part of it. */
struct mr_cluster_opts {
    size_t size;       /* of this struct, set by mr_cluster_opts_init() */
    uint32_t ranks;    /* 1 to 2^20; default 1 */
    uint32_t per_node; /* ranks of a machine; default 8 */
    double step_ns;    /* computing, without waiting for data or sums; default 0 */
    double step_sigma; /* of its logarithm, 0 to 3; default 0 */
    double make_ns;    /* from batch to batch of a loader that nobody holds up; default 0 */
    double make_sigma; /* of its logarithm, 0 to 3; default 0 */
    uint32_t prefetch; /* batches, 1 to 1,024; default 4 */
    /* read for a batch, and what the store gives to all ranks together; 0 (default): no limit */
    double batch_bytes, store_bytes_per_s;
    double grad_bytes; /* that are added up in a step; default 0 */
    /* Of sums among the ranks of a machine, and between machines: the time of the smallest one, and
     * the bus bandwidth of large ones, as nccl-tests count it; 0 (default): no limit. */
    double node_alpha_ns, net_alpha_ns, node_bytes_per_s, net_bytes_per_s;
    double bucket_bytes;   /* default 25 MiB */
    double backward_share; /* of step_ns, in which sums are hidden, 0 to 1; default 2/3 */
    uint32_t steps;        /* to simulate, 1 to 10^6; default 1,000 */
    uint64_t seed;         /* default 0 */
};

/* Sets opts to the defaults. C and C++ call mr_cluster_opts_init(); see millrace.h. */
MR_API void mr_cluster_opts_fill(struct mr_cluster_opts *opts, size_t size);
static inline void mr_cluster_opts_init(struct mr_cluster_opts *opts)
{
    mr_cluster_opts_fill(opts, sizeof *opts);
}

/* A mean step; the four parts add up to step_ns. */
struct mr_cluster_step {
    size_t size;       /* of this struct, set by the caller */
    double step_ns;    /* from sum to sum */
    double compute_ns; /* opts.step_ns */
    double data_ns;    /* longer by batches that the slowest rank waits for */
    double spread_ns;  /* longer by ranks that do not compute equally fast; never below 0 */
    double sum_ns;     /* sums that the backward pass does not hide */
    double whole_sum_ns;
    double alone_ns;          /* the step of one rank with a store of its own */
    double efficiency;        /* alone_ns / step_ns */
    double store_bytes_per_s; /* read by all ranks together */
};

/*
 * Predicts the mean step. Takes about a second for 10,000 ranks.
 * [out] out: on success, all but size.
 * Returns 0, MR_EOPTION (a value outside its range, named), MR_EMISUSE (NULL, a wrong size),
 * -ENOMEM.
 */
MR_API int mr_cluster_predict(const struct mr_cluster_opts *opts, struct mr_cluster_step *out);

#ifdef __cplusplus
}
#endif
#endif
