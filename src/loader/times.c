/* Which batches are timed, their times, and how much of copying and use was at once. */
#include "loader/engine.h"

/* Batches that are further apart are all timed; nearer ones so seldom that it costs a few percent.
 */
#define TIMING_NS  300000
#define MOST_SKIPS 64

/* Brackets the base event by the host's clock, closely: the first records on a device take longer.
 */
#define BASE_TRIES 10
#define BASE_NEAR  40000

static int mark_base(struct mr_loader *ld)
{
    uint64_t from = 0, to = BASE_NEAR + 1;
    int rc = mr_event_create(ld->device, 1, &ld->times.base);
    if (rc < 0)
        return rc;
    for (int i = 0; i < BASE_TRIES && to - from > BASE_NEAR; i++) {
        from = mr_time_ns();
        rc = mr_event_record(ld->times.base, ld->ship.stream[0]);
        if (rc < 0)
            return rc;
        rc = mr_event_synchronize(ld->times.base);
        if (rc < 0)
            return rc;
        to = mr_time_ns();
    }
    ld->times.base_ns = from + (to - from) / 2;
    return 0;
}

int mr_times_init(struct mr_loader *ld)
{
    ld->times.kept = calloc(MR_TIMES, sizeof *ld->times.kept);
    if (!ld->times.kept)
        return mr_error_nomem("copy times", MR_TIMES * sizeof *ld->times.kept);
    ld->times.burst_batches = MR_MAX(4ull * ld->ring.n_slots, 64);
    ld->times.burst_timed[0] = true;
    ld->times.burst_ns = mr_time_ns();
    return mark_base(ld);
}

void mr_times_free(struct mr_loader *ld)
{
    if (ld->times.base)
        mr_event_destroy(ld->times.base);
    free(ld->times.kept);
}

/* The device's queues as tracks of a trace. The simulated device shows its engines itself. */
static void trace_times(const struct mr_loader *ld, const struct mr_slot_clock *clock,
                        const struct mr_batch_times *t, bool used)
{
    static const char *const tracks[MR_MAX_STREAMS] = {
        "H2D copy stream",    "H2D copy stream 2",  "H2D copy stream 3",  "H2D copy stream 4",
        "H2D copy stream 5",  "H2D copy stream 6",  "H2D copy stream 7",  "H2D copy stream 8",
        "H2D copy stream 9",  "H2D copy stream 10", "H2D copy stream 11", "H2D copy stream 12",
        "H2D copy stream 13", "H2D copy stream 14", "H2D copy stream 15", "H2D copy stream 16"};
    uint64_t base = ld->times.base_ns;
    if (!mr_trace_on() || !ld->device_info.pci_id[0])
        return;
    mr_trace_span_on(tracks[clock->stream], "copy", base + (uint64_t)t->copy_start,
                     base + (uint64_t)t->copy_end, "batch", clock->t);
    if (used)
        mr_trace_span_on("consumer stream", "step", base + (uint64_t)t->use_start,
                         base + (uint64_t)t->use_end, "batch", clock->t);
}

static int read_times(const struct mr_loader *ld, const struct mr_slot_clock *clock, bool used,
                      struct mr_batch_times *t)
{
    int rc = mr_event_elapsed(ld->times.base, clock->copy_start, &t->copy_start);
    if (rc < 0)
        return rc;
    rc = mr_event_elapsed(ld->times.base, clock->copy_end, &t->copy_end);
    if (rc < 0 || !used)
        return rc;
    rc = mr_event_elapsed(ld->times.base, clock->use_start, &t->use_start);
    return rc < 0 ? rc : mr_event_elapsed(ld->times.base, clock->use_end, &t->use_end);
}

/* Keeps the times of the batch that used these events, if they are all passed. [ship_lock] */
static void keep_times(struct mr_loader *ld, struct mr_slot_clock *clock)
{
    struct mr_batch_times t = {.lead = clock->lead};
    if (!clock->copy_recorded || mr_event_query(clock->copy_end) != 1)
        return;
    bool used = clock->start_recorded && clock->end_recorded;
    if (used && mr_event_query(clock->use_end) != 1)
        return;
    if (read_times(ld, clock, used, &t) == 0) {
        ld->times.kept[ld->times.n++ % MR_TIMES] = t;
        mr_count(&ld->times.copy_ns, (uint64_t)MR_MAX(t.copy_end - t.copy_start, 0));
        mr_count(&ld->times.used_ns, used ? (uint64_t)MR_MAX(t.use_end - t.use_start, 0) : 0);
        mr_count(&ld->times.used_batches, used);
        trace_times(ld, clock, &t, used);
    }
    clock->copy_recorded = clock->start_recorded = clock->end_recorded = false;
}

/* Decides on a burst when its first batch comes. Batches under way belong to two at most: one is
 * four rings long. */
