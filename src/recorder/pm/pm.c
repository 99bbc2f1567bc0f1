/*
 * GPU metrics: a thread samples the counters of each device on which this process has a context, by
 * CUPTI's PM sampling, unless another process of the recording has it already. CUPTI is initialised
 * while the driver initialises, devices come later: until one is there the thread looks from time
 * to time. Whatever fails ends the sampling with a note and nothing else.
 */
#include "recorder/pm/pm.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_DEVICES 16u
#define LOOK_NS     5000000ull   /* between looks for a context */
#define TAKEN_NS    300000000ull /* between tries for a device that another process has */
#define COLLECT_NS  100000000ull /* at 10 kHz the device's buffer lasts for a second or more */
#define BOUND_NS    2000000ull   /* just started: to bound the clock */
#define N_BOUNDS    8u
#define END_NS      3000000000ull
#define LEAVE_NS    1000000000ull /* what _exit() waits: it may come in a signal handler */
#define DEFAULT_HZ  10000u

struct record_pm_api pm;

static struct {
    struct pm_session session;
    bool failed;
    int lock; /* of the file that says whose it is; 0: none */
    uint64_t tried_ns;
    unsigned n_bounds;
} devices[MAX_DEVICES];

enum { RUNNING, ENDING, ENDED };
static atomic_uint wake, stage = RUNNING;
static unsigned generation;
static uint32_t hz;

static struct {
    int (*count)(int *);
    int (*primary)(int, unsigned *, int *);
    int (*bus)(char *, int, int);
} driver;

/* Why there are no metrics. */

static bool admin_only(void)
{
    char line[256];
    bool closed = false;
    FILE *file = fopen("/proc/driver/nvidia/params", "re");
    while (file && fgets(line, sizeof line, file))
        closed = closed || strncmp(line, "RmProfilingAdminOnly: 1", 23) == 0;
    if (file)
        fclose(file);
    return closed;
}

void record_pm_refuse(const char *why)
{
    record_note("no_metrics", 0, why);
}

static const char *reason(int rc)
{
    if (rc == CUPTI_INSUFFICIENT_PRIVILEGES || rc == CUPTI_VIRTUALIZED_PRIVILEGES)
        return admin_only() ? "the driver keeps the GPU's counters for administrators here "
                              "(RmProfilingAdminOnly: 1); run it as "
                              "root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
                            : "no permission for the GPU's counters (containers need "
                              "CAP_SYS_ADMIN; virtual machines their "
                              "host's "
                              "consent)";
    if (rc == CUPTI_HARDWARE_BUSY)
        return "another profiler holds the GPU's counters (dcgm, ncu, nsys)";
    if (rc == CUPTI_NOT_SUPPORTED || rc == CUPTI_NOT_IMPLEMENTED || rc == CUPTI_VIRTUALIZED ||
        (rc >= CUPTI_CONFIDENTIAL && rc <= CUPTI_UNKNOWN_CHIP))
        return "this GPU has no PM sampling, or not in its present mode (before Turing; MIG, vGPU, "
               "confidential "
               "computing)";
    if (rc == CUPTI_OUT_OF_MEMORY)
        return "no memory for its buffers";
    return "sampling failed";
}

static void refuse(const struct pm_session *session, const char *what, int rc)
{
    const char *name = NULL;
    char text[640];
    if (cupti.GetResultString)
        cupti.GetResultString(rc, &name);
    snprintf(text, sizeof text, "%s (GPU %u: %s: %s, %d)", reason(rc), session->device, what,
             name ? name : "?", rc);
    if (session->n_samples == 0) {
        record_pm_refuse(text);
    } else {
        char more[700];
        snprintf(more, sizeof more, "GPU metrics end here: %s", text);
        record_note("warning", rc, more);
    }
}

