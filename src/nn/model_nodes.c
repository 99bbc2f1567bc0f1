/* From layers to nodes: shapes, parameters, and what joins what. */
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

const char *mr_shape_text(const struct mr_nn_tensor *t, char buf[32])
{
    if (t->h == 1 && t->w == 1)
        snprintf(buf, 32, "%u", t->c);
    else
        snprintf(buf, 32, "%ux%ux%u", t->c, t->h, t->w);
    return buf;
}

/* A parameter of these dimensions behind the others, at a place that 16-byte loads reach in every
 * precision. */
static uint32_t add_param(struct mr_net_param *list, uint32_t *n, uint64_t *n_flat,
                          const char *layer, const char *what, int rank, const uint64_t *dim,
                          int decays)
{
    if (*n == MR_NN_MAX_PARAMS)
        return MR_NN_NONE;
    struct mr_net_param *p = &list[*n];
    snprintf(p->name, sizeof p->name, "%.30s.%s", layer, what);
    p->rank = rank;
    p->count = 1;
    for (int d = 0; d < rank; d++)
        p->count *= p->dim[d] = dim[d];
    p->decays = decays;
    p->offset = *n_flat;
    *n_flat = mr_round_up(*n_flat + p->count, 8);
    return (*n)++;
}

static uint32_t param(struct mr_net *net, const char *layer, const char *what, int rank,
                      const uint64_t *dim)
{
    return add_param(net->param, &net->n_params, &net->n_flat, layer, what, rank, dim, rank > 1);
}

/* A new node behind the others, with an output tensor of this shape. NULL when there are too
 * many. */
static struct mr_node *add_node(struct mr_model_builder *b, enum mr_node_kind kind, uint32_t c,
                                uint32_t h, uint32_t w)
{
    struct mr_net *net = b->net;
    if (net->n_nodes == MR_NN_MAX_NODES || net->n_params + 4 > MR_NN_MAX_PARAMS) {
        mr_error_set(MR_ELIMIT, "model: more than %d layers", MR_NN_MAX_NODES);
        return NULL;
    }
    struct mr_nn_tensor *in = &net->tensor[b->at];
    net->tensor[net->n_tensors] =
        (struct mr_nn_tensor){.c = c, .h = h, .w = w, .count = (uint64_t)c * h * w};
    struct mr_node *node = &net->node[net->n_nodes];
    *node = (struct mr_node){.kind = kind, .in = b->at, .out = net->n_tensors++};
    node->weight = node->bias = node->mean = MR_NN_NONE;
    struct mr_net_layer *layer = &net->layer[net->n_nodes++];
    *layer = (struct mr_net_layer){.in = {in->c, in->h, in->w}, .out = {c, h, w}};
    b->at = node->out;
    return node;
}

static struct mr_net_layer *layer_of(struct mr_net *net, const struct mr_node *node)
{
    return &net->layer[node - net->node];
}

static int check_outputs(const struct mr_model_builder *b, const struct mr_model_args *a)
{
    return a->n ? 0
                : mr_error_set(MR_EOPTION, "model: layer %u: %s needs the number of outputs: %s:32",
                               b->number, a->name, a->name);
}

int mr_model_add_linear(struct mr_model_builder *b, const struct mr_model_args *a)
{
    int rc = check_outputs(b, a);
    if (rc)
        return rc;
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    char shape[32], name[24];
    if (in.h * in.w != 1)
        return mr_error_set(MR_ESHAPE,
                            "model: layer %u: linear:%llu reads a vector, but its input is %s: put "
                            "flatten before it",
                            b->number, (unsigned long long)a->n, mr_shape_text(&in, shape));
    struct mr_node *node = add_node(b, MR_NODE_LINEAR, (uint32_t)a->n, 1, 1);
    if (!node)
        return MR_ELIMIT;
    snprintf(name, sizeof name, "fc%u", ++net->n_named[1]);
    node->weight = param(net, name, "weight", 2, (uint64_t[]){a->n, in.c});
    if (a->bias)
        node->bias = param(net, name, "bias", 1, &a->n);
    struct mr_net_layer *layer = layer_of(net, node);
    snprintf(layer->name, sizeof layer->name, "%s", name);
    snprintf(layer->text, sizeof layer->text, "linear %llu", (unsigned long long)a->n);
    layer->n_params = a->n * in.c + (a->bias ? a->n : 0);
    layer->flops = 2 * a->n * in.c;
    return 0;
}

/* A window of k x k that its input is smaller than. what: "conv 3x3 with padding 0". */
static int does_not_fit(const struct mr_model_builder *b, const char *what,
                        const struct mr_nn_tensor *in)
{
    char shape[32];
    if (in->h == 1 && in->w == 1)
        return mr_error_set(MR_ESHAPE,
                            "model: layer %u: %s takes pictures, and its input is %u numbers "
                            "(words, a table's row): expected layers such as linear, as in the "
                            "models mlp:300r,100r and softmax",
                            b->number, what, in->c);
    return mr_error_set(MR_ESHAPE, "model: layer %u: %s does not fit its input %s", b->number, what,
                        mr_shape_text(in, shape));
}

