/*
 * Devices: where batches go, and the memory, streams, events, copies and kernels on them.
 *
 *     struct mr_device *device;
 *     struct mr_stream *stream;
 *     void *host, *gpu;
 *     mr_device_open("cuda", &device);
 *     mr_stream_create(device, "copies", &stream);
 *     mr_memory_acquire(device, MR_PINNED, bytes, &host);
 *     mr_memory_acquire(device, MR_DEVICE, bytes, &gpu);
 *     mr_copy_async(stream, gpu, MR_DEVICE, host, MR_PINNED, bytes); // returns at once
 *     mr_stream_synchronize(stream);                                 // waits for the copy
 *
 * There are three kinds of devices: "cpu", where the consumer reads batches in host memory; "cuda",
 * NVIDIA GPUs through the driver found at run time; and "sim", a simulated accelerator whose copy
 * engines and compute queue are threads that move real bytes.
 *
 * A stream is a queue of work that runs in order; work in different streams may overlap. An event
 * marks a point in a stream. Sizes are in bytes; 1 GB/s is 1e9 bytes per second.
 *
 * Threads: several threads may use a device and its streams and events at once. Only functions that
 * say so block. Where no errors are listed, calls on a device return 0, MR_EMISUSE or MR_EDEVICE.
 *
 * CUDA: devices use the GPU's primary context, so pointers work in other libraries of the process.
 * The calling thread's current context is the same after each call as before.
 *
 * fork: a child process cannot use a GPU that its parent has used, nor a simulated device that its
 * parent opened: every call there fails and says so (MR_EDEVICE, MR_EMISUSE), destroying and
 * closing free nothing that is shared. It can open "sim" and "cpu" devices of its own, and use an
 * inherited "cpu" if no other thread was in a call on it at the fork.
 */
#ifndef MILLRACE_DEVICE_H
#define MILLRACE_DEVICE_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_device;
struct mr_stream;
struct mr_event;
struct mr_graph;

/* ---- devices ---- */

/*
 * Opens a device.
 * uri: "auto" (the best usable one), "cpu", "cuda" or "gpu" (the first GPU), "cuda:1", "sim"; with
 * options as in "sim:h2d=55,step=4ms". docs/data.md lists them. GPUs are numbered as the driver
 * shows them to this process (CUDA_VISIBLE_DEVICES).
 * [out] out: on success; close it after everything made from it is gone. Blocks.
 * Returns 0, MR_ENODEVICE (not present or not usable), MR_EDEVICE, MR_EOPTION (no such name or
 * option), -ENOMEM.
 */
MR_API int mr_device_open(const char *uri, struct mr_device **out);

/* Closes a device and frees its pools. NULL is allowed. */
MR_API void mr_device_close(struct mr_device *dev);

struct mr_device_info {
    size_t size;           /* of this struct, set by the caller */
    char name[64];         /* "cpu", "sim", "cuda:0" */
    int unified;           /* 1: device memory is host memory; nothing is copied */
    int copy_engines;      /* copies, in different directions, that can run at once */
    uint64_t memory_bytes; /* device memory; 0: not limited by the device */
    uint64_t free_bytes;
    double h2d_gb_per_s; /* limit of the link, host to device; 0: unknown */
    double d2h_gb_per_s;
    double pageable_gb_per_s; /* copies from pageable memory; 0: unknown */
    uint64_t step_ns;         /* sim: one step of the simulated consumer; 0: none */

