/*
 * The device vtable. device.c is the front (checks, pool); backs: cpu.c, sim.c and its files, cuda.c and its files.
 */
#ifndef MR_DEVICE_DEVICE_H
#define MR_DEVICE_DEVICE_H

#include "base/base.h"
#include <millrace/device.h>
#include <millrace/options.h>

/* One picture for the device's decoder: its bytes, which stay until the work has passed, become rows of RGB. */
struct mr_jpeg {
    const void *bytes;
    uint64_t n_bytes;
    uint32_t width, height; /* as stored: a picture that says otherwise is refused */
    void *to;               /* device memory: height rows of width * 3 bytes */
    bool refused;           /* [out] not decoded: the decoder does not take it, or found it damaged */
};

/* A decoder of the device's own. One thread at a time; work of one call has passed before the next. */
struct mr_jpeg_unit {
    struct mr_device *dev;
    void *state;
};

struct mr_device_ops {
    const char *name;
    const char *summary;
    const struct mr_option *options; /* of the URI; NULL: none */
    const char *const *positional;   /* options that items without "key=" set, in order; NULL: none */
    size_t opts_size, state_size;
    const char *(*probe)(void); /* NULL: usable; else why not. Required. */
    /* Optional: 0 when calls can work at all (not after a fork, for instance). What fails is asked before any lock. */
    int (*ready)(const struct mr_device *dev);
    /* Optional, both or none: mr_device_enter. */
    int (*enter)(const struct mr_device *dev);
    void (*leave)(const struct mr_device *dev);
    /* Optional: n > 0 copies, each of > 0 bytes; NULL: one by one. */
    int (*copy_batch)(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n);
    /* Optional: mr_device_processes. */
    int (*processes)(struct mr_device *dev, struct mr_device_process *out, int max);
    /* Optional, both or none: mr_device_reach, mr_copy_peer_async; two different devices with this vtable, bytes > 0. */
    int (*reach)(struct mr_device *one, struct mr_device *other);
    int (*copy_peer)(struct mr_stream *stream, void *dst, struct mr_device *dst_device, const void *src,
                     struct mr_device *src_device, uint64_t bytes);
    /* Optional, both or none: mr_memory_make. */
    int (*host_make)(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out);
    void (*host_drop)(struct mr_device *dev, void *ptr);
    /*
     * Optional, all or none: files that are read straight into device memory (file.c). begin and end: around everything;
     * [out] note: what is to be said of how it is done, else "". open: of a file that is open for reading at fd, which stays
     * the caller's. memory: an allocation that reads will go into; when it is refused they go into it all the same.
     */
    int (*files_begin)(struct mr_device *dev, char *note, size_t note_bytes);
    void (*files_end)(struct mr_device *dev);
    int (*file_open)(struct mr_device *dev, int fd, const char *name, void **out);
    void (*file_close)(struct mr_device *dev, void *file);
    int (*file_memory)(struct mr_device *dev, void *memory, uint64_t bytes);
    void (*file_memory_end)(struct mr_device *dev, void *memory);
    int64_t (*file_read)(struct mr_device *dev, void *file, uint64_t offset, void *memory, uint64_t at, uint64_t bytes);
    /* Optional, all or none: graphs. end: graph NULL: drops what was recorded; recording is over whatever it returns. */
    int (*graph_begin)(struct mr_stream *stream);
    int (*graph_end)(struct mr_stream *stream, struct mr_graph *graph);
    int (*graph_launch)(struct mr_graph *graph, struct mr_stream *stream);
    void (*graph_close)(struct mr_graph *graph);
    size_t graph_size;
    /* Required, all of these. */
    int (*open)(struct mr_device *dev, const void *opts);
    void (*close)(struct mr_device *dev);
    int (*info)(struct mr_device *dev, struct mr_device_info *out);
    /* Memory straight from the system; pool.c caches it. [out] locked: bytes really page-locked. */
    int (*memory_make)(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out, uint64_t *out_locked);
    void (*memory_drop)(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes);
    int (*memory_register)(struct mr_device *dev, void *ptr, uint64_t bytes);
    int (*memory_unregister)(struct mr_device *dev, void *ptr, uint64_t bytes);
    int (*stream_open)(struct mr_stream *stream);
    void (*stream_close)(struct mr_stream *stream);
    int (*stream_synchronize)(struct mr_stream *stream);
    int (*event_open)(struct mr_event *event);
    void (*event_close)(struct mr_event *event);
    int (*event_record)(struct mr_event *event, struct mr_stream *stream);
    int (*event_wait)(struct mr_stream *stream, struct mr_event *event);
    int (*event_query)(struct mr_event *event);
    int (*event_synchronize)(struct mr_event *event);
    int (*event_elapsed)(struct mr_event *start, struct mr_event *end, int64_t *out_ns);
    int (*copy_async)(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                      enum mr_memory src_kind, uint64_t bytes);
    int (*memset_async)(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte, uint64_t bytes);
    int (*launch)(struct mr_stream *stream, const char *kernel, const void *args, size_t arg_bytes);
    /* Optional: 1: has this one of kernels.h, 0: not, negative: error; NULL: has them all. */
    int (*has_kernel)(struct mr_device *dev, const char *name);
    /* Optional, all or none: JPEG decoders of the device's own, see struct mr_jpeg_unit. open: unit->state is zeroed room of
     * jpeg_size; close also after a failed open. */
    int (*jpeg_open)(struct mr_device *dev, struct mr_jpeg_unit *unit);
    void (*jpeg_close)(struct mr_jpeg_unit *unit);
    int (*jpeg_decode)(struct mr_jpeg_unit *unit, struct mr_stream *stream, struct mr_jpeg *picture, uint32_t n);
    size_t jpeg_size;
    int n_simple;                   /* the first so many of enum mr_simple_kernel are there */
    size_t stream_size, event_size; /* of stream->state and event->state */
};

