/* The trainer: opens and closes its parts. */
#include "train/trainer.h"
#include "optim/optim.h"
#include "train/shard.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define BATCH_MOST (1u << 20)

/* A loss over what the last layer does not give trains to nonsense without an error. */
static int check_loss(const struct mr_trainer *t)
{
    const struct mr_net_layer *last = mr_train_last_layer(mr_train_last_net(t));
    if (t->opts.loss != MR_NLL || (last && strcmp(last->name, "log-softmax") == 0))
        return 0;
    return mr_error_set(
        MR_EOPTION,
        "loss nll: needs log-probabilities: a model that ends in logsoftmax, not in %s (%s)",
        last ? last->name : "", last ? last->text : "");
}

static enum mr_dtype dtype_of(const struct mr_trainer *t)
{
    enum mr_precision p = t->opts.precision;
    return p == MR_PRECISION_BF16 ? MR_BF16 : p == MR_PRECISION_FP16 ? MR_F16 : MR_F32;
}

static int open_net(struct mr_trainer *t)
{
    struct mr_net_opts no = t->sample;
    no.model = t->opts.model;
    no.classes = t->classes;
    no.loss = t->opts.loss;
    no.dtype = dtype_of(t);
    no.tf32 = t->opts.precision == MR_PRECISION_TF32;
    no.max_batch = (uint32_t)mr_train_batch_size(t) / t->n_leaves;
    no.seed = t->opts.seed;
    no.threads = t->opts.threads;
    int rc =
        t->pipeline ? mr_train_pipeline_nets(t, &no) : mr_net_create(t->dev, &no, &t->stage[0].net);
    t->net = t->stage[0].net;
    if (rc < 0)
        return rc;
    rc = check_loss(t);
    if (rc < 0 || t->info.unified || t->pipeline)
        return rc;
    return mr_net_warm_up(t->net, t->stream); /* what libraries load is no epoch's time */
}

/* The shortest text that reads back, with a point in any locale. */
static const char *number_text(double v, char buf[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, v);
        char *comma = strchr(buf, ',');
        if (comma)
            *comma = '.';
        if (mr_text_to_f64(buf, NULL) == v)
            break;
    }
    return buf;
}

/* "adam" with an lr of 0.01 and a clip_norm of 1 is "adam:lr=0.01,clip_norm=1". */
static int describe_optim(struct mr_trainer *t)
{
    const struct mr_trainer_opts *o = &t->opts;
    const struct {
        const char *name;
        double value;
        bool given;
    } more[] = {{"lr", o->lr, o->lr >= 0},
                {"clip_norm", o->clip_norm, o->clip_norm > 0},
                {"clip_value", o->clip_value, o->clip_value > 0}};
    size_t bytes;
    FILE *text = open_memstream(&t->optim_text, &bytes);
    if (!text)
        return mr_error_nomem("trainer", 0);
    fputs(o->optimizer, text);
    char mark = strchr(o->optimizer, ':') ? ',' : ':', buf[32];
    for (size_t i = 0; i < MR_COUNT(more); i++)
        if (more[i].given) {
            fprintf(text, "%c%s=%s", mark, more[i].name, number_text(more[i].value, buf));
            mark = ',';
        }
    return fclose(text) == 0 ? 0 : mr_error_nomem("trainer", bytes);
}

/* Steps after a loss that is not finite change nothing, so the cause is still visible when the host
 * checks. */
static int attach(struct mr_trainer *t, uint32_t s)
{
    struct mr_train_stage *stage = &t->stage[s];
    struct mr_optim_extra extra;
    const float *loss_scale;
    mr_optim_extra_init(stage->optim, &extra);
    mr_net_flat(stage->net, NULL, NULL, &extra.copy);
    if (t->shard) /* the parameters come from all ranks: a pass makes the copy itself */
        extra.copy = NULL;
    if (extra.copy)
        extra.copy_dtype = dtype_of(t);
    mr_net_scaling(stage->net, &loss_scale, &extra.grad_scale, &extra.skip);
    if (!extra.skip)
        extra.skip = mr_train_pipeline_bad_loss(t, s);
    if (!extra.skip)
        extra.skip = mr_train_leaves_bad_loss(t);
    if (!extra.skip)
        extra.skip = mr_net_bad_loss(stage->net);
    return mr_optim_attach(stage->optim, &extra);
}