    /* GPUs; "" or 0 on other devices and where unknown. */
    char model[96];         /* "NVIDIA H200" */
    char uuid[48];          /* "GPU-8f6e..." */
    char pci_id[16];        /* "0000:1b:00.0" */
    char driver[32];        /* the driver's release: "580.65.06" */
    int driver_api;         /* the CUDA version that the driver supports: 13000 is 13.0 */
    int compute_capability; /* 90 is 9.0 */
    int ordinal, n_devices; /* the GPU's number, and how many this process sees */
    /* The PCIe link, now and at most. An idle link may run at a lower generation to save power, so
     * the first value counts under load only. h2d_gb_per_s and d2h_gb_per_s are computed from the
     * maximum, less packet headers and flow control. */
    int link_generation, link_width, link_generation_max, link_width_max;
    int numa_node;       /* the host's NUMA node nearest to the device; -1: unknown */
    uint64_t bar1_bytes; /* the window through which the bus reaches device memory */

    int simulated;          /* 1: the host's processors play the device */
    uint64_t context_bytes; /* device memory that opening took, roughly; 0: none or unknown */
    double peer_gb_per_s;   /* to other devices, one way, by NVLink; 0: none or unknown */
};

/* Describes a device. [out] out: on success, all but size. Returns 0, MR_EMISUSE (a wrong size),
 * MR_EDEVICE. */
MR_API int mr_device_query(struct mr_device *dev, struct mr_device_info *out);

/* A process that uses a GPU. Passed in arrays, so its layout is fixed. */
struct mr_device_process {
    uint64_t pid;   /* as the host numbers it, which may differ inside a container */
    uint64_t bytes; /* of the GPU's memory; 0: unknown */
};

/*
 * Lists the processes that use a GPU now, including this one.
 * [out] out: the first max of them. Returns how many there are, MR_EUNSUPPORTED where they cannot
 * be listed (other devices, no NVML), MR_EMISUSE, MR_EDEVICE.
 */
MR_API int mr_device_processes(struct mr_device *dev, struct mr_device_process *out, int max);

/*
 * Calls fn for each kind of device in this build, best first, with its name, one line about it, and
 * NULL or the reason why it cannot be used here. Stops when fn returns nonzero, and returns that.
 */
MR_API int mr_device_each(int (*fn)(void *user, const char *name, const char *summary,
                                    const char *why_not),
                          void *user);

/* ---- memory ---- */

enum mr_memory {
    MR_PAGEABLE, /* plain host memory */
    MR_PINNED,   /* page-locked host memory, which the copy engine reads and writes directly */
    MR_DEVICE,   /* the device's own; the host cannot access it */
    MR_N_MEMORY
};

/* The name of a kind of memory: "pageable", "pinned", "device". Constant. */
MR_API const char *mr_memory_name(enum mr_memory kind);

/*
 * Takes memory from the device's caching pool, or allocates it. Allocating may block for a long
 * time because page-locking is slow; a pool hit does not block.
 * bytes: at least 1. [out] out: on success; at least `bytes`, aligned to 4,096 (on a GPU to 256);
 * give it back with mr_memory_release(). If the system refuses to lock pinned memory, pageable
 * memory is returned, with one warning in the log; mr_memory_query() counts what is locked.
 * Returns 0, -ENOMEM, MR_EDEVICEMEM, MR_ELIMIT (mr_memory_set_limit()), MR_ECANCELLED
 * (mr_interrupt() in a thread that called mr_interruptible()).
 */
MR_API int mr_memory_acquire(struct mr_device *dev, enum mr_memory kind, uint64_t bytes,
                             void **out);

/*
 * Returns memory to the pool.
 * after: an event that must pass before the memory is handed out again; NULL: none. It must exist
 * until it has passed. ptr: NULL is allowed.
 */
MR_API void mr_memory_release(struct mr_device *dev, enum mr_memory kind, void *ptr,
                              struct mr_event *after);

/* Returns the pool's unused memory to the system. */
MR_API void mr_memory_trim(struct mr_device *dev);

/* Limits the bytes of all kinds together. 0: no limit. */
MR_API void mr_memory_set_limit(struct mr_device *dev, uint64_t bytes);

