/*
 * Nets: gradients against finite differences in f64, equal bits for any number of threads, f32
 * against f64, models and their errors.
 */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <millrace/nn.h>
#include <millrace/optim.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BATCH 6

struct fixture {
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_net *net;
    struct mr_net_opts o;
    double *input;
    int32_t labels[MAX_BATCH];
    double targets[MAX_BATCH * 64];
    uint64_t sample;
};

static double noise(uint64_t i)
{
    uint32_t r[4];
    mr_philox((uint32_t[]){(uint32_t)i, 7, 7, 7}, (uint32_t[]){1, 2}, r);
    return (r[0] / 4294967296.0 - 0.5) * 2;
}

static void open_net(struct fixture *f, const char *model, enum mr_dtype dtype, uint32_t c,
                     uint32_t h, uint32_t threads)
{
    memset(f, 0, sizeof *f);
    mr_net_opts_init(&f->o);
    f->o.model = model;
    f->o.channels = c;
    f->o.height = f->o.width = h;
    f->o.classes = 5;
    f->o.dtype = dtype;
    f->o.max_batch = MAX_BATCH;
    f->o.seed = 3;
    f->o.threads = threads;
    assert_int_equal(mr_device_open("cpu", &f->dev), 0);
    assert_int_equal(mr_stream_create(f->dev, "test", &f->stream), 0);
    f->sample = (uint64_t)c * h * h;
    f->input = malloc(MAX_BATCH * f->sample * sizeof *f->input);
    for (uint64_t i = 0; i < MAX_BATCH * f->sample; i++)
        f->input[i] = noise(i);
    for (int i = 0; i < MAX_BATCH; i++)
        f->labels[i] = i % 5;
    for (int i = 0; i < MAX_BATCH * 64; i++)
        f->targets[i] = noise((uint64_t)i + 100000);
}

static void close_net(struct fixture *f)
{
    mr_net_destroy(f->net);
    mr_stream_destroy(f->stream);
    mr_device_close(f->dev);
    free(f->input);
}

static struct mr_net_batch batch_of(struct fixture *f, uint32_t n)
{
    bool mse = f->o.loss == MR_MSE;
    return (struct mr_net_batch){.size = sizeof(struct mr_net_batch),
                                 .input = f->input,
                                 .input_dtype = MR_F64,
                                 .n = n,
                                 .labels = mse ? (void *)f->targets : (void *)f->labels,
                                 .label_dtype = mse ? MR_F64 : MR_I32};
}

/* The mean loss of a training pass, as dropout of step 0 sees it. */
static double loss_of(struct fixture *f)
{
    struct mr_net_totals t = {.size = sizeof t};
    struct mr_net_batch b = batch_of(f, MAX_BATCH);
    assert_int_equal(mr_net_zero_totals(f->net, f->stream), 0);
    assert_int_equal(mr_net_set_step(f->net, 0, f->stream), 0);
    assert_int_equal(mr_net_train(f->net, &b, f->stream), 0);
    assert_int_equal(mr_net_query_totals(f->net, f->stream, &t), 0);
    assert_int_equal(t.n_samples, MAX_BATCH);
    assert_int_equal(t.n_bad_labels, 0);
    return t.loss / MAX_BATCH;
}

