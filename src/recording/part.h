/*
 * Parts: what the recorder inside a profiled process writes, and mr_recording_merge() reads.
 *
 * A part is a file `PID-START.part` in the recording's folder: a struct mr_part_header, then
 * chunks, each appended by one write. A chunk is a struct mr_part_chunk and n records of one type.
 * A program that is killed leaves a part that ends anywhere: whole records before the end count,
 * the rest of the last chunk is lost.
 *
 * All numbers are in the machine's byte order; times are CLOCK_MONOTONIC in ns. Names are numbers
 * given by MR_PART_STRING records of the same part, in any order, though best before their first
 * use: a part is then read once, while it grows. 0 means "none". Threads are the
 * kernel's numbers (gettid()). Kinds of copies, of memory, of synchronisation ... are CUPTI's
 * numbers as CUPTI gives them.
 */
#ifndef MR_RECORDING_PART_H
#define MR_RECORDING_PART_H

#include <stdint.h>

#define MR_PART_MAGIC   "MRPART1\n"
#define MR_PART_VERSION 1
#define MR_PART_CHUNK   0x4b4e4843u /* "CHNK" */

struct mr_part_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* where the first chunk begins */
    uint32_t pid, ppid;
    uint64_t start_ns;      /* when the recorder came up in this process */
    uint64_t start_unix_ns; /* the same moment on CLOCK_REALTIME */
    uint32_t traced;        /* bits of enum mr_part_trace */
    uint32_t reserved[5];
};

enum mr_part_trace {
    MR_TRACE_CUDA = 1,
    MR_TRACE_CUDA_LIGHT = 2, /* copies, synchronisation and their calls; no kernels */
    MR_TRACE_NVTX = 4,
    MR_TRACE_OSRT = 8,
    MR_TRACE_MILLRACE = 16, /* the library's own spans, as ranges of the domain "millrace" */
    MR_TRACE_GPU_METRICS = 32,
    MR_TRACE_STACKS = 64, /* of Python threads, by sampling */
    MR_TRACE_C_STACKS = 128,
};

/* type, the struct of its records */
#define MR_PART_TYPES(X)                                                                           \
    X(MR_PART_STRING, mr_part_string)                                                              \
    X(MR_PART_THREAD, mr_part_thread)                                                              \
    X(MR_PART_PROCESS, mr_part_process)                                                            \
    X(MR_PART_DEVICE, mr_part_device)                                                              \
    X(MR_PART_CONTEXT, mr_part_context)                                                            \
    X(MR_PART_STREAM, mr_part_stream)                                                              \
    X(MR_PART_KERNEL, mr_part_kernel)                                                              \
    X(MR_PART_COPY, mr_part_copy)                                                                  \
    X(MR_PART_SET, mr_part_set)                                                                    \
    X(MR_PART_SYNC, mr_part_sync)                                                                  \
    X(MR_PART_API, mr_part_api)                                                                    \
    X(MR_PART_MEMORY, mr_part_memory)                                                              \
    X(MR_PART_OVERHEAD, mr_part_overhead)                                                          \
    X(MR_PART_GRAPH, mr_part_graph)                                                                \
    X(MR_PART_RANGE, mr_part_range)                                                                \
    X(MR_PART_OS, mr_part_os)                                                                      \
    X(MR_PART_METRIC, mr_part_metric)                                                              \
    X(MR_PART_NOTE, mr_part_note)                                                                  \
    X(MR_PART_STACK, mr_part_stack)                                                                \
    X(MR_PART_SAMPLE, mr_part_sample)                                                              \
    X(MR_PART_RANGE_TEXT, mr_part_range_text)

enum mr_part_type {
    MR_PART_NONE,
#define X(type, record) type,
    MR_PART_TYPES(X)
#undef X
        MR_N_PART_TYPES
};

#define MR_PART_LEAST_BYTES 8 /* of a record, in any version */

struct mr_part_chunk {
    uint32_t magic;
    uint16_t type;
    /* of one record; 0: variable (those with texts). A reader takes the smaller of this and its
     * own */
    uint16_t record_bytes;
    uint32_t n;     /* records */
    uint32_t bytes; /* that follow */
};

