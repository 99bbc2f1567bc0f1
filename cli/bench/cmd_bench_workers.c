/* millrace bench workers: how many workers, page-locked or not, waiting for the device or not. */
#include "bench/frame.h"
#include "bench/workers.h"

#include <stdlib.h>

#define OPT(...) BENCH_OPTION(struct workers_opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim:h2d=55, cpu"),
    OPT("workers-list", MR_OPT_STRING, list, .key = 'w', .initial = "1,2,4,8", .meta = "LIST",
        .help = "Numbers of worker threads, separated by commas"),
    CLI_LOADER_OPTION(struct workers_opts, loader, "batch-size", .initial = "256", .max = 1 << 20,
                      .help = "Samples in a batch", .group = "Options"),
    OPT("transform", MR_OPT_STRING, transform, .key = 't', .meta = "CHAIN",
        .help = "With a DATASET: ops on each sample; millrace inspect --transforms lists them"),
    OPT("repeats", MR_OPT_UINT, repeats, .initial = "0", .max = 1000, .unit = "repeats",
        .help = "Measurements of each row, in turn; 0: 3 with a DATASET, else 1"),
    OPT("samples", MR_OPT_UINT, samples, .initial = "65536", .min = 1, .max = 1e9,
        .unit = "samples", .help = "Without a DATASET: samples of the set in memory, 4 KiB each"),
    OPT("step", MR_OPT_DURATION, step_ns, .initial = "100us", .min = 0, .max = 3600e9, .unit = "us",
        .help = "Time that the device works on each batch; 0: none"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "1s", .min = 1e6, .max = 3600e9, .unit = "s",
        .help = "Duration of each measurement, after a quarter of it to warm up"),
    OPT("plot", MR_OPT_STRING, plot, .meta = "FILE", .help = "Draw a chart: FILE.svg or FILE.html"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const char *const titles[] = {"1024 floats a sample, in memory", "2 ms of latency a sample",
                                     NULL};
static const char *const sets[] = {"memory", "delay_2ms"};
static const char *const mixes[] = {"page-locked, host goes on", "page-locked, host waits",
                                    "pageable, host goes on", "pageable, host waits", NULL};

enum { SET, WORKERS, MIX, PINNED, HOST_WAITS, BLOCKING, TRANSFER, STEP, RATE, OF_LIMIT, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [SET] = {.key = "set", .format = BENCH_TEXT},
    [WORKERS] = {">workers", "workers", BENCH_COUNT},
    [MIX] = {"memory, host", .format = BENCH_TEXT},
    [PINNED] = {.key = "pinned", .format = BENCH_FLAG},
    [HOST_WAITS] = {.key = "host_waits", .format = BENCH_FLAG},
    [BLOCKING] = {.key = "blocking", .format = BENCH_FLAG}, /* the name before */
    [TRANSFER] = {">transfer us/batch", "transfer_us", .digits = 1},
    [STEP] = {">step us/batch", "step_us", .digits = 1},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [OF_LIMIT] = {">of limit", "of_limit", BENCH_SHARE},
};

/* Returns how many numbers there are; 0: it is no list of them. */
static int parse_list(const char *at, uint32_t *list)
{
    for (int n = 0; n < WORKERS_MAX; n++) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || v < 1 || v > 512 || (*end && *end != ','))
            break;
        list[n] = (uint32_t)v;
        if (!*end)
            return n + 1;
        at = end + 1;
    }
    return 0;
}

static void above(const struct bench *b)
{
    const struct workers_opts *o = b->values;
    const struct workers *w = b->user;
    char buf[CLI_HUMAN];
    bench_print_device(b);
    printf(": batches of %llu, %s of the device's work on each\n",
           (unsigned long long)o->loader.batch_size, cli_time(o->step_ns, buf));
    if (w->link_samples_per_s > 0)
        printf("limit of the link: %s samples/s\n", cli_count(w->link_samples_per_s, buf));
    if (w->step_samples_per_s > 0)
        printf("limit of the work: %s samples/s\n", cli_count(w->step_samples_per_s, buf));
}

static void below(const struct bench *b)
{
    (void)b;
    cli_paragraphs(
        stdout,
        "Transfer: the copy of a batch by the device's events. Step: from one batch to the next, "
        "as the "
        "consumer sees it. Host waits: the consumer waits for the device after each batch.",
        2);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct workers *w = b->user;
    mr_json_double(json, "link_limit_samples_per_s", w->link_samples_per_s);
    mr_json_double(json, "step_limit_samples_per_s", w->step_samples_per_s);
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    const struct workers *w = b->user;
    struct workers_cell cell = {(enum workers_set)row->part, (uint32_t)v[WORKERS], v[PINNED] != 0,
                                v[HOST_WAITS] != 0};
    int rc = workers_measure(w, &cell);
    double limit = workers_limit(w);
    v[TRANSFER] = cell.transfer_us < 0 ? NAN : cell.transfer_us;
    v[STEP] = cell.step_us;
    v[RATE] = cell.samples_per_s;
    v[OF_LIMIT] = limit > 0 ? cell.samples_per_s / limit : NAN;
    return rc;
}

