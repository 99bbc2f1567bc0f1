/* Launches that are queued ahead of a device. */
#include "recording/queue.h"

#define DEPTHS 65536 /* deeper queues count as that deep for the median: CUDA's hold some 1,000 */

static const struct mr_rec_op *op_of(const struct mr_look *look, uint32_t i)
{
    return &look->rec->ops[look->ops[i]];
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

static void add_depth(struct mr_queue *queue, uint64_t depth, uint32_t *count)
{
    queue->min = queue->n == 0 ? depth : MR_MIN(queue->min, depth);
    queue->max = MR_MAX(queue->max, depth);
    queue->n++;
    count[MR_MIN(depth, (uint64_t)DEPTHS - 1)]++;
}

/* Of those that were counted, which are 0 again afterwards. */
static void find_median(struct mr_queue *queue, uint32_t *count)
{
    uint64_t before = 0, most = MR_MIN(queue->max, (uint64_t)DEPTHS - 1);
    queue->n_empty = count[0];
    for (uint64_t depth = 0; depth <= most; depth++) {
        if (before <= queue->n / 2 && queue->n / 2 < before + count[depth])
            queue->median = depth;
        before += count[depth];
        count[depth] = 0;
    }
}

/* count: of depths, 0 before and after. */
static void measure(const struct mr_look *look, const uint32_t *list, uint64_t n, uint32_t *count,
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
            add_depth(out, unfinished(look, list, k, api->start_ns, &low), count);
    }
    find_median(out, count);
}

static int measure_all(const struct mr_look *look, const struct mr_streams *streams,
                       uint32_t *count, struct mr_queue *queues, struct mr_intervals *all)
{
    for (uint32_t s = 0; s < streams->n; s++) {
        struct mr_intervals own = {0}, in = {0};
        uint64_t first = streams->first[s];
        measure(look, streams->list + first, streams->first[s + 1] - first, count, &queues[s],
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
    uint32_t *count = calloc(DEPTHS, sizeof *count);
    int rc = queues && count ? 0 : mr_error_nomem("a queue", DEPTHS * sizeof *count);
    rc = rc ? rc : measure_all(look, streams, count, queues, waiting);
    free(count);
    if (rc) {
        mr_intervals_free(waiting);
        free(queues);
        return rc;
    }
    *out = queues;
    return 0;
}
