/* What a run of bench streams came to: overlap, and whether the products are right. */
#include "bench/stats.h"
#include "bench/streams.h"

#include <math.h>
#include <string.h>

static int read_spans(struct streams *s, enum streams_engine engine, struct stats_span *out)
{
    int64_t ns[2] = {0, 0};
    int rc = 0;
    for (int i = 0; i < streams_steps(s) && rc == 0; i++) {
        for (int end = STREAMS_BEGIN; end <= STREAMS_END && rc == 0; end++)
            rc = mr_event_elapsed(s->start, s->mark[i][engine][end], &ns[end]);
        out[i] =
            (struct stats_span){(double)ns[STREAMS_BEGIN] * 1e-6, (double)ns[STREAMS_END] * 1e-6};
    }
    return rc;
}

int streams_overlap(struct streams *s, struct streams_way_result *out)
{
    static struct stats_span spans[STREAMS_N_ENGINES][STREAMS_MAX_STEPS],
        copies[2 * STREAMS_MAX_STEPS];
    static struct stats_span own[STREAMS_MAX_STEPS];
    double first = 1e300, last = 0;
    int n = streams_steps(s), rc = 0;
    for (int engine = 0; engine < STREAMS_N_ENGINES && rc == 0; engine++) {
        rc = read_spans(s, (enum streams_engine)engine, spans[engine]);
        for (int i = 0; i < n; i++) {
            first = fmin(first, spans[engine][i].from);
            last = fmax(last, spans[engine][i].to);
        }
    }
    if (rc < 0)
        return rc;
    memcpy(copies, spans[STREAMS_H2D], (size_t)n * sizeof *copies);
    memcpy(copies + n, spans[STREAMS_D2H], (size_t)n * sizeof *copies);
    out->traced_ms = last - first;
    for (int engine = 0; engine < STREAMS_N_ENGINES;
         engine++) { /* joining spoils what it is given */
        memcpy(own, spans[engine], (size_t)n * sizeof *own);
        out->busy_ms[engine] = stats_union(own, n);
    }
    out->under_compute_ms = stats_both(copies, 2 * n, spans[STREAMS_COMPUTE], n);
    out->both_copies_ms = stats_both(spans[STREAMS_H2D], n, spans[STREAMS_D2H], n);
    return 0;
}

static double product_at(const struct streams *s, uint64_t i, uint64_t row, uint64_t column)
{
    double sum = 0;
    for (uint64_t k = 0; k < s->o->size; k++)
        sum += (double)s->in[i][row * s->o->size + k] *
               (double)s->host_weights[k * s->o->size + column];
    return sum;
}

/* A few elements of each product. Sums of n terms of random sign grow as the root of n, and so do
 * their errors. */
int streams_check(const struct streams *s, enum streams_way way)
{
    uint64_t size = s->o->size;
    double allowed = 1e-5 * sqrt((double)size);
    for (uint64_t i = 0; i < s->o->n; i++) {
        for (uint64_t k = 0; k < 4; k++) {
            uint64_t row = (i * 7 + k * 131) % size, column = (i * 13 + k * 311) % size;
            double want = product_at(s, i, row, column),
                   got = (double)s->out[i][row * size + column];
            if (!(fabs(got - want) <= allowed))
                return mr_error_set(
                    MR_EDEVICE, "way %d: element %llu,%llu of product %llu is %g and should be %g",
                    (int)way, (unsigned long long)row, (unsigned long long)column,
                    (unsigned long long)i, got, want);
        }
    }
    return 0;
}
