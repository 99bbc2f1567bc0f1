/* Enqueues the work of a net: memory, kernel launches, and the second stream beside the first. */
#include "nn/cuda/cuda.h"

#define MOST_BLOCKS 16384 /* some waves of every GPU there is */

uint64_t mr_nn_cuda_blocks(uint64_t elements)
{
    uint64_t blocks = (elements + MR_NN_GPU_BLOCK - 1) / MR_NN_GPU_BLOCK;
    return MR_MIN(MR_MAX(blocks, 1), MOST_BLOCKS);
}

int mr_nn_cuda_launch(struct mr_nn_backend *b, enum mr_nn_gpu_kernel kernel, uint64_t blocks_x,
                      uint32_t blocks_y, const void *args)
{
    const unsigned grid[] = {(unsigned)blocks_x, blocks_y};
    return mr_launch_kernel(b->current.stream, &b->kernels->kernels[kernel], args, grid);
}

int mr_nn_cuda_acquire(struct mr_nn_backend *b, uint64_t bytes, void **out)
{
    int rc = mr_memory_acquire(b->device, MR_DEVICE, bytes, out);
    b->bytes += rc ? 0 : bytes;
    return rc;
}

void mr_nn_cuda_release(struct mr_nn_backend *b, void *p)
{
    if (p)
        mr_memory_release(b->device, MR_DEVICE, p, NULL);
}

static void swap_streams(struct mr_nn_backend *b)
{
    struct mr_nn_cuda_stream current = b->current;
    b->current = b->other;
    b->other = current;
    b->aside = !b->aside;
}

/* By the driver's own calls: in a stream that is being recorded they become edges of the graph. */
static int wait_for(const struct mr_nn_backend *b, struct CUevent_st *event,
                    struct CUstream_st *first, struct CUstream_st *second)
{
    const struct mr_cuda *c = b->cuda;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuEventRecord(event, first);
    if (result == CUDA_SUCCESS)
        result = c->cu->cuStreamWaitEvent(second, event, 0);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name,
                           "a net's second stream: cuEventRecord, cuStreamWaitEvent");
    return mr_cuda_leave(c, rc);
}

int mr_nn_cuda_aside(struct mr_nn_backend *b)
{
    int rc = wait_for(b, b->fork, b->current.raw, b->other.raw);
    if (rc < 0)
        return rc;
    b->forked = true;
    swap_streams(b);
    return 0;
}

void mr_nn_cuda_back(struct mr_nn_backend *b)
{
    if (b->aside)
        swap_streams(b);
}

int mr_nn_cuda_join(struct mr_nn_backend *b)
{
    if (!b->forked)
        return 0;
    b->forked = false;
    return wait_for(b, b->join, b->other.raw, b->current.raw);
}

static struct CUstream_st *raw_of(const struct mr_stream *stream)
{
    const struct cuda_stream *s = stream->state;
    return s->handle;
}

int mr_nn_cuda_fork_to(struct mr_nn_backend *b, struct mr_stream *side)
{
    int rc = wait_for(b, b->fork, b->current.raw, raw_of(side));
    if (rc < 0)
        return rc;
    atomic_store(&side->recording, atomic_load(&b->current.stream->recording));
    return b->forked ? wait_for(b, b->join, b->other.raw, raw_of(side)) : 0;
}

int mr_nn_cuda_join_from(struct mr_nn_backend *b, struct mr_stream *side)
{
    atomic_store(&side->recording, false);
    return wait_for(b, b->join, raw_of(side), b->current.raw);
}
