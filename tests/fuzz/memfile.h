/* Bytes as a file without a disk, and a data set read as far as a fuzzer has time for. */
#ifndef MR_FUZZ_MEMFILE_H
#define MR_FUZZ_MEMFILE_H

#include <millrace/dataset.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_SAMPLE_BYTES (1u << 20)

/* [out] path: names the file while the descriptor, which is returned, is open. -1: none. */
static inline int fuzz_file(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd >= 0 && (size_t)write(fd, data, size) != size) {
        close(fd);
        fd = -1;
    }
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* The first and the last sample. */
static inline void fuzz_read(const struct mr_dataset *ds)
{
    void *row[MR_MAX_FIELDS] = {NULL};
    uint64_t ends[] = {0, mr_dataset_length(ds) - 1}, dim[MR_MAX_FIELDS][MR_MAX_RANK];
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        uint64_t bytes;
        if (mr_spec_bytes(mr_dataset_field(ds, f), &bytes) == 0 && bytes <= FUZZ_SAMPLE_BYTES)
            row[f] = malloc(bytes);
        if (!row[f])
            goto free_rows;
    }
    mr_dataset_read(ds, ends[0], row, dim);
    mr_dataset_read(ds, ends[1], row, dim);
free_rows:
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(row[f]);
}

/* What opens must describe itself; what does not must say why. */
static inline void fuzz_opened(int rc, struct mr_dataset *ds)
{
    if (rc < 0 ? !mr_last_error()[0] : mr_dataset_length(ds) == 0 || !mr_dataset_text(ds)[0])
        abort();
    if (rc < 0)
        return;
    fuzz_read(ds);
    mr_dataset_close(ds);
}

#endif
