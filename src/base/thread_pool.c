/* A thread pool. Tasks are handed out by a counter. */
#include "base/thread_pool.h"

#include <stdio.h>

struct mr_thread_pool {
    pthread_mutex_t lock; /* only for sleeping: `turn` publishes what follows */
    pthread_cond_t work, done;
    atomic_ullong turn;    /* number of jobs so far */
    atomic_uint n_working; /* threads that have not finished the current job */
    bool stop;
    uint32_t looks;
    void (*fn)(void *user, uint64_t i, uint32_t who);
    void *user;
    uint64_t n;
    _Atomic uint64_t next; /* next task */
    atomic_uint n_named;
    uint32_t n_started;        /* without the caller */
    struct mr_process process; /* that has the threads: a forked child has none */
    pthread_t thread[];
};

static void take_tasks(struct mr_thread_pool *pool, uint32_t who)
{
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->n)
            return;
        pool->fn(pool->user, i, who);
    }
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Small jobs follow each other closely: spinning briefly is much cheaper than waking up. */
static bool look_for_turn(struct mr_thread_pool *pool, unsigned long long seen)
{
    for (uint32_t i = 0; i < pool->looks; i++) {
        if (atomic_load_explicit(&pool->turn, memory_order_acquire) != seen)
            return true;
        pause_briefly();
    }
    return false;
}

static bool all_back(struct mr_thread_pool *pool)
{
    for (uint32_t i = 0; i < MR_THREAD_POOL_LOOKS; i++) {
        if (atomic_load_explicit(&pool->n_working, memory_order_acquire) == 0)
            return true;
        pause_briefly();
    }
    return false;
}

static void *work(void *arg)
{
    struct mr_thread_pool *pool = arg;
    uint32_t who = atomic_fetch_add(&pool->n_named, 1) + 1;
    unsigned long long seen = 0;
    for (;;) {
        if (!look_for_turn(pool, seen)) {
            pthread_mutex_lock(&pool->lock);
            while (atomic_load(&pool->turn) == seen)
                pthread_cond_wait(&pool->work, &pool->lock);
            pthread_mutex_unlock(&pool->lock);
        }
        seen = atomic_load_explicit(&pool->turn, memory_order_acquire);
        if (pool->stop)
            return NULL;
        take_tasks(pool, who);
        if (atomic_fetch_sub_explicit(&pool->n_working, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

/* Publishes the job: what is not atomic is written before this and read after it. */
static void next_turn(struct mr_thread_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->turn, 1, memory_order_release);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

int mr_thread_pool_create(uint32_t n, const char *name, uint32_t looks, struct mr_thread_pool **out)
{
    *out = NULL;
    if (n < 2)
        return 0;
    size_t bytes = sizeof(struct mr_thread_pool) + (n - 1) * sizeof(pthread_t);
    struct mr_thread_pool *pool = calloc(1, bytes);
    if (!pool)
        return mr_error_nomem(name, bytes);
    pool->looks = looks;
    mr_process_note(&pool->process);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    while (pool->n_started < n - 1) {
        char text[16];
        snprintf(text, sizeof text, "%s %u", name, pool->n_started + 1);
        int rc = mr_thread_start(&pool->thread[pool->n_started], text, work, pool);
        if (rc < 0) {
            mr_thread_pool_destroy(pool);
            return rc;
        }
        pool->n_started++;
    }
    *out = pool;
    return 0;
}

void mr_thread_pool_destroy(struct mr_thread_pool *pool)
{
    if (!pool)
        return;
    if (!mr_process_is(&pool->process)) {
        free(pool);
        return;
    }
    pool->stop = true;
    next_turn(pool);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void mr_thread_pool_run(struct mr_thread_pool *pool, /* NULL: the caller works alone */
                        void (*fn)(void *user, uint64_t i, uint32_t who), void *user, uint64_t n)
{
    /* Waking threads costs more than a small job. */
    if (!pool || n < 2 || !mr_process_is(&pool->process)) {
        for (uint64_t i = 0; i < n; i++)
            fn(user, i, 0);
        return;
    }
    pool->fn = fn;
    pool->user = user;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->n_working, pool->n_started, memory_order_relaxed);
    next_turn(pool);
    take_tasks(pool, 0);
    if (all_back(pool))
        return;
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->n_working) > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
