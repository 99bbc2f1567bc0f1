/* The rows of a run, when a batch sampler chooses them: asked once for each batch that the worker
 * makes samples of. */
#include "loader/engine.h"

#include <stdlib.h>

uint64_t mr_found_bytes(const struct mr_loader *ld)
{
    return ld->plan.starts ? ld->plan.batch_size * sizeof(struct mr_batch_item) : 0;
}

int mr_found_create(struct mr_worker *w)
{
    struct mr_found *found = &w->found;
    found->t = UINT64_MAX;
    if (!w->ld->plan.starts)
        return 0;
    found->items = calloc(w->ld->plan.batch_size, sizeof *found->items);
    return found->items ? 0 : mr_error_nomem("samples of a batch", mr_found_bytes(w->ld));
}

static int look_up(struct mr_worker *w, uint64_t t)
{
    struct mr_loader *ld = w->ld;
    struct mr_found *found = &w->found;
    uint64_t total;
    found->n = 0;
    int rc = mr_epochs_find(ld->plan.starts, t, &found->info, &total);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        mr_ring_end(&ld->ring, total);
        return 0;
    }
    rc = ld->sampler->ops->batch(ld->sampler, found->info.epoch, found->info.batch, found->items);
    if (rc < 0)
        return rc;
    found->n = (uint64_t)rc;
    return 0;
}

int mr_run_find(struct mr_worker *w, struct mr_run *run)
{
    struct mr_found *found = &w->found;
    if (found->t != run->t) {
        found->t = run->t;
        int rc = look_up(w, run->t);
        mr_error_keep(rc, &found->error);
    }
    run->info = found->info;
    run->n = 0;
    if (found->error.code < 0)
        return mr_error_put(&found->error);
    if (run->row0 < found->n)
        run->n = (uint32_t)MR_MIN(run->n_left, found->n - run->row0);
    for (uint32_t i = 0; i < run->n; i++) {
        const struct mr_batch_item *item = &found->items[run->row0 + i];
        struct mr_run_sample *s = &run->sample[i];
        s->index = item->index;
        s->position = found->info.row0 + run->row0 + i;
        s->row = item->row;
        s->from = item->from;
        s->count = item->count;
        s->done = false;
    }
    return 0;
}

void mr_found_free(struct mr_worker *w)
{
    free(w->found.items);
}
