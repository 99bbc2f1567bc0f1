/*
 * One fetch of a chunk at a time. Of several readers that miss the same chunk the first one fetches
 * it; the others wait and get their parts from its memory, not from the file: so a chunk is fetched
 * once whether or not it can be stored.
 *
 * The entries are on the readers' stacks. cache->fetches lists the readers that fetch, and each of
 * these lists the readers that wait for it; all of it is guarded by cache->lock.
 */
#include "storage/cache/disk_cache.h"

#include <string.h>
#include <sys/mman.h>

static struct mr_disk_fetch **find(struct mr_disk_cache *c, const struct mr_disk_key *key)
{
    struct mr_disk_fetch **at = &c->fetches;
    while (*at && ((*at)->key.hi != key->hi || (*at)->key.lo != key->lo))
        at = &(*at)->next;
    return at;
}

static void leave(struct mr_disk_fetch *first, const struct mr_disk_fetch *waiter)
{
    struct mr_disk_fetch **at = &first->waiting;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
}

/* Under cache->lock. A waiter leaves the list when it is stopped; mr_disk_cache_end() clears it. */
static int wait_for(struct mr_disk_cache *c, struct mr_disk_fetch *first,
                    struct mr_disk_fetch *mine, const _Atomic bool *stop)
{
    mine->next = first->waiting;
    first->waiting = mine;
    mine->state = MR_DISK_WAITING;
    while (mine->state == MR_DISK_WAITING) {
        if (stop && atomic_load_explicit(stop, memory_order_acquire)) {
            leave(first, mine);
            return mr_error_set(MR_ECANCELLED, "disk cache %s: cancelled", c->dir);
        }
        pthread_cond_wait(&c->ended, &c->lock);
    }
    return mine->state;
}

int mr_disk_cache_begin(struct mr_disk_cache *c, struct mr_disk_fetch *mine,
                        const _Atomic bool *stop)
{
    int rc = MR_DISK_FETCH;
    pthread_mutex_lock(&c->lock);
    struct mr_disk_fetch *first = *find(c, &mine->key);
    if (first) {
        rc = wait_for(c, first, mine, stop);
    } else {
        mine->waiting = NULL;
        mine->next = c->fetches;
        c->fetches = mine;
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void mr_disk_cache_kick(struct mr_disk_cache *c)
{
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->ended);
    pthread_mutex_unlock(&c->lock);
}

void mr_disk_cache_end(struct mr_disk_cache *c, struct mr_disk_fetch *mine, const void *chunk)
{
    pthread_mutex_lock(&c->lock);
    *find(c, &mine->key) = mine->next;
    for (struct mr_disk_fetch *waiter = mine->waiting, *next; waiter; waiter = next) {
        next = waiter->next; /* the waiter's stack may be gone as soon as the lock is */
        if (chunk)
            memcpy(waiter->to, (const char *)chunk + waiter->at, waiter->bytes);
        waiter->state = chunk ? MR_DISK_SERVED : MR_DISK_ALONE;
    }
    pthread_cond_broadcast(&c->ended);
    pthread_mutex_unlock(&c->lock);
}

/* ---- memory ---- */

/* Not by malloc(): once a megabyte was freed, glibc takes the next ones from the threads' arenas,
 * and keeps up to two of them free in each of 8 arenas a processor. Some are kept, since the pages
 * of new ones cost a quarter of the reading. */
void *mr_disk_buffer_acquire(struct mr_disk_cache *c, uint64_t bytes)
{
    bool one = bytes <= MR_DISK_CHUNK;
    for (int i = 0; one && i < MR_DISK_BUFFERS; i++) {
        void *kept = atomic_exchange(&c->buffer[i], NULL);
        if (kept)
            return kept;
    }
    void *at = mmap(NULL, one ? MR_DISK_CHUNK : bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void mr_disk_buffer_release(struct mr_disk_cache *c, void *buffer, uint64_t bytes)
{
    bool one = bytes <= MR_DISK_CHUNK;
    for (int i = 0; one && i < MR_DISK_BUFFERS; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&c->buffer[i], &none, buffer))
            return;
    }
    munmap(buffer, one ? MR_DISK_CHUNK : bytes);
}
