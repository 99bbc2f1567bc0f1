/*
 * Ranges of programs that have no NVTX of their own: exported functions that recorder/python calls
 * through ctypes. They are ranges of NVTX to the recorder, so capture ranges and reports know them.
 *
 * A push returns a number, by which the pop finds its range: code that is suspended inside a range
 * (generators, coroutines) ends its ranges in another order than it began them.
 */
#include "recorder/nvtx/nvtx.h"

struct mr_record_range;

/* A name to push, which stays until the process ends. domain: NULL or "": the default one. Returns
 * NULL if ranges are not recorded in this process, or without memory. Any thread. */
RECORD_EXPORT struct mr_record_range *mr_record_range(const char *domain, const char *text);

/* Begins a range on the calling thread. Returns its number; 0: there is nothing to pop. */
RECORD_EXPORT uint64_t mr_record_push(struct mr_record_range *range);

/* Ends it, on the same thread; on another it stays open until its thread ends. */
RECORD_EXPORT void mr_record_pop(uint64_t id);

struct mr_record_range *mr_record_range(const char *domain, const char *text)
{
    struct mr_record_range *range = NULL;
    if (record_nvtx_busy || !text || !nvtx_begin())
        return NULL;
    record_nvtx_busy = true;
    range = (void *)nvtx_name_keep(domain && domain[0] ? domain : NULL, text);
    record_nvtx_busy = false;
    return range;
}

uint64_t mr_record_push(struct mr_record_range *range)
{
    const struct nvtx_name *name = (void *)range;
    struct nvtx_message message;
    if (record_nvtx_busy || !name)
        return 0;
    record_nvtx_busy = true;
    message.text = NULL;
    message.registered = name->text;
    uint64_t id = nvtx_push_id(name->domain, &message);
    record_nvtx_busy = false;
    return id;
}

void mr_record_pop(uint64_t id)
{
    if (record_nvtx_busy || !id)
        return;
    record_nvtx_busy = true;
    nvtx_pop_id(id);
    record_nvtx_busy = false;
}
