/*
 * Samplers: the order of samples in an epoch.
 *
 *     struct mr_sampler *sampler;
 *     mr_sampler_open("random", mr_dataset_length(dataset), 42, &sampler);
 *     mr_loader_open(dataset, sampler, NULL, NULL, &opts, &loader);
 *     ...
 *     mr_loader_close(loader);
 *     mr_sampler_destroy(sampler);
 *
 * The order is a function, not a list: mr_sampler_map() computes the indices at any positions of
 * any epoch. The same seed gives the same order for any number of workers and ranks. Ranks share
 * one global order: rank r of w takes the positions p with p % w == r.
 *
 * Threads: a sampler may be used by several threads and loaders at once. It must outlive the
 * loaders.
 * fork: a child may use, and must destroy, the samplers that it inherits.
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

/*
 * Creates a sampler from text.
 * text: "sequential", "random", "subset:FILE[,shuffle]", "weighted:FILE[,replacement=0][,n=1000]".
 * docs/data.md describes FILE. n_samples: the data set's length, at least 1. seed: of the order.
 * [out] out: on success; free it with mr_sampler_destroy(). Reads FILE, so it may block.
 * Returns 0, MR_EOPTION, MR_EFORMAT (the text names file and line), -ENOMEM, -errno.
 */
MR_API int mr_sampler_open(const char *text, uint64_t n_samples, uint64_t seed,
                           struct mr_sampler **out);

enum mr_sampler_kind {
    MR_SAMPLER_SEQUENTIAL, /* 0, 1, 2, ... */
    MR_SAMPLER_RANDOM,     /* a new permutation each epoch, in O(1) memory (mr_permute()) */
    MR_SAMPLER_SUBSET,     /* the given indices, in their order or shuffled */
    /* Drawn by weight: with replacement by an alias table (Vose, IEEE Trans. Softw. Eng. 17(9),
     * 1991), or without (Efraimidis, Spirakis, Inf. Process. Lett. 97(5), 2006). */
    MR_SAMPLER_WEIGHTED,
    MR_SAMPLER_CUSTOM, /* a callback */
};

struct mr_sampler_opts {
    size_t size; /* of this struct, set by mr_sampler_opts_init() */
    enum mr_sampler_kind kind;
    uint64_t seed;
    int shuffle;             /* SUBSET: 1: a new order each epoch */
    const uint64_t *indices; /* SUBSET: each less than the data set's length; copied */
    uint64_t n_indices;
    const double *weights; /* WEIGHTED: one per sample, finite, >= 0, one or more > 0; copied */
    uint64_t n_weights;
    int replacement; /* WEIGHTED: 1 (default): with replacement */
    /* WEIGHTED: positions in an epoch. 0: the data set's length. Without replacement it is at most
     * the number of positive weights. */
    uint64_t n_draws;
    /* CUSTOM: writes the indices at positions [position, position + count) of an epoch. Several
     * threads call it at once; it must be a pure function of its arguments. Returns 0, or a
     * negative error (mr_error_set()). */
    int (*map)(void *user, uint64_t epoch, uint64_t position, uint64_t count,
               uint64_t *out_indices);
    void *user;
    uint64_t length; /* CUSTOM: positions in an epoch */
    /* CUSTOM: in the sampler's text, so that saved states know the order: 1 to 63 printable ASCII
     * characters without " and \. NULL: no name. */
    const char *name;
    uint64_t version; /* CUSTOM: in the text if not 0: change it when the order changes */
};

/* Sets opts to the defaults. C and C++ call mr_sampler_opts_init(); see millrace.h. */
MR_API void mr_sampler_opts_fill(struct mr_sampler_opts *opts, size_t size);
static inline void mr_sampler_opts_init(struct mr_sampler_opts *opts)
{
    mr_sampler_opts_fill(opts, sizeof *opts);
}

/*
 * Creates a sampler from a struct.
 * n_samples: the data set's length, at least 1. [out] out: on success; free it with
 * mr_sampler_destroy(). Returns 0, MR_EOPTION, MR_EMISUSE (a wrong opts.size), -ENOMEM.
 */
MR_API int mr_sampler_create(const struct mr_sampler_opts *opts, uint64_t n_samples,
                             struct mr_sampler **out);

/* Frees a sampler. No loader may still use it. NULL is allowed. */
MR_API void mr_sampler_destroy(struct mr_sampler *sampler);

/* The number of positions in one epoch, all ranks together. */
MR_API uint64_t mr_sampler_length(const struct mr_sampler *sampler);

/* Kind and parameters as saved states record them: "random(seed=7)", or of a callback
 * "custom(balanced,version=2,length=1000,seed=7)". Indices and weights are given as a hash.
 * Owned by the sampler. */
MR_API const char *mr_sampler_text(const struct mr_sampler *sampler);

/* 1 if neighboring positions hold neighboring indices, so that reads can be merged; else 0. */
MR_API int mr_sampler_is_sequential(const struct mr_sampler *sampler);

/*
 * Computes the indices at positions [position, position + count) of an epoch.
 * position + count: at most mr_sampler_length(). [out] out_indices: count indices.
 * Returns 0, or for a custom sampler what its callback returned, or MR_EOPTION when that gave an
 * index out of range.
 */
MR_API int mr_sampler_map(const struct mr_sampler *sampler, uint64_t epoch, uint64_t position,
                          uint64_t count, uint64_t *out_indices);

#ifdef __cplusplus
}
#endif
#endif