static int make_optim(struct mr_trainer *t, const struct mr_optim_opts *opts, uint32_t s)
{
    struct mr_train_stage *stage = &t->stage[s];
    if (t->pipeline)
        return mr_train_pipeline_optim(t, opts, s);
    if (t->shard)
        return mr_train_shard_optim(t->shard, stage->dev, opts, &stage->optim);
    return mr_optim_create_from(stage->dev, opts, MR_F32, mr_net_n_params(stage->net), NULL, 0,
                                &stage->optim);
}

static int open_optim(struct mr_trainer *t)
{
    const struct mr_trainer_opts *o = &t->opts;
    struct mr_optim_opts opts = {.size = sizeof opts};
    int rc = describe_optim(t);
    if (rc < 0)
        return rc;
    rc = mr_optim_parse(o->optimizer, &opts);
    if (rc < 0)
        return rc;
    if (o->lr >= 0)
        opts.lr = o->lr;
    if (o->clip_norm > 0)
        opts.clip_norm = o->clip_norm;
    if (o->clip_value > 0)
        opts.clip_value = o->clip_value;
    if (!opts.threads)
        opts.threads = o->threads;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++) {
        rc = make_optim(t, &opts, s);
        if (rc >= 0)
            rc = attach(t, s);
    }
    t->optim = t->stage[0].optim;
    return rc;
}

static int open_schedule(struct mr_trainer *t)
{
    int rc = mr_schedule_parse(t->opts.schedule, &t->schedule);
    if (rc < 0)
        return rc;
    if (t->opts.loss == MR_MSE && mr_schedule_wants_more(t->schedule))
        return mr_error_set(MR_EOPTION, "schedule %s: max needs an accuracy, and loss mse has none",
                            t->opts.schedule);
    if (t->opts.loss == MR_MSE && t->opts.target > 0)
        return mr_error_set(MR_EOPTION,
                            "target accuracy: needs an accuracy, and loss mse has none");
    return 0;
}

static int check_labels(const struct mr_trainer *t)
{
    uint32_t outputs = mr_train_outputs(mr_train_last_net(t));
    int rc = mr_train_check_labels(t->ld, t->label, t->opts.loss, outputs, mr_dataset_text(t->ds));
    if (rc < 0 || !t->test_loader)
        return rc;
    return mr_train_check_labels(t->test_loader, t->label, t->opts.loss, outputs,
                                 mr_dataset_text(t->test));
}

static int open_device(struct mr_trainer *t)
{
    t->info.size = sizeof t->info;
    int rc = mr_device_query(t->dev, &t->info);
    if (rc < 0)
        return rc;
    if (t->info.simulated && !t->opts.n_devices && !t->opts.micro_batches)
        return mr_error_set(MR_EUNSUPPORTED, "device %s computes nothing: nets run on cpu and cuda",
                            t->info.name);
    rc = mr_stream_create(t->dev, "train", &t->stage[0].stream);
    t->stream = t->stage[0].stream;
    return rc;
}

/* Epochs, parts of batches and exact remainders count each sample once. */
static int open_order(struct mr_trainer *t)
{
    const struct mr_trainer_opts *o = &t->opts;
    const char *text = o->sampler ? o->sampler : o->shuffle ? "random" : "sequential";
    int rc = mr_sampler_open(text, mr_dataset_length(t->ds), o->seed, &t->sampler);
    if (rc < 0)
        return rc;
    const char *kind = mr_sampler_text(t->sampler);
    if (strcmp(kind, "sequential") == 0 || strncmp(kind, "random(", 7) == 0)
        return 0;
    return mr_error_set(MR_EOPTION,
                        "sampler %s: the trainer needs each sample once an epoch: expected "
                        "sequential, random or random:block=N[,window=N]",
                        text);
}

static int open_parts(struct mr_trainer *t)
{
    int (*const parts[])(struct mr_trainer *) = {open_device,
                                                 mr_train_pipeline_open,
                                                 mr_train_leaves_open,
                                                 mr_train_open_data,
                                                 open_schedule,
                                                 open_net,
                                                 mr_train_leaves_prepare,
                                                 open_optim};
    for (size_t i = 0; i < MR_COUNT(parts); i++) {
        int rc = parts[i](t);
        if (rc < 0)
            return rc;
    }
    return open_order(t);
}

