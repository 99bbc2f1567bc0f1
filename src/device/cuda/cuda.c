/* The device "cuda": NVIDIA GPUs by the driver API. Options, context, streams, events, and the
 * vtable. */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SPIN_NS      20000 /* sleeping and waking takes longer */
#define LEAST_NAP_NS 5000
#define MOST_NAP_NS  200000

static const char *const pinned_names[] = {
    [CUDA_PINNED_REGISTER] = "register", [CUDA_PINNED_ALLOC] = "alloc", NULL};

static const struct mr_option options[] = {
    {.name = "device",
     .type = MR_OPT_INT,
     .offset = offsetof(struct cuda_options, ordinal),
     .initial = "0",
     .help = "which GPU, as the driver numbers those that this process sees"},
    {.name = "pinned",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct cuda_options, pinned),
     .initial = "register",
     .choices = pinned_names,
     .help = "how page-locked memory is made: pages touched in parallel and registered, or by the "
             "driver"},
    {.name = NULL},
};

static const char *const positional[] = {"device", NULL};

static int ready(const struct mr_device *dev)
{
    const struct mr_cuda *c = dev->state;
    return mr_cuda_is_forked() ? mr_cuda_forked_error(c->name[0] ? c->name : "cuda") : 0;
}

static int enter(const struct mr_device *dev)
{
    return mr_cuda_enter(dev->state);
}

static void leave(const struct mr_device *dev)
{
    mr_cuda_leave(dev->state, 0);
}

static int check_ordinal(const struct mr_cuda_driver *cu, int64_t ordinal)
{
    char last[32] = "", visible[128] = "";
    if (ordinal >= 0 && ordinal < cu->n_devices)
        return 0;
    if (cu->n_devices > 1)
        snprintf(last, sizeof last, " to cuda:%d", cu->n_devices - 1);
    if (getenv("CUDA_VISIBLE_DEVICES"))
        snprintf(visible, sizeof visible, "; CUDA_VISIBLE_DEVICES is \"%.64s\"",
                 getenv("CUDA_VISIBLE_DEVICES"));
    return mr_error_set(
        MR_ENODEVICE, "device cuda:%lld: there is no such GPU; %d %s here: cuda:0%s%s",
        (long long)ordinal, cu->n_devices, cu->n_devices == 1 ? "is" : "are", last, visible);
}

static int open_cuda(struct mr_device *dev, const void *opts)
{
    static _Atomic uint64_t opened;
    struct mr_cuda *c = dev->state;
    c->serial = atomic_fetch_add(&opened, 1) + 1;
    c->opts = *(const struct cuda_options *)opts;
    int rc = mr_cuda_driver_get(&c->cu);
    if (rc >= 0)
        rc = check_ordinal(c->cu, c->opts.ordinal);
    if (rc < 0)
        return rc;
    snprintf(c->name, sizeof c->name, "cuda:%d", (int)c->opts.ordinal);
    int result = c->cu->cuDeviceGet(&c->device, (int)c->opts.ordinal);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuDeviceGet");
    rc = mr_cuda_look_up(c);
    if (rc < 0)
        return rc;
    uint64_t free_bytes = mr_nvml_free_bytes(c->fixed.pci_id);
    result = c->cu->cuDevicePrimaryCtxRetain(&c->context, c->device);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuDevicePrimaryCtxRetain");
    uint64_t left = mr_nvml_free_bytes(c->fixed.pci_id);
    c->fixed.context_bytes = left && left < free_bytes ? free_bytes - left : 0;
    pthread_mutex_init(&c->lock, NULL);
    return 0;
}

static void close_cuda(struct mr_device *dev)
{
    struct mr_cuda *c = dev->state;
    if (!mr_cuda_is_forked()) {
        if (mr_cuda_enter_to_release(c) >= 0) {
            mr_cuda_blas_close(c);
            mr_cuda_unload(c);
            mr_cuda_clock_close(c);
            mr_cuda_leave(c, 0);
        }
        c->cu->cuDevicePrimaryCtxRelease_v2(c->device);
    }
    pthread_mutex_destroy(&c->lock);
}

int mr_cuda_stream_synchronize(struct mr_stream *stream)
{
    const struct mr_cuda *c = stream->dev->state;
    const struct cuda_stream *s = stream->state;
    int capturing = mr_cuda_stream_capturing(stream);
    if (capturing > 0)
        return mr_error_set(
            MR_EMISUSE,
            "stream \"%s\" is being captured into a CUDA graph and cannot be waited "
            "for: end the capture first",
            stream->name);
    int rc = capturing < 0 ? capturing : mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c);
    int result = c->cu->cuStreamSynchronize(s->handle);
    mr_cuda_unrelax(c, mode);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuStreamSynchronize(\"%s\")", stream->name);
    return mr_cuda_leave(c, rc);
}

