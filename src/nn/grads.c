/* Gradients that are there before the backward pass ends, for sums that run beside it. */
#include "nn/net.h"

#include "device/device.h"

/* Where the parameters of the nodes before the i-th end: behind lie those of the i-th and later. */
static uint64_t params_before(const struct mr_net *net, uint32_t i)
{
    uint64_t end = 0;
    for (const struct mr_node *node = net->node; node < net->node + i; node++)
        for (int k = 0; k < 2; k++) {
            uint32_t which = k ? node->bias : node->weight;
            if (which != MR_NN_NONE)
                end = MR_MAX(end, net->param[which].offset + net->param[which].count);
        }
    return end;
}

static bool has_params(const struct mr_node *node)
{
    return node->weight != MR_NN_NONE || node->bias != MR_NN_NONE;
}

int mr_net_tell_grads(struct mr_net *net, uint32_t i)
{
    if (!net->on_grads || !has_params(&net->node[i]))
        return 0;
    return net->on_grads(net->on_grads_user, params_before(net, i));
}

void mr_net_on_grads(struct mr_net *net, int (*fn)(void *user, uint64_t first), void *user)
{
    net->on_grads = fn;
    net->on_grads_user = user;
}

uint32_t mr_net_grad_parts(const struct mr_net *net, uint64_t least, uint64_t *parts, uint32_t most)
{
    uint64_t end = net->n_flat;
    uint32_t n = 0;
    for (uint32_t i = net->n_nodes; i-- > 0 && n + 1 < most;) {
        uint64_t first = has_params(&net->node[i]) ? params_before(net, i) : end;
        if (first > 0 && first + least <= end)
            end = parts[n++] = first;
    }
    parts[n++] = 0;
    return n;
}

int mr_net_fork_to(struct mr_net *net, struct mr_stream *stream, struct mr_stream *side)
{
    int rc = mr_net_use_stream(net, stream, "mr_net_fork_to");
    return rc < 0 ? rc : net->ops->fork_to(net->backend, side);
}

int mr_net_join_from(struct mr_net *net, struct mr_stream *stream, struct mr_stream *side)
{
    int rc = mr_net_use_stream(net, stream, "mr_net_join_from");
    return rc < 0 ? rc : net->ops->join_from(net->backend, side);
}
