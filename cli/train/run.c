/* From the first step to the last: epochs, tests, checkpoints, the reasons to stop. */
#include "train/train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static double since(uint64_t start_ns)
{
    return (double)(mr_time_ns() - start_ns) * 1e-9;
}

static uint64_t wait_ns(const struct train *t)
{
    struct mr_loader_stats st;
    mr_loader_stats(t->ld, &st);
    return st.consumer_wait_ns;
}

static void begin_epoch(struct train *t)
{
    t->epoch_ns = mr_time_ns();
    t->epoch_wait_ns = wait_ns(t);
    train_use_begin(t);
    t->epoch_steps = 0;
    t->sums = t->sums_at_start = (struct train_sums){0};
}

static double per_sample(double sum, const struct train_sums *s)
{
    return s->n_samples ? sum / (double)s->n_samples : NAN;
}

static double accuracy(const struct train *t, const struct train_sums *s)
{
    return t->opts->loss == MR_MSE ? NAN : per_sample((double)s->n_right, s);
}

static int add_epoch(struct train *t, const struct train_epoch *e)
{
    if (t->n_history == t->cap_history) {
        uint32_t cap = t->cap_history ? 2 * t->cap_history : 32;
        struct train_epoch *more = realloc(t->history, cap * sizeof *more);
        if (!more)
            return mr_error_set(-ENOMEM, "train: no memory for %u epochs", cap);
        t->history = more;
        t->cap_history = cap;
    }
    t->history[t->n_history++] = *e;
    return 0;
}

/* NaN: of mse, or not tested although there is a test set. */
static double score(const struct train *t, const struct train_epoch *e)
{
    return t->data->test ? e->test_accuracy : e->accuracy;
}

/* Of the latest epoch: is it the best, does it end the run? Also replayed over a checkpoint's. */
static void judge(struct train *t, uint32_t i, double seconds)
{
    const struct train_epoch *e = &t->history[i];
    double loss = isnan(e->test_loss) ? e->loss : e->test_loss, now = score(t, e);
    if (!isnan(now) && !(now <= score(t, &t->history[t->best])))
        t->best = i;
    t->since_best = loss < t->best_test_loss ? 0 : t->since_best + 1;
    t->best_test_loss = fmin(loss, t->best_test_loss);
    if (t->opts->target > 0 && now >= t->opts->target && isnan(t->seconds_to_target)) {
        t->end = TRAIN_TARGET;
        t->seconds_to_target = seconds;
    } else if (t->opts->patience && t->since_best >= t->opts->patience && t->end == TRAIN_EPOCHS)
        t->end = TRAIN_PATIENCE;
}

static int test(struct train *t, struct train_epoch *e)
{
    struct train_sums sums;
    uint64_t start = mr_time_ns();
    if (!t->data->test_loader)
        return 0;
    int rc = train_test(t, &sums);
    e->test_seconds = since(start);
    t->testing += e->test_seconds;
    if (rc == 0) {
        e->test_loss = per_sample(sums.loss, &sums);
        e->test_accuracy = accuracy(t, &sums);
    }
    return rc;
}

/* The sums of this epoch's steps, without the test. The learning rate is the last step's. */
static int sum_up(struct train *t, struct train_epoch *e)
{
    int rc = train_take_totals(t);
    if (rc < 0)
        return rc;
    *e = (struct train_epoch){.epoch = t->epoch + 1,
                              .steps = t->step,
                              .loss = per_sample(t->sums.loss, &t->sums),
                              .accuracy = accuracy(t, &t->sums),
                              .test_loss = NAN,
                              .test_accuracy = NAN,
                              .seconds = since(t->epoch_ns),
                              .lr = mr_optim_get_lr(t->optim, 0)};
    uint64_t waited = wait_ns(t) - t->epoch_wait_ns;
    e->samples_per_s = e->seconds > 0 ? (double)(t->sums.n_samples - t->sums_at_start.n_samples) / e->seconds : 0;
    e->waited = train_waited(t, e->seconds, waited);
    t->waiting += e->waited * e->seconds;
    t->stepping += (1 - e->waited) * e->seconds;
    return 0;
}