/* Central differences along single parameters: of each tensor up to 12, far apart. */
static void check_gradients(const char *model, uint32_t c, uint32_t h, enum mr_loss loss)
{
    struct fixture f;
    open_net(&f, model, MR_F64, c, h, 2);
    f.o.loss = loss;
    int rc = mr_net_create(f.dev, &f.o, &f.net);
    if (rc)
        fail_msg("%s: %s", model, mr_last_error());
    void *params, *grads, *low;
    mr_net_flat(f.net, &params, &grads, &low);
    assert_null(low);
    void *again;
    mr_net_flat(f.net, &again, NULL, NULL); /* what is not wanted */
    assert_ptr_equal(again, params);
    mr_net_buffers(f.net, NULL, NULL);
    double *w = params;
    loss_of(&f);
    double *g = malloc(mr_net_n_params(f.net) * sizeof *g);
    memcpy(g, grads, mr_net_n_params(f.net) * sizeof *g);
    const struct mr_net_param *p;
    uint32_t n_checked = 0;
    double largest = 0;
    for (uint32_t i = 0; (p = mr_net_param_get(f.net, i)); i++) {
        uint64_t step = p->count / 12 + 1;
        for (uint64_t k = 0; k < p->count; k += step) {
            uint64_t at = p->offset + k;
            double eps = 1e-5, old = w[at];
            w[at] = old + eps;
            double up = loss_of(&f);
            w[at] = old - eps;
            double down = loss_of(&f);
            w[at] = old;
            double slope = (up - down) / (2 * eps);
            if (fabs(slope - g[at]) > 1e-6 * (1 + fabs(slope)))
                fail_msg("%s: %s[%llu]: gradient %.9g, differences say %.9g", model, p->name,
                         (unsigned long long)k, g[at], slope);
            largest = fmax(largest, fabs(slope));
            n_checked++;
        }
    }
    assert_true(n_checked > 0 && largest > 1e-4); /* not all zero */
    free(g);
    close_net(&f);
}

static void test_gradients(void **state)
{
    (void)state;
    static const char *const models[] = {
        "softmax",
        "mlp:7s",
        "mlp:7t,6r,5g",
        "flatten,linear:5,bias=0",
        "conv:3,tanh,flatten,linear:5",
        "conv:3,k=3,s=2,p=1,tanh,flatten,linear:5",
        "conv:4,k=2,bias=0,sigmoid,conv:3,k=2,gelu,flatten,linear:5",
        "conv:3,tanh,maxpool:2,flatten,linear:5",
        "conv:3,tanh,maxpool:3,s=2,flatten,linear:5",
        "conv:3,tanh,avgpool:2,s=1,flatten,linear:5",
        "conv:3,batchnorm,tanh,flatten,linear:5",
        "conv:3,tanh,dropout:0.4,flatten,linear:6,tanh,dropout:0.3,linear:5",
        "conv:4,tanh,dropout:0.4,2d,flatten,linear:5",
        "conv:4,p=1,tanh,residual:{conv:4,p=1,batchnorm,tanh,conv:4,p=1},tanh,flatten,linear:5",
        "conv:3,p=1,tanh,residual:{conv:5,s=2,p=1,bias=0,batchnorm,tanh,conv:5,p=1,tanh},sigmoid,"
        "flatten,linear:5",
        "conv:3,p=1,tanh,residual:{flatten,linear:10},linear:5",
        "conv:3,tanh,residual:{conv:3,tanh,flatten},linear:5",
        "conv:3,tanh,residual:{maxpool:2,flatten},tanh,linear:5",
        "residual:{flatten,linear:10},tanh,linear:5",
        "flatten,residual:{linear:98,tanh},linear:5",
        "flatten,residual:{linear:30,tanh},linear:5",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check_gradients(models[i], 2, 7, MR_CROSS_ENTROPY);
    check_gradients("linear:4,tanh,linear:5", 6, 1, MR_CROSS_ENTROPY);
    check_gradients("linear:6,tanh,residual:{linear:6,tanh,flatten},linear:5", 6, 1,
                    MR_CROSS_ENTROPY);
    check_gradients("linear:6,tanh,residual:{flatten,linear:6,tanh},linear:5", 6, 1,
                    MR_CROSS_ENTROPY);
    check_gradients("flatten,linear:5,logsoftmax", 2, 5, MR_NLL);
    check_gradients("flatten,linear:5,tanh", 2, 5, MR_MSE);
    check_gradients("flatten,linear:5,softmax", 2, 5, MR_MSE);
    check_gradients("conv:3,p=1", 2, 4, MR_MSE);
    check_gradients("mnist-cnn", 1, 8, MR_CROSS_ENTROPY);
}

/* A net's outputs are vectors, in c, h, w order on every device: one that ends in a picture is
 * flattened. */
static void test_picture_outputs(void **state)
{
    (void)state;
    struct fixture f;
    const struct mr_net_layer *l, *last = NULL;
    open_net(&f, "conv:3,p=1", MR_F32, 2, 4, 1);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    for (uint32_t i = 0; (l = mr_net_layer_get(f.net, i)); i++)
        last = l;
    assert_non_null(last);
    assert_int_equal(last->out[0], 48);
    assert_int_equal(last->out[1] * last->out[2], 1);
    close_net(&f);
}

/* Layers join where they can; a dropout of nothing between them keeps them apart, and must not
 * change what is computed. */
static void test_joining(void **state)
{
    (void)state;
    static const char *const models[][2] = {
        {"linear:4,tanh,linear:5", "linear:4,dropout:0,tanh,linear:5"},
        {"linear:4,residual:{tanh,linear:4},linear:5",
         "linear:4,dropout:0,residual:{tanh,linear:4},linear:5"},
        {"linear:4,batchnorm,residual:{sigmoid,linear:3,tanh,linear:4},linear:5",
         "linear:4,batchnorm,dropout:0,residual:{sigmoid,linear:3,dropout:0,tanh,linear:4},linear:"
         "5"},
        {"linear:4,residual:{residual:{tanh,linear:4},tanh,linear:4},linear:5",
         "linear:4,dropout:0,residual:{residual:{tanh,linear:4},dropout:0,tanh,linear:4},linear:5"},
    };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct fixture f[2];
        void *params, *grads[2], *low;
        double loss[2];
        for (int k = 0; k < 2; k++) {
            open_net(&f[k], models[m][k], MR_F64, 6, 1, 1);
            assert_int_equal(mr_net_create(f[k].dev, &f[k].o, &f[k].net), 0);
            loss[k] = loss_of(&f[k]);
            mr_net_flat(f[k].net, &params, &grads[k], &low);
        }
        assert_int_equal(mr_net_n_params(f[0].net), mr_net_n_params(f[1].net));
        for (uint64_t i = 0; i < mr_net_n_params(f[0].net); i++)
            if (fabs(((double *)grads[0])[i] - ((double *)grads[1])[i]) > 1e-12)
                fail_msg("%s and %s: different gradients", models[m][0], models[m][1]);
        if (fabs(loss[0] - loss[1]) > 1e-12)
            fail_msg("%s: loss %.9g, %s: %.9g", models[m][0], loss[0], models[m][1], loss[1]);
        close_net(&f[0]);
        close_net(&f[1]);
        check_gradients(models[m][0], 6, 1, MR_CROSS_ENTROPY);
    }
}

