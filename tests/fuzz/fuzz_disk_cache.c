/*
 * White-box. Files of the disk cache: a chunk's, or what an object was. The first byte says which,
 * and whether the checksums are made right, as in a forged file; the next eight, what is asked of
 * it. A file that is refused is removed, and what is counted as used does not grow.
 */
#include "memfile.h"
#include "storage/cache/disk_cache.h"

#include <fcntl.h>
#include <ftw.h>
#include <stddef.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define URL       "http://h/x"
#define HEAD      40u /* magic, bytes, two words of a key, a sum */
#define BLOCK     16384u
#define ASKED     8
#define MOST      (4 * BLOCK)
#define START_USE (1ull << 30)

static char dir[64];

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(dir, drop, 16, FTW_PHYS | FTW_DEPTH);
}

/* In memory where that is possible: the cache writes nothing to a disk for this. */
static struct mr_disk_cache *open_cache(void)
{
    struct stat st;
    snprintf(dir, sizeof dir, "%s/millrace-fuzz.XXXXXX",
             stat("/dev/shm", &st) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir))
        abort();
    atexit(remove_folder);
    struct mr_disk_cache *c = mr_disk_cache_open(dir, 1ull << 31);
    if (!c)
        abort();
    return c;
}

static uint64_t hash_bytes(const uint8_t *data, size_t n)
{
    return XXH3_64bits(data, n);
}

static void put_word(uint8_t *data, unsigned word, uint64_t value)
{
    memcpy(data + 8 * (size_t)word, &value, 8);
}

/* As a cache would have written it: magic, key and sums fit. */
static void forge(uint8_t *data, size_t size, bool object, const struct mr_disk_key *key,
                  uint64_t chunk_bytes)
{
    uint64_t blocks = (chunk_bytes + BLOCK - 1) / BLOCK, n = size - HEAD;
    memcpy(data, object ? "mrobject" : "mrchunk1", 8);
    put_word(data, 2, key->hi);
    if (object) {
        memcpy(&n, data + 8, 8);
        n = n % (size - HEAD + 1);
        put_word(data, 1, n);
        put_word(data, 4, XXH3_64bits_withSeed(data + HEAD, n, hash_bytes(data, HEAD - 8)));
        return;
    }
    put_word(data, 1, chunk_bytes);
    put_word(data, 3, key->lo);
    if (n < blocks * 8)
        return;
    for (uint64_t b = 0, at = HEAD + blocks * 8; b < blocks && at < size; b++, at += BLOCK)
        put_word(data + HEAD, (unsigned)b, hash_bytes(data + at, MR_MIN(BLOCK, size - at)));
    put_word(data, 4, XXH3_64bits_withSeed(data + HEAD, blocks * 8, hash_bytes(data, HEAD - 8)));
}

static void write_file(const struct mr_disk_cache *c, const char *name, const uint8_t *data,
                       size_t size)
{
    char folder[3] = {name[0], name[1], 0};
    mkdirat(c->fd, folder, 0700);
    int fd = openat(c->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || (size_t)write(fd, data, size) != size)
        abort();
    close(fd);
}

static bool get(struct mr_disk_cache *c, const struct mr_disk_key *key, uint64_t chunk_bytes,
                uint32_t range)
{
    uint64_t at = (range & 0xffff) % chunk_bytes, bytes = 1 + (range >> 16) % (chunk_bytes - at);
    uint8_t *to = malloc(bytes);
    bool fine = to && mr_disk_cache_get(c, key, chunk_bytes, at, to, bytes, NULL);
    free(to);
    return fine;
}

static bool recall(struct mr_disk_cache *c)
{
    struct mr_object *o = mr_disk_cache_recall(c, URL);
    if (!o)
        return false;
    if (strlen(mr_object_etag(o)) + strlen(o->modified) > 4096)
        abort();
    mr_object_destroy(o);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_disk_cache *c;
    const struct mr_disk_key chunk_key = {0x0123456789abcdef, 0xfedcba9876543210};
    XXH128_hash_t h = XXH3_128bits(URL, strlen(URL));
    struct mr_disk_key key = chunk_key;
    uint32_t asked[2];
    char name[64];
    struct stat st;
    if (!c)
        c = open_cache();
    if (size < 1 + ASKED)
        return 0;
    bool forged = data[0] & 1, object = data[0] & 2;
    memcpy(asked, data + 1, ASKED);
    data += 1 + ASKED;
    size -= 1 + ASKED;
    if (object)
        key = (struct mr_disk_key){h.high64, h.low64};
    snprintf(name, sizeof name, "%02x/%016llx%016llx%s", (unsigned)(key.hi >> 56),
             (unsigned long long)key.hi, (unsigned long long)key.lo, object ? ".o" : "");
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    uint64_t chunk_bytes = 1 + asked[0] % MOST;
    if (forged && size >= HEAD)
        forge(copy, size, object, &key, chunk_bytes);
    write_file(c, name, copy, size);
    atomic_store(c->used, START_USE);
    bool fine = object ? recall(c) : get(c, &key, chunk_bytes, asked[1]);
    bool there = fstatat(c->fd, name, &st, 0) == 0;
    if (there != fine || atomic_load(c->used) != (fine ? START_USE : START_USE - size))
        abort();
    free(copy);
    return 0;
}
