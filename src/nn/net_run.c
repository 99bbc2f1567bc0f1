/* A batch through the net, forward and back. */
#include "nn/net.h"

#include "device/device.h"

struct pass {
    struct mr_net *net;
    uint32_t n;
    bool training, warming; /* warming: for what it makes libraries load alone */
    int accumulate;
    bool has_grad[MR_NN_MAX_NODES + 1]; /* this tensor's gradient has been written in this pass */
    struct mr_event *const *marks;      /* NULL: none; mr_net_run() */
};

static const void *weights(const struct mr_net *net, uint32_t which)
{
    if (which == MR_NN_NONE)
        return NULL;
    const char *base = net->low ? net->low : net->params;
    return base + net->param[which].offset * (net->low ? 2 : net->param_element);
}

static void *gradient(const struct mr_net *net, uint32_t which)
{
    return which == MR_NN_NONE ? NULL
                               : (char *)net->grads + net->param[which].offset * net->param_element;
}

/* gamma and beta of norms are read in full precision. */
static void *full(const struct mr_net *net, uint32_t which)
{
    return (char *)net->params + net->param[which].offset * net->param_element;
}

static void *buffer(const struct mr_net *net, uint32_t which)
{
    return (char *)net->buffers + net->buffer[which].offset * net->param_element;
}

static struct mr_nn_linear linear_of(const struct pass *p, const struct mr_node *node)
{
    const struct mr_nn_tensor *t = p->net->tensor;
    return (struct mr_nn_linear){
        .n = p->n, .in = t[node->in].c, .out = t[node->out].c, .act = node->act};
}

static struct mr_nn_conv conv_of(const struct pass *p, const struct mr_node *node)
{
    const struct mr_nn_tensor *in = &p->net->tensor[node->in], *out = &p->net->tensor[node->out];
    return (struct mr_nn_conv){.n = p->n,
                               .in = in->c,
                               .h = in->h,
                               .w = in->w,
                               .out = out->c,
                               .k = node->k,
                               .stride = node->stride,
                               .pad = node->pad,
                               .out_h = out->h,
                               .out_w = out->w,
                               .act = node->act};
}

struct mr_nn_pool mr_net_pool_of(const struct mr_net *net, const struct mr_node *node, uint32_t n)
{
    const struct mr_nn_tensor *in = &net->tensor[node->in], *out = &net->tensor[node->out];
    return (struct mr_nn_pool){.n = n,
                               .c = in->c,
                               .h = in->h,
                               .w = in->w,
                               .k = node->k,
                               .stride = node->stride,
                               .out_h = out->h,
                               .out_w = out->w,
                               .average = node->average};
}

/* The convolution before a pool whose nodes run as one. */
static struct mr_nn_pool_drop pool_drop_of(const struct pass *p, const struct mr_node *pool)
{
    struct mr_nn_pool_drop d = {.pool = mr_net_pool_of(p->net, pool, p->n), .act = pool[-1].act};
    if (p->training && pool[1].kind == MR_NODE_DROPOUT) {
        d.seed = p->net->opts.seed;
        d.layer = pool[1].number;
        d.p = pool[1].p;
    }
    return d;
}

static struct mr_nn_norm norm_of(const struct pass *p, const struct mr_node *node)
{
    const struct mr_nn_tensor *in = &p->net->tensor[node->in];
    return (struct mr_nn_norm){.n = p->n,
                               .c = in->c,
                               .hw = in->h * in->w,
                               .epsilon = node->epsilon,
                               .momentum = p->warming ? 0 : node->p,
                               .act = node->act};
}

