/*
 * Small nets, trained natively: perceptrons and small convolutional nets, to prove the loader end to end and to be a reference.
 * Anyone with a larger net feeds it from their framework.
 *
 * A net is a list of layers over samples of one shape, written as text (mr_net_opts.model), on one device, for batches up to a
 * bound. All its parameters lie in one flat buffer and all gradients in another of the same layout, which is what an
 * optimizer (optim.h) steps on.
 *
 * Shapes: a sample is c x h x w (channels, rows, columns); a vector is c x 1 x 1. Batches are [n, c, h, w] (NCHW) or
 * [n, h, w, c] (NHWC), as mr_net_opts.layout says; parameters are always in PyTorch's shapes, and outputs and MR_MSE's targets
 * are vectors: those of a net that ends in a picture are flattened in c, h, w order.
 * Precision: MR_F32 (on CUDA with `tf32` the products by TF32 tensor cores), MR_F64 (CPU only: tests), MR_BF16 and MR_F16 (CUDA:
 * activations and products in that type, parameters and gradients in f32 with a copy of the parameters in that type).
 * Determinism: the same bits on "cpu" for any number of threads; on CUDA as cuBLASLt's algorithms give.
 *
 * Threads: a net belongs to one thread at a time. While a net on "cpu" computes, the process' BLAS library (OpenBLAS, BLIS, MKL)
 * is set to one thread a call, then back to what it was. On CUDA every call that takes a stream only enqueues, but where it says
 * that it blocks. A stream is one of the net's device (else MR_EMISUSE); on "cpu" it may be NULL.
 * Errors: MR_EOPTION (a model's text: which layer, what is wrong), MR_ESHAPE (names the layer and both shapes), MR_EUNSUPPORTED
 * (which library is missing and what it is for), MR_EDEVICE, -ENOMEM.
 */
#ifndef MILLRACE_NN_H
#define MILLRACE_NN_H

#include <millrace/device.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_net;

enum mr_layout { MR_NCHW, MR_NHWC };
enum mr_loss { MR_CROSS_ENTROPY, MR_NLL, MR_MSE };

struct mr_net_opts {
    size_t size;
    /*
     * A built-in model: "softmax", "mlp:100s", "mlp:300s,100r,50s" (hidden layers: width and s sigmoid, r ReLU, t tanh, g GELU),
     * "mnist-cnn", "resnet20"; or layers in order, commas between:
     *   linear:N  conv:N,k=3,s=1,p=0[,bias=0]  maxpool:2[,s=2]  avgpool:2[,s=2]  relu sigmoid tanh gelu  dropout:0.25[,2d]
     *   batchnorm  flatten  softmax  logsoftmax  residual:{...}
     */
    const char *model;
    uint32_t channels, height, width; /* of a sample: 1..65536 each, and below 2^31 pixels, as within the net */
    uint32_t classes;                 /* outputs of the built-in models: 1..2^20 */
    enum mr_loss loss;
    enum mr_layout layout; /* of the input batch */
    enum mr_dtype dtype;   /* MR_F32, ... */
    int tf32;              /* CUDA, MR_F32: 1 (default): TF32 products */
    uint32_t max_batch;    /* samples of a batch at most: 1..2^20; activations are held for so many */
    uint64_t seed;         /* of the initial parameters (PyTorch's distributions) and of dropout */
    uint32_t threads;      /* CPU; 0: all this process may use */
};
MR_API void mr_net_opts_fill(struct mr_net_opts *opts, size_t size);
static inline void mr_net_opts_init(struct mr_net_opts *opts)
{
    mr_net_opts_fill(opts, sizeof *opts);
}

/* device: of kind "cpu" or "cuda"; stays open longer than the net. opts, and the text in it, are read by this call alone.
 * [out] out: on success. Blocks. Returns 0, MR_EOPTION, MR_ESHAPE, MR_ELIMIT (too many layers, parameters or activations),
 * MR_EMISUSE for NULL and for opts of a wrong size, MR_EUNSUPPORTED, MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM. */
