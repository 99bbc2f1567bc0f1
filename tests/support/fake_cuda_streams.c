/* Streams of the driver that is not there: a thread each, which does what is enqueued in order. */
#include "fake_cuda_private.h"

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct CUevent_st {
    struct CUevent_st *next;
    bool timing;
    struct mark *mark;           /* NULL: never recorded */
    struct CUstream_st *capture; /* last recorded in this stream's capture; NULL: not captured */
};

static struct CUstream_st *streams;
static struct CUstream_st
    *defaults[3]; /* the special ones, by handle; of one GPU, the first user's */
static _Thread_local int capture_mode;
static struct CUevent_st *events;
static uint64_t ahead_ns;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + ahead_ns;
}

FAKE_API void fake_cuda_advance(uint64_t ns)
{
    pthread_mutex_lock(&fake_lock);
    ahead_ns += ns;
    pthread_mutex_unlock(&fake_lock);
}

FAKE_API uint64_t fake_cuda_forgive(void)
{
    pthread_mutex_lock(&fake_lock);
    uint64_t n = fake_count.misuse;
    fake_count.misuse = 0;
    fake_count.first_misuse[0] = 0;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static void leave_mark(struct mark *mark)
{
    if (mark && --mark->users == 0)
        free(mark);
}

/* Without the lock. */
static void work(const struct op *op)
{
    struct timespec t = {(time_t)(op->busy_ns / 1000000000), (long)(op->busy_ns % 1000000000)};
    if (op->kind == COPY)
        memmove(op->dst, op->src, op->bytes);
    if (op->kind == SET)
        memset(op->dst, op->byte, op->bytes);
    if (op->kind == BUSY)
        nanosleep(&t, NULL);
    t = (struct timespec){0, 20000};
    for (uint64_t waited = 0;
         op->kind == FLAG && __atomic_load_n(op->flag, __ATOMIC_ACQUIRE) == 0 &&
         waited < op->busy_ns;
         waited += 20000)
        nanosleep(&t, NULL);
    if (op->kind == KERNEL)
        op->kernel->run(op->staged);
    for (size_t i = 0; op->kind == SUM && i < op->bytes; i++)
        *(uint32_t *)op->dst += ((const unsigned char *)op->src)[i] * (uint32_t)(i + 1);
}

static void *run_stream(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        struct op *op = s->head;
        if (!op && s->stop)
            break;
        if (!op || (op->kind == WAIT && !op->mark->passed)) {
            pthread_cond_wait(&fake_changed, &fake_lock);
            continue;
        }
        s->working = true;
        pthread_mutex_unlock(&fake_lock);
        work(op);
        pthread_mutex_lock(&fake_lock);
        s->working = false;
        if (op->kind == RECORD && op->mark->n_more-- == 0) {
            op->mark->passed = true;
            op->mark->time_ns = now_ns();
        }
        s->head = op->next;
        if (!s->head)
            s->tail = &s->head;
        leave_mark(op->mark);
        free(op->staged);
        free(op);
        pthread_cond_broadcast(&fake_changed);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

static int start_stream(struct CUstream_st **out)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->tail = &s->head;
    s->context = fake_cuda_current();
    if (pthread_create(&s->thread, NULL, run_stream, s)) {
        free(s);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *out = s;
    return 0;
}

/* Default streams are there as soon as they are used, and stay. */
static struct CUstream_st *default_stream(uintptr_t handle)
{
    struct CUstream_st **s = &defaults[handle ? handle : CUDA_STREAM_LEGACY];
    if (!*s && start_stream(s) == 0) {
        pthread_detach((*s)->thread);
        (*s)->next = streams;
        streams = *s;
    }
    return *s;
}

struct CUstream_st *fake_stream(const char *call, struct CUstream_st *handle)
{
    if ((uintptr_t)handle <= CUDA_STREAM_PER_THREAD)
        return default_stream((uintptr_t)handle);
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s == handle)
            return s;
    fake_misuse(call);
    return NULL;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int was = capture_mode;
    capture_mode = *mode;
    *mode = was;
    return 0;
}

int fake_unsafe(void)
{
    int result = 0;
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (s->capturing && s->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
            capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
            s->broken = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

int cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **out)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    for (struct CUstream_st *s = streams; s && !result; s = s->next) {
        if (s == stream) {
            *out = s->context;
            return fake_end(0);
        }
    }
    return fake_end(result ? result : CUDA_ERROR_INVALID_HANDLE);
}

int cuStreamIsCapturing(struct CUstream_st *stream, int *out)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    struct CUstream_st *s = result ? NULL : fake_stream(__func__, stream);
    if (!result && !s)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        *out = !s->capturing ? 0 : s->broken ? 2 : 1;
    return fake_end(result);
}

