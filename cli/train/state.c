/* What a checkpoint of training holds, and going on from it. */
#include "train/train.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES 4096
#define MAX_NAMES   (8u << 20) /* bytes: a head is not to pass what is read of one */

/* Host copies of everything that a checkpoint writes. */
struct copies {
    char *params, *buffers, *state[8];
};

static int copy_down(struct train *t, const void *from, uint64_t bytes, char **out)
{
    *out = malloc(bytes ? bytes : 1);
    if (!*out)
        return mr_error_set(-ENOMEM, "checkpoint: no memory for %" PRIu64 " bytes", bytes);
    int rc = bytes ? mr_copy_async(t->data->stream, *out, MR_PAGEABLE, from, MR_DEVICE, bytes) : 0;
    return rc == 0 ? mr_stream_synchronize(t->data->stream) : rc;
}

static int add_params(struct checkpoint *c, struct train *t, struct copies *copies)
{
    void *params, *grads, *low, *buffers;
    uint64_t n_buffers;
    const struct mr_net_param *p;
    mr_net_flat(t->net, &params, &grads, &low);
    mr_net_buffers(t->net, &buffers, &n_buffers);
    int rc = copy_down(t, params, mr_net_n_params(t->net) * sizeof(float), &copies->params);
    if (rc == 0)
        rc = copy_down(t, buffers, n_buffers * sizeof(float), &copies->buffers);
    for (uint32_t i = 0; rc == 0 && (p = mr_net_param_get(t->net, i)); i++)
        rc = checkpoint_add(c, p->name, MR_F32, p->rank, p->dim, copies->params + p->offset * sizeof(float));
    for (uint32_t i = 0; rc == 0 && (p = mr_net_buffer_get(t->net, i)); i++)
        rc = checkpoint_add(c, p->name, MR_F32, p->rank, p->dim, copies->buffers + p->offset * sizeof(float));
    return rc;
}

static int add_optim(struct checkpoint *c, struct train *t, struct copies *copies)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < mr_optim_state_count(t->optim); i++) {
        enum mr_dtype dtype;
        uint64_t n;
        char name[64];
        if (i == CLI_COUNT(copies->state))
            return mr_error_set(MR_ELIMIT, "checkpoint: more than %zu arrays of state", CLI_COUNT(copies->state));
        mr_optim_state_data(t->optim, i, &dtype, &n);
        snprintf(name, sizeof name, "optim.%s", mr_optim_state_name(t->optim, i));
        uint64_t bytes = n * mr_dtype_size(dtype);
        copies->state[i] = malloc(bytes);
        if (!copies->state[i])
            return mr_error_set(-ENOMEM, "checkpoint: no memory for %" PRIu64 " bytes", bytes);
        rc = mr_optim_state_read(t->optim, i, copies->state[i], bytes, t->data->stream);
        if (rc == 0)
            rc = checkpoint_add(c, name, dtype, 1, &n, copies->state[i]);
    }
    return rc;
}

/* What a checkpoint must have in common with the run that goes on from it; said in this order. */
struct common {
    const char *key, *option, *text;
};
#define N_COMMON 12

static void describe(const struct train *t, char buf[][512], struct common out[N_COMMON])
{
    static const char *const amps[] = {"f32", "f32", "bf16", "fp16"};
    const struct train_data *d = t->data;
    const struct train_opts *o = t->opts;
    int n = 0;
    snprintf(buf[0], 512, "%ux%ux%u %s", d->shape.c, d->shape.h, d->shape.w,
             d->shape.layout == MR_NCHW ? "nchw" : "nhwc");
    snprintf(buf[1], 512, "%u", d->classes);
    snprintf(buf[2], 512, "%.200s, %" PRIu64 " samples, fingerprint %016" PRIx64, mr_dataset_text(d->ds),
             mr_dataset_length(d->ds), mr_dataset_fingerprint(d->ds));
    snprintf(buf[3], 512, "%" PRIu64, o->batch_size);
    snprintf(buf[4], 512, "%" PRIu64, o->seed);
    out[n++] = (struct common){"model", "--model", o->model};
    out[n++] = (struct common){"sample", "samples", buf[0]};
    out[n++] = (struct common){"classes", "--classes", buf[1]};
    out[n++] = (struct common){"loss", "--loss", train_losses[o->loss]};
    out[n++] = (struct common){"data", "data set", buf[2]};
    out[n++] = (struct common){"transform", "--transform", d->chain_text};
    out[n++] = (struct common){"optimizer", "--optimizer", t->optim_text};
    out[n++] = (struct common){"schedule", "--schedule", o->schedule};
    out[n++] = (struct common){"batch_size", "--batch-size", buf[3]};
    out[n++] = (struct common){"precision", "--amp", amps[o->amp]};
    out[n++] = (struct common){"seed", "--seed", buf[4]};
    out[n++] = (struct common){"order", "order", o->shuffle ? "shuffled" : "sequential"};
}

