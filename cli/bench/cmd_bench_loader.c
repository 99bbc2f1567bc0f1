/* millrace bench loader: the loader's rate beside the limit that memcpy sets, on the same cores in
 * the same run. */
#include "bench/frame.h"
#include "bench/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPT(...)            BENCH_OPTION(struct bench_opts, __VA_ARGS__)

#define LOADER(option, ...) CLI_LOADER_OPTION(struct bench_opts, loader, option, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("cases", MR_OPT_STRING, cases, .meta = "LIST",
        .help = "Cases to run, separated by commas: memory_f32, mnist, delay_2ms, first_batch, "
                "first_large, billion, dataset; default all"),
    OPT("mnist", MR_OPT_STRING, mnist, .meta = "DIR",
        .help = "Folder with MNIST's four files (millrace synth digits makes one); without it "
                "their cases are skipped"),
    OPT("dataset", MR_OPT_STRING, dataset, .meta = "DATASET",
        .help = "Data set for the case `dataset`, whose samples have one shape; delivered "
                "unchanged, in batches of 64"),
    LOADER("workers", .group = "Options",
           .help = "Worker threads, and threads of memcpy; 0: one per processor that this process "
                   "may use"),
    LOADER("prefetch", .group = "Options"),
    LOADER("cache", .group = "Options"),
    OPT("rounds", MR_OPT_UINT, rounds, .initial = "5", .min = 1, .max = 1000, .unit = "rounds",
        .help = "Measurements of each case, in turn; medians are printed"),
    OPT("samples", MR_OPT_UINT, samples, .initial = "65536", .min = 256, .max = 1e9,
        .unit = "samples", .help = "Samples of the set in memory, 4 KiB each"),
    BENCH_TIME_OPTION(struct bench_opts, "1s"),
    BENCH_PLOT_OPTION(struct bench_opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static bool wanted(const struct bench_opts *o, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = o->cases; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == 0))
            return true;
    return o->cases == NULL;
}

static uint64_t row_bytes(const struct bench_set *set)
{
    uint64_t bytes = 0;
    for (int f = 0; f < mr_dataset_fields(set->ds); f++) {
        const struct mr_spec *spec = mr_dataset_field(set->ds, f);
        uint64_t n = 0;
        mr_spec_bytes(spec, &n);
        bytes += f == 0 && set->chain ? n / mr_dtype_size(spec->dtype) * sizeof(float) : n;
    }
    return bytes;
}

/* How many bytes the copy's source has: an epoch's, where two such buffers leave half of the memory
 * that is free; 0: too little is. */
static uint64_t copied_bytes(const struct bench_set *set, uint64_t workers, const char *name)
{
    struct mr_host_memory_info memory = {.size = sizeof memory};
    char all[CLI_HUMAN], some[CLI_HUMAN];
    double epoch = (double)row_bytes(set) * (double)mr_dataset_length(set->ds);
    mr_host_memory_query(&memory);
    uint64_t threads = workers ? workers : (uint64_t)mr_cpu_count();
    double rounding = (double)threads * (double)row_bytes(set) *
                      (double)set->batch_size; /* each thread's share, up to a batch */
    double most = (double)memory.available_bytes / 4 - rounding;
    if (epoch <= most)
        return (uint64_t)epoch;
    if (most < rounding) {
        cli_warn("%s: no memcpy beside it: a quarter of the memory that is free does not hold two "
                 "batches a thread",
                 name);
        return 0;
    }
    cli_warn("%s: memcpy moves %s, a quarter of the memory that is free; an epoch has %s", name,
             cli_bytes((uint64_t)most, some),
             cli_bytes(epoch < 0x1p63 ? (uint64_t)epoch : UINT64_MAX, all));
    return (uint64_t)most;
}

/* Of the loops that gather rows, the one with the highest rate. */
static int best_gather(const struct bench_set *set, uint64_t bytes, uint32_t threads,
                       double seconds, double *rate, double *cpu_ns)
{
    struct bench_gathered loops[BENCH_GATHERS];
    int rc = bench_gather(bytes / row_bytes(set), row_bytes(set), threads, seconds, loops);
    *rate = 0;
    for (int k = 0; k < BENCH_GATHERS && rc == 0; k++)
        if (loops[k].bytes_per_s > *rate) {
            *rate = loops[k].bytes_per_s;
            *cpu_ns = loops[k].cpu_ns_per_row;
        }
    return rc;
}

