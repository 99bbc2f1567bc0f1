/*
 * A recording as Perfetto's trace: a track for each row of a device's lanes, one for each kind of a
 * thread's events, whose slices nest, more where they would cross; flows from calls to the work
 * that they made; counters. Names are interned.
 */
#include "timeline/timeline.h"
#include "trace/packet.h"

#include <sqlite3.h>

#define MAX_DEPTH 256
#define MAX_FLOWS 32 /* of one call: a graph's launch may make thousands of operations */

/* Which interned texts were written: a bit for each. */
struct interned {
    uint8_t *names, *details;
};

struct perfetto {
    struct writer w;
    const struct mr_timeline *tl;
    struct mr_tl_details *details;
    struct interned interned;
    uint64_t next_uuid;
    uint64_t rank; /* of the next track among its siblings */
};

enum {
    NOTE_BYTES,
    NOTE_RATE,
    NOTE_CORRELATION,
    NOTE_RESULT,
    NOTE_DETAIL,
    NOTE_OPERATIONS,
    N_NOTES
};
static const char *const note_names[] = {"bytes",  "GB/s",   "correlation",
                                         "result", "detail", "operations"};

static void begin(struct message *m)
{
    m->n = 0;
}

static void intern(struct perfetto *p, uint32_t kind, uint64_t iid, const char *text)
{
    struct message packet, data, entry;
    begin(&packet);
    begin(&data);
    begin(&entry);
    put_uint(&entry, INTERNED_IID, iid);
    put_string(&entry, INTERNED_TEXT, *text ? text : "?");
    put_message(&data, kind, &entry);
    put_message(&packet, PACKET_INTERNED_DATA, &data);
    write_packet(&p->w, &packet);
}

static bool is_first(uint8_t *bits, uint32_t i)
{
    bool first = !(bits[i / 8] >> i % 8 & 1);
    bits[i / 8] |= (uint8_t)(1 << i % 8);
    return first;
}

static void intern_name(struct perfetto *p, uint32_t name)
{
    if (is_first(p->interned.names, name))
        intern(p, INTERNED_NAMES, (uint64_t)name + 1, mr_timeline_name(p->tl, name));
}

static void intern_detail(struct perfetto *p, uint32_t detail)
{
    if (is_first(p->interned.details, detail))
        intern(p, INTERNED_ANNOTATION_STRINGS, detail,
               mr_tl_detail_texts(p->details)->text[detail]);
}

static void write_descriptor(struct perfetto *p, struct message *track)
{
    struct message packet;
    begin(&packet);
    put_uint(track, TRACK_RANK, ++p->rank);
    put_message(&packet, PACKET_TRACK_DESCRIPTOR, track);
    write_packet(&p->w, &packet);
}

/* pid: of a process's own track; 0: a named one (a device). Returns the uuid. */
static uint64_t write_group(struct perfetto *p, uint32_t pid, const char *name)
{
    struct message track, process;
    begin(&track);
    begin(&process);
    put_uint(&track, TRACK_UUID, ++p->next_uuid);
    if (pid) {
        put_uint(&process, PROCESS_PID, pid);
        put_string(&process, PROCESS_NAME, name);
        put_message(&track, TRACK_PROCESS, &process);
    } else {
        put_string(&track, TRACK_NAME, name);
    }
    put_uint(&track, TRACK_ORDERING, ORDERING_EXPLICIT);
    write_descriptor(p, &track);
    return p->next_uuid;
}

static uint64_t write_thread(struct perfetto *p, uint64_t parent, uint32_t index)
{
    const struct mr_recording *rec = p->tl->rec;
    const struct mr_rec_thread *thread = &rec->threads[index];
    const char *name = rec->strings[thread->name];
    struct message track, inner;
    begin(&track);
    begin(&inner);
    put_uint(&inner, THREAD_PID, rec->processes[thread->process].pid);
    put_uint(&inner, THREAD_TID, thread->tid);
    if (*name)
        put_string(&inner, THREAD_NAME, name);
    put_uint(&track, TRACK_UUID, ++p->next_uuid);
    put_uint(&track, TRACK_PARENT_UUID, parent);
    put_message(&track, TRACK_THREAD, &inner);
    put_uint(&track, TRACK_ORDERING, ORDERING_EXPLICIT);
    write_descriptor(p, &track);
    return p->next_uuid;
}

