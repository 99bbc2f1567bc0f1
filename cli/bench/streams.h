/* What bench streams measures: streams.c and streams_pairs.c run, streams_look.c looks at what a
 * run was, cmd_bench_streams.c shows it. */
#ifndef CLI_BENCH_STREAMS_H
#define CLI_BENCH_STREAMS_H

#include "bench/latch.h"
#include "cli.h"

struct streams_opts {
    struct cli_common common;
    char *device, *plot;
    uint64_t n, size, repeats, pieces;
};

enum streams_way { STREAMS_ONE, STREAMS_EACH, STREAMS_RING, STREAMS_N_WAYS };
enum streams_engine { STREAMS_H2D, STREAMS_COMPUTE, STREAMS_D2H, STREAMS_N_ENGINES };

#define STREAMS_RING_SLOTS 3
#define STREAMS_MAX_N      256
#define STREAMS_MAX_PIECES 8
#define STREAMS_MAX_STEPS  (STREAMS_MAX_N + 2 * STREAMS_MAX_PIECES)
#define STREAMS_REPEATS    100

struct streams_way_result {
    double wall_ms,
        variation;    /* median, by the host's clock: from the first call until all is back */
    double traced_ms; /* of the run with events around everything: from the first to the last */
    double busy_ms[STREAMS_N_ENGINES]; /* union of the engine's intervals in that run */
    double under_compute_ms;           /* copies (either way) and compute at once */
    double both_copies_ms;             /* H2D and D2H at once */
    uint64_t device_bytes;             /* held for inputs, results and the weights */
};

enum { STREAMS_BEGIN, STREAMS_END };

struct streams {
    struct mr_device *dev;
    const struct streams_opts *o;
    double alone_ms[STREAMS_N_ENGINES]; /* all n of each kind with nothing else under way */
    double bound_ms;                    /* the longest of them: no order can be faster */
    bool checked;                       /* products are compared with the host's */
    uint64_t bytes;                     /* of one matrix */
    struct latch latch;
    float *in[STREAMS_MAX_N], *out[STREAMS_MAX_N]; /* page-locked */
    float *host_weights, *weights;
    float *pageable; /* one matrix */
    int n_slots, n_streams;
    /* Of each input; input i goes through in first_step[i + 1] - first_step[i] blocks of rows. */
    int first_step[STREAMS_MAX_N + 1];
    float *a[STREAMS_MAX_N], *c[STREAMS_MAX_N]; /* device */
    struct mr_stream *stream[STREAMS_MAX_N];
    struct mr_event *start;
    /* By step: those of a traced run, timed, and the ends that the ring's order hangs on. */
    struct mr_event *mark[STREAMS_MAX_STEPS][STREAMS_N_ENGINES][2];
    struct mr_event *done[STREAMS_MAX_STEPS][STREAMS_N_ENGINES];
};

static inline int streams_steps(const struct streams *s)
{
    return s->first_step[s->o->n];
}

/* streams.c: makes the inputs and measures the bound. Returns 0 or the library's error; close in
 * either case. */
int streams_open(struct streams *s, struct mr_device *dev, const struct mr_device_info *info,
                 const struct streams_opts *o);
void streams_close(struct streams *s);

/* One way: medians of wall times, and a traced run. Returns 0 or the library's error. */
int streams_measure(struct streams *s, enum streams_way way, struct streams_way_result *out);

/* The streams of one way, and buffers for a matrix and for a product. Disarrange in either case. */
int streams_arrange(struct streams *s, int n_slots, int n_streams);
void streams_disarrange(struct streams *s);

/* streams_pairs.c. Two things at a time. */
enum streams_pair {
    STREAMS_SAME_DIRECTION,
    STREAMS_BOTH_DIRECTIONS,
    STREAMS_COPY_PRODUCT,
    STREAMS_PAGEABLE_PRODUCT,
    STREAMS_PRODUCTS,
    STREAMS_SMALL_PRODUCTS,
    STREAMS_N_PAIRS
};

int streams_pageable_open(struct streams *s);
/* Both in one stream, and each in its own: medians. Returns 0 or the library's error. */
int streams_pair_measure(struct streams *s, enum streams_pair pair, double *one_ms, double *two_ms,
                         double *spread);
/* One copy to the device: medians of the times of its call and of the copy. Returns 0 or the error.
 */
int streams_call_measure(struct streams *s, bool pageable, double *call_us, double *copy_us);

/* streams_look.c. Overlap, after a traced run. Returns 0 or the library's error. */
int streams_overlap(struct streams *s, struct streams_way_result *out);

/* Compares elements of the products with the host's. Returns 0, MR_EDEVICE. */
int streams_check(const struct streams *s, enum streams_way way);

#endif
