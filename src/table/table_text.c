/*
 * Tables for people: aligned columns, numbers on the right, fitting units, and long texts cut in
 * the middle so that a line fits. Texts come from other programs: control characters are shown as
 * '?'.
 */
#include "table/table.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_COLUMNS 120
#define MIN_TEXT        16 /* texts are not cut below this */
#define MIN_LAST        40 /* nor the last column, which names the row */
#define GAP             2

struct layout {
    const struct mr_table *table;
    uint32_t *width;
};

/* Length of the character at text, 1 for invalid UTF-8. [out] shown: whether it may be sent to a
 * terminal. */
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

/* The start and the end of a text are more specific than its middle: "void at::native::...<float,
 * 4>(int)". */
static void put_cut(const char *text, uint32_t n, uint32_t width, FILE *to)
{
    if (n <= width || width < 4) {
        put_part(text, 0, n, to);
        return;
    }
    uint32_t tail = (width - 3) / 2, head = width - 3 - tail;
    put_part(text, 0, head, to);
    fputs("...", to);
    put_part(text, n - tail, n, to);
}

static void put_blanks(uint32_t n, FILE *to)
{
    fprintf(to, "%*s", (int)n, "");
}

static uint32_t cell_width(const struct mr_column *column, const struct mr_cell *cell)
{
    char buf[MR_TABLE_CELL_BYTES];
    if (cell->type == MR_CELL_EMPTY)
        return 1;
    return cell->type == MR_CELL_TEXT ? characters(cell->text)
                                      : (uint32_t)mr_table_human(column, cell, buf);
}

static void measure(struct layout *l)
{
    const struct mr_table *table = l->table;
    for (uint32_t c = 0; c < table->n_columns; c++) {
        const struct mr_column *column = &table->columns[c].head;
        l->width[c] = characters(column->name);
        for (uint64_t r = 0; r < table->n_shown; r++) {
            struct mr_cell cell = mr_table_cell(table, r, c);
            uint32_t width = cell_width(column, &cell);
            l->width[c] = MR_MAX(l->width[c], width);
        }
    }
}

static uint32_t least_width(const struct mr_table *table, uint32_t c)
{
    uint32_t least = c + 1 == table->n_columns ? MIN_LAST : MIN_TEXT;
    return MR_MAX(characters(table->columns[c].head.name), least);
}

/* Shortens the widest texts until a line fits, or they are as short as their header or MIN_TEXT. */
static void fit(struct layout *l, uint32_t room)
{
    const struct mr_table *table = l->table;
    for (;;) {
        uint64_t sum = 0;
        uint32_t widest = UINT32_MAX;
        for (uint32_t c = 0; c < table->n_columns; c++) {
            uint32_t least = least_width(table, c);
            sum += l->width[c] + (c ? GAP : 0);
            if (table->columns[c].head.type == MR_CELL_TEXT && l->width[c] > least &&
                (widest == UINT32_MAX || l->width[c] > l->width[widest]))
                widest = c;
        }
        if (sum <= room || widest == UINT32_MAX)
            return;
        uint32_t least = least_width(table, widest);
        uint64_t over = sum - room;
        /* in halves, so that two texts of similar width are both shortened */
        uint32_t take = (uint32_t)MR_MIN((uint64_t)(l->width[widest] - least), over);
        l->width[widest] -= MR_MAX(take / 2, 1u);
    }
}

static void put_cell(const struct layout *l, uint32_t c, const struct mr_cell *cell, FILE *to)
{
    const struct mr_column *column = &l->table->columns[c].head;
    bool last = c + 1 == l->table->n_columns, right = column->type != MR_CELL_TEXT;
    char buf[MR_TABLE_CELL_BYTES] = "-";
    const char *text = buf;
    if (cell->type == MR_CELL_TEXT)
        text = cell->text;
    else if (cell->type != MR_CELL_EMPTY)
        mr_table_human(column, cell, buf);
    uint32_t n = characters(text), width = l->width[c], pad = n < width ? width - n : 0;
    if (c)
        put_blanks(GAP, to);
    if (right && pad)
        put_blanks(pad, to);
    put_cut(text, n, width, to);
    if (!right && pad && !last)
        put_blanks(pad, to);
}

static void put_heads(const struct layout *l, FILE *to)
{
    const struct mr_table *table = l->table;
    for (uint32_t c = 0; c < table->n_columns; c++) {
        struct mr_cell cell = {.type = MR_CELL_TEXT, .text = table->columns[c].head.name};
        put_cell(l, c, &cell, to);
    }
    putc('\n', to);
    for (uint32_t c = 0; c < table->n_columns; c++) {
        if (c)
            put_blanks(GAP, to);
        for (uint32_t i = 0; i < l->width[c]; i++)
            putc('-', to);
    }
    putc('\n', to);
}

static uint32_t room_of(FILE *to)
{
    struct winsize size;
    int fd = fileno(to);
    if (fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col)
        return size.ws_col;
    return DEFAULT_COLUMNS;
}

int mr_table_write_text(const struct mr_table *table, uint32_t columns, FILE *to)
{
    struct layout l = {table, calloc(table->n_columns + 1ull, sizeof *l.width)};
    if (!l.width)
        return mr_error_nomem("a table's layout", table->n_columns * sizeof *l.width);
    errno = 0;
    if (*table->title)
        fprintf(to, "%s\n\n", table->title);
    if (table->n_shown) {
        measure(&l);
        fit(&l, columns ? columns : room_of(to));
        put_heads(&l, to);
    }
    for (uint64_t r = 0; r < table->n_shown && !ferror(to); r++) {
        for (uint32_t c = 0; c < table->n_columns; c++) {
            struct mr_cell cell = mr_table_cell(table, r, c);
            put_cell(&l, c, &cell, to);
        }
        putc('\n', to);
    }
    if (table->note) {
        fputs(table->n_shown ? "\n" : "", to);
        put_part(table->note, 0, UINT32_MAX, to);
        putc('\n', to);
    } else if (!table->n_shown)
        fputs("nothing\n", to);
    fflush(to);
    free(l.width);
    return ferror(to) ? mr_error_errno(errno ? errno : EIO, "writing a table") : 0;
}

int mr_table_write(const struct mr_table *table, enum mr_table_format format, FILE *to)
{
    int rc = 0;
    if (format == MR_TABLE_TEXT)
        return mr_table_write_text(table, 0, to);
    rc = format == MR_TABLE_CSV ? mr_table_write_csv(table, to) : mr_table_write_json(table, to);
    return rc ? mr_error_errno(-rc, "writing a table") : 0;
}
