/* Locks of files that one run alone may write; they end with the process. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MARK    "millrace lock: "
#define STEP_MS 50
#define KILLED_MS                                                                                  \
    500           /* one that was killed keeps its lock until what it was writing is on the disk */
#define TRIES 100 /* at a file that others remove as they end */

int cli_lock_take(int fd, bool shared, int wait_ms)
{
    for (;; wait_ms -= STEP_MS) {
        if (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno;
        if (wait_ms <= 0 || cli_interrupted())
            return EWOULDBLOCK;
        usleep(STEP_MS * 1000);
    }
}

static bool is_at(int fd, const char *path)
{
    struct stat file, there;
    return fstat(fd, &file) == 0 && lstat(path, &there) == 0 && file.st_dev == there.st_dev &&
           file.st_ino == there.st_ino;
}

/* bytes: the first n of the file, at most what a lock has. A power cut may leave zeros, or the
 * beginning. */
static bool is_lock(const char *bytes, size_t n)
{
    size_t zeros = 0;
    while (zeros < n && !bytes[zeros])
        zeros++;
    return zeros == n || strncmp(bytes, MARK, n < sizeof MARK - 1 ? n : sizeof MARK - 1) == 0;
}

/* [out] text: what the file holds. Returns whether it is a lock of ours, or empty. */
static bool read_lock(int fd, char text[256])
{
    struct stat file;
    ssize_t n = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) ? pread(fd, text, 255, 0) : -1;
    bool ours = n >= 0 && file.st_size < 256 && is_lock(text, (size_t)n);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return ours;
}

static int held(const char *path, const char *text)
{
    bool named = strlen(text) > sizeof MARK - 1;
    return cli_fail("%s: another run is writing it: %s; wait until it ends, or name another file",
                    path, named ? text + sizeof MARK - 1 : "it has just started");
}

static void write_lock(int fd)
{
    char text[256], host[65] = "", when[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    gethostname(host, sizeof host - 1);
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    int n = snprintf(text, sizeof text, MARK "process %d on %s since %s UTC\n", (int)getpid(), host,
                     when);
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) < 0)
        cli_warn("the lock's owner cannot be written: %s",
                 strerror(errno)); /* it is held all the same */
}

static int unlocked(const char *path, const char *lock, int errnum)
{
    cli_warn("%s: cannot be locked (%s: %s): another run that writes it would go unnoticed", path,
             lock, strerror(errnum));
    return CLI_OK;
}

/* Returns an exit code; *again: the file was removed by who held it. */
static int try_lock(struct cli_lock *lock, const char *path, bool *again)
{
    char text[256];
    *again = false;
    lock->fd = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (lock->fd < 0)
        return unlocked(path, lock->path, errno);
    if (!read_lock(lock->fd, text)) {
        close(lock->fd);
        lock->fd = -1;
        return cli_fail("%s: exists and is not a lock of millrace; rename it", lock->path);
    }
    int errnum = cli_lock_take(lock->fd, false, KILLED_MS);
    *again = errnum == 0 && !is_at(lock->fd, lock->path);
    if (errnum == 0 && !*again) {
        write_lock(lock->fd);
        return CLI_OK;
    }
    if (errnum == EWOULDBLOCK)
        read_lock(lock->fd, text); /* it may have been made just then */
    else if (errnum)
        unlink(lock->path);
    close(lock->fd);
    lock->fd = -1;
    if (errnum == 0)
        return CLI_OK;
    return errnum == EWOULDBLOCK ? held(path, text) : unlocked(path, lock->path, errnum);
}

int cli_lock_file(struct cli_lock *lock, const char *path)
{
    bool again = true;
    int code = CLI_OK;
    *lock = (struct cli_lock){.fd = -1};
    if (asprintf(&lock->path, "%s.lock", path) < 0) {
        lock->path = NULL;
        return cli_fail("out of memory");
    }
    for (int i = 0; again && i < TRIES; i++)
        code = try_lock(lock, path, &again);
    return code;
}

void cli_lock_release(struct cli_lock *lock)
{
    if (lock->fd >= 0) {
        if (lock->path && is_at(lock->fd, lock->path))
            unlink(lock->path); /* while it is held: who comes next makes another */
        close(lock->fd);
    }
    free(lock->path);
    *lock = (struct cli_lock){.fd = -1};
}
