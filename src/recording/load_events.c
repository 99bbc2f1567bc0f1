/* Loading: rows of events. Times without a place are counted; names without a text are "?". */
#include "recording/load.h"

#include <errno.h>
#include <string.h>

/* All device rows begin with these. */
#define OP_COLUMNS                                                                                 \
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",             \
        "graphNodeId", "rowid"
enum {
    OP_START,
    OP_END,
    OP_DEVICE,
    OP_CONTEXT,
    OP_STREAM,
    OP_CORRELATION,
    OP_PID,
    OP_NODE,
    OP_ROW,
    OP_MORE
};

static uint64_t now_end(struct mr_load *load, uint64_t end)
{
    load->recording->end_ns = MR_MAX(load->recording->end_ns, end);
    return end;
}

/* Files of old exporters name no process with what devices did: with one process there is no
 * question. */
static int op_process(struct mr_load *load, sqlite3_stmt *values, struct mr_rec_op *op)
{
    if (sqlite3_column_type(values, OP_PID) == SQLITE_NULL && load->recording->n_processes == 1) {
        op->process = 0;
        return 0;
    }
    return mr_load_process(load, sqlite3_column_int64(values, OP_PID), &op->process);
}

static enum mr_mem_kind memory_kind(sqlite3_stmt *values, int column)
{
    if (sqlite3_column_type(values, column) == SQLITE_NULL)
        return MR_MEM_UNKNOWN;
    int64_t kind = sqlite3_column_int64(values, column);
    return kind < 0 || kind >= MR_MEM_MANAGED_STATIC ? MR_MEM_UNKNOWN
                                                     : (enum mr_mem_kind)(kind + 1);
}

/* [out] op: when 1 is returned; 0: the row has no times. Until all are joined, `api` holds the
 * correlation. */
static int op_of_row(struct mr_load *load, sqlite3_stmt *values, struct mr_rec_op *op)
{
    if (sqlite3_column_int64(values, OP_START) == 0 && sqlite3_column_int64(values, OP_END) == 0) {
        load->recording->n_lost_times++;
        return 0;
    }
    mr_load_span(values, OP_START, OP_END, &op->start_ns, &op->end_ns);
    now_end(load, op->end_ns);
    load->recording->n_no_length += op->end_ns == op->start_ns;
    op->context = mr_load_u32(values, OP_CONTEXT);
    op->stream = mr_load_u32(values, OP_STREAM);
    op->api = mr_load_u32(values, OP_CORRELATION);
    op->detail = mr_load_u32(values, OP_ROW);
    uint64_t node = (uint64_t)sqlite3_column_int64(values, OP_NODE);
    uint32_t low = (uint32_t)node; /* its number in the graph, which may be 0 */
    op->graph_node = node != 0 && low == 0 ? 1 : low;
    int rc = op_process(load, values, op);
    if (rc < 0)
        return rc;
    rc = mr_load_device(load, sqlite3_column_int64(values, OP_PID), mr_load_u32(values, OP_DEVICE),
                        &op->device);
    return rc < 0 ? rc : 1;
}

static int op_add(struct mr_load *load, const struct mr_rec_op *op)
{
    struct mr_recording *recording = load->recording;
    int rc =
        mr_load_grow(load, &recording->ops, recording->n_ops, &load->ops_capacity, sizeof(*op));
    if (rc < 0)
        return rc;
    recording->ops[recording->n_ops++] = *op;
    return 0;
}

static int kernel_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_rec_op op = {.kind = MR_OP_KERNEL};
    int rc = op_of_row(load, values, &op);
    if (rc <= 0)
        return rc;
    int column = sqlite3_column_type(values, OP_MORE) == SQLITE_NULL ? OP_MORE + 1 : OP_MORE;
    rc = mr_load_text(load, values, column, &op.name);
    return rc < 0 ? rc : op_add(load, &op);
}

static int copy_row(struct mr_load *load, sqlite3_stmt *values)
{
    static const uint8_t unified[] = {MR_COPY_H2D, MR_COPY_D2H, MR_COPY_D2D};
    struct mr_rec_op op = {.kind = MR_OP_COPY};
    int rc = op_of_row(load, values, &op);
    if (rc <= 0)
        return rc;
    op.bytes = mr_load_u64(values, OP_MORE);
    uint32_t kind = mr_load_u32(values, OP_MORE + 1);
    bool is_unified = kind > MR_COPY_P2P && kind - MR_COPY_P2P - 1 < sizeof(unified);
    op.copy_kind = kind <= MR_COPY_P2P ? (uint8_t)kind
                   : is_unified        ? unified[kind - MR_COPY_P2P - 1]
                                       : MR_COPY_UNKNOWN;
    op.src = memory_kind(values, OP_MORE + 2);
    op.dst = memory_kind(values, OP_MORE + 3);
    return op_add(load, &op);
}

