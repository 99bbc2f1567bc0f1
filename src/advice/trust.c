/* How far a recording can be believed: clocks that fit, steps enough and alike. */
#include "advice/rules.h"

#include <inttypes.h>
#include <math.h>

#define SLACK_NS    1000  /* by which clocks of host and device may differ */
#define EARLY_SOME  0.001 /* of the operations, that begin before their calls: doubtful */
#define EARLY_MANY  0.1   /* of the operations, or of steps without work: nothing can be said */
#define STEPS_FULL  10    /* fewer make a verdict less sure */
#define STEPS_FIRST 0.5   /* of none */
#define SPREAD_MOST 0.5   /* the most that an uncertain mean takes off */

/* Operations that begin before the calls that gave them to the device. */
static void find_early(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    uint64_t n = 0, n_early = 0;
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->api >= look->rec->n_apis)
            continue;
        n++;
        n_early += op->start_ns + SLACK_NS < look->rec->apis[op->api].start_ns;
    }
    c->trust.early = n > 0 ? (double)n_early / (double)n : 0;
}

/* Steps that gave the device work while it had none at all in them. */
static int find_empty(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    uint64_t n_empty = 0;
    if (look->n_steps == 0)
        return 0;
    struct mr_intervals steps = {look->steps.at + look->n_warm, look->n_steps, 0, false};
    bool *gives = calloc(look->n_steps, sizeof *gives);
    if (!gives)
        return mr_error_nomem("steps", look->n_steps);
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->api >= look->rec->n_apis)
            continue;
        uint64_t at_ns = look->rec->apis[op->api].start_ns;
        size_t step = mr_intervals_find(&steps, at_ns);
        if (step < steps.n && steps.at[step].start_ns <= at_ns)
            gives[step] = true;
    }
    for (size_t i = 0; i < steps.n; i++)
        n_empty += gives[i] &&
                   mr_intervals_within(&look->busy, steps.at[i].start_ns, steps.at[i].end_ns) == 0;
    c->trust.empty = (double)n_empty / (double)look->n_steps;
    free(gives);
    return 0;
}

/* By how many steps there are, and by how well they tell the mean: its standard error. */
static void weigh_steps(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    double n = (double)look->n_steps, mean = (double)look->wall_ns / MR_MAX(n, 1.0), squares = 0;
    c->trust.steps = 1;
    if (look->n_steps == 0 || mean <= 0)
        return;
    for (uint64_t i = look->n_warm; i < look->steps.n; i++) {
        double off = (double)(look->steps.at[i].end_ns - look->steps.at[i].start_ns) - mean;
        squares += off * off;
    }
    double spread = n > 1 ? sqrt(squares / (n - 1)) / mean : 1;
    c->trust.error = spread / sqrt(n);
    c->trust.steps = (1 - MR_MIN(c->trust.error, SPREAD_MOST)) *
                     (n < STEPS_FULL ? STEPS_FIRST + (1 - STEPS_FIRST) * n / STEPS_FULL : 1);
}

int mr_trust_find(struct mr_case *c)
{
    find_early(c);
    weigh_steps(c);
    return find_empty(c);
}

double mr_trust_factor(const struct mr_case *c)
{
    bool clocks = c->trust.early > EARLY_SOME || c->trust.empty > EARLY_SOME;
    return c->trust.steps * (mr_trust_none(c) ? 0.1 : clocks ? 0.5 : 1);
}

bool mr_trust_none(const struct mr_case *c)
{
    return c->trust.early > EARLY_MANY || c->trust.empty > EARLY_MANY;
}

size_t mr_trust_tell(const struct mr_case *c, char *out, size_t cap)
{
    const struct mr_trust *t = &c->trust;
    int n = 0;
    out[0] = 0;
    if (t->early > EARLY_SOME)
        n = snprintf(out, cap,
                     "%.1f%% of the device's operations begin before the calls that gave them to "
                     "it: the clocks of host and device do not fit",
                     100 * t->early);
    else if (t->empty > EARLY_SOME)
        n = snprintf(out, cap,
                     "%.0f%% of the steps gave the device work, but hold none of it: the clocks of "
                     "host and device do not fit, or work is missing",
                     100 * t->empty);
    return n > 0 ? (size_t)n : 0;
}
