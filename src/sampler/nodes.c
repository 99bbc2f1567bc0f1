/* Blocks that belong to nodes: see nodes.h. */
#include "sampler/nodes.h"

/* Seeds of permutations: of the line of all blocks, of a node's blocks, of its windows. */
#define LINE_SEED   0x6c696e65206f6620ull
#define NODE_SEED   0x9e3779b97f4a7c15ull
#define WINDOW_SEED 0xd1b54a32d192ed03ull

/* The first rank of a node. */
static uint64_t first_rank(const struct mr_sampler *s, uint64_t node)
{
    return (node * s->ranks + s->nodes - 1) / s->nodes;
}

/* Positions of ranks below this one. */
static uint64_t positions_below(const struct mr_sampler *s, uint64_t rank)
{
    return s->length / s->ranks * rank + MR_MIN(s->length % s->ranks, rank);
}

struct mr_node_place mr_node_place(const struct mr_sampler *s, uint64_t position)
{
    uint64_t rank = position % s->ranks, node = rank * s->nodes / s->ranks;
    uint64_t first = first_rank(s, node), end = first_rank(s, node + 1);
    uint64_t start = positions_below(s, first);
    return (struct mr_node_place){.node = node,
                                  .position = position / s->ranks * (end - first) + rank - first,
                                  .start = start,
                                  .length = positions_below(s, end) - start};
}

/* The sample at a place of the line. The last, shorter block is at its end. */
static uint64_t of_line(const struct mr_sampler *s, uint64_t at)
{
    uint64_t block = at / s->block, n_full = s->length / s->block;
    return block < n_full ? mr_permute(block, n_full, LINE_SEED, 0) * s->block + at % s->block : at;
}

/* Place y of a piece's own order by blocks: the full blocks in a random order, then what the cuts
 * left of two others. */
static uint64_t of_piece(const struct mr_sampler *s, const struct mr_node_place *p, uint64_t epoch,
                         uint64_t y)
{
    uint64_t size = s->block, end = p->start + p->length, first = (p->start + size - 1) / size;
    uint64_t n = end / size > first ? end / size - first : 0;
    if (y < n * size)
        return (first +
                mr_permute(y / size, n, mr_mix64(s->seed + NODE_SEED * (p->node + 1)), epoch)) *
                   size +
               y % size;
    uint64_t rest = y - n * size, front = n > 0 ? first * size - p->start : p->length;
    return rest < front ? p->start + rest : (first + n) * size + rest - front;
}

uint64_t mr_node_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position)
{
    const struct mr_node_place p = mr_node_place(s, position);
    uint64_t window = p.position / s->span, from = window * s->span;
    uint64_t n = MR_MIN(s->span, p.length - from);
    uint64_t seed = mr_mix64(mr_mix64(s->seed + window + 1) + WINDOW_SEED * (p.node + 1));
    uint64_t y = from + mr_permute(p.position - from, n, seed, epoch);
    return of_line(s, of_piece(s, &p, epoch, y));
}
