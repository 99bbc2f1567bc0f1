/*
 * A gzip file in the table: a thread inflates it into anonymous memory of the size that its header
 * promises, while inflated bytes can already be viewed.
 *
 * f->ready grows after each step and stays one byte below the total until the stream has ended
 * correctly. If the checksum is wrong, the last byte never becomes available, so what can be viewed
 * depends only on the file, not on timing.
 */
#include "codec/codec.h"
#include "storage/private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IN_BYTES    (256u << 10)
#define STEP_BYTES  (256ull << 10) /* how often bytes are published and the stop flag is read */
#define SMALL_BYTES STEP_BYTES     /* inflated immediately, without a thread */

struct mr_inflater {
    struct mr_file *f;
    struct mr_gunzip *z;
    int fd;
    uint64_t file_bytes, read_bytes;
    uint64_t made; /* in map; the thread's own once it runs */
    struct mr_gunzip_io io;
    uint8_t *map; /* f->bytes long; NULL: not yet */
    uint8_t *in;
    pthread_t thread;
    struct mr_process process; /* in which the thread is */
    bool started;
    _Atomic bool stop;
    pthread_mutex_t lock; /* guards what follows; taken alone */
    pthread_cond_t changed;
    bool done; /* error is set, or all is there */
    struct mr_error_kept error;
};

/* Reads more input if there is none. Returns 0 with input, or 0 with [out] ended at the file's
 * end. */
static int refill(struct mr_inflater *g, bool *ended)
{
    *ended = false;
    if (g->io.n_in)
        return 0;
    uint64_t got = 0, want = MR_MIN(IN_BYTES, g->file_bytes - g->read_bytes);
    int rc = mr_file_pread(g->fd, g->in, want, g->read_bytes, &got);
    if (rc)
        return mr_file_read_error(g->f, rc, want, g->read_bytes, got);
    g->read_bytes += got;
    g->io.in = g->in;
    g->io.n_in = got;
    *ended = got == 0;
    return 0;
}

static int inflate_step(struct mr_inflater *g, bool *ended)
{
    int rc = refill(g, ended);
    if (rc < 0)
        return rc;
    if (atomic_load_explicit(&g->stop, memory_order_relaxed))
        return mr_error_set(MR_ECANCELLED, "%s: inflating was stopped", g->f->name);
    return *ended ? mr_gunzip_end(g->z) : mr_gunzip_step(g->z, &g->io);
}

/* Inflates n more bytes to `to`; fewer only at the stream's end. Returns 0 or an error; [out]
 * got. */
static int inflate_some(struct mr_inflater *g, uint8_t *to, uint64_t n, uint64_t *got)
{
    bool ended = false;
    int rc = 0;
    g->io.out = to;
    g->io.n_out = n;
    while (!rc && !ended && g->io.n_out)
        rc = inflate_step(g, &ended);
    *got = n - g->io.n_out;
    return rc;
}

static int ended_early(const struct mr_inflater *g)
{
    return mr_error_set(
        MR_ETRUNCATED, "%s: truncated: its header promises %llu bytes, it inflates to %llu",
        g->f->name, (unsigned long long)g->f->bytes, (unsigned long long)mr_gunzip_made(g->z));
}

/* All promised bytes are inflated: the stream must end here, with the right checksum. */
static int check_end(struct mr_inflater *g)
{
    uint8_t more;
    uint64_t got;
    int rc = inflate_some(g, &more, 1, &got);
    if (rc)
        return rc;
    return got ? mr_error_set(MR_EFORMAT,
                              "%s: too long: its header promises %llu bytes, it inflates to more",
                              g->f->name, (unsigned long long)g->f->bytes)
               : 0;
}

