/* Tables: cells are stored by column, each text once. */
#include "table/table.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#define CHUNK_BYTES (64u << 10)
#define FIRST_ROWS  64

struct mr_table_chunk {
    struct mr_table_chunk *next;
    size_t used, capacity;
    char text[];
};

struct mr_table *mr_table_create(const char *title, const struct mr_column *columns,
                                 uint32_t n_columns)
{
    struct mr_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->title = strdup(title ? title : "");
    table->columns = calloc(n_columns ? n_columns : 1, sizeof *table->columns);
    if (!table->title || !table->columns) {
        mr_table_destroy(table);
        return NULL;
    }
    for (uint32_t c = 0; c < n_columns; c++) {
        struct mr_column *head = &table->columns[c].head;
        *head = columns[c];
        head->name = strdup(columns[c].name);
        head->type = head->type == MR_CELL_EMPTY ? MR_CELL_TEXT : head->type;
        table->columns[c].wide = head->type == MR_CELL_REAL;
        table->n_columns++;
        table->failed = table->failed || !head->name;
    }
    return table;
}

void mr_table_destroy(struct mr_table *table)
{
    if (!table)
        return;
    for (uint32_t c = 0; c < table->n_columns; c++) {
        free((char *)table->columns[c].head.name);
        free(table->columns[c].cells);
        free(table->columns[c].empty);
    }
    for (struct mr_table_chunk *chunk = table->chunks; chunk;) {
        struct mr_table_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    free(table->texts);
    free(table->buckets);
    free(table->order);
    free(table->columns);
    free(table->title);
    free(table->note);
    free(table);
}

/* ---- texts ---- */

static char *keep_text(struct mr_table *table, const char *text, size_t bytes)
{
    struct mr_table_chunk *chunk = table->chunks;
    if (!chunk || chunk->capacity - chunk->used <= bytes) {
        size_t capacity = bytes + 1 > CHUNK_BYTES ? bytes + 1 : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + capacity);
        if (!chunk)
            return NULL;
        *chunk = (struct mr_table_chunk){.next = table->chunks, .capacity = capacity};
        table->chunks = chunk;
    }
    char *kept = chunk->text + chunk->used;
    memcpy(kept, text, bytes);
    kept[bytes] = 0;
    chunk->used += bytes + 1;
    return kept;
}

static bool grow_buckets(struct mr_table *table)
{
    uint32_t n = table->n_buckets ? 2 * table->n_buckets : 256;
    uint32_t *buckets = calloc(n, sizeof *buckets);
    if (!buckets || n < table->n_buckets) {
        free(buckets);
        return false;
    }
    for (uint32_t i = 0; i < table->n_texts; i++) {
        uint32_t b =
            (uint32_t)mr_hash(MR_HASH_START, table->texts[i], strlen(table->texts[i])) & (n - 1);
        while (buckets[b])
            b = (b + 1) & (n - 1);
        buckets[b] = i + 1;
    }
    free(table->buckets);
    table->buckets = buckets;
    table->n_buckets = n;
    return true;
}

/* Returns the text's number; if out of memory, the table is marked as failed. */
static uint32_t number_of(struct mr_table *table, const char *text)
{
    size_t bytes = strlen(text);
    if (table->n_texts >= table->n_buckets / 2 && !grow_buckets(table)) {
        table->failed = true;
        return 0;
    }
    uint32_t b = (uint32_t)mr_hash(MR_HASH_START, text, bytes) & (table->n_buckets - 1);
    for (; table->buckets[b]; b = (b + 1) & (table->n_buckets - 1))
        if (strcmp(table->texts[table->buckets[b] - 1], text) == 0)
            return table->buckets[b] - 1;
    uint64_t want = table->n_texts + 1ull;
    if (mr_grow("table", &table->texts, &table->texts_capacity, want, sizeof *table->texts) < 0) {
        table->failed = true;
        return 0;
    }
    const char *kept = keep_text(table, text, bytes);
    if (!kept) {
        table->failed = true;
        return 0;
    }
    table->texts[table->n_texts] = kept;
    table->buckets[b] = ++table->n_texts;
    return table->n_texts - 1;
}

