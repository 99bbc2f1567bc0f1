/* Making a net: its nodes, its memory, its backend. */
#include "nn/net.h"

#include <stdio.h>
#include <string.h>

void mr_net_opts_fill(struct mr_net_opts *opts, size_t size)
{
    const struct mr_net_opts full = {.model = "mnist-cnn",
                                     .channels = 1,
                                     .height = 28,
                                     .width = 28,
                                     .classes = 10,
                                     .dtype = MR_F32,
                                     .tf32 = 1,
                                     .max_batch = 64};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int check(const struct mr_net_opts *o)
{
    if (!o->model || !*o->model)
        return mr_error_set(MR_EOPTION, "net: no model");
    if (o->channels == 0 || o->height == 0 || o->width == 0 || o->channels > 65536 ||
        o->height > 65536 || o->width > 65536)
        return mr_error_set(MR_EOPTION, "net: samples of %ux%ux%u: expected 1..65536 each",
                            o->channels, o->height, o->width);
    if (o->classes == 0 || o->classes > 1 << 20)
        return mr_error_set(MR_EOPTION, "net: %u classes: expected 1..%d", o->classes, 1 << 20);
    if (o->max_batch == 0 || o->max_batch > 1 << 20)
        return mr_error_set(MR_EOPTION, "net: batches of up to %u: expected 1..%d", o->max_batch,
                            1 << 20);
    if (o->dtype != MR_F32 && o->dtype != MR_F64 && o->dtype != MR_BF16 && o->dtype != MR_F16)
        return mr_error_set(MR_EOPTION, "net: computes in f32, f64, bf16 or f16, not in %s",
                            mr_dtype_name(o->dtype));
    if ((uint32_t)o->loss > MR_MSE || (uint32_t)o->layout > MR_NHWC)
        return mr_error_set(MR_EOPTION, "net: loss %d, layout %d: no such", (int)o->loss,
                            (int)o->layout);
    return 0;
}

static int open_backend(struct mr_net *net)
{
    struct mr_device_info info = {.size = sizeof info};
    int rc = mr_device_query(net->device, &info);
    if (rc)
        return rc;
    net->queued = info.simulated;
    if (!info.unified && !info.simulated)
        net->ops = &mr_nn_cuda;
    else
        net->ops = net->opts.dtype == MR_F64 ? &mr_nn_cpu_f64 : &mr_nn_cpu_f32;
    rc = net->ops->open(net->device, &net->opts, &net->backend);
    if (rc)
        return rc;
    net->element = net->ops->element(net->backend, &net->layout);
    net->param_element = net->opts.dtype == MR_F64 ? 8 : 4;
    mr_net_fuse(net);
    return mr_stream_create(net->device, "net", &net->stream);
}

static uint32_t readers(const struct mr_net *net, uint32_t tensor)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < net->n_nodes; i++)
        n += net->node[i].in == tensor;
    return n;
}

/* Tensors that are the input's bytes under another name: flattened NCHW that nothing else reads, as
 * its gradient is the other's. */
static bool is_alias(const struct mr_net *net, const struct mr_node *node)
{
    return node->kind == MR_NODE_FLATTEN &&
           (net->layout == MR_NCHW || net->tensor[node->in].c == 1) && readers(net, node->in) == 1;
}

/* The next piece of the arena; sums first (arena NULL), then places. */
static void *take(struct mr_net *net, uint64_t *at, uint64_t bytes)
{
    void *p = net->arena ? (char *)net->arena + *at : NULL;
    *at = mr_round_up(*at + bytes, 256);
    return p;
}

/* Places in a picture, and the pictures of a batch that is pooled, are counted in 32 bits, signed
 * on GPUs. */
static int check_shapes(const struct mr_net *net)
{
    char shape[32];
    for (uint32_t t = 0; t < net->n_tensors; t++)
        if ((uint64_t)net->tensor[t].h * net->tensor[t].w > INT32_MAX)
            return mr_error_set(
                MR_ELIMIT, "net: pictures of %s are too large: expected at most 2^31 - 1 pixels",
                mr_shape_text(&net->tensor[t], shape));
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        const struct mr_nn_tensor *in = &net->tensor[net->node[i].in];
        if (net->node[i].kind == MR_NODE_POOL && (uint64_t)net->opts.max_batch * in->c > UINT32_MAX)
            return mr_error_set(
                MR_ELIMIT,
                "net: a pool of %s in batches of %u: expected at most 2^32 - 1 channels in a batch",
                mr_shape_text(in, shape), net->opts.max_batch);
    }
    return 0;
}

