/* Null files: reads that deliver nothing, each due its file's delay after it was submitted. */
#include "storage/private.h"

#include <errno.h>
#include <time.h>

/* Reads of one delay end in the order in which they began: a plain list each, one for every delay in the table. */
struct line {
    uint64_t delay_ns;
    struct mr_read_list reads;
};

struct lane {
    struct line *line;
    uint32_t n;
};

static struct line *line_of(struct lane *l, uint64_t delay_ns)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->line[i].delay_ns == delay_ns)
            return &l->line[i];
    return NULL;
}

static int null_lane_open(struct mr_lane *lane)
{
    struct lane *l = lane->state;
    struct mr_files_kinds kinds;
    mr_files_count(lane->files, &kinds);
    l->line = calloc(kinds.n_null, sizeof *l->line);
    if (!l->line)
        return mr_error_nomem("null files", kinds.n_null * sizeof *l->line);
    for (int i = 0; i < lane->files->n; i++) {
        const struct mr_file *f = lane->files->file[i];
        if (f->kind == MR_FILE_NULL && !line_of(l, f->delay_ns))
            l->line[l->n++].delay_ns = f->delay_ns;
    }
    return 0;
}

static void null_lane_close(struct mr_lane *lane)
{
    struct lane *l = lane->state;
    free(l->line);
}

static bool null_start(struct mr_lane *lane, struct mr_file *f, struct mr_read *read)
{
    read->done = read->want;
    if (!f->delay_ns)
        return true;
    struct line *line = line_of(lane->state, f->delay_ns);
    if (!mr_add(read->submit_ns, f->delay_ns, &read->due_ns))
        read->due_ns = UINT64_MAX;
    mr_read_append(&line->reads, read);
    return false;
}

static uint64_t null_next_ns(const struct mr_lane *lane)
{
    const struct lane *l = lane->state;
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->line[i].reads.first)
            next = MR_MIN(next, l->line[i].reads.first->due_ns);
    return next;
}

static uint32_t take_due(struct lane *l, struct mr_read **out, uint32_t cap)
{
    uint64_t now = mr_time_ns();
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        struct mr_read_list *reads = &l->line[i].reads;
        while (n < cap && reads->first && reads->first->due_ns <= now)
            n += mr_read_take(reads, out + n, 1);
    }
    return n;
}

static uint32_t null_reap(struct mr_lane *lane, struct mr_read **out, uint32_t cap,
                          uint64_t until_ns)
{
    uint32_t n = take_due(lane->state, out, cap);
    if (n || !until_ns)
        return n;
    uint64_t until = MR_MIN(until_ns, null_next_ns(lane));
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                          .tv_nsec = (long)(until % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
    return take_due(lane->state, out, cap);
}

static void null_cancel(struct mr_lane *lane)
{
    struct lane *l = lane->state;
    for (uint32_t i = 0; i < l->n; i++)
        for (struct mr_read *read = l->line[i].reads.first; read; read = read->next)
            read->due_ns = 0;
}

const struct mr_storage_ops mr_storage_null = {
    .name = "null",
    .serves = MR_FILE_NULL,
    .kind = MR_STORAGE_AUTO,
    .lane_size = sizeof(struct lane),
    .lane_open = null_lane_open,
    .lane_close = null_lane_close,
    .start = null_start,
    .reap = null_reap,
    .next_ns = null_next_ns,
    .cancel = null_cancel,
};
