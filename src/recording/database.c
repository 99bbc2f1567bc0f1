/* A recording's database: from anywhere, so read-only, and nothing in it is trusted. */
#include "recording/big.h"
#include "recording/import.h"
#include "recording/load.h"
#include "recording/store.h"

#include <errno.h>
#include <string.h>

int mr_recording_error(struct sqlite3 *db, const char *path, const char *what)
{
    int code = sqlite3_errcode(db), system = sqlite3_system_errno(db);
    if (code == SQLITE_NOMEM)
        return mr_error_nomem(path, 0);
    if (code == SQLITE_FULL)
        return mr_error_errno(ENOSPC, "%s: %s: the disk for temporary files is full", path, what);
    if (((code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_IOERR) && system)
        return mr_error_errno(system, "%s: %s", path, what);
    if (code == SQLITE_NOTADB)
        return mr_error_set(
            MR_EFORMAT,
            "%s: is not a recording: it is neither a SQLite database nor JSON; `millrace profile` "
            "makes recordings, `nsys export --type sqlite` makes them of .nsys-rep files, and "
            "torch.profiler's export_chrome_trace() writes JSON",
            path);
    return mr_error_set(MR_EFORMAT, "%s: %s: the database is damaged or cut: sqlite: %s", path,
                        what, sqlite3_errmsg(db));
}

void mr_recording_fail(struct mr_recording *recording, int rc)
{
    if (!recording->failed.code)
        mr_error_keep(rc, &recording->failed);
}

int mr_recording_result(struct mr_recording *recording, int rc)
{
    if (recording->failed.code)
        rc = mr_error_put(&recording->failed);
    recording->failed.code = 0;
    return rc;
}

static void cannot_look(struct mr_recording *recording)
{
    mr_recording_fail(recording,
                      mr_recording_error(recording->db, recording->path, "cannot be read"));
}

bool mr_recording_has(struct mr_recording *recording, const char *table, const char *column)
{
    if (!recording->db) /* made in memory */
        return false;
    int code = sqlite3_table_column_metadata(recording->db, NULL, table, column, NULL, NULL, NULL,
                                             NULL, NULL);
    if (code != SQLITE_OK && code != SQLITE_ERROR) /* the latter: not there */
        cannot_look(recording);
    return code == SQLITE_OK;
}

static int64_t meta(struct mr_recording *recording, const char *name)
{
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(recording->db, "SELECT value FROM MILLRACE_META WHERE name = ?",
                                  -1, &statement, NULL);
    if (code != SQLITE_OK) {
        if (code != SQLITE_ERROR)
            cannot_look(recording);
        return 0;
    }
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    code = sqlite3_step(statement);
    int64_t value = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        cannot_look(recording);
    sqlite3_finalize(statement);
    return value < 0 ? 0 : value;
}

bool mr_recording_guard(struct sqlite3 *db)
{
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(db, SQLITE_LIMIT_TRIGGER_DEPTH, 0);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 28);
    sqlite3_limit(db, SQLITE_LIMIT_COLUMN, 1000);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    return sqlite3_exec(db, "PRAGMA query_only=ON; PRAGMA cell_size_check=ON", NULL, NULL, NULL) ==
           SQLITE_OK;
}

