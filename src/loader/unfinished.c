/* Batches before a state's place that a resumed run makes again. */
#include "loader/unfinished.h"
#include "loader/engine.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>

static void add(struct mr_standing *s, uint64_t t)
{
    if (s->n < s->n_reserved)
        s->unfinished[s->n++] = t;
}

/* [consumers.lock] The oldest batch that is held is the next one of a resumed run. */
static void before_held(const struct mr_loader *ld, struct mr_standing *s)
{
    for (const struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all) {
        uint64_t t = atomic_load(&slot->ready_for);
        if (!mr_slot_holds(slot, t) || t >= s->next)
            continue;
        s->next = t;
        s->bad = slot->bad_before;
        s->epoch = slot->from_epoch;
        s->position = slot->from_position;
    }
}

/* [consumers.lock, ring.lock] */
static void add_slots(const struct mr_loader *ld, bool released, struct mr_standing *s)
{
    uint64_t end = MR_MAX(s->next, ld->plan.n_again);
    for (const struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all) {
        uint64_t t = atomic_load(&slot->ready_for);
        if (slot->unfinished < end)
            add(s, slot->unfinished);
        else if (slot->unfinished == UINT64_MAX && released && mr_slot_holds(slot, t)) {
            add(s, t);
            s->bad -= slot->n_bad;
        }
    }
}

/* A forked child has no other threads, and a worker may have held the lock. */
static void add_all(const struct mr_loader *ld, bool released, struct mr_standing *s)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&ld->ring.lock;
    bool locks = mr_process_is(&ld->gate.process);
    if (locks)
        pthread_mutex_lock(lock);
    add_slots(ld, released, s);
    uint64_t next = atomic_load(&ld->opening.next);
    if (locks)
        pthread_mutex_unlock(lock);
    for (uint64_t t = next; t < ld->plan.n_again; t++)
        add(s, t);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* [consumers.lock] */
static int query(const struct mr_loader *ld, bool released, struct mr_standing *s)
{
    *s = (struct mr_standing){.next = ld->handout.frontier,
                              .bad = ld->quarantine.n_bad,
                              .epoch = ld->handout.after_epoch,
                              .position = ld->handout.after_position};
    bool in_order = ld->opts.in_order;
    if (in_order && released)
        before_held(ld, s);
    if (in_order && s->next >= ld->plan.n_again)
        return 0;
    s->n_reserved = ld->plan.n_again + (in_order ? 0 : atomic_load(&ld->ring.n_all));
    s->unfinished = calloc(s->n_reserved, sizeof *s->unfinished);
    if (!s->unfinished)
        return mr_error_nomem("state", s->n_reserved * sizeof *s->unfinished);
    if (!in_order)
        add_all(ld, released, s);
    for (uint64_t t = s->next; in_order && t < ld->plan.n_again; t++)
        add(s, t);
    s->next = MR_MAX(s->next, ld->plan.n_again);
    qsort(s->unfinished, s->n, sizeof *s->unfinished, by_number);
    return 0;
}

int mr_standing_query(const struct mr_loader *ld, bool released, struct mr_standing *out)
{
    mr_consumers_lock(ld);
    int rc = query(ld, released, out);
    mr_consumers_unlock(ld);
    return rc;
}

/* ---- reading ---- */

/* UINT64_MAX: it is none. */
static uint64_t whole(const cJSON *item)
{
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return v >= 0 && v < 0x1p53 && floor(v) == v ? (uint64_t)v : UINT64_MAX;
}

/* Which batches they are depends on these. */
static int check_same(const struct mr_loader *ld, const cJSON *root)
{
    const struct {
        const char *name;
        uint64_t have;
    } number[] = {
        {"batch_size", ld->opts.batch_size}, {"world", ld->opts.world}, {"rank", ld->opts.rank}};
    for (size_t i = 0; i < MR_COUNT(number); i++) {
        uint64_t there = whole(cJSON_GetObjectItemCaseSensitive(root, number[i].name));
        if (there == UINT64_MAX)
            return mr_error_set(MR_ESTATE, "state: \"%s\" is missing or not a whole number",
                                number[i].name);
        if (there != number[i].have)
            return mr_error_set(MR_ESTATE,
                                "state: it lists unfinished batches of a run with %s %" PRIu64
                                ", this run has %" PRIu64 ": resume with the same",
                                number[i].name, there, number[i].have);
    }
    return 0;
}

static int read_batch(const struct mr_loader *ld, const cJSON *item, const struct mr_state *state,
                      struct mr_plan_again *out)
{
    uint64_t epoch = UINT64_MAX, position = UINT64_MAX;
    if (cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2) {
        epoch = whole(item->child);
        position = whole(item->child->next);
    }
    uint64_t end = epoch == state->epoch ? state->position : mr_sampler_length(ld->sampler);
    if (epoch > state->epoch || position >= end)
        return mr_error_set(MR_ESTATE, "state: an unfinished batch is not [epoch, position] before "
                                       "the state's own epoch and position");
    *out = (struct mr_plan_again){.epoch = epoch, .shard.start = position};
    return 0;
}

int mr_unfinished_read(const struct mr_loader *ld, const cJSON *root, struct mr_state *state)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "unfinished"), *item;
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n == 0)
        return 0;
    if (ld->ds->ops->iterable || ld->sampler->max_batch > 0)
        return mr_error_set(MR_ESTATE, "state: it lists unfinished batches, which are not those of "
                                       "a batch sampler or an iterable data set");
    int rc = check_same(ld, root);
    if (rc < 0)
        return rc;
    struct mr_plan_again *again = calloc((size_t)n, sizeof *again);
    if (!again)
        return mr_error_nomem("state", (uint64_t)n * sizeof *again);
    cJSON_ArrayForEach(item, list)
    {
        rc = read_batch(ld, item, state, &again[state->n_again++]);
        if (rc < 0)
            goto fail;
    }
    rc = mr_plan_sort_again(again, state->n_again, ld->opts.batch_size * ld->opts.world);
    if (rc < 0)
        goto fail;
    state->again = again;
    return 0;
fail:
    state->n_again = 0;
    free(again);
    return rc;
}
