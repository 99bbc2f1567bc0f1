/* Files that are read straight into device memory, where a device has a way. */
#include "device/device.h"

int mr_device_files_begin(struct mr_device *dev, char *note, size_t note_bytes)
{
    note[0] = '\0';
    if (!dev->ops->file_read)
        return mr_error_set(MR_EUNSUPPORTED, "device %s cannot read files into its memory",
                            dev->ops->name);
    int rc = mr_device_ready(dev);
    return rc < 0 ? rc : dev->ops->files_open(dev, note, note_bytes);
}

void mr_device_files_end(struct mr_device *dev)
{
    dev->ops->files_close(dev);
}

int mr_device_file_open(struct mr_device *dev, int fd, const char *name, void **out)
{
    return dev->ops->file_open(dev, fd, name, out);
}

void mr_device_file_close(struct mr_device *dev, void *file)
{
    dev->ops->file_close(dev, file);
}

int mr_device_file_memory(struct mr_device *dev, void *memory, uint64_t bytes)
{
    return dev->ops->file_register(dev, memory, bytes);
}

void mr_device_file_memory_end(struct mr_device *dev, void *memory)
{
    dev->ops->file_unregister(dev, memory);
}

/* Continues a short read in the middle of a file. */
int64_t mr_device_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                            uint64_t at, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        int64_t got =
            dev->ops->file_read(dev, file, offset + done, memory, at + done, bytes - done);
        if (got < 0)
            return got;
        if (got == 0)
            break;
        done += (uint64_t)got;
    }
    return (int64_t)done;
}
