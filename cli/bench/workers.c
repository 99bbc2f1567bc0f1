/* Measuring for bench workers: one loader a cell of the grid. */
#include "bench/workers.h"

#include <errno.h>
#include <stdlib.h>

#define FLOATS 1024 /* of a sample */

struct lab {
    struct mr_device *dev;
    const struct workers_opts *o;
    struct mr_stream *stream;
    struct mr_dataset *set[WORKERS_N_SETS];
    float *x;
};

double workers_limit(const struct workers_result *r)
{
    if (r->link_samples_per_s <= 0 || r->step_samples_per_s <= 0)
        return r->link_samples_per_s + r->step_samples_per_s;
    return r->link_samples_per_s < r->step_samples_per_s ? r->link_samples_per_s : r->step_samples_per_s;
}

/* The consumer: a step of work on each batch; blocking: the host waits for it. Returns batches taken, or the error. */
static int64_t take_for(struct lab *lab, struct mr_loader *ld, bool blocking, uint64_t time_ns, uint64_t *samples,
                        uint64_t *took_ns)
{
    struct mr_batch b;
    uint64_t start = mr_time_ns(), step_ns = lab->o->step_ns;
    int64_t batches = 0;
    int rc;
    *samples = 0;
    while ((rc = mr_loader_next(ld, lab->stream, &b)) > 0) {
        rc = step_ns ? mr_launch(lab->stream, "busy", &step_ns, sizeof step_ns) : 0;
        if (rc == 0 && blocking)
            rc = mr_stream_synchronize(lab->stream);
        *samples += b.size;
        batches++;
        int released = mr_loader_release(ld, &b, lab->stream);
        rc = rc < 0 ? rc : released;
        if (rc < 0 || mr_time_ns() - start >= time_ns)
            break;
    }
    int done = mr_stream_synchronize(lab->stream);
    *took_ns = mr_time_ns() - start;
    return rc < 0 ? rc : done < 0 ? done : batches;
}

static int run_loader(struct lab *lab, struct mr_loader *ld, struct workers_cell *cell)
{
    struct mr_loader_stats after;
    uint64_t samples, took_ns;
    int64_t n = take_for(lab, ld, cell->blocking, lab->o->time_ns / 4, &samples, &took_ns); /* warms up */
    if (n > 0)
        n = take_for(lab, ld, cell->blocking, lab->o->time_ns, &samples, &took_ns);
    if (n <= 0)
        return (int)n;
    mr_loader_stats(ld, &after);
    cell->step_us = (double)took_ns * 1e-3 / (double)n;
    cell->samples_per_s = (double)samples / ((double)took_ns * 1e-9);
    cell->transfer_us = after.timed_batches ? (double)after.timed_copy_ns * 1e-3 / (double)after.timed_batches : -1;
    return 0;
}

static int measure_cell(struct lab *lab, struct workers_cell *cell)
{
    struct mr_loader_opts lo;
    struct mr_loader *ld = NULL;
    struct mr_sampler *sampler = NULL;
    mr_loader_opts_init(&lo);
    lo.batch_size = lab->o->batch_size;
    lo.epochs = 0;
    lo.workers = cell->workers;
    lo.pageable = !cell->pinned;
    int rc = mr_sampler_open("random", mr_dataset_length(lab->set[cell->set]), 1, &sampler);
    if (rc == 0)
        rc = mr_loader_open(lab->set[cell->set], sampler, NULL, lab->dev, &lo, &ld);
    if (rc == 0)
        rc = run_loader(lab, ld, cell);
    mr_loader_close(ld);
    mr_sampler_destroy(sampler);
    return rc;
}

static int open_sets(struct lab *lab)
{
    struct mr_array_opts a;
    mr_array_opts_init(&a);
    a.n = lab->o->samples;
    a.n_fields = 1;
    a.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {FLOATS}};
    lab->x = malloc(a.n * FLOATS * sizeof *lab->x);
    if (!lab->x)
        return mr_error_set(-ENOMEM, "no memory for %llu samples; lower --samples", (unsigned long long)a.n);
    for (uint64_t i = 0; i < a.n * FLOATS; i++)
        lab->x[i] = (float)(i % 1000003);
    a.data[0] = lab->x;
    int rc = mr_dataset_open_array(&a, &lab->set[WORKERS_MEMORY]);
    return rc < 0 ? rc : mr_dataset_open("synthetic:n=1e6,shape=1024,delay=2ms", &lab->set[WORKERS_DELAY]);
}

static int measure_all(struct lab *lab, const uint32_t *list, int n_list, struct workers_result *out)
{
    struct cli_progress progress;
    int n = WORKERS_N_SETS * n_list * 4, rc = 0;
    cli_progress_begin(&progress, "cells", (uint64_t)n, "cells");
    for (int i = 0; i < n && rc == 0; i++) {
        struct workers_cell *cell = &out->cell[i];
        cell->set = (enum workers_set)(i / (n_list * 4));
        cell->workers = list[i / 4 % n_list];
        cell->pinned = i % 4 < 2;
        cell->blocking = i % 2;
        rc = cli_interrupted() ? mr_error_set(MR_ECANCELLED, "interrupted") : measure_cell(lab, cell);
        out->n += rc == 0;
        cli_progress_update(&progress, (uint64_t)i + 1);
    }
    cli_progress_end(&progress);
    return rc;
}

int workers_measure(struct mr_device *dev, const struct workers_opts *o, const uint32_t *list, int n_list,
                    struct workers_result *out)
{
    struct lab lab = {.dev = dev, .o = o};
    int rc = mr_device_query(dev, &out->info);
    out->link_samples_per_s = out->info.h2d_gb_per_s * 1e9 / (FLOATS * sizeof(float));
    out->step_samples_per_s = o->step_ns ? (double)o->batch_size / ((double)o->step_ns * 1e-9) : 0;
    if (rc == 0)
        rc = mr_stream_create(dev, "consumer", &lab.stream);
    if (rc == 0)
        rc = open_sets(&lab);
    if (rc == 0)
        rc = measure_all(&lab, list, n_list, out);
    for (int i = 0; i < WORKERS_N_SETS; i++)
        if (lab.set[i])
            mr_dataset_close(lab.set[i]);
    mr_stream_destroy(lab.stream);
    free(lab.x);
    return rc;
}