static int set_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_rec_op op = {.kind = MR_OP_SET};
    int rc = op_of_row(load, values, &op);
    if (rc <= 0)
        return rc;
    op.bytes = mr_load_u64(values, OP_MORE);
    op.dst = memory_kind(values, OP_MORE + 1);
    return op_add(load, &op);
}

/* A whole launch of a graph, where its nodes were not recorded: work of the device, like a
 * kernel. */
static int graph_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_rec_op op = {.kind = MR_OP_KERNEL};
    int rc = op_of_row(load, values, &op);
    if (rc <= 0)
        return rc;
    op.detail = MR_NONE;
    op.graph_node = MR_NONE;
    rc = mr_texts_add(load->texts, "CUDA graph", 10, &op.name, NULL);
    return rc < 0 ? rc : op_add(load, &op);
}

static int class_of(struct mr_load *load, uint32_t name, uint8_t *out)
{
    if (name >= load->n_classes) {
        uint8_t *classes = realloc(load->classes, load->texts->n);
        if (!classes)
            return mr_error_nomem(load->recording->path, load->texts->n);
        memset(classes + load->n_classes, 0, load->texts->n - load->n_classes);
        load->classes = classes;
        load->n_classes = load->texts->n;
    }
    if (load->classes[name] == 0)
        load->classes[name] = (uint8_t)(mr_call_class_of(load->texts->text[name]) + 1);
    *out = load->classes[name] - 1;
    return 0;
}

/* eventClass is 0 and 1 of old; an export that numbers otherwise is told by the name. */
static bool is_driver(const struct mr_load *load, int64_t class, uint32_t name)
{
    const char *text = load->texts->text[name];
    return class == 1 || (class != 0 && !strncmp(text, "cu", 2) && strncmp(text, "cuda", 4) != 0);
}

#define CLASS_BACKTRACE 67 /* rows of the export that repeat a call to give it a stack */

static int api_row(struct mr_load *load, sqlite3_stmt *values)
{
    if (sqlite3_column_int64(values, 2) == CLASS_BACKTRACE)
        return 0;
    struct mr_recording *recording = load->recording;
    struct mr_rec_api api = {.correlation = mr_load_u32(values, 4),
                             .result = (int32_t)sqlite3_column_int64(values, 6)};
    mr_load_span(values, 0, 1, &api.start_ns, &api.end_ns);
    now_end(load, api.end_ns);
    int rc = mr_load_text(load, values, 5, &api.name);
    if (rc < 0)
        return rc;
    rc = class_of(load, api.name, &api.class);
    if (rc < 0)
        return rc;
    rc = mr_load_thread(load, sqlite3_column_int64(values, 3), &api.thread);
    if (rc < 0)
        return rc;
    rc = mr_load_grow(load, &recording->apis, recording->n_apis, &load->apis_capacity, sizeof(api));
    if (rc < 0)
        return rc;
    api.driver = is_driver(load, sqlite3_column_int64(values, 2), api.name);
    api.process = recording->threads[api.thread].process;
    recording->apis[recording->n_apis++] = api;
    return 0;
}

static int sync_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_recording *recording = load->recording;
    struct mr_rec_sync sync = {.type = mr_load_u32(values, 2),
                               .stream = mr_load_u32(values, 3),
                               .context = mr_load_u32(values, 4),
                               .api = mr_load_u32(values, 5)};
    if (sqlite3_column_int64(values, 0) == 0 && sqlite3_column_int64(values, 1) == 0)
        return 0;
    mr_load_span(values, 0, 1, &sync.start_ns, &sync.end_ns);
    now_end(load, sync.end_ns);
    int rc = mr_load_process(load, sqlite3_column_int64(values, 6), &sync.process);
    if (rc < 0)
        return rc;
    rc = mr_load_grow(load, &recording->syncs, recording->n_syncs, &load->syncs_capacity,
                      sizeof(sync));
    if (rc < 0)
        return rc;
    recording->syncs[recording->n_syncs++] = sync;
    return 0;
}

static uint64_t domain_key(int64_t global, int64_t domain)
{
    return ((uint64_t)global >> 24) ^ mr_mix64((uint64_t)domain);
}

enum { RANGE_START, RANGE_END, RANGE_TYPE, RANGE_TEXT, RANGE_TEXT_ID, RANGE_TID, RANGE_DOMAIN };

