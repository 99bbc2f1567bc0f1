/*
 * A step of a pipeline. The host only enqueues, stage by stage in an order in which everything that
 * a piece of work waits for has been enqueued before; events carry what one device waits for on
 * another. On "cpu", where work runs as it is enqueued, that order alone does.
 *
 * Memory of a slot is used again without further waits: a stage's next forward pass there comes
 * after its backward pass, which came after the next stage's, and so on up to the last.
 */
#include "train/stages.h"

#include "device/device.h"

#include <string.h>

/* A step on its way. */
struct step {
    struct mr_trainer *t;
    struct mr_train_pipeline *p;
    const struct mr_train_part *part;
    struct mr_net_batch batch;        /* the whole one */
    uint32_t n[MR_TRAIN_STAGES][2];   /* passes that were enqueued: forward, backward */
    uint32_t height[MR_TRAIN_STAGES]; /* of the tree's stack of vectors */
    struct mr_train_hop hop;          /* over ranks: what goes before the next pass */
};

static int launch(struct mr_stream *stream, enum mr_sum_kernel which, const void *args)
{
    return mr_launch_kernel(stream, &mr_sum_kernel[which], args, NULL);
}

static bool is_last(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_is_last_stage(t, s);
}

static bool is_first(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_stage_number(t, s) == 0;
}

/* ---- the order ---- */

/* The j-th pass of stage s. Returns whether it is a forward one; [out] i: of which micro-batch. */
static bool pass_of(const struct mr_trainer *t, uint32_t s, uint32_t j, uint32_t *i)
{
    const uint32_t m = t->n_leaves,
                   ahead = MR_MIN(m, t->pipeline->of - 1 - mr_train_stage_number(t, s));
    if (t->opts.pipeline == MR_PIPELINE_GPIPE) {
        *i = j % m;
        return j < m;
    }
    if (j < ahead) {
        *i = j;
        return true;
    }
    const uint32_t k = j - ahead;
    if (k >= 2 * (m - ahead)) {
        *i = k - (m - ahead);
        return false;
    }
    *i = k % 2 ? k / 2 : ahead + k / 2;
    return k % 2 == 0;
}

static bool is_ready(const struct step *st, uint32_t s, bool forward, uint32_t i)
{
    if (forward)
        return s == 0 || st->n[s - 1][0] > i;
    return is_last(st->t, s) || st->n[s + 1][1] > i;
}

/* ---- micro-batches ---- */

static int take_rows(struct mr_trainer *t, void *to, const struct mr_batch_field *from,
                     const struct mr_train_part *part, uint32_t a, uint32_t n)
{
    const uint64_t bytes = from->bytes / part->b->n;
    const uint32_t word = bytes % 4 == 0 ? 4 : 1;
    const struct mr_sum_rows args = {.to = to,
                                     .from = from->data,
                                     .count = n * (bytes / word),
                                     .words = bytes / word,
                                     .first = a,
                                     .step = t->pipeline->leaves.mine,
                                     .word = word};
    return launch(t->stream, MR_SUM_KERNEL_rows, &args);
}

/* Memory for packed rows, when the first batch tells how large they are. */
static int take_room(struct mr_trainer *t, const struct mr_train_part *part)
{
    struct mr_train_pipeline *p = t->pipeline;
    const struct mr_batch_field *in = &part->b->field[0], *label = &part->b->field[t->label];
    const uint64_t rows = mr_train_batch_size(t) / p->leaves.n;
    if (p->last_labels)
        return 0;
    p->label_bytes = mr_round_up(mr_train_room(label, part->b->n, rows), 256);
    int rc = 0;
    if (!p->input && is_first(t, 0)) /* what a failed call before this one got is kept */
        rc = mr_memory_acquire(t->dev, MR_DEVICE, mr_train_room(in, part->b->n, rows),
                               (void **)&p->input);
    if (rc == 0 && !p->labels && !p->comm)
        rc =
            mr_memory_acquire(t->dev, MR_DEVICE, p->label_bytes * p->leaves.n, (void **)&p->labels);
    if (rc < 0)
        return rc;
    return mr_memory_acquire(t->stage[t->n_stages - 1].dev, MR_DEVICE, p->label_bytes * p->leaves.n,
                             (void **)&p->last_labels);
}

