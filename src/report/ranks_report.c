/* The reports comm_sum, rank_breakdown and rank_steps: every (process, device) pair beside the
 * others, and for which one they wait. */
#include "recording/ranks.h"
#include "report/report.h"

#include <inttypes.h>

static const struct mr_column sum_columns[] = {{"Rank", MR_UNIT_NONE, MR_CELL_INT},
                                               {"PID", MR_UNIT_NONE, MR_CELL_INT},
                                               {"Device", MR_UNIT_NONE, MR_CELL_INT},
                                               {"Instances", MR_UNIT_COUNT, MR_CELL_INT},
                                               {"Total Time", MR_UNIT_NS, MR_CELL_INT},
                                               {"Hidden", MR_UNIT_NS, MR_CELL_INT},
                                               {"Hidden Share", MR_UNIT_PERCENT, MR_CELL_REAL},
                                               {"Exposed", MR_UNIT_NS, MR_CELL_INT},
                                               {"Waiting for Others", MR_UNIT_NS, MR_CELL_INT},
                                               {"Waiting Share", MR_UNIT_PERCENT, MR_CELL_REAL}};

static const struct mr_column rank_columns[] = {{"Rank", MR_UNIT_NONE, MR_CELL_INT},
                                                {"PID", MR_UNIT_NONE, MR_CELL_INT},
                                                {"Device", MR_UNIT_NONE, MR_CELL_INT},
                                                {"Steps", MR_UNIT_COUNT, MR_CELL_INT},
                                                {"Step", MR_UNIT_NS, MR_CELL_REAL},
                                                {"Compute", MR_UNIT_NS, MR_CELL_REAL},
                                                {"Communication Exposed", MR_UNIT_NS, MR_CELL_REAL},
                                                {"Copy Exposed", MR_UNIT_NS, MR_CELL_REAL},
                                                {"Idle", MR_UNIT_NS, MR_CELL_REAL},
                                                {"Most Idle", MR_UNIT_NONE, MR_CELL_TEXT},
                                                {"Waiting for Others", MR_UNIT_NS, MR_CELL_REAL},
                                                {"Last in Steps", MR_UNIT_COUNT, MR_CELL_INT},
                                                {"Costs Others", MR_UNIT_NS, MR_CELL_REAL}};

static const struct mr_column step_columns[] = {
    {"Step", MR_UNIT_COUNT, MR_CELL_INT},  {"Start", MR_UNIT_NS, MR_CELL_INT},
    {"Duration", MR_UNIT_NS, MR_CELL_INT}, {"Last Rank", MR_UNIT_NONE, MR_CELL_INT},
    {"PID", MR_UNIT_NONE, MR_CELL_INT},    {"Device", MR_UNIT_NONE, MR_CELL_INT},
    {"Costs", MR_UNIT_NS, MR_CELL_INT},    {"Cause", MR_UNIT_NONE, MR_CELL_TEXT},
    {"More", MR_UNIT_NS, MR_CELL_INT}};

static void put_who(struct mr_table *table, const struct mr_recording *rec, const struct mr_rank *r)
{
    uint16_t p = r->place.process;
    if (r->rank == MR_NONE)
        mr_table_empty(table);
    else
        mr_table_int(table, r->rank);
    mr_table_int(table, p < rec->n_processes ? rec->processes[p].pid : 0);
    mr_table_int(table, mr_place_device_id(rec, &r->place));
}

static void put_sum(struct mr_table *table, const struct mr_recording *rec, const struct mr_rank *r)
{
    double total = (double)r->comm_ns, hidden = (double)(r->comm_ns - r->exposed_ns);
    mr_table_row(table);
    put_who(table, rec, r);
    mr_table_int(table, (int64_t)r->n_comms);
    mr_table_int(table, (int64_t)r->comm_ns);
    mr_table_int(table, (int64_t)(r->comm_ns - r->exposed_ns));
    mr_table_real(table, r->comm_ns ? 100 * hidden / total : 0);
    mr_table_int(table, (int64_t)r->exposed_ns);
    if (!r->matched)
        return;
    mr_table_int(table, (int64_t)r->wait_ns);
    mr_table_real(table, r->comm_ns ? 100 * (double)r->wait_ns / total : 0);
}

static void put_rank(struct mr_table *table, const struct mr_recording *rec,
                     const struct mr_ranks *ranks, const struct mr_rank *r)
{
    double n = (double)MR_MAX(r->n_steps, (uint64_t)1),
           n_seen = (double)MR_MAX(ranks->n_steps, (uint64_t)1);
    mr_table_row(table);
    put_who(table, rec, r);
    mr_table_int(table, (int64_t)r->n_steps);
    mr_table_real(table, (double)r->wall_ns / n);
    mr_table_real(table, (double)r->ns[MR_CAUSE_COMPUTE] / n);
    mr_table_real(table, (double)r->step_exposed_ns / n);
    mr_table_real(table, (double)r->ns[MR_CAUSE_COPY] / n);
    mr_table_real(table, (double)r->idle_ns / n);
    mr_table_text(table, r->idle_ns ? mr_idle_text(mr_idle_most(r->ns)) : "");
    if (!r->matched)
        return;
    mr_table_real(table, (double)r->step_wait_ns / n_seen);
    mr_table_int(table, (int64_t)r->n_last);
    mr_table_real(table, (double)r->cost_ns / n_seen);
}

