/* Arrays of events, in memory or in mappings of temporary files. */
#include "recording/big.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FIRST_BYTES 4096
#define LOOK_NS     10000000 /* how often the watch counts resident pages */

/* Before each array. */
struct head {
    uint64_t bytes;             /* with this head */
    int64_t fd;                 /* of a mapping; -1: from malloc() */
    struct head *next, *before; /* mappings */
};

static struct {
    pthread_mutex_t lock; /* all below; held while mappings are made, moved and unmapped */
    struct head *mappings;
    uint64_t in_memory, mapped; /* bytes of arrays */
    uint64_t memory, resident, least;
    pthread_t watch;
    bool watched;
    uint64_t n_ended; /* watches */
} big = {.lock = PTHREAD_MUTEX_INITIALIZER,
         .memory = MR_BIG_MEMORY,
         .resident = MR_BIG_RESIDENT,
         .least = MR_BIG_LEAST};

/* ---- the watch ---- */

/* Pages of mapped files in this process. */
static uint64_t resident_bytes(void)
{
    char text[128] = "";
    unsigned long long size, all, shared = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0 || sscanf(text, "%llu %llu %llu", &size, &all, &shared) != 3)
        return UINT64_MAX;
    return shared * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The pages stay in the page cache, and are mapped again when they are touched. */
static void drop_pages(void)
{
    for (struct head *h = big.mappings, *next; h; h = next) {
        next = h->next;
        madvise(h, h->bytes, MADV_DONTNEED);
    }
}

/* arg: where n_ended was when it started, plus 1: a new one may start before this one has ended. */
static void *watch(void *arg)
{
    const struct timespec pause = {0, LOOK_NS};
    pthread_mutex_lock(&big.lock);
    while (big.n_ended + 1 == (uintptr_t)arg) {
        if (resident_bytes() > big.resident)
            drop_pages();
        pthread_mutex_unlock(&big.lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&big.lock);
    }
    pthread_mutex_unlock(&big.lock);
    return NULL;
}

/* With the lock. A mapping without a watch is as good, but for what is resident. */
static void start_watch(void)
{
    void *number = (void *)(uintptr_t)(big.n_ended + 1);
    if (!big.watched)
        big.watched = mr_thread_start(&big.watch, "mr-big", watch, number) == 0;
}

/* With the lock, which it gives up: after the last mapping. */
static void end_watch(void)
{
    bool ends = big.watched && !big.mappings;
    pthread_t thread = big.watch;
    if (ends) {
        big.watched = false;
        big.n_ended++;
    }
    pthread_mutex_unlock(&big.lock);
    if (ends)
        pthread_join(thread, NULL);
}

/* ---- mappings ---- */

static int named_for_a_moment(const char *folder)
{
    char *path = NULL;
    if (asprintf(&path, "%s/millrace.XXXXXX", folder) < 0)
        return -1;
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    free(path);
    return fd;
}

static int open_file(void)
{
    const char *folder = getenv("TMPDIR");
    if (!folder || !folder[0])
        folder = "/var/tmp";
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    return fd >= 0 ? fd : named_for_a_moment(folder);
}

static void link_in(struct head *h)
{
    h->before = NULL;
    h->next = big.mappings;
    if (h->next)
        h->next->before = h;
    big.mappings = h;
}

static void link_out(const struct head *h)
{
    if (h->next)
        h->next->before = h->before;
    if (h->before)
        h->before->next = h->next;
    else
        big.mappings = h->next;
}

/* A full disk is found here: a page of a mapping that can't be written would end the process.
 * Returns NULL where there is no room or no temporary file. */
static struct head *map(uint64_t bytes)
{
    int fd = open_file();
    if (fd < 0)
        return NULL;
    struct head *h = MAP_FAILED;
    if (posix_fallocate(fd, 0, (off_t)bytes) == 0)
        h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED) {
        close(fd);
        return NULL;
    }
    *h = (struct head){.bytes = bytes, .fd = fd};
    pthread_mutex_lock(&big.lock);
    link_in(h);
    big.mapped += bytes;
    start_watch();
    pthread_mutex_unlock(&big.lock);
    return h;
}

static void unmap(struct head *h)
{
    uint64_t bytes = h->bytes;
    int fd = (int)h->fd;
    pthread_mutex_lock(&big.lock);
    link_out(h);
    munmap(h, bytes);
    close(fd);
    big.mapped -= bytes;
    end_watch();
}

