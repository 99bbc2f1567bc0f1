/*
 * What the files of src/storage share: entries of the table of files, caches and blocks, the vtable
 * of stores, and the queues of a reader. A reader has one queue for each kind of file that must be
 * read (struct mr_read_queue). mr_reader_submit() passes each read to the queue of its file's kind,
 * whose store (struct mr_storage_ops) performs it; mr_reader_reap() collects reads from all queues.
 * A read that its store refuses, for example when io_uring stops accepting reads, goes to a
 * fallback queue, which is pread's.
 */
#ifndef MR_STORAGE_PRIVATE_H
#define MR_STORAGE_PRIVATE_H

#include "storage/storage.h"
#include <string.h>

/* [out] out: the name to show, a 0, and the full URL, malloc'd. Returns 1, 0 (the name contains no
 * credentials), -ENOMEM. hidden.c */
int mr_url_pack(const char *name, char **out, size_t *bytes);

/* ---- files ---- */

/* Kinds that are read through a reader come first; a reader has one queue for each of them. */
enum mr_file_kind {
    MR_FILE_PATH,
    MR_FILE_NULL,
    MR_FILE_REMOTE,
    MR_N_QUEUES,
    MR_FILE_MEMORY = MR_N_QUEUES,
    MR_FILE_GZIP,
};

struct mr_file_cache;
struct mr_inflater;
struct mr_ranges;

/* One file. Constant once added, except for the atomics. A lazy file's bytes are MR_WHOLE. Small,
 * because there may be millions. */
struct mr_file {
    const uint8_t *data; /* memory and gzip: the bytes; else NULL */
    /* bytes of data that can be viewed: grows while a gzip file is inflated. Lazy files: the size
     * last seen */
    _Atomic uint64_t ready;
    uint64_t bytes;
    struct mr_file_cache *_Atomic cache; /* path files; NULL: none */
    struct mr_block *_Atomic block; /* lazy files: all of it, kept by the host cache; NULL: not */
    uint8_t kind;                   /* enum mr_file_kind */
    bool owned, lazy;
    bool hides;             /* the name leaves credentials out: the URL is behind its 0 */
    bool unnamed;           /* a path file whose name opens another file, or none */
    bool in_memory;         /* of tmpfs or the like: its bytes are there; it is not lazy */
    _Atomic bool no_nowait; /* the file system knows no RWF_NOWAIT */
    int fd;                 /* path files; else -1 */
    _Atomic int direct_fd;  /* path files that are not lazy: opened with O_DIRECT; -1: not */
    union {
        uint64_t delay_ns;    /* of null files */
        uint64_t whole_limit; /* of lazy ones: what one that is read whole may have */
    };
    union {
        struct mr_inflater *inflater; /* of gzip files */
        /* of lazy ones: the folder that they may not leave by links; NULL: none */
        const struct mr_root *root;
    };
    _Atomic(void *) own; /* remote files: their store's, which frees it in forget() */
    char *name;
};

/* The URL or path that reads use: the name with credentials. */
static inline const char *mr_file_url(const struct mr_file *f)
{
    return f->hides ? f->name + strlen(f->name) + 1 : f->name;
}

struct mr_files {
    /* Each on the heap: they stay in place while the table grows. */
    struct mr_file **_Atomic file;
    _Atomic int n;
    uint64_t capacity;
    _Atomic uint32_t n_lazy;
    pthread_mutex_t add_lock;      /* guards adding lazy files; taken alone */
    bool concurrent;               /* files are added while others are read: */
    struct mr_file **outgrown[32]; /* so what `file` was before it grew is freed at the end */
    int n_outgrown;
    uint64_t whole_limit;   /* of lazy files that are added now */
    struct mr_root *roots;  /* all that there are */
    struct mr_root *root;   /* of lazy files that are added now */
    struct mr_slab *slabs;  /* lazy files' entries */
    struct mr_names *names; /* and names */
    pthread_mutex_t lock;   /* guards cache_refs and making the cache; taken alone */
    uint32_t cache_refs;
    _Atomic uint64_t block_limit; /* bytes that the host cache may keep of lazy files; 0: none */
    _Atomic uint64_t block_bytes; /* kept, or about to be */
    mr_files_asked *ask;          /* does the reading; NULL: this process reads by itself */
    void *ask_user;
};

