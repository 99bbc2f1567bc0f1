/* millrace bench streams: does copying hide behind computing? */
#include "bench/bench.h"
#include "bench/streams.h"
#include "plot.h"

#include <stdlib.h>

#define OPT(option, kind, member, ...)                                                                                 \
    {                                                                                                                  \
        .name = option, .type = kind, .offset = offsetof(struct streams_opts, member), __VA_ARGS__                     \
    }

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim:h2d=55,d2h=55,tflops=50"),
    OPT("n", MR_OPT_UINT, n, .key = 'n', .initial = "32", .min = 1, .max = STREAMS_MAX_N, .unit = "inputs",
        .help = "How many matrices"),
    OPT("size", MR_OPT_UINT, size, .initial = "2048", .min = 16, .max = 16384, .unit = "rows",
        .help = "Rows and columns of each, of f32"),
    OPT("pieces", MR_OPT_UINT, pieces, .initial = "2", .min = 1, .max = STREAMS_MAX_PIECES, .unit = "pieces",
        .help =
            "Blocks of rows that the ring takes the first and the last matrix in: the first product starts, and the "
            "last copy back ends, that much sooner"),
    OPT("repeats", MR_OPT_UINT, repeats, .initial = "5", .min = 1, .max = STREAMS_REPEATS, .unit = "repeats",
        .help = "How often each way is measured; medians are printed"),
    OPT("plot", MR_OPT_STRING, plot, .meta = "FILE", .help = "Draw a chart: FILE.svg or FILE.html"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const char *const names[STREAMS_N_WAYS] = {"one stream", "a stream for each input", "ring of 3 buffers"};
static const char *const keys[STREAMS_N_WAYS] = {"one", "each", "ring"};

static int print_text(const struct streams_result *r, const struct streams_opts *o)
{
    char bytes[CLI_HUMAN];
    const char *longest = r->bound_ms == r->alone_ms[STREAMS_H2D]       ? "copies to the device"
                          : r->bound_ms == r->alone_ms[STREAMS_COMPUTE] ? "matrix products"
                                                                        : "copies back";
    printf("%s%s%s: %llu times copy a %llu x %llu f32 matrix, multiply, copy back; medians of %llu\n", r->info.name,
           r->info.model[0] ? ": " : "", r->info.model, (unsigned long long)o->n, (unsigned long long)o->size,
           (unsigned long long)o->size, (unsigned long long)o->repeats);
    printf("alone: copies to the device %.3f ms, matrix products %.3f ms (%.1f Tflop/s), copies back %.3f ms\n"
           "lower bound: %.3f ms, the %s\n\n",
           r->alone_ms[STREAMS_H2D], r->alone_ms[STREAMS_COMPUTE],
           2e-9 * (double)o->n * (double)o->size * (double)o->size * (double)o->size / r->alone_ms[STREAMS_COMPUTE],
           r->alone_ms[STREAMS_D2H], r->bound_ms, longest);
    struct cli_table *table =
        cli_table_create("\t>wall ms\t>variation\t>of bound\t>H2D busy\t>compute busy\t>D2H busy\t"
                         ">copies under compute\t>both copies at once\t>device memory");
    for (int i = 0; i < STREAMS_N_WAYS; i++) {
        const struct streams_way_result *w = &r->way[i];
        cli_table_row(table, "%s\t%.3f\t%.1f%%\t%.2fx\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%s", names[i], w->wall_ms,
                      100 * w->variation, w->wall_ms / r->bound_ms, w->busy_ms[STREAMS_H2D],
                      w->busy_ms[STREAMS_COMPUTE], w->busy_ms[STREAMS_D2H], w->under_compute_ms, w->both_copies_ms,
                      cli_bytes(w->device_bytes, bytes));
    }
    cli_table_print(table, stdout, 2);
    printf("\n");
    cli_paragraphs(
        stdout,
        "wall: the host's clock, submitting included. Busy and overlap in ms: unions of the intervals between "
        "events, in one more run that records them around everything. Device memory: inputs, results and the "
        "weights.",
        2);
    if (!r->checked)
        cli_paragraphs(stdout, "This device is simulated: products take their time and compute nothing.", 2);
    return CLI_OK;
}

static void json_engines(struct mr_json *json, const char *key, const double ms[STREAMS_N_ENGINES])
{
    mr_json_object(json, key);
    mr_json_double(json, "h2d", ms[STREAMS_H2D]);
    mr_json_double(json, "compute", ms[STREAMS_COMPUTE]);
    mr_json_double(json, "d2h", ms[STREAMS_D2H]);
    mr_json_object_end(json);
}

static int print_json(const struct streams_result *r, const struct streams_opts *o)
{
    struct mr_json *json = cli_json_begin("bench streams");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", r->info.name);
    mr_json_string(json, "model", r->info.model);
    json_engines(json, "alone_ms", r->alone_ms);
    mr_json_double(json, "lower_bound_ms", r->bound_ms);
    mr_json_array(json, "ways");
    for (int i = 0; i < STREAMS_N_WAYS; i++) {
        const struct streams_way_result *w = &r->way[i];
        mr_json_object(json, NULL);
        mr_json_string(json, "way", keys[i]);
        mr_json_double(json, "wall_ms", w->wall_ms);
        mr_json_double(json, "variation", w->variation);
        mr_json_double(json, "of_bound", w->wall_ms / r->bound_ms);
        mr_json_double(json, "traced_ms", w->traced_ms);
        json_engines(json, "busy_ms", w->busy_ms);
        mr_json_double(json, "copies_under_compute_ms", w->under_compute_ms);
        mr_json_double(json, "both_copies_ms", w->both_copies_ms);
        mr_json_uint(json, "device_bytes", w->device_bytes);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_bool(json, "checked", r->checked);
    return cli_json_end_config(json, options, o);
}

static int plot(const struct streams_result *r, const char *path)
{
    static const char *const labels[] = {"wall time", "H2D busy", "compute busy", "D2H busy"};
    double y[4][STREAMS_N_WAYS];
    struct plot_series series[4];
    char subtitle[160];
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < STREAMS_N_WAYS; i++)
            y[k][i] = k == 0 ? r->way[i].wall_ms : r->way[i].busy_ms[k - 1];
        series[k] = (struct plot_series){labels[k], NULL, y[k], STREAMS_N_WAYS};
    }
    struct plot_panel panel = {"Time", "", "ms", names, series, 4, {"lower bound", r->bound_ms}, false, false, 0};
    snprintf(subtitle, sizeof subtitle, "%s %s", r->info.name, r->info.model);
    return plot_write(&(struct plot){"Copy, multiply, copy back", subtitle, &panel, 1}, path);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct streams_opts *o = values;
    struct mr_device *dev = NULL;
    struct streams_result r = {0};
    int code = plot_check(o->plot);
    if (code == CLI_OK)
        code = bench_open(o->device, true, &dev, NULL);
    if (code != CLI_OK)
        return code;
    int rc = streams_measure(dev, o, &r);
    if (rc < 0)
        code = cli_error(rc);
    if (code == CLI_OK && o->plot)
        code = plot(&r, o->plot);
    if (code == CLI_OK)
        code = cli.json ? print_json(&r, o) : print_text(&r, o);
    mr_device_close(dev);
    return code;
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"alone_ms", "h2d, compute, d2h: all n of each with nothing else under way"},
    {"lower_bound_ms", "the longest of them"},
    {"ways", "for each: way (one, each, ring), wall_ms (median), variation (standard deviation over mean), of_bound"},
    {"ways.busy_ms",
     "h2d, compute, d2h: unions of intervals in a run with events around everything; traced_ms: of that "
     "run, from its first event to its last"},
    {"ways.copies_under_compute_ms, ways.both_copies_ms", "overlap in that run"},
    {"ways.device_bytes", "device memory for inputs, results and the weights"},
    {"checked", "whether elements of the products were compared with the host's; a simulated device has none"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench streams --plot streams.svg", "32 matrices of 2048 x 2048 on the first GPU"},
    {"millrace bench streams --device sim --size 512 --json", "the simulated device"},
    {NULL, NULL},
};

const struct cli_command cli_bench_streams = {
    .name = "bench streams",
    .summary = "Measure how well copies hide behind matrix products, in three orders",
    .synopsis = "[options]",
    .text =
        "Copies n matrices to the device, multiplies each by the same weights, and copies the products back: in one "
        "stream; in a stream for each, all in memory at once; and in a ring of 3 buffers with a stream for copies in, "
        "three that products take turns on and one for copies out, tied by events, in constant memory. There the "
        "first and the last matrix go "
        "through in pieces: until the first is copied in, and after the last product, nothing can be computed.\n\nNo "
        "order can be faster than the "
        "longest of the three alone, which is measured and printed as the lower bound. GPUs need cuBLAS: "
        "libcublas.so.13, "
        ".12 or .11 where the dynamic linker looks (LD_LIBRARY_PATH), or the file that MILLRACE_CUBLAS names.",
    .options = options,
    .options_bytes = sizeof(struct streams_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
