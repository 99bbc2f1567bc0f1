/* millrace predict: what a checkpoint's net says of a data set. */
#include "predict/predict.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define OPT(option, letter, kind, member, ...)                                                     \
    {                                                                                              \
        .name = option, .key = letter, .type = kind,                                               \
        .offset = offsetof(struct predict_opts, member), __VA_ARGS__                               \
    }

static const struct mr_option options[] = {
    OPT("top", 'k', MR_OPT_UINT, top, .initial = "1", .min = 1, .max = PREDICT_MAX_TOP,
        .unit = "classes", .help = "Classes to print for each sample, the most likely first"),
    OPT("limit", 'n', MR_OPT_UINT, limit, .initial = "10", .unit = "samples",
        .help = "Samples to print; the accuracy covers all samples"),
    OPT("csv", 0, MR_OPT_STRING, csv, .meta = "FILE",
        .help = "Write all predictions; if classes have names, the last column names the most "
                "likely one"),
    OPT("force", 'f', MR_OPT_FLAG, force,
        .help = "Let --csv replace any file that the run does not read"),
    OPT("transform", 't', MR_OPT_STRING, transform, .meta = "CHAIN",
        .help =
            "Ops on each sample, listed by millrace inspect --transforms; default: those of the "
            "tests in training"),
    OPT("device", 'd', MR_OPT_STRING, device, .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda, cuda:1"),
    CLI_LOADER_OPTION(struct predict_opts, loader, "batch-size", .max = 1 << 20,
                      .group = "Options"),
    CLI_LOADER_OPTION(struct predict_opts, loader, "workers", .group = "Options"),
    OPT("threads", 0, MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "Threads that compute on cpu; 0: one per processor that this process may use"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static int predict_batch(struct predict *p, const struct mr_batch *b)
{
    const struct mr_batch_field *label = p->label >= 0 ? &b->field[p->label] : NULL;
    struct mr_net_batch batch = {.size = sizeof batch,
                                 .input = b->field[0].data,
                                 .input_dtype = b->field[0].spec.dtype,
                                 .labels = label ? label->data : NULL,
                                 .label_dtype = label ? label->spec.dtype : MR_U8,
                                 .n = (uint32_t)b->n};
    bool wanted = p->csv.file || p->printed < p->opts->limit;
    const void *outputs = NULL;
    int rc = mr_net_eval(p->net, &batch, wanted ? &outputs : NULL, p->pipe.stream);
    p->done += b->n;
    return rc < 0 ? cli_error(rc) : wanted ? predict_print_batch(p, b, outputs) : CLI_OK;
}

static int predict_all(struct predict *p)
{
    struct mr_batch b = {.size = sizeof b};
    struct cli_progress progress;
    int rc, code = CLI_OK;
    uint64_t start = mr_time_ns();
    uint64_t samples = mr_loader_samples(p->pipe.loader);
    cli_progress_begin(&progress, "predict", samples == MR_UNKNOWN ? 0 : samples, "samples");
    while (code == CLI_OK && (rc = mr_loader_next(p->pipe.loader, p->pipe.stream, &b)) != 0) {
        code = rc < 0 ? cli_error(rc) : cli_interrupted() ? CLI_FAILED : predict_batch(p, &b);
        if (rc > 0)
            mr_loader_release(p->pipe.loader, &b, p->pipe.stream);
        cli_progress_update(&progress, p->done);
    }
    cli_progress_end(&progress);
    p->totals.size = sizeof p->totals;
    rc = code == CLI_OK ? mr_net_query_totals(p->net, p->pipe.stream, &p->totals) : 0;
    p->seconds = (double)(mr_time_ns() - start) * 1e-9;
    if (rc < 0)
        return cli_error(rc);
    if (code == CLI_OK && p->totals.n_bad_labels)
        cli_warn("%" PRIu64 " labels are outside 0..%u: not counted", p->totals.n_bad_labels,
                 p->classes - 1);
    return code;
}

static void print_end(struct predict *p)
{
    char n[CLI_HUMAN], rate[CLI_HUMAN];
    const struct mr_net_totals *t = &p->totals;
    cli_table_print(p->table, stdout, 2);
    p->table = NULL;
    printf("%s%s samples in %.2f s: %s samples/s\n", p->opts->limit ? "\n" : "",
           cli_count((double)p->done, n), p->seconds,
           cli_count((double)p->done / p->seconds, rate));
    if (t->n_samples && p->loss != MR_MSE)
        printf("accuracy %.2f%% (%" PRIu64 " of %" PRIu64 "), loss %s\n",
               100 * (double)t->n_right / (double)t->n_samples, t->n_right, t->n_samples,
               cli_fixed(t->loss / (double)t->n_samples, 6, "", n));
    else if (t->n_samples)
        printf("loss %.6g\n", t->loss / (double)t->n_samples);
}

static int json_end(struct predict *p)
{
    const struct mr_net_totals *t = &p->totals;
    mr_json_array_end(p->json);
    mr_json_uint(p->json, "samples", p->done);
    train_json_number(p->json, "accuracy",
                      t->n_samples && p->loss != MR_MSE ? (double)t->n_right / (double)t->n_samples
                                                        : NAN);
    train_json_number(p->json, "loss", t->n_samples ? t->loss / (double)t->n_samples : NAN);
    mr_json_double(p->json, "seconds", p->seconds);
    mr_json_string(p->json, "model", p->what.model);
    mr_json_string(p->json, "device", p->pipe.info.name);
    struct mr_json *json = p->json;
    p->json = NULL;
    return cli_json_end_config(json, options, p->opts);
}

/* The columns behind those that are always there. */
static int head_ranks(struct predict *p)
{
    char text[64];
    int code = CLI_OK;
    for (uint64_t i = 2; i <= p->opts->top && i <= p->classes && code == CLI_OK; i++) {
        int n = snprintf(text, sizeof text, ",predicted_%" PRIu64 ",score_%" PRIu64, i, i);
        code = cli_output_write(&p->csv, text, (size_t)n);
    }
    return code == CLI_OK && p->n_names ? cli_output_write(&p->csv, ",name", 5) : code;
}

static int head_numbers(struct predict *p)
{
    char text[64];
    int code = CLI_OK;
    for (uint32_t k = 0; k < p->classes && code == CLI_OK; k++)
        code =
            cli_output_write(&p->csv, text, (size_t)snprintf(text, sizeof text, ",output_%u", k));
    return code;
}

static int open_outputs(struct predict *p)
{
    const char *heads = p->loss == MR_MSE ? "index" : "index,label,predicted,score";
    const char *columns = p->loss == MR_MSE ? ">sample\toutputs" : ">sample\tpredicted\tlabel";
    if (cli.json) {
        p->json = cli_json_begin("predict");
        if (!p->json)
            return CLI_FAILED;
        mr_json_array(p->json, "predictions");
    } else
        p->table = cli_table_create(p->opts->limit ? columns : NULL);
    if (!p->opts->csv)
        return CLI_OK;
    int code = cli_output_open(&p->csv, p->opts->csv, CLI_PREDICTIONS, p->opts->force);
    if (code == CLI_OK)
        code = cli_output_write(&p->csv, heads, strlen(heads));
    if (code == CLI_OK)
        code = p->loss == MR_MSE ? head_numbers(p) : head_ranks(p);
    return code == CLI_OK ? cli_output_write(&p->csv, "\n", 1) : code;
}

static int predict(struct predict *p)
{
    int code = open_outputs(p);
    if (code == CLI_OK)
        code = predict_all(p);
    if (code == CLI_OK && p->csv.file)
        code = cli_output_commit(&p->csv);
    if (code == CLI_OK && p->json)
        return json_end(p);
    if (code == CLI_OK)
        print_end(p);
    return code;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct predict p = {.opts = values};
    int code = cli_output_claim(p.opts->csv, CLI_PREDICTIONS, p.opts->force);
    if (code == CLI_OK)
        code = cli_input_add(args[0]);
    if (code != CLI_OK)
        return code;
    int rc = mr_checkpoint_open(args[0], &p.from);
    if (rc == 0)
        rc = predict_open(&p, args[0], args[1]);
    code = rc < 0 ? cli_error(rc) : cli_input_dataset(args[1], p.pipe.ds);
    if (code == CLI_OK)
        code = predict(&p);
    predict_close(&p);
    return code;
}

static const struct cli_note json_notes[] = {
    {"predictions", "of the first --limit samples: index, label (or null), predicted, top: class, "
                    "name, score; of a net for "
                    "mse: index, outputs"},
    {"samples, seconds", "how many, how long"},
    {"accuracy, loss", "over all samples; null without labels"},
    {"model, device, config", "what was run; every option's value"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace predict run.safetensors mnist/,split=test --top 3",
     "the test set's accuracy, and ten predictions"},
    {"millrace predict run.safetensors folder:pictures --limit 0 --csv out.csv",
     "all predictions into a file"},
    {NULL, NULL},
};

const struct cli_command cli_predict = {
    .name = "predict",
    .summary = "Run a trained net over a data set: accuracy and predictions",
    .synopsis = "CHECKPOINT DATASET [options]",
    .text =
        "Reads a checkpoint of millrace train, runs its net over the data set in order, prints "
        "the accuracy where samples have labels, and the first predictions. The checkpoint says "
        "model, shapes, transform and the names of classes; labels of a data set that numbers "
        "the names differently are ignored. For a net trained with --loss mse, all outputs are "
        "printed, in order.",
    .options = options,
    .options_bytes = sizeof(struct predict_opts),
    .min_args = 2,
    .max_args = 2,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
