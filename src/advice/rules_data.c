/* Rules about waiting for data, and about gaps that nobody but the program's own code explains. */
#include "advice/rules.h"
#include "recording/big.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- data_starvation ---- */

#define MIN_SAMPLES 20  /* of the loader: fewer say nothing about its lines */
#define CROWDED     1.1 /* threads a core that want it: more of them wait for one */

/* Own code and reads inside the loader's time: it loads in the launching thread itself, rather than
 * wait for others. */
static double loads_itself(const struct mr_case *c)
{
    uint64_t waits = 0, all = mr_intervals_common(&c->data.at, &c->look->in);
    const struct mr_thread_log *log = &c->look->logs[0];
    for (uint64_t i = 0; c->look->n_logs > 0 && i < log->n_doings; i++)
        if (log->doing[i].what == MR_DOING_OS && log->doing[i].waits == 1)
            waits += mr_intervals_within(&c->data.at, log->doing[i].start_ns, log->doing[i].end_ns);
    return all > 0 && waits < all ? 1 - (double)waits / (double)all : 0;
}

/*
 * While the loader is the bottleneck, its w workers make a batch each step S. They must make one
 * each S - W, W being the wait: w' = ceil(w S / (S - W)). A thread that loads by itself for L a
 * step needs ceil(L / (S - W)) workers that do it meanwhile: S - W is the step that the saving
 * promises.
 */
void mr_suggest_workers(const struct mr_case *c, char *out, size_t cap)
{
    const struct mr_look *look = c->look;
    uint16_t own = look->place.process;
    uint32_t joined = own < look->rec->n_processes ? look->rec->processes[own].n_cores : 0;
    uint32_t n_cores = c->opts->n_cores ? c->opts->n_cores : joined ? joined : look->rec->n_cores;
    double step = look->n_steps ? (double)look->wall_ns / (double)look->n_steps : 0, wanted = 0;
    double wait = look->n_steps ? (double)c->idle_ns[MR_IDLE_LOADER] / (double)look->n_steps : 0;
    double load = look->n_steps
                      ? (double)mr_intervals_common(&c->data.at, &look->in) / (double)look->n_steps
                      : 0;
    size_t used = 0;
    out[0] = 0;
    if (step <= 0 || wait <= 0 || wait >= step)
        return;
    if (c->n_workers > 0) {
        wanted = ceil(c->n_workers * step / (step - wait));
        used = (size_t)snprintf(
            out, cap,
            " %u worker %s in the recording: %u x %.3f ms / (%.3f - %.3f ms) = %.0f workers "
            "would keep up%s.",
            c->n_workers, c->data.millrace ? "threads are" : "processes are", c->n_workers,
            step / 1e6, step / 1e6, wait / 1e6, wanted,
            c->data.millrace ? ", if the workers set the pace" : "");
    } else if (c->data.how == MR_LOADER_RANGES && look->has_os && loads_itself(c) > 0.5) {
        wanted = ceil(load / (step - wait));
        used = (size_t)snprintf(
            out, cap,
            " The launching thread loads the data itself, %.3f ms a step: %.0f workers in the "
            "background would keep up (%.3f / (%.3f - %.3f ms that are saved)).",
            load / 1e6, wanted, load / 1e6, step / 1e6, wait / 1e6);
    } else {
        used = (size_t)snprintf(out, cap,
                                " The number of workers needed is unknown: the recording has no "
                                "worker processes%s.",
                                look->has_os ? "" : " and no system calls");
    }
    if (n_cores > 0 && c->cores_wanted > CROWDED * n_cores && used < cap)
        snprintf(out + used, cap - used,
                 " The program's threads want %.1f cores at once and the machine has %u: workers "
                 "wait for a core, and more of them would not help; the work per sample must "
                 "shrink.",
                 c->cores_wanted, n_cores);
    else if (wanted > 0 && n_cores > 0 && wanted > n_cores && used < cap)
        snprintf(out + used, cap - used,
                 " The machine has %u cores only: the work per sample must shrink as well.",
                 n_cores);
}

