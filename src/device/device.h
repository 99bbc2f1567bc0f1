/*
 * Devices: memory, streams, events, copies, graphs and launches, the same for all of them.
 *
 * A device is a const struct mr_device_ops in a folder of its own: cpu/ reads host memory in place
 * and does the work of a stream at once, on the caller's thread; sim/ is an accelerator that does
 * not exist: threads play its copy engines and its compute queue; cuda/ is the driver API of NVIDIA
 * GPUs, found by dlopen. device.c has the array of them, best first. A new device is a folder and a
 * line there.
 *
 * The files beside this one are fronts: they check what callers pass, keep what is the same for all
 * devices, and call the hooks.
 *
 *   device.c   URIs, opening and closing, streams, events
 *   check.c    NULL, and devices of another process
 *   wrap.c     streams and events of other libraries
 *   any.c      the stream that stands for all streams, and captures by other libraries
 *   copy.c     copies, within a device and between two, and memory that is set
 *   pool.c     caches blocks of memory by kind and size, since page-locking is slow
 *   launch.c   kernels, of the room `kernels` and the device's own simple ones
 *   graph.c    recorded streams, and lists of operations for devices that replay them themselves
 *   file.c     files read straight into device memory
 *   jpeg.c     JPEG decoders of the device's own
 *   host.c     host memory and exact sleep, for devices without a driver
 */
#ifndef MR_DEVICE_DEVICE_H
#define MR_DEVICE_DEVICE_H

#include "base/base.h"
#include "kernels/kernels.h"
#include <millrace/device.h>
#include <millrace/options.h>

struct mr_host_near;

/* One picture for the device's decoder. Its bytes must stay until the work is done. */
struct mr_jpeg {
    const void *bytes;
    uint64_t n_bytes;
    uint32_t width, height; /* as stored: a picture of another size is not taken */
    void *to;               /* device memory: height rows of width RGB pixels */
    bool refused;           /* [out] of a decode: damaged */
};

/* A decoder. One thread at a time; the work of a call must be done before the next call. */
struct mr_jpeg_unit {
    struct mr_device *dev;
    void *state;
};

/* Kernels that each device brings by itself, to measure and test it. */
enum mr_simple_kernel {
    MR_SIMPLE_BUSY,
    MR_SIMPLE_WAIT,
    MR_SIMPLE_COPY,
    MR_SIMPLE_MATMUL,
    MR_N_SIMPLE
};
#define MR_WAIT_MOST_NS 10000000000ull /* of the kernel "wait" */

struct mr_simple_launch {
    enum mr_simple_kernel kernel;
    union {
        struct mr_kernel_busy busy;
        volatile uint32_t *flag;
        struct mr_kernel_copy copy;
        struct mr_kernel_matmul matmul;
    };
};

/* What "busy" does where there is no GPU. Returns when it ended: from_ns + busy->ns, or earlier. */
uint64_t mr_device_sleep(uint64_t from_ns, const struct mr_kernel_busy *busy);

/*
 * A device, as device.c and the other fronts call it: they check what callers pass, so hooks need
 * not. Hooks return 0 or a negative error that they have set, unless something else is said.
 */
struct mr_device_ops {
    const char *name;
    const char *summary;
    const struct mr_option *options; /* of the URI; NULL: none */
    const char *const *positional; /* options that items without "key=" set, in order; NULL: none */
    size_t opts_size, state_size;
    size_t stream_size, event_size; /* of stream->state and event->state */

    /* ---- required ---- */

