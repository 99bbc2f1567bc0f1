/* A recording's rows into another database: times moved, texts, processes and devices
 * renumbered. */
#include "recording/import.h"
#include "recording/join.h"

#include <errno.h>
#include <string.h>

/* What a column holds, known by its name: it is the same in all tables. */
/* METRIC: a GPU in its low 8 bits; ROW: a number that the store gives. */
enum kind { PLAIN, TIME, TEXT, GLOBAL, GPU, METRIC, ROW };

static const struct {
    const char *table, *column; /* table NULL: any */
    enum kind kind;
} kinds[] = {
    {NULL, "start", TIME},
    {NULL, "end", TIME},
    {NULL, "timestamp", TIME},
    {NULL, "demangledName", TEXT},
    {NULL, "shortName", TEXT},
    {NULL, "mangledName", TEXT},
    {NULL, "nameId", TEXT},
    {NULL, "textId", TEXT},
    {NULL, "jsonTextId", TEXT},
    {NULL, "commandId", TEXT},
    {NULL, "executableId", TEXT},
    {NULL, "functionId", TEXT},
    {NULL, "fileId", TEXT},
    {"MILLRACE_STACKS", "moduleId", TEXT},
    {"MILLRACE_STACKS", "buildId", TEXT},
    {NULL, "globalPid", GLOBAL},
    {NULL, "globalTid", GLOBAL},
    {NULL, "endGlobalTid", GLOBAL},
    {"TARGET_INFO_GPU", "id", GPU},
    {"GPU_METRICS", "typeId", METRIC},
    {"TARGET_INFO_GPU_METRICS", "typeId", METRIC},
    /* stacks are numbered as threads are, by process */
    {"MILLRACE_STACKS", "id", GLOBAL},
    {"MILLRACE_STACKS", "parentId", GLOBAL},
    {"COMPOSITE_EVENTS", "stackId", GLOBAL},
    {"COMPOSITE_EVENTS", "id", ROW},
};

/* Made by the store itself, or copied in their own way. */
static const char *const not_copied[] = {"StringIds",
                                         "ANALYSIS_DETAILS",
                                         "TARGET_INFO_SESSION_START_TIME",
                                         "TARGET_INFO_CUDA_DEVICE",
                                         "META_DATA_EXPORT",
                                         "MILLRACE_META",
                                         NULL};

#define COLUMNS 64
struct table {
    const char *name;
    uint32_t n;
    enum kind kind[COLUMNS];
    bool there[COLUMNS];                                           /* in the source */
    bool must[COLUMNS];                                            /* NOT NULL in ours */
    int start, end, process, device, uuid, name_id, value, metric; /* columns; -1: none */
    sqlite3_stmt *from, *to;
};

struct copy {
    struct mr_join *join;
    struct mr_join_file *file;
    uint32_t index;
    const struct mr_join_filter *filter;
};

/* ---- numbers ---- */

static int read_texts(struct copy *c)
{
    struct mr_recording *rec = c->file->recording;
    sqlite3_stmt *stmt;
    int step = SQLITE_DONE, rc = 0;
    if (!mr_recording_has(rec, "StringIds", "value"))
        return 0;
    if (sqlite3_prepare_v2(rec->db, "SELECT id, value FROM StringIds", -1, &stmt, NULL) !=
        SQLITE_OK)
        return mr_recording_error(rec->db, rec->path, "StringIds");
    while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 1);
        uint32_t number = 0;
        rc = mr_store_text(c->join->store, text ? text : "",
                           text ? (size_t)sqlite3_column_bytes(stmt, 1) : 0, &number);
        if (rc == 0 &&
            !mr_map_at(&c->file->texts, (uint64_t)sqlite3_column_int64(stmt, 0), number, NULL))
            rc = -ENOMEM;
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = mr_recording_error(rec->db, rec->path, "StringIds");
    sqlite3_finalize(stmt);
    return rc;
}

