/* A step of a pipeline from its batch to its update; a test; and the totals of both. */
#include "train/pipeline.h"

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
    return mr_train_copy_buffers(pipe, pipe->buffers, buffers, stream);
}

/* To stage s, once it is done with its own. */
static int send_totals_to(struct mr_trainer *t, uint32_t s)
{
    const uint32_t last = t->n_stages - 1;
    struct mr_train_pipe *from = &t->pipeline->stage[last], *to = &t->pipeline->stage[s];
    int rc = mr_event_record(to->sums, t->stage[s].stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(from->send, to->sums);
    if (rc < 0)
        return rc;
    return mr_copy_peer_async(from->send, to->vector + to->length - MR_SUM_TOTALS, t->stage[s].dev,
                              from->vector + from->length - MR_SUM_TOTALS, t->stage[last].dev,
                              MR_SUM_TOTALS * sizeof(float));
}

/* The totals, which the last stage has, go to the others: all decide by them. */
static int send_totals(struct mr_trainer *t)
{
    const uint32_t last = t->n_stages - 1;
    struct mr_train_pipe *from = &t->pipeline->stage[last];
    if (t->pipeline->comm)
        return mr_train_share_totals(t);
    if (last == 0)
        return 0;
    int rc = mr_event_record(from->sums, t->stage[last].stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(from->send, from->sums);
    for (uint32_t s = 0; s < last && rc >= 0; s++)
        rc = send_totals_to(t, s);
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
    return mr_train_launch(t->stage[s].stream, MR_SUM_KERNEL_give, &args);
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

/* From the batch to the sums of all stages. */
static int run(struct mr_train_passes *ps)
{
    struct mr_trainer *t = ps->t;
    int rc = tell_stop(t);
    if (rc < 0)
        return rc;
    rc = each(t, begin);
    if (rc < 0)
        return rc;
    t->pipeline->run_step = t->step + 1;
    rc = mr_train_run_passes(ps);
    if (rc < 0)
        return rc;
    rc = send_totals(t);
    return rc < 0 ? rc : each(t, give);
}

static int pipeline_step(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch)
{
    const struct mr_train_part part = part_of(t, b);
    struct mr_train_passes ps = {.t = t, .p = t->pipeline, .part = &part, .batch = *batch};
    int rc = mr_train_send_labels(t, &part);
    if (rc < 0)
        return rc;
    rc = mr_train_set_shares(t, &part);
    if (rc < 0)
        return rc;
    mr_train_phase(t, "computes");
    rc = run(&ps);
    if (rc < 0)
        return rc;
    if (t->info.unified || t->opts.on_nan == MR_ON_NAN_SKIP) {
        rc = mr_train_take_totals(t); /* looks at the loss before the parameters change */
        if (rc != 0)
            return MR_MIN(rc, 0);
    }
    return mr_train_pipeline_update(t);
}

/* ---- the totals ---- */

/* What the last stage holds, when all stages are done. */
static int read_run(struct mr_trainer *t, struct mr_sum_run *run)
{
    const uint32_t last = t->n_stages - 1;
    int rc = mr_copy_async(t->stage[last].stream, run, MR_PAGEABLE, t->pipeline->stage[last].run,
                           MR_DEVICE, sizeof *run);
    for (uint32_t s = 0; s <= last && rc >= 0; s++)
        rc = mr_stream_synchronize(t->stage[s].stream);
    const int failed = t->pipeline->comm ? mr_comm_check(t->pipeline->comm) : 0;
    return failed < 0 ? failed : rc;
}

static int clear_totals(struct mr_trainer *t, uint32_t s)
{
    static const struct mr_sum_totals none = {.first_not_finite = UINT64_MAX};
    return mr_copy_async(t->stage[s].stream, &t->pipeline->stage[s].run->totals, MR_DEVICE, &none,
                         MR_PAGEABLE, sizeof none);
}

/* All stages hold the totals, so that steps behind a bad loss change nothing; the last one's are
 * read, and all begin again. */
static int pipeline_take(struct mr_trainer *t, bool good, struct mr_net_totals *out)
{
    struct mr_sum_run run;
    int rc = read_run(t, &run);
    if (rc < 0)
        return rc;
    const struct mr_sum_totals now = run.totals;
    t->pipeline->stop_heard = run.stops > 0;
    *out = (struct mr_net_totals){.size = sizeof *out};
    if (good && (now.n_not_finite || now.n_bad_labels))
        return 0;
    *out = (struct mr_net_totals){.size = sizeof *out,
                                  .loss = now.loss,
                                  .n_right = now.n_right,
                                  .n_samples = now.n_samples,
                                  .n_bad_labels = now.n_bad_labels,
                                  .n_not_finite = now.n_not_finite,
                                  .first_not_finite = now.first_not_finite};
    return each(t, clear_totals);
}

/* ---- tests ---- */

/* A micro-batch's pass through stage s. */
static int test_stage(struct mr_train_passes *ps, uint32_t s, uint32_t a, uint32_t n)
{
    struct mr_stream *stream = ps->t->stage[s].stream;
    struct mr_net_batch batch;
    const bool forward = true;
    int rc = 0;
    if (ps->p->comm)
        rc = mr_train_hop_before(ps, &forward, 0, n);
    else if (s > 0)
        rc = mr_stream_wait(stream, ps->p->stage[s - 1].slot[0].value);
    if (rc < 0)
        return rc;
    rc = mr_train_make_batch(ps, s, a, n, true, &batch);
    if (rc < 0)
        return rc;
    rc = mr_net_eval(ps->t->stage[s].net, &batch, NULL, stream);
    if (rc < 0)
        return rc;
    rc = mr_train_send_value(ps, s, 0, n);
    return rc < 0 || !ps->p->comm ? rc : mr_train_hop_before(ps, NULL, 0, 0);
}

/* A micro-batch through all stages. [out] totals: of it. Blocks: then nothing is on its way. */
static int test_one(struct mr_train_passes *ps, uint32_t a, uint32_t n,
                    struct mr_net_totals *totals)
{
    const struct mr_train_stage *last = &ps->t->stage[ps->t->n_stages - 1];
    for (uint32_t s = 0; s < ps->t->n_stages; s++) {
        int rc = test_stage(ps, s, a, n);
        if (rc < 0)
            return rc;
    }
    int rc = mr_net_query_totals(last->net, last->stream, totals);
    return rc < 0 ? rc : mr_net_zero_totals(last->net, last->stream);
}

static int pipeline_test(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch, uint64_t index)
{
    struct mr_train_leaves *l = &t->pipeline->leaves;
    const struct mr_train_part part = mr_train_part_of(t, b, index, mr_dataset_length(t->test));
    struct mr_train_passes ps = {.t = t, .p = t->pipeline, .part = &part, .batch = *batch};
    int rc = mr_train_send_labels(t, &part);
    for (uint32_t a = 0; a < l->mine && rc >= 0; a++) {
        struct mr_net_totals totals = {.size = sizeof totals};
        double *sums = l->tests + 4ull * a;
        uint32_t n = mr_train_rows_of(l, &part, a);
        rc = n ? test_one(&ps, a, n, &totals) : 0;
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
