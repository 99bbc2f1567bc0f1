/* Opening the recordings of one job as one, or a part of a recording. */
#include "recording/join.h"
#include "recording/import.h"
#include "recording/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <millrace/options.h>
#include <string.h>
#include <sys/stat.h>

void mr_recording_opts_fill(struct mr_recording_opts *opts, size_t size)
{
    const struct mr_recording_opts full = {.rank = -1, .pid = -1, .device = -1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

/* ---- a part ---- */

/* The place that a process works for: its own, or that of the nearest one that started it. [out]
 * chosen: whether one of its places is. Returns whether there is one. */
static bool place_of(const struct mr_join_choice *c, uint32_t process, bool *chosen)
{
    bool any = false;
    *chosen = false;
    for (uint32_t hops = 0; hops < 64 && process < c->rec->n_processes; hops++) {
        for (uint32_t i = 0; i < c->n_ranks; i++) {
            any = any || c->ranks[i].place.process == process;
            *chosen = *chosen || (c->chosen[i] && c->ranks[i].place.process == process);
        }
        if (any)
            break;
        process = mr_rec_parent(c->rec, process);
    }
    return any;
}

/* The process, or one that it started. */
static bool descends(const struct mr_join_choice *c, uint32_t process, uint32_t pid)
{
    for (uint32_t hops = 0; hops < 64 && process < c->rec->n_processes; hops++) {
        if (c->rec->processes[process].pid == pid)
            return true;
        process = mr_rec_parent(c->rec, process);
    }
    return false;
}

static int no_such(const struct mr_join_choice *c, const char *path,
                   const struct mr_recording_opts *opts)
{
    char known[600] = "";
    for (uint32_t i = 0; i < c->n_ranks && strlen(known) < sizeof known - 80; i++) {
        size_t used = strlen(known);
        const struct mr_place *place = &c->ranks[i].place;
        uint32_t pid =
            place->process < c->rec->n_processes ? c->rec->processes[place->process].pid : 0;
        used += (size_t)snprintf(known + used, sizeof known - used, "%sdevice %u of process %u",
                                 i ? ", " : "", mr_place_device_id(c->rec, place), pid);
        if (c->ranks[i].rank != MR_NONE)
            snprintf(known + used, sizeof known - used, " (rank %u)", c->ranks[i].rank);
    }
    char asked[120] = "";
    size_t used = 0;
    if (opts->rank >= 0)
        used += (size_t)snprintf(asked, sizeof asked, "rank %" PRId64 " ", opts->rank);
    if (opts->pid >= 0)
        used +=
            (size_t)snprintf(asked + used, sizeof asked - used, "process %" PRId64 " ", opts->pid);
    if (opts->device >= 0)
        snprintf(asked + used, sizeof asked - used, "device %" PRId64 " ", opts->device);
    return mr_error_set(MR_EOPTION, "%sis not in %s, which has %s", asked, path,
                        known[0] ? known : "no device work");
}

static int choose(struct mr_join_choice *c, const char *path, const struct mr_recording_opts *opts)
{
    bool any = false;
    for (uint32_t i = 0; i < c->n_ranks; i++) {
        const struct mr_rank *r = &c->ranks[i];
        uint32_t process = r->place.process, device = mr_place_device_id(c->rec, &r->place);
        c->chosen[i] = (opts->rank < 0 || (r->rank != MR_NONE && opts->rank == r->rank)) &&
                       (opts->device < 0 || opts->device == device) &&
                       (opts->pid < 0 || (process < c->rec->n_processes &&
                                          c->rec->processes[process].pid == opts->pid));
        any = any || c->chosen[i];
    }
    bool process_only = opts->pid >= 0 && opts->rank < 0 && opts->device < 0;
    for (uint32_t p = 0; p < c->rec->n_processes; p++) {
        bool chosen, has = place_of(c, p, &chosen);
        c->keeps[p] = opts->pid >= 0 ? descends(c, p, (uint32_t)opts->pid) && (chosen || !has)
                                     : chosen || !has;
        any = any || (process_only && c->keeps[p]);
    }
    return any ? 0 : no_such(c, path, opts);
}

static int select_part(struct mr_recording *rec, const struct mr_recording_opts *opts,
                       struct mr_recording **out)
{
    struct mr_ranks ranks = {0};
    struct mr_join_file file = {.path = rec->path, .recording = rec};
    struct mr_join_choice c = {.rec = rec};
    int rc = mr_recording_load(rec);
    rc = rc ? rc : mr_ranks_find(rec, NULL, &ranks);
    if (rc < 0)
        return rc;
    c.ranks = ranks.at;
    c.n_ranks = ranks.n;
    c.chosen = calloc((size_t)ranks.n + 1, sizeof *c.chosen);
    c.keeps = calloc((size_t)rec->n_processes + 1, sizeof *c.keeps);
    rc = c.chosen && c.keeps ? choose(&c, rec->path, opts) : mr_error_nomem(rec->path, ranks.n);
    rc = rc ? rc : mr_join_facts(&file);
    rc = rc ? rc : mr_join_write(&file, 1, rec->path, &c, out);
    free(c.chosen);
    free(c.keeps);
    mr_ranks_free(&ranks);
    file.recording = NULL;
    mr_join_file_free(&file);
    return rc;
}

/* ---- files ---- */

struct paths {
    char **at;
    uint64_t n, capacity;
};

static void paths_free(struct paths *paths)
{
    for (uint64_t i = 0; i < paths->n; i++)
        free(paths->at[i]);
    free(paths->at);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_recording(const char *name)
{
    static const char *const ends[] = {".sqlite", ".sqlite3", ".db",
                                       ".json",   ".json.gz", ".nsys-rep"};
    for (size_t i = 0; i < MR_COUNT(ends); i++)
        if (name[0] != '.' && mr_ends_in(name, ends[i]))
            return true;
    return false;
}

/* Reports may be written as JSON into the folder that they are about: a trace says early what it
 * is. */
static bool is_other_json(const char *path)
{
    const size_t cap = (size_t)64 << 10;
    bool found = false;
    char *text = mr_ends_in(path, ".json") ? malloc(cap + 1) : NULL;
    FILE *file = text ? fopen(path, "re") : NULL;
    if (file) {
        size_t n = fread(text, 1, cap, file);
        text[n] = 0;
        /* an empty file is an error of its own */
        found = n == 0 || strstr(text, "\"traceEvents\"") || strstr(text, "\"ph\"");
        fclose(file);
    }
    free(text);
    return file && !found;
}

static void leave_out_others(struct paths *paths)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < paths->n; i++) {
        bool json = is_other_json(paths->at[i]), /* and many programs call their databases so */
            other = mr_ends_in(paths->at[i], ".db") && !mr_rocpd_is(paths->at[i]);
        if (!json && !other) {
            paths->at[n++] = paths->at[i];
            continue;
        }
        if (json)
            mr_log(MR_LOG_WARNING, "%s: is JSON, but no trace: left out", paths->at[i]);
        free(paths->at[i]);
    }
    paths->n = n;
}

static int paths_add(struct paths *paths, const char *folder, const char *name)
{
    char *path;
    if (mr_grow("paths", &paths->at, &paths->capacity, paths->n + 1, sizeof *paths->at) < 0)
        return -ENOMEM;
    if (asprintf(&path, "%s%s%s", folder, *folder ? "/" : "", name) < 0)
        return mr_error_nomem(name, strlen(name));
    paths->at[paths->n++] = path;
    return 0;
}

/* nsys' report beside the export of it. */
static bool is_exported(const struct paths *paths, const char *report)
{
    size_t n = strlen(report) - strlen(".nsys-rep");
    for (uint64_t i = 0; i < paths->n; i++)
        if (paths->at[i] && strncmp(paths->at[i], report, n) == 0 &&
            strcmp(paths->at[i] + n, ".sqlite") == 0)
            return true;
    return false;
}

static void leave_out_sources(struct paths *paths)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < paths->n; i++) /* x.nsys-rep comes before x.sqlite */
        if (mr_ends_in(paths->at[i], ".nsys-rep") && is_exported(paths, paths->at[i])) {
            free(paths->at[i]);
            paths->at[i] = NULL;
        }
    for (uint64_t i = 0; i < paths->n; i++)
        if (paths->at[i])
            paths->at[n++] = paths->at[i];
    paths->n = n;
}

