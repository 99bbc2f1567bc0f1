/* The driver that is not there: contexts, memory, counts and failures. Streams are in
 * fake_cuda_streams.c. */
#include "fake_cuda_private.h"

#include "kernels/batch/batch.h"
#include "kernels/optim/optim.h"
#include "kernels/sum/sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_DEVICES 8
#define MAX_NESTED  8
#define KNOWN       7 /* any of the real codes' names */

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
struct fake_cuda_report fake_count;
char fake_module[4];
static struct fake_range *ranges;
static uint64_t used[MAX_DEVICES];
static int retained[MAX_DEVICES];
/* Their addresses are the contexts: each GPU's primary one, and one that cuCtxCreate_v2 gives. */
static char context[2 * MAX_DEVICES];
static char fail_call[64];
static uint64_t fail_at;
static int fail_with, fail_sticky, sticky;
static _Thread_local void *current[MAX_NESTED];
static _Thread_local int depth;
static _Thread_local uint64_t thread_calls, thread_blocking;

static uint64_t env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void start(void)
{
    const char *call = getenv("FAKE_CUDA_FAIL_CALL");
    snprintf(fail_call, sizeof fail_call, "%s", call ? call : "");
    fail_at = env("FAKE_CUDA_FAIL_AT", 0);
    fail_with = (int)env("FAKE_CUDA_FAIL_WITH", 999);
    fail_sticky = (int)env("FAKE_CUDA_STICKY", 0);
}

void fake_misuse(const char *what)
{
    if (!fake_count.misuse++)
        snprintf(fake_count.first_misuse, sizeof fake_count.first_misuse, "%s", what);
}

int fake_begin(const char *call, enum fake_needs needs)
{
    pthread_mutex_lock(&fake_lock);
    fake_count.calls++;
    thread_calls++;
    int result = needs == FAKE_CONTEXT ? sticky : 0;
    if (fail_at && (!fail_call[0] || !strcmp(fail_call, call)) && --fail_at == 0) {
        result = fail_with;
        sticky = fail_sticky ? fail_with : 0;
    }
    if (!result && needs == FAKE_CONTEXT) {
        char *top = depth ? current[depth - 1] : NULL;
        if (top < context || top >= context + 2 * MAX_DEVICES ||
            !retained[(top - context) % MAX_DEVICES]) {
            fake_misuse(call);
            result = 201;
        }
    }
    return result;
}

int fake_end(int result)
{
    pthread_mutex_unlock(&fake_lock);
    return result;
}

void fake_blocks(void)
{
    thread_blocking++;
}

static int here(void)
{
    return depth ? (int)((char *)current[depth - 1] - context) % MAX_DEVICES : 0;
}

struct fake_range *fake_find(const void *ptr, uint64_t bytes, bool device)
{
    for (struct fake_range *r = ranges; r; r = r->next) {
        uint64_t at = (uintptr_t)ptr - (uintptr_t)r->ptr;
        if (r->device == device && (uintptr_t)ptr >= (uintptr_t)r->ptr && at <= r->bytes &&
            bytes <= r->bytes - at)
            return r;
    }
    return NULL;
}

int fake_gpu_of(const struct CUctx_st *ctx)
{
    const char *at = (const char *)ctx;
    bool known = at >= context && at < context + MAX_DEVICES && retained[at - context];
    return known ? (int)(at - context) : -1;
}

static int add_range(void *ptr, uint64_t bytes, bool device, uint64_t *count)
{
    struct fake_range *r = calloc(1, sizeof *r);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *r = (struct fake_range){ranges, ptr, bytes, device, here(), count};
    ranges = r;
    ++*count;
    return 0;
}

/* Forgets a range that starts at ptr. */
static int drop_range(const char *call, void *ptr, uint64_t *count, uint64_t *out_bytes)
{
    struct fake_range **at = &ranges;
    while (*at && ((*at)->ptr != ptr || (*at)->count != count))
        at = &(*at)->next;
    struct fake_range *r = *at;
    if (!r) {
        fake_misuse(call);
        return 1;
    }
    if (r->device)
        used[r->owner] -= r->bytes;
    *out_bytes = r->bytes;
    *at = r->next;
    free(r);
    --*count;
    return 0;
}

static int n_retained(void)
{
    int n = 0;
    for (int i = 0; i < MAX_DEVICES; i++)
        n += retained[i];
    return n;
}

FAKE_API void fake_cuda_report(struct fake_cuda_report *out)
{
    pthread_mutex_lock(&fake_lock);
    *out = fake_count;
    out->contexts = (uint64_t)n_retained();
    pthread_mutex_unlock(&fake_lock);
}

FAKE_API void fake_cuda_fail(const char *call, uint64_t at, int code, int is_sticky)
{
    pthread_mutex_lock(&fake_lock);
    snprintf(fail_call, sizeof fail_call, "%s", call ? call : "");
    fail_at = at;
    fail_with = code;
    fail_sticky = is_sticky;
    sticky = 0;
    pthread_mutex_unlock(&fake_lock);
}

