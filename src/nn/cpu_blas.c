/*
 * Matrix products on the host: by the CBLAS that is found when the first net is made (the file that MILLRACE_BLAS names, or
 * OpenBLAS, BLIS or whatever serves as libcblas or libblas), set to one thread a call, since the nets cut the work themselves;
 * else by plain loops.
 */
#include "nn/cpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void gemm_f32(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
typedef void gemm_f64(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                      const double *b, int ldb, double beta, double *c, int ldc);

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static gemm_f32 *sgemm;
static gemm_f64 *dgemm;
static char name[64] = "plain loops";
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool use(void *library, const char *file)
{
    void *s = dlsym(library, "cblas_sgemm"), *d = dlsym(library, "cblas_dgemm");
    if (!s || !d)
        return false;
    memcpy(&sgemm, &s, sizeof s);
    memcpy(&dgemm, &d, sizeof d);
    static const char *const setters[] = {"openblas_set_num_threads", "bli_thread_set_num_threads",
                                          "MKL_Set_Num_Threads"};
    for (size_t i = 0; i < MR_COUNT(setters); i++) {
        void *p = dlsym(library, setters[i]);
        void (*set)(int);
        memcpy(&set, &p, sizeof p);
        if (p)
            set(1);
    }
    const char *slash = strrchr(file, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : file);
    return true;
}

static void find(void)
{
    const char *const names[] = {getenv("MILLRACE_BLAS"), "libopenblas.so.0", "libblis.so.4", "libcblas.so.3",
                                 "libblas.so.3"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        void *library = names[i] && *names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library && use(library, names[i]))
            return;
        if (library)
            dlclose(library);
    }
}

const char *mr_nn_blas_name(void)
{
    pthread_once(&once, find);
    return name;
}

#define PLAIN(NAME, REAL)                                                                                              \
    MR_CLONES static void NAME(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const REAL *a, uint32_t lda,        \
                               const REAL *b, uint32_t ldb, REAL beta, REAL *restrict c, uint32_t ldc)                 \
    {                                                                                                                  \
        for (uint32_t i = 0; i < m; i++) {                                                                             \
            REAL *row = c + (size_t)i * ldc;                                                                           \
            for (uint32_t j = 0; j < n; j++)                                                                           \
                row[j] = beta == 0 ? 0 : row[j] * beta;                                                                \
            for (uint32_t l = 0; l < k; l++) {                                                                         \
                REAL x = ta ? a[(size_t)l * lda + i] : a[(size_t)i * lda + l];                                         \
                if (tb)                                                                                                \
                    for (uint32_t j = 0; j < n; j++)                                                                   \
                        row[j] += x * b[(size_t)j * ldb + l];                                                          \
                else                                                                                                   \
                    for (uint32_t j = 0; j < n; j++)                                                                   \
                        row[j] += x * b[(size_t)l * ldb + j];                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
PLAIN(plain_f32, float)
PLAIN(plain_f64, double)

void mr_nn_gemm_f32(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda, const float *b,
                    uint32_t ldb, float beta, float *c, uint32_t ldc)
{
    pthread_once(&once, find);
    if (sgemm)
        sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)k, 1, a, (int)lda, b,
              (int)ldb, beta, c, (int)ldc);
    else
        plain_f32(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

void mr_nn_gemm_f64(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const double *a, uint32_t lda, const double *b,
                    uint32_t ldb, double beta, double *c, uint32_t ldc)
{
    pthread_once(&once, find);
    if (dgemm)
        dgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)k, 1, a, (int)lda, b,
              (int)ldb, beta, c, (int)ldc);
    else
        plain_f64(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}
