/* Measuring for bench workers: one loader a cell of the grid. */
#include "bench/workers.h"

#include <errno.h>
#include <stdlib.h>

#define FLOATS 1024 /* of a sample */

double workers_limit(const struct workers *w)
{
    if (w->link_samples_per_s <= 0 || w->step_samples_per_s <= 0)
        return w->link_samples_per_s + w->step_samples_per_s;
    return w->link_samples_per_s < w->step_samples_per_s ? w->link_samples_per_s
                                                         : w->step_samples_per_s;
}

/* The consumer: a step of work on each batch; host_waits: the host waits for it before it releases
 * the batch. Returns batches taken, or the error. */
static int64_t take_for(const struct workers *w, struct cli_pipeline *p, bool host_waits,
                        uint64_t time_ns, uint64_t *samples, uint64_t *took_ns)
{
    struct mr_batch b = {.size = sizeof b};
    uint64_t start = mr_time_ns(), step_ns = w->o->step_ns;
    int64_t batches = 0;
    int rc;
    *samples = 0;
    while ((rc = cli_pipeline_next(p, &b)) > 0) {
        rc = step_ns ? mr_launch(p->stream, "busy", &step_ns, sizeof step_ns) : 0;
        if (rc == 0 && host_waits)
            rc = mr_stream_synchronize(p->stream);
        *samples += b.n;
        batches++;
        int released = mr_loader_release(p->loader, &b, p->stream);
        rc = rc < 0 ? rc : released;
        if (rc < 0 || mr_time_ns() - start >= time_ns)
            break;
    }
    int done = mr_stream_synchronize(p->stream);
    *took_ns = mr_time_ns() - start;
    return rc < 0 ? rc : done < 0 ? done : batches;
}

static int run_loader(const struct workers *w, struct cli_pipeline *p, bool waits,
                      struct workers_cell *cell)
{
    uint64_t samples, took_ns;
    int64_t n = take_for(w, p, waits, w->o->time_ns / 4, &samples, &took_ns); /* warms up */
    if (n > 0)
        n = take_for(w, p, waits, w->o->time_ns, &samples, &took_ns);
    if (n <= 0)
        return (int)n;
    cell->stats = (struct mr_loader_stats){.size = sizeof cell->stats};
    mr_loader_stats(p->loader, &cell->stats);
    cell->step_us = (double)took_ns * 1e-3 / (double)n;
    cell->samples_per_s = (double)samples / ((double)took_ns * 1e-9);
    cell->transfer_us = cell->stats.timed_batches ? (double)cell->stats.timed_copy_ns * 1e-3 /
                                                        (double)cell->stats.timed_batches
                                                  : -1;
    return 0;
}

int workers_measure(const struct workers *w, struct workers_cell *cell)
{
    struct cli_pipeline p = {.dev = w->dev, .ds = w->set[cell->set], .shared = true};
    struct mr_loader_opts lo = w->o->loader;
    bool in_turn = cell->workers == 0;
    lo.epochs = 0;
    lo.workers = in_turn ? 1 : cell->workers;
    lo.pin = cell->pinned;
    if (in_turn)
        lo.prefetch = 1;
    if (in_turn || cell->one_read)
        lo.queue_depth = lo.read_ahead = lo.workers;
    bool waits = cell->host_waits || in_turn;
    int rc = cli_pipeline_chain(&p, w->o->transform);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_order(&p, "random", 1);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_start(&p, &lo);
    if (rc < 0)
        goto out;
    rc = run_loader(w, &p, waits, cell);
out:
    cli_pipeline_close(&p);
    return rc;
}

static int open_sets(struct workers *w)
{
    struct mr_array_opts a;
    mr_array_opts_init(&a);
    a.n = w->o->samples;
    a.n_fields = 1;
    a.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {FLOATS}};
    w->x = malloc(a.n * FLOATS * sizeof *w->x);
    if (!w->x)
        return mr_error_set(-ENOMEM, "no memory for %llu samples; lower --samples",
                            (unsigned long long)a.n);
    for (uint64_t i = 0; i < a.n * FLOATS; i++)
        w->x[i] = (float)(i % 1000003);
    a.data[0] = w->x;
    int rc = mr_dataset_open_array(&a, &w->set[WORKERS_MEMORY]);
    return rc < 0 ? rc
                  : mr_dataset_open("synthetic:n=1e6,shape=1024,delay=2ms", &w->set[WORKERS_DELAY]);
}

/* The time of a step is --step's: a simulated device's own would be left out without a word. */
static int set_device(struct workers *w, struct mr_device *dev)
{
    struct mr_device_info info = {.size = sizeof info};
    int rc = mr_device_query(dev, &info);
    if (rc < 0)
        return rc;
    if (info.step_ns)
        return mr_error_set(MR_EOPTION,
                            "--device %s: bench workers has --step for the time of a step",
                            w->o->device);
    w->dev = dev;
    w->step_samples_per_s =
        w->o->step_ns ? (double)w->o->loader.batch_size / ((double)w->o->step_ns * 1e-9) : 0;
    return 0;
}

int workers_open(struct workers *w, struct mr_device *dev, const struct mr_device_info *info)
{
    int rc = set_device(w, dev);
    if (rc < 0)
        return rc;
    w->link_samples_per_s = info->h2d_gb_per_s * 1e9 / (FLOATS * sizeof(float));
    return open_sets(w);
}

static int open_slow(const struct workers_opts *o, const char *uri, struct mr_dataset **out)
{
    struct mr_slow_opts slow;
    mr_slow_opts_init(&slow);
    slow.dataset = uri;
    slow.delay_ns = o->delay_ns;
    slow.max_delay_ns = o->max_delay_ns;
    slow.work_ns = o->work_ns;
    return mr_dataset_open_slow(&slow, out);
}

int workers_open_dataset(struct workers *w, struct mr_device *dev, const char *uri)
{
    bool slow = w->o->delay_ns || w->o->max_delay_ns || w->o->work_ns;
    int rc = set_device(w, dev);
    if (rc < 0)
        return rc;
    rc = slow ? open_slow(w->o, uri, &w->set[0]) : mr_dataset_open(uri, &w->set[0]);
    return rc < 0 ? rc : cli_need_length(&w->set[0]);
}

void workers_close(struct workers *w)
{
    for (int i = 0; i < WORKERS_N_SETS; i++)
        mr_dataset_close(w->set[i]);
    free(w->x);
}