static uint64_t write_track(struct perfetto *p, uint64_t parent, const char *name,
                            const struct mr_tl_counter *counter)
{
    struct message track, inner;
    begin(&track);
    begin(&inner);
    put_uint(&track, TRACK_UUID, ++p->next_uuid);
    if (parent)
        put_uint(&track, TRACK_PARENT_UUID, parent);
    put_string(&track, TRACK_NAME, name);
    if (counter) {
        if (counter->unit == MR_UNIT_BYTES_PER_S)
            put_string(&inner, COUNTER_UNIT_NAME, "B/s");
        else if (counter->unit == MR_UNIT_PERCENT)
            put_string(&inner, COUNTER_UNIT_NAME, "%");
        else if (counter->unit == MR_UNIT_BYTES)
            put_string(&inner, COUNTER_UNIT_NAME, "B");
        put_message(&track, TRACK_COUNTER, &inner);
    }
    write_descriptor(p, &track);
    return p->next_uuid;
}

/* ---- slices ---- */

static void note_begin(struct message *note, uint32_t which)
{
    begin(note);
    put_uint(note, ANNOTATION_NAME_IID, which + 1);
}

static void note_uint(struct message *event, uint32_t which, uint64_t value)
{
    struct message note;
    note_begin(&note, which);
    put_uint(&note, ANNOTATION_UINT_VALUE, value);
    put_message(event, EVENT_DEBUG_ANNOTATIONS, &note);
}

static void put_notes(struct perfetto *p, struct message *out, const struct mr_lane *lane,
                      const struct mr_tl_event *event, uint32_t detail)
{
    struct message note;
    if (event->bytes)
        note_uint(out, NOTE_BYTES, event->bytes);
    if (event->bytes && lane->kind == MR_LANE_STREAM && event->end_ns > event->start_ns) {
        note_begin(&note, NOTE_RATE);
        put_double(&note, ANNOTATION_DOUBLE_VALUE,
                   (double)event->bytes / (double)(event->end_ns - event->start_ns));
        put_message(out, EVENT_DEBUG_ANNOTATIONS, &note);
    }
    if (lane->kind == MR_LANE_ENGINE)
        note_uint(out, NOTE_OPERATIONS, event->source);
    if (lane->kind == MR_LANE_CALLS) {
        const struct mr_rec_api *api = &p->tl->rec->apis[event->source];
        note_uint(out, NOTE_CORRELATION, api->correlation);
        if (api->result)
            note_uint(out, NOTE_RESULT, (uint32_t)api->result);
    }
    if (detail) {
        note_begin(&note, NOTE_DETAIL);
        put_uint(&note, ANNOTATION_STRING_IID, detail);
        put_message(out, EVENT_DEBUG_ANNOTATIONS, &note);
    }
}

/* A flow is one operation's: its number + 1. Both ends are written, or neither. */
static bool has_flow(const struct perfetto *p, uint32_t op)
{
    const struct mr_recording *rec = p->tl->rec;
    uint32_t api = rec->ops[op].api;
    if (api == MR_NONE || p->tl->event_of_api[api] == MR_NONE ||
        !mr_timeline_shows(p->tl, rec->ops[op].start_ns, rec->ops[op].end_ns))
        return false;
    const uint32_t *ops = rec->op_of_api + rec->apis[api].first_op;
    for (uint32_t i = 0; i < MR_MIN(rec->apis[api].n_ops, (uint32_t)MAX_FLOWS); i++)
        if (ops[i] == op)
            return true;
    return false;
}

static void put_flows(struct perfetto *p, struct message *out, const struct mr_lane *lane,
                      const struct mr_tl_event *event)
{
    const struct mr_recording *rec = p->tl->rec;
    if (lane->kind == MR_LANE_STREAM && has_flow(p, event->source))
        put_fixed64(out, EVENT_FLOW_IDS, (uint64_t)event->source + 1);
    if (lane->kind != MR_LANE_CALLS)
        return;
    const struct mr_rec_api *api = &rec->apis[event->source];
    for (uint32_t i = 0; i < MR_MIN(api->n_ops, (uint32_t)MAX_FLOWS); i++) {
        uint32_t op = rec->op_of_api[api->first_op + i];
        if (has_flow(p, op))
            put_fixed64(out, EVENT_FLOW_IDS, (uint64_t)op + 1);
    }
}

static void write_begin(struct perfetto *p, uint64_t uuid, const struct mr_lane *lane,
                        const struct mr_tl_event *event)
{
    struct message packet, out;
    uint32_t detail = mr_tl_detail(p->details, lane, event);
    intern_name(p, event->name);
    if (detail)
        intern_detail(p, detail);
    begin(&packet);
    begin(&out);
    put_uint(&out, EVENT_TYPE, TYPE_SLICE_BEGIN);
    put_uint(&out, EVENT_TRACK_UUID, uuid);
    put_uint(&out, EVENT_CATEGORY_IIDS, event->shape + 1u);
    put_uint(&out, EVENT_NAME_IID, (uint64_t)event->name + 1);
    put_notes(p, &out, lane, event, detail);
    put_flows(p, &out, lane, event);
    put_uint(&packet, PACKET_TIMESTAMP, event->start_ns);
    put_message(&packet, PACKET_TRACK_EVENT, &out);
    write_packet(&p->w, &packet);
}

