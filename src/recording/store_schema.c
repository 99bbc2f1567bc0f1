/*
 * The tables: names and types as the Nsight Systems export of 2024 and 2025 has them; columns of
 * ours come last in a table of the export, or stand in tables of our own, MILLRACE_*.
 * docs/recordings.md describes them.
 */
#include "recording/store.h"

#include <stddef.h>

#define INT                  "INTEGER"
#define INT_                 "INTEGER NOT NULL"
#define BYTES(record, field) sizeof(((struct record *)0)->field), offsetof(struct record, field)
#define UINT(name, record, field)                                                                  \
    {                                                                                              \
        name, INT_, FROM_UINT, BYTES(record, field)                                                \
    }
#define MAYBE(name, record, field)                                                                 \
    {                                                                                              \
        name, INT, FROM_UINT_OR_NULL, BYTES(record, field)                                         \
    }
#define SIZE(record)                                                                               \
    {                                                                                              \
        "bytes", INT, FROM_BYTES, BYTES(record, bytes)                                             \
    }
#define VALUE(name, from, record, field)                                                           \
    {                                                                                              \
        name, INT_, from, BYTES(record, field)                                                     \
    }
#define ABSENT(name)                                                                               \
    {                                                                                              \
        name, INT, FROM_NOTHING, 0, 0                                                              \
    }
#define ZERO(name)                                                                                 \
    {                                                                                              \
        name, INT_, FROM_ZERO, 0, 0                                                                \
    }
#define SPAN                                                                                       \
    {"start", INT_, FROM_START, 0, 0},                                                             \
    {                                                                                              \
        "end", INT_, FROM_END, 0, 0                                                                \
    }
#define PID                                                                                        \
    {                                                                                              \
        "globalPid", INT, FROM_PID, 0, 0                                                           \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, 0, 0, 0                                                                        \
    }
#define WHERE(record)                                                                              \
    UINT("deviceId", record, device), UINT("contextId", record, context),                          \
        ABSENT("greenContextId"), UINT("streamId", record, stream),                                \
        VALUE("correlationId", FROM_UINT, record, correlation), PID

static const struct mr_store_column kernel_columns[] = {
    SPAN,
    WHERE(mr_part_kernel),
    VALUE("demangledName", FROM_DEMANGLED, mr_part_kernel, name),
    VALUE("shortName", FROM_SHORT, mr_part_kernel, name),
    VALUE("mangledName", FROM_NAME, mr_part_kernel, name),
    ABSENT("launchType"),
    ABSENT("cacheConfig"),
    UINT("registersPerThread", mr_part_kernel, registers),
    UINT("gridX", mr_part_kernel, grid[0]),
    UINT("gridY", mr_part_kernel, grid[1]),
    UINT("gridZ", mr_part_kernel, grid[2]),
    UINT("blockX", mr_part_kernel, block[0]),
    UINT("blockY", mr_part_kernel, block[1]),
    UINT("blockZ", mr_part_kernel, block[2]),
    UINT("staticSharedMemory", mr_part_kernel, static_shared),
    UINT("dynamicSharedMemory", mr_part_kernel, dynamic_shared),
    UINT("localMemoryPerThread", mr_part_kernel, local_bytes),
    ZERO("localMemoryTotal"),
    ZERO("gridId"),
    ABSENT("sharedMemoryExecuted"),
    MAYBE("graphNodeId", mr_part_kernel, graph_node),
    ABSENT("sharedMemoryLimitConfig"),
    MAYBE("graphId", mr_part_kernel, graph), /* ours */
    END,
};

static const struct mr_store_column copy_columns[] = {
    SPAN,
    WHERE(mr_part_copy),
    SIZE(mr_part_copy),
    UINT("copyKind", mr_part_copy, kind),
    ABSENT("deprecatedSrcId"),
    VALUE("srcKind", FROM_MEMORY_KIND, mr_part_copy, src_kind),
    VALUE("dstKind", FROM_MEMORY_KIND, mr_part_copy, dst_kind),
    UINT("srcDeviceId", mr_part_copy, src_device),
    ABSENT("srcContextId"),
    UINT("dstDeviceId", mr_part_copy, dst_device),
    ABSENT("dstContextId"),
    ABSENT("migrationCause"),
    MAYBE("graphNodeId", mr_part_copy, graph_node),
    ABSENT("virtualAddress"),
    UINT("copyCount", mr_part_copy, count), /* these are ours */
    UINT("flags", mr_part_copy, flags),
    MAYBE("graphId", mr_part_copy, graph),
    END,
};

