/* millrace bench disk: how fast a disk can be read, by the size of a read, how many are in flight,
 * in or out of order, by io_uring and by pread, from a cold page cache and past it. */
#include "bench/disk.h"
#include "bench/frame.h"

#include <stdlib.h>
#include <string.h>

#define OPT(...) BENCH_OPTION(struct disk_opts, __VA_ARGS__)

static const char *const orders[] = {"both", "random", "sequential", NULL};
static const char *const modes[] = {"both", "direct", "cold", NULL};
static const char *const storages[] = {"both", "uring", "pread", NULL};

static const struct mr_option options[] = {
    OPT("path", MR_OPT_STRING, path, .meta = "PATH",
        .help = "A file to read, or the folder in which a temporary one is made; default: the "
                "DATASET's folder, else the current one"),
    OPT("bytes", MR_OPT_BYTES, bytes, .initial = "1GiB", .min = 1 << 20, .max = 0x1p42,
        .unit = "bytes", .help = "Size of the temporary file, rounded up to a multiple of 8 MiB"),
    OPT("min", MR_OPT_BYTES, min, .initial = "4KiB", .min = 512, .max = DISK_MAX_READ,
        .unit = "bytes", .help = "Smallest read; the others are 8 times as large, up to --max"),
    OPT("max", MR_OPT_BYTES, max, .initial = "8MiB", .min = 512, .max = DISK_MAX_READ,
        .unit = "bytes", .help = "Largest read"),
    OPT("max-depth", MR_OPT_UINT, max_depth, .initial = "256", .min = 1, .max = 1024,
        .unit = "reads",
        .help = "Most reads in flight; the others are 1, 4, 16, ...; at most 512 MiB in all"),
    OPT("order", MR_OPT_ENUM, order, .initial = "both", .choices = orders,
        .help = "Order of the reads"),
    OPT("mode", MR_OPT_ENUM, mode, .initial = "both", .choices = modes,
        .help = "direct: O_DIRECT, past the page cache; cold: through it, emptied of the file"),
    OPT("storage", MR_OPT_ENUM, storage, .initial = "both", .choices = storages,
        .help = "How they are read"),
    BENCH_REPEATS_OPTION(struct disk_opts, "3", 100),
    BENCH_TIME_OPTION(struct disk_opts, "0.25s"),
    BENCH_PLOT_OPTION(struct disk_opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { MODE, ORDER, READ, READ_NAME, DEPTH, STORAGE, IOPS, VARIATION, BYTES, P50, P99, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [MODE] = {.key = "mode", .format = BENCH_TEXT},
    [ORDER] = {.key = "order", .format = BENCH_TEXT},
    [READ] = {.key = "read_bytes", .format = BENCH_COUNT},
    [READ_NAME] = {">read", .format = BENCH_TEXT},
    [DEPTH] = {">in flight", "depth", BENCH_COUNT},
    [STORAGE] = {"by", "storage", BENCH_TEXT},
    [IOPS] = {">reads/s", "reads_per_s", BENCH_COUNT},
    [VARIATION] = {">variation", "variation", BENCH_SHARE},
    [BYTES] = {">rate", "bytes_per_s", BENCH_RATE},
    [P50] = {">p50 ms", "p50_ms", .digits = 3},
    [P99] = {">p99 ms", "p99_ms", .digits = 3},
};

static const char *const titles[] = {
    "Random reads, O_DIRECT",
    "Sequential reads, O_DIRECT",
    "Random reads, cold page cache",
    "Sequential reads, cold page cache",
};
static const char *const mode_keys[] = {"direct", "cold"};
static const char *const order_keys[] = {"random", "sequential"};
static const char *const storage_keys[] = {"uring", "pread"};
static const char *const storage_names[] = {"io_uring", "pread"};

struct disk {
    struct disk_file file;
    uint64_t read[DISK_SIZES + 1]; /* sizes; the last may be the data set's */
    int n_reads;
    uint64_t set_bytes; /* of a sample of the data set; 0: none was given */
    char read_name[DISK_SIZES + 1][48];
    int kind[2], n_kinds; /* of storages: 0: io_uring, 1: pread */
    int part[5], n_parts; /* 2 * mode + order of each table */
    const char *title[5];
    char series_name[2 * (DISK_SIZES + 1)][64];
    const char *series[2 * (DISK_SIZES + 1) + 1];
    char note[300]; /* what could not be measured */
    struct bench_panel panel[4];
};

/* ---- the grid ---- */

static void choose_reads(struct disk *d, const struct disk_opts *o)
{
    char buf[CLI_HUMAN];
    for (uint64_t at = o->min; at < o->max && d->n_reads < DISK_SIZES - 1; at *= 8)
        d->read[d->n_reads++] = at;
    d->read[d->n_reads++] = o->max;
    for (int i = 0; i < d->n_reads; i++)
        snprintf(d->read_name[i], sizeof d->read_name[i], "%s", cli_bytes(d->read[i], buf));
    if (d->set_bytes) {
        d->read[d->n_reads] = d->set_bytes;
        snprintf(d->read_name[d->n_reads++], sizeof d->read_name[0], "your set, %s",
                 cli_bytes(d->set_bytes, buf));
    }
}

/* What this machine has no means for is left out as a whole, with the reason. */
static void choose_ways(struct disk *d, const struct disk_opts *o)
{
    const char *no_uring = mr_uring_why_not();
    bool direct = disk_can_read_directly(&d->file);
    for (int kind = 0; kind < 2; kind++)
        if ((o->storage == 0 || o->storage == kind + 1) && (kind == 1 || !no_uring))
            d->kind[d->n_kinds++] = kind;
    for (int part = 0; part < 4; part++)
        if ((o->mode == 0 || o->mode == part / 2 + 1) &&
            (o->order == 0 || o->order == part % 2 + 1) && (part / 2 == 1 || direct)) {
            d->title[d->n_parts] = titles[part];
            d->part[d->n_parts++] = part;
        }
    if (no_uring && o->storage != 2)
        snprintf(d->note, sizeof d->note, "io_uring left out: %s", no_uring);
    if (!direct && o->mode != 2)
        snprintf(d->note + strlen(d->note), sizeof d->note - strlen(d->note),
                 "%sO_DIRECT left out: %.120s cannot be read by it", d->note[0] ? "; " : "",
                 d->file.shown);
}

static void name_series(struct disk *d)
{
    int n = 0;
    for (int i = 0; i < d->n_reads; i++)
        for (int k = 0; k < d->n_kinds; k++, n++) {
            snprintf(d->series_name[n], sizeof d->series_name[n], "%s, %s", d->read_name[i],
                     storage_names[d->kind[k]]);
            d->series[n] = d->series_name[n];
        }
}

/* part, size and kind: indices of the disk's lists. Returns how many rows were added. */
static int add_row(struct bench *b, int at, int part, int size, int kind, uint64_t depth)
{
    struct disk *d = b->user;
    struct bench_row *row = &b->rows[at];
    if (depth * d->read[size] > DISK_MAX_IN_FLIGHT)
        return 0;
    row->part = part;
    row->series = size * d->n_kinds + kind;
    row->name = d->series[row->series];
    row->text[MODE] = mode_keys[d->part[part] / 2];
    row->text[ORDER] = order_keys[d->part[part] % 2];
    row->text[READ_NAME] = d->read_name[size];
    row->text[STORAGE] = storage_keys[d->kind[kind]];
    row->v[READ] = (double)d->read[size];
    row->v[DEPTH] = (double)depth;
    return 1;
}

static int open_rows(struct bench *b)
{
    const struct disk_opts *o = b->values;
    struct disk *d = b->user;
    int n = 0, n_depths = 0;
    uint64_t depth[8];
    for (uint64_t at = 1; at < o->max_depth; at *= 4)
        depth[n_depths++] = at;
    depth[n_depths++] = o->max_depth;
    int rc = bench_rows(b, d->n_parts * d->n_reads * n_depths * d->n_kinds);
    if (rc < 0)
        return rc;
    for (int part = 0; part < d->n_parts; part++)
        for (int size = 0; size < d->n_reads; size++)
            for (int i = 0; i < n_depths * d->n_kinds; i++)
                n += add_row(b, n, part, size, i % d->n_kinds, depth[i / d->n_kinds]);
    b->n_rows = n;
    return 0;
}

static int open_all(struct bench *b)
{
    struct disk *d = b->user;
    name_series(d);
    for (int i = 0; i < d->n_parts; i++)
        d->panel[i] = (struct bench_panel){.title = d->title[i],
                                           .x_label = "reads in flight",
                                           .y_label = "GB/s",
                                           .x = DEPTH,
                                           .y = {BYTES},
                                           .n = d->n_reads * d->n_kinds,
                                           .unit = 1e9,
                                           .log_x = true,
                                           .log_y = true,
                                           .ticks = PLOT_BINARY};
    b->n_panels = d->n_parts;
    snprintf(b->subtitle, sizeof b->subtitle, "%.300s", d->file.shown);
    return open_rows(b);
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    const struct disk_opts *o = b->values;
    struct disk *d = b->user;
    struct mr_read_rate rate = {.size = sizeof rate};
    struct mr_read_rate_opts ro;
    mr_read_rate_opts_init(&ro);
    ro.path = d->file.path;
    ro.direct = row->text[MODE] == mode_keys[0];
    ro.random = row->text[ORDER] == order_keys[0];
    ro.storage = row->text[STORAGE] == storage_keys[0] ? MR_STORAGE_URING : MR_STORAGE_PREAD;
    ro.piece_bytes = (uint64_t)v[READ];
    ro.depth = (uint32_t)v[DEPTH];
    ro.time_ns = o->time_ns;
    int rc = mr_read_rate_measure(&ro, &rate);
    if (rc < 0)
        return rc;
    double s = (double)(rate.ns ? rate.ns : 1) * 1e-9;
    v[IOPS] = (double)rate.reads / s;
    v[BYTES] = (double)rate.bytes / s;
    v[P50] = (double)rate.p50_ns * 1e-6;
    v[P99] = (double)rate.p99_ns * 1e-6;
    return 0;
}

/* ---- what is shown ---- */

/* The best row of a column in a table. size: of the reads; 0: any. depth: 0: any. NULL: none. */
static const struct bench_row *best_of(const struct bench *b, int part, int column, uint64_t size,
                                       uint64_t depth)
{
    const struct bench_row *best = NULL;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->left_out[0] || row->part != part || (size && row->v[READ] != (double)size) ||
            (depth && row->v[DEPTH] != (double)depth))
            continue;
        if (!best || row->v[column] > best->v[column])
            best = row;
    }
    return best;
}