static void write_end(struct perfetto *p, uint64_t uuid, uint64_t time_ns)
{
    struct message packet, out;
    begin(&packet);
    begin(&out);
    put_uint(&out, EVENT_TYPE, TYPE_SLICE_END);
    put_uint(&out, EVENT_TRACK_UUID, uuid);
    put_uint(&packet, PACKET_TIMESTAMP, time_ns);
    put_message(&packet, PACKET_TRACK_EVENT, &out);
    write_packet(&p->w, &packet);
}

/* ---- tracks of a lane ---- */

/* A track and the ends of its open slices, innermost last. */
struct open_track {
    uint64_t uuid;
    uint32_t n;
    uint64_t end_ns[MAX_DEPTH];
};

struct lane_tracks {
    struct open_track **tracks;
    uint32_t n;
    uint64_t room;
};

static void close_until(struct perfetto *p, struct open_track *track, uint64_t time_ns)
{
    while (track->n && track->end_ns[track->n - 1] <= time_ns)
        write_end(p, track->uuid, track->end_ns[--track->n]);
}

/* Does an event fit: after all that is open there, or inside it? On a device nothing is inside
 * another. */
static bool fits(struct perfetto *p, struct open_track *track, const struct mr_lane *lane,
                 const struct mr_tl_event *event)
{
    close_until(p, track, event->start_ns);
    if (track->n == 0)
        return true;
    return lane->kind >= MR_LANE_RANGES && track->n < MAX_DEPTH &&
           track->end_ns[track->n - 1] >= event->end_ns;
}

static struct open_track *track_add(struct perfetto *p, struct lane_tracks *tracks, uint64_t parent,
                                    const struct mr_lane *lane)
{
    char label[96], name[128];
    uint64_t want = tracks->n + 1ull;
    if (mr_grow("timeline: tracks", &tracks->tracks, &tracks->room, want, sizeof(void *)) < 0)
        return NULL;
    struct open_track *track = calloc(1, sizeof(*track));
    if (!track)
        return NULL;
    mr_lane_label(p->tl, lane, label, sizeof(label));
    if (tracks->n)
        snprintf(name, sizeof(name), "%s (%u)", label, tracks->n + 1);
    track->uuid = write_track(p, parent, tracks->n ? name : label, NULL);
    tracks->tracks[tracks->n++] = track;
    return track;
}

static int write_lane(struct perfetto *p, uint64_t parent, const struct mr_lane *lane)
{
    struct lane_tracks tracks = {0};
    int rc = 0;
    for (uint64_t i = 0; i < lane->n && rc == 0 && !p->w.errnum; i++) {
        const struct mr_tl_event *event = &lane->events[i];
        struct open_track *track = NULL;
        for (uint32_t k = 0; k < tracks.n && !track; k++)
            if (fits(p, tracks.tracks[k], lane, event))
                track = tracks.tracks[k];
        if (!track)
            track = track_add(p, &tracks, parent, lane);
        if (!track) {
            rc = mr_error_nomem("timeline: tracks", sizeof(*track));
            break;
        }
        write_begin(p, track->uuid, lane, event);
        track->end_ns[track->n++] = event->end_ns;
    }
    for (uint32_t k = 0; k < tracks.n; k++) {
        close_until(p, tracks.tracks[k], UINT64_MAX);
        free(tracks.tracks[k]);
    }
    free(tracks.tracks);
    return rc;
}

static void write_counter(struct perfetto *p, uint64_t parent, const struct mr_tl_counter *counter)
{
    uint64_t uuid = write_track(p, parent, counter->name, counter);
    for (uint64_t i = 0; i < counter->n; i++) {
        struct message packet, out;
        begin(&packet);
        begin(&out);
        put_uint(&out, EVENT_TYPE, TYPE_COUNTER);
        put_uint(&out, EVENT_TRACK_UUID, uuid);
        put_double(&out, EVENT_DOUBLE_COUNTER_VALUE, counter->points[i].value);
        put_uint(&packet, PACKET_TIMESTAMP, counter->points[i].time_ns);
        put_message(&packet, PACKET_TRACK_EVENT, &out);
        write_packet(&p->w, &packet);
    }
}

static void write_counters(struct perfetto *p, uint64_t parent, uint16_t device)
{
    for (uint32_t i = 0; i < p->tl->n_counters; i++)
        if (p->tl->counters[i].device == device)
            write_counter(p, parent, &p->tl->counters[i]);
}

