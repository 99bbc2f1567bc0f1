/* Files that appear whole or not at all. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fills an open file and closes it. Returns 0, an errno, or a negative code with the error set. */
static int fill_and_close(int fd, int (*fill)(FILE *file, void *arg), void *arg)
{
    FILE *file = fdopen(fd, "wb");
    if (!file) {
        int bad = errno;
        close(fd);
        return bad;
    }
    int bad = fill(file, arg);
    errno = 0;
    if (!bad && (fflush(file) || ferror(file)))
        bad = errno ? errno : EIO;
    if (fclose(file) && !bad)
        bad = errno;
    return bad;
}

static int write_renamed(const char *path, const char *what, int (*fill)(FILE *file, void *arg), void *arg)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.%d.tmp", path, (int)getpid()) < 0)
        return mr_error_nomem(what, strlen(path));
    unlink(temporary); /* of a process that had our number and died */
    int bad = 0;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        bad = errno;
    } else {
        bad = fill_and_close(fd, fill, arg);
        if (!bad && rename(temporary, path))
            bad = errno;
        if (bad)
            unlink(temporary);
    }
    free(temporary);
    return bad;
}

int mr_file_write(const char *path, const char *what, int (*fill)(FILE *file, void *arg), void *arg)
{
    struct stat status;
    int bad;
    if (stat(path, &status) || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) {
        bad = write_renamed(path, what, fill, arg);
    } else {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bad = fd < 0 ? errno : fill_and_close(fd, fill, arg);
    }
    return bad > 0 ? mr_error_errno(bad, "%s: %s not written", path, what) : bad;
}