/* Returns NULL, and h is as before. */
static struct head *remap(struct head *h, uint64_t bytes)
{
    uint64_t old = h->bytes;
    if (posix_fallocate((int)h->fd, (off_t)old, (off_t)(bytes - old)) != 0)
        return NULL;
    pthread_mutex_lock(&big.lock);
    struct head *moved = mremap(h, old, bytes, MREMAP_MAYMOVE);
    if (moved != MAP_FAILED) {
        moved->bytes = bytes;
        big.mapped += bytes - old;
        if (moved->next)
            moved->next->before = moved;
        if (moved->before)
            moved->before->next = moved;
        else
            big.mappings = moved;
    }
    pthread_mutex_unlock(&big.lock);
    return moved == MAP_FAILED ? NULL : moved;
}

/* ---- memory ---- */

static void count_memory(uint64_t more, uint64_t less)
{
    pthread_mutex_lock(&big.lock);
    big.in_memory += more - less;
    pthread_mutex_unlock(&big.lock);
}

static bool wants_file(uint64_t bytes)
{
    pthread_mutex_lock(&big.lock);
    bool wants = bytes >= big.least && big.in_memory + bytes > big.memory;
    pthread_mutex_unlock(&big.lock);
    return wants;
}

static void unmake(struct head *h)
{
    if (h->fd >= 0) {
        unmap(h);
        return;
    }
    count_memory(0, h->bytes);
    free(h);
}

/* Into another array, and the old one is gone. */
static struct head *move(struct head *h, struct head *to)
{
    if (to) {
        memcpy(to + 1, h + 1, h->bytes - sizeof *h);
        unmake(h);
    }
    return to;
}

static struct head *make_in_memory(uint64_t bytes)
{
    struct head *h = calloc(1, bytes);
    if (h) {
        *h = (struct head){.bytes = bytes, .fd = -1};
        count_memory(bytes, 0);
    }
    return h;
}

static struct head *make(uint64_t bytes)
{
    struct head *h = wants_file(bytes) ? map(mr_round_up(bytes, FIRST_BYTES)) : NULL;
    return h ? h : make_in_memory(bytes);
}

/* To a file, once there is no room in memory, and back if the disk is full. Returns NULL, and h is
 * as before. */
static struct head *enlarge(struct head *h, uint64_t bytes)
{
    uint64_t old = h->bytes;
    if (bytes <= old)
        return h;
    struct head *grown;
    if (h->fd >= 0)
        return (grown = remap(h, bytes)) ? grown : move(h, make_in_memory(bytes));
    if (wants_file(bytes) && (grown = map(bytes)))
        return move(h, grown);
    grown = realloc(h, bytes);
    if (grown) {
        grown->bytes = bytes;
        count_memory(bytes, old);
    }
    return grown;
}

static struct head *head_of(void *array)
{
    return array ? (struct head *)((char *)array - sizeof(struct head)) : NULL;
}

static bool whole_bytes(uint64_t n, size_t size, uint64_t *out)
{
    return mr_mul(n, size, out) && mr_add(*out, sizeof(struct head), out) && *out <= PTRDIFF_MAX;
}

void *mr_big_alloc(const char *what, uint64_t n, size_t size)
{
    uint64_t bytes = UINT64_MAX;
    struct head *h = whole_bytes(n, size, &bytes) ? make(bytes) : NULL;
    if (h)
        return h + 1;
    mr_error_nomem(what, bytes);
    return NULL;
}

int mr_big_grow(const char *what, void *array, uint64_t *room, uint64_t want, size_t size)
{
    if (want <= *room)
        return 0;
    uint64_t more = MR_MAX(MR_MAX(want, FIRST_BYTES / size), *room + *room / 2), bytes = UINT64_MAX;
    void *items;
    memcpy(&items, array, sizeof items); /* array points to a pointer of any type */
    struct head *h = head_of(items), *grown = NULL;
    if (whole_bytes(more, size, &bytes)) {
        bytes = mr_round_up(bytes, FIRST_BYTES);
        grown = h ? enlarge(h, bytes) : make(bytes);
    }
    if (!grown)
        return mr_error_nomem(what, bytes);
    items = grown + 1;
    memcpy(array, &items, sizeof items);
    *room = more;
    return 0;
}

void mr_big_free(void *array)
{
    if (array)
        unmake(head_of(array));
}

void mr_big_limit(uint64_t memory, uint64_t resident, uint64_t least)
{
    big.memory = memory ? memory : MR_BIG_MEMORY;
    big.resident = resident ? resident : MR_BIG_RESIDENT;
    big.least = least ? least : MR_BIG_LEAST;
}

uint64_t mr_big_mapped(void)
{
    pthread_mutex_lock(&big.lock);
    uint64_t mapped = big.mapped;
    pthread_mutex_unlock(&big.lock);
    return mapped;
}
