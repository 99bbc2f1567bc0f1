/*
 * The end of a pipeline's step: the optimizers of all stages update together. Two things are of all
 * gradients: clip_norm's norm, and whether one of fp16 overflowed. Each stage computes its share,
 * and copies bring it to the others.
 *
 * The norm is a sum of sums of squares whose borders are those of the whole net. One that lies over
 * a border between stages is computed by the stage where it begins, from copies of the gradients:
 * so the norm has the bits of the net on one device.
 */
#include "device/device.h"
#include "train/stages.h"

/* Of all parameters of the net. */
static uint64_t n_all(const struct mr_trainer *t)
{
    return t->pipeline->param[t->pipeline->of];
}

struct mr_train_squares mr_train_squares_of(const struct mr_trainer *t, uint32_t s)
{
    const uint64_t *param = t->pipeline->param, unit = mr_optim_norm_unit(n_all(t));
    return (struct mr_train_squares){(uint32_t)((param[s] + unit - 1) / unit),
                                     (uint32_t)((param[s + 1] + unit - 1) / unit)};
}

/* What one stage has goes to another, once both are ready: the one has enqueued what makes it, the
 * other what read its place before. wait_for_sent() comes behind. */
static int send(struct mr_trainer *t, uint32_t from, uint32_t to, void *dst, const void *src,
                uint64_t bytes)
{
    struct mr_train_pipe *pipe = t->pipeline->stage;
    int rc = mr_stream_wait(pipe[from].send, pipe[from].sums);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(pipe[from].send, pipe[to].sums);
    if (rc < 0)
        return rc;
    return mr_copy_peer_async(pipe[from].send, dst, t->stage[to].dev, src, t->stage[from].dev,
                              bytes);
}

static int are_ready(struct mr_trainer *t)
{
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_event_record(t->pipeline->stage[s].sums, t->stage[s].stream);
    return rc;
}

static int wait_for_sent(struct mr_trainer *t)
{
    struct mr_train_pipe *pipe = t->pipeline->stage;
    int rc = 0;
    for (uint32_t from = 0; from < t->n_stages && rc >= 0; from++) {
        rc = mr_event_record(pipe[from].sent, pipe[from].send);
        for (uint32_t to = 0; to < t->n_stages && rc >= 0; to++)
            rc = to == from ? 0 : mr_stream_wait(t->stage[to].stream, pipe[from].sent);
    }
    return rc;
}

/* ---- the norm ---- */

uint32_t mr_train_shared_square(const struct mr_trainer *t, uint32_t s, uint64_t *begin,
                                uint64_t *n)
{
    const struct mr_train_squares own = mr_train_squares_of(t, s);
    const uint64_t unit = mr_optim_norm_unit(n_all(t));
    *n = 0;
    if (own.end == own.first)
        return 0;
    *begin = (own.end - 1) * unit;
    const uint64_t end = MR_MIN(*begin + unit, n_all(t));
    if (end > t->pipeline->param[s + 1])
        *n = end - *begin;
    return own.end - 1;
}

/* The elements of it that stage `from` has come to where they are added up. */
static int collect_from(struct mr_trainer *t, uint32_t s, uint32_t from,
                        const struct mr_optim_grads *grads, uint64_t begin, uint64_t n)
{
    const uint64_t *param = t->pipeline->param, first = MR_MAX(begin, param[from]),
                   end = MR_MIN(begin + n, param[from + 1]);
    if (first >= end)
        return 0;
    float *to = t->pipeline->stage[s].piece + (first - begin);
    const float *src = (const float *)grads[from].data + (first - param[from]);
    const uint64_t bytes = (end - first) * sizeof *to;
    return from == s ? mr_copy_async(t->stage[s].stream, to, MR_DEVICE, src, MR_DEVICE, bytes)
                     : send(t, from, s, to, src, bytes);
}

