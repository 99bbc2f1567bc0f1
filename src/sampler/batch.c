/* Batch samplers: what is asked of them. */
#include "sampler/sampler.h"

uint64_t mr_sampler_max_batch(const struct mr_sampler *sampler)
{
    if (!sampler)
        return 0;
    return sampler->max_batch;
}

static int check(const struct mr_sampler *sampler, const char *call)
{
    if (sampler->max_batch > 0)
        return 0;
    return mr_error_set(MR_EMISUSE, "%s: sampler %s gives positions, not batches", call,
                        sampler->text);
}

int mr_sampler_batches(const struct mr_sampler *sampler, uint64_t epoch, uint64_t *out)
{
    if (!sampler || !out)
        return mr_error_null("mr_sampler_batches", "a sampler and a place for the number");
    int rc = check(sampler, "mr_sampler_batches");
    return rc < 0 ? rc : sampler->ops->n_batches(sampler, epoch, out);
}

int mr_sampler_batch(const struct mr_sampler *sampler, uint64_t epoch, uint64_t batch,
                     struct mr_batch_item *items, uint64_t max)
{
    if (!sampler || !items)
        return mr_error_null("mr_sampler_batch", "a sampler and a place for the items");
    uint64_t n;
    int rc = mr_sampler_batches(sampler, epoch, &n);
    if (rc < 0)
        return rc;
    if (batch >= n)
        return mr_error_set(MR_EMISUSE, "sampler %s: batch %llu: epoch %llu has %llu",
                            sampler->text, (unsigned long long)batch, (unsigned long long)epoch,
                            (unsigned long long)n);
    if (max < sampler->max_batch)
        return mr_error_set(
            MR_EMISUSE,
            "mr_sampler_batch: space for %llu items: expected mr_sampler_max_batch() "
            "= %llu",
            (unsigned long long)max, (unsigned long long)sampler->max_batch);
    return sampler->ops->batch(sampler, epoch, batch, items);
}

int mr_sampler_efficiency(const struct mr_sampler *sampler, uint64_t epoch, double *out)
{
    if (!sampler || !out)
        return mr_error_null("mr_sampler_efficiency", "a sampler and a place for the share");
    if (!sampler->ops->fill)
        return mr_error_set(MR_EMISUSE, "mr_sampler_efficiency: sampler %s knows no lengths",
                            sampler->text);
    return sampler->ops->fill(sampler, epoch, out);
}
