/* Aligned text tables, and numbers for people. */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 16

struct row {
    char *cells; /* each with its NUL */
    uint32_t n;
};

struct cli_table {
    struct mr_text_column column[MAX_COLUMNS];
    uint32_t n_columns;
    struct row head, *row;
    uint64_t n, room;
    bool lost;
};

/* Takes text, whose cells tabs divide. */
static struct row split(struct cli_table *table, char *text)
{
    struct row row = {text, 1};
    for (; *text; text++)
        if (*text == '\t' && row.n < MAX_COLUMNS) {
            *text = 0;
            row.n++;
        }
    table->n_columns = row.n > table->n_columns ? row.n : table->n_columns;
    return row;
}

static const char *cell_of(const struct row *row, uint32_t column)
{
    const char *cell = row->cells;
    for (uint32_t c = 0; c < column && c < row->n; c++)
        cell += strlen(cell) + 1;
    return column < row->n ? cell : "";
}

static const char *get_cell(const void *arg, uint64_t row, uint32_t column, char buf[MR_TEXT_CELL])
{
    const struct cli_table *table = arg;
    (void)buf;
    return cell_of(&table->row[row], column);
}

static void add(struct cli_table *table, char *text)
{
    if (mr_grow("a table", &table->row, &table->room, table->n + 1, sizeof *table->row) < 0) {
        free(text);
        table->lost = true;
        return;
    }
    table->row[table->n++] = split(table, text);
}

struct cli_table *cli_table_create(const char *heads)
{
    struct cli_table *table = calloc(1, sizeof *table);
    char *text = heads ? strdup(heads) : NULL;
    if (!table || (heads && !text)) {
        free(table);
        free(text);
        return NULL;
    }
    if (text)
        table->head = split(table, text);
    for (uint32_t c = 0; c < table->head.n; c++) {
        const char *head = cell_of(&table->head, c);
        table->column[c].right = *head == '>';
        table->column[c].head = head + (*head == '>');
    }
    return table;
}

char *cli_clean(const char *text, char buf[CLI_CLEAN])
{
    snprintf(buf, CLI_CLEAN, "%s", text);
    return mr_text_printable(buf);
}

const char *cli_fixed(double v, int digits, const char *unit, char *buf)
{
    if (isnan(v))
        snprintf(buf, CLI_HUMAN, "nan");
    else if (isinf(v))
        snprintf(buf, CLI_HUMAN, "%sinf", v < 0 ? "-" : "");
    else if (fabs(v) < 1e7)
        snprintf(buf, CLI_HUMAN, "%.*f%s", digits, v, unit);
    else
        snprintf(buf, CLI_HUMAN, "%.4g%s", v, unit);
    return buf;
}

/* Writes the number that begins the cell as cli_fixed() does, which is never longer. Integers that
 * fit 64 bits stay. Returns the cell's bytes. */
static size_t shorten_cell(char *cell, size_t bytes)
{
    char buf[CLI_HUMAN];
    size_t sign = *cell == '-', whole = strspn(cell + sign, "0123456789"), n = sign + whole;
    bool nan = strncmp(cell, "-nan", 4) == 0;
    if (n < bytes && cell[n] == '.')
        n += 1 + strspn(cell + n + 1, "0123456789");
    if (!nan && whole <= (n > sign + whole ? 7u : 20u))
        return bytes;
    n = nan ? 4 : n;
    size_t used = strlen(cli_fixed(strtod(cell, NULL), 0, "", buf)), rest = strlen(cell + n) + 1;
    memcpy(cell, buf, used);
    memmove(cell + used, cell + n, rest);
    return bytes - n + used;
}

/* No number stretches a column of numbers beyond its use. */
static char *shorten(const struct cli_table *table, char *row)
{
    char *cell = row;
    for (int c = 0; c < MAX_COLUMNS; c++) {
        size_t bytes = strcspn(cell, "\t");
        if (table->column[c].right)
            bytes = shorten_cell(cell, bytes);
        if (cell[bytes] == 0)
            break;
        cell += bytes + 1;
    }
    return row;
}

