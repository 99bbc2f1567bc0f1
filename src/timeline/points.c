/* Counters and their points. */
#include "timeline/timeline.h"

#include <errno.h>
#include <math.h>

struct mr_tl_counter *mr_timeline_counter(struct mr_timeline *tl)
{
    struct mr_tl_counter *counters =
        realloc(tl->counters, (tl->n_counters + 1) * sizeof(*counters));
    if (!counters) {
        mr_error_nomem("timeline: counters", (tl->n_counters + 1) * sizeof(*counters));
        return NULL;
    }
    tl->counters = counters;
    struct mr_tl_counter *counter = &counters[tl->n_counters++];
    *counter = (struct mr_tl_counter){.device = UINT16_MAX};
    return counter;
}

int mr_timeline_point(struct mr_tl_counter *counter, uint64_t time_ns, double value)
{
    struct mr_tl_counter *c = counter;
    if (mr_grow("timeline: counters", &c->points, &c->room, c->n + 1, sizeof(*c->points)) < 0)
        return -ENOMEM;
    if (!isfinite(value))
        value = 0;
    counter->most = MR_MAX(counter->most, value);
    counter->points[counter->n++] = (struct mr_tl_point){time_ns, value};
    return 0;
}
