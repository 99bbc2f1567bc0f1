/* Kineto: an event's parts. */
#include "recording/kineto.h"

#include <string.h>

static const struct {
    const char *category;
    enum mr_kineto_kind kind;
} categories[] = {
    {"kernel", MR_KINETO_KERNEL},
    {"gpu_memcpy", MR_KINETO_COPY},
    {"gpu_memset", MR_KINETO_SET},
    {"cuda_runtime", MR_KINETO_RUNTIME},
    {"cuda_driver", MR_KINETO_DRIVER},
    {"cuda_sync", MR_KINETO_SYNC},
    {"user_annotation", MR_KINETO_RANGE},
    {"cpu_op", MR_KINETO_OP},
    {"overhead", MR_KINETO_OVERHEAD},
    {"gpu_user_annotation", MR_KINETO_REDUNDANT},
    {"ac2g", MR_KINETO_REDUNDANT},
    {"Trace", MR_KINETO_REDUNDANT},
    {"python_function", MR_KINETO_PYTHON},
    /* PyTorch 1.8 */
    {"Kernel", MR_KINETO_KERNEL},
    {"Memcpy", MR_KINETO_COPY},
    {"Memset", MR_KINETO_SET},
    {"Runtime", MR_KINETO_RUNTIME},
    {"Operator", MR_KINETO_OP},
};

bool mr_kineto_of_device(enum mr_kineto_kind kind)
{
    return kind == MR_KINETO_KERNEL || kind == MR_KINETO_COPY || kind == MR_KINETO_SET ||
           kind == MR_KINETO_SYNC;
}

static enum mr_kineto_kind kind_of(struct mr_json_text category)
{
    for (size_t i = 0; i < MR_COUNT(categories); i++)
        if (mr_json_is(category, categories[i].category))
            return categories[i].kind;
    return MR_KINETO_CATEGORY;
}

static struct mr_json_text bare(struct mr_json_text text)
{
    if (text.n >= 2 && text.at[0] == '"')
        return (struct mr_json_text){text.at + 1, text.n - 2};
    return text;
}

static enum mr_kineto_kind kind_by_phase(struct mr_json_text phase, struct mr_json_text category)
{
    static const char *const redundant = "stfi"; /* flows, instants */
    if (mr_json_is(phase, "X"))
        return kind_of(category);
    if (mr_json_is(phase, "M"))
        return MR_KINETO_NAMES;
    if (mr_json_is(phase, "i") && mr_json_is(category, "cpu_instant_event"))
        return MR_KINETO_MEMORY;
    if (phase.n == 1 && strchr(redundant, *phase.at))
        return MR_KINETO_REDUNDANT;
    return MR_KINETO_PHASE;
}

#define MOST_NS (INT64_MAX / 4) /* the year 2043; sums of three do not overflow */

static bool time_of(struct mr_json_text text, int64_t *out)
{
    return text.n > 0 && mr_json_scaled(text, 3, out) && *out<MOST_NS && * out> - MOST_NS;
}

void mr_kineto_parse(struct mr_json_text text, struct mr_kineto_event *event)
{
    struct mr_json_text key, value, ts = {0}, dur = {0}, phase = {0};
    *event = (struct mr_kineto_event){.kind = MR_KINETO_NO_EVENT};
    if (text.n == 0 || *text.at != '{')
        return;
    const struct {
        const char *name;
        struct mr_json_text *to;
    } parts[] = {{"ph", &phase},       {"cat", &event->category}, {"name", &event->name},
                 {"pid", &event->pid}, {"tid", &event->tid},      {"ts", &ts},
                 {"dur", &dur},        {"args", &event->args}};
    while (mr_json_next_member(&text, &key, &value))
        for (size_t i = 0; i < MR_COUNT(parts); i++)
            if (mr_json_is(key, parts[i].name))
                *parts[i].to = value;
    event->category = bare(event->category);
    event->pid = bare(event->pid);
    event->tid = bare(event->tid);
    event->kind = kind_by_phase(bare(phase), event->category);
    if (event->kind >= MR_KINETO_NAMES)
        return;
    int64_t length;
    if (!time_of(ts, &event->start_ns) || !time_of(dur, &length)) {
        event->kind = MR_KINETO_NO_TIME;
    } else if (length < 0) {
        event->kind = MR_KINETO_NEGATIVE;
    } else {
        event->end_ns = event->start_ns + length;
    }
}

uint32_t mr_kineto_correlation(const struct mr_kineto_event *event)
{
    uint64_t id;
    bool known = mr_json_u64(mr_json_member(event->args, "correlation"), &id);
    return known ? (uint32_t)MR_MIN(id, (uint64_t)UINT32_MAX) : 0;
}

uint32_t mr_kineto_device(const struct mr_kineto_event *event)
{
    uint64_t device;
    struct mr_json_text named = mr_json_member(event->args, "device");
    if (!mr_json_u64(named.n ? named : event->pid, &device))
        return 0;
    return (uint32_t)MR_MIN(device, UINT32_MAX - 1u);
}

#define MOST_HOSTS 4096 /* a file that names more is made up */

uint32_t mr_kineto_host(struct mr_kineto *k, struct mr_json_text pid)
{
    bool is_new;
    uint64_t number = 0, key = mr_mix64(mr_hash(MR_HASH_START, pid.at ? pid.at : "", pid.n));
    if (k->n_hosts == MOST_HOSTS) {
        const uint32_t *known = mr_map_find(&k->pids, key);
        return known ? *known : MOST_HOSTS - 1;
    }
    uint32_t *host = mr_map_at(&k->pids, key, (uint32_t)k->n_hosts, &is_new);
    if (!host)
        return MR_NONE;
    if (!is_new)
        return *host;
    if (mr_grow(k->path, &k->hosts, &k->capacity, k->n_hosts + 1, sizeof *k->hosts) < 0)
        return MR_NONE;
    struct mr_kineto_host *made = &k->hosts[k->n_hosts];
    *made = (struct mr_kineto_host){.first_ns = INT64_MAX, .last_ns = INT64_MIN};
    snprintf(made->pid_text, sizeof made->pid_text, "%.*s", (int)MR_MIN(pid.n, 31u),
             pid.at ? pid.at : "");
    bool natural = mr_json_u64(pid, &number) && number > 0 && number < MR_KINETO_ODD;
    made->pid = natural ? (uint32_t)number : MR_KINETO_ODD + ((uint32_t)k->n_hosts);
    return (uint32_t)k->n_hosts++;
}
