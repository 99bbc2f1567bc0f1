/* Measuring for bench streams: copy, multiply, copy back, over n inputs. */
#include "bench/streams.h"
#include "bench/bench.h"
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int acquire(struct streams *s, enum mr_memory kind, float **out)
{
    void *ptr = NULL;
    int rc = bench_acquire(s->dev, kind, s->bytes, &ptr);
    *out = ptr;
    return rc;
}

static void release(struct streams *s, enum mr_memory kind, float **at)
{
    if (*at)
        mr_memory_release(s->dev, kind, *at, NULL);
    *at = NULL;
}

/* The streams and buffers of one way. */
int streams_arrange(struct streams *s, int n_slots, int n_streams)
{
    int rc = 0;
    for (s->n_slots = 0; s->n_slots < n_slots && rc == 0; s->n_slots++) {
        rc = acquire(s, MR_DEVICE, &s->a[s->n_slots]);
        if (rc == 0)
            rc = acquire(s, MR_DEVICE, &s->c[s->n_slots]);
    }
    for (s->n_streams = 0; s->n_streams < n_streams && rc == 0; s->n_streams++)
        rc = mr_stream_create(s->dev, "streams", &s->stream[s->n_streams]);
    return rc;
}

void streams_disarrange(struct streams *s)
{
    for (int i = 0; i < s->n_streams; i++) {
        mr_stream_destroy(s->stream[i]);
        s->stream[i] = NULL;
    }
    for (int i = 0; i < s->n_slots; i++) {
        release(s, MR_DEVICE, &s->a[i]);
        release(s, MR_DEVICE, &s->c[i]);
    }
    s->n_slots = s->n_streams = 0;
    mr_memory_trim(s->dev);
}

/* The first and the last input go through in pieces, the others whole: smaller products take longer
 * in all. */
static void plan_steps(struct streams *s, int pieces)
{
    int n = (int)s->o->n;
    for (int i = 0; i < n; i++)
        s->first_step[i + 1] = s->first_step[i] + (i == 0 || i == n - 1 ? pieces : 1);
}

static int input_of(const struct streams *s, int step)
{
    int i = 0;
    while (s->first_step[i + 1] <= step)
        i++;
    return i;
}

/* One piece of one input: a block of its rows. */
static int work(struct streams *s, enum streams_engine engine, int step, int slot,
                struct mr_stream *stream)
{
    int i = input_of(s, step);
    uint64_t size = s->o->size, pieces = (uint64_t)(s->first_step[i + 1] - s->first_step[i]);
    uint64_t piece = (uint64_t)(step - s->first_step[i]);
    uint64_t row = size * piece / pieces, rows = size * (piece + 1) / pieces - row;
    uint64_t at = row * size, bytes = rows * size * sizeof(float);
    struct mr_kernel_matmul m = {
        .n = size, .a = s->a[slot] + at, .b = s->weights, .c = s->c[slot] + at, .rows = rows};
    if (engine == STREAMS_COMPUTE)
        return mr_launch(stream, "matmul_f32", &m, sizeof m);
    if (engine == STREAMS_H2D)
        return mr_copy_async(stream, s->a[slot] + at, MR_DEVICE, s->in[i] + at, MR_PINNED, bytes);
    return mr_copy_async(stream, s->out[i] + at, MR_PINNED, m.c, MR_DEVICE, bytes);
}

/* Work of one engine. ordered: its end is recorded, for others to wait for; traced: it is timed. */
static int take_step(struct streams *s, enum streams_engine engine, int step, int slot,
                     struct mr_stream *stream, bool ordered, bool traced)
{
    int rc = traced ? mr_event_record(s->mark[step][engine][STREAMS_BEGIN], stream) : 0;
    if (rc == 0)
        rc = work(s, engine, step, slot, stream);
    if (rc == 0 && traced)
        rc = mr_event_record(s->mark[step][engine][STREAMS_END], stream);
    if (rc == 0 && ordered)
        rc = mr_event_record(s->done[step][engine], stream);
    return rc;
}

/*
 * One stream a direction of copies, and for the products as many as there are buffers: a product's
 * waiting for its input is over when the one before it ends, and takes no time of its own. A
 * buffer's next rows wait until the products of those in it are done, the next product's until they
 * are copied back.
 */
enum { RING_H2D, RING_D2H, RING_COMPUTE, RING_STREAMS = RING_COMPUTE + STREAMS_RING_SLOTS };

