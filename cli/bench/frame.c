/* Measuring in the frame of the experiments: repeats in turn, medians. */
#include "bench/frame.h"
#include "bench/stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int bench_rows(struct bench *b, int n)
{
    b->rows = calloc((size_t)n, sizeof *b->rows);
    if (!b->rows)
        return mr_error_set(-ENOMEM, "%s: no memory for %d rows", b->command->name, n);
    b->n_rows = n;
    for (int i = 0; i < n; i++) {
        struct bench_row *row = &b->rows[i];
        for (int c = 0; c < BENCH_MAX_COLUMNS; c++)
            row->v[c] = NAN;
        row->name = row->text[0] = b->names ? b->names[i] : NULL;
        row->text[1] = b->keys ? b->keys[i] : NULL;
    }
    return 0;
}

double bench_chance(const struct bench *b, const struct bench_row *one, const struct bench_row *two)
{
    return fmax(fmax(one->v[b->variation], two->v[b->variation]), 0.05); /* of NaN: the other */
}

static double *values_of(double *all, const struct bench *b, int row, uint64_t repeat)
{
    return all + ((size_t)row * b->repeats + repeat) * BENCH_MAX_COLUMNS;
}

static int measure_row(struct bench *b, struct bench_row *row, double *v)
{
    double given[BENCH_MAX_COLUMNS];
    memcpy(given, row->v, sizeof given);
    if (row->left_out[0])
        return 0;
    if (cli_interrupted())
        return mr_error_set(MR_ECANCELLED, "interrupted");
    int rc = b->measure(b, row, given);
    if (rc >= 0 && cli_interrupted()) /* a part of a row is no result */
        return mr_error_set(MR_ECANCELLED, "interrupted");
    memcpy(v, given, sizeof given);
    if (rc != MR_EUNSUPPORTED && rc != MR_ELIMIT)
        return rc;
    snprintf(row->left_out, sizeof row->left_out, "%s", mr_last_error());
    return 0;
}

/* Values that are known in some repeats alone have the median of those. */
static void take_medians(const struct bench *b, struct bench_row *row, double *of_row, double *v)
{
    double variation = NAN;
    for (int c = 0; c < b->n_columns; c++) {
        uint64_t n = 0;
        for (uint64_t k = 0; k < b->repeats; k++)
            if (!isnan(of_row[k * BENCH_MAX_COLUMNS + (size_t)c]))
                v[n++] = of_row[k * BENCH_MAX_COLUMNS + (size_t)c];
        if (c == b->varies && n > 1) /* one alone has no spread */
            variation = stats_variation(v, (int)n);
        row->v[c] = n ? bench_median(v, n) : NAN;
    }
    if (b->variation != b->varies)
        row->v[b->variation] = variation;
}

/* Measures every row `repeats` times, in turn; done: how often that was, over all. */
static int measure_rows(struct bench *b, double *all, uint64_t *done)
{
    struct cli_progress progress;
    int rc = 0;
    cli_progress_begin(&progress, b->command->name, b->repeats * (uint64_t)b->n_rows, "cells");
    for (b->repeat = 0; b->repeat < b->repeats && rc == 0; b->repeat++) {
        for (int i = 0; i < b->n_rows && rc == 0; i++) {
            rc = measure_row(b, &b->rows[i], values_of(all, b, i, b->repeat));
            if (rc == 0)
                cli_progress_update(&progress, ++*done);
        }
    }
    cli_progress_end(&progress);
    return rc;
}

/* After an interrupt: what was measured until then counts, if anything was. Returns 0 then, else
 * rc. */
static int keep_measured(struct bench *b, uint64_t done, int rc)
{
    if (rc != MR_ECANCELLED || !cli_interrupted() || done == 0)
        return rc;
    b->interrupted = true;
    b->n_measured = done;
    for (uint64_t i = done; i < (uint64_t)b->n_rows; i++)
        if (!b->rows[i].left_out[0])
            snprintf(b->rows[i].left_out, sizeof b->rows[i].left_out, "interrupted before it");
    return 0;
}

static int measure_all(struct bench *b)
{
    b->repeats = b->repeats ? b->repeats : 1;
    uint64_t done = 0;
    size_t n = (size_t)b->n_rows * b->repeats * BENCH_MAX_COLUMNS;
    double *all = calloc(n + b->repeats, sizeof *all);
    int rc = all ? 0 : mr_error_set(-ENOMEM, "%s: no memory for the repeats", b->command->name);
    for (size_t i = 0; i < n && all; i++)
        all[i] = NAN;
    if (rc == 0) {
        rc = measure_rows(b, all, &done);
        rc = keep_measured(b, done, rc);
    }
    for (int i = 0; i < b->n_rows && rc == 0; i++)
        if (!b->rows[i].left_out[0])
            take_medians(b, &b->rows[i], values_of(all, b, i, 0), all + n);
    free(all);
    return rc;
}

/* Where each row is left out the first one's reason is the command's error. */
static int check_measured(const struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++)
        if (!b->rows[i].left_out[0])
            return 0;
    return b->n_rows == 0 ? 0 : mr_error_set(MR_EUNSUPPORTED, "%s", b->rows[0].left_out);
}

/* A part of the grid concludes nothing, and replaces no page of a whole one. */
static void say_interrupted(struct bench *b)
{
    snprintf(
        b->verdict, sizeof b->verdict, "Interrupted: %llu of %llu measurements were made.%s%s%s",
        (unsigned long long)b->n_measured, (unsigned long long)(b->repeats * (uint64_t)b->n_rows),
        b->plot ? " " : "", b->plot ? b->plot : "", b->plot ? " was not written." : "");
    b->plot = NULL;
}

int bench_run(struct bench *b)
{
    int code = plot_check(b->plot), rc = 0;
    if (code == CLI_OK && b->device)
        code = bench_open(b->device, b->copies, &b->dev, &b->info);
    if (code != CLI_OK)
        return code;
    if (b->n_rows)
        rc = bench_rows(b, b->n_rows);
    if (rc == 0 && b->open)
        rc = b->open(b);
    if (rc == 0)
        rc = measure_all(b);
    if (rc == 0)
        rc = check_measured(b);
    if (rc == 0 && b->conclude)
        b->conclude(b);
    if (b->interrupted)
        say_interrupted(b);
    code = rc < 0 ? cli_error(rc) : bench_show(b);
    if (b->interrupted)
        code = CLI_FAILED;
    if (b->close)
        b->close(b);
    free(b->rows);
    if (b->dev)
        mr_device_close(b->dev);
    return code;
}
