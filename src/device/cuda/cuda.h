/*
 * The device "cuda": what its files share.
 *
 * Every call makes the GPU's primary context current on the calling thread and takes it away again,
 * so a caller finds its own context as it was; where it is current already (PyTorch's threads, our
 * workers) there is nothing to do. Results of the driver become errors here and nowhere else.
 */
#ifndef MR_DEVICE_CUDA_CUDA_H
#define MR_DEVICE_CUDA_CUDA_H

#include "device/cuda/driver.h"
#include "device/cuda/nvjpeg.h"
#include "device/host.h"

#define MR_CUDA_MAX_PEERS 64

enum cuda_pinned { CUDA_PINNED_REGISTER, CUDA_PINNED_ALLOC };

struct cuda_options {
    int64_t ordinal;
    int pinned; /* enum cuda_pinned */
};

/* Page-locked memory that we made. */
enum cuda_host { CUDA_HOST_REGISTERED, CUDA_HOST_ALLOCATED, CUDA_HOST_NOT_LOCKED };

struct cuda_block {
    struct cuda_block *next;
    void *ptr;
    enum cuda_host how;
};

struct cuda_anchor;
struct cuda_module;
struct cublasContext;

struct mr_cuda {
    const struct mr_cuda_driver *cu;
    struct cuda_options opts;
    int device; /* the driver's handle */
    struct CUctx_st *context;
    char name[32];               /* "cuda:0" */
    struct mr_device_info fixed; /* what does not change */
    struct mr_host_near near;
    uint64_t serial;                          /* of the opening, from 1; never used twice */
    _Atomic uint64_t peer[MR_CUDA_MAX_PEERS]; /* by ordinal: serial << 1 | whether we reach each
                                                 other; 0: unknown */
    /* the driver does not take batches, or some pinned memory could not be locked */
    atomic_bool no_batch;
    pthread_mutex_t lock; /* guards all below; nothing of ours is locked under it */
    struct cuda_block *blocks;
    struct cuda_anchor *anchor; /* the last; NULL: none yet */
    struct CUstream_st *clock_stream;
    struct CUmod_st *simple;                      /* of the simple kernels; NULL: not loaded yet */
    struct CUfunc_st *function[MR_SIMPLE_MATMUL]; /* by enum mr_simple_kernel */
    struct cublasContext *blas;                   /* NULL: not needed yet */
    struct cuda_module *modules;                  /* those that are loaded */
};

struct cuda_stream {
    struct CUstream_st *handle;
    bool legacy;        /* the legacy default stream: it cannot be captured */
    atomic_bool shared; /* other libraries have the handle, and may capture the stream */
};

/* Pictures of one call. */
struct cuda_jpeg_list {
    const unsigned char **data;
    size_t *bytes;
    struct nvjpeg_image *to;
    uint32_t *which; /* of the call's pictures */
    uint32_t n, cap;
};

/* What reads headers, for the question whether the chip's decoder takes a picture. */
#define CUDA_JPEG_PARSERS 16
struct cuda_jpeg_parser {
    struct nvjpegJpegStream *stream;
    atomic_bool busy;
};

struct cuda_jpeg {
    struct nvjpegHandle *handle;
    struct nvjpegJpegState *state;
    bool hardware;      /* by the chip's decoder; else by nvJPEG's kernels */
    uint32_t ready_for; /* pictures that the state is set up for; 0: none */
    struct cuda_jpeg_list list;
    struct cuda_jpeg_parser parser[CUDA_JPEG_PARSERS]; /* of `hardware` */
    _Atomic uint32_t turn;                             /* of the parsers */
};

struct cuda_event {
    struct CUevent_st *handle;
    struct cuda_anchor *anchor; /* the last one before the record; under the device's lock */
    atomic_bool captured;       /* last recorded by us while its stream was being captured */
};

/* context.c. Makes the context current. Returns 0, MR_EDEVICE. Every 0 is followed by
 * mr_cuda_leave. */
MR_PRIVATE int mr_cuda_enter(const struct mr_cuda *c);
MR_PRIVATE int mr_cuda_enter_to_release(const struct mr_cuda *c);
/* Restores the caller's context. Returns rc, or MR_EDEVICE when rc was none and that fails. */
MR_PRIVATE int mr_cuda_leave(const struct mr_cuda *c, int rc);

/*
 * While some thread captures a stream in the driver's "global" mode, as PyTorch does, calls that
 * look at or wait for other streams' work fail on every thread and spoil that capture, unless the
 * calling thread has said that it means it. Returns what mr_cuda_unrelax() takes.
 */
static inline int mr_cuda_relax(const struct mr_cuda *c)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    c->cu->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}
static inline void mr_cuda_unrelax(const struct mr_cuda *c, int mode)
{
    c->cu->cuThreadExchangeStreamCaptureMode(&mode);
}

