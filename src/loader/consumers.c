/* Whose turn it is to wait for the next batch. */
#include "loader/engine.h"

int mr_consumers_init(struct mr_consumers *all)
{
    pthread_mutex_init(&all->lock, NULL);
    return mr_cond_init(&all->over);
}

void mr_consumers_destroy(struct mr_consumers *all)
{
    pthread_cond_destroy(&all->over);
    pthread_mutex_destroy(&all->lock);
}

/* Whoever is woken and does not take the turn found it taken: that thread will wake another one. */
bool mr_consumers_begin(struct mr_consumers *all, uint64_t until_ns)
{
    pthread_mutex_lock(&all->lock);
    all->n_waiting++;
    while (all->taken && until_ns > 0)
        if (until_ns == MR_FOREVER)
            pthread_cond_wait(&all->over, &all->lock);
        else if (!mr_cond_wait_until(&all->over, &all->lock, until_ns))
            break;
    all->n_waiting--;
    return !all->taken;
}

void mr_consumers_pause(struct mr_consumers *all)
{
    all->taken = true;
    pthread_mutex_unlock(&all->lock);
}

void mr_consumers_resume(struct mr_consumers *all)
{
    pthread_mutex_lock(&all->lock);
    all->taken = false;
}

void mr_consumers_end(struct mr_consumers *all)
{
    if (all->n_waiting > 0 && !all->taken)
        pthread_cond_signal(&all->over);
    pthread_mutex_unlock(&all->lock);
}

/* Queries take a const loader: the lock is no part of what they promise not to change. */
static pthread_mutex_t *lock_of(const struct mr_loader *ld)
{
    return (pthread_mutex_t *)&ld->consumers.lock;
}

void mr_consumers_lock(const struct mr_loader *ld)
{
    if (mr_process_is(&ld->gate.process))
        pthread_mutex_lock(lock_of(ld));
}

void mr_consumers_unlock(const struct mr_loader *ld)
{
    if (mr_process_is(&ld->gate.process))
        pthread_mutex_unlock(lock_of(ld));
}
