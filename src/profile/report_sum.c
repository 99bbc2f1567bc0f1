/*
 * Reports that add up durations or sizes by name: one pass over the rows by every thread, each value kept (4 bytes) for the
 * exact median, then names looked up once each. The recording is never loaded.
 */
#include "profile/report.h"

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
    const char *title, *count, *name; /* heads of columns */
    bool sizes;                       /* adds up bytes, not durations */
    bool categories;
    const char *what, *trace; /* for the note of an empty report */
    struct source sources[4];
};

static const struct source kernels = {MR_TABLE_KERNEL, "demangledName", BY_STRING, "CUDA_KERNEL"};
static const struct source copies = {MR_TABLE_COPY, "copyKind", BY_COPY, "MEMORY_OPER"};
static const struct source sets = {MR_TABLE_SET, "0", BY_SET, "MEMORY_OPER"};
static const struct source calls = {MR_TABLE_RUNTIME, "nameId", BY_CALL, "CUDA_API"};

struct worker {
    const struct mr_filter *filter;
    bool sizes;
    struct mr_groups groups;
    struct mr_left_out left;
};

static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct worker *w = state;
    int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1);
    if (!mr_report_takes(w->filter, &w->left, start, end))
        return 0;
    uint64_t key = (uint64_t)sqlite3_column_int64(stmt, 2);
    struct mr_series *series = mr_groups_at(&w->groups, (struct mr_key){key, 0});
    if (!series)
        return -ENOMEM;
    return mr_series_add(series, w->sizes ? (uint64_t)sqlite3_column_int64(stmt, 3) : (uint64_t)end - (uint64_t)start);
}

/* Adds up one table by key. A table that is not there is an empty one. */
static int add_up(struct mr_recording *recording, const struct source *source, bool sizes,
                  const struct mr_filter *filter, struct mr_groups *out, struct mr_left_out *left)
{
    struct worker workers[MR_SCAN_THREADS];
    void *states[MR_SCAN_THREADS];
    const char *table = source->table;
    char sql[256];
    *out = (struct mr_groups){.n_series = 1};
    bool by_column = source->naming != BY_SET;
    if (!mr_recording_has(recording, table, "end") || (by_column && !mr_recording_has(recording, table, source->key)) ||
        (sizes && !mr_recording_has(recording, table, "bytes")))
        return 0;
    snprintf(sql, sizeof sql, "SELECT start, end, %s%s FROM %s WHERE", source->key, sizes ? ", bytes" : "", table);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        workers[i] = (struct worker){.filter = filter, .sizes = sizes, .groups = {.n_series = 1}};
        states[i] = &workers[i];
    }
    int rc = mr_scan(recording, table, sql, add_row, states);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        left->n_lost += workers[i].left.n_lost;
        left->n_backward += workers[i].left.n_backward;
        if (rc == 0)
            rc = mr_groups_merge(out, &workers[i].groups);
        mr_groups_free(&workers[i].groups);
    }
    if (rc)
        mr_groups_free(out);
    return rc;
}

/* ---- names ---- */

struct named {
    char *name;
    const char *category;
    struct mr_series series;
};

struct list {
    struct named *items;
    uint64_t n;
    double total;
};

static void free_list(struct list *list)
{
    for (uint64_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
        mr_series_free(&list->items[i].series);
    }
    free(list->items);
    *list = (struct list){0};
}

static char *name_of(const struct source *source, int64_t key, struct mr_names *names)
{
    char *text = NULL;
    int n = 0;
    const char *name = source->naming == BY_STRING || source->naming == BY_CALL ? mr_names_get(names, key) : "";
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

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = x->category == y->category ? 0 : strcmp(x->category, y->category);
    return order ? order : strcmp(x->name, y->name);
}

/* Numbers that mean the same name become one. */
static int unite(struct list *list)
{
    uint64_t n = 0;
    int rc = 0;
    if (list->n == 0)
        return 0;
    qsort(list->items, list->n, sizeof *list->items, by_name);
    for (uint64_t i = 1; i < list->n && rc == 0; i++) {
        struct named *kept = &list->items[n], *other = &list->items[i];
        if (by_name(kept, other) != 0) {
            if (++n != i) {
                list->items[n] = *other;
                *other = (struct named){0};
            }
            continue;
        }
        rc = mr_series_append(&kept->series, &other->series);
        mr_series_free(&other->series);
        free(other->name);
        other->name = NULL;
    }
    if (rc == 0)
        list->n = n + 1;
    return rc;
}

