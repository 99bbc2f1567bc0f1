/*
 * A file is written under a temporary name and renamed, so other processes see a whole file or
 * none. If several processes write it, the last wins; all write the same. An index that does not
 * fit (another size or time of the file, another version, a wrong checksum) is rebuilt. A file of
 * that name that is not one of our indexes is never touched.
 */
#include "dataset/index_file.h"
#include "dataset/dataset.h"

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
    uint64_t file_bytes;
    int64_t mtime_ns;
    uint64_t n, second_bytes, third_bytes; /* the first part has n units */
    uint64_t sum;                          /* of the bytes after the head */
    uint64_t head_sum;                     /* of the head up to here */
};

static uint64_t sum_of_head(const struct head *h)
{
    return mr_mix64(mr_hash(MR_HASH_START, h, offsetof(struct head, head_sum)));
}

uint64_t mr_index_sum(const struct mr_index_body *body)
{
    uint64_t h = MR_HASH_START;
    for (int k = 0; k < MR_INDEX_PARTS; k++)
        h = mr_hash(h, body->part[k], body->bytes[k]);
    return h;
}

void mr_index_body_free(struct mr_index_body *body)
{
    for (int k = 0; k < MR_INDEX_PARTS; k++)
        free(body->part[k]);
    *body = (struct mr_index_body){.bytes = {0}};
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

/* [out] out: with memory for the parts. */
static bool body_create(const struct head *h, const struct mr_index_kind *kind,
                        struct mr_index_body *out)
{
    *out = (struct mr_index_body){.bytes = {h->n * kind->unit, h->second_bytes, h->third_bytes}};
    bool ok = true;
    for (int k = 0; k < MR_INDEX_PARTS; k++) {
        out->part[k] = malloc(MR_MAX(out->bytes[k], 1));
        ok = ok && out->part[k];
    }
    if (!ok)
        mr_index_body_free(out);
    return ok;
}

/* Frees a body that is not sound. */
static bool body_fits(const struct head *h, const struct mr_index_kind *kind,
                      struct mr_index_body *out)
{
    if (mr_index_sum(out) == h->sum && kind->sound(out, h->file_bytes))
        return true;
    mr_index_body_free(out);
    return false;
}

static bool read_body(int fd, const struct head *h, const struct mr_index_kind *kind,
                      struct mr_index_body *out)
{
    bool ok = body_create(h, kind, out);
    if (!ok)
        return false;
    for (int k = 0; k < MR_INDEX_PARTS; k++)
        ok = ok && read_all(fd, out->part[k], out->bytes[k]);
    if (ok)
        return body_fits(h, kind, out);
    mr_index_body_free(out);
    return false;
}

/* Returns whether the head is ours and fits the current file. */
static bool head_fits(const struct head *h, const struct mr_index_kind *kind,
                      const struct mr_index_identity *id, uint64_t index_bytes)
{
    uint64_t first = 0, body = 0;
    return memcmp(h->magic, kind->magic, sizeof h->magic) == 0 && h->version == VERSION &&
           h->order == ORDER && h->head_sum == sum_of_head(h) && h->file_bytes == id->bytes &&
           h->mtime_ns == id->mtime_ns && h->n < kind->most && mr_mul(h->n, kind->unit, &first) &&
           mr_add(first, h->second_bytes, &body) && mr_add(body, h->third_bytes, &body) &&
           mr_add(body, sizeof *h, &body) && body == index_bytes;
}

bool mr_index_parse(const struct mr_index_kind *kind, const void *data, uint64_t bytes,
                    uint64_t file_bytes, struct mr_index_body *out)
{
    struct head h;
    if (bytes < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    /* of the file where it was made */
    struct mr_index_identity id = {.bytes = file_bytes, .mtime_ns = h.mtime_ns};
    if (!head_fits(&h, kind, &id, bytes) || !body_create(&h, kind, out))
        return false;
    const unsigned char *from = (const unsigned char *)data + sizeof h;
    for (int k = 0; k < MR_INDEX_PARTS; k++) {
        memcpy(out->part[k], from, out->bytes[k]);
        from += out->bytes[k];
    }
    return body_fits(&h, kind, out);
}

static bool load_from(const char *path, const struct mr_index_kind *kind,
                      const struct mr_index_identity *id, struct mr_index_body *out)
{
    struct head h;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_all(fd, &h, sizeof h) &&
              head_fits(&h, kind, id, (uint64_t)st.st_size) && read_body(fd, &h, kind, out);
    close(fd);
    return ok;
}

const char *mr_index_cache_folder(char *buf, size_t cap, bool make)
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

/* Writes the path of the file's index in the cache. Files of the same name in different
 * folders get different paths. */
static bool cache_path(const struct mr_index_identity *id, bool make, char *buf, size_t cap)
{
    char folder[PATH_MAX];
    bool remote = is_remote(id->path);
    char *real = remote ? strdup(id->path) : realpath(id->path, NULL);
    if (!real)
        return false;
    uint64_t h = mr_mix64(remote ? id->key : mr_hash(MR_HASH_START, real, strlen(real)));
    bool ok = mr_index_cache_folder(folder, sizeof folder, make) != NULL;
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

bool mr_index_load(const struct mr_index_kind *kind, const struct mr_index_identity *id,
                   enum mr_index_keep keep, struct mr_index_body *out)
{
    char path[PATH_MAX];
    bool beside = keep == MR_INDEX_KEEP_AUTO || keep == MR_INDEX_KEEP_BESIDE;
    bool cache = keep == MR_INDEX_KEEP_AUTO || keep == MR_INDEX_KEEP_CACHE;
    if (beside && beside_path(id->path, path, sizeof path) && load_from(path, kind, id, out))
        return true;
    return cache && cache_path(id, false, path, sizeof path) && load_from(path, kind, id, out);
}

/* Returns whether a file of this name exists that is not our index, e.g. another program's. */
static bool is_foreign(const struct mr_index_kind *kind, const char *path)
{
    char found[8];
    struct stat st;
    if (lstat(path, &st) != 0)
        return false;
    int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool ours = fd >= 0 && read_all(fd, found, sizeof found) &&
                memcmp(found, kind->magic, sizeof found) == 0;
    if (fd >= 0)
        close(fd);
    return !ours;
}

static int write_index(int fd, const struct mr_index_kind *kind, const struct mr_index_identity *id,
                       const struct mr_index_body *body)
{
    struct head h = {.version = VERSION,
                     .order = ORDER,
                     .file_bytes = id->bytes,
                     .mtime_ns = id->mtime_ns,
                     .n = body->bytes[0] / kind->unit,
                     .second_bytes = body->bytes[1],
                     .third_bytes = body->bytes[2],
                     .sum = mr_index_sum(body)};
    memcpy(h.magic, kind->magic, sizeof h.magic);
    h.head_sum = sum_of_head(&h);
    int rc = write_all(fd, &h, sizeof h);
    for (int k = 0; k < MR_INDEX_PARTS; k++) {
        if (rc < 0)
            return rc;
        rc = write_all(fd, body->part[k], body->bytes[k]);
    }
    return rc;
}

static int save_to(const char *path, const struct mr_index_kind *kind,
                   const struct mr_index_identity *id, const struct mr_index_body *body)
{
    if (is_foreign(kind, path))
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
    /* same permissions as the file */
    fchmod(fd, stat(id->path, &st) == 0 ? st.st_mode & 0666 : 0600);
    rc = write_index(fd, kind, id, body);
    if (rc < 0) {
        mr_error_errno(-rc, "%s: the index cannot be written", path);
        goto close;
    }
    rc = mr_output_commit(output, 1);
close:
    mr_output_close(output);
    return rc;
}

int mr_index_save(const struct mr_index_kind *kind, const struct mr_index_identity *id,
                  enum mr_index_keep keep, const struct mr_index_body *body)
{
    char path[PATH_MAX];
    int rc = 0;
    if (keep == MR_INDEX_KEEP_NONE)
        return 0;
    if (keep != MR_INDEX_KEEP_CACHE && beside_path(id->path, path, sizeof path)) {
        rc = save_to(path, kind, id, body);
        if (rc == 0 || keep == MR_INDEX_KEEP_BESIDE)
            return rc;
    } else if (keep == MR_INDEX_KEEP_BESIDE) {
        return mr_error_set(
            MR_EOPTION, "%s: index=beside: not for remote files: expected cache or none", id->path);
    }
    if (cache_path(id, true, path, sizeof path))
        rc = save_to(path, kind, id, body);
    else
        rc = mr_error_set(-ENOENT,
                          "%s: no place for its index: neither XDG_CACHE_HOME nor HOME is set",
                          id->path);
    if (rc < 0 && keep == MR_INDEX_KEEP_AUTO) {
        mr_log(MR_LOG_DEBUG, "%s: the index is not kept: %s", id->path, mr_last_error());
        rc = 0;
    }
    return rc;
}
