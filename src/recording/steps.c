/* Steps of a training loop: from NVTX ranges, else by the period of the device's work. */
#include "recording/big.h"
#include "recording/import.h"
#include "recording/look.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define PAUSE       100 /* usual steps between two marks: an epoch's end */
#define MIN_REGULAR 3   /* ranges that may be steps without being called so */
#define MIN_COVER   0.3 /* of the device's work, by ranges that nobody named */
#define MIN_FED     0.8 /* of these ranges, those that give the device work */
#define MIN_ALIKE   0.5 /* of them, those that launch the same kernels as the one before */
#define NEARLY      0.9

/* Length without a number at the end and what parts it from the name: "step 12", "ProfilerStep#3",
 * "iter_0007". */
static size_t base_length(const char *text)
{
    size_t n = strlen(text), digits = n;
    while (digits > 0 && isdigit((unsigned char)text[digits - 1]))
        digits--;
    if (digits == n || digits == 0)
        return n;
    while (digits > 1 && strchr(" _#:-=[(", text[digits - 1]))
        digits--;
    return digits;
}

static bool same(const char *text, size_t text_n, const char *name, size_t n, bool fold)
{
    return text_n == n && (fold ? strncasecmp(text, name, n) : strncmp(text, name, n)) == 0;
}

static bool in_domain(const char *domain, const char *asked, size_t n)
{
    return strlen(domain) == n && strncmp(domain, asked, n) == 0;
}

static bool same_or_base(const char *text, const char *name, size_t n, bool fold)
{
    return same(text, strlen(text), name, n, fold) || same(text, base_length(text), name, n, fold);
}

bool mr_range_named(const struct mr_recording *rec, const struct mr_rec_range *range,
                    const char *name, bool fold)
{
    const char *text = mr_rec_text(rec, range->text), *domain = mr_rec_text(rec, range->domain);
    const char *first = strchr(name, '@'), *last = strrchr(name, '@');
    if (same_or_base(text, name, strlen(name), fold))
        return true;
    if (!first)
        return false;
    return (in_domain(domain, name, (size_t)(first - name)) &&
            same_or_base(text, first + 1, strlen(first + 1), fold)) ||
           (in_domain(domain, last + 1, strlen(last + 1)) &&
            same_or_base(text, name, (size_t)(last - name), fold));
}

/* ---- marks ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median_of(uint64_t *values, uint64_t n)
{
    mr_big_sort(values, n, sizeof *values, by_number);
    return values[n / 2];
}

/*
 * The distance of which PAUSE are a pause: the median one, which a single pause in few steps does
 * not move. Where long ones come more often than that they may be a loader's that hands out batches
 * in bursts, whose waits belong to the steps: then the mean. Sorts.
 */
static uint64_t usual_distance(uint64_t *distance, uint64_t n)
{
    uint64_t sum = 0, n_long = 0, median = n > 0 ? median_of(distance, n) : 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += distance[i];
        n_long += distance[i] / PAUSE > median;
    }
    uint64_t mean = n > 0 ? sum / n : 0;
    return n_long <= 1 + n / 100 ? MR_MIN(median, mean) : mean;
}

int mr_steps_mark(struct mr_steps *steps, const uint64_t *mark_ns, const uint64_t *end_ns,
                  uint64_t n)
{
    uint64_t *distance = mr_big_alloc("steps", n + 1, sizeof *distance), usual;
    steps->at = distance ? mr_big_alloc("steps", n + 1, sizeof *steps->at) : NULL;
    steps->n = 0;
    if (!steps->at) {
        mr_big_free(distance);
        return -ENOMEM;
    }
    for (uint64_t i = 0; i + 1 < n; i++)
        distance[i] = mark_ns[i + 1] - mark_ns[i];
    usual = usual_distance(distance, n > 0 ? n - 1 : 0);
    mr_big_free(distance);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t next = i + 1 < n ? mark_ns[i + 1] : end_ns[i], end = next;
        uint64_t own = MR_MIN(MR_MAX(end_ns[i], mark_ns[i]), next);
        if (i + 1 < n && (next - own) / PAUSE > usual) {
            end = own;
            steps->pause_ns += next - own;
            steps->n_pauses++;
        }
        if (end > mark_ns[i])
            steps->at[steps->n++] = (struct mr_interval){mark_ns[i], end};
    }
    return 0;
}

