/* Two recordings side by side: total times of kernels, memory operations, API calls and NVTX ranges
 * by name. */
#include "report/report.h"
#include "table/table.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Changes below a thousandth of their category's time are noise, whatever their percentage. */
#define LEAST_SHARE 0.001

struct pair {
    const char *name, *category;
    struct mr_sum before, after; /* n 0: not there */
    double change;               /* ns */
    bool beyond;                 /* the threshold */
};

static int by_change(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->beyond != y->beyond)
        return x->beyond ? -1 : 1;
    if (fabs(x->change) != fabs(y->change))
        return fabs(x->change) > fabs(y->change) ? -1 : 1;
    int order = strcmp(x->category, y->category);
    return order ? order : strcmp(x->name, y->name);
}

static int order_of(const struct mr_sum *a, const struct mr_sum *b)
{
    int order = strcmp(a->category, b->category);
    return order ? order : strcmp(a->name, b->name);
}

/* Both lists are sorted by category and name. Returns how many pairs. */
static uint64_t join(const struct mr_sum *before, uint64_t n_before, const struct mr_sum *after,
                     uint64_t n_after, struct pair *pairs)
{
    uint64_t n = 0, i = 0, k = 0;
    while (i < n_before || k < n_after) {
        int order = i == n_before ? 1 : k == n_after ? -1 : order_of(&before[i], &after[k]);
        struct pair *pair = &pairs[n++];
        *pair = (struct pair){0};
        if (order <= 0)
            pair->before = before[i++];
        if (order >= 0)
            pair->after = after[k++];
        pair->name = order <= 0 ? pair->before.name : pair->after.name;
        pair->category = order <= 0 ? pair->before.category : pair->after.category;
        pair->change = pair->after.total - pair->before.total;
    }
    return n;
}

static double total_of(const struct pair *pairs, uint64_t n, const char *category)
{
    double before = 0, after = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (strcmp(pairs[i].category, category) == 0) {
            before += pairs[i].before.total;
            after += pairs[i].after.total;
        }
    }
    return MR_MAX(before, after);
}

static uint64_t mark(struct pair *pairs, uint64_t n, double threshold)
{
    uint64_t slower = 0, from = 0;
    for (uint64_t i = 0; i < n; i++) {
        /* a category's pairs lie together */
        if (i > 0 && strcmp(pairs[i].category, pairs[i - 1].category) == 0)
            continue;
        double least = LEAST_SHARE * total_of(pairs, n, pairs[i].category);
        for (from = i; from < n && strcmp(pairs[from].category, pairs[i].category) == 0; from++) {
            struct pair *p = &pairs[from];
            bool alone = p->before.n == 0 || p->after.n == 0;
            p->beyond = fabs(p->change) > least &&
                        (alone || fabs(p->change) > p->before.total * threshold / 100);
            slower += p->beyond && p->change > 0;
        }
    }
    return slower;
}

