/* The report idle_breakdown: what the steps' time is made of, each nanosecond of idle time in
 * exactly one class. */
#include "recording/idle.h"
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

/* What is below the classes of idle time in the table. */
enum { IDLE = MR_N_IDLE, COPY, COMMUNICATION, OTHERS, COMPUTE, STEP, N_ROWS };

static const char *text_of(int row)
{
    static const char *const text[] = {[IDLE] = "idle",
                                       [COPY] = "copy exposed",
                                       [COMMUNICATION] = "communication exposed",
                                       [OTHERS] = "other processes",
                                       [COMPUTE] = "compute",
                                       [STEP] = "step"};
    return row < MR_N_IDLE ? mr_idle_text((enum mr_idle_class)row) : text[row];
}

static const struct mr_column columns[] = {
    {"PID", MR_UNIT_NONE, MR_CELL_INT},           {"Device", MR_UNIT_NONE, MR_CELL_INT},
    {"Class", MR_UNIT_NONE, MR_CELL_TEXT},        {"Mean a Step", MR_UNIT_NS, MR_CELL_REAL},
    {"Of Idle", MR_UNIT_PERCENT, MR_CELL_REAL},   {"Of Step", MR_UNIT_PERCENT, MR_CELL_REAL},
    {"Total", MR_UNIT_NS, MR_CELL_INT},           {"Most in a Step", MR_UNIT_NS, MR_CELL_INT},
    {"Steps with It", MR_UNIT_COUNT, MR_CELL_INT}};

struct sums {
    uint64_t n_steps, ns[N_ROWS], most_ns[N_ROWS], n_with[N_ROWS];
};

static void add_step(const struct mr_look *look, const struct mr_idle *idle,
                     const struct mr_intervals *comm, const struct mr_interval *step,
                     struct sums *sums)
{
    uint64_t ns[N_ROWS] = {0}, from = step->start_ns, to = step->end_ns;
    uint64_t busy = mr_intervals_within(&look->busy, from, to),
             compute = mr_intervals_within(&look->compute, from, to);
    mr_idle_add_up(idle, from, to, ns);
    ns[IDLE] = mr_intervals_within(&look->idle, from, to);
    ns[COPY] = busy - compute;
    ns[COMMUNICATION] = mr_intervals_within(comm, from, to);
    ns[COMPUTE] = compute - ns[COMMUNICATION];
    ns[OTHERS] = mr_intervals_within(&look->others, from, to);
    ns[STEP] = to - from;
    sums->n_steps++;
    for (int i = 0; i < N_ROWS; i++) {
        sums->ns[i] += ns[i];
        sums->most_ns[i] = MR_MAX(sums->most_ns[i], ns[i]);
        sums->n_with[i] += ns[i] > 0;
    }
}

static void rows(struct mr_table *table, const struct mr_look *look, const struct sums *sums)
{
    const struct mr_recording *rec = look->rec;
    for (int i = 0; i < N_ROWS; i++) {
        if (i == OTHERS && sums->ns[i] == 0)
            continue;
        mr_table_row(table);
        mr_table_int(table, look->place.process < rec->n_processes
                                ? rec->processes[look->place.process].pid
                                : 0);
        mr_table_int(table, mr_place_device_id(rec, &look->place));
        mr_table_text(table, text_of(i));
        mr_table_real(table, (double)sums->ns[i] / (double)sums->n_steps);
        if (i <= IDLE && sums->ns[IDLE] > 0)
            mr_table_real(table, 100 * (double)sums->ns[i] / (double)sums->ns[IDLE]);
        else
            mr_table_empty(table);
        mr_table_real(table,
                      sums->ns[STEP] ? 100 * (double)sums->ns[i] / (double)sums->ns[STEP] : 0);
        mr_table_int(table, (int64_t)sums->ns[i]);
        mr_table_int(table, (int64_t)sums->most_ns[i]);
        mr_table_int(table, (int64_t)sums->n_with[i]);
    }
}