/* ---- groups of ranges with the same name on the same thread ---- */

struct named {
    uint64_t key;
    uint32_t range;
};

struct group {
    uint64_t first, n; /* of the sorted names */
    uint64_t median_ns, usual_ns, start_ns, span_ns;
    double regular; /* share of distances within 25% of the median */
    uint32_t thread;
    uint16_t depth;
};

static int by_key(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->range > y->range) - (x->range < y->range);
}

static uint64_t key_of(const struct mr_recording *rec, const struct mr_rec_range *range)
{
    const char *text = mr_rec_text(rec, range->text);
    uint64_t h = mr_hash(MR_HASH_START, text, base_length(text));
    return mr_mix64(h ^ mr_mix64((uint64_t)range->domain << 32 | range->thread));
}

/* Of nested ranges of one name the outer one counts. */
static uint64_t drop_nested(const struct mr_recording *rec, struct named *names, uint64_t n)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct named *before = kept > 0 ? &names[kept - 1] : NULL;
        if (before && before->key == names[i].key &&
            rec->ranges[before->range].end_ns > rec->ranges[names[i].range].start_ns)
            continue;
        names[kept++] = names[i];
    }
    return kept;
}

static struct group measure(const struct mr_recording *rec, const struct named *names,
                            uint64_t first, uint64_t n, uint64_t *scratch)
{
    const struct mr_rec_range *begin = &rec->ranges[names[first].range],
                              *end = &rec->ranges[names[first + n - 1].range];
    struct group g = {.first = first, .n = n, .thread = begin->thread, .depth = begin->depth};
    uint64_t near = 0;
    g.start_ns = begin->start_ns;
    g.span_ns = end->end_ns - begin->start_ns;
    for (uint64_t i = 1; i < n; i++)
        scratch[i - 1] = rec->ranges[names[first + i].range].start_ns -
                         rec->ranges[names[first + i - 1].range].start_ns;
    if (n > 1)
        g.median_ns = median_of(scratch, n - 1);
    for (uint64_t i = 0; i + 1 < n; i++)
        near += scratch[i] >= g.median_ns - g.median_ns / 4 &&
                scratch[i] <= g.median_ns + g.median_ns / 4;
    g.usual_ns = usual_distance(scratch, n - 1);
    g.regular = n > 1 ? (double)near / (double)(n - 1) : 0;
    return g;
}

struct search {
    const struct mr_recording *rec;
    const struct mr_place *place;
    struct named *names;
    uint64_t n_names, *scratch;
    struct group *groups;
    uint64_t n_groups, groups_room;
    struct mr_work work;
    double cover; /* of the range that was found by its regularity */
};

static int make_groups(struct search *s)
{
    const struct mr_recording *rec = s->rec;
    s->names = mr_big_alloc("ranges", rec->n_ranges + 1, sizeof *s->names);
    s->scratch = mr_big_alloc("ranges", rec->n_ranges + 1, sizeof *s->scratch);
    if (!s->names || !s->scratch)
        return -ENOMEM;
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->type != MR_RANGE_MARK && range->thread < rec->n_threads &&
            range->end_ns > range->start_ns &&
            rec->threads[range->thread].process == s->place->process)
            s->names[s->n_names++] = (struct named){key_of(rec, range), (uint32_t)i};
    }
    mr_big_sort(s->names, s->n_names, sizeof *s->names, by_key);
    s->n_names = drop_nested(rec, s->names, s->n_names);
    for (uint64_t i = 0, n; i < s->n_names; i += n) {
        for (n = 1; i + n < s->n_names && s->names[i + n].key == s->names[i].key;)
            n++;
        if (mr_big_grow("ranges", &s->groups, &s->groups_room, s->n_groups + 1, sizeof *s->groups) <
            0)
            return -ENOMEM;
        s->groups[s->n_groups++] = measure(rec, s->names, i, n, s->scratch);
    }
    return 0;
}

static const struct mr_rec_range *first_of(const struct search *s, const struct group *g)
{
    return &s->rec->ranges[s->names[g->first].range];
}

/* On the driving thread before others, then the more often. */
static bool better(const struct search *s, const struct group *a, const struct group *b)
{
    bool x = a->thread == s->place->thread, y = b->thread == s->place->thread;
    return x != y ? x : a->n > b->n;
}

