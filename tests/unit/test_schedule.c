/* Schedules: PyTorch's numbers, how they are written, and what plateaus remember. */
#include "optim_vectors.h"
#include "unit.h"

#include <math.h>
#include <millrace/optim.h>

#define must(call) assert_int_equal((call), 0)
#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))

static struct mr_schedule *make(const char *text)
{
    struct mr_schedule *s = NULL;
    int rc = mr_schedule_parse(text, &s);
    if (rc)
        print_error("%s: %s\n", text, mr_last_error());
    must(rc);
    return s;
}

static void near(const char *text, int t, double got, double want)
{
    /* The vectors have 12 digits. */
    if (!(fabs(got - want) <= 1e-7 * fabs(want)))
        print_error("%s, t = %d: %.17g, PyTorch %.12g\n", text, t, got, want);
    assert_true(fabs(got - want) <= 1e-7 * fabs(want));
}

static void test_pytorch(void **state)
{
    (void)state;
    for (size_t v = 0; v < COUNT(schedule_vectors); v++) {
        struct mr_schedule *s = make(schedule_vectors[v].text);
        for (int t = VECTOR_RATES - 1; t >= 0; t--) /* any order: they are pure */
            near(schedule_vectors[v].text, t, mr_schedule_lr(s, 0.1, (uint64_t)t, (uint64_t)t),
                 schedule_vectors[v].lr[t]);
        mr_schedule_destroy(s);
    }
}

static double metric(int t)
{
    return fmax(1 - t / 16.0, 0.25) + (t * 37 % 16) / 1024.0;
}

/* Saved and restored into another in the middle. */
static void test_plateau(void **state)
{
    (void)state;
    for (size_t v = 0; v < COUNT(plateau_vectors); v++)
        for (int cut = 0; cut < VECTOR_RATES; cut += 7) {
            struct mr_schedule *s = make(plateau_vectors[v].text),
                               *next = make(plateau_vectors[v].text);
            for (int t = 0; t < VECTOR_RATES; t++) {
                if (t == cut) {
                    double saved[MR_SCHEDULE_STATE];
                    mr_schedule_save(s, saved);
                    must(mr_schedule_restore(next, saved));
                    mr_schedule_destroy(s);
                    s = next;
                    next = NULL;
                }
                near(plateau_vectors[v].text, t, mr_schedule_lr(s, 0.1, 0, 0),
                     plateau_vectors[v].lr[t]);
                mr_schedule_observe(s, metric(t));
            }
            mr_schedule_destroy(s);
        }
}

/* Iterations and epochs: each counts its own. */
static void test_counters(void **state)
{
    (void)state;
    struct mr_schedule *s = make("step:0.5"), *i = make("step:0.5/per=iteration");
    assert_true(mr_schedule_lr(s, 1, 1000, 3) == 0.125 && mr_schedule_lr(i, 1, 3, 1000) == 0.125);
    mr_schedule_destroy(s);
    mr_schedule_destroy(i);
    s = make("warmup:100/start=0.5,step:0.5/2"); /* two counters: the warm-up is a factor */
    assert_true(mr_schedule_lr(s, 1, 0, 0) == 0.5);
    assert_true(mr_schedule_lr(s, 1, 50, 2) == 0.75 * 0.5);
    assert_true(mr_schedule_lr(s, 1, 100, 4) == 0.25);
    mr_schedule_destroy(s);
}