/* Labels go to the last stage at once: behind the step before, which reads its own there. */
static int send_labels(struct mr_trainer *t, const struct mr_train_part *part)
{
    struct mr_train_pipeline *p = t->pipeline;
    const uint32_t last = t->n_stages - 1;
    struct mr_stream *send = p->stage[0].send;
    int rc = take_room(t, part);
    if (rc < 0)
        return rc;
    char *labels = p->comm ? p->last_labels : p->labels; /* every rank has them */
    rc = mr_stream_wait(t->stream, p->labelled);
    for (uint32_t a = 0; a < p->leaves.mine && rc >= 0; a++) {
        uint32_t n = mr_train_rows_of(&p->leaves, part, a);
        rc = n ? take_rows(t, labels + a * p->label_bytes, &part->b->field[t->label], part, a, n)
               : 0;
    }
    if (rc < 0 || p->comm)
        return rc;
    rc = mr_event_record(p->packed, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(send, p->packed);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(send, p->stage[last].done);
    if (rc < 0)
        return rc;
    rc = mr_copy_peer_async(send, p->last_labels, t->stage[last].dev, p->labels, t->dev,
                            p->label_bytes * p->leaves.n);
    if (rc < 0)
        return rc;
    rc = mr_event_record(p->labelled, send);
    return rc < 0 ? rc : mr_stream_wait(t->stage[last].stream, p->labelled);
}

/* The loss of a micro-batch is a mean over it; its share makes it one over the batch. */
static int set_shares(struct mr_trainer *t, const struct mr_train_part *part)
{
    struct mr_train_pipeline *p = t->pipeline;
    const struct mr_train_stage *last = &t->stage[t->n_stages - 1];
    if (p->share_of == part->total || !is_last(t, t->n_stages - 1))
        return 0;
    float *share = malloc(p->leaves.n * sizeof *share);
    if (!share)
        return mr_error_nomem("trainer", p->leaves.n * sizeof *share);
    for (uint32_t a = 0; a < p->leaves.n; a++)
        share[a] = (float)mr_train_rows_of(&p->leaves, part, a) / (float)part->total;
    int rc = mr_copy_async(last->stream, p->share, MR_DEVICE, share, MR_PAGEABLE,
                           p->leaves.n * sizeof *share);
    if (rc >= 0)
        rc = mr_stream_synchronize(last->stream);
    free(share);
    p->share_of = rc < 0 ? 0 : part->total;
    return rc;
}

/* What stage s reads of micro-batch a: on the first the input, on the last the labels. */
static int make_batch(struct step *st, uint32_t s, uint32_t a, uint32_t n, bool input,
                      struct mr_net_batch *out)
{
    struct mr_trainer *t = st->t;
    struct mr_train_pipeline *p = st->p;
    *out = st->batch;
    out->n = n;
    out->labels = is_last(t, s) ? p->last_labels + a * p->label_bytes : NULL;
    if (!is_first(t, s))
        out->input = NULL;
    else if (input && p->leaves.mine > 1) {
        out->input = p->input;
        return take_rows(t, p->input, &st->part->b->field[0], st->part, a, n);
    }
    return 0;
}

/* ---- passes ---- */

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

static int send_value(struct step *st, uint32_t s, uint32_t k, uint32_t n)
{
    struct mr_train_pipe *pipe = &st->p->stage[s];
    struct mr_train_slot *slot = &pipe->slot[k];
    struct mr_net_edge from, to;
    if (is_last(st->t, s))
        return 0;
    mr_net_edges(slot->net, NULL, &from);
    if (st->p->comm) {
        st->hop = (struct mr_train_hop){
            .out = from.value, .out_bytes = n * from.bytes, .out_forward = true};
        return 0;
    }
    mr_net_edges(pipe[1].slot[k].net, &to, NULL);
    return send(pipe, &st->t->stage[s], &st->t->stage[s + 1], slot->there, slot->value, to.value,
                from.value, n * from.bytes);
}

static int send_grad(struct step *st, uint32_t s, uint32_t k, uint32_t n)
{
    struct mr_train_pipe *pipe = &st->p->stage[s];
    struct mr_train_slot *slot = &pipe->slot[k];
    struct mr_net_edge from, to;
    if (is_first(st->t, s))
        return 0;
    mr_net_edges(slot->net, &from, NULL);
    if (st->p->comm) {
        st->hop = (struct mr_train_hop){.out = from.grad, .out_bytes = n * from.bytes};
        return 0;
    }
    mr_net_edges(pipe[-1].slot[k].net, NULL, &to);
    return send(pipe, &st->t->stage[s], &st->t->stage[s - 1], slot->back, slot->grad, to.grad,
                from.grad, n * from.bytes);
}

static int copy_buffers(struct mr_train_pipe *p, void *to, const void *from,
                        struct mr_stream *stream)
{
    uint64_t bytes = p->n_buffers * sizeof(float);
    return bytes ? mr_copy_async(stream, to, MR_DEVICE, from, MR_DEVICE, bytes) : 0;
}

static int forward(struct step *st, uint32_t s, uint32_t i)
{
    struct mr_trainer *t = st->t;
    struct mr_train_pipe *pipe = &st->p->stage[s];
    struct mr_stream *stream = t->stage[s].stream;
    const uint32_t a = mr_train_tree_order(i, st->p->leaves.mine), k = i % st->p->n_slots,
                   n = mr_train_rows_of(&st->p->leaves, st->part, a);
    struct mr_net *net = pipe->slot[k].net;
    struct mr_net_batch batch;
    void *buffers;
    if (n == 0)
        return 0;
    int rc = s ? mr_stream_wait(stream, pipe[-1].slot[k].value) : 0; /* over ranks s is 0 */
    if (rc < 0)
        return rc;
    rc = make_batch(st, s, a, n, true, &batch);
    if (rc < 0)
        return rc;
    mr_net_buffers(net, &buffers, NULL);
    rc = copy_buffers(pipe, buffers, pipe->buffers, stream);
    if (rc < 0)
        return rc;
    rc = mr_net_set_step(net, t->step * st->p->leaves.n + a, stream);
    if (rc < 0)
        return rc;
    rc = mr_net_forward(net, &batch, stream);
    return rc < 0 ? rc : send_value(st, s, k, n);
}

static int add(struct mr_train_pipe *p, float *to, const float *from, struct mr_stream *stream)
{
    const struct mr_sum_add args = {
        .to = to, .from = from, .count = p->length, .dtype = MR_F32, .from_dtype = MR_F32};
    return launch(stream, MR_SUM_KERNEL_add, &args);
}

/* A micro-batch's vector: gradients, running statistics, totals. */
static int take(struct step *st, uint32_t s, struct mr_net *net, float *v, uint32_t a, uint32_t n)
{
    struct mr_train_pipe *p = &st->p->stage[s];
    struct mr_stream *stream = st->t->stage[s].stream;
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
        .share = (float)n / (float)st->part->total,
        .first = a == 0};
    return launch(stream, MR_SUM_KERNEL_take, &args);
}

