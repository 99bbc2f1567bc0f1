/* millrace bench story: from starving to fed in four steps, with the share of the time that the
 * device waited. */
#include "bench/frame.h"
#include "bench/story_sim.h"
#include "bench/train.h"

#include <inttypes.h>
#include <string.h>

enum { N_STEPS = 4 };

struct opts {
    struct cli_common common;
    char *model, *optimizer, *device, *transform, *plot;
    struct mr_loader_opts loader; /* its batch_size and workers */
    uint64_t time_ns, threads, seed, step_ns, repeats;
    int amp;
};

static const char *const amps[] = {"bf16", "fp16", NULL};

#define DEFAULT_STEP_NS     1000000

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
    BENCH_REPEATS_OPTION(struct opts, "3", 100),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "3s", .min = 1e7, .max = 3600e9, .unit = "s",
        .help = "Duration of each measurement"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda; sim, where a step of training is a time (--step)"),
    OPT("step", MR_OPT_DURATION, step_ns, .min = 1000, .max = 3600e9, .unit = "ms",
        .help = "With --device sim: time of a step; by default the device's (sim:step=3ms), else "
                "1ms"),
    BENCH_THREADS_OPTION(struct opts),
    BENCH_PLOT_OPTION(struct opts),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0", .help = "Seed of parameters and order"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const struct {
    const char *name, *what, *not_on_cpu, *not_on_sim;
} steps[N_STEPS] = {
    {"starved",
     "one worker, one batch ahead, pageable memory, each copy waited for, transforms on the host",
     NULL, NULL},
    {"workers", "all workers, batches made ahead", NULL, NULL},
    {"pinned", "page-locked memory, copies not waited for, transforms on the device",
     "nothing is copied: cpu reads batches where they were made", NULL},
    {"mixed precision", "16 bits in the net, parameters in f32", "cpu computes in f32 alone",
     "sim computes nothing, in any precision: give the time of a shorter step by --step"},
};

