/*
 * The bytes of an archive, one after the other: from a pipe, a file or a URL, unpacked if they are
 * gzip or zstd. What is read is read once; there is no way back but opening it again.
 */
#ifndef MR_DATASET_TAR_INPUT_H
#define MR_DATASET_TAR_INPUT_H

#include "storage/storage.h"

struct mr_tar_input;

/* Is this standard input or a pipe, which can be read once? */
bool mr_tar_is_pipe(const char *path);

/*
 * Opens an archive. path: "-" (standard input), a pipe, a file or, with file >= 0, that file of
 * `files`. name: for errors; kept. wake: a descriptor that makes reads fail with MR_ECANCELLED
 * while it is readable. Reads nothing. Returns 0, -ENOMEM, -errno.
 */
int mr_tar_input_open(const char *path, struct mr_files *files, int file, const char *name,
                      int wake, struct mr_tar_input **out);
void mr_tar_input_close(struct mr_tar_input *in); /* NULL is allowed */

/* Reads n bytes; to NULL: skips them. [out] got: fewer at the end. Returns 0 or an error that names
 * the archive. */
int mr_tar_input_read(struct mr_tar_input *in, void *to, uint64_t n, uint64_t *got);
/* Bytes read so far, unpacked. */
uint64_t mr_tar_input_at(const struct mr_tar_input *in);

#endif
