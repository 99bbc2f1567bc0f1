/*
 * Pools. A tensor's word has its generation in the upper half and the process that holds it in the
 * lower; 0: it is free. A handle has the generation and the number + 1, so it is stale as soon as
 * the tensor is given back: the generation then changes together with the holder, in one step.
 * Behind the words there is a stamp for each tensor.
 */
#include "shm/shm.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define FREE_OWNER 0u

struct shared {
    struct mr_spec spec;
    uint64_t n, tensor_bytes, data_at; /* from this struct */
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t given;
    _Atomic uint32_t waiters;
    _Atomic uint64_t hint; /* where a free one may be */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t word[];
};

/* What says where tensors are is a copy, which others cannot change. */
struct mr_shm_pool {
    struct shared *s;
    struct mr_spec spec;
    uint64_t n, tensor_bytes, data_at;
};

static uint64_t word_of(uint32_t generation, uint32_t owner)
{
    return (uint64_t)generation << 32 | owner;
}

static uint64_t tensor_bytes(const struct mr_spec *spec)
{
    uint64_t bytes;
    return spec && mr_spec_bytes(spec, &bytes) == 0 ? mr_round_up(MR_MAX(bytes, 1), MR_CACHE_LINE)
                                                    : 0;
}

/* 0: too many. */
static uint64_t words_bytes(uint64_t n)
{
    return n == 0 || n >= UINT32_MAX
               ? 0
               : mr_round_up(sizeof(struct shared) + 2 * n * sizeof(uint64_t), MR_CACHE_LINE);
}

