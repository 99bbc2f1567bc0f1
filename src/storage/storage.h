/*
 * Storage: gets bytes. Files of a data set stand in a table (struct mr_files); bytes that are in memory already (arrays,
 * inflated or cached files) are given as pointers, all others are read through a reader: one per worker, with a queue.
 */
#ifndef MR_STORAGE_STORAGE_H
#define MR_STORAGE_STORAGE_H

#include "base/base.h"
#include <millrace/storage.h>

/* ---- URLs with credentials (hidden.c) ---- */

/*
 * What stands for a URL in options, texts and names of files: a URL with userinfo, query or
 * fragment gets a name, by which files can be added until it is released. Returns 1 and [out] name;
 * 0: the text holds no such thing, and *name stays; -ENOMEM.
 */
int mr_url_acquire(const char *text, const char **name);
void mr_url_release(const char *name);
/* The URL behind a name that is held, or behind one built below it; any other text as it is. malloc'd;
 * NULL without memory. */
char *mr_url_reveal(const char *name);
/* Continues a hash by what a URL names: without its userinfo and the parameters that sign it, which
 * differ from day to day. */
uint64_t mr_url_hash(uint64_t h, const char *text, size_t n);

/* ---- the table of files ---- */

struct mr_files;

#define MR_WHOLE                                                                                   \
    UINT64_MAX /* bytes of a read or an extent: all of its file, from offset 0; who reads it finds how many */

MR_PRIVATE struct mr_files *mr_files_create(void); /* NULL without memory */
MR_PRIVATE void mr_files_destroy(struct mr_files *files);

/* Each add returns the file's id (>= 0) or a negative error that names the path. */
MR_PRIVATE int mr_files_add_path(struct mr_files *files, const char *path);
/* A file that is open and has no name in any folder; takes the descriptor on success. name: for errors. */
int mr_files_add_unnamed(struct mr_files *files, const char *name, int fd);
/* Memory borrowed, or owned and freed with free(). name: for errors. */
int mr_files_add_memory(struct mr_files *files, const char *name, void *data, uint64_t bytes,
                        bool owned);
/*
 * A gzip file, inflated once by a background thread into memory while reads go on. head: room for head_bytes; filled with
 * the first inflated bytes before this call returns, so that the caller can learn the size. want(user, head, &total)
 * returns 0 and the exact inflated size promised by the header, or an error. A stream that ends early, is longer, or
 * promises more than gzip can hold (1,032 times its size) is an error: of this call when it is known by then, else of the
 * first view past the bytes that are there, and of mr_files_check(). (The last byte is there once the stream's checksum and
 * length are known to be right.)
 */
int mr_files_add_gzip(struct mr_files *files, const char *path, void *head, size_t head_bytes,
                      int (*want)(void *user, const void *head, uint64_t *out_total), void *user);
/*
 * A path, or a URL (http://, https://, s3://): nothing is looked at now. The file is opened when a read of it starts and closed
 * after, so that a million of them cost a small table entry each and no descriptor.
 */
int mr_files_add_lazy(struct mr_files *files, const char *name);
/*
 * Lazy files that are added from now on, whose names begin with this folder's path and a slash, may not leave it by symbolic links:
 * reading one that does is MR_EFORMAT. The folder itself may be reached by links. Returns 0 or -ENOMEM.
 */
int mr_files_set_root(struct mr_files *files, const char *path);
void mr_files_no_root(struct mr_files *files); /* the default */
/* What lazy files that are added from now on may have when they are read whole: at most MR_WHOLE_LIMIT, the default. */
void mr_files_limit_whole(struct mr_files *files, uint64_t bytes);
/* No bytes: each read takes delay_ns and delivers nothing. */
int mr_files_add_null(struct mr_files *files, const char *name, uint64_t bytes, uint64_t delay_ns);

int mr_files_length(const struct mr_files *files); /* ids are below it */
bool mr_files_is_lazy(const struct mr_files *files, int id);
/* MR_WHOLE: a lazy file's that mr_files_size() was not asked for yet. */
MR_PRIVATE uint64_t mr_files_bytes(const struct mr_files *files, int id);
/* The same, of lazy files too: looks where it is not known (blocking), and remembers. */
int mr_files_size(struct mr_files *files, int id, uint64_t *out);
/* As it may be shown and stored: of a URL without its credentials ("***@host/x.tar?..."). */
const char *mr_files_name(const struct mr_files *files, int id);
/* The name with them, for keys that are hashed: never for a text. */
const char *mr_files_url(const struct mr_files *files, int id);
/* The descriptor of a path file, which the table keeps open; -1 of any other, and of lazy files. */
int mr_files_fd(const struct mr_files *files, int id);
/* Sets the text of a read of [offset, offset + bytes) which others did by that descriptor, and that failed with -errno or
 * MR_ETRUNCATED after `done` bytes. Returns status. */
int mr_files_read_error(const struct mr_files *files, int id, int status, uint64_t offset,
                        uint64_t bytes, uint64_t done);
/* Reads bytes from the front, e.g. a header, blocking. Fewer bytes than asked for: MR_ETRUNCATED. */
MR_PRIVATE int mr_files_read(struct mr_files *files, int id, uint64_t offset, void *buf,
                             uint64_t bytes);
/* A whole file, into memory that the caller frees (never NULL); blocking. At most MR_WHOLE_LIMIT bytes. */
int mr_files_read_whole(struct mr_files *files, int id, void **out, uint64_t *bytes);
#define MR_WHOLE_LIMIT (4ull << 30)
/* Waits until every gzip file is inflated; 0, or the first one's error. */
int mr_files_check(struct mr_files *files);
/* Small path files (<= 1 MiB, e.g. labels) become memory files: read whole, now. */
int mr_files_load_small(struct mr_files *files);