int mr_model_add_conv(struct mr_model_builder *b, const struct mr_model_args *a)
{
    int rc = check_outputs(b, a);
    if (rc)
        return rc;
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    char what[96], name[24];
    uint64_t k = a->k, h = in.h + 2 * a->p, w = in.w + 2 * a->p;
    snprintf(what, sizeof what, "conv %llux%llu with padding %llu", (unsigned long long)k,
             (unsigned long long)k, (unsigned long long)a->p);
    if (h < k || w < k)
        return does_not_fit(b, what, &in);
    struct mr_node *node = add_node(b, MR_NODE_CONV, (uint32_t)a->n, (uint32_t)((h - k) / a->s + 1),
                                    (uint32_t)((w - k) / a->s + 1));
    if (!node)
        return MR_ELIMIT;
    node->k = (uint32_t)k;
    node->stride = (uint32_t)a->s;
    node->pad = (uint32_t)a->p;
    snprintf(name, sizeof name, "conv%u", ++net->n_named[0]);
    node->weight = param(net, name, "weight", 4, (uint64_t[]){a->n, in.c, k, k});
    if (a->bias)
        node->bias = param(net, name, "bias", 1, &a->n);
    struct mr_net_layer *layer = layer_of(net, node);
    snprintf(layer->name, sizeof layer->name, "%s", name);
    snprintf(layer->text, sizeof layer->text, "conv %llu, %llux%llu", (unsigned long long)a->n,
             (unsigned long long)k, (unsigned long long)k);
    layer->n_params = a->n * in.c * k * k + (a->bias ? a->n : 0);
    layer->flops = 2 * net->tensor[node->out].count * in.c * k * k;
    return 0;
}

int mr_model_add_pool(struct mr_model_builder *b, const struct mr_model_args *a)
{
    struct mr_nn_tensor in = b->net->tensor[b->at];
    char what[64];
    uint64_t s = a->s ? a->s : a->k;
    snprintf(what, sizeof what, "a pool of %llux%llu", (unsigned long long)a->k,
             (unsigned long long)a->k);
    if (in.h < a->k || in.w < a->k)
        return does_not_fit(b, what, &in);
    struct mr_node *node = add_node(b, MR_NODE_POOL, in.c, (uint32_t)((in.h - a->k) / s + 1),
                                    (uint32_t)((in.w - a->k) / s + 1));
    if (!node)
        return MR_ELIMIT;
    node->k = (uint32_t)a->k;
    node->stride = (uint32_t)s;
    node->average = a->which;
    struct mr_net_layer *layer = layer_of(b->net, node);
    snprintf(layer->name, sizeof layer->name, "pool");
    snprintf(layer->text, sizeof layer->text, "%s %u", a->which ? "average pool" : "max pool",
             node->k);
    return 0;
}

int mr_model_add_norm(struct mr_model_builder *b, const struct mr_model_args *a)
{
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    struct mr_node *node = add_node(b, MR_NODE_NORM, in.c, in.h, in.w);
    char name[24];
    uint64_t c = in.c;
    if (!node)
        return MR_ELIMIT;
    snprintf(name, sizeof name, "bn%u", ++net->n_named[2]);
    node->weight = param(net, name, "weight", 1, &c);
    node->bias = param(net, name, "bias", 1, &c);
    node->mean = add_param(net->buffer, &net->n_buffers, &net->n_flat_buffers, name, "running_mean",
                           1, &c, 0);
    add_param(net->buffer, &net->n_buffers, &net->n_flat_buffers, name, "running_var", 1, &c, 0);
    node->epsilon = a->epsilon;
    node->p = a->momentum;
    struct mr_net_layer *layer = layer_of(net, node);
    snprintf(layer->name, sizeof layer->name, "%s", name);
    snprintf(layer->text, sizeof layer->text, "batch norm");
    layer->n_params = 2 * c;
    return 0;
}

/* An activation joins the product or norm before it; but GELU, whose gradient wants what went into
 * it, and the first of a residual's body. */
int mr_model_add_act(struct mr_model_builder *b, const struct mr_model_args *a)
{
    enum mr_act act = (enum mr_act)a->which;
    struct mr_net *net = b->net;
    struct mr_node *last = net->n_nodes ? &net->node[net->n_nodes - 1] : NULL;
    bool product = last && (last->kind == MR_NODE_LINEAR || last->kind == MR_NODE_CONV ||
                            last->kind == MR_NODE_NORM);
    bool alone = last && last->out == b->at && b->at != b->fence;
    if (product && alone && last->act == MR_ACT_NONE && act != MR_ACT_GELU) {
        last->act = act;
        struct mr_net_layer *layer = layer_of(net, last);
        size_t at = strlen(layer->text);
        snprintf(layer->text + at, sizeof layer->text - at, ", %s", a->name);
        return 0;
    }
    struct mr_nn_tensor in = net->tensor[b->at];
    struct mr_node *node = add_node(b, MR_NODE_ACT, in.c, in.h, in.w);
    if (!node)
        return MR_ELIMIT;
    node->act = act;
    snprintf(layer_of(net, node)->name, 24, "%s", a->name);
    snprintf(layer_of(net, node)->text, 64, "%s", a->name);
    return 0;
}