static int forward_node(struct pass *p, const struct mr_node *node)
{
    struct mr_net *net = p->net;
    const struct mr_nn_ops *ops = net->ops;
    struct mr_nn_backend *b = net->backend;
    const struct mr_nn_tensor *in = &net->tensor[node->in], *out = &net->tensor[node->out];
    uint64_t count = p->n * in->count;
    switch (node->kind) {
    case MR_NODE_LINEAR: {
        struct mr_nn_linear l = linear_of(p, node);
        return ops->linear_forward(b, &l, in->value, weights(net, node->weight),
                                   weights(net, node->bias), out->value);
    }
    case MR_NODE_CONV: {
        struct mr_nn_conv c = conv_of(p, node);
        return ops->conv_forward(b, &c, in->value, weights(net, node->weight),
                                 weights(net, node->bias), out->value);
    }
    case MR_NODE_POOL: {
        if (node->fused) {
            struct mr_nn_pool_drop d = pool_drop_of(p, node);
            return ops->pool_drop_forward(b, &d, in->value,
                                          net->tensor[node[node->fused - 1].out].value);
        }
        struct mr_nn_pool q = mr_net_pool_of(net, node, p->n);
        return ops->pool_forward(b, &q, in->value, out->value);
    }
    case MR_NODE_NORM: {
        struct mr_nn_norm m = norm_of(p, node);
        return ops->norm_forward(b, &m, in->value, full(net, node->weight), full(net, node->bias),
                                 buffer(net, node->mean), buffer(net, node->mean + 1), node->saved,
                                 p->training, out->value);
    }
    case MR_NODE_ACT:
        return ops->act_forward(b, node->act, count, in->value, out->value);
    case MR_NODE_DROPOUT:
        if (!p->training)
            return ops->act_forward(b, MR_ACT_NONE, count, in->value, out->value);
        return ops->dropout(b, net->opts.seed, node->number, node->p, count, in->c, in->h * in->w,
                            node->per_channel ? in->h * in->w : 1, in->value, out->value);
    case MR_NODE_SOFTMAX:
        return ops->softmax(b, p->n, in->c, node->log, in->value, out->value);
    case MR_NODE_FLATTEN:
        if (in->value == out->value)
            return 0;
        if (net->layout == MR_NCHW)
            return ops->act_forward(b, MR_ACT_NONE, count, in->value, out->value);
        return ops->permute(b, p->n, in->c, in->h * in->w, 1, in->value, out->value);
    case MR_NODE_ADD:
        return ops->add(b, count, in->value, out->value);
    }
    return MR_EMISUSE;
}

/* Where a node writes its input's gradient: NULL for the net's own input and aliases of it, scratch
 * when another consumer's is there already. */
static void *input_grad(const struct pass *p, const struct mr_node *node)
{
    void *own = p->net->tensor[node->in].grad;
    return own && p->has_grad[node->in] ? p->net->scratch : own;
}

