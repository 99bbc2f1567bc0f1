/* The tables and the JSON object of bench optimizers. */
#include "bench/optimizers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *optim_text(const struct optim_spread *s, double scale, int digits, const char *unit,
                       char buf[64])
{
    char mean[CLI_HUMAN], sd[CLI_HUMAN];
    bench_fixed(scale * s->mean, digits, isnan(s->sd) ? unit : "", mean);
    if (isnan(s->sd))
        snprintf(buf, 64, "%s", mean);
    else
        snprintf(buf, 64, "%s +- %s", mean, bench_fixed(scale * s->sd, digits, unit, sd));
    return buf;
}

/* "12.3"; "-" if it was not reached. */
static const char *reached(double v, int digits, char *buf)
{
    return bench_fixed(isinf(v) ? NAN : v, digits, "", buf);
}

static void print_net(const struct optim_bench *b, const struct optim_net *net)
{
    char head[160];
    bool tests = b->data.test != NULL;
    snprintf(head, sizeof head,
             "optimizer\t>lr\t>last loss\t>test loss\t>test accuracy\t>steps to %.4g%%\t>s to "
             "%.4g%%\t>ms a step\t",
             100 * b->opts->target, 100 * b->opts->target);
    printf("\n%s\n", net->model);
    struct cli_table *table = cli_table_create(head);
    for (int k = 0; k < net->n; k++) {
        const struct optim_curve *c = &net->curve[k];
        char loss[64], test[64], accuracy[64], steps[CLI_HUMAN], seconds[CLI_HUMAN], ms[CLI_HUMAN];
        const char *why = optim_why(c);
        cli_table_row(
            table, "%s\t%.3g%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s", c->text, c->lr,
            c->n_rates && c->at_end ? "!" : "", optim_text(&c->loss, 1, 4, "", loss),
            tests ? optim_text(&c->test_loss, 1, 4, "", test) : "-",
            optim_text(&c->accuracy, 100, 2, "%", accuracy), reached(c->steps_to_target, 0, steps),
            reached(c->seconds_to_target, 2, seconds), bench_fixed(c->ms_a_step, 3, "", ms),
            c->mark && !why[0] ? "<- " : "", why[0] ? why : optim_mark_text(c->mark));
    }
    cli_table_print(table, stdout, 2);
}

static void print_sweep(const struct optim_bench *b, const struct optim_net *net, bool *ends)
{
    printf("\n%s: %s at each learning rate\n", net->model,
           b->data.test ? "test accuracy" : "last loss, negated,");
    struct cli_table *table = cli_table_create("optimizer\tlearning rate: result");
    for (int k = 0; k < net->n; k++) {
        const struct optim_curve *c = &net->curve[k];
        char line[OPTIM_MAX_RATES * 40] = "", score[CLI_HUMAN];
        for (int i = 0; i < c->n_rates; i++)
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s%.3g: %s%s", i ? "  " : "",
                     c->rate[i],
                     isnan(c->score[i]) ? "fails" : cli_fixed(c->score[i], 4, "", score),
                     c->rate[i] == c->lr && !isnan(c->score[i]) ? " *" : "");
        *ends |= c->at_end;
        cli_table_row(table, "%s\t%s", c->text, line);
    }
    cli_table_print(table, stdout, 2);
}

void optim_print(const struct optim_bench *b)
{
    char text[CLI_CLEAN];
    const struct optim_opts *o = b->opts;
    bool ends = false;
    printf("%s: %" PRIu64 " steps, batches of %" PRIu64 ", seed%s %" PRIu64,
           cli_clean(mr_dataset_text(b->data.pipe.ds), text), b->iterations, o->loader.batch_size,
           cli_s(o->seeds), o->seed);
    if (o->seeds > 1)
        printf(" to %" PRIu64, o->seed + o->seeds - 1);
    printf(", device %s%s%s\n", b->data.pipe.info.name, b->data.pipe.info.model[0] ? ": " : "",
           b->data.pipe.info.model);
    for (int i = 0; i < b->n_nets; i++)
        print_net(b, &b->net[i]);
    for (int i = 0; i < b->n_nets && b->n_factors; i++)
        print_sweep(b, &b->net[i], &ends);
    if (b->n_factors)
        printf("\n*: chosen by the %s, in one run with seed %" PRIu64 ", which is not among the "
               "runs above\n",
               b->data.test ? "test set" : "training loss", optim_sweep_seed(o));
    if (ends)
        printf("\n!: the best rate is the sweep's first or last: a wider --lr-sweep may find a "
               "better one\n");
    if (o->seeds > 1)
        printf("\n+-: standard deviation over %" PRIu64 " seeds\n", o->seeds);
    if (o->seeds >= OPTIM_MARK_SEEDS)
        printf("best: ahead of all others by more than both deviations\n");
    else
        printf(
            "\nless than %d seeds: differences may be chance, so none is marked best; --seeds %d "
            "measures the spread\n",
            OPTIM_MARK_SEEDS, OPTIM_MARK_SEEDS);
}

