/* Graphs of the driver that is not there: what a stream recorded, enqueued again as often as it is
 * launched. */
#include "fake_cuda_private.h"

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

struct CUgraph_st {
    struct op *head;
};

struct CUgraphExec_st {
    struct op *head;
};

static void free_ops(struct op *op)
{
    while (op) {
        struct op *next = op->next;
        free(op->staged);
        free(op);
        op = next;
    }
}

/* Kernels' arguments are the only thing that operations of a graph own. */
static int copy_op(const struct op *op, struct op *out)
{
    *out = *op;
    if (!op->staged)
        return 0;
    out->staged = malloc(op->kernel->args_bytes);
    if (!out->staged)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(out->staged, op->staged, op->kernel->args_bytes);
    return 0;
}

int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result && ((uintptr_t)stream <= CUDA_STREAM_LEGACY ||
                    !(stream = fake_stream(__func__, stream)) || stream->capturing)) {
        fake_misuse(__func__);
        result = 1;
    }
    if (!result) {
        stream->capturing = true;
        stream->capture_mode = mode;
        stream->broken = false;
        stream->recorded = NULL;
        stream->recorded_tail = &stream->recorded;
    }
    return fake_end(result);
}

/* Ends the capture even when it fails. */
int cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **out)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    struct CUgraph_st *graph = NULL;
    *out = NULL;
    if (!(stream = fake_stream(__func__, stream)) || !stream->capturing) {
        fake_misuse(__func__);
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    }
    stream->capturing = false;
    if (!result && stream->broken)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!result && !(graph = calloc(1, sizeof *graph)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free_ops(stream->recorded);
        return fake_end(result);
    }
    graph->head = stream->recorded;
    fake_count.graphs++;
    *out = graph;
    return fake_end(0);
}

int cuGraphInstantiateWithFlags(struct CUgraphExec_st **out, struct CUgraph_st *graph,
                                unsigned long long flags)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    struct CUgraphExec_st *exec = NULL;
    if (!result && (!graph || flags))
        result = 1;
    if (!result && !(exec = calloc(1, sizeof *exec)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    struct op **tail = exec ? &exec->head : NULL;
    for (const struct op *op = result ? NULL : graph->head; op && !result; op = op->next) {
        *tail = malloc(sizeof **tail);
        result = *tail ? copy_op(op, *tail) : CUDA_ERROR_OUT_OF_MEMORY;
        if (*tail) {
            (*tail)->next = NULL;
            tail = &(*tail)->next;
        }
    }
    if (!result) {
        fake_count.graphs++;
        *out = exec;
    } else if (exec) {
        free_ops(exec->head);
        free(exec);
    }
    return fake_end(result);
}

int cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    if (!result && (!exec || !(stream = fake_stream(__func__, stream)) || stream->capturing)) {
        fake_misuse(__func__);
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    for (const struct op *op = result ? NULL : exec->head; op && !result; op = op->next) {
        struct op again;
        result = copy_op(op, &again);
        if (!result && (result = fake_enqueue_again(stream, again)))
            free(again.staged);
    }
    return fake_end(result);
}

int cuGraphExecDestroy(struct CUgraphExec_st *exec)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    free_ops(exec->head);
    free(exec);
    fake_count.graphs--;
    return fake_end(result);
}

int cuGraphDestroy(struct CUgraph_st *graph)
{
    int result = fake_begin(__func__, FAKE_CONTEXT);
    free_ops(graph->head);
    free(graph);
    fake_count.graphs--;
    return fake_end(result);
}