int mr_join_process(struct mr_join *join, uint32_t index, uint64_t process, uint64_t *out)
{
    uint64_t pid = process & 0xffffff, key = mr_mix64(process) + index;
    bool is_new;
    uint32_t *number = mr_map_at(&join->processes, key, 0, &is_new);
    uint32_t *times = number && is_new ? mr_map_at(&join->store->pids, pid, 0, NULL) : NULL;
    if (!number || (is_new && !times))
        return -ENOMEM;
    if (is_new)
        *number = (*times)++;
    *out = (uint64_t)(*number & 0x7fff) << 24 | pid;
    return 0;
}

/* A device of a file is that of another one with the same uuid; else it keeps its number where that
 * is free. MR_NONE: no memory. */
static uint32_t gpu_of(struct copy *c, uint32_t id, const char *uuid)
{
    struct mr_join *j = c->join;
    const uint32_t *known = mr_map_find(&c->file->gpus, id);
    uint64_t hash = uuid ? mr_hash(MR_HASH_START, uuid, strlen(uuid)) : 0;
    uint32_t gpu = id;
    if (known)
        return *known;
    known = uuid ? mr_map_find(&j->uuids, hash) : NULL;
    if (known) {
        gpu = *known;
    } else {
        for (uint32_t next = 0; mr_map_find(&j->taken, gpu); next++)
            gpu = next;
        if (!mr_map_at(&j->taken, gpu, 0, NULL) || (uuid && !mr_map_at(&j->uuids, hash, gpu, NULL)))
            return MR_NONE;
    }
    return mr_map_at(&c->file->gpus, id, gpu, NULL) ? gpu : MR_NONE;
}

/* The row that says which device a process means by a number. */
static int declare_device(struct copy *c, uint64_t process, uint32_t id, uint32_t gpu)
{
    bool is_new;
    if (!mr_map_at(&c->join->declared, mr_mix64(process) + id, 0, &is_new))
        return -ENOMEM;
    int rc = is_new ? mr_store_run(c->join->store,
                                   "INSERT INTO TARGET_INFO_GPU (vmId, id) SELECT 0, ?1 WHERE NOT "
                                   "EXISTS (SELECT 1 FROM TARGET_INFO_GPU WHERE id = ?1)",
                                   "i", (int64_t)gpu)
                    : 0;
    if (rc < 0 || !is_new)
        return rc;
    return mr_store_run(c->join->store,
                        "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?, NULL, NULL)", "iii",
                        (int64_t)gpu, (int64_t)id, (int64_t)process);
}

/* ---- tables ---- */

static void learn_column(struct table *t, const char *column, bool there, bool must)
{
    uint32_t i = t->n++;
    const struct {
        const char *name;
        int *at;
    } found[] = {{"start", &t->start},     {"end", &t->end},   {"globalPid", &t->process},
                 {"deviceId", &t->device}, {"uuid", &t->uuid}, {"nameId", &t->name_id},
                 {"value", &t->value}};
    t->kind[i] = PLAIN;
    t->there[i] = there;
    t->must[i] = must;
    for (size_t k = 0; k < MR_COUNT(kinds); k++)
        if (strcmp(kinds[k].column, column) == 0 &&
            (!kinds[k].table || strcmp(kinds[k].table, t->name) == 0))
            t->kind[i] = kinds[k].kind;
    for (size_t k = 0; k < MR_COUNT(found); k++)
        if (strcmp(found[k].name, column) == 0)
            *found[k].at = (int)i;
    if (t->process < 0 && (strcmp(column, "globalTid") == 0 ||
                           (strcmp(column, "id") == 0 && strcmp(t->name, "MILLRACE_STACKS") == 0)))
        t->process = (int)i;
    if (strcmp(column, "typeId") == 0 && strcmp(t->name, "GPU_METRICS") == 0)
        t->metric = (int)i;
}

