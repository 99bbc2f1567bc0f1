/* cuda_gpu_trace and cuda_api_trace: a row for each thing, in the order of their beginnings. */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>

/* Devices' names, "NVIDIA H200 (0)", by number. */
#define MAX_DEVICES 64
struct devices {
    char name[MAX_DEVICES][128];
};

static int name_devices(struct devices *devices, struct mr_recording *recording)
{
    struct sqlite3_stmt *stmt = NULL;
    for (int i = 0; i < MAX_DEVICES; i++)
        snprintf(devices->name[i], sizeof devices->name[i], "(%d)", i);
    if (!mr_recording_has(recording, "TARGET_INFO_GPU", "name"))
        return 0;
    int rc = mr_sql_prepare(recording, &stmt, "SELECT id, name FROM TARGET_INFO_GPU");
    while (rc == 0 && (rc = mr_sql_step(recording, stmt)) == 1) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        const char *name = (const char *)sqlite3_column_text(stmt, 1);
        rc = 0;
        if (name && id >= 0 && id < MAX_DEVICES)
            snprintf(devices->name[id], sizeof devices->name[id], "%.100s (%d)", name, (int)id);
    }
    sqlite3_finalize(stmt);
    return rc;
}

struct trace {
    struct mr_recording *recording;
    const struct mr_report_opts *opts;
    struct mr_filter filter;
    struct mr_names names;
    struct mr_left_out left;
    struct devices devices;
    struct mr_table *table;
};

/* Columns that every device table has, after start and end. */
#define WHERE "correlationId, deviceId, contextId, streamId, %s"
enum { CORRELATION = 2, DEVICE, CONTEXT, STREAM, GREEN, FIRST_OWN };

static void put_times(struct trace *t, const struct mr_rows *rows)
{
    mr_table_row(t->table);
    mr_table_int(t->table, rows->start);
    mr_table_int(t->table, rows->end - rows->start);
}

static void put_where(struct trace *t, struct sqlite3_stmt *stmt)
{
    int64_t device = sqlite3_column_int64(stmt, DEVICE);
    mr_table_text(t->table, device >= 0 && device < MAX_DEVICES ? t->devices.name[device] : "");
    mr_table_int(t->table, sqlite3_column_int64(stmt, CONTEXT));
    if (sqlite3_column_type(stmt, GREEN) == SQLITE_INTEGER)
        mr_table_int(t->table, sqlite3_column_int64(stmt, GREEN));
    else
        mr_table_empty(t->table);
    mr_table_int(t->table, sqlite3_column_int64(stmt, STREAM));
}

static void put_kernel(struct trace *t, struct sqlite3_stmt *stmt)
{
    mr_table_int(t->table, sqlite3_column_int64(stmt, CORRELATION));
    for (int i = 0; i < 9; i++) /* grid, block, registers, shared memory */
        mr_table_int(t->table, sqlite3_column_int64(stmt, FIRST_OWN + 1 + i));
    for (int i = 0; i < 4; i++)
        mr_table_empty(t->table);
    put_where(t, stmt);
    const char *name = mr_names_get(&t->names, sqlite3_column_int64(stmt, FIRST_OWN));
    mr_table_text(t->table, *name ? name : "(no name)");
}

static void put_memory(struct trace *t, struct sqlite3_stmt *stmt, const struct mr_rows *rows,
                       bool copy)
{
    char name[64] = "[CUDA memset]";
    int64_t bytes = sqlite3_column_int64(stmt, FIRST_OWN);
    mr_table_int(t->table, sqlite3_column_int64(stmt, CORRELATION));
    for (int i = 0; i < 9; i++)
        mr_table_empty(t->table);
    mr_table_bytes(t->table, (uint64_t)bytes);
    if (bytes && rows->end > rows->start)
        mr_table_real(t->table, (double)bytes * 1e9 / (double)(rows->end - rows->start));
    else
        mr_table_empty(t->table);
    if (copy)
        mr_table_text(t->table, mr_memory_label(sqlite3_column_int64(stmt, FIRST_OWN + 1)));
    else
        mr_table_empty(t->table);
    mr_table_text(t->table, mr_memory_label(sqlite3_column_int64(stmt, FIRST_OWN + 2)));
    put_where(t, stmt);
    if (copy)
        snprintf(name, sizeof name, "[CUDA memcpy %s]",
                 mr_copy_label(sqlite3_column_int64(stmt, FIRST_OWN + 3)));
    mr_table_text(t->table, name);
}

