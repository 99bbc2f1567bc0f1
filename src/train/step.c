/* Training steps: the part that repeats for each batch. */
#include "train/stages.h"
#include "train/trainer.h"

#include <inttypes.h>

#define CHECK_EVERY 256 /* steps between looks at a device's totals, each of which waits for it */
/* of an epoch: the run's first ones load libraries and record graphs, and tell nothing of the
     * rest */
#define WARM_STEPS  64
#define SKIP_MOST   100 /* in a row: by then it is the parameters */

static struct mr_net_batch net_batch(const struct mr_trainer *t, const struct mr_batch *b)
{
    const struct mr_batch_field *in = &b->field[0],
                                *label = t->label >= 0 ? &b->field[t->label] : NULL;
    return (struct mr_net_batch){.size = sizeof(struct mr_net_batch),
                                 .input = in->data,
                                 .labels = label ? label->data : NULL,
                                 .input_dtype = in->spec.dtype,
                                 .label_dtype = label ? label->spec.dtype : MR_U8,
                                 .n = (uint32_t)b->n};
}

static int bad_labels(struct mr_trainer *t, uint64_t n)
{
    int64_t low, high;
    uint64_t looked_at;
    uint32_t most = mr_train_outputs(mr_train_last_net(t)) - 1;
    enum mr_dtype dtype = mr_dataset_field(t->ds, t->label)->dtype;
    if (dtype != MR_U8 && dtype != MR_I32 && dtype != MR_I64)
        return mr_error_set(MR_EFORMAT, "%" PRIu64 " labels are no class of 0..%u", n, most);
    mr_train_label_range(t, &low, &high, &looked_at);
    return mr_error_set(MR_EFORMAT,
                        "%" PRIu64
                        " label%s of the last batches %s outside 0..%u (the first %" PRIu64
                        " samples have %" PRId64 "..%" PRId64
                        "): expected labels from 0, as many classes as there are",
                        n, n == 1 ? "" : "s", n == 1 ? "is" : "are", most, looked_at, low, high);
}

void mr_train_find_bad(struct mr_trainer *t)
{
    t->looked = true;
    t->bad_layer = NULL;
    if (t->pipeline) {
        mr_train_pipeline_find_bad(t);
        return;
    }
    int layer = mr_net_find_bad(t->net, t->stream, &t->bad_what);
    t->bad_layer = layer >= 0 ? mr_net_layer_get(t->net, (uint32_t)layer) : NULL;
}

/* step: the net's count, which is ours. */
static int not_finite(struct mr_trainer *t, uint64_t step)
{
    char where[160] = "";
    if (!t->leaves)
        mr_train_find_bad(t);
    else if (mr_train_leaves_on_device(t)) { /* the batch that it last had may be a good one */
        mr_train_find_bad(t);
        t->looked = t->bad_layer != NULL;
    }
    const struct mr_net_layer *l = t->bad_layer;
    if (t->pipeline && !l && !mr_train_has_last_stage(t)) /* another rank's stage found it */
        t->looked = false;
    if (t->looked && l)
        snprintf(where, sizeof where, "layer %.60s (%.60s)", l->name, t->bad_what);
    else if (t->looked) /* else this rank's losses were finite: bad_layer is of an earlier step */
        snprintf(where, sizeof where, "the loss");
    int rc = mr_train_parts(t) ? mr_train_leaves_where(t, where, sizeof where) : 0;
    if (rc < 0)
        return rc;
    return mr_error_set(MR_EMISUSE,
                        "the loss is not finite (NaN or infinite) at step %" PRIu64
                        " of epoch %" PRIu64
                        ": first in %s; a lower lr, clip_norm=1, or leaving such steps out may "
                        "help",
                        step + 1, t->epoch + 1, where[0] ? where : "the part of another rank");
}

int mr_train_take_totals(struct mr_trainer *t)
{
    struct mr_net_totals now = {.size = sizeof now};
    if (mr_train_leaves_on_device(t)) {
        int taken = mr_train_on_device.take(t, false, &now);
        return taken < 0 ? taken : mr_train_judge_totals(t, &now);
    }
    if (t->leaves) /* each step has them */
        return 0;
    if (t->pipeline) {
        int taken = mr_train_in_stages.take(t, false, &now);
        return taken < 0 ? taken : mr_train_judge_totals(t, &now);
    }
    int rc = mr_net_query_totals(t->net, t->stream, &now);
    if (rc < 0)
        return rc;
    rc = mr_net_zero_totals(t->net, t->stream);
    return rc < 0 ? rc : mr_train_judge_totals(t, &now);
}

