/* The caller's own order. */
#include "sampler/sampler.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64

struct custom {
    int (*map)(void *user, uint64_t epoch, uint64_t position, uint64_t count,
               uint64_t *out_indices);
    void *user;
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

static void write_text(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    char version[32] = "";
    if (opts->version)
        snprintf(version, sizeof version, "version=%llu,", (unsigned long long)opts->version);
    snprintf(s->text, sizeof s->text, "custom(%s%s%slength=%llu,seed=%llu)",
             opts->name ? opts->name : "", opts->name ? "," : "", version,
             (unsigned long long)s->length, (unsigned long long)s->seed);
}

static int custom_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct custom *c = s->state;
    if (!opts->map)
        return mr_error_set(MR_EOPTION, "custom sampler: opts.map is NULL: expected a function");
    if (opts->length < 1 || opts->length > 1ull << 63)
        return mr_error_set(MR_EOPTION,
                            "custom sampler: opts.length %llu: expected 1..2^63 positions an epoch",
                            (unsigned long long)opts->length);
    int rc = check_name(opts->name);
    if (rc < 0)
        return rc;
    c->map = opts->map;
    c->user = opts->user;
    s->length = opts->length;
    write_text(s, opts);
    return 0;
}

static int custom_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position, uint64_t count,
                      uint64_t *out)
{
    const struct custom *c = s->state;
    int rc = c->map(c->user, epoch, position, count, out);
    if (rc > 0)
        return mr_error_set(
            MR_ECALLBACK,
            "custom sampler: the callback returned %d: expected 0 or a negative error", rc);
    if (rc < 0)
        return rc;
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
    .map = custom_map,
};
