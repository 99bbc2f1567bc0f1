/* The engine on NCCL: sums of device memory are only enqueued, and can be recorded. */
#include "comm/nccl.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "kernels/sum/sum.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS  200000
#define SPIN_NS 500000 /* a call that only enqueues ends within tens of us */

int mr_nccl_failed(struct mr_comm *c, const char *call, int result)
{
    struct mr_nccl *r = mr_nccl_of(c);
    const char *more = r->nccl.ncclGetLastError(r->comm);
    struct mr_device_info info = {.size = sizeof info};
    mr_device_query(r->device, &info);
    c->speaker = c->rank;
    return mr_error_set(MR_EPEER, "comm: rank %u of %u (%s, %s): %s: %.100s%s%.300s", c->rank,
                        c->world, r->node, info.name, call, r->nccl.ncclGetErrorString(result),
                        more && *more ? ": " : "", more ? more : "");
}

int mr_nccl_settle(struct mr_comm *c, const char *call, int result)
{
    struct mr_nccl *r = mr_nccl_of(c);
    const struct timespec nap = {0, NAP_NS};
    const uint64_t start = mr_time_ns();
    while (result == NCCL_IN_PROGRESS) {
        int error = NCCL_SUCCESS;
        if (mr_time_ns() - c->call_ns > c->opts.timeout_ns) {
            snprintf(r->watch.failure, sizeof r->watch.failure,
                     "comm: rank %u of %u (%s): %s did not end in %.1f s: not all ranks came",
                     c->rank, c->world, r->node, call, (double)c->opts.timeout_ns * 1e-9);
            mr_nccl_abort(c);
            c->speaker = c->rank;
            return mr_error_set(MR_EPEER, "%s", r->watch.failure);
        }
        result = r->nccl.ncclCommGetAsyncError(r->comm, &error);
        if (result == NCCL_SUCCESS)
            result = error;
        if (result != NCCL_IN_PROGRESS)
            break;
        if (mr_time_ns() - start > SPIN_NS)
            nanosleep(&nap, NULL);
        else
            sched_yield(); /* mpirun may have bound both to one core: NCCL's thread needs it */
    }
    return result == NCCL_SUCCESS ? 0 : mr_nccl_failed(c, call, result);
}

static int open_nccl(struct mr_comm *c)
{
    struct mr_nccl *r = c->impl = calloc(1, sizeof *r);
    if (!r)
        return mr_error_nomem("comm", sizeof *r);
    pthread_mutex_init(&r->watch.lock, NULL);
    pthread_mutex_init(&r->control_lock, NULL);
    mr_cond_init(&r->watch.changed);
    return mr_nccl_join(c);
}

struct CUstream_st *mr_nccl_stream(const struct mr_stream *stream)
{
    const struct cuda_stream *s = stream->state;
    return s->handle;
}

int mr_nccl_type(enum mr_dtype dtype)
{
    return dtype == MR_F32 ? NCCL_FLOAT32 : dtype == MR_F64 ? NCCL_FLOAT64 : NCCL_BFLOAT16;
}

/* Device memory. What a graph may use stays until the end. */
int mr_nccl_make_room(struct mr_comm *c, uint64_t bytes)
{
    struct mr_nccl *r = mr_nccl_of(c);
    void *room;
    if (bytes <= r->room_bytes)
        return 0;
    bytes = MR_MAX(bytes, 2 * r->room_bytes);
    int rc = mr_memory_acquire(r->device, MR_DEVICE, bytes, &room);
    if (rc < 0)
        return rc;
    if (r->room)
        r->old[r->n_old++] = r->room;
    r->room = room;
    r->room_bytes = bytes;
    return 0;
}

int mr_nccl_cast(struct mr_stream *stream, void *to, const void *from, uint64_t n,
                 enum mr_dtype to_dtype)
{
    const struct mr_sum_cast args = {.to = to, .from = from, .count = n, .to_dtype = to_dtype};
    return mr_launch_kernel(stream, &mr_sum_kernel[MR_SUM_KERNEL_cast], &args, NULL);
}

