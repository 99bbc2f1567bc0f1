/* Keeping the disk cache under its limit: the least recently used files are evicted first. */
#include "storage/cache/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAPS 500           /* of 1 ms */
#define STALE_S   3600          /* older temporary files belong to processes that died */
#define PAUSE_NS  5000000000ull /* after a failed write */

struct entry {
    int64_t used_ns;
    uint64_t bytes;
    char name[64];
};

struct entries {
    struct entry *entry;
    uint64_t n, capacity;
    uint64_t bytes;
};

static bool put(struct entries *all, const char *folder, const char *name, const struct stat *st)
{
    if (mr_grow("disk cache", &all->entry, &all->capacity, all->n + 1, sizeof *all->entry) < 0)
        return false;
    struct entry *e = &all->entry[all->n++];
    e->used_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    e->bytes = (uint64_t)st->st_size;
    snprintf(e->name, sizeof e->name, "%.2s/%.48s", folder, name);
    all->bytes += e->bytes;
    return true;
}

/* Scans one of the two-digit folders. Files that vanish meanwhile were removed by another
 * process. */
static bool scan_folder(struct mr_disk_cache *c, const char *folder, struct entries *all)
{
    int fd = openat(c->fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool fine = true;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return true;
    }
    time_t now = time(NULL);
    for (const struct dirent *d; fine && (d = readdir(dir));) {
        struct stat st;
        bool tmp = strncmp(d->d_name, "tmp.", 4) == 0;
        if (d->d_name[0] == '.' || strlen(d->d_name) > 48 ||
            fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (tmp && now - st.st_mtim.tv_sec > STALE_S)
            unlinkat(fd, d->d_name, 0);
        else if (!tmp)
            fine = put(all, folder, d->d_name, &st);
    }
    closedir(dir);
    return fine;
}

static bool scan(struct mr_disk_cache *c, struct entries *all)
{
    bool fine = true;
    for (unsigned i = 0; i < 256 && fine; i++) {
        char folder[3];
        snprintf(folder, sizeof folder, "%02x", i);
        fine = scan_folder(c, folder, all);
    }
    return fine;
}

static int by_use(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Waits only for a while, because the process that holds the lock may be stopped. Returns a
 * descriptor or a negative errno. */
static int lock_dir(struct mr_disk_cache *c, int how)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int fd = openat(c->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    for (int naps = 0; flock(fd, how | LOCK_NB); naps++) {
        int errnum = errno;
        if ((errnum != EWOULDBLOCK && errnum != EINTR) || naps == LOCK_NAPS) {
            close(fd);
            return -errnum;
        }
        nanosleep(&nap, NULL);
    }
    return fd;
}

int mr_disk_cache_lock(struct mr_disk_cache *c)
{
    int fd = lock_dir(c, LOCK_SH);
    return fd < 0 ? -1 : fd;
}

/* Removes the oldest files until at most `most` bytes remain, and corrects the count. */
static void shrink(struct mr_disk_cache *c, struct entries *all, uint64_t most)
{
    if (all->n)
        qsort(all->entry, all->n, sizeof *all->entry, by_use);
    for (size_t i = 0; i < all->n && all->bytes > most; i++) {
        if (unlinkat(c->fd, all->entry[i].name, 0) && errno != ENOENT)
            continue;
        all->bytes -= all->entry[i].bytes;
        if (all->entry[i].used_ns >= c->opened_ns)
            atomic_store(&c->outgrown, true);
    }
    atomic_store(c->used, all->bytes);
}

/* bytes: evict only if so many do not fit, as another process may have evicted files meanwhile;
 * MR_WHOLE: in any case. */
static int evict(struct mr_disk_cache *c, uint64_t most, uint64_t bytes)
{
    struct entries all = {0};
    int fd = lock_dir(c, LOCK_EX);
    if (fd < 0)
        return fd;
    int rc = 0;
    bool needed = bytes == MR_WHOLE || atomic_load(c->used) + bytes > c->limit;
    if (!needed)
        goto end;
    if (!scan(c, &all)) {
        rc = -ENOMEM;
        goto end;
    }
    shrink(c, &all, most);
end:
    free(all.entry);
    close(fd); /* releases the lock */
    return rc;
}

int mr_disk_cache_reserve(struct mr_disk_cache *c, uint64_t bytes)
{
    uint64_t tenth = c->limit / 10;
    if (bytes > c->limit - tenth)
        return -ENOSPC;
    for (int tries = 0; tries < 2; tries++) {
        int held = lock_dir(c, LOCK_SH);
        if (held < 0 || atomic_fetch_add(c->used, bytes) + bytes <= c->limit)
            return held;
        atomic_fetch_sub(c->used, bytes);
        close(held);
        int rc = evict(c, c->limit - MR_MAX(tenth, bytes), bytes);
        if (rc < 0)
            return rc;
    }
    return -ENOSPC;
}

/* ---- is it worth fetching a whole chunk? ---- */

void mr_disk_cache_failed(struct mr_disk_cache *c, int errnum)
{
    uint64_t before = atomic_exchange(&c->retry_ns, mr_time_ns() + PAUSE_NS);
    mr_remote_count(&mr_remote_counts.cache_errors, 1);
    if (!before)
        mr_log(MR_LOG_WARNING, "disk cache %s: cannot write: %s; reading continues without it",
               c->dir, mr_strerror(-errnum));
}

/* After a pause a single reader tries whether writing works again. */
static bool paused(struct mr_disk_cache *c)
{
    uint64_t until = atomic_load(&c->retry_ns), now = mr_time_ns();
    if (until <= 1)
        return false;
    return now < until || !atomic_compare_exchange_strong(&c->retry_ns, &until, now + PAUSE_NS);
}

/* A file system that does not report its size is not full. */
static bool disk_has(const struct mr_disk_cache *c, uint64_t bytes)
{
    struct statvfs fs;
    uint64_t free_bytes;
    if (fstatvfs(c->fd, &fs) || fs.f_blocks == 0)
        return true;
    return !mr_mul(fs.f_bavail, fs.f_frsize, &free_bytes) || free_bytes >= bytes;
}

/*
 * Removing chunks in use, to store others of which only a part is wanted, would fetch whole
 * chunks for ever: an epoch in random order through a set larger than the limit comes back to each
 * chunk long after it was removed. In other orders it may pay. What this process did not use yet,
 * of earlier runs, may go.
 */
bool mr_disk_cache_takes(struct mr_disk_cache *c, uint64_t bytes, bool part)
{
    uint64_t all = bytes + MR_DISK_HEAD;
    if (all > c->limit - c->limit / 10)
        return false;
    if (part && atomic_load(&c->outgrown) && atomic_load(c->used) + all > c->limit &&
        !mr_disk_worth_it(c))
        return false;
    if (paused(c))
        return false;
    if (disk_has(c, all))
        return true;
    mr_disk_cache_failed(c, ENOSPC);
    return false;
}

/* If other processes hold the lock all the time, their count is used. */
int mr_disk_cache_survey(struct mr_disk_cache *c)
{
    int rc = evict(c, c->limit, MR_WHOLE);
    return rc && rc != -EWOULDBLOCK
               ? mr_error_set(rc,
                              "disk cache %s: cannot be scanned: does its file system "
                              "support locks?",
                              c->dir)
               : 0;
}
