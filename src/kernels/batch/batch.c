/* The table of the module "batch". */
#include "kernels/batch/batch.h"

#if MILLRACE_HAVE_CUDA_KERNELS
extern const unsigned char mr_cuda_batch_image[]; /* made of batch.cu by nvcc */
#define IMAGE mr_cuda_batch_image
#else
#define IMAGE NULL
#endif

#define KERNEL(name, args, what)                                                                   \
    {                                                                                              \
        name, sizeof(struct args), &mr_batch_module, mr_batch_##what##_check,                      \
            mr_batch_##what##_run, mr_batch_##what##_grid                                          \
    }

static const struct mr_kernel kernels[] = {
    KERNEL("pointwise", mr_point_args, point),
    KERNEL("pointwise_mix", mr_point_mix_args, point_mix),
    KERNEL("one_hot", mr_one_hot_args, one_hot),
    KERNEL("one_hot_mix", mr_one_hot_mix_args, one_hot_mix),
    KERNEL("gather", mr_gather_args, gather),
    KERNEL("resample", mr_resample_args, resample),
};

const struct mr_kernel_module mr_batch_module = {"batch", IMAGE, kernels,
                                                 sizeof kernels / sizeof kernels[0]};
