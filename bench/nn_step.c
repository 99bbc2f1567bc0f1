/*
 * How long a training step of a net takes (forward, loss, backward, optimizer), its batch lying in
 * the device's memory: one by one and, on GPUs, as a graph. Prints one line of JSON a case.
 *
 * usage: nn_step [cpu|cuda|cuda:N] [SECONDS] [OPTIMIZER] [MODEL...]
 *        SECONDS: of each case
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST  4096 /* times of one case */
#define BATCH 20   /* steps timed together */

struct net {
    const char *model, *type;
    enum mr_dtype dtype;
    uint32_t n;
    struct mr_net *net;
    struct mr_optim *optim;
    struct mr_net_batch batch;
    void *params, *grads, *low, *input, *labels;
    struct mr_graph *graph;
};

static struct bench {
    struct mr_device *dev;
    struct mr_stream *stream;
    const char *uri, *optimizer;
    double seconds;
    int on_host;
} b;

static void check(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "nn_step: %s: %s\n", what, mr_last_error());
    exit(rc == MR_ENODEVICE ? 77 : 1);
}

static void *upload(const void *from, uint64_t bytes)
{
    void *to = NULL;
    check(mr_memory_acquire(b.dev, MR_DEVICE, bytes, &to), "memory");
    check(mr_copy_async(b.stream, to, MR_DEVICE, from, MR_PAGEABLE, bytes), "copy");
    check(mr_stream_synchronize(b.stream), "copy");
    return to;
}

static void take_batch(struct net *t, const struct mr_net_opts *o)
{
    uint64_t bytes = (uint64_t)t->n * o->channels * o->height * o->width;
    unsigned char *input = malloc(bytes);
    unsigned char *labels = malloc(t->n);
    if (!input || !labels)
        exit(1);
    for (uint64_t i = 0; i < bytes; i++)
        input[i] = (unsigned char)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < t->n; i++)
        labels[i] = (unsigned char)(i % 10);
    t->input = upload(input, bytes);
    t->labels = upload(labels, t->n);
    t->batch = (struct mr_net_batch){.size = sizeof(struct mr_net_batch),
                                     .input = t->input,
                                     .labels = t->labels,
                                     .input_dtype = MR_U8,
                                     .label_dtype = MR_U8,
                                     .n = t->n};
    free(input);
    free(labels);
}

static void open_net(struct net *t, int tf32)
{
    struct mr_net_opts o;
    struct mr_optim_extra extra;
    mr_net_opts_init(&o);
    o.model = t->model;
    o.dtype = t->dtype;
    o.tf32 = tf32;
    o.max_batch = t->n;
    if (strcmp(t->model, "resnet20") == 0) {
        o.channels = 3;
        o.height = o.width = 32;
    }
    check(mr_net_create(b.dev, &o, &t->net), t->model);
    mr_net_flat(t->net, &t->params, &t->grads, &t->low);
    check(mr_optim_create(b.dev, b.optimizer, MR_F32, mr_net_n_params(t->net), NULL, 0, &t->optim),
          b.optimizer);
    take_batch(t, &o);
    mr_optim_extra_init(t->optim, &extra);
    if (t->low) {
        extra.copy = t->low;
        extra.copy_dtype = t->dtype;
    }
    mr_net_scaling(t->net, &t->batch.loss_scale, &extra.grad_scale, &extra.skip);
    check(mr_optim_attach(t->optim, &extra), "attach");
}

static void close_net(struct net *t)
{
    mr_graph_destroy(t->graph);
    t->graph = NULL;
    mr_net_destroy(t->net);
    mr_optim_destroy(t->optim);
    mr_memory_release(b.dev, MR_DEVICE, t->input, NULL);
    mr_memory_release(b.dev, MR_DEVICE, t->labels, NULL);
}

static void step(struct net *t)
{
    if (t->graph) {
        check(mr_graph_launch(t->graph, b.stream), "graph");
        return;
    }
    check(mr_net_train(t->net, &t->batch, b.stream), "train");
    check(mr_net_rescale(t->net, b.stream), "rescale");
    check(mr_optim_step(t->optim, t->params, t->grads, b.stream), "step");
    t->batch.copied = 1;
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

static void time_of(struct net *t, const char *how)
{
    static double times[MOST];
    int n_times = -1, many = b.on_host ? 1 : BATCH;
    for (uint64_t until = mr_time_ns() + (uint64_t)(b.seconds * 1e9);
         n_times < 3 || (n_times < MOST && mr_time_ns() < until); n_times++) {
        uint64_t start = mr_time_ns();
        for (int i = 0; i < many; i++)
            step(t);
        check(mr_stream_synchronize(b.stream), "synchronize");
        if (n_times >= 0)
            times[n_times] = (double)(mr_time_ns() - start) / many;
    }
    qsort(times, (size_t)n_times, sizeof *times, by_size);
    struct mr_net_totals totals = {.size = sizeof totals};
    check(mr_net_query_totals(t->net, b.stream, &totals), "totals");
    printf("{\"model\": \"%s\", \"type\": \"%s\", \"batch\": %u, \"how\": \"%s\", \"ms\": %.4f, "
           "\"samples_per_s\": %.0f, "
           "\"times\": %d, \"not_finite\": %llu}\n",
           t->model, t->type, t->n, how, times[n_times / 2] * 1e-6, t->n * 1e9 / times[n_times / 2],
           n_times, (unsigned long long)totals.n_not_finite);
    fflush(stdout);
}

static void run(const char *model, const char *type, enum mr_dtype dtype, int tf32, uint32_t n)
{
    struct net t = {.model = model, .type = type, .dtype = dtype, .n = n};
    open_net(&t, tf32);
    time_of(&t, "steps");
    if (!b.on_host) {
        check(mr_graph_begin(b.stream), "graph");
        step(&t);
        check(mr_graph_end(b.stream, &t.graph), "graph");
        time_of(&t, "graph");
    }
    close_net(&t);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"mnist-cnn", "mlp:300s,100r,50s", "softmax", "resnet20"};
    static const struct {
        const char *name;
        enum mr_dtype dtype;
        int tf32;
    } types[] = {{"f32", MR_F32, 0}, {"tf32", MR_F32, 1}, {"bf16", MR_BF16, 0}, {"f16", MR_F16, 0}};
    static const uint32_t batches[] = {64, 1024};
    const char *const *models = argc > 4 ? (const char *const *)&argv[4] : usual;
    int n_models = argc > 4 ? argc - 4 : 4;
    b.uri = argc > 1 ? argv[1] : "cuda";
    b.seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;
    b.optimizer = argc > 3 ? argv[3] : "adadelta:lr=1";
    b.on_host = strcmp(b.uri, "cpu") == 0;
    if (!(b.seconds > 0)) {
        fprintf(stderr, "usage: nn_step [cpu|cuda|cuda:N] [SECONDS] [OPTIMIZER] [MODEL...]\n");
        return 1;
    }
    check(mr_device_open(b.uri, &b.dev), b.uri);
    check(mr_stream_create(b.dev, "bench", &b.stream), "stream");
    for (int m = 0; m < n_models; m++)
        for (size_t k = 0; k < sizeof batches / sizeof *batches; k++)
            for (size_t i = 0; i < (b.on_host ? 1 : sizeof types / sizeof *types); i++)
                run(models[m], types[i].name, types[i].dtype, types[i].tf32, batches[k]);
    mr_stream_destroy(b.stream);
    mr_device_close(b.dev);
    return 0;
}
