/* The trainings of bench optimizers. */
#include "bench/optimizers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The parameters, copied to host memory. */
struct weights {
    float *before, *now;
    uint64_t n;
    struct mr_stream *stream;
};

/* One training under way. */
struct training {
    struct optim_bench *b;
    struct train t;
    struct optim_run *run;
    struct mr_train_sums sums; /* at the last point */
    struct weights w;
};

static int test_point(struct training *g)
{
    struct mr_train_sums sums = {.size = sizeof sums};
    struct optim_run *r = g->run;
    if (!g->b->data.test || r->n_tests == OPTIM_MAX_TESTS)
        return 0;
    int rc = mr_trainer_test(g->t.trainer, &sums);
    if (rc < 0)
        return rc;
    r->test_step[r->n_tests] = (double)g->t.info.step;
    r->test_seconds[r->n_tests] = r->seconds;
    r->accuracy[r->n_tests++] = (double)sums.n_right / (double)sums.n_samples;
    r->test_loss = sums.loss / (double)sums.n_samples;
    return 0;
}

/* Waits for the device. The mean is of the steps since the point before. */
static int loss_point(struct training *g)
{
    struct mr_train_sums now = {.size = sizeof now};
    struct optim_run *r = g->run;
    int rc = mr_trainer_sums(g->t.trainer, &now);
    if (rc < 0)
        return rc;
    if (now.n_samples > g->sums.n_samples && r->n_points < OPTIM_POINTS) {
        r->step[r->n_points] = (double)g->t.info.step;
        r->loss[r->n_points++] =
            (now.loss - g->sums.loss) / (double)(now.n_samples - g->sums.n_samples);
    }
    g->sums = now;
    return 0;
}

/* ---- how far a step moves the parameters ---- */

static int weights_open(struct training *g)
{
    struct weights *w = &g->w;
    w->n = mr_net_n_params(mr_trainer_get_net(g->t.trainer));
    w->before = calloc(w->n, sizeof *w->before);
    w->now = calloc(w->n, sizeof *w->now);
    if (!w->before || !w->now)
        return mr_error_set(
            -ENOMEM, "bench optimizers: no memory for two copies of %" PRIu64 " parameters", w->n);
    return mr_stream_create(g->b->data.pipe.dev, "weights", &w->stream);
}

static void weights_close(struct weights *w)
{
    mr_stream_destroy(w->stream);
    free(w->before);
    free(w->now);
}

/* After all steps are done. */
static int weights_read(struct training *g, float *to)
{
    void *params;
    mr_net_flat(mr_trainer_get_net(g->t.trainer), &params, NULL, NULL);
    int rc = mr_copy_async(g->w.stream, to, MR_PAGEABLE, params, MR_DEVICE, g->w.n * sizeof *to);
    return rc < 0 ? rc : mr_stream_synchronize(g->w.stream);
}

static int weights_compare(struct training *g)
{
    double sum = 0;
    int rc = weights_read(g, g->w.now);
    if (rc < 0 || g->run->n_points == 0)
        return rc;
    for (uint64_t i = 0; i < g->w.n; i++) {
        double d = (double)g->w.now[i] - (double)g->w.before[i];
        sum += d * d;
    }
    g->run->move[g->run->n_points - 1] = sqrt(sum / (double)g->w.n);
    return 0;
}

/* ---- steps ---- */

/* Is this step the end of one of n equal parts? The last step always is. */
static bool ends_part(uint64_t step, uint64_t iterations, uint64_t n)
{
    return step * n / iterations > (step - 1) * n / iterations;
}

static void add_time(struct training *g, uint64_t since_ns)
{
    g->run->seconds += (double)(mr_time_ns() - since_ns) * 1e-9;
}

/* Asking for the sums waits for the steps under way; that time is theirs. */
static int finish_steps(struct training *g)
{
    struct mr_train_sums unused = {.size = sizeof unused};
    uint64_t start = mr_time_ns();
    int rc = mr_trainer_sums(g->t.trainer, &unused);
    add_time(g, start);
    return rc;
}

/* Keeps the parameters as they are before the next step. */
static int weights_keep(struct training *g)
{
    int rc = finish_steps(g);
    return rc < 0 ? rc : weights_read(g, g->w.before);
}

