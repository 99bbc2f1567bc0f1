/* millrace plan: a cluster before it is rented. */
#include "plan/plan.h"
#include "plot.h"

#include <math.h>

#define OPT(option, kind, member, ...)                                                             \
    {                                                                                              \
        .name = option, .type = kind, .offset = offsetof(struct plan_opts, member), __VA_ARGS__    \
    }

static const char *const wires[] = {"f32", "bf16", NULL};
static const char cluster[] = "The cluster", measured[] = "In place of what files say",
                  money[] = "An epoch and its cost";

const struct mr_option plan_options[] = {
    OPT("ranks", MR_OPT_UINT, ranks, .key = 'n', .initial = "64", .min = 1, .max = 1 << 20,
        .unit = "ranks", .group = cluster, .help = "Processes with a GPU each"),
    OPT("sweep", MR_OPT_FLAG, sweep, .group = cluster,
        .help = "Also for 1, 2, 4, 8, ... up to --ranks"),
    OPT("per-node", MR_OPT_UINT, per_node, .initial = "8", .min = 1, .max = 1 << 20,
        .unit = "ranks", .group = cluster, .help = "Ranks of a machine"),
    OPT("link", MR_OPT_STRING, link, .meta = "node=RATE,net=RATE,alpha=TIME/TIME", .group = cluster,
        .help = "Sums: bus bandwidth within a machine and between machines, and what the smallest "
                "sum takes within one and between two: node=360GB/s,net=45GB/s,alpha=8us/25us; "
                "what neither it nor a file gives costs nothing"),
    OPT("store", MR_OPT_STRING, store, .meta = "RATE", .group = cluster,
        .help = "What the store gives to all ranks together, 50GB/s; default: no limit"),
    OPT("wire", MR_OPT_ENUM, wire, .initial = "f32", .choices = wires, .group = cluster,
        .help = "How gradients travel; bf16 halves the bytes"),
    OPT("overlap", MR_OPT_FLAG, overlap, .initial = "1", .group = cluster,
        .help = "Sums go on during the backward pass; not so where train's engine was mpi"),

    OPT("step", MR_OPT_DURATION, step_ns, .initial = "0", .unit = "ms", .group = measured,
        .help = "Computing of a step, without waiting; 0: of train's file"),
    OPT("step-sigma", MR_OPT_DOUBLE, step_sigma, .initial = "0", .max = 3, .group = measured,
        .help = "Its spread from step to step: deviation of its logarithm"),
    OPT("make", MR_OPT_DURATION, make_ns, .initial = "0", .unit = "ms", .group = measured,
        .help = "From batch to batch of a loader that nothing holds up; 0: of feed's file"),
    OPT("make-sigma", MR_OPT_DOUBLE, make_sigma, .initial = "-1", .min = -1, .max = 3,
        .group = measured, .help = "Its spread; -1: of feed's file"),
    OPT("prefetch", MR_OPT_UINT, prefetch, .initial = "0", .max = 1024, .unit = "batches",
        .group = measured, .help = "Batches ahead; 0: as in the files"),
    OPT("batch-bytes", MR_OPT_DOUBLE, batch_bytes, .initial = "-1", .min = -1, .max = 1e18,
        .group = measured, .help = "Bytes that a rank reads for a batch; -1: of feed's file"),
    OPT("batch-size", MR_OPT_UINT, batch, .initial = "0", .max = 1e9, .unit = "samples",
        .group = measured, .help = "Samples of a rank's batch; 0: as in the files"),
    OPT("params", MR_OPT_UINT, params, .initial = "0", .max = 1e15, .unit = "parameters",
        .group = measured, .help = "Parameters of the net; 0: of train's file"),
    OPT("requests", MR_OPT_DOUBLE, requests, .initial = "-1", .min = -1, .max = 1e6,
        .group = measured,
        .help = "Requests to the store for a sample, 0.01 where one brings 100; -1: of feed's "
                "file"),

    OPT("samples", MR_OPT_UINT, samples, .initial = "0", .unit = "samples", .group = money,
        .help = "Samples of an epoch; 0: no epoch is planned"),
    OPT("per-hour", MR_OPT_DOUBLE, hour, .initial = "2.5", .max = 1e6, .group = money,
        .help = "Price of a rank for an hour"),
    OPT("per-million", MR_OPT_DOUBLE, million, .initial = "0.4", .max = 1e6, .group = money,
        .help = "Price of a million requests"),
    OPT("plot", MR_OPT_STRING, plot, .meta = "FILE",
        .help = "Draw efficiency and parts of a step: FILE.svg or FILE.html"),
    OPT("force", MR_OPT_FLAG, force, .key = 'f', .help = "Let --plot replace any file"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static int predict(struct plan *p, uint32_t ranks)
{
    struct plan_row *row = &p->row[p->n];
    struct mr_cluster_opts model = p->in.model;
    const struct plan_opts *o = p->opts;
    row->ranks = model.ranks = ranks;
    if (ranks > 4096) /* the mean of that many needs fewer steps */
        model.steps = 300;
    row->step.size = sizeof row->step;
    int rc = mr_cluster_predict(&model, &row->step);
    if (rc < 0)
        return cli_error(rc);
    const double seconds = row->step.step_ns * 1e-9, samples = p->in.samples * ranks;
    row->samples_per_s = samples / seconds;
    row->epoch_s = row->requests = row->rent = row->request_cost = NAN;
    if (p->in.epoch && samples > 0) {
        row->epoch_s = (double)p->in.epoch / row->samples_per_s;
        row->rent = row->epoch_s / 3600 * ranks * o->hour;
        row->requests = (double)p->in.epoch * p->in.requests / p->in.samples;
        row->request_cost = row->requests * 1e-6 * o->million;
    }
    p->n++;
    return CLI_OK;
}

static int run(void *values, int n_args, char **args)
{
    struct plan p = {.opts = values};
    const struct plan_opts *o = values;
    int code = plot_check_name(o->plot);
    if (code == CLI_OK)
        code = cli_output_claim(o->plot, CLI_CHART, o->force);
    for (int i = 0; i < n_args && code == CLI_OK; i++)
        code = cli_input_add(args[i]);
    if (code == CLI_OK)
        code = plan_read(&p.in, o, n_args, args);
    if (code == CLI_OK && o->samples && !(p.in.samples > 0))
        code = cli_misuse("--samples: expected --batch-size, or feed's or train's file, too");
    for (uint64_t n = 1; o->sweep && n < o->ranks && code == CLI_OK; n *= 2)
        code = predict(&p, (uint32_t)n);
    if (code == CLI_OK)
        code = predict(&p, (uint32_t)o->ranks);
    if (code == CLI_OK && o->plot)
        code = plan_draw(&p);
    if (code != CLI_OK)
        return code;
    if (p.in.slow_feed)
        cli_warn("%s: the loader waited for its consumer, so it may be faster than planned: "
                 "measure it without --sink-ms",
                 p.in.slow_feed);
    return cli.json ? plan_json(&p) : plan_print(&p);
}

static const struct cli_note json_notes[] = {
    {"model", "what the model was given: step_ms, step_sigma, make_ms, make_sigma, prefetch, "
              "samples and batch_bytes and requests (of a rank's step), grad_bytes, "
              "backward_share, node_bytes_per_s, net_bytes_per_s, node_alpha_us, net_alpha_us"},
    {"rows", "for each number of ranks: ranks, step_ms and its parts compute_ms, data_ms (batches "
             "that the slowest rank waits for), spread_ms (ranks do not compute equally fast), "
             "sum_ms (not hidden), whole_sum_ms, alone_ms (one rank's step), efficiency, "
             "samples_per_s, store_gb_per_s; with --samples: epoch_seconds, rent, requests, "
             "request_cost"},
    {"sentences", "the last row in words"},
    {"config", "every option as it stands"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace feed s3://bucket/set/ -b 256 --json > feed.json; millrace train set/ -b 256 --json "
     "> train.json; millrace plan feed.json train.json --ranks 512 --sweep --link "
     "node=360GB/s,net=45GB/s,alpha=8us/25us --store 50GB/s",
     "from one machine with one GPU"},
    {"millrace plan train.json node.json net.json --ranks 64 --sweep",
     "the last two by bench comm: on the ranks of one machine, and on two machines"},
    {"millrace plan --step 40ms --make 25ms --make-sigma 0.5 --prefetch 4 --params 25600000 "
     "--ranks "
     "4096 --sweep --plot plan.html",
     "from given times"},
    {NULL, NULL},
};

const struct cli_command cli_plan = {
    .name = "plan",
    .summary = "Predict step time, stalls and cost of many ranks from what one measured",
    .synopsis = "[FILE...] [options]",
    .text =
        "FILE is what `millrace feed --json` and `millrace train --json` printed on one machine: "
        "how fast a loader makes batches and how much that varies, and how long a step computes; "
        "and what `millrace bench comm --json` printed on ranks of one machine, of several, or "
        "both: the link, in place of --link. "
        "Each rank of the cluster has such a loader and the same batch, so more ranks train "
        "larger batches.\n\n"
        "The model simulates ranks in lock step: a step begins on a rank when its batch is there, "
        "and ends when the slowest rank has come to the sum. Sums are hidden under the backward "
        "pass, bucket by bucket, as far as there is time. All ranks read through one store, which "
        "has a limited rate. Routes and congestion of networks, and failures, are not in it.",
    .options = plan_options,
    .options_bytes = sizeof(struct plan_opts),
    .min_args = 0,
    .max_args = 4,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
