/*
 * A step over several ranks, or parts of a batch, on a device. Nothing of it needs the host: the
 * kernels of kernels/sum count steps, take a leaf's vector from the net, and give the sums back. So
 * the step is recorded as one graph; but where the ranks' sum wants the host (mr_comm_stats.graphs
 * is 0), the graph ends before it. All ranks record and launch in the same steps: those whose
 * batches are whole.
 *
 * A loss that is not finite on any rank is counted in the sum, where the optimizer's step looks.
 */
#include "device/device.h"
#include "nn/net.h"
#include "train/leaves.h"

#include <string.h>

_Static_assert(MR_SUM_EVERY == 2 * MR_SUM_PHASE && MR_TRAIN_LOOK % MR_SUM_EVERY == 0 &&
                   MR_TRAIN_LOOK / MR_SUM_EVERY <= MR_SUM_TIMED,
               "steps before timed ones and before looks are those where (step + 1) % 4 is 0");

_Static_assert(sizeof(struct mr_sum_totals) == sizeof(struct mr_nn_gpu_totals) &&
                   offsetof(struct mr_sum_totals, n_not_finite) ==
                       offsetof(struct mr_nn_gpu_totals, n_not_finite) &&
                   offsetof(struct mr_nn_gpu_state, totals) == 0,
               "a net's totals are read as mr_sum_totals");

static int launch(struct mr_trainer *t, enum mr_sum_kernel which, const void *args)
{
    return mr_launch_kernel(t->stream, &mr_sum_kernel[which], args, NULL);
}

int mr_train_stamp(struct mr_trainer *t, enum mr_sum_stamp_of what)
{
    const struct mr_sum_stamp args = {t->leaves->run, 1, what};
    return t->leaves->world > 1 ? launch(t, MR_SUM_KERNEL_stamp, &args) : 0;
}

static int acquire(struct mr_trainer *t, uint64_t bytes, void *out)
{
    return mr_memory_acquire(t->dev, MR_DEVICE, MR_MAX(bytes, 1), out);
}

static int device_prepare(struct mr_trainer *t, uint32_t levels)
{
    struct mr_train_leaves *l = t->leaves;
    const struct mr_sum_run first = {.totals = {.first_not_finite = UINT64_MAX}};
    l->run_step = UINT64_MAX;
    int rc = l->tests ? mr_device_load_kernels(t->dev, &mr_sum_module)
                      : mr_error_nomem("trainer", 4ull * l->mine * sizeof *l->tests);
    if (rc < 0)
        return rc;
    rc = acquire(t, levels * l->length * sizeof(float), &l->vector);
    if (rc < 0)
        return rc;
    rc = acquire(t, l->n_buffers * sizeof(float), &l->buffers);
    if (rc < 0)
        return rc;
    rc = acquire(t, sizeof *l->run, &l->run);
    if (rc < 0)
        return rc;
    rc = t->shard ? acquire(t, sizeof *l->overflow, &l->overflow) : 0;
    if (rc < 0)
        return rc;
    rc = mr_copy_async(t->stream, l->run, MR_DEVICE, &first, MR_PAGEABLE, sizeof first);
    if (rc < 0)
        return rc;
    rc = mr_train_overlap_open(t);
    return rc < 0 ? rc : mr_stream_synchronize(t->stream);
}

static void device_destroy(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    mr_train_overlap_close(t);
    void *const all[] = {l->vector, l->buffers, l->run, l->input, l->labels, l->overflow};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        mr_memory_release(t->dev, MR_DEVICE, all[i], NULL);
}

const uint32_t *mr_train_leaves_bad_loss(const struct mr_trainer *t)
{
    const struct mr_train_leaves *l = t->leaves;
    return l && l->device ? (const uint32_t *)(const void *)&l->run->totals.n_not_finite : NULL;
}

static int take_rows(struct mr_trainer *t, void *to, const struct mr_batch_field *from,
                     uint64_t bytes, uint32_t a, uint32_t n)
{
    const uint32_t word = bytes % 4 == 0 ? 4 : 1;
    const struct mr_sum_rows args = {.to = to,
                                     .from = from->data,
                                     .count = n * (bytes / word),
                                     .words = bytes / word,
                                     .first = a,
                                     .step = t->leaves->mine,
                                     .word = word};
    return launch(t, MR_SUM_KERNEL_rows, &args);
}

