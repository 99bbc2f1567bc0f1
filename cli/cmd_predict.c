/* millrace predict: what a checkpoint's net says of a data set. */
#include "train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOP 100

struct predict_opts {
    struct cli_common common;
    uint64_t top, limit, batch_size, workers, threads;
    char *device, *transform, *csv;
};

#define OPT(option, letter, kind, member, ...)                                                                         \
    {                                                                                                                  \
        .name = option, .key = letter, .type = kind, .offset = offsetof(struct predict_opts, member), __VA_ARGS__      \
    }

static const struct mr_option options[] = {
    OPT("top", 'k', MR_OPT_UINT, top, .initial = "1", .min = 1, .max = MAX_TOP, .unit = "classes",
        .help = "How many classes to print of each sample, the likeliest first"),
    OPT("limit", 'n', MR_OPT_UINT, limit, .initial = "10", .unit = "samples",
        .help = "How many samples to print; all of them count for the accuracy"),
    OPT("csv", 0, MR_OPT_STRING, csv, .meta = "FILE", .help = "Write all predictions"),
    OPT("transform", 't', MR_OPT_STRING, transform, .meta = "CHAIN",
        .help =
            "Ops on each sample, which millrace inspect --transforms lists; without it those of the training's tests"),
    OPT("device", 'd', MR_OPT_STRING, device, .initial = "auto", .meta = "DEVICE", .help = "auto, cpu, cuda, cuda:1"),
    OPT("batch-size", 'b', MR_OPT_UINT, batch_size, .initial = "64", .min = 1, .max = 1 << 20, .unit = "samples",
        .help = "Samples at a time"),
    OPT("workers", 'w', MR_OPT_UINT, workers, .initial = "0", .max = 512, .unit = "threads",
        .help = "Threads that make batches; 0: as many as this process may use"),
    OPT("threads", 0, MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "Threads that compute on cpu; 0: as many as this process may use"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

struct ranked {
    uint32_t label;
    double score; /* probability; of mse the output */
};

struct predict {
    const struct predict_opts *opts;
    const struct checkpoint *from;
    struct mr_device *dev;
    struct mr_device_info info;
    struct mr_stream *stream;
    struct mr_dataset *ds;
    struct mr_transform *chain;
    struct mr_loader *ld;
    struct mr_net *net;
    int label; /* the field; -1: none */
    uint64_t batch_size;
    uint32_t classes;
    enum mr_loss loss;
    const char *model;
    float *outputs; /* of a batch */
    unsigned char *labels;
    struct cli_output csv;
    struct mr_json *json;
    struct cli_table *table;
    uint64_t printed, done;
    struct mr_net_totals totals;
    double seconds;
};

static int read_shape(const struct checkpoint *c, struct train_shape *s, uint64_t *classes, enum mr_loss *loss)
{
    char layout[8] = "";
    const char *sample = checkpoint_get(c, "sample"), *name = checkpoint_get(c, "loss");
    if (!sample || !name || sscanf(sample, "%ux%ux%u %4s", &s->c, &s->h, &s->w, layout) != 4)
        return mr_error_set(MR_EFORMAT, "%s: does not say what samples its model takes", c->path);
    s->layout = strcmp(layout, "nhwc") == 0 ? MR_NHWC : MR_NCHW;
    for (int i = 0; train_losses[i]; i++)
        if (strcmp(name, train_losses[i]) == 0) {
            *loss = (enum mr_loss)i;
            return checkpoint_get_uint(c, "classes", classes);
        }
    return mr_error_set(MR_EFORMAT, "%s: key loss: %.40s: want %s, %s or %s", c->path, name,
                        train_losses[MR_CROSS_ENTROPY], train_losses[MR_NLL], train_losses[MR_MSE]);
}

static int open_net(struct predict *p)
{
    struct mr_net_opts no;
    struct train_shape want, have;
    uint64_t classes;
    char text[160];
    int rc = read_shape(p->from, &want, &classes, &p->loss);
    if (rc == 0)
        rc = train_shape_of(mr_loader_field(p->ld, 0), &have);
    if (rc < 0)
        return rc;
    if (memcmp(&want, &have, sizeof have) != 0)
        return mr_error_set(MR_ESHAPE,
                            "%s: its model takes samples of %s (channels, height, width), the data set gives %s",
                            p->from->path, checkpoint_get(p->from, "sample"),
                            mr_spec_format(mr_loader_field(p->ld, 0), text, sizeof text));
    mr_net_opts_init(&no);
    no.model = p->model = checkpoint_get(p->from, "model");
    no.channels = want.c;
    no.height = want.h;
    no.width = want.w;
    no.layout = want.layout;
    no.classes = p->classes = classes > UINT32_MAX ? UINT32_MAX : (uint32_t)classes;
    no.loss = p->loss;
    no.max_batch = (uint32_t)p->batch_size;
    no.threads = (uint32_t)p->opts->threads;
    if (!no.model)
        return mr_error_set(MR_EFORMAT, "%s: does not say what model it is of", p->from->path);
    rc = mr_net_create(p->dev, &no, &p->net);
    return rc == 0 ? train_load_net(p->net, p->from) : rc;
}

/* The field that training would take. One that is not named so and does not fit are no labels, but something else. */
static int find_labels(struct predict *p)
{
    p->label = train_label_field(p->ds);
    if (p->label < 0)
        return 0;
    const struct mr_spec *spec = mr_dataset_field(p->ds, p->label);
    bool fits = p->loss == MR_MSE || (spec->dtype != MR_F32 && spec->dtype != MR_F64);
    int rc = train_check_label(p->ld, p->label, (int)p->loss, p->classes, mr_dataset_text(p->ds));
    if ((rc >= 0 && fits) || strcmp(spec->name, "label") == 0)
        return rc;
    cli_warn("%s: its field '%s' does not fit as labels: predictions only", mr_dataset_text(p->ds), spec->name);
    p->label = -1;
    return 0;
}

static int open_all(struct predict *p, const char *dataset)
{
    const char *chain = p->opts->transform ? p->opts->transform : checkpoint_get(p->from, "test_transform");
    struct mr_loader_opts lo;
    int rc = mr_device_open(p->opts->device, &p->dev);
    if (rc == 0)
        rc = mr_device_get(p->dev, &p->info);
    if (rc == 0)
        rc = mr_stream_create(p->dev, "predict", &p->stream);
    if (rc == 0)
        rc = mr_dataset_open(dataset, &p->ds);
    if (rc == 0)
        rc = mr_transform_create(&p->chain);
    if (rc == 0 && chain && chain[0])
        rc = mr_transform_add(p->chain, chain);
    if (rc < 0)
        return rc;
    mr_loader_opts_init(&lo);
    lo.batch_size = p->batch_size = train_batch_size(p->ds, p->opts->batch_size);
    lo.workers = (uint32_t)p->opts->workers;
    rc = mr_loader_open(p->ds, NULL, p->chain, p->dev, &lo, &p->ld);
    if (rc == 0)
        rc = open_net(p);
    if (rc < 0)
        return rc;
    p->classes = train_outputs(p->net); /* a list of layers says itself how many */
    rc = find_labels(p);
    if (rc < 0)
        return rc;
    p->outputs = calloc(p->batch_size, p->classes * sizeof *p->outputs);
    p->labels = calloc(p->batch_size, 8);
    return p->outputs && p->labels ? mr_net_zero_totals(p->net, p->stream)
                                   : mr_error_set(-ENOMEM, "predict: no memory for outputs");
}

static double score_of(const struct predict *p, const float *row, uint32_t k, double top, double sum)
{
    return p->loss == MR_MSE ? row[k] : p->loss == MR_NLL ? exp((double)row[k]) : exp(row[k] - top) / sum;
}

/* The best `top` classes of a row of outputs. */
static uint32_t rank_row(const struct predict *p, const float *row, struct ranked out[MAX_TOP])
{
    uint32_t n = 0, most = (uint32_t)(p->opts->top < p->classes ? p->opts->top : p->classes);
    double top = -INFINITY, sum = 0;
    for (uint32_t k = 0; k < p->classes; k++)
        top = fmax(top, row[k]);
    for (uint32_t k = 0; k < p->classes; k++)
        sum += exp(row[k] - top);
    for (uint32_t k = 0; k < p->classes; k++) {
        double s = score_of(p, row, k, top, sum);
        uint32_t at = n < most ? n++ : most;
        while (at > 0 && out[at - 1].score < s) {
            if (at < most)
                out[at] = out[at - 1];
            at--;
        }
        if (at < most)
            out[at] = (struct ranked){k, s};
    }
    return n;
}

static int64_t label_of(const struct predict *p, enum mr_dtype dtype, uint64_t row)
{
    const unsigned char *at = p->labels + row * mr_dtype_size(dtype);
    int32_t v;
    int64_t w;
    memcpy(&v, at, sizeof v);
    memcpy(&w, at, sizeof w);
    return dtype == MR_U8 ? *at : dtype == MR_I32 ? v : w;
}

static bool whole_labels(enum mr_dtype dtype)
{
    return dtype == MR_U8 || dtype == MR_I32 || dtype == MR_I64;
}

static const char *name_of(const struct predict *p, uint32_t k, char buf[16])
{
    const char *name = mr_dataset_class_name(p->ds, k);
    snprintf(buf, 16, "%u", k);
    return name ? name : buf;
}

static void print_row(struct predict *p, uint64_t index, const int64_t *label, const struct ranked *top, uint32_t n)
{
    char *text = NULL, buf[16], known[24] = "";
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (uint32_t i = 0; out && i < n; i++)
        fprintf(out, "%s%.40s %.4f", i ? ", " : "", name_of(p, top[i].label, buf), top[i].score);
    if (out)
        fclose(out);
    if (label)
        snprintf(known, sizeof known, "%" PRId64 "%s", *label, (uint64_t)*label == top[0].label ? "" : " (wrong)");
    cli_table_row(p->table, "%" PRIu64 "\t%s\t%s", index, text ? text : "(out of memory)", known);
    free(text);
}

static void json_row(struct predict *p, uint64_t index, const int64_t *label, const struct ranked *top, uint32_t n)
{
    mr_json_object(p->json, NULL);
    mr_json_uint(p->json, "index", index);
    if (label)
        mr_json_int(p->json, "label", *label);
    else
        mr_json_null(p->json, "label");
    mr_json_uint(p->json, "predicted", top[0].label);
    mr_json_array(p->json, "top");
    for (uint32_t i = 0; i < n; i++) {
        mr_json_object(p->json, NULL);
        mr_json_uint(p->json, "class", top[i].label);
        mr_json_string(p->json, "name", mr_dataset_class_name(p->ds, top[i].label));
        mr_json_double(p->json, "score", top[i].score);
        mr_json_object_end(p->json);
    }
    mr_json_array_end(p->json);
    mr_json_object_end(p->json);
}

static int csv_row(struct predict *p, uint64_t index, const int64_t *label, const struct ranked *top, uint32_t n)
{
    char text[64];
    int bytes = label ? snprintf(text, sizeof text, "%" PRIu64 ",%" PRId64, index, *label)
                      : snprintf(text, sizeof text, "%" PRIu64 ",", index);
    int code = cli_output_write(&p->csv, text, (size_t)bytes);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++) {
        bytes = snprintf(text, sizeof text, ",%u,%.6g", top[i].label, top[i].score);
        code = cli_output_write(&p->csv, text, (size_t)bytes);
    }
    return code == CLI_OK ? cli_output_write(&p->csv, "\n", 1) : code;
}

static int copy_back(struct predict *p, void *to, const void *from, uint64_t bytes)
{
    return mr_copy_async(p->stream, to, MR_PAGEABLE, from, MR_DEVICE, bytes);
}

/* Returns an exit code. */
static int print_batch(struct predict *p, const struct mr_batch *b, const void *outputs)
{
    struct ranked top[MAX_TOP];
    const struct mr_batch_field *field = p->label >= 0 ? &b->field[p->label] : NULL;
    bool labelled = field && whole_labels(field->spec.dtype) && p->loss != MR_MSE;
    int code = CLI_OK, rc = copy_back(p, p->outputs, outputs, b->size * p->classes * sizeof(float));
    if (rc == 0 && labelled)
        rc = copy_back(p, p->labels, field->data, b->size * mr_dtype_size(field->spec.dtype));
    if (rc == 0)
        rc = mr_stream_synchronize(p->stream);
    if (rc < 0)
        return cli_error(rc);
    for (uint64_t i = 0; i < b->size && code == CLI_OK; i++) {
        uint32_t n = rank_row(p, p->outputs + i * p->classes, top);
        int64_t label = labelled ? label_of(p, field->spec.dtype, i) : 0;
        const int64_t *known = labelled ? &label : NULL;
        if (p->csv.file)
            code = csv_row(p, b->indices[i], known, top, n);
        if (p->printed++ >= p->opts->limit)
            continue;
        if (p->json)
            json_row(p, b->indices[i], known, top, n);
        else
            print_row(p, b->indices[i], known, top, n);
    }
    return code;
}

static int predict_batch(struct predict *p, const struct mr_batch *b)
{
    const struct mr_batch_field *label = p->label >= 0 ? &b->field[p->label] : NULL;
    struct mr_net_batch batch = {.input = b->field[0].data,
                                 .input_dtype = b->field[0].spec.dtype,
                                 .labels = label ? label->data : NULL,
                                 .label_dtype = label ? label->spec.dtype : MR_U8,
                                 .n = (uint32_t)b->size};
    bool wanted = p->csv.file || p->printed < p->opts->limit;
    const void *outputs = NULL;
    int rc = mr_net_eval(p->net, &batch, wanted ? &outputs : NULL, p->stream);
    p->done += b->size;
    return rc < 0 ? cli_error(rc) : wanted ? print_batch(p, b, outputs) : CLI_OK;
}

static int predict_all(struct predict *p)
{
    struct mr_batch b;
    struct cli_progress progress;
    int rc, code = CLI_OK;
    uint64_t start = mr_time_ns();
    cli_catch_interrupts();
    cli_progress_begin(&progress, "predict", mr_loader_samples(p->ld), "samples");
    while (code == CLI_OK && (rc = mr_loader_next(p->ld, p->stream, &b)) != 0) {
        code = rc < 0 ? cli_error(rc) : cli_interrupted() ? CLI_FAILED : predict_batch(p, &b);
        if (rc > 0)
            mr_loader_release(p->ld, &b, p->stream);
        cli_progress_update(&progress, p->done);
    }
    cli_progress_end(&progress);
    rc = code == CLI_OK ? mr_net_get_totals(p->net, p->stream, &p->totals) : 0;
    p->seconds = (double)(mr_time_ns() - start) * 1e-9;
    if (rc < 0)
        return cli_error(rc);
    if (code == CLI_OK && p->totals.n_bad_labels)
        cli_warn("%" PRIu64 " labels are outside 0..%u: not counted", p->totals.n_bad_labels, p->classes - 1);
    return code;
}

static void print_end(struct predict *p)
{
    char n[CLI_HUMAN], rate[CLI_HUMAN];
    const struct mr_net_totals *t = &p->totals;
    cli_table_print(p->table, stdout, 2);
    p->table = NULL;
    printf("%s%s samples in %.2f s: %s samples/s\n", p->opts->limit ? "\n" : "", cli_count((double)p->done, n),
           p->seconds, cli_count((double)p->done / p->seconds, rate));
    if (t->n_samples && p->loss != MR_MSE)
        printf("accuracy %.2f%% (%" PRIu64 " of %" PRIu64 "), loss %.6f\n",
               100 * (double)t->n_right / (double)t->n_samples, t->n_right, t->n_samples,
               t->loss / (double)t->n_samples);
    else if (t->n_samples)
        printf("loss %.6g\n", t->loss / (double)t->n_samples);
}

static int json_end(struct predict *p)
{
    const struct mr_net_totals *t = &p->totals;
    mr_json_array_end(p->json);
    mr_json_uint(p->json, "samples", p->done);
    train_json_number(p->json, "accuracy",
                      t->n_samples && p->loss != MR_MSE ? (double)t->n_right / (double)t->n_samples : NAN);
    train_json_number(p->json, "loss", t->n_samples ? t->loss / (double)t->n_samples : NAN);
    mr_json_double(p->json, "seconds", p->seconds);
    mr_json_string(p->json, "model", p->model);
    mr_json_string(p->json, "device", p->info.name);
    struct mr_json *json = p->json;
    p->json = NULL;
    return cli_json_end_config(json, options, p->opts);
}

static int open_outputs(struct predict *p)
{
    static const char heads[] = "index,label,predicted,score";
    if (cli.json) {
        p->json = cli_json_begin("predict");
        if (!p->json)
            return CLI_FAILED;
        mr_json_array(p->json, "predictions");
    } else
        p->table = cli_table_create(p->opts->limit ? ">sample\tpredicted\tlabel" : NULL);
    if (!p->opts->csv)
        return CLI_OK;
    int code = cli_output_open(&p->csv, p->opts->csv, true, false);
    if (code == CLI_OK)
        code = cli_output_write(&p->csv, heads, sizeof heads - 1);
    for (uint64_t i = 2; i <= p->opts->top && i <= p->classes && code == CLI_OK; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, ",predicted_%" PRIu64 ",score_%" PRIu64, i, i);
        code = cli_output_write(&p->csv, text, (size_t)n);
    }
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

static void close_all(struct predict *p)
{
    if (p->stream)
        mr_stream_synchronize(p->stream);
    mr_json_destroy(p->json);
    if (p->table)
        cli_table_print(p->table, stdout, 2);
    cli_output_abort(&p->csv);
    mr_loader_close(p->ld);
    mr_net_destroy(p->net);
    if (p->chain)
        mr_transform_destroy(p->chain);
    if (p->ds)
        mr_dataset_close(p->ds);
    if (p->stream)
        mr_stream_destroy(p->stream);
    if (p->dev)
        mr_device_close(p->dev);
    free(p->outputs);
    free(p->labels);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct checkpoint *c = calloc(1, sizeof *c);
    struct predict p = {.opts = values, .from = c};
    if (!c)
        return cli_fail("out of memory");
    if (p.opts->csv && cli_output_check(p.opts->csv) != CLI_OK) {
        free(c);
        return CLI_FAILED;
    }
    int rc = checkpoint_read(c, args[0]);
    if (rc == 0)
        rc = open_all(&p, args[1]);
    int code = rc < 0 ? cli_error(rc) : predict(&p);
    close_all(&p);
    checkpoint_free(c);
    free(c);
    return code;
}

static const struct cli_note json_notes[] = {
    {"predictions", "of the first --limit samples: index, label (or null), predicted, top: class, name, score"},
    {"samples, seconds", "how many, how long"},
    {"accuracy, loss", "over all samples; null without labels"},
    {"model, device, config", "what it was; every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace predict run.safetensors mnist/,split=test --top 3", "the test set's accuracy, and ten predictions"},
    {"millrace predict run.safetensors folder:pictures --limit 0 --csv out.csv", "all predictions into a file"},
    {NULL, NULL},
};

const struct cli_command cli_predict = {
    .name = "predict",
    .summary = "Run a trained net over a data set: accuracy and predictions",
    .synopsis = "CHECKPOINT DATASET [options]",
    .text = "Reads a checkpoint of millrace train, runs its net over the data set in order, prints the accuracy where "
            "samples have labels, and the first predictions. The checkpoint says model, shapes and transform.",
    .options = options,
    .options_bytes = sizeof(struct predict_opts),
    .min_args = 2,
    .max_args = 2,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
