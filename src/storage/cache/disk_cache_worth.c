/*
 * Is a whole chunk worth fetching for a part of it, when the cache is full and chunks that this
 * process used must go for it?
 *
 * In an order by blocks, or from first to last, yes: its other parts are wanted soon, and what goes
 * is done with. In a random order, no: a chunk that stays is as good as a new one. The ages of the
 * chunks that are hit tell them apart, counted in chunks stored since: in a random order they are
 * spread over all that the cache holds, half of it on average.
 */
#include "storage/cache/disk_cache.h"

#define MOST_BITS 16
#define OF_LATE   8192 /* hits; after twice as many all counts are halved */

/* Chunks that the cache holds, when it is full. */
static uint64_t capacity(const struct mr_disk_cache *c)
{
    return MR_MAX(c->limit / (MR_DISK_CHUNK + MR_DISK_HEAD), 1u);
}

int mr_disk_worth_open(struct mr_disk_cache *c)
{
    while (c->stored_bits < MOST_BITS && 1ull << c->stored_bits < 16 * capacity(c))
        c->stored_bits++;
    c->stored = calloc(1ull << c->stored_bits, sizeof *c->stored);
    return c->stored ? 0 : mr_error_nomem("disk cache", sizeof *c->stored << c->stored_bits);
}

/* A chunk's place has the upper half of its key, and its number in the lower half. Two chunks of
 * one place: the older one is no longer known. */
static _Atomic uint64_t *place(const struct mr_disk_cache *c, const struct mr_disk_key *key)
{
    return &c->stored[key->lo & ((1ull << c->stored_bits) - 1)];
}

void mr_disk_worth_stored(struct mr_disk_cache *c, const struct mr_disk_key *key, uint64_t bytes)
{
    uint64_t number = atomic_fetch_add(&c->n_stored, 1) + 1;
    atomic_store(place(c, key), key->hi >> 32 << 32 | (uint32_t)number);
    atomic_fetch_add(&c->stored_bytes, bytes);
}

void mr_disk_worth_hit(struct mr_disk_cache *c, const struct mr_disk_key *key, uint64_t bytes)
{
    uint64_t at = atomic_load(place(c, key)), most = capacity(c), age = most;
    if (at && at >> 32 == key->hi >> 32)
        age = (uint32_t)((uint32_t)atomic_load(&c->n_stored) - (uint32_t)at);
    atomic_fetch_add(&c->hit_bytes, bytes);
    atomic_fetch_add(&c->age_sum, MR_MIN(age, most));
    if (atomic_fetch_add(&c->n_hits, 1) != 2 * OF_LATE)
        return;
    /* What another thread counts meanwhile may be lost, which does no harm. */
    atomic_store(&c->n_hits, OF_LATE);
    atomic_store(&c->age_sum, atomic_load(&c->age_sum) / 2);
    atomic_store(&c->hit_bytes, atomic_load(&c->hit_bytes) / 2);
    atomic_store(&c->stored_bytes, atomic_load(&c->stored_bytes) / 2);
}

bool mr_disk_worth_it(struct mr_disk_cache *c)
{
    uint64_t n = atomic_load(&c->n_hits), half = capacity(c) / 2;
    bool read_again = atomic_load(&c->hit_bytes) / 3 >= atomic_load(&c->stored_bytes) / 8;
    return read_again && atomic_load(&c->age_sum) <= n * half * 5 / 6;
}