static void json_history(struct mr_json *json, const struct train *t)
{
    mr_json_array(json, NULL);
    for (uint32_t i = 0; i < t->n_history; i++)
        train_json_epoch(json, &t->history[i]);
    mr_json_array_end(json);
}

static int set_history(struct checkpoint *c, const struct train *t)
{
    const char *text;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return mr_error_set(-ENOMEM, "checkpoint: no memory");
    json_history(json, t);
    int64_t n = mr_json_finish(json, &text);
    int rc = n < 0 ? (int)n : checkpoint_set(c, "epochs", "%s", text);
    mr_json_destroy(json);
    return rc;
}

/* fp16's. */
static int set_scale(struct checkpoint *c, struct train *t)
{
    float scale;
    uint32_t good;
    int rc = mr_net_query_loss_scale(t->net, t->data->stream, &scale, &good);
    return rc == 0 ? checkpoint_set(c, "loss_scale", "%.9g %" PRIu32, (double)scale, good) : rc;
}

static int set_progress(struct checkpoint *c, struct train *t)
{
    char loader[STATE_BYTES];
    double schedule[MR_SCHEDULE_STATE];
    int rc = train_take_totals(t);
    if (rc < 0)
        return rc;
    rc = mr_loader_state(t->ld, loader, sizeof loader);
    if (rc < 0)
        return rc;
    mr_schedule_save(t->schedule, schedule);
    rc = checkpoint_set(c, "loader", "%s", loader);
    if (rc == 0)
        rc = checkpoint_set(c, "schedule_state", "%.17g %.17g %.17g %.17g", schedule[0], schedule[1], schedule[2],
                            schedule[3]);
    if (rc == 0)
        rc = checkpoint_set(c, "step", "%" PRIu64, t->step);
    if (rc == 0)
        rc = checkpoint_set(c, "epoch", "%" PRIu64, t->epoch);
    if (rc == 0)
        rc = checkpoint_set(c, "epoch_loss", "%.17g", t->sums.loss);
    if (rc == 0)
        rc = checkpoint_set(c, "epoch_right", "%" PRIu64, t->sums.n_right);
    if (rc == 0)
        rc = checkpoint_set(c, "epoch_samples", "%" PRIu64, t->sums.n_samples);
    if (rc == 0)
        rc = checkpoint_set(c, "seconds", "%.9g", t->earlier_seconds + (double)(mr_time_ns() - t->start_ns) * 1e-9);
    if (rc == 0)
        rc = set_scale(c, t);
    return rc == 0 ? set_history(c, t) : rc;
}

static int set_config(struct checkpoint *c, const struct train *t)
{
    const char *text;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return mr_error_set(-ENOMEM, "checkpoint: no memory");
    mr_json_object(json, NULL);
    mr_options_json(train_options, t->opts, json);
    mr_json_object_end(json);
    int64_t n = mr_json_finish(json, &text);
    int rc = n < 0 ? (int)n : checkpoint_set(c, "config", "%s", text);
    mr_json_destroy(json);
    return rc;
}

/* For whom the data set that is predicted does not say them, or numbers them otherwise. */
static int set_names(struct checkpoint *c, const struct train *t)
{
    char *text;
    int rc = cli_class_names(t->data->ds, &text);
    if (rc == 0 && text && strlen(text) <= MAX_NAMES)
        rc = checkpoint_set(c, "class_names", "%s", text);
    free(text);
    return rc;
}

