/*
 * The modules "nn_f32", "nn_bf16" and "nn_f16": layers of nets on GPUs, but for matrix products,
 * which are cuBLASLt's. They are one image with the same kernels for three types of activations;
 * arithmetic is in f32. nn/cuda launches them and says with what grid.
 *
 * Images are NHWC: an activation is rows of c elements, a row per pixel. Blocks have 256 threads.
 * The shapes alone decide in which order sums are added: within strips of rows, then strip after
 * strip by the block that ends last. Tickets tell which block that is; they are 0 before and after.
 */
#ifndef MR_KERNELS_NN_NN_H
#define MR_KERNELS_NN_NN_H

#include "base/private.h"
#include "kernels/kernels.h"
#include <millrace/tensor.h>

#define MR_NN_GPU_BLOCK      256
#define MR_NN_GPU_TILE       32  /* columns of a strip's block */
#define MR_NN_GPU_STRIPS     256 /* at most */
#define MR_NN_GPU_TILES      32768
#define MR_NN_GPU_THIN       256 /* filters of a thin convolution, at most */
#define MR_NN_GPU_THIN_SUMS  8   /* a block's, of its backward */
/* Of a block of conv3_dw, whose shared memory they fill: filters, channels, pixels of an output
 * line at most. */
#define MR_NN_GPU_CONV3_OUT  64
#define MR_NN_GPU_CONV3_IN   32
#define MR_NN_GPU_CONV3_LINE 46

/* name, arguments: "nn_<name>_<type>" */
#define MR_NN_GPU_KERNELS(X)                                                                       \
    X(input, mr_nn_gpu_input)                                                                      \
    X(act_forward, mr_nn_gpu_point)                                                                \
    X(act_backward, mr_nn_gpu_point)                                                               \
    X(bias_act, mr_nn_gpu_rows)                                                                    \
    X(undo, mr_nn_gpu_rows)                                                                        \
    X(dropout, mr_nn_gpu_dropout)                                                                  \
    X(pool_forward, mr_nn_gpu_pool)                                                                \
    X(pool_scatter, mr_nn_gpu_pool)                                                                \
    X(pool_gather, mr_nn_gpu_pool)                                                                 \
    X(pool_drop, mr_nn_gpu_pool_drop)                                                              \
    X(pool_drop_back, mr_nn_gpu_pool_drop)                                                         \
    X(norm_stats, mr_nn_gpu_norm)                                                                  \
    X(norm_apply, mr_nn_gpu_norm)                                                                  \
    X(norm_sums, mr_nn_gpu_norm)                                                                   \
    X(norm_dx, mr_nn_gpu_norm)                                                                     \
    X(add, mr_nn_gpu_point)                                                                        \
    X(softmax, mr_nn_gpu_softmax)                                                                  \
    X(softmax_backward, mr_nn_gpu_softmax)                                                         \
    X(loss, mr_nn_gpu_loss)                                                                        \
    X(permute, mr_nn_gpu_permute)                                                                  \
    X(im2col, mr_nn_gpu_cols)                                                                      \
    X(col2im, mr_nn_gpu_cols)                                                                      \
    X(thin, mr_nn_gpu_thin)                                                                        \
    X(thin_back, mr_nn_gpu_thin)                                                                   \
    X(thin_sum, mr_nn_gpu_thin)                                                                    \
    X(conv3_dw, mr_nn_gpu_conv3)                                                                   \
    X(conv3_sum, mr_nn_gpu_conv3)                                                                  \
    X(filter, mr_nn_gpu_filter)                                                                    \
    X(unfilter, mr_nn_gpu_filter)                                                                  \
    X(gemm, mr_nn_gpu_gemm)                                                                        \
    X(cast, mr_nn_gpu_cast)                                                                        \
    X(control, mr_nn_gpu_control)                                                                  \
    X(rescale, mr_nn_gpu_rescale)

enum mr_nn_gpu_kernel {
#define X(name, args) MR_NN_GPU_##name,
    MR_NN_GPU_KERNELS(X)
#undef X
        MR_NN_GPU_N
};

