/* The table of files: adding, viewing and reading them. */
#include "storage/private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SMALL_BYTES (1u << 20)
#define FIRST_FILES 32u

struct mr_files *mr_files_create(void)
{
    struct mr_files *files = calloc(1, sizeof *files);
    if (!files) {
        mr_error_nomem("table of files", sizeof *files);
        return NULL;
    }
    pthread_mutex_init(&files->lock, NULL);
    pthread_mutex_init(&files->add_lock, NULL);
    files->whole_limit = MR_WHOLE_LIMIT;
    return files;
}

static void file_destroy(struct mr_file *f)
{
    if (f->inflater)
        mr_inflater_close(f);
    mr_cache_destroy(f);
    if (f->kind == MR_FILE_MEMORY && f->owned)
        free((void *)f->data);
    if (f->kind == MR_FILE_REMOTE)
        mr_remote_forget(f);
    if (f->fd >= 0)
        close(f->fd);
    if (atomic_load(&f->direct_fd) >= 0)
        close(atomic_load(&f->direct_fd));
    if (f->hides)
        explicit_bzero((char *)mr_file_url(f), strlen(mr_file_url(f)));
    free(f->name);
    free(f);
}

void mr_files_destroy(struct mr_files *files)
{
    if (!files)
        return;
    for (int i = 0; i < files->n; i++)
        if (!files->file[i]->lazy)
            file_destroy(files->file[i]);
    mr_lazy_free_all(files);
    mr_roots_free(files);
    free(files->file);
    for (int i = 0; i < files->n_outgrown; i++)
        free(files->outgrown[i]);
    pthread_mutex_destroy(&files->lock);
    pthread_mutex_destroy(&files->add_lock);
    free(files);
}

static int table_grow(struct mr_files *files)
{
    if (files->n >= INT32_MAX / 2)
        return mr_error_set(MR_ELIMIT, "a data set of more than %d files", files->n);
    if ((uint64_t)files->n < files->capacity)
        return 0;
    uint64_t capacity = MR_MAX(2 * files->capacity, FIRST_FILES);
    struct mr_file **old = files->file, **grown = malloc(capacity * sizeof(struct mr_file *));
    if (!grown)
        return mr_error_nomem("table of files", capacity * sizeof(struct mr_file *));
    if (old)
        memcpy(grown, old, (size_t)files->n * sizeof(struct mr_file *));
    files->file = grown;
    files->capacity = capacity;
    if (files->concurrent && old)
        files->outgrown[files->n_outgrown++] = old;
    else
        free(old);
    return 0;
}

void mr_files_add_concurrently(struct mr_files *files)
{
    files->concurrent = true;
}

/* Creates a file, and makes the table large enough for it. */
static int file_create(struct mr_files *files, enum mr_file_kind kind, const char *name,
                       struct mr_file **out)
{
    int rc = table_grow(files);
    if (rc)
        return rc;
    struct mr_file *f = calloc(1, sizeof *f);
    if (!f)
        return mr_error_nomem(name, sizeof *f);
    f->kind = kind;
    f->fd = -1;
    atomic_init(&f->direct_fd, -1);
    size_t bytes;
    rc = mr_url_pack(name, &f->name, &bytes);
    f->hides = rc > 0;
    if (!rc) /* hides nothing */
        f->name = strdup(name);
    if (!f->name) {
        free(f);
        return mr_error_nomem("name of a file", strlen(name) + 1);
    }
    *out = f;
    return 0;
}

/* Whoever sees the new number sees the file, too. */
static int file_put(struct mr_files *files, struct mr_file *f)
{
    int id = files->n;
    files->file[id] = f;
    files->n = id + 1;
    return id;
}

/* Adds a URL whose size is requested now, for data sets of few files. */
static int add_remote(struct mr_files *files, const char *url)
{
    struct mr_file *f = NULL;
    int rc = file_create(files, MR_FILE_REMOTE, url, &f);
    if (rc)
        return rc;
    rc = mr_remote_check(f->name);
    if (rc < 0)
        goto fail;
    rc = mr_remote_of(url)->size(f, &f->bytes);
    if (rc < 0)
        goto fail;
    return file_put(files, f);
fail:
    file_destroy(f);
    return rc;
}

int mr_files_add_path(struct mr_files *files, const char *path)
{
    if (mr_store_is_remote(path))
        return add_remote(files, path);
    struct mr_file *f = NULL;
    int rc = file_create(files, MR_FILE_PATH, path, &f);
    if (rc)
        return rc;
    f->fd = mr_file_open(path, &f->bytes);
    if (f->fd < 0) {
        rc = f->fd;
        f->fd = -1;
        file_destroy(f);
        return rc;
    }
    f->in_memory = mr_file_is_in_memory(f->fd);
    return file_put(files, f);
}

