/* Two things at a time, in one stream and in two; and how long a copy's call blocks the host. */
#include "bench/bench.h"
#include "bench/stats.h"
#include "bench/streams.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 8, FEW_ROWS = 16 }; /* of each of the two; a small product has 1/16 of the rows */

enum thing { COPY_IN, COPY_IN_PAGEABLE, COPY_BACK, PRODUCT, SMALL_PRODUCT };

static const struct {
    enum thing a, b;
} pairs[STREAMS_N_PAIRS] = {
    [STREAMS_SAME_DIRECTION] = {COPY_IN, COPY_IN},
    [STREAMS_BOTH_DIRECTIONS] = {COPY_IN, COPY_BACK},
    [STREAMS_COPY_PRODUCT] = {COPY_IN, PRODUCT},
    [STREAMS_PAGEABLE_PRODUCT] = {COPY_IN_PAGEABLE, PRODUCT},
    [STREAMS_PRODUCTS] = {PRODUCT, PRODUCT},
    [STREAMS_SMALL_PRODUCTS] = {SMALL_PRODUCT, SMALL_PRODUCT},
};

/* side: which of the two; each has buffers of its own. */
static int begin(struct streams *s, enum thing what, int side, struct mr_stream *stream)
{
    int i = side % (int)s->o->n;
    uint64_t rows = what == SMALL_PRODUCT ? (s->o->size + FEW_ROWS - 1) / FEW_ROWS : s->o->size;
    struct mr_kernel_matmul m = {
        .n = s->o->size, .a = s->a[2 + side], .b = s->weights, .c = s->c[2 + side], .rows = rows};
    switch (what) {
    case COPY_IN:
        return mr_copy_async(stream, s->a[side], MR_DEVICE, s->in[i], MR_PINNED, s->bytes);
    case COPY_IN_PAGEABLE:
        return mr_copy_async(stream, s->a[side], MR_DEVICE, s->pageable, MR_PAGEABLE, s->bytes);
    case COPY_BACK:
        return mr_copy_async(stream, s->out[i], MR_PINNED, s->c[side], MR_DEVICE, s->bytes);
    default:
        return mr_launch(stream, "matmul_f32", &m, sizeof m);
    }
}

/* n_streams: 1 or 2. By the host's clock, submitting included. */
static int run_pair(struct streams *s, enum streams_pair pair, int n_streams, double *ms)
{
    int rc = bench_go_on();
    uint64_t start = mr_time_ns();
    for (int i = 0; i < ITEMS && rc == 0; i++) {
        rc = begin(s, pairs[pair].a, 0, s->stream[0]);
        if (rc == 0)
            rc = begin(s, pairs[pair].b, 1, s->stream[n_streams - 1]);
    }
    for (int k = 0; k < 2; k++) {
        int done = mr_stream_synchronize(s->stream[k]);
        rc = rc < 0 ? rc : done;
    }
    *ms = (double)(mr_time_ns() - start) * 1e-6;
    return rc;
}

int streams_pair_measure(struct streams *s, enum streams_pair pair, double *one_ms, double *two_ms,
                         double *spread)
{
    double one[STREAMS_REPEATS], two[STREAMS_REPEATS], unused;
    int rc = streams_arrange(s, 4, 2);
    if (rc == 0) /* warms up */
        rc = run_pair(s, pair, 2, &unused);
    for (uint64_t k = 0; k < s->o->repeats && rc == 0; k++) {
        rc = run_pair(s, pair, 1, &one[k]);
        if (rc == 0)
            rc = run_pair(s, pair, 2, &two[k]);
    }
    streams_disarrange(s);
    if (rc < 0)
        return rc;
    *spread =
        fmax(stats_variation(one, (int)s->o->repeats), stats_variation(two, (int)s->o->repeats));
    *one_ms = bench_median(one, s->o->repeats);
    *two_ms = bench_median(two, s->o->repeats);
    return 0;
}

int streams_call_measure(struct streams *s, bool pageable, double *call_us, double *copy_us)
{
    double call[STREAMS_REPEATS], copy[STREAMS_REPEATS];
    int rc = streams_arrange(s, 4, 2);
    for (int64_t k = -1; k < (int64_t)s->o->repeats && rc == 0; k++) { /* -1 warms up */
        uint64_t start = mr_time_ns();
        rc = begin(s, pageable ? COPY_IN_PAGEABLE : COPY_IN, 0, s->stream[0]);
        uint64_t returned = mr_time_ns();
        if (rc == 0)
            rc = mr_stream_synchronize(s->stream[0]);
        if (k < 0)
            continue;
        call[k] = (double)(returned - start) * 1e-3;
        copy[k] = (double)(mr_time_ns() - start) * 1e-3;
    }
    streams_disarrange(s);
    if (rc < 0)
        return rc;
    *call_us = bench_median(call, s->o->repeats);
    *copy_us = bench_median(copy, s->o->repeats);
    return 0;
}

int streams_pageable_open(struct streams *s)
{
    s->pageable = malloc(s->bytes);
    if (!s->pageable)
        return mr_error_set(-ENOMEM, "bench streams: no memory for a pageable matrix");
    memcpy(s->pageable, s->in[0], s->bytes);
    return 0;
}
