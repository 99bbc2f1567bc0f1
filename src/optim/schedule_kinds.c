/* The kinds of schedules: options and formulas. */
#include "optim/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

#define ENTRY(member, kind, text, low, high, about)                                                \
    {                                                                                              \
        .name = #member, .type = kind, .offset = offsetof(struct mr_schedule_values, member),      \
        .initial = text, .min = low, .max = high, .help = about                                    \
    }
#define FLAG(member, about) ENTRY(member, MR_OPT_FLAG, "0", 0, 0, about)
#define LENGTH(about)       ENTRY(length, MR_OPT_UINT, "0", 0, 1e15, about)
static const char *const counters[] = {"epoch", "iteration", NULL};
#define PER(text)                                                                                  \
    {                                                                                              \
        .name = "per", .type = MR_OPT_ENUM, .offset = offsetof(struct mr_schedule_values, per),    \
        .initial = text, .choices = counters, .help = "what is counted"                            \
    }

static int wants_length(const char *name, const struct mr_schedule_values *v)
{
    return v->length ? 0
                     : mr_error_set(MR_EOPTION, "schedule %s: expected how long, as in %s:10", name,
                                    name);
}

/* constant */
static const struct mr_option constant_options[] = {{0}};
static double constant_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                          double base, uint64_t t)
{
    (void)v, (void)seen, (void)t;
    return base;
}

/* step */
static const struct mr_option step_options[] = {
    ENTRY(gamma, MR_OPT_DOUBLE, "0.1", 0, 1e6, "factor"),
    ENTRY(every, MR_OPT_UINT, "1", 1, 1e15, "how often"),
    PER("epoch"),
    {0},
};
static const char *const step_positional[] = {"gamma", "every", NULL};
static double step_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                      double base, uint64_t t)
{
    uint64_t times = t / v->every;
    (void)seen;
    return base * pow(v->gamma, (double)times);
}

/* multistep */
static const struct mr_option multistep_options[] = {
    ENTRY(gamma, MR_OPT_DOUBLE, "0.1", 0, 1e6, "factor"),
    ENTRY(at, MR_OPT_DOUBLES, NULL, 0, 1e15, "when"),
    PER("epoch"),
    {0},
};
static const char *const multistep_positional[] = {"gamma", "at", NULL};
static double multistep_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                           double base, uint64_t t)
{
    int reached = 0;
    (void)seen;
    for (int i = 0; i < v->at.n; i++)
        reached += (double)t >= v->at.v[i];
    return base * pow(v->gamma, reached);
}
static int multistep_check(const char *name, const struct mr_schedule_values *v)
{
    return v->at.n ? 0
                   : mr_error_set(MR_EOPTION, "schedule %s: expected when, as in %s:0.1/30:60",
                                  name, name);
}

/* exponential */
static const struct mr_option exponential_options[] = {
    ENTRY(gamma, MR_OPT_DOUBLE, "0.95", 0, 1e6, "factor"),
    PER("epoch"),
    {0},
};
static const char *const gamma_positional[] = {"gamma", NULL};
static double exponential_lr(const struct mr_schedule_values *v,
                             const struct mr_schedule_seen *seen, double base, uint64_t t)
{
    (void)seen;
    return base * pow(v->gamma, (double)t);
}

/* linear */
static const struct mr_option linear_options[] = {
    ENTRY(end, MR_OPT_DOUBLE, "0", 0, 1e6, "factor at the end"),
    LENGTH("how long"),
    PER("epoch"),
    {0},
};
static const char *const linear_positional[] = {"end", "length", NULL};
static double line(double from, double to, uint64_t t, uint64_t length)
{
    return t >= length ? to : from + (to - from) * ((double)t / (double)length);
}
static double linear_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                        double base, uint64_t t)
{
    (void)seen;
    return base * line(1, v->end, t, v->length);
}

/* cosine */
static const struct mr_option cosine_options[] = {
    LENGTH("how long"),
    FLAG(restarts, "again and again"),
    ENTRY(mult, MR_OPT_UINT, "1", 1, 1e6, "how much longer each period is than the last"),
    ENTRY(min, MR_OPT_DOUBLE, "0", 0, 1e30, "the lowest rate"),
    PER("epoch"),
    {0},
};
static const char *const length_positional[] = {"length", NULL};
static double cosine_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                        double base, uint64_t t)
{
    uint64_t period = v->length;
    (void)seen;
    if (v->restarts && v->mult == 1)
        t %= period;
    while (v->restarts && t >= period) {
        t -= period;
        if (!mr_mul(period, v->mult, &period))
            period = UINT64_MAX;
    }
    double part = t >= period ? 1 : (double)t / (double)period;
    return v->min + (base - v->min) * (1 + cos(PI * part)) / 2;
}