int mr_files_add_unnamed(struct mr_files *files, const char *name, int fd)
{
    struct mr_file *f = NULL;
    struct stat st;
    if (fstat(fd, &st))
        return mr_error_errno(errno, "%s: fstat", name);
    int rc = file_create(files, MR_FILE_PATH, name, &f);
    if (rc)
        return rc;
    f->unnamed = true;
    f->bytes = (uint64_t)st.st_size;
    f->fd = fd;
    return file_put(files, f);
}

static int add_lazy_locked(struct mr_files *files, const char *name, uint64_t bytes)
{
    struct mr_file *f = NULL;
    int rc = table_grow(files);
    if (rc < 0)
        return rc;
    rc = mr_lazy_create(files, name, &f);
    if (rc < 0)
        return rc;
    atomic_store_explicit(&f->ready, bytes, memory_order_relaxed);
    files->n_lazy++;
    return file_put(files, f);
}

int mr_files_add_known(struct mr_files *files, const char *name, uint64_t bytes)
{
    pthread_mutex_lock(&files->add_lock);
    int id = add_lazy_locked(files, name, bytes);
    pthread_mutex_unlock(&files->add_lock);
    return id;
}

int mr_files_add_lazy(struct mr_files *files, const char *name)
{
    return mr_files_add_known(files, name, MR_WHOLE);
}

int mr_files_add_memory(struct mr_files *files, const char *name, void *data, uint64_t bytes,
                        bool owned)
{
    struct mr_file *f = NULL;
    int rc = file_create(files, MR_FILE_MEMORY, name, &f);
    if (rc)
        return rc;
    f->data = data ? data : (void *)"";
    f->owned = data && owned;
    f->bytes = bytes;
    atomic_init(&f->ready, bytes);
    return file_put(files, f);
}

int mr_files_add_null(struct mr_files *files, const char *name, uint64_t bytes, uint64_t delay_ns)
{
    struct mr_file *f = NULL;
    int rc = file_create(files, MR_FILE_NULL, name, &f);
    if (rc)
        return rc;
    f->bytes = bytes;
    f->delay_ns = delay_ns;
    return file_put(files, f);
}

int mr_files_add_gzip(struct mr_files *files, const char *path, void *head, size_t head_bytes,
                      int (*want)(void *user, const void *head, uint64_t *out_total), void *user)
{
    struct mr_file *f = NULL;
    int rc = file_create(files, MR_FILE_GZIP, path, &f);
    if (rc)
        return rc;
    rc = mr_inflater_open(f, path, head, head_bytes, want, user);
    if (rc) {
        file_destroy(f);
        return rc;
    }
    return file_put(files, f);
}

int mr_files_length(const struct mr_files *files)
{
    return files->n;
}

bool mr_files_is_lazy(const struct mr_files *files, int id)
{
    return files->file[id]->lazy;
}

uint64_t mr_files_bytes(const struct mr_files *files, int id)
{
    const struct mr_file *f = files->file[id];
    return f->lazy ? atomic_load_explicit(&f->ready, memory_order_relaxed) : f->bytes;
}

int mr_files_fd(const struct mr_files *files, int id)
{
    const struct mr_file *f = files->file[id];
    return f->kind == MR_FILE_PATH && !f->lazy ? f->fd : -1;
}

int mr_files_read_error(const struct mr_files *files, int id, int status, uint64_t offset,
                        uint64_t bytes, uint64_t done)
{
    return mr_file_read_error(files->file[id], status, bytes, offset, done);
}

const char *mr_files_name(const struct mr_files *files, int id)
{
    return files->file[id]->name;
}

const char *mr_files_url(const struct mr_files *files, int id)
{
    return mr_file_url(files->file[id]);
}

static __attribute__((noinline)) int range_error(const struct mr_file *f, uint64_t offset,
                                                 uint64_t bytes)
{
    return mr_error_set(
        MR_ETRUNCATED, "%s: %llu bytes at offset %llu were asked for, the file has %llu", f->name,
        (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)f->bytes);
}

static int view_lazy(const struct mr_file *f, uint64_t offset, uint64_t end, const void **out)
{
    const struct mr_block *block = atomic_load_explicit(&f->block, memory_order_acquire);
    if (!block || end > block->bytes)
        return 0;
    *out = block->data + offset;
    return 1;
}

int mr_files_view(struct mr_files *files, int id, uint64_t offset, uint64_t bytes, const void **out)
{
    struct mr_file *f = files->file[id];
    uint64_t end;
    if (!mr_add(offset, bytes, &end) || end > f->bytes)
        return range_error(f, offset, bytes);
    if (f->data) {
        if (end > atomic_load_explicit(&f->ready, memory_order_acquire)) {
            int rc = mr_inflater_wait(f, end);
            if (rc)
                return rc;
        }
        *out = f->data + offset;
        return 1;
    }
    if (f->lazy)
        return view_lazy(f, offset, end, out);
    const struct mr_file_cache *cache = atomic_load_explicit(&f->cache, memory_order_acquire);
    return cache ? mr_cache_view(f, cache, offset, bytes, out) : 0;
}

