/* The threads that do a step on the host. They sleep between steps; work is handed out by a counter. */
#include "optim/optim.h"

struct mr_optim_team {
    pthread_mutex_t lock; /* guards round, running, stop and what a round does */
    pthread_cond_t work, done;
    uint64_t round;
    uint32_t running; /* threads that have not ended this round */
    bool stop;
    void (*fn)(void *user, uint64_t i);
    void *user;
    uint64_t n;
    _Atomic uint64_t next;
    uint32_t n_threads; /* beside the caller */
    pthread_t thread[];
};

static void take_all(struct mr_optim_team *team)
{
    for (;;) {
        uint64_t i = atomic_fetch_add(&team->next, 1);
        if (i >= team->n)
            return;
        team->fn(team->user, i);
    }
}

static void *work(void *arg)
{
    struct mr_optim_team *team = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->round == seen && !team->stop)
            pthread_cond_wait(&team->work, &team->lock);
        if (team->stop)
            break;
        seen = team->round;
        pthread_mutex_unlock(&team->lock);
        take_all(team);
        pthread_mutex_lock(&team->lock);
        if (--team->running == 0)
            pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

int mr_optim_team_create(uint32_t n_threads, struct mr_optim_team **out)
{
    size_t bytes = sizeof(struct mr_optim_team) + n_threads * sizeof(pthread_t);
    struct mr_optim_team *team = calloc(1, bytes);
    int rc = 0;
    if (!team)
        return mr_error_nomem("optimizer's threads", bytes);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    for (; rc == 0 && team->n_threads + 1 < n_threads; team->n_threads += rc == 0)
        rc = mr_thread_start(&team->thread[team->n_threads], "mr-optim", work, team);
    if (rc < 0) {
        mr_optim_team_destroy(team);
        return rc;
    }
    *out = team;
    return 0;
}

void mr_optim_team_destroy(struct mr_optim_team *team)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->lock);
    team->stop = true;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    for (uint32_t i = 0; i < team->n_threads; i++)
        pthread_join(team->thread[i], NULL);
    pthread_cond_destroy(&team->work);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

void mr_optim_team_run(struct mr_optim_team *team, void (*fn)(void *user, uint64_t i), void *user, uint64_t n)
{
    if (!team || n < 2) { /* waking costs more than a small part */
        for (uint64_t i = 0; i < n; i++)
            fn(user, i);
        return;
    }
    pthread_mutex_lock(&team->lock);
    team->fn = fn;
    team->user = user;
    team->n = n;
    atomic_store(&team->next, 0);
    team->running = team->n_threads;
    team->round++;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    take_all(team);
    pthread_mutex_lock(&team->lock);
    while (team->running > 0)
        pthread_cond_wait(&team->done, &team->lock);
    pthread_mutex_unlock(&team->lock);
}
