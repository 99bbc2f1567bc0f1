/*
 * The lane of remote files. Without a disk cache a read is a request of the client's. With one, threads that the readers share
 * look into the cache and wait for what it does not have, as many as there are reads (64 at most).
 */
#include "storage/http/http.h"

#include <errno.h>
#include <string.h>

#define MAX_THREADS 64

struct pool {
    struct mr_http *client;
    struct mr_queue *queue;   /* of struct mr_read; room for all in flight. Only with a disk cache, like what follows */
    _Atomic uint32_t pending; /* reads in the queue or being read */
    pthread_mutex_t lock;     /* guards what follows; taken alone */
    uint32_t n_threads, max_threads;
    pthread_t thread[MAX_THREADS];
};

struct lane {
    _Atomic bool stop;
    pthread_mutex_t lock; /* guards first, last; taken alone */
    pthread_cond_t some;
    struct mr_read *first, *last; /* finished */
};

/* A read under way as a request. */
struct flight {
    struct mr_http_request request;
    struct mr_read *read;
    struct mr_file *file;
};

/* Signals under the lock: the lane may be gone as soon as its reader has the read. */
static void hand_back(struct mr_read *read)
{
    struct lane *l = read->lane->state;
    pthread_mutex_lock(&l->lock);
    read->next = NULL;
    if (l->first)
        l->last->next = read;
    else
        l->first = read;
    l->last = read;
    pthread_cond_signal(&l->some);
    pthread_mutex_unlock(&l->lock);
}

static void fail(struct mr_read *read, int status)
{
    if (!read->error)
        mr_read_fail(read, status);
}

/* ---- without a disk cache ---- */

static int on_sized(struct mr_http_request *request, uint64_t bytes, void **out)
{
    struct flight *flight = request->user;
    flight->read->done = request->got; /* what is kept when the block has to be another one */
    int rc = mr_read_sized(flight->read, flight->file, bytes);
    *out = flight->read->to;
    return rc;
}

/* A body whose length nobody had announced, and which so lies in memory of the client's. */
static void move_body(struct flight *flight)
{
    struct mr_read *read = flight->read;
    const struct mr_http_request *request = &flight->request;
    if (read->bytes != MR_WHOLE || (read->block && request->body == read->to))
        return;
    if (mr_read_sized(read, flight->file, request->got) == 0 && request->got)
        memcpy(read->to, request->body, request->got);
    free(request->body);
}

static void on_done(struct mr_http_request *request)
{
    struct flight *flight = request->user;
    struct mr_read *read = flight->read;
    struct pool *pool = read->lane->shared;
    if (request->status) {
        if (read->error) /* by mr_read_sized() */
            free(request->error);
        else
            read->error = request->error;
        read->status = request->status;
    } else {
        move_body(flight);
        int rc = mr_remote_learn(pool->client, flight->file, request);
        if (rc)
            fail(read, rc);
        read->done = request->got;
    }
    free(flight);
    hand_back(read);
}

static bool start_request(struct mr_lane *lane, struct mr_file *f, struct mr_read *read)
{
    struct pool *pool = lane->shared;
    struct lane *l = lane->state;
    struct flight *flight = calloc(1, sizeof *flight);
    if (!flight) {
        mr_read_fail(read, mr_error_nomem(f->name, sizeof *flight));
        return true;
    }
    flight->read = read;
    flight->file = f;
    flight->request = (struct mr_http_request){.url = f->name,
                                               .at = read->at,
                                               .want = read->want,
                                               .to = read->want == MR_WHOLE ? NULL : read->to,
                                               .limit = MR_WHOLE_LIMIT,
                                               .expect = mr_remote_object(f),
                                               .stop = &l->stop,
                                               .done = on_done,
                                               .user = flight};
    flight->request.sized = read->want == MR_WHOLE ? on_sized : NULL;
    mr_http_start(pool->client, &flight->request);
    return false;
}

/* ---- with one ---- */

/* A whole file. What is known of it is not asked for again: reads of it say when it has changed. */
static int read_whole(struct pool *pool, struct mr_file *f, struct mr_read *read, const _Atomic bool *stop)
{
    void *body = NULL;
    uint64_t bytes = 0;
    int rc = mr_remote_object(f) ? 0 : mr_cached_first(pool->client, f, &body, &bytes, stop);
    if (rc == 0)
        rc = mr_read_sized(read, f, body ? bytes : mr_remote_object(f)->total);
    if (rc == 0 && body)
        memcpy(read->to, body, bytes);
    else if (rc == 0)
        rc = mr_cached_read(pool->client, f, 0, read->to, read->want, stop);
    free(body);
    return rc;
}

static void read_blocking(struct pool *pool, struct mr_read *read)
{
    const struct lane *l = read->lane->state;
    struct mr_file *f = read->lane->files->file[read->file];
    int rc = read->want == MR_WHOLE ? read_whole(pool, f, read, &l->stop)
                                    : mr_cached_read(pool->client, f, read->at, read->to, read->want, &l->stop);
    if (rc)
        fail(read, rc);
    else
        read->done = read->want;
}