int mr_model_add_dropout(struct mr_model_builder *b, const struct mr_model_args *a)
{
    struct mr_nn_tensor in = b->net->tensor[b->at];
    struct mr_node *node = add_node(b, MR_NODE_DROPOUT, in.c, in.h, in.w);
    if (!node)
        return MR_ELIMIT;
    node->p = a->share;
    node->per_channel = a->channels;
    node->number = b->net->n_dropouts++;
    struct mr_net_layer *layer = layer_of(b->net, node);
    snprintf(layer->name, sizeof layer->name, "dropout%u", node->number + 1);
    snprintf(layer->text, sizeof layer->text, "dropout %g%s", a->share,
             a->channels ? " of channels" : "");
    return 0;
}

int mr_model_add_flatten(struct mr_model_builder *b, const struct mr_model_args *a)
{
    (void)a;
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    char shape[32];
    if (in.h == 1 && in.w == 1) /* a vector already */
        return 0;
    if (in.count > UINT32_MAX)
        return mr_error_set(
            MR_ELIMIT, "model: layer %u: flatten: its input %s has more than 2^32 - 1 elements",
            b->number, mr_shape_text(&in, shape));
    struct mr_node *node = add_node(b, MR_NODE_FLATTEN, (uint32_t)in.count, 1, 1);
    if (!node)
        return MR_ELIMIT;
    snprintf(layer_of(net, node)->name, 24, "flatten");
    snprintf(layer_of(net, node)->text, 64, "flatten");
    return 0;
}

int mr_model_add_softmax(struct mr_model_builder *b, const struct mr_model_args *a)
{
    struct mr_nn_tensor in = b->net->tensor[b->at];
    char shape[32];
    if (in.h * in.w != 1)
        return mr_error_set(MR_ESHAPE,
                            "model: layer %u: softmax reads a vector, but its input is %s",
                            b->number, mr_shape_text(&in, shape));
    struct mr_node *node = add_node(b, MR_NODE_SOFTMAX, in.c, 1, 1);
    if (!node)
        return MR_ELIMIT;
    node->log = a->which;
    snprintf(layer_of(b->net, node)->name, 24, a->which ? "log-softmax" : "softmax");
    snprintf(layer_of(b->net, node)->text, 64, a->which ? "log-softmax" : "softmax");
    return 0;
}

/* The way around a residual's body: nothing where shapes are equal, else a 1x1 convolution and a
 * norm (He et al. 2015, B). */
static int add_shortcut(struct mr_model_builder *b, uint32_t from, uint32_t to)
{
    struct mr_nn_tensor in = b->net->tensor[from], out = b->net->tensor[to];
    char one[32], two[32];
    b->at = from;
    if (in.c == out.c && in.h == out.h && in.w == out.w)
        return 0;
    uint32_t stride = out.h ? (in.h + out.h - 1) / out.h : 0;
    if (stride == 0 || (in.h - 1) / stride + 1 != out.h || (in.w - 1) / stride + 1 != out.w)
        return mr_error_set(
            MR_ESHAPE, "model: layer %u: residual: no stride takes its input %s to its body's %s",
            b->number, mr_shape_text(&in, one), mr_shape_text(&out, two));
    int rc = mr_model_add_conv(b, &(struct mr_model_args){.n = out.c, .k = 1, .s = stride});
    return rc ? rc
              : mr_model_add_norm(b, &(struct mr_model_args){.epsilon = 1e-5, .momentum = 0.1});
}

/* The sum overwrites the body's output: no backward pass may read it. What a flatten gives may be
 * another node's output. */
static bool can_be_added_to(const struct mr_net *net, uint32_t body)
{
    const struct mr_node *last = &net->node[net->n_nodes - 1];
    return last->out == body && last->act == MR_ACT_NONE && last->kind != MR_NODE_POOL &&
           last->kind != MR_NODE_SOFTMAX && last->kind != MR_NODE_FLATTEN;
}

int mr_model_add_sum(struct mr_model_builder *b, uint32_t from)
{
    uint32_t body = b->at;
    if (body == from)
        return mr_error_set(MR_EOPTION, "model: layer %u: a residual without layers", b->number);
    if (!can_be_added_to(b->net, body)) {
        struct mr_nn_tensor in = b->net->tensor[body];
        struct mr_node *copy = add_node(b, MR_NODE_ACT, in.c, in.h, in.w);
        if (!copy)
            return MR_ELIMIT;
        snprintf(layer_of(b->net, copy)->name, 24, "copy");
        body = b->at;
    }
    int rc = add_shortcut(b, from, body);
    if (rc)
        return rc;
    struct mr_nn_tensor out = b->net->tensor[body];
    struct mr_node *node = add_node(b, MR_NODE_ADD, out.c, out.h, out.w);
    if (!node)
        return MR_ELIMIT;
    b->net->n_tensors--; /* it adds in place */
    node->out = body;
    b->at = body;
    snprintf(layer_of(b->net, node)->name, 24, "add");
    snprintf(layer_of(b->net, node)->text, 64, "add");
    return 0;
}
