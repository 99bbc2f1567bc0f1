/* White-box: what bench optimizers makes of its runs. The device and the clock are fakes: a step
 * takes one second once it is waited for. */
#include "bench/bench.h"
#include "bench/optimizers.h"
#include "unit.h"

#include <errno.h>
#include <math.h>

static uint64_t now_ns, queued_ns, steps_done, seeds[400];
static int n_opened, n_waits;
static float held_params[4];

enum { STEP_NS = 1000000000, OTHER_NS = 77777777 };

static uint64_t fake_time(void)
{
    return now_ns;
}
static int fake_step(struct mr_trainer *t, int *last)
{
    (void)t;
    *last = 0;
    queued_ns += STEP_NS;
    steps_done++;
    return 1;
}
static int fake_query(const struct mr_trainer *t, struct mr_trainer_info *out)
{
    (void)t;
    out->step = steps_done;
    return 0;
}
static int fake_sums(struct mr_trainer *t, struct mr_train_sums *out)
{
    (void)t;
    n_waits++;
    now_ns += queued_ns;
    queued_ns = 0;
    out->loss = (double)steps_done;
    out->n_right = out->n_samples = steps_done;
    return 0;
}
/* Tests and copies take time, which is no step's. */
static int fake_test(struct mr_trainer *t, struct mr_train_sums *out)
{
    int rc = fake_sums(t, out);
    now_ns += OTHER_NS;
    return rc;
}
static int fake_copy(struct mr_stream *stream, void *to, enum mr_memory to_kind, const void *from,
                     enum mr_memory from_kind, uint64_t bytes)
{
    (void)stream, (void)to_kind, (void)from_kind;
    assert_int_equal(queued_ns, 0); /* or they would change meanwhile */
    memcpy(to, from, bytes);
    now_ns += OTHER_NS;
    return 0;
}
static int fake_stream(struct mr_device *dev, const char *name, struct mr_stream **out)
{
    (void)dev, (void)name;
    *out = NULL;
    return 0;
}
static int fake_wait(struct mr_stream *stream)
{
    (void)stream;
    return 0;
}
static struct mr_net *fake_net(struct mr_trainer *t)
{
    (void)t;
    return NULL;
}
static void fake_flat(struct mr_net *net, void **p, void **grads, void **low)
{
    (void)net, (void)grads, (void)low;
    *p = held_params;
}
static uint64_t n_params = 4;
static uint64_t fake_n_params(const struct mr_net *net)
{
    (void)net;
    return n_params;
}

#define mr_time_ns            fake_time
#define mr_trainer_step       fake_step
#define mr_trainer_query      fake_query
#define mr_trainer_sums       fake_sums
#define mr_trainer_test       fake_test
#define mr_trainer_get_net    fake_net
#define mr_net_n_params       fake_n_params
#define mr_net_flat           fake_flat
#define mr_copy_async         fake_copy
#define mr_stream_create      fake_stream
#define mr_stream_synchronize fake_wait
#include "../../cli/bench/optimizers_run.c"
#include "../../cli/bench/optimizers_sum.c"

/* What the program gives them otherwise. */
bool cli_interrupted(void)
{
    return false;
}
void cli_progress_update(struct cli_progress *p, uint64_t done)
{
    (void)p, (void)done;
}
int bench_train_set(struct train_opts *opts, const char *name, const char *text)
{
    (void)opts, (void)name, (void)text;
    return 0;
}
int train_open(struct train *t, struct train_data *data, const struct train_opts *opts,
               const struct mr_checkpoint *from)
{
    (void)data, (void)from;
    seeds[n_opened++] = opts->seed;
    steps_done = queued_ns = 0;
    t->info.step = 0;
    return 0;
}
void train_close(struct train *t)
{
    (void)t;
}
static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
double bench_median(double *v, uint64_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}

static char some[] = "some";
static struct mr_dataset *const a_set = (void *)some; /* only its being there is looked at */

static struct optim_bench *bench_of(const struct optim_opts *o, int n_curves)
{
    struct optim_bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->opts = o;
    b->iterations = o->iterations;
    b->data.test = a_set;
    b->n_nets = 1;
    b->net[0].n = n_curves;
    for (int k = 0; k < n_curves; k++) {
        b->net[0].curve[k].text = some;
        b->net[0].curve[k].run = calloc(o->seeds, sizeof(struct optim_run));
        assert_non_null(b->net[0].curve[k].run);
    }
    n_opened = 0;
    return b;
}

static void bench_free(struct optim_bench *b)
{
    for (int k = 0; k < b->net[0].n; k++)
        free(b->net[0].curve[k].run);
    free(b);
}