/* The activation behind a layer, which its kernels compute as well. */
enum mr_act { MR_ACT_NONE, MR_ACT_RELU, MR_ACT_SIGMOID, MR_ACT_TANH, MR_ACT_GELU };

/* As struct mr_net_totals of millrace/nn.h. */
struct mr_nn_gpu_totals {
    double loss;
    uint64_t n_right, n_samples, n_bad_labels, n_not_finite, first_not_finite;
};

/* Kept in the device's memory between steps. */
struct mr_nn_gpu_state {
    struct mr_nn_gpu_totals totals;
    uint64_t step;
    float scale, inverse; /* fp16's loss scale; 1 / that of the last pass */
    uint32_t skip, good;  /* good: steps in a row without an overflow */
    uint32_t found, ticket_loss, ticket_rescale, unused;
    uint32_t ticket[2][MR_NN_GPU_TILES]; /* of the stream, and of the one beside it */
};

/* n / d of n < 2^31 by a multiplication: (high half of n * mul + n) >> shift. */
struct mr_nn_div {
    uint32_t d, mul, shift;
};

struct mr_nn_gpu_input { /* out[n, hw, c] */
    const void *in;
    void *out;
    uint64_t count;
    uint32_t c, hw;
    int32_t dtype, from_nchw;
};

struct mr_nn_gpu_point { /* act_forward, act_backward, add */
    const void *x, *y, *dy;
    void *out;
    uint64_t count;
    int32_t act;
};

struct mr_nn_gpu_sums {  /* of columns, f32 */
    float *to, *partial; /* to NULL: not wanted. partial: [strip][column] */
    uint32_t *ticket;    /* one a tile of columns */
    int32_t accumulate;
};

/* bias_act: y = act(y + bias). undo: dy *= act'(y), db = the columns' sums. */
struct mr_nn_gpu_rows {
    const void *y;
    void *dy; /* bias_act: y itself */
    const void *bias;
    struct mr_nn_gpu_sums db;
    const void *behind; /* undo: the gradient behind dropout, which is read instead of dy; NULL: no
                           dropout */
    const uint64_t *step;
    uint64_t key;
    uint32_t threshold;
    float keep;
    uint32_t rows, cols, strip; /* strip: rows of one */
    int32_t act;
};

struct mr_nn_gpu_dropout {
    const void *x;
    void *out;
    const uint64_t *step;
    uint64_t count, key;
    uint32_t c, hw, per; /* draws are numbered in NCHW order */
    uint32_t threshold;
    float keep;
};

struct mr_nn_gpu_pool {
    const void *x, *dy;
    void *out;
    uint64_t count;
    uint32_t c, h, w, k, stride, out_h, out_w;
    int32_t average;
};

/*
 * Largest of 2 x 2, dropout and flattening as one: flat[n, c, pixel] from x[n, h, w, c]; back: dx
 * from dy[n, c, pixel], through x's activation, with its sums by channel. A thread makes a quad: 4
 * neighbours of `flat`, whose draws come together. Rows of strips are quads of all channels.
 */
struct mr_nn_gpu_pool_drop {
    const void *x, *dy;
    void *out;
    const uint64_t *step;
    struct mr_nn_gpu_sums db;
    uint64_t key;
    uint32_t rows, strip, quads; /* quads: of a sample's channel */
    uint32_t c, h, w, out_w, threshold;
    float keep;
    int32_t act;
};

struct mr_nn_gpu_norm {
    const void *x, *y;
    void *dy, *out; /* out: y forward, dx backward */
    const float *gamma, *beta;
    float *mean, *var, *saved, *dgamma, *dbeta;
    float *sums;     /* of backward: [c] sums, [c] dots, each by the count */
    double *partial; /* [strip][3][c] */
    uint32_t *ticket;
    double epsilon, momentum;
    uint32_t rows, cols, strip;
    int32_t act, training, accumulate;
};

struct mr_nn_gpu_softmax {
    const void *x, *y, *dy; /* backward: y and dy */
    void *out;
    uint32_t n, classes;
    int32_t log;
};

