/*
 * What the ranks did in their steps. Each rank keeps its steps; every 256 of them, and when
 * --report-every or --metrics wants it, rank 0 collects what is new. All ranks decide alike whether
 * they do: by the number of steps, and by a sum to which rank 0 alone adds.
 */
#include "ranks/ranks.h"
#include "train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SENT_STEPS 256
#define LOOK_STEPS 16           /* between looks at rank 0's clock */
#define WARM_STEPS 3            /* libraries load in the first ones */
#define WARM_AHEAD 8            /* of every eighth step: and graphs are recorded */
#define METRICS_NS 10000000000u /* between rewrites, without --report-every */

struct train_steps {
    struct ranks_own own;
    struct ranks_all all; /* rank 0's */
    uint64_t next_ns;     /* of a report or --metrics */
    uint32_t skip;        /* so many steps tell nothing: the ranks do other things before them */
    bool together;        /* there are other ranks */
    bool ahead;     /* times come later, from the device, and work between steps is not in them */
    bool unwritten; /* the last --metrics could not be written */
};

static void skip_next(struct train_steps *l)
{
    if (!l->ahead)
        l->skip = 1;
}

static struct mr_loader_stats loader_stats(const struct train *t)
{
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(mr_trainer_get_loader(t->trainer), &st);
    return st;
}

static uint64_t period(const struct train_opts *o)
{
    return o->report_every ? o->report_every : o->metrics ? METRICS_NS : 0;
}

/* With --comm none, too, where the ranks do not know each other. */
static struct mr_place own_place(const struct train_ranks *ranks)
{
    struct mr_place place = {.size = sizeof place, .world = 1};
    if (ranks && ranks->comm)
        place = ranks->place;
    else if (mr_place_query(&place) < 0)
        place = (struct mr_place){.world = 1};
    return place;
}

int train_steps_check(const struct train_opts *o, const struct train_ranks *ranks)
{
    const struct mr_place place = own_place(ranks);
    const struct ranks_own own = {.rank = place.rank, .world = place.world};
    int code = place.rank == 0 ? cli_output_claim(o->metrics, CLI_METRICS, o->force) : CLI_OK;
    return code == CLI_OK && o->report_dir ? ranks_dir_check(o->report_dir, &own, o->force) : code;
}

int train_steps_open(struct train *t)
{
    struct mr_comm_stats s = {.size = sizeof s, .world = 1};
    const struct train_opts *o = t->opts;
    struct mr_comm *comm = t->ranks ? t->ranks->comm : NULL;
    if (!comm && !period(o) && !o->report_dir)
        return 0;
    if (comm)
        mr_comm_stats(comm, &s);
    struct train_steps *l = calloc(1, sizeof *l);
    if (!l)
        return mr_error_set(-ENOMEM, "train: no memory");
    t->steps = l;
    l->together = s.world > 1;
    l->ahead = l->together && !t->data->pipe.info.unified;
    l->skip = l->ahead ? WARM_AHEAD : WARM_STEPS;
    l->next_ns = mr_time_ns() + period(o);
    const struct mr_place place = own_place(t->ranks);
    l->own = (struct ranks_own){.command = "train",
                                .rank = place.rank,
                                .world = place.world,
                                /* stages wait for each other in their passes, too */
                                .sums = !o->split_ranks,
                                .lockstep = l->together};
    return ranks_own_open(&l->own);
}

void train_steps_close(struct train *t)
{
    if (!t->steps)
        return;
    ranks_own_close(&t->steps->own);
    ranks_all_free(&t->steps->all);
    free(t->steps);
    t->steps = NULL;
}

/* All ranks call it. */
static int exchange(struct train *t)
{
    struct train_steps *l = t->steps;
    if (!l->together && l->own.world > 1)
        return 0;
    const struct mr_loader_stats st = loader_stats(t);
    char **texts = NULL, *mine = ranks_own_text(&l->own, &st, true);
    if (!mine)
        return mr_error_set(-ENOMEM, "train: no memory");
    int rc = 0;
    if (l->together)
        rc = mr_comm_collect(t->ranks->comm, mine, 0, &texts);
    if (rc == 0 && (texts || !l->together))
        rc = ranks_all_add(&l->all, texts ? texts : &mine, NULL, texts ? l->own.world : 1);
    free(texts);
    if (rc != MR_EPEER) /* then it may be in use: comm.h */
        free(mine);
    skip_next(l);
    return rc;
}