/* Opens a regular file; returns its descriptor and [out] bytes, or a negative error that names
 * it. file.c */
int mr_file_open(const char *path, uint64_t *bytes);
/* The second half of mr_file_open(), for a descriptor that was opened with MR_OPEN_FLAGS. Closes it
 * on failure. */
int mr_file_opened(const char *path, int fd, uint64_t *bytes);
/* Opens a lazy file, confined to its root if it has one. beneath.c */
int mr_file_open_lazy(const struct mr_file *f, uint64_t *bytes);
void mr_roots_free(struct mr_files *files);
/* The descriptor of a lazy file's root. [out] name: the file's name below it, for openat2 with
 * MR_BENEATH. */
int mr_root_of(const struct mr_file *f, const char **name);
#define MR_BENEATH (RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS) /* of linux/openat2.h */
/* The error of an open() that failed. */
int mr_file_open_error(const char *path, int errnum);
/* O_NONBLOCK: opening a pipe does not wait for its writer. mr_file_opened() takes it back, as
 * io_uring would heed it. */
#define MR_OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

/* Creates a table entry and its name, which are freed with the table's slabs. lazy.c */
int mr_lazy_create(struct mr_files *files, const char *name, struct mr_file **out);
void mr_lazy_free_all(struct mr_files *files);
/* Like mr_files_read(), for a lazy file whose bytes are not in memory. */
int mr_lazy_read(struct mr_file *f, uint64_t offset, void *buf, uint64_t bytes);
/* Checks that a file of this size may be read whole. Returns 0 or MR_ELIMIT. file.c */
int mr_file_check_whole(const struct mr_file *f, uint64_t bytes);

/* Is it on a file system that is memory? file.c */
bool mr_file_is_in_memory(int fd);
/* Continues a read from *done up to `want` bytes, at file offset at + *done. Returns 0, -errno, or
 * MR_ETRUNCATED at the file's end. Sets no text. file.c */
int mr_file_pread(int fd, void *buf, uint64_t want, uint64_t at, uint64_t *done);

/* Sets the text of a failed read of [at, at + want) that got `done` bytes; returns status. */
int mr_file_read_error(const struct mr_file *f, int status, uint64_t want, uint64_t at,
                       uint64_t done);

/* Starts inflating a gzip file; see mr_files_add_gzip(). On success f->data, bytes, ready and
 * inflater are set. */
int mr_inflater_open(struct mr_file *f, const char *path, void *head, size_t head_bytes,
                     int (*want)(void *user, const void *head, uint64_t *out_total), void *user);
void mr_inflater_close(struct mr_file *f);
/* Waits until `end` bytes are inflated. Returns 0 or the stream's error. */
int mr_inflater_wait(struct mr_file *f, uint64_t end);

/* ---- the host cache ---- */

#define MR_CACHE_CHUNK 65536ull

/* Like mr_files_view(), for a range within the file. */
int mr_cache_view(const struct mr_file *f, const struct mr_file_cache *c, uint64_t offset,
                  uint64_t bytes, const void **out);
/* Decides what a read of a cached file must read: sets at, want, to and chunks. true: nothing, the
 * bytes are cached and view is set. */
bool mr_cache_claim(const struct mr_file *f, struct mr_file_cache *c, struct mr_read *read);
/* After the read, whose status and done are set: publishes or releases the claimed chunks, and sets
 * view. */
void mr_cache_finish(struct mr_file_cache *c, struct mr_read *read);
void mr_cache_destroy(struct mr_file *f);
/* Bytes of this file that are in the cache. */
uint64_t mr_cache_bytes(const struct mr_file_cache *c);

