/* The device "cpu": the consumer reads host memory in place. Streams run inline, on the thread that
 * enqueues. */
#include "device/graph.h"
#include "device/host.h"

#include <string.h>

/* A piece of work: a kernel, or else a copy, or else the setting of memory, or else waiting. */
struct cpu_op {
    const struct mr_kernel *kernel;
    void *dst;
    const void *src;
    uint64_t bytes;
    struct mr_kernel_busy busy;
    int byte;
    _Alignas(16) unsigned char args[MR_KERNEL_ARGS];
};

struct stream_state {
    struct mr_op_list recorded;
};

struct graph_state {
    struct mr_op_list ops;
};

struct event_state {
    _Atomic uint64_t time_ns; /* of the last record; 0: never recorded */
};

static const char *probe(void)
{
    return NULL;
}

static int open_cpu(struct mr_device *dev, const void *opts)
{
    (void)dev, (void)opts;
    return 0;
}

static void close_cpu(struct mr_device *dev)
{
    (void)dev;
}

static int query(struct mr_device *dev, struct mr_device_info *out)
{
    (void)dev;
    struct mr_host_memory_info memory = {.size = sizeof memory};
    mr_host_memory_query(&memory);
    out->unified = 1;
    out->free_bytes = memory.available_bytes;
    return 0;
}

static void memory_destroy(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes)
{
    (void)dev, (void)kind;
    mr_host_memory_destroy(ptr, bytes);
}

static void work(const struct cpu_op *op)
{
    if (op->kernel)
        op->kernel->run(op->args);
    else if (op->src)
        memmove(op->dst, op->src, op->bytes);
    else if (op->dst)
        memset(op->dst, op->byte, op->bytes);
    if (op->busy.ns)
        mr_device_sleep(mr_time_ns(), &op->busy);
}

static int work_or_record(struct mr_stream *stream, const struct cpu_op *op)
{
    struct stream_state *s = stream->state;
    if (atomic_load(&stream->recording))
        return mr_op_list_add(&s->recorded, op, sizeof *op);
    work(op);
    return 0;
}

static int graph_begin(struct mr_stream *stream)
{
    (void)stream;
    return 0;
}

static int graph_end(struct mr_stream *stream, struct mr_graph *graph)
{
    struct stream_state *s = stream->state;
    if (graph)
        ((struct graph_state *)graph->state)->ops = s->recorded;
    else
        mr_op_list_clear(&s->recorded);
    s->recorded = (struct mr_op_list){0};
    return 0;
}

static int graph_launch(struct mr_graph *graph, struct mr_stream *stream)
{
    (void)stream;
    const struct graph_state *g = graph->state;
    for (uint64_t i = 0; i < g->ops.n; i++)
        work((const struct cpu_op *)g->ops.ops + i);
    return 0;
}

static void graph_close(struct mr_graph *graph)
{
    mr_op_list_clear(&((struct graph_state *)graph->state)->ops);
}

static int stream_open(struct mr_stream *stream)
{
    (void)stream;
    return 0;
}

static void stream_close(struct mr_stream *stream)
{
    (void)stream;
}

static int stream_synchronize(struct mr_stream *stream)
{
    (void)stream;
    return 0;
}

static int event_open(struct mr_event *event)
{
    (void)event;
    return 0;
}

static void event_close(struct mr_event *event)
{
    (void)event;
}

static int event_record(struct mr_event *event, struct mr_stream *stream)
{
    (void)stream;
    struct event_state *state = event->state;
    atomic_store(&state->time_ns, mr_time_ns());
    return 0;
}

static int event_record_any(struct mr_event *event)
{
    return event_record(event, NULL);
}

/* What came before the record has been done by the thread that enqueued it. */
static int event_wait(struct mr_stream *stream, struct mr_event *event)
{
    (void)stream, (void)event;
    return 0;
}

static int event_query(struct mr_event *event)
{
    /* The load pairs with the store of the record: what was enqueued before it is visible to who
     * asks. */
    struct event_state *state = event->state;
    (void)atomic_load(&state->time_ns);
    return 1;
}

static int event_synchronize(struct mr_event *event)
{
    event_query(event);
    return 0;
}

static int event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns)
{
    struct event_state *from = start->state, *to = end->state;
    uint64_t from_ns = atomic_load(&from->time_ns), to_ns = atomic_load(&to->time_ns);
    if (!from_ns || !to_ns)
        return mr_error_set(MR_EMISUSE, "mr_event_elapsed: the %s event was never recorded",
                            from_ns ? "end" : "start");
    *out_ns = (int64_t)(to_ns - from_ns);
    return 0;
}

static int copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                      enum mr_memory src_kind, uint64_t bytes)
{
    (void)dst_kind, (void)src_kind;
    if (!atomic_load(&stream->recording)) {
        memmove(dst, src, bytes);
        return 0;
    }
    return work_or_record(stream, &(struct cpu_op){.dst = dst, .src = src, .bytes = bytes});
}

static int reach(struct mr_device *one, struct mr_device *other)
{
    (void)one, (void)other;
    return 1;
}

static int copy_peer(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                     const void *src, struct mr_device *src_device, uint64_t bytes)
{
    (void)dst_device, (void)src_device;
    return copy_async(stream, dst, MR_DEVICE, src, MR_DEVICE, bytes);
}

static int memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                        uint64_t bytes)
{
    (void)kind;
    return work_or_record(stream, &(struct cpu_op){.dst = dst, .byte = byte, .bytes = bytes});
}

static int launch(struct mr_stream *stream, const struct mr_kernel *kernel, const void *args,
                  const struct mr_kernel_range ranges[MR_KERNEL_RANGES], const unsigned grid[2])
{
    (void)ranges, (void)grid;
    struct cpu_op op = {.kernel = kernel};
    memcpy(op.args, args, kernel->args_bytes);
    return work_or_record(stream, &op);
}

static int launch_simple(struct mr_stream *stream, const struct mr_simple_launch *launch)
{
    return work_or_record(stream, &(struct cpu_op){.busy = launch->busy});
}

const struct mr_device_ops mr_device_cpu = {
    .name = "cpu",
    .summary = "the consumer reads host memory in place; nothing is copied",
    .probe = probe,
    .open = open_cpu,
    .close = close_cpu,
    .query = query,
    .memory_create = mr_host_memory_create,
    .memory_destroy = memory_destroy,
    .memory_register = mr_host_register,
    .memory_unregister = mr_host_unregister,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_synchronize = stream_synchronize,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_record_any = event_record_any,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .copy_async = copy_async,
    .memset_async = memset_async,
    .reach = reach,
    .copy_peer = copy_peer,
    .launch = launch,
    .launch_simple = launch_simple,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_close = graph_close,
    .graph_size = sizeof(struct graph_state),
    .n_simple = MR_SIMPLE_BUSY + 1,
    .stream_size = sizeof(struct stream_state),
    .event_size = sizeof(struct event_state),
};
