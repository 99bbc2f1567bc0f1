/*
 * Records into rows. They are put in their table many at a time: SQLite takes half as long for a
 * row of a statement that has many as for a statement's only one.
 */
#include "recording/store.h"

#include <errno.h>
#include <string.h>

#define ROWS       64  /* at most, of a statement ... */
#define PARAMETERS 999 /* ... that has no more than so many values, as SQLite before 3.32 */
#define TEXTS      ((size_t)64 << 10) /* bytes of texts that may wait with them */

/* A row that waits, beside its record. */
struct mr_store_row {
    const struct mr_store_process *process;
    uint64_t number; /* the process's; a source with several changes that */
    int64_t span[2]; /* start and end; the latter -1: none */
    size_t text;     /* where in the batch's texts */
    size_t text_bytes;
    bool has_text;
};

struct binding { /* of a row's values to a statement's, from i on */
    struct mr_store *store;
    sqlite3_stmt *statement;
    int i;
    const struct mr_store_row *row;
    const char *text; /* NULL: it came with none */
    const void *record;
};

static uint64_t field(const void *record, const struct mr_store_column *column)
{
    const char *at = (const char *)record + column->offset;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64 = 0;
    switch (column->bytes) {
    case 1:
        memcpy(&u8, at, 1);
        return u8;
    case 2:
        memcpy(&u16, at, 2);
        return u16;
    case 4:
        memcpy(&u32, at, 4);
        return u32;
    default:
        memcpy(&u64, at, 8);
        return u64;
    }
}

static const char *overhead_name(uint32_t kind)
{
    static const char *const names[] = {"?",
                                        "CUPTI buffer flush",
                                        "CUPTI instrumentation",
                                        "CUPTI resource",
                                        "Runtime triggered module loading",
                                        "Lazy function loading",
                                        "Command buffer full",
                                        "Activity buffer request",
                                        "UVM activity init"};
    if (kind == 1)
        return "Driver compiler";
    uint32_t i = kind >> 16;
    return names[(kind & 0xffff) == 0 && i < MR_COUNT(names) ? i : 0];
}

static int bind_payload(sqlite3_stmt *statement, int i, const struct mr_store_column *column,
                        const struct mr_part_range *range)
{
    double real;
    float small;
    uint32_t low = (uint32_t)range->payload;
    if (range->payload_type != column->bytes)
        return sqlite3_bind_null(statement, i);
    switch (range->payload_type) {
    case 3:
        memcpy(&real, &range->payload, sizeof(real));
        return sqlite3_bind_double(statement, i, real);
    case 6:
        memcpy(&small, &low, sizeof(small));
        return sqlite3_bind_double(statement, i, (double)small);
    case 4:
        return sqlite3_bind_int64(statement, i, low);
    case 5:
        return sqlite3_bind_int64(statement, i, (int32_t)low);
    default:
        return sqlite3_bind_int64(statement, i, (int64_t)range->payload);
    }
}

static int bind_name(struct mr_store *store, sqlite3_stmt *statement, int i,
                     const struct mr_store_column *column, uint32_t name)
{
    struct mr_store_name names = {0};
    int rc = 0;
    uint32_t number = name;
    if (column->from == FROM_OVERHEAD) {
        const char *text = overhead_name(name);
        rc = mr_store_text(store, text, strlen(text), &number);
    } else if (column->from == FROM_DEMANGLED || column->from == FROM_SHORT) {
        rc = mr_store_kernel_names(store, name, &names);
        number = column->from == FROM_SHORT ? names.shorter : names.demangled;
    }
    if (rc < 0)
        return rc;
    if (sqlite3_bind_int64(statement, i, number) != SQLITE_OK)
        return mr_store_error(store, "a name");
    return 0;
}

/* The value of a column that is a number. */
static int64_t value_of(const struct mr_store_row *row, const struct mr_store_column *column,
                        const void *record)
{
    uint64_t value = field(record, column);
    const uint32_t *device;
    switch (column->from) {
    case FROM_INT:
        return column->bytes == 4 ? (int32_t)value : (int64_t)value;
    case FROM_TID:
    case FROM_TID_OR_NULL:
        return mr_store_thread(row->number, value);
    case FROM_MEMORY_KIND: /* 0, unknown, is 7 there */
        return value == 0 ? 7 : (int64_t)value - 1;
    case FROM_OPERATION:
        return value == 0 ? 0 : (int64_t)value - 1;
    case FROM_CONTEXT_DEVICE:
        device = mr_map_find(&row->process->contexts, value);
        return device ? *device : 0;
    default:
        return (int64_t)value;
    }
}

/* A pop ends its thread's own. */
bool mr_store_ends_elsewhere(const struct mr_part_range *range)
{
    return range->end_tid && range->type != MR_RANGE_PUSH_POP;
}