/* The same bits for 1, 2 and 5 threads. */
static void test_threads(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp:300s,100r,50s", "mnist-cnn", "resnet20"};
    for (size_t m = 0; m < 3; m++) {
        float *first = NULL;
        uint64_t bytes = 0;
        static const uint32_t threads[] = {1, 2, 5};
        for (size_t i = 0; i < 3; i++) {
            struct fixture f;
            open_net(&f, models[m], MR_F32, 1, 12, threads[i]);
            assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
            loss_of(&f);
            void *params, *grads, *low;
            mr_net_flat(f.net, &params, &grads, &low);
            bytes = mr_net_n_params(f.net) * 4;
            if (!first) {
                first = malloc(bytes);
                memcpy(first, grads, bytes);
            }
            assert_memory_equal(first, grads, bytes);
            close_net(&f);
        }
        free(first);
    }
}

/* The program's own use of the library that multiplies matrices is as it was after a pass. */
static void test_blas_threads(void **state)
{
    (void)state;
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol[2] = {blas ? dlsym(blas, "openblas_get_num_threads") : NULL,
                       blas ? dlsym(blas, "openblas_set_num_threads") : NULL};
    int (*get)(void);
    void (*set)(int);
    memcpy(&get, &symbol[0], sizeof get);
    memcpy(&set, &symbol[1], sizeof set);
    if (!get || !set) {
        print_message("SKIP threads of OpenBLAS: there is no libopenblas.so.0\n");
        skip();
    }
    int before = get();
    struct fixture f;
    set(2);
    int two = get(); /* 1 where it was built for one */
    open_net(&f, "mlp:30r", MR_F32, 1, 12, 2);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    loss_of(&f);
    assert_int_equal(get(), two);
    close_net(&f);
    assert_int_equal(get(), two);
    set(before);
    dlclose(blas);
}