/* A failed write must not end the run; that of its end reports the error. */
static void write_metrics(struct train_steps *l, const char *path)
{
    if (ranks_metrics_write(&l->all, path) == 0) {
        l->unwritten = false;
        return;
    }
    if (!l->unwritten)
        cli_warn("%s; the training goes on", mr_last_error());
    l->unwritten = true;
}

static void report(struct train *t)
{
    struct train_steps *l = t->steps;
    if (!l->all.log)
        return;
    if (t->opts->metrics)
        write_metrics(l, t->opts->metrics);
    char *sentence = t->opts->report_every ? ranks_all_sentence(&l->all) : NULL;
    if (sentence) {
        if (t->progress.shown)
            fputs("\r\033[K", stderr);
        cli_say("step %" PRIu64 ": %s", t->info.step, mr_text_printable(sentence));
    }
    free(sentence);
    l->next_ns = mr_time_ns() + period(t->opts);
}

/* Is a report due, by rank 0's clock? All ranks call it. */
static int is_due(struct train *t, bool *due)
{
    static double wants; /* stays in use after an error: comm.h */
    struct train_steps *l = t->steps;
    wants = l->own.rank == 0 && mr_time_ns() >= l->next_ns;
    int rc = l->together
                 ? mr_comm_sum(t->ranks->comm, &wants, &wants, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL)
                 : 0;
    *due = wants > 0;
    skip_next(l);
    return rc;
}

static void add(struct train *t)
{
    struct train_steps *l = t->steps;
    struct mr_trainer_step_times s = {.size = sizeof s};
    while (mr_trainer_next_step_times(t->trainer, &s) > 0) {
        const struct mr_rank_step step = {(double)s.data_ns, (double)s.compute_ns,
                                          (double)s.sum_ns};
        if (l->skip)
            l->skip--;
        else
            ranks_own_add(&l->own, &step);
    }
}

int train_steps_add(struct train *t, bool last)
{
    struct train_steps *l = t->steps;
    bool due = false;
    int rc = 0;
    if (!l)
        return 0;
    add(t);
    if (period(t->opts) && t->info.step % LOOK_STEPS == 0)
        rc = is_due(t, &due);
    bool full = l->own.sums && l->own.n - l->own.sent >= SENT_STEPS;
    if (rc == 0 && (due || full))
        rc = exchange(t);
    if (rc == 0 && due)
        report(t);
    if (last) /* tests, checkpoints: not all ranks do the same */
        skip_next(l);
    return rc;
}

int train_steps_end(struct train *t)
{
    if (!t->steps)
        return 0;
    add(t);
    int rc = exchange(t);
    if (rc == 0 && t->opts->metrics && t->steps->all.log)
        rc = ranks_metrics_write(&t->steps->all, t->opts->metrics);
    if (rc < 0 || !t->opts->report_dir)
        return rc;
    const struct mr_loader_stats st = loader_stats(t);
    if (ranks_dir_write(t->opts->report_dir, &t->steps->own, &st, t->opts->force) != CLI_OK)
        t->code = CLI_FAILED;
    return 0;
}

void train_steps_print(const struct train *t)
{
    if (!t->steps || !t->steps->all.log || t->steps->own.world == 1)
        return;
    printf("\n");
    ranks_all_print(&t->steps->all, stdout);
}

void train_steps_json(const struct train *t, struct mr_json *json)
{
    if (!t->steps || !t->steps->all.log) {
        mr_json_null(json, "ranks");
        return;
    }
    mr_json_object(json, "ranks");
    ranks_all_json(&t->steps->all, json);
    mr_json_object_end(json);
}