void cli_table_row(struct cli_table *table, const char *fmt, ...)
{
    va_list args;
    char *text;
    if (!table)
        return;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        table->lost = true;
    else
        add(table, shorten(table, mr_text_printable(text)));
}

static void destroy(struct cli_table *table)
{
    for (uint64_t r = 0; r < table->n; r++)
        free(table->row[r].cells);
    free(table->row);
    free(table->head.cells);
    free(table);
}

int cli_table_print(struct cli_table *table, FILE *out, int indent)
{
    struct mr_text_table text;
    if (!table)
        return cli_fail("out of memory");
    mr_text_table_init(&text);
    text.columns = table->column;
    text.n_columns = table->n_columns;
    text.n_rows = table->n;
    text.cell = get_cell;
    text.arg = table;
    text.indent = (uint32_t)indent;
    int rc = mr_text_table_write(&text, out);
    int code = rc < 0 ? cli_error(rc) : table->lost ? cli_fail("out of memory") : CLI_OK;
    destroy(table);
    return code;
}

static void put_html_row(const struct cli_table *table, const struct row *row, const char *element,
                         FILE *out)
{
    fputs("<tr>", out);
    for (uint32_t c = 0; c < table->n_columns; c++) {
        const char *cell = cell_of(row, c);
        bool right = table->column[c].right;
        fprintf(out, "<%s%s>", element, right ? "" : " class=\"text\"");
        mr_text_write_xml(right && !*cell ? "-" : cell + (row == &table->head && *cell == '>'),
                          out);
        fprintf(out, "</%s>", element);
    }
    fputs("</tr>\n", out);
}

int cli_table_html(struct cli_table *table, FILE *out)
{
    if (!table)
        return cli_fail("out of memory");
    fputs("<div class=\"table\"><table>\n", out);
    put_html_row(table, &table->head, "th", out);
    for (uint64_t i = 0; i < table->n; i++)
        put_html_row(table, &table->row[i], "td", out);
    fputs("</table></div>\n", out);
    int code = table->lost ? cli_fail("out of memory") : CLI_OK;
    destroy(table);
    return code;
}

const char *cli_bytes(uint64_t bytes, char *buf)
{
    return mr_text_number((double)bytes, MR_TEXT_BYTES, buf);
}

const char *cli_rate(double bytes_per_s, char *buf)
{
    return mr_text_number(bytes_per_s, MR_TEXT_BYTES_PER_S, buf);
}

const char *cli_count(double n, char *buf)
{
    if (!(n >= 0 && n < 1e7))
        return mr_text_number(n / 1e6, MR_TEXT_MILLIONS, buf);
    uint64_t whole = (uint64_t)(n + 0.5);
    if (n < 100 && (double)(uint64_t)n != n)
        snprintf(buf, CLI_HUMAN, "%.*f", n < 10 ? 2 : 1, n);
    else if (whole >= 1000000)
        snprintf(buf, CLI_HUMAN, "%u,%03u,%03u", (unsigned)(whole / 1000000),
                 (unsigned)(whole / 1000 % 1000), (unsigned)(whole % 1000));
    else if (whole >= 1000)
        snprintf(buf, CLI_HUMAN, "%u,%03u", (unsigned)(whole / 1000), (unsigned)(whole % 1000));
    else
        snprintf(buf, CLI_HUMAN, "%u", (unsigned)whole);
    return buf;
}

bool cli_ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

const char *cli_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

const char *cli_time(uint64_t ns, char *buf)
{
    if (ns >= 120000000000u) {
        uint64_t s = ns / 1000000000u;
        if (s >= 7200)
            snprintf(buf, CLI_HUMAN, "%" PRIu64 " h %02u min", s / 3600, (unsigned)(s / 60 % 60));
        else
            snprintf(buf, CLI_HUMAN, "%u min %02u s", (unsigned)(s / 60), (unsigned)(s % 60));
        return buf;
    }
    return mr_text_number((double)ns, MR_TEXT_NS, buf);
}