static const struct group *named_group(const struct search *s, const char *name, bool fold,
                                       uint64_t min_n)
{
    const struct group *best = NULL;
    for (uint64_t i = 0; i < s->n_groups; i++) {
        const struct group *g = &s->groups[i];
        if (g->n >= min_n && mr_range_named(s->rec, first_of(s, g), name, fold) &&
            (!best || better(s, g, best)))
            best = g;
    }
    return best;
}

struct worth {
    double cover; /* of the device's time, launched in the steps */
    double fed;   /* of the steps, those that launch something */
    double alike; /* of the steps, those that launch what the one before launched */
};

/* Where the last step's launches end at the latest: they may follow its range, as those of what
 * "load" loads do. */
static uint64_t last_launch_ns(const struct group *g, const struct mr_rec_range *last)
{
    return last->end_ns + g->median_ns;
}

static struct worth weigh(const struct search *s, const struct group *g)
{
    struct worth w = {0};
    uint64_t all = s->work.at[s->work.n].busy_ns;
    const struct named *at = s->names + g->first;
    const struct mr_rec_range *ranges = s->rec->ranges;
    struct mr_work_sum before = {0};
    for (uint64_t i = 0; i < g->n; i++) {
        const struct mr_rec_range *range = &ranges[at[i].range];
        uint64_t next = i + 1 < g->n ? ranges[at[i + 1].range].start_ns : range->end_ns;
        uint64_t end = MR_MIN(range->end_ns, next);
        bool pause = (next - end) / PAUSE > g->usual_ns;
        struct mr_work_sum own = mr_work_between(&s->work, range->start_ns, pause ? end : next);
        if (i + 1 == g->n && own.n == 0)
            own = mr_work_between(&s->work, range->start_ns, last_launch_ns(g, range));
        w.cover += (double)own.busy_ns / (double)(all ? all : 1);
        w.fed += (own.n > 0) / (double)g->n;
        w.alike += i > 0 && own.n > 0 && own.n == before.n && own.hash == before.hash
                       ? 1 / (double)(g->n - 1)
                       : 0;
        before = own;
    }
    return w;
}

/* The ranges that millrace profile makes in Python programs: a batch is a step, unless several
 * loaders take turns within one. */
static const struct group *python_group(const struct search *s)
{
    const struct group *loader = named_group(s, "python@DataLoader", false, 2);
    const struct group *step = named_group(s, "python@optimizer step", false, 2);
    struct worth w = loader ? weigh(s, loader) : (struct worth){0};
    if (w.cover > 0 && w.fed >= MIN_FED)
        return loader;
    return step && weigh(s, step).cover > 0 ? step : NULL;
}

static const struct group *known_group(const struct search *s)
{
    static const char *const names[] = {
        "step",         "train_step",    "training_step",       "train step", "training step",
        "iteration",    "iter",          "train_iter",          "batch",      "train_batch",
        "ProfilerStep", "millrace@step", "millrace@wait: batch"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        const struct group *g = named_group(s, names[i], true, 2);
        if (g && weigh(s, g).cover > 0)
            return g;
    }
    return python_group(s);
}

static bool is_epoch(const struct search *s, const struct group *g)
{
    static const char *const names[] = {"epoch", "train",       "training", "fit",
                                        "main",  "train_epoch", "run"};
    for (size_t i = 0; i < MR_COUNT(names); i++)
        if (mr_range_named(s->rec, first_of(s, g), names[i], true))
            return true;
    return false;
}

/* Ranges of compilers, tuners and libraries repeat, too; those of steps launch the same kernels
 * each time. */
static bool may_be_step(const struct search *s, const struct group *g, double *out_cover)
{
    const char *domain = mr_rec_text(s->rec, first_of(s, g)->domain);
    if (g->n < MIN_REGULAR || g->regular < 0.5 || is_epoch(s, g) ||
        strcmp(domain, MR_IMPORT_OPS) == 0 || strcmp(domain, MR_IMPORT_RCCL) == 0)
        return false;
    struct worth w = weigh(s, g);
    *out_cover = w.cover;
    return w.cover >= MIN_COVER && w.fed >= MIN_FED && w.alike >= MIN_ALIKE;
}

static bool outer(const struct search *s, const struct group *a, const struct group *b)
{
    bool x = a->thread == s->place->thread, y = b->thread == s->place->thread;
    if (x != y)
        return x;
    return a->depth != b->depth ? a->depth < b->depth : a->start_ns < b->start_ns;
}

