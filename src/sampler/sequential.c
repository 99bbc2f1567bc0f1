/* 0, 1, 2, ... */
#include "sampler/sampler.h"

#include <stdio.h>

static int sequential_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    (void)opts;
    s->length = s->n_samples;
    snprintf(s->text, sizeof s->text, "sequential");
    return 0;
}

static int sequential_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position,
                          uint64_t count, uint64_t *out)
{
    (void)s;
    (void)epoch;
    for (uint64_t i = 0; i < count; i++)
        out[i] = position + i;
    return 0;
}

const struct mr_sampler_ops mr_sampler_sequential = {
    .name = "sequential",
    .sequential = true,
    .open = sequential_open,
    .map = sequential_map,
};
