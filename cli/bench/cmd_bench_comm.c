/*
 * millrace bench comm: what a sum over the ranks costs, by its size.
 *
 * All ranks measure the same rows in the same order, as sums are collective; how often a row is
 * repeated follows from a time that the ranks have added up. Rank 0 alone prints.
 */
#include "bench/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMM_AUTO, COMM_MPI, COMM_NCCL };
enum { ORDER_FAST, ORDER_TREE, ORDER_BOTH };
enum { SUMS_PER_GRAPH = 8, MAX_CALLS = 512, MAX_REPEATS = 100 };

static const char *const comms[] = {"auto", "mpi", "nccl", NULL};
static const char *const orders[] = {"fast", "tree", "both", NULL};
static const char *const ways[] = {"launched", "graph"};

struct options {
    struct cli_common common;
    char *device, *plot;
    int comm, order;
    uint64_t min_bytes, max_bytes, factor, repeats, timeout_ns;
};

#define OPT(...) BENCH_OPTION(struct options, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "Whose memory is summed: cpu, sim, cuda; cuda and auto: each rank takes the GPU "
                "of its number on its machine"),
    OPT("comm", MR_OPT_ENUM, comm, .initial = "auto", .choices = comms,
        .help = "Engine; auto: nccl on GPUs, mpi elsewhere"),
    OPT("order", MR_OPT_ENUM, order, .initial = "both", .choices = orders,
        .help = "Order of additions: the engine's (fast), or a fixed tree"),
    OPT("min-bytes", MR_OPT_BYTES, min_bytes, .initial = "4KiB", .min = 4, .max = 0x1p36,
        .unit = "bytes", .help = "Smallest sum of each rank's"),
    OPT("max-bytes", MR_OPT_BYTES, max_bytes, .initial = "64MiB", .min = 4, .max = 0x1p36,
        .unit = "bytes", .help = "Largest"),
    OPT("factor", MR_OPT_UINT, factor, .initial = "4", .min = 2, .max = 1024, .unit = "times",
        .help = "From one size to the next"),
    BENCH_REPEATS_OPTION(struct options, "5", MAX_REPEATS),
    OPT("comm-timeout", MR_OPT_DURATION, timeout_ns, .initial = "1min", .min = 1e6, .max = 86400e9,
        .unit = "s", .help = "A sum that lasts longer ends the run (status 4)"),
    BENCH_PLOT_OPTION(struct options),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { ORDER, WAY, BYTES, TIME, VARIATION, ALGORITHM, BUS, OF_LINK, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {
    [ORDER] = {"order", "order", BENCH_TEXT},
    [WAY] = {"way", "way", BENCH_TEXT},
    [BYTES] = {">bytes", "bytes", BENCH_BYTES},
    [TIME] = {">us", "time_us", .digits = 1},
    [VARIATION] = {">variation", "variation", BENCH_SHARE},
    [ALGORITHM] = {">algorithm", "algorithm_bytes_per_s", BENCH_RATE},
    [BUS] = {">bus", "bus_bytes_per_s", BENCH_RATE},
    [OF_LINK] = {">of link", "of_link", BENCH_SHARE},
};

static const char *const series[] = {"fast, launched", "fast, in a graph", "tree, launched",
                                     "tree, in a graph"};

struct ranks {
    const struct options *o;
    struct mr_place place;
    struct mr_comm *comm;
    struct mr_comm_stats stats;
    struct mr_device *dev;    /* NULL: host memory */
    struct mr_stream *stream; /* likewise */
    float *in, *out;          /* max_bytes each */
    double link;              /* bytes a second one way; NaN: unknown */
    bool lost;                /* a rank did not come to open */
    bool done;
};

/* ---- memory ---- */

static int fill_device(struct ranks *r, const float *ones, uint64_t bytes)
{
    int rc = mr_stream_create(r->dev, "comm", &r->stream);
    if (rc == 0)
        rc = mr_memory_acquire(r->dev, MR_DEVICE, bytes, (void **)&r->in);
    if (rc == 0)
        rc = mr_memory_acquire(r->dev, MR_DEVICE, bytes, (void **)&r->out);
    if (rc == 0)
        rc = mr_copy_async(r->stream, r->in, MR_DEVICE, ones, MR_PAGEABLE, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(r->stream);
}

static int make_memory(struct ranks *r)
{
    uint64_t bytes = r->o->max_bytes;
    float *ones = malloc(bytes);
    if (!ones)
        return mr_error_set(-ENOMEM, "bench comm: no memory for %llu bytes",
                            (unsigned long long)bytes);
    for (uint64_t i = 0; i < bytes / sizeof *ones; i++)
        ones[i] = 1;
    if (r->dev) {
        int rc = fill_device(r, ones, bytes);
        free(ones);
        return rc;
    }
    r->in = ones;
    r->out = malloc(bytes);
    return r->out ? 0 : mr_error_set(-ENOMEM, "bench comm: no memory for the sums");
}

static void drop_memory(struct ranks *r)
{
    if (r->dev) {
        mr_memory_release(r->dev, MR_DEVICE, r->in, NULL);
        mr_memory_release(r->dev, MR_DEVICE, r->out, NULL);
        mr_stream_destroy(r->stream);
    } else {
        free(r->in);
        free(r->out);
    }
}

/* ---- one row ---- */

static int wait(struct ranks *r)
{
    int rc = r->stream ? mr_stream_synchronize(r->stream) : 0;
    return rc < 0 ? rc : mr_comm_check(r->comm);
}

static int sum(struct ranks *r, uint64_t n, int order)
{
    return mr_comm_sum(r->comm, r->in, r->out, n, MR_F32, MR_F32,
                       order == ORDER_TREE ? MR_SUM_TREE : MR_SUM_FAST, r->stream);
}

static int record(struct ranks *r, uint64_t n, int order, struct mr_graph **out)
{
    int rc = mr_graph_begin(r->stream);
    if (rc < 0)
        return rc;
    for (int i = 0; i < SUMS_PER_GRAPH && rc == 0; i++)
        rc = sum(r, n, order);
    int end = mr_graph_end(r->stream, rc == 0 ? out : NULL);
    return rc < 0 ? rc : end;
}

/* Makes `calls` sums, or launches of the graph, and waits. [out] ns: of them all. */
static int pass(struct ranks *r, uint64_t n, int order, struct mr_graph *graph, uint64_t calls,
                uint64_t *ns)
{
    int rc = 0;
    uint64_t start = mr_time_ns();
    for (uint64_t i = 0; i < calls && rc == 0; i++)
        rc = graph ? mr_graph_launch(graph, r->stream) : sum(r, n, order);
    if (rc == 0 && graph)
        rc = mr_comm_watch(r->comm, r->stream);
    if (rc == 0)
        rc = wait(r);
    *ns = mr_time_ns() - start;
    return rc;
}

/* The mean over the ranks: the same bits on all of them. All ranks have come when it returns. */
static int mean(struct ranks *r, double *v)
{
    static double s; /* stays in use after an error: comm.h */
    s = *v;
    int rc = mr_comm_sum(r->comm, &s, &s, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    *v = s / r->stats.world;
    return rc;
}

/* Each rank gave ones: the first and the last sum are the number of ranks. */
static int verify(struct ranks *r, uint64_t n)
{
    float ends[2] = {r->dev ? 0 : r->out[0], r->dev ? 0 : r->out[n - 1]};
    for (int i = 0; i < 2 && r->dev; i++) {
        int rc = mr_copy_async(r->stream, &ends[i], MR_PAGEABLE, r->out + (i ? n - 1 : 0),
                               MR_DEVICE, sizeof *ends);
        if (rc < 0)
            return rc;
    }
    int rc = wait(r);
    if (rc < 0)
        return rc;
    for (int i = 0; i < 2; i++)
        if (ends[i] != (float)r->stats.world)
            return mr_error_set(MR_EDEVICE, "%s: a sum of ones over %u ranks is %g",
                                r->stats.library, r->stats.world, (double)ends[i]);
    return 0;
}

static int clear(struct ranks *r, uint64_t bytes)
{
    if (r->dev)
        return mr_memset_async(r->stream, r->out, MR_DEVICE, 0xff, bytes);
    memset(r->out, 0xff, bytes);
    return 0;
}

/* [out] us: of one sum. */
static int time_sums(struct ranks *r, uint64_t n, int order, struct mr_graph *graph, double *us)
{
    const double target_ns = 20e6;
    uint64_t ns, calls = 3;
    int rc = pass(r, n, order, graph, calls, &ns);
    double each = (double)ns / (double)calls;
    if (rc == 0)
        rc = mean(r, &each);
    if (rc < 0)
        return rc;
    calls = each * MAX_CALLS < target_ns ? MAX_CALLS : (uint64_t)(target_ns / each) + 2;
    rc = pass(r, n, order, graph, calls, &ns);
    *us = (double)ns / (double)calls * 1e-3 / (graph ? SUMS_PER_GRAPH : 1);
    return rc < 0 ? rc : mean(r, us);
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    struct ranks *r = b->user;
    struct mr_graph *graph = NULL;
    int order = row->series / 2;
    uint64_t bytes = (uint64_t)v[BYTES], n = bytes / sizeof(float), ns;
    mr_comm_phase(r->comm, "measures sums");
    int rc = clear(r, bytes);
    if (rc == 0)
        rc = pass(r, n, order, NULL, 1, &ns);
    if (rc == 0 && row->series % 2)
        rc = record(r, n, order, &graph);
    if (rc == 0)
        rc = time_sums(r, n, order, graph, &v[TIME]);
    if (rc == 0)
        rc = verify(r, n);
    mr_graph_destroy(graph);
    /* A row that one rank leaves out would be another's endless wait. */
    return rc == MR_EUNSUPPORTED || rc == MR_ELIMIT ? MR_EDEVICE : rc;
}

/* ---- ranks ---- */

/* One machine's GPUs: what one sends another, one way, by the link's specification. */
static double link_of(const struct ranks *r, const struct mr_device_info *info)
{
    bool local = r->place.local_world == r->place.world;
    return r->stats.graphs && local && info->peer_gb_per_s > 0 ? info->peer_gb_per_s * 1e9 : NAN;
}

static int open_comm(struct ranks *r, struct bench *b)
{
    const struct options *o = r->o;
    char config[256];
    struct mr_comm_opts opts;
    bool cuda = strncmp(b->info.name, "cuda", 4) == 0;
    snprintf(config, sizeof config, "min=%llu\nmax=%llu\nfactor=%llu\nrepeats=%llu\norder=%s\n",
             (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes,
             (unsigned long long)o->factor, (unsigned long long)o->repeats, orders[o->order]);
    mr_comm_opts_init(&opts);
    opts.engine = o->comm == COMM_NCCL || (o->comm == COMM_AUTO && cuda) ? "nccl" : "mpi";
    opts.place = r->place;
    opts.timeout_ns = o->timeout_ns;
    opts.config = config;
    opts.device = cuda ? b->dev : NULL;
    cli_results_apart();
    int rc = mr_comm_open(&opts, &r->comm);
    r->lost = rc == MR_EPEER;
    r->stats.size = sizeof r->stats;
    return rc < 0 ? rc : mr_comm_stats(r->comm, &r->stats);
}

static int n_sizes(const struct options *o)
{
    int n = 0;
    for (uint64_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes *= o->factor)
        n++;
    return n;
}

/* A tree needs a world that is a power of two; a graph an engine that only enqueues. */
static void describe(struct bench *b, struct bench_row *row, int kind, double bytes)
{
    const struct ranks *r = b->user;
    row->series = kind;
    row->name = series[kind];
    row->text[ORDER] = orders[kind / 2];
    row->text[WAY] = ways[kind % 2];
    row->v[BYTES] = bytes;
    if (kind / 2 == ORDER_TREE && (r->stats.world & (r->stats.world - 1)))
        snprintf(row->left_out, sizeof row->left_out, "%u ranks are no power of two",
                 r->stats.world);
}

static int make_rows(struct bench *b)
{
    const struct ranks *r = b->user;
    int n = n_sizes(r->o), kinds[4], n_kinds = 0, k = 0;
    for (int kind = 0; kind < 4; kind++)
        if ((r->o->order == ORDER_BOTH || r->o->order == kind / 2) &&
            (kind % 2 == 0 || (r->stats.graphs && r->stream)))
            kinds[n_kinds++] = kind;
    int rc = bench_rows(b, n * n_kinds);
    if (rc < 0)
        return rc;
    uint64_t bytes = r->o->min_bytes;
    for (int i = 0; i < n; i++, bytes *= r->o->factor)
        for (int j = 0; j < n_kinds; j++)
            describe(b, &b->rows[k++], kinds[j], (double)bytes);
    return 0;
}

/* Only rank 0 prints results. */
static int be_quiet(struct bench *b)
{
    cli.progress = 0;
    b->plot = NULL;
    return cli_results_drop();
}

static int open_ranks(struct bench *b)
{
    struct ranks *r = b->user;
    int rc = open_comm(r, b);
    if (rc < 0)
        return rc;
    r->dev = b->info.unified ? NULL : b->dev;
    r->link = link_of(r, &b->info);
    rc = r->place.rank > 0 ? be_quiet(b) : 0;
    if (rc == 0)
        rc = make_memory(r);
    if (rc == 0)
        rc = make_rows(b);
    return rc;
}

/* After an error the others may still be in a sum, and their memory in use: the process ends. */
static void close_ranks(struct bench *b)
{
    struct ranks *r = b->user;
    if (!r->done && r->comm) {
        bool peer = mr_comm_check(r->comm) == MR_EPEER;
        mr_comm_abort(r->comm, peer ? CLI_PEER : CLI_FAILED);
    }
    if (r->lost) { /* what MPI does at exit may wait for the others */
        fflush(NULL);
        _exit(CLI_PEER);
    }
    if (!r->done)
        return;
    mr_comm_close(r->comm);
    drop_memory(r);
}

/* ---- results ---- */

static struct bench_panel panels[] = {
    {"Bus bandwidth",
     "bytes",
     "GB/s",
     BYTES,
     {BUS},
     4,
     .unit = 1e9,
     .log_x = true,
     .ticks = PLOT_BYTES},
    {"Time", "bytes", "us", BYTES, {TIME}, 4, .log_x = true, .log_y = true, .ticks = PLOT_BYTES},
};

/* The two ends: a message's time, and the bandwidth of large sums. */
static void say(struct bench *b)
{
    const struct ranks *r = b->user;
    const struct bench_row *least = NULL, *most = NULL;
    char bytes[CLI_HUMAN], rate[CLI_HUMAN], share[48] = "";
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->left_out[0])
            continue;
        if (!least || row->v[TIME] < least->v[TIME])
            least = row;
        if (!most || row->v[BUS] > most->v[BUS])
            most = row;
    }
    if (!least)
        return;
    if (r->link > 0)
        snprintf(share, sizeof share, ", %.0f%% of the link", 100 * most->v[OF_LINK]);
    snprintf(b->verdict, sizeof b->verdict,
             "%u ranks by %s: a sum takes %.1f us or more; bus bandwidth %s at most, with sums of "
             "%s%s",
             r->stats.world, r->stats.engine, least->v[TIME], cli_rate(most->v[BUS], rate),
             cli_bytes((uint64_t)most->v[BYTES], bytes), share);
}

/* By the definitions of nccl-tests: an all-reduce sends and receives 2 (w - 1) / w of its bytes. */
static void conclude(struct bench *b)
{
    struct ranks *r = b->user;
    double world = r->stats.world;
    r->done = true;
    for (int i = 0; i < b->n_rows; i++) {
        double *v = b->rows[i].v;
        v[ALGORITHM] = v[BYTES] / (v[TIME] * 1e-6);
        v[BUS] = v[ALGORITHM] * 2 * (world - 1) / world;
        v[OF_LINK] = v[BUS] / r->link;
    }
    say(b);
    if (r->link > 0)
        panels[0].limit = (struct plot_limit){"link", r->link * 1e-9};
}

static void above(const struct bench *b)
{
    const struct ranks *r = b->user;
    bench_print_device(b);
    printf(": sums of f32 over %u ranks by %s (%s); medians of %llu\n", r->stats.world,
           r->stats.engine, r->stats.library, (unsigned long long)r->o->repeats);
}

static void below(const struct bench *b)
{
    const struct ranks *r = b->user;
    char rate[CLI_HUMAN];
    printf("  algorithm: bytes / time; bus: that x 2 (ranks - 1) / ranks, as in nccl-tests\n");
    if (r->link > 0)
        printf("limit: the link between two GPUs, %s one way\n", cli_rate(r->link, rate));
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct ranks *r = b->user;
    mr_json_uint(json, "world", r->stats.world);
    if (r->place.local_world > 0)
        mr_json_uint(json, "local_world", r->place.local_world);
    else
        mr_json_null(json, "local_world");
    mr_json_string(json, "launcher", r->place.launcher);
    mr_json_string(json, "engine", r->stats.engine);
    mr_json_string(json, "library", r->stats.library);
    if (r->link > 0)
        mr_json_double(json, "link_bytes_per_s", r->link);
    else
        mr_json_null(json, "link_bytes_per_s");
}

/* A rank's GPU has its number on its machine; a launcher may have left each rank one to see. */
static const char *choose_device(const char *wanted, const struct mr_place *place, char uri[32])
{
    struct mr_device *device;
    if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "cuda") != 0)
        return wanted;
    snprintf(uri, 32, "cuda:%u", place->local_rank);
    if (mr_device_open(uri, &device) < 0)
        return wanted;
    mr_device_close(device);
    return uri;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct options *o = values;
    char uri[32];
    struct ranks r = {.o = o, .place = {.size = sizeof r.place}, .link = NAN};
    int rc = mr_place_query(&r.place);
    if (rc < 0)
        return cli_error(rc);
    if (r.place.world < 2)
        return cli_misuse("this is the only rank, so there is nothing to sum: start several with "
                          "mpirun -n 2 millrace bench comm, srun or torchrun");
    o->min_bytes -= o->min_bytes % sizeof(float);
    if (o->min_bytes > o->max_bytes)
        return cli_misuse("--min-bytes %llu is above --max-bytes %llu",
                          (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes);
    return bench_run(
        &(struct bench){.command = &cli_bench_comm,
                        .values = o,
                        .device = choose_device(o->device, &r.place, uri),
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .rows_key = "sums",
                        .series = series,
                        .repeats = o->repeats,
                        .varies = TIME,
                        .variation = VARIATION,
                        .explain = "Training on several ranks sums their gradients once a step. "
                                   "Small sums are bound by the time that a message takes, large "
                                   "ones by the link. Bus bandwidth is what the links carry, "
                                   "whatever the number of ranks.",
                        .chart = "Sums over the ranks",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .user = &r,
                        .open = open_ranks,
                        .close = close_ranks,
                        .measure = measure,
                        .conclude = conclude,
                        .json = json,
                        .above = above,
                        .below = below,
                        .learn = "sums"});
}

static const struct cli_note json_notes[] = {
    {"device, model", "rank 0's"},
    {"sums", "for each: order (fast, tree), way (launched, graph), bytes; or left_out with the "
             "reason"},
    {"sums.time_us, sums.variation",
     "of one sum, mean over the ranks, median of the repeats; standard deviation over mean"},
    {"sums.algorithm_bytes_per_s, sums.bus_bytes_per_s, sums.of_link",
     "bytes / time; that times 2 (world - 1) / world; the latter over the link's limit (absent if "
     "that is unknown)"},
    {"world, launcher, engine, library", "ranks, what started them, what sums"},
    {"local_world", "ranks on rank 0's machine; null: the launcher does not say"},
    {"link_bytes_per_s", "one way between two GPUs of one machine, as specified; null: unknown"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"mpirun -n 2 millrace bench comm --plot comm.svg", "two GPUs, or two processes on the CPU"},
    {"torchrun --no-python --nproc-per-node 2 millrace bench comm --max-bytes 1GiB --json",
     "without MPI, for a script"},
    {NULL, NULL},
};

const struct cli_command cli_bench_comm = {
    .name = "bench comm",
    .summary = "Measure sums over the ranks of a run: time and bandwidth by size",
    .synopsis = "[options]",
    .text = "Starts under mpirun, srun or torchrun on each rank. Sums arrays of f32 over the ranks "
            "as train sums gradients, by NCCL or MPI, in the engine's order and by the fixed tree; "
            "on GPUs by NCCL also from a CUDA graph that holds 8 sums. Each row is warmed up, and "
            "repeated for about 20 ms; ranks that did not add up right end the run. Bandwidths "
            "have the definitions of nccl-tests.",
    .options = options,
    .options_bytes = sizeof(struct options),
    .json = json_notes,
    .examples = examples,
    .joins_ranks = true,
    .run = run,
};
