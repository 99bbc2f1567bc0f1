/* Which sample a late batch waits for: the text of mr_loader_next_for(). */
#include "loader/engine.h"

#include <errno.h>
#include <stdio.h>

/* What a worker was at, read by another thread. */
struct seen {
    uint32_t worker, row;
    uint64_t batch, since_ns; /* batch: the low bits of its number */
    enum mr_task task;
};

/* note and since belong together if the note is the same before and after. */
static struct seen look(const struct mr_worker *w)
{
    const struct mr_watch *watch = &w->watch;
    uint64_t note = atomic_load(&watch->note), since, before;
    do {
        before = note;
        since = atomic_load(&watch->since_ns);
        note = atomic_load(&watch->note);
    } while (note != before);
    return (struct seen){.worker = w->id,
                         .row = (uint32_t)(note >> 4),
                         .batch = note >> (64 - MR_WATCH_BATCH_BITS),
                         .since_ns = since,
                         .task = (enum mr_task)(note & 15)};
}

/* The number of a batch that was open a moment ago; wrong if it was not. */
static uint64_t whole_number(const struct mr_loader *ld, uint64_t low_bits)
{
    uint64_t next = atomic_load(&ld->opening.next);
    uint64_t from = next - MR_MIN(next, ld->ring.n_places);
    return from + ((low_bits - from) & ((1u << MR_WATCH_BATCH_BITS) - 1));
}

/* Does the consumer wait for this batch? */
static bool is_awaited(const struct mr_loader *ld, uint64_t low_bits, uint64_t t)
{
    if (ld->opts.in_order)
        return low_bits == (t & ((1u << MR_WATCH_BATCH_BITS) - 1));
    return whole_number(ld, low_bits) < atomic_load(&ld->opening.next);
}

/* The worker that has been longest at the batch, or at any if all are awaited; its task is NONE if
 * none is. */
static struct seen find_worker(const struct mr_loader *ld, uint64_t t)
{
    struct seen longest = {.task = MR_TASK_NONE};
    for (uint32_t i = 0; i < ld->workers.n; i++) {
        struct seen seen = look(&ld->workers.worker[i]);
        if (seen.task == MR_TASK_NONE || !is_awaited(ld, seen.batch, t))
            continue;
        if (longest.task == MR_TASK_NONE || seen.since_ns < longest.since_ns)
            longest = seen;
    }
    return longest;
}

static const char *task_text(const struct mr_loader *ld, enum mr_task task)
{
    switch (task) {
    case MR_TASK_READ:
        return "waiting for its bytes";
    case MR_TASK_TRANSFORM:
        return "transforming it";
    default:
        return ld->ds->ops->locate ? "decoding it" : "in the data set's get callback";
    }
}

#define SECONDS(ns) ((double)(ns) / 1e9)

static int late_batch(const struct mr_plan_batch *info, uint64_t waited_ns, const char *why)
{
    return mr_error_set(-ETIMEDOUT, "batch %llu of epoch %llu is not ready after %.3g s: %s",
                        (unsigned long long)info->index, (unsigned long long)info->epoch,
                        SECONDS(waited_ns), why);
}

static int late_sample(const struct mr_loader *ld, const struct mr_plan_batch *info,
                       const struct seen *seen, uint64_t waited_ns)
{
    uint64_t now = mr_time_ns(), index;
    uint64_t position = mr_shard_global(info->shard, info->row0 + seen->row);
    int rc = mr_sampler_map(ld->sampler, info->epoch, position % info->shard->length, 1, &index);
    if (rc < 0) /* the batch will say why */
        return late_batch(info, waited_ns, "the sampler failed");
    const char *file = mr_dataset_file(ld->ds, index);
    return mr_error_set(
        -ETIMEDOUT,
        "%s: sample %llu (epoch %llu, position %llu) is late after %.3g s: worker %u has been %s "
        "for %.3g s",
        file ? file : mr_dataset_text(ld->ds), (unsigned long long)index,
        (unsigned long long)info->epoch, (unsigned long long)position, SECONDS(waited_ns),
        seen->worker, task_text(ld, seen->task),
        SECONDS(now > seen->since_ns ? now - seen->since_ns : 0));
}