/* Waits until an engine is done with the input that was in this buffer before input i. */
static int wait_before(struct streams *s, enum streams_engine engine, int i,
                       struct mr_stream *stream)
{
    int rc = 0, before = i - STREAMS_RING_SLOTS;
    for (int step = before >= 0 ? s->first_step[before] : 0; before >= 0 && rc == 0; step++) {
        if (step == s->first_step[before + 1])
            break;
        rc = mr_stream_wait(stream, s->done[step][engine]);
    }
    return rc;
}

static int enqueue_ring(struct streams *s, int step, bool traced)
{
    struct mr_stream *in = s->stream[RING_H2D], *back = s->stream[RING_D2H];
    struct mr_stream *product = s->stream[RING_COMPUTE + step % STREAMS_RING_SLOTS];
    int i = input_of(s, step), slot = i % STREAMS_RING_SLOTS;
    int rc = wait_before(s, STREAMS_COMPUTE, i, in);
    if (rc == 0)
        rc = take_step(s, STREAMS_H2D, step, slot, in, true, traced);
    if (rc == 0)
        rc = mr_stream_wait(product, s->done[step][STREAMS_H2D]);
    if (rc == 0)
        rc = wait_before(s, STREAMS_D2H, i, product);
    if (rc == 0)
        rc = take_step(s, STREAMS_COMPUTE, step, slot, product, true, traced);
    if (rc == 0)
        rc = mr_stream_wait(back, s->done[step][STREAMS_COMPUTE]);
    return rc < 0 ? rc : take_step(s, STREAMS_D2H, step, slot, back, true, traced);
}

static int enqueue(struct streams *s, enum streams_way way, bool traced)
{
    int rc = 0;
    for (int i = 0; i < streams_steps(s) && rc == 0; i++) {
        if (way == STREAMS_RING) {
            rc = enqueue_ring(s, i, traced);
            continue;
        }
        int at = way == STREAMS_EACH ? i : 0;
        for (int engine = 0; engine < STREAMS_N_ENGINES && rc == 0; engine++)
            rc = take_step(s, (enum streams_engine)engine, i, at, s->stream[at], false, traced);
    }
    return rc;
}

static int synchronize(struct streams *s)
{
    int rc = 0;
    for (int i = 0; i < s->n_streams; i++) {
        int one = mr_stream_synchronize(s->stream[i]);
        rc = rc < 0 ? rc : one;
    }
    return rc;
}

/* Everything once. [out] ms: by the host's clock. */
static int run_once(struct streams *s, enum streams_way way, bool traced, double *ms)
{
    int rc = traced ? mr_event_record(s->start, s->stream[0]) : 0;
    uint64_t start = mr_time_ns();
    if (rc == 0)
        rc = enqueue(s, way, traced);
    int done = synchronize(s);
    *ms = (double)(mr_time_ns() - start) * 1e-6;
    return rc < 0 ? rc : done;
}

int streams_measure(struct streams *s, enum streams_way way, struct streams_way_result *r)
{
    static const int ring_slots = STREAMS_RING_SLOTS, ring_streams = RING_STREAMS;
    plan_steps(s, way == STREAMS_RING ? (int)s->o->pieces : 1);
    int n = (int)s->o->n, slots = way == STREAMS_ONE ? 1 : way == STREAMS_EACH ? n : ring_slots;
    int rc = streams_arrange(s, slots,
                             way == STREAMS_ONE    ? 1
                             : way == STREAMS_EACH ? n
                                                   : ring_streams);
    double ms[STREAMS_REPEATS];
    struct mr_memory_counters count = {.size = sizeof count};
    mr_memory_query(s->dev, MR_DEVICE, &count);
    r->device_bytes = count.requested_bytes;
    for (int i = 0; i < n; i++)
        memset(s->out[i], 0xff, s->bytes);
    if (rc == 0) /* warms up */
        rc = run_once(s, way, false, &ms[0]);
    if (rc == 0 && s->checked)
        rc = streams_check(s, way);
    for (uint64_t k = 0; k < s->o->repeats && rc == 0; k++) {
        rc = bench_go_on();
        if (rc == 0)
            rc = run_once(s, way, false, &ms[k]);
    }
    if (rc == 0) {
        r->variation = stats_variation(ms, (int)s->o->repeats);
        r->wall_ms = bench_median(ms, s->o->repeats);
        rc = run_once(s, way, true, &ms[0]);
        if (rc == 0)
            rc = streams_overlap(s, r);
    }
    streams_disarrange(s);
    return rc;
}

