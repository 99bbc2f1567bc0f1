/* millrace inspect DATASET: what is in a data set. */
#include "inspect/inspect.h"
#include "pipeline.h"

#include <math.h>
#include <millrace/place.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SCAN_BYTES    (1 << 28) /* read for the statistics, unless --scan asks for more */
#define DEFAULT_SCAN  1000
#define VARYING_BYTES (1 << 20) /* taken for a sample whose size is not known before */
#define MAX_BAD_SHOWN 5
#define MAX_ROW_BYTES (1ull << 32)

struct options {
    struct cli_common common;
    uint64_t n, index, scan, rows, columns, tile;
    struct mr_loader_opts loader; /* its seed */
    char *sheet, *transform, *table, *base;
    int formats, transforms, vary, force;
};

#define AT(member) offsetof(struct options, member)
static const struct mr_option table[] = {
    {"n", 'n', MR_OPT_UINT, AT(n), "3", 0, 100, "samples", .help = "Samples to show"},
    {"index", 'i', MR_OPT_UINT, AT(index), "0", .help = "First sample to show"},
    {"scan", 0, MR_OPT_UINT, AT(scan), "0",
     .help = "Samples to compute statistics from; 0: the first 1,000, or as many as fit into "
             "256 MiB; a sample of varying size counts as 1 MiB"},
    {"sheet", 0, MR_OPT_STRING, AT(sheet), .meta = "FILE",
     .help = "Instead, write a PNG contact sheet of the pictures from --index on; points are "
             "drawn as crosses, a clip as a row of frames",
     .group = "Contact sheet"},
    {"transform", 't', MR_OPT_STRING, AT(transform), .meta = "CHAIN",
     .help = "Transforms to apply to the pictures first, as in feed", .group = "Contact sheet"},
    {"rows", 0, MR_OPT_UINT, AT(rows), "4", 1, 100, "rows", .help = "Rows of pictures",
     .group = "Contact sheet"},
    {"columns", 0, MR_OPT_UINT, AT(columns), "8", 1, 100, "columns", .help = "Pictures in a row",
     .group = "Contact sheet"},
    {"tile", 0, MR_OPT_UINT, AT(tile), "160", 16, 1024, "pixels",
     .help = "Height and width of a picture on the sheet", .group = "Contact sheet"},
    {"vary", 0, MR_OPT_FLAG, AT(vary),
     .help = "Show one sample per row, in successive epochs, to see random transforms; with "
             "clips, all rows show the first one",
     .group = "Contact sheet"},
    CLI_LOADER_OPTION(struct options, loader, "seed", .group = "Contact sheet"),
    {"shard-table", 0, MR_OPT_STRING, AT(table), .meta = "FILE.shards",
     .help = "Instead, write a table of the archives that DATASET names (files, folders, URLs, "
             "other tables): with it as DATASET, shards are opened only when they are read",
     .group = "Tables of shards"},
    {"base", 0, MR_OPT_STRING, AT(base), .meta = "FOLDER",
     .help = "The folder or URL that names in the table are relative to; default: the table's "
             "folder",
     .group = "Tables of shards"},
    {"force", 'f', MR_OPT_FLAG, AT(force), .help = "Replace a file that exists"},
    {"formats", 0, MR_OPT_FLAG, AT(formats), .help = "List the formats and their options instead"},
    {"transforms", 0, MR_OPT_FLAG, AT(transforms), .help = "List the transforms instead"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

/* ---- reading ---- */

static void count_label(struct inspect_field *f, int64_t value)
{
    uint64_t i = 0;
    while (i < f->n_classes && f->class[i].value < value)
        i++;
    if (i == f->n_classes || f->class[i].value != value) {
        if (f->n_classes == INSPECT_CLASSES) {
            f->other++;
            return;
        }
        memmove(&f->class[i + 1], &f -> class[i], (f->n_classes - i) * sizeof f->class[0]);
        f->class[i].value = value;
        f->class[i].n = 0;
        f->n_classes++;
    }
    f->class[i].n++;
}

static void count_field(struct inspect_field *f, const uint64_t *dim)
{
    size_t bytes = mr_dtype_size(f->spec->dtype);
    uint64_t n = inspect_count(f->spec, dim);
    const unsigned char *p = f->row;
    for (uint64_t i = 0; i < n; i++, p += bytes) {
        double v = inspect_value(f->spec->dtype, p);
        if (isnan(v))
            continue;
        f->min = f->n == 0 || v < f->min ? v : f->min;
        f->max = f->n == 0 || v > f->max ? v : f->max;
        f->sum += v;
        f->n++;
    }
    if (f->is_label)
        count_label(f, (int64_t)inspect_value(f->spec->dtype, f->row));
}

static int read_sample(struct inspect *k, uint64_t index)
{
    for (int f = 0; f < k->n_fields; f++)
        /* Every field below n_fields has a spec. */
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
        memcpy(k->dim[f], k->field[f].spec->dim, sizeof k->dim[f]);
    return mr_dataset_read(k->ds, index, k->row, k->dim);
}

bool inspect_read_good(struct inspect *k, uint64_t index)
{
    int rc = read_sample(k, index);
    if (rc >= 0)
        return true;
    if (rc == MR_ECANCELLED) /* the caller's loop asks, too */
        return false;
    if (k->n_bad++ < MAX_BAD_SHOWN)
        cli_warn("sample %llu is bad: %s", (unsigned long long)index, mr_last_error());
    return false;
}

static int prepare(struct inspect *k, uint64_t asked)
{
    uint64_t sample_bytes = 0, length = mr_dataset_length(k->ds);
    k->n_fields = mr_dataset_fields(k->ds);
    k->field = calloc((size_t)k->n_fields, sizeof *k->field);
    if (!k->field)
        return cli_fail("out of memory");
    for (int f = 0; f < k->n_fields; f++) {
        struct inspect_field *field = &k->field[f];
        uint64_t bytes;
        field->spec = mr_dataset_field(k->ds, f);
        field->is_label = field->spec->rank == 0 && inspect_integer(field->spec->dtype);
        int rc = mr_spec_bytes(field->spec, &bytes);
        if (rc)
            return cli_error(rc);
        if (bytes > MAX_ROW_BYTES)
            return cli_fail("%s: a sample of %llu bytes is too large to look at", k->uri,
                            (unsigned long long)bytes);
        field->row = k->row[f] = malloc(bytes ? bytes : 1);
        if (!field->row) {
            cli_fail("out of memory (%llu bytes for one sample)", (unsigned long long)bytes);
            return CLI_FAILED;
        }
        sample_bytes += field->spec->var_dims && bytes > VARYING_BYTES ? VARYING_BYTES : bytes;
    }
    uint64_t fit = SCAN_BYTES / (sample_bytes ? sample_bytes : 1);
    k->scan_limited = !asked && fit < DEFAULT_SCAN;
    k->scanned = asked ? asked : fit < DEFAULT_SCAN ? (fit ? fit : 1) : DEFAULT_SCAN;
    k->scanned = k->scanned < length ? k->scanned : length;
    return CLI_OK;
}

static void scan(struct inspect *k)
{
    struct cli_progress progress;
    cli_progress_begin(&progress, "reading", k->scanned, "samples");
    for (uint64_t i = 0; i < k->scanned && !cli_interrupted(); i++) {
        bool good = inspect_read_good(k, i);
        for (int f = 0; good && f < k->n_fields; f++) {
            count_field(&k->field[f], k->dim[f]);
            inspect_count_size(&k->field[f].sizes, k->field[f].spec, k->dim[f]);
        }
        cli_progress_update(&progress, i + 1);
    }
    cli_progress_end(&progress);
}

static int look(const struct options *o, const char *uri)
{
    struct inspect k = {.uri = uri, .n_shown = o->n, .index = o->index};
    int rc = mr_dataset_open(uri, &k.ds);
    if (rc == 0)
        rc = cli_need_length(&k.ds);
    if (rc)
        return cli_error(rc);
    int code = o->n > 0 && o->index >= mr_dataset_length(k.ds)
                   ? cli_misuse("--index %llu: %s has %llu sample%s", (unsigned long long)o->index,
                                uri, (unsigned long long)mr_dataset_length(k.ds),
                                cli_s(mr_dataset_length(k.ds)))
                   : prepare(&k, o->scan);
    if (code == CLI_OK)
        scan(&k);
    if (code == CLI_OK && !cli_interrupted())
        code = o->common.json ? inspect_print_json(&k) : inspect_print_text(&k);
    if (code == CLI_OK && cli_interrupted())
        code = cli_fail("interrupted");
    for (int f = 0; f < k.n_fields; f++)
        free(k.row[f]);
    free(k.field);
    mr_dataset_close(k.ds);
    return code;
}

static int sheet_json(const struct options *o, const char *uri)
{
    struct mr_json *json = cli_json_begin("inspect");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "dataset", uri);
    mr_json_string(json, "sheet", o->sheet);
    return cli_json_end(json);
}

static int write_sheet(const struct options *o, const char *uri)
{
    struct mr_dataset *ds;
    int code = cli_output_claim(o->sheet, CLI_DATA, o->force);
    if (code != CLI_OK)
        return code;
    int rc = mr_dataset_open(uri, &ds);
    if (rc == 0)
        rc = cli_need_length(&ds);
    if (rc)
        return cli_error(rc);
    struct inspect_sheet sheet = {.path = o->sheet,
                                  .transform = o->transform,
                                  .rows = (uint32_t)o->rows,
                                  .columns = (uint32_t)o->columns,
                                  .tile = (uint32_t)o->tile,
                                  .index = o->index,
                                  .loader = &o->loader,
                                  .vary = o->vary,
                                  .force = o->force};
    code = cli_input_dataset(uri, ds);
    if (code == CLI_OK)
        code = inspect_draw_sheet(ds, &sheet);
    mr_dataset_close(ds);
    return code == CLI_OK && o->common.json ? sheet_json(o, uri) : code;
}

/* "tar:" may stand before the names, as in a data set's URI. */
static int fill_table(struct mr_shard_table *shards, const struct options *o, const char *uri)
{
    struct mr_tar_opts opts;
    mr_tar_opts_init(&opts);
    opts.path = strncmp(uri, "tar:", 4) == 0 ? uri + 4 : uri;
    opts.base = o->base;
    int rc = mr_shard_table_add_tar(shards, &opts);
    if (rc < 0)
        return cli_error(rc);
    rc = mr_shard_table_commit(shards, o->force);
    return rc < 0 ? cli_error(rc) : CLI_OK;
}

static int write_table(const struct options *o, const char *uri)
{
    struct mr_shard_table *shards;
    uint64_t n, samples;
    int code = cli_output_claim(o->table, CLI_DATA, o->force);
    if (code != CLI_OK)
        return code;
    int rc = mr_shard_table_open(o->table, &shards);
    if (rc < 0)
        return cli_error(rc);
    code = fill_table(shards, o, uri);
    mr_shard_table_count(shards, &n, &samples);
    mr_shard_table_close(shards);
    if (code != CLI_OK)
        return code;
    if (!o->common.json) {
        printf("%s: %llu shards, %llu samples\n", o->table, (unsigned long long)n,
               (unsigned long long)samples);
        return CLI_OK;
    }
    struct mr_json *json = cli_json_begin("inspect");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "dataset", uri);
    mr_json_string(json, "shard_table", o->table);
    mr_json_uint(json, "shards", n);
    mr_json_uint(json, "samples", samples);
    return cli_json_end(json);
}

