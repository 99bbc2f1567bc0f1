/* What a checkpoint is of, and its net. */
#include "train/checkpoint.h"

#include <millrace/train.h>
#include <string.h>

static int read_sample(const struct mr_checkpoint *c, struct mr_checkpoint_info *out)
{
    char layout[8] = "";
    out->sample = mr_checkpoint_get(c, "sample");
    if (!out->sample || !mr_checkpoint_get(c, "loss") ||
        sscanf(out->sample, "%ux%ux%u %4s", &out->channels, &out->height, &out->width, layout) != 4)
        return mr_error_set(MR_EFORMAT, "%s: does not say what samples its model takes", c->path);
    out->layout = strcmp(layout, "nhwc") == 0 ? MR_NHWC : MR_NCHW;
    return 0;
}

static int read_loss(const struct mr_checkpoint *c, enum mr_loss *out)
{
    const char *name = mr_checkpoint_get(c, "loss");
    for (int i = MR_CROSS_ENTROPY; i <= MR_MSE; i++)
        if (strcmp(name, mr_loss_name((enum mr_loss)i)) == 0) {
            *out = (enum mr_loss)i;
            return 0;
        }
    return mr_error_set(MR_EFORMAT, "%s: key loss: %.40s: expected %s, %s or %s", c->path, name,
                        mr_loss_name(MR_CROSS_ENTROPY), mr_loss_name(MR_NLL), mr_loss_name(MR_MSE));
}

static int read_info(const struct mr_checkpoint *c, struct mr_checkpoint_info *out)
{
    uint64_t classes;
    int rc = read_sample(c, out);
    if (rc < 0)
        return rc;
    rc = read_loss(c, &out->loss);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_get_uint(c, "classes", &classes);
    if (rc < 0)
        return rc;
    out->classes = classes > UINT32_MAX ? UINT32_MAX : (uint32_t)classes;
    out->model = mr_checkpoint_get(c, "model");
    if (!out->model)
        return mr_error_set(MR_EFORMAT, "%s: does not say what model it is of", c->path);
    const char *chain = mr_checkpoint_get(c, "test_transform");
    out->test_transform = chain ? chain : "";
    rc = mr_checkpoint_get_uint(c, "step", &out->step);
    return rc < 0 ? rc : mr_checkpoint_get_uint(c, "epoch", &out->epoch);
}

int mr_checkpoint_query(const struct mr_checkpoint *c, struct mr_checkpoint_info *out)
{
    if (!c)
        return mr_error_null("mr_checkpoint_query", "a checkpoint");
    struct mr_checkpoint_info full = {0};
    int rc = read_info(c, &full);
    if (rc < 0)
        return rc;
    return mr_info_give("checkpoint_info", out, &full, sizeof full);
}

int mr_checkpoint_net_create(const struct mr_checkpoint *c, struct mr_device *device,
                             uint32_t max_batch, uint32_t threads, struct mr_net **out)
{
    if (!c || !out)
        return mr_error_null("mr_checkpoint_net_create", "a checkpoint and a place for the result");
    struct mr_checkpoint_info info = {.size = sizeof info};
    struct mr_net_opts opts;
    struct mr_net *net;
    int rc = mr_checkpoint_query(c, &info);
    if (rc < 0)
        return rc;
    mr_net_opts_init(&opts);
    opts.model = info.model;
    opts.channels = info.channels;
    opts.height = info.height;
    opts.width = info.width;
    opts.layout = info.layout;
    opts.classes = info.classes;
    opts.loss = info.loss;
    opts.max_batch = max_batch;
    opts.threads = threads;
    rc = mr_net_create(device, &opts, &net);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_net_load(c, net);
    if (rc < 0) {
        mr_net_destroy(net);
        return rc;
    }
    *out = net;
    return 0;
}