/* All columns of ours; those that the source lacks are NULL, or 0 where they may not be. */
static int open_table(struct copy *c, struct table *t)
{
    struct mr_recording *rec = c->file->recording;
    sqlite3 *db = c->join->store->db;
    sqlite3_stmt *info = NULL;
    char from[4096], to[4096], pragma[128];
    int f = snprintf(from, sizeof from, "SELECT "), v = 0, rc = 0;
    v = snprintf(to, sizeof to, "INSERT INTO %s VALUES (", t->name);
    snprintf(pragma, sizeof pragma, "PRAGMA table_info(%s)", t->name);
    if (sqlite3_prepare_v2(db, pragma, -1, &info, NULL) != SQLITE_OK)
        return mr_store_error(c->join->store, t->name);
    while (sqlite3_step(info) == SQLITE_ROW && t->n < COLUMNS) {
        const char *column = (const char *)sqlite3_column_text(info, 1), *comma = t->n ? ", " : "";
        bool must = sqlite3_column_int(info, 3),
             there = column && mr_recording_has(rec, t->name, column);
        if (!column)
            continue;
        learn_column(t, column, there, must);
        f += snprintf(from + f, sizeof from - (size_t)f, there ? "%s\"%s\"" : "%s%s", comma,
                      there  ? column
                      : must ? "0"
                             : "NULL");
        v += snprintf(to + v, sizeof to - (size_t)v, "%s?", comma);
    }
    sqlite3_finalize(info);
    snprintf(from + f, sizeof from - (size_t)f, " FROM %s", t->name);
    snprintf(to + v, sizeof to - (size_t)v, ")");
    if (sqlite3_prepare_v2(rec->db, from, -1, &t->from, NULL) != SQLITE_OK)
        rc = mr_recording_error(rec->db, rec->path, t->name);
    else if (sqlite3_prepare_v2(db, to, -1, &t->to, NULL) != SQLITE_OK)
        rc = mr_store_error(c->join->store, t->name);
    return rc;
}

static bool is_time_note(const char *name)
{
    return name && (strcmp(name, "exit") == 0 || strcmp(name, "capture_start") == 0 ||
                    strcmp(name, "capture_stop") == 0);
}

static int64_t moved(struct copy *c, int64_t time)
{
    int64_t at = MR_MIN(MR_MAX(time, (int64_t)0), INT64_MAX / 4) + c->file->shift_ns;
    c->join->store->end_ns = MR_MAX(c->join->store->end_ns, (uint64_t)MR_MAX(at, (int64_t)0));
    return at;
}

/* A column of the row at hand. timeless: the row's times are lost, or it has none. */
static int put_column(struct copy *c, struct table *t, int i, bool timeless)
{
    struct mr_store *store = c->join->store;
    int64_t value = sqlite3_column_int64(t->from, i);
    const uint32_t *text;
    const char *uuid;
    uint64_t process;
    uint32_t gpu;
    if (t->kind[i] == ROW)
        return sqlite3_bind_null(t->to, i + 1);
    if (sqlite3_column_type(t->from, i) == SQLITE_NULL || !t->there[i])
        return t->must[i] ? sqlite3_bind_int64(t->to, i + 1, 0) : sqlite3_bind_null(t->to, i + 1);
    switch (t->kind[i]) {
    case TIME:
        return sqlite3_bind_int64(t->to, i + 1, timeless ? value : moved(c, value));
    case TEXT:
        text = mr_map_find(&c->file->texts, (uint64_t)value);
        return sqlite3_bind_int64(t->to, i + 1, text ? *text : 0);
    case GLOBAL:
        if (value == 0)
            return sqlite3_bind_int64(t->to, i + 1, 0);
        if (mr_join_process(c->join, c->index, (uint64_t)value >> 24, &process) < 0)
            return SQLITE_NOMEM;
        return sqlite3_bind_int64(t->to, i + 1, (int64_t)(process << 24 | (value & 0xffffff)));
    case GPU:
        uuid = t->uuid >= 0 ? (const char *)sqlite3_column_text(t->from, t->uuid) : NULL;
        gpu = gpu_of(c, (uint32_t)value, uuid);
        return gpu == MR_NONE ? SQLITE_NOMEM : sqlite3_bind_int64(t->to, i + 1, gpu);
    case METRIC:
        gpu = gpu_of(c, (uint32_t)value & 0xff, NULL);
        value = (value & ~(int64_t)0xff) | (gpu & 0xff);
        return gpu == MR_NONE ? SQLITE_NOMEM : sqlite3_bind_int64(t->to, i + 1, value);
    default:
        break;
    }
    if (i == t->value && t->name_id >= 0 && strcmp(t->name, "MILLRACE_NOTES") == 0) {
        text = mr_map_find(&c->file->texts, (uint64_t)sqlite3_column_int64(t->from, t->name_id));
        if (text && is_time_note(store->texts.text[*text]))
            value = moved(c, value);
        return sqlite3_bind_int64(t->to, i + 1, value);
    }
    return sqlite3_bind_value(t->to, i + 1, sqlite3_column_value(t->from, i));
}