static int place(struct mr_net *net, uint64_t *out_bytes)
{
    uint64_t at = 0, largest = 0, n = net->opts.max_batch;
    for (uint32_t t = 0; t < net->n_tensors; t++) {
        uint64_t bytes;
        if (!mr_mul(net->tensor[t].count, n * net->element, &bytes) ||
            at > UINT64_MAX / 4 - bytes || bytes > 1ull << 48)
            return mr_error_set(
                MR_ELIMIT,
                "net: activations of %llu elements a sample are too many for batches of %llu",
                (unsigned long long)net->tensor[t].count, (unsigned long long)n);
        net->tensor[t].value = take(net, &at, bytes);
        net->tensor[t].grad = t || net->inner ? take(net, &at, bytes) : NULL;
        largest = MR_MAX(largest, bytes);
    }
    net->scratch = take(net, &at, largest);
    net->outputs =
        take(net, &at, net->tensor[net->node[net->n_nodes - 1].out].count * n * net->param_element);
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        struct mr_node *node = &net->node[i];
        if (node->kind == MR_NODE_NORM)
            node->saved = take(net, &at, 2ull * net->tensor[node->in].c * net->param_element);
        if (is_alias(net, node)) {
            net->tensor[node->out].value = net->tensor[node->in].value;
            net->tensor[node->out].grad = net->tensor[node->in].grad;
        }
        for (uint32_t k = 0; k + 1 < node->fused; k++) /* between them nothing is kept */
            net->tensor[node[k].out].value = net->tensor[node[node->fused - 1].out].value;
    }
    *out_bytes = at;
    return 0;
}

/* What each user of the same parameters has for itself. */
static int take_own_memory(struct mr_net *net)
{
    int rc = place(net, &net->arena_bytes);
    if (!rc && net->n_flat_buffers)
        rc = mr_memory_acquire(net->device, MR_DEVICE, net->n_flat_buffers * net->param_element,
                               &net->buffers);
    if (!rc)
        rc = mr_memory_acquire(net->device, MR_DEVICE, net->arena_bytes, &net->arena);
    return rc ? rc : place(net, &net->arena_bytes);
}

static int take_memory(struct mr_net *net)
{
    uint64_t flat = net->n_flat * net->param_element;
    int rc = mr_memory_acquire(net->device, MR_DEVICE, flat, &net->params);
    if (!rc)
        rc = mr_memory_acquire(net->device, MR_DEVICE, flat, &net->grads);
    if (!rc && net->element == 2)
        rc = mr_memory_acquire(net->device, MR_DEVICE, net->n_flat * 2, &net->low);
    if (!rc)
        rc = take_own_memory(net);
    if (!rc)
        rc = mr_memset_async(net->stream, net->grads, MR_DEVICE, 0, flat);
    return rc;
}

static void name_runners(struct mr_net *net)
{
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        enum mr_node_kind kind = net->node[i].kind;
        int product = kind == MR_NODE_LINEAR ? 1 : kind == MR_NODE_CONV ? 2 : 0;
        snprintf(net->layer[i].runs_on, sizeof net->layer[i].runs_on, "%s",
                 net->ops->runs_on(net->backend, product));
    }
}

static int build(struct mr_net *net, const struct mr_net_part *part, bool plan)
{
    int rc = mr_model_build(net);
    if (!rc)
        rc = check_shapes(net);
    if (!rc)
        rc = open_backend(net);
    if (!rc)
        rc = mr_net_cut(net, part);
    if (!rc && !plan)
        rc = take_memory(net);
    if (!rc && !plan)
        rc = mr_net_init(net);
    return rc || plan ? rc : mr_net_prepare(net);
}

int mr_net_create(struct mr_device *device, const struct mr_net_opts *opts, struct mr_net **out)
{
    const struct mr_net_part whole = {0, 0};
    return mr_net_create_part(device, opts, &whole, false, out);
}

