/* millrace bench surface: the paths of optimizers down a narrow valley. */
#include "bench/bench.h"
#include "bench/surface.h"
#include "bench/train.h"
#include "plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATHS = 20 };

struct opts {
    struct cli_common common;
    char *optimizers, *plot;
    uint64_t iterations;
    double tolerance;
};

#define OPT(...) BENCH_OPTION(struct opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("optimizers", MR_OPT_STRING, optimizers, .meta = "LIST",
        .initial = "sgd:lr=0.0101|sgd:lr=0.009|momentum:lr=0.005|nesterov:lr=0.005|adagrad:lr=1|"
                   "adadelta:lr=1|rmsprop:lr=0.05|adam:lr=0.3|amsgrad:lr=0.3|adamax:lr=0.3|"
                   "nadam:lr=0.3|radam:lr=0.02|lion:lr=0.03",
        .help = "Optimizers, separated by |; one may be listed several times"),
    OPT("iterations", MR_OPT_UINT, iterations, .key = 'n', .initial = "2000", .min = 1,
        .max = SURFACE_MOST_STEPS, .unit = "steps", .help = "Steps per optimizer, at most"),
    OPT("tolerance", MR_OPT_DOUBLE, tolerance, .initial = "1e-6", .min = 1e-12, .max = 100,
        .help = "An optimizer has arrived when J stays below this"),
    OPT("plot", MR_OPT_STRING, plot, .initial = "surface.html", .meta = "FILE",
        .help = "Output: FILE.html, with paths and contours, or FILE.svg, with J only"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

struct paths {
    struct surface_path path[MAX_PATHS];
    int n;
};

static int walk_all(const struct opts *o, struct paths *all)
{
    for (;; all->n++) {
        char *text = bench_item(o->optimizers, '|', all->n);
        if (!text)
            return CLI_OK;
        if (all->n == MAX_PATHS) {
            free(text);
            return cli_misuse("--optimizers: expected at most %d", MAX_PATHS);
        }
        struct surface_path *path = &all->path[all->n];
        path->optimizer = text;
        int rc = surface_walk(path, o->iterations, o->tolerance);
        if (rc < 0) {
            free(text);
            return cli_error(rc);
        }
    }
}

#define EXPLAIN                                                                                    \
    "A valley that is 100 times as steep across as along: plain gradient descent has to take "     \
    "small "                                                                                       \
    "steps, or it jumps from side to side. Momentum adds up the steps along; a step size for "     \
    "each "                                                                                        \
    "parameter makes both directions alike."

/* The last line: which is there first, and how many are at all. */
static void say(const struct opts *o, const struct paths *all, char *out, size_t cap)
{
    const struct surface_path *first = NULL;
    int arrived = 0, diverged = 0;
    char steps[CLI_HUMAN], most[CLI_HUMAN];
    for (int i = 0; i < all->n; i++) {
        const struct surface_path *p = &all->path[i];
        arrived += p->settled > 0;
        diverged += p->diverged;
        if (p->settled && (!first || p->settled < first->settled))
            first = p;
    }
    int used = first ? snprintf(out, cap, "first to arrive: %.64s, after %s steps; ",
                                first->optimizer, cli_count((double)first->settled, steps))
                     : 0;
    snprintf(out + used, cap - (size_t)used, "%d of %d arrive within %s steps; %d diverge%s",
             arrived, all->n, cli_count((double)o->iterations, most), diverged,
             diverged == 1 ? "s" : "");
}

static int draw(const struct opts *o, const struct paths *all)
{
    struct plot_series series[MAX_PATHS];
    char subtitle[160], label[64], verdict[240], *below = surface_draw(all->path, all->n);
    if (!below)
        return cli_fail("out of memory");
    for (int i = 0; i < all->n; i++) {
        const struct surface_path *p = &all->path[i];
        series[i] = (struct plot_series){p->optimizer, p->step, p->j, p->n_samples};
    }
    snprintf(subtitle, sizeof subtitle,
             "J = 100 x^2 + y^2 from (%g, %g): at most %" PRIu64 " steps, to J < %g",
             SURFACE_START_X, SURFACE_START_Y, o->iterations, o->tolerance);
    snprintf(label, sizeof label, "step (J below %g is drawn there)", SURFACE_FLOOR(o->tolerance));
    struct plot_panel panel = {.title = "J over the steps",
                               .x_label = label,
                               .y_label = "J",
                               .series = series,
                               .n_series = all->n,
                               .limit = {"tolerance", o->tolerance},
                               .log_x = true,
                               .log_y = true};
    say(o, all, verdict, sizeof verdict);
    int code = plot_write(&(struct plot){"Optimizers in a narrow valley", subtitle, &panel, 1,
                                         below, false, verdict, "optimizers", EXPLAIN},
                          o->plot);
    free(below);
    return code;
}

static void print_text(const struct opts *o, const struct paths *all)
{
    printf("J = 100 x^2 + y^2 from (%g, %g), gradient (200 x, 2 y); to J < %g\n\n", SURFACE_START_X,
           SURFACE_START_Y, o->tolerance);
    struct cli_table *table =
        cli_table_create("optimizer\t>first step in x\t>in y\t>crossings of x = 0\t>last J\t"
                         "arrives after");
    for (int i = 0; i < all->n; i++) {
        const struct surface_path *p = &all->path[i];
        char dx[CLI_HUMAN], dy[CLI_HUMAN], crossings[CLI_HUMAN], outcome[SURFACE_TEXT];
        cli_table_row(table, "%s\t%s\t%s\t%s\t%.2g\t%s", p->optimizer,
                      bench_fixed(p->first_dx, 4, "", dx), bench_fixed(p->first_dy, 4, "", dy),
                      cli_count((double)p->crossings, crossings), p->last_j,
                      surface_outcome(p, outcome));
    }
    cli_table_print(table, stdout, 2);
    char verdict[240];
    say(o, all, verdict, sizeof verdict);
    printf("\n%s\npaths: %s\n", verdict, o->plot);
}

static int print_json(const struct opts *o, const struct paths *all)
{
    struct mr_json *json = cli_json_begin("bench surface");
    if (!json)
        return CLI_FAILED;
    mr_json_array(json, "paths");
    for (int i = 0; i < all->n; i++) {
        const struct surface_path *p = &all->path[i];
        mr_json_object(json, NULL);
        mr_json_string(json, "optimizer", p->optimizer);
        mr_json_uint(json, "steps", p->steps);
        if (p->settled)
            mr_json_uint(json, "arrived", p->settled);
        mr_json_bool(json, "diverged", p->diverged);
        train_json_number(json, "last_j", p->last_j);
        train_json_number(json, "first_dx", p->first_dx);
        train_json_number(json, "first_dy", p->first_dy);
        mr_json_uint(json, "crossings", p->crossings);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end_config(json, options, o);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    (void)args;
    const struct opts *o = values;
    int code = plot_check(o->plot);
    if (code != CLI_OK)
        return code;
    struct paths *all = calloc(1, sizeof *all);
    if (!all)
        return cli_fail("out of memory");
    cli_catch_interrupts();
    code = walk_all(o, all);
    if (code == CLI_OK && cli_interrupted())
        code = cli_fail("interrupted; %s was not written", o->plot);
    if (code == CLI_OK)
        code = draw(o, all);
    if (code == CLI_OK && cli.json)
        code = print_json(o, all);
    else if (code == CLI_OK)
        print_text(o, all);
    for (int i = 0; i < all->n; i++)
        free(all->path[i].optimizer);
    free(all);
    return code;
}

static const struct cli_note json_notes[] = {
    {"paths", "of each: optimizer, steps (done), arrived (the step from which on J stays below "
              "the tolerance; left out: never), diverged, last_j, first_dx and first_dy (lengths "
              "of the first step), crossings (of x = 0)"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench surface", "all of them, surface.html"},
    {"millrace bench surface --optimizers 'sgd:lr=0.001|sgd:lr=0.0099|sgd:lr=0.0101'",
     "rates too small, just right and too large"},
    {NULL, NULL},
};

const struct cli_command cli_bench_surface = {
    .name = "bench surface",
    .summary = "Draw the paths of optimizers on J = 100 x^2 + y^2",
    .synopsis = "[options]",
    .text = "Minimizes a valley that is steep across and flat along with each optimizer, needs no "
            "data set, and counts the steps until J stays below a tolerance. Says which diverge, "
            "and of sgd, with or without momentum, the learning rate above which it does. The "
            "page has a chart of J over the steps, and each path over the contours of J.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .max_args = 0,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
