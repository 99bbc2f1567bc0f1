/* Reads by io_uring: one ring per reader, one system call per batch of reads. */
#include "storage/private.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST_ENTRIES 4096u
#define ONE_READ     (1ull << 30) /* a submission's length has 32 bits */
#define RETRY_NS     1000000ull   /* when the kernel takes no reads for now */
#define GIVE_UP_NS   200000000ull /* of nothing taken and nothing completed */

struct uring_queue {
    struct io_uring ring;
    /* Reads that wait for an entry in the ring, or whose entry the kernel has not consumed yet, in
     * order. The first n_entered of them have an entry. */
    struct mr_read_list waiting;
    uint32_t n_entered;
    uint64_t refused_ns; /* since when the kernel accepts no reads; 0: it accepts them */
    bool broken;         /* the kernel refuses entries for good */
};

/* ---- is it usable? ---- */

static char why_not[200]; /* "": usable */
static pthread_once_t probed = PTHREAD_ONCE_INIT;

static void explain(int errnum)
{
    const char *hint = "";
    int disabled = 0;
    FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    if (f && fscanf(f, "%d", &disabled) != 1)
        disabled = 0;
    if (f)
        fclose(f);
    if (disabled && (errnum == EPERM || errnum == EACCES))
        hint = " (sysctl kernel.io_uring_disabled is set)";
    else if (errnum == EPERM || errnum == EACCES)
        hint = " (a seccomp filter, as of a container, forbids it)";
    else if (errnum == ENOSYS)
        hint = " (the kernel has no io_uring, or a seccomp filter forbids it)";
    else if (errnum == ENOMEM)
        hint = " (the locked-memory limit, ulimit -l, is too low)";
    snprintf(why_not, sizeof why_not, "io_uring_setup: %s%s", mr_strerror(-errnum), hint);
}

static void probe(void)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(2, &ring, 0);
    if (rc < 0) {
        explain(-rc);
        return;
    }
    struct io_uring_probe *ops = io_uring_get_probe_ring(&ring);
    if (!(ring.features & IORING_FEAT_EXT_ARG)) /* else a wait takes an entry of its own */
        snprintf(why_not, sizeof why_not,
                 "the kernel's io_uring cannot wait with a timeout (Linux 5.11 can)");
    else if (!ops || !io_uring_opcode_supported(ops, IORING_OP_READ) ||
             !io_uring_opcode_supported(ops, IORING_OP_OPENAT))
        snprintf(why_not, sizeof why_not,
                 "the kernel's io_uring has no read or no open operation (Linux 5.6 has)");
    io_uring_free_probe(ops);
    io_uring_queue_exit(&ring);
}

const char *mr_uring_why_not(void)
{
    pthread_once(&probed, probe);
    return why_not[0] ? why_not : NULL;
}

/* ---- a queue ---- */

