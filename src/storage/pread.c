/*
 * Reads by pread: bytes in the page cache are copied at once by the reader's own thread (RWF_NOWAIT); what would wait for a
 * disk goes to a pool of threads that the readers share and that grows with the need.
 */
#include "storage/private.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_THREADS 64

struct pool {
    struct mr_files *files;
    struct mr_queue *queue;   /* of struct mr_read; room for all in flight */
    _Atomic uint32_t pending; /* reads in the queue or being read */
    pthread_mutex_t lock;     /* guards what follows; taken alone */
    uint32_t n_threads, max_threads;
    pthread_t thread[MAX_THREADS];
};

struct lane {
    pthread_mutex_t lock; /* guards first, last; taken alone */
    pthread_cond_t some;
    struct mr_read *first, *last; /* finished by the pool */
};

static int pread_open(void *shared, struct mr_files *files, uint32_t depth)
{
    struct pool *pool = shared;
    pool->queue = mr_queue_create(depth);
    if (!pool->queue)
        return mr_error_nomem("read queue", depth * sizeof(void *));
    pool->files = files;
    pool->max_threads = MR_MIN(depth, MAX_THREADS);
    pthread_mutex_init(&pool->lock, NULL);
    return 0;
}

static void pread_close(void *shared)
{
    struct pool *pool = shared;
    mr_queue_close(pool->queue);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->thread[i], NULL);
    mr_queue_destroy(pool->queue);
    pthread_mutex_destroy(&pool->lock);
}

static int pread_lane_open(struct mr_lane *lane)
{
    struct lane *l = lane->state;
    int rc = mr_cond_init(&l->some);
    if (rc)
        return rc;
    pthread_mutex_init(&l->lock, NULL);
    return 0;
}

static void pread_lane_close(struct mr_lane *lane)
{
    struct lane *l = lane->state;
    pthread_cond_destroy(&l->some);
    pthread_mutex_destroy(&l->lock);
}

/* Opening is part of the read: it, too, may wait for a disk. */
static void read_lazy(struct mr_file *f, struct mr_read *read)
{
    uint64_t bytes;
    int fd = mr_file_open_lazy(f, &bytes);
    if (fd < 0) {
        mr_read_fail(read, fd);
        return;
    }
    read->fd = fd;
    mr_read_opened(read, f);
    if (mr_read_sized(read, f, bytes) == 0)
        read->status = mr_read_pread(read, f);
    read->fd = -1;
    close(fd);
}

static void read_blocking(struct pool *pool, struct mr_read *read)
{
    struct mr_file *f = pool->files->file[read->file];
    if (f->lazy)
        read_lazy(f, read);
    else
        read->status = mr_read_pread(read, f);
}

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
        !mr_thread_start(&pool->thread[pool->n_threads], "mr-pread", pool_main, pool))
        pool->n_threads++;
    bool some = pool->n_threads > 0;
    pthread_mutex_unlock(&pool->lock);
    return some;
}

/* true: done, by bytes that the page cache holds, or failed. */
static bool read_cached(struct mr_file *f, struct mr_read *read)
{
    while (read->done < read->want) {
        struct iovec part = {(char *)read->to + read->done, MR_MIN(read->want - read->done, 1ull << 30)};
        ssize_t got = preadv2(f->fd, &part, 1, (off_t)(read->at + read->done), RWF_NOWAIT);
        if (got > 0) {
            read->done += (uint64_t)got;
        } else if (got == 0) {
            read->status = MR_ETRUNCATED;
            return true;
        } else if (errno != EINTR) {
            if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
                atomic_store_explicit(&f->no_nowait, true, memory_order_relaxed);
            return false; /* an error, too, shows again in the pool, without a doubt about flags */
        }
    }
    return true;
}

static bool pread_start(struct mr_lane *lane, struct mr_file *f, struct mr_read *read)
{
    struct pool *pool = lane->shared;
    if (!f->lazy && !read->direct && !atomic_load_explicit(&f->no_nowait, memory_order_relaxed) && read_cached(f, read))
        return true;
    atomic_fetch_add_explicit(&pool->pending, 1, memory_order_relaxed);
    if (pool_grow(pool) && mr_queue_push(pool->queue, read))
        return false;
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_relaxed);
    read_blocking(pool, read);
    return true;
}

static uint32_t pread_reap(struct mr_lane *lane, struct mr_read **out, uint32_t cap, uint64_t until_ns)
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

const struct mr_storage_ops mr_storage_pread = {
    .name = "pread",
    .serves = MR_FILE_PATH,
    .kind = MR_STORAGE_PREAD,
    .shared_size = sizeof(struct pool),
    .lane_size = sizeof(struct lane),
    .open = pread_open,
    .close = pread_close,
    .lane_open = pread_lane_open,
    .lane_close = pread_lane_close,
    .start = pread_start,
    .reap = pread_reap,
};
