/* Tables for people: numbers in units that fit; texts are cut, but for a part that names the
 * row. */
#include "table/table.h"

#include <errno.h>
#include <stdlib.h>

#define MIN_TEXT 16 /* a text is not cut below this */
#define MIN_LAST 40 /* nor the last column's, which names the row */

const char *mr_table_cell_text(const struct mr_table *table, uint64_t row, uint32_t c,
                               char buf[MR_TEXT_CELL])
{
    struct mr_cell cell = mr_table_cell(table, row, c);
    if (cell.type == MR_CELL_TEXT)
        return cell.text;
    if (cell.type == MR_CELL_EMPTY)
        return "-";
    mr_table_human(&table->columns[c].head, table->time_unit, &cell, buf);
    return buf;
}

static const char *cell_text(const void *arg, uint64_t row, uint32_t c, char buf[MR_TEXT_CELL])
{
    return mr_table_cell_text(arg, row, c, buf);
}

static int write_rows(const struct mr_table *table, uint32_t width, FILE *to)
{
    uint32_t n = table->n_columns;
    struct mr_text_column *columns = calloc(n + 1ull, sizeof *columns);
    if (!columns)
        return mr_error_nomem("a table's layout", n * sizeof *columns);
    for (uint32_t c = 0; c < n; c++) {
        const struct mr_column *head = &table->columns[c].head;
        bool text = head->type == MR_CELL_TEXT;
        uint32_t least = c + 1 == n ? MIN_LAST : MIN_TEXT;
        columns[c] = (struct mr_text_column){head->name, !text, text ? least : 0};
    }
    struct mr_text_table rows;
    mr_text_table_init(&rows);
    rows.columns = columns;
    rows.n_columns = n;
    rows.n_rows = table->n_shown;
    rows.cell = cell_text;
    rows.arg = table;
    rows.width = width;
    rows.ruled = 1;
    int rc = mr_text_table_write(&rows, to);
    free(columns);
    return rc;
}

int mr_table_write_text(const struct mr_table *table, uint32_t columns, FILE *to)
{
    if (!table || !to)
        return mr_error_null("mr_table_write_text", "a table and a file");
    errno = 0;
    if (*table->title)
        fprintf(to, "%s\n\n", table->title);
    int rc = table->n_shown ? write_rows(table, columns, to) : 0;
    if (rc < 0)
        return rc;
    if (table->note) {
        fputs(table->n_shown ? "\n" : "", to);
        mr_text_write(table->note, to);
        putc('\n', to);
    } else if (!table->n_shown)
        fputs("nothing\n", to);
    fflush(to);
    return ferror(to) ? mr_error_errno(errno ? errno : EIO, "writing a table") : 0;
}

int mr_table_write(const struct mr_table *table, enum mr_table_format format, FILE *to)
{
    if (!table || !to)
        return mr_error_null("mr_table_write", "a table and a file");
    int rc = 0;
    if (format == MR_TABLE_TEXT)
        return mr_table_write_text(table, 0, to);
    rc = format == MR_TABLE_CSV    ? mr_table_write_csv(table, to)
         : format == MR_TABLE_JSON ? mr_table_write_json(table, to)
                                   : mr_table_write_markdown(table, to);
    return rc ? mr_error_errno(-rc, "writing a table") : 0;
}
