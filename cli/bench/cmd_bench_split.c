/* millrace bench split: one net whole on one device, split over several, and as a pipeline. */
#include "bench/frame.h"
#include "bench/train.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNTS = 12, WARM_STEPS = 3 };

struct opts {
    struct cli_common common;
    char *model, *shape, *device, *split, *counts, *plot, *optimizer;
    uint64_t batch_size, steps, repeats, threads;
    int amp, pipeline;
};

#define DEFAULT_COUNTS "1,2,4,8,16"
/* Behind the first, short one, eight layers of one width: two, four and eight stages of equal time
 * exist. */
#define LAYERS(width)                                                                              \
    "conv:" width ",p=1,relu,conv:" width ",p=1,relu,conv:" width ",p=1,relu,conv:" width          \
    ",p=1,relu,conv:" width ",p=1,relu,conv:" width ",p=1,relu,conv:" width ",p=1,relu,"           \
    "conv:" width ",p=1,relu,conv:" width ",p=1,relu,avgpool:4,flatten,linear:10"
static const char wide[] = LAYERS("256"), narrow[] = LAYERS("8");
/* A device so slow that this machine computes the narrow net in less than its time: 0.4 Gflop/s at
 * 64 samples of 8x8 are a step of 0.3 s. */
static const char simulated[] = "sim:tflops=0.0004,peer=1,latency=50us+"
                                "sim:tflops=0.0004,peer=1,latency=50us";

#define OPT(...) BENCH_OPTION(struct opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("model", MR_OPT_STRING, model, .key = 'm', .meta = "MODEL",
        .help = "The net; by default 9 convolutions of 256 channels, on sim and cpu of 8"),
    OPT("shape", MR_OPT_STRING, shape, .meta = "HxWxC",
        .help = "The samples; by default 32x32x3, on sim and cpu 8x8x3"),
    OPT("batch-size", MR_OPT_UINT, batch_size, .key = 'b', .initial = "0", .max = 1 << 16,
        .unit = "samples", .help = "Samples of a step; 0: 256, on sim and cpu 64"),
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICES",
        .help = "cuda:0+cuda:1, cpu+cpu, sim+sim; auto: the first two GPUs, else two simulated "
                "devices"),
    OPT("micro-batches", MR_OPT_STRING, counts, .initial = DEFAULT_COUNTS, .meta = "LIST",
        .help = "Numbers of micro-batches, powers of two, ascending, separated by commas; 1 is the "
                "plain split"),
    OPT("split", MR_OPT_STRING, split, .initial = "auto", .meta = "LAYERS",
        .help = "Where to cut, as for millrace train"),
    OPT("pipeline", MR_OPT_ENUM, pipeline, .initial = "1f1b", .choices = train_pipelines,
        .help = "The order of passes, as for millrace train"),
    OPT("optimizer", MR_OPT_STRING, optimizer, .key = 'o', .initial = "sgd", .meta = "OPTIMIZER",
        .help = "The optimizer, as for millrace train"),
    OPT("amp", MR_OPT_ENUM, amp, .initial = "tf32", .choices = train_amps,
        .help = "Precision, as for millrace train"),
    OPT("steps", MR_OPT_UINT, steps, .initial = "0", .max = 1e6, .unit = "steps",
        .help = "Steps that are timed; 0: 20, on sim and cpu 3"),
    BENCH_REPEATS_OPTION(struct opts, "3", 100),
    OPT("threads", MR_OPT_UINT, threads, .initial = "1", .max = 512, .unit = "threads",
        .help = "Compute threads of each stage on cpu and sim"),
    BENCH_PLOT_OPTION(struct opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { HOW, MICRO, STEP, SPREAD, RATE, SPEEDUP, BOUND, OF_BOUND, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [HOW] = {"net", "how", BENCH_TEXT},
    [MICRO] = {">micro-batches", "micro_batches", BENCH_COUNT},
    [STEP] = {">ms a step", "step_ms", .digits = 2},
    [SPREAD] = {">spread", "spread", BENCH_SHARE, 1},
    [RATE] = {">samples/s", "samples_per_s", BENCH_COUNT},
    [SPEEDUP] = {">speed-up", "speedup", .digits = 2},
    [BOUND] = {">bound", "bound", .digits = 2},
    [OF_BOUND] = {">of it", "of_bound", BENCH_SHARE, 0},
};

struct split {
    const char *device; /* of all stages */
    char *first;        /* the whole net's */
    bool small;         /* no GPU: the narrow net */
    int n_stages, n;
    uint64_t micro[MAX_COUNTS], batch_size, steps;
    const char *model, *shape;
    char stages[512];              /* what is where */
    char label[MAX_COUNTS + 1][8]; /* below bars */
};

static int read_counts(struct split *s, const struct opts *o)
{
    const char *at = o->counts;
    for (s->n = 0; s->n < MAX_COUNTS;) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        bool good = *at >= '0' && *at <= '9' && v > 0 && v <= 1024 && !(v & (v - 1)) &&
                    (!*end || *end == ',');
        if (!good || (s->n && v <= s->micro[s->n - 1]))
            break;
        s->micro[s->n++] = v;
        if (!*end)
            return CLI_OK;
        at = end + 1;
    }
    return cli_misuse("--micro-batches %s: expected at most %d powers of two up to 1024, "
                      "ascending, with commas between",
                      o->counts, MAX_COUNTS);
}