/* Nobody is at the batch: is it the source that is waited for? */
static int late_source(const struct mr_loader *ld, uint64_t waited_ns)
{
    uint64_t index = 0, since = 0, now = mr_time_ns();
    if (!ld->source || !mr_source_reading(ld, &index, &since))
        return mr_error_set(-ETIMEDOUT, "batch %llu of the run is not ready",
                            (unsigned long long)ld->handout.next_batch);
    return mr_error_set(-ETIMEDOUT,
                        "%s: batch %llu of the run is not ready after %.3g s: the source has not "
                        "given sample %llu for %.3g s",
                        mr_dataset_text(ld->ds), (unsigned long long)ld->handout.next_batch,
                        SECONDS(waited_ns), (unsigned long long)index,
                        SECONDS(now > since ? now - since : 0));
}

/* What the batch is and which sample is late may not be found yet. */
static int late_found(const struct mr_loader *ld, uint64_t waited_ns)
{
    uint64_t t = ld->handout.next_batch;
    struct seen seen = find_worker(ld, t);
    if (waited_ns == 0 || seen.task == MR_TASK_NONE)
        return late_source(ld, waited_ns);
    return mr_error_set(-ETIMEDOUT,
                        "%s: batch %llu of the run is not ready after %.3g s: worker %u is at its "
                        "row %llu",
                        mr_dataset_text(ld->ds), (unsigned long long)t, SECONDS(waited_ns),
                        seen.worker, (unsigned long long)seen.row);
}

int mr_watch_late(const struct mr_loader *ld, uint64_t waited_ns)
{
    struct mr_plan_batch info;
    char why[160];
    if (ld->plan.finds)
        return late_found(ld, waited_ns);
    mr_plan_get(&ld->plan, ld->handout.next_batch, &info);
    if (waited_ns == 0 && !ld->opts.in_order)
        return mr_error_set(-ETIMEDOUT, "no batch is ready");
    if (waited_ns == 0)
        return mr_error_set(-ETIMEDOUT, "batch %llu of epoch %llu is not ready",
                            (unsigned long long)info.index, (unsigned long long)info.epoch);
    struct seen seen = find_worker(ld, ld->handout.next_batch);
    if (!ld->opts.in_order && seen.task == MR_TASK_NONE)
        return mr_error_set(-ETIMEDOUT, "no batch is ready after %.3g s", SECONDS(waited_ns));
    if (!ld->opts.in_order)
        mr_plan_get(&ld->plan, whole_number(ld, seen.batch), &info);
    if (seen.task == MR_TASK_NONE)
        return late_batch(&info, waited_ns, "all workers are busy with other batches");
    if (seen.task == MR_TASK_PERMIT)
        return late_batch(&info, waited_ns,
                          "its worker waits until others of its budget let it work");
    if (seen.task != MR_TASK_LOCATE && seen.task != MR_TASK_COMPLETE)
        return late_sample(ld, &info, &seen, waited_ns);
    snprintf(why, sizeof why, "worker %u %s", seen.worker,
             seen.task == MR_TASK_LOCATE ? "asks the sampler and the data set for its samples"
                                         : "puts it together and enqueues its copy");
    return late_batch(&info, waited_ns, why);
}

void mr_watch_closing(const struct mr_loader *ld, const struct mr_worker *w)
{
    struct seen seen = look(w);
    uint64_t now = mr_time_ns();
    const char *task = seen.task == MR_TASK_LOCATE     ? "in a callback of the sampler or data set"
                       : seen.task == MR_TASK_COMPLETE ? "putting its batch together"
                       : seen.task == MR_TASK_NONE     ? "ending, or waiting for its source,"
                                                       : task_text(ld, seen.task);
    mr_log(MR_LOG_WARNING,
           "mr_loader_close: %s: waiting for worker %u, which has been %s for %.3g s: a callback "
           "that does not return cannot be ended",
           mr_dataset_text(ld->ds), seen.worker, task,
           SECONDS(now > seen.since_ns ? now - seen.since_ns : 0));
}
