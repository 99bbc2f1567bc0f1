/* Batches before a state's place that a resumed run makes again. */
#include "loader/unfinished.h"
#include "loader/engine.h"

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