/* Ours and memcpy in turn. The copy's source is as large as an epoch delivered, its pieces a batch;
 * its destination is once as small as the loader's ring (the stricter limit), once as large as the
 * source. */
/* name: the case's, where memcpy goes beside it; else NULL. */
static int measure(const struct bench_set *set, const struct bench_opts *o, const char *name,
                   double *out)
{
    double v[7][BENCH_MAX_ROUNDS], seconds = (double)o->time_ns * 1e-9;
    uint64_t epoch = name ? copied_bytes(set, o->loader.workers, name) : 0,
             piece = row_bytes(set) * set->batch_size;
    /* A chain computes: what it makes is not a gathered row. */
    bool gathers = epoch && !set->chain;
    int rc = 0;
    for (uint64_t r = 0; r < o->rounds && rc == 0; r++) {
        struct bench_ours ours;
        if (cli_interrupted())
            return mr_error_set(MR_ECANCELLED, "interrupted");
        rc = bench_ours(set, o, seconds, &ours);
        if (rc < 0)
            break;
        out[LOADER_WORKERS] = ours.workers;
        out[LOADER_HEAP] = ours.heap_growth_per_sample;
        out[LOADER_FIRST_BATCH] = ours.first_batch_ms;
        v[0][r] = ours.samples_per_s;
        v[1][r] = ours.bytes_per_s;
        v[2][r] = ours.cpu_ns_per_sample;
        if (epoch)
            rc = bench_memcpy(epoch, 4u << 20, piece, ours.workers, seconds / 2, &v[3][r]);
        if (epoch && rc == 0)
            rc = bench_memcpy(epoch, epoch, piece, ours.workers, seconds / 2, &v[4][r]);
        if (gathers && rc == 0)
            rc = best_gather(set, epoch, ours.workers, seconds, &v[5][r], &v[6][r]);
    }
    if (rc < 0)
        return rc;
    if (o->rounds > 1) /* one alone has no spread */
        out[LOADER_VARIATION] = stats_variation(v[0], (int)o->rounds);
    out[LOADER_RATE] = bench_median(v[0], o->rounds);
    out[LOADER_OURS] = bench_median(v[1], o->rounds);
    out[LOADER_CPU] = bench_median(v[2], o->rounds);
    if (epoch) {
        out[LOADER_MEMCPY] = bench_median(v[3], o->rounds);
        out[LOADER_TO_MEMORY] = bench_median(v[4], o->rounds);
        out[LOADER_OF_MEMCPY] = out[LOADER_OURS] / out[LOADER_MEMCPY];
    }
    if (gathers) {
        out[LOADER_GATHER] = bench_median(v[5], o->rounds);
        out[LOADER_OF_GATHER] = out[LOADER_OURS] / out[LOADER_GATHER];
        out[LOADER_GATHER_CPU] = bench_median(v[6], o->rounds);
    }
    return 0;
}

static int case_memory(const struct bench_opts *o, double *out)
{
    struct mr_array_opts a;
    mr_array_opts_init(&a);
    a.n = o->samples;
    a.n_fields = 2;
    a.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {1024}};
    a.field[1] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    float *x = malloc(a.n * 4096);
    int64_t *labels = malloc(a.n * 8);
    struct bench_set set = {.batch_size = 256};
    int rc = 0;
    if (!x || !labels) {
        rc = mr_error_set(-ENOMEM, "memory_f32: no memory for %" PRIu64 " bytes", a.n * 4104);
        goto out;
    }
    for (uint64_t i = 0; i < a.n * 1024; i++)
        x[i] = (float)(i % 1000003);
    for (uint64_t i = 0; i < a.n; i++)
        labels[i] = (int64_t)(i % 10);
    a.data[0] = x;
    a.data[1] = labels;
    rc = mr_dataset_open_array(&a, &set.ds);
    if (rc < 0)
        goto out;
    rc = measure(&set, o, "memory_f32", out);
    mr_dataset_close(set.ds);
out:
    free(x);
    free(labels);
    return rc;
}

static int measure_uri(const char *uri, struct bench_set *set, const struct bench_opts *o,
                       const char *name, double *out)
{
    int rc = mr_dataset_open(uri, &set->ds);
    if (rc < 0)
        return rc;
    rc = measure(set, o, name, out);
    mr_dataset_close(set->ds);
    return rc;
}