/* All n of one kind, back to back behind the latch. The shortest repeat: it serves as a bound. */
static int measure_alone(struct streams *s, enum streams_engine engine, double *out)
{
    double least = INFINITY;
    struct mr_stream *stream = s->stream[0];
    struct mr_event *end = s->mark[0][0][STREAMS_END];
    int rc = work(s, engine, 0, 0, stream);
    if (rc == 0)
        rc = synchronize(s);
    for (uint64_t k = 0; k < s->o->repeats && rc == 0; k++) {
        int64_t ns = 0;
        rc = bench_go_on();
        if (rc == 0)
            rc = latch_close(&s->latch);
        if (rc == 0)
            rc = latch_hold(&s->latch, stream);
        if (rc == 0)
            rc = mr_event_record(s->start, stream);
        for (int i = 0; i < (int)s->o->n && rc == 0; i++)
            rc = work(s, engine, i, 0, stream);
        if (rc == 0)
            rc = mr_event_record(end, stream);
        latch_open(&s->latch);
        int done = synchronize(s);
        rc = rc < 0 ? rc : done;
        if (rc == 0)
            rc = mr_event_elapsed(s->start, end, &ns);
        least = fmin(least, (double)ns * 1e-6);
    }
    if (rc == 0)
        *out = least;
    return rc;
}

static void fill(float *to, uint64_t n, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (uint64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = (float)(int32_t)x * 0x1p-31f;
    }
}

static int make_events(struct streams *s, uint64_t step)
{
    int rc = 0;
    for (int k = 0; k < STREAMS_N_ENGINES && rc == 0; k++) {
        rc = mr_event_create(s->dev, 1, &s->mark[step][k][STREAMS_BEGIN]);
        if (rc == 0)
            rc = mr_event_create(s->dev, 1, &s->mark[step][k][STREAMS_END]);
        if (rc == 0)
            rc = mr_event_create(s->dev, 0, &s->done[step][k]);
    }
    return rc;
}

static int make_inputs(struct streams *s)
{
    uint64_t n = s->o->size * s->o->size;
    int rc = latch_create(&s->latch, s->dev);
    if (rc == 0)
        rc = mr_event_create(s->dev, 1, &s->start);
    if (rc == 0)
        rc = acquire(s, MR_PINNED, &s->host_weights);
    if (rc == 0)
        rc = acquire(s, MR_DEVICE, &s->weights);
    if (rc == 0)
        fill(s->host_weights, n, 0);
    for (uint64_t i = 0; i < s->o->n && rc == 0; i++) {
        rc = bench_go_on();
        if (rc == 0)
            rc = acquire(s, MR_PINNED, &s->in[i]);
        if (rc == 0)
            rc = acquire(s, MR_PINNED, &s->out[i]);
        if (rc == 0)
            fill(s->in[i], n, (uint32_t)i + 1);
    }
    for (uint64_t i = 0; i < s->o->n + 2 * s->o->pieces && rc == 0; i++)
        rc = make_events(s, i);
    return rc;
}

void streams_close(struct streams *s)
{
    streams_disarrange(s);
    for (uint64_t i = 0; i < s->o->n; i++) {
        release(s, MR_PINNED, &s->in[i]);
        release(s, MR_PINNED, &s->out[i]);
    }
    for (uint64_t i = 0; i < s->o->n + 2 * s->o->pieces; i++)
        for (int k = 0; k < STREAMS_N_ENGINES; k++) {
            mr_event_destroy(s->mark[i][k][STREAMS_BEGIN]);
            mr_event_destroy(s->mark[i][k][STREAMS_END]);
            mr_event_destroy(s->done[i][k]);
        }
    free(s->pageable);
    mr_event_destroy(s->start);
    release(s, MR_PINNED, &s->host_weights);
    release(s, MR_DEVICE, &s->weights);
    latch_destroy(&s->latch);
}

static int measure_bound(struct streams *s)
{
    int rc = streams_arrange(s, 1, 1);
    if (rc == 0)
        rc = mr_copy_async(s->stream[0], s->weights, MR_DEVICE, s->host_weights, MR_PINNED,
                           s->bytes);
    for (int engine = 0; engine < STREAMS_N_ENGINES && rc == 0; engine++) {
        rc = measure_alone(s, (enum streams_engine)engine, &s->alone_ms[engine]);
        s->bound_ms = fmax(s->bound_ms, s->alone_ms[engine]);
    }
    streams_disarrange(s);
    return rc;
}

int streams_open(struct streams *s, struct mr_device *dev, const struct mr_device_info *info,
                 const struct streams_opts *o)
{
    *s = (struct streams){.dev = dev, .o = o, .bytes = o->size * o->size * sizeof(float)};
    s->checked = info->pci_id[0] != 0; /* the simulated device multiplies nothing */
    plan_steps(s, 1);
    int rc = make_inputs(s);
    if (rc == 0)
        rc = streams_pageable_open(s);
    return rc < 0 ? rc : measure_bound(s);
}
