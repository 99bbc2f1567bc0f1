/* Ranks side by side (ranks.h). */
#include "recording/big.h"
#include "recording/ranks_view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define APART_NS    1000000 /* ends of one collective on two ranks never lie further apart */
#define MATCHED     0.5     /* of the collectives must be so */
#define COST_STEP   0.01    /* of a step: the others wait to speak of */
#define COST_WORTH  0.05    /* of the steps' time: a rank is named */
#define LAST_SHARE  0.6     /* of the steps in which somebody waits */
#define LAST_TIMES  3       /* what the next rank costs */
#define GAIN_TOLD   0.75    /* of what the others wait: less is told */
#define AHEAD_SHARE 0.5     /* of the steps: a program runs ahead of its device */
#define LEAD_EACH   0.2     /* of a lead that grows evenly, in each quarter of the steps */
#define LEAST_STEPS 3

struct job {
    const struct mr_recording *rec;
    struct mr_ranks *ranks;
    struct mr_rank_view *views;
    uint32_t base;            /* the rank that the others are matched with */
    uint64_t from, to;        /* of base's collectives: what all have */
    uint64_t n_paced;         /* steps that another one follows */
    uint64_t *waits, *sorted; /* of ranks: in a step */
};

/* ---- numbers ---- */

/* MR_NONE: the recording has no such note of this process. */
static uint32_t noted(const struct mr_recording *rec, uint32_t process, const char *name)
{
    for (uint32_t i = 0; i < rec->n_notes; i++)
        if (rec->notes[i].process == process && rec->notes[i].value >= 0 &&
            rec->notes[i].value < MR_NONE &&
            strcmp(mr_rec_text(rec, rec->notes[i].name), name) == 0)
            return (uint32_t)rec->notes[i].value;
    return MR_NONE;
}

static int by_rank(const void *a, const void *b)
{
    const struct mr_rank *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->place.device != y->place.device)
        return x->place.device < y->place.device ? -1 : 1;
    return (x->place.process > y->place.process) - (x->place.process < y->place.process);
}

/* As recorded, else in the order of devices and processes, of those that communicate. */
static void number(struct job *j)
{
    struct mr_ranks *ranks = j->ranks;
    bool all = true;
    for (uint32_t i = 0; i < ranks->n; i++) {
        struct mr_rank *r = &ranks->at[i];
        uint32_t world = noted(j->rec, r->place.process, "world_size");
        r->rank = noted(j->rec, r->place.process, "rank");
        r->named = r->rank != MR_NONE;
        ranks->world = world != MR_NONE ? MR_MAX(ranks->world, world) : ranks->world;
        all = all && (r->named || r->n_comms == 0);
    }
    qsort(ranks->at, ranks->n, sizeof *ranks->at, by_rank);
    for (uint32_t i = 0, next = 0; i < ranks->n && !all; i++) {
        ranks->at[i].named = false;
        ranks->at[i].rank = ranks->at[i].n_comms > 0 ? next++ : MR_NONE;
    }
    qsort(ranks->at, ranks->n, sizeof *ranks->at, by_rank);
}

/* ---- ranks together ---- */

static const struct mr_comm *comm_of(const struct job *j, uint32_t i, uint64_t c)
{
    return &j->views[i].comms.at[(int64_t)c - j->views[i].offset];
}

/* The last entry of a collective; 0: its ends lie apart, so it is not one. */
static uint64_t last_entry(const struct job *j, uint64_t c)
{
    uint64_t last = 0, first_end = UINT64_MAX, last_end = 0;
    for (uint32_t i = 0; i < j->ranks->n; i++) {
        if (!j->ranks->at[i].matched)
            continue;
        const struct mr_comm *comm = comm_of(j, i, c);
        last = MR_MAX(last, comm->start_ns);
        first_end = MR_MIN(first_end, comm->end_ns);
        last_end = MR_MAX(last_end, comm->end_ns);
    }
    return last_end - first_end <= APART_NS && last < last_end ? last : 0;
}

static uint64_t wait_of(const struct mr_comm *comm, uint64_t last)
{
    return MR_MIN(comm->end_ns, MR_MAX(last, comm->start_ns)) - comm->start_ns;
}

