/* The caller's own order, or own batches. */
#include "sampler/sampler.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64
#define TEXT_BYTES (NAME_BYTES + 32)

struct custom {
    int (*map)(void *user, uint64_t epoch, uint64_t position, uint64_t count,
               uint64_t *out_indices);
    void *user;
    void (*close)(void *user); /* NULL until the sampler is open */
};

/* States contain the name as a JSON string. */
static int check_name(const char *name)
{
    size_t n = name ? strlen(name) : 1;
    bool good = n > 0 && n < NAME_BYTES;
    for (const char *p = name; good && p && *p; p++)
        good = *p >= ' ' && *p <= '~' && *p != '"' && *p != '\\';
    return good ? 0
                : mr_error_set(MR_EOPTION,
                               "custom sampler: opts.name: expected 1 to %d printable ASCII "
                               "characters without \" and \\, or NULL",
                               NAME_BYTES - 1);
}

/* Name and version, each with a comma behind it; "" if there are none. */
static const char *write_name(const struct mr_sampler_opts *opts, char out[TEXT_BYTES])
{
    char version[32] = "";
    if (opts->version)
        snprintf(version, sizeof version, "version=%llu,", (unsigned long long)opts->version);
    snprintf(out, TEXT_BYTES, "%s%s%s", opts->name ? opts->name : "", opts->name ? "," : "",
             version);
    return out;
}

static bool is_unnamed(const struct mr_sampler_opts *opts)
{
    return !opts->name && opts->version == 0;
}

static int custom_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct custom *c = s->state;
    char name[TEXT_BYTES];
    if (!opts->map)
        return mr_error_set(MR_EOPTION, "custom sampler: opts.map is NULL: expected a function");
    if (opts->length < 1 || opts->length > 1ull << 63)
        return mr_error_set(MR_EOPTION,
                            "custom sampler: opts.length %llu: expected 1..2^63 positions an epoch",
                            (unsigned long long)opts->length);
    int rc = check_name(opts->name);
    if (rc < 0)
        return rc;
    *c = (struct custom){opts->map, opts->user, opts->close};
    s->length = opts->length;
    s->unnamed = is_unnamed(opts);
    snprintf(s->text, sizeof s->text, "custom(%slength=%llu,seed=%llu)", write_name(opts, name),
             (unsigned long long)s->length, (unsigned long long)s->seed);
    return 0;
}

static void custom_close(struct mr_sampler *s)
{
    const struct custom *c = s->state;
    if (c->close)
        c->close(c->user);
}

static int custom_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
                      uint64_t *out)
{
    const struct custom *c = s->state;
    char who[96];
    uint64_t errors = mr_error_count();
    int rc = c->map(c->user, epoch, position, count, out);
    if (rc > 0)
        return mr_error_set(
            MR_ECALLBACK,
            "custom sampler: the callback returned %d: expected 0 or a negative error", rc);
    if (rc < 0) {
        snprintf(who, sizeof who, "custom sampler: position %llu of epoch %llu",
                 (unsigned long long)position, (unsigned long long)epoch);
        return mr_callback_error(who, "map", rc, 0, errors);
    }
    for (uint64_t i = 0; i < count; i++)
        if (out[i] >= s->n_samples)
            return mr_error_set(
                MR_EOPTION,
                "custom sampler: index %llu at position %llu of epoch %llu: expected 0..%llu",
                (unsigned long long)out[i], (unsigned long long)(position + i),
                (unsigned long long)epoch, (unsigned long long)(s->n_samples - 1));
    return 0;
}

const struct mr_sampler_ops mr_sampler_custom = {
    .name = "custom",
    .state_size = sizeof(struct custom),
    .open = custom_open,
    .close = custom_close,
    .map = custom_map,
};

struct batches {
    uint64_t (*n_batches)(void *user, uint64_t epoch);
    int (*batch)(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                 struct mr_batch_item *items);
    void *user;
    void (*close)(void *user); /* NULL until the sampler is open */
};