static bool is_event(const char *call, const struct CUevent_st *event)
{
    for (const struct CUevent_st *e = events; e; e = e->next)
        if (e == event)
            return true;
    fake_misuse(call);
    return false;
}

/* A call that a capturing stream does not take. */
static int refuse_capture(const char *call, struct CUstream_st *s)
{
    if (!s->capturing)
        return 0;
    fake_misuse(call);
    s->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void drain(struct CUstream_st *s)
{
    while (s->head)
        pthread_cond_wait(&fake_changed, &fake_lock);
}

void fake_wait_all(void)
{
    bool idle = false;
    while (!idle) {
        idle = true;
        for (struct CUstream_st *s = streams; s; s = s->next)
            idle = idle && !s->head;
        if (!idle)
            pthread_cond_wait(&fake_changed, &fake_lock);
    }
}

int fake_enqueue(struct CUstream_st *s, struct op what)
{
    struct op *op = malloc(sizeof *op);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *op = what;
    op->next = NULL;
    struct op ***tail = s->capturing ? &s->recorded_tail : &s->tail;
    **tail = op;
    *tail = &op->next;
    pthread_cond_broadcast(&fake_changed);
    return 0;
}

int fake_enqueue_again(struct CUstream_st *s, struct op op)
{
    if (op.kind == WAIT_LATEST) {
        op.kind = WAIT;
        op.mark = op.event->mark;
        if (!op.mark)
            return 0;
        op.mark->users++;
    }
    return fake_enqueue(s, op);
}

int cuStreamCreate(struct CUstream_st **out, unsigned flags)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    struct CUstream_st *s = NULL;
    if (!result && flags != CU_STREAM_NON_BLOCKING)
        fake_misuse("cuStreamCreate: a stream that waits for the default stream");
    if (!result)
        result = start_stream(&s);
    if (!result) {
        s->next = streams;
        streams = s;
        fake_count.streams++;
        *out = s;
    }
    return fake_end(result);
}

int cuStreamDestroy_v2(struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!fake_stream(__func__, stream))
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    refuse_capture(__func__, stream);
    drain(stream);
    struct CUstream_st **at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    fake_count.streams--;
    stream->stop = true;
    pthread_cond_broadcast(&fake_changed);
    fake_end(0);
    pthread_join(stream->thread, NULL);
    free(stream);
    return result;
}

int cuStreamSynchronize(struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    fake_blocks();
    if (!result && !(stream = fake_stream(__func__, stream)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        result = refuse_capture(__func__, stream);
    if (!result)
        result = fake_unsafe();
    if (!result)
        drain(stream);
    return fake_end(result);
}

/* In a capture: an event of the same capture adds nothing to a graph that is one queue; another one
 * has to be asked for as external. */
static int captured_wait(struct CUstream_st *s, struct CUevent_st *event, unsigned flags)
{
    if (flags == CU_EVENT_WAIT_EXTERNAL)
        return fake_enqueue(s, (struct op){.kind = WAIT_LATEST, .event = event});
    if (event->capture == s)
        return 0;
    s->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result && (!(stream = fake_stream(__func__, stream)) || !is_event(__func__, event)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && stream->capturing)
        return fake_end(captured_wait(stream, event, flags));
    if (!result && (flags || event->capture)) {
        fake_misuse("cuStreamWaitEvent: flags or a captured event outside of the capture");
        result = 1;
    }
    if (!result && event->mark) {
        result = fake_enqueue(stream, (struct op){.kind = WAIT, .mark = event->mark});
        event->mark->users += result == 0;
    }
    return fake_end(result);
}

int cuEventCreate(struct CUevent_st **out, unsigned flags)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    struct CUevent_st *e = NULL;
    if (!result && !(e = calloc(1, sizeof *e)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        e->timing = !(flags & CU_EVENT_DISABLE_TIMING);
        e->next = events;
        events = e;
        fake_count.events++;
        *out = e;
    }
    return fake_end(result);
}

int cuEventDestroy_v2(struct CUevent_st *event)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!is_event(__func__, event))
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    struct CUevent_st **at = &events;
    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    fake_count.events--;
    leave_mark(event->mark);
    free(event);
    return fake_end(result);
}

