/* What a run of feed came to, as text and as JSON. */
#include "feed/feed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    mr_json_double(json, "read_latency_ms", ms(st->read_latency_ns));
    mr_json_string(json, "gds", st->gds[0] ? st->gds : NULL);
    mr_json_string(json, "direct_refused", st->direct_refused);
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
    struct mr_bad_sample bad = {.size = sizeof bad};
    mr_json_array(json, "quarantine");
    for (uint64_t i = 0; i < 100 && mr_loader_bad(feed->pipe.loader, i, &bad); i++) {
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
    mr_options_json(cli_options(feed_options), feed->opts, json);
    mr_json_object(json, "resolved");
    mr_json_string(json, "dataset", mr_dataset_text(feed->pipe.ds));
    mr_json_string(json, "sampler", mr_sampler_text(feed->pipe.sampler));
    mr_json_string(json, "transform",
                   feed->pipe.chain ? mr_transform_text(feed->pipe.chain) : NULL);
    mr_json_string(json, "device", feed->pipe.info.name);
    mr_json_string(json, "storage", st->storage);
    mr_json_uint(json, "workers", st->workers);
    mr_json_uint(json, "prefetch", st->prefetch);
    mr_json_uint(json, "read_ahead", st->read_ahead);
    mr_json_uint(json, "queue_depth", st->queue_depth);
    mr_json_object_end(json);
    mr_json_object_end(json);
}

static void json_gpu_decode(struct mr_json *json, const struct feed *feed)
{
    const struct mr_loader_stats *st = &feed->result.stats;
    if (feed->opts->loader.gpu_decode == 0) {
        mr_json_null(json, "gpu_decode");
        return;
    }
    mr_json_object(json, "gpu_decode");
    mr_json_double(json, "fraction", st->gpu_decode);
    mr_json_uint(json, "decoded", st->gpu_decoded);
    mr_json_uint(json, "refused", st->gpu_refused);
    mr_json_double(json, "cpu_rate", st->cpu_decode_rate);
    mr_json_double(json, "gpu_rate", st->gpu_decode_rate);
    mr_json_string(json, "why_not", st->gpu_why_not[0] ? st->gpu_why_not : NULL);
    mr_json_object_end(json);
}

/* Samples a second in the steady state; 0: no batch was made after the first was handed out. */
static double warm_rate(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    if (feed->opts->warmup_ns)
        return r->warm_samples ? per_second((double)r->warm_samples,
                                            (double)(r->warm_end_ns - r->warm_from_ns) * 1e-9)
                               : 0;
    return per_second((double)r->stats.warm_samples, (double)r->stats.warm_ns * 1e-9);
}

int feed_print_json(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    const struct mr_loader_stats *st = &r->stats;
    struct mr_json *json = cli_json_begin(feed->opts->until_tuned ? "tune" : "feed");
    if (!json)
        return CLI_FAILED;
    mr_json_uint(json, "samples", st->samples);
    mr_json_uint(json, "batches", st->batches);
    mr_json_uint(json, "bytes", st->bytes);
    mr_json_double(json, "seconds", r->seconds);
    mr_json_double(json, "samples_per_s", per_second((double)st->samples, r->seconds));
    mr_json_double(json, "gb_per_s", per_second((double)st->bytes * 1e-9, r->seconds));
    mr_json_double(json, "first_batch_ms", ms(st->first_batch_ns));
    mr_json_double(json, "start_ms", ms(feed->pipe.start_ns - cli_began_ns() + st->first_batch_ns));
    mr_json_double(json, "device_open_ms", ms(feed->pipe.device_ns));
    if (warm_rate(feed) > 0)
        mr_json_double(json, "warm_samples_per_s", warm_rate(feed));
    else
        mr_json_null(json, "warm_samples_per_s");
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
    feed_json_remote(json);
    mr_json_uint(json, "copied_bytes", st->copied_bytes);
    mr_json_string(json, "transform_on_device", st->device_ops[0] ? st->device_ops : NULL);
    json_gpu_decode(json, feed);
    cli_tuning_json(json, feed_tuning(feed), st);
    mr_json_bool(json, "finished", r->finished);
    mr_json_bool(json, "stopped", r->stopped);
    mr_json_uint(json, "cut_steps", r->cut_steps);
    mr_json_uint(json, "trace_spans_lost", r->lost_spans);
    json_config(json, feed);
    if (r->failed != CLI_OK)
        mr_json_int(json, "exit_status", r->failed);
    return cli_json_end(json);
}