static const struct mr_column columns[] = {
    {"Change", MR_UNIT_PERCENT, MR_CELL_REAL},    {"Change Time", MR_UNIT_NS, MR_CELL_INT},
    {"Total Before", MR_UNIT_NS, MR_CELL_INT},    {"Total After", MR_UNIT_NS, MR_CELL_INT},
    {"Count Before", MR_UNIT_COUNT, MR_CELL_INT}, {"Count After", MR_UNIT_COUNT, MR_CELL_INT},
    {"Avg Before", MR_UNIT_NS, MR_CELL_REAL},     {"Avg After", MR_UNIT_NS, MR_CELL_REAL},
    {"Verdict", MR_UNIT_NONE, MR_CELL_TEXT},      {"Category", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
};

static void put_average(struct mr_table *table, const struct mr_sum *sum)
{
    if (sum->n)
        mr_table_real(table, sum->total / (double)sum->n);
    else
        mr_table_empty(table);
}

static void put_pair(struct mr_table *table, const struct pair *p)
{
    const char *verdict = !p->beyond         ? "same"
                          : p->before.n == 0 ? "new"
                          : p->after.n == 0  ? "gone"
                          : p->change > 0    ? "slower"
                                             : "faster";
    mr_table_row(table);
    if (p->before.total > 0)
        mr_table_real(table, 100 * p->change / p->before.total);
    else
        mr_table_empty(table);
    mr_table_real(table, p->change);
    mr_table_real(table, p->before.total);
    mr_table_real(table, p->after.total);
    mr_table_int(table, (int64_t)p->before.n);
    mr_table_int(table, (int64_t)p->after.n);
    put_average(table, &p->before);
    put_average(table, &p->after);
    mr_table_text(table, verdict);
    mr_table_text(table, p->category);
    mr_table_text(table, p->name);
}

static void free_sums(struct mr_sum *sums, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        free(sums[i].name);
    free(sums);
}

static int compare(const struct mr_sum *a, uint64_t n_a, const struct mr_sum *b, uint64_t n_b,
                   double threshold, uint64_t *out_changed, struct mr_table **out)
{
    struct pair *pairs = malloc((n_a + n_b + 1) * sizeof *pairs);
    struct mr_table *table = mr_table_create("Before and after", columns, MR_COUNT(columns));
    if (!pairs || !table) {
        free(pairs);
        mr_table_destroy(table);
        return mr_error_nomem("a comparison", (n_a + n_b) * sizeof *pairs);
    }
    uint64_t n = join(a, n_a, b, n_b, pairs), slower = mark(pairs, n, threshold);
    qsort(pairs, n, sizeof *pairs, by_change);
    for (uint64_t i = 0; i < n; i++)
        put_pair(table, &pairs[i]);
    free(pairs);
    if (n == 0)
        mr_table_set_note(
            table,
            "neither recording has CUDA activity or NVTX ranges; --trace cuda,nvtx records them");
    else
        mr_table_set_note(
            table,
            "%llu got slower by more than %g%%; changes below %g%% of their category's "
            "time are ignored",
            (unsigned long long)slower, threshold, 100 * LEAST_SHARE);
    int rc = mr_table_finish(table, out);
    if (rc == 0 && out_changed)
        *out_changed = slower;
    return rc;
}

static int by_category(const void *a, const void *b)
{
    return order_of(a, b);
}

/* Ranges by domain and text: the loader's wait is in no call and no kernel. Appends to the sums,
 * and sorts all. */
static int add_ranges(struct mr_recording *recording, struct mr_sum **sums, uint64_t *n)
{
    struct mr_report_opts opts;
    struct mr_table *table;
    mr_report_opts_init(&opts);
    int rc = mr_report_make(recording, "nvtx_sum", &opts, &table);
    if (rc)
        return rc;
    uint64_t rows = mr_table_rows(table);
    uint32_t total = mr_table_find(table, "Total Time"), count = mr_table_find(table, "Instances"),
             style = mr_table_find(table, "Style"), range = mr_table_find(table, "Range");
    struct mr_sum *more = realloc(*sums, (*n + rows + 1) * sizeof *more);
    if (more)
        *sums = more;
    for (uint64_t i = 0; i < rows && more && rc == 0; i++) {
        const char *text = mr_table_cell(table, i, range).text;
        bool push = strcmp(mr_table_cell(table, i, style).text, "PushPop") == 0;
        struct mr_sum *sum = &more[*n];
        *sum = (struct mr_sum){.category = "NVTX_RANGE",
                               .n = (uint64_t)mr_table_cell(table, i, count).integer,
                               .total = (double)mr_table_cell(table, i, total).integer};
        if (asprintf(&sum->name, "%s%s", text, push ? "" : " (start-end)") < 0)
            rc = -ENOMEM;
        else
            (*n)++;
    }
    mr_table_destroy(table);
    if (!more || rc)
        return mr_error_nomem("a comparison", rows * sizeof *more);
    qsort(more, *n, sizeof *more, by_category);
    return 0;
}

/* ---- some of the rows ---- */

static const struct {
    const char *report, *category;
} reports_of[] = {{"cuda_gpu_kern_sum", "CUDA_KERNEL"},
                  {"cuda_gpu_mem_time_sum", "MEMORY_OPER"},
                  {"cuda_gpu_sum", "CUDA_KERNEL"},
                  {"cuda_gpu_sum", "MEMORY_OPER"},
                  {"cuda_api_sum", "CUDA_API"},
                  {"nvtx_sum", "NVTX_RANGE"},
                  {"all", "CUDA_KERNEL"},
                  {"all", "MEMORY_OPER"},
                  {"all", "CUDA_API"},
                  {"all", "NVTX_RANGE"}};

/* Whether a comma-separated list of names has one of this report. */
static bool lists(const char *names, const char *report)
{
    size_t n = strlen(report);
    for (const char *at = names; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, report, n) == 0 && (at[n] == 0 || at[n] == ','))
            return true;
    }
    return false;
}

