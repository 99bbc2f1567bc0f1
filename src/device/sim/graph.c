/*
 * Graphs of the simulated accelerator: the operations that would have been enqueued. A launch
 * starts once, so it pays the latency once; what is recorded behind the first operation costs its
 * bytes or its work alone.
 */
#include "device/sim/sim.h"

static atomic_uint n_graphs;

int mr_sim_graph_begin(struct mr_stream *stream)
{
    (void)stream;
    return 0;
}

int mr_sim_graph_end(struct mr_stream *stream, struct mr_graph *graph)
{
    const struct sim_device *sim = stream->dev->state;
    struct sim_stream *s = stream->state;
    pthread_mutex_lock(&s->submit);
    struct mr_op_list ops = s->recorded;
    s->recorded = (struct mr_op_list){0};
    pthread_mutex_unlock(&s->submit);
    uint32_t number = atomic_fetch_add(&n_graphs, 1) + 1;
    for (uint64_t i = 0; i < ops.n; i++) {
        struct sim_op *op = (struct sim_op *)ops.ops + i;
        op->cost_ns -= i > 0 ? MR_MIN(op->cost_ns, sim->opts.latency_ns) : 0;
        op->row.graph = number;
        op->row.graph_node = (uint32_t)i + 1;
    }
    if (graph)
        ((struct sim_graph *)graph->state)->ops = ops;
    else
        mr_op_list_clear(&ops);
    return 0;
}

int mr_sim_graph_launch(struct mr_graph *graph, struct mr_stream *stream)
{
    struct sim_graph *g = graph->state;
    struct sim_stream *s = stream->state;
    struct sim_call call = mr_sim_call_begin("simGraphLaunch");
    pthread_mutex_lock(&s->submit);
    int rc = mr_sim_enqueue_all(stream, g->ops.ops, g->ops.n, call.correlation, &g->last);
    pthread_mutex_unlock(&s->submit);
    mr_sim_call_end(&call);
    return rc;
}

void mr_sim_graph_close(struct mr_graph *graph)
{
    struct sim_graph *g = graph->state;
    mr_sim_forget(graph->dev, &g->last);
    mr_op_list_clear(&g->ops);
}
