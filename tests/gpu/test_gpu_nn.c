/*
 * Nets on a GPU: gradients of every layer against the host's, in every precision; dropout, totals,
 * bad labels, NaN. Without cuBLASLt: it says what is missing, and that is all.
 */
#include "nets.h"

#include <errno.h>
#include <math.h>

static float *grads_of(struct nets *n)
{
    void *params, *grads, *low;
    mr_net_flat(n->net, &params, &grads, &low);
    check((low != NULL) == (n->o.dtype != MR_F32));
    return fetch(n, grads, n->n_params * sizeof(float));
}

static const float *host_grads_of(struct nets *n)
{
    void *params, *grads, *low;
    mr_net_flat(n->host, &params, &grads, &low);
    return grads;
}

/* How far apart two gradients are: the norm of the difference by that of the tensor, or a hundredth
 * of that of all gradients together, below which a tensor (a bias before a norm) is nothing but
 * rounding. */
static double apart(const float *got, const float *want, uint64_t count, double whole)
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < count; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
        if (!isfinite(got[i]))
            return INFINITY;
    }
    return sqrt(difference) / (sqrt(norm) + 0.01 * whole);
}

static double norm_of(const float *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static void compare(struct nets *n, double bound)
{
    const float *want = host_grads_of(n);
    float *got = grads_of(n);
    double whole = norm_of(want, n->n_params), worst = 0;
    const struct mr_net_param *p;
    const char *where = "";
    bool good = true;
    check(whole > 0);
    for (uint32_t i = 0; (p = mr_net_param_get(n->net, i)); i++) {
        double a = apart(got + p->offset, want + p->offset, p->count, whole);
        if (!(a <= bound)) {
            good = false;
            printf("  %s: %s: apart %.2e, allowed %.0e\n", n->o.model, p->name, a, bound);
        }
        if (!(a <= worst)) {
            worst = a;
            where = p->name;
        }
    }
    printf("  %-60.60s %s%s: %.1e (%s)\n", n->o.model, mr_dtype_name(n->o.dtype),
           n->o.tf32 ? " tf32" : "", worst, where);
    fflush(stdout);
    free(got);
    check(good);
}

static void same_totals(struct nets *n, double bound)
{
    struct mr_net_totals a = {.size = sizeof a}, b = {.size = sizeof b};
    must(mr_net_query_totals(n->net, n->stream, &a));
    must(mr_net_query_totals(n->host, n->host_stream, &b));
    check(a.n_samples == b.n_samples && a.n_bad_labels == b.n_bad_labels &&
          a.n_not_finite == b.n_not_finite && a.first_not_finite == b.first_not_finite);
    check(fabs(a.loss - b.loss) <= bound * (fabs(b.loss) + 0.1));
}

static void one_model(struct mr_device *dev, struct mr_net_opts o, double bound)
{
    struct nets n;
    nets_open(&n, dev, &o);
    struct mr_net_batch far = batch_of(&n, true, BATCH), near = batch_of(&n, false, BATCH);
    for (uint64_t step = 0; step < 2; step++) { /* another step: other draws; the second adds */
        far.accumulate = near.accumulate = step == 1;
        far.n = near.n = step ? BATCH - 1 : BATCH;
        must(mr_net_set_step(n.net, 7 * step, n.stream));
        must(mr_net_set_step(n.host, 7 * step, n.host_stream));
        must(mr_net_train(n.net, &far, n.stream));
        must(mr_net_train(n.host, &near, n.host_stream));
        compare(&n, bound);
    }
    same_totals(&n, bound);
    void *buffers;
    uint64_t count;
    mr_net_buffers(n.net, &buffers, &count);
    if (count) {
        void *host_buffers;
        mr_net_buffers(n.host, &host_buffers, &count);
        float *got = fetch(&n, buffers, count * sizeof *got);
        check(apart(got, host_buffers, count, 0) <= bound);
        free(got);
    }
    nets_close(&n);
}

static const char *const models[] = {
    "softmax",
    "mlp:7s",
    "mlp:7t,6r,5g",
    "mlp:64r,64r",
    "flatten,linear:5,bias=0",
    "conv:3,tanh,flatten,linear:5",
    "conv:8,relu,conv:16,relu,flatten,linear:5",
    "conv:3,k=3,s=2,p=1,tanh,flatten,linear:5",
    "conv:4,k=2,bias=0,sigmoid,conv:3,k=2,gelu,flatten,linear:5",
    "conv:8,k=1,tanh,conv:8,k=1,tanh,flatten,linear:5",
    "conv:3,tanh,maxpool:2,flatten,linear:5",
    "conv:3,tanh,maxpool:3,s=2,flatten,linear:5",
    "conv:3,tanh,maxpool:2,s=3,flatten,linear:5",
    "conv:3,tanh,avgpool:2,s=1,flatten,linear:5",
    "conv:3,tanh,avgpool:2,flatten,linear:5",
    "conv:3,batchnorm,tanh,flatten,linear:5",
    "flatten,linear:9,batchnorm,tanh,linear:5",
    "conv:3,tanh,dropout:0.4,flatten,linear:6,tanh,dropout:0.3,linear:5",
    "conv:4,tanh,dropout:0.4,2d,flatten,linear:5",
    "conv:4,p=1,tanh,residual:{conv:4,p=1,batchnorm,tanh,conv:4,p=1},tanh,flatten,linear:5",
    "conv:3,p=1,tanh,residual:{conv:5,s=2,p=1,bias=0,batchnorm,tanh,conv:5,p=1,tanh},sigmoid,"
    "flatten,linear:5",
    "flatten,residual:{linear:98,tanh},linear:5",
    "flatten,residual:{linear:30,tanh},linear:5",
};

static void all_models(struct mr_device *dev, enum mr_dtype dtype, int tf32, double bound)
{
    struct mr_net_opts o;
    for (size_t i = 0; i < COUNT(models); i++)
        one_model(dev, options(models[i], dtype, tf32, 2, 7), bound);
    one_model(dev, options("linear:4,tanh,linear:5", dtype, tf32, 6, 1), bound);
    one_model(dev, options("mnist-cnn", dtype, tf32, 1, 12), bound);
    o = options("flatten,linear:5,logsoftmax", dtype, tf32, 2, 5);
    o.loss = MR_NLL;
    one_model(dev, o, bound);
    o = options("flatten,linear:5,tanh", dtype, tf32, 2, 5);
    o.loss = MR_MSE;
    one_model(dev, o, bound);
    o.model = "flatten,linear:5,softmax";
    one_model(dev, o, bound);
    o = options("conv:3,p=1", dtype, tf32, 2, 4);
    o.loss = MR_MSE;
    one_model(dev, o, bound);
    o = options("conv:3,tanh,flatten,linear:5", dtype, tf32, 3, 6);
    o.layout = MR_NHWC;
    one_model(dev, o, bound);
}

/* What runs as one kernel where its shape fits, beside neighbours of it that do not. */
static const struct {
    const char *model;
    uint32_t c, h;
} fused[] = {
    {"conv:5,relu,maxpool:2,dropout:0.4,flatten,linear:5", 2, 10}, /* 4 x 4 outputs */
    {"conv:33,k=1,tanh,maxpool:2,flatten,linear:5", 2, 8},
    {"conv:7,bias=0,tanh,maxpool:2,dropout:0.2,flatten,linear:9,relu,linear:5", 1, 14},
    {"conv:64,relu,maxpool:2,dropout:0.25,flatten,linear:5", 3, 6},
    {"conv:5,maxpool:2,dropout:0.4,flatten,linear:5", 2, 10},
    {"conv:5,relu,maxpool:2,dropout:0.4,2d,flatten,linear:5", 2,
     10}, /* not as one: draws of channels, */
    {"conv:5,relu,maxpool:2,dropout:0.4,flatten,linear:5", 2, 8}, /* 3 x 3 outputs, */
    {"conv:5,relu,maxpool:2,dropout:0.4,flatten,linear:5", 2, 7}, /* a row that no window covers, */
    {"conv:5,relu,avgpool:2,dropout:0.4,flatten,linear:5", 2, 10}, /* averages, */
    {"conv:5,gelu,maxpool:2,dropout:0.4,flatten,linear:5", 2, 10}, /* an activation of its own */
    {"flatten,linear:40,dropout:0.3,linear:7,relu,dropout:0.5,linear:5", 2, 5},
    {"conv:32,relu,flatten,linear:5", 1, 7},
    {"conv:64,s=2,p=1,tanh,conv:8,relu,flatten,linear:5", 1, 9},
    {"conv:32,p=2,bias=0,gelu,flatten,linear:5", 1, 5},
    {"conv:96,p=1,batchnorm,relu,flatten,linear:5", 1, 6},
    {"conv:32,relu,maxpool:2,dropout:0.3,flatten,linear:5", 1, 10},
    {"conv:1,p=1,tanh,conv:32,relu,flatten,linear:5", 2, 6}, /* one channel, but it wants dx */
    {"conv:40,relu,flatten,linear:5", 1, 7},                 /* no whole tiles of filters */
    {"conv:32,k=5,relu,flatten,linear:5", 1, 7},
    {"conv:32,s=2,p=1,tanh,flatten,linear:5", 1, 37}, /* lines of 19, in two runs */
    {"conv:32,p=1,tanh,flatten,linear:5", 1, 33},     /* of 33, in three */
    {"conv:8,tanh,conv:8,s=2,p=1,tanh,conv:16,k=5,p=2,tanh,flatten,linear:20,tanh,linear:5", 2,
     9}, /* patches added up */
};

static void fused_models(struct mr_device *dev, enum mr_dtype dtype, int tf32, double bound)
{
    for (size_t i = 0; i < COUNT(fused); i++)
        one_model(dev, options(fused[i].model, dtype, tf32, fused[i].c, fused[i].h), bound);
}

/* Of several strips, and of as many as there are at most: a whole batch, one that is smaller, one
 * sample. */
static void large_batches(struct mr_device *dev, struct mr_net_opts o, double bound)
{
    static const uint32_t sizes[] = {64, 63, 1};
    struct nets n;
    o.max_batch = 64;
    nets_open(&n, dev, &o);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct mr_net_batch far = batch_of(&n, true, sizes[i]),
                            near = batch_of(&n, false, sizes[i]);
        must(mr_net_train(n.net, &far, n.stream));
        must(mr_net_train(n.host, &near, n.host_stream));
        compare(&n, bound);
    }
    nets_close(&n);
}

