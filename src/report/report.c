/* The reports there are, and what they share: filters, orders, notes. */
#include "report/report.h"
#include "table/table.h"

#include <errno.h>
#include <millrace/options.h>
#include <sqlite3.h>
#include <string.h>

#define MAX_KINDS 64

/* [out] kinds: ended by NULL. */
static void list_kinds(const struct mr_report_kind *kinds[MAX_KINDS + 1])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MR_COUNT(mr_report_nvtx_kinds); i++)
        kinds[n++] = &mr_report_nvtx_kinds[i];
    kinds[n++] = &mr_report_pushpop_trace;
    for (uint32_t i = 0; i < MR_COUNT(mr_report_proj_kinds); i++)
        kinds[n++] = &mr_report_proj_kinds[i];
    for (uint32_t i = 0; i < mr_report_n_sum_kinds; i++)
        kinds[n++] = &mr_report_sum_kinds[i];
    for (uint32_t i = 0; i < mr_report_n_trace_kinds; i++)
        kinds[n++] = &mr_report_trace_kinds[i];
    for (uint32_t i = 0; i < MR_COUNT(mr_report_exec_kinds); i++)
        kinds[n++] = &mr_report_exec_kinds[i];
    kinds[n++] = &mr_report_um_sum;
    kinds[n++] = &mr_report_mem_ops;
    kinds[n++] = &mr_report_metrics;
    kinds[n++] = &mr_report_stacks;
    kinds[n++] = &mr_report_stacks_func;
    kinds[n++] = &mr_report_step_breakdown;
    kinds[n++] = &mr_report_idle_breakdown;
    for (uint32_t i = 0; i < MR_COUNT(mr_report_path_kinds); i++)
        kinds[n++] = &mr_report_path_kinds[i];
    kinds[n++] = &mr_report_queue_depth;
    kinds[n++] = &mr_report_overlap;
    for (uint32_t i = 0; i < MR_COUNT(mr_report_rank_kinds); i++)
        kinds[n++] = &mr_report_rank_kinds[i];
    kinds[n] = NULL;
}

const char *mr_report_name(uint32_t i, const char **out_help)
{
    const struct mr_report_kind *kinds[MAX_KINDS + 1];
    uint32_t n = 0;
    list_kinds(kinds);
    while (kinds[n])
        n++;
    if (i >= n)
        return NULL;
    if (out_help)
        *out_help = kinds[i]->help;
    return kinds[i]->name;
}

