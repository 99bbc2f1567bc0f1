/* CUPTI's buffers: given out zeroed, taken back full, emptied on a thread of ours and zeroed
 * again. */
#include "recorder/cupti/cupti.h"

#include <string.h>

#define BUFFER      (4u << 20) /* one a thread that calls CUDA */
#define HEAD        4096u
#define MAX_BUFFERS 256u
#define READY       4u /* waiting to be asked for */

struct buffer { /* HEAD bytes before what CUPTI sees */
    struct buffer *next;
    size_t valid;
};

static struct {
    struct record_lock lock;
    struct buffer *ready, *full, **full_end;
    uint32_t n, n_ready;
    unsigned generation; /* a forked child has neither CUDA nor our thread */
} buffers = {.full_end = &buffers.full};

static struct buffer *create(void)
{
    return record_map(HEAD + BUFFER);
}

static struct buffer *pop(void)
{
    struct buffer *buffer = NULL;
    record_lock(&buffers.lock);
    if (buffers.ready) {
        buffer = buffers.ready;
        buffers.ready = buffer->next;
        buffers.n_ready--;
    } else if (buffers.n < MAX_BUFFERS) {
        buffer = create();
        buffers.n += buffer != NULL;
    }
    record_unlock(&buffers.lock);
    return buffer;
}

static void push(struct buffer *buffer)
{
    record_lock(&buffers.lock);
    buffer->next = buffers.ready;
    buffers.ready = buffer;
    buffers.n_ready++;
    record_unlock(&buffers.lock);
}

void record_cupti_request(uint8_t **out, size_t *bytes, size_t *max_records)
{
    struct buffer *buffer = buffers.generation == record_generation() ? pop() : NULL;
    *out = buffer ? (uint8_t *)buffer + HEAD : NULL;
    *bytes = buffer ? BUFFER : 0;
    *max_records = 0;
}

void record_cupti_complete(void *context, uint32_t stream, uint8_t *data, size_t bytes,
                           size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    if (!data || buffers.generation != record_generation())
        return;
    struct buffer *buffer = (struct buffer *)(void *)(data - HEAD);
    buffer->next = NULL;
    buffer->valid = valid;
    record_lock(&buffers.lock);
    *buffers.full_end = buffer;
    buffers.full_end = &buffer->next;
    record_unlock(&buffers.lock);
}

void record_cupti_buffers_begin(void)
{
    buffers.generation = record_generation();
}

/* Touched here, so that the program's threads find no page missing. */
void record_cupti_buffers_prepare(void)
{
    for (;;) {
        record_lock(&buffers.lock);
        bool enough = buffers.n_ready >= READY || buffers.n >= MAX_BUFFERS;
        buffers.n += !enough;
        record_unlock(&buffers.lock);
        if (enough)
            return;
        struct buffer *buffer = create();
        if (!buffer) {
            record_lock(&buffers.lock);
            buffers.n--;
            record_unlock(&buffers.lock);
            return;
        }
        memset(buffer, 0, HEAD + BUFFER);
        push(buffer);
    }
}

bool record_cupti_buffers_convert(void)
{
    record_lock(&buffers.lock);
    struct buffer *buffer = buffers.full;
    buffers.full = NULL;
    buffers.full_end = &buffers.full;
    record_unlock(&buffers.lock);
    bool any = buffer != NULL;
    while (buffer) {
        struct buffer *next = buffer->next;
        record_cupti_convert((uint8_t *)buffer + HEAD, buffer->valid);
        memset((uint8_t *)buffer + HEAD, 0, buffer->valid);
        push(buffer);
        buffer = next;
    }
    if (any)
        record_cupti_convert_flush(false);
    return any;
}
