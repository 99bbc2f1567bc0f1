/* Measuring for bench streams: copy, multiply, copy back, over n inputs. */
#include "bench/bench.h"
#include "bench/stats.h"
#include "bench/streams_lab.h"

#include <math.h>
#include <string.h>

static int acquire(struct streams_lab *lab, enum mr_memory kind, float **out)
{
    void *ptr = NULL;
    int rc = mr_memory_acquire(lab->dev, kind, lab->bytes, &ptr);
    *out = ptr;
    return rc;
}

static void release(struct streams_lab *lab, enum mr_memory kind, float **at)
{
    if (*at)
        mr_memory_release(lab->dev, kind, *at, NULL);
    *at = NULL;
}

/* The streams and buffers of one way. */
static int arrange(struct streams_lab *lab, int n_slots, int n_streams)
{
    int rc = 0;
    for (lab->n_slots = 0; lab->n_slots < n_slots && rc == 0; lab->n_slots++) {
        rc = acquire(lab, MR_DEVICE, &lab->a[lab->n_slots]);
        if (rc == 0)
            rc = acquire(lab, MR_DEVICE, &lab->c[lab->n_slots]);
    }
    for (lab->n_streams = 0; lab->n_streams < n_streams && rc == 0; lab->n_streams++)
        rc = mr_stream_create(lab->dev, "streams", &lab->stream[lab->n_streams]);
    return rc;
}

static void disarrange(struct streams_lab *lab)
{
    for (int i = 0; i < lab->n_streams; i++) {
        mr_stream_destroy(lab->stream[i]);
        lab->stream[i] = NULL;
    }
    for (int i = 0; i < lab->n_slots; i++) {
        release(lab, MR_DEVICE, &lab->a[i]);
        release(lab, MR_DEVICE, &lab->c[i]);
    }
    lab->n_slots = lab->n_streams = 0;
    mr_memory_trim(lab->dev);
}

/* The first and the last input go through in pieces, the others whole: smaller products take longer in all. */
static void plan_steps(struct streams_lab *lab, int pieces)
{
    int n = (int)lab->o->n;
    for (int i = 0; i < n; i++)
        lab->first_step[i + 1] = lab->first_step[i] + (i == 0 || i == n - 1 ? pieces : 1);
}

static int input_of(const struct streams_lab *lab, int step)
{
    int i = 0;
    while (lab->first_step[i + 1] <= step)
        i++;
    return i;
}

/* One piece of one input: a block of its rows. */
static int work(struct streams_lab *lab, enum streams_engine engine, int step, int slot, struct mr_stream *stream)
{
    int i = input_of(lab, step);
    uint64_t size = lab->o->size, pieces = (uint64_t)(lab->first_step[i + 1] - lab->first_step[i]);
    uint64_t piece = (uint64_t)(step - lab->first_step[i]);
    uint64_t row = size * piece / pieces, rows = size * (piece + 1) / pieces - row;
    uint64_t at = row * size, bytes = rows * size * sizeof(float);
    struct mr_kernel_matmul m = {
        .n = size, .a = lab->a[slot] + at, .b = lab->weights, .c = lab->c[slot] + at, .rows = rows};
    if (engine == STREAMS_COMPUTE)
        return mr_launch(stream, "matmul_f32", &m, sizeof m);
    if (engine == STREAMS_H2D)
        return mr_copy_async(stream, lab->a[slot] + at, MR_DEVICE, lab->in[i] + at, MR_PINNED, bytes);
    return mr_copy_async(stream, lab->out[i] + at, MR_PINNED, m.c, MR_DEVICE, bytes);
}

/* Work of one engine. ordered: its end is recorded, for others to wait for; traced: it is timed. */
static int take_step(struct streams_lab *lab, enum streams_engine engine, int step, int slot, struct mr_stream *stream,
                     bool ordered, bool traced)
{
    int rc = traced ? mr_event_record(lab->mark[step][engine][BEGIN], stream) : 0;
    if (rc == 0)
        rc = work(lab, engine, step, slot, stream);
    if (rc == 0 && traced)
        rc = mr_event_record(lab->mark[step][engine][END], stream);
    if (rc == 0 && ordered)
        rc = mr_event_record(lab->done[step][engine], stream);
    return rc;
}

/*
 * One stream a direction of copies, and for the products as many as there are buffers: a product's waiting for its input is
 * over when the one before it ends, and takes no time of its own. A buffer's next rows wait until the products of those in
 * it are done, the next product's until they are copied back.
 */
enum { RING_H2D, RING_D2H, RING_COMPUTE, RING_STREAMS = RING_COMPUTE + STREAMS_RING_SLOTS };

