/* What was given to a device in a span of time, by sums over the calls that gave it. */
#include "recording/big.h"
#include "recording/look.h"

#include <errno.h>

static int by_time(const void *a, const void *b)
{
    const struct mr_work_sum *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

int mr_work_read(const struct mr_recording *rec, const struct mr_place *place, const uint32_t *ops,
                 uint64_t n_ops, struct mr_work *out)
{
    struct mr_work_sum sum = {.at_ns = UINT64_MAX},
                       *at = mr_big_alloc("the device's work", n_ops + 1, sizeof *at);
    if (!at)
        return -ENOMEM;
    for (uint64_t i = 0; i < n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[ops[i]];
        bool counts = place->n_kernels == 0 || op->kind == MR_OP_KERNEL;
        at[i] = (struct mr_work_sum){
            .at_ns = op->api < rec->n_apis ? rec->apis[op->api].start_ns : op->start_ns,
            .busy_ns = op->end_ns - op->start_ns,
            .n = counts,
            .hash = counts ? mr_mix64((uint64_t)op->name << 16 | (uint64_t)op->kind << 8 |
                                      op->copy_kind)
                           : 0,
        };
    }
    mr_big_sort(at, n_ops, sizeof *at, by_time);
    for (uint64_t i = 0; i < n_ops; i++) {
        struct mr_work_sum own = at[i];
        at[i] = sum;
        at[i].at_ns = own.at_ns;
        sum.busy_ns += own.busy_ns;
        sum.n += own.n;
        sum.hash += own.hash;
    }
    at[n_ops] = sum;
    *out = (struct mr_work){at, n_ops};
    return 0;
}

static const struct mr_work_sum *before(const struct mr_work *work, uint64_t time_ns)
{
    uint64_t low = 0, high = work->n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (work->at[mid].at_ns >= time_ns)
            high = mid;
        else
            low = mid + 1;
    }
    return &work->at[low];
}

struct mr_work_sum mr_work_between(const struct mr_work *work, uint64_t from_ns, uint64_t to_ns)
{
    const struct mr_work_sum *from = before(work, from_ns),
                             *to = before(work, MR_MAX(from_ns, to_ns));
    return (struct mr_work_sum){from_ns, to->busy_ns - from->busy_ns, to->n - from->n,
                                to->hash - from->hash};
}
