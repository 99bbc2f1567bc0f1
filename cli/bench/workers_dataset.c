/* millrace bench workers DATASET: how many workers does a data set need? Each number of workers
 * loads it twice: with many reads in flight, as the loader does by default, and with one read for
 * each worker, as a worker process of PyTorch's DataLoader reads. */
#include "bench/frame.h"
#include "bench/workers.h"

#include <inttypes.h>

#define ENOUGH 0.95 /* of the best rate */

enum { MANY, ONE_EACH, N_READS };

static const char *const reads[] = {"many in flight", "one per worker", NULL};
static const char *const read_keys[] = {"many", "one_per_worker"};

enum { COUNT, READS, KEY, RATE, LOW, HIGH, IDEAL, SPEED_UP, BOTTLENECK, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [COUNT] = {">workers", "workers", BENCH_COUNT},
    [READS] = {"reads", .format = BENCH_TEXT},
    [KEY] = {.key = "reads", .format = BENCH_TEXT},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [LOW] = {">lowest", "lowest_samples_per_s", BENCH_COUNT},
    [HIGH] = {">highest", "highest_samples_per_s", BENCH_COUNT},
    [IDEAL] = {">ideal", "ideal_speed_up", .digits = 2, .suffix = "x"},
    [SPEED_UP] = {">speed-up", "speed_up", .digits = 2, .suffix = "x"},
    [BOTTLENECK] = {"bottleneck", "bottleneck", BENCH_TEXT},
};

/* Of a row: what the frame's medians leave out. */
struct found {
    double low, high;
    char bottleneck[16], reason[192]; /* of its last repeat */
};

struct search {
    struct workers w;
    const char *uri;
    struct found found[WORKERS_MAX * N_READS];
    int enough; /* row; -1: none */
    bool grows; /* it is the largest number tried */
};

static int open_all(struct bench *b)
{
    struct search *s = b->user;
    int rc = workers_open_dataset(&s->w, b->dev, s->uri);
    if (rc == 0)
        rc = bench_rows(b, s->w.n_list * N_READS);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        int number = i / N_READS;
        row->series = i % N_READS;
        row->name = row->text[READS] = reads[row->series];
        row->text[KEY] = read_keys[row->series];
        row->v[COUNT] = s->w.list[number];
    }
    return rc;
}

static void close_all(struct bench *b)
{
    struct search *s = b->user;
    workers_close(&s->w);
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    struct search *s = b->user;
    struct found *f = &s->found[row - b->rows];
    struct workers_cell cell = {
        .workers = (uint32_t)v[COUNT], .pinned = true, .one_read = row->series == ONE_EACH};
    int rc = workers_measure(&s->w, &cell);
    if (rc < 0)
        return rc;
    v[RATE] = cell.samples_per_s;
    f->low = f->high > 0 && f->low < v[RATE] ? f->low : v[RATE];
    f->high = f->high > v[RATE] ? f->high : v[RATE];
    snprintf(f->bottleneck, sizeof f->bottleneck, "%s", cell.stats.bottleneck);
    snprintf(f->reason, sizeof f->reason, "%s", cell.stats.reason);
    row->text[BOTTLENECK] = f->bottleneck;
    return 0;
}

/* The row with the fewest workers of a series whose rate is at least `rate`; -1: none. */
static int fewest(const struct bench *b, int series, double rate)
{
    int found = -1;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->series == series && !row->left_out[0] && row->v[RATE] >= rate &&
            (found < 0 || row->v[COUNT] < b->rows[found].v[COUNT]))
            found = i;
    }
    return found;
}

static void conclude(struct bench *b)
{
    struct search *s = b->user;
    double best = 0, most = 0;
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        int base = fewest(b, row->series, 0);
        if (row->left_out[0] || base < 0)
            continue;
        row->v[LOW] = s->found[i].low;
        row->v[HIGH] = s->found[i].high;
        row->v[IDEAL] = row->v[COUNT] / b->rows[base].v[COUNT];
        row->v[SPEED_UP] = row->v[RATE] / b->rows[base].v[RATE];
        most = row->v[COUNT] > most ? row->v[COUNT] : most;
        if (row->series == MANY && row->v[RATE] > best)
            best = row->v[RATE];
    }
    s->enough = fewest(b, MANY, ENOUGH * best);
    s->grows = s->enough >= 0 && b->rows[s->enough].v[COUNT] >= most;
    snprintf(b->subtitle, sizeof b->subtitle, "%.200s, device %s", s->uri, b->info.name);
}

static void above(const struct bench *b)
{
    const struct workers_opts *o = b->values;
    const struct search *s = b->user;
    char text[CLI_CLEAN], buf[CLI_HUMAN];
    printf("%s; device ", cli_clean(mr_dataset_text(s->w.set[0]), text));
    bench_print_device(b);
    printf(": batches of %" PRIu64 ", %s of the device's work on each; medians of %" PRIu64 "\n",
           o->loader.batch_size, cli_time(o->step_ns, buf), o->repeats);
    if (s->w.step_samples_per_s > 0)
        printf("limit of the work: %s samples/s\n", cli_count(s->w.step_samples_per_s, buf));
}

static void below(const struct bench *b)
{
    const struct search *s = b->user;
    if (s->enough < 0)
        return;
    printf("fewest workers within 5%% of the best rate: %.0f%s; bottleneck: %s: %s\n",
           b->rows[s->enough].v[COUNT], s->grows ? ", the most tried: more may be faster" : "",
           s->found[s->enough].bottleneck, s->found[s->enough].reason);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct search *s = b->user;
    mr_json_string(json, "dataset", mr_dataset_text(s->w.set[0]));
    if (s->enough < 0)
        return;
    mr_json_uint(json, "enough_workers", (uint64_t)b->rows[s->enough].v[COUNT]);
    mr_json_bool(json, "most_tried", s->grows);
    mr_json_string(json, "bottleneck", s->found[s->enough].bottleneck);
    mr_json_string(json, "bottleneck_reason", s->found[s->enough].reason);
}

static struct bench_panel panels[] = {{"Rate by number of workers",
                                       "worker threads",
                                       "samples/s",
                                       COUNT,
                                       {RATE},
                                       N_READS,
                                       .log_x = true,
                                       .log_y = true,
                                       .ticks = PLOT_BINARY},
                                      {"Over the fewest workers of the list",
                                       "worker threads",
                                       "speed-up",
                                       COUNT,
                                       {SPEED_UP},
                                       N_READS,
                                       .log_x = true,
                                       .ticks = PLOT_BINARY}};

int workers_dataset_run(struct workers_opts *o, const struct workers *list, const char *uri)
{
    struct search s = {.w = *list, .uri = uri, .enough = -1};
    return bench_run(&(struct bench){.command = &cli_bench_workers,
                                     .values = o,
                                     .device = o->device,
                                     .plot = o->plot,
                                     .columns = columns,
                                     .n_columns = N_COLUMNS,
                                     .rows_key = "cells",
                                     .series = reads,
                                     .repeats = o->repeats,
                                     .chart = "How many workers?",
                                     .panels = panels,
                                     .n_panels = CLI_COUNT(panels),
                                     .user = &s,
                                     .open = open_all,
                                     .close = close_all,
                                     .measure = measure,
                                     .conclude = conclude,
                                     .json = json,
                                     .above = above,
                                     .below = below});
}
