/*
 * Steps by the period of the device's work, for recordings without NVTX ranges.
 *
 * Operations in the order in which they were launched are a text of tokens (a kernel's name, a
 * copy's kind and rough size). A lag that separates most successive occurrences (or every m-th) of
 * some token is a candidate period; it is judged by the share of tokens that equal the one a lag
 * later. The smallest lag that matches well and whose windows each hold a host-to-device copy wins:
 * layers repeat within a step, but a step is fed once. Without such copies it is the best match.
 *
 * Where a loader's threads copy whenever they are ready, or another thread tries out kernels, all
 * of it has no period, but what the driving thread launches may have one.
 */
#include "recording/big.h"
#include "recording/look.h"

#include <errno.h>
#include <string.h>

#define MAX_FOLD       8
#define MAX_CANDIDATES 128
#define MIN_MATCH      0.7
#define MIN_PERIODS    3
#define MIN_OWN        0.3 /* of the device's time, by one thread */

struct token {
    uint64_t hash, launched_ns;
    uint32_t op, id;
};

struct candidate {
    uint64_t lag;
    uint32_t id; /* of the token that gave it; the first one */
    uint32_t fold;
    double match;
    bool fed;
};

struct period {
    const struct mr_recording *rec;
    struct token *tokens;
    uint64_t n;
    uint64_t *by_id; /* positions, a token's together */
    uint64_t *first; /* of by_id, for each id; n_ids + 1 */
    uint32_t n_ids;
    uint64_t *fed; /* fed[i]: host-to-device copies before position i */
    struct candidate candidate[MAX_CANDIDATES];
    uint32_t n_candidates;
};

static bool feeds(const struct mr_rec_op *op)
{
    return op->kind == MR_OP_COPY && op->copy_kind == MR_COPY_H2D;
}

static uint64_t token_hash(const struct mr_rec_op *op)
{
    uint64_t size = op->kind == MR_OP_KERNEL || op->bytes == 0
                        ? 0
                        : (uint64_t)(64 - __builtin_clzll(op->bytes));
    return mr_mix64(op->kind | (uint64_t)op->copy_kind << 8 | size << 16 |
                    (uint64_t)op->name << 32);
}

static int by_launch(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    if (x->launched_ns != y->launched_ns)
        return x->launched_ns < y->launched_ns ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Numbers the distinct tokens in the order in which they first come. slot: n_slots zeroes, a power
 * of two. */
static void number(struct period *p, uint32_t *slot, uint64_t n_slots)
{
    uint64_t *seen = p->by_id; /* of each id its hash, until positions are filled in */
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t at = p->tokens[i].hash & (n_slots - 1);
        while (slot[at] != 0 && seen[slot[at] - 1] != p->tokens[i].hash)
            at = (at + 1) & (n_slots - 1);
        if (slot[at] == 0) {
            seen[p->n_ids++] = p->tokens[i].hash;
            slot[at] = p->n_ids;
        }
        p->tokens[i].id = slot[at] - 1;
    }
}

/* Sorts the positions by token. */
static void sort_positions(struct period *p)
{
    for (uint64_t i = 0; i < p->n; i++)
        p->first[p->tokens[i].id + 1]++;
    for (uint32_t id = 0; id < p->n_ids; id++)
        p->first[id + 1] += p->first[id];
    for (uint64_t i = p->n;
         i-- > 0;) { /* filled from the back: first[id + 1] sinks to where id begins ... */
        uint64_t *at = &p->first[p->tokens[i].id + 1];
        p->by_id[--*at] = i;
    }
    memmove(p->first, p->first + 1, p->n_ids * sizeof *p->first); /* ... and is moved there */
    p->first[p->n_ids] = p->n;
}

static int read_tokens(struct period *p, const uint32_t *ops)
{
    uint64_t n_slots = 64;
    while (n_slots < 2 * p->n)
        n_slots *= 2;
    const char *what = "the device's work";
    uint32_t *slot = mr_big_alloc(what, n_slots, sizeof *slot);
    p->tokens = mr_big_alloc(what, p->n + 1, sizeof *p->tokens);
    p->by_id = mr_big_alloc(what, p->n + 1, sizeof *p->by_id);
    p->first = mr_big_alloc(what, p->n + 2, sizeof *p->first);
    p->fed = mr_big_alloc(what, p->n + 1, sizeof *p->fed);
    if (!slot || !p->tokens || !p->by_id || !p->first || !p->fed) {
        mr_big_free(slot);
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < p->n; i++) {
        const struct mr_rec_op *op = &p->rec->ops[ops[i]];
        uint64_t launched =
            op->api < p->rec->n_apis ? p->rec->apis[op->api].start_ns : op->start_ns;
        p->tokens[i] = (struct token){token_hash(op), launched, ops[i], 0};
    }
    mr_big_sort(p->tokens, p->n, sizeof *p->tokens, by_launch);
    number(p, slot, n_slots);
    mr_big_free(slot);
    sort_positions(p);
    p->fed[0] = 0;
    for (uint64_t i = 0; i < p->n; i++)
        p->fed[i + 1] = p->fed[i] + feeds(&p->rec->ops[p->tokens[i].op]);
    return 0;
}

