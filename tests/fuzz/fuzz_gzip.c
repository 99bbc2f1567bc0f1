/*
 * Any bytes as a gzip file: the stream in odd portions, and the file among the files with the total
 * that the input's last bytes promise. Nothing may crash, leak or hang; what both ways make must
 * agree.
 */
#include "codec/codec.h"
#include "storage/storage.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 300000 /* above the size from which a thread inflates */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t out[MOST];

/* Returns the step's or the end's result; [out] made. */
static int stream(const uint8_t *data, size_t size, size_t portion, size_t *made)
{
    struct mr_gunzip *z = mr_gunzip_create("fuzz");
    struct mr_gunzip_io io = {.out = out, .n_out = MOST};
    int rc = z ? 0 : -1;
    for (size_t at = 0; !rc && at < size && io.n_out; at += portion) {
        io.in = data + at;
        io.n_in = MR_MIN(portion, size - at);
        rc = mr_gunzip_step(z, &io);
    }
    if (!rc && io.n_out)
        rc = mr_gunzip_end(z);
    *made = MOST - io.n_out;
    mr_gunzip_destroy(z);
    return rc;
}

static int promise(void *user, const void *head, uint64_t *total)
{
    (void)head;
    *total = *(uint64_t *)user;
    return 0;
}

static void file(const uint8_t *data, size_t size, uint64_t total, int stream_rc, size_t made)
{
    char path[40];
    uint8_t head[16];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct mr_files *files = mr_files_create();
    int id = mr_files_add_gzip(files, path, head, sizeof head, promise, &total);
    int rc = id < 0 ? id : mr_files_check(files);
    if (made < MOST && (rc == 0) != (stream_rc == 0 && made == total))
        abort();
    const void *view;
    if (rc == 0 && made < MOST &&
        (mr_files_view(files, id, 0, total, &view) != 1 || memcmp(view, out, total)))
        abort();
    mr_files_destroy(files);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t portion = data[size - 1] % 16 ? data[size - 1] % 16 : size, made;
    uint64_t total = MOST + 1;
    int rc = stream(data, size - 1, portion, &made);
    if (data[size - 1] & 16)
        total = made;
    else if (size > 9)
        memcpy(&total, data + size - 9, 8);
    file(data, size - 1, total, rc, made);
    return 0;
}