MR_API int mr_net_create(struct mr_device *device, const struct mr_net_opts *opts, struct mr_net **out);
/* No pass may be under way on the device. NULL is allowed. */
MR_API void mr_net_destroy(struct mr_net *net);

struct mr_net_param {
    char name[48]; /* PyTorch's: "conv1.weight", "fc2.bias" */
    int32_t rank;
    uint64_t dim[4];
    uint64_t offset, count; /* in the flat buffers, elements */
    int decays;             /* 1: weights; 0: biases and norms, which people leave out of weight decay */
};

struct mr_net_layer {
    char name[24], text[64];  /* "conv1", "conv 32, 3x3" */
    uint32_t in[3], out[3];   /* c, h, w */
    uint64_t n_params, flops; /* flops: of one sample forward, a multiply and an add are two */
    char runs_on[48];         /* "cuBLASLt, tensor cores (tf32)", "OpenBLAS", "own kernel" */
};

/* What it is made of. The i-th, or NULL after the last; owned by the net. */
MR_API const struct mr_net_param *mr_net_param_get(const struct mr_net *net, uint32_t i);
MR_API const struct mr_net_layer *mr_net_layer_get(const struct mr_net *net, uint32_t i);
/* Elements of the flat buffers, with the gaps between tensors: sum mr_net_param.count for the number of parameters. */
MR_API uint64_t mr_net_n_params(const struct mr_net *net);
/* Bytes of its device's memory that it holds beside the flat parameters and gradients: activations and their gradients,
 * workspace, the low precision copy, running statistics. On "cpu" a buffer for NHWC input is taken in the first pass. */
MR_API uint64_t mr_net_memory(const struct mr_net *net);

/* The flat buffers, in the device's memory: f32, or f64 for MR_F64. For bf16 and fp16: [out] of low_precision, the parameters'
 * copy that the products read and an optimizer refreshes; NULL otherwise. They stay where they are as long as the net lives. NULL: not
 * wanted. */
MR_API void mr_net_flat(struct mr_net *net, void **params, void **grads, void **low_precision);

/* Puts values of the caller's, in host memory and f32 (f64 for MR_F64), into the flat buffers; the low precision copy follows
 * with the next pass whose `copied` is 0: do one such after this. NULL: left as they are. No pass may be under way. Blocks.
 * Returns 0, MR_EDEVICE, -ENOMEM. */
MR_API int mr_net_set(struct mr_net *net, const void *params, const void *buffers);

/* Running statistics of batch-norm and the like: flat too, saved with a model but not stepped. [out] count: elements, with gaps;
 * 0: none. NULL: not wanted. */
MR_API void mr_net_buffers(struct mr_net *net, void **buffers, uint64_t *count);
MR_API const struct mr_net_param *mr_net_buffer_get(const struct mr_net *net, uint32_t i);

/*
 * What a step adds up, in the device's memory: fixed places that kernels of a graph update and the trainer reads when it wants
 * to. Zeroed by mr_net_zero_totals().
 */
struct mr_net_totals {
    double loss;               /* sum over samples */
    uint64_t n_right;          /* argmax equals label */
    uint64_t n_samples;        /* with a label in range */
    uint64_t n_bad_labels;     /* out of range: the others, whose loss and gradient are left out */
    uint64_t n_not_finite;     /* batches whose loss was NaN or infinite */
    uint64_t first_not_finite; /* the step of the first of them; UINT64_MAX: none */
};
/* Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_net_zero_totals(struct mr_net *net, struct mr_stream *stream);
/* Blocks until the stream has come here. Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM. */
MR_API int mr_net_query_totals(struct mr_net *net, struct mr_stream *stream, struct mr_net_totals *out);

