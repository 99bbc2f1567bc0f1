/* http and s3 in a run of feed: their options, and what they came to. */
#include "feed/feed.h"

#include <inttypes.h>

int feed_set_remote(const struct feed_opts *o)
{
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    if (o->cache_dir && o->cache_dir[0])
        opts.cache_dir = o->cache_dir;
    if (o->cache_limit)
        opts.cache_limit = o->cache_limit;
    opts.retries = (uint32_t)o->retries;
    opts.stall_timeout_ms = (uint32_t)(o->stall_ns / 1000000);
    return mr_remote_opts_set(&opts);
}

void feed_json_remote(struct mr_json *json)
{
    struct mr_remote_stats st = {.size = sizeof st};
    mr_remote_stats_query(&st);
    if (st.requests == 0) {
        mr_json_null(json, "remote");
        return;
    }
    mr_json_object(json, "remote");
    mr_json_uint(json, "requests", st.requests);
    mr_json_uint(json, "retries", st.retries);
    mr_json_uint(json, "bytes", st.bytes);
    mr_json_uint(json, "cache_hits", st.cache_hits);
    mr_json_uint(json, "cache_bytes", st.cache_bytes);
    mr_json_uint(json, "cache_stored_bytes", st.cache_stored_bytes);
    mr_json_uint(json, "cache_damaged", st.cache_damaged);
    mr_json_uint(json, "cache_errors", st.cache_errors);
    mr_json_object_end(json);
}

void feed_print_remote(void)
{
    struct mr_remote_stats st = {.size = sizeof st};
    char a[CLI_HUMAN], b[CLI_HUMAN];
    mr_remote_stats_query(&st);
    if (st.requests == 0)
        return;
    printf("  network: %" PRIu64 " requests, %s, %" PRIu64 " tried again\n", st.requests,
           cli_bytes(st.bytes, a), st.retries);
    if (st.cache_hits + st.cache_stored_bytes + st.cache_errors + st.cache_damaged > 0)
        printf("  disk cache: %" PRIu64 " reads, %s; kept %s; %" PRIu64 " entries damaged, %" PRIu64
               " writes failed\n",
               st.cache_hits, cli_bytes(st.cache_bytes, a), cli_bytes(st.cache_stored_bytes, b),
               st.cache_damaged, st.cache_errors);
}
