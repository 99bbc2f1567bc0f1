/* One run of the pipeline: opens what the options say, takes batches as a training step would,
 * keeps the figures. */
#include "feed/feed.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int read_text(const char *path, char **out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return mr_error_set(-errno, "%s: %s", path, strerror(errno));
    char *text = calloc(1, 65537);
    size_t n = text ? fread(text, 1, 65537, file) : 0;
    int failed = ferror(file);
    fclose(file);
    if (!text || failed || n > 65536) {
        free(text);
        return mr_error_set(n > 65536 ? MR_ESTATE : -EIO, "%s: %s", path,
                            n > 65536 ? "too long for a state (more than 64 KiB)"
                                      : "could not be read");
    }
    *out = text;
    return 0;
}

static int loader_opts(struct feed *feed, struct mr_loader_opts *lo)
{
    const struct feed_opts *o = feed->opts;
    *lo = o->loader;
    lo->epochs = o->loader.epochs ? o->loader.epochs : o->time_ns ? 0 : 1;
    if (o->until_tuned && o->loader.epochs == 0)
        lo->epochs = 0;
    int rc = o->state_in ? read_text(o->state_in, &feed->state_text) : 0;
    lo->state = feed->state_text;
    return rc;
}

/* Before anything is opened: options that contradict each other, and files of an earlier run. */
static int read_options(struct feed *feed, struct mr_loader_opts *lo)
{
    const struct feed_opts *o = feed->opts;
    if (o->sampler && o->shuffle)
        return mr_error_set(MR_EOPTION, "--shuffle and --sampler %s: give one of the two",
                            o->sampler);
    int rc = loader_opts(feed, lo);
    if (rc < 0)
        return rc;
    rc = feed_set_remote(o);
    if (rc < 0)
        return rc;
    return o->digest_from ? feed_digest_parse(o->digest_from, &feed->result.digest) : 0;
}

int feed_open(struct feed *feed, const char *dataset, const struct feed_opts *opts)
{
    *feed = (struct feed){.opts = opts};
    feed->own = (struct ranks_own){
        .command = "feed", .rank = opts->loader.rank, .world = opts->loader.world};
    struct mr_loader_opts lo;
    const char *order = opts->sampler ? opts->sampler : opts->shuffle ? "random" : "sequential";
    int rc = opts->report_dir ? ranks_own_open(&feed->own) : 0;
    if (rc < 0)
        return rc;
    rc = read_options(feed, &lo);
    if (rc < 0)
        return rc;
    rc = cli_pipeline_open(&feed->pipe, opts->device, dataset, opts->transform);
    if (rc < 0)
        return rc;
    if (mr_dataset_length(feed->pipe.ds) == MR_UNKNOWN && opts->loader.epochs == 0)
        lo.epochs = 1; /* it may be a pipe */
    rc = cli_pipeline_order(&feed->pipe, order, opts->loader.seed);
    if (rc < 0)
        return rc;
    rc = feed_steps_open(feed);
    if (rc < 0)
        return rc;
    rc = cli_pipeline_start(&feed->pipe, &lo);
    if (rc == MR_ESTATE && opts->state_in)
        mr_error_set(rc, "%s: %s", opts->state_in, mr_last_error());
    return rc;
}

void feed_close(struct feed *feed)
{
    cli_pipeline_stop(&feed->pipe); /* before the events */
    feed_steps_close(feed);
    cli_pipeline_close(&feed->pipe);
    ranks_own_close(&feed->own);
    free(feed->state_text);
    free(feed->back);
}

static int grow_back(struct feed *feed, uint64_t bytes)
{
    if (bytes <= feed->back_bytes)
        return 0;
    free(feed->back);
    feed->back = malloc(bytes);
    feed->back_bytes = feed->back ? bytes : 0;
    return feed->back ? 0 : mr_error_set(-ENOMEM, "digest: no memory for %" PRIu64 " bytes", bytes);
}

/* The digest is of what the device holds: it is copied back, which proves the transfer as well. */
static int digest_batch(struct feed *feed, const struct mr_batch *b)
{
    const unsigned char *data[MR_MAX_FIELDS];
    uint64_t bytes = 0, at = 0;
    for (int f = 0; f < b->n_fields; f++)
        bytes += b->field[f].bytes;
    bool on_host = b->field[0].data == b->field[0].host;
    int rc = on_host ? 0 : grow_back(feed, bytes);
    for (int f = 0; f < b->n_fields && rc == 0; f++) {
        data[f] = b->field[f].data;
        if (on_host)
            continue;
        data[f] = feed->back + at;
        at += b->field[f].bytes;
        if (b->field[f].bytes > 0)
            rc = mr_copy_async(feed->pipe.stream, (void *)(uintptr_t)data[f], MR_PAGEABLE,
                               b->field[f].data, MR_DEVICE, b->field[f].bytes);
    }
    if (rc == 0 && !on_host)
        rc = mr_stream_synchronize(feed->pipe.stream);
    if (rc == 0)
        feed_digest_add(&feed->result.digest, b, data);
    return rc;
}

