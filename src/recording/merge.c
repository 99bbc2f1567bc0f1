/* Parts into a recording: at once when all their processes have ended, or step by step as they
 * grow. */
#include "recording/merge.h"

#include <dirent.h>
#include <errno.h>
#include <millrace/profile.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Left to the program and to its parts: with less on the disk, rows are written when it has
 * ended. */
#define SPARE_BYTES (512ull << 20)

/* A part that is not known yet. [out] parts: in no order. */
static int part_add(struct mr_merge *merge, const char *name, bool last)
{
    uint64_t key = mr_hash(MR_HASH_START, name, strlen(name));
    if (mr_map_find(&merge->known, key))
        return 0;
    if (mr_grow(merge->folder, &merge->parts, &merge->capacity, merge->n_parts + 1,
                sizeof(*merge->parts)) < 0)
        return -ENOMEM;
    char *path;
    if (asprintf(&path, "%s/%s", merge->folder, name) < 0)
        return mr_error_nomem(merge->folder, strlen(name));
    struct mr_part_reader *reader = NULL;
    int rc = mr_part_open(path, &reader);
    if (rc <= 0) {
        merge->n_cut += rc == 0 && last; /* its process was killed before it wrote anything */
        goto end;
    }
    if (!mr_map_at(&merge->known, key, 0, NULL)) {
        rc = -ENOMEM;
        goto end;
    }
    merge->parts[merge->n_parts++] = (struct mr_merge_part){
        .path = path, .header = reader->header, .next = reader->header.header_bytes};
    path = NULL;
end:
    mr_part_close(reader);
    free(path);
    return rc < 0 ? rc : 0;
}

static int folder_look(struct mr_merge *merge, bool last)
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
        rc = part_add(merge, entry->d_name, last);
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
    const struct mr_merge_part *x = a, *y = b;
    if (x->header.start_ns != y->header.start_ns)
        return x->header.start_ns < y->header.start_ns ? -1 : 1;
    return strcmp(x->path, y->path);
}

/*
 * Parts that came since. A folder that changes while it is read may show a part and not an older
 * one, as that of the same process before its exec: what is older stands there in a second look.
 */
static int parts_find(struct mr_merge *merge, bool last)
{
    uint64_t before = merge->n_parts, found;
    do {
        found = merge->n_parts;
        int rc = folder_look(merge, last && found == before);
        if (rc < 0)
            return rc;
    } while (merge->n_parts > found && !last);
    if (merge->n_parts > before)
        qsort(merge->parts + before, merge->n_parts - before, sizeof(*merge->parts), by_start);
    if (merge->n_parts && !merge->store->has_origin)
        mr_store_origin(merge->store, merge->parts[0].header.start_ns,
                        merge->parts[0].header.start_unix_ns);
    for (uint64_t i = before; i < merge->n_parts; i++) {
        int rc = mr_store_process(merge->store, &merge->parts[i].header);
        if (rc < 0)
            return rc;
        merge->parts[i].process = merge->store->now;
    }
    return 0;
}

/* When the program was started, as `millrace profile` writes it there: the recording's 0, which is
 * then known before all parts are. */
static void begin_read(struct mr_merge *merge)
{
    char *path;
    unsigned long long begin_ns, unix_ns;
    if (asprintf(&path, "%s/" MR_MERGE_BEGIN, merge->folder) < 0)
        return;
    FILE *file = fopen(path, "re");
    free(path);
    if (!file)
        return;
    merge->has_begin = fscanf(file, "%llu %llu", &begin_ns, &unix_ns) == 2;
    if (merge->has_begin)
        mr_store_origin(merge->store, begin_ns, unix_ns);
    fclose(file);
}

static int note(struct mr_merge *merge, const char *text)
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
static int note_count(struct mr_merge *merge, const char *fmt, uint64_t n)
    __attribute__((format(printf, 2, 0)));
static int note_count(struct mr_merge *merge, const char *fmt, uint64_t n)
{
    char text[256];
    if (n == 0)
        return 0;
    snprintf(text, sizeof(text), fmt, (unsigned long long)n);
    return note(merge, text);
}

/* Notes about the merge itself. */
static int notes_put(struct mr_merge *merge)
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
    rc = note_count(merge, "%llu stacks have a number that came before: left out",
                    merge->store->n_again);
    if (rc < 0)
        return rc;
    return mr_store_meta(merge->store, "n_cut", (int64_t)merge->n_cut);
}

