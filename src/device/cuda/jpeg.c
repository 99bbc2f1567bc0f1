/*
 * JPEG on a GPU by nvJPEG, found when first needed: like cuBLAS it is no part of the driver. Two
 * handles: the chip's own decoder, where it has one, for the pictures that it takes, and nvJPEG's
 * kernels for the rest.
 */
#include "device/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
#define X(symbol, arguments) int(*symbol) arguments;
    NVJPEG_REQUIRED(X)
    NVJPEG_OPTIONAL(X)
#undef X
    char why_not[400]; /* "": usable */
} nv;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Never closed: it has handlers of its own. */
static void *open_any(void)
{
    static const char *const names[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"};
    const char *path = getenv("MILLRACE_NVJPEG");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !library) {
        const char *text = dlerror();
        snprintf(nv.why_not, sizeof nv.why_not, "MILLRACE_NVJPEG: %.300s", text ? text : path);
        return NULL;
    }
    for (size_t i = 0; i < MR_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(nv.why_not, sizeof nv.why_not,
                 "none of libnvjpeg.so.13, .12 and .11 was found: add its folder to "
                 "LD_LIBRARY_PATH, or name the file "
                 "by MILLRACE_NVJPEG (the Python package nvidia-nvjpeg has it)");
    return library;
}

static void find(void)
{
    void *library = open_any();
    if (!library)
        return;
#define X(symbol, arguments)                                                                       \
    *(void **)(void *)&nv.symbol = dlsym(library, #symbol);                                        \
    if (!nv.symbol)                                                                                \
        snprintf(nv.why_not, sizeof nv.why_not, "the library that was found has no %s", #symbol);
    NVJPEG_REQUIRED(X)
#undef X
#define X(symbol, arguments) *(void **)(void *)&nv.symbol = dlsym(library, #symbol);
    NVJPEG_OPTIONAL(X)
#undef X
}

static int failed(const struct mr_cuda *c, const char *call, int status)
{
    return mr_error_set(
        MR_EDEVICE, "%s on %s: nvjpegStatus_t %d%s", call, c->name, status,
        status == NVJPEG_STATUS_ALLOCATOR_FAILURE
            ? " (NVJPEG_STATUS_ALLOCATOR_FAILURE: out of device memory; lower --batch-size)"
        : status == NVJPEG_STATUS_EXECUTION_FAILED ? " (NVJPEG_STATUS_EXECUTION_FAILED)"
                                                   : "");
}

static bool knows_hardware(void)
{
    return nv.nvjpegJpegStreamCreate && nv.nvjpegJpegStreamDestroy &&
           nv.nvjpegJpegStreamParseHeader && nv.nvjpegDecodeBatchedSupported;
}

/* A handle and its state; a status. */
static int open_half(struct cuda_jpeg_half *half, int backend)
{
    int status = nv.nvjpegCreateEx(backend, NULL, NULL, 0, &half->handle);
    if (status) {
        half->handle = NULL;
        return status;
    }
    status = nv.nvjpegJpegStateCreate(half->handle, &half->state);
    if (status)
        half->state = NULL;
    return status;
}

static void close_half(struct cuda_jpeg_half *half)
{
    if (half->state)
        nv.nvjpegJpegStateDestroy(half->state);
    if (half->handle)
        nv.nvjpegDestroy(half->handle);
    half->state = NULL;
    half->handle = NULL;
}

/* The chip's decoder: no error where there is none. */
static void open_hardware(struct cuda_jpeg *j)
{
    if (!knows_hardware())
        return;
    if (open_half(&j->hardware, NVJPEG_BACKEND_HARDWARE) ||
        nv.nvjpegJpegStreamCreate(j->hardware.handle, &j->header)) {
        j->header = NULL;
        close_half(&j->hardware);
    }
}

int mr_cuda_jpeg_open(struct mr_device *dev, struct mr_jpeg_unit *unit)
{
    struct mr_cuda *c = dev->state;
    struct cuda_jpeg *j = unit->state;
    pthread_once(&once, find);
    if (nv.why_not[0])
        return mr_error_set(MR_EUNSUPPORTED, "device %s: decoding JPEG needs nvJPEG: %s", c->name,
                            nv.why_not);
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int status = open_half(&j->kernels, NVJPEG_BACKEND_GPU_HYBRID);
    if (status) {
        close_half(&j->kernels);
        status = open_half(&j->kernels, NVJPEG_BACKEND_DEFAULT);
    }
    if (status)
        goto fail;
    status = nv.nvjpegJpegStateCreate(j->kernels.handle, &j->single);
    if (status)
        goto fail;
    open_hardware(j);
    return mr_cuda_leave(c, 0);
fail:
    return mr_cuda_leave(c, failed(c, "nvjpegCreateEx", status));
}

static void list_free(struct cuda_jpeg_list *list)
{
    free(list->data);
    free(list->bytes);
    free(list->to);
    free(list->which);
    *list = (struct cuda_jpeg_list){.cap = 0};
}

void mr_cuda_jpeg_close(struct mr_jpeg_unit *unit)
{
    struct mr_cuda *c = unit->dev->state;
    struct cuda_jpeg *j = unit->state;
    bool entered = mr_cuda_enter_to_release(c) == 0;
    if (j->header)
        nv.nvjpegJpegStreamDestroy(j->header);
    if (j->single)
        nv.nvjpegJpegStateDestroy(j->single);
    close_half(&j->hardware);
    close_half(&j->kernels);
    if (entered)
        mr_cuda_leave(c, 0);
    list_free(&j->hardware.list);
    list_free(&j->kernels.list);
}

static int list_reserve(struct cuda_jpeg_list *list, uint32_t n)
{
    if (n <= list->cap)
        return 0;
    list_free(list);
    list->data = calloc(n, sizeof *list->data);
    list->bytes = calloc(n, sizeof *list->bytes);
    list->to = calloc(n, sizeof *list->to);
    list->which = calloc(n, sizeof *list->which);
    if (!list->data || !list->bytes || !list->to || !list->which) {
        list_free(list);
        return mr_error_nomem("JPEG decoder", n * (sizeof *list->data + sizeof *list->to));
    }
    list->cap = n;
    return 0;
}

/* Says about the picture, not about the device. */
static bool is_refusal(int status)
{
    return status == NVJPEG_STATUS_BAD_JPEG || status == NVJPEG_STATUS_JPEG_NOT_SUPPORTED ||
           status == NVJPEG_STATUS_INVALID_PARAMETER ||
           status == NVJPEG_STATUS_INCOMPLETE_BITSTREAM ||
           status == NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED ||
           status == NVJPEG_STATUS_INTERNAL_ERROR;
}

/* Another parser sized the picture's memory: both must have read the same size. */
static bool same_size(struct cuda_jpeg *j, const struct mr_jpeg *p)
{
    int components = 0, sampling = 0, width[NVJPEG_MAX_COMPONENT] = {0},
        height[NVJPEG_MAX_COMPONENT] = {0};
    return nv.nvjpegGetImageInfo(j->kernels.handle, p->bytes, p->n_bytes, &components, &sampling,
                                 width, height) == 0 &&
           (components == 1 || components == 3) && width[0] > 0 && height[0] > 0 &&
           (uint32_t)width[0] == p->width && (uint32_t)height[0] == p->height;
}

static bool hardware_takes(struct cuda_jpeg *j, const struct mr_jpeg *p)
{
    int no = 1;
    return j->hardware.handle &&
           nv.nvjpegJpegStreamParseHeader(j->hardware.handle, p->bytes, p->n_bytes, j->header) ==
               0 &&
           nv.nvjpegDecodeBatchedSupported(j->hardware.handle, j->header, &no) == 0 && no == 0;
}

static void sort_out(struct cuda_jpeg *j, struct mr_jpeg *picture, uint32_t n)
{
    j->hardware.list.n = j->kernels.list.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct mr_jpeg *p = &picture[i];
        p->refused = !same_size(j, p);
        if (p->refused)
            continue;
        struct cuda_jpeg_list *list = hardware_takes(j, p) ? &j->hardware.list : &j->kernels.list;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): list_reserve() has made it */
        list->data[list->n] = p->bytes;
        list->bytes[list->n] = p->n_bytes;
        list->to[list->n] = (struct nvjpeg_image){{p->to}, {(size_t)p->width * 3}};
        list->which[list->n++] = i;
    }
}

/* A batch fails as a whole: one by one it shows which it was. */
static int decode_each(const struct mr_cuda *c, struct cuda_jpeg *j, struct CUstream_st *stream,
                       const struct cuda_jpeg_list *list, struct mr_jpeg *picture)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (c->cu->cuStreamSynchronize(stream) != CUDA_SUCCESS) /* one state, used again */
            return NVJPEG_STATUS_EXECUTION_FAILED;
        int status = nv.nvjpegDecode(j->kernels.handle, j->single, list->data[i], list->bytes[i],
                                     NVJPEG_OUTPUT_RGBI, &list->to[i], stream);
        if (status && !is_refusal(status))
            return status;
        picture[list->which[i]].refused = status != 0;
    }
    return 0;
}

