/*
 * CUPTI as the recorder uses it, declared here so that building needs no toolkit: functions by
 * name, and of each record the part that every version from CUDA 12.0 on has at the same place
 * (tests/project/cupti_layout.c compares it with the real header). NVIDIA lets records grow at
 * their end; what an older version lacks is read only from `since` on.
 */
#ifndef MR_RECORDER_CUPTI_CUPTI_H
#define MR_RECORDER_CUPTI_CUPTI_H

#include "recorder/private.h"

#define CUPTI_OLDEST      19     /* CUDA 12.0 */
#define CUPTI_SINCE_12_8  26     /* Memcpy6: copyCount; Context2: the parent of a green context */
#define CUPTI_NEWEST_SEEN 130199 /* 13.1; later ones are read as this one, with a warning */

enum { CUPTI_OK = 0, CUPTI_MAX_LIMIT_REACHED = 12, CUPTI_MULTIPLE_SUBSCRIBERS = 39 };
enum { CUPTI_DOMAIN_DRIVER = 1, CUPTI_DOMAIN_RUNTIME = 2 };
enum { CUPTI_SITE_ENTER, CUPTI_SITE_EXIT };
enum {
    CUPTI_RUNTIME_PROFILER_START = 171,
    CUPTI_RUNTIME_PROFILER_STOP,
    CUPTI_DRIVER_PROFILER_START = 308,
    CUPTI_DRIVER_PROFILER_STOP
};
enum {
    CUPTI_ATTR_DEVICE_BUFFER_SIZE = 0,
    CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,
    CUPTI_ATTR_ZEROED_OUT_BUFFER = 5,
    CUPTI_ATTR_DEVICE_BUFFER_PRE_ALLOCATE = 6
};
enum { CUPTI_THREAD_ID_SYSTEM = 1, CUPTI_FLUSH_FORCED = 1, CUPTI_OBJECT_THREAD = 2 };

enum cupti_kind {
    CUPTI_MEMCPY = 1,
    CUPTI_MEMSET = 2,
    CUPTI_KERNEL = 3,
    CUPTI_DRIVER = 4,
    CUPTI_RUNTIME = 5,
    CUPTI_DEVICE = 8,
    CUPTI_CONTEXT = 9,
    CUPTI_CONCURRENT_KERNEL = 10,
    CUPTI_OVERHEAD = 17,
    CUPTI_MEMCPY2 = 22,
    CUPTI_STREAM = 37,
    CUPTI_SYNCHRONIZATION = 38,
    CUPTI_MEMORY2 = 49,
    CUPTI_GRAPH_TRACE = 51,
};

struct cupti_memcpy { /* Memcpy4 to 6 */
    uint32_t kind;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph, channel;
    uint32_t channel_type;
    uint32_t device_launched;
    uint64_t copy_count; /* since 12.8 */
};

