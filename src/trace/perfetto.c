/*
 * Writes a trace in Perfetto's protobuf format: a sequence of TracePacket messages, encoded by hand (we need a dozen
 * fields of it). Field numbers are those of protos/perfetto/trace/trace.proto and the files that it imports.
 *
 * Times are CLOCK_MONOTONIC. A ClockSnapshot makes that the trace's clock and ties it to wall-clock time.
 */
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_NAME      255
#define MESSAGE_BYTES 1024 /* a packet with two names and a dozen numbers fits */

#define SEQUENCE      1
#define PROCESS_UUID  1
#define FIRST_UUID    2

/* Numbers of the messages' fields and of the enums' values. */
enum { TRACE_PACKET = 1 };
enum {
    PACKET_CLOCK_SNAPSHOT = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_CLOCK_ID = 58,
    PACKET_TRACK_DESCRIPTOR = 60
};
enum { SNAPSHOT_CLOCKS = 1, SNAPSHOT_PRIMARY = 2, CLOCK_FIELD_ID = 1, CLOCK_FIELD_TIMESTAMP = 2 };
enum { CLOCK_ID_REALTIME = 1, CLOCK_ID_MONOTONIC = 3, CLOCK_ID_BOOTTIME = 6 };
enum { TRACK_UUID = 1, TRACK_NAME = 2, TRACK_PROCESS = 3, TRACK_THREAD = 4, TRACK_PARENT_UUID = 5, TRACK_COUNTER = 8 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum { EVENT_DEBUG_ANNOTATIONS = 4, EVENT_TYPE = 9, EVENT_TRACK_UUID = 11, EVENT_NAME = 23, EVENT_COUNTER_VALUE = 30 };
enum { TYPE_SLICE_BEGIN = 1, TYPE_SLICE_END = 2, TYPE_COUNTER = 4 };
enum { ANNOTATION_UINT_VALUE = 3, ANNOTATION_NAME = 10 };
enum { INCREMENTAL_STATE_CLEARED = 1, NEEDS_INCREMENTAL_STATE = 2 };

struct message {
    size_t n;
    uint8_t bytes[MESSAGE_BYTES];
};

static void put_varint(struct message *m, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        m->bytes[m->n++] = (uint8_t)(x | 128);
    m->bytes[m->n++] = (uint8_t)x;
}

static void put_uint(struct message *m, uint32_t field, uint64_t x)
{
    put_varint(m, field << 3 | 0);
    put_varint(m, x);
}

static void put_bytes(struct message *m, uint32_t field, const void *bytes, size_t n)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_string(struct message *m, uint32_t field, const char *text)
{
    size_t n = strlen(text);
    put_bytes(m, field, text, MR_MIN(n, (size_t)MAX_NAME));
}

static void put_message(struct message *m, uint32_t field, const struct message *inner)
{
    put_bytes(m, field, inner->bytes, inner->n);
}

struct writer {
    FILE *file;
    bool cleared; /* the first packet of the sequence was written */
    int errnum;   /* of the first write that failed */
};

static void write_packet(struct writer *w, struct message *packet)
{
    put_uint(packet, PACKET_SEQUENCE_ID, SEQUENCE);
    put_uint(packet, PACKET_SEQUENCE_FLAGS, w->cleared ? NEEDS_INCREMENTAL_STATE : INCREMENTAL_STATE_CLEARED);
    w->cleared = true;
    struct message head = {0};
    put_varint(&head, TRACE_PACKET << 3 | 2);
    put_varint(&head, packet->n);
    if (w->errnum)
        return;
    if (fwrite(head.bytes, 1, head.n, w->file) < head.n || fwrite(packet->bytes, 1, packet->n, w->file) < packet->n)
        w->errnum = errno ? errno : EIO;
}

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
        put_uint(&clock, CLOCK_FIELD_TIMESTAMP, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
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

/* name: NULL for none. record: its argument or value is written; NULL: neither. */
static void write_event(struct writer *w, uint32_t type, uint64_t uuid, uint64_t time_ns, const char *name,
                        const struct mr_trace_record *record)
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
    uint64_t order; /* in which they were recorded */
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

/* [out] out: the uuid of the track, which is made when it is new. Returns 0, -ENOMEM. */
static int find_named(struct layout *l, const char *name, bool counter, uint64_t *out)
{
    uint64_t i = 0;
    while (i < l->n_named && (l->named[i].counter != counter || strcmp(l->named[i].name, name)))
        i++;
    if (i == l->n_named) {
        if (l->n_named == l->room_named) {
            uint64_t room = l->room_named ? 2 * l->room_named : 16;
            struct named *grown = realloc(l->named, room * sizeof *grown);
            if (!grown)
                return mr_error_nomem("trace: tracks", room * sizeof *grown);
            l->named = grown;
            l->room_named = room;
        }
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

/* By track and start; of spans that start together the outer one first: it is longer, or was recorded later. */
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
 * The ends of the spans that are open, innermost last. Spans of one track must nest in the format; one that does not is
 * cut at the end of the span it started in.
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

/* Tracks are described where their first event comes: threads that only wrote on others' tracks have none. */
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
static int write_all(FILE *file, const struct layout *l)
{
    struct writer w = {.file = file};
    write_clocks(&w);
    write_process(&w);
    write_items(&w, l);
    if (!w.errnum && fflush(file))
        w.errnum = errno;
    return w.errnum;
}

/* Writes to an open file and closes it. Returns 0 or an errno. */
static int write_and_close(int fd, const struct layout *l)
{
    FILE *file = fdopen(fd, "wb");
    if (!file) {
        int bad = errno;
        close(fd);
        return bad;
    }
    int bad = write_all(file, l);
    if (fclose(file) && !bad)
        bad = errno;
    return bad;
}

static int write_renamed(const char *path, const struct layout *l)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.%d.tmp", path, (int)getpid()) < 0)
        return mr_error_nomem("trace: name of the file", strlen(path));
    unlink(temporary); /* of a process that had our number and died */
    int bad = 0;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        bad = errno;
    } else {
        bad = write_and_close(fd, l);
        if (!bad && rename(temporary, path))
            bad = errno;
        if (bad)
            unlink(temporary);
    }
    free(temporary);
    return bad ? mr_error_errno(bad, "%s: trace not written", path) : 0;
}

/* A pipe or a device is written in place: renaming over it would take it away. */
static int write_file(const char *path, const struct layout *l)
{
    struct stat status;
    if (stat(path, &status) || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
        return write_renamed(path, l);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int bad = fd < 0 ? errno : write_and_close(fd, l);
    return bad ? mr_error_errno(bad, "%s: trace not written", path) : 0;
}

int mr_trace_write_perfetto(const char *path, const struct mr_trace_thread *threads, uint64_t n_threads)
{
    struct layout l = {.threads = threads, .n_threads = n_threads};
    int rc = add_items(&l);
    if (rc >= 0) {
        if (l.n_items > 1)
            qsort(l.items, l.n_items, sizeof *l.items, compare_items);
        rc = write_file(path, &l);
    }
    free(l.named);
    free(l.items);
    return rc;
}