/* Waits until an engine is done with the input that was in this buffer before input i. */
static int wait_before(struct streams_lab *lab, enum streams_engine engine, int i, struct mr_stream *stream)
{
    int rc = 0, before = i - STREAMS_RING_SLOTS;
    for (int step = before >= 0 ? lab->first_step[before] : 0; before >= 0 && rc == 0; step++) {
        if (step == lab->first_step[before + 1])
            break;
        rc = mr_stream_wait(stream, lab->done[step][engine]);
    }
    return rc;
}

static int enqueue_ring(struct streams_lab *lab, int step, bool traced)
{
    struct mr_stream *in = lab->stream[RING_H2D], *back = lab->stream[RING_D2H];
    struct mr_stream *product = lab->stream[RING_COMPUTE + step % STREAMS_RING_SLOTS];
    int i = input_of(lab, step), slot = i % STREAMS_RING_SLOTS;
    int rc = wait_before(lab, STREAMS_COMPUTE, i, in);
    if (rc == 0)
        rc = take_step(lab, STREAMS_H2D, step, slot, in, true, traced);
    if (rc == 0)
        rc = mr_stream_wait(product, lab->done[step][STREAMS_H2D]);
    if (rc == 0)
        rc = wait_before(lab, STREAMS_D2H, i, product);
    if (rc == 0)
        rc = take_step(lab, STREAMS_COMPUTE, step, slot, product, true, traced);
    if (rc == 0)
        rc = mr_stream_wait(back, lab->done[step][STREAMS_COMPUTE]);
    return rc < 0 ? rc : take_step(lab, STREAMS_D2H, step, slot, back, true, traced);
}

static int enqueue(struct streams_lab *lab, enum streams_way way, bool traced)
{
    int rc = 0;
    for (int i = 0; i < streams_steps(lab) && rc == 0; i++) {
        if (way == STREAMS_RING) {
            rc = enqueue_ring(lab, i, traced);
            continue;
        }
        int at = way == STREAMS_EACH ? i : 0;
        for (int engine = 0; engine < STREAMS_N_ENGINES && rc == 0; engine++)
            rc = take_step(lab, (enum streams_engine)engine, i, at, lab->stream[at], false, traced);
    }
    return rc;
}

static int synchronize(struct streams_lab *lab)
{
    int rc = 0;
    for (int i = 0; i < lab->n_streams; i++) {
        int one = mr_stream_synchronize(lab->stream[i]);
        rc = rc < 0 ? rc : one;
    }
    return rc;
}

/* Everything once. [out] ms: by the host's clock. */
static int run_once(struct streams_lab *lab, enum streams_way way, bool traced, double *ms)
{
    int rc = traced ? mr_event_record(lab->start, lab->stream[0]) : 0;
    uint64_t start = mr_time_ns();
    if (rc == 0)
        rc = enqueue(lab, way, traced);
    int done = synchronize(lab);
    *ms = (double)(mr_time_ns() - start) * 1e-6;
    return rc < 0 ? rc : done;
}

static int measure_way(struct streams_lab *lab, enum streams_way way, struct streams_result *out)
{
    struct streams_way_result *r = &out->way[way];
    static const int ring_slots = STREAMS_RING_SLOTS, ring_streams = RING_STREAMS;
    plan_steps(lab, way == STREAMS_RING ? (int)lab->o->pieces : 1);
    int n = (int)lab->o->n, slots = way == STREAMS_ONE ? 1 : way == STREAMS_EACH ? n : ring_slots;
    int rc = arrange(lab, slots, way == STREAMS_ONE ? 1 : way == STREAMS_EACH ? n : ring_streams);
    double ms[STREAMS_REPEATS];
    struct mr_memory_counters count;
    mr_memory_query(lab->dev, MR_DEVICE, &count);
    r->device_bytes = count.requested_bytes;
    for (int i = 0; i < n; i++)
        memset(lab->out[i], 0xff, lab->bytes);
    if (rc == 0) /* warms up */
        rc = run_once(lab, way, false, &ms[0]);
    if (rc == 0 && out->checked)
        rc = streams_check(lab, way);
    for (uint64_t k = 0; k < lab->o->repeats && rc == 0; k++)
        rc = run_once(lab, way, false, &ms[k]);
    if (rc == 0) {
        r->variation = stats_variation(ms, (int)lab->o->repeats);
        r->wall_ms = bench_median(ms, lab->o->repeats);
        rc = run_once(lab, way, true, &ms[0]);
        if (rc == 0)
            rc = streams_overlap(lab, r);
    }
    disarrange(lab);
    return rc;
}

