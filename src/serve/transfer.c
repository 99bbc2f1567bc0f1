/* Copies from views of the server's slots to a device, ahead of the program. */
#include "serve/attached.h"

#define ALIGN 256 /* as in the loader's slots */

int mr_transfer_open(struct mr_attached *a)
{
    return mr_stream_create(a->device, "attached", &a->transfer.stream);
}

static void destroy(const struct mr_attached *a, struct mr_buffer *b)
{
    mr_event_destroy(b->copied); /* both wait until they have passed */
    mr_event_destroy(b->released);
    mr_memory_release(a->device, MR_DEVICE, b->data, NULL);
    free(b);
}

void mr_transfer_close(struct mr_attached *a)
{
    struct mr_transfer *t = &a->transfer;
    if (t->stream)
        mr_stream_synchronize(t->stream);
    for (struct mr_buffer *b = t->all, *next; b; b = next) {
        next = b->next_all;
        destroy(a, b);
    }
    mr_stream_destroy(t->stream);
}

static int create(struct mr_attached *a, struct mr_buffer **out)
{
    struct mr_buffer *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem(a->text, sizeof *b);
    int rc = mr_event_create(a->device, 0, &b->copied);
    if (rc == 0)
        rc = mr_event_create(a->device, 0, &b->released);
    if (rc < 0) {
        destroy(a, b);
        return rc;
    }
    b->next_all = a->transfer.all;
    a->transfer.all = b;
    a->transfer.n++;
    *out = b;
    return 0;
}

/* A new one while that keeps copies from waiting for the program's work. */
static int take(struct mr_attached *a, struct mr_buffer **out)
{
    struct mr_transfer *t = &a->transfer;
    struct mr_buffer *b = t->first;
    if (!b || (t->n <= a->prefetch && mr_event_query(b->released) == 0))
        return create(a, out);
    t->first = b->next;
    if (!t->first)
        t->last = NULL;
    *out = b;
    return 0;
}

static void give(struct mr_transfer *t, struct mr_buffer *b)
{
    b->next = NULL;
    if (t->last)
        t->last->next = b;
    else
        t->first = b;
    t->last = b;
}

static int resize(const struct mr_attached *a, struct mr_buffer *b, uint64_t bytes)
{
    if (b->bytes >= bytes)
        return 0;
    mr_memory_release(a->device, MR_DEVICE, b->data, b->released);
    b->data = NULL;
    b->bytes = 0;
    int rc = mr_memory_acquire(a->device, MR_DEVICE, bytes, &b->data);
    if (rc == 0)
        b->bytes = bytes;
    return rc;
}

static int enqueue(const struct mr_attached *a, const struct mr_item *item, struct mr_buffer *b)
{
    uint64_t first = item->note->first / ALIGN * ALIGN;
    uint64_t bytes = item->note->end - first;
    int rc = resize(a, b, bytes);
    if (rc < 0)
        return rc;
    rc = mr_stream_wait(a->transfer.stream, b->released);
    if (rc < 0)
        return rc;
    rc = mr_copy_async(a->transfer.stream, b->data, MR_DEVICE, item->host + first,
                       a->pageable ? MR_PAGEABLE : MR_PINNED, bytes);
    return rc < 0 ? rc : mr_event_record(b->copied, a->transfer.stream);
}

int mr_transfer_copy(struct mr_attached *a, struct mr_item *item)
{
    struct mr_buffer *b = NULL;
    int rc = take(a, &b);
    if (rc < 0)
        return rc;
    rc = enqueue(a, item, b);
    if (rc < 0)
        give(&a->transfer, b);
    else
        item->buffer = b;
    return rc;
}

int mr_transfer_hand_out(const struct mr_item *item, struct mr_stream *stream)
{
    if (stream)
        return mr_stream_wait(stream, item->buffer->copied);
    return mr_event_synchronize(item->buffer->copied);
}

int mr_transfer_release(const struct mr_item *item, struct mr_stream *stream)
{
    return stream ? mr_event_record(item->buffer->released, stream) : 0;
}

/* A copy that failed has passed, too: the program's next wait reports it. */
bool mr_transfer_is_copied(const struct mr_item *item, bool waits)
{
    struct mr_event *last = item->host_read ? item->buffer->released : item->buffer->copied;
    if (waits)
        mr_event_synchronize(last);
    return waits || mr_event_query(last) != 0;
}

void mr_transfer_give(struct mr_attached *a, struct mr_item *item)
{
    if (item->buffer)
        give(&a->transfer, item->buffer);
    item->buffer = NULL;
}