/* Whether a process (globalPid >> 24) is the place's, or one that it started. */
static bool works_for(const void *state, uint64_t number)
{
    const struct mr_case *c = state;
    const struct mr_recording *rec = c->look->rec;
    for (uint32_t p = 0; p < rec->n_processes; p++)
        if (rec->processes[p].number == number)
            return mr_case_works_for(c, p);
    return false;
}

int mr_case_hottest(const struct mr_case *c, char *out, size_t cap)
{
    const struct mr_recording *rec = c->look->rec;
    uint32_t thread = c->look->place.thread;
    struct mr_stack_hottest hot;
    char line[200];
    out[0] = 0;
    if (!c->stacks || c->stacks->n_samples == 0 || thread >= rec->n_threads)
        return 0;
    uint64_t process = rec->processes[rec->threads[thread].process].number;
    int rc = mr_stacks_loader(c->stacks, &c->data.at, process << 24 | rec->threads[thread].tid,
                              works_for, c, &hot);
    if (rc < 0 || hot.place == MR_NONE || hot.n < MIN_SAMPLES)
        return rc;
    const struct mr_stack_place *place = &c->stacks->places[hot.place];
    snprintf(out, cap,
             " Meanwhile %s %.80s is %.0f%% of the loader's time (%.0f%% of that on a processor, "
             "by %" PRIu64 " samples of its stacks).",
             mr_stack_line(c->stacks, hot.place, false, line, sizeof line),
             c->stacks->texts.text[place->function], 100 * (double)hot.ns / (double)hot.of_ns,
             100 * (double)hot.cpu_ns / (double)hot.ns, hot.n);
    return 0;
}

struct wait_row {
    uint64_t start_ns, ns, idle_ns;
};

