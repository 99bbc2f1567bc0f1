/* The samples of micro-batches: micro-batch a has those whose position in the batch is a modulo
 * their number, packed one after the other. */
#include "train/pipeline.h"

#include <stdlib.h>

static bool is_last(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_is_last_stage(t, s);
}

static bool is_first(const struct mr_trainer *t, uint32_t s)
{
    return mr_train_stage_number(t, s) == 0;
}

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
    return mr_train_launch(t->stream, MR_SUM_KERNEL_rows, &args);
}

/* Memory for packed rows, when the first batch tells how large they are. What a call that failed
 * got is kept for the next one. */
static int take_room(struct mr_trainer *t, const struct mr_train_part *part)
{
    struct mr_train_pipeline *p = t->pipeline;
    const struct mr_batch_field *in = &part->b->field[0], *label = &part->b->field[t->label];
    const uint64_t rows = mr_train_batch_size(t) / p->leaves.n;
    int rc = 0;
    if (p->last_labels)
        return 0;
    p->label_bytes = mr_round_up(mr_train_room(label, part->b->n, rows), 256);
    const uint64_t labels = p->label_bytes * p->leaves.n;
    if (!p->input && is_first(t, 0))
        rc = mr_memory_acquire(t->dev, MR_DEVICE, mr_train_room(in, part->b->n, rows),
                               (void **)&p->input);
    if (rc < 0)
        return rc;
    if (!p->labels && !p->comm)
        rc = mr_memory_acquire(t->dev, MR_DEVICE, labels, (void **)&p->labels);
    if (rc < 0)
        return rc;
    return mr_memory_acquire(t->stage[t->n_stages - 1].dev, MR_DEVICE, labels,
                             (void **)&p->last_labels);
}

/* To the last device, once the step before no longer reads its labels there. */
static int copy_labels(struct mr_trainer *t)
{
    struct mr_train_pipeline *p = t->pipeline;
    const uint32_t last = t->n_stages - 1;
    struct mr_stream *send = p->stage[0].send;
    int rc = mr_event_record(p->packed, t->stream);
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

int mr_train_send_labels(struct mr_trainer *t, const struct mr_train_part *part)
{
    struct mr_train_pipeline *p = t->pipeline;
    int rc = take_room(t, part);
    if (rc < 0)
        return rc;
    char *labels = p->comm ? p->last_labels : p->labels; /* every rank has them */
    rc = mr_stream_wait(t->stream, p->labelled);
    for (uint32_t a = 0; a < p->leaves.mine && rc >= 0; a++) {
        const uint32_t n = mr_train_rows_of(&p->leaves, part, a);
        if (n)
            rc = take_rows(t, labels + a * p->label_bytes, &part->b->field[t->label], part, a, n);
    }
    return rc < 0 || p->comm ? rc : copy_labels(t);
}

/* The loss of a micro-batch is a mean over it; its share makes it one over the batch. */
int mr_train_set_shares(struct mr_trainer *t, const struct mr_train_part *part)
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

int mr_train_make_batch(const struct mr_train_passes *ps, uint32_t s, uint32_t a, uint32_t n,
                        bool input, struct mr_net_batch *out)
{
    struct mr_trainer *t = ps->t;
    struct mr_train_pipeline *p = ps->p;
    *out = ps->batch;
    out->n = n;
    out->labels = is_last(t, s) ? p->last_labels + a * p->label_bytes : NULL;
    if (!is_first(t, s))
        out->input = NULL;
    else if (input && p->leaves.mine > 1) {
        out->input = p->input;
        return take_rows(t, p->input, &ps->part->b->field[0], ps->part, a, n);
    }
    return 0;
}
