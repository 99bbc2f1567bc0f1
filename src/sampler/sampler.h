/*
 * Samplers: functions from a position in an epoch to the index of a sample; or, batch samplers,
 * from the number of a batch in an epoch to its samples.
 *
 * A sampler is a const struct mr_sampler_ops in a file of its own: sequential, random, subset,
 * weighted, or the caller's. It has no cursor. map() of (epoch, position) can be called for any
 * position, in any order, from any thread, and always returns the same index for the same seed.
 * That is what makes batches independent of the number of workers, and lets a run resume without
 * replay.
 *
 * All ranks share one global order. struct mr_shard is the arithmetic that gives each rank every
 * world-th position of it. The loader asks the shard for global positions and the sampler for the
 * samples at these positions.
 */
#ifndef MR_SAMPLER_SAMPLER_H
#define MR_SAMPLER_SAMPLER_H

#include "base/base.h"
#include <millrace/sampler.h>

struct mr_sampler_ops {
    const char *name;
    size_t state_size;
    bool sequential;
    int (*open)(struct mr_sampler *s, const struct mr_sampler_opts *opts); /* sets length, text */
    void (*close)(struct mr_sampler *s);
    int (*map)(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
               uint64_t *out);
    /* Batch samplers have these instead of map. open sets max_batch. */
    int (*n_batches)(const struct mr_sampler *s, uint64_t epoch, uint64_t *out);
    int (*batch)(const struct mr_sampler *s, uint64_t epoch, uint64_t batch,
                 struct mr_batch_item *items);
    int (*fill)(const struct mr_sampler *s, uint64_t epoch, double *out); /* or NULL */
};

struct mr_sampler {
    const struct mr_sampler_ops *ops;
    void *state;
    uint64_t n_samples; /* number of samples in the data set */
    uint64_t length;    /* positions per epoch */
    uint64_t max_batch; /* of a batch sampler; else 0 */
    /* Of the packing sampler: rows of a batch, and elements of a row; else 0. */
    uint64_t rows, row_length;
    /* Of an order by blocks: samples of a block, and positions of a window; else 0. */
    uint64_t block, span;
    uint64_t nodes, ranks; /* if the blocks belong to nodes (nodes.h); else 0 */
    uint64_t seed;
    char text[192];
    bool unnamed; /* the text doesn't tell this order from others: a callback's, without a name */
};

extern const struct mr_sampler_ops mr_sampler_sequential, mr_sampler_random, mr_sampler_subset,
    mr_sampler_weighted, mr_sampler_custom, mr_sampler_custom_batches, mr_sampler_buckets,
    mr_sampler_pack;

/* Of an order by blocks: the window of a position, counted over all epochs. */
uint64_t mr_sampler_window(const struct mr_sampler *s, uint64_t epoch, uint64_t position);
/* How many of `world` ranks share a block: 1 if none does. */
uint64_t mr_sampler_sharers(const struct mr_sampler *s, uint64_t world);

#define MR_MOST_BATCH   (1ull << 24) /* samples of a batch */
#define MR_MOST_BATCHES (1ull << 40) /* of an epoch */

/*
 * The part of an epoch that one rank reads. Local position q of the part that starts at global
 * position `start` is global position start + q * world + rank. pad, exact: what happens to the
 * rest that `world` does not divide (enum mr_remainder); neither: it is left out. With pad,
 * positions past the end wrap to the start of the epoch.
 */
struct mr_shard {
    uint64_t length; /* of the epoch, for all ranks */
    uint64_t start;  /* global position where this part starts; 0 except after a resume */
    uint32_t rank, world;
    bool pad, exact;
};
uint64_t mr_shard_length(const struct mr_shard *shard); /* number of local positions */
/* The global position of local position q, not wrapped: with MR_REMAINDER_PAD it may be past the
 * end of the epoch. */
uint64_t mr_shard_global(const struct mr_shard *shard, uint64_t q);
/* The position in [0, length) of the sample at local position q: the global position, wrapped.
 * length must be >= 1. */
uint64_t mr_shard_position(const struct mr_shard *shard, uint64_t q);

/*
 * Reads a file of numbers: text (one per line; blank lines and # comments are skipped), or a
 * one-dimensional .npy of any integer or float type, detected by its first bytes. whole: true if
 * *out is an array of uint64_t and all numbers must be integers; false for double. [out] out: free
 * it with free(). Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, -errno or -ENOMEM.
 */
int mr_numbers_read(const char *path, bool whole, void **out, uint64_t *out_n);

/* A hash of n 8-byte words, for sampler texts. */
uint64_t mr_words_hash(const void *words, uint64_t n);

#endif
