/*
 * The backend of the host's processors, compiled for f32 and f64 from the same source
 * (cpu_*.inc.h).
 *
 * Work is cut into tasks by shapes alone, never by the number of threads, and every sum is taken
 * inside of one task or over tasks in order: so results are the same bits for any number of
 * threads. Products are calls of one thread to CBLAS.
 */
#ifndef MR_NN_CPU_CPU_H
#define MR_NN_CPU_CPU_H

#include "base/thread_pool.h"
#include "kernels/half.h"
#include "nn/ops.h"

#define MR_NN_MAX_THREADS 256

struct mr_nn_backend {
    struct mr_thread_pool *pool;
    uint32_t n_threads; /* with the caller's */
    uint64_t step;
    struct mr_device *device;
    struct mr_net_totals *totals; /* in its memory, where kernels look for them */
    void *scratch
        /* scratch of each thread, room_bytes each; NULL until a task wants it */
        [MR_NN_MAX_THREADS];
    uint64_t room_bytes;
    void *partial; /* sums of tasks, added up in order afterwards */
    uint64_t partial_bytes;
};

int mr_nn_cpu_open(struct mr_device *device, const struct mr_net_opts *opts,
                   struct mr_nn_backend **out);
void mr_nn_cpu_close(struct mr_nn_backend *b);

/* Runs tasks 0..n-1 in all threads; comes back when all are done. scratch: the thread's. */
void mr_nn_cpu_run(struct mr_nn_backend *b, uint32_t n,
                   void (*run)(void *arg, uint32_t task, void *scratch), void *arg);

/* Makes each thread's scratch at least this large. */
int mr_nn_cpu_room(struct mr_nn_backend *b, uint64_t bytes);
int mr_nn_cpu_partial(struct mr_nn_backend *b, uint64_t bytes);

/* CBLAS's gemm, row-major, by one thread: c[m,n] = a b + beta c, a or b transposed. From the
 * library that was found, or plain loops. */
void mr_nn_gemm_f32(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const float *a,
                    uint32_t lda, const float *b, uint32_t ldb, float beta, float *c, uint32_t ldc);
void mr_nn_gemm_f64(int ta, int tb, uint32_t m, uint32_t n, uint32_t k, const double *a,
                    uint32_t lda, const double *b, uint32_t ldb, double beta, double *c,
                    uint32_t ldc);
/* Makes sure that so many threads can multiply at a time, where this process's memory is limited
 * (RLIMIT_AS, RLIMIT_DATA); to be called before they do. Returns 0 or -ENOMEM. */
int mr_nn_blas_prepare(uint32_t n_threads);
const char *mr_nn_blas_name(void);
/* Around products, of any number of threads: the library computes each by one thread, and as before
 * when the last has ended. */
void mr_nn_blas_begin(void);
void mr_nn_blas_end(void);

/* One bf16 or f16 as a number. */
static inline float mr_nn_half(uint16_t bits, enum mr_dtype dtype)
{
    return dtype == MR_BF16 ? mr_f32_of_bf16(bits) : mr_f32_of_f16(bits);
}

#endif