int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    struct mark *mark = NULL;
    if (!result && (!(stream = fake_stream(__func__, stream)) || !is_event(__func__, event)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && stream->context != fake_cuda_current())
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result) {
        event->capture = stream->capturing ? stream : NULL;
        if (event->capture)
            return fake_end(0);
    }
    if (!result && !(mark = calloc(1, sizeof *mark)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        result = fake_enqueue(stream, (struct op){.kind = RECORD, .mark = mark});
    if (!result) {
        mark->users = 2; /* the event and the record */
        leave_mark(event->mark);
        event->mark = mark;
    } else {
        free(mark);
    }
    return fake_end(result);
}

int fake_break_captures(void)
{
    int result = 0;
    for (struct CUstream_st *s = streams; s; s = s->next) {
        s->broken |= s->capturing;
        result = s->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
    }
    return result;
}

/* Under the lock. */
static int record_all(struct CUevent_st *event)
{
    struct mark *mark = calloc(1, sizeof *mark);
    int n = 0;
    if (!mark)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (struct CUstream_st *s = streams; s; s = s->next)
        n += fake_enqueue(s, (struct op){.kind = RECORD, .mark = mark}) == 0;
    mark->users = 1 + n;
    mark->n_more = n - 1;
    mark->passed = n == 0;
    leave_mark(event->mark);
    event->mark = mark;
    event->capture = NULL;
    return 0;
}

int cuCtxRecordEvent(struct CUctx_st *context, struct CUevent_st *event)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result && (context != fake_cuda_current() || !is_event(__func__, event)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        result = fake_break_captures();
    if (!result)
        result = record_all(event);
    return fake_end(result);
}

/* A query of an event, or a wait for it. */
static int look_at(struct CUevent_st *event)
{
    if (!event->capture)
        return fake_unsafe();
    fake_misuse("a query of a captured event");
    event->capture->broken = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

int cuEventQuery(struct CUevent_st *event)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result && !is_event(__func__, event))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        result = look_at(event);
    if (!result && event->mark && !event->mark->passed)
        result = CUDA_ERROR_NOT_READY;
    return fake_end(result);
}

int cuEventSynchronize(struct CUevent_st *event)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    fake_blocks();
    if (!result && !is_event(__func__, event))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        result = look_at(event);
    if (!result && event->mark) {
        struct mark *mark = event->mark;
        mark->users++;
        while (!mark->passed)
            pthread_cond_wait(&fake_changed, &fake_lock);
        leave_mark(mark);
    }
    return fake_end(result);
}

static int elapsed(const char *call, float *out_ms, struct CUevent_st *start,
                   struct CUevent_st *end)
{
    int result = fake_begin(call, FAKE_CONTEXT);
    if (!result && (!is_event(call, start) || !is_event(call, end) || !start->timing ||
                    !end->timing || !start->mark || !end->mark))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && (!start->mark->passed || !end->mark->passed))
        result = CUDA_ERROR_NOT_READY;
    if (!result)
        *out_ms = (float)((double)(int64_t)(end->mark->time_ns - start->mark->time_ns) * 1e-6);
    return fake_end(result);
}

int cuEventElapsedTime(float *out_ms, struct CUevent_st *start, struct CUevent_st *end)
{
    return elapsed(__func__, out_ms, start, end);
}

int cuEventElapsedTime_v2(float *out_ms, struct CUevent_st *start, struct CUevent_st *end)
{
    return elapsed(__func__, out_ms, start, end);
}

/* Under the lock. Host memory that is not page-locked: its bytes are taken now, or the call waits
 * for them. */
