/* millrace bench streams: does copying hide behind computing? */
#include "bench/frame.h"
#include "bench/streams.h"

#include <string.h>

#define OPT(...) BENCH_OPTION(struct streams_opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim:h2d=55,d2h=55,tflops=50"),
    OPT("n", MR_OPT_UINT, n, .key = 'n', .initial = "32", .min = 1, .max = STREAMS_MAX_N,
        .unit = "inputs", .help = "Number of matrices"),
    OPT("size", MR_OPT_UINT, size, .initial = "2048", .min = 16, .max = 16384, .unit = "rows",
        .help = "Rows and columns of each matrix, of f32"),
    OPT("pieces", MR_OPT_UINT, pieces, .initial = "2", .min = 1, .max = STREAMS_MAX_PIECES,
        .unit = "pieces",
        .help = "Blocks of rows that the ring splits the first and the last matrix into; more "
                "blocks start the first product and end the last copy sooner"),
    OPT("repeats", MR_OPT_UINT, repeats, .initial = "5", .min = 1, .max = STREAMS_REPEATS,
        .unit = "repeats", .help = "Measurements of each way; medians are printed"),
    BENCH_PLOT_OPTION(struct streams_opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum { WAYS, PAIRS, CALLS }; /* the tables */

static const char *const parts[] = {
    "Copy in, multiply, copy back", "Two at a time, 8 of each: in one stream, and each in its own",
    "One copy to the device: how long its call holds the host", NULL};

static const struct {
    const char *name, *key;
    int part;
} rows[] = {
    {"one stream", "one", WAYS},
    {"a stream for each input", "each", WAYS},
    {"ring of 3 buffers", "ring", WAYS},
    {"two copies to the device", "same_direction", PAIRS},
    {"a copy there, a copy back", "both_directions", PAIRS},
    {"a copy, a product", "copy_product", PAIRS},
    {"a pageable copy, a product", "pageable_copy_product", PAIRS},
    {"two products", "products", PAIRS},
    {"two products of few rows", "small_products", PAIRS},
    {"page-locked memory", "pinned", CALLS},
    {"pageable memory", "pageable", CALLS},
};

enum {
    NAME,
    KEY,
    WALL,
    IN_ONE,
    IN_TWO,
    SPEED_UP,
    VARIATION,
    OF_BOUND,
    TRACED,
    BUSY, /* and of the other engines */
    UNDER_COMPUTE = BUSY + STREAMS_N_ENGINES,
    BOTH_COPIES,
    MEMORY,
    CALL,
    COPY,
    N_COLUMNS,
};

enum { IN_WAYS = 1 << WAYS, IN_PAIRS = 1 << PAIRS, IN_CALLS = 1 << CALLS };

static const struct bench_column columns[N_COLUMNS] = {
    [NAME] = {.head = "", .format = BENCH_TEXT},
    [KEY] = {.key = "way", .format = BENCH_TEXT},
    [WALL] = {">wall ms", "wall_ms", .digits = 3, .parts = IN_WAYS},
    [IN_ONE] = {">one stream ms", "one_stream_ms", .digits = 3, .parts = IN_PAIRS},
    [IN_TWO] = {">two streams ms", "two_streams_ms", .digits = 3, .parts = IN_PAIRS},
    [SPEED_UP] = {">speed-up", "speed_up", .digits = 2, .suffix = "x", .parts = IN_WAYS | IN_PAIRS},
    [VARIATION] = {">variation", "variation", BENCH_SHARE, .parts = IN_WAYS | IN_PAIRS},
    [OF_BOUND] = {">of bound", "of_bound", .digits = 2, .suffix = "x", .parts = IN_WAYS},
    [TRACED] = {.key = "traced_ms"},
    [BUSY + STREAMS_H2D] = {">H2D busy", "busy_ms.h2d", .digits = 3, .parts = IN_WAYS},
    [BUSY + STREAMS_COMPUTE] = {">compute busy", "busy_ms.compute", .digits = 3, .parts = IN_WAYS},
    [BUSY + STREAMS_D2H] = {">D2H busy", "busy_ms.d2h", .digits = 3, .parts = IN_WAYS},
    [UNDER_COMPUTE] = {">copies under compute", "copies_under_compute_ms", .digits = 3,
                       .parts = IN_WAYS},
    [BOTH_COPIES] = {">both copies at once", "both_copies_ms", .digits = 3, .parts = IN_WAYS},
    [MEMORY] = {">device memory", "device_bytes", BENCH_BYTES, .parts = IN_WAYS},
    [CALL] = {">the call us", "call_us", .digits = 1, .parts = IN_CALLS},
    [COPY] = {">until the bytes are there us", "copy_us", .digits = 1, .parts = IN_CALLS},
};

static void above(const struct bench *b)
{
    const struct streams_opts *o = b->values;
    const struct streams *s = b->user;
    double n = (double)o->n, size = (double)o->size;
    const char *longest = s->bound_ms == s->alone_ms[STREAMS_H2D]       ? "copies to the device"
                          : s->bound_ms == s->alone_ms[STREAMS_COMPUTE] ? "matrix products"
                                                                        : "copies back";
    bench_print_device(b);
    printf(": %llu times copy a %llu x %llu f32 matrix, multiply, copy back; medians of %llu\n",
           (unsigned long long)o->n, (unsigned long long)o->size, (unsigned long long)o->size,
           (unsigned long long)o->repeats);
    printf("alone: copies to the device %.3f ms, matrix products %.3f ms (%.1f Tflop/s), copies "
           "back %.3f ms\n"
           "lower bound: %.3f ms, the %s\n",
           s->alone_ms[STREAMS_H2D], s->alone_ms[STREAMS_COMPUTE],
           2e-9 * n * size * size * size / s->alone_ms[STREAMS_COMPUTE], s->alone_ms[STREAMS_D2H],
           s->bound_ms, longest);
}

static void below(const struct bench *b)
{
    const struct streams *s = b->user;
    cli_paragraphs(stdout,
                   "wall: the host's clock, submitting included. Busy and overlap in ms: unions of "
                   "the intervals between "
                   "events, in one more run that records them around everything. Device memory: "
                   "inputs, results and the "
                   "weights.",
                   2);
    if (!s->checked)
        cli_paragraphs(
            stdout, "This device is simulated: products take their time and compute nothing.", 2);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct streams *s = b->user;
    mr_json_object(json, "alone_ms");
    mr_json_double(json, "h2d", s->alone_ms[STREAMS_H2D]);
    mr_json_double(json, "compute", s->alone_ms[STREAMS_COMPUTE]);
    mr_json_double(json, "d2h", s->alone_ms[STREAMS_D2H]);
    mr_json_object_end(json);
    mr_json_double(json, "lower_bound_ms", s->bound_ms);
    mr_json_bool(json, "checked", s->checked);
}

static int measure_way(struct bench *b, const struct bench_row *row, double *v)
{
    struct streams *s = b->user;
    struct streams_way_result r = {0};
    int rc = streams_measure(s, (enum streams_way)(row - b->rows), &r);
    v[WALL] = r.wall_ms;
    v[VARIATION] = r.variation;
    v[OF_BOUND] = r.wall_ms / s->bound_ms;
    v[TRACED] = r.traced_ms;
    memcpy(&v[BUSY], r.busy_ms, sizeof r.busy_ms);
    v[UNDER_COMPUTE] = r.under_compute_ms;
    v[BOTH_COPIES] = r.both_copies_ms;
    v[MEMORY] = (double)r.device_bytes;
    return rc;
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    struct streams *s = b->user;
    int i = (int)(row - b->rows);
    if (row->part == WAYS)
        return measure_way(b, row, v);
    if (row->part == CALLS)
        return streams_call_measure(s, i == CLI_COUNT(rows) - 1, &v[CALL], &v[COPY]);
    int rc = streams_pair_measure(s, (enum streams_pair)(i - STREAMS_N_WAYS), &v[IN_ONE],
                                  &v[IN_TWO], &v[VARIATION]);
    v[SPEED_UP] = v[IN_ONE] / v[IN_TWO];
    return rc;
}

static void conclude(struct bench *b)
{
    const struct bench_row *one = &b->rows[0], *ring = &b->rows[STREAMS_RING],
                           *same = &b->rows[STREAMS_N_WAYS + STREAMS_SAME_DIRECTION],
                           *calls = &b->rows[STREAMS_N_WAYS + STREAMS_N_PAIRS];
    bool differs = fabs(same->v[SPEED_UP] - 1) > fmax(0.05, 2 * same->v[VARIATION]);
    char pinned[CLI_HUMAN], pageable[CLI_HUMAN];
    for (int i = 0; i < STREAMS_N_WAYS; i++)
        b->rows[i].v[SPEED_UP] = one->v[WALL] / b->rows[i].v[WALL];
    snprintf(b->verdict, sizeof b->verdict,
             "The ring is %.2fx as fast as one stream and takes %.2fx the lower bound. Two copies "
             "in one direction: %.2fx by a second stream%s. The call of a copy holds the host for "
             "%s from page-locked and for %s from pageable memory.",
             ring->v[SPEED_UP], ring->v[OF_BOUND], same->v[SPEED_UP],
             differs ? "" : ", no gain beyond the spread",
             cli_time((uint64_t)(1e3 * calls[0].v[CALL]), pinned),
             cli_time((uint64_t)(1e3 * calls[1].v[CALL]), pageable));
}

static struct bench_panel panels[] = {
    {"Time",
     "",
     "ms",
     -1,
     {WALL, BUSY + STREAMS_H2D, BUSY + STREAMS_COMPUTE, BUSY + STREAMS_D2H},
     4},
    {"Two at a time",
     "",
     "times as fast by a second stream",
     -1,
     {SPEED_UP},
     1,
     .limit = {"no gain", 1}},
    {"The call of a copy", "", "us", -1, {CALL, COPY}, 2}};

static int open_all(struct bench *b)
{
    struct streams *s = b->user;
    int rc = streams_open(s, b->dev, &b->info, b->values);
    if (rc == 0)
        rc = bench_rows(b, CLI_COUNT(rows));
    for (int i = 0; i < b->n_rows; i++) {
        b->rows[i].name = b->rows[i].text[NAME] = rows[i].name;
        b->rows[i].text[KEY] = rows[i].key;
        b->rows[i].part = rows[i].part;
    }
    panels[0].limit = (struct plot_limit){"lower bound", s->bound_ms};
    return rc;
}

static void close_all(struct bench *b)
{
    streams_close(b->user);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    static struct streams s;
    struct streams_opts *o = values;
    return bench_run(
        &(struct bench){.command = &cli_bench_streams,
                        .values = o,
                        .device = o->device,
                        .copies = true,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .parts = parts,
                        .rows_key = "ways",
                        .explain = "Work in one stream runs in turn; copies in, products and "
                                   "copies back in streams of their own run at the same time. No "
                                   "order beats the longest of the three alone, the lower bound. "
                                   "A ring of buffers needs little memory for that. H2D: copies "
                                   "to the device; D2H: copies back.",
                        .chart = "Copy, multiply, copy back",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .user = &s,
                        .open = open_all,
                        .close = close_all,
                        .measure = measure,
                        .conclude = conclude,
                        .json = json,
                        .above = above,
                        .below = below,
                        .learn = "streams"});
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"alone_ms", "h2d, compute, d2h: all n of each with nothing else under way; the shortest of "
                 "the repeats"},
    {"lower_bound_ms", "the longest of them"},
    {"ways", "for each: way (one, each, ring), wall_ms (median), variation (standard deviation "
             "over mean), of_bound, speed_up (over one stream)"},
    {"ways, of two at a time", "same_direction, both_directions, copy_product, "
                               "pageable_copy_product, products, small_products: one_stream_ms, "
                               "two_streams_ms, speed_up, variation (the larger of both)"},
    {"ways, of a copy's call", "pinned, pageable: call_us (until it returns), copy_us (until the "
                               "bytes are there)"},
    {"ways.busy_ms", "h2d, compute, d2h: unions of intervals in a run with events around "
                     "everything; traced_ms: of that "
                     "run, from its first event to its last"},
    {"ways.copies_under_compute_ms, ways.both_copies_ms", "overlap in that run"},
    {"ways.device_bytes", "device memory for inputs, results and the weights"},
    {"checked",
     "whether elements of the products were compared with the host's; a simulated device has none"},
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
    .text = "Copies n matrices to the device, multiplies each by the same weights, and copies the "
            "products back. Three ways are compared: one stream; one stream per matrix, with all "
            "of them in memory at once; and a ring of 3 buffers in constant memory, with one "
            "stream for copies in, three for products and one for copies out, ordered by events. "
            "The ring splits the first and the last matrix into pieces, since nothing can be "
            "computed before the first is copied in or after the last product.\n\n"
            "Then two things at a time, in one stream and each in its own: copies in one direction "
            "(which share the link), in both, a copy beside a product, from page-locked and from "
            "pageable memory, and two products, whole and of a sixteenth of the rows, which leave "
            "room on the device. Last, how long the call of a copy holds the host.\n\n"
            "No order can be faster than the longest of the three stages alone, which is measured "
            "(the shortest of the repeats) and printed as the lower bound. GPUs need cuBLAS: "
            "libcublas.so.13, .12 or .11 where "
            "the dynamic linker looks (LD_LIBRARY_PATH), or the file in MILLRACE_CUBLAS.",
    .options = options,
    .options_bytes = sizeof(struct streams_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
