/* What a checkpoint of training holds. */
#include "optim/optim.h"
#include "train/shard.h"
#include "train/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <millrace/json.h>
#include <millrace/version.h>
#include <stdarg.h>
#include <string.h>

#define STATE_BYTES 4096
#define MAX_NAMES   (8u << 20) /* bytes: a head is not to pass what is read of one */

/* Host copies of everything that a checkpoint writes. They stay with the trainer after MR_EPEER,
 * since messages may still use them (comm.h). */
struct mr_train_copies {
    char *params[MR_TRAIN_STAGES], *buffers[MR_TRAIN_STAGES], *state[8];
};

static int copy_down(struct mr_stream *stream, const void *from, uint64_t bytes, char **out)
{
    *out = malloc(bytes ? bytes : 1);
    if (!*out)
        return mr_error_set(-ENOMEM, "checkpoint: no memory for %" PRIu64 " bytes", bytes);
    int rc = bytes ? mr_copy_async(stream, *out, MR_PAGEABLE, from, MR_DEVICE, bytes) : 0;
    return rc < 0 ? rc : mr_stream_synchronize(stream);
}

static int copy_stage(const struct mr_train_stage *stage, char **params, char **buffers)
{
    void *on_device, *statistics;
    uint64_t n_buffers;
    mr_net_flat(stage->net, &on_device, NULL, NULL);
    mr_net_buffers(stage->net, &statistics, &n_buffers);
    int rc =
        copy_down(stage->stream, on_device, mr_net_n_params(stage->net) * sizeof(float), params);
    return rc < 0 ? rc : copy_down(stage->stream, statistics, n_buffers * sizeof(float), buffers);
}

/* Those of one kind: get is mr_net_param_get() or mr_net_buffer_get(); from: of each stage. */
static int add_tensors(struct mr_checkpoint *c, const struct mr_trainer *t, char *const *from,
                       const struct mr_net_param *(*get)(const struct mr_net *net, uint32_t i))
{
    const struct mr_net_param *p;
    for (uint32_t s = 0; s < mr_train_n_stages(t); s++)
        for (uint32_t i = 0; (p = get(mr_train_net_of(t, s), i)); i++) {
            int rc = mr_checkpoint_add(c, p->name, MR_F32, p->rank, p->dim,
                                       from[s] + p->offset * sizeof(float));
            if (rc < 0)
                return rc;
        }
    return 0;
}

/* For the parameters and running statistics of a stage that is another rank. */
static int make_stage(struct mr_net *plan, char **params, char **buffers)
{
    uint64_t n_buffers;
    mr_net_buffers(plan, NULL, &n_buffers);
    const uint64_t bytes[2] = {mr_net_n_params(plan) * sizeof(float), n_buffers * sizeof(float)};
    char **const to[2] = {params, buffers};
    for (int i = 0; i < 2; i++) {
        *to[i] = malloc(MR_MAX(bytes[i], 1));
        if (!*to[i])
            return mr_error_set(-ENOMEM, "checkpoint: no memory for %" PRIu64 " bytes", bytes[i]);
    }
    return 0;
}

static int receive_stage(struct mr_comm *comm, struct mr_net *plan, uint32_t rank, char *params,
                         char *buffers)
{
    uint64_t n_buffers;
    mr_net_buffers(plan, NULL, &n_buffers);
    int rc = mr_comm_recv(comm, params, mr_net_n_params(plan) * sizeof(float), rank, NULL);
    return rc < 0 ? rc : mr_comm_recv(comm, buffers, n_buffers * sizeof(float), rank, NULL);
}

static int send_stage(struct mr_trainer *t, struct mr_comm *comm)
{
    struct mr_train_copies *copies = t->copies;
    uint64_t n_buffers;
    mr_net_buffers(t->net, NULL, &n_buffers);
    int rc = copy_stage(&t->stage[0], &copies->params[0], &copies->buffers[0]);
    if (rc < 0)
        return rc;
    rc = mr_comm_send(comm, copies->params[0], mr_net_n_params(t->net) * sizeof(float), 0, NULL);
    if (rc < 0)
        return rc;
    return mr_comm_send(comm, copies->buffers[0], n_buffers * sizeof(float), 0, NULL);
}