bool mr_files_in_memory(const struct mr_files *files, int id)
{
    return files->file[id]->data != NULL;
}

bool mr_files_is_whole(const struct mr_files *files, int id)
{
    const struct mr_file *f = files->file[id];
    return f->data && atomic_load_explicit(&f->ready, memory_order_acquire) == f->bytes;
}

int mr_files_view_whole(struct mr_files *files, int id, uint64_t *bytes, const void **out)
{
    const struct mr_file *f = files->file[id];
    *bytes = f->bytes;
    if (!f->lazy)
        return mr_files_view(files, id, 0, *bytes, out);
    const struct mr_block *block = atomic_load_explicit(&f->block, memory_order_acquire);
    if (!block)
        return 0;
    *bytes = block->bytes;
    *out = block->data;
    return 1;
}

/* A null file's read takes its delay and writes no bytes. */
static void null_read(const struct mr_file *f)
{
    struct timespec left = {.tv_sec = (time_t)(f->delay_ns / 1000000000),
                            .tv_nsec = (long)(f->delay_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

int mr_files_read(struct mr_files *files, int id, uint64_t offset, void *buf, uint64_t bytes)
{
    struct mr_file *f = files->file[id];
    const void *view = NULL;
    if (files->ask)
        return files->ask(files->ask_user,
                          &(struct mr_file_request){.file = id, .offset = offset, .bytes = bytes},
                          buf);
    int rc = mr_files_view(files, id, offset, bytes, &view);
    if (rc < 0)
        return rc;
    if (view) {
        memcpy(buf, view, bytes);
        return 0;
    }
    if (f->kind == MR_FILE_NULL) {
        null_read(f);
        return 0;
    }
    if (f->lazy || f->kind == MR_FILE_REMOTE)
        return mr_lazy_read(f, offset, buf, bytes);
    uint64_t done = 0;
    rc = mr_file_pread(f->fd, buf, bytes, offset, &done);
    return rc ? mr_file_read_error(f, rc, bytes, offset, done) : 0;
}

int mr_files_check(struct mr_files *files)
{
    for (int i = 0; i < files->n; i++) {
        struct mr_file *f = files->file[i];
        int rc = f->kind == MR_FILE_GZIP ? mr_inflater_wait(f, f->bytes) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static int load_file(struct mr_files *files, int id)
{
    struct mr_file *f = files->file[id];
    void *data = malloc(f->bytes ? f->bytes : 1);
    if (!data)
        return mr_error_nomem(f->name, f->bytes);
    int rc = mr_files_read(files, id, 0, data, f->bytes);
    if (rc) {
        free(data);
        return rc;
    }
    if (f->kind == MR_FILE_REMOTE)
        mr_remote_forget(f);
    else
        close(f->fd);
    f->fd = -1;
    f->kind = MR_FILE_MEMORY;
    f->owned = true;
    f->data = data;
    atomic_store_explicit(&f->ready, f->bytes, memory_order_release);
    return 0;
}

int mr_files_load_small(struct mr_files *files)
{
    for (int i = 0; i < files->n; i++) {
        const struct mr_file *f = files->file[i];
        if ((f->kind != MR_FILE_PATH && f->kind != MR_FILE_REMOTE) || f->lazy ||
            f->bytes > SMALL_BYTES)
            continue;
        int rc = load_file(files, i);
        if (rc)
            return rc;
    }
    return 0;
}

static void count_file(const struct mr_file *f, struct mr_files_kinds *out)
{
    const struct mr_file_cache *cache = atomic_load(&f->cache);
    bool known = !f->lazy;
    out->n_path += f->kind == MR_FILE_PATH;
    out->n_memory += f->kind == MR_FILE_MEMORY;
    out->n_gzip += f->kind == MR_FILE_GZIP;
    out->n_null += f->kind == MR_FILE_NULL;
    out->n_remote += f->kind == MR_FILE_REMOTE;
    out->path_bytes +=
        known && (f->kind == MR_FILE_PATH || f->kind == MR_FILE_REMOTE) ? f->bytes : 0;
    out->cache_bytes += cache ? f->bytes : 0;
    out->cached_bytes += cache ? mr_cache_bytes(cache) : 0;
    out->memory_bytes += f->owned || f->kind == MR_FILE_GZIP ? f->bytes : 0;
}

void mr_files_count(const struct mr_files *files, struct mr_files_kinds *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < files->n; i++)
        count_file(files->file[i], out);
    uint64_t limit = atomic_load(&files->block_limit),
             kept = MR_MIN(atomic_load(&files->block_bytes), limit);
    out->n_lazy = files->n_lazy;
    out->cache_bytes += limit;
    out->cached_bytes += kept;
    out->memory_bytes += out->cached_bytes;
}
