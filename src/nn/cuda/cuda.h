/*
 * The backend of NVIDIA GPUs. Pictures are NHWC in every precision: a convolution is then one
 * product of a matrix of patches (im2col) with the filters, whose result lies as the next layer
 * wants it and whose bias and ReLU cuBLASLt does in passing. So nets need cuBLASLt alone.
 *
 * Everything is enqueued to the stream of use_stream; memory is taken when a net is opened and
 * planned, never in a step. The scratch is one for all layers: the stream's order keeps them apart.
 * Gradients of weights, which no other layer waits for, are computed in a second stream (aside),
 * beside the gradients of inputs; it joins the first when the pass ends.
 */
#ifndef MR_NN_CUDA_CUDA_H
#define MR_NN_CUDA_CUDA_H

#include "device/cuda/cuda.h"
#include "kernels/nn/nn.h"
#include "nn/ops.h"

#define MR_NN_LT_WORKSPACE (32ull << 20)
#define MR_NN_MOST_SUMS    (1u << 20) /* strips times columns */

struct mr_nn_lt;

/* A convolution of the net, identified in a step by the address of its weights. */
struct mr_nn_cuda_conv {
    struct mr_nn_conv shape; /* n: the largest batch */
    const void *w;           /* NULL: not seen yet */
    /* the weights as the product reads them, of the last forward; NULL: as they are */
    void *filter;
    /* patches of the last forward; NULL: they would be too large, or x is the patches */
    void *cols;
};

/* Where work is enqueued, and what works of one stream share. */
struct mr_nn_cuda_stream {
    struct mr_stream *stream;
    struct CUstream_st *raw; /* its handle */
    void *workspace;         /* of cuBLASLt */
    void *partial;           /* sums of strips */
    uint32_t *ticket;
};

struct mr_nn_backend {
    struct mr_device *device;
    struct mr_cuda *cuda;
    uint64_t bytes;                          /* acquired by now */
    struct mr_nn_cuda_stream current, other; /* what is enqueued goes to `current` */
    struct CUevent_st *fork, *join;
    bool aside,
        forked; /* aside: current is the second stream; forked: the first must wait for it */
    enum mr_dtype dtype;
    size_t element;
    int tf32;
    uint32_t max_batch;
    char runs_on[3][48];
    const struct mr_kernel_module *kernels; /* those of dtype */
    struct mr_nn_lt *lt;
    struct mr_nn_gpu_state *state; /* all that follows: in the device's memory */
    float *sums;                   /* of a norm's backward */
    double *row_loss;
    uint32_t *row_flags;
    void *scratch; /* patches, or their gradients */
    uint64_t scratch_bytes;
    void *dfilter; /* a filter's gradient as the product leaves it, f32 */
    uint64_t dfilter_bytes, kept_bytes;
    struct mr_nn_cuda_conv *conv;
    uint32_t n_convs;
    uint64_t room_convs;
};

/* enqueue.c. blocks in x and y; args: what the kernel's header says. */
int mr_nn_cuda_launch(struct mr_nn_backend *b, enum mr_nn_gpu_kernel kernel, uint64_t blocks_x,
                      uint32_t blocks_y, const void *args);
/* Blocks for so many elements, a thread one or more of them. */
uint64_t mr_nn_cuda_blocks(uint64_t elements);
int mr_nn_cuda_acquire(struct mr_nn_backend *b, uint64_t bytes, void **out);
void mr_nn_cuda_release(struct mr_nn_backend *b, void *p);

/* From here to mr_nn_cuda_back() work is enqueued beside the stream: it starts when what is in the
 * stream by now is done. */
int mr_nn_cuda_aside(struct mr_nn_backend *b);
void mr_nn_cuda_back(struct mr_nn_backend *b);
/* What is enqueued from here on waits for all that runs beside. */
int mr_nn_cuda_join(struct mr_nn_backend *b);
/* See mr_nn_ops. */
int mr_nn_cuda_fork_to(struct mr_nn_backend *b, struct mr_stream *side);
int mr_nn_cuda_join_from(struct mr_nn_backend *b, struct mr_stream *side);

/* Rows in strips whose sums are added up. Returns how many; [out] strip: rows of one. */
uint32_t mr_nn_cuda_strips(uint32_t rows, uint32_t cols, uint32_t *out_strip);
/* dy *= act'(y), or dy = undropped drop->dy * act'(y); db: its sums by column, or NULL. */
int mr_nn_cuda_undo(struct mr_nn_backend *b, enum mr_act act, const struct mr_nn_drop *drop,
                    uint32_t rows, uint32_t cols, const void *y, void *dy, void *db,
                    int accumulate);

