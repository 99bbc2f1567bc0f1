/*
 * Reading a recording's tables: statements, strings by number, and whole tables by several threads,
 * each with a connection of its own and parts of the rows. Memory: SQLite's page cache for each.
 */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <string.h>

#define PARTS        64     /* of a table's rows: threads that are faster take more */
#define MIN_PARALLEL 100000 /* rows below which threads don't pay */

int mr_sql_prepare(struct mr_recording *recording, struct sqlite3_stmt **out, const char *format,
                   ...)
{
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    if (!sql)
        return mr_error_nomem(recording->path, 0);
    int rc =
        sqlite3_prepare_v2(recording->db, sql, -1, out, NULL) == SQLITE_OK
            ? 0
            : mr_recording_error(recording->db, recording->path, "cannot be read as a recording");
    sqlite3_free(sql);
    return rc;
}

int mr_sql_step(struct mr_recording *recording, struct sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    return rc == SQLITE_ROW ? 1
           : rc == SQLITE_DONE
               ? 0
               : mr_recording_error(recording->db, recording->path, "cannot be read");
}

const char *mr_sql_column(struct mr_recording *recording, const char *table, const char *column,
                          const char *otherwise)
{
    return mr_recording_has(recording, table, column) ? column : otherwise;
}

const char *mr_kernel_name_sql(struct mr_recording *recording, int names)
{
    const char *own = names == MR_KERNELS_BASE      ? "shortName"
                      : names == MR_KERNELS_MANGLED ? "mangledName"
                                                    : "demangledName";
    const char *next = names == MR_KERNELS_DEMANGLED ? "shortName" : "demangledName";
    bool has_own = mr_recording_has(recording, MR_TABLE_KERNEL, own),
         has_next = mr_recording_has(recording, MR_TABLE_KERNEL, next);
    if (!has_own || !has_next)
        return has_own ? own : has_next ? next : "NULL";
    return names == MR_KERNELS_BASE      ? "coalesce(shortName, demangledName)"
           : names == MR_KERNELS_MANGLED ? "coalesce(mangledName, demangledName)"
                                         : "coalesce(demangledName, shortName)";
}

/* ---- strings ---- */

int mr_names_open(struct mr_names *names, struct mr_recording *recording)
{
    *names = (struct mr_names){.recording = recording};
    if (!mr_recording_has(recording, "StringIds", "value"))
        return 0;
    return mr_sql_prepare(recording, &names->find, "SELECT value FROM StringIds WHERE id = ?1");
}

int mr_sql_text(struct mr_recording *recording, struct sqlite3_stmt *stmt, char **out)
{
    int rc = mr_sql_step(recording, stmt);
    *out = NULL;
    if (rc == 1 && sqlite3_column_type(stmt, 0) != SQLITE_NULL) {
        const char *value = (const char *)sqlite3_column_text(stmt, 0);
        *out = value ? strdup(value) : NULL;
        rc = *out ? 0 : mr_error_nomem(recording->path, 0);
    }
    sqlite3_reset(stmt);
    return rc < 0 ? rc : 0;
}

static char *find_text(struct mr_names *names, int64_t id)
{
    char *text = NULL;
    if (!names->find)
        return NULL;
    sqlite3_bind_int64(names->find, 1, id);
    int rc = mr_sql_text(names->recording, names->find, &text);
    if (rc < 0)
        mr_recording_fail(names->recording, rc);
    return text;
}

static const char *no_memory(struct mr_names *names)
{
    mr_recording_fail(names->recording, mr_error_nomem("names", 0));
    return "";
}

const char *mr_names_get(struct mr_names *names, int64_t id)
{
    uint32_t before = names->map.n,
             i = mr_keymap_put(&names->map, (struct mr_key){(uint64_t)id, 0});
    if (i == MR_NONE)
        return no_memory(names);
    if (i >= names->capacity) {
        uint64_t n = names->capacity;
        if (mr_grow("names", &names->texts, &names->capacity, i + 1ull, sizeof *names->texts) < 0)
            return no_memory(names);
        memset(names->texts + n, 0, (names->capacity - n) * sizeof *names->texts);
    }
    if (i >= before)
        names->texts[i] = find_text(names, id);
    return names->texts[i] ? names->texts[i] : "";
}

void mr_names_close(struct mr_names *names)
{
    for (uint32_t i = 0; i < names->capacity; i++)
        free(names->texts[i]);
    free(names->texts);
    mr_keymap_free(&names->map);
    sqlite3_finalize(names->find);
    *names = (struct mr_names){0};
}

/* ---- whole tables ---- */

struct scan {
    struct mr_recording *recording;
    const char *sql;
    int (*row)(void *state, struct sqlite3_stmt *stmt);
    int64_t first, last; /* rowids */
    uint64_t n_parts;
    _Atomic uint64_t next; /* part */
    atomic_bool stop;
};

