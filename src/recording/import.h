/*
 * Recordings of other tools, turned into ours as they are opened: into a temporary database without
 * a name, through the store that merging writes with. Reports then read them as any other
 * recording. META_DATA_CAPTURE says where they come from (MR_IMPORT_SOURCE), and MILLRACE_NOTES
 * what was left out.
 *
 *     path -> mr_import() -> mr_kineto_import() -> mr_store_*() -> mr_recording_open()
 *                            mr_rocpd_import()
 *
 * Files may have any size: they are read in pieces, twice (the first time for the earliest time and
 * the processes), and only names, threads and processes are kept in memory (of rocpd also the calls
 * that other calls made).
 */
#ifndef MR_RECORDING_IMPORT_H
#define MR_RECORDING_IMPORT_H

#include "recording/store.h"

/* Of META_DATA_CAPTURE: what the file was, as "Kineto trace". */
#define MR_IMPORT_SOURCE "MILLRACE_SOURCE"

/* The domain of PyTorch's operators, which are no steps. */
#define MR_IMPORT_OPS    "cpu_op"
/* That of RCCL's calls, which are none either. */
#define MR_IMPORT_RCCL   "RCCL"

/* Returns 1 with [out] out, for the caller to close; 0: the file is of none of these tools; or an
 * error. */
int mr_import(const char *path, struct sqlite3 **out);

int mr_kineto_import(const char *path, struct sqlite3 **out);
/* Returns as mr_import(): any SQLite database may be given. */
int mr_rocpd_import(const char *path, struct sqlite3 **out);
/* Whether it is one, of whatever version. */
bool mr_rocpd_is(const char *path);
/* The export that nsys makes of its report: a recording as it is. */
int mr_nsys_import(const char *path, struct sqlite3 **out);

/* ---- for importers ---- */

/* A note of the whole recording. */
int mr_import_note(struct mr_store *store, const char *name, const char *text);
/* What is known of a source without records of its own. */
int mr_import_source(struct mr_store *store, const char *source);
/* Records that follow are of this process, which has no more of its own than a name. */
void mr_import_process(struct mr_store *store, uint32_t pid);
/* The row of such a process. */
int mr_import_process_row(struct mr_store *store, uint32_t pid, const char *name, uint64_t start_ns,
                          uint64_t end_ns);
/* Adds "N what" to a list of what was left out; 0 adds nothing. */
void mr_import_count(char *text, size_t cap, uint64_t n, const char *what);
/* Notes two such lists: what is wrong with the file, of which the log warns, too; and what is left
 * out of every file. */
int mr_import_left_out(struct mr_store *store, const char *path, const char *wrong,
                       const char *usual);

#endif
