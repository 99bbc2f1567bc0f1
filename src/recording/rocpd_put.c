/* rocpd: a row of an event as a record. */
#include "recording/rocpd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

/* ---- what all rows have ---- */

/* Calls of HSA come within one of HIP, which is the one that people wrote. */
static uint32_t outermost(const struct mr_rocpd *k, uint32_t host, int64_t call)
{
    const uint32_t *parent;
    for (int hops = 0; hops < 32 && (parent = mr_map_find(&k->parents, mr_rocpd_key(host, call)));
         hops++)
        call = *parent;
    return (uint32_t)call;
}

static bool has_times(struct mr_rocpd *k, sqlite3_stmt *stmt)
{
    int64_t start = sqlite3_column_int64(stmt, MR_ROCPD_START),
            end = sqlite3_column_int64(stmt, MR_ROCPD_END);
    bool none = sqlite3_column_type(stmt, MR_ROCPD_START) != SQLITE_INTEGER ||
                sqlite3_column_type(stmt, MR_ROCPD_END) != SQLITE_INTEGER,
         negative = !none && (start < 0 || end < start || end > INT64_MAX / 4);
    k->n[MR_ROCPD_NO_TIME] += none;
    k->n[MR_ROCPD_NEGATIVE] += negative;
    return !none && !negative;
}

/* Returns 1: the row is taken, and its process selected; 0: it is left out, or of another node; or
 * an error. */
static int take(struct mr_rocpd *k, uint32_t set, sqlite3_stmt *stmt, struct mr_rocpd_row *row)
{
    uint32_t host = mr_rocpd_host(k, set, sqlite3_column_int64(stmt, MR_ROCPD_PID));
    if (host == MR_NONE)
        return -ENOMEM;
    struct mr_rocpd_host *of = &k->hosts[host];
    if (of->node != k->node || !of->process || !has_times(k, stmt))
        return 0;
    int64_t thread = sqlite3_column_int64(stmt, MR_ROCPD_TID),
            start = sqlite3_column_int64(stmt, MR_ROCPD_START),
            end = sqlite3_column_int64(stmt, MR_ROCPD_END);
    const uint32_t *tid = mr_map_find(&k->tid_of, mr_rocpd_key(set, thread));
    *row = (struct mr_rocpd_row){.stmt = stmt,
                                 .set = set,
                                 .host = host,
                                 .tid = tid ? *tid : (uint32_t)(thread & 0xffffff),
                                 .correlation =
                                     outermost(k, host, sqlite3_column_int64(stmt, MR_ROCPD_STACK)),
                                 .start_ns = (uint64_t)start,
                                 .end_ns = (uint64_t)end};
    of->last_ns = MR_MAX(of->last_ns, end);
    mr_store_select(k->store, of->process);
    return 1;
}

static uint64_t number(const struct mr_rocpd_row *row, int column)
{
    int64_t value = sqlite3_column_int64(row->stmt, MR_ROCPD_OWN + column);
    return value > 0 ? (uint64_t)value : 0;
}

static uint32_t number32(const struct mr_rocpd_row *row, int column)
{
    return (uint32_t)MR_MIN(number(row, column), (uint64_t)UINT32_MAX);
}

static const char *text(const struct mr_rocpd_row *row, int column)
{
    const char *value = (const char *)sqlite3_column_text(row->stmt, MR_ROCPD_OWN + column);
    return value ? value : "";
}

/* NULL: the column names none. */
static const struct mr_rocpd_agent *agent(const struct mr_rocpd *k, const struct mr_rocpd_row *row,
                                          int column)
{
    if (sqlite3_column_type(row->stmt, MR_ROCPD_OWN + column) == SQLITE_NULL)
        return NULL;
    const uint32_t *at =
        mr_map_find(&k->agent_of,
                    mr_rocpd_key(row->set, sqlite3_column_int64(row->stmt, MR_ROCPD_OWN + column)));
    return at ? &k->agents[*at] : NULL;
}