static void stream_close(struct mr_stream *stream)
{
    const struct mr_cuda *c = stream->dev->state;
    const struct cuda_stream *s = stream->state;
    mr_cuda_stream_synchronize(stream);
    if (mr_cuda_enter_to_release(c) < 0)
        return;
    c->cu->cuStreamDestroy_v2(s->handle);
    mr_cuda_leave(c, 0);
}

static int stream_open(struct mr_stream *stream)
{
    const struct mr_cuda *c = stream->dev->state;
    struct cuda_stream *s = stream->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuStreamCreate(&s->handle, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuStreamCreate(\"%s\")", stream->name);
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        stream_close(stream);
    return left;
}

static void event_close(struct mr_event *event)
{
    struct mr_cuda *c = event->dev->state;
    struct cuda_event *e = event->state;
    if (mr_cuda_enter_to_release(c) < 0)
        return;
    mr_cuda_clock_forget(c, e);
    c->cu->cuEventDestroy_v2(e->handle);
    mr_cuda_leave(c, 0);
}

/*
 * Threads that wait sleep: there are as many workers as processors, and they have other work. An
 * event that can wake a thread interrupts the host each time it passes, whether or not a thread
 * waits; those without timing, of which every batch has two, are looked at in between instead.
 */
static int event_open(struct mr_event *event)
{
    const struct mr_cuda *c = event->dev->state;
    struct cuda_event *e = event->state;
    unsigned flags = event->timing ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DISABLE_TIMING;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuEventCreate(&e->handle, flags);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuEventCreate");
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        event_close(event);
    return left;
}

static int event_record(struct mr_event *event, struct mr_stream *stream)
{
    struct mr_cuda *c = event->dev->state;
    struct cuda_event *e = event->state;
    const struct cuda_stream *s = stream->state;
    int capturing = mr_cuda_stream_capturing(stream);
    int rc = capturing < 0 ? capturing : mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    if (event->timing && !event->borrowed && !capturing)
        mr_cuda_clock_mark(c, e);
    int result = c->cu->cuEventRecord(e->handle, s->handle);
    if (result == CUDA_SUCCESS)
        atomic_store(&e->captured, capturing > 0);
    else
        rc = mr_cuda_error(c->cu, result, c->name, "cuEventRecord in stream \"%s\"", stream->name);
    return mr_cuda_leave(c, rc);
}

/* How the driver has to be asked to wait, with the context current. [out] flags. Returns its
 * result, CUDA_ERROR_NOT_READY: wait. */
static int how_to_wait(const struct mr_cuda *c, const struct mr_event *event, bool capturing,
                       unsigned *flags)
{
    struct cuda_event *e = event->state;
    *flags = 0;
    if (!capturing || event->borrowed || atomic_load(&e->captured))
        return CUDA_ERROR_NOT_READY;
    *flags = CU_EVENT_WAIT_EXTERNAL; /* it was recorded outside of the capture */
    int mode = mr_cuda_relax(c), result = c->cu->cuEventQuery(e->handle);
    mr_cuda_unrelax(c, mode);
    return result;
}

/* The event may be of another GPU: what counts is the stream's context. */
static int event_wait(struct mr_stream *stream, struct mr_event *event)
{
    const struct mr_cuda *c = stream->dev->state;
    struct cuda_event *e = event->state;
    struct cuda_stream *s = stream->state;
    unsigned flags;
    int capturing = mr_cuda_stream_capturing(stream);
    int rc = capturing < 0 ? capturing : mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    if (atomic_load(&e->captured))
        atomic_store(&s->shared, true); /* the stream joins the capture */
    int result = how_to_wait(c, event, capturing > 0, &flags);
    if (result == CUDA_ERROR_NOT_READY)
        result = c->cu->cuStreamWaitEvent(s->handle, e->handle, flags);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuStreamWaitEvent in stream \"%s\"",
                           stream->name);
    return mr_cuda_leave(c, rc);
}

static int event_query(struct mr_event *event)
{
    const struct mr_cuda *c = event->dev->state;
    struct cuda_event *e = event->state;
    if (atomic_load(&e->captured))
        return mr_cuda_captured_error("mr_event_query");
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c), result = c->cu->cuEventQuery(e->handle);
    mr_cuda_unrelax(c, mode);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        rc = mr_cuda_error(c->cu, result, c->name, "cuEventQuery");
    rc = mr_cuda_leave(c, rc);
    return rc < 0 ? rc : result == CUDA_SUCCESS;
}