/* Two ranks at least, and a rank has one place only: another one's is not of this job's. */
static void match(struct job *j)
{
    struct mr_ranks *ranks = j->ranks;
    uint64_t n_fit = 0;
    j->base = MR_NONE;
    for (uint32_t i = 0; i < ranks->n; i++)
        if (j->views[i].comms.n > 0 &&
            (j->base == MR_NONE || j->views[i].comms.n > j->views[j->base].comms.n))
            j->base = i;
    if (j->base == MR_NONE)
        return;
    j->from = 0;
    j->to = j->views[j->base].comms.n;
    for (uint32_t i = 0; i < ranks->n; i++) {
        struct mr_comm_pair pair;
        struct mr_rank_view *v = &j->views[i];
        mr_comm_match(&j->views[j->base].comms, &v->comms, true, &pair);
        if (pair.n == 0 || pair.spread_ns > APART_NS ||
            (pair.shift_ns < 0 ? -pair.shift_ns : pair.shift_ns) > APART_NS)
            continue;
        v->offset = pair.offset;
        ranks->at[i].matched = true;
        ranks->n_matched++;
        j->from = MR_MAX(j->from, (uint64_t)MR_MAX(pair.offset, (int64_t)0));
        j->to = MR_MIN(j->to, (uint64_t)((int64_t)v->comms.n + pair.offset));
    }
    for (uint64_t c = j->from; c < j->to && ranks->n_matched > 1; c++)
        n_fit += last_entry(j, c) > 0;
    if (ranks->n_matched < 2 || j->to <= j->from ||
        (double)n_fit < MATCHED * (double)(j->to - j->from)) {
        for (uint32_t i = 0; i < ranks->n; i++)
            ranks->at[i].matched = false;
        ranks->n_matched = 0;
    }
}

static void add_up_waits(struct job *j)
{
    for (uint64_t c = j->from; c < j->to; c++) {
        uint64_t last = last_entry(j, c);
        for (uint32_t i = 0; i < j->ranks->n && last > 0; i++)
            if (j->ranks->at[i].matched)
                j->ranks->at[i].wait_ns += wait_of(comm_of(j, i, c), last);
    }
}

/* ---- steps ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Where the last one has most more than the mean of the others. */
static void find_cause(const struct job *j, struct mr_rank_step *step)
{
    int64_t more[MR_N_CAUSES] = {0};
    step->cause = -1;
    for (uint32_t i = 0; i < j->ranks->n; i++) {
        uint64_t ns[MR_N_CAUSES] = {0};
        if (!j->ranks->at[i].matched)
            continue;
        mr_rank_view_split(&j->views[i], step->start_ns, step->end_ns, ns);
        for (int k = 0; k < MR_N_CAUSES; k++)
            more[k] +=
                i == step->last ? (int64_t)(ns[k] * (j->ranks->n_matched - 1)) : -(int64_t)ns[k];
    }
    for (int k = 0; k < MR_N_CAUSES; k++) {
        int64_t each = more[k] / (int64_t)(j->ranks->n_matched - 1);
        if (each * 4 >= (int64_t)step->cost_ns && each > step->more_ns) {
            step->more_ns = each;
            step->cause = k;
        }
    }
}

static int put_step(struct job *j, uint64_t *capacity, uint64_t first, uint64_t start_ns,
                    uint64_t end_ns)
{
    struct mr_ranks *ranks = j->ranks;
    struct mr_rank_step step = {
        .start_ns = start_ns, .end_ns = end_ns, .first = first, .last = MR_NONE, .cause = -1};
    uint32_t n = 0, least = MR_NONE;
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (!ranks->at[i].matched)
            continue;
        ranks->at[i].step_wait_ns += j->waits[i];
        j->sorted[n++] = j->waits[i];
        if (least == MR_NONE || j->waits[i] < j->waits[least])
            least = i;
    }
    qsort(j->sorted, n, sizeof *j->sorted, by_number);
    step.cost_ns = j->sorted[n / 2] - j->sorted[0];
    if ((double)step.cost_ns >= COST_STEP * (double)(end_ns - start_ns)) {
        step.last = least;
        find_cause(j, &step);
        ranks->at[least].n_last++;
        ranks->at[least].cost_ns += step.cost_ns;
    }
    if (mr_grow("steps of ranks", &ranks->steps, capacity, ranks->n_steps + 1,
                sizeof *ranks->steps) < 0)
        return -ENOMEM;
    ranks->steps[ranks->n_steps++] = step;
    return 0;
}

