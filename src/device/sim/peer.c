/*
 * Copies between two simulated accelerators, at the slower one's rate. The engine is the stream's
 * device's: that for copies in when it is the destination, that for copies out when it is the
 * source; the other device is not occupied.
 */
#include "device/sim/sim.h"

int mr_sim_reach(struct mr_device *one, struct mr_device *other)
{
    (void)one, (void)other;
    return 1;
}

int mr_sim_copy_peer(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                     const void *src, struct mr_device *src_device, uint64_t bytes)
{
    const struct sim_device *to = dst_device->state, *from = src_device->state;
    const struct sim_options *opts = &((struct sim_device *)stream->dev->state)->opts;
    struct sim_stream *s = stream->state;
    struct sim_work work = {.engine = stream->dev == dst_device ? SIM_H2D : SIM_D2H, .peer = true};
    int rc = mr_sim_check_range(dst_device, "destination", dst, bytes);
    if (rc >= 0)
        rc = mr_sim_check_range(src_device, "source", src, bytes);
    if (rc < 0)
        return rc;
    work.dst = dst;
    work.src = src;
    work.bytes = bytes;
    work.cost_ns =
        opts->latency_ns + (uint64_t)((double)bytes / MR_MIN(to->opts.peer, from->opts.peer));
    struct sim_call call = mr_sim_call_begin("simMemcpyPeerAsync");
    work.row = (struct sim_row){.correlation = call.correlation,
                                .copy = SIM_COPY_P2P,
                                .src_kind = MR_DEVICE,
                                .dst_kind = MR_DEVICE,
                                .src_device = from,
                                .dst_device = to};
    pthread_mutex_lock(&s->submit);
    work.ready_ns = mr_time_ns();
    rc = mr_sim_enqueue(stream, &work, NULL);
    pthread_mutex_unlock(&s->submit);
    mr_sim_call_end(&call);
    return rc;
}
