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

static double *values_of(double *all, const struct bench *b, int row, uint64_t repeat)
{
    return all + ((size_t)row * b->repeats + repeat) * BENCH_MAX_COLUMNS;
}

static int measure_row(struct bench *b, struct bench_row *row, double *v)
{
    memcpy(v, row->v, sizeof row->v);
    if (row->left_out[0])
        return 0;
    if (cli_interrupted())
        return mr_error_set(MR_ECANCELLED, "interrupted");
    int rc = b->measure(b, row, v);
    if (rc >= 0 && cli_interrupted()) /* a part of a row is no result */
        return mr_error_set(MR_ECANCELLED, "interrupted");
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
        if (c == b->varies && n)
            variation = stats_variation(v, (int)n);
        row->v[c] = n ? bench_median(v, n) : NAN;
    }
    if (b->variation != b->varies)
        row->v[b->variation] = variation;
}

static int measure_all(struct bench *b)
{
    struct cli_progress progress;
    b->repeats = b->repeats ? b->repeats : 1;
    uint64_t done = 0;
    size_t n = (size_t)b->n_rows * b->repeats * BENCH_MAX_COLUMNS;
    double *all = calloc(n + b->repeats, sizeof *all);
    int rc = all ? 0 : mr_error_set(-ENOMEM, "%s: no memory for the repeats", b->command->name);
    cli_progress_begin(&progress, b->command->name, b->repeats * (uint64_t)b->n_rows, "cells");
    for (uint64_t k = 0; k < b->repeats && rc == 0; k++) {
        for (int i = 0; i < b->n_rows && rc == 0; i++) {
            rc = measure_row(b, &b->rows[i], values_of(all, b, i, k));
            cli_progress_update(&progress, ++done);
        }
    }
    cli_progress_end(&progress);
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
    code = rc < 0 ? cli_error(rc) : bench_show(b);
    if (b->close)
        b->close(b);
    free(b->rows);
    if (b->dev)
        mr_device_close(b->dev);
    return code;
}