/* Of the first table, for reads of that size: the fewest in flight with the rate of the best, but
 * for what may be chance. */
static double enough_depth(const struct bench *b, const struct bench_row *best)
{
    double depth = best->v[DEPTH];
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->left_out[0] || row->part != best->part || row->v[READ] != best->v[READ] ||
            strcmp(row->text[STORAGE], best->text[STORAGE]) != 0)
            continue;
        if (row->v[DEPTH] < depth && best->v[IOPS] / row->v[IOPS] - 1 <= bench_chance(b, best, row))
            depth = row->v[DEPTH];
    }
    return depth;
}

/* The first table is that of random reads past the page cache, if it is there. */
static void conclude(struct bench *b)
{
    const struct disk *d = b->user;
    uint64_t size = d->set_bytes ? d->set_bytes : d->read[0];
    char one[CLI_HUMAN], n[CLI_HUMAN], bytes[CLI_HUMAN], rate[CLI_HUMAN], enough[80] = "";
    const struct bench_row *best = best_of(b, 0, IOPS, size, 0),
                           *alone = best_of(b, 0, IOPS, size, 1),
                           *most = best_of(b, 0, BYTES, 0, 0);
    if (!best || !alone || !most)
        return;
    for (int i = 0; i < b->n_panels; i++) {
        const struct bench_row *fastest = best_of(b, i, BYTES, 0, 0);
        if (fastest)
            b->panels[i].limit = (struct plot_limit){"fastest", fastest->v[BYTES] / 1e9};
    }
    cli_bytes(size, bytes);
    cli_count(alone->v[IOPS], one);
    cli_count(best->v[IOPS], n);
    if (enough_depth(b, best) < best->v[DEPTH])
        snprintf(enough, sizeof enough, " (%.0f would do: no difference beyond the spread)",
                 enough_depth(b, best));
    int used = snprintf(b->verdict, sizeof b->verdict, "%s: ", d->title[0]);
    if (d->set_bytes)
        snprintf(b->verdict + used, sizeof b->verdict - (size_t)used,
                 "your set has %s a sample: at most %s samples/s from this disk if each is a read "
                 "of its own, in random order, by %s with %.0f in flight%s; %s with one in flight",
                 bytes, n, best->text[STORAGE], best->v[DEPTH], enough, one);
    else
        snprintf(b->verdict + used, sizeof b->verdict - (size_t)used,
                 "%s a second of %s one at a time, %s with %.0f in flight%s; at most %s", one,
                 bytes, n, best->v[DEPTH], enough, cli_rate(most->v[BYTES], rate));
}

