/*
 * Streams and events of other libraries on a GPU.
 *
 * Ours are in the GPU's primary context, as are those of the CUDA runtime and of frameworks. A
 * stream of another context would work until the first event, then fail with a bare "invalid
 * handle": it is refused when it is wrapped, with a sentence. The special handles have no context
 * of their own and are not asked for one, which the driver refuses while a stream is captured.
 */
#include "device/cuda/cuda.h"

/* With the context current. */
static int refuse_context(const struct mr_cuda *c, struct CUctx_st *context)
{
    struct CUctx_st *was = NULL;
    int device = -1;
    if (c->cu->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        if (c->cu->cuCtxGetDevice(&device) != CUDA_SUCCESS)
            device = -1;
        c->cu->cuCtxPopCurrent_v2(&was);
    }
    if (device >= 0 && device != c->device)
        return mr_error_set(MR_EMISUSE,
                            "mr_stream_wrap on %s: the stream is of GPU %d: wrap it with a device "
                            "opened as cuda:%d",
                            c->name, device, device);
    return mr_error_set(MR_EMISUSE,
                        "mr_stream_wrap on %s: the stream is of another context than the GPU's "
                        "primary one: create it in the primary context "
                        "(cuDevicePrimaryCtxRetain(), or any call of the CUDA runtime)",
                        c->name);
}

/* With the context current. */
static int check_context(const struct mr_cuda *c, struct CUstream_st *handle)
{
    struct CUctx_st *context = NULL;
    int result = c->cu->cuStreamGetCtx(handle, &context);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuStreamGetCtx(%p)", (void *)handle);
    return context == c->context ? 0 : refuse_context(c, context);
}

int mr_cuda_stream_wrap(struct mr_stream *stream, void *native)
{
    const struct mr_cuda *c = stream->dev->state;
    struct cuda_stream *s = stream->state;
    uintptr_t special = (uintptr_t)native;
    s->handle = native;
    s->legacy = special == 0 || special == CUDA_STREAM_LEGACY;
    atomic_init(&s->shared, true);
    if (s->legacy || special == CUDA_STREAM_PER_THREAD)
        return mr_device_ready(stream->dev);
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c);
    rc = check_context(c, s->handle);
    mr_cuda_unrelax(c, mode);
    return mr_cuda_leave(c, rc);
}

void *mr_cuda_stream_native(struct mr_stream *stream)
{
    struct cuda_stream *s = stream->state;
    atomic_store(&s->shared, true);
    return s->handle;
}

int mr_cuda_stream_capturing(const struct mr_stream *stream)
{
    const struct mr_cuda *c = stream->dev->state;
    struct cuda_stream *s = stream->state;
    int status = 0;
    if (s->legacy || !atomic_load(&s->shared) || atomic_load(&stream->recording))
        return 0;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuStreamIsCapturing(s->handle, &status);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuStreamIsCapturing(\"%s\")", stream->name);
    rc = mr_cuda_leave(c, rc);
    return rc < 0 ? rc : status != 0; /* a spoiled capture is one, until it is ended */
}

/* Both ways end a capture of any stream of the context: nothing is captured now (any.c). Without
 * the driver's call, which takes 0.3 us, the host waits here for all work. */
int mr_cuda_event_record_any(struct mr_event *event)
{
    const struct mr_cuda *c = event->dev->state;
    struct cuda_event *e = event->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuCtxRecordEvent ? c->cu->cuCtxRecordEvent(c->context, e->handle)
                                         : c->cu->cuCtxSynchronize();
    if (result == CUDA_SUCCESS)
        atomic_store(&e->captured, false);
    else
        rc = mr_cuda_error(c->cu, result, c->name, "cuCtxRecordEvent");
    return mr_cuda_leave(c, rc);
}

/* The driver has no call that tells an event's context, and a query would spoil the capture that
 * the event may be a part of. So nothing is checked before it is used. */
int mr_cuda_event_wrap(struct mr_event *event, void *native)
{
    struct cuda_event *e = event->state;
    e->handle = native;
    return mr_device_ready(event->dev);
}

void *mr_cuda_event_native(struct mr_event *event)
{
    const struct cuda_event *e = event->state;
    return e->handle;
}

int mr_cuda_captured_error(const char *call)
{
    return mr_error_set(MR_EMISUSE,
                        "%s: the event was last recorded while its stream was being captured into "
                        "a CUDA graph: it marks a point of that graph, and cannot be asked or "
                        "waited for",
                        call);
}
