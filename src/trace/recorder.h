/*
 * The interface of the recorder of `millrace profile` (src/recorder/) for this library, so that its
 * spans appear in the recording beside those of CUDA and NVTX. The module is found by
 * MILLRACE_RECORD_MODULE or beside the library, if MILLRACE_RECORD_DIR is set. If a module is
 * already in the process, preloaded or injected, that one is used.
 */
#ifndef MR_TRACE_RECORDER_H
#define MR_TRACE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#define MR_RECORDER_VERSION 1
#define MR_RECORDER_SYMBOL  "mr_recorder_get"

/* Callable from any thread; texts are copied. */
struct mr_recorder {
    /* A range of the domain "millrace". track: NULL for the calling thread, else the name of a
     * separate track. */
    void (*span)(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                 const char *arg_name, uint64_t arg);
    void (*counter)(const char *name, uint64_t time_ns, int64_t value);
    void (*thread)(const char *name); /* names the calling thread */
};

/* Returns NULL if the version differs or spans are not recorded in this process. */
typedef const struct mr_recorder *mr_recorder_get_fn(uint32_t version);

/*
 * Simulated devices: what they do becomes rows of a recording as CUPTI makes them of a GPU's work,
 * so that every report reads them. Kinds of copies and of memory are CUPTI's numbers
 * (recording/part.h).
 */
#define MR_RECORDER_DEVICES_VERSION 1
#define MR_RECORDER_DEVICES_SYMBOL  "mr_recorder_get_devices"

enum mr_recorder_work_kind { MR_RECORDER_KERNEL, MR_RECORDER_COPY, MR_RECORDER_SET };

struct mr_recorder_work {
    enum mr_recorder_work_kind kind;
    uint64_t start_ns, end_ns;
    uint64_t bytes;   /* copies, sets */
    const char *name; /* kernels */
    uint32_t device, stream, correlation;
    uint32_t graph, graph_node;            /* 0: not of a graph */
    uint32_t src_device, dst_device;       /* copies */
    uint8_t copy_kind, src_kind, dst_kind; /* a set's memory in dst_kind */
};

/* Callable from any thread; texts are copied. */
struct mr_recorder_devices {
    /* Whether anything would be recorded now; cheap. */
    bool (*wants)(void);
    void (*device)(uint32_t device, const char *name, uint64_t memory_bytes,
                   uint32_t n_copy_engines);
    void (*stream)(uint32_t device, uint32_t stream);
    /* A call of the calling thread. correlation: the work's that it made; unique in the process. */
    void (*call)(const char *name, uint64_t start_ns, uint64_t end_ns, uint32_t correlation);
    void (*work)(const struct mr_recorder_work *work);
};

/* Returns NULL if the version differs or devices are not recorded in this process. */
typedef const struct mr_recorder_devices *mr_recorder_get_devices_fn(uint32_t version);

#endif