static void above(const struct bench *b)
{
    const struct disk_opts *o = b->values;
    const struct disk *d = b->user;
    char bytes[CLI_HUMAN], text[CLI_CLEAN];
    printf("%s of %s, read for %.3g s each; medians of %llu\n", cli_bytes(d->file.bytes, bytes),
           cli_clean(d->file.shown, text), (double)o->time_ns * 1e-9,
           (unsigned long long)o->repeats);
    if (d->note[0])
        printf("%s\n", d->note);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct disk *d = b->user;
    const struct bench_row *best = best_of(b, 0, IOPS, d->set_bytes ? d->set_bytes : d->read[0], 0);
    mr_json_string(json, "file", d->file.shown);
    mr_json_uint(json, "file_bytes", d->file.bytes);
    if (d->note[0])
        mr_json_string(json, "note", d->note);
    if (best && !b->interrupted)
        mr_json_uint(json, "enough_depth", (uint64_t)enough_depth(b, best));
    if (!d->set_bytes)
        return;
    mr_json_uint(json, "sample_bytes", d->set_bytes);
    if (best)
        mr_json_double(json, "most_samples_per_s", best->v[IOPS]);
}

/* ---- the command ---- */

static int check(const struct disk_opts *o, const struct disk *d)
{
    if (o->min > o->max)
        return cli_misuse("--min is above --max: expected at most as much");
    if (d->n_kinds == 0 || d->n_parts == 0)
        return cli_fail("nothing to measure: %s", d->note);
    for (int i = 0; i < d->n_reads; i++)
        if (d->read[i] > d->file.bytes)
            return cli_misuse("%s has %llu bytes, less than one read of %s: lower --max",
                              d->file.shown, (unsigned long long)d->file.bytes, d->read_name[i]);
    return CLI_OK;
}

