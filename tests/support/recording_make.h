/*
 * Recordings for tests, in a few words: times are ns from the recording's start and come back from
 * mr_recording_load() as they were given. A process is made by make_begin(); device work makes the
 * call that launched it, by the thread m.tid.
 *
 *     struct make m;
 *     make_begin(&m, path);
 *     make_device(&m, 0, "Some GPU");
 *     make_range(&m, "step", 0, 1000000);
 *     make_copy(&m, 13, 100000, 300000, 1 << 20, MR_COPY_H2D, MR_MEM_PAGEABLE);
 *     make_kernel(&m, 7, "gemm", 300000, 900000);
 *     make_sync(&m, 7, 310000, 905000);
 *     make_end(&m);
 */
#ifndef MR_TEST_RECORDING_MAKE_H
#define MR_TEST_RECORDING_MAKE_H

#include "../unit/unit.h"

#include "recording/recording.h"

#define MAKE_BASE 1000000000000ull /* what the recording's clock says at its start */
#define MAKE_UNIX 1750000000000000000ull
#define MAKE_LATENCY                                                                               \
    5000 /* from a call's start to its device work's, where there is that much time */
#define MAKE_CALL_TIME 3000 /* of a call that does not block */

struct make {
    struct mr_store *store;
    uint32_t pid, tid, device, context;
    uint32_t correlation; /* the last one given */
};

static inline uint32_t make_name(struct make *m, const char *text)
{
    return text ? mr_store_string(m->store, text, strlen(text)) : 0;
}

static inline void make_put(struct make *m, enum mr_part_type type, const void *record)
{
    if (mr_store_put(m->store, type, record) < 0)
        fail_msg("%s", mr_last_error());
}

/* Another process: what follows is its own; its correlation ids begin again at 1. */
static inline void make_process(struct make *m, uint32_t pid, const char *command)
{
    struct mr_part_header header = {.version = MR_PART_VERSION,
                                    .pid = pid,
                                    .ppid = 1,
                                    .start_ns = MAKE_BASE,
                                    .start_unix_ns = MAKE_UNIX,
                                    .traced = MR_TRACE_CUDA | MR_TRACE_NVTX | MR_TRACE_OSRT};
    memcpy(header.magic, MR_PART_MAGIC, sizeof(header.magic));
    assert_int_equal(mr_store_process(m->store, &header), 0);
    m->pid = m->tid = pid;
    m->correlation = 0;
    make_put(m, MR_PART_PROCESS, &(struct mr_part_process){.command = make_name(m, command)});
}

/* A recording of one process, number 100, whose first thread is number 100, device 0, context 1. */
static inline void make_begin(struct make *m, const char *path)
{
    *m = (struct make){.context = 1};
    if (mr_store_create(path, true, &m->store) < 0)
        fail_msg("%s", mr_last_error());
    make_process(m, 100, "python3 train.py");
}

static inline void make_end(struct make *m)
{
    if (mr_store_finish(m->store) < 0)
        fail_msg("%s", mr_last_error());
    m->store = NULL;
}

static inline void make_device(struct make *m, uint32_t device, const char *name)
{
    struct mr_part_device d = {.device = device,
                               .name = make_name(m, name),
                               .major = 9,
                               .n_sms = 132,
                               .n_copy_engines = 3,
                               .memory_bytes = 141ull << 30,
                               .memory_bandwidth = 4800ull * 1000000000,
                               .core_clock_khz = 1980000};
    d.uuid[0] = 0x42;
    d.uuid[15] = (uint8_t)device;
    make_put(m, MR_PART_DEVICE, &d);
    make_put(m, MR_PART_CONTEXT,
             &(struct mr_part_context){.context = m->context, .device = device, .null_stream = 7});
}

static inline void make_stream(struct make *m, uint32_t stream, uint32_t flags)
{
    make_put(m, MR_PART_STREAM,
             &(struct mr_part_stream){.stream = stream, .context = m->context, .flags = flags});
}

