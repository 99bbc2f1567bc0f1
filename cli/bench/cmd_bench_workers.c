/* millrace bench workers: how many workers, page-locked or not, waiting for the device or not. */
#include "bench/frame.h"
#include "bench/workers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPT(...) BENCH_OPTION(struct workers_opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim:h2d=55, cpu"),
    OPT("workers-list", MR_OPT_STRING, list, .key = 'w', .initial = "0,1,2,4,8", .meta = "LIST",
        .help = "Numbers of worker threads, separated by commas; 0: batches are made only while "
                "the consumer waits for them, by one thread, one read at a time"),
    CLI_LOADER_OPTION(struct workers_opts, loader, "batch-size", .initial = "256", .max = 1 << 20,
                      .help = "Samples in a batch", .group = "Options"),
    OPT("transform", MR_OPT_STRING, transform, .key = 't', .meta = "CHAIN",
        .help = "With a DATASET: ops on each sample; millrace inspect --transforms lists them"),
    OPT("delay", MR_OPT_STRING, delay, .meta = "TIME|LO..HI",
        .help = "With a DATASET: latency that is added to each sample, such as 2ms, or one between "
                "two, such as 18ms..600ms; bare numbers are ms"),
    OPT("work", MR_OPT_DURATION, work_ns, .initial = "0", .max = 3600e9, .unit = "us",
        .help = "With a DATASET: processor time of each sample, decoding included"),
    BENCH_REPEATS_OPTION(struct workers_opts, "3", 1000),
    OPT("samples", MR_OPT_UINT, samples, .initial = "65536", .min = 1, .max = 1e9,
        .unit = "samples", .help = "Without a DATASET: samples of the set in memory, 4 KiB each"),
    OPT("step", MR_OPT_DURATION, step_ns, .initial = "100us", .min = 0, .max = 3600e9, .unit = "ms",
        .help = "Time that the device works on each batch; 0: none"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "1s", .min = 1e6, .max = 3600e9, .unit = "s",
        .help = "Duration of each measurement, after a quarter of it to warm up"),
    BENCH_PLOT_OPTION(struct workers_opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const char *const titles[] = {"1024 floats a sample, in memory", "2 ms of latency a sample",
                                     NULL};
static const char *const sets[] = {"memory", "delay_2ms"};
static const char *const mixes[] = {"page-locked, host goes on", "page-locked, host waits",
                                    "pageable, host goes on", "pageable, host waits", NULL};

enum mix { PINNED_GOES_ON, PINNED_WAITS, PAGEABLE_GOES_ON, PAGEABLE_WAITS };
enum {
    SET,
    WORKERS,
    MIX,
    PINNED,
    HOST_WAITS,
    TRANSFER,
    STEP,
    RATE,
    VARIATION,
    OF_LIMIT,
    N_COLUMNS
};

static const struct bench_column columns[N_COLUMNS] = {
    [SET] = {.key = "set", .format = BENCH_TEXT},
    [WORKERS] = {">workers", "workers", BENCH_COUNT},
    [MIX] = {"memory, host", .format = BENCH_TEXT},
    [PINNED] = {.key = "pinned", .format = BENCH_FLAG},
    [HOST_WAITS] = {.key = "host_waits", .format = BENCH_FLAG},
    [TRANSFER] = {">transfer us/batch", "transfer_us", .digits = 1},
    [STEP] = {">step us/batch", "step_us", .digits = 1},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [VARIATION] = {">variation", "variation", BENCH_SHARE},
    [OF_LIMIT] = {">of limit", "of_limit", BENCH_SHARE},
};

/* Returns how many numbers there are; 0: it is no list of them. */
static int parse_list(const char *at, uint32_t *list)
{
    for (int n = 0; n < WORKERS_MAX; n++) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || v > 512 || (*end && *end != ','))
            break;
        list[n] = (uint32_t)v;
        if (!*end)
            return n + 1;
        at = end + 1;
    }
    return 0;
}

/* "2ms", "18ms..600ms". */
static int parse_delay(struct workers_opts *o)
{
    if (!o->delay)
        return 0;
    const char *dots = strstr(o->delay, "..");
    char *from = strndup(o->delay, dots ? (size_t)(dots - o->delay) : strlen(o->delay));
    int rc = from ? mr_duration_parse(from, "ms", &o->delay_ns) : -ENOMEM;
    if (rc == 0 && dots)
        rc = mr_duration_parse(dots + 2, "ms", &o->max_delay_ns);
    free(from);
    return rc < 0 || (dots && o->max_delay_ns < o->delay_ns) ? -1 : 0;
}