struct mr_memory_counters {
    size_t size;              /* of this struct, set by the caller */
    uint64_t requested_bytes; /* in use now, as requested */
    uint64_t held_bytes;      /* in use and cached, as taken from the system */
    uint64_t peak_bytes;      /* the highest held_bytes */
    uint64_t locked_bytes;    /* the page-locked part of held_bytes */
    uint64_t hits, misses;    /* acquire calls that the pool served, and that it did not */
};

/* Reads the pool's counters for one kind of memory. [out] out: on success, all but size. Returns
 * 0, MR_EMISUSE (NULL, no such kind, or a wrong size). */
MR_API int mr_memory_query(struct mr_device *dev, enum mr_memory kind,
                           struct mr_memory_counters *out);

/*
 * Page-locks memory of the caller, so that copies can use it as MR_PINNED. Blocks; takes about as
 * long per byte as allocating pinned memory.
 * ptr: writable memory. Ranges must not overlap. "cpu" and "sim" lock whole pages.
 * Unregister it, with the same ptr and bytes, when no copy uses it any more and before the memory
 * is freed or the device closed.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, MR_ELIMIT (the system's limit of locked memory), -errno.
 */
MR_API int mr_memory_register(struct mr_device *dev, void *ptr, uint64_t bytes);
MR_API int mr_memory_unregister(struct mr_device *dev, void *ptr, uint64_t bytes);

/* Write-combined memory: fast for the host to write front to back, very slow for it to read. */
enum { MR_MAKE_WRITE_COMBINED = 1 };

/*
 * Allocates page-locked host memory with the driver's own allocator, outside the pool. Copies use
 * it as MR_PINNED. Blocks.
 * flags: 0 or MR_MAKE_WRITE_COMBINED. [out] out: on success; free it with mr_memory_unmake() when
 * no copy uses it any more and before the device is closed.
 * Returns 0, MR_EMISUSE, MR_EUNSUPPORTED (all devices but "cuda"), MR_EDEVICE, MR_EDEVICEMEM.
 */
MR_API int mr_memory_make(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out);
MR_API void mr_memory_unmake(struct mr_device *dev, void *ptr);

/* ---- streams and events ---- */

/* Creates a stream. name: shown in traces. [out] out: on success. Returns 0, MR_EDEVICE,
 * -ENOMEM. */
MR_API int mr_stream_create(struct mr_device *dev, const char *name, struct mr_stream **out);

/*
 * Wraps a stream of your own or of another library, so that the loader, copies and launches use it.
 * The stream is borrowed: destroying the wrapper neither destroys it nor waits for it. Only "cuda"
 * has native streams. "Foreign streams" below says more.
 * native: a CUstream or cudaStream_t; NULL or (void *)1: the legacy default stream; (void *)2: the
 * default stream of the thread that makes each call. It must exist as long as the wrapper is used.
 * [out] out: on success; destroy it with mr_stream_destroy().
 * Returns 0, MR_EUNSUPPORTED ("cpu" and "sim"), MR_EMISUSE (a stream of another GPU, or of another
 * context than the GPU's primary one), MR_EDEVICE (also a destroyed stream, where the driver
 * notices), -ENOMEM. Does not block.
 */
MR_API int mr_stream_wrap(struct mr_device *dev, void *native, struct mr_stream **out);

/*
 * Gives the native stream of a stream, wrapped or not, for calls of other libraries.
 * [out] out: on success; a CUstream on "cuda". It is borrowed: valid until mr_stream_destroy(), or
 * as long as what was wrapped. Returns 0, MR_EUNSUPPORTED ("cpu" and "sim"), MR_EMISUSE.
 */
MR_API int mr_stream_native(struct mr_stream *stream, void **out);

