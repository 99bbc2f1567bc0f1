/*
 * Writes a trace in Perfetto's protobuf format: a sequence of TracePacket messages.
 *
 * Times are CLOCK_MONOTONIC. A ClockSnapshot makes it the trace's clock and relates it to
 * wall-clock time.
 */
#include "trace/packet.h"
#include "trace/trace.h"

#include <time.h>
#include <unistd.h>

#define PROCESS_UUID 1
#define FIRST_UUID   2

static void write_clocks(struct writer *w)
{
    static const struct {
        clockid_t clock;
        uint32_t id;
    } clocks[] = {{CLOCK_MONOTONIC, CLOCK_ID_MONOTONIC},
                  {CLOCK_BOOTTIME, CLOCK_ID_BOOTTIME},
                  {CLOCK_REALTIME, CLOCK_ID_REALTIME}};
    struct message packet = {0}, snapshot = {0};
    for (size_t i = 0; i < MR_COUNT(clocks); i++) {
        struct timespec now = {0};
        if (clock_gettime(clocks[i].clock, &now))
            continue;
        struct message clock = {0};
        put_uint(&clock, CLOCK_FIELD_ID, clocks[i].id);
        put_uint(&clock, CLOCK_FIELD_TIMESTAMP,
                 (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
        put_message(&snapshot, SNAPSHOT_CLOCKS, &clock);
    }
    put_uint(&snapshot, SNAPSHOT_PRIMARY, CLOCK_ID_MONOTONIC);
    put_message(&packet, PACKET_CLOCK_SNAPSHOT, &snapshot);
    write_packet(w, &packet);
}

static void write_process(struct writer *w)
{
    struct message packet = {0}, track = {0}, process = {0};
    put_uint(&process, PROCESS_PID, (uint64_t)getpid());
    put_string(&process, PROCESS_NAME, program_invocation_short_name);
    put_uint(&track, TRACK_UUID, PROCESS_UUID);
    put_message(&track, TRACK_PROCESS, &process);
    put_message(&packet, PACKET_TRACK_DESCRIPTOR, &track);
    write_packet(w, &packet);
}

static void write_thread(struct writer *w, uint64_t uuid, const struct mr_trace_thread *thread)
{
    struct message packet = {0}, track = {0}, inner = {0};
    put_uint(&inner, THREAD_PID, (uint64_t)getpid());
    put_uint(&inner, THREAD_TID, (uint64_t)thread->tid);
    put_string(&inner, THREAD_NAME, thread->name);
    put_uint(&track, TRACK_UUID, uuid);
    put_uint(&track, TRACK_PARENT_UUID, PROCESS_UUID);
    put_message(&track, TRACK_THREAD, &inner);
    put_message(&packet, PACKET_TRACK_DESCRIPTOR, &track);
    write_packet(w, &packet);
}

static void write_named(struct writer *w, uint64_t uuid, const char *name, bool counter)
{
    struct message packet = {0}, track = {0}, nothing = {0};
    put_uint(&track, TRACK_UUID, uuid);
    put_uint(&track, TRACK_PARENT_UUID, PROCESS_UUID);
    put_string(&track, TRACK_NAME, name);
    if (counter)
        put_message(&track, TRACK_COUNTER, &nothing);
    put_message(&packet, PACKET_TRACK_DESCRIPTOR, &track);
    write_packet(w, &packet);
}

/* name: may be NULL. record: the source of the argument or value; NULL if there is none. */
static void write_event(struct writer *w, uint32_t type, uint64_t uuid, uint64_t time_ns,
                        const char *name, const struct mr_trace_record *record)
{
    struct message packet = {0}, event = {0};
    put_uint(&event, EVENT_TYPE, type);
    put_uint(&event, EVENT_TRACK_UUID, uuid);
    if (name)
        put_string(&event, EVENT_NAME, name);
    if (record && type == TYPE_COUNTER)
        put_uint(&event, EVENT_COUNTER_VALUE, record->arg);
    if (record && type == TYPE_SLICE_BEGIN && record->arg_name) {
        struct message annotation = {0};
        put_string(&annotation, ANNOTATION_NAME, record->arg_name);
        put_uint(&annotation, ANNOTATION_UINT_VALUE, record->arg);
        put_message(&event, EVENT_DEBUG_ANNOTATIONS, &annotation);
    }
    put_uint(&packet, PACKET_TIMESTAMP, time_ns);
    put_uint(&packet, PACKET_CLOCK_ID, CLOCK_ID_MONOTONIC);
    put_message(&packet, PACKET_TRACK_EVENT, &event);
    write_packet(w, &packet);
}

struct item {
    const struct mr_trace_record *record;
    uint64_t uuid;
    uint64_t order; /* order of recording */
};

struct named {
    const char *name;
    bool counter;
};

struct layout {
    const struct mr_trace_thread *threads;
    uint64_t n_threads;
    struct named *named;
    uint64_t n_named, room_named;
    struct item *items;
    uint64_t n_items;
};

/* [out] out: the uuid of the track, created if necessary. Returns 0 or -ENOMEM. */
static int find_named(struct layout *l, const char *name, bool counter, uint64_t *out)
{
    uint64_t i = 0;
    while (i < l->n_named && (l->named[i].counter != counter || strcmp(l->named[i].name, name)))
        i++;
    if (i == l->n_named) {
        if (mr_grow("trace: tracks", &l->named, &l->room_named, l->n_named + 1, sizeof *l->named))
            return -ENOMEM;
        l->named[l->n_named++] = (struct named){name, counter};
    }
    *out = FIRST_UUID + l->n_threads + i;
    return 0;
}

static int add_item(struct layout *l, uint64_t thread, const struct mr_trace_record *r)
{
    struct item *item = &l->items[l->n_items];
    item->record = r;
    item->order = l->n_items++;
    item->uuid = FIRST_UUID + thread;
    if (r->kind == MR_TRACE_SPAN)
        return 0;
    bool counter = r->kind == MR_TRACE_COUNTER;
    return find_named(l, counter ? r->name : r->track, counter, &item->uuid);
}

static int add_items(struct layout *l)
{
    uint64_t n = 1;
    for (uint64_t t = 0; t < l->n_threads; t++)
        n += l->threads[t].n[0] + l->threads[t].n[1];
    l->items = malloc(n * sizeof *l->items);
    if (!l->items)
        return mr_error_nomem("trace: spans", n * sizeof *l->items);
    for (uint64_t t = 0; t < l->n_threads; t++) {
        for (int run = 0; run < 2; run++) {
            for (uint64_t i = 0; i < l->threads[t].n[run]; i++) {
                int rc = add_item(l, t, &l->threads[t].run[run][i]);
                if (rc < 0)
                    return rc;
            }
        }
    }
    return 0;
}

static uint64_t end_of(const struct mr_trace_record *r)
{
    return MR_MAX(r->start_ns, r->end_ns);
}

/* By track and start. Of spans that start together the outer one comes first: it is longer, or was
 * recorded later. */
static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->uuid != y->uuid)
        return x->uuid < y->uuid ? -1 : 1;
    if (x->record->start_ns != y->record->start_ns)
        return x->record->start_ns < y->record->start_ns ? -1 : 1;
    if (x->record->kind == MR_TRACE_COUNTER)
        return x->order < y->order ? -1 : 1;
    if (end_of(x->record) != end_of(y->record))
        return end_of(x->record) > end_of(y->record) ? -1 : 1;
    return x->order > y->order ? -1 : x->order < y->order;
}

