/* How long each node of a net takes. */
#include "nn/net.h"

#include <string.h>

enum { PASSES = 4 };

/* Events around all nodes, forward and back. */
static int make_marks(struct mr_net *net, struct mr_event **marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int rc = mr_event_create(net->device, 1, &marks[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The smallest of the passes so far: the others had something beside them. */
static int take(const struct mr_net *net, struct mr_event *const *marks, uint64_t *ns)
{
    const uint32_t n = net->n_nodes;
    for (uint32_t i = 0; i < n; i++) {
        int64_t there, back;
        int rc = mr_event_elapsed(marks[i], marks[i + 1], &there);
        if (rc < 0)
            return rc;
        rc = mr_event_elapsed(marks[n + 2 + i], marks[n + 1 + i], &back);
        if (rc < 0)
            return rc;
        ns[i] = MR_MIN(ns[i], (uint64_t)MR_MAX(there + back, 0));
    }
    return 0;
}

static int measure(struct mr_net *net, struct mr_event *const *marks, uint64_t *ns)
{
    struct mr_net_job job = {.net = net,
                             .what = MR_NET_TRAIN,
                             .batch = {.size = sizeof job.batch,
                                       .input = net->scratch,
                                       .labels = net->outputs,
                                       .input_dtype = MR_U8,
                                       .label_dtype = net->opts.loss == MR_MSE ? MR_F32 : MR_U8,
                                       .n = net->opts.max_batch}};
    struct mr_stream *stream = net->stream;
    for (int i = 0; i < PASSES; i++) {
        int rc = mr_net_use_stream(net, stream, "mr_net_time");
        if (rc < 0)
            return rc;
        rc =
            mr_memset_async(stream, net->scratch, MR_DEVICE, 0, job.batch.n * net->tensor[0].count);
        if (rc < 0)
            return rc;
        rc = mr_memset_async(stream, net->outputs, MR_DEVICE, 0,
                             net->tensor[net->node[net->n_nodes - 1].out].count * job.batch.n *
                                 net->param_element);
        if (rc < 0)
            return rc;
        rc = mr_net_run(&job, marks);
        if (rc < 0)
            return rc;
        rc = mr_stream_synchronize(stream);
        if (rc < 0)
            return rc;
        rc = take(net, marks, ns);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_net_time(struct mr_net *net, uint64_t *ns)
{
    struct mr_event *marks[2 * (MR_NN_MAX_NODES + 1)] = {NULL};
    const uint32_t n = 2 * (net->n_nodes + 1);
    if (net->queued) { /* takes the time of its flops */
        for (uint32_t i = 0; i < net->n_nodes; i++)
            ns[i] = net->layer[i].flops;
        return 0;
    }
    memset(ns, 0xff, net->n_nodes * sizeof *ns);
    int rc = make_marks(net, marks, n);
    if (rc >= 0)
        rc = measure(net, marks, ns);
    for (uint32_t i = 0; i < n; i++)
        mr_event_destroy(marks[i]);
    return rc;
}