/* Started by a launcher, one process prints for all. [out] out: does this one? */
static int speaks(bool *out)
{
    struct mr_place place = {.size = sizeof place};
    int rc = mr_place_query(&place);
    if (rc < 0)
        return cli_error(rc);
    *out = place.rank == 0;
    if (!*out)
        cli_say("rank %u of %u, from %s: only rank 0 reads and prints", place.rank, place.world,
                place.launcher);
    else if (place.world > 1)
        cli_say("rank 0 of %u, from %s; the others print nothing", place.world, place.launcher);
    return CLI_OK;
}

static int run(void *options, int n_args, char **args)
{
    const struct options *o = options;
    if (o->formats || o->transforms)
        return n_args ? cli_misuse("%s: --formats and --transforms take no DATASET", args[0])
                      : inspect_list(o->formats, o->transforms);
    if (n_args == 0)
        return cli_misuse("an argument is missing: millrace inspect DATASET [options]");
    if (!o->sheet && (o->transform || o->vary))
        return cli_misuse("%s is for contact sheets: give --sheet FILE, too",
                          o->vary ? "--vary" : "--transform");
    if (o->base && !o->table)
        return cli_misuse("--base is for tables of shards: give --shard-table FILE, too");
    if (o->table && o->sheet)
        return cli_misuse("--shard-table and --sheet: give one of them");
    size_t n = o->sheet ? strlen(o->sheet) : 0;
    if (o->sheet && (n < 4 || strcasecmp(o->sheet + n - 4, ".png")))
        return cli_misuse("--sheet %s: expected a name that ends in .png: that is what is written",
                          o->sheet);
    bool mine = false;
    int code = speaks(&mine);
    if (code != CLI_OK || !mine)
        return code;
    if (o->table)
        return write_table(o, args[0]);
    return o->sheet ? write_sheet(o, args[0]) : look(o, args[0]);
}