/* Its text stands in the row, or in StringIds. */
static int range_text(struct mr_load *load, sqlite3_stmt *values, uint32_t *out)
{
    bool inside = sqlite3_column_type(values, RANGE_TEXT) == SQLITE_TEXT;
    return mr_load_text(load, values, inside ? RANGE_TEXT : RANGE_TEXT_ID, out);
}

static int domain_row(struct mr_load *load, sqlite3_stmt *values)
{
    uint32_t name;
    if (sqlite3_column_int64(values, RANGE_TYPE) != MR_RANGE_DOMAIN)
        return 0;
    int rc = range_text(load, values, &name);
    if (rc < 0)
        return rc;
    uint64_t key = domain_key(sqlite3_column_int64(values, RANGE_TID),
                              sqlite3_column_int64(values, RANGE_DOMAIN));
    return mr_map_at(&load->domains, key, name, NULL) ? 0 : -ENOMEM;
}

static int range_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_recording *recording = load->recording;
    int64_t type = sqlite3_column_int64(values, RANGE_TYPE),
            global = sqlite3_column_int64(values, RANGE_TID);
    if (type == MR_RANGE_PUSH_POP_EXTENDED || type == MR_RANGE_START_END_EXTENDED)
        type += MR_RANGE_PUSH_POP - MR_RANGE_PUSH_POP_EXTENDED;
    if (type != MR_RANGE_MARK && type != MR_RANGE_PUSH_POP && type != MR_RANGE_START_END)
        return 0;
    struct mr_rec_range range = {.type = (uint16_t)type, .parent = MR_NONE};
    mr_load_span(values, RANGE_START, RANGE_END, &range.start_ns, &range.end_ns);
    range.open = type != MR_RANGE_MARK && sqlite3_column_type(values, RANGE_END) == SQLITE_NULL;
    now_end(load, range.end_ns);
    int64_t domain = sqlite3_column_int64(values, RANGE_DOMAIN);
    const uint32_t *name = domain ? mr_map_find(&load->domains, domain_key(global, domain)) : NULL;
    range.domain = name ? *name : domain ? load->unknown : 0;
    int rc = range_text(load, values, &range.text);
    if (rc < 0)
        return rc;
    rc = mr_load_thread(load, global, &range.thread);
    if (rc < 0)
        return rc;
    rc = mr_load_grow(load, &recording->ranges, recording->n_ranges, &load->ranges_capacity,
                      sizeof(range));
    if (rc < 0)
        return rc;
    recording->ranges[recording->n_ranges++] = range;
    return 0;
}

static int os_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_recording *recording = load->recording;
    struct mr_rec_os os = {.bytes = mr_load_u64(values, 4)};
    mr_load_span(values, 0, 1, &os.start_ns, &os.end_ns);
    now_end(load, os.end_ns);
    int rc = mr_load_text(load, values, 2, &os.name);
    if (rc < 0)
        return rc;
    rc = mr_load_thread(load, sqlite3_column_int64(values, 3), &os.thread);
    if (rc < 0)
        return rc;
    rc = mr_load_grow(load, &recording->os, recording->n_os, &load->os_capacity, sizeof(os));
    if (rc < 0)
        return rc;
    recording->os[recording->n_os++] = os;
    return 0;
}

#define RANGE_COLUMNS                                                                              \
    {                                                                                              \
        "start", "end", "eventType", "text", "textId", "globalTid", "domainId"                     \
    }

/* Ranges are read twice: domains get their names before the ranges in them. */
static const struct mr_load_source events[] = {
    {"CUPTI_ACTIVITY_KIND_RUNTIME",
     api_row,
     {"start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"}},
    {"CUPTI_ACTIVITY_KIND_KERNEL", kernel_row, {OP_COLUMNS, "shortName", "demangledName"}},
    {"CUPTI_ACTIVITY_KIND_MEMCPY",
     copy_row,
     {OP_COLUMNS, "bytes", "copyKind", "srcKind", "dstKind"}},
    {"CUPTI_ACTIVITY_KIND_MEMSET", set_row, {OP_COLUMNS, "bytes", "memKind"}},
    {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", graph_row, {OP_COLUMNS}},
    {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
     sync_row,
     {"start", "end", "syncType", "streamId", "contextId", "correlationId", "globalPid"}},
    {"NVTX_EVENTS", domain_row, RANGE_COLUMNS},
    {"NVTX_EVENTS", range_row, RANGE_COLUMNS},
    {"OSRT_API", os_row, {"start", "end", "nameId", "globalTid", "bytes"}},
};

int mr_load_events(struct mr_load *load)
{
    return mr_load_sources(load, events, MR_COUNT(events));
}
