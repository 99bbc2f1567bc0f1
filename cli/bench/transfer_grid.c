/* The grid of bench transfer: which memory, which ways, in which directions. */
#include "bench/bench.h"
#include "bench/transfer_work.h"

#include <string.h>

static bool wanted(const struct transfer *t, enum transfer_direction direction)
{
    const char *list = t->o->directions, *name = transfer_directions[direction];
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == 0))
            return true;
    return list == NULL;
}

static const unsigned char host_ways[TRANSFER_N_MEMORY] = {
    /* bits: 1 << way */
    [TRANSFER_PAGEABLE] = 1 << TRANSFER_ASYNC | 1 << TRANSFER_BLOCKING,
    [TRANSFER_PINNED] = 1 << TRANSFER_ASYNC | 1 << TRANSFER_BLOCKING | 1 << TRANSFER_BATCH |
                        1 << TRANSFER_GRAPH | 1 << TRANSFER_KERNEL,
    [TRANSFER_COMBINED] = 1 << TRANSFER_ASYNC,
    [TRANSFER_REGISTERED] = 1 << TRANSFER_ASYNC,
    [TRANSFER_HUGE] = 1 << TRANSFER_ASYNC,
};

static bool has_series(enum transfer_direction d, enum transfer_memory m, int way)
{
    if (d == TRANSFER_PEER)
        return m == TRANSFER_DEVICE && way == TRANSFER_ASYNC;
    if (d == TRANSFER_D2D)
        return m == TRANSFER_DEVICE && way != TRANSFER_BLOCKING;
    if (m == TRANSFER_DEVICE)
        return false;
    if (d == TRANSFER_BOTH)
        return m == TRANSFER_PINNED && (way == TRANSFER_ASYNC || way == TRANSFER_BATCH);
    return host_ways[m] >> way & 1;
}

static int measure_memory(struct transfer *t, enum transfer_memory m, struct transfer_result *out)
{
    int rc = 0;
    for (int d = 0; d < TRANSFER_N_DIRECTIONS; d++) {
        for (int way = 0; way < TRANSFER_N_WAYS && rc == 0; way++) {
            if (!has_series(d, m, way) || !wanted(t, d) || (d == TRANSFER_PEER && !t->peer_dev) ||
                out->n_series == TRANSFER_MAX_SERIES)
                continue;
            struct transfer_series *s = &out->series[out->n_series++];
            s->direction = (enum transfer_direction)d;
            s->memory = m;
            s->way = (enum transfer_way)way;
            rc = transfer_series_measure(t, &out->before, s);
            out->n_series -= rc < 0 && s->n == 0;
        }
        if (rc == 0 && m == TRANSFER_PINNED && d <= TRANSFER_BOTH)
            rc = mr_device_query(t->dev, &out->after);
    }
    return rc;
}

int transfer_fill(struct transfer *t, struct mr_stream *stream, const struct transfer_block *b,
                  uint32_t seed)
{
    int rc = 0;
    for (uint64_t at = 0; at < b->bytes && rc == 0; at += CHECK_BYTES) {
        uint64_t n = b->bytes - at < CHECK_BYTES ? b->bytes - at : CHECK_BYTES;
        transfer_pattern(t->check, at, n, seed);
        rc = bench_go_on();
        if (rc == 0)
            rc = mr_copy_async(stream, b->ptr + at, MR_DEVICE, t->check, MR_PINNED, n);
        if (rc == 0)
            rc = mr_stream_synchronize(stream);
    }
    return rc;
}

static int open_all(struct transfer *t, uint64_t bytes)
{
    void *check = NULL;
    int rc = latch_create(&t->latch, t->dev);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = mr_stream_create(t->dev, i ? "d2h" : "h2d", &t->stream[i]);
        if (rc == 0)
            rc = mr_event_create(t->dev, 1, &t->start[i]);
        if (rc == 0)
            rc = mr_event_create(t->dev, 1, &t->end[i]);
        if (rc == 0)
            rc = transfer_block_make(&t->device[i], t->dev, TRANSFER_DEVICE, bytes);
    }
    if (rc == 0)
        rc = mr_memory_acquire(t->dev, MR_PINNED, CHECK_BYTES, &check);
    t->check = check;
    return rc == 0 ? transfer_fill(t, t->stream[0], &t->device[1], 2) : rc;
}

static void close_all(struct transfer *t)
{
    transfer_peer_close(t);
    for (int i = 0; i < 2; i++) {
        mr_stream_destroy(t->stream[i]);
        mr_event_destroy(t->start[i]);
        mr_event_destroy(t->end[i]);
        transfer_block_drop(&t->device[i]);
    }
    if (t->check)
        mr_memory_release(t->dev, MR_PINNED, t->check, NULL);
    latch_destroy(&t->latch);
}

void transfer_leave_out(struct transfer_result *out, const char *what, const char *why)
{
    size_t used = strlen(out->left_out);
    snprintf(out->left_out + used, sizeof out->left_out - used, "%s%s: %s", used ? "; " : "", what,
             why);
}

static int fill_host(const struct transfer_block *b)
{
    int rc = 0;
    for (uint64_t at = 0; at < b->bytes && rc == 0; at += FILL_BYTES) {
        uint64_t n = b->bytes - at < FILL_BYTES ? b->bytes - at : FILL_BYTES;
        transfer_pattern(b->ptr + at, at, n, 1);
        rc = bench_go_on();
    }
    return rc;
}

/* Memory that this device or system does not give is left out. */
static int measure_host(struct transfer *t, enum transfer_memory m, uint64_t bytes,
                        struct transfer_result *out)
{
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = transfer_block_make(&t->host[i], t->dev, m, bytes);
    if (rc == 0) {
        rc = fill_host(&t->host[0]);
        if (rc == 0)
            rc = measure_memory(t, m, out);
    } else if (rc == MR_EUNSUPPORTED || rc == MR_ELIMIT) {
        transfer_leave_out(out, transfer_memories[m], mr_last_error());
        rc = 0;
    }
    for (int i = 0; i < 2; i++)
        transfer_block_drop(&t->host[i]);
    return rc;
}

int transfer_measure(struct mr_device *dev, const struct transfer_opts *o,
                     struct transfer_result *out)
{
    struct transfer t = {.dev = dev, .o = o};
    uint64_t batch = BATCH * (o->max_bytes < BATCH_MAX_BYTES ? o->max_bytes : BATCH_MAX_BYTES);
    uint64_t bytes = o->max_bytes > batch ? o->max_bytes : batch;
    out->before.size = sizeof out->before;
    int rc = mr_device_query(dev, &out->before);
    out->after = out->before;
    if (rc == 0)
        rc = open_all(&t, bytes);
    if (rc == 0 && wanted(&t, TRANSFER_PEER))
        rc = transfer_peer_open(&t, bytes, out);
    for (int m = 0; m < TRANSFER_N_MEMORY && rc == 0; m++)
        rc = measure_host(&t, (enum transfer_memory)m, bytes, out);
    if (rc == 0)
        rc = measure_memory(&t, TRANSFER_DEVICE, out);
    close_all(&t);
    out->interrupted = rc == MR_ECANCELLED && cli_interrupted() && out->n_series > 0;
    return out->interrupted ? 0 : rc;
}