/* Steps after warming up; of a look without steps all of its time. */
static int place_rows(const struct mr_look *look, const struct mr_filter *filter,
                      const char *loader, struct mr_table *table, uint64_t *out_steps)
{
    struct mr_data_waits data = {0};
    struct mr_idle idle = {0};
    struct mr_intervals comm = {0};
    struct sums sums = {0};
    int rc = mr_data_waits_find(look, loader, &data);
    if (rc < 0)
        goto end;
    rc = mr_idle_sort(look, &data, &idle);
    if (rc < 0)
        goto end;
    rc = mr_comm_exposed(look, &comm);
    if (rc < 0)
        goto end;
    for (uint64_t i = look->n_warm; i < look->steps.n; i++)
        if (mr_filter_takes(filter, look->steps.at[i].start_ns))
            add_step(look, &idle, &comm, &look->steps.at[i], &sums);
    for (uint64_t i = 0; look->steps.n == 0 && i < look->in.n; i++)
        add_step(look, &idle, &comm, &look->in.at[i], &sums);
    *out_steps = sums.n_steps;
    if (sums.n_steps > 0)
        rows(table, look, &sums);
end:
    mr_data_waits_free(&data);
    mr_idle_free(&idle);
    mr_intervals_free(&comm);
    return rc;
}

static void add_note(struct mr_table *table, const struct mr_look *look, uint64_t n_steps)
{
    if (look->steps.n > 0)
        mr_table_set_note(table,
                          "%" PRIu64 " steps%s, %s. The classes add up to idle; idle, copies and "
                          "communication that no compute hides, other processes and compute to "
                          "the step",
                          n_steps, look->n_warm ? " after warming up" : "", look->steps.how);
    else
        mr_table_set_note(table,
                          "%s: the whole recording is one step here. The classes add up to idle",
                          look->steps.how);
    if (look->place.n_kernels == 0)
        mr_table_add_note(table, "no kernels were recorded: idle time may be compute");
    if (!look->has_os)
        mr_table_add_note(table, "system calls were not recorded: host code may be such calls");
}

struct report {
    const struct mr_filter *filter;
    const char *loader;
    struct mr_table *table;
    bool has_note;    /* the first place's */
    uint32_t n_loads; /* places whose process has the loader's range */
    struct mr_error_kept unknown;
};

static int add_place(const struct mr_look *look, void *user)
{
    struct report *report = user;
    uint64_t n_steps = 0;
    int rc = place_rows(look, report->filter, report->loader, report->table, &n_steps);
    if (rc == MR_EOPTION && report->loader) { /* one that has the range is enough */
        if (!report->unknown.code)
            mr_error_keep(rc, &report->unknown);
        return place_rows(look, report->filter, NULL, report->table, &n_steps);
    }
    report->n_loads += !rc;
    if (!report->has_note)
        add_note(report->table, look, n_steps);
    report->has_note = true;
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
    struct mr_table *table =
        mr_table_create("Idle time by class (idle_breakdown)", columns, MR_COUNT(columns));
    rc = table ? mr_recording_load(recording) : mr_error_nomem("a report", sizeof columns);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    struct report report = {.filter = &filter, .loader = opts->loader, .table = table};
    rc = rc ? rc
            : mr_report_looks(recording, places, n_places, opts->step, false, add_place, &report);
    if (!rc && report.n_loads == 0 && report.unknown.code)
        rc = mr_error_put(&report.unknown);
    if (!rc && n_places == 0)
        mr_table_set_note(table, "This recording has no device work: nothing to split.");
    free(places);
    mr_filter_close(&filter);
    if (rc) {
        mr_table_destroy(table);
        return rc;
    }
    return mr_report_finish(table, opts, NULL, out);
}

const struct mr_report_kind mr_report_idle_breakdown = {
    "idle_breakdown",
    "Why the device idles: each nanosecond in one class, a step's mean and share",
    make,
};
