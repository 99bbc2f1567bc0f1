/* From a model's text to nodes: built-in models first become text themselves. */
#include "nn/net.h"

#include <ctype.h>
#include <millrace/options.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 8192
#define MAX_DEPTH  16 /* of residuals in residuals */

const char *mr_shape_text(const struct mr_nn_tensor *t, char buf[32])
{
    if (t->h == 1 && t->w == 1)
        snprintf(buf, 32, "%u", t->c);
    else
        snprintf(buf, 32, "%ux%ux%u", t->c, t->h, t->w);
    return buf;
}

/* What a layer's arguments are; one struct for all. */
struct args {
    uint64_t n, k, s, p;
    int bias, channels;
    double share, epsilon, momentum;
    const char *name; /* of the layer, as it is written */
    int which;        /* of those that are added alike: an average or a maximum, an activation, a logarithm or not */
};

#define ARG(name, type, member, initial, lo, hi)                                                                       \
    {                                                                                                                  \
        name, 0, type, offsetof(struct args, member), initial, lo, hi                                                  \
    }
static const struct mr_option linear_options[] = {
    ARG("n", MR_OPT_UINT, n, NULL, 1, 1 << 20), ARG("bias", MR_OPT_FLAG, bias, "1", 0, 0), {NULL}};
static const struct mr_option conv_options[] = {
    ARG("n", MR_OPT_UINT, n, NULL, 1, 65536),  ARG("k", MR_OPT_UINT, k, "3", 1, 31),
    ARG("s", MR_OPT_UINT, s, "1", 1, 16),      ARG("p", MR_OPT_UINT, p, "0", 0, 30),
    ARG("bias", MR_OPT_FLAG, bias, "1", 0, 0), {NULL}};
static const struct mr_option pool_options[] = {
    ARG("k", MR_OPT_UINT, k, "2", 1, 4096), ARG("s", MR_OPT_UINT, s, "0", 0, 4096), {NULL}};
static const struct mr_option dropout_options[] = {
    ARG("p", MR_OPT_DOUBLE, share, "0.5", 0, 0.999999), ARG("2d", MR_OPT_FLAG, channels, "0", 0, 0), {NULL}};
static const struct mr_option norm_options[] = {ARG("eps", MR_OPT_DOUBLE, epsilon, "1e-5", 1e-12, 1),
                                                ARG("momentum", MR_OPT_DOUBLE, momentum, "0.1", 1e-6, 1),
                                                {NULL}};
static const struct mr_option no_options[] = {{NULL}};

struct builder {
    struct mr_net *net;
    uint32_t at;     /* the tensor that the next layer reads */
    uint32_t number; /* of the layer in the text, from 1 */
    uint32_t depth;
    uint32_t fence; /* the input of the latest residual: its producer is done, since the way around reads it, too */
};

static int add_layers(struct builder *b, char *text, size_t bytes);

/* A parameter of these dimensions behind the others, at a place that 16-byte loads reach in every precision. */
static uint32_t add_param(struct mr_net_param *list, uint32_t *n, uint64_t *n_flat, const char *layer, const char *what,
                          int rank, const uint64_t *dim, int decays)
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

static uint32_t param(struct mr_net *net, const char *layer, const char *what, int rank, const uint64_t *dim)
{
    return add_param(net->param, &net->n_params, &net->n_flat, layer, what, rank, dim, rank > 1);
}

