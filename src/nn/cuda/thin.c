/*
 * Convolutions of one channel by 3 x 3, a net's first on grey pictures: a product of patches would
 * be 9 wide, and the patches nine times the input. Backward without dx alone: the first has none to
 * give.
 */
#include "nn/cuda/cuda.h"

#define STRIPS 512
#define SUMS   10
#define RUN    16 /* pixels, at most */

bool mr_nn_cuda_is_thin(const struct mr_nn_conv *c)
{
    return c->in == 1 && c->k == 3 && c->out % MR_NN_GPU_TILE == 0 && c->out <= MR_NN_GPU_THIN;
}

static struct mr_nn_gpu_thin thin_of(const struct mr_nn_conv *c, const void *x)
{
    return (struct mr_nn_gpu_thin){.x = x,
                                   .rows = c->n * c->out_h * c->out_w,
                                   .h = c->h,
                                   .w = c->w,
                                   .stride = c->stride,
                                   .pad = c->pad,
                                   .out_h = c->out_h,
                                   .out_w = c->out_w,
                                   .filters = c->out,
                                   .by_out_w = mr_nn_cuda_div_by(c->out_w),
                                   .by_out_h = mr_nn_cuda_div_by(c->out_h),
                                   .act = c->act};
}

int mr_nn_cuda_thin_forward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                            const void *w, const void *bias, void *y)
{
    struct mr_nn_gpu_thin a = thin_of(c, x);
    a.filter = w;
    a.bias = bias;
    a.out = y;
    uint64_t threads = (uint64_t)a.rows * c->out * b->element / 16;
    return mr_nn_cuda_launch(b, MR_NN_GPU_thin, mr_nn_cuda_blocks(threads), 1, &a);
}

int mr_nn_cuda_thin_backward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                             const void *y, const void *dy, void *dw, void *db, int accumulate)
{
    struct mr_nn_gpu_thin a = thin_of(c, x);
    a.y = y;
    a.dy = dy;
    a.dw = dw;
    a.db = db;
    a.partial = b->current.partial;
    a.accumulate = accumulate;
    a.run = (c->out_w - 1) / ((c->out_w - 1) / RUN + 1) + 1;
    a.runs = (c->out_w - 1) / a.run + 1;
    a.by_runs = mr_nn_cuda_div_by(a.runs);
    a.rows = c->n * c->out_h * a.runs;
    a.strip = (uint32_t)mr_round_up((a.rows - 1) / STRIPS + 1, MR_NN_GPU_BLOCK / MR_NN_GPU_TILE);
    a.strips = (a.rows - 1) / a.strip + 1;
    int rc = mr_nn_cuda_launch(b, MR_NN_GPU_thin_back, a.strips, c->out / MR_NN_GPU_TILE, &a);
    return rc ? rc
              : mr_nn_cuda_launch(b, MR_NN_GPU_thin_sum, 1, SUMS * c->out / MR_NN_GPU_THIN_SUMS,
                                  &a);
}
