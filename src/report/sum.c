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
enum naming { BY_STRING, BY_KERNEL, BY_CALL /* without its version */, BY_COPY, BY_SET };

struct source {
    const char *table, *key; /* SQL of the number that names it */
    enum naming naming;
    const char *category; /* for cuda_gpu_sum */
};

struct ask { /* what to add up */
    const struct mr_filter *filter;
    struct mr_shapes *shapes;
    int names; /* enum mr_kernel_names */
    bool sizes;
};

struct sum_kind {
    const char *title;
    struct mr_named_heads heads;
    const char *what, *trace; /* for the note of an empty report */
    struct source sources[4];
};

static const struct source kernels = {MR_TABLE_KERNEL, NULL, BY_KERNEL, "CUDA_KERNEL"};
static const struct source copies = {MR_TABLE_COPY, "copyKind", BY_COPY, "MEMORY_OPER"};
static const struct source sets = {MR_TABLE_SET, "0", BY_SET, "MEMORY_OPER"};
static const struct source calls = {MR_TABLE_RUNTIME, "nameId", BY_CALL, "CUDA_API"};

struct how {  /* what the workers' `more` points to */
    int kind; /* enum mr_op_kind, MR_NO_OP */
    bool sizes;
    struct mr_shapes *shapes; /* NULL: kernels of every grid together */
};

static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct mr_adder *w = state;
    const struct how *how = w->more;
    int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1),
            row = sqlite3_column_int64(stmt, 4);
    if (!mr_report_takes(w->filter, &w->left, how->kind, row, start, end))
        return 0;
    if (how->sizes && sqlite3_column_type(stmt, 3) == SQLITE_NULL) {
        w->left.n_unsized++;
        return 0;
    }
    struct mr_key key = {(uint64_t)sqlite3_column_int64(stmt, 2), 0};
    if (how->shapes) {
        uint32_t shape = mr_shapes_put(how->shapes, stmt, 5);
        if (shape == MR_NONE)
            return -ENOMEM;
        key.b = shape;
    }
    struct mr_series *series = mr_groups_at(&w->groups, key);
    if (!series)
        return -ENOMEM;
    return mr_series_add(series, how->sizes ? (uint64_t)sqlite3_column_int64(stmt, 3)
                                            : (uint64_t)end - (uint64_t)start);
}

/* Adds up one table by key. A table that is not there is an empty one. */
static int add_up(struct mr_recording *recording, const struct source *source,
                  const struct ask *ask, struct mr_adder *out)
{
    const char *table = source->table, *key = source->key;
    const struct how how = {mr_report_op_kind(table), ask->sizes, ask->shapes};
    char sql[512];
    *out = (struct mr_adder){.filter = ask->filter, .more = &how, .groups = {.n_series = 1}};
    if (source->naming == BY_KERNEL)
        key = mr_kernel_name_sql(recording, ask->names);
    bool by_column = source->naming != BY_SET && source->naming != BY_KERNEL;
    if (!mr_recording_has(recording, table, "end") ||
        (by_column && !mr_recording_has(recording, table, key)) ||
        (ask->sizes && !mr_recording_has(recording, table, "bytes")))
        return 0;
    snprintf(sql, sizeof sql, "SELECT start, end, %s, %s, rowid%s FROM %s WHERE", key,
             ask->sizes ? "bytes" : "0", ask->shapes ? ", " MR_SHAPE_COLUMNS : "", table);
    struct mr_adder like = *out;
    return mr_groups_scan(recording, table, sql, add_row, &like, out);
}

/* ---- names ---- */

