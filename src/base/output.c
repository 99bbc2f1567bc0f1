/*
 * Files that appear complete or not at all, also after a power cut: a file is synced before it gets
 * its name, since file systems may keep the name and lose what was written before it.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/output.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART  ".part-000000"
/* processes that may write the same file at once; each open tries their numbers in turn */
#define PARTS 16

struct mr_output {
    int fd; /* locked while the file is unfinished */
    bool unfinished;
    char *path, *name;
};

/* Numbers instead of random letters: leftover files are found without listing the folder, which may
 * have a million files. */
static void set_number(char *name, int number)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%06d", number);
    memcpy(name + strlen(name) - 6, digits, 6);
}

static bool is_at(int fd, const char *name)
{
    struct stat file, there;
    return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && lstat(name, &there) == 0 &&
           file.st_dev == there.st_dev && file.st_ino == there.st_ino;
}

/* Removes a leftover file, unless it can't be locked: then another process may be writing it, or
 * the file system has no locks. */
static void remove_left(const char *name)
{
    int fd = open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(fd, name))
        unlink(name);
    close(fd);
}

/* Returns a descriptor or -errno. */
static int make(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    /* Before it is locked, another process may take the file for a leftover and remove it. */
    struct stat st;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    int rc = fstat(fd, &st) != 0 ? -errno : 0;
    if (rc < 0) {
        unlink(name);
        goto close;
    }
    if (locked && st.st_nlink > 0)
        return fd;
    rc = -EEXIST;
close:
    close(fd);
    return rc;
}

static int make_first_free(struct mr_output *output)
{
    int number = -1, fd = -EBUSY;
    for (int i = 0; i < PARTS; i++) {
        set_number(output->name, i);
        remove_left(output->name);
        if (number >= 0)
            continue;
        fd = make(output->name);
        if (fd >= 0)
            number = i;
        else if (fd != -EEXIST)
            return fd;
    }
    if (number < 0)
        return -EBUSY;
    set_number(output->name, number);
    output->fd = fd;
    output->unfinished = true;
    return 0;
}

int mr_output_open(const char *path, struct mr_output **out)
{
    if (!path || !out)
        return mr_error_null("mr_output_open", "a path and a place for the result");
    struct mr_output *output = calloc(1, sizeof *output);
    if (!output)
        return mr_error_nomem(path, sizeof *output);
    output->fd = -1;
    output->path = strdup(path);
    if (!output->path || asprintf(&output->name, "%s" PART, path) < 0) {
        output->name = NULL;
        mr_output_close(output);
        return mr_error_nomem(path, strlen(path));
    }
    int rc = make_first_free(output);
    if (rc < 0) {
        mr_output_close(output);
        return mr_error_errno(-rc, "%s: cannot be made", path);
    }
    *out = output;
    return 0;
}

int mr_output_get_fd(const struct mr_output *output)
{
    if (!output)
        return mr_error_null("mr_output_get_fd", "an output");
    return output->fd;
}

const char *mr_output_get_name(const struct mr_output *output)
{
    if (!output)
        return NULL;
    return output->name;
}

/* Another file of this name may have appeared since the caller checked. */
static int put_in_free_place(const struct mr_output *output)
{
    if (link(output->name, output->path) == 0)
        return unlink(output->name) == 0 ? 0 : -errno;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
        return -errno;
    if (access(output->path, F_OK) == 0) /* this file system has no hard links */
        return -EEXIST;
    return rename(output->name, output->path) == 0 ? 0 : -errno;
}

/* Some file systems have nothing to sync, and say so by an error. */
static int sync_fd(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
}

/* Network file systems report write errors when a descriptor is closed. A copy is closed, since
 * ours holds the lock until the end. */
static int flush(const struct mr_output *output)
{
    int rc = sync_fd(output->fd);
    if (rc < 0)
        return rc;
    int copy = fcntl(output->fd, F_DUPFD_CLOEXEC, 0);
    return copy >= 0 && close(copy) == 0 ? 0 : -errno;
}

/* The new name, too. If this fails, a power cut may leave the old file, which is whole as well. */
static void sync_folder(const struct mr_output *output)
{
    char *folder = strdup(output->path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = 0; /* "/" remains of "/file" */
    int fd = folder ? open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd < 0)
        return;
    sync_fd(fd);
    close(fd);
}

int mr_output_commit(struct mr_output *output, int replace)
{
    if (!output)
        return mr_error_null("mr_output_commit", "an output");
    int rc = flush(output);
    if (rc < 0)
        goto fail;
    if (!replace)
        rc = put_in_free_place(output);
    else if (rename(output->name, output->path) != 0)
        rc = -errno;
    if (rc < 0)
        goto fail;
    output->unfinished = false;
    sync_folder(output);
    return 0;
fail:
    return rc == -EEXIST
               ? mr_error_errno(
                     EEXIST,
                     "%s: is not overwritten; remove it, name another, or ask for overwriting",
                     output->path)
               : mr_error_errno(-rc, "%s: cannot be put in place", output->path);
}

void mr_output_close(struct mr_output *output)
{
    if (!output)
        return;
    if (output->unfinished && output->name)
        unlink(output->name);
    if (output->fd >= 0)
        close(output->fd);
    free(output->name);
    free(output->path);
    free(output);
}

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

static int write_renamed(const char *path, int (*fill)(FILE *file, void *arg), void *arg)
{
    struct mr_output *output;
    int rc = mr_output_open(path, &output);
    if (rc < 0)
        return rc;
    int fd = fcntl(output->fd, F_DUPFD_CLOEXEC, 0);
    rc = fd < 0 ? errno : fill_and_close(fd, fill, arg);
    if (!rc)
        rc = mr_output_commit(output, 1);
    mr_output_close(output);
    return rc;
}

int mr_file_write(const char *path, const char *what, int (*fill)(FILE *file, void *arg), void *arg)
{
    struct stat status;
    int bad;
    if (stat(path, &status) || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) {
        bad = write_renamed(path, fill, arg);
    } else {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bad = fd < 0 ? errno : fill_and_close(fd, fill, arg);
    }
    return bad > 0 ? mr_error_errno(bad, "%s: %s not written", path, what) : bad;
}