static bool has_gpus(int n)
{
    for (int i = 0; i < n; i++) {
        struct mr_device *dev;
        char uri[16];
        snprintf(uri, sizeof uri, "cuda:%d", i);
        if (mr_device_open(uri, &dev) < 0)
            return false;
        mr_device_close(dev);
    }
    return true;
}

/* Devices, and what fits them. */
static int choose(struct split *s, const struct opts *o)
{
    s->device = strcmp(o->device, "auto") != 0 ? o->device
                : has_gpus(2)                  ? "cuda:0+cuda:1"
                                               : simulated;
    s->small = strncmp(s->device, "cuda", 4) != 0 && strncmp(s->device, "gpu", 3) != 0;
    s->n_stages = 1;
    for (const char *p = s->device; (p = strchr(p, '+')) != NULL; p++)
        s->n_stages++;
    if (s->n_stages < 2)
        return cli_misuse("--device %s: expected at least two, as cuda:0+cuda:1", s->device);
    s->first = strndup(s->device, strcspn(s->device, "+"));
    s->model = o->model ? o->model : s->small ? narrow : wide;
    s->shape = o->shape ? o->shape : s->small ? "8x8x3" : "32x32x3";
    s->batch_size = o->batch_size ? o->batch_size : s->small ? 64 : 256;
    s->steps = o->steps ? o->steps : s->small ? 3 : 20;
    if (!s->first)
        return cli_fail("bench split: no memory");
    for (int i = 0; i < s->n; i++)
        if (s->batch_size % s->micro[i])
            return cli_misuse("--micro-batches %s: expected numbers that divide the batch of "
                              "%" PRIu64,
                              o->counts, s->batch_size);
    return CLI_OK;
}

/* micro: 0: the whole net on the first device, as `millrace train` runs it there. */
static int set_options(struct train_opts *train, const struct split *s, const struct opts *o,
                       uint64_t micro)
{
    char text[24];
    int rc = bench_train_init(train);
    const bool one_pass = micro == 0 && strncmp(s->first, "sim", 3) == 0;
    snprintf(text, sizeof text, "%" PRIu64, one_pass ? 1 : micro);
    train->loader.batch_size = s->batch_size;
    train->epochs = 1000000000;
    train->classes = 10;
    train->threads = o->threads;
    train->amp = o->amp;
    train->pipeline = o->pipeline;
    train->loader.workers = s->small ? 1 : 0;
    const char *const set[][2] = {
        {"model", s->model}, {"optimizer", o->optimizer}, {"device", micro ? s->device : s->first},
        {"split", o->split}, {"micro-batches", text},     {"test", "none"}};
    for (size_t i = 0; i < CLI_COUNT(set) && rc == 0; i++)
        rc = bench_train_set(train, set[i][0], set[i][1]);
    return rc;
}

