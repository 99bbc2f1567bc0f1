/*
 * Small neural networks, trained natively: perceptrons and small convolutional networks. They test
 * the loader end to end and serve as a reference; larger networks belong in a framework.
 *
 *     struct mr_net_opts opts;
 *     mr_net_opts_init(&opts);
 *     opts.model = "mnist-cnn";
 *     opts.channels = 1;
 *     opts.height = opts.width = 28;
 *     opts.classes = 10;
 *     opts.max_batch = 64;
 *     mr_net_create(device, &opts, &net);
 *     mr_net_flat(net, &params, &grads, NULL);
 *     mr_net_train(net, &batch, stream);               // forward and backward
 *     mr_optim_step(optim, params, grads, stream);     // optim.h
 *
 * A net is a list of layers, written as text (docs/training.md), on one device, for batches up to a
 * maximum. All parameters are in one flat array and all gradients in another of the same layout;
 * optimizers work on these.
 *
 * Shapes: a sample is c x h x w (channels, rows, columns); a vector is c x 1 x 1. Batches are
 * [n,c,h,w] (NCHW) or [n,h,w,c] (NHWC). Parameters always have PyTorch's shapes. Outputs, and
 * targets of MR_MSE, are vectors; a net that ends in a picture is flattened in c, h, w order.
 * Precision: MR_F32; MR_F64 ("cpu" only, for tests); MR_BF16 and MR_F16 (CUDA): activations and
 * products in that type, parameters and gradients in f32.
 * Determinism: on "cpu" the same bits for any number of threads; on CUDA as cuBLASLt is.
 *
 * Threads: a net belongs to one thread at a time. On CUDA, calls that take a stream only enqueue
 * work, unless they say that they block. The stream must be of the net's device (else MR_EMISUSE);
 * on "cpu" it may be NULL. While a net computes on "cpu", the process's BLAS library is set to one
 * thread.
 * fork: a child has a copy of a net on "cpu", and computes in one thread; it cannot use those on
 * other devices (device.h).
 * Errors: MR_EOPTION (the model's text: which layer, what is wrong), MR_ESHAPE (the layer and both
 * shapes), MR_EUNSUPPORTED (which library is missing, and what needs it), MR_EDEVICE, -ENOMEM.
 */
#ifndef MILLRACE_NN_H
#define MILLRACE_NN_H

#include <millrace/device.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_net;

/* ---- create ---- */

enum mr_layout { MR_NCHW, MR_NHWC };
enum mr_loss { MR_CROSS_ENTROPY, MR_NLL, MR_MSE };

struct mr_net_opts {
    size_t size;            /* of this struct, set by mr_net_opts_init() */
    const char *model;      /* "mlp:100s", "mnist-cnn", "resnet20", ..., or a list of layers */
    uint32_t channels;      /* of a sample: 1 to 65,536; all three below 2^31 together */
    uint32_t height, width; /* of a sample, the same */
    uint32_t classes;       /* outputs of the built-in models: 1 to 2^20 */
    enum mr_loss loss;
    enum mr_layout layout; /* of the input batch */
    enum mr_dtype dtype;   /* MR_F32, MR_F64, MR_BF16, MR_F16 */
    int tf32;              /* CUDA, MR_F32: 1 (default): products by TF32 tensor cores */
    uint32_t max_batch;    /* samples of the largest batch: 1 to 2^20; sizes the activations */
    uint64_t seed;         /* of the initial parameters (as PyTorch draws them) and of dropout */
    uint32_t threads;      /* "cpu"; 0: all that this process may use */
};

/* Sets opts to the defaults. C and C++ call mr_net_opts_init(); see millrace.h. */
MR_API void mr_net_opts_fill(struct mr_net_opts *opts, size_t size);
static inline void mr_net_opts_init(struct mr_net_opts *opts)
{
    mr_net_opts_fill(opts, sizeof *opts);
}

/*
 * Creates a net and initializes its parameters. Blocks.
 * device: "cpu", "cuda", or "sim" (the host computes, in the time of the products at the device's
 * tflops=); it must outlive the net. opts: used only during this call.
 * [out] out: on success; free it with mr_net_destroy().
 * Returns 0, MR_EOPTION, MR_ESHAPE, MR_ELIMIT (too many layers, parameters or activations),
 * MR_EMISUSE (NULL, or a wrong opts.size), MR_EUNSUPPORTED, MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM.
 */
