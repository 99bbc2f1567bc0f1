/* What millrace pack prints at its end. */
#include "pack/pack.h"

#include <inttypes.h>
#include <string.h>

/* What opens the shards: of all ranks. */
static void write_uri(const struct pack *p, char *out, size_t cap)
{
    const struct pack_format *format = p->o->format;
    int n = (int)strlen(p->path);
    while (n > 1 && p->path[n - 1] == '/')
        n--;
    int at = snprintf(out, cap, "%s:%.*s", format->name, n, p->path);
    if (!p->alone && at < (int)cap) {
        if (p->o->world > 1)
            snprintf(out + at, cap - (size_t)at, "%s", format->all);
        else if (p->state.n > 1)
            snprintf(out + at, cap - (size_t)at, "/shard-{000000..%06" PRIu64 "}%s", p->state.n - 1,
                     format->end);
        else
            snprintf(out + at, cap - (size_t)at, "/shard-000000%s", format->end);
    }
    if (format->add_options)
        format->add_options(p->ds, out, cap);
}

static void print_report(const struct pack *p, uint64_t written, const char *uri, uint64_t ns)
{
    char count[CLI_HUMAN], bytes[CLI_HUMAN], time[CLI_HUMAN], where[64];
    uint64_t shards = p->state.n;
    if (p->o->world > 1)
        printf("rank %" PRIu32 " of %" PRIu32 ": ", p->o->rank, p->o->world);
    snprintf(where, sizeof where, "%" PRIu64 " shard%s", shards, cli_s(shards));
    printf("%s %s sample%s into %s (%s) in %s; open %sas '%s'\n",
           p->state.done ? "already packed" : "packed", cli_count((double)written, count),
           cli_s(written), p->alone ? "one file" : where, cli_bytes(p->bytes, bytes),
           cli_time(ns, time), p->o->world > 1 ? "all ranks' shards " : "", uri);
    if (p->skipped)
        printf("%" PRIu64 " samples could not be read and were left out\n", p->skipped);
    if (p->kept && !p->state.done)
        printf("%" PRIu64 " shard%s kept from an earlier run\n", p->kept, cli_s(p->kept));
}

int pack_report(const struct pack *p, const struct mr_option *options, uint64_t ns)
{
    char uri[PACK_URI + 4096];
    uint64_t written = p->state.end - p->state.first - p->skipped;
    write_uri(p, uri, sizeof uri);
    if (!p->o->common.json) {
        print_report(p, written, uri, ns);
        return CLI_OK;
    }
    struct mr_json *json = cli_json_begin("pack");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "dataset", uri);
    mr_json_uint(json, "samples", written);
    mr_json_uint(json, "skipped", p->skipped);
    mr_json_uint(json, "shards", p->alone ? 1 : p->state.n);
    mr_json_uint(json, "kept", p->kept);
    mr_json_uint(json, "bytes", p->bytes);
    mr_json_double(json, "seconds", (double)ns * 1e-9);
    return cli_json_end_config(json, options, p->o);
}
