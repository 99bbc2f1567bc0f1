/*
 * Storage: reads the bytes of a data set's files. The files are in a table (struct mr_files). Bytes
 * that are already in memory (arrays, inflated or cached files) are viewed in place
 * (mr_files_view()); all others are read asynchronously by a reader (struct mr_reader), of which
 * each worker has its own. Files can be local paths, URLs (http, https, s3) or test files that
 * deliver nothing (null). The stores that read them are vtables, listed in reader.c; private.h
 * describes them.
 */
#ifndef MR_STORAGE_STORAGE_H
#define MR_STORAGE_STORAGE_H

#include "base/base.h"
#include <millrace/storage.h>

/* ---- URLs with credentials (hidden.c) ---- */

/*
 * Replaces a URL that may contain credentials by a name that is safe to show. A URL with userinfo,
 * query or fragment gets a name, under which files can be added until it is released. Returns 1 and
 * [out] name, 0 (the text has none of these; *name is not changed), -ENOMEM.
 */
int mr_url_acquire(const char *text, const char **name);
void mr_url_release(const char *name);
/* The URL for such a name, or for a name below it; any other text is copied unchanged. malloc'd;
 * NULL without memory. */
char *mr_url_reveal(const char *name);

/* lock.c. Guards what is kept for the process: URLs with credentials, and how remote files are
 * read. Nothing else is locked meanwhile. A forked child finds it free. */
void mr_storage_lock(void);
void mr_storage_unlock(void);
/* Continues a hash with a URL, without its userinfo and the parameters that sign it, which change
 * from day to day. */
uint64_t mr_url_hash(uint64_t h, const char *text, size_t n);

/* ---- the table of files ---- */

struct mr_files;

/* Bytes of a read or an extent: the whole file, from offset 0. The reader finds out the size. */
#define MR_WHOLE UINT64_MAX

MR_PRIVATE struct mr_files *mr_files_create(void); /* NULL without memory */
MR_PRIVATE void mr_files_destroy(struct mr_files *files);

/* Each add returns the file's id (>= 0) or a negative error that names the path. */
MR_PRIVATE int mr_files_add_path(struct mr_files *files, const char *path);
/* Adds an open file that has no path, such as a memfd. Takes over the descriptor on success. name:
 * for errors. */
int mr_files_add_unnamed(struct mr_files *files, const char *name, int fd);
/* Adds memory as a file. owned: the table frees it with free(); else it is borrowed. name: for
 * errors. */
int mr_files_add_memory(struct mr_files *files, const char *name, void *data, uint64_t bytes,
                        bool owned);
/*
 * Adds a gzip file, which a background thread inflates into memory once, while reads proceed. head:
 * a buffer of head_bytes, filled with the first inflated bytes before this call returns, from which
 * the caller learns the size. want(user, head, &total) returns 0 and the exact inflated size
 * according to the header, or an error. A stream that is shorter or longer, or a size that gzip
 * cannot reach (1,032 times the file's), is an error: of this call if it is known by then, else of
 * the first view beyond the inflated bytes and of mr_files_check(). The last byte becomes available
 * only after the stream's checksum and length have been verified.
 */
int mr_files_add_gzip(struct mr_files *files, const char *path, void *head, size_t head_bytes,
                      int (*want)(void *user, const void *head, uint64_t *out_total), void *user);
/*
 * Adds a path or a URL (http://, https://, s3://) without accessing it. The file is opened when a
 * read of it starts and closed afterwards, so a million files cost a small table entry each and no
 * descriptors.
 */
int mr_files_add_lazy(struct mr_files *files, const char *name);
/*
 * Lazy files are added by several threads from now on, while files of the table are read. The other
 * kinds are not.
 */
void mr_files_add_concurrently(struct mr_files *files);
/* Adds a lazy file of a known size: no request is made for it. */
int mr_files_add_known(struct mr_files *files, const char *name, uint64_t bytes);
/*
 * Confines lazy files that are added from now on, and whose names begin with this folder's path and
 * a slash, to the folder: reading one that a symbolic link leads out of it fails with MR_EFORMAT.
 * The folder's own path may contain links. Returns 0 or -ENOMEM.
 */
int mr_files_set_root(struct mr_files *files, const char *path);
void mr_files_no_root(struct mr_files *files); /* the default */
/* Limits the size of lazy files that are added from now on and read whole. bytes: at most
 * MR_WHOLE_LIMIT, the default. */
void mr_files_limit_whole(struct mr_files *files, uint64_t bytes);
/* Adds a null file: each read takes delay_ns and delivers nothing. */
int mr_files_add_null(struct mr_files *files, const char *name, uint64_t bytes, uint64_t delay_ns);

/*
 * What a process that may open nothing asks another one for (loader/sandbox.h): bytes, or a size as
 * a uint64_t.
 */
