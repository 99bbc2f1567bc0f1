/* Runs a loader to its end and keeps what it delivered: for tests that compare runs. */
#ifndef TEST_RUN_LOADER_H
#define TEST_RUN_LOADER_H

#include "base/base.h"
#include <millrace/millrace.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* One delivered row. */
struct row {
    uint64_t epoch, position, index, hash, batch, length;
};

struct run {
    struct row *row;
    uint64_t n, cap, batches;
    int rc;          /* what the last mr_loader_next() returned */
    char error[512]; /* its text when negative */
    char state[1024];
    struct mr_loader_stats stats; /* at the end */
};

struct run_config {
    const char *dataset, *sampler, *chain, *device;
    struct mr_dataset *ds; /* instead of dataset */
    struct mr_loader_opts opts;
    uint64_t sampler_seed;
    uint64_t stop_after; /* batches; 0: to the end */
    uint32_t hold;       /* batches that are held before the oldest is read and released */
};

static inline struct run_config run_config(const char *dataset)
{
    struct run_config c = {.dataset = dataset, .sampler = "sequential", .device = "cpu"};
    mr_loader_opts_init(&c.opts);
    c.opts.workers = 2;
    return c;
}

#define must(call)                                                                                 \
    do {                                                                                           \
        int must_rc = (int)(call);                                                                 \
        if (must_rc < 0)                                                                           \
            fail_msg("%s: %d: %s", #call, must_rc, mr_last_error());                               \
    } while (0)

static inline void run_add_batch(struct run *run, const struct mr_batch *b,
                                 const unsigned char *const data[])
{
    for (uint64_t r = 0; r < b->n; r++) {
        if (run->n == run->cap) {
            run->cap = run->cap ? 2 * run->cap : 1024;
            run->row = realloc(run->row, run->cap * sizeof *run->row);
            assert_non_null(run->row);
        }
        struct row row = {.epoch = b->epoch,
                          .position = b->positions[r],
                          .index = b->indices[r],
                          .batch = b->index,
                          .hash = MR_HASH_START,
                          .length = b->field[0].lengths ? b->field[0].lengths[r] : 0};
        for (int f = 0; f < b->n_fields; f++) {
            uint64_t bytes = b->field[f].bytes / b->n, at = r * bytes;
            if (b->field[f].offsets) {
                uint64_t total = b->field[f].offsets[b->n],
                         item = total ? b->field[f].bytes / total : 0;
                at = b->field[f].offsets[r] * item;
                bytes = (b->field[f].offsets[r + 1] - b->field[f].offsets[r]) * item;
            }
            row.hash = mr_hash(row.hash, data[f] + at, bytes);
        }
        run->row[run->n++] = row;
    }
    run->batches++;
}

/* Copies a batch back from a device that is not the host. */
static inline void run_take(struct run *run, struct mr_device *dev, struct mr_stream *stream,
                            const struct mr_batch *b)
{
    const unsigned char *data[MR_MAX_FIELDS];
    unsigned char *back[MR_MAX_FIELDS] = {0};
    struct mr_device_info info = {.size = sizeof info};
    must(mr_device_query(dev, &info));
    for (int f = 0; f < b->n_fields; f++) {
        data[f] = b->field[f].data;
        if (info.unified)
            continue;
        back[f] = malloc(b->field[f].bytes + 1);
        bool copied = b->field[f].data != b->field[f].host;
        must(mr_copy_async(stream, back[f], MR_PAGEABLE, b->field[f].data,
                           copied ? MR_DEVICE : MR_PINNED, b->field[f].bytes));
        must(mr_stream_synchronize(stream));
        data[f] = back[f];
    }
    run_add_batch(run, b, data);
    for (int f = 0; f < b->n_fields; f++)
        free(back[f]);
}

/* Reads and releases the oldest of n held batches. */
static inline void run_release(struct run *run, struct mr_loader *ld, struct mr_device *dev,
                               struct mr_stream *stream, struct mr_batch *held, uint32_t *n)
{
    run_take(run, dev, stream, &held[0]);
    must(mr_loader_release(ld, &held[0], stream));
    memmove(&held[0], &held[1], --*n * sizeof *held);
}

static inline struct run run_loader(const struct run_config *c)
{
    struct run run = {0};
    struct mr_dataset *ds = c->ds;
    struct mr_sampler *sampler = NULL;
    struct mr_transform *chain = NULL;
    struct mr_device *dev = NULL;
    struct mr_stream *stream = NULL;
    struct mr_loader *ld = NULL;
    if (!ds)
        must(mr_dataset_open(c->dataset, &ds));
    must(mr_sampler_open(c->sampler, mr_dataset_length(ds), c->sampler_seed, &sampler));
    if (c->chain) {
        must(mr_transform_create(&chain));
        must(mr_transform_add(chain, c->chain));
    }
    must(mr_device_open(c->device, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    run.rc = mr_loader_open(ds, sampler, chain, dev, &c->opts, &ld);
    struct mr_batch *held = calloc(c->hold + 1, sizeof *held);
    for (uint32_t i = 0; i <= c->hold; i++)
        held[i].size = sizeof *held;
    uint32_t n = 0;
    while (run.rc >= 0 && (c->stop_after == 0 || run.batches < c->stop_after) &&
           (run.rc = mr_loader_next(ld, stream, &held[n])) > 0)
        if (++n > c->hold)
            run_release(&run, ld, dev, stream, held, &n);
    if (run.rc < 0)
        snprintf(run.error, sizeof run.error, "%s", mr_last_error());
    while (n > 0)
        run_release(&run, ld, dev, stream, held, &n);
    free(held);
    if (ld) {
        must(mr_loader_state(ld, run.state, sizeof run.state));
        run.stats.size = sizeof run.stats;
        must(mr_loader_stats(ld, &run.stats));
    }
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    if (!c->ds)
        mr_dataset_close(ds);
    return run;
}

static inline void run_free(struct run *run)
{
    free(run->row);
    *run = (struct run){0};
}

/* What run_loader() makes of a row, by reading the sample alone. */
static inline uint64_t run_hash_sample(const struct mr_dataset *ds, uint64_t index)
{
    unsigned char memory[MR_MAX_FIELDS][4096];
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], hash = MR_HASH_START;
    for (int f = 0; f < mr_dataset_fields(ds); f++)
        row[f] = memory[f];
    must(mr_dataset_read(ds, index, row, dim));
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        uint64_t bytes = mr_dtype_size(spec->dtype);
        for (int d = 0; d < spec->rank; d++)
            bytes *= dim[f][d];
        hash = mr_hash(hash, memory[f], bytes);
    }
    return hash;
}

static inline void assert_same_rows(const struct run *a, const struct run *b)
{
    assert_int_equal(a->n, b->n);
    for (uint64_t i = 0; i < a->n; i++) {
        assert_int_equal(a->row[i].epoch, b->row[i].epoch);
        assert_int_equal(a->row[i].position, b->row[i].position);
        assert_int_equal(a->row[i].index, b->row[i].index);
        assert_int_equal(a->row[i].hash, b->row[i].hash);
    }
}

#endif