struct mr_nn_gpu_loss {
    const void *x, *labels;
    const float *loss_scale;
    void *dx;
    float *out;
    struct mr_nn_gpu_state *state;
    double *row;     /* [n] losses */
    uint32_t *flags; /* [n] 1: right, 2: bad label */
    uint32_t n, classes;
    int32_t mean_square, of_logs; /* MR_MSE; MR_NLL; neither: cross entropy */
    int32_t label_dtype;
};

struct mr_nn_gpu_permute { /* y[n, c, hw] = x[n, hw, c], or back */
    const void *x;
    void *out;
    uint64_t count;
    uint32_t c, hw;
    int32_t to_nchw;
};

/*
 * im2col: cols[pixel][patch], the patch in order ky, kx, channel, then zeros up to `patch` (a
 * multiple of 8). col2im adds each pixel's up again, in order. Both move `width` elements at once
 * (1, or 16 bytes of them): channels and patch are then in such units.
 */
struct mr_nn_gpu_cols {
    const void *x;
    void *out;
    uint32_t count; /* units of the output */
    uint32_t h, w, k, pad, stride, out_h, out_w;
    uint32_t channels, patch; /* in units */
    struct mr_nn_div by_patch, by_channels, by_k, by_out_w, by_out_h, by_w, by_h, by_stride;
    int32_t wide;
};

/* A convolution of one channel by 3 x 3, without patches. back: sums of strips of runs, which are
 * parts of the output's lines: the taps', then the bias'; sum: of the strips. */
struct mr_nn_gpu_thin {
    const void *x, *filter, *bias, *y, *dy;
    void *out;                    /* y forward */
    float *partial;               /* [strip][10][filters] */
    float *dw, *db;               /* db NULL: not wanted */
    uint32_t rows, strip, strips; /* rows: pixels forward, runs backward */
    uint32_t run, runs;           /* pixels of one; of a line */
    uint32_t h, w, stride, pad, out_h, out_w, filters;
    struct mr_nn_div by_out_w, by_out_h, by_runs;
    int32_t act, accumulate;
};

/* The filters' gradient of a convolution by 3 x 3 with stride 1. dw: of shares of the samples; sum:
 * of the shares. f32 alone. */
struct mr_nn_gpu_conv3 {
    const float *x, *dy;
    float *partial; /* [share][out][tap][in] */
    float *dw;      /* OIHW */
    uint32_t n, h, w, in, out, pad, out_h, out_w, shares;
    int32_t accumulate;
};

struct mr_nn_gpu_filter { /* OIHW to [out][patch] and, of f32 gradients, back */
    const void *x;
    void *out;
    uint32_t n, in, kk, patch;
    int32_t accumulate;
};

struct mr_nn_gpu_gemm { /* d[m, n] = a b (+ d), for what cuBLASLt has no algorithm */
    const void *a, *b;
    void *d;
    uint64_t a_row, a_col, b_row, b_col, ldd;
    uint32_t m, n, k;
    int32_t d_f32, accumulate;
};

struct mr_nn_gpu_cast {
    const float *x;
    void *out;
    uint64_t count;
};

enum mr_nn_gpu_what {
    MR_NN_GPU_STEP_DONE,
    MR_NN_GPU_SET_STEP,
    MR_NN_GPU_ZERO_TOTALS,
    MR_NN_GPU_RESET
};

struct mr_nn_gpu_control {
    struct mr_nn_gpu_state *state;
    uint64_t step;
    int32_t what;
};

struct mr_nn_gpu_rescale {
    const float *grads;
    struct mr_nn_gpu_state *state;
    uint64_t count;
    float *out;         /* only says whether it found something: 1, else 0; NULL: it decides */
    const float *found; /* of n_found: what others found */
    uint32_t n_found;
};

enum mr_nn_gpu_type { MR_NN_GPU_F32, MR_NN_GPU_BF16, MR_NN_GPU_F16, MR_NN_GPU_TYPES };

/* Kernels by enum mr_nn_gpu_kernel. */
extern MR_PRIVATE const struct mr_kernel_module mr_nn_modules[MR_NN_GPU_TYPES];

#endif