/* Stages that are other ranks. */
static uint32_t n_others(const struct mr_trainer *t)
{
    const struct mr_train_collection all = mr_train_collection_of(t);
    return t->shard || !all.comm ? 0 : all.world;
}

/* In the order of a net that isn't split. What other ranks have comes later: collect(). */
static int add_params(struct mr_checkpoint *c, struct mr_trainer *t, struct mr_train_copies *copies)
{
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = copy_stage(&t->stage[s], &copies->params[s], &copies->buffers[s]);
    for (uint32_t s = 1; s < n_others(t) && rc >= 0; s++)
        rc = make_stage(mr_train_net_of(t, s), &copies->params[s], &copies->buffers[s]);
    if (rc < 0)
        return rc;
    rc = add_tensors(c, t, copies->params, mr_net_param_get);
    return rc < 0 ? rc : add_tensors(c, t, copies->buffers, mr_net_buffer_get);
}

/* Arrays of an element for each parameter lie one behind the other; others are the same in all
 * stages, and on all ranks. */
uint64_t mr_train_state_length(const struct mr_trainer *t, uint32_t i, enum mr_dtype *dtype)
{
    uint64_t n = 0, sum = 0;
    mr_optim_state_data(t->optim, i, dtype, &n);
    if (!mr_optim_state_is_per_param(t->optim, i))
        return n;
    for (uint32_t s = 0; s < mr_train_n_stages(t); s++)
        sum += mr_net_n_params(mr_train_net_of(t, s));
    return sum;
}

int mr_train_state_each(struct mr_trainer *t, uint32_t i, char *all,
                        int (*work)(struct mr_optim *optim, uint32_t i, void *data, uint64_t bytes,
                                    struct mr_stream *stream))
{
    const bool per_param = mr_optim_state_is_per_param(t->optim, i);
    const struct mr_train_collection parts = mr_train_collection_of(t);
    if (parts.comm && per_param)
        all += parts.first[parts.rank] * mr_optim_size(t->optim);
    for (uint32_t s = 0; s < t->n_stages; s++) {
        enum mr_dtype dtype;
        uint64_t n = 0;
        mr_optim_state_data(t->stage[s].optim, i, &dtype, &n);
        int rc = work(t->stage[s].optim, i, all, n * mr_dtype_size(dtype), t->stage[s].stream);
        if (rc < 0)
            return rc;
        all += per_param ? n * mr_dtype_size(dtype) : 0;
    }
    return 0;
}

static int read_state(struct mr_optim *optim, uint32_t i, void *data, uint64_t bytes,
                      struct mr_stream *stream)
{
    return mr_optim_state_read(optim, i, data, bytes, stream);
}

int mr_train_state_collect(struct mr_trainer *t, uint32_t i, char *all)
{
    const struct mr_train_collection parts = mr_train_collection_of(t);
    if (parts.comm && mr_optim_state_is_per_param(t->optim, i))
        return mr_train_collect(&parts, t->optim, i, all, t->stream);
    return all ? mr_train_state_each(t, i, all, read_state) : 0;
}

/* Before any part is sent: if one rank fails, all do. Else parts that went to a rank which failed
 * would wait there, and be taken for those of its next checkpoint. */