static void above(const struct bench *b)
{
    const struct workers_opts *o = b->values;
    const struct workers *w = b->user;
    char buf[CLI_HUMAN];
    bench_print_device(b);
    printf(": batches of %llu, %s of the device's work on each; medians of %llu\n",
           (unsigned long long)o->loader.batch_size, cli_time(o->step_ns, buf),
           (unsigned long long)o->repeats);
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

/* Of one mix with the set in memory, over the numbers of workers: the row with the shortest
 * transfer, or the highest rate. NULL: none. */
static const struct bench_row *best_of(const struct bench *b, enum mix mix, int column)
{
    const struct bench_row *best = NULL;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->part != WORKERS_MEMORY || row->series != (int)mix || row->left_out[0] ||
            isnan(row->v[column]))
            continue;
        if (!best || (column == TRANSFER ? row->v[column] < best->v[column]
                                         : row->v[column] > best->v[column]))
            best = row;
    }
    return best;
}

struct gain {
    double ratio;  /* NaN: unknown */
    char text[64]; /* "1.32x", and whether it is a difference */
};

/* How much better mix a is than b. A difference is more than 5%, and than the spread of both. */
static struct gain gain_of(const struct bench *b, enum mix mix_a, enum mix mix_b, int column)
{
    const struct bench_row *one = best_of(b, mix_a, column), *two = best_of(b, mix_b, column);
    struct gain g = {NAN, "-"};
    if (!one || !two)
        return g;
    g.ratio = one->v[column] / two->v[column];
    if (column == TRANSFER)
        g.ratio = 1 / g.ratio;
    snprintf(g.text, sizeof g.text, "%.2fx%s", g.ratio,
             fabs(g.ratio - 1) > bench_chance(b, one, two) ? ""
                                                           : " (no difference beyond the spread)");
    return g;
}