uint64_t mr_shm_pool_bytes(const struct mr_spec *spec, uint64_t n)
{
    uint64_t each = tensor_bytes(spec), words = words_bytes(n), bytes;
    if (each == 0 || words == 0 || !mr_mul(each, n, &bytes) || !mr_add(bytes, words, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* NULL, or what is wrong with it. */
static const char *why_not(const struct mr_spec *spec)
{
    if (!memchr(spec->name, 0, sizeof spec->name))
        return "its name does not end";
    if (mr_dtype_size(spec->dtype) == 0)
        return "its element type is unknown";
    return spec->rank < 0 || spec->rank > MR_MAX_RANK ? "its rank is out of range" : NULL;
}

static int wrap(const struct mr_shm_pool *made, struct mr_shm_pool **out)
{
    struct mr_shm_pool *pool = malloc(sizeof *pool);
    if (!pool)
        return mr_error_nomem("mr_shm_pool", sizeof *pool);
    *pool = *made;
    *out = pool;
    return 0;
}

int mr_shm_pool_create(struct mr_shm *shm, const char *name, const struct mr_spec *spec, uint64_t n,
                       struct mr_shm_pool **out)
{
    struct mr_shm_part *part;
    void *data;
    if (!shm || !spec || !out)
        return mr_error_null("mr_shm_pool_create", "a block, a spec and a place for the result");
    const char *wrong = why_not(spec);
    if (wrong)
        return mr_error_set(MR_EMISUSE, "mr_shm_pool_create: '%s': the spec is wrong: %s",
                            name ? name : "", wrong);
    uint64_t bytes = mr_shm_pool_bytes(spec, n);
    if (bytes == UINT64_MAX)
        return mr_error_set(MR_ELIMIT, "mr_shm_pool_create: '%s': %llu tensors", name ? name : "",
                            (unsigned long long)n);
    int rc = mr_shm_add(shm, name, MR_SHM_POOL, bytes, &part, &data);
    if (rc < 0)
        return rc;
    struct mr_shm_pool made = {data, *spec, n, tensor_bytes(spec), words_bytes(n)};
    made.s->spec = *spec;
    made.s->n = n;
    made.s->tensor_bytes = made.tensor_bytes;
    made.s->data_at = made.data_at;
    mr_shm_show(part);
    return wrap(&made, out);
}

/* bytes: of its part. */
static int check(const char *name, const struct mr_shm_pool *pool, uint64_t bytes)
{
    const char *wrong = why_not(&pool->spec);
    if (wrong)
        return mr_error_set(MR_EFORMAT, "mr_shm: the block is damaged: '%s': its spec: %s", name,
                            wrong);
    if (mr_shm_pool_bytes(&pool->spec, pool->n) != bytes)
        return mr_shm_damaged(name, "number of tensors", pool->n,
                              "these are not its bytes in the directory");
    if (pool->tensor_bytes != tensor_bytes(&pool->spec))
        return mr_shm_damaged(name, "size of a tensor", pool->tensor_bytes,
                              "the spec says otherwise");
    if (pool->data_at != words_bytes(pool->n))
        return mr_shm_damaged(name, "first tensor's offset", pool->data_at,
                              "expected the end of the pool's state");
    return 0;
}

int mr_shm_pool_attach(struct mr_shm *shm, const char *name, struct mr_shm_pool **out)
{
    if (!shm || !out)
        return mr_error_null("mr_shm_pool_attach", "a block and a place for the result");
    void *data;
    uint64_t bytes;
    int rc = mr_shm_find(shm, name, MR_SHM_POOL, &data, &bytes);
    if (rc < 0)
        return rc;
    if (bytes < sizeof(struct shared))
        return mr_shm_damaged(name, "size", bytes, "too little for a pool");
    const struct shared *s = data;
    struct mr_shm_pool found = {data, s->spec, s->n, s->tensor_bytes, s->data_at};
    rc = check(name, &found, bytes);
    return rc < 0 ? rc : wrap(&found, out);
}

void mr_shm_pool_close(struct mr_shm_pool *pool)
{
    free(pool);
}

const struct mr_spec *mr_shm_pool_spec(const struct mr_shm_pool *pool)
{
    return pool ? &pool->spec : NULL;
}

/* ---- tensors ---- */

/* The word of a handle; NULL: it is no tensor's. */
static _Atomic uint64_t *find(const struct mr_shm_pool *pool, uint64_t handle)
{
    uint32_t i = (uint32_t)handle;
    return pool && i > 0 && i <= pool->n ? &pool->s->word[i - 1] : NULL;
}

/* Says which process holds a tensor, behind the word that says its id. */
static void stamp(const struct mr_shm_pool *pool, uint64_t handle, uint32_t owner)
{
    atomic_store(&pool->s->word[pool->n + (uint32_t)handle - 1], mr_shm_stamp(owner, handle >> 32));
}

static bool is_current(uint64_t word, uint64_t handle)
{
    return word >> 32 == handle >> 32 && (uint32_t)word != FREE_OWNER;
}

static bool try_take(const struct mr_shm_pool *pool, uint32_t owner, uint64_t *handle)
{
    struct shared *s = pool->s;
    uint64_t start = atomic_load_explicit(&s->hint, memory_order_relaxed) % pool->n;
    for (uint64_t k = 0; k < pool->n; k++) {
        uint64_t i = (start + k) % pool->n, word = atomic_load(&s->word[i]);
        if ((uint32_t)word != FREE_OWNER ||
            !atomic_compare_exchange_strong(&s->word[i], &word,
                                            word_of((uint32_t)(word >> 32), owner)))
            continue;
        atomic_store_explicit(&s->hint, i + 1, memory_order_relaxed);
        *handle = word >> 32 << 32 | (i + 1);
        stamp(pool, *handle, owner);
        return true;
    }
    return false;
}

int mr_shm_pool_take(struct mr_shm_pool *pool, int64_t timeout_ns, uint64_t *handle)
{
    if (!pool || !handle)
        return mr_error_null("mr_shm_pool_take", "a pool and a place for the handle");
    struct shared *s = pool->s;
    struct mr_shm_limit limit = mr_shm_limit(timeout_ns);
    uint32_t owner = (uint32_t)getpid();
    for (;;) {
        uint32_t seen = atomic_load(&s->given);
        if (try_take(pool, owner, handle))
            return 0;
        int rc = mr_shm_wait(&s->given, seen, &s->waiters, &limit,
                             "mr_shm_pool_take: no tensor is free");
        if (rc < 0)
            return rc;
    }
}

static int stale(const char *call, uint64_t handle)
{
    return mr_error_set(MR_EMISUSE,
                        "%s: handle %#llx is stale: its tensor was given back or reclaimed", call,
                        (unsigned long long)handle);
}

/* Changes the word of a tensor that is held. Returns whether it was. */
static bool change(_Atomic uint64_t *at, uint64_t handle, uint64_t to)
{
    uint64_t word = at ? atomic_load(at) : 0;
    while (at && is_current(word, handle))
        if (atomic_compare_exchange_weak(at, &word, to))
            return true;
    return false;
}

int mr_shm_pool_accept(struct mr_shm_pool *pool, uint64_t handle)
{
    uint32_t owner = (uint32_t)getpid();
    if (!change(find(pool, handle), handle, word_of((uint32_t)(handle >> 32), owner)))
        return stale("mr_shm_pool_accept", handle);
    stamp(pool, handle, owner);
    return 0;
}

int mr_shm_pool_give(struct mr_shm_pool *pool, uint64_t handle)
{
    uint64_t freed = word_of((uint32_t)(handle >> 32) + 1, FREE_OWNER);
    if (!change(find(pool, handle), handle, freed))
        return stale("mr_shm_pool_give", handle);
    atomic_store_explicit(&pool->s->hint, (uint32_t)handle - 1, memory_order_relaxed);
    mr_shm_notify(&pool->s->given, &pool->s->waiters, 1);
    return 0;
}

void *mr_shm_pool_data(struct mr_shm_pool *pool, uint64_t handle)
{
    _Atomic uint64_t *at = find(pool, handle);
    if (!at || !is_current(atomic_load(at), handle)) {
        stale("mr_shm_pool_data", handle);
        return NULL;
    }
    return (unsigned char *)pool->s + pool->data_at + ((uint32_t)handle - 1) * pool->tensor_bytes;
}

int64_t mr_shm_pool_reclaim(struct mr_shm_pool *pool, int64_t pid)
{
    int64_t n = 0;
    bool one = false, runs = false;
    if (!pool || pid <= 0 || pid > INT_MAX)
        return mr_error_set(MR_EMISUSE, "mr_shm_pool_reclaim: expected a pool and a process id");
    for (uint64_t i = 0; i < pool->n; i++) {
        uint64_t word = atomic_load(&pool->s->word[i]);
        if ((uint32_t)word != (uint32_t)pid)
            continue;
        one = true;
        uint64_t stamp = atomic_load(&pool->s->word[pool->n + i]);
        if (!mr_shm_holder_has_ended(pid, word >> 32, stamp))
            runs = true;
        else
            n += atomic_compare_exchange_strong(&pool->s->word[i], &word,
                                                word_of((uint32_t)(word >> 32) + 1, FREE_OWNER));
    }
    mr_shm_notify(&pool->s->given, &pool->s->waiters, INT_MAX);
    if (n == 0 && (runs || (!one && !mr_shm_has_ended(pid))))
        return mr_error_set(-EBUSY, "mr_shm_pool_reclaim: process %lld is running", (long long)pid);
    return n;
}

uint64_t mr_shm_pool_free(const struct mr_shm_pool *pool)
{
    uint64_t n = 0;
    for (uint64_t i = 0; pool && i < pool->n; i++)
        n += (uint32_t)atomic_load(&pool->s->word[i]) == FREE_OWNER;
    return n;
}
