#include "recording/stacks.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

struct loading {
    struct mr_recording *recording;
    struct mr_stacks *stacks;
    struct mr_map node_of;   /* the database's number -> node */
    struct mr_map known;     /* hash of (parent, place) -> node */
    struct mr_map place_of;  /* hash of a place -> place */
    struct mr_map thread_of; /* globalTid -> thread */
    uint64_t room_nodes, room_places, room_samples, room_threads;
};

static int failed(const struct loading *load, const char *what)
{
    return mr_recording_error(load->recording->db, load->recording->path, what);
}

static int rows(struct loading *load, const char *sql, const char *what,
                int (*row)(struct loading *load, sqlite3_stmt *values))
{
    sqlite3_stmt *values;
    if (sqlite3_prepare_v2(load->recording->db, sql, -1, &values, NULL) != SQLITE_OK)
        return failed(load, what);
    int step, rc = 0;
    while (rc == 0 && (step = sqlite3_step(values)) == SQLITE_ROW)
        rc = row(load, values);
    if (rc == 0 && step != SQLITE_DONE)
        rc = failed(load, what);
    sqlite3_finalize(values);
    return rc;
}

static int text_at(struct loading *load, sqlite3_stmt *values, int column, uint32_t *out)
{
    const char *text = (const char *)sqlite3_column_text(values, column);
    size_t bytes = text ? (size_t)sqlite3_column_bytes(values, column) : 1;
    return mr_texts_add(&load->stacks->texts, text ? text : "?", bytes, out, NULL);
}

static uint64_t hash_of(uint64_t a, uint64_t b)
{
    return mr_mix64(mr_mix64(a) + b);
}

static int place_get(struct loading *load, const struct mr_stack_place *place, uint32_t *out)
{
    struct mr_stacks *s = load->stacks;
    uint64_t key = hash_of((uint64_t)place->function << 32 | place->file,
                           (uint64_t)place->is_native << 32 | place->line);
    bool is_new;
    uint32_t *number = mr_map_at(&load->place_of, key, (uint32_t)s->n_places, &is_new);
    if (!number)
        return -ENOMEM;
    *out = *number;
    if (!is_new)
        return 0;
    if (mr_grow("stacks", &s->places, &load->room_places, s->n_places + 1, sizeof *s->places) < 0)
        return -ENOMEM;
    s->places[s->n_places++] = *place;
    return 0;
}

static int node_get(struct loading *load, uint32_t parent, uint32_t place, uint32_t *out)
{
    struct mr_stacks *s = load->stacks;
    bool is_new;
    uint32_t *number = mr_map_at(&load->known, hash_of((uint64_t)parent << 32 | place, 1),
                                 (uint32_t)s->n_nodes, &is_new);
    if (!number)
        return -ENOMEM;
    *out = *number;
    if (!is_new)
        return 0;
    if (mr_grow("stacks", &s->nodes, &load->room_nodes, s->n_nodes + 1, sizeof *s->nodes) < 0)
        return -ENOMEM;
    s->nodes[s->n_nodes++] = (struct mr_stack_node){parent, place};
    return 0;
}

/* id, parentId, function, file, line; by id, so that a parent is there before. One that is not was
 * lost with the end of a killed process. */
static int node_row(struct loading *load, sqlite3_stmt *values)
{
    struct mr_stack_place place = {.line = (uint32_t)sqlite3_column_int64(values, 4),
                                   .is_native = sqlite3_column_int64(values, 5) != 0};
    uint32_t number, node;
    place.module = MR_NONE;
    int rc =
        sqlite3_column_type(values, 6) == SQLITE_TEXT ? text_at(load, values, 6, &place.module) : 0;
    if (rc < 0)
        return rc;
    rc = text_at(load, values, 2, &place.function);
    if (rc < 0)
        return rc;
    rc = text_at(load, values, 3, &place.file);
    if (rc < 0)
        return rc;
    rc = place_get(load, &place, &number);
    if (rc < 0)
        return rc;
    bool outermost = sqlite3_column_type(values, 1) == SQLITE_NULL;
    const uint32_t *parent =
        outermost ? NULL : mr_map_find(&load->node_of, (uint64_t)sqlite3_column_int64(values, 1));
    rc = node_get(load, parent ? *parent : MR_NONE, number, &node);
    if (rc < 0)
        return rc;
    uint64_t id = (uint64_t)sqlite3_column_int64(values, 0);
    return mr_map_at(&load->node_of, id, node, NULL) ? 0 : -ENOMEM;
}