void mr_report_opts_fill(struct mr_report_opts *opts, size_t size)
{
    const struct mr_report_opts full = {0};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int no_such_report(const char *name, const struct mr_report_kind *const *kinds)
{
    const char *names[MAX_KINDS + 1] = {NULL};
    for (uint32_t i = 0; kinds[i]; i++)
        names[i] = kinds[i]->name;
    return mr_error_no_such(name, names, "\"", "no report \"%s\"", name);
}

/* Tables of a device's work, whose times another machine would not have. */
static bool is_of_devices(const char *name)
{
    static const char *const others[] = {"nvtx_sum", "nvtx_pushpop", "nvtx_startend",
                                         "osrt_",    "gpu_metrics",  "stacks"};
    for (size_t i = 0; i < MR_COUNT(others); i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

static int tell_simulated(struct mr_recording *recording, struct mr_table *table)
{
    struct sqlite3_stmt *stmt = NULL;
    if (!mr_recording_has(recording, "TARGET_INFO_GPU", "name"))
        return 0;
    int rc = mr_sql_prepare(recording, &stmt, "SELECT id, name FROM TARGET_INFO_GPU ORDER BY id");
    while (rc == 0 && (rc = mr_sql_step(recording, stmt)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 1);
        rc = 0;
        if (name && mr_name_simulated(name))
            mr_table_add_note(table, "device %d is %.100s, not a GPU", sqlite3_column_int(stmt, 0),
                              name);
    }
    sqlite3_finalize(stmt);
    return rc;
}

/* "NAME" or "NAME:base". [out] out_names: enum mr_kernel_names, when it is said. NULL: MR_EOPTION,
 * set. */
static const struct mr_report_kind *find_kind(const char *name, int *out_names)
{
    const struct mr_report_kind *kinds[MAX_KINDS + 1];
    size_t bytes = strcspn(name, ":");
    const char *argument = name[bytes] ? name + bytes + 1 : NULL;
    uint32_t i = 0;
    list_kinds(kinds);
    while (kinds[i] && (strncmp(kinds[i]->name, name, bytes) != 0 || kinds[i]->name[bytes] != '\0'))
        i++;
    if (!kinds[i])
        no_such_report(name, kinds);
    if (!kinds[i] || !argument)
        return kinds[i];
    if (!(kinds[i]->has & MR_REPORT_KERNELS)) {
        mr_error_set(MR_EOPTION, "report %s: it names no kernels, and takes no \":%s\"",
                     kinds[i]->name, argument);
        return NULL;
    }
    bool base = strcmp(argument, "base") == 0;
    if (!base && strcmp(argument, "mangled") != 0) {
        mr_error_set(MR_EOPTION, "report %s: expected \":base\" or \":mangled\", not \":%s\"",
                     kinds[i]->name, argument);
        return NULL;
    }
    *out_names = base ? MR_KERNELS_BASE : MR_KERNELS_MANGLED;
    return kinds[i];
}

int mr_report_check(const char *name)
{
    if (!name)
        return mr_error_null("mr_report_check", "the name of a report");
    int names;
    return find_kind(name, &names) ? 0 : MR_EOPTION;
}

/* What --range selected, in the table's title. */
static int tell_range(struct mr_table *table, const struct mr_report_kind *kind,
                      const struct mr_report_opts *opts)
{
    char *title;
    const char *how = opts->by_time                 ? "begun"
                      : kind->has & MR_REPORT_CALLS ? "calls begun and device work launched"
                                                    : "launched";
    if (asprintf(&title, "%s: %s inside range %s", table->title, how, opts->range) < 0)
        return mr_error_nomem("a table", 0);
    free(table->title);
    table->title = title;
    return 0;
}

int mr_report_make(struct mr_recording *recording, const char *name,
                   const struct mr_report_opts *opts, struct mr_table **out)
{
    struct mr_report_opts all;
    mr_report_opts_init(&all);
    int rc = mr_opts_take("report_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    if (!recording || !name || !out)
        return mr_error_null("mr_report_make", "a recording, a report and a place for the result");
    const struct mr_report_kind *kind = find_kind(name, &all.kernel_names);
    if (!kind)
        return MR_EOPTION;
    if (!(kind->has & MR_REPORT_OPS))
        all.by_time = 1;
    struct mr_table *table = NULL;
    rc = kind->make(recording, &all, &table);
    if (rc == 0) {
        rc = all.range ? tell_range(table, kind, &all) : 0;
        if (rc == 0 && is_of_devices(kind->name) && mr_table_rows(table) > 0)
            rc = tell_simulated(recording, table);
        if (rc < 0)
            mr_table_destroy(table);
    }
    int failed = mr_recording_result(recording, rc);
    if (failed == 0)
        *out = table;
    else if (rc == 0)
        mr_table_destroy(table);
    return failed;
}

int mr_report_finish(struct mr_table *table, const struct mr_report_opts *opts,
                     const char *own_sort, struct mr_table **out)
{
    struct mr_table *done;
    const char *sort = opts->sort && *opts->sort ? opts->sort : NULL;
    int rc = mr_table_finish(table, &done);
    if (rc)
        return rc;
    /* the own order first: rows alike in what the user sorts by stay in it */
    if (own_sort)
        rc = mr_table_sort(done, own_sort + (*own_sort == '-'), *own_sort == '-');
    if (rc == 0 && sort)
        rc = mr_table_sort(done, sort + (*sort == '-'), *sort == '-');
    if (rc) {
        mr_table_destroy(done);
        return rc;
    }
    if (opts->limit)
        mr_table_limit(done, opts->limit);
    *out = done;
    return 0;
}

/* trace: "nvtx", or "cuda (or cuda-light)". */
static bool was_traced(const struct mr_recording *recording, const char *trace)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } traces[] = {{"cuda", MR_TRACE_CUDA}, {"nvtx", MR_TRACE_NVTX}, {"osrt", MR_TRACE_OSRT}};
    for (size_t i = 0; i < MR_COUNT(traces); i++)
        if (strncmp(trace, traces[i].name, strlen(traces[i].name)) == 0)
            return recording->traced & traces[i].bits;
    return false;
}

const char *mr_report_missing(struct mr_recording *recording, const char *table, const char *what,
                              const char *trace, const struct mr_report_opts *opts,
                              char buf[MR_MISSING_BYTES])
{
    bool there = mr_recording_has(recording, table, NULL);
    if (there && recording->end_ns && opts->from_ns > recording->end_ns)
        snprintf(buf, MR_MISSING_BYTES, "no %s in this window: the recording ends at %.6g s", what,
                 (double)recording->end_ns * 1e-9);
    else if (there && (opts->from_ns || opts->to_ns || opts->range))
        snprintf(buf, MR_MISSING_BYTES, "no %s in this window", what);
    else if (was_traced(recording, trace))
        snprintf(buf, MR_MISSING_BYTES,
                 "no %s in this recording: they were traced, but none "
                 "occurred",
                 what);
    else if (recording->source)
        snprintf(buf, MR_MISSING_BYTES, "this %s records no %s", recording->source, what);
    else
        snprintf(buf, MR_MISSING_BYTES, "no %s in this recording%s; --trace %s records them", what,
                 there ? "" : ", which has no table of them", trace);
    return buf;
}

void mr_report_note(struct mr_table *table, const struct mr_left_out *left, const char *missing)
{
    char lost[128] = "", backward[128] = "", alone[128] = "", unsized[128] = "";
    const char *text[] = {lost, backward, alone, unsized};
    if (left->n_lost)
        snprintf(lost, sizeof lost, "%llu record%s without a time left out",
                 (unsigned long long)left->n_lost, left->n_lost == 1 ? "" : "s");
    if (left->n_backward)
        snprintf(backward, sizeof backward, "%llu record%s that end%s before %s begin%s left out",
                 (unsigned long long)left->n_backward, left->n_backward == 1 ? "" : "s",
                 left->n_backward == 1 ? "s" : "", left->n_backward == 1 ? "it" : "they",
                 left->n_backward == 1 ? "s" : "");
    if (left->n_alone)
        snprintf(alone, sizeof alone, "%llu record%s whose call is not recorded left out",
                 (unsigned long long)left->n_alone, left->n_alone == 1 ? "" : "s");
    if (left->n_unsized)
        snprintf(unsized, sizeof unsized, "%llu record%s whose size is not recorded left out",
                 (unsigned long long)left->n_unsized, left->n_unsized == 1 ? "" : "s");
    if (mr_table_rows(table) == 0 && !left->n_unsized)
        mr_table_add_note(table, "%s", missing);
    for (size_t i = 0; i < MR_COUNT(text); i++)
        if (*text[i])
            mr_table_add_note(table, "%s", text[i]);
}