struct mr_part_string { /* followed by `bytes` bytes, no NUL, padded to 8 */
    uint32_t id, bytes;
};

/*
 * Numbers from here on (the kernel's end at 2^22, and both fit the export's 24 bits) are not
 * threads but named tracks of the process, of engines that are simulated for example: their spans
 * stand on no thread.
 */
#define MR_PART_FIRST_TRACK 0x800000u

struct mr_part_thread { /* the last record of a number holds */
    uint32_t tid, name;
};

struct mr_part_process { /* once, when the part begins */
    uint32_t command;    /* the command line, spaces between */
    uint32_t executable;
};

struct mr_part_device {
    uint32_t device, name;
    uint32_t major, minor; /* compute capability */
    uint32_t n_sms;
    uint32_t n_copy_engines; /* 0: not known */
    uint64_t memory_bytes;
    uint64_t memory_bandwidth; /* bytes/s; 0: not known */
    uint32_t core_clock_khz;
    uint32_t pcie_domain, pcie_bus,
        pcie_device; /* all 0: not known; the recorder's CUPTI does not tell */
    uint8_t uuid[16];
};

struct mr_part_context {
    uint32_t context, device;
    uint32_t null_stream;
    uint32_t green_parent; /* of a green context; 0: none */
};

struct mr_part_stream {
    uint32_t stream, context;
    uint32_t flags; /* CUPTI's CUpti_ActivityStreamFlag */
    int32_t priority;
};

struct mr_part_kernel {
    uint64_t start_ns, end_ns; /* both 0: the timestamp was lost */
    uint64_t graph_node;       /* 0: not of a graph */
    uint32_t graph;
    uint32_t device, context, stream, correlation;
    uint32_t name; /* mangled */
    uint32_t grid[3], block[3];
    uint32_t registers, static_shared, dynamic_shared; /* a thread; bytes a block */
    uint32_t local_bytes;                              /* a thread */
};

struct mr_part_copy {                 /* MEMCPY and MEMCPY2 (peer) */
    uint64_t start_ns, end_ns, bytes; /* bytes UINT64_MAX: not known; also of a set */
    uint64_t graph_node;
    uint32_t graph;
    uint32_t device, context, stream, correlation;
    uint32_t src_device, dst_device; /* as `device` unless a peer copy */
    uint32_t count;                  /* copies of a batch in this record; 1 otherwise */
    uint8_t kind, src_kind, dst_kind, flags;
    uint32_t reserved;
};

struct mr_part_set {
    uint64_t start_ns, end_ns, bytes;
    uint64_t graph_node;
    uint32_t graph;
    uint32_t device, context, stream, correlation;
    uint32_t value;
    uint16_t kind, flags; /* of memory */
    uint32_t reserved;
};

struct mr_part_sync {
    uint64_t start_ns, end_ns;
    uint32_t type;            /* CUpti_ActivitySynchronizationType */
    uint32_t context, stream; /* UINT32_MAX: none */
    uint32_t event;
    uint32_t correlation;
    uint32_t reserved;
};

enum mr_part_api_class { MR_PART_RUNTIME, MR_PART_DRIVER };

struct mr_part_api {
    uint64_t start_ns, end_ns;
    uint32_t correlation, tid, name;
    uint16_t class; /* enum mr_part_api_class */
    uint16_t reserved;
    int32_t result;
    uint32_t cbid;
};

struct mr_part_memory { /* MEMORY2: allocations and releases */
    uint64_t time_ns, address, bytes;
    uint32_t operation; /* CUpti_ActivityMemoryOperationType */
    uint32_t kind;      /* CUpti_ActivityMemoryKind */
    uint32_t device, context, stream, correlation, tid;
    uint32_t reserved;
};

struct mr_part_overhead {
    uint64_t start_ns, end_ns;
    uint32_t kind, tid; /* CUpti_ActivityOverheadKind */
};

struct mr_part_graph { /* one launch of a whole graph, when nodes are not recorded */
    uint64_t start_ns, end_ns;
    uint32_t graph, device, context, stream, correlation, reserved;
};

