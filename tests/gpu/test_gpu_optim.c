/* Optimizer steps on a GPU: against the host's, in graphs whose learning rate changes, with copies,
 * scales and skipped steps. */
#include "gpu.h"

#include <math.h>

/* Every kernel, with what the constants of a step can do. */
static const char *const all[] = {
    "sgd:lr=0.1,weight_decay=0.01",
    "momentum:lr=0.1,dampening=0.2,decoupled,weight_decay=0.1",
    "nesterov:lr=0.1",
    "adagrad:lr_decay=0.01,initial_accumulator_value=0.1",
    "adadelta:weight_decay=0.1",
    "rmsprop:clip_value=0.5",
    "rmsprop:momentum=0.9",
    "rmsprop:centered",
    "rmsprop:centered,momentum=0.5",
    "adam:maximize",
    "adamw:lr=0.01",
    "amsgrad:betas=0.9/0.5",
    "adamax",
    "nadam",
    "radam:betas=0.9/0.9",
    "lion",
};

struct arrays {
    struct mr_device *dev;
    struct mr_stream *stream;
    enum mr_dtype dtype;
    uint64_t n, bytes;
    void *host_p, *host_g, *p, *g; /* the last two on the device */
};

/* -1 .. 1, of both signs, some of them 0. */
static double value(uint64_t i, uint32_t seed)
{
    uint64_t x = (i * 7919 + seed * 104729ull + 12345) * 2654435761u;
    x = ((x ^ x >> 15) * 2246822519u) & 0xffffffff;
    return i % 97 == 5 ? 0 : (double)(x >> 12) / 524288 - 1;
}

static void fill(const struct arrays *a, void *out, uint32_t seed)
{
    for (uint64_t i = 0; i < a->n; i++)
        if (a->dtype == MR_F64)
            ((double *)out)[i] = value(i, seed);
        else
            ((float *)out)[i] = (float)value(i, seed);
}

