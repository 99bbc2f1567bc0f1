/* Nets on NVIDIA GPUs: opening and closing, control of the step, and the vtable. */
#include "nn/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

static void use_stream(struct mr_nn_backend *b, struct mr_stream *stream)
{
    const struct cuda_stream *s = stream->state;
    b->current.stream = stream;
    b->current.raw = s->handle;
}

static int load_kernels(struct mr_nn_backend *b)
{
    enum mr_nn_gpu_type type = b->dtype == MR_F32    ? MR_NN_GPU_F32
                               : b->dtype == MR_BF16 ? MR_NN_GPU_BF16
                                                     : MR_NN_GPU_F16;
    b->kernels = &mr_nn_modules[type];
    if (!b->kernels->image)
        return mr_error_set(MR_EUNSUPPORTED,
                            "net: %s: this build was made without nvcc and has no kernels of nets; "
                            "build it where nvcc is, or train on cpu",
                            b->cuda->name);
    return mr_device_load_kernels(b->device, b->kernels);
}

/* What this GPU can do of what is wanted. */
static int check(struct mr_nn_backend *b, const struct mr_net_opts *opts)
{
    const struct mr_cuda *c = b->cuda;
    int major = 0;
    if (opts->dtype != MR_F32 && opts->dtype != MR_BF16 && opts->dtype != MR_F16)
        return mr_error_set(MR_EUNSUPPORTED,
                            "net: cuda computes in f32, bf16 and f16; %s is for cpu",
                            mr_dtype_name(opts->dtype));
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                             c->device);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuDeviceGetAttribute(compute capability)");
    rc = mr_cuda_leave(c, rc);
    if (rc < 0)
        return rc;
    if (opts->dtype == MR_BF16 && major < 8)
        return mr_error_set(MR_EUNSUPPORTED,
                            "net: %s has no tensor cores for bf16 (compute capability %d; they "
                            "came with 8): use f16 or f32",
                            c->name, major);
    bool tf32 = opts->dtype == MR_F32 && opts->tf32 && major >= 8;
    b->tf32 = tf32;
    const char *how = tf32                     ? "tensor cores (tf32)"
                      : opts->dtype == MR_F32  ? "f32"
                      : opts->dtype == MR_BF16 ? "tensor cores (bf16)"
                      : major >= 7             ? "tensor cores (f16)"
                                               : "f16";
    snprintf(b->runs_on[0], sizeof b->runs_on[0], "own kernel");
    snprintf(b->runs_on[1], sizeof b->runs_on[1], "cuBLASLt, %s", how);
    snprintf(b->runs_on[2], sizeof b->runs_on[2], "cuBLASLt of patches, %s", how);
    return 0;
}

static int take_memory(struct mr_nn_backend *b)
{
    struct {
        uint64_t bytes;
        void **to;
    } wanted[] = {{sizeof *b->state, (void **)&b->state},
                  {MR_NN_LT_WORKSPACE, &b->current.workspace},
                  {MR_NN_LT_WORKSPACE, &b->other.workspace},
                  {3ull * sizeof(double) * MR_NN_MOST_SUMS, &b->current.partial},
                  {sizeof(float) * MR_NN_MOST_SUMS, &b->other.partial},
                  {2ull * sizeof(float) * MR_NN_MOST_SUMS, (void **)&b->sums},
                  {b->max_batch * sizeof(double), (void **)&b->row_loss},
                  {b->max_batch * sizeof(uint32_t), (void **)&b->row_flags}};
    int rc = 0;
    for (size_t i = 0; i < MR_COUNT(wanted) && !rc; i++)
        rc = mr_nn_cuda_acquire(b, wanted[i].bytes, wanted[i].to);
    if (rc)
        return rc;
    b->current.ticket = b->state->ticket[0];
    b->other.ticket = b->state->ticket[1];
    return 0;
}

