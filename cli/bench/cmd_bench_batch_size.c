/* millrace bench batch-size: throughput, memory and time to an accuracy, by batch size. */
#include "bench/batch_grow.h"
#include "bench/frame.h"
#include "bench/train.h"
#include "pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 24, FIRST_SIZE = 16, MOST_SIZE = 1 << 20 };
enum scale { SCALE_NONE, SCALE_SQRT, SCALE_LINEAR };

struct opts {
    struct cli_common common;
    char *sizes, *model, *optimizer, *device, *plot;
    uint64_t epochs, seed, threads, tests, repeats, time_ns;
    double lr, target;
    int scale, amp;
};

static const char *const scales[] = {"none", "sqrt", "linear", NULL};

#define OPT(...) BENCH_OPTION(struct opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("sizes", MR_OPT_STRING, sizes, .meta = "LIST",
        .help = "Batch sizes, ascending, separated by commas; by default 16, 32, 64, ... as long "
                "as larger ones are faster and fit into memory and the data set"),
    OPT("model", MR_OPT_STRING, model, .key = 'm', .initial = "mnist-cnn", .meta = "MODEL",
        .help = "The net"),
    OPT("optimizer", MR_OPT_STRING, optimizer, .key = 'o', .initial = "adam", .meta = "OPTIMIZER",
        .help = "The optimizer, as for millrace train"),
    OPT("lr", MR_OPT_DOUBLE, lr, .initial = "1e-3", .min = 0, .max = 1e6,
        .help = "Learning rate at a batch of 64"),
    OPT("scale", MR_OPT_ENUM, scale, .initial = "sqrt", .choices = scales,
        .help = "How the learning rate grows with the batch size: not at all, with its square "
                "root, or linearly"),
    OPT("target-acc", MR_OPT_PERCENT, target, .initial = "97%", .min = 0, .max = 1, .meta = "P%",
        .help = "Test accuracy to reach"),
    OPT("epochs", MR_OPT_UINT, epochs, .key = 'e', .initial = "3", .min = 1, .max = 1e6,
        .unit = "epochs", .help = "Maximum number of epochs for each size"),
    OPT("tests", MR_OPT_UINT, tests, .initial = "4", .min = 1, .max = 1000, .unit = "tests",
        .help = "Tests per epoch; their time is not counted"),
    OPT("amp", MR_OPT_ENUM, amp, .initial = "tf32", .choices = train_amps,
        .help = "Precision, as for millrace train"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda"),
    OPT("seed", MR_OPT_UINT, seed, .initial = "0", .help = "Seed of parameters and order"),
    BENCH_THREADS_OPTION(struct opts),
    OPT("repeats", MR_OPT_UINT, repeats, .initial = "3", .min = 1, .max = 100, .unit = "repeats",
        .help = "Measurements of each size, in turn; medians of the rates are shown. The first "
                "trains to the accuracy or the last epoch, the others for --time"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "1s", .min = 1e6, .max = 3600e9, .unit = "s",
        .help = "Duration of each measurement after the first, at most"),
    BENCH_PLOT_OPTION(struct opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { BATCH, LR, RATE, VARIATION, NET, LOADER, ACCURACY, TO_TARGET, MARK, N_COLUMNS };

struct sizes {
    const char *dataset;
    uint64_t size[MAX_SIZES], n_samples;
    int n, knee;
    bool grows;                               /* no sizes were given */
    const char *ended;                        /* why it stopped growing; NULL: the list's end */
    double rates[MAX_SIZES], need[MAX_SIZES]; /* need: bytes of the memory that batches fill */
    double free_bytes;                        /* of that memory, before; 0: unknown */
    struct batch_substitute sub;
    char no_sub[256]; /* why it was not measured; "": it was, or there is none */
    char data[256], to_target[32];
    struct bench_column columns[N_COLUMNS];
};

static int read_sizes(struct sizes *b, const struct opts *o)
{
    const char *at = o->sizes;
    b->grows = !at;
    if (b->grows) {
        for (uint64_t v = FIRST_SIZE; v <= MOST_SIZE; v *= 2)
            b->size[b->n++] = v;
        return CLI_OK;
    }
    for (b->n = 0; b->n < MAX_SIZES;) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        bool good = *at >= '0' && *at <= '9' && v > 0 && v <= MOST_SIZE && (!*end || *end == ',');
        if (!good || (b->n && v <= b->size[b->n - 1]))
            break;
        b->size[b->n++] = v;
        if (!*end)
            return CLI_OK;
        at = end + 1;
    }
    return cli_misuse(
        "--sizes %s: expected at most %d numbers of 1..%d, ascending, with commas between",
        o->sizes, MAX_SIZES, MOST_SIZE);
}

/* Larger batches than the data set would be cut to it, and the rows say what was not measured. */
static int check_sizes(struct sizes *b, const struct opts *o)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(b->dataset, &ds);
    if (rc == 0)
        rc = cli_need_length(&ds);
    if (rc < 0)
        return cli_error(rc);
    uint64_t n = b->n_samples = mr_dataset_length(ds);
    mr_dataset_close(ds);
    while (b->grows && b->n > 1 && b->size[b->n - 1] > n) {
        b->n--;
        b->ended = "the next size is larger than the data set";
    }
    if (b->size[b->n - 1] <= n)
        return CLI_OK;
    return b->grows
               ? cli_misuse("%s has %" PRIu64 " sample%s: expected %d or more", b->dataset, n,
                            cli_s(n), FIRST_SIZE)
               : cli_misuse("--sizes %s: %s has %" PRIu64 " sample%s: expected no larger batches",
                            o->sizes, b->dataset, n, cli_s(n));
}

