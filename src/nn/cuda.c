/* Nets on NVIDIA GPUs. */
#include "nn/ops.h"

static int refuse(struct mr_device *device, const struct mr_net_opts *opts, struct mr_nn_backend **out)
{
    (void)device, (void)opts, (void)out;
    return mr_error_set(MR_EUNSUPPORTED, "net: this build has no nets on GPUs");
}

const struct mr_nn_ops mr_nn_cuda = {.name = "cuda", .open = refuse};