static int copy(const char *call, struct CUstream_st *stream, void *dst, bool to_device,
                const void *src, bool from_device, size_t bytes)
{
    struct op op = {.kind = COPY, .dst = dst, .src = src, .bytes = bytes};
    if (!(stream = fake_stream(call, stream)))
        return CUDA_ERROR_INVALID_HANDLE;
    if ((to_device && !fake_find(dst, bytes, true)) ||
        (from_device && !fake_find(src, bytes, true))) {
        fake_misuse("a copy out of the bounds of device memory");
        return 1;
    }
    bool staged = !from_device && !fake_find(src, bytes, false),
         waits = !to_device && !fake_find(dst, bytes, false);
    if ((staged || waits) && refuse_capture(call, stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (staged) {
        op.staged = malloc(bytes);
        if (!op.staged)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(op.staged, src, bytes);
        op.src = op.staged;
    }
    int result = fake_enqueue(stream, op);
    if (result)
        free(op.staged);
    if (staged || waits)
        fake_blocks();
    if (!result && waits)
        drain(stream);
    return result;
}

int fake_copy_device(const char *call, struct CUstream_st *stream, void *dst, const void *src,
                     size_t bytes)
{
    return copy(call, stream, dst, true, src, true, bytes);
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    return fake_end(
        result ? result : copy(__func__, stream, (void *)(uintptr_t)dst, true, src, false, bytes));
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    return fake_end(
        result ? result : copy(__func__, stream, dst, false, (void *)(uintptr_t)src, true, bytes));
}

/* By address. */
static int copy_any(const char *call, struct CUstream_st *stream, uint64_t dst, uint64_t src,
                    size_t bytes)
{
    void *to = (void *)(uintptr_t)dst, *from = (void *)(uintptr_t)src;
    return copy(call, stream, to, fake_find(to, 1, true), from, fake_find(from, 1, true), bytes);
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    return fake_end(result ? result : copy_any(__func__, stream, dst, src, bytes));
}

static int batch(const char *call, const uint64_t *dst, const uint64_t *src, const size_t *bytes,
                 size_t n, const struct cuda_copy_attributes *attributes, const size_t *from,
                 size_t n_attributes, struct CUstream_st *stream)
{
    int result = fake_begin(call, FAKE_CONTEXT);
    if (!result && getenv("FAKE_CUDA_NO_BATCH"))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (!result && (n == 0 || n_attributes != 1 || from[0] != 0 ||
                    attributes->source_order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM))
        result = 1;
    if (!result && (uintptr_t)stream <= CUDA_STREAM_LEGACY) {
        fake_misuse("a batch of copies in the legacy default stream");
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!result && !(stream = fake_stream(call, stream)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        result = refuse_capture(call, stream);
    fake_count.batches += !result;
    /* Backwards: there is no order within a batch. */
    for (size_t i = n; i-- > 0 && !result;) {
        if (bytes[i] == 0)
            result = 1;
        else
            result = copy_any(call, stream, dst[i], src[i], bytes[i]);
    }
    return fake_end(result);
}

int cuMemcpyBatchAsync(uint64_t *dst, uint64_t *src, size_t *bytes, size_t n,
                       struct cuda_copy_attributes *attributes, size_t *from, size_t n_attributes,
                       size_t *out_failed, struct CUstream_st *stream)
{
    (void)out_failed;
    return batch(__func__, dst, src, bytes, n, attributes, from, n_attributes, stream);
}

int cuMemcpyBatchAsync_v2(uint64_t *dst, uint64_t *src, size_t *bytes, size_t n,
                          struct cuda_copy_attributes *attributes, size_t *from,
                          size_t n_attributes, struct CUstream_st *stream)
{
    return batch(__func__, dst, src, bytes, n, attributes, from, n_attributes, stream);
}

int cuMemsetD8Async(uint64_t dst, unsigned char byte, size_t bytes, struct CUstream_st *stream)
{
    void *ptr = (void *)(uintptr_t)dst;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result && (!(stream = fake_stream(__func__, stream)) || !fake_find(ptr, bytes, true))) {
        fake_misuse("cuMemsetD8Async out of the bounds of device memory");
        result = 1;
    }
    return fake_end(
        result ? result
               : fake_enqueue(stream,
                              (struct op){.kind = SET, .dst = ptr, .byte = byte, .bytes = bytes}));
}

/* Memory that a kernel may touch: the device's, or page-locked. */
static bool reachable(const void *ptr, uint64_t bytes)
{
    return fake_find(ptr, bytes, true) || fake_find(ptr, bytes, false);
}

/* A kernel of the library, with the host's implementation; the memory that it touches has to be the
 * device's. */
static int launch_kernel(struct CUstream_st *stream, const struct mr_kernel *kernel,
                         const void *args)
{
    struct mr_kernel_range touched[MR_KERNEL_RANGES] = {{0}};
    if (kernel->check(args, touched))
        return 1;
    for (int i = 0; i < MR_KERNEL_RANGES; i++)
        if (touched[i].bytes > 0 && !fake_find(touched[i].ptr, touched[i].bytes, true)) {
            fake_misuse("cuLaunchKernel on memory that is not the device's");
            return 1;
        }
    void *copy = malloc(kernel->args_bytes);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, args, kernel->args_bytes);
    int result =
        fake_enqueue(stream, (struct op){.kind = KERNEL, .kernel = kernel, .staged = copy});
    if (result)
        free(copy);
    return result;
}

FAKE_API int fake_cuda_enqueue(struct CUstream_st *stream, const struct mr_kernel *kernel,
                               const void *args)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    void *copy = result ? NULL : malloc(kernel->args_bytes);
    if (!result && (!copy || !(stream = fake_stream(__func__, stream))))
        result = copy ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        memcpy(copy, args, kernel->args_bytes);
        result =
            fake_enqueue(stream, (struct op){.kind = KERNEL, .kernel = kernel, .staged = copy});
    }
    if (result)
        free(copy);
    return fake_end(result);
}

