#include "recording/map.h"

#include <errno.h>
#include <string.h>

static struct mr_map_slot *slot_of(const struct mr_map *map, uint64_t key)
{
    uint64_t at = mr_mix64(key) & (map->n_slots - 1);
    while (map->slots[at].used && map->slots[at].key != key)
        at = (at + 1) & (map->n_slots - 1);
    return &map->slots[at];
}

static int map_grow(struct mr_map *map)
{
    struct mr_map bigger = {.n = map->n, .n_slots = map->n_slots ? map->n_slots * 2 : 64};
    bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
    if (!bigger.slots)
        return mr_error_nomem("a recording's numbers", bigger.n_slots * sizeof(*bigger.slots));
    for (uint64_t i = 0; i < map->n_slots; i++)
        if (map->slots[i].used)
            *slot_of(&bigger, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = bigger;
    return 0;
}

uint32_t *mr_map_at(struct mr_map *map, uint64_t key, uint32_t value, bool *out_new)
{
    if (map->n * 2 >= map->n_slots && map_grow(map) < 0)
        return NULL;
    struct mr_map_slot *slot = slot_of(map, key);
    if (out_new)
        *out_new = !slot->used;
    if (!slot->used) {
        *slot = (struct mr_map_slot){.key = key, .value = value, .used = true};
        map->n++;
    }
    return &slot->value;
}

const uint32_t *mr_map_find(const struct mr_map *map, uint64_t key)
{
    if (map->n_slots == 0)
        return NULL;
    const struct mr_map_slot *slot = slot_of(map, key);
    return slot->used ? &slot->value : NULL;
}

void mr_map_free(struct mr_map *map)
{
    free(map->slots);
    *map = (struct mr_map){0};
}

#define MR_TEXTS_FREE UINT32_MAX
#define BLOCK_BYTES   ((size_t)64 << 10)

int mr_texts_init(struct mr_texts *texts)
{
    *texts = (struct mr_texts){0};
    return mr_texts_add(texts, "", 0, &(uint32_t){0}, NULL);
}

void mr_texts_free(struct mr_texts *texts)
{
    for (uint32_t i = 0; i < texts->n_blocks; i++)
        free(texts->blocks[i]);
    free(texts->blocks);
    free(texts->text);
    free(texts->bytes);
    free(texts->slots);
    *texts = (struct mr_texts){0};
}

static uint32_t *text_slot(const struct mr_texts *texts, uint32_t *slots, uint32_t n_slots,
                           const char *text, size_t bytes)
{
    uint32_t at = (uint32_t)mr_hash(MR_HASH_START, text, bytes) & (n_slots - 1);
    while (slots[at] != MR_TEXTS_FREE &&
           (texts->bytes[slots[at]] != bytes || memcmp(texts->text[slots[at]], text, bytes)))
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

static int texts_grow(struct mr_texts *texts)
{
    uint32_t capacity = texts->capacity ? texts->capacity * 2 : 256, n_slots = capacity * 2;
    if (capacity > (1u << 29))
        return mr_error_set(MR_ELIMIT, "a recording has more than %u different names", texts->n);
    const char **text = realloc(texts->text, capacity * sizeof(*text));
    texts->text = text ? text : texts->text;
    uint32_t *bytes = realloc(texts->bytes, capacity * sizeof(*bytes));
    texts->bytes = bytes ? bytes : texts->bytes;
    uint32_t *slots = malloc(n_slots * sizeof(*slots));
    if (!text || !bytes || !slots) {
        free(slots);
        return mr_error_nomem("a recording's names", n_slots * sizeof(*slots));
    }
    memset(slots, 0xff, n_slots * sizeof(*slots));
    for (uint32_t i = 0; i < texts->n; i++)
        *text_slot(texts, slots, n_slots, text[i], bytes[i]) = i;
    free(texts->slots);
    texts->slots = slots;
    texts->n_slots = n_slots;
    texts->capacity = capacity;
    return 0;
}

/* Room for a text and its NUL; large texts get a block of their own. */
static char *text_alloc(struct mr_texts *texts, size_t bytes)
{
    if (bytes > texts->block_left) {
        size_t block_bytes = MR_MAX(bytes, BLOCK_BYTES);
        char **blocks = realloc(texts->blocks, (texts->n_blocks + 1) * sizeof(*blocks));
        if (blocks)
            texts->blocks = blocks;
        char *block = blocks ? malloc(block_bytes) : NULL;
        if (!block) {
            mr_error_nomem("a recording's names", block_bytes);
            return NULL;
        }
        texts->blocks[texts->n_blocks++] = block;
        texts->block_at = block;
        texts->block_left = block_bytes;
    }
    char *copy = texts->block_at;
    texts->block_at += bytes;
    texts->block_left -= bytes;
    return copy;
}

/* Bytes of the UTF-8 character at text, 0: none. */
static size_t utf8_bytes(const unsigned char *text, size_t left)
{
    size_t n = text[0] < 0x80                      ? 1
               : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
               : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
               : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                   : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    bool surrogate = text[0] == 0xed && text[1] >= 0xa0,
         beyond = text[0] == 0xf4 && text[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : n;
}

/* Bytes from the beginning on that are valid UTF-8. */
static size_t clean_bytes(const char *text, size_t bytes)
{
    size_t good = 0;
    for (size_t n;
         good < bytes && (n = utf8_bytes((const unsigned char *)text + good, bytes - good)) > 0;)
        good += n;
    return good;
}

bool mr_text_is_clean(const char *text, size_t bytes)
{
    return !memchr(text, 0, bytes) && clean_bytes(text, bytes) == bytes;
}

static int texts_add_clean(struct mr_texts *texts, const char *text, size_t bytes, uint32_t *out,
                           bool *out_new)
{
    if (texts->n == texts->capacity) {
        int rc = texts_grow(texts);
        if (rc < 0)
            return rc;
    }
    uint32_t *slot = text_slot(texts, texts->slots, texts->n_slots, text, bytes);
    if (out_new)
        *out_new = *slot == MR_TEXTS_FREE;
    if (*slot == MR_TEXTS_FREE) {
        char *copy = text_alloc(texts, bytes + 1);
        if (!copy)
            return -ENOMEM;
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
        texts->text[texts->n] = copy;
        texts->bytes[texts->n] = (uint32_t)bytes;
        *slot = texts->n++;
    }
    *out = *slot;
    return 0;
}

int mr_texts_add(struct mr_texts *texts, const char *text, size_t bytes, uint32_t *out,
                 bool *out_new)
{
    bytes = strnlen(text, bytes);
    if (bytes >= (1u << 30))
        return mr_error_set(MR_ELIMIT, "a recording's name of %zu bytes", bytes);
    size_t good = clean_bytes(text, bytes);
    if (good == bytes)
        return texts_add_clean(texts, text, bytes, out, out_new);
    char *clean = malloc(bytes + 1);
    if (!clean)
        return mr_error_nomem("a recording's name", bytes);
    memcpy(clean, text, bytes);
    for (size_t i = good; i < bytes;) {
        size_t n = utf8_bytes((const unsigned char *)clean + i, bytes - i);
        if (n == 0)
            clean[i] = '?';
        i += n ? n : 1;
    }
    int rc = texts_add_clean(texts, clean, bytes, out, out_new);
    free(clean);
    return rc;
}