/* fp16: the micro-batch's share, times the loss scale, which the last stage's own net has. */
static int scale_loss(struct step *st, uint32_t k, uint32_t a, uint32_t n,
                      struct mr_net_batch *batch)
{
    const struct mr_train_stage *last = &st->t->stage[st->t->n_stages - 1];
    struct mr_train_pipe *pipe = &st->p->stage[st->t->n_stages - 1];
    const float *grad_scale;
    const uint32_t *skip;
    struct mr_sum_begin begin = {.run = pipe->run,
                                 .net_step = &mr_net_gpu_state(pipe->slot[k].net)->step,
                                 .count = 1,
                                 .leaves = st->p->leaves.n,
                                 .leaf = a,
                                 .share = (float)n / (float)st->part->total};
    mr_net_scaling(last->net, &begin.loss_scale, &grad_scale, &skip);
    batch->loss_scale = &pipe->run->loss_scale;
    return launch(last->stream, MR_SUM_KERNEL_begin, &begin);
}

static int backward(struct step *st, uint32_t s, uint32_t i)
{
    struct mr_trainer *t = st->t;
    struct mr_train_pipe *pipe = &st->p->stage[s];
    struct mr_stream *stream = t->stage[s].stream;
    const uint32_t a = mr_train_tree_order(i, st->p->leaves.mine), k = i % st->p->n_slots,
                   n = mr_train_rows_of(&st->p->leaves, st->part, a);
    struct mr_net_batch batch;
    uint32_t *height = &st->height[s];
    int rc = 0;
    if (n && !is_last(t, s) && !st->p->comm)
        rc = mr_stream_wait(stream, pipe[1].slot[k].grad);
    if (n && rc >= 0)
        rc = make_batch(st, s, a, n, false, &batch);
    if (rc < 0)
        return rc;
    batch.loss_scale = st->p->share + a;
    if (n && is_last(t, s) && t->opts.precision == MR_PRECISION_FP16)
        rc = scale_loss(st, k, a, n, &batch);
    if (rc < 0)
        return rc;
    rc = n ? mr_net_backward(pipe->slot[k].net, &batch, stream) : 0;
    if (rc < 0)
        return rc;
    rc = n ? send_grad(st, s, k, n) : 0;
    if (rc < 0)
        return rc;
    rc = take(st, s, pipe->slot[k].net, pipe->vector + *height * pipe->length, a, n);
    ++*height;
    for (uint32_t carry = i; rc >= 0 && (carry & 1); carry /= 2, --*height)
        rc = add(pipe, pipe->vector + (*height - 2) * pipe->length,
                 pipe->vector + (*height - 1) * pipe->length, stream);
    return rc;
}

