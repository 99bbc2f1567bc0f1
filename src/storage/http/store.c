/*
 * The store of remote files. Without a disk cache, a read is a request to the client. With one,
 * threads of a pool look in the cache and wait for requests for what is missing.
 */
#include "storage/http/http.h"
#include "storage/ranges.h"
#include "storage/read_pool.h"

#include <errno.h>
#include <string.h>

/* Of all readers of a storage. */
struct store {
    struct mr_http *client;
    struct mr_read_pool pool; /* only with a disk cache, as has_pool says */
    bool has_pool;
    _Atomic bool stop; /* a reader is being closed, and so all are: ranges are not waited for */
};

/* Of one reader. */
struct requests {
    _Atomic bool stop;
    struct mr_finished done;
};

/* A read under way as a request. */
struct flight {
    struct mr_http_request request;
    struct mr_read *read;
    struct mr_file *file;
};

/* A range under way, for all reads that wait for it. */
struct fetch {
    struct mr_http_request request; /* without a disk cache */
    struct mr_read job;             /* with one: for the pool */
    struct mr_ranges *ranges;
    struct mr_file_range *range;
    const struct store *store;
    struct mr_file *file;
};

static void hand_back(struct mr_read *read)
{
    struct requests *of = read->queue->state;
    mr_finished_put(&of->done, read);
}

static void fail(struct mr_read *read, int status)
{
    if (!read->error)
        mr_read_fail(read, status);
}

/* ---- without a disk cache ---- */

static int on_sized(struct mr_http_request *request, uint64_t bytes, void **out)
{
    struct flight *flight = request->user;
    flight->read->done = request->got; /* kept if the block must be replaced */
    int rc = mr_read_sized(flight->read, flight->file, bytes);
    *out = flight->read->to;
    return rc;
}

/* Moves a body whose length was not announced from the client's memory to the read's. */
static void move_body(struct flight *flight)
{
    struct mr_read *read = flight->read;
    const struct mr_http_request *request = &flight->request;
    if (read->bytes != MR_WHOLE || (read->block && request->body == read->to))
        return;
    if (mr_read_sized(read, flight->file, request->got) == 0 && request->got)
        memcpy(read->to, request->body, request->got);
    free(request->body);
}

static void on_done(struct mr_http_request *request)
{
    struct flight *flight = request->user;
    struct mr_read *read = flight->read;
    const struct store *store = read->queue->shared;
    if (request->status) {
        if (read->error) /* by mr_read_sized() */
            free(request->error);
        else
            read->error = request->error;
        read->status = request->status;
    } else {
        move_body(flight);
        int rc = mr_remote_learn(store->client, flight->file, request);
        if (rc)
            fail(read, rc);
        read->done = request->got;
    }
    free(flight);
    hand_back(read);
}

/* Reads that wait are done again one by one if it failed: each says then what it was. */
static void end_fetch(struct fetch *fetch, int status)
{
    struct mr_ranges *ranges = fetch->ranges;
    struct mr_file_range *range = fetch->range;
    free(fetch);
    mr_ranges_fetched(ranges, range, status, hand_back);
}

static void on_fetched(struct mr_http_request *request)
{
    struct fetch *fetch = request->user;
    int rc = request->status;
    free(request->error);
    if (rc == 0)
        rc = mr_remote_learn(fetch->store->client, fetch->file, request);
    end_fetch(fetch, rc);
}

static void request_range(struct fetch *fetch)
{
    const struct mr_file_range *range = fetch->range;
    fetch->request = (struct mr_http_request){.url = mr_file_url(fetch->file),
                                              .at = range->at,
                                              .want = range->bytes,
                                              .to = range->data,
                                              .expect = mr_remote_object(fetch->file),
                                              .stop = &fetch->store->stop,
                                              .done = on_fetched,
                                              .user = fetch};
    mr_http_start(fetch->store->client, &fetch->request);
}

static bool start_request(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    const struct store *store = queue->shared;
    struct requests *of = queue->state;
    struct flight *flight = calloc(1, sizeof *flight);
    if (!flight) {
        mr_read_fail(read, mr_error_nomem(f->name, sizeof *flight));
        return true;
    }
    flight->read = read;
    flight->file = f;
    flight->request = (struct mr_http_request){.url = mr_file_url(f),
                                               .at = read->at,
                                               .want = read->want,
                                               .to = read->want == MR_WHOLE ? NULL : read->to,
                                               .limit = MR_WHOLE_LIMIT,
                                               .expect = mr_remote_object(f),
                                               .stop = &of->stop,
                                               .done = on_done,
                                               .user = flight};
    flight->request.sized = read->want == MR_WHOLE ? on_sized : NULL;
    mr_http_start(store->client, &flight->request);
    return false;
}

/* ---- with one ---- */

/* Reads a whole file. A known object is not requested again; reads detect when it has changed. */
static int read_whole(struct mr_http *client, struct mr_file *f, struct mr_read *read,
                      const _Atomic bool *stop)
{
    void *body = NULL;
    uint64_t bytes = 0;
    int rc = mr_remote_object(f) ? 0 : mr_cached_first(client, f, &body, &bytes, stop);
    if (rc < 0)
        return rc;
    rc = mr_read_sized(read, f, body ? bytes : mr_remote_object(f)->total);
    if (rc < 0)
        goto end;
    if (body)
        memcpy(read->to, body, bytes);
    else
        rc = mr_cached_read(client, f, 0, read->to, read->want, stop);
end:
    free(body);
    return rc;
}