static int run_steps(struct train *t, uint64_t n)
{
    int last, rc = 1;
    for (uint64_t i = 0; i < n && rc > 0 && !cli_interrupted(); i++) {
        rc = mr_trainer_step(t->trainer, &last);
        int ended = rc > 0 && last ? mr_trainer_end_epoch(t->trainer, NULL) : 0;
        if (ended < 0)
            return ended;
    }
    return rc < 0 ? rc : 0;
}

/* Twenty times as many samples as a batch: all of an epoch's steps are whole. */
static int open_net(struct train *t, struct train_data *data, struct train_opts *opts,
                    const struct split *s)
{
    char uri[256];
    snprintf(uri, sizeof uri, "synthetic:n=%" PRIu64 ",shape=%s,dtype=u8,classes=10",
             20 * s->batch_size, s->shape);
    int rc = train_data_open(data, uri, opts, NULL);
    return rc < 0 ? rc : train_open(t, data, opts, NULL);
}

static void note_stages(struct split *s, const struct train *t)
{
    size_t used = 0;
    const struct mr_net *net;
    for (uint32_t i = 0; (net = mr_trainer_get_stage(t->trainer, i)); i++) {
        const struct mr_net_layer *l, *last = NULL;
        for (uint32_t k = 0; (l = mr_net_layer_get(net, k)); k++)
            last = l;
        if (used < sizeof s->stages - 1 && last)
            used += (size_t)snprintf(s->stages + used, sizeof s->stages - used, "%s%s to %s",
                                     i ? "; " : "", mr_net_layer_get(net, 0)->name, last->name);
    }
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    struct split *s = b->user;
    const uint64_t micro = row->v[MICRO] > 0 ? (uint64_t)row->v[MICRO] : 0;
    struct train_opts opts;
    struct train_data data = {0};
    struct train t = {0};
    struct mr_train_window window = {.size = sizeof window};
    int rc = set_options(&opts, s, b->values, micro);
    if (rc >= 0)
        rc = open_net(&t, &data, &opts, s);
    if (rc >= 0)
        rc = run_steps(&t, WARM_STEPS);
    if (rc >= 0)
        rc = mr_trainer_window_begin(t.trainer);
    if (rc >= 0)
        rc = run_steps(&t, s->steps);
    if (rc >= 0)
        rc = mr_trainer_window_end(t.trainer, &window);
    if (rc >= 0) {
        v[STEP] = 1e3 * window.seconds / (double)s->steps;
        v[RATE] = (double)(s->steps * s->batch_size) / window.seconds;
        b->info = data.pipe.info;
        if (micro)
            note_stages(s, &t);
    }
    train_close(&t);
    train_data_close(&data);
    bench_train_free(&opts);
    return rc;
}

static int open_all(struct bench *b)
{
    struct split *s = b->user;
    int rc = bench_rows(b, s->n + 1);
    for (int i = 0; i < b->n_rows; i++) {
        double m = i ? (double)s->micro[i - 1] : NAN;
        b->rows[i].v[MICRO] = m;
        b->rows[i].text[HOW] = !i ? "whole, on one" : m > 1 ? "pipelined" : "split";
        b->rows[i].name = b->rows[i].text[HOW];
        if (m > 1) {
            snprintf(s->label[i], sizeof s->label[i], "%.0f", m);
            b->rows[i].name = s->label[i];
        }
    }
    return rc;
}

