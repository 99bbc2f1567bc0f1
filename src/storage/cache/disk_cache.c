/*
 * The disk cache: one file per chunk, named by a hash of the object's URL and version, so that a
 * changed object gets other files and the old ones are evicted with time. Files are written under a
 * temporary name and renamed. A checksum of each 16 KiB is verified on every read. A damaged file
 * is removed, and its bytes are read from the network.
 *
 * DIR/xx/32 hex digits: a chunk; DIR/xx/32 hex digits.o: what a URL's object was; DIR/used: bytes
 * of all; DIR/lock: see disk_cache.h.
 */
#include "storage/cache/disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC        "mrchunk1"
#define OBJECT       "mrobject"
#define BLOCK_BYTES  16384u
#define MAX_BLOCKS   (MR_DISK_CHUNK / BLOCK_BYTES)
#define NAME_BYTES   64
#define OBJECT_BYTES 4096
#define TOUCH_S      10

struct head {
    char magic[8];
    uint64_t bytes;
    uint64_t key[2];
    uint64_t sum; /* of what is above and of sums */
};

struct chunk_head {
    struct head head;
    uint64_t sums[MAX_BLOCKS];
};

static uint64_t n_blocks(uint64_t bytes)
{
    return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static uint64_t head_bytes(uint64_t bytes)
{
    return sizeof(struct head) + n_blocks(bytes) * sizeof(uint64_t);
}

static uint64_t head_sum(const struct chunk_head *h, uint64_t blocks)
{
    XXH64_hash_t front = XXH3_64bits(&h->head, offsetof(struct head, sum));
    return XXH3_64bits_withSeed(h->sums, blocks * sizeof h->sums[0], front);
}

/* ---- names ---- */

static void name_of(const struct mr_disk_key *key, const char *suffix, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%02x/%016llx%016llx%s", (unsigned)(key->hi >> 56),
             (unsigned long long)key->hi, (unsigned long long)key->lo, suffix);
}

static void url_key(const char *url, struct mr_disk_key *out)
{
    XXH128_hash_t h = XXH3_128bits(url, strlen(url));
    *out = (struct mr_disk_key){h.high64, h.low64};
}

void mr_disk_cache_key(const char *url, const struct mr_object *o, uint64_t chunk,
                       struct mr_disk_key *out)
{
    struct mr_disk_key u;
    url_key(url, &u);
    const uint64_t parts[] = {u.hi, u.lo, o->total, chunk, MR_DISK_CHUNK};
    const char *validator = mr_object_etag(o)[0] ? mr_object_etag(o) : o->modified;
    XXH64_hash_t seed = XXH3_64bits(validator, strlen(validator));
    XXH128_hash_t h = XXH3_128bits_withSeed(parts, sizeof parts, seed);
    *out = (struct mr_disk_key){h.high64, h.low64};
}

/* ---- reading ---- */

static bool read_all(int fd, void *to, uint64_t bytes, uint64_t at)
{
    uint64_t done = 0;
    return mr_file_pread(fd, to, bytes, at, &done) == 0;
}

/* Reads all parts, from `at` on. later: if not NULL, reads only from the page cache, and sets it if
 * that is not possible. */
static bool read_parts(int fd, const struct iovec *part, int n, uint64_t at, bool *later)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += part[i].iov_len;
    ssize_t got = preadv2(fd, part, n, (off_t)at, later ? RWF_NOWAIT : 0);
    if (got >= 0 && (uint64_t)got == bytes)
        return true;
    if (later) {
        *later = true;
        return false;
    }
    for (int i = 0; i < n; at += part[i++].iov_len) /* interrupted, or it is too short */
        if (!read_all(fd, part[i].iov_base, part[i].iov_len, at))
            return false;
    return true;
}

static bool read_head(int fd, const struct mr_disk_key *key, uint64_t bytes, struct chunk_head *h,
                      bool *later)
{
    const struct iovec part = {h, head_bytes(bytes)};
    return read_parts(fd, &part, 1, 0, later) && !memcmp(h->head.magic, MAGIC, 8) &&
           h->head.bytes == bytes && h->head.key[0] == key->hi && h->head.key[1] == key->lo &&
           h->head.sum == head_sum(h, n_blocks(bytes));
}

