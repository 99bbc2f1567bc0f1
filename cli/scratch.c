/* A temporary file to read from a disk. */
#include "scratch.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK (8 << 20)

/* A file without a name, so that it is gone whatever happens to this process. */
static int make_nameless_file(const char *path, int dir)
{
    int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/millrace-XXXXXX", path);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* Data that no file system can make smaller. */
static int fill(int fd, const char *path, uint64_t bytes, uint32_t *block,
                struct cli_progress *progress)
{
    for (uint64_t at = 0; at < bytes; at += BLOCK) {
        for (uint32_t i = 0; i < BLOCK / 16; i++) {
            const uint32_t counter[4] = {i, (uint32_t)(at / BLOCK), 0, 0}, key[2] = {0, 0};
            mr_philox(counter, key, block + 4 * i);
        }
        for (size_t part = 0; part < BLOCK;) {
            ssize_t n = write(fd, (const char *)block + part, BLOCK - part);
            if (n <= 0)
                return cli_fail("%s: a temporary file cannot be written: %s", path,
                                strerror(n ? errno : ENOSPC));
            part += (size_t)n;
        }
        cli_progress_update(progress, at + BLOCK);
        if (cli_interrupted())
            return cli_fail("interrupted");
    }
    return fsync(fd) ? cli_fail("%s: a temporary file cannot be written: %s", path, strerror(errno))
                     : CLI_OK;
}

int cli_scratch_open(int dir, const char *path, uint64_t bytes, const char *instead, int *out_fd)
{
    struct cli_progress progress;
    struct statvfs space;
    bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (fstatvfs(dir, &space) == 0 && (uint64_t)space.f_bavail * space.f_frsize < 2 * bytes)
        return cli_fail("%s: too little space for a temporary file of %llu MiB; %s", path,
                        (unsigned long long)(bytes >> 20), instead);
    uint32_t *block = malloc(BLOCK);
    if (!block)
        return cli_fail("out of memory");
    int code = CLI_FAILED, fd = make_nameless_file(path, dir);
    if (fd < 0) {
        cli_fail("%s: a temporary file cannot be made: %s", path, strerror(errno));
        goto free_block;
    }
    cli_progress_begin(&progress, "writing a file to read", bytes, "B");
    code = fill(fd, path, bytes, block, &progress);
    cli_progress_end(&progress);
    if (code == CLI_OK)
        *out_fd = fd;
    else
        close(fd);
free_block:
    free(block);
    return code;
}