static void traces(struct mr_rocpd *k, const struct mr_rocpd_row *row, uint32_t what)
{
    k->hosts[row->host].process->header.traced |= what;
    k->store->traced |= what;
}

/* ---- work of devices ---- */

/* The runtime's memset is a kernel of its own; how much it sets is not recorded. */
static int put_set(struct mr_rocpd *k, const struct mr_rocpd_row *row, uint32_t device)
{
    struct mr_part_set set = {.start_ns = row->start_ns,
                              .end_ns = row->end_ns,
                              .bytes = UINT64_MAX,
                              .device = device,
                              .stream = number32(row, 1),
                              .correlation = row->correlation,
                              .kind = MR_MEM_DEVICE};
    return mr_store_put(k->store, MR_PART_SET, &set);
}

/* "_Z3addPf.kd", the object that describes the kernel _Z3addPf. */
static int kernel_name(struct mr_rocpd *k, const struct mr_rocpd_row *row, uint32_t *out)
{
    const char *symbol = text(row, 2), *shown = text(row, 3);
    size_t n = strlen(symbol);
    if (strncmp(symbol, "_Z", 2) != 0 && *shown)
        return mr_store_text(k->store, shown, strlen(shown), out);
    n -= n > 3 && strcmp(symbol + n - 3, ".kd") == 0 ? 3 : 0;
    return mr_store_text(k->store, symbol, n, out);
}

/* Grids are counted in work items there, in blocks here. */
static int put_kernel(struct mr_rocpd *k, const struct mr_rocpd_row *row)
{
    const struct mr_rocpd_agent *on = agent(k, row, 0);
    struct mr_part_kernel kernel = {.start_ns = row->start_ns,
                                    .end_ns = row->end_ns,
                                    .device = on ? on->device : 0,
                                    .stream = number32(row, 1),
                                    .correlation = row->correlation,
                                    .registers = number32(row, 4),
                                    .local_bytes = number32(row, 7)};
    traces(k, row, MR_TRACE_CUDA);
    k->n_kernels++;
    if (strstr(text(row, 2), "__amd_rocclr_fillBuffer") ||
        strstr(text(row, 3), "__amd_rocclr_fillBuffer"))
        return put_set(k, row, kernel.device);
    uint32_t shared = number32(row, 6), fixed = number32(row, 5);
    kernel.static_shared = MR_MIN(fixed, shared);
    kernel.dynamic_shared = shared - kernel.static_shared;
    for (int i = 0; i < 3; i++) {
        kernel.block[i] = number32(row, 8 + i);
        uint64_t block = MR_MAX(kernel.block[i], 1u);
        kernel.grid[i] = (uint32_t)((number32(row, 11 + i) + block - 1) / block);
    }
    int rc = kernel_name(k, row, &kernel.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_KERNEL, &kernel);
}

static uint8_t copy_kind(const struct mr_rocpd_agent *from, const struct mr_rocpd_agent *to,
                         const char *name)
{
    if (from && to && from->gpu && to->gpu)
        return from->device == to->device ? MR_COPY_D2D : MR_COPY_P2P;
    if (from && to)
        return from->gpu ? MR_COPY_D2H : to->gpu ? MR_COPY_H2D : MR_COPY_H2H;
    return strstr(name, "HOST_TO_DEVICE")     ? MR_COPY_H2D
           : strstr(name, "DEVICE_TO_HOST")   ? MR_COPY_D2H
           : strstr(name, "DEVICE_TO_DEVICE") ? MR_COPY_D2D
           : strstr(name, "HOST_TO_HOST")     ? MR_COPY_H2H
                                              : MR_COPY_UNKNOWN;
}

/* Whether the host's memory is pinned is not recorded. A copy to the host is the work of the GPU
 * that it comes from. */
