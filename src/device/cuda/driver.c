/* Finding NVIDIA's driver, and its errors in words. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct mr_cuda_driver driver;
static char why_not[512]; /* "": usable */
static atomic_bool forked;

static const char forked_text[] =
    "CUDA was initialised before this process was forked, and a GPU cannot be used in such a "
    "child: fork before the "
    "first use of a GPU, or start the child as a new process (in Python: multiprocessing's "
    "\"spawn\")";

static void in_child(void)
{
    atomic_store(&forked, true);
}

bool mr_cuda_is_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

int mr_cuda_forked_error(const char *device)
{
    return mr_error_set(MR_EDEVICE, "%s: %s", device, forked_text);
}

static bool find_symbols(void *library)
{
    const char *lacks = NULL;
    /* What POSIX asks for: the two kinds of pointers have the same size. */
#define X(symbol, arguments)                                                                       \
    *(void **)(void *)&driver.symbol = dlsym(library, #symbol);                                    \
    if (!driver.symbol && !lacks)                                                                  \
        lacks = #symbol;
    CUDA_REQUIRED(X)
#undef X
#define X(symbol, arguments) *(void **)(void *)&driver.symbol = dlsym(library, #symbol);
    CUDA_OPTIONAL(X)
#undef X
    if (lacks)
        snprintf(why_not, sizeof why_not,
                 "libcuda.so.1 has no %s: NVIDIA's driver is too old; install one that serves CUDA "
                 "%d.%d or later",
                 lacks, CUDA_OLDEST_API / 1000, CUDA_OLDEST_API % 1000 / 10);
    return !lacks;
}

/* Before cuInit, which may take a second. */
static bool check_version(void)
{
    char text[160];
    int result = driver.cuDriverGetVersion(&driver.version);
    if (result != CUDA_SUCCESS) {
        mr_cuda_result_text(&driver, result, text, sizeof text);
        snprintf(why_not, sizeof why_not, "cuDriverGetVersion: %s", text);
        return false;
    }
    if (driver.version < CUDA_OLDEST_API)
        snprintf(why_not, sizeof why_not,
                 "NVIDIA's driver serves CUDA %d.%d and is too old; install one that serves CUDA "
                 "%d.%d or later",
                 driver.version / 1000, driver.version % 1000 / 10, CUDA_OLDEST_API / 1000,
                 CUDA_OLDEST_API % 1000 / 10);
    return driver.version >= CUDA_OLDEST_API;
}

static void explain_init(int result)
{
    char text[160];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *advice = "";
    mr_cuda_result_text(&driver, result, text, sizeof text);
    if (result == CUDA_ERROR_NOT_INITIALIZED)
        advice = "; was this process forked after CUDA was initialised? Fork before, or start a "
                 "new process";
    else if (result == CUDA_ERROR_NO_DEVICE)
        advice = "; in a container, give it the GPUs (docker run --gpus all)";
    snprintf(why_not, sizeof why_not, "cuInit: %s%s%s%.64s%s", text, advice,
             visible ? "; CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
             visible ? "\"" : "");
}

static void *prepare_nvml(void *unused)
{
    mr_nvml_prepare();
    return unused;
}

/* The library is never closed: the driver has threads and handlers of its own. */
static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *text = dlerror();
        snprintf(why_not, sizeof why_not,
                 "NVIDIA's driver was not found (%.200s): install it, or in a container give it "
                 "the GPUs (docker run "
                 "--gpus all)",
                 text ? text : "libcuda.so.1");
        return;
    }
    if (!find_symbols(library) || !check_version())
        return;
    pthread_t nvml; /* takes a tenth of cuInit()'s time, and is needed next */
    bool beside = mr_thread_start(&nvml, "mr-nvml", prepare_nvml, NULL) == 0;
    int result = driver.cuInit(0);
    if (beside)
        pthread_join(nvml, NULL);
    if (result != CUDA_SUCCESS) {
        explain_init(result);
        return;
    }
    pthread_atfork(NULL, NULL, in_child);
    result = driver.cuDeviceGetCount(&driver.n_devices);
    if (result != CUDA_SUCCESS || driver.n_devices < 1)
        explain_init(result != CUDA_SUCCESS ? result : CUDA_ERROR_NO_DEVICE);
}

const char *mr_cuda_driver_why_not(void)
{
    pthread_once(&once, load);
    if (mr_cuda_is_forked())
        return forked_text;
    return why_not[0] ? why_not : NULL;
}

int mr_cuda_driver_get(const struct mr_cuda_driver **out)
{
    const char *why = mr_cuda_driver_why_not();
    if (why)
        return mr_error_set(mr_cuda_is_forked() ? MR_EDEVICE : MR_ENODEVICE,
                            "device cuda: not usable here: %s", why);
    *out = &driver;
    return 0;
}

void mr_cuda_result_text(const struct mr_cuda_driver *cu, int result, char *out, size_t bytes)
{
    const char *name = NULL, *text = NULL;
    if (cu->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "an error that the driver does not name";
    if (cu->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        snprintf(out, bytes, "%s (%d)", name, result);
    else
        snprintf(out, bytes, "%s: %s", name, text);
}

static bool spoils_context(int result)
{
    return (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED) ||
           result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT ||
           result == CUDA_ERROR_ASSERT || result == CUDA_ERROR_ECC_UNCORRECTABLE ||
           result == CUDA_ERROR_NVLINK_UNCORRECTABLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

int mr_cuda_error(const struct mr_cuda_driver *cu, int result, const char *device, const char *fmt,
                  ...)
{
    char call[256], text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(call, sizeof call, fmt, args);
    va_end(args);
    mr_cuda_result_text(cu, result, text, sizeof text);
    const char *advice =
        spoils_context(result)
            ? "; some earlier work on this GPU failed, a kernel of this process perhaps, and after "
              "that every call "
              "fails: end the process and find the culprit (compute-sanitizer does)"
            : "";
    return mr_error_set(result == CUDA_ERROR_OUT_OF_MEMORY ? MR_EDEVICEMEM : MR_EDEVICE,
                        "%s on %s: %s%s", call, device, text, advice);
}
