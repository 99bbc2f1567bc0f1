/* The kernels of sum.h on NVIDIA GPUs. Compiled with -fmad=false: what is rounded on the host is
 * rounded here. */
#include "kernels/sum/sum.h"

#define X(name)                                                                                    \
    extern "C" __global__ void __launch_bounds__(MR_KERNEL_THREADS)                                \
        mr_sum_##name(const struct mr_sum_##name a)                                                \
    {                                                                                              \
        uint64_t i = (uint64_t)blockIdx.x * MR_KERNEL_THREADS + threadIdx.x;                       \
        for (; i < a.count; i += (uint64_t)gridDim.x * MR_KERNEL_THREADS)                          \
            mr_sum_##name##_at(&a, i);                                                             \
    }
MR_SUM_KERNELS(X)
