/* Figures of repeated measurements. */
#ifndef CLI_BENCH_STATS_H
#define CLI_BENCH_STATS_H

#include <stdint.h>

/* Standard deviation over mean; 0 for less than two values. */
double stats_variation(const double *v, int n);

/*
 * Least squares of y = latency + x / rate with every point's relative error weighing the same, so
 * that small and large x count alike. [out] both, on success; latency is not negative. Returns 0,
 * -1 when there are less than two different x.
 */
int stats_fit(const double *x, const double *y, int n, double *out_latency, double *out_rate);

struct stats_span {
    double from, to;
};

/* Length of the union; sorts the spans. */
double stats_union(struct stats_span *spans, int n);

/* Length of what lies in both unions; sorts both. */
double stats_both(struct stats_span *a, int n_a, struct stats_span *b, int n_b);

#endif
