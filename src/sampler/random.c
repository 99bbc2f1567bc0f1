/* A random permutation of all samples, different in each epoch, computed position by position. */
#include "sampler/sampler.h"

#include <stdio.h>

static int random_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    (void)opts;
    s->length = s->n_samples;
    snprintf(s->text, sizeof s->text, "random(seed=%llu)", (unsigned long long)s->seed);
    return 0;
}

static int random_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
                      uint64_t *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = mr_permute(position + i, s->length, s->seed, epoch);
    return 0;
}

const struct mr_sampler_ops mr_sampler_random = {
    .name = "random",
    .open = random_open,
    .map = random_map,
};
