/*
 * A step over several ranks, or over several leaves of a batch.
 *
 * Leaf v of a batch has the samples at positions p with p mod V = v, so rank r of w has the leaves
 * r, r + w, ...: rows q with q mod k = a are its a-th, where k = V / w. Each leaf is a pass of its
 * own; its gradients, weighted by its share of the batch, are added up by a binary tree: leaf v and
 * leaf v + V/2 first, then a quarter, ... The upper levels are this rank's, the others
 * mr_comm_sum()'s, so the bits do not depend on w. Behind the gradients lie the running statistics
 * and the totals of the step: all ranks come to the same parameters, sums and decisions by one sum.
 *
 * Here is what all devices share, and the step in host memory; leaves_device.c has the other one.
 */
#include "train/leaves.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define LEAVES_MOST 1024

/* What ranks and leaves there are. */
static int count(const struct mr_trainer *t, struct mr_train_leaves *l)
{
    const struct mr_trainer_opts *o = &t->opts;
    struct mr_comm_stats stats = {.size = sizeof stats, .world = 1};
    int rc = o->comm ? mr_comm_stats(o->comm, &stats) : 0;
    if (rc < 0)
        return rc;
    l->comm = o->comm;
    l->rank = stats.rank;
    l->world = stats.world;
    l->n = o->leaves ? o->leaves : l->world;
    l->mine = l->n / l->world;
    l->order = o->leaves ? MR_SUM_TREE : MR_SUM_FAST;
    l->wire = o->wire == MR_BF16 ? MR_BF16 : MR_F32;
    l->graphs = !l->comm || stats.graphs;
    l->device = !t->info.unified;
    if (o->wire != MR_F32 && o->wire != MR_BF16)
        return mr_error_set(MR_EOPTION, "trainer: gradients travel as %s: expected f32 or bf16",
                            mr_dtype_name(o->wire));
    if (o->leaves && (!mr_comm_is_power_of_two(o->leaves) || o->leaves > LEAVES_MOST))
        return mr_error_set(MR_EOPTION, "trainer: %u leaves: expected a power of two, 1..%d",
                            o->leaves, LEAVES_MOST);
    if (l->n % l->world)
        return mr_error_set(MR_EOPTION,
                            "trainer: %u leaves over %u ranks: expected a number of ranks that "
                            "divides the leaves",
                            l->n, l->world);
    if (o->batch_size % l->n)
        return mr_error_set(MR_EOPTION,
                            "trainer: a batch of %" PRIu64 " samples in %u parts (%u ranks): "
                            "expected a batch size that %u divides",
                            o->batch_size, l->n, l->world, l->n);
    return 0;
}

int mr_train_leaves_open(struct mr_trainer *t)
{
    struct mr_train_leaves l = {0};
    if (t->pipeline) /* its micro-batches are the leaves */
        return 0;
    int rc = count(t, &l);
    if (rc < 0 || l.n == 1) /* one leaf is a batch as always */
        return rc;
    t->leaves = calloc(1, sizeof *t->leaves);
    if (!t->leaves)
        return mr_error_nomem("trainer", sizeof *t->leaves);
    *t->leaves = l;
    t->rank = l.rank;
    t->world = l.world;
    t->n_leaves = l.n;
    return 0;
}

int mr_train_leaves_prepare(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    uint32_t levels = 2;
    if (!l)
        return 0;
    l->n_params = mr_net_n_params(t->net);
    if (t->opts.shard_optimizer && l->world > 1) {
        int rc = mr_train_shard_open(l->comm, l->n_params, &t->shard);
        if (rc < 0)
            return rc;
    }
    mr_net_buffers(t->net, NULL, &l->n_buffers);
    l->length = l->n_params + l->n_buffers + MR_SUM_TOTALS;
    for (uint32_t k = l->mine; k > 1; k /= 2)
        levels++;
    l->tests = malloc(4ull * l->mine * sizeof *l->tests);
    if (l->device)
        return mr_train_on_device.prepare(t, levels);
    l->vector = malloc(levels * l->length * sizeof(float));
    l->buffers = malloc((l->n_buffers + 1) * sizeof(float));
    return l->vector && l->buffers && l->tests
               ? 0
               : mr_error_nomem("trainer", levels * l->length * sizeof(float));
}

void mr_train_leaves_destroy(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    if (!l)
        return;
    if (l->device) {
        mr_train_on_device.destroy(t);
        free(l->tests);
        free(l);
        return;
    }
    if (!l->comm || mr_comm_check(l->comm) != MR_EPEER) { /* else they may be in use: comm.h */
        free(l->vector);
        free(l->tests);
    }
    free(l->buffers);
    free(l->input);
    free(l->labels);
    free(l);
}

