/*
 * How far a worker reads ahead: Little's law. To make samples at its own pace it needs latency /
 * (its time for a sample) of them on their way. It begins with what suits a local disk, and grows
 * when it had to wait for reads though a slot was open: then the latency is not hidden.
 *
 * Where more reads in flight bring no more bytes the storage's rate is the limit, not its latency.
 * Then growing is taken back, as far as it brought nothing, and fewer reads are tried, too: those
 * that only wait in a server's or a link's queue cost connections, memory and, where the queue is
 * full, lost packets.
 *
 * Workers share a link: one that keeps more in flight takes from the others, and its own rate would
 * grow though the link's does not. So for remote files the first worker goes by the rate of all,
 * and sets the reads of all.
 */
#include "loader/engine.h"

#define PERIOD_READS  64
#define LEAST_NS      50   /* for a sample: below it the clock decides */
#define MARGIN        2    /* latencies vary */
#define STEP          4    /* growth at once, at most */
#define REMOTE_STEP   2    /* of remote files, where too much is worse than too little */
#define WORTHWHILE    1.1  /* growth of the rate by which growing has helped */
#define REMOTE_WORTH  1.04 /* of remote files: the last tenth of a link is worth it */
#define SPARE         1.3  /* of what was needed, if a part of the growth was enough */
#define AS_GOOD       0.97 /* of the rate: fewer reads are enough */
#define RISES         0.25
#define FALLS         0.0625
#define LOOK          2     /* periods with fewer reads, before still fewer are tried */
#define FEWER         3 / 4 /* of the reads are tried */
#define MUCH_SLOWER   0.6   /* than that mean, for some periods: it is another link now */
#define GROWS         1.1   /* times the period before: connections get going, or caches */
#define SLOW_PERIODS  2
#define LEAST_REMOTE  8         /* reads in flight, all workers */
#define REMOTE_NS     250000000 /* a period of remote files, at least: their rate varies */
#define FIRST         3         /* periods, which connections and caches need to get going */
#define QUEUES        2    /* times the shortest latency: reads wait for each other somewhere */
#define MOST_QUEUES   32   /* periods, after which more reads are tried all the same */
#define FORGET        1.02 /* of the shortest latency, a period */
#define PATIENCE      8
#define MOST_PATIENCE 256

static uint64_t run_reads(const struct mr_loader *ld)
{
    return ld->sizes.run_rows * (uint64_t)MR_MAX(ld->sizes.sample_reads, 1);
}

static bool leads(const struct mr_worker *w)
{
    return w->ld->sizes.remote && w->id == 0;
}

/* What has landed in this period, and the reads in flight, of all workers whose reads w sets. */
static uint64_t landed(const struct mr_worker *w)
{
    return leads(w) ? mr_counted(&w->ld->workers.n_landed) - w->ahead.all_before : w->ahead.landed;
}

static uint64_t reads_of_all(const struct mr_worker *w)
{
    return w->ahead.reads * (leads(w) ? mr_knobs_workers(w->ld) : 1);
}

static uint64_t first_reads(const struct mr_loader *ld)
{
    return MR_MAX(
        MR_MIN(ld->sizes.start_depth / mr_knobs_workers(ld), ld->sizes.start_runs * run_reads(ld)),
        1);
}

/* Of a worker. */
static uint64_t least_reads(const struct mr_loader *ld)
{
    uint64_t first = first_reads(ld);
    return ld->sizes.remote ? MR_MIN(MR_MAX(LEAST_REMOTE / mr_knobs_workers(ld), 1u), first)
                            : first;
}

static void set_worker(struct mr_worker *w, uint64_t runs, uint32_t depth)
{
    atomic_store_explicit(&w->ahead.runs, runs, memory_order_relaxed);
    atomic_store_explicit(&w->ahead.depth, depth, memory_order_relaxed);
}

