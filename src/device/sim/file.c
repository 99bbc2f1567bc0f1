/* Files read into the simulated accelerator's memory, which is the host's: by pread, on the calling
 * thread. */
#include "device/sim/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define MOST_A_READ (1ull << 30)

struct sim_file {
    int fd;
};

int mr_sim_files_open(struct mr_device *dev, char *note, size_t note_bytes)
{
    (void)dev;
    snprintf(note, note_bytes, "simulated");
    return 0;
}

void mr_sim_files_close(struct mr_device *dev)
{
    (void)dev;
}

int mr_sim_file_open(struct mr_device *dev, int fd, const char *name, void **out)
{
    (void)dev;
    struct sim_file *file = calloc(1, sizeof *file);
    if (!file)
        return mr_error_nomem(name, sizeof *file);
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd < 0) {
        int rc = mr_error_errno(errno, "%s: a second descriptor for the device", name);
        free(file);
        return rc;
    }
    *out = file;
    return 0;
}

void mr_sim_file_close(struct mr_device *dev, void *file)
{
    (void)dev;
    close(((struct sim_file *)file)->fd);
    free(file);
}

int mr_sim_file_register(struct mr_device *dev, void *memory, uint64_t bytes)
{
    return mr_sim_check_range(dev, "memory for files", memory, bytes);
}

void mr_sim_file_unregister(struct mr_device *dev, void *memory)
{
    (void)dev;
    (void)memory;
}

int64_t mr_sim_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                         uint64_t at, uint64_t bytes)
{
    char *to = (char *)memory + at;
    int rc = mr_sim_check_range(dev, "destination", to, bytes);
    if (rc < 0)
        return rc;
    ssize_t got;
    do
        got = pread(((struct sim_file *)file)->fd, to, MR_MIN(bytes, MOST_A_READ), (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}
