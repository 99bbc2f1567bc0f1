/* Threads for blocking reads, and lists of finished reads: see read_pool.h. */
#include "storage/read_pool.h"

/* ---- done reads ---- */

int mr_finished_open(struct mr_finished *done)
{
    int rc = mr_cond_init(&done->some);
    if (rc < 0)
        return rc;
    pthread_mutex_init(&done->lock, NULL);
    return 0;
}

void mr_finished_close(struct mr_finished *done)
{
    pthread_mutex_lock(&done->lock); /* the thread that put the last read may still hold it */
    pthread_mutex_unlock(&done->lock);
    pthread_cond_destroy(&done->some);
    pthread_mutex_destroy(&done->lock);
}

/* Signals under the lock: `done` may be freed as soon as its reader has the read. */
void mr_finished_put(struct mr_finished *done, struct mr_read *read)
{
    pthread_mutex_lock(&done->lock);
    mr_read_append(&done->reads, read);
    pthread_cond_signal(&done->some);
    pthread_mutex_unlock(&done->lock);
}

uint32_t mr_finished_reap(struct mr_finished *done, struct mr_read **out, uint32_t cap,
                          uint64_t until_ns)
{
    pthread_mutex_lock(&done->lock);
    while (until_ns && !done->reads.first && mr_cond_wait_until(&done->some, &done->lock, until_ns))
        ;
    uint32_t n = mr_read_take(&done->reads, out, cap);
    pthread_mutex_unlock(&done->lock);
    return n;
}

/* ---- the pool ---- */

int mr_read_pool_open(struct mr_read_pool *pool, uint32_t depth)
{
    pool->queue = mr_queue_create(depth);
    if (!pool->queue)
        return mr_error_nomem("read queue", depth * sizeof(void *));
    pool->max_threads = MR_MIN(depth, MR_POOL_THREADS);
    pthread_mutex_init(&pool->lock, NULL);
    return 0;
}

void mr_read_pool_close(struct mr_read_pool *pool)
{
    mr_queue_close(pool->queue);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->thread[i], NULL);
    mr_queue_destroy(pool->queue);
    pthread_mutex_destroy(&pool->lock);
}

static void *thread_main(void *arg)
{
    struct mr_read_pool *pool = arg;
    void *item;
    while (mr_queue_pop(pool->queue, &item)) {
        pool->run(pool->user, item);
        atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_relaxed);
        pool->end(item);
    }
    return NULL;
}

/* Starts another thread if there are more reads than threads. false: there are no threads. */
static bool grow(struct mr_read_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pthread_t *next = &pool->thread[pool->n_threads];
    uint32_t pending = atomic_load_explicit(&pool->pending, memory_order_relaxed);
    if (pool->n_threads < MR_MIN(pending, pool->max_threads) &&
        !mr_thread_start(next, pool->name, thread_main, pool))
        pool->n_threads++;
    bool some = pool->n_threads > 0;
    pthread_mutex_unlock(&pool->lock);
    return some;
}

bool mr_read_pool_start(struct mr_read_pool *pool, struct mr_read *read)
{
    atomic_fetch_add_explicit(&pool->pending, 1, memory_order_relaxed);
    if (grow(pool) && mr_queue_push(pool->queue, read))
        return false;
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_relaxed);
    pool->run(pool->user, read);
    return true;
}
