/*
 * Kineto: what comes twice in a file. Events that are there twice, word for word, as after a merge
 * of overlapping parts, count once. And calls of one process with the same correlation id: which of
 * them launched a kernel of that id cannot be told.
 *
 * The first reading keeps 8 bytes of hash per event, in buckets by the hash's highest bits, so that
 * growing and sorting never move all of them; after it, only those that came twice stay. For events
 * a bit then says whether the second reading has met them.
 */
#include "recording/kineto.h"

#include <errno.h>
#include <string.h>

#define WAS_MET 1u /* the lowest bit; of a stored hash it is else 0 */

static uint64_t hash_of(struct mr_json_text text)
{
    uint64_t h = text.n, word;
    size_t i = 0;
    for (; i + sizeof word <= text.n; i += sizeof word) {
        memcpy(&word, text.at + i, sizeof word);
        h = mr_mix64(h ^ word);
    }
    word = 0;
    memcpy(&word, text.at + i, text.n - i);
    return mr_mix64(h ^ word) & ~(uint64_t)WAS_MET;
}

static uint64_t hash_of_call(uint32_t host, enum mr_kineto_kind kind, uint32_t correlation)
{
    uint64_t who = (uint64_t)host << 8 | kind;
    return mr_mix64(mr_mix64(who) ^ correlation) & ~(uint64_t)WAS_MET;
}

static size_t bucket_of(uint64_t hash)
{
    return hash >> (64 - MR_KINETO_BUCKET_BITS);
}

static int add(struct mr_kineto_set *set, uint64_t hash, const char *path)
{
    struct mr_kineto_bucket *b = &set->bucket[bucket_of(hash)];
    if (b->n == b->capacity) {
        size_t capacity = b->capacity ? b->capacity + b->capacity / 2 : 64;
        uint64_t *hashes = realloc(b->hashes, capacity * sizeof *hashes);
        if (!hashes)
            return mr_error_nomem(path, capacity * sizeof *hashes);
        b->hashes = hashes;
        b->capacity = capacity;
    }
    b->hashes[b->n++] = hash;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Leaves one of each hash that is there several times. Returns how many were there too many. */
static uint64_t keep_repeated(struct mr_kineto_bucket *b)
{
    size_t n = 0;
    uint64_t too_many = 0;
    if (b->n > 0)
        qsort(b->hashes, b->n, sizeof *b->hashes, compare);
    for (size_t i = 1; i < b->n; i++) {
        if (b->hashes[i] != b->hashes[i - 1])
            continue;
        too_many++;
        if (n == 0 || b->hashes[n - 1] != b->hashes[i])
            b->hashes[n++] = b->hashes[i];
    }
    b->n = n;
    if (n == 0) {
        free(b->hashes);
        b->hashes = NULL;
        b->capacity = 0;
    }
    return too_many;
}

static void keep_all_repeated(struct mr_kineto_set *set)
{
    for (size_t i = 0; i < MR_COUNT(set->bucket); i++)
        set->n_too_many += keep_repeated(&set->bucket[i]);
}

/* The place of a hash that came twice; NULL: it did not. */
static uint64_t *find(const struct mr_kineto_set *set, uint64_t hash)
{
    const struct mr_kineto_bucket *b = &set->bucket[bucket_of(hash)];
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->n && (b->hashes[low] & ~(uint64_t)WAS_MET) == hash ? &b->hashes[low] : NULL;
}

int mr_kineto_note(struct mr_kineto *k, struct mr_json_text text)
{
    return add(&k->events, hash_of(text), k->path);
}

int mr_kineto_note_call(struct mr_kineto *k, uint32_t host, enum mr_kineto_kind kind,
                        uint32_t correlation)
{
    return correlation ? add(&k->calls, hash_of_call(host, kind, correlation), k->path) : 0;
}

void mr_kineto_find_repeats(struct mr_kineto *k)
{
    keep_all_repeated(&k->events);
    if (k->events.n_too_many == 0) /* else the same calls, mostly */
        keep_all_repeated(&k->calls);
    else
        mr_kineto_free_set(&k->calls);
}

bool mr_kineto_is_repeat(struct mr_kineto *k, struct mr_json_text text)
{
    uint64_t *place = k->events.n_too_many > 0 ? find(&k->events, hash_of(text)) : NULL;
    bool was_met = place && *place & WAS_MET;
    if (place)
        *place |= WAS_MET;
    return was_met;
}

bool mr_kineto_is_ambiguous(const struct mr_kineto *k, uint32_t host, uint32_t correlation)
{
    return k->calls.n_too_many > 0 && host != MR_NONE &&
           (find(&k->calls, hash_of_call(host, MR_KINETO_RUNTIME, correlation)) ||
            find(&k->calls, hash_of_call(host, MR_KINETO_DRIVER, correlation)));
}

void mr_kineto_free_set(struct mr_kineto_set *set)
{
    for (size_t i = 0; i < MR_COUNT(set->bucket); i++)
        free(set->bucket[i].hashes);
    *set = (struct mr_kineto_set){.n_too_many = 0};
}
