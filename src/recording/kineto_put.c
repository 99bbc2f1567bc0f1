/* Kineto, the second reading: an event as a record. */
#include "recording/kineto.h"

#include <errno.h>
#include <string.h>

static uint64_t absolute(const struct mr_kineto *k, int64_t ns)
{
    return k->store->origin_ns + ((uint64_t)ns - (uint64_t)k->first_ns);
}

static uint64_t number(const struct mr_kineto_event *event, const char *name)
{
    uint64_t value;
    return mr_json_u64(mr_json_member(event->args, name), &value) ? value : 0;
}

static uint32_t number32(const struct mr_kineto_event *event, const char *name)
{
    return (uint32_t)MR_MIN(number(event, name), (uint64_t)UINT32_MAX);
}

/* 0 where several calls have it. A device's work is the main process's. */
static uint32_t correlation_of(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    uint32_t id = mr_kineto_correlation(event);
    bool call = event->kind == MR_KINETO_RUNTIME || event->kind == MR_KINETO_DRIVER;
    uint32_t host = call ? mr_kineto_host(k, event->pid) : k->main;
    return id && mr_kineto_is_ambiguous(k, host, id) ? 0 : id;
}

/* Some versions do not tell those of AMD GPUs. */
static uint64_t bytes_of(const struct mr_kineto_event *event)
{
    uint64_t value;
    return mr_json_u64(mr_json_member(event->args, "bytes"), &value) ? value : UINT64_MAX;
}

/* "stream 7", 7 or "0x0"; what is negative is none. */
static uint32_t stream_of(const struct mr_kineto_event *event)
{
    uint64_t value;
    struct mr_json_text text = mr_json_member(event->args, "stream");
    if (text.n == 0)
        text = event->tid;
    if (text.n == 0)
        return UINT32_MAX;
    if (mr_json_u64(text, &value))
        return (uint32_t)MR_MIN(value, (uint64_t)UINT32_MAX);
    size_t digits = text.n;
    while (digits > 0 && text.at[digits - 1] >= '0' && text.at[digits - 1] <= '9')
        digits--;
    struct mr_json_text end = {text.at + digits, text.n - digits};
    bool negative = digits > 0 && text.at[digits - 1] == '-';
    return !negative && mr_json_u64(end, &value) ? (uint32_t)MR_MIN(value, (uint64_t)UINT32_MAX)
                                                 : UINT32_MAX;
}

static int name_of(struct mr_kineto *k, struct mr_json_text text, uint32_t *out)
{
    size_t n;
    const char *name = mr_json_string_of(text, k->name, MR_KINETO_NAME, &n);
    return mr_store_text(k->store, name, n, out);
}

/* A thread of the kernel keeps its number; of other names each gets one, and keeps its name. */
static int thread_of(struct mr_kineto *k, uint32_t host, struct mr_json_text tid, uint32_t *out)
{
    const struct mr_kineto_host *process = &k->hosts[host];
    uint64_t value;
    if (mr_json_u64(tid, &value) && value > 0 && value < MR_KINETO_ODD) {
        *out = (uint32_t)value;
        return 0;
    }
    if (tid.n > 0 && mr_json_is(tid, process->pid_text)) {
        *out = process->pid;
        return 0;
    }
    bool is_new;
    uint64_t key = mr_mix64(mr_hash(MR_HASH_START, tid.at ? tid.at : "", tid.n) ^ mr_mix64(host));
    uint32_t next = MR_KINETO_ODD + MR_KINETO_ODD / 2 + k->n_odd_tids;
    if (k->n_odd_tids == MR_KINETO_ODD / 2 - 1) { /* more than there can be */
        *out = next;
        return 0;
    }
    const uint32_t *known = mr_map_at(&k->tids, key, next, &is_new);
    if (!known)
        return -ENOMEM;
    *out = *known;
    if (!is_new)
        return 0;
    k->n_odd_tids++;
    struct mr_part_thread thread = {.tid = *known};
    int rc = name_of(k, tid, &thread.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_THREAD, &thread);
}

static void three(struct mr_json_text list, uint32_t out[3])
{
    size_t at = 1;
    for (int i = 0; i < 3 && at < list.n; i++) {
        size_t end = at;
        uint64_t value;
        while (end < list.n && list.at[end] != ',' && list.at[end] != ']')
            end++;
        while (at < end && (list.at[at] == ' ' || list.at[at] == '\n'))
            at++;
        if (mr_json_u64((struct mr_json_text){list.at + at, end - at}, &value))
            out[i] = (uint32_t)MR_MIN(value, (uint64_t)UINT32_MAX);
        at = end + 1;
    }
}

