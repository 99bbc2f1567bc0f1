/* Permits of workers and a memory ceiling that several loaders share. */
#include "loader/budget.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORKERS 512
#define HOLD_NS     1000000u /* a worker keeps its permit that long while others wait */

struct mr_budget {
    struct mr_process process;
    uint32_t workers;
    uint64_t max_memory;
    _Atomic uint32_t n_queued; /* written under lock */

    pthread_mutex_t lock; /* for all below */
    uint32_t n_working, n_shares;
    struct mr_permit *first, **last; /* the queue */
    struct mr_budget_share *shares;
    uint64_t bytes;
    bool destroyed; /* by the program: the last loader frees it */
};

void mr_budget_opts_fill(struct mr_budget_opts *opts, size_t size)
{
    struct mr_budget_opts full = {0};
    mr_opts_copy(opts, size, &full, sizeof full);
}

int mr_budget_create(const struct mr_budget_opts *opts, struct mr_budget **out)
{
    struct mr_budget_opts o;
    if (!out)
        return mr_error_null("mr_budget_create", "a place for the result");
    mr_budget_opts_init(&o);
    int rc = opts ? mr_opts_take("budget_opts", opts, &o, sizeof o) : 0;
    if (rc < 0)
        return rc;
    if (o.workers > MAX_WORKERS)
        return mr_error_set(MR_EOPTION, "budget: workers %u: expected 0..%d threads", o.workers,
                            MAX_WORKERS);
    struct mr_budget *budget = calloc(1, sizeof *budget);
    if (!budget)
        return mr_error_nomem("budget", sizeof *budget);
    mr_process_note(&budget->process);
    budget->workers = o.workers ? o.workers : (uint32_t)MR_MIN(mr_cpu_count(), MAX_WORKERS);
    budget->max_memory = o.max_memory;
    budget->last = &budget->first;
    pthread_mutex_init(&budget->lock, NULL);
    *out = budget;
    return 0;
}

static void free_budget(struct mr_budget *budget)
{
    pthread_mutex_destroy(&budget->lock);
    free(budget);
}

void mr_budget_destroy(struct mr_budget *budget)
{
    if (!budget || !mr_process_is(&budget->process)) /* a child: the lock may be held for ever */
        return;
    pthread_mutex_lock(&budget->lock);
    budget->destroyed = true;
    bool used = budget->n_shares > 0;
    pthread_mutex_unlock(&budget->lock);
    if (!used)
        free_budget(budget);
}

int mr_budget_query(struct mr_budget *budget, struct mr_budget_info *out)
{
    if (!budget)
        return mr_error_null("mr_budget_query", "a budget");
    int rc = mr_process_check(&budget->process, "this budget");
    if (rc < 0)
        return rc;
    struct mr_budget_info info = {.workers = budget->workers, .max_memory = budget->max_memory};
    pthread_mutex_lock(&budget->lock);
    info.working = budget->n_working;
    info.waiting = atomic_load(&budget->n_queued);
    info.loaders = budget->n_shares;
    info.bytes = budget->bytes;
    pthread_mutex_unlock(&budget->lock);
    return mr_info_give("budget_info", out, &info, sizeof info);
}

/* ---- shares ---- */

int mr_budget_join(struct mr_budget *budget, struct mr_budget_share *share, const char *name)
{
    if (!budget)
        return 0;
    int rc = mr_process_check(&budget->process, "this budget");
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&budget->lock);
    *share = (struct mr_budget_share){.budget = budget, .next = budget->shares, .name = name};
    budget->shares = share;
    budget->n_shares++;
    pthread_mutex_unlock(&budget->lock);
    return 0;
}

void mr_budget_leave(struct mr_budget_share *share)
{
    struct mr_budget *budget = share->budget;
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    struct mr_budget_share **at = &budget->shares;
    while (*at != share)
        at = &(*at)->next;
    *at = share->next;
    budget->bytes -= share->bytes + share->grown;
    bool unused = --budget->n_shares == 0 && budget->destroyed;
    pthread_mutex_unlock(&budget->lock);
    share->budget = NULL;
    if (unused)
        free_budget(budget);
}

uint32_t mr_budget_workers(const struct mr_budget_share *share, uint32_t own)
{
    return share->budget ? MR_MIN(own, share->budget->workers) : own;
}

/* [lock] Changes a part of a share, if the ceiling has space for it. */
static bool set_part(struct mr_budget *budget, uint64_t *part, uint64_t bytes)
{
    uint64_t sum;
    if (!mr_add(budget->bytes - *part, bytes, &sum) ||
        (bytes > *part && budget->max_memory > 0 && sum > budget->max_memory))
        return false;
    budget->bytes = sum;
    *part = bytes;
    return true;
}