/* In calls that one rank may make alone. */
static int take_good_totals(struct mr_trainer *t)
{
    struct mr_net_totals now = {.size = sizeof now};
    if (!mr_train_leaves_on_device(t) && !t->pipeline)
        return mr_train_take_totals(t);
    int rc = t->pipeline ? mr_train_in_stages.take(t, true, &now)
                         : mr_train_on_device.take(t, true, &now);
    return rc < 0 ? rc : mr_train_judge_totals(t, &now);
}

int mr_train_judge_totals(struct mr_trainer *t, const struct mr_net_totals *now)
{
    if (now->n_bad_labels)
        return bad_labels(t, now->n_bad_labels);
    if (now->n_not_finite == 0) {
        t->sums.loss += now->loss;
        t->sums.n_right += now->n_right;
        t->sums.n_samples += now->n_samples;
        t->skipped_in_row =
            now->n_samples ? 0 : t->skipped_in_row; /* at an epoch's end nothing is left to take */
        return 0;
    }
    if (t->opts.on_nan == MR_ON_NAN_STOP || ++t->skipped_in_row > SKIP_MOST)
        return not_finite(t, now->first_not_finite == UINT64_MAX ? t->step : now->first_not_finite);
    t->looked = false;
    t->skipped++;
    return 1;
}