/* Whole blocks are read directly to their destination, partial ones at the ends through a
 * buffer. */
static bool read_blocks(int fd, const struct chunk_head *h, uint64_t at, uint8_t *to,
                        uint64_t bytes, bool *later)
{
    uint8_t front[BLOCK_BYTES], back[BLOCK_BYTES];
    uint64_t end = at + bytes, first = at / BLOCK_BYTES, last = (end - 1) / BLOCK_BYTES;
    uint64_t from = first * BLOCK_BYTES, last_at = last * BLOCK_BYTES,
             upto = MR_MIN(last_at + BLOCK_BYTES, h->head.bytes);
    bool in_front = from < at || (first == last && upto > end),
         in_back = first < last && upto > end;
    uint64_t head = in_front ? MR_MIN(from + BLOCK_BYTES, upto)
                             : from; /* bytes between head and stop are read directly */
    uint64_t stop = in_back ? last_at : upto;
    struct iovec part[3];
    int n = 0;
    if (in_front)
        part[n++] = (struct iovec){front, head - from};
    if (head < stop)
        part[n++] = (struct iovec){to + (head - at), stop - head};
    if (in_back)
        part[n++] = (struct iovec){back, upto - last_at};
    if (!read_parts(fd, part, n, head_bytes(h->head.bytes) + from, later))
        return false;
    for (uint64_t b = first; b <= last; b++) {
        const uint8_t *block = in_front && b == first ? front
                               : in_back && b == last ? back
                                                      : to + (b * BLOCK_BYTES - at);
        if (XXH3_64bits(block, MR_MIN(BLOCK_BYTES, h->head.bytes - b * BLOCK_BYTES)) != h->sums[b])
            return false;
    }
    if (in_front)
        memcpy(to, front + (at - from), MR_MIN(head, end) - at);
    if (in_back)
        memcpy(to + (last_at - at), back, end - last_at);
    return true;
}

static void discard(struct mr_disk_cache *c, int fd, const char *name)
{
    struct stat st;
    int held = mr_disk_cache_lock(c);
    if (!fstat(fd, &st) && st.st_nlink > 0 && !unlinkat(c->fd, name, 0))
        atomic_fetch_sub(c->used, MR_MIN((uint64_t)st.st_size, atomic_load(c->used)));
    if (held >= 0)
        close(held);
    mr_remote_count(&mr_remote_counts.cache_damaged, 1);
    mr_log(MR_LOG_WARNING, "disk cache %s: %s is damaged: removed, read from the network", c->dir,
           name);
}

/* Marks a file as used now, unless it was marked a moment ago, because a mark is a write. If it
 * fails, the file only looks older. */
static void touch(int fd)
{
    struct stat st;
    if (!fstat(fd, &st) && time(NULL) - st.st_mtim.tv_sec >= TOUCH_S)
        futimens(fd, NULL);
}