static int run_size(struct train *t, const struct opts *o, double *v)
{
    uint64_t batches = mr_loader_batches(mr_trainer_get_loader(t->trainer));
    uint64_t most = (batches + o->tests - 1) / o->tests, samples = 0, done = 0;
    struct mr_train_sums sums = {.size = sizeof sums};
    double seconds = 0, trained = 0;
    int rc = bench_train_part(t, BENCH_WARM_STEPS, 0, &seconds, &samples);
    double warm = seconds;
    for (uint64_t left = o->epochs * batches, steps; left > 0 && rc > 0 && !cli_interrupted();
         left -= steps) {
        steps = left < most ? left : most;
        rc = bench_train_part(t, steps, 0, &seconds, &samples);
        trained += seconds;
        done += samples;
        if (rc < 0 || !t->data->test)
            continue;
        int tested = mr_trainer_test(t->trainer, &sums);
        if (tested < 0)
            return tested;
        v[ACCURACY] = (double)sums.n_right / (double)sums.n_samples;
        if (v[ACCURACY] >= o->target) {
            v[TO_TARGET] = warm + trained;
            break;
        }
    }
    v[RATE] = trained > 0 ? (double)done / trained : 0;
    return rc < 0 ? rc : 0;
}

struct training {
    struct train_opts opts;
    struct train_data data;
    struct train t;
};

/* of: the batch that the learning rate is for. training_close() after errors, too. */
static int training_open(struct training *g, const struct bench *b, double of, uint64_t batch,
                         const char *optimizer, double *lr)
{
    const struct opts *o = b->values;
    const struct sizes *s = b->user;
    struct train_opts *train = &g->opts;
    int rc = bench_train_init(train);
    double by = of / 64;
    *lr = o->lr * (o->scale == SCALE_LINEAR ? by : o->scale == SCALE_SQRT ? sqrt(by) : 1);
    train->loader.batch_size = batch;
    train->epochs = 1000000000; /* steps are counted: warm ones, too, take batches */
    train->seed = o->seed;
    train->threads = o->threads;
    train->lr = *lr;
    train->amp = o->amp;
    if (rc == 0)
        rc = bench_train_set(train, "model", o->model);
    if (rc == 0)
        rc = bench_train_set(train, "optimizer", optimizer);
    if (rc == 0)
        rc = bench_train_set(train, "device", o->device);
    if (rc == 0)
        rc = train_data_open(&g->data, s->dataset, train, NULL);
    return rc < 0 ? rc : train_open(&g->t, &g->data, train, NULL);
}

