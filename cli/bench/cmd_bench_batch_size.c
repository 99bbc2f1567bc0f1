/* millrace bench batch-size: throughput, memory and time to an accuracy, by batch size. */
#include "bench/bench.h"
#include "bench/train.h"
#include "plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 24, WARM_STEPS = 5 };
enum scale { SCALE_NONE, SCALE_SQRT, SCALE_LINEAR };

struct opts {
    struct cli_common common;
    char *sizes, *model, *optimizer, *device, *plot;
    uint64_t epochs, seed, threads, tests;
    double lr, target;
    int scale, amp;
};

#define DEFAULT_SIZES "16,32,64,128,256,512,1024"

static const char *const scales[] = {"none", "sqrt", "linear", NULL};

#define OPT(option, kind, member, ...)                                                                                 \
    {                                                                                                                  \
        .name = option, .type = kind, .offset = offsetof(struct opts, member), __VA_ARGS__                             \
    }

static const struct mr_option options[] = {
    OPT("sizes", MR_OPT_STRING, sizes, .meta = "LIST",
        .help =
            "Batch sizes, with commas between, ascending; by default " DEFAULT_SIZES ", as far as there are samples"),
    OPT("model", MR_OPT_STRING, model, .key = 'm', .initial = "mnist-cnn", .meta = "MODEL", .help = "The net"),
    OPT("optimizer", MR_OPT_STRING, optimizer, .key = 'o', .initial = "adam", .meta = "OPTIMIZER",
        .help = "The optimizer, with options"),
    OPT("lr", MR_OPT_DOUBLE, lr, .initial = "1e-3", .min = 0, .max = 1e6, .help = "Learning rate at a batch of 64"),
    OPT("scale", MR_OPT_ENUM, scale, .initial = "sqrt", .choices = scales,
        .help = "How the learning rate grows with the batch: not, by its root, or with it"),
    OPT("target-acc", MR_OPT_PERCENT, target, .initial = "97%", .min = 0, .max = 1, .meta = "P%",
        .help = "The test accuracy whose time is taken"),
    OPT("epochs", MR_OPT_UINT, epochs, .key = 'e', .initial = "3", .min = 1, .max = 1e6, .unit = "epochs",
        .help = "Most epochs of each size"),
    OPT("tests", MR_OPT_UINT, tests, .initial = "4", .min = 1, .max = 1000, .unit = "tests",
        .help = "How often an epoch the accuracy is looked at; tests do not count as time"),
    OPT("amp", MR_OPT_ENUM, amp, .initial = "tf32", .choices = train_amps, .help = "Precision, as for millrace train"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE", .help = "auto, cpu, cuda"),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0", .help = "Of parameters and order"),
    OPT("threads", MR_OPT_UINT, threads, .initial = "0", .max = 512, .unit = "threads",
        .help = "Threads that compute on cpu; 0: as many as this process may use"),
    OPT("plot", MR_OPT_STRING, plot, .meta = "FILE", .help = "Draw charts: FILE.svg or FILE.html"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

struct size_result {
    uint64_t batch, samples;
    double lr, seconds, samples_per_s, seconds_to_target, accuracy; /* NaN: not reached */
    uint64_t net_bytes, loader_bytes;
};

struct bench {
    const struct opts *opts;
    const char *dataset;
    struct size_result size[MAX_SIZES];
    int n, knee;
    char device[64], device_model[96], data[256];
};

static int read_sizes(struct bench *b)
{
    const char *at = b->opts->sizes ? b->opts->sizes : DEFAULT_SIZES;
    for (b->n = 0; b->n < MAX_SIZES;) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        bool good = *at >= '0' && *at <= '9' && v > 0 && v <= 1 << 20 && (!*end || *end == ',');
        if (!good || (b->n && v <= b->size[b->n - 1].batch))
            break;
        b->size[b->n++] = (struct size_result){.batch = v, .seconds_to_target = NAN, .accuracy = NAN};
        if (!*end)
            return CLI_OK;
        at = end + 1;
    }
    return cli_misuse("--sizes %s: want at most %d numbers of 1..%d, ascending, with commas between", b->opts->sizes,
                      MAX_SIZES, 1 << 20);
}

/* Larger batches than the data set would be cut to it, and the rows say what was not measured. */
static int check_sizes(struct bench *b)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(b->dataset, &ds);
    if (rc < 0)
        return cli_error(rc);
    uint64_t n = mr_dataset_length(ds);
    mr_dataset_close(ds);
    while (!b->opts->sizes && b->n > 1 && b->size[b->n - 1].batch > n)
        b->n--;
    return b->size[b->n - 1].batch <= n
               ? CLI_OK
               : cli_misuse("--sizes %s: %s has %" PRIu64 " sample%s: want no larger batches",
                            b->opts->sizes ? b->opts->sizes : DEFAULT_SIZES, b->dataset, n, cli_s(n));
}