static int put_kernel(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    struct mr_part_kernel kernel = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
        .graph_node = number(event, "graph node id"),
        .graph = number32(event, "graph id"),
        .device = mr_kineto_device(event),
        .context = number32(event, "context"),
        .stream = stream_of(event),
        .correlation = correlation_of(k, event),
        .registers = number32(event, "registers per thread"),
        .dynamic_shared = number32(event, "shared memory"), /* the sum of both kinds */
    };
    three(mr_json_member(event->args, "grid"), kernel.grid);
    three(mr_json_member(event->args, "block"), kernel.block);
    int rc = name_of(k, event->name, &kernel.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_KERNEL, &kernel);
}

/* "Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice". */
static uint8_t copy_kind(const char *name)
{
    static const struct {
        const char *text;
        uint8_t kind;
    } kinds[] = {{"HtoD", MR_COPY_H2D},           {"DtoH", MR_COPY_D2H},
                 {"DtoD", MR_COPY_D2D},           {"PtoP", MR_COPY_P2P},
                 {"HtoH", MR_COPY_H2H},           {"HtoA", MR_COPY_H2A},
                 {"AtoH", MR_COPY_A2H},           {"AtoA", MR_COPY_A2A},
                 {"AtoD", MR_COPY_A2D},           {"DtoA", MR_COPY_D2A},
                 {"HostToDevice", MR_COPY_H2D},   {"DeviceToHost", MR_COPY_D2H},
                 {"DeviceToDevice", MR_COPY_D2D}, {"HostToHost", MR_COPY_H2H}};
    for (size_t i = 0; i < MR_COUNT(kinds); i++)
        if (strstr(name, kinds[i].text))
            return kinds[i].kind;
    return MR_COPY_UNKNOWN;
}

/* The name of a kind of memory at the start of text. "Host", of AMD's, does not say which. */
static uint8_t memory_kind(const char *text)
{
    static const struct {
        const char *text;
        uint8_t kind;
    } kinds[] = {{"Pageable", MR_MEM_PAGEABLE},
                 {"Pinned", MR_MEM_PINNED},
                 {"Device Static", MR_MEM_DEVICE_STATIC},
                 {"Device", MR_MEM_DEVICE},
                 {"Array", MR_MEM_ARRAY},
                 {"Managed Static", MR_MEM_MANAGED_STATIC},
                 {"Managed", MR_MEM_MANAGED}};
    for (size_t i = 0; i < MR_COUNT(kinds); i++)
        if (strncmp(text, kinds[i].text, strlen(kinds[i].text)) == 0)
            return kinds[i].kind;
    return MR_MEM_UNKNOWN;
}

static int put_copy(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    size_t n;
    const char *name = mr_json_string_of(event->name, k->name, MR_KINETO_NAME, &n);
    const char *bracket = strchr(name, '('), *arrow = bracket ? strstr(bracket, "-> ") : NULL;
    uint32_t device = mr_kineto_device(event);
    struct mr_json_text from = mr_json_member(event->args, "fromDevice"),
                        to = mr_json_member(event->args, "toDevice");
    struct mr_part_copy copy = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
        .bytes = bytes_of(event),
        .graph_node = number(event, "graph node id"),
        .graph = number32(event, "graph id"),
        .device = device,
        .context = number32(event, "context"),
        .stream = stream_of(event),
        .correlation = correlation_of(k, event),
        .src_device = from.n ? number32(event, "fromDevice") : device,
        .dst_device = to.n ? number32(event, "toDevice") : device,
        .count = 1,
        .kind = copy_kind(name),
        .src_kind = bracket ? memory_kind(bracket + 1) : MR_MEM_UNKNOWN,
        .dst_kind = arrow ? memory_kind(arrow + 3) : MR_MEM_UNKNOWN,
    };
    return mr_store_put(k->store, MR_PART_COPY, &copy);
}

static int put_set(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    size_t n;
    const char *name = mr_json_string_of(event->name, k->name, MR_KINETO_NAME, &n);
    const char *bracket = strchr(name, '(');
    struct mr_part_set set = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
        .bytes = bytes_of(event),
        .graph_node = number(event, "graph node id"),
        .graph = number32(event, "graph id"),
        .device = mr_kineto_device(event),
        .context = number32(event, "context"),
        .stream = stream_of(event),
        .correlation = correlation_of(k, event),
        .kind = bracket ? memory_kind(bracket + 1) : MR_MEM_UNKNOWN,
    };
    return mr_store_put(k->store, MR_PART_SET, &set);
}

static uint32_t sync_type(const char *name)
{
    return strstr(name, "Wait Event") || strstr(name, "Stream Wait") ? 2
           : strstr(name, "Event")                                   ? 1
           : strstr(name, "Stream")                                  ? 3
           : strstr(name, "Context") || strstr(name, "Device")       ? 4
                                                                     : 0;
}

