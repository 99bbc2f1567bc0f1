/* One batch after the other: the part that is repeated. */
#include "train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define CHECK_EVERY 256 /* steps between looks at a device's totals, each of which waits for it */
#define WARM_STEPS                                                                                                     \
    64 /* of an epoch: the run's first ones load libraries and record graphs, and tell nothing of the rest */
#define SKIP_MOST 100 /* in a row: by then it is the parameters */

static struct mr_net_batch net_batch(const struct train_data *d, const struct mr_batch *b)
{
    const struct mr_batch_field *in = &b->field[0], *label = d->label >= 0 ? &b->field[d->label] : NULL;
    return (struct mr_net_batch){.input = in->data,
                                 .labels = label ? label->data : NULL,
                                 .input_dtype = in->spec.dtype,
                                 .label_dtype = label ? label->spec.dtype : MR_U8,
                                 .n = (uint32_t)b->size};
}

static int bad_labels(struct train *t, uint64_t n)
{
    int64_t low, high;
    uint64_t looked_at;
    uint32_t most = train_outputs(t->net) - 1;
    enum mr_dtype dtype = mr_dataset_field(t->data->ds, t->data->label)->dtype;
    if (dtype != MR_U8 && dtype != MR_I32 && dtype != MR_I64)
        return mr_error_set(MR_EFORMAT, "%" PRIu64 " labels are no class of 0..%u", n, most);
    train_label_range(t->data, &low, &high, &looked_at);
    return mr_error_set(MR_EFORMAT,
                        "%" PRIu64 " label%s of the last batches %s outside 0..%u (the first %" PRIu64
                        " samples have %" PRId64 "..%" PRId64
                        "): want labels from 0; --classes N says how many there are",
                        n, cli_s(n), n == 1 ? "is" : "are", most, looked_at, low, high);
}

/* step: the net's count, which is ours. */
static int not_finite(struct train *t, uint64_t step)
{
    const char *what = "";
    int layer = mr_net_find_bad(t->net, t->data->stream, &what);
    const struct mr_net_layer *l = layer >= 0 ? mr_net_layer_get(t->net, (uint32_t)layer) : NULL;
    return mr_error_set(MR_EMISUSE,
                        "the loss is not finite (NaN or infinite) at step %" PRIu64 " of epoch %" PRIu64
                        ": first in %s%s%s%s%s; a lower --lr, --clip-norm 1, or --on-nan skip may help",
                        step + 1, t->epoch + 1, l ? "layer " : "the loss", l ? l->name : "", l ? " (" : "",
                        l ? what : "", l ? ")" : "");
}

int train_take_totals(struct train *t)
{
    struct mr_net_totals now;
    int rc = mr_net_query_totals(t->net, t->data->stream, &now);
    if (rc == 0)
        rc = mr_net_zero_totals(t->net, t->data->stream);
    if (rc < 0)
        return rc;
    if (now.n_bad_labels)
        return bad_labels(t, now.n_bad_labels);
    if (now.n_not_finite == 0) {
        t->sums.loss += now.loss;
        t->sums.n_right += now.n_right;
        t->sums.n_samples += now.n_samples;
        t->skipped_in_row = now.n_samples ? 0 : t->skipped_in_row; /* at an epoch's end nothing is left to take */
        return 0;
    }
    if (t->opts->on_nan == TRAIN_STOP || ++t->skipped_in_row > SKIP_MOST)
        return not_finite(t, now.first_not_finite == UINT64_MAX ? t->step : now.first_not_finite);
    t->skipped++;
    return 1;
}

/* Looks at the loss before the parameters change. */
static int careful_step(struct train *t, const struct mr_net_batch *batch, void *params, void *grads)
{
    int rc = mr_net_train(t->net, batch, t->data->stream);
    if (rc == 0)
        rc = train_take_totals(t);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = mr_net_rescale(t->net, t->data->stream);
    return rc == 0 ? mr_optim_step(t->optim, params, grads, t->data->stream) : rc;
}

static int plain_step(struct train *t, const struct mr_net_batch *batch, void *params, void *grads)
{
    int rc = mr_net_train(t->net, batch, t->data->stream);
    if (rc == 0)
        rc = mr_net_rescale(t->net, t->data->stream);
    return rc == 0 ? mr_optim_step(t->optim, params, grads, t->data->stream) : rc;
}

static int record(struct train *t, const struct mr_net_batch *batch, void *params, void *grads)
{
    struct mr_graph *graph = NULL;
    if (t->n_graphs == t->cap_graphs) {
        uint32_t cap = t->cap_graphs ? 2 * t->cap_graphs : 32;
        struct train_graph *more = realloc(t->graph, cap * sizeof *more);
        if (!more)
            return mr_error_set(-ENOMEM, "train: no memory for %u graphs", cap);
        t->graph = more;
        t->cap_graphs = cap;
    }
    int rc = mr_graph_begin(t->data->stream);
    if (rc < 0)
        return rc;
    rc = plain_step(t, batch, params, grads);
    int ended = mr_graph_end(t->data->stream, rc == 0 ? &graph : NULL);
    if (rc < 0 || ended < 0)
        return rc < 0 ? rc : ended;
    t->graph[t->n_graphs++] = (struct train_graph){batch->input, batch->labels, batch->n, graph};
    return 0;
}

static struct mr_graph *find_graph(const struct train *t, const struct mr_net_batch *batch)
{
    for (uint32_t i = 0; i < t->n_graphs; i++)
        if (t->graph[i].input == batch->input && t->graph[i].labels == batch->labels && t->graph[i].n == batch->n)
            return t->graph[i].graph;
    return NULL;
}

