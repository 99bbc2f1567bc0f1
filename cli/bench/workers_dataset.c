/* millrace bench workers DATASET: how many workers does a data set need? Each number of workers
 * loads it with many reads in flight, as the loader does by default, and with one read for each
 * worker, as a worker process of PyTorch's DataLoader reads. Where batches are copied to a device,
 * also with many reads into pageable memory. 0 workers have one row: loading and consuming take
 * turns. */
#include "bench/frame.h"
#include "bench/workers.h"

#include <inttypes.h>

#define ENOUGH 0.95 /* of the best rate */

enum { MANY, ONE_EACH, PAGEABLE, N_READS };

static const char *const reads[] = {"many in flight", "one per worker", "many, pageable", NULL};
static const char *const read_keys[] = {"many", "one_per_worker", "many"};
static const char in_turn[] = "one, in turn";

enum { COUNT, READS, KEY, PINNED, RATE, LOW, HIGH, IDEAL, SPEED_UP, BOTTLENECK, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [COUNT] = {">workers", "workers", BENCH_COUNT},
    [READS] = {"reads", .format = BENCH_TEXT},
    [KEY] = {.key = "reads", .format = BENCH_TEXT},
    [PINNED] = {.key = "pinned", .format = BENCH_FLAG},
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
    int enough;             /* row; -1: none */
    bool grows;             /* it is the largest number tried */
    double pinned_speed_up; /* there, over pageable memory; NaN: nothing is copied */
};

/* A row of the table. Returns how many were added. */
static int add_row(struct bench *b, int at, uint32_t workers, int series)
{
    struct bench_row *row = &b->rows[at];
    if (workers == 0 && series != ONE_EACH)
        return 0;
    row->series = series;
    row->name = row->text[READS] = workers ? reads[series] : in_turn;
    row->text[KEY] = read_keys[series];
    row->v[PINNED] = series != PAGEABLE;
    row->v[COUNT] = workers;
    return 1;
}

static int open_all(struct bench *b)
{
    struct search *s = b->user;
    int n_series = b->info.unified ? PAGEABLE : N_READS, n = 0;
    bool from_0 = false;
    int rc = workers_open_dataset(&s->w, b->dev, s->uri);
    if (rc < 0)
        return rc;
    rc = bench_rows(b, s->w.n_list * n_series);
    if (rc < 0)
        return rc;
    for (int i = 0; i < s->w.n_list * n_series; i++) {
        from_0 |= s->w.list[i / n_series] == 0;
        n += add_row(b, n, s->w.list[i / n_series], i % n_series);
    }
    b->n_rows = n;
    for (int i = 0; i < b->n_panels; i++) {
        b->panels[i].n = n_series;
        b->panels[i].log_x = !from_0;
        b->panels[i].whole_x = from_0;
    }
    return 0;
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
    struct workers_cell cell = {.workers = (uint32_t)v[COUNT],
                                .pinned = v[PINNED] != 0,
                                .one_read = row->series == ONE_EACH};
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

/* The row of pageable memory with as many workers; -1: none, where nothing is copied. */
static int find_pageable(const struct bench *b, const struct bench_row *at)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].series == PAGEABLE && !b->rows[i].left_out[0] &&
            b->rows[i].v[COUNT] == at->v[COUNT])
            return i;
    return -1;
}

/* What page-locked memory gains there. Ranges that overlap are no difference. */
static void say_pinned(const struct bench *b, struct search *s, char *out, size_t cap)
{
    int k = find_pageable(b, &b->rows[s->enough]);
    if (k < 0)
        return;
    const struct found *pinned = &s->found[s->enough], *pageable = &s->found[k];
    s->pinned_speed_up = b->rows[s->enough].v[RATE] / b->rows[k].v[RATE];
    if ((pinned->low <= pageable->high && pageable->low <= pinned->high) ||
        fabs(s->pinned_speed_up - 1) < 0.005) /* it would be "1.00x" */
        snprintf(out, cap, "; page-locked and pageable memory: no difference beyond the spread");
    else
        snprintf(out, cap, "; page-locked memory: %.2fx the rate of pageable memory",
                 s->pinned_speed_up);
}

/* The last line. */
static void say(struct bench *b)
{
    struct search *s = b->user;
    const struct found *f = &s->found[s->enough];
    char pinned[160] = "";
    say_pinned(b, s, pinned, sizeof pinned);
    snprintf(b->verdict, sizeof b->verdict,
             "fewest workers within 5%% of the best rate: %.0f%s; bottleneck: %s: %s%s",
             b->rows[s->enough].v[COUNT], s->grows ? ", the most tried: more may be faster" : "",
             f->bottleneck, f->reason, pinned);
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
        /* 0 workers are one thread, as 1 is */
        row->v[IDEAL] = fmax(row->v[COUNT], 1) / fmax(b->rows[base].v[COUNT], 1);
        row->v[SPEED_UP] = row->v[RATE] / b->rows[base].v[RATE];
        most = fmax(row->v[COUNT], most);
        if (row->series == MANY)
            best = fmax(row->v[RATE], best);
    }
    s->enough = fewest(b, MANY, ENOUGH * best);
    b->panels[0].limit = (struct plot_limit){"the device's steps", s->w.step_samples_per_s};
    snprintf(b->subtitle, sizeof b->subtitle, "%.200s, device %s", mr_dataset_text(s->w.set[0]),
             b->info.name);
    if (s->enough < 0)
        return;
    s->grows = b->rows[s->enough].v[COUNT] >= most;
    say(b);
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
    if (o->delay)
        printf("added to each sample: %s of latency\n", o->delay);
    if (o->work_ns)
        printf("processor time of each sample: %s at least\n", cli_time(o->work_ns, buf));
    if (s->w.step_samples_per_s > 0)
        printf("limit of the work: %s samples/s\n", cli_count(s->w.step_samples_per_s, buf));
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct search *s = b->user;
    mr_json_string(json, "dataset", mr_dataset_text(s->w.set[0]));
    if (s->enough < 0)
        return;
    mr_json_uint(json, "enough_workers", (uint64_t)b->rows[s->enough].v[COUNT]);
    mr_json_bool(json, "most_tried", s->grows);
    if (!isnan(s->pinned_speed_up))
        mr_json_double(json, "pinned_speed_up", s->pinned_speed_up);
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
                                       .ticks = PLOT_BINARY,
                                       .bound = IDEAL}};

int workers_dataset_run(struct workers_opts *o, const struct workers *list, const char *uri)
{
    struct search s = {.w = *list, .uri = uri, .enough = -1, .pinned_speed_up = NAN};
    return bench_run(
        &(struct bench){.command = &cli_bench_workers,
                        .values = o,
                        .device = o->device,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "cells",
                        .series = reads,
                        .repeats = o->repeats,
                        .explain = "A worker that waits for one read at a time, as PyTorch's "
                                   "DataLoader does, spends most of its time waiting, so more of "
                                   "them help. With many reads in flight, workers are needed for "
                                   "decoding alone. Ideal is a rate that grows with the number "
                                   "of workers.",
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
                        .learn = "workers"});
}