/* The time by which a collective is of a step: steps by the period are the device's, the others
 * those of the program, which may run ahead. */
static uint64_t step_time(const struct mr_look *look, const struct mr_comm *comm)
{
    return look->steps.method == MR_STEPS_PERIOD ? comm->start_ns : comm->call_ns;
}

/* When what has this time belongs to another step; 0: to none. */
static uint64_t step_until(const struct mr_look *look, uint64_t time_ns)
{
    const struct mr_intervals steps = {look->steps.at, look->steps.n, 0, false};
    size_t s = mr_intervals_find(&steps, time_ns);
    bool in = s >= look->n_warm && s < steps.n && steps.at[s].start_ns <= time_ns;
    if (look->steps.n == 0)
        return time_ns + 1;
    return in ? steps.at[s].end_ns : 0;
}

/* Of the step that was put last; the next step's collectives begin at `next`. */
static void put_pace(struct job *j, uint64_t next)
{
    const struct mr_rank_step *step = &j->ranks->steps[j->ranks->n_steps - 1];
    if (next >= j->to)
        return;
    for (uint32_t i = 0; i < j->ranks->n; i++)
        if (j->ranks->at[i].matched)
            mr_rank_view_pace(&j->views[i], &j->ranks->at[i], step,
                              comm_of(j, i, step->first)->call_ns, comm_of(j, i, next)->call_ns);
    j->n_paced++;
}

/* A step's collectives are those of the base's step. It is from the end of the
 * last one before to the end of its own last one, which is the same on all ranks. Without steps
 * each collective is one. */
static int find_steps(struct job *j)
{
    const struct mr_look *look = &j->views[j->base].look;
    uint64_t capacity = 0, before = 0, c = j->from;
    int rc = 0;
    while (c < j->to && rc == 0) {
        const struct mr_comm *first = comm_of(j, j->base, c);
        uint64_t first_c = c;
        uint64_t until = step_until(look, step_time(look, first)), end = first->end_ns;
        memset(j->waits, 0, j->ranks->n * sizeof *j->waits);
        do {
            uint64_t last = last_entry(j, c);
            end = MR_MAX(end, comm_of(j, j->base, c)->end_ns);
            for (uint32_t i = 0; i < j->ranks->n && last > 0; i++)
                if (j->ranks->at[i].matched)
                    j->waits[i] += wait_of(comm_of(j, i, c), last);
            c++;
        } while (c < j->to && step_time(look, comm_of(j, j->base, c)) < until);
        end = MR_MAX(end, before);
        if (before > 0 && until > 0)
            rc = put_step(j, &capacity, first_c, before, end);
        if (before > 0 && until > 0 && rc == 0)
            put_pace(j, c);
        before = end;
    }
    return rc;
}

/* ---- who is slow ---- */

/* A rank gets ahead of a slow one by as much in each step when nothing makes it wait. One that is
 * held in every step, by whatever is not recorded, is ahead by as much from the first step on. */
static bool gets_ahead(const struct job *j, uint32_t rank, uint32_t slow)
{
    double lead[4] = {0};
    uint64_t n = j->ranks->n_steps / 4;
    for (uint64_t s = 0; s < 4 * n; s++) {
        uint64_t c = j->ranks->steps[s].first;
        lead[s / n] +=
            ((double)comm_of(j, slow, c)->call_ns - (double)comm_of(j, rank, c)->call_ns);
    }
    double all = lead[3] - lead[0];
    for (int q = 1; q < 4 && n > 0; q++)
        if (lead[q] - lead[q - 1] < all * LEAD_EACH || all < lead[3] / 2)
            return false;
    return n > 0 && all > 0;
}

/* What a step gains when rank `slow` is as fast as the others; -1: not known. */
static double gain_of(const struct job *j, uint32_t slow, double step_ns)
{
    double least = 0, n = (double)j->n_paced;
    for (uint32_t i = 0; i < j->ranks->n; i++) {
        const struct mr_rank *r = &j->ranks->at[i];
        if (!r->matched || i == slow)
            continue;
        if (j->n_paced == 0 || ((double)r->n_ahead < AHEAD_SHARE * n && !gets_ahead(j, i, slow)))
            return -1;
        least = MR_MAX(least, (double)MR_MAX(r->host_ns, r->work_ns) / n);
    }
    return MR_MAX(step_ns - least, 0);
}