/* Where two inputs of a window are the same but for rounding another one may win: of some hundred
 * windows, that shows. */
static void test_fused(struct mr_device *dev)
{
    static const struct {
        enum mr_dtype dtype;
        int tf32;
        double bound;
    } cases[] = {{MR_F32, 0, 1e-4}, {MR_F32, 1, 0.15}, {MR_BF16, 0, 0.3}, {MR_F16, 0, 0.15}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        fused_models(dev, cases[i].dtype, cases[i].tf32, cases[i].bound);
        large_batches(dev, options("mnist-cnn", cases[i].dtype, cases[i].tf32, 1, 28),
                      cases[i].bound);
        large_batches(dev,
                      options("conv:8,tanh,conv:8,tanh,flatten,linear:20,tanh,linear:5",
                              cases[i].dtype, cases[i].tf32, 2, 28),
                      cases[i].bound);
    }
}

/* Filters' gradients that are computed without patches, and shapes that just are not. The last
 * batches are too small for it. */
static const struct {
    const char *model;
    uint32_t c, h;
    uint32_t sizes[3];
} direct[] = {
    {"conv:64,tanh,flatten,linear:5", 32, 26, {300, 265, 100}}, /* more samples than shares */
    {"conv:64,p=1,tanh,flatten,linear:5", 32, 16, {264, 132, 131}},
    {"conv:64,p=2,bias=0,tanh,flatten,linear:5", 32, 14, {150, 133, 1}},
    {"conv:64,tanh,flatten,linear:5", 32, 18, {200, 140, 7}},  /* lines of 16, */
    {"conv:64,tanh,flatten,linear:5", 32, 48, {136, 132, 9}},  /* and of 46 */
    {"conv:64,tanh,flatten,linear:5", 32, 17, {140, 133, 5}},  /* not: lines of 15, */
    {"conv:64,tanh,flatten,linear:5", 32, 49, {132, 20, 5}},   /* and of 47 */
    {"conv:128,tanh,flatten,linear:5", 64, 18, {100, 67, 32}}, /* four tiles: 66 shares */
    {"conv:64,tanh,conv:64,p=1,tanh,flatten,linear:5", 3, 20, {90, 66, 65}}, /* with dx */
    {"conv:32,relu,conv:64,relu,maxpool:2,dropout:0.25,flatten,linear:5", 1, 28, {200, 140, 60}},
    {"conv:96,tanh,flatten,linear:5", 32, 18, {140, 133, 5}}, /* not: no whole tiles, */
    {"conv:64,tanh,flatten,linear:5", 48, 18, {140, 133, 5}},
    {"conv:64,k=5,p=1,tanh,flatten,linear:5", 32, 18, {140, 133, 5}}, /* other windows, */
    {"conv:64,s=2,p=1,tanh,flatten,linear:5", 32, 32, {140, 133, 5}}, /* strides */
    {"conv:64,p=3,tanh,flatten,linear:5", 32, 14, {140, 133, 5}},     /* and borders */
};