/* What the backend takes, for each thread, counts. */
static void test_memory(void **state)
{
    (void)state;
    uint64_t bytes[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct fixture f;
        open_net(&f, "conv:8,relu,conv:8,relu,flatten,linear:5", MR_F32, 1, 28, i ? 4 : 1);
        assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
        loss_of(&f);
        bytes[i] = mr_net_memory(f.net);
        close_net(&f);
    }
    assert_true(bytes[1] >=
                bytes[0] + 3 * 24 * 24 * 8 * 9 * sizeof(float)); /* patches of a sample */
}

/* What is not scaled says so; nothing else can be put there. */
static void test_loss_scale(void **state)
{
    (void)state;
    struct fixture f;
    float scale = 0;
    uint32_t good = 9;
    open_net(&f, "softmax", MR_F32, 1, 4, 1);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    assert_int_equal(mr_net_query_loss_scale(f.net, f.stream, &scale, &good), 0);
    assert_true(scale == 1 && good == 0);
    assert_int_equal(mr_net_set_loss_scale(f.net, f.stream, scale, good), 0);
    static const float bad[] = {2, 0, -1, 3, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mr_net_set_loss_scale(f.net, f.stream, bad[i], 0), MR_ESTATE);
    assert_int_equal(mr_net_set_loss_scale(f.net, f.stream, 1, 5), MR_ESTATE);
    close_net(&f);
}

/* f32 near f64; accumulation adds; a larger loss scale scales. */
static void test_precision(void **state)
{
    (void)state;
    struct fixture a, b;
    open_net(&a, "mnist-cnn", MR_F64, 1, 12, 1);
    open_net(&b, "mnist-cnn", MR_F32, 1, 12, 1);
    assert_int_equal(mr_net_create(a.dev, &a.o, &a.net), 0);
    assert_int_equal(mr_net_create(b.dev, &b.o, &b.net), 0);
    double la = loss_of(&a), lb = loss_of(&b);
    assert_true(fabs(la - lb) < 1e-5 * la);
    void *params, *ga, *gb, *low;
    mr_net_flat(a.net, &params, &ga, &low);
    mr_net_flat(b.net, &params, &gb, &low);
    uint64_t n = mr_net_n_params(a.net);
    double most = 0, apart = 0;
    for (uint64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(((double *)ga)[i]));
        apart = fmax(apart, fabs(((double *)ga)[i] - ((float *)gb)[i]));
    }
    assert_true(most > 0 && apart < 1e-4 * most);
    double *once = malloc(n * sizeof *once);
    memcpy(once, ga, n * sizeof *once);
    struct mr_net_batch batch = batch_of(&a, MAX_BATCH);
    batch.accumulate = 1;
    float scale = 4;
    batch.loss_scale = &scale;
    assert_int_equal(mr_net_set_step(a.net, 0, a.stream), 0);
    assert_int_equal(mr_net_train(a.net, &batch, a.stream), 0);
    for (uint64_t i = 0; i < n; i++)
        assert_true(fabs(((double *)ga)[i] - 5 * once[i]) <= 1e-9 * (1 + fabs(once[i])));
    free(once);
    close_net(&a);
    close_net(&b);
}

/* Evaluation: no dropout, running statistics; outputs and totals agree; bad labels are counted. */
/* Two steps, after mr_net_warm_up() or not: the bits of gradients, running statistics and
 * totals. */
