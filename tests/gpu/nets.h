/* A net on a GPU beside the same one on the host: what the tests of nets share. */
#ifndef TESTS_GPU_NETS_H
#define TESTS_GPU_NETS_H

#include "gpu.h"

#include <stdbool.h>

#define BATCH 6

struct nets {
    struct mr_device *dev, *host_dev;
    struct mr_stream *stream, *host_stream;
    struct mr_net *net, *host; /* host: MR_F32 on cpu, from the same seed */
    struct mr_net_opts o;
    uint64_t sample, n_params;
    float *input;
    void *far_input, *far_labels, *far_targets;
    int32_t labels[300];
    float targets[64 * 64];
};

static bool no_library;

static inline float noise(uint64_t i)
{
    const uint32_t key[2] = {1, 2};
    uint32_t r[4];
    mr_philox((uint32_t[]){(uint32_t)i, 7, 7, 7}, key, r);
    return (float)((r[0] / 4294967296.0 - 0.5) * 2);
}

static inline struct mr_net_opts options(const char *model, enum mr_dtype dtype, int tf32,
                                         uint32_t c, uint32_t h)
{
    struct mr_net_opts o;
    mr_net_opts_init(&o);
    o.model = model;
    o.channels = c;
    o.height = o.width = h;
    o.classes = 5;
    o.dtype = dtype;
    o.tf32 = tf32;
    o.max_batch = BATCH;
    o.seed = 3;
    return o;
}

/* Without the library a net is refused, and the error names what to do. */
static inline void test_library(struct mr_device *dev)
{
    struct mr_net *net = NULL;
    struct mr_net_opts o = options("mlp:7s", MR_F32, 0, 1, 4);
    int rc = mr_net_create(dev, &o, &net);
    if (rc == MR_EUNSUPPORTED) {
        check(strstr(mr_last_error(), "MILLRACE_CUBLASLT") || strstr(mr_last_error(), "nvcc"));
        printf("  %s\n", mr_last_error());
        no_library = true;
        return;
    }
    must(rc);
    mr_net_destroy(net);
}

/* Runs the tests, or says that there is no library. */
static inline int nets_main(const struct gpu_test *tests, size_t n)
{
    static const struct gpu_test first[] = {{"library", test_library}};
    int code = gpu_main(first, 1);
    if (code)
        return code;
    if (no_library) {
        printf("SKIP: no cuBLASLt, or no kernels\n");
        return GPU_SKIP;
    }
    return gpu_main(tests, n);
}

static inline void *upload(struct nets *n, const void *from, uint64_t bytes)
{
    void *p = gpu_take(n->dev, MR_DEVICE, bytes);
    must(mr_copy_async(n->stream, p, MR_DEVICE, from, MR_PAGEABLE, bytes));
    must(mr_stream_synchronize(n->stream));
    return p;
}

static inline void *fetch(struct nets *n, const void *from, uint64_t bytes)
{
    void *out = malloc(bytes);
    check(out);
    must(mr_copy_async(n->stream, out, MR_PAGEABLE, from, MR_DEVICE, bytes));
    must(mr_stream_synchronize(n->stream));
    return out;
}

static inline void nets_open(struct nets *n, struct mr_device *dev, const struct mr_net_opts *o)
{
    memset(n, 0, sizeof *n);
    n->o = *o;
    n->dev = dev;
    n->stream = gpu_stream(dev, "nets");
    must(mr_device_open("cpu", &n->host_dev));
    n->host_stream = gpu_stream(n->host_dev, "host");
    struct mr_net_opts host = *o;
    host.dtype = MR_F32;
    must(mr_net_create(dev, o, &n->net));
    must(mr_net_create(n->host_dev, &host, &n->host));
    n->n_params = mr_net_n_params(n->net);
    n->sample = (uint64_t)o->channels * o->height * o->width;
    check(n->input = malloc(o->max_batch * n->sample * sizeof *n->input));
    for (uint64_t i = 0; i < o->max_batch * n->sample; i++)
        n->input[i] = noise(i);
    for (uint32_t i = 0; i < COUNT(n->labels); i++)
        n->labels[i] = (int32_t)(i % 5);
    for (uint32_t i = 0; i < COUNT(n->targets); i++)
        n->targets[i] = noise(i + 100000);
    n->far_input = upload(n, n->input, o->max_batch * n->sample * sizeof *n->input);
    n->far_labels = upload(n, n->labels, sizeof n->labels);
    n->far_targets = upload(n, n->targets, sizeof n->targets);
}

static inline void nets_close(struct nets *n)
{
    must(mr_stream_synchronize(n->stream));
    mr_net_destroy(n->net);
    mr_net_destroy(n->host);
    mr_memory_release(n->dev, MR_DEVICE, n->far_input, NULL);
    mr_memory_release(n->dev, MR_DEVICE, n->far_labels, NULL);
    mr_memory_release(n->dev, MR_DEVICE, n->far_targets, NULL);
    mr_stream_destroy(n->stream);
    mr_stream_destroy(n->host_stream);
    mr_device_close(n->host_dev);
    free(n->input);
}

static inline struct mr_net_batch batch_of(struct nets *n, bool far, uint32_t count)
{
    bool mse = n->o.loss == MR_MSE;
    const void *labels =
        mse ? (far ? n->far_targets : n->targets) : (far ? n->far_labels : (void *)n->labels);
    return (struct mr_net_batch){.size = sizeof(struct mr_net_batch),
                                 .input = far ? n->far_input : n->input,
                                 .input_dtype = MR_F32,
                                 .n = count,
                                 .labels = labels,
                                 .label_dtype = mse ? MR_F32 : MR_I32};
}

#endif
