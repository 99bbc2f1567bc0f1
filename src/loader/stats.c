/* The figures of a run and what they say: where the time goes. */
#include "loader/engine.h"

#include <millrace/system.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mr_stage_name(enum mr_stage stage)
{
    static const char *const names[MR_N_STAGES] = {"read", "decode", "transform", "collate",
                                                   "slot"};
    return (unsigned)stage < MR_N_STAGES ? names[stage] : "?";
}

static void percentiles(const struct mr_hist *h, struct mr_percentiles *out)
{
    *out = (struct mr_percentiles){.n = mr_counted(&h->n),
                                   .p50_ns = mr_hist_quantile(h, 0.5),
                                   .p95_ns = mr_hist_quantile(h, 0.95),
                                   .p99_ns = mr_hist_quantile(h, 0.99),
                                   .max_ns = mr_counted(&h->max)};
}

static uint64_t parked(const struct mr_worker *w)
{
    uint64_t since = mr_counted(&w->parked_since), now = since ? mr_time_ns() : 0;
    return mr_counted(&w->parked_ns) + (now > since ? now - since : 0);
}

/* Decode and transform are told apart on the samples that were timed (the first of each run) and
 * shared out likewise. */
static void add_worker(const struct mr_worker *w, uint64_t now_life, struct mr_loader_stats *out)
{
    for (int s = 0; s < MR_N_STAGES; s++)
        out->stage_ns[s] += mr_counted(&w->stage_ns[s]);
    uint64_t decode = mr_counted(&w->timed_decode_ns),
             transform = mr_counted(&w->timed_transform_ns);
    uint64_t made = mr_counted(&w->made_ns);
    double share = decode + transform > 0 ? (double)decode / (double)(decode + transform) : 0;
    out->stage_ns[MR_STAGE_DECODE] += (uint64_t)((double)made * share);
    out->stage_ns[MR_STAGE_TRANSFORM] += made - (uint64_t)((double)made * share);
    uint64_t life = mr_counted(&w->life_ns), waited = mr_counted(&w->permit_ns);
    life = life ? life : now_life;
    uint64_t away = waited + parked(w);
    out->worker_ns += life - MR_MIN(away, life);
    out->budget_wait_ns += waited;
    out->reads += mr_counted(&w->reads) + mr_counted(&w->direct_reads);
    out->read_bytes += mr_counted(&w->read_bytes) + mr_counted(&w->direct_bytes);
}

static double mean_in_flight(const struct mr_loader *ld)
{
    double mean = 0;
    for (uint32_t i = 0; i < ld->workers.n; i++) {
        uint64_t n = mr_counted(&ld->workers.worker[i].in_flight_n);
        mean += n ? (double)mr_counted(&ld->workers.worker[i].in_flight_sum) / (double)n : 0;
    }
    return mean;
}

/* As far as it has grown, and the latency that it has grown by. */
static void read_ahead(const struct mr_loader *ld, struct mr_loader_stats *out)
{
    const uint32_t n = MR_MIN(mr_knobs_workers(ld), ld->workers.n);
    const uint64_t runs = mr_knobs_share(ld, ld->sizes.runs);
    const uint32_t reads = mr_knobs_share(ld, ld->sizes.depth);
    for (uint32_t i = 0; i < n; i++) {
        const struct mr_ahead *a = &ld->workers.worker[i].ahead;
        const uint32_t depth = atomic_load_explicit(&a->depth, memory_order_relaxed);
        out->read_ahead += MR_MIN(mr_counted(&a->runs), runs) * ld->sizes.run_rows;
        out->queue_depth += ld->storage ? MR_MIN(depth, reads) : 0;
        out->read_latency_ns = MR_MAX(out->read_latency_ns, mr_counted(&a->latency_ns));
    }
}

static void memory_held(const struct mr_loader *ld, struct mr_loader_stats *out)
{
    uint64_t n = atomic_load(&ld->ring.n_all), slots = ld->layout.host_bytes * n;
    slots += mr_counted(&ld->grown.host_bytes);
    bool pageable = ld->device_info.unified || !ld->opts.pin;
    *(pageable ? &out->pageable_bytes : &out->pinned_bytes) = slots;
    uint64_t device, host;
    mr_backends_bytes(ld, n, &device, &host);
    if (ld->ships)
        device += (ld->layout.slot_bytes + ld->layout.output_bytes) * n +
                  mr_counted(&ld->grown.device_bytes);
    out->device_bytes = device;
    struct mr_files_kinds kinds;
    mr_files_count(ld->ds->files, &kinds);
    out->cache_bytes = kinds.memory_bytes;
    out->pageable_bytes +=
        out->read_ahead * ((ld->storage ? ld->sizes.sample_bytes : 0) + mr_run_row_bytes(ld));
    out->pageable_bytes += mr_worker_bytes(ld) * ld->workers.n;
    out->pageable_bytes += ld->layout.rows_bytes * n + mr_counted(&ld->grown.rows_bytes);
}

