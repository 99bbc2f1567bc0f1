/* Texts and their numbers: lookups take no lock; a new text is added under one. */
#include "recorder/private.h"

#include <signal.h>
#include <string.h>

#define MAX_BYTES (256u << 20) /* of all texts; beyond it they have no name */
#define MAX_TEXT  (64u << 10)
#define ARENA     (256u << 10)
#define FIRST     1024u

struct text {
    struct text *next; /* in the order of numbers */
    uint64_t hash;
    uint32_t id, bytes;
    char data[];
};

struct table {
    uint32_t n; /* slots, a power of two */
    _Atomic(struct text *) slots[];
};

static struct {
    struct record_lock lock;
    _Atomic(struct table *) table;
    uint32_t n;
    size_t bytes;
    char *arena;
    size_t left;
    struct text *newest, *pending; /* pending: the first that is not in the part */
} strings;

static _Thread_local volatile sig_atomic_t
    adding; /* a signal handler that interrupts it has no names */

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xe7037ed1a0b428dbull);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = bytes, word = 0;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, text + i, 8);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, text + i, bytes - i);
    return mix(hash, word);
}

static struct text *find(struct table *table, const char *data, uint32_t bytes, uint64_t hash)
{
    if (!table)
        return NULL;
    for (uint32_t i = (uint32_t)hash & (table->n - 1);; i = (i + 1) & (table->n - 1)) {
        struct text *text = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (!text ||
            (text->hash == hash && text->bytes == bytes && memcmp(text->data, data, bytes) == 0))
            return text;
    }
}

static void insert(struct table *table, struct text *text)
{
    uint32_t i = (uint32_t)text->hash & (table->n - 1);
    while (atomic_load_explicit(&table->slots[i], memory_order_relaxed))
        i = (i + 1) & (table->n - 1);
    atomic_store_explicit(&table->slots[i], text, memory_order_release);
}

/* Who still searches the old table finds what it knew; so old tables stay, as much memory as the
 * last one in all. */
static struct table *grown(struct table *old)
{
    uint32_t n = old ? old->n * 2 : FIRST;
    struct table *table = record_map(sizeof *table + n * sizeof table->slots[0]);
    if (!table)
        return NULL;
    table->n = n;
    for (uint32_t i = 0; old && i < old->n; i++) {
        struct text *text = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (text)
            insert(table, text);
    }
    atomic_store_explicit(&strings.table, table, memory_order_release);
    return table;
}

static struct text *allocate(uint32_t bytes)
{
    size_t need = (sizeof(struct text) + bytes + 7) & ~(size_t)7;
    if (strings.bytes + need > MAX_BYTES)
        return NULL;
    if (need > strings.left) {
        char *arena = record_map(ARENA);
        if (!arena)
            return NULL;
        strings.arena = arena;
        strings.left = ARENA;
    }
    struct text *text = (struct text *)(void *)strings.arena;
    strings.arena += need;
    strings.left -= need;
    strings.bytes += need;
    return text;
}

static uint32_t add(const char *data, uint32_t bytes, uint64_t hash)
{
    struct table *table = atomic_load_explicit(&strings.table, memory_order_relaxed);
    struct text *text = find(table, data, bytes, hash);
    if (text)
        return text->id;
    if (!table || strings.n >= table->n / 2)
        table = grown(table);
    text = table ? allocate(bytes) : NULL;
    if (!text)
        return 0;
    *text = (struct text){.hash = hash, .id = ++strings.n, .bytes = bytes};
    memcpy(text->data, data, bytes);
    if (strings.newest)
        strings.newest->next = text;
    if (!strings.pending)
        strings.pending = text;
    strings.newest = text;
    insert(table, text);
    return text->id;
}

uint32_t record_string(const char *text)
{
    if (!text)
        return 0;
    uint32_t bytes = (uint32_t)strnlen(text, MAX_TEXT);
    uint64_t hash = hash_of(text, bytes);
    struct text *known =
        find(atomic_load_explicit(&strings.table, memory_order_acquire), text, bytes, hash);
    if (known)
        return known->id;
    if (adding)
        return 0;
    adding = 1;
    record_lock(&strings.lock);
    uint32_t id = add(text, bytes, hash);
    record_unlock(&strings.lock);
    adding = 0;
    return id;
}

/* Texts that count, "seq = 17", come once, as a rule. */
static bool counts(const char *text, size_t bytes)
{
    while (bytes > 0 && (text[bytes - 1] < '0' || text[bytes - 1] > '9'))
        bytes--;
    return bytes > 0;
}

/* Whether no such text came lately: each place knows the last one of its. A forked child knows
 * what its parent did, which does no harm. */
static bool first_time(uint64_t hash)
{
    static _Atomic(uint16_t) seen[1u << 16];
    _Atomic(uint16_t) *place = &seen[hash & 0xffff];
    uint16_t mark = (uint16_t)(hash >> 48 | 1);
    if (atomic_load_explicit(place, memory_order_relaxed) == mark)
        return false;
    atomic_store_explicit(place, mark, memory_order_relaxed);
    return true;
}

uint32_t record_string_or_text(const char *text, uint32_t max, uint32_t *out_bytes)
{
    size_t bytes = text ? strnlen(text, max + 1) : 0;
    *out_bytes = 0;
    if (bytes == 0 || bytes > max)
        return record_string(text);
    uint64_t hash = hash_of(text, bytes);
    struct text *known = find(atomic_load_explicit(&strings.table, memory_order_acquire), text,
                              (uint32_t)bytes, hash);
    if (known)
        return known->id;
    if (!counts(text, bytes) || !first_time(hash))
        return record_string(text);
    *out_bytes = (uint32_t)bytes;
    return 0;
}

size_t record_strings_take(char *to, size_t bytes, uint32_t *out_n)
{
    size_t used = 0;
    uint32_t n = 0;
    adding = 1;
    record_lock(&strings.lock);
    for (; strings.pending; strings.pending = strings.pending->next, n++) {
        const struct text *text = strings.pending;
        size_t padded = ((size_t)text->bytes + 7) & ~(size_t)7;
        struct mr_part_string head = {text->id, text->bytes};
        if (used + sizeof head + padded > bytes)
            break;
        memcpy(to + used, &head, sizeof head);
        memcpy(to + used + sizeof head, text->data, text->bytes);
        memset(to + used + sizeof head + text->bytes, 0, padded - text->bytes);
        used += sizeof head + padded;
    }
    record_unlock(&strings.lock);
    adding = 0;
    *out_n = n;
    return used;
}

bool record_strings_busy(void)
{
    return adding;
}

void record_strings_forked(void)
{
    memset(&strings, 0, sizeof strings);
    adding = 0;
}
