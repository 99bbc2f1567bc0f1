/*
 * Which API calls are recorded. A framework makes some fifteen calls a kernel, most of them queries
 * of devices and errors; each record costs the program time. So only what moves, launches, waits,
 * allocates or loads is switched on, call by call.
 */
#include "recorder/cupti/cupti.h"

#include <string.h>

#define MAX_CALLS 2048

static struct {
    uint32_t n[3]; /* by domain */
    bool kept[3][MAX_CALLS];
    uint32_t names[3][MAX_CALLS];
    bool known;
} calls;

static bool any_of(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strstr(name, *words))
            return true;
    return false;
}

/* Not cudaProfilerStart and Stop: switching a call's records off takes its callbacks away as well
 * (libcupti 13.0), and those tell of capture ranges. */
bool record_cupti_call_matters(const char *name, bool light)
{
    static const char *const copies[] = {"Memcpy",         "Memset",     "cuMemset", "Synchronize",
                                         "HostAlloc",      "MallocHost", "FreeHost", "HostRegister",
                                         "HostUnregister", NULL};
    static const char *const others[] = {
        "cudaLaunch",   "cuLaunch",         "__cudaLaunch",   "GraphLaunch", "GraphInstantiate",
        "cudaMalloc",   "cudaFree",         "cuMemAlloc",     "cuMemFree",   "cuMemCreate",
        "cuMemRelease", "cuMemMap",         "cuMemUnmap",     "MemPrefetch", "cuModuleLoad",
        "LibraryLoad",  "__cudaInitModule", "cuLinkComplete", "GraphUpload", NULL};
    static const char *const never[] = {"GraphAdd", "Node",     "GetAttr",       "SetAttr",
                                        "GetInfo",  "GetFlags", "MapArrayAsync", "GetDevicePointer",
                                        "GetParam", NULL};
    return !any_of(name, never) && (any_of(name, copies) || (!light && any_of(name, others)));
}

static void learn(uint32_t domain)
{
    for (uint32_t cbid = 1; cbid < MAX_CALLS; cbid++) {
        const char *name = NULL;
        if (cupti.GetCallbackName(domain, cbid, &name) != CUPTI_OK || !name)
            continue;
        calls.n[domain] = cbid + 1;
        calls.kept[domain][cbid] = record_cupti_call_matters(name, cupti.light);
        calls.names[domain][cbid] = record_string(name);
    }
}

/* Whether one by one works here; else all are recorded and most are thrown away later. */
static bool choose(uint32_t domain, int (*enable)(uint32_t, uint8_t), bool on)
{
    bool any = false;
    for (uint32_t cbid = 1; enable && cbid < calls.n[domain]; cbid++)
        if (calls.kept[domain][cbid])
            any = enable(cbid, on) == CUPTI_OK || any;
    return any;
}

void record_cupti_calls_enable(bool on)
{
    if (!calls.known) {
        learn(CUPTI_DOMAIN_DRIVER);
        learn(CUPTI_DOMAIN_RUNTIME);
        calls.known = true;
    }
    if (cupti.all_calls || !choose(CUPTI_DOMAIN_RUNTIME, cupti.ActivityEnableRuntimeApi, on))
        (on ? cupti.ActivityEnable : cupti.ActivityDisable)(CUPTI_RUNTIME);
    if (cupti.all_calls || !choose(CUPTI_DOMAIN_DRIVER, cupti.ActivityEnableDriverApi, on))
        (on ? cupti.ActivityEnable : cupti.ActivityDisable)(CUPTI_DRIVER);
}

bool record_cupti_call_kept(uint32_t domain, uint32_t cbid)
{
    return cupti.all_calls || (cbid < MAX_CALLS && calls.kept[domain][cbid]);
}

uint32_t record_cupti_call_name(uint32_t domain, uint32_t cbid)
{
    return cbid < MAX_CALLS ? calls.names[domain][cbid] : 0;
}
