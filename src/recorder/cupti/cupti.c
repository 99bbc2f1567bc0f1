/*
 * The CUPTI injection: the driver calls InitializeInjection() while it initialises. Order matters:
 * subscribe, thread numbers and clock, attributes, kinds. One thread of ours flushes, converts and
 * gives buffers back; nothing flushes inside a callback.
 */
#include "recorder/pm/pm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SYNC_NS     3000000000ull  /* the device is waited for at the end at most so long */
#define END_NS      10000000000ull /* and all of the end */
/* what _exit() waits: it may come in the middle of a callback or a signal handler */
#define LEAVE_NS    1000000000ull
#define MAX_REPORTS 8 /* kinds that were refused */

struct record_cupti cupti;

enum { RUNNING, ENDING, ENDED };
static atomic_uint wake; /* counts up when the thread has reason to look */
static atomic_uint stage = RUNNING;
static atomic_bool flush_soon;
static unsigned generation;
static void *ending_context; /* a CUcontext that the ending thread had */
static bool have_thread;

static uint64_t timestamp(void)
{
    return record_now();
}

static const char *text_of(int rc)
{
    const char *text = NULL;
    if (cupti.GetResultString && cupti.GetResultString(rc, &text) == CUPTI_OK && text)
        return text;
    return "?";
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    record_cupti_complete(context, stream, buffer, bytes, valid);
    if (have_thread)
        record_wake(&wake);
}

/* Kinds. */

static const struct {
    enum cupti_kind kind;
    const char *name;
    bool light, always; /* always: what names devices and streams, outside of capture ranges too */
} kinds[] = {
    {CUPTI_DEVICE, "devices", true, true},
    {CUPTI_CONTEXT, "contexts", true, true},
    {CUPTI_STREAM, "streams", true, true},
    {CUPTI_MEMCPY, "copies", true, false},
    {CUPTI_MEMCPY2, "copies between devices", true, false},
    {CUPTI_MEMSET, "memory sets", true, false},
    {CUPTI_CONCURRENT_KERNEL, "kernels", false, false},
    {CUPTI_MEMORY2, "allocations", false, false},
    {CUPTI_OVERHEAD, "overhead", false, false},
};

static void enable(enum cupti_kind kind, const char *name, bool on)
{
    static atomic_int n_reported;
    char text[256];
    int rc = (on ? cupti.ActivityEnable : cupti.ActivityDisable)(kind);
    if (rc == CUPTI_OK || !on || atomic_fetch_add(&n_reported, 1) >= MAX_REPORTS)
        return;
    snprintf(text, sizeof text, "CUPTI refuses to record %s: %s (%d)", name, text_of(rc), rc);
    record_note("warning", rc, text);
}

static void capture(bool on)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!kinds[i].always && (kinds[i].light || !cupti.light))
            enable(kinds[i].kind, kinds[i].name, on);
    if (cupti.whole_graphs && !cupti.light)
        enable(CUPTI_GRAPH_TRACE, "graphs", on);
    /* The synchronizing calls tell of waiting, too, and these records make a launch-bound loop a
     * sixth slower (H200, CUDA 13.0). */
    if (cupti.all_calls)
        enable(CUPTI_SYNCHRONIZATION, "synchronisation", on);
    if (cupti.ActivityEnableAllSyncRecords)
        cupti.ActivityEnableAllSyncRecords(0); /* queries of what isn't done yet */
    if (!on) {
        atomic_store(&flush_soon, true);
        record_wake(&wake);
    }
    record_pm_capture(on);
}

/* cudaProfilerStart and Stop: from the exit of the one to the entry of the other. */
static void called(void *user, uint32_t domain, uint32_t cbid,
                   const struct cupti_callback_data *data)
{
    (void)user;
    bool start = domain == CUPTI_DOMAIN_RUNTIME ? cbid == CUPTI_RUNTIME_PROFILER_START
                                                : cbid == CUPTI_DRIVER_PROFILER_START;
    bool stop = domain == CUPTI_DOMAIN_RUNTIME ? cbid == CUPTI_RUNTIME_PROFILER_STOP
                                               : cbid == CUPTI_DRIVER_PROFILER_STOP;
    if (generation != record_generation())
        return;
    if (start && data->site == CUPTI_SITE_EXIT)
        record_capture(true);
    if (stop && data->site == CUPTI_SITE_ENTER)
        record_capture(false);
}

/* The thread. */

/* Records have their times only when the device is done; a kernel that never ends must not keep the
 * program from ending. */
