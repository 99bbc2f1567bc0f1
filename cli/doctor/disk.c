/* A disk's read rate. */
#include "doctor/doctor.h"
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    int code = CLI_OK, fd = find_big_file(dir, bytes);
    out->temporary = fd < 0;
    if (out->temporary) {
        code =
            cli_scratch_open(dir, path, bytes,
                             "choose another folder with --path, or skip this with --no-disk", &fd);
        if (code != CLI_OK)
            return code;
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
