/*
 * Preloaded: logs what a program does to the files below POWER_ROOT, for tests that cut the power
 * at any point of it (tests/support/power.py).
 *
 * POWER_LOG/ops gets a line per operation on a name (create, mkdir, rename, exchange, link, unlink)
 * and per sync. What a file holds is copied to POWER_LOG/N when it is synced, and when a name of it
 * changes: this also sees writes that bypass the functions in here (stdio, mmap, io_uring). A line
 * is written after its operation, and before the next one of the process begins.
 */
#undef _FILE_OFFSET_BITS /* open and open64 are two functions here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root, *folder;
static int ops = -1;
static unsigned n_copies;

static int raw_open(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static __attribute__((constructor)) void begin(void)
{
    char path[PATH_MAX];
    root = getenv("POWER_ROOT");
    folder = getenv("POWER_LOG");
    if (!root || !folder)
        return;
    snprintf(path, sizeof path, "%s/ops", folder);
    ops = raw_open(path, O_WRONLY | O_CREAT | O_APPEND);
}

/* A test that lost a part of the log would show nothing. */
static void need(bool ok)
{
    if (!ok)
        abort();
}

/* The absolute path of a name. Returns whether it is below the root. */
static bool find(int dir, const char *name, char out[PATH_MAX])
{
    char link[64], at[PATH_MAX] = "";
    if (ops < 0)
        return false;
    if (name[0] == '/') {
        snprintf(out, PATH_MAX, "%s", name);
    } else {
        snprintf(link, sizeof link, dir == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir);
        ssize_t n = readlink(link, at, sizeof at - 1);
        if (n <= 0 || snprintf(out, PATH_MAX, "%.*s/%s", (int)n, at, name) >= PATH_MAX)
            return false;
    }
    size_t n = strlen(root);
    return strncmp(out, root, n) == 0 && (out[n] == '/' || !out[n]);
}

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    char line[2 * PATH_MAX + 64];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    need(n > 0 && (size_t)n < sizeof line && write(ops, line, (size_t)n) == n);
}

static void copy(int from, unsigned number)
{
    static char buffer[1 << 16];
    char path[PATH_MAX];
    off_t at = 0;
    ssize_t n;
    snprintf(path, sizeof path, "%s/%u", folder, number);
    int to = raw_open(path, O_WRONLY | O_CREAT | O_TRUNC);
    need(to >= 0);
    for (; (n = pread(from, buffer, sizeof buffer, at)) > 0; at += n)
        need(write(to, buffer, (size_t)n) == n);
    need(n == 0);
    close(to);
}

/* What the file of this path holds now: "data INODE COPY" or "sync INODE COPY". */
static void keep(const char *what, const char *path)
{
    struct stat st;
    int fd = raw_open(path, O_RDONLY | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        copy(fd, n_copies);
        say("%s\t%llu\t%u\n", what, (unsigned long long)st.st_ino, n_copies++);
    }
    if (fd >= 0)
        close(fd);
}

/* The real function, its result and errno kept while the log is written. */
#define REAL(name, type, parameters)                                                               \
    static type(*real) parameters;                                                                 \
    if (!real)                                                                                     \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                                 \
    need(real != NULL)

static void begin_op(void)
{
    pthread_mutex_lock(&lock);
}

static void end_op(int errnum)
{
    pthread_mutex_unlock(&lock);
    errno = errnum;
}

/* ---- syncs ---- */

static void synced(int fd)
{
    char path[PATH_MAX], link[64];
    struct stat st;
    if (ops < 0 || fstat(fd, &st) != 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = 0;
    if (strncmp(path, root, strlen(root)) != 0)
        return;
    if (S_ISDIR(st.st_mode))
        say("syncdir\t%s\n", path);
    else
        keep("sync", link);
}

/* The copy is made first: what is written while the disk is busy may not be on it. */
#define SYNC(name)                                                                                 \
    int name(int fd)                                                                               \
    {                                                                                              \
        REAL(name, int, (int));                                                                    \
        begin_op();                                                                                \
        synced(fd);                                                                                \
        int rc = real(fd);                                                                         \
        end_op(errno);                                                                             \
        return rc;                                                                                 \
    }
SYNC(fsync)
SYNC(fdatasync)

/* ---- names ---- */

static void created(int dir, const char *name, int fd)
{
    char path[PATH_MAX];
    struct stat st;
    if (fd >= 0 && find(dir, name, path) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        say("create\t%s\t%llu\n", path, (unsigned long long)st.st_ino);
}

#define OPEN(name, parameters, arguments, dir)                                                     \
    int name parameters                                                                            \
    {                                                                                              \
        mode_t mode = 0;                                                                           \
        REAL(name, int, parameters);                                                               \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
            va_list args;                                                                          \
            va_start(args, flags);                                                                 \
            mode = va_arg(args, mode_t);                                                           \
            va_end(args);                                                                          \
        }                                                                                          \
        if (!(flags & O_CREAT))                                                                    \
            return real arguments;                                                                 \
        begin_op();                                                                                \
        int fd = real arguments;                                                                   \
        int errnum = errno;                                                                        \
        created(dir, path, fd);                                                                    \
        end_op(errnum);                                                                            \
        return fd;                                                                                 \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), dir)
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), dir)

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        REAL(name, FILE *, (const char *, const char *));                                          \
        begin_op();                                                                                \
        FILE *file = real(path, mode);                                                             \
        int errnum = errno;                                                                        \
        if (file && mode[0] != 'r')                                                                \
            created(AT_FDCWD, path, fileno(file));                                                 \
        end_op(errnum);                                                                            \
        return file;                                                                               \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* what: rename, exchange or link. flags: of renameat2. */
static int move(const char *what, int from_dir, const char *from, int to_dir, const char *to,
                unsigned flags)
{
    char a[PATH_MAX], b[PATH_MAX];
    bool linked = what[0] == 'l';
    begin_op();
    bool mine = find(from_dir, from, a) && find(to_dir, to, b);
    if (mine)
        keep("data", a);
    int rc = (int)(linked ? syscall(SYS_linkat, from_dir, from, to_dir, to, flags)
                          : syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
    int errnum = errno;
    if (rc == 0 && mine)
        say("%s\t%s\t%s\n", what, a, b);
    end_op(errnum);
    return rc;
}

int rename(const char *from, const char *to)
{
    return move("rename", AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return move("rename", from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return move(flags & RENAME_EXCHANGE ? "exchange" : "rename", from_dir, from, to_dir, to, flags);
}

int link(const char *from, const char *to)
{
    return move("link", AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return move("link", from_dir, from, to_dir, to, (unsigned)flags);
}

int unlinkat(int dir, const char *name, int flags)
{
    char path[PATH_MAX];
    begin_op();
    bool mine = find(dir, name, path);
    if (mine)
        keep("data", path);
    int rc = (int)syscall(SYS_unlinkat, dir, name, flags), errnum = errno;
    if (rc == 0 && mine)
        say("unlink\t%s\n", path);
    end_op(errnum);
    return rc;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    begin_op();
    int rc = (int)syscall(SYS_mkdirat, dir, name, mode), errnum = errno;
    if (rc == 0 && find(dir, name, path))
        say("mkdir\t%s\n", path);
    end_op(errnum);
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}
