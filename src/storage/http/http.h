/*
 * The HTTP client of the remote store. It takes requests, delivers bytes, and retries.
 *
 * A process has one client while it is in use (mr_http_open() counts references). It has up to
 * MR_HTTP_THREADS I/O threads, each with its own libcurl multi handle, so connections stay open
 * between a data set's header and its samples.
 */
#ifndef MR_STORAGE_HTTP_HTTP_H
#define MR_STORAGE_HTTP_HTTP_H

#include "base/secret.h"
#include "storage/http/head.h"
#include "storage/private.h"
#include "storage/remote.h"

#define MR_HTTP_THREADS 4

struct mr_http; /* the client */
struct mr_http_job;

/* Size and validators of an object when it was first seen. Constant; one allocation. */
struct mr_object {
    struct mr_http *client; /* holds a reference; NULL: none */
    uint64_t total;
    const char *modified; /* Last-Modified, "" for none; within text */
    char text[];          /* the ETag, "" for none; then modified */
};
struct mr_object *mr_object_create(uint64_t total, const char *etag,
                                   const char *modified); /* NULL without memory */
void mr_object_destroy(struct mr_object *object);         /* NULL: nothing. client.c */
/* Checks that a response is for the same version of the object. Returns 0, or -ESTALE, whose text
 * says what changed. total: MR_WHOLE: unknown. */
int mr_object_check(const char *url, const struct mr_object *was, const struct mr_http_head *is,
                    uint64_t total);
static inline const char *mr_object_etag(const struct mr_object *o)
{
    return o->text;
}

/*
 * One request. The caller fills the first members and keeps them, and what url and expect point to,
 * until done() is called.
 */
struct mr_http_request {
    const char *url;   /* http://, https:// or s3://bucket/key */
    const char *query; /* after the URL's '?', encoded and sorted; NULL: none */
    bool head;         /* HEAD: no bytes */
    uint64_t at, want; /* the range; want MR_WHOLE: the whole object (at is 0) */
    void *to;          /* a buffer for `want` bytes; NULL: the client allocates one, up to limit */
    uint64_t limit;
    /*
     * If `to` is NULL: provides a buffer for a whole object once its size is known; otherwise the
     * client allocates one. Called on an I/O thread, and again when a retry continues where an
     * earlier try broke off: the first `got` bytes of the earlier buffer must be kept. Returns 0 or
     * the error. Optional.
     */
    int (*sized)(struct mr_http_request *request, uint64_t bytes, void **out);
    const struct mr_object *expect; /* the expected version; NULL: first contact */
    const char *if_none_match;      /* an ETag: the answer may be 304 and no bytes; NULL: no */
    /* if it becomes true, followed by mr_http_kick(), the request ends with MR_ECANCELLED; or
     * NULL */
    const _Atomic bool *stop;
    void (*done)(struct mr_http_request *request); /* on an I/O thread; must not block */
    void *user;
    /* result */
    int status; /* 0, or the error */
    /* malloc'd when status != 0, NULL without memory; the caller frees it */
    struct mr_error_kept *error;
    struct mr_http_head answer; /* the last head */
    uint64_t got;               /* bytes written to `to` */
    void *body; /* `to`, or memory that the caller frees; NULL if nothing was received */
    /* the client's own */
    struct mr_http_job *job;
};

/* The process's client, started when there is none. 0, or MR_EUNSUPPORTED without libcurl. */
int mr_http_open(struct mr_http **out);
void mr_http_close(struct mr_http *client);            /* after the caller's requests */
struct mr_http *mr_http_again(struct mr_http *client); /* another reference, to be closed too */
struct mr_disk_cache *mr_http_disk_cache(const struct mr_http *client); /* NULL: none */

/* Starts a request. Failures are also reported by done(), which may be called before this
 * returns. */
void mr_http_start(struct mr_http *client, struct mr_http_request *request);
/* Starts a request and waits for it. Returns its status, with the error set. Uses done itself. */
int mr_http_run(struct mr_http *client, struct mr_http_request *request);
/* Makes the I/O threads, and readers that wait for another reader's fetch into the disk cache,
 * check their stop flags. */
void mr_http_kick(struct mr_http *client);

/* The object's total size, if the response contains it. */
bool mr_http_total(const struct mr_http_request *request, uint64_t *out);

/* ---- s3 ---- */

struct mr_s3_account;

/* Reads environment and files. NULL without memory. No error: without keys requests go unsigned. */
struct mr_s3_account *mr_s3_account_create(void);
void mr_s3_account_destroy(struct mr_s3_account *account);

/* How to send a request for s3://bucket/key. */
struct mr_s3_target {
    char *url;                         /* malloc'd */
    const struct mr_s3_account *signs; /* with its keys; NULL: the request goes unsigned */
};
int mr_s3_target(const struct mr_s3_account *account, const char *url, const char *query,
                 struct mr_s3_target *out);
void mr_s3_target_free(struct mr_s3_target *target);

/* Splits s3://bucket/key. Returns 0 or MR_EOPTION. */
int mr_s3_split(const char *url, char bucket[64], const char **key);
/* As mr_store_list(). */
int mr_s3_list(const char *place,
               int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user);

/* The first "Code: Message" of an error's XML, or "". */
void mr_s3_error_text(const char *body, size_t bytes, char *out, size_t cap);

/* ---- files ---- */

