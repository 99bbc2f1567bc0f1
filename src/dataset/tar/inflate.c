/* Unpacks compressed archives once: into memory while the budget lasts, then into a temporary
 * file. */
#include "codec/codec.h"
#include "dataset/tar/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IN_BYTES       (1u << 20)
#define OUT_BYTES      (1u << 20)
#define UNPACKED_CHUNK 4096u /* of a scan's reads */

struct work {
    const struct mr_tar_source *source;
    struct mr_gunzip *gzip;
    struct mr_unzstd *zstd;
    unsigned char *in, *out;
    struct mr_gunzip_io io;
    uint64_t read_bytes, room;
    struct mr_tar_budget *budget;
    int64_t taken; /* bytes taken from the memory budget */
    struct mr_tar_inflated *to;
};

enum mr_tar_packing mr_tar_packing_of(const unsigned char *b, uint64_t n)
{
    if (n >= 2 && b[0] == 0x1f && b[1] == 0x8b)
        return MR_TAR_GZIP;
    return n >= 4 && memcmp(b, "\x28\xb5\x2f\xfd", 4) == 0 ? MR_TAR_ZSTD : MR_TAR_PLAIN;
}

void mr_tar_inflated_free(struct mr_tar_inflated *in)
{
    free(in->data);
    if (in->fd >= 0)
        close(in->fd);
    *in = (struct mr_tar_inflated){.fd = -1};
}

static int read_unpacked(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    const struct mr_tar_unpacked *from = user;
    if (from->in->data) {
        memcpy(buf, from->in->data + offset, bytes);
        return 0;
    }
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(from->in->fd, (char *)buf + done, bytes - done, (off_t)(offset + done));
        if (got == 0)
            return mr_error_set(MR_ETRUNCATED, "%s: its temporary file was cut off", from->name);
        if (got < 0 && errno != EINTR)
            return mr_error_errno(errno, "%s: reading its unpacked copy", from->name);
        done += got > 0 ? (uint64_t)got : 0;
    }
    return 0;
}

struct mr_tar_source mr_tar_unpacked_source(struct mr_tar_unpacked *from)
{
    return (struct mr_tar_source){.name = from->name,
                                  .bytes = from->in->bytes,
                                  .chunk = UNPACKED_CHUNK,
                                  .read = read_unpacked,
                                  .user = from};
}

static int put_file(struct work *w, const unsigned char *from, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t put = write(w->to->fd, from + done, n - done);
        if (put < 0 && errno != EINTR)
            return mr_error_errno(errno, "%s: unpacking it to a temporary file", w->source->name);
        done += put > 0 ? (uint64_t)put : 0;
    }
    w->to->bytes += n;
    return 0;
}

/* Moves the content from memory to a file; later writes go there. */
static int spill(struct work *w)
{
    int fd = mr_tar_spill_open(w->source->name);
    if (fd < 0)
        return fd;
    w->to->fd = fd;
    uint64_t n = w->to->bytes;
    w->to->bytes = 0;
    int rc = put_file(w, w->to->data, n);
    free(w->to->data);
    w->to->data = NULL;
    atomic_fetch_add(&w->budget->memory, w->taken);
    w->taken = 0;
    return rc;
}

/* Makes space in memory for n more bytes. Returns 1 if the budget does not allow it. */
static int grow(struct work *w, uint64_t n)
{
    uint64_t want = w->to->bytes + n;
    if (want <= w->room)
        return 0;
    uint64_t room = MR_MAX(want, w->room + w->room / 2);
    int64_t more = (int64_t)(room - w->room);
    if (atomic_fetch_sub(&w->budget->memory, more) < more) {
        atomic_fetch_add(&w->budget->memory, more);
        return 1;
    }
    w->taken += more;
    unsigned char *grown = realloc(w->to->data, room);
    if (!grown)
        return mr_error_nomem(w->source->name, room);
    w->to->data = grown;
    w->room = room;
    return 0;
}

static int too_much(const struct work *w)
{
    char why[100] = "";
    if (w->budget->packed)
        snprintf(why, sizeof why, " (%llu times their own %llu, at least 1 GiB)",
                 MR_TAR_UNPACKED_TIMES, (unsigned long long)w->budget->packed);
    return mr_error_set(MR_ELIMIT,
                        "%s: the data set's packed archives take more than %llu bytes unpacked, "
                        "the most allowed%s: "
                        "raise it with unpacked=BYTES if you trust them, or unpack them first",
                        w->source->name, (unsigned long long)w->budget->total, why);
}

static int put(struct work *w, uint64_t n)
{
    if (atomic_fetch_sub(&w->budget->left, (int64_t)n) < (int64_t)n)
        return too_much(w);
    if (w->to->fd < 0) {
        int rc = grow(w, n);
        if (rc == 0) {
            memcpy(w->to->data + w->to->bytes, w->out, n);
            w->to->bytes += n;
            return 0;
        }
        if (rc == 1)
            rc = spill(w);
        if (rc < 0)
            return rc;
    }
    return put_file(w, w->out, n);
}

static int refill(struct work *w, bool *ended)
{
    uint64_t want = MR_MIN(IN_BYTES, w->source->bytes - w->read_bytes);
    *ended = want == 0;
    if (want == 0)
        return 0;
    int rc = w->source->read(w->source->user, w->read_bytes, w->in, want);
    w->read_bytes += want;
    w->io.in = w->in;
    w->io.n_in = want;
    return rc;
}

static int inflate_all(struct work *w)
{
    int rc;
    bool ended = false;
    for (;;) {
        rc = w->io.n_in == 0 ? refill(w, &ended) : 0;
        if (rc < 0)
            return rc;
        /* also between two parts of one refill's output, which may be a GiB */
        rc = mr_interrupt_check(w->source->name);
        if (rc < 0)
            return rc;
        if (ended)
            break;
        w->io.out = w->out;
        w->io.n_out = OUT_BYTES;
        rc = w->gzip ? mr_gunzip_step(w->gzip, &w->io) : mr_unzstd_step(w->zstd, &w->io);
        if (rc < 0)
            return rc;
        uint64_t made = OUT_BYTES - w->io.n_out;
        rc = made > 0 ? put(w, made) : 0;
        if (rc < 0)
            return rc;
    }
    return w->gzip ? mr_gunzip_end(w->gzip) : mr_unzstd_end(w->zstd);
}

int mr_tar_inflate(const struct mr_tar_source *source, enum mr_tar_packing packing,
                   struct mr_tar_budget *budget, struct mr_tar_inflated *out)
{
    struct work w = {.source = source, .budget = budget, .to = out};
    *out = (struct mr_tar_inflated){.fd = -1};
    if (packing == MR_TAR_GZIP)
        w.gzip = mr_gunzip_create(source->name);
    else
        w.zstd = mr_unzstd_create(source->name);
    w.in = malloc(IN_BYTES);
    w.out = malloc(OUT_BYTES);
    int rc;
    if (!w.gzip && !w.zstd) {
        rc = packing == MR_TAR_ZSTD && !MILLRACE_HAVE_ZSTD ? MR_EUNSUPPORTED : -ENOMEM;
        goto destroy;
    }
    if (!w.in || !w.out) {
        rc = mr_error_nomem(source->name, IN_BYTES + OUT_BYTES);
        goto destroy;
    }
    rc = inflate_all(&w);
destroy:
    mr_gunzip_destroy(w.gzip);
    mr_unzstd_destroy(w.zstd);
    free(w.in);
    free(w.out);
    if (rc < 0)
        mr_tar_inflated_free(out);
    return rc;
}
