/*
 * NVIDIA's driver API as far as we use it, declared by ourselves and found at run time: nothing of
 * CUDA is needed to build, and one binary runs with and without a GPU. Names and signatures are
 * those of cuda.h 13.0 with its version suffixes; numbers are CUresult, CUdevice and CUdeviceptr.
 */
#ifndef MR_DEVICE_CUDA_DRIVER_H
#define MR_DEVICE_CUDA_DRIVER_H

#include "base/base.h"
#include <millrace/device.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;

#define CUDA_OLDEST_API 11040 /* oldest that serves all required symbols */

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_TOO_MANY_PEERS = 711,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_CAPTURED_EVENT = 907,
};

enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_EVENT_WAIT_EXTERNAL = 1,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_MEMHOSTALLOC_WRITECOMBINED = 4,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/* Handles that mean a stream of the current context. 0 is the legacy default stream, too. */
#define CUDA_STREAM_LEGACY     ((uintptr_t)1)
#define CUDA_STREAM_PER_THREAD ((uintptr_t)2)

/* CUmemcpyAttributes with its two CUmemLocation */
struct cuda_copy_attributes {
    int source_order;
    int source_location[2],
        destination_location[2]; /* type, id: hints for managed memory, which we have none of */
    unsigned flags;
};

/* X(symbol, arguments): each returns a CUresult. A driver without one of these is refused. */
#define CUDA_REQUIRED(X)                                                                           \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *out))                                                              \
    X(cuGetErrorName, (int result, const char **out))                                              \
    X(cuGetErrorString, (int result, const char **out))                                            \
    X(cuDeviceGetCount, (int *out))                                                                \
    X(cuDeviceGet, (int *out, int ordinal))                                                        \
    X(cuDeviceGetName, (char *out, int bytes, int device))                                         \
    X(cuDeviceGetAttribute, (int *out, int attribute, int device))                                 \
    X(cuDeviceGetUuid, (unsigned char out[16], int device))                                        \
    X(cuDeviceGetPCIBusId, (char *out, int bytes, int device))                                     \
    X(cuDevicePrimaryCtxRetain, (struct CUctx_st * *out, int device))                              \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                                  \
    X(cuCtxGetCurrent, (struct CUctx_st * *out))                                                   \
    X(cuCtxPushCurrent_v2, (struct CUctx_st * context))                                            \
    X(cuCtxPopCurrent_v2, (struct CUctx_st * *out))                                                \
    X(cuMemGetInfo_v2, (size_t * out_free, size_t * out_total))                                    \
    X(cuMemAlloc_v2, (uint64_t * out, size_t bytes))                                               \
    X(cuMemFree_v2, (uint64_t ptr))                                                                \
    X(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))                                  \
    X(cuMemFreeHost, (void *ptr))                                                                  \
    X(cuMemHostRegister_v2, (void *ptr, size_t bytes, unsigned flags))                             \
    X(cuMemHostUnregister, (void *ptr))                                                            \
    X(cuStreamCreate, (struct CUstream_st * *out, unsigned flags))                                 \
    X(cuStreamDestroy_v2, (struct CUstream_st * stream))                                           \
    X(cuStreamSynchronize, (struct CUstream_st * stream))                                          \
    X(cuStreamGetCtx, (struct CUstream_st * stream, struct CUctx_st * *out))                       \
    X(cuStreamIsCapturing, (struct CUstream_st * stream, int *out))                                \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                              \
    X(cuCtxGetDevice, (int *out))                                                                  \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuStreamWaitEvent, (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags)) \
    X(cuEventCreate, (struct CUevent_st * *out, unsigned flags))                                   \
    X(cuEventDestroy_v2, (struct CUevent_st * event))                                              \
    X(cuEventRecord, (struct CUevent_st * event, struct CUstream_st * stream))                     \
    X(cuEventQuery, (struct CUevent_st * event))                                                   \
    X(cuEventSynchronize, (struct CUevent_st * event))                                             \
    X(cuEventElapsedTime, (float *out_ms, struct CUevent_st *start, struct CUevent_st *end))       \
    X(cuMemcpyHtoDAsync_v2,                                                                        \
      (uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream))                   \
    X(cuMemcpyDtoHAsync_v2, (void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream))   \
    X(cuMemcpyAsync, (uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st * stream))      \
    X(cuStreamBeginCapture_v2, (struct CUstream_st * stream, int mode))                            \
    X(cuStreamEndCapture, (struct CUstream_st * stream, struct CUgraph_st * *out))                 \
    X(cuGraphInstantiateWithFlags,                                                                 \
      (struct CUgraphExec_st * *out, struct CUgraph_st * graph, unsigned long long flags))         \
    X(cuGraphLaunch, (struct CUgraphExec_st * exec, struct CUstream_st * stream))                  \
    X(cuGraphExecDestroy, (struct CUgraphExec_st * exec))                                          \
    X(cuGraphDestroy, (struct CUgraph_st * graph))                                                 \
    X(cuDeviceCanAccessPeer, (int *out, int device, int peer))                                     \
    X(cuCtxEnablePeerAccess, (struct CUctx_st * peer, unsigned flags))                             \
    X(cuMemcpyPeerAsync,                                                                           \
      (uint64_t dst, struct CUctx_st * dst_context, uint64_t src, struct CUctx_st * src_context,   \
       size_t bytes, struct CUstream_st * stream))                                                 \
    X(cuMemsetD8Async,                                                                             \
      (uint64_t dst, unsigned char byte, size_t bytes, struct CUstream_st *stream))                \
    X(cuModuleLoadData, (struct CUmod_st * *out, const void *image))                               \
    X(cuModuleUnload, (struct CUmod_st * module))                                                  \
    X(cuModuleGetFunction, (struct CUfunc_st * *out, struct CUmod_st * module, const char *name))  \
    X(cuLaunchKernel,                                                                              \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       struct CUstream_st *stream, void **params, void **extra))

