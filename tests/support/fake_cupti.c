/*
 * A stand-in for NVIDIA's libcupti.so.13 and for the driver's part in it: it hands out records
 * through the real callbacks, laid out as the version says that it plays. The test programs say
 * what the "device" did by the fake_* functions.
 *
 * FAKE_CUPTI_VERSION   what cuptiGetVersion says; 130001
 * FAKE_CUPTI_REFUSE    the code that cuptiSubscribe returns; 0
 * FAKE_CUPTI_DROP      records that are dropped in the first buffer; 0
 */
#include "fake_cupti.h"
#include "recorder/cupti/cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT                       __attribute__((visibility("default")))

/* As CUPTI's header has them. */
#define X(name, optional, arguments) EXPORT int cupti##name arguments;
CUPTI_FUNCTIONS(X)
#undef X

static struct {
    pthread_mutex_t lock;
    cupti_callback *callback;
    cupti_request *request;
    cupti_complete *complete;
    uint64_t (*clock)(void);
    uint8_t *buffer;
    size_t bytes, used, dropped;
    bool enabled[64], runtime[2048], driver[2048], callbacks[3][2048], system_threads, zeroed;
    bool subscribed;
    uint32_t correlation;
    atomic_uint errors; /* things that CUPTI's rules forbid */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool in_callback;

static void lock_all(void)
{
    pthread_mutex_lock(&fake.lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&fake.lock);
}

/* A child of fork() uses it as well, whatever other threads did meanwhile. */
__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

static uint32_t version(void)
{
    const char *text = getenv("FAKE_CUPTI_VERSION");
    return text ? (uint32_t)strtoul(text, NULL, 10) : 130001;
}

/* sizeof of the real records, by version. */
static size_t record_size(uint32_t kind)
{
    bool v12_8 = version() >= 26, v13 = version() >= 130000, v13_1 = version() >= 130100;
    switch (kind) {
    case CUPTI_MEMCPY:
        return v12_8 ? 96 : 88;
    case CUPTI_MEMCPY2:
        return 96;
    case CUPTI_MEMSET:
        return 88;
    case CUPTI_CONCURRENT_KERNEL:
        return v13_1 ? 224 : v13 ? 216 : 208;
    case CUPTI_RUNTIME:
    case CUPTI_DRIVER:
        return 40;
    case CUPTI_SYNCHRONIZATION:
        return v12_8 ? 56 : 40;
    case CUPTI_MEMORY2:
        return v13 ? 128 : 120;
    case CUPTI_OVERHEAD:
        return v13 ? 56 : v12_8 ? 48 : 40;
    case CUPTI_DEVICE:
        return 184;
    case CUPTI_CONTEXT:
        return v13 ? 32 : v12_8 ? 24 : 16;
    case CUPTI_STREAM:
        return 24;
    case CUPTI_GRAPH_TRACE:
        return 56;
    default:
        return 0;
    }
}

/* Appends a record whose first bytes these are; what the recorder should not look at is rubbish. */
static void emit(uint32_t kind, const void *record, size_t known)
{
    size_t bytes = record_size(kind);
    uint8_t *full = NULL;
    size_t full_bytes = 0, full_used = 0;
    pthread_mutex_lock(&fake.lock);
    if (fake.buffer && fake.used + bytes > fake.bytes) {
        full = fake.buffer;
        full_bytes = fake.bytes;
        full_used = fake.used;
        fake.buffer = NULL;
    }
    if (!fake.buffer && fake.request) {
        size_t max = 0;
        fake.request(&fake.buffer, &fake.bytes, &max);
        fake.used = 0;
        for (size_t i = 0; fake.buffer && fake.zeroed && i < fake.bytes; i += 512)
            fake.errors += fake.buffer[i] != 0;
    }
    if (fake.buffer) {
        memset(fake.buffer + fake.used, 0xee, bytes);
        memcpy(fake.buffer + fake.used, record, known < bytes ? known : bytes);
        fake.used += bytes;
    } else {
        fake.dropped++;
    }
    pthread_mutex_unlock(&fake.lock);
    if (full)
        fake.complete(NULL, 0, full, full_bytes, full_used);
}

/* The interface. */

EXPORT int cuptiGetVersion(uint32_t *out)
{
    *out = version();
    return 0;
}

EXPORT int cuptiSubscribe(void **out, cupti_callback *callback, void *user)
{
    const char *refuse = getenv("FAKE_CUPTI_REFUSE");
    int rc = refuse ? atoi(refuse) : 0;
    (void)user;
    if (rc)
        return rc;
    fake.callback = callback;
    fake.subscribed = true;
    *out = &fake;
    return 0;
}

EXPORT int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t cbid)
{
    if (subscriber != &fake || domain > 2 || cbid >= 2048)
        return 1;
    fake.callbacks[domain][cbid] = on;
    return 0;
}

