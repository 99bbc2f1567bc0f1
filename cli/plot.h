/*
 * Charts as SVG, or as an HTML page around it when the file's name ends in .html. One or more
 * panels side by side and below each other; series of one name have one colour in all of them and
 * one line in the legend.
 */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include <stdbool.h>
#include <stdio.h>

struct plot_series {
    const char *name; /* NULL: none, nor a line in the legend */
    const double *x;  /* bars: NULL */
    const double *y;  /* negative: left out */
    int n;            /* points, or bars: one a category */
};

struct plot_limit {
    const char *name; /* NULL: none */
    double y;
};

enum plot_ticks { PLOT_DECIMAL, PLOT_BINARY, PLOT_BYTES };

struct plot_panel {
    const char *title, *x_label, *y_label; /* with units */
    const char *const *categories;         /* bars: n of each series; NULL: lines */
    const struct plot_series *series;
    int n_series;
    struct plot_limit limit;
    bool log_x, log_y;
    enum plot_ticks x_ticks;
    bool percent; /* y is a share that comes near 100: the axis is logarithmic in what is missing */
    bool whole_x; /* x counts: ticks at whole numbers, from 0 when that is near */
};

struct plot {
    const char *title, *subtitle;
    const struct plot_panel *panels;
    int n_panels;
    const char *below;   /* HTML for below the charts, in pages alone; NULL: none */
    bool force;          /* may replace what is no chart */
    const char *verdict; /* of pages: what the figures say; NULL, "": nothing */
    const char
        *learn; /* of pages: the page of docs/learn that explains them, "workers"; NULL: none */
    const char *explain; /* of pages: what is measured and how to read it; NULL: nothing */
};

/* Whether the file's name says what to write, for before the measuring; and whether it may be
 * written without --force. NULL is allowed. Prints an error. Returns an exit code. */
int plot_check(const char *path);
int plot_check_name(const char *path); /* the first alone */

/* plot_page.c: what stands above the charts of every page, and below. */
void plot_page_head(const struct plot *plot, FILE *out);
void plot_page_below(const struct plot *plot, FILE *out);

/* Replaces a chart. Prints an error and returns an exit code. */
int plot_write(const struct plot *plot, const char *path);

#endif
