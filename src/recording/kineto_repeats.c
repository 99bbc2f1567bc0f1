/*
 * Kineto: events that are in the file twice, word for word, as after a merge of overlapping parts.
 * Each counts once. The first reading keeps 8 bytes of hash per event, in buckets by the hash's
 * highest bits, so that growing and sorting never move all of them; after it, only those that came
 * twice stay, with a bit that says whether the second reading has met them.
 */
#include "recording/kineto.h"

#include <errno.h>
#include <string.h>

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
    return mr_mix64(h ^ word);
}

#define WAS_MET 1u /* the lowest bit; of a stored hash it is else 0 */

static struct mr_kineto_bucket *bucket_of(struct mr_kineto *k, uint64_t hash)
{
    return &k->repeats[hash >> (64 - MR_KINETO_BUCKET_BITS)];
}

int mr_kineto_note(struct mr_kineto *k, struct mr_json_text text)
{
    uint64_t hash = hash_of(text) & ~(uint64_t)WAS_MET;
    struct mr_kineto_bucket *b = bucket_of(k, hash);
    if (b->n == b->capacity) {
        size_t capacity = b->capacity ? b->capacity + b->capacity / 2 : 64;
        uint64_t *hashes = realloc(b->hashes, capacity * sizeof *hashes);
        if (!hashes)
            return mr_error_nomem(k->path, capacity * sizeof *hashes);
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

void mr_kineto_find_repeats(struct mr_kineto *k)
{
    for (size_t i = 0; i < MR_COUNT(k->repeats); i++)
        k->n_repeats += keep_repeated(&k->repeats[i]);
}

bool mr_kineto_is_repeat(struct mr_kineto *k, struct mr_json_text text)
{
    if (k->n_repeats == 0)
        return false;
    uint64_t hash = hash_of(text) & ~(uint64_t)WAS_MET;
    const struct mr_kineto_bucket *b = bucket_of(k, hash);
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == b->n || (b->hashes[low] & ~(uint64_t)WAS_MET) != hash)
        return false;
    bool was_met = b->hashes[low] & WAS_MET;
    b->hashes[low] |= WAS_MET;
    return was_met;
}

void mr_kineto_free_repeats(struct mr_kineto *k)
{
    for (size_t i = 0; i < MR_COUNT(k->repeats); i++)
        free(k->repeats[i].hashes);
}