/* Devices. */

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *from = library ? library : RTLD_DEFAULT;
    void *count = dlsym(from, "cuDeviceGetCount"),
         *primary = dlsym(from, "cuDevicePrimaryCtxGetState");
    void *bus = dlsym(from, "cuDeviceGetPCIBusId");
    memcpy(&driver.count, &count, sizeof count);
    memcpy(&driver.primary, &primary, sizeof primary);
    memcpy(&driver.bus, &bus, sizeof bus);
}

static atomic_uint used; /* bits of devices of which CUPTI told a context */

void record_pm_saw(uint32_t device)
{
    if (device < MAX_DEVICES)
        atomic_fetch_or(&used, 1u << device);
}

static bool in_use(uint32_t device)
{
    unsigned flags;
    int active = 0;
    if (atomic_load(&used) >> device & 1)
        return true;
    return driver.primary && driver.primary((int)device, &flags, &active) == 0 && active;
}

/* A lock of the kernel's on a file in the recording's folder: the next process may take the device
 * when this one is gone. */
static bool take(uint32_t device)
{
    char path[PATH_MAX], bus[64] = "";
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!driver.bus || driver.bus(bus, sizeof bus, (int)device) != 0)
        snprintf(bus, sizeof bus, "%u",
                 device); /* which CUDA_VISIBLE_DEVICES makes another in each process */
    int n = snprintf(path, sizeof path, "%s/gpu-%s", record_config.folder, bus);
    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    int high = fcntl(fd, F_DUPFD_CLOEXEC,
                     512); /* programs that close or reuse low numbers seldom go so far */
    if (high >= 0) {
        record_syscall(SYS_close, fd); /* before the lock, which would go with it */
        fd = high;
    }
    if (fcntl(fd, F_SETLK, &lock) != 0) {
        record_syscall(SYS_close, fd);
        return false;
    }
    devices[device].lock = fd;
    return true;
}

static void give_up(uint32_t device, const char *what, int rc)
{
    refuse(&devices[device].session, what, rc);
    devices[device].failed = true;
    pm_session_close(&devices[device].session);
    if (devices[device].lock)
        record_syscall(SYS_close, devices[device].lock);
    devices[device].lock = 0;
}

static void open_device(uint32_t device)
{
    const char *what = "";
    uint64_t now = record_now();
    if (devices[device].failed || devices[device].session.open ||
        now - devices[device].tried_ns < TAKEN_NS || !in_use(device))
        return;
    devices[device].tried_ns = now;
    if (!take(device))
        return;
    devices[device].session.device = device;
    int rc = pm_session_open(&devices[device].session, hz, &what);
    if (rc != CUPTI_OK)
        give_up(device, what, rc);
}

/* One look at an open device; whether it should be soon looked at again. */
static bool attend(uint32_t device, bool wanted)
{
    struct pm_session *session = &devices[device].session;
    const char *what = "";
    bool more = false;
    int rc = CUPTI_OK;
    if (wanted && !session->started) {
        rc = pm_session_start(session, &what);
        devices[device].n_bounds = 0;
    } else if (session->started) {
        if (!wanted)
            pm_session_stop(session);
        do
            rc = pm_session_collect(session, &more, &what);
        while (rc == CUPTI_OK && more && (!session->started || atomic_load(&stage) == RUNNING));
    }
    if (rc != CUPTI_OK)
        give_up(device, what, rc);
    return rc == CUPTI_OK && session->started && devices[device].n_bounds++ < N_BOUNDS;
}

/* A program that made a context, and was gone before the device had a sample. */
static void tell_if_none(uint32_t device)
{
    bool untried = devices[device].tried_ns == 0 && in_use(device) &&
                   take(device); /* else another process has it */
    if ((untried || devices[device].session.open) && devices[device].session.n_samples == 0 &&
        record_capture_is_on())
        record_pm_refuse("the program ended before the first sample");
}

