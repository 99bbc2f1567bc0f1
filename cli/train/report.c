/* What is printed of training, as text and as JSON. */
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const ends[] = {
    [TRAIN_EPOCHS] = "epochs", [TRAIN_TARGET] = "target",           [TRAIN_PATIENCE] = "patience",
    [TRAIN_STEPS] = "steps",   [TRAIN_INTERRUPTED] = "interrupted", [TRAIN_FAILED] = "failed",
};

static bool tensor_cores(const struct train *t)
{
    const struct mr_net_layer *l;
    for (uint32_t i = 0; (l = train_layer(t, i)); i++)
        if (strstr(l->runs_on, "tensor cores"))
            return true;
    return false;
}

/* The flat buffer is longer: each parameter begins aligned. */
static uint64_t n_params(const struct train *t)
{
    const struct mr_net_layer *l;
    uint64_t n = 0;
    for (uint32_t i = 0; (l = train_layer(t, i)); i++)
        n += l->n_params;
    return n;
}

static const char *precision(const struct train *t)
{
    static const char *const names[] = {"f32", "tf32", "bf16 (parameters f32)",
                                        "fp16 (parameters f32, loss scaled)"};
    return t->data->pipe.info.unified ? "f32" : names[t->opts->amp];
}

static void print_layers(const struct train *t)
{
    const struct mr_net_layer *l;
    char count[CLI_HUMAN];
    struct cli_table *table = cli_table_create("layer\t\tinput\toutput\t>parameters\truns on");
    for (uint32_t i = 0; (l = train_layer(t, i)); i++)
        cli_table_row(table, "%s\t%s\t%ux%ux%u\t%ux%ux%u\t%s\t%s", l->name,
                      strcmp(l->name, l->text) == 0 ? "" : l->text, l->in[0], l->in[1], l->in[2],
                      l->out[0], l->out[1], l->out[2],
                      l->n_params ? cli_count((double)l->n_params, count) : "", l->runs_on);
    cli_table_print(table, stdout, 2);
}

static void print_data(const struct train_data *d)
{
    char n[CLI_HUMAN], text[CLI_CLEAN];
    printf("%s: %s samples", cli_clean(mr_dataset_text(d->pipe.ds), text),
           cli_count((double)mr_dataset_length(d->pipe.ds), n));
    if (d->test)
        printf("; test: %s: %s samples\n", cli_clean(mr_dataset_text(d->test), text),
               cli_count((double)mr_dataset_length(d->test), n));
    else
        printf("; test set: %s\n", d->test_note);
    printf("  transform %s%s\n", d->chain_text[0] ? d->chain_text : "none", d->chain_note);
}

void train_print_head(const struct train *t)
{
    const struct train_data *d = t->data;
    char n[CLI_HUMAN], bytes[CLI_HUMAN];
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(mr_trainer_get_loader(t->trainer), &st);
    print_data(d);
    printf("\n%s: %s parameters, %u %s\n", t->opts->model, cli_count((double)n_params(t), n),
           t->info.classes, t->opts->loss == MR_MSE ? "outputs" : "classes");
    print_layers(t);
    printf("\n  %s, schedule %s, batches of %" PRIu64 ", seed %" PRIu64 "\n", t->info.optimizer,
           t->opts->schedule, t->opts->loader.batch_size, t->opts->seed);
    printf("  device %s%s%s, %s, tensor cores %s; %s of activations and workspace; %u worker%s\n",
           d->pipe.info.name, d->pipe.info.model[0] ? ": " : "", d->pipe.info.model, precision(t),
           tensor_cores(t) ? "used" : "not used", cli_bytes(train_stages_memory(t), bytes),
           st.workers, st.workers == 1 ? "" : "s");
    train_stages_print(t);
    train_ranks_print(t);
    if (t->info.resumed_step)
        printf("  goes on from %s: after step %" PRIu64 ", in epoch %" PRIu64 "\n",
               t->opts->checkpoint, t->info.resumed_step, t->info.epoch + 1);
    printf("\n");
    for (uint32_t i = 0; i < t->info.n_epochs; i++)
        train_print_epoch(t, mr_trainer_epoch_get(t->trainer, i));
    fflush(stdout);
}