/* ---- cells ---- */

static bool grow_column(struct mr_table_store *column, uint64_t before, uint64_t capacity)
{
    void *cells = realloc(column->cells, capacity * (column->wide ? 8 : 4));
    if (!cells)
        return false;
    column->cells = cells;
    if (!column->empty)
        return true;
    uint8_t *empty = realloc(column->empty, capacity / 8);
    if (!empty)
        return false;
    memset(empty + before / 8, 0, (capacity - before) / 8);
    column->empty = empty;
    return true;
}

void mr_table_row(struct mr_table *table)
{
    while (!table->failed && table->n_rows && table->at < table->n_columns)
        mr_table_empty(table);
    if (!table->failed && table->n_rows == table->capacity) {
        uint64_t capacity = table->capacity ? 2 * table->capacity : FIRST_ROWS;
        table->failed = capacity > UINT32_MAX;
        for (uint32_t c = 0; c < table->n_columns && !table->failed; c++)
            table->failed = !grow_column(&table->columns[c], table->capacity, capacity);
        table->capacity = table->failed ? table->capacity : capacity;
    }
    if (table->failed)
        return;
    table->n_rows++;
    table->n_shown = table->n_rows;
    table->at = 0;
}

/* The column of the next cell; NULL if there is none or after a failure. */
static struct mr_table_store *next_column(struct mr_table *table)
{
    if (table->failed || table->n_rows == 0 || table->at >= table->n_columns)
        return NULL;
    return &table->columns[table->at++];
}

static void widen(struct mr_table *table, struct mr_table_store *column)
{
    int64_t *wide = malloc(table->capacity * sizeof *wide);
    if (!wide) {
        table->failed = true;
        return;
    }
    const int32_t *narrow = column->cells;
    for (uint64_t i = 0; i + 1 < table->n_rows; i++)
        wide[i] = narrow[i];
    free(column->cells);
    column->cells = wide;
    column->wide = true;
}

static void put(struct mr_table *table, struct mr_table_store *column, int64_t value)
{
    if (!column->wide && (value > INT32_MAX || value < INT32_MIN))
        widen(table, column);
    if (table->failed)
        return;
    if (column->wide)
        ((int64_t *)column->cells)[table->n_rows - 1] = value;
    else
        ((int32_t *)column->cells)[table->n_rows - 1] = (int32_t)value;
}

static void put_empty(struct mr_table *table, struct mr_table_store *column)
{
    put(table, column, 0);
    if (!column->empty)
        column->empty = calloc(table->capacity / 8, 1);
    if (!column->empty) {
        table->failed = true;
        return;
    }
    uint64_t i = table->n_rows - 1;
    column->empty[i / 8] |= (uint8_t)(1u << (i % 8));
}

void mr_table_empty(struct mr_table *table)
{
    struct mr_table_store *column = next_column(table);
    if (column)
        put_empty(table, column);
}

void mr_table_bytes(struct mr_table *table, uint64_t bytes)
{
    if (bytes)
        mr_table_int(table, (int64_t)bytes);
    else
        mr_table_empty(table);
}

void mr_table_text(struct mr_table *table, const char *text)
{
    struct mr_table_store *column = next_column(table);
    if (!column)
        return;
    if (!text || column->head.type != MR_CELL_TEXT)
        put_empty(table, column);
    else
        put(table, column, number_of(table, text));
}

void mr_table_int(struct mr_table *table, int64_t value)
{
    struct mr_table_store *column = next_column(table);
    char text[32];
    if (!column)
        return;
    if (column->head.type == MR_CELL_REAL) {
        ((double *)column->cells)[table->n_rows - 1] = (double)value;
    } else if (column->head.type == MR_CELL_TEXT) {
        snprintf(text, sizeof text, "%lld", (long long)value);
        put(table, column, number_of(table, text));
    } else {
        put(table, column, value);
    }
}