FAKE_API void fake_cuda_thread(uint64_t *out_calls, uint64_t *out_blocking)
{
    *out_calls = thread_calls;
    *out_blocking = thread_blocking;
}

FAKE_API void *fake_cuda_current(void)
{
    return depth ? current[depth - 1] : NULL;
}

FAKE_API void fake_cuda_set_current(void *ptr)
{
    depth = ptr != NULL;
    current[0] = ptr;
}

int cuInit(unsigned flags)
{
    (void)flags;
    int result = fake_begin(__func__, FAKE_NOTHING);
    return fake_end(result ? result : env("FAKE_CUDA_DEVICES", 2) ? 0 : CUDA_ERROR_NO_DEVICE);
}

int cuDriverGetVersion(int *out)
{
    *out = (int)env("FAKE_CUDA_VERSION", 13000);
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

static const struct {
    int code;
    const char *name, *text;
} codes[KNOWN] = {
    {0, "CUDA_SUCCESS", "no error"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

int cuGetErrorName(int result, const char **out)
{
    for (int i = 0; i < KNOWN; i++)
        if (codes[i].code == result)
            return *out = codes[i].name, 0;
    return 1;
}

int cuGetErrorString(int result, const char **out)
{
    for (int i = 0; i < KNOWN; i++)
        if (codes[i].code == result)
            return *out = codes[i].text, 0;
    return 1;
}

int cuDeviceGetCount(int *out)
{
    *out = (int)env("FAKE_CUDA_DEVICES", 2);
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDeviceGet(int *out, int ordinal)
{
    *out = ordinal;
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDeviceGetName(char *out, int bytes, int device)
{
    snprintf(out, (size_t)bytes, "Fake GPU %d", device);
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDeviceGetAttribute(int *out, int attribute, int device)
{
    (void)device;
    *out = attribute == CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT         ? 3
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
                                                                       : 0;
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDeviceGetUuid(unsigned char out[16], int device)
{
    memset(out, 0xa0 + device, 16);
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDeviceGetUuid_v2(unsigned char out[16], int device)
{
    memset(out, 0xb0 + device, 16);
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDeviceGetPCIBusId(char *out, int bytes, int device)
{
    snprintf(out, (size_t)bytes, "FFFF:0%d:00.0", device);
    return fake_end(fake_begin(__func__, FAKE_NOTHING));
}

int cuDevicePrimaryCtxRetain(struct CUctx_st **out, int device)
{
    int result = fake_begin(__func__, FAKE_NOTHING);
    if (!result) {
        retained[device]++;
        *out = (struct CUctx_st *)(void *)&context[device];
    }
    return fake_end(result);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int result = fake_begin(__func__, FAKE_NOTHING);
    if (retained[device] == 0)
        fake_misuse("cuDevicePrimaryCtxRelease_v2 of a context that is not retained");
    else if (--retained[device] == 0 && n_retained() == 0 &&
             (fake_count.streams || fake_count.events || fake_count.modules))
        fake_misuse("cuDevicePrimaryCtxRelease_v2 with streams, events or modules alive");
    if (retained[device] == 0)
        fake_peers_forget(device);
    return fake_end(result);
}

/* A second context of a GPU, as long as the first one is retained. */
FAKE_API int cuCtxCreate_v2(struct CUctx_st **out, unsigned flags, int device);
int cuCtxCreate_v2(struct CUctx_st **out, unsigned flags, int device)
{
    (void)flags;
    current[depth++] = *out = (struct CUctx_st *)(void *)&context[MAX_DEVICES + device];
    return 0;
}

int cuCtxSynchronize(void)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    fake_blocks();
    if (!result)
        result = fake_break_captures();
    if (!result)
        fake_wait_all();
    return fake_end(result);
}

int cuCtxGetDevice(int *out)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    *out = here();
    return fake_end(result);
}

int cuCtxSetCurrent(struct CUctx_st *ctx);
FAKE_API int cuCtxSetCurrent(struct CUctx_st *ctx)
{
    fake_cuda_set_current(ctx);
    return 0;
}

int cuCtxGetCurrent(struct CUctx_st **out)
{
    int result = fake_begin(__func__, FAKE_NOTHING);
    *out = depth > 0 ? current[depth - 1] : NULL;
    return fake_end(result);
}

int cuCtxPushCurrent_v2(struct CUctx_st *ctx)
{
    int result = fake_begin(__func__, FAKE_NOTHING);
    if (!result && depth == MAX_NESTED) {
        fake_misuse("cuCtxPushCurrent_v2: pushed more often than popped");
        result = 1;
    }
    if (!result)
        current[depth++] = ctx;
    return fake_end(result);
}

int cuCtxPopCurrent_v2(struct CUctx_st **out)
{
    int result = fake_begin(__func__, FAKE_NOTHING);
    if (depth == 0)
        fake_misuse("cuCtxPopCurrent_v2 of nothing");
    else
        *out = current[--depth];
    return fake_end(result);
}

int cuMemGetInfo_v2(size_t *out_free, size_t *out_total)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    *out_total = env("FAKE_CUDA_MEMORY", 1ull << 30);
    *out_free = *out_total - used[here()];
    return fake_end(result);
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    void *ptr = NULL;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result)
        result = fake_unsafe();
    if (!result && used[here()] + bytes > env("FAKE_CUDA_MEMORY", 1ull << 30))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && posix_memalign(&ptr, 256, bytes) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        memset(ptr, 0xdb, bytes); /* nobody may count on zeros */
        result = add_range(ptr, bytes, true, &fake_count.device_blocks);
        used[here()] += bytes;
        *out = (uintptr_t)ptr;
    }
    return fake_end(result);
}

int cuMemFree_v2(uint64_t ptr)
{
    uint64_t bytes;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result)
        result = fake_unsafe();
    fake_blocks();
    fake_wait_all();
    if (drop_range(__func__, (void *)(uintptr_t)ptr, &fake_count.device_blocks, &bytes) == 0)
        free((void *)(uintptr_t)ptr);
    return fake_end(result);
}

int cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    void *ptr = NULL;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result)
        result = fake_unsafe();
    fake_blocks();
    if (!result && posix_memalign(&ptr, 4096, bytes) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        result = add_range(ptr, bytes, false, &fake_count.host_allocated);
        *out = ptr;
    }
    return fake_end(result);
}

int cuMemFreeHost(void *ptr)
{
    uint64_t bytes;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result)
        result = fake_unsafe();
    fake_blocks();
    fake_wait_all();
    if (drop_range(__func__, ptr, &fake_count.host_allocated, &bytes) == 0)
        free(ptr);
    return fake_end(result);
}

int cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
    (void)flags;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result)
        result = fake_unsafe();
    fake_blocks();
    if (!result && fake_find(ptr, 1, false))
        result = 712; /* already registered */
    if (!result)
        result = add_range(ptr, bytes, false, &fake_count.host_registered);
    return fake_end(result);
}

int cuMemHostUnregister(void *ptr)
{
    uint64_t bytes;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result)
        result = fake_unsafe();
    fake_blocks();
    fake_wait_all();
    if (drop_range(__func__, ptr, &fake_count.host_registered, &bytes) != 0 && !result)
        result = 713;
    return fake_end(result);
}

/* What the library's kernels are found in, by name. Their images are not read here. */
static const struct mr_kernel_module *const modules[] = {&mr_batch_module, &mr_optim_module,
                                                         &mr_sum_module};
#if MILLRACE_HAVE_CUDA_KERNELS
extern const unsigned char mr_cuda_batch_image[], mr_cuda_optim_image[], mr_cuda_sum_image[];
const unsigned char mr_cuda_batch_image[1], mr_cuda_optim_image[1], mr_cuda_sum_image[1];
#endif
static char kernel_module;

const struct mr_kernel *fake_kernel(bool (*is)(const struct mr_kernel *k, const void *user),
                                    const void *user)
{
    for (size_t m = 0; m < sizeof modules / sizeof modules[0]; m++)
        for (size_t i = 0; i < modules[m]->n_kernels; i++)
            if (is(&modules[m]->kernels[i], user))
                return &modules[m]->kernels[i];
    return NULL;
}

static bool has_name(const struct mr_kernel *k, const void *name)
{
    return !strcmp(k->name, name);
}

int cuModuleLoadData(struct CUmod_st **out, const void *image)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    bool kernels = magic == 0xba55ed50; /* a fatbin: it is the library's own */
    if (!result && !kernels && !strstr(image, ".entry mr_busy") && !strstr(image, ".entry own_sum"))
        result = 218;
    if (!result) {
        fake_count.modules++;
        *out = (struct CUmod_st *)(void *)(kernels ? &kernel_module : fake_module);
    }
    return fake_end(result);
}

int cuModuleUnload(struct CUmod_st *module)
{
    (void)module;
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (fake_count.modules == 0)
        fake_misuse(__func__);
    else
        fake_count.modules--;
    return fake_end(result);
}

int cuModuleGetFunction(struct CUfunc_st **out, struct CUmod_st *module, const char *name)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    static const char *const simple[] = {
        [FAKE_BUSY] = "mr_busy",
        [FAKE_WAIT] = "mr_wait",
        [FAKE_COPY] = "mr_copy",
        [FAKE_SUM] = "own_sum"}; /* the kernel of programs that play a user */
    const void *function = NULL;
    if ((void *)module == (void *)fake_module) {
        for (int i = FAKE_BUSY; i <= FAKE_SUM; i++)
            if (!strcmp(name, simple[i]))
                function = fake_module + i;
    } else if (!strncmp(name, "mr_", 3)) {
        function = fake_kernel(has_name, name + 3);
    }
    if (!result && !function)
        result = 500;
    if (!result)
        *out = (struct CUfunc_st *)(uintptr_t)function;
    return fake_end(result);
}
