/* Members with the same key form a sample; samples are ordered by their first member. */
#include "dataset/tar/tar.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define MAX_PARTS 1024u /* members of one sample; the limit keeps the pairwise comparison cheap */

struct group {
    const char *archive;
    const struct mr_tar_index *index;
    struct mr_tar_samples *s;
    uint32_t shard;
    uint64_t before;     /* samples of earlier archives */
    uint32_t *sample_of; /* of each member */
    uint32_t *previous;  /* for each member: the previous member of its sample */
    uint32_t *last;      /* of each sample from `before` on */
    uint32_t *slot;      /* a hash table of samples, counted from `before` */
    uint64_t mask;
};

void mr_tar_samples_free(struct mr_tar_samples *s)
{
    free(s->shard);
    free(s->first);
    free(s->member);
    *s = (struct mr_tar_samples){0};
}

static const char *name_of(const struct group *g, uint32_t m)
{
    return g->index->names + g->index->member[m].name;
}

/* Bytes of the key: the path up to the first dot of its base name. */
static size_t key_bytes(const char *path)
{
    return (size_t)(mr_tar_extension(path) - 1 - path);
}

static bool same_key(const struct group *g, uint32_t m, const char *key, size_t n)
{
    const char *name = name_of(g, m);
    return strncmp(name, key, n) == 0 && key_bytes(name) == n;
}

static int add_sample(struct group *g, uint32_t m)
{
    struct mr_tar_samples *s = g->s;
    if (s->n == s->room) {
        uint64_t room = s->room, want = s->n + 1; /* both arrays grow together */
        if (mr_grow(g->archive, &s->shard, &room, want, sizeof *s->shard) < 0)
            return -ENOMEM;
        if (mr_grow(g->archive, &s->first, &s->room, want, sizeof *s->first) < 0)
            return -ENOMEM;
    }
    if (s->n >= MR_TAR_NONE)
        return mr_error_set(MR_ELIMIT, "%s: more than 2^32 samples", g->archive);
    s->shard[s->n] = g->shard;
    s->first[s->n] = m;
    g->last[s->n - g->before] = MR_TAR_NONE;
    s->n++;
    return 0;
}

static int duplicate(const struct group *g, uint32_t m, uint32_t other)
{
    const char *name = name_of(g, m);
    return mr_error_set(
        MR_EFORMAT,
        "%s: '%.200s' at byte %llu and '%.200s' at byte %llu: one key has the extension twice",
        g->archive, name_of(g, other),
        (unsigned long long)(g->index->member[other].offset - MR_TAR_BLOCK), name,
        (unsigned long long)(g->index->member[m].offset - MR_TAR_BLOCK));
}

/* Adds member m to sample i, counted from `before`. */
static int join(struct group *g, uint32_t m, uint32_t i)
{
    const char *ext = mr_tar_extension(name_of(g, m));
    uint32_t n = 0;
    for (uint32_t p = g->last[i]; p != MR_TAR_NONE; p = g->previous[p]) {
        if (strcasecmp(mr_tar_extension(name_of(g, p)), ext) == 0)
            return duplicate(g, m, p);
        if (++n == MAX_PARTS)
            return mr_error_set(
                MR_ELIMIT, "%s: '%.200s' at byte %llu: more than %u members of one key", g->archive,
                name_of(g, m), (unsigned long long)(g->index->member[m].offset - MR_TAR_BLOCK),
                MAX_PARTS);
    }
    g->previous[m] = g->last[i];
    g->last[i] = m;
    g->sample_of[m] = (uint32_t)(g->before + i);
    return 0;
}

static int take(struct group *g, uint32_t m, uint32_t *current)
{
    const char *name = name_of(g, m);
    if (!mr_tar_extension(name))
        return 0;
    size_t n = key_bytes(name);
    if (*current != MR_TAR_NONE && same_key(g, g->s->first[g->before + *current], name, n))
        return join(g, m, *current);
    uint64_t at = mr_mix64(mr_hash(MR_HASH_START, name, n)) & g->mask;
    while (g->slot[at] != MR_TAR_NONE &&
           !same_key(g, g->s->first[g->before + g->slot[at]], name, n))
        at = (at + 1) & g->mask;
    if (g->slot[at] == MR_TAR_NONE) {
        uint32_t i = (uint32_t)(g->s->n - g->before);
        int rc = add_sample(g, m);
        if (rc < 0)
            return rc;
        g->slot[at] = i;
    }
    *current = g->slot[at];
    return join(g, m, *current);
}

int mr_tar_group(const char *archive, uint32_t shard, const struct mr_tar_index *index,
                 struct mr_tar_samples *s, uint32_t **sample_of)
{
    struct group g = {.archive = archive, .index = index, .s = s, .shard = shard, .before = s->n};
    uint64_t slots = 16, n = MR_MAX(index->n, 1);
    while (slots < 2 * n)
        slots *= 2;
    g.mask = slots - 1;
    g.sample_of = malloc(n * sizeof *g.sample_of);
    g.previous = malloc(n * sizeof *g.previous);
    g.last = malloc(n * sizeof *g.last);
    g.slot = malloc(slots * sizeof *g.slot);
    int rc = 0;
    if (!g.sample_of || !g.previous || !g.last || !g.slot) {
        rc = mr_error_nomem(archive, (3 * n + slots) * sizeof *g.slot);
        goto free_all;
    }
    memset(g.sample_of, 0xff, n * sizeof *g.sample_of); /* MR_TAR_NONE */
    memset(g.slot, 0xff, slots * sizeof *g.slot);
    uint32_t current = MR_TAR_NONE;
    for (uint64_t m = 0; m < index->n && rc == 0; m++)
        rc = take(&g, (uint32_t)m, &current);
free_all:
    free(g.previous);
    free(g.last);
    free(g.slot);
    if (rc < 0)
        free(g.sample_of);
    else
        *sample_of = g.sample_of;
    return rc;
}