/* Past their ends schedules stay where they are. */
static void test_ends(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double last;
    } ends[] = {{"cosine:10/min=0.25", 0.25},
                {"linear:0.5/10", 0.5},
                {"onecycle:10/div=4/final_div=8", 1.0 / 32},
                {"constant", 1},
                {"onecycle:1", 1.0 / 25 / 1e4},
                {"onecycle:10/pct=0/div=2/final_div=2", 0.25}};
    for (size_t k = 0; k < COUNT(ends); k++) {
        struct mr_schedule *s = make(ends[k].text);
        for (uint64_t t = 0; t < 30; t++)
            assert_true(isfinite(mr_schedule_lr(s, 1, t, t)) && mr_schedule_lr(s, 1, t, t) <= 1);
        assert_true(fabs(mr_schedule_lr(s, 1, 10, 10) - ends[k].last) < 1e-12);
        assert_true(fabs(mr_schedule_lr(s, 1, UINT64_MAX, UINT64_MAX) - ends[k].last) < 1e-12);
        mr_schedule_destroy(s);
    }
    struct mr_schedule *s = make("cosine:3/restarts/mult=1000000");
    assert_true(isfinite(mr_schedule_lr(s, 1, 0, UINT64_MAX)));
    mr_schedule_destroy(s);
}

static void refused(const char *text, const char *says)
{
    struct mr_schedule *s = NULL;
    assert_int_equal(mr_schedule_parse(text, &s), MR_EOPTION);
    if (!strstr(mr_last_error(), says))
        print_error("%s: \"%s\" does not say \"%s\"\n", text, mr_last_error(), says);
    assert_non_null(strstr(mr_last_error(), says));
    assert_null(s);
}

static void test_refused(void **state)
{
    (void)state;
    char longer[600];
    memset(longer, '/', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    refused("", "there are warmup, constant, step");
    refused("cosin:10", "did you mean \"cosine\"?");
    refused("cosine", "expected how long");
    refused("cosine:0", "expected how long");
    refused("cosine:10/bogus=1", "bogus");
    refused("cosine:10/20", "20");
    refused("step:0.5/0", "every");
    refused("step:-1", "gamma");
    refused("multistep:0.1", "expected when");
    refused("plateau:1.5", "gamma");
    refused("warmup:10", "expected another");
    refused("warmup:10,", "no such schedule");
    refused("warmup:10,warmup:5", "expected one schedule");
    refused("step:0.1,step:0.2", "expected one schedule");
    refused("step:0.1/per=minute", "per");
    refused(longer, "at most");
    double bad[MR_SCHEDULE_STATE] = {0, 0.5, 0, 0}, nan[MR_SCHEDULE_STATE] = {NAN, 0, 0, 0};
    struct mr_schedule *s = make("plateau");
    assert_int_equal(mr_schedule_restore(s, bad), MR_ESTATE);
    assert_int_equal(mr_schedule_restore(s, nan), MR_ESTATE);
    mr_schedule_destroy(s);
}

/* Each group from its own rate. */
static void test_follow(void **state)
{
    (void)state;
    const struct mr_optim_group groups[] = {{0, 5, NULL}, {5, 5, "lr=0.5"}};
    struct mr_optim *o = NULL;
    struct mr_schedule *s = make("step:0.5/2");
    must(mr_optim_create(NULL, "sgd:lr=2", MR_F32, 10, groups, 2, &o));
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        double factor = ldexp(1, -(int)(epoch / 2));
        must(mr_optim_follow(o, s, 0, epoch));
        assert_true(mr_optim_get_lr(o, 0) == 2 * factor);
        assert_true(mr_optim_get_lr(o, 1) == 0.5 * factor);
    }
    mr_schedule_destroy(s);
    s = make("exponential:2");
    must(mr_optim_follow(o, s, 0, 90));
    assert_int_equal(mr_optim_follow(o, s, 0, 120), MR_EMISUSE); /* 2.7e36 */
    assert_non_null(strstr(mr_last_error(), "0..1e+30"));
    assert_true(mr_optim_get_lr(o, 0) == ldexp(2, 90));
    mr_optim_destroy(o);
    mr_schedule_destroy(s);
}

static int count(void *user, const char *name, const char *arguments, const char *summary)
{
    assert_true(strlen(name) > 0 && arguments && strlen(summary) > 0);
    (*(int *)user)++;
    return 0;
}

static void test_each(void **state)
{
    (void)state;
    int n = 0;
    must(mr_schedule_each(count, &n));
    assert_int_equal(n, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),  cmocka_unit_test(test_plateau),
        cmocka_unit_test(test_counters), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_follow),
        cmocka_unit_test(test_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