/* Looks at the loss before the parameters change. */
static int careful_step(struct mr_trainer *t, const struct mr_net_batch *batch, void *params,
                        void *grads)
{
    int rc = mr_net_train(t->net, batch, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_train_take_totals(t);
    if (rc < 0)
        return rc;
    if (rc > 0) /* this step is left out */
        return 0;
    rc = mr_net_rescale(t->net, t->stream);
    return rc < 0 ? rc : mr_optim_step(t->optim, params, grads, t->stream);
}

static int plain_step(struct mr_trainer *t, const struct mr_net_batch *batch, void *params,
                      void *grads)
{
    int rc = mr_net_train(t->net, batch, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_net_rescale(t->net, t->stream);
    return rc < 0 ? rc : mr_optim_step(t->optim, params, grads, t->stream);
}

static int record(struct mr_trainer *t, const struct mr_net_batch *batch,
                  int (*work)(struct mr_trainer *t, const void *job), const void *job)
{
    struct mr_graph *graph = NULL;
    int rc = mr_grow("trainer", &t->graph, &t->room_graphs, t->n_graphs + 1ull, sizeof *t->graph);
    if (rc < 0)
        return rc;
    rc = mr_graph_begin(t->stream);
    if (rc < 0)
        return rc;
    rc = work(t, job);
    int ended = mr_graph_end(t->stream, rc < 0 ? NULL : &graph);
    if (rc < 0 || ended < 0)
        return rc < 0 ? rc : ended;
    t->graph[t->n_graphs++] = (struct mr_train_graph){batch->input, batch->labels, batch->n, graph};
    return 0;
}

static struct mr_graph *find_graph(const struct mr_trainer *t, const struct mr_net_batch *batch)
{
    for (uint32_t i = 0; i < t->n_graphs; i++)
        if (t->graph[i].input == batch->input && t->graph[i].labels == batch->labels &&
            t->graph[i].n == batch->n)
            return t->graph[i].graph;
    return NULL;
}

/* Libraries load kernels and choose algorithms at the first batch of each size. */
static bool ran_once(struct mr_trainer *t, uint32_t n)
{
    for (uint32_t i = 0; i < t->n_eager; i++)
        if (t->eager[i] == n)
            return true;
    if (t->n_eager < MR_COUNT(t->eager))
        t->eager[t->n_eager++] = n;
    return false;
}

/* Batches are in the loader's slots, whose addresses repeat, so each gets a graph, recorded at its
 * first use. */
int mr_train_recorded(struct mr_trainer *t, const struct mr_net_batch *batch,
                      int (*work)(struct mr_trainer *t, const void *job), const void *job)
{
    int rc = mr_optim_push(t->optim, t->stream);
    if (rc < 0)
        return rc;
    if (!ran_once(t, batch->n))
        return work(t, job);
    struct mr_graph *graph = find_graph(t, batch);
    if (!graph) {
        rc = record(t, batch, work, job);
        if (rc < 0)
            return rc;
        graph = t->graph[t->n_graphs - 1].graph;
    }
    return mr_graph_launch(graph, t->stream);
}

static int plain_work(struct mr_trainer *t, const void *job)
{
    void *params, *grads;
    mr_net_flat(t->net, &params, &grads, NULL);
    return plain_step(t, job, params, grads);
}

static int step_on(struct mr_trainer *t, const struct mr_batch *b)
{
    void *params, *grads;
    const float *grad_scale;
    const uint32_t *skip;
    struct mr_net_batch batch = net_batch(t, b);
    mr_net_flat(t->net, &params, &grads, NULL);
    batch.copied = t->stepped && !t->shard;
    mr_net_scaling(t->net, &batch.loss_scale, &grad_scale, &skip);
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_optim_follow(t->stage[s].optim, t->schedule, t->step, b->epoch);
    if (rc < 0)
        return rc;
    if (t->pipeline) {
        rc = mr_train_in_stages.step(t, b, &batch);
        if (rc < 0 || (t->step + 1) % MR_TRAIN_LOOK == 0)
            rc = rc < 0 ? rc : mr_train_take_totals(t);
        mr_train_pipeline_hear(t);
        return rc;
    }
    if (t->leaves) {
        rc = mr_train_leaves_step(t, b, &batch);
        if (rc < 0 || !mr_train_leaves_on_device(t) || (t->step + 1) % MR_TRAIN_LOOK)
            return rc;
        rc = mr_train_take_totals(t);
        mr_train_on_device.hear(t);
        return rc;
    }
    if (t->info.unified || t->opts.on_nan == MR_ON_NAN_SKIP)
        return careful_step(t, &batch, params, grads);
    bool graphs = t->opts.graph && mr_optim_options(t->optim, 0)->accumulate == 1;
    rc = graphs ? mr_train_recorded(t, &batch, plain_work, &batch)
                : plain_step(t, &batch, params, grads);
    if (rc < 0)
        return rc;
    return (t->step + 1) % CHECK_EVERY == 0 ? mr_train_take_totals(t) : rc;
}

/* Not all batches are timed: the steps since the latest look took as long as those of them that
 * were, or as the run's. */
void mr_train_stretch_look(const struct mr_trainer *t, struct mr_train_stretch *s)
{
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(t->ld, &st);
    uint64_t n = st.used_batches - s->use.batches, ns = st.used_ns - s->use.ns;
    double mean = 0;
    if (n)
        mean = (double)ns / (double)n;
    else if (st.used_batches)
        mean = (double)st.used_ns / (double)st.used_batches;
    double seconds = s->use.seconds + mean * (double)(t->step - s->use.step) * 1e-9;
    s->use = (struct mr_train_use){st.used_batches, st.used_ns, t->step, seconds};
}

void mr_train_stretch_begin(struct mr_trainer *t, struct mr_train_stretch *s)
{
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(t->ld, &st);
    *s = (struct mr_train_stretch){
        .start_ns = mr_time_ns(),
        .wait_ns = st.consumer_wait_ns,
        .first_step = t->step,
        .before = t->sums,
        .use = {.batches = st.used_batches, .ns = st.used_ns, .step = t->step},
    };
}

double mr_train_stretch_waited(const struct mr_trainer *t, struct mr_train_stretch *s,
                               double seconds)
{
    struct mr_loader_stats st = {.size = sizeof st};
    if (!(seconds > 0))
        return 0;
    mr_train_stretch_look(t, s);
    mr_loader_stats(t->ld, &st);
    double waited = (double)(st.consumer_wait_ns - s->wait_ns) * 1e-9 / seconds;
    if (!t->info.unified && s->use.batches > 0) /* a host that runs ahead waits, too */
        waited = 1 - s->use.seconds / seconds;
    return MR_MIN(MR_MAX(waited, 0), 1);
}

static int one_step(struct mr_trainer *t, int *last)
{
    struct mr_batch b = {.size = sizeof b};
    mr_train_phase(t, "waits for data");
    mr_train_time_begin(t);
    int rc = mr_loader_next(t->ld, t->stream, &b);
    if (rc <= 0)
        return rc;
    mr_train_time_batch(t);
    t->epoch = b.epoch;
    *last = b.last;
    rc = step_on(t, &b);
    int released = mr_loader_release(t->ld, &b, t->stream);
    if (rc < 0 || released < 0)
        return rc < 0 ? rc : released;
    mr_train_time_end(t);
    t->step++;
    t->stepped = true;
    if (++t->pass_steps == WARM_STEPS) {
        mr_train_stretch_look(t, &t->pass);
        mr_train_stretch_look(t, &t->window);
    }
    return 1;
}

int mr_trainer_step(struct mr_trainer *t, int *last)
{
    if (!t || !last)
        return mr_error_set(MR_EMISUSE, "mr_trainer_step: t or last is NULL");
    if (!t->started)
        mr_train_begin(t);
    *last = 0;
    if (mr_train_is_over(t))
        return 0;
    int rc = one_step(t, last);
    if (rc > 0 && !*last) /* an epoch's end has reasons of its own, which go first */
        mr_train_is_over(t);
    return rc;
}

static int test_sums(struct mr_trainer *t, struct mr_train_sums *out)
{
    struct mr_net_totals totals = {.size = sizeof totals};
    bool parts = t->leaves || t->pipeline;
    int rc = parts ? mr_train_leaves_test_end(t, &totals)
                   : mr_net_query_totals(t->net, t->stream, &totals);
    if (rc < 0)
        return rc;
    rc = parts ? 0 : mr_net_zero_totals(t->net, t->stream);
    if (rc < 0)
        return rc;
    if (totals.n_bad_labels)
        return mr_error_set(MR_EFORMAT,
                            "test set: %" PRIu64 " of %" PRIu64 " labels are outside 0..%u",
                            totals.n_bad_labels, totals.n_samples + totals.n_bad_labels,
                            mr_train_outputs(mr_train_last_net(t)) - 1);
    const struct mr_train_sums sums = {
        .loss = totals.loss, .n_right = totals.n_right, .n_samples = totals.n_samples};
    return mr_info_give("train_sums", out, &sums, sizeof sums);
}

/* Training's totals so far are taken first: both add up in one place. */
int mr_trainer_test(struct mr_trainer *t, struct mr_train_sums *out)
{
    struct mr_batch b = {.size = sizeof b};
    if (!t || !out || !t->test_loader)
        return mr_error_set(MR_EMISUSE,
                            "mr_trainer_test: expected a trainer that has a test set, and out");
    int rc = mr_info_check("train_sums", out, sizeof *out);
    if (rc < 0)
        return rc;
    if (t->leaves || t->pipeline)
        mr_train_leaves_test_begin(t);
    rc = mr_train_take_totals(t);
    mr_train_phase(t, "tests");
    mr_train_times_break(t);
    for (uint64_t i = 0; rc >= 0 && !b.last; i++) { /* a part of the set is no measure */
        rc = mr_loader_next(t->test_loader, t->stream, &b);
        if (rc <= 0)
            break;
        struct mr_net_batch batch = net_batch(t, &b);
        rc = t->pipeline ? mr_train_in_stages.test(t, &b, &batch, i)
             : t->leaves ? mr_train_leaves_test(t, &b, &batch, i)
                         : mr_net_eval(t->net, &batch, NULL, t->stream);
        int released = mr_loader_release(t->test_loader, &b, t->stream);
        rc = rc < 0 ? rc : released;
    }
    return rc < 0 ? rc : test_sums(t, out);
}

int mr_trainer_sums(struct mr_trainer *t, struct mr_train_sums *out)
{
    if (!t || !out)
        return mr_error_set(MR_EMISUSE, "mr_trainer_sums: t or out is NULL");
    int rc = mr_info_check("train_sums", out, sizeof *out);
    if (rc < 0)
        return rc;
    rc = take_good_totals(t);
    return rc < 0 ? rc : mr_info_give("train_sums", out, &t->sums, sizeof t->sums);
}

int mr_trainer_window_begin(struct mr_trainer *t)
{
    if (!t)
        return mr_error_null("mr_trainer_window_begin", "a trainer");
    int rc = take_good_totals(t);
    if (rc < 0)
        return rc;
    mr_train_stretch_begin(t, &t->window);
    return 0;
}

int mr_trainer_window_end(struct mr_trainer *t, struct mr_train_window *out)
{
    if (!t)
        return mr_error_null("mr_trainer_window_end", "a trainer");
    struct mr_train_stretch *w = &t->window;
    if (!out || !w->start_ns)
        return mr_error_set(
            MR_EMISUSE,
            "mr_trainer_window_end: expected mr_trainer_window_begin() before it, and out");
    int rc = mr_info_check("train_window", out, sizeof *out);
    if (rc < 0)
        return rc;
    rc = take_good_totals(t);
    if (rc < 0)
        return rc;
    double seconds = mr_train_since(w->start_ns);
    const struct mr_train_window window = {
        .steps = t->step - w->first_step,
        .loss = t->sums.loss - w->before.loss,
        .n_right = t->sums.n_right - w->before.n_right,
        .n_samples = t->sums.n_samples - w->before.n_samples,
        .seconds = seconds,
        .waited = mr_train_stretch_waited(t, w, seconds),
    };
    return mr_info_give("train_window", out, &window, sizeof window);
}