static const struct {
    uint32_t domain, cbid;
    const char *name;
} names[] = {{CUPTI_DOMAIN_RUNTIME, FAKE_MEMCPY_ASYNC, "cudaMemcpyAsync_v3020"},
             {CUPTI_DOMAIN_RUNTIME, FAKE_GET_DEVICE, "cudaGetDevice_v3020"},
             {CUPTI_DOMAIN_RUNTIME, FAKE_STREAM_SYNCHRONIZE, "cudaStreamSynchronize_v3020"},
             {CUPTI_DOMAIN_RUNTIME, FAKE_LAUNCH, "cudaLaunchKernel_v7000"},
             {CUPTI_DOMAIN_RUNTIME, CUPTI_RUNTIME_PROFILER_START, "cudaProfilerStart_v4000"},
             {CUPTI_DOMAIN_RUNTIME, CUPTI_RUNTIME_PROFILER_STOP, "cudaProfilerStop_v4000"},
             {CUPTI_DOMAIN_DRIVER, FAKE_CU_LAUNCH, "cuLaunchKernel"},
             {CUPTI_DOMAIN_DRIVER, FAKE_CU_MEMCPY, "cuMemcpyHtoDAsync_v2"}};

EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **out)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].domain == domain && names[i].cbid == cbid) {
            *out = names[i].name;
            return 0;
        }
    return 1;
}

EXPORT int cuptiGetResultString(int rc, const char **out)
{
    *out = rc == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "an error of the fake";
    return 0;
}

EXPORT int cuptiActivityEnable(uint32_t kind)
{
    const char *refused = getenv("FAKE_CUPTI_NO_KIND");
    if (kind >= 64 || (refused && (uint32_t)atoi(refused) == kind))
        return 21;
    fake.errors += !fake.subscribed || !fake.clock || !fake.system_threads;
    fake.enabled[kind] = true;
    return 0;
}

EXPORT int cuptiActivityDisable(uint32_t kind)
{
    if (kind < 64)
        fake.enabled[kind] = false;
    return 0;
}

EXPORT int cuptiActivityRegisterCallbacks(cupti_request *request, cupti_complete *complete)
{
    const char *drop = getenv("FAKE_CUPTI_DROP");
    fake.request = request;
    fake.complete = complete;
    fake.dropped = drop ? strtoul(drop, NULL, 10) : 0;
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *at = *record ? (uint8_t *)*record + record_size(*(uint32_t *)*record) : buffer;
    if (at >= buffer + valid)
        return CUPTI_MAX_LIMIT_REACHED;
    *record = at;
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out)
{
    (void)context, (void)stream;
    pthread_mutex_lock(&fake.lock);
    *out = fake.dropped;
    fake.dropped = 0;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    pthread_mutex_lock(&fake.lock);
    uint8_t *full = fake.buffer;
    size_t bytes = fake.bytes, used = fake.used;
    fake.buffer = NULL;
    fake.errors += in_callback;
    pthread_mutex_unlock(&fake.lock);
    if (full)
        fake.complete(NULL, 0, full, bytes, used);
    return 0;
}

EXPORT int cuptiActivitySetAttribute(uint32_t attribute, size_t *bytes, void *value)
{
    if (attribute == CUPTI_ATTR_ZEROED_OUT_BUFFER)
        fake.zeroed = *bytes == 1 && *(uint8_t *)value == 1;
    return 0;
}

EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
    fake.clock = clock;
    return 0;
}

EXPORT int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
    if (cbid < 2048 && !(on && in_callback)) /* as libcupti 13.0 does */
        fake.runtime[cbid] = on;
    if (cbid < 2048 && !on)
        fake.callbacks[2][cbid] = false;
    return 0;
}

EXPORT int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
    if (cbid < 2048 && !(on && in_callback))
        fake.driver[cbid] = on;
    if (cbid < 2048 && !on)
        fake.callbacks[1][cbid] = false;
    return 0;
}

EXPORT int cuptiActivityEnableAllSyncRecords(uint8_t on)
{
    (void)on;
    return 0;
}

EXPORT int cuptiSetThreadIdType(uint32_t type)
{
    fake.system_threads = type == CUPTI_THREAD_ID_SYSTEM;
    return 0;
}

/* What the test programs call, in place of CUDA. */

EXPORT uint32_t fake_call(int driver, uint32_t cbid, uint32_t correlation)
{
    uint32_t domain = driver ? CUPTI_DOMAIN_DRIVER : CUPTI_DOMAIN_RUNTIME;
    struct cupti_callback_data data = {CUPTI_SITE_ENTER};
    bool listened = fake.callback && fake.callbacks[domain][cbid];
    if (listened) {
        in_callback = true;
        fake.callback(NULL, domain, cbid, &data);
    }
    uint64_t now = fake.clock ? fake.clock() : 0;
    if (!correlation)
        correlation = __atomic_add_fetch(&fake.correlation, 1, __ATOMIC_RELAXED);
    struct cupti_api api = {.kind = driver ? CUPTI_DRIVER : CUPTI_RUNTIME,
                            .cbid = cbid,
                            .start = driver ? now : now - 1000000000,
                            .end = driver ? now + 50 : now + 100,
                            .thread = (uint32_t)syscall(SYS_gettid),
                            .correlation = correlation};
    if (fake.enabled[api.kind] || (driver ? fake.driver : fake.runtime)[cbid])
        emit(api.kind, &api, sizeof api);
    if (listened) {
        data.site = CUPTI_SITE_EXIT;
        fake.callback(NULL, domain, cbid, &data);
        in_callback = false;
    }
    return correlation;
}

