/*
 * The workers. Each claims short runs of samples from one shared counter, starts their reads, and
 * makes samples into rows as bytes arrive and slots open. It keeps several runs in flight when
 * something has to be read or processes make samples, one when all is in memory. The worker with
 * the earliest unfinished run can always go on, since its slot is the next to be open: no deadlock.
 */
#include "loader/engine.h"
#include "loader/gather.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* Bounds how long a stop can take, not how fast reads are seen: reap returns as soon as one has
 * finished. */
#define REAP_WAIT_NS   20000000ull
#define FAIR_WAIT_NS   500000ull  /* for another worker's claim */
#define OPEN_WAIT_NS   2000000ull /* for a slot */
#define CLAIMS_A_ROUND 4
#define ROUND_NS       1000000u /* of making samples; then it turns to its reads again */
#define SLOW_SAMPLE_NS 100000u  /* a look at the clock for each is nothing then */
#define TRACE_READ_NS  5000     /* shorter spans of reading are left out of the trace */

static void note_claim(struct mr_loader *ld, const struct mr_run *run, uint64_t now)
{
    struct mr_slot *slot = mr_ring_slot(&ld->ring, run->t);
    uint64_t none = 0;
    if (atomic_load_explicit(&slot->claim_ns, memory_order_relaxed) == 0)
        atomic_compare_exchange_strong(&slot->claim_ns, &none, now);
}

/* Counts the time since the last lap for a stage: one look at the clock a change of stage. Returns
 * when that lap began. */
static uint64_t lap(struct mr_worker *w, _Atomic uint64_t *stage_ns)
{
    uint64_t start = w->lap_ns;
    w->lap_ns = mr_time_ns();
    mr_count(stage_ns, w->lap_ns - start);
    return start;
}

/*
 * Claims far ahead must interleave: a worker that owns whole batches in a row makes them alone,
 * while the others find no slot open, and as each run that is made makes room for one claim, that
 * would go on for ever. So of a batch a worker gets its share and half as much again, for those
 * that are faster; but one run it can always have. If no batch waits for another one (in_order =
 * 0), a batch with a slot is not far ahead: others do the share of a worker that one sample keeps
 * busy.
 */
static bool is_fair(const struct mr_worker *w, uint64_t batch)
{
    const struct mr_loader *ld = w->ld;
    uint64_t n = mr_knobs_workers(ld);
    uint64_t most = (3 * ld->sizes.runs_per_batch + 2 * n - 1) / (2 * n);
    return w->n_runs == 0 || w->claimed_batch != batch || w->n_claimed < most ||
           (!ld->opts.in_order && batch < atomic_load(&ld->opening.next));
}

static void note_claimed(struct mr_worker *w, uint64_t batch)
{
    if (w->claimed_batch != batch)
        w->n_claimed = 0;
    w->claimed_batch = batch;
    w->n_claimed++;
}

/* Waits until it may work, see budget.h. false: stop. */
static bool take_permit(struct mr_worker *w)
{
    if (!w->permit.share->budget)
        return true;
    uint64_t note = atomic_load_explicit(&w->watch.note, memory_order_relaxed);
    mr_watch_since(&w->watch, w->lap_ns);
    mr_watch_task(&w->watch, MR_TASK_PERMIT);
    bool go = mr_permit_take(&w->permit);
    atomic_store_explicit(&w->watch.note, note, memory_order_release);
    lap(w, &w->permit_ns);
    return go;
}

/* A run of an iterable data set. It may block, or wait for another worker: without a permit. */
static bool claim_items(struct mr_worker *w)
{
    struct mr_run *run = w->spare[w->n_spare - 1];
    mr_watch_note(&w->watch, 0, 0, MR_TASK_NONE);
    mr_permit_return(&w->permit);
    w->no_more = !mr_source_claim(w, run);
    if (w->no_more)
        return false;
    w->n_spare--;
    w->in_flight[(w->first + w->n_runs++) % w->ld->sizes.runs_per_worker] = run;
    if (w->permit.share->budget)
        lap(w, &w->stage_ns[MR_STAGE_READ]);
    return take_permit(w);
}

