/* Taking and releasing batches of a server. */
#include "serve/attached.h"

#include <poll.h>
#include <string.h>

#define NOTHING_YET 2 /* no error code: the run may have ended with any of them */

static int check(const struct mr_attached *a, const char *call)
{
    return a ? mr_process_check(&a->process, "this attached loader")
             : mr_error_null(call, "an attached loader");
}

static int check_stream(const struct mr_attached *a, const struct mr_stream *stream,
                        const char *call)
{
    if (!stream || !a->device || stream->dev == a->device)
        return 0;
    return mr_error_set(MR_EMISUSE, "%s: stream \"%s\" belongs to another device than the batches",
                        call, stream->name);
}

/* ---- taking ---- */

static const uint64_t *numbers(const struct mr_wire_note *note, uint64_t at)
{
    return at ? (const uint64_t *)((const unsigned char *)note + at) : NULL;
}

static void fill_field(const struct mr_item *item, int f, struct mr_batch_field *out)
{
    const struct mr_wire_field *wf = &item->note->field[f];
    const unsigned char *host = item->host + wf->place;
    out->spec = wf->spec;
    out->bytes = wf->bytes;
    out->host = host;
    out->data = (void *)(uintptr_t)host;
    if (item->buffer) /* the copy begins at a multiple of 256 */
        out->data =
            (unsigned char *)item->buffer->data + (wf->place - item->note->first / 256 * 256);
    out->offsets = numbers(item->note, wf->offsets);
    out->lengths = numbers(item->note, wf->lengths);
    memset(out->reserved, 0, sizeof out->reserved);
}

static void fill_batch(const struct mr_item *item, struct mr_batch *out)
{
    const struct mr_wire_note *note = item->note;
    out->n = note->n;
    out->epoch = note->epoch;
    out->index = note->index;
    out->last = note->last;
    out->n_fields = note->n_fields;
    out->indices = numbers(note, note->indices);
    out->positions = numbers(note, note->positions);
    out->slot = NULL; /* it is in no slot of this process's loaders */
    out->number = item->number;
    for (int f = 0; f < out->n_fields; f++)
        fill_field(item, f, &out->field[f]);
}

/* [lock] 1: the batch; 0: the end; an error; or NOTHING_YET. The time that it waits for copies is
 * short: they are enqueued. */
static int take(struct mr_attached *a, struct mr_stream *stream, struct mr_batch *out)
{
    if (atomic_load(&a->cancelled)) {
        a->over = true;
        a->handed = a->received; /* what came is not handed out any more */
        return mr_error_set(MR_ECANCELLED, "%s: cancelled", a->text);
    }
    mr_receive(a);
    mr_receive_flush(a, false);
    if (a->handed == a->received) {
        mr_receive_flush(a, true);
        if (!a->over)
            return NOTHING_YET;
        return a->end.code < 0 ? mr_error_put(&a->end) : 0;
    }
    struct mr_item *item = mr_attached_item(a, a->handed);
    int rc = item->buffer ? mr_transfer_hand_out(item, stream) : 0;
    if (rc < 0) {
        mr_receive_end(a, rc);
        return rc;
    }
    a->handed++;
    item->state = MR_ITEM_HELD;
    fill_batch(item, out);
    return 1;
}

/* Until something may have changed. until_ns: 0: does not wait; UINT64_MAX: no limit. Returns
 * whether it is time to look again. */
static bool wait_for_news(struct mr_attached *a, uint64_t until_ns)
{
    uint64_t now = mr_time_ns(), count;
    pthread_mutex_lock(&a->lock);
    short events = a->n_due > 0 ? POLLIN | POLLOUT : POLLIN; /* the server is slow to read */
    pthread_mutex_unlock(&a->lock);
    struct pollfd fd[3] = {{.fd = a->fd, .events = events},
                           {.fd = a->wake, .events = POLLIN},
                           {.fd = a->watch, .events = POLLIN}};
    if (until_ns != UINT64_MAX && now >= until_ns)
        return false;
    int timeout = -1;
    if (until_ns != UINT64_MAX)
        timeout = (int)MR_MIN((until_ns - now) / 1000000 + 1, 1000000000u);
    int n = poll(fd, 3, timeout);
    if (n > 0 && fd[1].revents)
        (void)!read(a->wake, &count, sizeof count);
    if (n > 0 && fd[2].revents) {
        pthread_mutex_lock(&a->lock);
        a->gone = true; /* what it sent before is read first */
        pthread_mutex_unlock(&a->lock);
    }
    return true;
}

