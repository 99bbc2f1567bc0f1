/* Values kept for exact medians, and groups of them by key. */
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int reserve(struct mr_series *s, uint64_t n)
{
    if (n <= s->capacity)
        return 0;
    uint64_t capacity = MR_MAX(n, s->capacity ? 2 * s->capacity : 4);
    void *values = realloc(s->values, capacity * (s->wide ? 8 : 4));
    if (!values)
        return mr_error_nomem("durations", capacity * (s->wide ? 8 : 4));
    s->values = values;
    s->capacity = capacity;
    return 0;
}

static int widen(struct mr_series *s)
{
    uint64_t *wide = malloc(MR_MAX(s->capacity, (uint64_t)4) * sizeof *wide);
    if (!wide)
        return mr_error_nomem("durations", s->capacity * sizeof *wide);
    for (uint64_t i = 0; i < s->n; i++)
        wide[i] = ((const uint32_t *)s->values)[i];
    free(s->values);
    s->values = wide;
    s->capacity = MR_MAX(s->capacity, (uint64_t)4);
    s->wide = true;
    return 0;
}

int mr_series_add(struct mr_series *s, uint64_t value)
{
    int rc = value > UINT32_MAX && !s->wide ? widen(s) : 0;
    rc = rc ? rc : s->n == s->capacity ? reserve(s, s->n + 1) : 0;
    if (rc)
        return rc;
    if (s->wide)
        ((uint64_t *)s->values)[s->n++] = value;
    else
        ((uint32_t *)s->values)[s->n++] = (uint32_t)value;
    return 0;
}

uint64_t mr_series_at(const struct mr_series *s, uint64_t i)
{
    return s->wide ? ((const uint64_t *)s->values)[i] : ((const uint32_t *)s->values)[i];
}

int mr_series_append(struct mr_series *s, const struct mr_series *others)
{
    int rc = others->wide && !s->wide ? widen(s) : 0;
    rc = rc ? rc : reserve(s, s->n + others->n);
    for (uint64_t i = 0; i < others->n && rc == 0; i++)
        rc = mr_series_add(s, mr_series_at(others, i));
    return rc;
}

void mr_series_free(struct mr_series *s)
{
    free(s->values);
    *s = (struct mr_series){0};
}

/* Quickselect with the middle of three: afterwards the k-th smallest stands at k, none below it is
 * larger. */
#define SELECT(type)                                                                               \
    static type select_##type(type *v, uint64_t n, uint64_t k)                                     \
    {                                                                                              \
        uint64_t low = 0, high = n - 1;                                                            \
        while (low < high) {                                                                       \
            type a = v[low], b = v[low + (high - low) / 2], c = v[high];                           \
            type pivot = MR_MAX(MR_MIN(a, b), MR_MIN(MR_MAX(a, b), c));                            \
            uint64_t i = low, j = high;                                                            \
            for (;;) {                                                                             \
                while (v[i] < pivot)                                                               \
                    i++;                                                                           \
                while (v[j] > pivot)                                                               \
                    j--;                                                                           \
                if (i >= j)                                                                        \
                    break;                                                                         \
                type kept = v[i];                                                                  \
                v[i++] = v[j];                                                                     \
                v[j--] = kept;                                                                     \
            }                                                                                      \
            if (k <= j)                                                                            \
                high = j;                                                                          \
            else                                                                                   \
                low = j + 1;                                                                       \
        }                                                                                          \
        return v[k];                                                                               \
    }
SELECT(uint32_t)
SELECT(uint64_t)

static uint64_t smallest_from(struct mr_series *s, uint64_t k)
{
    return s->wide ? select_uint64_t(s->values, s->n, k) : select_uint32_t(s->values, s->n, k);
}

void mr_series_stats(struct mr_series *s, struct mr_series_stats *out)
{
    *out = (struct mr_series_stats){.n = s->n, .min = s->n ? UINT64_MAX : 0};
    if (s->n == 0)
        return;
    /* sums of 2^64 values of 2^64 don't overflow */
    unsigned __int128 total = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        uint64_t value = mr_series_at(s, i);
        total += value;
        out->min = MR_MIN(out->min, value);
        out->max = MR_MAX(out->max, value);
    }
    double squares = 0;
    out->total = (double)total;
    out->average = out->total / (double)s->n;
    for (uint64_t i = 0; i < s->n; i++) {
        double off = (double)mr_series_at(s, i) - out->average;
        squares += off * off;
    }
    out->deviation = s->n > 1 ? sqrt(squares / (double)(s->n - 1)) : 0;
    double upper = (double)smallest_from(s, s->n / 2);
    out->median = upper;
    if (s->n % 2 == 0)
        out->median = (upper + (double)smallest_from(s, s->n / 2 - 1)) / 2;
}

