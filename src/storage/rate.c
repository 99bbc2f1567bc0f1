/* How fast a file can be read by the stores that loaders read with: pieces of one size, in or out
 * of order, a number of them in flight. */
#include "storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define REAP 64 /* reads that are collected at once */

struct rate {
    const struct mr_read_rate_opts *o;
    struct mr_files *files;
    struct mr_storage *storage;
    struct mr_reader *reader;
    struct mr_read *read; /* depth */
    unsigned char *memory;
    uint64_t n_pieces, begun, most; /* of the file; reads begun, and the most there may be */
    uint64_t until_ns, last_ns;     /* none begins after the first; when the last one ended */
    uint64_t reads;
    struct mr_hist hist;
};

/* ---- the measurement ---- */

static void begin_read(struct rate *r, struct mr_read *read)
{
    uint64_t k = r->begun++;
    uint64_t piece = k % r->n_pieces;
    if (r->o->random)
        piece = mr_permute(piece, r->n_pieces, r->o->seed, k / r->n_pieces);
    read->offset = piece * r->o->piece_bytes;
    mr_reader_submit(r->reader, &read, 1);
}

static bool may_begin(const struct rate *r, uint64_t now_ns)
{
    return r->begun < r->most && now_ns < r->until_ns;
}

/* Ends a read and begins the next one in its place. */
static int end_read(struct rate *r, struct mr_read *read)
{
    int rc = read->status < 0 && read->error ? mr_error_put(read->error) : read->status;
    uint64_t now = mr_time_ns();
    free(read->error);
    read->error = NULL;
    mr_reader_recycle(r->reader, read);
    if (rc < 0)
        return rc;
    mr_hist_add(&r->hist, now - read->submit_ns);
    r->reads++;
    r->last_ns = now;
    if (may_begin(r, now))
        begin_read(r, read);
    return 0;
}

static int run(struct rate *r)
{
    struct mr_read *out[REAP];
    int rc = 0;
    for (uint32_t i = 0; i < r->o->depth && r->begun < r->most; i++)
        begin_read(r, &r->read[i]);
    while (mr_reader_in_flight(r->reader) && rc == 0) {
        uint32_t n = mr_reader_reap(r->reader, out, REAP, 1000000000);
        for (uint32_t i = 0; i < n; i++) {
            int ended = end_read(r, out[i]);
            rc = rc < 0 ? rc : ended;
        }
    }
    return rc;
}

/* ---- opening ---- */

static int check(const struct mr_read_rate_opts *o)
{
    if (!o->path)
        return mr_error_null("mr_read_rate_measure", "a path");
    if (mr_store_is_remote(o->path))
        return mr_error_set(MR_EOPTION, "read rate: %s: expected a local file", o->path);
    if (o->depth < 1 || o->depth > MR_READ_RATE_MAX_DEPTH)
        return mr_error_set(MR_EOPTION, "read rate: depth=%u: expected 1..%u", o->depth,
                            MR_READ_RATE_MAX_DEPTH);
    if (o->piece_bytes < 1 || o->piece_bytes > MR_READ_RATE_MAX_BYTES / o->depth)
        return mr_error_set(
            MR_ELIMIT, "read rate: %u reads of %llu bytes: expected 1 byte to %llu MiB in all",
            o->depth, (unsigned long long)o->piece_bytes, MR_READ_RATE_MAX_BYTES >> 20);
    return 0;
}

static int drop_cached_pages(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mr_error_errno(errno, "%s", path);
    int rc = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return rc ? mr_error_errno(rc, "%s: its pages cannot be dropped", path) : 0;
}

static int open_reads(struct rate *r, int file)
{
    const struct mr_read_rate_opts *o = r->o;
    r->read = calloc(o->depth, sizeof *r->read);
    r->memory = malloc(o->depth * o->piece_bytes);
    if (!r->read || !r->memory)
        return mr_error_nomem("read rate", o->depth * o->piece_bytes);
    memset(r->memory, 0, o->depth * o->piece_bytes); /* no page faults while measuring */
    for (uint32_t i = 0; i < o->depth; i++) {
        r->read[i].file = file;
        r->read[i].bytes = o->piece_bytes;
        r->read[i].buf = r->memory + i * o->piece_bytes;
    }
    return 0;
}

static int open_all(struct rate *r)
{
    const struct mr_read_rate_opts *o = r->o;
    r->files = mr_files_create();
    if (!r->files)
        return mr_error_nomem("read rate", 0);
    int file = mr_files_add_path(r->files, o->path);
    if (file < 0)
        return file;
    r->n_pieces = mr_files_bytes(r->files, file) / o->piece_bytes;
    if (r->n_pieces == 0)
        return mr_error_set(MR_EOPTION, "%s: has %llu bytes, less than one read of %llu", o->path,
                            (unsigned long long)mr_files_bytes(r->files, file),
                            (unsigned long long)o->piece_bytes);
    int rc = o->cold ? drop_cached_pages(o->path) : 0;
    if (rc < 0)
        return rc;
    /* What was read once is in the page cache. */
    r->most = o->direct || !o->cold ? UINT64_MAX : r->n_pieces;
    rc = mr_storage_open(r->files, (int)o->storage | (o->direct ? MR_STORAGE_DIRECT : 0), o->depth,
                         1, &r->storage);
    if (rc < 0)
        return rc;
    rc = mr_reader_open(r->storage, &r->reader);
    return rc < 0 ? rc : open_reads(r, file);
}

static void close_all(struct rate *r)
{
    mr_reader_close(r->reader);
    mr_storage_close(r->storage);
    if (r->files)
        mr_files_destroy(r->files);
    free(r->read);
    free(r->memory);
}

void mr_read_rate_opts_fill(struct mr_read_rate_opts *opts, size_t size)
{
    const struct mr_read_rate_opts full = {
        .depth = 1, .piece_bytes = 4096, .cold = 1, .time_ns = 500000000};
    mr_opts_copy(opts, size, &full, sizeof full);
}

int mr_read_rate_measure(const struct mr_read_rate_opts *opts, struct mr_read_rate *out)
{
    struct mr_read_rate_opts full;
    int rc = mr_info_check("read_rate", out, sizeof *out);
    if (rc < 0)
        return rc;
    mr_read_rate_opts_init(&full);
    rc = mr_opts_take("read_rate_opts", opts, &full, sizeof full);
    if (rc < 0)
        return rc;
    rc = check(&full);
    if (rc < 0)
        return rc;
    struct rate *r = calloc(1, sizeof *r);
    if (!r)
        return mr_error_nomem("read rate", sizeof *r);
    r->o = &full;
    rc = open_all(r);
    if (rc < 0)
        goto done;
    uint64_t start = mr_time_ns();
    if (!mr_add(start, full.time_ns, &r->until_ns))
        r->until_ns = UINT64_MAX;
    rc = run(r);
    if (rc < 0)
        goto done;
    const struct mr_read_rate now = {
        .reads = r->reads,
        .bytes = r->reads * full.piece_bytes,
        .ns = r->last_ns - start,
        .p50_ns = mr_hist_quantile(&r->hist, 0.5),
        .p99_ns = mr_hist_quantile(&r->hist, 0.99),
        .storage = mr_storage_name(r->storage),
        .direct = full.direct && !mr_storage_refused(r->storage),
    };
    rc = mr_info_give("read_rate", out, &now, sizeof now);
done:
    close_all(r);
    free(r);
    return rc;
}
