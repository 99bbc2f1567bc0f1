/*
 * A random permutation of all samples, different in each epoch, computed position by position; or
 * one that stays within windows of blocks: the full blocks are permuted, each `window` of them in
 * turn are a window, whose samples are permuted. The last window has the shorter block, too.
 */
#include "sampler/sampler.h"

#include <stdio.h>

#define DEFAULT_WINDOW 16u

struct blocks {
    uint64_t block;  /* samples; 0: one permutation of all */
    uint64_t n_full; /* blocks of so many samples */
    uint64_t span;   /* samples of a window; the last one has what is left */
};

static int open_blocks(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct blocks *b = s->state;
    uint64_t window = opts->window > 0 ? opts->window : DEFAULT_WINDOW;
    if (window > UINT64_MAX / opts->block)
        return mr_error_set(MR_EOPTION, "sampler random: windows of %llu blocks of %llu samples",
                            (unsigned long long)window, (unsigned long long)opts->block);
    b->block = opts->block;
    b->n_full = s->length / b->block;
    b->span = MR_MIN(window * b->block, s->length);
    snprintf(s->text, sizeof s->text, "random(seed=%llu,block=%llu,window=%llu)",
             (unsigned long long)s->seed, (unsigned long long)b->block, (unsigned long long)window);
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
    const struct blocks *b = s->state;
    uint64_t w = position / b->span, start = w * b->span;
    uint64_t n = MR_MIN(b->span, s->length - start), seed = mr_mix64(s->seed + w + 1);
    for (uint64_t i = 0; i < count; i++)
        out[i] = start + mr_permute(position - start + i, n, seed, epoch);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t k = out[i] / b->block;
        if (k < b->n_full)
            out[i] = mr_permute(k, b->n_full, s->seed, epoch) * b->block + out[i] % b->block;
    }
}

static int random_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
                      uint64_t *out)
{
    const struct blocks *b = s->state;
    for (uint64_t i = 0; b->block == 0 && i < count; i++)
        out[i] = mr_permute(position + i, s->length, s->seed, epoch);
    while (b->block > 0 && count > 0) {
        uint64_t n = MR_MIN(count, b->span - position % b->span);
        map_window(s, epoch, position, n, out);
        position += n;
        count -= n;
        out += n;
    }
    return 0;
}

const struct mr_sampler_ops mr_sampler_random = {
    .name = "random",
    .state_size = sizeof(struct blocks),
    .open = random_open,
    .map = random_map,
};