static int device_rows(struct mr_trainer *t, const struct mr_train_part *p, uint32_t a, uint32_t n,
                       struct mr_net_batch *out)
{
    struct mr_train_leaves *l = t->leaves;
    const struct mr_batch_field *in = &p->b->field[0], *label = &p->b->field[t->label];
    uint64_t in_bytes = in->bytes / p->b->n, label_bytes = label->bytes / p->b->n;
    uint64_t rows = mr_train_batch_size(t) / l->n;
    int rc = l->input ? 0 : acquire(t, mr_train_room(in, p->b->n, rows), &l->input);
    if (rc < 0)
        return rc;
    rc = l->labels ? 0 : acquire(t, mr_train_room(label, p->b->n, rows), &l->labels);
    if (rc < 0)
        return rc;
    rc = take_rows(t, l->input, in, in_bytes, a, n);
    if (rc < 0)
        return rc;
    out->input = l->input;
    out->labels = l->labels;
    return take_rows(t, l->labels, label, label_bytes, a, n);
}

static int copy_buffers(struct mr_trainer *t, void *to, const void *from)
{
    uint64_t bytes = t->leaves->n_buffers * sizeof(float);
    return bytes ? mr_copy_async(t->stream, to, MR_DEVICE, from, MR_DEVICE, bytes) : 0;
}

/* The i-th pass, over the leaf a; the vectors of `height` others are below its own. */
struct leaf {
    uint32_t i, a, height;
    bool last;
};

/* A pass over one leaf, and its vector; or of the last one what the overlap leaves. */
static int run_leaf(struct mr_trainer *t, const struct mr_train_part *p, struct leaf which,
                    struct mr_net_batch batch)
{
    struct mr_train_leaves *l = t->leaves;
    struct mr_nn_gpu_state *state = mr_net_gpu_state(t->net);
    void *grads, *buffers;
    float *v = l->vector + which.height * l->length;
    const uint32_t a = which.a, n = mr_train_rows_of(l, p, a);
    const float share = (float)n / (float)p->total;
    const bool overlaps = l->overlap && which.last;
    struct mr_train_last last = {.i = which.i, .height = which.height};
    if (n == 0) {
        int rc = mr_memset_async(t->stream, v, MR_DEVICE, 0, l->length * sizeof *v);
        if (rc < 0 || !overlaps)
            return rc < 0 || !which.last ? rc : mr_train_stamp(t, MR_SUM_READY);
        mr_train_overlap_begin(t, &last);
        return mr_train_overlap_end(t, 0);
    }
    mr_net_flat(t->net, NULL, &grads, NULL);
    mr_net_buffers(t->net, &buffers, NULL);
    const struct mr_sum_begin begin = {.run = l->run,
                                       .net_step = &state->step,
                                       .loss_scale = batch.loss_scale,
                                       .count = 1,
                                       .leaves = l->n,
                                       .leaf = l->rank + (uint64_t)a * l->world,
                                       .share = share,
                                       .first = which.i == 0};
    last.take = (struct mr_sum_take){.to = v,
                                     .grads = grads,
                                     .buffers = buffers,
                                     .totals = (struct mr_sum_totals *)(void *)&state->totals,
                                     .run = l->run,
                                     .clock = which.last ? &l->run->clock : NULL,
                                     .count = l->n_params + l->n_buffers + 1,
                                     .n_params = l->n_params,
                                     .n_buffers = l->n_buffers,
                                     .share = share,
                                     .first = a == 0};
    int rc = copy_buffers(t, buffers, l->buffers);
    if (rc < 0)
        return rc;
    rc = mr_train_take_leaf(t, p, a, n, &batch);
    if (rc < 0)
        return rc;
    rc = launch(t, MR_SUM_KERNEL_begin, &begin);
    if (rc < 0)
        return rc;
    batch.loss_scale = &l->run->loss_scale;
    if (overlaps)
        mr_train_overlap_begin(t, &last);
    rc = mr_net_train(t->net, &batch, t->stream);
    if (overlaps)
        return mr_train_overlap_end(t, rc);
    return rc < 0 ? rc : launch(t, MR_SUM_KERNEL_take, &last.take);
}

