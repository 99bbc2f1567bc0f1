/* Advice: all rules over the place with the most work, and one line that answers "am I
 * data-bound?". */
#include "advice/rules.h"

#include <inttypes.h>
#include <string.h>

#define DATA_BOUND 10 /* percent of the time */

static const struct mr_rule *const families[] = {mr_rules_data, mr_rules_copy, mr_rules_host,
                                                 mr_rules_compute};

struct mr_advice {
    char summary[1600];
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

/* Findings are sorted: the first that was found is the first to mend. */
static const struct mr_finding *largest(const struct mr_advice *advice)
{
    for (uint32_t i = 0; i < advice->n; i++) {
        const struct mr_finding *f = &advice->finding[i];
        if (f->verdict == MR_FOUND)
            return f;
    }
    return NULL;
}

static void tail(const struct mr_case *c, const struct mr_advice *advice, char *out, size_t cap)
{
    const struct mr_look *look = c->look;
    const struct mr_finding *most = largest(advice);
    size_t used = 0;
    if (look->n_steps > 0)
        used = (size_t)snprintf(out, cap, "; %" PRIu64 " steps%s, %s", look->n_steps,
                                look->n_warm ? " after warming up" : "", look->steps.how);
    else
        used = (size_t)snprintf(out, cap,
                                "; no steps were found, so figures cover the whole "
                                "recording");
    if (look->steps.n_pauses && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; %" PRIu64 " pause%s between steps, %.1f ms, left out",
                                 look->steps.n_pauses, look->steps.n_pauses > 1 ? "s" : "",
                                 (double)look->steps.pause_ns / 1e6);
    if (most && used < cap)
        used += (size_t)snprintf(out + used, cap - used, "; fix first: %s (saves %.1f%%)",
                                 most->rule, most->saving_percent);
    if ((look->rec->n_dropped || look->rec->n_lost_times) && used < cap)
        used += (size_t)snprintf(out + used, cap - used,
                                 "; %" PRIu64 " records were lost, so idle time is overstated",
                                 look->rec->n_dropped + look->rec->n_lost_times);
    if (look->rec->n_no_length && used < cap)
        snprintf(out + used, cap - used,
                 "; %" PRIu64 " records do not end after they begin, so idle time is overstated",
                 look->rec->n_no_length);
}

#define SHORT_MS 0.1 /* a step of less is told in us: a loader's own steps take a few */

static void summarize(const struct mr_case *c, struct mr_advice *advice)
{
    const struct mr_look *look = c->look;
    double data = (double)c->starved_ns + (double)c->exposed_h2d_ns,
           idle = (double)mr_intervals_measure(&look->idle);
    double share = mr_case_percent(c, data), own = mr_case_percent(c, (double)c->own_gap_ns);
    double step = mr_case_ms(c, (double)look->wall_ns), scale = step < SHORT_MS ? 1e3 : 1;
    double compute = mr_case_percent(c, (double)mr_intervals_measure(&look->compute));
    double data_each = scale * mr_case_ms(c, data), idle_each = scale * mr_case_ms(c, idle);
    const char *of = look->n_steps ? "the step" : "the recording",
               *unit = step < SHORT_MS ? "us" : "ms";
    char end[700], wait[200];
    step *= scale;
    tail(c, advice, end, sizeof end);
    snprintf(wait, sizeof wait, "%.3f %s for the loader, %.3f %s for copies to the device",
             scale * mr_case_ms(c, (double)c->starved_ns), unit,
             scale * mr_case_ms(c, (double)c->exposed_h2d_ns), unit);
    advice->bound = MR_BOUND_UNKNOWN;
    if (look->place.n_kernels == 0) {
        snprintf(advice->summary, sizeof advice->summary,
                 "cannot tell: no kernels were recorded, so the GPU's idle time is unknown");
    } else if (share >= DATA_BOUND && (c->data.how != MR_LOADER_WAITS || own <= share)) {
        advice->bound = MR_BOUND_DATA;
        snprintf(advice->summary, sizeof advice->summary,
                 "data-bound: the GPU waited %.0f%% of %s (%.3f of %.3f %s) for data: %s%s", share,
                 of, data_each, step, unit, wait, end);
    } else if (c->data.how == MR_LOADER_UNKNOWN && mr_case_percent(c, idle) >= DATA_BOUND &&
               own + share >= DATA_BOUND) {
        snprintf(advice->summary, sizeof advice->summary,
                 "cannot tell: the GPU was idle %.0f%% of %s (%.3f of %.3f %s), but neither NVTX "
                 "ranges of the loader nor system calls were recorded: %s%s",
                 mr_case_percent(c, idle), of, idle_each, step, unit, mr_recording_more(look->rec),
                 end);
    } else if (c->data.how == MR_LOADER_WAITS && own + share >= DATA_BOUND) {
        snprintf(advice->summary, sizeof advice->summary,
                 "cannot tell: the GPU was idle %.0f%% of %s (%.3f of %.3f %s), mostly while the "
                 "launching thread ran "
                 "its own code, which may be "
                 "loading data: put an NVTX range around it and name it (--range)%s",
                 mr_case_percent(c, idle), of, idle_each, step, unit, end);
    } else {
        advice->bound = MR_BOUND_OTHER;
        snprintf(advice->summary, sizeof advice->summary,
                 "not data-bound: the GPU waited %.1f%% of %s (%.3f of %.3f %s) for data (%s), "
                 "computed %.0f%% and was "
                 "idle %.0f%%%s",
                 share, of, data_each, step, unit, wait, compute, mr_case_percent(c, idle), end);
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
    sure *= doubtful(look->rec) ? 0.5 : 1;
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

static int no_work(const struct mr_recording *rec, struct mr_advice *advice)
{
    const char *why = NULL;
    for (uint32_t i = 0; i < rec->n_notes && !why; i++)
        if (rec->notes[i].name < rec->n_strings &&
            strcmp(rec->strings[rec->notes[i].name], "no_cuda") == 0)
            why = rec->notes[i].text < rec->n_strings ? rec->strings[rec->notes[i].text] : NULL;
    snprintf(advice->summary, sizeof advice->summary,
             "cannot tell: this recording has no device "
             "work: %.600s",
             why ? why
                 : "the program used no GPU, or it was recorded without --trace cuda or outside "
                   "the capture range");
    for (size_t f = 0; f < MR_COUNT(families); f++)
        for (const struct mr_rule *rule = families[f]; rule->name; rule++) {
            struct mr_judgement *j = &advice->judged[advice->n];
            mr_cannot_tell(j, "this recording has no device work");
            snprintf(j->title, sizeof j->title, "%s: cannot tell", rule->name);
            advice->finding[advice->n++] = (struct mr_finding){
                .rule = rule->name, .title = j->title, .verdict = j->verdict, .why = j->why};
        }
    return 0;
}

static int look_and_judge(const struct mr_recording *rec, const struct mr_place *place,
                          const struct mr_advice_opts *opts, struct mr_advice *advice)
{
    struct mr_look look;
    struct mr_case c;
    int rc = mr_look_make(rec, place, opts->step, false, &look);
    if (rc)
        return rc;
    rc = mr_case_make(&look, opts, &c);
    if (!rc) {
        rc = judge_all(&c, advice);
        mr_case_free(&c);
    }
    mr_look_free(&look);
    return rc;
}

int mr_analyze(struct mr_recording *recording, const struct mr_advice_opts *opts,
               struct mr_advice **out)
{
    struct mr_advice_opts all;
    struct mr_place *places = NULL;
    uint32_t n_places = 0, n_rules = count_rules();
    mr_advice_opts_init(&all);
    int rc = mr_opts_take("advice_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    rc = mr_recording_load(recording);
    struct mr_advice *advice = rc ? NULL : calloc(1, sizeof *advice);
    if (!rc && advice) {
        advice->finding = calloc(n_rules, sizeof *advice->finding);
        advice->judged = calloc(n_rules, sizeof *advice->judged);
    }
    if (!rc && (!advice || !advice->finding || !advice->judged))
        rc = mr_error_nomem("advice", n_rules * sizeof *advice->judged);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    if (!rc)
        rc = n_places > 0 ? look_and_judge(recording, &places[0], &all, advice)
                          : no_work(recording, advice);
    if (!rc && n_places > 1) {
        size_t used = strlen(advice->summary);
        uint16_t p = places[0].process;
        snprintf(advice->summary + used, sizeof advice->summary - used,
                 "; of %u devices in use this is device %u of process %u", n_places,
                 mr_place_device_id(recording, &places[0]),
                 p < recording->n_processes ? recording->processes[p].pid : 0);
    }
    free(places);
    if (rc) {
        mr_advice_destroy(advice);
        return rc;
    }
    *out = advice;
    return 0;
}

const char *mr_advice_summary(const struct mr_advice *advice)
{
    return advice->summary;
}

enum mr_bound mr_advice_bound(const struct mr_advice *advice)
{
    return advice->bound;
}

uint32_t mr_advice_count(const struct mr_advice *advice)
{
    return advice->n;
}

const struct mr_finding *mr_advice_get(const struct mr_advice *advice, uint32_t i)
{
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