static void fetch_blocking(struct fetch *fetch)
{
    const struct mr_file_range *range = fetch->range;
    fetch->job.status = mr_cached_range(fetch->store->client, fetch->file, range->at, range->data,
                                        range->bytes, &fetch->store->stop);
}

static void read_blocking(void *user, struct mr_read *read)
{
    const struct store *store = user;
    if (!read->queue) {
        fetch_blocking(read->user);
        return;
    }
    const struct requests *of = read->queue->state;
    struct mr_file *f = read->queue->files->file[read->file];
    int rc = read->want == MR_WHOLE
                 ? read_whole(store->client, f, read, &of->stop)
                 : mr_cached_read(store->client, f, read->at, read->to, read->want, &of->stop);
    if (rc)
        fail(read, rc);
    else
        read->done = read->want;
}

/* On a thread of the pool. */
static void end_job(struct mr_read *read)
{
    if (read->queue)
        hand_back(read);
    else
        end_fetch(read->user, read->status);
}

/* The reader's own thread copies what is in the page cache. */
static bool start_cached(struct store *store, struct mr_file *f, struct mr_read *read)
{
    if (read->want != MR_WHOLE && mr_cached_now(store->client, f, read->at, read->to, read->want)) {
        read->done = read->want;
        return true;
    }
    return mr_read_pool_start(&store->pool, read);
}

/* ---- ranges ---- */

/* The read waits for the range already. */
static void start_fetch(struct mr_read_queue *queue, struct mr_file *f, struct mr_file_range *range)
{
    struct store *store = queue->shared;
    struct fetch *fetch = calloc(1, sizeof *fetch);
    if (!fetch) {
        mr_ranges_fetched(queue->ranges, range, -ENOMEM, hand_back);
        return;
    }
    fetch->ranges = queue->ranges;
    fetch->range = range;
    fetch->store = store;
    fetch->file = f;
    fetch->job.user = fetch; /* without a queue: it is no reader's */
    if (!store->has_pool)
        request_range(fetch);
    else if (mr_read_pool_start(&store->pool, &fetch->job))
        end_job(&fetch->job);
}

static bool start_alone(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    struct store *store = queue->shared;
    return store->has_pool ? start_cached(store, f, read) : start_request(queue, f, read);
}

static bool start_in_range(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    struct mr_file_range *range;
    switch (mr_ranges_claim(queue->ranges, read, &range)) {
    case MR_RANGE_COPIED:
        return true;
    case MR_RANGE_WAITS:
        return false;
    case MR_RANGE_FETCH:
        start_fetch(queue, f, range);
        return false;
    case MR_RANGE_ALONE:
        break;
    }
    return start_alone(queue, f, read);
}

/* ---- the store ---- */

static int remote_open(void *shared, struct mr_files *files, uint32_t depth)
{
    struct store *store = shared;
    struct mr_files_kinds kinds;
    mr_files_count(files, &kinds);
    if (kinds.n_remote == 0)
        return 0;
    int rc = mr_http_open(&store->client);
    if (rc < 0)
        return rc;
    if (!mr_http_disk_cache(store->client))
        return 0;
    store->pool.run = read_blocking;
    store->pool.end = end_job;
    store->pool.user = store;
    store->pool.name = "mr-cache";
    rc = mr_read_pool_open(&store->pool, depth);
    if (rc < 0) {
        mr_http_close(store->client);
        return rc;
    }
    store->has_pool = true;
    return 0;
}

static void remote_close(void *shared)
{
    struct store *store = shared;
    if (store->has_pool)
        mr_read_pool_close(&store->pool);
    mr_http_close(store->client);
}

static int remote_queue_open(struct mr_read_queue *queue)
{
    const struct store *store = queue->shared;
    struct requests *of = queue->state;
    if (!store->client)
        return mr_error_set(MR_EMISUSE, "a URL was added after the storage was opened");
    return mr_finished_open(&of->done);
}

static void remote_queue_close(struct mr_read_queue *queue)
{
    struct requests *of = queue->state;
    mr_finished_close(&of->done);
}

static bool remote_start(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    if (read->want == 0)
        return true;
    if (queue->ranges && read->range_bytes > 0 && read->want != MR_WHOLE)
        return start_in_range(queue, f, read);
    return start_alone(queue, f, read);
}

static uint32_t remote_reap(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap,
                            uint64_t until_ns)
{
    struct requests *of = queue->state;
    return mr_finished_reap(&of->done, out, cap, until_ns);
}

static void remote_cancel(struct mr_read_queue *queue)
{
    struct store *store = queue->shared;
    struct requests *of = queue->state;
    atomic_store_explicit(&of->stop, true, memory_order_release);
    atomic_store_explicit(&store->stop, true, memory_order_release);
    mr_http_kick(store->client);
}

const struct mr_storage_ops mr_storage_remote = {
    .name = "http",
    .serves = MR_FILE_REMOTE,
    .kind = MR_STORAGE_AUTO,
    .shared_size = sizeof(struct store),
    .queue_size = sizeof(struct requests),
    .open = remote_open,
    .close = remote_close,
    .queue_open = remote_queue_open,
    .queue_close = remote_queue_close,
    .start = remote_start,
    .reap = remote_reap,
    .cancel = remote_cancel,
};
