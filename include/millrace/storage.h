/*
 * How files are read: which store, and whether what was read stays in memory.
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
    MR_STORAGE_AUTO, /* io_uring where the kernel gives it, else pread */
    MR_STORAGE_URING,
    MR_STORAGE_PREAD,
    /* Samples that are plain ranges of files go straight into the memory of the device (cuFile on "cuda"), past the host; what
     * cannot, and all of it where there is no such way, is read as by AUTO. mr_loader_stats says what is done, and why. */
    MR_STORAGE_GDS,
};

enum mr_cache_kind {
    MR_CACHE_NONE,
    MR_CACHE_HOST,   /* files are kept in memory once read, and read from there */
    MR_CACHE_DEVICE, /* a loader alone: samples as decoded lie in device memory, and batches are gathered there */
};

/* NULL when reads can go through io_uring here; else why not, in a few words. Any thread. */
MR_API const char *mr_uring_why_not(void);

/*
 * Remote data: http://, https:// and s3://bucket/key. One setting for the process, because data sets read (headers, lists)
 * before a loader opens.
 *
 * s3: keys come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else from ~/.aws/credentials and
 * ~/.aws/config (AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE); requests go unsigned when there are none. The
 * region from AWS_REGION or AWS_DEFAULT_REGION, the endpoint from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
 */
struct mr_remote_opts {
    size_t size;                 /* sizeof, set by mr_remote_opts_init() */
    uint32_t retries;            /* after the first try; default 5 */
    uint32_t connect_timeout_ms; /* default 10,000 */
    uint32_t stall_timeout_ms; /* a request that brings less than 1 KiB/s for so long is tried again; default 30,000 */
                               /* and a server may ask to wait (Retry-After) for so long in all */
    const char *cache_dir;     /* keep what is read there; NULL: nowhere. "default": $XDG_CACHE_HOME/millrace or
                                    ~/.cache/millrace. Default: $MILLRACE_CACHE_DIR, else NULL */
    uint64_t cache_limit;      /* bytes of all files in it; default: $MILLRACE_CACHE_LIMIT, else 16 GiB */
};

/* Fill opts with the defaults: opts_init() is what C and C++ call, see millrace.h. */
MR_API void mr_remote_opts_fill(struct mr_remote_opts *opts, size_t size);
static inline void mr_remote_opts_init(struct mr_remote_opts *opts)
{
    mr_remote_opts_fill(opts, sizeof *opts);
}
/* Sets them, in force as soon as no remote data set is open any more: call it first. Strings are copied. Returns 0, MR_EOPTION, -ENOMEM. Any thread. */
MR_API int mr_remote_opts_set(const struct mr_remote_opts *opts);

/* What the remote reading of this process has come to so far. */
struct mr_remote_stats {
    uint64_t requests, retries, bytes;    /* bytes: of bodies, from the network */
    uint64_t cache_hits, cache_bytes;     /* reads that the disk cache served, and their bytes */
    uint64_t cache_stored_bytes;          /* written to it */
    uint64_t cache_damaged, cache_errors; /* entries whose checksum was wrong; writes that failed (a full disk) */
};
MR_API void mr_remote_stats_query(struct mr_remote_stats *out);

#ifdef __cplusplus
}
#endif
#endif