static int agree(const struct mr_trainer *t, int rc)
{
    const struct mr_train_collection parts = mr_train_collection_of(t);
    double failed = rc < 0;
    if (!parts.comm)
        return rc;
    int sum = mr_comm_sum(parts.comm, &failed, &failed, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    if (rc < 0 || sum < 0)
        return rc < 0 ? rc : sum;
    return failed > 0 ? mr_error_set(MR_ECANCELLED, "checkpoint: another rank could not write it")
                      : 0;
}

/* A rank other than 0 writes nothing, but may have a part of what that one writes. */
static int give_parts(struct mr_trainer *t)
{
    const struct mr_train_collection parts = mr_train_collection_of(t);
    int rc = 0;
    for (uint32_t i = 0; i < mr_optim_state_count(t->optim) && parts.comm && rc >= 0; i++)
        rc = mr_train_state_collect(t, i, NULL);
    return rc < 0 || t->shard || !parts.comm ? rc : send_stage(t, parts.comm);
}

/* Rank 0 gets what it made room for, in the order of give_parts(). */
static int collect(struct mr_trainer *t, struct mr_train_copies *copies)
{
    const struct mr_train_collection all = mr_train_collection_of(t);
    int rc = 0;
    for (uint32_t i = 0; i < mr_optim_state_count(t->optim) && rc >= 0; i++)
        rc = mr_train_state_collect(t, i, copies->state[i]);
    for (uint32_t s = 1; s < n_others(t) && rc >= 0; s++)
        rc = receive_stage(all.comm, mr_train_net_of(t, s), s, copies->params[s],
                           copies->buffers[s]);
    return rc;
}

static int add_optim(struct mr_checkpoint *c, struct mr_trainer *t, struct mr_train_copies *copies)
{
    for (uint32_t i = 0; i < mr_optim_state_count(t->optim); i++) {
        enum mr_dtype dtype = MR_F32;
        uint64_t n;
        char name[64];
        if (i == MR_COUNT(copies->state))
            return mr_error_set(MR_ELIMIT, "checkpoint: more than %zu arrays of state",
                                MR_COUNT(copies->state));
        n = mr_train_state_length(t, i, &dtype);
        snprintf(name, sizeof name, "optim.%s", mr_optim_state_name(t->optim, i));
        uint64_t bytes = n * mr_dtype_size(dtype);
        copies->state[i] = malloc(MR_MAX(bytes, 1));
        if (!copies->state[i])
            return mr_error_set(-ENOMEM, "checkpoint: no memory for %" PRIu64 " bytes", bytes);
        int rc = mr_checkpoint_add(c, name, dtype, 1, &n, copies->state[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void mr_train_common_free(struct mr_train_common common[MR_TRAIN_COMMON])
{
    for (int i = 0; i < MR_TRAIN_COMMON; i++)
        free(common[i].text);
}

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *fmt, ...)
{
    va_list args;
    char *text;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

/* "sequential" and "shuffled" are the texts of earlier versions: their checkpoints stay valid. */
static const char *order_text(const struct mr_trainer *t)
{
    const char *text = mr_sampler_text(t->sampler);
    if (strcmp(text, "sequential") == 0 || strstr(text, ",block="))
        return text;
    return "shuffled";
}

int mr_train_describe(const struct mr_trainer *t, struct mr_train_common out[MR_TRAIN_COMMON])
{
    static const char *const precisions[] = {"f32", "f32", "bf16", "fp16"};
    const struct mr_trainer_opts *o = &t->opts;
    const struct mr_net_opts *s = &t->sample;
    const struct mr_train_common all[MR_TRAIN_COMMON] = {
        {"model", "model", format("%s", o->model)},
        {"sample", "samples",
         format("%ux%ux%u %s", s->channels, s->height, s->width,
                s->layout == MR_NCHW ? "nchw" : "nhwc")},
        {"classes", "classes", format("%u", t->classes)},
        {"loss", "loss", format("%s", mr_loss_name(o->loss))},
        {"data", "data set",
         format("%.200s, %" PRIu64 " samples, fingerprint %016" PRIx64, mr_dataset_text(t->ds),
                mr_dataset_length(t->ds), mr_dataset_fingerprint(t->ds))},
        {"transform", "transform", format("%s", o->transform)},
        {"optimizer", "optimizer", format("%s", t->optim_text)},
        {"schedule", "schedule", format("%s", o->schedule)},
        {"batch_size", "batch size", format("%" PRIu64, o->batch_size)},
        {"precision", "precision", format("%s", precisions[o->precision])},
        {"seed", "seed", format("%" PRIu64, o->seed)},
        {"order", "order", format("%s", order_text(t))},
        {"leaves", "leaves", format("%u", o->leaves > 1 ? o->leaves : 0)}, /* 1: one rank */
    };
    bool whole = true;
    memcpy(out, all, sizeof all);
    for (int i = 0; i < MR_TRAIN_COMMON; i++)
        whole = whole && out[i].text;
    return whole ? 0 : mr_error_nomem("checkpoint", 0);
}

static void json_number(struct mr_json *json, const char *key, double value)
{
    if (isnan(value))
        mr_json_null(json, key);
    else
        mr_json_double(json, key, value);
}

static void json_epoch(struct mr_json *json, const struct mr_train_epoch *e)
{
    mr_json_object(json, NULL);
    mr_json_uint(json, "epoch", e->epoch);
    mr_json_uint(json, "steps", e->steps);
    json_number(json, "loss", e->loss);
    json_number(json, "accuracy", e->accuracy);
    json_number(json, "test_loss", e->test_loss);
    json_number(json, "test_accuracy", e->test_accuracy);
    mr_json_double(json, "seconds", e->seconds);
    mr_json_double(json, "test_seconds", e->test_seconds);
    mr_json_double(json, "lr", e->lr);
    mr_json_double(json, "samples_per_s", e->samples_per_s);
    mr_json_double(json, "data_wait", e->waited);
    mr_json_object_end(json);
}

static void json_history(struct mr_json *json, const struct mr_trainer *t)
{
    mr_json_array(json, NULL);
    for (uint32_t i = 0; i < t->n_history; i++)
        json_epoch(json, &t->history[i]);
    mr_json_array_end(json);
}

static int set_history(struct mr_checkpoint *c, const struct mr_trainer *t)
{
    const char *text;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return mr_error_nomem("checkpoint", 0);
    json_history(json, t);
    int64_t n = mr_json_finish(json, &text);
    int rc = n < 0 ? (int)n : mr_checkpoint_set(c, "epochs", "%s", text);
    mr_json_destroy(json);
    return rc;
}

/* fp16's. */
static int set_scale(struct mr_checkpoint *c, struct mr_trainer *t)
{
    float scale;
    uint32_t good;
    int rc = mr_net_query_loss_scale(t->net, t->stream, &scale, &good);
    return rc < 0 ? rc : mr_checkpoint_set(c, "loss_scale", "%.9g %" PRIu32, (double)scale, good);
}

static int set_sums(struct mr_checkpoint *c, const struct mr_trainer *t)
{
    int rc = mr_checkpoint_set(c, "epoch_loss", "%.17g", t->sums.loss);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "epoch_right", "%" PRIu64, t->sums.n_right);
    return rc < 0 ? rc : mr_checkpoint_set(c, "epoch_samples", "%" PRIu64, t->sums.n_samples);
}

static int set_schedule(struct mr_checkpoint *c, const struct mr_trainer *t)
{
    double s[MR_SCHEDULE_STATE];
    mr_schedule_save(t->schedule, s);
    return mr_checkpoint_set(c, "schedule_state", "%.17g %.17g %.17g %.17g", s[0], s[1], s[2],
                             s[3]);
}

static int set_progress(struct mr_checkpoint *c, struct mr_trainer *t)
{
    char loader[STATE_BYTES];
    int rc = mr_train_take_totals(t);
    if (rc < 0)
        return rc;
    rc = mr_loader_state(t->ld, loader, sizeof loader);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "loader", "%s", loader);
    if (rc < 0)
        return rc;
    rc = set_schedule(c, t);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "step", "%" PRIu64, t->step);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "epoch", "%" PRIu64, t->epoch);
    if (rc < 0)
        return rc;
    rc = set_sums(c, t);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "seconds", "%.9g",
                           t->earlier_seconds + mr_train_since(t->opts.start_ns));
    if (rc < 0)
        return rc;
    rc = set_scale(c, t);
    return rc < 0 ? rc : set_history(c, t);
}

