/* Resuming from a checkpoint, and loading nets from one. */
#include "train/trainer.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <string.h>

/* What mr_train_describe() says of a data set, from how many samples on: its text tells also of
 * files beside, which may come and go. */
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

static bool is_same(const struct mr_checkpoint *c, const struct mr_train_common *now)
{
    const char *was = mr_checkpoint_get(c, now->key);
    if (strcmp(now->key, "leaves") == 0 && (!was || strcmp(was, "1") == 0)) /* as of 0 */
        return strcmp(now->text, "0") == 0;
    if (was && strcmp(now->key, "data") == 0)
        return strcmp(identity(was), identity(now->text)) == 0;
    return mr_checkpoint_is(c, now->key, now->text);
}

int mr_train_check_state(const struct mr_trainer *t, const struct mr_checkpoint *c)
{
    struct mr_train_common common[MR_TRAIN_COMMON];
    int rc = mr_train_describe(t, common);
    if (rc < 0)
        goto end;
    for (int i = 0; i < MR_TRAIN_COMMON; i++) {
        const char *was = mr_checkpoint_get(c, common[i].key);
        if (is_same(c, &common[i]))
            continue;
        rc = mr_error_set(MR_ESTATE, "%s: is of another run: %s there '%s', here '%s'", c->path,
                          common[i].what, was ? was : "(none)", common[i].text);
        break;
    }
end:
    mr_train_common_free(common);
    return rc;
}

static int gather(const struct mr_checkpoint *c, const struct mr_net_param *p, float *flat)
{
    const struct mr_checkpoint_tensor *t = mr_checkpoint_tensor_find(c, p->name);
    bool fits = t && t->dtype == MR_F32 && t->rank == p->rank;
    for (int d = 0; fits && d < p->rank; d++)
        fits = t->dim[d] == p->dim[d];
    if (!fits)
        return mr_error_set(MR_ESTATE, "%s: tensor %s: %s: expected f32 of the model's shape",
                            c->path, p->name, t ? "has another shape" : "is not there");
    memcpy(flat + p->offset, t->data, t->bytes);
    return 0;
}

int mr_checkpoint_net_load(const struct mr_checkpoint *c, struct mr_net *net)
{
    if (!c || !net)
        return mr_error_null("mr_checkpoint_net_load", "a checkpoint and a net");
    void *where;
    uint64_t n_buffers;
    const struct mr_net_param *p;
    mr_net_buffers(net, &where, &n_buffers);
    float *params = malloc(mr_net_n_params(net) * sizeof *params),
          *buffers = malloc((n_buffers + 1) * sizeof *buffers);
    int rc =
        params && buffers ? 0 : mr_error_set(-ENOMEM, "%s: no memory for the parameters", c->path);
    if (rc < 0)
        goto end;
    for (uint32_t i = 0; (p = mr_net_param_get(net, i)); i++) {
        rc = gather(c, p, params);
        if (rc < 0)
            goto end;
    }
    for (uint32_t i = 0; (p = mr_net_buffer_get(net, i)); i++) {
        rc = gather(c, p, buffers);
        if (rc < 0)
            goto end;
    }
    rc = mr_net_set(net, params, n_buffers ? buffers : NULL);
end:
    free(params);
    free(buffers);
    return rc;
}

static int write_state(struct mr_optim *optim, uint32_t i, void *data, uint64_t bytes,
                       struct mr_stream *stream)
{
    return mr_optim_state_write(optim, i, data, bytes, stream);
}