/*
 * Returns the stream that stands for all streams of the device, those of other libraries too: an
 * event recorded in it passes when all work that was enqueued to the device until then is done.
 * Give it to mr_loader_release() or mr_batch_to_dlpack() if you do not know which streams use a
 * batch. mr_event_record() and mr_stream_synchronize() take it; other calls fail with MR_EMISUSE.
 * It is the device's: valid until that is closed. dev NULL: NULL.
 *
 * A batch that is released in it also waits for the loader's own copies that were enqueued before:
 * name the stream where you know it, which is up to twice as fast (docs/benchmarks.md).
 *
 * On "cuda" it costs a call of the driver (cuCtxRecordEvent, 0.3 us; drivers before 12.5 wait for
 * the GPU instead), which would invalidate every capture in progress on the GPU. So announce
 * captures, other than mr_graph_begin(): between mr_device_capture_begin() and
 * mr_device_capture_end(), recording in this stream fails with MR_EMISUSE, and batches released
 * in it stay held until the last capture ends.
 */
MR_API struct mr_stream *mr_stream_any(struct mr_device *dev);

/*
 * Announces that a stream of the device is going to be captured into a graph by another library,
 * and that its capture has ended. Captures may overlap; each begin needs an end. end gives back
 * the batches that were released meanwhile, on the calling thread.
 * Returns 0, MR_EMISUSE (NULL, or an end without a begin), MR_EDEVICE (after a fork). Any thread.
 */
MR_API int mr_device_capture_begin(struct mr_device *dev);
MR_API int mr_device_capture_end(struct mr_device *dev);

/* Destroys a stream. Blocks until its work is done, but not for a wrapped one. NULL is allowed. */
MR_API void mr_stream_destroy(struct mr_stream *stream);

/* Blocks until all work enqueued so far is done. Returns 0 or the first error of that work. */
MR_API int mr_stream_synchronize(struct mr_stream *stream);

/*
 * Makes work enqueued to the stream from now on wait for the event. The host does not wait.
 * event: of any device of the same kind as the stream's. It stands for its last record before this
 * call. Returns 0, MR_EMISUSE (devices of two kinds), MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_stream_wait(struct mr_stream *stream, struct mr_event *event);

/* Creates an event, which counts as passed. timing: 1: mr_event_elapsed() can use it.
 * [out] out: on success. Returns 0, MR_EDEVICE, -ENOMEM. */
MR_API int mr_event_create(struct mr_device *dev, int timing, struct mr_event **out);

/*
 * Wraps an event of your own or of another library. It is borrowed, like a wrapped stream.
 * native: a CUevent or cudaEvent_t of the same GPU's primary context. It is not checked here: the
 * first use of a wrong or destroyed event returns MR_EDEVICE, where the driver notices.
 * timing: 1: it was created with timing. [out] out: on success; destroy it with mr_event_destroy().
 * Returns 0, MR_EUNSUPPORTED ("cpu" and "sim"), MR_EMISUSE (native is NULL), MR_EDEVICE (after a
 * fork), -ENOMEM. Does not block.
 */
MR_API int mr_event_wrap(struct mr_device *dev, void *native, int timing, struct mr_event **out);

/* Gives the native event of an event, wrapped or not. [out] out: on success; a CUevent on "cuda",
 * borrowed. Returns 0, MR_EUNSUPPORTED ("cpu" and "sim"), MR_EMISUSE. */
MR_API int mr_event_native(struct mr_event *event, void **out);

/* Destroys an event. Blocks until it has passed; for a wrapped one only if memory was released
 * behind it (mr_memory_release()). NULL is allowed. */
MR_API void mr_event_destroy(struct mr_event *event);

/* Marks the point in the stream, which is of the event's device, after all work enqueued so far.
 * Recording again moves the event. */
MR_API int mr_event_record(struct mr_event *event, struct mr_stream *stream);

/* Returns 1 if the event has passed, 0 if not, or a negative error. */
MR_API int mr_event_query(struct mr_event *event);

/* Blocks until the event has passed. */
MR_API int mr_event_synchronize(struct mr_event *event);

/* Computes the time between two passed events that have timing. [out] out_ns: on success, in
 * nanoseconds; negative when `end` was first. Returns 0, MR_EMISUSE. */
