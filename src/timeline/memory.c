/* How much memory is allocated at each moment, of a device and of page-locked host memory: each
 * allocation and release that was recorded. What was allocated before is not known. */
#include "timeline/timeline.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

enum { SQL_START, SQL_DEVICE, SQL_ADDRESS, SQL_BYTES, SQL_KIND, SQL_OPERATION, SQL_PROCESS };

#define RELEASE 1 /* of the export's numbers of operations */

struct memory {
    struct mr_timeline *tl;
    struct mr_map at;     /* the number of what is allocated at an address */
    uint64_t *bytes;      /* by number; 0: released */
    uint64_t n, capacity; /* of bytes */
    uint64_t *used;       /* by counter of ours */
    uint32_t first;       /* of the timeline's counters */
};

/* NULL: memory that belongs to neither. */
static const char *name_of(int64_t kind)
{
    switch (kind) { /* the export's: pageable, pinned, device, array, managed, ... */
    case 1:
        return "Pinned host memory";
    case 2:
    case 3:
    case 5:
        return "Memory in use";
    case 4:
    case 6:
        return "Managed memory";
    default:
        return NULL;
    }
}

static uint16_t device_of(const struct mr_timeline *tl, int64_t kind, int64_t id)
{
    for (uint32_t i = 0; i < tl->rec->n_devices && kind != 1; i++)
        if (tl->rec->devices[i].id == (uint64_t)id)
            return (uint16_t)i;
    return UINT16_MAX;
}

static int counter_of(struct memory *m, const char *name, uint16_t device, uint32_t *out)
{
    struct mr_timeline *tl = m->tl;
    for (uint32_t i = m->first; i < tl->n_counters; i++)
        if (tl->counters[i].device == device && !strcmp(tl->counters[i].name, name)) {
            *out = i;
            return 0;
        }
    uint64_t *used = realloc(m->used, (tl->n_counters - m->first + 1) * sizeof(*used));
    if (!used)
        return mr_error_nomem("timeline: memory", sizeof(*used));
    m->used = used;
    struct mr_tl_counter *counter = mr_timeline_counter(tl);
    if (!counter)
        return -ENOMEM;
    snprintf(counter->name, sizeof(counter->name), "%s", name);
    counter->device = device;
    counter->unit = MR_UNIT_BYTES;
    *out = tl->n_counters - 1;
    m->used[*out - m->first] = 0;
    return mr_timeline_point(counter, tl->from_ns, 0);
}

/* What an address holds from now on; [out] before: until now, 0 nothing. */
static int hold(struct memory *m, uint64_t key, uint64_t bytes, uint64_t *out_before)
{
    bool is_new;
    const uint32_t *number = mr_map_at(&m->at, key, (uint32_t)m->n, &is_new);
    if (!number)
        return -ENOMEM;
    if (is_new) {
        if (mr_grow("timeline: memory", &m->bytes, &m->capacity, m->n + 1, sizeof(*m->bytes)) < 0)
            return -ENOMEM;
        m->bytes[m->n++] = 0;
    }
    *out_before = m->bytes[*number];
    m->bytes[*number] = bytes;
    return 0;
}

static int take_row(struct memory *m, sqlite3_stmt *row)
{
    int64_t start = sqlite3_column_int64(row, SQL_START),
            kind = sqlite3_column_int64(row, SQL_KIND), id = sqlite3_column_int64(row, SQL_DEVICE);
    uint64_t address = (uint64_t)sqlite3_column_int64(row, SQL_ADDRESS), before = 0,
             bytes = (uint64_t)sqlite3_column_int64(row, SQL_BYTES);
    const char *name = name_of(kind);
    uint32_t counter = 0;
    if (start < 0 || !name || bytes > INT64_MAX)
        return 0;
    bool release = sqlite3_column_int64(row, SQL_OPERATION) == RELEASE;
    int rc = counter_of(m, name, device_of(m->tl, kind, id), &counter);
    if (rc == 0)
        rc = hold(m,
                  mr_mix64(mr_mix64(address) ^ (uint64_t)id << 8 ^ (uint64_t)kind ^
                           mr_mix64((uint64_t)sqlite3_column_int64(row, SQL_PROCESS))),
                  release ? 0 : bytes, &before);
    if (rc < 0)
        return rc;
    uint64_t *used = &m->used[counter - m->first], more = release ? 0 : bytes;
    *used -= before; /* of what was counted here, so never too much */
    if (!mr_add(*used, more, used))
        *used = UINT64_MAX;
    struct mr_tl_counter *to = &m->tl->counters[counter];
    if ((uint64_t)start < m->tl->from_ns)
        to->n = 0, to->most = 0; /* only what holds at the beginning */
    return (uint64_t)start < m->tl->to_ns
               ? mr_timeline_point(to, MR_MAX((uint64_t)start, m->tl->from_ns), (double)*used)
               : 0;
}

static int read_rows(struct memory *m)
{
    /* a process has numbers of its own for devices, and addresses */
    static const char *const numbers[] = {
        "deviceId",
        "coalesce((SELECT gpuId FROM TARGET_INFO_CUDA_DEVICE d WHERE d.cudaId = m.deviceId AND"
        " d.pid = m.globalPid >> 24), (SELECT gpuId FROM TARGET_INFO_CUDA_DEVICE d WHERE"
        " d.cudaId = m.deviceId AND d.pid = (m.globalPid >> 24 & 16777215)), m.deviceId)"};
    struct mr_recording *rec = m->tl->rec;
    bool has_process = mr_recording_has(rec, "CUDA_GPU_MEMORY_USAGE_EVENTS", "globalPid"),
         has_numbers = has_process && mr_recording_has(rec, "TARGET_INFO_CUDA_DEVICE", "gpuId");
    char sql[600];
    snprintf(sql, sizeof sql,
             "SELECT start, %s, address, bytes, memKind, memoryOperationType, %s"
             " FROM CUDA_GPU_MEMORY_USAGE_EVENTS m ORDER BY start",
             numbers[has_numbers], has_process ? "globalPid" : "0");
    sqlite3_stmt *row;
    int code = sqlite3_prepare_v2(rec->db, sql, -1, &row, NULL);
    if (code == SQLITE_ERROR)
        return 0; /* the export of another version */
    if (code != SQLITE_OK)
        return mr_recording_error(rec->db, rec->path, "memory");
    int rc = 0, step;
    while ((step = sqlite3_step(row)) == SQLITE_ROW && rc == 0)
        rc = take_row(m, row);
    if (rc == 0 && step != SQLITE_DONE)
        rc = mr_recording_error(rec->db, rec->path, "memory");
    sqlite3_finalize(row);
    return rc;
}

int mr_timeline_count_memory(struct mr_timeline *tl)
{
    struct memory m = {.tl = tl, .first = tl->n_counters};
    if (!mr_recording_has(tl->rec, "CUDA_GPU_MEMORY_USAGE_EVENTS", "memoryOperationType"))
        return 0;
    int rc = read_rows(&m);
    for (uint32_t i = m.first; i < tl->n_counters && rc == 0; i++)
        rc = mr_timeline_point(&tl->counters[i], tl->to_ns, (double)m.used[i - m.first]);
    mr_map_free(&m.at);
    free(m.bytes);
    free(m.used);
    return rc;
}
