/*
 * Remote files, as the rest of storage sees them. In a build without libcurl or expat remote_none.c says so.
 */
#ifndef MR_REMOTE_H
#define MR_REMOTE_H

#include "storage/private.h"

struct mr_object;

/* The table's part for remote files: the client, the disk cache. Made when the first URL is added. */
struct mr_remote;
int mr_remote_open(struct mr_remote **out);
void mr_remote_close(struct mr_remote *remote); /* NULL: nothing */

/* Size of a file, by a request when it is not known yet. Blocking. Any thread. */
int mr_remote_size(struct mr_remote *remote, struct mr_file *f, uint64_t *out);
/* Reads [at, at + bytes). Blocking. Any thread. */
int mr_remote_read(struct mr_remote *remote, struct mr_file *f, uint64_t at, void *buf, uint64_t bytes);
/* Frees what a file keeps. */
void mr_remote_forget(struct mr_file *f);

/* As mr_store_list(), for s3://bucket/prefix. */
int mr_remote_list(const char *place, int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user);

extern const struct mr_storage_ops mr_storage_remote;

/* What all remote reading of this process has come to; written by any thread. */
struct mr_remote_counts {
    _Atomic uint64_t requests, retries, bytes, cache_hits, cache_bytes, cache_stored_bytes, cache_damaged, cache_errors;
};
extern struct mr_remote_counts mr_remote_counts;

/* The options in force: set by mr_remote_opts_set(), else from the environment. dir: room for cap bytes, holds cache_dir. */
int mr_remote_opts_now(struct mr_remote_opts *out, char *dir, size_t cap);

#endif
