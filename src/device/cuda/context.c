/* The GPU's primary context, made current for the time of a call. */
#include "device/cuda/cuda.h"

/* Of each enter of this thread that has not left yet whether it pushed, the innermost in the lowest
 * bit. */
static _Thread_local uint64_t pushed;

int mr_cuda_enter(const struct mr_cuda *c)
{
    struct CUctx_st *now = NULL;
    if (mr_cuda_is_forked())
        return mr_cuda_forked_error(c->name);
    bool is_current = c->cu->cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == c->context;
    int result = is_current ? CUDA_SUCCESS : c->cu->cuCtxPushCurrent_v2(c->context);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuCtxPushCurrent_v2");
    pushed = pushed << 1 | !is_current;
    return 0;
}

/* A push may return the error of earlier work on the GPU; that must not keep us from giving back
 * what we have. */
int mr_cuda_enter_to_release(const struct mr_cuda *c)
{
    if (mr_cuda_enter(c) == 0)
        return 0;
    return mr_cuda_enter(c);
}

int mr_cuda_leave(const struct mr_cuda *c, int rc)
{
    struct CUctx_st *was = NULL;
    int result = pushed & 1 ? c->cu->cuCtxPopCurrent_v2(&was) : CUDA_SUCCESS;
    pushed >>= 1;
    return result == CUDA_SUCCESS || rc < 0
               ? rc
               : mr_cuda_error(c->cu, result, c->name, "cuCtxPopCurrent_v2");
}