static int load_optim(struct mr_trainer *t, const struct mr_checkpoint *c)
{
    for (uint32_t i = 0; i < mr_optim_state_count(t->optim); i++) {
        char name[64];
        snprintf(name, sizeof name, "optim.%s", mr_optim_state_name(t->optim, i));
        const struct mr_checkpoint_tensor *s = mr_checkpoint_tensor_find(c, name);
        if (!s)
            return mr_error_set(MR_ESTATE, "%s: tensor %s is not there", c->path, name);
        enum mr_dtype dtype;
        const uint64_t n = mr_train_state_length(t, i, &dtype);
        if (s->bytes != n * mr_dtype_size(dtype))
            return mr_error_set(
                MR_ESTATE, "%s: tensor %s has %llu bytes: expected %llu elements of %s", c->path,
                name, (unsigned long long)s->bytes, (unsigned long long)n, mr_dtype_name(dtype));
        int rc = mr_train_state_each(t, i, (char *)(uintptr_t)s->data, write_state);
        if (rc < 0)
            return rc;
    }
    return 0;
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

static struct mr_train_epoch epoch_of(const cJSON *e)
{
    return (struct mr_train_epoch){
        .size = sizeof(struct mr_train_epoch),
        .epoch = count_of(e, "epoch"),
        .steps = count_of(e, "steps"),
        .loss = number_of(e, "loss"),
        .accuracy = number_of(e, "accuracy"),
        .test_loss = number_of(e, "test_loss"),
        .test_accuracy = number_of(e, "test_accuracy"),
        .seconds = number_of(e, "seconds"),
        .test_seconds = number_of(e, "test_seconds"),
        .lr = number_of(e, "lr"),
        .samples_per_s = number_of(e, "samples_per_s"),
        .waited = number_of(e, "data_wait"),
    };
}

static int load_history(struct mr_trainer *t, const struct mr_checkpoint *c)
{
    const char *text = mr_checkpoint_get(c, "epochs");
    cJSON *list = text ? cJSON_Parse(text) : NULL;
    const cJSON *e;
    int n = cJSON_GetArraySize(list), rc = 0;
    t->history = calloc((size_t)n + 1, sizeof *t->history);
    if (!cJSON_IsArray(list) || !t->history) {
        rc = mr_error_set(list ? -ENOMEM : MR_EFORMAT, "%s: key epochs: %s", c->path,
                          list ? "no memory" : "not a list");
        goto end;
    }
    t->room_history = (uint64_t)n + 1;
    cJSON_ArrayForEach(e, list) t->history[t->n_history++] = epoch_of(e);
end:
    cJSON_Delete(list);
    return rc;
}

static int load_schedule(struct mr_trainer *t, const struct mr_checkpoint *c)
{
    const char *text = mr_checkpoint_get(c, "schedule_state");
    double v[MR_SCHEDULE_STATE];
    char *end = (char *)(uintptr_t)text;
    for (int i = 0; i < MR_SCHEDULE_STATE && end; i++) {
        const char *at = end;
        v[i] = strtod(at, &end);
        end = end == at ? NULL : end;
    }
    if (!end)
        return mr_error_set(MR_EFORMAT, "%s: key schedule_state: expected %d numbers", c->path,
                            MR_SCHEDULE_STATE);
    return mr_schedule_restore(t->schedule, v);
}

static int load_scale(struct mr_trainer *t, const struct mr_checkpoint *c)
{
    const char *text = mr_checkpoint_get(c, "loss_scale");
    char *at = NULL, *end = NULL;
    float scale = text ? strtof(text, &at) : 0;
    unsigned long good = at && at != text ? strtoul(at, &end, 10) : 0;
    if (!end || end == at || *end || good > UINT32_MAX)
        return mr_error_set(MR_EFORMAT, "%s: key loss_scale: expected two numbers", c->path);
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_net_set_loss_scale(t->stage[s].net, t->stage[s].stream, scale, (uint32_t)good);
    return rc;
}

/* Where the run was. */
static int load_place(struct mr_trainer *t, const struct mr_checkpoint *c)
{
    const struct {
        const char *key;
        uint64_t *to;
    } counts[] = {{"step", &t->step},
                  {"epoch", &t->epoch},
                  {"epoch_right", &t->sums.n_right},
                  {"epoch_samples", &t->sums.n_samples}};
    for (size_t i = 0; i < MR_COUNT(counts); i++) {
        int rc = mr_checkpoint_get_uint(c, counts[i].key, counts[i].to);
        if (rc < 0)
            return rc;
    }
    int rc = mr_checkpoint_get_double(c, "epoch_loss", &t->sums.loss);
    if (rc < 0)
        return rc;
    t->resumed_step = t->step;
    return mr_checkpoint_get_double(c, "seconds", &t->earlier_seconds);
}

int mr_train_restore(struct mr_trainer *t, const struct mr_checkpoint *c)
{
    int (*const parts[])(struct mr_trainer *, const struct mr_checkpoint *) = {
        load_optim, load_schedule, load_scale, load_place, load_history};
    int rc = 0;
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++)
        rc = mr_checkpoint_net_load(c, t->stage[s].net);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < MR_COUNT(parts); i++) {
        rc = parts[i](t, c);
        if (rc < 0)
            return rc;
    }
    return 0;
}
