/* nvtx_pushpop_trace: each push-pop range with its place in the stack of its thread. */
#include "report/report.h"

#include <string.h>

static const struct mr_column columns[] = {
    {"Start", MR_UNIT_NS, MR_CELL_INT},         {"End", MR_UNIT_NS, MR_CELL_INT},
    {"Duration", MR_UNIT_NS, MR_CELL_INT},      {"DurChild", MR_UNIT_NS, MR_CELL_INT},
    {"DurNonChild", MR_UNIT_NS, MR_CELL_INT},   {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
    {"PID", MR_UNIT_NONE, MR_CELL_INT},         {"TID", MR_UNIT_NONE, MR_CELL_INT},
    {"Lvl", MR_UNIT_NONE, MR_CELL_INT},         {"NumChild", MR_UNIT_COUNT, MR_CELL_INT},
    {"RangeId", MR_UNIT_NONE, MR_CELL_INT},     {"ParentId", MR_UNIT_NONE, MR_CELL_INT},
    {"RangeStack", MR_UNIT_NONE, MR_CELL_TEXT}, {"NameTree", MR_UNIT_NONE, MR_CELL_TEXT},
};

struct children {
    uint64_t ns;
    uint32_t n;
};

#define DEEPEST 64 /* ranges in a RangeStack and levels in a NameTree: deeper ones are cut */

static bool is_push_pop(const struct mr_rec_range *range)
{
    return range->type == MR_RANGE_PUSH_POP;
}

/* ":1:7:12": the ranges around this one, and itself. */
static void write_stack(const struct mr_recording *rec, uint32_t i, char *buf, size_t cap)
{
    uint32_t stack[DEEPEST] = {0}, n = 0;
    size_t used = 0;
    for (uint32_t at = i; at != MR_NONE && n < DEEPEST; at = rec->ranges[at].parent)
        stack[n++] = at;
    while (n-- > 0)
        used += (size_t)snprintf(buf + used, cap - used, ":%u", stack[n] + 1);
}

static void put_range(struct mr_table *table, const struct mr_recording *rec, uint32_t i,
                      const struct children *children, char *name, char *tree)
{
    const struct mr_rec_range *range = &rec->ranges[i];
    const struct mr_rec_thread *thread = &rec->threads[range->thread];
    uint64_t ns = range->end_ns - range->start_ns;
    char stack[DEEPEST * 12];
    mr_table_row(table);
    mr_table_int(table, (int64_t)range->start_ns);
    mr_table_int(table, (int64_t)range->end_ns);
    mr_table_int(table, (int64_t)ns);
    mr_table_int(table, (int64_t)children->ns);
    mr_table_int(table, (int64_t)(ns - MR_MIN(ns, children->ns)));
    mr_table_text(table, name);
    mr_table_int(table, rec->processes[thread->process].pid);
    mr_table_int(table, thread->tid);
    mr_table_int(table, range->depth);
    mr_table_int(table, children->n);
    mr_table_int(table, (int64_t)i + 1);
    if (range->parent == MR_NONE)
        mr_table_empty(table);
    else
        mr_table_int(table, (int64_t)range->parent + 1);
    write_stack(rec, i, stack, sizeof stack);
    mr_table_text(table, stack);
    mr_table_text(table, tree);
}

static int put_ranges(struct mr_table *table, const struct mr_recording *rec,
                      const struct mr_filter *filter, const struct children *children,
                      uint64_t *out_open)
{
    static const char dashes[2 * DEEPEST + 1] =
        "----------------------------------------------------------------"
        "----------------------------------------------------------------";
    for (uint32_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        char *name, *tree;
        if (!is_push_pop(range) || !mr_filter_takes(filter, range->start_ns))
            continue;
        *out_open += range->open;
        if (range->open)
            continue;
        if (asprintf(&name, "%s:%s", rec->strings[range->domain], rec->strings[range->text]) < 0)
            return mr_error_nomem("names", 0);
        if (asprintf(&tree, "%.*s%s", 2 * MR_MIN(range->depth, DEEPEST), dashes, name) < 0) {
            free(name);
            return mr_error_nomem("names", 0);
        }
        put_range(table, rec, i, &children[i], name, tree);
        free(name);
        free(tree);
    }
    return 0;
}

static int fill(struct mr_table *table, struct mr_recording *rec, const struct mr_filter *filter,
                const struct mr_report_opts *opts)
{
    char missing[MR_MISSING_BYTES];
    uint64_t n_open = 0;
    int rc = mr_recording_load(rec);
    if (rc)
        return rc;
    struct children *children = calloc(rec->n_ranges + 1, sizeof *children);
    if (!children)
        return mr_error_nomem("ranges", rec->n_ranges * sizeof *children);
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->parent == MR_NONE || !is_push_pop(range))
            continue;
        children[range->parent].ns += range->end_ns - range->start_ns;
        children[range->parent].n++;
    }
    rc = put_ranges(table, rec, filter, children, &n_open);
    free(children);
    if (rc == 0 && mr_table_rows(table) == 0)
        mr_table_add_note(
            table, "%s",
            mr_report_missing(rec, "NVTX_EVENTS", "NVTX push/pop ranges", "nvtx", opts, missing));
    if (rc == 0 && n_open)
        mr_table_add_note(table, "%llu range%s never ended: left out", (unsigned long long)n_open,
                          n_open == 1 ? "" : "s");
    return rc;
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct mr_filter filter;
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table = mr_table_create("NVTX push/pop ranges in order (nvtx_pushpop_trace)",
                                             columns, MR_COUNT(columns));
    rc = table ? fill(table, recording, &filter, opts) : mr_error_nomem("a table", 0);
    mr_filter_close(&filter);
    if (rc) {
        mr_table_destroy(table);
        return rc;
    }
    return mr_report_finish(table, opts, "-Start", out);
}

const struct mr_report_kind mr_report_pushpop_trace = {
    "nvtx_pushpop_trace", "NVTX ranges of threads in order, with their place in the stack", make,
    MR_REPORT_CALLS};
