/* From a model's text to layers: built-in models first become text themselves. */
#include "nn/model.h"

#include <ctype.h>
#include <millrace/options.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 8192
#define MAX_DEPTH  16 /* of residuals in residuals */

#define ARG(name, type, member, initial, lo, hi)                                                   \
    {                                                                                              \
        name, 0, type, offsetof(struct mr_model_args, member), initial, lo, hi                     \
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
    ARG("p", MR_OPT_DOUBLE, share, "0.5", 0, 0.999999),
    ARG("2d", MR_OPT_FLAG, channels, "0", 0, 0),
    {NULL}};
static const struct mr_option norm_options[] = {
    ARG("eps", MR_OPT_DOUBLE, epsilon, "1e-5", 1e-12, 1),
    ARG("momentum", MR_OPT_DOUBLE, momentum, "0.1", 1e-6, 1),
    {NULL}};
static const struct mr_option no_options[] = {{NULL}};

static int add_layers(struct mr_model_builder *b, char *text, size_t bytes);

static int add_residual(struct mr_model_builder *b, char *text, size_t bytes)
{
    uint32_t from = b->at;
    if (bytes < 2 || text[0] != '{' || text[bytes - 1] != '}')
        return mr_error_set(MR_EOPTION, "model: layer %u: expected residual:{layers}", b->number);
    if (b->depth == MAX_DEPTH)
        return mr_error_set(MR_ELIMIT, "model: layer %u: residuals lie more than %d deep",
                            b->number, MAX_DEPTH);
    b->fence = from;
    b->depth++;
    int rc = add_layers(b, text + 1, bytes - 2);
    b->depth--;
    return rc ? rc : mr_model_add_sum(b, from);
}

static const struct known {
    const char *name;
    int (*add)(struct mr_model_builder *b, const struct mr_model_args *a);
    int which;
    const struct mr_option *options; /* NULL: a residual, of layers */
    const char *positional;
} known[] = {
    {"linear", mr_model_add_linear, 0, linear_options, "n"},
    {"conv", mr_model_add_conv, 0, conv_options, "n"},
    {"maxpool", mr_model_add_pool, 0, pool_options, "k"},
    {"avgpool", mr_model_add_pool, 1, pool_options, "k"},
    {"relu", mr_model_add_act, MR_ACT_RELU, no_options, NULL},
    {"sigmoid", mr_model_add_act, MR_ACT_SIGMOID, no_options, NULL},
    {"tanh", mr_model_add_act, MR_ACT_TANH, no_options, NULL},
    {"gelu", mr_model_add_act, MR_ACT_GELU, no_options, NULL},
    {"dropout", mr_model_add_dropout, 0, dropout_options, "p"},
    {"batchnorm", mr_model_add_norm, 0, norm_options, NULL},
    {"flatten", mr_model_add_flatten, 0, no_options, NULL},
    {"softmax", mr_model_add_softmax, 0, no_options, NULL},
    {"logsoftmax", mr_model_add_softmax, 1, no_options, NULL},
    {"residual", NULL, 0, NULL, NULL},
};

static int no_such(const struct mr_model_builder *b, const char *item)
{
    const char *names[MR_COUNT(known) + 1] = {NULL};
    for (size_t i = 0; i < MR_COUNT(known); i++)
        names[i] = known[i].name;
    return mr_error_no_such(item, names, "", "model: layer %u: '%.40s': no such layer", b->number,
                            item);
}

/* A single word that is no layer is meant as a model. */
static int check_word(const char *model)
{
    static const char *const models[] = {"softmax", "mlp:300s,100r,50s", "mnist-cnn", "resnet20",
                                         NULL};
    if (!model[0] || strpbrk(model, ",:{"))
        return 0;
    for (size_t i = 0; i < MR_COUNT(known); i++)
        if (!strcmp(model, known[i].name))
            return 0;
    return mr_error_no_such(model, models, "",
                            "model '%.40s': no such model, and no layer "
                            "(conv:8,relu,flatten,linear:10 is a list of them)",
                            model);
}

/* "conv:32,k=3", which is cut up. */
static int add_layer(struct mr_model_builder *b, char *item)
{
    char who[48], *args = strchr(item, ':');
    struct mr_model_args a = {0};
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

/* Where the layer at p ends: at a comma outside of braces that a new layer's name follows ("k=3"
 * still belongs to it). */
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
        bool argument =
            (j < left && p[j] == '=') || (j - i == 3 && p[i + 1] == '2' && p[i + 2] == 'd');
        if (!argument)
            return i;
    }
    return left;
}

/* The text, which is cut up; text[bytes] is of no more use. */
static int add_layers(struct mr_model_builder *b, char *text, size_t bytes)
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
            return mr_error_set(
                MR_EOPTION,
                "model: mlp:%s: expected widths with s, r, t or g behind, as mlp:300s,100r,50s",
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
static void resnet20_text(uint32_t classes, uint32_t shorter, char *out, size_t cap)
{
    size_t at = (size_t)snprintf(out, cap, "conv:16,p=1,bias=0,batchnorm,relu");
    for (int stage = 0; stage < 3; stage++)
        for (int block = 0; block < 3; block++)
            at += (size_t)snprintf(out + at, cap - at,
                                   ",residual:{conv:%d,s=%d,p=1,bias=0,batchnorm,relu,conv:%d,p=1,"
                                   "bias=0,batchnorm},relu",
                                   16 << stage, stage && !block ? 2 : 1, 16 << stage);
    uint32_t side = ((shorter + 1) / 2 + 1) / 2; /* the pool fits along both sides */
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
                 "conv:32,relu,conv:64,relu,maxpool:2,dropout:0.25,flatten,linear:128,relu,dropout:"
                 "0.5,linear:%u",
                 classes);
    else if (!strcmp(model, "resnet20"))
        resnet20_text(classes, MR_MIN(net->opts.height, net->opts.width), out, cap);
    else if (strlen(model) >= cap)
        return mr_error_set(MR_ELIMIT, "model: more than %zu bytes", cap);
    else
        snprintf(out, cap, "%s", model);
    return check_word(out);
}

int mr_model_build(struct mr_net *net)
{
    char text[TEXT_BYTES];
    const struct mr_net_opts *o = &net->opts;
    net->tensor[0] = (struct mr_nn_tensor){.c = o->channels,
                                           .h = o->height,
                                           .w = o->width,
                                           .count = (uint64_t)o->channels * o->height * o->width};
    net->n_tensors = 1;
    struct mr_model_builder b = {.net = net};
    int rc = model_text(net, text, sizeof text);
    if (!rc)
        rc = add_layers(&b, text, strlen(text));
    if (!rc)
        rc = mr_model_add_flatten(
            &b, NULL); /* losses and callers read c, h, w, whatever the backend's layout */
    if (!rc && net->n_params == 0)
        rc = mr_error_set(MR_EOPTION, "model: '%.80s' has no layer with parameters", net->model);
    return rc;
}