    const char *(*probe)(void); /* NULL: usable; else why not */
    int (*open)(struct mr_device *dev, const void *opts);
    void (*close)(struct mr_device *dev);
    int (*query)(struct mr_device *dev, struct mr_device_info *out);
    /* Memory straight from the system; pool.c caches it. [out] locked: bytes really page-locked. */
    int (*memory_create)(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out,
                         uint64_t *out_locked);
    void (*memory_destroy)(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes);
    int (*memory_register)(struct mr_device *dev, void *ptr, uint64_t bytes);
    int (*memory_unregister)(struct mr_device *dev, void *ptr, uint64_t bytes);
    int (*stream_open)(struct mr_stream *stream);
    void (*stream_close)(struct mr_stream *stream);
    int (*stream_synchronize)(struct mr_stream *stream);
    int (*event_open)(struct mr_event *event);
    void (*event_close)(struct mr_event *event);
    int (*event_record)(struct mr_event *event, struct mr_stream *stream);
    int (*event_wait)(struct mr_stream *stream, struct mr_event *event); /* its device: any of this
                                                                            vtable */
    /* Behind all work of the device, streams of other libraries included. It may block. Under
     * mr_device.any.lock. */
    int (*event_record_any)(struct mr_event *event);
    int (*event_query)(struct mr_event *event);
    int (*event_synchronize)(struct mr_event *event);
    int (*event_elapsed)(struct mr_event *start, struct mr_event *end, int64_t *out_ns);
    int (*copy_async)(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                      enum mr_memory src_kind, uint64_t bytes);
    int (*memset_async)(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                        uint64_t bytes);
    /* ranges: the memory that the kernel uses. grid: blocks; NULL: kernel->grid() says. */
    int (*launch)(struct mr_stream *stream, const struct mr_kernel *kernel, const void *args,
                  const struct mr_kernel_range ranges[MR_KERNEL_RANGES], const unsigned grid[2]);
    int (*launch_simple)(struct mr_stream *stream, const struct mr_simple_launch *launch);
    int n_simple; /* it has the first so many of enum mr_simple_kernel */

    /* ---- optional: NULL, or all of a group ---- */

    /* Calls can work at all (not after a fork, for instance). Called before any lock is taken. */
    int (*ready)(const struct mr_device *dev);

    /* mr_device_enter */
    int (*enter)(const struct mr_device *dev);
    void (*leave)(const struct mr_device *dev);

    /* n > 0 copies, each of > 0 bytes. NULL: copies are enqueued one by one. */
    int (*copy_batch)(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n);

    /* mr_device_processes */
    int (*processes)(struct mr_device *dev, struct mr_device_process *out, int max);

    /* Kernels as machine code: MR_EUNSUPPORTED: the module has none for this device. NULL: the
     * device runs the kernels' host functions. */
    int (*load)(struct mr_device *dev, const struct mr_kernel_module *module);

    /* mr_memory_make */
    int (*host_create)(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out);
    void (*host_destroy)(struct mr_device *dev, void *ptr);

    /* Native streams and events, those of other libraries too. wrap: of an object whose `borrowed`
     * is set. capturing: 1: another library captures the stream, 0, or an error. */
    int (*stream_wrap)(struct mr_stream *stream, void *native);
    void *(*stream_native)(struct mr_stream *stream);
    int (*stream_capturing)(const struct mr_stream *stream);
    int (*event_wrap)(struct mr_event *event, void *native);
    void *(*event_native)(struct mr_event *event);

    /* Copies between two different devices that share this vtable; bytes > 0. */
    int (*reach)(struct mr_device *one, struct mr_device *other);
    int (*copy_peer)(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                     const void *src, struct mr_device *src_device, uint64_t bytes);

    /* Graphs. end: graph NULL: drops what was recorded; recording is over whatever it returns. */
    int (*graph_begin)(struct mr_stream *stream);
    int (*graph_end)(struct mr_stream *stream, struct mr_graph *graph);
    int (*graph_launch)(struct mr_graph *graph, struct mr_stream *stream);
    void (*graph_close)(struct mr_graph *graph);
    size_t graph_size; /* of graph->state */

    /* Files read straight into device memory: see mr_device_files_begin(). [out] note: how that is
     * done, where a user should know; else "". */
    int (*files_open)(struct mr_device *dev, char *note, size_t note_bytes);
    void (*files_close)(struct mr_device *dev);
    int (*file_open)(struct mr_device *dev, int fd, const char *name, void **out);
    void (*file_close)(struct mr_device *dev, void *file);
    int (*file_register)(struct mr_device *dev, void *memory, uint64_t bytes);
    void (*file_unregister)(struct mr_device *dev, void *memory);
    int64_t (*file_read)(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                         uint64_t at, uint64_t bytes);