enum part { KERNELS, COPIES, SETS };

static int put_part(struct trace *t, enum part part)
{
    static const char *const tables[] = {MR_TABLE_KERNEL, MR_TABLE_COPY, MR_TABLE_SET};
    char columns[512];
    struct mr_rows rows;
    const char *green = mr_sql_column(t->recording, tables[part], "greenContextId", "NULL");
    const char *kind = mr_sql_column(t->recording, tables[part], "memKind", "-1");
    if (part == KERNELS)
        snprintf(columns, sizeof columns,
                 WHERE ", %s, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread,"
                       " staticSharedMemory, dynamicSharedMemory",
                 green, mr_kernel_name_sql(t->recording, t->opts->kernel_names));
    else if (part == COPIES)
        snprintf(columns, sizeof columns, WHERE ", bytes, srcKind, dstKind, copyKind", green);
    else
        snprintf(columns, sizeof columns, WHERE ", bytes, -1, %s", green, kind);
    int rc =
        mr_rows_open(&rows, t->recording, tables[part], columns, &t->filter, t->opts, &t->left);
    while (rc == 0 && (rc = mr_rows_next(&rows)) == 1) {
        put_times(t, &rows);
        if (part == KERNELS)
            put_kernel(t, rows.stmt);
        else
            put_memory(t, rows.stmt, &rows, part == COPIES);
        rc = 0;
    }
    mr_rows_close(&rows);
    return rc;
}

