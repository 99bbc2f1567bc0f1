/* Kernels on a GPU. The simple ones are PTX by hand, which the driver compiles for whatever GPU is there, but for the matrix
 * product (cuda_blas.c); those of kernels.h are there when nvcc was found at build time. */
#include "device/cuda/cuda.h"
#include "device/kernels.h"

#include <stdio.h>
#include <string.h>

/*
 * busy: one thread, which looks at the GPU's clock (nanoseconds) until the time is over.
 * wait: one thread, which looks at a word of the host until it is not 0, or the time is over.
 * copy: 16 bytes a thread and turn, and single bytes at the end.
 */
static const char ptx[] = ".version 7.0\n"
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

static const char *const entries[] = {"mr_busy", "mr_wait", "mr_copy"}; /* by enum mr_simple_kernel */

/* With the context current. */
static int load(struct mr_cuda *c)
{
    int result = c->cu->cuModuleLoadData(&c->module, ptx);
    if (result != CUDA_SUCCESS) {
        c->module = NULL;
        return mr_cuda_error(c->cu, result, c->name, "cuModuleLoadData(kernels)");
    }
    for (size_t i = 0; i < MR_COUNT(entries); i++) {
        result = c->cu->cuModuleGetFunction(&c->function[i], c->module, entries[i]);
        if (result == CUDA_SUCCESS)
            continue;
        c->cu->cuModuleUnload(c->module);
        c->module = NULL;
        return mr_cuda_error(c->cu, result, c->name, "cuModuleGetFunction(%s)", entries[i]);
    }
    return 0;
}

void mr_cuda_unload(struct mr_cuda *c)
{
    if (c->module)
        c->cu->cuModuleUnload(c->module);
    c->module = NULL;
    for (int i = 0; i < MR_N_IMAGES; i++) {
        if (c->kernels[i])
            c->cu->cuModuleUnload(c->kernels[i]);
        c->kernels[i] = NULL;
    }
}

static int start(struct mr_cuda *c, struct mr_stream *stream, struct mr_launched *it)
{
    const struct cuda_stream *s = stream->state;
    uint64_t most_ns = MR_WAIT_MOST_NS, vectors = it->kernel == MR_KERNEL_COPY ? it->copy.bytes / 16 : 0;
    void *busy[] = {&it->busy_ns}, *wait[] = {&it->flag, &most_ns};
    void *copy[] = {&it->copy.dst, &it->copy.src, &it->copy.bytes};
    void **const params[] = {[MR_KERNEL_BUSY] = busy, [MR_KERNEL_WAIT] = wait, [MR_KERNEL_COPY] = copy};
    unsigned threads = it->kernel == MR_KERNEL_COPY ? COPY_THREADS : 1;
    unsigned blocks = (unsigned)MR_MIN((uint64_t)COPY_MAX_BLOCKS, vectors / threads + 1);
    if (it->kernel != MR_KERNEL_COPY)
        blocks = 1;
    pthread_mutex_lock(&c->lock);
    int rc = c->module ? 0 : load(c);
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        return rc;
    int result = c->cu->cuLaunchKernel(c->function[it->kernel], blocks, 1, 1, threads, 1, 1, 0, s->handle,
                                       params[it->kernel], NULL);
    return result == CUDA_SUCCESS ? 0
                                  : mr_cuda_error(c->cu, result, c->name, "cuLaunchKernel(%s)", entries[it->kernel]);
}

#if MILLRACE_HAVE_CUDA_KERNELS
/* Fatbins: machine code for several generations, and PTX for later ones. Generated from kernels/ by nvcc. */
extern const unsigned char mr_cuda_batch_image[], mr_cuda_optim_image[];

static const unsigned char *const images[] = {
    [MR_IMAGE_BATCH] = mr_cuda_batch_image, [MR_IMAGE_OPTIM] = mr_cuda_optim_image};

