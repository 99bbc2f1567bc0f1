/* The file that bench disk reads. */
#ifndef CLI_BENCH_DISK_H
#define CLI_BENCH_DISK_H

#include "pipeline.h"

#include <limits.h>

#define DISK_MAX_IN_FLIGHT MR_READ_RATE_MAX_BYTES
#define DISK_MAX_READ      (64 << 20)
#define DISK_SIZES         7 /* sizes of reads: 7 and the data set's, by 2 storages: 16 lines */

struct disk_opts {
    struct cli_common common;
    char *path, *plot;
    uint64_t bytes, min, max, max_depth, repeats, time_ns;
    int order, mode, storage;
};

struct disk_file {
    int fd; /* of a temporary file; -1 */
    uint64_t bytes;
    char path[PATH_MAX];  /* to read it by */
    char shown[PATH_MAX]; /* to tell it by */
};

/*
 * Opens the file, or makes a temporary one. dataset: NULL, or a data set in local files.
 * [out] sample_bytes: of an average sample of it; else 0. Prints errors; returns an exit code.
 * Close it after success.
 */
int disk_open(const struct disk_opts *o, const char *dataset, struct disk_file *out,
              uint64_t *out_sample_bytes);
void disk_close(struct disk_file *file);

bool disk_can_read_directly(const struct disk_file *file);

#endif
