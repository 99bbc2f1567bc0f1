/*
 * CSV files of pictures: one column has paths; points, labels and classes come from others. The
 * file is read once, when it is opened: paths go to the file table, numbers to rows in memory, and
 * the text is freed.
 */
#include "dataset/pictures/csv.h"
#include "codec/image.h"

#include "dataset/pictures/csv_columns.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct state {
    struct mr_photos photos; /* must be first */
};

struct reading {
    struct mr_dataset *ds;
    const struct mr_csv_opts *o;
    const char *root;
    struct mr_csv csv;
    struct mr_csv_columns columns;
    float *points;          /* rows of 2 * n_points */
    double *labels;         /* rows of n_labels; converted to the field's dtype at the end */
    bool whole, wide;       /* all are integers; some integer is not exact in f32 */
    struct mr_slice *names; /* class names */
    struct mr_slice *texts; /* rows of n_texts */
};

/* ---- values ---- */

static int refuse_cell(const struct reading *r, size_t c, const char *want)
{
    char name[80];
    struct mr_slice cell = r->csv.cell[c];
    return mr_error_set(MR_EFORMAT, "%s:%llu: %s: '%.*s': %s", r->o->path,
                        (unsigned long long)r->csv.record_line,
                        mr_csv_column_name(&r->columns, c, name, sizeof name),
                        (int)MR_MIN(cell.length, 60), cell.text, want);
}

static int number(const struct reading *r, size_t c, double *out)
{
    enum mr_csv_number kind = mr_csv_number(r->csv.cell[c], out);
    if (kind == MR_CSV_FINITE)
        return 0;
    if (kind == MR_CSV_TEXT)
        return refuse_cell(r, c, "expected a number");
    if (!r->o->allow_nan)
        return refuse_cell(
            r, c, "expected a finite number (allow-nan takes NaN, infinities and empty cells)");
    if (kind == MR_CSV_EMPTY)
        *out = NAN;
    return 0;
}

static int number_f32(const struct reading *r, size_t c, float *out)
{
    double value = 0;
    int rc = number(r, c, &value);
    if (rc < 0)
        return rc;
    *out = (float)value;
    if (isinf(*out) && !isinf(value) && !r->o->allow_nan)
        return refuse_cell(r, c, "too large for f32");
    return 0;
}