int mr_nccl_swap(struct mr_comm *c, const struct mr_nccl_swap *s, struct mr_stream *stream)
{
    const struct mr_nccl *r = mr_nccl_of(c);
    const char *call = "ncclGroupStart";
    int result = r->nccl.ncclGroupStart();
    if (result != NCCL_SUCCESS)
        return mr_nccl_failed(c, call, result);
    if (s->n_give) {
        call = "ncclSend";
        result =
            r->nccl.ncclSend(s->give, s->n_give, s->type, s->to, r->comm, mr_nccl_stream(stream));
    }
    if (s->n_keep && (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)) {
        call = "ncclRecv";
        result =
            r->nccl.ncclRecv(s->keep, s->n_keep, s->type, s->from, r->comm, mr_nccl_stream(stream));
    }
    int ended = r->nccl.ncclGroupEnd();
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return mr_nccl_failed(c, call, result);
    return mr_nccl_settle(c, "ncclGroupEnd", ended);
}

/* Recursive doubling, as by MPI: a + b is b + a. */
static int tree(struct mr_comm *c, void *data, const struct mr_comm_array *a,
                struct mr_stream *stream)
{
    struct mr_nccl *r = mr_nccl_of(c);
    const bool low = a->wire != a->dtype;
    char *in = r->room, *out = low ? in + 2 * a->n : data;
    const struct mr_sum_add add = {.to = data,
                                   .from = in,
                                   .count = a->n,
                                   .dtype = a->dtype,
                                   .from_dtype = a->wire,
                                   .round = low};
    for (uint32_t h = c->world / 2; h >= 1; h /= 2) {
        int rc = low ? mr_nccl_cast(stream, out, data, a->n, MR_BF16) : 0;
        if (rc < 0)
            return rc;
        const struct mr_nccl_swap whole = {
            (int)(c->rank ^ h), (int)(c->rank ^ h), mr_nccl_type(a->wire), out, in, a->n, a->n};
        rc = mr_nccl_swap(c, &whole, stream);
        if (rc < 0)
            return rc;
        rc = mr_launch_kernel(stream, &mr_sum_kernel[MR_SUM_KERNEL_add], &add, NULL);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int fast(struct mr_comm *c, const void *in, void *data, const struct mr_comm_array *a,
                struct mr_stream *stream)
{
    struct mr_nccl *r = mr_nccl_of(c);
    const bool low = a->wire != a->dtype;
    void *at = low ? r->room : data;
    int rc = low ? mr_nccl_cast(stream, at, in, a->n, MR_BF16) : 0;
    if (rc < 0)
        return rc;
    rc = mr_nccl_settle(c, "ncclAllReduce",
                        r->nccl.ncclAllReduce(low ? at : in, at, a->n, mr_nccl_type(a->wire),
                                              NCCL_SUM, r->comm, mr_nccl_stream(stream)));
    return rc < 0 || !low ? rc : mr_nccl_cast(stream, data, at, a->n, MR_F32);
}

static int enqueue(struct mr_comm *c, const void *in, void *data, const struct mr_comm_array *a,
                   struct mr_stream *stream)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (stream->dev != r->device)
        return mr_error_set(MR_EMISUSE, "mr_comm_sum: engine nccl: expected a stream of the "
                                        "communicator's device");
    if (a->n == 0)
        return 0;
    /* of two ranks there is one order: a + b is b + a */
    bool plain = a->wire == a->dtype;
    bool any_order = a->order == MR_SUM_FAST || (plain && c->world == 2);
    int rc = any_order && plain ? 0 : mr_nccl_make_room(c, a->n * mr_dtype_size(a->dtype));
    if (rc < 0)
        return rc;
    rc = mr_device_enter(stream->dev);
    if (rc < 0)
        return rc;
    if (any_order)
        rc = fast(c, in, data, a, stream);
    else {
        rc = mr_comm_place(in, data, a, stream);
        rc = rc < 0 ? rc : tree(c, data, a, stream);
    }
    mr_device_leave(stream->dev);
    return rc;
}

static int sum_device(struct mr_comm *c, const void *in, void *data, const struct mr_comm_array *a,
                      struct mr_stream *stream)
{
    int rc = enqueue(c, in, data, a, stream);
    if (rc < 0 || atomic_load(&stream->recording))
        return rc;
    return mr_nccl_watch(c, stream);
}

/* ---- host memory, without MPI: through a buffer on the device ---- */

int mr_nccl_wait_own(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    int rc = mr_nccl_watch(c, r->stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_synchronize(r->stream);
    int failed = mr_nccl_check(c);
    return failed < 0 ? failed : rc;
}

int mr_nccl_take_host(struct mr_comm *c, uint64_t bytes)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (bytes <= r->host_bytes)
        return 0;
    mr_memory_release(r->device, MR_DEVICE, r->host, NULL);
    r->host = NULL;
    r->host_bytes = 0;
    int rc = mr_memory_acquire(r->device, MR_DEVICE, bytes, &r->host);
    if (rc == 0)
        r->host_bytes = bytes;
    return rc;
}

static int copy(struct mr_comm *c, void *to, enum mr_memory to_kind, const void *from,
                enum mr_memory from_kind, uint64_t bytes)
{
    return mr_copy_async(mr_nccl_of(c)->stream, to, to_kind, from, from_kind, bytes);
}

struct mr_comm *mr_nccl_control(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (r->control)
        pthread_mutex_lock(&r->control_lock);
    return r->control;
}

int mr_nccl_control_done(struct mr_comm *c, int rc)
{
    pthread_mutex_unlock(&mr_nccl_of(c)->control_lock);
    return rc;
}

static int sum(struct mr_comm *c, void *data, const struct mr_comm_array *a)
{
    struct mr_nccl *r = mr_nccl_of(c);
    uint64_t bytes = a->n * mr_dtype_size(a->dtype);
    struct mr_comm *control = mr_nccl_control(c);
    if (control)
        return mr_nccl_control_done(
            c, mr_comm_sum(control, data, data, a->n, a->dtype, a->wire, a->order, NULL));
    if (bytes == 0)
        return 0;
    int rc = mr_nccl_take_host(c, bytes);
    if (rc < 0)
        return rc;
    rc = copy(c, r->host, MR_DEVICE, data, MR_PAGEABLE, bytes);
    if (rc < 0)
        return rc;
    rc = enqueue(c, r->host, r->host, a, r->stream);
    if (rc < 0)
        return rc;
    rc = mr_nccl_wait_own(c);
    if (rc < 0)
        return rc;
    rc = copy(c, data, MR_PAGEABLE, r->host, MR_DEVICE, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(r->stream);
}

/* Bytes from one rank to another, of `at` in the buffer; every rank calls it. */
static int move(struct mr_comm *c, char *at, uint64_t bytes, uint32_t from, uint32_t to)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (from == to || (c->rank != from && c->rank != to))
        return 0;
    int rc = mr_device_enter(r->device);
    if (rc < 0)
        return rc;
    if (c->rank == from)
        rc = mr_nccl_settle(
            c, "ncclSend",
            r->nccl.ncclSend(at, bytes, NCCL_INT8, (int)to, r->comm, mr_nccl_stream(r->stream)));
    else
        rc = mr_nccl_settle(
            c, "ncclRecv",
            r->nccl.ncclRecv(at, bytes, NCCL_INT8, (int)from, r->comm, mr_nccl_stream(r->stream)));
    mr_device_leave(r->device);
    return rc;
}

static int gather(struct mr_comm *c, const void *mine, uint64_t bytes, uint32_t root, void *all)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct mr_comm *control = mr_nccl_control(c);
    if (control) {
        control->call_ns = c->call_ns;
        control->peer = MR_COMM_ALL;
        return mr_nccl_control_done(c, control->engine->gather(control, mine, bytes, root, all));
    }
    int rc = mr_nccl_take_host(c, bytes * c->world);
    if (rc < 0)
        return rc;
    char *at = r->host;
    rc = copy(c, at + c->rank * bytes, MR_DEVICE, mine, MR_PAGEABLE, bytes);
    for (uint32_t i = 0; i < c->world && rc == 0; i++)
        rc = move(c, at + i * bytes, bytes, i, root);
    if (rc == 0)
        rc = mr_nccl_wait_own(c);
    if (rc == 0 && c->rank == root)
        rc = copy(c, all, MR_PAGEABLE, at, MR_DEVICE, bytes * c->world);
    return rc < 0 ? rc : mr_stream_synchronize(r->stream);
}