static int uring_queue_open(struct mr_read_queue *queue)
{
    struct uring_queue *uring = queue->state;
    uint32_t entries = MR_MIN(queue->depth, MOST_ENTRIES);
    /* Completions are delivered only when we enter the kernel, so they do not interrupt decoding.
     * Since Linux 5.19. */
    int rc = io_uring_queue_init(entries, &uring->ring,
                                 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(entries, &uring->ring, 0);
    return rc < 0 ? mr_error_errno(-rc, "io_uring for %u reads", entries) : 0;
}

static void uring_queue_close(struct mr_read_queue *queue)
{
    struct uring_queue *uring = queue->state;
    io_uring_queue_exit(&uring->ring);
}

static void prepare_open(struct io_uring_sqe *sqe, const struct mr_file *f)
{
    static struct open_how beneath = {.flags = MR_OPEN_FLAGS, .resolve = MR_BENEATH};
    const char *name;
    if (f->root) {
        int fd = mr_root_of(f, &name);
        io_uring_prep_openat2(sqe, fd, name, &beneath);
    } else {
        io_uring_prep_openat(sqe, AT_FDCWD, f->name, MR_OPEN_FLAGS, 0);
    }
}

/* A lazy file is opened through the ring, because looking up its name may also wait for a disk. */
static void prepare(struct io_uring_sqe *sqe, const struct mr_file *f, struct mr_read *read)
{
    if (f->lazy && read->fd < 0)
        prepare_open(sqe, f);
    else
        io_uring_prep_read(sqe, mr_read_fd(f, read), (char *)read->to + read->done,
                           (unsigned)MR_MIN(read->want - read->done, ONE_READ),
                           read->at + read->done);
    io_uring_sqe_set_data(sqe, read);
}

/* Fills the ring's free entries with waiting reads. */
static void enter(struct mr_read_queue *queue)
{
    struct uring_queue *uring = queue->state;
    struct mr_read *read = uring->waiting.first;
    for (uint32_t i = 0; read && i < uring->n_entered; i++)
        read = read->next;
    for (; read; read = read->next, uring->n_entered++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
        if (!sqe)
            return;
        prepare(sqe, queue->files->file[read->file], read);
    }
}

static void taken(struct uring_queue *uring, uint32_t n)
{
    uring->refused_ns = 0;
    uring->n_entered -= n;
    for (; n; n--)
        uring->waiting.first = uring->waiting.first->next;
}

/* Temporary errors: the next reap tries again, when some reads may have completed. */
static bool may_pass(int rc)
{
    return rc == 0 || rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM || rc == -ENOBUFS;
}

static void refused(struct uring_queue *uring, int rc)
{
    uint64_t now = mr_time_ns();
    if (!uring->refused_ns)
        uring->refused_ns = now;
    if (!may_pass(rc) || now - uring->refused_ns > GIVE_UP_NS) {
        uring->broken = true;
        mr_log(MR_LOG_WARNING, "io_uring takes no more reads (%s)",
               mr_strerror(rc < 0 ? rc : -EIO));
    }
}

/* Submits as many waiting reads as the kernel accepts. */
static void uring_flush(struct mr_read_queue *queue)
{
    struct uring_queue *uring = queue->state;
    while (uring->waiting.first && !uring->broken) {
        enter(queue);
        int rc = io_uring_submit(&uring->ring);
        if (rc > 0) {
            taken(uring, (uint32_t)rc);
        } else if (rc != -EINTR) {
            refused(uring, rc);
            return;
        }
    }
}

static bool uring_start(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    struct uring_queue *uring = queue->state;
    (void)f;
    if (!read->want)
        return true;
    mr_read_append(&uring->waiting, read);
    return false;
}

/* A lazy file is open. true: its read has ended. */
static bool begin(struct uring_queue *uring, struct mr_file *f, struct mr_read *read, int fd,
                  uint64_t bytes)
{
    read->fd = fd;
    mr_read_opened(read, f);
    if (mr_read_sized(read, f, bytes) == 0 && read->want)
        mr_read_append(&uring->waiting, read);
    return read->status || !read->want;
}

/* The kernel did not open it: a link may lead elsewhere below the root. true: the read has
 * ended. */
static bool open_now(struct uring_queue *uring, struct mr_file *f, struct mr_read *read)
{
    uint64_t bytes = 0;
    int fd = mr_file_open_lazy(f, &bytes);
    if (fd < 0) {
        mr_read_fail(read, fd);
        return true;
    }
    return begin(uring, f, read, fd, bytes);
}

/* Handles the completion of an open. true: the read has ended. */
static bool opened(struct uring_queue *uring, struct mr_file *f, struct mr_read *read, int res)
{
    uint64_t bytes;
    if (res >= 0) {
        res = mr_file_opened(f->name, res, &bytes);
        if (res >= 0)
            return begin(uring, f, read, res, bytes);
        mr_read_fail(read, res);
        return true;
    }
    if (f->root && res != -EINTR && res != -EAGAIN)
        return open_now(uring, f, read);
    if (res != -EINTR && res != -EAGAIN) {
        mr_read_fail(read, mr_file_open_error(f->name, -res));
        return true;
    }
    mr_read_append(&uring->waiting, read);
    return false;
}

/* Handles the completion of a read. true: the read has ended. */
static bool complete(struct mr_read_queue *queue, struct mr_read *read, int res)
{
    struct uring_queue *uring = queue->state;
    struct mr_file *f = queue->files->file[read->file];
    if (f->lazy && read->fd < 0)
        return opened(uring, f, read, res);
    if (res > 0)
        read->done += (uint64_t)res;
    else if (res == -EINVAL && read->direct)
        mr_read_refused(read, f);
    else if (res == 0)
        read->status = MR_ETRUNCATED;
    else if (res != -EINTR && res != -EAGAIN)
        read->status = res;
    if (read->status || read->done >= read->need)
        return true;
    mr_read_append(&uring->waiting, read);
    return false;
}

static void end(struct mr_read *read)
{
    if (read->fd >= 0)
        close(read->fd);
    read->fd = -1;
}

static uint32_t take_completed(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap)
{
    struct uring_queue *uring = queue->state;
    uint32_t n = 0;
    struct io_uring_cqe *cqe;
    while (n < cap && !io_uring_peek_cqe(&uring->ring, &cqe)) {
        struct mr_read *read = io_uring_cqe_get_data(cqe);
        int res = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        uring->refused_ns = 0;
        if (complete(queue, read, res)) {
            end(read);
            out[n++] = read;
        }
    }
    return n;
}

/* Returns all waiting reads, to be started from the beginning: the kernel has none of them. */
static uint32_t uring_refused(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap)
{
    struct uring_queue *uring = queue->state;
    uint32_t n = 0;
    for (; uring->broken && n < cap && uring->waiting.first;
         uring->waiting.first = uring->waiting.first->next) {
        end(uring->waiting.first);
        uring->waiting.first->done = 0;
        out[n++] = uring->waiting.first;
    }
    return n;
}

static void wait_some(struct uring_queue *uring, uint64_t until_ns)
{
    uint64_t now = mr_time_ns();
    if (until_ns <= now)
        return;
    uint64_t wait = until_ns - now;
    if (uring->waiting.first)
        wait = MR_MIN(wait, RETRY_NS);
    struct __kernel_timespec ts = {.tv_sec = (long long)(wait / 1000000000),
                                   .tv_nsec = (long long)(wait % 1000000000)};
    struct io_uring_cqe *cqe;
    io_uring_wait_cqe_timeout(&uring->ring, &cqe, &ts);
}

static uint32_t uring_reap(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap,
                           uint64_t until_ns)
{
    struct uring_queue *uring = queue->state;
    for (;;) {
        uint32_t n = take_completed(queue, out, cap);
        uring_flush(queue);
        if (n || (uring->broken && uring->waiting.first) || !until_ns || until_ns <= mr_time_ns())
            return n;
        wait_some(uring, until_ns);
    }
}

const struct mr_storage_ops mr_storage_uring = {
    .name = "uring",
    .serves = MR_FILE_PATH,
    .kind = MR_STORAGE_URING,
    .queue_size = sizeof(struct uring_queue),
    .why_not = mr_uring_why_not,
    .queue_open = uring_queue_open,
    .queue_close = uring_queue_close,
    .start = uring_start,
    .flush = uring_flush,
    .reap = uring_reap,
    .refused = uring_refused,
};
