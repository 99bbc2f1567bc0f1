/* A test of dependent step times: blocks, and permutations of them. */
#include "compare/noise.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

#define MOST_BLOCKS  20 /* more add little power and less independence */
#define LEAST_BLOCKS 8
#define FEW_BLOCKS   7    /* of fewer, not even the most extreme split has p well under 0.5% */
#define MOST_PERIOD  64   /* steps */
#define PERIODIC     0.5  /* correlation at the period */
#define BETTER       0.05 /* than a shorter period, which twice the period would be, too */
#define N_PERMUTED   999
#define MOST_LEFT    0.9 /* correlation of neighbouring blocks */

static double mean_of(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* The mean product of deviations at this distance. */
static double covariance(const double *x, uint64_t n, uint64_t lag)
{
    double mean = mean_of(x, n), sum = 0;
    for (uint64_t i = lag; i < n; i++)
        sum += (x[i] - mean) * (x[i - lag] - mean);
    return sum / (double)(n - lag);
}

/* After how many steps they repeat; 1: they do not. */
static uint64_t period_of(const double *x, uint64_t n)
{
    double best = 0, all = covariance(x, n, 0);
    uint64_t period = 1;
    for (uint64_t lag = 2; all > 0 && lag <= MR_MIN(n / LEAST_BLOCKS, MOST_PERIOD); lag++) {
        double r = covariance(x, n, lag) / all;
        if (r > best + BETTER) {
            best = r;
            period = lag;
        }
    }
    return best > MR_MAX(PERIODIC, 2 / sqrt((double)n)) ? period : 1;
}

static uint64_t block_of(const double *x, uint64_t n)
{
    uint64_t period = period_of(x, n), block = MR_MAX(2, (n + MOST_BLOCKS - 1) / MOST_BLOCKS);
    block = (block + period - 1) / period * period;
    return n / block < LEAST_BLOCKS ? MR_MAX(1, n / LEAST_BLOCKS) : block;
}

/* The first steps, which do not fill a block, are left out: they are the closest to warming up. */
static uint64_t cut(const double *x, uint64_t n, uint64_t block, double *means)
{
    uint64_t n_blocks = n / block;
    x += n - n_blocks * block;
    for (uint64_t i = 0; i < n_blocks; i++)
        means[i] = mean_of(x + i * block, block);
    return n_blocks;
}

/* The squared standard error of a mean; 0 where it is no more than rounding. */
static double error_of(const double *x, uint64_t n, double mean)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    double variance = sum / (double)(n - 1), least = 1e-12 * mean;
    return variance > least * least ? variance / (double)n : 0;
}

static double studentized(const double *x, uint64_t n_before, uint64_t n_after)
{
    const double *y = x + n_before;
    double a = mean_of(x, n_before), b = mean_of(y, n_after), difference = fabs(b - a);
    double error = error_of(x, n_before, a) + error_of(y, n_after, b);
    if (difference <= 1e-12 * MR_MAX(fabs(a), fabs(b)))
        return 0;
    return error > 0 ? difference / sqrt(error) : INFINITY;
}

/* By how much correlation between neighbouring blocks widens the standard error. Its estimate from
 * n blocks is low by 1 / n. */
static double widened(const double *x, uint64_t n_before, uint64_t n_after)
{
    const double *y = x + n_before;
    double all = covariance(x, n_before, 0) + covariance(y, n_after, 0);
    if (!(all > 0))
        return 1;
    double left = (covariance(x, n_before, 1) + covariance(y, n_after, 1)) / all +
                  1 / (double)MR_MIN(n_before, n_after);
    left = MR_MAX(0, MR_MIN(left, MOST_LEFT));
    return sqrt((1 + left) / (1 - left));
}

static void shuffle(double *x, uint64_t n, uint64_t *random)
{
    for (uint64_t i = n; i > 1; i--) {
        uint64_t k = mr_mix64(++*random) % i;
        double kept = x[i - 1];
        x[i - 1] = x[k];
        x[k] = kept;
    }
}

/* Leaves x in another order. */
static double permuted(double *x, uint64_t n_before, uint64_t n_after)
{
    double seen = studentized(x, n_before, n_after);
    uint64_t n_as_much = 0, random = 0;
    if (isfinite(seen))
        seen /= widened(x, n_before, n_after);
    for (int i = 0; i < N_PERMUTED; i++) {
        shuffle(x, n_before + n_after, &random);
        n_as_much += studentized(x, n_before, n_after) >= seen * (1 - 1e-9);
    }
    return (double)(n_as_much + 1) / (N_PERMUTED + 1); /* one of them is the order as it came */
}

/* Those alike have the mean of their ranks. */
static void rank(const double *x, uint64_t n, double *ranks)
{
    for (uint64_t i = 0; i < n; i++) {
        ranks[i] = 0;
        for (uint64_t k = 0; k < n; k++)
            ranks[i] += x[k] < x[i] ? 1 : x[k] == x[i] ? 0.5 : 0;
    }
}

/* Of both tests: twice the smaller p. Ranks that point the other way say nothing of the mean. */
static double both(double *x, uint64_t n_before, uint64_t n_after, double *ranks)
{
    rank(x, n_before + n_after, ranks);
    double by_mean = mean_of(x + n_before, n_after) - mean_of(x, n_before),
           by_rank = mean_of(ranks + n_before, n_after) - mean_of(ranks, n_before);
    bool agree = (by_mean > 0) == (by_rank > 0);
    double p = permuted(x, n_before, n_after),
           of_ranks = agree ? permuted(ranks, n_before, n_after) : 1;
    p = 2 * MR_MIN(p, of_ranks);
    return MR_MIN(1, p);
}

int mr_noise_test(const double *before, uint64_t n_before, const double *after, uint64_t n_after,
                  struct mr_noise *out)
{
    *out = (struct mr_noise){.p = 1};
    if (MR_MIN(n_before, n_after) < FEW_BLOCKS)
        return 0;
    out->block[0] = block_of(before, n_before);
    out->block[1] = block_of(after, n_after);
    uint64_t n = n_before / out->block[0] + n_after / out->block[1];
    double *means = malloc(2 * n * sizeof *means); /* and their ranks */
    if (!means)
        return mr_error_nomem("blocks of steps", 2 * n * sizeof *means);
    out->n_blocks[0] = cut(before, n_before, out->block[0], means);
    out->n_blocks[1] = cut(after, n_after, out->block[1], means + out->n_blocks[0]);
    out->known = MR_MIN(out->n_blocks[0], out->n_blocks[1]) >= FEW_BLOCKS;
    if (out->known)
        out->p = both(means, out->n_blocks[0], out->n_blocks[1], means + n);
    free(means);
    return 0;
}
