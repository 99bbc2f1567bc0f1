/* Workers and batches ahead, as they change. */
#include "loader/knobs.h"
#include "loader/engine.h"

#define WORKERS_A_PROCESSOR 4 /* that may help if samples wait for something */
#define MOST_TUNED_WORKERS  64
#define SPARE_BYTES         (256ull << 20) /* of slots for ranks whose batches vary more */
#define LATE_NS             100000u        /* less is no late batch but a wake-up */

void mr_knobs_init(struct mr_knobs *knobs)
{
    pthread_mutex_init(&knobs->lock, NULL);
    pthread_cond_init(&knobs->changed, NULL);
}

void mr_knobs_destroy(struct mr_knobs *knobs)
{
    pthread_cond_destroy(&knobs->changed);
    pthread_mutex_destroy(&knobs->lock);
}

uint32_t mr_knobs_workers(const struct mr_loader *ld)
{
    return atomic_load_explicit(&ld->workers.n_active, memory_order_relaxed);
}

uint32_t mr_knobs_share(const struct mr_loader *ld, uint64_t of)
{
    return (uint32_t)MR_MAX(of / mr_knobs_workers(ld), 1);
}

uint32_t mr_knobs_most_workers(struct mr_loader *ld, uint32_t first)
{
    const struct mr_loader_opts *o = &ld->opts;
    uint32_t most = MR_MAX(o->max_workers, first);
    if (o->tune && o->workers == 0 && o->max_workers == 0) {
        uint64_t wanted = WORKERS_A_PROCESSOR * (uint64_t)mr_cpu_count();
        most = MR_MAX(most, (uint32_t)MR_MIN(wanted, MOST_TUNED_WORKERS));
    }
    if (o->workers == 0 && o->max_workers > 0)
        first = MR_MIN(first, o->max_workers);
    atomic_store(&ld->workers.n_active, first);
    return o->workers == 0 && o->max_workers > 0 ? o->max_workers : most;
}

void mr_knobs_spare_one(struct mr_loader *ld)
{
    ld->workers.n--;
    atomic_store(&ld->workers.n_active, MR_MAX(mr_knobs_workers(ld) - 1, 1));
}

uint32_t mr_knobs_most_prefetch(struct mr_loader *ld, uint32_t first)
{
    const struct mr_loader_opts *o = &ld->opts;
    uint32_t most = MR_MAX(o->max_prefetch, first);
    if (o->max_prefetch > 0 && o->prefetch == 0)
        most = o->max_prefetch;
    else if (o->tune && o->prefetch == 0)
        most = 2 * first;
    else if (o->world > 1 && o->prefetch == 0 && o->in_order)
        most += (uint32_t)MR_MIN(first, SPARE_BYTES / ld->layout.bound_bytes);
    ld->knobs.grows = o->world > 1 && o->prefetch == 0 && o->in_order && !o->tune;
    ld->knobs.first_prefetch = MR_MIN(first, most);
    return most;
}

/* One more than are prepared: the one that the program has. */
uint32_t mr_knobs_first_slots(const struct mr_loader *ld)
{
    uint32_t n = ld->ring.n_slots;
    return ld->opts.in_order ? MR_MIN(ld->knobs.first_prefetch + 1, n) : n;
}

void mr_knobs_start(struct mr_loader *ld)
{
    atomic_store(&ld->ring.ahead, MR_MIN(ld->knobs.first_prefetch, ld->ring.n_slots));
    mr_ring_advance(&ld->ring, 0);
}

void mr_knobs_set(struct mr_loader *ld, uint32_t workers, uint32_t prefetch)
{
    pthread_mutex_lock(&ld->knobs.lock);
    atomic_store(&ld->workers.n_active, workers);
    pthread_cond_broadcast(&ld->knobs.changed);
    pthread_mutex_unlock(&ld->knobs.lock);
    atomic_store(&ld->ring.ahead, prefetch);
    mr_ring_advance(&ld->ring, ld->handout.next_batch);
    mr_ring_wake_workers(&ld->ring);
}

bool mr_knobs_taken(struct mr_loader *ld)
{
    if (atomic_load_explicit(&ld->ring.ahead, memory_order_relaxed) == ld->ring.n_slots)
        return false;
    mr_ring_advance(&ld->ring, ld->handout.next_batch);
    return true;
}

/* How many are needed follows from the spread of the times that batches take, which is seen here: a
 * consumer that waits although all batches were ready not long ago waits for one that took much
 * longer than others, or for several in a row. One that is always faster than the loader never lets
 * all get ready, and more would not help. */
void mr_knobs_waited(struct mr_loader *ld, uint64_t waited_ns)
{
    struct mr_knobs *k = &ld->knobs;
    uint32_t ahead = atomic_load_explicit(&ld->ring.ahead, memory_order_relaxed);
    if (!k->grows || ahead == ld->ring.n_slots)
        return;
    bool late = k->was_full && waited_ns >= LATE_NS; /* was: before this wait */
    k->was_full = !late && (k->was_full ||
                            mr_counted(&ld->ring.n_ready) + 1 >= ld->handout.next_batch + ahead);
    if (!late)
        return;
    uint32_t more = MR_MIN(ahead + MR_MAX(ahead / 4, 1), ld->ring.n_slots);
    mr_log(MR_LOG_DEBUG, "a batch was late after %u had been ready: %u are prepared ahead", ahead,
           more);
    mr_knobs_set(ld, mr_knobs_workers(ld), more);
}

bool mr_knobs_park(struct mr_loader *ld, uint32_t id)
{
    pthread_mutex_lock(&ld->knobs.lock);
    while (id >= mr_knobs_workers(ld) && !atomic_load(&ld->ring.stop))
        pthread_cond_wait(&ld->knobs.changed, &ld->knobs.lock);
    pthread_mutex_unlock(&ld->knobs.lock);
    return !atomic_load(&ld->ring.stop);
}

void mr_knobs_stop(struct mr_loader *ld)
{
    pthread_mutex_lock(&ld->knobs.lock);
    pthread_cond_broadcast(&ld->knobs.changed);
    pthread_mutex_unlock(&ld->knobs.lock);
}