static int take_batch(struct feed *feed, struct mr_batch *b)
{
    int rc = feed->opts->digest || feed->opts->digest_from ? digest_batch(feed, b) : 0;
    if (rc == 0)
        rc = feed_steps_add(feed);
    int released = mr_loader_release(feed->pipe.loader, b, feed->pipe.stream);
    return rc < 0 ? rc : released;
}

static void finish(struct feed *feed)
{
    struct feed_result *r = &feed->result;
    feed_steps_end(feed);
    r->seconds = (double)(mr_time_ns() - feed->pipe.start_ns) * 1e-9;
    r->stats.size = sizeof r->stats;
    mr_loader_stats(feed->pipe.loader, &r->stats);
    r->tuning.size = sizeof r->tuning;
    if (feed->opts->loader.tune)
        mr_loader_tuning(feed->pipe.loader, &r->tuning);
    r->utilization = feed_steps_utilization(feed);
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        r->memory[kind].size = sizeof r->memory[kind];
        mr_memory_query(feed->pipe.dev, (enum mr_memory)kind, &r->memory[kind]);
    }
}

/* Ends a run whose time is over or that was interrupted, also while it waits for a batch. */
struct watch {
    struct feed *feed;
    uint64_t until_ns; /* 0: no limit */
    _Atomic bool done, fired;
};

static void *watch(void *arg)
{
    struct watch *w = arg;
    const struct timespec tick = {.tv_nsec = 5000000};
    while (!w->done) {
        if (cli_interrupted() || (w->until_ns && mr_time_ns() >= w->until_ns)) {
            w->fired = true;
            mr_loader_cancel(w->feed->pipe.loader);
            feed_steps_stop(w->feed);
            break;
        }
        nanosleep(&tick, NULL);
    }
    return NULL;
}

static bool is_tuned(const struct feed *feed)
{
    struct mr_loader_tuning t = {.size = sizeof t};
    return feed->opts->until_tuned && mr_loader_tuning(feed->pipe.loader, &t) == 0 && t.done;
}

static void note_warm(struct feed *feed, uint64_t n, uint64_t now)
{
    struct feed_result *r = &feed->result;
    if (r->warm_from_ns) {
        r->warm_samples += n;
        r->warm_end_ns = now;
    } else if (now - feed->pipe.start_ns >= feed->opts->warmup_ns) {
        r->warm_from_ns = now;
    }
}

/* A step for --report-dir. A device computes while the host waits for the next batch: what exceeds
 * its step is waiting for data. Returns the step's end. */
static uint64_t note_step(struct feed *feed, uint64_t start, uint64_t got)
{
    const uint64_t now = mr_time_ns();
    const double all = (double)(now - start), step = (double)feed->result.step_ns;
    const double busy = feed->pipe.info.unified ? (double)(now - got) : step < all ? step : all;
    if (feed->own.step)
        ranks_own_add(&feed->own,
                      &(struct mr_rank_step){.data_ns = all - busy, .compute_ns = busy});
    return now;
}

static int run_batches(struct feed *feed, void (*tick)(void *, uint64_t), void *user)
{
    struct mr_batch b = {.size = sizeof b};
    uint64_t samples = 0, batches = 0;
    int rc;
    uint64_t start = mr_time_ns();
    while ((rc = mr_loader_next(feed->pipe.loader, feed->pipe.stream, &b)) > 0) {
        const uint64_t got = mr_time_ns();
        samples += b.n;
        batches++;
        const uint64_t n = b.n;
        rc = take_batch(feed, &b);
        if (rc < 0)
            break;
        if (feed->opts->warmup_ns)
            note_warm(feed, n, got);
        start = note_step(feed, start, got);
        if (tick)
            tick(user, samples);
        feed->result.stopped = feed->opts->batches && batches >= feed->opts->batches;
        if (feed->result.stopped || is_tuned(feed))
            break;
    }
    return rc;
}

int feed_run(struct feed *feed, void (*tick)(void *user, uint64_t samples), void *user)
{
    struct watch w = {.feed = feed,
                      .until_ns =
                          feed->opts->time_ns ? feed->pipe.start_ns + feed->opts->time_ns : 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, &w) != 0)
        return mr_error_set(-EAGAIN, "the thread that watches the time could not be started");
    int rc = run_batches(feed, tick, user);
    char error[1024];
    snprintf(error, sizeof error, "%s", mr_last_error());
    w.done = true;
    pthread_join(thread, NULL);
    if (rc == MR_ECANCELLED && w.fired) {
        feed->result.stopped = 1;
        rc = 0;
    }
    finish(feed);
    int n = mr_loader_state(feed->pipe.loader, feed->result.state, sizeof feed->result.state);
    if (rc < 0) {
        feed->result.stopped = 1;
        return mr_error_set(rc, "%s", error);
    }
    return n < 0 ? n : 0;
}