static int batches_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct batches *b = s->state;
    char name[TEXT_BYTES];
    if (!opts->n_batches || !opts->batch)
        return mr_error_set(MR_EOPTION, "batch sampler: opts.%s is NULL: expected a function",
                            opts->n_batches ? "batch" : "n_batches");
    if (opts->max_batch < 1 || opts->max_batch > MR_MOST_BATCH)
        return mr_error_set(MR_EOPTION,
                            "batch sampler: opts.max_batch %llu: expected 1..%llu samples",
                            (unsigned long long)opts->max_batch, MR_MOST_BATCH);
    int rc = check_name(opts->name);
    if (rc < 0)
        return rc;
    *b = (struct batches){opts->n_batches, opts->batch, opts->user, opts->close};
    s->length = s->n_samples;
    s->max_batch = opts->max_batch;
    s->unnamed = is_unnamed(opts);
    snprintf(s->text, sizeof s->text, "batches(%smax=%llu,seed=%llu)", write_name(opts, name),
             (unsigned long long)s->max_batch, (unsigned long long)s->seed);
    return 0;
}

static void batches_close(struct mr_sampler *s)
{
    const struct batches *b = s->state;
    if (b->close)
        b->close(b->user);
}

static int batches_count(const struct mr_sampler *s, uint64_t epoch, uint64_t *out)
{
    const struct batches *b = s->state;
    char who[96];
    uint64_t errors = mr_error_count();
    uint64_t n = b->n_batches(b->user, epoch);
    int64_t rc = (int64_t)n;
    if (rc < 0 && rc >= INT_MIN) {
        snprintf(who, sizeof who, "batch sampler: epoch %llu", (unsigned long long)epoch);
        return mr_callback_error(who, "n_batches", (int)rc, 0, errors);
    }
    if (n < 1 || n > MR_MOST_BATCHES)
        return mr_error_set(MR_ECALLBACK,
                            "batch sampler: n_batches returned %llu for epoch %llu: expected "
                            "1..2^40, or a negative error",
                            (unsigned long long)n, (unsigned long long)epoch);
    *out = n;
    return 0;
}

static int check_item(const struct mr_sampler *s, const struct mr_batch_item *item, uint64_t epoch,
                      uint64_t batch, int i)
{
    if (item->index >= s->n_samples)
        return mr_error_set(
            MR_EOPTION,
            "batch sampler: index %llu (item %d of batch %llu, epoch %llu): expected 0..%llu",
            (unsigned long long)item->index, i, (unsigned long long)batch,
            (unsigned long long)epoch, (unsigned long long)(s->n_samples - 1));
    if (item->row >= s->max_batch || item->count > UINT32_MAX - item->from)
        return mr_error_set(
            MR_EOPTION,
            "batch sampler: item %d of batch %llu, epoch %llu: row %u, from %u, count %u: expected "
            "a row below %llu, and from + count below 2^32",
            i, (unsigned long long)batch, (unsigned long long)epoch, item->row, item->from,
            item->count, (unsigned long long)s->max_batch);
    return 0;
}

static int batches_batch(const struct mr_sampler *s, uint64_t epoch, uint64_t batch,
                         struct mr_batch_item *items)
{
    const struct batches *b = s->state;
    char who[96];
    memset(items, 0, s->max_batch * sizeof *items);
    uint64_t errors = mr_error_count();
    int n = b->batch(b->user, epoch, batch, s->max_batch, items);
    if (n < 0) {
        snprintf(who, sizeof who, "batch sampler: batch %llu of epoch %llu",
                 (unsigned long long)batch, (unsigned long long)epoch);
        return mr_callback_error(who, "batch", n, 0, errors);
    }
    if (n < 1 || (uint64_t)n > s->max_batch)
        return mr_error_set(MR_ECALLBACK,
                            "batch sampler: the callback returned %d for batch %llu of epoch %llu: "
                            "expected 1..%llu samples, or a negative error",
                            n, (unsigned long long)batch, (unsigned long long)epoch,
                            (unsigned long long)s->max_batch);
    for (int i = 0; i < n; i++) {
        int rc = check_item(s, &items[i], epoch, batch, i);
        if (rc < 0)
            return rc;
    }
    return n;
}

const struct mr_sampler_ops mr_sampler_custom_batches = {
    .name = "batches",
    .state_size = sizeof(struct batches),
    .open = batches_open,
    .close = batches_close,
    .n_batches = batches_count,
    .batch = batches_batch,
};