static void synchronise(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*set_current)(void *), (*wait)(void);
    if (!driver || !ending_context)
        return;
    void *set = dlsym(driver, "cuCtxSetCurrent"), *synchronize = dlsym(driver, "cuCtxSynchronize");
    memcpy(&set_current, &set, sizeof set);
    memcpy(&wait, &synchronize, sizeof synchronize);
    if (set && synchronize && set_current(ending_context) == 0)
        wait();
}

static void *work(void *unused)
{
    (void)unused;
    uint64_t flush_ns = record_flush_ms() * 1000000ull, next = record_now() + flush_ns;
    record_inside = true;
    prctl(PR_SET_NAME, "millrace-cupti");
    while (atomic_load(&stage) == RUNNING) {
        unsigned seen = atomic_load(&wake);
        record_cupti_buffers_prepare();
        record_cupti_buffers_convert();
        uint64_t now = record_now();
        if (atomic_exchange(&flush_soon, false) || now >= next) {
            cupti.ActivityFlushAll(0);
            if (!record_cupti_buffers_convert())
                record_cupti_convert_flush(true);
            now = record_now();
            next = now + flush_ns;
        }
        if (atomic_load(&stage) == RUNNING)
            record_wait(&wake, seen, next - now);
    }
    record_cupti_calls_enable(false); /* what comes is not the program's */
    cupti.ActivityDisable(CUPTI_SYNCHRONIZATION);
    synchronise();
    atomic_store(&flush_soon, true); /* says that the device was waited for */
    cupti.ActivityFlushAll(CUPTI_FLUSH_FORCED);
    while (record_cupti_buffers_convert())
        ;
    record_cupti_convert_flush(true);
    atomic_store(&stage, ENDED);
    record_wake(&wake);
    return NULL;
}

static void *current_context(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *context = NULL;
    void *symbol = driver ? dlsym(driver, "cuCtxGetCurrent") : NULL;
    int (*get)(void **);
    memcpy(&get, &symbol, sizeof symbol);
    return symbol && get(&context) == 0 ? context : NULL;
}

static void at_exit(void)
{
    if (generation != record_generation() || getpid() != record_core.pid)
        return;
    bool inside = record_inside;
    record_inside = true;
    ending_context = current_context();
    if (!have_thread) {
        atomic_store(&stage, ENDED);
        cupti.ActivityFlushAll(CUPTI_FLUSH_FORCED);
        record_cupti_buffers_convert();
        record_cupti_convert_flush(true);
    } else {
        atomic_store(&flush_soon, false);
        atomic_store(&stage, ENDING);
        record_wake(&wake);
        bool ended =
            record_wait_for(&stage, ENDED, &wake, SYNC_NS) ||
            (atomic_load(&flush_soon) && record_wait_for(&stage, ENDED, &wake, END_NS - SYNC_NS));
        if (!ended)
            record_note(
                "warning", 0,
                "the device was still busy when the program ended: its last records are missing");
    }
    record_inside = inside;
}

/*
 * _exit(), which calls no atexit functions: our thread is asked for what CUPTI has, without a look
 * at the device and without a call of the dynamic linker on this thread, whose locks the caller may
 * hold.
 */
static void leave(void)
{
    unsigned running = RUNNING;
    if (generation != record_generation() ||
        !atomic_compare_exchange_strong(&stage, &running, ENDING))
        return;
    record_wake(&wake);
    if (!have_thread || !record_wait_for(&stage, ENDED, &wake, LEAVE_NS))
        record_note(
            "warning", 0,
            "the program ended by _exit() and CUPTI did not answer: its last records are missing");
}

/* The injection. */

static bool fail(const char *what, int rc)
{
    char text[512];
    if (rc == CUPTI_MULTIPLE_SUBSCRIBERS)
        snprintf(text, sizeof text,
                 "another profiler holds CUPTI in this process (Nsight, torch.profiler, ncu, "
                 "compute-sanitizer "
                 "or cuda-gdb); nothing of CUDA is recorded");
    else
        snprintf(text, sizeof text, "CUPTI: %s: %s (%d)", what, text_of(rc), rc);
    record_note("no_cuda", rc, text);
    return false;
}

static void set_attribute(uint32_t attribute, const void *value, size_t bytes)
{
    char copy[16];
    memcpy(copy, value, bytes);
    if (cupti.ActivitySetAttribute)
        cupti.ActivitySetAttribute(attribute, &bytes, copy);
}

/* Before a context exists: about 100,000 operations a device buffer, and no zeroing on the
 * program's threads. */