static int backward_node(struct pass *p, const struct mr_node *node, void *dx)
{
    struct mr_net *net = p->net;
    const struct mr_nn_ops *ops = net->ops;
    struct mr_nn_backend *b = net->backend;
    const struct mr_nn_tensor *in = &net->tensor[node->in], *out = &net->tensor[node->out];
    uint64_t count = p->n * in->count;
    switch (node->kind) {
    case MR_NODE_LINEAR: {
        struct mr_nn_linear l = linear_of(p, node);
        struct mr_nn_drop drop;
        if (node < &net->node[net->n_nodes - 1] && node[1].kind == MR_NODE_DROPOUT &&
            node[1].undone) {
            drop = (struct mr_nn_drop){net->opts.seed, node[1].number, node[1].p,
                                       net->tensor[node[1].out].grad};
            l.drop = &drop;
        }
        return ops->linear_backward(b, &l, in->value, weights(net, node->weight), out->value,
                                    out->grad, dx, gradient(net, node->weight),
                                    gradient(net, node->bias), p->accumulate);
    }
    case MR_NODE_CONV: {
        struct mr_nn_conv c = conv_of(p, node);
        c.act = node->undone ? MR_ACT_NONE : c.act;
        return ops->conv_backward(b, &c, in->value, weights(net, node->weight), out->value,
                                  out->grad, dx, gradient(net, node->weight),
                                  node->undone ? NULL : gradient(net, node->bias), p->accumulate);
    }
    case MR_NODE_POOL: {
        if (node->fused) {
            struct mr_nn_pool_drop d = pool_drop_of(p, node);
            return ops->pool_drop_backward(b, &d, in->value,
                                           net->tensor[node[node->fused - 1].out].grad, dx,
                                           gradient(net, node[-1].bias), p->accumulate);
        }
        struct mr_nn_pool q = mr_net_pool_of(net, node, p->n);
        return dx ? ops->pool_backward(b, &q, in->value, out->grad, dx) : 0;
    }
    case MR_NODE_NORM: {
        struct mr_nn_norm m = norm_of(p, node);
        return ops->norm_backward(b, &m, in->value, full(net, node->weight), node->saved,
                                  out->value, out->grad, dx, gradient(net, node->weight),
                                  gradient(net, node->bias), p->accumulate);
    }
    case MR_NODE_ACT:
        return dx ? ops->act_backward(b, node->act, count, in->value, out->value, out->grad, dx)
                  : 0;
    case MR_NODE_DROPOUT:
        return dx ? ops->dropout(b, net->opts.seed, node->number, node->p, count, in->c,
                                 in->h * in->w, node->per_channel ? in->h * in->w : 1, out->grad,
                                 dx)
                  : 0;
    case MR_NODE_SOFTMAX:
        return dx ? ops->softmax_backward(b, p->n, in->c, node->log, out->value, out->grad, dx) : 0;
    case MR_NODE_FLATTEN:
        if (!dx || in->value == out->value)
            return 0;
        if (net->layout == MR_NCHW)
            return ops->act_forward(b, MR_ACT_NONE, count, out->grad, dx);
        return ops->permute(b, p->n, in->c, in->h * in->w, 0, out->grad, dx);
    case MR_NODE_ADD: /* the other summand's gradient is the sum's, in place */
        return dx ? ops->act_forward(b, MR_ACT_NONE, count, out->grad, dx) : 0;
    }
    return MR_EMISUSE;
}

static int mark(const struct pass *p, uint32_t i, struct mr_stream *stream)
{
    return p->marks ? mr_event_record(p->marks[i], stream) : 0;
}

static int one_back(struct pass *p, const struct mr_node *node)
{
    struct mr_net *net = p->net;
    if (node->inside || (node->kind == MR_NODE_DROPOUT && node->undone))
        return 0;
    void *dx = input_grad(p, node);
    int rc = backward_node(p, node, dx);
    if (!rc && dx && dx == net->scratch)
        rc = net->ops->add(net->backend, p->n * net->tensor[node->in].count, dx,
                           net->tensor[node->in].grad);
    p->has_grad[node->in] = true;
    return rc;
}

static int backward(struct pass *p)
{
    struct mr_net *net = p->net;
    const uint32_t n = net->n_nodes;
    int rc = mark(p, 2 * n + 1, net->stream);
    for (uint32_t i = n; !rc && i-- > 0;) {
        rc = one_back(p, &net->node[i]);
        if (!rc)
            rc = mr_net_tell_grads(net, i);
        if (!rc)
            rc = mark(p, n + 1 + i, net->stream);
    }
    return rc;
}

static int forward(struct pass *p, const struct mr_net_batch *batch)
{
    struct mr_net *net = p->net;
    net->last_n = p->n;
    const struct mr_nn_tensor *in = &net->tensor[0];
    int rc = net->low && !batch->copied
                 ? net->ops->refresh(net->backend, net->n_flat, net->params, net->low)
                 : 0;
    if (!rc && !net->inner)
        rc = net->ops->input(net->backend, p->n, in->c, in->h * in->w, net->opts.layout,
                             batch->input, batch->input_dtype, in->value);
    for (uint32_t i = 0; !rc && i < net->n_nodes; i++) {
        rc = mark(p, i, net->stream);
        if (!rc && !net->node[i].inside)
            rc = forward_node(p, &net->node[i]);
    }
    return rc ? rc : mark(p, net->n_nodes, net->stream);
}

