/*
 * Initial parameters, with PyTorch's distributions: linear and convolution layers draw weights and
 * biases from U(-1/sqrt(fan_in), 1/sqrt(fan_in)) (its kaiming_uniform with a = sqrt(5): He et al.
 * 2015), norms begin with 1 and 0.
 */
#include "nn/net.h"

#include <math.h>
#include <string.h>

static void put(const struct mr_net *net, void *to, uint64_t i, double value)
{
    if (net->param_element == 8)
        ((double *)to)[i] = value;
    else
        ((float *)to)[i] = (float)value;
}

static void fill(const struct mr_net *net, void *to, const struct mr_net_param *p, double value)
{
    for (uint64_t i = 0; i < p->count; i++)
        put(net, to, p->offset + i, value);
}

/* which: the parameter's number: with that in the whole net each has draws of its own. */
static void draw_uniform(const struct mr_net *net, void *to, uint32_t which, double bound)
{
    const struct mr_net_param *p = &net->param[which];
    for (uint64_t i = 0; i < p->count; i += 2) {
        uint32_t r[4];
        mr_draw4(net->opts.seed, MR_DRAW_INIT, i / 2, net->first_param + which, 0, r);
        put(net, to, p->offset + i, (2 * mr_unit_f64(r[0], r[1]) - 1) * bound);
        if (i + 1 < p->count)
            put(net, to, p->offset + i + 1, (2 * mr_unit_f64(r[2], r[3]) - 1) * bound);
    }
}

static void init_node(const struct mr_net *net, const struct mr_node *node, void *params,
                      void *buffers)
{
    if (node->kind == MR_NODE_NORM) {
        fill(net, params, &net->param[node->weight], 1);
        fill(net, buffers, &net->buffer[node->mean + 1], 1);
    } else if (node->kind == MR_NODE_LINEAR || node->kind == MR_NODE_CONV) {
        const struct mr_net_param *w = &net->param[node->weight];
        uint64_t fan_in = w->count / w->dim[0];
        double bound = 1 / sqrt((double)fan_in);
        draw_uniform(net, params, node->weight, bound);
        if (node->bias != MR_NN_NONE)
            draw_uniform(net, params, node->bias, bound);
    }
}

static int upload(struct mr_net *net, void *to, const void *from, uint64_t bytes)
{
    int rc = bytes ? mr_copy_async(net->stream, to, MR_DEVICE, from, MR_PAGEABLE, bytes) : 0;
    return rc ? rc : mr_stream_synchronize(net->stream);
}

int mr_net_set(struct mr_net *net, const void *params, const void *buffers)
{
    if (!net)
        return mr_error_null("mr_net_set", "a net");
    int rc = params ? upload(net, net->params, params, net->n_flat * net->param_element) : 0;
    if (!rc && buffers)
        rc = upload(net, net->buffers, buffers, net->n_flat_buffers * net->param_element);
    return rc;
}

int mr_net_init(struct mr_net *net)
{
    uint64_t bytes = net->n_flat * net->param_element,
             buffer_bytes = net->n_flat_buffers * net->param_element;
    void *params = calloc(1, bytes), *buffers = calloc(1, buffer_bytes + 1);
    int rc = params && buffers ? 0 : mr_error_nomem("initial parameters", bytes);
    for (uint32_t i = 0; !rc && i < net->n_nodes; i++)
        init_node(net, &net->node[i], params, buffers);
    if (!rc)
        rc = mr_net_set(net, params, buffers);
    free(params);
    free(buffers);
    return rc;
}
