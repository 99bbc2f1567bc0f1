/* The simple kernels: PTX by hand, which the driver compiles for the GPU that it has. The matrix
 * product is cuBLAS's (blas.c). */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

/*
 * busy: one thread, which looks at the GPU's clock (nanoseconds) until the time is over.
 * wait: one thread, which looks at a word of the host until it is not 0, or the time is over.
 * copy: 16 bytes a thread and turn, and single bytes at the end.
 */
static const char ptx[] =
    ".version 7.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry mr_busy(.param .u64 nanoseconds)\n"
    "{\n"
    "    .reg .u64 %rd<5>;\n"
    "    .reg .pred %p1;\n"
    "    ld.param.u64 %rd1, [nanoseconds];\n"
    "    mov.u64 %rd2, %globaltimer;\n"
    "spin:\n"
    "    mov.u64 %rd3, %globaltimer;\n"
    "    sub.u64 %rd4, %rd3, %rd2;\n"
    "    setp.lt.u64 %p1, %rd4, %rd1;\n"
    "    @%p1 bra spin;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry mr_wait(.param .u64 flag, .param .u64 nanoseconds)\n"
    "{\n"
    "    .reg .u64 %rd<6>;\n"
    "    .reg .u32 %r1;\n"
    "    .reg .pred %p<3>;\n"
    "    ld.param.u64 %rd1, [flag];\n"
    "    ld.param.u64 %rd5, [nanoseconds];\n"
    "    mov.u64 %rd2, %globaltimer;\n"
    "look:\n"
    "    ld.volatile.global.u32 %r1, [%rd1];\n"
    "    setp.ne.u32 %p1, %r1, 0;\n"
    "    @%p1 bra done;\n"
    "    mov.u64 %rd3, %globaltimer;\n"
    "    sub.u64 %rd4, %rd3, %rd2;\n"
    "    setp.lt.u64 %p2, %rd4, %rd5;\n"
    "    @%p2 bra look;\n"
    "done:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry mr_copy(.param .u64 dst, .param .u64 src, .param .u64 bytes)\n"
    "{\n"
    "    .reg .u64 %dst, %src, %bytes, %index, %stride, %n, %at, %from, %to, %thread;\n"
    "    .reg .u32 %r<9>;\n"
    "    .reg .u16 %byte;\n"
    "    .reg .pred %p1;\n"
    "    ld.param.u64 %dst, [dst];\n"
    "    ld.param.u64 %src, [src];\n"
    "    ld.param.u64 %bytes, [bytes];\n"
    "    mov.u32 %r1, %ctaid.x;\n"
    "    mov.u32 %r2, %ntid.x;\n"
    "    mov.u32 %r3, %tid.x;\n"
    "    mov.u32 %r4, %nctaid.x;\n"
    "    mul.wide.u32 %index, %r1, %r2;\n"
    "    cvt.u64.u32 %thread, %r3;\n"
    "    add.u64 %index, %index, %thread;\n"
    "    mul.wide.u32 %stride, %r4, %r2;\n"
    "    shr.u64 %n, %bytes, 4;\n"
    "    mov.u64 %at, %index;\n"
    "vectors:\n"
    "    setp.ge.u64 %p1, %at, %n;\n"
    "    @%p1 bra rest;\n"
    "    shl.b64 %thread, %at, 4;\n"
    "    add.u64 %from, %src, %thread;\n"
    "    add.u64 %to, %dst, %thread;\n"
    "    ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%from];\n"
    "    st.global.v4.u32 [%to], {%r5, %r6, %r7, %r8};\n"
    "    add.u64 %at, %at, %stride;\n"
    "    bra vectors;\n"
    "rest:\n"
    "    shl.b64 %at, %n, 4;\n"
    "    add.u64 %at, %at, %index;\n"
    "    setp.ge.u64 %p1, %at, %bytes;\n"
    "    @%p1 bra done;\n"
    "    add.u64 %from, %src, %at;\n"
    "    add.u64 %to, %dst, %at;\n"
    "    ld.global.u8 %byte, [%from];\n"
    "    st.global.u8 [%to], %byte;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

#define COPY_THREADS    512
#define COPY_MAX_BLOCKS 1024

static const char *const entries[] = {"mr_busy", "mr_wait",
                                      "mr_copy"}; /* by enum mr_simple_kernel */

/* With the context current. */
static int load(struct mr_cuda *c)
{
    int result = c->cu->cuModuleLoadData(&c->simple, ptx);
    if (result != CUDA_SUCCESS) {
        c->simple = NULL;
        return mr_cuda_error(c->cu, result, c->name, "cuModuleLoadData(kernels)");
    }
    for (size_t i = 0; i < MR_COUNT(entries); i++) {
        result = c->cu->cuModuleGetFunction(&c->function[i], c->simple, entries[i]);
        if (result == CUDA_SUCCESS)
            continue;
        c->cu->cuModuleUnload(c->simple);
        c->simple = NULL;
        return mr_cuda_error(c->cu, result, c->name, "cuModuleGetFunction(%s)", entries[i]);
    }
    return 0;
}

void mr_cuda_unload_simple(struct mr_cuda *c)
{
    if (c->simple)
        c->cu->cuModuleUnload(c->simple);
    c->simple = NULL;
}

static int start(struct mr_cuda *c, struct mr_stream *stream, struct mr_simple_launch *it)
{
    const struct cuda_stream *s = stream->state;
    if (it->kernel == MR_SIMPLE_BUSY && it->busy.stop)
        return mr_error_set(MR_EUNSUPPORTED, "%s: kernel busy: a GPU does not look at `stop`",
                            c->name);
    uint64_t most_ns = MR_WAIT_MOST_NS,
             vectors = it->kernel == MR_SIMPLE_COPY ? it->copy.bytes / 16 : 0;
    void *busy[] = {&it->busy.ns}, *wait[] = {&it->flag, &most_ns};
    void *copy[] = {&it->copy.dst, &it->copy.src, &it->copy.bytes};
    void **const params[] = {
        [MR_SIMPLE_BUSY] = busy, [MR_SIMPLE_WAIT] = wait, [MR_SIMPLE_COPY] = copy};
    unsigned threads = it->kernel == MR_SIMPLE_COPY ? COPY_THREADS : 1;
    unsigned blocks = (unsigned)MR_MIN((uint64_t)COPY_MAX_BLOCKS, vectors / threads + 1);
    if (it->kernel != MR_SIMPLE_COPY)
        blocks = 1;
    pthread_mutex_lock(&c->lock);
    int rc = c->simple ? 0 : load(c);
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        return rc;
    int result = c->cu->cuLaunchKernel(c->function[it->kernel], blocks, 1, 1, threads, 1, 1, 0,
                                       s->handle, params[it->kernel], NULL);
    return result == CUDA_SUCCESS
               ? 0
               : mr_cuda_error(c->cu, result, c->name, "cuLaunchKernel(%s)", entries[it->kernel]);
}

int mr_cuda_launch_simple(struct mr_stream *stream, const struct mr_simple_launch *launch)
{
    struct mr_cuda *c = stream->dev->state;
    struct mr_simple_launch it = *launch; /* the driver takes its parameters by plain pointers */
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    if (it.kernel == MR_SIMPLE_MATMUL)
        rc = mr_cuda_matmul(c, stream, &it.matmul);
    else
        rc = start(c, stream, &it);
    return mr_cuda_leave(c, rc);
}
