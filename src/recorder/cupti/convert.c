/* CUPTI's records into the part's. */
#include "recorder/pm/pm.h"

#include <string.h>
#include <unistd.h>

#define STAGED 1024

/* Records of one type on their way to record_put_many(). */
#define STAGES(X)                                                                                  \
    X(kernel, MR_PART_KERNEL)                                                                      \
    X(copy, MR_PART_COPY)                                                                          \
    X(set, MR_PART_SET)                                                                            \
    X(sync, MR_PART_SYNC)                                                                          \
    X(api, MR_PART_API)                                                                            \
    X(memory, MR_PART_MEMORY)                                                                      \
    X(overhead, MR_PART_OVERHEAD)                                                                  \
    X(graph, MR_PART_GRAPH)

static struct {
#define X(name, type)                                                                              \
    struct mr_part_##name name[STAGED];                                                            \
    uint32_t n_##name;
    STAGES(X)
#undef X
} stage;

#define X(name, type)                                                                              \
    static struct mr_part_##name *next_##name(void)                                                \
    {                                                                                              \
        if (stage.n_##name == STAGED) {                                                            \
            record_put_many(type, stage.name, STAGED);                                             \
            stage.n_##name = 0;                                                                    \
        }                                                                                          \
        return &stage.name[stage.n_##name++];                                                      \
    }
STAGES(X)
#undef X

/* A driver call's runtime call may come with the next buffer. */
static void flush_calls(bool all)
{
    uint32_t n = stage.n_api;
    if (!all && n > 0 && stage.api[n - 1].class == MR_PART_DRIVER)
        n--;
    record_put_many(MR_PART_API, stage.api, n);
    if (n < stage.n_api)
        stage.api[0] = stage.api[n];
    stage.n_api -= n;
}

void record_cupti_convert_flush(bool all)
{
    flush_calls(all);
    uint32_t held = stage.n_api;
    stage.n_api = 0;
#define X(name, type)                                                                              \
    record_put_many(type, stage.name, stage.n_##name);                                             \
    stage.n_##name = 0;
    STAGES(X)
#undef X
    stage.n_api = held;
}

static void take_kernel(const struct cupti_kernel *k)
{
    struct mr_part_kernel *to = next_kernel();
    *to = (struct mr_part_kernel){
        .start_ns = k->start,
        .end_ns = k->end,
        .graph_node = k->graph_node,
        .graph = k->graph,
        .device = k->device,
        .context = k->context,
        .stream = k->stream,
        .correlation = k->correlation,
        .name = record_string(k->name),
        .registers = k->registers,
        .static_shared = (uint32_t)k->static_shared,
        .dynamic_shared = (uint32_t)k->dynamic_shared,
        .local_bytes = k->local_bytes,
    };
    for (int i = 0; i < 3; i++) {
        to->grid[i] = (uint32_t)k->grid[i];
        to->block[i] = (uint32_t)k->block[i];
    }
}

static void take_memcpy(const struct cupti_memcpy *c)
{
    uint64_t count = cupti.version >= CUPTI_SINCE_12_8 ? c->copy_count : 1;
    *next_copy() = (struct mr_part_copy){
        .start_ns = c->start,
        .end_ns = c->end,
        .bytes = c->bytes,
        .graph_node = c->graph_node,
        .graph = c->graph,
        .device = c->device,
        .context = c->context,
        .stream = c->stream,
        .correlation = c->correlation,
        .src_device = c->device,
        .dst_device = c->device,
        .count = count > 0 && count < UINT32_MAX ? (uint32_t)count : 1,
        .kind = c->copy_kind,
        .src_kind = c->src_kind,
        .dst_kind = c->dst_kind,
        .flags = c->flags,
    };
}

static void take_peer(const struct cupti_memcpy_peer *c)
{
    *next_copy() = (struct mr_part_copy){
        .start_ns = c->start,
        .end_ns = c->end,
        .bytes = c->bytes,
        .graph_node = c->graph_node,
        .graph = c->graph,
        .device = c->device,
        .context = c->context,
        .stream = c->stream,
        .correlation = c->correlation,
        .src_device = c->src_device,
        .dst_device = c->dst_device,
        .count = 1,
        .kind = c->copy_kind,
        .src_kind = c->src_kind,
        .dst_kind = c->dst_kind,
        .flags = c->flags,
    };
}

static void take_memset(const struct cupti_memset *s)
{
    *next_set() = (struct mr_part_set){
        .start_ns = s->start,
        .end_ns = s->end,
        .bytes = s->bytes,
        .graph_node = s->graph_node,
        .graph = s->graph,
        .device = s->device,
        .context = s->context,
        .stream = s->stream,
        .correlation = s->correlation,
        .value = s->value,
        .kind = s->memory_kind,
        .flags = s->flags,
    };
}

static void take_sync(const struct cupti_sync *s)
{
    *next_sync() = (struct mr_part_sync){
        .start_ns = s->start,
        .end_ns = s->end,
        .type = s->type,
        .context = s->context,
        .stream = s->stream,
        .event = s->event,
        .correlation = s->correlation,
    };
}

/* A runtime call's own driver call comes just before it in its thread's buffer, with the same
 * correlation: it says nothing new. */
static void forget_inner(const struct cupti_api *a)
{
    while (stage.n_api > 0) {
        const struct mr_part_api *last = &stage.api[stage.n_api - 1];
        if (last->class != MR_PART_DRIVER || last->tid != a->thread ||
            last->correlation != a->correlation || last->start_ns < a->start ||
            last->end_ns > a->end)
            return;
        stage.n_api--;
    }
}

static void take_api(const struct cupti_api *a)
{
    uint32_t domain = a->kind == CUPTI_RUNTIME ? CUPTI_DOMAIN_RUNTIME : CUPTI_DOMAIN_DRIVER;
    if (!record_cupti_call_kept(domain, a->cbid) || !record_in_capture(a->start))
        return;
    if (domain == CUPTI_DOMAIN_RUNTIME && !cupti.all_calls)
        forget_inner(a);
    if (stage.n_api == STAGED)
        flush_calls(false);
    *next_api() = (struct mr_part_api){
        .start_ns = a->start,
        .end_ns = a->end,
        .correlation = a->correlation,
        .tid = a->thread,
        .name = record_cupti_call_name(domain, a->cbid),
        .class = domain == CUPTI_DOMAIN_RUNTIME ? MR_PART_RUNTIME : MR_PART_DRIVER,
        .result = (int32_t)a->result,
        .cbid = a->cbid,
    };
}

static void take_memory(const struct cupti_memory *m)
{
    *next_memory() = (struct mr_part_memory){
        .time_ns = m->timestamp,
        .address = m->address,
        .bytes = m->bytes,
        .operation = m->operation,
        .kind = m->memory_kind,
        .device = m->device,
        .context = m->context,
        .stream = m->stream,
        .correlation = m->correlation,
    };
}

static void take_overhead(const struct cupti_overhead *o)
{
    *next_overhead() = (struct mr_part_overhead){
        .start_ns = o->start,
        .end_ns = o->end,
        .kind = o->overhead_kind,
        .tid = o->object_kind == CUPTI_OBJECT_THREAD ? o->object[1] : 0,
    };
}

static void take_graph(const struct cupti_graph *g)
{
    *next_graph() = (struct mr_part_graph){
        .start_ns = g->start,
        .end_ns = g->end,
        .graph = g->graph,
        .device = g->device,
        .context = g->context,
        .stream = g->stream,
        .correlation = g->correlation,
    };
}

static void take_device(const struct cupti_device *d)
{
    struct mr_part_device device = {
        .device = d->id,
        .name = record_string(d->name),
        .major = d->major,
        .minor = d->minor,
        .n_sms = d->n_sms,
        .n_copy_engines = d->n_copy_engines,
        .memory_bytes = d->memory_bytes,
        .memory_bandwidth = d->memory_bandwidth * 1000, /* kB/s */
        .core_clock_khz = d->core_clock_khz,
    };
    memcpy(device.uuid, d->uuid, sizeof device.uuid);
    record_put(MR_PART_DEVICE, &device);
}

static void take_context(const struct cupti_context *c)
{
    bool green = cupti.version >= CUPTI_SINCE_12_8 && c->is_green;
    struct mr_part_context context = {c->context, c->device, c->null_stream, green ? c->parent : 0};
    record_put(MR_PART_CONTEXT, &context);
    record_pm_saw(c->device);
}

static void take_stream(const struct cupti_stream *s)
{
    struct mr_part_stream stream = {s->stream, s->context, s->flag, (int32_t)s->priority};
    record_put(MR_PART_STREAM, &stream);
}

static void take(const void *record)
{
    switch (*(const uint32_t *)record) {
    case CUPTI_KERNEL:
    case CUPTI_CONCURRENT_KERNEL:
        take_kernel(record);
        break;
    case CUPTI_MEMCPY:
        take_memcpy(record);
        break;
    case CUPTI_MEMCPY2:
        take_peer(record);
        break;
    case CUPTI_MEMSET:
        take_memset(record);
        break;
    case CUPTI_SYNCHRONIZATION:
        take_sync(record);
        break;
    case CUPTI_RUNTIME:
    case CUPTI_DRIVER:
        take_api(record);
        break;
    case CUPTI_MEMORY2:
        take_memory(record);
        break;
    case CUPTI_OVERHEAD:
        take_overhead(record);
        break;
    case CUPTI_GRAPH_TRACE:
        take_graph(record);
        break;
    case CUPTI_DEVICE:
        take_device(record);
        break;
    case CUPTI_CONTEXT:
        take_context(record);
        break;
    case CUPTI_STREAM:
        take_stream(record);
        break;
    default:
        break;
    }
}

void record_cupti_convert(uint8_t *buffer, size_t valid)
{
    size_t dropped = 0;
    void *record = NULL;
    while (valid && cupti.ActivityGetNextRecord(buffer, valid, &record) == CUPTI_OK && record)
        take(record);
    if (cupti.ActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_OK && dropped > 0)
        record_note("dropped", (int64_t)dropped, "CUPTI had no room for them");
}