/* The distance that more than half of a token's fold-th successors have; 0: none. Majority vote,
 * then a count. */
static uint64_t majority(const uint64_t *at, uint64_t n, uint32_t fold)
{
    uint64_t lag = 0, votes = 0, agree = 0;
    for (uint64_t i = fold; i < n; i++) {
        uint64_t d = at[i] - at[i - fold];
        lag = votes == 0 ? d : lag;
        votes = d == lag ? votes + 1 : votes - 1;
    }
    for (uint64_t i = fold; i < n; i++)
        agree += at[i] - at[i - fold] == lag;
    return agree * 2 > n - fold ? lag : 0;
}

static void consider(struct period *p, uint32_t id, uint32_t fold, uint64_t lag)
{
    for (uint32_t i = 0; i < p->n_candidates; i++)
        if (p->candidate[i].lag == lag) {
            if (fold < p->candidate[i].fold)
                p->candidate[i] = (struct candidate){.lag = lag, .id = id, .fold = fold};
            return;
        }
    if (p->n_candidates < MAX_CANDIDATES)
        p->candidate[p->n_candidates++] = (struct candidate){.lag = lag, .id = id, .fold = fold};
}

static void find_candidates(struct period *p)
{
    for (uint32_t id = 0; id < p->n_ids; id++) {
        uint64_t n = p->first[id + 1] - p->first[id];
        for (uint32_t fold = 1; fold <= MAX_FOLD && n >= (uint64_t)fold * MIN_PERIODS; fold++) {
            uint64_t lag = majority(p->by_id + p->first[id], n, fold);
            if (lag > 0 && lag * (n / fold) * 2 >= p->n && p->n / lag >= MIN_PERIODS)
                consider(p, id, fold, lag);
        }
    }
}

static void judge(const struct period *p, struct candidate *c)
{
    uint64_t equal = 0, windows = 0, fed = 0;
    for (uint64_t i = 0; i + c->lag < p->n; i++)
        equal += p->tokens[i].id == p->tokens[i + c->lag].id;
    c->match = (double)equal / (double)(p->n - c->lag);
    for (uint64_t i = 0; i + c->lag <= p->n; i += c->lag, windows++)
        fed += p->fed[i + c->lag] > p->fed[i];
    c->fed = fed * 10 >= windows * 8;
}

static const struct candidate *choose(struct period *p)
{
    const struct candidate *best = NULL;
    double most = 0;
    bool fed = false;
    for (uint32_t i = 0; i < p->n_candidates; i++) {
        struct candidate *c = &p->candidate[i];
        judge(p, c);
        most = MR_MAX(most, c->match);
        fed |= c->fed && c->match >= MIN_MATCH;
    }
    for (uint32_t i = 0; i < p->n_candidates; i++) {
        const struct candidate *c = &p->candidate[i];
        bool good = c->match >= MIN_MATCH && (fed ? c->fed : c->match >= most - 0.05);
        if (good && (!best || c->lag < best->lag))
            best = c;
    }
    return best;
}

/* The token that marks a step's begin: once in each, a copy to the device if there is one, else the
 * first. */
static struct candidate anchor(const struct period *p, const struct candidate *c)
{
    struct candidate best = *c;
    uint64_t best_at = UINT64_MAX;
    bool best_feeds = false;
    for (uint32_t id = 0; id < p->n_ids; id++) {
        uint64_t n = p->first[id + 1] - p->first[id], at = p->by_id[p->first[id]];
        uint64_t periods = p->n / c->lag;
        bool copy = feeds(&p->rec->ops[p->tokens[at].op]);
        if (n * 10 < periods * 8 || n * 10 > (periods + 1) * 12 ||
            majority(p->by_id + p->first[id], n, 1) != c->lag)
            continue;
        if (copy != best_feeds ? copy : at < best_at) {
            best.id = id;
            best.fold = 1;
            best_at = at;
            best_feeds = copy;
        }
    }
    return best;
}

