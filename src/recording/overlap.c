/*
 * The report overlap: how much of the copies ran under compute, and why the others did not.
 *
 * A copy is overlapped when at least 90% of its time lies under compute. Any other has exactly one
 * reason, the first of:
 *   pageable      one end is pageable memory: the driver stages it, and the call blocks
 *   synchronized  its call blocks by itself (no "Async" in its name), or the same thread's next
 *                 call that is no query waits
 *                 (stream, device, event), begins before the copy has ended and returns before
 *                 anything else ends
 *   same stream   kernels run on the copy's stream: it orders them
 *   engine busy   a copy of the same direction ran until (at most 20 us before) it began, though it
 *                 was issued earlier
 *   dependency    a kernel was launched before the copy ended and began only after it: it waited
 *                 for the copy
 *   nothing else  no kernel was queued that could have run meanwhile
 */
#include "recording/overlap.h"
#include "recording/big.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define OVERLAPPED 0.9
#define NEAR_NS    20000

const char *mr_overlap_text(enum mr_overlap_reason reason)
{
    static const char *const text[] = {
        "overlapped",
        "pageable memory",
        "synchronizing call directly after",
        "on a stream that runs kernels",
        "engine busy with the same direction",
        "dependency: kernels waited for it",
        "nothing else was queued",
    };
    return text[reason];
}

static const struct mr_rec_api *call_of(const struct mr_recording *rec, const struct mr_rec_op *op)
{
    return op->api < rec->n_apis ? &rec->apis[op->api] : NULL;
}

bool mr_call_named_async(const struct mr_recording *rec, const struct mr_rec_api *api)
{
    const char *name = api->name < rec->n_strings ? rec->strings[api->name] : "";
    return strstr(name, "Async") != NULL;
}

/* The next call of a thread that is no query and not inside the given one. */
static const struct mr_rec_api *next_call(const struct mr_look *look, const struct mr_rec_api *api)
{
    for (uint32_t l = 0; l < look->n_logs; l++) {
        const struct mr_thread_log *log = &look->logs[l];
        if (log->thread != api->thread)
            continue;
        uint64_t low = 0, high = log->n_doings;
        while (low < high) {
            uint64_t mid = low + (high - low) / 2;
            if (log->doing[mid].start_ns >= api->end_ns)
                high = mid;
            else
                low = mid + 1;
        }
        for (; low < log->n_doings; low++)
            if (log->doing[low].what == MR_DOING_API && log->doing[low].class != MR_CALL_QUERY)
                return &look->rec->apis[log->doing[low].index];
    }
    return NULL;
}

/* Something else ended after the copy and before the call did, which then waited for that: kernels
 * of another stream. Of the 64 operations that began last. */
static bool waited_longer(const struct mr_look *look, const struct mr_rec_op *copy,
                          const struct mr_rec_api *sync)
{
    uint64_t at = mr_look_op_from(look, sync->end_ns);
    for (uint64_t i = at; i-- > 0 && at - i <= 64;) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->end_ns > copy->end_ns && op->end_ns <= sync->end_ns)
            return true;
    }
    return false;
}

const struct mr_rec_api *mr_sync_after(const struct mr_look *look, const struct mr_rec_op *copy)
{
    const struct mr_rec_api *api = call_of(look->rec, copy),
                            *next = api ? next_call(look, api) : NULL;
    if (!next || next->class != MR_CALL_SYNC || next->start_ns >= copy->end_ns ||
        next->end_ns < copy->end_ns)
        return NULL;
    return waited_longer(look, copy, next) ? NULL : next;
}

static bool synchronized(const struct mr_look *look, const struct mr_rec_op *copy)
{
    const struct mr_rec_api *api = call_of(look->rec, copy);
    if (api && api->class == MR_CALL_COPY && !mr_call_named_async(look->rec, api) &&
        copy->graph_node == 0)
        return true;
    return mr_sync_after(look, copy) != NULL;
}

/* ---- streams that run kernels ---- */

