/* Null files: reads that deliver nothing and end after their file's delay. */
#include "storage/private.h"

#include <errno.h>
#include <time.h>

/* Reads with the same delay end in the order in which they began, so each delay in the table has a
 * list. */
struct delayed {
    uint64_t delay_ns;
    struct mr_read_list reads;
};

struct null_queue {
    struct delayed *delayed;
    uint32_t n;
};

static struct delayed *delayed_of(struct null_queue *null, uint64_t delay_ns)
{
    for (uint32_t i = 0; i < null->n; i++)
        if (null->delayed[i].delay_ns == delay_ns)
            return &null->delayed[i];
    return NULL;
}

static int null_queue_open(struct mr_read_queue *queue)
{
    struct null_queue *null = queue->state;
    struct mr_files_kinds kinds;
    mr_files_count(queue->files, &kinds);
    null->delayed = calloc(kinds.n_null, sizeof *null->delayed);
    if (!null->delayed)
        return mr_error_nomem("null files", kinds.n_null * sizeof *null->delayed);
    for (int i = 0; i < queue->files->n; i++) {
        const struct mr_file *f = queue->files->file[i];
        if (f->kind == MR_FILE_NULL && !delayed_of(null, f->delay_ns))
            null->delayed[null->n++].delay_ns = f->delay_ns;
    }
    return 0;
}

static void null_queue_close(struct mr_read_queue *queue)
{
    struct null_queue *null = queue->state;
    free(null->delayed);
}

static bool null_start(struct mr_read_queue *queue, struct mr_file *f, struct mr_read *read)
{
    read->done = read->want;
    if (!f->delay_ns)
        return true;
    struct delayed *delayed = delayed_of(queue->state, f->delay_ns);
    if (!mr_add(read->submit_ns, f->delay_ns, &read->due_ns))
        read->due_ns = UINT64_MAX;
    mr_read_append(&delayed->reads, read);
    return false;
}

static uint64_t null_next_ns(const struct mr_read_queue *queue)
{
    const struct null_queue *null = queue->state;
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < null->n; i++)
        if (null->delayed[i].reads.first)
            next = MR_MIN(next, null->delayed[i].reads.first->due_ns);
    return next;
}

static uint32_t take_due(struct null_queue *null, struct mr_read **out, uint32_t cap)
{
    uint64_t now = mr_time_ns();
    uint32_t n = 0;
    for (uint32_t i = 0; i < null->n; i++) {
        struct mr_read_list *reads = &null->delayed[i].reads;
        while (n < cap && reads->first && reads->first->due_ns <= now)
            n += mr_read_take(reads, out + n, 1);
    }
    return n;
}

static uint32_t null_reap(struct mr_read_queue *queue, struct mr_read **out, uint32_t cap,
                          uint64_t until_ns)
{
    uint32_t n = take_due(queue->state, out, cap);
    if (n || !until_ns)
        return n;
    uint64_t until = MR_MIN(until_ns, null_next_ns(queue));
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                          .tv_nsec = (long)(until % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
    return take_due(queue->state, out, cap);
}

static void null_cancel(struct mr_read_queue *queue)
{
    struct null_queue *null = queue->state;
    for (uint32_t i = 0; i < null->n; i++)
        for (struct mr_read *read = null->delayed[i].reads.first; read; read = read->next)
            read->due_ns = 0;
}

const struct mr_storage_ops mr_storage_null = {
    .name = "null",
    .serves = MR_FILE_NULL,
    .kind = MR_STORAGE_AUTO,
    .queue_size = sizeof(struct null_queue),
    .queue_open = null_queue_open,
    .queue_close = null_queue_close,
    .start = null_start,
    .reap = null_reap,
    .next_ns = null_next_ns,
    .cancel = null_cancel,
};