/* ---- JSON ---- */

static void put_array(struct mr_json *json, const char *name, const double *v, int n)
{
    mr_json_array(json, name);
    for (int i = 0; i < n; i++)
        mr_json_double(json, NULL, v[i]);
    mr_json_array_end(json);
}

static void put_run(struct mr_json *json, const struct optim_net *net, const struct optim_curve *c,
                    const struct optim_run *run)
{
    mr_json_object(json, NULL);
    mr_json_string(json, "model", net->model);
    mr_json_string(json, "optimizer", c->optimizer);
    mr_json_string(json, "schedule", c->schedule);
    mr_json_double(json, "lr", c->lr);
    mr_json_uint(json, "seed", run->seed);
    mr_json_uint(json, "steps", run->steps);
    put_array(json, "loss", run->loss, run->n_points);
    put_array(json, "step_rms", run->move, run->n_points);
    put_array(json, "test_accuracy", run->accuracy, run->n_tests);
    put_array(json, "test_seconds", run->test_seconds, run->n_tests);
    train_json_number(json, "last_loss", optim_last_loss(run));
    mr_json_double(json, "seconds", run->seconds);
    mr_json_bool(json, "failed", run->failed);
    mr_json_object_end(json);
}

static void put_finite(struct mr_json *json, const char *name, double v)
{
    if (isfinite(v))
        mr_json_double(json, name, v);
    else
        mr_json_null(json, name);
}

static void put_result(struct mr_json *json, const struct optim_net *net,
                       const struct optim_curve *c)
{
    mr_json_object(json, NULL);
    mr_json_string(json, "net", net->model);
    mr_json_string(json, "by", c->text);
    mr_json_double(json, "lr", c->lr);
    put_finite(json, "loss_mean", c->loss.mean);
    put_finite(json, "loss_sd", c->loss.sd);
    put_finite(json, "accuracy_mean", c->accuracy.mean);
    put_finite(json, "accuracy_sd", c->accuracy.sd);
    put_finite(json, "steps_to_target", c->steps_to_target);
    put_finite(json, "seconds_to_target", c->seconds_to_target);
    mr_json_bool(json, "best", c->mark == OPTIM_BEST);
    put_array(json, "sweep_lr", c->rate, c->n_rates);
    mr_json_array(json, "sweep_score");
    for (int i = 0; i < c->n_rates; i++)
        put_finite(json, NULL, c->score[i]);
    mr_json_array_end(json);
    mr_json_object_end(json);
}

int optim_print_json(const struct optim_bench *b, const struct mr_option *options)
{
    struct mr_json *json = cli_json_begin("bench optimizers");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", b->data.pipe.info.name);
    mr_json_uint(json, "iterations", b->iterations);
    if (b->n_factors)
        mr_json_uint(json, "sweep_seed", optim_sweep_seed(b->opts));
    mr_json_array(json, "runs");
    for (int i = 0; i < b->n_nets; i++)
        for (int k = 0; k < b->net[i].n; k++)
            for (int r = 0; r < b->net[i].curve[k].n_runs; r++)
                put_run(json, &b->net[i], &b->net[i].curve[k], &b->net[i].curve[k].run[r]);
    mr_json_array_end(json);
    mr_json_array(json, "results");
    for (int i = 0; i < b->n_nets; i++)
        for (int k = 0; k < b->net[i].n; k++)
            put_result(json, &b->net[i], &b->net[i].curve[k]);
    mr_json_array_end(json);
    if (cli_interrupted())
        mr_json_bool(json, "interrupted", true);
    return cli_json_end_config(json, options, b->opts);
}
