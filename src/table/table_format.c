/* Formats numbers: for people with fitting units, for programs in the unit of the header. Ignores
 * the locale's decimal comma. */
#include "table/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Timestamps, unlike durations, differ in their last digits only. Their name begins or ends with
 * one of these. */
static bool is_moment(const struct mr_column *column)
{
    static const char *const words[] = {"Start", "End"};
    size_t length = strlen(column->name);
    for (size_t i = 0; i < MR_COUNT(words) && column->unit == MR_UNIT_NS; i++) {
        size_t n = strlen(words[i]);
        if (length >= n && (strncasecmp(column->name, words[i], n) == 0 ||
                            strcasecmp(column->name + length - n, words[i]) == 0))
            return true;
    }
    return false;
}

char *mr_table_head(const struct mr_column *column)
{
    static const char *const units[] = {[MR_UNIT_NS] = " (ns)",
                                        [MR_UNIT_BYTES] = " (MB)",
                                        [MR_UNIT_BYTES_PER_S] = " (MB/s)",
                                        [MR_UNIT_PERCENT] = " (%)"};
    const char *unit = column->unit < MR_COUNT(units) ? units[column->unit] : NULL;
    char *head;
    return asprintf(&head, "%s%s", column->name, unit ? unit : "") < 0 ? NULL : head;
}

double mr_table_machine(const struct mr_column *column, double value)
{
    switch (column->unit) {
    case MR_UNIT_NS:
        return round(value * 10) / 10;
    case MR_UNIT_BYTES:
        return value / 1e6;
    case MR_UNIT_BYTES_PER_S:
        return round(value / 1e3) / 1e3;
    case MR_UNIT_PERCENT:
        return round(value * 1e4) / 1e4;
    default:
        return value;
    }
}

/* "-1,234.50" */
static int put_fixed(char *buf, size_t cap, double value, int digits)
{
    static const double powers[] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6};
    if (!(fabs(value) < 1e12))
        return snprintf(buf, cap, "%.3g", value);
    uint64_t scaled = (uint64_t)llround(fabs(value) * powers[digits]),
             power = (uint64_t)powers[digits];
    uint64_t whole = scaled / power, part = scaled % power;
    char plain[32];
    int n = snprintf(plain, sizeof plain, "%" PRIu64, whole), used = 0;
    if (value < 0 && scaled)
        buf[used++] = '-';
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            buf[used++] = ',';
        buf[used++] = plain[i];
    }
    if (digits)
        used += snprintf(buf + used, cap - (size_t)used, ".%0*" PRIu64, digits, part);
    buf[used] = 0;
    return used;
}

/* Four significant digits for values of at least 1, or as many as an integer of the smallest unit
 * has. */
static int put_scaled(char *buf, size_t cap, double value, const char *const *units, int n_units)
{
    double size = fabs(value);
    int i = 0;
    while (i < n_units - 1 && size >= 999.95) {
        size /= 1000;
        value /= 1000;
        i++;
    }
    int digits = i == 0 && value == floor(value) ? 0
                 : size < 9.9995                 ? 3
                 : size < 99.995                 ? 2
                 : size < 999.95                 ? 1
                                                 : 0;
    int n = put_fixed(buf, cap, value, digits);
    return n + snprintf(buf + n, cap - (size_t)n, " %s", units[i]);
}

static int put_time(const struct mr_column *column, double ns, char *buf)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    if (!is_moment(column))
        return put_scaled(buf, MR_TABLE_CELL_BYTES, ns, units, (int)MR_COUNT(units));
    int n = put_fixed(buf, MR_TABLE_CELL_BYTES, ns / 1e6, 6);
    return n + snprintf(buf + n, MR_TABLE_CELL_BYTES - (size_t)n, " ms");
}

int mr_table_human(const struct mr_column *column, const struct mr_cell *cell,
                   char buf[MR_TABLE_CELL_BYTES])
{
    static const char *const bytes[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    static const char *const rates[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    double value = cell->real;
    switch (column->unit) {
    case MR_UNIT_NS:
        return put_time(column, value, buf);
    case MR_UNIT_BYTES:
        return put_scaled(buf, MR_TABLE_CELL_BYTES, value, bytes, (int)MR_COUNT(bytes));
    case MR_UNIT_BYTES_PER_S:
        return put_scaled(buf, MR_TABLE_CELL_BYTES, value, rates, (int)MR_COUNT(rates));
    case MR_UNIT_PERCENT: {
        int n = put_fixed(buf, MR_TABLE_CELL_BYTES, value, 1);
        return n + snprintf(buf + n, MR_TABLE_CELL_BYTES - (size_t)n, "%%");
    }
    case MR_UNIT_COUNT:
        return put_fixed(buf, MR_TABLE_CELL_BYTES, value, value == floor(value) ? 0 : 2);
    default:
        break;
    }
    if (cell->type == MR_CELL_INT)
        return snprintf(buf, MR_TABLE_CELL_BYTES, "%" PRId64, cell->integer);
    return put_fixed(buf, MR_TABLE_CELL_BYTES, value, value == floor(value) ? 0 : 3);
}
