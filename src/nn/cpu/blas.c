/*
 * Matrix products on the host: by the CBLAS that is found when the first net is made (the file that
 * MILLRACE_BLAS names, or OpenBLAS, BLIS or whatever serves as libcblas or libblas), else by plain
 * loops. The nets cut the work themselves: while one of them computes the library is set to one
 * thread a call, and then back, since the rest of the program may use it, too.
 */
#include "nn/cpu/cpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

typedef void gemm_f32(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void gemm_f64(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a,
                      int lda, const double *b, int ldb, double beta, double *c, int ldc);

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static gemm_f32 *sgemm;
static gemm_f64 *dgemm;
/* OpenBLAS's and MKL's numbers are int, BLIS's long: both read and give a long's low half. */
static long (*get_threads)(void);
static void (*set_threads)(long);
/* OpenBLAS's, for the memory of a thread that multiplies; NULL: another library, or another
 * version. */
static void *(*take_buffer)(int where);
static void (*give_buffer)(void *buffer);
static struct {
    pthread_mutex_t lock; /* a leaf */
    uint32_t n;           /* jobs under way */
    long before;          /* threads, as the program had set them */
} users = {.lock = PTHREAD_MUTEX_INITIALIZER};
static char name[64] = "plain loops";
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool use(void *library, const char *file)
{
    void *s = dlsym(library, "cblas_sgemm"), *d = dlsym(library, "cblas_dgemm");
    if (!s || !d)
        return false;
    memcpy(&sgemm, &s, sizeof s);
    memcpy(&dgemm, &d, sizeof d);
    static const char *const pairs[][2] = {
        {"openblas_get_num_threads", "openblas_set_num_threads"},
        {"bli_thread_get_num_threads", "bli_thread_set_num_threads"},
        {"MKL_Get_Max_Threads", "MKL_Set_Num_Threads"}};
    void *take = dlsym(library, "blas_memory_alloc"), *give = dlsym(library, "blas_memory_free");
    memcpy(&take_buffer, &take, sizeof take);
    memcpy(&give_buffer, &give, sizeof give);
    for (size_t i = 0; i < MR_COUNT(pairs) && !set_threads; i++) {
        void *get = dlsym(library, pairs[i][0]), *set = dlsym(library, pairs[i][1]);
        if (!get || !set)
            continue;
        memcpy(&get_threads, &get, sizeof get);
        memcpy(&set_threads, &set, sizeof set);
    }
    const char *slash = strrchr(file, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : file);
    return true;
}

static void find(void)
{
    const char *const names[] = {getenv("MILLRACE_BLAS"), "libopenblas.so.0", "libblis.so.4",
                                 "libcblas.so.3", "libblas.so.3"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        void *library = names[i] && *names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library && use(library, names[i]))
            return;
        if (library)
            dlclose(library);
    }
}

/* ---- memory under a limit ---- */

/*
 * OpenBLAS takes a buffer for each thread that multiplies, at its first product, and keeps it. A
 * thread that gets none asks again for ever. So where this process's address space is limited the
 * memory is asked for here first, and then taken.
 */
#define BUFFER_BYTES  (128ull << 20)
#define LIBRARY_BYTES (64ull << 20)
#define STACK_BYTES   (8ull << 20)

static struct {
    /* held while the library is loaded; nothing else is taken inside but `once` */
    pthread_mutex_t lock;
    uint32_t n; /* buffers that the library surely has */
} buffers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_limited(uint64_t *bytes)
{
    struct rlimit space = {RLIM_INFINITY, RLIM_INFINITY}, data = space;
    getrlimit(RLIMIT_AS, &space);
    getrlimit(RLIMIT_DATA, &data);
    *bytes = MR_MIN(space.rlim_cur, data.rlim_cur);
    return space.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY;
}

/* Once a process the library is mapped, too, and starts a thread for each processor but one, each
 * with a buffer. */
static uint64_t needed(uint32_t n_threads)
{
    uint64_t own = buffers.n ? 0 : (uint64_t)MR_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1) - 1;
    uint64_t library = buffers.n ? 0 : LIBRARY_BYTES;
    return library + own * (BUFFER_BYTES + STACK_BYTES) + (n_threads - buffers.n) * BUFFER_BYTES;
}