enum mr_file_request_kind { MR_FILE_BYTES, MR_FILE_SIZE };
struct mr_file_request {
    int32_t file, kind; /* enum mr_file_request_kind */
    uint64_t offset, bytes;
};
typedef int mr_files_asked(void *user, const struct mr_file_request *request, void *out);
/* From now on mr_files_read() and mr_files_size() call `ask`; all others are not to be called. */
void mr_files_ask(struct mr_files *files, mr_files_asked *ask, void *user);
bool mr_files_asks(const struct mr_files *files);
/* Answers such a request, which is not trusted: checks it. out: `most` bytes. Returns 0 or an
 * error. */
int mr_files_answer(struct mr_files *files, const struct mr_file_request *request, void *out,
                    uint64_t most);

int mr_files_length(const struct mr_files *files); /* ids are below it */
bool mr_files_is_lazy(const struct mr_files *files, int id);
/* A file's size. MR_WHOLE: a lazy file for which mr_files_size() was not called yet. */
MR_PRIVATE uint64_t mr_files_bytes(const struct mr_files *files, int id);
/* The same, also for lazy files: if the size is unknown, asks the file system or server (blocking)
 * and remembers it. */
int mr_files_size(struct mr_files *files, int id, uint64_t *out);
/* A file's name, safe to show and store: a URL appears without its credentials
 * ("***@host/x.tar?..."). */
const char *mr_files_name(const struct mr_files *files, int id);
/* The name with credentials, for hash keys. Never put it into a text. */
const char *mr_files_url(const struct mr_files *files, int id);
/* The descriptor of a path file, which the table keeps open; -1 for other kinds and lazy files. */
int mr_files_fd(const struct mr_files *files, int id);
/* Sets the error text for a read of [offset, offset + bytes) that someone else did on that
 * descriptor and that failed with -errno or MR_ETRUNCATED after `done` bytes. Returns status. */
int mr_files_read_error(const struct mr_files *files, int id, int status, uint64_t offset,
                        uint64_t bytes, uint64_t done);
/* Reads bytes, such as a header. Blocks. Fewer bytes than requested: MR_ETRUNCATED. */
MR_PRIVATE int mr_files_read(struct mr_files *files, int id, uint64_t offset, void *buf,
                             uint64_t bytes);
/* Reads a whole file of at most MR_WHOLE_LIMIT bytes into memory that the caller frees (never
 * NULL). Blocks. */
int mr_files_read_whole(struct mr_files *files, int id, void **out, uint64_t *bytes);
#define MR_WHOLE_LIMIT (4ull << 30)
/* Waits until every gzip file is inflated. Returns 0 or the first error. */
int mr_files_check(struct mr_files *files);
/* Reads small path files (up to 1 MiB, such as labels) now and turns them into memory files. */
int mr_files_load_small(struct mr_files *files);

/* What kinds of files are in the table. */
struct mr_files_kinds {
    uint32_t n_path, n_memory, n_gzip, n_null, n_remote;
    uint32_t n_lazy;     /* of the paths and the remote ones; their bytes are in no sum */
    uint64_t path_bytes; /* all path files together: what a host cache would need */
    /* held by memory and gzip files that the table owns, and by the cache (cached_bytes) */
    uint64_t memory_bytes;
    uint64_t cache_bytes;  /* what the cache may grow to; 0: no cache */
    uint64_t cached_bytes; /* of these, read so far */
};
void mr_files_count(const struct mr_files *files, struct mr_files_kinds *out);

/*
 * Creates a host cache for the path files: bytes that were read once stay in an anonymous mapping
 * of the file's size and are viewed there. A data set has one cache, which its loaders share by
 * reference counting. limit: bytes; 0: none. Returns 0, MR_ELIMIT, -ENOMEM.
 * Views hold no reference, and mr_dataset_read() uses views without a loader, so the last
 * mr_files_uncache() keeps the bytes for the data set's next loader. mr_files_destroy() frees them.
 */
int mr_files_cache(struct mr_files *files, uint64_t limit);
void mr_files_uncache(struct mr_files *files);

/*
 * Views bytes in memory. Returns 1 and [out] out; 0: they must be read; or an error (inflating
 * failed, a range beyond the end). Waits for a gzip file's inflating thread if needed.
 */
int mr_files_view(struct mr_files *files, int id, uint64_t offset, uint64_t bytes,
                  const void **out);
/* The same for a whole file. [out] bytes: its size if known by now, else MR_WHOLE. */
int mr_files_view_whole(struct mr_files *files, int id, uint64_t *bytes, const void **out);
/* Can all bytes of the file be viewed, if nothing fails? */
bool mr_files_in_memory(const struct mr_files *files, int id);
/* Can they now, without waiting for an inflating thread? */
bool mr_files_is_whole(const struct mr_files *files, int id);

/* ---- places ---- */

/* Is this name a URL? */
bool mr_store_is_remote(const char *name);
/* Reads a file by its path or URL into memory that the caller frees, as mr_files_read_whole(). */
int mr_store_read_whole(const char *name, void **out, uint64_t *bytes);
/* Encodes n bytes for a URL: all but unreserved characters and those in `keep` become %XX.
 * malloc'd; NULL without memory. Names contain s3:// keys unencoded; requests encode them. */