/* --max-steps, or an interrupt, within an epoch: its steps are reported, but the epoch is not among
 * the finished ones, which the best, the schedule and the log are about. An interrupt does not wait
 * for a test. */
static int end_unfinished(struct train *t)
{
    struct train_epoch e;
    if (!t->epoch_steps && !t->sums.n_samples)
        return 0;
    int rc = sum_up(t, &e);
    if (rc < 0 || t->sums.n_samples == 0)
        return rc;
    rc = t->end == TRAIN_STEPS ? test(t, &e) : 0;
    if (rc < 0)
        return rc;
    t->unfinished = e;
    if (!cli.json)
        train_print_epoch(t, &t->unfinished);
    return 0;
}

static int end_epoch(struct train *t)
{
    struct train_epoch e;
    int rc = sum_up(t, &e);
    if (rc < 0)
        return rc;
    rc = test(t, &e);
    if (rc == 0)
        rc = add_epoch(t, &e);
    if (rc < 0)
        return rc;
    t->epoch++;
    double loss = isnan(e.test_loss) ? e.loss : e.test_loss;
    mr_schedule_observe(t->schedule, mr_schedule_wants_more(t->schedule) ? score(t, &e) : loss);
    judge(t, t->n_history - 1, t->earlier_seconds + since(t->start_ns));
    train_log_epoch(t, &e);
    if (!cli.json) {
        cli_progress_end(&t->progress);
        train_print_epoch(t, &e);
    }
    begin_epoch(t);
    return 0;
}

static int save(struct train *t)
{
    uint64_t start = mr_time_ns();
    if (!t->opts->checkpoint)
        return CLI_OK;
    int code = train_save(t);
    t->saved = code == CLI_OK;
    t->saved_ns = mr_time_ns();
    t->saving += since(start);
    return code;
}

static bool save_is_due(const struct train *t)
{
    return (t->every_steps && t->step % t->every_steps == 0) ||
           (t->every_ns && mr_time_ns() - t->saved_ns >= t->every_ns);
}

static void look_at_limit(struct train *t)
{
    if (t->opts->max_steps && t->step >= t->opts->max_steps && t->end == TRAIN_EPOCHS)
        t->end = TRAIN_STEPS;
}

/* After a step: whatever else is due. */
static int after_step(struct train *t, bool last)
{
    int rc = last ? end_epoch(t) : train_log_steps(t);
    if (rc < 0)
        return rc;
    look_at_limit(t);
    if (cli_interrupted())
        t->end = TRAIN_INTERRUPTED;
    if ((last || t->end != TRAIN_EPOCHS || save_is_due(t)) && save(t) != CLI_OK)
        t->code = CLI_FAILED;
    return 0;
}

int train_run(struct train *t)
{
    int rc = 1;
    bool last = false;
    struct train_sums sums = t->sums; /* of the epoch's part before a resume */
    for (uint32_t i = 0; i < t->n_history; i++)
        judge(t, i, NAN);
    look_at_limit(t); /* a run that goes on may have done them */
    uint64_t total = mr_loader_samples(t->ld) * t->opts->epochs, done = t->step * t->opts->batch_size;
    begin_epoch(t);
    t->sums = t->sums_at_start = sums;
    t->saved_ns = mr_time_ns();
    cli_progress_begin(&t->progress, "train", total, "samples");
    while (t->end == TRAIN_EPOCHS && t->code == CLI_OK) {
        rc = train_step(t, &last);
        if (rc > 0)
            rc = after_step(t, last);
        else if (rc == 0)
            break;
        if (rc < 0)
            break;
        done = last ? t->epoch * mr_loader_samples(t->ld) : done + t->opts->batch_size;
        cli_progress_update(&t->progress, done < total ? done : total);
    }
    cli_progress_end(&t->progress);
    if (t->code != CLI_OK)
        t->end = TRAIN_FAILED;
    if (rc >= 0 && t->end != TRAIN_EPOCHS)
        rc = end_unfinished(t);
    mr_loader_stats(t->ld, &t->stats);
    return rc < 0 ? rc : 0;
}