/* Over ranks: what the last pass made goes, and what this one needs comes: of n rows, in slot k.
 * is_forward NULL: it was the last. */
static int hop_before(struct step *st, const bool *is_forward, uint32_t k, uint32_t n)
{
    struct mr_trainer *t = st->t;
    struct mr_train_hop hop = st->hop;
    st->hop = (struct mr_train_hop){0};
    if (is_forward && !(*is_forward ? is_first(t, 0) : is_last(t, 0))) {
        struct mr_net_edge in, out;
        mr_net_edges(st->p->stage[0].slot[k].net, &in, &out);
        hop.in = *is_forward ? in.value : out.grad;
        hop.in_bytes = n * (*is_forward ? in.bytes : out.bytes);
        hop.in_forward = *is_forward;
    }
    return mr_train_hop(t, &hop);
}

static int run_own_passes(struct step *st)
{
    uint32_t i;
    for (uint32_t j = 0; j < 2 * st->t->n_leaves; j++) {
        const bool is_forward = pass_of(st->t, 0, j, &i);
        const uint32_t a = mr_train_tree_order(i, st->p->leaves.mine);
        int rc = hop_before(st, &is_forward, i % st->p->n_slots,
                            mr_train_rows_of(&st->p->leaves, st->part, a));
        if (rc < 0)
            return rc;
        rc = is_forward ? forward(st, 0, i) : backward(st, 0, i);
        if (rc < 0)
            return rc;
    }
    return hop_before(st, NULL, 0, 0);
}

static int run_passes(struct step *st)
{
    if (st->p->comm)
        return run_own_passes(st);
    const uint32_t n_stages = st->t->n_stages, n = 2 * st->t->n_leaves;
    uint32_t left = n_stages * n;
    while (left) {
        for (uint32_t s = 0; s < n_stages; s++) {
            const uint32_t j = st->n[s][0] + st->n[s][1];
            uint32_t i;
            if (j == n)
                continue;
            bool is_forward = pass_of(st->t, s, j, &i);
            if (!is_ready(st, s, is_forward, i))
                continue;
            int rc = is_forward ? forward(st, s, i) : backward(st, s, i);
            if (rc < 0)
                return rc;
            st->n[s][!is_forward]++;
            left--;
        }
    }
    return 0;
}

/* ---- the step ---- */

/* Where the run is. */
static int begin(struct mr_trainer *t, uint32_t s)
{
    struct mr_train_pipe *pipe = &t->pipeline->stage[s];
    struct mr_stream *stream = t->stage[s].stream;
    void *buffers;
    int rc = 0;
    if (t->pipeline->run_step != t->step)
        rc = mr_copy_async(stream, &pipe->run->step, MR_DEVICE, &t->step, MR_PAGEABLE,
                           sizeof t->step);
    if (rc < 0)
        return rc;
    mr_net_buffers(t->stage[s].net, &buffers, NULL);
    return copy_buffers(pipe, pipe->buffers, buffers, stream);
}

