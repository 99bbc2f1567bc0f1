/* From the first step to the last: progress, logs, checkpoints, interrupts. */
#include "train/train.h"

static int save(struct train *t)
{
    if (!t->opts->checkpoint)
        return CLI_OK;
    int rc = mr_trainer_save(t->trainer, t->opts->checkpoint);
    t->saved = rc == 0;
    t->saved_ns = mr_time_ns();
    return rc < 0 ? cli_error(rc) : CLI_OK;
}

static bool save_is_due(const struct train *t)
{
    return (t->every_steps && t->info.step % t->every_steps == 0) ||
           (t->every_ns && mr_time_ns() - t->saved_ns >= t->every_ns);
}

/* --max-steps, or an interrupt, within an epoch: its steps are reported, but the epoch is not among
 * the finished ones, which the best, the schedule and the log are about. An interrupt does not wait
 * for a test. */
static int end_unfinished(struct train *t)
{
    t->unfinished.size = sizeof t->unfinished;
    int rc = mr_trainer_unfinished(t->trainer, t->end == TRAIN_STEPS, &t->unfinished);
    if (rc > 0 && !cli.json)
        train_print_epoch(t, &t->unfinished);
    return rc < 0 ? rc : 0;
}

static int end_epoch(struct train *t)
{
    struct mr_train_epoch e = {.size = sizeof e};
    int rc = mr_trainer_end_epoch(t->trainer, &e);
    if (rc < 0)
        return rc;
    rc = mr_trainer_query(t->trainer, &t->info);
    train_log_epoch(t, &e);
    if (!cli.json) {
        cli_progress_end(&t->progress);
        train_print_epoch(t, &e);
    }
    return rc;
}

/* After a step: whatever else is due. */
static int after_step(struct train *t, bool last)
{
    int rc = mr_trainer_query(t->trainer, &t->info);
    if (rc == 0)
        rc = last ? end_epoch(t) : train_log_steps(t);
    if (rc < 0)
        return rc;
    rc = train_steps_add(t, last);
    if (rc < 0)
        return rc;
    bool together = t->ranks && t->ranks->place.world > 1; /* all ranks end after the same step */
    if (cli_interrupted() && together)
        mr_trainer_ask_stop(t->trainer);
    t->end = cli_interrupted() && !together ? TRAIN_INTERRUPTED : (enum train_end)t->info.end;
    bool due = save_is_due(t);
    rc = train_ranks_due(t, due, &due);
    if (rc < 0)
        return rc;
    if ((last || t->end != TRAIN_EPOCHS || due) && save(t) != CLI_OK)
        t->code = CLI_FAILED;
    return 0;
}

static int steps(struct train *t)
{
    const struct mr_loader *ld = mr_trainer_get_loader(t->trainer);
    uint64_t world = t->ranks && !train_ranks_are_stages(t) ? t->ranks->place.world : 1;
    uint64_t epoch = mr_loader_samples(ld) * world, total = epoch * t->opts->epochs,
             done = t->info.step * t->opts->loader.batch_size;
    int rc, last;
    cli_progress_begin(&t->progress, "train", total, "samples");
    while (t->end == TRAIN_EPOCHS && t->code == CLI_OK) {
        rc = mr_trainer_step(t->trainer, &last);
        if (rc <= 0)
            return rc;
        rc = after_step(t, last);
        if (rc < 0)
            return rc;
        done = last ? t->info.epoch * epoch : done + t->opts->loader.batch_size;
        cli_progress_update(&t->progress, done < total ? done : total);
    }
    return 0;
}

int train_run(struct train *t)
{
    t->end = (enum train_end)t->info.end;
    t->saved_ns = mr_time_ns();
    int rc = steps(t);
    cli_progress_end(&t->progress);
    if (t->code != CLI_OK)
        t->end = TRAIN_FAILED;
    if (rc >= 0 && t->end != TRAIN_EPOCHS)
        rc = end_unfinished(t);
    if (rc >= 0 && t->end != TRAIN_FAILED)
        rc = train_steps_end(t);
    t->stats.size = sizeof t->stats;
    mr_loader_stats(mr_trainer_get_loader(t->trainer), &t->stats);
    t->tuning.size = sizeof t->tuning;
    if (t->opts->loader.tune)
        mr_loader_tuning(mr_trainer_get_loader(t->trainer), &t->tuning);
    return rc < 0 ? rc : mr_trainer_query_times(t->trainer, &t->times);
}
