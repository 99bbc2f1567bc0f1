/* millrace feed: the main job. Its options; the run itself is feed.c, what is printed feed_report.c. */
#include "feed/feed.h"

#include <inttypes.h>
#include <string.h>

static const char *const remainders[] = {"drop", "pad", NULL};
static const char *const collates[] = {"stack", "pad", "fixed", "ragged", NULL};
static const char *const policies[] = {"fail", "skip", "replace", NULL};
static const char *const storages[] = {"auto", "uring", "pread", "gds", NULL};
static const char *const caches[] = {"none", "host", "device", NULL};
static const char *const device_transforms[] = {"off", "on", "auto", NULL}; /* as enum mr_device_transforms */

#define OPT(option, letter, kind, member, ...)                                                                         \
    {                                                                                                                  \
        .name = option, .key = letter, .type = kind, .offset = offsetof(struct feed_opts, member), __VA_ARGS__         \
    }

const struct mr_option feed_options[] = {
    OPT("batch-size", 'b', MR_OPT_UINT, batch_size, .initial = "64", .min = 1, .max = 1 << 24, .unit = "samples",
        .help = "Samples in a batch", .group = "Batches"),
    OPT("transform", 't', MR_OPT_STRING, transform, .meta = "CHAIN",
        .help = "Ops on each sample: 'cast(f32),scale(1/255),normalize(0.1307,0.3081)'; millrace inspect --transforms "
                "lists them",
        .group = "Batches"),
    OPT("collate", 0, MR_OPT_ENUM, collate, .initial = "stack", .choices = collates,
        .help = "How samples of varying shape become a batch: pad to the longest of the batch, fixed: to the largest "
                "that the data set declares, ragged: values end to end and offsets",
        .group = "Batches"),
    OPT("pad-value", 0, MR_OPT_DOUBLE, pad_value, .initial = "0", .help = "What padding is filled with",
        .group = "Batches"),
    OPT("drop-last", 0, MR_OPT_FLAG, drop_last, .help = "Leave out an epoch's last batch when it is not full",
        .group = "Batches"),

    OPT("shuffle", 's', MR_OPT_FLAG, shuffle, .help = "Another random order each epoch, in O(1) memory",
        .group = "Order"),
    OPT("sampler", 0, MR_OPT_STRING, sampler, .meta = "SAMPLER",
        .help = "sequential, random, subset:FILE[,shuffle], weighted:FILE[,replacement=0][,n=N]", .group = "Order"),
    OPT("seed", 0, MR_OPT_UINT, seed, .initial = "0", .help = "Selects the order and the random transforms",
        .group = "Order"),
    OPT("epochs", 'e', MR_OPT_UINT, epochs, .initial = "0", .meta = "N", .unit = "epochs",
        .help = "How often to go over the data; 0: once, or without end with --time", .group = "Order"),
    OPT("rank", 0, MR_OPT_UINT, rank, .initial = "0", .max = 1 << 20, .help = "This process among --world",
        .group = "Order"),
    OPT("world", 0, MR_OPT_UINT, world, .initial = "1", .min = 1, .max = 1 << 20, .unit = "processes",
        .help = "Processes that share the order: rank r takes positions r, r + world, ...", .group = "Order"),
    OPT("remainder", 0, MR_OPT_ENUM, remainder, .initial = "drop", .choices = remainders,
        .help = "When the world does not divide the epoch: drop the rest, or pad from its start", .group = "Order"),

    OPT("workers", 'w', MR_OPT_UINT, workers, .initial = "0", .max = 512, .unit = "threads",
        .help = "Worker threads; 0: one a processor that this process may use", .group = "Pipeline"),
    OPT("prefetch", 'p', MR_OPT_UINT, prefetch, .initial = "0", .max = 1024, .unit = "batches",
        .help = "Batches made ahead: slots in the ring; 0: chosen, 4 to 64 by their size", .group = "Pipeline"),
    OPT("storage", 0, MR_OPT_ENUM, storage, .initial = "auto", .choices = storages,
        .help = "How files are read; auto: io_uring where the kernel gives it, else pread; gds: plain samples straight "
                "into a "
                "GPU's memory by cuFile, all else as by auto",
        .group = "Pipeline"),
    OPT("direct", 0, MR_OPT_FLAG, direct, .help = "Read files past the page cache, where their file system can",
        .group = "Pipeline"),
    OPT("cache", 0, MR_OPT_ENUM, cache, .initial = "none", .choices = caches,
        .help =
            "host: keep files in memory once read; device: keep all samples on the device, and gather batches there",
        .group = "Pipeline"),
    OPT("read-ahead", 0, MR_OPT_UINT, read_ahead, .initial = "0", .max = 1 << 24, .unit = "samples",
        .help = "Samples read ahead of decoding; 0: chosen", .group = "Pipeline"),
    OPT("queue-depth", 0, MR_OPT_UINT, queue_depth, .initial = "0", .max = 65536, .unit = "reads",
        .help = "Reads in flight, all workers together; 0: chosen", .group = "Pipeline"),
    OPT("max-memory", 0, MR_OPT_BYTES, max_memory, .initial = "0",
        .help = "Ceiling for slots, read buffers and cache, host and device together; 0: none", .group = "Pipeline"),

    OPT("cache-dir", 0, MR_OPT_STRING, cache_dir, .meta = "DIR",
        .help = "Keep what is read by http or s3 in this folder, for this run and others at the same time; 'default': "
                "$XDG_CACHE_HOME/millrace; not given: $MILLRACE_CACHE_DIR, else nowhere",
        .group = "Remote data"),
    OPT("cache-limit", 0, MR_OPT_BYTES, cache_limit, .initial = "0",
        .help =
            "Bytes that the folder may hold: what was not used for longest goes first; 0: $MILLRACE_CACHE_LIMIT, else "
            "16 GiB",
        .group = "Remote data"),
    OPT("retries", 0, MR_OPT_UINT, retries, .initial = "5", .max = 100, .unit = "tries",
        .help = "How often a request that failed is tried again, after random waits that double",
        .group = "Remote data"),
    OPT("stall-timeout", 0, MR_OPT_DURATION, stall_ns, .initial = "30", .min = 1000000, .max = 86400000000000,
        .unit = "s", .help = "A request that brings less than 1 KiB/s for this long is tried again",
        .group = "Remote data"),

    OPT("device", 'd', MR_OPT_STRING, device, .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda, cuda:1, or sim:h2d=55,d2h=55,peer=100,pageable=12,latency=10us,step=4ms,mem=16GiB",
        .group = "Device"),
    OPT("pin", 0, MR_OPT_FLAG, pin, .initial = "1", .help = "Pageable slots, to see what page-locked ones save",
        .group = "Device"),
    OPT("blocking", 0, MR_OPT_FLAG, blocking, .help = "Workers wait for each copy; shows what that costs",
        .group = "Device"),
    OPT("streams", 0, MR_OPT_UINT, streams, .initial = "1", .min = 1, .max = 16, .unit = "streams",
        .help = "Streams that copies take turns on", .group = "Device"),
    OPT("device-transforms", 0, MR_OPT_ENUM, device_transforms, .initial = "auto", .choices = device_transforms,
        .help = "The end of a chain (cast, scale, normalize, layout, hflip, one_hot) on the device, where that copies "
                "fewer bytes; same bits either way. auto: on GPUs, not on sim, whose kernels this host would run",
        .group = "Device"),
    OPT("gpu-decode", 0, MR_OPT_STRING, gpu_decode, .initial = "off", .meta = "off|on|auto|FRACTION",
        .help =
            "JPEG on the GPU by nvJPEG: the share of the pictures, chosen by seed, epoch and index; the host decodes "
            "the rest, and what nvJPEG does not take. Pixels differ a little from the host's. auto: by the rates of "
            "both, measured at the start, which differ from run to run",
        .group = "Device"),
    OPT("sink-ms", 0, MR_OPT_DOUBLE, sink_ms, .initial = "0", .max = 1e6, .unit = "ms",
        .help = "A consumer that takes this long a step; its utilization is reported as MLPerf Storage's AU",
        .group = "Device"),

    OPT("bad", 0, MR_OPT_ENUM, bad, .initial = "fail", .choices = policies,
        .help = "Samples that cannot be read or decoded: fail, skip, or replace by the next that decodes. Of a picture "
                "only "
                "what the crop needs is looked at: damage elsewhere goes unseen (inspect --scan N sees it)",
        .group = "Bad samples"),
    OPT("max-bad", 0, MR_OPT_STRING, max_bad, .meta = "N|P%", .help = "Most bad samples allowed: 10, or 1%",
        .group = "Bad samples"),
    OPT("quarantine", 0, MR_OPT_STRING, quarantine, .meta = "FILE",
        .help = "Write a line of JSON for each bad sample: file, offset, reason; without any there is no file, and one "
                "of a run before is removed",
        .group = "Bad samples"),

    OPT("time", 0, MR_OPT_DURATION, time_ns, .initial = "0", .unit = "s",
        .help = "Stop after this long; a bare number is seconds; 0: no limit", .group = "Run"),
    OPT("batches", 0, MR_OPT_UINT, batches, .initial = "0", .unit = "batches",
        .help = "Stop after this many batches; 0: no limit", .group = "Run"),
    OPT("digest", 0, MR_OPT_FLAG, digest,
        .help = "Print a digest of every batch's bytes and order, as the device holds them, to compare runs",
        .group = "Run"),
    OPT("digest-from", 0, MR_OPT_STRING, digest_from, .meta = "HEX",
        .help = "Add to this digest: another rank's, or of the part before a resume", .group = "Run"),
    OPT("state-out", 0, MR_OPT_STRING, state_out, .meta = "FILE", .help = "Write the state at the end, to go on from",
        .group = "Run"),
    OPT("state-in", 0, MR_OPT_STRING, state_in, .meta = "FILE", .help = "Go on from a state", .group = "Run"),
    OPT("trace", 0, MR_OPT_STRING, trace, .meta = "FILE",
        .help = "Write a trace of every stage and worker, for ui.perfetto.dev (its binary format)", .group = "Run"),
    OPT("force", 'f', MR_OPT_FLAG, force,
        .help = "Let --quarantine, --state-out and --trace replace a file that is no earlier one of theirs",
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
    uint64_t epoch = mr_loader_samples(feed->ld), epochs = o->epochs ? o->epochs : 1;
    if (o->batches)
        return o->batches * o->batch_size;
    return o->time_ns || epochs > UINT64_MAX / epoch ? 0 : epochs * epoch;
}

static int report(const struct feed *feed)
{
    return cli.json ? feed_print_json(feed) : feed_print_text(feed);
}

static int feed_and_report(struct feed *feed, const char *dataset, const struct feed_opts *opts)
{
    int rc = feed_open(feed, dataset, opts);
    if (rc < 0)
        return cli_error(rc);
    if (cli_input_dataset(dataset, feed->ds) != CLI_OK)
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
            cli_warn("%s: the oldest %" PRIu64 " spans did not fit", opts->trace, feed->result.lost_spans);
    }
    if (opts->quarantine && feed_write_quarantine(feed) != CLI_OK)
        failed = CLI_FAILED;
    if (failed == CLI_OK && opts->state_out)
        failed = feed_write_state(feed);
    if (failed != CLI_OK)
        return failed;
    feed->result.finished = feed->result.stats.samples == 0 && opts->state_in && !feed->result.stopped;
    if (feed->result.finished)
        cli_warn("%s: the run that it is of has done its epochs: there is nothing left to feed; raise --epochs, which "
                 "counts from that run's start, or leave out --state-in",
                 opts->state_in);
    failed = cli_interrupted() ? CLI_FAILED : CLI_OK;
    return report(feed) == CLI_OK ? failed : CLI_FAILED;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    const struct feed_opts *opts = values;
    struct feed feed;
    int rc = feed_check_files(opts);
    if (rc != CLI_OK)
        return rc;
    rc = opts->trace ? mr_trace_start(0) : 0;
    if (rc < 0)
        return cli_error(rc);
    mr_trace_thread("consumer");
    rc = feed_and_report(&feed, args[0], opts);
    feed_close(&feed);
    if (mr_trace_on())
        mr_trace_stop(NULL, NULL);
    return rc;
}