static uint64_t net_bytes(const struct train *t)
{
    const struct mr_net *net = mr_trainer_get_net(t->trainer);
    const struct mr_optim *optim = mr_trainer_get_optim(t->trainer);
    uint64_t bytes = mr_net_memory(net) + 2 * mr_net_n_params(net) * sizeof(float);
    for (uint32_t i = 0; i < mr_optim_state_count(optim); i++) {
        enum mr_dtype dtype;
        uint64_t n = 0;
        mr_optim_state_data(optim, i, &dtype, &n);
        bytes += n * mr_dtype_size(dtype);
    }
    return bytes;
}

/* Trains between two tests. [out] seconds: until the device is done. Returns 1, 0 at the end, or an error. */
static int part(struct train *t, uint64_t steps, double *seconds, uint64_t *samples)
{
    struct mr_train_window window;
    int last, rc = mr_trainer_window_begin(t->trainer);
    if (rc < 0)
        return rc;
    rc = 1;
    for (uint64_t i = 0; i < steps && rc > 0 && !cli_interrupted(); i++)
        rc = mr_trainer_step(t->trainer, &last);
    if (rc < 0)
        return rc;
    int ended = mr_trainer_window_end(t->trainer, &window);
    if (ended < 0)
        return ended;
    *seconds = window.seconds;
    *samples = window.sums.n_samples;
    return rc;
}

static int run_size(struct train *t, const struct opts *o, struct size_result *r)
{
    uint64_t batches = mr_loader_batches(mr_trainer_get_loader(t->trainer)), most = (batches + o->tests - 1) / o->tests,
             samples;
    struct mr_train_sums sums;
    double seconds;
    int rc = part(t, WARM_STEPS, &seconds, &samples);
    double warm = seconds;
    for (uint64_t left = o->epochs * batches, steps; left > 0 && rc > 0 && !cli_interrupted(); left -= steps) {
        steps = left < most ? left : most;
        rc = part(t, steps, &seconds, &samples);
        r->seconds += seconds;
        r->samples += samples;
        if (rc < 0 || !t->data->test)
            continue;
        int tested = mr_trainer_test(t->trainer, &sums);
        if (tested < 0)
            return tested;
        r->accuracy = (double)sums.n_right / (double)sums.n_samples;
        if (r->accuracy >= o->target) {
            r->seconds_to_target = warm + r->seconds;
            break;
        }
    }
    r->samples_per_s = r->seconds > 0 ? (double)r->samples / r->seconds : 0;
    return rc < 0 ? rc : 0;
}

static int set_options(struct train_opts *train, const struct opts *o, struct size_result *r)
{
    int rc = bench_train_init(train);
    double by = (double)r->batch / 64;
    r->lr = o->lr * (o->scale == SCALE_LINEAR ? by : o->scale == SCALE_SQRT ? sqrt(by) : 1);
    train->batch_size = r->batch;
    train->epochs = 1000000000; /* steps are counted: warm ones, too, take batches */
    train->seed = o->seed;
    train->threads = o->threads;
    train->lr = r->lr;
    train->amp = o->amp;
    if (rc == 0)
        rc = bench_train_set(train, "model", o->model);
    if (rc == 0)
        rc = bench_train_set(train, "optimizer", o->optimizer);
    return rc == 0 ? bench_train_set(train, "device", o->device) : rc;
}