static int set_keys(struct checkpoint *c, struct train *t)
{
    char buf[5][512];
    struct common common[N_COMMON];
    describe(t, buf, common);
    int rc = checkpoint_set(c, "millrace", "1");
    if (rc == 0)
        rc = checkpoint_set(c, "version", "%s", mr_version());
    for (int i = 0; rc == 0 && i < N_COMMON; i++)
        rc = checkpoint_set(c, common[i].key, "%s", common[i].text);
    if (rc == 0)
        rc = checkpoint_set(c, "test_transform", "%s", t->data->test_chain_text);
    if (rc == 0)
        rc = set_names(c, t);
    if (rc == 0)
        rc = set_config(c, t);
    return rc == 0 ? set_progress(c, t) : rc;
}

int train_save(struct train *t)
{
    struct copies copies = {0};
    struct checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? set_keys(c, t) : mr_error_set(-ENOMEM, "checkpoint: no memory");
    if (rc == 0)
        rc = add_optim(c, t, &copies); /* f64 first: aligned */
    if (rc == 0)
        rc = add_params(c, t, &copies);
    int code = rc < 0 ? cli_error(rc) : checkpoint_write(c, t->opts->checkpoint);
    if (c)
        checkpoint_free(c);
    free(c);
    free(copies.params);
    free(copies.buffers);
    for (size_t i = 0; i < CLI_COUNT(copies.state); i++)
        free(copies.state[i]);
    return code;
}

/* What describe() says of a data set, from how many samples on: its text tells also of files beside, which may come and go. */
static const char *identity(const char *data)
{
    static const char mark[] = " samples, fingerprint ";
    const char *at = data, *found = NULL;
    while ((at = strstr(at, mark)) != NULL)
        found = at++;
    while (found && found > data && found[-1] >= '0' && found[-1] <= '9')
        found--;
    return found ? found : data;
}

static bool is_same(const struct checkpoint *c, const struct common *now)
{
    const char *was = checkpoint_get(c, now->key);
    if (was && strcmp(now->key, "data") == 0)
        return strcmp(identity(was), identity(now->text)) == 0;
    return checkpoint_is(c, now->key, now->text);
}

int train_check_state(const struct train *t, const struct checkpoint *c)
{
    char buf[5][512];
    struct common common[N_COMMON];
    describe(t, buf, common);
    for (int i = 0; i < N_COMMON; i++) {
        const char *was = checkpoint_get(c, common[i].key);
        if (!is_same(c, &common[i]))
            return mr_error_set(MR_ESTATE, "%s: is of another run: %s there '%s', here '%s'", c->path, common[i].option,
                                was ? was : "(none)", common[i].text);
    }
    return 0;
}

static int gather(const struct checkpoint *c, const struct mr_net_param *p, float *flat)
{
    const struct checkpoint_tensor *t = checkpoint_find(c, p->name);
    bool fits = t && t->dtype == MR_F32 && t->rank == p->rank;
    for (int d = 0; fits && d < p->rank; d++)
        fits = t->dim[d] == p->dim[d];
    if (!fits)
        return mr_error_set(MR_ESTATE, "%s: tensor %s: %s: want f32 of the model's shape", c->path, p->name,
                            t ? "has another shape" : "is not there");
    memcpy(flat + p->offset, t->data, t->bytes);
    return 0;
}

int train_load_net(struct mr_net *net, const struct checkpoint *c)
{
    void *where;
    uint64_t n_buffers;
    const struct mr_net_param *p;
    mr_net_buffers(net, &where, &n_buffers);
    float *params = malloc(mr_net_n_params(net) * sizeof *params), *buffers = malloc((n_buffers + 1) * sizeof *buffers);
    int rc = params && buffers ? 0 : mr_error_set(-ENOMEM, "%s: no memory for the parameters", c->path);
    for (uint32_t i = 0; rc == 0 && (p = mr_net_param_get(net, i)); i++)
        rc = gather(c, p, params);
    for (uint32_t i = 0; rc == 0 && (p = mr_net_buffer_get(net, i)); i++)
        rc = gather(c, p, buffers);
    if (rc == 0)
        rc = mr_net_set(net, params, n_buffers ? buffers : NULL);
    free(params);
    free(buffers);
    return rc;
}