/* The tutorial's bars and its curve. */
static struct bench_panel panels[] = {{.title = "Throughput, by micro-batches",
                                       .x_label = "",
                                       .y_label = "samples/s",
                                       .x = -1,
                                       .y = {RATE},
                                       .n = 1},
                                      {"Speed-up over the whole net on one device",
                                       "micro-batches",
                                       "times",
                                       MICRO,
                                       {SPEEDUP, BOUND},
                                       2,
                                       .log_x = true,
                                       .ticks = PLOT_BINARY}};

static const struct bench_row *best_row(const struct bench *b)
{
    const struct bench_row *best = NULL;
    for (int i = 1; i < b->n_rows; i++)
        if (!isnan(b->rows[i].v[SPEEDUP]) && (!best || b->rows[i].v[SPEEDUP] > best->v[SPEEDUP]))
            best = &b->rows[i];
    return best;
}

/* Of the whole net's rounds, or the best row's. */
static double noise(const struct bench *b, const struct bench_row *best)
{
    const double spread = fmax(b->rows[0].v[SPREAD], best->v[SPREAD]);
    return isnan(spread) ? 0 : spread;
}

#define GAIN_LEAST 0.05

/* What counts as a gain: more than the rounds differ. */
static bool pays(const struct bench *b, const struct bench_row *best)
{
    return best->v[SPEEDUP] > 1 + fmax(GAIN_LEAST, 2 * noise(b, best));
}

/* More than the stages can gain: then the whole net's steps, or some others, were held up. */
static bool is_disturbed(const struct bench_row *best)
{
    return best->v[OF_BOUND] > 1.1;
}

static void judge(struct bench *b)
{
    const struct bench_row *best = best_row(b);
    if (!best)
        return;
    const char *es = best->v[MICRO] > 1 ? "es" : "";
    if (is_disturbed(best))
        snprintf(
            b->verdict, sizeof b->verdict,
            "cannot tell: %.2f times as fast with %.0f micro-batch%s is more than the bound of "
            "%.2f, so other programs held some steps up: measure again, with more --repeats",
            best->v[SPEEDUP], best->v[MICRO], es, best->v[BOUND]);
    else if (!pays(b, best) && best->v[SPEEDUP] > 1 + GAIN_LEAST)
        snprintf(b->verdict, sizeof b->verdict,
                 "cannot tell: %.2f times as fast with %.0f micro-batch%s, but rounds differ by "
                 "%.0f%%: measure again, with more --repeats",
                 best->v[SPEEDUP], best->v[MICRO], es, 100 * noise(b, best));
    else if (pays(b, best))
        snprintf(b->verdict, sizeof b->verdict,
                 "splitting pays: %.2f times as fast with %.0f micro-batch%s; fewer leave stages "
                 "idle for longer, more make passes smaller, which costs more per sample",
                 best->v[SPEEDUP], best->v[MICRO], es);
    else
        snprintf(
            b->verdict, sizeof b->verdict,
            "splitting does not pay here: at best %.2f times as fast (%.0f micro-batch%s): the "
            "passes are too short for what each costs to start, or too small to fill a "
            "device; it serves nets that do not fit into one",
            best->v[SPEEDUP], best->v[MICRO], es);
}

/* p stages work at once but for the first and last p - 1 micro-batches: GPipe (2019), section 2. */
static void conclude(struct bench *b)
{
    const struct split *s = b->user;
    const double whole = b->rows[0].v[STEP], p = s->n_stages;
    for (int i = 1; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const double m = row->v[MICRO];
        row->v[SPEEDUP] = whole / row->v[STEP];
        row->v[BOUND] = p * m / (m + p - 1);
        row->v[OF_BOUND] = row->v[SPEEDUP] / row->v[BOUND];
    }
    const char *where = b->info.model[0] ? b->info.model : b->info.name;
    snprintf(b->subtitle, sizeof b->subtitle,
             "%d stages, one per device (%.80s); batches of %" PRIu64, s->n_stages, where,
             s->batch_size);
    judge(b);
}