static void publish(struct mr_inflater *g, uint64_t ready, int rc, bool done)
{
    pthread_mutex_lock(&g->lock);
    atomic_store_explicit(&g->f->ready, ready, memory_order_release);
    if (rc)
        mr_error_keep(rc, &g->error);
    g->done = done;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Inflates to the end. Bytes inflated before an error can be viewed. */
static void inflate_rest(struct mr_inflater *g)
{
    const uint64_t total = g->f->bytes;
    uint64_t made = g->made;
    int rc = 0;
    while (!rc && made < total) {
        uint64_t want = MR_MIN(STEP_BYTES, total - made), got;
        rc = inflate_some(g, g->map + made, want, &got);
        made += got;
        if (!rc && got < want)
            rc = ended_early(g);
        publish(g, MR_MIN(made, total - 1), 0, false);
    }
    if (!rc)
        rc = check_end(g);
    publish(g, rc ? MR_MIN(made, total - (total > 0)) : total, rc, true);
}

static void *inflater_main(void *arg)
{
    inflate_rest(arg);
    return NULL;
}

static int total_check(const struct mr_inflater *g, uint64_t total, uint64_t head)
{
    const char *name = g->f->name;
    struct mr_host_memory_info memory = {.size = sizeof memory};
    mr_host_memory_query(&memory);
    if (total > mr_gunzip_most(g->file_bytes))
        return mr_error_set(
            MR_EFORMAT,
            "%s: its header promises %llu bytes, but %llu bytes of gzip hold at most %llu", name,
            (unsigned long long)total, (unsigned long long)g->file_bytes,
            (unsigned long long)mr_gunzip_most(g->file_bytes));
    if (total > memory.total_bytes)
        return mr_error_set(-ENOMEM,
                            "%s: needs %llu bytes of memory inflated, the machine has %llu; "
                            "inflate it to a file first",
                            name, (unsigned long long)total,
                            (unsigned long long)memory.total_bytes);
    if (head > total)
        return mr_error_set(
            MR_EFORMAT, "%s: too long: its header promises %llu bytes, it inflates to %llu or more",
            name, (unsigned long long)total, (unsigned long long)head);
    return 0;
}

static int map_total(struct mr_inflater *g, uint64_t total)
{
    void *map =
        mmap(NULL, MR_MAX(total, 1u), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return mr_error_nomem(g->f->name, total);
    madvise(map, total, MADV_HUGEPAGE); /* optional: without it pages are small */
    g->map = map;
    g->f->data = map;
    g->f->bytes = total;
    return 0;
}

/* Inflates the head and reads the total size from it. */
static int begin(struct mr_inflater *g, void *head, size_t head_bytes,
                 int (*want)(void *user, const void *head, uint64_t *out_total), void *user)
{
    uint64_t made = 0, total = 0;
    memset(head, 0, head_bytes);
    int rc = inflate_some(g, head, head_bytes, &made);
    if (rc < 0)
        return rc;
    rc = want(user, head, &total);
    if (rc < 0)
        return rc;
    rc = total_check(g, total, made);
    if (rc < 0)
        return rc;
    rc = map_total(g, total);
    if (rc < 0)
        return rc;
    memcpy(g->map, head, made);
    g->made = made;
    atomic_store(&g->f->ready, MR_MIN(made, total - (total > 0)));
    if (made < head_bytes && made < total)
        return ended_early(g);
    if (total <= SMALL_BYTES) {
        inflate_rest(g);
        return g->error.code ? mr_error_put(&g->error) : 0;
    }
    rc = mr_thread_start(&g->thread, "mr-inflate", inflater_main, g);
    if (rc < 0)
        return rc;
    g->started = true;
    return 0;
}

int mr_inflater_open(struct mr_file *f, const char *path, void *head, size_t head_bytes,
                     int (*want)(void *user, const void *head, uint64_t *out_total), void *user)
{
    struct mr_inflater *g = calloc(1, sizeof *g);
    if (!g)
        return mr_error_nomem(path, sizeof *g);
    g->f = f;
    f->inflater = g;
    mr_process_note(&g->process);
    pthread_mutex_init(&g->lock, NULL);
    int rc = mr_cond_init(&g->changed);
    g->fd = rc ? rc : mr_file_open(path, &g->file_bytes);
    if (g->fd < 0)
        return g->fd;
    g->in = malloc(IN_BYTES);
    if (!g->in)
        return mr_error_nomem(path, IN_BYTES);
    g->z = mr_gunzip_create(f->name);
    if (!g->z)
        return MILLRACE_HAVE_ZLIB ? -ENOMEM : MR_EUNSUPPORTED;
    return begin(g, head, head_bytes, want, user);
}

void mr_inflater_close(struct mr_file *f)
{
    struct mr_inflater *g = f->inflater;
    atomic_store(&g->stop, true);
    bool own = mr_process_is(&g->process); /* else its thread, lock and waiters are elsewhere */
    if (g->started && own)
        pthread_join(g->thread, NULL);
    if (g->map)
        munmap(g->map, MR_MAX(f->bytes, 1u));
    mr_gunzip_destroy(g->z);
    free(g->in);
    if (g->fd >= 0)
        close(g->fd);
    if (own) {
        pthread_cond_destroy(&g->changed);
        pthread_mutex_destroy(&g->lock);
    }
    free(g);
    f->inflater = NULL;
}

/* A forked child has what was there at the fork, and no thread that makes more. */
static int wait_in_child(const struct mr_file *f, uint64_t end)
{
    const struct mr_inflater *g = f->inflater;
    if (atomic_load(&f->ready) >= end)
        return 0;
    if (g->done)
        return mr_error_put(&g->error);
    return mr_error_set(MR_EMISUSE,
                        "%s: process %d, which opened it, was still inflating it at the fork: read "
                        "its last sample before the fork, or open the data set after it",
                        f->name, g->process.pid);
}

int mr_inflater_wait(struct mr_file *f, uint64_t end)
{
    struct mr_inflater *g = f->inflater;
    if (!mr_process_is(&g->process))
        return wait_in_child(f, end);
    pthread_mutex_lock(&g->lock);
    while (!g->done && atomic_load_explicit(&f->ready, memory_order_relaxed) < end)
        pthread_cond_wait(&g->changed, &g->lock);
    bool there = atomic_load_explicit(&f->ready, memory_order_acquire) >= end;
    pthread_mutex_unlock(&g->lock);
    return there ? 0 : mr_error_put(&g->error);
}
