/*
 * Steps of training on a GPU: graphs against steps one by one; loss scaling; digits that are
 * learnt. Without cuBLASLt: it says so, and that is all.
 */
#include "nets.h"

#include <math.h>

struct trainer {
    struct nets n;
    struct mr_optim *optim;
    struct mr_net_batch batch;
    void *params, *grads, *low;
};

static void trainer_open(struct trainer *t, struct mr_device *dev, struct mr_net_opts o,
                         const char *spec)
{
    struct mr_optim_extra extra;
    nets_open(&t->n, dev, &o);
    mr_net_flat(t->n.net, &t->params, &t->grads, &t->low);
    must(mr_optim_create(dev, spec, MR_F32, t->n.n_params, NULL, 0, &t->optim));
    mr_optim_extra_init(t->optim, &extra);
    extra.copy = t->low;
    extra.copy_dtype = t->low ? o.dtype : MR_BF16;
    t->batch = batch_of(&t->n, true, o.max_batch);
    mr_net_scaling(t->n.net, &t->batch.loss_scale, &extra.grad_scale, &extra.skip);
    must(mr_optim_attach(t->optim, &extra));
}

static void trainer_close(struct trainer *t)
{
    must(mr_stream_synchronize(t->n.stream));
    mr_optim_destroy(t->optim);
    nets_close(&t->n);
}

static void step(struct trainer *t)
{
    must(mr_net_train(t->n.net, &t->batch, t->n.stream));
    must(mr_net_rescale(t->n.net, t->n.stream));
    must(mr_optim_step(t->optim, t->params, t->grads, t->n.stream));
}

static struct mr_graph *record(struct trainer *t)
{
    struct mr_graph *graph = NULL;
    must(mr_graph_begin(t->n.stream));
    t->batch.copied = 1; /* gives the same bits as a pass that makes the copy itself */
    step(t);
    must(mr_graph_end(t->n.stream, &graph));
    return graph;
}

/* Ten steps one by one, and, of a net that is warm, two of them followed by a graph eight times:
 * the same bits. */
static void test_graph(struct mr_device *dev)
{
    static const struct {
        enum mr_dtype dtype;
        const char *model;
        int tf32;
        uint32_t h, batch;
    } cases[] = {
        {MR_F32, "mnist-cnn", 1, 12, BATCH},
        {MR_F32, "mnist-cnn", 0, 20, 140}, /* conv2's gradient without patches */
        {MR_BF16, "mnist-cnn", 1, 12, BATCH},
        {MR_F16, "mnist-cnn", 1, 12, BATCH},
        {MR_F32, "mlp:30s,20r", 1, 12, BATCH},
        {MR_F32, "conv:8,p=1,batchnorm,relu,maxpool:3,s=2,flatten,linear:5", 1, 12, BATCH}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        float *end[2];
        struct mr_net_opts o =
            options(cases[c].model, cases[c].dtype, cases[c].tf32, 1, cases[c].h);
        o.max_batch = cases[c].batch;
        for (int graphs = 0; graphs < 2; graphs++) {
            struct trainer t;
            trainer_open(&t, dev, o, "momentum:lr=0.05");
            struct mr_graph *graph = NULL;
            if (graphs)
                must(mr_net_warm_up(t.n.net, t.n.stream));
            for (int i = 0; i < 10; i++) {
                if (graphs && i == 2)
                    graph = record(&t);
                if (graph)
                    must(mr_graph_launch(graph, t.n.stream));
                else
                    step(&t);
            }
            struct mr_net_totals totals = {.size = sizeof totals};
            must(mr_net_query_totals(t.n.net, t.n.stream, &totals));
            check(totals.n_samples == 10ull * o.max_batch && totals.n_not_finite == 0);
            end[graphs] = fetch(&t.n, t.params, t.n.n_params * sizeof(float));
            mr_graph_destroy(graph);
            trainer_close(&t);
        }
        struct mr_net *net = NULL;
        must(mr_net_create(dev, &o, &net));
        check(memcmp(end[0], end[1], mr_net_n_params(net) * sizeof(float)) == 0);
        mr_net_destroy(net);
        free(end[0]);
        free(end[1]);
    }
}

/* A gradient that overflowed: the step is left out, and the scale halves; the inverse stays that of
 * the pass. */
