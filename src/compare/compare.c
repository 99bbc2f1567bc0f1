/* Judges two recordings by their steps. */
#include "compare/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct mr_comparison {
    struct mr_step_change step;
    char summary[1024];
    struct mr_table *table[MR_N_COMPARED];
};

void mr_compare_opts_fill(struct mr_compare_opts *opts, size_t size)
{
    const struct mr_compare_opts full = {.least_percent = 1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

/* ---- the parts of a step ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts a copy in `sorted`. */
static void describe(const double *ns, uint64_t n, double *sorted, struct mr_part_change *out,
                     int which)
{
    double sum = 0, squares = 0;
    if (n == 0)
        return;
    memcpy(sorted, ns, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    for (uint64_t i = 0; i < n; i++)
        sum += ns[i];
    double mean = sum / (double)n;
    for (uint64_t i = 0; i < n; i++)
        squares += (ns[i] - mean) * (ns[i] - mean);
    out->mean[which] = mean;
    out->median[which] = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    out->deviation[which] = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

/* least_ns: of a change that counts. */
static enum mr_change judge(const struct mr_part_change *part, double least_ns)
{
    double change = part->mean[1] - part->mean[0];
    if (!part->noise.known)
        return MR_CHANGE_CANNOT_TELL;
    if (part->noise.p > MR_NOISE_RATE || fabs(change) < least_ns || change == 0)
        return MR_CHANGE_NONE;
    return change > 0 ? MR_CHANGE_SLOWER : MR_CHANGE_FASTER;
}

static int judge_parts(struct mr_compared *c)
{
    const struct mr_measured *a = &c->measured[0], *b = &c->measured[1];
    double *sorted = malloc((MR_MAX(a->n, b->n) + 1) * sizeof *sorted);
    int rc = sorted ? 0 : mr_error_nomem("steps", MR_MAX(a->n, b->n) * sizeof *sorted);
    for (int i = 0; i < MR_N_OF_STEP && rc == 0 && a->n > 0 && b->n > 0; i++) {
        struct mr_part_change *part = &c->part[i];
        const double *before = mr_measured_part(a, i), *after = mr_measured_part(b, i);
        describe(before, a->n, sorted, part, 0);
        describe(after, b->n, sorted, part, 1);
        rc = mr_noise_test(before, a->n, after, b->n, &part->noise);
        double least = c->least_percent / 100 * part->mean[0];
        if (i != MR_OF_STEP)
            least = MR_MAX(least, MR_LEAST_OF_STEP * c->part[MR_OF_STEP].mean[0]);
        part->change = judge(part, least);
    }
    free(sorted);
    return rc;
}

/* ---- one line ---- */

static double percent_of(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static size_t tell_why_not(const struct mr_compared *c, char *out, size_t cap)
{
    const struct mr_measured *m = c->measured;
    int less = m[0].n > 0; /* the one that lacks them */
    if (m[0].n == 0 || m[1].n == 0)
        return (size_t)snprintf(out, cap,
                                "cannot tell: %s has no %s; -r all compares kernels, "
                                "copies, calls and ranges by their total times",
                                c->rec[less]->path, m[less].has_work ? "steps" : "device work");
    return (size_t)snprintf(out, cap,
                            "cannot tell: %" PRIu64 " and %" PRIu64
                            " steps are too few for any difference to be beyond noise",
                            m[0].n, m[1].n);
}

static size_t tell_step(const struct mr_compared *c, char *out, size_t cap)
{
    static const char *const words[] = {"same", "slower", "faster"};
    const struct mr_part_change *step = &c->part[MR_OF_STEP];
    const char *how = step->change != MR_CHANGE_NONE  ? "beyond noise"
                      : step->noise.p > MR_NOISE_RATE ? "within noise"
                                                      : "less than what counts";
    double change = percent_of(step->mean[1] - step->mean[0], step->mean[0]);
    return (size_t)snprintf(out, cap,
                            "%s: a step took %.3f ms before and %.3f ms after (%+.1f%%), %s (p = "
                            "%.4f; %" PRIu64 " and %" PRIu64 " steps)",
                            words[step->change], step->mean[0] / 1e6, step->mean[1] / 1e6, change,
                            how, step->noise.p, c->measured[0].n, c->measured[1].n);
}

/* "; waiting for data 54% -> 57% of the step; pageable copies 20 -> 0, pinned 0 -> 20" */
static size_t tell_data(const struct mr_compared *c, char *out, size_t cap)
{
    uint64_t n[2][2] = {{0}};
    size_t used = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < c->measured[i].n_copies; k++) {
            const struct mr_copies_of *copies = &c->measured[i].copies[k];
            n[0][i] +=
                copies->src == MR_MEM_PAGEABLE || copies->dst == MR_MEM_PAGEABLE ? copies->n : 0;
            n[1][i] += copies->src == MR_MEM_PINNED || copies->dst == MR_MEM_PINNED ? copies->n : 0;
        }
    const double *data = c->part[MR_OF_DATA].mean, *step = c->part[MR_OF_STEP].mean;
    if (c->measured[0].n > 0 && c->measured[1].n > 0)
        used = (size_t)snprintf(out, cap, "; waiting for data %.1f%% -> %.1f%% of the step",
                                percent_of(data[0], step[0]), percent_of(data[1], step[1]));
    if (n[0][0] != n[0][1] || n[1][0] != n[1][1])
        used += (size_t)snprintf(out + used, cap - used,
                                 "; pageable copies %" PRIu64 " -> %" PRIu64 ", pinned %" PRIu64
                                 " -> %" PRIu64,
                                 n[0][0], n[0][1], n[1][0], n[1][1]);
    return used;
}

static void summarize(const struct mr_compared *c, char *out, size_t cap)
{
    struct mr_findings_change findings = mr_compared_count(c);
    size_t used =
        c->part[MR_OF_STEP].noise.known ? tell_step(c, out, cap) : tell_why_not(c, out, cap);
    if (used < cap / 2)
        used += tell_data(c, out + used, cap - used);
    if (used < cap)
        snprintf(out + used, cap - used, "; findings: %u gone, %u new, %u remaining",
                 findings.n_gone, findings.n_new, findings.n_remaining);
}

/* ---- all of it ---- */

static int read_both(struct mr_compared *c, const char *step)
{
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.step = step;
    for (int i = 0; i < 2; i++) {
        const struct mr_case_viewer viewer = {mr_measure, &c->measured[i]};
        int rc = mr_analyze_seen(c->rec[i], &opts, &viewer, &c->advice[i]);
        if (rc < 0)
            return rc;
    }
    return judge_parts(c);
}

static int make_tables(const struct mr_compared *c, struct mr_comparison *out)
{
    static int (*const make[])(const struct mr_compared *c, struct mr_table **out) = {
        [MR_COMPARED_STEPS] = mr_compared_steps,
        [MR_COMPARED_COPIES] = mr_compared_copies,
        [MR_COMPARED_LONGEST] = mr_compared_longest,
        [MR_COMPARED_FINDINGS] = mr_compared_findings};
    int rc = 0;
    for (int i = 0; i < MR_N_COMPARED && rc == 0; i++)
        rc = make[i](c, &out->table[i]);
    return rc;
}

static void put_step(const struct mr_compared *c, struct mr_step_change *out)
{
    const struct mr_part_change *step = &c->part[MR_OF_STEP];
    bool known = step->noise.known;
    *out = (struct mr_step_change){.size = sizeof *out,
                                   .change = known ? step->change : MR_CHANGE_CANNOT_TELL,
                                   .n_before = c->measured[0].n,
                                   .n_after = c->measured[1].n,
                                   .before_ns = step->mean[0],
                                   .after_ns = step->mean[1],
                                   .p = known ? step->noise.p : 1};
}

int mr_compare(struct mr_recording *before, struct mr_recording *after,
               const struct mr_compare_opts *opts, struct mr_comparison **out)
{
    if (!before || !after || !out)
        return mr_error_null("mr_compare", "two recordings and a place for the result");
    struct mr_compare_opts all;
    mr_compare_opts_init(&all);
    int rc = mr_opts_take("compare_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    if (!(all.least_percent >= 0))
        return mr_error_set(MR_EOPTION, "least change %g%%: expected 0 or more", all.least_percent);
    struct mr_compared *c = calloc(1, sizeof *c);
    struct mr_comparison *made = calloc(1, sizeof *made);
    if (!c || !made) {
        rc = mr_error_nomem("a comparison", sizeof *c);
        goto end;
    }
    c->rec[0] = before;
    c->rec[1] = after;
    c->least_percent = all.least_percent;
    rc = read_both(c, all.step);
    if (rc < 0)
        goto end;
    rc = make_tables(c, made);
    if (rc < 0)
        goto end;
    put_step(c, &made->step);
    summarize(c, made->summary, sizeof made->summary);
    *out = made;
    made = NULL;
end:
    mr_comparison_destroy(made);
    for (int i = 0; c && i < 2; i++) {
        mr_advice_destroy(c->advice[i]);
        mr_measured_free(&c->measured[i]);
    }
    free(c);
    return rc;
}

int mr_comparison_step(const struct mr_comparison *comparison, struct mr_step_change *out)
{
    return mr_info_give("step_change", out, &comparison->step, sizeof comparison->step);
}

const char *mr_comparison_summary(const struct mr_comparison *comparison)
{
    if (!comparison)
        return NULL;
    return comparison->summary;
}

struct mr_table *mr_comparison_table(const struct mr_comparison *comparison, uint32_t i,
                                     const char **out_name)
{
    if (!comparison)
        return NULL;
    static const char *const names[] = {"steps", "copies", "longest_copy", "findings"};
    if (i >= MR_N_COMPARED)
        return NULL;
    if (out_name)
        *out_name = names[i];
    return comparison->table[i];
}

void mr_comparison_destroy(struct mr_comparison *comparison)
{
    if (!comparison)
        return;
    for (int i = 0; i < MR_N_COMPARED; i++)
        mr_table_destroy(comparison->table[i]);
    free(comparison);
}
