/* Settings and counters of remote reading, in every build because the public functions need
 * them. */
#include "storage/remote.h"
#include "storage/storage.h"

#include <math.h>
#include <millrace/options.h>
#include <stdio.h>
#include <string.h>

struct mr_remote_counts mr_remote_counts;

static struct mr_remote_opts now; /* the two are under mr_storage_lock() */
static char dir_now[4096];

#define DEFAULT_LIMIT (16ull << 30)
#define LEAST_LIMIT   (1u << 20)

/* Reads $MILLRACE_CACHE_LIMIT, else uses the default. Returns 0 or the error; ignoring a wrong
 * limit could empty the cache. */
static int limit_now(uint64_t *out)
{
    static const struct mr_option table[] = {
        {.name = "MILLRACE_CACHE_LIMIT", .type = MR_OPT_BYTES, .min = LEAST_LIMIT, .max = INFINITY},
        {NULL}};
    const char *text = getenv("MILLRACE_CACHE_LIMIT");
    *out = DEFAULT_LIMIT;
    return text && text[0] ? mr_options_set(table, out, "", "MILLRACE_CACHE_LIMIT", text) : 0;
}

void mr_remote_opts_fill(struct mr_remote_opts *opts, size_t size)
{
    const char *dir = getenv("MILLRACE_CACHE_DIR");
    struct mr_remote_opts full = {
        .retries = 5,
        .connect_timeout_ms = 10000,
        .stall_timeout_ms = 30000,
        .cache_dir = dir && dir[0] ? dir : NULL,
    };
    struct mr_error_kept before; /* no error of this call: check() tells, should there be a cache */
    mr_error_keep(0, &before);
    if (limit_now(&full.cache_limit) < 0) {
        full.cache_limit = 0;
        mr_error_put(&before);
    }
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int check(const struct mr_remote_opts *opts)
{
    uint64_t limit;
    if (opts->connect_timeout_ms == 0 || opts->stall_timeout_ms == 0 || opts->retries > 100)
        return mr_error_set(MR_EOPTION,
                            "remote options: expected timeouts over 0 ms and at most 100 retries");
    if (!opts->cache_dir || opts->cache_limit >= LEAST_LIMIT)
        return 0;
    int rc = opts->cache_limit == 0 ? limit_now(&limit) : 0;
    return rc < 0 ? rc
                  : mr_error_set(MR_EOPTION, "cache limit %llu: expected at least 1 MiB",
                                 (unsigned long long)opts->cache_limit);
}

/* [out] out: room for sizeof dir_now. */
static int resolve_dir(const char *dir, char *out)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (!dir || strcmp(dir, "default") != 0)
        n = snprintf(out, sizeof dir_now, "%s", dir ? dir : "");
    else if (xdg && xdg[0] == '/')
        n = snprintf(out, sizeof dir_now, "%s/millrace", xdg);
    else if (home && home[0])
        n = snprintf(out, sizeof dir_now, "%s/.cache/millrace", home);
    else
        return mr_error_set(
            MR_EOPTION,
            "cache folder 'default': neither XDG_CACHE_HOME nor HOME is set: name a folder");
    if (n < 0 || (size_t)n >= sizeof dir_now)
        return mr_error_set(MR_EOPTION, "cache folder: its name is longer than %zu bytes",
                            sizeof dir_now - 1);
    return 0;
}

static int set_locked(const struct mr_remote_opts *opts)
{
    char dir[sizeof dir_now];
    int rc = check(opts);
    if (rc < 0)
        return rc;
    rc = resolve_dir(opts->cache_dir, dir);
    if (rc < 0)
        return rc;
    memcpy(dir_now, dir, sizeof dir);
    now = *opts;
    now.cache_dir = dir_now[0] ? dir_now : NULL;
    return 0;
}

int mr_remote_opts_set(const struct mr_remote_opts *given)
{
    struct mr_remote_opts full, *opts = &full;
    mr_remote_opts_init(opts);
    int rc = mr_opts_take("remote_opts", given, opts, sizeof *opts);
    if (rc < 0)
        return rc;
    mr_storage_lock();
    rc = set_locked(opts);
    mr_storage_unlock();
    return rc;
}

int mr_remote_opts_now(struct mr_remote_opts *out, char *dir, size_t cap)
{
    int rc = 0;
    mr_storage_lock();
    if (now.size == 0) {
        struct mr_remote_opts first;
        mr_remote_opts_init(&first);
        rc = set_locked(&first);
    }
    *out = now;
    snprintf(dir, cap, "%s", dir_now);
    mr_storage_unlock();
    out->cache_dir = dir[0] ? dir : NULL;
    return rc;
}

int mr_remote_stats_query(struct mr_remote_stats *out)
{
    const struct mr_remote_counts *c = &mr_remote_counts;
    const struct mr_remote_stats stats = {
        .requests = atomic_load(&c->requests),
        .retries = atomic_load(&c->retries),
        .bytes = atomic_load(&c->bytes),
        .cache_hits = atomic_load(&c->cache_hits),
        .cache_bytes = atomic_load(&c->cache_bytes),
        .cache_stored_bytes = atomic_load(&c->cache_stored_bytes),
        .cache_damaged = atomic_load(&c->cache_damaged),
        .cache_errors = atomic_load(&c->cache_errors),
    };
    return mr_info_give("remote_stats", out, &stats, sizeof stats);
}

/* ---- names in URLs ---- */

static bool unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~", c));
}

char *mr_url_encode(const char *text, size_t n, const char *keep)
{
    char *out = n < SIZE_MAX / 3 ? malloc(3 * n + 1) : NULL;
    if (!out)
        return NULL;
    char *to = out;
    for (size_t i = 0; i < n; i++)
        if (unreserved(text[i]) || (text[i] && strchr(keep, text[i])))
            *to++ = text[i];
        else
            to += sprintf(to, "%%%02X", (unsigned char)text[i]);
    *to = 0;
    return out;
}
