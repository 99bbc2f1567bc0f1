/*
 * A random permutation of all samples, different in each epoch, computed position by position; or
 * one that stays within windows of blocks: the full blocks are permuted, each `window` of them in
 * turn are a window, whose samples are permuted. The last window has the shorter block, too.
 */
#include "sampler/sampler.h"

#include <stdio.h>

#define DEFAULT_WINDOW 16u

static int open_blocks(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    uint64_t window = opts->window > 0 ? opts->window : DEFAULT_WINDOW;
    if (window > UINT64_MAX / opts->block)
        return mr_error_set(MR_EOPTION, "sampler random: windows of %llu blocks of %llu samples",
                            (unsigned long long)window, (unsigned long long)opts->block);
    s->block = opts->block;
    s->span = MR_MIN(window * s->block, s->length);
    snprintf(s->text, sizeof s->text, "random(seed=%llu,block=%llu,window=%llu)",
             (unsigned long long)s->seed, (unsigned long long)s->block, (unsigned long long)window);
    return 0;
}

static int random_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    s->length = s->n_samples;
    if (opts->block > 0)
        return open_blocks(s, opts);
    if (opts->window > 0)
        return mr_error_set(MR_EOPTION, "sampler random: a window has blocks: set block, too");
    snprintf(s->text, sizeof s->text, "random(seed=%llu)", (unsigned long long)s->seed);
    return 0;
}

/* Positions of one window. Two loops: a thread keeps the keys of one permutation. */
static void map_window(const struct mr_sampler *s, uint64_t epoch, uint64_t position,
                       uint64_t count, uint64_t *out)
{
    uint64_t w = position / s->span, start = w * s->span, n_full = s->length / s->block;
    uint64_t n = MR_MIN(s->span, s->length - start), seed = mr_mix64(s->seed + w + 1);
    for (uint64_t i = 0; i < count; i++)
        out[i] = start + mr_permute(position - start + i, n, seed, epoch);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t k = out[i] / s->block;
        if (k < n_full)
            out[i] = mr_permute(k, n_full, s->seed, epoch) * s->block + out[i] % s->block;
    }
}

static int random_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
                      uint64_t *out)
{
    for (uint64_t i = 0; s->block == 0 && i < count; i++)
        out[i] = mr_permute(position + i, s->length, s->seed, epoch);
    while (s->block > 0 && count > 0) {
        uint64_t n = MR_MIN(count, s->span - position % s->span);
        map_window(s, epoch, position, n, out);
        position += n;
        count -= n;
        out += n;
    }
    return 0;
}

const struct mr_sampler_ops mr_sampler_random = {
    .name = "random",
    .open = random_open,
    .map = random_map,
};
