/* millrace bench devices: nets on the processor and on a GPU, trained and run, in one table. */
#include "bench/frame.h"
#include "bench/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 128, TEXT = 160 };

struct opts {
    struct cli_common common;
    char *devices, *models, *plot;
    struct mr_loader_opts loader; /* its batch_size and workers */
    struct mr_shape shape;
    uint64_t time_ns, repeats, threads;
};

#define OPT(...) BENCH_OPTION(struct opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("devices", MR_OPT_STRING, devices, .key = 'd', .initial = "cpu|cuda", .meta = "LIST",
        .help = "Devices, separated by |: cpu, cuda, cuda:1. The others are compared with the "
                "first; unavailable ones are left out"),
    OPT("models", MR_OPT_STRING, models, .key = 'm', .initial = "softmax|mlp:100s|mnist-cnn",
        .meta = "LIST", .help = "Nets, as for millrace train, separated by |"),
    CLI_LOADER_OPTION(struct opts, loader, "batch-size", .initial = "256", .max = 1 << 20,
                      .group = "Options"),
    CLI_LOADER_OPTION(struct opts, loader, "workers", .group = "Options"),
    OPT("shape", MR_OPT_SHAPE, shape, .initial = "28x28x1", .min = 1, .max = 65536,
        .help = "Height, width and channels of the generated pictures; 1 or 3 channels"),
    BENCH_THREADS_OPTION(struct opts),
    BENCH_TIME_OPTION(struct opts, "1s"),
    BENCH_REPEATS_OPTION(struct opts, "3", 1000),
    BENCH_PLOT_OPTION(struct opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { TRAINING, INFERENCE };

static const char *const titles[] = {"Training", "Inference", NULL};

enum { NET, DEVICE, RATE, BATCH_MS, SPEED_UP, SPREAD, PART, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [NET] = {"net", "net", BENCH_TEXT},
    [DEVICE] = {"device", "device", BENCH_TEXT},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [BATCH_MS] = {">ms a batch", "batch_ms", .digits = 3},
    [SPEED_UP] = {">times the first", "speed_up", .digits = 2, .suffix = "x"},
    [SPREAD] = {">spread", "variation", BENCH_SHARE},
    [PART] = {.key = "does", .format = BENCH_TEXT},
};

static struct bench_panel panels[] = {
    {.title = "Training", .x_label = "", .y_label = "samples/s", .x = -1, .y = {RATE}, .n = 1},
    {.title = "Inference", .x_label = "", .y_label = "samples/s", .x = -1, .y = {RATE}, .n = 1},
};

struct devices {
    char *net[MAX_ROWS], *device[MAX_ROWS], name[MAX_ROWS][TEXT], missing[MAX_ROWS][300];
    int n;
};

/* ---- measuring ---- */

static int set_options(struct train_opts *train, const struct opts *o, const char *model,
                       const char *device, const char *uri)
{
    int rc = bench_train_init(train);
    train->epochs = 1000000000;
    train->threads = o->threads;
    train->classes = 10;
    train->loader.batch_size = o->loader.batch_size;
    train->loader.workers = o->loader.workers;
    if (rc == 0)
        rc = bench_train_set(train, "test", uri);
    if (rc == 0)
        rc = bench_train_set(train, "model", model);
    return rc == 0 ? bench_train_set(train, "device", device) : rc;
}

/* Whole passes over the test set. */
static int run_for(struct train *t, uint64_t time_ns, double *rate)
{
    struct mr_train_sums sums = {.size = sizeof sums};
    int rc = mr_trainer_test(t->trainer, &sums); /* warms up */
    uint64_t start = mr_time_ns(), n = 0;
    do {
        rc = rc < 0 ? rc : mr_trainer_test(t->trainer, &sums);
        n += sums.n_samples;
    } while (rc == 0 && mr_time_ns() - start < time_ns && !cli_interrupted());
    *rate = (double)n / ((double)(mr_time_ns() - start) * 1e-9);
    return rc;
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    const struct opts *o = b->values;
    const struct devices *d = b->user;
    int i = (int)(row - b->rows) % d->n;
    struct train_opts opts;
    struct train_data data = {0};
    struct train t = {0};
    char uri[TEXT];
    snprintf(uri, sizeof uri,
             "synthetic:n=8192,shape=%" PRIu64 "x%" PRIu64 "x%" PRIu64
             ",dtype=u8,values=zero,classes=10",
             o->shape.dim[0], o->shape.dim[1], o->shape.dim[2]);
    int rc = set_options(&opts, o, d->net[i], d->device[i], uri);
    if (rc == 0)
        rc = train_data_open(&data, uri, &opts, NULL);
    if (rc == 0)
        rc = train_open(&t, &data, &opts, NULL);
    if (rc == 0 && data.pipe.info.model[0])
        snprintf(b->info.model, sizeof b->info.model, "%s", data.pipe.info.model);
    if (rc == 0)
        rc = row->part == TRAINING ? bench_train_for(&t, o->time_ns, &v[RATE])
                                   : run_for(&t, o->time_ns, &v[RATE]);
    train_close(&t);
    train_data_close(&data);
    bench_train_free(&opts);
    return rc;
}

/* ---- the command ---- */

static int add(struct devices *d, const char *net, const char *device)
{
    struct mr_device *dev;
    if (d->n == MAX_ROWS / 2)
        return mr_error_set(MR_EOPTION, "--models, --devices: at most %d pairs", MAX_ROWS / 2);
    int i = d->n++, rc = mr_device_open(device, &dev);
    d->net[i] = strdup(net);
    d->device[i] = strdup(device);
    if (!d->net[i] || !d->device[i])
        return mr_error_set(-ENOMEM, "bench devices: out of memory");
    snprintf(d->name[i], sizeof d->name[i], "%.90s, %.60s", net, device);
    if (rc < 0)
        snprintf(d->missing[i], sizeof d->missing[i], "%s", mr_last_error());
    else
        mr_device_close(dev);
    return rc == MR_EOPTION ? rc : 0; /* what is not here is left out; a wrong name is an error */
}

static int add_all(struct devices *d, const struct opts *o)
{
    char *net, *device;
    int rc = 0;
    for (int i = 0; rc == 0 && (net = bench_item(o->models, '|', i)) != NULL; i++) {
        for (int k = 0; rc == 0 && (device = bench_item(o->devices, '|', k)) != NULL; k++) {
            rc = add(d, net, device);
            free(device);
        }
        free(net);
    }
    return rc;
}

static int open_all(struct bench *b)
{
    struct devices *d = b->user;
    int rc = add_all(d, b->values);
    if (rc == 0)
        rc = bench_rows(b, 2 * d->n);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        int k = i % d->n;
        row->part = i / d->n;
        row->name = d->name[k];
        row->text[NET] = d->net[k];
        row->text[DEVICE] = d->device[k];
        row->text[PART] = row->part == TRAINING ? "training" : "inference";
        snprintf(row->left_out, sizeof row->left_out, "%s", d->missing[k]);
    }
    return rc;
}

