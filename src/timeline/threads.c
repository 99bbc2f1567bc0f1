/* Which threads matter: those that launch work, those that work, and those that only wait. */
#include "timeline/timeline.h"

#include <errno.h>
#include <string.h>

#define WORKS 50 /* a thread works that does for a 50th of the time */

struct doing {
    uint64_t first_ns, last_ns, waits_ns;
    bool launches, has_ranges;
};

enum { UNKNOWN, WAITS, DOES };

/* waits: of names, what is known of them so far. */
static bool is_wait(const struct mr_timeline *tl, uint32_t name, uint8_t *waits)
{
    if (waits[name] == UNKNOWN)
        waits[name] = mr_os_waits(mr_timeline_name(tl, name)) == 1 ? WAITS : DOES;
    return waits[name] == WAITS;
}

static void look_at(const struct mr_timeline *tl, const struct mr_lane *lane, uint8_t *waits,
                    struct doing *d)
{
    for (uint64_t i = 0; i < lane->n; i++) {
        const struct mr_tl_event *event = &lane->events[i];
        d->first_ns = MR_MIN(d->first_ns, event->start_ns);
        d->last_ns = MR_MAX(d->last_ns, event->end_ns);
        d->launches |= event->shape == MR_SHAPE_LAUNCH || event->shape == MR_SHAPE_CALL_COPY;
        if (lane->kind == MR_LANE_OS && event->level == 0 && is_wait(tl, event->name, waits))
            d->waits_ns += event->end_ns - event->start_ns;
    }
    d->has_ranges |= lane->kind == MR_LANE_RANGES && lane->n;
}

static uint8_t use_of(const struct mr_timeline *tl, const struct doing *d)
{
    uint64_t spent = d->last_ns > d->first_ns ? d->last_ns - d->first_ns : 0;
    uint64_t work = spent - MR_MIN(spent, d->waits_ns);
    if (d->launches)
        return MR_THREAD_LAUNCHES;
    return d->has_ranges || work > (tl->to_ns - tl->from_ns) / WORKS ? MR_THREAD_WORKS
                                                                     : MR_THREAD_WAITS;
}

int mr_timeline_look_at_threads(struct mr_timeline *tl)
{
    uint32_t n = tl->rec->n_threads;
    struct doing *doing = calloc(n + 1ull, sizeof(*doing));
    tl->use = calloc(n + 1ull, sizeof(*tl->use));
    uint8_t *waits = calloc(tl->rec->n_strings + 1ull, sizeof(*waits));
    if (!doing || !tl->use || !waits) {
        free(doing);
        free(waits);
        return mr_error_nomem("timeline: threads", n * sizeof(*doing));
    }
    for (uint32_t i = 0; i < n; i++)
        doing[i].first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < tl->n_lanes; i++)
        if (tl->lanes[i].kind >= MR_LANE_RANGES)
            look_at(tl, &tl->lanes[i], waits, &doing[tl->lanes[i].thread]);
    for (uint32_t i = 0; i < n; i++)
        tl->use[i] = use_of(tl, &doing[i]);
    free(doing);
    free(waits);
    return 0;
}

/* The process launches nothing: a worker, most often of a loader. */
static bool helps(const struct mr_timeline *tl, uint16_t process)
{
    bool others = false;
    for (uint32_t i = 0; i < tl->rec->n_threads; i++) {
        if (tl->use[i] != MR_THREAD_LAUNCHES)
            continue;
        if (tl->rec->threads[i].process == process)
            return false;
        others = true;
    }
    return others;
}

const char *mr_timeline_role(const struct mr_timeline *tl, const struct mr_lane *lane)
{
    if (lane->kind < MR_LANE_RANGES)
        return "";
    if (tl->use[lane->thread] == MR_THREAD_LAUNCHES)
        return "launches work";
    if (tl->use[lane->thread] == MR_THREAD_WAITS)
        return "waits";
    return helps(tl, lane->process) ? "worker process" : "";
}
