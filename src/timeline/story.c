/* What a picture says in words, and where it looks: the steps, and where their time went. */
#include "advice/rules.h"
#include "timeline/timeline.h"

#include <string.h>

/* As much of a step as is computed, copied, waited for data, and idle otherwise; together the
 * whole. */
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
    out->part[MR_SHARE_COMPUTE] = MR_MIN(compute / wall, 1);
    out->part[MR_SHARE_LOADER] = MR_MIN(loader / wall, 1);
    out->part[MR_SHARE_IDLE] = MR_MAX(idle - loader, 0) / wall;
    out->part[MR_SHARE_OTHERS] = MR_MIN(others / wall, 1);
    out->part[MR_SHARE_COPY] = MR_MAX(wall - compute - idle - others, 0) / wall;
    out->n_steps = look->n_steps;
    out->wall_ns = look->wall_ns;
}

static int look_at(struct mr_recording *rec, const struct mr_place *place, struct mr_tl_story *out)
{
    struct mr_advice_opts opts;
    struct mr_look look;
    struct mr_case c;
    mr_advice_opts_init(&opts);
    int rc = mr_look_make(rec, place, NULL, false, &look);
    if (rc)
        return rc;
    rc = mr_case_make(&look, &opts, &c);
    if (rc == 0) {
        if (place->n_kernels > 0)
            share_out(&c, out);
        mr_case_free(&c);
        if (look.n_steps && look.in.n) { /* a first step that compiles would be most of a picture */
            out->from_ns = look.in.at[0].start_ns;
            out->to_ns = look.in.at[look.in.n - 1].end_ns;
        }
        out->steps = look.steps; /* now ours */
        look.steps = (struct mr_steps){0};
    }
    mr_look_free(&look);
    return rc;
}

/* All that the advice says first: what limits it is not left out. Who cannot tell whether data was
 * waited for shows none of it. */
static int put_verdict(struct mr_recording *rec, struct mr_tl_story *out)
{
    struct mr_advice *advice;
    int rc = mr_analyze(rec, NULL, &advice);
    if (rc)
        return rc;
    const struct mr_place *place = mr_advice_place(advice);
    rc = place ? look_at(rec, place, out) : 0;
    if (rc) {
        mr_advice_destroy(advice);
        return rc;
    }
    const char *text = mr_advice_summary(advice);
    snprintf(out->verdict, sizeof(out->verdict), "%s", text);
    out->data_bound = mr_advice_bound(advice) == MR_BOUND_DATA;
    if (mr_advice_bound(advice) == MR_BOUND_UNKNOWN) {
        out->part[MR_SHARE_IDLE] += out->part[MR_SHARE_LOADER];
        out->part[MR_SHARE_LOADER] = 0;
    }
    mr_advice_destroy(advice);
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
    *story = (struct mr_tl_story){0};
}