/* On a device that runs behind, too: of each step, tests and copies left out. */
static void time_is_that_of_all_steps(void **state)
{
    (void)state;
    for (uint64_t n = OPTIM_POINTS; n < 1000; n += 37)
        for (uint64_t tests = 1; tests <= OPTIM_MAX_TESTS && tests <= n; tests += 9) {
            const struct optim_opts o = {.iterations = n, .tests = tests, .seeds = 1};
            struct optim_bench *b = bench_of(&o, 1);
            assert_int_equal(optim_run_all(b), 0);
            const struct optim_run *r = &b->net[0].curve[0].run[0];
            assert_int_equal(r->steps, n);
            assert_int_equal(r->n_points, OPTIM_POINTS);
            assert_int_equal(r->n_tests, tests);
            assert_true(fabs(r->seconds - (double)n) < 1e-6);
            for (int k = 0; k < r->n_tests; k++)
                assert_true(fabs(r->test_seconds[k] - r->test_step[k]) < 1e-6);
            bench_free(b);
        }
}

/* The runs that choose a rate are none of those that are reported. */
static void rates_are_chosen_by_a_seed_of_their_own(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= OPTIM_MAX_SEEDS; n++)
        for (int at_end = 0; at_end < 2; at_end++) {
            const struct optim_opts o = {.iterations = OPTIM_POINTS,
                                         .tests = 1,
                                         .seeds = n,
                                         .seed = at_end ? UINT64_MAX - 1 : 3};
            struct optim_bench *b = bench_of(&o, 2);
            b->n_factors = 3;
            for (int k = 0; k < 3; k++)
                b->factor[k] = 1 + k;
            assert_int_equal(optim_run_all(b), 0);
            assert_int_equal(n_opened, 2 * (3 + n));
            for (int k = 0; k < 6; k++) {
                assert_int_equal(seeds[k], seeds[0]);
                for (int r = 6; r < n_opened; r++)
                    assert_true(seeds[r] != seeds[k]);
            }
            bench_free(b);
        }
}

static void no_memory_is_an_error_with_a_text(void **state)
{
    (void)state;
    if (getenv("SANITIZED")) /* there, so large a request ends the program */
        skip();
    const struct optim_opts o = {.iterations = OPTIM_POINTS, .tests = 1, .seeds = 1};
    struct optim_bench *b = bench_of(&o, 1);
    n_params = UINT64_MAX / 8;
    mr_error_set(MR_EOPTION, "an older one");
    assert_int_equal(optim_run_all(b), -ENOMEM);
    n_params = 4;
    assert_non_null(strstr(mr_last_error(), "memory"));
    bench_free(b);
}

/* ---- the best ---- */

static double normal(uint32_t i)
{
    double u = ((double)(test_u64(2 * i) >> 11) + 0.5) * 0x1p-53,
           v = (double)(test_u64(2 * i + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Two optimizers of which the second is better by so many deviations. Returns how many of so many
 * trials call one the best; [out] wrong: the first. */
static int n_best(uint64_t n_seeds, double ahead, int trials, int *wrong)
{
    const struct optim_opts o = {.seeds = n_seeds};
    struct optim_bench *b = bench_of(&o, 2);
    int n = 0;
    *wrong = 0;
    for (int t = 0; t < trials; t++) {
        for (int k = 0; k < 2; k++) {
            struct optim_curve *c = &b->net[0].curve[k];
            c->n_runs = (int)n_seeds;
            for (uint32_t r = 0; r < n_seeds; r++) {
                uint32_t draw = ((uint32_t)t * 2 + (uint32_t)k) * OPTIM_MAX_SEEDS + r;
                c->run[r] = (struct optim_run){.n_points = 1, .n_tests = 1, .loss = {1}};
                c->run[r].accuracy[0] = 0.9 + 0.001 * (normal(draw) + k * ahead);
            }
        }
        optim_sum_up(b);
        for (int k = 0; k < 2; k++)
            if (b->net[0].curve[k].mark == OPTIM_BEST) {
                n++;
                *wrong += k == 0;
            }
    }
    bench_free(b);
    return n;
}

/* Equal ones differ by chance: few are called best, whatever the number of seeds. */
static void chance_is_seldom_called_best(void **state)
{
    (void)state;
    enum { TRIALS = 2000 };
    for (uint64_t n = 1; n <= OPTIM_MAX_SEEDS; n++) {
        int wrong;
        assert_true(n_best(n, 0, TRIALS, &wrong) <= TRIALS * 3 / 100);
    }
}

static void what_is_far_ahead_is_called_best(void **state)
{
    (void)state;
    for (uint64_t n = OPTIM_MARK_SEEDS; n <= OPTIM_MAX_SEEDS; n++) {
        int wrong;
        assert_int_equal(n_best(n, 10, 100, &wrong), 100);
        assert_int_equal(wrong, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_that_of_all_steps),
        cmocka_unit_test(rates_are_chosen_by_a_seed_of_their_own),
        cmocka_unit_test(no_memory_is_an_error_with_a_text),
        cmocka_unit_test(chance_is_seldom_called_best),
        cmocka_unit_test(what_is_far_ahead_is_called_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
