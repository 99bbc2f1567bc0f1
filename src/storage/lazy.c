/* Lazy files, which are opened when they are read: table entries, sizes and blocking reads. */
#include "storage/private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLAB_FILES  256
#define NAMES_BYTES 65536

/* Entries and names are allocated in large pieces: a million files need a few thousand
 * allocations. */
struct mr_slab {
    struct mr_slab *next;
    uint32_t n;
    struct mr_file file[SLAB_FILES];
};

struct mr_names {
    struct mr_names *next;
    size_t used, capacity;
    char text[];
};

/* ---- schemes ---- */

static const struct mr_remote_ops *const remotes[] = {
#if MILLRACE_HAVE_HTTP
    &mr_remote_http,
#endif
    NULL,
};

const struct mr_remote_ops *mr_remote_of(const char *name)
{
    for (size_t i = 0; remotes[i]; i++)
        for (const char *const *scheme = remotes[i]->schemes; *scheme; scheme++)
            if (strncmp(name, *scheme, strlen(*scheme)) == 0)
                return remotes[i];
    return NULL;
}

bool mr_store_is_remote(const char *name)
{
    return !strncmp(name, "http://", 7) || !strncmp(name, "https://", 8) ||
           !strncmp(name, "s3://", 5);
}

/* ---- adding ---- */

static char *put_name(struct mr_files *files, const char *name, size_t bytes)
{
    struct mr_names *names = files->names;
    if (!names || names->capacity - names->used < bytes) {
        size_t capacity = MR_MAX(bytes, (size_t)NAMES_BYTES);
        names = malloc(sizeof *names + capacity);
        if (!names)
            return NULL;
        *names = (struct mr_names){.next = files->names, .capacity = capacity};
        files->names = names;
    }
    char *to = memcpy(names->text + names->used, name, bytes);
    names->used += bytes;
    return to;
}

static struct mr_file *put_entry(struct mr_files *files)
{
    struct mr_slab *slab = files->slabs;
    if (!slab || slab->n == SLAB_FILES) {
        slab = calloc(1, sizeof *slab);
        if (!slab)
            return NULL;
        slab->next = files->slabs;
        files->slabs = slab;
    }
    return &slab->file[slab->n++];
}

int mr_remote_check(const char *name)
{
    const struct mr_remote_ops *remote = mr_remote_of(name);
    const char *why = remote && remote->why_not ? remote->why_not() : NULL;
    if (!remote && mr_store_is_remote(name))
        why = "built without libcurl";
    return why ? mr_error_set(MR_EUNSUPPORTED, "%s: cannot be read here: %s", name, why) : 0;
}

int mr_lazy_create(struct mr_files *files, const char *name, struct mr_file **out)
{
    const struct mr_remote_ops *remote = mr_remote_of(name);
    char *packed = NULL;
    size_t bytes = strlen(name) + 1;
    int hides = mr_url_pack(name, &packed, &bytes);
    if (hides < 0)
        return hides;
    char *kept;
    struct mr_file *f = NULL;
    int rc = mr_remote_check(packed ? packed : name);
    if (rc < 0)
        goto end;
    kept = put_name(files, packed ? packed : name, bytes);
    f = kept ? put_entry(files) : NULL;
    if (!f) {
        rc = mr_error_nomem("name of a file", sizeof *f + bytes);
        goto end;
    }
    f->hides = hides > 0;
    f->kind = remote ? MR_FILE_REMOTE : MR_FILE_PATH;
    f->lazy = true;
    f->fd = -1;
    atomic_init(&f->direct_fd, -1);
    f->bytes = MR_WHOLE;
    f->whole_limit = files->whole_limit;
    f->root = remote ? NULL : files->root;
    f->name = kept;
    atomic_init(&f->ready, MR_WHOLE);
    *out = f;
end:
    free(packed);
    return rc;
}

void mr_remote_forget(struct mr_file *f)
{
    const struct mr_remote_ops *remote = mr_remote_of(f->name);
    if (remote && remote->forget)
        remote->forget(f);
}

static void forget(struct mr_file *f)
{
    if (f->kind == MR_FILE_REMOTE)
        mr_remote_forget(f);
    mr_block_destroy(atomic_load(&f->block));
}

void mr_lazy_free_all(struct mr_files *files)
{
    while (files->slabs) {
        struct mr_slab *slab = files->slabs;
        files->slabs = slab->next;
        for (uint32_t i = 0; i < slab->n; i++)
            forget(&slab->file[i]);
        free(slab);
    }
    while (files->names) {
        struct mr_names *names = files->names;
        files->names = names->next;
        free(names);
    }
}

/* ---- sizes, and blocking reads ---- */

static int look(struct mr_file *f, uint64_t *out)
{
    struct stat st;
    if (f->kind == MR_FILE_REMOTE)
        return mr_remote_of(f->name)->size(f, out);
    if (stat(f->name, &st))
        return mr_error_errno(errno, "%s: cannot be looked at", f->name);
    *out = (uint64_t)st.st_size;
    return 0;
}

int mr_store_read_whole(const char *name, void **out, uint64_t *bytes)
{
    struct mr_files *files = mr_files_create();
    if (!files)
        return -ENOMEM;
    int rc = mr_files_add_lazy(files, name);
    if (rc >= 0)
        rc = mr_files_read_whole(files, rc, out, bytes);
    mr_files_destroy(files);
    return rc;
}

int mr_files_size(struct mr_files *files, int id, uint64_t *out)
{
    struct mr_file *f = files->file[id];
    *out = f->lazy ? atomic_load_explicit(&f->ready, memory_order_relaxed) : f->bytes;
    if (*out != MR_WHOLE)
        return 0;
    if (files->ask)
        return files->ask(
            files->ask_user,
            &(struct mr_file_request){.file = id, .kind = MR_FILE_SIZE, .bytes = sizeof *out}, out);
    int rc = look(f, out);
    if (rc < 0)
        return rc;
    atomic_store_explicit(&f->ready, *out, memory_order_relaxed);
    return 0;
}

int mr_lazy_read(struct mr_file *f, uint64_t offset, void *buf, uint64_t bytes)
{
    if (f->kind == MR_FILE_REMOTE)
        return mr_remote_of(f->name)->read(f, offset, buf, bytes);
    uint64_t size, done = 0;
    int fd = mr_file_open_lazy(f, &size);
    if (fd < 0)
        return fd;
    int rc = mr_file_pread(fd, buf, bytes, offset, &done);
    close(fd);
    return rc ? mr_file_read_error(f, rc, bytes, offset, done) : 0;
}

void mr_files_limit_whole(struct mr_files *files, uint64_t bytes)
{
    files->whole_limit = MR_MIN(bytes, MR_WHOLE_LIMIT);
}

/* The remembered size may be old, so it is requested again. */
int mr_files_read_whole(struct mr_files *files, int id, void **out, uint64_t *bytes)
{
    struct mr_file *f = files->file[id];
    *bytes = f->bytes;
    int rc = f->lazy ? look(f, bytes) : 0;
    if (rc < 0)
        return rc;
    rc = mr_file_check_whole(f, *bytes);
    if (rc < 0)
        return rc;
    void *data = malloc(MR_MAX(*bytes, 1u));
    if (!data)
        return mr_error_nomem(f->name, *bytes);
    rc = mr_files_read(files, id, 0, data, *bytes);
    if (rc < 0) {
        free(data);
        return rc;
    }
    *out = data;
    return 0;
}
