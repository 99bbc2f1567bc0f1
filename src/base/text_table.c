/*
 * Text in columns: measured, cut where a line must fit, written. Cells are asked for twice, so that
 * a table of millions of rows needs no memory of its own.
 */
#include "base/base.h"

#include <millrace/text.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP   2
#define HEADS UINT64_MAX /* the row of heads */

void mr_text_table_fill(struct mr_text_table *table, size_t size)
{
    const struct mr_text_table all = {.size = sizeof all, .width = UINT32_MAX};
    mr_opts_copy(table, size, &all, sizeof all);
}

/* Bytes of the character at text, 1 if it is not UTF-8. [out] shown: whether a terminal may see
 * it. */
static size_t character(const char *text, bool *shown)
{
    size_t bytes;
    *shown = mr_text_plain(mr_text_code(text, &bytes));
    return bytes;
}

static uint32_t characters(const char *text)
{
    uint32_t n = 0;
    bool shown;
    for (; *text; text += character(text, &shown))
        n++;
    return n;
}

/* Writes characters [from, to) of a text. */
static void put_part(const char *text, uint32_t from, uint32_t to, FILE *file)
{
    bool shown;
    for (uint32_t i = 0; *text && i < to; i++) {
        size_t bytes = character(text, &shown);
        if (i >= from && shown)
            fwrite(text, 1, bytes, file);
        else if (i >= from)
            putc('?', file);
        text += bytes;
    }
}

/* The beginning and the end of a text say more than its middle: "void at::native::...<float,
 * 4>(int)". */
static void put_cut(const char *text, uint32_t n, uint32_t width, FILE *to)
{
    if (n <= width || width < 4) {
        put_part(text, 0, n, to);
        return;
    }
    uint32_t end = (width - 3) / 2, head = width - 3 - end;
    put_part(text, 0, head, to);
    fputs("...", to);
    put_part(text, n - end, n, to);
}

static const char *text_of(const struct mr_text_table *table, uint64_t row, uint32_t c,
                           char buf[MR_TEXT_CELL])
{
    const char *head = table->columns[c].head;
    if (row == HEADS)
        return head ? head : "";
    return table->cell(table->arg, row, c, buf);
}

static void measure_row(const struct mr_text_table *table, uint64_t row, uint32_t *width)
{
    char buf[MR_TEXT_CELL];
    for (uint32_t c = 0; c < table->n_columns; c++) {
        uint32_t n = characters(text_of(table, row, c, buf));
        width[c] = MR_MAX(width[c], n);
    }
}

static uint32_t least_width(const struct mr_text_column *column)
{
    uint32_t head = column->head ? characters(column->head) : 0;
    return MR_MAX(head, column->least);
}

/* Takes from the widest columns that may be cut until a line fits, or none can be cut further. */
static void fit(const struct mr_text_table *table, uint32_t *width, uint32_t most)
{
    for (;;) {
        uint64_t sum = table->indent;
        uint32_t widest = UINT32_MAX;
        for (uint32_t c = 0; c < table->n_columns; c++) {
            const struct mr_text_column *column = &table->columns[c];
            sum += width[c] + (c ? GAP : 0);
            if (column->least && width[c] > least_width(column) &&
                (widest == UINT32_MAX || width[c] > width[widest]))
                widest = c;
        }
        if (sum <= most || widest == UINT32_MAX)
            return;
        /* by halves, so that two texts of a like width share what is to be taken */
        uint64_t spare = width[widest] - least_width(&table->columns[widest]);
        uint32_t take = (uint32_t)MR_MIN(spare, sum - most);
        width[widest] -= MR_MAX(take / 2, 1u);
    }
}

static void put_blanks(uint32_t n, FILE *to)
{
    fprintf(to, "%*s", (int)n, "");
}

/* No blanks for empty cells at the end. */
static uint32_t last_cell(const struct mr_text_table *table, uint64_t row)
{
    char buf[MR_TEXT_CELL];
    uint32_t c = table->n_columns;
    while (c > 1 && !*text_of(table, row, c - 1, buf))
        c--;
    return c - 1;
}

static void put_row(const struct mr_text_table *table, uint64_t row, const uint32_t *width,
                    FILE *to)
{
    char buf[MR_TEXT_CELL];
    uint32_t last = last_cell(table, row);
    put_blanks(table->indent, to);
    for (uint32_t c = 0; c <= last; c++) {
        const char *text = text_of(table, row, c, buf);
        uint32_t n = characters(text), pad = n < width[c] ? width[c] - n : 0;
        bool right = table->columns[c].right;
        put_blanks(right ? pad : 0, to);
        put_cut(text, n, width[c], to);
        put_blanks(c == last ? 0 : (right ? 0 : pad) + GAP, to);
    }
    putc('\n', to);
}

static void put_rule(const struct mr_text_table *table, const uint32_t *width, FILE *to)
{
    put_blanks(table->indent, to);
    for (uint32_t c = 0; c < table->n_columns; c++) {
        put_blanks(c ? GAP : 0, to);
        for (uint32_t i = 0; i < width[c]; i++)
            putc('-', to);
    }
    putc('\n', to);
}

static uint32_t line_of(FILE *to)
{
    struct winsize size;
    int fd = fileno(to);
    if (fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col)
        return size.ws_col;
    return MR_TEXT_LINE;
}

static bool has_heads(const struct mr_text_table *table)
{
    for (uint32_t c = 0; c < table->n_columns; c++)
        if (table->columns[c].head)
            return true;
    return false;
}

int mr_text_table_write(const struct mr_text_table *given, FILE *to)
{
    struct mr_text_table table;
    if (!given || !to)
        return mr_error_null("mr_text_table_write", "a table and a stream");
    mr_text_table_fill(&table, sizeof table);
    int rc = mr_opts_take("text_table", given, &table, sizeof table);
    if (rc < 0 || table.n_columns == 0)
        return rc;
    uint32_t *width = calloc(table.n_columns, sizeof *width);
    if (!width)
        return mr_error_nomem("a table's layout", table.n_columns * sizeof *width);
    bool heads = has_heads(&table);
    if (heads)
        measure_row(&table, HEADS, width);
    for (uint64_t r = 0; r < table.n_rows; r++)
        measure_row(&table, r, width);
    fit(&table, width, table.width ? table.width : line_of(to));
    if (heads)
        put_row(&table, HEADS, width, to);
    if (heads && table.ruled)
        put_rule(&table, width, to);
    for (uint64_t r = 0; r < table.n_rows && !ferror(to); r++)
        put_row(&table, r, width, to);
    free(width);
    return 0;
}

void mr_text_write(const char *text, FILE *to)
{
    if (text && to)
        put_part(text, 0, UINT32_MAX, to);
}