static void set_attributes(void)
{
    size_t device_buffer = 3200000, limit = 250, ahead = 3;
    uint8_t zeroed = 1;
    set_attribute(CUPTI_ATTR_DEVICE_BUFFER_SIZE, &device_buffer, sizeof device_buffer);
    set_attribute(CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT, &limit, sizeof limit);
    set_attribute(CUPTI_ATTR_DEVICE_BUFFER_PRE_ALLOCATE, &ahead, sizeof ahead);
    set_attribute(CUPTI_ATTR_ZEROED_OUT_BUFFER, &zeroed, sizeof zeroed);
}

static bool subscribe(void)
{
    void *subscriber = NULL;
    int rc = cupti.Subscribe(&subscriber, called, NULL);
    if (rc != CUPTI_OK)
        return fail("subscribing", rc);
    if (record_captures_profiler()) {
        cupti.EnableCallback(1, subscriber, CUPTI_DOMAIN_RUNTIME, CUPTI_RUNTIME_PROFILER_START);
        cupti.EnableCallback(1, subscriber, CUPTI_DOMAIN_RUNTIME, CUPTI_RUNTIME_PROFILER_STOP);
        cupti.EnableCallback(1, subscriber, CUPTI_DOMAIN_DRIVER, CUPTI_DRIVER_PROFILER_START);
        cupti.EnableCallback(1, subscriber, CUPTI_DOMAIN_DRIVER, CUPTI_DRIVER_PROFILER_STOP);
    }
    if (cupti.SetThreadIdType)
        cupti.SetThreadIdType(CUPTI_THREAD_ID_SYSTEM);
    rc = cupti.ActivityRegisterTimestampCallback
             ? cupti.ActivityRegisterTimestampCallback(timestamp)
             : -1;
    if (rc != CUPTI_OK)
        return fail("no monotonic clock for its records", rc);
    set_attributes();
    rc = cupti.ActivityRegisterCallbacks(record_cupti_request, complete);
    return rc == CUPTI_OK || fail("registering buffers", rc);
}

static bool inject(void)
{
    const char *api = getenv("MILLRACE_RECORD_API"), *graphs = getenv("MILLRACE_RECORD_GRAPHS");
    cupti.light = !record_ever_wants(MR_TRACE_CUDA);
    cupti.all_calls = api && strcmp(api, "all") == 0;
    cupti.whole_graphs = graphs && strcmp(graphs, "graph") == 0;
    if (!subscribe())
        return false;
    if (cupti.version > CUPTI_NEWEST_SEEN)
        record_note("warning", cupti.version,
                    "this CUPTI is newer than this recorder; its records are read as CUDA 13.1's");
    have_thread = record_spawn(work);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].always)
            enable(kinds[i].kind, kinds[i].name, true);
    /* Calls are on outside of capture ranges as well, and left out later: switched on inside a
     * callback they stay off (libcupti 13.0). */
    record_cupti_calls_enable(true);
    record_on_capture(capture);
    atexit(at_exit);
    record_on_finish(leave);
    return true;
}

/* Metrics alone need no subscription, except for a range that CUDA calls open. */
static void begin(void)
{
    char why[1024] = "";
    bool cuda = record_ever_wants(MR_TRACE_CUDA | MR_TRACE_CUDA_LIGHT);
    bool metrics = record_ever_wants(MR_TRACE_GPU_METRICS);
    generation = record_generation();
    if (!record_cupti_load(why, sizeof why)) {
        if (cuda)
            record_note("no_cuda", 0, why);
        if (metrics)
            record_pm_refuse(why);
        return;
    }
    record_cupti_buffers_begin();
    if (!cuda && record_captures_profiler())
        subscribe();
    bool listens = cuda && inject();
    if (metrics && !listens)
        record_on_capture(record_pm_capture);
    if (metrics)
        record_pm_begin();
}

/* The user's own injection comes first: he is to find the program as it is without us, even if
 * nothing is left to record then. */
static void chain(void)
{
    const char *next = getenv("MILLRACE_RECORD_NEXT_CUDA");
    void *library = next && next[0] ? dlopen(next, RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *symbol = library ? dlsym(library, "InitializeInjection") : NULL;
    int (*initialize)(void);
    memcpy(&initialize, &symbol, sizeof symbol);
    if (symbol)
        initialize();
}

RECORD_EXPORT int InitializeInjection(void);
RECORD_EXPORT int InitializeInjection(void)
{
    static atomic_bool done;
    if (atomic_exchange(&done, true))
        return 1;
    chain();
    if (record_ever_wants(MR_TRACE_CUDA | MR_TRACE_CUDA_LIGHT | MR_TRACE_GPU_METRICS) &&
        record_start()) {
        bool inside = record_inside;
        record_inside = true;
        begin();
        record_inside = inside;
    }
    return 1;
}
