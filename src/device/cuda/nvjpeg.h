/* What we use of nvJPEG, as its documentation declares it: for cuda_jpeg.c, and for the tests'
 * library that is not there. */
#ifndef MR_DEVICE_CUDA_NVJPEG_H
#define MR_DEVICE_CUDA_NVJPEG_H

#include <stddef.h>

struct nvjpegHandle;
struct nvjpegJpegState;
struct nvjpegJpegStream;
struct CUstream_st;

enum {
    NVJPEG_STATUS_SUCCESS = 0,
    NVJPEG_STATUS_INVALID_PARAMETER = 2,
    NVJPEG_STATUS_BAD_JPEG = 3,
    NVJPEG_STATUS_JPEG_NOT_SUPPORTED = 4,
    NVJPEG_STATUS_ALLOCATOR_FAILURE = 5,
    NVJPEG_STATUS_EXECUTION_FAILED = 6,
    NVJPEG_STATUS_ARCH_MISMATCH = 7,
    NVJPEG_STATUS_INTERNAL_ERROR = 8,
    NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED = 9,
    NVJPEG_STATUS_INCOMPLETE_BITSTREAM = 10,
};

enum { NVJPEG_BACKEND_DEFAULT = 0, NVJPEG_BACKEND_GPU_HYBRID = 2, NVJPEG_BACKEND_HARDWARE = 3 };
enum { NVJPEG_OUTPUT_RGBI = 5 };
#define NVJPEG_MAX_COMPONENT 4

struct nvjpeg_image {
    unsigned char *channel[NVJPEG_MAX_COMPONENT];
    size_t pitch[NVJPEG_MAX_COMPONENT];
};

#define NVJPEG_REQUIRED(X)                                                                         \
    X(nvjpegCreateEx, (int backend, void *device_allocator, void *pinned_allocator,                \
                       unsigned flags, struct nvjpegHandle **out))                                 \
    X(nvjpegDestroy, (struct nvjpegHandle * handle))                                               \
    X(nvjpegJpegStateCreate, (struct nvjpegHandle * handle, struct nvjpegJpegState * *out))        \
    X(nvjpegJpegStateDestroy, (struct nvjpegJpegState * state))                                    \
    X(nvjpegGetImageInfo, (struct nvjpegHandle * handle, const unsigned char *data, size_t length, \
                           int *components, int *subsampling, int *widths, int *heights))          \
    X(nvjpegDecodeBatchedInitialize,                                                               \
      (struct nvjpegHandle * handle, struct nvjpegJpegState * state, int batch_size,               \
       int max_cpu_threads, int output_format))                                                    \
    X(nvjpegDecodeBatched, (struct nvjpegHandle * handle, struct nvjpegJpegState * state,          \
                            const unsigned char *const *data, const size_t *lengths,               \
                            struct nvjpeg_image *destinations, struct CUstream_st *stream))

/* Of versions that know a chip's decoder. supported: 0 says yes. */
#define NVJPEG_OPTIONAL(X)                                                                         \
    X(nvjpegJpegStreamCreate, (struct nvjpegHandle * handle, struct nvjpegJpegStream * *out))      \
    X(nvjpegJpegStreamDestroy, (struct nvjpegJpegStream * stream))                                 \
    X(nvjpegJpegStreamParseHeader, (struct nvjpegHandle * handle, const unsigned char *data,       \
                                    size_t length, struct nvjpegJpegStream *stream))               \
    X(nvjpegDecodeBatchedSupported,                                                                \
      (struct nvjpegHandle * handle, struct nvjpegJpegStream * stream, int *supported))

#endif