static int bind_column(struct binding *b, const struct mr_store_column *column)
{
    sqlite3_stmt *statement = b->statement;
    const void *record = b->record;
    int i = b->i++;
    switch (column->from) {
    case FROM_START:
        return sqlite3_bind_int64(statement, i, b->row->span[0]);
    case FROM_END:
        return b->row->span[1] < 0 ? sqlite3_bind_null(statement, i)
                                   : sqlite3_bind_int64(statement, i, b->row->span[1]);
    case FROM_PID: /* offset 1: the bare pid */
        return sqlite3_bind_int64(statement, i,
                                  column->offset ? (int64_t)b->row->process->header.pid
                                                 : (int64_t)(b->row->number << 24));
    case FROM_CONSTANT:
        return sqlite3_bind_int64(statement, i, column->offset);
    case FROM_PAYLOAD_INT:
    case FROM_PAYLOAD_REAL:
        return bind_payload(statement, i, column, record);
    case FROM_TEXT:
        return b->text ? sqlite3_bind_text(statement, i, b->text, (int)b->row->text_bytes,
                                           SQLITE_STATIC)
                       : sqlite3_bind_null(statement, i);
    case FROM_END_TID:
        return mr_store_ends_elsewhere(record)
                   ? sqlite3_bind_int64(statement, i,
                                        mr_store_thread(b->row->number, field(record, column)))
                   : sqlite3_bind_null(statement, i);
    case FROM_NAME_OR_TEXT:
        if (b->text)
            return sqlite3_bind_null(statement, i);
        /* fall through */
    case FROM_NAME:
    case FROM_DEMANGLED:
    case FROM_SHORT:
    case FROM_OVERHEAD:
        return bind_name(b->store, statement, i, column, (uint32_t)field(record, column));
    case FROM_BYTES:
        return field(record, column) == UINT64_MAX
                   ? sqlite3_bind_null(statement, i)
                   : sqlite3_bind_int64(statement, i, (int64_t)field(record, column));
    case FROM_UINT_OR_NULL:
    case FROM_TID_OR_NULL:
        if (field(record, column) == 0)
            return sqlite3_bind_null(statement, i);
        /* fall through */
    default:
        return sqlite3_bind_int64(statement, i, value_of(b->row, column, record));
    }
}

/* [out] span: start and end, the latter -1 for none. A span that ends before it starts is kept
 * without length, counted. */
static void times_of(struct mr_store *store, const struct mr_store_table *table, const void *record,
                     int64_t span[2])
{
    uint64_t time[2] = {0, 0};
    span[0] = 0;
    span[1] = -1;
    if (table->times == TIMES_NONE)
        return;
    memcpy(time, record, table->times == TIMES_POINT ? 8 : 16);
    if (table->times == TIMES_DEVICE && time[0] == 0 && time[1] == 0) {
        store->n_lost_timestamps++;
        span[1] = 0;
        return;
    }
    span[0] = mr_store_time(store, time[0]);
    bool has_end = table->times == TIMES_SPAN || table->times == TIMES_DEVICE ||
                   (table->times == TIMES_OPEN && time[1] != 0);
    if (has_end && time[1] < time[0]) {
        store->n_backwards++;
        span[1] = span[0];
    } else if (has_end) {
        span[1] = mr_store_time(store, time[1]);
    }
    store->now->end_ns = MR_MAX(store->now->end_ns, (uint64_t)MR_MAX(span[0], span[1]));
}

static int bind_row(struct binding *b, const struct mr_store_batch *batch)
{
    for (const struct mr_store_column *column = batch->table->columns; column != batch->seldom;
         column++) {
        if (column->from == FROM_NOTHING || column->from == FROM_ZERO)
            continue;
        int rc = bind_column(b, column);
        if (rc < 0)
            return rc;
        if (rc != SQLITE_OK)
            return mr_store_error(b->store, batch->table->name);
    }
    return 0;
}

/* Puts n of the rows that wait, from `first` on: as many as the statement takes. */
static int rows_put(struct mr_store *store, const struct mr_store_batch *batch,
                    sqlite3_stmt *statement, uint32_t first, uint32_t n)
{
    size_t bytes = mr_part_bytes(batch->table->record);
    struct binding b = {.store = store, .statement = statement, .i = 1};
    for (uint32_t i = first; i < first + n; i++) {
        b.row = &batch->rows[i];
        b.text = b.row->has_text ? batch->texts + b.row->text : NULL;
        b.record = batch->records + i * bytes;
        int rc = bind_row(&b, batch);
        if (rc < 0)
            return rc;
    }
    int rc = mr_store_step(store, statement);
    if (rc == 0 && batch->table->record == MR_PART_STACK)
        store->n_again += n - (uint32_t)sqlite3_changes(store->db);
    return rc;
}

