/* Blocks of memory that other processes see. */
#include "base/shared_memory.h"

#include "base/base.h"
#include "base/futex.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE (2ull << 20)

struct mr_shared_memory {
    pthread_mutex_t lock;
    struct mr_process process; /* forked children only unmap */
    char what[80];
    int fd;
    uint32_t users; /* [lock] */
    uint64_t end;   /* [lock] */
    struct mr_shared_block *block;
    uint32_t n, cap; /* [lock] */
};

int mr_shared_memory_fd(const struct mr_shared_memory *m)
{
    return m->fd;
}

/* [lock] Makes room for one more. */
static int reserve(struct mr_shared_memory *m)
{
    uint32_t cap = m->cap ? 2 * m->cap : 8;
    if (m->n < m->cap)
        return 0;
    struct mr_shared_block *more = realloc(m->block, cap * sizeof *more);
    if (!more)
        return mr_error_nomem(m->what, cap * sizeof *more);
    m->block = more;
    m->cap = cap;
    return 0;
}

/* [lock] Large blocks are aligned to large pages, here and in the file. */
static int add(struct mr_shared_memory *m, uint64_t bytes, struct mr_shared_block *out)
{
    void *data = NULL;
    uint64_t page = mr_page_bytes();
    uint64_t at = mr_round_up(m->end, bytes >= HUGE_PAGE ? HUGE_PAGE : page), end;
    if (!mr_add(at, bytes, &end) || end > INT64_MAX - HUGE_PAGE)
        return mr_error_set(MR_ELIMIT, "%s: %llu bytes of shared memory", m->what,
                            (unsigned long long)bytes);
    int rc = reserve(m);
    if (rc < 0)
        return rc;
    end = mr_round_up(end, page);
    if (ftruncate(m->fd, (off_t)end) < 0)
        return mr_error_errno(errno, "%s: %llu bytes of shared memory", m->what,
                              (unsigned long long)bytes);
    m->end = end; /* a sealed file gets no shorter */
    rc = mr_memfd_map(m->what, m->fd, at, end - at, &data);
    if (rc < 0)
        return rc;
    if (bytes >= HUGE_PAGE)
        madvise(data, end - at, MADV_HUGEPAGE); /* where the system lets shared memory have them */
    *out = m->block[m->n++] = (struct mr_shared_block){data, end - at, at};
    m->users++;
    return 0;
}

int mr_shared_block_create(struct mr_shared_memory *m, uint64_t bytes, struct mr_shared_block *out)
{
    pthread_mutex_lock(&m->lock);
    int rc = add(m, bytes, out);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void mr_shared_memory_release(struct mr_shared_memory *m)
{
    if (!m)
        return;
    bool ours = mr_process_is(&m->process);
    if (ours)
        pthread_mutex_lock(&m->lock);
    uint32_t users = --m->users;
    if (ours)
        pthread_mutex_unlock(&m->lock);
    if (users > 0)
        return;
    close(m->fd);
    free(m->block);
    free(m);
}

/* Unmaps a block. Returns whether it is this process's file. */
static bool unmap(struct mr_shared_memory *m, const struct mr_shared_block *block)
{
    if (!mr_process_is(&m->process)) {
        munmap(block->data, block->bytes);
        return false;
    }
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < m->n; i++)
        if (m->block[i].data == block->data) {
            m->block[i] = m->block[--m->n];
            break;
        }
    pthread_mutex_unlock(&m->lock);
    munmap(block->data, block->bytes);
    return true;
}

void mr_shared_block_leave(struct mr_shared_memory *m, const struct mr_shared_block *block)
{
    if (!block->data)
        return;
    unmap(m, block);
    mr_shared_memory_release(m);
}

void mr_shared_block_destroy(struct mr_shared_memory *m, const struct mr_shared_block *block)
{
    if (!block->data)
        return;
    /* Other processes have it mapped: its pages go all the same. */
    if (unmap(m, block))
        fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)block->offset,
                  (off_t)block->bytes);
    mr_shared_memory_release(m);
}

struct mr_shared_block mr_shared_block_find(struct mr_shared_memory *m, const void *at)
{
    struct mr_shared_block found = {0};
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < m->n && !found.data; i++)
        if ((uintptr_t)at - (uintptr_t)m->block[i].data < m->block[i].bytes)
            found = m->block[i];
    pthread_mutex_unlock(&m->lock);
    return found;
}

int mr_shared_memory_create(const char *what, uint64_t bytes, struct mr_shared_block *first,
                            struct mr_shared_memory **out)
{
    struct mr_shared_memory *m = calloc(1, sizeof *m);
    if (!m)
        return mr_error_nomem(what, sizeof *m);
    snprintf(m->what, sizeof m->what, "%s", what);
    pthread_mutex_init(&m->lock, NULL);
    mr_process_note(&m->process);
    m->users = 1;
    m->fd = mr_memfd_create(m->what, 0);
    int rc = m->fd < 0 ? m->fd : 0;
    if (rc == 0 && first)
        rc = mr_shared_block_create(m, bytes, first);
    if (rc == 0) {
        *out = m;
        return 0;
    }
    if (m->fd >= 0)
        close(m->fd);
    free(m->block);
    free(m);
    return rc;
}
