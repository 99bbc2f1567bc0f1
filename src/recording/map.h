/* A hash table from 64-bit keys to 32-bit values, for small sets: processes, threads, names. Zeroed
 * memory is an empty one. */
#ifndef MR_RECORDING_MAP_H
#define MR_RECORDING_MAP_H

#include "base/base.h"

struct mr_map_slot {
    uint64_t key;
    uint32_t value;
    bool used;
};
struct mr_map {
    struct mr_map_slot *slots;
    uint64_t n, n_slots; /* a power of two */
};

/* The value of key, made with `value` when it is new. [out] out_new: may be NULL. NULL: no memory,
 * and the error is set. */
uint32_t *mr_map_at(struct mr_map *map, uint64_t key, uint32_t value, bool *out_new);
/* NULL: not there. */
const uint32_t *mr_map_find(const struct mr_map *map, uint64_t key);
void mr_map_free(struct mr_map *map);

/* Texts, each kept once and numbered from 0 on; number 0 is "". */
struct mr_texts {
    /* each ends with a NUL; valid UTF-8: what is not comes in as '?', and ends at a NUL */
    const char **text;
    uint32_t *bytes;
    uint32_t n, capacity;
    uint32_t *slots; /* text numbers; MR_TEXTS_FREE: free */
    uint32_t n_slots;
    char **blocks;
    uint32_t n_blocks;
    size_t block_left;
    char *block_at;
};
/* Would a text stay as it is: valid UTF-8 without a NUL? */
bool mr_text_is_clean(const char *text, size_t bytes);
int mr_texts_init(struct mr_texts *texts);
/* The number of a text, a new one when it was not there. [out] out_new may be NULL. Returns 0 or
 * -ENOMEM with the error set. */
int mr_texts_add(struct mr_texts *texts, const char *text, size_t bytes, uint32_t *out,
                 bool *out_new);
void mr_texts_free(struct mr_texts *texts);

#endif