/* Returns 1, 0 at the end of the data, or an error. */
static int step(struct training *g)
{
    uint64_t next = g->t.info.step + 1, iterations = g->b->iterations;
    bool point = ends_part(next, iterations, OPTIM_POINTS);
    bool test = ends_part(next, iterations, g->b->opts->tests);
    int last, rc = point ? weights_keep(g) : 0;
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns();
    rc = mr_trainer_step(g->t.trainer, &last);
    if (rc <= 0)
        return rc;
    mr_trainer_query(g->t.trainer, &g->t.info);
    if (point)
        rc = loss_point(g);
    else if (test) /* or its time would be that of enqueueing */
        rc = mr_trainer_sums(g->t.trainer, &(struct mr_train_sums){.size = sizeof g->sums});
    add_time(g, start);
    g->run->steps = g->t.info.step;
    if (rc >= 0 && point)
        rc = weights_compare(g);
    if (rc >= 0 && test)
        rc = test_point(g);
    cli_progress_update(&g->b->progress, ++g->b->done);
    return rc < 0 ? rc : 1;
}

static int all_steps(struct training *g)
{
    int rc = 1;
    while (rc > 0 && g->t.info.step < g->b->iterations && !cli_interrupted())
        rc = step(g);
    if (rc >= 0 && g->run->steps < g->b->iterations)
        snprintf(g->run->why, sizeof g->run->why, "interrupted at step %" PRIu64, g->run->steps);
    return rc;
}

static int set_options(struct optim_bench *b, const char *model, const struct optim_curve *c,
                       double lr)
{
    int rc = bench_train_set(&b->train, "model", model);
    if (rc == 0)
        rc = bench_train_set(&b->train, "optimizer", c->optimizer);
    if (rc == 0)
        rc = bench_train_set(&b->train, "schedule", c->schedule);
    b->train.lr = lr;
    return rc;
}

/* A loss that becomes infinite is a result; all else is an error. */
static int one(struct optim_bench *b, const char *model, const struct optim_curve *c, double lr,
               struct optim_run *run)
{
    struct training g = {.b = b, .run = run, .sums = {.size = sizeof g.sums}};
    uint64_t before = b->done;
    run->test_loss = NAN;
    b->train.seed = run->seed;
    int rc = set_options(b, model, c, lr);
    if (rc == 0)
        rc = train_open(&g.t, &b->data, &b->train, NULL);
    if (rc == 0)
        rc = weights_open(&g);
    if (rc == 0)
        rc = all_steps(&g);
    if (rc == MR_EMISUSE && strstr(mr_last_error(), "not finite")) {
        run->failed = true;
        snprintf(run->why, sizeof run->why, "not finite at step %" PRIu64, g.t.info.step + 1);
        rc = 0;
    }
    weights_close(&g.w);
    train_close(&g.t);
    b->done = before + b->iterations; /* also of a run that ended early */
    return rc < 0 ? rc : 0;
}

/* ---- a sweep over learning rates ---- */

/* The test set chooses the rate, so the runs that it chose by are not reported. The same for any
 * --seeds. */
uint64_t optim_sweep_seed(const struct optim_opts *o)
{
    return o->seed + OPTIM_MAX_SEEDS;
}

static int sweep(struct optim_bench *b, const char *model, struct optim_curve *c)
{
    int best = -1;
    for (int k = 0; k < b->n_factors && !cli_interrupted(); k++) {
        struct optim_run run = {.seed = optim_sweep_seed(b->opts)};
        c->rate[k] = c->given_lr * b->factor[k];
        int rc = one(b, model, c, c->rate[k], &run);
        if (rc < 0)
            return rc;
        c->score[k] = optim_score(&run);
        c->n_rates = k + 1;
        if (!isnan(c->score[k]) && (best < 0 || c->score[k] > c->score[best]))
            best = k;
    }
    c->lr = best < 0 ? c->given_lr : c->rate[best];
    c->at_end = best == 0 || best == b->n_factors - 1;
    return 0;
}

static int sweep_all(struct optim_bench *b)
{
    int rc = 0;
    for (int i = 0; i < b->n_nets && rc == 0 && b->n_factors > 0; i++)
        for (int k = 0; k < b->net[i].n && rc == 0 && !cli_interrupted(); k++)
            rc = sweep(b, b->net[i].model, &b->net[i].curve[k]);
    return rc;
}

/* Seed by seed, so that whatever else the machine does meets all optimizers alike. */
int optim_run_all(struct optim_bench *b)
{
    int rc = sweep_all(b);
    for (uint64_t s = 0; s < b->opts->seeds; s++)
        for (int i = 0; i < b->n_nets; i++)
            for (int k = 0; k < b->net[i].n && rc == 0 && !cli_interrupted(); k++) {
                struct optim_curve *c = &b->net[i].curve[k];
                struct optim_run *run = &c->run[c->n_runs];
                run->seed = b->opts->seed + s;
                rc = one(b, b->net[i].model, c, c->lr, run);
                c->n_runs++;
            }
    return rc;
}
