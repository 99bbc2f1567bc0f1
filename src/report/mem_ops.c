/*
 * mem_ops: each copy and memset with the call that made it, and whether that call's thread had to
 * wait for it.
 *
 * Whether the host was blocked, from what is recorded of calls:
 *   "in the call"   the call blocks by its name (cudaMemcpy, cuMemcpyHtoD_v2: no Async) and the
 *                   memory is the host's at either end; or it is asynchronous by name, but the
 *                   host's memory is pageable, and it returned after the copy ended or, of more
 *                   than 64 KiB, took at least half as long as the copy: the last piece is staged
 *                   when it returns
 *   "synchronised"  the same thread's next synchronising call began before the copy ended and
 *                   returned after it did, and no kernel or graph was launched by the thread
 *                   between: PyTorch's blocking .to() does so
 *   "no"            neither
 *   empty           the call is not recorded
 */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#define LARGE_BYTES                                                                                \
    (1 << 20)      /* copies from which a link's rate is taken: smaller ones are latency */
#define N_KINDS 14 /* of copies */

struct op {
    int64_t start, end, bytes;
    uint64_t process; /* globalPid >> 24 */
    uint32_t correlation, stream;
    uint16_t device;
    int8_t kind; /* of copy; -1: a memset */
    int8_t src, dst;
};

struct ops {
    struct op *op;
    uint64_t n, capacity;
    struct mr_keymap wanted;
    double best[N_KINDS]; /* bytes/s of the fastest copy of a kind */
};

struct look {
    struct mr_recording *recording;
    const struct mr_report_opts *opts;
    struct mr_filter filter;
    struct mr_left_out left;
    struct mr_names names;
    struct mr_labels labels;
    struct mr_calls calls;
    struct ops ops;
    struct mr_table *table;
};

static int add_op(struct ops *ops, const struct op *op)
{
    if (mr_grow("copies", &ops->op, &ops->capacity, ops->n + 1, sizeof *ops->op) < 0)
        return -ENOMEM;
    ops->op[ops->n++] = *op;
    return mr_keymap_put(&ops->wanted, (struct mr_key){op->process, op->correlation}) == MR_NONE
               ? -ENOMEM
               : 0;
}

static int read_ops(struct look *k, bool copies)
{
    const char *table = copies ? MR_TABLE_COPY : MR_TABLE_SET;
    struct mr_rows rows;
    char columns[256];
    snprintf(columns, sizeof columns, "bytes, correlationId, streamId, deviceId, %s, %s, %s, %s",
             mr_sql_column(k->recording, table, "globalPid",
                           "(SELECT globalTid FROM " MR_TABLE_RUNTIME " LIMIT 1)"),
             copies ? "copyKind" : "-1", copies ? "srcKind" : "-1",
             copies ? "dstKind" : mr_sql_column(k->recording, table, "memKind", "-1"));
    int rc = mr_rows_open(&rows, k->recording, table, columns, &k->filter, k->opts, &k->left);
    while (rc == 0 && (rc = mr_rows_next(&rows)) == 1) {
        struct sqlite3_stmt *s = rows.stmt;
        int64_t kind = sqlite3_column_int64(s, 7), src = sqlite3_column_int64(s, 8),
                dst = sqlite3_column_int64(s, 9);
        struct op op = {.start = rows.start,
                        .end = rows.end,
                        .bytes = sqlite3_column_int64(s, 2),
                        .correlation = (uint32_t)sqlite3_column_int64(s, 3),
                        .stream = (uint32_t)sqlite3_column_int64(s, 4),
                        .device = (uint16_t)sqlite3_column_int64(s, 5),
                        .process = (uint64_t)sqlite3_column_int64(s, 6) >> 24,
                        .kind = copies ? (int8_t)(kind > 0 && kind < N_KINDS ? kind : 0) : -1,
                        .src = (int8_t)(src >= 0 && src < 100 ? src : -1),
                        .dst = (int8_t)(dst >= 0 && dst < 100 ? dst : -1)};
        rc = add_op(&k->ops, &op);
    }
    mr_rows_close(&rows);
    return rc;
}

/* The link's rate where none was given: of the fastest large copy of the same kind in the whole
 * recording. */
