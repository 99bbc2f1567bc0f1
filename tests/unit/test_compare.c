/*
 * White-box. Two recordings compared: how often the test of noise gives a false alarm and what it
 * finds, on step times of chance; and what is said of loops that are made slower, and of real
 * programs.
 */
#include "fixture.h"
#include "loop_sim.h"

#include "compare/noise.h"

#include <math.h>
#include <unistd.h>

#define BEFORE "test_compare_before.sqlite"
#define AFTER  "test_compare_after.sqlite"

/* ---- step times of chance ---- */

enum chance { NORMAL, SKEWED, PAUSES, PAIRS, FOURS, DRIFTING, N_CHANCE };

static uint32_t n_drawn;

/* In (0, 1). */
static double uniform(void)
{
    return ((double)(test_u64(n_drawn++) >> 12) + 0.5) / 0x1p52;
}

static double normal(void)
{
    double r = sqrt(-2 * log(uniform()));
    return r * cos(2 * acos(-1) * uniform());
}

/* Mean 10, or near it. */
static void draw(enum chance kind, double *x, uint64_t n)
{
    uint64_t first = (uint64_t)(4 * uniform());
    double drift = normal();
    for (uint64_t i = 0; i < n; i++) {
        drift = 0.4 * drift + sqrt(1 - 0.4 * 0.4) * normal();
        switch (kind) {
        case NORMAL:
            x[i] = 10 + 0.3 * normal();
            break;
        case SKEWED:
            x[i] = 10 * exp(0.3 * normal());
            break;
        case PAUSES: /* now and then a long step */
            x[i] = 10 + 0.1 * normal() + (uniform() < 0.03 ? -20 * log(uniform()) : 0);
            break;
        case PAIRS: /* two workers that deliver together */
            x[i] = ((i + first) % 2 ? 2 : 18) + 0.2 * normal();
            break;
        case FOURS:
            x[i] = ((i + first) % 4 ? 2 : 34) + 0.2 * normal();
            break;
        default:
            x[i] = 10 + 0.3 * drift;
        }
    }
}

static bool alarms(const double *a, uint64_t n_a, const double *b, uint64_t n_b)
{
    struct mr_noise noise;
    assert_int_equal(mr_noise_test(a, n_a, b, n_b, &noise), 0);
    assert_true(noise.known && noise.p > 0 && noise.p <= 1);
    return noise.p <= MR_NOISE_RATE;
}

#define PAIRS_EACH 250

enum { N_LENGTHS = 4 };
static const uint64_t lengths[N_LENGTHS][2] = {{20, 20}, {40, 60}, {100, 50}, {300, 300}};

/* Of n that are called different with the stated probability, this many with a chance of one in a
 * thousand. */
static double most_of(double n)
{
    return n * MR_NOISE_RATE + 3.1 * sqrt(n * MR_NOISE_RATE * (1 - MR_NOISE_RATE)) + 1;
}

static void false_alarms_stay_under_their_rate(void **state)
{
    (void)state;
    double a[300], b[300];
    uint32_t n_all = 0;
    for (int kind = 0; kind < N_CHANCE; kind++) {
        uint32_t n = 0;
        /* what drifts is not over within a block of few steps */
        int from = kind == DRIFTING ? 2 : 0;
        for (int k = from; k < N_LENGTHS; k++)
            for (int i = 0; i < PAIRS_EACH; i++) {
                draw((enum chance)kind, a, lengths[k][0]);
                draw((enum chance)kind, b, lengths[k][1]);
                n += alarms(a, lengths[k][0], b, lengths[k][1]);
            }
        double limit = most_of(PAIRS_EACH * (N_LENGTHS - from));
        if (n > limit)
            fail_msg("%u false alarms of kind %d, more than %g", n, kind, limit);
        n_all += n;
    }
    assert_true(n_all <= most_of(PAIRS_EACH * (6 * N_LENGTHS - 2)));
    assert_true(n_all > 0); /* a test that never alarms finds nothing */
}