    /* JPEG decoders of the device's own, see mr_jpeg_open(). open: unit->state is zeroed memory of
     * jpeg_size bytes; close is called also when open failed. */
    int (*jpeg_find)(struct mr_device *dev);
    bool (*jpeg_takes)(struct mr_jpeg_unit *unit, const struct mr_jpeg *p);
    int (*jpeg_open)(struct mr_device *dev, struct mr_jpeg_unit *unit);
    void (*jpeg_close)(struct mr_jpeg_unit *unit);
    int (*jpeg_decode)(struct mr_jpeg_unit *unit, struct mr_stream *stream, struct mr_jpeg *picture,
                       uint32_t n);
    size_t jpeg_size; /* of unit->state */

    /* The part of the host that is nearest. NULL: there is none. */
    const struct mr_host_near *(*near)(const struct mr_device *dev);
};

struct mr_pool;

struct mr_stream {
    struct mr_device *dev;
    void *state;
    char name[24];
    bool borrowed;         /* mr_stream_wrap: the native stream is not ours */
    atomic_bool recording; /* between mr_graph_begin and mr_graph_end; set by that thread alone */
};

/* Work that waits for the end of all captures of a device. */
struct mr_deferred {
    struct mr_deferred *next;
    void (*run)(struct mr_deferred *self); /* may free self */
};

/* mr_stream_any(), and the captures during which nothing may be recorded in it. */
struct mr_any {
    struct mr_stream stream; /* has no state: only the calls of any.c take it */
    pthread_mutex_t lock;    /* guards the rest; held while an event is recorded. Recursive */
    uint32_t n_captures;
    struct mr_deferred *deferred; /* the latest first */
};

struct mr_device {
    const struct mr_device_ops *ops;
    void *state;
    struct mr_pool *pool;
    struct mr_process process; /* that opened it */
    atomic_bool lock_warned;   /* the one warning about page-locking was given */
    struct mr_any any;
};

struct mr_graph {
    struct mr_device *dev;
    void *state;
};

struct mr_event {
    struct mr_device *dev;
    void *state;
    int timing;
    bool borrowed; /* mr_event_wrap: the native event is not ours */
};

struct mr_pool *mr_pool_create(struct mr_device *dev);
void mr_pool_destroy(struct mr_pool *pool);
/* The event has passed and will be destroyed: blocks that were released behind it are free. */
void mr_pool_forget(struct mr_pool *pool, const struct mr_event *event);
/* Was a block released behind the event, and not found free since? */
bool mr_pool_waits(struct mr_pool *pool, const struct mr_event *event);

/* An object of object_bytes with its state behind it, zeroed and freed as one; NULL: no memory. */
void *mr_device_object(size_t object_bytes, size_t state_bytes, void **out_state);

/* 1: another library is capturing the stream into a graph; 0: no; or MR_EDEVICE. */
static inline int mr_stream_capturing(const struct mr_stream *stream)
{
    if (!stream->dev->ops->stream_capturing || stream == &stream->dev->any.stream)
        return 0;
    return stream->dev->ops->stream_capturing(stream);
}

/* any.c */
void mr_any_init(struct mr_device *dev);
void mr_any_destroy(struct mr_device *dev); /* runs what was deferred */
static inline bool mr_stream_is_any(const struct mr_stream *stream)
{
    return stream == &stream->dev->any.stream;
}
/* The body of mr_event_record() for that stream. */
int mr_any_record(struct mr_event *event);
/* true: no capture begins until mr_any_leave() on the same thread, so recording works. false: a
 * stream is being captured: `later` runs at the end of the last capture, on the thread that ends
 * it; it is the caller's and must stay until then. */
bool mr_any_enter(struct mr_device *dev, struct mr_deferred *later);
void mr_any_leave(struct mr_device *dev);

/* 0, or MR_EMISUSE when the stream is being recorded into a graph, which cannot hold this call. */
int mr_stream_check_live(const struct mr_stream *stream, const char *call);

