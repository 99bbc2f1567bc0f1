/*
 * Sums of device memory by engines that know host memory alone: to page-locked memory, there as
 * always, and back. The additions are the host's, which round as the device's would.
 */
#include "comm/engine.h"
#include "device/device.h"

#include <errno.h>

void mr_comm_stage_free(struct mr_comm *c)
{
    if (c->stage)
        mr_memory_release(c->stage_device, MR_PINNED, c->stage, NULL);
    c->stage = NULL;
    c->stage_bytes = 0;
}

static int take_stage(struct mr_comm *c, struct mr_device *device, uint64_t bytes)
{
    if (c->stage && c->stage_device == device && c->stage_bytes >= bytes)
        return 0;
    mr_comm_stage_free(c);
    int rc = mr_memory_acquire(device, MR_PINNED, bytes, &c->stage);
    if (rc < 0) {
        c->stage = NULL;
        return rc;
    }
    c->stage_device = device;
    c->stage_bytes = bytes;
    return 0;
}

int mr_comm_stage_sum(struct mr_comm *c, void *data, const struct mr_comm_array *array,
                      struct mr_stream *stream)
{
    uint64_t bytes = array->n * mr_dtype_size(array->dtype);
    if (bytes == 0)
        return c->engine->sum(c, data, array);
    int rc = take_stage(c, stream->dev, bytes);
    if (rc < 0)
        return rc;
    rc = mr_copy_async(stream, c->stage, MR_PINNED, data, MR_DEVICE, bytes);
    if (rc < 0)
        return rc;
    rc = mr_stream_synchronize(stream);
    if (rc < 0)
        return rc;
    c->call_ns =
        mr_time_ns(); /* the time limit is for the ranks, not for this one's earlier work */
    rc = c->engine->sum(c, c->stage, array);
    if (rc < 0)
        return rc;
    rc = mr_copy_async(stream, data, MR_DEVICE, c->stage, MR_PINNED, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(stream);
}
