/* A recording's database while it is written: under a temporary name, in one transaction, without a
 * journal. */
#include "recording/store.h"
#include "recording/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <millrace/output.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct mr_store_column *first_seldom(const struct mr_store_table *table)
{
    const struct mr_store_column *column = table->columns;
    while (column->name && (!table->seldom || strcmp(table->seldom, column->name) != 0))
        column++;
    return column;
}

static int table_make(struct mr_store *store, const struct mr_store_table *table)
{
    struct mr_store_batch *batch = &store->batch[table->record];
    char create[4096];
    int c = snprintf(create, sizeof(create), "CREATE TABLE %s (", table->name);
    const char *comma = "";
    batch->table = table;
    batch->seldom = first_seldom(table);
    for (const struct mr_store_column *column = table->columns; column != batch->seldom; column++) {
        c += snprintf(create + c, sizeof(create) - (size_t)c, "%s\"%s\" %s", comma, column->name,
                      column->type);
        comma = ", ";
    }
    snprintf(create + c, sizeof(create) - (size_t)c, ")");
    int rc = mr_store_exec(store, create);
    return rc < 0 ? rc : mr_store_batch_prepare(store, batch);
}

static bool is_before(const struct mr_store_column *column, const char *last)
{
    while (last && column->name && strcmp(column->name, last) != 0)
        column++;
    return column->name != NULL;
}

int mr_store_widen(struct mr_store *store, enum mr_part_type type, const char *last)
{
    struct mr_store_batch *batch = &store->batch[type];
    char add[256];
    if (!batch->table || !is_before(batch->seldom, last))
        return 0;
    int rc = mr_store_flush(store, type);
    for (bool more = true; more && batch->seldom->name && rc == 0; batch->seldom++) {
        const struct mr_store_column *column = batch->seldom;
        snprintf(add, sizeof(add), "ALTER TABLE %s ADD COLUMN \"%s\" %s", batch->table->name,
                 column->name, column->type);
        rc = mr_store_exec(store, add);
        more = !last || strcmp(column->name, last) != 0;
    }
    return rc < 0 ? rc : mr_store_batch_prepare(store, batch);
}

static int tables_make(struct mr_store *store)
{
    const char *const begin[] = {
        "PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-65536; PRAGMA temp_store=FILE;"
        "BEGIN",
        mr_store_more_tables, mr_store_enums};
    for (size_t i = 0; i < MR_COUNT(begin); i++) {
        int rc = mr_store_exec(store, begin[i]);
        if (rc < 0)
            return rc;
    }
    for (uint32_t i = 0; i < mr_store_n_tables; i++) {
        int rc = table_make(store, &mr_store_tables[i]);
        if (rc < 0)
            return rc;
    }
    int rc = mr_store_prepare(store, "INSERT INTO StringIds VALUES (?, ?)", &store->insert_string);
    if (rc < 0)
        return rc;
    return mr_store_exec(store, "INSERT INTO StringIds VALUES (0, '')");
}

static int refuse_existing(const char *path)
{
    return mr_error_errno(
        EEXIST, "%s: is not overwritten; remove it, name another, or ask for overwriting", path);
}

/* No other process uses the file, so SQLite need not lock it. */
static int database_open(struct mr_store *store)
{
    store->temporary = mr_output_get_name(store->output);
    if (sqlite3_open_v2(store->temporary, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                        "unix-none"))
        return mr_store_error(store, "cannot be opened");
    return 0;
}

/* SQLite wants a name to open; the file has none once it is open, so nothing of it stays behind. */
static int unnamed_open(struct mr_store *store)
{
    const char *folder = getenv("TMPDIR");
    if (!folder || !folder[0])
        folder = "/var/tmp";
    if (asprintf(&store->unnamed, "%s/millrace-import-XXXXXX", folder) < 0) {
        store->unnamed = NULL;
        return mr_error_nomem(store->path, 0);
    }
    int fd = mkostemp(store->unnamed, O_CLOEXEC);
    if (fd < 0)
        return mr_error_errno(errno,
                              "%s: reading it needs a temporary file in %s (set TMPDIR to another "
                              "folder)",
                              store->path, folder);
    close(fd);
    store->temporary = store->unnamed;
    int rc = sqlite3_open_v2(store->unnamed, &store->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "unix-none");
    unlink(store->unnamed);
    return rc == SQLITE_OK ? 0 : mr_store_error(store, "cannot be opened");
}

static int store_begin(struct mr_store *store)
{
    int rc = mr_texts_init(&store->texts);
    if (rc < 0)
        return rc;
    rc = tables_make(store);
    if (rc < 0)
        return rc;
    store->demangler = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
    if (store->demangler)
        *(void **)&store->demangle = dlsym(store->demangler, "__cxa_demangle");
    return 0;
}

static int store_alloc(const char *path, struct mr_store **out)
{
    struct mr_store *store = calloc(1, sizeof(*store));
    if (!store)
        return mr_error_nomem(path, sizeof(*store));
    store->path = strdup(path);
    if (!store->path) {
        free(store);
        return mr_error_nomem(path, strlen(path));
    }
    *out = store;
    return 0;
}

