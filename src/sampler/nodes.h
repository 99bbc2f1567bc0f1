/*
 * Blocks that belong to nodes: random:block=B,window=W,nodes=N,ranks=R.
 *
 * All blocks stand in one line, in an order that no seed and no epoch changes. It is cut into N
 * pieces, as long as the positions of each node's ranks are many, so a node's ranks read its piece,
 * all of it and nothing else, in every epoch: at most N - 1 blocks are cut in two. Within a piece
 * the order is that of random:block=B,window=W.
 *
 * Position p is of rank p % R, and rank r is on node r * N / R: nodes have consecutive ranks, and
 * their numbers of ranks differ by one at most. The order is a function of these numbers, whatever
 * the world of the loader is; if that is another one, only the reading is not local.
 */
#ifndef MR_SAMPLER_NODES_H
#define MR_SAMPLER_NODES_H

#include "sampler/sampler.h"

/* Where a position is in the order of its node. */
struct mr_node_place {
    uint64_t node, position;
    uint64_t start, length; /* the node's piece of the line */
};
struct mr_node_place mr_node_place(const struct mr_sampler *s, uint64_t position);
/* The sample at a position. */
uint64_t mr_node_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position);

#endif