static void training_close(struct training *g)
{
    train_close(&g->t);
    train_data_close(&g->data);
    bench_train_free(&g->opts);
}

/* What the memory that batches fill has to hold: the device's, or the host's if it is the same. */
static void note_memory(struct bench *b, struct sizes *s, int i, const struct mr_loader_stats *st,
                        double net)
{
    struct mr_host_memory_info host = {.size = sizeof host};
    bool device = !b->info.unified;
    s->need[i] = net + (double)(device ? st->device_bytes : st->pageable_bytes + st->pinned_bytes);
    if (device)
        s->free_bytes = (double)b->info.free_bytes;
    else if (s->free_bytes == 0 &&
             mr_host_memory_query(&host) == 0) /* later ones have what the first one took */
        s->free_bytes = (double)host.available_bytes;
}

/* The first round trains to the end, later ones add a rate. */
static int measure_size(struct bench *b, double batch, int i, double *v)
{
    const struct opts *o = b->values;
    struct sizes *s = b->user;
    struct training g = {0};
    struct mr_loader_stats st = {.size = sizeof st};
    int rc = training_open(&g, b, batch, (uint64_t)batch, o->optimizer, &v[LR]);
    if (rc == 0)
        rc = b->repeat == 0 ? run_size(&g.t, o, v) : bench_train_for(&g.t, o->time_ns, &v[RATE]);
    if (rc == 0 && b->repeat == 0) {
        mr_loader_stats(mr_trainer_get_loader(g.t.trainer), &st);
        v[NET] = (double)bench_train_bytes(&g.t);
        v[LOADER] = (double)(st.pageable_bytes + st.pinned_bytes + st.device_bytes);
        b->info = g.data.pipe.info;
        note_memory(b, s, i, &st, v[NET]);
        snprintf(s->data, sizeof s->data, "%s", mr_dataset_text(g.data.pipe.ds));
    }
    training_close(&g);
    return rc;
}

/* An update by as many samples as the largest batch has, from batches of the knee's size, at their
 * memory. */
static int measure_substitute(struct bench *b, struct batch_substitute *sub)
{
    const struct opts *o = b->values;
    double lr, rates[100];
    char text[256];
    int n = snprintf(text, sizeof text, "%s%saccumulate=%" PRIu64, o->optimizer,
                     strchr(o->optimizer, ':') ? "," : ":", sub->steps);
    if (n >= (int)sizeof text)
        return mr_error_set(MR_ELIMIT, "--optimizer: longer than %zu characters",
                            sizeof text - sizeof ",accumulate=1000000");
    int rc = 0;
    for (uint64_t k = 0; k < o->repeats && rc == 0; k++) {
        struct training g = {0};
        rc = training_open(&g, b, (double)sub->of, sub->batch, text, &lr);
        if (rc == 0)
            rc = bench_train_for(&g.t, o->time_ns, &rates[k]);
        if (rc == 0)
            sub->bytes = (double)bench_train_bytes(&g.t);
        training_close(&g);
        rc = rc < 0 ? rc : bench_go_on();
    }
    if (rc == 0)
        sub->rate = bench_median(rates, o->repeats);
    return rc;
}

/* Once the knee is known. What was measured stays if it fails. */
static void try_substitute(struct bench *b)
{
    const struct opts *o = b->values;
    struct sizes *s = b->user;
    uint64_t most = s->size[s->n - 1];
    if (s->knee < 0 || most % s->size[s->knee] || strstr(o->optimizer, "accumulate"))
        return;
    s->sub = (struct batch_substitute){
        .of = most, .batch = s->size[s->knee], .steps = most / s->size[s->knee]};
    int rc = measure_substitute(b, &s->sub);
    if (rc == MR_ECANCELLED && cli_interrupted()) {
        b->interrupted = true;
        b->n_measured = b->repeats * (uint64_t)b->n_rows;
    } else if (rc < 0) {
        snprintf(s->no_sub, sizeof s->no_sub, "%s", mr_last_error());
    }
}

/* The row behind the last size ends the first round; the others have as many rows as that
 * measured. */
