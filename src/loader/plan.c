/* Which samples make up a batch: arithmetic over epochs, ranks and the place of a resume. */
#include "loader/engine.h"

#include <stdlib.h>

static uint64_t batches_of(const struct mr_plan *plan, const struct mr_shard *shard)
{
    uint64_t rows = mr_shard_length(shard);
    return plan->drop_last ? rows / plan->batch_size
                           : rows / plan->batch_size + (rows % plan->batch_size != 0);
}

static uint64_t total_of(const struct mr_plan *plan)
{
    if (plan->epochs == 0)
        return UINT64_MAX;
    if (plan->first_epoch >= plan->epochs)
        return 0;
    uint64_t later, total;
    if (!mr_mul(plan->epochs - plan->first_epoch - 1, plan->n_batches, &later) ||
        !mr_add(later, plan->first_batches, &total))
        return UINT64_MAX;
    return total;
}

struct mr_shard mr_plan_shard(const struct mr_loader_opts *opts)
{
    return (struct mr_shard){.rank = opts->rank,
                             .world = opts->world,
                             .pad = opts->remainder == MR_REMAINDER_PAD,
                             .exact = opts->remainder == MR_REMAINDER_EXACT};
}

int mr_plan_init(struct mr_plan *plan, const struct mr_loader_opts *opts, uint64_t length,
                 uint64_t epoch, uint64_t position)
{
    *plan = (struct mr_plan){.batch_size = opts->batch_size,
                             .length = length,
                             .epochs = opts->epochs,
                             .first_epoch = epoch,
                             .drop_last = opts->drop_last != 0};
    plan->shard = mr_plan_shard(opts);
    plan->shard.length = length;
    plan->first = plan->shard;
    plan->first.start = position;
    plan->first_index = position / opts->world / opts->batch_size;
    plan->finds = length == MR_UNKNOWN;
    if (plan->finds) {
        plan->n_batches = MR_UNKNOWN;
        plan->total = plan->epochs > 0 && epoch >= plan->epochs ? 0 : UINT64_MAX;
        return 0;
    }
    plan->n_batches = batches_of(plan, &plan->shard);
    if (plan->n_batches == 0 || (plan->shard.exact && length < opts->world))
        return mr_error_set(
            MR_EOPTION, "an epoch of %llu samples for %u ranks gives %s no %s of %llu: %s",
            (unsigned long long)length, opts->world, plan->shard.exact ? "some" : "each",
            opts->drop_last ? "full batch" : "batch", (unsigned long long)opts->batch_size,
            opts->drop_last ? "lower batch_size, or keep the last batch"
                            : "use fewer ranks, or pad the remainder");
    plan->first_batches = batches_of(plan, &plan->first);
    plan->total = total_of(plan);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct mr_plan_again *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->shard.start > y->shard.start) - (x->shard.start < y->shard.start);
}

int mr_plan_sort_again(struct mr_plan_again *again, uint64_t n, uint64_t span)
{
    qsort(again, n, sizeof *again, by_place);
    for (uint64_t i = 1; i < n; i++)
        if (again[i].epoch == again[i - 1].epoch &&
            again[i].shard.start - again[i - 1].shard.start < span)
            return mr_error_set(MR_ESTATE, "state: unfinished batches overlap in epoch %llu",
                                (unsigned long long)again[i].epoch);
    return 0;
}

/* Is this a batch of this run? */
static bool is_planned(const struct mr_plan *plan, const struct mr_plan_again *again)
{
    uint64_t rows = mr_shard_length(&again->shard);
    return rows >= (plan->drop_last ? plan->batch_size : 1) &&
           (plan->epochs == 0 || again->epoch < plan->epochs);
}

void mr_plan_add_again(struct mr_plan *plan, struct mr_plan_again *again, uint64_t n)
{
    bool ends = plan->total == 0 || plan->first_batches == 0; /* the first epoch, with the list */
    plan->again = again;
    for (uint64_t i = 0; i < n; i++) {
        struct mr_plan_again batch = {.epoch = again[i].epoch, .shard = plan->shard};
        batch.shard.start = again[i].shard.start;
        if (is_planned(plan, &batch))
            again[plan->n_again++] = batch;
    }
    uint64_t next = plan->first_epoch + ends;
    for (uint64_t i = plan->n_again; i-- > 0; next = again[i].epoch)
        again[i].last = again[i].epoch != next;
    if (!mr_add(plan->total, plan->n_again, &plan->total))
        plan->total = UINT64_MAX;
}

int mr_plan_init_batches(struct mr_plan *plan, const struct mr_loader_opts *opts,
                         const struct mr_sampler *sampler, uint64_t epoch, uint64_t position)
{
    *plan = (struct mr_plan){.batch_size = opts->batch_size,
                             .length = sampler->length,
                             .epochs = opts->epochs,
                             .first_epoch = epoch,
                             .finds = true};
    plan->shard = mr_plan_shard(opts);
    plan->shard.length = sampler->length;
    plan->first = plan->shard;
    plan->first.start = position;
    int rc = mr_epochs_create(sampler, opts, epoch, position, &plan->starts);
    if (rc < 0)
        return rc;
    plan->n_batches = mr_epochs_batches(plan->starts);
    plan->total = mr_epochs_total(plan->starts);
    return 0;
}

void mr_plan_end(struct mr_plan *plan)
{
    mr_epochs_destroy(plan->starts);
    free(plan->again);
}

static void get_again(const struct mr_plan *plan, uint64_t t, struct mr_plan_batch *out)
{
    const struct mr_plan_again *again = &plan->again[t];
    *out =
        (struct mr_plan_batch){.shard = &again->shard,
                               .epoch = again->epoch,
                               .index = again->shard.start / again->shard.world / plan->batch_size,
                               .rows = MR_MIN(plan->batch_size, mr_shard_length(&again->shard)),
                               .last = again->last};
}

void mr_plan_get(const struct mr_plan *plan, uint64_t t, struct mr_plan_batch *out)
{
    if (t < plan->n_again) {
        get_again(plan, t, out);
        return;
    }
    t -= plan->n_again;
    bool first = t < plan->first_batches;
    uint64_t later = first ? 0 : t - plan->first_batches;
    uint64_t at = first ? t : later % plan->n_batches;
    out->shard = first ? &plan->first : &plan->shard;
    out->epoch = first ? plan->first_epoch : plan->first_epoch + 1 + later / plan->n_batches;
    out->index = first ? plan->first_index + at : at;
    out->row0 = at * plan->batch_size;
    out->rows = MR_MIN(plan->batch_size, mr_shard_length(out->shard) - out->row0);
    out->last = at + 1 == (first ? plan->first_batches : plan->n_batches);
}