static void above(const struct bench *b)
{
    const struct opts *o = b->values;
    const struct split *s = b->user;
    printf("%s\n%s samples, batches of %" PRIu64 ", %s, %s; device %s", s->model, s->shape,
           s->batch_size, b->info.unified || b->info.simulated ? "f32" : train_amps[o->amp],
           train_pipelines[o->pipeline], s->device);
    if (b->info.model[0])
        printf(" (%s)", b->info.model);
    printf("\nstages: %s\n", s->stages);
}

static void below(const struct bench *b)
{
    const int p = ((const struct split *)b->user)->n_stages;
    printf("bound: %d m / (m + %d) with m micro-batches: the stages fill and drain once a step\n",
           p, p - 1);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct split *s = b->user;
    const struct bench_row *best = best_row(b);
    mr_json_string(json, "devices", s->device);
    mr_json_string(json, "model", s->model);
    mr_json_string(json, "stages", s->stages);
    mr_json_uint(json, "batch_size", s->batch_size);
    mr_json_uint(json, "best_micro_batches", best ? (uint64_t)best->v[MICRO] : 0);
    mr_json_bool(json, "pays", best && !is_disturbed(best) && pays(b, best));
    mr_json_string(json, "verdict", b->verdict);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    const struct opts *o = values;
    struct split s = {0};
    int code = read_counts(&s, o);
    if (code == CLI_OK)
        code = plot_check(o->plot);
    if (code == CLI_OK)
        code = choose(&s, o);
    if (code == CLI_OK)
        code = bench_run(&(struct bench){
            .command = &cli_bench_split,
            .values = values,
            .plot = o->plot,
            .columns = columns,
            .n_columns = N_COLUMNS,
            .rows_key = "rows",
            .repeats = o->repeats,
            .varies = STEP,
            .variation = SPREAD,
            .explain = "A net whose layers are on several devices computes no faster "
                       "by itself: one waits for the other. Cut into micro-batches "
                       "the batch is a pipeline, in which filling and draining is "
                       "lost: the bound is p m / (m + p - 1) for p devices and m "
                       "micro-batches.",
            .chart = "A net over several devices",
            .panels = panels,
            .n_panels = CLI_COUNT(panels),
            .user = &s,
            .open = open_all,
            .measure = measure,
            .conclude = conclude,
            .json = json,
            .above = above,
            .below = below,
            .learn = "split"});
    free(s.first);
    return code;
}

static const struct cli_note json_notes[] = {
    {"devices, model, stages, batch_size", "what was measured; stages: the layers of each"},
    {"rows", "of each: how, micro_batches (none: the whole net), step_ms, spread (of the rounds), "
             "samples_per_s, speedup, bound, of_bound"},
    {"best_micro_batches, pays", "the fastest; whether it is faster than the whole net by more "
                                 "than 5% and twice the spread, and not beyond its bound"},
    {"verdict", "the last line of the text"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench split --plot split.html", "on the first two GPUs, or simulated"},
    {"millrace bench split --model resnet20 --batch-size 128 --device cuda:0+cuda:1",
     "a net too small to gain"},
    {"millrace bench split --device sim:tflops=0.0004,peer=0.01+sim:tflops=0.0004,peer=0.01",
     "with a slow link"},
    {NULL, NULL},
};

const struct cli_command cli_bench_split = {
    .name = "bench split",
    .summary = "Measure a net whole, split over devices, and as a pipeline",
    .synopsis = "[options]",
    .text = "Trains one net on synthetic samples: whole on the first device; split over all, where "
            "one stage waits while another computes; and as a pipeline, by the number of "
            "micro-batches. Beside the speed-up is its bound, p m / (m + p - 1) for p stages and "
            "m micro-batches. The whole net runs as millrace train runs it, as one graph on a GPU; "
            "a pipeline launches its kernels one by one.",
    .options = options,
    .options_bytes = sizeof(struct opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
