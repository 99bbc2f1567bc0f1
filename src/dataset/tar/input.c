/* The bytes of an archive, one after the other. */
#include "dataset/tar/input.h"

#include "codec/codec.h"
#include "dataset/tar/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256u << 10)
#define REMOTE_BYTES (1u << 20)
#define LOOK_MS      100 /* how often a wait looks for an interrupt */

struct mr_tar_input {
    const char *name;
    int fd, wake; /* fd -1: of the table */
    struct mr_files *files;
    int file;
    uint64_t offset, file_bytes; /* of it */

    unsigned char *raw; /* as read: raw_n bytes from raw_at on */
    uint64_t raw_at, raw_n, raw_space;
    bool raw_ended;
    enum mr_tar_packing packing;
    bool begun; /* packing is known */
    struct mr_gunzip *gzip;
    struct mr_unzstd *zstd;
    unsigned char *plain; /* unpacked; NULL: the archive is not packed */
    uint64_t plain_at, plain_n;
    uint64_t at;
};

/* ---- opening ---- */

static bool is_stream_mode(mode_t mode)
{
    return S_ISFIFO(mode) || S_ISCHR(mode) || S_ISSOCK(mode);
}

/* The number of a path like /dev/fd/3, or -1. */
static int number_of(const char *path)
{
    static const char *const before[] = {"/dev/fd/", "/proc/self/fd/"};
    char *end;
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0)
        return STDIN_FILENO;
    for (size_t i = 0; i < MR_COUNT(before); i++) {
        size_t n = strlen(before[i]);
        if (strncmp(path, before[i], n) != 0 || path[n] < '0' || path[n] > '9')
            continue;
        long fd = strtol(path + n, &end, 10);
        return *end || fd > 1 << 20 ? -1 : (int)fd;
    }
    return -1;
}

bool mr_tar_is_pipe(const char *path)
{
    struct stat st;
    int fd = number_of(path);
    if (strcmp(path, "-") == 0)
        return true;
    return (fd >= 0 ? fstat(fd, &st) : stat(path, &st)) == 0 && is_stream_mode(st.st_mode);
}

/* A pipe that has no writer yet must not block here: reading waits for one. */
static int open_path(struct mr_tar_input *in, const char *path)
{
    struct stat st;
    int fd = mr_tar_is_pipe(path) ? number_of(path) : -1;
    in->fd =
        fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in->fd < 0)
        return mr_error_errno(errno, "%s: cannot be opened", in->name);
    if (fstat(in->fd, &st) != 0)
        return mr_error_errno(errno, "%s: cannot be looked at", in->name);
    if (S_ISDIR(st.st_mode))
        return mr_error_errno(EISDIR, "%s: cannot be read", in->name);
    if (S_ISREG(st.st_mode))
        (void)posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

int mr_tar_input_open(const char *path, struct mr_files *files, int file, const char *name,
                      int wake, struct mr_tar_input **out)
{
    struct mr_tar_input *in = calloc(1, sizeof *in);
    if (!in)
        return mr_error_nomem(name, sizeof *in);
    *in = (struct mr_tar_input){.name = name, .fd = -1, .wake = wake, .files = files, .file = file};
    in->raw_space = file < 0 ? BUFFER_BYTES : REMOTE_BYTES;
    in->raw = malloc(in->raw_space);
    int rc = in->raw ? 0 : mr_error_nomem(name, in->raw_space);
    if (rc == 0)
        rc = file < 0 ? open_path(in, path) : mr_files_size(files, file, &in->file_bytes);
    if (rc < 0) {
        mr_tar_input_close(in);
        return rc;
    }
    *out = in;
    return 0;
}

void mr_tar_input_close(struct mr_tar_input *in)
{
    if (!in)
        return;
    if (in->fd >= 0)
        close(in->fd);
    mr_gunzip_destroy(in->gzip);
    mr_unzstd_destroy(in->zstd);
    free(in->raw);
    free(in->plain);
    free(in);
}

uint64_t mr_tar_input_at(const struct mr_tar_input *in)
{
    return in->at;
}

/* ---- bytes as they come ---- */

/* Until there is something to read. */
static int wait_for(const struct mr_tar_input *in)
{
    struct pollfd fds[] = {{.fd = in->fd, .events = POLLIN}, {.fd = in->wake, .events = POLLIN}};
    for (;;) {
        int n = poll(fds, 2, LOOK_MS);
        if (n < 0 && errno != EINTR)
            return mr_error_errno(errno, "%s: waiting for data", in->name);
        if (n > 0 && fds[1].revents)
            return mr_error_set(MR_ECANCELLED, "%s: reading was cancelled", in->name);
        int rc = mr_interrupt_check(in->name);
        if (rc < 0 || (n > 0 && fds[0].revents))
            return rc;
    }
}