/*
 * The ends of the open spans, innermost last. Spans of one track must nest in the format; one that
 * does not is cut at the end of the span it started in.
 */
#define MAX_DEPTH 64
struct open_spans {
    uint64_t end_ns[MAX_DEPTH];
    int n;
};

static void close_until(struct writer *w, uint64_t uuid, struct open_spans *open, uint64_t time_ns)
{
    while (open->n && open->end_ns[open->n - 1] <= time_ns)
        write_event(w, TYPE_SLICE_END, uuid, open->end_ns[--open->n], NULL, NULL);
}

static void write_span(struct writer *w, const struct item *item, struct open_spans *open)
{
    const struct mr_trace_record *r = item->record;
    close_until(w, item->uuid, open, r->start_ns);
    if (open->n == MAX_DEPTH)
        return;
    uint64_t end_ns = end_of(r);
    if (open->n)
        end_ns = MR_MIN(end_ns, open->end_ns[open->n - 1]);
    write_event(w, TYPE_SLICE_BEGIN, item->uuid, r->start_ns, r->name, r);
    open->end_ns[open->n++] = end_ns;
}

/* A track is described at its first event: threads that only recorded on other tracks have none. */
static void write_track(struct writer *w, const struct layout *l, uint64_t uuid)
{
    uint64_t i = uuid - FIRST_UUID;
    if (i < l->n_threads)
        write_thread(w, uuid, &l->threads[i]);
    else
        write_named(w, uuid, l->named[i - l->n_threads].name, l->named[i - l->n_threads].counter);
}

static void write_items(struct writer *w, const struct layout *l)
{
    struct open_spans open = {.n = 0};
    for (uint64_t i = 0; i < l->n_items; i++) {
        const struct item *item = &l->items[i];
        if (!i || item->uuid != item[-1].uuid) {
            if (i)
                close_until(w, item[-1].uuid, &open, UINT64_MAX);
            write_track(w, l, item->uuid);
        }
        if (item->record->kind == MR_TRACE_COUNTER)
            write_event(w, TYPE_COUNTER, item->uuid, item->record->start_ns, NULL, item->record);
        else
            write_span(w, item, &open);
    }
    if (l->n_items)
        close_until(w, l->items[l->n_items - 1].uuid, &open, UINT64_MAX);
}

/* Returns 0 or the errno of the first write that failed. */
static int write_all(FILE *file, void *layout)
{
    struct writer w = {.file = file};
    write_clocks(&w);
    write_process(&w);
    write_items(&w, layout);
    return w.errnum;
}

int mr_trace_write_perfetto(const char *path, const struct mr_trace_thread *threads,
                            uint64_t n_threads)
{
    struct layout l = {.threads = threads, .n_threads = n_threads};
    int rc = add_items(&l);
    if (rc >= 0) {
        if (l.n_items > 1)
            qsort(l.items, l.n_items, sizeof *l.items, compare_items);
        rc = mr_file_write(path, "trace", write_all, &l);
    }
    free(l.named);
    free(l.items);
    return rc;
}
