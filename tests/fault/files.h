/* The inputs of the fault tests: small files of every format, in a folder of their own. */
#ifndef FAULT_FILES_H
#define FAULT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define N_SAMPLES 96
#define SIDE      16 /* images are SIDE x SIDE bytes */
#define RECORD                                                                                     \
    (64 *                                                                                          \
     256) /* bytes; all together more than the 1 MiB that data sets read whole when they open */

extern char files_dir[256];

/* Makes the folder and what is in it: images-idx3-ubyte with labels-idx1-ubyte, the same as .gz,
 * x.npy and x.bin (raw) of RECORD bytes a sample,
 * subset.txt, weights.txt. Exits when it cannot. */
void files_make(void);
void files_drop(void);

/* files_dir/name, in one of a few static buffers. */
const char *files_path(const char *name);

/* Takes a file out of the page cache where the file system lets it: reads wait for the disk
 * again. */
void files_forget(const char *name);

/* Files in the folder whose names begin with this. */
int files_count(const char *prefix);

/* What this process holds: open descriptors, threads. Threads that have been joined may take a
 * moment to go. */
int open_fds(void);
int threads_once_there_are(int want);

/* The most runs of a sweep: MILLRACE_FAULT_RUNS, or the usual number. scripts/long.sh asks for so
 * many that every call fails in turn. */
uint64_t most_runs(uint64_t usual);

/* Whether this part of a sweep passed before, as the file MILLRACE_FAULT_DONE says; and a line
 * there for one that passed, with the seconds since it was asked for: a sweep of hours that is
 * stopped goes on from there. Without the variable none passed, and no line is written. */
bool part_passed(const char *part);
void part_pass(const char *part);

/* A line on standard error and exit code 1. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
