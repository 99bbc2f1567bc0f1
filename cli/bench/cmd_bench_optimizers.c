/* millrace bench optimizers: nets x optimizers x seeds on one data set; curves and a table. */
#include "bench/bench.h"
#include "bench/optimizers.h"
#include "plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 20000, QUICK_STEPS = 400 };

#define OPT(...) BENCH_OPTION(struct optim_opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("models", MR_OPT_STRING, models, .initial = "softmax|mlp:100s|mlp:300s,100r,50s|mnist-cnn",
        .meta = "LIST", .help = "Nets, separated by |"),
    OPT("optimizers", MR_OPT_STRING, optimizers, .meta = "LIST",
        .initial = "sgd:lr=0.1|momentum:lr=0.01|nesterov:lr=0.01|adagrad:lr=0.01|adadelta:lr=1|"
                   "rmsprop:lr=1e-3|"
                   "adam:lr=1e-3|adamw:lr=1e-3|amsgrad:lr=1e-3|adamax:lr=2e-3|nadam:lr=1e-3|radam:"
                   "lr=1e-3|lion:lr=1e-4",
        .help = "Optimizers, separated by |; behind an @ the schedule of one: "
                "'sgd:lr=0.1@step:0.7'. One may be listed several times"),
    OPT("iterations", MR_OPT_UINT, iterations, .key = 'n', .min = OPTIM_POINTS, .max = 1e9,
        .unit = "steps", .help = "Steps per run; by default 20000, with --quick 400"),
    OPT("quick", MR_OPT_FLAG, quick,
        .help = "Train the perceptrons only, for 400 steps unless --iterations is given"),
    OPT("seeds", MR_OPT_UINT, seeds, .initial = "1", .min = 1, .max = OPTIM_MAX_SEEDS,
        .help = "Runs of each, with seeds from --seed on: mean and standard deviation"),
    OPT("lr-sweep", MR_OPT_STRING, sweep, .meta = "LIST",
        .help = "Before that, try each optimizer's learning rate times these numbers, such as "
                "0.1,0.3,1,3,10, and use the best: one run of each, with a seed that is not "
                "reported, chosen by the test set"),
    OPT("target-acc", MR_OPT_PERCENT, target, .initial = "90%", .min = 0, .max = 1, .meta = "P%",
        .help = "Test accuracy that steps and seconds are reported to"),
    OPT("tests", MR_OPT_UINT, tests, .initial = "10", .min = 1, .max = OPTIM_MAX_TESTS,
        .unit = "tests", .help = "Tests per run; their time is not counted"),
    OPT("transform", MR_OPT_STRING, transform, .key = 't', .meta = "CHAIN",
        .help = "Ops on each sample, as for millrace train"),
    OPT("test", MR_OPT_STRING, test, .meta = "DATASET",
        .help = "The test set, as for millrace train"),
    OPT("classes", MR_OPT_UINT, classes, .initial = "0", .max = 1e6, .unit = "classes",
        .help = "As for millrace train"),
    CLI_LOADER_OPTION(struct optim_opts, loader, "batch-size", .initial = "128", .max = 1 << 20,
                      .group = "Options"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda"),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0",
        .help = "Seed of parameters and order, the same for all optimizers"),
    BENCH_THREADS_OPTION(struct optim_opts),
    OPT("plot", MR_OPT_STRING, plot, .initial = "optimizers.html", .meta = "FILE",
        .help = "Output page: FILE.html, with the table, or FILE.svg"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

/* ---- lists ---- */

static int read_sweep(struct optim_bench *b)
{
    const char *text = b->opts->sweep, *at = text;
    while (at && *at) {
        char *end;
        double v = strtod(at, &end);
        bool good = end != at && v > 0 && v <= 1e9 && (!*end || (*end == ',' && end[1]));
        if (!good || b->n_factors == OPTIM_MAX_RATES ||
            (b->n_factors && v <= b->factor[b->n_factors - 1]))
            return cli_misuse("--lr-sweep %s: expected at most %d positive numbers, ascending, "
                              "with commas between",
                              text, OPTIM_MAX_RATES);
        b->factor[b->n_factors++] = v;
        at = *end ? end + 1 : end;
    }
    return CLI_OK;
}

/* "sgd:lr=0.1@step:0.7". Returns an exit code. */
static int read_optimizer(struct optim_curve *c, char *text, uint64_t seeds)
{
    const char *at = strchr(text, '@');
    struct mr_optim_opts optim = {.size = sizeof optim};
    struct mr_schedule *schedule;
    c->text = text;
    c->optimizer = at ? strndup(text, (size_t)(at - text)) : strdup(text);
    c->schedule = strdup(at ? at + 1 : "constant");
    c->run = calloc(seeds, sizeof *c->run);
    if (!c->optimizer || !c->schedule || !c->run)
        return cli_fail("out of memory");
    int rc = mr_optim_parse(c->optimizer, &optim);
    if (rc < 0)
        return cli_error(rc);
    c->given_lr = c->lr = optim.lr;
    rc = mr_schedule_parse(c->schedule, &schedule);
    if (rc < 0)
        return cli_error(rc);
    mr_schedule_destroy(schedule);
    return CLI_OK;
}

static int read_optimizers(const struct optim_opts *o, struct optim_net *net)
{
    for (;;) {
        char *text = bench_item(o->optimizers, '|', net->n);
        if (!text)
            return CLI_OK;
        if (net->n == OPTIM_MAX) {
            free(text);
            return cli_misuse("--optimizers: expected at most %d", OPTIM_MAX);
        }
        int code = read_optimizer(&net->curve[net->n++], text, o->seeds);
        if (code != CLI_OK)
            return code;
    }
}

static int read_models(struct optim_bench *b)
{
    const struct optim_opts *o = b->opts;
    for (int i = 0;; i++) {
        char *model = bench_item(o->models, '|', i);
        if (!model)
            break;
        if (o->quick && strncmp(model, "mlp:", 4) != 0 && strcmp(model, "softmax") != 0) {
            free(model);
            continue;
        }
        if (b->n_nets == OPTIM_MAX_NETS) {
            free(model);
            return cli_misuse("--models: expected at most %d", OPTIM_MAX_NETS);
        }
        struct optim_net *net = &b->net[b->n_nets++];
        net->model = model;
        int code = read_optimizers(o, net);
        if (code != CLI_OK)
            return code;
    }
    return b->n_nets ? CLI_OK
                     : cli_misuse("--models: --quick leaves the perceptrons, and none was given");
}

static void free_lists(struct optim_bench *b)
{
    for (int i = 0; i < b->n_nets; i++) {
        for (int k = 0; k < b->net[i].n; k++) {
            struct optim_curve *c = &b->net[i].curve[k];
            free(c->text);
            free(c->optimizer);
            free(c->schedule);
            free(c->run);
        }
        free(b->net[i].model);
    }
}

/* ---- the command ---- */

static int set_options(struct optim_bench *b)
{
    const struct optim_opts *o = b->opts;
    int rc = bench_train_init(&b->train);
    b->iterations = o->iterations ? o->iterations : o->quick ? QUICK_STEPS : STEPS;
    b->train.loader.batch_size = o->loader.batch_size;
    b->train.threads = o->threads;
    b->train.classes = o->classes;
    b->train.epochs = 1000000000;
    if (rc == 0 && o->transform)
        rc = bench_train_set(&b->train, "transform", o->transform);
    if (rc == 0 && o->test)
        rc = bench_train_set(&b->train, "test", o->test);
    return rc == 0 ? bench_train_set(&b->train, "device", o->device) : rc;
}

static uint64_t total_steps(const struct optim_bench *b)
{
    uint64_t runs = b->opts->seeds + (uint64_t)b->n_factors;
    return b->iterations * (uint64_t)b->n_nets * (uint64_t)b->net[0].n * runs;
}

static int measure(struct optim_bench *b, const char *dataset)
{
    int code = read_sweep(b);
    if (code == CLI_OK)
        code = read_models(b);
    if (code != CLI_OK)
        return code;
    int rc = set_options(b);
    if (rc == 0)
        rc = train_data_open(&b->data, dataset, &b->train, NULL);
    cli_progress_begin(&b->progress, "optimizers", total_steps(b), "steps");
    if (rc == 0)
        rc = optim_run_all(b);
    cli_progress_end(&b->progress);
    if (rc < 0)
        return cli_error(rc);
    bool whole = !cli_interrupted(); /* a part replaces no page */
    optim_sum_up(b);
    code = whole ? optim_draw(b) : CLI_OK;
    if (cli.json && code == CLI_OK)
        code = optim_print_json(b, options);
    else if (code == CLI_OK) {
        optim_print(b);
        printf(whole ? "curves: %s\n" : "Interrupted: %s was not written.\n", b->opts->plot);
    }
    return whole ? code : CLI_FAILED;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    const struct optim_opts *o = values;
    int code = plot_check(o->plot);
    if (code != CLI_OK)
        return code;
    struct optim_bench *b = calloc(1, sizeof *b);
    if (!b)
        return cli_fail("out of memory");
    b->opts = o;
    code = measure(b, args[0]);
    free_lists(b);
    train_data_close(&b->data);
    bench_train_free(&b->train);
    free(b);
    return code;
}

static const struct cli_note json_notes[] = {
    {"device, iterations", "what was used; steps per run"},
    {"sweep_seed", "of the runs that chose the learning rates, which are not reported; with "
                   "--lr-sweep"},
    {"runs", "of each: model, optimizer, schedule, lr, seed, steps (done), loss (means of 40 "
             "nearly equal parts), step_rms (by how much the last step of each part changed a "
             "parameter, root mean square), test_accuracy and test_seconds (of each test), "
             "last_loss, seconds (tests left out), failed (its loss became infinite)"},
    {"results",
     "of each net and optimizer over the seeds: net, by, lr, means and standard "
     "deviations, steps_to_target and seconds_to_target (medians; null: at least half never did), "
     "best, sweep_lr and sweep_score (test accuracy, or the negated loss without "
     "tests; null: failed)"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench optimizers mnist/ --plot optimizers.html",
     "four nets, thirteen optimizers, 20,000 steps each"},
    {"millrace bench optimizers mnist/ --quick", "the perceptrons, 400 steps"},
    {"millrace bench optimizers mnist/ --models mlp:100s --seeds 5 --lr-sweep 0.1,0.3,1,3,10",
     "each at the best of five learning rates, with the spread over five seeds"},
    {"millrace bench optimizers mnist/ --models mnist-cnn --optimizers "
     "'sgd:lr=0.1|sgd:lr=0.1@step:0.7|adam:lr=1e-3|adam:lr=1e-3@cosine:10'",
     "with and without a schedule"},
    {"millrace synth words words/ && millrace bench optimizers words/ --models mlp:32r -n 2000",
     "a sparse set: most words are in few texts"},
    {NULL, NULL},
};

const struct cli_command cli_bench_optimizers = {
    .name = "bench optimizers",
    .summary = "Train nets by all optimizers: loss and accuracy on one page",
    .synopsis = "DATASET [options]",
    .text = "Trains each net with each optimizer, from the same parameters and in the same order. "
            "Plots training loss, test accuracy and the size of a step over the steps, with a "
            "table of the final values, and of the steps and seconds to an accuracy. An optimizer "
            "is called best only if it is ahead by more than the spread over at least five seeds. "
            "If a run's "
            "loss becomes infinite, that is reported and the others continue.",
    .options = options,
    .options_bytes = sizeof(struct optim_opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