/* Reads in flight, and the runs that they are of. */
static void set(struct mr_worker *w, uint64_t reads)
{
    const struct mr_loader *ld = w->ld;
    uint64_t runs = (reads + run_reads(ld) - 1) / run_reads(ld);
    uint32_t most = MR_MIN(mr_knobs_share(ld, ld->sizes.depth), ld->sizes.reader_depth),
             depth = (uint32_t)MR_MIN(MR_MAX(reads, least_reads(ld)), most);
    w->ahead.reads = reads;
    runs = MR_MIN(MR_MAX(runs, ld->sizes.start_runs), ld->sizes.runs_per_worker);
    for (uint32_t i = 0; i < ld->workers.n; i++)
        if (leads(w) || &ld->workers.worker[i] == w)
            set_worker(&ld->workers.worker[i], runs, depth);
}

void mr_ahead_init(struct mr_worker *w)
{
    bool remote = w->ld->sizes.remote;
    w->ahead.least_ns = remote ? REMOTE_NS : 0;
    w->ahead.step = remote ? REMOTE_STEP : STEP;
    w->ahead.patience = remote ? FIRST : 0;
    w->ahead.next_patience = PATIENCE;
    w->ahead.low_ns = UINT64_MAX;
    w->ahead.best_ns = 1e18;
    atomic_init(&w->ahead.latency_ns, 0);
    set(w, first_reads(w->ld));
}

static void begin_period(struct mr_worker *w, uint64_t now_ns)
{
    struct mr_ahead *a = &w->ahead;
    a->low_ns = UINT64_MAX;
    a->landed = 0;
    a->all_before = mr_counted(&w->ld->workers.n_landed);
    a->since_ns = now_ns;
    a->busy_ns = mr_counted(&w->made_ns);
    a->samples = w->n_samples;
    a->starved = false;
}

/* Reads that hide the latency at this worker's pace. */
static uint64_t reads_wanted(const struct mr_worker *w, uint64_t latency_ns)
{
    const struct mr_ahead *a = &w->ahead;
    uint64_t samples = w->n_samples - a->samples;
    if (samples == 0)
        return 0;
    uint64_t each_ns = MR_MAX((mr_counted(&w->made_ns) - a->busy_ns) / samples, LEAST_NS);
    return (MARGIN * latency_ns / each_ns / w->ld->sizes.run_rows + 2) * run_reads(w->ld);
}

/* Trials that fail in turn, of more and of fewer reads, get rarer. */
static void fail(struct mr_worker *w)
{
    struct mr_ahead *a = &w->ahead;
    set(w, a->reads_before);
    a->fewer = !a->fewer;
    a->patience = a->next_patience;
    a->next_patience = MR_MIN(2 * a->next_patience, MOST_PATIENCE);
}

/* The latest trial. Of more reads, those stay that the rate has followed. */
static void judge(struct mr_worker *w, double rate)
{
    struct mr_ahead *a = &w->ahead;
    double gain = rate / a->rate, needed = (double)a->reads_before * SPARE * gain,
           worth = w->ld->sizes.remote ? REMOTE_WORTH : WORTHWHILE;
    bool good = a->fewer ? gain >= AS_GOOD : gain >= worth;
    a->trial = false;
    if (!good) {
        fail(w);
        return;
    }
    a->next_patience = PATIENCE;
    a->mean_rate = a->fewer ? a->mean_rate : rate;
    a->patience = a->fewer && a->least_ns > 0 ? LOOK : 0;
    if (!a->fewer && needed < (double)a->reads)
        set(w, (uint64_t)needed);
}

/* Do reads wait for each other? Of a store whose latency varies this is true, too, so that it
 * counts only once more reads did not help, and not for ever. */
static bool queues(struct mr_worker *w, double rate)
{
    struct mr_ahead *a = &w->ahead;
    bool slow = a->least_ns > 0 && a->next_patience > PATIENCE &&
                (double)reads_of_all(w) / rate > QUEUES * a->best_ns;
    a->n_queues = slow ? a->n_queues + 1 : 0;
    return slow && a->n_queues % MOST_QUEUES != 0;
}

