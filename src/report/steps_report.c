/* The report step_breakdown: what each step's time is made of, and what the launching thread did
 * while the device was idle. */
#include "recording/big.h"
#include "recording/look.h"
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct step {
    uint64_t start_ns, wall_ns, alone_ns, hidden_ns, exposed_ns, others_ns, idle_ns;
    uint64_t what_ns[3]; /* idle, by enum mr_doing_what */
    char why[200];
};

static int by_cause(const void *a, const void *b)
{
    const struct mr_blame *x = a, *y = b;
    if (x->what != y->what)
        return x->what < y->what ? -1 : 1;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return (x->range > y->range) - (x->range < y->range);
}

static int by_time(const void *a, const void *b)
{
    const struct mr_blame *x = a, *y = b;
    uint64_t p = x->end_ns - x->start_ns, q = y->end_ns - y->start_ns;
    return p != q ? (p < q ? 1 : -1) : by_cause(a, b);
}

/* Adds up pieces of one cause; lengths remain in start_ns (0) and end_ns. */
static uint64_t fold(struct mr_blame *piece, uint64_t n)
{
    uint64_t kept = 0;
    if (n > 1)
        qsort(piece, n, sizeof *piece, by_cause);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t ns = piece[i].end_ns - piece[i].start_ns;
        if (kept > 0 && by_cause(&piece[kept - 1], &piece[i]) == 0) {
            piece[kept - 1].end_ns += ns;
            continue;
        }
        piece[kept] = piece[i];
        piece[kept].start_ns = 0;
        piece[kept++].end_ns = ns;
    }
    if (kept > 1)
        qsort(piece, kept, sizeof *piece, by_time);
    return kept;
}

/* "data: poll 81%, cudaStreamSynchronize 10%, its own code 9%" */
static void tell(const struct mr_recording *rec, const struct mr_blame *piece, uint64_t n,
                 uint64_t idle_ns, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (uint64_t i = 0; i < n && i < 4 && idle_ns > 0; i++) {
        const struct mr_blame *p = &piece[i];
        double share = 100 * (double)p->end_ns / (double)idle_ns;
        if (i > 0 && share < 1)
            break;
        const char *name = p->what == MR_DOING_OWN ? "its own code" : rec->strings[p->name];
        int bytes = snprintf(out + used, cap - used, "%s%.40s%s%.*s %.0f%%", i ? ", " : "",
                             p->range ? rec->strings[p->range] : "", p->range ? ": " : "",
                             p->what == MR_DOING_API ? MR_MIN(mr_call_name_bytes(name), 48) : 48,
                             name, share);
        if (bytes < 0 || (size_t)bytes >= cap - used) {
            out[used] = 0;
            break;
        }
        used += (size_t)bytes;
    }
}

/* Adds pieces of idle time to those of other steps. */
static int keep(struct mr_blames *all, const struct mr_blame *piece, uint64_t n)
{
    if (n == 0)
        return 0;
    if (mr_big_grow("idle times", &all->at, &all->capacity, all->n + n, sizeof *all->at) < 0)
        return -ENOMEM;
    memcpy(all->at + all->n, piece, n * sizeof *piece);
    all->n += n;
    return 0;
}

/* all: NULL, or what the idle time of several steps is added to. */
static int measure(const struct mr_look *look, const struct mr_intervals *both,
                   const struct mr_interval *at, struct mr_blames *blames, struct mr_blames *all,
                   struct step *out)
{
    struct step s = {.start_ns = at->start_ns, .wall_ns = at->end_ns - at->start_ns};
    s.hidden_ns = mr_intervals_within(both, at->start_ns, at->end_ns);
    s.alone_ns = mr_intervals_within(&look->compute, at->start_ns, at->end_ns) - s.hidden_ns;
    s.exposed_ns = mr_intervals_within(&look->copy, at->start_ns, at->end_ns) - s.hidden_ns;
    s.others_ns = mr_intervals_within(&look->others, at->start_ns, at->end_ns);
    s.idle_ns = mr_intervals_within(&look->idle, at->start_ns, at->end_ns);
    int rc = 0;
    blames->n = 0;
    const struct mr_intervals *idle = &look->idle;
    for (size_t i = mr_intervals_find(idle, at->start_ns);
         i < idle->n && idle->at[i].start_ns < at->end_ns; i++) {
        rc = mr_blame_idle(look, MR_MAX(idle->at[i].start_ns, at->start_ns),
                           MR_MIN(idle->at[i].end_ns, at->end_ns), blames);
        if (rc)
            return rc;
    }
    for (uint64_t i = 0; i < blames->n; i++)
        s.what_ns[blames->at[i].what] += blames->at[i].end_ns - blames->at[i].start_ns;
    uint64_t n = fold(blames->at, blames->n);
    rc = all ? keep(all, blames->at, n) : 0;
    if (rc)
        return rc;
    tell(look->rec, blames->at, n, s.idle_ns, s.why, sizeof s.why);
    *out = s;
    return 0;
}

/* ---- rows ---- */

