/*
 * Storage: how files are read, and settings for HTTP and S3.
 *
 * Which store a loader reads through, and whether it caches, are members of struct mr_loader_opts:
 *
 *     opts.storage = MR_STORAGE_AUTO;
 *     opts.cache = MR_CACHE_HOST;
 *
 * Remote files (http://, https://, s3://bucket/key) can stand wherever a data set takes a path.
 * Their settings hold for the whole process, because data sets read headers and lists before a
 * loader is opened. S3 credentials, region and endpoint come from the environment variables and
 * files that the AWS tools use; docs/data.md lists them.
 *
 * Threads: every function here may be called from any thread.
 * fork: a child inherits the settings. It reads remote files through data sets that it opens
 * itself; with an inherited one reads fail with MR_EMISUSE.
 */
#ifndef MILLRACE_STORAGE_H
#define MILLRACE_STORAGE_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mr_storage_kind {
    MR_STORAGE_AUTO,  /* io_uring where the kernel allows it, else pread */
    MR_STORAGE_URING, /* io_uring; an error where it cannot be used */
    MR_STORAGE_PREAD, /* pread on the worker threads */
    /* GPUDirect Storage: samples that are plain ranges of local files are read straight into device
     * memory (cuFile on "cuda"). The rest is read as by AUTO; mr_loader_stats() says what and
     * why. */
    MR_STORAGE_GDS,
};

enum mr_cache_kind {
    MR_CACHE_NONE,
    MR_CACHE_HOST,   /* files stay in host memory after they were read once */
    MR_CACHE_DEVICE, /* decoded samples stay in device memory, where batches are gathered */
};

/* Returns NULL if io_uring can be used here, else the reason in a few words. Constant text. */
MR_API const char *mr_uring_why_not(void);

struct mr_remote_opts {
    size_t size;                 /* of this struct, set by mr_remote_opts_init() */
    uint32_t retries;            /* after the first try; default 5 */
    uint32_t connect_timeout_ms; /* default 10,000 */
    /* A request that receives less than 1 KiB/s for this long is tried again. It is also the
     * longest time, in all, that a server can ask to wait by Retry-After. Default 30,000. */
    uint32_t stall_timeout_ms;
    /* Folder of the disk cache. NULL: none; "default": $XDG_CACHE_HOME/millrace or
     * ~/.cache/millrace. Default: $MILLRACE_CACHE_DIR, else NULL. */
    const char *cache_dir;
    /* Bytes of all files in the disk cache. Default: $MILLRACE_CACHE_LIMIT, else 16 GiB. */
    uint64_t cache_limit;
};

/* Sets opts to the defaults. C and C++ call mr_remote_opts_init(); see millrace.h. */
MR_API void mr_remote_opts_fill(struct mr_remote_opts *opts, size_t size);
static inline void mr_remote_opts_init(struct mr_remote_opts *opts)
{
    mr_remote_opts_fill(opts, sizeof *opts);
}

/*
 * Changes the remote settings of this process. They take effect once no remote data set is open, so
 * call this before the first one is opened. Strings are copied.
 * Returns 0, MR_EOPTION, MR_EMISUSE (a wrong opts.size), -ENOMEM.
 */
MR_API int mr_remote_opts_set(const struct mr_remote_opts *opts);

/* Counters of this process's remote reads. */
struct mr_remote_stats {
    size_t size; /* of this struct, set by the caller */
    uint64_t requests, retries;
    uint64_t bytes;              /* of response bodies, from the network */
    uint64_t cache_hits;         /* reads served by the disk cache */
    uint64_t cache_bytes;        /* of these reads */
    uint64_t cache_stored_bytes; /* written to the disk cache */
    uint64_t cache_damaged;      /* cache entries with a wrong checksum */
    uint64_t cache_errors;       /* failed writes to the cache, such as on a full disk */
};

/* Reads the counters. [out] out: on success, all but size. Returns 0, MR_EMISUSE (a wrong size). */
MR_API int mr_remote_stats_query(struct mr_remote_stats *out);

/* ---- how fast a disk can be read ---- */

#define MR_READ_RATE_MAX_DEPTH 4096u
#define MR_READ_RATE_MAX_BYTES (512ull << 20) /* of all reads in flight */

struct mr_read_rate_opts {
    size_t size;                  /* of this struct, set by mr_read_rate_opts_init() */
    const char *path;             /* a local file; required */
    enum mr_storage_kind storage; /* AUTO (default), URING, PREAD */
    int direct;                   /* 1: with O_DIRECT, past the page cache; default 0 */
    int cold;   /* 1 (default): drop the file from the page cache first, and read nothing twice */
    int random; /* 1: pieces in random order; 0 (default): one after the other */
    uint32_t depth; /* reads in flight, 1 to MR_READ_RATE_MAX_DEPTH; default 1 */
    uint64_t
        piece_bytes;  /* of a read; all in flight at most MR_READ_RATE_MAX_BYTES; default 4096 */
    uint64_t time_ns; /* no read begins later; default 0.5 s */
    uint64_t seed;    /* of the random order */
};

/* Sets opts to the defaults. */
MR_API void mr_read_rate_opts_fill(struct mr_read_rate_opts *opts, size_t size);
static inline void mr_read_rate_opts_init(struct mr_read_rate_opts *opts)
{
    mr_read_rate_opts_fill(opts, sizeof *opts);
}

struct mr_read_rate {
    size_t size;         /* of this struct, set by the caller */
    uint64_t reads;      /* done */
    uint64_t bytes;      /* of them */
    uint64_t ns;         /* from the first read's start to the last one's end */
    uint64_t p50_ns;     /* half of the reads took at most this long */
    uint64_t p99_ns;     /* 99 of 100 reads */
    const char *storage; /* that read: "uring", "pread". Constant text */
    int direct; /* 1: all reads were direct; 0: they were not, or the file system refused */
};

/*
 * Measures reads of a file by the engine that loaders read with, on the calling thread. Blocks for
 * opts->time_ns and the reads in flight then; less if cold and the whole file was read.
 * [out] out: on success, all but size.
 * Returns 0; -errno; MR_EOPTION, MR_ELIMIT, MR_EMISUSE; MR_EUNSUPPORTED: no such storage here.
 */
MR_API int mr_read_rate_measure(const struct mr_read_rate_opts *opts, struct mr_read_rate *out);

#ifdef __cplusplus
}
#endif
#endif