/* Globally, a thread has at most 48 bits and one that tells processes apart. */
static uint64_t thread_key(uint64_t global_tid, bool is_native)
{
    return global_tid ^ (uint64_t)is_native << 63;
}

static int thread_get(struct loading *load, uint64_t global_tid, bool is_native, uint32_t *out)
{
    struct mr_stacks *s = load->stacks;
    bool is_new;
    uint32_t *number = mr_map_at(&load->thread_of, thread_key(global_tid, is_native),
                                 (uint32_t)s->n_threads, &is_new);
    if (!number)
        return -ENOMEM;
    *out = *number;
    if (!is_new)
        return 0;
    if (mr_grow("threads", &s->threads, &load->room_threads, s->n_threads + 1, sizeof *s->threads) <
        0)
        return -ENOMEM;
    s->threads[s->n_threads++] =
        (struct mr_stack_thread){.global_tid = global_tid, .is_native = is_native};
    return 0;
}

/* start, end, globalTid, stackId, samples, cpuTime */
static int sample_row(struct loading *load, sqlite3_stmt *values)
{
    struct mr_stacks *s = load->stacks;
    int64_t start = sqlite3_column_int64(values, 0), end = sqlite3_column_int64(values, 1);
    int64_t n = sqlite3_column_int64(values, 4), cpu = sqlite3_column_int64(values, 5);
    const uint32_t *node = mr_map_find(&load->node_of, (uint64_t)sqlite3_column_int64(values, 3));
    if (!node || start < 0 || end <= start || n <= 0)
        return 0;
    struct mr_stack_sample sample = {(uint64_t)start,
                                     (uint64_t)end,
                                     (uint64_t)MR_MIN(MR_MAX(cpu, 0), end - start),
                                     *node,
                                     0,
                                     (uint32_t)MR_MIN(n, UINT32_MAX)};
    int rc = thread_get(load, (uint64_t)sqlite3_column_int64(values, 2),
                        s->places[s->nodes[*node].place].is_native, &sample.thread);
    if (rc < 0)
        return rc;
    if (mr_grow("samples", &s->samples, &load->room_samples, s->n_samples + 1, sizeof *s->samples) <
        0)
        return -ENOMEM;
    s->samples[s->n_samples++] = sample;
    return 0;
}

/* As src/loader names its threads: for the kernel, and in its spans. */
static bool is_worker(const char *name)
{
    return strcmp(name, "mr-worker") == 0 ||
           (strncmp(name, "worker ", 7) == 0 && name[7 + strspn(name + 7, "0123456789")] == 0);
}

