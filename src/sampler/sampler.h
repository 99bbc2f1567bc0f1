/*
 * The sampler vtable, and how ranks share one global order.
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
};

struct mr_sampler {
    const struct mr_sampler_ops *ops;
    void *state;
    uint64_t n_samples; /* of the data set */
    uint64_t length;    /* positions an epoch */
    uint64_t seed;
    char text[128];
};

extern const struct mr_sampler_ops mr_sampler_sequential, mr_sampler_random, mr_sampler_subset,
    mr_sampler_weighted, mr_sampler_custom;

/*
 * The part of an epoch that one rank sees. Local position q of the part that starts at global position `start` stands at
 * global position start + q * world + rank; with MR_REMAINDER_PAD, positions past the end wrap to the epoch's start.
 */
struct mr_shard {
    uint64_t length; /* of the epoch, all ranks */
    uint64_t start;  /* global position where this part starts; 0 but after a resume */
    uint32_t rank, world;
    bool pad;
};
uint64_t mr_shard_length(const struct mr_shard *shard); /* local positions */
/* Global position of local position q, unwrapped: with MR_REMAINDER_PAD it may be past the epoch's end. */
uint64_t mr_shard_global(const struct mr_shard *shard, uint64_t q);
/* The position in [0, length) whose sample local position q holds: the global one, wrapped. length >= 1. */
uint64_t mr_shard_position(const struct mr_shard *shard, uint64_t q);

/*
 * Reads a file of numbers: text (one a line; blank lines and # comments skipped), or a one-dimensional .npy of any integer
 * or float type, told by its first bytes.
 * whole: true: *out is an array of uint64_t and every number must be one; false: of double.
 * [out] out: for the caller to free(). Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, -errno, -ENOMEM.
 */
int mr_numbers_read(const char *path, bool whole, void **out, uint64_t *out_n);

/* A hash of n 8-byte words, for sampler texts. */
uint64_t mr_words_hash(const void *words, uint64_t n);

#endif