/* NULL in the table where the driver is older. */
#define CUDA_OPTIONAL(X)                                                                           \
    X(cuCtxRecordEvent, (struct CUctx_st * context, struct CUevent_st * event)) /* 12.5 */         \
    X(cuDeviceGetUuid_v2, (unsigned char out[16], int device))                  /* 11.4 */         \
    X(cuEventElapsedTime_v2,                                                                       \
      (float *out_ms, struct CUevent_st *start, struct CUevent_st *end)) /* 12.8 */                \
    X(cuMemcpyBatchAsync,                                                /* 12.8 */                \
      (uint64_t * dst, uint64_t * src, size_t * bytes, size_t n,                                   \
       struct cuda_copy_attributes * attributes, size_t * from, size_t n_attributes,               \
       size_t * out_failed, struct CUstream_st * stream))                                          \
    X(cuMemcpyBatchAsync_v2, /* 13.0 */                                                            \
      (uint64_t * dst, uint64_t * src, size_t * bytes, size_t n,                                   \
       struct cuda_copy_attributes * attributes, size_t * from, size_t n_attributes,               \
       struct CUstream_st * stream))

struct mr_cuda_driver {
#define X(symbol, arguments) int(*symbol) arguments;
    CUDA_REQUIRED(X)
    CUDA_OPTIONAL(X)
#undef X
    int version; /* 13000: 13.0 */
    int n_devices;
};

/*
 * Finds, checks and initialises the driver, once per process.
 * [out] out: on success; never freed. Returns 0, MR_ENODEVICE, or MR_EDEVICE in a process
 * that was forked after the first call.
 */
int mr_cuda_driver_get(const struct mr_cuda_driver **out);
/* NULL: usable; else why not. */
const char *mr_cuda_driver_why_not(void);
/* Is this a child process, forked after the driver was initialised? */
bool mr_cuda_is_forked(void);
/* Sets the error for that. Returns MR_EDEVICE. */
int mr_cuda_forked_error(const char *device);

/*
 * Sets "CALL on DEVICE: NAME: text", with advice where there is some. fmt: the call with its sizes.
 * Returns MR_EDEVICEMEM for out of memory, else MR_EDEVICE.
 */
MR_PRIVATE int mr_cuda_error(const struct mr_cuda_driver *cu, int result, const char *device,
                             const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* "CUDA_ERROR_OUT_OF_MEMORY: out of memory" */
void mr_cuda_result_text(const struct mr_cuda_driver *cu, int result, char *out, size_t bytes);

/* What NVML says of a GPU; zeros where it does not. */
struct mr_nvml_info {
    char driver[32];
    unsigned link_generation, link_width, link_generation_max, link_width_max;
    uint64_t bar1_bytes;
    double nvlink_gb_per_s; /* all links that are up together, one way */
};
/* pci_id: "0000:1b:00.0". Never fails: NVML is a help, not a need. */
void mr_nvml_prepare(void); /* loads it: the others do that, too */
void mr_nvml_get(const char *pci_id, struct mr_nvml_info *out);
/* Free memory of the GPU; 0: unknown. */
uint64_t mr_nvml_free_bytes(const char *pci_id);
/* Processes that compute on the GPU. Returns how many, also above max; -1: unknown. */
int mr_nvml_processes(const char *pci_id, struct mr_device_process *out, int max);

#endif