static void *work(void *unused)
{
    (void)unused;
    record_inside = true;
    prctl(PR_SET_NAME, "millrace-pm");
    find_driver();
    while (atomic_load(&stage) == RUNNING) {
        unsigned seen = atomic_load(&wake);
        bool wanted = record_capture_is_on(), soon = false, any = false;
        int n = 0;
        if (!driver.count || driver.count(&n) != 0)
            n = driver.count ? 0 : (int)MAX_DEVICES;
        for (uint32_t i = 0; i < MAX_DEVICES && i < (unsigned)n; i++) {
            open_device(i);
            any = any || devices[i].failed;
            if (devices[i].session.open) {
                any = true;
                soon = attend(i, wanted) || soon;
            }
        }
        uint64_t flush_ns = record_flush_ms() * 1000000ull;
        uint64_t pause_ns = soon                    ? BOUND_NS
                            : !any                  ? LOOK_NS
                            : flush_ns < COLLECT_NS ? flush_ns
                                                    : COLLECT_NS;
        if (atomic_load(&stage) == RUNNING)
            record_wait(&wake, seen, pause_ns);
    }
    for (uint32_t i = 0; i < MAX_DEVICES; i++) {
        struct pm_session *session = &devices[i].session;
        if (session->open)
            attend(i, false);
        tell_if_none(i);
        if (!session->open)
            continue;
        if (session->n_samples)
            record_note("metrics_clock", session->apart_ns, NULL);
        pm_session_close(session);
    }
    atomic_store(&stage, ENDED);
    record_wake(&wake);
    return NULL;
}

/* Once: the thread is asked to end, and to put what the devices still have. */
static void end(uint64_t ns)
{
    unsigned running = RUNNING;
    if (generation != record_generation() || getpid() != record_core.pid ||
        !atomic_compare_exchange_strong(&stage, &running, ENDING))
        return;
    bool inside = record_inside;
    record_inside = true;
    record_wake(&wake);
    if (!record_wait_for(&stage, ENDED, &wake, ns))
        record_note("warning", 0,
                    "GPU metrics: sampling did not end in time, the last samples are missing");
    record_inside = inside;
}

static void at_exit(void)
{
    end(END_NS);
}

/* _exit(), which calls no atexit functions. */
static void leave(void)
{
    end(LEAVE_NS);
}

/* CUPTI looks for these by name alone; they lie beside it, as in pip's packages, which no search
 * path has. */
static void load_helpers(void *of)
{
    static const char *const names[] = {"libnvperf_host.so", "libnvperf_target.so"};
    Dl_info info;
    const char *slash = dladdr(of, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof names / sizeof names[0]; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)(slash - info.dli_fname),
                         info.dli_fname, names[i]);
        if (n > 0 && (size_t)n < sizeof path)
            (void)!dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
}

void record_pm_capture(bool on)
{
    (void)on;
    record_wake(&wake);
}

void record_pm_begin(void)
{
    const char *text = getenv("MILLRACE_RECORD_METRICS_HZ"), *missing = NULL;
    char why[256];
    hz = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
    hz = hz >= 1 && hz <= 1000000 ? hz : DEFAULT_HZ;
    generation = record_generation();
#define X(name, parameters, last)                                                                  \
    {                                                                                              \
        void *symbol = record_cupti_symbol("cupti" #name);                                         \
        memcpy(&pm.name, &symbol, sizeof symbol);                                                  \
        missing = symbol || missing ? missing : "cupti" #name;                                     \
    }
    CUPTI_PM_FUNCTIONS(X)
#undef X
    if (missing) {
        snprintf(why, sizeof why,
                 "this libcupti (version %u) has no %s: CUDA 12.6's or a later one samples metrics",
                 cupti.version, missing);
        record_pm_refuse(why);
        return;
    }
    load_helpers(record_cupti_symbol("cuptiPmSamplingEnable"));
    if (!record_spawn(work)) {
        record_pm_refuse("no thread can be started");
        return;
    }
    atexit(at_exit);
    record_on_finish(leave);
}
