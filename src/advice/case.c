/* What rules share: when data was waited for, rates of the link, who is to blame for idle time. */
#include "advice/rules.h"
#include "recording/big.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

double mr_case_ms(const struct mr_case *c, double ns)
{
    return ns / 1e6 / (double)(c->look->n_steps ? c->look->n_steps : 1);
}

double mr_case_percent(const struct mr_case *c, double ns)
{
    return c->look->wall_ns ? 100 * ns / (double)c->look->wall_ns : 0;
}

const char *mr_case_per(const struct mr_case *c)
{
    return c->look->n_steps ? " a step" : "";
}

const char *mr_case_string(const struct mr_case *c, uint32_t string)
{
    const struct mr_recording *rec = c->look->rec;
    return string < rec->n_strings && rec->strings[string] ? rec->strings[string] : "";
}

bool mr_case_in(const struct mr_case *c, uint64_t time_ns)
{
    size_t i = mr_intervals_find(&c->look->in, time_ns);
    return i < c->look->in.n && c->look->in.at[i].start_ns <= time_ns;
}

uint64_t mr_case_exposed(const struct mr_case *c, const struct mr_rec_op *op)
{
    return op->end_ns - op->start_ns -
           mr_intervals_within(&c->look->compute, op->start_ns, op->end_ns);
}

bool mr_case_launches(const struct mr_case *c, uint32_t thread)
{
    for (uint32_t i = 0; i < c->look->n_logs; i++)
        if (c->look->logs[i].thread == thread)
            return true;
    return false;
}

/* ---- judgements ---- */

int mr_fine(struct mr_judgement *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->why, sizeof out->why, format, args);
    va_end(args);
    out->verdict = MR_FINE;
    return 0;
}

int mr_cannot_tell(struct mr_judgement *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->why, sizeof out->why, format, args);
    va_end(args);
    out->verdict = MR_CANNOT_TELL;
    return 0;
}

void mr_judge_saving(const struct mr_case *c, struct mr_judgement *out, double saving_ns,
                     double confidence)
{
    saving_ns = MR_MIN(saving_ns, (double)c->look->wall_ns);
    out->saving_ns = saving_ns > 0 ? saving_ns : 0;
    out->confidence = confidence;
    out->verdict =
        saving_ns >= MR_WORTH * (double)c->look->wall_ns && saving_ns > 0 ? MR_FOUND : MR_FINE;
    size_t used = strlen(out->why);
    bool blind = c->look->place.n_kernels == 0;
    out->confidence *= blind ? 0.3 : 1;
    snprintf(out->why + used, sizeof out->why - used, " Threshold: %.0f%% of the time.%s",
             100 * MR_WORTH,
             blind ? " No kernels were recorded, so it is unknown what compute hides: the saving "
                     "is an upper bound."
                   : "");
}

/* ---- the loader's workers ---- */

/* Threads of millrace's loader that made samples. */
static int count_threads(struct mr_case *c)
{
    const struct mr_recording *rec = c->look->rec;
    bool *works = calloc((size_t)rec->n_threads + 1, sizeof *works);
    if (!works)
        return mr_error_nomem("threads", rec->n_threads);
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->thread >= rec->n_threads || works[range->thread] ||
            rec->threads[range->thread].process != c->look->place.process ||
            !mr_range_named(rec, range, "millrace@samples", false))
            continue;
        works[range->thread] = true;
        c->n_workers++;
    }
    free(works);
    return 0;
}

/* Of the nearest process with device work that it comes from. Where parents are not known, of the
 * only one of its file that has some. */
bool mr_case_works_for(const struct mr_case *c, uint32_t process)
{
    const struct mr_recording *rec = c->look->rec;
    uint32_t own = c->look->place.process, p = process, n = 0;
    for (uint32_t hops = 0; hops < 64 && p < rec->n_processes; hops++) {
        if (p == own || c->uses_device[p])
            return p == own;
        p = mr_rec_parent(rec, p);
    }
    for (p = 0; p < rec->n_processes; p++)
        n += c->uses_device[p] && rec->processes[p].file == rec->processes[process].file;
    return own < rec->n_processes && n <= 1 &&
           rec->processes[own].file == rec->processes[process].file;
}

