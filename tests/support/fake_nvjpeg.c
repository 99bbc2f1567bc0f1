/* See fake_nvjpeg.h. Its declarations are the library's own, so that calls cannot differ from what
 * is defined here. */
#include "fake_nvjpeg.h"

#include "device/cuda/nvjpeg.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
/* clang-format off */
#include <jpeglib.h>
/* clang-format on */

#define FAKE_API             __attribute__((visibility("default")))
#define X(symbol, arguments) FAKE_API int symbol arguments;
NVJPEG_REQUIRED(X)
NVJPEG_OPTIONAL(X)
#undef X

FAKE_API struct fake_nvjpeg fake_nvjpeg;

struct nvjpegHandle {
    int backend;
};
struct nvjpegJpegState {
    struct nvjpegHandle *handle;
    int batch;
};
struct nvjpegJpegStream {
    bool progressive, parsed;
};

static int call(void)
{
    uint64_t number = atomic_fetch_add(&fake_nvjpeg.calls, 1) + 1;
    return number == fake_nvjpeg.fail_at ? fake_nvjpeg.fail_with : 0;
}

static int make(size_t bytes, void **out)
{
    int status = call();
    if (status)
        return status;
    *out = calloc(1, bytes);
    atomic_fetch_add(&fake_nvjpeg.alive, 1);
    return *out ? 0 : NVJPEG_STATUS_ALLOCATOR_FAILURE;
}

static int drop(void *object)
{
    free(object);
    atomic_fetch_sub(&fake_nvjpeg.alive, 1);
    return 0;
}

static void pass(int ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000l};
    if (ms > 0)
        nanosleep(&pause, NULL);
}

static int nice_here(void)
{
    return getpriority(PRIO_PROCESS, (id_t)gettid());
}

int nvjpegCreateEx(int backend, void *device_allocator, void *pinned_allocator, unsigned flags,
                   struct nvjpegHandle **out)
{
    (void)device_allocator, (void)pinned_allocator, (void)flags;
    pass(atomic_load(&fake_nvjpeg.slow_open_ms));
    if (fake_nvjpeg.no_hardware > 1)
        return NVJPEG_STATUS_EXECUTION_FAILED;
    if (backend == NVJPEG_BACKEND_HARDWARE && fake_nvjpeg.no_hardware)
        return NVJPEG_STATUS_ARCH_MISMATCH;
    int status = make(sizeof **out, (void **)out);
    if (status == 0)
        (*out)->backend = backend;
    return status;
}

int nvjpegDestroy(struct nvjpegHandle *handle)
{
    return drop(handle);
}

int nvjpegJpegStateCreate(struct nvjpegHandle *handle, struct nvjpegJpegState **out)
{
    int status = make(sizeof **out, (void **)out);
    if (status == 0)
        (*out)->handle = handle;
    return status;
}

int nvjpegJpegStateDestroy(struct nvjpegJpegState *state)
{
    return drop(state);
}

int nvjpegJpegStreamCreate(struct nvjpegHandle *handle, struct nvjpegJpegStream **out)
{
    (void)handle;
    return make(sizeof **out, (void **)out);
}

int nvjpegJpegStreamDestroy(struct nvjpegJpegStream *stream)
{
    return drop(stream);
}

struct job {
    struct jpeg_decompress_struct z;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    unsigned char *pixels;
};

static void error_exit(j_common_ptr z)
{
    struct job *j = z->client_data;
    longjmp(j->escape, 1);
}

static void no_message(j_common_ptr z, int level)
{
    (void)z, (void)level;
}

static void begin(struct job *j, const unsigned char *data, size_t length)
{
    j->pixels = NULL;
    j->z.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = error_exit;
    j->errors.emit_message = no_message;
    j->z.client_data = j;
    jpeg_create_decompress(&j->z);
    jpeg_mem_src(&j->z, data, (unsigned long)length);
    jpeg_read_header(&j->z, TRUE);
}

int nvjpegGetImageInfo(struct nvjpegHandle *handle, const unsigned char *data, size_t length,
                       int *components, int *subsampling, int *widths, int *heights)
{
    struct job j;
    (void)handle;
    *subsampling = 0;
    if (setjmp(j.escape)) {
        jpeg_destroy_decompress(&j.z);
        return NVJPEG_STATUS_BAD_JPEG;
    }
    begin(&j, data, length);
    *components = j.z.num_components;
    widths[0] = (int)j.z.image_width;
    heights[0] = (int)j.z.image_height;
    jpeg_destroy_decompress(&j.z);
    return 0;
}