/* Libraries load what they need, and choose how to compute, at the first batch of a size. */
static bool ran_once(struct train *t, uint32_t n)
{
    for (uint32_t i = 0; i < t->n_eager; i++)
        if (t->eager[i] == n)
            return true;
    if (t->n_eager < CLI_COUNT(t->eager))
        t->eager[t->n_eager++] = n;
    return false;
}

/* A batch lies in one of the loader's slots, whose addresses come again: a graph for each, recorded when it comes first. */
static int graph_step(struct train *t, const struct mr_net_batch *batch, void *params, void *grads)
{
    int rc = mr_optim_push(t->optim, t->data->stream);
    if (rc < 0 || !ran_once(t, batch->n))
        return rc < 0 ? rc : plain_step(t, batch, params, grads);
    struct mr_graph *graph = find_graph(t, batch);
    if (!graph) {
        rc = record(t, batch, params, grads);
        graph = rc == 0 ? t->graph[t->n_graphs - 1].graph : NULL;
    }
    return graph ? mr_graph_launch(graph, t->data->stream) : rc;
}

static int step_on(struct train *t, const struct mr_batch *b)
{
    void *params, *grads, *low;
    const float *grad_scale;
    const uint32_t *skip;
    struct mr_net_batch batch = net_batch(t->data, b);
    mr_net_flat(t->net, &params, &grads, &low);
    batch.copied = t->stepped;
    mr_net_scaling(t->net, &batch.loss_scale, &grad_scale, &skip);
    int rc = mr_optim_follow(t->optim, t->schedule, t->step, b->epoch);
    if (rc < 0)
        return rc;
    if (t->data->info.unified || t->opts->on_nan == TRAIN_SKIP)
        return careful_step(t, &batch, params, grads);
    bool graphs = t->opts->graph && mr_optim_options(t->optim, 0)->accumulate == 1;
    rc = graphs ? graph_step(t, &batch, params, grads) : plain_step(t, &batch, params, grads);
    if (rc == 0 && (t->step + 1) % CHECK_EVERY == 0)
        rc = train_take_totals(t);
    return rc;
}

void train_use_begin(struct train *t)
{
    struct mr_loader_stats st;
    mr_loader_stats(t->ld, &st);
    t->use = (struct train_use){.batches = st.used_batches, .ns = st.used_ns, .step = t->step};
}

/* Not all batches are timed: the steps since the latest look took as long as those of them that were, or as the run's. */
static void look_at_use(struct train *t)
{
    struct mr_loader_stats st;
    mr_loader_stats(t->ld, &st);
    uint64_t n = st.used_batches - t->use.batches, ns = st.used_ns - t->use.ns;
    double mean = n ? (double)ns / (double)n : st.used_batches ? (double)st.used_ns / (double)st.used_batches : 0;
    double seconds = t->use.seconds + mean * (double)(t->step - t->use.step) * 1e-9;
    t->use = (struct train_use){st.used_batches, st.used_ns, t->step, seconds};
}

int train_step(struct train *t, bool *last)
{
    struct mr_batch b;
    int rc = mr_loader_next(t->ld, t->data->stream, &b);
    if (rc <= 0)
        return rc;
    t->epoch = b.epoch;
    *last = b.last;
    rc = step_on(t, &b);
    int released = mr_loader_release(t->ld, &b, t->data->stream);
    if (rc < 0 || released < 0)
        return rc < 0 ? rc : released;
    t->step++;
    t->stepped = true;
    if (++t->epoch_steps == WARM_STEPS)
        look_at_use(t);
    return 1;
}

int train_test(struct train *t, struct train_sums *out)
{
    struct train_data *d = t->data;
    struct mr_net_totals totals;
    struct mr_batch b = {0};
    int rc = mr_net_zero_totals(t->net, d->stream);
    while (rc == 0 && !b.last) { /* an interrupt waits: a part of the set is no measure */
        rc = mr_loader_next(d->test_loader, d->stream, &b);
        if (rc <= 0)
            break;
        struct mr_net_batch batch = net_batch(d, &b);
        rc = mr_net_eval(t->net, &batch, NULL, d->stream);
        int released = mr_loader_release(d->test_loader, &b, d->stream);
        rc = rc < 0 ? rc : released;
    }
    if (rc == 0)
        rc = mr_net_query_totals(t->net, d->stream, &totals);
    if (rc == 0)
        rc = mr_net_zero_totals(t->net, d->stream);
    if (rc == 0 && totals.n_bad_labels)
        rc = mr_error_set(MR_EFORMAT, "test set: %" PRIu64 " of %" PRIu64 " labels are outside 0..%u",
                          totals.n_bad_labels, totals.n_samples + totals.n_bad_labels, train_outputs(t->net) - 1);
    if (rc == 0)
        *out = (struct train_sums){totals.loss, totals.n_right, totals.n_samples};
    return rc;
}

double train_waited(struct train *t, double seconds, uint64_t wait_ns)
{
    if (!(seconds > 0))
        return 0;
    look_at_use(t);
    double waited = (double)wait_ns * 1e-9 / seconds;
    if (!t->data->info.unified && t->use.batches > 0) /* a host that runs ahead waits, too */
        waited = 1 - t->use.seconds / seconds;
    return waited < 0 ? 0 : waited > 1 ? 1 : waited;
}
