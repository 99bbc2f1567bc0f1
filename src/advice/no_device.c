/*
 * A program without a device: the time of the thread that takes batches is its loader's, its own
 * code's or the system's.
 *
 * The loader is known by its ranges; without any, reads and waits for others (a queue, a lock) in
 * the system count as loading. Steps go from one range of the loader to the next.
 */
#include "advice/rules.h"
#include "recording/big.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FEW_STEPS 10
#define SURE      0.85 /* ranges */
#define UNSURE    0.4  /* system calls */
#define MOST      95   /* percent */

static bool of_process(const struct mr_recording *rec, uint32_t thread, uint16_t process)
{
    return thread < rec->n_threads && rec->threads[thread].process == process;
}

/* ---- which thread ---- */

/* The one with the most time in ranges of a loader; MR_NONE: none has any. */
static int thread_of_loader(const struct mr_recording *rec, const char *asked, uint32_t *out)
{
    uint64_t *ns = calloc((size_t)rec->n_threads + 1, sizeof *ns);
    *out = MR_NONE;
    if (!ns)
        return mr_error_nomem("threads", rec->n_threads * sizeof *ns);
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (!mr_range_loads(rec, range, asked) || range->end_ns <= range->start_ns)
            continue;
        ns[range->thread] += range->end_ns - range->start_ns;
        if (*out == MR_NONE || ns[range->thread] > ns[*out])
            *out = range->thread;
    }
    free(ns);
    return 0;
}

static uint64_t time_of(const struct mr_rec_process *process)
{
    return process->end_ns > process->start_ns ? process->end_ns - process->start_ns : 0;
}

/* Of the process that is longest not in system calls of its main thread: that one; a shell that
 * waits for its children is not meant. MR_NONE: no system calls of such a thread. */
static int busiest_thread(const struct mr_recording *rec, uint32_t *out)
{
    uint64_t *in_calls = calloc((size_t)rec->n_threads + 1, sizeof *in_calls), most = 0;
    *out = MR_NONE;
    if (!in_calls)
        return mr_error_nomem("threads", rec->n_threads * sizeof *in_calls);
    for (uint64_t i = 0; i < rec->n_os; i++)
        if (rec->os[i].thread < rec->n_threads)
            in_calls[rec->os[i].thread] += rec->os[i].end_ns - rec->os[i].start_ns;
    for (uint32_t t = 0; t < rec->n_threads; t++) {
        const struct mr_rec_process *process = &rec->processes[rec->threads[t].process];
        uint64_t all = time_of(process), own = all - MR_MIN(all, in_calls[t]);
        if (rec->threads[t].tid == process->pid && in_calls[t] > 0 && own >= most) {
            most = own;
            *out = t;
        }
    }
    free(in_calls);
    return 0;
}

/* ---- its time ---- */

/* Waits for what it started itself, or for a time, are not for data. */
static bool may_load(const struct mr_recording *rec, const struct mr_doing *doing)
{
    static const char *const others[] = {"wait",     "pthread_join", "nanosleep",  "clock_nanosl",
                                         "usleep",   "sleep",        "pthread_mu", "pthread_rw",
                                         "sched_yi", "sigwait",      "pthread_ba", "munmap"};
    const char *name = rec->strings[doing->name];
    for (size_t i = 0; i < MR_COUNT(others); i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return doing->what == MR_DOING_OS && doing->waits;
}

/* [out] marks: from each range of the loader to the next; ends: of the ranges. For free(). */
static uint64_t list_marks(const struct mr_host_look *host, const char *asked, uint64_t *marks,
                           uint64_t *ends)
{
    const struct mr_recording *rec = host->look.rec;
    uint64_t n = 0;
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->thread != host->look.place.thread || !mr_range_loads(rec, range, asked) ||
            (n > 0 && range->start_ns < ends[n - 1])) /* inside another */
            continue;
        marks[n] = range->start_ns;
        ends[n++] = range->end_ns;
    }
    return n;
}