bool mr_train_leaves_on_device(const struct mr_trainer *t)
{
    return t->leaves && t->leaves->device;
}

void mr_train_phase(const struct mr_trainer *t, const char *what)
{
    const struct mr_train_leaves *l = mr_train_parts(t);
    if (l && l->comm)
        mr_comm_phase(l->comm, what);
}

struct mr_train_part mr_train_part_of(const struct mr_trainer *t, const struct mr_batch *b,
                                      uint64_t index, uint64_t length)
{
    uint64_t size = mr_train_batch_size(t), before = index * size;
    return (struct mr_train_part){b, before, length, MR_MIN(size, length - before)};
}

/* Rows of the a-th leaf. The loader pads the epoch's last batch so that all ranks have as many
 * batches: padding past the epoch's end is ignored. */
uint32_t mr_train_rows_of(const struct mr_train_leaves *l, const struct mr_train_part *p,
                          uint32_t a)
{
    uint32_t n = 0;
    for (uint64_t q = a; q < p->b->n && p->before + l->rank + q * l->world < p->length;
         q += l->mine)
        n++;
    return n;
}

static void gather(char *to, const struct mr_batch_field *from, uint64_t bytes, uint32_t n,
                   uint32_t a, uint32_t mine)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + i * bytes, (const char *)from->data + (a + (uint64_t)i * mine) * bytes, bytes);
}

#define WIDEST 8 /* bytes of an element */

uint64_t mr_train_room(const struct mr_batch_field *field, uint64_t rows_in_batch, uint64_t rows)
{
    return field->bytes / rows_in_batch / mr_dtype_size(field->spec.dtype) * WIDEST * rows;
}

static int take_room(struct mr_train_leaves *l, uint64_t in, uint64_t labels, uint64_t rows)
{
    if (l->room >= rows)
        return 0;
    free(l->input);
    free(l->labels);
    l->input = malloc(in);
    l->labels = malloc(labels);
    l->room = l->input && l->labels ? rows : 0;
    return l->room ? 0 : mr_error_nomem("trainer", in);
}

int mr_train_take_leaf(struct mr_trainer *t, const struct mr_train_part *p, uint32_t a, uint32_t n,
                       struct mr_net_batch *out)
{
    struct mr_train_leaves *l = t->leaves;
    const struct mr_batch_field *in = &p->b->field[0], *label = &p->b->field[t->label];
    uint64_t in_bytes = in->bytes / p->b->n, label_bytes = label->bytes / p->b->n;
    out->n = n;
    if (l->mine == 1)
        return 0;
    if (l->device)
        return mr_train_on_device.rows(t, p, a, n, out);
    uint64_t rows = mr_train_batch_size(t) / l->n;
    int rc =
        take_room(l, mr_train_room(in, p->b->n, rows), mr_train_room(label, p->b->n, rows), rows);
    if (rc < 0)
        return rc;
    gather(l->input, in, in_bytes, n, a, l->mine);
    gather(l->labels, label, label_bytes, n, a, l->mine);
    out->input = l->input;
    out->labels = l->labels;
    return 0;
}

/* The a-th of k in the order of the tree's leaves, from left to right. */
uint32_t mr_train_tree_order(uint32_t i, uint32_t k)
{
    uint32_t a = 0;
    for (; k > 1; k /= 2, i /= 2)
        a = a * 2 + (i & 1);
    return a;
}