static void conclude(struct bench *b)
{
    struct workers *w = b->user;
    struct gain copy = gain_of(b, PINNED_GOES_ON, PAGEABLE_GOES_ON, TRANSFER),
                pinned = gain_of(b, PINNED_GOES_ON, PINNED_WAITS, RATE),
                pageable = gain_of(b, PAGEABLE_GOES_ON, PAGEABLE_WAITS, RATE);
    w->pinned_copy = copy.ratio;
    w->pinned_goes_on = pinned.ratio;
    w->pageable_goes_on = pageable.ratio;
    if (isnan(pinned.ratio)) /* 0 workers alone: the host always waits */
        return;
    if (b->info.unified)
        snprintf(b->verdict, sizeof b->verdict,
                 "Nothing is copied on %s, so page-locked and pageable memory are the same here; "
                 "--device sim simulates a link. A host that goes on instead of waiting: %s the "
                 "rate (in memory, best number of workers each).",
                 b->info.name, pinned.text);
    else
        snprintf(b->verdict, sizeof b->verdict,
                 "In memory, best number of workers each: page-locked memory copies %s as fast as "
                 "pageable memory. A host that goes on instead of waiting: %s the rate with "
                 "page-locked memory, %s with pageable memory.",
                 copy.text, pinned.text, pageable.text);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct workers *w = b->user;
    mr_json_double(json, "link_limit_samples_per_s", w->link_samples_per_s);
    mr_json_double(json, "step_limit_samples_per_s", w->step_samples_per_s);
    if (!isnan(w->pinned_copy))
        mr_json_double(json, "pinned_copy_speed_up", w->pinned_copy);
    if (!isnan(w->pinned_goes_on))
        mr_json_double(json, "pinned_goes_on_speed_up", w->pinned_goes_on);
    if (!isnan(w->pageable_goes_on))
        mr_json_double(json, "pageable_goes_on_speed_up", w->pageable_goes_on);
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

/* 0 workers load while the consumer waits: it always does. Returns how many rows were added. */
static int add_row(struct bench *b, int at, enum workers_set set, uint32_t workers, int mix)
{
    struct bench_row *row = &b->rows[at];
    bool waits = mix == PINNED_WAITS || mix == PAGEABLE_WAITS;
    if (workers == 0 && !waits)
        return 0;
    row->part = set;
    row->series = mix;
    row->text[SET] = sets[set];
    row->text[MIX] = mixes[mix];
    row->v[WORKERS] = workers;
    row->v[PINNED] = mix == PINNED_GOES_ON || mix == PINNED_WAITS;
    row->v[HOST_WAITS] = waits;
    return 1;
}

static int open_all(struct bench *b)
{
    struct workers *w = b->user;
    int n = 0, per_set = w->n_list * 4, all = WORKERS_N_SETS * per_set;
    bool from_0 = false;
    int rc = workers_open(w, b->dev, &b->info);
    if (rc < 0)
        return rc;
    rc = bench_rows(b, all);
    if (rc < 0)
        return rc;
    for (int i = 0; i < all; i++) {
        uint32_t workers = w->list[i / 4 % w->n_list];
        from_0 |= workers == 0;
        n += add_row(b, n, (enum workers_set)(i / per_set), workers, i % 4);
    }
    b->n_rows = n;
    for (int i = 0; i < WORKERS_N_SETS; i++)
        panels[i] = (struct bench_panel){.title = titles[i],
                                         .x_label = "worker threads",
                                         .y_label = "samples/s",
                                         .x = WORKERS,
                                         .y = {RATE},
                                         .n = 4,
                                         .limit = {"limit", workers_limit(w)},
                                         .log_x = !from_0,
                                         .whole_x = from_0,
                                         .ticks = PLOT_BINARY};
    return 0;
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
            "--workers-list %s: expected at most %d numbers of 0..512 with commas between", o->list,
            WORKERS_MAX);
    if (parse_delay(o) < 0)
        return cli_misuse("--delay %s: expected a time such as 2ms, or two such as 18ms..600ms, "
                          "the smaller one first",
                          o->delay);
    if (n_args)
        return workers_dataset_run(o, &w, args[0]);
    if (o->transform)
        return cli_misuse("--transform %s: expected a DATASET, too", o->transform);
    if (o->delay || o->work_ns)
        return cli_misuse("%s: expected a DATASET, too", o->delay ? "--delay" : "--work");
    return bench_run(
        &(struct bench){.command = &cli_bench_workers,
                        .values = o,
                        .device = o->device,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "cells",
                        .parts = titles,
                        .series = mixes,
                        .repeats = o->repeats,
                        .varies = RATE,
                        .variation = VARIATION,
                        .explain = "Batches of a set in memory, and of one whose samples are "
                                   "late, by number of workers; from page-locked and pageable "
                                   "memory; with a host that waits for the device after each "
                                   "batch and one that goes on. The limits are the link and the "
                                   "device's steps.",
                        .chart = "Workers, memory, and a host that waits",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .user = &w,
                        .open = open_all,
                        .close = close_all,
                        .measure = measure,
                        .conclude = conclude,
                        .json = json,
                        .above = above,
                        .below = below,
                        .learn = "workers"});
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"link_limit_samples_per_s, step_limit_samples_per_s",
     "what the link and the device's work allow; 0: unknown or none"},
    {"pinned_copy_speed_up, pinned_goes_on_speed_up, pageable_goes_on_speed_up",
     "without a DATASET, of the set in memory, best number of workers each: copies from "
     "page-locked "
     "over pageable memory; the rate of a host that goes on over one that waits"},
    {"pinned_speed_up", "with a DATASET, at enough_workers: the rate with page-locked over "
                        "pageable memory; absent where "
                        "nothing is copied"},
    {"cells", "for each: set (memory, delay_2ms), workers, pinned, host_waits; with a DATASET: "
              "workers, reads (many, one_per_worker), pinned"},
    {"cells.transfer_us",
     "mean copy of a batch by the device's events; absent where it cannot be timed"},
    {"cells.step_us, cells.samples_per_s, cells.variation, cells.of_limit",
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
    {"millrace bench workers photos/ -t 'random_resized_crop(224)' --delay 18ms..600ms",
     "the same folder as if it were on a slow network"},
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
            "with each number of workers, with many reads in flight, with one read per worker (as "
            "PyTorch's DataLoader) and, where batches are copied, into pageable memory, and ends "
            "with the fewest workers within 5% of the best rate and what limits it.\n\n"
            "0 workers: one thread loads, one read at a time, and only while the consumer waits "
            "for the batch, as with DataLoader's num_workers=0. --delay adds latency to each "
            "sample, which occupies no worker; --work makes each sample take that much processor "
            "time. Both work on any DATASET with numbered samples, as does the data set slow: in "
            "other commands.",
    .max_args = 1,
    .options = options,
    .options_bytes = sizeof(struct workers_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
