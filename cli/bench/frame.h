/*
 * One frame for the experiments of `millrace bench`.
 *
 * An experiment describes its columns and its rows (the cells of its grid), gives a function that
 * measures one row once, and the lines that are its verdict. The frame repeats rows in turn, takes
 * medians and the spread, shows progress, ends on an interrupt, and writes the text table, the JSON
 * object and the chart. What a figure is called and how it is written is said once, in its column.
 */
#ifndef CLI_BENCH_FRAME_H
#define CLI_BENCH_FRAME_H

#include "bench/bench.h"
#include "plot.h"

#include <math.h>

enum { BENCH_MAX_COLUMNS = 24, BENCH_MAX_SERIES = 16, BENCH_MAX_PANELS = 4 };

enum bench_format {
    BENCH_FIXED, /* `digits` behind the point, then `suffix` */
    BENCH_COUNT, /* "1,024" */
    BENCH_BYTES, /* "1.50 MiB"; a whole number in JSON */
    BENCH_RATE,  /* "12.3 GB/s" of bytes a second */
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
    unsigned parts;     /* bit p: in the p-th table; 0: in all of them */
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
    int y[BENCH_MAX_SERIES], n; /* columns, each a series; or one for all series' names */
    double unit;                /* values are divided by it; 0: 1 */
    struct plot_limit limit;
    bool log_x, log_y;
    enum plot_ticks ticks;
    const char *const *series; /* names of its lines; NULL: bench->series */
    bool whole_x;              /* x counts: ticks at whole numbers */
    int bound;                 /* column that is a line of its own over x; 0: none */
};

#define BENCH_MAX_FINDINGS 12

struct bench {
    /* Given by the experiment. */
    const struct cli_command *command;
    void *values;              /* of its options */
    const char *device, *plot; /* options; device NULL: none is opened, the experiment fills info */
    bool copies;               /* devices without memory of their own are refused */
    const struct bench_column *columns;
    int n_columns, n_rows;
    const char *const *names,
        *const *keys;          /* texts of columns 0 and 1 of each row; NULL: made by open */
    const char *rows_key;      /* JSON: the list of rows */
    const char *const *parts;  /* titles of several tables, ended by NULL; NULL: one */
    const char *const *series; /* names of a panel's lines; NULL: columns' heads */
    uint64_t repeats;          /* 0: 1 */
    int varies, variation;     /* columns: the second is the first's spread; equal: none */
    const char *chart;         /* its title */
    char subtitle[320];        /* of the chart; "": the device */
    const char *explain;       /* of the page: what is measured, for a newcomer */
    const char *learn;         /* its page in docs/learn: "workers"; NULL: none */
    const char *finding[BENCH_MAX_FINDINGS]; /* of the page: sentences above the tables */
    int n_findings;
    struct bench_panel *panels;
    int n_panels;
    void *user;

    int (*open)(struct bench *b); /* before the first row; may be NULL. Returns 0 or an error */
    void (*close)(struct bench *b);
    /* Measures one row once. Returns 0 or an error; MR_EUNSUPPORTED and MR_ELIMIT leave the row
     * out. */
    int (*measure)(struct bench *b, struct bench_row *row, double *v);
    void (*conclude)(struct bench *b);                         /* what follows from the medians */
    void (*json)(const struct bench *b, struct mr_json *json); /* members behind the rows */
    void (*above)(const struct bench *b); /* lines before and after the tables */
    void (*below)(const struct bench *b);

    /* Given by the frame. */
    struct mr_device *dev;
    struct mr_device_info info;
    struct bench_row *rows;
    uint64_t repeat;     /* that is measured, from 0 */
    bool interrupted;    /* rows that were not reached are left out */
    uint64_t n_measured; /* by then, of repeats x n_rows */

    /* What the figures say, by conclude: the last line of the text and of the page; "": none. */
    char verdict[768];
};

/* Does all of it. Returns an exit code. */
int bench_run(struct bench *b);

/* For open: rows of unknown values, where their number is not known before. Returns 0 or
 * -ENOMEM. */
int bench_rows(struct bench *b, int n);

/* For conclude: up to which relative difference two rows' values of `varies` may be chance, by
 * the spread of both; at least 5%. */
double bench_chance(const struct bench *b, const struct bench_row *one,
                    const struct bench_row *two);

/* frame_show.c: writes the chart, and the table or the JSON object. Returns an exit code. */
int bench_show(const struct bench *b);
/* "-": unknown. */
const char *bench_cell(const struct bench_column *c, double v, char buf[CLI_HUMAN]);
bool bench_is_shown(const struct bench_column *c, int part); /* in that table */
bool bench_is_empty(const struct bench *b, int part);        /* all its rows are left out */
#define BENCH_LEFT_OUT 512
/* Whether row i is the first that was left out for its reason. [out] names: of all such rows. */
bool bench_left_out(const struct bench *b, int i, char *names, size_t bytes);

/* frame_page.c: writes the page, with the tables below the charts, or the picture. */
int bench_draw(const struct bench *b);

/* "sim", "cuda: NVIDIA H200". Prints it. */
void bench_print_device(const struct bench *b);

#endif
