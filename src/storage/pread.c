/*
 * Reads by pread. The reader's own thread copies bytes from the page cache (RWF_NOWAIT); reads that
 * would wait for a disk go to a thread pool, which all readers share and which grows on demand.
 */
#include "base/libc.h"
#include "storage/read_pool.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

/* Opening is part of the read because it may wait for a disk, too. */
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

static void read_blocking(void *user, struct mr_read *read)
{
    const struct mr_files *files = user;
    struct mr_file *f = files->file[read->file];
    if (f->lazy)
        read_lazy(f, read);
    else
        read->status = mr_read_pread(read, f);
}

static void hand_back(struct mr_read *read)
{
    mr_finished_put(read->queue->state, read);
}

static int pread_open(void *shared, struct mr_files *files, uint32_t depth)
{
    struct mr_read_pool *pool = shared;
    pool->run = read_blocking;
    pool->end = hand_back;
    pool->user = files;
    pool->name = "mr-pread";
    return mr_read_pool_open(pool, depth);
}

static void pread_close(void *shared)
{
    mr_read_pool_close(shared);
}

static int pread_queue_open(struct mr_read_queue *queue)
{
    return mr_finished_open(queue->state);
}

static void pread_queue_close(struct mr_read_queue *queue)
{
    mr_finished_close(queue->state);
}

/* true: done from the page cache, or failed. */
static bool read_cached(struct mr_file *f, struct mr_read *read)
{
    while (read->done < read->want) {
        struct iovec part = {(char *)read->to + read->done,
                             MR_MIN(read->want - read->done, 1ull << 30)};
        ssize_t got = mr_libc_preadv2(f->fd, &part, 1, (off_t)(read->at + read->done), RWF_NOWAIT);
        if (got > 0) {
            read->done += (uint64_t)got;
        } else if (got == 0) {
            read->status = MR_ETRUNCATED;
            return true;
        } else if (errno != EINTR) {
            if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
                atomic_store_explicit(&f->no_nowait, true, memory_order_relaxed);
            return false; /* the pool repeats the read without flags and reports an error, if any */
        }
    }
    return true;
}

static bool pread_start(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    bool refused = atomic_load_explicit(&f->no_nowait, memory_order_relaxed);
    if (!f->lazy && !read->direct && !refused && read_cached(f, read))
        return true;
    return mr_read_pool_start(queue->shared, read);
}

static uint32_t pread_reap(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap,
                           uint64_t until_ns)
{
    return mr_finished_reap(queue->state, out, cap, until_ns);
}

const struct mr_storage_ops mr_storage_pread = {
    .name = "pread",
    .serves = MR_FILE_PATH,
    .kind = MR_STORAGE_PREAD,
    .shared_size = sizeof(struct mr_read_pool),
    .queue_size = sizeof(struct mr_finished),
    .open = pread_open,
    .close = pread_close,
    .queue_open = pread_queue_open,
    .queue_close = pread_queue_close,
    .start = pread_start,
    .reap = pread_reap,
};