/* Either way round, in nearly all pairs. */
static void shifts_of_a_few_percent_are_found(void **state)
{
    (void)state;
    static const struct {
        enum chance kind;
        uint64_t n;
        double factor;
    } cases[] = {{NORMAL, 20, 1.05}, {NORMAL, 100, 1.02},   {PAIRS, 40, 1.03},
                 {FOURS, 64, 1.03},  {DRIFTING, 300, 1.03}, {SKEWED, 1000, 1.08}};
    double a[1000], b[1000];
    for (size_t k = 0; k < MR_COUNT(cases); k++) {
        uint32_t n_found = 0;
        for (int i = 0; i < 50; i++) {
            draw(cases[k].kind, a, cases[k].n);
            draw(cases[k].kind, b, cases[k].n);
            for (uint64_t s = 0; s < cases[k].n; s++)
                b[s] *= cases[k].factor;
            n_found +=
                i % 2 ? alarms(a, cases[k].n, b, cases[k].n) : alarms(b, cases[k].n, a, cases[k].n);
        }
        if (n_found < 42)
            fail_msg("case %zu: %u of 50 found", k, n_found);
    }
}

static void constant_and_few_steps_are_judged(void **state)
{
    (void)state;
    struct mr_noise noise;
    double a[40], b[40];
    for (int i = 0; i < 40; i++) {
        a[i] = 0.1;
        b[i] = 0.1 * 1.001;
    }
    assert_int_equal(mr_noise_test(a, 40, a, 40, &noise), 0);
    assert_true(noise.known && noise.p >= 0.999);
    assert_int_equal(mr_noise_test(a, 40, b, 40, &noise), 0);
    assert_true(noise.known && noise.p <= MR_NOISE_RATE);
    assert_int_equal(mr_noise_test(a, 7, b, 7, &noise), 0);
    assert_true(noise.known && noise.p <= MR_NOISE_RATE);
    for (uint64_t n = 0; n < 7; n++) {
        assert_int_equal(mr_noise_test(a, 40, b, n, &noise), 0);
        assert_true(!noise.known && noise.p == 1);
        assert_int_equal(mr_noise_test(a, n, b, 40, &noise), 0);
        assert_true(!noise.known);
    }
}

/* ---- recordings ---- */

static struct mr_comparison *compare(struct mr_recording *before, struct mr_recording *after,
                                     struct mr_step_change *step)
{
    struct mr_comparison *made = NULL;
    *step = (struct mr_step_change){.size = sizeof *step};
    if (mr_compare(before, after, NULL, &made) < 0 || mr_comparison_step(made, step) < 0)
        fail_msg("%s", mr_last_error());
    return made;
}

static struct mr_table *table_of(const struct mr_comparison *made, const char *which)
{
    struct mr_table *table;
    const char *name;
    for (uint32_t i = 0; (table = mr_comparison_table(made, i, &name)); i++)
        if (strcmp(name, which) == 0)
            return table;
    fail_msg("no table %s", which);
    return NULL;
}

/* Of the row whose first (or second) cell is this text; cells that are empty have type
 * MR_CELL_EMPTY. */
static struct mr_cell cell(const struct mr_table *table, const char *row, const char *column)
{
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        for (uint32_t first = 0; first < 2; first++) {
            struct mr_cell at = mr_table_cell(table, r, first);
            if (at.type != MR_CELL_TEXT || strcmp(at.text, row) != 0)
                continue;
            for (uint32_t c = 0; c < mr_table_columns(table); c++)
                if (strcmp(mr_table_column(table, c)->name, column) == 0)
                    return mr_table_cell(table, r, c);
        }
    fail_msg("no cell %s of %s", column, row);
    return (struct mr_cell){0};
}

static void assert_text(const struct mr_table *table, const char *row, const char *column,
                        const char *expected)
{
    assert_string_equal(cell(table, row, column).text, expected);
}

