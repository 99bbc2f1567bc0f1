/* A pool's map of bench processes: the same work for each item, by this thread, by threads that
 * share a counter, by processes that are sent messages. */
#include "bench/bench.h"
#include "bench/processes.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_WORKERS = 512, AHEAD = 2 /* messages that a worker has */ };

/* A chunk of items, and behind it their results: 0 items end a worker. */
struct message {
    uint64_t first, n;
    uint64_t item[PROCESSES_MAX_CHUNK]; /* or its result */
};

struct map {
    enum processes_map way;
    uint64_t n, chunk, rounds;
    uint32_t workers;
    uint64_t *result; /* 0: none yet */
    uint64_t n_results;

    pthread_mutex_t lock; /* threads */
    pthread_cond_t changed;
    uint32_t job, n_threads, n_busy;
    bool quit;
    _Atomic uint64_t next;
    pthread_t thread[MAX_WORKERS];

    pid_t pid[MAX_WORKERS]; /* processes */
    int fd[MAX_WORKERS];
    uint64_t sent;
};

static int failed(const char *what, int error)
{
    return mr_error_set(-error, "%s: %s", what, strerror(error));
}

/* Nothing but arithmetic, which no compiler can shorten; never 0. */
uint64_t processes_work(uint64_t item, uint64_t rounds)
{
    uint64_t x = item + 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < rounds; i++) {
        x ^= x >> 30;
        x *= 0xbf58476d1ce4e5b9u;
        x ^= x >> 27;
    }
    return x | 1;
}

uint64_t processes_rounds(uint64_t item_ns)
{
    enum { TRIES = 5, TRIED = 200000 };
    double ns[TRIES];
    uint64_t sum = 0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t begin = mr_time_ns();
        sum += processes_work((uint64_t)i, TRIED);
        ns[i] = (double)(mr_time_ns() - begin + (sum == 0)) / TRIED;
    }
    double rounds = (double)item_ns / bench_median(ns, TRIES);
    return rounds < 1 ? 1 : (uint64_t)rounds;
}

static uint64_t items_at(const struct map *m, uint64_t first)
{
    return m->n - first < m->chunk ? m->n - first : m->chunk;
}

static void map_chunk(struct map *m, uint64_t first)
{
    uint64_t n = items_at(m, first);
    for (uint64_t i = first; i < first + n; i++)
        m->result[i] = processes_work(i, m->rounds);
}

/* ---- threads ---- */

static void *run_thread(void *user)
{
    struct map *m = user;
    uint32_t done = 0;
    for (;;) {
        pthread_mutex_lock(&m->lock);
        while (m->job == done && !m->quit)
            pthread_cond_wait(&m->changed, &m->lock);
        bool quit = m->quit;
        done = m->job;
        pthread_mutex_unlock(&m->lock);
        if (quit)
            return NULL;
        uint64_t first;
        while ((first = atomic_fetch_add(&m->next, m->chunk)) < m->n)
            map_chunk(m, first);
        pthread_mutex_lock(&m->lock);
        if (--m->n_busy == 0)
            pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->lock);
    }
}

static int begin_threads(struct map *m)
{
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    for (; m->n_threads < m->workers; m->n_threads++) {
        int error = pthread_create(&m->thread[m->n_threads], NULL, run_thread, m);
        if (error)
            return failed("pthread_create", error);
    }
    return 0;
}

static void end_threads(struct map *m)
{
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    for (uint32_t i = 0; i < m->n_threads; i++)
        pthread_join(m->thread[i], NULL);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
}

static int map_threads(struct map *m)
{
    pthread_mutex_lock(&m->lock);
    atomic_store(&m->next, 0);
    m->n_busy = m->n_threads;
    m->job++;
    pthread_cond_broadcast(&m->changed);
    while (m->n_busy > 0)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
    m->n_results = m->n;
    return 0;
}

/* ---- processes ---- */

static uint64_t message_bytes(uint64_t n)
{
    return offsetof(struct message, item) + n * sizeof(uint64_t);
}

struct worker {
    const struct map *m;
    int fd;
    uint32_t k;
};