int nvjpegJpegStreamParseHeader(struct nvjpegHandle *handle, const unsigned char *data,
                                size_t length, struct nvjpegJpegStream *stream)
{
    struct job j;
    (void)handle;
    stream->parsed = false;
    if (setjmp(j.escape)) {
        jpeg_destroy_decompress(&j.z);
        return NVJPEG_STATUS_BAD_JPEG;
    }
    begin(&j, data, length);
    atomic_store(&fake_nvjpeg.nice_of_headers, nice_here());
    stream->parsed = true;
    stream->progressive = j.z.progressive_mode;
    jpeg_destroy_decompress(&j.z);
    return 0;
}

int nvjpegDecodeBatchedSupported(struct nvjpegHandle *handle, struct nvjpegJpegStream *stream,
                                 int *supported)
{
    if (handle->backend != NVJPEG_BACKEND_HARDWARE || !stream->parsed)
        atomic_fetch_add(&fake_nvjpeg.misuse, 1);
    *supported = stream->progressive;
    return 0;
}

/* By the fake driver, which keeps the bytes until they are copied, in the stream's order. */
static int copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    static int (*htod)(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream);
    static atomic_bool found;
    if (!atomic_load(&found)) {
        *(void **)(void *)&htod = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpyHtoDAsync_v2");
        atomic_store(&found, true);
    }
    return htod((uint64_t)(uintptr_t)to, from, bytes, stream) ? NVJPEG_STATUS_EXECUTION_FAILED : 0;
}

static int decode(const unsigned char *data, size_t length, const struct nvjpeg_image *to,
                  struct CUstream_st *stream)
{
    struct job j;
    if (setjmp(j.escape)) {
        jpeg_destroy_decompress(&j.z);
        free(j.pixels);
        return NVJPEG_STATUS_BAD_JPEG;
    }
    begin(&j, data, length);
    j.z.out_color_space = JCS_RGB;
    j.z.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&j.z);
    size_t row = (size_t)j.z.output_width * 3, bytes = row * j.z.output_height;
    j.pixels = malloc(bytes);
    if (!j.pixels || to->pitch[0] != row || j.z.image_width == fake_nvjpeg.refuse_width)
        longjmp(j.escape, 1);
    while (j.z.output_scanline < j.z.output_height) {
        JSAMPROW line = j.pixels + j.z.output_scanline * row;
        jpeg_read_scanlines(&j.z, &line, 1);
    }
    jpeg_finish_decompress(&j.z);
    jpeg_destroy_decompress(&j.z);
    int status = copy(to->channel[0], j.pixels, bytes, stream);
    free(j.pixels);
    return status;
}

int nvjpegDecodeBatchedInitialize(struct nvjpegHandle *handle, struct nvjpegJpegState *state,
                                  int batch_size, int max_cpu_threads, int output_format)
{
    if (state->handle != handle || batch_size < 1 || max_cpu_threads < 1 ||
        output_format != NVJPEG_OUTPUT_RGBI)
        atomic_fetch_add(&fake_nvjpeg.misuse, 1);
    state->batch = batch_size;
    return call();
}

int nvjpegDecodeBatched(struct nvjpegHandle *handle, struct nvjpegJpegState *state,
                        const unsigned char *const *data, const size_t *lengths,
                        struct nvjpeg_image *destinations, struct CUstream_st *stream)
{
    int status = call();
    if (state->handle != handle || state->batch < 1)
        atomic_fetch_add(&fake_nvjpeg.misuse, 1);
    if (atomic_fetch_add(&fake_nvjpeg.inside, 1) != 0)
        atomic_fetch_add(&fake_nvjpeg.at_once, 1);
    atomic_store(&fake_nvjpeg.nice_of_decodes, nice_here());
    pass(atomic_load(&fake_nvjpeg.slow_decode_ms));
    for (int i = 1; i < state->batch; i++)
        if (lengths[i] > lengths[i - 1]) /* which takes the engines longer */
            atomic_fetch_add(&fake_nvjpeg.misuse, 1);
    for (int i = 0; i < state->batch && status == 0; i++)
        status = decode(data[i], lengths[i], &destinations[i], stream);
    if (status == 0)
        atomic_fetch_add(handle->backend == NVJPEG_BACKEND_HARDWARE ? &fake_nvjpeg.by_hardware
                                                                    : &fake_nvjpeg.by_kernels,
                         (uint64_t)state->batch);
    else
        atomic_fetch_add(&fake_nvjpeg.failed, 1);
    atomic_fetch_sub(&fake_nvjpeg.inside, 1);
    return status;
}