/* From the start, or from where the checkpoint is. */
static int place(struct mr_trainer *t, const struct mr_checkpoint *from)
{
    int rc = from ? mr_train_check_state(t, from) : 0;
    if (rc < 0)
        return rc;
    rc = mr_train_open_loader(t, false, from ? mr_checkpoint_get(from, "loader") : NULL, &t->ld);
    if (rc < 0)
        return rc;
    rc = check_labels(t);
    if (rc < 0)
        return rc;
    rc = from ? mr_train_restore(t, from) : 0;
    if (rc < 0)
        return rc;
    rc = mr_net_set_step(t->net, t->step, t->stream);
    if (rc < 0)
        return rc;
    mr_train_judge_history(t);
    return mr_net_zero_totals(t->net, t->stream);
}

static int copy_text(const char **text)
{
    if (!*text)
        return 0;
    *text = strdup(*text);
    return *text ? 0 : mr_error_nomem("trainer", 0);
}

/* Copies the caller's texts. Those not copied yet are NULL when it fails: all can be freed. */
static int keep_texts(struct mr_trainer_opts *o)
{
    const char **const texts[] = {&o->model,          &o->optimizer, &o->schedule, &o->transform,
                                  &o->test_transform, &o->config,    &o->split,    &o->sampler};
    int rc = 0;
    for (size_t i = 0; i < MR_COUNT(texts); i++) {
        if (rc < 0)
            *texts[i] = NULL;
        else
            rc = copy_text(texts[i]);
    }
    return rc;
}

static int take_opts(const struct mr_trainer_opts *opts, struct mr_trainer_opts *out)
{
    mr_trainer_opts_init(out);
    int rc = mr_opts_take("trainer_opts", opts, out, sizeof *out);
    if (rc < 0)
        goto fail;
    if (!out->model || !out->optimizer || !out->schedule || !out->split) {
        rc = mr_error_set(MR_EMISUSE,
                          "mr_trainer_create: model, optimizer, schedule or split is NULL");
        goto fail;
    }
    if (out->batch_size < 1 || out->batch_size > BATCH_MOST || out->epochs < 1) {
        rc = mr_error_set(
            MR_EOPTION,
            "trainer: batches of %llu, %llu epochs: expected batches of 1..%u, and an epoch",
            (unsigned long long)out->batch_size, (unsigned long long)out->epochs, BATCH_MOST);
        goto fail;
    }
    out->transform = out->transform ? out->transform : "";
    out->test_transform = out->test_transform ? out->test_transform : out->transform;
    return keep_texts(out);
fail:
    *out = (struct mr_trainer_opts){0};
    return rc;
}

int mr_trainer_create(struct mr_device *device, struct mr_dataset *ds, struct mr_dataset *test,
                      const struct mr_trainer_opts *opts, struct mr_trainer **out)
{
    if (!device || !ds || !opts || !out)
        return mr_error_set(MR_EMISUSE, "mr_trainer_create: device, ds, opts or out is NULL");
    if (mr_dataset_length(ds) == MR_UNKNOWN || (test && mr_dataset_length(test) == MR_UNKNOWN))
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: an iterable data set: the trainer needs to know how many samples "
                            "there are, and to read some by index",
                            mr_dataset_text(mr_dataset_length(ds) == MR_UNKNOWN ? ds : test));
    struct mr_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return mr_error_nomem("trainer", sizeof *t);
    uint64_t now = mr_time_ns();
    t->dev = t->stage[0].dev = device;
    t->n_stages = 1;
    t->ds = ds;
    t->test = test;
    t->seconds_to_target = NAN;
    t->best_test_loss = INFINITY;
    t->world = t->n_leaves = 1;
    mr_net_opts_init(&t->sample);
    int rc = take_opts(opts, &t->opts);
    if (rc < 0)
        goto fail;
    if (!t->opts.start_ns)
        t->opts.start_ns = now;
    rc = open_parts(t);
    if (rc < 0)
        goto fail;
    rc = place(t, t->opts.resume);
    if (rc < 0)
        goto fail;
    t->opts.resume = NULL;
    t->opts.loader = NULL;
    t->opts.devices = NULL;
    *out = t;
    return 0;
fail:
    mr_trainer_destroy(t);
    return rc;
}

/* After MR_EPEER messages may still be on their way to parameters, norms, activations and copies
 * (comm.h). */
static bool is_in_use(const struct mr_trainer *t)
{
    return mr_train_collection_of(t).comm && mr_comm_check(t->opts.comm) == MR_EPEER;
}

