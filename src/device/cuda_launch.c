/* Kernels on a GPU. "busy" is PTX by hand, which the driver compiles for whatever GPU is there. */
#include "device/cuda.h"

/* One thread, which looks at the GPU's clock (nanoseconds) until the time is over. */
static const char busy_ptx[] = ".version 7.0\n"
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
                               "}\n";

/* With the context current. */
static int load_busy(struct mr_cuda *c)
{
    int result = c->cu->cuModuleLoadData(&c->module, busy_ptx);
    if (result != CUDA_SUCCESS) {
        c->module = NULL;
        return mr_cuda_error(c->cu, result, c->name, "cuModuleLoadData(busy)");
    }
    result = c->cu->cuModuleGetFunction(&c->busy, c->module, "mr_busy");
    if (result == CUDA_SUCCESS)
        return 0;
    mr_cuda_unload(c);
    return mr_cuda_error(c->cu, result, c->name, "cuModuleGetFunction(mr_busy)");
}

void mr_cuda_unload(struct mr_cuda *c)
{
    if (c->module)
        c->cu->cuModuleUnload(c->module);
    c->module = NULL;
    c->busy = NULL;
}

static int launch_busy(struct mr_cuda *c, struct mr_stream *stream, uint64_t busy_ns)
{
    const struct cuda_stream *s = stream->state;
    void *params[] = {&busy_ns};
    pthread_mutex_lock(&c->lock);
    int rc = c->busy ? 0 : load_busy(c);
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        return rc;
    int result = c->cu->cuLaunchKernel(c->busy, 1, 1, 1, 1, 1, 1, 0, s->handle, params, NULL);
    if (result == CUDA_SUCCESS)
        return 0;
    return mr_cuda_error(c->cu, result, c->name, "cuLaunchKernel(busy, %llu ns)", (unsigned long long)busy_ns);
}

int mr_cuda_launch(struct mr_stream *stream, const char *kernel, const void *args, size_t arg_bytes)
{
    struct mr_cuda *c = stream->dev->state;
    uint64_t busy_ns = 0;
    int rc = mr_busy_args(c->name, kernel, args, arg_bytes, &busy_ns);
    if (rc >= 0)
        rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    return mr_cuda_leave(c, launch_busy(c, stream, busy_ns));
}
