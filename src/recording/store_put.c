/* Records into rows: what is more than a row of its own table. */
#include "recording/store.h"
#include "recording/symbols.h"

#include <errno.h>
#include <string.h>

/* Rows that say what a domain or a category is called, once for each. */
static int declare(struct mr_store *store, uint64_t key, int type, uint32_t category, uint32_t name,
                   uint32_t domain)
{
    bool is_new;
    if (!mr_map_at(&store->declared, mr_mix64(key + (uint64_t)type) ^ store->now->number, 0,
                   &is_new))
        return -ENOMEM;
    if (!is_new)
        return 0;
    int rc = mr_store_widen(store, MR_PART_RANGE, "category");
    if (rc < 0)
        return rc;
    rc = mr_store_flush(store, MR_PART_RANGE); /* rows stay in their order */
    return rc < 0 ? rc
                  : mr_store_run(store,
                                 "INSERT INTO NVTX_EVENTS (start, \"end\", eventType, category, "
                                 "globalTid, textId, domainId) VALUES (0, NULL, ?, ?, ?, ?, ?)",
                                 "iiiii", (int64_t)type, (int64_t)category,
                                 mr_store_thread(store->now->number, 0), (int64_t)name,
                                 (int64_t)domain);
}

/* The last column that the range needs of those that few do; NULL: none. */
static const char *last_column(const struct mr_part_range *range)
{
    return range->payload_type              ? "floatValue"
           : mr_store_ends_elsewhere(range) ? "endGlobalTid"
           : range->id                      ? "rangeId"
           : range->color                   ? "color"
           : range->category                ? "category"
                                            : NULL;
}

static int range_put(struct mr_store *store, const struct mr_part_range *range)
{
    const char *last = last_column(range);
    int rc = last ? mr_store_widen(store, MR_PART_RANGE, last) : 0;
    if (rc < 0)
        return rc;
    if (range->domain)
        rc = declare(store, range->domain, MR_RANGE_DOMAIN, 0, range->domain, range->domain);
    if (rc < 0)
        return rc;
    if (range->category && range->category_name)
        rc = declare(store, (uint64_t)range->domain << 32 | range->category, MR_RANGE_CATEGORY,
                     range->category, range->category_name, range->domain);
    return rc < 0 ? rc : mr_store_put_row(store, MR_PART_RANGE, range);
}

#define N_SEEN (1u << 21) /* about as many texts are known again */

/* Whether such a text came before; if others took its place since, it is forgotten. */
static bool seen_before(struct mr_store *store, const char *text, size_t bytes)
{
    uint64_t hash = mr_hash(MR_HASH_START, text, bytes);
    uint32_t *seen = &store->seen[hash & (N_SEEN - 1)], mark = (uint32_t)(hash >> 32) | 1;
    bool known = *seen == mark;
    *seen = mark;
    return known;
}

/* In StringIds a text takes some 9 bytes more than in its row, and 4 in each other row. */
int mr_store_put_range(struct mr_store *store, const struct mr_part_range *range, const char *text,
                       size_t bytes)
{
    struct mr_part_range numbered = *range;
    if (!store->seen && !(store->seen = calloc(N_SEEN, sizeof(*store->seen))))
        return mr_error_nomem(store->path, N_SEEN * sizeof(*store->seen));
    if (!mr_text_is_clean(text, bytes) || seen_before(store, text, bytes)) {
        int rc = mr_store_text(store, text, bytes, &numbered.text);
        return rc < 0 ? rc : mr_store_put(store, MR_PART_RANGE, &numbered);
    }
    store->text = text;
    store->text_bytes = bytes;
    int rc = mr_store_put(store, MR_PART_RANGE, &numbered);
    store->text = NULL;
    return rc;
}

static const char *text_of(const struct mr_store *store, uint32_t number)
{
    return store->texts.text[number < store->texts.n ? number : 0];
}

/* A device is known by its uuid, or where that is all 0 by its number; each process numbers the
 * devices that it sees. */