static int name_groups(struct list *list, struct mr_groups *groups, const struct source *source, struct mr_names *names)
{
    uint64_t more = list->n + groups->map.n;
    struct named *items = realloc(list->items, (more + 1) * sizeof *items);
    if (!items)
        return mr_error_nomem("names", more * sizeof *items);
    list->items = items;
    for (uint32_t i = 0; i < groups->map.n; i++) {
        struct named *item = &items[list->n];
        *item =
            (struct named){name_of(source, (int64_t)groups->map.keys[i].a, names), source->category, groups->series[i]};
        if (!item->name)
            return mr_error_nomem("names", 0);
        groups->series[i] = (struct mr_series){0};
        list->n++;
    }
    return 0;
}

static int collect(struct mr_recording *recording, const struct source *sources, uint32_t n, bool sizes,
                   const struct mr_filter *filter, struct list *list, struct mr_left_out *left)
{
    struct mr_names names;
    int rc = mr_names_open(&names, recording);
    for (uint32_t i = 0; i < n && sources[i].table && rc == 0; i++) {
        struct mr_groups groups;
        rc = add_up(recording, &sources[i], sizes, filter, &groups, left);
        if (rc)
            break;
        rc = name_groups(list, &groups, &sources[i], &names);
        mr_groups_free(&groups);
    }
    mr_names_close(&names);
    return rc ? rc : unite(list);
}

/* ---- tables ---- */

static void put_row(struct mr_table *table, const struct sum_kind *kind, const struct mr_series_stats *s, double all,
                    const struct named *item)
{
    mr_table_row(table);
    if (!kind->sizes)
        mr_table_real(table, all > 0 ? 100 * s->total / all : 0);
    mr_table_real(table, s->total);
    mr_table_int(table, (int64_t)s->n);
    mr_table_real(table, s->average);
    mr_table_real(table, s->median);
    mr_table_int(table, (int64_t)s->min);
    mr_table_int(table, (int64_t)s->max);
    mr_table_real(table, s->deviation);
    if (kind->categories)
        mr_table_text(table, item->category);
    mr_table_text(table, item->name);
}

static struct mr_table *create(const struct sum_kind *kind)
{
    enum mr_unit unit = kind->sizes ? MR_UNIT_BYTES : MR_UNIT_NS;
    const struct mr_column columns[] = {
        {"Time", MR_UNIT_PERCENT, MR_CELL_REAL},
        {kind->sizes ? "Total" : "Total Time", unit, MR_CELL_INT},
        {kind->count, MR_UNIT_COUNT, MR_CELL_INT},
        {"Avg", unit, MR_CELL_REAL},
        {"Med", unit, MR_CELL_REAL},
        {"Min", unit, MR_CELL_INT},
        {"Max", unit, MR_CELL_INT},
        {"StdDev", unit, MR_CELL_REAL},
        {"Category", MR_UNIT_NONE, MR_CELL_TEXT},
        {kind->name, MR_UNIT_NONE, MR_CELL_TEXT},
    };
    struct mr_column used[MR_COUNT(columns)];
    uint32_t n = 0;
    for (uint32_t i = 0; i < MR_COUNT(columns); i++)
        if (!(i == 0 && kind->sizes) && !(i == MR_COUNT(columns) - 2 && !kind->categories))
            used[n++] = columns[i];
    return mr_table_create(kind->title, used, n);
}

static int fill(struct mr_recording *recording, const struct sum_kind *kind, struct list *list,
                const struct mr_left_out *left, const struct mr_report_opts *opts, struct mr_table **out)
{
    char missing[MR_MISSING_BYTES];
    struct mr_table *table = create(kind);
    struct mr_series_stats *stats = malloc((list->n + 1) * sizeof *stats);
    double all = 0;
    if (!table || !stats) {
        mr_table_destroy(table);
        free(stats);
        return mr_error_nomem("a table", list->n * sizeof *stats);
    }
    for (uint64_t i = 0; i < list->n; i++) {
        mr_series_stats(&list->items[i].series, &stats[i]);
        mr_series_free(&list->items[i].series);
        all += stats[i].total;
    }
    for (uint64_t i = 0; i < list->n; i++)
        put_row(table, kind, &stats[i], all, &list->items[i]);
    free(stats);
    mr_report_note(table, left,
                   mr_report_missing(recording, kind->sources[0].table, kind->what, kind->trace, opts, missing));
    return mr_report_finish(table, opts, "Total", out);
}