static void test_rescale(struct mr_device *dev)
{
    struct trainer t;
    const float *scale, *inverse, infinite = INFINITY;
    const uint32_t *skip;
    trainer_open(&t, dev, options("mlp:7t", MR_F16, 0, 1, 4), "sgd:lr=0.1");
    mr_net_scaling(t.n.net, &scale, &inverse, &skip);
    float *before = fetch(&t.n, t.params, t.n.n_params * sizeof *before);
    must(mr_net_train(t.n.net, &t.batch, t.n.stream));
    must(mr_copy_async(t.n.stream, t.grads, MR_DEVICE, &infinite, MR_PAGEABLE, sizeof infinite));
    must(mr_net_rescale(t.n.net, t.n.stream));
    must(mr_optim_step(t.optim, t.params, t.grads, t.n.stream));
    float *after = fetch(&t.n, t.params, t.n.n_params * sizeof *after),
          *s = fetch(&t.n, scale, sizeof *s);
    float *i = fetch(&t.n, inverse, sizeof *i);
    uint32_t *k = fetch(&t.n, skip, sizeof *k);
    check(*s == 32768 && *i == 1.0f / 65536 && *k == 1);
    check(memcmp(before, after, t.n.n_params * sizeof *after) == 0);
    free(s);
    free(k);
    free(after);
    step(&t);
    after = fetch(&t.n, t.params, t.n.n_params * sizeof *after);
    s = fetch(&t.n, scale, sizeof *s);
    k = fetch(&t.n, skip, sizeof *k);
    check(*s == 32768 && *k == 0 && memcmp(before, after, t.n.n_params * sizeof *after) != 0);
    float saved = 0;
    uint32_t good = 0;
    must(mr_net_query_loss_scale(t.n.net, t.n.stream, &saved, &good));
    check(saved == 32768 && good == 1);
    must(mr_net_set_loss_scale(t.n.net, t.n.stream, 1024, 1999));
    step(&t); /* the 2,000th good one in a row */
    must(mr_net_query_loss_scale(t.n.net, t.n.stream, &saved, &good));
    check(saved == 2048 && good == 0);
    check(mr_net_set_loss_scale(t.n.net, t.n.stream, 3, 0) == MR_ESTATE);
    free(before);
    free(after);
    free(s);
    free(i);
    free(k);
    trainer_close(&t);
}

/* Digits: a bright bar whose row is the class, on noise. 200 steps of each precision bring the loss
 * down. */
static void test_training(struct mr_device *dev)
{
    static const struct {
        enum mr_dtype dtype;
        int tf32;
    } cases[] = {{MR_F32, 0}, {MR_F32, 1}, {MR_BF16, 0}, {MR_F16, 0}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct mr_net_opts o = options("mnist-cnn", cases[c].dtype, cases[c].tf32, 1, 28);
        struct trainer t;
        o.classes = 10;
        o.max_batch = 64;
        trainer_open(&t, dev, o, "momentum:lr=0.02");
        for (uint32_t i = 0; i < 64; i++) {
            t.n.labels[i] = (int32_t)(i % 10);
            for (uint32_t k = 0; k < 784; k++)
                t.n.input[i * 784 + k] = (k / 28) / 3 == i % 10 ? 1 : 0.3f * noise(i * 784 + k);
        }
        must(mr_copy_async(t.n.stream, t.n.far_input, MR_DEVICE, t.n.input, MR_PAGEABLE,
                           64 * 784 * sizeof(float)));
        must(mr_copy_async(t.n.stream, t.n.far_labels, MR_DEVICE, t.n.labels, MR_PAGEABLE,
                           sizeof t.n.labels));
        struct mr_net_totals first = {.size = sizeof first}, last = {.size = sizeof last};
        step(&t);
        must(mr_net_query_totals(t.n.net, t.n.stream, &first));
        struct mr_graph *graph = record(&t);
        for (int i = 0; i < 200; i++)
            must(mr_graph_launch(graph, t.n.stream));
        must(mr_net_zero_totals(t.n.net, t.n.stream));
        for (int i = 0; i < 10; i++)
            must(mr_graph_launch(graph, t.n.stream));
        must(mr_net_query_totals(t.n.net, t.n.stream, &last));
        printf("  %s%s: loss %.3f, after 200 steps %.4f, %llu of %llu right; %s; %s\n",
               mr_dtype_name(o.dtype), o.tf32 ? " tf32" : "", first.loss / 64, last.loss / 640,
               (unsigned long long)last.n_right, (unsigned long long)last.n_samples,
               mr_net_layer_get(t.n.net, 0)->runs_on, mr_net_layer_get(t.n.net, 6)->runs_on);
        check(last.n_samples == 640 && last.n_not_finite == 0);
        check(last.loss / 640 < 0.5 * first.loss / 64 && last.n_right > 500);
        mr_graph_destroy(graph);
        trainer_close(&t);
    }
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"graph", test_graph}, {"rescale", test_rescale}, {"training", test_training}};
    return nets_main(tests, COUNT(tests));
}