static const struct mr_column gpu_columns[] = {
    {"Start", MR_UNIT_NS, MR_CELL_INT},       {"Duration", MR_UNIT_NS, MR_CELL_INT},
    {"CorrId", MR_UNIT_NONE, MR_CELL_INT},    {"GrdX", MR_UNIT_NONE, MR_CELL_INT},
    {"GrdY", MR_UNIT_NONE, MR_CELL_INT},      {"GrdZ", MR_UNIT_NONE, MR_CELL_INT},
    {"BlkX", MR_UNIT_NONE, MR_CELL_INT},      {"BlkY", MR_UNIT_NONE, MR_CELL_INT},
    {"BlkZ", MR_UNIT_NONE, MR_CELL_INT},      {"Reg/Trd", MR_UNIT_NONE, MR_CELL_INT},
    {"StcSMem", MR_UNIT_BYTES, MR_CELL_INT},  {"DymSMem", MR_UNIT_BYTES, MR_CELL_INT},
    {"Bytes", MR_UNIT_BYTES, MR_CELL_INT},    {"Throughput", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
    {"SrcMemKd", MR_UNIT_NONE, MR_CELL_TEXT}, {"DstMemKd", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Device", MR_UNIT_NONE, MR_CELL_TEXT},   {"Ctx", MR_UNIT_NONE, MR_CELL_INT},
    {"GreenCtx", MR_UNIT_NONE, MR_CELL_INT},  {"Strm", MR_UNIT_NONE, MR_CELL_INT},
    {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
};

static const struct mr_column api_columns[] = {
    {"Start", MR_UNIT_NS, MR_CELL_INT},          {"Duration", MR_UNIT_NS, MR_CELL_INT},
    {"Name", MR_UNIT_NONE, MR_CELL_TEXT},        {"Result", MR_UNIT_NONE, MR_CELL_INT},
    {"CorrID", MR_UNIT_NONE, MR_CELL_INT},       {"Pid", MR_UNIT_NONE, MR_CELL_INT},
    {"Tid", MR_UNIT_NONE, MR_CELL_INT},          {"T-Pri", MR_UNIT_NONE, MR_CELL_INT},
    {"Thread Name", MR_UNIT_NONE, MR_CELL_TEXT},
};

static int open_trace(struct trace *t, struct mr_recording *recording,
                      const struct mr_report_opts *opts)
{
    t->recording = recording;
    t->opts = opts;
    int rc = mr_filter_open(&t->filter, recording, opts);
    if (rc)
        return rc;
    rc = mr_names_open(&t->names, recording);
    if (rc)
        mr_filter_close(&t->filter);
    return rc;
}

/* Finishes or drops the table. */
static int close_trace(struct trace *t, int rc, const char *missing, struct mr_table **out)
{
    if (rc == 0) {
        mr_report_note(t->table, &t->left, missing);
        rc = mr_report_finish(t->table, t->opts, "-Start", out);
    } else {
        mr_table_destroy(t->table);
    }
    mr_names_close(&t->names);
    mr_filter_close(&t->filter);
    return rc;
}

static int make_gpu(struct mr_recording *recording, const struct mr_report_opts *opts,
                    struct mr_table **out)
{
    struct trace *t = calloc(1, sizeof *t);
    char missing[MR_MISSING_BYTES];
    int rc = t ? open_trace(t, recording, opts) : mr_error_nomem("a trace", sizeof *t);
    if (rc) {
        free(t);
        return rc;
    }
    t->table = mr_table_create("Device activity in order (cuda_gpu_trace)", gpu_columns,
                               MR_COUNT(gpu_columns));
    rc = t->table ? name_devices(&t->devices, recording) : mr_error_nomem("a table", 0);
    for (int part = KERNELS; part <= SETS && rc == 0; part++)
        rc = put_part(t, (enum part)part);
    mr_report_missing(recording, MR_TABLE_KERNEL, "device activity", "cuda", opts, missing);
    rc = close_trace(t, rc, missing, out);
    free(t);
    return rc;
}

static void put_call(struct trace *t, const struct mr_rows *rows, const struct mr_labels *labels)
{
    struct sqlite3_stmt *stmt = rows->stmt;
    const char *name = mr_names_get(&t->names, sqlite3_column_int64(stmt, 2));
    char cut[256];
    int64_t thread = sqlite3_column_int64(stmt, 5);
    snprintf(cut, sizeof cut, "%.*s", MR_MIN(mr_call_name_bytes(name), 255), name);
    put_times(t, rows);
    mr_table_text(t->table, *cut ? cut : "(no name)");
    mr_table_int(t->table, sqlite3_column_int64(stmt, 3));
    mr_table_int(t->table, sqlite3_column_int64(stmt, 4));
    mr_table_int(t->table, thread >> 24 & 0xffffff);
    mr_table_int(t->table, thread & 0xffffff);
    mr_table_empty(t->table); /* priorities are not recorded */
    const char *label = mr_labels_thread(labels, &t->names, thread);
    mr_table_text(t->table, *label ? label : NULL);
}

static int put_calls(struct trace *t)
{
    struct mr_rows rows = {0};
    struct mr_labels labels;
    int rc = mr_labels_open(&labels, t->recording);
    if (rc == 0)
        rc = mr_rows_open(&rows, t->recording, MR_TABLE_RUNTIME,
                          "nameId, returnValue, correlationId, globalTid", &t->filter, t->opts,
                          &t->left);
    while (rc == 0 && (rc = mr_rows_next(&rows)) == 1) {
        put_call(t, &rows, &labels);
        rc = 0;
    }
    mr_rows_close(&rows);
    mr_labels_close(&labels);
    return rc;
}

static int make_api(struct mr_recording *recording, const struct mr_report_opts *opts,
                    struct mr_table **out)
{
    struct trace *t = calloc(1, sizeof *t);
    char missing[MR_MISSING_BYTES];
    int rc = t ? open_trace(t, recording, opts) : mr_error_nomem("a trace", sizeof *t);
    if (rc) {
        free(t);
        return rc;
    }
    t->table = mr_table_create("CUDA API calls in order (cuda_api_trace)", api_columns,
                               MR_COUNT(api_columns));
    rc = t->table ? put_calls(t) : mr_error_nomem("a table", 0);
    mr_report_missing(recording, MR_TABLE_RUNTIME, "CUDA API calls", "cuda", opts, missing);
    rc = close_trace(t, rc, missing, out);
    free(t);
    return rc;
}

const struct mr_report_kind mr_report_trace_kinds[] = {
    {"cuda_gpu_trace", "Kernels, copies and memsets in order", make_gpu,
     MR_REPORT_OPS | MR_REPORT_KERNELS},
    {"cuda_api_trace", "CUDA API calls in order", make_api, MR_REPORT_CALLS},
};
const uint32_t mr_report_n_trace_kinds = MR_COUNT(mr_report_trace_kinds);