/* Appends to the raw bytes, of which there are fewer than raw_space. */
static int fill_fd(struct mr_tar_input *in)
{
    for (;;) {
        int rc = wait_for(in);
        if (rc < 0)
            return rc;
        ssize_t got = read(in->fd, in->raw + in->raw_n, in->raw_space - in->raw_n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return mr_error_errno(errno, "%s: reading", in->name);
        in->raw_n += (uint64_t)got;
        in->raw_ended = got == 0;
        return 0;
    }
}

static int fill_file(struct mr_tar_input *in)
{
    struct pollfd wake = {.fd = in->wake, .events = POLLIN};
    uint64_t n = MR_MIN(in->file_bytes - in->offset, in->raw_space - in->raw_n);
    in->raw_ended = n == 0;
    if (n == 0)
        return 0;
    if (poll(&wake, 1, 0) > 0)
        return mr_error_set(MR_ECANCELLED, "%s: reading was cancelled", in->name);
    int rc = mr_files_read(in->files, in->file, in->offset, in->raw + in->raw_n, n);
    in->offset += n;
    in->raw_n += n;
    return rc;
}

/* Makes sure that there are at least n raw bytes, or that there are no more. */
static int fill(struct mr_tar_input *in, uint64_t n)
{
    if (in->raw_at == in->raw_n)
        in->raw_at = in->raw_n = 0;
    while (in->raw_n - in->raw_at < n && !in->raw_ended) {
        int rc = in->fd >= 0 ? fill_fd(in) : fill_file(in);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- unpacking ---- */

static int begin(struct mr_tar_input *in)
{
    int rc = fill(in, 4);
    if (rc < 0)
        return rc;
    in->begun = true;
    in->packing = mr_tar_packing_of(in->raw + in->raw_at, in->raw_n - in->raw_at);
    if (in->packing == MR_TAR_PLAIN)
        return 0;
    if (in->packing == MR_TAR_GZIP)
        in->gzip = mr_gunzip_create(in->name);
    else
        in->zstd = mr_unzstd_create(in->name);
    if (!in->gzip && !in->zstd)
        return in->packing == MR_TAR_ZSTD && !MILLRACE_HAVE_ZSTD ? MR_EUNSUPPORTED : -ENOMEM;
    in->plain = malloc(BUFFER_BYTES);
    return in->plain ? 0 : mr_error_nomem(in->name, BUFFER_BYTES);
}

/* More unpacked bytes; none: the end. */
static int unpack(struct mr_tar_input *in)
{
    in->plain_at = in->plain_n = 0;
    while (in->plain_n == 0) {
        int rc = fill(in, 1);
        if (rc < 0)
            return rc;
        if (in->raw_at == in->raw_n)
            return in->gzip ? mr_gunzip_end(in->gzip) : mr_unzstd_end(in->zstd);
        struct mr_gunzip_io io = {.in = in->raw + in->raw_at,
                                  .n_in = in->raw_n - in->raw_at,
                                  .out = in->plain,
                                  .n_out = BUFFER_BYTES};
        rc = in->gzip ? mr_gunzip_step(in->gzip, &io) : mr_unzstd_step(in->zstd, &io);
        if (rc < 0)
            return rc;
        in->raw_at = in->raw_n - io.n_in;
        in->plain_n = BUFFER_BYTES - io.n_out;
    }
    return 0;
}

/* Where the next bytes are; n is 0 at the end. */
static int next_bytes(struct mr_tar_input *in, const unsigned char **out, uint64_t *n)
{
    int rc = in->begun ? 0 : begin(in);
    if (rc < 0)
        return rc;
    if (in->packing == MR_TAR_PLAIN) {
        rc = fill(in, 1);
        *out = in->raw + in->raw_at;
        *n = in->raw_n - in->raw_at;
        return rc;
    }
    rc = in->plain_at < in->plain_n ? 0 : unpack(in);
    *out = in->plain + in->plain_at;
    *n = in->plain_n - in->plain_at;
    return rc;
}

int mr_tar_input_read(struct mr_tar_input *in, void *to, uint64_t n, uint64_t *got)
{
    *got = 0;
    while (*got < n) {
        const unsigned char *from;
        uint64_t have;
        int rc = next_bytes(in, &from, &have);
        if (rc < 0)
            return rc;
        if (have == 0)
            return 0;
        have = MR_MIN(have, n - *got);
        if (to)
            memcpy((unsigned char *)to + *got, from, have);
        *(in->packing == MR_TAR_PLAIN ? &in->raw_at : &in->plain_at) += have;
        in->at += have;
        *got += have;
    }
    return 0;
}
