/* millrace bench optimizers: nets x optimizers on one data set; curves and a table. */
#include "bench/bench.h"
#include "bench/train.h"
#include "plot.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NETS = 8,
    MAX_OPTIMIZERS = 20,
    POINTS = 40,
    TESTS = 10,
    STEPS = 20000,
    QUICK_STEPS = 400
};

struct opts {
    struct cli_common common;
    char *models, *optimizers, *device, *plot;
    struct mr_loader_opts loader; /* its batch_size */
    uint64_t iterations, seed, threads;
    int quick;
};

#define OPT(...) BENCH_OPTION(struct opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("models", MR_OPT_STRING, models, .initial = "softmax|mlp:100s|mlp:300s,100r,50s|mnist-cnn",
        .meta = "LIST", .help = "Nets, separated by |"),
    OPT("optimizers", MR_OPT_STRING, optimizers, .meta = "LIST",
        .initial = "sgd:lr=0.1|momentum:lr=0.01|nesterov:lr=0.01|adagrad:lr=0.01|adadelta:lr=1|"
                   "rmsprop:lr=1e-3|"
                   "adam:lr=1e-3|adamw:lr=1e-3|amsgrad:lr=1e-3|adamax:lr=2e-3|nadam:lr=1e-3|radam:"
                   "lr=1e-3|lion:lr=1e-4",
        .help = "Optimizers, separated by |"),
    OPT("iterations", MR_OPT_UINT, iterations, .key = 'n', .min = POINTS, .max = 1e9,
        .unit = "steps", .help = "Steps per run; by default 20000, with --quick 400"),
    OPT("quick", MR_OPT_FLAG, quick,
        .help = "Train the perceptrons only, for 400 steps unless --iterations is given"),
    CLI_LOADER_OPTION(struct opts, loader, "batch-size", .initial = "128", .max = 1 << 20,
                      .group = "Options"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda"),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0",
        .help = "Seed of parameters and order, the same for all runs"),
    OPT("threads", MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "Compute threads on cpu; 0: one per processor that this process may use"),
    OPT("plot", MR_OPT_STRING, plot, .initial = "optimizers.html", .meta = "FILE",
        .help = "Output page: FILE.html, with the table, or FILE.svg"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

struct curve {
    char *optimizer;
    double step[POINTS], loss[POINTS];
    double test_step[TESTS], accuracy[TESTS];
    int n_points, n_tests;
    double seconds, test_loss;
    uint64_t steps; /* done */
    bool failed;    /* its loss became infinite */
    char why[160];  /* why it is shorter than the others; "": it is not */
};

struct net {
    char *model;
    struct curve curve[MAX_OPTIMIZERS];
    int n;
};

struct bench {
    const struct opts *opts;
    struct train_data data;
    struct train_opts train;
    struct net net[MAX_NETS];
    int n_nets;
    uint64_t iterations;
    struct cli_progress progress;
    uint64_t done;
};

static int test_point(struct train *t, struct curve *c)
{
    struct mr_train_sums sums = {.size = sizeof sums};
    if (!t->data->test || c->n_tests == TESTS)
        return 0;
    int rc = mr_trainer_test(t->trainer, &sums);
    if (rc == 0) {
        c->test_step[c->n_tests] = (double)t->info.step;
        c->accuracy[c->n_tests++] = 100 * (double)sums.n_right / (double)sums.n_samples;
        c->test_loss = sums.loss / (double)sums.n_samples;
    }
    return rc;
}

/* The mean over the steps since the point before. */
static int loss_point(struct train *t, struct curve *c, struct mr_train_sums *before)
{
    struct mr_train_sums now = {.size = sizeof now};
    int rc = mr_trainer_sums(t->trainer, &now);
    if (rc < 0)
        return rc;
    if (now.n_samples > before->n_samples && c->n_points < POINTS) {
        c->step[c->n_points] = (double)t->info.step;
        c->loss[c->n_points++] =
            (now.loss - before->loss) / (double)(now.n_samples - before->n_samples);
    }
    *before = now;
    return 0;
}

/* Is this step the end of one of n equal parts? The last step always is. */
static bool ends_part(uint64_t step, uint64_t iterations, uint64_t n)
{
    return step * n / iterations > (step - 1) * n / iterations;
}

static int run_curve(struct bench *b, struct train *t, struct curve *c)
{
    struct mr_train_sums sums = {.size = sizeof sums};
    int last, rc = 1;
    while (rc >= 0 && t->info.step < b->iterations && !cli_interrupted()) {
        uint64_t start = mr_time_ns();
        rc = mr_trainer_step(t->trainer, &last);
        if (rc <= 0)
            break;
        mr_trainer_query(t->trainer, &t->info);
        if (ends_part(t->info.step, b->iterations, POINTS))
            rc = loss_point(t, c, &sums);
        c->seconds += (double)(mr_time_ns() - start) * 1e-9;
        c->steps = t->info.step;
        if (rc >= 0 && ends_part(t->info.step, b->iterations, TESTS))
            rc = test_point(t, c);
        cli_progress_update(&b->progress, ++b->done);
    }
    if (rc >= 0 && c->steps < b->iterations)
        snprintf(c->why, sizeof c->why, "interrupted at step %" PRIu64, c->steps);
    return rc;
}

/* A loss that becomes infinite is a result; all else is an error. */
static int one(struct bench *b, const char *model, struct curve *c)
{
    struct train t = {0};
    int rc = bench_train_set(&b->train, "model", model);
    if (rc == 0)
        rc = bench_train_set(&b->train, "optimizer", c->optimizer);
    if (rc == 0)
        rc = train_open(&t, &b->data, &b->train, NULL);
    if (rc == 0)
        rc = run_curve(b, &t, c);
    if (rc == MR_EMISUSE && strstr(mr_last_error(), "not finite")) {
        c->failed = true;
        snprintf(c->why, sizeof c->why, "not finite at step %" PRIu64, t.info.step + 1);
        rc = 0;
    }
    train_close(&t);
    return rc;
}

static int run_all(struct bench *b)
{
    int rc = 0;
    for (int i = 0; i < b->n_nets && rc >= 0; i++)
        for (int k = 0; k < b->net[i].n && rc >= 0 && !cli_interrupted(); k++)
            rc = one(b, b->net[i].model, &b->net[i].curve[k]);
    return rc < 0 ? rc : 0;
}

static int read_lists(struct bench *b)
{
    const struct opts *o = b->opts;
    b->iterations = o->iterations;
    for (int i = 0;; i++) {
        char *model = bench_item(o->models, '|', i);
        if (!model)
            break;
        if (o->quick && strncmp(model, "mlp:", 4) != 0 && strcmp(model, "softmax") != 0) {
            free(model);
            continue;
        }
        if (b->n_nets == MAX_NETS) {
            free(model);
            return cli_misuse("--models: expected at most %d", MAX_NETS);
        }
        struct net *net = &b->net[b->n_nets++];
        net->model = model;
        for (int k = 0;; k++) {
            char *optimizer = bench_item(o->optimizers, '|', k);
            if (!optimizer)
                break;
            if (k == MAX_OPTIMIZERS) {
                free(optimizer);
                return cli_misuse("--optimizers: expected at most %d", MAX_OPTIMIZERS);
            }
            net->curve[net->n++] = (struct curve){.optimizer = optimizer, .test_loss = NAN};
        }
    }
    return b->n_nets ? CLI_OK
                     : cli_misuse("--models: --quick leaves the perceptrons, and none was given");
}

static double final_accuracy(const struct curve *c)
{
    return c->n_tests ? c->accuracy[c->n_tests - 1] : NAN;
}

static double final_loss(const struct curve *c)
{
    return c->n_points ? c->loss[c->n_points - 1] : NAN;
}

static double ms_a_step(const struct curve *c)
{
    return c->steps ? 1e3 * c->seconds / (double)c->steps : NAN;
}

/* The higher test accuracy, of equal ones the lower loss; without tests the lower loss. */
static bool is_better(const struct curve *c, const struct curve *d)
{
    if (c->n_tests && d->n_tests && final_accuracy(c) != final_accuracy(d))
        return final_accuracy(c) > final_accuracy(d);
    return final_loss(c) < final_loss(d);
}

/* Which run of a net ended best; -1: none did, or one alone could be compared. */
static int best_of(const struct net *net)
{
    int best = -1, n = 0;
    for (int k = 0; k < net->n; k++) {
        const struct curve *c = &net->curve[k];
        if (c->why[0] || !isfinite(final_loss(c)) || (c->n_tests && !isfinite(c->test_loss)))
            continue;
        n++;
        if (best < 0 || is_better(c, &net->curve[best]))
            best = k;
    }
    return n > 1 ? best : -1;
}

static void print_text(const struct bench *b)
{
    char text[CLI_CLEAN];
    printf("%s: %" PRIu64 " steps, batches of %" PRIu64 ", seed %" PRIu64 ", device %s%s%s\n",
           cli_clean(mr_dataset_text(b->data.pipe.ds), text), b->iterations,
           b->opts->loader.batch_size, b->opts->seed, b->data.pipe.info.name,
           b->data.pipe.info.model[0] ? ": " : "", b->data.pipe.info.model);
    for (int i = 0; i < b->n_nets; i++) {
        printf("\n%s\n", b->net[i].model);
        struct cli_table *table =
            cli_table_create("optimizer\t>last loss\t>test loss\t>test accuracy\t>ms a step\t");
        for (int k = 0; k < b->net[i].n; k++) {
            const struct curve *c = &b->net[i].curve[k];
            char loss[CLI_HUMAN], test[CLI_HUMAN], accuracy[CLI_HUMAN], ms[CLI_HUMAN];
            cli_table_row(table, "%s\t%s\t%s\t%s\t%s\t%s", c->optimizer,
                          bench_fixed(final_loss(c), 4, "", loss),
                          c->n_tests ? cli_fixed(c->test_loss, 4, "", test) : "-",
                          bench_fixed(final_accuracy(c), 2, "%", accuracy),
                          bench_fixed(ms_a_step(c), 3, "", ms),
                          k == best_of(&b->net[i]) ? "<- best" : c->why);
        }
        cli_table_print(table, stdout, 2);
    }
}

static int print_json(const struct bench *b)
{
    struct mr_json *json = cli_json_begin("bench optimizers");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", b->data.pipe.info.name);
    mr_json_uint(json, "iterations", b->iterations);
    mr_json_array(json, "runs");
    for (int i = 0; i < b->n_nets; i++)
        for (int k = 0; k < b->net[i].n; k++) {
            const struct curve *c = &b->net[i].curve[k];
            mr_json_object(json, NULL);
            mr_json_string(json, "model", b->net[i].model);
            mr_json_string(json, "optimizer", c->optimizer);
            mr_json_uint(json, "steps", c->steps);
            mr_json_array(json, "loss");
            for (int p = 0; p < c->n_points; p++)
                mr_json_double(json, NULL, c->loss[p]);
            mr_json_array_end(json);
            mr_json_array(json, "test_accuracy");
            for (int p = 0; p < c->n_tests; p++)
                mr_json_double(json, NULL, c->accuracy[p] / 100);
            mr_json_array_end(json);
            train_json_number(json, "last_loss", final_loss(c));
            mr_json_double(json, "seconds", c->seconds);
            mr_json_bool(json, "failed", c->failed);
            mr_json_object_end(json);
        }
    mr_json_array_end(json);
    return cli_json_end_config(json, options, b->opts);
}

static void html_cells(FILE *out, const struct curve *c, bool best)
{
    if (c->why[0])
        fprintf(out, "<td class=\"first\" colspan=\"3\">%s</td>", c->why);
    else {
        char loss[CLI_HUMAN], accuracy[CLI_HUMAN], ms[CLI_HUMAN];
        fprintf(out, "<td class=\"first\">%s</td><td%s>%s</td><td>%s</td>",
                bench_fixed(final_loss(c), 4, "", loss), best ? " class=\"best\"" : "",
                bench_fixed(final_accuracy(c), 2, "%", accuracy),
                bench_fixed(ms_a_step(c), 3, "", ms));
    }
}

/* The table below the charts, as HTML: a row an optimizer, three columns a net. */
static char *html_table(const struct bench *b)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fputs("<style>table{font:13px sans-serif;color:#222;border-collapse:collapse;margin:8px 74px "
          "40px}"
          "th,td{padding:4px 10px;text-align:right;border-bottom:1px solid "
          "#ddd}th{border-bottom:1px solid #888}"
          "td:first-child,th:first-child{text-align:left}.first,th[colspan]{border-left:1px solid "
          "#ccc}"
          ".best{font-weight:bold;background:#dff0e2}p{font:13px sans-serif;color:#555;margin:0 "
          "74px 12px}</style>\n"
          "<p>Where each ended: mean training loss of the last fortieth of the steps, test "
          "accuracy (the best of each "
          "net is marked), time of a step.</p>\n<table>\n<tr><th rowspan=\"2\">optimizer</th>",
          out);
    for (int i = 0; i < b->n_nets; i++) {
        fputs("<th colspan=\"3\" style=\"text-align:center\">", out);
        mr_text_write_xml(b->net[i].model, out);
        fputs("</th>", out);
    }
    fputs("</tr>\n<tr>", out);
    for (int i = 0; i < b->n_nets; i++)
        fputs("<th class=\"first\">loss</th><th>test accuracy</th><th>ms a step</th>", out);
    fputs("</tr>\n", out);
    for (int k = 0; k < b->net[0].n; k++) {
        fputs("<tr><td>", out);
        mr_text_write_xml(b->net[0].curve[k].optimizer, out);
        fputs("</td>", out);
        for (int i = 0; i < b->n_nets; i++)
            html_cells(out, &b->net[i].curve[k], k == best_of(&b->net[i]));
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static int draw(const struct bench *b)
{
    struct plot_panel panel[2 * MAX_NETS];
    struct plot_series *series = calloc((size_t)b->n_nets * 2 * MAX_OPTIMIZERS, sizeof *series);
    char titles[2 * MAX_NETS][96], subtitle[200];
    char *table = html_table(b);
    if (!series || !table) {
        free(series);
        free(table);
        return cli_fail("out of memory");
    }
    for (int i = 0; i < b->n_nets; i++) {
        const struct net *net = &b->net[i];
        struct plot_series *loss = series + (size_t)i * 2 * MAX_OPTIMIZERS,
                           *accuracy = loss + MAX_OPTIMIZERS;
        for (int k = 0; k < net->n; k++) {
            const struct curve *c = &net->curve[k];
            loss[k] = (struct plot_series){c->optimizer, c->step, c->loss, c->n_points};
            accuracy[k] = (struct plot_series){c->optimizer, c->test_step, c->accuracy, c->n_tests};
        }
        snprintf(titles[2 * i], sizeof titles[0], "%.60s: training loss", net->model);
        snprintf(titles[2 * i + 1], sizeof titles[0], "%.60s: test accuracy", net->model);
        panel[2 * i] = (struct plot_panel){
            titles[2 * i], "step", "mean of a sample", NULL, loss, net->n, {0}, false, true, 0,
            false,         true};
        panel[2 * i + 1] = (struct plot_panel){titles[2 * i + 1],
                                               "step",
                                               "%",
                                               NULL,
                                               accuracy,
                                               net->n,
                                               {0},
                                               false,
                                               false,
                                               0,
                                               true,
                                               true};
    }
    snprintf(subtitle, sizeof subtitle,
             "%.100s, batches of %" PRIu64 ", %" PRIu64 " steps, device %s",
             mr_dataset_text(b->data.pipe.ds), b->opts->loader.batch_size, b->iterations,
             b->data.pipe.info.name);
    int code = plot_write(&(struct plot){"Optimizers", subtitle, panel, 2 * b->n_nets, table, false,
                                         NULL, "optimizers"},
                          b->opts->plot);
    free(series);
    free(table);
    return code;
}

static int set_options(struct bench *b)
{
    const struct opts *o = b->opts;
    int rc = bench_train_init(&b->train);
    b->train.loader.batch_size = o->loader.batch_size;
    b->train.seed = o->seed;
    b->train.threads = o->threads;
    b->train.epochs = 1000000000;
    return rc == 0 ? bench_train_set(&b->train, "device", o->device) : rc;
}

static int measure(struct bench *b, const char *dataset)
{
    int code = read_lists(b);
    if (code != CLI_OK)
        return code;
    int rc = set_options(b);
    if (rc == 0)
        rc = train_data_open(&b->data, dataset, &b->train, NULL);
    cli_progress_begin(&b->progress, "optimizers",
                       b->iterations * (uint64_t)b->n_nets * (uint64_t)b->net[0].n, "steps");
    if (rc == 0)
        rc = run_all(b);
    cli_progress_end(&b->progress);
    if (rc < 0)
        return cli_error(rc);
    code = draw(b);
    if (cli.json && code == CLI_OK)
        code = print_json(b);
    else if (code == CLI_OK) {
        print_text(b);
        printf("\ncurves: %s\n", b->opts->plot);
    }
    return cli_interrupted() ? CLI_FAILED : code;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct opts *o = values;
    if (!o->iterations) /* not given */
        o->iterations = o->quick ? QUICK_STEPS : STEPS;
    int code = plot_check(o->plot);
    if (code != CLI_OK)
        return code;
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return cli_fail("out of memory");
    b->opts = o;
    code = measure(b, args[0]);
    for (int i = 0; i < b->n_nets; i++) {
        for (int k = 0; k < b->net[i].n; k++)
            free(b->net[i].curve[k].optimizer);
        free(b->net[i].model);
    }
    train_data_close(&b->data);
    bench_train_free(&b->train);
    free(b);
    return code;
}

static const struct cli_note json_notes[] = {
    {"device, iterations", "what was used; steps per run"},
    {"runs", "of each: model, optimizer, steps (done), loss (means of 40 nearly equal parts), "
             "test_accuracy (ten times), "
             "last_loss, seconds "
             "(tests left out), failed (its loss became infinite)"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench optimizers mnist/ --plot optimizers.html",
     "four nets, thirteen optimizers, 20,000 steps each"},
    {"millrace bench optimizers mnist/ --quick", "the perceptrons, 400 steps"},
    {NULL, NULL},
};

const struct cli_command cli_bench_optimizers = {
    .name = "bench optimizers",
    .summary = "Train nets by all optimizers: loss and accuracy on one page",
    .synopsis = "DATASET [options]",
    .text = "Trains each net with each optimizer, from the same parameters and in the same order. "
            "Plots training loss and test accuracy over the steps, with a table of the final "
            "values. If a run's loss becomes infinite, that is reported and the others continue.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
