/*
 * How long steps waited for their batches, computed, and were in sums over the ranks. On the host
 * by its clock, at each step. Ranks on devices enqueue ahead, so the device stamps its steps
 * (kernels/sum/sum.h), and the host reads that when it looks at the totals.
 */
#include "train/leaves.h"
#include "train/trainer.h"

static double sum_seconds(const struct mr_trainer *t)
{
    struct mr_comm_stats s = {.size = sizeof s};
    return t->opts.comm && mr_comm_stats(t->opts.comm, &s) == 0 ? s.seconds : 0;
}

static void push(struct mr_trainer *t, const struct mr_trainer_step_times *times)
{
    struct mr_train_times *all = &t->times;
    all->last[all->n++ % MR_TRAIN_TIMES] = *times;
    if (all->n - all->taken > MR_TRAIN_TIMES)
        all->taken = all->n - MR_TRAIN_TIMES;
}

static bool device_tells(const struct mr_trainer *t)
{
    return t->leaves && t->leaves->device && t->leaves->world > 1;
}

void mr_train_time_begin(struct mr_trainer *t)
{
    t->sum_seconds = sum_seconds(t);
    t->step_ns = mr_time_ns();
}

void mr_train_time_batch(struct mr_trainer *t)
{
    t->batch_ns = mr_time_ns();
}

void mr_train_time_end(struct mr_trainer *t)
{
    uint64_t now = mr_time_ns(), rest = now - t->batch_ns;
    uint64_t sum = (uint64_t)((sum_seconds(t) - t->sum_seconds) * 1e9 + 0.5);
    sum = MR_MIN(sum, rest);
    t->last.data_ns = t->batch_ns - t->step_ns;
    t->last.sum_ns = sum;
    t->last.compute_ns = rest - sum;
    if (!device_tells(t))
        push(t, &t->last);
}

void mr_train_times_break(struct mr_trainer *t)
{
    if (device_tells(t))
        t->leaves->apart = true;
}

/* Before a step are the update of the one before, which takes about as long each time, and a
 * stretch without work. */
void mr_train_times_look(struct mr_trainer *t, const struct mr_sum_clock *clock)
{
    struct mr_train_leaves *l = t->leaves;
    if (!device_tells(t))
        return;
    uint64_t i = MR_MAX(l->timed, clock->n > MR_SUM_TIMED ? clock->n - MR_SUM_TIMED : 0);
    for (; i < clock->n; i++) {
        const struct mr_sum_times *s = &clock->last[i % MR_SUM_TIMED];
        const uint64_t update = MR_MIN(clock->update_ns, s->before_ns);
        push(t, &(struct mr_trainer_step_times){
                    .data_ns = s->before_ns - update,
                    .compute_ns = (uint64_t)s->pass_ns + clock->update_ns,
                    .sum_ns = s->sum_ns,
                });
    }
    l->timed = clock->n;
}

int mr_trainer_query_step_times(const struct mr_trainer *t, struct mr_trainer_step_times *out)
{
    if (!t)
        return mr_error_null("mr_trainer_query_step_times", "a trainer");
    return mr_info_give("trainer_step_times", out, &t->last, sizeof t->last);
}

int mr_trainer_next_step_times(struct mr_trainer *t, struct mr_trainer_step_times *out)
{
    if (!t)
        return mr_error_null("mr_trainer_next_step_times", "a trainer");
    struct mr_train_times *all = &t->times;
    int rc = mr_info_check("trainer_step_times", out, sizeof *out);
    if (rc < 0 || all->taken == all->n)
        return rc < 0 ? rc : 0;
    rc = mr_info_give("trainer_step_times", out, &all->last[all->taken % MR_TRAIN_TIMES],
                      sizeof *out);
    all->taken += rc == 0;
    return rc < 0 ? rc : 1;
}
