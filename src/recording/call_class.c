/* What a call of a device is for, by its name. */
#include "recording/recording.h"

#include <ctype.h>
#include <string.h>

struct class_of_name {
    const char *begin; /* of the name without "cuda", "cu", "hip" or "sim" */
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
    else if (!strncmp(name, "hip", 3) || !strncmp(name, "sim", 3))
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

/* ---- calls that hold their thread ---- */

#define STAGED_BYTES (64 << 10) /* pageable copies up to here are taken along at once */

/* By its name: no Async, and the host's memory. Else pageable memory, and it returned after the
 * copy ended or, of more than 64 KiB, took half as long: the last piece is staged then. */
bool mr_copy_call_holds(const struct mr_copy_call *copy)
{
    enum mr_call_class class = mr_call_class_of(copy->name);
    if ((class == MR_CALL_COPY || class == MR_CALL_SET) && !strstr(copy->name, "Async") &&
        copy->host)
        return true;
    if (!copy->pageable)
        return false;
    return copy->call_end_ns >= copy->end_ns ||
           (copy->bytes > STAGED_BYTES &&
            (copy->call_end_ns - copy->call_start_ns) * 2 >= copy->end_ns - copy->start_ns);
}

static const char *name_of(const struct mr_recording *rec, const struct mr_rec_api *api)
{
    return api->name < rec->n_strings && rec->strings[api->name] ? rec->strings[api->name] : "";
}

static const struct mr_rec_op *first_op(const struct mr_recording *rec,
                                        const struct mr_rec_api *api)
{
    return api->n_ops > 0 ? &rec->ops[rec->op_of_api[api->first_op]] : NULL;
}

static bool is_host(uint8_t memory)
{
    return memory == MR_MEM_PAGEABLE || memory == MR_MEM_PINNED || memory == MR_MEM_MANAGED;
}

bool mr_api_holds(const struct mr_recording *rec, const struct mr_rec_api *api)
{
    const char *name = name_of(rec, api);
    const struct mr_rec_op *op = first_op(rec, api);
    switch ((enum mr_call_class)api->class) {
    case MR_CALL_SYNC:
    case MR_CALL_PIN:
    case MR_CALL_MODULE:
        return true;
    case MR_CALL_ALLOC:
        return !strstr(name, "Async");
    case MR_CALL_COPY:
    case MR_CALL_SET:
        if (!op)
            return !strstr(name, "Async");
        return mr_copy_call_holds(&(struct mr_copy_call){
            name,
            is_host(op->src) || is_host(op->dst) || op->copy_kind == MR_COPY_H2D ||
                op->copy_kind == MR_COPY_D2H, /* AMD's records have the latter only */
            op->src == MR_MEM_PAGEABLE || op->dst == MR_MEM_PAGEABLE, op->bytes, api->start_ns,
            api->end_ns, op->start_ns, op->end_ns});
    default:
        return false;
    }
}

bool mr_api_reads_back(const struct mr_recording *rec, const struct mr_rec_api *api)
{
    const struct mr_rec_op *op = first_op(rec, api);
    if (op)
        return op->kind == MR_OP_COPY &&
               (op->copy_kind == MR_COPY_D2H || op->copy_kind == MR_COPY_A2H);
    return strstr(name_of(rec, api), "DtoH") != NULL;
}
