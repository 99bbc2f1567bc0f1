/* The given indices, in their order, or shuffled differently in each epoch. */
#include "sampler/sampler.h"

#include <stdio.h>
#include <string.h>

struct subset {
    uint64_t *index;
    bool shuffle;
};

static int subset_check(const struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    if (!opts->indices || opts->n_indices < 1)
        return mr_error_set(MR_EOPTION, "subset sampler: no indices: expected at least one");
    for (uint64_t i = 0; i < opts->n_indices; i++)
        if (opts->indices[i] >= s->n_samples)
            return mr_error_set(
                MR_EOPTION, "subset sampler: index %llu (number %llu of %llu): expected 0..%llu",
                (unsigned long long)opts->indices[i], (unsigned long long)(i + 1),
                (unsigned long long)opts->n_indices, (unsigned long long)(s->n_samples - 1));
    return 0;
}

static int subset_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct subset *sub = s->state;
    int rc = subset_check(s, opts);
    if (rc)
        return rc;
    uint64_t bytes;
    if (!mr_mul(opts->n_indices, sizeof *sub->index, &bytes))
        return mr_error_nomem("subset sampler", UINT64_MAX);
    sub->index = malloc(bytes);
    if (!sub->index)
        return mr_error_nomem("subset sampler", bytes);
    memcpy(sub->index, opts->indices, bytes);
    sub->shuffle = opts->shuffle != 0;
    s->length = opts->n_indices;
    snprintf(s->text, sizeof s->text, "subset(n=%llu,hash=%016llx,shuffle=%d,seed=%llu)",
             (unsigned long long)s->length,
             (unsigned long long)mr_words_hash(sub->index, s->length), sub->shuffle,
             (unsigned long long)s->seed);
    return 0;
}

static void subset_close(struct mr_sampler *s)
{
    struct subset *sub = s->state;
    free(sub->index);
}

static int subset_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
                      uint64_t *out)
{
    const struct subset *sub = s->state;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t p = position + i;
        out[i] = sub->index[sub->shuffle ? mr_permute(p, s->length, s->seed, epoch) : p];
    }
    return 0;
}

const struct mr_sampler_ops mr_sampler_subset = {
    .name = "subset",
    .state_size = sizeof(struct subset),
    .open = subset_open,
    .close = subset_close,
    .map = subset_map,
};