/* Tries more reads, or fewer. */
static void try(struct mr_worker *w, uint64_t wanted, double rate)
{
    struct mr_ahead *a = &w->ahead;
    uint64_t least = least_reads(w->ld), most = w->ld->sizes.runs_per_worker * run_reads(w->ld);
    a->fewer = a->fewer && a->reads > least;
    uint64_t reads = a->fewer ? MR_MAX(a->reads * FEWER, least)
                              : MR_MIN(MR_MIN(wanted, a->step * a->reads), most);
    if (!a->fewer && (reads <= a->reads || queues(w, rate))) {
        a->fewer = a->reads > least;
        return;
    }
    bool odd = a->least_ns > 0; /* one period of remote files may be odd */
    a->rate = !odd ? rate : a->fewer ? a->mean_rate : MR_MAX(rate, a->mean_rate);
    a->reads_before = a->reads;
    a->trial = true;
    a->settles = a->least_ns > 0 && !a->fewer; /* new connections begin slowly */
    set(w, reads);
}

/* What was learned of a faster link is forgotten. */
static void note_rate(struct mr_ahead *a, double rate)
{
    if (a->trial)
        return;
    a->n_slow = rate < MUCH_SLOWER * a->mean_rate ? a->n_slow + 1 : 0;
    double weight = rate > a->mean_rate ? RISES : FALLS; /* a busy machine's pauses are no limit */
    a->mean_rate = a->mean_rate > 0 ? a->mean_rate + (rate - a->mean_rate) * weight : rate;
    if (a->n_slow < SLOW_PERIODS)
        return;
    a->n_slow = a->patience = 0;
    a->next_patience = PATIENCE;
    a->mean_rate = rate;
    a->fewer = true;
}

static void adapt(struct mr_worker *w, uint64_t now_ns)
{
    struct mr_ahead *a = &w->ahead;
    uint64_t wanted = reads_wanted(w, a->low_ns);
    double rate = (double)landed(w) / (double)MR_MAX(now_ns - a->since_ns, 1u);
    for (uint32_t i = 0; i < w->ld->workers.n; i++)
        if (leads(w) || &w->ld->workers.worker[i] == w)
            atomic_store_explicit(&w->ld->workers.worker[i].ahead.latency_ns, a->low_ns,
                                  memory_order_relaxed);
    a->best_ns = MR_MIN(a->best_ns * FORGET, (double)a->low_ns);
    mr_log(MR_LOG_DEBUG, "worker %u: %.0f reads/s with %llu in flight, the fastest in %.1f ms%s%s",
           w->id, rate * 1e9, (unsigned long long)reads_of_all(w), (double)a->low_ns * 1e-6,
           a->trial ? a->fewer ? ", fewer are tried" : ", more are tried" : "",
           a->settles ? ", settles" : "");
    if (a->settles) {
        a->settles = false;
        return;
    }
    bool grows = a->least_ns > 0 && rate > GROWS * a->last_rate; /* by itself: a start */
    a->last_rate = rate;
    note_rate(a, rate);
    if (a->trial)
        judge(w, rate);
    else if (a->patience > 0)
        a->patience--;
    if (a->patience == 0 && a->starved && !grows)
        try(w, wanted, rate);
}

void mr_ahead_landed(struct mr_worker *w, uint32_t n, uint64_t low_ns, uint64_t now_ns)
{
    struct mr_ahead *a = &w->ahead;
    if (w->ld->sizes.remote)
        atomic_fetch_add_explicit(&w->ld->workers.n_landed, n, memory_order_relaxed);
    if (w->ld->sizes.remote && !leads(w))
        return;
    if (a->since_ns == 0) /* there is no rate of what landed before */
        begin_period(w, now_ns);
    a->low_ns = MR_MIN(a->low_ns, low_ns);
    a->landed += n;
    /* What was started before the latest growth has landed, and as much of what came after it. */
    if (landed(w) < MR_MAX(PERIOD_READS, 2 * reads_of_all(w)) ||
        now_ns - a->since_ns < MR_MAX(3 * mr_counted(&a->latency_ns), a->least_ns))
        return;
    adapt(w, now_ns);
    begin_period(w, now_ns);
}
