/*
 * The host cache: path files in anonymous memory, filled in chunks by the reads.
 *
 * Each chunk is empty, loading (one read has claimed it and writes it) or ready (constant from then
 * on). A thread that loads `ready` (acquire) also sees the bytes that were stored before it
 * (release), so views take no lock.
 */
#include "storage/private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { EMPTY, LOADING, READY };

struct mr_file_cache {
    uint8_t *data; /* as long as the file */
    uint64_t bytes, n_chunks;
    _Atomic uint64_t n_ready; /* for statistics */
    _Atomic uint8_t chunk[];
};

static uint8_t state_of(const struct mr_file_cache *c, uint64_t chunk)
{
    return atomic_load_explicit(&c->chunk[chunk], memory_order_acquire);
}

static uint64_t last_chunk(uint64_t offset, uint64_t bytes)
{
    return (offset + bytes - (bytes > 0)) / MR_CACHE_CHUNK;
}

int mr_cache_view(const struct mr_file *f, const struct mr_file_cache *c, uint64_t offset,
                  uint64_t bytes, const void **out)
{
    (void)f;
    uint64_t last = last_chunk(offset, bytes);
    for (uint64_t i = offset / MR_CACHE_CHUNK; i <= last; i++)
        if (state_of(c, i) != READY)
            return 0;
    *out = c->data + offset;
    return 1;
}

static bool claim_chunk(struct mr_file_cache *c, uint64_t chunk)
{
    uint8_t empty = EMPTY;
    return atomic_compare_exchange_strong_explicit(&c->chunk[chunk], &empty, LOADING,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static void set_chunks(struct mr_file_cache *c, uint64_t first, uint64_t n, uint8_t state)
{
    for (uint64_t i = first; i < first + n; i++)
        atomic_store_explicit(&c->chunk[i], state, memory_order_release);
}

/* Chunks that are ready at either end need not be read. This read must claim all others; if another
 * read has claimed one of them, this read bypasses the cache. */
bool mr_cache_claim(const struct mr_file *f, struct mr_file_cache *c, struct mr_read *read)
{
    uint64_t first = read->offset / MR_CACHE_CHUNK, end = last_chunk(read->offset, read->bytes) + 1;
    while (first < end && state_of(c, first) == READY)
        first++;
    while (first < end && state_of(c, end - 1) == READY)
        end--;
    if (first == end)
        return mr_cache_view(f, c, read->offset, read->bytes, &read->view) == 1;
    for (uint64_t i = first; i < end; i++) {
        if (!claim_chunk(c, i)) {
            set_chunks(c, first, i - first, EMPTY);
            return false;
        }
    }
    read->chunks = end - first;
    read->at = first * MR_CACHE_CHUNK;
    read->want = MR_MIN(end * MR_CACHE_CHUNK, c->bytes) - read->at;
    read->to = c->data + read->at;
    return false;
}

/* The file shrank within the last chunk, behind the requested bytes: these are valid, the chunk is
 * not. */
static void finish_partly(struct mr_file_cache *c, struct mr_read *read)
{
    memcpy(read->buf, c->data + read->offset, read->bytes);
    read->status = 0;
}

void mr_cache_finish(struct mr_file_cache *c, struct mr_read *read)
{
    uint64_t first = read->at / MR_CACHE_CHUNK;
    if (!read->status) {
        read->view = c->data + read->offset;
        atomic_fetch_add_explicit(&c->n_ready, read->chunks, memory_order_relaxed);
    } else if (read->status == MR_ETRUNCATED &&
               read->at + read->done >= read->offset + read->bytes) {
        finish_partly(c, read);
        set_chunks(c, first, read->chunks, EMPTY);
        return;
    }
    set_chunks(c, first, read->chunks, read->status ? EMPTY : READY);
}

uint64_t mr_cache_bytes(const struct mr_file_cache *c)
{
    return MR_MIN(atomic_load_explicit(&c->n_ready, memory_order_relaxed) * MR_CACHE_CHUNK,
                  c->bytes);
}

static int cache_create(const struct mr_file *f, struct mr_file_cache **out)
{
    uint64_t n_chunks = f->bytes / MR_CACHE_CHUNK + 1;
    struct mr_file_cache *c = calloc(1, sizeof *c + n_chunks);
    if (!c)
        return mr_error_nomem(f->name, sizeof *c + n_chunks);
    c->data = mmap(NULL, MR_MAX(f->bytes, 1u), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (c->data == MAP_FAILED) {
        free(c);
        return mr_error_nomem(f->name, f->bytes);
    }
    madvise(c->data, f->bytes, MADV_HUGEPAGE); /* optional: without it pages are small */
    c->bytes = f->bytes;
    c->n_chunks = n_chunks;
    *out = c;
    return 0;
}

void mr_cache_destroy(struct mr_file *f)
{
    struct mr_file_cache *c = atomic_exchange(&f->cache, NULL);
    if (!c)
        return;
    munmap(c->data, MR_MAX(c->bytes, 1u));
    free(c);
}

/* Files that already have a cache keep it. After a failure, caches created so far stay for the next
 * attempt. */
static int make_all(struct mr_files *files)
{
    for (int i = 0; i < files->n; i++) {
        struct mr_file *f = files->file[i];
        struct mr_file_cache *c = NULL;
        if ((f->kind != MR_FILE_PATH && f->kind != MR_FILE_REMOTE) || f->lazy ||
            atomic_load(&f->cache))
            continue;
        int rc = cache_create(f, &c);
        if (rc)
            return rc;
        atomic_store_explicit(&f->cache, c, memory_order_release);
    }
    return 0;
}

static int check_limit(uint64_t need, uint64_t limit)
{
    struct mr_host_memory_info memory = {.size = sizeof memory};
    if (limit && need > limit)
        return mr_error_set(MR_ELIMIT, "host cache: the files need %llu bytes, %llu are allowed",
                            (unsigned long long)need, (unsigned long long)limit);
    mr_host_memory_query(&memory);
    if (need > memory.total_bytes)
        return mr_error_set(
            -ENOMEM,
            "host cache: the files need %llu bytes, the machine has %llu; read them without cache",
            (unsigned long long)need, (unsigned long long)memory.total_bytes);
    return 0;
}

/* The limit for whole files of unknown size, which are kept in the order in which they are read. */
static uint64_t lazy_limit(uint64_t others, uint64_t limit)
{
    struct mr_host_memory_info memory = {.size = sizeof memory};
    mr_host_memory_query(&memory);
    uint64_t most = limit ? limit - others : memory.available_bytes / 4 * 3;
    return MR_MIN(most, memory.total_bytes);
}

int mr_files_cache(struct mr_files *files, uint64_t limit)
{
    struct mr_files_kinds kinds;
    mr_files_count(files, &kinds);
    int rc = check_limit(kinds.path_bytes, limit);
    if (rc)
        return rc;
    pthread_mutex_lock(&files->lock);
    rc = make_all(files);
    if (rc < 0)
        goto end;
    files->cache_refs++;
    if (files->n_lazy)
        atomic_store(&files->block_limit, lazy_limit(kinds.path_bytes, limit));
end:
    pthread_mutex_unlock(&files->lock);
    return rc;
}

void mr_files_uncache(struct mr_files *files)
{
    pthread_mutex_lock(&files->lock);
    files->cache_refs -= files->cache_refs > 0;
    pthread_mutex_unlock(&files->lock);
}
