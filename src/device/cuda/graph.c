/*
 * Graphs on a GPU, by the driver's stream capture. What a capture refuses has been refused by the
 * front, so nothing of ours invalidates one. The mode is the relaxed one: it hinders neither other
 * threads, which allocate and synchronise meanwhile, nor a module's first load in ours.
 */
#include "device/cuda/cuda.h"

int mr_cuda_graph_begin(struct mr_stream *stream)
{
    const struct mr_cuda *c = stream->dev->state;
    const struct cuda_stream *s = stream->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuStreamBeginCapture_v2(s->handle, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuStreamBeginCapture_v2(\"%s\")", stream->name);
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        mr_cuda_graph_end(stream, NULL);
    return left;
}

/* With the context current. */
static int take_graph(const struct mr_cuda *c, const struct mr_stream *stream,
                      struct cuda_graph *out)
{
    const struct cuda_stream *s = stream->state;
    struct CUgraph_st *graph = NULL;
    int rc = 0, result = c->cu->cuStreamEndCapture(s->handle, &graph);
    if (result != CUDA_SUCCESS) {
        rc = mr_cuda_error(c->cu, result, c->name, "cuStreamEndCapture(\"%s\")", stream->name);
        goto end;
    }
    if (!out)
        goto end;
    result = c->cu->cuGraphInstantiateWithFlags(&out->exec, graph, 0);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name,
                           "cuGraphInstantiateWithFlags(recorded in \"%s\")", stream->name);
end:
    if (graph)
        c->cu->cuGraphDestroy(graph);
    return rc;
}

int mr_cuda_graph_end(struct mr_stream *stream, struct mr_graph *graph)
{
    const struct mr_cuda *c = stream->dev->state;
    int rc = mr_cuda_enter_to_release(c);
    if (rc < 0)
        return rc;
    rc = take_graph(c, stream, graph ? graph->state : NULL);
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0 && graph)
        mr_cuda_graph_close(graph);
    return left;
}

int mr_cuda_graph_launch(struct mr_graph *graph, struct mr_stream *stream)
{
    const struct mr_cuda *c = graph->dev->state;
    const struct cuda_graph *g = graph->state;
    const struct cuda_stream *s = stream->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuGraphLaunch(g->exec, s->handle);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuGraphLaunch in stream \"%s\"", stream->name);
    return mr_cuda_leave(c, rc);
}

void mr_cuda_graph_close(struct mr_graph *graph)
{
    const struct mr_cuda *c = graph->dev->state;
    const struct cuda_graph *g = graph->state;
    if (mr_cuda_enter_to_release(c) < 0)
        return;
    c->cu->cuGraphExecDestroy(g->exec);
    mr_cuda_leave(c, 0);
}