int mr_net_use_stream(const struct mr_net *net, struct mr_stream *stream, const char *call)
{
    bool queue = net->ops == &mr_nn_cuda || net->queued;
    if (queue && (!stream || stream->dev != net->device))
        return mr_error_set(MR_EMISUSE, "%s: expected a stream of the net's device", call);
    net->ops->use_stream(net->backend, stream);
    return 0;
}

static int check_batch(const struct mr_net *net, const struct mr_net_batch *batch)
{
    if (!net)
        return mr_error_null("mr_net_train", "a net");
    int rc = mr_info_check_least("net_batch", batch, sizeof *batch, sizeof *batch);
    if (rc < 0)
        return rc;
    if (!batch->input && !net->inner)
        return mr_error_set(MR_EMISUSE, "net: a batch without input");
    if (batch->n == 0 || batch->n > net->opts.max_batch)
        return mr_error_set(MR_ESHAPE, "net: a batch of %u samples: it was made for 1..%u",
                            batch->n, net->opts.max_batch);
    enum mr_dtype t = batch->input_dtype, l = batch->label_dtype;
    if (!net->inner && t != MR_U8 && t != MR_F32 && t != MR_F64 && t != MR_BF16 && t != MR_F16)
        return mr_error_set(MR_ESHAPE, "net: input of %s: expected u8, f32, f64, bf16 or f16",
                            mr_dtype_name(t));
    bool fits = net->opts.loss == MR_MSE ? l == MR_F32 || l == MR_F64
                                         : l == MR_U8 || l == MR_I32 || l == MR_I64;
    if (batch->labels && !fits)
        return mr_error_set(MR_ESHAPE, "net: labels of %s: expected %s", mr_dtype_name(l),
                            net->opts.loss == MR_MSE ? "f32 or f64" : "u8, i32 or i64");
    return 0;
}

static struct mr_nn_tensor *last_tensor(struct mr_net *net)
{
    return &net->tensor[net->node[net->n_nodes - 1].out];
}

/* The loss, and the way back. Without labels the last gradient is there already. */
static int back_pass(struct pass *p, const struct mr_net_batch *batch)
{
    struct mr_net *net = p->net;
    struct mr_nn_tensor *last = last_tensor(net);
    int rc = !batch->labels
                 ? 0
                 : net->ops->loss(net->backend, net->opts.loss, p->n, (uint32_t)last->count,
                                  last->value, batch->labels, batch->label_dtype, batch->loss_scale,
                                  last->grad, NULL);
    p->has_grad[net->node[net->n_nodes - 1].out] = true;
    if (!rc)
        rc = backward(p);
    return rc ? rc : net->ops->step_done(net->backend);
}

/* The stream is set. */
static int train_pass(struct pass *p, const struct mr_net_batch *batch)
{
    int rc = forward(p, batch);
    return rc ? rc : back_pass(p, batch);
}

static int eval_pass(struct pass *p, const struct mr_net_batch *batch, void *outputs)
{
    struct mr_net *net = p->net;
    struct mr_nn_tensor *last = last_tensor(net);
    int rc = forward(p, batch);
    if (rc || (!batch->labels && !outputs))
        return rc;
    return net->ops->loss(net->backend, net->opts.loss, p->n, (uint32_t)last->count, last->value,
                          batch->labels, batch->label_dtype, NULL, NULL, outputs);
}

/* The stream is set. */
int mr_net_run(const struct mr_net_job *job, struct mr_event *const *marks)
{
    struct mr_net *net = job->net;
    const struct mr_net_batch *batch = &job->batch;
    const bool outputs = job->what == MR_NET_OUTPUTS;
    struct pass p = {.net = net,
                     .n = batch->n,
                     .training = job->what != MR_NET_EVAL && !outputs,
                     .accumulate = batch->accumulate,
                     .marks = marks};
    switch (job->what) {
    case MR_NET_TRAIN:
        return train_pass(&p, batch);
    case MR_NET_FORWARD:
        return forward(&p, batch);
    case MR_NET_BACKWARD:
        return back_pass(&p, batch);
    case MR_NET_EVAL:
    case MR_NET_OUTPUTS:
        return eval_pass(&p, batch, outputs ? net->outputs : NULL);
    case MR_NET_SET_STEP:
        return net->ops->set_step(net->backend, job->step);
    case MR_NET_ZERO_TOTALS:
        return net->ops->zero_totals(net->backend);
    }
    return MR_EMISUSE;
}