/* The image has nothing for this GPU or driver: not an error, the host does the work. */
static bool does_not_suit(int result)
{
    return result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
           result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

/* With the context current, under the lock. Returns 0, MR_EUNSUPPORTED, MR_EDEVICE. */
static int load_kernels(struct mr_cuda *c, int image)
{
    struct CUmod_st *module = NULL;
    const struct mr_kernel *k;
    int result = c->cu->cuModuleLoadData(&module, images[image]);
    if (result != CUDA_SUCCESS)
        return does_not_suit(result)
                   ? mr_error_set(MR_EUNSUPPORTED, "%s: the kernels in this build do not run on this GPU", c->name)
                   : mr_cuda_error(c->cu, result, c->name, "cuModuleLoadData(kernels)");
    for (size_t i = 0; i < MR_CUDA_KERNELS && (k = mr_kernel_at(i)) && result == CUDA_SUCCESS; i++) {
        char symbol[64];
        snprintf(symbol, sizeof symbol, "mr_%s", k->name);
        if (k->image == image)
            result = c->cu->cuModuleGetFunction(&c->kernel[i], module, symbol);
    }
    if (result != CUDA_SUCCESS) {
        c->cu->cuModuleUnload(module);
        return mr_cuda_error(c->cu, result, c->name, "cuModuleGetFunction(kernels)");
    }
    c->kernels[image] = module;
    return 0;
}

/* A name that is none: 0, and *out stays. */
static int find_function(struct mr_cuda *c, const char *name, struct CUfunc_st **out)
{
    const struct mr_kernel *k = NULL;
    size_t i = 0;
    while (i < MR_CUDA_KERNELS && (k = mr_kernel_at(i)) && strcmp(k->name, name) != 0)
        i++;
    if (i == MR_CUDA_KERNELS || !k)
        return 0;
    pthread_mutex_lock(&c->lock);
    int rc = c->kernels[k->image] ? 0 : load_kernels(c, k->image);
    if (rc == 0)
        *out = c->kernel[i];
    pthread_mutex_unlock(&c->lock);
    return rc;
}
#else
static int find_function(struct mr_cuda *c, const char *name, struct CUfunc_st **out)
{
    (void)out;
    return mr_error_set(MR_EUNSUPPORTED, "%s: no kernel \"%s\": this build was made without nvcc", c->name, name);
}
#endif

int mr_cuda_has_kernel(struct mr_device *dev, const char *name)
{
    struct mr_cuda *c = dev->state;
    struct CUfunc_st *function = NULL;
    int rc = mr_cuda_enter(c);
    if (rc == 0)
        rc = mr_cuda_leave(c, find_function(c, name, &function));
    return rc == MR_EUNSUPPORTED ? 0 : rc < 0 ? rc : 1;
}

#define BLOCK     256
#define MAX_GRID  65535
#define MAX_TOTAL INT32_MAX

/* Grid for the kernel; may rewrite its arguments: rows without gaps are one long row. */
static void shape_of(const struct mr_kernel *k, void *args, unsigned grid[2])
{
    uint64_t per_row = 0, rows = 1;
    if (k->shape) {
        k->shape(args, grid);
        return;
    }
    if (strcmp(k->name, "pointwise") == 0) {
        struct mr_point_args *a = args;
        if (mr_point_is_linear(a) && a->rows * a->elements <= MAX_TOTAL) {
            a->elements = a->dim[0] = (uint32_t)(a->rows * a->elements);
            a->rows = 1;
        }
        per_row = mr_point_is_linear(a) ? (a->elements + 3) / 4 : a->elements;
        rows = a->rows;
    } else if (strcmp(k->name, "pointwise_mix") == 0) {
        const struct mr_point_args *a = &((const struct mr_point_mix_args *)args)->point;
        per_row = mr_point_is_linear(a) ? (a->elements + 3) / 4 : a->elements;
        rows = a->rows;
    } else if (strcmp(k->name, "gather") == 0) {
        const struct mr_gather_args *a = args;
        per_row = (a->row_bytes + 15) / 16;
        rows = a->rows;
    } else if (strcmp(k->name, "resample") == 0) { /* tiles of 32 x 8 pixels */
        const struct mr_resample_args *a = args;
        per_row = ((uint64_t)a->out_w + 31) / 32 * ((a->out_h + 7) / 8) * BLOCK;
        rows = a->n;
    } else { /* both that make one_hot: their arguments begin alike */
        const struct mr_one_hot_args *a = args;
        per_row = a->rows * a->classes;
    }
    grid[0] = (unsigned)MR_MIN(MR_MAX((per_row + BLOCK - 1) / BLOCK, 1), MAX_GRID);
    grid[1] = (unsigned)MR_MIN(rows, MAX_GRID);
}

static int launch_kernel(struct mr_cuda *c, struct mr_stream *stream, const struct mr_kernel *k, const void *args)
{
    const struct cuda_stream *s = stream->state;
    struct CUfunc_st *function = NULL;
    _Alignas(16) unsigned char copy[MR_KERNEL_ARGS];
    void *params[] = {copy};
    unsigned grid[2];
    int rc = find_function(c, k->name, &function);
    if (rc < 0)
        return rc;
    memcpy(copy, args, k->arg_bytes);
    shape_of(k, copy, grid);
    int result = grid[1] == 0
                     ? CUDA_SUCCESS
                     : c->cu->cuLaunchKernel(function, grid[0], grid[1], 1, BLOCK, 1, 1, 0, s->handle, params, NULL);
    if (result == CUDA_SUCCESS)
        return 0;
    return mr_cuda_error(c->cu, result, c->name, "cuLaunchKernel(%s, %u x %u blocks)", k->name, grid[0], grid[1]);
}

int mr_cuda_launch(struct mr_stream *stream, const char *kernel, const void *args, size_t arg_bytes)
{
    struct mr_cuda *c = stream->dev->state;
    const struct mr_kernel *k = NULL;
    struct mr_kernel_range touched[MR_KERNEL_RANGES];
    struct mr_launched it = {0};
    int rc = mr_kernel_find(kernel) ? mr_kernel_args(c->name, kernel, args, arg_bytes, &k, touched)
                                    : mr_launch_args(c->name, stream->dev->ops->n_simple, kernel, args, arg_bytes, &it);
    if (rc >= 0)
        rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    if (k)
        rc = launch_kernel(c, stream, k, args);
    else if (it.kernel == MR_KERNEL_MATMUL)
        rc = mr_cuda_matmul(c, stream, &it.matmul);
    else
        rc = start(c, stream, &it);
    return mr_cuda_leave(c, rc);
}
