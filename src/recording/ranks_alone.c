/* Ranks that do not communicate, as those of a loader's run: each goes at its own pace, and the job
 * ends with the slowest. */
#include "recording/ranks_view.h"

#include <math.h>

#define LONGER      0.1 /* than the next rank's mean step */
#define ERRORS      3   /* standard errors of the difference */
#define LEAST_STEPS 7   /* of each rank: fewer tell no spread */

static double mean_of(const struct mr_rank *r)
{
    return (double)r->wall_ns / (double)MR_MAX(r->n_steps, (uint64_t)1);
}

/* Of the mean step. */
static double error_of(const struct mr_rank *r, const struct mr_look *look)
{
    double squares = 0, n = (double)r->n_steps;
    for (uint64_t i = look->n_warm; i < look->steps.n; i++) {
        double off = (double)(look->steps.at[i].end_ns - look->steps.at[i].start_ns) - mean_of(r);
        squares += off * off;
    }
    return sqrt(squares / (n - 1) / n);
}

/* Each rank has one place and a number that the recording says. */
static bool comparable(const struct mr_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct mr_rank *r = &ranks->at[i];
        if (!r->named || r->n_comms > 0 || r->n_steps < LEAST_STEPS ||
            (i > 0 && r->rank == ranks->at[i - 1].rank))
            return false;
    }
    return ranks->n > 1;
}

static void find_cause(struct mr_ranks *ranks)
{
    const struct mr_rank *slow = &ranks->at[ranks->slow];
    for (int k = 0; k < MR_N_CAUSES; k++) {
        double more = (double)slow->ns[k] / (double)slow->n_steps;
        for (uint32_t i = 0; i < ranks->n; i++)
            if (i != ranks->slow)
                more -= (double)ranks->at[i].ns[k] / (double)ranks->at[i].n_steps /
                        (double)(ranks->n - 1);
        if (more > ranks->more_ns) {
            ranks->more_ns = more;
            ranks->cause = k;
        }
    }
}

void mr_ranks_find_slowest(struct mr_ranks *ranks, const struct mr_rank_view *views)
{
    uint32_t most = 0, next = MR_NONE;
    if (!comparable(ranks))
        return;
    ranks->apart = true;
    for (uint32_t i = 1; i < ranks->n; i++)
        if (mean_of(&ranks->at[i]) > mean_of(&ranks->at[most]))
            most = i;
    for (uint32_t i = 0; i < ranks->n; i++)
        if (i != most && (next == MR_NONE || mean_of(&ranks->at[i]) > mean_of(&ranks->at[next])))
            next = i;
    double mean = mean_of(&ranks->at[most]), other = mean_of(&ranks->at[next]);
    double one = error_of(&ranks->at[most], &views[most].look);
    double two = error_of(&ranks->at[next], &views[next].look);
    /* sqrt, not hypot: glibc 2.35 gave that a new version, too new for the wheel. */
    if (mean - other < LONGER * other || mean - other < ERRORS * sqrt(one * one + two * two))
        return;
    ranks->slow = most;
    ranks->slow_step_ns = mean;
    ranks->next_step_ns = other;
    find_cause(ranks);
}