/* ---- whole files ---- */

/* Memory for one whole file. */
struct mr_block {
    struct mr_block *next;
    uint8_t *data;
    uint64_t capacity; /* of data */
    uint64_t bytes;    /* the file's */
    bool exact;        /* created for the host cache: capacity is counted in block_bytes */
    bool kept;         /* by the host cache: it frees it */
    bool reserved;     /* part of its reader's reserve */
};

#define MR_BLOCK_SIZES 96

/* A reader's free blocks. Its own thread and the threads that read for it take and return them. */
struct mr_blocks {
    pthread_mutex_t lock;                  /* guards the rest; taken alone */
    struct mr_block *free[MR_BLOCK_SIZES]; /* by size, 4 sizes an octave */
    uint64_t free_bytes;                   /* of those that were made one by one */
    /* one array with one allocation behind it; unused pages take no memory */
    struct mr_block *reserve;
    void *reserved;
};

void mr_blocks_init(struct mr_blocks *blocks);
void mr_blocks_free(struct mr_blocks *blocks);
struct mr_block *mr_blocks_take(struct mr_blocks *blocks, uint64_t bytes); /* NULL without memory */
void mr_blocks_give(struct mr_blocks *blocks, struct mr_block *block);
int mr_blocks_reserve(struct mr_blocks *blocks, uint32_t n, uint64_t bytes);
void mr_block_destroy(struct mr_block *block);

/*
 * For stores, once the size of a lazy file is known. For a whole-file read it takes a block and
 * sets to, at and want; bytes read so far (done) are kept when the size is corrected. Any thread.
 * Returns 0; otherwise the read has failed, as by mr_read_fail().
 */
int mr_read_sized(struct mr_read *read, struct mr_file *f, uint64_t bytes);
/* Offers the block of a finished whole-file read to the host cache. */
void mr_read_keep(struct mr_files *files, struct mr_file *f, struct mr_read *read);
#define MR_DIRECT_BYTES 4096u /* what direct reads are aligned to: offset, length and memory */
/* The descriptor that a read uses. */
int mr_read_fd(const struct mr_file *f, const struct mr_read *read);
/* Sets O_DIRECT on the lazy file that a direct read has opened, or notes that it is not
 * possible. */
void mr_read_opened(struct mr_read *read, const struct mr_file *f);
/* Continues through the page cache a direct read that the file system refused (-EINVAL). */
void mr_read_refused(struct mr_read *read, const struct mr_file *f);
/* Continues this read with mr_file_pread(). */
int mr_read_pread(struct mr_read *read, const struct mr_file *f);
/* Opens the files that are not lazy for direct reads. */
void mr_direct_open(struct mr_files *files, _Atomic(const char *) *refused);
/* Extends a read to aligned boundaries, into a block of the reader. false: it has failed. */
bool mr_direct_prepare(struct mr_read *read, const struct mr_file *f, struct mr_blocks *blocks);
/* Ends a read with the calling thread's error text, for failures that mr_file_read_error() does not
 * describe. */
void mr_read_fail(struct mr_read *read, int status);

/* ---- remote files ---- */

/* What the table of files and mr_store_list() need from a store of URLs. All block; errors name the
 * file. */
struct mr_remote_ops {
    const char *const *schemes;   /* "http://", ...; NULL at the end */
    const char *(*why_not)(void); /* NULL: usable; else what is missing. Optional */
    int (*size)(struct mr_file *f, uint64_t *out);
    int (*read)(struct mr_file *f, uint64_t offset, void *buf, uint64_t bytes);
    int (*list)(const char *place,
                int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user);
    void (*forget)(struct mr_file *f); /* frees f->own. Optional */
};
extern const struct mr_remote_ops mr_remote_http;
/* The store that serves this name; NULL: a path or an unknown scheme. */
const struct mr_remote_ops *mr_remote_of(const char *name);
/* Checks that a file with this name can be read here. Returns 0 (also for paths) or
 * MR_EUNSUPPORTED. */
