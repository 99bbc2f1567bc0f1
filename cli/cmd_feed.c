/* millrace feed: the main job. Options, tables and files; the run itself is feed.c. */
#include "feed.h"

#include <inttypes.h>
#include <string.h>

static const char *const tails[] = {"drop", "pad", NULL};
static const char *const collates[] = {"stack", "pad", "fixed", "ragged", NULL};
static const char *const policies[] = {"fail", "skip", "replace", NULL};
static const char *const storages[] = {"auto", "uring", "pread", NULL};
static const char *const caches[] = {"none", "host", NULL};

#define OPT(option, letter, kind, member, ...)                                                                         \
    {                                                                                                                  \
        .name = option, .key = letter, .type = kind, .offset = offsetof(struct feed_opts, member), __VA_ARGS__         \
    }

static const struct mr_option options[] = {
    OPT("batch-size", 'b', MR_OPT_UINT, batch_size, .initial = "64", .min = 1, .max = 1 << 24, .unit = "samples",
        .help = "Samples in a batch", .group = "Batches"),
    OPT("transform", 't', MR_OPT_STRING, transform, .meta = "CHAIN",
        .help = "Ops on each sample: 'cast(f32),scale(1/255),normalize(0.1307,0.3081)'; millrace inspect --transforms "
                "lists them",
        .group = "Batches"),
    OPT("collate", 0, MR_OPT_ENUM, collate, .initial = "stack", .choices = collates,
        .help = "How samples of varying shape become a batch: pad to the longest, to a fixed shape, or ragged",
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
    OPT("tail", 0, MR_OPT_ENUM, tail, .initial = "drop", .choices = tails,
        .help = "When the world does not divide the epoch: drop the rest, or pad from its start", .group = "Order"),

    OPT("workers", 'w', MR_OPT_UINT, workers, .initial = "0", .max = 512, .unit = "threads",
        .help = "Worker threads; 0: one a processor that this process may use", .group = "Pipeline"),
    OPT("prefetch", 'p', MR_OPT_UINT, prefetch, .initial = "0", .max = 1024, .unit = "batches",
        .help = "Batches made ahead: slots in the ring; 0: chosen, 4 to 64 by their size", .group = "Pipeline"),
    OPT("storage", 0, MR_OPT_ENUM, storage, .initial = "auto", .choices = storages,
        .help = "How files are read; auto: io_uring where the kernel gives it, else pread", .group = "Pipeline"),
    OPT("cache", 0, MR_OPT_ENUM, cache, .initial = "none", .choices = caches,
        .help = "host: keep files in memory once read", .group = "Pipeline"),
    OPT("read-ahead", 0, MR_OPT_UINT, read_ahead, .initial = "0", .max = 1 << 24, .unit = "samples",
        .help = "Samples read ahead of decoding; 0: chosen", .group = "Pipeline"),
    OPT("queue-depth", 0, MR_OPT_UINT, queue_depth, .initial = "0", .max = 65536, .unit = "reads",
        .help = "Reads in flight, all workers together; 0: chosen", .group = "Pipeline"),
    OPT("max-memory", 0, MR_OPT_BYTES, max_memory, .initial = "0",
        .help = "Ceiling for slots, read buffers and cache, host and device together; 0: none", .group = "Pipeline"),

    OPT("device", 'd', MR_OPT_STRING, device, .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, or sim:h2d=55,d2h=55,pageable=12,latency=10us,step=4ms,mem=16GiB", .group = "Device"),
    OPT("pin", 0, MR_OPT_FLAG, pin, .initial = "1", .help = "Page-locked slots; --no-pin shows what pageable ones cost",
        .group = "Device"),
    OPT("sink-ms", 0, MR_OPT_DOUBLE, sink_ms, .initial = "0", .max = 1e6, .unit = "ms",
        .help = "A consumer that takes this long a step; its utilization is reported as MLPerf Storage's AU",
        .group = "Device"),

    OPT("bad", 0, MR_OPT_ENUM, bad, .initial = "fail", .choices = policies,
        .help = "Samples that cannot be read or decoded: fail, skip, or replace by the next that decodes",
        .group = "Bad samples"),
    OPT("max-bad", 0, MR_OPT_STRING, max_bad, .meta = "N|P%", .help = "Most bad samples allowed: 10, or 1%",
        .group = "Bad samples"),
    OPT("quarantine", 0, MR_OPT_STRING, quarantine, .meta = "FILE",
        .help = "Write a line of JSON for each bad sample: file, offset, reason", .group = "Bad samples"),

    OPT("time", 0, MR_OPT_DURATION, time_ns, .initial = "0", .unit = "s", .help = "Stop after this long; 0: no limit",
        .group = "Run"),
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
        .help = "Write a trace of every stage and worker, for ui.perfetto.dev", .group = "Run"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

/* ---- results ---- */

static double ms(uint64_t ns)
{
    return (double)ns * 1e-6;
}

static double per_second(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static uint64_t taken(const struct mr_loader_stats *st, int stage)
{
    return st->stage_ns[stage];
}

static void json_percentiles(struct mr_json *json, const char *key, const struct mr_percentiles *p)
{
    mr_json_object(json, key);
    mr_json_uint(json, "n", p->n);
    mr_json_double(json, "p50_ms", ms(p->p50_ns));
    mr_json_double(json, "p95_ms", ms(p->p95_ns));
    mr_json_double(json, "p99_ms", ms(p->p99_ns));
    mr_json_double(json, "max_ms", ms(p->max_ns));
    mr_json_object_end(json);
}

static void json_stages(struct mr_json *json, const struct mr_loader_stats *st)
{
    mr_json_object(json, "stages");
    for (int s = 0; s < MR_N_STAGES; s++) {
        mr_json_object(json, mr_stage_name((enum mr_stage)s));
        mr_json_double(json, "ms", ms(taken(st, s)));
        mr_json_double(json, "share", percent(taken(st, s), st->worker_ns) / 100);
        mr_json_object_end(json);
    }
    mr_json_object_end(json);
    json_percentiles(json, "batch_interval", &st->interval);
    json_percentiles(json, "batch_wait", &st->wait);
    json_percentiles(json, "batch_make", &st->make);
    mr_json_double(json, "consumer_wait_ms", ms(st->consumer_wait_ns));
    mr_json_double(json, "ready_batches_mean", st->ready_mean);
    mr_json_uint(json, "reads", st->reads);
    mr_json_uint(json, "read_bytes", st->read_bytes);
    mr_json_double(json, "reads_in_flight_mean", st->reads_in_flight_mean);
}

static void json_overlap(struct mr_json *json, const struct mr_loader_stats *st)
{
    if (st->timed_batches == 0)
        return;
    mr_json_object(json, "overlap");
    mr_json_uint(json, "batches", st->timed_batches);
    mr_json_double(json, "copy_ms", ms(st->timed_copy_ns));
    mr_json_double(json, "step_ms", ms(st->timed_use_ns));
    mr_json_double(json, "both_ms", ms(st->timed_both_ns));
    mr_json_double(json, "copy_hidden", percent(st->timed_both_ns, st->timed_copy_ns) / 100);
    mr_json_object_end(json);
}

static void json_memory(struct mr_json *json, const struct feed_result *r)
{
    mr_json_object(json, "memory");
    mr_json_uint(json, "pageable_bytes", r->stats.pageable_bytes);
    mr_json_uint(json, "pinned_bytes", r->stats.pinned_bytes);
    mr_json_uint(json, "pinned_locked_bytes", r->memory[MR_PINNED].locked_bytes);
    mr_json_uint(json, "device_bytes", r->stats.device_bytes);
    mr_json_uint(json, "cache_bytes", r->stats.cache_bytes);
    mr_json_object_end(json);
}

static void json_bad(struct mr_json *json, const struct feed *feed)
{
    struct mr_bad_sample bad;
    mr_json_array(json, "quarantine");
    for (uint64_t i = 0; i < 100 && mr_loader_bad(feed->ld, i, &bad); i++) {
        mr_json_object(json, NULL);
        mr_json_uint(json, "index", bad.index);
        mr_json_string(json, "file", bad.file);
        mr_json_uint(json, "offset", bad.offset);
        mr_json_string(json, "reason", bad.reason);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

static void json_config(struct mr_json *json, const struct feed *feed)
{
    const struct mr_loader_stats *st = &feed->result.stats;
    mr_json_object(json, "config");
    mr_options_json(options, feed->opts, json);
    mr_json_object(json, "resolved");
    mr_json_string(json, "dataset", mr_dataset_text(feed->ds));
    mr_json_string(json, "sampler", mr_sampler_text(feed->sampler));
    mr_json_string(json, "transform", feed->chain ? mr_transform_text(feed->chain) : NULL);
    mr_json_string(json, "device", feed->result.device.name);
    mr_json_string(json, "storage", st->storage);
    mr_json_uint(json, "workers", st->workers);
    mr_json_uint(json, "prefetch", st->prefetch);
    mr_json_uint(json, "read_ahead", st->read_ahead);
    mr_json_uint(json, "queue_depth", st->queue_depth);
    mr_json_object_end(json);
    mr_json_object_end(json);
}

static int print_json(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    const struct mr_loader_stats *st = &r->stats;
    struct mr_json *json = cli_json_begin("feed");
    if (!json)
        return CLI_FAILED;
    mr_json_uint(json, "samples", st->samples);
    mr_json_uint(json, "batches", st->batches);
    mr_json_uint(json, "bytes", st->bytes);
    mr_json_double(json, "seconds", r->seconds);
    mr_json_double(json, "samples_per_s", per_second((double)st->samples, r->seconds));
    mr_json_double(json, "gb_per_s", per_second((double)st->bytes * 1e-9, r->seconds));
    mr_json_double(json, "first_batch_ms", ms(st->first_batch_ns));
    if (r->utilization >= 0)
        mr_json_double(json, "utilization", r->utilization);
    else
        mr_json_null(json, "utilization");
    char hex[33];
    feed_digest_format(&r->digest, hex);
    mr_json_string(json, "digest", feed->opts->digest || feed->opts->digest_from ? hex : NULL);
    mr_json_string(json, "bottleneck", st->bottleneck);
    mr_json_string(json, "bottleneck_reason", st->reason);
    mr_json_uint(json, "bad_samples", st->bad_samples);
    json_bad(json, feed);
    json_stages(json, st);
    json_overlap(json, st);
    json_memory(json, r);
    mr_json_bool(json, "stopped", r->stopped);
    mr_json_uint(json, "trace_spans_lost", r->lost_spans);
    json_config(json, feed);
    return cli_json_end(json);
}

static void print_head(const struct feed *feed)
{
    const struct mr_loader_stats *st = &feed->result.stats;
    char in[160], out[160], n[CLI_HUMAN];
    printf("%s: %s samples\n", mr_dataset_text(feed->ds), cli_count((double)mr_dataset_length(feed->ds), n));
    for (int f = 0; f < mr_dataset_fields(feed->ds); f++) {
        mr_spec_format(mr_dataset_field(feed->ds, f), in, sizeof in);
        mr_spec_format(mr_loader_field(feed->ld, f), out, sizeof out);
        printf("  %s%s%s\n", in, strcmp(in, out) == 0 ? "" : " -> ", strcmp(in, out) == 0 ? "" : out);
    }
    printf("  order %s, batches of %" PRIu64 ", %u worker%s, prefetch %u, read from %s, device %s\n\n",
           mr_sampler_text(feed->sampler), feed->opts->batch_size, st->workers, st->workers == 1 ? "" : "s",
           st->prefetch, st->storage, feed->result.device.name);
}

static void print_rates(const struct feed_result *r)
{
    const struct mr_loader_stats *st = &r->stats;
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN], d[CLI_HUMAN];
    printf("%s samples in %.3f s: %s samples/s, %s%s\n", cli_count((double)st->samples, a), r->seconds,
           cli_count(per_second((double)st->samples, r->seconds), b),
           cli_rate(per_second((double)st->bytes, r->seconds), c), r->stopped ? " (stopped before the end)" : "");
    printf("first batch after %s; from batch to batch: p50 %s, p95 %s, p99 %s\n\n", cli_time(st->first_batch_ns, a),
           cli_time(st->interval.p50_ns, b), cli_time(st->interval.p95_ns, c), cli_time(st->interval.p99_ns, d));
}

static void print_stages(const struct mr_loader_stats *st)
{
    static const char *const what[MR_N_STAGES] = {
        [MR_STAGE_READ] = "reads: order, starting and waiting for them",
        [MR_STAGE_DECODE] = "bytes to tensors",
        [MR_STAGE_TRANSFORM] = "the chain, writing the batch's rows",
        [MR_STAGE_COLLATE] = "completing batches, starting copies",
        [MR_STAGE_SLOT] = "waiting for a free slot: the consumer sets the pace",
    };
    char time[CLI_HUMAN];
    struct cli_table *table = cli_table_create("workers\t>time\t>share\twhat");
    uint64_t sum = 0;
    for (int s = 0; s < MR_N_STAGES; s++) {
        sum += taken(st, s);
        cli_table_row(table, "%s\t%s\t%.1f%%\t%s", mr_stage_name((enum mr_stage)s), cli_time(taken(st, s), time),
                      percent(taken(st, s), st->worker_ns), what[s]);
    }
    uint64_t rest = st->worker_ns > sum ? st->worker_ns - sum : 0;
    cli_table_row(table, "rest\t%s\t%.1f%%\tnot accounted for: start, scheduling", cli_time(rest, time),
                  percent(rest, st->worker_ns));
    cli_table_print(table, stdout, 2);
}

static void print_consumer(const struct feed_result *r)
{
    const struct mr_loader_stats *st = &r->stats;
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN], d[CLI_HUMAN];
    printf("\n  consumer waited %s in %" PRIu64 " batches (p50 %s, p99 %s); ready ahead: %.1f batches\n",
           cli_time(st->consumer_wait_ns, a), st->batches, cli_time(st->wait.p50_ns, b), cli_time(st->wait.p99_ns, c),
           st->ready_mean);
    if (st->timed_batches > 0)
        printf("  device: copies %s, steps %s, both at once %s: %.0f%% of the copying was hidden under steps\n",
               cli_time(st->timed_copy_ns, a), cli_time(st->timed_use_ns, b), cli_time(st->timed_both_ns, c),
               percent(st->timed_both_ns, st->timed_copy_ns));
    if (st->reads > 0)
        printf("  storage %s: %s reads, %s, %.1f in flight\n", st->storage, cli_count((double)st->reads, a),
               cli_bytes(st->read_bytes, b), st->reads_in_flight_mean);
    printf("  memory: pageable %s, pinned %s, device %s, cache %s\n", cli_bytes(st->pageable_bytes, a),
           cli_bytes(st->pinned_bytes, b), cli_bytes(st->device_bytes, c), cli_bytes(st->cache_bytes, d));
    if (r->utilization >= 0)
        printf("  utilization %.1f%% (steps of %s over the time from the first step's end)\n", 100 * r->utilization,
               cli_time(r->step_ns, a));
}

static void print_bad(const struct feed *feed)
{
    struct mr_bad_sample bad;
    if (feed->result.stats.bad_samples == 0)
        return;
    printf("\n  %" PRIu64 " bad samples:\n", feed->result.stats.bad_samples);
    for (uint64_t i = 0; i < 10 && mr_loader_bad(feed->ld, i, &bad); i++)
        printf("    sample %" PRIu64 " (%s at %" PRIu64 "): %s\n", bad.index, bad.file, bad.offset, bad.reason);
    if (feed->result.stats.bad_samples > 10)
        printf("    ... --quarantine FILE lists all\n");
}

static int print_text(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    print_head(feed);
    print_rates(r);
    print_stages(&r->stats);
    print_consumer(r);
    print_bad(feed);
    printf("\nbottleneck: %s: %s\n", r->stats.bottleneck, r->stats.reason);
    if (feed->opts->digest || feed->opts->digest_from) {
        char hex[33];
        feed_digest_format(&r->digest, hex);
        printf("digest: %s\n", hex);
    }
    return CLI_OK;
}

/* ---- files ---- */

static int write_quarantine(const struct feed *feed)
{
    struct cli_output out;
    struct mr_bad_sample bad;
    int rc = cli_output_open(&out, feed->opts->quarantine, true, false);
    for (uint64_t i = 0; rc == CLI_OK && mr_loader_bad(feed->ld, i, &bad); i++) {
        const char *text = NULL;
        struct mr_json *json = mr_json_create(0);
        if (!json) {
            rc = cli_fail("quarantine: no memory");
            break;
        }
        mr_json_object(json, NULL);
        mr_json_string(json, "file", bad.file);
        mr_json_uint(json, "offset", bad.offset);
        mr_json_uint(json, "index", bad.index);
        mr_json_uint(json, "epoch", bad.epoch);
        mr_json_uint(json, "position", bad.position);
        mr_json_string(json, "reason", bad.reason);
        mr_json_object_end(json);
        int64_t n = mr_json_finish(json, &text);
        rc = n < 0 ? cli_error((int)n) : cli_output_write(&out, text, (size_t)n);
        if (rc == CLI_OK)
            rc = cli_output_write(&out, "\n", 1);
        mr_json_destroy(json);
    }
    if (rc == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return rc;
}

static int write_state(const struct feed *feed)
{
    struct cli_output out;
    int rc = cli_output_open(&out, feed->opts->state_out, true, false);
    if (rc == CLI_OK)
        rc = cli_output_write(&out, feed->result.state, strlen(feed->result.state));
    if (rc == CLI_OK)
        rc = cli_output_write(&out, "\n", 1);
    if (rc == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return rc;
}

/* ---- the command ---- */

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

static volatile int interrupted;

static void tick_and_look(void *progress, uint64_t samples)
{
    tick(progress, samples);
    interrupted = cli_interrupted();
}

static int feed_and_report(struct feed *feed, const char *dataset, const struct feed_opts *opts)
{
    int rc = feed_open(feed, dataset, opts);
    if (rc < 0)
        return cli_error(rc);
    struct cli_progress progress;
    cli_catch_interrupts();
    cli_progress_begin(&progress, "feed", expected_samples(feed), "samples");
    rc = feed_run(feed, &interrupted, tick_and_look, &progress);
    cli_progress_end(&progress);
    int failed = rc < 0 ? cli_error(rc) : CLI_OK;
    if (opts->trace && failed == CLI_OK) {
        rc = mr_trace_stop(opts->trace, &feed->result.lost_spans);
        failed = rc < 0 ? cli_error(rc) : CLI_OK;
        if (feed->result.lost_spans)
            cli_warn("%s: the oldest %" PRIu64 " spans did not fit", opts->trace, feed->result.lost_spans);
    }
    if (opts->quarantine && write_quarantine(feed) != CLI_OK)
        failed = CLI_FAILED;
    if (failed == CLI_OK && opts->state_out)
        failed = write_state(feed);
    if (failed != CLI_OK)
        return failed;
    return cli.json ? print_json(feed) : print_text(feed);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    const struct feed_opts *opts = values;
    struct feed feed;
    int rc = opts->trace ? mr_trace_start(0) : 0;
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
    {"reads, read_bytes, reads_in_flight_mean", "of the storage"},
    {"overlap", "on devices with copies: batches timed, copy_ms, step_ms, both_ms, and copy_hidden from 0 to 1"},
    {"memory", "pageable_bytes, pinned_bytes, pinned_locked_bytes, device_bytes, cache_bytes"},
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
    {"millrace feed mnist/ --shuffle --time 1s --state-out run.json; millrace feed mnist/ --shuffle --state-in "
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
        "was spent, and what the bottleneck is.\n\nDATASET is a path or URI with an optional format in front: mnist/, "
        "idx:FILE, npy:FILE, raw:FILE,shape=3x32x32, synthetic:n=1e6,shape=1024. millrace inspect --formats lists them "
        "with their options.",
    .options = options,
    .options_bytes = sizeof(struct feed_opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
