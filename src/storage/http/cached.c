/* Reads through the disk cache: aligned chunks of known objects, each fetched by one thread at a
 * time. */
#include "storage/http/http.h"

#include <string.h>

static uint64_t chunk_bytes(const struct mr_object *o, uint64_t chunk)
{
    return MR_MIN(MR_DISK_CHUNK, o->total - chunk * MR_DISK_CHUNK);
}

/* Objects without a validator are not stored, since a changed object would look the same. */
static bool may_keep(const struct mr_object *o)
{
    return mr_object_etag(o)[0] || o->modified[0];
}

static void count_hits(uint64_t chunks, uint64_t bytes)
{
    mr_remote_count(&mr_remote_counts.cache_hits, chunks);
    mr_remote_count(&mr_remote_counts.cache_bytes, bytes);
}

/* A part of a chunk that is read. */
struct part {
    struct mr_http *client;
    struct mr_file *f;
    const _Atomic bool *stop;
    uint64_t chunk, whole; /* whole: bytes of the chunk */
    struct mr_disk_fetch fetch;
};

static bool hit(struct mr_disk_cache *cache, const struct part *p)
{
    const struct mr_disk_fetch *want = &p->fetch;
    if (!mr_disk_cache_get(cache, &want->key, p->whole, want->at, want->to, want->bytes, NULL))
        return false;
    count_hits(1, want->bytes);
    return true;
}

/* Only this part, without the cache. */
static int fetch_part(const struct part *p)
{
    const struct mr_disk_fetch *want = &p->fetch;
    uint64_t at = p->chunk * MR_DISK_CHUNK + want->at;
    return mr_remote_fetch(p->client, p->f, at, want->to, want->bytes, p->stop);
}

/* The whole chunk, for this reader and all that wait for it. */
static int fetch_chunk(struct mr_disk_cache *cache, struct part *p)
{
    struct mr_disk_fetch *mine = &p->fetch;
    void *data = mine->bytes == p->whole ? mine->to : mr_disk_buffer_acquire(cache, p->whole);
    if (!data) {
        mr_disk_cache_end(cache, mine, NULL);
        return fetch_part(p);
    }
    int rc = mr_remote_fetch(p->client, p->f, p->chunk * MR_DISK_CHUNK, data, p->whole, p->stop);
    if (rc < 0) {
        mr_disk_cache_end(cache, mine, NULL);
        goto end;
    }
    mr_disk_cache_put(cache, &mine->key, data, p->whole);
    mr_disk_cache_end(cache, mine, data);
    if (data != mine->to)
        memcpy(mine->to, (char *)data + mine->at, mine->bytes);
end:
    if (data != mine->to)
        mr_disk_buffer_release(cache, data, p->whole);
    return rc;
}

static int read_part(struct part *p)
{
    struct mr_disk_cache *cache = mr_http_disk_cache(p->client);
    if (hit(cache, p))
        return 0;
    if (!mr_disk_cache_takes(cache, p->whole, p->fetch.bytes < p->whole))
        return fetch_part(p);
    int rc = mr_disk_cache_begin(cache, &p->fetch, p->stop);
    if (rc == MR_DISK_SERVED)
        count_hits(1, p->fetch.bytes);
    if (rc < 0 || rc == MR_DISK_SERVED)
        return rc;
    /* Another reader may have stored it since we looked. */
    bool stored = hit(cache, p);
    if (rc == MR_DISK_FETCH && !stored)
        return fetch_chunk(cache, p);
    if (rc == MR_DISK_FETCH)
        mr_disk_cache_end(cache, &p->fetch, NULL);
    return stored ? 0 : fetch_part(p);
}