static const struct cli_note json[] = {
    {"dataset", "The argument"},
    {"text", "One line that says what was opened"},
    {"format", "The format's name"},
    {"samples", "How many samples there are"},
    {"fingerprint", "16 hexadecimal digits that a saved state is checked against"},
    {"scanned", "How many samples, from the first, the statistics are made from"},
    {"fields", "For each field name, dtype, shape, variable_dims (bit d: dimension d varies up to "
               "what shape says), bytes, "
               "min, max, mean, and for whole-number scalars a histogram of value and samples"},
    {"classes", "For each class that has a name, in the order of labels: name, samples"},
    {"bad_samples", "How many of the samples that were read could not be"},
    {"shown", "For each sample shown its index, and each field's first 4,096 values in C order"},
    {"sheet", "With --sheet, after dataset and instead of what follows it: the file written"},
    {"shard_table", "With --shard-table, after dataset: the file written, then shards and samples"},
    {"formats", "With --formats: name, summary and options (name, default, help) of each"},
    {"transforms", "With --transforms: name, arguments and summary of each"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace inspect mnist/", "The training part of a folder with MNIST's files"},
    {"millrace inspect idx:mnist/,split=test --index 100 -n 1", "One sample of the test part"},
    {"millrace inspect photos/ --sheet photos.png", "The first 32 pictures of a folder"},
    {"millrace inspect csv:faces.csv --sheet s.png --vary -t 'random_resized_crop(224),hflip(0.5)'",
     "What transforms do to pictures and the points in them"},
    {"millrace inspect video:clips/,frames=8 --sheet strips.png",
     "A row of frames for each of the first four clips"},
    {"millrace inspect 'shards/*.tar' --shard-table shards/all.shards",
     "A table of archives; then: millrace feed shards/all.shards"},
    {"millrace inspect --formats", "What can be opened, and how"},
    {NULL},
};

const struct cli_command cli_inspect = {
    .name = "inspect",
    .summary = "Show what is in a data set",
    .synopsis = "DATASET [options]",
    .text =
        "Opens a data set and shows its fields with their shapes and element types, their range "
        "and mean, how often each label occurs, and some samples; small grey pictures as "
        "characters.\n\n"
        "Every sample that is inspected is read and decoded, so this is also a quick check of a "
        "data set: bad samples are reported, and the exit status is then 1.",
    .options = table,
    .options_bytes = sizeof(struct options),
    .min_args = 0,
    .max_args = 1,
    .json = json,
    .examples = examples,
    .run = run,
};
