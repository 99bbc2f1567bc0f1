/*
 * Keyed random numbers for callbacks: the same numbers for the same sample, whatever the number of
 * workers, and after a resume.
 *
 *     struct mr_rng rng;
 *     mr_rng_init(&rng, context->seed, context->epoch, context->index, 0);
 *     uint64_t start = mr_rng_below(&rng, length - 512);
 *
 * The generator is Philox-4x32-10. The same key gives the same bits on every machine. It is not
 * suited to cryptography.
 *
 * Threads: a struct mr_rng belongs to one thread at a time. No function here blocks or fails. A
 * copy of a struct mr_rng continues like the original, also in a forked child.
 */
#ifndef MILLRACE_RANDOM_H
#define MILLRACE_RANDOM_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream of random numbers. Its members are the library's. */
struct mr_rng {
    uint32_t key[2], counter[4], word[4];
    uint32_t n_words; /* of word, not used yet */
};

/*
 * Starts the stream of one sample in one epoch.
 * [out] rng. seed, epoch, sample: usually those of struct mr_sample_context. stream: any number, so
 * that one sample can have several independent streams.
 */
MR_API void mr_rng_init(struct mr_rng *rng, uint64_t seed, uint64_t epoch, uint64_t sample,
                        uint64_t stream);

/* Starts the stream of an op of your own. [out] rng. random: the numbers that the op's apply
 * function was called with (struct mr_transform_fn). */
MR_API void mr_rng_init_op(struct mr_rng *rng, const uint32_t random[4]);

/* The next 32 or 64 random bits. */
MR_API uint32_t mr_rng_u32(struct mr_rng *rng);
MR_API uint64_t mr_rng_u64(struct mr_rng *rng);

/* The next number in [0, 1), a multiple of 2^-53. */
MR_API double mr_rng_uniform(struct mr_rng *rng);

/* The next integer in [0, n), each equally likely. n: 0 returns 0. */
MR_API uint64_t mr_rng_below(struct mr_rng *rng, uint64_t n);

/* The next number of a normal distribution with mean 0 and standard deviation 1. */
MR_API double mr_rng_normal(struct mr_rng *rng);

#ifdef __cplusplus
}
#endif
#endif
