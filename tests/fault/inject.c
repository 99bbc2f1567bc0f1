#include "inject.h"

#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>
#if MILLRACE_HAVE_URING
#include <liburing.h>
#endif

static const struct {
    const char *text;
    int errnum;
} kinds[] = {
#define X(name, text, errnum) {text, errnum},
    FAULT_KINDS(X)
#undef X
};

static _Atomic uint64_t calls[N_FAULT_KINDS], hits;
static _Atomic int armed = -1; /* the kind that fails */
static uint64_t armed_nth;
static bool armed_on;

const char *fault_name(enum fault_kind kind)
{
    return kinds[kind].text;
}

void fault_arm(enum fault_kind kind, uint64_t nth, bool on)
{
    atomic_store(&armed, -1);
    for (int i = 0; i < N_FAULT_KINDS; i++)
        atomic_store(&calls[i], 0);
    atomic_store(&hits, 0);
    armed_nth = nth;
    armed_on = on;
    atomic_store(&armed, nth ? (int)kind : -1);
}

void fault_disarm(void)
{
    atomic_store(&armed, -1);
}

uint64_t fault_calls(enum fault_kind kind)
{
    return atomic_load(&calls[kind]);
}

uint64_t fault_hits(void)
{
    return atomic_load(&hits);
}

static const char *told; /* the first failure makes this file */

static void tell(void)
{
    int fd =
        told ? (int)syscall(SYS_openat, AT_FDCWD, told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        syscall(SYS_close, fd);
}

/* FAULT=kind:nth or kind:nth:on arms a program that knows nothing of this; FAULT_TOLD names a file
 * that its first failure makes, FAULT_PATHS one in which its calls of that kind are noted. */
static __attribute__((constructor)) void arm_from_environment(void)
{
    const char *text = getenv("FAULT"), *colon = text ? strchr(text, ':') : NULL;
    const char *file = getenv("FAULT_PATHS");
    told = getenv("FAULT_TOLD");
    if (file)
        paths_open(file);
    for (int i = 0; colon && i < N_FAULT_KINDS; i++)
        if (strlen(kinds[i].text) == (size_t)(colon - text) &&
            !strncmp(text, kinds[i].text, (size_t)(colon - text))) {
            fault_arm((enum fault_kind)i, strtoull(colon + 1, NULL, 10),
                      strstr(colon + 1, ":on") != NULL);
            paths_note(i);
        }
}

bool fault_fails(enum fault_kind kind)
{
    uint64_t n = atomic_fetch_add(&calls[kind], 1) + 1;
    paths_call((int)kind, n);
    if (atomic_load(&armed) != (int)kind || (armed_on ? n < armed_nth : n != armed_nth))
        return false;
    if (atomic_fetch_add(&hits, 1) == 0)
        tell();
    errno = kinds[kind].errnum;
    return true;
}

/* ---- memory ---- */

#if defined(                                                                                       \
    __SANITIZE_ADDRESS__) /* which never gives an address twice soon, and looks for leaks itself */
#define TRACKING false
#else
#define TRACKING true
#endif
/* Far more than live at once; what is there, ASan reads each time that it looks for leaks. */
#define SET_SIZE (TRACKING ? 1u << 20 : 1)
static _Atomic uintptr_t live[SET_SIZE];
static _Atomic uint64_t n_live;

/* Blocks of one region of 16 MiB side by side, so that a short run touches few pages. */
static uint32_t place_of(uintptr_t p)
{
    return (uint32_t)((p >> 4) + (p >> 24) * 0x9e3779b1u) % SET_SIZE;
}

/* Without locks: a place is empty (0), free again (1) or a block's address, which only its owner
 * takes away. */
static void *add_live(void *p)
{
    if (!p || !TRACKING)
        return p;
    for (uint32_t i = place_of((uintptr_t)p);; i = (i + 1) % SET_SIZE) {
        uintptr_t was = atomic_load_explicit(&live[i], memory_order_relaxed);
        if (was <= 1 && atomic_compare_exchange_strong(&live[i], &was, (uintptr_t)p))
            break;
    }
    atomic_fetch_add(&n_live, 1);
    return p;
}

/* Blocks that were not allocated through here (by getline and the like) are not in the set. */
static void remove_live(void *p)
{
    uint32_t i = place_of((uintptr_t)p);
    uintptr_t at;
    if (!p || !TRACKING)
        return;
    while ((at = atomic_load_explicit(&live[i], memory_order_relaxed)) != 0 && at != (uintptr_t)p)
        i = (i + 1) % SET_SIZE;
    if (!at)
        return;
    atomic_store(&live[i], 1);
    atomic_fetch_sub(&n_live, 1);
}

