/* What the headline says of the ranks of a job. */
#include "advice/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The rank that the others wait for, and in how many steps; or, if none waits, the slowest one. */
static int tell_slow(const struct mr_ranks *ranks, char *out, size_t cap)
{
    const struct mr_rank *slow = &ranks->at[ranks->slow];
    if (ranks->apart)
        return snprintf(out, cap,
                        "rank %" PRIu32 " is the slowest of ranks that do not wait for each other: "
                        "its steps take %.3f ms, the next rank's %.3f; cause: %s",
                        slow->rank, ranks->slow_step_ns / 1e6, ranks->next_step_ns / 1e6,
                        mr_cause_text(ranks->cause));
    double each = (double)slow->cost_ns / (double)slow->n_last;
    char gain[96] = "";
    mr_ranks_gain_text(ranks, gain, sizeof gain);
    return snprintf(out, cap,
                    "rank %" PRIu32 " holds up the job: the others waited for it in %" PRIu64
                    " of %" PRIu64 " steps, %.3f ms in each%s; cause: %s",
                    slow->rank, slow->n_last, ranks->n_steps, each / 1e6, gain,
                    mr_cause_text(ranks->cause));
}

/* Percent of its steps that a place is in collectives and computes nothing. */
static double exposed_percent(const struct mr_ranks *ranks, const struct mr_place *place)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct mr_rank *r = &ranks->at[i];
        if (r->place.process == place->process && r->place.device == place->device)
            return r->wall_ns ? 100 * (double)r->step_exposed_ns / (double)r->wall_ns : 0;
    }
    return 0;
}

/* A rank that is not data-bound may wait in its collectives for one that is: where that one cannot
 * be seen, nothing is said of the job. */
static void doubt_alone(const struct mr_ranks *ranks, const struct mr_place *place, char *summary,
                        enum mr_bound *bound)
{
    char own[MR_SUMMARY_BYTES];
    double percent = exposed_percent(ranks, place);
    if (*bound != MR_BOUND_OTHER || ranks->slow != MR_NONE || !ranks->why[0] ||
        percent < MR_DATA_BOUND)
        return;
    *bound = MR_BOUND_UNKNOWN;
    memcpy(own, summary, sizeof own);
    int n = snprintf(summary, MR_SUMMARY_BYTES,
                     "cannot tell: %.0f%% of the time is communication, which may be waiting for a "
                     "rank that is data-bound; this rank is ",
                     percent);
    snprintf(summary + n, MR_SUMMARY_BYTES - (size_t)n, "%s", own);
}

/* Who holds up the job stands first, before what that rank waits for. */
void mr_tell_ranks(const struct mr_ranks *ranks, const struct mr_place *place, char *summary,
                   enum mr_bound *bound)
{
    char own[MR_SUMMARY_BYTES];
    size_t used, cap = MR_SUMMARY_BYTES;
    if (place)
        doubt_alone(ranks, place, summary, bound);
    if (ranks->slow != MR_NONE) {
        const struct mr_rank *slow = &ranks->at[ranks->slow];
        memcpy(own, summary, sizeof own);
        int n = tell_slow(ranks, summary, cap);
        if (ranks->cause >= 0)
            n += snprintf(summary + n, cap - (size_t)n, " (%.3f ms a step more than theirs)",
                          ranks->more_ns / 1e6);
        snprintf(summary + n, cap - (size_t)n, ". Rank %" PRIu32 " is looked at: %s", slow->rank,
                 own);
    }
    used = strlen(summary);
    if (ranks->slow == MR_NONE && (ranks->n_steps > 0 || ranks->apart))
        used += (size_t)snprintf(summary + used, cap - used, "; no rank %s the others",
                                 ranks->apart ? "is slower than" : "holds up");
    if (ranks->why[0] && used < cap)
        snprintf(summary + used, cap - used, "; %s", ranks->why);
}
