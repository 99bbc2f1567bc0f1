/*
 * nvtx_gpu_proj_sum and nvtx_kern_sum: what the calls inside of NVTX ranges launched; launched.c
 * says which calls those are. A range's projection lasts from the start of the first operation that
 * was launched in it to the end of the last.
 */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

struct proj { /* of a range */
    uint64_t start_ns, end_ns;
    uint32_t n_ops, n_children;
};

struct work {
    struct mr_recording *rec;
    struct mr_filter filter;
    const struct mr_report_opts *opts;
    struct proj *proj; /* of all ranges */
    uint64_t n_helped;
    /* of kernels: (domain, text), (style, thread) of a range; then kernels by range and name */
    struct mr_keymap ranges, instances;
    struct mr_groups groups;
    uint32_t *n_instances; /* of each group */
    uint64_t capacity;
    int64_t *names; /* of StringIds, by operation */
    struct mr_names texts;
};

static bool takes_op(const struct work *w, const struct mr_rec_op *op)
{
    if (op->detail == MR_NONE && w->filter.by_launch)
        return false;
    return mr_filter_takes_op(&w->filter, (enum mr_op_kind)op->kind, op->detail, op->start_ns);
}

/* Of the ranges that --range names when it does. */
static bool takes_range(const void *user, const struct mr_rec_range *range)
{
    const struct work *w = user;
    return !w->filter.text || mr_filter_names(&w->filter, w->rec, range);
}

static const char *style_of(uint32_t type)
{
    return type == MR_RANGE_START_END ? "StartEnd" : "PushPop";
}

static char *name_of(const struct work *w, uint32_t domain, uint32_t text)
{
    char *name = NULL;
    return asprintf(&name, "%s:%s", w->rec->strings[domain], w->rec->strings[text]) < 0 ? NULL
                                                                                        : name;
}

static int open_work(struct work *w, struct mr_recording *rec, const struct mr_report_opts *opts)
{
    *w = (struct work){.rec = rec, .opts = opts};
    int rc = mr_filter_open(&w->filter, rec, opts);
    if (rc)
        return rc;
    rc = mr_recording_load(rec);
    if (rc)
        mr_filter_close(&w->filter);
    return rc;
}

static void close_work(struct work *w)
{
    free(w->proj);
    free(w->n_instances);
    free(w->names);
    mr_keymap_free(&w->ranges);
    mr_keymap_free(&w->instances);
    mr_groups_free(&w->groups);
    mr_names_close(&w->texts);
    mr_filter_close(&w->filter);
}

static void note(const struct work *w, struct mr_table *table, const char *what)
{
    char missing[MR_MISSING_BYTES];
    if (mr_table_rows(table) == 0)
        mr_table_add_note(
            table, "%s",
            mr_report_missing(w->rec, "NVTX_EVENTS", what, "cuda,nvtx", w->opts, missing));
    if (w->n_helped && mr_table_rows(table))
        mr_table_add_note(table,
                          "%llu operations were launched by threads without such a range, while "
                          "one was open in their process (PyTorch's backward pass): they count; "
                          "nsys leaves them out",
                          (unsigned long long)w->n_helped);
}

/* ---- nvtx_gpu_proj_sum ---- */

static int project(void *user, uint32_t op_index, uint32_t range)
{
    struct work *w = user;
    const struct mr_rec_op *op = &w->rec->ops[op_index];
    struct proj *p = &w->proj[range];
    if (!takes_op(w, op))
        return 0;
    p->start_ns = p->n_ops ? MR_MIN(p->start_ns, op->start_ns) : op->start_ns;
    p->end_ns = MR_MAX(p->end_ns, op->end_ns);
    p->n_ops++;
    return 0;
}

enum { PROJECTED, ORIGINAL, OPS, LEVEL, CHILDREN, N_SERIES };