bool mr_budget_reserve(struct mr_budget_share *share, uint64_t bytes)
{
    struct mr_budget *budget = share->budget;
    if (!budget)
        return true;
    pthread_mutex_lock(&budget->lock);
    bool fits = set_part(budget, &share->bytes, bytes);
    pthread_mutex_unlock(&budget->lock);
    return fits;
}

bool mr_budget_grow(struct mr_budget_share *share, uint64_t bytes)
{
    struct mr_budget *budget = share->budget;
    uint64_t sum;
    if (!budget)
        return true;
    pthread_mutex_lock(&budget->lock);
    bool fits = mr_add(share->grown, bytes, &sum) && set_part(budget, &share->grown, sum);
    pthread_mutex_unlock(&budget->lock);
    return fits;
}

void mr_budget_shrink(struct mr_budget_share *share, uint64_t bytes)
{
    struct mr_budget *budget = share->budget;
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    (void)set_part(budget, &share->grown, share->grown - bytes);
    pthread_mutex_unlock(&budget->lock);
}

uint64_t mr_budget_reserved(const struct mr_budget_share *share)
{
    return share->budget && share->budget->max_memory ? share->bytes : 0;
}

int mr_budget_over(struct mr_budget_share *share, uint64_t bytes, const char *parts)
{
    struct mr_budget *budget = share->budget;
    char others[512] = "";
    size_t at = 0;
    pthread_mutex_lock(&budget->lock);
    for (const struct mr_budget_share *s = budget->shares; s && at < sizeof others; s = s->next)
        if (s != share)
            at += (size_t)snprintf(others + at, sizeof others - at, "%s%.80s %llu",
                                   at ? ", " : "; open loaders have ", s->name,
                                   (unsigned long long)(s->bytes + s->grown));
    pthread_mutex_unlock(&budget->lock);
    return mr_error_set(MR_ELIMIT, "budget: max_memory %llu bytes: %.80s needs %llu: %s%s",
                        (unsigned long long)budget->max_memory, share->name,
                        (unsigned long long)bytes, parts, others);
}

/* ---- permits ---- */

void mr_permit_init(struct mr_permit *permit, struct mr_budget_share *share)
{
    permit->share = share;
    sem_init(&permit->bell, 0, 0); /* cannot fail with these arguments */
}

void mr_permit_destroy(struct mr_permit *permit)
{
    if (permit->share)
        sem_destroy(&permit->bell);
}

/* [lock] */
static void enqueue(struct mr_budget *budget, struct mr_permit *permit)
{
    permit->next = NULL;
    *budget->last = permit;
    budget->last = &permit->next;
    atomic_fetch_add(&budget->n_queued, 1);
}

/* [lock] Takes *at out of the queue and wakes its worker. */
static void wake(struct mr_budget *budget, struct mr_permit **at, bool has)
{
    struct mr_permit *permit = *at;
    *at = permit->next;
    if (budget->last == &permit->next)
        budget->last = at;
    atomic_fetch_sub(&budget->n_queued, 1);
    permit->has = has;
    sem_post(&permit->bell);
}

bool mr_permit_take(struct mr_permit *permit)
{
    struct mr_budget *budget = permit->share->budget;
    if (!budget)
        return true;
    pthread_mutex_lock(&budget->lock);
    bool stopped = permit->share->stopped, waits = !stopped && budget->n_working == budget->workers;
    if (waits)
        enqueue(budget, permit);
    permit->has = !stopped && !waits;
    budget->n_working += permit->has;
    pthread_mutex_unlock(&budget->lock);
    while (waits && sem_wait(&permit->bell) < 0) /* a signal was handled */
        ;
    permit->since_ns = mr_time_ns();
    return permit->has;
}

void mr_permit_return(struct mr_permit *permit)
{
    struct mr_budget *budget = permit->share->budget;
    if (!budget || !permit->has)
        return;
    permit->has = false;
    pthread_mutex_lock(&budget->lock);
    if (budget->first)
        wake(budget, &budget->first, true);
    else
        budget->n_working--;
    pthread_mutex_unlock(&budget->lock);
}

bool mr_permit_is_due(const struct mr_permit *permit, uint64_t now_ns)
{
    const struct mr_budget *budget = permit->share->budget;
    return budget && atomic_load_explicit(&budget->n_queued, memory_order_relaxed) > 0 &&
           now_ns - permit->since_ns > HOLD_NS;
}

void mr_budget_stop(struct mr_budget_share *share)
{
    struct mr_budget *budget = share->budget;
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    share->stopped = true;
    for (struct mr_permit **at = &budget->first; *at;) {
        if ((*at)->share == share)
            wake(budget, at, false);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&budget->lock);
}
