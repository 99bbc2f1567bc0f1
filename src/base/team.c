/* Threads that wait for short jobs. Tasks are handed out by a counter. */
#include "base/team.h"

#include <stdio.h>

struct mr_team {
    pthread_mutex_t lock; /* for sleeping alone; what follows goes over with `turn` and comes back with `n_working` */
    pthread_cond_t work, done;
    atomic_ullong turn;    /* how many jobs there were */
    atomic_uint n_working; /* threads that have not come back from this one */
    bool stop;
    uint32_t looks;
    void (*fn)(void *user, uint64_t i, uint32_t who);
    void *user;
    uint64_t n;
    _Atomic uint64_t next; /* task */
    atomic_uint n_named;
    uint32_t n_started; /* beside the caller */
    pthread_t thread[];
};

static void take_tasks(struct mr_team *team, uint32_t who)
{
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed);
        if (i >= team->n)
            return;
        team->fn(team->user, i, who);
    }
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Small jobs come one soon after the other: looking for a while is much cheaper than being woken. */
static bool look_for_turn(struct mr_team *team, unsigned long long seen)
{
    for (uint32_t i = 0; i < team->looks; i++) {
        if (atomic_load_explicit(&team->turn, memory_order_acquire) != seen)
            return true;
        pause_briefly();
    }
    return false;
}

static bool all_back(struct mr_team *team)
{
    for (uint32_t i = 0; i < MR_TEAM_LOOKS; i++) {
        if (atomic_load_explicit(&team->n_working, memory_order_acquire) == 0)
            return true;
        pause_briefly();
    }
    return false;
}

static void *work(void *arg)
{
    struct mr_team *team = arg;
    uint32_t who = atomic_fetch_add(&team->n_named, 1) + 1;
    unsigned long long seen = 0;
    for (;;) {
        if (!look_for_turn(team, seen)) {
            pthread_mutex_lock(&team->lock);
            while (atomic_load(&team->turn) == seen)
                pthread_cond_wait(&team->work, &team->lock);
            pthread_mutex_unlock(&team->lock);
        }
        seen = atomic_load_explicit(&team->turn, memory_order_acquire);
        if (team->stop)
            return NULL;
        take_tasks(team, who);
        if (atomic_fetch_sub_explicit(&team->n_working, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&team->lock);
            pthread_cond_signal(&team->done);
            pthread_mutex_unlock(&team->lock);
        }
    }
}

/* What is not atomic is written before this and read after it. */
static void next_turn(struct mr_team *team)
{
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add_explicit(&team->turn, 1, memory_order_release);
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
}

int mr_team_create(uint32_t n_threads, const char *name, uint32_t looks, struct mr_team **out)
{
    *out = NULL;
    if (n_threads < 2)
        return 0;
    size_t bytes = sizeof(struct mr_team) + (n_threads - 1) * sizeof(pthread_t);
    struct mr_team *team = calloc(1, bytes);
    int rc = 0;
    if (!team)
        return mr_error_nomem(name, bytes);
    team->looks = looks;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    while (rc == 0 && team->n_started < n_threads - 1) {
        char text[16];
        snprintf(text, sizeof text, "%s %u", name, team->n_started + 1);
        rc = mr_thread_start(&team->thread[team->n_started], text, work, team);
        team->n_started += rc == 0;
    }
    if (rc) {
        mr_team_destroy(team);
        return rc;
    }
    *out = team;
    return 0;
}

void mr_team_destroy(struct mr_team *team)
{
    if (!team)
        return;
    team->stop = true;
    next_turn(team);
    for (uint32_t i = 0; i < team->n_started; i++)
        pthread_join(team->thread[i], NULL);
    pthread_cond_destroy(&team->work);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

void mr_team_run(struct mr_team *team, void (*fn)(void *user, uint64_t i, uint32_t who), void *user, uint64_t n)
{
    if (!team || n < 2) { /* waking costs more than a small part */
        for (uint64_t i = 0; i < n; i++)
            fn(user, i, 0);
        return;
    }
    team->fn = fn;
    team->user = user;
    team->n = n;
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_store_explicit(&team->n_working, team->n_started, memory_order_relaxed);
    next_turn(team);
    take_tasks(team, 0);
    if (all_back(team))
        return;
    pthread_mutex_lock(&team->lock);
    while (atomic_load(&team->n_working) > 0)
        pthread_cond_wait(&team->done, &team->lock);
    pthread_mutex_unlock(&team->lock);
}
