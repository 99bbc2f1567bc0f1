/*
 * Stages that are ranks. What goes between them are mr_comm_send_recv()s, and for what all need of
 * all (totals, norms, overflows) sums and gathers.
 */
#include "device/device.h"
#include "train/stages.h"

#include <errno.h>

int mr_train_hop(struct mr_trainer *t, const struct mr_train_hop *hop)
{
    const struct mr_train_pipeline *p = t->pipeline;
    const uint32_t to = hop->out_forward ? p->at + 1 : p->at - 1,
                   from = hop->in_forward ? p->at - 1 : p->at + 1;
    if (hop->out_bytes == 0 && hop->in_bytes == 0)
        return 0;
    return mr_comm_send_recv(p->comm, hop->out, hop->out_bytes, to, hop->in, hop->in_bytes, from,
                             mr_train_comm_stream(t));
}

/* The others' are 0, but for whether they ask for the run's end. */
int mr_train_share_totals(struct mr_trainer *t)
{
    struct mr_train_pipe *pipe = &t->pipeline->stage[0];
    float *totals = pipe->vector + pipe->length - MR_SUM_TOTALS;
    return mr_comm_sum(t->pipeline->comm, totals, totals, MR_SUM_TOTALS, MR_F32, MR_F32,
                       MR_SUM_FAST, mr_train_comm_stream(t));
}

/* The gradients of a sum of squares that lies over borders come to all; the rank where it begins
 * adds up. */
static int share_between(struct mr_trainer *t, uint32_t s, const struct mr_optim_grads *grads)
{
    struct mr_train_pipeline *p = t->pipeline;
    float *piece = p->stage[0].piece;
    uint64_t begin = 0, n;
    const uint32_t k = mr_train_shared_square(t, s, &begin, &n);
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i <= p->of; i++)
        p->part[i] = MR_MIN(MR_MAX(p->param[i], begin), begin + n) - begin;
    const uint64_t first = begin + p->part[p->at], own = p->part[p->at + 1] - p->part[p->at];
    int rc = 0;
    if (own)
        rc = mr_copy_async(t->stream, piece + p->part[p->at], MR_DEVICE,
                           (const float *)grads->data + (first - p->param[p->at]), MR_DEVICE,
                           own * sizeof *piece);
    if (rc < 0)
        return rc;
    rc = mr_comm_gather(p->comm, piece, p->part, MR_F32, mr_train_comm_stream(t));
    if (rc < 0 || s != p->at)
        return rc;
    const struct mr_optim_grads of = {piece, MR_F32};
    return mr_optim_norm_one(t->optim, k, &of, n, t->stream);
}

int mr_train_share_squares(struct mr_trainer *t, const struct mr_optim_grads *grads)
{
    struct mr_train_pipeline *p = t->pipeline;
    int rc = 0;
    for (uint32_t s = 0; s < p->of && rc >= 0; s++)
        rc = share_between(t, s, grads);
    if (rc < 0)
        return rc;
    for (uint32_t s = 0; s < p->of; s++)
        p->part[s] = mr_train_squares_of(t, s).first;
    p->part[p->of] = t->optim->n_norms;
    return mr_comm_gather(p->comm, t->optim->norms, p->part, MR_F64, mr_train_comm_stream(t));
}

int mr_train_share_overflow(struct mr_trainer *t)
{
    struct mr_train_pipe *pipe = &t->pipeline->stage[0];
    int rc = mr_net_find_overflow(t->net, pipe->vector, pipe->n_params, pipe->overflow, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_comm_sum(t->pipeline->comm, pipe->overflow, pipe->overflow, 1, MR_F32, MR_F32,
                     MR_SUM_FAST, mr_train_comm_stream(t));
    return rc < 0 ? rc : mr_net_rescale_found(t->net, pipe->overflow, 1, t->stream);
}