/* A panel a set, a line a mix. */
static struct bench_panel panels[WORKERS_N_SETS];

static int open_all(struct bench *b)
{
    struct workers *w = b->user;
    int n_list = w->n_list, rc = workers_open(w, b->dev, &b->info);
    if (rc == 0)
        rc = bench_rows(b, WORKERS_N_SETS * n_list * 4);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        row->part = i / (n_list * 4);
        row->series = i % 4;
        row->text[SET] = sets[row->part];
        row->text[MIX] = mixes[i % 4];
        row->v[WORKERS] = w->list[i / 4 % n_list];
        row->v[PINNED] = i % 4 < 2;
        row->v[HOST_WAITS] = row->v[BLOCKING] = i % 2;
    }
    for (int i = 0; i < WORKERS_N_SETS; i++)
        panels[i] = (struct bench_panel){titles[i],   "worker threads",
                                         "samples/s", WORKERS,
                                         {RATE},      4,
                                         0,           {"limit", workers_limit(w)},
                                         true,        false,
                                         PLOT_BINARY};
    return rc;
}

static void close_all(struct bench *b)
{
    workers_close(b->user);
}

static int run(void *values, int n_args, char **args)
{
    struct workers_opts *o = values;
    struct workers w = {.o = o};
    w.n_list = parse_list(o->list, w.list);
    if (w.n_list == 0)
        return cli_misuse(
            "--workers-list %s: expected at most %d numbers of 1..512 with commas between", o->list,
            WORKERS_MAX);
    if (o->repeats == 0)
        o->repeats = n_args ? 3 : 1;
    if (n_args)
        return workers_dataset_run(o, &w, args[0]);
    if (o->transform)
        return cli_misuse("--transform %s: expected a DATASET, too", o->transform);
    return bench_run(&(struct bench){.command = &cli_bench_workers,
                                     .values = o,
                                     .device = o->device,
                                     .plot = o->plot,
                                     .columns = columns,
                                     .n_columns = N_COLUMNS,
                                     .rows_key = "cells",
                                     .parts = titles,
                                     .series = mixes,
                                     .repeats = o->repeats,
                                     .chart = "Workers, memory, and a host that waits",
                                     .panels = panels,
                                     .n_panels = CLI_COUNT(panels),
                                     .user = &w,
                                     .open = open_all,
                                     .close = close_all,
                                     .measure = measure,
                                     .json = json,
                                     .above = above,
                                     .below = below});
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"link_limit_samples_per_s, step_limit_samples_per_s",
     "what the link and the device's work allow; 0: unknown or none"},
    {"cells", "for each: set (memory, delay_2ms), workers, pinned, host_waits (and "
              "under its former name, blocking); with a DATASET: "
              "workers, reads (many, one_per_worker)"},
    {"cells.transfer_us",
     "mean copy of a batch by the device's events; absent where it cannot be timed"},
    {"cells.step_us, cells.samples_per_s, cells.of_limit",
     "mean time from batch to batch, and the rate"},
    {"cells.lowest_samples_per_s, highest_samples_per_s, ideal_speed_up, speed_up, bottleneck",
     "with a DATASET: over the repeats; over the fewest workers of the list; of the loader in "
     "the last repeat, its warm-up included"},
    {"dataset, enough_workers, most_tried, bottleneck, bottleneck_reason",
     "with a DATASET: the fewest workers within 5% of the best rate, whether no larger number was "
     "tried, and what limits it"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench workers --plot workers.svg",
     "the grid on the first GPU, or without one on the CPU"},
    {"millrace bench workers --device sim --workers-list 1,2 --time 0.2s --json",
     "a small grid for a script"},
    {"millrace bench workers photos/ -t 'random_resized_crop(224)' --workers-list 1,2,4,8,16",
     "how many workers a folder of photos needs"},
    {NULL, NULL},
};

const struct cli_command cli_bench_workers = {
    .name = "bench workers",
    .summary = "Measure loading by number of workers, page-locked or not, host waiting or not",
    .synopsis = "[DATASET] [options]",
    .text = "Runs the loader with each number of workers, with page-locked and with pageable "
            "memory, over a set in memory and over one with 2 ms of latency per sample. One "
            "consumer waits for the device after each batch (host waits), the other does not. "
            "This is not feed --blocking, with which workers wait for each copy. The limit is the "
            "lower of the link's rate and the rate of the device's steps. With a DATASET: loads it "
            "with each number of workers, with many reads in flight and with one read per worker "
            "(as PyTorch's DataLoader), and ends with the fewest workers within 5% of the best "
            "rate and what limits it.",
    .max_args = 1,
    .options = options,
    .options_bytes = sizeof(struct workers_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