MR_API int mr_event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns);

/*
 * Foreign streams. A wrapped stream takes every call that takes a stream, and none of them makes
 * the host wait that would not otherwise. Streams created here do not synchronize with the legacy
 * default stream.
 *
 * While another library captures a wrapped stream (or one whose native stream it has) into a CUDA
 * graph, copies, launches, mr_event_record() and mr_stream_wait() are captured. An event recorded
 * in the capture orders streams within it. mr_stream_wait() for an event that was recorded before
 * adds nothing if that has passed, else a node that waits for the event's latest record at each
 * launch of the graph (CU_EVENT_WAIT_EXTERNAL); for a wrapped event it is cuStreamWaitEvent()
 * without flags, which the driver refuses if the event was not recorded in the capture. Calls
 * that wait for the stream fail with MR_EMISUSE and leave the capture as it was, and so do queries
 * of an event whose last record was captured. mr_event_query(), mr_event_synchronize() and workers
 * of a loader do not disturb captures of other streams, in whatever mode.
 */

/* ---- copies ---- */

/*
 * Enqueues a copy. The kinds of memory at both ends give its direction.
 *
 * Host memory counts as MR_PINNED if it came from mr_memory_acquire(MR_PINNED),
 * mr_memory_register() or mr_memory_make(); all else is MR_PAGEABLE. With pageable memory the
 * calling thread does the staging copy and blocks that long. A copy within host memory blocks until
 * the stream's earlier work and the copy are done. Both ranges must stay valid, and the source
 * unchanged, until the copy is done.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind,
                         const void *src, enum mr_memory src_kind, uint64_t bytes);

/* Passed in arrays, so its layout is fixed. */
struct mr_copy {
    void *dst;
    const void *src;
    uint64_t bytes;
    enum mr_memory dst_kind, src_kind;
};

/*
 * Enqueues n copies like mr_copy_async(). They have no order among themselves; as a whole they are
 * in the stream's order. Drivers that support it (CUDA 12.8 and later, without pageable memory)
 * take all of them in one call, which makes small copies much cheaper. After an error some may have
 * been enqueued.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_copy_batch_async(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n);

/*
 * Can bytes be copied between two devices without passing through host memory? The first call also
 * enables that: from then on each GPU can access the other's memory, for all libraries in the
 * process. It may block for milliseconds.
 * Returns 1 (yes, also for a device and itself), 0 (the driver stages copies in host memory),
 * MR_EUNSUPPORTED (devices of different kinds), MR_EMISUSE, MR_EDEVICE.
 */
MR_API int mr_device_reach(struct mr_device *one, struct mr_device *other);

/*
 * Enqueues a copy between the memories (MR_DEVICE) of two devices. Enables access as
 * mr_device_reach() does.
 * stream: of either device. Only this stream's order counts: before the call, wait for work on the
 * two ranges in other streams, also those of the other device. Both ranges must stay valid, and the
 * source unchanged, until the copy is done.
 * Returns 0, MR_EUNSUPPORTED as mr_device_reach(), MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_copy_peer_async(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                              const void *src, struct mr_device *src_device, uint64_t bytes);

/*
 * Enqueues setting memory to one byte value. For host memory the calling thread does it, and blocks
 * until the stream's earlier work is done.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                           uint64_t bytes);

/* ---- kernels ---- */

/* Arguments of "busy". */
struct mr_kernel_busy {
    uint64_t ns;
    /* Not NULL: when this is not 0 any more, the kernel ends, or does not begin. MR_EUNSUPPORTED on
     * "cuda". The arguments may end before this member. */
    const volatile uint32_t *stop;
};

/* Arguments of "copy". dst, src and bytes are multiples of 16. */
struct mr_kernel_copy {
    void *dst;
    const void *src;
    uint64_t bytes;
};

/* Arguments of "matmul_f32": c = a b, row-major, in device memory. b is n x n; a and c have n
 * columns. */