static int one(void *bench, int i)
{
    struct bench *b = bench;
    struct size_result *r = &b->size[i];
    struct train_opts opts;
    struct train_data data = {0};
    struct train t = {0};
    struct mr_loader_stats st;
    int rc = set_options(&opts, b->opts, r);
    if (rc == 0)
        rc = train_data_open(&data, b->dataset, &opts);
    if (rc == 0)
        rc = train_open(&t, &data, &opts, NULL);
    if (rc == 0) {
        rc = run_size(&t, b->opts, r);
        mr_loader_stats(mr_trainer_get_loader(t.trainer), &st);
        r->net_bytes = net_bytes(&t);
        r->loader_bytes = st.pageable_bytes + st.pinned_bytes + st.device_bytes;
        snprintf(b->device, sizeof b->device, "%s", data.info.name);
        snprintf(b->device_model, sizeof b->device_model, "%s", data.info.model);
        snprintf(b->data, sizeof b->data, "%s", mr_dataset_text(data.ds));
    }
    train_close(&t);
    train_data_close(&data);
    bench_train_free(&opts);
    return rc;
}

static void find_knee(struct bench *b)
{
    double rates[MAX_SIZES];
    for (int i = 0; i < b->n; i++)
        rates[i] = b->size[i].samples_per_s;
    b->knee = bench_knee(rates, b->n);
}

static void print_text(const struct bench *b)
{
    char rate[CLI_HUMAN], net[CLI_HUMAN], loader[CLI_HUMAN], head[64], seconds[CLI_HUMAN], accuracy[CLI_HUMAN];
    char text[CLI_CLEAN];
    int fastest = -1;
    printf("%s: %s by %s, learning rate %g at 64, scaled: %s; device %s%s%s\n\n", cli_clean(b->data, text),
           b->opts->model, b->opts->optimizer, b->opts->lr, scales[b->opts->scale], b->device,
           b->device_model[0] ? ": " : "", b->device_model);
    snprintf(head, sizeof head, ">batch\t>lr\t>samples/s\t>net\t>loader\t>accuracy\t>s to %.4g%%\t",
             100 * b->opts->target);
    struct cli_table *table = cli_table_create(head);
    for (int i = 0; i < b->n; i++) {
        const struct size_result *r = &b->size[i];
        if (!isnan(r->seconds_to_target) && (fastest < 0 || r->seconds_to_target < b->size[fastest].seconds_to_target))
            fastest = i;
        cli_table_row(table, "%" PRIu64 "\t%.3g\t%s\t%s\t%s\t%s\t%s\t%s", r->batch, r->lr,
                      cli_count(r->samples_per_s, rate), cli_bytes(r->net_bytes, net),
                      cli_bytes(r->loader_bytes, loader), bench_fixed(100 * r->accuracy, 2, "%", accuracy),
                      bench_fixed(r->seconds_to_target, 2, "", seconds), i == b->knee ? "<- knee" : "");
    }
    cli_table_print(table, stdout, 2);
    printf("\nknee: %" PRIu64 ", the smallest batch with 90%% of the highest throughput\n", b->size[b->knee].batch);
    if (fastest >= 0)
        printf("soonest at %.4g%%: batches of %" PRIu64 "\n", 100 * b->opts->target, b->size[fastest].batch);
    printf("memory: net: activations, parameters, gradients, optimizer state; loader: slots and buffers\n");
}