/* The same batch twice gives the same bits, and twice the gradient where it is added. */
static void same_bits(struct nets *n, struct mr_net_batch *b)
{
    float *first = grads_of(n);
    must(mr_net_train(n->net, b, n->stream));
    float *again = grads_of(n);
    check(memcmp(first, again, n->n_params * sizeof *first) == 0);
    b->accumulate = 1;
    must(mr_net_train(n->net, b, n->stream));
    free(again);
    again = grads_of(n);
    for (uint64_t i = 0; i < n->n_params; i++)
        first[i] *= 2;
    check(apart(again, first, n->n_params, 0) <= 1e-5);
    free(first);
    free(again);
}

static void test_direct(struct mr_device *dev)
{
    for (size_t i = 0; i < COUNT(direct); i++) {
        struct mr_net_opts o = options(direct[i].model, MR_F32, 0, direct[i].c, direct[i].h);
        struct nets n;
        o.max_batch = direct[i].sizes[0];
        nets_open(&n, dev, &o);
        for (size_t j = 0; j < COUNT(direct[i].sizes); j++) {
            struct mr_net_batch far = batch_of(&n, true, direct[i].sizes[j]),
                                near = batch_of(&n, false, direct[i].sizes[j]);
            must(mr_net_set_step(n.net, j, n.stream));
            must(mr_net_set_step(n.host, j, n.host_stream));
            must(mr_net_train(n.net, &far, n.stream));
            must(mr_net_train(n.host, &near, n.host_stream));
            compare(&n, 1e-4);
            if (strstr(n.o.model, "dropout"))
                continue;
            same_bits(&n, &far);
        }
        nets_close(&n);
    }
}