static const struct mr_store_column set_columns[] = {
    SPAN,
    WHERE(mr_part_set),
    UINT("value", mr_part_set, value),
    SIZE(mr_part_set),
    MAYBE("graphNodeId", mr_part_set, graph_node),
    VALUE("memKind", FROM_MEMORY_KIND, mr_part_set, kind),
    MAYBE("graphId", mr_part_set, graph), /* ours */
    END,
};

static const struct mr_store_column sync_columns[] = {
    SPAN,
    VALUE("deviceId", FROM_CONTEXT_DEVICE, mr_part_sync, context),
    UINT("contextId", mr_part_sync, context),
    ABSENT("greenContextId"),
    UINT("streamId", mr_part_sync, stream),
    VALUE("correlationId", FROM_UINT, mr_part_sync, correlation),
    PID,
    UINT("syncType", mr_part_sync, type),
    UINT("eventId", mr_part_sync, event),
    END,
};

static const struct mr_store_column api_columns[] = {
    SPAN,
    VALUE("eventClass", FROM_CLASS, mr_part_api, class),
    VALUE("globalTid", FROM_TID, mr_part_api, tid),
    VALUE("correlationId", FROM_UINT, mr_part_api, correlation),
    VALUE("nameId", FROM_NAME, mr_part_api, name),
    VALUE("returnValue", FROM_INT, mr_part_api, result),
    ABSENT("callchainId"),
    END,
};

static const struct mr_store_column memory_columns[] = {
    {"start", INT_, FROM_START, 0, 0},
    PID,
    UINT("deviceId", mr_part_memory, device),
    UINT("contextId", mr_part_memory, context),
    UINT("address", mr_part_memory, address),
    ZERO("pc"),
    UINT("bytes", mr_part_memory, bytes),
    VALUE("memKind", FROM_MEMORY_KIND, mr_part_memory, kind),
    VALUE("memoryOperationType", FROM_OPERATION, mr_part_memory, operation),
    {"name", "TEXT", FROM_NOTHING, 0, 0},
    VALUE("correlationId", FROM_UINT, mr_part_memory, correlation),
    UINT("streamId", mr_part_memory, stream),
    ABSENT("localMemoryPoolAddress"),
    ABSENT("localMemoryPoolReleaseThreshold"),
    ABSENT("localMemoryPoolSize"),
    ABSENT("localMemoryPoolUtilizedSize"),
    ABSENT("importedMemoryPoolAddress"),
    ABSENT("importedMemoryPoolProcessId"),
    VALUE("globalTid", FROM_TID, mr_part_memory, tid), /* ours */
    END,
};

static const struct mr_store_column overhead_columns[] = {
    SPAN,
    VALUE("globalTid", FROM_TID, mr_part_overhead, tid),
    VALUE("nameId", FROM_OVERHEAD, mr_part_overhead, kind),
    ZERO("returnValue"),
    END,
};

static const struct mr_store_column graph_columns[] = {
    SPAN, WHERE(mr_part_graph), UINT("graphId", mr_part_graph, graph), ABSENT("graphExecId"), END,
};