static int put_sync(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    size_t n;
    const char *name = mr_json_string_of(event->name, k->name, MR_KINETO_NAME, &n);
    struct mr_part_sync sync = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
        .type = sync_type(name),
        .context = number32(event, "context"),
        .stream = stream_of(event),
        .event = number32(event, "wait_on_cuda_event_id"),
        .correlation = correlation_of(k, event),
    };
    return mr_store_put(k->store, MR_PART_SYNC, &sync);
}

static int put_call(struct mr_kineto *k, const struct mr_kineto_event *event, uint32_t tid)
{
    struct mr_part_api call = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
        .correlation = correlation_of(k, event),
        .tid = tid,
        .class = event->kind == MR_KINETO_DRIVER ? MR_PART_DRIVER : MR_PART_RUNTIME,
        .cbid = number32(event, "cbid"),
    };
    int rc = name_of(k, event->name, &call.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_API, &call);
}

/* An end of 0 would be an open range, but no absolute time is 0. */
static int put_range(struct mr_kineto *k, const struct mr_kineto_event *event, uint32_t tid)
{
    struct mr_part_range range = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
        .domain = event->kind == MR_KINETO_OP ? k->ops_domain : 0,
        .tid = tid,
        .type = MR_RANGE_PUSH_POP,
    };
    int rc = name_of(k, event->name, &range.text);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_RANGE, &range);
}

/* Kineto's names of CUPTI's kinds of overhead. */
static int put_overhead(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    static const char *const kinds[] = {"",
                                        "Buffer Flush",
                                        "Instrumentation",
                                        "Resource",
                                        "Runtime Triggered Module Loading",
                                        "Lazy Function Loading",
                                        "Command Buffer Full",
                                        "Activity Buffer Request",
                                        "UVM Activity Init"};
    size_t n;
    const char *name = mr_json_string_of(event->name, k->name, MR_KINETO_NAME, &n);
    struct mr_part_overhead overhead = {
        .start_ns = absolute(k, event->start_ns),
        .end_ns = absolute(k, event->end_ns),
    };
    for (uint32_t i = 1; i < MR_COUNT(kinds); i++)
        if (strcmp(name, kinds[i]) == 0)
            overhead.kind = i << 16;
    return mr_store_put(k->store, MR_PART_OVERHEAD, &overhead);
}

/* "thread 891 (pt_autograd_0)", of which the part in brackets is the thread's name. */
static int put_thread_name(struct mr_kineto *k, const struct mr_kineto_event *event, uint32_t host)
{
    size_t n;
    const char *what = mr_json_string_of(event->name, k->name, MR_KINETO_NAME, &n);
    struct mr_part_thread thread = {0};
    if (strcmp(what, "thread_name") != 0)
        return 0;
    int rc = thread_of(k, host, event->tid, &thread.tid);
    if (rc < 0)
        return rc;
    const char *name =
        mr_json_string_of(mr_json_member(event->args, "name"), k->name, MR_KINETO_NAME, &n);
    const char *bracket = strncmp(name, "thread ", 7) == 0 ? strchr(name, '(') : NULL;
    if (bracket && n > 1 && name[n - 1] == ')') {
        n = (size_t)(name + n - 1 - (bracket + 1));
        name = bracket + 1;
    }
    rc = mr_store_text(k->store, name, n, &thread.name);
    return rc < 0 || n == 0 ? rc : mr_store_put(k->store, MR_PART_THREAD, &thread);
}

static int put_of_host(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    uint32_t host = mr_kineto_host(k, event->pid), tid = 0;
    if (host == MR_NONE)
        return -ENOMEM;
    if (k->hosts[host].n_calls + k->hosts[host].n_ranges == 0) /* names of a device's "process" */
        return 0;
    mr_import_process(k->store, k->hosts[host].pid);
    if (event->kind == MR_KINETO_NAMES)
        return put_thread_name(k, event, host);
    int rc = thread_of(k, host, event->tid, &tid);
    if (rc < 0)
        return rc;
    return event->kind == MR_KINETO_RUNTIME || event->kind == MR_KINETO_DRIVER
               ? put_call(k, event, tid)
               : put_range(k, event, tid);
}

int mr_kineto_put(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    if (event->kind > MR_KINETO_NAMES)
        return 0;
    if (!mr_kineto_of_device(event->kind) && event->kind != MR_KINETO_OVERHEAD)
        return put_of_host(k, event);
    mr_import_process(k->store, k->main == MR_NONE ? 1 : k->hosts[k->main].pid);
    switch (event->kind) {
    case MR_KINETO_KERNEL:
        return put_kernel(k, event);
    case MR_KINETO_COPY:
        return put_copy(k, event);
    case MR_KINETO_SET:
        return put_set(k, event);
    case MR_KINETO_SYNC:
        return put_sync(k, event);
    default:
        return put_overhead(k, event);
    }
}