static int look_inside(struct mr_recording *recording)
{
    const char *sql = "PRAGMA cache_size=-65536; SELECT count(*) FROM sqlite_master";
    return mr_recording_guard(recording->db) &&
                   sqlite3_exec(recording->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : mr_recording_error(recording->db, recording->path, "cannot be read");
}

static uint32_t tables_traced(struct mr_recording *recording)
{
    uint32_t traced = 0;
    bool kernels = mr_recording_has(recording, "CUPTI_ACTIVITY_KIND_KERNEL", NULL);
    if (kernels || mr_recording_has(recording, "CUPTI_ACTIVITY_KIND_RUNTIME", NULL) ||
        mr_recording_has(recording, "CUPTI_ACTIVITY_KIND_MEMCPY", NULL))
        traced |= MR_TRACE_CUDA;
    if (mr_recording_has(recording, "NVTX_EVENTS", NULL))
        traced |= MR_TRACE_NVTX;
    if (mr_recording_has(recording, "OSRT_API", NULL))
        traced |= MR_TRACE_OSRT;
    if (mr_recording_has(recording, "GPU_METRICS", NULL))
        traced |= MR_TRACE_GPU_METRICS;
    return traced;
}

/* All tables are always there in our own: without one a half is read as a whole that lacks
 * something. */
static int check_tables(struct mr_recording *recording)
{
    static const char *const tables[] = {
        "StringIds",   "CUPTI_ACTIVITY_KIND_KERNEL",  "CUPTI_ACTIVITY_KIND_MEMCPY",
        "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMSET",
        "OSRT_API"};
    for (size_t i = 0; i < MR_COUNT(tables); i++)
        if (!mr_recording_has(recording, tables[i], NULL))
            return mr_error_set(MR_EFORMAT,
                                "%s: is incomplete: it has no table %s, which every recording of "
                                "millrace profile has; merge its parts again (millrace profile "
                                "--merge FOLDER) or record again",
                                recording->path, tables[i]);
    return 0;
}

static int identify(struct mr_recording *recording)
{
    recording->ours = mr_recording_has(recording, "MILLRACE_META", "value");
    if (!recording->ours) {
        recording->traced = tables_traced(recording);
        if (recording->traced == 0 && !mr_recording_has(recording, "META_DATA_EXPORT", NULL) &&
            !mr_recording_has(recording, "META_DATA_CAPTURE", NULL))
            return mr_error_set(
                MR_EFORMAT,
                "%s: is a SQLite database, but not a recording: it has no table of CUDA calls, "
                "kernels, copies, NVTX ranges or OS calls",
                recording->path);
        return 0;
    }
    int64_t schema = meta(recording, "schema");
    if (schema != MR_STORE_SCHEMA)
        return mr_error_set(
            MR_EUNSUPPORTED, "%s: has version %lld of the tables, this millrace knows %d; %s",
            recording->path, (long long)schema, MR_STORE_SCHEMA,
            schema > MR_STORE_SCHEMA ? "read it with the millrace that made it, or a newer one"
                                     : "it was not finished");
    recording->origin_ns = (uint64_t)meta(recording, "origin_ns");
    recording->end_ns = (uint64_t)meta(recording, "end_ns");
    recording->traced = (uint32_t)meta(recording, "traced");
    recording->n_cores = (uint32_t)MR_MIN(meta(recording, "n_cores"), 1 << 20);
    recording->n_dropped = (uint64_t)meta(recording, "n_dropped");
    return check_tables(recording);
}

/* What the database was made from, when it was opened. */
static int read_source(struct mr_recording *recording)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(recording->db, "SELECT value FROM META_DATA_CAPTURE WHERE name = ?", -1,
                           &statement, NULL) != SQLITE_OK)
        return 0; /* an export */
    sqlite3_bind_text(statement, 1, MR_IMPORT_SOURCE, -1, SQLITE_STATIC);
    int rc = 0;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        const char *source = (const char *)sqlite3_column_text(statement, 0);
        recording->source = source ? strdup(source) : NULL;
        if (!recording->source)
            rc = mr_error_nomem(recording->path, 0);
    }
    sqlite3_finalize(statement);
    return rc;
}

const char *mr_recording_more(const struct mr_recording *recording)
{
    if (!recording->source)
        return "record with --trace cuda,nvtx,osrt";
    return strstr(recording->source, "Kineto")
               ? "a Kineto trace has no system calls, so put torch.profiler.record_function() "
                 "around loading"
               : "this source has no system calls, so put a range around loading";
}

int mr_recording_wrap(const char *path, struct sqlite3 *db, bool made, struct mr_recording **out)
{
    struct mr_recording_whole *whole = calloc(1, sizeof(*whole));
    if (!whole) {
        sqlite3_close(db);
        return mr_error_nomem(path, sizeof(*whole));
    }
    struct mr_recording *recording = &whole->recording;
    recording->path = strdup(path);
    recording->db = db;
    recording->unnamed = made;
    int rc = recording->path ? 0 : mr_error_nomem(path, strlen(path));
    if (rc < 0)
        goto fail;
    rc = made ? read_source(recording) : 0;
    if (rc < 0)
        goto fail;
    rc = look_inside(recording);
    if (rc < 0)
        goto fail;
    if (made) /* its views are ours */
        sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 1, NULL);
    rc = mr_recording_result(recording, identify(recording));
    if (rc < 0)
        goto fail;
    *out = recording;
    return 0;
fail:
    mr_recording_close(recording);
    return rc;
}

void mr_recording_close(struct mr_recording *recording)
{
    if (!recording)
        return;
    struct mr_recording_whole *whole = (struct mr_recording_whole *)recording;
    sqlite3_close(recording->db);
    mr_texts_free(&whole->texts);
    mr_big_free(recording->ops);
    mr_big_free(recording->apis);
    mr_big_free(recording->op_of_api);
    mr_big_free(recording->syncs);
    mr_big_free(recording->ranges);
    mr_big_free(recording->os);
    mr_big_free(recording->threads);
    mr_big_free(recording->processes);
    mr_big_free(recording->devices);
    mr_big_free(recording->notes);
    free(recording->path);
    free(recording->source);
    free(whole);
}

uint32_t mr_rec_parent(const struct mr_recording *rec, uint32_t process)
{
    const struct mr_rec_process *of = &rec->processes[process];
    for (uint32_t i = 0; i < rec->n_processes && of->ppid != 0; i++)
        if (i != process && rec->processes[i].pid == of->ppid && rec->processes[i].file == of->file)
            return i;
    return MR_NONE;
}