static const struct mr_column columns[] = {
    {"Step", MR_UNIT_NONE, MR_CELL_TEXT},          {"PID", MR_UNIT_NONE, MR_CELL_INT},
    {"Device", MR_UNIT_NONE, MR_CELL_INT},         {"Start", MR_UNIT_NS, MR_CELL_INT},
    {"Duration", MR_UNIT_NS, MR_CELL_INT},         {"Compute Alone", MR_UNIT_NS, MR_CELL_INT},
    {"Copy Hidden", MR_UNIT_NS, MR_CELL_INT},      {"Copy Exposed", MR_UNIT_NS, MR_CELL_INT},
    {"Others Alone", MR_UNIT_NS, MR_CELL_INT},     {"Idle", MR_UNIT_NS, MR_CELL_INT},
    {"Idle Share", MR_UNIT_PERCENT, MR_CELL_REAL}, {"Idle in API Calls", MR_UNIT_NS, MR_CELL_INT},
    {"Idle in OS Calls", MR_UNIT_NS, MR_CELL_INT}, {"Idle in Own Code", MR_UNIT_NS, MR_CELL_INT},
    {"While Idle", MR_UNIT_NONE, MR_CELL_TEXT},
};

static void row(struct mr_table *table, const struct mr_look *look, const char *name,
                const struct step *s)
{
    const struct mr_recording *rec = look->rec;
    mr_table_row(table);
    mr_table_text(table, name);
    mr_table_int(table, look->place.process < rec->n_processes
                            ? rec->processes[look->place.process].pid
                            : 0);
    mr_table_int(table, mr_place_device_id(rec, &look->place));
    mr_table_int(table, (int64_t)s->start_ns);
    mr_table_int(table, (int64_t)s->wall_ns);
    mr_table_int(table, (int64_t)s->alone_ns);
    mr_table_int(table, (int64_t)s->hidden_ns);
    mr_table_int(table, (int64_t)s->exposed_ns);
    mr_table_int(table, (int64_t)s->others_ns);
    mr_table_int(table, (int64_t)s->idle_ns);
    mr_table_real(table, s->wall_ns ? 100 * (double)s->idle_ns / (double)s->wall_ns : 0);
    mr_table_int(table, (int64_t)s->what_ns[MR_DOING_API]);
    mr_table_int(table, (int64_t)s->what_ns[MR_DOING_OS]);
    mr_table_int(table, (int64_t)s->what_ns[MR_DOING_OWN]);
    mr_table_text(table, s->why);
}

static int by_wall(const void *a, const void *b)
{
    const struct step *x = *(struct step *const *)a, *y = *(struct step *const *)b;
    if (x->wall_ns != y->wall_ns)
        return x->wall_ns < y->wall_ns ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Parts of a mean, rounded so that they still add up: each is what its running sum grows by. */
static uint64_t mean_part(uint64_t *before, uint64_t part, uint64_t n)
{
    uint64_t from = (*before + n / 2) / n;
    *before += part;
    return (*before + n / 2) / n - from;
}

static struct step mean_of(const struct step *sum, uint64_t n)
{
    struct step mean = {.start_ns = sum->start_ns};
    uint64_t before = 0;
    mean.alone_ns = mean_part(&before, sum->alone_ns, n);
    mean.hidden_ns = mean_part(&before, sum->hidden_ns, n);
    mean.exposed_ns = mean_part(&before, sum->exposed_ns, n);
    mean.others_ns = mean_part(&before, sum->others_ns, n);
    for (int i = 0; i < 3; i++) {
        mean.what_ns[i] = mean_part(&before, sum->what_ns[i], n);
        mean.idle_ns += mean.what_ns[i];
    }
    mean.wall_ns = (before + n / 2) / n;
    memcpy(mean.why, sum->why, sizeof mean.why);
    return mean;
}

/* Of steps after warming up, or all when there are no others here: the figures of analyze. */
static void sum_rows(struct mr_table *table, const struct mr_look *look, struct mr_blames *all,
                     const struct step *steps, uint64_t n)
{
    struct step sum = {.start_ns = steps[0].start_ns};
    for (uint64_t i = 0; i < n; i++) {
        sum.wall_ns += steps[i].wall_ns;
        sum.alone_ns += steps[i].alone_ns;
        sum.hidden_ns += steps[i].hidden_ns;
        sum.exposed_ns += steps[i].exposed_ns;
        sum.others_ns += steps[i].others_ns;
        sum.idle_ns += steps[i].idle_ns;
        for (int w = 0; w < 3; w++)
            sum.what_ns[w] += steps[i].what_ns[w];
    }
    tell(look->rec, all->at, fold(all->at, all->n), sum.idle_ns, sum.why, sizeof sum.why);
    struct step mean = mean_of(&sum, n);
    row(table, look, "mean", &mean);
    row(table, look, "sum", &sum);
}

/* The step in the middle and the one at 95% by duration: real steps, so that their parts add up
 * too. */
static int summary_rows(struct mr_table *table, const struct mr_look *look, struct step *steps,
                        uint64_t n)
{
    struct step **order =
        malloc((n + 1) * sizeof(struct step *)); /* NOLINT(bugprone-sizeof-expression) */
    if (!order)
        return mr_error_nomem("steps", n * sizeof *order); /* NOLINT(bugprone-sizeof-expression) */
    for (uint64_t i = 0; i < n; i++)
        order[i] = &steps[i];
    qsort(order, n, sizeof(struct step *), by_wall); /* NOLINT(bugprone-sizeof-expression) */
    row(table, look, "median", order[(n - 1) / 2]);
    row(table, look, "p95", order[(n * 95 + 99) / 100 - 1]);
    free(order);
    return 0;
}

static int place_rows(const struct mr_look *look, const struct mr_filter *filter,
                      struct mr_table *table)
{
    struct mr_intervals both = {0};
    struct mr_blames blames = {0}, all = {0};
    struct step *steps = calloc(look->steps.n + 1, sizeof *steps);
    uint64_t n = 0, warm = 0, n_warm = mr_steps_warm(&look->steps);
    int rc = steps ? 0 : mr_error_nomem("steps", look->steps.n * sizeof *steps);
    mr_intervals_and(&look->compute, &look->copy, &both);
    rc = rc ? rc : both.lost ? mr_error_nomem("intervals", both.n * sizeof *both.at) : 0;
    for (uint64_t i = 0; i < n_warm; i++)
        warm += mr_filter_takes(filter, look->steps.at[i].start_ns);
    for (uint64_t i = n_warm; i < look->steps.n; i++)
        n += mr_filter_takes(filter, look->steps.at[i].start_ns);
    bool only_warm = n == 0;
    n = 0;
    for (uint64_t i = 0; !rc && i < look->steps.n; i++)
        if (mr_filter_takes(filter, look->steps.at[i].start_ns))
            rc = measure(look, &both, &look->steps.at[i], &blames,
                         i >= n_warm || only_warm ? &all : NULL, &steps[n++]);
    warm = only_warm ? 0 : warm;
    if (!rc && n > 0)
        sum_rows(table, look, &all, steps + warm, n - warm);
    if (!rc && n > 0)
        rc = summary_rows(table, look, steps, n);
    for (uint64_t i = 0; !rc && i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRIu64, i + 1);
        row(table, look, name, &steps[i]);
    }
    free(steps);
    mr_big_free(blames.at);
    mr_big_free(all.at);
    mr_intervals_free(&both);
    return rc;
}

