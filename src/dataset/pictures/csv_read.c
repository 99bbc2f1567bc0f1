/* CSV syntax: records, cells, quotes, numbers. */
#include "dataset/pictures/csv.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* ---- cells ---- */

static int add_cell(struct mr_csv *csv, const char *text, size_t length)
{
    if (csv->n == MR_CSV_MAX_COLUMNS)
        return mr_error_set(MR_ELIMIT, "%s:%llu: more than %d cells", csv->path,
                            (unsigned long long)csv->record_line, MR_CSV_MAX_COLUMNS);
    if (mr_grow(csv->path, &csv->cell, &csv->room, csv->n + 1, sizeof *csv->cell) < 0)
        return -ENOMEM;
    csv->cell[csv->n++] = (struct mr_slice){text, length};
    return 0;
}

/* at: after the opening quote. Doubled quotes become one, in place. */
static int quoted(struct mr_csv *csv)
{
    uint64_t opened = csv->line;
    char *p = csv->at, *to = csv->at, *text = csv->at;
    for (; p < csv->end; p++) {
        if (*p == '"' && p[1] != '"')
            break;
        p += *p == '"';
        csv->line += *p == '\n';
        *to++ = *p;
    }
    if (p == csv->end)
        return mr_error_set(MR_EFORMAT, "%s:%llu: a quote opens here and is not closed", csv->path,
                            (unsigned long long)opened);
    csv->at = p + 1;
    if (csv->at < csv->end && *csv->at != csv->delimiter && *csv->at != '\n' && *csv->at != '\r')
        return mr_error_set(
            MR_EFORMAT,
            "%s:%llu: text after a closing quote: expected a delimiter or the line's "
            "end (quotes within quotes are doubled)",
            csv->path, (unsigned long long)csv->line);
    return add_cell(csv, text, (size_t)(to - text));
}

static int plain(struct mr_csv *csv)
{
    char *p = csv->at, delimiter = csv->delimiter;
    while (p < csv->end && *p != delimiter && *p != '\n' && *p != '\r')
        p++;
    int rc = add_cell(csv, csv->at, (size_t)(p - csv->at));
    csv->at = p;
    return rc;
}

/* Skips a line end: LF, CR LF, or CR alone. */
static void end_line(struct mr_csv *csv)
{
    if (csv->at < csv->end && *csv->at == '\r')
        csv->at++;
    else if (csv->at == csv->end)
        return;
    if (csv->at < csv->end && *csv->at == '\n')
        csv->at++;
    csv->line++;
}

/* [out] blank: the line contains only blanks. */
static int record(struct mr_csv *csv, bool *blank)
{
    const char *start = csv->at;
    csv->n = 0;
    csv->record_line = csv->line;
    for (;;) {
        bool quote = csv->at < csv->end && *csv->at == '"';
        csv->at += quote;
        int rc = quote ? quoted(csv) : plain(csv);
        if (rc < 0)
            return rc;
        if (csv->at == csv->end || *csv->at != csv->delimiter)
            break;
        csv->at++;
    }
    *blank = csv->n == 1 && start + strspn(start, " \t") >= csv->at;
    end_line(csv);
    return 0;
}

int mr_csv_next(struct mr_csv *csv)
{
    bool blank = true;
    while (blank) {
        if (csv->at == csv->end)
            return 0;
        int rc = record(csv, &blank);
        if (rc < 0)
            return rc;
    }
    return 1;
}

void mr_csv_free(struct mr_csv *csv)
{
    free(csv->cell);
    csv->cell = NULL;
    csv->n = csv->room = 0;
}

char mr_csv_delimiter(const char *text, const char *end)
{
    static const char candidates[] = ",;\t|";
    size_t count[sizeof candidates] = {0}, best = 0;
    bool inside = false;
    for (const char *p = text; p < end && (inside || (*p != '\n' && *p != '\r')); p++) {
        const char *found = inside ? NULL : strchr(candidates, *p);
        inside ^= *p == '"';
        if (found && *found)
            count[found - candidates]++;
    }
    for (size_t i = 1; i < sizeof candidates - 1; i++)
        best = count[i] > count[best] ? i : best;
    return candidates[best];
}

/* ---- numbers ---- */

/* The fast path for nearly all numbers: decimal digits with a point and an exponent, whose value is
 * one product or quotient of exact doubles. */
static bool simple(const char *p, const char *end, double *value)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool minus = p < end && *p == '-', point = false;
    p += p < end && (*p == '-' || *p == '+');
    uint64_t mantissa = 0;
    int digits = 0, behind = 0;
    for (; p < end && digits <= 18; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9')
            return false;
        mantissa = mantissa * 10 + (uint64_t)(*p - '0');
        digits++;
        behind += point;
    }
    if (p < end || digits == 0 || mantissa > 1ull << 53)
        return false;
    double x = (double)mantissa / power[behind];
    *value = minus ? -x : x;
    return true;
}

static enum mr_csv_number full(const char *text, size_t length, double *value)
{
    static const char *const words[] = {"nan", "inf", "infinity"};
    char copy[128], *end;
    if (length >= sizeof copy)
        return MR_CSV_TEXT;
    memcpy(copy, text, length);
    copy[length] = 0;
    const char *bare = copy + (copy[0] == '-' || copy[0] == '+');
    bool word = false;
    for (size_t i = 0; i < MR_COUNT(words); i++)
        word = word || strcasecmp(bare, words[i]) == 0;
    if (!word && copy[strspn(copy, "0123456789+-.eE")])
        return MR_CSV_TEXT;
    *value = mr_text_to_f64(copy, &end);
    if (*end || end == copy)
        return MR_CSV_TEXT;
    return isfinite(*value) ? MR_CSV_FINITE : MR_CSV_NOT_FINITE;
}

enum mr_csv_number mr_csv_number(struct mr_slice cell, double *value)
{
    const char *p = cell.text, *end = p + cell.length;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (p == end)
        return MR_CSV_EMPTY;
    return simple(p, end, value) ? MR_CSV_FINITE : full(p, (size_t)(end - p), value);
}
