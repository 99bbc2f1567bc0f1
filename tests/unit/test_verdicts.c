/*
 * White-box. What analyze concludes of real recordings that were altered so that the truth is
 * known: slow launches, wrong clocks, few steps, missing records, a device that two processes
 * share.
 */
#include "fixture.h"
#include "loop_sim.h"

#include "advice/rules.h"
#include "timeline/timeline.h"

#include <unistd.h>

#define PATH "test_verdicts.sqlite"

struct advised {
    struct mr_recording *rec;
    struct mr_advice *advice;
};

static struct advised advise(const char *name, const char *sql)
{
    struct advised a = {.rec = fixture(PATH, name, sql)};
    if (mr_analyze(a.rec, NULL, &a.advice) < 0)
        fail_msg("%s", mr_last_error());
    if (getenv("SHOW"))
        printf("%s\n", mr_advice_summary(a.advice));
    return a;
}

static void done(struct advised *a)
{
    mr_advice_destroy(a->advice);
    mr_recording_close(a->rec);
    unlink(PATH);
}

static const struct mr_finding *find(const struct advised *a, const char *rule)
{
    for (uint32_t i = 0; i < mr_advice_count(a->advice); i++)
        if (strcmp(mr_advice_get(a->advice, i)->rule, rule) == 0)
            return mr_advice_get(a->advice, i);
    fail_msg("no rule %s", rule);
    return NULL;
}

static bool says(const struct advised *a, const char *what)
{
    return strstr(mr_advice_summary(a->advice), what) != NULL;
}

static double idle_ms(struct mr_recording *rec, const char *class)
{
    struct mr_table *table = NULL;
    double ms = -1;
    assert_int_equal(mr_report_make(rec, "idle_breakdown", NULL, &table), 0);
    for (uint64_t r = 0; r < mr_table_rows(table) && ms < 0; r++)
        if (strcmp(mr_table_cell(table, r, 2).text, class) == 0)
            ms = mr_table_cell(table, r, 3).real / 1e6;
    mr_table_destroy(table);
    return ms;
}

/* Savings of rules about idle time and copies are at most that time: no two count the same. */
static void check_savings(const struct advised *a)
{
    double sum = 0, most = idle_ms(a->rec, "idle") + idle_ms(a->rec, "copy exposed");
    for (uint32_t i = 0; i < mr_advice_count(a->advice); i++) {
        const struct mr_finding *f = mr_advice_get(a->advice, i);
        if (strcmp(f->rule, "tensor_cores") != 0) /* it shortens kernels */
            sum += f->saving_ms;
    }
    if (sum > most * 1.000001)
        fail_msg("savings of %.6f ms of %.6f ms", sum, most);
}

