/*
 * Reports that add up durations or sizes by name: one pass over the rows by every thread, each
 * value kept (4 bytes) for the exact median, then names looked up once each. The recording is never
 * loaded.
 */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

/* Where a name comes from. */
enum naming { BY_STRING, BY_CALL /* without its version */, BY_COPY, BY_SET };

struct source {
    const char *table, *key; /* SQL of the number that names it */
    enum naming naming;
    const char *category; /* for cuda_gpu_sum */
};

struct sum_kind {
    const char *title;
    struct mr_named_heads heads;
    const char *what, *trace; /* for the note of an empty report */
    struct source sources[4];
};

static const struct source kernels = {MR_TABLE_KERNEL, "demangledName", BY_STRING, "CUDA_KERNEL"};
static const struct source copies = {MR_TABLE_COPY, "copyKind", BY_COPY, "MEMORY_OPER"};
static const struct source sets = {MR_TABLE_SET, "0", BY_SET, "MEMORY_OPER"};
static const struct source calls = {MR_TABLE_RUNTIME, "nameId", BY_CALL, "CUDA_API"};

static const bool adds_bytes =
    true; /* what the workers' `more` points to where sizes are added up */

static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct mr_adder *w = state;
    int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1);
    if (!mr_report_takes(w->filter, &w->left, start, end))
        return 0;
    uint64_t key = (uint64_t)sqlite3_column_int64(stmt, 2);
    struct mr_series *series = mr_groups_at(&w->groups, (struct mr_key){key, 0});
    if (!series)
        return -ENOMEM;
    return mr_series_add(series, w->more ? (uint64_t)sqlite3_column_int64(stmt, 3)
                                         : (uint64_t)end - (uint64_t)start);
}

/* Adds up one table by key. A table that is not there is an empty one. */
static int add_up(struct mr_recording *recording, const struct source *source, bool sizes,
                  const struct mr_filter *filter, struct mr_adder *out)
{
    const char *table = source->table;
    char sql[256];
    *out = (struct mr_adder){
        .filter = filter, .more = sizes ? &adds_bytes : NULL, .groups = {.n_series = 1}};
    bool by_column = source->naming != BY_SET;
    if (!mr_recording_has(recording, table, "end") ||
        (by_column && !mr_recording_has(recording, table, source->key)) ||
        (sizes && !mr_recording_has(recording, table, "bytes")))
        return 0;
    snprintf(sql, sizeof sql, "SELECT start, end, %s%s FROM %s WHERE", source->key,
             sizes ? ", bytes" : "", table);
    struct mr_adder like = *out;
    return mr_groups_scan(recording, table, sql, add_row, &like, out);
}

/* ---- names ---- */

static char *name_of(const struct source *source, int64_t key, struct mr_names *names)
{
    char *text = NULL;
    int n = 0;
    const char *name =
        source->naming == BY_STRING || source->naming == BY_CALL ? mr_names_get(names, key) : "";
    switch (source->naming) {
    case BY_STRING:
        return strdup(*name ? name : "(no name)");
    case BY_CALL:
        n = asprintf(&text, "%.*s", mr_call_name_bytes(name), *name ? name : "(no name)");
        break;
    case BY_COPY:
        n = asprintf(&text, "[CUDA memcpy %s]", mr_copy_label(key));
        break;
    case BY_SET:
        return strdup("[CUDA memset]");
    }
    return n < 0 ? NULL : text;
}

static int collect(struct mr_recording *recording, const struct source *sources, uint32_t n,
                   bool sizes, const struct mr_filter *filter, struct mr_named_list *list,
                   struct mr_left_out *left)
{
    struct mr_names names;
    int rc = mr_names_open(&names, recording);
    for (uint32_t i = 0; i < n && sources[i].table && rc == 0; i++) {
        struct mr_adder sums;
        rc = add_up(recording, &sources[i], sizes, filter, &sums);
        mr_left_out_add(left, &sums.left);
        const struct mr_groups *groups = &sums.groups;
        for (uint32_t g = 0; g < groups->map.n && rc == 0; g++)
            rc = mr_named_add(list, name_of(&sources[i], (int64_t)groups->map.keys[g].a, &names),
                              sources[i].category, &groups->series[g]);
        mr_groups_free(&sums.groups);
    }
    mr_names_close(&names);
    return rc ? rc : mr_named_unite(list);
}

