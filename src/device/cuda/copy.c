/*
 * Copies on a GPU. Memory that is not page-locked goes through the driver's own staging: the call
 * then blocks for as long as that takes, and the copy engine waits meanwhile. Between two ranges of
 * host memory the calling thread copies.
 */
#include "device/cuda/cuda.h"

#include <string.h>

#define BATCH 512 /* copies per driver call: its arrays are on the stack */

static uint64_t address(const void *ptr)
{
    return (uint64_t)(uintptr_t)ptr;
}

static bool on_device(enum mr_memory kind)
{
    return kind == MR_DEVICE;
}

/* With the context current. */
static int enqueue(const struct mr_cuda *c, const struct mr_stream *stream,
                   const struct mr_copy *copy)
{
    const struct cuda_stream *s = stream->state;
    const char *call;
    int result;
    if (on_device(copy->dst_kind) &&
        on_device(copy->src_kind)) { /* by address: the ends may be on two GPUs */
        call = "cuMemcpyAsync";
        result =
            c->cu->cuMemcpyAsync(address(copy->dst), address(copy->src), copy->bytes, s->handle);
    } else if (on_device(copy->dst_kind)) {
        call = "cuMemcpyHtoDAsync_v2";
        result = c->cu->cuMemcpyHtoDAsync_v2(address(copy->dst), copy->src, copy->bytes, s->handle);
    } else {
        call = "cuMemcpyDtoHAsync_v2";
        result = c->cu->cuMemcpyDtoHAsync_v2(copy->dst, address(copy->src), copy->bytes, s->handle);
    }
    if (result == CUDA_SUCCESS)
        return 0;
    return mr_cuda_error(c->cu, result, c->name, "%s(%llu bytes, %s to %s) in stream \"%s\"", call,
                         (unsigned long long)copy->bytes, mr_memory_name(copy->src_kind),
                         mr_memory_name(copy->dst_kind), stream->name);
}

int mr_cuda_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind,
                       const void *src, enum mr_memory src_kind, uint64_t bytes)
{
    const struct mr_cuda *c = stream->dev->state;
    struct mr_copy copy = {dst, src, bytes, dst_kind, src_kind};
    int rc;
    if (!on_device(dst_kind) && !on_device(src_kind)) {
        rc = mr_cuda_stream_synchronize(stream);
        if (rc >= 0)
            memmove(dst, src, bytes);
        return rc;
    }
    rc = mr_cuda_enter(c);
    return rc < 0 ? rc : mr_cuda_leave(c, enqueue(c, stream, &copy));
}

/* The driver takes batches neither in the legacy default stream nor while a stream is captured. */
static bool stream_takes_batches(const struct mr_stream *stream)
{
    const struct cuda_stream *s = stream->state;
    return !s->legacy && mr_cuda_stream_capturing(stream) == 0;
}

static bool can_batch(const struct mr_cuda *c, const struct mr_copy *copies, uint64_t n)
{
    if (atomic_load(&c->no_batch) || (!c->cu->cuMemcpyBatchAsync_v2 && !c->cu->cuMemcpyBatchAsync))
        return false;
    for (uint64_t i = 0; i < n; i++) {
        const struct mr_copy *copy = &copies[i];
        if (copy->dst_kind == MR_PAGEABLE || copy->src_kind == MR_PAGEABLE ||
            (!on_device(copy->dst_kind) && !on_device(copy->src_kind)))
            return false;
    }
    return true;
}

/* With the context current; n: at most BATCH. Returns the driver's result. */
static int enqueue_batch(const struct mr_cuda *c, const struct mr_stream *stream,
                         const struct mr_copy *copies, size_t n)
{
    const struct cuda_stream *s = stream->state;
    uint64_t dst[BATCH], src[BATCH];
    size_t bytes[BATCH], from = 0, failed = 0;
    struct cuda_copy_attributes attributes = {.source_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    for (size_t i = 0; i < n; i++) {
        dst[i] = address(copies[i].dst);
        src[i] = address(copies[i].src);
        bytes[i] = copies[i].bytes;
    }
    if (c->cu->cuMemcpyBatchAsync_v2)
        return c->cu->cuMemcpyBatchAsync_v2(dst, src, bytes, n, &attributes, &from, 1, s->handle);
    return c->cu->cuMemcpyBatchAsync(dst, src, bytes, n, &attributes, &from, 1, &failed, s->handle);
}

int mr_cuda_copy_batch(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n)
{
    struct mr_cuda *c = stream->dev->state;
    uint64_t at = 0;
    bool taken = stream_takes_batches(stream);
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    while (taken && at < n && rc >= 0 && can_batch(c, copies, n)) {
        uint64_t some = MR_MIN(n - at, (uint64_t)BATCH);
        int result = enqueue_batch(c, stream, copies + at, some);
        if (result == CUDA_ERROR_NOT_SUPPORTED)
            atomic_store(&c->no_batch, true);
        else if (result != CUDA_SUCCESS)
            rc = mr_cuda_error(c->cu, result, c->name,
                               "cuMemcpyBatchAsync(%llu copies) in stream \"%s\"",
                               (unsigned long long)some, stream->name);
        else
            at += some;
    }
    rc = mr_cuda_leave(c, rc);
    for (; at < n && rc >= 0; at++) {
        const struct mr_copy *copy = &copies[at];
        rc = mr_cuda_copy_async(stream, copy->dst, copy->dst_kind, copy->src, copy->src_kind,
                                copy->bytes);
    }
    return rc;
}

int mr_cuda_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                         uint64_t bytes)
{
    const struct mr_cuda *c = stream->dev->state;
    const struct cuda_stream *s = stream->state;
    int rc;
    if (!on_device(kind)) {
        rc = mr_cuda_stream_synchronize(stream);
        if (rc >= 0)
            memset(dst, byte, bytes);
        return rc;
    }
    rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuMemsetD8Async(address(dst), (unsigned char)byte, bytes, s->handle);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuMemsetD8Async(%llu bytes) in stream \"%s\"",
                           (unsigned long long)bytes, stream->name);
    return mr_cuda_leave(c, rc);
}
