/* A temporary file to read from a disk. */
#ifndef CLI_SCRATCH_H
#define CLI_SCRATCH_H

#include <stdint.h>

/*
 * Makes a file without a name, of `bytes` (rounded up to 8 MiB) that no file system can make
 * smaller, in an open folder. It is on the disk when this returns, and gone when its descriptor is
 * closed, whatever happens to this process. instead: what a user can do when there is no space.
 * [out] fd: on success. Prints errors; returns an exit code.
 */
int cli_scratch_open(int dir, const char *path, uint64_t bytes, const char *instead, int *out_fd);

#endif
