/* Layers of nets on GPUs that work element by element, or by rows of classes. */
#include "kernels/nn/draw.h"
#include "nn/cuda/cuda.h"

static int over_elements(struct mr_nn_backend *b, enum mr_nn_gpu_kernel kernel, uint64_t count,
                         const void *args)
{
    return mr_nn_cuda_launch(b, kernel, mr_nn_cuda_blocks(count), 1, args);
}

int mr_nn_cuda_act_forward(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                           void *y)
{
    struct mr_nn_gpu_point a = {.x = x, .out = y, .count = count, .act = act};
    return over_elements(b, MR_NN_GPU_act_forward, count, &a);
}

int mr_nn_cuda_act_backward(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                            const void *y, const void *dy, void *dx)
{
    struct mr_nn_gpu_point a = {.x = x, .y = y, .dy = dy, .out = dx, .count = count, .act = act};
    return over_elements(b, MR_NN_GPU_act_backward, count, &a);
}

int mr_nn_cuda_dropout(struct mr_nn_backend *b, uint64_t seed, uint32_t layer, double p,
                       uint64_t count, uint32_t c, uint32_t hw, uint32_t per, const void *x,
                       void *y)
{
    struct mr_nn_gpu_dropout a = {.x = x,
                                  .out = y,
                                  .step = &b->state->step,
                                  .count = count,
                                  .key = mr_nn_draw_key(seed, layer),
                                  .c = c,
                                  .hw = hw,
                                  .per = per,
                                  .threshold = mr_nn_threshold(p),
                                  .keep = (float)(1 / (1 - p))};
    return over_elements(b, MR_NN_GPU_dropout, count, &a);
}

int mr_nn_cuda_add(struct mr_nn_backend *b, uint64_t count, const void *x, void *y)
{
    struct mr_nn_gpu_point a = {.x = x, .out = y, .count = count};
    return over_elements(b, MR_NN_GPU_add, count, &a);
}

static uint64_t blocks_of_rows(uint32_t n)
{
    return (n + 7ull) / (MR_NN_GPU_BLOCK / 32);
}

int mr_nn_cuda_softmax(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int log,
                       const void *x, void *y)
{
    struct mr_nn_gpu_softmax a = {.x = x, .out = y, .n = n, .classes = classes, .log = log};
    return mr_nn_cuda_launch(b, MR_NN_GPU_softmax, blocks_of_rows(n), 1, &a);
}

int mr_nn_cuda_softmax_backward(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int log,
                                const void *y, const void *dy, void *dx)
{
    struct mr_nn_gpu_softmax a = {
        .y = y, .dy = dy, .out = dx, .n = n, .classes = classes, .log = log};
    return mr_nn_cuda_launch(b, MR_NN_GPU_softmax_backward, blocks_of_rows(n), 1, &a);
}

int mr_nn_cuda_loss(struct mr_nn_backend *b, enum mr_loss loss, uint32_t n, uint32_t classes,
                    const void *x, const void *labels, enum mr_dtype label_dtype,
                    const float *loss_scale, void *dx, void *out)
{
    struct mr_nn_gpu_loss a = {.x = x,
                               .labels = labels,
                               .loss_scale = loss_scale,
                               .dx = dx,
                               .out = out,
                               .state = b->state,
                               .row = b->row_loss,
                               .flags = b->row_flags,
                               .n = n,
                               .classes = classes,
                               .mean_square = loss == MR_MSE,
                               .of_logs = loss == MR_NLL,
                               .label_dtype = (int32_t)label_dtype};
    return mr_nn_cuda_launch(b, MR_NN_GPU_loss, blocks_of_rows(n), 1, &a);
}

int mr_nn_cuda_input(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw,
                     enum mr_layout from, const void *in, enum mr_dtype dtype, void *x)
{
    uint64_t count = (uint64_t)n * c * hw;
    struct mr_nn_gpu_input a = {.in = in,
                                .out = x,
                                .count = count,
                                .c = c,
                                .hw = hw,
                                .dtype = (int32_t)dtype,
                                .from_nchw = from == MR_NCHW && c > 1 && hw > 1};
    return over_elements(b, MR_NN_GPU_input, count, &a);
}

int mr_nn_cuda_permute(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw, int to_nchw,
                       const void *x, void *y)
{
    uint64_t count = (uint64_t)n * c * hw;
    struct mr_nn_gpu_permute a = {
        .x = x, .out = y, .count = count, .c = c, .hw = hw, .to_nchw = to_nchw};
    return over_elements(b, MR_NN_GPU_permute, count, &a);
}

int mr_nn_cuda_refresh(struct mr_nn_backend *b, uint64_t count, const void *params, void *low)
{
    struct mr_nn_gpu_cast a = {.x = params, .out = low, .count = count};
    return over_elements(b, MR_NN_GPU_cast, count, &a);
}
