/* millrace bench transfer: every way to copy to and from a device, beside the link's limit. */
#include "bench/bench.h"
#include "bench/transfer.h"
#include "plot.h"

#include <stdlib.h>
#include <string.h>

#define OPT(...) BENCH_OPTION(struct transfer_opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim:h2d=55,d2h=55"),
    OPT("peer", MR_OPT_STRING, peer, .meta = "DEVICE",
        .help = "Another device of the same kind to copy from; by default the next GPU, if one "
                "exists"),
    OPT("min", MR_OPT_BYTES, min_bytes, .initial = "64", .min = 64, .max = 0x1p40, .unit = "bytes",
        .help = "Smallest copy, rounded up to a multiple of 64; sizes grow by a factor of four"),
    OPT("max", MR_OPT_BYTES, max_bytes, .initial = "1GiB", .min = 64, .max = 0x1p40,
        .unit = "bytes", .help = "Largest copy"),
    OPT("repeats", MR_OPT_UINT, repeats, .initial = "5", .min = 1, .max = TRANSFER_REPEATS,
        .unit = "repeats", .help = "Measurements of each; medians are printed"),
    OPT("directions", MR_OPT_STRING, directions, .meta = "LIST",
        .help = "Directions to measure, separated by commas: h2d, d2h, both, d2d, peer; default "
                "all"),
    BENCH_PLOT_OPTION(struct transfer_opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static int check_directions(const char *list)
{
    for (const char *at = list; at;) {
        size_t n = strcspn(at, ",");
        int i = 0;
        while (transfer_directions[i] &&
               (strlen(transfer_directions[i]) != n || memcmp(transfer_directions[i], at, n)))
            i++;
        if (!transfer_directions[i])
            return cli_misuse("--directions %s: expected a list of h2d, d2h, both, d2d, peer",
                              list);
        at = at[n] ? at + n + 1 : NULL;
    }
    return CLI_OK;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct transfer_opts *o = values;
    struct mr_device *dev = NULL;
    int code = plot_check(o->plot);
    if (code == CLI_OK)
        code = check_directions(o->directions);
    o->min_bytes = (o->min_bytes + 63) / 64 * 64;
    if (code == CLI_OK && o->min_bytes > o->max_bytes)
        code = cli_misuse("--min is larger than --max");
    if (code != CLI_OK)
        return code;
    struct transfer_result *r = calloc(1, sizeof *r);
    if (!r)
        return cli_fail("out of memory");
    code = bench_open(o->device, true, &dev, NULL);
    int rc = code == CLI_OK ? transfer_measure(dev, o, r) : 0;
    if (rc < 0)
        code = cli_error(rc);
    if (code == CLI_OK && o->plot && !r->interrupted)
        code = transfer_plot(r, o->plot);
    if (code == CLI_OK)
        code = transfer_print(r, o);
    if (r->interrupted)
        code = CLI_FAILED;
    mr_device_close(dev);
    free(r);
    return code;
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"link", "h2d_limit_gb_per_s, d2h_limit_gb_per_s (0: unknown); generation, width, under load "
             "and at most; numa_node"},
    {"peer, peer_direct",
     "the other device (null: none), and whether its copies avoid the host's memory"},
    {"series", "for each: direction (h2d, d2h, both, d2d, peer), memory, way (async, blocking, "
               "batch, graph, kernel), "
               "clock (device, "
               "host), limit_gb_per_s, and fit_latency_ns and fit_gb_per_s: one copy takes latency "
               "+ bytes / rate"},
    {"series.points", "for each size: bytes, copies timed together, gb_per_s (median), variation "
                      "(standard deviation over "
                      "mean), of_limit; for both also h2d_gb_per_s and d2h_gb_per_s"},
    {"notes", "why results may be low, and what was left out"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench transfer --plot transfer.svg", "the first GPU, 64 B to 1 GiB, with a chart"},
    {"millrace bench transfer --device sim --max 1MiB --directions h2d,d2h",
     "the simulated device"},
    {"millrace bench transfer --device sim --peer sim:peer=20 --directions peer",
     "between two simulated devices"},
    {NULL, NULL},
};

const struct cli_command cli_bench_transfer = {
    .name = "bench transfer",
    .summary = "Measure every way to copy to and from a device beside the link's limit",
    .synopsis = "[options]",
    .text = "Copies 64 B to 1 GiB to the device, back, both ways at once, within the device and "
            "from another device. Host memory is pageable, page-locked, write-combined, "
            "registered or in huge pages. Copies are submitted one by one, 64 in a call, 64 as a "
            "graph, or with a wait after each (blocking), and are also done by a kernel instead of "
            "the copy "
            "engines. A kernel holds the copies back until all are submitted, so that the time to "
            "submit them is not measured. The bytes are checked after each.\n\n"
            "Each series is fitted by a line, latency + bytes / bandwidth (least squares of the "
            "relative errors). The bandwidth is printed as a fraction of the link's limit, with "
            "possible causes if it is low.",
    .options = options,
    .options_bytes = sizeof(struct transfer_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
