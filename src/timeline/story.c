/* What a picture says in words, and where it looks: the steps, and where their time went. */
#include "advice/rules.h"
#include "recording/big.h"
#include "timeline/timeline.h"

#include <errno.h>
#include <string.h>

/* As much of a step as is computed, communicated, copied, waited for data, and idle otherwise;
 * together the whole. */
static void share_out(const struct mr_case *c, struct mr_tl_story *out)
{
    const struct mr_look *look = c->look;
    double wall = (double)look->wall_ns;
    if (look->wall_ns == 0)
        return;
    double compute = (double)mr_intervals_measure(&look->compute),
           idle = (double)mr_intervals_measure(&look->idle),
           others = (double)mr_intervals_measure(&look->others);
    double loader = MR_MIN((double)c->idle_ns[MR_IDLE_LOADER], idle);
    double comm = MR_MIN((double)c->comm_ns, compute);
    out->part[MR_SHARE_COMPUTE] = MR_MIN((compute - comm) / wall, 1);
    out->part[MR_SHARE_COMM] = MR_MIN(comm / wall, 1);
    out->part[MR_SHARE_LOADER] = MR_MIN(loader / wall, 1);
    out->part[MR_SHARE_IDLE] = MR_MAX(idle - loader, 0) / wall;
    out->part[MR_SHARE_OTHERS] = MR_MIN(others / wall, 1);
    out->part[MR_SHARE_COPY] = MR_MAX(wall - compute - idle - others, 0) / wall;
    for (int i = 0; i < MR_N_IDLE; i++)
        out->idle[i] = i == MR_IDLE_LOADER ? 0 : (double)c->idle_ns[i] / wall;
    out->n_steps = look->n_steps;
    out->wall_ns = look->wall_ns;
}

static int copy_steps(const struct mr_steps *steps, struct mr_steps *out)
{
    struct mr_interval *at = mr_big_alloc("timeline: steps", steps->n + 1, sizeof(*at));
    if (!at)
        return -ENOMEM;
    if (steps->n)
        memcpy(at, steps->at, steps->n * sizeof(*at));
    *out = *steps;
    out->at = at;
    return 0;
}

/* What the advice has judged: so that a picture and its verdict are of the same device. */
static int see(const struct mr_case *c, void *arg)
{
    struct mr_tl_story *out = arg;
    const struct mr_look *look = c->look;
    if (look->place.n_kernels > 0)
        share_out(c, out);
    if (look->n_steps && look->in.n) { /* a first step that compiles would be most of a picture */
        out->from_ns = look->in.at[0].start_ns;
        out->to_ns = look->in.at[look->in.n - 1].end_ns;
    }
    return copy_steps(&look->steps, &out->steps);
}

/* All that the advice says first: what limits it is not left out. Who cannot tell whether data was
 * waited for shows none of it. */
static int put_verdict(struct mr_recording *rec, struct mr_tl_story *out)
{
    int rc = mr_analyze_seen(rec, NULL, &(struct mr_case_viewer){see, out}, &out->advice);
    if (rc)
        return rc;
    snprintf(out->verdict, sizeof(out->verdict), "%s", mr_advice_summary(out->advice));
    out->data_bound = mr_advice_bound(out->advice) == MR_BOUND_DATA;
    if (mr_advice_bound(out->advice) == MR_BOUND_UNKNOWN) {
        out->part[MR_SHARE_IDLE] += out->part[MR_SHARE_LOADER];
        out->part[MR_SHARE_LOADER] = 0;
        memset(out->idle, 0, sizeof(out->idle));
    }
    return 0;
}

/* The steps after warming up with a little around them; without steps all that devices did, else
 * the ranges. */
static void set_window(const struct mr_recording *rec, struct mr_tl_story *out)
{
    bool steps = out->from_ns < out->to_ns;
    uint64_t from = steps ? out->from_ns : UINT64_MAX, to = steps ? out->to_ns : 0;
    for (uint64_t i = 0; i < rec->n_ops && !steps; i++) {
        from = MR_MIN(from, rec->ops[i].start_ns);
        to = MR_MAX(to, rec->ops[i].end_ns);
    }
    for (uint64_t i = 0; i < rec->n_ranges && rec->n_ops == 0; i++) {
        from = MR_MIN(from, rec->ranges[i].start_ns);
        to = MR_MAX(to, rec->ranges[i].end_ns);
    }
    if (from >= to)
        return;
    uint64_t more = (to - from) / 50;
    out->from_ns = from > more ? from - more : 0;
    out->to_ns = MR_MIN(to + more, rec->end_ns + 1);
}

int mr_timeline_story(struct mr_recording *rec, struct mr_tl_story *out)
{
    *out = (struct mr_tl_story){0};
    int rc = mr_recording_load(rec);
    if (rc == 0)
        rc = put_verdict(rec, out);
    if (rc == 0)
        set_window(rec, out);
    return rc;
}

void mr_timeline_story_free(struct mr_tl_story *story)
{
    mr_steps_free(&story->steps);
    mr_advice_destroy(story->advice);
    *story = (struct mr_tl_story){0};
}