/* wrap.c: hooks. */
int mr_cuda_stream_wrap(struct mr_stream *stream, void *native);
void *mr_cuda_stream_native(struct mr_stream *stream);
int mr_cuda_stream_capturing(const struct mr_stream *stream);
int mr_cuda_event_record_any(struct mr_event *event);
int mr_cuda_event_wrap(struct mr_event *event, void *native);
void *mr_cuda_event_native(struct mr_event *event);
/* Sets the error of a call on an event that is a part of a graph. Returns MR_EMISUSE. */
int mr_cuda_captured_error(const char *call);

/* info.c: fills c->fixed and c->near. */
int mr_cuda_look_up(struct mr_cuda *c);
int mr_cuda_query(struct mr_device *dev, struct mr_device_info *out);
const struct mr_host_near *mr_cuda_near(const struct mr_device *dev);
int mr_cuda_processes(struct mr_device *dev, struct mr_device_process *out, int max);

/* memory.c: hooks. */
int mr_cuda_memory_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out,
                          uint64_t *out_locked);
void mr_cuda_memory_destroy(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes);
int mr_cuda_host_create(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out);
void mr_cuda_host_destroy(struct mr_device *dev, void *ptr);
int mr_cuda_memory_register(struct mr_device *dev, void *ptr, uint64_t bytes);
int mr_cuda_memory_unregister(struct mr_device *dev, void *ptr, uint64_t bytes);

/* copy.c: hooks. */
int mr_cuda_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind,
                       const void *src, enum mr_memory src_kind, uint64_t bytes);
int mr_cuda_copy_batch(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n);
int mr_cuda_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                         uint64_t bytes);
int mr_cuda_stream_synchronize(struct mr_stream *stream);

/* file.c: hooks. */
int mr_cuda_files_open(struct mr_device *dev, char *note, size_t note_bytes);
void mr_cuda_files_close(struct mr_device *dev);
int mr_cuda_file_open(struct mr_device *dev, int fd, const char *name, void **out);
void mr_cuda_file_close(struct mr_device *dev, void *file);
int mr_cuda_file_register(struct mr_device *dev, void *memory, uint64_t bytes);
void mr_cuda_file_unregister(struct mr_device *dev, void *memory);
int64_t mr_cuda_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                          uint64_t at, uint64_t bytes);

/* peer.c: hooks. */
int mr_cuda_reach(struct mr_device *one, struct mr_device *other);
int mr_cuda_copy_peer(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                      const void *src, struct mr_device *src_device, uint64_t bytes);

/* graph.c: hooks. */
struct cuda_graph {
    struct CUgraphExec_st *exec;
};
int mr_cuda_graph_begin(struct mr_stream *stream);
int mr_cuda_graph_end(struct mr_stream *stream, struct mr_graph *graph);
int mr_cuda_graph_launch(struct mr_graph *graph, struct mr_stream *stream);
void mr_cuda_graph_close(struct mr_graph *graph);

/* clock.c, all with the context current. mark: before a timed event is recorded. elapsed: returns
 * the driver's result. */
void mr_cuda_clock_mark(struct mr_cuda *c, struct cuda_event *e);
void mr_cuda_clock_forget(struct mr_cuda *c, struct cuda_event *e);
void mr_cuda_clock_close(struct mr_cuda *c);
int mr_cuda_clock_elapsed(struct mr_cuda *c, const struct cuda_event *from,
                          const struct cuda_event *to, int64_t *out_ns);

/* launch.c: hooks. */
int mr_cuda_load(struct mr_device *dev, const struct mr_kernel_module *module);
int mr_cuda_launch(struct mr_stream *stream, const struct mr_kernel *kernel, const void *args,
                   const struct mr_kernel_range ranges[MR_KERNEL_RANGES], const unsigned grid[2]);
void mr_cuda_unload(struct mr_cuda *c); /* with the context current */

/* simple.c: the hook, and its part of mr_cuda_unload(). */
int mr_cuda_launch_simple(struct mr_stream *stream, const struct mr_simple_launch *launch);
void mr_cuda_unload_simple(struct mr_cuda *c);

/* jpeg.c: hooks. */
int mr_cuda_jpeg_find(struct mr_device *dev);
bool mr_cuda_jpeg_takes(struct mr_jpeg_unit *unit, const struct mr_jpeg *p);
int mr_cuda_jpeg_open(struct mr_device *dev, struct mr_jpeg_unit *unit);
void mr_cuda_jpeg_close(struct mr_jpeg_unit *unit);
int mr_cuda_jpeg_decode(struct mr_jpeg_unit *unit, struct mr_stream *stream,
                        struct mr_jpeg *picture, uint32_t n);

/* blas.c, with the context current */
int mr_cuda_matmul(struct mr_cuda *c, struct mr_stream *stream, const struct mr_kernel_matmul *m);
void mr_cuda_blas_close(struct mr_cuda *c);

#endif
