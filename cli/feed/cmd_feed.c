/* millrace feed: the main job. Its options; the run itself is feed.c, what is printed
 * feed_report.c. */
#include "feed/feed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPT(option, letter, kind, member, ...)                                                     \
    {                                                                                              \
        .name = option, .key = letter, .type = kind, .offset = offsetof(struct feed_opts, member), \
        __VA_ARGS__                                                                                \
    }

#define LOADER(option, ...) CLI_LOADER_OPTION(struct feed_opts, loader, option, __VA_ARGS__)

const struct mr_option feed_options[] = {
    LOADER("batch-size"),
    OPT("transform", 't', MR_OPT_STRING, transform, .meta = "CHAIN",
        .help = "Ops on each sample: 'cast(f32),scale(1/255),normalize(0.1307,0.3081)'; millrace "
                "inspect --transforms "
                "lists them",
        .group = "Batches"),
    OPT("shuffle", 's', MR_OPT_FLAG, shuffle,
        .help = "Shuffle: a new random order each epoch, in O(1) memory", .group = "Order"),
    OPT("sampler", 0, MR_OPT_STRING, sampler, .meta = "SAMPLER",
        .help = "sequential, random, random:block=N[,window=N], subset:FILE[,shuffle], "
                "weighted:FILE[,replacement=0][,n=N]",
        .group = "Order"),
    OPT("affinity", 0, MR_OPT_ENUM, affinity, .initial = "none", .choices = cli_affinities,
        .help = "With random:block=N: blocks belong to a machine, whose disk cache has them again "
                "in the next epoch, or to a rank, which reads each of its blocks by one request, "
                "however many ranks there are",
        .group = "Order"),
    LOADER("seed", .help = "Seed of the order and of random transforms"),
    LOADER("epochs", .initial = "0",
           .help = "Passes over the data; 0: one, or no limit with "
                   "--time"),
    OPT("rank", 0, MR_OPT_STRING, rank_text, .initial = "auto", .meta = "N|auto",
        .help = "Number of this process, below --world; auto: as torchrun, mpirun or srun says, "
                "else 0",
        .group = "Order"),
    OPT("world", 0, MR_OPT_STRING, world_text, .initial = "auto", .meta = "N|auto",
        .help = "Number of processes that share the order: rank r takes positions r, r + world, "
                "...; auto: as the launcher says, else 1",
        .group = "Order"),
    LOADER("workers"),
    OPT("max-cpus", 0, MR_OPT_UINT, max_cpus, .initial = "0", .max = 4096, .unit = "processors",
        .help = "Run on so many of this process's processors; 0: on all", .group = "Pipeline"),

    OPT("cache-dir", 0, MR_OPT_STRING, cache_dir, .meta = "DIR",
        .help = "Cache data read over HTTP or S3 in this folder; several runs can share it. "
                "'default': $XDG_CACHE_HOME/millrace; not given: $MILLRACE_CACHE_DIR, else no "
                "cache",
        .group = "Remote data"),
    OPT("cache-limit", 0, MR_OPT_BYTES, cache_limit, .initial = "0",
        .help = "Size limit of the folder: the least recently used data is removed first; 0: "
                "$MILLRACE_CACHE_LIMIT, else 16 GiB",
        .group = "Remote data"),
    OPT("retries", 0, MR_OPT_UINT, retries, .initial = "5", .max = 100, .unit = "tries",
        .help = "How often to retry a failed request, after random waits that double",
        .group = "Remote data"),
    OPT("stall-timeout", 0, MR_OPT_DURATION, stall_ns, .initial = "30s", .min = 1000000,
        .max = 86400000000000, .unit = "s",
        .help = "Retry a request that delivers less than 1 KiB/s for this long",
        .group = "Remote data"),

    OPT("device", 'd', MR_OPT_STRING, device, .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda, cuda:1, or "
                "sim:h2d=55,d2h=55,peer=100,pageable=12,latency=10us,step=4ms,mem=16GiB",
        .group = "Device"),
    CLI_LOADER_REST(struct feed_opts, loader),
    OPT("sink-ms", 0, MR_OPT_DOUBLE, sink_ms, .initial = "0", .max = 1e6, .unit = "ms",
        .help =
            "Simulate a consumer with this step time; its utilization is reported as MLPerf "
            "Storage's AU. When the run stops, queued steps are finished; cpu and sim cut steps of "
            "20 ms or more",
        .group = "Device"),

    OPT("quarantine", 0, MR_OPT_STRING, quarantine, .meta = "FILE",
        .help = "Write a JSON line for each bad sample: file, offset, reason; if there are none, "
                "no file is written and an earlier one is removed",
        .group = "Bad samples"),

    OPT("time", 0, MR_OPT_DURATION, time_ns, .initial = "0", .unit = "s",
        .help = "Stop after this long; 0: no limit", .group = "Run"),
    OPT("warmup", 0, MR_OPT_DURATION, warmup_ns, .initial = "0", .unit = "s",
        .help = "Leave the start out of warm_samples_per_s for this long: caches fill, decoders "
                "open",
        .group = "Run"),
    OPT("batches", 0, MR_OPT_UINT, batches, .initial = "0", .unit = "batches",
        .help = "Stop after this many batches; 0: no limit", .group = "Run"),
    OPT("digest", 0, MR_OPT_FLAG, digest,
        .help = "Print a digest of all batches, their bytes and order on the device, to compare "
                "runs",
        .group = "Run"),
    OPT("digest-from", 0, MR_OPT_STRING, digest_from, .meta = "HEX",
        .help = "Add to this digest: another rank's, or that of the run before a resume",
        .group = "Run"),
    OPT("state-out", 0, MR_OPT_STRING, state_out, .meta = "FILE",
        .help = "Write the state at the end, to resume from", .group = "Run"),
    OPT("state-in", 0, MR_OPT_STRING, state_in, .meta = "FILE", .help = "Resume from a state",
        .group = "Run"),
    OPT("trace", 0, MR_OPT_STRING, trace, .meta = "FILE",
        .help = "Write a trace of every stage and worker, for ui.perfetto.dev", .group = "Run"),
    OPT("save", 0, MR_OPT_STRING, save, .meta = "FILE",
        .help = "With --tune: write what it found as options, for later runs: $(cat FILE)",
        .group = "Run"),
    OPT("report-dir", 0, MR_OPT_STRING, report_dir, .meta = "DIR",
        .help = "Write what this rank's latest steps did to a file of this folder, for millrace "
                "report --ranks DIR",
        .group = "Run"),
    OPT("force", 'f', MR_OPT_FLAG, force,
        .help = "Let --quarantine, --state-out, --save, --report-dir and --trace replace any file "
                "that the run "
                "does not read",
        .group = "Run"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static void tick(void *progress, uint64_t samples)
{
    cli_progress_update(progress, samples);
}

static uint64_t expected_samples(const struct feed *feed)
{
    const struct feed_opts *o = feed->opts;
    uint64_t epoch = mr_loader_samples(feed->pipe.loader),
             epochs = o->loader.epochs ? o->loader.epochs : 1;
    if (o->batches)
        return o->batches * o->loader.batch_size;
    return o->time_ns || epoch == MR_UNKNOWN || epochs > UINT64_MAX / epoch ? 0 : epochs * epoch;
}

static int feed_and_report(struct feed *feed, const char *dataset, const struct feed_opts *opts,
                           int (*print)(const struct feed *feed))
{
    int rc = feed_open(feed, dataset, opts);
    if (rc < 0)
        return cli_error(rc);
    if (cli_input_dataset(dataset, feed->pipe.ds) != CLI_OK)
        return CLI_FAILED;
    struct cli_progress progress;
    cli_progress_begin(&progress, "feed", expected_samples(feed), "samples");
    rc = feed_run(feed, tick, &progress);
    cli_progress_end(&progress);
    int failed = rc < 0 ? cli_error(rc) : CLI_OK;
    if (opts->trace && failed == CLI_OK) {
        rc = mr_trace_stop(opts->trace, &feed->result.lost_spans);
        failed = rc < 0 ? cli_error(rc) : CLI_OK;
        if (feed->result.lost_spans)
            cli_warn("%s: the oldest %" PRIu64 " spans did not fit", opts->trace,
                     feed->result.lost_spans);
    }
    if (opts->quarantine && feed_write_quarantine(feed) != CLI_OK)
        failed = CLI_FAILED;
    if (failed == CLI_OK && opts->state_out)
        failed = feed_write_state(feed);
    if (failed == CLI_OK && opts->save)
        failed = feed_save_tuning(feed);
    if (failed == CLI_OK && opts->report_dir)
        failed = ranks_dir_write(opts->report_dir, &feed->own, &feed->result.stats, opts->force);
    feed->result.failed = rc < 0 ? failed : CLI_OK;
    if (failed != CLI_OK && (rc >= 0 || feed->result.stats.batches == 0))
        return failed;
    feed->result.finished =
        rc >= 0 && feed->result.stats.samples == 0 && opts->state_in && !feed->result.stopped;
    if (feed->result.finished)
        cli_warn("%s: its run has finished its epochs, so nothing is left to feed; raise "
                 "--epochs, which counts from that run's start, or omit --state-in",
                 opts->state_in);
    failed = rc < 0 ? failed : cli_interrupted() ? CLI_FAILED : CLI_OK;
    int printed = cli.json ? feed_print_json(feed) : print(feed);
    return printed == CLI_OK ? failed : CLI_FAILED;
}

static int make_order(struct feed_opts *opts)
{
    char *order = NULL;
    int rc = cli_place(opts->rank_text, opts->world_text, &opts->loader.rank, &opts->loader.world);
    if (rc < 0)
        return rc;
    rc = cli_affinity(opts->affinity, opts->sampler, opts->loader.rank, opts->loader.world, &order);
    if (!order)
        return rc;
    free(opts->sampler);
    opts->sampler = order;
    return 0;
}

int feed_command(struct feed_opts *opts, const char *dataset, int (*print)(const struct feed *feed))
{
    struct feed feed;
    int rc = cli_limit_cpus(opts->max_cpus);
    if (rc < 0)
        return cli_error(rc);
    rc = make_order(opts);
    if (rc < 0)
        return cli_error(rc);
    rc = feed_check_files(opts);
    if (rc != CLI_OK)
        return rc;
    rc = opts->trace ? mr_trace_start(0) : 0;
    if (rc < 0)
        return cli_error(rc);
    mr_trace_thread("consumer");
    rc = feed_and_report(&feed, dataset, opts, print);
    feed_close(&feed);
    if (mr_trace_on())
        mr_trace_stop(NULL, NULL);
    return rc;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    return feed_command(values, args[0], feed_print_text);
}

static const struct cli_note json_notes[] = {
    {"samples, batches, bytes", "delivered"},
    {"seconds", "from opening the loader to the end of the consumer's last step"},
    {"samples_per_s, gb_per_s", "samples and 10^9 bytes delivered, over seconds"},
    {"first_batch_ms", "from opening the loader to the first batch handed out"},
    {"start_ms", "from the program's start to the first batch handed out"},
    {"device_open_ms", "the part of start_ms that opening the device took"},
    {"warm_samples_per_s",
     "without batches that were ready before the first was handed out; with --warmup: from the "
     "first batch after it on, also those that were ready by then; null: no others"},
    {"utilization", "with --sink-ms or a device's step: steps' time over the time from the first "
                    "step's end; else null"},
    {"digest", "32 hex digits with --digest, else null"},
    {"bottleneck, bottleneck_reason",
     "consumer, read, decode, transform, collate, copy, prefetch or none; the figures"},
    {"bad_samples, quarantine", "how many, and the first 100: index, file, offset, reason"},
    {"stages", "for each stage of the workers: ms, and share of the workers' time"},
    {"batch_interval, batch_wait, batch_make",
     "n, p50_ms, p95_ms, p99_ms, max_ms: from batch to batch, waiting for one, "
     "from its first sample's claim to ready"},
    {"consumer_wait_ms, ready_batches_mean", "time spent waiting for batches; mean number of "
                                             "ready batches"},
    {"reads, read_bytes, reads_in_flight_mean, read_latency_ms", "of the storage"},
    {"gds", "with --storage gds, the fields that it reads and how, or why none; else null"},
    {"direct_refused", "with --direct, a file whose file system refused it, else null"},
    {"overlap", "on devices with copies: batches timed, copy_ms, step_ms, both_ms, and copy_hidden "
                "from 0 to 1"},
    {"memory", "pageable_bytes, pinned_bytes, pinned_locked_bytes, device_bytes, cache_bytes"},
    {"remote", "of http and s3, null when there was none: requests, retries, bytes from the "
               "network; of the disk cache: "
               "cache_hits, cache_bytes, cache_stored_bytes, cache_damaged, cache_errors"},
    {"copied_bytes, transform_on_device",
     "bytes copied to the device; the ops of each field that ran there, or null"},
    {"gpu_decode", "null without --gpu-decode: fraction, decoded, refused; with auto cpu_rate and "
                   "gpu_rate in pictures/s, why_not"},
    {"tuning", "null without --tune: done, workers, prefetch, read_ahead, queue_depth, gpu_decode, "
               "first_workers, first_prefetch, tried, "
               "samples_per_s, first_samples_per_s, seconds, reason"},
    {"finished", "true when nothing was fed because the run of --state-in has finished its epochs"},
    {"stopped", "true when --time, --batches, an interrupt or an error ended the run"},
    {"error, exit_status", "only when an error ended the run after its first batch"},
    {"cut_steps", "of a simulated device, steps that the run's end cut short or left out"},
    {"trace_spans_lost", "spans that did not fit into the trace's rings"},
    {"config", "every option's value; in resolved, the values chosen automatically"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace feed mnist/ --shuffle --epochs 3 --transform "
     "'cast(f32),scale(1/255),normalize(0.1307,0.3081)'",
     "MNIST, prepared as for training"},
    {"millrace feed synthetic:n=1e6,shape=1024,delay=2ms --workers 2 --time 5s", "hide 2 ms of "
                                                                                 "read latency "
                                                                                 "per sample"},
    {"millrace feed mnist/ --device sim:h2d=12,step=3ms --prefetch 1",
     "size a pipeline for a GPU that you don't have yet"},
    {"millrace feed mnist/ --shuffle --batches 500 --state-out run.json; millrace feed mnist/ "
     "--shuffle --state-in "
     "run.json",
     "stop, then resume"},
    {NULL, NULL},
};

const struct cli_command cli_feed = {
    .name = "feed",
    .summary = "Run the pipeline into a device and report its rates and bottleneck",
    .synopsis = "DATASET [options]",
    .text =
        "Reads samples in the sampler's order, decodes and transforms them into batches on "
        "worker threads, and copies the batches to a device, as a training loop would use them. "
        "Then reports the rates, where the workers spent their time, and the bottleneck. Ctrl-C "
        "ends the run cleanly: report, state and trace are written, and the exit status is 1. An "
        "error ends it too; the report then covers what was done until then.",
    .options = feed_options,
    .options_bytes = sizeof(struct feed_opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
