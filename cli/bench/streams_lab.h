/* What the two halves of bench streams' measuring share: streams.c runs, streams_look.c looks at what came of it. */
#ifndef CLI_BENCH_STREAMS_LAB_H
#define CLI_BENCH_STREAMS_LAB_H

#include "bench/gate.h"
#include "bench/streams.h"

enum { BEGIN, END };

struct streams_lab {
    struct mr_device *dev;
    const struct streams_opts *o;
    uint64_t bytes; /* of one matrix */
    struct gate gate;
    float *in[STREAMS_MAX_N], *out[STREAMS_MAX_N]; /* page-locked */
    float *host_weights, *weights;
    int n_slots, n_streams;
    int first_step[STREAMS_MAX_N +
                   1]; /* of each input; input i goes through in first_step[i + 1] - first_step[i] blocks of rows */
    float *a[STREAMS_MAX_N], *c[STREAMS_MAX_N]; /* device */
    struct mr_stream *stream[STREAMS_MAX_N];
    struct mr_event *start;
    /* By step: those of a traced run, timed, and the ends that the ring's order hangs on. */
    struct mr_event *mark[STREAMS_MAX_STEPS][STREAMS_N_ENGINES][2];
    struct mr_event *done[STREAMS_MAX_STEPS][STREAMS_N_ENGINES];
};

static inline int streams_steps(const struct streams_lab *lab)
{
    return lab->first_step[lab->o->n];
}

/* Overlap, after a traced run. Returns 0 or the library's error. */
int streams_overlap(struct streams_lab *lab, struct streams_way_result *out);

/* Compares elements of the products with the host's. Returns 0, MR_EDEVICE. */
int streams_check(const struct streams_lab *lab, enum streams_way way);

#endif