static int spread(struct mr_comm *c, void *data, uint64_t bytes, uint32_t root)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct mr_comm *control = mr_nccl_control(c);
    if (control) {
        control->call_ns = c->call_ns;
        control->peer = MR_COMM_ALL;
        return mr_nccl_control_done(c, control->engine->spread(control, data, bytes, root));
    }
    int rc = mr_nccl_take_host(c, bytes);
    if (rc < 0)
        return rc;
    rc = copy(c, r->host, MR_DEVICE, data, MR_PAGEABLE, bytes);
    for (uint32_t i = 0; i < c->world && rc == 0; i++)
        rc = move(c, r->host, bytes, root, i);
    if (rc == 0)
        rc = mr_nccl_wait_own(c);
    if (rc == 0)
        rc = copy(c, data, MR_PAGEABLE, r->host, MR_DEVICE, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(r->stream);
}

static void phase(struct mr_comm *c, const char *what)
{
    struct mr_comm *control = mr_nccl_control(c);
    if (!control)
        return;
    mr_comm_phase(control, what);
    mr_nccl_control_done(c, 0);
}

/* A rank that does not come must not keep the others. */
static void leave(struct mr_comm *c, bool clean)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (!r->comm || r->watch.aborting)
        return;
    if (!clean || mr_nccl_settle(c, "ncclCommFinalize", r->nccl.ncclCommFinalize(r->comm)) < 0)
        mr_nccl_abort(c);
    else
        r->nccl.ncclCommDestroy(r->comm);
    r->comm = NULL;
}

