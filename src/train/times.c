/* How long a step waited for its batch, computed, and was in sums, by the host's clock. */
#include "train/trainer.h"

static double sum_seconds(const struct mr_trainer *t)
{
    struct mr_comm_stats s = {.size = sizeof s};
    return t->opts.comm && mr_comm_stats(t->opts.comm, &s) == 0 ? s.seconds : 0;
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
}

int mr_trainer_query_step_times(const struct mr_trainer *t, struct mr_trainer_step_times *out)
{
    if (!t)
        return mr_error_null("mr_trainer_query_step_times", "a trainer");
    return mr_info_give("trainer_step_times", out, &t->last, sizeof t->last);
}
