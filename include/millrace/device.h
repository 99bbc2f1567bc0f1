/*
 * Devices: where batches go. "cpu" (the consumer reads the host slot in place), "sim" (an accelerator that is not there:
 * threads play two copy engines and a compute queue and move real bytes), "cuda" (NVIDIA GPUs, by the driver that is found
 * at run time; nothing of CUDA is needed to build).
 *
 * A stream is a queue of work that runs in order; work in different streams may overlap. An event marks a point in a
 * stream. Sizes are bytes; rates are GB/s = 1e9 bytes a second.
 *
 * Threads: a device and its streams and events may be used from several threads at once. Only functions that say so
 * block. Destroying a stream or event waits for what it still has to do.
 *
 * CUDA: the primary context of the GPU is used, so pointers, streams and events work together with those of other
 * libraries in the process; a calling thread's current context is the same after every call as before. A GPU cannot be
 * used in a child process after fork() when the parent had begun to: there every call fails and says so.
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

/* Kinds of memory. */
enum mr_memory {
    MR_PAGEABLE, /* plain host memory */
    MR_PINNED,   /* page-locked host memory: copies from it run on the copy engine alone, asynchronously */
    MR_DEVICE,   /* the device's own; not for the host to touch */
    MR_N_MEMORY
};

/* "pageable", "pinned", "device". */
MR_API const char *mr_memory_name(enum mr_memory kind);

/*
 * Opens a device.
 * uri: "auto" (the best that is usable), "cpu", "sim" or "sim:h2d=55,d2h=55,peer=100,pageable=12,latency=10us,step=4ms,mem=16GiB",
 * "cuda" or "gpu" (the first GPU), "cuda:1" or "cuda:1,pinned=alloc". GPUs are numbered as the driver shows them to this process
 * (CUDA_VISIBLE_DEVICES). pinned=register (the default) page-locks by touching pages in parallel on the memory node
 * nearest the GPU and registering them, pinned=alloc by the driver's own allocator.
 * [out] out: on success; the caller closes it after all that was made from it is gone.
 * Returns 0, MR_ENODEVICE (it is not there, or not usable), MR_EDEVICE, MR_EOPTION (no such name, or option), -ENOMEM.
 */
MR_API int mr_device_open(const char *uri, struct mr_device **out);
MR_API void mr_device_close(struct mr_device *dev);

struct mr_device_info {
    char name[64];         /* "cpu", "sim", "cuda:0" */
    int unified;           /* 1: device memory is host memory, no copies are needed */
    int copy_engines;      /* how many copies (of different direction) may run at once */
    uint64_t memory_bytes; /* device memory; 0: not limited by the device */
    uint64_t free_bytes;
    double h2d_gb_per_s; /* the link's limit; 0: unknown */
    double d2h_gb_per_s;
    double pageable_gb_per_s; /* copies from pageable memory; 0: unknown */
    uint64_t step_ns;         /* sim: the time of one step of the simulated consumer; 0: none */

    /* GPUs; "" or 0 elsewhere and where unknown */
    char model[96];         /* "NVIDIA H200" */
    char uuid[48];          /* "GPU-8f6e..." */
    char pci_id[16];        /* "0000:1b:00.0" */
    char driver[32];        /* the driver's release: "580.65.06" */
    int driver_api;         /* the CUDA version that it serves: 13000 for 13.0 */
    int compute_capability; /* 90: 9.0 */
    int ordinal, n_devices; /* which of how many that this process sees */
    /* The PCIe link. An idle link may be trained down: the generation now counts only under load. h2d_gb_per_s and
     * d2h_gb_per_s are estimated from the most: line rate less packet headers and flow control. */
    int link_generation, link_width, link_generation_max, link_width_max;
    int numa_node;       /* memory node of the host nearest the device; -1: unknown (everywhere but on GPUs) */
    uint64_t bar1_bytes; /* window through which the bus reaches device memory */

