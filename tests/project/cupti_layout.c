/* Our declarations of CUPTI's records against the real ones; compiled where the toolkit is, and
 * that is the whole test. */
#include "recorder/cupti/cupti.h"

#include <cupti.h>
#include <stddef.h>

#define SAME(ours, member, real, theirs)                                                           \
    _Static_assert(offsetof(struct ours, member) == offsetof(real, theirs), #real "." #theirs);    \
    _Static_assert(sizeof(((struct ours *)0)->member) == sizeof(((real *)0)->theirs),              \
                   #real "." #theirs)

#if CUPTI_API_VERSION >= 130100
typedef CUpti_ActivityKernel11 newest_kernel;
#elif CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 newest_kernel;
#else
typedef CUpti_ActivityKernel9 newest_kernel;
#endif

#define KERNEL(real)                                                                               \
    SAME(cupti_kernel, kind, real, kind);                                                          \
    SAME(cupti_kernel, registers, real, registersPerThread);                                       \
    SAME(cupti_kernel, start, real, start);                                                        \
    SAME(cupti_kernel, end, real, end);                                                            \
    SAME(cupti_kernel, device, real, deviceId);                                                    \
    SAME(cupti_kernel, context, real, contextId);                                                  \
    SAME(cupti_kernel, stream, real, streamId);                                                    \
    SAME(cupti_kernel, grid[0], real, gridX);                                                      \
    SAME(cupti_kernel, grid[2], real, gridZ);                                                      \
    SAME(cupti_kernel, block[0], real, blockX);                                                    \
    SAME(cupti_kernel, static_shared, real, staticSharedMemory);                                   \
    SAME(cupti_kernel, dynamic_shared, real, dynamicSharedMemory);                                 \
    SAME(cupti_kernel, local_bytes, real, localMemoryPerThread);                                   \
    SAME(cupti_kernel, correlation, real, correlationId);                                          \
    SAME(cupti_kernel, name, real, name);                                                          \
    SAME(cupti_kernel, graph_node, real, graphNodeId);                                             \
    SAME(cupti_kernel, graph, real, graphId)
KERNEL(CUpti_ActivityKernel9);
KERNEL(newest_kernel);

#define MEMCPY(real)                                                                               \
    SAME(cupti_memcpy, copy_kind, real, copyKind);                                                 \
    SAME(cupti_memcpy, src_kind, real, srcKind);                                                   \
    SAME(cupti_memcpy, dst_kind, real, dstKind);                                                   \
    SAME(cupti_memcpy, flags, real, flags);                                                        \
    SAME(cupti_memcpy, bytes, real, bytes);                                                        \
    SAME(cupti_memcpy, start, real, start);                                                        \
    SAME(cupti_memcpy, end, real, end);                                                            \
    SAME(cupti_memcpy, device, real, deviceId);                                                    \
    SAME(cupti_memcpy, context, real, contextId);                                                  \
    SAME(cupti_memcpy, stream, real, streamId);                                                    \
    SAME(cupti_memcpy, correlation, real, correlationId);                                          \
    SAME(cupti_memcpy, graph_node, real, graphNodeId);                                             \
    SAME(cupti_memcpy, graph, real, graphId)
MEMCPY(CUpti_ActivityMemcpy5);
#if CUPTI_API_VERSION >= 26
MEMCPY(CUpti_ActivityMemcpy6);
SAME(cupti_memcpy, copy_count, CUpti_ActivityMemcpy6, copyCount);
_Static_assert(sizeof(struct cupti_memcpy) == sizeof(CUpti_ActivityMemcpy6), "Memcpy6");
#endif

SAME(cupti_memcpy_peer, copy_kind, CUpti_ActivityMemcpyPtoP4, copyKind);
SAME(cupti_memcpy_peer, bytes, CUpti_ActivityMemcpyPtoP4, bytes);
SAME(cupti_memcpy_peer, end, CUpti_ActivityMemcpyPtoP4, end);
SAME(cupti_memcpy_peer, stream, CUpti_ActivityMemcpyPtoP4, streamId);
SAME(cupti_memcpy_peer, src_device, CUpti_ActivityMemcpyPtoP4, srcDeviceId);
SAME(cupti_memcpy_peer, dst_device, CUpti_ActivityMemcpyPtoP4, dstDeviceId);
SAME(cupti_memcpy_peer, correlation, CUpti_ActivityMemcpyPtoP4, correlationId);
SAME(cupti_memcpy_peer, graph_node, CUpti_ActivityMemcpyPtoP4, graphNodeId);
SAME(cupti_memcpy_peer, graph, CUpti_ActivityMemcpyPtoP4, graphId);

SAME(cupti_memset, value, CUpti_ActivityMemset4, value);
SAME(cupti_memset, bytes, CUpti_ActivityMemset4, bytes);
SAME(cupti_memset, end, CUpti_ActivityMemset4, end);
SAME(cupti_memset, correlation, CUpti_ActivityMemset4, correlationId);
SAME(cupti_memset, flags, CUpti_ActivityMemset4, flags);
SAME(cupti_memset, memory_kind, CUpti_ActivityMemset4, memoryKind);
SAME(cupti_memset, graph_node, CUpti_ActivityMemset4, graphNodeId);
SAME(cupti_memset, graph, CUpti_ActivityMemset4, graphId);

_Static_assert(sizeof(struct cupti_api) == sizeof(CUpti_ActivityAPI), "API");
SAME(cupti_api, cbid, CUpti_ActivityAPI, cbid);
SAME(cupti_api, start, CUpti_ActivityAPI, start);
SAME(cupti_api, process, CUpti_ActivityAPI, processId);
SAME(cupti_api, thread, CUpti_ActivityAPI, threadId);
SAME(cupti_api, correlation, CUpti_ActivityAPI, correlationId);
SAME(cupti_api, result, CUpti_ActivityAPI, returnValue);

#define SYNC(real)                                                                                 \
    SAME(cupti_sync, type, real, type);                                                            \
    SAME(cupti_sync, end, real, end);                                                              \
    SAME(cupti_sync, correlation, real, correlationId);                                            \
    SAME(cupti_sync, context, real, contextId);                                                    \
    SAME(cupti_sync, stream, real, streamId);                                                      \
    SAME(cupti_sync, event, real, cudaEventId)
SYNC(CUpti_ActivitySynchronization);
#if CUPTI_API_VERSION >= 26
SYNC(CUpti_ActivitySynchronization2);
#endif

SAME(cupti_memory, operation, CUpti_ActivityMemory3, memoryOperationType);
SAME(cupti_memory, memory_kind, CUpti_ActivityMemory3, memoryKind);
SAME(cupti_memory, correlation, CUpti_ActivityMemory3, correlationId);
SAME(cupti_memory, address, CUpti_ActivityMemory3, address);
SAME(cupti_memory, bytes, CUpti_ActivityMemory3, bytes);
SAME(cupti_memory, timestamp, CUpti_ActivityMemory3, timestamp);
SAME(cupti_memory, device, CUpti_ActivityMemory3, deviceId);
SAME(cupti_memory, stream, CUpti_ActivityMemory3, streamId);

SAME(cupti_overhead, overhead_kind, CUpti_ActivityOverhead, overheadKind);
SAME(cupti_overhead, object_kind, CUpti_ActivityOverhead, objectKind);
SAME(cupti_overhead, object, CUpti_ActivityOverhead, objectId);
SAME(cupti_overhead, start, CUpti_ActivityOverhead, start);

SAME(cupti_device, memory_bandwidth, CUpti_ActivityDevice4, globalMemoryBandwidth);
SAME(cupti_device, memory_bytes, CUpti_ActivityDevice4, globalMemorySize);
SAME(cupti_device, core_clock_khz, CUpti_ActivityDevice4, coreClockRate);
SAME(cupti_device, n_copy_engines, CUpti_ActivityDevice4, numMemcpyEngines);
SAME(cupti_device, n_sms, CUpti_ActivityDevice4, numMultiprocessors);
SAME(cupti_device, major, CUpti_ActivityDevice4, computeCapabilityMajor);
SAME(cupti_device, minor, CUpti_ActivityDevice4, computeCapabilityMinor);
SAME(cupti_device, id, CUpti_ActivityDevice4, id);
SAME(cupti_device, uuid, CUpti_ActivityDevice4, uuid);
SAME(cupti_device, name, CUpti_ActivityDevice4, name);

SAME(cupti_context, context, CUpti_ActivityContext, contextId);
SAME(cupti_context, device, CUpti_ActivityContext, deviceId);
SAME(cupti_context, null_stream, CUpti_ActivityContext, nullStreamId);
#if CUPTI_API_VERSION >= 26
SAME(cupti_context, parent, CUpti_ActivityContext2, parentContextId);
SAME(cupti_context, is_green, CUpti_ActivityContext2, isGreenContext);
#endif

_Static_assert(sizeof(struct cupti_stream) == sizeof(CUpti_ActivityStream), "Stream");
SAME(cupti_stream, flag, CUpti_ActivityStream, flag);
SAME(cupti_stream, priority, CUpti_ActivityStream, priority);

SAME(cupti_graph, correlation, CUpti_ActivityGraphTrace2, correlationId);
SAME(cupti_graph, end, CUpti_ActivityGraphTrace2, end);
SAME(cupti_graph, device, CUpti_ActivityGraphTrace2, deviceId);
SAME(cupti_graph, graph, CUpti_ActivityGraphTrace2, graphId);
SAME(cupti_graph, stream, CUpti_ActivityGraphTrace2, streamId);

#define EQUAL(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)
EQUAL(CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
EQUAL(CUPTI_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
EQUAL(CUPTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
EQUAL(CUPTI_DOMAIN_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API);
EQUAL(CUPTI_RUNTIME_PROFILER_START, CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000);
EQUAL(CUPTI_RUNTIME_PROFILER_STOP, CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000);
EQUAL(CUPTI_DRIVER_PROFILER_START, CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
EQUAL(CUPTI_DRIVER_PROFILER_STOP, CUPTI_DRIVER_TRACE_CBID_cuProfilerStop);
EQUAL(CUPTI_ATTR_ZEROED_OUT_BUFFER, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
EQUAL(CUPTI_ATTR_DEVICE_BUFFER_PRE_ALLOCATE, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE);
EQUAL(CUPTI_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
EQUAL(CUPTI_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMCPY2);
EQUAL(CUPTI_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
EQUAL(CUPTI_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY2);
EQUAL(CUPTI_GRAPH_TRACE, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
EQUAL(CUPTI_STREAM, CUPTI_ACTIVITY_KIND_STREAM);
EQUAL(CUPTI_OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD);
EQUAL(CUPTI_OBJECT_THREAD, CUPTI_ACTIVITY_OBJECT_THREAD);