static int pass(struct mr_net *net, enum mr_net_what what, const struct mr_net_batch *batch,
                struct mr_stream *stream, const char *call)
{
    int rc = check_batch(net, batch);
    if (rc < 0)
        return rc;
    if (what == MR_NET_TRAIN && !batch->labels)
        return mr_error_set(MR_EMISUSE, "net: training needs labels");
    rc = mr_net_use_stream(net, stream, call);
    if (rc < 0)
        return rc;
    const struct mr_net_job job = {.net = net, .what = what, .batch = *batch};
    return mr_net_enqueue(&job, stream);
}

int mr_net_train(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream)
{
    return pass(net, MR_NET_TRAIN, batch, stream, "mr_net_train");
}

int mr_net_forward(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream)
{
    return pass(net, MR_NET_FORWARD, batch, stream, "mr_net_forward");
}

int mr_net_backward(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream)
{
    return pass(net, MR_NET_BACKWARD, batch, stream, "mr_net_backward");
}

/* The pass writes to the memory of its input and labels only after it has read them. */
int mr_net_warm_up(struct mr_net *net, struct mr_stream *stream)
{
    if (!net)
        return mr_error_null("mr_net_warm_up", "a net");
    struct pass p = {.net = net, .n = net->opts.max_batch, .training = true, .warming = true};
    struct mr_net_batch zeros = {.size = sizeof zeros,
                                 .input = net->scratch,
                                 .labels = net->sends ? NULL : net->outputs,
                                 .input_dtype = MR_U8,
                                 .label_dtype = net->opts.loss == MR_MSE ? MR_F32 : MR_U8,
                                 .n = p.n};
    const struct mr_nn_tensor *first = &net->tensor[0];
    int rc = mr_net_use_stream(net, stream, "mr_net_warm_up");
    if (rc || net->queued)
        return rc;
    if (net->inner)
        rc = mr_memset_async(stream, first->value, MR_DEVICE, 0, p.n * first->count * net->element);
    if (!rc && net->sends)
        rc = mr_memset_async(stream, last_tensor(net)->grad, MR_DEVICE, 0,
                             p.n * last_tensor(net)->count * net->element);
    if (!rc)
        rc = mr_memset_async(stream, net->scratch, MR_DEVICE, 0, p.n * net->tensor[0].count);
    if (!rc)
        rc = mr_memset_async(stream, net->outputs, MR_DEVICE, 0,
                             p.n * last_tensor(net)->count * net->param_element);
    if (!rc)
        rc = train_pass(&p, &zeros);
    if (!rc)
        rc = mr_memset_async(stream, net->grads, MR_DEVICE, 0, net->n_flat * net->param_element);
    if (!rc)
        rc = net->ops->set_step(net->backend, 0);
    if (!rc)
        rc = net->ops->zero_totals(net->backend);
    return rc ? rc : mr_stream_synchronize(stream);
}

int mr_net_eval(struct mr_net *net, const struct mr_net_batch *batch, const void **outputs,
                struct mr_stream *stream)
{
    if (!net)
        return mr_error_null("mr_net_eval", "a net");
    int rc = pass(net, outputs ? MR_NET_OUTPUTS : MR_NET_EVAL, batch, stream, "mr_net_eval");
    if (!rc && outputs)
        *outputs = net->outputs;
    return rc;
}

/* Tells the backend every shape that will come, so that a later step can be recorded as a graph. */
int mr_net_prepare(struct mr_net *net)
{
    struct pass p = {.net = net, .n = net->opts.max_batch};
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        if (net->node[i].kind != MR_NODE_CONV)
            continue;
        struct mr_nn_conv c = conv_of(&p, &net->node[i]);
        int rc = net->ops->plan_conv(net->backend, &c);
        if (rc)
            return rc;
    }
    return mr_stream_synchronize(net->stream);
}

