/* Rows for traces, in SQL's order where that spares memory, and names of threads. */
#include "report/report.h"

#include <ctype.h>
#include <errno.h>
#include <sqlite3.h>
#include <string.h>

/* SQL's order for a limited report, "" when the whole table must be seen first. */
static const char *order_of(const struct mr_report_opts *opts, const struct mr_filter *filter)
{
    if (opts->limit == 0 || opts->limit > INT64_MAX || filter->by_range)
        return "";
    if (!opts->sort || !*opts->sort || strcasecmp(opts->sort, "-start") == 0)
        return " ORDER BY start LIMIT ?3";
    if (strcasecmp(opts->sort, "start") == 0)
        return " ORDER BY start DESC LIMIT ?3";
    if (strcasecmp(opts->sort, "duration") == 0)
        return " ORDER BY end - start DESC, start LIMIT ?3";
    if (strcasecmp(opts->sort, "-duration") == 0)
        return " ORDER BY end - start, start LIMIT ?3";
    return "";
}

static int count_left_out(struct mr_rows *rows, const char *table, struct mr_left_out *left)
{
    struct sqlite3_stmt *stmt = NULL;
    int rc = mr_sql_prepare(
        rows->recording, &stmt,
        "SELECT (SELECT count(*) FROM %s WHERE start = 0 AND end = 0),"
        " (SELECT count(*) FROM %s WHERE end < start AND start >= ?1 AND start < ?2)",
        table, table);
    if (rc)
        return rc;
    sqlite3_bind_int64(stmt, 1, (int64_t)MR_MIN(rows->filter->from, (uint64_t)INT64_MAX));
    sqlite3_bind_int64(stmt, 2, (int64_t)MR_MIN(rows->filter->to, (uint64_t)INT64_MAX));
    rc = mr_sql_step(rows->recording, stmt);
    if (rc == 1) {
        left->n_lost += (uint64_t)sqlite3_column_int64(stmt, 0);
        left->n_backward += (uint64_t)sqlite3_column_int64(stmt, 1);
        rc = 0;
    }
    sqlite3_finalize(stmt);
    return rc;
}

int mr_rows_open(struct mr_rows *rows, struct mr_recording *recording, const char *table,
                 const char *columns, const struct mr_filter *filter,
                 const struct mr_report_opts *opts, struct mr_left_out *left)
{
    *rows = (struct mr_rows){.recording = recording, .filter = filter};
    rows->kind = mr_report_op_kind(table);
    rows->left = left;
    if (!mr_recording_has(recording, table, "end"))
        return 0;
    int rc = count_left_out(rows, table, left);
    if (rc == 0)
        rc = mr_sql_prepare(
            recording, &rows->stmt,
            "SELECT start, end, %s, rowid FROM %s WHERE start >= ?1 AND start < ?2 AND end >= start"
            " AND (start != 0 OR end != 0)%s",
            columns, table, order_of(opts, filter));
    if (rc)
        return rc;
    sqlite3_bind_int64(rows->stmt, 1, (int64_t)MR_MIN(filter->from, (uint64_t)INT64_MAX));
    sqlite3_bind_int64(rows->stmt, 2, (int64_t)MR_MIN(filter->to, (uint64_t)INT64_MAX));
    if (sqlite3_bind_parameter_count(rows->stmt) == 3)
        sqlite3_bind_int64(rows->stmt, 3, (int64_t)opts->limit);
    return 0;
}

int mr_rows_next(struct mr_rows *rows)
{
    int rc = 0;
    while (rows->stmt && (rc = mr_sql_step(rows->recording, rows->stmt)) == 1) {
        rows->start = sqlite3_column_int64(rows->stmt, 0);
        rows->end = sqlite3_column_int64(rows->stmt, 1);
        int64_t row = sqlite3_column_int64(rows->stmt, sqlite3_column_count(rows->stmt) - 1);
        if (mr_report_takes(rows->filter, rows->left, rows->kind, row, rows->start, rows->end))
            return 1;
    }
    return rc;
}

void mr_rows_close(struct mr_rows *rows)
{
    sqlite3_finalize(rows->stmt);
    rows->stmt = NULL;
}

/* ---- threads ---- */

static int add_thread(struct mr_labels *labels, int64_t global_tid, int64_t name)
{
    uint32_t i = mr_keymap_put(&labels->threads, (struct mr_key){(uint64_t)global_tid, 0});
    if (i == MR_NONE)
        return -ENOMEM;
    struct mr_labels *l = labels;
    if (mr_grow("names of threads", &l->thread_names, &l->capacity, i + 1ull, sizeof name) < 0)
        return -ENOMEM;
    labels->thread_names[i] = name;
    return 0;
}

int mr_labels_open(struct mr_labels *labels, struct mr_recording *recording)
{
    struct sqlite3_stmt *stmt = NULL;
    *labels = (struct mr_labels){0};
    if (!mr_recording_has(recording, "ThreadNames", "globalTid"))
        return 0;
    int rc = mr_sql_prepare(recording, &stmt, "SELECT globalTid, nameId FROM ThreadNames");
    while (rc == 0 && (rc = mr_sql_step(recording, stmt)) == 1)
        rc = add_thread(labels, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
    sqlite3_finalize(stmt);
    return rc;
}

const char *mr_labels_thread(const struct mr_labels *labels, struct mr_names *names,
                             int64_t global_tid)
{
    uint32_t i = mr_keymap_get(&labels->threads, (struct mr_key){(uint64_t)global_tid, 0});
    return i == MR_NONE ? "" : mr_names_get(names, labels->thread_names[i]);
}

void mr_labels_close(struct mr_labels *labels)
{
    mr_keymap_free(&labels->threads);
    free(labels->thread_names);
    *labels = (struct mr_labels){0};
}