static uint64_t stream_key(const struct mr_rec_op *op)
{
    return (uint64_t)op->context << 32 | op->stream;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Kernels by which millrace's loader ends its transforms: they follow their copies on the copies'
 * own stream. */
static bool loaders_own(const struct mr_recording *rec, const struct mr_rec_op *op)
{
    static const char *const parts[] = {"mr_pointwise", "mr_one_hot", "mr_gather", "mr_resample"};
    const char *name =
        op->name < rec->n_strings && rec->strings[op->name] ? rec->strings[op->name] : "";
    for (size_t i = 0; i < MR_COUNT(parts); i++)
        if (strncmp(name, parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}

int mr_kernel_streams_make(const struct mr_look *look, struct mr_kernel_streams *out)
{
    uint64_t n = 0, last = 0;
    uint64_t *key = mr_big_alloc("streams", look->n_ops + 1, sizeof *key);
    if (!key)
        return -ENOMEM;
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->kind == MR_OP_KERNEL && (n == 0 || stream_key(op) != last) &&
            !loaders_own(look->rec, op))
            key[n++] = last = stream_key(op);
    }
    mr_big_sort(key, n, sizeof *key, by_number);
    for (uint64_t i = 0; i < n; i++)
        if (out->n == 0 || key[i] != key[out->n - 1])
            key[out->n++] = key[i];
    out->key = key;
    return 0;
}

bool mr_kernel_streams_has(const struct mr_kernel_streams *streams, const struct mr_rec_op *op)
{
    uint64_t key = stream_key(op);
    return streams->n > 0 && bsearch(&key, streams->key, streams->n, sizeof key, by_number) != NULL;
}

/* ---- reasons ---- */

/* Copies of one direction run one after the other: the one before ended last. At most 64 operations
 * back. */
static bool engine_busy(const struct mr_look *look, uint64_t at)
{
    const struct mr_rec_op *copy = &look->rec->ops[look->ops[at]];
    const struct mr_rec_api *api = call_of(look->rec, copy);
    for (uint64_t i = at, seen = 0; i-- > 0 && seen < 64; seen++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->kind != MR_OP_COPY || op->copy_kind != copy->copy_kind ||
            stream_key(op) == stream_key(copy))
            continue;
        return op->end_ns + NEAR_NS >= copy->start_ns && api && api->end_ns < op->end_ns;
    }
    return false;
}

/* A kernel that was launched before the copy's end and began after it. Of the next 64
 * operations. */
static bool waited_for(const struct mr_look *look, const struct mr_rec_op *copy)
{
    uint64_t at = mr_look_op_from(look, copy->end_ns);
    for (uint64_t i = at; i < look->n_ops && i < at + 64; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        const struct mr_rec_api *api = call_of(look->rec, op);
        if (op->kind == MR_OP_KERNEL && api)
            return api->start_ns < copy->end_ns;
    }
    return false;
}

enum mr_overlap_reason mr_overlap_why(const struct mr_look *look,
                                      const struct mr_kernel_streams *streams, uint64_t at)
{
    const struct mr_rec_op *copy = &look->rec->ops[look->ops[at]];
    uint64_t ns = copy->end_ns - copy->start_ns;
    if ((double)mr_intervals_within(&look->compute, copy->start_ns, copy->end_ns) >=
        OVERLAPPED * (double)ns)
        return MR_OVERLAPPED;
    if (copy->src == MR_MEM_PAGEABLE || copy->dst == MR_MEM_PAGEABLE)
        return MR_OVERLAP_PAGEABLE;
    if (synchronized(look, copy))
        return MR_OVERLAP_SYNCHRONIZED;
    if (mr_kernel_streams_has(streams, copy))
        return MR_OVERLAP_SAME_STREAM;
    if (engine_busy(look, at))
        return MR_OVERLAP_ENGINE;
    return waited_for(look, copy) ? MR_OVERLAP_DEPENDENCY : MR_OVERLAP_NOTHING;
}