/* onecycle */
static const struct mr_option onecycle_options[] = {
    LENGTH("how long in all"),
    ENTRY(pct, MR_OPT_DOUBLE, "0.3", 0, 1, "part of it on the way up"),
    ENTRY(div, MR_OPT_DOUBLE, "25", 1e-30, 1e30, "the first rate is the base over this"),
    ENTRY(final_div, MR_OPT_DOUBLE, "1e4", 1e-30, 1e30, "the last rate is the first over this"),
    FLAG(linear, "straight lines, not cosines"),
    FLAG(three_phase, "down as long as up, then to the last rate"),
    PER("iteration"),
    {0},
};
static double between(const struct mr_schedule_values *v, double from, double to, double part)
{
    return v->linear ? (to - from) * part + from : to + (from - to) / 2 * (cos(PI * part) + 1);
}
static double onecycle_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                          double base, uint64_t t)
{
    double first = base / v->div, last = first / v->final_div, n = (double)v->length,
           now = (double)t, from = 0;
    const struct {
        double end, from, to;
    } two[] = {{v->pct * n - 1, first, base}, {n - 1, base, last}},
      three[] = {{v->pct * n - 1, first, base},
                 {2 * v->pct * n - 2, base, first},
                 {n - 1, first, last}},
      *phase = v->three_phase ? three : two;
    (void)seen;
    if (now >= n - 1)
        return last;
    int i = 0, final = v->three_phase ? 2 : 1;
    for (; i < final && now > phase[i].end; i++)
        from = phase[i].end;
    double length = phase[i].end - from;
    return between(v, phase[i].from, phase[i].to, length > 0 ? (now - from) / length : 1);
}

/* plateau */
static const struct mr_option plateau_options[] = {
    ENTRY(gamma, MR_OPT_DOUBLE, "0.1", 0, 0.999999999, "factor"),
    ENTRY(patience, MR_OPT_UINT, "10", 0, 1e15, "epochs that may pass without getting better"),
    ENTRY(threshold, MR_OPT_DOUBLE, "1e-4", 0, 1e30,
          "what counts as better: this part of the best"),
    FLAG(absolute, "the threshold is a difference"),
    FLAG(max, "more is better"),
    ENTRY(cooldown, MR_OPT_UINT, "0", 0, 1e15, "epochs after a reduction in which none is counted"),
    ENTRY(min, MR_OPT_DOUBLE, "0", 0, 1e30, "the lowest rate"),
    ENTRY(eps, MR_OPT_DOUBLE, "1e-8", 0, 1e30, "smaller reductions are left out"),
    {0},
};
static double plateau_lr(const struct mr_schedule_values *v, const struct mr_schedule_seen *seen,
                         double base, uint64_t t)
{
    (void)t;
    for (uint64_t i = 0, n = (uint64_t)seen->reductions; i < n; i++) {
        double next = MR_MAX(base * v->gamma, v->min);
        if (!(base - next > v->eps))
            break; /* nor would any later one */
        base = next;
    }
    return base;
}

static const struct mr_option warmup_options[] = {
    LENGTH("how long"),
    ENTRY(start, MR_OPT_DOUBLE, "0.01", 0, 1, "factor at the start"),
    PER("iteration"),
    {0},
};

const struct mr_schedule_ops mr_schedule_warmup = {"warmup",
                                                   "N[/start=0.01]",
                                                   "in front of another: up to its rate",
                                                   warmup_options,
                                                   length_positional,
                                                   wants_length,
                                                   NULL};

const struct mr_schedule_ops mr_schedule_kinds[] = {
    {"constant", "", "the base rate", constant_options, NULL, NULL, constant_lr},
    {"step", "GAMMA[/EVERY]", "times GAMMA every so often", step_options, step_positional, NULL,
     step_lr},
    {"multistep", "GAMMA/T1:T2:...", "times GAMMA at T1, T2, ...", multistep_options,
     multistep_positional, multistep_check, multistep_lr},
    {"exponential", "GAMMA", "times GAMMA each time", exponential_options, gamma_positional, NULL,
     exponential_lr},
    {"linear", "END/T", "a straight line to END times the base rate", linear_options,
     linear_positional, wants_length, linear_lr},
    {"cosine", "T[/restarts][/mult=1][/min=0]", "half a cosine, once or again and again",
     cosine_options, length_positional, wants_length, cosine_lr},
    {"onecycle", "T[/pct=0.3][/div=25][/final_div=1e4][/linear][/three_phase]",
     "up to the base rate, and far down", onecycle_options, length_positional, wants_length,
     onecycle_lr},
    {"plateau",
     "[FACTOR][/patience=10][/threshold=1e-4][/absolute][/max][/cooldown=0][/min=0][/eps=1e-8]",
     "down when a metric does not get better", plateau_options, gamma_positional, NULL, plateau_lr},
};
const size_t mr_schedule_n_kinds = MR_COUNT(mr_schedule_kinds);