/* A pass over one leaf. [out] v: its vector. */
static int run_leaf(struct mr_trainer *t, const struct mr_train_part *p, uint32_t a,
                    struct mr_net_batch batch, float *v)
{
    struct mr_train_leaves *l = t->leaves;
    struct mr_net_totals totals = {.size = sizeof totals};
    void *grads, *buffers;
    uint32_t n = mr_train_rows_of(l, p, a);
    float share = (float)n / (float)p->total, *sums = v + l->n_params + l->n_buffers;
    memset(v, 0, l->length * sizeof *v);
    sums[MR_SUM_STOP] = a == 0 && l->stop;
    if (n == 0)
        return 0;
    mr_net_flat(t->net, NULL, &grads, NULL);
    mr_net_buffers(t->net, &buffers, NULL);
    if (l->n_buffers)
        memcpy(buffers, l->buffers, l->n_buffers * sizeof(float));
    int rc = mr_train_take_leaf(t, p, a, n, &batch);
    if (rc < 0)
        return rc;
    batch.loss_scale = &share; /* of a mean over the leaf, one over the batch */
    rc = mr_net_set_step(t->net, t->step * l->n + l->rank + (uint64_t)a * l->world, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_net_train(t->net, &batch, t->stream);
    if (rc < 0)
        return rc;
    rc = mr_net_query_totals(t->net, t->stream, &totals);
    if (rc < 0)
        return rc;
    if (totals.n_not_finite && !t->looked) /* while its activations are there */
        mr_train_find_bad(t);
    memcpy(v, grads, l->n_params * sizeof *v);
    for (uint64_t i = 0; i < l->n_buffers; i++)
        v[l->n_params + i] = ((const float *)buffers)[i] * share;
    sums[MR_SUM_NOT_FINITE] = (float)totals.n_not_finite;
    sums[MR_SUM_BAD_LABELS] = (float)totals.n_bad_labels;
    sums[MR_SUM_LOSS] = totals.n_not_finite ? 0 : (float)totals.loss;
    sums[MR_SUM_RIGHT] = (float)totals.n_right;
    sums[MR_SUM_SAMPLES] = (float)totals.n_samples;
    return mr_net_zero_totals(t->net, t->stream);
}

/* Gradients are rounded as they are for the wire; what comes behind them is not. */
static void add(const struct mr_train_leaves *l, float *to, const float *from)
{
    mr_comm_add(to, from, l->n_params, MR_F32, l->wire);
    mr_comm_add(to + l->n_params, from + l->n_params, l->length - l->n_params, MR_F32, MR_F32);
}

/* grads: whether they are gradients. */
static int sum(struct mr_trainer *t, struct mr_train_range part, bool grads,
               struct mr_stream *stream)
{
    struct mr_train_leaves *l = t->leaves;
    const enum mr_dtype wire = grads ? l->wire : MR_F32;
    float *v = l->vector + part.first;
    if (part.first >= part.end)
        return 0;
    if (grads && t->shard)
        return mr_train_shard_sum(t->shard, l->vector, part, wire, l->order, stream);
    return mr_comm_sum(l->comm, v, v, part.end - part.first, MR_F32, wire, l->order, stream);
}

int mr_train_sum_range(struct mr_trainer *t, struct mr_train_range part, struct mr_stream *stream)
{
    const struct mr_train_leaves *l = t->leaves;
    if (!l->comm)
        return 0;
    if (l->wire == MR_F32 && !t->shard)
        return sum(t, part, false, stream);
    int rc =
        sum(t, (struct mr_train_range){part.first, MR_MIN(part.end, l->n_params)}, true, stream);
    if (rc < 0)
        return rc;
    return sum(t, (struct mr_train_range){MR_MAX(part.first, l->n_params), part.end}, false,
               stream);
}

int mr_train_sum_vector(struct mr_trainer *t, struct mr_stream *stream)
{
    return mr_train_sum_range(t, (struct mr_train_range){0, t->leaves->length}, stream);
}

/* This rank's leaves, added up into l->vector. A leaf's vector goes on a stack, and is added to
 * those before it as a binary counter carries. */
static int run_leaves(struct mr_trainer *t, const struct mr_train_part *p,
                      const struct mr_net_batch *batch)
{
    struct mr_train_leaves *l = t->leaves;
    uint32_t height = 0;
    for (uint32_t i = 0; i < l->mine; i++) {
        int rc =
            run_leaf(t, p, mr_train_tree_order(i, l->mine), *batch, l->vector + height * l->length);
        if (rc < 0)
            return rc;
        height++;
        for (uint32_t carry = i; carry & 1; carry /= 2, height--)
            add(l, l->vector + (height - 2) * l->length, l->vector + (height - 1) * l->length);
    }
    return 0;
}

/* The step's sums, the same on all ranks. */
static void take_sums(struct mr_trainer *t, struct mr_net_totals *out)
{
    const struct mr_train_leaves *l = t->leaves;
    const float *sums = l->vector + l->n_params + l->n_buffers;
    *out = (struct mr_net_totals){.size = sizeof *out,
                                  .loss = (double)sums[MR_SUM_LOSS],
                                  .n_right = (uint64_t)sums[MR_SUM_RIGHT],
                                  .n_samples = (uint64_t)sums[MR_SUM_SAMPLES],
                                  .n_bad_labels = (uint64_t)sums[MR_SUM_BAD_LABELS],
                                  .n_not_finite = (uint64_t)sums[MR_SUM_NOT_FINITE],
                                  .first_not_finite = t->step};
    if (sums[MR_SUM_STOP] > 0)
        t->stopping = true;
}

int mr_train_leaves_step(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch)
{
    struct mr_train_leaves *l = t->leaves;
    struct mr_net_totals totals;
    void *params, *grads, *buffers;
    uint64_t length = mr_dataset_length(t->ds), size = mr_train_batch_size(t);
    uint64_t steps = (length + size - 1) / size; /* of each epoch */
    const struct mr_train_part p = mr_train_part_of(t, b, t->step % steps, length);
    if (l->device)
        return mr_train_on_device.step(t, &p, batch);
    mr_net_flat(t->net, &params, &grads, NULL);
    mr_net_buffers(t->net, &buffers, NULL);
    if (l->n_buffers)
        memcpy(l->buffers, buffers, l->n_buffers * sizeof(float));
    mr_train_phase(t, "computes");
    int rc = run_leaves(t, &p, batch);
    if (rc < 0)
        return rc;
    rc = mr_train_sum_vector(t, NULL);
    if (rc < 0)
        return rc;
    take_sums(t, &totals);
    if (l->n_buffers)
        memcpy(buffers, totals.n_not_finite ? l->buffers : l->vector + l->n_params,
               l->n_buffers * sizeof(float));
    rc = mr_train_judge_totals(t, &totals);
    if (rc != 0) /* an error, or a step that is left out */
        return MR_MIN(rc, 0);
    if (t->shard)
        return mr_train_shard_step(t->shard, t->optim, params, l->vector, true, t->stream);
    memcpy(grads, l->vector, l->n_params * sizeof(float));
    return mr_optim_step(t->optim, params, grads, t->stream);
}

void mr_train_leaves_test_begin(struct mr_trainer *t)
{
    struct mr_train_leaves *l = mr_train_parts(t);
    memset(l->tests, 0, 4ull * l->mine * sizeof(double));
}

/* A test batch: sums by leaf, which mr_train_leaves_test_end() adds up. */
int mr_train_leaves_test(struct mr_trainer *t, const struct mr_batch *b,
                         const struct mr_net_batch *batch, uint64_t index)
{
    struct mr_train_leaves *l = t->leaves;
    double *sums = l->tests;
    const struct mr_train_part p = mr_train_part_of(t, b, index, mr_dataset_length(t->test));
    for (uint32_t a = 0; a < l->mine; a++) {
        struct mr_net_batch leaf = *batch;
        struct mr_net_totals totals = {.size = sizeof totals};
        uint32_t n = mr_train_rows_of(l, &p, a);
        int rc = n ? mr_train_take_leaf(t, &p, a, n, &leaf) : 0;
        if (rc < 0)
            return rc;
        rc = n ? mr_net_eval(t->net, &leaf, NULL, t->stream) : 0;
        if (rc < 0)
            return rc;
        rc = mr_net_query_totals(t->net, t->stream, &totals);
        if (rc < 0)
            return rc;
        rc = mr_net_zero_totals(t->net, t->stream);
        if (rc < 0)
            return rc;
        sums[4 * a] += totals.loss;
        sums[4 * a + 1] += (double)totals.n_right;
        sums[4 * a + 2] += (double)totals.n_samples;
        sums[4 * a + 3] += (double)totals.n_bad_labels;
    }
    return 0;
}

int mr_train_leaves_test_end(struct mr_trainer *t, struct mr_net_totals *out)
{
    struct mr_train_leaves *l = mr_train_parts(t);
    double *sums = l->tests;
    for (uint32_t h = l->mine / 2; h >= 1; h /= 2)
        mr_comm_add(sums, sums + 4ull * h, 4ull * h, MR_F64, MR_F64);
    int rc = l->comm ? mr_comm_sum(l->comm, sums, sums, 4, MR_F64, MR_F64, l->order, NULL) : 0;
    out->loss = sums[0];
    out->n_right = (uint64_t)sums[1];
    out->n_samples = (uint64_t)sums[2];
    out->n_bad_labels = (uint64_t)sums[3];
    return rc;
}

int mr_train_leaves_where(struct mr_trainer *t, char *text, size_t bytes)
{
    const struct mr_train_leaves *l = mr_train_parts(t);
    struct mr_comm_stats stats = {.size = sizeof stats, .world = 1};
    char **texts = NULL;
    if (l->comm)
        mr_comm_stats(l->comm, &stats);
    if (stats.world == 1)
        return 0;
    int rc = mr_comm_collect(l->comm, text, 0, &texts);
    if (rc < 0)
        return rc;
    bool found = false;
    for (uint32_t r = 0; texts && r < stats.world && !found; r++) {
        found = texts[r][0];
        if (found && r > 0)
            snprintf(text, bytes, "%.100s, on rank %u", texts[r], r);
    }
    free(texts);
    return 0;
}

int mr_trainer_ask_stop(struct mr_trainer *t)
{
    if (!t)
        return mr_error_set(MR_EMISUSE, "mr_trainer_ask_stop: t is NULL");
    struct mr_train_leaves *l = mr_train_parts(t);
    if (l && (t->leaves || l->comm))
        l->stop = true;
    else {
        t->stopping = true;
        mr_train_is_over(t); /* mr_trainer_info.end says so at once */
    }
    return 0;
}
