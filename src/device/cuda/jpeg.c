/*
 * JPEG on a GPU by nvJPEG, found when first needed: like cuBLAS it is no part of the driver. By the
 * chip's own decoder where it has one, else by nvJPEG's kernels. Not by both: the kernels slow the
 * decoder down to a quarter, and what they add is little.
 *
 * What was measured on an H100, whose decoder has seven engines, and what follows from it:
 * - A call keeps a processor busy until all is decoded, and calls of several threads, or on several
 *   states, hinder each other: two threads make 2/3 of what one makes, four a third. So one call at
 *   a time for each device, whoever makes it.
 * - The engines wait for each other: a batch of pictures in the order of their sizes takes a sixth
 *   less time.
 * - Its reading of a header takes 13 us, a fifth of what decoding the picture takes. So it is
 *   asked by the threads that bring pictures, each with a parser of its own.
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
static pthread_mutex_t one_call[MR_CUDA_MAX_PEERS]; /* of each device; nothing is locked under it */

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
    for (size_t i = 0; i < MR_COUNT(one_call); i++)
        pthread_mutex_init(&one_call[i], NULL);
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

int mr_cuda_jpeg_find(struct mr_device *dev)
{
    const struct mr_cuda *c = dev->state;
    pthread_once(&once, find);
    return nv.why_not[0]
               ? mr_error_set(MR_EUNSUPPORTED, "device %s: decoding JPEG needs nvJPEG: %s", c->name,
                              nv.why_not)
               : 0;
}

static bool knows_hardware(void)
{
    return nv.nvjpegJpegStreamCreate && nv.nvjpegJpegStreamDestroy &&
           nv.nvjpegJpegStreamParseHeader && nv.nvjpegDecodeBatchedSupported;
}

static void close_handle(struct cuda_jpeg *j)
{
    for (int i = 0; i < CUDA_JPEG_PARSERS && j->parser[i].stream; i++) {
        nv.nvjpegJpegStreamDestroy(j->parser[i].stream);
        j->parser[i].stream = NULL;
    }
    if (j->state)
        nv.nvjpegJpegStateDestroy(j->state);
    if (j->handle)
        nv.nvjpegDestroy(j->handle);
    j->state = NULL;
    j->handle = NULL;
}

/* A handle, its state, and parsers for the chip's decoder. A status; then there is none of it. */
static int open_handle(struct cuda_jpeg *j, int backend)
{
    j->hardware = backend == NVJPEG_BACKEND_HARDWARE;
    int status = nv.nvjpegCreateEx(backend, NULL, NULL, 0, &j->handle);
    if (status)
        j->handle = NULL;
    else
        status = nv.nvjpegJpegStateCreate(j->handle, &j->state);
    if (status)
        j->state = NULL;
    for (int i = 0; i < CUDA_JPEG_PARSERS && j->hardware && status == 0; i++) {
        status = nv.nvjpegJpegStreamCreate(j->handle, &j->parser[i].stream);
        if (status)
            j->parser[i].stream = NULL;
    }
    if (status)
        close_handle(j);
    return status;
}