/* What is known about a file's object; NULL before the first contact. */
struct mr_object *mr_remote_object(struct mr_file *f);
/* Remembers size and validators from a response, or checks them against the known ones. Returns 0,
 * -ESTALE, -ENOMEM. */
int mr_remote_learn(struct mr_http *client, struct mr_file *f,
                    const struct mr_http_request *answered);
/* Like mr_remote_ops.read, through the client's disk cache. stop: as in a request. */
int mr_cached_read(struct mr_http *client, struct mr_file *f, uint64_t at, void *to, uint64_t bytes,
                   const _Atomic bool *stop);
/* The same for what is to be had by one request: from the first to the last byte that the cache
 * lacks. Two that want the same chunk at a time may both fetch it. */
int mr_cached_range(struct mr_http *client, struct mr_file *f, uint64_t at, void *to,
                    uint64_t bytes, const _Atomic bool *stop);
/* As mr_cached_read() for bytes in the page cache, without blocking. false: some are missing. */
bool mr_cached_now(struct mr_http *client, struct mr_file *f, uint64_t at, void *to,
                   uint64_t bytes);
/* Requests the object's size and validators, by HEAD or a substitute that the server supports. */
int mr_remote_look(struct mr_http *client, struct mr_file *f, const _Atomic bool *stop);
/* Reads a range without the cache. */
int mr_remote_fetch(struct mr_http *client, struct mr_file *f, uint64_t at, void *to,
                    uint64_t bytes, const _Atomic bool *stop);
/* First contact by reading all of it. [out] body: malloc'd; or NULL: the disk cache has it. */
int mr_cached_first(struct mr_http *client, struct mr_file *f, void **body, uint64_t *bytes,
                    const _Atomic bool *stop);

/* ---- the disk cache ---- */

struct mr_disk_cache;
struct mr_disk_key {
    uint64_t hi, lo;
};

/* limit: bytes of all files in it. NULL with the error set. */
struct mr_disk_cache *mr_disk_cache_open(const char *dir, uint64_t limit);
void mr_disk_cache_close(struct mr_disk_cache *cache);

#define MR_DISK_CHUNK (1ull << 20)

/* The key of a chunk: a hash of URL, validator, size, and the chunk's number. */
void mr_disk_cache_key(const char *url, const struct mr_object *object, uint64_t chunk,
                       struct mr_disk_key *out);
/* Reads [at, at + bytes) of a chunk of chunk_bytes. later: if not NULL, reads only from the page
 * cache, and is set if the bytes are not there. false: missing, damaged (then it was removed), or
 * later was set. */
bool mr_disk_cache_get(struct mr_disk_cache *cache, const struct mr_disk_key *key,
                       uint64_t chunk_bytes, uint64_t at, void *to, uint64_t bytes, bool *later);
/*
 * Would a chunk of so many bytes be stored now? To be asked before a whole chunk is fetched for a
 * part of it: a chunk that cannot be stored would be fetched again for the next part. false: the
 * limit is too small, the disk is full, or a write failed a short while ago. part: only a part is
 * wanted; then it is false, too, when chunks that this process used itself would be removed, and
 * these are as good as new ones: disk_cache_worth.c.
 */
bool mr_disk_cache_takes(struct mr_disk_cache *cache, uint64_t bytes, bool part);
/* Stores a whole chunk, if it fits below the limit. */
void mr_disk_cache_put(struct mr_disk_cache *cache, const struct mr_disk_key *key, const void *data,
                       uint64_t bytes);

/* A reader that missed a chunk, on its stack. It sets key, and its part within the chunk. */
struct mr_disk_fetch {
    struct mr_disk_key key;
    uint64_t at, bytes;
    void *to;
    /* the cache's own */
    struct mr_disk_fetch *next, *waiting;
    int state;
};
enum {
    MR_DISK_SERVED,  /* another reader fetched the chunk: the part is at `to` */
    MR_DISK_FETCH,   /* the caller fetches it, and calls mr_disk_cache_end() */
    MR_DISK_ALONE,   /* another reader tried to, and failed: the caller reads its part by itself */
    MR_DISK_WAITING, /* never returned */
};
/*
 * Joins the fetch of a chunk, or becomes its fetcher. Returns one of the above, or MR_ECANCELLED:
 * stop, as of a request, became true (and mr_disk_cache_kick() was called) while another reader
 * fetched. Blocks until that one is done.
 */
int mr_disk_cache_begin(struct mr_disk_cache *cache, struct mr_disk_fetch *mine,
                        const _Atomic bool *stop);
void mr_disk_cache_kick(struct mr_disk_cache *cache);
/* Called by the fetcher: copies their parts to all waiting readers. chunk: its bytes; NULL: the
 * fetch failed. */
void mr_disk_cache_end(struct mr_disk_cache *cache, struct mr_disk_fetch *mine, const void *chunk);
/* Memory for chunks that are fetched; bytes of one or several. NULL: there is none. */
void *mr_disk_buffer_acquire(struct mr_disk_cache *cache, uint64_t bytes);
void mr_disk_buffer_release(struct mr_disk_cache *cache, void *buffer, uint64_t bytes);
/* The version of a URL's object that was last stored: malloc'd, or NULL. */
struct mr_object *mr_disk_cache_recall(struct mr_disk_cache *cache, const char *url);
void mr_disk_cache_remember(struct mr_disk_cache *cache, const char *url,
                            const struct mr_object *object);

#endif