static void test_f32(struct mr_device *dev)
{
    all_models(dev, MR_F32, 0, 1e-4);
    one_model(dev, options("resnet20", MR_F32, 0, 3, 16),
              5e-3); /* 20 layers and their norms of 6 pictures amplify */
}

static void test_tf32(struct mr_device *dev)
{
    all_models(dev, MR_F32, 1, 0.05);
}

static void test_bf16(struct mr_device *dev)
{
    all_models(dev, MR_BF16, 0, 0.3);
}

static void test_f16(struct mr_device *dev)
{
    all_models(dev, MR_F16, 0, 0.05);
}

/* The same digits in every input type; labels of every type. */
static void test_inputs(struct mr_device *dev)
{
    struct nets n;
    struct mr_net_opts o = options("conv:8,relu,flatten,linear:5", MR_F32, 0, 3, 8);
    nets_open(&n, dev, &o);
    uint64_t count = BATCH * n.sample;
    unsigned char *bytes = malloc(count), small[BATCH];
    float *floats = malloc(count * sizeof *floats), *first = NULL;
    int64_t large[BATCH];
    check(bytes && floats);
    gpu_fill(bytes, count, 5);
    for (uint64_t i = 0; i < count; i++)
        floats[i] = (float)bytes[i] * (float)(1.0 / 255);
    for (int i = 0; i < BATCH; i++)
        large[i] = small[i] = (unsigned char)n.labels[i];
    void *far_bytes = upload(&n, bytes, count),
         *far_floats = upload(&n, floats, count * sizeof *floats);
    void *labels[] = {upload(&n, small, sizeof small),
                      upload(&n, n.labels, BATCH * sizeof *n.labels),
                      upload(&n, large, sizeof large)};
    const enum mr_dtype types[] = {MR_U8, MR_I32, MR_I64};
    for (int i = 0; i < 6; i++) {
        struct mr_net_batch b = {.size = sizeof b,
                                 .input = i < 3 ? far_bytes : far_floats,
                                 .input_dtype = i < 3 ? MR_U8 : MR_F32,
                                 .labels = labels[i % 3],
                                 .label_dtype = types[i % 3],
                                 .n = BATCH};
        must(mr_net_train(n.net, &b, n.stream));
        float *grads = grads_of(&n);
        if (first)
            check(memcmp(first, grads, n.n_params * sizeof *grads) == 0);
        if (first)
            free(grads);
        else
            first = grads;
    }
    free(first);
    free(bytes);
    free(floats);
    for (int i = 0; i < 3; i++)
        mr_memory_release(dev, MR_DEVICE, labels[i], NULL);
    mr_memory_release(dev, MR_DEVICE, far_bytes, NULL);
    mr_memory_release(dev, MR_DEVICE, far_floats, NULL);
    nets_close(&n);
}