EXPORT void fake_kernel(uint32_t correlation, const char *name, int lost)
{
    uint64_t now = fake.clock ? fake.clock() : 0;
    struct cupti_kernel kernel = {.kind = CUPTI_CONCURRENT_KERNEL,
                                  .registers = 32,
                                  .start = lost ? 0 : now,
                                  .end = lost ? 0 : now + 1000,
                                  .context = 1,
                                  .stream = 7,
                                  .grid = {10, 2, 1},
                                  .block = {256, 1, 1},
                                  .dynamic_shared = 1024,
                                  .correlation = correlation,
                                  .name = name,
                                  .graph_node = 77,
                                  .graph = 5};
    if (fake.enabled[CUPTI_CONCURRENT_KERNEL])
        emit(kernel.kind, &kernel, sizeof kernel);
}

EXPORT void fake_memcpy(uint32_t correlation, uint64_t bytes, uint8_t src_kind)
{
    uint64_t now = fake.clock ? fake.clock() : 0;
    struct cupti_memcpy copy = {.kind = CUPTI_MEMCPY,
                                .copy_kind = 1,
                                .src_kind = src_kind,
                                .dst_kind = 3,
                                .bytes = bytes,
                                .start = now,
                                .end = now + 500,
                                .context = 1,
                                .stream = 13,
                                .correlation = correlation,
                                .copy_count = 3};
    if (fake.enabled[CUPTI_MEMCPY])
        emit(copy.kind, &copy, sizeof copy);
}

EXPORT void fake_others(uint32_t correlation)
{
    uint64_t now = fake.clock ? fake.clock() : 0;
    struct cupti_memset set = {.kind = CUPTI_MEMSET,
                               .value = 5,
                               .bytes = 4096,
                               .start = now,
                               .end = now + 10,
                               .correlation = correlation,
                               .memory_kind = 3};
    struct cupti_memcpy_peer peer = {.kind = CUPTI_MEMCPY2,
                                     .copy_kind = 10,
                                     .bytes = 99,
                                     .start = now,
                                     .end = now + 10,
                                     .src_device = 1,
                                     .dst_device = 2,
                                     .correlation = correlation};
    struct cupti_sync sync = {.kind = CUPTI_SYNCHRONIZATION,
                              .type = 3,
                              .start = now,
                              .end = now + 10,
                              .correlation = correlation,
                              .stream = 7};
    struct cupti_memory memory = {.kind = CUPTI_MEMORY2,
                                  .operation = 1,
                                  .memory_kind = 3,
                                  .correlation = correlation,
                                  .address = 0x1000,
                                  .bytes = 512,
                                  .timestamp = now};
    struct cupti_overhead overhead = {.kind = CUPTI_OVERHEAD,
                                      .overhead_kind = 1 << 16,
                                      .object_kind = CUPTI_OBJECT_THREAD,
                                      .object = {1, 4242, 0},
                                      .start = now,
                                      .end = now + 10};
    struct cupti_device device = {.kind = CUPTI_DEVICE,
                                  .memory_bytes = 1ull << 37,
                                  .memory_bandwidth = 4000000,
                                  .n_sms = 132,
                                  .n_copy_engines = 3,
                                  .major = 9,
                                  .name = "Fake H200"};
    struct cupti_context context = {
        .kind = CUPTI_CONTEXT, .context = 1, .null_stream = 7, .parent = 9, .is_green = 1};
    struct cupti_stream stream = {.kind = CUPTI_STREAM, .context = 1, .stream = 13, .flag = 2};
    struct cupti_graph graph = {
        .kind = CUPTI_GRAPH_TRACE, .correlation = correlation, .start = now, .end = now + 10};
    const struct {
        uint32_t kind;
        const void *record;
        size_t bytes;
    } all[] = {{CUPTI_MEMSET, &set, sizeof set},
               {CUPTI_MEMCPY2, &peer, sizeof peer},
               {CUPTI_SYNCHRONIZATION, &sync, sizeof sync},
               {CUPTI_MEMORY2, &memory, sizeof memory},
               {CUPTI_OVERHEAD, &overhead, sizeof overhead},
               {CUPTI_DEVICE, &device, sizeof device},
               {CUPTI_CONTEXT, &context, sizeof context},
               {CUPTI_STREAM, &stream, sizeof stream},
               {CUPTI_GRAPH_TRACE, &graph, sizeof graph}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (fake.enabled[all[i].kind])
            emit(all[i].kind, all[i].record, all[i].bytes);
}

EXPORT uint32_t fake_errors(void)
{
    return fake.errors;
}