static void find_slow(struct job *j)
{
    struct mr_ranks *ranks = j->ranks;
    uint64_t n_waits = 0, wall_ns = 0, next_ns = 0;
    uint32_t most = MR_NONE;
    double more[MR_N_CAUSES] = {0};
    for (uint64_t s = 0; s < ranks->n_steps; s++) {
        n_waits += ranks->steps[s].last != MR_NONE;
        wall_ns += ranks->steps[s].end_ns - ranks->steps[s].start_ns;
    }
    for (uint32_t i = 0; i < ranks->n; i++)
        if (ranks->at[i].n_last > 0 &&
            (most == MR_NONE || ranks->at[i].cost_ns > ranks->at[most].cost_ns))
            most = i;
    for (uint32_t i = 0; i < ranks->n; i++)
        if (i != most)
            next_ns = MR_MAX(next_ns, ranks->at[i].cost_ns);
    if (most == MR_NONE || ranks->at[most].n_last < LEAST_STEPS ||
        (double)ranks->at[most].n_last < LAST_SHARE * (double)n_waits ||
        (double)ranks->at[most].cost_ns < COST_WORTH * (double)wall_ns ||
        ranks->at[most].cost_ns < LAST_TIMES * next_ns)
        return;
    double step_ns = (double)wall_ns / (double)ranks->n_steps;
    ranks->gain_ns = gain_of(j, most, step_ns);
    if (ranks->gain_ns >= 0 && ranks->gain_ns < COST_WORTH * step_ns) {
        snprintf(ranks->why, sizeof ranks->why,
                 "rank %" PRIu32 " comes last, but a step would be only %.3f of %.3f ms shorter if "
                 "it were as fast as the others: the devices wait for launches",
                 ranks->at[most].rank, ranks->gain_ns / 1e6, step_ns / 1e6);
        return;
    }
    ranks->slow = most;
    for (uint64_t s = 0; s < ranks->n_steps; s++)
        if (ranks->steps[s].last == most && ranks->steps[s].cause >= 0)
            more[ranks->steps[s].cause] += (double)ranks->steps[s].more_ns;
    for (int k = 0; k < MR_N_CAUSES; k++)
        if (more[k] > 0 && (ranks->cause < 0 || more[k] > more[ranks->cause]))
            ranks->cause = k;
    if (ranks->cause >= 0)
        ranks->more_ns = more[ranks->cause] / (double)ranks->at[most].n_last;
}

void mr_ranks_gain_text(const struct mr_ranks *ranks, char *out, size_t bytes)
{
    const struct mr_rank *slow = &ranks->at[ranks->slow];
    double each = (double)slow->cost_ns / (double)MR_MAX(slow->n_last, (uint64_t)1);
    *out = 0;
    if (ranks->gain_ns >= 0 && ranks->gain_ns < GAIN_TOLD * each)
        snprintf(out, bytes, "; if it were as fast as they are, a step would take %.3f ms less",
                 ranks->gain_ns / 1e6);
}

static void tell_why(struct job *j)
{
    struct mr_ranks *ranks = j->ranks;
    uint32_t n_comms = 0, n_ranks = 0;
    for (uint32_t i = 0; i < ranks->n; i++) {
        n_comms += ranks->at[i].n_comms > 0;
        n_ranks +=
            ranks->at[i].rank != MR_NONE && (i == 0 || ranks->at[i].rank != ranks->at[i - 1].rank);
    }
    if (ranks->world > n_ranks && n_comms > 0)
        snprintf(ranks->why, sizeof ranks->why,
                 "the job has %" PRIu32 " ranks, and %" PRIu32 " %s recorded here: whether one of "
                 "the others is waited for is not known; give the recordings of all ranks",
                 ranks->world, n_ranks, n_ranks == 1 ? "is" : "are");
    else if (n_comms > 1 && ranks->n_matched == 0)
        snprintf(ranks->why, sizeof ranks->why,
                 "the ranks' collectives do not end at the same times in the same order (several "
                 "groups, or other clocks): who waits for whom is not known");
    else if (n_comms == 1)
        snprintf(ranks->why, sizeof ranks->why,
                 "one rank communicates here: who waits for whom is not known");
}

