/*
 * By NCCL: sums of which each rank gets a part, parts that all get, and messages between two ranks.
 * Parts of one length are ncclReduceScatter() and ncclAllGather(); of several, a group of a
 * ncclReduce() or ncclBroadcast() for each rank.
 */
#include "comm/nccl.h"
#include "device/device.h"
#include "kernels/sum/sum.h"

#include <errno.h>
#include <stdlib.h>

static bool is_fine(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

static uint64_t length(const struct mr_comm *c, const struct mr_comm_parts *p)
{
    return p->first[c->world] - p->first[0];
}

static bool are_equal(const struct mr_comm *c, const struct mr_comm_parts *p)
{
    for (uint32_t r = 1; r < c->world; r++)
        if (mr_comm_part_length(p, r) != mr_comm_part_length(p, 0))
            return false;
    return true;
}

/* ---- on the device ---- */

static int by_halves(struct mr_comm *c, char *data, const struct mr_comm_parts *p,
                     struct mr_stream *stream)
{
    struct mr_nccl *r = mr_nccl_of(c);
    const bool low = p->wire != p->dtype;
    const uint64_t size = mr_dtype_size(p->dtype);
    for (uint32_t h = c->world / 2; h >= 1; h /= 2) {
        const struct mr_comm_half half = mr_comm_half_of(c, p, h);
        char *in = r->room, *give = data + half.give * size,
             *out = low ? in + 2 * half.n_keep : give;
        int rc = low && half.n_give ? mr_nccl_cast(stream, out, give, half.n_give, MR_BF16) : 0;
        if (rc < 0)
            return rc;
        const struct mr_nccl_swap swap = {
            (int)half.partner, (int)half.partner, mr_nccl_type(p->wire), out, in,
            half.n_give,       half.n_keep};
        rc = mr_nccl_swap(c, &swap, stream);
        if (rc < 0)
            return rc;
        const struct mr_sum_add add = {.to = data + half.keep * size,
                                       .from = in,
                                       .count = half.n_keep,
                                       .dtype = p->dtype,
                                       .from_dtype = p->wire,
                                       .round = low};
        if (half.n_keep)
            rc = mr_launch_kernel(stream, &mr_sum_kernel[MR_SUM_KERNEL_add], &add, NULL);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One call for each rank's part, in a group: sums: ncclReduce(), else ncclBroadcast() of bytes. at:
 * of the element first[0]; size: of an element. */
static int for_each_part(struct mr_comm *c, char *at, const struct mr_comm_parts *p, uint64_t size,
                         bool sums, struct mr_stream *stream)
{
    struct CUstream_st *raw = mr_nccl_stream(stream);
    const struct mr_nccl *r = mr_nccl_of(c);
    const char *call = "ncclGroupStart";
    int result = r->nccl.ncclGroupStart();
    if (result != NCCL_SUCCESS)
        return mr_nccl_failed(c, call, result);
    for (uint32_t i = 0; i < c->world && is_fine(result); i++) {
        char *part = at + (p->first[i] - p->first[0]) * size;
        const uint64_t n = mr_comm_part_length(p, i);
        if (n == 0)
            continue;
        call = sums ? "ncclReduce" : "ncclBroadcast";
        result = sums
                     ? r->nccl.ncclReduce(part, part, n, mr_nccl_type(p->wire), NCCL_SUM, (int)i,
                                          r->comm, raw)
                     : r->nccl.ncclBroadcast(part, part, n * size, NCCL_INT8, (int)i, r->comm, raw);
    }
    int ended = r->nccl.ncclGroupEnd();
    if (!is_fine(result))
        return mr_nccl_failed(c, call, result);
    return mr_nccl_settle(c, "ncclGroupEnd", ended);
}

/* at: of the element first[0]. */
static int add_parts(struct mr_comm *c, char *at, const struct mr_comm_parts *p,
                     struct mr_stream *stream)
{
    const struct mr_nccl *r = mr_nccl_of(c);
    const uint64_t size = mr_dtype_size(p->wire), n = mr_comm_part_length(p, 0);
    if (!are_equal(c, p))
        return for_each_part(c, at, p, size, true, stream);
    return mr_nccl_settle(c, "ncclReduceScatter",
                          r->nccl.ncclReduceScatter(at, at + c->rank * n * size, n,
                                                    mr_nccl_type(p->wire), NCCL_SUM, r->comm,
                                                    mr_nccl_stream(stream)));
}

static int fast(struct mr_comm *c, char *data, const struct mr_comm_parts *p,
                struct mr_stream *stream)
{
    char *room = mr_nccl_of(c)->room, *from = data + p->first[0] * mr_dtype_size(p->dtype);
    const uint64_t own = mr_comm_part_length(p, c->rank), at = p->first[c->rank];
    if (p->wire == p->dtype)
        return add_parts(c, from, p, stream);
    int rc = mr_nccl_cast(stream, room, from, length(c, p), MR_BF16);
    if (rc < 0)
        return rc;
    rc = add_parts(c, room, p, stream);
    if (rc < 0 || own == 0)
        return rc;
    return mr_nccl_cast(stream, data + at * mr_dtype_size(p->dtype),
                        room + (at - p->first[0]) * mr_dtype_size(p->wire), own, p->dtype);
}

static int share_parts(struct mr_comm *c, char *data, const struct mr_comm_parts *p,
                       struct mr_stream *stream)
{
    const struct mr_nccl *r = mr_nccl_of(c);
    const uint64_t size = mr_dtype_size(p->dtype), bytes = mr_comm_part_length(p, 0) * size;
    char *at = data + p->first[0] * size;
    if (!are_equal(c, p))
        return for_each_part(c, at, p, size, false, stream);
    return mr_nccl_settle(c, "ncclAllGather",
                          r->nccl.ncclAllGather(at + c->rank * bytes, at, bytes, NCCL_INT8, r->comm,
                                                mr_nccl_stream(stream)));
}

/* Both ways in one group. */
static int transfer(struct mr_comm *c, const struct mr_comm_message *m, struct mr_stream *stream)
{
    const struct mr_nccl_swap swap = {(int)m->to, (int)m->from, NCCL_INT8,  m->out,
                                      m->in,      m->out_bytes, m->in_bytes};
    return mr_nccl_swap(c, &swap, stream);
}

/* What is enqueued: one of the three. */
struct work {
    char *data;
    const struct mr_comm_parts *parts;
    const struct mr_comm_message *message;
    bool sums;
};

/* The device is entered. */
static int begin(struct mr_comm *c, const struct work *w, struct mr_stream *stream)
{
    const struct mr_comm_parts *p = w->parts;
    if (w->message)
        return transfer(c, w->message, stream);
    if (!p)
        return 0;
    if (!w->sums)
        return share_parts(c, w->data, p, stream);
    return p->order == MR_SUM_TREE ? by_halves(c, w->data, p, stream) : fast(c, w->data, p, stream);
}

static int enqueue(struct mr_comm *c, const struct work *w, struct mr_stream *stream)
{
    if (stream->dev != mr_nccl_of(c)->device)
        return mr_error_set(MR_EMISUSE,
                            "comm: %s by engine nccl: expected a stream of the communicator's "
                            "device",
                            c->call);
    const struct mr_comm_parts *p = w->parts;
    if (p && length(c, p) == 0)
        return 0;
    int rc = p && w->sums && (p->order == MR_SUM_TREE || p->wire != p->dtype)
                 ? mr_nccl_make_room(c, length(c, p) * mr_dtype_size(p->dtype))
                 : 0;
    if (rc < 0)
        return rc;
    rc = mr_device_enter(stream->dev);
    if (rc < 0)
        return rc;
    rc = begin(c, w, stream);
    mr_device_leave(stream->dev);
    return rc;
}

/* A stream that is recorded is watched when its graph is launched. */
static int on_device(struct mr_comm *c, const struct work *w, struct mr_stream *stream)
{
    int rc = enqueue(c, w, stream);
    if (rc < 0 || atomic_load(&stream->recording))
        return rc;
    return mr_nccl_watch(c, stream);
}

int mr_nccl_scatter_device(struct mr_comm *c, void *data, const struct mr_comm_parts *p,
                           struct mr_stream *stream)
{
    const struct work w = {.data = data, .parts = p, .sums = true};
    return on_device(c, &w, stream);
}

int mr_nccl_share_device(struct mr_comm *c, void *data, const struct mr_comm_parts *p,
                         struct mr_stream *stream)
{
    const struct work w = {.data = data, .parts = p};
    return on_device(c, &w, stream);
}

int mr_nccl_pass_device(struct mr_comm *c, const struct mr_comm_message *message,
                        struct mr_stream *stream)
{
    const struct work w = {.message = message};
    return on_device(c, &w, stream);
}

/* ---- host memory ---- */

/* Without MPI: down to the buffer on the device, there as always, and up again. */
static int by_device(struct mr_comm *c, const struct work *w, const void *down, uint64_t down_bytes,
                     void *up, uint64_t up_at, uint64_t up_bytes)
{
    struct mr_nccl *r = mr_nccl_of(c);
    int rc = down_bytes
                 ? mr_copy_async(r->stream, r->host, MR_DEVICE, down, MR_PAGEABLE, down_bytes)
                 : 0;
    if (rc < 0)
        return rc;
    rc = enqueue(c, w, r->stream);
    if (rc < 0)
        return rc;
    rc = mr_nccl_wait_own(c);
    if (rc < 0 || up_bytes == 0)
        return rc;
    rc = mr_copy_async(r->stream, up, MR_PAGEABLE, (char *)r->host + up_at, MR_DEVICE, up_bytes);
    return rc < 0 ? rc : mr_stream_synchronize(r->stream);
}

static int parts_by_device(struct mr_comm *c, void *data, const struct mr_comm_parts *p, bool sums)
{
    const uint64_t size = mr_dtype_size(p->dtype), bytes = length(c, p) * size;
    struct mr_comm_parts shifted;
    int rc = mr_nccl_take_host(c, bytes);
    if (rc < 0 || bytes == 0)
        return rc;
    rc = mr_comm_shift_parts(c, p, &shifted);
    if (rc < 0)
        return rc;
    char *at = (char *)data + p->first[0] * size;
    const struct work w = {.data = mr_nccl_of(c)->host, .parts = &shifted, .sums = sums};
    rc = by_device(c, &w, at, bytes, at, 0, bytes);
    free((void *)(uintptr_t)shifted.first);
    return rc;
}

int mr_nccl_scatter(struct mr_comm *c, void *data, const struct mr_comm_parts *p)
{
    struct mr_comm *control = mr_nccl_control(c);
    if (!control)
        return parts_by_device(c, data, p, true);
    return mr_nccl_control_done(
        c, mr_comm_sum_scatter(control, data, p->first, p->dtype, p->wire, p->order, NULL));
}

int mr_nccl_share(struct mr_comm *c, void *data, const struct mr_comm_parts *p)
{
    struct mr_comm *control = mr_nccl_control(c);
    if (!control)
        return parts_by_device(c, data, p, false);
    return mr_nccl_control_done(c, mr_comm_gather(control, data, p->first, p->dtype, NULL));
}

int mr_nccl_pass(struct mr_comm *c, const struct mr_comm_message *m)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct mr_comm_message moved = *m;
    struct mr_comm *control = mr_nccl_control(c);
    if (control)
        return mr_nccl_control_done(c, mr_comm_send_recv(control, m->out, m->out_bytes, m->to,
                                                         m->in, m->in_bytes, m->from, NULL));
    int rc = mr_nccl_take_host(c, m->out_bytes + m->in_bytes);
    if (rc < 0)
        return rc;
    moved.out = r->host;
    moved.in = (char *)r->host + m->out_bytes;
    const struct work w = {.message = &moved};
    return by_device(c, &w, m->out, m->out_bytes, m->in, m->out_bytes, m->in_bytes);
}
