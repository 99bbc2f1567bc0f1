/* The devices of a net: one, or those of its stages. */
#include "train/train.h"

#include <inttypes.h>
#include <string.h>

/* "cuda:0+cuda:1": the first is the pipeline's, which the loader feeds. */
int train_devices_open(struct train_data *d, const char *text)
{
    char name[256];
    const char *at = text;
    for (;;) {
        size_t n = strcspn(at, "+");
        if (n >= sizeof name)
            return mr_error_set(MR_EOPTION, "device %.40s...: too long", text);
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (at == text) {
            int rc = cli_pipeline_open(&d->pipe, name, NULL, NULL);
            if (rc < 0)
                return rc;
        } else {
            if (d->n_more == TRAIN_DEVICES)
                return mr_error_set(MR_EOPTION, "device %.80s: expected at most %d devices", text,
                                    TRAIN_DEVICES + 1);
            int rc = mr_device_open(name, &d->more[d->n_more]);
            if (rc < 0)
                return rc;
            d->n_more++;
        }
        if (!at[n])
            return 0;
        at += n + 1;
    }
}

void train_devices_close(struct train_data *d)
{
    for (uint32_t i = 0; i < d->n_more; i++)
        mr_device_close(d->more[i]);
}

const struct mr_net_layer *train_layer(const struct train *t, uint32_t i)
{
    const struct mr_net_layer *l;
    const struct mr_net *net;
    for (uint32_t s = 0, n = 0; (net = mr_trainer_get_stage(t->trainer, s)); s++)
        for (uint32_t k = 0; (l = mr_net_layer_get(net, k)); k++)
            if (n++ == i)
                return l;
    return NULL;
}

/* A stage's layers: the last one, and how many. */
static const struct mr_net_layer *last_layer(const struct mr_net *net)
{
    const struct mr_net_layer *l, *last = NULL;
    for (uint32_t i = 0; (l = mr_net_layer_get(net, i)); i++)
        last = l;
    return last;
}

static const char *device_name(const struct train *t, uint32_t stage, struct mr_device_info *info)
{
    *info = (struct mr_device_info){.size = sizeof *info};
    struct mr_device *dev = stage ? t->data->more[stage - 1] : t->data->pipe.dev;
    return mr_device_query(dev, info) < 0 ? "" : info->name;
}

uint64_t train_stages_memory(const struct train *t)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; mr_trainer_get_stage(t->trainer, s); s++)
        sum += mr_trainer_stage_memory(t->trainer, s);
    return sum;
}

bool train_ranks_are_stages(const struct train *t)
{
    return t->opts->split_ranks && t->ranks && t->ranks->comm && t->ranks->place.world > 1;
}

void train_stages_print(const struct train *t)
{
    const struct mr_net *net;
    struct mr_device_info info;
    const bool ranks = train_ranks_are_stages(t);
    if (t->data->n_more == 0 && !ranks)
        return;
    for (uint32_t s = 0; (net = mr_trainer_get_stage(t->trainer, s)); s++) {
        const struct mr_net_layer *first = mr_net_layer_get(net, 0), *last = last_layer(net);
        printf("%s%s", s ? "; " : "  stages: ", first->name);
        printf("%s%s on ", first == last ? "" : " to ", first == last ? "" : last->name);
        if (ranks)
            printf("rank %u", s);
        else
            printf("%s", device_name(t, s, &info));
    }
    printf("; %" PRIu64 " micro-batch%s, %s\n", t->micro, t->micro == 1 ? "" : "es",
           train_pipelines[t->opts->pipeline]);
}

void train_stages_json(const struct train *t, struct mr_json *json)
{
    const struct mr_net *net;
    struct mr_device_info info;
    mr_json_array(json, "stages");
    for (uint32_t s = 0; (net = mr_trainer_get_stage(t->trainer, s)); s++) {
        mr_json_object(json, NULL);
        if (train_ranks_are_stages(t))
            mr_json_uint(json, "rank", s);
        else
            mr_json_string(json, "device", device_name(t, s, &info));
        mr_json_string(json, "first", mr_net_layer_get(net, 0)->name);
        mr_json_string(json, "last", last_layer(net)->name);
        mr_json_uint(json, "activation_bytes", mr_trainer_stage_memory(t->trainer, s));
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_uint(json, "micro_batches", t->micro);
}