static int add_range(struct work *w, uint32_t i)
{
    const struct mr_rec_range *range = &w->rec->ranges[i];
    const struct proj *p = &w->proj[i];
    struct mr_key key = {(uint64_t)range->domain << 32 | range->text, range->type};
    const uint64_t values[N_SERIES] = {[PROJECTED] = p->end_ns - p->start_ns,
                                       [ORIGINAL] = range->end_ns - range->start_ns,
                                       [OPS] = p->n_ops,
                                       [LEVEL] = range->depth,
                                       [CHILDREN] = p->n_children};
    struct mr_series *s = mr_groups_at(&w->groups, key);
    int rc = s ? 0 : -ENOMEM;
    for (int k = 0; k < N_SERIES && rc == 0; k++)
        rc = mr_series_add(&s[k], values[k]);
    return rc;
}

static const struct mr_column proj_columns[] = {
    {"Range", MR_UNIT_NONE, MR_CELL_TEXT},           {"Style", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Total Proj Time", MR_UNIT_NS, MR_CELL_INT},    {"Total Range Time", MR_UNIT_NS, MR_CELL_INT},
    {"Range Instances", MR_UNIT_COUNT, MR_CELL_INT}, {"Proj Avg", MR_UNIT_NS, MR_CELL_REAL},
    {"Proj Med", MR_UNIT_NS, MR_CELL_REAL},          {"Proj Min", MR_UNIT_NS, MR_CELL_INT},
    {"Proj Max", MR_UNIT_NS, MR_CELL_INT},           {"Proj StdDev", MR_UNIT_NS, MR_CELL_REAL},
    {"Total GPU Ops", MR_UNIT_COUNT, MR_CELL_INT},   {"Avg GPU Ops", MR_UNIT_COUNT, MR_CELL_REAL},
    {"Avg Range Lvl", MR_UNIT_COUNT, MR_CELL_REAL},  {"Avg Num Child", MR_UNIT_COUNT, MR_CELL_REAL},
};

static int put_projection(struct work *w, struct mr_table *table, uint32_t group)
{
    struct mr_key key = w->groups.map.keys[group];
    struct mr_series *series = &w->groups.series[(size_t)group * N_SERIES];
    struct mr_series_stats s[N_SERIES];
    char *name = name_of(w, (uint32_t)(key.a >> 32), (uint32_t)key.a);
    if (!name)
        return mr_error_nomem("names", 0);
    for (int k = 0; k < N_SERIES; k++)
        mr_series_stats(&series[k], &s[k]);
    mr_table_row(table);
    mr_table_text(table, name);
    mr_table_text(table, style_of((uint32_t)key.b));
    mr_table_real(table, s[PROJECTED].total);
    mr_table_real(table, s[ORIGINAL].total);
    mr_table_int(table, (int64_t)s[PROJECTED].n);
    mr_table_real(table, s[PROJECTED].average);
    mr_table_real(table, s[PROJECTED].median);
    mr_table_int(table, (int64_t)s[PROJECTED].min);
    mr_table_int(table, (int64_t)s[PROJECTED].max);
    mr_table_real(table, s[PROJECTED].deviation);
    mr_table_real(table, s[OPS].total);
    mr_table_real(table, s[OPS].average);
    mr_table_real(table, s[LEVEL].average);
    mr_table_real(table, s[CHILDREN].average);
    free(name);
    return 0;
}

static int fill_projection(struct work *w, struct mr_table *table)
{
    const struct mr_recording *rec = w->rec;
    const struct mr_launched launched = {takes_range, project, w};
    w->groups.n_series = N_SERIES;
    w->proj = calloc(rec->n_ranges + 1, sizeof *w->proj);
    if (!w->proj)
        return mr_error_nomem("ranges", rec->n_ranges * sizeof *w->proj);
    int rc = mr_launched_walk(rec, &launched, &w->n_helped);
    for (uint32_t i = 0; i < rec->n_ranges && rc == 0; i++)
        if (rec->ranges[i].parent != MR_NONE && rec->ranges[i].type == MR_RANGE_PUSH_POP)
            w->proj[rec->ranges[i].parent].n_children++;
    for (uint32_t i = 0; i < rec->n_ranges && rc == 0; i++)
        rc = w->proj[i].n_ops ? add_range(w, i) : 0;
    for (uint32_t g = 0; g < w->groups.map.n && rc == 0; g++)
        rc = put_projection(w, table, g);
    return rc;
}

/* ---- nvtx_kern_sum ---- */

static int add_kernel(void *user, uint32_t op_index, uint32_t range_index)
{
    struct work *w = user;
    const struct mr_rec_op *op = &w->rec->ops[op_index];
    const struct mr_rec_range *range = &w->rec->ranges[range_index];
    if (op->kind != MR_OP_KERNEL || op->detail == MR_NONE || !takes_op(w, op))
        return 0;
    uint32_t of =
        mr_keymap_put(&w->ranges, (struct mr_key){(uint64_t)range->domain << 32 | range->text,
                                                  (uint64_t)range->type << 32 | range->thread});
    if (of == MR_NONE)
        return -ENOMEM;
    struct mr_key key = {of, (uint64_t)w->names[op_index]};
    struct mr_series *series = mr_groups_at(&w->groups, key);
    if (!series)
        return -ENOMEM;
    uint32_t group = mr_keymap_get(&w->groups.map, key), before = w->instances.n;
    uint64_t had = w->capacity;
    if (mr_grow("ranges", &w->n_instances, &w->capacity, group + 1ull, sizeof *w->n_instances) < 0)
        return -ENOMEM;
    memset(w->n_instances + had, 0, (w->capacity - had) * sizeof *w->n_instances);
    if (mr_keymap_put(&w->instances, (struct mr_key){group, range_index}) == MR_NONE)
        return -ENOMEM;
    w->n_instances[group] += w->instances.n > before;
    return mr_series_add(series, op->end_ns - op->start_ns);
}

static const struct mr_column kernel_columns[] = {
    {"NVTX Range", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Style", MR_UNIT_NONE, MR_CELL_TEXT},
    {"PID", MR_UNIT_NONE, MR_CELL_INT},
    {"TID", MR_UNIT_NONE, MR_CELL_INT},
    {"NVTX Inst", MR_UNIT_COUNT, MR_CELL_INT},
    {"Kern Inst", MR_UNIT_COUNT, MR_CELL_INT},
    {"Total Time", MR_UNIT_NS, MR_CELL_INT},
    {"Avg", MR_UNIT_NS, MR_CELL_REAL},
    {"Med", MR_UNIT_NS, MR_CELL_REAL},
    {"Min", MR_UNIT_NS, MR_CELL_INT},
    {"Max", MR_UNIT_NS, MR_CELL_INT},
    {"StdDev", MR_UNIT_NS, MR_CELL_REAL},
    {"Kernel Name", MR_UNIT_NONE, MR_CELL_TEXT},
};

static int put_kernel(struct work *w, struct mr_table *table, uint32_t group)
{
    struct mr_key key = w->groups.map.keys[group], of = w->ranges.keys[key.a];
    const struct mr_rec_thread *thread = &w->rec->threads[(uint32_t)of.b];
    struct mr_series_stats s;
    char *name = name_of(w, (uint32_t)(of.a >> 32), (uint32_t)of.a);
    const char *kernel = mr_names_get(&w->texts, (int64_t)key.b);
    if (!name)
        return mr_error_nomem("names", 0);
    mr_series_stats(&w->groups.series[group], &s);
    mr_table_row(table);
    mr_table_text(table, name);
    mr_table_text(table, style_of((uint32_t)(of.b >> 32)));
    mr_table_int(table, w->rec->processes[thread->process].pid);
    mr_table_int(table, thread->tid);
    mr_table_int(table, w->n_instances[group]);
    mr_table_int(table, (int64_t)s.n);
    mr_table_real(table, s.total);
    mr_table_real(table, s.average);
    mr_table_real(table, s.median);
    mr_table_int(table, (int64_t)s.min);
    mr_table_int(table, (int64_t)s.max);
    mr_table_real(table, s.deviation);
    mr_table_text(table, *kernel ? kernel : "(no name)");
    free(name);
    return 0;
}

/* The numbers of the kernels' names as asked for. */
static int name_kernels(struct work *w)
{
    struct sqlite3_stmt *find = NULL;
    w->names = calloc(w->rec->n_ops + 1, sizeof *w->names);
    if (!w->names)
        return mr_error_nomem("names", w->rec->n_ops * sizeof *w->names);
    if (!mr_recording_has(w->rec, MR_TABLE_KERNEL, "end"))
        return 0;
    int rc = mr_sql_prepare(w->rec, &find, "SELECT %s FROM " MR_TABLE_KERNEL " WHERE rowid = ?1",
                            mr_kernel_name_sql(w->rec, w->opts->kernel_names));
    for (uint64_t i = 0; i < w->rec->n_ops && rc == 0; i++) {
        const struct mr_rec_op *op = &w->rec->ops[i];
        if (op->kind != MR_OP_KERNEL || op->detail == MR_NONE)
            continue;
        sqlite3_bind_int64(find, 1, op->detail);
        rc = mr_sql_step(w->rec, find);
        if (rc == 1)
            w->names[i] = sqlite3_column_int64(find, 0);
        rc = MR_MIN(rc, 0);
        sqlite3_reset(find);
    }
    sqlite3_finalize(find);
    return rc;
}

static int fill_kernels(struct work *w, struct mr_table *table)
{
    const struct mr_launched launched = {takes_range, add_kernel, w};
    w->groups.n_series = 1;
    int rc = mr_names_open(&w->texts, w->rec);
    rc = rc ? rc : name_kernels(w);
    rc = rc ? rc : mr_launched_walk(w->rec, &launched, &w->n_helped);
    for (uint32_t g = 0; g < w->groups.map.n && rc == 0; g++)
        rc = put_kernel(w, table, g);
    return rc;
}

/* ---- both ---- */

static int finish(struct work *w, struct mr_table *table, int rc, const char *what,
                  const char *order, struct mr_table **out)
{
    if (rc == 0) {
        note(w, table, what);
        rc = mr_report_finish(table, w->opts, order, out);
    } else {
        mr_table_destroy(table);
    }
    close_work(w);
    return rc;
}

static int make_proj(struct mr_recording *recording, const struct mr_report_opts *opts,
                     struct mr_table **out)
{
    struct work w;
    int rc = open_work(&w, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table = mr_table_create("NVTX ranges on the device (nvtx_gpu_proj_sum)",
                                             proj_columns, MR_COUNT(proj_columns));
    rc = table ? fill_projection(&w, table) : mr_error_nomem("a table", 0);
    return finish(&w, table, rc, "NVTX ranges that launched device work", "Total Proj Time", out);
}

static int make_kernels(struct mr_recording *recording, const struct mr_report_opts *opts,
                        struct mr_table **out)
{
    struct work w;
    int rc = open_work(&w, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table = mr_table_create("Kernels by NVTX range (nvtx_kern_sum)",
                                             kernel_columns, MR_COUNT(kernel_columns));
    rc = table ? fill_kernels(&w, table) : mr_error_nomem("a table", 0);
    return finish(&w, table, rc, "NVTX ranges that launched kernels", "Total Time", out);
}

const struct mr_report_kind mr_report_proj_kinds[2] = {
    {"nvtx_gpu_proj_sum", "NVTX ranges by the device work that they launched", make_proj,
     MR_REPORT_OPS},
    {"nvtx_kern_sum", "Kernels by the NVTX ranges that launched them", make_kernels,
     MR_REPORT_OPS | MR_REPORT_KERNELS},
};