static int run(void *values, int n_args, char **args)
{
    struct disk_opts *o = values;
    struct disk d = {.file = {.fd = -1}};
    int code = plot_check(o->plot);
    if (code == CLI_OK)
        code = disk_open(o, n_args ? args[0] : NULL, &d.file, &d.set_bytes);
    if (code != CLI_OK)
        return code;
    choose_reads(&d, o);
    choose_ways(&d, o);
    code = check(o, &d);
    if (code == CLI_OK)
        code = bench_run(&(struct bench){
            .command = &cli_bench_disk,
            .values = o,
            .plot = o->plot,
            .columns = columns,
            .n_columns = N_COLUMNS,
            .rows_key = "cells",
            .parts = d.title,
            .series = d.series,
            .repeats = o->repeats,
            .varies = IOPS,
            .variation = VARIATION,
            .explain = "A disk or a server can work on many reads at once. With one "
                       "in flight a program waits for each; with more the rate grows "
                       "until the disk is busy, and from there on reads only wait "
                       "longer (p99).",
            .chart = "How fast can this disk be read?",
            .panels = d.panel,
            .n_panels = d.n_parts,
            .user = &d,
            .open = open_all,
            .measure = measure,
            .conclude = conclude,
            .json = json,
            .above = above,
            .learn = "queue_depth"});
    disk_close(&d.file);
    return code;
}

static const struct cli_note json_notes[] = {
    {"cells",
     "for each: mode (direct, cold), order (random, sequential), read_bytes, depth (reads in "
     "flight), storage (uring, pread), reads_per_s, variation (standard deviation over mean), "
     "bytes_per_s, p50_ms, p99_ms (time of a read)"},
    {"file, file_bytes", "what was read"},
    {"note", "what could not be measured, and why; absent: nothing"},
    {"enough_depth",
     "in the first table, for the DATASET's reads or the smallest: the fewest in flight "
     "with the best rate, but for differences within the spread"},
    {"sample_bytes, most_samples_per_s",
     "with a DATASET: bytes of a sample on average, and the best rate of reads of that size in the "
     "first table"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench disk --path /data --plot disk.html", "the whole grid, in about three minutes"},
    {"millrace bench disk photos/ --order random --mode direct",
     "at most how many of these photos a second can this disk give?"},
    {"millrace bench disk --storage uring --max 4KiB --time 2s",
     "only small reads, longer measurements"},
    {NULL, NULL},
};

const struct cli_command cli_bench_disk = {
    .name = "bench disk",
    .summary = "Measure how fast a disk can be read, by size and number of reads in flight",
    .synopsis = "[DATASET] [options]",
    .text =
        "Reads a file in pieces of one size, random and sequential, with 1 to --max-depth reads "
        "in flight, by io_uring and by pread: with the loader's own read engine, on one "
        "thread. Reports reads per second, bytes per second, and how long a read took (p50: "
        "half of them at most; p99: 99 of 100): medians of --repeats measurements, which take "
        "turns. The variation is that of reads per second; a difference counts as a gain if it is "
        "larger than that, and than 5%.\n\n"
        "direct: past the page cache, as with feed --direct: what the disk itself gives. cold: "
        "through the page cache, as by default, which is emptied of the file first; no piece is "
        "read twice, but the kernel may read ahead.\n\n"
        "The file is temporary, of --bytes, in --path; or --path itself. Make it larger than a "
        "cache in the disk. With a DATASET in local files, reads of the size of its average "
        "sample are measured, too, and the last line is the number of samples per second that "
        "the disk allows.",
    .max_args = 1,
    .options = options,
    .options_bytes = sizeof(struct disk_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
