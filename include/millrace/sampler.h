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
 * Batch samplers (BATCHES, BUCKETS, PACK) choose whole batches of varying size instead: of about
 * the same number of tokens, of one length, or balanced by class. mr_sampler_batch() computes batch
 * b of an epoch. Ranks share batches: rank r of w takes the batches b with b % w == r; the loader's
 * `remainder` says what happens to the rest. docs/data.md says what else differs.
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
 * text: "sequential", "random", "random:block=1024[,window=16][,nodes=4,ranks=32]",
 * "subset:FILE[,shuffle]", "weighted:FILE[,replacement=0][,n=1000]".
 * docs/data.md describes FILE. n_samples: the data set's length, at least 1. seed: of the order.
 * [out] out: on success; free it with mr_sampler_destroy(). Reads FILE, so it may block.
 * Returns 0, MR_EOPTION, MR_EFORMAT (the text names file and line), -ENOMEM, -errno.
 */
MR_API int mr_sampler_open(const char *text, uint64_t n_samples, uint64_t seed,
                           struct mr_sampler **out);

enum mr_sampler_kind {
    MR_SAMPLER_SEQUENTIAL, /* 0, 1, 2, ... */
    MR_SAMPLER_RANDOM,     /* a new permutation each epoch, in O(1) memory (mr_permute()); with
                            * `block`, one that reads neighbours at about the same time */
    MR_SAMPLER_SUBSET,     /* the given indices, in their order or shuffled */
    /* Drawn by weight: with replacement by an alias table (Vose, IEEE Trans. Softw. Eng. 17(9),
     * 1991), or without (Efraimidis, Spirakis, Inf. Process. Lett. 97(5), 2006). */
    MR_SAMPLER_WEIGHTED,
    MR_SAMPLER_CUSTOM,  /* a callback */
    MR_SAMPLER_BATCHES, /* batches, by callbacks */
    /* Batches of samples of about the same length, of at most `max_tokens` tokens with padding:
     * windows of the random order are sorted by length and cut into batches, which are then
     * shuffled. */
    MR_SAMPLER_BUCKETS,
    /* Documents packed into rows of `row_length` elements, `rows` of them a batch: windows of the
     * random order by best-fit decreasing (Johnson and others, SIAM J. Comput. 3(4), 1974). */
    MR_SAMPLER_PACK,
};

/* A sample of a batch. */
struct mr_batch_item {
    uint64_t index; /* in the data set */
    /* Where packing puts it: row `row` of the batch has elements [from, from + count) of the
     * sample's first dimension. count 0: all of them. Else 0. */
    uint32_t row;
    uint32_t from, count;
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
     * characters without " and \. NULL: no name; a run that resumes with neither name nor version
     * logs a warning, as nothing tells its order from another one. */
    const char *name;
    uint64_t version; /* CUSTOM: in the text if not 0: change it when the order changes */