/* A new node behind the others, with an output tensor of this shape. NULL when there are too many. */
static struct mr_node *add_node(struct builder *b, enum mr_node_kind kind, uint32_t c, uint32_t h, uint32_t w)
{
    struct mr_net *net = b->net;
    if (net->n_nodes == MR_NN_MAX_NODES || net->n_params + 4 > MR_NN_MAX_PARAMS) {
        mr_error_set(MR_ELIMIT, "model: more than %d layers", MR_NN_MAX_NODES);
        return NULL;
    }
    struct mr_nn_tensor *in = &net->tensor[b->at];
    net->tensor[net->n_tensors] = (struct mr_nn_tensor){.c = c, .h = h, .w = w, .count = (uint64_t)c * h * w};
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

static int check_outputs(const struct builder *b, const struct args *a)
{
    return a->n ? 0
                : mr_error_set(MR_EOPTION, "model: layer %u: %s wants how many outputs: %s:32", b->number, a->name,
                               a->name);
}

static int add_linear(struct builder *b, const struct args *a)
{
    int rc = check_outputs(b, a);
    if (rc)
        return rc;
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    char shape[32], name[24];
    if (in.h * in.w != 1)
        return mr_error_set(MR_ESHAPE,
                            "model: layer %u: linear:%llu reads a vector, but its input is %s: put flatten before it",
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

static int add_conv(struct builder *b, const struct args *a)
{
    int rc = check_outputs(b, a);
    if (rc)
        return rc;
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    char shape[32], name[24];
    uint64_t k = a->k, h = in.h + 2 * a->p, w = in.w + 2 * a->p;
    if (h < k || w < k)
        return mr_error_set(MR_ESHAPE, "model: layer %u: conv %llux%llu with padding %llu does not fit its input %s",
                            b->number, (unsigned long long)k, (unsigned long long)k, (unsigned long long)a->p,
                            mr_shape_text(&in, shape));
    struct mr_node *node =
        add_node(b, MR_NODE_CONV, (uint32_t)a->n, (uint32_t)((h - k) / a->s + 1), (uint32_t)((w - k) / a->s + 1));
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
    snprintf(layer->text, sizeof layer->text, "conv %llu, %llux%llu", (unsigned long long)a->n, (unsigned long long)k,
             (unsigned long long)k);
    layer->n_params = a->n * in.c * k * k + (a->bias ? a->n : 0);
    layer->flops = 2 * net->tensor[node->out].count * in.c * k * k;
    return 0;
}

static int add_pool(struct builder *b, const struct args *a)
{
    struct mr_nn_tensor in = b->net->tensor[b->at];
    char shape[32];
    uint64_t s = a->s ? a->s : a->k;
    if (in.h < a->k || in.w < a->k)
        return mr_error_set(MR_ESHAPE, "model: layer %u: a pool of %llux%llu does not fit its input %s", b->number,
                            (unsigned long long)a->k, (unsigned long long)a->k, mr_shape_text(&in, shape));
    struct mr_node *node =
        add_node(b, MR_NODE_POOL, in.c, (uint32_t)((in.h - a->k) / s + 1), (uint32_t)((in.w - a->k) / s + 1));
    if (!node)
        return MR_ELIMIT;
    node->k = (uint32_t)a->k;
    node->stride = (uint32_t)s;
    node->average = a->which;
    struct mr_net_layer *layer = layer_of(b->net, node);
    snprintf(layer->name, sizeof layer->name, "pool");
    snprintf(layer->text, sizeof layer->text, "%s %u", a->which ? "average pool" : "max pool", node->k);
    return 0;
}

static int add_norm(struct builder *b, const struct args *a)
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
    node->mean = add_param(net->buffer, &net->n_buffers, &net->n_flat_buffers, name, "running_mean", 1, &c, 0);
    add_param(net->buffer, &net->n_buffers, &net->n_flat_buffers, name, "running_var", 1, &c, 0);
    node->epsilon = a->epsilon;
    node->p = a->momentum;
    struct mr_net_layer *layer = layer_of(net, node);
    snprintf(layer->name, sizeof layer->name, "%s", name);
    snprintf(layer->text, sizeof layer->text, "batch norm");
    layer->n_params = 2 * c;
    return 0;
}

/* An activation joins the product or norm before it; but GELU, whose gradient wants what went into it, and the first of a
 * residual's body. */
static int add_act(struct builder *b, const struct args *a)
{
    enum mr_act act = (enum mr_act)a->which;
    struct mr_net *net = b->net;
    struct mr_node *last = net->n_nodes ? &net->node[net->n_nodes - 1] : NULL;
    bool product = last && (last->kind == MR_NODE_LINEAR || last->kind == MR_NODE_CONV || last->kind == MR_NODE_NORM);
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

static int add_dropout(struct builder *b, const struct args *a)
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
    snprintf(layer->text, sizeof layer->text, "dropout %g%s", a->share, a->channels ? " of channels" : "");
    return 0;
}

static int add_flatten(struct builder *b, const struct args *a)
{
    (void)a;
    struct mr_net *net = b->net;
    struct mr_nn_tensor in = net->tensor[b->at];
    char shape[32];
    if (in.h == 1 && in.w == 1) /* a vector already */
        return 0;
    if (in.count > UINT32_MAX)
        return mr_error_set(MR_ELIMIT, "model: layer %u: flatten: its input %s has more than 2^32 - 1 elements",
                            b->number, mr_shape_text(&in, shape));
    struct mr_node *node = add_node(b, MR_NODE_FLATTEN, (uint32_t)in.count, 1, 1);
    if (!node)
        return MR_ELIMIT;
    snprintf(layer_of(net, node)->name, 24, "flatten");
    snprintf(layer_of(net, node)->text, 64, "flatten");
    return 0;
}

static int add_softmax(struct builder *b, const struct args *a)
{
    struct mr_nn_tensor in = b->net->tensor[b->at];
    char shape[32];
    if (in.h * in.w != 1)
        return mr_error_set(MR_ESHAPE, "model: layer %u: softmax reads a vector, but its input is %s", b->number,
                            mr_shape_text(&in, shape));
    struct mr_node *node = add_node(b, MR_NODE_SOFTMAX, in.c, 1, 1);
    if (!node)
        return MR_ELIMIT;
    node->log = a->which;
    snprintf(layer_of(b->net, node)->name, 24, a->which ? "log-softmax" : "softmax");
    snprintf(layer_of(b->net, node)->text, 64, a->which ? "log-softmax" : "softmax");
    return 0;
}

/* The way around a residual's body: nothing where shapes are equal, else a 1x1 convolution and a norm (He et al. 2015, B). */
static int add_shortcut(struct builder *b, uint32_t from, uint32_t to)
{
    struct mr_nn_tensor in = b->net->tensor[from], out = b->net->tensor[to];
    char one[32], two[32];
    b->at = from;
    if (in.c == out.c && in.h == out.h && in.w == out.w)
        return 0;
    uint32_t stride = out.h ? (in.h + out.h - 1) / out.h : 0;
    if (stride == 0 || (in.h - 1) / stride + 1 != out.h || (in.w - 1) / stride + 1 != out.w)
        return mr_error_set(MR_ESHAPE, "model: layer %u: residual: no stride takes its input %s to its body's %s",
                            b->number, mr_shape_text(&in, one), mr_shape_text(&out, two));
    int rc = add_conv(b, &(struct args){.n = out.c, .k = 1, .s = stride});
    return rc ? rc : add_norm(b, &(struct args){.epsilon = 1e-5, .momentum = 0.1});
}

/* The sum overwrites the body's output: no backward pass may read it. What a flatten gives may be another node's output. */
static bool can_be_added_to(const struct mr_net *net, uint32_t body)
{
    const struct mr_node *last = &net->node[net->n_nodes - 1];
    return last->out == body && last->act == MR_ACT_NONE && last->kind != MR_NODE_POOL &&
           last->kind != MR_NODE_SOFTMAX && last->kind != MR_NODE_FLATTEN;
}

static int add_residual(struct builder *b, char *text, size_t bytes)
{
    uint32_t from = b->at;
    if (bytes < 2 || text[0] != '{' || text[bytes - 1] != '}')
        return mr_error_set(MR_EOPTION, "model: layer %u: want residual:{layers}", b->number);
    if (b->depth == MAX_DEPTH)
        return mr_error_set(MR_ELIMIT, "model: layer %u: residuals lie more than %d deep", b->number, MAX_DEPTH);
    b->fence = from;
    b->depth++;
    int rc = add_layers(b, text + 1, bytes - 2);
    b->depth--;
    if (rc)
        return rc;
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
    rc = add_shortcut(b, from, body);
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

static const struct known {
    const char *name;
    int (*add)(struct builder *b, const struct args *a);
    int which;
    const struct mr_option *options; /* NULL: a residual, of layers */
    const char *positional;
} known[] = {
    {"linear", add_linear, 0, linear_options, "n"},    {"conv", add_conv, 0, conv_options, "n"},
    {"maxpool", add_pool, 0, pool_options, "k"},       {"avgpool", add_pool, 1, pool_options, "k"},
    {"relu", add_act, MR_ACT_RELU, no_options, NULL},  {"sigmoid", add_act, MR_ACT_SIGMOID, no_options, NULL},
    {"tanh", add_act, MR_ACT_TANH, no_options, NULL},  {"gelu", add_act, MR_ACT_GELU, no_options, NULL},
    {"dropout", add_dropout, 0, dropout_options, "p"}, {"batchnorm", add_norm, 0, norm_options, NULL},
    {"flatten", add_flatten, 0, no_options, NULL},     {"softmax", add_softmax, 0, no_options, NULL},
    {"logsoftmax", add_softmax, 1, no_options, NULL},  {"residual", NULL, 0, NULL, NULL},
};

static int no_such(const struct builder *b, const char *item)
{
    const char *names[MR_COUNT(known) + 1] = {NULL};
    for (size_t i = 0; i < MR_COUNT(known); i++)
        names[i] = known[i].name;
    return mr_error_no_such(item, names, "", "model: layer %u: '%.40s': no such layer", b->number, item);
}

/* "conv:32,k=3", which is cut up. */
static int add_layer(struct builder *b, char *item)
{
    char who[48], *args = strchr(item, ':');
    struct args a = {0};
    b->number++;
    if (args)
        *args++ = 0;
    for (size_t i = 0; i < MR_COUNT(known); i++) {
        const struct known *k = &known[i];
        if (strcmp(item, k->name) != 0)
            continue;
        if (!k->options)
            return add_residual(b, args, args ? strlen(args) : 0);
        const char *positional[] = {k->positional, NULL};
        snprintf(who, sizeof who, "model: layer %u: %s:", b->number, k->name);
        int rc = mr_options_init(k->options, &a);
        a.name = k->name;
        a.which = k->which;
        if (!rc && args)
            rc = mr_options_parse(k->options, &a, who, args, k->positional ? positional : NULL);
        return rc ? rc : k->add(b, &a);
    }
    return no_such(b, item);
}

/* Where the layer at p ends: at a comma outside of braces that a new layer's name follows ("k=3" still belongs to it). */
static size_t layer_bytes(const char *p, size_t left)
{
    int depth = 0;
    for (size_t i = 0; i < left; i++) {
        depth += (p[i] == '{') - (p[i] == '}');
        if (p[i] != ',' || depth > 0)
            continue;
        size_t j = i + 1;
        while (j < left && (isalnum((unsigned char)p[j]) || p[j] == '_'))
            j++;
        bool argument = (j < left && p[j] == '=') || (j - i == 3 && p[i + 1] == '2' && p[i + 2] == 'd');
        if (!argument)
            return i;
    }
    return left;
}

/* The text, which is cut up; text[bytes] is of no more use. */
static int add_layers(struct builder *b, char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        while (at < bytes && isspace((unsigned char)text[at]))
            at++;
        size_t n = layer_bytes(text + at, bytes - at), len = n;
        while (len > 0 && isspace((unsigned char)text[at + len - 1]))
            len--;
        if (len == 0)
            return mr_error_set(MR_EOPTION, "model: a layer is missing after layer %u", b->number);
        text[at + len] = 0;
        int rc = add_layer(b, text + at);
        if (rc)
            return rc;
        at += n + 1;
    }
    return 0;
}

/* "mlp:300s,100r,50s": hidden layers, and the outputs. */
static int mlp_text(const char *hidden, uint32_t classes, char *out, size_t cap)
{
    size_t at = (size_t)snprintf(out, cap, "flatten");
    for (const char *p = hidden; *p;) {
        char *end;
        unsigned long width = strtoul(p, &end, 10);
        const char *act = *end == 's'   ? "sigmoid"
                          : *end == 'r' ? "relu"
                          : *end == 't' ? "tanh"
                          : *end == 'g' ? "gelu"
                                        : NULL;
        if (end == p || width == 0 || width > 1 << 20 || !act || (end[1] && end[1] != ','))
            return mr_error_set(MR_EOPTION, "model: mlp:%s: want widths with s, r, t or g behind, as mlp:300s,100r,50s",
                                hidden);
        at += (size_t)snprintf(out + at, at < cap ? cap - at : 0, ",linear:%lu,%s", width, act);
        if (at >= cap - 64)
            return mr_error_set(MR_ELIMIT, "model: mlp: too many layers");
        p = end + 1 + (end[1] == ',');
    }
    snprintf(out + at, cap - at, ",linear:%u", classes);
    return 0;
}

/* He et al. 2015, section 4.2: 3 stages of 3 blocks of 16, 32 and 64 channels. */
static void resnet20_text(uint32_t classes, uint32_t height, char *out, size_t cap)
{
    size_t at = (size_t)snprintf(out, cap, "conv:16,p=1,bias=0,batchnorm,relu");
    for (int stage = 0; stage < 3; stage++)
        for (int block = 0; block < 3; block++)
            at +=
                (size_t)snprintf(out + at, cap - at,
                                 ",residual:{conv:%d,s=%d,p=1,bias=0,batchnorm,relu,conv:%d,p=1,bias=0,batchnorm},relu",
                                 16 << stage, stage && !block ? 2 : 1, 16 << stage);
    uint32_t side = ((height + 1) / 2 + 1) / 2;
    snprintf(out + at, cap - at, ",avgpool:%u,flatten,linear:%u", side ? side : 1, classes);
}

static int model_text(const struct mr_net *net, char *out, size_t cap)
{
    const char *model = net->model;
    uint32_t classes = net->opts.classes;
    if (!strcmp(model, "softmax"))
        snprintf(out, cap, "flatten,linear:%u", classes);
    else if (!strncmp(model, "mlp:", 4))
        return mlp_text(model + 4, classes, out, cap);
    else if (!strcmp(model, "mnist-cnn")) /* PyTorch's example for MNIST */
        snprintf(out, cap,
                 "conv:32,relu,conv:64,relu,maxpool:2,dropout:0.25,flatten,linear:128,relu,dropout:0.5,linear:%u",
                 classes);
    else if (!strcmp(model, "resnet20"))
        resnet20_text(classes, net->opts.height, out, cap);
    else if (strlen(model) >= cap)
        return mr_error_set(MR_ELIMIT, "model: more than %zu bytes", cap);
    else
        snprintf(out, cap, "%s", model);
    return 0;
}

int mr_model_build(struct mr_net *net)
{
    char text[TEXT_BYTES];
    const struct mr_net_opts *o = &net->opts;
    net->tensor[0] = (struct mr_nn_tensor){
        .c = o->channels, .h = o->height, .w = o->width, .count = (uint64_t)o->channels * o->height * o->width};
    net->n_tensors = 1;
    struct builder b = {.net = net};
    int rc = model_text(net, text, sizeof text);
    if (!rc)
        rc = add_layers(&b, text, strlen(text));
    if (!rc)
        rc = add_flatten(&b, NULL); /* losses and callers read c, h, w, whatever the backend's layout */
    if (!rc && net->n_params == 0)
        rc = mr_error_set(MR_EOPTION, "model: '%.80s' has no layer with parameters", net->model);
    return rc;
}