/*
 * Of those that hold nearly as much of the device's work as any: on the driving thread first, then
 * the outermost, then what begins first ("load" before "train" of the same step).
 */
static const struct group *regular_group(const struct search *s, double *out_cover)
{
    const struct group *best = NULL;
    double most = 0, cover = 0;
    for (uint64_t i = 0; i < s->n_groups; i++)
        if (may_be_step(s, &s->groups[i], &cover))
            most = MR_MAX(most, cover);
    for (uint64_t i = 0; most > 0 && i < s->n_groups; i++)
        if (may_be_step(s, &s->groups[i], &cover) && cover >= NEARLY * most &&
            (!best || outer(s, &s->groups[i], best))) {
            best = &s->groups[i];
            *out_cover = cover;
        }
    return best;
}

/* Whether only the last range gives the device nothing: there the loop learns that there is no more
 * data. */
static bool ends_empty(const struct search *s, const struct group *g)
{
    const struct mr_rec_range *last = &s->rec->ranges[s->names[g->first + g->n - 1].range];
    if (g->n < MIN_REGULAR ||
        mr_work_between(&s->work, last->start_ns, last_launch_ns(g, last)).n > 0)
        return false;
    return weigh(s, g).fed * (double)g->n >= MIN_FED * (double)(g->n - 1);
}

/* The step at the last mark goes; the one before it lasts until there, or to its own end where a
 * pause lay between. */
static void drop_last(struct mr_steps *steps, uint64_t mark_ns)
{
    if (steps->n == 0 || steps->at[steps->n - 1].start_ns != mark_ns)
        return;
    steps->n--;
    if (steps->n > 0 && steps->at[steps->n - 1].end_ns < mark_ns) {
        steps->n_pauses--;
        steps->pause_ns -= mark_ns - steps->at[steps->n - 1].end_ns;
    }
}

static void describe_group(const struct search *s, const struct group *g, struct mr_steps *out)
{
    const char *text = mr_rec_text(s->rec, first_of(s, g)->text);
    size_t used =
        (size_t)snprintf(out->how, sizeof out->how, "from one NVTX range \"%.*s\" to the next",
                         (int)MR_MIN(base_length(text), 80u), text);
    if (out->method == MR_STEPS_RANGE)
        snprintf(out->how + used, sizeof out->how - used,
                 ", an outermost one that repeats with the same kernels and holds %.0f%% of the "
                 "device's work",
                 100 * s->cover);
}

static int take_group(const struct search *s, const struct group *g, struct mr_steps *out)
{
    uint64_t n = g->n, *mark = mr_big_alloc("steps", n + 1, sizeof *mark),
             *end = mr_big_alloc("steps", n + 1, sizeof *end);
    int rc = mark && end ? 0 : -ENOMEM;
    if (rc < 0)
        goto end;
    for (uint64_t i = 0; i < n; i++) {
        const struct mr_rec_range *range = &s->rec->ranges[s->names[g->first + i].range];
        mark[i] = range->start_ns;
        end[i] = range->end_ns;
    }
    rc = mr_steps_mark(out, mark, end, n);
    if (rc < 0)
        goto end;
    if (ends_empty(s, g))
        drop_last(out, mark[n - 1]);
    describe_group(s, g, out);
end:
    mr_big_free(mark);
    mr_big_free(end);
    return rc;
}

/* The same name on another thread. */
static bool told_before(const struct search *s, uint64_t at)
{
    const char *text = mr_rec_text(s->rec, first_of(s, &s->groups[at])->text);
    for (uint64_t i = 0; i < at; i++) {
        const char *other = mr_rec_text(s->rec, first_of(s, &s->groups[i])->text);
        if (base_length(other) == base_length(text) && strncmp(other, text, base_length(text)) == 0)
            return true;
    }
    return false;
}

