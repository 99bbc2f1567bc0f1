/* The tables of the modules "nn_f32", "nn_bf16" and "nn_f16". */
#include "kernels/nn/nn.h"

#if MILLRACE_HAVE_CUDA_KERNELS
extern const unsigned char mr_cuda_nn_image[]; /* made of nn.cu by nvcc */
#define IMAGE mr_cuda_nn_image
#else
#define IMAGE NULL
#endif

static const struct mr_kernel kernels_f32[] = {
#define X(name, args) {"nn_" #name "_f32", sizeof(struct args), &mr_nn_modules[MR_NN_GPU_F32]},
    MR_NN_GPU_KERNELS(X)
#undef X
};

static const struct mr_kernel kernels_bf16[] = {
#define X(name, args) {"nn_" #name "_bf16", sizeof(struct args), &mr_nn_modules[MR_NN_GPU_BF16]},
    MR_NN_GPU_KERNELS(X)
#undef X
};

static const struct mr_kernel kernels_f16[] = {
#define X(name, args) {"nn_" #name "_f16", sizeof(struct args), &mr_nn_modules[MR_NN_GPU_F16]},
    MR_NN_GPU_KERNELS(X)
#undef X
};

const struct mr_kernel_module mr_nn_modules[MR_NN_GPU_TYPES] = {
    [MR_NN_GPU_F32] = {"nn_f32", IMAGE, kernels_f32, MR_NN_GPU_N},
    [MR_NN_GPU_BF16] = {"nn_bf16", IMAGE, kernels_bf16, MR_NN_GPU_N},
    [MR_NN_GPU_F16] = {"nn_f16", IMAGE, kernels_f16, MR_NN_GPU_N},
};