    /*
     * BATCHES: the number of batches in an epoch, 1 to 2^40; epochs may differ. 0, or a negative
     * error (mr_error_set()) as uint64_t, ends the run.
     * user, name and version are as for CUSTOM. Several threads call n_batches and batch at once;
     * both must be pure functions of their arguments.
     */
    uint64_t (*n_batches)(void *user, uint64_t epoch);
    /* BATCHES: writes the samples of a batch. items: space for max (= max_batch) of them, zeroed.
     * Each worker that makes samples of a batch calls it once. Returns how many there are, 1 to
     * max, or a negative error, which ends the run. */
    int (*batch)(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                 struct mr_batch_item *items);
    /* The most samples of a batch, 1 to 2^24: the loader's batches have space for so many. BUCKETS:
     * 0 (default): as many as max_tokens allows of the shortest. PACK: not used. */
    uint64_t max_batch;
    /* BUCKETS, PACK: of each sample, in tokens or any other unit; copied. PACK: of the first
     * dimension of the fields that are packed; samples of length 0 are left out. */
    const uint32_t *lengths;
    uint64_t n_lengths; /* the data set's length */
    /* BUCKETS: the most tokens of a batch, padding included: its number of samples times the length
     * of the longest. No sample may be longer. */
    uint64_t max_tokens;
    /* BUCKETS, PACK: samples that are sorted or packed together. More: less padding, less random. 0
     * (default): 8,192 or 1,024. RANDOM: see `block`. */
    uint64_t window;
    uint32_t row_length; /* PACK: elements of a row */
    uint32_t rows;       /* PACK: of a batch; an epoch's last batch may have fewer */
    /* PACK: the most documents of a row; 0 (default): as many of the shortest as a row has space
     * for. The loader has memory for rows * max_per_row documents a batch. */
    uint32_t max_per_row;
    int truncate; /* PACK: what is longer than a row is 0 (default): split, 1: cut off */
    /*
     * RANDOM: if not 0, the samples of a block: neighbours, in files or in one object of a store.
     * The blocks come in a random order; samples are shuffled within each `window` of them (0
     * (default): 16 blocks). A loader reads a block of a remote file by one request, where a random
     * order needs one for each sample; the system's cache serves most of a local one. Each of up to
     * 8 ranks that share blocks (see `nodes`) does so, and then reads every byte of them; more
     * ranks read sample by sample. The samples of a block are at most block * window positions
     * apart. The last, shorter block is in the last window.
     */
    uint64_t block;
    /* CUSTOM, BATCHES: called once, by mr_sampler_destroy(); not if the sampler was refused. NULL:
     * nothing to do. */
    void (*close)(void *user);
    /*
     * RANDOM, with `block`: the blocks belong to nodes, so that a node's disk cache has them in the
     * next epoch, and each block is read by one node. Rank r is on node r * nodes / ranks, and has
     * the positions p with p % ranks == r, as the loader's ranks do when its world is `ranks`.
     * Every sample is still in each epoch once. nodes == ranks: each rank has blocks of its own.
     * 0 (default), both: every rank reads all blocks. The order depends on both numbers.
     */
    uint32_t nodes, ranks;
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

/* The number of positions in one epoch, all ranks together. Of a batch sampler: the data set's
 * length. */
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
 * index out of range, or MR_EMISUSE for a batch sampler.
 */
MR_API int mr_sampler_map(const struct mr_sampler *sampler, uint64_t epoch, uint64_t position,
                          uint64_t count, uint64_t *out_indices);

/* ---- batch samplers ---- */

/* The most samples of a batch; 0: it is no batch sampler. */
MR_API uint64_t mr_sampler_max_batch(const struct mr_sampler *sampler);

/*
 * The number of batches in an epoch, all ranks together.
 * BUCKETS sorts the epoch when it is first asked for: O(n log window) time and 8 bytes a sample, in
 * one thread while others that need the same epoch wait. The two latest epochs are kept. PACK packs
 * it, in as much time, but keeps only the number of rows of each window, and the latest windows.
 * [out] out: on 0. Returns 0, MR_EMISUSE (no batch sampler), -ENOMEM, MR_ECALLBACK (the callback
 * gave none), or what the callback returned.
 */
MR_API int mr_sampler_batches(const struct mr_sampler *sampler, uint64_t epoch, uint64_t *out);

/*
 * Computes the samples of a batch.
 * batch: less than mr_sampler_batches(). items: space for max of them, at least
 * mr_sampler_max_batch(). [out] items: as many as it returns.
 * Returns the number of samples, 1 or more, MR_EMISUSE, -ENOMEM, MR_ECALLBACK (the callback gave no
 * sample or too many), MR_EOPTION (an index out of range), or what the callback returned.
 */
MR_API int mr_sampler_batch(const struct mr_sampler *sampler, uint64_t epoch, uint64_t batch,
                            struct mr_batch_item *items, uint64_t max);

/*
 * The share of an epoch's elements that is no padding. BUCKETS: if each batch is padded to its
 * longest sample. PACK: of its rows.
 * [out] out: on 0; above 0, at most 1. Returns 0, MR_EMISUSE (another kind), -ENOMEM.
 */
MR_API int mr_sampler_efficiency(const struct mr_sampler *sampler, uint64_t epoch, double *out);

#ifdef __cplusplus
}
#endif
#endif
