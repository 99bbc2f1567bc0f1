/*
 * One frame for the experiments of `millrace bench`.
 *
 * An experiment describes its columns and its rows (the cells of its grid), gives a function that
 * measures one row once, and the lines that are its verdict. The frame warms up, repeats rows in
 * turn, takes medians and the spread, shows progress, ends on an interrupt, and writes the text
 * table, the JSON object and the chart. What a figure is called and how it is written is said once,
 * in its column.
 */
#ifndef CLI_BENCH_FRAME_H
#define CLI_BENCH_FRAME_H

#include "bench/bench.h"
#include "plot.h"

#include <math.h>

enum { BENCH_MAX_COLUMNS = 20, BENCH_MAX_SERIES = 8, BENCH_MAX_PANELS = 4 };

enum bench_format {
    BENCH_FIXED, /* `digits` behind the point, then `suffix` */
    BENCH_COUNT, /* "1,024" */
    BENCH_BYTES, /* "1.50 MiB"; a whole number in JSON */
    BENCH_SHARE, /* "12.3%" of 0.123 */
    BENCH_FLAG,  /* JSON alone: true, false */
    BENCH_TEXT,  /* row->text */
};

struct bench_column {
    const char *head; /* with its unit, '>' before heads of numbers; NULL: in JSON alone */
    const char *key;  /* JSON's member, "busy_ms.h2d": of an object; NULL: in the table alone */
    enum bench_format format;
    int digits;
    const char *suffix; /* NULL: none */
    bool null;          /* in JSON a value that is unknown is null; else it is left out */
};

/* One line of the table. */
struct bench_row {
    double v[BENCH_MAX_COLUMNS];         /* NaN: unknown */
    const char *text[BENCH_MAX_COLUMNS]; /* BENCH_TEXT */
    int part;                            /* which table, and which panel of the chart */
    int series;                          /* which line of the chart */
    const char *name;                    /* for what is left out, and below bars */
    char left_out[300];                  /* why it could not be measured; "": it was */
};

struct bench_panel {
    const char *title, *x_label, *y_label;
    int x;                      /* column; -1: bars, one group a row */
    int y[BENCH_MAX_SERIES], n; /* columns, each a series; or one for all bench->series names */
    double unit;                /* values are divided by it; 0: 1 */
    struct plot_limit limit;
    bool log_x, log_y;
    enum plot_ticks ticks;
};

struct bench {
    /* given by the experiment */
    const char *command; /* "bench hostmem" */
    const struct mr_option *options;
    const void *values;
    const struct bench_column *columns;
    int n_columns;
    const char *rows_key;                /* JSON: the list of rows */
    const char *const *parts;            /* titles of several tables, ended by NULL; NULL: one */
    const char *const *series;           /* names of a panel's lines, ended by NULL; NULL: columns' */
    const char *chart, *subtitle, *plot; /* plot NULL: no chart */
    uint64_t repeats;                    /* 0: 1 */
    bool warm_up;                        /* each row once more, first */
    int varies, variation;               /* columns: the spread of the first is the second; equal: none */
    /* Measures one row once. Returns 0 or an error; MR_EUNSUPPORTED and MR_ELIMIT leave the row out. */
    int (*measure)(struct bench *b, struct bench_row *row, double v[BENCH_MAX_COLUMNS]);
    void (*json)(const struct bench *b, struct mr_json *json); /* members before the rows */
    void (*above)(const struct bench *b);                      /* lines before and after the tables */
    void (*below)(const struct bench *b);
    struct bench_panel panel[BENCH_MAX_PANELS];
    int n_panels;
    void *user;

    struct mr_device *dev;
    struct mr_device_info info;
    struct bench_row *rows; /* of bench_rows() */
    int n_rows;
};

/* Makes n rows of unknown values. Returns 0 or -ENOMEM. */
int bench_rows(struct bench *b, int n);

/* Fills the rows with medians over the repeats. Returns 0 or the error. */
int bench_measure(struct bench *b);

/* Writes the chart, and the table or the JSON object. Returns an exit code. */
int bench_show(const struct bench *b);

/* "sim", "cuda: NVIDIA H200". Prints it. */
void bench_print_device(const struct bench *b);

void bench_close(struct bench *b); /* of a zeroed one, too */

#endif