struct mr_pool;

struct mr_device {
    const struct mr_device_ops *ops;
    void *state;
    struct mr_pool *pool;
    atomic_bool lock_warned; /* the one warning about page-locking was given */
};

struct mr_stream {
    struct mr_device *dev;
    void *state;
    char name[24];
    atomic_bool recording; /* between mr_graph_begin and mr_graph_end; set by that thread alone */
};

struct mr_graph {
    struct mr_device *dev;
    void *state;
};

struct mr_event {
    struct mr_device *dev;
    void *state;
    int timing;
};

struct mr_pool *mr_pool_create(struct mr_device *dev);
void mr_pool_destroy(struct mr_pool *pool);
/* The event has passed and goes away: blocks that were released with it are free, and the pool asks it no more. */
void mr_pool_forget(struct mr_pool *pool, const struct mr_event *event);

/* An object of object_bytes with its state behind it, zeroed and freed as one; NULL: no memory. */
void *mr_device_object(size_t object_bytes, size_t state_bytes, void **out_state);

/* 0, or MR_EMISUSE when the stream is being recorded into a graph, where this call has no place. */
int mr_stream_check_live(const struct mr_stream *stream, const char *call);

/* Returns 0, MR_EUNSUPPORTED (why not), MR_EDEVICE, -ENOMEM. */
int mr_jpeg_open(struct mr_device *dev, struct mr_jpeg_unit **out);
void mr_jpeg_close(struct mr_jpeg_unit *unit); /* NULL is allowed */
/* What the host has to do of the decodes, and the rest enqueued to the stream. Pictures that are refused are no error.
 * Returns 0, MR_EDEVICE. */
int mr_jpeg_decode(struct mr_jpeg_unit *unit, struct mr_stream *stream, struct mr_jpeg *picture, uint32_t n);

static inline int mr_device_ready(const struct mr_device *dev)
{
    return dev->ops->ready ? dev->ops->ready(dev) : 0;
}

/*
 * What every call would do and undo on the calling thread (a GPU's context) is done once for all calls until
 * mr_device_leave(), on the same thread: for threads of our own. Returns 0, or an error, after which there is nothing to
 * leave and each call stands for itself.
 */
static inline int mr_device_enter(const struct mr_device *dev)
{
    return dev->ops->enter ? dev->ops->enter(dev) : 0;
}
static inline void mr_device_leave(const struct mr_device *dev)
{
    if (dev->ops->leave)
        dev->ops->leave(dev);
}

