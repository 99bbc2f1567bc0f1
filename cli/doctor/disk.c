/* A disk's read rate. */
#include "doctor/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK   (8 << 20) /* large enough that the kernel keeps several requests at the disk */
#define MOST_NS 3000000000u
#define MOST    (4ull << 30)

/* A regular file in the folder of at least `bytes`; its descriptor, or -1. */
static int find_big_file(int dir, uint64_t bytes)
{
    int fd = -1, copy = dup(dir);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    if (!list && copy >= 0)
        close(copy);
    for (struct dirent *e; list && fd < 0 && (e = readdir(list));) {
        struct stat st;
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
            (uint64_t)st.st_size < bytes)
            continue;
        /* holes are not read from the disk */
        if ((uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size / 2)
            fd = openat(dir, e->d_name, O_RDONLY | O_CLOEXEC);
    }
    if (list)
        closedir(list);
    return fd;
}

/* A file without a name, so that it is gone whatever happens to this process. */
static int make_nameless_file(const char *path, int dir)
{
    int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/millrace-doctor-XXXXXX", path);
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

static int read_through(int fd, const char *path, void *block, struct doctor_disk *out,
                        struct cli_progress *progress)
{
    uint64_t start = mr_time_ns();
    for (;;) {
        ssize_t n = pread(fd, block, BLOCK, (off_t)out->bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && out->direct && out->bytes == 0) {
            fcntl(fd, F_SETFL,
                  fcntl(fd, F_GETFL) &
                      ~O_DIRECT); /* taken, but not kept to: some network file systems */
            out->direct = false;
            continue;
        }
        if (n < 0)
            return cli_fail("%s: a file in it cannot be read: %s", path, strerror(errno));
        out->bytes += (uint64_t)n;
        out->ns = mr_time_ns() - start;
        cli_progress_update(progress, out->bytes);
        if (n < BLOCK || out->ns > MOST_NS || out->bytes >= MOST)
            return CLI_OK;
        if (cli_interrupted())
            return cli_fail("interrupted");
    }
}

static int measure(int dir, const char *path, uint64_t bytes, void *block, struct doctor_disk *out)
{
    struct cli_progress progress;
    struct statvfs space;
    int code = CLI_OK, fd = find_big_file(dir, bytes);
    out->temporary = fd < 0;
    if (out->temporary) {
        if (fstatvfs(dir, &space) == 0 && (uint64_t)space.f_bavail * space.f_frsize < 2 * bytes)
            return cli_fail(
                "%s: too little space for a temporary file of %llu MiB; choose another folder "
                "with --path, or skip this with --no-disk",
                path, (unsigned long long)(bytes >> 20));
        fd = make_nameless_file(path, dir);
        if (fd < 0)
            return cli_fail("%s: a temporary file cannot be made: %s", path, strerror(errno));
        cli_progress_begin(&progress, "writing a file to read", bytes, "B");
        code = fill(fd, path, bytes, block, &progress);
        cli_progress_end(&progress);
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    out->direct = fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) == 0;
    cli_progress_begin(&progress, "reading", out->temporary ? bytes : 0, "B");
    if (code == CLI_OK)
        code = read_through(fd, path, block, out, &progress);
    cli_progress_end(&progress);
    close(fd);
    return code;
}

int doctor_measure_disk(const char *path, uint64_t bytes, struct doctor_disk *out)
{
    *out = (struct doctor_disk){0};
    bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return cli_fail("%s: cannot be opened as a folder: %s", path, strerror(errno));
    void *block = NULL;
    int code = posix_memalign(&block, 4096, BLOCK) ? cli_fail("out of memory")
                                                   : measure(dir, path, bytes, block, out);
    free(block);
    close(dir);
    return code;
}