/* All n of one kind, back to back behind the gate: the medians. */
static int measure_alone(struct streams_lab *lab, enum streams_engine engine, double *out)
{
    double ms[STREAMS_REPEATS];
    struct mr_stream *stream = lab->stream[0];
    struct mr_event *end = lab->mark[0][0][END];
    int rc = work(lab, engine, 0, 0, stream);
    if (rc == 0)
        rc = synchronize(lab);
    for (uint64_t k = 0; k < lab->o->repeats && rc == 0; k++) {
        int64_t ns = 0;
        rc = gate_close(&lab->gate);
        if (rc == 0)
            rc = gate_hold(&lab->gate, stream);
        if (rc == 0)
            rc = mr_event_record(lab->start, stream);
        for (int i = 0; i < (int)lab->o->n && rc == 0; i++)
            rc = work(lab, engine, i, 0, stream);
        if (rc == 0)
            rc = mr_event_record(end, stream);
        gate_open(&lab->gate);
        int done = synchronize(lab);
        rc = rc < 0 ? rc : done;
        if (rc == 0)
            rc = mr_event_elapsed(lab->start, end, &ns);
        ms[k] = (double)ns * 1e-6;
    }
    if (rc == 0)
        *out = bench_median(ms, lab->o->repeats);
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

static int make_events(struct streams_lab *lab, uint64_t step)
{
    int rc = 0;
    for (int k = 0; k < STREAMS_N_ENGINES && rc == 0; k++) {
        rc = mr_event_create(lab->dev, 1, &lab->mark[step][k][BEGIN]);
        if (rc == 0)
            rc = mr_event_create(lab->dev, 1, &lab->mark[step][k][END]);
        if (rc == 0)
            rc = mr_event_create(lab->dev, 0, &lab->done[step][k]);
    }
    return rc;
}

static int open_lab(struct streams_lab *lab)
{
    uint64_t n = lab->o->size * lab->o->size;
    int rc = gate_make(&lab->gate, lab->dev);
    if (rc == 0)
        rc = mr_event_create(lab->dev, 1, &lab->start);
    if (rc == 0)
        rc = acquire(lab, MR_PINNED, &lab->host_weights);
    if (rc == 0)
        rc = acquire(lab, MR_DEVICE, &lab->weights);
    if (rc == 0)
        fill(lab->host_weights, n, 0);
    for (uint64_t i = 0; i < lab->o->n && rc == 0; i++) {
        rc = acquire(lab, MR_PINNED, &lab->in[i]);
        if (rc == 0)
            rc = acquire(lab, MR_PINNED, &lab->out[i]);
        if (rc == 0)
            fill(lab->in[i], n, (uint32_t)i + 1);
    }
    for (uint64_t i = 0; i < lab->o->n + 2 * lab->o->pieces && rc == 0; i++)
        rc = make_events(lab, i);
    return rc;
}

static void close_lab(struct streams_lab *lab)
{
    disarrange(lab);
    for (uint64_t i = 0; i < lab->o->n; i++) {
        release(lab, MR_PINNED, &lab->in[i]);
        release(lab, MR_PINNED, &lab->out[i]);
    }
    for (uint64_t i = 0; i < lab->o->n + 2 * lab->o->pieces; i++)
        for (int k = 0; k < STREAMS_N_ENGINES; k++) {
            mr_event_destroy(lab->mark[i][k][BEGIN]);
            mr_event_destroy(lab->mark[i][k][END]);
            mr_event_destroy(lab->done[i][k]);
        }
    mr_event_destroy(lab->start);
    release(lab, MR_PINNED, &lab->host_weights);
    release(lab, MR_DEVICE, &lab->weights);
    gate_drop(&lab->gate);
}

static int measure_bound(struct streams_lab *lab, struct streams_result *out)
{
    int rc = arrange(lab, 1, 1);
    if (rc == 0)
        rc = mr_copy_async(lab->stream[0], lab->weights, MR_DEVICE, lab->host_weights, MR_PINNED, lab->bytes);
    for (int engine = 0; engine < STREAMS_N_ENGINES && rc == 0; engine++) {
        rc = measure_alone(lab, (enum streams_engine)engine, &out->alone_ms[engine]);
        out->bound_ms = fmax(out->bound_ms, out->alone_ms[engine]);
    }
    disarrange(lab);
    return rc;
}

int streams_measure(struct mr_device *dev, const struct streams_opts *o, struct streams_result *out)
{
    static struct streams_lab lab;
    lab = (struct streams_lab){.dev = dev, .o = o, .bytes = o->size * o->size * sizeof(float)};
    plan_steps(&lab, 1);
    int rc = mr_device_query(dev, &out->info);
    out->checked = out->info.pci_id[0] != 0; /* the simulated device multiplies nothing */
    if (rc == 0)
        rc = open_lab(&lab);
    if (rc == 0)
        rc = measure_bound(&lab, out);
    for (int way = 0; way < STREAMS_N_WAYS && rc == 0; way++)
        rc = cli_interrupted() ? mr_error_set(MR_ECANCELLED, "interrupted")
                               : measure_way(&lab, (enum streams_way)way, out);
    close_lab(&lab);
    return rc;
}