static int put_copy(struct mr_rocpd *k, const struct mr_rocpd_row *row)
{
    const struct mr_rocpd_agent *to = agent(k, row, 0), *from = agent(k, row, 1),
                                *on = to && to->gpu ? to : from;
    uint8_t kind = copy_kind(from, to, text(row, 4));
    bool to_device = kind == MR_COPY_H2D || kind == MR_COPY_D2D || kind == MR_COPY_P2P,
         from_device = kind == MR_COPY_D2H || kind == MR_COPY_D2D || kind == MR_COPY_P2P,
         sized = sqlite3_column_type(row->stmt, MR_ROCPD_OWN + 3) == SQLITE_INTEGER;
    uint32_t device = on ? on->device : 0;
    struct mr_part_copy copy = {.start_ns = row->start_ns,
                                .end_ns = row->end_ns,
                                .bytes = sized ? number(row, 3) : UINT64_MAX,
                                .device = device,
                                .stream = number32(row, 2),
                                .correlation = row->correlation,
                                .src_device = from && from->gpu ? from->device : device,
                                .dst_device = to && to->gpu ? to->device : device,
                                .count = 1,
                                .kind = kind,
                                .src_kind = from_device ? MR_MEM_DEVICE : MR_MEM_UNKNOWN,
                                .dst_kind = to_device ? MR_MEM_DEVICE : MR_MEM_UNKNOWN};
    traces(k, row, MR_TRACE_CUDA);
    k->n_copies++;
    return mr_store_put(k->store, MR_PART_COPY, &copy);
}

/* A release may name neither an agent nor a size: both are those of the address. */
static int put_memory(struct mr_rocpd *k, const struct mr_rocpd_row *row)
{
    const char *type = text(row, 1);
    const struct mr_rocpd_agent *of = agent(k, row, 0);
    bool release = strcmp(type, "FREE") == 0 || strcmp(type, "RECLAIM") == 0;
    int64_t address = sqlite3_column_int64(row->stmt, MR_ROCPD_OWN + 2);
    if (address == 0) {
        k->n[MR_ROCPD_SCRATCH]++;
        return 0;
    }
    uint32_t *held = mr_map_at(&k->held, mr_rocpd_key(row->host, address), 0, NULL);
    if (!held)
        return -ENOMEM;
    if (release && !of && *held)
        of = &k->agents[*held - 1];
    *held = release || !of ? 0 : (uint32_t)(of - k->agents) + 1;
    struct mr_part_memory memory = {.time_ns = row->start_ns,
                                    .address = (uint64_t)address,
                                    .bytes = number(row, 3),
                                    .operation = release ? 2 : 1,
                                    .kind = !of       ? MR_MEM_UNKNOWN
                                            : of->gpu ? MR_MEM_DEVICE
                                                      : MR_MEM_PINNED,
                                    .device = of && of->gpu ? of->device : 0,
                                    .stream = number32(row, 4),
                                    .correlation = row->correlation,
                                    .tid = row->tid};
    return mr_store_put(k->store, MR_PART_MEMORY, &memory);
}

/* ---- what threads did ---- */

static int put_call(struct mr_rocpd *k, const struct mr_rocpd_row *row, bool hip)
{
    int64_t stack = sqlite3_column_int64(row->stmt, MR_ROCPD_STACK),
            parent = sqlite3_column_int64(row->stmt, MR_ROCPD_PARENT);
    struct mr_part_api call = {.start_ns = row->start_ns,
                               .end_ns = row->end_ns,
                               .correlation = (uint32_t)stack,
                               .tid = row->tid,
                               .class = hip ? MR_PART_RUNTIME : MR_PART_DRIVER};
    if (!hip && parent > 0 && parent != stack && parent <= UINT32_MAX &&
        !mr_map_at(&k->parents, mr_rocpd_key(row->host, stack), (uint32_t)parent, NULL))
        return -ENOMEM;
    traces(k, row, MR_TRACE_CUDA);
    k->n_calls++;
    int rc = mr_store_text(k->store, text(row, 0), strlen(text(row, 0)), &call.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_API, &call);
}