static void decide_burst(struct mr_loader *ld, uint64_t burst)
{
    uint64_t now = mr_time_ns(), period = (now - ld->times.burst_ns) /
                                          ((burst - ld->times.burst) * ld->times.burst_batches);
    uint64_t every = MR_MAX(MR_MIN(TIMING_NS / MR_MAX(period, 1), MOST_SKIPS), 1);
    bool timed = burst - ld->times.last_timed >= every;
    if (timed) {
        ld->times.burst_leads = !ld->times.burst_timed[(burst - 1) % 2];
        ld->times.last_timed = burst;
    }
    ld->times.burst_timed[burst % 2] = timed;
    ld->times.burst = burst;
    ld->times.burst_ns = now;
}

struct mr_slot_clock *mr_times_choose(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    uint64_t n = ld->times.n_shipped++, burst = n / ld->times.burst_batches;
    struct mr_slot_clock *clock = &slot->clock[slot->n_clocked++ % 2];
    if (burst > ld->times.burst)
        decide_burst(ld, burst);
    bool in_burst = ld->times.burst_timed[burst % 2];
    if (!in_burst && !mr_trace_on())
        return NULL;
    keep_times(ld, clock);
    clock->copy_recorded = clock->start_recorded = clock->end_recorded = false;
    clock->t = t;
    clock->stream = (int)(slot->id % ld->opts.streams);
    clock->lead = !in_burst || (burst == ld->times.last_timed && ld->times.burst_leads &&
                                n % ld->times.burst_batches < ld->ring.n_slots);
    return clock;
}

struct interval {
    int64_t start, end;
};

static int by_start(const void *a, const void *b)
{
    int64_t x = ((const struct interval *)a)->start, y = ((const struct interval *)b)->start;
    return (x > y) - (x < y);
}

/* Sorts intervals and joins those that touch. Returns how many are left; *total: their length
 * together. */
static uint64_t unite(struct interval *v, uint64_t n, uint64_t *total)
{
    uint64_t kept = 0;
    qsort(v, n, sizeof *v, by_start);
    for (uint64_t i = 0; i < n; i++) {
        if (kept > 0 && v[i].start <= v[kept - 1].end)
            v[kept - 1].end = MR_MAX(v[kept - 1].end, v[i].end);
        else
            v[kept++] = v[i];
    }
    *total = 0;
    for (uint64_t i = 0; i < kept; i++)
        *total += (uint64_t)(v[i].end - v[i].start);
    return kept;
}

static uint64_t common(const struct interval *a, uint64_t n_a, const struct interval *b,
                       uint64_t n_b)
{
    uint64_t sum = 0;
    for (uint64_t i = 0, k = 0; i < n_a && k < n_b;) {
        int64_t start = MR_MAX(a[i].start, b[k].start), end = MR_MIN(a[i].end, b[k].end);
        sum += end > start ? (uint64_t)(end - start) : 0;
        if (a[i].end < b[k].end)
            i++;
        else
            k++;
    }
    return sum;
}

void mr_times_overlap(struct mr_loader *ld, struct mr_loader_stats *out)
{
    struct interval *copy = ld->times.kept ? calloc(3 * MR_TIMES, sizeof *copy) : NULL;
    if (!copy)
        return; /* a device without copies, or no memory: no figures */
    struct interval *use = copy + MR_TIMES, *all_use = use + MR_TIMES;
    uint64_t n_copy = 0, n_use = 0, n_all = 0, all_ns;
    pthread_mutex_lock(&ld->ship.lock);
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all)
        for (int k = 0; k < 2; k++)
            if (slot->clock[k].end_recorded)
                keep_times(ld, &slot->clock[k]);
    for (uint64_t i = 0; i < MR_MIN(ld->times.n, MR_TIMES); i++) {
        const struct mr_batch_times *t = &ld->times.kept[i];
        struct interval used = {t->use_start, t->use_end};
        if (!t->lead)
            copy[n_copy++] = (struct interval){t->copy_start, t->copy_end};
        if (t->use_end > t->use_start)
            all_use[n_all++] = used;
        if (t->use_end > t->use_start && !t->lead)
            use[n_use++] = used;
    }
    out->used_ns = mr_counted(&ld->times.used_ns);
    out->used_batches = mr_counted(&ld->times.used_batches);
    out->copy_ns = mr_counted(&ld->times.copy_ns);
    if (ld->times.n > 0 && out->batches > ld->times.n)
        out->copy_ns =
            (uint64_t)((double)out->copy_ns * (double)out->batches / (double)ld->times.n);
    /* Batches that came slowly are timed more often: what is reckoned from them can be more than
     * there was time for. */
    out->copy_ns = MR_MIN(out->copy_ns, out->elapsed_ns * ld->opts.streams);
    pthread_mutex_unlock(&ld->ship.lock);
    out->timed_batches = n_copy;
    n_copy = unite(copy, n_copy, &out->timed_copy_ns);
    unite(use, n_use, &out->timed_use_ns);
    n_all = unite(all_use, n_all, &all_ns);
    out->timed_both_ns = common(copy, n_copy, all_use, n_all);
    free(copy);
}
