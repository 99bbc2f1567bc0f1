/* The walk of one optimizer on J = 100 x^2 + y^2, and the text that describes it. */
#include "bench/surface.h"

#include <math.h>
#include <string.h>

#define HOPELESS 1e12 /* a J from which nothing comes back */

static double height(const double at[2])
{
    return 100 * at[0] * at[0] + at[1] * at[1];
}

/* The rate above which x grows: where a root of its recurrence, with curvature 200, reaches -1.
 * NaN: no formula for this optimizer. */
static double rate_limit(const struct mr_optim_opts *o)
{
    double m = o->momentum;
    bool nesterov = o->nesterov || strcmp(o->name, "nesterov") == 0;
    if (strcmp(o->name, "sgd") != 0 && strcmp(o->name, "momentum") != 0 && !nesterov)
        return NAN;
    if (o->dampening != 0 || o->weight_decay != 0 || o->clip_norm != 0 || o->clip_value != 0 ||
        o->accumulate > 1)
        return NAN;
    return nesterov ? (2 + 2 * m) / ((1 + 2 * m) * 200) : (2 + 2 * m) / 200;
}

/* Is this step drawn in the chart of J? All of the first 64, then ever fewer. */
static bool sampled(const struct surface_path *p, uint64_t step)
{
    return p->n_samples < SURFACE_SAMPLES &&
           (step <= 64 || (double)step >= p->step[p->n_samples - 1] * 1.08);
}

static void note(struct surface_path *p, uint64_t step, const double at[2], double tolerance)
{
    double j = height(at);
    if (p->n <= SURFACE_DRAWN) {
        p->x[p->n] = at[0];
        p->y[p->n++] = at[1];
    }
    if (step && sampled(p, step)) {
        p->step[p->n_samples] = (double)step;
        p->j[p->n_samples++] = j <= SURFACE_CHART_J ? fmax(j, SURFACE_FLOOR(tolerance)) : 0;
    }
    p->steps = step;
    p->last_j = j;
}

static int walk(struct mr_optim *optim, struct surface_path *p, uint64_t steps, double tolerance)
{
    double at[2] = {SURFACE_START_X, SURFACE_START_Y};
    note(p, 0, at, tolerance);
    for (uint64_t step = 1; step <= steps && !p->diverged && !cli_interrupted(); step++) {
        const double slope[2] = {200 * at[0], 2 * at[1]}, before[2] = {at[0], at[1]};
        int rc = mr_optim_step(optim, at, slope, NULL);
        if (rc < 0)
            return rc;
        double j = height(at);
        if (step == 1) {
            p->first_dx = fabs(at[0] - before[0]);
            p->first_dy = fabs(at[1] - before[1]);
        }
        p->crossings += p->last_j >= tolerance && (before[0] < 0) != (at[0] < 0);
        if (!(j < tolerance))
            p->settled = 0;
        else if (!p->settled)
            p->settled = step;
        p->diverged = !(j < HOPELESS);
        note(p, step, at, tolerance);
    }
    if (p->settled + SURFACE_STAY > p->steps) /* passing through is not arriving */
        p->settled = 0;
    return 0;
}

int surface_walk(struct surface_path *path, uint64_t steps, double tolerance)
{
    struct mr_optim_opts opts = {.size = sizeof opts};
    struct mr_optim *optim = NULL;
    int rc = mr_optim_parse(path->optimizer, &opts);
    if (rc < 0)
        return rc;
    opts.threads = 1;
    rc = mr_optim_create_from(NULL, &opts, MR_F64, 2, NULL, 0, &optim);
    if (rc < 0)
        return rc;
    path->lr = opts.lr;
    path->lr_limit = rate_limit(&opts);
    rc = walk(optim, path, steps, tolerance);
    mr_optim_destroy(optim);
    return rc;
}

const char *surface_outcome(const struct surface_path *path, char buf[SURFACE_TEXT])
{
    char number[CLI_HUMAN];
    if (path->diverged && path->lr > path->lr_limit)
        snprintf(buf, SURFACE_TEXT, "diverges: lr is above its limit, %.3g", path->lr_limit);
    else if (path->diverged)
        snprintf(buf, SURFACE_TEXT, "diverges");
    else if (path->settled)
        snprintf(buf, SURFACE_TEXT, "%s step%s", cli_count((double)path->settled, number),
                 cli_s(path->settled));
    else
        snprintf(buf, SURFACE_TEXT, "not in %s step%s", cli_count((double)path->steps, number),
                 cli_s(path->steps));
    return buf;
}
