/* millrace bench story: from starving to fed in four steps, with the share of the time that the
 * device waited. */
#include "bench/frame.h"
#include "bench/train.h"

#include <inttypes.h>
#include <string.h>

enum { N_STEPS = 4, WARM_STEPS = 20 };

struct opts {
    struct cli_common common;
    char *model, *optimizer, *device, *transform;
    struct mr_loader_opts loader; /* its batch_size and workers */
    uint64_t time_ns, threads, seed;
    int amp;
};

static const char *const amps[] = {"bf16", "fp16", NULL};

#define OPT(...)            BENCH_OPTION(struct opts, __VA_ARGS__)
#define LOADER(option, ...) CLI_LOADER_OPTION(struct opts, loader, option, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("model", MR_OPT_STRING, model, .key = 'm', .initial = "mnist-cnn", .meta = "MODEL",
        .help = "The net"),
    OPT("optimizer", MR_OPT_STRING, optimizer, .key = 'o', .initial = "adadelta:lr=1",
        .meta = "OPTIMIZER", .help = "The optimizer, as for millrace train"),
    LOADER("batch-size", .initial = "256", .max = 1 << 20, .group = "Options"),
    OPT("transform", MR_OPT_STRING, transform, .key = 't', .meta = "CHAIN",
        .help = "Ops on each sample; millrace inspect --transforms lists them"),
    LOADER("workers", .group = "Options",
           .help = "Threads from the second step on; 0: one per processor that this process may "
                   "use"),
    OPT("amp", MR_OPT_ENUM, amp, .initial = "bf16", .choices = amps,
        .help = "Precision of the last step"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "5s", .min = 1e7, .max = 3600e9, .unit = "s",
        .help = "Duration of each step"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda"),
    OPT("threads", MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "Compute threads on cpu; 0: one per processor that this process may use"),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0", .help = "Seed of parameters and order"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const struct {
    const char *name, *what, *not_on_cpu;
} steps[N_STEPS] = {
    {"starved",
     "one worker, one batch ahead, pageable memory, each copy waited for, transforms on the host",
     NULL},
    {"workers", "all workers, batches made ahead", NULL},
    {"pinned", "page-locked memory, copies not waited for, transforms on the device",
     "nothing is copied: cpu reads batches where they were made"},
    {"mixed precision", "16 bits in the net, parameters in f32", "cpu computes in f32 alone"},
};

enum {
    NAME,
    WHAT,
    MEASURED,
    WHY_NOT,
    RATE,
    SPEED_UP,
    STEP,
    WAITED,
    N_RUN,
    WORKERS,
    BOTTLENECK,
    N_COLUMNS
};

static const struct bench_column columns[N_COLUMNS] = {
    [NAME] = {"step", "step", BENCH_TEXT},
    [WHAT] = {.key = "what", .format = BENCH_TEXT},
    [MEASURED] = {.key = "measured", .format = BENCH_FLAG},
    [WHY_NOT] = {.key = "why_not", .format = BENCH_TEXT, .null = true},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [SPEED_UP] = {">speed-up", .digits = 2, .suffix = "x"},
    [STEP] = {">ms a step", "step_ms", .digits = 3},
    [WAITED] = {">device waited", "waited", BENCH_SHARE},
    [N_RUN] = {.key = "n_steps", .format = BENCH_COUNT},
    [WORKERS] = {.key = "workers", .format = BENCH_COUNT},
    [BOTTLENECK] = {"bottleneck", "bottleneck", BENCH_TEXT},
};

struct story {
    const char *dataset;
    char data[256], bottleneck[N_STEPS][16];
};

/* Each has what those before it have. */
static int set_options(struct train_opts *train, const struct opts *o, int k)
{
    int rc = bench_train_init(train);
    train->loader.batch_size = o->loader.batch_size;
    train->epochs = 1000000000;
    train->seed = o->seed;
    train->threads = o->threads;
    train->loader.workers = k >= 1 ? o->loader.workers : 1;
    train->loader.prefetch = k >= 1 ? 0 : 1;
    train->loader.pin = k >= 2;
    train->loader.blocking = k < 2;
    train->loader.device_transforms = k >= 2 ? MR_DEVICE_TRANSFORMS_AUTO : MR_DEVICE_TRANSFORMS_OFF;
    train->amp = k < 3 ? MR_PRECISION_F32 : o->amp == 0 ? MR_PRECISION_BF16 : MR_PRECISION_FP16;
    if (rc == 0)
        rc = bench_train_set(train, "test", "none");
    if (rc == 0 && o->transform)
        rc = bench_train_set(train, "transform", o->transform);
    if (rc == 0)
        rc = bench_train_set(train, "model", o->model);
    if (rc == 0)
        rc = bench_train_set(train, "optimizer", o->optimizer);
    return rc == 0 ? bench_train_set(train, "device", o->device) : rc;
}