static double at(const struct arrays *a, const void *values, uint64_t i)
{
    return a->dtype == MR_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static struct arrays arrays_make(struct mr_device *dev, enum mr_dtype dtype, uint64_t n)
{
    struct arrays a = {.dev = dev, .dtype = dtype, .n = n, .bytes = n * mr_dtype_size(dtype)};
    a.stream = gpu_stream(dev, "optim");
    check((a.host_p = malloc(a.bytes)) && (a.host_g = malloc(a.bytes)));
    a.p = gpu_take(dev, MR_DEVICE, a.bytes);
    a.g = gpu_take(dev, MR_DEVICE, a.bytes);
    fill(&a, a.host_p, 1);
    must(mr_copy_async(a.stream, a.p, MR_DEVICE, a.host_p, MR_PAGEABLE, a.bytes));
    return a;
}

static void arrays_free(struct arrays *a)
{
    mr_memory_release(a->dev, MR_DEVICE, a->p, NULL);
    mr_memory_release(a->dev, MR_DEVICE, a->g, NULL);
    mr_stream_destroy(a->stream);
    free(a->host_p);
    free(a->host_g);
}

static void next_grads(struct arrays *a, uint32_t t)
{
    fill(a, a->host_g, 100 + t);
    must(mr_copy_async(a->stream, a->g, MR_DEVICE, a->host_g, MR_PAGEABLE, a->bytes));
}

static void *fetch(const struct arrays *a, const void *from, uint64_t bytes)
{
    void *out = malloc(bytes);
    check(out);
    must(mr_copy_async(a->stream, out, MR_PAGEABLE, from, MR_DEVICE, bytes));
    must(mr_stream_synchronize(a->stream));
    return out;
}

/* Only the powers in a step's constants, and the order of the norm's sum, may differ. Parameters
 * are about 1. */
static void compare(const struct arrays *a, const char *what)
{
    void *got = fetch(a, a->p, a->bytes);
    double bound = a->dtype == MR_F64 ? 1e-11 : 1e-5, worst = 0;
    for (uint64_t i = 0; i < a->n; i++) {
        double want = at(a, a->host_p, i),
               error = fabs(at(a, got, i) - want) / fmax(fabs(want), 0.1);
        if (!(error <= bound)) {
            fprintf(stderr, "%s %s: [%llu] is %.17g, the host's %.17g\n", what,
                    mr_dtype_name(a->dtype), (unsigned long long)i, at(a, got, i), want);
            exit(1);
        }
        worst = fmax(worst, error);
    }
    printf("  %s %s: greatest error %.1e\n", what, mr_dtype_name(a->dtype), worst);
    free(got);
}

static struct mr_optim *make(struct mr_device *dev, const char *spec, enum mr_dtype dtype,
                             uint64_t n, const struct mr_optim_group *groups, uint32_t n_groups)
{
    struct mr_optim *o = NULL;
    must(mr_optim_create(dev, spec, dtype, n, groups, n_groups, &o));
    return o;
}

/* Groups begin at odd places, one is smaller than a vector, one larger than a grid's turn. */
static void one_against_host(struct mr_device *dev, const char *base, enum mr_dtype dtype,
                             uint64_t n)
{
    const struct mr_optim_group groups[] = {{0, 10001, NULL},
                                            {10002, 2, "lr=0.5"},
                                            {10005, 9993, "weight_decay=0.2"},
                                            {20000, n - 20001, NULL}};
    struct arrays a = arrays_make(dev, dtype, n);
    char spec[128];
    snprintf(spec, sizeof spec, "%s%cclip_norm=500,accumulate=2", base,
             strchr(base, ':') ? ',' : ':');
    struct mr_optim *host = make(NULL, spec, dtype, n, groups, COUNT(groups));
    struct mr_optim *there = make(dev, spec, dtype, n, groups, COUNT(groups));
    for (uint32_t t = 0; t < 6; t++) {
        next_grads(&a, t);
        must(mr_optim_step(host, a.host_p, a.host_g, NULL));
        must(mr_optim_step(there, a.p, a.g, a.stream));
    }
    compare(&a, base);
    uint64_t done = 0;
    double norm = 0, host_norm = 0;
    must(mr_optim_query_step(there, 3, a.stream, &done, &norm));
    must(mr_optim_query_step(host, 3, NULL, NULL, &host_norm));
    check(done == 3 && fabs(norm - host_norm) <= 1e-9 * host_norm);
    mr_optim_destroy(host);
    mr_optim_destroy(there);
    arrays_free(&a);
}

static void against_host(struct mr_device *dev)
{
    struct mr_optim *o = NULL;
    int rc = mr_optim_create(dev, "sgd", MR_F32, 10, NULL, 0, &o);
    mr_optim_destroy(o);
    if (rc == MR_EUNSUPPORTED) {
        printf("  no kernels for this GPU in this build: %s\n", mr_last_error());
        exit(GPU_SKIP);
    }
    for (size_t i = 0; i < COUNT(all); i++) {
        one_against_host(dev, all[i], MR_F32,
                         i % 10 ? 170003
                                : 20003 + LESS(5000000)); /* more than one turn of a grid */
        one_against_host(dev, all[i], MR_F64, 50003);
    }
}

/* Two runs of the same, and a run that was saved and loaded in the middle: equal bits. */
static void same_again(struct mr_device *dev)
{
    const uint64_t n = LESS(2000000) + 7;
    void *first = NULL;
    for (int run = 0; run < 3; run++) {
        struct arrays a = arrays_make(dev, MR_F32, n);
        struct mr_optim *o = make(dev, "nadam:clip_norm=100", MR_F32, n, NULL, 0);
        for (uint32_t t = 0; t < 6; t++) {
            next_grads(&a, t);
            must(mr_optim_step(o, a.p, a.g, a.stream));
            if (run < 2 || t != 3)
                continue;
            struct mr_optim *next = make(dev, "nadam:clip_norm=100", MR_F32, n, NULL, 0);
            for (uint32_t i = 0; i < mr_optim_state_count(o); i++) {
                enum mr_dtype dtype;
                uint64_t elements;
                check(mr_optim_state_data(o, i, &dtype, &elements));
                void *room = malloc(elements * mr_dtype_size(dtype));
                check(room);
                must(mr_optim_state_read(o, i, room, elements * mr_dtype_size(dtype), a.stream));
                must(
                    mr_optim_state_write(next, i, room, elements * mr_dtype_size(dtype), a.stream));
                free(room);
            }
            mr_optim_destroy(o);
            o = next;
        }
        void *got = fetch(&a, a.p, a.bytes);
        check(!first || memcmp(first, got, a.bytes) == 0);
        if (!first)
            first = got;
        else
            free(got);
        mr_optim_destroy(o);
        arrays_free(&a);
    }
    free(first);
}

/* One graph of a step: launched again it counts on, with the rate that was pushed. */
static void graphs(struct mr_device *dev)
{
    const uint64_t n = LESS(300000) + 1;
    static const char *const specs[] = {"adamw:clip_norm=50", "momentum", "radam:betas=0.9/0.9",
                                        "nadam"};
    for (size_t k = 0; k < COUNT(specs); k++) {
        struct arrays a = arrays_make(dev, MR_F32, n);
        struct mr_optim *host = make(NULL, specs[k], MR_F32, n, NULL, 0);
        struct mr_optim *there = make(dev, specs[k], MR_F32, n, NULL, 0);
        struct mr_graph *graph = NULL;
        next_grads(&a, 0);
        must(mr_optim_step(host, a.host_p, a.host_g, NULL));
        must(mr_optim_step(there, a.p, a.g, a.stream)); /* loads the kernels */
        must(mr_stream_synchronize(a.stream));
        must(mr_graph_begin(a.stream));
        must(mr_optim_step(there, a.p, a.g, a.stream));
        must(mr_graph_end(a.stream, &graph));
        for (uint32_t t = 1; t < 12; t++) {
            next_grads(&a, t);
            must(mr_optim_set_lr(host, 0, 0.03 / t));
            must(mr_optim_set_lr(there, 0, 0.03 / t));
            must(mr_optim_step(host, a.host_p, a.host_g, NULL));
            must(mr_optim_push(there, a.stream));
            must(mr_graph_launch(graph, a.stream));
        }
        compare(&a, specs[k]);
        uint64_t done = 0;
        must(mr_optim_query_step(there, 0, a.stream, &done, NULL));
        check(done == 12);
        mr_graph_destroy(graph);
        mr_optim_destroy(host);
        mr_optim_destroy(there);
        arrays_free(&a);
    }
}

/* Scale and skip are read by the kernel, when it runs, in steps of several calls, too; the copy is
 * the host's, bit for bit, where the parameters are. */
static void precision(struct mr_device *dev)
{
    const uint64_t n = LESS(1000000) + 3;
    for (int k = 0; k < 4; k++) {
        int half = k & 1;
        const char *spec = k < 2 ? "sgd:lr=0.125" : "sgd:lr=0.125,accumulate=2";
        struct arrays a = arrays_make(dev, MR_F32, n);
        struct mr_optim *host = make(NULL, spec, MR_F32, n, NULL, 0);
        struct mr_optim *there = make(dev, spec, MR_F32, n, NULL, 0);
        struct mr_optim_extra extra, host_extra;
        float host_scale = 1 / 1024.0f, *scale = gpu_take(dev, MR_DEVICE, sizeof *scale);
        uint32_t host_skip = 0, *skip = gpu_take(dev, MR_DEVICE, sizeof *skip);
        mr_optim_extra_init(there, &extra);
        extra.copy_dtype = half ? MR_F16 : MR_BF16;
        host_extra = extra;
        check((host_extra.copy = malloc(n * 2)));
        host_extra.grad_scale = &host_scale;
        host_extra.skip = &host_skip;
        extra.copy = gpu_take(dev, MR_DEVICE, n * 2);
        extra.grad_scale = scale;
        extra.skip = skip;
        must(mr_optim_attach(there, &extra));
        must(mr_optim_attach(host, &host_extra));
        for (uint32_t t = 0; t < 6; t++) {
            host_skip = t == 2;
            must(mr_copy_async(a.stream, scale, MR_DEVICE, &host_scale, MR_PAGEABLE,
                               sizeof host_scale));
            must(mr_copy_async(a.stream, skip, MR_DEVICE, &host_skip, MR_PAGEABLE,
                               sizeof host_skip));
            next_grads(&a, t);
            must(mr_optim_step(there, a.p, a.g, a.stream));
            must(mr_optim_step(host, a.host_p, a.host_g, NULL));
            must(mr_stream_synchronize(a.stream));
            host_scale *= 2;
        }
        void *p = fetch(&a, a.p, a.bytes), *copy = fetch(&a, extra.copy, n * 2);
        check(memcmp(p, a.host_p, a.bytes) == 0);
        check(memcmp(copy, host_extra.copy, n * 2) == 0);
        uint64_t done = 0;
        must(mr_optim_query_step(there, 0, a.stream, &done, NULL));
        check(done == (k < 2 ? 5 : 2));
        free(p);
        free(copy);
        free(host_extra.copy);
        mr_memory_release(dev, MR_DEVICE, extra.copy, NULL);
        mr_memory_release(dev, MR_DEVICE, scale, NULL);
        mr_memory_release(dev, MR_DEVICE, skip, NULL);
        mr_optim_destroy(host);
        mr_optim_destroy(there);
        arrays_free(&a);
    }
}

int main(void)
{
    static const struct gpu_test tests[] = {{"against_host", against_host},
                                            {"same_again", same_again},
                                            {"graphs", graphs},
                                            {"precision", precision}};
    return gpu_main(tests, COUNT(tests));
}