static int steps_of_loader(struct mr_host_look *host, const char *asked)
{
    struct mr_steps *steps = &host->look.steps;
    uint64_t room = host->look.rec->n_ranges + 1,
             *marks = mr_big_alloc("steps", room, sizeof *marks),
             *ends = mr_big_alloc("steps", room, sizeof *ends);
    int rc = marks && ends ? 0 : -ENOMEM;
    if (rc == 0) {
        uint64_t n = list_marks(host, asked, marks, ends);
        rc = mr_steps_mark(steps, marks, ends, n);
        if (n > 0 && steps->n > 0 && steps->at[steps->n - 1].start_ns == marks[n - 1])
            steps->n--; /* nothing says where the last one ends, and it may have found no data */
    }
    steps->method = steps->n > 0 ? MR_STEPS_KNOWN : MR_STEPS_NONE;
    steps->confidence = 0.95;
    snprintf(steps->how, sizeof steps->how, "from one range \"%s\" to the next", host->c.data.name);
    mr_big_free(marks);
    mr_big_free(ends);
    return rc;
}

/* From the range --step; else the loader's; else all of the process. */
static int find_steps(struct mr_host_look *host, const struct mr_advice_opts *opts)
{
    struct mr_look *look = &host->look;
    const struct mr_rec_process *process = &look->rec->processes[look->place.process];
    int rc = 0;
    if (opts->step && *opts->step)
        rc = mr_steps_find(look->rec, &look->place, look->ops, 0, opts->step, &look->steps);
    else if (host->c.data.how == MR_LOADER_RANGES)
        rc = steps_of_loader(host, opts->range);
    if (rc < 0)
        return rc;
    look->n_warm = mr_steps_warm(&look->steps);
    look->n_steps = look->steps.n - look->n_warm;
    for (uint64_t i = look->n_warm; i < look->steps.n; i++)
        mr_intervals_add(&look->in, look->steps.at[i].start_ns, look->steps.at[i].end_ns);
    if (look->steps.n == 0)
        mr_intervals_add(&look->in, process->start_ns, process->end_ns);
    mr_intervals_unite(&look->in);
    look->wall_ns = mr_intervals_measure(&look->in);
    return look->in.lost ? mr_error_nomem("intervals", look->steps.n) : 0;
}

static void find_waits(struct mr_host_look *host)
{
    const struct mr_thread_log *log = &host->look.logs[0];
    struct mr_data_waits *data = &host->c.data;
    for (uint64_t i = 0; i < log->n_doings; i++)
        if (may_load(host->look.rec, &log->doing[i]))
            mr_intervals_add(&data->at, log->doing[i].start_ns, log->doing[i].end_ns);
    mr_intervals_unite(&data->at);
    data->how = MR_LOADER_WAITS;
    snprintf(data->name, sizeof data->name, "reads and waits in the system");
}

/* The rest of the thread's system calls; what remains is its own code. */
static int split(struct mr_host_look *host)
{
    const struct mr_look *look = &host->look;
    const struct mr_thread_log *log = &look->logs[0];
    struct mr_intervals calls = {0}, in = {0}, rest = {0};
    uint64_t *ns = host->c.idle_ns;
    for (uint64_t i = 0; i < log->n_doings; i++)
        mr_intervals_add(&calls, log->doing[i].start_ns, log->doing[i].end_ns);
    mr_intervals_unite(&calls);
    mr_intervals_and(&calls, &look->in, &in);
    mr_intervals_without(&in, &host->c.data.at, &rest);
    ns[MR_IDLE_LOADER] = mr_intervals_common(&host->c.data.at, &look->in);
    ns[MR_IDLE_OS] = mr_intervals_measure(&rest);
    ns[MR_IDLE_HOST] = look->wall_ns - ns[MR_IDLE_LOADER] - ns[MR_IDLE_OS];
    int rc = rest.lost ? mr_error_nomem("intervals", log->n_doings) : 0;
    mr_intervals_free(&calls);
    mr_intervals_free(&in);
    mr_intervals_free(&rest);
    return rc;
}

/* ---- */

static int fill(struct mr_host_look *host, const struct mr_advice_opts *opts, uint32_t thread)
{
    struct mr_look *look = &host->look;
    const struct mr_recording *rec = look->rec;
    look->place.process = rec->threads[thread].process;
    look->place.thread = thread;
    look->place.device = UINT16_MAX;
    for (uint64_t i = 0; i < rec->n_os && !look->has_os; i++)
        look->has_os = of_process(rec, rec->os[i].thread, look->place.process);
    look->logs = calloc(1, sizeof *look->logs);
    if (!look->logs)
        return mr_error_nomem("threads", sizeof *look->logs);
    look->n_logs = 1;
    int rc = mr_thread_log_make(rec, thread, &look->logs[0]);
    rc = rc < 0 ? rc : mr_data_waits_find(look, opts->range, &host->c.data);
    if (rc < 0)
        return rc;
    if (host->c.data.how == MR_LOADER_WAITS) { /* not those that a device's loader may have */
        mr_data_waits_free(&host->c.data);
        find_waits(host);
    }
    rc = host->c.data.at.lost ? mr_error_nomem("intervals", rec->n_os) : find_steps(host, opts);
    rc = rc < 0 ? rc : mr_case_count_workers(&host->c);
    rc = rc < 0 ? rc : split(host);
    rc = rc < 0 ? rc : mr_case_find_cores(&host->c);
    return rc < 0 ? rc : mr_trust_find(&host->c);
}

