/* Which batch of which epoch a batch of the run is, if epochs differ in their number of batches. */
#include "loader/epochs.h"

#include "loader/plan.h"
#include <stdlib.h>

static int check_count(const struct mr_epochs *e, uint64_t epoch, const struct mr_shard *shard)
{
    struct mr_shard whole = *shard;
    whole.start = 0;
    if (mr_shard_length(&whole) > 0 && !(shard->exact && shard->length < shard->world))
        return 0;
    return mr_error_set(MR_EOPTION,
                        "epoch %llu has %llu batches for %u ranks: %s none: use fewer "
                        "ranks, or pad the remainder (sampler %s)",
                        (unsigned long long)epoch, (unsigned long long)shard->length, shard->world,
                        shard->exact ? "some get" : "each gets", mr_sampler_text(e->sampler));
}

/* Batches of the epochs that have been counted. [lock] */
static uint64_t counted(const struct mr_epochs *e)
{
    return e->n > 0 ? e->epoch[e->n - 1].first + e->epoch[e->n - 1].n : 0;
}

/* Counts one more epoch. Counting may take long: the lock is given up meanwhile, since the consumer
 * needs it to save its state. If another thread was faster, its result stays. [lock] */
static int add_epoch(struct mr_epochs *e)
{
    uint64_t i = e->n, length = 0;
    pthread_mutex_unlock(&e->lock);
    int rc = mr_sampler_batches(e->sampler, e->first_epoch + i, &length);
    pthread_mutex_lock(&e->lock);
    if (rc < 0 || e->n > i)
        return rc;
    struct mr_epoch next = {.first = counted(e), .shard = e->shard};
    next.shard.length = length;
    next.shard.start = i == 0 ? e->start : 0;
    rc = check_count(e, e->first_epoch + i, &next.shard);
    if (rc < 0)
        return rc;
    next.n = mr_shard_length(&next.shard);
    rc = mr_grow("epochs", &e->epoch, &e->room, e->n + 1, sizeof *e->epoch);
    if (rc < 0)
        return rc;
    e->epoch[e->n++] = next;
    return 0;
}

static bool is_over(const struct mr_epochs *e)
{
    return e->epochs > 0 && e->first_epoch + e->n >= e->epochs;
}

int mr_epochs_create(const struct mr_sampler *sampler, const struct mr_loader_opts *opts,
                     uint64_t epoch, uint64_t position, struct mr_epochs **out)
{
    uint64_t capacity = mr_sampler_max_batch(sampler);
    if (position % capacity != 0)
        return mr_error_set(MR_ESTATE,
                            "state: position %llu is not the start of a batch: this sampler's "
                            "batches are %llu positions apart",
                            (unsigned long long)position, (unsigned long long)capacity);
    struct mr_epochs *e = calloc(1, sizeof *e);
    if (!e)
        return mr_error_nomem("epochs", sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    e->sampler = sampler;
    e->shard = mr_plan_shard(opts);
    e->first_epoch = epoch;
    e->start = position / capacity;
    e->epochs = opts->epochs;
    pthread_mutex_lock(&e->lock);
    int rc = is_over(e) ? 0 : add_epoch(e);
    pthread_mutex_unlock(&e->lock);
    if (rc == 0 && e->n > 0 && e->start > e->epoch[0].shard.length)
        rc = mr_error_set(MR_ESTATE, "state: batch %llu is past the %llu batches of epoch %llu",
                          (unsigned long long)e->start,
                          (unsigned long long)e->epoch[0].shard.length, (unsigned long long)epoch);
    if (rc < 0) {
        mr_epochs_destroy(e);
        return rc;
    }
    *out = e;
    return 0;
}

void mr_epochs_destroy(struct mr_epochs *e)
{
    if (!e)
        return;
    pthread_mutex_destroy(&e->lock);
    free(e->epoch);
    free(e);
}

/* The epoch that batch t is in; it has been counted. [lock] */
static uint64_t epoch_of(const struct mr_epochs *e, uint64_t t)
{
    uint64_t low = 0, high = e->n - 1;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (e->epoch[middle].first <= t)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void describe(const struct mr_epochs *e, uint64_t t, struct mr_plan_batch *out)
{
    uint64_t i = epoch_of(e, t);
    const struct mr_epoch *at = &e->epoch[i];
    uint64_t q = t - at->first;
    *out = (struct mr_plan_batch){
        .epoch = e->first_epoch + i,
        .index = at->shard.start / at->shard.world + q,
        .batch = mr_shard_position(&at->shard, q),
        .row0 = mr_shard_global(&at->shard, q) * mr_sampler_max_batch(e->sampler),
        .last = q + 1 == at->n,
    };
}

int mr_epochs_find(struct mr_epochs *e, uint64_t t, struct mr_plan_batch *out, uint64_t *total)
{
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    while (rc == 0 && t >= counted(e) && !is_over(e))
        rc = add_epoch(e);
    if (rc == 0 && t < counted(e)) {
        describe(e, t, out);
        rc = 1;
    } else if (rc == 0) {
        *total = counted(e);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

uint64_t mr_epochs_total(const struct mr_epochs *e)
{
    return is_over(e) ? counted(e) : UINT64_MAX;
}

uint64_t mr_epochs_batches(const struct mr_epochs *e)
{
    struct mr_shard whole = e->shard;
    whole.length = e->n > 0 ? e->epoch[0].shard.length : 0;
    return mr_shard_length(&whole);
}