static int check_reports(const char *names)
{
    for (const char *at = names; at; at = strchr(at, ',')) {
        at += *at == ',';
        size_t n = strcspn(at, ","), i = 0;
        while (i < MR_COUNT(reports_of) &&
               (strlen(reports_of[i].report) != n || strncmp(reports_of[i].report, at, n) != 0))
            i++;
        if (i == MR_COUNT(reports_of))
            return mr_error_set(MR_EOPTION,
                                "report \"%.*s\" can't be compared: expected cuda_gpu_kern_sum, "
                                "cuda_gpu_mem_time_sum, cuda_gpu_sum, cuda_api_sum, nvtx_sum or "
                                "all",
                                (int)MR_MIN(n, 200), at);
    }
    return 0;
}

/* Leaves out sums of other reports. */
static void choose(struct mr_sum *sums, uint64_t *n, const char *names)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < *n; i++) {
        bool wanted = false;
        for (size_t k = 0; k < MR_COUNT(reports_of) && !wanted; k++)
            wanted = strcmp(reports_of[k].category, sums[i].category) == 0 &&
                     lists(names, reports_of[k].report);
        if (wanted)
            sums[kept++] = sums[i];
        else
            free(sums[i].name);
    }
    *n = kept;
}

static int add_up(struct mr_recording *recording, const char *names, struct mr_sum **sums,
                  uint64_t *n)
{
    int rc = mr_report_sums(recording, sums, n);
    if (rc)
        return rc;
    rc = add_ranges(recording, sums, n);
    if (rc)
        return rc;
    choose(*sums, n, names);
    return 0;
}

int mr_report_diff_rows(struct mr_recording *before, struct mr_recording *after,
                        const char *reports, double threshold_percent, uint64_t *out_changed,
                        struct mr_table **out)
{
    if (!before || !after || !out)
        return mr_error_null("mr_report_diff_rows", "two recordings and a place for the result");
    struct mr_sum *a = NULL, *b = NULL;
    uint64_t n_a = 0, n_b = 0;
    reports = reports ? reports : "all";
    if (!(threshold_percent >= 0))
        return mr_error_set(MR_EOPTION, "threshold %g%%: expected 0 or more", threshold_percent);
    int rc = check_reports(reports);
    if (rc)
        return rc;
    rc = add_up(before, reports, &a, &n_a);
    rc = rc ? rc : add_up(after, reports, &b, &n_b);
    rc = rc ? rc : compare(a, n_a, b, n_b, threshold_percent, out_changed, out);
    free_sums(a, n_a);
    free_sums(b, n_b);
    return rc;
}

int mr_report_diff(struct mr_recording *before, struct mr_recording *after,
                   double threshold_percent, uint64_t *out_changed, struct mr_table **out)
{
    return mr_report_diff_rows(before, after, NULL, threshold_percent, out_changed, out);
}
