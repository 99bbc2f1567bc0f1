/*
 * Files that appear whole or not at all.
 *
 * Such a file is written beside its place as FILE.part-XXXXXX and renamed when it is complete. Its writer holds a lock on it, which
 * ends with the process: the next writer of the same file finds what a killed one left and removes it.
 */
#ifndef MILLRACE_OUTPUT_H
#define MILLRACE_OUTPUT_H

#include <millrace/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_output;

/*
 * Makes the unfinished file of `path`, with the rights that the umask gives, and removes those that dead processes left.
 * [out] out: written on success; end it with mr_output_close(). Returns 0, -ENOMEM or -errno, -EBUSY when too many processes are
 * writing this file. Any thread; blocks on the file system. A child after fork must not use it.
 */
MR_API int mr_output_open(const char *path, struct mr_output **out);

/* The descriptor to write to, open until mr_output_close(). Borrowed: give a copy (dup) to what would close it. */
MR_API int mr_output_get_fd(const struct mr_output *output);

/* The unfinished file's name. Borrowed. */
MR_API const char *mr_output_get_name(const struct mr_output *output);

/*
 * Renames the file to its place. replace: 0 or 1, whether a file there may be replaced. Once, when all is written.
 * Returns 0; -EEXIST: there is one, and replace is 0; -errno. After an error mr_output_close() removes the unfinished file.
 */
MR_API int mr_output_commit(struct mr_output *output, int replace);

/* Closes it, and removes what was not committed. NULL is allowed. */
MR_API void mr_output_close(struct mr_output *output);

#ifdef __cplusplus
}
#endif

#endif
