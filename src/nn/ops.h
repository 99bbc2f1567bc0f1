/*
 * What layers are computed by: a backend's table. The net (net_run.c) knows shapes and which
 * buffers; a backend (cpu*.c for f32 and f64, cuda*.c) knows how. All buffers are the device's, all
 * calls enqueue (or compute at once on "cpu"). A product's activation is fused where a layer is
 * followed by one (`act`): backward gets y, the output after it.
 */
#ifndef MR_NN_OPS_H
#define MR_NN_OPS_H

#include "base/base.h"
#include "kernels/nn/nn.h"
#include <millrace/nn.h>

struct mr_nn_backend; /* the backend's own state: threads, handles, workspace, stream */

struct mr_nn_drop { /* dropout of vectors behind a layer, that the layer's backward undoes */
    uint64_t seed;
    uint32_t layer;
    double p;
    const void *dy; /* the gradient behind it */
};

struct mr_nn_linear { /* y[n, out] = act(x[n, in] w[out, in]^T + b[out]) */
    uint32_t n, in, out;
    enum mr_act act;
    const struct mr_nn_drop *drop; /* backward; NULL: dy is the gradient. Else dy is written only */
};

struct mr_nn_conv { /* cross-correlation, as PyTorch's; w[out, in, k, k] */
    uint32_t n, in, h, w, out, k, stride, pad, out_h, out_w;
    enum mr_act act;
};

struct mr_nn_pool {
    uint32_t n, c, h, w, k, stride, out_h, out_w;
    int average;
};

/* A pool of maxima behind a convolution, dropout (p 0: none) and flattening as one. */
struct mr_nn_pool_drop {
    struct mr_nn_pool pool;
    enum mr_act act; /* the convolution's */
    uint64_t seed;   /* of dropout, as are layer and p */
    uint32_t layer;
    double p;
};

struct mr_nn_norm { /* over n, h, w of each channel */
    uint32_t n, c, hw;
    double epsilon, momentum;
    enum mr_act act;
};

struct mr_nn_ops {
    /* Is this usable for these options, and if not, why (mr_error_set)? */
    int (*open)(struct mr_device *device, const struct mr_net_opts *opts,
                struct mr_nn_backend **out);
    void (*close)(struct mr_nn_backend *b);
    void (*use_stream)(struct mr_nn_backend *b, struct mr_stream *stream);
    /* Bytes of an activation's element: 2, 4 or 8. [out] out_layout: the layout that it wants
     * pictures in. */
    size_t (*element)(struct mr_nn_backend *b, enum mr_layout *out_layout);
    uint64_t (*memory)(
        const struct mr_nn_backend *b); /* bytes of the device's memory that it holds by now */
    const char *(*runs_on)(struct mr_nn_backend *b,
                           int product); /* product: 0 elementwise, 1 linear, 2 conv */

    /* Told before training, once for each shape that will come, so that algorithms are chosen and
     * workspace is taken. */
    int (*plan_conv)(struct mr_nn_backend *b, const struct mr_nn_conv *conv);

