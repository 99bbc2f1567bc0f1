/* Advice: all rules over the place with the most work, and one line that answers "am I
 * data-bound?". */
#include "advice/rules.h"

#include <inttypes.h>
#include <string.h>

#define FEW_STEPS   10  /* below it the headline says so */
#define UNEVEN      0.2 /* standard error of the mean step: above it the headline says so */
#define UNEXPLAINED 0.1 /* of the idle time: more, and nothing is said of its cause */

static const struct mr_rule *const families[] = {mr_rules_data, mr_rules_copy, mr_rules_host,
                                                 mr_rules_compute, mr_rules_path};

struct mr_advice {
    char summary[MR_SUMMARY_BYTES];
    enum mr_bound bound;
    struct mr_finding *finding;
    struct mr_judgement *judged; /* the findings' texts */
    uint32_t n;
};

void mr_advice_opts_fill(struct mr_advice_opts *opts, size_t size)
{
    const struct mr_advice_opts full = {0};
    mr_opts_copy(opts, size, &full, sizeof full);
}

/* ---- the summary ---- */

/* Findings are sorted: the first that was found is the first to fix, unless it saves nothing. */
static const struct mr_finding *largest(const struct mr_advice *advice)
{
    for (uint32_t i = 0; i < advice->n; i++) {
        const struct mr_finding *f = &advice->finding[i];
        if (f->verdict == MR_FOUND && f->saving_ms > 0)
            return f;
    }
    return NULL;
}

/* Nothing is recorded of what the program did in much of the idle time. */
static bool unexplained(const struct mr_case *c)
{
    double idle = (double)mr_intervals_measure(&c->look->idle);
    return mr_case_percent(c, idle) >= MR_DATA_BOUND &&
           (double)c->idle_ns[MR_IDLE_UNEXPLAINED] > UNEXPLAINED * idle;
}

/* "; most of the idle time is launch overhead (51% of the step), then host code (23%)". */
static size_t tell_idle(const struct mr_case *c, char *out, size_t cap)
{
    uint64_t ns[MR_N_IDLE], idle = mr_intervals_measure(&c->look->idle);
    memcpy(ns, c->idle_ns, sizeof ns);
    out[0] = 0;
    if ((double)idle < MR_WORTH * (double)c->look->wall_ns || c->look->place.n_kernels == 0 ||
        mr_trust_none(c) || unexplained(c))
        return 0;
    enum mr_idle_class first = mr_idle_most(ns);
    uint64_t first_ns = ns[first];
    ns[first] = 0;
    enum mr_idle_class second = mr_idle_most(ns);
    size_t used = (size_t)snprintf(out, cap, "; %s the idle time is %s (%.0f%% of %s)",
                                   first_ns == idle      ? "all of"
                                   : 2 * first_ns > idle ? "most of"
                                                         : "the largest part of",
                                   mr_idle_text(first), mr_case_percent(c, (double)first_ns),
                                   c->look->n_steps ? "the step" : "the recording");
    if ((double)ns[second] >= MR_WORTH * (double)c->look->wall_ns && used < cap)
        used += (size_t)snprintf(out + used, cap - used, ", then %s (%.0f%%)", mr_idle_text(second),
                                 mr_case_percent(c, (double)ns[second]));
    return used;
}