/* Numbers of the Nsight Systems export. In parts: marks, push-pop and start-end ranges. */
enum mr_part_range_type {
    MR_RANGE_CATEGORY = 33, /* what a category is called */
    MR_RANGE_MARK = 34,
    MR_RANGE_PUSH_POP = 59,
    MR_RANGE_START_END = 60,
    MR_RANGE_PUSH_POP_EXTENDED = 70, /* the same with a payload of another layout */
    MR_RANGE_START_END_EXTENDED = 71,
    MR_RANGE_DOMAIN = 75, /* what a domain is called */
};

struct mr_part_range {
    uint64_t start_ns, end_ns; /* end 0: still open when the recording ended, or a mark */
    uint64_t id;               /* start-end ranges; 0 otherwise */
    uint64_t payload;          /* as payload_type says, its bits */
    uint32_t text, domain;     /* domain 0: the default one */
    uint32_t tid, end_tid;
    /* 0: none. A name without a category is the payload's, as in the domain "millrace". */
    uint32_t category, category_name;
    uint32_t color;        /* ARGB; 0: none */
    uint16_t type;         /* enum mr_part_range_type */
    uint16_t payload_type; /* nvtxPayloadType_t; 0: none */
};

/* A range whose text came for the first time, and may not come again: followed by `bytes` bytes, no
 * NUL, padded to 8. range.text is 0. */
struct mr_part_range_text {
    struct mr_part_range range;
    uint32_t bytes, reserved;
};

struct mr_part_os {
    uint64_t start_ns, end_ns;
    int64_t result;
    uint64_t bytes; /* moved or mapped; 0 where it has no meaning */
    uint32_t name, tid;
};

struct mr_part_metric { /* a sample */
    uint64_t time_ns;
    double value;
    uint32_t name, device; /* device UINT32_MAX: of the process */
};

/*
 * What the recorder has to say of itself. name: one of
 *   "dropped" (value: records that CUPTI dropped), "no_cuda" (text: why nothing of CUDA is
 *   recorded),
 *   "no_stacks" (text: why), "no_metrics" (text: why), "metrics_clock" (value: ns by which its
 *   clock is not known better),
 *   "no_nvtx" (text: why),
 *   "warning" (text), "capture_start", "capture_stop" (value: time in ns),
 *   "exit" (value: the process's orderly end in ns; a part without it was killed)
 */
struct mr_part_note {
    int64_t value;
    uint32_t name, text;
};

/*
 * A frame on top of another stack. Numbers come upwards from 1 and fit 24 bits; a parent's is
 * smaller than those of the stacks on it.
 */
struct mr_part_stack {
    uint32_t id, parent;     /* parent 0: the outermost frame */
    uint32_t function, file; /* names */
    uint32_t line;           /* 0: not known */
    /* Of compiled code: file is the module, and address, as its symbols count, is in the
     * instruction that runs or calls. Without a module: function says what it is. */
    uint32_t is_c;
    uint32_t build_id; /* a name: hexadecimal digits; 0: none */
    uint32_t module;   /* in parts 0 */
    uint64_t address;
};

/* Stacks of compiled code: so far apart that functions that were inlined get numbers between. */
#define MR_PART_FIRST_C_STACK (1u << 23)
#define MR_PART_C_STACK_STEP  16u

struct mr_part_sample { /* a thread was in this stack each time that it was looked at */
    uint64_t start_ns, end_ns;
    uint64_t cpu_ns; /* of it on a processor */
    uint32_t stack, tid;
    uint32_t n; /* how often it was looked at */
    uint32_t reserved;
};

/* Are records of this type followed by a text? */
static inline int mr_part_has_text(unsigned type)
{
    return type == MR_PART_STRING || type == MR_PART_RANGE_TEXT;
}

/* Of one record of this type, without its text; 0: there is no such type. */
static inline uint16_t mr_part_bytes(unsigned type)
{
    static const uint16_t bytes[MR_N_PART_TYPES] = {
#define X(type, record) [type] = sizeof(struct record),
        MR_PART_TYPES(X)
#undef X
    };
    return type < MR_N_PART_TYPES ? bytes[type] : 0;
}

#endif