/* The totals, which the last stage has, go to the others: all decide by them. */
static int send_totals(struct mr_trainer *t)
{
    const uint32_t last = t->n_stages - 1;
    struct mr_train_pipe *from = &t->pipeline->stage[last];
    const uint64_t bytes = MR_SUM_TOTALS * sizeof(float);
    if (t->pipeline->comm)
        return mr_train_share_totals(t);
    if (last == 0)
        return 0;
    int rc = mr_event_record(from->sums, t->stage[last].stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(from->send, from->sums);
    for (uint32_t s = 0; s < last && rc >= 0; s++) {
        struct mr_train_pipe *to = &t->pipeline->stage[s];
        rc = mr_event_record(to->sums, t->stage[s].stream); /* it is done with its own */
        if (rc >= 0)
            rc = mr_stream_wait(from->send, to->sums);
        if (rc >= 0)
            rc = mr_copy_peer_async(from->send, to->vector + to->length - MR_SUM_TOTALS,
                                    t->stage[s].dev, from->vector + from->length - MR_SUM_TOTALS,
                                    t->stage[last].dev, bytes);
    }
    if (rc < 0)
        return rc;
    rc = mr_event_record(from->sent, from->send);
    for (uint32_t s = 0; s <= last && rc >= 0; s++)
        rc = mr_stream_wait(t->stage[s].stream, from->sent);
    return rc;
}

static int give(struct mr_trainer *t, uint32_t s)
{
    struct mr_train_pipe *p = &t->pipeline->stage[s];
    void *buffers;
    mr_net_buffers(t->stage[s].net, &buffers, NULL);
    const struct mr_sum_give args = {.from = p->vector,
                                     .before = p->buffers,
                                     .buffers = buffers,
                                     .run = p->run,
                                     .count = p->n_buffers + 1,
                                     .n_params = p->n_params,
                                     .n_buffers = p->n_buffers};
    return launch(t->stage[s].stream, MR_SUM_KERNEL_give, &args);
}

static int each(struct mr_trainer *t, int (*work)(struct mr_trainer *t, uint32_t s))
{
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = work(t, s);
    return rc;
}

static struct mr_train_part part_of(const struct mr_trainer *t, const struct mr_batch *b)
{
    uint64_t length = mr_dataset_length(t->ds), size = mr_train_batch_size(t);
    return mr_train_part_of(t, b, t->step % ((length + size - 1) / size), length);
}

/* Over ranks one of them may ask for the run's end: the totals tell the others. */
static int tell_stop(struct mr_trainer *t)
{
    struct mr_train_pipeline *p = t->pipeline;
    const uint32_t one = 1;
    if (!p->leaves.stop || p->stop_told)
        return 0;
    p->stop_told = true;
    return mr_copy_async(t->stream, &p->stage[0].run->stop, MR_DEVICE, &one, MR_PAGEABLE,
                         sizeof one);
}

static int pipeline_step(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch)
{
    const struct mr_train_part part = part_of(t, b);
    struct step st = {.t = t, .p = t->pipeline, .part = &part, .batch = *batch};
    int rc = send_labels(t, &part);
    if (rc < 0)
        return rc;
    rc = set_shares(t, &part);
    if (rc < 0)
        return rc;
    mr_train_phase(t, "computes");
    rc = tell_stop(t);
    if (rc < 0)
        return rc;
    rc = each(t, begin);
    if (rc < 0)
        return rc;
    t->pipeline->run_step = t->step + 1;
    rc = run_passes(&st);
    if (rc < 0)
        return rc;
    rc = send_totals(t);
    if (rc < 0)
        return rc;
    rc = each(t, give);
    if (rc < 0)
        return rc;
    if (t->info.unified || t->opts.on_nan == MR_ON_NAN_SKIP) {
        rc = mr_train_take_totals(t); /* looks at the loss before the parameters change */
        if (rc != 0)
            return MR_MIN(rc, 0);
    }
    return mr_train_pipeline_update(t);
}

/* All stages hold the totals, so that steps behind a bad loss change nothing; the last one's are
 * read, and all begin again. */
static int pipeline_take(struct mr_trainer *t, bool good, struct mr_net_totals *out)
{
    const struct mr_sum_totals none = {.first_not_finite = UINT64_MAX};
    const uint32_t last = t->n_stages - 1;
    struct mr_sum_run run;
    int rc = mr_copy_async(t->stage[last].stream, &run, MR_PAGEABLE, t->pipeline->stage[last].run,
                           MR_DEVICE, sizeof run);
    for (uint32_t s = 0; s <= last && rc >= 0; s++)
        rc = mr_stream_synchronize(t->stage[s].stream);
    const int failed = t->pipeline->comm ? mr_comm_check(t->pipeline->comm) : 0;
    if (rc < 0 || failed < 0)
        return failed < 0 ? failed : rc;
    const struct mr_sum_totals now = run.totals;
    t->pipeline->stop_heard = run.stops > 0;
    if (good && (now.n_not_finite || now.n_bad_labels)) {
        *out = (struct mr_net_totals){.size = sizeof *out};
        return 0;
    }
    *out = (struct mr_net_totals){.size = sizeof *out,
                                  .loss = now.loss,
                                  .n_right = now.n_right,
                                  .n_samples = now.n_samples,
                                  .n_bad_labels = now.n_bad_labels,
                                  .n_not_finite = now.n_not_finite,
                                  .first_not_finite = now.first_not_finite};
    for (uint32_t s = 0; s <= last && rc >= 0; s++)
        rc = mr_copy_async(t->stage[s].stream, &t->pipeline->stage[s].run->totals, MR_DEVICE, &none,
                           MR_PAGEABLE, sizeof none);
    return rc;
}

/* ---- tests ---- */

/* A micro-batch through all stages. [out] totals: of it. Blocks: then nothing is on its way. */
static int test_one(struct step *st, uint32_t a, uint32_t n, struct mr_net_totals *totals)
{
    struct mr_trainer *t = st->t;
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++) {
        struct mr_stream *stream = t->stage[s].stream;
        struct mr_net_batch batch;
        const bool forward = true;
        rc = st->p->comm ? hop_before(st, &forward, 0, n)
             : s         ? mr_stream_wait(stream, st->p->stage[s - 1].slot[0].value)
                         : 0;
        if (rc >= 0)
            rc = make_batch(st, s, a, n, true, &batch);
        if (rc >= 0)
            rc = mr_net_eval(t->stage[s].net, &batch, NULL, stream);
        if (rc >= 0)
            rc = send_value(st, s, 0, n);
        if (rc >= 0 && st->p->comm)
            rc = hop_before(st, NULL, 0, 0);
    }
    const struct mr_train_stage *last = &t->stage[t->n_stages - 1];
    if (rc >= 0)
        rc = mr_net_query_totals(last->net, last->stream, totals);
    return rc < 0 ? rc : mr_net_zero_totals(last->net, last->stream);
}

static int pipeline_test(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch, uint64_t index)
{
    struct mr_train_leaves *l = &t->pipeline->leaves;
    const struct mr_train_part part = mr_train_part_of(t, b, index, mr_dataset_length(t->test));
    struct step st = {.t = t, .p = t->pipeline, .part = &part, .batch = *batch};
    int rc = send_labels(t, &part);
    for (uint32_t a = 0; a < l->mine && rc >= 0; a++) {
        struct mr_net_totals totals = {.size = sizeof totals};
        double *sums = l->tests + 4ull * a;
        uint32_t n = mr_train_rows_of(l, &part, a);
        rc = n ? test_one(&st, a, n, &totals) : 0;
        sums[0] += totals.loss;
        sums[1] += (double)totals.n_right;
        sums[2] += (double)totals.n_samples;
        sums[3] += (double)totals.n_bad_labels;
    }
    return rc;
}

const struct mr_train_pipeline_ops mr_train_in_stages = {
    .step = pipeline_step,
    .take = pipeline_take,
    .test = pipeline_test,
};