static bool close_nccl(struct mr_comm *c, bool clean)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (!r)
        return true;
    const bool over = clean || !r->control; /* else MPI may still read and write what c has */
    mr_nccl_watch_stop(c);
    if (r->device && mr_device_enter(r->device) == 0) {
        leave(c, clean);
        mr_device_leave(r->device);
    }
    if (!clean && r->control) /* then it does not wait for the others, either */
        r->control->failed = MR_EPEER;
    mr_comm_close(r->control);
    for (uint32_t i = 0; i < r->n_old; i++)
        mr_memory_release(r->device, MR_DEVICE, r->old[i], NULL);
    if (r->device) {
        mr_memory_release(r->device, MR_DEVICE, r->room, NULL);
        mr_memory_release(r->device, MR_DEVICE, r->host, NULL);
    }
    mr_stream_destroy(r->stream);
    pthread_cond_destroy(&r->watch.changed);
    pthread_mutex_destroy(&r->watch.lock);
    pthread_mutex_destroy(&r->control_lock);
    free(r);
    c->impl = NULL;
    return over;
}

static void end(struct mr_comm *c, int status)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (r->control)
        r->control->engine->abort(r->control, status);
    _exit(status);
}

const struct mr_comm_engine mr_comm_nccl = {
    .name = "nccl",
    .find = mr_nccl_find,
    .library = mr_nccl_library,
    .open = open_nccl,
    .close = close_nccl,
    .sum = sum,
    .sum_device = sum_device,
    .scatter = mr_nccl_scatter,
    .scatter_device = mr_nccl_scatter_device,
    .share = mr_nccl_share,
    .share_device = mr_nccl_share_device,
    .pass = mr_nccl_pass,
    .pass_device = mr_nccl_pass_device,
    .gather = gather,
    .spread = spread,
    .phase = phase,
    .watch = mr_nccl_watch,
    .check = mr_nccl_check,
    .abort = end,
};