static int device_put(struct mr_store *store, const struct mr_part_device *device)
{
    static const uint8_t none[16];
    char uuid[48], bus[32];
    const uint8_t *u = device->uuid;
    bool known = memcmp(u, none, sizeof(none)) != 0;
    bool on_bus = device->pcie_domain || device->pcie_bus || device->pcie_device;
    uint64_t key = known ? mr_hash(MR_HASH_START, u, 16) : device->device;
    snprintf(uuid, sizeof(uuid),
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    snprintf(bus, sizeof(bus), "%04x:%02x:%02x.0", device->pcie_domain, device->pcie_bus,
             device->pcie_device);
    bool is_new;
    uint32_t *id = mr_map_at(&store->devices, key, (uint32_t)store->devices.n, &is_new);
    if (!id || !mr_map_at(&store->now->gpus, device->device, *id, NULL))
        return -ENOMEM;
    int rc = 0;
    if (is_new)
        rc = mr_store_run(store,
                          "INSERT INTO TARGET_INFO_GPU (vmId, id, name, busLocation, isDiscrete, "
                          "totalMemory, memoryBandwidth,"
                          " clockRate, smCount, uuid, cuDevice, asyncEngines, computeMajor, "
                          "computeMinor, smMajor, smMinor)"
                          " VALUES (0, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                          "ittiiiitiiiiii", (int64_t)*id, text_of(store, device->name),
                          on_bus ? bus : NULL, (int64_t)device->memory_bytes,
                          (int64_t)device->memory_bandwidth, (int64_t)device->core_clock_khz * 1000,
                          (int64_t)device->n_sms, known ? uuid : NULL, (int64_t)device->device,
                          (int64_t)device->n_copy_engines, (int64_t)device->major,
                          (int64_t)device->minor, (int64_t)device->major, (int64_t)device->minor);
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?, ?, ?)",
                        "iiiti", (int64_t)*id, (int64_t)device->device,
                        (int64_t)store->now->header.pid, known ? uuid : NULL,
                        (int64_t)device->n_sms);
}

static int context_put(struct mr_store *store, const struct mr_part_context *context)
{
    uint32_t *device = mr_map_at(&store->now->contexts, context->context, context->device, NULL);
    if (!device)
        return -ENOMEM;
    *device = context->device;
    return mr_store_run(store,
                        "INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO VALUES (?, 0, 0, ?, ?, ?, ?, ?)",
                        "iiiiii", (int64_t)context->null_stream, (int64_t)store->now->header.pid,
                        (int64_t)context->device, (int64_t)context->context,
                        (int64_t)context->green_parent, (int64_t)(context->green_parent != 0));
}

/* A sample of a device is the export's; of a process, ours. */
static int metric_put(struct mr_store *store, const struct mr_part_metric *metric)
{
    int64_t time = mr_store_time(store, metric->time_ns);
    store->now->end_ns = MR_MAX(store->now->end_ns, (uint64_t)time);
    sqlite3_stmt **statement = &store->insert_counter;
    const uint32_t *known = mr_map_find(&store->now->gpus, metric->device);
    uint32_t gpu = known ? *known : metric->device;
    if (metric->device != UINT32_MAX) {
        bool is_new;
        if (!mr_map_at(&store->declared, mr_mix64((uint64_t)gpu << 32 | metric->name), 0, &is_new))
            return -ENOMEM;
        int rc =
            is_new
                ? mr_store_run(
                      store, "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, 'millrace', ?, ?)",
                      "iit", (int64_t)gpu, (int64_t)metric->name, text_of(store, metric->name))
                : 0;
        if (rc < 0)
            return rc;
        statement = &store->insert_metric;
    }
    if (!*statement &&
        sqlite3_prepare_v2(store->db,
                           metric->device == UINT32_MAX
                               ? "INSERT INTO MILLRACE_COUNTERS VALUES (?1, ?2, ?3, ?4)"
                               : "INSERT INTO GPU_METRICS VALUES (NULL, ?1, ?2, ?3, ?4)",
                           -1, statement, NULL))
        return mr_store_error(store, "counters");
    sqlite3_bind_int64(*statement, 1, time);
    sqlite3_bind_int64(*statement, 2,
                       metric->device == UINT32_MAX ? (int64_t)(store->now->number << 24)
                                                    : (int64_t)gpu);
    sqlite3_bind_int64(*statement, 3, metric->name);
    sqlite3_bind_double(*statement, 4, metric->value == metric->value ? metric->value : 0);
    return mr_store_step(store, *statement);
}

