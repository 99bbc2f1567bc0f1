/* Launches that are queued ahead of a device. */
#include "recording/queue.h"

static const struct mr_rec_op *op_of(const struct mr_look *look, uint32_t i)
{
    return &look->rec->ops[look->ops[i]];
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Of the stream's first k operations those that are not finished at a time: they end in order. low:
 * the first of these, from the last call, which is near. */
static uint64_t unfinished(const struct mr_look *look, const uint32_t *list, uint64_t k,
                           uint64_t time_ns, uint64_t *low)
{
    while (*low < k && op_of(look, list[*low])->end_ns <= time_ns)
        ++*low;
    while (*low > 0 && op_of(look, list[*low - 1])->end_ns > time_ns)
        --*low;
    return k - MR_MIN(*low, k);
}

/* Waits follow each other: most of them only lengthen the last. */
static void add_wait(struct mr_intervals *list, uint64_t start_ns, uint64_t end_ns)
{
    struct mr_interval *last = list->n > 0 ? &list->at[list->n - 1] : NULL;
    if (last && start_ns < end_ns && start_ns >= last->start_ns && start_ns <= last->end_ns)
        last->end_ns = MR_MAX(last->end_ns, end_ns);
    else
        mr_intervals_add(list, start_ns, end_ns);
}

static bool is_in(const struct mr_look *look, uint64_t time_ns)
{
    size_t i = mr_intervals_find(&look->in, time_ns);
    return i < look->in.n && look->in.at[i].start_ns <= time_ns;
}

/* depth: room for n. */
static void measure(const struct mr_look *look, const uint32_t *list, uint64_t n, uint32_t *depth,
                    struct mr_queue *out, struct mr_intervals *waiting)
{
    const struct mr_recording *rec = look->rec;
    uint64_t low = 0;
    for (uint64_t k = 0; k < n; k++) {
        const struct mr_rec_op *op = op_of(look, list[k]),
                               *before = k > 0 ? op_of(look, list[k - 1]) : NULL;
        if (op->api >= rec->n_apis ||
            (before && before->api == op->api)) /* a graph's: one launch */
            continue;
        const struct mr_rec_api *api = &rec->apis[op->api];
        if (before)
            add_wait(waiting, api->end_ns, MR_MIN(op->start_ns, before->end_ns));
        if (is_in(look, api->start_ns))
            depth[out->n++] = (uint32_t)unfinished(look, list, k, api->start_ns, &low);
    }
    if (out->n == 0)
        return;
    qsort(depth, out->n, sizeof *depth, by_number);
    out->min = depth[0];
    out->median = depth[out->n / 2];
    out->max = depth[out->n - 1];
    while (out->n_empty < out->n && depth[out->n_empty] == 0)
        out->n_empty++;
}

static int measure_all(const struct mr_look *look, const struct mr_streams *streams,
                       uint32_t *depth, struct mr_queue *queues, struct mr_intervals *all)
{
    for (uint32_t s = 0; s < streams->n; s++) {
        struct mr_intervals own = {0}, in = {0};
        uint64_t first = streams->first[s];
        measure(look, streams->list + first, streams->first[s + 1] - first, depth, &queues[s],
                &own);
        mr_intervals_unite(&own);
        mr_intervals_and(&own, &look->in, &in);
        queues[s].waiting_ns = mr_intervals_measure(&in);
        for (size_t i = 0; i < in.n; i++)
            mr_intervals_add(all, in.at[i].start_ns, in.at[i].end_ns);
        all->lost |= in.lost;
        mr_intervals_free(&own);
        mr_intervals_free(&in);
    }
    mr_intervals_unite(all);
    return all->lost ? mr_error_nomem("a queue", look->n_ops * sizeof(struct mr_interval)) : 0;
}

int mr_queues_find(const struct mr_look *look, const struct mr_streams *streams,
                   struct mr_queue **out, struct mr_intervals *waiting)
{
    struct mr_queue *queues = calloc((size_t)streams->n + 1, sizeof *queues);
    uint32_t *depth = malloc((look->n_ops + 1) * sizeof *depth);
    int rc = queues && depth ? 0 : mr_error_nomem("a queue", look->n_ops * sizeof *depth);
    rc = rc ? rc : measure_all(look, streams, depth, queues, waiting);
    free(depth);
    if (rc) {
        mr_intervals_free(waiting);
        free(queues);
        return rc;
    }
    *out = queues;
    return 0;
}
