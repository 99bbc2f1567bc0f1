/* What the two files of the fake driver share. fake_lock guards everything; fake_changed tells of
 * any change. */
#ifndef FAKE_CUDA_PRIVATE_H
#define FAKE_CUDA_PRIVATE_H

#include "device/cuda/driver.h"
#include "fake_cuda.h"

#define FAKE_API             __attribute__((visibility("default")))

/* So the definitions cannot differ from what the library calls. */
#define X(symbol, arguments) FAKE_API int symbol arguments;
CUDA_REQUIRED(X)
CUDA_OPTIONAL(X)
#undef X

FAKE_API fake_cuda_report_fn fake_cuda_report;
FAKE_API fake_cuda_fail_fn fake_cuda_fail;
FAKE_API fake_cuda_thread_fn fake_cuda_thread;
FAKE_API fake_cuda_advance_fn fake_cuda_advance;
FAKE_API fake_cuda_forgive_fn fake_cuda_forgive;
FAKE_API fake_cuda_enqueue_fn fake_cuda_enqueue;
FAKE_API fake_cuda_current_fn fake_cuda_current;
FAKE_API fake_cuda_set_current_fn fake_cuda_set_current;

/* A point in a stream, alive while an event or enqueued work refers to it. */
struct mark {
    int users;
    int n_more; /* records of other streams that it waits for, too */
    bool passed;
    uint64_t time_ns;
};

enum fake_kind { COPY, SET, RECORD, WAIT, WAIT_LATEST, BUSY, FLAG, KERNEL, SUM };

struct op {
    struct op *next;
    enum fake_kind kind;
    void *dst;
    const void *src;
    void *staged; /* to be freed */
    size_t bytes;
    int byte;
    uint64_t busy_ns;
    const volatile uint32_t *flag;
    const struct mr_kernel *kernel; /* its arguments are `staged` */
    struct mark *mark;
    struct CUevent_st *event; /* WAIT_LATEST: of a graph; its mark is looked up at each launch */
};

struct CUstream_st {
    struct CUstream_st *next;
    pthread_t thread;
    struct CUctx_st *context;
    int capture_mode;
    struct op *head, **tail;
    bool working, stop;
    bool capturing, broken; /* broken: something happened that a capture does not survive */
    struct op *recorded, **recorded_tail;
};

struct fake_range {
    struct fake_range *next;
    void *ptr;
    uint64_t bytes;
    bool device; /* else page-locked host memory */
    int owner;   /* which GPU */
    uint64_t *count;
};

/* Kernels: a function's handle is its module's address and this. */
enum fake_kernel { FAKE_BUSY, FAKE_WAIT, FAKE_COPY, FAKE_SUM };
extern char fake_module[4];

enum fake_needs { FAKE_NOTHING, FAKE_CONTEXT };

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
extern struct fake_cuda_report fake_count;

/* Takes the lock. Returns 0, or the error that the call shall return. */
int fake_begin(const char *call, enum fake_needs needs);
/* Lets the lock go; returns result. */
int fake_end(int result);
void fake_misuse(const char *what);
/* The calling thread's call is one that blocks. */
void fake_blocks(void);
/* Which GPU a context is of; -1: of none, or not retained. */
int fake_gpu_of(const struct CUctx_st *context);
/* The primary context of a GPU went away, and with it what it could reach. */
void fake_peers_forget(int gpu);
/* The range that holds all of it, or NULL. */
struct fake_range *fake_find(const void *ptr, uint64_t bytes, bool device);
/* Under the lock, which is let go meanwhile: until all streams are idle. */
void fake_wait_all(void);
/* Under the lock. */
int fake_enqueue(struct CUstream_st *s, struct op what);
/* The stream of a handle, which may be one of the special ones; NULL after a misuse. */
struct CUstream_st *fake_stream(const char *call, struct CUstream_st *handle);
/* A call that fails, and spoils captures, while a stream is captured in the global mode. Returns a
 * result. */
int fake_unsafe(void);
/* What ends all captures, whatever the modes. Returns the driver's error if there were any. */
int fake_break_captures(void);
/* An operation of a graph, once more. */
int fake_enqueue_again(struct CUstream_st *s, struct op op);
/* Under the lock: a copy in device memory, checked. Returns a result. */
int fake_copy_device(const char *call, struct CUstream_st *stream, void *dst, const void *src,
                     size_t bytes);

/* The first of the library's kernels for which `is` holds, or NULL. */
const struct mr_kernel *fake_kernel(bool (*is)(const struct mr_kernel *k, const void *user),
                                    const void *user);

#endif