static int run_process(void *user)
{
    struct worker *w = user;
    struct message msg;
    for (uint32_t i = 0; i <= w->k; i++) /* others' ends: each is to see that its own is closed */
        close(w->m->fd[i]);
    for (;;) {
        ssize_t got = recv(w->fd, &msg, sizeof msg, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0;
        for (uint64_t i = 0; i < msg.n; i++)
            msg.item[i] = processes_work(msg.item[i], w->m->rounds);
        if (send(w->fd, &msg, message_bytes(msg.n), 0) < 0)
            return 1;
    }
}

static int begin_processes(struct map *m)
{
    for (uint32_t k = 0; k < m->workers; k++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
            return failed("socketpair", errno);
        m->fd[k] = pair[0];
        pid_t pid = processes_fork(run_process, &(struct worker){m, pair[1], k});
        close(pair[1]);
        if (pid < 0)
            return failed("fork", (int)-pid);
        m->pid[k] = pid;
    }
    return 0;
}

static void end_processes(struct map *m)
{
    for (uint32_t k = 0; k < m->workers; k++)
        processes_end(m->pid[k], &m->fd[k]);
}

/* The next chunk to worker k, if there is one. */
static int send_chunk(struct map *m, uint32_t k)
{
    struct message msg;
    if (m->sent >= m->n)
        return 0;
    msg.first = m->sent;
    msg.n = items_at(m, m->sent);
    for (uint64_t i = 0; i < msg.n; i++)
        msg.item[i] = msg.first + i;
    m->sent += msg.n;
    ssize_t put;
    do
        put = send(m->fd[k], &msg, message_bytes(msg.n), MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    return put < 0 ? failed("a message to a worker", errno) : 0;
}

static int take_results(struct map *m, uint32_t k)
{
    struct message msg;
    ssize_t got = recv(m->fd[k], &msg, sizeof msg, 0);
    if (got < 0 && errno == EINTR)
        return 0;
    if (got <= 0)
        return failed("a worker's results", got < 0 ? errno : EPIPE);
    memcpy(m->result + msg.first, msg.item, msg.n * sizeof msg.item[0]);
    m->n_results += msg.n;
    return send_chunk(m, k);
}

static int map_processes(struct map *m)
{
    struct pollfd poll_of[MAX_WORKERS];
    int rc = 0;
    m->sent = 0;
    for (uint32_t i = 0; i < AHEAD * m->workers && rc == 0; i++)
        rc = send_chunk(m, i % m->workers);
    for (uint32_t k = 0; k < m->workers; k++)
        poll_of[k] = (struct pollfd){m->fd[k], POLLIN, 0};
    while (rc == 0 && m->n_results < m->n) {
        if (cli_interrupted())
            return mr_error_set(MR_ECANCELLED, "interrupted");
        if (poll(poll_of, m->workers, 1000) < 0 && errno != EINTR)
            return failed("poll", errno);
        for (uint32_t k = 0; k < m->workers && rc == 0; k++)
            if (poll_of[k].revents)
                rc = take_results(m, k);
    }
    return rc;
}

/* ---- all ---- */

static int map_once(struct map *m)
{
    memset(m->result, 0, m->n * sizeof *m->result);
    m->n_results = 0;
    if (m->way == MAP_THREADS)
        return map_threads(m);
    if (m->way == MAP_PROCESSES)
        return map_processes(m);
    for (uint64_t i = 0; i < m->n; i += m->chunk)
        map_chunk(m, i);
    m->n_results = m->n;
    return 0;
}

/* Each item was mapped, and no result came twice. */
static int check(const struct map *m)
{
    if (m->n_results != m->n)
        return mr_error_set(MR_ESTATE, "%llu results came: want %llu",
                            (unsigned long long)m->n_results, (unsigned long long)m->n);
    for (uint64_t i = 0; i < m->n; i++)
        if (m->result[i] != processes_work(i, m->rounds))
            return mr_error_set(MR_ESTATE, "the result of item %llu is wrong",
                                (unsigned long long)i);
    return 0;
}

static double cpu_us(const struct map *m)
{
    double sum = processes_cpu_us(0);
    for (uint32_t k = 0; k < m->workers; k++)
        if (m->pid[k] > 0)
            sum += processes_cpu_us(m->pid[k]);
    return sum;
}

static int measure(struct map *m, struct processes_result *out)
{
    int rc = map_once(m);
    double cpu = cpu_us(m);
    uint64_t begin = mr_time_ns();
    if (rc == 0)
        rc = map_once(m);
    double n = (double)m->n, us = 1e-3 * (double)(mr_time_ns() - begin);
    *out = (struct processes_result){us / n, 0, (cpu_us(m) - cpu) / n, m->n, 0};
    return rc < 0 ? rc : check(m);
}

int processes_map(const struct processes_opts *opts, enum processes_map way, uint64_t rounds,
                  uint64_t chunk, struct processes_result *out)
{
    struct map *m = calloc(1, sizeof *m);
    uint64_t *result = calloc(opts->items, sizeof *result);
    int rc = m && result ? 0 : failed("memory for the items", ENOMEM);
    if (rc == 0) {
        *m = (struct map){.way = way, .n = opts->items, .chunk = chunk, .rounds = rounds};
        m->workers = way == MAP_SERIAL ? 0 : (uint32_t)opts->workers;
        m->result = result;
        memset(m->fd, -1, sizeof m->fd);
        rc = way == MAP_THREADS ? begin_threads(m) : begin_processes(m);
        rc = rc < 0 ? rc : measure(m, out);
        if (way == MAP_THREADS)
            end_threads(m);
        else
            end_processes(m);
    }
    free(result);
    free(m);
    return rc;
}