static void two_steps(const char *model, enum mr_dtype dtype, enum mr_loss loss, uint32_t most,
                      bool warm, char *out, uint64_t *out_bytes)
{
    struct fixture f;
    struct mr_net_totals t = {.size = sizeof t};
    void *params, *grads, *low, *buffers;
    uint64_t n_buffers, size = dtype == MR_F64 ? 8 : 4;
    open_net(&f, model, dtype, 2, 6, 2);
    f.o.loss = loss;
    f.o.max_batch = most;
    if (mr_net_create(f.dev, &f.o, &f.net) != 0)
        fail_msg("%s: %s", model, mr_last_error());
    if (warm)
        assert_int_equal(mr_net_warm_up(f.net, f.stream), 0);
    struct mr_net_batch b = batch_of(&f, most);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mr_net_train(f.net, &b, f.stream), 0);
    assert_int_equal(mr_net_query_totals(f.net, f.stream, &t), 0);
    assert_int_equal(t.n_samples, 2 * most);
    mr_net_flat(f.net, &params, &grads, &low);
    mr_net_buffers(f.net, &buffers, &n_buffers);
    uint64_t bytes = mr_net_n_params(f.net) * size;
    *out_bytes = 2 * bytes + n_buffers * size + sizeof t.loss;
    assert_true(*out_bytes <= 1 << 16);
    memcpy(out, params, bytes);
    memcpy(out + bytes, grads, bytes);
    if (n_buffers)
        memcpy(out + 2 * bytes, buffers, n_buffers * size);
    memcpy(out + 2 * bytes + n_buffers * size, &t.loss, sizeof t.loss);
    close_net(&f);
}

static void test_warm_up(void **state)
{
    (void)state;
    static const char *const models[] = {
        "conv:3,batchnorm,relu,dropout:0.5,flatten,linear:5",
        "conv:4,p=1,relu,maxpool:2,dropout:0.3,flatten,linear:8,relu,linear:5", "softmax",
        "flatten,linear:6,tanh,dropout:0.2,linear:5"};
    static char cold[1 << 16], warm[1 << 16];
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int k = 0; k < 8; k++) {
            uint64_t n, m;
            enum mr_dtype dtype = k & 1 ? MR_F64 : MR_F32;
            enum mr_loss loss = k & 2 ? MR_MSE : MR_CROSS_ENTROPY;
            two_steps(models[i], dtype, loss, k & 4 ? 1 : MAX_BATCH, false, cold, &n);
            two_steps(models[i], dtype, loss, k & 4 ? 1 : MAX_BATCH, true, warm, &m);
            assert_int_equal(n, m);
            assert_memory_equal(cold, warm, n);
        }
}

static void test_eval(void **state)
{
    (void)state;
    struct fixture f;
    open_net(&f, "conv:3,batchnorm,relu,dropout:0.5,flatten,linear:5", MR_F32, 2, 6, 2);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    struct mr_net_batch b = batch_of(&f, 4);
    const void *one, *two;
    struct mr_net_totals t = {.size = sizeof t};
    f.labels[1] = 5;
    f.labels[2] = -1;
    assert_int_equal(mr_net_eval(f.net, &b, &one, f.stream), 0);
    float kept[20];
    memcpy(kept, one, sizeof kept);
    assert_int_equal(mr_net_eval(f.net, &b, &two, f.stream), 0);
    assert_memory_equal(kept, two, sizeof kept);
    assert_int_equal(mr_net_query_totals(f.net, f.stream, &t), 0);
    assert_int_equal(t.n_samples, 4); /* of 8: means over samples are over those that count */
    assert_int_equal(t.n_bad_labels, 4);
    uint64_t right = 0;
    for (int r = 0; r < 4; r++) {
        int top = 0;
        for (int i = 1; i < 5; i++)
            top = kept[r * 5 + i] > kept[r * 5 + top] ? i : top;
        right += top == f.labels[r];
    }
    assert_int_equal(t.n_right, 2 * right);
    close_net(&f);
}

