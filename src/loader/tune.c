/* Which numbers of workers and batches ahead serve the consumer best: trials while it runs. */
#include "loader/tune.h"
#include "loader/engine.h"

#include <math.h>
#include <stdio.h>

#define BASE_NS     500000000u /* the first window */
#define WINDOW_NS   350000000u
#define SKIP        2 /* batches after a change, which were begun before it */
#define MIN_BATCHES 8 /* of a window */
#define LONG_NS     500000000u
#define FEW_BATCHES 3   /* of a window that lasts so long */
#define UNSTEADY    0.1 /* windows of one setting that differ by more say little: look again */
#define MOST_AGAIN  2
#define CLEAR       1.3 /* times the rate: needs no second look */
#define MOST_NS     10000000000u
#define GAIN        0.02 /* less is not worth more threads or memory */
#define LOSS        0.01 /* more is not worth fewer threads */
#define HARDLY      0.02 /* a consumer that waits for less of its time does not wait for us */

static bool tunes_workers(const struct mr_loader *ld)
{
    return ld->opts.workers == 0 && !ld->ds->unordered;
}

static bool is_same(const struct mr_tune_setting *a, const struct mr_tune_setting *b)
{
    return a->workers == b->workers && a->prefetch == b->prefetch;
}

/* Batches that wait to be handed out. */
static uint64_t count_ready(const struct mr_loader *ld)
{
    uint64_t ready = mr_counted(&ld->ring.n_ready), out = ld->handout.next_batch;
    return ready > out ? ready - out : 0;
}

static void begin_window(struct mr_loader *ld, uint64_t now)
{
    ld->tune.from_ns = now;
    ld->tune.from_wait_ns = mr_counted(&ld->stats.wait_ns);
    ld->tune.ready = count_ready(ld);
    ld->tune.batches = ld->tune.samples = 0;
}

/* Samples a second that can go on: those that were handed out, less those of them that were ready
 * before and were not made again. */
static double rate_of(const struct mr_loader *ld, uint64_t now)
{
    const struct mr_tune *t = &ld->tune;
    double used_up = (double)t->ready - (double)count_ready(ld);
    double kept = used_up > 0 ? 1 - used_up / (double)t->batches : 1;
    return (double)t->samples * MR_MAX(kept, 0.01) * 1e9 / (double)MR_MAX(now - t->from_ns, 1);
}

static void begin(struct mr_loader *ld, uint64_t now)
{
    struct mr_tune *t = &ld->tune;
    t->begun_ns = now;
    t->first.workers = mr_knobs_workers(ld);
    t->first.prefetch = atomic_load(&ld->ring.ahead);
    t->best = t->first;
    t->skip = SKIP;
}

static void apply(struct mr_loader *ld, const struct mr_tune_setting *s)
{
    uint32_t ahead = atomic_load(&ld->ring.ahead);
    if (mr_knobs_workers(ld) == s->workers && ahead == s->prefetch)
        return;
    ld->tune.skip = SKIP;
    mr_knobs_set(ld, s->workers, s->prefetch);
}

/* The settings were compared in turn. The rate of the first window is lower: it was at the start,
 * when caches were cold. */
