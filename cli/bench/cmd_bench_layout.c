/* millrace bench layout: what reordering pictures from NHWC to NCHW costs, on the host and on the
 * device, and what a whole net makes of either. */
#include "bench/frame.h"
#include "bench/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct opts {
    struct cli_common common;
    char *device, *plot, *model;
    struct mr_loader_opts loader; /* its batch_size and workers */
    struct mr_shape shape, net_shape;
    uint64_t time_ns, repeats, threads;
};

#define OPT(...) BENCH_OPTION(struct opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("shape", MR_OPT_SHAPE, shape, .initial = "224x224x3", .min = 1, .max = 65536,
        .help = "Height, width and channels of the pictures that are loaded"),
    CLI_LOADER_OPTION(struct opts, loader, "batch-size", .initial = "64", .max = 1 << 20,
                      .group = "Options"),
    CLI_LOADER_OPTION(struct opts, loader, "workers", .group = "Options"),
    OPT("model", MR_OPT_STRING, model, .key = 'm', .initial = "resnet20", .meta = "MODEL",
        .help = "The net, as for millrace train; none: no net"),
    OPT("net-shape", MR_OPT_SHAPE, net_shape, .initial = "32x32x3", .min = 1, .max = 65536,
        .help = "Height, width and channels of the net's pictures; 1 or 3 channels"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda; sim, without the net and the device's transforms"),
    OPT("threads", MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "The net's threads on cpu; 0: one per processor that this process may use"),
    BENCH_TIME_OPTION(struct opts, "1s"),
    BENCH_REPEATS_OPTION(struct opts, "3", 1000),
    BENCH_PLOT_OPTION(struct opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { PICTURES, NET };

/* layout: of what is stored. */
static const struct way {
    const char *name, *where, *layout, *chain;
    int part;
    enum mr_device_transforms device;
    const char *on_device; /* its name beside that of the host's row */
} ways[] = {
    {"NHWC as it is", "-", "nhwc", NULL, PICTURES, MR_DEVICE_TRANSFORMS_OFF},
    {"to NCHW", "host", "nhwc", "layout(nchw)", PICTURES, MR_DEVICE_TRANSFORMS_OFF},
    {"to f32", "host", "nhwc", "cast(f32),scale(1/255)", PICTURES, MR_DEVICE_TRANSFORMS_OFF},
    {"to f32, NCHW", "host", "nhwc", "cast(f32),scale(1/255),layout(nchw)", PICTURES,
     MR_DEVICE_TRANSFORMS_OFF},
    {"to f32", "device", "nhwc", "cast(f32),scale(1/255)", PICTURES, MR_DEVICE_TRANSFORMS_ON,
     "to f32 on the device"},
    {"to f32, NCHW", "device", "nhwc", "cast(f32),scale(1/255),layout(nchw)", PICTURES,
     MR_DEVICE_TRANSFORMS_ON, "to f32, NCHW on the device"},
    {"stored NHWC", "-", "nhwc", NULL, NET, MR_DEVICE_TRANSFORMS_AUTO},
    {"stored NCHW", "-", "nchw", NULL, NET, MR_DEVICE_TRANSFORMS_AUTO},
    {"NHWC, to NCHW", "host", "nhwc", "layout(nchw)", NET, MR_DEVICE_TRANSFORMS_OFF},
};

enum { WAY, WHERE, RATE, EACH, TIMES, SPREAD, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [WAY] = {"pictures", "way", BENCH_TEXT},
    [WHERE] = {"where", "where", BENCH_TEXT},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [EACH] = {">us each", "us_each", .digits = 2},
    [TIMES] = {">of the first", "of_the_first", .digits = 2, .suffix = "x"},
    [SPREAD] = {">spread", "variation", BENCH_SHARE},
};

static const char *const titles[] = {"Loading alone: batches of u8 pictures, of zeros",
                                     "Training a net: u8 pictures, of zeros", NULL};

static const char *const without_net[] = {"Loading alone: batches of u8 pictures, of zeros", NULL};

static struct bench_panel panels[] = {
    {.title = "Loading alone", .x_label = "", .y_label = "samples/s", .x = -1, .y = {RATE}, .n = 1},
    {.title = "Training a net",
     .x_label = "",
     .y_label = "samples/s",
     .x = -1,
     .y = {RATE},
     .n = 1},
};

/* Zeros cost no more than a memset, which is the same in each row. */
static void uri_of(const struct opts *o, const struct way *way, char *buf, size_t cap)
{
    const uint64_t *d = way->part == NET ? o->net_shape.dim : o->shape.dim;
    bool nchw = strcmp(way->layout, "nchw") == 0;
    snprintf(buf, cap,
             "synthetic:n=65536,shape=%" PRIu64 "x%" PRIu64 "x%" PRIu64
             ",dtype=u8,values=zero,classes=10",
             d[nchw ? 2 : 0], d[nchw ? 0 : 1], d[nchw ? 1 : 2]);
}

/* ---- loading ---- */

static int load_for(struct cli_pipeline *p, uint64_t time_ns, double *v)
{
    struct mr_batch b = {.size = sizeof b};
    uint64_t samples = 0, start = mr_time_ns();
    int rc;
    while ((rc = cli_pipeline_next(p, &b)) > 0) {
        samples += b.n;
        rc = mr_loader_release(p->loader, &b, p->stream);
        if (rc < 0 || mr_time_ns() - start >= time_ns)
            break;
    }
    int done = mr_stream_synchronize(p->stream);
    v[RATE] = (double)samples / ((double)(mr_time_ns() - start) * 1e-9);
    v[EACH] = 1e6 / v[RATE];
    return rc < 0 ? rc : done;
}

static int measure_loading(struct bench *b, const struct way *way, double *v)
{
    const struct opts *o = b->values;
    struct cli_pipeline p = {.dev = b->dev, .shared = true};
    struct mr_loader_opts lo = o->loader;
    char uri[160];
    uri_of(o, way, uri, sizeof uri);
    lo.epochs = 0;
    lo.device_transforms = way->device;
    int rc = mr_dataset_open(uri, &p.ds);
    if (rc < 0)
        return rc;
    rc = cli_pipeline_chain(&p, way->chain);
    if (rc >= 0)
        rc = cli_pipeline_order(&p, "sequential", 0);
    if (rc >= 0)
        rc = cli_pipeline_start(&p, &lo);
    if (rc >= 0)
        rc = load_for(&p, o->time_ns / 4, v); /* warms up */
    if (rc >= 0)
        rc = load_for(&p, o->time_ns, v);
    struct mr_dataset *ds = p.ds;
    cli_pipeline_close(&p);
    mr_dataset_close(ds);
    return rc;
}

/* ---- a net ---- */

static int set_options(struct train_opts *train, const struct bench *b, const struct way *way)
{
    const struct opts *o = b->values;
    int rc = bench_train_init(train);
    train->epochs = 1000000000;
    train->threads = o->threads;
    train->classes = 10;
    train->loader.batch_size = o->loader.batch_size;
    train->loader.workers = o->loader.workers;
    train->loader.device_transforms = way->device;
    if (rc == 0)
        rc = bench_train_set(train, "test", "none");
    if (rc == 0 && way->chain)
        rc = bench_train_set(train, "transform", way->chain);
    if (rc == 0)
        rc = bench_train_set(train, "model", o->model);
    return rc == 0 ? bench_train_set(train, "device", o->device) : rc;
}

static int train_for(struct train *t, uint64_t time_ns, double *v)
{
    struct mr_train_window window = {.size = sizeof window};
    int last, rc = 1;
    for (int i = 0; i < 2 && rc > 0; i++) /* warms up */
        rc = mr_trainer_step(t->trainer, &last);
    int begun = rc >= 0 ? mr_trainer_window_begin(t->trainer) : rc;
    uint64_t start = mr_time_ns();
    while (begun >= 0 && rc > 0 && mr_time_ns() - start < time_ns && !cli_interrupted())
        rc = mr_trainer_step(t->trainer, &last);
    if (begun < 0 || rc < 0)
        return begun < 0 ? begun : rc;
    rc = mr_trainer_window_end(t->trainer, &window);
    v[RATE] = window.seconds > 0 ? (double)window.n_samples / window.seconds : 0;
    v[EACH] = 1e6 / v[RATE];
    return rc;
}

static int measure_net(struct bench *b, const struct way *way, double *v)
{
    const struct opts *o = b->values;
    struct train_opts opts;
    struct train_data data = {0};
    struct train t = {0};
    char uri[160];
    uri_of(o, way, uri, sizeof uri);
    int rc = set_options(&opts, b, way);
    if (rc == 0)
        rc = train_data_open(&data, uri, &opts, NULL);
    if (rc == 0)
        rc = train_open(&t, &data, &opts, NULL);
    if (rc == 0)
        rc = train_for(&t, o->time_ns, v);
    train_close(&t);
    train_data_close(&data);
    bench_train_free(&opts);
    return rc;
}

/* ---- the command ---- */

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    const struct opts *o = b->values;
    const struct way *way = &ways[row - b->rows];
    if (way->part == NET && strcmp(o->model, "none") == 0)
        return mr_error_set(MR_EUNSUPPORTED, "--model none");
    if (way->part == NET && b->info.simulated)
        return mr_error_set(MR_EUNSUPPORTED, "sim computes nothing: nets run on cpu and cuda");
    if (way->device == MR_DEVICE_TRANSFORMS_ON && (b->info.unified || b->info.simulated))
        return mr_error_set(MR_EUNSUPPORTED, "%s has no kernels of its own", b->info.name);
    return way->part == NET ? measure_net(b, way, v) : measure_loading(b, way, v);
}

static int open_all(struct bench *b)
{
    int rc = bench_rows(b, CLI_COUNT(ways));
    for (int k = 0; k < b->n_rows; k++) {
        struct bench_row *row = &b->rows[k];
        row->text[WAY] = ways[k].name;
        row->name = ways[k].on_device ? ways[k].on_device : ways[k].name;
        row->text[WHERE] = ways[k].where;
        row->part = ways[k].part;
    }
    return rc;
}

/* The first row of a part. */
static const struct bench_row *first_of(const struct bench *b, int part)
{
    for (int k = 0; k < b->n_rows; k++)
        if (b->rows[k].part == part)
            return &b->rows[k];
    return &b->rows[0];
}

static void conclude(struct bench *b)
{
    const struct bench_row *as_is = first_of(b, PICTURES), *nhwc = first_of(b, NET);
    for (int k = 0; k < b->n_rows; k++) /* medians of two columns may disagree */
        b->rows[k].v[EACH] = 1e6 / b->rows[k].v[RATE];
    for (int k = 0; k < b->n_rows; k++)
        b->rows[k].v[TIMES] = b->rows[k].v[RATE] / first_of(b, b->rows[k].part)->v[RATE];
    panels[0].limit = (struct plot_limit){"NHWC as it is", as_is->v[RATE]};
    snprintf(b->verdict, sizeof b->verdict,
             "Reordering on the host: %.2f us a picture, %.2f us without", as_is[1].v[EACH],
             as_is->v[EACH]);
    if (nhwc->left_out[0]) { /* the second table and panel would be empty */
        b->parts = without_net;
        b->n_panels = 1;
        return;
    }
    double ratio = nhwc->v[RATE] / nhwc[1].v[RATE], spread = nhwc->v[SPREAD] + nhwc[1].v[SPREAD];
    size_t at = strlen(b->verdict);
    if (b->repeats < 3)
        snprintf(b->verdict + at, sizeof b->verdict - at,
                 "; the net's rates are not compared: that takes 3 repeats");
    else if (fabs(ratio - 1) > spread)
        snprintf(b->verdict + at, sizeof b->verdict - at,
                 "; the net takes NHWC at %.2fx the rate of NCHW", ratio);
    else
        snprintf(b->verdict + at, sizeof b->verdict - at,
                 "; NHWC or NCHW makes no difference for the net beyond the spread");
}

static void above(const struct bench *b)
{
    const struct opts *o = b->values;
    bench_print_device(b);
    printf(": pictures of %" PRIu64 "x%" PRIu64 "x%" PRIu64 ", batches of %" PRIu64
           "; net %s on %" PRIu64 "x%" PRIu64 "x%" PRIu64 "\n",
           o->shape.dim[0], o->shape.dim[1], o->shape.dim[2], o->loader.batch_size, o->model,
           o->net_shape.dim[0], o->net_shape.dim[1], o->net_shape.dim[2]);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    (void)args;
    const struct opts *o = values;
    if (o->shape.rank != 3 || o->net_shape.rank != 3)
        return cli_misuse("--%sshape: expected height, width and channels, as 224x224x3",
                          o->shape.rank != 3 ? "" : "net-");
    if (o->net_shape.dim[2] != 1 && o->net_shape.dim[2] != 3)
        return cli_misuse("--net-shape: %" PRIu64 " channels: expected 1 or 3, in the last place",
                          o->net_shape.dim[2]);
    return bench_run(
        &(struct bench){.command = &cli_bench_layout,
                        .values = values,
                        .device = o->device,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "ways",
                        .parts = titles,
                        .repeats = o->repeats,
                        .varies = RATE,
                        .variation = SPREAD,
                        .explain = "Decoders write a picture pixel by pixel (NHWC), many nets "
                                   "expect it color by color (NCHW). Reordering moves every "
                                   "byte. The first chart is loading alone, the second a net on "
                                   "pictures stored either way.",
                        .chart = "Layout",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .open = open_all,
                        .measure = measure,
                        .conclude = conclude,
                        .above = above,
                        .learn = "layout"});
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"ways", "of each that could be measured: way, where (the reordering or the cast is done), "
             "samples_per_s, us_each (1 / samples_per_s), of_the_first (of its table), variation"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench layout --workers 1", "what one worker takes"},
    {"millrace bench layout --model none --shape 32x32x3 -b 1024", "small pictures, no net"},
    {NULL, NULL},
};

const struct cli_command cli_bench_layout = {
    .name = "bench layout",
    .summary = "Measure pictures as NHWC and NCHW: reordering, and whole nets",
    .synopsis = "[options]",
    .text = "Loads generated pictures as they are, reordered to channels first on the host and on "
            "the device, as bytes and as floats; then trains a net on pictures stored either way, "
            "and on reordered ones. Pictures are zeros, so that making them costs little.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .max_args = 0,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