static inline void make_thread(struct make *m, uint32_t tid, const char *name)
{
    make_put(m, MR_PART_THREAD, &(struct mr_part_thread){.tid = tid, .name = make_name(m, name)});
}

/* A call with a correlation that was given before. Names with "cuda" are the runtime's, others the
 * driver's. */
static inline void make_call_of(struct make *m, uint32_t correlation, const char *name,
                                uint64_t start, uint64_t end)
{
    make_put(m, MR_PART_API,
             &(struct mr_part_api){.start_ns = MAKE_BASE + start,
                                   .end_ns = MAKE_BASE + end,
                                   .correlation = correlation,
                                   .tid = m->tid,
                                   .name = make_name(m, name),
                                   .class = strncmp(name, "cuda", 4) ? MR_PART_DRIVER
                                                                     : MR_PART_RUNTIME});
}

/* Returns its correlation. */
static inline uint32_t make_call(struct make *m, const char *name, uint64_t start, uint64_t end)
{
    make_call_of(m, ++m->correlation, name, start, end);
    return m->correlation;
}

/* The call of device work that starts at `start`; it returns at end when that isn't 0. */
static inline uint32_t make_launch(struct make *m, const char *name, uint64_t start, uint64_t end)
{
    uint64_t begin = start > MAKE_LATENCY ? start - MAKE_LATENCY : 0;
    return make_call(m, name, begin, end ? end : begin + MAKE_CALL_TIME);
}

/* kind: of the export, 1 page-locked, 2 device. */
static inline void make_memory(struct make *m, int kind, uint64_t address, uint64_t bytes,
                               bool release, uint64_t at)
{
    make_put(m, MR_PART_MEMORY,
             &(struct mr_part_memory){.time_ns = MAKE_BASE + at,
                                      .address = address,
                                      .bytes = bytes,
                                      .operation = release ? 2 : 1, /* as CUPTI numbers them */
                                      .kind = (uint32_t)kind + 1,
                                      .device = m->device,
                                      .context = m->context,
                                      .tid = m->tid});
}

/* Device work of a call that was made before, or of none (0). start and end 0: its times were
 * lost. */
static inline void make_kernel_of(struct make *m, uint32_t correlation, uint32_t stream,
                                  const char *name, uint64_t start, uint64_t end)
{
    bool lost = start == 0 && end == 0;
    make_put(m, MR_PART_KERNEL,
             &(struct mr_part_kernel){.start_ns = lost ? 0 : MAKE_BASE + start,
                                      .end_ns = lost ? 0 : MAKE_BASE + end,
                                      .device = m->device,
                                      .context = m->context,
                                      .stream = stream,
                                      .correlation = correlation,
                                      .name = make_name(m, name),
                                      .grid = {128, 1, 1},
                                      .block = {256, 1, 1},
                                      .registers = 32});
}

static inline void make_kernel(struct make *m, uint32_t stream, const char *name, uint64_t start,
                               uint64_t end)
{
    make_kernel_of(m, make_launch(m, "cudaLaunchKernel_v7000", start, 0), stream, name, start, end);
}

/* host: the kind of memory at the host's end; where there is none (device to device)
 * MR_MEM_DEVICE. */
static inline void make_copy_of(struct make *m, uint32_t correlation, uint32_t stream,
                                uint64_t start, uint64_t end, uint64_t bytes,
                                enum mr_copy_kind kind, enum mr_mem_kind host)
{
    bool to_device = kind == MR_COPY_H2D;
    make_put(m, MR_PART_COPY,
             &(struct mr_part_copy){.start_ns = MAKE_BASE + start,
                                    .end_ns = MAKE_BASE + end,
                                    .bytes = bytes,
                                    .device = m->device,
                                    .context = m->context,
                                    .stream = stream,
                                    .correlation = correlation,
                                    .src_device = m->device,
                                    .dst_device = m->device,
                                    .count = 1,
                                    .kind = (uint8_t)kind,
                                    .src_kind = (uint8_t)(to_device ? host : MR_MEM_DEVICE),
                                    .dst_kind = (uint8_t)(to_device ? MR_MEM_DEVICE : host)});
}