static int open_beside(struct mr_nn_backend *b)
{
    const struct mr_cuda *c = b->cuda;
    int rc = mr_stream_create(b->device, "net beside", &b->other.stream);
    if (rc)
        return rc;
    const struct cuda_stream *s = b->other.stream->state;
    b->other.raw = s->handle;
    rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuEventCreate(&b->fork, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = c->cu->cuEventCreate(&b->join, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuEventCreate(of a net)");
    return mr_cuda_leave(c, rc);
}

/* First of all: what runs there uses the memory. */
static void close_beside(struct mr_nn_backend *b)
{
    mr_nn_cuda_back(b);
    mr_stream_destroy(b->other.stream);
    struct CUevent_st *const events[] = {b->fork, b->join};
    for (size_t i = 0; i < MR_COUNT(events); i++)
        if (events[i] && mr_cuda_enter_to_release(b->cuda) == 0) {
            b->cuda->cu->cuEventDestroy_v2(events[i]);
            mr_cuda_leave(b->cuda, 0);
        }
}

static int control(struct mr_nn_backend *b, enum mr_nn_gpu_what what, uint64_t step)
{
    struct mr_nn_gpu_control a = {.state = b->state, .step = step, .what = what};
    return mr_nn_cuda_launch(b, MR_NN_GPU_control, 1, 1, &a);
}

static int reset(struct mr_nn_backend *b)
{
    struct mr_stream *stream = NULL;
    int rc = mr_stream_create(b->device, "net open", &stream);
    if (rc)
        return rc;
    use_stream(b, stream);
    rc = mr_memset_async(stream, b->state, MR_DEVICE, 0, sizeof *b->state);
    if (!rc)
        rc = control(b, MR_NN_GPU_RESET, 0);
    if (!rc)
        rc = mr_stream_synchronize(stream);
    mr_stream_destroy(stream);
    b->current.stream = NULL;
    b->current.raw = NULL;
    return rc;
}

static void close_backend(struct mr_nn_backend *b)
{
    close_beside(b);
    mr_nn_lt_close(b);
    mr_nn_cuda_conv_close(b);
    void *const all[] = {b->state,           b->current.workspace, b->other.workspace,
                         b->current.partial, b->other.partial,     b->sums,
                         b->row_loss,        b->row_flags};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        mr_nn_cuda_release(b, all[i]);
    free(b);
}

static int open_backend(struct mr_device *device, const struct mr_net_opts *opts,
                        struct mr_nn_backend **out)
{
    if (device->ops != &mr_device_cuda)
        return mr_error_set(MR_EUNSUPPORTED, "net: nets run on cpu and cuda, not on %s",
                            device->ops->name);
    struct mr_nn_backend *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem("net", sizeof *b);
    b->device = device;
    b->cuda = device->state;
    b->dtype = opts->dtype;
    b->element = opts->dtype == MR_F32 ? 4 : 2;
    b->max_batch = opts->max_batch;
    int rc = check(b, opts);
    if (!rc)
        rc = mr_nn_lt_open(b);
    if (!rc)
        rc = load_kernels(b);
    if (!rc)
        rc = take_memory(b);
    if (!rc)
        rc = open_beside(b);
    if (!rc)
        rc = reset(b);
    if (rc) {
        close_backend(b);
        return rc;
    }
    *out = b;
    return 0;
}

static size_t element(struct mr_nn_backend *b, enum mr_layout *out_layout)
{
    *out_layout = MR_NHWC;
    return b->element;
}

static uint64_t memory(const struct mr_nn_backend *b)
{
    return b->bytes;
}

static const char *runs_on(struct mr_nn_backend *b, int product)
{
    return b->runs_on[product];
}

static int step_done(struct mr_nn_backend *b)
{
    int rc = mr_nn_cuda_join(b);
    return rc ? rc : control(b, MR_NN_GPU_STEP_DONE, 0);
}

static int set_step(struct mr_nn_backend *b, uint64_t step)
{
    return control(b, MR_NN_GPU_SET_STEP, step);
}

static int zero_totals(struct mr_nn_backend *b)
{
    return control(b, MR_NN_GPU_ZERO_TOTALS, 0);
}

static int get_totals(struct mr_nn_backend *b, struct mr_net_totals *out)
{
    struct mr_nn_gpu_totals now;
    int rc = mr_copy_async(b->current.stream, &now, MR_PAGEABLE, &b->state->totals, MR_DEVICE,
                           sizeof now);
    if (rc < 0)
        return rc;
    rc = mr_stream_synchronize(b->current.stream);
    if (rc < 0)
        return rc;
    *out = (struct mr_net_totals){.loss = now.loss,
                                  .n_right = now.n_right,
                                  .n_samples = now.n_samples,
                                  .n_bad_labels = now.n_bad_labels,
                                  .n_not_finite = now.n_not_finite,
                                  .first_not_finite = now.first_not_finite};
    return 0;
}

static const uint64_t *n_not_finite(const struct mr_nn_backend *b)
{
    return &b->state->totals.n_not_finite;
}

static void scaling(struct mr_nn_backend *b, const float **loss_scale, const float **grad_scale,
                    const uint32_t **skip)
{
    *loss_scale = &b->state->scale;
    *grad_scale = &b->state->inverse;
    *skip = &b->state->skip;
}

static int rescale(struct mr_nn_backend *b, uint64_t count, const void *grads)
{
    struct mr_nn_gpu_rescale a = {.grads = grads, .state = b->state, .count = count};
    return mr_nn_cuda_launch(b, MR_NN_GPU_rescale, MR_MIN(mr_nn_cuda_blocks(count), 512), 1, &a);
}

static int find_overflow(struct mr_nn_backend *b, uint64_t count, const void *grads, float *found)
{
    struct mr_nn_gpu_rescale a = {.grads = grads, .state = b->state, .count = count, .out = found};
    unsigned blocks = MR_MIN(mr_nn_cuda_blocks(count), 512);
    return mr_nn_cuda_launch(b, MR_NN_GPU_rescale, MR_MAX(blocks, 1), 1, &a);
}

static int rescale_found(struct mr_nn_backend *b, const float *found, uint32_t n_found)
{
    struct mr_nn_gpu_rescale a = {.state = b->state, .found = found, .n_found = n_found};
    return mr_nn_cuda_launch(b, MR_NN_GPU_rescale, 1, 1, &a);
}

const struct mr_nn_ops mr_nn_cuda = {
    .open = open_backend,
    .close = close_backend,
    .use_stream = use_stream,
    .element = element,
    .memory = memory,
    .runs_on = runs_on,
    .plan_conv = mr_nn_cuda_plan_conv,
    .drops = 1,
    .linear_forward = mr_nn_cuda_linear_forward,
    .linear_backward = mr_nn_cuda_linear_backward,
    .conv_forward = mr_nn_cuda_conv_forward,
    .conv_backward = mr_nn_cuda_conv_backward,
    .pool_forward = mr_nn_cuda_pool_forward,
    .pool_backward = mr_nn_cuda_pool_backward,
    .pool_drop_fits = mr_nn_cuda_pool_drop_fits,
    .pool_drop_forward = mr_nn_cuda_pool_drop_forward,
    .pool_drop_backward = mr_nn_cuda_pool_drop_backward,
    .norm_forward = mr_nn_cuda_norm_forward,
    .norm_backward = mr_nn_cuda_norm_backward,
    .act_forward = mr_nn_cuda_act_forward,
    .act_backward = mr_nn_cuda_act_backward,
    .dropout = mr_nn_cuda_dropout,
    .add = mr_nn_cuda_add,
    .softmax = mr_nn_cuda_softmax,
    .softmax_backward = mr_nn_cuda_softmax_backward,
    .loss = mr_nn_cuda_loss,
    .input = mr_nn_cuda_input,
    .permute = mr_nn_cuda_permute,
    .refresh = mr_nn_cuda_refresh,
    .step_done = step_done,
    .fork_to = mr_nn_cuda_fork_to,
    .join_from = mr_nn_cuda_join_from,
    .set_step = set_step,
    .scaling = scaling,
    .rescale = rescale,
    .find_overflow = find_overflow,
    .rescale_found = rescale_found,
    .zero_totals = zero_totals,
    .get_totals = get_totals,
    .n_not_finite = n_not_finite,
};
