/* Copies between the GPUs that are not there: who reaches whom, and whether the bytes went
 * directly. */
#include "fake_cuda_private.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 8

static bool reaches[MAX_DEVICES][MAX_DEVICES]; /* [who][whose memory] */

void fake_peers_forget(int gpu)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        reaches[gpu][i] = reaches[i][gpu] = false;
}

int cuDeviceCanAccessPeer(int *out, int device, int peer)
{
    *out = device != peer && !getenv("FAKE_CUDA_NO_PEER");
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    int me = fake_gpu_of(fake_cuda_current()), other = fake_gpu_of(peer);
    if (!result && (me < 0 || other < 0 || me == other || flags)) {
        fake_misuse("cuCtxEnablePeerAccess of a wrong context");
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    if (!result && getenv("FAKE_CUDA_NO_PEER"))
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!result && reaches[me][other])
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (!result)
        reaches[me][other] = true;
    return fake_end(result);
}

int cuMemcpyPeerAsync(uint64_t dst, struct CUctx_st *dst_context, uint64_t src,
                      struct CUctx_st *src_context, size_t bytes, struct CUstream_st *stream)
{
    void *to = (void *)(uintptr_t)dst;
    const void *from = (const void *)(uintptr_t)src;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    int dst_gpu = fake_gpu_of(dst_context), src_gpu = fake_gpu_of(src_context);
    const struct fake_range *dst_range = fake_find(to, bytes, true),
                            *src_range = fake_find(from, bytes, true);
    if (!result && (dst_gpu < 0 || src_gpu < 0 || !dst_range || !src_range ||
                    dst_range->owner != dst_gpu || src_range->owner != src_gpu)) {
        fake_misuse("cuMemcpyPeerAsync: memory that is not the context's");
        result = 1;
    }
    if (!result)
        result = fake_copy_device(__func__, stream, to, from, bytes);
    if (!result && reaches[dst_gpu][src_gpu] && reaches[src_gpu][dst_gpu])
        fake_count.peer_direct++;
    else if (!result)
        fake_count.peer_staged++;
    return fake_end(result);
}