static double first_rate(const struct mr_tune *t)
{
    return t->first_rate > 0 ? t->best_rate / t->gained : 0;
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void explain(const struct mr_loader *ld, char *out, size_t cap)
{
    const struct mr_tune *t = &ld->tune;
    uint32_t w = t->best.workers, p = t->best.prefetch;
    if (t->first_rate == 0)
        snprintf(out, cap, "too few batches so far to compare anything");
    else if (t->n_tried == 0)
        snprintf(out, cap,
                 "nothing was compared: %s; %u worker%s and %u batch%s ahead as at the start",
                 t->phase == MR_TUNE_DONE && t->complete ? "there was nothing to try"
                                                         : "batches take too long, or the run was "
                                                           "too short",
                 w, plural(w), p, p == 1 ? "" : "es");
    else if (t->waited < HARDLY)
        snprintf(out, cap,
                 "the consumer waited for %.1f%% of its time only, so it cannot be served faster; "
                 "%u worker%s %s enough, of %u",
                 100 * t->waited, w, plural(w), w == 1 ? "is" : "are", t->first.workers);
    else
        snprintf(out, cap,
                 "%u worker%s and %u batch%s ahead: %.*f samples/s, %.2f x the %.*f with %u and %u "
                 "at the start; more of either gained less than %.0f%%, fewer workers lost more "
                 "than %.0f%%%s",
                 w, plural(w), p, p == 1 ? "" : "es", t->best_rate < 100, t->best_rate, t->gained,
                 first_rate(t) < 100, first_rate(t), t->first.workers, t->first.prefetch,
                 100 * GAIN, 100 * LOSS, t->complete ? "" : ", among the settings tried so far");
}

static void finish(struct mr_loader *ld, uint64_t now)
{
    struct mr_tune *t = &ld->tune;
    t->phase = MR_TUNE_DONE;
    t->ended_ns = now;
    apply(ld, &t->best);
    t->skip = 0;
    char reason[320];
    explain(ld, reason, sizeof reason);
    mr_log(MR_LOG_INFO, "tune: %s", reason);
}

/* The fewest workers that may do lie between `low`, which do not, and the best's. */
static bool is_narrow(const struct mr_tune *t)
{
    return t->best.workers - t->low <= MR_MAX(1, t->top.workers / 16);
}

/* What to compare next with what. false: nothing is left. */
static bool propose(struct mr_loader *ld)
{
    struct mr_tune *t = &ld->tune;
    t->other = t->best;
    if (t->phase == MR_TUNE_WORKERS) {
        t->other.workers = MR_MIN(2 * t->best.workers, ld->workers.n);
        if (tunes_workers(ld) && t->other.workers > t->best.workers)
            return true;
        t->phase = MR_TUNE_PREFETCH;
        t->other = t->best;
    }
    if (t->phase == MR_TUNE_PREFETCH) {
        t->other.prefetch = MR_MIN(2 * t->best.prefetch, ld->ring.n_slots);
        if (ld->opts.prefetch == 0 && t->other.prefetch > t->best.prefetch)
            return true;
        t->phase = MR_TUNE_FEWER;
        t->other = t->top = t->best;
    }
    if (!tunes_workers(ld) || is_narrow(t))
        return false;
    t->other.workers = (t->low + t->best.workers) / 2;
    return true;
}

static void next_trial(struct mr_loader *ld, uint64_t now)
{
    struct mr_tune *t = &ld->tune;
    if (!propose(ld)) {
        t->complete = true;
        finish(ld, now);
        return;
    }
    t->window = 0;
    apply(ld, t->phase == MR_TUNE_FEWER ? &t->top : &t->best);
}

/* More workers that all but multiply the rate. */
static bool is_clear(struct mr_tune *t)
{
    if (t->window != 2 || t->phase == MR_TUNE_FEWER || t->rate[1] < CLEAR * t->rate[0])
        return false;
    t->rate[2] = t->rate[1];
    t->rate[3] = t->rate[0];
    return true;
}

static void judge(struct mr_tune *t)
{
    double a = (t->rate[0] + t->rate[3]) / 2, b = (t->rate[1] + t->rate[2]) / 2;
    double spread = MR_MAX(fabs(t->rate[0] - t->rate[3]) / a, fabs(t->rate[1] - t->rate[2]) / b);
    double gain = b / a - 1;
    bool fewer = t->phase == MR_TUNE_FEWER;
    t->n_tried++;
    if (spread > UNSTEADY && fabs(gain) <= spread && t->n_again < MOST_AGAIN) {
        t->n_again++; /* the same is proposed again */
        return;
    }
    t->n_again = 0;
    if (fewer ? gain > -LOSS : gain > MR_MAX(GAIN, spread)) {
        t->gained *= fewer ? 1 : b / a;
        t->best = t->other;
        t->best_rate = b;
    } else if (fewer) {
        t->low = t->other.workers;
        t->best_rate = is_same(&t->best, &t->top) ? a : t->best_rate;
    } else {
        t->best_rate = a;
        t->phase = t->phase == MR_TUNE_WORKERS ? MR_TUNE_PREFETCH : MR_TUNE_FEWER;
        t->top = t->best;
    }
}

static void end_base(struct mr_loader *ld, double rate, uint64_t now)
{
    struct mr_tune *t = &ld->tune;
    t->first_rate = t->best_rate = rate;
    t->gained = 1;
    t->waited = (double)(mr_counted(&ld->stats.wait_ns) - t->from_wait_ns) /
                (double)MR_MAX(now - t->from_ns, 1);
    bool lasts = count_ready(ld) >= t->ready; /* or it does not wait yet */
    t->phase = t->waited < HARDLY && lasts ? MR_TUNE_FEWER : MR_TUNE_WORKERS;
    t->top = t->best;
    next_trial(ld, now);
}

static void end_window(struct mr_loader *ld, uint64_t now)
{
    struct mr_tune *t = &ld->tune;
    double rate = rate_of(ld, now);
    if (t->phase == MR_TUNE_BASE) {
        end_base(ld, rate, now);
        return;
    }
    t->rate[t->window++] = rate;
    if (t->window < 4 && !is_clear(t)) {
        apply(ld, t->window < 3 ? &t->other : t->phase == MR_TUNE_FEWER ? &t->top : &t->best);
        return;
    }
    judge(t);
    next_trial(ld, now);
}

/* Is the window, which lasts so long, long enough? */
static bool is_over(const struct mr_tune *t, uint64_t ns)
{
    if (t->batches < FEW_BATCHES || (t->batches < MIN_BATCHES && ns < LONG_NS))
        return false;
    return ns >= (t->phase == MR_TUNE_BASE ? BASE_NS : WINDOW_NS);
}

void mr_tune_batch(struct mr_loader *ld, uint64_t samples)
{
    struct mr_tune *t = &ld->tune;
    if (!ld->opts.tune || t->phase == MR_TUNE_DONE)
        return;
    uint64_t now = ld->handout.last_return_ns;
    if (!t->begun_ns)
        begin(ld, now);
    if (now - t->begun_ns > MOST_NS) {
        finish(ld, now);
        return;
    }
    if (t->skip > 0) {
        t->skip--;
        if (t->skip == 0)
            begin_window(ld, now);
        return;
    }
    t->batches++;
    t->samples += samples;
    if (!is_over(t, now - t->from_ns))
        return;
    end_window(ld, now);
    begin_window(ld, now);
}

static void query(struct mr_loader *ld, struct mr_loader_tuning *out)
{
    const struct mr_tune *t = &ld->tune;
    mr_consumers_lock(ld);
    uint64_t end = t->ended_ns ? t->ended_ns : mr_time_ns();
    *out = (struct mr_loader_tuning){
        .done = t->phase == MR_TUNE_DONE,
        .workers = t->begun_ns ? t->best.workers : mr_knobs_workers(ld),
        .prefetch = t->begun_ns ? t->best.prefetch : atomic_load(&ld->ring.ahead),
        .first_workers = t->begun_ns ? t->first.workers : mr_knobs_workers(ld),
        .first_prefetch = t->begun_ns ? t->first.prefetch : atomic_load(&ld->ring.ahead),
        .n_tried = t->n_tried,
        .rate = t->best_rate,
        .first_rate = first_rate(t),
        .seconds = t->begun_ns ? (double)(end - t->begun_ns) * 1e-9 : 0,
    };
    explain(ld, out->reason, sizeof out->reason);
    mr_consumers_unlock(ld);
}

int mr_loader_tuning(struct mr_loader *ld, struct mr_loader_tuning *out)
{
    struct mr_loader_tuning now;
    if (!ld)
        return mr_error_null("mr_loader_tuning", "a loader");
    int rc = mr_info_check("loader_tuning", out, sizeof now);
    if (rc < 0)
        return rc;
    if (!ld->opts.tune)
        return mr_error_set(MR_EMISUSE, "mr_loader_tuning: the loader was opened without tune");
    query(ld, &now);
    return mr_info_give("loader_tuning", out, &now, sizeof now);
}