static int parts_read(struct mr_merge *merge, bool last)
{
    struct stat st;
    for (uint64_t i = 0; i < merge->n_parts; i++) {
        struct mr_merge_part *part = &merge->parts[i];
        if (!last && (part->process->has_exit || stat(part->path, &st) != 0 ||
                      (uint64_t)st.st_size <= part->size))
            continue;
        int rc = mr_merge_part_read(merge, part, last);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int merge_begin(struct mr_merge *merge)
{
    int rc = mr_store_create(merge->path, merge->overwrite, &merge->store);
    if (rc < 0)
        return rc;
    begin_read(merge);
    return mr_store_text(merge->store, "?", 1, &merge->unknown);
}

int mr_merge_open(const char *parts, const char *path, int overwrite, struct mr_merge **out)
{
    if (!parts || !path || !out)
        return mr_error_null("mr_merge_open", "a folder, a path and a place for the result");
    struct mr_merge *merge = calloc(1, sizeof(*merge));
    *out = NULL;
    if (!merge)
        return mr_error_nomem(path, sizeof(*merge));
    merge->overwrite = overwrite != 0;
    merge->folder = strdup(parts);
    merge->path = strdup(path);
    merge->text = malloc(MR_PART_TEXT_BYTES);
    int rc = merge->folder && merge->path && merge->text ? merge_begin(merge)
                                                         : mr_error_nomem(path, MR_PART_TEXT_BYTES);
    if (rc < 0)
        mr_merge_close(merge);
    else
        *out = merge;
    return rc;
}

static int check_room(const struct mr_merge *merge)
{
    struct statvfs disk;
    if (statvfs(merge->folder, &disk) != 0 ||
        (uint64_t)disk.f_bavail * disk.f_frsize >= SPARE_BYTES)
        return 0;
    return mr_error_errno(ENOSPC, "%s: less than %llu MiB are left on its disk", merge->folder,
                          SPARE_BYTES >> 20);
}

static int check_open(const struct mr_merge *merge, const char *call)
{
    if (!merge)
        return mr_error_set(MR_EMISUSE, "%s: expected a merge, not NULL", call);
    return merge->store
               ? 0
               : mr_error_set(MR_EMISUSE, "%s: %s: this merge is finished", call, merge->path);
}

int mr_merge_step(struct mr_merge *merge)
{
    int rc = check_open(merge, "mr_merge_step");
    if (rc < 0 || !merge->has_begin)
        return rc;
    rc = check_room(merge);
    if (rc < 0)
        return rc;
    rc = parts_find(merge, false);
    return rc < 0 ? rc : parts_read(merge, false);
}

static struct mr_merge_stats stats_of(const struct mr_merge *merge)
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

static int rest_put(struct mr_merge *merge)
{
    int rc = parts_find(merge, true);
    if (rc < 0)
        return rc;
    rc = parts_read(merge, true);
    if (rc < 0)
        return rc;
    rc = mr_store_flush_all(merge->store); /* which counts what notes tell */
    return rc < 0 ? rc : notes_put(merge);
}

int mr_merge_finish(struct mr_merge *merge, struct mr_merge_stats *out_stats)
{
    struct mr_merge_stats stats;
    struct stat st;
    int rc = check_open(merge, "mr_merge_finish");
    if (rc < 0)
        return rc;
    rc = out_stats ? mr_info_check("merge_stats", out_stats, sizeof stats) : 0;
    if (rc < 0)
        return rc;
    rc = rest_put(merge);
    stats = stats_of(merge);
    if (rc == 0)
        rc = mr_store_finish(merge->store);
    else
        mr_store_abandon(merge->store);
    merge->store = NULL;
    if (rc < 0)
        return rc;
    if (stat(merge->path, &st) == 0)
        stats.bytes = (uint64_t)st.st_size;
    if (out_stats)
        mr_info_give("merge_stats", out_stats, &stats, sizeof stats);
    return 0;
}

void mr_merge_close(struct mr_merge *merge)
{
    if (!merge)
        return;
    mr_store_abandon(merge->store);
    for (uint64_t i = 0; i < merge->n_parts; i++)
        mr_merge_part_free(&merge->parts[i]);
    free(merge->parts);
    mr_map_free(&merge->known);
    free(merge->text);
    free(merge->path);
    free(merge->folder);
    free(merge);
}

int mr_recording_merge(const char *parts, const char *path, int overwrite,
                       struct mr_merge_stats *out_stats)
{
    if (!parts || !path)
        return mr_error_null("mr_recording_merge", "a folder and a path");
    struct mr_merge *merge;
    int rc = mr_merge_open(parts, path, overwrite, &merge);
    if (rc < 0)
        return rc;
    rc = mr_merge_finish(merge, out_stats);
    mr_merge_close(merge);
    return rc;
}