/* "INSERT ..." of n rows, of the columns that the table has now, without what is always NULL. */
static int insert_prepare(struct mr_store *store, const struct mr_store_batch *batch, uint32_t n,
                          sqlite3_stmt **out)
{
    char insert[8192], values[1024];
    bool keyed = batch->table->record == MR_PART_STACK; /* by a number of the recorder's */
    int at = snprintf(insert, sizeof(insert), "INSERT %sINTO %s (", keyed ? "OR IGNORE " : "",
                      batch->table->name);
    int v = 0;
    const char *between = "";
    for (const struct mr_store_column *column = batch->table->columns; column != batch->seldom;
         column++) {
        if (column->from == FROM_NOTHING)
            continue;
        at += snprintf(insert + at, sizeof(insert) - (size_t)at, "%s\"%s\"", between, column->name);
        v += snprintf(values + v, sizeof(values) - (size_t)v, "%s%s", between,
                      column->from == FROM_ZERO ? "0" : "?");
        between = ",";
    }
    at += snprintf(insert + at, sizeof(insert) - (size_t)at, ") VALUES (%s)", values);
    for (uint32_t i = 1; i < n; i++)
        at += snprintf(insert + at, sizeof(insert) - (size_t)at, ",(%s)", values);
    return mr_store_prepare(store, insert, out);
}

static uint32_t n_parameters(const struct mr_store_batch *batch)
{
    uint32_t n = 0;
    for (const struct mr_store_column *column = batch->table->columns; column != batch->seldom;
         column++)
        n += column->from != FROM_NOTHING && column->from != FROM_ZERO;
    return n;
}

int mr_store_batch_prepare(struct mr_store *store, struct mr_store_batch *batch)
{
    sqlite3_finalize(batch->one);
    sqlite3_finalize(batch->many);
    batch->one = batch->many = NULL;
    batch->most = MR_MIN(PARAMETERS / MR_MAX(n_parameters(batch), 1u), (uint32_t)ROWS);
    return insert_prepare(store, batch, 1, &batch->one);
}

void mr_store_batch_close(struct mr_store_batch *batch)
{
    sqlite3_finalize(batch->one);
    sqlite3_finalize(batch->many);
    free(batch->rows);
    free(batch->records);
    free(batch->texts);
    *batch = (struct mr_store_batch){0};
}

/* Of fewer rows than `many` takes, each by itself: that is once in a recording, as a rule. */
int mr_store_flush(struct mr_store *store, enum mr_part_type type)
{
    struct mr_store_batch *batch = &store->batch[type];
    bool full = batch->n > 0 && batch->n == batch->most;
    int rc = full && !batch->many ? insert_prepare(store, batch, batch->most, &batch->many) : 0;
    if (rc == 0 && full)
        rc = rows_put(store, batch, batch->many, 0, batch->n);
    for (uint32_t i = 0; !full && i < batch->n && rc == 0; i++)
        rc = rows_put(store, batch, batch->one, i, 1);
    batch->n = 0;
    batch->texts_used = 0;
    return rc;
}

int mr_store_flush_all(struct mr_store *store)
{
    int rc = 0;
    for (int type = 0; type < MR_N_PART_TYPES && rc == 0; type++)
        rc = mr_store_flush(store, (enum mr_part_type)type);
    return rc;
}

static int room_make(struct mr_store *store, struct mr_store_batch *batch)
{
    size_t bytes = ROWS * (size_t)MR_MAX(mr_part_bytes(batch->table->record), 1);
    batch->rows = malloc(ROWS * sizeof(*batch->rows));
    batch->records = malloc(bytes);
    return batch->rows && batch->records ? 0 : mr_error_nomem(store->path, bytes);
}

static int text_keep(struct mr_store *store, struct mr_store_batch *batch, struct mr_store_row *row)
{
    size_t end = batch->texts_used + store->text_bytes;
    if (mr_grow(store->path, &batch->texts, &batch->texts_room, end + 1, 1) < 0)
        return -ENOMEM;
    memcpy(batch->texts + batch->texts_used, store->text, store->text_bytes);
    row->text = batch->texts_used;
    row->text_bytes = store->text_bytes;
    row->has_text = true;
    batch->texts_used = end;
    return 0;
}

int mr_store_put_row(struct mr_store *store, enum mr_part_type type, const void *record)
{
    struct mr_store_batch *batch = &store->batch[type];
    size_t bytes = mr_part_bytes(type);
    struct mr_store_row row = {.process = store->now, .number = store->now->number};
    int rc = batch->rows ? 0 : room_make(store, batch);
    if (rc == 0 && store->text)
        rc = text_keep(store, batch, &row);
    if (rc < 0)
        return rc;
    times_of(store, batch->table, record, row.span);
    batch->rows[batch->n] = row;
    memcpy(batch->records + batch->n * bytes, record, bytes);
    batch->n++;
    return batch->n == batch->most || batch->texts_used >= TEXTS ? mr_store_flush(store, type) : 0;
}
