/* Copies between two devices: the front. */
#include "device/device.h"

static int check_pair(const char *call, const struct mr_device *one, const struct mr_device *other)
{
    if (one->ops != other->ops || !one->ops->reach)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: there are no copies between devices %s and %s: copy to host memory, and on from there",
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

int mr_copy_peer_async(struct mr_stream *stream, void *dst, struct mr_device *dst_device, const void *src,
                       struct mr_device *src_device, uint64_t bytes)
{
    if (!stream || !dst_device || !src_device)
        return mr_error_set(MR_EMISUSE, "mr_copy_peer_async: the stream or a device is NULL");
    if (stream->dev != dst_device && stream->dev != src_device)
        return mr_error_set(MR_EMISUSE, "mr_copy_peer_async: stream \"%s\" belongs to neither device", stream->name);
    if (dst_device == src_device)
        return mr_copy_async(stream, dst, MR_DEVICE, src, MR_DEVICE, bytes);
    int rc = check_pair("mr_copy_peer_async", dst_device, src_device);
    if (rc < 0 || !bytes)
        return rc;
    if (!dst || !src)
        return mr_error_set(MR_EMISUSE, "mr_copy_peer_async: %s is NULL", dst ? "the source" : "the destination");
    return stream->dev->ops->copy_peer(stream, dst, dst_device, src, src_device, bytes);
}