static int decode_half(const struct mr_cuda *c, struct cuda_jpeg *j, struct cuda_jpeg_half *half,
                       struct CUstream_st *stream, struct mr_jpeg *picture)
{
    struct cuda_jpeg_list *list = &half->list;
    int status = 0;
    if (list->n == 0)
        return 0;
    if (half->ready_for != list->n)
        status = nv.nvjpegDecodeBatchedInitialize(half->handle, half->state, (int)list->n, 1,
                                                  NVJPEG_OUTPUT_RGBI);
    if (status)
        goto fail;
    half->ready_for = list->n;
    status = nv.nvjpegDecodeBatched(half->handle, half->state, list->data, list->bytes, list->to,
                                    stream);
    if (status)
        goto fail;
    return 0;
fail:
    half->ready_for = 0;
    return is_refusal(status) ? decode_each(c, j, stream, list, picture) : status;
}

int mr_cuda_jpeg_decode(struct mr_jpeg_unit *unit, struct mr_stream *stream,
                        struct mr_jpeg *picture, uint32_t n)
{
    struct mr_cuda *c = unit->dev->state;
    struct cuda_jpeg *j = unit->state;
    const struct cuda_stream *s = stream->state;
    int rc = list_reserve(&j->hardware.list, n);
    if (rc < 0)
        return rc;
    rc = list_reserve(&j->kernels.list, n);
    if (rc < 0)
        return rc;
    rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    sort_out(j, picture, n);
    int status = decode_half(c, j, &j->hardware, s->handle, picture);
    if (status)
        goto fail;
    status = decode_half(c, j, &j->kernels, s->handle, picture);
    if (status)
        goto fail;
    return mr_cuda_leave(c, 0);
fail:
    return mr_cuda_leave(c, failed(c, "nvjpegDecodeBatched", status));
}