/* Processes that never use a device and run the same program: the loader's workers, forked. */
static int count_workers(struct mr_case *c)
{
    const struct mr_recording *rec = c->look->rec;
    uint16_t own = c->look->place.process;
    for (uint32_t p = 0; p < rec->n_processes && own < rec->n_processes; p++) {
        const struct mr_rec_process *process = &rec->processes[p], *mine = &rec->processes[own];
        bool same =
            strcmp(mr_case_string(c, process->command), mr_case_string(c, mine->command)) == 0 &&
            strcmp(mr_case_string(c, process->name), mr_case_string(c, mine->name)) == 0;
        bool during = c->look->in.n > 0 &&
                      process->start_ns < c->look->in.at[c->look->in.n - 1].end_ns &&
                      (process->end_ns == 0 || process->end_ns > c->look->in.at[0].start_ns);
        c->n_workers += p != own && same && during && mr_case_works_for(c, p);
    }
    return 0;
}

int mr_case_count_workers(struct mr_case *c)
{
    const struct mr_recording *rec = c->look->rec;
    c->uses_device = calloc((size_t)rec->n_processes + 1, sizeof *c->uses_device);
    if (!c->uses_device)
        return mr_error_nomem("processes", rec->n_processes);
    for (uint64_t i = 0; i < rec->n_ops; i++)
        if (rec->ops[i].process < rec->n_processes)
            c->uses_device[rec->ops[i].process] = true;
    return c->data.millrace ? count_threads(c) : count_workers(c);
}

/* ---- rates ---- */

/* One word or more of a pattern, whole words of the name. '#': a digit that is not 0; '*' at the
 * end: the rest of the word. */
static bool named_so(const char *name, const char *pattern)
{
    for (const char *at = name; *at; at++) {
        size_t i = 0;
        if (at > name && isalnum((unsigned char)at[-1]))
            continue;
        while (pattern[i] && pattern[i] != '*' &&
               (pattern[i] == '#' ? at[i] >= '1' && at[i] <= '9' : at[i] == pattern[i]))
            i++;
        if (pattern[i] == '*' || (!pattern[i] && !isalnum((unsigned char)at[i])))
            return true;
    }
    return false;
}

double mr_link_rate_of(const char *device)
{
    static const struct {
        const char *part;
        double gbps;
    } known[] = {
        {"GH200", 350},       {"GB200", 350},       {"GB300", 350},       {"H100", 55},
        {"H200", 55},         {"H800", 55},         {"H20", 55},          {"B200", 55},
        {"B300", 55},         {"RTX 50#0", 55},     {"RTX PRO 6000", 55}, {"RTX PRO 5000", 55},
        {"A100", 25},         {"A800", 25},         {"A10", 25},          {"A10G", 25},
        {"A30", 25},          {"A40", 25},          {"L40", 25},          {"L40S", 25},
        {"L4", 25},           {"RTX 40#0", 25},     {"RTX 30#0", 25},     {"RTX A*", 25},
        {"RTX 4000 Ada", 25}, {"RTX 5000 Ada", 25}, {"RTX 6000 Ada", 25}, {"V100", 12.3},
        {"T4", 12.3},         {"P100", 12},         {"RTX 20#0", 12.3}};
    for (size_t i = 0; i < MR_COUNT(known); i++)
        if (named_so(device, known[i].part))
            return known[i].gbps;
    return 0;
}

/* A simulated device's are its options. */
static double rate_option(const char *name, const char *option)
{
    const char *at = mr_name_simulated(name) ? strstr(name, option) : NULL;
    return at ? strtod(at + strlen(option), NULL) : 0;
}

bool mr_case_simulated(const struct mr_case *c)
{
    const struct mr_rec_device *device = mr_look_device(c->look);
    return device && mr_name_simulated(mr_case_string(c, device->name));
}

/* Where no pinned copy was measured. */
static void complete_rate(struct mr_case *c, int d, const char *device)
{
    double option = rate_option(device, d ? " d2h=" : "(h2d=");
    if (c->opts->link_gbps <= 0 && c->pinned_rate[d] > 0)
        return;
    c->rate_measured[d] = false;
    if (c->opts->link_gbps <= 0 && option > 0) {
        c->pinned_rate[d] = option;
        snprintf(c->rate_how[d], sizeof c->rate_how[d], "an option of the simulated device");
    } else {
        c->pinned_rate[d] = c->link_rate;
        snprintf(c->rate_how[d], sizeof c->rate_how[d], "%s", c->link_how);
    }
}

