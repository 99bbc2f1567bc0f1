/*
 * Index files: FILE.tar.idx beside the archive, or in a cache directory under a name derived from
 * the archive's path.
 *
 * A file is written under a temporary name and renamed, so other processes see a whole file or
 * none. If several processes write it, the last wins; all write the same. An index that does not
 * fit (another size or time of the archive, another version, a wrong checksum) is rebuilt. A file
 * of that name that is not one of our indexes is never touched.
 */
#include "dataset/dataset.h"
#include "dataset/tar/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <millrace/output.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1u
#define ORDER   0x01020304u /* this machine's byte order */

struct head {
    char magic[8];
    uint32_t version, order;
    uint64_t archive_bytes;
    int64_t mtime_ns;
    uint64_t n, names_bytes, small_bytes;
    uint64_t sum;      /* of the bytes after the head */
    uint64_t head_sum; /* of the head up to here */
};

static const char magic[8] = {'M', 'R', 'T', 'A', 'R', 'I', 'D', 'X'};

static uint64_t sum_of_head(const struct head *h)
{
    return mr_mix64(mr_hash(MR_HASH_START, h, offsetof(struct head, head_sum)));
}

static bool read_all(int fd, void *to, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, (char *)to + done, MR_MIN(bytes - done, 1u << 30));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        done += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static int write_all(int fd, const void *from, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        ssize_t put = write(fd, (const char *)from + done, MR_MIN(bytes - done, 1u << 30));
        if (put < 0 && errno != EINTR)
            return -errno;
        done += put > 0 ? (uint64_t)put : 0;
    }
    return 0;
}

/* Checks that all offsets of the members are within bounds. A matching checksum does not exclude a
 * forged file. */
static bool is_sound(const struct mr_tar_index *x, uint64_t archive_bytes)
{
    if (x->n == 0)
        return true;
    if (x->names_bytes == 0 || x->names[x->names_bytes - 1] != 0)
        return false;
    for (uint64_t i = 0; i < x->n; i++) {
        const struct mr_tar_member *m = &x->member[i];
        uint64_t end;
        uint32_t kept;
        if (!mr_add(m->offset, m->bytes, &end) || end > archive_bytes || m->offset < MR_TAR_BLOCK ||
            m->name >= x->names_bytes)
            return false;
        if (m->small == MR_TAR_NONE)
            continue;
        if (x->small_bytes < sizeof kept || m->small > x->small_bytes - sizeof kept)
            return false;
        memcpy(&kept, x->small + m->small, sizeof kept);
        if (kept > x->small_bytes - sizeof kept - m->small || kept > m->bytes)
            return false;
    }
    return true;
}

static bool body_create(const struct head *h, struct mr_tar_index *out)
{
    *out = (struct mr_tar_index){
        .n = h->n, .names_bytes = h->names_bytes, .small_bytes = h->small_bytes};
    out->member = malloc(MR_MAX(h->n, 1) * sizeof *out->member);
    out->names = malloc(MR_MAX(h->names_bytes, 1));
    out->small = malloc(MR_MAX(h->small_bytes, 1));
    if (out->member && out->names && out->small)
        return true;
    mr_tar_index_free(out);
    return false;
}

/* Frees a body that is not sound. */
static bool body_fits(const struct head *h, struct mr_tar_index *out)
{
    out->sum = mr_tar_index_sum(out);
    if (out->sum == h->sum && is_sound(out, h->archive_bytes))
        return true;
    mr_tar_index_free(out);
    return false;
}

static bool read_body(int fd, const struct head *h, struct mr_tar_index *out)
{
    if (!body_create(h, out))
        return false;
    if (read_all(fd, out->member, h->n * sizeof *out->member) &&
        read_all(fd, out->names, h->names_bytes) && read_all(fd, out->small, h->small_bytes))
        return body_fits(h, out);
    mr_tar_index_free(out);
    return false;
}

/* Returns whether the head is ours and fits the current archive. */
static bool head_fits(const struct head *h, const struct mr_tar_identity *id, uint64_t file_bytes)
{
    uint64_t members = 0, body = 0;
    return memcmp(h->magic, magic, sizeof magic) == 0 && h->version == VERSION &&
           h->order == ORDER && h->head_sum == sum_of_head(h) && h->archive_bytes == id->bytes &&
           h->mtime_ns == id->mtime_ns && h->n < MR_TAR_NONE &&
           mr_mul(h->n, sizeof(struct mr_tar_member), &members) &&
           mr_add(members, h->names_bytes, &body) && mr_add(body, h->small_bytes, &body) &&
           mr_add(body, sizeof *h, &body) && body == file_bytes;
}

bool mr_tar_index_parse(const void *data, uint64_t bytes, uint64_t archive_bytes,
                        struct mr_tar_index *out)
{
    struct head h;
    if (bytes < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    /* of the file where it was made */
    struct mr_tar_identity id = {.bytes = archive_bytes, .mtime_ns = h.mtime_ns};
    if (!head_fits(&h, &id, bytes))
        return false;
    const unsigned char *body = (const unsigned char *)data + sizeof h;
    if (!body_create(&h, out))
        return false;
    memcpy(out->member, body, h.n * sizeof *out->member);
    memcpy(out->names, body + h.n * sizeof *out->member, h.names_bytes);
    memcpy(out->small, body + h.n * sizeof *out->member + h.names_bytes, h.small_bytes);
    return body_fits(&h, out);
}

static bool load_from(const char *path, const struct mr_tar_identity *id, struct mr_tar_index *out)
{
    struct head h;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_all(fd, &h, sizeof h) &&
              head_fits(&h, id, (uint64_t)st.st_size) && read_body(fd, &h, out);
    close(fd);
    return ok;
}

const char *mr_tar_cache_folder(char *buf, size_t cap, bool make)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (base && base[0] == '/')
        n = snprintf(buf, cap, "%s", base);
    else if (home && home[0] == '/')
        n = snprintf(buf, cap, "%s/.cache", home);
    else
        return NULL;
    if (n < 0 || (size_t)n + sizeof "/millrace" > cap)
        return NULL;
    if (make)
        mkdir(buf, 0700);
    strcat(buf, "/millrace");
    if (make)
        mkdir(buf, 0700); /* failures show when a file is created in it */
    return buf;
}

