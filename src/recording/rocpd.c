/* rocpd, the SQLite database of rocprofv3: a node's processes as one recording; several nodes,
 * whose clocks differ, as recordings of one job. */
#include "recording/rocpd.h"
#include "recording/join.h"

#include <errno.h>
#include <string.h>

/* ---- one node ---- */

/* The earliest start of a set's events that count; 0: it has none. */
static int first_time(struct mr_rocpd *k, uint32_t set, int64_t *out)
{
    static const char *const tables[] = {"rocpd_region", "rocpd_kernel_dispatch",
                                         "rocpd_memory_copy", "rocpd_memory_allocate"};
    bool tracks = k->sets[set].tracks;
    int rc = 0;
    *out = 0;
    for (size_t i = 0; i < MR_COUNT(tables) && rc == 0; i++) {
        sqlite3_stmt *stmt;
        char sql[400];
        snprintf(sql, sizeof sql,
                 tracks ? "SELECT min(A.\"value\") FROM \"%s{s}\" X"
                          " JOIN \"rocpd_timestamp{s}\" A ON A.id = X.start_id"
                          " JOIN \"rocpd_timestamp{s}\" B ON B.id = X.end_id"
                          " WHERE A.\"value\" > 0 AND B.\"value\" >= A.\"value\""
                        : "SELECT min(\"start\") FROM \"%s{s}\" WHERE \"start\" > 0 AND"
                          " \"end\" >= \"start\" AND typeof(\"start\") = 'integer'",
                 tables[i]);
        rc = mr_rocpd_prepare(k, &k->sets[set], sql, &stmt);
        if (rc < 0)
            return rc;
        rc = mr_rocpd_step(k, stmt);
        int64_t first = rc == 1 ? sqlite3_column_int64(stmt, 0) : 0;
        if (first > 0 && (*out == 0 || first < *out))
            *out = first;
        sqlite3_finalize(stmt);
        rc = rc < 0 ? rc : 0;
    }
    return rc;
}

/* A process begins before its events, but not days before: then it is of another clock. */
#define LONG_NS 86400000000000

/* One before the earliest event: device work from 0 to 0 would be taken for work without times. */
static int set_origin(struct mr_rocpd *k)
{
    int64_t origin = 0;
    for (uint64_t i = 0; i < k->n_hosts; i++) {
        struct mr_rocpd_host *host = &k->hosts[i];
        int64_t first = 0;
        int rc = host->node == k->node ? first_time(k, host->set, &first) : 0;
        if (rc < 0)
            return rc;
        host->last_ns = 0;
        if (host->start_ns <= 0 || host->start_ns >= first || first - host->start_ns > LONG_NS)
            host->start_ns = MR_MAX(first - 1, 0);
        if (host->node == k->node && first > 0 && (origin == 0 || host->start_ns < origin))
            origin = host->start_ns;
    }
    mr_store_origin(k->store, (uint64_t)MR_MAX(origin, 1), 0); /* the time of day is not told */
    return 0;
}

static int put_note(struct mr_rocpd *k, const char *name, int64_t value)
{
    struct mr_part_note note = {.value = value};
    int rc = mr_store_text(k->store, name, strlen(name), &note.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_NOTE, &note);
}

static int begin_process(struct mr_rocpd *k, struct mr_rocpd_host *host)
{
    struct mr_part_header header = {
        .version = MR_PART_VERSION,
        .pid = host->pid,
        .ppid = host->ppid,
        .start_ns = MR_MAX((uint64_t)host->start_ns, k->store->origin_ns),
    };
    struct mr_part_process process = {0};
    int rc = mr_store_process(k->store, &header);
    if (rc < 0)
        return rc;
    host->process = k->store->now;
    rc = mr_store_text(k->store, host->command, strlen(host->command), &process.command);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_PROCESS, &process);
}

static int end_process(struct mr_rocpd *k, const struct mr_rocpd_host *host)
{
    int64_t end = MR_MAX(host->last_ns, host->start_ns);
    mr_store_select(k->store, host->process);
    if (host->end_ns > end && host->end_ns - end < LONG_NS)
        end = host->end_ns;
    int rc = put_note(k, "exit", MR_MAX(end, (int64_t)k->store->origin_ns));
    rc = rc || host->rank < 0 ? rc : put_note(k, "rank", host->rank);
    return rc || host->world <= 0 ? rc : put_note(k, "world_size", host->world);
}

static int put_left_out(struct mr_rocpd *k)
{
    char wrong[300] = "", usual[300] = "";
    mr_import_count(wrong, sizeof wrong, k->n[MR_ROCPD_NO_TIME], "without a time");
    mr_import_count(wrong, sizeof wrong, k->n[MR_ROCPD_NEGATIVE],
                    "with a negative time or duration");
    mr_import_count(usual, sizeof usual, k->n[MR_ROCPD_SCRATCH],
                    "allocations without an address (scratch)");
    mr_import_count(usual, sizeof usual, k->n[MR_ROCPD_NO_RANGE],
                    "calls of roctx that are no ranges");
    return mr_import_left_out(k->store, k->path, wrong, usual);
}

static int put_meta(struct mr_rocpd *k)
{
    int rc = mr_import_source(k->store, "rocpd database");
    if (rc == 0 && k->n_kernels + k->n_copies == 0)
        rc = mr_import_note(k->store, "no_cuda",
                            "this rocpd database has no kernels and no copies (rocprofv3 "
                            "--kernel-trace --memory-copy-trace records them)");
    else if (rc == 0 && k->n_calls == 0)
        rc = mr_import_note(k->store, "import",
                            "no calls of HIP: rocprofv3 --hip-trace records them");
    return rc ? rc : put_left_out(k);
}

