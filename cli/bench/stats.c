/* Figures of repeated measurements. */
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>

double stats_variation(const double *v, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += v[i];
    if (n < 2 || sum <= 0)
        return 0;
    double mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    return sqrt(squares / (n - 1)) / mean;
}

/* The slope alone, through the latency given. */
static double slope_from(const double *x, const double *y, int n, double latency)
{
    double above = 0, below = 0;
    for (int i = 0; i < n; i++) {
        double w = 1 / (y[i] * y[i]);
        above += w * x[i] * (y[i] - latency);
        below += w * x[i] * x[i];
    }
    return above / below;
}

int stats_fit(const double *x, const double *y, int n, double *out_latency, double *out_rate)
{
    double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < n; i++) {
        double w = 1 / (y[i] * y[i]);
        s += w;
        sx += w * x[i];
        sy += w * y[i];
        sxx += w * x[i] * x[i];
        sxy += w * x[i] * y[i];
    }
    double det = s * sxx - sx * sx;
    if (n < 2 || !(det > 1e-9 * s * sxx))
        return -1;
    double slope = (s * sxy - sx * sy) / det, latency = (sy - slope * sx) / s;
    if (latency < 0) {
        latency = 0;
        slope = slope_from(x, y, n, 0);
    }
    if (!(slope > 0))
        return -1;
    *out_latency = latency;
    *out_rate = 1 / slope;
    return 0;
}

static int earlier(const void *a, const void *b)
{
    double x = ((const struct stats_span *)a)->from, y = ((const struct stats_span *)b)->from;
    return (x > y) - (x < y);
}

/* Sorts and joins those that touch. Returns how many are left. */
static int join(struct stats_span *spans, int n)
{
    int last = 0;
    if (n == 0)
        return 0;
    qsort(spans, (size_t)n, sizeof *spans, earlier);
    for (int i = 1; i < n; i++) {
        if (spans[i].from > spans[last].to)
            spans[++last] = spans[i];
        else if (spans[i].to > spans[last].to)
            spans[last].to = spans[i].to;
    }
    return last + 1;
}

double stats_union(struct stats_span *spans, int n)
{
    double length = 0;
    n = join(spans, n);
    for (int i = 0; i < n; i++)
        length += spans[i].to - spans[i].from;
    return length;
}

double stats_both(struct stats_span *a, int n_a, struct stats_span *b, int n_b)
{
    double length = 0;
    n_a = join(a, n_a);
    n_b = join(b, n_b);
    for (int i = 0, j = 0; i < n_a && j < n_b;) {
        double from = fmax(a[i].from, b[j].from), to = fmin(a[i].to, b[j].to);
        length += to > from ? to - from : 0;
        if (a[i].to < b[j].to)
            i++;
        else
            j++;
    }
    return length;
}