static int late(const struct mr_attached *a, uint64_t waited_ns)
{
    return mr_error_set(-ETIMEDOUT,
                        "%s: no batch after %.3g s: the server waits for its loader, or for a "
                        "trainer that is %llu batches behind",
                        a->text, (double)waited_ns / 1e9, (unsigned long long)a->welcome.ahead);
}

static int next(struct mr_attached *a, struct mr_stream *stream, uint64_t timeout_ns,
                struct mr_batch *out)
{
    uint64_t start = mr_time_ns(), until_ns;
    int rc;
    if (timeout_ns == UINT64_MAX || !mr_add(start, timeout_ns, &until_ns))
        until_ns = UINT64_MAX;
    do {
        pthread_mutex_lock(&a->lock);
        rc = take(a, stream, out);
        pthread_mutex_unlock(&a->lock);
    } while (rc == NOTHING_YET && wait_for_news(a, until_ns));
    uint64_t waited = mr_time_ns() - start;
    atomic_fetch_add_explicit(&a->wait_ns, waited, memory_order_relaxed);
    if (rc == 1)
        atomic_fetch_add_explicit(&a->taken, 1, memory_order_relaxed);
    return rc == NOTHING_YET ? late(a, waited) : rc;
}

static int enter_next(struct mr_attached *a, const char *call, struct mr_stream *stream,
                      uint64_t timeout_ns, struct mr_batch *out)
{
    int rc = check(a, call);
    if (rc < 0)
        return rc;
    rc = mr_info_check_least("batch", out, sizeof *out, sizeof *out);
    if (rc < 0)
        return rc;
    rc = check_stream(a, stream, call);
    if (rc >= 0 && a->device && stream && mr_stream_is_any(stream))
        rc = mr_stream_check(stream, call);
    if (rc < 0)
        return rc;
    if (atomic_exchange(&a->inside, true))
        return mr_error_set(MR_EMISUSE, "%s: another thread is waiting for a batch", call);
    rc = next(a, stream, timeout_ns, out);
    atomic_store(&a->inside, false);
    return rc;
}

int mr_attached_next(struct mr_attached *a, struct mr_stream *stream, struct mr_batch *out)
{
    return enter_next(a, "mr_attached_next", stream, UINT64_MAX, out);
}

int mr_attached_next_for(struct mr_attached *a, struct mr_stream *stream, uint64_t timeout_ns,
                         struct mr_batch *out)
{
    return enter_next(a, "mr_attached_next_for", stream, timeout_ns, out);
}

/* ---- releasing ---- */

static int check_release(const struct mr_attached *a, const struct mr_batch *batch,
                         struct mr_stream *stream)
{
    int rc = check(a, "mr_attached_release");
    if (rc < 0)
        return rc;
    if (!batch)
        return mr_error_null("mr_attached_release", "a batch");
    rc = check_stream(a, stream, "mr_attached_release");
    if (rc < 0 || !stream)
        return rc;
    if (!a->device) /* nothing here knows when the stream has read the host's bytes */
        return mr_stream_synchronize(stream);
    rc = mr_stream_capturing(stream);
    if (rc <= 0)
        return rc;
    return mr_error_set(MR_EMISUSE,
                        "mr_attached_release: stream \"%s\" is being captured into a graph: end "
                        "the capture, launch the graph, and release the batch after that",
                        stream->name);
}

/* [lock] */
static int release(struct mr_attached *a, uint64_t number, struct mr_stream *stream)
{
    struct mr_item *item = mr_attached_item(a, number);
    if (item->state != MR_ITEM_HELD || item->number != number)
        return mr_error_set(MR_EMISUSE, "this batch is not held: it was released before");
    int rc = item->buffer ? mr_transfer_release(item, stream) : 0;
    if (rc == MR_EMISUSE)
        return rc;
    item->host_read = rc == 0 && item->buffer && stream && mr_stream_is_any(stream);
    item->state = MR_ITEM_RELEASED;
    a->n_due++;
    mr_receive_flush(a, false);
    if (a->n_due > 0 && atomic_load(&a->inside)) /* it sleeps: now it has copies to wait for */
        mr_attached_wake(a);
    return rc;
}

int mr_attached_release(struct mr_attached *a, struct mr_batch *batch, struct mr_stream *stream)
{
    int rc = check_release(a, batch, stream);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&a->lock);
    rc = release(a, batch->number, stream);
    pthread_mutex_unlock(&a->lock);
    return rc;
}