    int drops; /* linear_backward() knows l->drop */
    int (*linear_forward)(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                          const void *w, const void *bias, void *y);
    /* dy is overwritten with the gradient before the activation; dx NULL: not wanted; dw, db
     * (f32/f64 flat) are written, or added to with `accumulate`. */
    int (*linear_backward)(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                           const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                           int accumulate);
    int (*conv_forward)(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                        const void *w, const void *bias, void *y);
    int (*conv_backward)(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                         const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                         int accumulate);
    int (*pool_forward)(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                        void *y);
    int (*pool_backward)(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                         const void *dy, void *dx);
    /* fits NULL: a backend without. dx: the gradient before the activation; db: its sums by
     * channel, or NULL. */
    int (*pool_drop_fits)(const struct mr_nn_pool *p);
    int (*pool_drop_forward)(struct mr_nn_backend *b, const struct mr_nn_pool_drop *d,
                             const void *x, void *y);
    int (*pool_drop_backward)(struct mr_nn_backend *b, const struct mr_nn_pool_drop *d,
                              const void *x, const void *dy, void *dx, void *db, int accumulate);
    int (*norm_forward)(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                        const void *gamma, const void *beta, void *mean, void *var, void *saved,
                        int training, void *y);
    int (*norm_backward)(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                         const void *gamma, const void *saved, const void *y, void *dy, void *dx,
                         void *dgamma, void *dbeta, int accumulate);
    int (*act_forward)(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                       void *y);
    int (*act_backward)(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                        const void *y, const void *dy, void *dx);
    /* Philox keyed by (seed, layer) and counted by (step, element): nothing is stored, backward
     * draws again. Elements are numbered as NCHW lies, whatever the backend's layout: samples of c
     * x hw. per: elements that share a draw (hw for 2d dropout, else 1). */
    int (*dropout)(struct mr_nn_backend *b, uint64_t seed, uint32_t layer, double p, uint64_t count,
                   uint32_t c, uint32_t hw, uint32_t per, const void *x, void *y);
    int (*add)(struct mr_nn_backend *b, uint64_t count, const void *x, void *y); /* y += x */
    /* Softmax and log-softmax over `classes`, and their losses: adds to the totals; dx: gradient of
     * the mean loss with respect to the layer's input, times *loss_scale; NULL: not training.
     * labels NULL: only out. out: f32/f64 outputs, NULL: not wanted. */
    int (*softmax)(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int log, const void *x,
                   void *y);
    int (*softmax_backward)(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int log,
                            const void *y, const void *dy, void *dx);
    int (*loss)(struct mr_nn_backend *b, enum mr_loss loss, uint32_t n, uint32_t classes,
                const void *x, const void *labels, enum mr_dtype label_dtype,
                const float *loss_scale, void *dx, void *out);
    /* Batches into activations: u8 by 1/255, f32, f64, bf16, fp16; from the batch's layout into the
     * backend's own. */
    int (*input)(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw, enum mr_layout from,
                 const void *in, enum mr_dtype dtype, void *x);
    /* Of backends whose layout is NHWC: between it and NCHW, for flattening: y[n, c, hw] = x[n, hw,
     * c] with to_nchw, else back. */
    int (*permute)(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw, int to_nchw,
                   const void *x, void *y);
    /* Low precision alone, else NULL: the copy of the parameters that the products of a pass
     * read. */
    int (*refresh)(struct mr_nn_backend *b, uint64_t count, const void *params, void *low);
    int (*step_done)(struct mr_nn_backend *b); /* increments the step counter that dropout reads */
    int (*set_step)(struct mr_nn_backend *b, uint64_t step);
    /* fp16 alone, else NULL: mr_net_scaling() and mr_net_rescale(); count: of grads, f32. */
    void (*scaling)(struct mr_nn_backend *b, const float **loss_scale, const float **grad_scale,
                    const uint32_t **skip);
    int (*rescale)(struct mr_nn_backend *b, uint64_t count, const void *grads);
    int (*find_overflow)(struct mr_nn_backend *b, uint64_t count, const void *grads, float *found);
    int (*rescale_found)(struct mr_nn_backend *b, const float *found, uint32_t n_found);
    /* GPUs alone, else NULL. fork: `side` waits for all that is enqueued by now; join: the stream
     * of use_stream() waits for `side`. In a stream that is recorded they are edges of the
     * graph. */
    int (*fork_to)(struct mr_nn_backend *b, struct mr_stream *side);
    int (*join_from)(struct mr_nn_backend *b, struct mr_stream *side);
    int (*zero_totals)(struct mr_nn_backend *b);
    int (*get_totals)(struct mr_nn_backend *b, struct mr_net_totals *out);
    /* Where this total is, in the device's memory. */
    const uint64_t *(*n_not_finite)(const struct mr_nn_backend *b);
};

extern const struct mr_nn_ops mr_nn_cpu_f32, mr_nn_cpu_f64; /* cpu*.c */
extern const struct mr_nn_ops mr_nn_cuda;                   /* cuda*.c */

#endif