static int no_such_range(const struct search *s, const char *name)
{
    char list[400] = "";
    size_t used = 0;
    uint64_t last = 0;
    for (uint64_t i = 0, told = 0; i < s->n_groups && told < 8; i++) {
        const char *text = mr_rec_text(s->rec, first_of(s, &s->groups[i])->text);
        if (told_before(s, i))
            continue;
        int n = snprintf(list + used, sizeof list - used, "%s\"%.*s\"", told ? ", " : "",
                         (int)MR_MIN(base_length(text), 60u), text);
        if (n < 0 || (size_t)n >= sizeof list - used)
            break;
        used += (size_t)n;
        told++;
        last = i;
    }
    list[used] = 0;
    if (s->n_groups == 0)
        return mr_error_set(MR_EOPTION,
                            "step %s: this recording's process has no NVTX ranges; omit the step "
                            "to find it by the period of the device's work",
                            name);
    return mr_error_set(MR_EOPTION, "step %s: no NVTX range has this name; expected one of %s%s",
                        name, list, last + 1 < s->n_groups ? ", ..." : "");
}

/* Whether the device works while the steps last. A host that runs far ahead has given it everything
 * before: its ranges are then no steps of the device. */
static bool holds_work(const struct search *s, const uint32_t *ops, uint64_t n_ops,
                       const struct mr_steps *steps)
{
    uint64_t held = 0, all = 0;
    if (steps->n == 0 || n_ops == 0)
        return true;
    uint64_t from = steps->at[0].start_ns, to = steps->at[steps->n - 1].end_ns;
    for (uint64_t i = 0; i < n_ops; i++) {
        const struct mr_rec_op *op = &s->rec->ops[ops[i]];
        uint64_t start = MR_MAX(op->start_ns, from), end = MR_MIN(op->end_ns, to);
        all += op->end_ns - op->start_ns;
        held += end > start ? end - start : 0;
    }
    return held == 0 || (double)held >= MIN_COVER * (double)all;
}

/* Steps of a range, unless the device works after them: then by its period, if it has one. */
static int take_or_period(const struct search *s, const struct group *g, const uint32_t *ops,
                          uint64_t n_ops, struct mr_steps *out)
{
    struct mr_steps period = {.method = MR_STEPS_PERIOD};
    int rc = take_group(s, g, out);
    if (rc < 0 || holds_work(s, ops, n_ops, out))
        return rc;
    rc = mr_steps_period(s->rec, s->place, ops, n_ops, &period);
    if (rc < 0 || period.n == 0) {
        mr_steps_free(&period);
        return rc;
    }
    mr_steps_free(out);
    *out = period;
    return 0;
}

static int find(struct search *s, const uint32_t *ops, uint64_t n_ops, const char *name,
                struct mr_steps *out)
{
    const struct group *g = NULL;
    int rc = make_groups(s);
    if (rc < 0)
        return rc;
    rc = mr_work_read(s->rec, s->place, ops, n_ops, &s->work);
    if (rc < 0)
        return rc;
    if (name) {
        g = named_group(s, name, false, 1);
        out->method = MR_STEPS_NAMED;
        out->confidence = 1;
        return g ? take_group(s, g, out) : no_such_range(s, name);
    }
    g = known_group(s);
    out->method = g ? MR_STEPS_KNOWN : MR_STEPS_RANGE;
    out->confidence = g ? 0.95 : 0.8;
    g = g ? g : regular_group(s, &s->cover);
    if (g)
        return take_or_period(s, g, ops, n_ops, out);
    out->method = MR_STEPS_PERIOD;
    rc = mr_steps_period(s->rec, s->place, ops, n_ops, out);
    if (rc < 0)
        return rc;
    if (out->n == 0) {
        out->method = MR_STEPS_NONE;
        out->confidence = 0;
    }
    return 0;
}

int mr_steps_find(const struct mr_recording *rec, const struct mr_place *place, const uint32_t *ops,
                  uint64_t n_ops, const char *name, struct mr_steps *out)
{
    struct search s = {.rec = rec, .place = place};
    struct mr_steps steps = {0};
    int rc = find(&s, ops, n_ops, name, &steps);
    mr_big_free(s.names);
    mr_big_free(s.scratch);
    mr_big_free(s.groups);
    mr_big_free(s.work.at);
    if (rc < 0) {
        mr_steps_free(&steps);
        return rc;
    }
    if (steps.n == 0)
        steps.method = MR_STEPS_NONE;
    if (steps.n == 0 && steps.how[0] == 0)
        snprintf(steps.how, sizeof steps.how,
                 "no steps were found: no NVTX range repeats and the device's work has no period");
    *out = steps;
    return 0;
}

void mr_steps_free(struct mr_steps *steps)
{
    mr_big_free(steps->at);
    *steps = (struct mr_steps){0};
}