static void print_gpu_decode(const struct mr_loader_stats *st)
{
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN];
    if (st->gpu_why_not[0])
        printf("  JPEG decoded on the device: none: %s\n", st->gpu_why_not);
    if (st->gpu_decode <= 0 && st->gpu_decode_rate <= 0)
        return;
    printf("  JPEG decoded on the device: %s pictures, a share of %.3f; it refused %s",
           cli_count((double)st->gpu_decoded, a), st->gpu_decode,
           cli_count((double)st->gpu_refused, b));
    if (st->gpu_decode_rate > 0)
        printf("; measured: device %s/s", cli_count(st->gpu_decode_rate, c));
    if (st->gpu_decode_rate > 0)
        printf(", host %s/s", cli_count(st->cpu_decode_rate, c));
    printf("\n");
}

/* The data set's field that batch field k is made of; -1: an op or collation adds it. */
static int source_of(const struct feed *feed, int k)
{
    if (feed->pipe.chain)
        return mr_transform_source(feed->pipe.chain, k);
    return k < mr_dataset_fields(feed->pipe.ds) ? k : -1;
}

/* What batch fields are made of a field of the data set. */
static void print_field(const struct feed *feed, int f)
{
    char in[160], out[160];
    const struct mr_spec *spec;
    int n = 0;
    mr_spec_format(mr_dataset_field(feed->pipe.ds, f), in, sizeof in);
    for (int k = 0; (spec = mr_loader_field(feed->pipe.loader, k)); k++) {
        if (source_of(feed, k) != f)
            continue;
        mr_spec_format(spec, out, sizeof out);
        bool same = strcmp(in, out) == 0;
        printf("  %s%s%s\n", mr_text_printable(in), same ? "" : " -> ",
               same ? "" : mr_text_printable(out));
        n++;
    }
    if (n == 0)
        printf("  %s -> dropped\n", mr_text_printable(in));
}

static void print_fields(const struct feed *feed)
{
    char out[160];
    const struct mr_spec *spec;
    for (int f = 0; f < mr_dataset_fields(feed->pipe.ds); f++)
        print_field(feed, f);
    for (int k = 0; (spec = mr_loader_field(feed->pipe.loader, k)); k++) {
        mr_spec_format(spec, out, sizeof out);
        if (source_of(feed, k) < 0)
            printf("  added: %s\n", mr_text_printable(out));
    }
}

static void print_head(const struct feed *feed)
{
    const struct mr_loader_stats *st = &feed->result.stats;
    char n[CLI_HUMAN], text[CLI_CLEAN];
    uint64_t length = mr_dataset_length(feed->pipe.ds);
    printf("%s: %s sample%s\n", cli_clean(mr_dataset_text(feed->pipe.ds), text),
           length == MR_UNKNOWN ? "an unknown number of" : cli_count((double)length, n),
           cli_s(length));
    print_fields(feed);
    printf("  order %s, batches of %" PRIu64
           ", %u worker%s, prefetch %u, read from %s, device %s\n\n",
           mr_sampler_text(feed->pipe.sampler), feed->opts->loader.batch_size, st->workers,
           cli_s(st->workers), st->prefetch, st->storage, feed->pipe.info.name);
}

static void print_rates(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    const struct mr_loader_stats *st = &r->stats;
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN], d[CLI_HUMAN];
    printf("%s sample%s in %.3f s: %s samples/s, %s%s\n", cli_count((double)st->samples, a),
           cli_s(st->samples), r->seconds,
           cli_count(per_second((double)st->samples, r->seconds), b),
           cli_rate(per_second((double)st->bytes, r->seconds), c),
           r->stopped ? " (stopped before the end)" : "");
    printf("first batch after %s", cli_time(st->first_batch_ns, a));
    if (warm_rate(feed) > 0)
        printf(", then %s samples/s", cli_count(warm_rate(feed), a));
    printf("; from batch to batch: p50 %s, p95 %s, p99 %s\n\n", cli_time(st->interval.p50_ns, b),
           cli_time(st->interval.p95_ns, c), cli_time(st->interval.p99_ns, d));
}

static void print_stages(const struct mr_loader_stats *st)
{
    static const char *const what[MR_N_STAGES] = {
        [MR_STAGE_READ] = "reads: order, starting and waiting for them",
        [MR_STAGE_DECODE] = "bytes to tensors",
        [MR_STAGE_TRANSFORM] = "the chain (of pictures: decoding, too), writing the batch's rows",
        [MR_STAGE_COLLATE] = "completing batches, starting copies",
        [MR_STAGE_SLOT] = "waiting for a free slot: the consumer sets the pace",
    };
    char time[CLI_HUMAN];
    struct cli_table *table = cli_table_create("workers\t>time\t>share\twhat");
    uint64_t sum = 0;
    for (int s = 0; s < MR_N_STAGES; s++) {
        sum += taken(st, s);
        cli_table_row(table, "%s\t%s\t%.1f%%\t%s", mr_stage_name((enum mr_stage)s),
                      cli_time(taken(st, s), time), percent(taken(st, s), st->worker_ns), what[s]);
    }
    uint64_t rest = st->worker_ns > sum ? st->worker_ns - sum : 0;
    cli_table_row(table, "rest\t%s\t%.1f%%\tnot accounted for: start, scheduling",
                  cli_time(rest, time), percent(rest, st->worker_ns));
    cli_table_print(table, stdout, 2);
}

