/* Where a number that is not finite came from. */
#include "nn/net.h"

#include "kernels/half.h"

#include <errno.h>
#include <math.h>

static bool is_finite(const void *data, size_t element, enum mr_dtype dtype, uint64_t i)
{
    if (element == 8)
        return isfinite(((const double *)data)[i]);
    if (element == 4)
        return isfinite(((const float *)data)[i]);
    uint16_t bits = ((const uint16_t *)data)[i];
    return isfinite(dtype == MR_BF16 ? mr_f32_of_bf16(bits) : mr_f32_of_f16(bits));
}

/* 1: all finite, 0: not, negative: error. */
static int check(struct mr_net *net, struct mr_stream *stream, const void *data, uint64_t count,
                 size_t element)
{
    void *host = malloc(count * element);
    if (!host)
        return mr_error_nomem("net", count * element);
    int rc = mr_copy_async(stream, host, MR_PAGEABLE, data, MR_DEVICE, count * element);
    if (!rc)
        rc = mr_stream_synchronize(stream);
    int good = 1;
    for (uint64_t i = 0; !rc && good && i < count; i++)
        good = is_finite(host, element, net->opts.dtype, i);
    free(host);
    return rc ? rc : good;
}

static int check_param(struct mr_net *net, struct mr_stream *stream, uint32_t which)
{
    if (which == MR_NN_NONE)
        return 1;
    const struct mr_net_param *p = &net->param[which];
    return check(net, stream, (char *)net->params + p->offset * net->param_element, p->count,
                 net->param_element);
}

/* Is what node i made overwritten by a residual's sum? Then that is looked at, behind the way
 * around. */
static bool is_summand(const struct mr_net *net, uint32_t i)
{
    for (uint32_t k = i + 1; k < net->n_nodes; k++)
        if (net->node[k].kind == MR_NODE_ADD && net->node[k].out == net->node[i].out)
            return true;
    return false;
}

int mr_net_find_bad(struct mr_net *net, struct mr_stream *stream, const char **what)
{
    if (!net || !what)
        return mr_error_null("mr_net_find_bad", "a net and a place for the result");
    int rc = mr_net_use_stream(net, stream, "mr_net_find_bad");
    if (rc)
        return rc;
    stream = stream ? stream : net->stream;
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        const struct mr_node *node = &net->node[i];
        int good = check_param(net, stream, node->weight);
        if (good == 1)
            good = check_param(net, stream, node->bias);
        *what = "parameters";
        if (good == 1 && !is_summand(net, i)) {
            const struct mr_nn_tensor *out = &net->tensor[node->out];
            good = check(net, stream, out->value, out->count * net->last_n, net->element);
            *what = "output";
        }
        if (good != 1)
            return good < 0 ? good : (int)i;
    }
    return -ENODATA;
}
