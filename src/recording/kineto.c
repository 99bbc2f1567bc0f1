/*
 * Kineto traces, as torch.profiler writes them: JSON, plain or gzip. Two readings: the first one
 * finds what must be known before a record is written, the second one writes them.
 */
#include "recording/kineto.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

/* ---- the devices ---- */

static uint64_t member_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    double value = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return value > 0 && value < 1e18 ? (uint64_t)value : 0;
}

static int put_device(struct mr_kineto *k, const cJSON *item)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(item, "id"),
                *name = cJSON_GetObjectItemCaseSensitive(item, "name");
    struct mr_part_device device = {
        .device = (uint32_t)MR_MIN(member_of(item, "id"), (uint64_t)UINT32_MAX),
        .major = (uint32_t)MR_MIN(member_of(item, "computeMajor"), (uint64_t)UINT32_MAX),
        .minor = (uint32_t)MR_MIN(member_of(item, "computeMinor"), (uint64_t)UINT32_MAX),
        .n_sms = (uint32_t)MR_MIN(member_of(item, "numSms"), (uint64_t)UINT32_MAX),
        .memory_bytes = member_of(item, "totalGlobalMem"),
    };
    if (!cJSON_IsNumber(id) || device.device >= MR_KINETO_DEVICES || !k->device_used[device.device])
        return 0;
    const char *text = cJSON_IsString(name) ? name->valuestring : "";
    int rc = mr_store_text(k->store, text, strlen(text), &device.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_DEVICE, &device);
}

int mr_kineto_put_devices(struct mr_kineto *k)
{
    cJSON *list = k->devices ? cJSON_ParseWithLength(k->devices, k->devices_bytes) : NULL;
    const cJSON *item;
    int rc = 0;
    cJSON_ArrayForEach(item, list)
    {
        rc = put_device(k, item);
        if (rc < 0)
            break;
    }
    cJSON_Delete(list);
    return rc;
}

/* ---- the file ---- */

static int put_events(struct mr_kineto *k)
{
    struct mr_json_stream *in;
    struct mr_json_item item;
    int rc = mr_json_stream_open(k->path, "traceEvents", &in);
    if (rc < 0)
        return rc;
    while ((rc = mr_json_stream_next(in, &item)) == 1) {
        struct mr_kineto_event event;
        if (item.name.at)
            continue;
        mr_kineto_parse(item.value, &event);
        if (event.kind < MR_KINETO_NAMES && mr_kineto_is_repeat(k, item.value))
            continue;
        rc = mr_kineto_put(k, &event);
        if (rc < 0)
            break;
    }
    mr_json_stream_close(in);
    return rc;
}

/* Absolute times are those of CLOCK_REALTIME; 0 would mean "none". */
static void set_origin(struct mr_kineto *k)
{
    int64_t unix_ns = k->base_ns + k->first_ns;
    uint64_t origin = unix_ns > 0 ? (uint64_t)unix_ns : 1;
    mr_store_origin(k->store, origin, origin);
}

static uint64_t after_origin(const struct mr_kineto *k, int64_t ns)
{
    return k->store->origin_ns + (uint64_t)(ns - k->first_ns);
}

static int put_note(struct mr_kineto *k, const char *name, int64_t value)
{
    struct mr_part_note note = {.value = value};
    int rc = mr_store_text(k->store, name, strlen(name), &note.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_NOTE, &note);
}

static int begin_process(struct mr_kineto *k)
{
    const struct mr_kineto_host *host = k->main == MR_NONE ? NULL : &k->hosts[k->main];
    struct mr_part_header header = {
        .version = MR_PART_VERSION,
        .pid = host ? host->pid : 1,
        .start_ns = k->store->origin_ns,
        .start_unix_ns = k->store->origin_unix_ns,
    };
    for (int i = MR_KINETO_KERNEL; i <= MR_KINETO_SYNC; i++)
        header.traced |= k->n[i] ? MR_TRACE_CUDA : 0;
    header.traced |= k->n[MR_KINETO_RANGE] + k->n[MR_KINETO_OP] ? MR_TRACE_NVTX : 0;
    struct mr_part_process process = {0};
    int rc = mr_store_process(k->store, &header);
    if (rc < 0)
        return rc;
    const char *name = host ? host->name : "";
    rc = mr_store_text(k->store, name, strlen(name), &process.command);
    if (rc < 0)
        return rc;
    rc = mr_store_put(k->store, MR_PART_PROCESS, &process);
    if (rc < 0)
        return rc;
    return mr_store_text(k->store, MR_IMPORT_OPS, strlen(MR_IMPORT_OPS), &k->ops_domain);
}

