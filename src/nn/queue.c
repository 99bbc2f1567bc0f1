/*
 * Passes on a device whose queue runs functions of the host ("sim"): the whole call is one kernel,
 * computed by the host's backend, and takes the time of its products at the device's rate. The
 * memory is the device's, and the host's arithmetic reaches it.
 */
#include "nn/net.h"

#include "device/device.h"

static void run(const void *args)
{
    const struct mr_net_job *job = args;
    int rc = mr_net_run(job, NULL);
    if (rc < 0)
        atomic_store(&job->net->failed, rc);
}

/* The gradients of weights and inputs are a product each as large as the forward pass's. */
static uint64_t flops(const void *args)
{
    const struct mr_net_job *job = args;
    static const uint64_t passes[] = {
        [MR_NET_TRAIN] = 3,   [MR_NET_FORWARD] = 1,  [MR_NET_BACKWARD] = 2,   [MR_NET_EVAL] = 1,
        [MR_NET_OUTPUTS] = 1, [MR_NET_SET_STEP] = 0, [MR_NET_ZERO_TOTALS] = 0};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < job->net->n_nodes; i++)
        sum += job->net->layer[i].flops;
    return sum * passes[job->what] * job->batch.n;
}

static const struct mr_kernel_module module;
static const struct mr_kernel kernel = {.name = "net",
                                        .args_bytes = sizeof(struct mr_net_job),
                                        .module = &module,
                                        .run = run,
                                        .flops = flops};
static const struct mr_kernel_module module = {"net", NULL, &kernel, 1};

/* Returns and clears the error of an earlier pass of the queue. */
static int take_failure(struct mr_net *net)
{
    int failed = atomic_exchange(&net->failed, 0);
    return failed < 0 ? mr_error_set(failed, "net: a pass on %s failed", net->device->ops->name)
                      : 0;
}

int mr_net_enqueue(const struct mr_net_job *job, struct mr_stream *stream)
{
    if (!job->net->queued)
        return mr_net_run(job, NULL);
    int rc = take_failure(job->net);
    return rc < 0 ? rc : mr_launch_kernel(stream, &kernel, job, NULL);
}

int mr_net_wait(struct mr_net *net, struct mr_stream *stream)
{
    int rc = net->queued ? mr_stream_synchronize(stream) : 0;
    return rc < 0 ? rc : take_failure(net);
}