static char *name_of(const struct source *source, int64_t key, struct mr_names *names)
{
    char *text = NULL;
    int n = 0;
    const char *name = source->naming <= BY_CALL ? mr_names_get(names, key) : "";
    switch (source->naming) {
    case BY_STRING:
    case BY_KERNEL:
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
                   const struct ask *ask, struct mr_named_list *list, struct mr_left_out *left)
{
    struct mr_names names;
    int rc = mr_names_open(&names, recording);
    for (uint32_t i = 0; i < n && sources[i].table && rc == 0; i++) {
        struct mr_adder sums;
        rc = add_up(recording, &sources[i], ask, &sums);
        mr_left_out_add(left, &sums.left);
        if (rc == 0 && ask->shapes)
            rc = mr_shapes_tell(ask->shapes);
        const struct mr_groups *groups = &sums.groups;
        for (uint32_t g = 0; g < groups->map.n && rc == 0; g++) {
            struct mr_key key = groups->map.keys[g];
            const struct mr_shape_text *shape = ask->shapes ? &ask->shapes->texts[key.b] : NULL;
            rc = mr_named_add(list, name_of(&sources[i], (int64_t)key.a, &names),
                              shape ? shape->grid : sources[i].category,
                              shape ? shape->block : NULL, &groups->series[g]);
        }
        mr_groups_free(&sums.groups);
    }
    mr_names_close(&names);
    return rc ? rc : mr_named_unite(list);
}

static int make(struct mr_recording *recording, const struct sum_kind *kind,
                const struct mr_report_opts *opts, struct mr_table **out)
{
    struct mr_filter filter;
    struct mr_shapes shapes = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct mr_left_out left = {0};
    struct mr_named_list list = {0};
    struct mr_table *table = NULL;
    char missing[MR_MISSING_BYTES];
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    const struct ask ask = {&filter, kind->heads.tag2 ? &shapes : NULL, opts->kernel_names,
                            kind->heads.sizes};
    rc = collect(recording, kind->sources, MR_COUNT(kind->sources), &ask, &list, &left);
    if (rc == 0 && !(table = mr_named_table(&list, kind->title, &kind->heads)))
        rc = -ENOMEM;
    if (rc == 0) {
        mr_report_note(table, &left,
                       mr_report_missing(recording, kind->sources[0].table, kind->what, kind->trace,
                                         opts, missing));
        rc = mr_report_finish(table, opts, "Total", out);
    }
    mr_named_free(&list);
    mr_shapes_free(&shapes);
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
    const struct ask ask = {.filter = &filter};
    rc = mr_recording_result(recording,
                             collect(recording, sources, MR_COUNT(sources), &ask, &list, &left));
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
SUM(make_api_gpu, "API calls, kernels and memory operations (cuda_api_gpu_sum)",
    {"Instances", "Category", "Operation"}, .what = "CUDA activity", .trace = "cuda",
    .sources = {kernels, copies, sets, calls})
SUM(make_kern_gb, "Kernels by grid and block (cuda_gpu_kern_gb_sum)",
    {"Instances", "GridXYZ", "Name", .tag2 = "BlockXYZ"}, .what = "kernels", .trace = "cuda",
    .sources = {kernels})

const struct mr_report_kind mr_report_sum_kinds[] = {
    {"osrt_sum", "Calls of the operating system's library by name", make_os, MR_REPORT_CALLS},
    {"cuda_api_sum", "CUDA API calls by name", make_api, MR_REPORT_CALLS},
    {"cuda_gpu_kern_sum", "Kernels by name", make_kern, MR_REPORT_OPS | MR_REPORT_KERNELS},
    {"cuda_gpu_kern_gb_sum", "Kernels by name, grid and block", make_kern_gb,
     MR_REPORT_OPS | MR_REPORT_KERNELS},
    {"cuda_gpu_mem_time_sum", "Copies and memsets: times by operation", make_mem_time,
     MR_REPORT_OPS},
    {"cuda_gpu_mem_size_sum", "Copies and memsets: bytes by operation", make_mem_size,
     MR_REPORT_OPS},
    {"cuda_gpu_sum", "Kernels, copies and memsets by name", make_gpu,
     MR_REPORT_OPS | MR_REPORT_KERNELS},
    {"cuda_api_gpu_sum", "CUDA API calls, kernels, copies and memsets by name", make_api_gpu,
     MR_REPORT_OPS | MR_REPORT_CALLS | MR_REPORT_KERNELS},
};
const uint32_t mr_report_n_sum_kinds = MR_COUNT(mr_report_sum_kinds);
