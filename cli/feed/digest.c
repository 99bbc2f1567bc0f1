/*
 * A digest of all batches' bytes and order: the sum over rows of XXH3-128(row's bytes, keyed by
 * epoch and global position). A sum does not depend on who delivered the row when: two ranks'
 * digests add up to one process's, a stopped run's and the resumed run's to the whole's; the key
 * makes the order count.
 */
#include "feed/feed.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add(struct feed_digest *digest, XXH128_hash_t h)
{
    uint64_t lo = digest->lo + h.low64;
    digest->hi += h.high64 + (lo < digest->lo);
    digest->lo = lo;
}

/* One row's bytes of a field. */
static const unsigned char *row_of(const struct mr_batch *batch, int f, const unsigned char *data,
                                   uint64_t r, uint64_t *bytes)
{
    const struct mr_batch_field *bf = &batch->field[f];
    if (!bf->offsets) {
        *bytes = bf->bytes / batch->n;
        return data + r * *bytes;
    }
    uint64_t total = bf->offsets[batch->n], item = total ? bf->bytes / total : 0;
    *bytes = (bf->offsets[r + 1] - bf->offsets[r]) * item;
    return data + bf->offsets[r] * item;
}

void feed_digest_add(struct feed_digest *digest, const struct mr_batch *batch,
                     const unsigned char *const data[])
{
    for (uint64_t r = 0; r < batch->n; r++) {
        uint64_t key[3] = {batch->epoch, batch->positions[r], 0};
        for (int f = 0; f < batch->n_fields; f++) {
            uint64_t bytes;
            const unsigned char *row = row_of(batch, f, data[f], r, &bytes);
            key[2] = (uint64_t)f;
            add(digest, XXH3_128bits_withSeed(row, bytes, XXH3_64bits(key, sizeof key)));
        }
    }
}

void feed_digest_format(const struct feed_digest *digest, char out[33])
{
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, digest->hi, digest->lo);
}

int feed_digest_parse(const char *text, struct feed_digest *out)
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdefABCDEF") != 32)
        return mr_error_set(
            MR_EOPTION, "--digest-from %s: expected 32 hex digits, as --digest prints them", text);
    sscanf(text, "%16" SCNx64 "%16" SCNx64, &out->hi, &out->lo);
    return 0;
}
