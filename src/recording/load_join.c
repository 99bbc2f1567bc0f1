/* Loading: what follows from all events together: their order, which call made what, which range is
 * inside which. */
#include "recording/big.h"
#include "recording/load.h"

#include <errno.h>
#include <string.h>

struct sort_key {
    uint64_t first, second;
    uint32_t index;
};

static int by_key(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->second != y->second)
        return x->second < y->second ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Puts items where the keys say they belong. By way of a copy, which is read and written in
 * streams, as runs are: along the cycles of the permutation each item would be a miss of the
 * cache. */
static int permute(struct mr_load *load, char *items, size_t bytes, const struct sort_key *keys,
                   uint64_t n)
{
    char *copy = mr_big_alloc(load->recording->path, n, bytes);
    if (!copy)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        memcpy(copy + i * bytes, items + keys[i].index * bytes, bytes);
    memcpy(items, copy, n * bytes);
    mr_big_free(copy);
    return 0;
}

/* Sorts by start; then, where outer_first, longer ones first. Every item begins with start and
 * end. */
static int sort_events(struct mr_load *load, void *items, uint64_t n, size_t bytes,
                       bool outer_first)
{
    uint64_t last[2] = {0, UINT64_MAX}, now[2];
    bool sorted = true;
    for (uint64_t i = 0; i < n && sorted; i++, last[0] = now[0], last[1] = now[1]) {
        memcpy(now, (char *)items + i * bytes, sizeof(now));
        sorted = now[0] > last[0] || (now[0] == last[0] && (!outer_first || now[1] <= last[1]));
    }
    if (sorted || n == 0)
        return 0;
    /* most come in few runs, one for each table and process that they are of */
    struct sort_key *keys = mr_big_alloc(load->recording->path, n, sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(now, (char *)items + i * bytes, sizeof(now));
        keys[i] = (struct sort_key){now[0], outer_first ? ~now[1] : 0, (uint32_t)i};
    }
    mr_big_sort(keys, n, sizeof(*keys), by_key);
    int rc = permute(load, items, bytes, keys, n);
    mr_big_free(keys);
    return rc;
}