int mr_host_look_make(const struct mr_recording *rec, const struct mr_advice_opts *opts,
                      struct mr_host_look *out)
{
    uint32_t thread;
    *out = (struct mr_host_look){.look.rec = rec, .c.opts = opts};
    out->c.look = &out->look;
    int rc = thread_of_loader(rec, opts->range, &thread);
    if (rc == 0 && thread == MR_NONE)
        rc = busiest_thread(rec, &thread);
    if (rc < 0 || thread == MR_NONE)
        return rc;
    rc = fill(out, opts, thread);
    if (rc == 0 && out->look.wall_ns > 0)
        return 1;
    mr_host_look_free(out);
    return rc;
}

void mr_host_look_free(struct mr_host_look *host)
{
    free(host->c.uses_device);
    mr_data_waits_free(&host->c.data);
    mr_look_free(&host->look);
}

/* ---- what it says ---- */

/* The range in which most of the thread's own code and calls are; 0: none. */
static int main_range(const struct mr_host_look *host, uint32_t *out, uint64_t *out_ns)
{
    const struct mr_look *look = &host->look;
    const struct mr_thread_log *log = &look->logs[0];
    struct mr_intervals rest = {0};
    uint64_t *ns = calloc((size_t)look->rec->n_strings + 1, sizeof *ns);
    *out = 0;
    *out_ns = 0;
    mr_intervals_without(&look->in, &host->c.data.at, &rest);
    if (!ns || rest.lost) {
        free(ns);
        mr_intervals_free(&rest);
        return mr_error_nomem("ranges", look->rec->n_strings * sizeof *ns);
    }
    for (uint64_t i = 0; i < log->n_scopes; i++) {
        const struct mr_scope *scope = &log->scope[i];
        if (scope->text >= look->rec->n_strings)
            continue;
        ns[scope->text] += mr_intervals_within(&rest, scope->start_ns, scope->end_ns);
        if (ns[scope->text] > *out_ns) {
            *out = scope->text;
            *out_ns = ns[scope->text];
        }
    }
    free(ns);
    mr_intervals_free(&rest);
    return 0;
}

static double percent(const struct mr_host_look *host, enum mr_idle_class class)
{
    return mr_case_percent(&host->c, (double)host->c.idle_ns[class]);
}

enum mr_bound mr_host_summarize(const struct mr_host_look *host, char *out, size_t cap)
{
    const struct mr_look *look = &host->look;
    const struct mr_data_waits *data = &host->c.data;
    bool ranges = data->how == MR_LOADER_RANGES;
    double share = percent(host, MR_IDLE_LOADER);
    int n = snprintf(
        out, cap,
        "%sdata-bound: no device was %s, and the program's thread was %.1f%% of %s "
        "(%.3f of %.3f ms) in %s%s%s, %.0f%% in its own code and %.0f%% in other "
        "calls of the system",
        share >= MR_DATA_BOUND ? "" : "not ",
        look->rec->traced & (MR_TRACE_CUDA | MR_TRACE_CUDA_LIGHT) ? "used" : "recorded", share,
        look->n_steps ? "the step" : "the recording",
        mr_case_ms(&host->c, (double)host->c.idle_ns[MR_IDLE_LOADER]),
        mr_case_ms(&host->c, (double)look->wall_ns), ranges ? "its loader (the range \"" : "",
        data->name, ranges ? "\")" : "", percent(host, MR_IDLE_HOST), percent(host, MR_IDLE_OS));
    size_t used = n > 0 ? MR_MIN((size_t)n, cap - 1) : 0;
    if (look->n_steps > 0)
        n = snprintf(out + used, cap - used, "; %" PRIu64 " steps%s, %s%s", look->n_steps,
                     look->n_warm ? " after warming up" : "", look->steps.how,
                     look->n_steps < FEW_STEPS ? "; so few steps say little" : "");
    used += n > 0 && look->n_steps > 0 ? MR_MIN((size_t)n, cap - 1 - used) : 0;
    if (!ranges)
        snprintf(out + used, cap - used,
                 "; by system calls alone, which may not be for data while its own code may load: "
                 "put an NVTX range around the loading and name it (--range)");
    return share >= MR_DATA_BOUND ? MR_BOUND_DATA : MR_BOUND_OTHER;
}