int mr_cuda_jpeg_open(struct mr_device *dev, struct mr_jpeg_unit *unit)
{
    struct mr_cuda *c = dev->state;
    struct cuda_jpeg *j = unit->state;
    int rc = mr_cuda_jpeg_find(dev);
    if (rc < 0)
        return rc;
    rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int status = knows_hardware() ? open_handle(j, NVJPEG_BACKEND_HARDWARE) : -1;
    if (status) /* no error: not each chip has one */
        status = open_handle(j, NVJPEG_BACKEND_GPU_HYBRID);
    if (status)
        status = open_handle(j, NVJPEG_BACKEND_DEFAULT);
    return mr_cuda_leave(c, status ? failed(c, "nvjpegCreateEx", status) : 0);
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
    close_handle(j);
    if (entered)
        mr_cuda_leave(c, 0);
    list_free(&j->list);
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
static bool same_size(const struct cuda_jpeg *j, const struct mr_jpeg *p)
{
    int components = 0, sampling = 0, width[NVJPEG_MAX_COMPONENT] = {0},
        height[NVJPEG_MAX_COMPONENT] = {0};
    return nv.nvjpegGetImageInfo(j->handle, p->bytes, p->n_bytes, &components, &sampling, width,
                                 height) == 0 &&
           (components == 1 || components == 3) && width[0] > 0 && height[0] > 0 &&
           (uint32_t)width[0] == p->width && (uint32_t)height[0] == p->height;
}

/* One that nobody uses. There are more of them than threads that parse at a time, almost always. */
static struct cuda_jpeg_parser *parser_take(struct cuda_jpeg *j)
{
    for (uint32_t i = atomic_fetch_add_explicit(&j->turn, 1, memory_order_relaxed);; i++) {
        struct cuda_jpeg_parser *parser = &j->parser[i % CUDA_JPEG_PARSERS];
        if (!atomic_exchange_explicit(&parser->busy, true, memory_order_acquire))
            return parser;
        if (i % CUDA_JPEG_PARSERS == 0)
            sched_yield();
    }
}

bool mr_cuda_jpeg_takes(struct mr_jpeg_unit *unit, const struct mr_jpeg *p)
{
    struct cuda_jpeg *j = unit->state;
    int no = 1;
    if (!same_size(j, p))
        return false;
    if (!j->hardware)
        return true;
    struct cuda_jpeg_parser *parser = parser_take(j);
    bool parsed =
        nv.nvjpegJpegStreamParseHeader(j->handle, p->bytes, p->n_bytes, parser->stream) == 0 &&
        nv.nvjpegDecodeBatchedSupported(j->handle, parser->stream, &no) == 0;
    atomic_store_explicit(&parser->busy, false, memory_order_release);
    return parsed && no == 0;
}

static int larger_first(const void *a, const void *b, void *pictures)
{
    const struct mr_jpeg *p = pictures;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return p[x].n_bytes != p[y].n_bytes ? p[x].n_bytes < p[y].n_bytes ? 1 : -1 : x < y ? -1 : x > y;
}

static void list_fill(struct cuda_jpeg_list *list, struct mr_jpeg *picture, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list->which[i] = i;
    qsort_r(list->which, n, sizeof *list->which, larger_first, picture);
    for (uint32_t i = 0; i < n; i++) {
        const struct mr_jpeg *p = &picture[list->which[i]];
        list->data[i] = p->bytes;
        list->bytes[i] = p->n_bytes;
        list->to[i] = (struct nvjpeg_image){{p->to}, {(size_t)p->width * 3}};
    }
    list->n = n;
}

/* n pictures of the list. A status. */
static int decode_some(const struct mr_cuda *c, struct cuda_jpeg *j, struct CUstream_st *stream,
                       uint32_t first, uint32_t n)
{
    struct cuda_jpeg_list *list = &j->list;
    pthread_mutex_t *alone = &one_call[(unsigned)c->device % MR_COUNT(one_call)];
    int status = 0;
    pthread_mutex_lock(alone);
    if (j->ready_for != n)
        status =
            nv.nvjpegDecodeBatchedInitialize(j->handle, j->state, (int)n, 1, NVJPEG_OUTPUT_RGBI);
    if (status == 0)
        status = nv.nvjpegDecodeBatched(j->handle, j->state, list->data + first,
                                        list->bytes + first, list->to + first, stream);
    j->ready_for = status ? 0 : n;
    pthread_mutex_unlock(alone);
    return status;
}

/* A batch fails as a whole: one by one it shows which it was. */
static int decode_each(const struct mr_cuda *c, struct cuda_jpeg *j, struct CUstream_st *stream,
                       struct mr_jpeg *picture)
{
    for (uint32_t i = 0; i < j->list.n; i++) {
        if (c->cu->cuStreamSynchronize(stream) != CUDA_SUCCESS) /* one state, used again */
            return NVJPEG_STATUS_EXECUTION_FAILED;
        int status = decode_some(c, j, stream, i, 1);
        if (status && !is_refusal(status))
            return status;
        picture[j->list.which[i]].refused = status != 0;
    }
    return 0;
}

int mr_cuda_jpeg_decode(struct mr_jpeg_unit *unit, struct mr_stream *stream,
                        struct mr_jpeg *picture, uint32_t n)
{
    struct mr_cuda *c = unit->dev->state;
    struct cuda_jpeg *j = unit->state;
    const struct cuda_stream *s = stream->state;
    int rc = list_reserve(&j->list, n);
    if (rc < 0)
        return rc;
    rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    list_fill(&j->list, picture, n);
    int status = decode_some(c, j, s->handle, 0, n);
    if (is_refusal(status))
        status = decode_each(c, j, s->handle, picture);
    return mr_cuda_leave(c, status ? failed(c, "nvjpegDecodeBatched", status) : 0);
}