/* A loss that is not finite: with the net's flag as its skip, an optimizer leaves all as it was
 * until the totals are zeroed, and the layer that is to blame is still to be found. */
static void test_bad_loss(void **state)
{
    (void)state;
    struct fixture f;
    struct mr_optim *optim;
    struct mr_optim_extra extra;
    void *params, *grads, *low;
    const char *what;
    open_net(&f, "conv:3,tanh,flatten,linear:5", MR_F32, 2, 6, 1);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    mr_net_flat(f.net, &params, &grads, &low);
    uint64_t bytes = mr_net_n_params(f.net) * 4;
    assert_int_equal(mr_optim_create(NULL, "adam", MR_F32, mr_net_n_params(f.net), NULL, 0, &optim),
                     0);
    mr_optim_extra_init(optim, &extra);
    extra.skip = mr_net_bad_loss(f.net);
    assert_int_equal(mr_optim_attach(optim, &extra), 0);
    float *was = malloc(bytes);
    for (int step = 0; step < 4; step++) {
        struct mr_net_batch b = batch_of(&f, MAX_BATCH);
        f.input[0] = step == 1 ? NAN : 0.25;
        if (step == 3)
            assert_int_equal(mr_net_zero_totals(f.net, f.stream), 0);
        memcpy(was, params, bytes);
        assert_int_equal(mr_net_train(f.net, &b, f.stream), 0);
        assert_int_equal(*mr_net_bad_loss(f.net) != 0, step == 1 || step == 2);
        assert_int_equal(mr_optim_step(optim, params, grads, NULL), 0);
        assert_int_equal(memcmp(was, params, bytes) == 0, step == 1 || step == 2);
        if (step == 1) {
            assert_int_equal(mr_net_find_bad(f.net, f.stream, &what), 0);
            assert_string_equal(what, "output"); /* the parameters are good */
        }
    }
    free(was);
    mr_optim_destroy(optim);
    close_net(&f);
}

/* A residual's sum lies where its body's output did: the way around is looked at before it. */
static void test_bad_shortcut(void **state)
{
    (void)state;
    struct fixture f;
    const struct mr_net_param *p = NULL;
    void *params, *grads, *low;
    const char *what;
    open_net(&f, "conv:4,p=1,tanh,residual:{conv:6,s=2,p=1,tanh,conv:6,p=1},tanh,flatten,linear:5",
             MR_F32, 2, 6, 1);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    mr_net_flat(f.net, &params, &grads, &low);
    for (uint32_t i = 0; (p = mr_net_param_get(f.net, i)) && strcmp(p->name, "conv4.weight") != 0;)
        i++;
    assert_non_null(p);
    ((float *)params)[p->offset] = NAN;
    struct mr_net_batch b = batch_of(&f, MAX_BATCH);
    assert_int_equal(mr_net_train(f.net, &b, f.stream), 0);
    int at = mr_net_find_bad(f.net, f.stream, &what);
    assert_true(at >= 0);
    assert_string_equal(mr_net_layer_get(f.net, (uint32_t)at)->name, "conv4");
    assert_string_equal(what, "parameters");
    close_net(&f);
}

