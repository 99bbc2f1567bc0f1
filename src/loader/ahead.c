/*
 * How far a worker reads ahead: Little's law. To make samples at its own pace it needs latency /
 * (its time for a sample) of them on their way. It begins with what suits a local disk, and grows
 * when it had to wait for reads though a slot was open: then the latency is not hidden.
 *
 * Where more reads in flight bring no more bytes the storage's rate is the limit, not its latency,
 * and growing stops.
 */
#include "loader/engine.h"

#define PERIOD_READS 64
#define LEAST_NS     50   /* for a sample: below it the clock decides */
#define MARGIN       2    /* latencies vary */
#define STEP         4    /* growth at once, at most */
#define WORTHWHILE   1.05 /* growth of the rate by which growing has helped */
#define PATIENCE     32

void mr_ahead_init(struct mr_worker *w)
{
    struct mr_loader *ld = w->ld;
    atomic_init(&w->ahead.runs, ld->sizes.start_runs);
    atomic_init(&w->ahead.depth, MR_MAX(ld->sizes.start_depth / ld->workers.n, 1u));
    atomic_init(&w->ahead.latency_ns, 0);
    w->ahead.low_ns = UINT64_MAX;
}

static void begin_period(struct mr_worker *w, uint64_t now_ns)
{
    struct mr_ahead *a = &w->ahead;
    a->low_ns = UINT64_MAX;
    a->landed = 0;
    a->since_ns = now_ns;
    a->busy_ns = mr_counted(&w->made_ns);
    a->samples = w->n_samples;
    a->starved = false;
}

/* Runs that hide the latency at this worker's pace. */
static uint64_t runs_wanted(const struct mr_worker *w, uint64_t latency_ns)
{
    const struct mr_ahead *a = &w->ahead;
    uint64_t samples = w->n_samples - a->samples;
    if (samples == 0)
        return 0;
    uint64_t each_ns = MR_MAX((mr_counted(&w->made_ns) - a->busy_ns) / samples, LEAST_NS);
    return MARGIN * latency_ns / each_ns / w->ld->sizes.run_rows + 2;
}

static void set(struct mr_worker *w, uint64_t runs)
{
    struct mr_loader *ld = w->ld;
    uint64_t reads = runs * ld->sizes.run_rows * (uint64_t)MR_MAX(ld->sizes.sample_reads, 1);
    uint32_t most = MR_MAX(ld->sizes.depth / ld->workers.n, 1u),
             depth = (uint32_t)MR_MIN(reads, most);
    atomic_store_explicit(&w->ahead.runs, runs, memory_order_relaxed);
    if (depth > atomic_load_explicit(&w->ahead.depth, memory_order_relaxed))
        atomic_store_explicit(&w->ahead.depth, depth, memory_order_relaxed);
}

/* Growing did not help: it is left for a while. */
static bool has_patience(struct mr_ahead *a, double rate)
{
    if (a->grew && rate < a->rate * WORTHWHILE)
        a->patience = PATIENCE;
    a->grew = false;
    if (a->patience == 0)
        return true;
    a->patience--;
    return false;
}

static void adapt(struct mr_worker *w, uint64_t now_ns)
{
    struct mr_ahead *a = &w->ahead;
    uint64_t runs = mr_counted(&a->runs), wanted = runs_wanted(w, a->low_ns);
    double rate = (double)a->landed / (double)MR_MAX(now_ns - a->since_ns, 1u);
    atomic_store_explicit(&a->latency_ns, a->low_ns, memory_order_relaxed);
    if (!has_patience(a, rate) || !a->starved || wanted <= runs ||
        runs >= w->ld->sizes.runs_per_worker)
        return;
    a->rate = rate;
    a->grew = true;
    set(w, MR_MIN(MR_MIN(wanted, STEP * runs), w->ld->sizes.runs_per_worker));
}

void mr_ahead_landed(struct mr_worker *w, uint32_t n, uint64_t low_ns, uint64_t now_ns)
{
    struct mr_ahead *a = &w->ahead;
    a->low_ns = MR_MIN(a->low_ns, low_ns);
    a->landed += n;
    /* What was started after the latest growth has landed, and the rate is of a few round trips. */
    if (a->landed < PERIOD_READS || now_ns - a->since_ns < 3 * mr_counted(&a->latency_ns))
        return;
    adapt(w, now_ns);
    begin_period(w, now_ns);
}
