/* NVML, NVIDIA's management library, found at run time: the state of the PCIe link, which the
 * driver API does not tell. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

struct nvmlDevice_st;

struct nvml_bar1 {
    unsigned long long total, free, used;
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_process { /* nvmlProcessInfo_t of its second version, which the third function takes */
    unsigned pid;
    unsigned long long bytes; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
};

#define MAX_PROCESSES 256

/* X(symbol, arguments): each returns an nvmlReturn_t, 0 for success. */
#define NVML_SYMBOLS(X)                                                                            \
    X(nvmlInit_v2, (void))                                                                         \
    X(nvmlSystemGetDriverVersion, (char *out, unsigned bytes))                                     \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, struct nvmlDevice_st **out))              \
    X(nvmlDeviceGetCurrPcieLinkGeneration, (struct nvmlDevice_st * device, unsigned *out))         \
    X(nvmlDeviceGetCurrPcieLinkWidth, (struct nvmlDevice_st * device, unsigned *out))              \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (struct nvmlDevice_st * device, unsigned *out))          \
    X(nvmlDeviceGetMaxPcieLinkWidth, (struct nvmlDevice_st * device, unsigned *out))               \
    X(nvmlDeviceGetBAR1MemoryInfo, (struct nvmlDevice_st * device, struct nvml_bar1 * out))

/* NULL where NVML is older, or the driver knows no such thing. */
#define NVML_OPTIONAL(X)                                                                           \
    X(nvmlDeviceGetMemoryInfo, (struct nvmlDevice_st * device, struct nvml_memory * out))          \
    X(nvmlDeviceGetComputeRunningProcesses_v3,                                                     \
      (struct nvmlDevice_st * device, unsigned *in_out_n, struct nvml_process *out))               \
    X(nvmlDeviceGetNvLinkState, (struct nvmlDevice_st * device, unsigned link, unsigned *out_up))  \
    X(nvmlDeviceGetNvLinkVersion, (struct nvmlDevice_st * device, unsigned link, unsigned *out))

static struct {
#define X(symbol, arguments) int(*symbol) arguments;
    NVML_SYMBOLS(X)
    NVML_OPTIONAL(X)
#undef X
    bool usable;
} nvml;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Never shut down nor closed: others in the process may use it too. */
static void load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool whole = library != NULL;
    if (!whole)
        return;
#define X(symbol, arguments)                                                                       \
    *(void **)(void *)&nvml.symbol = dlsym(library, #symbol);                                      \
    whole = whole && nvml.symbol;
    NVML_SYMBOLS(X)
#undef X
#define X(symbol, arguments) *(void **)(void *)&nvml.symbol = dlsym(library, #symbol);
    NVML_OPTIONAL(X)
#undef X
    nvml.usable = whole && nvml.nvmlInit_v2() == 0;
}

static unsigned number(int (*get)(struct nvmlDevice_st *, unsigned *), struct nvmlDevice_st *device)
{
    unsigned value = 0;
    return get(device, &value) == 0 ? value : 0;
}

/* A link's rate one way follows from its version; the numbers are those of NVML: 6 is 4.0, 7
 * is 5.0. */
static double nvlink_gb_per_s(struct nvmlDevice_st *device)
{
    static const double rates[] = {0, 20, 25, 25, 25, 25, 25, 50};
    double all = 0;
    for (unsigned link = 0;
         link < 18 && nvml.nvmlDeviceGetNvLinkState && nvml.nvmlDeviceGetNvLinkVersion; link++) {
        unsigned up = 0, version = 0;
        if (nvml.nvmlDeviceGetNvLinkState(device, link, &up) != 0 || !up ||
            nvml.nvmlDeviceGetNvLinkVersion(device, link, &version) != 0)
            continue;
        all += version < MR_COUNT(rates) ? rates[version] : 0;
    }
    return all;
}

void mr_nvml_prepare(void)
{
    pthread_once(&once, load);
}

void mr_nvml_get(const char *pci_id, struct mr_nvml_info *out)
{
    struct nvmlDevice_st *device = NULL;
    struct nvml_bar1 bar1 = {0};
    memset(out, 0, sizeof *out);
    pthread_once(&once, load);
    if (!nvml.usable)
        return;
    if (nvml.nvmlSystemGetDriverVersion(out->driver, sizeof out->driver) != 0)
        out->driver[0] = 0;
    if (nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_id, &device) != 0)
        return;
    out->link_generation = number(nvml.nvmlDeviceGetCurrPcieLinkGeneration, device);
    out->link_width = number(nvml.nvmlDeviceGetCurrPcieLinkWidth, device);
    out->link_generation_max = number(nvml.nvmlDeviceGetMaxPcieLinkGeneration, device);
    out->link_width_max = number(nvml.nvmlDeviceGetMaxPcieLinkWidth, device);
    if (nvml.nvmlDeviceGetBAR1MemoryInfo(device, &bar1) == 0)
        out->bar1_bytes = bar1.total;
    out->nvlink_gb_per_s = nvlink_gb_per_s(device);
}

/* NULL: not known. */
static struct nvmlDevice_st *find(const char *pci_id)
{
    struct nvmlDevice_st *device = NULL;
    pthread_once(&once, load);
    return nvml.usable && nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_id, &device) == 0 ? device
                                                                                      : NULL;
}

uint64_t mr_nvml_free_bytes(const char *pci_id)
{
    struct nvmlDevice_st *device = find(pci_id);
    struct nvml_memory memory = {0};
    if (!device || !nvml.nvmlDeviceGetMemoryInfo ||
        nvml.nvmlDeviceGetMemoryInfo(device, &memory) != 0)
        return 0;
    return memory.free;
}

int mr_nvml_processes(const char *pci_id, struct mr_device_process *out, int max)
{
    struct nvmlDevice_st *device = find(pci_id);
    struct nvml_process all[MAX_PROCESSES];
    unsigned n = MAX_PROCESSES;
    if (!device || !nvml.nvmlDeviceGetComputeRunningProcesses_v3)
        return -1;
    if (nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &n, all) != 0 || n > MAX_PROCESSES)
        return -1;
    for (unsigned i = 0; i < n && i < (unsigned)max; i++)
        out[i] = (struct mr_device_process){all[i].pid, all[i].bytes == ~0ull ? 0 : all[i].bytes};
    return (int)n;
}
