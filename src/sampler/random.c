/*
 * A random permutation of all samples, different in each epoch, computed position by position; or
 * one that stays within windows of blocks: the full blocks are permuted, each `window` of them in
 * turn are a window, whose samples are permuted. The last window has the shorter block, too. The
 * blocks may belong to nodes, each with an order of its own (nodes.h).
 */
#include "sampler/nodes.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_WINDOW 16u

#define MOST_RANKS     (1u << 20)

static int check_nodes(const struct mr_sampler_opts *opts)
{
    if (opts->nodes == 0 && opts->ranks == 0)
        return 0;
    if (opts->nodes == 0 || opts->ranks == 0)
        return mr_error_set(MR_EOPTION,
                            "sampler random: nodes and ranks are given together (feed and train: "
                            "--affinity gives both)");
    if (opts->block == 0)
        return mr_error_set(MR_EOPTION,
                            "sampler random: nodes: blocks belong to nodes: set block, too");
    if (opts->ranks > MOST_RANKS || opts->nodes > opts->ranks)
        return mr_error_set(MR_EOPTION,
                            "sampler random: %u nodes, %u ranks: expected 1..%u ranks, and at most "
                            "as many nodes",
                            opts->nodes, opts->ranks, MOST_RANKS);
    return 0;
}

static void text_of_nodes(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    size_t n = strlen(s->text) - 1; /* before the ')' */
    if (opts->nodes < 2)
        return;
    s->nodes = opts->nodes;
    s->ranks = opts->ranks;
    snprintf(s->text + n, sizeof s->text - n, ",nodes=%u,ranks=%u)", opts->nodes, opts->ranks);
}

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
    text_of_nodes(s, opts);
    return 0;
}

static int random_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    s->length = s->n_samples;
    int rc = check_nodes(opts);
    if (rc < 0)
        return rc;
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
    for (uint64_t i = 0; s->nodes > 0 && i < count; i++)
        out[i] = mr_node_map(s, epoch, position + i);
    while (s->block > 0 && s->nodes == 0 && count > 0) {
        uint64_t n = MR_MIN(count, s->span - position % s->span);
        map_window(s, epoch, position, n, out);
        position += n;
        count -= n;
        out += n;
    }
    return 0;
}

uint64_t mr_sampler_window(const struct mr_sampler *s, uint64_t epoch, uint64_t position)
{
    uint64_t windows = s->length / s->span + 1; /* of a node at most */
    uint64_t at = s->nodes > 0 ? mr_node_place(s, position).position : position;
    return epoch * windows + at / s->span;
}

uint64_t mr_sampler_sharers(const struct mr_sampler *s, uint64_t world)
{
    return s->nodes > 0 && s->ranks == world ? (world + s->nodes - 1) / s->nodes : world;
}

const struct mr_sampler_ops mr_sampler_random = {
    .name = "random",
    .open = random_open,
    .map = random_map,
};
