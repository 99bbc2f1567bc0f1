/* millrace bench workers: how many workers, page-locked or not, waiting for the device or not. */
#include "bench/bench.h"
#include "bench/workers.h"
#include "plot.h"

#include <stdlib.h>

#define OPT(option, kind, member, ...)                                                                                 \
    {                                                                                                                  \
        .name = option, .type = kind, .offset = offsetof(struct workers_opts, member), __VA_ARGS__                     \
    }

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim:h2d=55, cpu"),
    OPT("workers-list", MR_OPT_STRING, list, .key = 'w', .initial = "1,2,4,8", .meta = "LIST",
        .help = "Numbers of worker threads, with commas between"),
    OPT("batch-size", MR_OPT_UINT, batch_size, .key = 'b', .initial = "256", .min = 1, .max = 1 << 20,
        .unit = "samples", .help = "Samples in a batch (4 KiB each)"),
    OPT("samples", MR_OPT_UINT, samples, .initial = "65536", .min = 1, .max = 1e9, .unit = "samples",
        .help = "Size of the set in memory (4 KiB a sample)"),
    OPT("step", MR_OPT_DURATION, step_ns, .initial = "100us", .min = 0, .max = 3600e9, .unit = "us",
        .help = "Time that the device works on each batch; 0: it does not"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "1s", .min = 1e6, .max = 3600e9, .unit = "s",
        .help = "Of each measurement, after a quarter of it to warm up"),
    OPT("plot", MR_OPT_STRING, plot, .meta = "FILE", .help = "Draw a chart: FILE.svg or FILE.html"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const char *const titles[] = {"1024 floats a sample, in memory", "2 ms of latency a sample"};
static const char *const sets[] = {"memory", "delay_2ms"};
static const char *const mixes[] = {"page-locked, not blocking", "page-locked, blocking", "pageable, not blocking",
                                    "pageable, blocking"};

/* Returns how many numbers there are; 0: it is no list of them. */
static int parse_list(const char *at, uint32_t *list)
{
    for (int n = 0; n < WORKERS_MAX; n++) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || v < 1 || v > 512 || (*end && *end != ','))
            break;
        list[n] = (uint32_t)v;
        if (!*end)
            return n + 1;
        at = end + 1;
    }
    return 0;
}

static int print_text(const struct workers_result *r, const struct workers_opts *o)
{
    char step[CLI_HUMAN], link[CLI_HUMAN], steps[CLI_HUMAN], count[CLI_HUMAN];
    double limit = workers_limit(r);
    printf("%s%s%s: batches of %llu, %s of the device's work on each\n", r->info.name, r->info.model[0] ? ": " : "",
           r->info.model, (unsigned long long)o->batch_size, cli_time(o->step_ns, step));
    if (r->link_samples_per_s > 0)
        printf("limit of the link: %s samples/s\n", cli_count(r->link_samples_per_s, link));
    if (r->step_samples_per_s > 0)
        printf("limit of the work: %s samples/s\n", cli_count(r->step_samples_per_s, steps));
    for (int set = 0; set < WORKERS_N_SETS; set++) {
        printf("\n%s\n", titles[set]);
        struct cli_table *table =
            cli_table_create(">workers\tmemory, host\t>transfer us/batch\t>step us/batch\t>samples/s\t>of limit");
        for (int i = 0; i < r->n; i++) {
            const struct workers_cell *c = &r->cell[i];
            char transfer[32] = "", part[32] = "";
            if ((int)c->set != set)
                continue;
            if (c->transfer_us >= 0)
                snprintf(transfer, sizeof transfer, "%.1f", c->transfer_us);
            if (limit > 0)
                snprintf(part, sizeof part, "%.1f%%", 100 * c->samples_per_s / limit);
            cli_table_row(table, "%u\t%s\t%s\t%.1f\t%s\t%s", c->workers, mixes[i % 4], transfer, c->step_us,
                          cli_count(c->samples_per_s, count), part);
        }
        cli_table_print(table, stdout, 2);
    }
    printf("\n");
    cli_paragraphs(stdout,
                   "Transfer: the copy of a batch by the device's events. Step: from one batch to the next, as the "
                   "consumer sees it. Blocking: the consumer waits for the device after each batch.",
                   2);
    return CLI_OK;
}