uint64_t fault_live_blocks(void)
{
    return atomic_load(&n_live);
}

#define WRAP(type, name, parameters)                                                               \
    type __real_##name parameters;                                                                 \
    /* libraries that are linked too call it: it may not be hidden */                              \
    __attribute__((visibility("default"))) type __wrap_##name parameters;                          \
    type __wrap_##name parameters

WRAP(void *, malloc, (size_t bytes))
{
    return fault_fails(FAULT_MEMORY) ? NULL : add_live(__real_malloc(bytes));
}

WRAP(void *, calloc, (size_t n, size_t bytes))
{
    return fault_fails(FAULT_MEMORY) ? NULL : add_live(__real_calloc(n, bytes));
}

WRAP(void *, realloc, (void *old, size_t bytes))
{
    if (fault_fails(FAULT_MEMORY))
        return NULL;
    remove_live(old); /* before another thread can be given its address */
    void *p = __real_realloc(old, bytes);
    add_live(p ? p : old);
    return p;
}

WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes))
{
    return fault_fails(FAULT_MEMORY) ? NULL : add_live(__real_aligned_alloc(alignment, bytes));
}

WRAP(int, posix_memalign, (void **out, size_t alignment, size_t bytes))
{
    if (fault_fails(FAULT_MEMORY))
        return ENOMEM;
    int rc = __real_posix_memalign(out, alignment, bytes);
    if (!rc)
        add_live(*out);
    return rc;
}

WRAP(char *, strdup, (const char *text))
{
    return fault_fails(FAULT_MEMORY) ? NULL : add_live(__real_strdup(text));
}

WRAP(char *, strndup, (const char *text, size_t n))
{
    return fault_fails(FAULT_MEMORY) ? NULL : add_live(__real_strndup(text, n));
}

int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *fmt, ...)
{
    if (fault_fails(FAULT_MEMORY))
        return -1;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(out, fmt, args);
    va_end(args);
    if (n >= 0)
        add_live(*out);
    return n;
}

WRAP(FILE *, open_memstream, (char **text, size_t *bytes))
{
    return fault_fails(FAULT_MEMORY) ? NULL : __real_open_memstream(text, bytes);
}

WRAP(int, inflateInit2_, (z_streamp z, int bits, const char *version, int bytes))
{
    return fault_fails(FAULT_MEMORY) ? Z_MEM_ERROR : __real_inflateInit2_(z, bits, version, bytes);
}

WRAP(void, free, (void *p))
{
    remove_live(p);
    __real_free(p);
}

WRAP(void *, mmap, (void *at, size_t bytes, int protection, int flags, int fd, off_t offset))
{
    return fault_fails(FAULT_MAP) ? MAP_FAILED
                                  : __real_mmap(at, bytes, protection, flags, fd, offset);
}

WRAP(int, mlock, (const void *at, size_t bytes))
{
    return fault_fails(FAULT_LOCK) ? -1 : __real_mlock(at, bytes);
}

/* ---- files ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fault_fails(FAULT_OPEN) ? -1 : __real_open(path, flags, mode);
}

WRAP(FILE *, fopen, (const char *path, const char *mode))
{
    return fault_fails(FAULT_OPEN) ? NULL : __real_fopen(path, mode);
}

WRAP(FILE *, fdopen, (int fd, const char *mode))
{
    return fault_fails(FAULT_OPEN) ? NULL : __real_fdopen(fd, mode);
}

WRAP(int, mkostemp, (char *path, int flags))
{
    return fault_fails(FAULT_OPEN) ? -1 : __real_mkostemp(path, flags);
}

WRAP(int, memfd_create, (const char *name, unsigned flags))
{
    return fault_fails(FAULT_SHARE) ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, ftruncate, (int fd, off_t bytes))
{
    return fault_fails(FAULT_SHARE) ? -1 : __real_ftruncate(fd, bytes);
}

WRAP(int, eventfd, (unsigned start, int flags))
{
    return fault_fails(FAULT_SHARE) ? -1 : __real_eventfd(start, flags);
}

WRAP(int, fstat, (int fd, struct stat *out))
{
    return fault_fails(FAULT_STAT) ? -1 : __real_fstat(fd, out);
}

/* The bad byte. Set while nothing reads. */
static struct {
    _Atomic bool on;
    dev_t dev;
    ino_t ino;
    uint64_t offset;
} bad;

void fault_bad_byte(const char *path, uint64_t offset)
{
    struct stat st;
    atomic_store(&bad.on, false);
    if (!path)
        return;
    if (stat(path, &st))
        abort();
    bad.dev = st.st_dev;
    bad.ino = st.st_ino;
    bad.offset = offset;
    atomic_store(&bad.on, true);
}