int mr_net_set_step(struct mr_net *net, uint64_t step, struct mr_stream *stream)
{
    if (!net)
        return mr_error_null("mr_net_set_step", "a net");
    int rc = mr_net_use_stream(net, stream, "mr_net_set_step");
    const struct mr_net_job job = {.net = net, .what = MR_NET_SET_STEP, .step = step};
    return rc ? rc : mr_net_enqueue(&job, stream);
}

int mr_net_zero_totals(struct mr_net *net, struct mr_stream *stream)
{
    if (!net)
        return mr_error_null("mr_net_zero_totals", "a net");
    int rc = mr_net_use_stream(net, stream, "mr_net_zero_totals");
    const struct mr_net_job job = {.net = net, .what = MR_NET_ZERO_TOTALS};
    return rc ? rc : mr_net_enqueue(&job, stream);
}

int mr_net_query_totals(struct mr_net *net, struct mr_stream *stream, struct mr_net_totals *out)
{
    if (!net)
        return mr_error_null("mr_net_query_totals", "a net");
    struct mr_net_totals totals = {0};
    int rc = mr_net_use_stream(net, stream, "mr_net_query_totals");
    if (rc < 0)
        return rc;
    rc = mr_info_check("net_totals", out, sizeof totals);
    if (rc < 0)
        return rc;
    rc = mr_net_wait(net, stream);
    if (rc < 0)
        return rc;
    rc = net->ops->get_totals(net->backend, &totals);
    return rc < 0 ? rc : mr_info_give("net_totals", out, &totals, sizeof totals);
}

/* The low half of a count is 0 exactly when the count is: 2^32 batches are more than lie between
 * two looks. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the low half of n_not_finite lies first");

const uint32_t *mr_net_bad_loss(const struct mr_net *net)
{
    if (!net)
        return NULL;
    return (const uint32_t *)(const void *)net->ops->n_not_finite(net->backend);
}

void mr_net_scaling(struct mr_net *net, const float **loss_scale, const float **grad_scale,
                    const uint32_t **skip)
{
    if (!net || !loss_scale || !grad_scale || !skip)
        return;
    *loss_scale = *grad_scale = NULL;
    *skip = NULL;
    if (net->opts.dtype == MR_F16)
        net->ops->scaling(net->backend, loss_scale, grad_scale, skip);
}

struct mr_nn_gpu_state *mr_net_gpu_state(const struct mr_net *net)
{
    const char *at = (const char *)net->ops->n_not_finite(net->backend);
    return (struct mr_nn_gpu_state *)(uintptr_t)(at - offsetof(struct mr_nn_gpu_state,
                                                               totals.n_not_finite));
}

int mr_net_rescale_by(struct mr_net *net, const void *grads, struct mr_stream *stream)
{
    if (!net)
        return mr_error_null("mr_net_rescale", "a net");
    if (net->opts.dtype != MR_F16)
        return 0;
    int rc = mr_net_use_stream(net, stream, "mr_net_rescale");
    return rc ? rc : net->ops->rescale(net->backend, net->n_flat, grads);
}

int mr_net_find_overflow(struct mr_net *net, const void *grads, uint64_t n, float *found,
                         struct mr_stream *stream)
{
    if (net->opts.dtype != MR_F16)
        return 0;
    int rc = mr_net_use_stream(net, stream, "mr_net_find_overflow");
    return rc ? rc : net->ops->find_overflow(net->backend, n, grads, found);
}

int mr_net_rescale_found(struct mr_net *net, const float *found, uint32_t n_found,
                         struct mr_stream *stream)
{
    if (net->opts.dtype != MR_F16)
        return 0;
    int rc = mr_net_use_stream(net, stream, "mr_net_rescale_found");
    return rc ? rc : net->ops->rescale_found(net->backend, found, n_found);
}

int mr_net_rescale(struct mr_net *net, struct mr_stream *stream)
{
    return mr_net_rescale_by(net, net ? net->grads : NULL, stream);
}
