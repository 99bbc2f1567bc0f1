/* The end of an epoch: tests, the history, the reasons to stop. */
#include "train/trainer.h"

#include <math.h>

static double per_sample(double sum, const struct mr_train_sums *s)
{
    return s->n_samples ? sum / (double)s->n_samples : NAN;
}

static double accuracy(const struct mr_trainer *t, const struct mr_train_sums *s)
{
    return t->opts.loss == MR_MSE ? NAN : per_sample((double)s->n_right, s);
}

/* NaN: of mse, or not tested although there is a test set. */
static double score(const struct mr_trainer *t, const struct mr_train_epoch *e)
{
    return t->test ? e->test_accuracy : e->accuracy;
}

static int add_epoch(struct mr_trainer *t, const struct mr_train_epoch *e)
{
    int rc = mr_grow("trainer", &t->history, &t->room_history, t->n_history + 1ull, sizeof *e);
    if (rc < 0)
        return rc;
    t->history[t->n_history++] = *e;
    return 0;
}

/* Judges one epoch of the history: is it the best, and does it end the run? */
static void judge(struct mr_trainer *t, uint32_t i, double seconds)
{
    const struct mr_train_epoch *e = &t->history[i];
    double loss = isnan(e->test_loss) ? e->loss : e->test_loss, now = score(t, e);
    if (!isnan(now) && !(now <= score(t, &t->history[t->best])))
        t->best = i;
    t->since_best = loss < t->best_test_loss ? 0 : t->since_best + 1;
    t->best_test_loss = fmin(loss, t->best_test_loss);
    if (t->opts.target > 0 && now >= t->opts.target && isnan(t->seconds_to_target)) {
        t->end = MR_TRAINER_TARGET;
        t->seconds_to_target = seconds;
    } else if (t->opts.patience && t->since_best >= t->opts.patience && t->end == MR_TRAINER_EPOCHS)
        t->end = MR_TRAINER_PATIENCE;
}

void mr_train_judge_history(struct mr_trainer *t)
{
    for (uint32_t i = 0; i < t->n_history; i++)
        judge(t, i, NAN);
    mr_train_is_over(t); /* a resumed run may have done all its steps */
}

bool mr_train_is_over(struct mr_trainer *t)
{
    if (t->opts.max_steps && t->step >= t->opts.max_steps && t->end == MR_TRAINER_EPOCHS)
        t->end = MR_TRAINER_STEPS;
    if (t->stopping && t->end == MR_TRAINER_EPOCHS)
        t->end = MR_TRAINER_STOPPED;
    return t->end != MR_TRAINER_EPOCHS;
}

static void begin_epoch(struct mr_trainer *t)
{
    mr_train_stretch_begin(t, &t->pass);
    t->pass_steps = 0;
}

/* The part of an epoch before a resume does not count in this process's time. */
void mr_train_begin(struct mr_trainer *t)
{
    begin_epoch(t);
    t->started = true;
}

static int test(struct mr_trainer *t, struct mr_train_epoch *e)
{
    struct mr_train_sums sums = {.size = sizeof sums};
    uint64_t start = mr_time_ns();
    if (!t->test_loader)
        return 0;
    int rc = mr_trainer_test(t, &sums);
    e->test_seconds = mr_train_since(start);
    t->testing += e->test_seconds;
    if (rc < 0)
        return rc;
    e->test_loss = per_sample(sums.loss, &sums);
    e->test_accuracy = accuracy(t, &sums);
    return 0;
}

/* Adds the epoch's time to the process's totals. */
static void share_time(struct mr_trainer *t, double seconds, double waited)
{
    t->waiting += waited * seconds;
    t->stepping += (1 - waited) * seconds;
}

static void measure(struct mr_trainer *t, struct mr_train_epoch *e)
{
    double seconds = mr_train_since(t->pass.start_ns);
    uint64_t n = t->sums.n_samples - t->pass.before.n_samples;
    *e = (struct mr_train_epoch){.size = sizeof *e,
                                 .epoch = t->epoch + 1,
                                 .steps = t->step,
                                 .loss = per_sample(t->sums.loss, &t->sums),
                                 .accuracy = accuracy(t, &t->sums),
                                 .test_loss = NAN,
                                 .test_accuracy = NAN,
                                 .seconds = seconds,
                                 .lr = mr_optim_get_lr(t->optim, 0), /* the last step's */
                                 .samples_per_s = seconds > 0 ? (double)n / seconds : 0,
                                 .waited = mr_train_stretch_waited(t, &t->pass, seconds)};
}

int mr_trainer_unfinished(struct mr_trainer *t, int with_test, struct mr_train_epoch *out)
{
    if (!t || !out)
        return mr_error_set(MR_EMISUSE, "mr_trainer_unfinished: t or out is NULL");
    struct mr_train_epoch e;
    int rc = mr_info_check("train_epoch", out, sizeof e);
    if (rc < 0)
        return rc;
    rc = mr_train_take_totals(t);
    if (rc < 0 || !t->started || t->sums.n_samples == 0)
        return rc < 0 ? rc : 0;
    measure(t, &e);
    rc = with_test ? test(t, &e) : 0;
    if (rc < 0)
        return rc;
    mr_info_give("train_epoch", out, &e, sizeof e);
    return 1;
}

int mr_trainer_end_epoch(struct mr_trainer *t, struct mr_train_epoch *out)
{
    struct mr_train_epoch e;
    if (!t || !t->started)
        return mr_error_set(MR_EMISUSE, "mr_trainer_end_epoch: expected steps before it");
    int rc = out ? mr_info_check("train_epoch", out, sizeof e) : 0;
    if (rc < 0)
        return rc;
    rc = mr_train_take_totals(t);
    if (rc < 0)
        return rc;
    measure(t, &e);
    share_time(t, e.seconds, e.waited);
    rc = test(t, &e);
    if (rc < 0)
        return rc;
    rc = add_epoch(t, &e);
    if (rc < 0)
        return rc;
    t->epoch++;
    double loss = isnan(e.test_loss) ? e.loss : e.test_loss;
    mr_schedule_observe(t->schedule, mr_schedule_wants_more(t->schedule) ? score(t, &e) : loss);
    judge(t, t->n_history - 1, t->earlier_seconds + mr_train_since(t->opts.start_ns));
    mr_train_is_over(t);
    t->sums = (struct mr_train_sums){0};
    begin_epoch(t);
    if (out)
        mr_info_give("train_epoch", out, &e, sizeof e);
    return 0;
}

int mr_trainer_epoch(struct mr_trainer *t, struct mr_train_epoch *out)
{
    int last = 0, rc = out ? mr_info_check("train_epoch", out, sizeof *out) : 0;
    if (rc < 0)
        return rc;
    do {
        rc = mr_trainer_step(t, &last);
    } while (rc > 0 && !last);
    if (rc <= 0)
        return rc;
    rc = mr_trainer_end_epoch(t, out);
    return rc < 0 ? rc : 1;
}