static int end_round(struct bench *b, int n)
{
    struct sizes *s = b->user;
    b->n_rows = s->n = n;
    return 0;
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    struct sizes *s = b->user;
    int i = (int)(row - b->rows);
    bool first = b->repeat == 0, last = i == s->n;
    if (first && s->grows && !last && batch_is_flat(s->rates, i)) {
        s->ended = "two sizes in a row were less than 5% faster than the best before";
        last = true;
    }
    if (first && s->grows && !last && !batch_fits(s->size, s->need, i, s->free_bytes)) {
        s->ended = "the next size needs more memory than is free";
        last = true;
    }
    if (last)
        return end_round(b, i);
    int rc = measure_size(b, row->v[BATCH], i, v);
    if (first && s->grows && i > 0 && rc == -ENOMEM) {
        s->ended = "there was no memory for the next size";
        return end_round(b, i);
    }
    if (first)
        s->rates[i] = v[RATE];
    return rc;
}

static int open_all(struct bench *b)
{
    const struct sizes *s = b->user;
    int rc = bench_rows(b, s->n + 1);
    for (int i = 0; i < s->n && rc == 0; i++)
        b->rows[i].v[BATCH] = (double)s->size[i];
    return rc;
}

static char rate_title[96], time_title[64];
static struct bench_panel panels[] = {
    {rate_title, "batch size", "samples/s", BATCH, {RATE}, 1, .log_x = true, .ticks = PLOT_BINARY},
    {"Memory", "batch size", "MiB", BATCH, {NET, LOADER}, 2, 0x1p20, {0}, true, true, PLOT_BINARY},
    {time_title, "batch size", "s", BATCH, {TO_TARGET}, 1, .log_x = true, .ticks = PLOT_BINARY}};

/* The row that is soonest at the target; -1: none got there. */
static int find_fastest(const struct bench *b)
{
    int fastest = -1;
    for (int i = 0; i < b->n_rows; i++) {
        double seconds = b->rows[i].v[TO_TARGET];
        if (!isnan(seconds) && (fastest < 0 || seconds < b->rows[fastest].v[TO_TARGET]))
            fastest = i;
    }
    return fastest;
}

