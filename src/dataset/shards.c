/* Shards are opened with a few threads. */
#include "dataset/shards.h"

#include <millrace/system.h>

#define MAX_THREADS 8

struct each {
    uint64_t n;
    int (*step)(void *user, uint64_t i);
    void *user;
    _Atomic uint64_t next;
    _Atomic bool failed;
    pthread_mutex_t lock; /* guards what follows; no other lock is taken inside */
    uint64_t failed_at;
    struct mr_error_kept error;
};

/* If several fail, the first in order is reported. */
static void *work(void *arg)
{
    struct each *e = arg;
    mr_interruptible(1);
    /* checked before one is claimed: every claimed one is called */
    while (!atomic_load(&e->failed)) {
        uint64_t i = atomic_fetch_add(&e->next, 1);
        if (i >= e->n)
            break;
        int rc = e->step(e->user, i);
        if (rc >= 0)
            continue;
        atomic_store(&e->failed, true);
        pthread_mutex_lock(&e->lock);
        if (i < e->failed_at) {
            e->failed_at = i;
            mr_error_keep(rc, &e->error);
        }
        pthread_mutex_unlock(&e->lock);
    }
    mr_interruptible(0);
    return NULL;
}

int mr_each_shard(uint64_t n, const char *thread, int (*step)(void *user, uint64_t i), void *user)
{
    struct each e = {.n = n, .step = step, .user = user, .failed_at = UINT64_MAX};
    pthread_t threads[MAX_THREADS];
    uint64_t want = MR_MIN(n, MAX_THREADS), started = 0;
    pthread_mutex_init(&e.lock, NULL);
    while (started + 1 < want && mr_thread_start(&threads[started], thread, work, &e) == 0)
        started++; /* running with fewer threads is slower, but not an error */
    work(&e);
    for (uint64_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&e.lock);
    return atomic_load(&e.failed) ? mr_error_put(&e.error) : 0;
}
