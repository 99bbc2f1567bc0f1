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

/* By enum mr_time_unit. */
static const struct {
    const char *name;
    double ns;
} times[] = {{"ns", 1}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

char *mr_table_head(const struct mr_column *column, enum mr_time_unit time)
{
    static const char *const units[] = {
        [MR_UNIT_BYTES] = " (MB)", [MR_UNIT_BYTES_PER_S] = " (MB/s)", [MR_UNIT_PERCENT] = " (%)"};
    const char *unit = column->unit < MR_COUNT(units) ? units[column->unit] : NULL;
    char *head;
    if (column->unit == MR_UNIT_NS)
        return asprintf(&head, "%s (%s)", column->name, times[time].name) < 0 ? NULL : head;
    return asprintf(&head, "%s%s", column->name, unit ? unit : "") < 0 ? NULL : head;
}

double mr_table_machine(const struct mr_column *column, enum mr_time_unit time, double value)
{
    switch (column->unit) {
    case MR_UNIT_NS: /* to a tenth of a ns */
        return round(value * 10) / (10 * times[time].ns);
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
static int put_scaled(char *buf, double value, enum mr_text_unit unit)
{
    int digits;
    const char *name = mr_text_scale(unit, 4, &value, &digits);
    int n = put_fixed(buf, MR_TEXT_CELL, value, digits);
    return n + snprintf(buf + n, MR_TEXT_CELL - (size_t)n, " %s", name);
}

static int put_time(const struct mr_column *column, enum mr_time_unit time, double ns, char *buf)
{
    static const int digits[] = {0, 0, 3, 6, 6};
    if (time != MR_TIME_AUTO) {
        int used = put_fixed(buf, MR_TEXT_CELL, ns / times[time].ns, digits[time]);
        return used + snprintf(buf + used, MR_TEXT_CELL - (size_t)used, " %s", times[time].name);
    }
    if (!is_moment(column))
        return put_scaled(buf, ns, MR_TEXT_NS);
    int n = put_fixed(buf, MR_TEXT_CELL, ns / 1e6, 6);
    return n + snprintf(buf + n, MR_TEXT_CELL - (size_t)n, " ms");
}

int mr_table_human(const struct mr_column *column, enum mr_time_unit time,
                   const struct mr_cell *cell, char buf[MR_TEXT_CELL])
{
    double value = cell->real;
    switch (column->unit) {
    case MR_UNIT_NS:
        return put_time(column, time, value, buf);
    case MR_UNIT_BYTES:
        return put_scaled(buf, value, MR_TEXT_BYTES_1000);
    case MR_UNIT_BYTES_PER_S:
        return put_scaled(buf, value, MR_TEXT_BYTES_PER_S);
    case MR_UNIT_PERCENT: {
        int n = put_fixed(buf, MR_TEXT_CELL, value, 1);
        return n + snprintf(buf + n, MR_TEXT_CELL - (size_t)n, "%%");
    }
    case MR_UNIT_COUNT:
        return put_fixed(buf, MR_TEXT_CELL, value, value == floor(value) ? 0 : 2);
    default:
        break;
    }
    if (cell->type == MR_CELL_INT)
        return snprintf(buf, MR_TEXT_CELL, "%" PRId64, cell->integer);
    return put_fixed(buf, MR_TEXT_CELL, value, value == floor(value) ? 0 : 3);
}
