/*
 * Batches by a budget of tokens: samples of about the same length together.
 *
 * Windows of the epoch's random order are sorted by length and cut into batches, as long as the
 * number of samples times the longest is within the budget; the batches of a window then come in a
 * random order. An epoch's table (its order, and where batches begin) is made when it is first
 * used.
 */
#include "sampler/kept.h"
#include "sampler/sampler.h"

#include <stdio.h>
#include <string.h>

#define WINDOW      8192
#define EPOCHS_KEPT 2 /* both are in use while a loader goes from one to the next */

struct buckets {
    uint32_t *length; /* of each sample */
    uint64_t budget, window;
    struct mr_kept kept;
};

struct cut {
    uint64_t first, n; /* in the table's order */
};

struct table {
    uint64_t *order; /* n_samples indices */
    struct cut *batch;
    uint64_t n_batches, room;
    double fill;
};

static void table_destroy(void *table)
{
    struct table *t = table;
    if (!t)
        return;
    free(t->order);
    free(t->batch);
    free(t);
}

struct key {
    uint32_t length;
    uint64_t index;
};

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Cuts a sorted window, whose first sample is at `first`. Lengths ascend: the next is the
 * longest. */
static int cut(const struct mr_sampler *s, struct table *t, const struct key *key, uint64_t n,
               uint64_t first)
{
    const struct buckets *b = s->state;
    for (uint64_t i = 0, count; i < n; i += count) {
        for (count = 1; i + count < n && count < s->max_batch &&
                        key[i + count].length * (count + 1) <= b->budget;
             count++)
            ;
        int rc = mr_grow("bucket sampler", &t->batch, &t->room, t->n_batches + 1, sizeof *t->batch);
        if (rc < 0)
            return rc;
        t->batch[t->n_batches++] = (struct cut){first + i, count};
    }
    return 0;
}

/* A window's batches in a random order. */
static int shuffle(struct cut *batch, uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct cut *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return mr_error_nomem("bucket sampler", n * sizeof *sorted);
    memcpy(sorted, batch, n * sizeof *sorted);
    for (uint64_t i = 0; i < n; i++)
        batch[i] = sorted[mr_permute(i, n, seed, epoch)];
    free(sorted);
    return 0;
}

static int add_window(const struct mr_sampler *s, struct table *t, uint64_t epoch, uint64_t first,
                      struct key *key)
{
    const struct buckets *b = s->state;
    uint64_t n = MR_MIN(b->window, s->n_samples - first), before = t->n_batches;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t index = mr_permute(first + i, s->n_samples, s->seed, epoch);
        key[i] = (struct key){b->length[index], index};
    }
    qsort(key, n, sizeof *key, compare);
    for (uint64_t i = 0; i < n; i++)
        t->order[first + i] = key[i].index;
    int rc = cut(s, t, key, n, first);
    if (rc < 0)
        return rc;
    return shuffle(t->batch + before, t->n_batches - before, mr_mix64(s->seed ^ ~first), epoch);
}

static double fill_of(const struct buckets *b, const struct table *t)
{
    double used = 0, padded = 0;
    for (uint64_t k = 0; k < t->n_batches; k++) {
        const uint64_t *index = t->order + t->batch[k].first;
        for (uint64_t i = 0; i < t->batch[k].n; i++)
            used += b->length[index[i]];
        padded += (double)b->length[index[t->batch[k].n - 1]] * (double)t->batch[k].n;
    }
    return padded > 0 ? used / padded : 1;
}

static int build(const void *sampler, uint64_t epoch, uint64_t part, void **out)
{
    const struct mr_sampler *s = sampler;
    const struct buckets *b = s->state;
    struct table *t = calloc(1, sizeof *t);
    struct key *key = malloc(b->window * sizeof *key);
    int rc = 0;
    (void)part;
    if (t)
        t->order = malloc(s->n_samples * sizeof *t->order);
    if (!t || !key || !t->order)
        rc = mr_error_nomem("bucket sampler", s->n_samples * sizeof *t->order);
    for (uint64_t first = 0; first < s->n_samples && rc == 0; first += b->window)
        rc = add_window(s, t, epoch, first, key);
    free(key);
    if (rc < 0) {
        table_destroy(t);
        return rc;
    }
    t->fill = fill_of(b, t);
    *out = t;
    return 0;
}

static int acquire(const struct mr_sampler *s, uint64_t epoch, struct mr_kept_table **out)
{
    struct buckets *b = s->state;
    return mr_kept_acquire(&b->kept, epoch, 0, build, s, out);
}

static int buckets_count(const struct mr_sampler *s, uint64_t epoch, uint64_t *out)
{
    struct buckets *b = s->state;
    struct mr_kept_table *kept;
    int rc = acquire(s, epoch, &kept);
    if (rc < 0)
        return rc;
    *out = ((const struct table *)kept->table)->n_batches;
    mr_kept_release(&b->kept, kept);
    return 0;
}