MR_API int mr_net_create(struct mr_device *device, const struct mr_net_opts *opts,
                         struct mr_net **out);

/* Frees a net. None of its work may be running on the device. NULL is allowed. */
MR_API void mr_net_destroy(struct mr_net *net);

/*
 * Runs a training pass over max_batch samples of zeros, so that libraries load kernels and select
 * algorithms now and not in the first step. Call it before the first pass. Blocks. Parameters,
 * running statistics, totals and random numbers stay as they were; gradients and the count of
 * passes are 0 afterwards.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_net_warm_up(struct mr_net *net, struct mr_stream *stream);

/* ---- train and evaluate ---- */

/* The input of a pass. All pointers are to the device's memory. */
struct mr_net_batch {
    size_t size; /* of this struct, set by the caller */
    /* [n, ...] in the net's layout and of input_dtype. MR_U8 values are scaled by 1/255. */
    const void *input;
    /* One class per sample, 0 to classes - 1; for MR_MSE targets, [n, outputs]. */
    const void *labels;
    enum mr_dtype input_dtype; /* MR_F32, MR_F64, MR_BF16, MR_F16, MR_U8 */
    enum mr_dtype label_dtype; /* MR_U8, MR_I32, MR_I64; for MR_MSE MR_F32, MR_F64 */
    uint32_t n;                /* samples: 1 to max_batch */
    int accumulate;            /* 1: add to the gradients; 0: overwrite them */
    /* 1: the low-precision copy already holds the parameters, because the optimizer writes it
     * (mr_optim_extra.copy). 0: the pass makes it. */
    int copied;
    const float *loss_scale; /* multiplies the loss before backward (fp16); NULL: 1 */
};

/*
 * Enqueues a training pass: forward, loss (mean over the batch), backward. It adds to the totals.
 * The net counts passes on the device, from 0; seed and count are the key of dropout, so each
 * launch of a recorded graph draws new numbers.
 * Returns 0, MR_ESHAPE (n or a dtype), MR_EMISUSE (no input or labels), MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_net_train(struct mr_net *net, const struct mr_net_batch *batch,
                        struct mr_stream *stream);

/*
 * Enqueues a forward pass without dropout, with batch-norm's running statistics. With batch->labels
 * it adds to the totals.
 * [out] outputs: [n, outputs] of the last layer in f32 (f64 for MR_F64), in the device's memory,
 * valid until the next pass; NULL: not wanted.
 * Returns 0, MR_ESHAPE, MR_EMISUSE (no input), MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_net_eval(struct mr_net *net, const struct mr_net_batch *batch, const void **outputs,
                       struct mr_stream *stream);

/* Sums over passes, kept in the device's memory since mr_net_zero_totals(). */
struct mr_net_totals {
    size_t size;               /* of this struct, set by the caller */
    double loss;               /* sum over samples */
    uint64_t n_right;          /* samples whose largest output is the label's */
    uint64_t n_samples;        /* with a label in range */
    uint64_t n_bad_labels;     /* out of range; left out of loss and gradient */
    uint64_t n_not_finite;     /* batches whose loss was NaN or infinite */
    uint64_t first_not_finite; /* the first pass of these; UINT64_MAX: none */
};

/* Enqueues setting the totals to zero. Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_net_zero_totals(struct mr_net *net, struct mr_stream *stream);

/* Reads the totals. Blocks until the stream's work so far is done. [out] out: on success, all
 * but size. Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM; on a simulated device also the error of a
 * pass that failed since the last call, once. */
MR_API int mr_net_query_totals(struct mr_net *net, struct mr_stream *stream,
                               struct mr_net_totals *out);

/* Enqueues setting the count of passes. Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_net_set_step(struct mr_net *net, uint64_t step, struct mr_stream *stream);

/* ---- parameters and layers ---- */

/*
 * The flat arrays of parameters and gradients, in the device's memory, of f32 (f64 for MR_F64).
 * They stay where they are for as long as the net exists.
 * [out] low_precision: for MR_BF16 and MR_F16 the copy of the parameters that products read, which
 * an optimizer can write (mr_optim_extra.copy); else NULL. NULL arguments: not wanted.
 */
MR_API void mr_net_flat(struct mr_net *net, void **params, void **grads, void **low_precision);

