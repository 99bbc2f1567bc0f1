/*
 * Lazy files that must be below a root, whatever symbolic links say. The kernel resolves their
 * names relative to the root's descriptor (openat2, Linux 5.6), which is safe even when a link
 * changes at the same time. If the kernel refuses or lacks openat2, the path is resolved here, and
 * links that stay below the root are followed.
 */
#include "storage/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct mr_root {
    struct mr_root *next;
    int fd;      /* O_PATH; -1: not opened */
    int errnum;  /* why not */
    size_t skip; /* bytes of a file's name before what is below the root */
    char *path;  /* as it was given */
    char *real;  /* without links */
};

int mr_files_set_root(struct mr_files *files, const char *path)
{
    struct mr_root *root = calloc(1, sizeof *root);
    if (!root)
        return mr_error_nomem(path, sizeof *root);
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    root->skip = n + 1;
    root->path = strdup(path);
    root->real = realpath(path, NULL);
    root->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!root->real || root->fd < 0)
        root->errnum = errno; /* reads of its files fail and report this */
    root->next = files->roots;
    files->roots = root; /* freed with the table */
    if (!root->path)
        return mr_error_nomem(path, n);
    files->root = root;
    return 0;
}

void mr_files_no_root(struct mr_files *files)
{
    files->root = NULL;
}

void mr_roots_free(struct mr_files *files)
{
    while (files->roots) {
        struct mr_root *root = files->roots;
        files->roots = root->next;
        if (root->fd >= 0)
            close(root->fd);
        free(root->path);
        free(root->real);
        free(root);
    }
}

int mr_root_of(const struct mr_file *f, const char **name)
{
    *name = f->name + f->root->skip;
    return f->root->fd;
}

static int open_below(const struct mr_root *root, const char *name)
{
    const struct open_how how = {.flags = MR_OPEN_FLAGS, .resolve = MR_BENEATH};
    return (int)syscall(SYS_openat2, root->fd, name, &how, sizeof how);
}

/* The part of a resolved path below the root; NULL: it is not below the root. */
static const char *below(const struct mr_root *root, const char *real)
{
    size_t n = strlen(root->real);
    n -= n == 1; /* "/" */
    return strncmp(real, root->real, n) == 0 && real[n] == '/' && real[n + 1] ? real + n + 1 : NULL;
}

static int open_resolved(const struct mr_root *root, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real)
        return mr_file_open_error(path, errno);
    const char *rest = below(root, real);
    int fd = -1;
    if (rest) {
        fd = open_below(root, rest);
        if (fd < 0 && (errno == ENOSYS || errno == EPERM))
            fd = openat(root->fd, rest, MR_OPEN_FLAGS | O_NOFOLLOW);
        if (fd < 0)
            fd = mr_file_open_error(path, errno);
    } else {
        fd = mr_error_set(MR_EFORMAT,
                          "%s: a symbolic link leads to '%.300s', outside the root folder '%s': "
                          "copy the file there, set "
                          "another root=DIR, or give links=follow if you trust what made the links",
                          path, real, root->path);
    }
    free(real);
    return fd;
}

int mr_file_open_lazy(const struct mr_file *f, uint64_t *bytes)
{
    if (!f->root)
        return mr_file_open(f->name, bytes);
    if (f->root->errnum)
        return mr_file_open_error(f->name, f->root->errnum);
    int fd = open_below(f->root, f->name + f->root->skip);
    if (fd < 0 && errno != ENOSYS && errno != EPERM && errno != EXDEV && errno != ELOOP &&
        errno != EAGAIN)
        return mr_file_open_error(f->name, errno);
    if (fd < 0)
        fd = open_resolved(f->root, f->name);
    return fd < 0 ? fd : mr_file_opened(f->name, fd, bytes);
}
