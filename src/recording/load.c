/* Loading: reading rows of either schema, and the tables of who and where. */
#include "recording/load.h"
#include "recording/big.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static int select_text(struct mr_load *load, const struct mr_load_source *source, char *sql,
                       size_t cap)
{
    size_t n = (size_t)snprintf(sql, cap, "SELECT ");
    for (uint32_t i = 0; i < MR_LOAD_COLUMNS && source->columns[i]; i++) {
        const char *column = source->columns[i];
        bool is_row = !strcmp(column, "rowid"),
             exists = is_row || mr_recording_has(load->recording, source->table, column);
        if (!exists && !strcmp(column, "start"))
            return mr_error_set(MR_EFORMAT,
                                "%s: its table %s has no column start: made by a program of "
                                "another version, or damaged",
                                load->recording->path, source->table);
        const char *quote = exists && !is_row ? "\"" : "";
        n += (size_t)snprintf(sql + n, cap - n, "%s%s%s%s", i ? ", " : "", quote,
                              exists ? column : "NULL", quote);
    }
    snprintf(sql + n, cap - n, " FROM %s", source->table);
    return 0;
}

static int read_rows(struct mr_load *load, const struct mr_load_source *source,
                     sqlite3_stmt *values)
{
    uint64_t n_rows = 0;
    int step;
    while ((step = sqlite3_step(values)) == SQLITE_ROW) {
        int rc = source->row(load, values);
        if (rc < 0)
            return rc;
        if (++n_rows > load->rows_most)
            return mr_error_set(MR_EFORMAT,
                                "%s: %s: the database is damaged: a table has more rows than bytes",
                                load->recording->path, source->table);
    }
    return step == SQLITE_DONE
               ? 0
               : mr_recording_error(load->recording->db, load->recording->path, source->table);
}

static int load_source(struct mr_load *load, const struct mr_load_source *source)
{
    char sql[1024];
    sqlite3_stmt *values;
    struct mr_recording *recording = load->recording;
    if (!mr_recording_has(recording, source->table, NULL))
        return 0;
    int rc = select_text(load, source, sql, sizeof(sql));
    if (rc < 0)
        return rc;
    load->table = source->table;
    if (sqlite3_prepare_v2(recording->db, sql, -1, &values, NULL) != SQLITE_OK)
        return mr_recording_error(recording->db, recording->path, source->table);
    rc = read_rows(load, source, values);
    sqlite3_finalize(values);
    return rc;
}