/* globalTid, the thread's name, the process's */
static int name_row(struct loading *load, sqlite3_stmt *values)
{
    uint64_t global_tid = (uint64_t)sqlite3_column_int64(values, 0);
    const char *name = (const char *)sqlite3_column_text(values, 1);
    const char *process = (const char *)sqlite3_column_text(values, 2);
    uint32_t pid = global_tid >> 24 & 0xffffff, tid = global_tid & 0xffffff;
    char label[264];
    if (tid == pid)
        snprintf(label, sizeof label, "%.100s (%u)",
                 name      ? name
                 : process ? process
                           : "process",
                 pid);
    else
        snprintf(label, sizeof label, "%.100s (%u): thread %u%s%.100s",
                 process ? process : "process", pid, tid, name ? " " : "", name ? name : "");
    int rc = 0;
    for (int native = 0; native < 2 && rc == 0; native++) {
        const uint32_t *thread = mr_map_find(&load->thread_of, thread_key(global_tid, native));
        if (thread)
            load->stacks->threads[*thread].is_worker = name && is_worker(name);
        if (thread)
            rc = mr_texts_add(&load->stacks->texts, label, strlen(label),
                              &load->stacks->threads[*thread].label, NULL);
        if (!native && mr_map_find(&load->thread_of, thread_key(global_tid, true)) && thread)
            strcat(label, " (C)");
    }
    return rc;
}

#define FROM_STACKS                                                                                \
    " FROM MILLRACE_STACKS s LEFT JOIN StringIds f ON f.id = s.functionId"                         \
    " LEFT JOIN StringIds p ON p.id = s.fileId ORDER BY s.id"

static int read_all(struct loading *load)
{
    int rc = mr_texts_init(&load->stacks->texts);
    if (rc < 0)
        return rc;
    rc = rows(load,
              mr_recording_has(load->recording, "MILLRACE_STACKS", "isNative")
                  ? "SELECT s.id, s.parentId, f.value, p.value, s.line, s.isNative,"
                    " (SELECT value FROM StringIds WHERE id = s.moduleId)" FROM_STACKS
                  : "SELECT s.id, s.parentId, f.value, p.value, s.line, 0, 0" FROM_STACKS,
              "MILLRACE_STACKS", node_row);
    if (rc < 0)
        return rc;
    rc = rows(load,
              "SELECT start, \"end\", globalTid, stackId, samples, cpuTime FROM COMPOSITE_EVENTS",
              "COMPOSITE_EVENTS", sample_row);
    if (rc < 0)
        return rc;
    return rows(load,
                "SELECT c.globalTid, n.value, p.name FROM (SELECT DISTINCT globalTid FROM"
                " COMPOSITE_EVENTS) c LEFT JOIN ThreadNames t ON t.globalTid = c.globalTid"
                " LEFT JOIN StringIds n ON n.id = t.nameId"
                " LEFT JOIN PROCESSES p ON p.globalPid >> 24 = c.globalTid >> 24 ORDER BY t.rowid",
                "ThreadNames", name_row);
}

int mr_stacks_load(struct mr_recording *recording, struct mr_stacks *out)
{
    *out = (struct mr_stacks){0};
    if (!mr_recording_has(recording, "MILLRACE_STACKS", "line") ||
        !mr_recording_has(recording, "COMPOSITE_EVENTS", "stackId") ||
        !mr_recording_has(recording, "ThreadNames", "nameId") ||
        !mr_recording_has(recording, "PROCESSES", "globalPid"))
        return 0;
    struct loading load = {.recording = recording, .stacks = out};
    int rc = read_all(&load);
    mr_map_free(&load.node_of);
    mr_map_free(&load.known);
    mr_map_free(&load.place_of);
    mr_map_free(&load.thread_of);
    return rc;
}

void mr_stacks_free(struct mr_stacks *stacks)
{
    mr_texts_free(&stacks->texts);
    free(stacks->places);
    free(stacks->nodes);
    free(stacks->samples);
    free(stacks->threads);
    *stacks = (struct mr_stacks){0};
}

const char *mr_stack_line(const struct mr_stacks *stacks, uint32_t place, bool whole, char *out,
                          size_t bytes)
{
    const struct mr_stack_place *at = &stacks->places[place];
    const char *file = stacks->texts.text[at->file], *slash = strrchr(file, '/');
    const char *shown = slash && slash[1] && !whole ? slash + 1 : file;
    if (at->line)
        snprintf(out, bytes, "%s:%u", shown, at->line);
    else
        snprintf(out, bytes, "%s", shown);
    return out;
}