/* All at a time: each is then another one. Libraries without these calls need no such buffers. */
static void take_buffers(uint32_t n)
{
    void *taken[MR_NN_MAX_THREADS];
    if (!take_buffer || !give_buffer)
        return;
    for (uint32_t i = 0; i < n; i++)
        taken[i] = take_buffer(0);
    for (uint32_t i = 0; i < n; i++)
        give_buffer(taken[i]);
}

int mr_nn_blas_prepare(uint32_t n_threads)
{
    uint64_t limit;
    int rc = 0;
    if (!is_limited(&limit))
        return 0;
    pthread_mutex_lock(&buffers.lock);
    if (n_threads > buffers.n) {
        uint64_t bytes = needed(n_threads);
        void *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) {
            rc = mr_error_set(
                -ENOMEM,
                "net: matrix products in %u threads may need %llu MiB of address space, more than "
                "this "
                "process's limit of %llu MiB leaves: raise it (ulimit -v, ulimit -d), or use fewer "
                "threads",
                n_threads, (unsigned long long)bytes >> 20, (unsigned long long)limit >> 20);
        } else {
            munmap(all, bytes);
            pthread_once(&once, find);
            take_buffers(n_threads);
            buffers.n = n_threads;
        }
    }
    pthread_mutex_unlock(&buffers.lock);
    return rc;
}

/* ---- products ---- */

void mr_nn_blas_begin(void)
{
    pthread_once(&once, find);
    if (!set_threads)
        return;
    pthread_mutex_lock(&users.lock);
    if (users.n++ == 0) {
        users.before = (int)get_threads();
        set_threads(1);
    }
    pthread_mutex_unlock(&users.lock);
}

void mr_nn_blas_end(void)
{
    if (!set_threads)
        return;
    pthread_mutex_lock(&users.lock);
    if (--users.n == 0)
        set_threads(users.before);
    pthread_mutex_unlock(&users.lock);
}

const char *mr_nn_blas_name(void)
{
    pthread_once(&once, find);
    return name;
}

#define PLAIN(NAME, REAL)                                                                          \
    MR_CLONES static void NAME(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const REAL *a,  \
                               uint32_t lda, const REAL *b, uint32_t ldb, REAL beta,               \
                               REAL *restrict c, uint32_t ldc)                                     \
    {                                                                                              \
        for (uint32_t i = 0; i < m; i++) {                                                         \
            REAL *row = c + (size_t)i * ldc;                                                       \
            for (uint32_t j = 0; j < n; j++)                                                       \
                row[j] = beta == 0 ? 0 : row[j] * beta;                                            \
            for (uint32_t l = 0; l < k; l++) {                                                     \
                REAL x = ta ? a[(size_t)l * lda + i] : a[(size_t)i * lda + l];                     \
                if (tb)                                                                            \
                    for (uint32_t j = 0; j < n; j++)                                               \
                        row[j] += x * b[(size_t)j * ldb + l];                                      \
                else                                                                               \
                    for (uint32_t j = 0; j < n; j++)                                               \
                        row[j] += x * b[(size_t)l * ldb + j];                                      \
            }                                                                                      \
        }                                                                                          \
    }
PLAIN(plain_f32, float)
PLAIN(plain_f64, double)

void mr_nn_gemm_f32(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const float *a,
                    uint32_t lda, const float *b, uint32_t ldb, float beta, float *c, uint32_t ldc)
{
    pthread_once(&once, find);
    if (sgemm)
        sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)k, 1, a,
              (int)lda, b, (int)ldb, beta, c, (int)ldc);
    else
        plain_f32(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

void mr_nn_gemm_f64(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const double *a,
                    uint32_t lda, const double *b, uint32_t ldb, double beta, double *c,
                    uint32_t ldc)
{
    pthread_once(&once, find);
    if (dgemm)
        dgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)k, 1, a,
              (int)lda, b, (int)ldb, beta, c, (int)ldc);
    else
        plain_f64(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}
