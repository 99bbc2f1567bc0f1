/* Which nodes a backend computes as one. */
#include "nn/net.h"

/* Nodes that read a tensor or add to it. */
static uint32_t users(const struct mr_net *net, uint32_t tensor)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < net->n_nodes; i++)
        n += (net->node[i].in == tensor) +
             (net->node[i].kind == MR_NODE_ADD && net->node[i].out == tensor);
    return n;
}

/* Is the next node of this kind, and the only one that reads node i's output? */
static bool follows(const struct mr_net *net, uint32_t i, enum mr_node_kind kind)
{
    return i + 1 < net->n_nodes && net->node[i + 1].kind == kind &&
           net->node[i + 1].in == net->node[i].out && users(net, net->node[i].out) == 1;
}

/* convolution, maxpool[, dropout], flatten */
static void fuse_pool(struct mr_net *net, uint32_t conv)
{
    struct mr_node *pool = &net->node[conv + 1];
    struct mr_nn_pool shape = mr_net_pool_of(net, pool, net->opts.max_batch);
    uint32_t last = conv + 1;
    if (follows(net, last, MR_NODE_DROPOUT) && !net->node[last + 1].per_channel)
        last++;
    if (!follows(net, last, MR_NODE_FLATTEN) || net->layout != MR_NHWC ||
        !net->ops->pool_drop_fits(&shape))
        return;
    pool->fused = last + 1 - conv;
    net->node[conv].undone = true;
    for (uint32_t i = conv + 2; i <= last + 1; i++)
        net->node[i].inside = true;
}

void mr_net_fuse(struct mr_net *net)
{
    for (uint32_t i = 0; net->ops->drops && i + 1 < net->n_nodes; i++)
        if (net->node[i].kind == MR_NODE_LINEAR && follows(net, i, MR_NODE_DROPOUT))
            net->node[i + 1].undone =
                net->tensor[net->node[i].out].h * net->tensor[net->node[i].out].w == 1;
    for (uint32_t i = 0; net->ops->pool_drop_fits && i < net->n_nodes; i++)
        if (net->node[i].kind == MR_NODE_CONV && follows(net, i, MR_NODE_POOL))
            fuse_pool(net, i);
}