static int case_mnist(const struct bench_opts *o, double *out)
{
    struct bench_set set = {.batch_size = 64,
                            .chain = "cast(f32),scale(1/255),normalize(0.1307,0.3081)"};
    return measure_uri(o->mnist, &set, o, "mnist", out);
}

static int case_dataset(const struct bench_opts *o, double *out)
{
    struct bench_set set = {.batch_size = 64};
    return measure_uri(o->dataset, &set, o, "dataset", out);
}

static int case_delay(const struct bench_opts *o, double *out)
{
    struct bench_set set = {.batch_size = 64};
    struct bench_opts two = *o;
    if (two.loader.workers == 0)
        two.loader.workers = 2;
    return measure_uri("synthetic:n=1e6,shape=1024,delay=2ms", &set, &two, NULL, out);
}

static const struct {
    const char *name;
    int (*run)(const struct bench_opts *o, double *out);
    bool needs_mnist;
} cases[] = {
    {"memory_f32", case_memory, false},        {"mnist", case_mnist, true},
    {"delay_2ms", case_delay, false},          {"first_batch", bench_first_batch, true},
    {"first_large", bench_first_large, false}, {"billion", bench_billion, false},
    {"dataset", case_dataset, false},
};

enum { RATES, STARTS }; /* parts: the table, and sentences */

static const char *const parts[] = {"The loader, and plain loops that move as many bytes", NULL};

static struct bench_panel panel = {
    .title = "Bytes a second",
    .x_label = "",
    .y_label = "GB/s",
    .x = -1,
    .y = {LOADER_OURS, LOADER_GATHER, LOADER_MEMCPY, LOADER_TO_MEMORY},
    .n = 4,
    .unit = 1e9};

struct loader_bench {
    int of_row[CLI_COUNT(cases)]; /* which case */
    char finding[CLI_COUNT(cases)][320];
};