static int put_range(struct mr_rocpd *k, const struct mr_rocpd_row *row, const char *name,
                     uint32_t domain, uint16_t type)
{
    struct mr_part_range range = {.start_ns = row->start_ns,
                                  .end_ns = type == MR_RANGE_MARK ? 0 : row->end_ns,
                                  .domain = domain,
                                  .tid = row->tid,
                                  .type = type};
    traces(k, row, MR_TRACE_NVTX);
    int rc = mr_store_text(k->store, name, strlen(name), &range.text);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_RANGE, &range);
}

/* Of the text and the call of roctx one is the region's name, the other the event's "message":
 * which is which depends on the version. */
static int put_marker(struct mr_rocpd *k, const struct mr_rocpd_row *row)
{
    static const char *const others[] = {"roctxGetThreadId", "roctxName", "roctxProfiler"};
    cJSON *json = *text(row, 2) == '{' ? cJSON_Parse(text(row, 2)) : NULL;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "message");
    const char *name = text(row, 0), *message = cJSON_IsString(item) ? item->valuestring : "";
    bool swapped = strncmp(name, "roctx", 5) == 0 && strncmp(message, "roctx", 5) != 0;
    const char *call = swapped ? name : message, *shown = swapped ? message : name;
    bool left = false;
    for (size_t i = 0; i < MR_COUNT(others); i++)
        left = left || strncmp(call, others[i], strlen(others[i])) == 0 ||
               strncmp(shown, others[i], strlen(others[i])) == 0;
    uint16_t type =
        row->start_ns == row->end_ns || strstr(call, "Mark") ? MR_RANGE_MARK
        : strstr(call, "RangeStart") || strstr(call, "RangeStop") || strstr(call, "ProcessRange")
            ? MR_RANGE_START_END
            : MR_RANGE_PUSH_POP;
    k->n[MR_ROCPD_NO_RANGE] += left;
    int rc = left ? 0 : put_range(k, row, shown, 0, type);
    cJSON_Delete(json);
    return rc;
}

/* "HIP_RUNTIME_API_EXT", or "hip_api" in files with a table of categories. */
static int put_region(struct mr_rocpd *k, const struct mr_rocpd_row *row)
{
    const char *category = text(row, 1);
    uint32_t domain = 0;
    if (strncasecmp(category, "hip", 3) == 0 || strncasecmp(category, "hsa", 3) == 0)
        return put_call(k, row, strncasecmp(category, "hip", 3) == 0);
    if (strcasestr(category, "marker"))
        return put_marker(k, row);
    if (strncasecmp(category, "rccl", 4) == 0)
        return put_range(k, row, text(row, 0), k->rccl, MR_RANGE_PUSH_POP);
    int rc = mr_store_text(k->store, category, strlen(category), &domain);
    return rc < 0 ? rc : put_range(k, row, text(row, 0), domain, MR_RANGE_PUSH_POP);
}

/* Of other programs' samples only the marks are moments that say something by themselves. */
static int put_sample(struct mr_rocpd *k, const struct mr_rocpd_row *row)
{
    return strcasestr(text(row, 1), "marker") ? put_marker(k, row) : 0;
}

/* ---- the tables ---- */

#define NAME     " LEFT JOIN \"rocpd_string{s}\" N ON N.id = X.name_id"
#define SYMBOL   " LEFT JOIN \"rocpd_info_kernel_symbol{s}\" K ON K.id = X.kernel_id"
#define CATEGORY " LEFT JOIN \"%s{s}\" C ON C.id = E.category_id"