bool mr_disk_cache_get(struct mr_disk_cache *c, const struct mr_disk_key *key, uint64_t chunk_bytes,
                       uint64_t at, void *to, uint64_t bytes, bool *later)
{
    char name[NAME_BYTES];
    struct chunk_head h;
    name_of(key, "", name);
    int fd = openat(c->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool fine =
        read_head(fd, key, chunk_bytes, &h, later) && read_blocks(fd, &h, at, to, bytes, later);
    if (fine) {
        touch(fd);
        mr_disk_worth_hit(c, key, bytes);
    } else if (!later || !*later) {
        discard(c, fd, name);
    }
    close(fd);
    return fine;
}

/* ---- writing ---- */

static bool write_all(int fd, const void *data, uint64_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = write(fd, at, MR_MIN(bytes, 1ull << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (uint64_t)n;
    }
    return true;
}

/*
 * Renames tmp. [out] replaced: bytes of the file that had the name, known from the rename itself:
 * two processes that store the same chunk, and look first, would both find no file. 0 or an errno.
 */
static int take_name(struct mr_disk_cache *c, const char *tmp, const char *name, uint64_t *replaced)
{
    struct stat st;
    *replaced = 0;
    for (int tries = 0; tries < 4; tries++) { /* the other file may come and go meanwhile */
        if (!renameat2(c->fd, tmp, c->fd, name, RENAME_NOREPLACE))
            return 0;
        if (errno != EEXIST)
            break;
        if (!renameat2(c->fd, tmp, c->fd, name, RENAME_EXCHANGE)) {
            *replaced = fstatat(c->fd, tmp, &st, 0) ? 0 : (uint64_t)st.st_size;
            unlinkat(c->fd, tmp, 0);
            return 0;
        }
        if (errno != ENOENT)
            break;
    }
    /* A file system that knows neither: a survey corrects the count. */
    *replaced = fstatat(c->fd, name, &st, 0) ? 0 : (uint64_t)st.st_size;
    return renameat(c->fd, tmp, c->fd, name) ? errno : 0;
}

/* Both parts into a file that then takes its name. replaced: as of take_name(). 0 or an errno. */
static int write_file(struct mr_disk_cache *c, const char *name, const void *head, uint64_t n_head,
                      const void *data, uint64_t bytes, uint64_t *replaced)
{
    char tmp[NAME_BYTES], folder[3] = {name[0], name[1], 0};
    snprintf(tmp, sizeof tmp, "%s/tmp.%d.%u", folder, (int)getpid(),
             atomic_fetch_add(&c->next_tmp, 1));
    int fd = openat(c->fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && (!mkdirat(c->fd, folder, 0700) || errno == EEXIST))
        fd = openat(c->fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    errno = EIO;
    int errnum = write_all(fd, head, n_head) && write_all(fd, data, bytes) ? 0 : errno;
    if (close(fd) && !errnum)
        errnum = errno;
    if (!errnum)
        errnum = take_name(c, tmp, name, replaced);
    if (errnum)
        unlinkat(c->fd, tmp, 0);
    return errnum;
}

/* true: it is there. */
static bool put_file(struct mr_disk_cache *c, const char *name, const void *head, uint64_t n_head,
                     const void *data, uint64_t bytes)
{
    uint64_t all = n_head + bytes, replaced = 0;
    int held = mr_disk_cache_reserve(c, all);
    if (held == -ENOSPC) /* the cache is at its limit; the disk is fine */
        return false;
    if (held < 0) {
        mr_disk_cache_failed(c, -held);
        return false;
    }
    int errnum = write_file(c, name, head, n_head, data, bytes, &replaced);
    uint64_t gone = errnum ? all : replaced;
    atomic_fetch_sub(c->used, MR_MIN(gone, atomic_load(c->used)));
    close(held);
    if (errnum) {
        mr_disk_cache_failed(c, errnum);
        return false;
    }
    if (atomic_load(&c->retry_ns) > 1)
        atomic_store(&c->retry_ns, 1);
    mr_remote_count(&mr_remote_counts.cache_stored_bytes, all);
    return true;
}

void mr_disk_cache_put(struct mr_disk_cache *c, const struct mr_disk_key *key, const void *data,
                       uint64_t bytes)
{
    char name[NAME_BYTES];
    struct chunk_head h = {.head = {.bytes = bytes, .key = {key->hi, key->lo}}};
    if (bytes == 0 || bytes > MR_DISK_CHUNK)
        return;
    memcpy(h.head.magic, MAGIC, 8);
    for (uint64_t b = 0; b < n_blocks(bytes); b++)
        h.sums[b] = XXH3_64bits((const char *)data + b * BLOCK_BYTES,
                                MR_MIN(BLOCK_BYTES, bytes - b * BLOCK_BYTES));
    h.head.sum = head_sum(&h, n_blocks(bytes));
    name_of(key, "", name);
    if (put_file(c, name, &h, head_bytes(bytes), data, bytes))
        mr_disk_worth_stored(c, key, bytes);
}

/* ---- the object of a URL ---- */

void mr_disk_cache_remember(struct mr_disk_cache *c, const char *url, const struct mr_object *o)
{
    char name[NAME_BYTES], text[OBJECT_BYTES];
    struct mr_disk_key key;
    uint64_t n = strlen(mr_object_etag(o)) + 1, m = strlen(o->modified) + 1;
    if (n + m > sizeof text)
        return;
    memcpy(text, mr_object_etag(o), n);
    memcpy(text + n, o->modified, m);
    url_key(url, &key);
    struct head h = {.bytes = n + m, .key = {key.hi, o->total}};
    memcpy(h.magic, OBJECT, 8);
    h.sum = XXH3_64bits_withSeed(text, n + m, XXH3_64bits(&h, offsetof(struct head, sum)));
    name_of(&key, ".o", name);
    put_file(c, name, &h, sizeof h, text, n + m);
}

struct mr_object *mr_disk_cache_recall(struct mr_disk_cache *c, const char *url)
{
    char name[NAME_BYTES], text[OBJECT_BYTES];
    struct mr_disk_key key;
    struct head h;
    url_key(url, &key);
    name_of(&key, ".o", name);
    int fd = openat(c->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    bool fine =
        read_all(fd, &h, sizeof h, 0) && !memcmp(h.magic, OBJECT, 8) && h.key[0] == key.hi &&
        h.bytes >= 2 && h.bytes <= sizeof text && read_all(fd, text, h.bytes, sizeof h) &&
        h.sum == XXH3_64bits_withSeed(text, h.bytes, XXH3_64bits(&h, offsetof(struct head, sum))) &&
        text[h.bytes - 1] == 0;
    size_t n = fine ? strlen(text) + 1 : 0;
    fine = fine && n < h.bytes;
    if (!fine)
        discard(c, fd, name);
    close(fd);
    return fine ? mr_object_create(h.key[1], text, text + n) : NULL;
}

/* ---- opening ---- */

static int make_folders(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return mr_error_set(MR_EOPTION, "disk cache: the folder's name is too long");
    for (char *c = path + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(path, 0700); /* if this fails, the last one says so */
            *c = '/';
        }
    if (mkdir(path, 0700) && errno != EEXIST)
        return mr_error_errno(errno, "disk cache %s: cannot be made", dir);
    return 0;
}

static int map_used(struct mr_disk_cache *c)
{
    int fd = openat(c->fd, "used", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t))) {
        int errnum = errno;
        if (fd >= 0)
            close(fd);
        return mr_error_errno(errnum, "disk cache %s: the file 'used' cannot be written", c->dir);
    }
    void *map = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int errnum = errno;
    close(fd);
    if (map == MAP_FAILED)
        return mr_error_errno(errnum, "disk cache %s: the file 'used' cannot be mapped", c->dir);
    c->used = map;
    return 0;
}

static int open_all(struct mr_disk_cache *c, const char *dir)
{
    int rc = make_folders(dir);
    if (rc)
        return rc;
    c->dir = strdup(dir);
    if (!c->dir)
        return mr_error_nomem("disk cache", strlen(dir) + 1);
    c->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->fd < 0)
        return mr_error_errno(errno, "disk cache %s: cannot be opened", dir);
    rc = map_used(c);
    rc = rc ? rc : mr_disk_worth_open(c);
    return rc ? rc : mr_disk_cache_survey(c);
}

struct mr_disk_cache *mr_disk_cache_open(const char *dir, uint64_t limit)
{
    struct timespec now;
    struct mr_disk_cache *c = calloc(1, sizeof *c);
    if (!c) {
        mr_error_nomem("disk cache", sizeof *c);
        return NULL;
    }
    c->fd = -1;
    c->limit = limit;
    clock_gettime(CLOCK_REALTIME_COARSE, &now); /* which file systems use */
    c->opened_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->ended, NULL);
    if (open_all(c, dir)) {
        mr_disk_cache_close(c);
        return NULL;
    }
    return c;
}

void mr_disk_cache_close(struct mr_disk_cache *c)
{
    if (!c)
        return;
    if (c->used)
        munmap((void *)c->used, sizeof(uint64_t));
    for (int i = 0; i < MR_DISK_BUFFERS; i++)
        if (c->buffer[i])
            munmap(c->buffer[i], MR_DISK_CHUNK);
    if (c->fd >= 0)
        close(c->fd);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    free((void *)c->stored);
    free(c->dir);
    free(c);
}
