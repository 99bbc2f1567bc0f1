/* millrace bench story: from starving to fed in four steps, with the share of the time that the device waited. */
#include "bench/bench.h"
#include "bench/train.h"

#include <inttypes.h>
#include <string.h>

enum { N_STEPS = 4, WARM_STEPS = 20 };

struct opts {
    struct cli_common common;
    char *model, *optimizer, *device, *transform;
    uint64_t batch_size, workers, time_ns, threads, seed;
    int amp;
};

static const char *const amps[] = {"bf16", "fp16", NULL};

#define OPT(option, kind, member, ...)                                                                                 \
    {                                                                                                                  \
        .name = option, .type = kind, .offset = offsetof(struct opts, member), __VA_ARGS__                             \
    }

static const struct mr_option options[] = {
    OPT("model", MR_OPT_STRING, model, .key = 'm', .initial = "mnist-cnn", .meta = "MODEL", .help = "The net"),
    OPT("optimizer", MR_OPT_STRING, optimizer, .key = 'o', .initial = "adadelta:lr=1", .meta = "OPTIMIZER",
        .help = "The optimizer, with options"),
    OPT("batch-size", MR_OPT_UINT, batch_size, .key = 'b', .initial = "256", .min = 1, .max = 1 << 20,
        .unit = "samples", .help = "Samples in a batch"),
    OPT("transform", MR_OPT_STRING, transform, .key = 't', .meta = "CHAIN",
        .help = "Ops on each sample; millrace inspect --transforms lists them"),
    OPT("workers", MR_OPT_UINT, workers, .key = 'w', .initial = "0", .max = 512, .unit = "threads",
        .help = "Threads from the second step on; 0: as many as this process may use"),
    OPT("amp", MR_OPT_ENUM, amp, .initial = "bf16", .choices = amps, .help = "Precision of the last step"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "5s", .min = 1e7, .max = 3600e9, .unit = "s",
        .help = "Of each step"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE", .help = "auto, cpu, cuda"),
    OPT("threads", MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "Threads that compute on cpu; 0: as many as this process may use"),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0", .help = "Of parameters and order"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const struct {
    const char *name, *what, *not_on_cpu;
} steps[N_STEPS] = {
    {"starved", "one worker, one batch ahead, pageable memory, each copy waited for, transforms on the host", NULL},
    {"workers", "all workers, batches made ahead", NULL},
    {"pinned", "page-locked memory, copies not waited for, transforms on the device",
     "nothing is copied: cpu reads batches where they were made"},
    {"mixed precision", "16 bits in the net, parameters in f32", "cpu computes in f32 alone"},
};

struct step_result {
    bool done;
    double samples_per_s, step_ms, waited;
    uint64_t n_steps;
    uint32_t workers;
    char bottleneck[16];
};

struct bench {
    const struct opts *opts;
    const char *dataset;
    struct step_result step[N_STEPS];
    char device[64], device_model[96], data[256];
    bool unified;
};

/* Each has what those before it have. */
static int set_options(struct train_opts *train, const struct opts *o, int k)
{
    int rc = bench_train_init(train);
    train->batch_size = o->batch_size;
    train->epochs = 1000000000;
    train->seed = o->seed;
    train->threads = o->threads;
    train->workers = k >= 1 ? o->workers : 1;
    train->prefetch = k >= 1 ? 0 : 1;
    train->pin = k >= 2;
    train->blocking = k < 2;
    train->device_transforms = k >= 2 ? MR_DEVICE_TRANSFORMS_AUTO : MR_DEVICE_TRANSFORMS_OFF;
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

static int measure(struct train *t, uint64_t time_ns, struct step_result *r)
{
    struct mr_loader_stats st;
    struct mr_train_window window;
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
    r->n_steps = window.steps;
    r->samples_per_s = (double)window.sums.n_samples / window.seconds;
    r->step_ms = r->n_steps ? 1e3 * window.seconds / (double)r->n_steps : 0;
    r->waited = window.waited;
    r->workers = st.workers;
    snprintf(r->bottleneck, sizeof r->bottleneck, "%s", st.bottleneck);
    r->done = true;
    return 0;
}

static int one(void *bench, int k)
{
    struct bench *b = bench;
    struct train_opts opts;
    struct train_data data = {0};
    struct train t = {0};
    int rc = set_options(&opts, b->opts, k);
    if (rc == 0)
        rc = train_data_open(&data, b->dataset, &opts);
    if (rc == 0) {
        snprintf(b->device, sizeof b->device, "%s", data.info.name);
        snprintf(b->device_model, sizeof b->device_model, "%s", data.info.model);
        snprintf(b->data, sizeof b->data, "%s", mr_dataset_text(data.ds));
        b->unified = data.info.unified;
    }
    bool means = rc < 0 || !data.info.unified || !steps[k].not_on_cpu;
    if (rc == 0 && means)
        rc = train_open(&t, &data, &opts, NULL);
    if (rc == 0 && means)
        rc = measure(&t, b->opts->time_ns, &b->step[k]);
    train_close(&t);
    train_data_close(&data);
    bench_train_free(&opts);
    return rc;
}

static void print_text(const struct bench *b)
{
    char rate[CLI_HUMAN], text[CLI_CLEAN];
    printf("%s: %s by %s, batches of %" PRIu64 ", device %s%s%s\n\n", cli_clean(b->data, text), b->opts->model,
           b->opts->optimizer, b->opts->batch_size, b->device, b->device_model[0] ? ": " : "", b->device_model);
    struct cli_table *table =
        cli_table_create("step\t>samples/s\t>speed-up\t>ms a step\t>device waited\tbottleneck\twhat is new");
    for (int k = 0; k < N_STEPS; k++) {
        const struct step_result *r = &b->step[k];
        if (!r->done)
            cli_table_row(table, "%s\t-\t-\t-\t-\t\tno meaning on %s: %s", steps[k].name, b->device,
                          steps[k].not_on_cpu ? steps[k].not_on_cpu : "");
        else
            cli_table_row(table, "%s\t%s\t%.2fx\t%.3f\t%.1f%%\t%s\t%s", steps[k].name,
                          cli_count(r->samples_per_s, rate), r->samples_per_s / b->step[0].samples_per_s, r->step_ms,
                          100 * r->waited, r->bottleneck, steps[k].what);
    }
    cli_table_print(table, stdout, 2);
    printf("\n");
    cli_paragraphs(stdout,
                   b->unified ? "device waited: the share of the time in which the step's thread had no batch. Steps "
                                "and workers share the processors."
                              : "device waited: the share of the time in which the GPU had no step to do, by the "
                                "events around each step.",
                   2);
}

static int print_json(const struct bench *b)
{
    struct mr_json *json = cli_json_begin("bench story");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", b->device);
    mr_json_string(json, "dataset", b->data);
    mr_json_array(json, "steps");
    for (int k = 0; k < N_STEPS; k++) {
        const struct step_result *r = &b->step[k];
        mr_json_object(json, NULL);
        mr_json_string(json, "step", steps[k].name);
        mr_json_string(json, "what", steps[k].what);
        mr_json_bool(json, "measured", r->done);
        mr_json_string(json, "why_not", r->done ? NULL : steps[k].not_on_cpu);
        if (r->done) {
            mr_json_double(json, "samples_per_s", r->samples_per_s);
            mr_json_double(json, "step_ms", r->step_ms);
            mr_json_double(json, "waited", r->waited);
            mr_json_uint(json, "n_steps", r->n_steps);
            mr_json_uint(json, "workers", r->workers);
            mr_json_string(json, "bottleneck", r->bottleneck);
        }
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end_config(json, options, b->opts);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct bench b = {.opts = values, .dataset = args[0]};
    int code = bench_train_each("story", "steps", N_STEPS, one, &b);
    if (code != CLI_OK || cli.json)
        return code == CLI_OK ? print_json(&b) : code;
    print_text(&b);
    return CLI_OK;
}

static const struct cli_note json_notes[] = {
    {"device, dataset", "what was measured"},
    {"steps", "of each: step, what (is new), measured, why_not; samples_per_s, step_ms, waited (0 to 1, the share of "
              "the time that the device had no batch), n_steps, workers, bottleneck (of the loader)"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench story mnist/", "on the first GPU"},
    {"millrace bench story photos/ --model resnet20 -t 'resize(40),random_crop(32,32)'", "with decoding to do"},
    {NULL, NULL},
};

const struct cli_command cli_bench_story = {
    .name = "bench story",
    .summary = "Train starved, with workers, with pinned memory, in mixed precision",
    .synopsis = "DATASET [options]",
    .text = "Trains the same net four times, each time with one mistake less: starved by a single worker that waits "
            "for every copy; with workers; with page-locked memory; in mixed precision. Tells how fast each was and "
            "how much of the time the device waited for data. On cpu the last two have no meaning, which is said.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