int mr_load_sources(struct mr_load *load, const struct mr_load_source *sources, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = load_source(load, &sources[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

uint64_t mr_load_u64(sqlite3_stmt *values, int column)
{
    int64_t value = sqlite3_column_int64(values, column);
    return value < 0 ? 0 : (uint64_t)value;
}

uint32_t mr_load_u32(sqlite3_stmt *values, int column)
{
    return (uint32_t)MR_MIN(mr_load_u64(values, column), (uint64_t)UINT32_MAX);
}

void mr_load_span(sqlite3_stmt *values, int start, int end, uint64_t *out_start, uint64_t *out_end)
{
    const uint64_t most = (uint64_t)INT64_MAX / 2;
    *out_start = MR_MIN(mr_load_u64(values, start), most);
    *out_end = MR_MIN(MR_MAX(mr_load_u64(values, end), *out_start), most);
}

int mr_load_grow(struct mr_load *load, void *array, uint64_t n, uint64_t *capacity, size_t bytes)
{
    if (n >= UINT32_MAX - 1)
        return mr_error_set(MR_ELIMIT, "%s: %s has more than %llu rows; look at a part of it",
                            load->recording->path, load->table, (unsigned long long)n);
    return mr_big_grow(load->recording->path, array, capacity, n + 1, bytes);
}

/* A text of another id's: an integer is a number of StringIds, a text is itself. */
int mr_load_text(struct mr_load *load, sqlite3_stmt *values, int column, uint32_t *out)
{
    if (sqlite3_column_type(values, column) == SQLITE_TEXT) {
        const char *text = (const char *)sqlite3_column_text(values, column);
        if (!text)
            return mr_error_nomem(load->recording->path, 0);
        return mr_texts_add(load->texts, text, (size_t)sqlite3_column_bytes(values, column), out,
                            NULL);
    }
    if (sqlite3_column_type(values, column) == SQLITE_NULL) {
        *out = 0;
        return 0;
    }
    const uint32_t *number =
        mr_map_find(&load->strings, (uint64_t)sqlite3_column_int64(values, column));
    *out = number ? *number : load->unknown;
    return 0;
}

int mr_load_process(struct mr_load *load, int64_t global, uint16_t *out)
{
    struct mr_recording *recording = load->recording;
    bool is_new;
    uint32_t last = recording->n_processes < UINT16_MAX ? recording->n_processes : UINT16_MAX - 1u;
    uint32_t *index = mr_map_at(&load->processes, (uint64_t)global >> 24, last, &is_new);
    if (!index)
        return -ENOMEM;
    *out = (uint16_t)*index;
    if (!is_new || recording->n_processes == UINT16_MAX)
        return 0;
    int rc = mr_load_grow(load, &recording->processes, recording->n_processes,
                          &load->processes_capacity, sizeof(*recording->processes));
    if (rc < 0)
        return rc;
    recording->processes[recording->n_processes++] =
        (struct mr_rec_process){.number = (uint64_t)global >> 24,
                                .pid = (uint32_t)((uint64_t)global >> 24 & 0xffffff),
                                .killed = 2};
    return 0;
}

int mr_load_thread(struct mr_load *load, int64_t global, uint32_t *out)
{
    struct mr_recording *recording = load->recording;
    bool is_new;
    uint32_t *index = mr_map_at(&load->threads, (uint64_t)global, recording->n_threads, &is_new);
    if (!index)
        return -ENOMEM;
    *out = *index;
    if (!is_new)
        return 0;
    struct mr_rec_thread thread = {.tid = (uint32_t)(global & 0xffffff)};
    int rc = mr_load_process(load, global, &thread.process);
    if (rc < 0)
        return rc;
    rc = mr_load_grow(load, &recording->threads, recording->n_threads, &load->threads_capacity,
                      sizeof(thread));
    if (rc < 0)
        return rc;
    recording->threads[recording->n_threads++] = thread;
    return 0;
}

static int device_add(struct mr_load *load, const struct mr_rec_device *device)
{
    struct mr_recording *recording = load->recording;
    if (recording->n_devices == UINT16_MAX)
        return 0;
    int rc = mr_load_grow(load, &recording->devices, recording->n_devices, &load->devices_capacity,
                          sizeof(*recording->devices));
    if (rc < 0)
        return rc;
    recording->devices[recording->n_devices++] = *device;
    return 0;
}

static uint64_t device_key(uint64_t process, uint32_t id)
{
    return mr_mix64(process) + id;
}

/* A device without a row of its own gets one that is only a number. Rows of joined recordings name
 * the whole process, for pids of several hosts may be the same; others the pid. */
int mr_load_device(struct mr_load *load, int64_t global_pid, uint32_t id, uint16_t *out)
{
    uint64_t process = (uint64_t)global_pid >> 24;
    bool is_new = !mr_map_find(&load->devices, device_key(process, id));
    if (is_new)
        process &= 0xffffff;
    uint32_t *index = mr_map_at(&load->devices, device_key(process, id), 0, &is_new);
    if (!index)
        return -ENOMEM;
    if (is_new) {
        bool is_new_gpu;
        uint32_t *gpu = mr_map_at(&load->gpus, id, load->recording->n_devices, &is_new_gpu);
        if (!gpu)
            return -ENOMEM;
        *index = *gpu;
        if (is_new_gpu) {
            int rc = device_add(load, &(struct mr_rec_device){.id = id});
            if (rc < 0)
                return rc;
        }
    }
    *out = (uint16_t)MR_MIN(*index, UINT16_MAX - 1u);
    return 0;
}

static int string_row(struct mr_load *load, sqlite3_stmt *values)
{
    const char *text = (const char *)sqlite3_column_text(values, 1);
    uint32_t number = 0;
    if (!text && sqlite3_column_type(values, 1) == SQLITE_TEXT)
        return mr_error_nomem(load->recording->path, 0);
    int rc = mr_texts_add(load->texts, text ? text : "",
                          text ? (size_t)sqlite3_column_bytes(values, 1) : 0, &number, NULL);
    if (rc < 0)
        return rc;
    uint32_t *slot =
        mr_map_at(&load->strings, (uint64_t)sqlite3_column_int64(values, 0), number, NULL);
    return slot ? 0 : -ENOMEM;
}

static int gpu_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_rec_device device = {.id = mr_load_u32(values, 0),
                                   .major = mr_load_u32(values, 2),
                                   .minor = mr_load_u32(values, 3),
                                   .n_sms = mr_load_u32(values, 4),
                                   .n_copy_engines = mr_load_u32(values, 5),
                                   .memory_bytes = mr_load_u64(values, 6),
                                   .memory_bandwidth = mr_load_u64(values, 7)};
    int rc = mr_load_text(load, values, 1, &device.name);
    if (rc < 0)
        return rc;
    bool is_new;
    if (!mr_map_at(&load->gpus, device.id, load->recording->n_devices, &is_new))
        return -ENOMEM;
    return is_new ? device_add(load, &device) : 0;
}

/* Which of a process's numbers is which GPU. */
static int cuda_device_row(struct mr_load *load, sqlite3_stmt *values)
{
    const uint32_t *gpu = mr_map_find(&load->gpus, mr_load_u32(values, 0));
    if (!gpu)
        return 0;
    uint64_t key = device_key(mr_load_u64(values, 2), mr_load_u32(values, 1));
    return mr_map_at(&load->devices, key, *gpu, NULL) ? 0 : -ENOMEM;
}

static int process_row(struct mr_load *load, sqlite3_stmt *values)
{
    uint16_t process;
    int rc = mr_load_process(load, sqlite3_column_int64(values, 0), &process);
    if (rc < 0)
        return rc;
    return mr_load_text(load, values, 1, &load->recording->processes[process].name);
}

static int our_process_row(struct mr_load *load, sqlite3_stmt *values)
{
    uint16_t process;
    int rc = mr_load_process(load, sqlite3_column_int64(values, 0), &process);
    if (rc < 0)
        return rc;
    struct mr_rec_process *known = &load->recording->processes[process];
    mr_load_span(values, 2, 3, &known->start_ns, &known->end_ns);
    known->killed = mr_load_u64(values, 4) ? 0 : 1;
    known->ppid = mr_load_u32(values, 5);
    return mr_load_text(load, values, 1, &known->command);
}

static int thread_row(struct mr_load *load, sqlite3_stmt *values)
{
    uint32_t thread;
    int rc = mr_load_thread(load, sqlite3_column_int64(values, 0), &thread);
    return rc < 0 ? rc : mr_load_text(load, values, 1, &load->recording->threads[thread].name);
}

static int note_add(struct mr_load *load, const struct mr_rec_note *note)
{
    struct mr_recording *recording = load->recording;
    int rc = mr_load_grow(load, &recording->notes, recording->n_notes, &load->notes_capacity,
                          sizeof(*note));
    if (rc < 0)
        return rc;
    recording->notes[recording->n_notes++] = *note;
    return 0;
}

static int our_note_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_rec_note note = {.value = sqlite3_column_int64(values, 3)};
    uint16_t process;
    int64_t global = sqlite3_column_int64(values, 0);
    int rc = global ? mr_load_process(load, global, &process) : 0; /* 0: the merging's own */
    if (rc < 0)
        return rc;
    note.process = global ? process : MR_NONE;
    rc = mr_load_text(load, values, 1, &note.name);
    if (rc < 0)
        return rc;
    rc = mr_load_text(load, values, 2, &note.text);
    if (rc < 0)
        return rc;
    if (global && note.value > 0 && note.value < MR_NONE) {
        struct mr_rec_process *of = &load->recording->processes[process];
        const char *name = load->texts->text[note.name];
        if (strcmp(name, "file") == 0)
            of->file = (uint32_t)note.value;
        else if (strcmp(name, "host") == 0)
            of->host = (uint32_t)note.value;
        else if (strcmp(name, "n_cores") == 0)
            of->n_cores = (uint32_t)note.value;
    }
    return note_add(load, &note);
}

/* The export's own: from severity 2 on they are warnings and errors. */
static int diagnostic_row(struct mr_load *load, sqlite3_stmt *values)
{
    struct mr_rec_note note = {.process = MR_NONE};
    if (sqlite3_column_type(values, 0) == SQLITE_INTEGER && sqlite3_column_int64(values, 0) < 2)
        return 0;
    int rc = mr_texts_add(load->texts, "warning", 7, &note.name, NULL);
    if (rc < 0)
        return rc;
    rc = mr_load_text(load, values, 1, &note.text);
    return rc < 0 ? rc : note_add(load, &note);
}

/* Read in this order: MILLRACE_PROCESSES before PROCESSES, which only adds names. */
static const struct mr_load_source devices_of[] = {
    {"StringIds", string_row, {"id", "value"}},
    {"TARGET_INFO_GPU",
     gpu_row,
     {"id", "name", "computeMajor", "computeMinor", "smCount", "asyncEngines", "totalMemory",
      "memoryBandwidth"}},
    {"TARGET_INFO_CUDA_DEVICE", cuda_device_row, {"gpuId", "cudaId", "pid"}},
};
static const struct mr_load_source our_processes[] = {
    {"MILLRACE_PROCESSES",
     our_process_row,
     {"globalPid", "commandId", "start", "end", "exited", "ppid"}},
};
static const struct mr_load_source process_names[] = {
    {"PROCESSES", process_row, {"globalPid", "name"}},
    {"ThreadNames", thread_row, {"globalTid", "nameId"}},
};
static const struct mr_load_source our_notes[] = {
    {"MILLRACE_NOTES", our_note_row, {"globalPid", "nameId", "textId", "value"}},
};
static const struct mr_load_source diagnostics[] = {
    {"DIAGNOSTIC_EVENT", diagnostic_row, {"severity", "text"}},
};

int mr_load_names(struct mr_load *load)
{
    bool ours = load->recording->ours;
    int rc = mr_texts_init(load->texts);
    if (rc < 0)
        return rc;
    rc = mr_texts_add(load->texts, "?", 1, &load->unknown, NULL);
    if (rc < 0)
        return rc;
    rc = mr_load_sources(load, devices_of, MR_COUNT(devices_of));
    if (rc < 0)
        return rc;
    rc = ours ? mr_load_sources(load, our_processes, MR_COUNT(our_processes)) : 0;
    if (rc < 0)
        return rc;
    rc = mr_load_sources(load, process_names, MR_COUNT(process_names));
    if (rc < 0)
        return rc;
    return ours ? mr_load_sources(load, our_notes, MR_COUNT(our_notes))
                : mr_load_sources(load, diagnostics, MR_COUNT(diagnostics));
}

static void load_free(struct mr_load *load)
{
    mr_map_free(&load->strings);
    mr_map_free(&load->processes);
    mr_map_free(&load->threads);
    mr_map_free(&load->devices);
    mr_map_free(&load->gpus);
    mr_map_free(&load->domains);
    free(load->classes);
}

int mr_recording_load(struct mr_recording *recording)
{
    if (recording->loaded)
        return 0;
    struct mr_load load = {.recording = recording,
                           .texts = &((struct mr_recording_whole *)recording)->texts};
    struct stat st;
    /* pages that are children of many others would multiply rows without end */
    load.rows_most = !recording->unnamed && stat(recording->path, &st) == 0
                         ? (uint64_t)st.st_size / 4
                         : UINT64_MAX;
    if (load.texts->n)
        return mr_error_set(MR_EFORMAT, "%s: loading failed before; open it again",
                            recording->path);
    int rc = mr_load_names(&load);
    if (rc < 0)
        goto end;
    rc = mr_load_events(&load);
    if (rc < 0)
        goto end;
    rc = mr_load_join(&load);
end:
    rc = mr_recording_result(recording, rc);
    load_free(&load);
    recording->strings = load.texts->text;
    recording->n_strings = load.texts->n;
    recording->loaded = rc >= 0;
    return rc;
}
