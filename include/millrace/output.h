/*
 * Output files that appear complete or not at all.
 *
 * Such a file is written next to its final place as FILE.part-NNNNNN and renamed when it is
 * complete and on disk. After a power cut the name has the old file or the new one, whole.
 *
 *     struct mr_output *output;
 *     int rc = mr_output_open("result.csv", &output);
 *     if (rc < 0)
 *         return rc;
 *     if (write_all(mr_output_get_fd(output)))
 *         rc = mr_output_commit(output, 1);
 *     mr_output_close(output); // removes the unfinished file if it was not committed
 *
 * The writer holds a lock on the unfinished file. The lock ends with the process, so the next
 * writer of the same file finds and removes what a killed process left.
 *
 * Threads: an output belongs to one thread at a time. All calls block on the file system. A child
 * process must not use an output that it inherited by fork.
 */
#ifndef MILLRACE_OUTPUT_H
#define MILLRACE_OUTPUT_H

#include <millrace/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_output;

/*
 * Creates the unfinished file for `path`, with the permissions that the umask allows, and removes
 * unfinished files of the same name that dead processes left.
 * [out] out: on success; end it with mr_output_close().
 * Returns 0, -EBUSY when too many processes are writing this file, -ENOMEM, -errno.
 */
MR_API int mr_output_open(const char *path, struct mr_output **out);

/* The file descriptor to write to. Borrowed, and open until mr_output_close(); pass a dup() of it
 * to anything that closes its descriptor. */
MR_API int mr_output_get_fd(const struct mr_output *output);

/* The unfinished file's name. Borrowed. */
MR_API const char *mr_output_get_name(const struct mr_output *output);

/*
 * Syncs the file and renames it to its final place. Call it once, after everything is written.
 * Blocks until the file is on disk.
 * replace: 1: an existing file is replaced; 0: it is an error.
 * Returns 0, -EEXIST, -errno. After an error mr_output_close() removes the unfinished file.
 */
MR_API int mr_output_commit(struct mr_output *output, int replace);

/* Closes the file, and removes it unless it was committed. NULL is allowed. */
MR_API void mr_output_close(struct mr_output *output);

#ifdef __cplusplus
}
#endif

#endif
