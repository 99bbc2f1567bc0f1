/*
 * Whether two lists of step times differ beyond noise.
 *
 * Steps depend on each other: workers deliver in turn, so that short and long steps alternate, and
 * clocks drift. So the test is of blocks: each list is cut into at most 20 runs of steps that
 * follow each other (Schmeiser: Batch size effects in the analysis of simulation output, Operations
 * Research 30, 1982), of a whole number of periods where steps have one. The difference of the
 * blocks' means over its standard error is compared with what random relabellings of the blocks
 * give: the studentized permutation test of Chung and Romano (Exact and asymptotically robust
 * permutation tests, Annals of Statistics 41, 2013). It needs no normal distribution, and no equal
 * spreads. So that one long step (a checkpoint, a last one that is cut short) does not hide what
 * all others say, the blocks' ranks are tested in the same way (Neubert and Brunner: A studentized
 * permutation test for the non-parametric Behrens-Fisher problem, Computational Statistics & Data
 * Analysis 51, 2007), and p is twice the smaller of both. What correlation is left between
 * neighbouring blocks widens the standard error (Zwiers and von Storch: Taking serial correlation
 * into account in tests of the mean, Journal of Climate 8, 1995).
 *
 *     struct mr_noise noise;
 *     mr_noise_test(before, n_before, after, n_after, &noise);
 *     if (noise.known && noise.p <= MR_NOISE_RATE)
 *         ...
 */
#ifndef MR_COMPARE_NOISE_H
#define MR_COMPARE_NOISE_H

#include <stdbool.h>
#include <stdint.h>

/* Pairs of one distribution that are called different. Correlation that lasts longer than a block
 * raises it. */
#define MR_NOISE_RATE 0.01

struct mr_noise {
    bool known;                     /* false: too few steps for any difference to be beyond noise */
    double p;                       /* two-sided */
    uint64_t n_blocks[2], block[2]; /* before, after: how many, and of how many steps */
};

/* The same answer for the same lists. Returns 0 or -ENOMEM. */
int mr_noise_test(const double *before, uint64_t n_before, const double *after, uint64_t n_after,
                  struct mr_noise *out);

#endif