static void tail(const struct mr_case *c, const struct mr_advice *advice, char *out, size_t cap)
{
    const struct mr_look *look = c->look;
    const struct mr_finding *most = largest(advice);
    char clocks[300];
    size_t used = tell_idle(c, out, cap);
    if (look->n_steps > 0)
        used += (size_t)snprintf(out + used, cap - used, "; %" PRIu64 " steps%s, %s", look->n_steps,
                                 look->n_warm ? " after warming up" : "", look->steps.how);
    else
        used += (size_t)snprintf(out + used, cap - used,
                                 "; no steps were found, so figures cover the whole "
                                 "recording");
    if (look->n_steps > 0 && look->n_steps < FEW_STEPS && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; so few steps say little: record more than %d", FEW_STEPS);
    else if (c->trust.error > UNEVEN && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; steps differ, so their mean is known to within %.0f%% only",
                                 100 * MR_MIN(c->trust.error, 1));
    if (look->steps.n_pauses && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; %" PRIu64 " pause%s between steps, %.1f ms, left out",
                                 look->steps.n_pauses, look->steps.n_pauses > 1 ? "s" : "",
                                 (double)look->steps.pause_ns / 1e6);
    if (most && !mr_trust_none(c) && used < cap)
        used += (size_t)snprintf(out + used, cap - used, "; fix first: %s (saves %.1f%%)",
                                 most->rule, most->saving_percent);
    if ((look->rec->n_dropped || look->rec->n_lost_times) && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; %" PRIu64 " records were lost, so idle time is overstated",
                                 look->rec->n_dropped + look->rec->n_lost_times);
    if (!mr_trust_none(c) && used < cap && mr_trust_tell(c, clocks, sizeof clocks) > 0)
        used += (size_t)snprintf(out + used, cap - used, "; %s", clocks);
    if (mr_case_simulated(c) && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; the device is simulated: a GPU's times differ");
    if (look->rec->n_no_length && used < cap)
        snprintf(out + used, cap - used,
                 "; %" PRIu64 " records do not end after they begin, so idle time is overstated",
                 look->rec->n_no_length);
}

#define SHORT_MS 0.1 /* a step of less is told in us: a loader's own steps take a few */

static void summarize(const struct mr_case *c, struct mr_advice *advice)
{
    const struct mr_look *look = c->look;
    double data = (double)c->idle_ns[MR_IDLE_LOADER] + (double)c->exposed_h2d_ns,
           idle = (double)mr_intervals_measure(&look->idle);
    double share = mr_case_percent(c, data);
    double step = mr_case_ms(c, (double)look->wall_ns), scale = step < SHORT_MS ? 1e3 : 1;
    double comm = mr_case_percent(c, (double)c->comm_ns);
    double compute = mr_case_percent(c, (double)mr_intervals_measure(&look->compute)) - comm;
    double data_each = scale * mr_case_ms(c, data), idle_each = scale * mr_case_ms(c, idle);
    const char *of = look->n_steps ? "the step" : "the recording",
               *unit = step < SHORT_MS ? "us" : "ms";
    char end[900], wait[200], clocks[300], communicated[48] = "";
    if (c->comm_ns > 0)
        snprintf(communicated, sizeof communicated, ", communicated %.0f%%", comm);
    step *= scale;
    tail(c, advice, end, sizeof end);
    snprintf(wait, sizeof wait, "%.3f %s for the loader, %.3f %s for copies to the device",
             scale * mr_case_ms(c, (double)c->idle_ns[MR_IDLE_LOADER]), unit,
             scale * mr_case_ms(c, (double)c->exposed_h2d_ns), unit);
    advice->bound = MR_BOUND_UNKNOWN;
    if (look->place.n_kernels == 0) {
        snprintf(advice->summary, sizeof advice->summary,
                 "cannot tell: no kernels were recorded, so the GPU's idle time is unknown");
    } else if (mr_trust_tell(c, clocks, sizeof clocks) > 0 && mr_trust_none(c)) {
        snprintf(advice->summary, sizeof advice->summary, "cannot tell: %s%s", clocks, end);
    } else if (unexplained(c)) {
        snprintf(advice->summary, sizeof advice->summary,
                 "cannot tell: the GPU was idle %.0f%% of %s (%.3f of %.3f %s), and for %.0f%% of "
                 "that nothing is recorded of what the program did: %s%s",
                 mr_case_percent(c, idle), of, idle_each, step, unit,
                 100 * (double)c->idle_ns[MR_IDLE_UNEXPLAINED] / idle, mr_recording_more(look->rec),
                 end);
    } else if (share >= MR_DATA_BOUND && !mr_case_doubts(c)) {
        advice->bound = MR_BOUND_DATA;
        snprintf(advice->summary, sizeof advice->summary,
                 "data-bound: the GPU waited %.0f%% of %s (%.3f of %.3f %s) for data: %s%s", share,
                 of, data_each, step, unit, wait, end);
    } else if (c->data.how == MR_LOADER_UNKNOWN && mr_case_doubts(c)) {
        snprintf(advice->summary, sizeof advice->summary,
                 "cannot tell: the GPU was idle %.0f%% of %s (%.3f of %.3f %s), but neither NVTX "
                 "ranges of the loader nor system calls were recorded: %s%s",
                 mr_case_percent(c, idle), of, idle_each, step, unit, mr_recording_more(look->rec),
                 end);
    } else if (mr_case_doubts(c)) {
        snprintf(
            advice->summary, sizeof advice->summary,
            "cannot tell: the GPU was idle %.0f%% of %s (%.3f of %.3f %s), %.0f%% of that while "
            "the launching thread ran its own code, which may be loading data: put an NVTX "
            "range around it and name it (--range)%s",
            mr_case_percent(c, idle), of, idle_each, step, unit,
            idle > 0 ? 100 * (double)c->idle_ns[MR_IDLE_HOST] / idle : 0, end);
    } else {
        advice->bound = MR_BOUND_OTHER;
        snprintf(advice->summary, sizeof advice->summary,
                 "not data-bound: the GPU waited %.1f%% of %s (%.3f of %.3f %s) for data (%s), "
                 "computed %.0f%%%s and was idle %.0f%%%s",
                 share, of, data_each, step, unit, wait, compute, communicated,
                 mr_case_percent(c, idle), end);
    }
}

/* ---- findings ---- */

static int rank(const struct mr_finding *f)
{
    return f->verdict == MR_FOUND ? 0 : f->verdict == MR_CANNOT_TELL ? 1 : 2;
}

/* By what can be counted on: a hint (names of kernels) is not to stand before what was measured. */
static int by_saving(const void *a, const void *b)
{
    const struct mr_finding *x = a, *y = b;
    if (rank(x) != rank(y))
        return rank(x) < rank(y) ? -1 : 1;
    double sure = x->saving_ms * x->confidence, other = y->saving_ms * y->confidence;
    if (sure != other)
        return sure < other ? 1 : -1;
    return strcmp(x->rule, y->rule);
}

/* A few records without length hide little; what was lost may be anything. */
static bool doubtful(const struct mr_recording *rec)
{
    return rec->n_dropped || rec->n_lost_times ||
           (rec->n_no_length > 0 && rec->n_no_length * 1000 >= rec->n_ops);
}

static void take(const struct mr_case *c, const char *rule, struct mr_judgement *j,
                 struct mr_finding *out)
{
    const struct mr_look *look = c->look;
    bool found = j->verdict == MR_FOUND;
    double sure = look->n_steps ? look->steps.confidence : 0.7;
    if (j->title[0] == 0 || j->verdict == MR_CANNOT_TELL)
        snprintf(j->title, sizeof j->title, "%s%s", rule,
                 found                   ? ""
                 : j->verdict == MR_FINE ? ": fine"
                                         : ": cannot tell");
    sure *= (doubtful(look->rec) ? 0.5 : 1) * mr_trust_factor(c);
    *out = (struct mr_finding){
        .rule = rule,
        .title = j->title,
        .verdict = j->verdict,
        .why = j->why,
        .advice = found ? j->advice : NULL,
        .saving_ms = found ? mr_case_ms(c, j->saving_ns) : 0,
        .saving_percent = found ? mr_case_percent(c, j->saving_ns) : 0,
        .per_step = look->n_steps > 0,
        .confidence = found ? j->confidence * sure : 0,
        .evidence = j->evidence,
    };
}

static uint32_t count_rules(void)
{
    uint32_t n = 0;
    for (size_t f = 0; f < MR_COUNT(families); f++)
        for (const struct mr_rule *rule = families[f]; rule->name; rule++)
            n++;
    return n;
}

static int judge_all(const struct mr_case *c, struct mr_advice *advice)
{
    for (size_t f = 0; f < MR_COUNT(families); f++)
        for (const struct mr_rule *rule = families[f]; rule->name; rule++) {
            struct mr_judgement *j = &advice->judged[advice->n];
            int rc = rule->judge(c, j);
            take(c, rule->name, j, &advice->finding[advice->n++]);
            if (rc)
                return rc;
        }
    qsort(advice->finding, advice->n, sizeof *advice->finding, by_saving);
    summarize(c, advice);
    return 0;
}

/* All rules but one need a device. */
static void no_rules(struct mr_advice *advice, const char *but)
{
    for (size_t f = 0; f < MR_COUNT(families); f++)
        for (const struct mr_rule *rule = families[f]; rule->name; rule++) {
            struct mr_judgement *j = &advice->judged[advice->n];
            if (but && strcmp(rule->name, but) == 0)
                continue;
            mr_cannot_tell(j, "this recording has no device work");
            snprintf(j->title, sizeof j->title, "%s: cannot tell", rule->name);
            advice->finding[advice->n++] = (struct mr_finding){
                .rule = rule->name, .title = j->title, .verdict = j->verdict, .why = j->why};
        }
}

/* Why the recorder saw nothing of the CUDA that the program used; NULL: it said nothing. */
static const char *not_recorded(const struct mr_recording *rec)
{
    for (uint32_t i = 0; i < rec->n_notes; i++)
        if (rec->notes[i].name < rec->n_strings && rec->notes[i].text < rec->n_strings &&
            strcmp(rec->strings[rec->notes[i].name], "no_cuda") == 0)
            return rec->strings[rec->notes[i].text];
    return NULL;
}

static int no_work(const struct mr_recording *rec, struct mr_advice *advice)
{
    const char *why = not_recorded(rec);
    snprintf(advice->summary, sizeof advice->summary,
             "cannot tell: this recording has no device "
             "work: %.600s",
             why ? why
                 : "the program used no GPU, or it was recorded without --trace cuda or outside "
                   "the capture range");
    no_rules(advice, NULL);
    return 0;
}

/* Without a device: where the driving thread's time goes. */
static int judge_host(struct mr_recording *rec, const struct mr_advice_opts *opts,
                      struct mr_advice *advice)
{
    struct mr_host_look host;
    int rc = not_recorded(rec) ? 0 : mr_host_look_make(rec, opts, &host);
    if (rc <= 0)
        return rc < 0 ? rc : no_work(rec, advice);
    no_rules(advice, "data_starvation");
    struct mr_judgement *j = &advice->judged[advice->n];
    struct mr_stacks stacks;
    rc = mr_stacks_load(rec, &stacks);
    host.c.stacks = &stacks;
    rc = rc < 0 ? rc : mr_host_judge(&host, j);
    mr_stacks_free(&stacks);
    host.c.stacks = NULL;
    take(&host.c, "data_starvation", j, &advice->finding[advice->n++]);
    qsort(advice->finding, advice->n, sizeof *advice->finding, by_saving);
    advice->bound = mr_host_summarize(&host, advice->summary, sizeof advice->summary);
    mr_host_look_free(&host);
    return rc;
}

static int look_and_judge(struct mr_recording *rec, const struct mr_place *place,
                          const struct mr_advice_opts *opts, const struct mr_case_viewer *viewer,
                          struct mr_advice *advice)
{
    struct mr_look look;
    struct mr_case c;
    struct mr_stacks stacks;
    int rc = mr_look_make(rec, place, opts->step, false, &look);
    if (rc)
        return rc;
    rc = mr_case_make(&look, opts, &c);
    if (!rc) {
        rc = mr_stacks_load(rec, &stacks);
        c.stacks = &stacks;
        rc = rc ? rc : judge_all(&c, advice);
        if (!rc && viewer)
            rc = viewer->see(&c, viewer->arg);
        mr_stacks_free(&stacks);
        mr_case_free(&c);
    }
    mr_look_free(&look);
    return rc;
}

/* Which device it is of several, and whether other processes use it, too: to each of them the
 * device is the same one. */
static void tell_places(const struct mr_recording *rec, const struct mr_place *places, uint32_t n,
                        struct mr_advice *advice)
{
    uint32_t n_devices = 1, n_here = 0;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t k = 0;
        while (places[k].device != places[i].device)
            k++;
        n_devices += k == i;
        n_here += places[i].device == places[0].device;
    }
    size_t used = strlen(advice->summary), cap = sizeof advice->summary;
    uint32_t device = mr_place_device_id(rec, &places[0]);
    uint16_t p = places[0].process;
    if (n_devices > 1)
        used +=
            (size_t)snprintf(advice->summary + used, cap - used,
                             "; of %u devices in use this is device %u of process %u", n_devices,
                             device, p < rec->n_processes ? rec->processes[p].pid : 0);
    if (n_here > 0 && used < cap)
        snprintf(advice->summary + used, cap - used,
                 "; %u other process%s device %u, too: their work is no idle time", n_here,
                 n_here > 1 ? "es use" : " uses", device);
}

int mr_analyze_seen(struct mr_recording *recording, const struct mr_advice_opts *opts,
                    const struct mr_case_viewer *viewer, struct mr_advice **out)
{
    struct mr_advice_opts all;
    struct mr_place *places = NULL;
    struct mr_ranks ranks = {0};
    uint32_t n_places = 0, n_rules = count_rules();
    mr_advice_opts_init(&all);
    int rc = mr_opts_take("advice_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    if (!recording || !out)
        return mr_error_null("mr_analyze", "a recording and a place for the result");
    rc = mr_recording_load(recording);
    struct mr_advice *advice = rc ? NULL : calloc(1, sizeof *advice);
    if (!rc && advice) {
        advice->finding = calloc(n_rules, sizeof *advice->finding);
        advice->judged = calloc(n_rules, sizeof *advice->judged);
    }
    if (!rc && (!advice || !advice->finding || !advice->judged))
        rc = mr_error_nomem("advice", n_rules * sizeof *advice->judged);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    rc = rc ? rc : mr_ranks_find_first(recording, all.step, places, n_places, &ranks);
    if (!rc)
        rc = n_places > 0 ? look_and_judge(recording, &places[0], &all, viewer, advice)
                          : judge_host(recording, &all, advice);
    if (!rc && n_places > 1)
        tell_places(recording, places, n_places, advice);
    if (!rc)
        mr_tell_ranks(&ranks, n_places > 0 ? &places[0] : NULL, advice->summary, &advice->bound);
    mr_ranks_free(&ranks);
    free(places);
    if (rc) {
        mr_advice_destroy(advice);
        return rc;
    }
    *out = advice;
    return 0;
}

int mr_analyze(struct mr_recording *recording, const struct mr_advice_opts *opts,
               struct mr_advice **out)
{
    return mr_analyze_seen(recording, opts, NULL, out);
}

const char *mr_advice_summary(const struct mr_advice *advice)
{
    if (!advice)
        return NULL;
    return advice->summary;
}

enum mr_bound mr_advice_bound(const struct mr_advice *advice)
{
    return advice->bound;
}

uint32_t mr_advice_count(const struct mr_advice *advice)
{
    if (!advice)
        return 0;
    return advice->n;
}

const struct mr_finding *mr_advice_get(const struct mr_advice *advice, uint32_t i)
{
    if (!advice)
        return NULL;
    return i < advice->n ? &advice->finding[i] : NULL;
}

void mr_advice_destroy(struct mr_advice *advice)
{
    if (!advice)
        return;
    for (uint32_t i = 0; advice->judged && i < advice->n; i++)
        mr_table_destroy(advice->judged[i].evidence);
    free(advice->finding);
    free(advice->judged);
    free(advice);
}