static const struct bench_column columns[LOADER_N_COLUMNS] = {
    [LOADER_CASE] = {"case", "case", BENCH_TEXT},
    [LOADER_WORKERS] = {">workers", "workers", BENCH_COUNT},
    [LOADER_RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [LOADER_VARIATION] = {">variation", "variation", BENCH_SHARE},
    [LOADER_OURS] = {">ours", "bytes_per_s", BENCH_RATE},
    [LOADER_MEMCPY] = {">memcpy", "memcpy_bytes_per_s", BENCH_RATE},
    [LOADER_OF_MEMCPY] = {">of memcpy", .format = BENCH_SHARE},
    [LOADER_TO_MEMORY] = {">memcpy to memory", "memcpy_to_memory_bytes_per_s", BENCH_RATE},
    [LOADER_GATHER] = {">best gather", "gather_bytes_per_s", BENCH_RATE},
    [LOADER_OF_GATHER] = {">of it", .format = BENCH_SHARE},
    [LOADER_GATHER_CPU] = {">gather's CPU ns/row", "gather_cpu_ns_per_row"},
    [LOADER_CPU] = {">CPU ns/sample", "cpu_ns_per_sample"},
    [LOADER_HEAP] = {">heap growth B/sample", "heap_growth_bytes_per_sample", .digits = 3},
    [LOADER_FIRST_BATCH] = {.key = "first_batch_ms"},
    [LOADER_FIRST_CPU] = {.key = "first_batch_cpu_ms"},
    [LOADER_FIRST_FAULTS] = {.key = "first_batch_page_faults"},
    [LOADER_FIRST_RESIDENT] = {.key = "first_batch_resident_bytes"},
    [LOADER_GZ_FIRST_BATCH] = {.key = "gz_first_batch_ms"},
    [LOADER_INFLATE] = {.key = "inflate_ms"},
    [LOADER_SAVE] = {.key = "state_save_ms"},
    [LOADER_LOAD] = {.key = "state_load_ms"},
    [LOADER_GROWTH] = {.key = "resident_growth_bytes"},
};

static bool is_case(const char *name, size_t n)
{
    for (int i = 0; i < (int)CLI_COUNT(cases); i++)
        if (strlen(cases[i].name) == n && strncmp(cases[i].name, name, n) == 0)
            return true;
    return false;
}

/* Each name of --cases is one, and `dataset` has its --dataset. */
static int check_cases(const struct bench_opts *o)
{
    char all[160] = "";
    for (int i = 0; i < (int)CLI_COUNT(cases); i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", cases[i].name);
    for (const char *at = o->cases; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t n = strcspn(at, ",");
        if (!is_case(at, n))
            return mr_error_set(MR_EOPTION, "--cases: \"%.*s\" is no case; expected %s", (int)n, at,
                                all);
    }
    if (o->cases && wanted(o, "dataset") && !o->dataset)
        return mr_error_set(MR_EOPTION, "--cases: dataset needs --dataset");
    return 0;
}

/* Left out before the run: what was not asked for, and what lacks its files. */
static int open_all(struct bench *b)
{
    const struct bench_opts *o = b->values;
    struct loader_bench *l = b->user;
    int n = 0, rc = check_cases(o);
    if (rc < 0)
        return rc;
    for (int i = 0; i < (int)CLI_COUNT(cases); i++) {
        if (!wanted(o, cases[i].name) || (cases[i].run == case_dataset && !o->dataset))
            continue;
        if (cases[i].needs_mnist && !o->mnist)
            cli_warn("%s: left out: --mnist DIR is not given", cases[i].name);
        else
            l->of_row[n++] = i;
    }
    if (n == 0)
        return mr_error_set(MR_EOPTION, "--cases %s: needs --mnist DIR", o->cases);
    rc = bench_rows(b, n);
    for (int i = 0; i < b->n_rows; i++) {
        const char *name = cases[l->of_row[i]].name;
        b->rows[i].name = b->rows[i].text[LOADER_CASE] = name;
        b->rows[i].part =
            strncmp(name, "first_", 6) == 0 || strcmp(name, "billion") == 0 ? STARTS : RATES;
    }
    return rc;
}

static int measure_case(struct bench *b, struct bench_row *row, double *v)
{
    const struct loader_bench *l = b->user;
    return cases[l->of_row[row - b->rows]].run(b->values, v);
}

static void above(const struct bench *b)
{
    const struct bench_opts *o = b->values;
    printf(
        "medians of %" PRIu64
        " round%s; memcpy in as many threads, of an epoch's bytes into a ring like the "
        "loader's, or to memory as large; gather: the best plain loop over rows in random order\n",
        o->rounds, cli_s(o->rounds));
}

/* What a start took. text: "": it was none. */
static void say_start(const double *v, char *text, size_t room)
{
    char bytes[CLI_HUMAN];
    text[0] = 0;
    if (!isnan(v[LOADER_FIRST_CPU]))
        snprintf(text, room,
                 "First batch of 256 samples of 600 KB, simulated device, from opening the "
                 "loader: %.1f ms, CPU %.1f ms, %.0f page faults, memory grew by %s",
                 v[LOADER_FIRST_BATCH], v[LOADER_FIRST_CPU], v[LOADER_FIRST_FAULTS],
                 cli_bytes((uint64_t)fmax(v[LOADER_FIRST_RESIDENT], 0), bytes));
    else if (!isnan(v[LOADER_SAVE]))
        snprintf(text, room,
                 "10^9 samples, shuffled: state saved in %.4f ms, loaded (a loader opened) in "
                 "%.2f ms, memory grew by %s",
                 v[LOADER_SAVE], v[LOADER_LOAD],
                 cli_bytes((uint64_t)fmax(v[LOADER_GROWTH], 0), bytes));
    else if (!isnan(v[LOADER_INFLATE]))
        snprintf(text, room,
                 "First batch of MNIST, from opening the files: plain %.1f ms; .gz %.1f ms, of "
                 "which inflating alone %.1f ms",
                 v[LOADER_FIRST_BATCH], v[LOADER_GZ_FIRST_BATCH], v[LOADER_INFLATE]);
    else if (isnan(v[LOADER_RATE]) && !isnan(v[LOADER_FIRST_BATCH]))
        snprintf(text, room, "First batch of MNIST, from opening the files: %.1f ms",
                 v[LOADER_FIRST_BATCH]);
}

/* The stricter limit, where there is one: rows in random order cost more than a copy in order. */
static void say_limit(struct bench *b, const struct bench_row *row)
{
    size_t used = strlen(b->verdict), room = sizeof b->verdict - used;
    bool gathers = !isnan(row->v[LOADER_OF_GATHER]);
    double share = row->v[gathers ? LOADER_OF_GATHER : LOADER_OF_MEMCPY];
    if (!isnan(share))
        snprintf(b->verdict + used, room, "%s%.0f%% of %s for %s",
                 used ? ", " : "The loader reaches ", 100 * share,
                 gathers ? "the best gather" : "memcpy", row->name);
}

/* Other programs lower the rates, not the CPU time. */
static void say_variation(struct bench *b)
{
    size_t used = strlen(b->verdict);
    double most = 0;
    for (int i = 0; i < b->n_rows; i++)
        most = fmax(most, b->rows[i].v[LOADER_VARIATION]); /* of NaN: the other */
    if (used > 0 && most > 0.25)
        snprintf(b->verdict + used, sizeof b->verdict - used,
                 ". The rounds vary by %.0f%%, as on a busy machine: compare the CPU time",
                 100 * most);
}

static void conclude(struct bench *b)
{
    struct loader_bench *l = b->user;
    b->n_panels = 0;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        char *text = l->finding[b->n_findings];
        say_start(row->v, text, sizeof l->finding[0]);
        if (text[0])
            b->finding[b->n_findings++] = text;
        if (row->part != RATES || row->left_out[0])
            continue;
        b->n_panels = 1;
        say_limit(b, row);
    }
    say_variation(b);
}

static void below(const struct bench *b)
{
    for (int i = 0; i < b->n_findings; i++)
        printf("%s\n", b->finding[i]);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    const struct bench_opts *o = values;
    struct loader_bench l = {0};
    return bench_run(
        &(struct bench){.command = &cli_bench_loader,
                        .values = values,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = LOADER_N_COLUMNS,
                        .rows_key = "cases",
                        .parts = parts,
                        .explain = "A loader of samples in memory copies rows in random order. "
                                   "Two limits are measured beside it, in as many threads: a plain "
                                   "loop that does nothing else (best gather), and memcpy of as "
                                   "many bytes in order, into a ring as small as the loader's, or "
                                   "to memory as large as the data. mnist is computed, too, and "
                                   "delay_2ms waits 2 ms for each sample: for them memory is not "
                                   "what limits.",
                        .chart = "The loader and its limits",
                        .subtitle = "samples that nothing uses, in host memory",
                        .panels = &panel,
                        .n_panels = 1,
                        .user = &l,
                        .open = open_all,
                        .measure = measure_case,
                        .conclude = conclude,
                        .above = above,
                        .below = below,
                        .learn = "loader"});
}

static const struct cli_note json_notes[] = {
    {"cases", "for each: case, and what it measured, medians over the rounds"},
    {"samples_per_s, variation, bytes_per_s",
     "delivered by the loader, shuffled, after warming up; variation: standard deviation over mean "
     "of the rounds"},
    {"workers", "worker threads, and threads of memcpy"},
    {"memcpy_bytes_per_s", "plain memcpy in as many threads, of as many bytes as an epoch delivers "
                           "(at most a quarter of the memory that is "
                           "free), into a ring of 4 MiB"},
    {"memcpy_to_memory_bytes_per_s", "the same into memory as large as the source"},
    {"gather_bytes_per_s, gather_cpu_ns_per_row",
     "the best of four plain loops that copy rows in random order into such a ring: as they are, "
     "with rows prefetched two ahead, in huge pages, both; of sets without a chain"},
    {"first_batch_ms, gz_first_batch_ms, inflate_ms",
     "from opening; inflating the .gz files alone"},
    {"first_batch_cpu_ms, first_batch_page_faults, first_batch_resident_bytes",
     "CPU time, page faults and growth of the process until the first batch of 256 samples of "
     "600 KB, on a simulated device"},
    {"cpu_ns_per_sample, heap_growth_bytes_per_sample",
     "processor time; growth of the heap in steady state"},
    {"state_save_ms, state_load_ms, resident_growth_bytes",
     "of 10^9 shuffled samples; loading opens a whole loader"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench loader --mnist mnist/ --plot loader.html", "all cases, and a page"},
    {"millrace bench loader --cases delay_2ms --workers 2 --json", "one case, for a script"},
    {NULL, NULL},
};

const struct cli_command cli_bench_loader = {
    .name = "bench loader",
    .summary = "Measure the loader beside the limit that memcpy sets",
    .synopsis = "[options]",
    .text =
        "Measures how fast the loader delivers samples when nothing uses them: from sets in "
        "memory, from MNIST's files, and from a set with 2 ms of latency per sample. A plain "
        "memcpy of as many bytes, by as many threads, alternates with it in the same run and "
        "is the limit, and for rows that are delivered unchanged the best loop that gathers them "
        "in random order. Also measures the time to the first batch, and what a set of 10^9 "
        "samples costs.",
    .options = options,
    .options_bytes = sizeof(struct bench_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