/* The parts of a mean step are the step. */
static void check_sum(const struct mr_table *steps, const char *column)
{
    static const char *const parts[] = {"compute", "copy exposed", "communication exposed",
                                        "other processes", "idle"};
    double sum = 0, classes = 0, all = 0;
    for (uint64_t r = 0; r < mr_table_rows(steps); r++) {
        const char *name = mr_table_cell(steps, r, 0).text;
        double value = cell(steps, name, column).real;
        bool part = false;
        for (size_t i = 0; i < MR_COUNT(parts); i++)
            part = part || strcmp(name, parts[i]) == 0;
        if (strcmp(name, "step") == 0)
            all = value;
        else if (part)
            sum += value;
        else if (strcmp(name, "data wait") != 0)
            classes += value;
    }
    assert_true(all > 0 && fabs(sum - all) < 1);
    assert_true(fabs(classes - cell(steps, "idle", column).real) < 1);
}

static void the_textbook_fix_is_none_slower(void **state)
{
    (void)state;
    struct mr_recording *w2 = fixture(BEFORE, "mnist_w2", NULL),
                        *pinned = fixture(AFTER, "mnist_w2pin", NULL);
    struct mr_step_change step;
    struct mr_comparison *made = compare(w2, pinned, &step);
    assert_int_equal(step.change, MR_CHANGE_NONE);
    assert_true(step.n_before == 19 && step.n_after == 19 && step.p > 0.1);
    assert_true(fabs(step.before_ns - 7142688) < 1000 && fabs(step.after_ns - 6900321) < 1000);
    const struct mr_table *steps = table_of(made, "steps"), *copies = table_of(made, "copies"),
                          *longest = table_of(made, "longest_copy"),
                          *findings = table_of(made, "findings");
    check_sum(steps, "Before");
    check_sum(steps, "After");
    assert_text(steps, "copy exposed", "Verdict", "less");
    assert_text(steps, "waiting for the loader", "Verdict", "same");
    assert_int_equal(cell(copies, "Pageable", "Count Before").integer, 40);
    assert_int_equal(cell(copies, "Pageable", "Count After").integer, 0);
    assert_int_equal(cell(copies, "Pinned", "Count After").integer, 40);
    assert_int_equal(cell(copies, "Pinned", "Bytes After").integer, 64389120);
    assert_text(longest, "before", "SrcMemKd", "Pageable");
    assert_text(longest, "after", "SrcMemKd", "Pinned");
    assert_text(longest, "after", "API Call", "cudaMemcpyAsync");
    assert_true(cell(longest, "before", "API Duration").integer >
                10 * cell(longest, "after", "API Duration").integer);
    assert_text(findings, "pageable_copies", "Status", "gone");
    assert_text(findings, "copy_on_compute_stream", "Status", "new");
    assert_text(findings, "data_starvation", "Status", "remaining");
    assert_int_equal(cell(findings, "pageable_copies", "Saving After").type, MR_CELL_EMPTY);
    mr_comparison_destroy(made);
    made = compare(w2, w2, &step);
    assert_true(step.change == MR_CHANGE_NONE && step.p == 1);
    for (uint64_t r = 0; r < mr_table_rows(table_of(made, "steps")); r++)
        assert_string_equal(mr_table_cell(table_of(made, "steps"), r, 5).text, "same");
    mr_comparison_destroy(made);
    mr_recording_close(w2);
    mr_recording_close(pinned);
}

