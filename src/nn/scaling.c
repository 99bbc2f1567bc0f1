/* fp16's loss scale out of and into the device's memory, for checkpoints. */
#include "kernels/nn/nn.h"
#include "nn/net.h"

#include <math.h>
#include <string.h>

/* The bytes between scale and good in the backend's state. */
struct scaling {
    float scale, inverse;
    uint32_t skip, good;
};
_Static_assert(offsetof(struct mr_nn_gpu_state, good) - offsetof(struct mr_nn_gpu_state, scale) ==
                   offsetof(struct scaling, good),
               "the members of the state that are copied as one piece lie side by side");

/* In the device's memory; NULL: this net scales nothing. */
static void *place(struct mr_net *net)
{
    const float *scale, *inverse;
    const uint32_t *skip;
    mr_net_scaling(net, &scale, &inverse, &skip);
    return (void *)(uintptr_t)scale;
}

int mr_net_query_loss_scale(struct mr_net *net, struct mr_stream *stream, float *out_scale,
                            uint32_t *out_good)
{
    if (!net || !out_scale || !out_good)
        return mr_error_null("mr_net_query_loss_scale", "a net and places for the results");
    struct scaling s = {.scale = 1};
    void *at = place(net);
    int rc = mr_net_use_stream(net, stream, "mr_net_query_loss_scale");
    if (!rc && at)
        rc = mr_copy_async(stream, &s, MR_PAGEABLE, at, MR_DEVICE, sizeof s);
    if (!rc && at)
        rc = mr_stream_synchronize(stream);
    if (rc)
        return rc;
    *out_scale = s.scale;
    *out_good = s.good;
    return 0;
}

int mr_net_set_loss_scale(struct mr_net *net, struct mr_stream *stream, float scale, uint32_t good)
{
    if (!net)
        return mr_error_null("mr_net_set_loss_scale", "a net");
    void *at = place(net);
    int exponent;
    bool power = isfinite(scale) && scale > 0 &&
                 frexpf(scale, &exponent) == 0.5f; /* that alone rounds no gradient */
    if (!power || scale > 16777216 || good >= 2000 || (!at && (scale != 1 || good)))
        return mr_error_set(MR_ESTATE, "net: a loss scale of %g after %u good steps: expected %s",
                            (double)scale, good,
                            at ? "a power of two up to 16777216, and less than 2000"
                               : "1 and 0 where nothing is scaled");
    struct scaling s = {.scale = scale, .inverse = 1 / scale, .good = good};
    int rc = mr_net_use_stream(net, stream, "mr_net_set_loss_scale");
    if (!rc && at)
        rc = mr_copy_async(stream, at, MR_DEVICE, &s, MR_PAGEABLE, sizeof s);
    return rc || !at ? rc : mr_stream_synchronize(stream);
}