/* The part of the host that is nearest a device. */
struct mr_host_near {
    int node;       /* memory node; -1: unknown, no preference */
    char cpus[256]; /* its processors as the kernel lists them: "0-15,32-47"; "": unknown */
};

/*
 * Anonymous pages, huge ones where the system allows, touched by several threads unless kind is MR_PAGEABLE.
 * near: where they should lie, which is a wish; NULL: anywhere. bytes: a multiple of 4,096. [out] out: on success; given
 * back by mr_host_memory_drop. Returns 0, -ENOMEM.
 */
int mr_host_pages_make(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, const struct mr_host_near *near,
                       void **out);

/*
 * Memory of the host, for backs that have no driver to ask: such pages, locked when kind is MR_PINNED.
 * When locking is refused, the memory is given all the same, with one warning a device. [out] out, out_locked: on success.
 * Returns 0, -ENOMEM.
 */
int mr_host_memory_make(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out, uint64_t *out_locked);
void mr_host_memory_drop(void *ptr, uint64_t bytes);

/* The one warning a device that memory could not be locked. why: "mlock: ...". */
void mr_host_warn_not_locked(struct mr_device *dev, uint64_t bytes, const char *why);

/* mr_memory_register and its opposite by mlock. */
int mr_host_register(struct mr_device *dev, void *ptr, uint64_t bytes);
int mr_host_unregister(struct mr_device *dev, void *ptr, uint64_t bytes);

/* Sleeps until mr_time_ns() has reached the time; waits of less than 30 us are spun. */
void mr_sleep_until(uint64_t time_ns);

/*
 * Files read straight into device memory. begin: 0, MR_EUNSUPPORTED (such a device has no way), MR_EDEVICE; each 0 is
 * followed by an end. note: of the way it is done, "" when there is nothing to say. file_open: fd stays the caller's and open;
 * returns 0, MR_EUNSUPPORTED (its file system refuses), MR_EDEVICE, -errno. memory: reads will go into this allocation; an
 * error only says that they will be slower.
 */
int mr_device_files_begin(struct mr_device *dev, char *note, size_t note_bytes);
void mr_device_files_end(struct mr_device *dev);
int mr_device_file_open(struct mr_device *dev, int fd, const char *name, void **out);
void mr_device_file_close(struct mr_device *dev, void *file);
int mr_device_file_memory(struct mr_device *dev, void *memory, uint64_t bytes);
void mr_device_file_memory_end(struct mr_device *dev, void *memory);
/*
 * Reads into memory + at; the bytes are there when it returns. memory: an allocation of this device, that nothing enqueued
 * still uses there. Blocks. Returns how many bytes: fewer than asked for at the file's end alone, 0 there; -errno without a
 * text, MR_EDEVICE with one. Any thread.
 */
int64_t mr_device_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory, uint64_t at,
                            uint64_t bytes);

/* The kernels that make no batches; those that do are in kernels.h. */
enum mr_simple_kernel { MR_KERNEL_BUSY, MR_KERNEL_WAIT, MR_KERNEL_COPY, MR_KERNEL_MATMUL, MR_N_KERNELS };

/* A launch, taken apart. */
struct mr_launched {
    enum mr_simple_kernel kernel;
    union {
        uint64_t busy_ns;
        volatile uint32_t *flag;
        struct mr_kernel_copy copy;
        struct mr_kernel_matmul matmul;
    };
};

#define MR_WAIT_MOST_NS 10000000000ull /* of the kernel "wait" */

/* Negative: no such name. */
int mr_simple_find(const char *name);

/* n_kernels: how many of enum mr_simple_kernel the device has. Returns 0, MR_EUNSUPPORTED for another name, MR_EMISUSE for
 * arguments of another size. */
int mr_launch_args(const char *device, int n_kernels, const char *kernel, const void *args, size_t arg_bytes,
                   struct mr_launched *out);

extern const struct mr_device_ops mr_device_cpu, mr_device_sim;
extern MR_PRIVATE const struct mr_device_ops mr_device_cuda;

#endif