/* The call is cudaMemcpyAsync; of pageable memory it returns when the copy is done. */
static inline void make_copy(struct make *m, uint32_t stream, uint64_t start, uint64_t end,
                             uint64_t bytes, enum mr_copy_kind kind, enum mr_mem_kind host)
{
    uint32_t call =
        make_launch(m, "cudaMemcpyAsync_v3020", start, host == MR_MEM_PAGEABLE ? end + 1000 : 0);
    make_copy_of(m, call, stream, start, end, bytes, kind, host);
}

static inline void make_set(struct make *m, uint32_t stream, uint64_t start, uint64_t end,
                            uint64_t bytes, enum mr_mem_kind memory)
{
    make_put(m, MR_PART_SET,
             &(struct mr_part_set){.start_ns = MAKE_BASE + start,
                                   .end_ns = MAKE_BASE + end,
                                   .bytes = bytes,
                                   .device = m->device,
                                   .context = m->context,
                                   .stream = stream,
                                   .correlation = make_launch(m, "cudaMemsetAsync_v3020", start, 0),
                                   .kind = (uint16_t)memory});
}

/* cudaStreamSynchronize and CUPTI's record of it. */
static inline void make_sync(struct make *m, uint32_t stream, uint64_t start, uint64_t end)
{
    uint32_t call = make_call(m, "cudaStreamSynchronize_v3020", start, end);
    make_put(m, MR_PART_SYNC,
             &(struct mr_part_sync){.start_ns = MAKE_BASE + start,
                                    .end_ns = MAKE_BASE + end,
                                    .type = 3,
                                    .context = m->context,
                                    .stream = stream,
                                    .correlation = call});
}

/* end 0: it never ended. domain NULL: the default one. type: enum mr_part_range_type. */
static inline void make_range_of(struct make *m, const char *domain, enum mr_part_range_type type,
                                 const char *text, uint64_t start, uint64_t end)
{
    make_put(m, MR_PART_RANGE,
             &(struct mr_part_range){.start_ns = MAKE_BASE + start,
                                     .end_ns = end ? MAKE_BASE + end : 0,
                                     .text = make_name(m, text),
                                     .domain = make_name(m, domain),
                                     .tid = m->tid,
                                     .type = (uint16_t)type});
}

static inline void make_range(struct make *m, const char *text, uint64_t start, uint64_t end)
{
    make_range_of(m, NULL, MR_RANGE_PUSH_POP, text, start, end);
}

static inline void make_os(struct make *m, const char *name, uint64_t start, uint64_t end,
                           uint64_t bytes)
{
    make_put(m, MR_PART_OS,
             &(struct mr_part_os){.start_ns = MAKE_BASE + start,
                                  .end_ns = MAKE_BASE + end,
                                  .result = (int64_t)bytes,
                                  .bytes = bytes,
                                  .name = make_name(m, name),
                                  .tid = m->tid});
}

/* device MR_NONE: a counter of the process */
static inline void make_metric(struct make *m, const char *name, uint32_t device, uint64_t time,
                               double value)
{
    make_put(m, MR_PART_METRIC,
             &(struct mr_part_metric){.time_ns = MAKE_BASE + time,
                                      .value = value,
                                      .name = make_name(m, name),
                                      .device = device});
}

/* "exit" and the captures' values are times: give them with MAKE_BASE. */
static inline void make_note(struct make *m, const char *name, int64_t value, const char *text)
{
    make_put(m, MR_PART_NOTE,
             &(struct mr_part_note){
                 .value = value, .name = make_name(m, name), .text = make_name(m, text)});
}

/* A path for a test's own recording in the current folder; reopened and loaded by make_load(). */
static inline struct mr_recording *make_load(const char *path)
{
    struct mr_recording *recording = NULL;
    if (mr_recording_open(path, &recording) < 0 || mr_recording_load(recording) < 0)
        fail_msg("%s", mr_last_error());
    return recording;
}

#endif
