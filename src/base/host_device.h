/* Functions that are compiled for the host and, by nvcc, for GPUs. */
#ifndef MR_BASE_HOST_DEVICE_H
#define MR_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define MR_HOST_DEVICE static __host__ __device__ inline
#else
#define MR_HOST_DEVICE static inline
#endif

#endif