/* The flat array of running statistics (batch-norm), which is saved with a model but not stepped.
 * [out] count: elements, including gaps; 0: none. NULL arguments: not wanted. */
MR_API void mr_net_buffers(struct mr_net *net, void **buffers, uint64_t *count);

/*
 * Copies parameters and running statistics from host memory into the flat arrays. Blocks. No pass
 * may be running. Do the next pass with `copied` 0, so that the low-precision copy is made.
 * params, buffers: f32 (f64 for MR_F64) in the layout of the flat arrays; NULL: not changed.
 * Returns 0, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_net_set(struct mr_net *net, const void *params, const void *buffers);

/* The number of elements in a flat array, including gaps between tensors. The number of parameters
 * is the sum of mr_net_param.count. */
MR_API uint64_t mr_net_n_params(const struct mr_net *net);

/* The bytes of device memory that the net uses besides the flat arrays: activations, their
 * gradients, workspace, the low-precision copy, running statistics. */
MR_API uint64_t mr_net_memory(const struct mr_net *net);

struct mr_net_param {
    char name[48]; /* as PyTorch names it: "conv1.weight", "fc2.bias" */
    int32_t rank;
    uint64_t dim[4];
    uint64_t offset, count; /* in the flat arrays, in elements */
    /* 1: weights; 0: biases and norm parameters, conventionally excluded from weight decay. */
    int decays;
};

struct mr_net_layer {
    char name[24], text[64];  /* "conv1", "conv 32, 3x3" */
    uint32_t in[3], out[3];   /* c, h, w */
    uint64_t n_params, flops; /* flops: one sample forward; a multiply-add is two */
    char runs_on[48];         /* "cuBLASLt, tensor cores (tf32)", "OpenBLAS", "own kernel" */
};

/* The i-th parameter, layer, and array of running statistics; NULL after the last. Owned by the
 * net. */
MR_API const struct mr_net_param *mr_net_param_get(const struct mr_net *net, uint32_t i);
MR_API const struct mr_net_layer *mr_net_layer_get(const struct mr_net *net, uint32_t i);
MR_API const struct mr_net_param *mr_net_buffer_get(const struct mr_net *net, uint32_t i);

/* ---- loss scaling and losses that are not finite ---- */

/*
 * Loss scaling for MR_F16 (Micikevicius et al.: Mixed precision training, ICLR 2018). The scale
 * begins at 65,536, halves when gradients overflow, and doubles after 2,000 steps in a row without
 * overflow.
 *
 * mr_net_scaling() gives the places, in the device's memory, of the scale for
 * mr_net_batch.loss_scale, its inverse for mr_optim_extra.grad_scale, and mr_optim_extra.skip. All
 * are NULL for other types.
 */
MR_API void mr_net_scaling(struct mr_net *net, const float **loss_scale, const float **grad_scale,
                           const uint32_t **skip);

/* Enqueues the check for overflow, which sets skip and updates the scale. Call it between the pass
 * and the optimizer's step. Does nothing for other types. Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_net_rescale(struct mr_net *net, struct mr_stream *stream);

/*
 * Current loss scale, for checkpointing: the scale, a power of two up to 2^24, and the number of
 * steps without overflow since it changed, below 2,000. Other types have 1 and 0. Both calls block.
 * Return 0, MR_EMISUSE, MR_EDEVICE; setting also MR_ESTATE for other numbers.
 */
MR_API int mr_net_query_loss_scale(struct mr_net *net, struct mr_stream *stream, float *out_scale,
                                   uint32_t *out_good);
MR_API int mr_net_set_loss_scale(struct mr_net *net, struct mr_stream *stream, float scale,
                                 uint32_t good);

/*
 * A flag in the device's memory: not 0 from the first loss that was not finite until
 * mr_net_zero_totals(). As mr_optim_extra.skip it keeps the parameters as they were before that
 * loss. For MR_F16 use mr_net_scaling()'s skip, which includes it. Owned by the net.
 */
MR_API const uint32_t *mr_net_bad_loss(const struct mr_net *net);

/*
 * After a loss that was not finite: finds the first layer, in the order of the pass, with a
 * parameter or an output that is not finite. Blocks.
 * [out] what: "parameters" or "output". Returns the layer's number for mr_net_layer_get(), -ENODATA
 * if all are finite, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_net_find_bad(struct mr_net *net, struct mr_stream *stream, const char **what);

#ifdef __cplusplus
}
#endif
#endif
