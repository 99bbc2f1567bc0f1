/* Graphs: the front, and the lists of the devices whose work is a list. */
#include "device/graph.h"

#include <string.h>

int mr_stream_check_live(const struct mr_stream *stream, const char *call)
{
    if (!atomic_load(&stream->recording))
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "%s: stream \"%s\" is being recorded into a graph, where this has no "
                        "place: end the graph first "
                        "(mr_graph_end)",
                        call, stream->name);
}

int mr_graph_begin(struct mr_stream *stream)
{
    int rc = mr_stream_check(stream, "mr_graph_begin");
    if (rc < 0)
        return rc;
    rc = mr_stream_check_live(stream, "mr_graph_begin");
    if (rc < 0)
        return rc;
    if (!stream->dev->ops->graph_begin)
        return mr_error_set(MR_EUNSUPPORTED, "device %s: it has no graphs", stream->dev->ops->name);
    mr_device_capture_begin(stream->dev);
    rc = stream->dev->ops->graph_begin(stream);
    if (rc < 0)
        mr_device_capture_end(stream->dev);
    else
        atomic_store(&stream->recording, true);
    return rc;
}

int mr_graph_end(struct mr_stream *stream, struct mr_graph **out)
{
    int rc = mr_stream_check(stream, "mr_graph_end");
    if (rc < 0)
        return rc;
    const struct mr_device_ops *ops = stream->dev->ops;
    struct mr_graph *graph = NULL;
    void *state = NULL;
    if (!atomic_load(&stream->recording))
        return mr_error_set(MR_EMISUSE, "mr_graph_end: stream \"%s\" is not being recorded",
                            stream->name);
    if (out)
        graph = mr_device_object(sizeof *graph, ops->graph_size, &state);
    if (graph) {
        graph->dev = stream->dev;
        graph->state = state;
    }
    rc = ops->graph_end(stream, graph);
    atomic_store(&stream->recording, false);
    mr_device_capture_end(stream->dev);
    if (out && !graph)
        return mr_error_nomem("graph", sizeof *graph + ops->graph_size);
    if (rc < 0)
        free(graph);
    else if (out)
        *out = graph;
    return rc;
}

int mr_graph_launch(struct mr_graph *graph, struct mr_stream *stream)
{
    if (!graph || !stream)
        return mr_error_set(MR_EMISUSE, "mr_graph_launch: the graph or the stream is NULL");
    if (graph->dev != stream->dev)
        return mr_error_set(
            MR_EMISUSE, "mr_graph_launch: the graph and stream \"%s\" belong to different devices",
            stream->name);
    int rc = mr_stream_check(stream, "mr_graph_launch");
    if (rc < 0)
        return rc;
    rc = mr_stream_check_live(stream, "mr_graph_launch");
    return rc < 0 ? rc : graph->dev->ops->graph_launch(graph, stream);
}

void mr_graph_destroy(struct mr_graph *graph)
{
    if (!graph)
        return;
    if (mr_device_ready(graph->dev) == 0)
        graph->dev->ops->graph_close(graph);
    free(graph);
}

/* ---- lists ---- */

int mr_op_list_add(struct mr_op_list *list, const void *op, size_t bytes)
{
    int rc = mr_grow("graph: recorded work", &list->ops, &list->room, list->n + 1, bytes);
    if (rc < 0)
        return rc;
    memcpy((char *)list->ops + list->n * bytes, op, bytes);
    list->n++;
    return 0;
}

void mr_op_list_clear(struct mr_op_list *list)
{
    free(list->ops);
    *list = (struct mr_op_list){0};
}
