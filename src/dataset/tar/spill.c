/*
 * Unnamed files for archives that don't fit in memory: the system removes them when the process
 * ends, however it ends. Also removes the named ones that killed processes of versions before 0.2
 * left behind.
 */
#include "dataset/tar/tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OLD_NAME      "unpacked." /* followed by six letters or digits */
#define OLD_NAME_MORE 6
#define OLD_SECONDS   3600 /* a file in use is written to all the time */

/* TMPDIR, or the cache folder, or /var/tmp. */
static const char *spill_folder(char *buf, size_t cap)
{
    const char *set = getenv("TMPDIR");
    if (set && set[0])
        return set;
    const char *cache = mr_index_cache_folder(buf, cap, true);
    return cache ? cache : "/var/tmp";
}

/* For file systems without O_TMPFILE. */
static int named_for_a_moment(const char *folder)
{
    char *path = NULL;
    if (asprintf(&path, "%s/" OLD_NAME "XXXXXX", folder) < 0) {
        errno = ENOMEM;
        return -1;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0 && unlink(path) != 0) {
        int errnum = errno;
        close(fd);
        errno = errnum;
        fd = -1;
    }
    free(path);
    return fd;
}

int mr_tar_spill_open(const char *archive)
{
    char buf[PATH_MAX];
    const char *folder = spill_folder(buf, sizeof buf);
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        fd = named_for_a_moment(folder);
    if (fd >= 0)
        return fd;
    return mr_error_errno(
        errno, "%s: unpacking it needs a temporary file in %s (set TMPDIR to another folder)",
        archive, folder);
}

/* ---- files of earlier versions ---- */

static bool is_old_name(const char *name)
{
    size_t n = strlen(OLD_NAME);
    if (strncmp(name, OLD_NAME, n) != 0 || strlen(name) != n + OLD_NAME_MORE)
        return false;
    return strspn(name + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") ==
           OLD_NAME_MORE;
}

/*
 * The system grants a write lease only if no one else has the file open. Without leases, only age
 * decides. If another process opens the file at this moment, the system sends us a signal, whose
 * default would end the process; so use one that is ignored.
 */
static bool in_use(int fd)
{
    fcntl(fd, F_SETSIG, SIGURG); /* ignored unless the program catches it */
    if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    return errno == EAGAIN;
}

static bool is_left(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           st.st_nlink == 1 && st.st_mtime < time(NULL) - OLD_SECONDS && !in_use(fd);
}

static void sweep_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (!is_old_name(entry->d_name))
            continue;
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (is_left(fd) && unlinkat(dirfd(dir), entry->d_name, 0) == 0)
            mr_log(MR_LOG_INFO, "%s/%s: removed: left by a killed run", folder, entry->d_name);
        close(fd);
    }
    closedir(dir);
}

void mr_tar_spill_sweep(void)
{
    char buf[PATH_MAX];
    const char *cache = mr_index_cache_folder(buf, sizeof buf, false);
    if (cache)
        sweep_folder(cache);
    sweep_folder("/var/tmp");
}