int mr_store_create(const char *path, bool overwrite, struct mr_store **out)
{
    struct mr_store *store = NULL;
    int rc = store_alloc(path, &store);
    if (rc < 0)
        return rc;
    store->overwrite = overwrite;
    rc = !overwrite && access(path, F_OK) == 0 ? refuse_existing(path) : 0;
    if (rc < 0)
        goto fail;
    rc = mr_output_open(path, &store->output);
    if (rc < 0)
        goto fail;
    rc = database_open(store);
    if (rc < 0)
        goto fail;
    rc = store_begin(store);
    if (rc < 0)
        goto fail;
    *out = store;
    return 0;
fail:
    mr_store_abandon(store);
    return rc;
}

int mr_store_create_unnamed(const char *path, struct mr_store **out)
{
    struct mr_store *store = NULL;
    int rc = store_alloc(path, &store);
    if (rc < 0)
        return rc;
    rc = unnamed_open(store);
    if (rc < 0)
        goto fail;
    rc = store_begin(store);
    if (rc < 0)
        goto fail;
    *out = store;
    return 0;
fail:
    mr_store_abandon(store);
    return rc;
}

static void close_statements(struct mr_store *store)
{
    sqlite3_stmt **const statements[] = {&store->insert_counter, &store->insert_metric,
                                         &store->insert_string};
    for (int i = 0; i < MR_N_PART_TYPES; i++)
        mr_store_batch_close(&store->batch[i]);
    for (size_t i = 0; i < MR_COUNT(statements); i++) {
        sqlite3_finalize(*statements[i]);
        *statements[i] = NULL;
    }
}

static void close_database(struct mr_store *store)
{
    close_statements(store);
    sqlite3_close(store->db);
    store->db = NULL;
}

void mr_store_abandon(struct mr_store *store)
{
    if (!store)
        return;
    if (store->db)
        close_database(store);
    mr_output_close(store->output);
    if (store->demangler)
        dlclose(store->demangler);
    mr_map_free(&store->pids);
    mr_map_free(&store->declared);
    mr_map_free(&store->devices);
    mr_store_processes_free(store);
    free(store->seen);
    mr_symbols_destroy(store->symbols);
    mr_texts_free(&store->texts);
    free(store->names);
    free(store->unnamed);
    free(store->path);
    free(store);
}

static int totals_put(struct mr_store *store)
{
    const struct {
        const char *name;
        uint64_t value;
    } totals[] = {
        {"schema", MR_STORE_SCHEMA},         {"origin_ns", store->origin_ns},
        {"end_ns", store->end_ns},           {"traced", store->traced},
        {"n_records", store->n_records},     {"n_lost_timestamps", store->n_lost_timestamps},
        {"n_backwards", store->n_backwards}, {"n_dropped", store->n_dropped},
    };
    for (uint32_t i = 0; i < MR_COUNT(totals); i++) {
        int rc = mr_store_meta(store, totals[i].name,
                               (int64_t)MR_MIN(totals[i].value, (uint64_t)INT64_MAX));
        if (rc < 0)
            return rc;
    }
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (n_cores <= 0)
        return 0;
    return mr_store_run(store, "INSERT OR IGNORE INTO MILLRACE_META VALUES ('n_cores', ?)", "i",
                        (int64_t)n_cores);
}

static int session_put(struct mr_store *store)
{
    char utc[40] = "", local[40] = "";
    time_t seconds = (time_t)(store->origin_unix_ns / 1000000000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm))
        strftime(utc, sizeof(utc), "%Y-%m-%d %H:%M:%S", &tm);
    if (localtime_r(&seconds, &tm))
        strftime(local, sizeof(local), "%Y-%m-%d %H:%M:%S", &tm);
    int rc =
        mr_store_run(store, "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, ?, ?)", "itt",
                     (int64_t)MR_MIN(store->origin_unix_ns, (uint64_t)INT64_MAX), utc, local);
    if (rc < 0)
        return rc;
    rc = mr_store_run(store, "INSERT INTO ANALYSIS_DETAILS VALUES (0, ?, 0, ?)", "ii",
                      (int64_t)store->end_ns, (int64_t)store->end_ns);
    if (rc < 0)
        return rc;
    return mr_store_run(
        store, "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_NAME', 'millrace')", "");
}

static int finish_rows(struct mr_store *store)
{
    int rc = mr_store_processes_put(store);
    if (rc < 0)
        return rc;
    store->now = NULL;
    rc = mr_store_flush_all(store);
    if (rc < 0)
        return rc;
    for (int type = 0; type < MR_N_PART_TYPES; type++) {
        rc = mr_store_widen(store, (enum mr_part_type)type, NULL);
        if (rc < 0)
            return rc;
    }
    rc = totals_put(store);
    if (rc < 0)
        return rc;
    rc = session_put(store);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < mr_store_n_indexes; i++) {
        rc = mr_store_exec(store, mr_store_indexes[i]);
        if (rc < 0)
            return rc;
    }
    /* A database without a name stays ours: nobody's "-journal" beside its old name counts. */
    return mr_store_exec(store, store->unnamed
                                    ? "COMMIT; PRAGMA user_version=1"
                                    : "COMMIT; PRAGMA locking_mode=NORMAL; PRAGMA user_version=1");
}

int mr_store_finish(struct mr_store *store)
{
    int rc = finish_rows(store);
    if (rc < 0)
        goto end;
    close_database(store);
    rc = mr_output_commit(store->output, store->overwrite);
end:
    mr_store_abandon(store);
    return rc;
}

int mr_store_finish_unnamed(struct mr_store *store, struct sqlite3 **out)
{
    int rc = finish_rows(store);
    if (rc < 0)
        goto end;
    close_statements(store);
    *out = store->db;
    store->db = NULL;
end:
    mr_store_abandon(store);
    return rc;
}