static void test_bad_models(void **state)
{
    (void)state;
    static const struct {
        const char *model, *text;
    } bad[] = {
        {"conv:8,lineer:5", "did you mean linear"},
        {"conv:8,linear:5", "8x5x5"},
        {"conv:8,k=9", "2x7x7"},
        {"maxpool:8", "2x7x7"},
        {"mlp:30x", "mlp:300s"},
        {"conv", "the number of outputs"},
        {"relu", "no layer with parameters"},
        {"residual:conv:3", "residual:{layers}"},
        {"conv:3,,relu", "missing"},
        {"dropout:2", "dropout"},
        {"residual:{conv:4,k=3}", "residual"},
        {"", "no model"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fixture f;
        open_net(&f, bad[i].model, MR_F32, 2, 7, 1);
        int rc = mr_net_create(f.dev, &f.o, &f.net);
        assert_true(rc == MR_EOPTION || rc == MR_ESHAPE);
        if (!strstr(mr_last_error(), bad[i].text))
            fail_msg("%s: the error does not say '%s': %s", bad[i].model, bad[i].text,
                     mr_last_error());
        close_net(&f);
    }
}

/* Structs of programs made with another version: nothing is written past their size, longer ones
 * are refused. */
static void test_versions(void **state)
{
    (void)state;
    struct fixture f;
    struct {
        struct mr_net_opts o;
        unsigned char rest[16];
    } room;
    open_net(&f, "softmax", MR_F32, 1, 28, 1);
    memset(&room, 0xaa, sizeof room);
    mr_net_opts_fill(&room.o, offsetof(struct mr_net_opts, max_batch));
    assert_int_equal(room.o.size, offsetof(struct mr_net_opts, max_batch));
    assert_int_equal(room.o.max_batch, 0xaaaaaaaa);
    room.o.model = "softmax";
    assert_int_equal(mr_net_create(f.dev, &room.o, &f.net),
                     0); /* with the default of what it lacks */
    assert_true(mr_net_memory(f.net) < 10 << 20);
    mr_net_destroy(f.net);
    f.net = NULL;
    mr_net_opts_fill(&room.o, sizeof room);
    assert_int_equal(mr_net_create(f.dev, &room.o, &f.net), MR_EMISUSE);
    room.o.size = 0;
    assert_int_equal(mr_net_create(f.dev, &room.o, &f.net), MR_EMISUSE);
    mr_net_opts_init(&room.o);
    f.o.classes = (1 << 20) + 1;
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), MR_EOPTION);
    f.o.classes = 5;
    f.o.max_batch = (1 << 20) + 1;
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), MR_EOPTION);
    room.o.loss = (enum mr_loss)7;
    assert_int_equal(mr_net_create(f.dev, &room.o, &f.net), MR_EOPTION);
    close_net(&f);
}

static void test_misuse(void **state)
{
    (void)state;
    struct fixture f;
    struct mr_net_totals totals = {.size = sizeof totals};
    const char *what;
    float scale;
    uint32_t good;
    open_net(&f, "flatten,linear:5", MR_F32, 1, 4, 1);
    assert_int_equal(mr_net_create(NULL, &f.o, &f.net), MR_EMISUSE);
    assert_int_equal(mr_net_create(f.dev, NULL, &f.net), MR_EMISUSE);
    assert_int_equal(mr_net_create(f.dev, &f.o, NULL), MR_EMISUSE);
    mr_net_destroy(NULL);
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
    struct mr_net_batch b = batch_of(&f, MAX_BATCH);
    b.input = NULL;
    assert_int_equal(mr_net_train(f.net, &b, f.stream), MR_EMISUSE);
    assert_int_equal(mr_net_eval(f.net, &b, NULL, f.stream), MR_EMISUSE);
    b = batch_of(&f, MAX_BATCH); /* "cpu" needs no stream */
    assert_int_equal(mr_net_train(f.net, &b, NULL), 0);
    assert_int_equal(mr_net_query_totals(f.net, NULL, &totals), 0);
    assert_int_equal(totals.n_samples, MAX_BATCH);
    assert_int_equal(mr_net_find_bad(f.net, NULL, &what), -ENODATA);
    assert_int_equal(mr_net_query_loss_scale(f.net, NULL, &scale, &good), 0);
    assert_int_equal(mr_net_set_loss_scale(f.net, NULL, scale, good), 0);
    b.labels = NULL;
    assert_int_equal(mr_net_train(f.net, &b, NULL), MR_EMISUSE);
    close_net(&f);
}

/* n residuals in one another, around one layer. */
static char *deep(uint32_t n)
{
    char *text = malloc(n * 12 + 32);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "residual:{");
    at += (size_t)sprintf(text + at, "linear:6");
    memset(text + at, '}', n);
    text[at + n] = 0;
    return text;
}