static int list_folder(struct paths *paths, const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int rc = 0;
    if (!dir)
        return mr_error_errno(errno, "%s: the folder cannot be read", folder);
    while (rc == 0 && (entry = readdir(dir)))
        if (is_recording(entry->d_name))
            rc = paths_add(paths, folder, entry->d_name);
    closedir(dir);
    leave_out_others(paths);
    if (rc == 0 && paths->n == 0)
        rc = mr_error_set(MR_EOPTION,
                          "%s: is a folder without recordings: expected files that end in .sqlite, "
                          ".db, .json, .json.gz or .nsys-rep",
                          folder);
    if (paths->n > 1)
        qsort(paths->at, paths->n, sizeof *paths->at, by_name);
    leave_out_sources(paths);
    return rc;
}

static int check_twice(const struct paths *paths)
{
    struct stat a, b;
    for (uint64_t i = 0; i < paths->n; i++)
        for (uint64_t k = 0; k < i && stat(paths->at[i], &a) == 0; k++)
            if (stat(paths->at[k], &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
                return mr_error_set(MR_EOPTION,
                                    "%s and %s are one file: expected one recording of each rank",
                                    paths->at[k], paths->at[i]);
    return 0;
}

/* By rank, so that the order in which they were given makes no difference. */
static int open_files(const struct paths *paths, const char *name, struct mr_recording **out)
{
    uint32_t n = (uint32_t)paths->n;
    struct mr_join_file *files = calloc(n + 1ull, sizeof *files);
    int rc = files ? 0 : mr_error_nomem(name, n * sizeof *files);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        files[i].path = paths->at[i];
        rc = mr_recording_open(paths->at[i], &files[i].recording);
        rc = rc ? rc : mr_join_facts(&files[i]);
    }
    rc = rc ? rc : mr_join_files(files, n, name, out);
    for (uint32_t i = 0; files && i < n; i++)
        mr_join_file_free(&files[i]);
    free(files);
    return rc;
}

int mr_recording_open_job(const char *const *paths, uint32_t n,
                          const struct mr_recording_opts *opts, struct mr_recording **out)
{
    struct mr_recording_opts all;
    struct mr_recording *whole = NULL;
    struct paths files = {0};
    struct stat st;
    mr_recording_opts_init(&all);
    int rc = mr_opts_take("recording_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    if (n == 0)
        return mr_error_set(MR_EMISUSE, "no recordings: expected one path at least");
    if (n == 1 && stat(paths[0], &st) == 0 && S_ISDIR(st.st_mode))
        rc = list_folder(&files, paths[0]);
    else
        for (uint32_t i = 0; i < n && rc == 0; i++)
            rc = paths_add(&files, "", paths[i]);
    rc = rc ? rc : check_twice(&files);
    if (rc == 0)
        rc = files.n == 1 ? mr_recording_open(files.at[0], &whole)
                          : open_files(&files, paths[0], &whole);
    paths_free(&files);
    if (rc < 0 || !whole)
        return rc;
    if (all.rank < 0 && all.pid < 0 && all.device < 0) {
        *out = whole;
        return 0;
    }
    rc = select_part(whole, &all, out);
    mr_recording_close(whole);
    return rc;
}