    int simulated;          /* 1: the host's processors play the device */
    uint64_t context_bytes; /* of its memory that opening took, about; 0: none, or unknown */
    double peer_gb_per_s;   /* to other devices, one way: all NVLinks, or what is simulated; 0: none, or unknown */
};
MR_API int mr_device_query(struct mr_device *dev, struct mr_device_info *out);

/* A process that computes on a GPU. */
struct mr_device_process {
    uint64_t pid;   /* in a container perhaps the host's */
    uint64_t bytes; /* of the GPU's memory; 0: unknown */
};

/* Lists the processes that use a GPU now, this one among them. [out] out: the first max of them. Returns how many there are,
 * MR_EUNSUPPORTED where that is not known (other devices, no NVML), MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_device_processes(struct mr_device *dev, struct mr_device_process *out, int max);

/* Calls fn for each kind of device known to this build, best first: name, one line about it, and NULL or the reason
 * why it is not usable here. Stops when fn returns nonzero, and returns that. */
MR_API int mr_device_each(int (*fn)(void *user, const char *name, const char *summary, const char *why_not),
                          void *user);

/*
 * Takes memory from the device's caching pool, or makes it. At least `bytes` (> 0), aligned to 4,096 (a GPU's to 256).
 * Pinned memory that the system refuses to lock is still given, with one warning to the log; the counters tell how
 * much is locked. Making memory may block for long (page-locking costs about 0.35 s a GiB); a pool hit does not.
 * [out] out: on success. Returns 0, -ENOMEM, MR_EDEVICEMEM, MR_ELIMIT (mr_memory_set_limit).
 */
MR_API int mr_memory_acquire(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out);

/* Gives memory back to the pool. after: an event that must pass before the memory is handed out again, or NULL. The
 * event must live until then; the pool only queries it. */
MR_API void mr_memory_release(struct mr_device *dev, enum mr_memory kind, void *ptr, struct mr_event *after);

/* Returns unused pool memory to the system. */
MR_API void mr_memory_trim(struct mr_device *dev);

/* Ceiling for all kinds together, in bytes; 0: none. */
MR_API void mr_memory_set_limit(struct mr_device *dev, uint64_t bytes);

struct mr_memory_counters {
    uint64_t requested_bytes; /* in use by callers now, as they asked */
    uint64_t held_bytes;      /* in use and cached, as taken from the system */
    uint64_t peak_bytes;      /* highest held_bytes */
    uint64_t locked_bytes;    /* of held_bytes, really page-locked */
    uint64_t hits, misses;    /* acquire calls served by the pool, and not */
};
MR_API void mr_memory_query(struct mr_device *dev, enum mr_memory kind, struct mr_memory_counters *out);

/*
 * Page-locks the caller's own memory, so that copies from and to it may be given as MR_PINNED. ptr: memory that may be
 * written. Blocks (0.1 to 0.35 s a GiB). Ranges may not overlap; on "cpu" and "sim" whole pages are locked.
 * Unregister before the memory or the device goes away and when no copy uses it any more; give the same ptr and bytes.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, MR_ELIMIT when the system's limit of locked memory refuses, -errno.
 */
MR_API int mr_memory_register(struct mr_device *dev, void *ptr, uint64_t bytes);
MR_API int mr_memory_unregister(struct mr_device *dev, void *ptr, uint64_t bytes);

/*
 * Page-locked host memory straight from the driver's own allocator, outside the pool; copies take it as MR_PINNED. For
 * memory of a kind that the pool does not keep, and to compare with it.
 * flags: 0 or MR_MAKE_WRITE_COMBINED (the host does not cache it: written front to back it is as fast, read it is many times
 * slower). [out] out: on success; given back by mr_memory_unmake when no copy uses it any more, before the device closes.
 * Returns 0, MR_EMISUSE, MR_EUNSUPPORTED (all devices but "cuda"), MR_EDEVICE, MR_EDEVICEMEM.
 */
enum { MR_MAKE_WRITE_COMBINED = 1 };
MR_API int mr_memory_make(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out);
MR_API void mr_memory_unmake(struct mr_device *dev, void *ptr);