static int find_best(struct look *k)
{
    struct sqlite3_stmt *stmt = NULL;
    if (k->opts->link_gbps > 0 || !mr_recording_has(k->recording, MR_TABLE_COPY, "bytes"))
        return 0;
    int rc = mr_sql_prepare(k->recording, &stmt,
                            "SELECT copyKind, max(bytes * 1e9 / (end - start)) FROM " MR_TABLE_COPY
                            " WHERE end > start AND bytes >= %d GROUP BY copyKind",
                            LARGE_BYTES);
    while (rc == 0 && (rc = mr_sql_step(k->recording, stmt)) == 1) {
        int64_t kind = sqlite3_column_int64(stmt, 0);
        if (kind >= 0 && kind < N_KINDS)
            k->ops.best[kind] = sqlite3_column_double(stmt, 1);
        rc = 0;
    }
    sqlite3_finalize(stmt);
    return rc;
}

enum { PAGEABLE, PINNED, DEVICE_MEMORY, ARRAY, MANAGED };

static bool is_host(int kind)
{
    return kind == PAGEABLE || kind == PINNED || kind == MANAGED;
}

/* The synchronisation that waited for an operation of this call, were there no launch between;
 * NULL: none. */
static struct mr_sync *waiting(const struct look *k, const struct op *op,
                               const struct mr_call *call)
{
    struct mr_sync *sync = mr_calls_next_sync(&k->calls, call->thread, call->end);
    bool waited = sync && sync->start <= (uint64_t)op->end && sync->end >= (uint64_t)op->end;
    return waited ? sync : NULL;
}

static bool any_waiting(const struct look *k)
{
    for (uint64_t i = 0; i < k->ops.n; i++) {
        const struct op *op = &k->ops.op[i];
        const struct mr_call *call = mr_calls_find(&k->calls, op->process, op->correlation);
        if (call && waiting(k, op, call))
            return true;
    }
    return false;
}

static const char *blocked(const struct look *k, const struct op *op, const struct mr_call *call,
                           const char *name)
{
    bool host = is_host(op->src) || is_host(op->dst),
         pageable = op->src == PAGEABLE || op->dst == PAGEABLE;
    if (mr_copy_call_holds(&(struct mr_copy_call){name, host, pageable, (uint64_t)op->bytes,
                                                  call->start, call->end, (uint64_t)op->start,
                                                  (uint64_t)op->end}))
        return "in the call";
    struct mr_sync *sync = waiting(k, op, call);
    return sync && atomic_load(&sync->last_launch) <= call->end ? "synchronised" : "no";
}

static void put_call(struct look *k, const struct op *op)
{
    const struct mr_call *call = mr_calls_find(&k->calls, op->process, op->correlation);
    char cut[256];
    if (!call) {
        for (int i = 0; i < 6; i++)
            mr_table_empty(k->table);
        return;
    }
    const char *name = mr_names_get(&k->names, call->name);
    uint64_t thread = mr_calls_thread(&k->calls, call);
    snprintf(cut, sizeof cut, "%.*s", MR_MIN(mr_call_name_bytes(name), 255), name);
    mr_table_text(k->table, cut);
    mr_table_int(k->table, (int64_t)call->start);
    mr_table_int(k->table, (int64_t)(call->end - call->start));
    mr_table_int(k->table, (int64_t)(thread & 0xffffff));
    const char *label = mr_labels_thread(&k->labels, &k->names, (int64_t)thread);
    mr_table_text(k->table, *label ? label : NULL);
    mr_table_text(k->table, blocked(k, op, call, cut));
}

