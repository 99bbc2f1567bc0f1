/* rocpd: which tables a file has, and whether they are of a version that is known. */
#include "recording/rocpd.h"

#include <errno.h>
#include <string.h>

#define VERSION   "3"
#define METADATA  "rocpd_metadata"
#define MOST_SETS 4096 /* processes; a file that names more is made up */

/* What all layouts have; of the first four a column tells them apart. */
static const char *const tables[] = {"rocpd_kernel_dispatch",
                                     "rocpd_memory_copy",
                                     "rocpd_memory_allocate",
                                     "rocpd_region",
                                     "rocpd_event",
                                     "rocpd_string",
                                     "rocpd_track",
                                     "rocpd_sample",
                                     "rocpd_info_process",
                                     "rocpd_info_thread",
                                     "rocpd_info_node",
                                     "rocpd_info_agent",
                                     "rocpd_info_kernel_symbol"};
#define WITH_TIMES 4

int mr_rocpd_prepare(struct mr_rocpd *k, const struct mr_rocpd_set *set, const char *sql,
                     sqlite3_stmt **out)
{
    char text[4096];
    size_t n = 0;
    for (const char *at = sql; *at && n + MR_ROCPD_SUFFIX < sizeof text;) {
        bool suffix = strncmp(at, "{s}", 3) == 0, place = strncmp(at, "{p}", 3) == 0;
        if (suffix)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", set->suffix);
        else
            text[n++] = place ? (set->tracks ? 'T' : 'X') : *at;
        at += suffix || place ? 3 : 1;
    }
    text[n] = 0;
    if (sqlite3_prepare_v2(k->db, text, -1, out, NULL) == SQLITE_OK)
        return 0;
    return mr_recording_error(k->db, k->path, "its rocpd tables cannot be read");
}

int mr_rocpd_step(struct mr_rocpd *k, sqlite3_stmt *stmt)
{
    int code = sqlite3_step(stmt);
    if (code == SQLITE_ROW || code == SQLITE_DONE)
        return code == SQLITE_ROW;
    return mr_recording_error(k->db, k->path, "its rocpd tables cannot be read");
}

/* Of a uuid: they become part of SQL. */
static bool is_suffix(const char *text)
{
    return strlen(text) < MR_ROCPD_SUFFIX &&
           strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") ==
               strlen(text);
}

static bool has(struct mr_rocpd *k, const struct mr_rocpd_set *set, const char *table,
                const char *column, bool *is_key)
{
    char name[MR_ROCPD_SUFFIX + 40];
    int key = 0;
    snprintf(name, sizeof name, "%s%s", table, set->suffix);
    int code =
        sqlite3_table_column_metadata(k->db, NULL, name, column, NULL, NULL, NULL, &key, NULL);
    if (is_key)
        *is_key = key;
    return code == SQLITE_OK;
}

static int check_version(struct mr_rocpd *k, const struct mr_rocpd_set *set)
{
    sqlite3_stmt *stmt;
    char found[32] = "no version at all";
    int rc = mr_rocpd_prepare(k, set,
                              "SELECT \"value\" FROM \"rocpd_metadata{s}\" WHERE "
                              "\"tag\" = 'schema_version'",
                              &stmt);
    if (rc < 0)
        return rc;
    rc = mr_rocpd_step(k, stmt);
    if (rc == 1 && sqlite3_column_text(stmt, 0))
        snprintf(found, sizeof found, "version %s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    if (rc < 0 || strcmp(found, "version " VERSION) == 0)
        return rc < 0 ? rc : 0;
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: is a rocpd database of %s of the tables: this millrace reads "
                        "version " VERSION ", of rocprofv3 since ROCm 7 (rocprofv3 "
                        "--output-format pftrace or otf2 writes for other readers)",
                        k->path, found);
}

static int lacks(struct mr_rocpd *k, const struct mr_rocpd_set *set, const char *table,
                 const char *what)
{
    return mr_error_set(MR_EFORMAT,
                        "%s: is incomplete: its table %s%s %s, which rocpd's version " VERSION
                        " has; record again",
                        k->path, table, set->suffix, what);
}

static int check_tables(struct mr_rocpd *k, struct mr_rocpd_set *set)
{
    bool key = false;
    set->tracks = has(k, set, tables[0], "start_id", NULL);
    set->categories = has(k, set, "rocpd_info_category", "name", NULL);
    for (size_t i = 0; i < MR_COUNT(tables); i++) {
        if (!has(k, set, tables[i], NULL, NULL))
            return lacks(k, set, tables[i], "is not there");
        /* rows are joined by it: otherwise one event might become many */
        if (!has(k, set, tables[i], "id", &key) || !key)
            return lacks(k, set, tables[i], "has no primary key id");
        if (i < WITH_TIMES && !has(k, set, tables[i], set->tracks ? "start_id" : "start", NULL))
            return lacks(k, set, tables[i],
                         set->tracks ? "has no column start_id" : "has no column start");
    }
    if (set->tracks && (!has(k, set, "rocpd_timestamp", "id", &key) || !key))
        return lacks(k, set, "rocpd_timestamp", "is not there, or has no primary key id");
    return 0;
}

/* Names, as a cursor over them would not outlive the questions about each. */
int mr_rocpd_find_sets(struct mr_rocpd *k)
{
    sqlite3_stmt *stmt;
    int rc = mr_rocpd_prepare(k, &(struct mr_rocpd_set){0},
                              "SELECT name FROM sqlite_master WHERE type = 'table' AND (name = "
                              "'" METADATA "' OR name GLOB '" METADATA "[_]*') ORDER BY name",
                              &stmt);
    if (rc < 0)
        return rc;
    while (rc >= 0 && (rc = mr_rocpd_step(k, stmt)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        if (!name || !is_suffix(name + strlen(METADATA)))
            continue;
        if (k->n_sets == MOST_SETS)
            rc = mr_error_set(MR_ELIMIT, "%s: has tables of more than %d processes", k->path,
                              MOST_SETS);
        else
            rc = mr_grow(k->path, &k->sets, &k->sets_capacity, k->n_sets + 1, sizeof *k->sets);
        if (rc < 0)
            break;
        k->sets[k->n_sets] = (struct mr_rocpd_set){0};
        snprintf(k->sets[k->n_sets++].suffix, MR_ROCPD_SUFFIX, "%s", name + strlen(METADATA));
    }
    sqlite3_finalize(stmt);
    for (uint64_t i = 0; i < k->n_sets && rc >= 0; i++) {
        rc = check_version(k, &k->sets[i]);
        rc = rc < 0 ? rc : check_tables(k, &k->sets[i]);
    }
    return rc;
}