static bool is_bad(int fd, uint64_t offset, uint64_t bytes)
{
    struct stat st;
    if (!atomic_load(&bad.on) || bad.offset < offset || bad.offset - offset >= bytes ||
        __real_fstat(fd, &st))
        return false;
    if (st.st_dev != bad.dev || st.st_ino != bad.ino)
        return false;
    errno = EIO;
    return true;
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
    return fault_fails(FAULT_READ) || is_bad(fd, (uint64_t)offset, bytes)
               ? -1
               : __real_pread(fd, to, bytes, offset);
}

WRAP(ssize_t, preadv2, (int fd, const struct iovec *parts, int n, off_t offset, int flags))
{
    return fault_fails(FAULT_READ) || is_bad(fd, (uint64_t)offset, parts[0].iov_len)
               ? -1
               : __real_preadv2(fd, parts, n, offset, flags);
}

WRAP(ssize_t, read, (int fd, void *to, size_t bytes))
{
    return fault_fails(FAULT_READ) ? -1 : __real_read(fd, to, bytes);
}

/* As the C library leaves a stream whose write failed. */
static bool stream_fails(FILE *file)
{
    if (!fault_fails(FAULT_WRITE))
        return false;
#ifdef __GLIBC__
    if (file)                 /* fflush(NULL) is of all */
        file->_flags |= 0x20; /* what ferror() looks at */
#endif
    return true;
}

WRAP(size_t, fwrite, (const void *data, size_t bytes, size_t n, FILE *file))
{
    return stream_fails(file) ? 0 : __real_fwrite(data, bytes, n, file);
}

WRAP(int, fputs, (const char *text, FILE *file))
{
    return stream_fails(file) ? EOF : __real_fputs(text, file);
}

WRAP(int, fflush, (FILE * file))
{
    return stream_fails(file) ? EOF : __real_fflush(file);
}

/* Closes in any case, as the real one does. */
WRAP(int, fclose, (FILE * file))
{
    bool fail = fault_fails(FAULT_WRITE);
    int errnum = errno, rc = __real_fclose(file);
    if (!fail)
        return rc;
    errno = errnum;
    return EOF;
}

WRAP(int, gzwrite, (gzFile file, const void *data, unsigned bytes))
{
    return fault_fails(FAULT_WRITE) ? 0 : __real_gzwrite(file, data, bytes);
}

WRAP(int, gzclose, (gzFile file))
{
    bool fail = fault_fails(FAULT_WRITE);
    int errnum = errno, rc = __real_gzclose(file);
    if (!fail)
        return rc;
    errno = errnum;
    return Z_ERRNO;
}

WRAP(int, rename, (const char *from, const char *to))
{
    return fault_fails(FAULT_RENAME) ? -1 : __real_rename(from, to);
}

/* ---- threads and rings ---- */

WRAP(int, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg))
{
    return fault_fails(FAULT_THREAD) ? EAGAIN : __real_pthread_create(out, attributes, fn, arg);
}

#if MILLRACE_HAVE_URING
WRAP(int, io_uring_queue_init, (unsigned entries, struct io_uring *ring, unsigned flags))
{
    return fault_fails(FAULT_RING) ? -ENOMEM : __real_io_uring_queue_init(entries, ring, flags);
}

/* Reading this process's memory at address 0 is what the kernel itself answers with EIO. */
static int eio_fd(void)
{
    static _Atomic int fd = -1;
    int none = -1, now = atomic_load(&fd);
    if (now >= 0)
        return now;
    now = __real_open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (now >= 0 && !atomic_compare_exchange_strong(&fd, &none, now)) {
        close(now);
        now = none;
    }
    return now;
}

static void spoil_bad(struct io_uring *ring)
{
    for (unsigned i = ring->sq.sqe_head; atomic_load(&bad.on) && i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
        if (sqe->opcode == IORING_OP_READ && is_bad(sqe->fd, sqe->off, sqe->len)) {
            sqe->fd = eio_fd();
            sqe->off = 0;
        }
    }
}

WRAP(int, io_uring_submit, (struct io_uring * ring))
{
    if (fault_fails(FAULT_SUBMIT))
        return -EAGAIN;
    spoil_bad(ring);
    return __real_io_uring_submit(ring);
}

WRAP(int, io_uring_wait_cqe_timeout,
     (struct io_uring * ring, struct io_uring_cqe **cqe, struct __kernel_timespec *timeout))
{
    return fault_fails(FAULT_WAIT) ? -EINTR : __real_io_uring_wait_cqe_timeout(ring, cqe, timeout);
}
#endif
