/* Operations on one file, for the table, lazy files and inflaters: opening, reading, their
 * errors. */
#include "storage/private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ONE_PREAD (1ull << 30) /* below the system's own limit of 2 GiB less a page */

static const char *mode_text(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    return "a device";
}

int mr_file_open_error(const char *path, int errnum)
{
    struct stat st;
    struct rlimit most;
    if (errnum == ENXIO && !stat(path, &st))
        return mr_error_set(-ENXIO, "%s: is %s; expected a regular file", path,
                            mode_text(st.st_mode));
    if (errnum == EMFILE && !getrlimit(RLIMIT_NOFILE, &most))
        return mr_error_set(-EMFILE,
                            "%s: cannot be opened: this process has as many files open as it may "
                            "(ulimit -n is %llu): "
                            "raise it, or lower queue_depth",
                            path, (unsigned long long)most.rlim_cur);
    return mr_error_errno(errnum, "%s: cannot be opened", path);
}

int mr_file_opened(const char *path, int fd, uint64_t *bytes)
{
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st))
        rc = mr_error_errno(errno, "%s: fstat", path);
    else if (!S_ISREG(st.st_mode))
        rc = mr_error_set(S_ISDIR(st.st_mode) ? -EISDIR : MR_EUNSUPPORTED,
                          "%s: is %s; expected a regular file", path, mode_text(st.st_mode));
    else if (fcntl(fd, F_SETFL, 0))
        rc = mr_error_errno(errno, "%s: fcntl", path);
    if (rc) {
        close(fd);
        return rc;
    }
    *bytes = (uint64_t)st.st_size;
    return fd;
}

int mr_file_open(const char *path, uint64_t *bytes)
{
    int fd = open(path, MR_OPEN_FLAGS);
    return fd < 0 ? mr_file_open_error(path, errno) : mr_file_opened(path, fd, bytes);
}

bool mr_file_is_in_memory(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs))
        return false;
    return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
}

int mr_file_pread(int fd, void *buf, uint64_t want, uint64_t at, uint64_t *done)
{
    while (*done < want) {
        ssize_t got =
            pread(fd, (char *)buf + *done, MR_MIN(want - *done, ONE_PREAD), (off_t)(at + *done));
        if (got == 0)
            return MR_ETRUNCATED;
        if (got > 0)
            *done += (uint64_t)got;
        else if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    return 0;
}

int mr_file_read_error(const struct mr_file *f, int status, uint64_t want, uint64_t at,
                       uint64_t done)
{
    unsigned long long n = want, o = at, d = done;
    if (status != MR_ETRUNCATED)
        return mr_error_errno(-status, "%s: reading %llu bytes at offset %llu (%llu done)", f->name,
                              n, o, d);
    struct stat st;
    unsigned long long now = at + done;
    if (f->fd >= 0 ? !fstat(f->fd, &st) : f->lazy && f->kind == MR_FILE_PATH && !stat(f->name, &st))
        now = (unsigned long long)st.st_size;
    return mr_error_set(status,
                        "%s: shrank while it was read: expected %llu bytes at offset %llu, the "
                        "file now ends at %llu",
                        f->name, n, o, now);
}

int mr_file_check_whole(const struct mr_file *f, uint64_t bytes)
{
    uint64_t most = f->lazy ? f->whole_limit : MR_WHOLE_LIMIT;
    if (bytes <= most)
        return 0;
    return mr_error_set(MR_ELIMIT,
                        "%s: has %llu bytes: a file that is read whole may have %llu at most%s",
                        f->name, (unsigned long long)bytes, (unsigned long long)most,
                        most < MR_WHOLE_LIMIT ? " here, which follows from max-pixels" : "");
}