struct mr_kernel_matmul {
    uint64_t n;
    const float *a, *b;
    float *c;
    uint64_t rows; /* 0: n. The arguments may end before this member. */
};

/*
 * Enqueues a kernel by name. args: copied; pointers in them are not checked.
 *
 *   "busy"        args: struct mr_kernel_busy. Occupies the compute queue for that many
 *                 nanoseconds. On "cpu" the calling thread sleeps.
 *   "wait"        args: a pointer to a volatile uint32_t in page-locked memory. Occupies the
 *                 compute queue until that is not 0, so that work enqueued behind it starts at
 *                 once when the host writes there. Gives up after 10 s. Do not block on the stream
 *                 before.
 *   "copy"        args: struct mr_kernel_copy. Copies page-locked or device memory with the
 *                 processors, not the copy engines.
 *   "matmul_f32"  args: struct mr_kernel_matmul. On "cuda" by cuBLAS, which is loaded at first use:
 *                 the file that MILLRACE_CUBLAS names, else libcublas.so.13, .12 or .11. "sim" is
 *                 busy as long as its option tflops says, and computes nothing.
 *
 * There are also the library's own kernels; see mr_device_has_kernel().
 * Returns 0, MR_EUNSUPPORTED (the device lacks the kernel; of those above "cpu" has only "busy"),
 * MR_ENODEVICE (no cuBLAS), MR_EMISUSE (wrong size of the arguments), MR_EDEVICE.
 */
MR_API int mr_launch(struct mr_stream *stream, const char *kernel, const void *args,
                     size_t arg_bytes);

/*
 * Does the device have this kernel? Besides those of mr_launch() there are "pointwise", "one_hot",
 * "pointwise_mix", "one_hot_mix" and "gather", which make batches on devices. GPUs have them if
 * nvcc was found at build time.
 * Returns 1: yes, 0: no, or a negative error.
 */
MR_API int mr_device_has_kernel(struct mr_device *dev, const char *kernel);

/* ---- graphs ---- */

/*
 * A graph is a sequence of work that is recorded once and launched many times as one piece. On a
 * GPU a launch costs the host one call.
 *
 * While a stream is recorded, nothing in it runs. These calls are checked and recorded, with the
 * addresses and arguments that they have then: copies between page-locked and device memory, copies
 * between devices, setting of device memory, kernels. All others on that stream fail with
 * MR_EMISUSE and leave the recording as it was. On a GPU, run the same work once before recording
 * it: libraries load kernels at first use.
 *
 * Ownership: what a graph refers to must stay valid while the graph exists; on "cuda" that includes
 * the other devices of its copies. The recorded stream may be destroyed.
 * Threads: a stream that is being recorded belongs to the recording thread; a graph belongs to one
 * thread at a time.
 */

/* Begins to record a stream. Returns 0, MR_EMISUSE (already recording), MR_EDEVICE. */
MR_API int mr_graph_begin(struct mr_stream *stream);

/*
 * Ends recording. The stream works again, also after an error. An empty graph is allowed.
 * [out] out: on success; free it with mr_graph_destroy(). NULL: discard what was recorded.
 * Returns 0, MR_EMISUSE (not recording), MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_graph_end(struct mr_stream *stream, struct mr_graph **out);

/*
 * Enqueues a graph's work to a stream of the same device. It uses what the memory holds when it
 * runs. Launches of one graph in several streams run one after the other. "cpu" runs it before
 * returning.
 * Returns 0, MR_EMISUSE (a stream of another device, or one being recorded), MR_EDEVICE, -ENOMEM
 * (nothing was enqueued).
 */
MR_API int mr_graph_launch(struct mr_graph *graph, struct mr_stream *stream);

/* Frees a graph. No launch may be running, and its device must still be open. NULL is allowed. */
MR_API void mr_graph_destroy(struct mr_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
