/* Assigns roles to the columns of a CSV file: by options, by the header's names, and by the cells
 * of the first record. */
#include "dataset/pictures/csv_columns.h"

#include <stdio.h>
#include <string.h>

const char *mr_csv_column_name(const struct mr_csv_columns *k, size_t c, char *buf, size_t cap)
{
    if (k->name)
        snprintf(buf, cap, "column '%.*s'", (int)MR_MIN(k->name[c].length, 60), k->name[c].text);
    else
        snprintf(buf, cap, "column %zu", c + 1);
    return buf;
}

void mr_csv_columns_free(struct mr_csv_columns *k)
{
    free(k->name);
    free(k->points);
    free(k->labels);
    free(k->texts);
    *k = (struct mr_csv_columns){0};
}

/* ---- the header ---- */

static bool is_picture(struct mr_slice cell)
{
    return mr_photos_named(cell.text, cell.length);
}

static enum mr_csv_number kind_of(struct mr_slice cell)
{
    double value;
    return mr_csv_number(cell, &value);
}

static bool looks_like_header(const struct mr_csv *csv)
{
    for (size_t c = 0; c < csv->n; c++) {
        enum mr_csv_number kind = kind_of(csv->cell[c]);
        if (is_picture(csv->cell[c]) || kind == MR_CSV_FINITE || kind == MR_CSV_NOT_FINITE)
            return false;
    }
    return true;
}

static int no_records(const struct mr_csv *csv, int rc, const char *what)
{
    return rc < 0 ? rc
                  : mr_error_set(MR_EFORMAT, "%s: %s: expected a line for each picture", csv->path,
                                 what);
}

static int read_header(struct mr_csv_columns *k, const struct mr_csv_opts *o, struct mr_csv *csv)
{
    int rc = mr_csv_next(csv);
    if (rc <= 0)
        return no_records(csv, rc, "empty");
    k->n = csv->n;
    if (o->header == MR_CSV_HEADER_NO ||
        (o->header == MR_CSV_HEADER_AUTO && !looks_like_header(csv)))
        return 0;
    k->name = malloc(k->n * sizeof *k->name);
    if (!k->name)
        return mr_error_nomem(csv->path, k->n * sizeof *k->name);
    memcpy(k->name, csv->cell, k->n * sizeof *k->name);
    rc = mr_csv_next(csv);
    if (rc <= 0)
        return no_records(csv, rc, "one line, taken for the columns' names");
    if (csv->n == k->n)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s:%llu: %zu cells: expected %zu, as many as the first line has",
                        csv->path, (unsigned long long)csv->record_line, csv->n, k->n);
}

/* ---- choosing ---- */

/* Finds a column by name, or else by number, from 1. */
static int find(const struct mr_csv_columns *k, const struct mr_csv *csv, struct mr_slice what,
                size_t *out)
{
    for (size_t c = 0; k->name && c < k->n; c++)
        if (k->name[c].length == what.length &&
            memcmp(k->name[c].text, what.text, what.length) == 0) {
            *out = c;
            return 0;
        }
    size_t number = 0, i = 0;
    while (i < what.length && what.text[i] >= '0' && what.text[i] <= '9' && number <= k->n)
        number = number * 10 + (size_t)(what.text[i++] - '0');
    *out = number - 1;
    if (i == what.length && number >= 1 && number <= k->n)
        return 0;
    return mr_error_set(MR_EOPTION, "%s: no column '%.*s': expected %s 1..%zu", csv->path,
                        (int)MR_MIN(what.length, 60), what.text,
                        k->name ? "a name from the first line, or a number" : "a number", k->n);
}

static int choose_path(struct mr_csv_columns *k, const struct mr_csv_opts *o,
                       const struct mr_csv *csv)
{
    if (o->column && o->column[0])
        return find(k, csv, (struct mr_slice){o->column, strlen(o->column)}, &k->path);
    for (size_t c = k->n; c-- > 0;)
        if (kind_of(csv->cell[c]) == MR_CSV_TEXT)
            k->path = c;
    for (size_t c = k->n; c-- > 0;)
        if (is_picture(csv->cell[c]))
            k->path = c;
    if (kind_of(csv->cell[k->path]) == MR_CSV_TEXT)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s:%llu: no cell that could be a picture's path: set path=COLUMN",
                        csv->path, (unsigned long long)csv->record_line);
}

/* Empty cells count as missing numbers. */
static bool numeric(const struct mr_csv_columns *k, const struct mr_csv *csv, size_t c)
{
    return c != k->path && kind_of(csv->cell[c]) != MR_CSV_TEXT;
}

/* Returns whether two names differ in one letter only: x in the first, y in the second. */
static bool pair(struct mr_slice x, struct mr_slice y)
{
    size_t differ = 0, at = 0;
    if (x.length != y.length)
        return false;
    for (size_t i = 0; i < x.length; i++)
        if (x.text[i] != y.text[i]) {
            differ++;
            at = i;
        }
    return differ == 1 &&
           ((x.text[at] == 'x' && y.text[at] == 'y') || (x.text[at] == 'X' && y.text[at] == 'Y'));
}

