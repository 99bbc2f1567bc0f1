/*
 * Calls on device memory by engines that know host memory alone: to page-locked memory, there as
 * always, and back. The additions are the host's, which round as the device's would.
 */
#include "comm/engine.h"
#include "device/device.h"

#include <errno.h>
#include <stdlib.h>

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

/* Bytes at `at` of the array, from the stream's device to the stage; 0: none. Waits for the
 * stream's earlier work. */
static int down(struct mr_comm *c, const char *data, uint64_t at, uint64_t bytes,
                struct mr_stream *stream)
{
    int rc =
        bytes ? mr_copy_async(stream, (char *)c->stage + at, MR_PINNED, data + at, MR_DEVICE, bytes)
              : 0;
    if (rc < 0)
        return rc;
    rc = mr_stream_synchronize(stream);
    c->call_ns =
        mr_time_ns(); /* the time limit is for the ranks, not for this one's earlier work */
    return rc;
}

static int up(struct mr_comm *c, char *data, uint64_t at, uint64_t bytes, struct mr_stream *stream)
{
    if (bytes == 0)
        return 0;
    int rc = mr_copy_async(stream, data + at, MR_DEVICE, (char *)c->stage + at, MR_PINNED, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(stream);
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
    rc = down(c, data, 0, bytes, stream);
    if (rc < 0)
        return rc;
    rc = c->engine->sum(c, c->stage, array);
    return rc < 0 ? rc : up(c, data, 0, bytes, stream);
}

/* The stage holds the elements from first[0] on. scatters: all go down and this rank's part comes
 * up, else the other way round. */
static int stage_parts(struct mr_comm *c, void *data, const struct mr_comm_parts *p,
                       struct mr_stream *stream, bool scatters)
{
    const uint64_t size = mr_dtype_size(p->dtype), all = p->first[c->world] - p->first[0],
                   own = mr_comm_part_length(p, c->rank);
    const uint64_t at = (p->first[c->rank] - p->first[0]) * size;
    char *from = data ? (char *)data + p->first[0] * size : NULL;
    struct mr_comm_parts staged;
    int rc = mr_comm_shift_parts(c, p, &staged);
    if (rc < 0)
        return rc;
    rc = all ? take_stage(c, stream->dev, all * size) : 0;
    if (rc < 0)
        goto end;
    rc = scatters ? down(c, from, 0, all * size, stream) : down(c, from, at, own * size, stream);
    if (rc < 0)
        goto end;
    rc = scatters ? c->engine->scatter(c, c->stage, &staged)
                  : c->engine->share(c, c->stage, &staged);
    if (rc < 0)
        goto end;
    rc = scatters ? up(c, from, at, own * size, stream) : up(c, from, 0, all * size, stream);
end:
    free((void *)(uintptr_t)staged.first);
    return rc;
}

int mr_comm_stage_scatter(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                          struct mr_stream *stream)
{
    return stage_parts(c, data, parts, stream, true);
}

int mr_comm_stage_share(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                        struct mr_stream *stream)
{
    return stage_parts(c, data, parts, stream, false);
}

/* The stage holds what goes, and behind it what comes. */
int mr_comm_stage_pass(struct mr_comm *c, const struct mr_comm_message *message,
                       struct mr_stream *stream)
{
    struct mr_comm_message staged = *message;
    int rc = take_stage(c, stream->dev, message->out_bytes + message->in_bytes);
    if (rc < 0)
        return rc;
    rc = down(c, message->out, 0, message->out_bytes, stream);
    if (rc < 0)
        return rc;
    staged.out = c->stage;
    staged.in = (char *)c->stage + message->out_bytes;
    rc = c->engine->pass(c, &staged);
    if (rc < 0 || message->in_bytes == 0)
        return rc;
    rc = mr_copy_async(stream, message->in, MR_DEVICE, staged.in, MR_PINNED, message->in_bytes);
    return rc < 0 ? rc : mr_stream_synchronize(stream);
}
