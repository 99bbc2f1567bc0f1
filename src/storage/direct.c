/*
 * Reads that bypass the page cache. O_DIRECT requires aligned offset, length and memory, so a read
 * is extended to aligned boundaries in a block of the reader, and its view is inside that block.
 * Files whose file system refuses O_DIRECT are read through the page cache.
 */
#include "storage/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void note_refused(_Atomic(const char *) *refused, const struct mr_file *f)
{
    if (!atomic_exchange(refused, f->name))
        mr_log(MR_LOG_INFO, "%s: its file system has no direct reads: read through the page cache",
               f->name);
}

static int open_direct(const struct mr_file *f)
{
    char path[32];
    if (!f->unnamed)
        return open(f->name, MR_OPEN_FLAGS | O_DIRECT);
    snprintf(path, sizeof path, "/proc/self/fd/%d", f->fd);
    return open(path, MR_OPEN_FLAGS | O_DIRECT);
}

void mr_direct_open(struct mr_files *files, _Atomic(const char *) *refused)
{
    pthread_mutex_lock(&files->lock);
    for (int i = 0; i < files->n; i++) {
        struct mr_file *f = files->file[i];
        if (f->kind != MR_FILE_PATH || f->lazy || atomic_load(&f->direct_fd) >= 0)
            continue;
        atomic_store(&f->direct_fd, open_direct(f));
        if (atomic_load(&f->direct_fd) < 0)
            note_refused(refused, f);
    }
    pthread_mutex_unlock(&files->lock);
}

int mr_read_fd(const struct mr_file *f, const struct mr_read *read)
{
    if (f->lazy)
        return read->fd;
    return read->direct ? atomic_load_explicit(&f->direct_fd, memory_order_relaxed) : f->fd;
}

void mr_read_opened(struct mr_read *read, const struct mr_file *f)
{
    if (read->direct && fcntl(read->fd, F_SETFL, O_DIRECT))
        mr_read_refused(read, f);
}

void mr_read_refused(struct mr_read *read, const struct mr_file *f)
{
    if (f->lazy)
        fcntl(read->fd, F_SETFL, 0); /* if this fails, the next read fails too */
    read->direct = false;
    note_refused(read->queue->refused_direct, f);
}

/* A direct read cannot continue at an unaligned offset, such as the end of the file: the page cache
 * tells whether it is the end. */
int mr_read_pread(struct mr_read *read, const struct mr_file *f)
{
    int rc = mr_file_pread(mr_read_fd(f, read), read->to, read->want, read->at, &read->done);
    if (rc == -EINVAL && read->direct && read->done < read->need) {
        mr_read_refused(read, f);
        rc = mr_file_pread(mr_read_fd(f, read), read->to, read->want, read->at, &read->done);
    }
    return read->done >= read->need ? 0 : rc;
}

bool mr_direct_prepare(struct mr_read *read, const struct mr_file *f, struct mr_blocks *blocks)
{
    uint64_t end;
    if (f->kind != MR_FILE_PATH || (!f->lazy && atomic_load(&f->direct_fd) < 0) || read->want == 0)
        return true;
    read->direct = true;
    if (read->bytes == MR_WHOLE) /* mr_read_sized() does the rest */
        return true;
    if (!mr_add(read->at, read->want, &end) || !mr_add(end, MR_DIRECT_BYTES, &end)) {
        read->direct = false;
        return true;
    }
    uint64_t from = read->at / MR_DIRECT_BYTES * MR_DIRECT_BYTES;
    read->need = read->at + read->want - from;
    read->want = mr_round_up(read->need, MR_DIRECT_BYTES);
    read->at = from;
    if (read->chunks) /* the cache's memory is aligned, and its last page is whole */
        return true;
    read->block = mr_blocks_take(blocks, read->want);
    if (!read->block) {
        mr_read_fail(read, mr_error_nomem(f->name, read->want));
        return false;
    }
    read->block->bytes = read->want;
    read->to = read->block->data;
    return true;
}
