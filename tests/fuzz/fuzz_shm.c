/*
 * White-box. Blocks of shared memory, their pools and rings, after another process wrote anything
 * into them: the input is a list of patches of a sound block, 10 bytes each: which word, and what.
 * A patched block is refused with a reason, or its parts can be used, and every call returns.
 */
#include "memfile.h"
#include "shm/shm.h"

#define PATCH  10
#define PLACES 4

struct parts {
    struct mr_shm *shm;
    struct mr_shm_ring *ring;
    struct mr_shm_pool *pool;
};

static const struct mr_spec spec = {.name = "x", .dtype = MR_U8, .rank = 1, .dim = {16}};

/* With values in the ring and a block of the pool taken. */
static bool make(struct parts *p)
{
    uint64_t v[] = {1, 2, 3}, handle, bytes = mr_shm_ring_bytes(PLACES);
    bytes += mr_shm_pool_bytes(&spec, PLACES);
    return mr_shm_create(NULL, bytes, 0, &p->shm) == 0 &&
           mr_shm_ring_create(p->shm, "r", PLACES, &p->ring) == 0 &&
           mr_shm_pool_create(p->shm, "p", &spec, PLACES, &p->pool) == 0 &&
           mr_shm_ring_push(p->ring, v, 3, 0) == 3 && mr_shm_ring_pop(p->ring, v, 1, 0) == 1 &&
           mr_shm_pool_take(p->pool, 0, &handle) == 0;
}

static void drop(struct parts *p)
{
    mr_shm_ring_close(p->ring);
    mr_shm_pool_close(p->pool);
    mr_shm_close(p->shm);
}

static void patch(struct mr_shm *shm, const uint8_t *data, size_t size)
{
    for (; size >= PATCH; data += PATCH, size -= PATCH) {
        uint64_t value;
        unsigned word = data[0] | (unsigned)data[1] << 8;
        memcpy(&value, data + 2, sizeof value);
        memcpy((char *)shm->head + word % (shm->bytes / 8) * 8, &value, sizeof value);
    }
}

static void explained(int64_t rc)
{
    if (rc < 0 && !mr_last_error()[0])
        abort();
}

static void use_ring(struct mr_shm_ring *ring)
{
    uint64_t v[2 * PLACES] = {0};
    for (int i = 0; i < 2; i++) {
        explained(mr_shm_ring_push(ring, v, 2 * PLACES, 0));
        explained(mr_shm_ring_pop(ring, v, 2 * PLACES, 0));
    }
    mr_shm_ring_end(ring);
    explained(mr_shm_ring_pop(ring, v, 1, 0));
}

static void use_pool(struct mr_shm_pool *pool)
{
    uint64_t bytes, handle;
    if (mr_spec_bytes(mr_shm_pool_spec(pool), &bytes) != 0)
        abort();
    for (int i = 0; i < 2 * PLACES; i++) {
        int rc = mr_shm_pool_take(pool, 0, &handle);
        explained(rc);
        if (rc < 0)
            break;
        memset(mr_shm_pool_data(pool, handle), 1, bytes);
        explained(mr_shm_pool_accept(pool, handle));
        if (i % 2)
            explained(mr_shm_pool_give(pool, handle));
    }
    mr_shm_pool_free(pool);
    explained(mr_shm_pool_reclaim(pool, getpid()));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct parts mine = {0}, theirs = {0};
    if (make(&mine)) {
        patch(mine.shm, data, size);
        int rc = mr_shm_attach(NULL, mr_shm_fd(mine.shm), 0, &theirs.shm);
        explained(rc);
        if (rc == 0) {
            explained(mr_shm_ring_attach(theirs.shm, "r", &theirs.ring));
            explained(mr_shm_pool_attach(theirs.shm, "p", &theirs.pool));
        }
        if (theirs.ring)
            use_ring(theirs.ring);
        if (theirs.pool)
            use_pool(theirs.pool);
    }
    drop(&theirs);
    drop(&mine);
    return 0;
}
