/* Rows that wait for their batch: memory handed out from the front of chunks. */
#include "loader/rows.h"

#define CHUNK_ALIGNMENT 4096

struct mr_rows_chunk {
    struct mr_rows_chunk *next;
    uint64_t bytes;
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t used; /* may end up above `bytes` */
    _Alignas(MR_CACHE_LINE) unsigned char data[];
};

static struct mr_rows_chunk *make_chunk(uint64_t bytes)
{
    uint64_t all;
    if (!mr_add(bytes, sizeof(struct mr_rows_chunk) + CHUNK_ALIGNMENT, &all))
        return NULL;
    all = all / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
    struct mr_rows_chunk *chunk = aligned_alloc(MR_CACHE_LINE, all);
    if (!chunk)
        return NULL;
    chunk->next = NULL;
    chunk->bytes = all - sizeof *chunk;
    atomic_store_explicit(&chunk->used, 0, memory_order_relaxed);
    return chunk;
}

int mr_rows_create(struct mr_rows *rows, uint64_t bytes)
{
    pthread_mutex_init(&rows->lock, NULL);
    rows->first = make_chunk(bytes);
    if (!rows->first)
        return mr_error_nomem("rows of a batch", bytes);
    rows->bytes = bytes;
    atomic_store(&rows->chunk, rows->first);
    return 0;
}

void mr_rows_destroy(struct mr_rows *rows)
{
    while (rows->first) {
        struct mr_rows_chunk *next = rows->first->next;
        free(rows->first);
        rows->first = next;
    }
    pthread_mutex_destroy(&rows->lock);
}

void mr_rows_clear(struct mr_rows *rows)
{
    for (struct mr_rows_chunk *chunk = rows->first; chunk; chunk = chunk->next)
        atomic_store_explicit(&chunk->used, 0, memory_order_relaxed);
    atomic_store_explicit(&rows->chunk, rows->first, memory_order_relaxed);
}

/* A chunk behind `full` with space for a row: the next one, or a new one that makes all of them
 * half as large again. [lock] */
static int add_chunk(struct mr_rows *rows, struct mr_rows_chunk *full, uint64_t bytes,
                     int (*may)(void *user, uint64_t bytes), void *user)
{
    if (full->next && full->next->bytes >= bytes) {
        atomic_store_explicit(&rows->chunk, full->next, memory_order_release);
        return 0;
    }
    uint64_t more = MR_MAX(bytes, rows->bytes / 2);
    int rc = may(user, more);
    if (rc < 0)
        return rc;
    struct mr_rows_chunk *chunk = make_chunk(more);
    if (!chunk)
        return mr_error_nomem("rows of a batch", more);
    chunk->next = full->next;
    full->next = chunk;
    rows->bytes += more;
    atomic_store_explicit(&rows->chunk, chunk, memory_order_release);
    return 0;
}

int mr_rows_take(struct mr_rows *rows, uint64_t bytes, int (*may)(void *user, uint64_t bytes),
                 void *user, unsigned char **out)
{
    int rc = 0;
    bytes = mr_round_up(bytes, MR_ROWS_ALIGNMENT);
    while (rc == 0) {
        struct mr_rows_chunk *chunk = atomic_load_explicit(&rows->chunk, memory_order_acquire);
        uint64_t at = atomic_fetch_add_explicit(&chunk->used, bytes, memory_order_relaxed);
        if (at <= chunk->bytes && bytes <= chunk->bytes - at) {
            *out = chunk->data + at;
            return 0;
        }
        pthread_mutex_lock(&rows->lock);
        if (atomic_load_explicit(&rows->chunk, memory_order_relaxed) == chunk)
            rc = add_chunk(rows, chunk, bytes, may, user);
        pthread_mutex_unlock(&rows->lock);
    }
    return rc;
}