static bool is_remote(const char *path)
{
    return strstr(path, "://") != NULL;
}

/* Writes the path of the archive's index in the cache. Archives of the same name in different
 * folders get different paths. */
static bool cache_path(const struct mr_tar_identity *id, bool make, char *buf, size_t cap)
{
    char folder[PATH_MAX];
    bool remote = is_remote(id->path);
    char *real = remote ? strdup(id->path) : realpath(id->path, NULL);
    if (!real)
        return false;
    uint64_t h = mr_mix64(remote ? id->key : mr_hash(MR_HASH_START, real, strlen(real)));
    bool ok = mr_tar_cache_folder(folder, sizeof folder, make) != NULL;
    if (ok) {
        int n = snprintf(buf, cap, "%s/%016llx-%.100s.idx", folder, (unsigned long long)h,
                         mr_base_name(real));
        ok = n > 0 && (size_t)n < cap;
    }
    free(real);
    return ok;
}

static bool beside_path(const char *path, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%s.idx", path);
    return !is_remote(path) && n > 0 && (size_t)n < cap;
}

bool mr_tar_index_load(const struct mr_tar_identity *id, enum mr_tar_keep keep,
                       struct mr_tar_index *out)
{
    char path[PATH_MAX];
    bool beside = keep == MR_TAR_KEEP_AUTO || keep == MR_TAR_KEEP_BESIDE;
    bool cache = keep == MR_TAR_KEEP_AUTO || keep == MR_TAR_KEEP_CACHE;
    if (beside && beside_path(id->path, path, sizeof path) && load_from(path, id, out))
        return true;
    return cache && cache_path(id, false, path, sizeof path) && load_from(path, id, out);
}

/* Returns whether a file of this name exists that is not our index, e.g. another program's. */
static bool is_foreign(const char *path)
{
    char found[8];
    struct stat st;
    if (lstat(path, &st) != 0)
        return false;
    int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool ours =
        fd >= 0 && read_all(fd, found, sizeof found) && memcmp(found, magic, sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    return !ours;
}

static int write_index(int fd, const struct mr_tar_identity *id, const struct mr_tar_index *x)
{
    struct head h = {.version = VERSION,
                     .order = ORDER,
                     .archive_bytes = id->bytes,
                     .mtime_ns = id->mtime_ns,
                     .n = x->n,
                     .names_bytes = x->names_bytes,
                     .small_bytes = x->small_bytes,
                     .sum = x->sum};
    memcpy(h.magic, magic, sizeof magic);
    h.head_sum = sum_of_head(&h);
    int rc = write_all(fd, &h, sizeof h);
    if (rc < 0)
        return rc;
    rc = write_all(fd, x->member, x->n * sizeof *x->member);
    if (rc < 0)
        return rc;
    rc = write_all(fd, x->names, x->names_bytes);
    if (rc < 0)
        return rc;
    return write_all(fd, x->small, x->small_bytes);
}

static int save_to(const char *path, const struct mr_tar_identity *id, const struct mr_tar_index *x)
{
    if (is_foreign(path))
        return mr_error_set(-EEXIST,
                            "%s: exists and is not an index of millrace: rename it, or "
                            "give index=cache or none",
                            path);
    struct mr_output *output;
    int rc = mr_output_open(path, &output);
    if (rc < 0)
        return rc;
    struct stat st;
    int fd = mr_output_get_fd(output);
    /* same permissions as the archive */
    fchmod(fd, stat(id->path, &st) == 0 ? st.st_mode & 0666 : 0600);
    rc = write_index(fd, id, x);
    if (rc < 0) {
        mr_error_errno(-rc, "%s: the index cannot be written", path);
        goto close;
    }
    rc = mr_output_commit(output, 1);
close:
    mr_output_close(output);
    return rc;
}

int mr_tar_index_save(const struct mr_tar_identity *id, enum mr_tar_keep keep,
                      const struct mr_tar_index *index)
{
    char path[PATH_MAX];
    int rc = 0;
    if (keep == MR_TAR_KEEP_NONE)
        return 0;
    if (keep != MR_TAR_KEEP_CACHE && beside_path(id->path, path, sizeof path)) {
        rc = save_to(path, id, index);
        if (rc == 0 || keep == MR_TAR_KEEP_BESIDE)
            return rc;
    } else if (keep == MR_TAR_KEEP_BESIDE) {
        return mr_error_set(MR_EOPTION,
                            "%s: index=beside: not for remote archives: expected cache or none",
                            id->path);
    }
    if (cache_path(id, true, path, sizeof path))
        rc = save_to(path, id, index);
    else
        rc = mr_error_set(-ENOENT,
                          "%s: no place for its index: neither XDG_CACHE_HOME nor HOME is set",
                          id->path);
    if (rc < 0 && keep == MR_TAR_KEEP_AUTO) {
        mr_log(MR_LOG_DEBUG, "%s: the index is not kept: %s", id->path, mr_last_error());
        rc = 0;
    }
    return rc;
}