static void print_consumer(const struct feed_result *r)
{
    const struct mr_loader_stats *st = &r->stats;
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN], d[CLI_HUMAN];
    printf("\n  consumer waited %s in %" PRIu64
           " batches (p50 %s, p99 %s); ready ahead: %.1f batches\n",
           cli_time(st->consumer_wait_ns, a), st->batches, cli_time(st->wait.p50_ns, b),
           cli_time(st->wait.p99_ns, c), st->ready_mean);
    if (st->timed_batches > 0)
        printf("  device: copies %s, steps %s, both at once %s: %.0f%% of the copying was hidden "
               "under steps\n",
               cli_time(st->timed_copy_ns, a), cli_time(st->timed_use_ns, b),
               cli_time(st->timed_both_ns, c), percent(st->timed_both_ns, st->timed_copy_ns));
    if (st->copied_bytes > 0)
        printf("  copied to the device: %s%s%s\n", cli_bytes(st->copied_bytes, a),
               st->device_ops[0] ? "; transform on device: " : "", st->device_ops);
    print_gpu_decode(st);
    if (st->reads > 0)
        printf("  storage %s: %s reads, %s, %.1f in flight; %s samples ahead%s%s\n", st->storage,
               cli_count((double)st->reads, a), cli_bytes(st->read_bytes, b),
               st->reads_in_flight_mean, cli_count((double)st->read_ahead, c),
               st->read_latency_ns ? ", latency " : "",
               st->read_latency_ns ? cli_time(st->read_latency_ns, d) : "");
    if (st->gds[0])
        printf("  gds: %s\n", st->gds);
    if (st->direct_refused)
        printf("  direct I/O refused by the file system of %s: read through the page cache\n",
               st->direct_refused);
    feed_print_remote();
    printf("  memory: pageable %s, pinned %s, device %s, files %s\n",
           cli_bytes(st->pageable_bytes, a), cli_bytes(st->pinned_bytes, b),
           cli_bytes(st->device_bytes, c), cli_bytes(st->cache_bytes, d));
    if (r->cut_steps > 0)
        printf("  steps: %s of %s were not done when the run was stopped\n",
               cli_count((double)r->cut_steps, a), cli_count((double)st->batches, b));
    if (r->utilization >= 0)
        printf("  utilization %.1f%% (steps of %s over the time from the first step's end)\n",
               100 * r->utilization, cli_time(r->step_ns, a));
}

static void print_one_bad(const struct mr_bad_sample *bad)
{
    char *text = NULL;
    bool named = strncmp(bad->reason, bad->file, strlen(bad->file)) == 0 && bad->offset == 0;
    int n = named ? asprintf(&text, "sample %" PRIu64 ": %s", bad->index, bad->reason)
                  : asprintf(&text, "sample %" PRIu64 " (%s at %" PRIu64 "): %s", bad->index,
                             bad->file, bad->offset, bad->reason);
    if (n < 0)
        return;
    printf("    %s\n", mr_text_printable(text));
    free(text);
}

static void print_bad(const struct feed *feed)
{
    struct mr_bad_sample bad = {.size = sizeof bad};
    if (feed->result.stats.bad_samples == 0)
        return;
    printf("\n  %" PRIu64 " bad sample%s:\n", feed->result.stats.bad_samples,
           cli_s(feed->result.stats.bad_samples));
    for (uint64_t i = 0; i < 10 && mr_loader_bad(feed->pipe.loader, i, &bad); i++)
        print_one_bad(&bad);
    if (feed->result.stats.bad_samples > 10)
        printf("    ... and %" PRIu64 " more: %s%s\n", feed->result.stats.bad_samples - 10,
               feed->opts->quarantine ? "all are in " : "--quarantine FILE lists all",
               feed->opts->quarantine ? feed->opts->quarantine : "");
}

int feed_print_text(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    print_head(feed);
    if (r->finished) {
        printf("nothing fed: %s is the state of a run that has done its epochs; raise --epochs, "
               "which counts from that "
               "run's start, or leave out --state-in to start again\n",
               feed->opts->state_in);
        return CLI_OK;
    }
    print_rates(feed);
    print_stages(&r->stats);
    print_consumer(r);
    print_bad(feed);
    printf("\nbottleneck: %s: %s\n", r->stats.bottleneck, r->stats.reason);
    cli_tuning_print(feed_tuning(feed), &feed->result.stats);
    if (feed->opts->digest || feed->opts->digest_from) {
        char hex[33];
        feed_digest_format(&r->digest, hex);
        printf("digest: %s\n", hex);
    }
    return CLI_OK;
}
