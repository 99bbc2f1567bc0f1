/* Runs that a data set's processes make while the worker does other things. */
#include "loader/engine.h"
#include "loader/get.h"

#include <string.h>

#define MOST_SLOT_BYTES (4u << 20) /* larger slots take long to allocate: several workers do it */

bool mr_posted_plan(const struct mr_loader *ld)
{
    return ld->gets_runs && ld->ds->makers > 0 && ld->ds->ops->post_run && ld->ds->shared &&
           ld->opts.in_order && !ld->opts.tune && !ld->share.budget && ld->opts.max_workers == 0 &&
           ld->layout.host_bytes <= MOST_SLOT_BYTES;
}

uint64_t mr_posted_bytes(const struct mr_loader *ld)
{
    const struct mr_get_posted *p = NULL;
    uint64_t each = sizeof *p->context + sizeof *p->row + sizeof *p->rc;
    return ld->sizes.runs_per_worker * (ld->sizes.run_rows * each + sizeof *p + sizeof(void *));
}

int mr_posted_create(struct mr_worker *w)
{
    const struct mr_loader *ld = w->ld;
    uint64_t n = ld->sizes.run_rows, n_runs = ld->sizes.runs_per_worker;
    w->get.posted = calloc(n_runs, sizeof *w->get.posted);
    w->get.waiting = calloc(n_runs, sizeof *w->get.waiting);
    bool good = w->get.posted && w->get.waiting;
    for (uint64_t r = 0; r < n_runs && good; r++) {
        struct mr_get_posted *p = &w->get.posted[r];
        p->context = calloc(n, sizeof *p->context);
        p->row = calloc(n, sizeof *p->row);
        p->rc = calloc(n, sizeof *p->rc);
        good = p->context && p->row && p->rc;
    }
    return good ? 0 : mr_error_nomem("worker", mr_posted_bytes(ld));
}

void mr_posted_free(struct mr_worker *w)
{
    for (uint64_t r = 0; w->get.posted && r < w->ld->sizes.runs_per_worker; r++) {
        free(w->get.posted[r].context);
        free(w->get.posted[r].row);
        free(w->get.posted[r].rc);
        free(w->get.posted[r].run);
    }
    free(w->get.posted);
    free(w->get.waiting);
}

static struct mr_get_posted *posted_of(const struct mr_worker *w, const struct mr_run *run)
{
    return &w->get.posted[run - w->run];
}

static void prepare(struct mr_worker *w, const struct mr_run *run, struct mr_get_posted *p)
{
    const struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(&ld->ring, run->t);
    for (uint32_t i = 0; i < run->n; i++) {
        p->context[i] =
            mr_get_context(w, run->info.epoch, run->sample[i].index, run->sample[i].position);
        for (int f = 0; f < ld->layout.n_fields; f++)
            p->row[i][f] = mr_field_row(&ld->layout.field[f], slot, run->row0 + i);
    }
}

bool mr_posted_begin(struct mr_worker *w, struct mr_run *run)
{
    const struct mr_dataset *ds = w->ld->ds;
    struct mr_get_posted *p = posted_of(w, run);
    run->posted_ns = w->lap_ns;
    if (run->error.code < 0 || run->n == 0 || run->n_done > 0 || mr_trace_on())
        return false;
    prepare(w, run, p);
    struct mr_due due = {.number = run->t * w->ld->sizes.runs_per_batch +
                                   run->row0 / w->ld->sizes.run_rows,
                         .newest = &w->ld->workers.newest_posted};
    run->posted = ds->ops->post_run(ds, run->n, p->context, (void *const(*)[MR_MAX_FIELDS])p->row,
                                    &due, p->rc, &p->run) == 1;
    return run->posted;
}

bool mr_posted_made(const struct mr_worker *w, const struct mr_run *run)
{
    return w->ld->ds->ops->run_made(w->ld->ds, posted_of(w, run)->run);
}

void mr_posted_wait(struct mr_worker *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_runs; i++) {
        const struct mr_run *run = mr_nth_run(w, i);
        if (run->posted)
            w->get.waiting[n++] = posted_of(w, run)->run;
    }
    w->ld->ds->ops->wait_runs(w->ld->ds, n, w->get.waiting);
}

void mr_posted_finish(struct mr_worker *w, struct mr_run *run)
{
    struct mr_get *get = &w->get;
    struct mr_get_posted *p = posted_of(w, run);
    int rc = w->ld->ds->ops->finish_run(w->ld->ds, p->run);
    run->posted = false;
    get->failed.code = 0;
    if (rc < 0)
        mr_error_keep(rc, &get->failed);
    get->s = run->sample;
    get->t = run->t;
    get->at = run->row0;
    get->n = get->n_made = run->n;
    memcpy(get->rc, p->rc, run->n * sizeof *p->rc);
}

void mr_posted_drop(struct mr_worker *w)
{
    for (uint32_t i = 0; i < w->n_runs && w->get.posted; i++) {
        struct mr_run *run = mr_nth_run(w, i);
        if (run->posted)
            w->ld->ds->ops->drop_run(w->ld->ds, posted_of(w, run)->run);
        run->posted = false;
    }
}