/* taken[c]: columns that the label option names. */
static void choose_pairs(struct mr_csv_columns *k, const struct mr_csv *csv, bool *taken)
{
    for (size_t c = 0; k->name && c + 1 < k->n; c++) {
        if (taken[c] || taken[c + 1] || !numeric(k, csv, c) || !numeric(k, csv, c + 1) ||
            !pair(k->name[c], k->name[c + 1]))
            continue;
        k->points[2 * k->n_points] = c;
        k->points[2 * k->n_points++ + 1] = c + 1;
        taken[c] = taken[c + 1] = true;
        c++;
    }
}

static int choose_points(struct mr_csv_columns *k, const struct mr_csv_opts *o,
                         const struct mr_csv *csv, bool *taken)
{
    size_t n = 0;
    if (o->points == MR_CSV_POINTS_NO)
        return 0;
    choose_pairs(k, csv, taken);
    if (o->points != MR_CSV_POINTS_YES || k->n_points > 0)
        return 0;
    for (size_t c = 0; c < k->n; c++)
        if (!taken[c] && numeric(k, csv, c)) {
            k->points[n++] = c;
            taken[c] = true;
        }
    k->n_points = n / 2;
    if (n > 0 && n % 2 == 0)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s: points=yes: %zu columns of numbers: expected x and y in turn",
                        csv->path, n);
}

/* "a:b" or "[a,b]": both delimiters without brackets, only commas inside them. option: their name.
 * [out] column, n: appended to. */
static int choose_named(const struct mr_csv_columns *k, const char *option, const char *text,
                        const struct mr_csv *csv, bool *taken, size_t *column, size_t *n_columns)
{
    size_t n = strlen(text);
    bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    const char *p = text + brackets, *end = text + n - brackets;
    while (p <= end) {
        size_t c, length = strcspn(p, brackets ? "," : ",:");
        length = MR_MIN(length, (size_t)(end - p));
        int rc = find(k, csv, (struct mr_slice){p, length}, &c);
        if (rc < 0)
            return rc;
        if (c == k->path || taken[c])
            return mr_error_set(MR_EOPTION, "%s: %s: column '%.*s' %s", csv->path, option,
                                (int)MR_MIN(length, 60), p,
                                c == k->path ? "is the column of paths" : "appears twice");
        taken[c] = true;
        column[(*n_columns)++] = c;
        p += length + 1;
    }
    return 0;
}

static int choose_labels(struct mr_csv_columns *k, const char *text, const struct mr_csv *csv,
                         bool *taken)
{
    int rc = choose_named(k, "labels", text, csv, taken, k->labels, &k->n_labels);
    if (rc < 0)
        return rc;
    bool text_cell = kind_of(csv->cell[k->labels[0]]) == MR_CSV_TEXT;
    k->text_labels = k->n_labels == 1 && text_cell;
    return 0;
}

static void choose_all(struct mr_csv_columns *k, const struct mr_csv *csv, const bool *taken)
{
    for (size_t c = k->n; c-- > 0;)
        if (!taken[c] && c != k->path && !numeric(k, csv, c)) {
            k->first_text = c;
            k->n_text++;
        }
    for (size_t c = 0; c < k->n; c++)
        if (!taken[c] && numeric(k, csv, c))
            k->labels[k->n_labels++] = c;
}

static int choose(struct mr_csv_columns *k, const struct mr_csv_opts *o, const struct mr_csv *csv,
                  bool *taken)
{
    const char *labels = o->labels && o->labels[0] ? o->labels : "all";
    bool all = strcmp(labels, "all") == 0, none = strcmp(labels, "none") == 0;
    int rc = all || none ? 0 : choose_labels(k, labels, csv, taken);
    if (rc == 0 && o->text && o->text[0])
        rc = choose_named(k, "text", o->text, csv, taken, k->texts, &k->n_texts);
    if (rc < 0)
        return rc;
    rc = choose_points(k, o, csv, taken);
    if (rc < 0)
        return rc;
    if (all)
        choose_all(k, csv, taken);
    return 0;
}

int mr_csv_columns_choose(struct mr_csv_columns *k, const struct mr_csv_opts *o, struct mr_csv *csv)
{
    int rc = read_header(k, o, csv);
    if (rc < 0)
        return rc;
    rc = choose_path(k, o, csv);
    if (rc < 0)
        return rc;
    bool *taken = calloc(k->n, sizeof *taken);
    k->points = calloc(k->n, sizeof *k->points);
    k->labels = calloc(k->n, sizeof *k->labels);
    k->texts = calloc(k->n, sizeof *k->texts);
    bool room = taken && k->points && k->labels && k->texts;
    rc = room ? choose(k, o, csv, taken) : mr_error_nomem(csv->path, k->n * sizeof(size_t));
    free(taken);
    return rc;
}