int mr_remote_check(const char *name);
void mr_remote_forget(struct mr_file *f); /* frees what its store remembers about it */

/* ---- lists of reads ---- */

/* In the order in which they were appended. */
struct mr_read_list {
    struct mr_read *first, *last;
};

static inline void mr_read_append(struct mr_read_list *list, struct mr_read *read)
{
    read->next = NULL;
    if (list->first)
        list->last->next = read;
    else
        list->first = read;
    list->last = read;
}

/* Moves the first ones, at most cap, to out. Returns how many. */
static inline uint32_t mr_read_take(struct mr_read_list *list, struct mr_read **out, uint32_t cap)
{
    uint32_t n = 0;
    for (; n < cap && list->first; list->first = list->first->next)
        out[n++] = list->first;
    return n;
}

/* ---- stores ---- */

/*
 * One of a reader's queues: its reads of one kind of file, performed by one store. Only the
 * reader's thread calls the hooks.
 */
struct mr_read_queue {
    const struct mr_storage_ops *ops; /* NULL: the queue is not in use */
    void *state;                      /* ops->queue_size bytes, zeroed */
    void *shared;                     /* the store's, ops->shared_size bytes */
    struct mr_files *files;
    struct mr_blocks *blocks;              /* the reader's */
    struct mr_ranges *ranges;              /* of all readers; NULL: none are kept */
    uint32_t depth;                        /* reads in flight at most */
    _Atomic(const char *) *refused_direct; /* the storage's: see mr_storage_refused() */
    bool refuses;                          /* its new reads go to the fallback */
    uint32_t in_flight;                    /* submitted to it, not yet reaped from it */
};

/*
 * A store: how files of one kind are read. Adding one means a file with such a table and a line in
 * the array in reader.c; a new kind of file needs an enum mr_file_kind before MR_N_QUEUES.
 *
 * A read requests [at, at + want) of the file into `to`. A store sets done and status (0, -errno,
 * MR_ETRUNCATED); reader.c does the rest: the cache, the error text (unless mr_read_fail() kept
 * one) and the statistics. want MR_WHOLE: the whole file, into memory from mr_read_sized().
 */
struct mr_storage_ops {
    const char *name;
    enum mr_file_kind serves;
    int kind; /* the enum mr_storage_kind that selects it; MR_STORAGE_AUTO: any */
    size_t shared_size, queue_size;
    /* Usable here? NULL, or why not. Optional: always. */
    const char *(*why_not)(void);
    /* The part that all readers share. depth: reads in flight at most, all readers together.
     * Optional, as close. */
    int (*open)(void *shared, struct mr_files *files, uint32_t depth);
    void (*close)(void *shared);
    /* Required. When it fails, nothing is left open. */
    int (*queue_open)(struct mr_read_queue *queue);
    void (*queue_close)(struct mr_read_queue *queue); /* nothing is in flight */
    /* Required: starts one read. true: it is already done and will not be reaped. */
    bool (*start)(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read);
    /* After the last start of a batch. Optional. */
    void (*flush)(struct mr_read_queue *queue);
    /* Required: writes finished reads to out, at most cap; waits for the first until until_ns (0:
     * does not wait). */
    uint32_t (*reap)(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap,
                     uint64_t until_ns);
    /* Returns reads that this store cannot do although their files are readable: at most cap,
     * written to out. They belong to the reader again, unchanged since start(). After the first of
     * them, new reads go to the fallback queue too. Optional. */
    uint32_t (*refused)(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap);
    /* When the next read will be done; UINT64_MAX: none. For stores that know it, so that a reader
     * can wait in another queue. Optional. */
    uint64_t (*next_ns)(const struct mr_read_queue *queue);
    /* Makes reads in flight end soon. Optional. */
    void (*cancel)(struct mr_read_queue *queue);
};

extern const struct mr_storage_ops mr_storage_uring, mr_storage_pread, mr_storage_null,
    mr_storage_remote;

#endif