/* What kinds of files are in the table. */
struct mr_files_kinds {
    uint32_t n_path, n_memory, n_gzip, n_null, n_remote;
    uint32_t n_lazy;     /* of the paths and the remote ones; their bytes are in no sum */
    uint64_t path_bytes; /* all path files together: what a host cache would need */
    uint64_t
        memory_bytes; /* held by memory and gzip files that the table owns, and by the cache (cached_bytes) */
    uint64_t cache_bytes;  /* what the cache may grow to; 0: no cache */
    uint64_t cached_bytes; /* of these, read so far */
};
void mr_files_count(const struct mr_files *files, struct mr_files_kinds *out);

/*
 * A host cache over the path files: bytes once read stay, in an anonymous mapping as long as the file, and are viewed from
 * there. Made once a data set, shared by its loaders, reference-counted. limit: bytes; 0: none. Returns 0, MR_ELIMIT,
 * -ENOMEM.
 * Views carry no reference, and others than loaders view (mr_dataset_read()): so the last mr_files_uncache() leaves the
 * bytes to the next loader of this data set, and mr_files_destroy() frees them.
 */
int mr_files_cache(struct mr_files *files, uint64_t limit);
void mr_files_uncache(struct mr_files *files);

/*
 * Bytes that are in memory: 1 and [out] out; 0: must be read; negative: error (an inflate that failed, a range past the
 * end). Waits for a gzip file's inflating thread where needed.
 */
int mr_files_view(struct mr_files *files, int id, uint64_t offset, uint64_t bytes,
                  const void **out);
/* The same for a whole file. [out] bytes: how many, as far as that is known now; else MR_WHOLE. */
int mr_files_view_whole(struct mr_files *files, int id, uint64_t *bytes, const void **out);

/* ---- places ---- */

/* Does this name a file by URL? */
bool mr_store_is_remote(const char *name);
/* n bytes as they stand in a URL: all but unreserved characters and those in keep as %XX. malloc'd; NULL without memory. Keys
 * of s3:// are not encoded in names: they are where a request goes out. */
char *mr_url_encode(const char *text, size_t n, const char *keep);
#define MR_URL_PATH  "/" /* keep, of a file's name, which may have any characters */
#define MR_URL_WHOLE "/%?#:@!$&'()*+,;=[]" /* of what is a URL, or a part of one, already */
/*
 * The entries of a directory or of s3://bucket/prefix/, not of what lies below, in any order and without "." and "..":
 * fn(user, name, folder, bytes), bytes UINT64_MAX where not known. Links count as what they lead to; entries that are neither
 * folder nor file are left out. Stops when fn returns nonzero, and returns that; else 0, or an error that names the place.
 */
int mr_store_list(const char *place,
                  int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user);

/* ---- readers ---- */

/* One read. The caller fills the upper part and keeps it in place until it comes back from mr_reader_reap(). */
struct mr_read {
    int file;
    uint64_t offset,
        bytes; /* bytes MR_WHOLE, with offset 0: the whole file, into memory of the reader's */
    void *
        buf; /* room for bytes; NULL with MR_WHOLE; for cached files the reader reads into the cache and sets view */
    void *user;
    /* result */
    const void *
        view; /* where the bytes are: buf, in the cache, or for MR_WHOLE what mr_reader_recycle() is to get back */
    uint64_t done; /* of MR_WHOLE: how many there are */
    int status;    /* 0, or the error; its text in `error` */
    struct mr_error_kept
        *error; /* malloc'd when status != 0, NULL without memory; the caller frees it */
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

/* What readers of one loader share (pread's thread pool). kind: enum mr_storage_kind. depth: reads in flight, all
 * readers together. Returns 0, or MR_EUNSUPPORTED with the reason when the kind was asked for and is not to be had. */
struct mr_storage;
#define MR_STORAGE_DIRECT                                                                          \
    256 /* or'ed to kind: path files are read past the page cache, where their file system can */
int mr_storage_open(struct mr_files *files, int kind, uint32_t depth, uint32_t n_readers,
                    struct mr_storage **out);
void mr_storage_close(struct mr_storage *st); /* after its readers */
/* A file whose file system refused direct reads, so that it is read through the page cache; NULL: none so far. */
const char *mr_storage_refused(const struct mr_storage *st);
const char *mr_storage_name(const struct mr_storage *st); /* "uring", "pread" */

int mr_reader_open(struct mr_storage *st, struct mr_reader **out);
void mr_reader_close(struct mr_reader *r); /* waits for reads in flight */

/* How many more reads this reader takes now. */
uint32_t mr_reader_space(const struct mr_reader *r);
/* Starts reads; at most mr_reader_space() of them. Failures come back through reap like any result. */
void mr_reader_submit(struct mr_reader *r, struct mr_read **reads, uint32_t n);
/*
 * Collects finished reads. wait_ns: how long to wait when none has finished; 0: not at all. A short read is continued
 * inside; one that hits the file's end is MR_ETRUNCATED: the file shrank.
 * Returns how many were written to out (<= cap).
 */
uint32_t mr_reader_reap(struct mr_reader *r, struct mr_read **out, uint32_t cap, uint64_t wait_ns);
uint32_t mr_reader_in_flight(const struct mr_reader *r);
/* Takes back the memory of a whole file's read that was reaped, for later reads: its view ends. Does nothing for other reads. To
 * be called before the reader is closed. */
void mr_reader_recycle(struct mr_reader *r, struct mr_read *read);
/* Room for n whole files of about `bytes` each, once and for all: memory that is not used does not count. Returns 0, -ENOMEM. */
int mr_reader_reserve(struct mr_reader *r, uint32_t n, uint64_t bytes);
void mr_reader_count(const struct mr_reader *r, struct mr_reader_stats *out);

#endif