/*
 * A training pass: forward, loss (mean over the batch), backward; gradients are overwritten, or added to with `accumulate`.
 * input: [n, ...] in the net's layout; MR_F32, MR_F64, MR_BF16, MR_F16, or MR_U8 with values scaled by 1/255 (input_dtype says);
 * labels: label_dtype MR_U8, MR_I32 or MR_I64, classes 0..classes-1, one a sample; for MR_MSE targets of MR_F32 or
 * MR_F64, [n, outputs of the last layer]: the caller sees to it that so many are there. 1 <= n <= max_batch.
 * Each pass counts one, from 0, in the device's memory: the count keys dropout with the seed, so that a graph's replay draws anew.
 * mr_net_set_step() sets it.
 * loss_scale: the loss is multiplied by this before backward (fp16); the optimizer divides. A pointer in the device's memory
 * (host's on "cpu") to a float, or NULL for 1.
 * copied: 1 says that the low precision copy holds the parameters already, as after a step of an optimizer that writes it
 * (mr_optim_extra.copy); with 0 every pass makes it anew.
 */
struct mr_net_batch {
    const void *input, *labels;
    enum mr_dtype input_dtype, label_dtype;
    uint32_t n;
    int accumulate, copied;
    const float *loss_scale;
};
/* Returns 0, MR_ESHAPE (n, or a dtype, and what is wanted), MR_EMISUSE without input or labels, MR_EDEVICE, -ENOMEM. */
MR_API int mr_net_train(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream);
/*
 * Before the first pass: a training pass over zeros, max_batch of them, so that libraries load their kernels and choose how to
 * compute now (some 0.2 s on a GPU) and not in the first step. Parameters, running statistics, totals and draws are as without
 * it; the gradients are 0 and the count of passes is 0 afterwards. Blocks. Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_net_warm_up(struct mr_net *net, struct mr_stream *stream);
/* Of the passes that are enqueued after this. Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_net_set_step(struct mr_net *net, uint64_t step, struct mr_stream *stream);

/*
 * Loss scaling for MR_F16 (Micikevicius et al.: Mixed precision training, ICLR 2018): the places that hold the scale for
 * mr_net_batch.loss_scale, its inverse for an optimizer's grad_scale, and its skip; all NULL for other types. mr_net_rescale(),
 * enqueued after the pass and before the optimizer's step, looks for gradients that overflowed: then the step is to be skipped and
 * the scale halves; after 2,000 good ones in a row it doubles. It begins at 65,536. For other types it does nothing. Returns 0,
 * MR_EMISUSE, MR_EDEVICE.
 */
MR_API void mr_net_scaling(struct mr_net *net, const float **loss_scale, const float **grad_scale,
                           const uint32_t **skip);
MR_API int mr_net_rescale(struct mr_net *net, struct mr_stream *stream);

/* In the device's memory: not 0 from a loss that was not finite until mr_net_zero_totals(). As an optimizer's skip it keeps the
 * parameters as they were before that loss until the host looks. For MR_F16 mr_net_scaling()'s skip does so. Owned by the net. */
MR_API const uint32_t *mr_net_bad_loss(const struct mr_net *net);

/* What it has come to, for checkpoints: the scale (a power of two up to 2^24), and good steps in a row since it changed (less
 * than 2,000); 1 and 0 for types that are not scaled. Block. Return 0, MR_EMISUSE, MR_EDEVICE; setting MR_ESTATE for
 * other numbers. */
MR_API int mr_net_query_loss_scale(struct mr_net *net, struct mr_stream *stream, float *out_scale, uint32_t *out_good);
MR_API int mr_net_set_loss_scale(struct mr_net *net, struct mr_stream *stream, float scale, uint32_t good);

/* After a loss that was not finite: the first layer, in the order of the pass, with a parameter or an output that is not. Blocks.
 * [out] what: "parameters" or "output". Returns the layer's number for mr_net_layer_get(), -ENODATA when all is finite,
 * MR_EMISUSE, MR_EDEVICE, -ENOMEM. */
MR_API int mr_net_find_bad(struct mr_net *net, struct mr_stream *stream, const char **what);

/* Forward without dropout, with batch-norm's running statistics; adds to the totals when batch->labels. [out] outputs:
 * [n, outputs] of the net's last layer in f32 (f64), in the device's memory, until the next call; may be NULL. Without labels and
 * outputs the pass alone. Returns 0, MR_ESHAPE, MR_EMISUSE without input, MR_EDEVICE, -ENOMEM. */
MR_API int mr_net_eval(struct mr_net *net, const struct mr_net_batch *batch, const void **outputs,
                       struct mr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