static int by_idle(const void *a, const void *b)
{
    const struct wait_row *x = a, *y = b;
    if (x->idle_ns != y->idle_ns)
        return x->idle_ns < y->idle_ns ? 1 : -1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* A row for each wait, as long as it took, with what the device idled in it. */
static int waits_table(const struct mr_case *c, struct mr_table **out)
{
    static const struct mr_column columns[] = {{"Start", MR_UNIT_NS, MR_CELL_INT},
                                               {"Duration", MR_UNIT_NS, MR_CELL_INT},
                                               {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
                                               {"Idle in It", MR_UNIT_NS, MR_CELL_INT}};
    const struct mr_intervals *waits = &c->data.at;
    struct wait_row *rows = mr_big_alloc("evidence", waits->n + 1, sizeof *rows);
    struct mr_table *table = rows ? mr_table_create("waits", columns, MR_COUNT(columns)) : NULL;
    size_t n = 0;
    if (!table) {
        mr_big_free(rows);
        return mr_error_nomem("evidence", waits->n * sizeof *rows);
    }
    for (size_t i = 0; i < waits->n; i++) {
        const struct mr_interval *at = &waits->at[i];
        uint64_t idle = mr_intervals_within(&c->look->idle, at->start_ns, at->end_ns);
        if (idle > 0)
            rows[n++] = (struct wait_row){at->start_ns, at->end_ns - at->start_ns, idle};
    }
    mr_big_sort(rows, n, sizeof *rows, by_idle);
    for (size_t i = 0; i < n && i < MR_EVIDENCE; i++) {
        mr_table_row(table);
        mr_table_int(table, (int64_t)rows[i].start_ns);
        mr_table_int(table, (int64_t)rows[i].ns);
        mr_table_text(table, c->data.name);
        mr_table_int(table, (int64_t)rows[i].idle_ns);
    }
    mr_big_free(rows);
    return mr_table_finish(table, out);
}

/* Neither ranges of a loader nor system calls were recorded. */
static int judge_unknown(const struct mr_case *c, double idle, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    /* launches, copies and the like do not load */
    double may = (double)(c->idle_ns[MR_IDLE_HOST] + c->idle_ns[MR_IDLE_OS] +
                          c->idle_ns[MR_IDLE_UNEXPLAINED]);
    if (may < MR_WORTH * (double)look->wall_ns)
        return mr_fine(out,
                       "the device is idle %.1f%% of the time, %.1f%% in code of the program "
                       "that may load data",
                       mr_case_percent(c, idle), mr_case_percent(c, may));
    return mr_cannot_tell(
        out,
        "the device idles %.3f ms%s, but neither an NVTX range of the loader nor system "
        "calls were recorded: %s, or name the range (--range)",
        mr_case_ms(c, idle), mr_case_per(c), mr_recording_more(look->rec));
}

static void advise_loader(const struct mr_case *c, const char *workers, struct mr_judgement *out)
{
    if (c->data.millrace)
        snprintf(out->advice, sizeof out->advice,
                 "The loader's statistics (bottleneck in mr_loader_stats, the last line of "
                 "millrace feed) name the stage that sets the pace: more workers for decoding "
                 "and transforms, --cache or packed shards for reading, u8 finished on the "
                 "device (--device-transforms) for copying.%s",
                 workers);
    else
        snprintf(out->advice, sizeof out->advice,
                 "%sLoad ahead on more threads or processes (in PyTorch DataLoader(num_workers=N, "
                 "prefetch_factor=4, "
                 "persistent_workers=True)), or make samples cheaper: decode at the size that is "
                 "used, resize and normalise "
                 "on the device, pack small files.%s",
                 c->data.how == MR_LOADER_WAITS
                     ? "Put an NVTX range around the loading of data to be sure. "
                     : "",
                 workers);
}

static int judge_starvation(const struct mr_case *c, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    double idle = (double)mr_intervals_measure(&look->idle);
    char workers[600], line[400];
    if (look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded, so the device's idle time is "
                                   "unknown");
    if (c->data.how == MR_LOADER_UNKNOWN)
        return judge_unknown(c, idle, out);
    if (mr_case_doubts(c) && (double)c->idle_ns[MR_IDLE_LOADER] < MR_WORTH * (double)look->wall_ns)
        return mr_cannot_tell(out,
                              "the device idles %.3f ms%s, %.3f ms of it while the launching "
                              "thread runs its own code, which may load data: put an NVTX range "
                              "around the loading and name it (--range)",
                              mr_case_ms(c, idle), mr_case_per(c),
                              mr_case_ms(c, (double)c->idle_ns[MR_IDLE_HOST]));
    int rc = mr_case_hottest(c, line, sizeof line);
    if (rc < 0)
        return rc;
    mr_suggest_workers(c, workers, sizeof workers);
    snprintf(out->title, sizeof out->title, "the device waits for data %.1f%% of the time",
             mr_case_percent(c, (double)c->idle_ns[MR_IDLE_LOADER]));
    snprintf(out->why, sizeof out->why,
             "the device idles %.3f ms%s, of it %.3f ms while the launching thread is in "
             "%s%s%s%s.%s The saving assumes that the program never waits for its loader.",
             mr_case_ms(c, idle), mr_case_per(c), mr_case_ms(c, (double)c->idle_ns[MR_IDLE_LOADER]),
             c->data.how == MR_LOADER_RANGES ? "the range \"" : "", c->data.name,
             c->data.how == MR_LOADER_RANGES ? "\"" : "",
             c->data.how == MR_LOADER_WAITS ? ", not all of which may be for data" : "", line);
    advise_loader(c, workers, out);
    mr_judge_saving(c, out, (double)c->idle_ns[MR_IDLE_LOADER],
                    c->data.how == MR_LOADER_RANGES ? 0.9 : 0.6);
    return out->verdict == MR_FOUND ? waits_table(c, &out->evidence) : 0;
}

/* ---- gpu_gaps ---- */

static void while_text(const struct mr_case *c, const struct mr_interval *gap, char *out,
                       size_t cap)
{
    const struct mr_blame *most = NULL;
    uint64_t low = 0, high = c->blames.n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (c->blames.at[mid].end_ns > gap->start_ns)
            high = mid;
        else
            low = mid + 1;
    }
    for (; low < c->blames.n && c->blames.at[low].start_ns < gap->end_ns; low++) {
        const struct mr_blame *p = &c->blames.at[low];
        if (!most || p->end_ns - p->start_ns > most->end_ns - most->start_ns)
            most = p;
    }
    snprintf(out, cap, "%.60s%s%.60s", most && most->range ? mr_case_string(c, most->range) : "",
             most && most->range ? ": " : "",
             !most || most->what == MR_DOING_OWN ? "its own code" : mr_case_string(c, most->name));
}

struct gap_row {
    struct mr_interval gap;
    uint64_t host_ns;
};

static int by_host(const void *a, const void *b)
{
    const struct gap_row *x = a, *y = b;
    if (x->host_ns != y->host_ns)
        return x->host_ns < y->host_ns ? 1 : -1;
    return (x->gap.start_ns > y->gap.start_ns) - (x->gap.start_ns < y->gap.start_ns);
}

/* Gaps with host code in them, and their number. [out] out: for the caller to mr_big_free(). */
static int host_gaps(const struct mr_case *c, struct gap_row **out, uint64_t *out_n)
{
    const struct mr_intervals *idle = &c->look->idle;
    struct gap_row *rows = mr_big_alloc("gaps", idle->n + 1, sizeof *rows);
    uint64_t n = 0, p = 0;
    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < idle->n; i++) {
        rows[n] = (struct gap_row){idle->at[i], 0};
        for (; p < c->idle.n && c->idle.at[p].start_ns < idle->at[i].end_ns; p++)
            if (c->idle.at[p].class == MR_IDLE_HOST)
                rows[n].host_ns += c->idle.at[p].end_ns - c->idle.at[p].start_ns;
        n += rows[n].host_ns > 0;
    }
    mr_big_sort(rows, n, sizeof *rows, by_host);
    *out = rows;
    *out_n = n;
    return 0;
}