static int sort_all(struct mr_load *load)
{
    const struct mr_recording *r = load->recording;
    const struct {
        void *items;
        uint64_t n;
        size_t bytes;
        bool outer_first;
    } all[] = {
        {r->apis, r->n_apis, sizeof(*r->apis), false},
        {r->ops, r->n_ops, sizeof(*r->ops), false},
        {r->syncs, r->n_syncs, sizeof(*r->syncs), false},
        {r->ranges, r->n_ranges, sizeof(*r->ranges), true},
        {r->os, r->n_os, sizeof(*r->os), false},
    };
    for (size_t i = 0; i < MR_COUNT(all); i++) {
        int rc = sort_events(load, all[i].items, all[i].n, all[i].bytes, all[i].outer_first);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A table of indices of apis by process and correlation; MR_NONE: free. */
struct by_correlation {
    uint32_t *slots;
    uint64_t n_slots;
};

static uint32_t *slot_of(const struct by_correlation *table, const struct mr_rec_api *apis,
                         uint32_t process, uint32_t correlation)
{
    uint64_t at = mr_mix64((uint64_t)process << 32 | correlation) & (table->n_slots - 1);
    while (table->slots[at] != MR_NONE && (apis[table->slots[at]].process != process ||
                                           apis[table->slots[at]].correlation != correlation))
        at = (at + 1) & (table->n_slots - 1);
    return &table->slots[at];
}

/* A runtime call and the driver's call inside it may share a correlation: the runtime's is the one
 * that people wrote. */
static int index_calls(struct mr_load *load, struct by_correlation *table)
{
    struct mr_recording *recording = load->recording;
    table->n_slots = 64;
    while (table->n_slots < recording->n_apis * 2)
        table->n_slots *= 2;
    table->slots = mr_big_alloc(recording->path, table->n_slots, sizeof(*table->slots));
    if (!table->slots)
        return -ENOMEM;
    memset(table->slots, 0xff, table->n_slots * sizeof(*table->slots));
    for (uint32_t i = 0; i < recording->n_apis; i++) {
        const struct mr_rec_api *api = &recording->apis[i];
        if (api->correlation == 0)
            continue;
        uint32_t *slot = slot_of(table, recording->apis, api->process, api->correlation);
        if (*slot == MR_NONE || (recording->apis[*slot].driver && !api->driver))
            *slot = i;
    }
    return 0;
}

/* op_of_api: the ops of each call, in order of their start. */
static int list_ops(struct mr_load *load)
{
    struct mr_recording *recording = load->recording;
    recording->op_of_api =
        mr_big_alloc(recording->path, recording->n_ops + 1, sizeof(*recording->op_of_api));
    if (!recording->op_of_api)
        return -ENOMEM;
    uint32_t first = 0;
    for (uint64_t i = 0; i < recording->n_ops; i++)
        if (recording->ops[i].api != MR_NONE)
            recording->apis[recording->ops[i].api].n_ops++;
    for (uint64_t i = 0; i < recording->n_apis; i++) {
        recording->apis[i].first_op = first;
        first += recording->apis[i].n_ops;
        recording->apis[i].n_ops = 0;
    }
    for (uint32_t i = 0; i < recording->n_ops; i++) {
        if (recording->ops[i].api == MR_NONE)
            continue;
        struct mr_rec_api *api = &recording->apis[recording->ops[i].api];
        recording->op_of_api[api->first_op + api->n_ops++] = i;
    }
    return 0;
}

static int join_calls(struct mr_load *load)
{
    struct mr_recording *recording = load->recording;
    struct by_correlation table = {0};
    int rc = index_calls(load, &table);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < recording->n_ops; i++) {
        struct mr_rec_op *op = &recording->ops[i];
        op->api = op->api ? *slot_of(&table, recording->apis, op->process, op->api) : MR_NONE;
    }
    for (uint64_t i = 0; i < recording->n_syncs; i++) {
        struct mr_rec_sync *sync = &recording->syncs[i];
        sync->api =
            sync->api ? *slot_of(&table, recording->apis, sync->process, sync->api) : MR_NONE;
    }
    mr_big_free(table.slots);
    return list_ops(load);
}

#define DEEPEST 1024

struct stack { /* a thread's open push/pop ranges, innermost last */
    uint32_t *ranges;
    uint32_t n;
    uint64_t capacity;
};

static int stack_push(struct mr_load *load, struct stack *stack, uint32_t range)
{
    if (stack->n == DEEPEST)
        return 0;
    const char *path = load->recording->path;
    if (mr_grow(path, &stack->ranges, &stack->capacity, stack->n + 1ull, sizeof(*stack->ranges)) <
        0)
        return -ENOMEM;
    stack->ranges[stack->n++] = range;
    return 0;
}

/* The innermost push/pop range of the thread around it. Domains have stacks of their own, so one
 * may end amid another. */
static void nest(struct mr_recording *recording, struct stack *stack, struct mr_rec_range *range)
{
    while (stack->n && recording->ranges[stack->ranges[stack->n - 1]].end_ns <= range->start_ns)
        stack->n--;
    for (uint32_t i = stack->n; i-- > 0;) {
        const struct mr_rec_range *outer = &recording->ranges[stack->ranges[i]];
        if (outer->end_ns >= range->end_ns && outer->end_ns > range->start_ns) {
            range->parent = stack->ranges[i];
            range->depth = outer->depth + 1;
            return;
        }
        bool crossed =
            outer->end_ns > range->start_ns && outer->domain == range->domain && !range->open;
        if (crossed && range->type == MR_RANGE_PUSH_POP)
            recording->n_unbalanced++;
    }
}

static int nest_ranges(struct mr_load *load)
{
    struct mr_recording *recording = load->recording;
    struct stack *stacks = calloc((size_t)recording->n_threads + 1, sizeof(*stacks));
    if (!stacks)
        return mr_error_nomem(recording->path, recording->n_threads * sizeof(*stacks));
    int rc = 0;
    for (uint32_t i = 0; i < recording->n_ranges && rc >= 0; i++) {
        struct mr_rec_range *range = &recording->ranges[i];
        nest(recording, &stacks[range->thread], range);
        if (range->type == MR_RANGE_PUSH_POP)
            rc = stack_push(load, &stacks[range->thread], i);
    }
    for (uint32_t i = 0; i < recording->n_threads; i++)
        free(stacks[i].ranges);
    free(stacks);
    return rc;
}

int mr_load_join(struct mr_load *load)
{
    struct mr_recording *recording = load->recording;
    for (uint64_t i = 0; i < recording->n_ranges; i++) {
        if (!recording->ranges[i].open)
            continue;
        recording->ranges[i].end_ns = recording->end_ns;
        recording->n_unbalanced++;
    }
    for (uint32_t i = 0; i < recording->n_processes; i++) /* an export does not say when */
        if (recording->processes[i].end_ns == 0)
            recording->processes[i].end_ns = recording->end_ns;
    int rc = sort_all(load);
    if (rc < 0)
        return rc;
    rc = join_calls(load);
    if (rc < 0)
        return rc;
    return nest_ranges(load);
}