void train_print_epoch(const struct train *t, const struct mr_train_epoch *e)
{
    char rate[CLI_HUMAN], loss[CLI_HUMAN];
    printf("epoch %2" PRIu64 "/%" PRIu64 "  loss %s", e->epoch, t->opts->epochs,
           cli_fixed(e->loss, 4, "", loss));
    if (!isnan(e->accuracy))
        printf(", accuracy %.2f%%", 100 * e->accuracy);
    if (!isnan(e->test_loss) || !isnan(e->test_accuracy))
        printf("  test %s", cli_fixed(e->test_loss, 4, "", loss));
    if (!isnan(e->test_accuracy))
        printf(", %.2f%%", 100 * e->test_accuracy);
    printf("  %.2f s, %s samples/s, lr %.4g, waited for data %.1f%%%s%s\n", e->seconds,
           cli_count(e->samples_per_s, rate), e->lr, 100 * e->waited,
           e == &t->unfinished ? "; not finished" : "",
           e == &t->unfinished && t->data->test && isnan(e->test_loss) ? ", not tested" : "");
    fflush(stdout);
}

static double total(const struct train *t)
{
    return (double)(mr_time_ns() - t->start_ns) * 1e-9;
}

static void print_times(const struct train *t, double seconds)
{
    const char *const names[] = {"opening", "waiting for data", "training steps", "tests",
                                 "checkpoints"};
    const double s[] = {t->opening, t->times.waiting, t->times.stepping, t->times.testing,
                        t->times.saving};
    double rest = seconds;
    struct cli_table *table = cli_table_create("where the time went\t>seconds\t>share");
    for (size_t i = 0; i < CLI_COUNT(s); i++) {
        rest -= s[i];
        if (s[i] > 0)
            cli_table_row(table, "%s\t%.3f\t%.1f%%", names[i], s[i], 100 * s[i] / seconds);
    }
    cli_table_row(table, "rest\t%.3f\t%.1f%%", rest > 0 ? rest : 0,
                  rest > 0 ? 100 * rest / seconds : 0);
    cli_table_print(table, stdout, 0);
}

static void print_result(const struct train *t)
{
    const struct mr_train_epoch *best =
        t->info.n_epochs ? mr_trainer_epoch_get(t->trainer, t->info.best) : NULL;
    if (!best) {
        printf("no epoch was finished: %" PRIu64 " steps done\n", t->info.step);
        return;
    }
    bool tested = !isnan(best->test_accuracy);
    if (!isnan(tested ? best->test_accuracy : best->accuracy))
        printf("best %s accuracy: %.2f%%, in epoch %" PRIu64, tested ? "test" : "training",
               100 * (tested ? best->test_accuracy : best->accuracy), best->epoch);
    else
        printf("last loss: %.6g", mr_trainer_epoch_get(t->trainer, t->info.n_epochs - 1)->loss);
    if (!isnan(t->info.seconds_to_target))
        printf("; %.4g%% reached after %.3f s", 100 * t->opts->target, t->info.seconds_to_target);
    if (t->info.skipped)
        printf("; %" PRIu64 " step%s left out: the loss was not finite", t->info.skipped,
               cli_s(t->info.skipped));
    printf("%s\n", t->end == TRAIN_FAILED     ? "; stopped: a file could not be written"
                   : t->end == TRAIN_PATIENCE ? "; stopped: the loss got no better (--patience)"
                   : t->end == TRAIN_STEPS    ? "; stopped by --max-steps"
                                              : "");
}

int train_print_end(const struct train *t)
{
    double seconds = total(t);
    printf("\n");
    print_result(t);
    printf("\n");
    print_times(t, seconds);
    train_steps_print(t);
    printf("\nloader's bottleneck: %s: %s\n", t->stats.bottleneck, t->stats.reason);
    cli_tuning_print(t->opts->loader.tune ? &t->tuning : NULL, &t->stats);
    if (t->opts->plot && t->info.n_epochs)
        printf("curves: %s\n", t->opts->plot);
    if (t->opts->checkpoint && t->saved)
        printf("checkpoint: %s\n", t->opts->checkpoint);
    return CLI_OK;
}

void train_json_number(struct mr_json *json, const char *key, double value)
{
    if (isnan(value))
        mr_json_null(json, key);
    else
        mr_json_double(json, key, value);
}

static void json_epoch(struct mr_json *json, const char *key, const struct mr_train_epoch *e)
{
    mr_json_object(json, key);
    mr_json_uint(json, "epoch", e->epoch);
    mr_json_uint(json, "steps", e->steps);
    train_json_number(json, "loss", e->loss);
    train_json_number(json, "accuracy", e->accuracy);
    train_json_number(json, "test_loss", e->test_loss);
    train_json_number(json, "test_accuracy", e->test_accuracy);
    mr_json_double(json, "seconds", e->seconds);
    mr_json_double(json, "test_seconds", e->test_seconds);
    mr_json_double(json, "lr", e->lr);
    mr_json_double(json, "samples_per_s", e->samples_per_s);
    mr_json_double(json, "data_wait", e->waited);
    mr_json_object_end(json);
}