/* at, bytes: within the chunk. */
static int read_chunk(struct mr_http *client, struct mr_file *f, uint64_t chunk, uint64_t at,
                      void *to, uint64_t bytes, const _Atomic bool *stop)
{
    const struct mr_object *o = mr_remote_object(f);
    struct part p = {.client = client, .f = f, .stop = stop, .chunk = chunk};
    p.whole = chunk_bytes(o, chunk);
    p.fetch = (struct mr_disk_fetch){.at = at, .to = to, .bytes = bytes};
    mr_disk_cache_key(mr_file_url(f), o, chunk, &p.fetch.key);
    return read_part(&p);
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
    for (uint64_t done = 0, n; done < bytes; done += n) {
        uint64_t chunk = (at + done) / MR_DISK_CHUNK, in = (at + done) % MR_DISK_CHUNK;
        n = MR_MIN(bytes - done, MR_DISK_CHUNK - in);
        rc = read_chunk(client, f, chunk, in, (char *)to + done, n, stop);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A range that is read. All offsets are in the object; chunks count from its start. */
struct span {
    struct mr_http *client;
    struct mr_file *f;
    const _Atomic bool *stop;
    uint8_t *to;
    uint64_t at, end;     /* the range */
    uint64_t first, last; /* chunks that the cache lacks, and what is between them; first > last:
                             none */
};

static void span_key(const struct span *s, uint64_t chunk, struct mr_disk_key *out)
{
    mr_disk_cache_key(mr_file_url(s->f), mr_remote_object(s->f), chunk, out);
}

/* Copies what the cache has, and finds what it lacks. */
static void take_hits(struct span *s)
{
    const struct mr_object *o = mr_remote_object(s->f);
    s->first = UINT64_MAX;
    s->last = 0;
    for (uint64_t at = s->at, n; at < s->end; at += n) {
        uint64_t chunk = at / MR_DISK_CHUNK, in = at % MR_DISK_CHUNK;
        struct mr_disk_key key;
        n = MR_MIN(s->end - at, MR_DISK_CHUNK - in);
        span_key(s, chunk, &key);
        if (mr_disk_cache_get(mr_http_disk_cache(s->client), &key, chunk_bytes(o, chunk), in,
                              s->to + (at - s->at), n, NULL)) {
            count_hits(1, n);
            continue;
        }
        s->first = MR_MIN(s->first, chunk);
        s->last = chunk;
    }
}

/* Fetches the chunks whole, stores them, and copies what is of the range. */
static int fetch_span(const struct span *s, uint64_t from, uint64_t bytes)
{
    const struct mr_object *o = mr_remote_object(s->f);
    struct mr_disk_cache *cache = mr_http_disk_cache(s->client);
    uint8_t *data = mr_disk_buffer_acquire(cache, bytes);
    if (!data)
        return mr_error_nomem(s->f->name, bytes);
    int rc = mr_remote_fetch(s->client, s->f, from, data, bytes, s->stop);
    if (rc < 0)
        goto end;
    for (uint64_t chunk = s->first; chunk <= s->last; chunk++) {
        struct mr_disk_key key;
        span_key(s, chunk, &key);
        mr_disk_cache_put(cache, &key, data + (chunk * MR_DISK_CHUNK - from),
                          chunk_bytes(o, chunk));
    }
    uint64_t begin = MR_MAX(s->at, from), end = MR_MIN(s->end, from + bytes);
    memcpy(s->to + (begin - s->at), data + (begin - from), end - begin);
end:
    mr_disk_buffer_release(cache, data, bytes);
    return rc;
}

int mr_cached_range(struct mr_http *client, struct mr_file *f, uint64_t at, void *to,
                    uint64_t bytes, const _Atomic bool *stop)
{
    struct span s = {.client = client, .f = f, .stop = stop, .to = to, .at = at};
    int rc = mr_remote_object(f) ? 0 : mr_remote_look(client, f, stop);
    if (rc < 0)
        return rc;
    const struct mr_object *o = mr_remote_object(f);
    if (!mr_add(at, bytes, &s.end) || s.end > o->total || !may_keep(o))
        return mr_remote_fetch(client, f, at, to, bytes, stop);
    take_hits(&s);
    if (s.first > s.last)
        return 0;
    uint64_t from = s.first * MR_DISK_CHUNK,
             whole = s.last * MR_DISK_CHUNK + chunk_bytes(o, s.last) - from;
    bool part = from < at || from + whole > s.end;
    if (mr_disk_cache_takes(mr_http_disk_cache(client), MR_MIN(whole, MR_DISK_CHUNK), part))
        return fetch_span(&s, from, whole);
    uint64_t begin = MR_MAX(at, from), end = MR_MIN(s.end, from + whole);
    return mr_remote_fetch(client, f, begin, s.to + (begin - at), end - begin, stop);
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
        mr_disk_cache_key(mr_file_url(f), o, chunk, &key);
        if (!mr_disk_cache_get(mr_http_disk_cache(client), &key, chunk_bytes(o, chunk), in,
                               (char *)to + done, n, &later))
            return false;
        done += n;
    }
    count_hits(chunks, bytes);
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
        if (!mr_disk_cache_takes(cache, chunk_bytes(o, chunk), false))
            continue;
        mr_disk_cache_key(mr_file_url(f), o, chunk, &key);
        mr_disk_cache_put(cache, &key, body + chunk * MR_DISK_CHUNK, chunk_bytes(o, chunk));
    }
    if (mr_disk_cache_takes(cache, 0, false))
        mr_disk_cache_remember(cache, mr_file_url(f), o);
}

/* The file's object is the one that the cache remembered, unless another thread has set one. */
static void adopt(struct mr_http *client, struct mr_file *f, struct mr_object *kept)
{
    void *none = NULL;
    if (atomic_compare_exchange_strong_explicit(&f->own, &none, kept, memory_order_acq_rel,
                                                memory_order_acquire))
        kept->client = mr_http_again(client);
    else
        mr_object_destroy(kept);
}

/* One request, whatever the cache has: the server answers 304 if that is still the object. */
int mr_cached_first(struct mr_http *client, struct mr_file *f, void **body, uint64_t *bytes,
                    const _Atomic bool *stop)
{
    struct mr_object *kept = mr_disk_cache_recall(mr_http_disk_cache(client), mr_file_url(f));
    const char *etag = kept ? mr_object_etag(kept) : "";
    struct mr_http_request request = {
        .url = mr_file_url(f), .want = MR_WHOLE, .limit = MR_WHOLE_LIMIT, .stop = stop};
    request.if_none_match = etag[0] ? etag : NULL;
    int rc = mr_http_run(client, &request);
    if (rc < 0)
        goto fail;
    if (kept && request.answer.status == 304) {
        adopt(client, f, kept);
    } else {
        mr_object_destroy(kept);
        kept = NULL;
        rc = mr_remote_learn(client, f, &request);
        if (rc < 0)
            goto fail;
        put_all(client, f, request.body);
    }
    *body = request.body;
    *bytes = request.got;
    return 0;
fail:
    mr_object_destroy(kept);
    free(request.body);
    return rc;
}