static int note_put(struct mr_store *store, const struct mr_part_note *note)
{
    const char *name = text_of(store, note->name);
    int64_t value = note->value;
    if (!strcmp(name, "exit") || !strcmp(name, "capture_start") || !strcmp(name, "capture_stop"))
        value = mr_store_time(store, value > 0 ? (uint64_t)value : store->origin_ns);
    if (!strcmp(name, "exit")) {
        store->now->has_exit = true;
        store->now->exit_ns = (uint64_t)value;
    } else if (!strcmp(name, "dropped") && value > 0) {
        store->n_dropped += (uint64_t)value;
    }
    int rc = 0;
    if (!strcmp(name, "warning"))
        rc = mr_store_run(store, "INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 0, 0, 2, ?, ?)", "ti",
                          text_of(store, note->text), (int64_t)(store->now->number << 24));
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO MILLRACE_NOTES VALUES (?, ?, ?, ?)", "iiii",
                        (int64_t)(store->now->number << 24), (int64_t)note->name,
                        (int64_t)note->text, value);
}

static int place_text(struct mr_store *store, const char *text, uint32_t *out)
{
    return mr_store_text(store, text, strlen(text), out);
}

/* A place in a module is one frame, or several where functions were inlined: those between get the
 * numbers below the record's. */
static int stack_put(struct mr_store *store, const struct mr_part_stack *record)
{
    struct mr_symbol frames[MR_PART_C_STACK_STEP];
    struct mr_part_stack row = *record;
    if (!record->is_c || !record->file)
        return mr_store_put_row(store, MR_PART_STACK, record);
    if (!store->symbols && !(store->symbols = mr_symbols_create()))
        return mr_error_nomem("symbols", 0);
    row.module = record->file;
    uint32_t n = mr_symbols_find(store->symbols, text_of(store, record->file),
                                 text_of(store, record->build_id), record->address, frames,
                                 MR_COUNT(frames));
    for (uint32_t i = n; i-- > 0;) { /* the outermost first */
        row.id = record->id - i;
        row.line = frames[i].line;
        struct mr_store_name names = {0};
        int rc = place_text(store, frames[i].function, &row.function);
        if (rc == 0)
            rc = mr_store_kernel_names(store, row.function, &names);
        if (rc == 0)
            rc = place_text(store, frames[i].file, &row.file);
        if (rc < 0)
            return rc;
        row.function = names.demangled;
        rc = mr_store_put_row(store, MR_PART_STACK, &row);
        if (rc < 0)
            return rc;
        row.parent = row.id;
    }
    return 0;
}

int mr_store_put(struct mr_store *store, enum mr_part_type type, const void *record)
{
    if (!store->now)
        return mr_error_set(MR_EMISUSE, "%s: a record before mr_store_process()", store->path);
    struct mr_store_name names;
    int rc;
    store->n_records++;
    switch (type) {
    case MR_PART_RANGE:
        return range_put(store, record);
    case MR_PART_DEVICE:
        return device_put(store, record);
    case MR_PART_CONTEXT:
        return context_put(store, record);
    case MR_PART_METRIC:
        return metric_put(store, record);
    case MR_PART_NOTE:
        return note_put(store, record);
    case MR_PART_PROCESS:
        store->now->command =
            MR_MIN(((const struct mr_part_process *)record)->command, store->texts.n - 1);
        store->now->executable =
            MR_MIN(((const struct mr_part_process *)record)->executable, store->texts.n - 1);
        return 0;
    case MR_PART_KERNEL: /* its names get their numbers now, not when the row is put */
        rc = mr_store_kernel_names(store, ((const struct mr_part_kernel *)record)->name, &names);
        return rc < 0 ? rc : mr_store_put_row(store, type, record);
    case MR_PART_STACK:
        return stack_put(store, record);
    default:
        if (!store->batch[type].table)
            return mr_error_set(MR_EMISUSE, "%s: records of type %d cannot be stored", store->path,
                                (int)type);
        return mr_store_put_row(store, type, record);
    }
}