static int mark(const struct period *p, const struct candidate *c, struct mr_steps *out)
{
    const uint64_t *at = p->by_id + p->first[c->id];
    uint64_t n_at = p->first[c->id + 1] - p->first[c->id], n = 0;
    uint64_t *mark_ns = mr_big_alloc("steps", n_at + 1, sizeof *mark_ns),
             *end_ns = mr_big_alloc("steps", n_at + 1, sizeof *end_ns);
    int rc = mark_ns && end_ns ? 0 : -ENOMEM;
    if (rc < 0)
        goto end;
    for (uint64_t i = 0; i < n_at; i += c->fold) {
        uint64_t start = p->rec->ops[p->tokens[at[i]].op].start_ns,
                 to = i + c->fold < n_at ? at[i + c->fold] : p->n;
        if (n > 0 && start <= mark_ns[n - 1])
            continue;
        mark_ns[n] = start;
        end_ns[n] = start;
        for (uint64_t k = at[i]; k < to; k++)
            end_ns[n] = MR_MAX(end_ns[n], p->rec->ops[p->tokens[k].op].end_ns);
        n++;
    }
    rc = mr_steps_mark(out, mark_ns, end_ns, n);
end:
    mr_big_free(mark_ns);
    mr_big_free(end_ns);
    return rc;
}

static int take_candidate(const struct period *p, const struct candidate *best, bool one_thread,
                          struct mr_steps *out)
{
    struct candidate c = anchor(p, best);
    const struct mr_rec_op *op = &p->rec->ops[p->tokens[p->by_id[p->first[c.id]]].op];
    int rc = mark(p, &c, out);
    if (rc < 0)
        return rc;
    out->confidence = 0.85 * best->match * (out->n >= 8 ? 1 : 0.8) * (one_thread ? 0.9 : 1);
    snprintf(out->how, sizeof out->how,
             "by the period of the device's work%s: %llu operations repeat (%.0f%% equal those "
             "one period later), a step begins with %s %.60s",
             one_thread ? " that one thread launches" : "", (unsigned long long)best->lag,
             100 * best->match, op->kind == MR_OP_KERNEL ? "kernel" : "a",
             op->kind == MR_OP_KERNEL ? p->rec->strings[op->name]
             : op->kind == MR_OP_SET  ? "memset"
                                      : mr_copy_kind_text(op->copy_kind));
    if (op->kind == MR_OP_COPY)
        strncat(out->how, " copy", sizeof out->how - strlen(out->how) - 1);
    return 0;
}

static int find(const struct mr_recording *rec, const uint32_t *ops, uint64_t n_ops,
                bool one_thread, struct mr_steps *out)
{
    struct period p = {.rec = rec, .n = n_ops};
    const struct candidate *best;
    if (n_ops < MIN_PERIODS)
        return 0;
    int rc = read_tokens(&p, ops);
    if (rc < 0)
        goto end;
    find_candidates(&p);
    best = choose(&p);
    if (best)
        rc = take_candidate(&p, best, one_thread, out);
end:
    mr_big_free(p.tokens);
    mr_big_free(p.by_id);
    mr_big_free(p.first);
    mr_big_free(p.fed);
    return rc;
}

/* What the driving thread launched, when that is enough of the device's time; the others' copies
 * may come at any time between. */
static uint64_t own_ops(const struct mr_recording *rec, const struct mr_place *place,
                        const uint32_t *ops, uint64_t n_ops, uint32_t *own)
{
    uint64_t n = 0, own_ns = 0, all_ns = 0;
    for (uint64_t i = 0; i < n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[ops[i]];
        all_ns += op->end_ns - op->start_ns;
        if (op->api >= rec->n_apis || rec->apis[op->api].thread != place->thread)
            continue;
        own_ns += op->end_ns - op->start_ns;
        own[n++] = ops[i];
    }
    return (double)own_ns >= MIN_OWN * (double)all_ns ? n : 0;
}

int mr_steps_period(const struct mr_recording *rec, const struct mr_place *place,
                    const uint32_t *ops, uint64_t n_ops, struct mr_steps *out)
{
    int rc = find(rec, ops, n_ops, false, out);
    if (rc || out->n > 0 || place->thread == MR_NONE)
        return rc;
    uint32_t *own = mr_big_alloc("a thread's work", n_ops + 1, sizeof *own);
    if (!own)
        return -ENOMEM;
    uint64_t n = own_ops(rec, place, ops, n_ops, own);
    if (n < n_ops) {
        enum mr_steps_method method = out->method;
        mr_steps_free(out); /* marks of no length leave an array without steps */
        out->method = method;
        rc = find(rec, own, n, true, out);
    }
    mr_big_free(own);
    return rc;
}