/* Regions first: what devices did is joined with the calls. "{c}" is a category's text. */
static const struct source {
    const char *table, *own, *join, *more;
    int (*put)(struct mr_rocpd *k, const struct mr_rocpd_row *row);
} sources[] = {
    {"rocpd_region", "N.string, C.{c}, E.extdata", NAME, "", put_region},
    {"rocpd_sample", "'', C.{c}, E.extdata", "", "", put_sample},
    {"rocpd_kernel_dispatch",
     "{p}.agent_id, coalesce({p}.stream_id, {p}.queue_id), K.kernel_name, K.display_name, "
     "K.arch_vgpr_count, K.group_segment_size, X.group_segment_size, X.private_segment_size, "
     "X.workgroup_size_x, X.workgroup_size_y, X.workgroup_size_z, X.grid_size_x, X.grid_size_y, "
     "X.grid_size_z",
     SYMBOL, "", put_kernel},
    {"rocpd_memory_copy",
     "X.dst_agent_id, X.src_agent_id, coalesce({p}.stream_id, {p}.queue_id), X.size, N.string",
     NAME, "", put_copy},
    {"rocpd_memory_allocate",
     "{p}.agent_id, X.\"type\", X.address, X.size, coalesce({p}.stream_id, {p}.queue_id)", "",
     " ORDER BY 1", put_memory},
};

/* In the second layout samples have names, too; in the first they alone have tracks. */
static const struct source *of_layout(const struct source *source, bool tracks)
{
    static const struct source named = {"rocpd_sample", "N.string, C.{c}, E.extdata", NAME, "",
                                        put_sample};
    return source->put == put_sample && tracks ? &named : source;
}

/* [out] joins: the tables of times and places. Returns the columns of times. */
static const char *times_of(const struct mr_rocpd_set *set, bool sample, char *joins, size_t cap)
{
    const char *start = sample ? "timestamp_id" : "start_id",
               *end = sample ? "timestamp_id" : "end_id";
    int n = snprintf(joins, cap, "%s",
                     set->tracks || sample ? " LEFT JOIN \"rocpd_track{s}\" T ON T.id = X.track_id"
                                           : "");
    if (!set->tracks)
        return sample ? "X.\"timestamp\", X.\"timestamp\"" : "X.\"start\", X.\"end\"";
    snprintf(joins + n, cap - (size_t)n,
             " LEFT JOIN \"rocpd_timestamp{s}\" A ON A.id = X.%s"
             " LEFT JOIN \"rocpd_timestamp{s}\" B ON B.id = X.%s",
             start, end);
    return "A.\"value\", B.\"value\"";
}

static int prepare(struct mr_rocpd *k, uint32_t set, const struct source *source,
                   sqlite3_stmt **out)
{
    const struct mr_rocpd_set *of = &k->sets[set];
    bool sample = source->put == put_sample;
    char own[1024], joins[512], category[128], sql[3072];
    const char *at = strstr(source->own, "{c}"), *place = sample ? "T" : "{p}";
    snprintf(own, sizeof own, "%.*s%s%s", at ? (int)(at - source->own) : (int)strlen(source->own),
             source->own,
             !at              ? ""
             : of->categories ? "name"
                              : "string",
             at ? at + 3 : "");
    const char *times = times_of(of, sample, joins, sizeof joins);
    snprintf(category, sizeof category, CATEGORY,
             of->categories ? "rocpd_info_category" : "rocpd_string");
    snprintf(sql, sizeof sql,
             "SELECT %s, %s.pid, %s.tid, E.stack_id, E.parent_stack_id, %s FROM \"%s{s}\" X%s "
             "LEFT JOIN \"rocpd_event{s}\" E ON E.id = X.event_id%s%s%s",
             times, place, place, own, source->table, joins, source->join, at ? category : "",
             source->more);
    return mr_rocpd_prepare(k, of, sql, out);
}

int mr_rocpd_put_set(struct mr_rocpd *k, uint32_t set)
{
    int rc = 0;
    for (size_t i = 0; i < MR_COUNT(sources) && rc >= 0; i++) {
        sqlite3_stmt *stmt = NULL;
        struct mr_rocpd_row row;
        const struct source *source = of_layout(&sources[i], k->sets[set].tracks);
        rc = prepare(k, set, source, &stmt);
        while (rc >= 0 && (rc = mr_rocpd_step(k, stmt)) == 1) {
            rc = take(k, set, stmt, &row);
            rc = rc == 1 ? source->put(k, &row) : rc;
        }
        sqlite3_finalize(stmt);
    }
    return rc;
}