/* For whom the data set that is predicted does not say them, or numbers them otherwise. */
static int set_names(struct mr_checkpoint *c, const struct mr_trainer *t)
{
    char *text;
    int rc = mr_dataset_class_names(t->ds, &text);
    if (rc < 0)
        return rc;
    if (text && strlen(text) <= MAX_NAMES)
        rc = mr_checkpoint_set(c, "class_names", "%s", text);
    free(text);
    return rc;
}

static int set_common(struct mr_checkpoint *c, const struct mr_trainer *t)
{
    struct mr_train_common common[MR_TRAIN_COMMON];
    int rc = mr_train_describe(t, common);
    if (rc < 0)
        goto end;
    for (int i = 0; i < MR_TRAIN_COMMON; i++) {
        rc = mr_checkpoint_set(c, common[i].key, "%s", common[i].text);
        if (rc < 0)
            goto end;
    }
end:
    mr_train_common_free(common);
    return rc;
}

static int set_keys(struct mr_checkpoint *c, struct mr_trainer *t)
{
    int rc = mr_checkpoint_set(c, "millrace", "1");
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "version", "%s", mr_version());
    if (rc < 0)
        return rc;
    rc = set_common(c, t);
    if (rc < 0)
        return rc;
    if (t->opts.leaves <= 1) /* then the results are of so many ranks */
        rc = mr_checkpoint_set(c, "world", "%u", t->world);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "test_transform", "%s", t->opts.test_transform);
    if (rc < 0)
        return rc;
    rc = set_names(c, t);
    if (rc < 0)
        return rc;
    rc = t->opts.config ? mr_checkpoint_set(c, "config", "%s", t->opts.config) : 0;
    return rc < 0 ? rc : set_progress(c, t);
}