static void json_unfinished(struct mr_json *json, const struct train *t)
{
    if (t->unfinished.epoch)
        json_epoch(json, "unfinished_epoch", &t->unfinished);
    else
        mr_json_null(json, "unfinished_epoch");
}

static void json_layers(struct mr_json *json, const struct train *t)
{
    const struct mr_net_layer *l;
    mr_json_array(json, "layers");
    for (uint32_t i = 0; (l = mr_net_layer_get(mr_trainer_get_net(t->trainer), i)); i++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", l->name);
        mr_json_string(json, "text", l->text);
        mr_json_array(json, "output");
        for (int k = 0; k < 3; k++)
            mr_json_uint(json, NULL, l->out[k]);
        mr_json_array_end(json);
        mr_json_uint(json, "parameters", l->n_params);
        mr_json_string(json, "runs_on", l->runs_on);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

static void json_times(struct mr_json *json, const struct train *t)
{
    mr_json_object(json, "times");
    mr_json_double(json, "opening", t->opening);
    mr_json_double(json, "waiting", t->times.waiting);
    mr_json_double(json, "steps", t->times.stepping);
    mr_json_double(json, "tests", t->times.testing);
    mr_json_double(json, "checkpoints", t->times.saving);
    mr_json_object_end(json);
    mr_json_string(json, "bottleneck", t->stats.bottleneck);
    mr_json_string(json, "bottleneck_reason", t->stats.reason);
    cli_tuning_json(json, t->opts->loader.tune ? &t->tuning : NULL, &t->stats);
}

static void json_config(struct mr_json *json, const struct train *t)
{
    const struct train_data *d = t->data;
    mr_json_object(json, "config");
    mr_options_json(cli_options(train_options), t->opts, json);
    mr_json_object(json, "resolved");
    mr_json_string(json, "dataset", mr_dataset_text(d->pipe.ds));
    mr_json_string(json, "test", d->test ? mr_dataset_text(d->test) : NULL);
    mr_json_string(json, "transform", d->chain_text);
    mr_json_string(json, "optimizer", t->info.optimizer);
    mr_json_string(json, "device", d->pipe.info.name);
    mr_json_string(json, "device_model", d->pipe.info.model[0] ? d->pipe.info.model : NULL);
    mr_json_string(json, "precision", precision(t));
    mr_json_bool(json, "tensor_cores", tensor_cores(t));
    mr_json_uint(json, "classes", t->info.classes);
    mr_json_uint(json, "workers", t->stats.workers);
    mr_json_uint(json, "prefetch", t->stats.prefetch);
    mr_json_object_end(json);
    mr_json_object_end(json);
}

int train_print_json(const struct train *t)
{
    const struct mr_train_epoch *last =
        t->info.n_epochs ? mr_trainer_epoch_get(t->trainer, t->info.n_epochs - 1) : NULL;
    const struct mr_train_epoch *best =
        t->info.n_epochs ? mr_trainer_epoch_get(t->trainer, t->info.best) : NULL;
    struct mr_json *json = cli_json_begin("train");
    if (!json)
        return CLI_FAILED;
    mr_json_array(json, "epochs");
    for (uint32_t i = 0; i < t->info.n_epochs; i++)
        json_epoch(json, NULL, mr_trainer_epoch_get(t->trainer, i));
    mr_json_array_end(json);
    json_unfinished(json, t);
    train_json_number(json, "test_accuracy", last ? last->test_accuracy : NAN);
    train_json_number(json, "best_accuracy",
                      !best                        ? NAN
                      : isnan(best->test_accuracy) ? best->accuracy
                                                   : best->test_accuracy);
    mr_json_uint(json, "best_epoch", best ? best->epoch : 0);
    mr_json_double(json, "seconds", total(t));
    train_json_number(json, "seconds_to_target", t->info.seconds_to_target);
    mr_json_uint(json, "steps", t->info.step);
    mr_json_uint(json, "resumed_from_step", t->info.resumed_step);
    mr_json_uint(json, "steps_skipped", t->info.skipped);
    mr_json_string(json, "ended_by", ends[t->end]);
    mr_json_string(json, "model", t->opts->model);
    mr_json_uint(json, "parameters", n_params(t));
    mr_json_uint(json, "activation_bytes", train_stages_memory(t));
    train_stages_json(t, json);
    train_ranks_json(t, json);
    train_steps_json(t, json);
    json_layers(json, t);
    json_times(json, t);
    json_config(json, t);
    return cli_json_end(json);
}