/* Lanes come ordered by device, then by process and thread: a group's track is written where its
 * first lane comes. */
static int write_lanes(struct perfetto *p)
{
    const struct mr_timeline *tl = p->tl;
    uint64_t group = 0, process = 0, thread = 0;
    const struct mr_lane *last = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < tl->n_lanes && rc == 0; i++) {
        const struct mr_lane *lane = &tl->lanes[tl->order[i]];
        bool gpu = lane->kind <= MR_LANE_STREAM;
        char name[256];
        mr_lane_group(tl, lane, name, sizeof(name));
        if (gpu && (!last || last->device != lane->device)) {
            group = write_group(p, 0, name);
            write_counters(p, group, lane->device);
        }
        if (!gpu && (!last || last->kind <= MR_LANE_STREAM || last->process != lane->process)) {
            const struct mr_rec_process *proc = &tl->rec->processes[lane->process];
            const char *program = tl->rec->strings[proc->name],
                       *command = tl->rec->strings[proc->command];
            process = write_group(p, MR_MAX(proc->pid, 1u), *command ? command : program);
            thread = 0;
        }
        if (!gpu && (!thread || last->thread != lane->thread))
            thread = write_thread(p, process, lane->thread);
        rc = write_lane(p, gpu ? group : thread, lane);
        last = lane;
    }
    return rc;
}

/* [out] out: 0 where the recording does not know. */
static int read_epoch(const struct mr_recording *rec, uint64_t *out)
{
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(rec->db, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
                                  -1, &row, NULL);
    *out = 0;
    if (code == SQLITE_OK) {
        code = sqlite3_step(row);
        int64_t ns = code == SQLITE_ROW ? sqlite3_column_int64(row, 0) : 0;
        *out = ns > 0 ? (uint64_t)ns : 0;
    }
    bool fine = code == SQLITE_ROW || code == SQLITE_DONE || code == SQLITE_ERROR;
    int rc = fine ? 0 : mr_recording_error(rec->db, rec->path, "the time of its start");
    sqlite3_finalize(row);
    return rc;
}

/* Ties 0 to the wall-clock time of the recording, where it has that. */
static int write_clock(struct perfetto *p)
{
    uint64_t epoch_ns;
    int rc = read_epoch(p->tl->rec, &epoch_ns);
    if (rc < 0)
        return rc;
    const uint64_t clocks[][2] = {
        {CLOCK_ID_BOOTTIME, 0}, {CLOCK_ID_MONOTONIC, 0}, {CLOCK_ID_REALTIME, epoch_ns}};
    struct message packet, snapshot, clock;
    begin(&packet);
    begin(&snapshot);
    for (size_t i = 0; i < MR_COUNT(clocks); i++) {
        begin(&clock);
        put_uint(&clock, CLOCK_FIELD_ID, clocks[i][0]);
        put_uint(&clock, CLOCK_FIELD_TIMESTAMP, clocks[i][1]);
        put_message(&snapshot, SNAPSHOT_CLOCKS, &clock);
    }
    put_uint(&snapshot, SNAPSHOT_PRIMARY, CLOCK_ID_BOOTTIME);
    put_message(&packet, PACKET_CLOCK_SNAPSHOT, &snapshot);
    write_packet(&p->w, &packet);
    return 0;
}

static int write_all(struct perfetto *p)
{
    int rc = write_clock(p);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < MR_N_SHAPES; i++)
        intern(p, INTERNED_CATEGORIES, i + 1u, mr_shape_names[i]);
    for (uint32_t i = 0; i < N_NOTES; i++)
        intern(p, INTERNED_ANNOTATION_NAMES, i + 1u, note_names[i]);
    rc = write_lanes(p);
    if (rc == 0)
        write_counters(p, 0, UINT16_MAX);
    return rc == 0 ? p->w.errnum : rc;
}

int mr_timeline_perfetto(FILE *file, const struct mr_timeline *tl)
{
    struct perfetto p = {.w = {.file = file}, .tl = tl};
    int rc = mr_tl_details_create(tl, &p.details);
    if (rc < 0)
        return rc;
    size_t names = tl->rec->n_strings / 8 + 8u, details = mr_tl_detail_texts(p.details)->n / 8 + 1u;
    p.interned.names = calloc(names, 1);
    p.interned.details = calloc(details, 1);
    if (p.interned.names && p.interned.details)
        rc = write_all(&p);
    else
        rc = mr_error_nomem("timeline: names", names + details);
    free(p.interned.names);
    free(p.interned.details);
    mr_tl_details_destroy(p.details);
    return rc;
}
