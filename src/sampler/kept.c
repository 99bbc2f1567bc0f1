/* Tables that are built once, by whoever needs them first, and kept until others need the place. */
#include "sampler/kept.h"

#include <stdbool.h>
#include <stddef.h>

void mr_kept_init(struct mr_kept *kept, uint32_t n, void (*destroy)(void *table))
{
    pthread_mutex_init(&kept->lock, NULL); /* cannot fail on Linux with default attributes */
    pthread_cond_init(&kept->changed, NULL);
    kept->n = n;
    kept->destroy = destroy;
}

void mr_kept_end(struct mr_kept *kept)
{
    if (kept->n == 0)
        return;
    for (uint32_t i = 0; i < kept->n; i++)
        if (kept->slot[i].state == MR_KEPT_READY)
            kept->destroy(kept->slot[i].table);
    pthread_cond_destroy(&kept->changed);
    pthread_mutex_destroy(&kept->lock);
}

static bool is_of(const struct mr_kept_table *t, uint64_t epoch, uint64_t part)
{
    return t->state != MR_KEPT_EMPTY && t->epoch == epoch && t->part == part;
}

/* Returns the table, or else a place to build it in, or NULL if all are in use. [lock] */
static struct mr_kept_table *find(struct mr_kept *kept, uint64_t epoch, uint64_t part)
{
    struct mr_kept_table *oldest = NULL;
    for (uint32_t i = 0; i < kept->n; i++) {
        struct mr_kept_table *t = &kept->slot[i];
        if (is_of(t, epoch, part))
            return t;
        if (t->state == MR_KEPT_BUILDING || t->readers > 0)
            continue;
        if (!oldest || t->state == MR_KEPT_EMPTY ||
            (oldest->state != MR_KEPT_EMPTY && t->last_use < oldest->last_use))
            oldest = t;
    }
    return oldest;
}

int mr_kept_acquire(struct mr_kept *kept, uint64_t epoch, uint64_t part,
                    int (*build)(const void *context, uint64_t epoch, uint64_t part, void **table),
                    const void *context, struct mr_kept_table **out)
{
    int rc = 0;
    pthread_mutex_lock(&kept->lock);
    for (;;) {
        struct mr_kept_table *t = find(kept, epoch, part);
        if (!t || (t->state == MR_KEPT_BUILDING && is_of(t, epoch, part))) {
            pthread_cond_wait(&kept->changed, &kept->lock);
            continue;
        }
        if (is_of(t, epoch, part)) {
            t->readers++;
            t->last_use = ++kept->clock;
            *out = t;
            break;
        }
        void *old = t->state == MR_KEPT_READY ? t->table : NULL;
        *t = (struct mr_kept_table){.epoch = epoch, .part = part, .state = MR_KEPT_BUILDING};
        pthread_mutex_unlock(&kept->lock);
        if (old)
            kept->destroy(old);
        rc = build(context, epoch, part, &t->table);
        pthread_mutex_lock(&kept->lock);
        t->state = rc < 0 ? MR_KEPT_EMPTY : MR_KEPT_READY;
        pthread_cond_broadcast(&kept->changed);
        if (rc < 0)
            break;
    }
    pthread_mutex_unlock(&kept->lock);
    return rc;
}

void mr_kept_release(struct mr_kept *kept, struct mr_kept_table *table)
{
    pthread_mutex_lock(&kept->lock);
    if (--table->readers == 0)
        pthread_cond_broadcast(&kept->changed);
    pthread_mutex_unlock(&kept->lock);
}