static int print_json(const struct bench *b)
{
    struct mr_json *json = cli_json_begin("bench batch-size");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", b->device);
    mr_json_string(json, "dataset", b->data);
    mr_json_array(json, "sizes");
    for (int i = 0; i < b->n; i++) {
        const struct size_result *r = &b->size[i];
        mr_json_object(json, NULL);
        mr_json_uint(json, "batch_size", r->batch);
        mr_json_double(json, "lr", r->lr);
        mr_json_double(json, "samples_per_s", r->samples_per_s);
        mr_json_uint(json, "net_bytes", r->net_bytes);
        mr_json_uint(json, "loader_bytes", r->loader_bytes);
        train_json_number(json, "test_accuracy", r->accuracy);
        train_json_number(json, "seconds_to_target", r->seconds_to_target);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_uint(json, "knee", b->size[b->knee].batch);
    return cli_json_end_config(json, options, b->opts);
}

static int draw(const struct bench *b)
{
    enum { RATE, TIME, NET, LOADER, N };
    double x[MAX_SIZES], y[N][MAX_SIZES];
    struct plot_series series[N];
    static const char *const names[N] = {
        [NET] = "net: activations, parameters, gradients, optimizer state", [LOADER] = "loader: slots and buffers"};
    for (int i = 0; i < b->n; i++) {
        const struct size_result *r = &b->size[i];
        x[i] = (double)r->batch;
        y[RATE][i] = r->samples_per_s;
        y[TIME][i] = isnan(r->seconds_to_target) ? -1 : r->seconds_to_target;
        y[NET][i] = (double)r->net_bytes / (1 << 20);
        y[LOADER][i] = (double)r->loader_bytes / (1 << 20);
    }
    for (int k = 0; k < N; k++)
        series[k] = (struct plot_series){names[k], x, y[k], b->n};
    char subtitle[320], rate[96], time[64];
    snprintf(rate, sizeof rate, "Throughput; knee: %" PRIu64, b->size[b->knee].batch);
    snprintf(time, sizeof time, "Time to a test accuracy of %.4g%%", 100 * b->opts->target);
    struct plot_panel panels[] = {
        {rate, "batch size", "samples/s", NULL, series + RATE, 1, {0}, true, false, PLOT_BINARY},
        {"Memory", "batch size", "MiB", NULL, series + NET, 2, {0}, true, true, PLOT_BINARY},
        {time, "batch size", "s", NULL, series + TIME, 1, {0}, true, false, PLOT_BINARY}};
    snprintf(subtitle, sizeof subtitle, "%.100s: %.40s by %.40s, device %s", b->data, b->opts->model,
             b->opts->optimizer, b->device);
    return plot_write(&(struct plot){"Batch size", subtitle, panels, 3, NULL}, b->opts->plot);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct bench b = {.opts = values, .dataset = args[0]};
    int code = plot_check(b.opts->plot);
    if (code == CLI_OK)
        code = read_sizes(&b);
    if (code == CLI_OK)
        code = check_sizes(&b);
    if (code == CLI_OK)
        code = bench_train_each("batch sizes", "sizes", b.n, one, &b);
    if (code != CLI_OK)
        return code;
    find_knee(&b);
    if (b.opts->plot)
        code = draw(&b);
    if (code != CLI_OK || cli.json)
        return code == CLI_OK ? print_json(&b) : code;
    print_text(&b);
    return CLI_OK;
}

static const struct cli_note json_notes[] = {
    {"device, dataset", "what was measured"},
    {"sizes", "of each: batch_size, lr, samples_per_s (tests left out), net_bytes, loader_bytes, test_accuracy, "
              "seconds_to_target (null: not reached)"},
    {"knee", "the smallest batch with 90% of the highest throughput"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench batch-size mnist/ --plot batch.svg", "PyTorch's example net by Adam"},
    {"millrace bench batch-size mnist/ --model mlp:100s --sizes 8,64,512,4096 --scale linear", "a perceptron"},
    {NULL, NULL},
};

const struct cli_command cli_bench_batch_size = {
    .name = "bench batch-size",
    .summary = "Measure throughput, memory and time to an accuracy, by batch size",
    .synopsis = "DATASET [options]",
    .text = "Trains the net anew with each batch size until the test accuracy is reached or the epochs are over, and "
            "tells samples a second, memory, and the seconds of training that it took. The knee is the smallest batch "
            "with 90% of the highest throughput: more of a batch brings little.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
