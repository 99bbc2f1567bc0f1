#include "fake_uring.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_ENTRIES 4096u
#define NAP_NS       100000

struct done {
    uint64_t user_data;
    int res;
};

struct fake {
    unsigned sq_head, sq_tail, cq_head, cq_tail, mask, flags;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    unsigned n_cqes;
    struct io_uring_sqe *pending; /* taken, not completed */
    unsigned n_pending, room;
    struct done *over; /* completed, no place in the queue */
    unsigned n_over, over_room;
    enum fake_fault fault;
    uint64_t random;
};

static enum fake_fault armed;
static uint64_t armed_seed, armed_nth;
static _Atomic uint64_t n_hits, n_done, n_rings;

const char *fake_name(enum fake_fault fault)
{
    static const char *const names[] = {
#define X(name, text) text,
        FAKE_FAULTS(X)
#undef X
    };
    return names[fault];
}

void fake_arm(enum fake_fault fault, uint64_t seed, uint64_t nth)
{
    armed = fault;
    armed_seed = seed;
    armed_nth = nth;
    atomic_store(&n_hits, 0);
    atomic_store(&n_done, 0);
    atomic_store(&n_rings, 0);
}

uint64_t fake_hits(void)
{
    return atomic_load(&n_hits);
}

static uint64_t below(struct fake *f, uint64_t n)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return f->random % n;
}

/* Is it time for this fault? One time of `in`. */
static bool hits(struct fake *f, enum fake_fault fault, unsigned in)
{
    if ((f->fault != fault && f->fault != FAKE_ALL) || below(f, in) != 0)
        return false;
    atomic_fetch_add(&n_hits, 1);
    return true;
}

static void *need(void *p)
{
    if (!p)
        abort();
    return p;
}

static struct fake *fake_of(const struct io_uring *ring)
{
    return ring->cq.ring_ptr;
}

/* ---- completions ---- */

static int do_open(const struct io_uring_sqe *sqe)
{
    const char *path = (const char *)(uintptr_t)sqe->addr;
    long fd =
        sqe->opcode == IORING_OP_OPENAT2
            ? syscall(SYS_openat2, sqe->fd, path, (void *)(uintptr_t)sqe->off, (size_t)sqe->len)
            : syscall(SYS_openat, sqe->fd, path, (int)sqe->open_flags, (mode_t)sqe->len);
    return fd < 0 ? -errno : (int)fd;
}

static int result_of(struct fake *f, const struct io_uring_sqe *sqe)
{
    if (atomic_fetch_add(&n_done, 1) + 1 == armed_nth && f->fault == FAKE_EIO) {
        atomic_fetch_add(&n_hits, 1);
        return -EIO;
    }
    if (hits(f, FAKE_EINTR, 4))
        return -EINTR;
    if (hits(f, FAKE_EAGAIN, 4))
        return -EAGAIN;
    if (sqe->opcode != IORING_OP_READ)
        return do_open(sqe);
    uint64_t bytes = sqe->len;
    if (bytes > 1 && hits(f, FAKE_SHORT, 2))
        bytes = 1 + below(f, bytes - 1);
    ssize_t got = pread(sqe->fd, (void *)(uintptr_t)sqe->addr, bytes, (off_t)sqe->off);
    return got < 0 ? -errno : (int)got;
}

static bool put(struct fake *f, struct done done)
{
    unsigned head = __atomic_load_n(&f->cq_head, __ATOMIC_ACQUIRE);
    if (f->cq_tail - head == f->n_cqes)
        return false;
    struct io_uring_cqe *to = &f->cqes[f->cq_tail & (f->n_cqes - 1)];
    to->user_data = done.user_data;
    to->res = done.res;
    to->flags = 0;
    __atomic_store_n(&f->cq_tail, f->cq_tail + 1, __ATOMIC_RELEASE);
    return true;
}

static void flush_over(struct fake *f)
{
    unsigned n = 0;
    while (n < f->n_over && put(f, f->over[n]))
        n++;
    f->n_over -= n;
    if (n)
        memmove(f->over, f->over + n, f->n_over * sizeof *f->over);
    f->flags = f->n_over ? IORING_SQ_CQ_OVERFLOW : 0;
}

static void complete_one(struct fake *f)
{
    bool any = f->fault == FAKE_SHUFFLED || f->fault == FAKE_LATE || f->fault == FAKE_ALL;
    unsigned i = any ? (unsigned)below(f, f->n_pending) : 0;
    struct io_uring_sqe sqe = f->pending[i];
    memmove(f->pending + i, f->pending + i + 1, (--f->n_pending - i) * sizeof sqe);
    if (i)
        atomic_fetch_add(&n_hits, 1);
    struct done done = {sqe.user_data, result_of(f, &sqe)};
    if (!f->n_over && put(f, done))
        return;
    if (f->n_over == f->over_room) {
        f->over_room = f->over_room ? 2 * f->over_room : 16;
        f->over = need(realloc(f->over, f->over_room * sizeof *f->over));
    }
    f->over[f->n_over++] = done;
    f->flags = IORING_SQ_CQ_OVERFLOW;
    atomic_fetch_add(&n_hits, 1);
}