static int read_floats(const struct reading *r, const size_t *column, uint64_t n, float *row)
{
    for (uint64_t i = 0; i < n; i++) {
        int rc = number_f32(r, column[i], &row[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Returns whether the cell is all digits (a count or an identifier) but does not fit a double
 * exactly. */
static bool is_rounded(struct mr_slice cell, double x)
{
    size_t at = cell.length > 0 && (cell.text[0] == '-' || cell.text[0] == '+');
    uint64_t n = 0;
    bool fits = true;
    for (; at < cell.length && cell.text[at] >= '0' && cell.text[at] <= '9'; at++)
        fits = fits && mr_mul(n, 10, &n) && mr_add(n, (uint64_t)(cell.text[at] - '0'), &n) &&
               n < 1ull << 63;
    return at == cell.length && (!fits || fabs(x) >= 0x1p63 || (uint64_t)fabs(x) != n);
}

/* Reads a label and notes what the column's dtype must be able to represent. */
static int read_label(struct reading *r, size_t c, double *out)
{
    float narrow;
    int rc = number(r, c, out);
    if (rc < 0)
        return rc;
    double x = *out;
    bool whole = fabs(x) <= 0x1p53 && x == floor(x);
    if (fabs(x) >= 0x1p53 && is_rounded(r->csv.cell[c], x))
        return refuse_cell(
            r, c, "more than 2^53, and not held exactly: leave its column out by labels=[A,B]");
    r->whole = r->whole && whole;
    r->wide = r->wide || (whole && (double)(float)x != x);
    return whole ? 0 : number_f32(r, c, &narrow);
}

static int read_labels(struct reading *r, double *row)
{
    int rc = 0;
    for (size_t i = 0; i < r->columns.n_labels && rc == 0; i++)
        rc = read_label(r, r->columns.labels[i], &row[i]);
    return rc;
}

static int read_record(struct reading *r)
{
    const struct mr_csv_columns *k = &r->columns;
    uint64_t i = r->ds->n;
    int rc = 0;
    if (r->csv.n != k->n)
        return mr_error_set(MR_EFORMAT,
                            "%s:%llu: %zu cells: expected %zu, as many as the first line has",
                            r->o->path, (unsigned long long)r->csv.record_line, r->csv.n, k->n);
    if (r->points)
        rc = read_floats(r, k->points, k->n_points * 2, r->points + i * k->n_points * 2);
    if (rc < 0)
        return rc;
    if (r->labels)
        rc = read_labels(r, r->labels + i * k->n_labels);
    if (rc < 0)
        return rc;
    if (r->names)
        r->names[i] = r->csv.cell[k->labels[0]];
    for (size_t t = 0; t < k->n_texts; t++)
        r->texts[i * k->n_texts + t] = r->csv.cell[k->texts[t]];
    return mr_photos_add(r->ds, r->root, r->csv.cell[k->path], r->o->path, r->csv.record_line);
}

/* ---- rows ---- */

/* An upper bound for the number of records: one per line, and at least two bytes per cell. */
static uint64_t most_records(const struct mr_csv *csv)
{
    uint64_t bytes = (uint64_t)(csv->end - csv->at), ends = 0;
    for (const char *p = csv->at; (p = memchr(p, '\n', (size_t)(csv->end - p))); p++)
        ends++;
    for (const char *p = csv->at; (p = memchr(p, '\r', (size_t)(csv->end - p))); p++)
        ends++;
    return MR_MIN(ends, bytes / MR_MAX(csv->n, 1)) + 2;
}

static int rows(const struct reading *r, uint64_t n, uint64_t width, uint64_t unit, void **out)
{
    uint64_t bytes = 0;
    *out = mr_mul(n, width, &bytes) && mr_mul(bytes, unit, &bytes) && bytes < SIZE_MAX / 2
               ? malloc(bytes)
               : NULL;
    return *out ? 0 : mr_error_nomem(r->o->path, bytes);
}

static int make_rows(struct reading *r)
{
    const struct mr_csv_columns *k = &r->columns;
    uint64_t n = most_records(&r->csv);
    void *points = NULL, *labels = NULL, *names = NULL, *texts = NULL;
    int rc = k->n_points ? rows(r, n, k->n_points * 2, sizeof *r->points, &points) : 0;
    if (rc < 0)
        return rc;
    r->points = points;
    if (k->text_labels)
        rc = rows(r, n, 1, sizeof *r->names, &names);
    else if (k->n_labels > 0)
        rc = rows(r, n, k->n_labels, sizeof *r->labels, &labels);
    if (rc < 0)
        return rc;
    r->labels = labels;
    r->names = names;
    r->whole = true;
    rc = k->n_texts ? rows(r, n, k->n_texts, sizeof *r->texts, &texts) : 0;
    r->texts = texts;
    return rc;
}

/* Returns unused memory of the rows. */
static void *shrink(void *data, uint64_t bytes)
{
    void *less = realloc(data, MR_MAX(bytes, 1u));
    if (!less)
        return data;
    return less;
}

static int finish_classes(struct reading *r)
{
    struct mr_spec spec = {.name = "label", .dtype = MR_I64};
    int64_t *labels = malloc(r->ds->n * sizeof *labels);
    if (!labels)
        return mr_error_nomem(r->o->path, r->ds->n * sizeof *labels);
    int rc = mr_photos_classes(r->ds, r->names, r->ds->n, labels);
    if (rc < 0) {
        free(labels);
        return rc;
    }
    return mr_photos_add_field(r->ds, &spec, labels);
}

/* f32 unless an integer needs more; a single column of integers is a class label. */
static enum mr_dtype label_dtype(const struct reading *r)
{
    if (r->whole && (r->columns.n_labels == 1 || r->wide))
        return MR_I64;
    return r->wide ? MR_F64 : MR_F32;
}

/* Converts the doubles in place to the field's dtype. */
static int finish_labels(struct reading *r)
{
    struct mr_spec spec = {
        .name = "label", .dtype = label_dtype(r), .rank = r->columns.n_labels > 1};
    char *bytes = (char *)r->labels;
    size_t unit = mr_dtype_size(spec.dtype);
    uint64_t n = r->ds->n * r->columns.n_labels;
    spec.dim[0] = spec.rank ? r->columns.n_labels : 0;
    for (uint64_t i = 0; i < n; i++) {
        double x = r->labels[i];
        int64_t whole = spec.dtype == MR_I64 ? (int64_t)x : 0;
        float narrow = (float)x;
        const void *from = spec.dtype == MR_I64   ? (void *)&whole
                           : spec.dtype == MR_F64 ? (void *)&x
                                                  : (void *)&narrow;
        memmove(bytes + i * unit, from, unit);
    }
    r->labels = NULL;
    return mr_photos_add_field(r->ds, &spec, shrink(bytes, n * unit));
}

static int finish_points(struct reading *r)
{
    struct mr_spec spec = {
        .name = "points", .dtype = MR_F32, .rank = 2, .dim = {r->columns.n_points, 2}};
    float *points = r->points;
    r->points = NULL;
    return mr_photos_add_field(r->ds, &spec,
                               shrink(points, r->ds->n * spec.dim[0] * 2 * sizeof *points));
}

/* A column's name, which a field must have to itself. */
static int name_field(const struct reading *r, size_t t, char name[MR_NAME_BYTES])
{
    const struct mr_csv_columns *k = &r->columns;
    size_t c = k->texts[t];
    char shown[80];
    struct mr_slice of = k->name ? k->name[c] : (struct mr_slice){NULL, 0};
    bool fits = of.length < MR_NAME_BYTES && (of.length > 0 || !k->name);
    if (k->name)
        snprintf(name, MR_NAME_BYTES, "%.*s", (int)MR_MIN(of.length, MR_NAME_BYTES), of.text);
    else
        snprintf(name, MR_NAME_BYTES, "text%zu", c + 1);
    for (int f = 0; f < r->ds->n_fields; f++)
        fits = fits && strcmp(r->ds->field[f].name, name) != 0;
    return fits ? 0
                : mr_error_set(MR_EFORMAT,
                               "%s: text: %s: expected a name of 1 to %d bytes that no other field "
                               "has",
                               r->o->path, mr_csv_column_name(k, c, shown, sizeof shown),
                               MR_NAME_BYTES - 1);
}

/* The cells of one column, end to end. */
static int finish_text(struct reading *r, size_t t)
{
    struct mr_spec spec = {
        .dtype = MR_U8, .rank = 1, .var_dims = 1, .kind = MR_KIND_STRING, .dim = {1}};
    const struct mr_slice *cell = r->texts + t;
    uint64_t n = r->ds->n, width = r->columns.n_texts, bytes = 0;
    int rc = name_field(r, t, spec.name);
    if (rc < 0)
        return rc;
    uint64_t *at = malloc((n + 1) * sizeof *at);
    for (uint64_t i = 0; i < n; i++)
        bytes += cell[i * width].length;
    char *text = malloc(MR_MAX(bytes, 1u));
    if (!at || !text) {
        free(at);
        free(text);
        return mr_error_nomem(r->o->path, bytes + n * sizeof *at);
    }
    at[0] = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct mr_slice *c = &cell[i * width];
        memcpy(text + at[i], c->text, c->length);
        at[i + 1] = at[i] + c->length;
        spec.dim[0] = MR_MAX(spec.dim[0], c->length);
    }
    return mr_photos_add_text(r->ds, &spec, text, at);
}

static int finish(struct reading *r)
{
    int rc = r->points ? finish_points(r) : 0;
    if (rc < 0)
        return rc;
    if (r->names)
        rc = finish_classes(r);
    if (rc < 0)
        return rc;
    rc = r->labels ? finish_labels(r) : 0;
    for (size_t t = 0; t < r->columns.n_texts && rc == 0; t++)
        rc = finish_text(r, t);
    return rc;
}

/* ---- opening ---- */

static int read_records(struct reading *r)
{
    int rc = mr_csv_columns_choose(&r->columns, r->o, &r->csv);
    if (rc < 0)
        return rc;
    rc = make_rows(r);
    if (rc < 0)
        return rc;
    do {
        rc = read_record(r);
        if (rc < 0)
            return rc;
        rc = mr_csv_next(&r->csv);
        if (rc < 0)
            return rc;
    } while (rc > 0);
    return finish(r);
}

/* Reports columns that labels=all leaves out because their first cell is text, in case that text is
 * a mistake. */
static void describe_left_out(const struct mr_csv_columns *k, char *out, size_t cap)
{
    char name[80];
    if (k->n_text == 0 || cap == 0)
        return;
    mr_csv_column_name(k, k->first_text, name, sizeof name);
    if (k->n_text == 1)
        snprintf(out, cap, " (left out: text in %.40s)", name);
    else
        snprintf(out, cap, " (left out: text in %zu columns, the first is %.40s)", k->n_text, name);
}

static void describe(struct mr_dataset *ds, const struct reading *r)
{
    char text[80];
    size_t cap = sizeof ds->text;
    int n = snprintf(ds->text, cap, "csv: %.40s: %s", mr_base_name(r->o->path),
                     mr_photos_text(ds, text, sizeof text));
    if (r->columns.n_points && n > 0 && (size_t)n < cap)
        n += snprintf(ds->text + n, cap - (size_t)n, ", %zu points each", r->columns.n_points);
    if (n > 0 && (size_t)n < cap)
        describe_left_out(&r->columns, ds->text + n, cap - (size_t)n);
}

static int open_csv(struct mr_dataset *ds, const void *options)
{
    static const char delimiters[] = {
        [MR_CSV_COMMA] = ',', [MR_CSV_SEMICOLON] = ';', [MR_CSV_TAB] = '\t', [MR_CSV_PIPE] = '|'};
    const struct mr_csv_opts *o = options;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "csv: no path: expected csv:FILE");
    char *folder = mr_photos_folder(o->path), *text = NULL;
    uint64_t n = 0, skip = 0;
    if (!folder)
        return -ENOMEM;
    struct reading r = {.ds = ds, .o = o, .root = o->root && o->root[0] ? o->root : folder};
    mr_photos_declare(ds, &o->picture);
    int rc = mr_photos_read_text(o->path, &text, &n, &skip);
    if (rc < 0)
        goto free_folder;
    r.csv = (struct mr_csv){.path = o->path, .at = text + skip, .end = text + n, .line = 1};
    r.csv.delimiter =
        o->delimiter ? delimiters[o->delimiter] : mr_csv_delimiter(text + skip, text + n);
    rc = mr_photos_root(ds, r.root, o->links);
    if (rc < 0)
        goto free_text;
    rc = read_records(&r);
    if (rc < 0)
        goto free_rows;
    mr_photos_hash(ds);
    describe(ds, &r);
free_rows:
    mr_files_no_root(ds->files);
    mr_csv_columns_free(&r.columns);
    mr_csv_free(&r.csv);
    free(r.points);
    free(r.labels);
    free(r.names);
    free(r.texts);
free_text:
    free(text);
free_folder:
    free(folder);
    return rc;
}

static bool sniff(const char *path)
{
    return mr_ends_in(path, ".csv") || mr_ends_in(path, ".tsv");
}

#define AT(member) offsetof(struct mr_csv_opts, member)
static const char *const answers[] = {"auto", "yes", "no", NULL};
static const char *const delimiter_names[] = {"auto", "comma", "semicolon", "tab", "pipe", NULL};
static const struct mr_option options_table[] = {
    {"file", 0, MR_OPT_STRING, AT(path), .meta = "FILE",
     .help = "A CSV file with a column of pictures' paths"},
    {"path", 0, MR_OPT_STRING, AT(column), .meta = "COLUMN",
     .help = "The column of paths: its name, or its number from 1; default: the first that is "
             "not a number"},
    {"root", 0, MR_OPT_STRING, AT(root), .meta = "DIR",
     .help = "Folder that paths are relative to and must be in; default: the CSV file's folder"},
    {"labels", 0, MR_OPT_STRING, AT(labels), .meta = "COLUMNS",
     .help = "all (default): every column with a number in the first record that is not part of "
             "a point; none; or columns, a:b or [a,b]; a text column has names of classes"},
    {"text", 0, MR_OPT_STRING, AT(text), .meta = "COLUMNS",
     .help = "Columns, a:b or [a,b], each of which becomes a field of strings"},
    {"points", 0, MR_OPT_ENUM, AT(points), .choices = answers, .initial = "auto",
     .help = "Adjacent columns a_x and a_y are a point; yes: if there are none, all numbers in "
             "pairs"},
    {"header", 0, MR_OPT_ENUM, AT(header), .choices = answers, .initial = "auto",
     .help = "The first line has the columns' names; auto: if it has no number and no picture's "
             "path"},
    {"delimiter", 0, MR_OPT_ENUM, AT(delimiter), .choices = delimiter_names, .initial = "auto",
     .help = "Between cells; auto: the most frequent one in the first line"},
    {"allow-nan", 0, MR_OPT_FLAG, AT(allow_nan),
     .help = "Accept NaN, infinities, and empty cells as NaN"},
    {"links", 0, MR_OPT_ENUM, AT(links), .choices = mr_photos_links, .initial = "refuse",
     .help = "Symbolic links from inside the root to outside: refuse such a picture, or read it"},
    MR_PICTURE_OPTIONS(struct mr_csv_opts, picture),
    {NULL},
};

static const char *const positional[] = {"file", NULL};

const struct mr_dataset_ops mr_dataset_csv = {
    .name = "csv",
    .isolates = true,
    .summary = "pictures with labels or points from a CSV file",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_csv_opts),
    .state_size = sizeof(struct state),
    .lacks = mr_image_lacks,
    .sniff = sniff,
    .open = open_csv,
    .close = mr_photos_close,
    .locate = mr_photos_locate,
    .decode = mr_photos_decode,
    .get_field = mr_photos_get_field,
};

void mr_csv_opts_fill(struct mr_csv_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_csv, opts, size);
}

int mr_dataset_open_csv(const struct mr_csv_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_csv, opts, out);
}
