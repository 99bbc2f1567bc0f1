/* The host backend's threads and scratch. */
#include "nn/cpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct worker {
    struct mr_nn_backend *b;
    uint32_t number;
};

static void take_tasks(struct mr_nn_backend *b, const struct mr_nn_cpu_task *job, uint32_t who)
{
    for (;;) {
        uint32_t task = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
        if (task >= job->n)
            return;
        job->run(job->arg, task, b->room[who]);
    }
}

/* Steps of small nets are many short jobs: looking for a while is much cheaper than being woken. */
static bool spin_until_changed(atomic_ullong *word, unsigned long long old)
{
    for (int i = 0; i < 4000; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return false;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct mr_nn_backend *b = w->b;
    uint32_t number = w->number;
    unsigned long long seen = 0;
    free(w);
    for (;;) {
        if (!spin_until_changed(&b->turn, seen)) {
            pthread_mutex_lock(&b->lock);
            while (atomic_load(&b->turn) == seen)
                pthread_cond_wait(&b->work, &b->lock);
            pthread_mutex_unlock(&b->lock);
        }
        seen = atomic_load_explicit(&b->turn, memory_order_acquire);
        if (b->stop)
            return NULL;
        take_tasks(b, &b->job, number);
        if (atomic_fetch_sub_explicit(&b->n_working, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&b->lock);
            pthread_cond_signal(&b->done);
            pthread_mutex_unlock(&b->lock);
        }
    }
}

/* `job`, `next` and `stop` are written before this and read after it. */
static void next_turn(struct mr_nn_backend *b)
{
    pthread_mutex_lock(&b->lock);
    atomic_fetch_add_explicit(&b->turn, 1, memory_order_release);
    pthread_cond_broadcast(&b->work);
    pthread_mutex_unlock(&b->lock);
}

static bool all_back(struct mr_nn_backend *b)
{
    for (int i = 0; i < 4000 && atomic_load_explicit(&b->n_working, memory_order_acquire); i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return atomic_load_explicit(&b->n_working, memory_order_acquire) == 0;
}

static void run_all(struct mr_nn_backend *b, uint32_t n, void (*run)(void *arg, uint32_t task, void *room), void *arg)
{
    if (n <= 1 || b->n_started == 0) {
        for (uint32_t i = 0; i < n; i++)
            run(arg, i, b->room[0]);
        return;
    }
    b->job = (struct mr_nn_cpu_task){.run = run, .arg = arg, .n = n};
    atomic_store_explicit(&b->next, 0, memory_order_relaxed);
    atomic_store_explicit(&b->n_working, b->n_started, memory_order_relaxed);
    next_turn(b);
    take_tasks(b, &b->job, 0);
    if (all_back(b))
        return;
    pthread_mutex_lock(&b->lock);
    while (atomic_load(&b->n_working) > 0)
        pthread_cond_wait(&b->done, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void mr_nn_cpu_run(struct mr_nn_backend *b, uint32_t n, void (*run)(void *arg, uint32_t task, void *room), void *arg)
{
    mr_nn_blas_begin();
    run_all(b, n, run, arg);
    mr_nn_blas_end();
}

static int grow(void **p, uint64_t *have, uint64_t bytes)
{
    if (*have >= bytes)
        return 0;
    free(*p);
    *have = 0;
    *p = aligned_alloc(64, mr_round_up(bytes, 64));
    if (!*p)
        return mr_error_nomem("net", bytes);
    *have = bytes;
    return 0;
}

int mr_nn_cpu_room(struct mr_nn_backend *b, uint64_t bytes)
{
    uint64_t all = UINT64_MAX;
    for (uint32_t i = 0; i < b->n_threads; i++) {
        uint64_t have = b->room_bytes;
        int rc = grow(&b->room[i], &have, bytes);
        if (rc) {
            b->room_bytes = 0;
            return rc;
        }
        all = MR_MIN(all, have);
    }
    b->room_bytes = all;
    return 0;
}

int mr_nn_cpu_partial(struct mr_nn_backend *b, uint64_t bytes)
{
    return grow(&b->partial, &b->partial_bytes, bytes);
}

static int start(struct mr_nn_backend *b, uint32_t number)
{
    struct worker *w = malloc(sizeof *w);
    if (!w)
        return mr_error_nomem("net", sizeof *w);
    *w = (struct worker){.b = b, .number = number};
    char name[16];
    snprintf(name, sizeof name, "net %u", number);
    int rc = mr_thread_start(&b->thread[number], name, work, w);
    if (rc)
        free(w);
    else
        b->n_started++;
    return rc;
}

int mr_nn_cpu_open(const struct mr_net_opts *opts, struct mr_nn_backend **out)
{
    struct mr_nn_backend *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem("net", sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->work, NULL);
    pthread_cond_init(&b->done, NULL);
    b->totals.first_not_finite = UINT64_MAX;
    uint32_t n = opts->threads ? opts->threads : (uint32_t)mr_cpu_count();
    b->n_threads = MR_MIN(MR_MAX(n, 1), MR_NN_MAX_THREADS);
    int rc = 0;
    for (uint32_t i = 1; !rc && i < b->n_threads; i++)
        rc = start(b, i);
    if (rc) {
        mr_nn_cpu_close(b);
        return rc;
    }
    *out = b;
    return 0;
}

void mr_nn_cpu_close(struct mr_nn_backend *b)
{
    b->stop = true;
    next_turn(b);
    for (uint32_t i = 1; i <= b->n_started; i++)
        pthread_join(b->thread[i], NULL);
    for (uint32_t i = 0; i < b->n_threads; i++)
        free(b->room[i]);
    free(b->partial);
    pthread_cond_destroy(&b->work);
    pthread_cond_destroy(&b->done);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