static void *pool_main(void *arg)
{
    struct pool *pool = arg;
    void *item;
    while (mr_queue_pop(pool->queue, &item)) {
        read_blocking(pool, item);
        atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_relaxed);
        hand_back(item);
    }
    return NULL;
}

/* One more thread when there is more to read than threads. false: there is not even one. */
static bool pool_grow(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    uint32_t pending = atomic_load_explicit(&pool->pending, memory_order_relaxed);
    if (pool->n_threads < MR_MIN(pending, pool->max_threads) &&
        !mr_thread_start(&pool->thread[pool->n_threads], "mr-cache", pool_main, pool))
        pool->n_threads++;
    bool some = pool->n_threads > 0;
    pthread_mutex_unlock(&pool->lock);
    return some;
}

/* What the page cache has is copied at once, by the reader's own thread. */
static bool start_cached(struct pool *pool, struct mr_file *f, struct mr_read *read)
{
    if (read->want != MR_WHOLE && mr_cached_now(pool->client, f, read->at, read->to, read->want)) {
        read->done = read->want;
        return true;
    }
    atomic_fetch_add_explicit(&pool->pending, 1, memory_order_relaxed);
    if (pool_grow(pool) && mr_queue_push(pool->queue, read))
        return false;
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_relaxed);
    read_blocking(pool, read);
    return true;
}

/* ---- the store ---- */

static int remote_open(void *shared, struct mr_files *files, uint32_t depth)
{
    struct pool *pool = shared;
    struct mr_files_kinds kinds;
    mr_files_count(files, &kinds);
    if (kinds.n_remote == 0)
        return 0;
    int rc = mr_http_open(&pool->client);
    if (rc)
        return rc;
    if (!mr_http_disk_cache(pool->client))
        return 0;
    pool->queue = mr_queue_create(depth);
    if (!pool->queue) {
        mr_http_close(pool->client);
        return mr_error_nomem("read queue", depth * sizeof(void *));
    }
    pool->max_threads = MR_MIN(depth, MAX_THREADS);
    pthread_mutex_init(&pool->lock, NULL);
    return 0;
}

static void remote_close(void *shared)
{
    struct pool *pool = shared;
    if (pool->queue) {
        mr_queue_close(pool->queue);
        for (uint32_t i = 0; i < pool->n_threads; i++)
            pthread_join(pool->thread[i], NULL);
        mr_queue_destroy(pool->queue);
        pthread_mutex_destroy(&pool->lock);
    }
    mr_http_close(pool->client);
}

static int remote_lane_open(struct mr_lane *lane)
{
    const struct pool *pool = lane->shared;
    struct lane *l = lane->state;
    if (!pool->client)
        return mr_error_set(MR_EMISUSE, "a URL was added after the storage was opened");
    int rc = mr_cond_init(&l->some);
    if (rc)
        return rc;
    pthread_mutex_init(&l->lock, NULL);
    return 0;
}

static void remote_lane_close(struct mr_lane *lane)
{
    struct lane *l = lane->state;
    pthread_mutex_lock(&l->lock); /* who handed back the last read may still hold it */
    pthread_mutex_unlock(&l->lock);
    pthread_cond_destroy(&l->some);
    pthread_mutex_destroy(&l->lock);
}

static bool remote_start(struct mr_lane *lane, struct mr_file *f, struct mr_read *read)
{
    struct pool *pool = lane->shared;
    if (read->want == 0)
        return true;
    return pool->queue ? start_cached(pool, f, read) : start_request(lane, f, read);
}

static uint32_t remote_reap(struct mr_lane *lane, struct mr_read **out, uint32_t cap, uint64_t until_ns)
{
    struct lane *l = lane->state;
    uint32_t n = 0;
    pthread_mutex_lock(&l->lock);
    while (until_ns && !l->first && mr_cond_wait_until(&l->some, &l->lock, until_ns))
        ;
    for (; n < cap && l->first; l->first = l->first->next)
        out[n++] = l->first;
    pthread_mutex_unlock(&l->lock);
    return n;
}

static void remote_cancel(struct mr_lane *lane)
{
    const struct pool *pool = lane->shared;
    struct lane *l = lane->state;
    atomic_store_explicit(&l->stop, true, memory_order_release);
    mr_http_kick(pool->client);
}

const struct mr_storage_ops mr_storage_remote = {
    .name = "http",
    .serves = MR_FILE_REMOTE,
    .kind = MR_STORAGE_AUTO,
    .shared_size = sizeof(struct pool),
    .lane_size = sizeof(struct lane),
    .open = remote_open,
    .close = remote_close,
    .lane_open = remote_lane_open,
    .lane_close = remote_lane_close,
    .start = remote_start,
    .reap = remote_reap,
    .cancel = remote_cancel,
};