static int list(struct job *j)
{
    struct mr_place *places = NULL;
    uint32_t n = 0;
    int rc = mr_places_find(j->rec, &places, &n);
    if (rc < 0)
        return rc;
    j->ranks->at = calloc((size_t)n + 1, sizeof *j->ranks->at);
    j->views = calloc((size_t)n + 1, sizeof *j->views);
    j->waits = calloc((size_t)n + 1, sizeof *j->waits);
    j->sorted = calloc((size_t)n + 1, sizeof *j->sorted);
    if (!j->ranks->at || !j->views || !j->waits || !j->sorted)
        rc = mr_error_nomem("ranks", n * sizeof *j->views);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        j->ranks->at[i].place = places[i];
    j->ranks->n = rc == 0 ? n : 0;
    free(places);
    return rc;
}

static int make(struct job *j, const char *step)
{
    int rc = list(j);
    if (rc < 0)
        return rc;
    /* numbers follow from who communicates, and views come in their order */
    for (uint32_t i = 0; i < j->ranks->n; i++) {
        struct mr_rank *r = &j->ranks->at[i];
        struct mr_comms comms = {0};
        uint32_t *ops = NULL;
        uint64_t n_ops = 0;
        rc = mr_place_ops(j->rec, &r->place, &ops, &n_ops);
        rc = rc ? rc : mr_comms_find(j->rec, &r->place, ops, n_ops, &comms);
        r->n_comms = comms.n;
        mr_comms_free(&comms);
        mr_big_free(ops);
        if (rc < 0)
            return rc;
    }
    number(j);
    struct mr_error_kept unnamed = {0};
    uint32_t n_named = 0;
    for (uint32_t i = 0; i < j->ranks->n; i++) {
        struct mr_rank *r = &j->ranks->at[i];
        rc = mr_rank_view_make(j->rec, r, step, &j->views[i]);
        if (rc == MR_EOPTION && step) { /* one that has the range is enough */
            if (!unnamed.code)
                mr_error_keep(rc, &unnamed);
            rc = mr_rank_view_make(j->rec, r, NULL, &j->views[i]);
        } else {
            n_named++;
        }
        if (rc < 0)
            return rc;
    }
    if (n_named == 0 && unnamed.code)
        return mr_error_put(&unnamed);
    match(j);
    if (j->ranks->n_matched > 1) {
        add_up_waits(j);
        rc = find_steps(j);
        find_slow(j);
    }
    mr_ranks_find_slowest(j->ranks, j->views);
    tell_why(j);
    return rc;
}

static bool communicates(const struct mr_recording *rec)
{
    for (uint32_t i = 0; i < rec->n_strings; i++)
        if (mr_name_communicates(mr_rec_text(rec, i)))
            return true;
    return false;
}

int mr_ranks_find_first(const struct mr_recording *rec, const char *step, struct mr_place *places,
                        uint32_t n, struct mr_ranks *out)
{
    *out = (struct mr_ranks){.slow = MR_NONE, .cause = -1, .gain_ns = -1};
    int rc = n > 1 || communicates(rec) ? mr_ranks_find(rec, step, out) : 0;
    for (uint32_t i = 0; i < n && rc == 0 && out->slow != MR_NONE; i++) {
        const struct mr_place *slow = &out->at[out->slow].place, first = places[0];
        if (places[i].process != slow->process || places[i].device != slow->device)
            continue;
        places[0] = places[i];
        places[i] = first;
        break;
    }
    return rc;
}

int mr_ranks_find(const struct mr_recording *rec, const char *step, struct mr_ranks *out)
{
    *out = (struct mr_ranks){.slow = MR_NONE, .cause = -1, .gain_ns = -1};
    struct job j = {.rec = rec, .ranks = out};
    int rc = make(&j, step);
    for (uint32_t i = 0; j.views && i < out->n; i++)
        mr_rank_view_free(&j.views[i]);
    free(j.views);
    free(j.waits);
    free(j.sorted);
    if (rc < 0)
        mr_ranks_free(out);
    return rc;
}

void mr_ranks_free(struct mr_ranks *ranks)
{
    free(ranks->at);
    free(ranks->steps);
    *ranks = (struct mr_ranks){0};
}