int mr_net_create_part(struct mr_device *device, const struct mr_net_opts *opts,
                       const struct mr_net_part *part, bool plan, struct mr_net **out)
{
    struct mr_net *net = NULL;
    struct mr_net_opts all;
    if (!device || !opts || !out)
        return mr_error_set(MR_EMISUSE, "mr_net_create: device, opts or out is NULL");
    mr_net_opts_init(&all);
    int rc = mr_opts_take("net_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    rc = check(&all);
    if (rc < 0)
        return rc;
    net = calloc(1, sizeof *net);
    if (!net)
        return mr_error_nomem("net", sizeof *net);
    net->device = device;
    net->opts = all;
    net->opts.model = net->model = strdup(all.model);
    rc = net->model ? build(net, part, plan) : mr_error_nomem("net", strlen(all.model));
    if (rc) {
        mr_net_destroy(net);
        return rc;
    }
    name_runners(net);
    *out = net;
    return 0;
}

/* Freed by mr_net_destroy() at any point. */
static int share(struct mr_net *net, struct mr_net *owner)
{
    memcpy(net, owner, sizeof *net);
    net->owner = owner;
    net->backend = NULL;
    net->stream = NULL;
    net->model = NULL;
    net->arena = net->buffers = NULL;
    net->last_n = 0;
    int rc = net->ops->open(net->device, &net->opts, &net->backend);
    if (rc < 0)
        return rc;
    rc = mr_stream_create(net->device, "net", &net->stream);
    if (rc < 0)
        return rc;
    rc = take_own_memory(net);
    return rc < 0 ? rc : mr_net_prepare(net);
}

int mr_net_share(struct mr_net *owner, struct mr_net **out)
{
    struct mr_net *net = calloc(1, sizeof *net);
    if (!net)
        return mr_error_nomem("net", sizeof *net);
    int rc = share(net, owner);
    if (rc < 0) {
        mr_net_destroy(net);
        return rc;
    }
    *out = net;
    return 0;
}

static void give(struct mr_net *net, void *p)
{
    if (p)
        mr_memory_release(net->device, MR_DEVICE, p, NULL);
}

void mr_net_destroy(struct mr_net *net)
{
    if (!net)
        return;
    if (net->backend)
        net->ops->close(net->backend);
    mr_stream_destroy(net->stream);
    give(net, net->arena);
    give(net, net->buffers);
    if (!net->owner) {
        give(net, net->low);
        give(net, net->grads);
        give(net, net->params);
    }
    free(net->model);
    free(net);
}

const struct mr_net_param *mr_net_param_get(const struct mr_net *net, uint32_t i)
{
    if (!net)
        return NULL;
    return i < net->n_params ? &net->param[i] : NULL;
}

const struct mr_net_param *mr_net_buffer_get(const struct mr_net *net, uint32_t i)
{
    if (!net)
        return NULL;
    return i < net->n_buffers ? &net->buffer[i] : NULL;
}

const struct mr_net_layer *mr_net_layer_get(const struct mr_net *net, uint32_t i)
{
    if (!net)
        return NULL;
    return i < net->n_nodes ? &net->layer[i] : NULL;
}

uint64_t mr_net_n_params(const struct mr_net *net)
{
    if (!net)
        return 0;
    return net->n_flat;
}

uint64_t mr_net_memory(const struct mr_net *net)
{
    if (!net)
        return 0;
    return net->arena_bytes + (net->low && !net->owner ? net->n_flat * 2 : 0) +
           net->n_flat_buffers * net->param_element + net->ops->memory(net->backend);
}

void mr_net_flat(struct mr_net *net, void **params, void **grads, void **low_precision)
{
    if (params)
        *params = net ? net->params : NULL;
    if (grads)
        *grads = net ? net->grads : NULL;
    if (low_precision)
        *low_precision = net ? net->low : NULL;
}

void mr_net_buffers(struct mr_net *net, void **buffers, uint64_t *count)
{
    if (buffers)
        *buffers = net ? net->buffers : NULL;
    if (count)
        *count = net ? net->n_flat_buffers : 0;
}