void mr_table_real(struct mr_table *table, double value)
{
    struct mr_table_store *column = next_column(table);
    char text[32];
    if (!column)
        return;
    if (column->head.type == MR_CELL_REAL)
        ((double *)column->cells)[table->n_rows - 1] = value;
    else if (column->head.type == MR_CELL_TEXT)
        put(table, column, number_of(table, mr_f64_to_text(value, text)));
    else if (fabs(value) < 0x1p62)
        put(table, column, llround(value));
    else
        put_empty(table, column);
}

void mr_table_set_note(struct mr_table *table, const char *format, ...)
{
    va_list args;
    char *note;
    va_start(args, format);
    int n = vasprintf(&note, format, args);
    va_end(args);
    free(table->note);
    table->note = n < 0 ? NULL : note;
    table->failed = table->failed || n < 0;
}

void mr_table_add_note(struct mr_table *table, const char *format, ...)
{
    va_list args;
    char *more = NULL;
    va_start(args, format);
    int n = vasprintf(&more, format, args);
    va_end(args);
    if (n < 0)
        table->failed = true;
    else
        mr_table_set_note(table, "%s%s%s", table->note ? table->note : "", table->note ? "; " : "",
                          more);
    if (n >= 0)
        free(more);
}

int mr_table_finish(struct mr_table *table, struct mr_table **out)
{
    if (!table)
        return mr_error_nomem("a table", sizeof *table);
    while (!table->failed && table->n_rows && table->at < table->n_columns)
        mr_table_empty(table);
    if (table->failed) {
        uint64_t bytes = table->n_rows * table->n_columns * 8;
        mr_table_destroy(table);
        return mr_error_nomem("a table", bytes);
    }
    *out = table;
    return 0;
}

/* ---- reading ---- */

const char *mr_table_title(const struct mr_table *table)
{
    if (!table)
        return NULL;
    return table->title;
}

const char *mr_table_note(const struct mr_table *table)
{
    if (!table)
        return NULL;
    return table->note;
}

uint32_t mr_table_columns(const struct mr_table *table)
{
    if (!table)
        return 0;
    return table->n_columns;
}

uint64_t mr_table_rows(const struct mr_table *table)
{
    if (!table)
        return 0;
    return table->n_shown;
}

const struct mr_column *mr_table_column(const struct mr_table *table, uint32_t column)
{
    if (!table)
        return NULL;
    return column < table->n_columns ? &table->columns[column].head : NULL;
}

struct mr_cell mr_table_cell(const struct mr_table *table, uint64_t row, uint32_t column)
{
    struct mr_cell cell = {.type = MR_CELL_EMPTY};
    if (!table || row >= table->n_shown || column >= table->n_columns)
        return cell;
    const struct mr_table_store *from = &table->columns[column];
    uint64_t i = table->order ? table->order[row] : row;
    if (from->empty && from->empty[i / 8] >> (i % 8) & 1)
        return cell;
    cell.type = from->head.type;
    if (cell.type == MR_CELL_REAL) {
        cell.real = ((const double *)from->cells)[i];
        return cell;
    }
    cell.integer =
        from->wide ? ((const int64_t *)from->cells)[i] : ((const int32_t *)from->cells)[i];
    if (cell.type == MR_CELL_TEXT) {
        cell.text = table->texts[cell.integer];
        cell.integer = 0;
    } else {
        cell.real = (double)cell.integer;
    }
    return cell;
}

int mr_table_set_time_unit(struct mr_table *table, enum mr_time_unit unit)
{
    if (!table)
        return mr_error_null("mr_table_set_time_unit", "a table");
    if ((unsigned)unit > MR_TIME_S)
        return mr_error_set(MR_EOPTION, "time unit %d: expected one of enum mr_time_unit",
                            (int)unit);
    table->time_unit = unit;
    return 0;
}

void mr_table_limit(struct mr_table *table, uint64_t rows)
{
    if (!table)
        return;
    table->n_shown = MR_MIN(table->n_shown, rows);
}
