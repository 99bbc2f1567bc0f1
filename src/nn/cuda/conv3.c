/*
 * Gradients of the filters of 3 x 3 convolutions in f32, without patches: those of a large batch
 * are not kept since the forward pass, and making them again takes as long as half the product. It
 * takes shares x tiles that fill at least half of an H100, also of few samples with many channels.
 * Measured with mnist-cnn alone, on an H100.
 */
#include "nn/cuda/cuda.h"

#define MOST_BLOCKS  264 /* two on each multiprocessor of an H100 or H200, all at once */
#define LEAST_BLOCKS (MOST_BLOCKS / 2)
#define LEAST_LINE   16 /* pixels: shorter ones end before the next ones are there */

static uint64_t tiles_of(const struct mr_nn_conv *c)
{
    return (uint64_t)c->out / MR_NN_GPU_CONV3_OUT * (c->in / MR_NN_GPU_CONV3_IN);
}

uint32_t mr_nn_cuda_conv3_shares(const struct mr_nn_backend *b, const struct mr_nn_conv *c)
{
    bool fits = b->dtype == MR_F32 && !b->tf32 && c->k == 3 && c->stride == 1 && c->pad <= 2 &&
                c->in >= MR_NN_GPU_CONV3_IN && c->in % MR_NN_GPU_CONV3_IN == 0 &&
                c->out >= MR_NN_GPU_CONV3_OUT && c->out % MR_NN_GPU_CONV3_OUT == 0 &&
                c->out_w >= LEAST_LINE && c->out_w <= MR_NN_GPU_CONV3_LINE;
    uint64_t tiles = fits ? tiles_of(c) : 0;
    if (tiles < 1 || tiles > MOST_BLOCKS)
        return 0;
    uint32_t shares = (uint32_t)MR_MIN(c->n, MOST_BLOCKS / tiles);
    return shares * tiles >= LEAST_BLOCKS ? shares : 0;
}

int mr_nn_cuda_conv3_dw(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                        const void *dy, void *dw, int accumulate)
{
    _Static_assert((uint64_t)MOST_BLOCKS * MR_NN_GPU_CONV3_OUT * MR_NN_GPU_CONV3_IN * 9 *
                           sizeof(float) <=
                       MR_NN_LT_WORKSPACE,
                   "the shares' sums are in cuBLASLt's workspace");
    struct mr_nn_gpu_conv3 a = {.x = x,
                                .dy = dy,
                                .dw = dw,
                                .partial = b->current.workspace,
                                .n = c->n,
                                .h = c->h,
                                .w = c->w,
                                .in = c->in,
                                .out = c->out,
                                .pad = c->pad,
                                .out_h = c->out_h,
                                .out_w = c->out_w,
                                .shares = mr_nn_cuda_conv3_shares(b, c),
                                .accumulate = accumulate};
    int rc = mr_nn_cuda_launch(b, MR_NN_GPU_conv3_dw, a.shares, (uint32_t)tiles_of(c), &a);
    return rc ? rc
              : mr_nn_cuda_launch(b, MR_NN_GPU_conv3_sum,
                                  mr_nn_cuda_blocks((uint64_t)c->out * c->in * 9), 1, &a);
}