static void find_rates(struct mr_case *c)
{
    const struct mr_recording *rec = c->look->rec;
    const struct mr_rec_device *device = mr_look_device(c->look);
    double named = device ? mr_link_rate_of(mr_case_string(c, device->name)) : 0;
    c->link_rate = c->opts->link_gbps > 0 ? c->opts->link_gbps : named;
    if (c->opts->link_gbps > 0)
        snprintf(c->link_how, sizeof c->link_how, "as given");
    else if (device && named > 0)
        snprintf(c->link_how, sizeof c->link_how, "usual for %.50s",
                 mr_case_string(c, device->name));
    for (uint64_t i = 0; i < c->look->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[c->look->ops[i]];
        bool in = op->copy_kind == MR_COPY_H2D, pinned = (in ? op->src : op->dst) == MR_MEM_PINNED;
        if (op->kind != MR_OP_COPY || !pinned || (!in && op->copy_kind != MR_COPY_D2H) ||
            op->bytes < MR_BIG_COPY || op->end_ns <= op->start_ns)
            continue;
        double rate = (double)op->bytes / (double)(op->end_ns - op->start_ns);
        if (rate > c->pinned_rate[!in]) {
            c->pinned_rate[!in] = rate;
            c->rate_measured[!in] = true;
            snprintf(c->rate_how[!in], sizeof c->rate_how[!in],
                     "the fastest large pinned copy here");
        }
    }
    for (int d = 0; d < 2; d++)
        complete_rate(c, d, device ? mr_case_string(c, device->name) : "");
}

/* ---- calls that wait for the copy before them ---- */

static int find_copy_syncs(struct mr_case *c)
{
    const struct mr_recording *rec = c->look->rec;
    c->after_copy = mr_big_alloc("calls", rec->n_apis + 1, 1);
    if (!c->after_copy)
        return -ENOMEM;
    for (uint64_t i = 0; i < c->look->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[c->look->ops[i]];
        if (op->kind != MR_OP_COPY || op->copy_kind != MR_COPY_H2D || op->src != MR_MEM_PINNED)
            continue;
        const struct mr_rec_api *sync = mr_sync_after(c->look, op);
        if (sync)
            c->after_copy[sync - rec->apis] = 1;
    }
    return 0;
}

static int blame_all(struct mr_case *c)
{
    const struct mr_intervals *idle = &c->look->idle;
    for (size_t i = 0; i < idle->n; i++) {
        int rc = mr_blame_idle(c->look, idle->at[i].start_ns, idle->at[i].end_ns, &c->blames);
        if (rc)
            return rc;
    }
    return 0;
}

static void add_up(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    mr_idle_add_up(&c->idle, 0, UINT64_MAX, c->idle_ns);
    c->exposed_h2d_ns =
        mr_intervals_measure(&look->h2d) - mr_intervals_common(&look->h2d, &look->compute);
}

static int find_communication(struct mr_case *c)
{
    struct mr_intervals comm = {0};
    int rc = mr_comm_exposed(c->look, &comm);
    c->comm_ns = mr_intervals_measure(&comm);
    mr_intervals_free(&comm);
    return rc;
}

bool mr_case_doubts(const struct mr_case *c)
{
    double share = mr_case_percent(c, (double)(c->idle_ns[MR_IDLE_LOADER] + c->exposed_h2d_ns)),
           own = mr_case_percent(c, (double)c->idle_ns[MR_IDLE_HOST]);
    if (c->data.how == MR_LOADER_RANGES || own + share < MR_DATA_BOUND)
        return false;
    return c->data.how == MR_LOADER_WAITS ? own > share || share < MR_DATA_BOUND
                                          : share < MR_DATA_BOUND;
}

int mr_case_make(const struct mr_look *look, const struct mr_advice_opts *opts, struct mr_case *out)
{
    struct mr_case c = {.look = look, .opts = opts};
    int rc = mr_kernel_streams_make(look, &c.streams);
    rc = rc ? rc : mr_streams_make(look, &c.by_stream);
    rc = rc ? rc : mr_data_waits_find(look, opts->range, &c.data);
    rc = rc ? rc : mr_case_count_workers(&c);
    rc = rc ? rc : find_copy_syncs(&c);
    rc = rc ? rc : mr_idle_sort(look, &c.data, &c.idle);
    rc = rc ? rc : blame_all(&c);
    rc = rc ? rc : mr_claims_make(&c);
    rc = rc ? rc : mr_trust_find(&c);
    rc = rc ? rc : find_communication(&c);
    rc = rc ? rc : mr_case_find_cores(&c);
    if (rc) {
        mr_case_free(&c);
        return rc;
    }
    find_rates(&c);
    add_up(&c);
    *out = c;
    return 0;
}

void mr_case_free(struct mr_case *c)
{
    free(c->uses_device);
    mr_big_free(c->streams.key);
    mr_streams_free(&c->by_stream);
    mr_big_free(c->blames.at);
    mr_big_free(c->after_copy);
    mr_big_free(c->calls);
    mr_big_free(c->exposed_own);
    mr_data_waits_free(&c->data);
    mr_idle_free(&c->idle);
}