static const struct cli_note json_notes[] = {
    {"samples, batches, bytes", "delivered"},
    {"seconds", "from opening the loader to the end of the consumer's last step"},
    {"samples_per_s, gb_per_s", "samples and 10^9 bytes delivered, over seconds"},
    {"first_batch_ms", "from opening the loader to the first batch handed out"},
    {"warm_samples_per_s", "from the first batch on; null when there was no other"},
    {"utilization",
     "with --sink-ms or a device's step: steps' time over the time from the first step's end; else null"},
    {"digest", "32 hex digits with --digest, else null"},
    {"bottleneck, bottleneck_reason",
     "consumer, read, decode, transform, collate, copy, prefetch or none; the figures"},
    {"bad_samples, quarantine", "how many, and the first 100: index, file, offset, reason"},
    {"stages", "for each stage of the workers: ms, and share of the workers' time"},
    {"batch_interval, batch_wait, batch_make",
     "n, p50_ms, p95_ms, p99_ms, max_ms: from batch to batch, waiting for one, "
     "from its first sample's claim to ready"},
    {"consumer_wait_ms, ready_batches_mean", "time spent waiting for batches; batches that stood ready, mean"},
    {"reads, read_bytes, reads_in_flight_mean, read_latency_ms", "of the storage"},
    {"gds", "with --storage gds, the fields that it reads and how, or why none; else null"},
    {"direct_refused", "with --direct, a file whose file system refused it, else null"},
    {"overlap", "on devices with copies: batches timed, copy_ms, step_ms, both_ms, and copy_hidden from 0 to 1"},
    {"memory", "pageable_bytes, pinned_bytes, pinned_locked_bytes, device_bytes, cache_bytes"},
    {"remote",
     "of http and s3, null when there was none: requests, retries, bytes from the network; of the disk cache: "
     "cache_hits, cache_bytes, cache_stored_bytes, cache_damaged, cache_errors"},
    {"copied_bytes, transform_on_device", "bytes copied to the device; the ops of each field that ran there, or null"},
    {"gpu_decode",
     "null without --gpu-decode: fraction, decoded, refused; with auto cpu_rate and gpu_rate in pictures/s, why_not"},
    {"finished", "true when nothing was fed because --state-in is of a run that has done its epochs"},
    {"stopped", "true when --time, --batches or an interrupt ended the run"},
    {"trace_spans_lost", "spans that did not fit into the trace's rings"},
    {"config", "every option as it stands, and in resolved what was chosen"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace feed mnist/ --shuffle --epochs 3 --transform 'cast(f32),scale(1/255),normalize(0.1307,0.3081)'",
     "MNIST as its users train on it"},
    {"millrace feed synthetic:n=1e6,shape=1024,delay=2ms --workers 2 --time 5s", "2 ms of latency a sample, hidden"},
    {"millrace feed mnist/ --device sim:h2d=12,step=3ms --prefetch 1",
     "size a pipeline for a GPU that is not there yet"},
    {"millrace feed mnist/ --shuffle --batches 500 --state-out run.json; millrace feed mnist/ --shuffle --state-in "
     "run.json",
     "stop and go on"},
    {NULL, NULL},
};

const struct cli_command cli_feed = {
    .name = "feed",
    .summary = "Run the pipeline into a device and say what sets its pace",
    .synopsis = "DATASET [options]",
    .text =
        "Reads samples in the sampler's order, decodes and transforms them on worker threads into batches, and ships "
        "the "
        "batches to a device, as a training loop would take them. Then tells how fast that went, where the workers' "
        "time "
        "was spent, and what the bottleneck is. An interrupt (Ctrl-C) ends the run in order: report, state and "
        "trace are written, and the exit status is 1.",
    .options = feed_options,
    .options_bytes = sizeof(struct feed_opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