/* ---- keys ---- */

static uint32_t bucket_of(const struct mr_keymap *map, struct mr_key key)
{
    uint32_t mask = map->n_buckets - 1;
    uint32_t b = (uint32_t)mr_mix64(key.a * 0x9e3779b97f4a7c15u ^ key.b) & mask;
    while (map->buckets[b]) {
        const struct mr_key *there = &map->keys[map->buckets[b] - 1];
        if (there->a == key.a && there->b == key.b)
            break;
        b = (b + 1) & mask;
    }
    return b;
}

static bool grow(struct mr_keymap *map)
{
    uint32_t capacity = map->capacity ? 2 * map->capacity : 64;
    if (capacity < map->capacity || capacity > UINT32_MAX / 4)
        return false;
    struct mr_key *keys = realloc(map->keys, capacity * sizeof *keys);
    if (!keys)
        return false;
    map->keys = keys;
    uint32_t *buckets = calloc(2ull * capacity, sizeof *buckets);
    if (!buckets)
        return false;
    free(map->buckets);
    map->buckets = buckets;
    map->capacity = capacity;
    map->n_buckets = 2 * capacity;
    for (uint32_t i = 0; i < map->n; i++)
        buckets[bucket_of(map, keys[i])] = i + 1;
    return true;
}

uint32_t mr_keymap_get(const struct mr_keymap *map, struct mr_key key)
{
    if (map->n == 0)
        return MR_NONE;
    return map->buckets[bucket_of(map, key)] - 1; /* 0 - 1 is MR_NONE */
}

uint32_t mr_keymap_put(struct mr_keymap *map, struct mr_key key)
{
    if (map->n == map->capacity && !grow(map)) {
        mr_error_nomem("names", map->capacity * 2ull * (sizeof key + 8));
        return MR_NONE;
    }
    uint32_t b = bucket_of(map, key);
    if (map->buckets[b] == 0) {
        map->keys[map->n] = key;
        map->buckets[b] = ++map->n;
    }
    return map->buckets[b] - 1;
}

void mr_keymap_free(struct mr_keymap *map)
{
    free(map->keys);
    free(map->buckets);
    *map = (struct mr_keymap){0};
}

/* ---- groups ---- */

struct mr_series *mr_groups_at(struct mr_groups *g, struct mr_key key)
{
    uint32_t i = mr_keymap_put(&g->map, key);
    if (i == MR_NONE)
        return NULL;
    if (i >= g->capacity) {
        uint32_t capacity = MR_MAX(i + 1, 2 * g->capacity);
        size_t bytes = (size_t)capacity * g->n_series * sizeof *g->series;
        /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): n_series is 1 or more */
        struct mr_series *series = realloc(g->series, bytes);
        if (!series) {
            mr_error_nomem("names", bytes);
            return NULL;
        }
        memset(series + (size_t)g->capacity * g->n_series, 0,
               (size_t)(capacity - g->capacity) * g->n_series * sizeof *series);
        g->series = series;
        g->capacity = capacity;
    }
    return &g->series[(size_t)i * g->n_series];
}

int mr_groups_merge(struct mr_groups *into, struct mr_groups *from)
{
    int rc = 0;
    for (uint32_t i = 0; i < from->map.n && rc == 0; i++) {
        struct mr_series *to = mr_groups_at(into, from->map.keys[i]);
        rc = to ? 0 : -ENOMEM;
        for (uint32_t k = 0; k < into->n_series && rc == 0; k++) {
            struct mr_series *these = &from->series[(size_t)i * from->n_series + k];
            if (to[k].n == 0) {
                mr_series_free(&to[k]);
                to[k] = *these;
                *these = (struct mr_series){0};
                continue;
            }
            rc = mr_series_append(&to[k], these);
            mr_series_free(these);
        }
    }
    mr_groups_free(from);
    return rc;
}

void mr_groups_free(struct mr_groups *g)
{
    for (size_t i = 0; i < (size_t)MR_MIN(g->map.n, g->capacity) * g->n_series; i++)
        mr_series_free(&g->series[i]);
    free(g->series);
    g->series = NULL;
    g->capacity = 0;
    mr_keymap_free(&g->map);
}