/* text is for texts that came once: a number of StringIds would take more than they do */
#define FIRST_SELDOM "category"
static const struct mr_store_column range_columns[] = {
    {"start", INT_, FROM_START, 0, 0},
    {"end", INT, FROM_END, 0, 0},
    UINT("eventType", mr_part_range, type),
    {"text", "TEXT", FROM_TEXT, 0, 0},
    VALUE("globalTid", FROM_TID, mr_part_range, tid),
    {"textId", INT, FROM_NAME_OR_TEXT, BYTES(mr_part_range, text)},
    {"domainId", INT, FROM_UINT, BYTES(mr_part_range, domain)},
    /* those that are filled most, first */
    MAYBE(FIRST_SELDOM, mr_part_range, category),
    MAYBE("color", mr_part_range, color),
    MAYBE("rangeId", mr_part_range, id),
    {"endGlobalTid", INT, FROM_END_TID, BYTES(mr_part_range, end_tid)},
    {"uint64Value", INT, FROM_PAYLOAD_INT, 1, 0},
    {"int64Value", INT, FROM_PAYLOAD_INT, 2, 0},
    {"doubleValue", "REAL", FROM_PAYLOAD_REAL, 3, 0},
    {"uint32Value", INT, FROM_PAYLOAD_INT, 4, 0},
    {"int32Value", INT, FROM_PAYLOAD_INT, 5, 0},
    {"floatValue", "REAL", FROM_PAYLOAD_REAL, 6, 0},
    ABSENT("jsonTextId"),
    {"jsonText", "TEXT", FROM_NOTHING, 0, 0},
    {"binaryData", "TEXT", FROM_NOTHING, 0, 0},
    END,
};

static const struct mr_store_column os_columns[] = {
    SPAN,
    {"eventClass", INT_, FROM_CONSTANT, 0, 27},
    VALUE("globalTid", FROM_TID, mr_part_os, tid),
    VALUE("nameId", FROM_NAME, mr_part_os, name),
    VALUE("returnValue", FROM_INT, mr_part_os, result),
    ABSENT("nestingLevel"),
    ZERO("callchainId"),
    UINT("bytes", mr_part_os, bytes), /* ours */
    END,
};

static const struct mr_store_column thread_columns[] = {
    VALUE("nameId", FROM_NAME, mr_part_thread, name),
    ABSENT("priority"),
    VALUE("globalTid", FROM_TID, mr_part_thread, tid),
    END,
};

static const struct mr_store_column stream_columns[] = {
    UINT("streamId", mr_part_stream, stream),
    ZERO("hwId"),
    ZERO("vmId"),
    {"processId", INT_, FROM_PID, 1, 1}, /* offset 1: the bare pid */
    UINT("contextId", mr_part_stream, context),
    VALUE("priority", FROM_INT, mr_part_stream, priority),
    UINT("flag", mr_part_stream, flags),
    END,
};

/* Ours: the export's SAMPLING_CALLCHAINS, a view of it, has all frames of each stack anew. */
static const struct mr_store_column stack_columns[] = {
    {"id", "INTEGER NOT NULL PRIMARY KEY", FROM_TID, BYTES(mr_part_stack, id)},
    {"parentId", INT, FROM_TID_OR_NULL, BYTES(mr_part_stack, parent)},
    VALUE("functionId", FROM_NAME, mr_part_stack, function),
    VALUE("fileId", FROM_NAME, mr_part_stack, file),
    UINT("line", mr_part_stack, line),
    UINT("isNative", mr_part_stack, is_c),
    {"moduleId", INT, FROM_UINT_OR_NULL, BYTES(mr_part_stack, module)},
    {"buildId", INT, FROM_UINT_OR_NULL, BYTES(mr_part_stack, build_id)},
    {"address", INT, FROM_UINT_OR_NULL, BYTES(mr_part_stack, address)},
    END,
};

static const struct mr_store_column sample_columns[] = {
    {"id", "INTEGER PRIMARY KEY", FROM_NOTHING, 0, 0},
    {"start", INT_, FROM_START, 0, 0},
    ABSENT("cpu"),
    ABSENT("threadState"),
    VALUE("globalTid", FROM_TID, mr_part_sample, tid),
    ZERO("cpuCycles"),
    {"end", INT_, FROM_END, 0, 0}, /* these are ours */
    VALUE("stackId", FROM_TID, mr_part_sample, stack),
    UINT("samples", mr_part_sample, n),
    UINT("cpuTime", mr_part_sample, cpu_ns),
    END,
};