static int buckets_batch(const struct mr_sampler *s, uint64_t epoch, uint64_t batch,
                         struct mr_batch_item *items)
{
    struct buckets *b = s->state;
    struct mr_kept_table *kept;
    int rc = acquire(s, epoch, &kept);
    if (rc < 0)
        return rc;
    const struct table *t = kept->table;
    const struct cut *at = &t->batch[batch];
    for (uint64_t i = 0; i < at->n; i++)
        items[i] = (struct mr_batch_item){.index = t->order[at->first + i]};
    rc = (int)at->n;
    mr_kept_release(&b->kept, kept);
    return rc;
}

static int buckets_fill(const struct mr_sampler *s, uint64_t epoch, double *out)
{
    struct buckets *b = s->state;
    struct mr_kept_table *kept;
    int rc = acquire(s, epoch, &kept);
    if (rc < 0)
        return rc;
    *out = ((const struct table *)kept->table)->fill;
    mr_kept_release(&b->kept, kept);
    return 0;
}

static int check(const struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    if (!opts->lengths || opts->n_lengths != s->n_samples)
        return mr_error_set(MR_EOPTION,
                            "bucket sampler: %llu lengths for %llu samples: expected one a sample",
                            (unsigned long long)(opts->lengths ? opts->n_lengths : 0),
                            (unsigned long long)s->n_samples);
    if (opts->max_tokens < 1 || opts->max_batch > MR_MOST_BATCH)
        return mr_error_set(
            MR_EOPTION,
            "bucket sampler: max_tokens %llu, max_batch %llu: expected 1 or more tokens, "
            "and at most %llu samples",
            (unsigned long long)opts->max_tokens, (unsigned long long)opts->max_batch,
            MR_MOST_BATCH);
    for (uint64_t i = 0; i < s->n_samples; i++)
        if (opts->lengths[i] > opts->max_tokens)
            return mr_error_set(MR_EOPTION,
                                "bucket sampler: sample %llu has %u tokens, max_tokens is %llu: "
                                "raise it, or leave the sample out",
                                (unsigned long long)i, opts->lengths[i],
                                (unsigned long long)opts->max_tokens);
    return 0;
}

static int compare_lengths(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The most samples that a batch of these lengths can have: the shortest ones. */
static int most_samples(const struct mr_sampler *s, const struct buckets *b, uint64_t *out)
{
    uint64_t most = MR_MIN(MR_MIN(b->window, s->n_samples), MR_MOST_BATCH), n = 1;
    uint32_t *sorted = malloc(s->n_samples * sizeof *sorted);
    if (!sorted)
        return mr_error_nomem("bucket sampler", s->n_samples * sizeof *sorted);
    memcpy(sorted, b->length, s->n_samples * sizeof *sorted);
    qsort(sorted, s->n_samples, sizeof *sorted, compare_lengths);
    while (n < most && sorted[n] * (n + 1) <= b->budget)
        n++;
    free(sorted);
    *out = n;
    return 0;
}

static int buckets_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct buckets *b = s->state;
    uint64_t bytes, most = 1;
    int rc = check(s, opts);
    if (rc < 0)
        return rc;
    if (!mr_mul(s->n_samples, sizeof(struct key), &bytes)) /* bounds all that is made of them */
        return mr_error_nomem("bucket sampler", UINT64_MAX);
    bytes = s->n_samples * sizeof *b->length;
    b->length = calloc(s->n_samples, sizeof *b->length);
    if (!b->length)
        return mr_error_nomem("bucket sampler", bytes);
    memcpy(b->length, opts->lengths, bytes);
    b->budget = opts->max_tokens;
    b->window = MR_MIN(opts->window ? opts->window : WINDOW, s->n_samples);
    mr_kept_init(&b->kept, EPOCHS_KEPT, table_destroy);
    rc = most_samples(s, b, &most);
    if (rc < 0)
        return rc;
    s->length = s->n_samples;
    s->max_batch = opts->max_batch ? MR_MIN(opts->max_batch, most) : most;
    snprintf(s->text, sizeof s->text,
             "buckets(n=%llu,hash=%016llx,budget=%llu,window=%llu,max=%llu,seed=%llu)",
             (unsigned long long)s->n_samples,
             (unsigned long long)mr_hash(MR_HASH_START, b->length, bytes),
             (unsigned long long)b->budget, (unsigned long long)b->window,
             (unsigned long long)s->max_batch, (unsigned long long)s->seed);
    return 0;
}

static void buckets_close(struct mr_sampler *s)
{
    struct buckets *b = s->state;
    mr_kept_end(&b->kept);
    free(b->length);
}

const struct mr_sampler_ops mr_sampler_buckets = {
    .name = "buckets",
    .state_size = sizeof(struct buckets),
    .open = buckets_open,
    .close = buckets_close,
    .n_batches = buckets_count,
    .batch = buckets_batch,
    .fill = buckets_fill,
};
