/* What pictures say of lanes and events. */
#include "timeline/timeline.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

static const char *memory_name(uint8_t kind)
{
    return kind == MR_MEM_UNKNOWN ? "unknown" : mr_mem_kind_text(kind);
}

/* Streams of one number in several contexts or processes are told apart. */
static bool is_alone(const struct mr_timeline *tl, const struct mr_lane *lane)
{
    for (uint32_t i = 0; i < tl->n_lanes; i++) {
        const struct mr_lane *other = &tl->lanes[i];
        if (other != lane && other->kind == MR_LANE_STREAM && other->device == lane->device &&
            other->stream == lane->stream)
            return false;
    }
    return true;
}

void mr_lane_label(const struct mr_timeline *tl, const struct mr_lane *lane, char *out,
                   size_t bytes)
{
    static const char *const engines[] = {"GPU busy",   "H2D copies",  "Compute",
                                          "D2H copies", "D2D, memset", "Communication"};
    static const char *const of_threads[] = {[MR_LANE_RANGES] = "NVTX ranges",
                                             [MR_LANE_CALLS] = "CUDA calls",
                                             [MR_LANE_OS] = "OS calls"};
    if (lane->kind == MR_LANE_ENGINE)
        snprintf(out, bytes, "%s", engines[lane->engine]);
    else if (lane->kind != MR_LANE_STREAM)
        snprintf(out, bytes, "%s", of_threads[lane->kind]);
    else if (is_alone(tl, lane))
        snprintf(out, bytes, "Stream %u", lane->stream);
    else
        snprintf(out, bytes, "Stream %u (pid %u, ctx %u)", lane->stream,
                 tl->rec->processes[lane->process].pid, lane->context);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void mr_lane_group(const struct mr_timeline *tl, const struct mr_lane *lane, char *out,
                   size_t bytes)
{
    const struct mr_recording *rec = tl->rec;
    if (lane->kind <= MR_LANE_STREAM) {
        const struct mr_rec_device *device = &rec->devices[lane->device];
        const char *name = rec->strings[device->name];
        snprintf(out, bytes, "GPU %u%s%s", device->id, *name ? " \xc2\xb7 " : "", name);
        return;
    }
    const struct mr_rec_thread *thread = &rec->threads[lane->thread];
    const struct mr_rec_process *process = &rec->processes[thread->process];
    const char *name = rec->strings[thread->name],
               *program = base_name(rec->strings[process->name]);
    if (!*program)
        program = "process";
    if (thread->tid == process->pid)
        snprintf(out, bytes, "%s %u \xc2\xb7 main thread", program, process->pid);
    else
        snprintf(out, bytes, "%s %u \xc2\xb7 thread %u%s%s", program, process->pid, thread->tid,
                 *name ? " " : "", name);
}

/* ---- details ---- */

struct mr_tl_details {
    const struct mr_timeline *tl;
    struct mr_texts texts;
    uint32_t *kernel; /* of each op: the text of its launch; 0: none */
    uint32_t copy[8][8];
    uint32_t driver, *domains; /* of each string: the text "domain NAME" */
};

static int add_text(struct mr_tl_details *details, const char *text, uint32_t *out)
{
    return mr_texts_add(&details->texts, text, strlen(text), out, NULL);
}

enum {
    SQL_ROW,
    SQL_GRID,
    SQL_BLOCK = SQL_GRID + 3,
    SQL_REGISTERS = SQL_BLOCK + 3,
    SQL_STATIC,
    SQL_DYNAMIC
};

/* seen: the texts of forms that there were, by their hash: most launches are like another. */
static int launch_text(struct mr_tl_details *details, sqlite3_stmt *row, struct mr_map *seen,
                       uint32_t *out)
{
    char text[256];
    uint32_t value[SQL_DYNAMIC + 1] = {0};
    for (int i = SQL_GRID; i <= SQL_DYNAMIC; i++)
        value[i] = (uint32_t)sqlite3_column_int64(row, i);
    bool is_new;
    uint32_t *number = mr_map_at(seen, mr_hash(MR_HASH_START, value, sizeof(value)), 0, &is_new);
    if (!number)
        return -ENOMEM;
    *out = *number;
    if (!is_new)
        return 0;
    snprintf(
        text, sizeof(text),
        "grid %u\xc3\x97%u\xc3\x97%u, block %u\xc3\x97%u\xc3\x97%u, %u registers, %llu B shared",
        value[SQL_GRID], value[SQL_GRID + 1], value[SQL_GRID + 2], value[SQL_BLOCK],
        value[SQL_BLOCK + 1], value[SQL_BLOCK + 2], value[SQL_REGISTERS],
        (unsigned long long)value[SQL_STATIC] + value[SQL_DYNAMIC]);
    int rc = add_text(details, text, out);
    *number = *out;
    return rc;
}

/* The launches' texts by row of their table, which come in order: rows of one launch's form share a
 * text. */
struct launches {
    struct launch {
        int64_t row;
        uint32_t text;
    } * at;
    uint64_t n, capacity;
};

static int launch_add(struct mr_tl_details *details, sqlite3_stmt *row, struct mr_map *seen,
                      struct launches *out)
{
    struct launch launch = {.row = sqlite3_column_int64(row, SQL_ROW)};
    int rc = launch_text(details, row, seen, &launch.text);
    if (rc == 0)
        rc = mr_grow("timeline: launches", &out->at, &out->capacity, out->n + 1, sizeof(launch));
    if (rc == 0)
        out->at[out->n++] = launch;
    return rc;
}

static int read_launches(struct mr_tl_details *details, struct launches *out)
{
    static const char *const sql = "SELECT rowid, gridX, gridY, gridZ, blockX, blockY, blockZ, "
                                   "registersPerThread, staticSharedMemory, dynamicSharedMemory"
                                   " FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY rowid";
    sqlite3_stmt *row;
    int code = sqlite3_prepare_v2(details->tl->rec->db, sql, -1, &row, NULL);
    if (code != SQLITE_OK && code != SQLITE_ERROR)
        return mr_recording_error(details->tl->rec->db, details->tl->rec->path, "details");
    if (code == SQLITE_ERROR)
        return 0; /* a table without them: no details */
    struct mr_map seen = {0};
    int rc = 0, step;
    while ((step = sqlite3_step(row)) == SQLITE_ROW && rc == 0)
        rc = launch_add(details, row, &seen, out);
    if (rc == 0 && step != SQLITE_DONE)
        rc = mr_recording_error(details->tl->rec->db, details->tl->rec->path, "kernels");
    sqlite3_finalize(row);
    mr_map_free(&seen);
    return rc;
}

static int by_row(const void *key, const void *launch)
{
    int64_t row = *(const int64_t *)key, other = ((const struct launch *)launch)->row;
    return (row > other) - (row < other);
}

/* near: the last one's place. Kernels were recorded about in the order that they began in. */
static uint32_t launch_of(const struct launches *launches, int64_t row, uint64_t *near)
{
    if (*near + 1 < launches->n && launches->at[*near + 1].row == row)
        return launches->at[++*near].text;
    const struct launch *found =
        launches->n ? bsearch(&row, launches->at, launches->n, sizeof(*launches->at), by_row)
                    : NULL;
    if (!found)
        return 0;
    *near = (uint64_t)(found - launches->at);
    return found->text;
}

static int launches_of_ops(struct mr_tl_details *details)
{
    const struct mr_recording *rec = details->tl->rec;
    struct launches launches = {0};
    uint64_t near = 0;
    int rc = read_launches(details, &launches);
    for (uint64_t i = 0; i < rec->n_ops && rc == 0; i++) {
        const struct mr_rec_op *op = &rec->ops[i];
        if (op->kind == MR_OP_KERNEL && op->detail != MR_NONE)
            details->kernel[i] = launch_of(&launches, op->detail, &near);
    }
    free(launches.at);
    return rc;
}

static int add_copies(struct mr_tl_details *details)
{
    char text[64];
    int rc = 0;
    for (uint8_t i = 0; i < 64 && rc == 0; i++) {
        snprintf(text, sizeof(text), "%s to %s", memory_name(i / 8), memory_name(i % 8));
        rc = add_text(details, text, &details->copy[i / 8][i % 8]);
    }
    return rc;
}

static int add_domains(struct mr_tl_details *details)
{
    const struct mr_recording *rec = details->tl->rec;
    int rc = 0;
    for (uint64_t i = 0; i < rec->n_ranges && rc == 0; i++) {
        uint32_t domain = rec->ranges[i].domain;
        char text[256];
        if (!domain || details->domains[domain])
            continue;
        snprintf(text, sizeof(text), "domain %s", rec->strings[domain]);
        rc = add_text(details, text, &details->domains[domain]);
    }
    return rc;
}

int mr_tl_details_create(const struct mr_timeline *tl, struct mr_tl_details **out)
{
    struct mr_tl_details *details = calloc(1, sizeof(*details));
    if (!details)
        return mr_error_nomem("timeline: details", sizeof(*details));
    details->tl = tl;
    details->kernel = calloc(tl->rec->n_ops + 1, sizeof(*details->kernel));
    details->domains = calloc((size_t)tl->rec->n_strings + 1, sizeof(*details->domains));
    int rc = details->kernel && details->domains
                 ? mr_texts_init(&details->texts)
                 : mr_error_nomem("timeline: details", tl->rec->n_ops * 4);
    if (rc == 0)
        rc = add_text(details, "driver API", &details->driver);
    if (rc == 0)
        rc = add_copies(details);
    if (rc == 0)
        rc = add_domains(details);
    if (rc == 0)
        rc = launches_of_ops(details);
    if (rc < 0) {
        mr_tl_details_destroy(details);
        return rc;
    }
    *out = details;
    return 0;
}

void mr_tl_details_destroy(struct mr_tl_details *details)
{
    if (!details)
        return;
    mr_texts_free(&details->texts);
    free(details->kernel);
    free(details->domains);
    free(details);
}

uint32_t mr_tl_detail(const struct mr_tl_details *details, const struct mr_lane *lane,
                      const struct mr_tl_event *event)
{
    const struct mr_recording *rec = details->tl->rec;
    if (lane->kind == MR_LANE_STREAM) {
        const struct mr_rec_op *op = &rec->ops[event->source];
        return op->kind == MR_OP_COPY ? details->copy[op->src & 7][op->dst & 7]
                                      : details->kernel[event->source];
    }
    if (lane->kind == MR_LANE_CALLS)
        return rec->apis[event->source].driver ? details->driver : 0;
    return lane->kind == MR_LANE_RANGES ? details->domains[rec->ranges[event->source].domain] : 0;
}

const struct mr_texts *mr_tl_detail_texts(const struct mr_tl_details *details)
{
    return &details->texts;
}

/* ---- notes ---- */

/* what: after the number, of one and of more. */
static int add_note(struct mr_texts *out, uint64_t n, const char *one, const char *more)
{
    char line[160];
    uint32_t number;
    if (!n)
        return 0;
    int bytes = snprintf(line, sizeof(line), "%llu %s", (unsigned long long)n, n == 1 ? one : more);
    return mr_texts_add(out, line, (size_t)MR_MIN(bytes, (int)sizeof(line) - 1), &number, NULL);
}

static int recorded_notes(const struct mr_timeline *tl, struct mr_texts *out)
{
    static const char *const plain[] = {"no_cuda", "no_metrics", "no_nvtx", "warning"};
    const struct mr_recording *rec = tl->rec;
    int rc = 0;
    for (uint32_t i = 0; i < rec->n_notes && rc == 0; i++) {
        const char *name = rec->strings[rec->notes[i].name],
                   *text = rec->strings[rec->notes[i].text];
        uint32_t number;
        for (size_t k = 0; k < MR_COUNT(plain) && rc == 0; k++)
            if (*text && !strcmp(name, plain[k]))
                rc = mr_texts_add(out, text, strlen(text), &number, NULL);
    }
    return rc;
}

int mr_timeline_notes(const struct mr_timeline *tl, struct mr_texts *out)
{
    const struct mr_recording *rec = tl->rec;
    uint64_t killed = 0;
    for (uint32_t i = 0; i < rec->n_processes; i++)
        killed += rec->processes[i].killed == 1;
    int rc = mr_texts_init(out);
    if (rc == 0)
        rc = add_note(out, rec->n_dropped,
                      "record was dropped while recording: the timeline is "
                      "incomplete",
                      "records were dropped while recording: the timeline is incomplete");
    if (rc == 0)
        rc = add_note(out, rec->n_lost_times, "device record has no times and is not shown",
                      "device records have no times and are not shown");
    if (rc == 0)
        rc = add_note(out, rec->n_no_length,
                      "device record does not end after it begins: it has no length",
                      "device records do not end after they begin: they have no length");
    if (rc == 0)
        rc = add_note(out, rec->n_unbalanced, "NVTX range is open or crosses another",
                      "NVTX ranges are open or cross each other");
    if (rc == 0)
        rc = add_note(out, killed, "process was killed: its last moments may be missing",
                      "processes were killed: their last moments may be missing");
    if (rc == 0)
        rc = add_note(out, tl->n_hidden, "event is left out: too many at once on one row",
                      "events are left out: too many at once on one row");
    return rc == 0 ? recorded_notes(tl, out) : rc;
}