/* Evaluation against the host's; bad labels are counted and left out. */
static void test_eval(struct mr_device *dev)
{
    struct nets n;
    struct mr_net_opts o =
        options("conv:3,batchnorm,relu,dropout:0.5,flatten,linear:5", MR_F32, 0, 2, 6);
    nets_open(&n, dev, &o);
    n.labels[1] = 5;
    n.labels[2] = -1;
    must(mr_copy_async(n.stream, n.far_labels, MR_DEVICE, n.labels, MR_PAGEABLE, sizeof n.labels));
    must(mr_stream_synchronize(n.stream));
    struct mr_net_batch far = batch_of(&n, true, 4), near = batch_of(&n, false, 4);
    const void *got, *want;
    must(mr_net_train(n.net, &far, n.stream));
    must(mr_net_train(n.host, &near, n.host_stream));
    compare(&n, 1e-4);
    must(mr_net_zero_totals(n.net, n.stream));
    must(mr_net_zero_totals(n.host, n.host_stream));
    must(mr_net_eval(n.net, &far, &got, n.stream));
    must(mr_net_eval(n.host, &near, &want, n.host_stream));
    float *outputs = fetch(&n, got, 20 * sizeof *outputs);
    check(apart(outputs, want, 20, 0) < 1e-4);
    free(outputs);
    same_totals(&n, 1e-4);
    struct mr_net_totals a = {.size = sizeof a}, b = {.size = sizeof b};
    must(mr_net_query_totals(n.net, n.stream, &a));
    must(mr_net_query_totals(n.host, n.host_stream, &b));
    check(a.n_right == b.n_right && a.n_bad_labels == 2 && a.n_samples == 2);
    nets_close(&n);
}

