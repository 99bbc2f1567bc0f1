/* Tables for programs: CSV (RFC 4180) and JSON. */
#include "table/table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <millrace/json.h>
#include <millrace/text.h>
#include <string.h>
#include <unistd.h>

static int stream_error(FILE *to)
{
    return ferror(to) ? -(errno ? errno : EIO) : 0;
}

static void put_csv_plain(const char *text, FILE *to)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, to);
        return;
    }
    putc('"', to);
    for (const char *c = text; *c; c++) {
        if (*c == '"')
            putc('"', to);
        putc(*c, to);
    }
    putc('"', to);
}

/* A file or a pipe gets the bytes unchanged; a terminal would interpret some of them. */
static void put_csv_shown(const char *text, FILE *to)
{
    char *copy = strdup(text);
    if (copy)
        put_csv_plain(mr_text_printable(copy), to);
    free(copy);
}

static void put_csv_text(const char *text, FILE *to, bool terminal)
{
    if (terminal)
        put_csv_shown(text, to);
    else
        put_csv_plain(text, to);
}

/* Whether it is written as the integer that it is. */
static bool is_whole(const struct mr_column *column, enum mr_time_unit time,
                     const struct mr_cell *cell)
{
    return cell->type == MR_CELL_INT && column->unit != MR_UNIT_BYTES &&
           column->unit != MR_UNIT_BYTES_PER_S &&
           (column->unit != MR_UNIT_NS || time <= MR_TIME_NS);
}

static void put_csv_cell(const struct mr_column *column, enum mr_time_unit time,
                         const struct mr_cell *cell, FILE *to, bool terminal)
{
    char text[32];
    if (cell->type == MR_CELL_TEXT)
        put_csv_text(cell->text, to, terminal);
    else if (is_whole(column, time, cell))
        fprintf(to, "%" PRId64, cell->integer);
    else if (cell->type != MR_CELL_EMPTY && isfinite(cell->real))
        fputs(mr_f64_to_text(mr_table_machine(column, time, cell->real), text), to);
}

int mr_table_write_csv(const struct mr_table *table, FILE *to)
{
    bool terminal = isatty(fileno(to));
    errno = 0; /* isatty() sets errno for files */
    for (uint32_t c = 0; c < table->n_columns; c++) {
        char *head = mr_table_head(&table->columns[c].head, table->time_unit);
        if (!head)
            return -ENOMEM;
        if (c)
            putc(',', to);
        put_csv_text(head, to, terminal);
        free(head);
    }
    fputs("\r\n", to);
    for (uint64_t r = 0; r < table->n_shown && !ferror(to); r++) {
        for (uint32_t c = 0; c < table->n_columns; c++) {
            struct mr_cell cell = mr_table_cell(table, r, c);
            if (c)
                putc(',', to);
            put_csv_cell(&table->columns[c].head, table->time_unit, &cell, to, terminal);
        }
        fputs("\r\n", to);
    }
    fflush(to);
    return stream_error(to);
}

static void put_json_cell(struct mr_json *json, const char *key, const struct mr_column *column,
                          enum mr_time_unit time, const struct mr_cell *cell)
{
    if (cell->type == MR_CELL_EMPTY)
        mr_json_null(json, key);
    else if (cell->type == MR_CELL_TEXT)
        mr_json_string(json, key, cell->text);
    else if (is_whole(column, time, cell))
        mr_json_int(json, key, cell->integer);
    else
        mr_json_double(json, key, mr_table_machine(column, time, cell->real));
}

/* One JSON writer per row, so that memory use does not grow with the table. */
static int put_json_row(const struct mr_table *table, uint64_t row, char *const *heads, FILE *to)
{
    const char *text = NULL;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return -ENOMEM;
    mr_json_object(json, NULL);
    for (uint32_t c = 0; c < table->n_columns; c++) {
        struct mr_cell cell = mr_table_cell(table, row, c);
        put_json_cell(json, heads[c], &table->columns[c].head, table->time_unit, &cell);
    }
    mr_json_object_end(json);
    int64_t bytes = mr_json_finish(json, &text);
    if (bytes >= 0)
        fwrite(text, 1, (size_t)bytes, to);
    mr_json_destroy(json);
    return bytes < 0 ? (int)bytes : 0;
}

int mr_table_write_json(const struct mr_table *table, FILE *to)
{
    char **heads = calloc(table->n_columns + 1ull, sizeof *heads);
    int rc = heads ? 0 : -ENOMEM;
    errno = 0;
    for (uint32_t c = 0; c < table->n_columns && rc == 0; c++) {
        heads[c] = mr_table_head(&table->columns[c].head, table->time_unit);
        rc = heads[c] ? 0 : -ENOMEM;
    }
    fputs("[", to);
    for (uint64_t r = 0; r < table->n_shown && rc == 0; r++) {
        fputs(r ? ",\n " : "\n ", to);
        rc = put_json_row(table, r, heads, to);
        rc = rc ? rc : stream_error(to);
    }
    fputs(table->n_shown ? "\n]\n" : "]\n", to);
    fflush(to);
    for (uint32_t c = 0; heads && c < table->n_columns; c++)
        free(heads[c]);
    free(heads);
    return rc ? rc : stream_error(to);
}
