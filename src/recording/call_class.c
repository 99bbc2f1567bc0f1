/* What a CUDA call is for, by its name. */
#include "recording/recording.h"

#include <ctype.h>
#include <string.h>

struct class_of_name {
    const char *begin; /* of the name without "cuda", "cu" or "hip" */
    bool whole;        /* the name must end here, but for "Async" and suffixes of versions */
    enum mr_call_class class;
};

/* The first that fits counts. */
static const struct class_of_name classes[] = {
    {"GraphLaunch", true, MR_CALL_GRAPH_LAUNCH},
    {"LaunchHostFunc", false, MR_CALL_OTHER},
    {"Launch", false, MR_CALL_LAUNCH},
    {"MemcpyBatch", false, MR_CALL_COPY},
    {"Memcpy", false, MR_CALL_COPY},
    {"MemPrefetch", false, MR_CALL_COPY},
    {"Memset", false, MR_CALL_SET},
    {"DeviceSynchronize", true, MR_CALL_SYNC},
    {"StreamSynchronize", true, MR_CALL_SYNC},
    {"EventSynchronize", true, MR_CALL_SYNC},
    {"CtxSynchronize", true, MR_CALL_SYNC},
    {"ThreadSynchronize", true, MR_CALL_SYNC},
    {"ThreadExit", true, MR_CALL_SYNC},
    {"HostAlloc", true, MR_CALL_PIN},
    {"MallocHost", true, MR_CALL_PIN},
    {"HostRegister", true, MR_CALL_PIN},
    {"HostUnregister", true, MR_CALL_PIN},
    {"FreeHost", true, MR_CALL_PIN},
    {"MemHostAlloc", true, MR_CALL_PIN},
    {"MemAllocHost", true, MR_CALL_PIN},
    {"MemFreeHost", true, MR_CALL_PIN},
    {"MemHostRegister", true, MR_CALL_PIN},
    {"MemHostUnregister", true, MR_CALL_PIN},
    {"Malloc", false, MR_CALL_ALLOC},
    {"FreeArray", true, MR_CALL_ALLOC},
    {"FreeMipmappedArray", true, MR_CALL_ALLOC},
    {"Free", true, MR_CALL_ALLOC},
    {"MemAlloc", false, MR_CALL_ALLOC},
    {"MemFree", true, MR_CALL_ALLOC},
    {"MemCreate", true, MR_CALL_ALLOC},
    {"MemMap", true, MR_CALL_ALLOC},
    {"MemUnmap", true, MR_CALL_ALLOC},
    {"MemRelease", true, MR_CALL_ALLOC},
    {"MemSetAccess", true, MR_CALL_ALLOC},
    {"MemAddressReserve", true, MR_CALL_ALLOC},
    {"MemAddressFree", true, MR_CALL_ALLOC},
    {"ArrayCreate", true, MR_CALL_ALLOC},
    {"ArrayDestroy", true, MR_CALL_ALLOC},
    {"EventQuery", true, MR_CALL_QUERY},
    {"StreamQuery", true, MR_CALL_QUERY},
    {"StreamIsCapturing", true, MR_CALL_QUERY},
    {"StreamGet", false, MR_CALL_QUERY},
    {"EventElapsedTime", false, MR_CALL_QUERY},
    {"PeekAtLastError", true, MR_CALL_QUERY},
    {"Get", false, MR_CALL_QUERY},
    {"DeviceGet", false, MR_CALL_QUERY},
    {"CtxGet", false, MR_CALL_QUERY},
    {"FuncGet", false, MR_CALL_QUERY},
    {"PointerGet", false, MR_CALL_QUERY},
    {"MemGet", false, MR_CALL_QUERY},
    {"DriverGet", false, MR_CALL_QUERY},
    {"RuntimeGet", false, MR_CALL_QUERY},
    {"Occupancy", false, MR_CALL_QUERY},
    {"ModuleUnload", true, MR_CALL_MODULE},
    {"Module", false, MR_CALL_MODULE},
    {"Library", false, MR_CALL_MODULE},
    {"Link", false, MR_CALL_MODULE},
    {"Kernel", false, MR_CALL_MODULE},
};

/* "Async", "_v3020", "_ptsz", "_v2_ptds" may stand behind a whole name. */
static bool only_suffixes(const char *text)
{
    if (!strncmp(text, "Async", 5))
        text += 5;
    return *text == 0 || *text == '_';
}

enum mr_call_class mr_call_class_of(const char *name)
{
    if (!strncmp(name, "cuda", 4))
        name += 4;
    else if (!strncmp(name, "hip", 3))
        name += 3;
    else if (!strncmp(name, "cu", 2))
        name += 2;
    else
        return MR_CALL_OTHER;
    if (!isupper((unsigned char)*name))
        return MR_CALL_OTHER;
    for (size_t i = 0; i < MR_COUNT(classes); i++) {
        size_t bytes = strlen(classes[i].begin);
        if (!strncmp(name, classes[i].begin, bytes) &&
            (!classes[i].whole || only_suffixes(name + bytes)))
            return classes[i].class;
    }
    return MR_CALL_OTHER;
}