static void set_note(struct mr_table *table, const struct mr_recording *rec,
                     const struct mr_place *places, uint32_t n_places, const char *how,
                     uint64_t n_steps, double confidence, uint64_t n_pauses)
{
    uint64_t n_kernels = 0;
    for (uint32_t i = 0; i < n_places; i++)
        n_kernels += places[i].n_kernels;
    if (n_places == 0)
        mr_table_set_note(table, "This recording has no device work: nothing to split.");
    else if (n_steps == 0)
        mr_table_set_note(table, "%s; name the NVTX range that is a step (--step NAME)", how);
    else
        mr_table_set_note(
            table,
            "Steps %s (confidence %.2f, %" PRIu64
            " pauses left out). Compute: kernels, memsets, copies inside the "
            "device. Others: what other processes run there. Compute alone + copy hidden + copy "
            "exposed + others alone + idle = duration. Mean and sum are of the steps after warming "
            "up.%s%s",
            how, confidence, n_pauses,
            n_kernels == 0 ? " No kernels were recorded: idle time may be compute." : "",
            rec->n_lost_times || rec->n_dropped || rec->n_no_length
                ? " Records were lost or do not end after they begin: idle time is too high."
                : "");
}

struct report {
    const struct mr_filter *filter;
    struct mr_table *table;
    uint64_t n_steps, n_pauses;
    char how[320];
    double confidence;
};

static int add_place(const struct mr_look *look, void *user)
{
    struct report *report = user;
    int rc = place_rows(look, report->filter, report->table);
    if (report->n_steps == 0) {
        memcpy(report->how, look->steps.how, sizeof report->how);
        report->confidence = look->steps.confidence;
        report->n_pauses = look->steps.n_pauses;
    }
    report->n_steps += look->steps.n;
    return rc;
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct mr_place *places = NULL;
    struct mr_filter filter;
    uint32_t n_places = 0;
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table = mr_table_create("Steps (step_breakdown)", columns, MR_COUNT(columns));
    rc = table ? mr_recording_load(recording) : mr_error_nomem("a report", sizeof columns);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    struct report report = {.filter = &filter, .table = table};
    rc = rc ? rc
            : mr_report_looks(recording, places, n_places, opts->step, true, add_place, &report);
    if (!rc)
        set_note(table, recording, places, n_places, report.how, report.n_steps, report.confidence,
                 report.n_pauses);
    free(places);
    mr_filter_close(&filter);
    if (rc) {
        mr_table_destroy(table);
        return rc;
    }
    return mr_report_finish(table, opts, NULL, out);
}

const struct mr_report_kind mr_report_step_breakdown = {
    "step_breakdown",
    "Each step's time: compute, copies hidden under it, copies exposed, idle, and what the "
    "launching thread did "
    "meanwhile",
    make,
};