static int print_json(const struct workers_result *r, const struct workers_opts *o)
{
    struct mr_json *json = cli_json_begin("bench workers");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", r->info.name);
    mr_json_string(json, "model", r->info.model);
    mr_json_double(json, "link_limit_samples_per_s", r->link_samples_per_s);
    mr_json_double(json, "step_limit_samples_per_s", r->step_samples_per_s);
    mr_json_array(json, "cells");
    for (int i = 0; i < r->n; i++) {
        const struct workers_cell *c = &r->cell[i];
        mr_json_object(json, NULL);
        mr_json_string(json, "set", sets[c->set]);
        mr_json_uint(json, "workers", c->workers);
        mr_json_bool(json, "pinned", c->pinned);
        mr_json_bool(json, "blocking", c->blocking);
        if (c->transfer_us >= 0)
            mr_json_double(json, "transfer_us", c->transfer_us);
        mr_json_double(json, "step_us", c->step_us);
        mr_json_double(json, "samples_per_s", c->samples_per_s);
        if (workers_limit(r) > 0)
            mr_json_double(json, "of_limit", c->samples_per_s / workers_limit(r));
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end_config(json, options, o);
}

static int plot(const struct workers_result *r, const uint32_t *list, int n_list, const char *path)
{
    double x[WORKERS_MAX], y[WORKERS_N_SETS][4][WORKERS_MAX];
    struct plot_series series[WORKERS_N_SETS][4];
    struct plot_panel panels[WORKERS_N_SETS];
    char subtitle[160];
    for (int k = 0; k < n_list; k++)
        x[k] = list[k];
    for (int i = 0; i < r->n; i++)
        y[r->cell[i].set][i % 4][i / 4 % n_list] = r->cell[i].samples_per_s;
    for (int set = 0; set < WORKERS_N_SETS; set++) {
        for (int k = 0; k < 4; k++)
            series[set][k] = (struct plot_series){mixes[k], x, y[set][k], n_list};
        panels[set] = (struct plot_panel){
            titles[set], "worker threads", "samples/s", NULL, series[set], 4, {"limit", workers_limit(r)}, true,
            false,       PLOT_BINARY};
    }
    snprintf(subtitle, sizeof subtitle, "%s %s", r->info.name, r->info.model);
    return plot_write(&(struct plot){"Workers, memory and blocking", subtitle, panels, WORKERS_N_SETS}, path);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct workers_opts *o = values;
    struct mr_device *dev = NULL;
    uint32_t list[WORKERS_MAX];
    int n_list = 0, code = plot_check(o->plot);
    if (code != CLI_OK)
        return code;
    n_list = parse_list(o->list, list);
    if (n_list == 0)
        return cli_misuse("--workers-list %s: want at most %d numbers of 1..512 with commas between", o->list,
                          WORKERS_MAX);
    struct workers_result *r = calloc(1, sizeof *r);
    if (!r)
        return cli_fail("out of memory");
    code = bench_open(o->device, false, &dev, NULL);
    int rc = code == CLI_OK ? workers_measure(dev, o, list, n_list, r) : 0;
    if (rc < 0)
        code = cli_error(rc);
    if (code == CLI_OK && o->plot)
        code = plot(r, list, n_list, o->plot);
    if (code == CLI_OK)
        code = cli.json ? print_json(r, o) : print_text(r, o);
    mr_device_close(dev);
    free(r);
    return code;
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"link_limit_samples_per_s, step_limit_samples_per_s",
     "what the link and the device's work allow; 0: unknown or none"},
    {"cells", "for each: set (memory, delay_2ms), workers, pinned, blocking"},
    {"cells.transfer_us", "mean copy of a batch by the device's events; absent where it cannot be timed"},
    {"cells.step_us, cells.samples_per_s, cells.of_limit", "mean time from batch to batch, and the rate"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench workers --plot workers.svg", "the grid on the first GPU, or without one on the CPU"},
    {"millrace bench workers --device sim --workers-list 1,2 --time 0.2s --json", "a small grid for a script"},
    {NULL, NULL},
};

const struct cli_command cli_bench_workers = {
    .name = "bench workers",
    .summary = "Measure loading by number of workers, page-locked or not, blocking or not",
    .synopsis = "[options]",
    .text =
        "Runs the loader over a set in memory and over one with 2 ms of latency a sample, with each number of workers, "
        "with page-locked and with pageable memory, and with a consumer that waits for the device after each batch "
        "and one that does not. The limit is the lower of what the link carries and what the device's work takes.",
    .options = options,
    .options_bytes = sizeof(struct workers_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