static void add_text(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_text(struct bench *b, const char *fmt, ...)
{
    size_t at = strlen(b->verdict);
    va_list args;
    va_start(args, fmt);
    vsnprintf(b->verdict + at, sizeof b->verdict - at, fmt, args);
    va_end(args);
}

/* A knee that stands on rates which vary by more than what it is about may be another next time. */
static void say_spread(struct bench *b, const struct sizes *s)
{
    double most = 0;
    for (int i = 0; i < s->n; i++)
        most = fmax(most, b->rows[i].v[VARIATION]); /* of NaN: the other */
    if (most > 0.05)
        add_text(b, " (rates vary by up to %.0f%%: a neighboring size may do as well)", 100 * most);
}

static void say_knee(struct bench *b, const struct sizes *s)
{
    if (s->knee >= 0) {
        snprintf(rate_title, sizeof rate_title, "Throughput; knee: %" PRIu64, s->size[s->knee]);
        add_text(b, "knee: %" PRIu64 ", the smallest batch with 90%% of the highest throughput",
                 s->size[s->knee]);
        say_spread(b, s);
        return;
    }
    snprintf(rate_title, sizeof rate_title, "Throughput; no knee in this list");
    add_text(b,
             "no knee: %" PRIu64 " is the largest size tried, and no smaller one has 90%% of its "
             "throughput%s",
             s->size[s->n - 1], s->grows ? "" : ": try larger ones (--sizes)");
}

static void say_memory(struct bench *b, const struct sizes *s)
{
    char each[CLI_HUMAN], room[CLI_HUMAN], count[CLI_HUMAN], rate[CLI_HUMAN], bytes[CLI_HUMAN],
        whole[CLI_HUMAN];
    double per_sample, fits = batch_largest(s->size, s->need, s->n, s->free_bytes, &per_sample);
    if (fits > (double)s->n_samples)
        add_text(b, ". The memory would hold all %s samples as one batch (%s each, %s free)",
                 cli_count((double)s->n_samples, count), cli_bytes((uint64_t)per_sample, each),
                 cli_bytes((uint64_t)s->free_bytes, room));
    else if (fits > 0)
        add_text(b, ". The largest that fits: about %s (%s a sample, %s free)",
                 cli_count(fits, count), cli_bytes((uint64_t)per_sample, each),
                 cli_bytes((uint64_t)s->free_bytes, room));
    if (s->sub.rate > 0)
        add_text(b,
                 ". Instead of a batch of %" PRIu64 ": batches of %" PRIu64
                 " with accumulate=%" PRIu64
                 ", an update by as many samples, at %s samples/s and %s instead of %s",
                 s->sub.of, s->sub.batch, s->sub.steps, cli_count(s->sub.rate, rate),
                 cli_bytes((uint64_t)s->sub.bytes, bytes),
                 cli_bytes((uint64_t)b->rows[s->n - 1].v[NET], whole));
    else if (s->no_sub[0])
        add_text(b, ". Accumulation was not measured: %s", s->no_sub);
}

/* At the end of the list the rate may still grow, so that is no knee. */
static void conclude(struct bench *b)
{
    const struct opts *o = b->values;
    struct sizes *s = b->user;
    int fastest = find_fastest(b);
    double most = 0;
    for (int i = 0; i < s->n; i++) {
        s->rates[i] = isnan(b->rows[i].v[RATE]) ? 0 : b->rows[i].v[RATE];
        most = fmax(most, s->rates[i]);
    }
    s->knee = bench_knee(s->rates, s->n);
    if (s->knee == s->n - 1)
        s->knee = -1;
    if (!b->interrupted)
        try_substitute(b);
    if (s->knee >= 0)
        b->rows[s->knee].text[MARK] = "<- knee";
    snprintf(b->subtitle, sizeof b->subtitle, "%.100s: %.40s by %.40s, device %s", s->data,
             o->model, o->optimizer, b->info.name);
    snprintf(time_title, sizeof time_title, "Time to a test accuracy of %.4g%%", 100 * o->target);
    panels[0].limit = (struct plot_limit){"90% of the highest", 0.9 * most};
    say_knee(b, s);
    if (s->ended)
        add_text(b, "; no size above %" PRIu64 ": %s", s->size[s->n - 1], s->ended);
    if (fastest < 0)
        b->n_panels = CLI_COUNT(panels) - 1; /* the last one would be empty */
    else
        add_text(b, "; soonest at %.4g%%: batches of %" PRIu64, 100 * o->target, s->size[fastest]);
    say_memory(b, s);
}

static void above(const struct bench *b)
{
    const struct opts *o = b->values;
    const struct sizes *s = b->user;
    char text[CLI_CLEAN];
    printf("%s: %s by %s, learning rate %g at 64, scaled: %s; device ", cli_clean(s->data, text),
           o->model, o->optimizer, o->lr, scales[o->scale]);
    bench_print_device(b);
    printf("; rates are medians of %" PRIu64 "\n", o->repeats);
}

static void below(const struct bench *b)
{
    (void)b;
    printf("memory: net: activations, parameters, gradients, optimizer state; loader: slots and "
           "buffers\n");
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct sizes *s = b->user;
    mr_json_string(json, "dataset", s->data);
    if (s->knee >= 0)
        mr_json_uint(json, "knee", s->size[s->knee]);
    else
        mr_json_null(json, "knee");
    if (s->ended)
        mr_json_string(json, "ended", s->ended);
    double per_sample, fits = batch_largest(s->size, s->need, s->n, s->free_bytes, &per_sample);
    if (fits > 0) {
        mr_json_double(json, "bytes_per_sample", per_sample);
        mr_json_double(json, "largest_that_fits", floor(fits));
    }
    if (s->no_sub[0])
        mr_json_string(json, "substitute_error", s->no_sub);
    if (s->sub.rate <= 0)
        return;
    mr_json_object(json, "substitute");
    mr_json_uint(json, "of", s->sub.of);
    mr_json_uint(json, "batch_size", s->sub.batch);
    mr_json_uint(json, "accumulate", s->sub.steps);
    mr_json_double(json, "samples_per_s", s->sub.rate);
    mr_json_double(json, "net_bytes", s->sub.bytes);
    mr_json_object_end(json);
}

static void make_columns(struct sizes *s, double target)
{
    const struct bench_column columns[N_COLUMNS] = {
        [BATCH] = {">batch", "batch_size"},
        [LR] = {">lr", "lr", .digits = 6},
        [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
        [VARIATION] = {">variation", "variation", BENCH_SHARE},
        [NET] = {">net", "net_bytes", BENCH_BYTES},
        [LOADER] = {">loader", "loader_bytes", BENCH_BYTES},
        [ACCURACY] = {">accuracy", "test_accuracy", BENCH_SHARE, 2, .null = true},
        [TO_TARGET] = {s->to_target, "seconds_to_target", .digits = 2, .null = true},
        [MARK] = {"", .format = BENCH_TEXT},
    };
    snprintf(s->to_target, sizeof s->to_target, ">s to %.4g%%", 100 * target);
    memcpy(s->columns, columns, sizeof columns);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    const struct opts *o = values;
    struct sizes s = {.dataset = args[0]};
    int code = read_sizes(&s, o);
    if (code == CLI_OK)
        code = plot_check(o->plot);
    if (code == CLI_OK)
        code = check_sizes(&s, o);
    if (code != CLI_OK)
        return code;
    make_columns(&s, o->target);
    return bench_run(
        &(struct bench){.command = &cli_bench_batch_size,
                        .values = values,
                        .plot = o->plot,
                        .columns = s.columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "sizes",
                        .repeats = o->repeats,
                        .varies = RATE,
                        .variation = VARIATION,
                        .explain = "Each batch size trains for the same number of epochs, and "
                                   "the learning rate follows the size. The knee is the smallest "
                                   "batch with 90% of the highest rate: larger ones cost memory "
                                   "and make fewer updates, so look at the time to an accuracy, "
                                   "too. Memory of the net: activations, parameters, gradients, "
                                   "optimizer state; of the loader: slots and buffers.",
                        .chart = "Batch size",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .user = &s,
                        .open = open_all,
                        .measure = measure,
                        .conclude = conclude,
                        .json = json,
                        .above = above,
                        .below = below,
                        .learn = "batch_size"});
}

static const struct cli_note json_notes[] = {
    {"device, dataset", "what was measured"},
    {"sizes", "of each: batch_size, lr, samples_per_s (median, tests left out), variation, "
              "net_bytes, loader_bytes, "
              "test_accuracy, "
              "seconds_to_target (null: not reached)"},
    {"knee", "the smallest batch with 90% of the highest throughput; null: only the largest size "
             "tried has it"},
    {"ended", "why no larger size was tried; left out with --sizes"},
    {"bytes_per_sample, largest_that_fits",
     "how memory grows with the batch, and the size at which it would be full: a straight line "
     "through the last two sizes; left out if unknown"},
    {"substitute", "an update by as many samples as the largest batch has, from batches of the "
                   "knee's size: of, batch_size, accumulate, samples_per_s, net_bytes; left out "
                   "without a knee"},
    {"substitute_error", "why it could not be measured; left out if it was"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench batch-size mnist/ --plot batch.svg", "PyTorch's example net by Adam"},
    {"millrace bench batch-size mnist/ --model mlp:100s --sizes 8,64,512,4096 --scale linear",
     "a perceptron"},
    {NULL, NULL},
};

const struct cli_command cli_bench_batch_size = {
    .name = "bench batch-size",
    .summary = "Measure throughput, memory and time to an accuracy, by batch size",
    .synopsis = "DATASET [options]",
    .text =
        "Trains the net with each batch size until it reaches the test accuracy or has done the "
        "last epoch, and reports samples per second, memory, and seconds of training. Then each "
        "size trains again for --time, in turn, as often as --repeats says; these runs are for "
        "the rates alone, whose medians are shown. The knee is the smallest batch with 90% of the "
        "highest throughput: larger batches gain little.\n\n"
        "Without --sizes they double until two in a row gain less than 5%, until the next one "
        "does not fit into memory, or until it is larger than the data set. The last line says "
        "how large a batch would fit into memory, and how fast training is with small batches "
        "whose gradients are accumulated to a large one.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