/* Reads go straight into rows: they wait for the slot's memory, not for its being open. */
static bool lacks_slot(struct mr_worker *w, uint64_t batch)
{
    bool asked, lacks = mr_ring_lacks_host(&w->ld->ring, batch, &asked);
    w->lacking = lacks ? batch : UINT64_MAX;
    return lacks;
}

/* Claims one run. false: none left, or it has as many as it may. */
static bool claim(struct mr_worker *w)
{
    struct mr_loader *ld = w->ld;
    uint64_t number = atomic_load_explicit(&ld->workers.next_run, memory_order_relaxed);
    w->held_back = false;
    w->lacking = UINT64_MAX;
    if (w->no_more || w->id >= mr_knobs_workers(ld) || w->n_runs >= mr_counted(&w->ahead.runs) ||
        w->n_runs >= mr_knobs_share(ld, ld->sizes.runs))
        return false;
    if (ld->source)
        return claim_items(w);
    do {
        uint64_t batch = number / ld->sizes.runs_per_batch;
        w->no_more = batch >= mr_ring_total(&ld->ring);
        w->held_back = !w->no_more && !is_fair(w, batch);
        if (w->no_more || w->held_back || lacks_slot(w, batch))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&ld->workers.next_run, &number, number + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    note_claimed(w, number / ld->sizes.runs_per_batch);
    struct mr_run *run = w->spare[--w->n_spare];
    w->in_flight[(w->first + w->n_runs++) % ld->sizes.runs_per_worker] = run;
    uint64_t t = number / ld->sizes.runs_per_batch;
    mr_run_fill(w, run, number, ld->storage && mr_ring_is_open(&ld->ring, t));
    return true;
}

/* How many more reads may be started. */
static uint32_t free_reads(const struct mr_worker *w)
{
    uint32_t depth = MR_MIN(atomic_load_explicit(&w->ahead.depth, memory_order_relaxed),
                            mr_knobs_share(w->ld, w->ld->sizes.depth));
    return MR_MIN(mr_reader_space(w->reader),
                  depth - MR_MIN(mr_reader_in_flight(w->reader), depth));
}

/* Whole files may be larger than the first one: what has landed then is used before more is read,
 * but for the first run, which can always go on. */
static bool holds_enough(const struct mr_worker *w, uint32_t i)
{
    return i > 0 && w->ld->sizes.n_whole > 0 &&
           w->held_bytes >
               w->ld->sizes.runs_per_worker * w->ld->sizes.run_rows * w->ld->sizes.sample_bytes;
}

static void submit(struct mr_worker *w)
{
    struct mr_read *batch[64];
    uint32_t n = 0, n_free = free_reads(w);
    for (uint32_t i = w->n_sent; i < w->n_runs && n_free > 0 && !holds_enough(w, i); i++) {
        struct mr_run *run = mr_nth_run(w, i);
        while (run->n_submitted < run->n_reads && n_free > 0) {
            batch[n++] = &run->read[run->n_submitted++];
            n_free--;
            if (n == MR_COUNT(batch)) {
                mr_reader_submit(w->reader, batch, n);
                n = 0;
            }
        }
        w->n_sent += run->n_submitted == run->n_reads;
    }
    if (n > 0)
        mr_reader_submit(w->reader, batch, n);
}

/* Collects finished reads; waits at most wait_ns for the first. */
static void reap(struct mr_worker *w, uint64_t wait_ns)
{
    struct mr_read *landed[64];
    uint32_t n;
    do {
        n = mr_reader_reap(w->reader, landed, MR_COUNT(landed), wait_ns);
        uint32_t n_own = 0;
        uint64_t first_ns = 0;
        for (uint32_t i = 0; i < n; i++) {
            struct mr_run *run = landed[i]->user;
            run->landed[landed[i] - run->read] = true;
            run->n_landed++;
            if (!landed[i]->shared) { /* else its time says nothing of the storage's */
                first_ns = MR_MAX(first_ns, landed[i]->submit_ns);
                n_own++;
            }
            w->held_bytes += landed[i]->bytes == MR_WHOLE ? landed[i]->done : 0;
        }
        if (n_own > 0 && w->ld->sizes.runs_per_worker > w->ld->sizes.start_runs) {
            uint64_t now = mr_time_ns();
            mr_ahead_landed(w, n_own, now - MR_MIN(first_ns, now), now);
        }
        wait_ns = 0;
    } while (n == MR_COUNT(landed));
    struct mr_reader_stats rs;
    mr_reader_count(w->reader, &rs);
    atomic_store_explicit(&w->reads, rs.reads, memory_order_relaxed);
    atomic_store_explicit(&w->read_bytes, rs.bytes, memory_order_relaxed);
    atomic_store_explicit(&w->in_flight_sum, rs.in_flight_sum, memory_order_relaxed);
    atomic_store_explicit(&w->in_flight_n, rs.in_flight_n, memory_order_relaxed);
}

static bool landed(const struct mr_run *run, const struct mr_run_sample *s)
{
    if (run->n_landed == run->n_reads)
        return true;
    for (int e = 0; e < s->n_extents; e++)
        if (s->extent[e].read && !run->landed[s->extent[e].read - run->read])
            return false;
    return true;
}

/* Brings the next sample's first bytes near while this one is made: random samples are cache
 * misses. */
static void prefetch_next(const struct mr_run *run, uint32_t i)
{
    if (i + 1 >= run->n || run->sample[i + 1].n_extents < 1 || !run->sample[i + 1].extent[0].view)
        return;
    const char *p = run->sample[i + 1].extent[0].view;
    uint64_t bytes = MR_MIN(run->sample[i + 1].extent[0].at.bytes, 4096);
    for (uint64_t at = 0; at < bytes; at += MR_CACHE_LINE)
        __builtin_prefetch(p + at, 0, 2);
}

/* All made, and nothing of it in flight: its buffer may be used again. */
static bool is_over(const struct mr_run *run)
{
    return run->n_left == 0 && run->n_landed == run->n_reads;
}

/* One sample of every few runs is timed: it tells decoding from transforming. Slow samples are few
 * and differ, so all of them are timed; but one call of get_run makes a whole run. */
#define TIMED_RUNS 8

static uint32_t make_landed(struct mr_worker *w, struct mr_run *run)
{
    bool tracing = mr_trace_on(), slow = w->watch.slow;
    bool timed = tracing || slow || w->n_made % TIMED_RUNS == 0;
    w->measure = timed && w->lengthy;
    uint32_t made = 0;
    if (w->ld->gathers && run->n_done == 0 && !tracing)
        made = mr_gather_run(w, run, timed);
    else if (w->ld->gets_runs && run->n_done == 0 && (run->posted || !tracing))
        made = mr_get_run(w, run, timed);
    for (uint32_t i = w->ld->gathers ? made : 0;
         made < run->n && i < run->n &&
         !atomic_load_explicit(&w->ld->ring.stop, memory_order_relaxed);
         i++) {
        struct mr_run_sample *s = &run->sample[i];
        if (s->done || !landed(run, s))
            continue;
        if (w->ld->gathers)
            mr_run_locate(w, run, i);
        else
            prefetch_next(run, i);
        if (w->watch.slow)
            mr_watch_since(&w->watch, mr_time_ns());
        mr_watch_note(&w->watch, run->t, run->row0 + i, MR_TASK_DECODE);
        mr_sample_make(w, run, i, timed);
        s->done = true;
        timed = tracing || (slow && !w->ld->ds->ops->get_run);
        w->measure = false;
        made++;
    }
    w->n_made +=
        made > 0; /* rounds that found nothing to make are not counted: they may come in step */
    return made;
}

static void count_made(struct mr_worker *w, const struct mr_run *run, uint32_t made)
{
    uint64_t start = lap(w, &w->made_ns);
    w->watch.slow = w->lap_ns - start > made * SLOW_SAMPLE_NS;
    w->lengthy = w->lap_ns - start > made * MR_BLOCKED_SAMPLE_NS;
    mr_count(&w->made_ns, 0 - w->direct_ns); /* that was reading */
    mr_count(&w->stage_ns[MR_STAGE_READ], w->direct_ns);
    w->direct_ns = 0;
    mr_trace_span("samples", start, w->lap_ns, "batch", run->t);
}

/* A run whose batch's rows are being found has none left: tells the slot what it found. An error
 * that left it without rows would otherwise be no row's. */
static void note_found(struct mr_worker *w, const struct mr_run *run)
{
    struct mr_slot *slot = mr_ring_slot(&w->ld->ring, run->t);
    if (run->row0 == 0)
        slot->info = run->info;
    atomic_fetch_add_explicit(&slot->n_found, run->n + (run->last ? MR_FOUND_LAST : 0),
                              memory_order_relaxed);
    if (run->error.code < 0 && run->n == 0) {
        mr_error_put(&run->error);
        mr_bad_add(w->ld, slot, run->row0, NULL, run->error.code, true);
        atomic_fetch_add_explicit(&slot->n_found, MR_RUN_FAILED, memory_order_relaxed);
    }
}

/* Makes those samples of a run whose bytes are there. Returns whether that brought it forward. */
static bool make_run(struct mr_worker *w, struct mr_run *run)
{
    note_claim(w->ld, run, w->lap_ns);
    mr_watch_since(&w->watch, w->lap_ns);
    uint32_t made = make_landed(w, run);
    run->n_done += made;
    w->n_samples += made;
    if (made > 0)
        count_made(w, run, made);
    uint32_t rows = run->n_done == run->n ? run->n_left : made;
    if (rows == 0)
        return false;
    run->n_left -= rows;
    if (w->ld->plan.finds && run->n_left == 0)
        note_found(w, run);
    mr_complete_rows(w, run->t, rows);
    return true;
}

/* Its slot cannot be open yet, nor those of later runs. */
static bool is_far(struct mr_worker *w, const struct mr_run *run)
{
    const struct mr_loader *ld = w->ld;
    if (ld->opts.in_order)
        return run->t - mr_nth_run(w, 0)->t >= ld->ring.n_slots;
    return run->t >= atomic_load(&ld->opening.next) && run->t < mr_ring_total(&ld->ring);
}

/* Makes a run, or has it made: then it is made once that is done, and others meanwhile. */
static bool bring_forward(struct mr_worker *w, struct mr_run *run, bool first)
{
    if (!w->ld->posts)
        return make_run(w, run);
    if (!run->posted && mr_posted_begin(w, run))
        return true;
    return (run->posted ? mr_posted_made(w, run) : first) && make_run(w, run);
}

/* Goes over the runs in flight, earliest first, for about a round's time, and drops those that are
 * done from the front. */
static bool make_ready(struct mr_worker *w)
{
    bool progress = false;
    uint64_t start_ns = w->lap_ns;
    for (uint32_t i = 0; i < w->n_runs && w->lap_ns - start_ns < ROUND_NS; i++) {
        struct mr_run *run = mr_nth_run(w, i);
        if (is_far(w, run))
            break;
        if (run->t >= mr_ring_total(&w->ld->ring)) /* it has no rows, and no slot will be open */
            run->n_left = 0;
        else if (run->n_left > 0 && (run->posted || mr_ring_is_open(&w->ld->ring, run->t)))
            progress |= bring_forward(w, run, i == 0);
        if (w->ld->posts && run->n_left > 0 && !run->posted)
            break; /* later ones would hold the jobs that it needs */
    }
    while (w->n_runs > 0 && is_over(mr_nth_run(w, 0))) {
        mr_run_end(w, mr_nth_run(w, 0));
        w->spare[w->n_spare++] = mr_nth_run(w, 0);
        w->first = (w->first + 1) % (uint32_t)w->ld->sizes.runs_per_worker;
        w->n_runs--;
        w->n_sent -= w->n_sent > 0;
        progress = true;
    }
    return progress;
}

/* Which sample it waits for: the first one of the run that is not made. */
static void note_wait(struct mr_worker *w, const struct mr_run *run, bool open)
{
    uint32_t i = 0;
    while (i < run->n && run->sample[i].done)
        i++;
    if (!open || i == run->n) {
        mr_watch_note(&w->watch, 0, 0, MR_TASK_NONE);
        return;
    }
    uint64_t since = run->posted ? run->posted_ns : w->lap_ns;
    for (int e = 0; e < run->sample[i].n_extents; e++) {
        const struct mr_read *read = run->sample[i].extent[e].read;
        if (read && !run->landed[read - run->read] && (size_t)(read - run->read) < run->n_submitted)
            since = MR_MIN(since, read->submit_ns);
    }
    mr_watch_since(&w->watch, since);
    mr_watch_note(&w->watch, run->t, run->row0 + i, run->posted ? MR_TASK_DECODE : MR_TASK_READ);
}

/* For reads. Meanwhile slots may open for later runs whose bytes are there. */
static uint64_t reap_wait_ns(struct mr_worker *w)
{
    if (w->held_back)
        return FAIR_WAIT_NS;
    return !w->ld->opts.in_order && is_far(w, mr_nth_run(w, w->n_runs - 1)) ? OPEN_WAIT_NS
                                                                            : REAP_WAIT_NS;
}

/* Lets another worker go first, if one has waited long enough. */
static bool pass_permit(struct mr_worker *w)
{
    if (!mr_permit_is_due(&w->permit, w->lap_ns))
        return true;
    mr_permit_return(&w->permit);
    return take_permit(w);
}

/* Fails batch t if its slot got no memory. false: stop. */
static bool was_opened(struct mr_worker *w, uint64_t t, int rc)
{
    struct mr_ring *ring = &w->ld->ring;
    if (rc < 0) {
        mr_bad_add(w->ld, mr_ring_slot(ring, t), 0, NULL, rc, true);
        mr_ring_ready(ring, mr_ring_slot(ring, t), t);
    }
    return rc != 0;
}

/* Memory for a slot. It is no stage's time, as each slot takes it once. false: stop. */
static bool acquire_slot(struct mr_worker *w)
{
    uint64_t t = w->lacking;
    mr_watch_note(&w->watch, 0, 0, MR_TASK_NONE);
    mr_permit_return(&w->permit);
    bool go = was_opened(w, t, mr_ring_acquire_host(&w->ld->ring, t));
    uint64_t start = lap(w, &w->parked_ns);
    mr_trace_span("slot memory", start, w->lap_ns, "batch", t);
    return go && take_permit(w);
}

/* Nothing could be done: waits for a slot, for reads, or for rows that the data set makes. false:
 * stop. */
static bool wait_for_something(struct mr_worker *w)
{
    struct mr_loader *ld = w->ld;
    struct mr_run *run = mr_nth_run(w, 0);
    bool open = run->n_left == 0 || mr_ring_is_open(&ld->ring, run->t);
    bool go = true;
    w->ahead.starved |= open;
    note_wait(w, run, open);
    mr_permit_return(&w->permit);
    const char *what = open ? "wait: read" : "wait: slot";
    _Atomic uint64_t *stage_ns = &w->stage_ns[open ? MR_STAGE_READ : MR_STAGE_SLOT];
    if (run->posted) {
        mr_posted_wait(w);
        what = "wait: samples";
        stage_ns = &w->made_ns;
    } else if (open && w->reader) {
        reap(w, reap_wait_ns(w));
    } else {
        go = was_opened(w, run->t, mr_ring_wait_open(&ld->ring, run->t));
    }
    uint64_t start = lap(w, stage_ns);
    mr_trace_span(what, start, w->lap_ns, "batch", run->t);
    return go && take_permit(w);
}

/* It has nothing to do for now. false: it has nothing to do any more. */
static bool park(struct mr_worker *w)
{
    if (w->no_more || w->id < mr_knobs_workers(w->ld))
        return false;
    mr_watch_note(&w->watch, 0, 0, MR_TASK_NONE);
    mr_permit_return(&w->permit);
    atomic_store(&w->parked_since, w->lap_ns);
    bool go = mr_knobs_park(w->ld, w->id);
    lap(w, &w->parked_ns);
    atomic_store(&w->parked_since, 0);
    return go && take_permit(w);
}

/* It found nothing to do. The first batch does not wait for a worker that has rows of it and gets
 * memory for another one. false: it ends. */
static bool rest(struct mr_worker *w)
{
    struct mr_ring *ring = &w->ld->ring;
    bool asked = false;
    if (w->lacking != UINT64_MAX && !mr_ring_lacks_host(ring, w->lacking, &asked))
        return true; /* it has memory by now: claim again */
    if (w->lacking != UINT64_MAX && (w->n_runs == 0 || (!asked && mr_counted(&ring->n_ready) > 0)))
        return acquire_slot(w);
    return w->n_runs == 0 ? park(w) : wait_for_something(w);
}

static void work(struct mr_worker *w)
{
    while (!atomic_load_explicit(&w->ld->ring.stop, memory_order_relaxed)) {
        bool progress = false;
        for (int i = 0; i < CLAIMS_A_ROUND && claim(w); i++)
            progress = true;
        if (w->reader) {
            submit(w);
            reap(w, 0);
        }
        uint64_t start = lap(w, &w->stage_ns[MR_STAGE_READ]);
        if (w->lap_ns - start >= TRACE_READ_NS)
            mr_trace_span("read", start, w->lap_ns, NULL, 0);
        progress |= make_ready(w);
        progress |= mr_complete_late(w, !progress);
        if (!pass_permit(w))
            return;
        if (progress)
            continue;
        if (!rest(w))
            return;
    }
}

/* If it fails, the worker's runs fail. */
static void enter_dataset(struct mr_worker *w)
{
    const struct mr_dataset *ds = w->ld->ds;
    int rc = ds->ops->enter ? ds->ops->enter(ds, w->id, &w->state) : 0;
    if (rc < 0)
        mr_error_keep(rc, &w->entered);
}

static void leave_dataset(struct mr_worker *w)
{
    const struct mr_dataset *ds = w->ld->ds;
    if (ds->ops->leave && w->entered.code == 0)
        ds->ops->leave(ds, w->id, w->state);
}

void *mr_worker_main(void *worker)
{
    struct mr_worker *w = worker;
    char name[16];
    snprintf(name, sizeof name, "worker %u", w->id);
    mr_trace_thread(name);
    mr_gate_worker(w->ld);
    mr_interruptible_by(&w->ld->ring.stop); /* what the data set reads by itself */
    uint64_t start = w->lap_ns = mr_time_ns();
    prctl(PR_SET_TIMERSLACK, MR_NAP_SLACK_NS, 0, 0, 0);
    if (w->id < w->ld->workers.n_near)
        sched_setaffinity(0, sizeof w->ld->workers.near, &w->ld->workers.near); /* best effort */
    bool entered = mr_device_enter(w->ld->device) == 0; /* else each call says so */
    enter_dataset(w);
    if (take_permit(w))
        work(w);
    mr_posted_drop(w);
    mr_permit_return(&w->permit);
    leave_dataset(w);
    mr_watch_note(&w->watch, 0, 0, MR_TASK_NONE);
    if (entered)
        mr_device_leave(w->ld->device);
    atomic_store(&w->life_ns, mr_time_ns() - start);
    return NULL;
}