/* An eighth of the time waited so far: that is how much later than it could the wait may end. */
static void nap(uint64_t waited)
{
    struct timespec t = {.tv_nsec = (long)MR_MAX(MR_MIN(waited / 8, MOST_NAP_NS), LEAST_NAP_NS)};
    nanosleep(&t, NULL);
}

static int event_synchronize(struct mr_event *event)
{
    const struct mr_cuda *c = event->dev->state;
    struct cuda_event *e = event->state;
    if (atomic_load(&e->captured))
        return mr_cuda_captured_error("mr_event_synchronize");
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns(), waited = 0;
    int mode = mr_cuda_relax(c), result = c->cu->cuEventQuery(e->handle);
    while (result == CUDA_ERROR_NOT_READY && (waited < SPIN_NS || !event->timing)) {
        if (waited >= SPIN_NS)
            nap(waited);
        result = c->cu->cuEventQuery(e->handle);
        waited = mr_time_ns() - start;
    }
    if (result == CUDA_ERROR_NOT_READY)
        result = c->cu->cuEventSynchronize(e->handle);
    mr_cuda_unrelax(c, mode);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuEventSynchronize");
    return mr_cuda_leave(c, rc);
}

static int event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns)
{
    struct mr_cuda *c = start->dev->state;
    int64_t ns = 0;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = mr_cuda_clock_elapsed(c, start->state, end->state, &ns);
    if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_INVALID_HANDLE)
        rc = mr_error_set(MR_EMISUSE,
                          "mr_event_elapsed: an event was not recorded or has not passed yet");
    else if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuEventElapsedTime");
    rc = mr_cuda_leave(c, rc);
    if (rc >= 0)
        *out_ns = ns;
    return rc;
}

const struct mr_device_ops mr_device_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .options = options,
    .positional = positional,
    .opts_size = sizeof(struct cuda_options),
    .state_size = sizeof(struct mr_cuda),
    .probe = mr_cuda_driver_why_not,
    .ready = ready,
    .enter = enter,
    .leave = leave,
    .open = open_cuda,
    .close = close_cuda,
    .query = mr_cuda_query,
    .near = mr_cuda_near,
    .processes = mr_cuda_processes,
    .memory_create = mr_cuda_memory_create,
    .memory_destroy = mr_cuda_memory_destroy,
    .host_create = mr_cuda_host_create,
    .host_destroy = mr_cuda_host_destroy,
    .memory_register = mr_cuda_memory_register,
    .memory_unregister = mr_cuda_memory_unregister,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_synchronize = mr_cuda_stream_synchronize,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_record_any = mr_cuda_event_record_any,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .stream_wrap = mr_cuda_stream_wrap,
    .stream_native = mr_cuda_stream_native,
    .stream_capturing = mr_cuda_stream_capturing,
    .event_wrap = mr_cuda_event_wrap,
    .event_native = mr_cuda_event_native,
    .copy_async = mr_cuda_copy_async,
    .copy_batch = mr_cuda_copy_batch,
    .memset_async = mr_cuda_memset_async,
    .reach = mr_cuda_reach,
    .copy_peer = mr_cuda_copy_peer,
    .jpeg_find = mr_cuda_jpeg_find,
    .jpeg_open = mr_cuda_jpeg_open,
    .jpeg_takes = mr_cuda_jpeg_takes,
    .jpeg_close = mr_cuda_jpeg_close,
    .jpeg_decode = mr_cuda_jpeg_decode,
    .jpeg_size = sizeof(struct cuda_jpeg),
    .files_open = mr_cuda_files_open,
    .files_close = mr_cuda_files_close,
    .file_open = mr_cuda_file_open,
    .file_close = mr_cuda_file_close,
    .file_register = mr_cuda_file_register,
    .file_unregister = mr_cuda_file_unregister,
    .file_read = mr_cuda_file_read,
    .launch = mr_cuda_launch,
    .launch_simple = mr_cuda_launch_simple,
    .graph_begin = mr_cuda_graph_begin,
    .graph_end = mr_cuda_graph_end,
    .graph_launch = mr_cuda_graph_launch,
    .graph_close = mr_cuda_graph_close,
    .graph_size = sizeof(struct cuda_graph),
    .load = mr_cuda_load,
    .n_simple = MR_N_SIMPLE,
    .stream_size = sizeof(struct cuda_stream),
    .event_size = sizeof(struct cuda_event),
};
