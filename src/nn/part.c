/*
 * Parts of a net: a range of nodes that is a net by itself.
 *
 * A part keeps what the whole net decided for its nodes: which of them run as one, the numbers that
 * key initial parameters and dropout, the names. So the parts compute together what the whole net
 * does, bit for bit.
 */
#include "nn/net.h"

#include "device/device.h"

#include <string.h>

static bool is_made_before(const struct mr_net *net, uint32_t tensor, uint32_t node)
{
    bool made = tensor == 0;
    for (uint32_t i = 0; i < node && !made; i++)
        made = net->node[i].out == tensor;
    return made;
}

/* Nodes on both sides that run as one. */
static bool is_joined(const struct mr_net *net, uint32_t node)
{
    const struct mr_node *n = &net->node[node];
    return n->inside || (n->kind == MR_NODE_DROPOUT && n->undone) ||
           (n[-1].kind == MR_NODE_CONV && n[-1].undone);
}

bool mr_net_can_cut(const struct mr_net *net, uint32_t node)
{
    if (node == 0 || node >= net->n_nodes || is_joined(net, node))
        return false;
    const uint32_t edge = net->node[node].in; /* the only tensor that may cross */
    for (uint32_t i = node; i < net->n_nodes; i++) {
        const struct mr_node *n = &net->node[i];
        if (n->in != edge && is_made_before(net, n->in, node))
            return false;
        if (n->kind == MR_NODE_ADD && n->out != edge && is_made_before(net, n->out, node))
            return false;
    }
    return net->node[node - 1].out == edge && edge != 0;
}

/* Of these nodes' parameters, the first, and the one behind the last. */
static void param_range(const struct mr_net *net, const struct mr_net_part *part, uint32_t *first,
                        uint32_t *end)
{
    *first = MR_NN_NONE;
    *end = 0;
    for (uint32_t i = part->first; i < part->end; i++) {
        const uint32_t both[2] = {net->node[i].weight, net->node[i].bias};
        for (int k = 0; k < 2; k++)
            if (both[k] != MR_NN_NONE) {
                *first = MR_MIN(*first, both[k]);
                *end = MR_MAX(*end, both[k] + 1);
            }
    }
}

static void buffer_range(const struct mr_net *net, const struct mr_net_part *part, uint32_t *first,
                         uint32_t *end)
{
    *first = *end = 0;
    for (uint32_t i = part->first; i < part->end; i++)
        if (net->node[i].mean != MR_NN_NONE) {
            *first = *end ? *first : net->node[i].mean;
            *end = net->node[i].mean + 2;
        }
}

/* Leaves first .. end - 1 of a list of flat pieces. */
static void keep(struct mr_net_param *list, uint32_t *n, uint64_t *n_flat, uint32_t first,
                 uint32_t end)
{
    const uint64_t base = first < *n ? list[first].offset : *n_flat;
    const uint64_t stop = end < *n ? list[end].offset : *n_flat;
    memmove(list, list + first, (end - first) * sizeof *list);
    *n = end - first;
    *n_flat = stop > base ? stop - base : 0;
    for (uint32_t i = 0; i < *n; i++)
        list[i].offset -= base;
}

/* The part's tensors, numbered from its input on. */
static void keep_tensors(struct mr_net *net, const struct mr_net_part *part)
{
    struct mr_nn_tensor kept[MR_NN_MAX_NODES + 1];
    uint32_t number[MR_NN_MAX_NODES + 1], n = 1;
    memset(number, 0, sizeof number);
    kept[0] = net->tensor[net->node[part->first].in];
    for (uint32_t i = part->first; i < part->end; i++) {
        const struct mr_node *node = &net->node[i];
        if (node->kind == MR_NODE_ADD) /* makes no tensor */
            continue;
        kept[n] = net->tensor[node->out];
        number[node->out] = n++;
    }
    for (uint32_t i = part->first; i < part->end; i++) {
        net->node[i].in = number[net->node[i].in];
        net->node[i].out = number[net->node[i].out];
    }
    memcpy(net->tensor, kept, n * sizeof *kept);
    net->n_tensors = n;
}

static void renumber(struct mr_node *node, uint32_t first_param, uint32_t first_buffer)
{
    if (node->weight != MR_NN_NONE)
        node->weight -= first_param;
    if (node->bias != MR_NN_NONE)
        node->bias -= first_param;
    if (node->mean != MR_NN_NONE)
        node->mean -= first_buffer;
}

static int check_part(const struct mr_net *net, const struct mr_net_part *part)
{
    uint32_t first, end;
    for (int side = 0; side < 2; side++) {
        const uint32_t at = side ? part->end : part->first;
        if (at > 0 && at < net->n_nodes && !mr_net_can_cut(net, at))
            return mr_error_set(MR_EOPTION,
                                "net: no stage can begin with layer %s (%s): a residual leads "
                                "around it, or it runs as one with the layer before it",
                                net->layer[at].name, net->layer[at].text);
    }
    param_range(net, part, &first, &end);
    if (first < end)
        return 0;
    return mr_error_set(MR_EOPTION,
                        "net: the stage of layers %s to %s has no parameters: expected a stage "
                        "with some",
                        net->layer[part->first].name, net->layer[part->end - 1].name);
}

int mr_net_cut(struct mr_net *net, const struct mr_net_part *which)
{
    const struct mr_net_part part = {which->first, which->end ? which->end : net->n_nodes};
    const bool sends = part.end < net->n_nodes;
    uint32_t first, end, first_buffer, end_buffer;
    if (part.first == 0 && part.end == net->n_nodes)
        return 0;
    int rc = check_part(net, &part);
    if (rc < 0)
        return rc;
    param_range(net, &part, &first, &end);
    buffer_range(net, &part, &first_buffer, &end_buffer);
    keep_tensors(net, &part);
    keep(net->param, &net->n_params, &net->n_flat, first, end);
    keep(net->buffer, &net->n_buffers, &net->n_flat_buffers, first_buffer, end_buffer);
    for (uint32_t i = part.first; i < part.end; i++)
        renumber(&net->node[i], first, first_buffer);
    net->n_nodes = part.end - part.first;
    memmove(net->node, net->node + part.first, net->n_nodes * sizeof *net->node);
    memmove(net->layer, net->layer + part.first, net->n_nodes * sizeof *net->layer);
    net->inner = part.first > 0;
    net->sends = sends;
    net->first_param = first;
    return 0;
}

static struct mr_net_edge edge_of(const struct mr_net *net, uint32_t tensor)
{
    const struct mr_nn_tensor *t = &net->tensor[tensor];
    return (struct mr_net_edge){t->value, t->grad, t->count * net->element};
}

void mr_net_edges(const struct mr_net *net, struct mr_net_edge *in, struct mr_net_edge *out)
{
    if (in)
        *in = edge_of(net, 0);
    if (out)
        *out = edge_of(net, net->node[net->n_nodes - 1].out);
}