static void put_step(struct mr_table *table, const struct mr_recording *rec,
                     const struct mr_ranks *ranks, uint64_t i)
{
    const struct mr_rank_step *step = &ranks->steps[i];
    mr_table_row(table);
    mr_table_int(table, (int64_t)i + 1);
    mr_table_int(table, (int64_t)step->start_ns);
    mr_table_int(table, (int64_t)(step->end_ns - step->start_ns));
    if (step->last == MR_NONE)
        return;
    put_who(table, rec, &ranks->at[step->last]);
    mr_table_int(table, (int64_t)step->cost_ns);
    mr_table_text(table, mr_cause_text(step->cause));
    if (step->cause >= 0)
        mr_table_int(table, step->more_ns);
}

/* Who the others wait for, or why that is not known. */
static void add_note(struct mr_table *table, const struct mr_ranks *ranks)
{
    bool any = false, named = true;
    for (uint32_t i = 0; i < ranks->n; i++) {
        any = any || ranks->at[i].n_comms > 0;
        named = named && (ranks->at[i].named || ranks->at[i].rank == MR_NONE);
    }
    if (ranks->n == 0) {
        mr_table_add_note(table, "this recording has no device work");
        return;
    }
    if (!any && ranks->slow != MR_NONE) {
        mr_table_add_note(table,
                          "no communication: each rank goes at its own pace. Rank %" PRIu32
                          " is the slowest: a step takes %.3f ms, the next rank's %.3f; cause: %s",
                          ranks->at[ranks->slow].rank, ranks->slow_step_ns / 1e6,
                          ranks->next_step_ns / 1e6, mr_cause_text(ranks->cause));
        return;
    }
    if (!any) {
        mr_table_add_note(table, "no communication of NCCL, RCCL or MPI in this recording");
        return;
    }
    if (ranks->slow != MR_NONE) {
        const struct mr_rank *slow = &ranks->at[ranks->slow];
        char gain[96] = "";
        mr_ranks_gain_text(ranks, gain, sizeof gain);
        mr_table_add_note(table,
                          "the others wait for rank %" PRIu32 ": it came last in %" PRIu64
                          " of %" PRIu64 " steps and cost %.3f ms in each%s; cause: %s",
                          slow->rank, slow->n_last, ranks->n_steps,
                          (double)slow->cost_ns / 1e6 / (double)slow->n_last, gain,
                          mr_cause_text(ranks->cause));
    } else if (ranks->n_steps > 0) {
        mr_table_add_note(table, "there is no rank that the others wait for");
    }
    if (ranks->why[0])
        mr_table_add_note(table, "%s", ranks->why);
    if (!named)
        mr_table_add_note(table, "ranks are numbered by device and process: the recording does "
                                 "not name them");
}

enum which { SUM, RANKS, STEPS };

static int make(struct mr_recording *recording, const struct mr_report_opts *opts, enum which which,
                struct mr_table *table, struct mr_table **out)
{
    struct mr_ranks ranks = {0};
    struct mr_filter filter = {0};
    int rc = table ? mr_recording_load(recording) : mr_error_nomem("a report", 0);
    rc = rc ? rc : mr_filter_open(&filter, recording, opts);
    rc = rc ? rc : mr_ranks_find(recording, opts->step, &ranks);
    if (rc) {
        mr_filter_close(&filter);
        mr_table_destroy(table);
        return rc;
    }
    uint64_t n = which == STEPS ? ranks.n_steps : ranks.n;
    for (uint64_t i = 0; i < n; i++) {
        if (which == SUM)
            put_sum(table, recording, &ranks.at[i]);
        else if (which == RANKS)
            put_rank(table, recording, &ranks, &ranks.at[i]);
        else if (mr_filter_takes(&filter, ranks.steps[i].start_ns))
            put_step(table, recording, &ranks, i);
    }
    add_note(table, &ranks);
    if (which != STEPS && (opts->range || opts->from_ns || opts->to_ns))
        mr_table_add_note(table, "this covers the whole recording: --range, --from and --to "
                                 "choose rows of rank_steps only");
    mr_filter_close(&filter);
    mr_ranks_free(&ranks);
    return mr_report_finish(table, opts, NULL, out);
}

static int make_sum(struct mr_recording *recording, const struct mr_report_opts *opts,
                    struct mr_table **out)
{
    return make(recording, opts, SUM,
                mr_table_create("Communication (comm_sum)", sum_columns, MR_COUNT(sum_columns)),
                out);
}

static int make_ranks(struct mr_recording *recording, const struct mr_report_opts *opts,
                      struct mr_table **out)
{
    return make(recording, opts, RANKS,
                mr_table_create("Ranks side by side (rank_breakdown)", rank_columns,
                                MR_COUNT(rank_columns)),
                out);
}

static int make_steps(struct mr_recording *recording, const struct mr_report_opts *opts,
                      struct mr_table **out)
{
    return make(recording, opts, STEPS,
                mr_table_create("The last rank of each step (rank_steps)", step_columns,
                                MR_COUNT(step_columns)),
                out);
}

const struct mr_report_kind mr_report_rank_kinds[3] = {
    {"comm_sum",
     "Collectives of each process and device: hidden under compute, exposed, waiting for others",
     make_sum},
    {"rank_breakdown",
     "Every process and device: what a step is made of, and for whom the others wait", make_ranks},
    {"rank_steps", "Each step: the rank that the others wait for, what it costs, and why",
     make_steps},
};