static int load_optim(struct train *t, const struct checkpoint *c)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < mr_optim_state_count(t->optim); i++) {
        char name[64];
        snprintf(name, sizeof name, "optim.%s", mr_optim_state_name(t->optim, i));
        const struct checkpoint_tensor *s = checkpoint_find(c, name);
        if (!s)
            return mr_error_set(MR_ESTATE, "%s: tensor %s is not there", c->path, name);
        rc = mr_optim_state_write(t->optim, i, s->data, s->bytes, t->data->stream);
    }
    return rc;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static uint64_t count_of(const cJSON *object, const char *key)
{
    double v = number_of(object, key);
    return v >= 0 && v < 1e18 ? (uint64_t)v : 0;
}

static int load_history(struct train *t, const struct checkpoint *c)
{
    const char *text = checkpoint_get(c, "epochs");
    cJSON *list = text ? cJSON_Parse(text) : NULL;
    const cJSON *e;
    int n = cJSON_GetArraySize(list), rc = 0;
    t->history = calloc((size_t)n + 1, sizeof *t->history);
    if (!cJSON_IsArray(list) || !t->history)
        rc =
            mr_error_set(list ? -ENOMEM : MR_EFORMAT, "%s: key epochs: %s", c->path, list ? "no memory" : "not a list");
    t->cap_history = (uint32_t)n + 1;
    if (rc == 0) {
        cJSON_ArrayForEach(e, list)
        {
            t->history[t->n_history++] = (struct train_epoch){
                count_of(e, "epoch"),          count_of(e, "steps"),         number_of(e, "loss"),
                number_of(e, "accuracy"),      number_of(e, "test_loss"),    number_of(e, "test_accuracy"),
                number_of(e, "seconds"),       number_of(e, "test_seconds"), number_of(e, "lr"),
                number_of(e, "samples_per_s"), number_of(e, "data_wait")};
        }
    }
    cJSON_Delete(list);
    return rc;
}

static int load_schedule(struct train *t, const struct checkpoint *c)
{
    const char *text = checkpoint_get(c, "schedule_state");
    double v[MR_SCHEDULE_STATE];
    char *end = (char *)(uintptr_t)text;
    for (int i = 0; i < MR_SCHEDULE_STATE && end; i++) {
        const char *at = end;
        v[i] = strtod(at, &end);
        end = end == at ? NULL : end;
    }
    if (!end)
        return mr_error_set(MR_EFORMAT, "%s: key schedule_state: want %d numbers", c->path, MR_SCHEDULE_STATE);
    return mr_schedule_restore(t->schedule, v);
}

static int load_scale(struct train *t, const struct checkpoint *c)
{
    const char *text = checkpoint_get(c, "loss_scale");
    char *at = NULL, *end = NULL;
    float scale = text ? strtof(text, &at) : 0;
    unsigned long good = at && at != text ? strtoul(at, &end, 10) : 0;
    if (!end || end == at || *end || good > UINT32_MAX)
        return mr_error_set(MR_EFORMAT, "%s: key loss_scale: want two numbers", c->path);
    return mr_net_set_loss_scale(t->net, t->data->stream, scale, (uint32_t)good);
}

int train_restore(struct train *t, const struct checkpoint *c)
{
    int rc = train_load_net(t->net, c);
    if (rc == 0)
        rc = load_optim(t, c);
    if (rc == 0)
        rc = load_schedule(t, c);
    if (rc == 0)
        rc = load_scale(t, c);
    if (rc == 0)
        rc = checkpoint_get_uint(c, "step", &t->step);
    if (rc == 0)
        rc = checkpoint_get_uint(c, "epoch", &t->epoch);
    if (rc == 0)
        rc = checkpoint_get_double(c, "epoch_loss", &t->sums.loss);
    if (rc == 0)
        rc = checkpoint_get_uint(c, "epoch_right", &t->sums.n_right);
    if (rc == 0)
        rc = checkpoint_get_uint(c, "epoch_samples", &t->sums.n_samples);
    if (rc == 0)
        rc = checkpoint_get_double(c, "seconds", &t->earlier_seconds);
    t->resumed_step = t->step;
    return rc == 0 ? load_history(t, c) : rc;
}
