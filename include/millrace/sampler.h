/*
 * Samplers: which sample stands at which position of an epoch.
 *
 * The order is a function, not a list: mr_sampler_map() gives the indices at any positions of any epoch, for the same
 * seed always the same, whatever the number of workers or processes. Ranks share the one global order: rank r of w takes
 * the positions p with p % w == r.
 *
 * Threads: a sampler may be used from several threads at once.
 */
#ifndef MILLRACE_SAMPLER_H
#define MILLRACE_SAMPLER_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_sampler;

enum mr_sampler_kind {
    MR_SAMPLER_SEQUENTIAL, /* 0, 1, 2, ... */
    MR_SAMPLER_RANDOM,     /* a permutation of all, another each epoch; O(1) memory (mr_permute) */
    MR_SAMPLER_SUBSET,     /* the given indices, in their order, or shuffled */
    MR_SAMPLER_WEIGHTED,   /* drawn by weight, with replacement (alias table: Vose, IEEE Trans. Softw. Eng. 17(9), 1991)
                              or without (Efraimidis and Spirakis, Inf. Process. Lett. 97(5), 2006) */
    MR_SAMPLER_CUSTOM,     /* a callback */
};

struct mr_sampler_opts {
    size_t size; /* of this struct: set by mr_sampler_opts_init() */
    enum mr_sampler_kind kind;
    uint64_t seed;
    int shuffle;             /* SUBSET: 1: another order each epoch */
    const uint64_t *indices; /* SUBSET: copied; each < the data set's length */
    uint64_t n_indices;
    const double *weights; /* WEIGHTED: one a sample, copied; finite, >= 0, at least one > 0 */
    uint64_t n_weights;
    int replacement; /* WEIGHTED: 1 (default): with */
    uint64_t
        n_draws; /* WEIGHTED: positions an epoch; 0: the data set's length (without replacement: at most the number of
                          positive weights) */
    /* CUSTOM: writes the indices at positions [position, position + count) of the epoch. Called from several threads at
     * once; must be a pure function of its arguments. Returns 0 or a negative error (mr_error_set). */
    int (*map)(void *user, uint64_t epoch, uint64_t position, uint64_t count, uint64_t *out_indices);
    void *user;
    uint64_t length; /* CUSTOM: positions an epoch */
};

MR_API void mr_sampler_opts_fill(struct mr_sampler_opts *opts, size_t size);
static inline void mr_sampler_opts_init(struct mr_sampler_opts *opts)
{
    mr_sampler_opts_fill(opts, sizeof *opts);
}

/* n_samples: the data set's length, >= 1. [out] out: on success; freed with mr_sampler_destroy().
 * Returns 0, MR_EOPTION, -ENOMEM. */
MR_API int mr_sampler_create(const struct mr_sampler_opts *opts, uint64_t n_samples, struct mr_sampler **out);

/*
 * The same from text: "sequential", "random", "subset:FILE[,shuffle]", "weighted:FILE[,replacement=0][,n=1000]".
 * FILE: one number a line (blank lines and # comments skipped), or a one-dimensional .npy file.
 * Returns 0, MR_EOPTION, MR_EFORMAT (names file and line), -errno.
 */
MR_API int mr_sampler_open(const char *text, uint64_t n_samples, uint64_t seed, struct mr_sampler **out);
MR_API void mr_sampler_destroy(struct mr_sampler *sampler);

/* Positions of one epoch, all ranks together. */
MR_API uint64_t mr_sampler_length(const struct mr_sampler *sampler);

/* "random(seed=7)": kind and parameters, as a state records them; large inputs (indices, weights) as a hash. */
MR_API const char *mr_sampler_text(const struct mr_sampler *sampler);

/* 1 when neighbouring positions hold neighbouring indices, so that reads can be joined. */
MR_API int mr_sampler_is_sequential(const struct mr_sampler *sampler);

/* The indices at positions [position, position + count) of an epoch; position + count <= mr_sampler_length().
 * Returns 0, or what a custom sampler's callback returned; MR_EOPTION when it gives an index out of range. */
MR_API int mr_sampler_map(const struct mr_sampler *sampler, uint64_t epoch, uint64_t position, uint64_t count,
                          uint64_t *out_indices);

#ifdef __cplusplus
}
#endif
#endif