/* Streams. [out] out: on success. */
MR_API int mr_stream_create(struct mr_device *dev, const char *name, struct mr_stream **out);
MR_API void mr_stream_destroy(struct mr_stream *stream);
/* Blocks until all work enqueued so far is done. Returns 0 or the first error of that work. */
MR_API int mr_stream_synchronize(struct mr_stream *stream);

/* Events. A new event counts as passed. timing: 1 if mr_event_elapsed will be asked. */
MR_API int mr_event_create(struct mr_device *dev, int timing, struct mr_event **out);
MR_API void mr_event_destroy(struct mr_event *event);
/* Marks the point in the stream after all work enqueued so far. Recording again moves the event. */
MR_API int mr_event_record(struct mr_event *event, struct mr_stream *stream);
/* Work enqueued to the stream from now on waits for the event's point; the host does not. */
MR_API int mr_stream_wait(struct mr_stream *stream, struct mr_event *event);
/* 1: passed, 0: not yet, negative: error. Does not block. */
MR_API int mr_event_query(struct mr_event *event);
/* Blocks until the event has passed. */
MR_API int mr_event_synchronize(struct mr_event *event);
/* Time between two passed events with timing, in nanoseconds; negative when `end` came first. Returns 0, MR_EMISUSE. */
MR_API int mr_event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns);

/*
 * Enqueues a copy. The direction follows from the kinds of memory at both ends. Host memory that did not come from
 * mr_memory_acquire(MR_PINNED) or mr_memory_register counts as pageable: then the calling thread does the staging copy and the call blocks for
 * as long as that takes, as with a real driver. Both ranges stay valid and, for the source, unchanged until the copy is
 * done. Between two ranges of host memory the call blocks until the stream's earlier work and the copy are done.
 * Returns 0, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                         enum mr_memory src_kind, uint64_t bytes);

struct mr_copy {
    void *dst;
    const void *src;
    uint64_t bytes;
    enum mr_memory dst_kind, src_kind;
};

/*
 * Enqueues n copies as mr_copy_async does, but in no order among themselves; as a whole they stand in the stream's order.
 * A driver that can takes them in one call (CUDA 12.8 or later, no pageable memory among them), which makes small copies
 * many times cheaper. After an error some of them may be under way. Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_copy_batch_async(struct mr_stream *stream, const struct mr_copy *copies, uint64_t n);

/*
 * Can bytes go from one device's memory to the other's without the host's memory between? Asking prepares it, which may
 * block for milliseconds the first time: on GPUs each may reach the other's memory from then on, other libraries of the
 * process included. Returns 1: they can (also for one device alone), 0: the driver stages them in host memory,
 * MR_EUNSUPPORTED for devices that have no copies between them ("cpu", different kinds), MR_EMISUSE, MR_EDEVICE.
 */
MR_API int mr_device_reach(struct mr_device *one, struct mr_device *other);

/*
 * Enqueues a copy between the memories (MR_DEVICE) of two devices. stream: of either. The stream's order is the only one:
 * what other streams, those of the other device above all, still do with the two ranges is waited for by the caller before.
 * Prepares as mr_device_reach() does when that was not called. Both ranges stay valid and the source unchanged until the
 * copy is done. Returns 0, MR_EUNSUPPORTED as mr_device_reach(), MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_copy_peer_async(struct mr_stream *stream, void *dst, struct mr_device *dst_device, const void *src,
                              struct mr_device *src_device, uint64_t bytes);

/*
 * Enqueues setting memory to one byte value. Host memory is set by the calling thread, which blocks until the stream's
 * earlier work is done. Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte, uint64_t bytes);

/* Arguments of kernels. Pointers are not checked. */
struct mr_kernel_copy { /* ends aligned to 16 bytes */
    void *dst;
    const void *src;
    uint64_t bytes;
};
struct mr_kernel_matmul { /* row-major, in device memory: c = a b; b is n x n, a and c are rows x n */
    uint64_t n;
    const float *a, *b;
    float *c;
    uint64_t rows; /* 0: n. May be left out, with the size of the arguments. */
};