char *mr_url_encode(const char *text, size_t n, const char *keep);
#define MR_URL_PATH  "/" /* keep, of a file's name, which may have any characters */
#define MR_URL_WHOLE "/%?#:@!$&'()*+,;=[]" /* of what is a URL, or a part of one, already */
/*
 * Lists a directory or s3://bucket/prefix/, without subfolders' contents, in any order and without
 * "." and "..". Calls fn(user, name, folder, bytes) for each entry, with bytes UINT64_MAX if
 * unknown. Links count as their targets; entries that are neither folder nor file are skipped.
 * Stops when fn returns nonzero, and returns that; else 0, or an error that names the place.
 */
int mr_store_list(const char *place,
                  int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user);

/* ---- readers ---- */

/* One read. The caller fills the first members and keeps the struct in place until mr_reader_reap()
 * returns it. */
struct mr_read {
    int file;
    uint64_t offset, bytes; /* MR_WHOLE with offset 0: the whole file, into the reader's memory */
    /* a buffer of `bytes`; NULL with MR_WHOLE; cached files are read into the cache, and view is
     * set */
    void *buf;
    void *user;
    /* A range around it, of a remote file, that is worth one request as other reads will want parts
     * of it soon (mr_storage_keep_ranges()). range_bytes 0: none. turn: of the order: what was used
     * in earlier turns makes way. */
    uint64_t range_at, range_bytes, turn;
    /* result */
    bool shared; /* it got a part of a range that had been fetched for another read */
    /* where the bytes are: in buf, in the cache, or for MR_WHOLE in memory to pass to
     * mr_reader_recycle() */
    const void *view;
    uint64_t done; /* of MR_WHOLE: how many there are */
    int status;    /* 0, or the error; its text in `error` */
    /* malloc'd when status != 0, NULL without memory; the caller frees it */
    struct mr_error_kept *error;
    /* the reader's own */
    struct mr_read *next;
    uint64_t due_ns, submit_ns;
    uint64_t at, want; /* the range really read (a cache rounds it out, and so do direct reads) */
    uint64_t need; /* of want, bytes that must be there: the rest may lie behind the file's end */
    void *to;
    struct mr_read_queue *queue;
    uint64_t chunks; /* of the cache, claimed by this read: n; their first is at / MR_CACHE_CHUNK */
    struct mr_block *block; /* of a whole file */
    int fd;                 /* of a lazy file, while it is open */
    bool direct;            /* its descriptor is opened with O_DIRECT */
};

struct mr_reader;

struct mr_reader_stats {
    uint64_t reads, bytes;               /* done */
    uint64_t in_flight_sum, in_flight_n; /* sampled at each submit: mean queue depth */
};

/* What the readers of one loader share, such as pread's thread pool. kind: enum mr_storage_kind.
 * depth: reads in flight, all readers together. Returns 0, or MR_EUNSUPPORTED with the reason if
 * the requested kind is not available. */
struct mr_storage;
/* Or'ed to kind: reads path files past the page cache, if their file system can. */
#define MR_STORAGE_DIRECT 256
int mr_storage_open(struct mr_files *files, int kind, uint32_t depth, uint32_t n_readers,
                    struct mr_storage **out);
void mr_storage_close(struct mr_storage *st); /* after its readers */
/* Fetches the ranges that reads name, and keeps up to `limit` bytes of them. Before readers are
 * opened; without it a read's range is ignored. Returns 0 or -ENOMEM. */
int mr_storage_keep_ranges(struct mr_storage *st, uint64_t limit);
/* A file whose file system refused direct reads, so it is read through the page cache; NULL: none
 * so far. */
const char *mr_storage_refused(const struct mr_storage *st);
const char *mr_storage_name(const struct mr_storage *st); /* "uring", "pread" */

int mr_reader_open(struct mr_storage *st, struct mr_reader **out);
void mr_reader_close(struct mr_reader *r); /* waits for reads in flight */

/* How many more reads this reader accepts now. */
uint32_t mr_reader_space(const struct mr_reader *r);
/* Starts at most mr_reader_space() reads. Failures are reported by mr_reader_reap() like other
 * results. */
void mr_reader_submit(struct mr_reader *r, struct mr_read **reads, uint32_t n);
/*
 * Collects finished reads. wait_ns: how long to wait when none has finished; 0: not at all. A short
 * read is continued inside; one that hits the file's end is MR_ETRUNCATED: the file shrank.
 * Returns how many were written to out (<= cap).
 */
uint32_t mr_reader_reap(struct mr_reader *r, struct mr_read **out, uint32_t cap, uint64_t wait_ns);
uint32_t mr_reader_in_flight(const struct mr_reader *r);
/* Returns the memory of a reaped whole-file read to the reader; its view is no longer valid. Does
 * nothing for other reads. Call it before the reader is closed. */
void mr_reader_recycle(struct mr_reader *r, struct mr_read *read);
/* Reserves memory for n whole files of about `bytes` each. Unused pages take no memory. Returns 0,
 * -ENOMEM. */
int mr_reader_reserve(struct mr_reader *r, uint32_t n, uint64_t bytes);
void mr_reader_count(const struct mr_reader *r, struct mr_reader_stats *out);

#endif