struct worker {
    struct scan *scan;
    void *state;
    struct sqlite3 *db; /* NULL: the recording's own connection */
    int rc;
    struct mr_error_kept error;
};

static int scan_failed(const struct scan *scan, struct sqlite3 *db)
{
    return mr_recording_error(db, scan->recording->path, "cannot be read");
}

static int read_part(struct worker *w, struct sqlite3 *db, struct sqlite3_stmt *stmt, uint64_t part)
{
    struct scan *scan = w->scan;
    /* rowids are any 64-bit numbers: spans between them are unsigned */
    uint64_t span = (uint64_t)scan->last - (uint64_t)scan->first, each = span / scan->n_parts;
    uint64_t from = (uint64_t)scan->first + part * each;
    uint64_t to = part + 1 == scan->n_parts ? (uint64_t)scan->last : from + each - 1;
    int rc = 0, step = SQLITE_DONE;
    if (part + 1 < scan->n_parts && each == 0)
        return 0;
    sqlite3_bind_int64(stmt, 1, (int64_t)from);
    sqlite3_bind_int64(stmt, 2, (int64_t)to);
    while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW)
        rc = scan->row(w->state, stmt);
    if (rc == 0 && step != SQLITE_DONE)
        rc = scan_failed(scan, db);
    sqlite3_reset(stmt);
    return rc;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct scan *scan = w->scan;
    struct sqlite3 *db = w->db ? w->db : scan->recording->db;
    struct sqlite3_stmt *stmt = NULL;
    char *sql = sqlite3_mprintf("%s rowid BETWEEN ?1 AND ?2", scan->sql);
    if (!sql)
        w->rc = mr_error_nomem(scan->recording->path, 0);
    else if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        w->rc = scan_failed(scan, db);
    while (w->rc == 0 && !atomic_load(&scan->stop)) {
        uint64_t part = atomic_fetch_add(&scan->next, 1);
        if (part >= scan->n_parts)
            break;
        w->rc = read_part(w, db, stmt, part);
    }
    if (w->rc) {
        mr_error_keep(w->rc, &w->error);
        atomic_store(&scan->stop, true);
    }
    sqlite3_finalize(stmt);
    sqlite3_free(sql);
    return NULL;
}

static bool open_guarded(struct worker *w)
{
    const char *path = w->scan->recording->path;
    return sqlite3_open_v2(path, &w->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) ==
               SQLITE_OK &&
           mr_recording_guard(w->db);
}

/* More workers are a matter of speed: what cannot be opened or started is done without. */
static void run_workers(struct worker *workers, uint32_t n)
{
    pthread_t threads[MR_SCAN_THREADS];
    bool started[MR_SCAN_THREADS] = {false};
    for (uint32_t i = 1; i < n; i++)
        if (open_guarded(&workers[i]))
            started[i] = mr_thread_start(&threads[i], "mr-scan", work, &workers[i]) == 0;
    work(&workers[0]);
    for (uint32_t i = 1; i < n; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        sqlite3_close(workers[i].db);
    }
}

static int rows_between(struct scan *scan, const char *table)
{
    struct sqlite3_stmt *stmt = NULL;
    int rc = mr_sql_prepare(scan->recording, &stmt,
                            "SELECT (SELECT min(rowid) FROM %s), (SELECT max(rowid) FROM %s)",
                            table, table);
    if (rc == 0)
        rc = mr_sql_step(scan->recording, stmt);
    if (rc == 1) {
        rc = sqlite3_column_type(stmt, 0) == SQLITE_INTEGER;
        scan->first = sqlite3_column_int64(stmt, 0);
        scan->last = sqlite3_column_int64(stmt, 1);
    }
    sqlite3_finalize(stmt);
    return rc;
}

int mr_scan(struct mr_recording *recording, const char *table, const char *sql,
            int (*row)(void *state, struct sqlite3_stmt *stmt), void *const states[MR_SCAN_THREADS])
{
    struct scan scan = {.recording = recording, .sql = sql, .row = row, .n_parts = 1};
    struct worker workers[MR_SCAN_THREADS] = {0};
    int rc = rows_between(&scan, table);
    if (rc <= 0)
        return rc;
    uint32_t n = 1;
    if (!recording->unnamed && (uint64_t)scan.last - (uint64_t)scan.first >= MIN_PARALLEL) {
        n = (uint32_t)MR_MIN(mr_cpu_count(), MR_SCAN_THREADS);
        scan.n_parts = PARTS;
    }
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++)
        workers[i] = (struct worker){.scan = &scan, .state = states[i]};
    run_workers(workers, n);
    for (uint32_t i = 0; i < n; i++)
        if (workers[i].rc)
            return mr_error_put(&workers[i].error);
    return 0;
}