static int shared_sums(struct mr_trainer *t, const struct mr_optim_grads *grads)
{
    uint64_t begin = 0, n;
    int rc = are_ready(t);
    for (uint32_t s = 0; s < t->n_stages; s++) {
        mr_train_shared_square(t, s, &begin, &n);
        for (uint32_t from = s; from < t->n_stages && n && rc >= 0; from++)
            rc = collect_from(t, s, from, grads, begin, n);
    }
    if (rc < 0)
        return rc;
    rc = wait_for_sent(t);
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++) {
        const struct mr_optim_grads piece = {t->pipeline->stage[s].piece, MR_F32};
        const uint32_t k = mr_train_shared_square(t, s, &begin, &n);
        if (n)
            rc = mr_optim_norm_one(t->stage[s].optim, k, &piece, n, t->stage[s].stream);
    }
    return rc;
}

/* All stages get all sums of squares. */
static int share_norms(struct mr_trainer *t, const struct mr_optim_grads *grads)
{
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_optim_own_norms(t->stage[s].optim, &grads[s], t->stage[s].stream);
    if (rc < 0)
        return rc;
    if (t->pipeline->comm)
        return mr_train_share_squares(t, grads);
    rc = shared_sums(t, grads);
    if (rc < 0)
        return rc;
    rc = are_ready(t);
    for (uint32_t from = 0; from < t->n_stages; from++) {
        const struct mr_train_squares own = mr_train_squares_of(t, from);
        for (uint32_t to = 0; to < t->n_stages && own.end > own.first && rc >= 0; to++)
            if (to != from)
                rc = send(t, from, to, t->stage[to].optim->norms + own.first,
                          t->stage[from].optim->norms + own.first,
                          (own.end - own.first) * sizeof(double));
    }
    return rc < 0 ? rc : wait_for_sent(t);
}

/* ---- fp16 ---- */

/* All stages decide by what each has found. */
static int rescale(struct mr_trainer *t)
{
    struct mr_train_pipe *pipe = t->pipeline->stage;
    int rc = 0;
    if (t->opts.precision != MR_PRECISION_FP16)
        return 0;
    if (t->pipeline->comm)
        return mr_train_share_overflow(t);
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_net_find_overflow(t->stage[s].net, pipe[s].vector, pipe[s].n_params,
                                  pipe[s].overflow + s, t->stage[s].stream);
    if (rc < 0)
        return rc;
    rc = are_ready(t);
    for (uint32_t from = 0; from < t->n_stages; from++)
        for (uint32_t to = 0; to < t->n_stages && rc >= 0; to++)
            if (to != from)
                rc = send(t, from, to, pipe[to].overflow + from, pipe[from].overflow + from,
                          sizeof *pipe[from].overflow);
    if (rc < 0)
        return rc;
    rc = wait_for_sent(t);
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_net_rescale_found(t->stage[s].net, pipe[s].overflow, t->n_stages,
                                  t->stage[s].stream);
    return rc;
}

/* ---- the update ---- */

/* Returns whether a step is due, which is the same in all stages, or an error. */
static int begin(struct mr_trainer *t, struct mr_optim_grads *grads)
{
    int due = 0;
    for (uint32_t s = 0; s < t->n_stages; s++) {
        grads[s] = (struct mr_optim_grads){t->pipeline->stage[s].vector, MR_F32};
        due = mr_optim_begin_step(t->stage[s].optim, &grads[s], t->stage[s].stream);
        if (due < 0)
            return due;
    }
    return due;
}

static int end(struct mr_trainer *t, uint32_t s, const struct mr_optim_grads *grads)
{
    struct mr_train_stage *stage = &t->stage[s];
    void *params;
    mr_net_flat(stage->net, &params, NULL, NULL);
    return mr_optim_end_step(stage->optim, params, &grads[s], stage->stream);
}

int mr_train_pipeline_update(struct mr_trainer *t)
{
    struct mr_optim_grads grads[MR_TRAIN_STAGES];
    int rc = rescale(t);
    if (rc < 0)
        return rc;
    const int due = begin(t, grads);
    if (due < 0)
        return due;
    rc = due && t->optim->n_norms ? share_norms(t, grads) : 0;
    for (uint32_t s = 0; s < t->n_stages && due && rc >= 0; s++)
        rc = end(t, s, grads);
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_event_record(t->pipeline->stage[s].done, t->stage[s].stream);
    return rc;
}
