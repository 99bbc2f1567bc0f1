/*
 * cuda_kern_exec_sum and cuda_kern_exec_trace: from the launching call to the kernel's end; summed
 * by thread, device, call and kernel, or one by one.
 *
 * T(otal) runs from the call's beginning to the later of the call's and the kernel's end, A(PI) is
 * the call, K(ernel) the kernel, Q(ueue) the time from the call's end to the kernel's beginning
 * where that is positive: only those launches count in QCount and in the columns Q.
 */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>

enum { T, A, Q, K, N_SERIES };

/* start, end, deviceId, correlationId, process, name, rowid */
static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct mr_adder *w = state;
    int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1);
    if (!mr_report_takes(w->filter, &w->left, MR_OP_KERNEL, sqlite3_column_int64(stmt, 6), start,
                         end))
        return 0;
    uint64_t from = (uint64_t)start, to = (uint64_t)end,
             process = (uint64_t)sqlite3_column_int64(stmt, 4) >> 24;
    const struct mr_call *call =
        mr_calls_find(w->more, process, (uint32_t)sqlite3_column_int64(stmt, 3));
    if (!call) {
        w->n_alone++;
        return 0;
    }
    struct mr_key key = {(uint64_t)call->thread << 32 | (uint32_t)sqlite3_column_int64(stmt, 2),
                         (uint64_t)call->name << 32 | (uint32_t)sqlite3_column_int64(stmt, 5)};
    struct mr_series *s = mr_groups_at(&w->groups, key);
    if (!s)
        return -ENOMEM;
    /* clocks of host and device are matched after the fact: a kernel may seem to end before its
     * call began */
    uint64_t last = MR_MAX(MR_MAX(to, call->end), call->start);
    int rc = mr_series_add(&s[T], last - call->start);
    rc = rc ? rc : mr_series_add(&s[A], call->end - call->start);
    rc = rc ? rc : mr_series_add(&s[K], to - from);
    return rc || from <= call->end ? rc : mr_series_add(&s[Q], from - call->end);
}

/* Oldest exports don't say which process a kernel is of: then it is the only one's. */
static const char *process_sql(struct mr_recording *recording)
{
    return mr_sql_column(recording, MR_TABLE_KERNEL, "globalPid",
                         "(SELECT globalTid FROM " MR_TABLE_RUNTIME " LIMIT 1)");
}

static int add_up(struct mr_recording *recording, int names, const struct mr_adder *like,
                  struct mr_adder *out)
{
    char sql[512];
    const char *table = MR_TABLE_KERNEL;
    snprintf(sql, sizeof sql,
             "SELECT start, end, deviceId, correlationId, %s, %s, rowid FROM %s WHERE",
             process_sql(recording), mr_kernel_name_sql(recording, names), table);
    return mr_groups_scan(recording, table, sql, add_row, like, out);
}