static void put_op(struct look *k, const struct op *op)
{
    struct mr_table *table = k->table;
    int64_t duration = op->end - op->start;
    double rate = duration > 0 ? (double)op->bytes * 1e9 / (double)duration : 0;
    double best = op->kind < 0             ? 0
                  : k->opts->link_gbps > 0 ? k->opts->link_gbps * 1e9
                                           : k->ops.best[op->kind];
    mr_table_row(table);
    mr_table_int(table, op->start);
    mr_table_int(table, duration);
    mr_table_bytes(table, (uint64_t)op->bytes);
    if (duration > 0 && op->bytes)
        mr_table_real(table, rate);
    else
        mr_table_empty(table);
    if (duration > 0 && best > 0 && op->bytes)
        mr_table_real(table, 100 * rate / best);
    else
        mr_table_empty(table);
    mr_table_text(table, op->kind < 0 ? "memset" : mr_copy_label(op->kind));
    mr_table_text(table, op->kind < 0 ? NULL : mr_memory_label(op->src));
    mr_table_text(table, mr_memory_label(op->dst));
    mr_table_int(table, op->device);
    mr_table_int(table, op->stream);
    mr_table_int(table, op->correlation);
    put_call(k, op);
}

static const struct mr_column columns[] = {
    {"Start", MR_UNIT_NS, MR_CELL_INT},           {"Duration", MR_UNIT_NS, MR_CELL_INT},
    {"Bytes", MR_UNIT_BYTES, MR_CELL_INT},        {"Throughput", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
    {"Of Link", MR_UNIT_PERCENT, MR_CELL_REAL},   {"Operation", MR_UNIT_NONE, MR_CELL_TEXT},
    {"SrcMemKd", MR_UNIT_NONE, MR_CELL_TEXT},     {"DstMemKd", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Dev", MR_UNIT_NONE, MR_CELL_INT},           {"Strm", MR_UNIT_NONE, MR_CELL_INT},
    {"CorrId", MR_UNIT_NONE, MR_CELL_INT},        {"API Call", MR_UNIT_NONE, MR_CELL_TEXT},
    {"API Start", MR_UNIT_NS, MR_CELL_INT},       {"API Duration", MR_UNIT_NS, MR_CELL_INT},
    {"Tid", MR_UNIT_NONE, MR_CELL_INT},           {"Thread Name", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Host Blocked", MR_UNIT_NONE, MR_CELL_TEXT},
};

static void note(struct look *k)
{
    char missing[MR_MISSING_BYTES];
    bool any = mr_table_rows(k->table) > 0;
    if (any && k->opts->link_gbps > 0)
        mr_table_add_note(k->table, "Of Link: of %g GB/s", k->opts->link_gbps);
    else if (any)
        mr_table_add_note(k->table, "Of Link: of the recording's fastest copy of the same kind "
                                    "that has 1 MiB or more; --link-gbps "
                                    "gives the link's measured rate (millrace bench transfer)");
    mr_report_note(k->table, &k->left,
                   mr_report_missing(k->recording, MR_TABLE_COPY, "copies or memsets",
                                     "cuda (or cuda-light)", k->opts, missing));
}

static int look_at(struct look *k, struct mr_table **out)
{
    int rc = mr_names_open(&k->names, k->recording);
    rc = rc ? rc : mr_labels_open(&k->labels, k->recording);
    rc = rc ? rc : read_ops(k, true);
    rc = rc ? rc : read_ops(k, false);
    rc = rc ? rc : find_best(k);
    rc = rc ? rc : mr_calls_load(&k->calls, k->recording, 0, &k->ops.wanted);
    if (rc == 0 && any_waiting(k))
        rc = mr_calls_mark_launches(&k->calls, k->recording);
    if (rc)
        return rc;
    k->table = mr_table_create("Copies and memsets in order (mem_ops)", columns, MR_COUNT(columns));
    if (!k->table)
        return mr_error_nomem("a table", 0);
    for (uint64_t i = 0; i < k->ops.n; i++)
        put_op(k, &k->ops.op[i]);
    note(k);
    return mr_report_finish(k->table, k->opts, "-Start", out);
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct look k = {.recording = recording, .opts = opts};
    int rc = mr_filter_open(&k.filter, recording, opts);
    if (rc)
        return rc;
    rc = look_at(&k, out);
    mr_calls_free(&k.calls);
    mr_keymap_free(&k.ops.wanted);
    free(k.ops.op);
    mr_labels_close(&k.labels);
    mr_names_close(&k.names);
    mr_filter_close(&k.filter);
    return rc;
}

const struct mr_report_kind mr_report_mem_ops = {
    "mem_ops",
    "Each copy and memset: rate, memory, the call that made it, whether the host was blocked", make,
    MR_REPORT_OPS};
