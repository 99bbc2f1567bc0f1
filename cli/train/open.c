/* The trainer that the options ask for. */
#include "train/train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "500" steps or "30s". */
static int parse_every(struct train *t)
{
    enum { LEAST_NS = 1000000 };
    const char *text = t->opts->checkpoint_every;
    char *end;
    if (!text)
        return 0;
    uint64_t n = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && n > 0) {
        t->every_steps = n;
        return 0;
    }
    int rc = mr_duration_parse(text, "s", &t->every_ns);
    if (rc == 0 && t->every_ns >= LEAST_NS)
        return 0;
    return mr_error_set(
        MR_EOPTION, "--checkpoint-every %s: expected steps (500), or a time of 1 ms or more (30s)",
        text);
}

/* The caller's own record in checkpoints. [out] text: to be freed. */
static int make_config(const struct train_opts *o, char **text)
{
    char job[TRAIN_JOB];
    const char *written;
    *text = NULL;
    if (mr_place_job(job, sizeof job) < 0)
        job[0] = 0; /* only a restart needs it, and reports the error */
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return mr_error_set(-ENOMEM, "train: no memory");
    mr_json_object(json, NULL);
    mr_json_string(json, "job", job[0] ? job : NULL);
    mr_options_json(cli_options(train_options), o, json);
    mr_json_object_end(json);
    int64_t n = mr_json_finish(json, &written);
    if (n > 0)
        *text = strdup(written);
    mr_json_destroy(json);
    return *text ? 0 : mr_error_set(-ENOMEM, "train: no memory");
}

static void trainer_opts(const struct train_data *d, const struct train_opts *o,
                         struct mr_trainer_opts *out)
{
    mr_trainer_opts_init(out);
    out->model = o->model;
    out->optimizer = o->optimizer;
    out->schedule = o->schedule;
    out->lr = o->lr;
    out->clip_norm = o->clip_norm;
    out->clip_value = o->clip_value;
    out->loss = (enum mr_loss)o->loss;
    out->precision = (enum mr_precision)o->amp;
    out->classes = d->classes;
    out->transform = d->chain_text;
    out->test_transform = d->test_chain_text;
    out->batch_size = o->loader.batch_size;
    out->loader = &o->loader;
    out->epochs = o->epochs;
    out->max_steps = o->max_steps;
    out->seed = o->seed;
    out->shuffle = o->shuffle;
    out->sampler = o->sampler;
    out->target = o->target;
    out->patience = o->patience;
    out->on_nan = (enum mr_on_nan)o->on_nan;
    out->threads = (uint32_t)o->threads;
    out->graph = o->graph;
}

/* It learns all the same, but slowly. */
static void warn_of_softmax(const struct train *t)
{
    const struct mr_net_layer *l, *last = NULL;
    for (uint32_t i = 0; (l = train_layer(t, i)); i++)
        last = l;
    if (t->opts->loss == MR_CROSS_ENTROPY && last && strcmp(last->name, "softmax") == 0)
        cli_warn("--loss cross-entropy takes the softmax itself: leave it out of the model, or "
                 "learn slowly");
}

/* The processors of this machine, and the cgroup's quota, are for all its ranks. A rank that the
 * launcher bound to processors has these to itself. */
static uint32_t own_processors(uint32_t ranks)
{
    enum { MOST = 512 };
    struct mr_cpu_info cpu = {.size = sizeof cpu};
    if (mr_cpu_query(&cpu) < 0)
        return 1;
    uint32_t n = (uint32_t)cpu.online / ranks, quota = (uint32_t)ceil(cpu.quota) / ranks;
    if ((uint32_t)cpu.affinity < n)
        n = (uint32_t)cpu.affinity;
    if (cpu.quota > 0 && quota < n)
        n = quota;
    return n < 1 ? 1 : n > MOST ? MOST : n;
}

static void share_machine(const struct train_ranks *r, struct mr_trainer_opts *to,
                          struct mr_loader_opts *loader)
{
    to->comm = r->comm;
    if (!r->comm || r->place.local_world < 2)
        return;
    uint32_t n = own_processors(r->place.local_world);
    to->threads = to->threads ? to->threads : n;
    loader->workers = loader->workers ? loader->workers : n;
}

/* Without leaves each number of ranks has sums of its own. */
static void warn_of_world(const struct train *t, const struct mr_checkpoint *from)
{
    const char *was = from ? mr_checkpoint_get(from, "world") : NULL;
    uint32_t world = t->ranks ? t->ranks->place.world : 1;
    if (was && t->opts->leaves <= 1 && strtoul(was, NULL, 10) != world)
        cli_warn(
            "%s: written by %s rank%s, and this run has %u: its last bits differ from those of "
            "a run that never stopped; with --leaves they would not",
            t->opts->checkpoint, was, strcmp(was, "1") == 0 ? "" : "s", world);
}

/* Without --micro-batches and --leaves as many as keep most stages busy most of the time. */
static uint64_t micro_batches(const struct train *t)
{
    enum { FOR_EACH_STAGE = 4 };
    const struct train_opts *o = t->opts;
    const uint64_t stages =
        train_ranks_are_stages(t) ? t->ranks->place.world : t->data->n_more + 1ull;
    uint64_t n = 1, most = FOR_EACH_STAGE * stages;
    if (o->micro_batches || stages == 1)
        return o->micro_batches;
    if (o->leaves)
        return o->leaves;
    while (2 * n <= most && o->loader.batch_size % (2 * n) == 0)
        n *= 2;
    return n;
}

int train_open(struct train *t, struct train_data *data, const struct train_opts *opts,
               const struct mr_checkpoint *from)
{
    struct mr_trainer_opts to;
    struct mr_loader_opts loader = opts->loader;
    char *config = NULL;
    *t = (struct train){
        .data = data, .ranks = data->ranks, .opts = opts, .start_ns = data->start_ns};
    t->info.size = sizeof t->info;
    t->times.size = sizeof t->times;
    if (opts->loss == MR_MSE && opts->target > 0)
        return mr_error_set(MR_EOPTION, "--target-acc: needs an accuracy, and --loss mse has none");
    int rc = parse_every(t);
    if (rc < 0)
        return rc;
    trainer_opts(data, opts, &to);
    to.resume = from;
    to.start_ns = data->start_ns;
    rc = opts->checkpoint ? make_config(opts, &config) : 0;
    if (rc < 0)
        return rc;
    to.config = config;
    to.leaves = (uint32_t)opts->leaves;
    to.wire = opts->wire ? MR_BF16 : MR_F32;
    to.shard_optimizer = opts->shard_optimizer;
    to.split_ranks = opts->split_ranks;
    to.devices = data->more;
    to.n_devices = data->n_more;
    to.split = opts->split;
    to.micro_batches = t->micro = micro_batches(t);
    to.pipeline = (enum mr_pipeline)opts->pipeline;
    if (t->ranks)
        share_machine(t->ranks, &to, &loader);
    to.loader = &loader;
    rc = mr_trainer_create(data->pipe.dev, data->pipe.ds, data->test, &to, &t->trainer);
    free(config);
    if (rc < 0)
        return rc;
    warn_of_softmax(t);
    warn_of_world(t, from);
    return mr_trainer_query(t->trainer, &t->info);
}

void train_close(struct train *t)
{
    mr_trainer_destroy(t->trainer);
    train_steps_close(t);
    *t = (struct train){0};
}