static void list_device_ops(const struct mr_loader *ld, struct mr_loader_stats *out)
{
    size_t at = 0;
    for (int f = 0; f < ld->layout.n_fields && at < sizeof out->device_ops; f++)
        if (ld->layout.field[f].device_part)
            at += (size_t)snprintf(out->device_ops + at, sizeof out->device_ops - at, "%s%.*s: %s",
                                   at ? "; " : "", MR_NAME_BYTES, ld->layout.field[f].out.name,
                                   ld->layout.field[f].device_part->text);
}

static void set_cause(struct mr_loader_stats *st, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void set_cause(struct mr_loader_stats *st, const char *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    snprintf(st->bottleneck, sizeof st->bottleneck, "%s", name);
    vsnprintf(st->reason, sizeof st->reason, fmt, args);
    va_end(args);
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? MR_MIN(100.0 * (double)part / (double)whole, 100.0) : 0;
}

/* Steady state: time since the first batch was handed out. */
struct steady {
    uint64_t stage_ns[MR_N_STAGES], worker_ns, wait_ns; /* wait_ns: the consumer's */
};

/* Below this share of the workers' time no stage is the cause. */
#define NO_STAGE   10

/* A host cache reads a set once that takes a small part of the free memory. Without it the kernel
 * is asked for each sample in each epoch. It does not shorten simulated latency. */
#define SMALL_PART 4
static bool cache_would_hold(const struct mr_loader *ld, uint64_t *bytes)
{
    struct mr_files_kinds kinds;
    struct mr_host_memory_info memory = {.size = sizeof memory};
    mr_files_count(ld->ds->files, &kinds);
    *bytes = kinds.path_bytes;
    bool only_paths = kinds.n_path > 0 && kinds.n_lazy + kinds.n_remote + kinds.n_null == 0;
    return only_paths && ld->opts.cache == MR_CACHE_NONE && ld->opts.epochs != 1 &&
           ld->opts.max_memory == 0 && ld->opts.world <= 1 && mr_host_memory_query(&memory) == 0 &&
           *bytes <= memory.available_bytes / SMALL_PART;
}

static const char *read_advice(const struct mr_loader *ld, char *buf, size_t cap)
{
    uint64_t bytes;
    if (!ld->storage)
        return "files are inflated once; a longer run, or unpacked files, show the rest";
    if (!cache_would_hold(ld, &bytes))
        return "raise read-ahead and queue depth, cache, or use faster storage";
    snprintf(buf, cap, "a host cache would keep its files, %.0f MB, in memory",
             ceil((double)bytes * 1e-6));
    return buf;
}

static const char *advice_for(const struct mr_loader *ld, enum mr_stage stage, char *buf,
                              size_t cap)
{
    const char *of_backend = ld->backends.used[0]->ops->read_advice;
    if (stage == MR_STAGE_READ && of_backend)
        return of_backend;
    if (stage == MR_STAGE_READ && ld->source)
        return ld->ds->unordered ? "a faster source, or more workers"
                                 : "a faster source; it is read by one worker at a time";
    if (stage == MR_STAGE_READ)
        return read_advice(ld, buf, cap);
    if (stage == MR_STAGE_TRANSFORM && !ld->chain)
        return "copying samples into batches; more workers where processors are free";
    if (stage == MR_STAGE_COLLATE)
        return "page-locked slots, or a cheaper collation";
    return stage == MR_STAGE_DECODE ? "more workers where processors are free, or a cheaper format"
                                    : "more workers where processors are free, or a cheaper chain";
}

/* One sample's, by the samples that were measured. */
struct decoding {
    double wall_ns, blocked_ns;
};

static struct decoding decoding_of(const struct mr_loader *ld)
{
    uint64_t n = 0, wall = 0, blocked = 0;
    for (uint32_t i = 0; i < ld->workers.n; i++) {
        const struct mr_blocked_sums *sums = &ld->workers.worker[i].blocked;
        n += mr_counted(&sums->n);
        wall += mr_counted(&sums->wall_ns);
        blocked += mr_counted(&sums->blocked_ns);
    }
    double each = n ? (double)n : 1;
    return (struct decoding){(double)wall / each, (double)MR_MIN(blocked, wall) / each};
}

/* The time that the consumer takes for a sample when it never waits: its thread's, or its work's on
 * the device. */
static double consumer_sample_ns(const struct mr_loader_stats *st)
{
    double host = (double)st->consumer_busy_ns / (double)(st->batches - 1);
    double used = st->used_batches ? (double)st->used_ns / (double)st->used_batches : 0;
    return MR_MAX(host, used) * (double)st->batches / (double)MR_MAX(st->samples, 1);
}

/* Threads that block need no processors: how many of them help. */
static void name_waiting(const struct mr_loader *ld, struct mr_loader_stats *st,
                         const struct steady *steady, const struct decoding *d)
{
    uint64_t busy = 0;
    for (int s = 0; s < MR_STAGE_SLOT; s++)
        busy += steady->stage_ns[s];
    double all_ns = d->wall_ns * (double)busy / (double)steady->stage_ns[MR_STAGE_DECODE];
    double full = mr_cpu_count() * all_ns / MR_MAX(all_ns - d->blocked_ns, 1);
    double need = ceil(all_ns / MR_MAX(consumer_sample_ns(st), 1)), most = MR_MAX_WORKERS;
    most = MR_MIN(most, full);
    char advice[64];
    if (st->workers >= most)
        snprintf(advice, sizeof advice, "more workers would not help: make the wait shorter");
    else if (need > most)
        snprintf(advice, sizeof advice, "throughput grows with workers, up to about %.0f", most);
    else
        snprintf(advice, sizeof advice, "about %.0f workers would hide it",
                 MR_MAX(need, st->workers + 1.0));
    bool is_callback = strcmp(ld->ds->ops->name, "callback") == 0;
    set_cause(st, mr_stage_name(MR_STAGE_DECODE),
              "waiting in %s: %.3g ms a sample, %.0f%% of it without using a processor: %s",
              is_callback ? "get()" : "decode", d->wall_ns * 1e-6, 100 * d->blocked_ns / d->wall_ns,
              advice);
}

static void name_worker_stage(const struct mr_loader *ld, struct mr_loader_stats *st,
                              const struct steady *steady)
{
    int worst = MR_STAGE_READ;
    for (int s = 0; s < MR_STAGE_SLOT; s++)
        worst = steady->stage_ns[s] > steady->stage_ns[worst] ? s : worst;
    double share = percent(steady->stage_ns[worst], steady->worker_ns);
    struct decoding d = decoding_of(ld);
    char advice[80];
    if (share < NO_STAGE)
        set_cause(
            st, "none",
            "since the first batch no stage took %d%% of the workers' time: too short a run to "
            "tell",
            NO_STAGE);
    else if (worst == MR_STAGE_DECODE && d.blocked_ns > d.wall_ns / 2)
        name_waiting(ld, st, steady, &d);
    else
        set_cause(st, mr_stage_name((enum mr_stage)worst),
                  "since the first batch %u worker%s spent %.0f%% of %s time on %s: %s",
                  st->workers, st->workers == 1 ? "" : "s", share,
                  st->workers == 1 ? "its" : "their",
                  worst == MR_STAGE_READ
                      ? ld->source ? "waiting for the source's samples" : "waiting for reads"
                      : mr_stage_name((enum mr_stage)worst),
                  advice_for(ld, (enum mr_stage)worst, advice, sizeof advice));
}

/* From which share of the consumer's time on waiting counts as starving, and a copy engine as full.
 */
#define STARVED     0.05
#define ENGINE_FULL 0.85

static void find_bottleneck(const struct mr_loader *ld, struct mr_loader_stats *st,
                            const struct steady *steady)
{
    uint64_t wait = steady->wait_ns, active = wait + st->consumer_busy_ns;
    double idle = percent(steady->stage_ns[MR_STAGE_SLOT], steady->worker_ns);
    if (st->batches < 3 || active == 0)
        set_cause(st, "none", "%llu batch%s too few to tell", (unsigned long long)st->batches,
                  st->batches == 1 ? " is" : "es are");
    else if ((double)wait < STARVED * (double)active)
        set_cause(st, "consumer",
                  "it waited for %.1f%% of the time since its first batch: the loader keeps up",
                  percent(wait, active));
    else if ((double)st->copy_ns > ENGINE_FULL * (double)active)
        set_cause(
            st, "copy",
            "the copy engine was busy %.0f%% of the time: fewer bytes (ship u8, finish on the "
            "device), or page-locked slots",
            MR_MIN(percent(st->copy_ns, active), 100));
    else if (idle > 50 && st->timed_batches > 0 && st->timed_use_ns > st->timed_copy_ns &&
             st->prefetch > 2)
        set_cause(
            st, "consumer",
            "its steps take longer than copying and making batches: %u worker%s waited for free "
            "slots %.0f%% of %s time",
            st->workers, st->workers == 1 ? "" : "s", idle, st->workers == 1 ? "its" : "their");
    else if (idle > 50)
        set_cause(
            st, "prefetch",
            "consumer and workers waited for each other (%.0f%% and %.0f%% of their time): raise "
            "prefetch from %u",
            percent(wait, active), idle, st->prefetch);
    else if (st->budget_wait_ns > st->worker_ns)
        set_cause(st, "budget",
                  "the budget let workers wait %.0f%% of their time: give it more than its %u "
                  "threads, or its other loaders less to do",
                  percent(st->budget_wait_ns, st->budget_wait_ns + st->worker_ns),
                  mr_budget_workers(&ld->share, UINT32_MAX));
    else
        name_worker_stage(ld, st, steady);
}

static void add_workers(const struct mr_loader *ld, uint64_t elapsed, struct mr_loader_stats *out)
{
    for (uint32_t i = 0; i < ld->workers.n; i++)
        add_worker(&ld->workers.worker[i], elapsed, out);
    out->stage_ns[MR_STAGE_COLLATE] += mr_counted(&ld->stats.collate_ns);
}

void mr_stats_started(struct mr_loader *ld)
{
    struct mr_loader_stats now = {0};
    add_workers(ld, mr_time_ns() - ld->stats.open_ns, &now);
    for (int s = 0; s < MR_N_STAGES; s++)
        atomic_store_explicit(&ld->stats.start_ns[s], now.stage_ns[s], memory_order_relaxed);
    atomic_store_explicit(&ld->stats.start_ns[MR_N_STAGES], now.worker_ns, memory_order_relaxed);
}

static struct steady steady_of(const struct mr_loader *ld, const struct mr_loader_stats *st)
{
    struct steady steady;
    for (int s = 0; s < MR_N_STAGES; s++)
        steady.stage_ns[s] =
            st->stage_ns[s] - MR_MIN(st->stage_ns[s], mr_counted(&ld->stats.start_ns[s]));
    steady.worker_ns =
        st->worker_ns - MR_MIN(st->worker_ns, mr_counted(&ld->stats.start_ns[MR_N_STAGES]));
    steady.wait_ns =
        st->consumer_wait_ns - MR_MIN(st->consumer_wait_ns, mr_counted(&ld->stats.first_wait_ns));
    return steady;
}

static void fill_stats(struct mr_loader *ld, struct mr_loader_stats *st)
{
    if (!mr_process_is(
            &ld->gate.process)) { /* locks of workers that do not exist here may be held */
        *st = (struct mr_loader_stats){.bottleneck = "none"};
        snprintf(st->reason, sizeof st->reason, "this loader was opened by process %d",
                 ld->gate.process.pid);
        return;
    }
    uint64_t elapsed = mr_time_ns() - ld->stats.open_ns;
    *st = (struct mr_loader_stats){
        .samples = mr_counted(&ld->stats.samples),
        .batches = mr_counted(&ld->stats.batches),
        .bytes = mr_counted(&ld->stats.bytes),
        .bad_samples = mr_counted(&ld->quarantine.n_counted),
        .elapsed_ns = elapsed,
        .first_batch_ns = mr_counted(&ld->stats.first_batch_ns),
        .workers = mr_knobs_workers(ld),
        .prefetch = atomic_load(&ld->ring.ahead),
        .consumer_wait_ns = mr_counted(&ld->stats.wait_ns),
        .consumer_busy_ns = mr_counted(&ld->stats.busy_ns),
        .warm_samples = mr_counted(&ld->stats.warm_samples),
        .warm_ns = mr_counted(&ld->stats.warm_ns),
    };
    struct mr_files_kinds kinds;
    mr_files_count(ld->ds->files, &kinds);
    snprintf(st->storage, sizeof st->storage, "%s",
             ld->storage            ? mr_storage_name(ld->storage)
             : !ld->ds->ops->locate ? "none"
                                    : "memory");
    add_workers(ld, elapsed, st);
    read_ahead(ld, st);
    mr_backends_stats(ld, st);
    st->direct_refused = ld->storage ? mr_storage_refused(ld->storage) : NULL;
    uint64_t calls = st->batches;
    st->ready_mean = calls ? (double)mr_counted(&ld->stats.ready_sum) / (double)calls : 0;
    st->reads_in_flight_mean = mean_in_flight(ld);
    percentiles(&ld->stats.interval, &st->interval);
    percentiles(&ld->stats.wait, &st->wait);
    percentiles(&ld->ring.make, &st->make);
    memory_held(ld, st);
    mr_times_overlap(ld, st);
    st->copied_bytes = mr_counted(&ld->ship.copied_bytes);
    list_device_ops(ld, st);
    struct steady steady = steady_of(ld, st);
    find_bottleneck(ld, st, &steady);
}

int mr_loader_stats(struct mr_loader *ld, struct mr_loader_stats *out)
{
    struct mr_loader_stats now;
    if (!ld)
        return mr_error_null("mr_loader_stats", "a loader");
    int rc = mr_info_check("loader_stats", out, sizeof now);
    if (rc < 0)
        return rc;
    fill_stats(ld, &now);
    return mr_info_give("loader_stats", out, &now, sizeof now);
}