void mr_train_copies_free(struct mr_trainer *t)
{
    struct mr_train_copies *c = t->copies;
    for (size_t s = 0; c && s < MR_COUNT(c->params); s++) {
        free(c->params[s]);
        free(c->buffers[s]);
    }
    for (size_t i = 0; c && i < MR_COUNT(c->state); i++)
        free(c->state[i]);
    free(c);
    t->copies = NULL;
}

/* All but the data that collect() brings. */
static int prepare(struct mr_checkpoint *c, struct mr_trainer *t)
{
    int rc = set_keys(c, t);
    if (rc < 0)
        return rc;
    rc = add_optim(c, t, t->copies); /* f64 first: aligned */
    return rc < 0 ? rc : add_params(c, t, t->copies);
}

static int write_all(struct mr_trainer *t, struct mr_checkpoint *c, const char *path)
{
    int rc = collect(t, t->copies);
    return rc < 0 ? rc : mr_checkpoint_write(c, path);
}

int mr_trainer_save(struct mr_trainer *t, const char *path)
{
    if (!t || !path)
        return mr_error_set(MR_EMISUSE, "mr_trainer_save: t or path is NULL");
    uint64_t start = mr_time_ns();
    const struct mr_train_collection parts = mr_train_collection_of(t);
    const bool writes = t->rank == 0 && parts.rank == 0;
    mr_train_phase(t, "writes a checkpoint");
    mr_train_times_break(t);
    struct mr_checkpoint *c = calloc(1, sizeof *c);
    t->copies = calloc(1, sizeof *t->copies);
    int rc = c && t->copies ? 0 : mr_error_nomem("checkpoint", sizeof *c + sizeof *t->copies);
    if (rc == 0 && writes)
        rc = prepare(c, t);
    rc = agree(t, rc);
    if (rc >= 0)
        rc = writes ? write_all(t, c, path) : give_parts(t);
    mr_checkpoint_close(c);
    if (rc != MR_EPEER)
        mr_train_copies_free(t);
    t->saving += mr_train_since(start);
    return rc;
}