static void savings_do_not_overlap(void **state)
{
    static const char *const names[] = {"mnist_w0", "mnist_w2", "mnist_w2pin", "cupy"};
    static const char *const changes[] = {
        NULL, "DELETE FROM NVTX_EVENTS WHERE eventType = 59",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = 4096",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcKind = 1 WHERE srcKind = 0",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + (end - start) / 4"};
    (void)state;
    for (size_t i = 0; i < MR_COUNT(names) * MR_COUNT(changes); i++) {
        struct advised a = advise(names[i % 4], changes[i / 4]);
        check_savings(&a);
        done(&a);
    }
}

/* Loops with every mixture of faults. */
static void savings_of_loops(void **state)
{
    (void)state;
    for (int bits = 0; bits < 128; bits++) {
        struct loop l = loop_plain();
        l.pageable = bits & 1;
        l.copy_stream = !(bits & 2);
        l.sync_each = bits & 4;
        l.copy_sync = bits & 8;
        l.n_workers = bits & 16 ? 0 : 2;
        l.n_small = bits & 32 ? 20 : 0;
        l.pin_ns = l.alloc_ns = bits & 64 ? 80000 : 0;
        l.set_ns = bits % 3 ? 0 : 4000;
        l.own_ns = (uint64_t)bits * 5000;
        l.kernel_ns = bits % 5 ? 20000 : 150000;
        l.n_steps = 20;
        struct advised a = {.rec = loop_record(PATH, &l, NULL)};
        assert_int_equal(mr_analyze(a.rec, NULL, &a.advice), 0);
        check_savings(&a);
        done(&a);
    }
}

/* 150 us of the program's own code before each launch: what begins at t begins 150 us later for
 * each launch up to t. Gaps get longer than 100 us and stay below 5% of a step. */
static void slow_launches(void **state)
{
    static const char *const sql =
        "CREATE TEMP TABLE l AS SELECT start AS t, row_number() OVER (ORDER BY start) AS n FROM "
        "CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId IN (SELECT id FROM StringIds WHERE value LIKE "
        "'cuda%Launch%' OR value LIKE 'cuLaunch%');"
        "CREATE UNIQUE INDEX temp.lt ON l(t);"
        "CREATE TEMP TABLE d AS SELECT correlationId AS c, 150000 * coalesce((SELECT n FROM l "
        "WHERE t <= start ORDER BY t DESC LIMIT 1), 0) AS by FROM CUPTI_ACTIVITY_KIND_RUNTIME;"
        "CREATE INDEX temp.dc ON d(c);"
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + (SELECT by FROM d WHERE c = "
        "correlationId), start = start + (SELECT by FROM d WHERE c = correlationId);"
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET end = end + (SELECT by FROM d WHERE c = "
        "correlationId), start = start + (SELECT by FROM d WHERE c = correlationId);"
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET "
        "end = end + 150000 * coalesce((SELECT n FROM l WHERE t <= end ORDER BY t DESC LIMIT 1), "
        "0),"
        "start = start + 150000 * coalesce((SELECT n FROM l WHERE t <= start ORDER BY t DESC LIMIT "
        "1), 0);"
        "UPDATE NVTX_EVENTS SET "
        "end = end + 150000 * coalesce((SELECT n FROM l WHERE t <= end ORDER BY t DESC LIMIT 1), "
        "0),"
        "start = start + 150000 * coalesce((SELECT n FROM l WHERE t <= start ORDER BY t DESC LIMIT "
        "1), 0) WHERE eventType = 59";
    (void)state;
    struct advised before = advise("cupy", NULL);
    double launch = idle_ms(before.rec, "launch overhead");
    done(&before);
    struct advised a = advise("cupy", sql);
    const struct mr_finding *f = find(&a, "launch_bound");
    /* of 11 launches a step some wait for the device anyway */
    assert_true(idle_ms(a.rec, "launch overhead") > launch + 0.7);
    assert_true(says(&a, "most of the idle time is launch overhead"));
    assert_int_equal(f->verdict, MR_FOUND);
    assert_true(f->saving_ms > 0.7);
    check_savings(&a);
    done(&a);
}

/* float(out.sum()) of each step: reports and rules agree that it blocks. */
static void small_read_backs(void **state)
{
    struct mr_table *ops = NULL;
    uint64_t n_blocked = 0;
    (void)state;
    struct advised a = advise("cupy", NULL);
    const struct mr_finding *f = find(&a, "sync_in_loop");
    assert_int_equal(mr_report_make(a.rec, "mem_ops", NULL, &ops), 0);
    for (uint64_t r = 0; r < mr_table_rows(ops); r++) {
        int64_t bytes = -1;
        const char *blocked = "";
        for (uint32_t c = 0; c < mr_table_columns(ops); c++) {
            struct mr_cell cell = mr_table_cell(ops, r, c);
            if (strcmp(mr_table_column(ops, c)->name, "Bytes") == 0)
                bytes = cell.integer;
            if (strcmp(mr_table_column(ops, c)->name, "Host Blocked") == 0)
                blocked = cell.text;
        }
        n_blocked += bytes == 4 && strcmp(blocked, "in the call") == 0;
    }
    mr_table_destroy(ops);
    assert_int_equal(n_blocked, 60);
    assert_int_equal(f->verdict, MR_FOUND);
    assert_non_null(strstr(f->title, "cudaMemcpyAsync"));
    assert_true(f->saving_percent > 3);
    assert_true(idle_ms(a.rec, "read-back or synchronization") >= f->saving_ms * 0.999);
    done(&a);
}

#define SHIFT(by)                                                                                  \
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + " by ", end = end + " by ";"            \
    "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = start + " by ", end = end + " by ";"            \
    "UPDATE CUPTI_ACTIVITY_KIND_MEMSET SET start = start + " by ", end = end + " by

static void clocks_that_do_not_fit(void **state)
{
    (void)state;
    struct advised right = advise("mnist_w2", NULL), early = advise("mnist_w2", SHIFT("-20000000"));
    assert_int_equal(mr_advice_bound(early.advice), MR_BOUND_UNKNOWN);
    assert_true(says(&early, "cannot tell: ") && says(&early, "begin before the calls"));
    for (uint32_t i = 0; i < mr_advice_count(early.advice); i++)
        assert_true(mr_advice_get(early.advice, i)->confidence < 0.15);
    done(&early);
    struct advised late = advise("mnist_w2", SHIFT("500000000"));
    assert_int_equal(mr_advice_bound(late.advice), MR_BOUND_UNKNOWN);
    assert_true(says(&late, "cannot tell: ") && says(&late, "but hold none of it"));
    done(&late);
    /* by less than an idle stretch: only waits that return too early tell */
    struct advised ahead = advise("mnist_w2", SHIFT("100000"));
    assert_int_equal(mr_advice_bound(ahead.advice), MR_BOUND_UNKNOWN);
    assert_true(says(&ahead, "100.0% of the waits for the device return before"));
    done(&ahead);
    assert_false(says(&right, "waits for the device"));
    /* a few: doubt, no silence */
    struct advised few = advise(
        "mnist_w2", "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start - 5000000, end = end - "
                    "5000000 WHERE correlationId % 40 = 0");
    assert_int_equal(mr_advice_bound(few.advice), MR_BOUND_DATA);
    assert_true(says(&few, "begin before the calls"));
    assert_true(find(&few, "data_starvation")->confidence <
                0.6 * find(&right, "data_starvation")->confidence);
    assert_false(says(&right, "clocks"));
    done(&few);
    done(&right);
}

static void few_steps(void **state)
{
    static const char *const sql =
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > 3290000000;"
        "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE start > 3290000000;"
        "DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE start > 3290000000;"
        "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start > 3290000000;"
        "DELETE FROM NVTX_EVENTS WHERE start > 3290000000";
    (void)state;
    struct advised all = advise("mnist_w2", NULL), two = advise("mnist_w2", sql);
    assert_true(find(&two, "data_starvation")->confidence <
                0.5 * find(&all, "data_starvation")->confidence);
    assert_true(says(&two, "so few steps say little"));
    assert_false(says(&all, "so few steps"));
    done(&all);
    done(&two);
    /* alike steps are surer than those that differ */
    struct advised alike = advise("mnist_w0", NULL), differ = advise("mnist_w2", NULL);
    assert_true(find(&alike, "data_starvation")->confidence >
                find(&differ, "data_starvation")->confidence);
    done(&alike);
    done(&differ);
}

static void missing_records(void **state)
{
    (void)state;
    /* without calls the loader's ranges of the main thread still count */
    struct advised a = advise("mnist_w2", "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    assert_int_equal(find(&a, "data_starvation")->verdict, MR_FOUND);
    done(&a);
    /* and where they say nothing, nothing is said: of that time there is no record */
    a = advise("mnist_w2", "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME;DELETE FROM OSRT_API;"
                           "DELETE FROM NVTX_EVENTS WHERE coalesce(text, (SELECT value FROM "
                           "StringIds WHERE id = textId)) = 'load'");
    assert_true(says(&a, "cannot tell: ") && says(&a, "nothing is recorded of what the program"));
    done(&a);
    /* the headline and the rule agree that it may be loading */
    a = advise("mnist_w0", "DELETE FROM NVTX_EVENTS WHERE eventType = 59");
    assert_true(says(&a, "cannot tell: "));
    assert_int_equal(find(&a, "data_starvation")->verdict, MR_CANNOT_TELL);
    done(&a);
}

/* The workers that would do follow from the step that is promised; one row of evidence a wait. */
static void workers_and_waits(void **state)
{
    (void)state;
    struct advised a = advise("mnist_w0", NULL);
    const struct mr_finding *f = find(&a, "data_starvation");
    assert_non_null(strstr(f->advice, "4 workers in the background"));
    assert_int_equal(mr_table_rows(f->evidence), 19);
    done(&a);
    a = advise("mnist_w2", NULL);
    f = find(&a, "data_starvation");
    assert_non_null(strstr(f->advice, "= 5 workers"));
    assert_int_equal(mr_table_cell(f->evidence, 0, 1).integer / 1000000, 10);
    assert_int_equal(mr_table_cell(f->evidence, 0, 3).integer / 1000, 8703);
    done(&a);
}

/* A copy of the process on the same device, half a step later. */
static void one_device_for_two(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_device(&m, 0, "Some GPU");
    for (uint32_t p = 0; p < 2; p++) {
        if (p)
            make_process(&m, 300, "python3 other.py");
        for (uint64_t i = 0; i < 20; i++) {
            uint64_t at = 1000000 + i * 1000000 + p * 500000;
            make_range(&m, "step", at, at + 1000000);
            make_kernel(&m, 7, "k", at + 10000, at + 480000 - p * 1000);
        }
    }
    make_end(&m);
    struct advised a = {.rec = make_load(PATH)};
    assert_int_equal(mr_analyze(a.rec, NULL, &a.advice), 0);
    assert_true(says(&a, "; 1 other process uses device 0, too"));
    assert_false(says(&a, "of 2 devices in use"));
    assert_true(idle_ms(a.rec, "idle") < 0.09);
    check_savings(&a);
    done(&a);
}

/* Page and picture have all of the headline, limits included. */
static void whole_headline(void **state)
{
    struct mr_tl_story story;
    (void)state;
    struct advised a = advise("mnist_w2", NULL);
    assert_int_equal(mr_timeline_story(a.rec, &story), 0);
    assert_string_equal(story.verdict, mr_advice_summary(a.advice));
    assert_non_null(strstr(story.verdict, "19 steps after warming up"));
    assert_int_equal(mr_timeline_write(a.rec, PATH ".svg", MR_TIMELINE_SVG, NULL), 0);
    FILE *file = fopen(PATH ".svg", "r");
    static char svg[4 << 20];
    assert_non_null(file);
    svg[fread(svg, 1, sizeof svg - 1, file)] = 0;
    fclose(file);
    unlink(PATH ".svg");
    assert_non_null(strstr(svg, "data_starvation (saves 50.7%)"));
    mr_timeline_story_free(&story);
    done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(savings_do_not_overlap), cmocka_unit_test(savings_of_loops),
        cmocka_unit_test(slow_launches),          cmocka_unit_test(small_read_backs),
        cmocka_unit_test(clocks_that_do_not_fit), cmocka_unit_test(few_steps),
        cmocka_unit_test(missing_records),        cmocka_unit_test(workers_and_waits),
        cmocka_unit_test(whole_headline),         cmocka_unit_test(one_device_for_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
