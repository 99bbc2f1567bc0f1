/* The steps of the simulated consumer: what they occupy, and how much of the time they did. */
#include "feed/feed.h"

#define LONG_NS     20000000  /* steps that are cut when the run stops; others are waited for */
#define AHEAD_NS    100000000 /* of steps in the queue, so that the device never waits for us */
#define LEAST_AHEAD 2
#define SHORT_NS    1000000 /* no limit below: even a full queue of them ends soon */

_Static_assert(AHEAD_NS / SHORT_NS + 1 == FEED_STEPS_ENDS, "events for the most steps ahead");

/* One for each step that may be in the queue, and one for the step before. */
static uint32_t count_ends(uint64_t step_ns, bool unified)
{
    if (step_ns < SHORT_NS || unified)
        return 0;
    uint32_t ahead = (uint32_t)(AHEAD_NS / step_ns);
    return (ahead < LEAST_AHEAD ? LEAST_AHEAD : ahead) + 1;
}

int feed_steps_open(struct feed *feed)
{
    struct feed_steps *s = &feed->steps;
    double sink = feed->opts->sink_ms * 1e6;
    feed->result.step_ns = sink > 0 ? (uint64_t)sink : feed->pipe.info.step_ns;
    s->can_stop = feed->result.step_ns >= LONG_NS;
    s->n_ends = count_ends(feed->result.step_ns, feed->pipe.info.unified);
    int rc = mr_event_create(feed->pipe.dev, 1, &s->first);
    if (rc < 0)
        return rc;
    rc = mr_event_create(feed->pipe.dev, 1, &s->last);
    for (uint32_t i = 0; i < s->n_ends && rc == 0; i++)
        rc = mr_event_create(feed->pipe.dev, 1, &s->end[i]);
    return rc;
}

void feed_steps_close(struct feed *feed)
{
    struct feed_steps *s = &feed->steps;
    mr_event_destroy(s->first);
    mr_event_destroy(s->last);
    for (uint32_t i = 0; i < s->n_ends; i++)
        mr_event_destroy(s->end[i]);
}

static int launch(struct feed *feed)
{
    struct feed_steps *s = &feed->steps;
    const struct mr_kernel_busy busy = {feed->result.step_ns, &s->stop};
    int rc = MR_EUNSUPPORTED;
    if (s->can_stop)
        rc = mr_launch(feed->pipe.stream, "busy", &busy, sizeof busy);
    if (rc != MR_EUNSUPPORTED)
        return rc;
    s->can_stop = false; /* short steps, or a GPU's */
    return mr_launch(feed->pipe.stream, "busy", &busy.ns, sizeof busy.ns);
}

/* Else the queue would hold as many steps as there are batches ahead, and a run that is to end now
 * would end when they have. */
static int wait_for_earlier(struct feed_steps *s)
{
    uint64_t ahead = s->n_ends - 1;
    return s->n < ahead ? 0 : mr_event_synchronize(s->end[(s->n - ahead) % s->n_ends]);
}

int feed_steps_add(struct feed *feed)
{
    struct feed_steps *s = &feed->steps;
    struct mr_stream *stream = feed->pipe.stream;
    int rc = s->n_ends > 0 ? wait_for_earlier(s) : 0;
    if (rc == 0 && feed->result.step_ns)
        rc = launch(feed);
    if (rc == 0 && s->n == 0)
        rc = mr_event_record(s->first, stream);
    if (rc == 0 && s->n_ends > 0)
        rc = mr_event_record(s->end[s->n % s->n_ends], stream);
    s->n += rc == 0;
    return rc;
}

void feed_steps_stop(struct feed *feed)
{
    __atomic_store_n(&feed->steps.stop, 1, __ATOMIC_RELEASE);
}

/* Steps that were cut short took no longer than from the end of the one before to their own end. */
static void find_cut(struct feed *feed)
{
    struct feed_steps *s = &feed->steps;
    int64_t ns;
    for (uint64_t i = s->n > s->n_ends ? s->n - s->n_ends + 1 : 1; i < s->n; i++) {
        if (mr_event_elapsed(s->end[(i - 1) % s->n_ends], s->end[i % s->n_ends], &ns) < 0 ||
            (uint64_t)ns >= feed->result.step_ns)
            continue;
        feed->result.cut_steps++;
        s->cut_ns += feed->result.step_ns - (uint64_t)ns;
    }
}

void feed_steps_end(struct feed *feed)
{
    struct feed_steps *s = &feed->steps;
    bool ended = s->n > 1 && mr_event_record(s->last, feed->pipe.stream) == 0;
    int64_t span;
    mr_stream_synchronize(feed->pipe.stream);
    if (ended && mr_event_elapsed(s->first, s->last, &span) == 0 && span > 0)
        feed->result.span_seconds = (double)span * 1e-9;
    if (s->stop && s->can_stop && s->n_ends > 0)
        find_cut(feed);
}

/* On the host a step's real length counts: a sleep takes longer than it says. */
double feed_steps_utilization(const struct feed *feed)
{
    const struct feed_result *r = &feed->result;
    if (!r->step_ns || r->span_seconds <= 0)
        return -1;
    double busy = (double)r->stats.consumer_busy_ns;
    if (!feed->pipe.info.unified)
        busy = (double)(feed->steps.n - 1) * (double)r->step_ns - (double)feed->steps.cut_ns;
    return busy * 1e-9 < r->span_seconds ? busy * 1e-9 / r->span_seconds : 1;
}