int mr_train_add_range(const struct mr_train_leaves *l, float *to, const float *from,
                       struct mr_train_range part, struct mr_stream *stream)
{
    const uint64_t middle = MR_MIN(MR_MAX(part.first, l->n_params), part.end);
    const struct mr_train_range half[] = {{part.first, middle}, {middle, part.end}};
    for (int i = 0; i < 2; i++) {
        const struct mr_sum_add args = {.to = to + half[i].first,
                                        .from = from + half[i].first,
                                        .count = half[i].end - half[i].first,
                                        .dtype = MR_F32,
                                        .from_dtype = MR_F32,
                                        .round = i == 0 && l->wire == MR_BF16};
        int rc = args.count
                     ? mr_launch_kernel(stream, &mr_sum_kernel[MR_SUM_KERNEL_add], &args, NULL)
                     : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct job {
    const struct mr_train_part *p;
    const struct mr_net_batch *batch;
};

/* This rank's leaves, added up into l->vector: as run_leaves() of leaves.c. With an overlap, those
 * of all ranks. */
static int run_leaves(struct mr_trainer *t, const struct job *j)
{
    struct mr_train_leaves *l = t->leaves;
    const struct mr_train_range all = {0, l->length};
    uint32_t height = 0;
    void *buffers;
    mr_net_buffers(t->net, &buffers, NULL);
    int rc = copy_buffers(t, l->buffers, buffers);
    for (uint32_t i = 0; i < l->mine && rc >= 0; i++) {
        const struct leaf which = {i, mr_train_tree_order(i, l->mine), height++, i + 1 == l->mine};
        rc = run_leaf(t, j->p, which, *j->batch);
        if (l->overlap && which.last)
            return rc;
        for (uint32_t carry = i; rc >= 0 && (carry & 1); carry /= 2, height--)
            rc = mr_train_add_range(l, l->vector + (height - 2) * l->length,
                                    l->vector + (height - 1) * l->length, all, t->stream);
    }
    return rc;
}

/* The same, of all ranks. */
static int run_all(struct mr_trainer *t, const struct job *j)
{
    int rc = run_leaves(t, j);
    return rc < 0 || t->leaves->overlap ? rc : mr_train_sum_vector(t, t->stream);
}

static int give(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    void *buffers;
    mr_net_buffers(t->net, &buffers, NULL);
    const struct mr_sum_give args = {.from = l->vector,
                                     .before = l->buffers,
                                     .buffers = buffers,
                                     .run = l->run,
                                     .count = l->n_buffers + 1,
                                     .n_params = l->n_params,
                                     .n_buffers = l->n_buffers};
    return launch(t, MR_SUM_KERNEL_give, &args);
}

/* fp16: each rank looks at its part of the sums, and all decide alike. */
static int rescale_shard(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    const struct mr_train_shard *s = t->shard;
    const uint64_t first = mr_train_shard_first(s);
    if (t->opts.precision != MR_PRECISION_FP16)
        return 0;
    int rc = mr_net_find_overflow(t->net, l->vector + first, s->first[s->rank + 1] - first,
                                  l->overflow, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_comm_sum(l->comm, l->overflow, l->overflow, 1, MR_F32, MR_F32, MR_SUM_FAST, t->stream);
    return rc < 0 ? rc : mr_net_rescale_found(t->net, l->overflow, 1, t->stream);
}

static int update(struct mr_trainer *t)
{
    void *params;
    mr_net_flat(t->net, &params, NULL, NULL);
    if (t->shard) {
        int found = rescale_shard(t);
        return found < 0 ? found
                         : mr_train_shard_step(t->shard, t->optim, params, t->leaves->vector, false,
                                               t->stream);
    }
    int rc = mr_net_rescale_by(t->net, t->leaves->vector, t->stream);
    return rc < 0 ? rc : mr_optim_step(t->optim, params, t->leaves->vector, t->stream);
}

static int before_sum(struct mr_trainer *t, const void *job)
{
    return run_leaves(t, job);
}

static int whole_step(struct mr_trainer *t, const void *job)
{
    int rc = run_all(t, job);
    if (rc < 0)
        return rc;
    rc = give(t);
    return rc < 0 ? rc : update(t);
}

/* What the host alone knows: where the run is, and that somebody wants it to end. */
static int tell(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    const uint32_t one = 1;
    int rc = 0;
    if (l->apart)
        rc = mr_memset_async(t->stream, &l->run->clock.given_ns, MR_DEVICE, 0,
                             sizeof l->run->clock.given_ns);
    if (rc < 0)
        return rc;
    l->apart = false;
    if (l->run_step != t->step)
        rc = mr_copy_async(t->stream, &l->run->step, MR_DEVICE, &t->step, MR_PAGEABLE,
                           sizeof t->step);
    if (rc < 0)
        return rc;
    l->run_step = t->step + 1;
    if (!l->stop || l->stop_told)
        return 0;
    l->stop_told = true;
    return mr_copy_async(t->stream, &l->run->stop, MR_DEVICE, &one, MR_PAGEABLE, sizeof one);
}

/* Looks at the loss before the parameters change. */
static int careful_step(struct mr_trainer *t, const struct job *j)
{
    int rc = run_all(t, j);
    if (rc < 0)
        return rc;
    rc = give(t);
    if (rc < 0)
        return rc;
    rc = mr_train_take_totals(t);
    return rc != 0 ? MR_MIN(rc, 0) : update(t);
}

static int run_step(struct mr_trainer *t, const struct mr_train_part *p,
                    const struct mr_net_batch *batch)
{
    struct mr_train_leaves *l = t->leaves;
    const struct job j = {p, batch};
    if (t->opts.on_nan == MR_ON_NAN_SKIP)
        return careful_step(t, &j);
    bool graphs = t->opts.graph && p->total == mr_train_batch_size(t) &&
                  mr_optim_options(t->optim, 0)->accumulate == 1;
    if (l->graphs) {
        int rc = graphs ? mr_train_recorded(t, batch, whole_step, &j) : whole_step(t, &j);
        return rc < 0 || !l->comm ? rc : mr_comm_watch(l->comm, t->stream);
    }
    int rc = graphs ? mr_train_recorded(t, batch, before_sum, &j) : before_sum(t, &j);
    if (rc < 0)
        return rc;
    rc = mr_train_sum_vector(t, t->stream);
    if (rc < 0)
        return rc;
    rc = give(t);
    return rc < 0 ? rc : update(t);
}

static int device_step(struct mr_trainer *t, const struct mr_train_part *p,
                       const struct mr_net_batch *batch)
{
    mr_train_phase(t, "computes");
    int rc = tell(t);
    if (rc < 0)
        return rc;
    rc = run_step(t, p, batch);
    bool look = (t->step + 1) % MR_TRAIN_LOOK == 0;
    return rc < 0 || !look ? rc : mr_train_stamp(t, MR_SUM_UPDATED);
}

static int device_take(struct mr_trainer *t, bool good, struct mr_net_totals *out)
{
    struct mr_train_leaves *l = t->leaves;
    const struct mr_sum_totals none = {.first_not_finite = UINT64_MAX};
    struct mr_sum_run now;
    int rc = mr_copy_async(t->stream, &now, MR_PAGEABLE, l->run, MR_DEVICE, sizeof now);
    if (rc == 0)
        rc = mr_stream_synchronize(t->stream);
    int failed = l->comm ? mr_comm_check(l->comm) : 0;
    if (rc < 0 || failed < 0)
        return failed < 0 ? failed : rc;
    l->stop_heard = now.stops > 0;
    mr_train_times_look(t, &now.clock);
    if (good && (now.totals.n_not_finite || now.totals.n_bad_labels)) {
        *out = (struct mr_net_totals){.size = sizeof *out};
        return 0;
    }
    *out = (struct mr_net_totals){.size = sizeof *out,
                                  .loss = now.totals.loss,
                                  .n_right = now.totals.n_right,
                                  .n_samples = now.totals.n_samples,
                                  .n_bad_labels = now.totals.n_bad_labels,
                                  .n_not_finite = now.totals.n_not_finite,
                                  .first_not_finite = now.totals.first_not_finite};
    return mr_copy_async(t->stream, &l->run->totals, MR_DEVICE, &none, MR_PAGEABLE, sizeof none);
}

static void device_hear(struct mr_trainer *t)
{
    t->stopping = t->stopping || t->leaves->stop_heard;
}

const struct mr_train_leaves_ops mr_train_on_device = {
    .prepare = device_prepare,
    .destroy = device_destroy,
    .rows = device_rows,
    .step = device_step,
    .take = device_take,
    .hear = device_hear,
};
