/*
 * The caching pool of a device's memory.
 *
 * A block is a whole number of pages. A cached block serves a request when it wastes at most 1/8 of
 * itself; among those that do, the smallest. A block released with an event is neither handed out
 * nor returned to the system before a query says that the event has passed (an event recorded again
 * meanwhile delays it; it never comes too early).
 *
 * Making and dropping memory is slow (page-locking), so both happen outside the lock: what is being
 * made is claimed against the ceiling first.
 */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#define PAGE      4096
#define N_BUCKETS 256
#define MAX_WASTE 8 /* one part of so many */

struct block {
    struct block *next;
    void *ptr;
    uint64_t bytes, requested_bytes, locked_bytes;
    enum mr_memory kind;
    struct mr_event *after; /* NULL: free */
};

struct mr_pool {
    struct mr_device *dev;
    /* guards all below; a back's locks are taken under it, never the other way */
    pthread_mutex_t lock;
    struct block *used[N_BUCKETS];
    struct block *cached[MR_N_MEMORY];
    struct mr_memory_counters count[MR_N_MEMORY];
    uint64_t making_bytes; /* claimed by calls that are making memory now */
    uint64_t limit_bytes;  /* 0: none */
};

struct mr_pool *mr_pool_create(struct mr_device *dev)
{
    struct mr_pool *pool = calloc(1, sizeof *pool);
    if (!pool) {
        mr_error_nomem("memory pool", sizeof *pool);
        return NULL;
    }
    pool->dev = dev;
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void drop_list(struct mr_pool *pool, struct block *list)
{
    while (list) {
        struct block *next = list->next;
        pool->dev->ops->memory_destroy(pool->dev, list->kind, list->ptr, list->bytes);
        free(list);
        list = next;
    }
}

void mr_pool_destroy(struct mr_pool *pool)
{
    if (!pool)
        return;
    for (int kind = 0; kind < MR_N_MEMORY; kind++)
        drop_list(pool, pool->cached[kind]);
    for (int i = 0; i < N_BUCKETS; i++)
        drop_list(pool, pool->used[i]);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void mr_pool_forget(struct mr_pool *pool, const struct mr_event *event)
{
    pthread_mutex_lock(&pool->lock);
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        for (struct block *b = pool->cached[kind]; b; b = b->next) {
            if (b->after == event)
                b->after = NULL;
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

bool mr_pool_waits(struct mr_pool *pool, const struct mr_event *event)
{
    bool waits = false;
    pthread_mutex_lock(&pool->lock);
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        for (const struct block *b = pool->cached[kind]; b && !waits; b = b->next)
            waits = b->after == event;
    }
    pthread_mutex_unlock(&pool->lock);
    return waits;
}

static struct block **bucket_of(struct mr_pool *pool, const void *ptr)
{
    return &pool->used[mr_mix64((uintptr_t)ptr) % N_BUCKETS];
}

/* An event whose query fails counts as not passed: better to keep a block than to hand it
 * out too early. */
static bool is_free(struct block *b)
{
    if (b->after && mr_event_query(b->after) == 1)
        b->after = NULL;
    return !b->after;
}

static uint64_t held_in_all(const struct mr_pool *pool)
{
    uint64_t sum = pool->making_bytes;
    for (int kind = 0; kind < MR_N_MEMORY; kind++)
        sum += pool->count[kind].held_bytes;
    return sum;
}

static void account_held(struct mr_pool *pool, const struct block *b)
{
    struct mr_memory_counters *count = &pool->count[b->kind];
    count->held_bytes += b->bytes;
    count->locked_bytes += b->locked_bytes;
    count->peak_bytes = MR_MAX(count->peak_bytes, count->held_bytes);
}

/* Under the lock. */
static void put_in_use(struct mr_pool *pool, struct block *b, uint64_t requested_bytes)
{
    struct block **bucket = bucket_of(pool, b->ptr);
    b->requested_bytes = requested_bytes;
    b->next = *bucket;
    *bucket = b;
    pool->count[b->kind].requested_bytes += requested_bytes;
}

/* Under the lock. Returns NULL when no cached block fits and is free. */
static struct block *take_cached(struct mr_pool *pool, enum mr_memory kind, uint64_t bytes)
{
    struct block **best = NULL;
    for (struct block **at = &pool->cached[kind]; *at; at = &(*at)->next) {
        struct block *b = *at;
        bool fits = b->bytes >= bytes && b->bytes - bytes <= b->bytes / MAX_WASTE;
        if (fits && (!best || b->bytes < (*best)->bytes) && is_free(b))
            best = at;
    }
    if (!best)
        return NULL;
    struct block *found = *best;
    *best = found->next;
    return found;
}

/* Under the lock. Takes the free cached blocks out of the pool, of all kinds; they are claimed
 * until dropped. */
static struct block *take_free(struct mr_pool *pool, uint64_t *out_bytes)
{
    struct block *list = NULL;
    uint64_t bytes = 0;
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        struct block **at = &pool->cached[kind];
        while (*at) {
            struct block *b = *at;
            if (!is_free(b)) {
                at = &b->next;
                continue;
            }
            *at = b->next;
            b->next = list;
            list = b;
            bytes += b->bytes;
            pool->count[kind].held_bytes -= b->bytes;
            pool->count[kind].locked_bytes -= b->locked_bytes;
        }
    }
    pool->making_bytes += bytes;
    *out_bytes = bytes;
    return list;
}

/* Under the lock, released while it frees. Returns how many bytes the system got back. */
static uint64_t trim(struct mr_pool *pool)
{
    uint64_t bytes = 0;
    struct block *list = take_free(pool, &bytes);
    pthread_mutex_unlock(&pool->lock);
    drop_list(pool, list);
    pthread_mutex_lock(&pool->lock);
    pool->making_bytes -= bytes;
    return bytes;
}

void mr_memory_trim(struct mr_device *dev)
{
    if (!dev || mr_device_ready(dev) < 0)
        return;
    pthread_mutex_lock(&dev->pool->lock);
    trim(dev->pool);
    pthread_mutex_unlock(&dev->pool->lock);
}

void mr_memory_set_limit(struct mr_device *dev, uint64_t bytes)
{
    if (!dev || mr_device_ready(dev) < 0)
        return;
    pthread_mutex_lock(&dev->pool->lock);
    dev->pool->limit_bytes = bytes;
    pthread_mutex_unlock(&dev->pool->lock);
}

int mr_memory_query(struct mr_device *dev, enum mr_memory kind, struct mr_memory_counters *out)
{
    int rc = mr_device_check(dev, "mr_memory_query");
    if (rc < 0)
        return rc;
    if ((unsigned)kind >= MR_N_MEMORY)
        return mr_error_set(MR_EMISUSE, "mr_memory_query: no such kind of memory: %u",
                            (unsigned)kind);
    pthread_mutex_lock(&dev->pool->lock);
    struct mr_memory_counters count = dev->pool->count[kind];
    pthread_mutex_unlock(&dev->pool->lock);
    return mr_info_give("memory_counters", out, &count, sizeof count);
}

/* Under the lock. */
static int over_limit(const struct mr_pool *pool, enum mr_memory kind, uint64_t bytes)
{
    char sum[256] = "";
    for (int k = 0; k < MR_N_MEMORY; k++) {
        size_t used = strlen(sum);
        snprintf(sum + used, sizeof sum - used, "%llu %s + ",
                 (unsigned long long)pool->count[k].held_bytes, mr_memory_name((enum mr_memory)k));
    }
    if (pool->making_bytes) {
        size_t used = strlen(sum);
        snprintf(sum + used, sizeof sum - used, "%llu being made + ",
                 (unsigned long long)pool->making_bytes);
    }
    return mr_error_set(MR_ELIMIT,
                        "device %s: %s%llu %s asked for = %llu bytes, over the limit of %llu "
                        "bytes; ask for fewer or "
                        "smaller buffers, or raise the limit",
                        pool->dev->ops->name, sum, (unsigned long long)bytes, mr_memory_name(kind),
                        (unsigned long long)(held_in_all(pool) + bytes),
                        (unsigned long long)pool->limit_bytes);
}

static bool fits_limit(const struct mr_pool *pool, uint64_t bytes)
{
    uint64_t sum;
    return !pool->limit_bytes ||
           (mr_add(held_in_all(pool), bytes, &sum) && sum <= pool->limit_bytes);
}

/* Under the lock, released meanwhile. What the system or the device refuses is tried once
 * more after a trim. */
static int make_memory(struct mr_pool *pool, struct block *b)
{
    const struct mr_device_ops *ops = pool->dev->ops;
    pool->making_bytes += b->bytes;
    int rc = 0;
    for (int attempt = 0; attempt < 2; attempt++) {
        pthread_mutex_unlock(&pool->lock);
        rc = ops->memory_create(pool->dev, b->kind, b->bytes, &b->ptr, &b->locked_bytes);
        pthread_mutex_lock(&pool->lock);
        if (rc >= 0 || !trim(pool))
            break;
    }
    pool->making_bytes -= b->bytes;
    return rc;
}

/* Under the lock. [out] out: a block that is in no list. */
static int make_block(struct mr_pool *pool, enum mr_memory kind, uint64_t bytes, struct block **out)
{
    if (!fits_limit(pool, bytes))
        trim(pool);
    if (!fits_limit(pool, bytes))
        return over_limit(pool, kind, bytes);
    struct block *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem("memory pool's block", sizeof *b);
    b->kind = kind;
    b->bytes = bytes;
    int rc = make_memory(pool, b);
    if (rc < 0) {
        free(b);
        return rc;
    }
    account_held(pool, b);
    *out = b;
    return 0;
}

int mr_memory_acquire(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out)
{
    int rc = mr_device_check(dev, "mr_memory_acquire");
    if (rc < 0)
        return rc;
    rc = mr_out_check(out, "mr_memory_acquire");
    if (rc < 0)
        return rc;
    if ((unsigned)kind >= MR_N_MEMORY || !bytes)
        return mr_error_set(
            MR_EMISUSE, "mr_memory_acquire: expected a known kind of memory and at least one byte");
    if (bytes > UINT64_MAX / 2)
        return mr_error_nomem(mr_memory_name(kind), bytes);
    struct mr_pool *pool = dev->pool;
    uint64_t whole = mr_round_up(bytes, PAGE);
    pthread_mutex_lock(&pool->lock);
    struct block *b = take_cached(pool, kind, whole);
    if (b) {
        pool->count[kind].hits++;
    } else {
        pool->count[kind].misses++;
        rc = make_block(pool, kind, whole, &b);
    }
    if (rc >= 0) {
        put_in_use(pool, b, bytes);
        *out = b->ptr;
    }
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

void mr_memory_release(struct mr_device *dev, enum mr_memory kind, void *ptr,
                       struct mr_event *after)
{
    if (!dev || !ptr || mr_device_ready(dev) < 0)
        return;
    struct mr_pool *pool = dev->pool;
    pthread_mutex_lock(&pool->lock);
    struct block **at = bucket_of(pool, ptr);
    while (*at && (*at)->ptr != ptr)
        at = &(*at)->next;
    struct block *b = *at;
    bool known = b,
         same_kind =
             b && b->kind == kind; /* once unlocked, another thread may use the block, or drop it */
    if (b) {
        *at = b->next;
        b->after = after;
        b->next = pool->cached[b->kind];
        pool->cached[b->kind] = b;
        pool->count[b->kind].requested_bytes -= b->requested_bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!same_kind)
        mr_log(MR_LOG_WARNING, "device %s: released %s memory %p that %s", dev->ops->name,
               mr_memory_name(kind), ptr, known ? "is of another kind" : "is not in use");
}