static int put_other_processes(struct mr_kineto *k)
{
    for (uint32_t i = 0; i < k->n_hosts; i++) {
        const struct mr_kineto_host *host = &k->hosts[i];
        if (i == k->main || host->n_calls + host->n_ranges == 0)
            continue;
        int rc =
            mr_import_process_row(k->store, host->pid, host->name, after_origin(k, host->first_ns),
                                  after_origin(k, host->last_ns));
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- what is told ---- */

/* What a reader of this file would miss, or not: the latter is no warning. */
static int put_left_out(struct mr_kineto *k)
{
    char wrong[400] = "", usual[400] = "";
    mr_import_count(wrong, sizeof wrong, k->n[MR_KINETO_NO_TIME], "without a time or a duration");
    mr_import_count(wrong, sizeof wrong, k->n[MR_KINETO_NEGATIVE], "with a negative duration");
    mr_import_count(wrong, sizeof wrong, k->n[MR_KINETO_PHASE], "of an unknown phase");
    mr_import_count(wrong, sizeof wrong, k->n[MR_KINETO_CATEGORY], "of an unknown category");
    mr_import_count(wrong, sizeof wrong, k->n[MR_KINETO_NO_EVENT], "that are no objects");
    mr_import_count(wrong, sizeof wrong, k->n_too_large, "of more than 16 MiB");
    mr_import_count(wrong, sizeof wrong, k->events.n_too_many, "that repeat another word for word");
    mr_import_count(usual, sizeof usual, k->n[MR_KINETO_PYTHON], "Python functions");
    mr_import_count(usual, sizeof usual, k->n[MR_KINETO_MEMORY],
                    "allocations of PyTorch's own allocator");
    mr_import_count(usual, sizeof usual, k->n[MR_KINETO_REDUNDANT],
                    "flows, marks and annotations of the GPU that repeat other events");
    return mr_import_left_out(k->store, k->path, wrong, usual);
}

static int put_damage(struct mr_kineto *k)
{
    char line[400];
    if (!k->damage)
        return 0;
    snprintf(line, sizeof line, "only the events before the damage are read: %s", k->damage);
    mr_log(MR_LOG_WARNING, "%s: %s", k->path, line);
    return mr_import_note(k->store, "warning", line);
}

static int put_ambiguous(struct mr_kineto *k)
{
    char line[200];
    if (k->calls.n_too_many == 0)
        return 0;
    snprintf(line, sizeof line,
             "%llu call%s the correlation id of another call: what was launched under such an id "
             "is taken for work without a launch",
             (unsigned long long)k->calls.n_too_many, k->calls.n_too_many == 1 ? " has" : "s have");
    mr_log(MR_LOG_WARNING, "%s: %s", k->path, line);
    return mr_import_note(k->store, "warning", line);
}

static int put_meta(struct mr_kineto *k)
{
    int rc = mr_import_source(k->store, "Kineto trace");
    if (rc < 0)
        return rc;
    rc = k->rank >= 0 ? mr_store_meta(k->store, "rank", k->rank) : 0;
    if (rc < 0)
        return rc;
    rc = k->world_size > 0 ? mr_store_meta(k->store, "world_size", k->world_size) : 0;
    if (rc < 0)
        return rc;
    uint64_t n_work = k->n[MR_KINETO_KERNEL] + k->n[MR_KINETO_COPY] + k->n[MR_KINETO_SET];
    rc = n_work > 0 ? 0
                    : mr_import_note(k->store, "no_cuda",
                                     "this Kineto trace has no kernels, copies or memsets "
                                     "(ProfilerActivity.CUDA records them)");
    if (rc < 0)
        return rc;
    rc = put_damage(k);
    if (rc < 0)
        return rc;
    rc = put_ambiguous(k);
    return rc < 0 ? rc : put_left_out(k);
}

static int write_all(struct mr_kineto *k)
{
    set_origin(k);
    int rc = begin_process(k);
    if (rc < 0)
        return rc;
    rc = mr_kineto_put_devices(k);
    if (rc < 0)
        return rc;
    rc = put_events(k);
    if (rc < 0)
        return rc;
    mr_import_process(k->store, k->store->now->header.pid);
    rc = put_note(k, "exit", (int64_t)after_origin(k, k->last_ns));
    if (rc < 0)
        return rc;
    rc = k->rank >= 0 ? put_note(k, "rank", k->rank) : 0;
    if (rc < 0)
        return rc;
    rc = k->world_size > 0 ? put_note(k, "world_size", k->world_size) : 0;
    if (rc < 0)
        return rc;
    rc = put_other_processes(k);
    return rc < 0 ? rc : put_meta(k);
}

int mr_kineto_import(const char *path, struct sqlite3 **out)
{
    struct mr_kineto k = {.path = path, .name = malloc(MR_KINETO_NAME)};
    int rc = k.name ? mr_kineto_survey(&k) : mr_error_nomem(path, MR_KINETO_NAME);
    if (rc < 0)
        goto end;
    rc = mr_store_create_unnamed(path, &k.store);
    if (rc < 0)
        goto end;
    rc = write_all(&k);
    if (rc < 0)
        goto abandon;
    rc = mr_store_finish_unnamed(k.store, out);
    goto end;
abandon:
    mr_store_abandon(k.store);
end:
    mr_kineto_free_set(&k.events);
    mr_kineto_free_set(&k.calls);
    mr_map_free(&k.pids);
    mr_map_free(&k.tids);
    free(k.hosts);
    free(k.devices);
    free(k.damage);
    free(k.name);
    return rc;
}