/* Which row of devices a process's number means, in the file. */
static uint32_t own_gpu(struct copy *c, uint64_t process, uint32_t id)
{
    sqlite3_stmt *stmt;
    uint32_t gpu = id;
    struct mr_recording *rec = c->file->recording;
    if (!mr_recording_has(rec, "TARGET_INFO_CUDA_DEVICE", "gpuId") ||
        sqlite3_prepare_v2(rec->db,
                           "SELECT gpuId FROM TARGET_INFO_CUDA_DEVICE WHERE cudaId = ?1 AND pid IN "
                           "(?2, ?3) ORDER BY pid = ?2 DESC",
                           -1, &stmt, NULL) != SQLITE_OK)
        return gpu;
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_int64(stmt, 2, (int64_t)process);
    sqlite3_bind_int64(stmt, 3, (int64_t)(process & 0xffffff));
    if (sqlite3_step(stmt) == SQLITE_ROW)
        gpu = (uint32_t)sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return gpu;
}

/* Whether the row stays; says of its device which one it is, the first time. */
static int takes(struct copy *c, struct table *t, bool *out)
{
    uint64_t process = t->process < 0 || !t->there[t->process]
                           ? 0
                           : (uint64_t)sqlite3_column_int64(t->from, t->process) >> 24;
    *out = process == 0 || !c->filter || c->filter->keeps_process(c->filter->state, process);
    if (c->filter && t->metric >= 0 && t->there[t->metric])
        *out = c->filter->keeps_gpu(c->filter->state,
                                    (uint32_t)sqlite3_column_int64(t->from, t->metric) & 0xff);
    if (!*out || process == 0 || t->device < 0 || !t->there[t->device])
        return 0;
    uint32_t id = (uint32_t)sqlite3_column_int64(t->from, t->device);
    uint64_t key = mr_mix64(mr_mix64(process) + c->index) + id, joined;
    bool is_new;
    uint32_t *gpu = mr_map_at(&c->file->gpus, key | 1ull << 63, 0, &is_new);
    if (!gpu || mr_join_process(c->join, c->index, process, &joined) < 0)
        return -ENOMEM;
    if (is_new) {
        uint32_t own = own_gpu(c, process, id);
        *gpu = own;
        *out = !c->filter || c->filter->keeps_device(c->filter->state, process, own);
        uint32_t number = *out ? gpu_of(c, own, NULL) : 0;
        if (number == MR_NONE)
            return -ENOMEM;
        return *out ? declare_device(c, joined, id, number) : 0;
    }
    *out = !c->filter || c->filter->keeps_device(c->filter->state, process, *gpu);
    return 0;
}

static int copy_row(struct copy *c, struct table *t)
{
    bool takes_it, timeless = false;
    int rc = takes(c, t, &takes_it);
    if (rc < 0 || !takes_it)
        return rc;
    if (t->start >= 0)
        timeless = sqlite3_column_int64(t->from, t->start) == 0 &&
                   (t->end < 0 || sqlite3_column_int64(t->from, t->end) == 0);
    for (uint32_t i = 0; i < t->n; i++)
        if (put_column(c, t, (int)i, timeless) != SQLITE_OK)
            return mr_store_error(c->join->store, t->name);
    c->join->store->n_records++;
    return mr_store_step(c->join->store, t->to);
}