static int make(struct mr_recording *recording, const struct sum_kind *kind, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct mr_filter filter;
    struct mr_left_out left = {0};
    struct list list = {0};
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    rc = collect(recording, kind->sources, MR_COUNT(kind->sources), kind->sizes, &filter, &list, &left);
    if (rc == 0)
        rc = fill(recording, kind, &list, &left, opts, out);
    free_list(&list);
    mr_filter_close(&filter);
    return rc;
}

int mr_report_sums(struct mr_recording *recording, struct mr_sum **out, uint64_t *out_n)
{
    const struct source sources[] = {kernels, copies, sets, calls};
    struct mr_report_opts opts;
    struct mr_filter filter;
    struct mr_left_out left = {0};
    struct list list = {0};
    mr_report_opts_init(&opts);
    int rc = mr_filter_open(&filter, recording, &opts);
    if (rc)
        return rc;
    rc = mr_recording_result(recording, collect(recording, sources, MR_COUNT(sources), false, &filter, &list, &left));
    struct mr_sum *sums = rc ? NULL : calloc(list.n + 1, sizeof *sums);
    if (rc == 0 && !sums)
        rc = mr_error_nomem("sums", list.n * sizeof *sums);
    for (uint64_t i = 0; i < list.n && rc == 0; i++) {
        struct mr_series_stats stats;
        mr_series_stats(&list.items[i].series, &stats);
        sums[i] = (struct mr_sum){list.items[i].name, list.items[i].category, stats.n, stats.total};
        list.items[i].name = NULL;
    }
    if (rc == 0) {
        *out = sums;
        *out_n = list.n;
    }
    free_list(&list);
    mr_filter_close(&filter);
    return rc;
}

/* ---- the reports ---- */

#define SUM(function, ...)                                                                                             \
    static int function(struct mr_recording *recording, const struct mr_report_opts *opts, struct mr_table **out)      \
    {                                                                                                                  \
        const struct sum_kind kind = {__VA_ARGS__};                                                                    \
        return make(recording, &kind, opts, out);                                                                      \
    }

static const struct source os_calls = {"OSRT_API", "nameId", BY_STRING, ""};
SUM(make_os, "OS runtime calls (osrt_sum)", "Num Calls", "Name", .what = "OS runtime calls", .trace = "osrt",
    .sources = {os_calls})
SUM(make_api, "CUDA API calls (cuda_api_sum)", "Num Calls", "Name", .what = "CUDA API calls", .trace = "cuda",
    .sources = {calls})
SUM(make_kern, "Kernels (cuda_gpu_kern_sum)", "Instances", "Name", .what = "kernels", .trace = "cuda",
    .sources = {kernels})
SUM(make_mem_time, "Memory operations by time (cuda_gpu_mem_time_sum)", "Count", "Operation",
    .what = "copies and memsets", .trace = "cuda", .sources = {copies, sets})
SUM(make_mem_size, "Memory operations by size (cuda_gpu_mem_size_sum)", "Count", "Operation", .sizes = true,
    .what = "copies and memsets", .trace = "cuda", .sources = {copies, sets})
SUM(make_gpu, "Kernels and memory operations (cuda_gpu_sum)", "Instances", "Operation", .categories = true,
    .what = "device activity", .trace = "cuda", .sources = {kernels, copies, sets})

const struct mr_report_kind mr_report_sum_kinds[] = {
    {"osrt_sum", "Calls of the operating system's library by name", make_os},
    {"cuda_api_sum", "CUDA API calls by name", make_api},
    {"cuda_gpu_kern_sum", "Kernels by name", make_kern},
    {"cuda_gpu_mem_time_sum", "Copies and memsets: times by operation", make_mem_time},
    {"cuda_gpu_mem_size_sum", "Copies and memsets: bytes by operation", make_mem_size},
    {"cuda_gpu_sum", "Kernels, copies and memsets by name", make_gpu},
};
const uint32_t mr_report_n_sum_kinds = MR_COUNT(mr_report_sum_kinds);
