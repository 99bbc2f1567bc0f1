/* When the sizes of bench batch-size end, and what memory holds. */
#include "bench/batch_grow.h"

#define GAIN     1.05
#define USE_MOST 0.9 /* of free memory: others need some, too */

bool batch_is_flat(const double *rates, int n)
{
    double best = 0;
    if (n < 3)
        return false;
    for (int i = 0; i < n - 2; i++)
        best = rates[i] > best ? rates[i] : best;
    double then = rates[n - 2] > best ? rates[n - 2] : best;
    return rates[n - 2] < GAIN * best && rates[n - 1] < GAIN * then;
}

double batch_largest(const uint64_t *size, const double *need, int n, double free_bytes,
                     double *per_sample)
{
    *per_sample = 0;
    if (n < 2 || free_bytes <= 0 || need[n - 2] <= 0) /* that one was left out */
        return 0;
    double more = need[n - 1] - need[n - 2];
    if (more <= 0)
        return 0;
    *per_sample = more / (double)(size[n - 1] - size[n - 2]);
    double left = USE_MOST * free_bytes - need[n - 1];
    double fits = (double)size[n - 1] + left / *per_sample;
    return fits > 0 ? fits : 0;
}

bool batch_fits(const uint64_t *size, const double *need, int n, double free_bytes)
{
    double per_sample, most = batch_largest(size, need, n, free_bytes, &per_sample);
    return most <= 0 || (double)size[n] <= most;
}
