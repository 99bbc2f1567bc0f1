/*
 * Paths of optimizers on J = 100 x^2 + y^2, a valley whose curvature across is 100
 * times that along.
 *
 * The gradient is (200 x, 2 y). Plain gradient descent multiplies x by 1 - 200 lr and y by 1 - 2 lr
 * each step: above lr = 2/200 it diverges, and at the largest rate that does not, y still shrinks
 * by 2% a step only. Momentum and per-parameter rates are two ways out of that.
 */
#ifndef CLI_BENCH_SURFACE_H
#define CLI_BENCH_SURFACE_H

#include "cli.h"

#define SURFACE_START_X          1.0
#define SURFACE_START_Y          10.0
/* The chart over the steps leaves larger J out and draws smaller ones at the floor: a hundred
 * decades would hide the ones that matter. */
#define SURFACE_CHART_J          1e4
#define SURFACE_FLOOR(tolerance) ((tolerance) / 100)

/* Samples: 64, then one for each 8% more steps; SURFACE_MOST_STEPS take 219. */
enum {
    SURFACE_STAY = 20,
    SURFACE_DRAWN = 400,
    SURFACE_SAMPLES = 256,
    SURFACE_MOST_STEPS = 10000000
};

/* What one optimizer did. */
struct surface_path {
    char *optimizer;
    double x[SURFACE_DRAWN + 1], y[SURFACE_DRAWN + 1]; /* the first points, from the start on */
    int n;
    double step[SURFACE_SAMPLES], j[SURFACE_SAMPLES]; /* thinned; 0: left out of the chart */
    int n_samples;
    uint64_t steps;            /* done */
    uint64_t settled;          /* from this step on J stays below the tolerance, for SURFACE_STAY
                                * steps or more; 0: it does not */
    uint64_t crossings;        /* of x = 0, while J was not below the tolerance */
    double first_dx, first_dy; /* the first step's lengths */
    double last_j;
    bool diverged;
    double lr, lr_limit; /* lr_limit: of sgd, above which x grows; NaN: of others */
};

/* Runs path->optimizer for `steps` steps. Returns 0 or the library's error. */
int surface_walk(struct surface_path *path, uint64_t steps, double tolerance);

/* "612 steps", "diverges: lr is above its limit, 0.01", "not in 20,000 steps". Returns buf. */
#define SURFACE_TEXT 96
const char *surface_outcome(const struct surface_path *path, char buf[SURFACE_TEXT]);

/* HTML with one small chart a path: contours and points. malloc'd; NULL without memory. */
char *surface_draw(const struct surface_path *paths, int n);

#endif
