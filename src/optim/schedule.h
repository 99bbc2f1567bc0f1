/* The schedule vtable. */
#ifndef MR_OPTIM_SCHEDULE_H
#define MR_OPTIM_SCHEDULE_H

#include "base/base.h"
#include <millrace/optim.h>

/* What the option tables fill; a kind uses some of it. */
struct mr_schedule_values {
    double gamma, end, start;
    uint64_t every, length, mult;
    struct mr_doubles at;
    double min, pct, div, final_div;
    int restarts, linear, three_phase;
    uint64_t patience, cooldown;
    double threshold, eps;
    int absolute, max;
    int per; /* 0: epoch, 1: iteration */
};

/* plateau's memory */
struct mr_schedule_seen {
    double best, bad, cooldown, reductions;
};

struct mr_schedule_ops {
    const char *name, *arguments, *summary;
    const struct mr_option *options;
    const char *const *positional;
    /* Optional: values that do not go together: MR_EOPTION. */
    int (*check)(const char *name, const struct mr_schedule_values *v);
    /* t: the counter; base > 0 or 0. Required but of the warm-up. */
    double (*lr)(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                 double base, uint64_t t);
};

extern const struct mr_schedule_ops mr_schedule_kinds[], mr_schedule_warmup;
extern const size_t mr_schedule_n_kinds;

struct mr_schedule {
    const struct mr_schedule_ops *ops;
    struct mr_schedule_values values, warm; /* warm.length 0: no warm-up */
    struct mr_schedule_seen seen;
};

#endif