static int make(struct mr_recording *recording, const struct sum_kind *kind,
                const struct mr_report_opts *opts, struct mr_table **out)
{
    struct mr_filter filter;
    struct mr_left_out left = {0};
    struct mr_named_list list = {0};
    struct mr_table *table = NULL;
    char missing[MR_MISSING_BYTES];
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    rc = collect(recording, kind->sources, MR_COUNT(kind->sources), kind->heads.sizes, &filter,
                 &list, &left);
    if (rc == 0 && !(table = mr_named_table(&list, kind->title, &kind->heads)))
        rc = -ENOMEM;
    if (rc == 0) {
        mr_report_note(table, &left,
                       mr_report_missing(recording, kind->sources[0].table, kind->what, kind->trace,
                                         opts, missing));
        rc = mr_report_finish(table, opts, "Total", out);
    }
    mr_named_free(&list);
    mr_filter_close(&filter);
    return rc;
}

int mr_report_sums(struct mr_recording *recording, struct mr_sum **out, uint64_t *out_n)
{
    const struct source sources[] = {kernels, copies, sets, calls};
    struct mr_report_opts opts;
    struct mr_filter filter;
    struct mr_left_out left = {0};
    struct mr_named_list list = {0};
    mr_report_opts_init(&opts);
    int rc = mr_filter_open(&filter, recording, &opts);
    if (rc)
        return rc;
    rc = mr_recording_result(
        recording, collect(recording, sources, MR_COUNT(sources), false, &filter, &list, &left));
    struct mr_sum *sums = rc ? NULL : calloc(list.n + 1, sizeof *sums);
    if (rc == 0 && !sums)
        rc = mr_error_nomem("sums", list.n * sizeof *sums);
    for (uint64_t i = 0; i < list.n && rc == 0; i++) {
        struct mr_series_stats stats;
        mr_series_stats(&list.items[i].series, &stats);
        sums[i] = (struct mr_sum){list.items[i].name, list.items[i].tag, stats.n, stats.total};
        list.items[i].name = NULL;
    }
    if (rc == 0) {
        *out = sums;
        *out_n = list.n;
    }
    mr_named_free(&list);
    mr_filter_close(&filter);
    return rc;
}

/* ---- the reports ---- */

#define SUM(function, ...)                                                                         \
    static int function(struct mr_recording *recording, const struct mr_report_opts *opts,         \
                        struct mr_table **out)                                                     \
    {                                                                                              \
        const struct sum_kind kind = {__VA_ARGS__};                                                \
        return make(recording, &kind, opts, out);                                                  \
    }

static const struct source os_calls = {"OSRT_API", "nameId", BY_STRING, ""};
SUM(make_os, "OS runtime calls (osrt_sum)", {"Num Calls", NULL, "Name"}, .what = "OS runtime calls",
    .trace = "osrt", .sources = {os_calls})
SUM(make_api, "CUDA API calls (cuda_api_sum)", {"Num Calls", NULL, "Name"},
    .what = "CUDA API calls", .trace = "cuda", .sources = {calls})
SUM(make_kern, "Kernels (cuda_gpu_kern_sum)", {"Instances", NULL, "Name"}, .what = "kernels",
    .trace = "cuda", .sources = {kernels})
SUM(make_mem_time, "Memory operations by time (cuda_gpu_mem_time_sum)",
    {"Count", NULL, "Operation"}, .what = "copies and memsets", .trace = "cuda",
    .sources = {copies, sets})
SUM(make_mem_size, "Memory operations by size (cuda_gpu_mem_size_sum)",
    {"Count", NULL, "Operation", true}, .what = "copies and memsets", .trace = "cuda",
    .sources = {copies, sets})
SUM(make_gpu, "Kernels and memory operations (cuda_gpu_sum)",
    {"Instances", "Category", "Operation"}, .what = "device activity", .trace = "cuda",
    .sources = {kernels, copies, sets})

const struct mr_report_kind mr_report_sum_kinds[] = {
    {"osrt_sum", "Calls of the operating system's library by name", make_os},
    {"cuda_api_sum", "CUDA API calls by name", make_api},
    {"cuda_gpu_kern_sum", "Kernels by name", make_kern},
    {"cuda_gpu_mem_time_sum", "Copies and memsets: times by operation", make_mem_time},
    {"cuda_gpu_mem_size_sum", "Copies and memsets: bytes by operation", make_mem_size},
    {"cuda_gpu_sum", "Kernels, copies and memsets by name", make_gpu},
};
const uint32_t mr_report_n_sum_kinds = MR_COUNT(mr_report_sum_kinds);
