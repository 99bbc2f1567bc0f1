/* Aligned text tables, and numbers for people. */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 16

struct cli_table {
    char **row; /* cells with tabs between them; the heads first, if any */
    int n, cap;
    bool has_heads, lost;
    bool right[MAX_COLUMNS];
};

static void add(struct cli_table *table, char *text)
{
    if (table->n == table->cap) {
        int cap = table->cap ? table->cap * 2 : 16;
        char **grown = realloc(table->row, (size_t)cap * sizeof *grown);
        if (!grown) {
            free(text);
            table->lost = true;
            return;
        }
        table->row = grown;
        table->cap = cap;
    }
    table->row[table->n++] = text;
}

struct cli_table *cli_table_create(const char *heads)
{
    struct cli_table *table = calloc(1, sizeof *table);
    char *text = heads ? malloc(strlen(heads) + 1) : NULL, *to = text;
    if (!table || (heads && !text)) {
        free(table);
        free(text);
        return NULL;
    }
    int column = 0;
    for (const char *p = heads; p && *p; p++) {
        bool start = p == heads || p[-1] == '\t';
        column += start && p != heads;
        if (start && *p == '>' && column < MAX_COLUMNS)
            table->right[column] = true;
        else
            *to++ = *p;
    }
    if (text) {
        *to = 0;
        table->has_heads = true;
        add(table, text);
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
        if (table->right[c])
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

/* Columns of a terminal that a text takes: its code points. */
static int columns(const char *text, int bytes)
{
    int n = 0;
    for (int i = 0; i < bytes; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static void print_row(const struct cli_table *table, const char *row, const int *width, FILE *out,
                      int indent)
{
    fprintf(out, "%*s", indent, "");
    for (int c = 0; c < MAX_COLUMNS; c++) {
        int bytes = (int)strcspn(row, "\t");
        int blanks = width[c] - columns(row, bytes);
        bool last =
            row[bytes + strspn(row + bytes, "\t")] == 0; /* no blanks for empty cells at the end */
        fprintf(out, "%*s%.*s%*s", table->right[c] ? blanks : 0, "", bytes, row,
                last ? 0 : (table->right[c] ? 0 : blanks) + 2, "");
        if (last)
            break;
        row += bytes + 1;
    }
    fputc('\n', out);
}

int cli_table_print(struct cli_table *table, FILE *out, int indent)
{
    int width[MAX_COLUMNS] = {0};
    if (!table)
        return cli_fail("out of memory");
    for (int r = 0; r < table->n; r++) {
        const char *cell = table->row[r];
        for (int c = 0; c < MAX_COLUMNS; c++) {
            int bytes = (int)strcspn(cell, "\t"), n = columns(cell, bytes);
            width[c] = n > width[c] ? n : width[c];
            if (cell[bytes] == 0)
                break;
            cell += bytes + 1;
        }
    }
    for (int r = 0; r < table->n; r++) {
        print_row(table, table->row[r], width, out, indent);
        free(table->row[r]);
    }
    int code = table->lost ? cli_fail("out of memory") : CLI_OK;
    free(table->row);
    free(table);
    return code;
}

/* Three significant digits. */
static const char *scaled(double value, double step, const char *const *units, int n_units,
                          const char *end, char *buf)
{
    int i = 0;
    if (!(value >= 0 && value < 1e60)) {
        snprintf(buf, CLI_HUMAN, "-");
        return buf;
    }
    while (i < n_units - 1 && value >= step * 0.9995) {
        value /= step;
        i++;
    }
    int digits = i == 0 && value == floor(value) ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(buf, CLI_HUMAN, value < 1e7 ? "%.*f %s%s" : "%.*g %s%s", value < 1e7 ? digits : 3,
             value, units[i], end);
    return buf;
}

const char *cli_bytes(uint64_t bytes, char *buf)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return scaled((double)bytes, 1024, units, (int)CLI_COUNT(units), "", buf);
}

const char *cli_rate(double bytes_per_s, char *buf)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    return scaled(bytes_per_s, 1000, units, (int)CLI_COUNT(units), "/s", buf);
}

const char *cli_count(double n, char *buf)
{
    static const char *const units[] = {"M", "G", "T", "P", "E"};
    if (!(n >= 0 && n < 1e7))
        return scaled(n / 1e6, 1000, units, (int)CLI_COUNT(units), "", buf);
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
    static const char *const units[] = {"ns", "us", "ms", "s"};
    if (ns >= 120000000000u) {
        uint64_t s = ns / 1000000000u;
        if (s >= 7200)
            snprintf(buf, CLI_HUMAN, "%" PRIu64 " h %02u min", s / 3600, (unsigned)(s / 60 % 60));
        else
            snprintf(buf, CLI_HUMAN, "%u min %02u s", (unsigned)(s / 60), (unsigned)(s % 60));
        return buf;
    }
    return scaled((double)ns, 1000, units, (int)CLI_COUNT(units), "", buf);
}