static void complete(struct fake *f, bool all)
{
    uint64_t n = f->n_pending;
    if (!all && n)
        n = 1 + below(f, n);
    for (; n; n--)
        complete_one(f);
}

static bool is_late(const struct fake *f)
{
    return f->fault == FAKE_LATE || f->fault == FAKE_ALL;
}

static int take(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    struct fake *f = fake_of(ring);
    flush_over(f);
    *cqe = f->cq_head == f->cq_tail ? NULL : &f->cqes[f->cq_head & (f->n_cqes - 1)];
    return *cqe ? 0 : -EAGAIN;
}

/* ---- liburing's functions ---- */

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    unsigned n = 1;
    (void)flags;
    while (n < entries && n < MOST_ENTRIES)
        n *= 2;
    struct fake *f = need(calloc(1, sizeof *f));
    f->mask = n - 1;
    f->fault = armed;
    f->random = (armed_seed + atomic_fetch_add(&n_rings, 1)) * 0x9e3779b97f4a7c15ull | 1;
    f->n_cqes = f->fault == FAKE_FULL || f->fault == FAKE_ALL ? 2 : 2 * n;
    f->sqes = need(calloc(n, sizeof *f->sqes));
    f->cqes = need(calloc(f->n_cqes, sizeof *f->cqes));
    *ring = (struct io_uring){.ring_fd = -1, .features = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP};
    ring->sq = (struct io_uring_sq){.khead = &f->sq_head,
                                    .ktail = &f->sq_tail,
                                    .kflags = &f->flags,
                                    .kring_mask = &f->mask,
                                    .sqes = f->sqes,
                                    .ring_mask = n - 1,
                                    .ring_entries = n};
    ring->cq = (struct io_uring_cq){.khead = &f->cq_head,
                                    .ktail = &f->cq_tail,
                                    .cqes = f->cqes,
                                    .ring_mask = f->n_cqes - 1,
                                    .ring_entries = f->n_cqes,
                                    .ring_ptr = f};
    return 0;
}

/* As the kernel, it may still write what was asked for, until the ring is gone. */
void io_uring_queue_exit(struct io_uring *ring)
{
    struct fake *f = fake_of(ring);
    complete(f, true);
    free(f->sqes);
    free(f->cqes);
    free(f->pending);
    free(f->over);
    free(f);
}

int io_uring_submit(struct io_uring *ring)
{
    struct fake *f = fake_of(ring);
    unsigned n = ring->sq.sqe_tail - ring->sq.sqe_head;
    if (f->n_over)
        return -EBUSY;
    if (hits(f, FAKE_EINTR, 8))
        return -EINTR;
    if (hits(f, FAKE_EAGAIN, 8))
        return -EAGAIN;
    if (n > 1 && hits(f, FAKE_PARTIAL, 2))
        n = (unsigned)(1 + below(f, n - 1));
    if (f->n_pending + n > f->room) {
        f->room = 2 * (f->n_pending + n);
        f->pending = need(realloc(f->pending, f->room * sizeof *f->pending));
    }
    for (unsigned i = 0; i < n; i++)
        f->pending[f->n_pending++] = f->sqes[ring->sq.sqe_head++ & f->mask];
    __atomic_store_n(&f->sq_head, ring->sq.sqe_head, __ATOMIC_RELEASE);
    if (!is_late(f))
        complete(f, true);
    else if (below(f, 4) == 0)
        complete(f, false);
    return (int)n;
}

int io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                              struct __kernel_timespec *ts)
{
    struct fake *f = fake_of(ring);
    const struct timespec nap = {.tv_nsec = ts->tv_sec || ts->tv_nsec > NAP_NS ? NAP_NS
                                                                               : (long)ts->tv_nsec};
    if (take(ring, cqe) == 0)
        return 0;
    if (hits(f, FAKE_EINTR, 4))
        return -EINTR;
    if (!f->n_pending || hits(f, FAKE_LATE, 2)) {
        nanosleep(&nap, NULL);
        return -ETIME;
    }
    complete(f, false);
    return take(ring, cqe);
}

int __io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned submit,
                       unsigned wait_nr, sigset_t *mask)
{
    (void)submit;
    (void)wait_nr;
    (void)mask;
    return take(ring, cqe);
}

struct io_uring_probe *io_uring_get_probe_ring(struct io_uring *ring)
{
    (void)ring;
    unsigned n = IORING_OP_OPENAT2 + 1;
    struct io_uring_probe *probe = need(calloc(1, sizeof *probe + n * sizeof *probe->ops));
    probe->last_op = (__u8)(n - 1);
    for (unsigned i = 0; i < n; i++)
        probe->ops[i].flags = IO_URING_OP_SUPPORTED;
    return probe;
}

void io_uring_free_probe(struct io_uring_probe *probe)
{
    free(probe);
}