/* A loop whose loader takes longer: slower, by the loader; back again: faster. */
static void a_slower_loader_is_found(void **state)
{
    (void)state;
    struct loop loop = loop_plain();
    struct mr_step_change step;
    double ns;
    loop.n_steps = 80;
    loop.n_workers = 2;
    loop.load_ns = 8000000; /* two workers: 4 ms a batch, of 3 ms of kernels */
    struct mr_recording *before = loop_record(BEFORE, &loop, &ns);
    loop.load_ns += loop.load_ns / 20;
    struct mr_recording *after = loop_record(AFTER, &loop, &ns);
    struct mr_comparison *made = compare(before, after, &step);
    if (step.change != MR_CHANGE_SLOWER)
        fail_msg("%s", mr_comparison_summary(made));
    assert_true(fabs(step.after_ns / step.before_ns - 1.05) < 0.02);
    assert_text(table_of(made, "steps"), "waiting for the loader", "Verdict", "more");
    assert_text(table_of(made, "steps"), "compute", "Verdict", "same");
    assert_non_null(strstr(mr_comparison_summary(made), "slower: a step took"));
    mr_comparison_destroy(made);
    mr_comparison_destroy(compare(after, before, &step));
    assert_int_equal(step.change, MR_CHANGE_FASTER);
    struct mr_compare_opts opts;
    mr_compare_opts_init(&opts);
    opts.least_percent = 20;
    assert_int_equal(mr_compare(before, after, &opts, &made), 0);
    assert_int_equal(mr_comparison_step(made, &step), 0);
    assert_int_equal(step.change, MR_CHANGE_NONE);
    mr_comparison_destroy(made);
    mr_recording_close(before);
    mr_recording_close(after);
}

static void what_has_no_steps_is_not_judged(void **state)
{
    (void)state;
    struct make m;
    struct loop loop = loop_plain();
    struct mr_step_change step;
    double ns;
    struct mr_recording *full = loop_record(BEFORE, &loop, &ns);
    make_begin(&m, AFTER);
    make_end(&m);
    struct mr_recording *empty = make_load(AFTER);
    for (int i = 0; i < 3; i++) {
        struct mr_comparison *made = compare(i == 1 ? full : empty, i == 0 ? full : empty, &step);
        assert_int_equal(step.change, MR_CHANGE_CANNOT_TELL);
        assert_non_null(strstr(mr_comparison_summary(made), AFTER " has no device work"));
        assert_int_equal(mr_table_rows(table_of(made, "steps")), 0);
        assert_int_equal(mr_table_rows(table_of(made, "longest_copy")), 2);
        mr_comparison_destroy(made);
    }
    mr_recording_close(empty);
    mr_recording_close(full);
}

static void misuse_is_an_error(void **state)
{
    (void)state;
    struct mr_recording *w2 = fixture(BEFORE, "mnist_w2", NULL);
    struct mr_comparison *made = NULL;
    struct mr_compare_opts opts;
    struct mr_step_change step = {.size = 4};
    mr_compare_opts_init(&opts);
    opts.step = "no such range";
    assert_int_equal(mr_compare(w2, w2, &opts, &made), MR_EOPTION);
    opts.step = "step";
    opts.least_percent = NAN;
    assert_int_equal(mr_compare(w2, w2, &opts, &made), MR_EOPTION);
    opts.size = 1;
    assert_int_equal(mr_compare(w2, w2, &opts, &made), MR_EMISUSE);
    assert_null(made);
    assert_int_equal(mr_compare(w2, w2, NULL, &made), 0);
    assert_int_equal(mr_comparison_step(made, &step), MR_EMISUSE);
    mr_comparison_destroy(made);
    mr_comparison_destroy(NULL);
    mr_recording_close(w2);
}

static int clean(void **state)
{
    (void)state;
    unlink(BEFORE);
    unlink(AFTER);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(false_alarms_stay_under_their_rate),
        cmocka_unit_test(shifts_of_a_few_percent_are_found),
        cmocka_unit_test(constant_and_few_steps_are_judged),
        cmocka_unit_test(the_textbook_fix_is_none_slower),
        cmocka_unit_test(a_slower_loader_is_found),
        cmocka_unit_test(what_has_no_steps_is_not_judged),
        cmocka_unit_test(misuse_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