/* A device that another file has, too, has its row. */
static bool has_row(struct copy *c, struct table *t)
{
    if (strcmp(t->name, "TARGET_INFO_GPU") != 0 || t->uuid < 0)
        return false;
    const char *uuid = (const char *)sqlite3_column_text(t->from, t->uuid);
    return uuid && mr_map_find(&c->join->uuids, mr_hash(MR_HASH_START, uuid, strlen(uuid)));
}

static int copy_table(struct copy *c, const char *name)
{
    struct table t = {name,       .start = -1,   .end = -1,   .process = -1, .device = -1,
                      .uuid = -1, .name_id = -1, .value = -1, .metric = -1};
    int step = SQLITE_DONE, rc = open_table(c, &t);
    while (rc == 0 && (step = sqlite3_step(t.from)) == SQLITE_ROW) {
        if (!has_row(c, &t)) {
            rc = copy_row(c, &t);
            continue;
        }
        const char *uuid = (const char *)sqlite3_column_text(t.from, t.uuid);
        int64_t id = sqlite3_column_int64(t.from, 1); /* vmId, id, ... as ours has them */
        rc = gpu_of(c, (uint32_t)id, uuid) == MR_NONE ? -ENOMEM : 0;
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = mr_recording_error(c->file->recording->db, c->file->path, name);
    sqlite3_finalize(t.from);
    sqlite3_finalize(t.to);
    return rc;
}

/* nsys' own samples have no stacks of ours, and numbers of their own. */
static bool is_copied(struct mr_recording *from, const char *name)
{
    if (strcmp(name, "COMPOSITE_EVENTS") == 0 && !mr_recording_has(from, name, "stackId"))
        return false;
    for (int i = 0; not_copied[i]; i++)
        if (strcmp(name, not_copied[i]) == 0)
            return false;
    return strncmp(name, "ENUM_", 5) != 0 && strncmp(name, "sqlite_", 7) != 0;
}

/* Devices first: events name them. */
static int copy_tables(struct copy *c)
{
    sqlite3_stmt *names;
    int rc = mr_recording_has(c->file->recording, "TARGET_INFO_GPU", "id")
                 ? copy_table(c, "TARGET_INFO_GPU")
                 : 0;
    if (rc < 0)
        return rc;
    if (sqlite3_prepare_v2(c->join->store->db,
                           "SELECT name FROM sqlite_master WHERE type = 'table'", -1, &names,
                           NULL) != SQLITE_OK)
        return mr_store_error(c->join->store, "tables");
    while (rc == 0 && sqlite3_step(names) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(names, 0);
        if (name && is_copied(c->file->recording, name) && strcmp(name, "TARGET_INFO_GPU") != 0 &&
            mr_recording_has(c->file->recording, name, NULL))
            rc = copy_table(c, name);
    }
    sqlite3_finalize(names);
    return rc;
}

/* nsys' own, which are notes where there are ours. */
static int put_warnings(struct copy *c)
{
    const struct mr_recording *rec = c->file->recording;
    int rc = 0;
    for (uint32_t i = 0; i < rec->n_notes && !rec->ours && rc == 0; i++)
        if (strcmp(mr_rec_text(rec, rec->notes[i].name), "warning") == 0)
            rc = mr_import_note(c->join->store, "warning", mr_rec_text(rec, rec->notes[i].text));
    return rc;
}

int mr_join_copy(struct mr_join *join, struct mr_join_file *file, uint32_t index,
                 const struct mr_join_filter *filter)
{
    struct copy c = {join, file, index, filter};
    const struct mr_recording *rec = file->recording;
    int rc = read_texts(&c);
    rc = rc ? rc : copy_tables(&c);
    rc = rc ? rc : put_warnings(&c);
    join->store->traced |= rec->traced;
    join->store->n_dropped += rec->n_dropped;
    return mr_recording_result(file->recording, rc);
}