enum {
    NAME,
    WHAT,
    MEASURED,
    WHY_NOT,
    RATE,
    VARIATION,
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
    [VARIATION] = {">variation", "variation", BENCH_SHARE},
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
static void set_loader(struct mr_loader_opts *loader, const struct opts *o, int k)
{
    loader->batch_size = o->loader.batch_size;
    loader->workers = k >= 1 ? o->loader.workers : 1;
    loader->prefetch = k >= 1 ? 0 : 1;
    loader->pin = k >= 2;
    loader->blocking = k < 2;
    loader->device_transforms = k >= 2 ? MR_DEVICE_TRANSFORMS_AUTO : MR_DEVICE_TRANSFORMS_OFF;
}

static int set_options(struct train_opts *train, const struct opts *o, int k)
{
    int rc = bench_train_init(train);
    train->epochs = 1000000000;
    train->seed = o->seed;
    train->threads = o->threads;
    set_loader(&train->loader, o, k);
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
    for (int i = 0; i < STORY_WARM_STEPS && rc > 0 && !cli_interrupted(); i++)
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

static bool is_simulated(const struct opts *o)
{
    return strcmp(o->device, "sim") == 0 || strncmp(o->device, "sim:", 4) == 0;
}

static int leave_out(struct bench_row *row, const char *device, const char *why)
{
    row->text[WHY_NOT] = why;
    return mr_error_set(MR_EUNSUPPORTED, "no meaning on %s: %s", device, why);
}

static int measure_simulated(struct bench *b, struct bench_row *row, double *v)
{
    const struct opts *o = b->values;
    struct story *story = b->user;
    int k = (int)(row - b->rows);
    struct mr_loader_opts loader;
    if (steps[k].not_on_sim)
        return leave_out(row, "sim", steps[k].not_on_sim);
    mr_loader_opts_init(&loader);
    loader.epochs = 0;
    loader.seed = o->seed;
    set_loader(&loader, o, k);
    struct story_sim sim = {.device = o->device,
                            .dataset = story->dataset,
                            .transform = o->transform,
                            .loader = &loader,
                            .step_ns = o->step_ns,
                            .time_ns = o->time_ns,
                            .seed = o->seed};
    int rc = story_simulate(&sim);
    if (rc < 0)
        return rc;
    b->info = sim.info;
    snprintf(story->data, sizeof story->data, "%s", sim.data);
    snprintf(story->bottleneck[k], sizeof story->bottleneck[k], "%s", sim.stats.bottleneck);
    row->text[BOTTLENECK] = story->bottleneck[k];
    v[MEASURED] = 1;
    v[N_RUN] = (double)sim.steps;
    v[RATE] = (double)sim.samples / ((double)sim.ns * 1e-9);
    v[STEP] = sim.steps ? (double)sim.ns * 1e-6 / v[N_RUN] : 0;
    v[WAITED] = sim.waited;
    v[WORKERS] = sim.stats.workers;
    return 0;
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    if (is_simulated(b->values))
        return measure_simulated(b, row, v);
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
        rc = leave_out(row, data.pipe.info.name, steps[k].not_on_cpu);
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

/* The rate of the last step in f32 without the time that the device waited. */
static double never_waiting(const struct bench *b)
{
    double rate = 0;
    for (int k = 0; k < N_STEPS - 1; k++) {
        const double *v = b->rows[k].v;
        if (!b->rows[k].left_out[0] && v[WAITED] < 1)
            rate = v[RATE] / (1 - v[WAITED]);
    }
    return rate;
}

/* How much faster a step is than an earlier one, if not by chance; else 0. */
static double gain_of(const struct bench *b, int before, int after)
{
    const struct bench_row *x = &b->rows[before], *y = &b->rows[after];
    double gain = y->v[RATE] / x->v[RATE] - 1;
    return fabs(gain) > bench_chance(b, x, y) ? gain : 0;
}

/* The last line, up to the last step that was measured. */
static void say(struct bench *b, int last)
{
    const struct bench_row *first = &b->rows[0], *row = &b->rows[last];
    size_t used = (size_t)snprintf(
        b->verdict, sizeof b->verdict,
        "From \"%s\" to \"%s\": %.2fx the rate%s; the device waited %.1f%% of the time before "
        "and %.1f%% after",
        steps[0].name, steps[last].name, row->v[SPEED_UP],
        gain_of(b, 0, last) != 0 ? "" : " (no difference beyond the spread)",
        100 * first->v[WAITED], 100 * row->v[WAITED]);
    const char *before = "; beyond the spread no gain by";
    for (int k = 1, from = 0; k <= last && last > 1; k++) {
        if (b->rows[k].left_out[0])
            continue;
        if (gain_of(b, from, k) <= 0) {
            used += (size_t)snprintf(b->verdict + used, sizeof b->verdict - used, "%s \"%s\"",
                                     before, steps[k].name);
            before = ",";
        }
        from = k;
    }
}

static void conclude(struct bench *b)
{
    const struct opts *o = b->values;
    int last = 0;
    for (int k = 0; k < N_STEPS; k++) {
        b->rows[k].v[SPEED_UP] = b->rows[k].v[RATE] / b->rows[0].v[RATE];
        last = b->rows[k].left_out[0] ? last : k;
    }
    snprintf(b->subtitle, sizeof b->subtitle, "%.200s, device %s",
             ((const struct story *)b->user)->data, b->info.name);
    if (is_simulated(o))
        b->panels[0].limit =
            (struct plot_limit){"steps alone", (double)o->loader.batch_size * 1e9 / o->step_ns};
    else /* in f32, by the last step that has it */
        b->panels[0].limit = (struct plot_limit){"in f32, if it never waited", never_waiting(b)};
    if (last > 0)
        say(b, last);
}

static void above(const struct bench *b)
{
    const struct opts *o = b->values;
    const struct story *story = b->user;
    char text[CLI_CLEAN];
    char buf[CLI_HUMAN];
    if (is_simulated(o))
        printf("%s: steps of %s, batches of %" PRIu64 ", device ", cli_clean(story->data, text),
               cli_time(o->step_ns, buf), o->loader.batch_size);
    else
        printf("%s: %s by %s, batches of %" PRIu64 ", device ", cli_clean(story->data, text),
               o->model, o->optimizer, o->loader.batch_size);
    bench_print_device(b);
    printf("; medians of %" PRIu64 "\n", o->repeats);
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
        : is_simulated(b->values)
            ? "device waited: the share of the time in which the simulated device had no step to "
              "do."
            : "device waited: the share of the time in which the GPU had no step to do, by the "
              "events around each step.",
        2);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct story *story = b->user;
    mr_json_string(json, "dataset", story->data);
}

static struct bench_panel panels[] = {
    {.title = "Throughput", .x_label = "", .y_label = "samples/s", .x = -1, .y = {RATE}, .n = 1},
    {.title = "The device waited",
     .x_label = "",
     .y_label = "% of the time",
     .x = -1,
     .y = {WAITED},
     .n = 1,
     .unit = 0.01},
};

/* What has no meaning on the device is refused, where it differs from what stands there anyway. */
static int check_options(const struct opts *o)
{
    struct opts initial = {0};
    int rc = cli_options_init(options, &initial);
    if (rc < 0)
        return cli_error(rc);
    const char *name = !is_simulated(o)                               ? NULL
                       : strcmp(o->model, initial.model) != 0         ? "model"
                       : strcmp(o->optimizer, initial.optimizer) != 0 ? "optimizer"
                       : o->threads != initial.threads                ? "threads"
                       : o->amp != initial.amp                        ? "amp"
                                                                      : NULL;
    mr_options_free(cli_options(options), &initial);
    if (o->step_ns && !is_simulated(o))
        return cli_misuse("--step: on --device %s steps are real: only sim takes their time",
                          o->device);
    return name ? cli_misuse("--%s: the simulated device computes nothing: --step gives the time "
                             "of a step",
                             name)
                : CLI_OK;
}

/* A step's time is --step's or the device's, not both. */
static int choose_step(struct opts *o)
{
    struct mr_device_info info = {.size = sizeof info};
    struct mr_device *dev;
    if (!is_simulated(o))
        return CLI_OK;
    int rc = mr_device_open(o->device, &dev);
    if (rc < 0)
        return cli_error(rc);
    rc = mr_device_query(dev, &info);
    mr_device_close(dev);
    if (rc < 0)
        return cli_error(rc);
    if (o->step_ns && info.step_ns)
        return cli_misuse("--step and --device %s: give the time of a step once", o->device);
    o->step_ns = o->step_ns ? o->step_ns : info.step_ns ? info.step_ns : DEFAULT_STEP_NS;
    return CLI_OK;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct story story = {.dataset = args[0]};
    struct opts *o = values;
    int code = check_options(o);
    if (code == CLI_OK)
        code = choose_step(o);
    if (code != CLI_OK)
        return code;
    return bench_run(
        &(struct bench){.command = &cli_bench_story,
                        .values = values,
                        .plot = o->plot,
                        .explain = "The same training, with one mistake fixed at a time. As long "
                                   "as the device waits for data, a faster step gains nothing; "
                                   "once it does not, only a faster step does.",
                        .chart = "From starved to fed",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .learn = "story",
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "steps",
                        .repeats = o->repeats,
                        .varies = RATE,
                        .variation = VARIATION,
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
     "samples_per_s (median), variation (standard deviation over mean), step_ms, "
     "waited (0 to 1, the share of "
     "the time that the device had no batch), n_steps, workers, bottleneck (of the loader)"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench story mnist/", "on the first GPU"},
    {"millrace bench story mnist/ --device sim:h2d=2,pageable=1 --step 0.2ms",
     "without a GPU: real loading and copies, steps that only take time"},
    {"millrace bench story photos/ --model resnet20 -t 'resize(40),random_crop(32,32)'",
     "with decoding to do"},
    {NULL, NULL},
};

const struct cli_command cli_bench_story = {
    .name = "bench story",
    .summary = "Train starved, with workers, with pinned memory, in mixed precision",
    .synopsis = "DATASET [options]",
    .text =
        "Trains the same net four times, and fixes one mistake each time: first starved, by a "
        "single worker that waits for every copy (feed --blocking); then with workers; with "
        "page-locked memory; in mixed precision. Reports the throughput and the share of the time "
        "that the device waited for data: medians of --repeats measurements, which take turns, and "
        "how much the rate varies. A difference counts as a gain if it is larger than that, and "
        "than 5%. The last two do not apply to cpu and are reported as skipped. On sim the loader "
        "is real and a step is a time, so the last one is skipped.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
