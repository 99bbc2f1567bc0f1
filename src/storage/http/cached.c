/* Reading through the disk cache: aligned chunks of known objects, each fetched by one thread at a time. */
#include "storage/http/http.h"

#include <string.h>

static uint64_t chunk_bytes(const struct mr_object *o, uint64_t chunk)
{
    return MR_MIN(MR_DISK_CHUNK, o->total - chunk * MR_DISK_CHUNK);
}

/* Objects that nothing tells from their successors are not kept. */
static bool may_keep(const struct mr_object *o)
{
    return mr_object_etag(o)[0] || o->modified[0];
}

static bool hit(struct mr_disk_cache *cache, const struct mr_disk_key *key, uint64_t whole, uint64_t at, void *to,
                uint64_t bytes)
{
    if (!mr_disk_cache_get(cache, key, whole, at, to, bytes, NULL))
        return false;
    mr_remote_count(&mr_remote_counts.cache_hits, 1);
    mr_remote_count(&mr_remote_counts.cache_bytes, bytes);
    return true;
}

static int fetch_chunk(struct mr_http *client, struct mr_file *f, const struct mr_disk_key *key, uint64_t chunk,
                       uint64_t at, void *to, uint64_t bytes, const _Atomic bool *stop)
{
    uint64_t whole = chunk_bytes(mr_remote_object(f), chunk);
    void *data = bytes == whole ? to : malloc(whole);
    if (!data)
        return mr_error_nomem(f->name, whole);
    int rc = mr_remote_fetch(client, f, chunk * MR_DISK_CHUNK, data, whole, stop);
    if (rc == 0)
        mr_disk_cache_put(mr_http_disk_cache(client), key, data, whole);
    if (rc == 0 && data != to)
        memcpy(to, (char *)data + at, bytes);
    if (data != to)
        free(data);
    return rc;
}

/* at, bytes: within the chunk. */
static int read_chunk(struct mr_http *client, struct mr_file *f, uint64_t chunk, uint64_t at, void *to, uint64_t bytes,
                      const _Atomic bool *stop)
{
    struct mr_disk_cache *cache = mr_http_disk_cache(client);
    const struct mr_object *o = mr_remote_object(f);
    struct mr_disk_key key;
    mr_disk_cache_key(f->name, o, chunk, &key);
    int rc;
    do
        if (hit(cache, &key, chunk_bytes(o, chunk), at, to, bytes))
            return 0;
    while ((rc = mr_disk_cache_begin(cache, &key, stop)) == 0);
    if (rc < 0)
        return rc;
    /* Another one may have ended between our look and our turn. */
    rc = hit(cache, &key, chunk_bytes(o, chunk), at, to, bytes)
             ? 0
             : fetch_chunk(client, f, &key, chunk, at, to, bytes, stop);
    mr_disk_cache_end(cache, &key);
    return rc;
}

int mr_cached_read(struct mr_http *client, struct mr_file *f, uint64_t at, void *to, uint64_t bytes,
                   const _Atomic bool *stop)
{
    int rc = mr_remote_object(f) ? 0 : mr_remote_look(client, f, stop);
    if (rc || bytes == 0)
        return rc;
    const struct mr_object *o = mr_remote_object(f);
    uint64_t end;
    if (!mr_add(at, bytes, &end) || end > o->total || !may_keep(o))
        return mr_remote_fetch(client, f, at, to, bytes, stop);
    for (uint64_t done = 0; done < bytes && rc == 0;) {
        uint64_t chunk = (at + done) / MR_DISK_CHUNK, in = (at + done) % MR_DISK_CHUNK;
        uint64_t n = MR_MIN(bytes - done, MR_DISK_CHUNK - in);
        rc = read_chunk(client, f, chunk, in, (char *)to + done, n, stop);
        done += n;
    }
    return rc;
}

bool mr_cached_now(struct mr_http *client, struct mr_file *f, uint64_t at, void *to, uint64_t bytes)
{
    const struct mr_object *o = mr_remote_object(f);
    uint64_t end, done = 0, chunks = 0;
    if (!o || !mr_add(at, bytes, &end) || end > o->total || !may_keep(o))
        return false;
    for (; done < bytes; chunks++) {
        uint64_t chunk = (at + done) / MR_DISK_CHUNK, in = (at + done) % MR_DISK_CHUNK;
        uint64_t n = MR_MIN(bytes - done, MR_DISK_CHUNK - in);
        struct mr_disk_key key;
        bool later = false;
        mr_disk_cache_key(f->name, o, chunk, &key);
        if (!mr_disk_cache_get(mr_http_disk_cache(client), &key, chunk_bytes(o, chunk), in, (char *)to + done, n,
                               &later))
            return false;
        done += n;
    }
    mr_remote_count(&mr_remote_counts.cache_hits, chunks);
    mr_remote_count(&mr_remote_counts.cache_bytes, bytes);
    return true;
}

static void put_all(struct mr_http *client, struct mr_file *f, const char *body)
{
    struct mr_disk_cache *cache = mr_http_disk_cache(client);
    const struct mr_object *o = mr_remote_object(f);
    struct mr_disk_key key;
    if (!may_keep(o))
        return;
    for (uint64_t chunk = 0; chunk * MR_DISK_CHUNK < o->total; chunk++) {
        mr_disk_cache_key(f->name, o, chunk, &key);
        mr_disk_cache_put(cache, &key, body + chunk * MR_DISK_CHUNK, chunk_bytes(o, chunk));
    }
    mr_disk_cache_remember(cache, f->name, o);
}

/* One request, whatever the cache has: the server says 304 when that is still the object. */
int mr_cached_first(struct mr_http *client, struct mr_file *f, void **body, uint64_t *bytes, const _Atomic bool *stop)
{
    struct mr_object *kept = mr_disk_cache_recall(mr_http_disk_cache(client), f->name);
    const char *etag = kept ? mr_object_etag(kept) : "";
    struct mr_http_request request = {.url = f->name, .want = MR_WHOLE, .limit = MR_WHOLE_LIMIT, .stop = stop};
    request.if_none_match = etag[0] ? etag : NULL;
    int rc = mr_http_run(client, &request);
    if (rc == 0 && kept && request.answer.status == 304) {
        void *none = NULL;
        struct mr_object *o = kept;
        if (atomic_compare_exchange_strong_explicit(&f->own, &none, o, memory_order_acq_rel, memory_order_acquire)) {
            o->client = mr_http_again(client);
            kept = NULL;
        }
    } else if (rc == 0) {
        rc = mr_remote_learn(client, f, &request);
        if (rc == 0)
            put_all(client, f, request.body);
    }
    mr_object_destroy(kept);
    *body = rc ? NULL : request.body;
    *bytes = request.got;
    if (rc)
        free(request.body);
    return rc;
}
