/* What all of the store stands on: statements, errors, texts, times. */
#include "recording/store.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

int mr_store_error(struct mr_store *store, const char *what)
{
    int code = sqlite3_errcode(store->db), system = sqlite3_system_errno(store->db);
    if (code == SQLITE_NOMEM)
        return mr_error_nomem(store->path, 0);
    if (code == SQLITE_FULL)
        return mr_error_errno(ENOSPC, "%s: %s: the disk is full or the file is at its limit",
                              store->temporary, what);
    if ((code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN)
        return mr_error_errno(
            system ? system : EIO, "%s%s%s: %s", store->unnamed ? store->path : "",
            store->unnamed ? ": its temporary database (TMPDIR) " : "", store->temporary, what);
    return mr_error_set(MR_EFORMAT, "%s: %s: sqlite: %s", store->temporary, what,
                        sqlite3_errmsg(store->db));
}

int mr_store_exec(struct mr_store *store, const char *sql)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    char what[96];
    snprintf(what, sizeof(what), "%.80s", sql);
    return mr_store_error(store, what);
}

int mr_store_step(struct mr_store *store, sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_DONE && sqlite3_reset(statement) == SQLITE_OK)
        return 0;
    return mr_store_error(store, "a row was not written");
}

int mr_store_prepare(struct mr_store *store, const char *sql, sqlite3_stmt **out)
{
    return sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK
               ? 0
               : mr_store_error(store, sql);
}

int mr_store_run(struct mr_store *store, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement;
    int rc = mr_store_prepare(store, sql, &statement);
    if (rc < 0)
        return rc;
    va_list args;
    va_start(args, types);
    int bound = SQLITE_OK;
    for (int i = 0; types[i] && bound == SQLITE_OK; i++) {
        if (types[i] == 'i')
            bound = sqlite3_bind_int64(statement, i + 1, va_arg(args, int64_t));
        else if (types[i] == 't')
            bound = sqlite3_bind_text(statement, i + 1, va_arg(args, const char *), -1,
                                      SQLITE_TRANSIENT);
    }
    va_end(args);
    rc = bound == SQLITE_OK ? mr_store_step(store, statement)
                            : mr_store_error(store, "a row was not written");
    sqlite3_finalize(statement);
    return rc;
}

int mr_store_meta(struct mr_store *store, const char *name, int64_t value)
{
    return mr_store_run(store, "INSERT OR REPLACE INTO MILLRACE_META VALUES (?, ?)", "ti", name,
                        value);
}

int mr_store_text(struct mr_store *store, const char *text, size_t bytes, uint32_t *out)
{
    bool is_new;
    int rc = mr_texts_add(&store->texts, text, bytes, out, &is_new);
    if (rc < 0 || !is_new)
        return rc;
    if (sqlite3_bind_int64(store->insert_string, 1, *out) != SQLITE_OK ||
        sqlite3_bind_text(store->insert_string, 2, store->texts.text[*out],
                          (int)store->texts.bytes[*out], SQLITE_STATIC) != SQLITE_OK)
        return mr_store_error(store, "a name");
    return mr_store_step(store, store->insert_string);
}

uint32_t mr_store_string(struct mr_store *store, const char *text, size_t bytes)
{
    uint32_t number;
    return text && mr_store_text(store, text, bytes, &number) == 0 ? number : 0;
}

void mr_store_origin(struct mr_store *store, uint64_t origin_ns, uint64_t origin_unix_ns)
{
    store->origin_ns = origin_ns;
    store->origin_unix_ns = origin_unix_ns;
    store->has_origin = true;
}

int64_t mr_store_time(struct mr_store *store, uint64_t time_ns)
{
    if (time_ns < store->origin_ns) {
        store->n_backwards++;
        return 0;
    }
    return (int64_t)MR_MIN(time_ns - store->origin_ns, (uint64_t)INT64_MAX / 2);
}