static const struct mr_column columns[] = {
    {"PID", MR_UNIT_NONE, MR_CELL_INT},         {"TID", MR_UNIT_NONE, MR_CELL_INT},
    {"DevId", MR_UNIT_NONE, MR_CELL_INT},       {"Count", MR_UNIT_COUNT, MR_CELL_INT},
    {"QCount", MR_UNIT_COUNT, MR_CELL_INT},     {"TAvg", MR_UNIT_NS, MR_CELL_REAL},
    {"TMed", MR_UNIT_NS, MR_CELL_REAL},         {"TMin", MR_UNIT_NS, MR_CELL_INT},
    {"TMax", MR_UNIT_NS, MR_CELL_INT},          {"TStdDev", MR_UNIT_NS, MR_CELL_REAL},
    {"AAvg", MR_UNIT_NS, MR_CELL_REAL},         {"AMed", MR_UNIT_NS, MR_CELL_REAL},
    {"AMin", MR_UNIT_NS, MR_CELL_INT},          {"AMax", MR_UNIT_NS, MR_CELL_INT},
    {"AStdDev", MR_UNIT_NS, MR_CELL_REAL},      {"QAvg", MR_UNIT_NS, MR_CELL_REAL},
    {"QMed", MR_UNIT_NS, MR_CELL_REAL},         {"QMin", MR_UNIT_NS, MR_CELL_INT},
    {"QMax", MR_UNIT_NS, MR_CELL_INT},          {"QStdDev", MR_UNIT_NS, MR_CELL_REAL},
    {"KAvg", MR_UNIT_NS, MR_CELL_REAL},         {"KMed", MR_UNIT_NS, MR_CELL_REAL},
    {"KMin", MR_UNIT_NS, MR_CELL_INT},          {"KMax", MR_UNIT_NS, MR_CELL_INT},
    {"KStdDev", MR_UNIT_NS, MR_CELL_REAL},      {"API Name", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Kernel Name", MR_UNIT_NONE, MR_CELL_TEXT}};

struct line {
    double total; /* of T: what takes most comes first */
    uint32_t group;
};

static int by_total(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->total != y->total)
        return x->total > y->total ? -1 : 1;
    return x->group < y->group ? -1 : 1;
}

static void put_stats(struct mr_table *table, struct mr_series *series)
{
    struct mr_series_stats s;
    mr_series_stats(series, &s);
    if (s.n == 0) {
        for (int i = 0; i < 5; i++)
            mr_table_empty(table);
        return;
    }
    mr_table_real(table, s.average);
    mr_table_real(table, s.median);
    mr_table_int(table, (int64_t)s.min);
    mr_table_int(table, (int64_t)s.max);
    mr_table_real(table, s.deviation);
}

static void put_group(struct mr_table *table, struct mr_groups *g, uint32_t i,
                      const struct mr_calls *calls, struct mr_names *names)
{
    struct mr_key key = g->map.keys[i];
    struct mr_series *s = &g->series[(size_t)i * N_SERIES];
    uint64_t thread = calls->threads.keys[key.a >> 32].a;
    char call[256];
    const char *name = mr_names_get(names, (int64_t)(key.b >> 32));
    snprintf(call, sizeof call, "%.*s", MR_MIN(mr_call_name_bytes(name), 255), name);
    mr_table_row(table);
    mr_table_int(table, (int64_t)(thread >> 24 & 0xffffff));
    mr_table_int(table, (int64_t)(thread & 0xffffff));
    mr_table_int(table, (int64_t)(key.a & UINT32_MAX));
    mr_table_int(table, (int64_t)s[T].n);
    mr_table_int(table, (int64_t)s[Q].n);
    for (int k = 0; k < N_SERIES; k++)
        put_stats(table, &s[k]);
    mr_table_text(table, call);
    name = mr_names_get(names, (int64_t)(key.b & UINT32_MAX));
    mr_table_text(table, *name ? name : "(no name)");
}

static int fill(struct mr_table *table, struct mr_groups *g, const struct mr_calls *calls,
                struct mr_names *names)
{
    struct line *lines = malloc((g->map.n + 1ull) * sizeof *lines);
    if (!lines)
        return mr_error_nomem("a table", g->map.n * sizeof *lines);
    for (uint32_t i = 0; i < g->map.n; i++) {
        const struct mr_series *s = &g->series[(size_t)i * N_SERIES + T];
        lines[i] = (struct line){0, i};
        for (uint64_t k = 0; k < s->n; k++)
            lines[i].total += (double)mr_series_at(s, k);
    }
    qsort(lines, g->map.n, sizeof *lines, by_total);
    for (uint32_t i = 0; i < g->map.n; i++)
        put_group(table, g, lines[i].group, calls, names);
    free(lines);
    return 0;
}

static void note(struct mr_recording *recording, struct mr_table *table,
                 const struct mr_left_out *left, uint64_t n_alone,
                 const struct mr_report_opts *opts)
{
    char missing[MR_MISSING_BYTES];
    if (n_alone == 0 || mr_table_rows(table))
        mr_report_note(table, left,
                       mr_report_missing(recording, MR_TABLE_KERNEL, "kernels with their calls",
                                         "cuda", opts, missing));
    if (n_alone)
        mr_table_add_note(table, "%llu kernel%s whose call is not recorded left out",
                          (unsigned long long)n_alone, n_alone == 1 ? "" : "s");
}

static int make_sum(struct mr_recording *recording, const struct mr_report_opts *opts,
                    struct mr_table **out)
{
    struct mr_filter filter;
    struct mr_calls calls = {0};
    struct mr_names names = {0};
    const struct mr_adder none = {
        .filter = &filter, .more = &calls, .groups = {.n_series = N_SERIES}};
    struct mr_adder sums = none;
    struct mr_table *table = NULL;
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    if ((rc = mr_names_open(&names, recording)) != 0)
        goto end;
    if ((rc = mr_calls_load(&calls, recording, 1u << MR_CALL_LAUNCH | 1u << MR_CALL_GRAPH_LAUNCH,
                            NULL)) != 0)
        goto end;
    if (mr_recording_has(recording, MR_TABLE_KERNEL, "end"))
        rc = add_up(recording, opts->kernel_names, &none, &sums);
    if (rc)
        goto end;
    table = mr_table_create("Kernels from launch to end (cuda_kern_exec_sum)", columns,
                            MR_COUNT(columns));
    rc = table ? fill(table, &sums.groups, &calls, &names) : mr_error_nomem("a table", 0);
    if (rc) {
        mr_table_destroy(table);
        goto end;
    }
    note(recording, table, &sums.left, sums.n_alone, opts);
    rc = mr_report_finish(table, opts, NULL, out);
end:
    mr_groups_free(&sums.groups);
    mr_calls_free(&calls);
    mr_names_close(&names);
    mr_filter_close(&filter);
    return rc;
}

/* ---- one by one ---- */

static const struct mr_column trace_columns[] = {
    {"API Start", MR_UNIT_NS, MR_CELL_INT},       {"API Dur", MR_UNIT_NS, MR_CELL_INT},
    {"Queue Start", MR_UNIT_NS, MR_CELL_INT},     {"Queue Dur", MR_UNIT_NS, MR_CELL_INT},
    {"Kernel Start", MR_UNIT_NS, MR_CELL_INT},    {"Kernel Dur", MR_UNIT_NS, MR_CELL_INT},
    {"Total Dur", MR_UNIT_NS, MR_CELL_INT},       {"PID", MR_UNIT_NONE, MR_CELL_INT},
    {"TID", MR_UNIT_NONE, MR_CELL_INT},           {"DevId", MR_UNIT_NONE, MR_CELL_INT},
    {"API Function", MR_UNIT_NONE, MR_CELL_TEXT}, {"GridXYZ", MR_UNIT_NONE, MR_CELL_TEXT},
    {"BlockXYZ", MR_UNIT_NONE, MR_CELL_TEXT},     {"Kernel Name", MR_UNIT_NONE, MR_CELL_TEXT}};

/* Columns of the rows after start and end. */
enum { DEVICE = 2, CORRELATION, PROCESS, NAME, SHAPE };

static void put_launch(struct mr_table *table, const struct mr_rows *rows,
                       const struct mr_call *call, uint64_t thread, struct mr_names *names)
{
    struct sqlite3_stmt *stmt = rows->stmt;
    uint64_t start = (uint64_t)rows->start, end = (uint64_t)rows->end;
    uint32_t values[6];
    struct mr_shape_text shape = {{0}, {0}};
    char cut[256];
    const char *name = mr_names_get(names, call->name);
    snprintf(cut, sizeof cut, "%.*s", MR_MIN(mr_call_name_bytes(name), 255), name);
    mr_table_row(table);
    mr_table_int(table, (int64_t)call->start);
    mr_table_int(table, (int64_t)(call->end - call->start));
    for (int i = 0; i < 2; i++)
        if (start > call->end)
            mr_table_int(table, (int64_t)(i == 0 ? call->end : start - call->end));
        else
            mr_table_empty(table);
    mr_table_int(table, rows->start);
    mr_table_int(table, rows->end - rows->start);
    mr_table_int(table, (int64_t)(MR_MAX(MR_MAX(end, call->end), call->start) - call->start));
    mr_table_int(table, (int64_t)(thread >> 24 & 0xffffff));
    mr_table_int(table, (int64_t)(thread & 0xffffff));
    mr_table_int(table, sqlite3_column_int64(stmt, DEVICE));
    mr_table_text(table, cut);
    for (int i = 0; i < 6; i++)
        values[i] = (uint32_t)sqlite3_column_int64(stmt, SHAPE + i);
    mr_shapes_write(values, &shape);
    mr_table_text(table, shape.grid);
    mr_table_text(table, shape.block);
    name = mr_names_get(names, sqlite3_column_int64(stmt, NAME));
    mr_table_text(table, *name ? name : "(no name)");
}

static int put_launches(struct mr_recording *recording, const struct mr_filter *filter,
                        const struct mr_report_opts *opts, const struct mr_calls *calls,
                        struct mr_names *names, struct mr_table *table)
{
    char sql[512];
    struct mr_rows rows;
    struct mr_left_out left = {0};
    struct mr_report_opts all = *opts;
    uint64_t n_alone = 0;
    all.limit = 0; /* the order is of calls, and kernels without one are left out */
    snprintf(sql, sizeof sql, "deviceId, correlationId, %s, %s, " MR_SHAPE_COLUMNS,
             process_sql(recording), mr_kernel_name_sql(recording, opts->kernel_names));
    int rc = mr_rows_open(&rows, recording, MR_TABLE_KERNEL, sql, filter, &all, &left);
    while (rc == 0 && (rc = mr_rows_next(&rows)) == 1) {
        uint64_t process = (uint64_t)sqlite3_column_int64(rows.stmt, PROCESS) >> 24;
        const struct mr_call *call =
            mr_calls_find(calls, process, (uint32_t)sqlite3_column_int64(rows.stmt, CORRELATION));
        if (call)
            put_launch(table, &rows, call, mr_calls_thread(calls, call), names);
        n_alone += !call;
        rc = 0;
    }
    mr_rows_close(&rows);
    if (rc == 0)
        note(recording, table, &left, n_alone, opts);
    return rc;
}

static int make_trace(struct mr_recording *recording, const struct mr_report_opts *opts,
                      struct mr_table **out)
{
    struct mr_filter filter;
    struct mr_calls calls = {0};
    struct mr_names names = {0};
    struct mr_table *table = NULL;
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    if ((rc = mr_names_open(&names, recording)) != 0)
        goto end;
    rc = mr_calls_load(&calls, recording, 1u << MR_CALL_LAUNCH | 1u << MR_CALL_GRAPH_LAUNCH, NULL);
    if (rc)
        goto end;
    table = mr_table_create("Kernels from launch to end in order (cuda_kern_exec_trace)",
                            trace_columns, MR_COUNT(trace_columns));
    rc = table ? put_launches(recording, &filter, opts, &calls, &names, table)
               : mr_error_nomem("a table", 0);
    if (rc)
        mr_table_destroy(table);
    else
        rc = mr_report_finish(table, opts, "-API Start", out);
end:
    mr_calls_free(&calls);
    mr_names_close(&names);
    mr_filter_close(&filter);
    return rc;
}

const struct mr_report_kind mr_report_exec_kinds[2] = {
    {"cuda_kern_exec_sum", "Kernels: launching call, waiting in the queue, running", make_sum,
     MR_REPORT_OPS | MR_REPORT_KERNELS},
    {"cuda_kern_exec_trace", "The same for each kernel, in the order of the calls", make_trace,
     MR_REPORT_OPS | MR_REPORT_KERNELS},
};