const struct mr_store_table mr_store_tables[] = {
    {"CUPTI_ACTIVITY_KIND_KERNEL", MR_PART_KERNEL, TIMES_DEVICE, kernel_columns, NULL},
    {"CUPTI_ACTIVITY_KIND_MEMCPY", MR_PART_COPY, TIMES_DEVICE, copy_columns, NULL},
    {"CUPTI_ACTIVITY_KIND_MEMSET", MR_PART_SET, TIMES_DEVICE, set_columns, NULL},
    {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", MR_PART_GRAPH, TIMES_DEVICE, graph_columns, NULL},
    {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", MR_PART_SYNC, TIMES_DEVICE, sync_columns, NULL},
    {"CUPTI_ACTIVITY_KIND_RUNTIME", MR_PART_API, TIMES_SPAN, api_columns, NULL},
    {"CUDA_GPU_MEMORY_USAGE_EVENTS", MR_PART_MEMORY, TIMES_POINT, memory_columns, NULL},
    {"PROFILER_OVERHEAD", MR_PART_OVERHEAD, TIMES_SPAN, overhead_columns, NULL},
    {"NVTX_EVENTS", MR_PART_RANGE, TIMES_OPEN, range_columns, FIRST_SELDOM},
    {"OSRT_API", MR_PART_OS, TIMES_SPAN, os_columns, NULL},
    {"ThreadNames", MR_PART_THREAD, TIMES_NONE, thread_columns, NULL},
    {"TARGET_INFO_CUDA_STREAM", MR_PART_STREAM, TIMES_NONE, stream_columns, NULL},
    {"MILLRACE_STACKS", MR_PART_STACK, TIMES_NONE, stack_columns, NULL},
    {"COMPOSITE_EVENTS", MR_PART_SAMPLE, TIMES_SPAN, sample_columns, NULL},
};
const uint32_t mr_store_n_tables = MR_COUNT(mr_store_tables);

const char *const mr_store_more_tables =
    "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);"
    "CREATE TABLE ANALYSIS_DETAILS (globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, "
    "startTime INTEGER NOT NULL,"
    " stopTime INTEGER NOT NULL);"
    "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime "
    "TEXT);"
    "CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, "
    "busLocation TEXT,"
    " isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, "
    "clockRate INTEGER,"
    " smCount INTEGER, pwGpuId INTEGER, uuid TEXT, luid INTEGER, chipName TEXT, cuDevice INTEGER, "
    "ctxswDevPath TEXT,"
    " ctrlDevPath TEXT, revision INTEGER, nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER,"
    " maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER, maxShmemPerBlockOptin INTEGER, "
    "maxShmemPerSm INTEGER,"
    " maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, asyncEngines INTEGER, maxWarpsPerSm "
    "INTEGER,"
    " maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER, maxBlockDimX INTEGER, maxBlockDimY "
    "INTEGER,"
    " maxBlockDimZ INTEGER, maxGridDimX INTEGER, maxGridDimY INTEGER, maxGridDimZ INTEGER, "
    "computeMajor INTEGER,"
    " computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER);"
    "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT "
    "NULL, uuid TEXT,"
    " numMultiprocessors INTEGER);"
    "CREATE TABLE TARGET_INFO_CUDA_CONTEXT_INFO (nullStreamId INTEGER NOT NULL, hwId INTEGER NOT "
    "NULL,"
    " vmId INTEGER NOT NULL, processId INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId "
    "INTEGER NOT NULL,"
    " parentContextId INTEGER, isGreenContext INTEGER);"
    "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT "
    "NOT NULL,"
    " nameEnum INTEGER NOT NULL, value TEXT NOT NULL);"
    "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, "
    "typeName TEXT NOT NULL,"
    " metricId INTEGER NOT NULL, metricName TEXT NOT NULL);"
    "CREATE TABLE GPU_METRICS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER NOT NULL,"
    " metricId INTEGER NOT NULL, value INTEGER NOT NULL);"
    "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL,"
    " source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER);"
    "CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);"
    "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);"
    "CREATE TABLE MILLRACE_META (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL);"
    "CREATE TABLE MILLRACE_PROCESSES (globalPid INTEGER NOT NULL PRIMARY KEY, pid INTEGER NOT NULL,"
    " ppid INTEGER NOT NULL, commandId INTEGER NOT NULL, executableId INTEGER NOT NULL, start "
    "INTEGER NOT NULL,"
    " \"end\" INTEGER NOT NULL, exited INTEGER NOT NULL, traced INTEGER NOT NULL);"
    "CREATE TABLE MILLRACE_NOTES (globalPid INTEGER NOT NULL, nameId INTEGER NOT NULL, textId "
    "INTEGER NOT NULL,"
    " value INTEGER NOT NULL);"
    "CREATE TABLE MILLRACE_COUNTERS (timestamp INTEGER NOT NULL, globalPid INTEGER NOT NULL, "
    "nameId INTEGER NOT NULL,"
    " value REAL NOT NULL);"
    /* for readers of the export: stacks of COMPOSITE_EVENTS whole, from the innermost frame on */
    "CREATE VIEW SAMPLING_CALLCHAINS AS WITH RECURSIVE up(id, stack, depth) AS ("
    "SELECT id, stackId, 0 FROM COMPOSITE_EVENTS UNION ALL SELECT up.id, s.parentId, depth + 1"
    " FROM up JOIN MILLRACE_STACKS s ON s.id = up.stack WHERE s.parentId < s.id)"
    " SELECT up.id, s.functionId AS symbol, coalesce(s.moduleId, s.fileId) AS module, NULL AS "
    "kernelMode, NULL AS "
    "thumbCode,"
    " NULL AS unresolved, NULL AS specialEntry, coalesce(s.address, s.line) AS originalIP, NULL AS "
    "unwindMethod,"
    " depth AS stackDepth FROM up JOIN MILLRACE_STACKS s ON s.id = up.stack;";

#define ENUM(name)                                                                                 \
    "CREATE TABLE ENUM_" name " (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
#define FIRST(name, id, symbol, label)                                                             \
    ENUM(name) "INSERT INTO ENUM_" name " VALUES (" #id ", '" symbol "', '" label "')"
#define NEXT(id, symbol, label) ", (" #id ", '" symbol "', '" label "')"
#define LAST                    ";"

const char *const mr_store_enums = FIRST(
    "CUDA_MEMCPY_OPER", 0, "CUDA_MEMCPY_KIND_UNKNOWN",
    "Unknown") NEXT(1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device") NEXT(2, "CUDA_MEMCPY_KIND_DTOH",
                                                                       "Device-to-Host")
    NEXT(3, "CUDA_MEMCPY_KIND_HTOA", "Host-to-Array") NEXT(
        4, "CUDA_MEMCPY_KIND_ATOH",
        "Array-to-Host") NEXT(5, "CUDA_MEMCPY_KIND_ATOA",
                              "Array-to-Array") NEXT(6, "CUDA_MEMCPY_KIND_ATOD", "Array-to-Device")
        NEXT(7, "CUDA_MEMCPY_KIND_DTOA", "Device-to-Array") NEXT(
            8, "CUDA_MEMCPY_KIND_DTOD",
            "Device-to-Device") NEXT(9, "CUDA_MEMCPY_KIND_HTOH",
                                     "Host-to-Host") NEXT(10, "CUDA_MEMCPY_KIND_PTOP",
                                                          "Peer-to-Peer")
            NEXT(11, "CUDA_MEMCPY_KIND_UVM_HTOD", "Unified Host-to-Device") NEXT(
                12,
                "CUDA_MEMCPY_KIND_UVM_DTOH",
                "Unified Device-to-Host") NEXT(13, "CUDA_MEMCPY_KIND_UVM_DTOD",
                                               "Unified Device-to-Device")
                LAST FIRST("CUDA_MEM_KIND", 0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable") NEXT(
                    1, "CUDA_MEMOPR_MEMORY_KIND_PINNED",
                    "Pinned") NEXT(2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE",
                                   "Device") NEXT(3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array")
                    NEXT(4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed") NEXT(
                        5, "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC",
                        "Device Static") NEXT(6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC",
                                              "Managed Static")
                        NEXT(7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", "Unknown") LAST FIRST(
                            "CUDA_DEV_MEM_EVENT_OPER",
                            0, "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION",
                            "Allocation") NEXT(1, "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION",
                                               "Deallocation")
                            LAST FIRST(
                                "CUDA_KERNEL_LAUNCH_TYPE",
                                0, "CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN",
                                "Unknown") NEXT(1, "CUDA_KERNEL_LAUNCH_TYPE_REGULAR", "Regular")
                                NEXT(2, "CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE",
                                     "Coop Single Device") NEXT(3,
                                                                "CUDA_KERNEL_LAUNCH_TYPE_"
                                                                "COOPERATIVE_MULTI_DEVICE",
                                                                "Coop Multi Device") LAST
                                    FIRST("CUPTI_SYNC_TYPE", 0,
                                          "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN",
                                          "Unknown") NEXT(1,
                                                          "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_"
                                                          "EVENT_SYNCHRONIZE",
                                                          "Event sync")
                                        NEXT(2,
                                             "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_"
                                             "STREAM_WAIT_EVENT",
                                             "Stream wait sync") NEXT(3,
                                                                      "CUPTI_ACTIVITY_"
                                                                      "SYNCHRONIZATION_TYPE_STREAM_"
                                                                      "SYNCHRONIZE",
                                                                      "Stream sync")
                                            NEXT(4,
                                                 "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_"
                                                 "SYNCHRONIZE",
                                                 "Context sync")
                                                LAST FIRST(
                                                    "CUPTI_STREAM_TYPE", 0,
                                                    "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_UNKNOWN",
                                                    "Unknown stream") NEXT(1,
                                                                           "CUPTI_ACTIVITY_STREAM_"
                                                                           "CREATE_FLAG_DEFAULT",
                                                                           "Default stream")
                                                    NEXT(
                                                        2,
                                                        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_"
                                                        "BLOCKING",
                                                        "Non-blocking stream") NEXT(3,
                                                                                    "CUPTI_"
                                                                                    "ACTIVITY_"
                                                                                    "STREAM_CREATE_"
                                                                                    "FLAG_NULL",
                                                                                    "Null stream")
                                                        LAST FIRST("NSYS_EVENT_TYPE", 33,
                                                                   "NvtxCategory", "NvtxCategory")
                                                            NEXT(34, "NvtxMark", "NvtxMark") NEXT(
                                                                59, "NvtxPushPopRange",
                                                                "NvtxPushPopRange")
                                                                NEXT(
                                                                    60, "NvtxStartEndRange",
                                                                    "NvtxStartEndRange") NEXT(75,
                                                                                              "Nvtx"
                                                                                              "Doma"
                                                                                              "inCr"
                                                                                              "eat"
                                                                                              "e",
                                                                                              "Nvtx"
                                                                                              "Doma"
                                                                                              "inCr"
                                                                                              "eat"
                                                                                              "e")
                                                                    LAST FIRST(
                                                                        "NSYS_EVENT_CLASS", 0,
                                                                        "TRACE_PROCESS_EVENT_CUDA_"
                                                                        "RUNTIME",
                                                                        "CUDA runtime")
                                                                        NEXT(1,
                                                                             "TRACE_PROCESS_EVENT_"
                                                                             "CUDA_DRIVER",
                                                                             "CUDA driver")
                                                                            NEXT(27,
                                                                                 "TRACE_PROCESS_"
                                                                                 "EVENT_OS_RUNTIME",
                                                                                 "OSRT runtime")
                                                                                LAST FIRST(
                                                                                    "DIAGNOSTIC_"
                                                                                    "SEVERITY_"
                                                                                    "LEVEL",
                                                                                    1,
                                                                                    "Information",
                                                                                    "Information")
                                                                                    NEXT(2,
                                                                                         "Warning",
                                                                                         "Warning")
                                                                                        NEXT(3,
                                                                                             "Erro"
                                                                                             "r",
                                                                                             "Erro"
                                                                                             "r")
                                                                                            LAST;

/* What our queries order by. For a join by correlations, which only a user's own query has, SQLite
 * makes an index as it runs: that takes less than one here, which every recording would pay for. */
const char *const mr_store_indexes[] = {
    "CREATE INDEX MILLRACE_KERNEL_START ON CUPTI_ACTIVITY_KIND_KERNEL (start)",
    "CREATE INDEX MILLRACE_MEMCPY_START ON CUPTI_ACTIVITY_KIND_MEMCPY (start)",
    "CREATE INDEX MILLRACE_MEMSET_START ON CUPTI_ACTIVITY_KIND_MEMSET (start)",
};
const uint32_t mr_store_n_indexes = MR_COUNT(mr_store_indexes);
