/*
 * A CUDA driver that is not there: a libcuda.so.1 of host memory and one thread a stream, with all
 * symbols of our table. It counts calls by thread, fails one when asked, and notes misuse that a
 * real driver would answer with a crash or silence.
 *
 * Environment, read when it is loaded: FAKE_CUDA_DEVICES (2), FAKE_CUDA_VERSION (13000),
 * FAKE_CUDA_MEMORY (bytes a GPU, 1 GiB), FAKE_CUDA_NO_BATCH, FAKE_CUDA_NO_PEER (GPUs do not reach
 * each other), FAKE_CUDA_FAIL_CALL, FAKE_CUDA_FAIL_AT, FAKE_CUDA_FAIL_WITH, FAKE_CUDA_STICKY.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdint.h>

struct fake_cuda_report {
    uint64_t calls;                    /* that can fail */
    uint64_t batches;                  /* batches of copies */
    uint64_t peer_direct, peer_staged; /* copies */
    uint64_t misuse;                   /* times */
    char first_misuse[256];            /* "" when none */
    uint64_t graphs;                   /* recorded and executable ones alive */
    uint64_t streams, events, device_blocks, host_registered, host_allocated, modules,
        contexts; /* alive */
};

/*
 * Tests get these by dlsym. fail: of the calls named `call` (NULL: any) from now on, the at-th (1:
 * the next; 0: none) returns `code`; sticky: and all later ones that work in a context. Calls that
 * release do so even when they fail.
 */
typedef void fake_cuda_report_fn(struct fake_cuda_report *out);
typedef void fake_cuda_fail_fn(const char *call, uint64_t at, int code, int sticky);
/* Of the calling thread, so far: all calls, and those that block it until the device has done
 * something. */
typedef void fake_cuda_thread_fn(uint64_t *out_calls, uint64_t *out_blocking);
/* The GPU's clock jumps. */
typedef void fake_cuda_advance_fn(uint64_t ns);
/* Counts the misuse so far no more: the test meant it. Returns how often there was some. */
typedef uint64_t fake_cuda_forgive_fn(void);
/* For other libraries that are not there: enqueues run(a copy of args), also to a stream that is
 * captured. Returns a result. */
struct CUstream_st;
struct mr_kernel;
typedef int fake_cuda_enqueue_fn(struct CUstream_st *stream, const struct mr_kernel *kernel,
                                 const void *args);
/* The calling thread's current context. */
typedef void *fake_cuda_current_fn(void);
typedef void fake_cuda_set_current_fn(void *context);

#endif
