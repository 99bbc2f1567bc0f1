/* Parts into a recording. Every part is read three times, so that nothing of it but its names is
 * kept in memory. */
#include "recording/part_read.h"
#include "recording/store.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct part {
    char *path;
    uint64_t start_ns, start_unix_ns;
};

struct merge {
    const char *folder;
    struct part *parts;
    uint32_t n_parts;
    uint64_t capacity;
    struct mr_store *store;
    struct mr_map names; /* of the part: its numbers -> the store's */
    uint32_t unknown;    /* the store's number of "?" */
    char *text;          /* MR_PART_TEXT_BYTES */
    uint64_t n_cut, n_unknown_names, n_strange;
};

/* Where a type's record has names. */
static const struct {
    uint8_t type;
    uint16_t offset;
} name_fields[] = {
    {MR_PART_THREAD, offsetof(struct mr_part_thread, name)},
    {MR_PART_PROCESS, offsetof(struct mr_part_process, command)},
    {MR_PART_PROCESS, offsetof(struct mr_part_process, executable)},
    {MR_PART_DEVICE, offsetof(struct mr_part_device, name)},
    {MR_PART_KERNEL, offsetof(struct mr_part_kernel, name)},
    {MR_PART_API, offsetof(struct mr_part_api, name)},
    {MR_PART_RANGE, offsetof(struct mr_part_range, text)},
    {MR_PART_RANGE, offsetof(struct mr_part_range, domain)},
    {MR_PART_RANGE, offsetof(struct mr_part_range, category_name)},
    {MR_PART_OS, offsetof(struct mr_part_os, name)},
    {MR_PART_METRIC, offsetof(struct mr_part_metric, name)},
    {MR_PART_NOTE, offsetof(struct mr_part_note, name)},
    {MR_PART_NOTE, offsetof(struct mr_part_note, text)},
    {MR_PART_STACK, offsetof(struct mr_part_stack, function)},
    {MR_PART_STACK, offsetof(struct mr_part_stack, file)},
};

#define BIT(type) (1u << (type))
#define WHO_TYPES                                                                                  \
    (BIT(MR_PART_THREAD) | BIT(MR_PART_PROCESS) | BIT(MR_PART_DEVICE) | BIT(MR_PART_CONTEXT) |     \
     BIT(MR_PART_STREAM) | BIT(MR_PART_NOTE))
#define EVENT_TYPES (~(WHO_TYPES | BIT(MR_PART_STRING)))

static void names_to_stores(struct merge *merge, enum mr_part_type type,
                            struct mr_part_record *record)
{
    for (size_t i = 0; i < MR_COUNT(name_fields); i++) {
        uint32_t id;
        if (name_fields[i].type != type)
            continue;
        char *at = (char *)record + name_fields[i].offset;
        memcpy(&id, at, sizeof(id));
        if (id == 0)
            continue;
        const uint32_t *number = mr_map_find(&merge->names, id);
        merge->n_unknown_names += !number;
        memcpy(at, number ? number : &merge->unknown, sizeof(id));
    }
}