struct cupti_memcpy_peer { /* MemcpyPtoP3, 4 */
    uint32_t kind;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, src_device, src_context, dst_device, dst_context, correlation;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct cupti_memset { /* Memset3, 4 */
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory_kind;
    uint32_t pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct cupti_kernel { /* Kernel6 to 11 */
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local_bytes, local_total, correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout[2], padding;
    uint32_t shared_executed;
    uint64_t graph_node;
    uint32_t shmem_limit, graph;
};

struct cupti_api {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t process, thread, correlation, result;
};

struct cupti_sync { /* Synchronization, 2 */
    uint32_t kind, type;
    uint64_t start, end;
    uint32_t correlation, context, stream, event;
};

struct cupti_memory { /* Memory2 to 4 */
    uint32_t kind, operation, memory_kind, correlation;
    uint64_t address, bytes, timestamp, pc;
    uint32_t process, device, context, stream;
};

struct cupti_overhead { /* Overhead, 2, 3 */
    uint32_t kind, overhead_kind, object_kind, object[3];
    uint64_t start, end;
};

struct cupti_device { /* Device4, 5 */
    uint32_t kind, flags;
    uint64_t memory_bandwidth, memory_bytes;
    uint32_t constant_bytes, l2_bytes, warp, core_clock_khz, n_copy_engines, n_sms, limits[14];
    uint32_t major, minor, id, ecc;
    uint8_t uuid[16];
    const char *name;
};

struct cupti_context { /* Context, 2, 3 */
    uint32_t kind, context, device;
    uint16_t api_kind, null_stream;
    uint32_t parent; /* since 12.8 */
    uint8_t is_green;
};

struct cupti_stream {
    uint32_t kind, context, stream, priority, flag, correlation;
};

struct cupti_graph { /* GraphTrace, 2 */
    uint32_t kind, correlation;
    uint64_t start, end;
    uint32_t device, graph, context, stream;
};

struct cupti_callback_data {
    uint32_t site; /* and more, which is not looked at */
};

typedef void cupti_callback(void *user, uint32_t domain, uint32_t cbid,
                            const struct cupti_callback_data *data);
typedef void cupti_request(uint8_t **buffer, size_t *bytes, size_t *max_records);
typedef void cupti_complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                            size_t valid);

/* name, whether it may be missing, arguments */
#define CUPTI_FUNCTIONS(X)                                                                         \
    X(GetVersion, false, (uint32_t *))                                                             \
    X(Subscribe, false, (void **, cupti_callback *, void *))                                       \
    X(EnableCallback, false, (uint32_t, void *, uint32_t, uint32_t))                               \
    X(GetCallbackName, false, (uint32_t, uint32_t, const char **))                                 \
    X(GetResultString, true, (int, const char **))                                                 \
    X(ActivityEnable, false, (uint32_t))                                                           \
    X(ActivityDisable, false, (uint32_t))                                                          \
    X(ActivityRegisterCallbacks, false, (cupti_request *, cupti_complete *))                       \
    X(ActivityGetNextRecord, false, (uint8_t *, size_t, void **))                                  \
    X(ActivityGetNumDroppedRecords, false, (void *, uint32_t, size_t *))                           \
    X(ActivityFlushAll, false, (uint32_t))                                                         \
    X(ActivitySetAttribute, true, (uint32_t, size_t *, void *))                                    \
    X(ActivityRegisterTimestampCallback, true, (uint64_t(*)(void)))                                \
    X(ActivityEnableRuntimeApi, true, (uint32_t, uint8_t))                                         \
    X(ActivityEnableDriverApi, true, (uint32_t, uint8_t))                                          \
    X(ActivityEnableAllSyncRecords, true, (uint8_t))                                               \
    X(SetThreadIdType, true, (uint32_t))

struct record_cupti {
    uint32_t version;
    bool light;        /* no kernels */
    bool all_calls;    /* no choice among API calls */
    bool whole_graphs; /* a graph's launch is one record */
#define X(name, optional, arguments) int(*name) arguments;
    CUPTI_FUNCTIONS(X)
#undef X
};
extern struct record_cupti cupti; /* constant once InitializeInjection() has returned */

/* record_cupti_load.c: finds CUPTI and its functions; [out] why: what was tried */
bool record_cupti_load(char *why, size_t bytes);
void *record_cupti_symbol(
    const char *name); /* of the one that was found; NULL: it has none of that name */

/* record_cupti_calls.c */
void record_cupti_calls_enable(bool on);
bool record_cupti_call_kept(uint32_t domain, uint32_t cbid);
uint32_t record_cupti_call_name(uint32_t domain, uint32_t cbid); /* number of the text */
/* For tests: is a call of this name recorded? */
bool record_cupti_call_matters(const char *name, bool light);

/* record_cupti_convert.c: writes a buffer's records; on CUPTI's thread only */
void record_cupti_convert(uint8_t *buffer, size_t valid);
void record_cupti_convert_flush(
    bool all); /* all: nothing is held back for a call that may follow */

/* record_cupti_buffers.c */
void record_cupti_request(uint8_t **buffer, size_t *bytes, size_t *max_records);
void record_cupti_complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                           size_t valid);
void record_cupti_buffers_begin(void);
void record_cupti_buffers_prepare(void); /* on CUPTI's thread: some are ready to be asked for */
bool record_cupti_buffers_convert(void); /* all that are complete; false: there were none */

#endif