static void test_limits(void **state)
{
    (void)state;
    static const uint32_t depths[] = {1, 16, 17, 600};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        struct fixture f;
        char *text = deep(depths[i]);
        open_net(&f, text, MR_F64, 6, 1, 1);
        f.o.classes = 6;
        assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), depths[i] > 16 ? MR_ELIMIT : 0);
        close_net(&f);
        free(text);
    }
    static const struct {
        const char *model, *text;
        uint32_t c, h, max_batch;
    } large[] = {{"conv:4,s=2,flatten,linear:5", "65536x65536", 1, 65536, 1},
                 {"conv:1,p=30,k=1,conv:1,s=16,flatten,linear:5", "46400x46400", 1, 46340, 1},
                 {"maxpool:1,linear:5", "4096", 4096, 1, 1 << 20}};
    for (size_t i = 0; i < sizeof large / sizeof *large;
         i++) { /* products that 32 bits do not hold */
        struct fixture g;
        open_net(&g, large[i].model, MR_F32, 1, 1, 1);
        g.o.channels = large[i].c;
        g.o.height = g.o.width = large[i].h;
        g.o.max_batch = large[i].max_batch;
        assert_int_equal(mr_net_create(g.dev, &g.o, &g.net), MR_ELIMIT);
        if (!strstr(mr_last_error(), large[i].text))
            fail_msg("%s: the error does not say '%s': %s", large[i].model, large[i].text,
                     mr_last_error());
        close_net(&g);
    }
    struct fixture f; /* more elements a sample than 32 bits count */
    open_net(&f, "flatten,linear:5", MR_F32, 2, 7, 1);
    f.o.channels = 4;
    f.o.height = f.o.width = 32769;
    assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), MR_ELIMIT);
    assert_non_null(strstr(mr_last_error(), "flatten"));
    close_net(&f);
}

/* PyTorch's example: 1,199,882 parameters; He et al.'s ResNet-20 with projections on CIFAR:
 * 272,474. */
static void test_known_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint32_t c, h;
        uint64_t n;
    } known[] = {{"mnist-cnn", 1, 28, 1199882},
                 {"softmax", 1, 28, 7850},
                 {"mlp:100s", 1, 28, 79510},
                 {"mlp:300s,100r,50s", 1, 28, 235500 + 30100 + 5050 + 510},
                 {"resnet20", 3, 32, 272474}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct fixture f;
        open_net(&f, known[i].model, MR_F32, known[i].c, known[i].h, 1);
        f.o.classes = 10;
        assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
        uint64_t n = 0;
        const struct mr_net_layer *l;
        for (uint32_t k = 0; (l = mr_net_layer_get(f.net, k)); k++)
            n += l->n_params;
        assert_int_equal(n, known[i].n);
        close_net(&f);
    }
}

/* Of photos that are no squares ResNet-20's last pool leaves two places, whichever side is
 * longer. */
static void test_tall(void **state)
{
    (void)state;
    for (uint32_t tall = 0; tall < 2; tall++) {
        struct fixture f;
        open_net(&f, "resnet20", MR_F32, 3, 32, 1);
        *(tall ? &f.o.height : &f.o.width) = 64;
        assert_int_equal(mr_net_create(f.dev, &f.o, &f.net), 0);
        uint64_t n = 0;
        const struct mr_net_param *p;
        for (uint32_t k = 0; (p = mr_net_param_get(f.net, k)); k++)
            n += p->count;
        assert_int_equal(n, 272474 - (64 * 10 + 10) + (2 * 64 + 1) * f.o.classes);
        close_net(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blas_threads), /* first: before a net has looked for the library */

        cmocka_unit_test(test_gradients),    cmocka_unit_test(test_picture_outputs),
        cmocka_unit_test(test_joining),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_precision),    cmocka_unit_test(test_eval),
        cmocka_unit_test(test_warm_up),      cmocka_unit_test(test_bad_loss),
        cmocka_unit_test(test_bad_shortcut), cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_versions),     cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_known_sizes),
        cmocka_unit_test(test_tall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
