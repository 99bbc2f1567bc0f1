/*
 * What of a pack is done: a text file in its folder, written again (whole or not at all) at each
 * finished shard, and at the end: the same pack, run again, finds that all is done. The folder is
 * locked meanwhile, so that two runs cannot mix.
 */
#include "pack/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PACK         "pack"
#define STATE        ".state"
#define SUMS         "XXH64SUMS"
#define CLASSES      "classes.json"
#define LOCK_WAIT_MS 5000
#define DONE         "done\n"
#define LINE                                                                                       \
    "shard %" SCNu64 " first %" SCNu64 " samples %" SCNu64 " skipped %" SCNu64 " bytes %" SCNu64   \
    " xxh64 %" SCNx64

static char *in_dir(const struct pack_state *st, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", st->dir, name) < 0 ? NULL : path;
}

/* "pack-002-of-004.state" */
static char *own_path(const struct pack_state *st, const char *name, const char *end)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s%s%s", st->dir, name, st->part, end) < 0 ? NULL : path;
}

static int lock_dir(struct pack_state *st)
{
    if (mkdir(st->dir, 0777) != 0 && errno != EEXIST)
        return cli_fail("%s: cannot be made: %s", st->dir, strerror(errno));
    st->lock = open(st->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (st->lock < 0)
        return cli_fail("%s: cannot be opened: %s", st->dir, strerror(errno));
    /* One that was killed keeps its lock until what it was writing is on the disk. */
    if (cli_lock_take(st->lock, st->part[0], LOCK_WAIT_MS) == EWOULDBLOCK)
        return cli_fail("%s: another millrace pack is writing to it", st->dir);
    if (!st->part[0])
        return CLI_OK; /* also on a file system without locks */
    char *path = own_path(st, PACK, STATE);
    int code = path ? cli_lock_file(&st->mine, path) : cli_fail("out of memory");
    free(path);
    return code;
}

static int keep(struct pack_state *st, const struct pack_done *done)
{
    int rc = mr_grow(st->dir, &st->shard, &st->room, st->n + 1, sizeof *st->shard);
    if (rc < 0)
        return cli_error(rc);
    st->shard[st->n++] = *done;
    return CLI_OK;
}

/* A finished shard of the right size, next in line, with no more samples than are left? */
static bool is_there(const struct pack_state *st, const struct pack_done *d)
{
    char name[PACK_PART + 40];
    struct stat file;
    uint64_t next = st->n > 0 ? st->shard[st->n - 1].first + st->shard[st->n - 1].n +
                                    st->shard[st->n - 1].skipped
                              : st->first;
    snprintf(name, sizeof name, "shard%s-%06" PRIu64 "%s", st->part, d->number, st->format->end);
    return d->number == st->n && d->first == next && d->n <= st->end - next &&
           d->skipped <= st->end - next - d->n && fstatat(st->lock, name, &file, 0) == 0 &&
           S_ISREG(file.st_mode) && (uint64_t)file.st_size == d->bytes;
}

static bool has_sums(const struct pack_state *st)
{
    char *path = own_path(st, SUMS, "");
    bool has = path && access(path, F_OK) == 0;
    free(path);
    return has;
}

static int read_state(struct pack_state *st, FILE *file, const char *path)
{
    char line[640];
    int code = CLI_OK;
    if (!fgets(line, sizeof line, file) || strcmp(line, st->what) != 0)
        return cli_fail("%s: made from another data set or with other options: use those, "
                        "another folder, or --force to start over",
                        path);
    while (code == CLI_OK && fgets(line, sizeof line, file)) {
        struct pack_done d;
        st->done = strcmp(line, DONE) == 0;
        if (sscanf(line, LINE, &d.number, &d.first, &d.n, &d.skipped, &d.bytes, &d.sum) != 6 ||
            !is_there(st, &d))
            break; /* from here on again */
        code = keep(st, &d);
    }
    st->done = st->done && has_sums(st);
    return code;
}

/* Is `name` HEAD, then END? [out] part: what is between them: "", or a rank's. */
static bool matches(const char *name, const char *head, const char *end, char part[PACK_PART])
{
    size_t n = strlen(name), n_head = strlen(head), n_end = strlen(end);
    unsigned rank, world;
    int used = 0;
    if (n < n_head + n_end || n - n_head - n_end >= PACK_PART || strncmp(name, head, n_head) != 0 ||
        strcmp(name + n - n_end, end) != 0)
        return false;
    snprintf(part, PACK_PART, "%.*s", (int)(n - n_head - n_end), name + n_head);
    return !part[0] ||
           (sscanf(part, "-%u-of-%u%n", &rank, &world, &used) == 2 && !part[used] && rank < world);
}

/* A name that pack gives, whole or in the making. [out] part: the rank's; "" if all share it. */
static bool pack_names(const char *name, char part[PACK_PART])
{
    static const char *const ends[] = {".tar",      ".tar.idx",      ".tar.part",
                                       ".tfrecord", ".tfrecord.idx", ".tfrecord.part"};
    if (matches(name, PACK, STATE, part) || matches(name, SUMS, "", part) ||
        matches(name, CLASSES, "", part))
        return true;
    for (size_t i = 0; i < CLI_COUNT(ends); i++) {
        char end[32];
        size_t n = strlen(name), n_end = strlen(ends[i]);
        if (n < n_end + 7 || strspn(name + n - n_end - 6, "0123456789") != 6)
            continue;
        snprintf(end, sizeof end, "-%.6s%s", name + n - n_end - 6, ends[i]);
        if (matches(name, "shard", end, part))
            return true;
    }
    return false;
}

static bool is_any(const struct pack_state *st, const char *name)
{
    char part[PACK_PART];
    (void)st;
    return pack_names(name, part);
}

/* "-of-004": of the other ranks of this pack. */
static bool is_of_world(const struct pack_state *st, const char *part)
{
    const char *of = strstr(st->part, "-of-"), *end = part;
    return of && (end = strstr(part, "-of-")) && strcmp(of, end) == 0;
}

/* What hinders this run: files of its own part, or of a pack by another number of processes. The
 * classes are the same for all. */
static bool is_in_the_way(const struct pack_state *st, const char *name)
{
    char part[PACK_PART];
    if (!pack_names(name, part) || (st->part[0] && strcmp(name, CLASSES) == 0))
        return false;
    return strcmp(part, st->part) == 0 || !is_of_world(st, part);
}

/* The same but for what this run goes on from. */
static bool is_foreign(const struct pack_state *st, const char *name)
{
    char part[PACK_PART];
    return is_in_the_way(st, name) && pack_names(name, part) && strcmp(part, st->part) != 0 &&
           strcmp(name, CLASSES) != 0;
}

/* What a killed run was writing: its part is locked, so no one else is writing it. */
static bool is_left(const struct pack_state *st, const char *name)
{
    const char *end = strstr(name, ".part-");
    char whole[PACK_PART + 40], part[PACK_PART];
    if (!end || strlen(end) != sizeof ".part-XXXXXX" - 1 || (size_t)(end - name) >= sizeof whole)
        return false;
    snprintf(whole, sizeof whole, "%.*s", (int)(end - name), name);
    return pack_names(whole, part) && strcmp(part, st->part) == 0;
}

/* Is there a wanted name in the folder; remove: takes all of them away. */
static int look(const struct pack_state *st,
                bool (*wanted)(const struct pack_state *st, const char *name), bool remove,
                bool *found)
{
    DIR *dir = opendir(st->dir);
    if (!dir)
        return cli_fail("%s: cannot be read: %s", st->dir, strerror(errno));
    int code = CLI_OK;
    *found = false;
    for (struct dirent *e = readdir(dir); e && code == CLI_OK; e = readdir(dir)) {
        if (!wanted(st, e->d_name))
            continue;
        *found = true;
        if (remove && unlinkat(st->lock, e->d_name, 0) != 0 && errno != ENOENT)
            code = cli_fail("%s/%s: cannot be removed: %s", st->dir, e->d_name, strerror(errno));
    }
    closedir(dir);
    return code;
}

/* With force what is there goes, but not what the data set reads. */
static int claim(const struct pack_state *st)
{
    struct stat file;
    DIR *dir = opendir(st->dir);
    if (!dir)
        return cli_fail("%s: cannot be read: %s", st->dir, strerror(errno));
    int code = CLI_OK;
    for (struct dirent *e = readdir(dir); e && code == CLI_OK; e = readdir(dir)) {
        if (!is_any(st, e->d_name) || fstatat(st->lock, e->d_name, &file, 0) != 0)
            continue;
        char *path = in_dir(st, e->d_name);
        code = path ? cli_input_claim(path, &file) : cli_fail("out of memory");
        free(path);
    }
    closedir(dir);
    return code;
}

static int begin(struct pack_state *st, const char *uri, const struct mr_dataset *ds, bool force)
{
    bool found = false;
    char *path = own_path(st, PACK, STATE);
    if (!path)
        return cli_fail("out of memory");
    FILE *file = force ? NULL : fopen(path, "re");
    int code = claim(st);
    if (code == CLI_OK)
        code = cli_input_dataset(uri, ds);
    if (code == CLI_OK)
        code = look(st, file ? is_foreign : is_in_the_way, force, &found);
    if (code == CLI_OK && !force && found)
        code = cli_fail("%s: holds shards already; --force replaces them", st->dir);
    if (code == CLI_OK && file)
        code = read_state(st, file, path);
    if (file)
        fclose(file);
    free(path);
    return code == CLI_OK ? look(st, is_left, true, &found) : code;
}

static int write_state(const struct pack_state *st, bool done)
{
    struct cli_output out;
    char *path = own_path(st, PACK, STATE), line[256];
    int code = path ? cli_output_open(&out, path, CLI_DATA, 1) : cli_fail("out of memory");
    free(path);
    if (code != CLI_OK)
        return code;
    code = cli_output_write(&out, st->what, strlen(st->what));
    for (uint64_t i = 0; i < st->n && code == CLI_OK; i++) {
        const struct pack_done *d = &st->shard[i];
        int n = snprintf(line, sizeof line,
                         "shard %" PRIu64 " first %" PRIu64 " samples %" PRIu64 " skipped %" PRIu64
                         " bytes %" PRIu64 " xxh64 %016" PRIx64 "\n",
                         d->number, d->first, d->n, d->skipped, d->bytes, d->sum);
        code = cli_output_write(&out, line, (size_t)n);
    }
    if (code == CLI_OK && done)
        code = cli_output_write(&out, DONE, sizeof DONE - 1);
    if (code == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return code;
}

int pack_state_open(struct pack_state *st, const char *dir, const char *uri,
                    const struct mr_dataset *ds, const struct pack_options *o)
{
    uint64_t n = mr_dataset_length(ds);
    bool is_tar = strcmp(o->format->name, "tar") == 0;
    int digits = snprintf(NULL, 0, "%u", o->world - 1);
    *st = (struct pack_state){.dir = dir, .lock = -1, .mine = CLI_LOCK_NONE, .rank = o->rank};
    st->format = o->format;
    uint64_t rest = n % o->world;
    st->first = n / o->world * o->rank + (rest < o->rank ? rest : o->rank);
    st->end = st->first + n / o->world + (o->rank < rest);
    digits = digits > 3 ? digits : 3;
    if (o->world > 1)
        snprintf(st->part, sizeof st->part, "-%0*u-of-%0*u", digits, o->rank, digits, o->world);
    snprintf(st->what, sizeof st->what,
             "millrace pack 1: source %016" PRIx64 " samples %" PRIu64 " shard-size %" PRIu64
             " shard-count %" PRIu64 " resize %" PRIu64 " quality %" PRIu64 " bad %d%s%s\n",
             mr_dataset_fingerprint(ds), mr_dataset_length(ds), o->shard_bytes, o->shard_count,
             o->resize, o->quality, o->bad, is_tar ? "" : " format ",
             is_tar ? "" : o->format->name); /* a tar's is as it was before there was a format */
    int code = lock_dir(st);
    if (code == CLI_OK)
        code = begin(st, uri, ds, o->force);
    return code == CLI_OK && !st->done ? write_state(st, false) : code;
}

int pack_state_add(struct pack_state *st, const struct pack_shard *s)
{
    struct pack_done d = {s->number, s->first, s->n, s->skipped, s->bytes, s->sum};
    int code = keep(st, &d);
    return code == CLI_OK ? write_state(st, false) : code;
}

static int write_classes(const struct pack_state *st, const struct mr_dataset *ds)
{
    struct cli_output out;
    char *text;
    if (st->rank > 0)
        return CLI_OK;
    int rc = mr_dataset_class_names(ds, &text);
    if (rc < 0 || !text)
        return rc < 0 ? cli_error(rc) : CLI_OK;
    char *path = in_dir(st, CLASSES);
    int code = path ? cli_output_open(&out, path, CLI_DATA, 1) : cli_fail("out of memory");
    free(path);
    if (code == CLI_OK) {
        code = cli_output_write(&out, text, strlen(text));
        if (code == CLI_OK)
            code = cli_output_write(&out, "\n", 1);
        if (code == CLI_OK)
            code = cli_output_commit(&out);
        else
            cli_output_abort(&out);
    }
    free(text);
    return code;
}

int pack_state_finish(struct pack_state *st, const struct mr_dataset *ds)
{
    struct cli_output out;
    int code = write_classes(st, ds);
    if (code != CLI_OK)
        return code;
    char *path = own_path(st, SUMS, ""), line[PACK_PART + 128];
    code = path ? cli_output_open(&out, path, CLI_DATA, 1) : cli_fail("out of memory");
    free(path);
    if (code != CLI_OK)
        return code;
    for (uint64_t i = 0; i < st->n && code == CLI_OK; i++) {
        int n = snprintf(line, sizeof line, "%016" PRIx64 "  shard%s-%06" PRIu64 "%s\n",
                         st->shard[i].sum, st->part, st->shard[i].number, st->format->end);
        code = cli_output_write(&out, line, (size_t)n);
    }
    if (code != CLI_OK) {
        cli_output_abort(&out);
        return code;
    }
    code = cli_output_commit(&out);
    return code == CLI_OK ? write_state(st, true) : code;
}

void pack_state_close(struct pack_state *st)
{
    cli_lock_release(&st->mine);
    if (st->lock >= 0)
        close(st->lock);
    free(st->shard);
}