/* A NaN comes into a net: the step is known, and the layer found. */
static void test_not_finite(struct mr_device *dev)
{
    struct nets n;
    struct mr_net_opts o = options("flatten,linear:9,tanh,linear:5", MR_F32, 0, 2, 6);
    nets_open(&n, dev, &o);
    struct mr_net_batch far = batch_of(&n, true, BATCH);
    const char *what = "";
    const float nan = NAN;
    void *params, *grads, *low;
    for (int i = 0; i < 3; i++)
        must(mr_net_train(n.net, &far, n.stream));
    check(mr_net_find_bad(n.net, n.stream, &what) == -ENODATA);
    mr_net_flat(n.net, &params, &grads, &low);
    const struct mr_net_param *second = mr_net_param_get(n.net, 2);
    must(mr_copy_async(n.stream, (float *)params + second->offset, MR_DEVICE, &nan, MR_PAGEABLE,
                       sizeof nan));
    must(mr_net_train(n.net, &far, n.stream));
    must(mr_net_train(n.net, &far, n.stream));
    struct mr_net_totals t = {.size = sizeof t};
    must(mr_net_query_totals(n.net, n.stream, &t));
    check(t.n_not_finite == 2 && t.first_not_finite == 3);
    int layer = mr_net_find_bad(n.net, n.stream, &what);
    check(layer >= 0 && strcmp(mr_net_layer_get(n.net, (uint32_t)layer)->name, "fc2") == 0 &&
          strcmp(what, "parameters") == 0);
    nets_close(&n);
}

/* Batches whose patches do not fit into one part, and a last one that is smaller. */
static void test_parts(struct mr_device *dev)
{
    struct nets n;
    struct mr_net_opts o =
        options("conv:8,relu,conv:8,k=5,relu,avgpool:4,flatten,linear:5", MR_F32, 0, 1, 64);
    o.max_batch = 60;
    nets_open(&n, dev, &o);
    for (int i = 0; i < 2; i++) {
        struct mr_net_batch far = batch_of(&n, true, i ? 37 : 60),
                            near = batch_of(&n, false, i ? 37 : 60);
        must(mr_net_train(n.net, &far, n.stream));
        must(mr_net_train(n.host, &near, n.host_stream));
        compare(&n, 1e-4);
    }
    nets_close(&n);
}

static void test_refusals(struct mr_device *dev)
{
    struct mr_net *net = NULL;
    struct mr_net_opts o = options("mlp:7s", MR_F64, 0, 1, 4);
    check(mr_net_create(dev, &o, &net) == MR_EUNSUPPORTED && strstr(mr_last_error(), "f64"));
    o.dtype = MR_F32;
    must(mr_net_create(dev, &o, &net));
    struct mr_device *cpu;
    must(mr_device_open("cpu", &cpu));
    struct mr_stream *foreign = gpu_stream(cpu, "foreign");
    const float zero = 0;
    struct mr_net_batch b = {.size = sizeof b,
                             .input = &zero,
                             .labels = &zero,
                             .input_dtype = MR_F32,
                             .label_dtype = MR_I32,
                             .n = 1};
    check(mr_net_train(net, &b, NULL) == MR_EMISUSE &&
          mr_net_train(net, &b, foreign) == MR_EMISUSE);
    check(mr_net_zero_totals(net, NULL) == MR_EMISUSE &&
          mr_net_zero_totals(net, foreign) == MR_EMISUSE);
    mr_stream_destroy(foreign);
    mr_device_close(cpu);
    mr_net_destroy(net);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"refusals", test_refusals}, {"f32", test_f32},
        {"tf32", test_tf32},         {"bf16", test_bf16},
        {"f16", test_f16},           {"fused", test_fused},
        {"direct", test_direct},     {"inputs", test_inputs},
        {"eval", test_eval},         {"not finite", test_not_finite},
        {"parts", test_parts}};
    return nets_main(tests, COUNT(tests));
}
