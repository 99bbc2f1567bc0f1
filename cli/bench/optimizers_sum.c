/* What the seeds of bench optimizers come to, and which optimizer is best. */
#include "bench/optimizers.h"

#include "bench/bench.h"

#include <math.h>
#include <string.h>

double optim_last_loss(const struct optim_run *run)
{
    return run->n_points ? run->loss[run->n_points - 1] : NAN;
}

double optim_score(const struct optim_run *run)
{
    double loss = optim_last_loss(run);
    if (run->why[0] || !isfinite(loss) || (run->n_tests && !isfinite(run->test_loss)))
        return NAN;
    return run->n_tests ? run->accuracy[run->n_tests - 1] : -loss;
}

const char *optim_mark_text(enum optim_mark mark)
{
    static const char *const text[] = {"", "as good", "highest, not by more than the spread",
                                       "best"};
    return text[mark];
}

const char *optim_why(const struct optim_curve *c)
{
    for (int r = 0; r < c->n_runs; r++)
        if (c->run[r].why[0])
            return c->run[r].why;
    return c->n_runs ? "" : "not run";
}

static struct optim_spread spread_of(const double *v, int n)
{
    struct optim_spread s = {NAN, NAN};
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += v[i];
    if (n > 0)
        s.mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (v[i] - s.mean) * (v[i] - s.mean);
    if (n > 1)
        s.sd = sqrt(squares / (n - 1));
    return s;
}

/* Infinite if the test accuracy was never reached. */
static void to_target(const struct optim_run *run, double target, double *steps, double *seconds)
{
    *steps = *seconds = INFINITY;
    for (int k = run->n_tests - 1; k >= 0; k--)
        if (run->accuracy[k] >= target) {
            *steps = run->test_step[k];
            *seconds = run->test_seconds[k];
        }
}

static void sum_ends(struct optim_curve *c, double target)
{
    double loss[OPTIM_MAX_SEEDS] = {0}, test[OPTIM_MAX_SEEDS] = {0},
           accuracy[OPTIM_MAX_SEEDS] = {0};
    double steps[OPTIM_MAX_SEEDS], seconds[OPTIM_MAX_SEEDS], all = 0, n_steps = 0;
    int n_tested = 0;
    for (int r = 0; r < c->n_runs; r++) {
        const struct optim_run *run = &c->run[r];
        loss[r] = optim_last_loss(run);
        if (run->n_tests) {
            test[n_tested] = run->test_loss;
            accuracy[n_tested++] = run->accuracy[run->n_tests - 1];
        }
        to_target(run, target, &steps[r], &seconds[r]);
        all += run->seconds;
        n_steps += (double)run->steps;
    }
    c->loss = spread_of(loss, c->n_runs);
    c->test_loss = spread_of(test, n_tested);
    c->accuracy = spread_of(accuracy, n_tested);
    c->ms_a_step = n_steps > 0 ? 1e3 * all / n_steps : NAN;
    c->steps_to_target = c->n_runs ? bench_median(steps, (uint64_t)c->n_runs) : INFINITY;
    c->seconds_to_target = c->n_runs ? bench_median(seconds, (uint64_t)c->n_runs) : INFINITY;
}

/* Means over the runs that came so far. */
static void sum_points(struct optim_curve *c)
{
    for (c->n_points = c->n_tests = 0; c->n_points < OPTIM_POINTS; c->n_points++) {
        int p = c->n_points, n = 0;
        double loss = 0, move = 0;
        for (int r = 0; r < c->n_runs; r++) {
            const struct optim_run *run = &c->run[r];
            if (p >= run->n_points)
                continue;
            c->mean_step[p] = run->step[p];
            loss += run->loss[p];
            move += run->move[p];
            n++;
        }
        if (n == 0)
            break;
        c->mean_loss[p] = loss / n;
        c->mean_move[p] = move / n;
    }
    for (; c->n_tests < OPTIM_MAX_TESTS; c->n_tests++) {
        int p = c->n_tests, n = 0;
        double accuracy = 0;
        for (int r = 0; r < c->n_runs; r++)
            if (p < c->run[r].n_tests) {
                c->mean_test_step[p] = c->run[r].test_step[p];
                accuracy += c->run[r].accuracy[p];
                n++;
            }
        if (n == 0)
            break;
        c->mean_accuracy[p] = 100 * accuracy / n;
    }
}

static struct optim_spread score_of(const struct optim_curve *c)
{
    double v[OPTIM_MAX_SEEDS];
    if (c->n_runs < OPTIM_MARK_SEEDS)
        return (struct optim_spread){NAN, NAN};
    for (int r = 0; r < c->n_runs; r++) {
        v[r] = optim_score(&c->run[r]);
        if (isnan(v[r]))
            return (struct optim_spread){NAN, NAN};
    }
    return spread_of(v, c->n_runs);
}

/* The best is that whose mean is further ahead of every other one's than both standard deviations
 * together. Else it and those within are as good. Of two that are equal, one would be called best
 * in 21% of cases by two seeds, in 8% by three, in 2% by five. */
static void mark_best(struct optim_net *net)
{
    struct optim_spread score[OPTIM_MAX];
    int best = -1, n = 0, near = 0;
    for (int k = 0; k < net->n; k++) {
        net->curve[k].mark = OPTIM_UNMARKED;
        score[k] = score_of(&net->curve[k]);
        if (isnan(score[k].sd))
            continue;
        n++;
        if (best < 0 || score[k].mean > score[best].mean)
            best = k;
    }
    if (n < 2)
        return;
    for (int k = 0; k < net->n; k++) {
        bool within = k != best && !isnan(score[k].sd) &&
                      score[best].mean - score[k].mean <= score[best].sd + score[k].sd;
        net->curve[k].mark = within ? OPTIM_AS_GOOD : OPTIM_UNMARKED;
        near += within;
    }
    net->curve[best].mark = near ? OPTIM_HIGHEST : OPTIM_BEST;
}

void optim_sum_up(struct optim_bench *b)
{
    for (int i = 0; i < b->n_nets; i++) {
        for (int k = 0; k < b->net[i].n; k++) {
            sum_ends(&b->net[i].curve[k], b->opts->target);
            sum_points(&b->net[i].curve[k]);
        }
        mark_best(&b->net[i]);
    }
}
