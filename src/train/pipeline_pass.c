/* A micro-batch's passes through a stage: forward, backward, and what goes to the other stages. */
#include "train/pipeline.h"

#include <stddef.h>

static bool is_last(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_is_last_stage(t, s);
}

static bool is_first(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_stage_number(t, s) == 0;
}

/* ---- between stages ---- */

/* What the stream has enqueued so far goes over to another stage. */
static int send(struct mr_train_pipe *from, const struct mr_train_stage *stage,
                const struct mr_train_stage *to, struct mr_event *made, struct mr_event *sent,
                void *dst, const void *src, uint64_t bytes)
{
    int rc = mr_event_record(made, stage->stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(from->send, made);
    if (rc < 0)
        return rc;
    rc = mr_copy_peer_async(from->send, dst, to->dev, src, stage->dev, bytes);
    return rc < 0 ? rc : mr_event_record(sent, from->send);
}

int mr_train_send_value(struct mr_train_passes *ps, uint32_t s, uint32_t k, uint32_t n)
{
    struct mr_train_pipe *pipe = &ps->p->stage[s];
    struct mr_train_slot *slot = &pipe->slot[k];
    struct mr_net_edge from, to;
    if (is_last(ps->t, s))
        return 0;
    mr_net_edges(slot->net, NULL, &from);
    if (ps->p->comm) {
        ps->hop = (struct mr_train_hop){
            .out = from.value, .out_bytes = n * from.bytes, .out_forward = true};
        return 0;
    }
    mr_net_edges(pipe[1].slot[k].net, &to, NULL);
    return send(pipe, &ps->t->stage[s], &ps->t->stage[s + 1], slot->there, slot->value, to.value,
                from.value, n * from.bytes);
}

static int send_grad(struct mr_train_passes *ps, uint32_t s, uint32_t k, uint32_t n)
{
    struct mr_train_pipe *pipe = &ps->p->stage[s];
    struct mr_train_slot *slot = &pipe->slot[k];
    struct mr_net_edge from, to;
    if (is_first(ps->t, s))
        return 0;
    mr_net_edges(slot->net, &from, NULL);
    if (ps->p->comm) {
        ps->hop = (struct mr_train_hop){.out = from.grad, .out_bytes = n * from.bytes};
        return 0;
    }
    mr_net_edges(pipe[-1].slot[k].net, NULL, &to);
    return send(pipe, &ps->t->stage[s], &ps->t->stage[s - 1], slot->back, slot->grad, to.grad,
                from.grad, n * from.bytes);
}

int mr_train_hop_before(struct mr_train_passes *ps, const bool *is_forward, uint32_t k, uint32_t n)
{
    struct mr_trainer *t = ps->t;
    struct mr_train_hop hop = ps->hop;
    ps->hop = (struct mr_train_hop){0};
    if (is_forward && !(*is_forward ? is_first(t, 0) : is_last(t, 0))) {
        struct mr_net_edge in, out;
        mr_net_edges(ps->p->stage[0].slot[k].net, &in, &out);
        hop.in = *is_forward ? in.value : out.grad;
        hop.in_bytes = n * (*is_forward ? in.bytes : out.bytes);
        hop.in_forward = *is_forward;
    }
    return mr_train_hop(t, &hop);
}

/* ---- forward ---- */

int mr_train_copy_buffers(const struct mr_train_pipe *p, void *to, const void *from,
                          struct mr_stream *stream)
{
    const uint64_t bytes = p->n_buffers * sizeof(float);
    return bytes ? mr_copy_async(stream, to, MR_DEVICE, from, MR_DEVICE, bytes) : 0;
}

/* Each micro-batch begins with the running statistics of the step's beginning, and draws by its
 * number in the run. */
static int prepare(struct mr_train_passes *ps, uint32_t s, struct mr_net *net, uint32_t a)
{
    struct mr_train_pipe *pipe = &ps->p->stage[s];
    struct mr_stream *stream = ps->t->stage[s].stream;
    void *buffers;
    mr_net_buffers(net, &buffers, NULL);
    int rc = mr_train_copy_buffers(pipe, buffers, pipe->buffers, stream);
    if (rc < 0)
        return rc;
    return mr_net_set_step(net, ps->t->step * ps->p->leaves.n + a, stream);
}

int mr_train_forward(struct mr_train_passes *ps, uint32_t s, uint32_t i)
{
    struct mr_train_pipe *pipe = &ps->p->stage[s];
    struct mr_stream *stream = ps->t->stage[s].stream;
    const uint32_t a = mr_train_tree_order(i, ps->p->leaves.mine), k = i % ps->p->n_slots,
                   n = mr_train_rows_of(&ps->p->leaves, ps->part, a);
    struct mr_net *net = pipe->slot[k].net;
    struct mr_net_batch batch;
    if (n == 0)
        return 0;
    int rc = s ? mr_stream_wait(stream, pipe[-1].slot[k].value) : 0; /* over ranks s is 0 */
    if (rc < 0)
        return rc;
    rc = mr_train_make_batch(ps, s, a, n, true, &batch);
    if (rc < 0)
        return rc;
    rc = prepare(ps, s, net, a);
    if (rc < 0)
        return rc;
    rc = mr_net_forward(net, &batch, stream);
    return rc < 0 ? rc : mr_train_send_value(ps, s, k, n);
}

/* ---- backward ---- */

static int add(struct mr_train_pipe *p, float *to, const float *from, struct mr_stream *stream)
{
    const struct mr_sum_add args = {
        .to = to, .from = from, .count = p->length, .dtype = MR_F32, .from_dtype = MR_F32};
    return mr_train_launch(stream, MR_SUM_KERNEL_add, &args);
}

/* A micro-batch's vector: gradients, running statistics, totals. */
static int take(struct mr_train_passes *ps, uint32_t s, struct mr_net *net, float *v, uint32_t a,
                uint32_t n)
{
    struct mr_train_pipe *p = &ps->p->stage[s];
    struct mr_stream *stream = ps->t->stage[s].stream;
    void *grads, *buffers;
    if (n == 0)
        return mr_memset_async(stream, v, MR_DEVICE, 0, p->length * sizeof *v);
    mr_net_flat(net, NULL, &grads, NULL);
    mr_net_buffers(net, &buffers, NULL);
    char *totals = (char *)(uintptr_t)mr_net_bad_loss(net);
    const struct mr_sum_take args = {
        .to = v,
        .grads = grads,
        .buffers = buffers,
        .totals = (void *)(totals - offsetof(struct mr_sum_totals, n_not_finite)),
        .run = p->run,
        .count = p->n_params + p->n_buffers + 1,
        .n_params = p->n_params,
        .n_buffers = p->n_buffers,
        .share = (float)n / (float)ps->part->total,
        .first = a == 0};
    return mr_train_launch(stream, MR_SUM_KERNEL_take, &args);
}

/* The i-th vector of a stage goes onto the tree's stack; pairs of equal height are added up. */
static int add_up(struct mr_train_passes *ps, uint32_t s, struct mr_net *net, uint32_t i,
                  uint32_t n)
{
    struct mr_train_pipe *pipe = &ps->p->stage[s];
    struct mr_stream *stream = ps->t->stage[s].stream;
    uint32_t *height = &ps->height[s];
    const uint32_t a = mr_train_tree_order(i, ps->p->leaves.mine);
    int rc = take(ps, s, net, pipe->vector + *height * pipe->length, a, n);
    ++*height;
    for (uint32_t carry = i; rc >= 0 && (carry & 1); carry /= 2, --*height)
        rc = add(pipe, pipe->vector + (*height - 2) * pipe->length,
                 pipe->vector + (*height - 1) * pipe->length, stream);
    return rc;
}

/* fp16: the micro-batch's share, times the loss scale, which the last stage's own net has. */
static int scale_loss(struct mr_train_passes *ps, uint32_t k, uint32_t a, uint32_t n,
                      struct mr_net_batch *batch)
{
    const struct mr_train_stage *last = &ps->t->stage[ps->t->n_stages - 1];
    struct mr_train_pipe *pipe = &ps->p->stage[ps->t->n_stages - 1];
    const float *grad_scale;
    const uint32_t *skip;
    struct mr_sum_begin begin = {.run = pipe->run,
                                 .net_step = &mr_net_gpu_state(pipe->slot[k].net)->step,
                                 .count = 1,
                                 .leaves = ps->p->leaves.n,
                                 .leaf = a,
                                 .share = (float)n / (float)ps->part->total};
    mr_net_scaling(last->net, &begin.loss_scale, &grad_scale, &skip);
    batch->loss_scale = &pipe->run->loss_scale;
    return mr_train_launch(last->stream, MR_SUM_KERNEL_begin, &begin);
}

/* The pass itself, of n > 0 samples in slot k. */
static int pass_back(struct mr_train_passes *ps, uint32_t s, uint32_t k, uint32_t a, uint32_t n)
{
    struct mr_trainer *t = ps->t;
    struct mr_train_pipe *pipe = &ps->p->stage[s];
    struct mr_stream *stream = t->stage[s].stream;
    struct mr_net_batch batch;
    int rc = 0;
    if (!is_last(t, s) && !ps->p->comm)
        rc = mr_stream_wait(stream, pipe[1].slot[k].grad);
    if (rc < 0)
        return rc;
    rc = mr_train_make_batch(ps, s, a, n, false, &batch);
    if (rc < 0)
        return rc;
    batch.loss_scale = ps->p->share + a;
    if (is_last(t, s) && t->opts.precision == MR_PRECISION_FP16)
        rc = scale_loss(ps, k, a, n, &batch);
    if (rc < 0)
        return rc;
    rc = mr_net_backward(pipe->slot[k].net, &batch, stream);
    return rc < 0 ? rc : send_grad(ps, s, k, n);
}

int mr_train_backward(struct mr_train_passes *ps, uint32_t s, uint32_t i)
{
    const uint32_t a = mr_train_tree_order(i, ps->p->leaves.mine), k = i % ps->p->n_slots,
                   n = mr_train_rows_of(&ps->p->leaves, ps->part, a);
    int rc = n ? pass_back(ps, s, k, a, n) : 0;
    return rc < 0 ? rc : add_up(ps, s, ps->p->stage[s].slot[k].net, i, n);
}
