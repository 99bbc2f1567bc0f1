/*
 * Copies between two GPUs. Where they reach each other (NVLink, or PCIe below one switch or bridge)
 * the bytes go directly; else the driver stages them. Access once given stays: the primary contexts
 * are also others', who may count on it.
 */
#include "device/cuda/cuda.h"

/* What is known of a peer: its serial and whether the two reach each other. 0: nothing. */
static uint64_t known(const struct mr_cuda *peer, bool direct)
{
    return peer->serial << 1 | direct;
}

static bool can_be_kept(const struct mr_cuda *peer)
{
    return peer->opts.ordinal < MR_CUDA_MAX_PEERS;
}

/* Lets kernels and copies of one GPU reach the other's memory. Returns 1, 0: it cannot, or an
 * error. */
static int give_access(const struct mr_cuda *c, const struct mr_cuda *peer)
{
    int can = 0, result = c->cu->cuDeviceCanAccessPeer(&can, c->device, peer->device);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuDeviceCanAccessPeer(%s)", peer->name);
    if (!can)
        return 0;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    result = c->cu->cuCtxEnablePeerAccess(peer->context, 0);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        rc = 1;
    else if (result != CUDA_ERROR_PEER_ACCESS_UNSUPPORTED && result != CUDA_ERROR_TOO_MANY_PEERS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuCtxEnablePeerAccess(%s)", peer->name);
    return mr_cuda_leave(c, rc);
}

int mr_cuda_reach(struct mr_device *one, struct mr_device *other)
{
    struct mr_cuda *c = one->state, *peer = other->state;
    if (c->device == peer->device)
        return 1;
    uint64_t had = can_be_kept(peer) ? atomic_load(&c->peer[peer->opts.ordinal]) : 0;
    if (had >> 1 == peer->serial)
        return (int)(had & 1);
    int rc = give_access(c, peer);
    if (rc == 1)
        rc = give_access(peer, c);
    if (rc >= 0 && can_be_kept(peer) && can_be_kept(c)) {
        atomic_store(&c->peer[peer->opts.ordinal], known(peer, rc));
        atomic_store(&peer->peer[c->opts.ordinal], known(c, rc));
    }
    return rc;
}

int mr_cuda_copy_peer(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                      const void *src, struct mr_device *src_device, uint64_t bytes)
{
    const struct mr_cuda *c = stream->dev->state, *to = dst_device->state,
                         *from = src_device->state;
    const struct cuda_stream *s = stream->state;
    int rc = mr_cuda_reach(dst_device, src_device);
    if (rc >= 0)
        rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result =
        c->cu->cuMemcpyPeerAsync((uint64_t)(uintptr_t)dst, to->context, (uint64_t)(uintptr_t)src,
                                 from->context, bytes, s->handle);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name,
                           "cuMemcpyPeerAsync(%llu bytes, %s to %s) in stream \"%s\"",
                           (unsigned long long)bytes, from->name, to->name, stream->name);
    return mr_cuda_leave(c, rc);
}