/*
 * Enqueues a kernel; its args, kernel->args_bytes, are checked and copied. grid: blocks in x and y,
 * for kernels that have no grid() of their own; else NULL. Returns 0, MR_EMISUSE, MR_EUNSUPPORTED,
 * MR_EDEVICE, -ENOMEM.
 */
MR_PRIVATE int mr_launch_kernel(struct mr_stream *stream, const struct mr_kernel *kernel,
                                const void *args, const unsigned grid[2]);
/*
 * Loads a module's kernels before their first launch, which does so, too, but not while a graph is
 * recorded. Returns 0, MR_EUNSUPPORTED (they do not run on this device), MR_EDEVICE, -ENOMEM.
 */
MR_PRIVATE int mr_device_load_kernels(struct mr_device *dev, const struct mr_kernel_module *module);

/* Is there what decodes JPEG? Quick, while opening may take most of a second. Returns 0,
 * MR_EUNSUPPORTED (why not). */
int mr_jpeg_find(struct mr_device *dev);
/* Returns 0, MR_EUNSUPPORTED (why not), MR_EDEVICE, -ENOMEM. */
int mr_jpeg_open(struct mr_device *dev, struct mr_jpeg_unit **out);
void mr_jpeg_close(struct mr_jpeg_unit *unit); /* NULL is allowed */
/* Does the decoder take such a picture, by its header? `to` is not read. Any thread, also while
 * another one decodes. */
bool mr_jpeg_takes(struct mr_jpeg_unit *unit, const struct mr_jpeg *p);
/* Does the host's share of the decoding and enqueues the rest; on "cuda" it keeps a processor busy
 * until almost all of it is done. All of them are taken, as mr_jpeg_takes() says; those that are
 * refused even so are no error. Returns 0, MR_EDEVICE. */
int mr_jpeg_decode(struct mr_jpeg_unit *unit, struct mr_stream *stream, struct mr_jpeg *picture,
                   uint32_t n);

/* 0, MR_EMISUSE for NULL, or the error of a device that cannot work in this process. call: its
 * name, for the text. check.c */
int mr_device_check(const struct mr_device *dev, const char *call);
int mr_stream_check(const struct mr_stream *stream, const char *call);
int mr_event_check(const struct mr_event *event, const char *call);
/* 0, or MR_EMISUSE for NULL. */
int mr_out_check(const void *out, const char *call);

static inline int mr_device_ready(const struct mr_device *dev)
{
    return dev->ops->ready ? dev->ops->ready(dev) : 0;
}

/*
 * Does once what each call would do and undo on the calling thread (on "cuda": make the GPU's
 * context current), until mr_device_leave() on the same thread. For threads of our own. Returns 0,
 * or an error; then nothing is to be left, and each call does it again.
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

/*
 * Files read straight into device memory (GPUDirect Storage, on "cuda").
 *
 * begin: returns 0, to be followed by an end, MR_EUNSUPPORTED (not on this device), MR_EDEVICE.
 * [out] note: how it is done, where a user should know; else "".
 *
 * open: fd stays the caller's and open. Returns 0, MR_EUNSUPPORTED (the file system refuses),
 * MR_EDEVICE, -errno.
 *
 * memory: registers an allocation that reads will go into. After an error reads are slower.
 */
int mr_device_files_begin(struct mr_device *dev, char *note, size_t note_bytes);
void mr_device_files_end(struct mr_device *dev);
int mr_device_file_open(struct mr_device *dev, int fd, const char *name, void **out);
void mr_device_file_close(struct mr_device *dev, void *file);
int mr_device_file_memory(struct mr_device *dev, void *memory, uint64_t bytes);
void mr_device_file_memory_end(struct mr_device *dev, void *memory);
/*
 * Reads into memory + at; the bytes are there when it returns. memory: an allocation of this
 * device; nothing enqueued may still use that part of it. Blocks. Any thread. Returns how many
 * bytes were read, fewer than asked for only at the end of the file and 0 behind it; -errno without
 * a text, MR_EDEVICE with one.
 */
int64_t mr_device_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                            uint64_t at, uint64_t bytes);

extern const struct mr_device_ops mr_device_cpu, mr_device_sim;
extern MR_PRIVATE const struct mr_device_ops mr_device_cuda;

#endif