static int gaps_table(const struct mr_case *c, const struct gap_row *rows, uint64_t n,
                      struct mr_table **out)
{
    static const struct mr_column columns[] = {{"Start", MR_UNIT_NS, MR_CELL_INT},
                                               {"Duration", MR_UNIT_NS, MR_CELL_INT},
                                               {"In Host Code", MR_UNIT_NS, MR_CELL_INT},
                                               {"Mostly in", MR_UNIT_NONE, MR_CELL_TEXT}};
    struct mr_table *table = mr_table_create("gaps", columns, MR_COUNT(columns));
    char text[140];
    if (!table)
        return mr_error_nomem("evidence", sizeof columns);
    for (uint64_t i = 0; i < n && i < MR_EVIDENCE; i++) {
        while_text(c, &rows[i].gap, text, sizeof text);
        mr_table_row(table);
        mr_table_int(table, (int64_t)rows[i].gap.start_ns);
        mr_table_int(table, (int64_t)(rows[i].gap.end_ns - rows[i].gap.start_ns));
        mr_table_int(table, (int64_t)rows[i].host_ns);
        mr_table_text(table, text);
    }
    return mr_table_finish(table, out);
}

static int judge_gaps(const struct mr_case *c, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    double host = (double)c->idle_ns[MR_IDLE_HOST];
    struct gap_row *rows = NULL;
    uint64_t n = 0;
    if (look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded, so the device's idle time is "
                                   "unknown");
    if (!look->has_calls)
        return mr_cannot_tell(out, "no CUDA calls of this process were recorded, so the cause of "
                                   "the gaps is unknown");
    int rc = host_gaps(c, &rows, &n);
    if (rc)
        return rc;
    snprintf(out->title, sizeof out->title,
             "the device idles while the launching thread runs its own code");
    snprintf(out->why, sizeof out->why,
             "in %" PRIu64 " gaps, of any length, the launching thread was for %.3f ms%s in no "
             "CUDA call%s, not in the loader and not between two launches of a burst (class host "
             "code of the report idle_breakdown). At most that is saved.",
             n, mr_case_ms(c, host), mr_case_per(c),
             look->has_os ? ", in no system call"
                          : " (system calls were not recorded, so it may have waited in one)");
    snprintf(out->advice, sizeof out->advice,
             "Move host work (metrics, logging, augmentation, Python) off the launching thread "
             "or behind the launches of the next step; NVTX ranges show which part it is (see "
             "While Idle in the report step_breakdown).");
    mr_judge_saving(c, out, host, look->has_os ? 0.5 : 0.3);
    rc = out->verdict == MR_FOUND ? gaps_table(c, rows, n, &out->evidence) : 0;
    mr_big_free(rows);
    return rc;
}

const struct mr_rule mr_rules_data[] = {
    {"data_starvation", judge_starvation},
    {"gpu_gaps", judge_gaps},
    {NULL, NULL},
};