static bool is_it(const struct mr_kernel *k, const void *function)
{
    return k == function;
}

/* A kernel of the hand-written PTX. */
static int launch_simple(struct CUstream_st *stream, int which, void **params)
{
    struct op op = {.kind = BUSY};
    if (which == FAKE_BUSY)
        memcpy(&op.busy_ns, params[0], sizeof op.busy_ns);
    if (which == FAKE_WAIT) {
        op.kind = FLAG;
        memcpy(&op.flag, params[0], sizeof op.flag);
        memcpy(&op.busy_ns, params[1], sizeof op.busy_ns);
    }
    if (which == FAKE_COPY) {
        op.kind = COPY;
        memcpy(&op.dst, params[0], sizeof op.dst);
        memcpy(&op.src, params[1], sizeof op.src);
        memcpy(&op.bytes, params[2], sizeof op.bytes);
    }
    if (which == FAKE_SUM) {
        op.kind = SUM;
        memcpy(&op.src, params[0], sizeof op.src);
        memcpy(&op.bytes, params[1], sizeof op.bytes);
        memcpy(&op.dst, params[2], sizeof op.dst);
    }
    bool bad =
        (which == FAKE_SUM && (!reachable(op.src, op.bytes) || !reachable(op.dst, 4))) ||
        (which == FAKE_WAIT && !reachable((const void *)(uintptr_t)op.flag, 4)) ||
        (which == FAKE_COPY && (!reachable(op.dst, op.bytes) || !reachable(op.src, op.bytes)));
    if (bad)
        fake_misuse("a kernel's pointer is out of the bounds of device and page-locked memory");
    return bad ? CUDA_ERROR_ILLEGAL_ADDRESS : fake_enqueue(stream, op);
}

int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   struct CUstream_st *stream, void **params, void **extra)
{
    (void)shared_bytes, (void)extra;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    const struct mr_kernel *kernel =
        fake_kernel(is_it, function); /* NULL: of the hand-written PTX */
    uintptr_t which = (uintptr_t)function - (uintptr_t)fake_module;
    bool one =
        grid_x == 1 && grid_y == 1 && grid_z == 1 && block_x == 1 && block_y == 1 && block_z == 1;
    bool many =
        grid_x > 0 && grid_y > 0 && grid_y < 65536 && grid_z == 1 && block_x == 256 && block_y == 1;
    bool fits = kernel ? many : which <= FAKE_SUM && (one || which >= FAKE_COPY);
    if (!result && (!function || !fits || !(stream = fake_stream(__func__, stream))))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result)
        return fake_end(result);
    return fake_end(kernel ? launch_kernel(stream, kernel, params[0])
                           : launch_simple(stream, (int)which, params));
}
