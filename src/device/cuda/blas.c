/*
 * Matrix products on a GPU by cuBLAS, found when first needed. It is no part of the driver: it
 * comes with the toolkit or with Python packages, and everything but the experiments does without.
 */
#include "device/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>

struct cublasContext;

static struct {
    int (*create)(struct cublasContext **out);
    int (*destroy)(struct cublasContext *handle);
    int (*set_stream)(struct cublasContext *handle, struct CUstream_st *stream);
    int (*sgemm)(struct cublasContext *handle, int trans_a, int trans_b, int m, int n, int k,
                 const float *alpha, const float *a, int lda, const float *b, int ldb,
                 const float *beta, float *c, int ldc);
    char why_not[400]; /* "": usable */
} blas;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Never closed: it has handlers of its own. */
static void *open_any(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    const char *path = getenv("MILLRACE_CUBLAS");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !library) {
        const char *text = dlerror();
        snprintf(blas.why_not, sizeof blas.why_not, "MILLRACE_CUBLAS: %.300s", text ? text : path);
        return NULL;
    }
    for (size_t i = 0; i < MR_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(blas.why_not, sizeof blas.why_not,
                 "none of libcublas.so.13, .12 and .11 was found: add its folder to "
                 "LD_LIBRARY_PATH, or name the file by "
                 "MILLRACE_CUBLAS (the Python package nvidia-cublas has it)");
    return library;
}

static void find(void)
{
    void *library = open_any();
    if (!library)
        return;
    *(void **)(void *)&blas.create = dlsym(library, "cublasCreate_v2");
    *(void **)(void *)&blas.destroy = dlsym(library, "cublasDestroy_v2");
    *(void **)(void *)&blas.set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)(void *)&blas.sgemm = dlsym(library, "cublasSgemm_v2");
    if (!blas.create || !blas.destroy || !blas.set_stream || !blas.sgemm)
        snprintf(blas.why_not, sizeof blas.why_not,
                 "it lacks one of cublasCreate_v2, cublasDestroy_v2, "
                 "cublasSetStream_v2, cublasSgemm_v2");
}

static int failed(const struct mr_cuda *c, const char *call, int status)
{
    return mr_error_set(
        MR_EDEVICE, "%s on %s: cublasStatus_t %d%s", call, c->name, status,
        status == 3    ? " (CUBLAS_STATUS_ALLOC_FAILED: it needs some tens of MiB of device memory)"
        : status == 13 ? " (CUBLAS_STATUS_EXECUTION_FAILED)"
                       : "");
}

/* cuBLAS counts in columns: the product of the transposes in the other order is the transpose of
 * the product. */
int mr_cuda_matmul(struct mr_cuda *c, struct mr_stream *stream, const struct mr_kernel_matmul *m)
{
    const struct cuda_stream *s = stream->state;
    const float one = 1, zero = 0;
    const char *call = "cublasCreate_v2";
    int n = (int)m->n, status = 0;
    pthread_once(&once, find);
    if (blas.why_not[0])
        return mr_error_set(MR_ENODEVICE, "device %s: matmul_f32 needs cuBLAS: %s", c->name,
                            blas.why_not);
    if (m->n == 0 || m->n > 65536 || m->rows == 0 || m->rows > 65536)
        return mr_error_set(MR_EMISUSE,
                            "kernel matmul_f32: expected n and rows of 1..65536, got %llu and %llu",
                            (unsigned long long)m->n, (unsigned long long)m->rows);
    pthread_mutex_lock(&c->lock);
    if (!c->blas)
        status = blas.create(&c->blas);
    if (status) {
        c->blas = NULL;
    } else {
        call = "cublasSetStream_v2";
        status = blas.set_stream(c->blas, s->handle);
    }
    if (!status) {
        call = "cublasSgemm_v2";
        status =
            blas.sgemm(c->blas, 0, 0, n, (int)m->rows, n, &one, m->b, n, m->a, n, &zero, m->c, n);
    }
    pthread_mutex_unlock(&c->lock);
    return status ? failed(c, call, status) : 0;
}

void mr_cuda_blas_close(struct mr_cuda *c)
{
    if (c->blas)
        blas.destroy(c->blas);
    c->blas = NULL;
}
