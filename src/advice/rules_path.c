/*
 * Rules that explain: where a step is decided, when over the run the device had little to do, and
 * copies that wait for each other. Their time is in other findings' savings, or can't be saved by
 * what the program tries, so they have no saving of their own.
 */
#include "advice/rules.h"
#include "recording/big.h"
#include "recording/path.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void explain(struct mr_judgement *out, double confidence)
{
    out->verdict = MR_FOUND;
    out->saving_ns = 0;
    out->confidence = confidence;
}

/* ---- critical_path ---- */

#define OFF_PATH 0.1 /* of the time, in which the device is busy off the path */
#define BEHIND   0.1 /* of the time, by which the device falls behind its launches */

#define KEPT     (2 * MR_EVIDENCE)

struct found {
    const struct mr_case *c;
    uint64_t ns[MR_N_PATH], work_ns; /* in the steps; of it the device's work */
    struct mr_path_piece longest[KEPT];
    uint32_t n;
    uint64_t least_ns; /* shorter pieces are not among the longest */
};

static int by_length(const void *a, const void *b)
{
    const struct mr_path_piece *x = a, *y = b;
    uint64_t own = x->end_ns - x->start_ns, other = y->end_ns - y->start_ns;
    if (own != other)
        return own < other ? 1 : -1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Keeps twice as many as are shown, and sorts when these are full. */
static int add_piece(void *user, const struct mr_path_piece *p)
{
    struct found *f = user;
    uint64_t ns = mr_intervals_within(&f->c->look->in, p->start_ns, p->end_ns);
    f->ns[p->class] += ns;
    if (p->op != MR_NONE && p->class != MR_IDLE_LAUNCH)
        f->work_ns += ns;
    if (ns < p->end_ns - p->start_ns || ns < f->least_ns)
        return 0;
    f->longest[f->n++] = *p;
    if (f->n == KEPT) {
        qsort(f->longest, f->n, sizeof *f->longest, by_length);
        f->n = MR_EVIDENCE;
        f->least_ns = f->longest[f->n - 1].end_ns - f->longest[f->n - 1].start_ns;
    }
    return 0;
}

/* The longest pieces in the steps. */
static int pieces_table(struct found *f, struct mr_table **out)
{
    static const struct mr_column columns[] = {{"Start", MR_UNIT_NS, MR_CELL_INT},
                                               {"Duration", MR_UNIT_NS, MR_CELL_INT},
                                               {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
                                               {"Class", MR_UNIT_NONE, MR_CELL_TEXT}};
    struct mr_table *table = mr_table_create("critical path", columns, MR_COUNT(columns));
    char name[128];
    if (!table)
        return mr_error_nomem("evidence", sizeof columns);
    qsort(f->longest, f->n, sizeof *f->longest, by_length);
    for (uint32_t i = 0; i < f->n && i < MR_EVIDENCE; i++) {
        const struct mr_path_piece *p = &f->longest[i];
        mr_table_row(table);
        mr_table_int(table, (int64_t)p->start_ns);
        mr_table_int(table, (int64_t)(p->end_ns - p->start_ns));
        mr_table_text(table, mr_path_name(f->c->look->rec, p, name, sizeof name));
        mr_table_text(table, mr_path_text(p->class));
    }
    return mr_table_finish(table, out);
}

/* "waiting for the loader (61%, 4.329 ms a step), launch overhead (..)": the largest three. */
static int name_classes(const struct mr_case *c, const uint64_t all[MR_N_PATH], char *out,
                        size_t cap)
{
    uint64_t ns[MR_N_PATH];
    int first = -1;
    size_t used = 0;
    memcpy(ns, all, sizeof ns);
    out[0] = 0;
    for (int n = 0; n < 3 && used < cap; n++) {
        int most = 0;
        for (int i = 1; i < MR_N_PATH; i++)
            most = ns[i] > ns[most] ? i : most;
        if ((double)ns[most] < MR_WORTH * (double)c->look->wall_ns)
            break;
        used += (size_t)snprintf(out + used, cap - used, "%s%s (%.0f%%, %.3f ms%s)", n ? ", " : "",
                                 mr_path_text(most), mr_case_percent(c, (double)ns[most]),
                                 mr_case_ms(c, (double)ns[most]), mr_case_per(c));
        first = n == 0 ? most : first;
        ns[most] = 0;
    }
    return first;
}

static int judge_path(const struct mr_case *c, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    struct found f = {.c = c};
    char classes[300];
    double busy = (double)mr_intervals_measure(&look->busy);
    if (look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded");
    if (!look->has_calls)
        return mr_cannot_tell(out, "no CUDA calls of this process were recorded, so it is unknown "
                                   "what the device's work waited for");
    if (mr_trust_none(c))
        return mr_cannot_tell(out, "the clocks of host and device do not fit");
    if (look->n_steps == 0)
        return mr_cannot_tell(out, "no steps were found");
    if ((double)look->wall_ns - busy < OFF_PATH * (double)look->wall_ns)
        return mr_fine(out,
                       "the device is busy %.0f%% of the time: whatever the path is, no more than "
                       "the rest can be gained without less work on it",
                       mr_case_percent(c, busy));
    if ((double)mr_path_behind_ns(look) > BEHIND * (double)look->wall_ns)
        return mr_cannot_tell(
            out,
            "the device falls behind its launches by %.1f ms in these steps: they "
            "are as long as the host takes, not the device; record more of them",
            (double)mr_path_behind_ns(look) / 1e6);
    int rc = mr_path_walk(look, &c->by_stream, &c->data, c->idle.burst_ns, add_piece, &f);
    if (rc)
        return rc;
    double work = (double)f.work_ns;
    int first = name_classes(c, f.ns, classes, sizeof classes);
    snprintf(out->why, sizeof out->why,
             "the device is busy %.3f ms%s, of it %.3f ms on the critical path, the chain of work "
             "and waits that decides when the step ends: %s. Work off the path is done in time: "
             "less of it does not shorten the step. Threshold: %.0f%% of the time.",
             mr_case_ms(c, busy), mr_case_per(c), mr_case_ms(c, work), classes, 100 * OFF_PATH);
    if (busy - work >= OFF_PATH * (double)look->wall_ns && first >= 0) {
        snprintf(out->title, sizeof out->title,
                 "the device is busy %.0f%% of the time, but only %.0f%% decides when a step ends",
                 mr_case_percent(c, busy), mr_case_percent(c, work));
        char most[80] = "nothing now";
        if (work >= MR_WORTH * (double)look->wall_ns)
            snprintf(most, sizeof most, "at most their %.3f ms%s on it", mr_case_ms(c, work),
                     mr_case_per(c));
        snprintf(out->advice, sizeof out->advice,
                 "Shorten %s first: it is the largest part of the path. Faster kernels or copies "
                 "save %s. The report critical_path lists its parts by name, critical_path_steps "
                 "each step.",
                 mr_path_text(first), most);
        explain(out, 0.7);
        rc = pieces_table(&f, &out->evidence);
    } else {
        out->verdict = MR_FINE;
    }
    return rc;
}

/* ---- low_use ---- */

#define LOW_SHARE 0.5 /* of the median step's use: a step below it has low use */
#define LOW_STEPS 5   /* mean steps: shorter stretches are spread of steps */
#define LOW_LEAST 0.1 /* use of the median step: below it all of the run is low */

struct stretch {
    uint64_t start_ns, end_ns, busy_ns;
    uint64_t first, n; /* steps; n 0: a pause between them, after step `first` */
};

struct stretches {
    struct stretch *at;
    uint64_t n, capacity;
};

static double use_of(const struct stretch *s)
{
    return s->end_ns > s->start_ns ? (double)s->busy_ns / (double)(s->end_ns - s->start_ns) : 1;
}

static int by_real(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct stretch step_at(const struct mr_look *look, uint64_t i)
{
    const struct mr_interval *step = &look->steps.at[i];
    uint64_t busy = mr_intervals_within(&look->busy, step->start_ns, step->end_ns) +
                    mr_intervals_within(&look->others, step->start_ns, step->end_ns);
    return (struct stretch){step->start_ns, step->end_ns, busy, i, 1};
}

static int median_use(const struct mr_case *c, double *out)
{
    const struct mr_look *look = c->look;
    double *use = malloc((look->n_steps + 1) * sizeof *use);
    if (!use)
        return mr_error_nomem("steps", look->n_steps * sizeof *use);
    for (uint64_t i = 0; i < look->n_steps; i++) {
        struct stretch s = step_at(look, look->n_warm + i);
        use[i] = use_of(&s);
    }
    qsort(use, look->n_steps, sizeof *use, by_real);
    *out = use[look->n_steps / 2];
    free(use);
    return 0;
}

/* The place's work in a pause, which is not looked at otherwise. */
static uint64_t busy_between(const struct mr_look *look, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t ns = 0, until = from_ns;
    for (uint64_t i = mr_look_op_from(look, from_ns); i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->start_ns >= to_ns)
            break;
        uint64_t end = MR_MIN(op->end_ns, to_ns), start = MR_MAX(op->start_ns, until);
        ns += end > start ? end - start : 0;
        until = MR_MAX(until, end);
    }
    return ns;
}

static int keep(struct stretches *all, const struct stretch *s, uint64_t least_ns)
{
    if (s->end_ns - s->start_ns < least_ns || s->end_ns == s->start_ns)
        return 0;
    if (mr_grow("stretches", &all->at, &all->capacity, all->n + 1, sizeof *all->at) < 0)
        return -ENOMEM;
    all->at[all->n++] = *s;
    return 0;
}

static int find_low(const struct mr_case *c, double limit, struct stretches *out)
{
    const struct mr_look *look = c->look;
    uint64_t least = LOW_STEPS * (look->wall_ns / look->n_steps);
    struct stretch low = {0};
    int rc = 0;
    for (uint64_t i = look->n_warm; !rc && i < look->steps.n; i++) {
        struct stretch step = step_at(look, i);
        if (use_of(&step) < limit && low.n > 0 && low.end_ns == step.start_ns) {
            low.end_ns = step.end_ns;
            low.busy_ns += step.busy_ns;
            low.n++;
        } else {
            rc = keep(out, &low, least);
            low = use_of(&step) < limit ? step : (struct stretch){0};
        }
        uint64_t next = i + 1 < look->steps.n ? look->steps.at[i + 1].start_ns : 0;
        if (rc || next <= step.end_ns)
            continue;
        struct stretch pause = {step.end_ns, next, busy_between(look, step.end_ns, next), i, 0};
        if (use_of(&pause) < limit)
            rc = keep(out, &pause, least);
    }
    return rc ? rc : keep(out, &low, least);
}

/* What a stretch's host did, by the names of ranges and calls in it. */
static const char *occasion(const char *range, const char *call)
{
    static const struct {
        const char *part, *is;
    } known[] = {{"checkpoint", "checkpoint"},
                 {"save", "checkpoint"},
                 {"valid", "validation"},
                 {"eval", "validation"},
                 {"DataLoader start", "epoch start"},
                 {"epoch", "epoch start"},
                 {"fsync", "writing files"},
                 {"write", "writing files"}};
    for (size_t i = 0; i < MR_COUNT(known); i++)
        if (strcasestr(range, known[i].part) || (i >= 6 && strstr(call, known[i].part)))
            return known[i].is;
    return "";
}

struct most {
    uint32_t name;
    uint64_t ns;
};

static void add_most(uint64_t *sum, uint32_t name, uint64_t start_ns, uint64_t end_ns,
                     const struct stretch *s, struct most *most)
{
    uint64_t start = MR_MAX(start_ns, s->start_ns), end = MR_MIN(end_ns, s->end_ns);
    if (end <= start || name == 0)
        return;
    sum[name] += end - start;
    if (sum[name] > most->ns)
        *most = (struct most){name, sum[name]};
}

/* The driving thread's range and call with the most time. sum: zeroed, of strings. */
static void find_most(const struct mr_case *c, const struct stretch *s, uint64_t *sum,
                      struct most *range, struct most *call)
{
    const struct mr_look *look = c->look;
    uint32_t n = look->rec->n_strings;
    *range = *call = (struct most){0, 0};
    if (look->n_logs == 0)
        return;
    const struct mr_thread_log *log = &look->logs[0];
    memset(sum, 0, (n + 1) * sizeof *sum);
    for (uint64_t i = 0; i < log->n_scopes; i++)
        if (log->scope[i].text < n)
            add_most(sum, log->scope[i].text, log->scope[i].start_ns, log->scope[i].end_ns, s,
                     range);
    memset(sum, 0, (n + 1) * sizeof *sum);
    for (uint64_t i = mr_doing_at(log, s->start_ns);
         i < log->n_doings && log->doing[i].start_ns < s->end_ns; i++)
        if (log->doing[i].name < n)
            add_most(sum, log->doing[i].name, log->doing[i].start_ns, log->doing[i].end_ns, s,
                     call);
}

static int by_lost(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    uint64_t own = x->end_ns - x->start_ns, other = y->end_ns - y->start_ns;
    return own != other ? (own < other) - (own > other)
                        : (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Rows, the longest first. [out] first: what the host did in the first one. */
static int low_table(const struct mr_case *c, struct stretches *all, char *first, size_t cap,
                     struct mr_table **out)
{
    static const struct mr_column columns[] = {
        {"Start", MR_UNIT_NS, MR_CELL_INT},    {"Duration", MR_UNIT_NS, MR_CELL_INT},
        {"Steps", MR_UNIT_NONE, MR_CELL_TEXT}, {"Device Use", MR_UNIT_PERCENT, MR_CELL_REAL},
        {"Name", MR_UNIT_NONE, MR_CELL_TEXT},  {"Call", MR_UNIT_NONE, MR_CELL_TEXT},
        {"What", MR_UNIT_NONE, MR_CELL_TEXT}};
    uint64_t *sum = calloc((size_t)c->look->rec->n_strings + 1, sizeof *sum);
    struct mr_table *table = sum ? mr_table_create("low use", columns, MR_COUNT(columns)) : NULL;
    if (!table) {
        free(sum);
        return mr_error_nomem("evidence", c->look->rec->n_strings * sizeof *sum);
    }
    if (all->n > 1)
        qsort(all->at, all->n, sizeof *all->at, by_lost);
    for (uint64_t i = 0; i < all->n && i < MR_EVIDENCE; i++) {
        const struct stretch *s = &all->at[i];
        struct most range, call;
        char steps[64];
        find_most(c, s, sum, &range, &call);
        const char *in = range.name ? mr_case_string(c, range.name) : "own code",
                   *of = call.name ? mr_case_string(c, call.name) : "",
                   *is = occasion(range.name ? in : "", of);
        if (s->n == 0)
            snprintf(steps, sizeof steps, "after %" PRIu64, s->first);
        else
            snprintf(steps, sizeof steps, s->n == 1 ? "%" PRIu64 : "%" PRIu64 " to %" PRIu64,
                     s->first, s->first + s->n - 1);
        if (i == 0)
            snprintf(first, cap, "%s%.60s%s%.60s%s%s", *is ? is : "in ", *is ? " (in " : "", in,
                     *of ? ", mostly " : "", of, *is ? ")" : "");
        mr_table_row(table);
        mr_table_int(table, (int64_t)s->start_ns);
        mr_table_int(table, (int64_t)(s->end_ns - s->start_ns));
        mr_table_text(table, steps);
        mr_table_real(table, 100 * use_of(s));
        mr_table_text(table, in);
        mr_table_text(table, of);
        mr_table_text(table, is);
    }
    free(sum);
    return mr_table_finish(table, out);
}

static int tell_low(const struct mr_case *c, double median, struct stretches *low,
                    struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    uint64_t ns = 0,
             run = look->steps.at[look->steps.n - 1].end_ns - look->steps.at[look->n_warm].start_ns;
    char first[200] = "";
    for (uint64_t i = 0; i < low->n; i++)
        ns += low->at[i].end_ns - low->at[i].start_ns;
    if (low->n == 0 || (double)ns < MR_WORTH * (double)run)
        return mr_fine(out,
                       "%" PRIu64 " stretches of %d steps or more in which the device is used less "
                       "than half as much as in the median step (%.0f%%), %.1f%% of the run",
                       low->n, LOW_STEPS, 100 * median, run ? 100 * (double)ns / (double)run : 0);
    int rc = low_table(c, low, first, sizeof first, &out->evidence);
    if (rc)
        return rc;
    snprintf(out->title, sizeof out->title,
             "the device has little to do in %" PRIu64 " long stretch%s, %.1f%% of the run", low->n,
             low->n == 1 ? "" : "es", 100 * (double)ns / (double)run);
    snprintf(
        out->why, sizeof out->why,
        "the longest takes %.1f ms, from %.3f s on, with the device busy %.0f%% of it: %s. The "
        "median step uses the device %.0f%%; a stretch is of steps below half of that, or a "
        "pause between steps, and at least as long as %d mean steps.",
        (double)(low->at[0].end_ns - low->at[0].start_ns) / 1e6, (double)low->at[0].start_ns / 1e9,
        100 * use_of(&low->at[0]), first, 100 * median, LOW_STEPS);
    snprintf(out->advice, sizeof out->advice,
             "Do this less often, or beside the steps: write checkpoints from a thread (after a "
             "copy to the host), validate on fewer batches, keep workers between epochs "
             "(persistent_workers=True). Ranges name what a stretch is.");
    explain(out, look->steps.confidence);
    return 0;
}

static int judge_low(const struct mr_case *c, struct mr_judgement *out)
{
    struct stretches low = {0};
    double median = 0;
    if (c->look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded");
    if (c->look->n_steps == 0)
        return mr_cannot_tell(out, "no steps were found");
    int rc = median_use(c, &median);
    if (!rc && median < LOW_LEAST)
        return mr_fine(out, "the median step uses the device %.0f%%: all of the run is like that",
                       100 * median);
    rc = rc ? rc : find_low(c, LOW_SHARE * median, &low);
    rc = rc ? rc : tell_low(c, median, &low, out);
    free(low.at);
    return rc;
}

/* ---- same_direction_copies ---- */

struct line {   /* copies of one direction that wait behind those of other streams */
    uint64_t n; /* copies */
    struct mr_intervals waits;
    struct mr_copies late;
};

/* From when on the copy could have begun: given to the device, and the one before it done. */
static uint64_t ready_ns(const struct mr_case *c, uint32_t i)
{
    const struct mr_recording *rec = c->look->rec;
    const struct mr_rec_op *op = &rec->ops[c->look->ops[i]];
    uint32_t before = c->by_stream.before[i];
    uint64_t free_ns = before == MR_NONE ? 0 : rec->ops[c->look->ops[before]].end_ns;
    uint64_t given = op->api < rec->n_apis ? rec->apis[op->api].end_ns : op->start_ns;
    return MR_MAX(given, free_ns);
}

/* Adds what look->ops[i] waits while copies of its direction on other streams run. */
static int add_wait(const struct mr_case *c, const uint32_t *list, uint64_t k, struct line *line)
{
    const struct mr_rec_op *op = &c->look->rec->ops[c->look->ops[list[k]]];
    const uint32_t *of = c->by_stream.of;
    uint64_t ready = ready_ns(c, list[k]), waits = 0;
    for (uint64_t j = k; j > 0; j--) { /* one engine: they end in order */
        const struct mr_rec_op *other = &c->look->rec->ops[c->look->ops[list[j - 1]]];
        if (other->end_ns <= ready)
            break;
        uint64_t from = MR_MAX(ready, other->start_ns), to = MR_MIN(op->start_ns, other->end_ns);
        if (of[list[j - 1]] == of[list[k]] || to <= from)
            continue;
        mr_intervals_add(&line->waits, from, to);
        waits += to - from;
    }
    if (waits > 0)
        line->late.at[line->late.n++] = list[k];
    return line->waits.lost ? mr_error_nomem("copies", line->n * sizeof *list) : 0;
}

static int find_line(const struct mr_case *c, uint8_t way, uint32_t *list, struct line *line)
{
    int rc = 0;
    uint64_t n = 0;
    for (uint64_t i = 0; i < c->look->n_ops; i++) {
        const struct mr_rec_op *op = &c->look->rec->ops[c->look->ops[i]];
        if (op->kind == MR_OP_COPY && op->copy_kind == way && mr_case_in(c, op->start_ns))
            list[n++] = (uint32_t)i;
    }
    for (uint64_t k = 0; !rc && k < n; k++)
        rc = add_wait(c, list, k, line);
    line->n += n;
    return rc;
}

/* Waits in which nothing is computed: what compute hides holds up nobody. */
static int exposed_wait(const struct mr_case *c, struct line *line, uint64_t *out_ns)
{
    struct mr_intervals alone = {0}, in = {0};
    mr_intervals_unite(&line->waits);
    mr_intervals_and(&line->waits, &c->look->in, &in);
    mr_intervals_without(&in, &c->look->compute, &alone);
    *out_ns = mr_intervals_measure(&alone);
    int rc = alone.lost ? mr_error_nomem("copies", line->n * sizeof *alone.at) : 0;
    mr_intervals_free(&alone);
    mr_intervals_free(&in);
    return rc;
}

static int judge_line(const struct mr_case *c, struct line *line, struct mr_judgement *out)
{
    uint64_t ns = 0, n_late = line->late.n;
    int rc = exposed_wait(c, line, &ns);
    if (rc)
        return rc;
    if ((double)ns < MR_WORTH * (double)c->look->wall_ns)
        return mr_fine(out,
                       "%" PRIu64 " of %" PRIu64 " copies wait for one of the same direction on "
                       "another stream, %.3f ms%s in which nothing is computed",
                       n_late, line->n, mr_case_ms(c, (double)ns), mr_case_per(c));
    snprintf(out->title, sizeof out->title,
             "%" PRIu64 " copies wait for copies of the same direction on other streams", n_late);
    snprintf(out->why, sizeof out->why,
             "they were given to the device and their stream was free, but a copy of their "
             "direction on another stream ran: %.3f ms%s in which nothing is computed. A device "
             "has one copy engine a direction, so more streams give no more bandwidth; a copy only "
             "gets later behind one that could wait. Threshold: %.0f%% of the time.",
             mr_case_ms(c, (double)ns), mr_case_per(c), 100 * MR_WORTH);
    snprintf(out->advice, sizeof out->advice,
             "Use one stream a direction, and issue copies in the order in which they are needed; "
             "copy large prefetches in pieces, or after what the next kernels need.");
    explain(out, 0.6);
    return mr_copies_table(c, &line->late, &out->evidence);
}

static int judge_same_direction(const struct mr_case *c, struct mr_judgement *out)
{
    static const uint8_t ways[] = {MR_COPY_H2D, MR_COPY_D2H};
    struct line line = {0};
    if (!c->look->has_calls)
        return mr_cannot_tell(out, "no CUDA calls of this process were recorded");
    if (c->by_stream.n < 2)
        return mr_fine(out, "all work is on one stream");
    uint32_t *list = mr_big_alloc("copies", c->look->n_ops + 1, sizeof *list);
    line.late.at = mr_big_alloc("copies", c->look->n_ops + 1, sizeof *line.late.at);
    int rc = list && line.late.at ? 0 : -ENOMEM;
    for (size_t i = 0; !rc && i < MR_COUNT(ways); i++)
        rc = find_line(c, ways[i], list, &line);
    rc = rc ? rc : judge_line(c, &line, out);
    mr_big_free(list);
    mr_big_free(line.late.at);
    mr_intervals_free(&line.waits);
    return rc;
}

const struct mr_rule mr_rules_path[] = {
    {"critical_path", judge_path},
    {"low_use", judge_low},
    {"same_direction_copies", judge_same_direction},
    {NULL, NULL},
};