static int strings_read(struct merge *merge, struct mr_part_reader *reader)
{
    enum mr_part_type type;
    int rc;
    while ((rc = mr_part_next(reader, BIT(MR_PART_STRING), &type)) == 1) {
        uint32_t id, number;
        size_t bytes;
        while ((rc = mr_part_string(reader, &id, merge->text, &bytes)) == 1) {
            rc = mr_store_text(merge->store, merge->text, bytes, &number);
            if (rc < 0)
                return rc;
            if (!mr_map_at(&merge->names, id, number, NULL))
                return -ENOMEM;
        }
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int records_read(struct merge *merge, struct mr_part_reader *reader, uint32_t types)
{
    enum mr_part_type type;
    int rc;
    while ((rc = mr_part_next(reader, types, &type)) == 1) {
        struct mr_part_record record;
        while ((rc = mr_part_record(reader, &record)) == 1) {
            names_to_stores(merge, type, &record);
            rc = mr_store_put(merge->store, type, &record);
            if (rc < 0)
                return rc;
        }
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int part_merge(struct merge *merge, const struct part *part)
{
    struct mr_part_reader *reader;
    int rc = mr_part_open(part->path, &reader);
    if (rc <= 0)
        return rc;
    rc = mr_store_process(merge->store, &reader->header);
    if (rc < 0)
        goto end;
    rc = strings_read(merge, reader);
    if (rc < 0)
        goto end;
    mr_part_rewind(reader);
    rc = records_read(merge, reader, WHO_TYPES);
    if (rc < 0)
        goto end;
    mr_part_rewind(reader);
    rc = records_read(merge, reader, EVENT_TYPES);
end:
    merge->n_cut += reader->cut;
    merge->n_strange += reader->n_strange;
    mr_map_free(&merge->names);
    mr_part_close(reader);
    return rc;
}

static int part_add(struct merge *merge, const char *name)
{
    uint64_t want = merge->n_parts + 1ull;
    if (mr_grow(merge->folder, &merge->parts, &merge->capacity, want, sizeof(*merge->parts)) < 0)
        return -ENOMEM;
    char *path;
    if (asprintf(&path, "%s/%s", merge->folder, name) < 0)
        return mr_error_nomem(merge->folder, strlen(name));
    struct mr_part_reader *reader;
    int rc = mr_part_open(path, &reader);
    if (rc <= 0) {
        merge->n_cut += rc == 0; /* its process was killed before it wrote anything */
        free(path);
        return rc;
    }
    merge->parts[merge->n_parts++] =
        (struct part){path, reader->header.start_ns, reader->header.start_unix_ns};
    mr_part_close(reader);
    return 0;
}

static int parts_find(struct merge *merge)
{
    DIR *dir = opendir(merge->folder);
    if (!dir)
        return mr_error_errno(errno, "%s: the folder of a recording's parts cannot be read",
                              merge->folder);
    int rc = 0;
    const struct dirent *entry;
    while ((errno = 0, entry = readdir(dir))) {
        if (!mr_ends_in(entry->d_name, ".part"))
            continue;
        rc = part_add(merge, entry->d_name);
        if (rc < 0)
            goto end;
    }
    if (errno)
        rc = mr_error_errno(errno, "%s: cannot be read", merge->folder);
end:
    closedir(dir);
    return rc;
}

static int by_start(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return strcmp(x->path, y->path);
}

static int note(struct merge *merge, const char *text)
{
    uint32_t name, number;
    int rc = mr_store_text(merge->store, "warning", 7, &name);
    if (rc < 0)
        return rc;
    rc = mr_store_text(merge->store, text, strlen(text), &number);
    if (rc < 0)
        return rc;
    return mr_store_run(merge->store, "INSERT INTO MILLRACE_NOTES VALUES (0, ?, ?, 0)", "ii",
                        (int64_t)name, (int64_t)number);
}

/* fmt: with one %llu, the count. Nothing is noted of none. */
static int note_count(struct merge *merge, const char *fmt, uint64_t n)
    __attribute__((format(printf, 2, 0)));
static int note_count(struct merge *merge, const char *fmt, uint64_t n)
{
    char text[256];
    if (n == 0)
        return 0;
    snprintf(text, sizeof(text), fmt, (unsigned long long)n);
    return note(merge, text);
}

/* Notes about the merge itself. */
static int notes_put(struct merge *merge)
{
    int rc = merge->n_parts ? 0
                            : note(merge, "nothing is recorded: no process of the program loaded "
                                          "the recorder, or none lived long enough");
    if (rc < 0)
        return rc;
    rc = note_count(merge, "%llu names were lost when a process was killed: they are \"?\"",
                    merge->n_unknown_names);
    if (rc < 0)
        return rc;
    rc = note_count(merge, "%llu records are of kinds that this version does not know: left out",
                    merge->n_strange);
    if (rc < 0)
        return rc;
    rc = note_count(merge,
                    "%llu records with times that go backwards: they have no length, or stand at "
                    "the start",
                    merge->store->n_backwards);
    if (rc < 0)
        return rc;
    return mr_store_meta(merge->store, "n_cut", (int64_t)merge->n_cut);
}

static int parts_merge(struct merge *merge)
{
    int rc = mr_store_text(merge->store, "?", 1, &merge->unknown);
    if (rc < 0)
        return rc;
    if (merge->n_parts) {
        qsort(merge->parts, merge->n_parts, sizeof(*merge->parts), by_start);
        mr_store_origin(merge->store, merge->parts[0].start_ns, merge->parts[0].start_unix_ns);
    }
    for (uint32_t i = 0; i < merge->n_parts; i++) {
        rc = part_merge(merge, &merge->parts[i]);
        if (rc < 0)
            return rc;
    }
    return notes_put(merge);
}

static void merge_free(struct merge *merge)
{
    for (uint32_t i = 0; i < merge->n_parts; i++)
        free(merge->parts[i].path);
    free(merge->parts);
    free(merge->text);
    mr_map_free(&merge->names);
}

static struct mr_merge_stats stats_of(const struct merge *merge)
{
    return (struct mr_merge_stats){
        .size = sizeof(struct mr_merge_stats),
        .n_parts = merge->n_parts,
        .n_cut = merge->n_cut,
        .n_processes = merge->store->n_processes,
        .n_records = merge->store->n_records,
        .n_dropped = merge->store->n_dropped,
        .n_lost_timestamps = merge->store->n_lost_timestamps,
    };
}

int mr_recording_merge(const char *parts, const char *path, int overwrite,
                       struct mr_merge_stats *out_stats)
{
    struct merge merge = {.folder = parts, .text = malloc(MR_PART_TEXT_BYTES)};
    struct mr_merge_stats stats;
    struct stat st;
    int rc = out_stats ? mr_info_check("merge_stats", out_stats, sizeof stats) : 0;
    if (rc < 0)
        goto end;
    rc = merge.text ? parts_find(&merge) : mr_error_nomem(path, MR_PART_TEXT_BYTES);
    if (rc < 0)
        goto end;
    rc = mr_store_create(path, overwrite != 0, &merge.store);
    if (rc < 0)
        goto end;
    rc = parts_merge(&merge);
    if (rc < 0)
        goto end_store;
    stats = stats_of(&merge);
    rc = mr_store_finish(merge.store);
    merge.store = NULL;
    if (rc < 0)
        goto end;
    if (stat(path, &st) == 0)
        stats.bytes = (uint64_t)st.st_size;
    if (out_stats)
        mr_info_give("merge_stats", out_stats, &stats, sizeof stats);
end_store:
    mr_store_abandon(merge.store);
end:
    merge_free(&merge);
    return rc;
}