static int by_length(const void *a, const void *b)
{
    const struct mr_interval *x = a, *y = b;
    uint64_t m = x->end_ns - x->start_ns, n = y->end_ns - y->start_ns;
    if (m != n)
        return m < n ? 1 : -1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static int waits_table(const struct mr_host_look *host, struct mr_table **out)
{
    static const struct mr_column columns[] = {{"Start", MR_UNIT_NS, MR_CELL_INT},
                                               {"Duration", MR_UNIT_NS, MR_CELL_INT},
                                               {"Name", MR_UNIT_NONE, MR_CELL_TEXT}};
    struct mr_intervals in = {0};
    mr_intervals_and(&host->c.data.at, &host->look.in, &in);
    struct mr_table *table = in.lost ? NULL : mr_table_create("waits", columns, MR_COUNT(columns));
    if (!table) {
        mr_intervals_free(&in);
        return mr_error_nomem("evidence", sizeof columns);
    }
    if (in.n > 1)
        qsort(in.at, in.n, sizeof *in.at, by_length);
    for (size_t i = 0; i < in.n && i < MR_EVIDENCE; i++) {
        mr_table_row(table);
        mr_table_int(table, (int64_t)in.at[i].start_ns);
        mr_table_int(table, (int64_t)(in.at[i].end_ns - in.at[i].start_ns));
        mr_table_text(table, host->c.data.name);
    }
    mr_intervals_free(&in);
    return mr_table_finish(table, out);
}

int mr_host_judge(const struct mr_host_look *host, struct mr_judgement *out)
{
    const struct mr_case *c = &host->c;
    double loader = (double)c->idle_ns[MR_IDLE_LOADER];
    bool ranges = c->data.how == MR_LOADER_RANGES;
    char workers[600], line[400];
    uint32_t range;
    uint64_t range_ns;
    int rc = main_range(host, &range, &range_ns);
    rc = rc < 0 ? rc : mr_case_hottest(c, line, sizeof line);
    if (rc < 0)
        return rc;
    workers[0] = 0;
    if (mr_case_percent(c, loader) < MOST) /* else there is no step to keep up with */
        mr_suggest_workers(c, workers, sizeof workers);
    snprintf(out->title, sizeof out->title, "the program loads %.1f%% of the time",
             mr_case_percent(c, loader));
    size_t used = (size_t)snprintf(
        out->why, sizeof out->why,
        "of %.3f ms%s the thread is %.3f ms in %s%s%s, %.3f ms in its own code and %.3f ms in "
        "other calls of the system",
        mr_case_ms(c, (double)c->look->wall_ns), mr_case_per(c), mr_case_ms(c, loader),
        ranges ? "the range \"" : "", c->data.name, ranges ? "\"" : "",
        mr_case_ms(c, (double)c->idle_ns[MR_IDLE_HOST]),
        mr_case_ms(c, (double)c->idle_ns[MR_IDLE_OS]));
    if (range)
        used += (size_t)snprintf(out->why + used, sizeof out->why - used,
                                 ", most of it (%.3f ms) in the range \"%.60s\"",
                                 mr_case_ms(c, (double)range_ns), mr_case_string(c, range));
    snprintf(
        out->why + used, sizeof out->why - used,
        ".%s The saving assumes that the loader works meanwhile on cores that nobody else needs. "
        "Threshold: %.0f%% of the time.",
        line, 100 * MR_WORTH);
    snprintf(out->advice, sizeof out->advice,
             "Load ahead on more threads or processes, or make samples cheaper: decode at the size "
             "that is used, pack small files, cache what fits.%s",
             workers);
    out->saving_ns = loader;
    out->confidence = ranges ? SURE : UNSURE;
    out->verdict = loader >= MR_WORTH * (double)c->look->wall_ns ? MR_FOUND : MR_FINE;
    return out->verdict == MR_FOUND ? waits_table(host, &out->evidence) : 0;
}