static void close_all(struct bench *b)
{
    struct devices *d = b->user;
    for (int i = 0; i < d->n; i++) {
        free(d->net[i]);
        free(d->device[i]);
    }
}

/* The row of the same net and part on the first device. */
static const struct bench_row *first_of(const struct bench *b, int i)
{
    while (i > 0 && b->rows[i - 1].part == b->rows[i].part &&
           strcmp(b->rows[i - 1].text[NET], b->rows[i].text[NET]) == 0)
        i--;
    return &b->rows[i];
}

/* There is one: what has none fails before. */
static const struct bench_row *first_measured(const struct bench *b)
{
    int i = 0;
    while (i < b->n_rows - 1 && b->rows[i].left_out[0])
        i++;
    return &b->rows[i];
}

static void conclude(struct bench *b)
{
    const struct opts *o = b->values;
    double least = INFINITY, most = 0, spread = 0;
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct bench_row *first = first_of(b, i);
        row->v[BATCH_MS] = 1e3 * (double)o->loader.batch_size / row->v[RATE];
        row->v[SPEED_UP] = row->v[RATE] / first->v[RATE];
        if (row == first || row->left_out[0] || isnan(row->v[SPEED_UP]))
            continue;
        least = fmin(least, row->v[SPEED_UP]);
        most = fmax(most, row->v[SPEED_UP]);
        spread = fmax(spread, fmax(row->v[SPREAD], first->v[SPREAD])); /* of NaN: the other */
    }
    if (most <= 0)
        snprintf(b->verdict, sizeof b->verdict, "Nothing to compare: only %s was measured",
                 first_measured(b)->text[DEVICE]);
    else
        snprintf(b->verdict, sizeof b->verdict,
                 "Compared with the same net on %s: %.2fx to %.2fx the rate%s",
                 b->rows[0].text[DEVICE], least, most,
                 most - least <= 2 * spread && least <= 1 && most >= 1
                     ? ", which may be chance: repeats of one net differ by as much"
                     : "");
}

static void above(const struct bench *b)
{
    const struct opts *o = b->values;
    printf("generated pictures of %" PRIu64 "x%" PRIu64 "x%" PRIu64 ", batches of %" PRIu64
           "; medians of %" PRIu64 "\n",
           o->shape.dim[0], o->shape.dim[1], o->shape.dim[2], o->loader.batch_size, o->repeats);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    const struct opts *o = values;
    struct devices d = {0};
    if (o->shape.rank != 3 || (o->shape.dim[2] != 1 && o->shape.dim[2] != 3))
        return cli_misuse("--shape: expected height, width and 1 or 3 channels, as 28x28x1");
    cli_catch_interrupts();
    return bench_run(
        &(struct bench){.command = &cli_bench_devices,
                        .values = values,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "rows",
                        .parts = titles,
                        .repeats = o->repeats,
                        .varies = RATE,
                        .variation = SPREAD,
                        .explain = "The same nets on the processor and on a GPU, fed by the "
                                   "loader. A GPU computes thousands of products at once, but "
                                   "each of its kernels takes some microseconds to start: small "
                                   "nets and batches gain little.",
                        .chart = "Processor and GPU",
                        .subtitle = "training and inference of nets",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .user = &d,
                        .open = open_all,
                        .close = close_all,
                        .measure = measure,
                        .conclude = conclude,
                        .above = above,
                        .learn = "devices"});
}

static const struct cli_note json_notes[] = {
    {"rows", "of each net and device: net, device, does (training, inference), samples_per_s "
             "(median), batch_ms, speed_up (over the first device), variation; left_out: why it "
             "was not measured"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench devices --plot devices.html", "three nets on the processor and the first GPU"},
    {"millrace bench devices -m resnet20 --shape 32x32x3 -b 128", "one net"},
    {NULL, NULL},
};

const struct cli_command cli_bench_devices = {
    .name = "bench devices",
    .summary = "Compare nets on the processor and on GPUs: training and inference",
    .synopsis = "[options]",
    .text = "Trains nets on generated pictures, and runs them, on each of the devices, fed by the "
            "loader as in millrace train. Pictures are zeros, so that making them costs little.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