static void destroy_nets(struct mr_trainer *t)
{
    mr_train_pipeline_destroy(t);
    for (uint32_t s = 0; s < t->n_stages; s++) {
        mr_optim_destroy(t->stage[s].optim);
        mr_net_destroy(t->stage[s].net);
    }
    mr_train_copies_free(t);
}

void mr_trainer_destroy(struct mr_trainer *t)
{
    if (!t)
        return;
    if (t->stream)
        mr_stream_synchronize(t->stream);
    mr_loader_close(t->ld);
    mr_loader_close(t->test_loader);
    mr_budget_destroy(t->budget);
    for (uint32_t i = 0; i < t->n_graphs; i++)
        mr_graph_destroy(t->graph[i].graph);
    mr_schedule_destroy(t->schedule);
    if (is_in_use(t)) /* the memory stays */
        t->n_stages = 0;
    else
        destroy_nets(t);
    mr_train_leaves_destroy(t);
    mr_train_shard_close(t->shard);
    if (t->sampler)
        mr_sampler_destroy(t->sampler);
    if (t->chain)
        mr_transform_destroy(t->chain);
    if (t->test_chain)
        mr_transform_destroy(t->test_chain);
    for (uint32_t s = 0; s < t->n_stages; s++)
        mr_stream_destroy(t->stage[s].stream);
    const char *const texts[] = {t->opts.model,     t->opts.optimizer,      t->opts.schedule,
                                 t->opts.transform, t->opts.test_transform, t->opts.config,
                                 t->opts.split,     t->opts.sampler};
    for (size_t i = 0; i < MR_COUNT(texts); i++)
        free((char *)(uintptr_t)texts[i]);
    free(t->graph);
    free(t->history);
    free(t->optim_text);
    free(t);
}

static uint64_t optim_bytes(const struct mr_trainer *t)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < t->n_stages; s++)
        bytes += mr_optim_state_bytes(t->stage[s].optim);
    return bytes;
}

int mr_trainer_query(const struct mr_trainer *t, struct mr_trainer_info *out)
{
    if (!t)
        return mr_error_null("mr_trainer_query", "a trainer");
    const struct mr_trainer_info full = {
        .step = t->step,
        .epoch = t->epoch,
        .resumed_step = t->resumed_step,
        .skipped = t->skipped,
        .n_epochs = t->n_history,
        .best = t->best,
        .end = t->end,
        .classes = t->classes,
        .label = t->label,
        .optimizer = t->optim_text,
        .seconds = t->earlier_seconds + mr_train_since(t->opts.start_ns),
        .seconds_to_target = t->seconds_to_target,
        .epoch_seconds = t->started ? mr_train_since(t->pass.start_ns) : 0,
        .optim_bytes = optim_bytes(t),
    };
    return mr_info_give("trainer_info", out, &full, sizeof full);
}

int mr_trainer_query_times(const struct mr_trainer *t, struct mr_trainer_times *out)
{
    if (!t)
        return mr_error_null("mr_trainer_query_times", "a trainer");
    struct mr_trainer_times full = {sizeof full, t->waiting, t->stepping, t->testing, t->saving};
    struct mr_train_stretch pass = t->pass;
    double rest = t->pass_steps ? mr_train_since(pass.start_ns) : 0;
    double waited = mr_train_stretch_waited(t, &pass, rest);
    full.waiting += waited * rest;
    full.stepping += (1 - waited) * rest;
    return mr_info_give("trainer_times", out, &full, sizeof full);
}

const struct mr_train_epoch *mr_trainer_epoch_get(const struct mr_trainer *t, uint32_t i)
{
    if (!t)
        return NULL;
    return i < t->n_history ? &t->history[i] : NULL;
}

struct mr_net *mr_trainer_get_net(struct mr_trainer *t)
{
    if (!t)
        return NULL;
    return t->net;
}

struct mr_net *mr_trainer_get_stage(struct mr_trainer *t, uint32_t stage)
{
    if (!t)
        return NULL;
    return mr_train_net_of(t, stage);
}

struct mr_optim *mr_trainer_get_optim(struct mr_trainer *t)
{
    if (!t)
        return NULL;
    return t->optim;
}

struct mr_loader *mr_trainer_get_loader(struct mr_trainer *t)
{
    if (!t)
        return NULL;
    return t->ld;
}