/*
 * d[m, n] = act(a b + bias): row-major, a is m x k, or k x m with ta; b is k x n, or n x k with tb.
 * ld: elements of a stored row. d is in the activations' type, or f32.
 */
struct mr_nn_product {
    int ta, tb;
    uint32_t m, n, k, lda, ldb, ldd;
    int d_f32, accumulate; /* accumulate: onto d */
    enum mr_act act;
    const void *a, *b, *bias;
    void *d;
};
/* cuda_lt.c */
int mr_nn_lt_open(struct mr_nn_backend *b);
void mr_nn_lt_close(struct mr_nn_backend *b);
int mr_nn_cuda_product(struct mr_nn_backend *b, const struct mr_nn_product *p);

/* cuda_conv.c: hooks. */
int mr_nn_cuda_plan_conv(struct mr_nn_backend *b, const struct mr_nn_conv *conv);
int mr_nn_cuda_conv_forward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                            const void *w, const void *bias, void *y);
int mr_nn_cuda_conv_backward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                             const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                             int accumulate);
struct mr_nn_div mr_nn_cuda_div_by(uint32_t d);
void mr_nn_cuda_conv_close(struct mr_nn_backend *b);

/* cuda_thin.c: one channel by 3 x 3, without dx. */
bool mr_nn_cuda_is_thin(const struct mr_nn_conv *c);
int mr_nn_cuda_thin_forward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                            const void *w, const void *bias, void *y);
int mr_nn_cuda_thin_backward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                             const void *y, const void *dy, void *dw, void *db, int accumulate);

/* conv3.c: the filters' gradient of a convolution by 3 x 3, without patches. Shares of the samples
 * whose sums are added in order, by the shape alone; 0: it is not for this convolution. */
uint32_t mr_nn_cuda_conv3_shares(const struct mr_nn_backend *b, const struct mr_nn_conv *c);
int mr_nn_cuda_conv3_dw(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                        const void *dy, void *dw, int accumulate);

/* cuda_layers.c: the other layers. */
int mr_nn_cuda_linear_forward(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                              const void *w, const void *bias, void *y);
int mr_nn_cuda_linear_backward(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                               const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                               int accumulate);
int mr_nn_cuda_pool_forward(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                            void *y);
int mr_nn_cuda_pool_backward(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                             const void *dy, void *dx);
int mr_nn_cuda_pool_drop_fits(const struct mr_nn_pool *p);
int mr_nn_cuda_pool_drop_forward(struct mr_nn_backend *b, const struct mr_nn_pool_drop *d,
                                 const void *x, void *y);
int mr_nn_cuda_pool_drop_backward(struct mr_nn_backend *b, const struct mr_nn_pool_drop *d,
                                  const void *x, const void *dy, void *dx, void *db,
                                  int accumulate);
int mr_nn_cuda_norm_forward(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                            const void *gamma, const void *beta, void *mean, void *var, void *saved,
                            int training, void *y);
int mr_nn_cuda_norm_backward(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                             const void *gamma, const void *saved, const void *y, void *dy,
                             void *dx, void *dgamma, void *dbeta, int accumulate);

/* cuda_point.c: what works element by element or by rows of classes. */
int mr_nn_cuda_act_forward(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                           void *y);
int mr_nn_cuda_act_backward(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                            const void *y, const void *dy, void *dx);
int mr_nn_cuda_dropout(struct mr_nn_backend *b, uint64_t seed, uint32_t layer, double p,
                       uint64_t count, uint32_t c, uint32_t hw, uint32_t per, const void *x,
                       void *y);
int mr_nn_cuda_add(struct mr_nn_backend *b, uint64_t count, const void *x, void *y);
int mr_nn_cuda_softmax(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int log,
                       const void *x, void *y);
int mr_nn_cuda_softmax_backward(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int log,
                                const void *y, const void *dy, void *dx);
int mr_nn_cuda_loss(struct mr_nn_backend *b, enum mr_loss loss, uint32_t n, uint32_t classes,
                    const void *x, const void *labels, enum mr_dtype label_dtype,
                    const float *loss_scale, void *dx, void *out);
int mr_nn_cuda_input(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw,
                     enum mr_layout from, const void *in, enum mr_dtype dtype, void *x);
int mr_nn_cuda_permute(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw, int to_nchw,
                       const void *x, void *y);
int mr_nn_cuda_refresh(struct mr_nn_backend *b, uint64_t count, const void *params, void *low);

#endif