/* [out] bottleneck: the loader's. */
static int run_step(struct train *t, uint64_t time_ns, double *v, char bottleneck[16])
{
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_train_window window = {.size = sizeof window};
    int last, rc = 1;
    for (int i = 0; i < WARM_STEPS && rc > 0; i++)
        rc = mr_trainer_step(t->trainer, &last);
    int begun = rc >= 0 ? mr_trainer_window_begin(t->trainer) : rc;
    if (begun < 0)
        return begun;
    uint64_t start = mr_time_ns();
    while (rc > 0 && mr_time_ns() - start < time_ns && !cli_interrupted())
        rc = mr_trainer_step(t->trainer, &last);
    if (rc >= 0)
        rc = mr_trainer_window_end(t->trainer, &window);
    if (rc < 0)
        return rc;
    mr_loader_stats(mr_trainer_get_loader(t->trainer), &st);
    v[N_RUN] = (double)window.steps;
    v[RATE] = (double)window.n_samples / window.seconds;
    v[STEP] = window.steps ? 1e3 * window.seconds / v[N_RUN] : 0;
    v[WAITED] = window.waited;
    v[WORKERS] = st.workers;
    snprintf(bottleneck, 16, "%s", st.bottleneck);
    return 0;
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    const struct opts *o = b->values;
    struct story *story = b->user;
    int k = (int)(row - b->rows);
    struct train_opts opts;
    struct train_data data = {0};
    struct train t = {0};
    int rc = set_options(&opts, o, k);
    if (rc == 0)
        rc = train_data_open(&data, story->dataset, &opts, NULL);
    if (rc < 0)
        goto close;
    b->info = data.pipe.info;
    snprintf(story->data, sizeof story->data, "%s", mr_dataset_text(data.pipe.ds));
    if (data.pipe.info.unified && steps[k].not_on_cpu) {
        row->text[WHY_NOT] = steps[k].not_on_cpu;
        rc = mr_error_set(MR_EUNSUPPORTED, "no meaning on %s: %s", data.pipe.info.name,
                          steps[k].not_on_cpu);
        goto close;
    }
    rc = train_open(&t, &data, &opts, NULL);
    if (rc == 0)
        rc = run_step(&t, o->time_ns, v, story->bottleneck[k]);
    v[MEASURED] = 1;
    row->text[BOTTLENECK] = story->bottleneck[k];
close:
    train_close(&t);
    train_data_close(&data);
    bench_train_free(&opts);
    return rc;
}

static int open_all(struct bench *b)
{
    int rc = bench_rows(b, N_STEPS);
    for (int k = 0; k < b->n_rows; k++) {
        b->rows[k].name = b->rows[k].text[NAME] = steps[k].name;
        b->rows[k].text[WHAT] = steps[k].what;
        b->rows[k].v[MEASURED] = 0;
    }
    return rc;
}

static void conclude(struct bench *b)
{
    for (int k = 0; k < N_STEPS; k++)
        b->rows[k].v[SPEED_UP] = b->rows[k].v[RATE] / b->rows[0].v[RATE];
}

static void above(const struct bench *b)
{
    const struct opts *o = b->values;
    const struct story *story = b->user;
    char text[CLI_CLEAN];
    printf("%s: %s by %s, batches of %" PRIu64 ", device ", cli_clean(story->data, text), o->model,
           o->optimizer, o->loader.batch_size);
    bench_print_device(b);
    printf("\n");
}

static void below(const struct bench *b)
{
    for (int k = 0; k < N_STEPS; k++)
        if (!b->rows[k].left_out[0])
            printf("  %-15s  %s\n", steps[k].name, steps[k].what);
    printf("\n");
    cli_paragraphs(
        stdout,
        b->info.unified
            ? "device waited: the share of the time in which the step's thread had no batch. "
              "Steps and workers share the processors."
            : "device waited: the share of the time in which the GPU had no step to do, by the "
              "events around each step.",
        2);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct story *story = b->user;
    mr_json_string(json, "dataset", story->data);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct story story = {.dataset = args[0]};
    return bench_run(&(struct bench){.command = &cli_bench_story,
                                     .values = values,
                                     .columns = columns,
                                     .n_columns = N_COLUMNS,
                                     .rows_key = "steps",
                                     .user = &story,
                                     .open = open_all,
                                     .measure = measure,
                                     .conclude = conclude,
                                     .json = json,
                                     .above = above,
                                     .below = below});
}

static const struct cli_note json_notes[] = {
    {"device, dataset", "what was measured"},
    {"steps",
     "of each: step, what (is new), measured, why_not and left_out (of what was not); "
     "samples_per_s, step_ms, "
     "waited (0 to 1, the share of "
     "the time that the device had no batch), n_steps, workers, bottleneck (of the loader)"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench story mnist/", "on the first GPU"},
    {"millrace bench story photos/ --model resnet20 -t 'resize(40),random_crop(32,32)'",
     "with decoding to do"},
    {NULL, NULL},
};

const struct cli_command cli_bench_story = {
    .name = "bench story",
    .summary = "Train starved, with workers, with pinned memory, in mixed precision",
    .synopsis = "DATASET [options]",
    .text = "Trains the same net four times, and fixes one mistake each time: first starved, by a "
            "single worker that waits for every copy; then with workers; with page-locked memory; "
            "in mixed precision. Reports the throughput and the share of the time that the device "
            "waited for data. The last two do not apply to cpu and are reported as skipped.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
