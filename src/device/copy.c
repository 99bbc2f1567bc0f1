/* Copies, within a device and between two, and memory that is set. */
#include "device/device.h"

static int check_copy(const char *call, const struct mr_stream *stream, const struct mr_copy *copy)
{
    if ((unsigned)copy->dst_kind >= MR_N_MEMORY || (unsigned)copy->src_kind >= MR_N_MEMORY)
        return mr_error_set(MR_EMISUSE, "%s: no such kinds of memory: %d to %d", call,
                            (int)copy->src_kind, (int)copy->dst_kind);
    if (copy->bytes && (!copy->dst || !copy->src))
        return mr_error_set(MR_EMISUSE, "%s: %s is NULL", call,
                            copy->dst ? "the source" : "the destination");
    bool host = copy->dst_kind != MR_DEVICE && copy->src_kind != MR_DEVICE;
    if (host || copy->dst_kind == MR_PAGEABLE || copy->src_kind == MR_PAGEABLE)
        return mr_stream_check_live(stream, host ? "a copy within host memory"
                                                 : "a copy of pageable memory");
    return 0;
}

int mr_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                  enum mr_memory src_kind, uint64_t bytes)
{
    struct mr_copy copy = {dst, src, bytes, dst_kind, src_kind};
    int rc = mr_stream_check(stream, "mr_copy_async");
    if (rc < 0)
        return rc;
    rc = check_copy("mr_copy_async", stream, &copy);
    if (rc < 0 || !bytes)
        return rc;
    return stream->dev->ops->copy_async(stream, dst, dst_kind, src, src_kind, bytes);
}

int mr_copy_batch_async(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n)
{
    uint64_t n_empty = 0;
    int checked = mr_stream_check(stream, "mr_copy_batch_async");
    if (checked < 0)
        return checked;
    const struct mr_device_ops *ops = stream->dev->ops;
    if (n && !copies)
        return mr_error_set(MR_EMISUSE, "mr_copy_batch_async: copies is NULL");
    for (uint64_t i = 0; i < n; i++) {
        int rc = check_copy("mr_copy_batch_async", stream, &copies[i]);
        if (rc < 0)
            return rc;
        n_empty += copies[i].bytes == 0;
    }
    if (ops->copy_batch && n > 1 && !n_empty && !atomic_load(&stream->recording))
        return ops->copy_batch(stream, copies, n);
    for (uint64_t i = 0; i < n; i++) {
        const struct mr_copy *c = &copies[i];
        int rc = c->bytes
                     ? ops->copy_async(stream, c->dst, c->dst_kind, c->src, c->src_kind, c->bytes)
                     : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                    uint64_t bytes)
{
    int rc = mr_stream_check(stream, "mr_memset_async");
    if (rc < 0)
        return rc;
    if ((unsigned)kind >= MR_N_MEMORY)
        return mr_error_set(MR_EMISUSE, "mr_memset_async: no such kind of memory: %d", (int)kind);
    if (!bytes)
        return 0;
    if (!dst)
        return mr_error_set(MR_EMISUSE, "mr_memset_async: the destination is NULL");
    rc = kind == MR_DEVICE ? 0 : mr_stream_check_live(stream, "mr_memset_async of host memory");
    if (rc < 0)
        return rc;
    return stream->dev->ops->memset_async(stream, dst, kind, byte, bytes);
}

static int check_pair(const char *call, const struct mr_device *one, const struct mr_device *other)
{
    if (one->ops != other->ops || !one->ops->reach)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: there are no copies between devices %s and %s: copy to host "
                            "memory, and on from there",
                            call, one->ops->name, other->ops->name);
    int rc = mr_device_ready(one);
    return rc < 0 ? rc : mr_device_ready(other);
}

int mr_device_reach(struct mr_device *one, struct mr_device *other)
{
    if (!one || !other)
        return mr_error_set(MR_EMISUSE, "mr_device_reach: a device is NULL");
    if (one == other)
        return 1;
    int rc = check_pair("mr_device_reach", one, other);
    return rc < 0 ? rc : one->ops->reach(one, other);
}

int mr_copy_peer_async(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                       const void *src, struct mr_device *src_device, uint64_t bytes)
{
    if (!stream || !dst_device || !src_device)
        return mr_error_set(MR_EMISUSE, "mr_copy_peer_async: the stream or a device is NULL");
    if (stream->dev != dst_device && stream->dev != src_device)
        return mr_error_set(MR_EMISUSE,
                            "mr_copy_peer_async: stream \"%s\" belongs to neither device",
                            stream->name);
    if (dst_device == src_device)
        return mr_copy_async(stream, dst, MR_DEVICE, src, MR_DEVICE, bytes);
    int rc = check_pair("mr_copy_peer_async", dst_device, src_device);
    if (rc < 0)
        return rc;
    rc = mr_stream_check(stream, "mr_copy_peer_async");
    if (rc < 0 || !bytes)
        return rc;
    if (!dst || !src)
        return mr_error_set(MR_EMISUSE, "mr_copy_peer_async: %s is NULL",
                            dst ? "the source" : "the destination");
    return stream->dev->ops->copy_peer(stream, dst, dst_device, src, src_device, bytes);
}