static int write_rows(struct mr_rocpd *k)
{
    int rc = mr_store_text(k->store, MR_IMPORT_RCCL, strlen(MR_IMPORT_RCCL), &k->rccl);
    uint64_t n_hosts = k->n_hosts;
    for (uint64_t i = 0; i < n_hosts && rc == 0; i++)
        rc = k->hosts[i].node == k->node ? begin_process(k, &k->hosts[i]) : 0;
    for (uint32_t i = 0; i < k->n_sets && rc == 0; i++) {
        rc = mr_rocpd_put_places(k, i);
        rc = rc ? rc : mr_rocpd_put_set(k, i);
    }
    for (uint64_t i = 0; i < n_hosts && rc == 0; i++)
        rc = k->hosts[i].process ? end_process(k, &k->hosts[i]) : 0;
    return rc ? rc : put_meta(k);
}

static int write_node(struct mr_rocpd *k, uint64_t node, struct sqlite3 **out)
{
    k->node = node;
    memset(k->n, 0, sizeof k->n);
    k->n_kernels = k->n_copies = k->n_calls = 0;
    for (uint64_t i = 0; i < k->n_hosts; i++)
        k->hosts[i].process = NULL;
    int rc = mr_store_create_unnamed(k->path, &k->store);
    if (rc < 0)
        return rc;
    rc = set_origin(k);
    rc = rc ? rc : write_rows(k);
    if (rc == 0)
        return mr_store_finish_unnamed(k->store, out);
    mr_store_abandon(k->store);
    return rc;
}

/* ---- the file ---- */

static bool is_first_of_node(const struct mr_rocpd *k, uint64_t host)
{
    for (uint64_t i = 0; i < host; i++)
        if (k->hosts[i].node == k->hosts[host].node)
            return false;
    return true;
}

static int open_node(struct mr_rocpd *k, uint64_t host, struct mr_join_file *file)
{
    struct sqlite3 *db = NULL;
    char *name;
    if (asprintf(&name, "%s (%s)", k->path, k->hosts[host].node_name) < 0)
        return mr_error_nomem(k->path, 0);
    file->path = name;
    int rc = write_node(k, k->hosts[host].node, &db);
    rc = rc ? rc : mr_recording_wrap(name, db, true, &file->recording);
    return rc ? rc : mr_join_facts(file);
}

/* Each node has a clock of its own: collectives align them, as those of several files. */
static int join_nodes(struct mr_rocpd *k, uint32_t n, struct sqlite3 **out)
{
    struct mr_recording *joined = NULL;
    struct mr_join_file *files = calloc(n, sizeof *files);
    uint32_t node = 0;
    int rc = files ? 0 : mr_error_nomem(k->path, n * sizeof *files);
    uint64_t n_hosts = k->n_hosts;
    for (uint64_t i = 0; i < n_hosts && rc == 0; i++)
        if (is_first_of_node(k, i))
            rc = open_node(k, i, &files[node++]);
    rc = rc ? rc : mr_join_files(files, n, k->path, &joined);
    if (rc == 0) {
        *out = joined->db;
        joined->db = NULL;
        mr_recording_close(joined);
    }
    for (uint32_t i = 0; files && i < n; i++) {
        char *name = (char *)files[i].path;
        mr_join_file_free(&files[i]);
        free(name);
    }
    free(files);
    return rc;
}

static int import_file(struct mr_rocpd *k, struct sqlite3 **out)
{
    uint32_t n_nodes = 0;
    int rc = mr_rocpd_find_sets(k);
    rc = rc < 0 ? rc : mr_rocpd_read_places(k);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < k->n_hosts; i++)
        n_nodes += is_first_of_node(k, i);
    if (k->n_hosts == 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: is a rocpd database without a process: it was not finished, or "
                            "nothing was recorded",
                            k->path);
    return n_nodes == 1 ? write_node(k, k->hosts[0].node, out) : join_nodes(k, n_nodes, out);
}

static void free_all(struct mr_rocpd *k)
{
    for (uint64_t i = 0; i < k->n_hosts; i++)
        free(k->hosts[i].command);
    free(k->hosts);
    free(k->agents);
    free(k->sets);
    mr_map_free(&k->host_of);
    mr_map_free(&k->agent_of);
    mr_map_free(&k->tid_of);
    mr_map_free(&k->parents);
    mr_map_free(&k->held);
    sqlite3_close(k->db);
}

/* Damaged files are none of these: whoever opens them next says what is wrong. */
static bool is_rocpd(struct sqlite3 *db)
{
    sqlite3_stmt *stmt;
    bool found = false;
    if (sqlite3_prepare_v2(db,
                           "SELECT 1 FROM sqlite_master WHERE type = 'table' AND (name = "
                           "'rocpd_metadata' OR name GLOB 'rocpd_metadata[_]*')",
                           -1, &stmt, NULL) == SQLITE_OK)
        found = sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_finalize(stmt);
    return found;
}

bool mr_rocpd_is(const char *path)
{
    struct sqlite3 *db = NULL;
    bool is =
        sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK &&
        mr_recording_guard(db) && is_rocpd(db);
    sqlite3_close(db);
    return is;
}

int mr_rocpd_import(const char *path, struct sqlite3 **out)
{
    struct mr_rocpd k = {.path = path};
    int rc = 0;
    if (sqlite3_open_v2(path, &k.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) ==
            SQLITE_OK &&
        mr_recording_guard(k.db) && is_rocpd(k.db)) {
        rc = import_file(&k, out);
        rc = rc < 0 ? rc : 1;
    }
    free_all(&k);
    return rc;
}
