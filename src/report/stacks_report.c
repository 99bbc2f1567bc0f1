/* stacks, stacks_func: where threads were when they were sampled. */
#include "recording/stacks.h"
#include "report/report.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST 0.001 /* of its thread's time: rows below it are left out, and counted */

struct all {
    struct mr_stacks stacks;
    struct mr_stack_sum *sums;
    uint64_t n;
    uint64_t *thread_ns, *longest_ns; /* of each thread: sampled, and in one line or function */
    bool by_function;
};

/* The filter's windows. */
static int windows_of(const struct mr_filter *filter, struct mr_intervals *out)
{
    for (uint64_t i = 0; filter->by_range && i < filter->n_spans; i++)
        mr_intervals_add(out, MR_MAX(filter->spans[i].start, filter->from),
                         MR_MIN(filter->spans[i].end, filter->to));
    if (!filter->by_range)
        mr_intervals_add(out, filter->from, filter->to);
    mr_intervals_unite(out);
    return out->lost ? mr_error_nomem("windows", filter->n_spans) : 0;
}

static int read(struct mr_recording *recording, const struct mr_report_opts *opts, struct all *all)
{
    struct mr_filter filter;
    struct mr_intervals windows = {0};
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    rc = windows_of(&filter, &windows);
    if (rc)
        goto end;
    rc = mr_stacks_load(recording, &all->stacks);
    if (rc)
        goto end;
    rc = mr_stacks_sum(&all->stacks, &windows, all->by_function, &all->sums, &all->n);
end:
    mr_intervals_free(&windows);
    mr_filter_close(&filter);
    return rc;
}

static int count_threads(struct all *all)
{
    all->thread_ns = calloc(all->stacks.n_threads + 1, sizeof *all->thread_ns);
    all->longest_ns = calloc(all->stacks.n_threads + 1, sizeof *all->longest_ns);
    if (!all->thread_ns || !all->longest_ns)
        return mr_error_nomem("threads", all->stacks.n_threads);
    for (uint64_t i = 0; i < all->n; i++) {
        const struct mr_stack_sum *sum = &all->sums[i];
        uint64_t *longest = &all->longest_ns[sum->thread];
        all->thread_ns[sum->thread] += sum->self_ns;
        *longest = MR_MAX(*longest, sum->self_ns);
    }
    return 0;
}

/* A thread that waits in one place all the time has no part in anything. */
static bool is_parked(const struct all *all, const struct mr_stack_sum *sum)
{
    return (double)all->longest_ns[sum->thread] > 0.95 * (double)all->thread_ns[sum->thread] &&
           (double)sum->cpu_ns < 0.02 * (double)sum->self_ns;
}

static int by_time(const void *a, const void *b, void *user)
{
    const struct all *all = user;
    const struct mr_stack_sum *x = a, *y = b;
    bool px = is_parked(all, x), py = is_parked(all, y);
    if (px != py)
        return px - py;
    if (x->self_ns != y->self_ns)
        return x->self_ns < y->self_ns ? 1 : -1;
    if (x->total_ns != y->total_ns)
        return x->total_ns < y->total_ns ? 1 : -1;
    return x->thread != y->thread ? (x->thread > y->thread) - (x->thread < y->thread)
                                  : (x->place > y->place) - (x->place < y->place);
}

static void put(const struct all *all, const struct mr_stack_sum *sum, struct mr_table *table)
{
    const struct mr_stacks *s = &all->stacks;
    double thread = (double)all->thread_ns[sum->thread];
    char line[4200];
    mr_table_row(table);
    mr_table_real(table, thread > 0 ? 100 * (double)sum->self_ns / thread : 0);
    mr_table_int(table, (int64_t)sum->self_ns);
    mr_table_int(table, (int64_t)sum->total_ns);
    if (sum->self_ns)
        mr_table_real(table, 100 * (double)sum->cpu_ns / (double)sum->self_ns);
    else
        mr_table_empty(table);
    mr_table_int(table, (int64_t)sum->n);
    mr_table_text(table, s->texts.text[s->threads[sum->thread].label]);
    mr_table_text(table, s->texts.text[s->places[sum->place].function]);
    mr_table_text(table, all->by_function ? s->texts.text[s->places[sum->place].file]
                                          : mr_stack_line(s, sum->place, true, line, sizeof line));
}

/* Lines in which nobody was found are only on the way to others. */
static void put_rows(const struct all *all, struct mr_table *table)
{
    uint64_t n_left = 0;
    for (uint64_t i = 0; i < all->n; i++) {
        const struct mr_stack_sum *sum = &all->sums[i];
        uint64_t ns = all->by_function ? sum->total_ns : sum->self_ns;
        if (ns > 0 && (double)ns >= LEAST * (double)all->thread_ns[sum->thread])
            put(all, sum, table);
        else
            n_left += ns > 0;
    }
    if (n_left)
        mr_table_set_note(table, "%llu %s with less than 0.1%% of their thread's time left out",
                          (unsigned long long)n_left, all->by_function ? "functions" : "lines");
}

static void explain_none(const struct mr_recording *recording, const struct all *all,
                         struct mr_table *table)
{
    if (all->stacks.n_samples)
        mr_table_set_note(table, "no samples in this window");
    else if (recording->source)
        mr_table_set_note(table, "this %s records no stacks that are read", recording->source);
    else
        mr_table_set_note(table, "no sampled stacks in this recording; millrace profile --sample "
                                 "process-tree or --python-sampling records them");
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out, bool by_function)
{
    const struct mr_column columns[] = {
        {"Time", MR_UNIT_PERCENT, MR_CELL_REAL},
        {"Self", MR_UNIT_NS, MR_CELL_INT},
        {"Total", MR_UNIT_NS, MR_CELL_INT},
        {"On CPU", MR_UNIT_PERCENT, MR_CELL_REAL},
        {"Samples", MR_UNIT_COUNT, MR_CELL_INT},
        {"Thread", MR_UNIT_NONE, MR_CELL_TEXT},
        {"Function", MR_UNIT_NONE, MR_CELL_TEXT},
        {by_function ? "File" : "Line", MR_UNIT_NONE, MR_CELL_TEXT},
    };
    struct all all = {.by_function = by_function};
    struct mr_table *table = NULL;
    int rc = read(recording, opts, &all);
    if (rc)
        goto end;
    rc = count_threads(&all);
    if (rc)
        goto end;
    table = mr_table_create(by_function ? "Functions by thread (stacks_func)"
                                        : "Lines by thread (stacks)",
                            columns, MR_COUNT(columns));
    if (!table) {
        rc = mr_error_nomem("a table", 0);
        goto end;
    }
    if (all.n > 1)
        qsort_r(all.sums, all.n, sizeof *all.sums, by_time, &all);
    put_rows(&all, table);
    if (all.n == 0)
        explain_none(recording, &all, table);
    rc = mr_report_finish(table, opts, NULL, out);
end:
    mr_stacks_free(&all.stacks);
    free(all.sums);
    free(all.thread_ns);
    free(all.longest_ns);
    return rc;
}

static int make_lines(struct mr_recording *recording, const struct mr_report_opts *opts,
                      struct mr_table **out)
{
    return make(recording, opts, out, false);
}

static int make_functions(struct mr_recording *recording, const struct mr_report_opts *opts,
                          struct mr_table **out)
{
    return make(recording, opts, out, true);
}

const struct mr_report_kind mr_report_stacks = {"stacks", "Sampled lines of code by thread",
                                                make_lines};
const struct mr_report_kind mr_report_stacks_func = {"stacks_func", "Sampled functions by thread",
                                                     make_functions};