/*
 * Enqueues a kernel by name; args are copied.
 *   "busy"        *(const uint64_t *)args nanoseconds during which the compute queue is occupied (on "cpu" the caller's
 *                 thread sleeps)
 *   "wait"        *(const volatile uint32_t *const *)args points to page-locked memory: occupies the compute queue until
 *                 that is not 0, so that what is enqueued behind it starts at once when the host says so. Gives up after
 *                 10 s. Calls that block until the stream's earlier work is done must not follow before the release.
 *   "copy"        struct mr_kernel_copy: the processors copy, not the copy engines; page-locked or device memory
 *   "matmul_f32"  struct mr_kernel_matmul. On "cuda" by cuBLAS, which is looked for when first needed: the file that the
 *                 environment's MILLRACE_CUBLAS names, or libcublas.so.13, .12 or .11 where the dynamic linker looks. "sim"
 *                 is busy for 2 rows n^2 floating-point operations at its rate `tflops` and computes nothing.
 * and the library's own, which mr_device_has_kernel() tells of. Returns 0, MR_EUNSUPPORTED for a name that the device does not
 * have (of those above, "cpu" has "busy" only), MR_ENODEVICE without cuBLAS, MR_EMISUSE for arguments of the wrong size,
 * MR_EDEVICE.
 */
MR_API int mr_launch(struct mr_stream *stream, const char *kernel, const void *args, size_t arg_bytes);

/*
 * Graphs: a step that repeats, recorded once and launched as one piece of work, which on a GPU costs the host one call and the
 * device one start for all of it.
 *
 * Between mr_graph_begin and mr_graph_end the stream does nothing: copies between page-locked and device memory, copies
 * between devices, setting of device memory and launches of kernels that are enqueued to it are checked and recorded, with
 * their addresses and arguments as they are then. Everything else on that stream is refused with MR_EMISUSE and leaves
 * the recording as it was: pageable memory, copies within the host's, synchronising, recording and waiting for events, another
 * graph's launch. On a GPU launch what will be recorded once before: libraries load what they need at their first use.
 *
 * Ownership: the caller destroys the graph, when no launch of it is under way and before its device closes; what it
 * refers to stays valid until then, and on "cuda" so do the devices of recorded peer copies. The stream that recorded may go.
 * Threads: a stream that is being recorded belongs to the recording thread, and a graph to one thread at a time.
 */

/* Begins to record on a stream. Returns 0, MR_EMISUSE when it is being recorded already, MR_EDEVICE. */
MR_API int mr_graph_begin(struct mr_stream *stream);
/* Ends it; whatever it returns, the stream works again. An empty graph is allowed. [out] out: on success; NULL: what was
 * recorded is dropped. Returns 0, MR_EMISUSE when nothing is being recorded, MR_EDEVICE, -ENOMEM. */
MR_API int mr_graph_end(struct mr_stream *stream, struct mr_graph **out);
/* Enqueues the recorded work, in its order, to a stream of the same device; the memory's contents are those of that moment in
 * the stream. Launches of one graph in several streams run one after the other. "cpu" does it at once. Returns 0, MR_EMISUSE
 * for a stream of another device or one that is being recorded, MR_EDEVICE, -ENOMEM (then nothing was enqueued). */
MR_API int mr_graph_launch(struct mr_graph *graph, struct mr_stream *stream);
MR_API void mr_graph_destroy(struct mr_graph *graph);

/* 1: mr_launch() knows this name on the device, 0: not, negative: error. The library's own kernels, "pointwise", "one_hot",
 * the same followed by "_mix", and "gather", make batches on devices (transform.h, loader.h); on GPUs they are there when nvcc was found at build time. */
MR_API int mr_device_has_kernel(struct mr_device *dev, const char *kernel);

#ifdef __cplusplus
}
#endif
#endif
