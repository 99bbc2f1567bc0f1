/*
 * Who may count what: idle time by the call that it counts for, and copies' exposed time, each
 * nanosecond once. So savings of different rules never overlap.
 */
#include "advice/rules.h"
#include "recording/big.h"

#include <errno.h>
#include <string.h>

#define SUBMIT_NS 5000 /* what an asynchronous copy's call and its way to the device take anyway */

/* ---- calls ---- */

static int by_call(const void *a, const void *b)
{
    const struct mr_call_idle *x = a, *y = b;
    return (x->call > y->call) - (x->call < y->call);
}

static int find_calls(struct mr_case *c)
{
    uint64_t n = 0, kept = 0;
    for (uint64_t i = 0; i < c->idle.n; i++)
        n += c->idle.at[i].call != MR_NONE;
    c->calls = mr_big_alloc("calls", n + 1, sizeof *c->calls);
    if (!c->calls)
        return -ENOMEM;
    n = 0;
    for (uint64_t i = 0; i < c->idle.n; i++) {
        const struct mr_idle_piece *p = &c->idle.at[i];
        uint64_t ns = p->end_ns - p->start_ns;
        if (p->call != MR_NONE)
            c->calls[n++] = (struct mr_call_idle){p->call, p->after ? 0 : ns, p->after ? ns : 0};
    }
    mr_big_sort(c->calls, n, sizeof *c->calls, by_call);
    for (uint64_t i = 0; i < n; i++) {
        if (kept > 0 && c->calls[kept - 1].call == c->calls[i].call) {
            c->calls[kept - 1].in_ns += c->calls[i].in_ns;
            c->calls[kept - 1].after_ns += c->calls[i].after_ns;
        } else {
            c->calls[kept++] = c->calls[i];
        }
    }
    c->n_calls = kept;
    return 0;
}

static struct mr_call_idle call_idle(const struct mr_case *c, const struct mr_rec_api *api)
{
    struct mr_call_idle key = {(uint32_t)(api - c->look->rec->apis), 0, 0};
    const struct mr_call_idle *found =
        c->n_calls ? bsearch(&key, c->calls, c->n_calls, sizeof key, by_call) : NULL;
    return found ? *found : key;
}

static const struct mr_rec_op *copy_of(const struct mr_recording *rec, const struct mr_rec_api *api)
{
    if (api->class != MR_CALL_COPY || api->n_ops == 0)
        return NULL;
    return &rec->ops[rec->op_of_api[api->first_op]];
}

static uint8_t host_memory(const struct mr_rec_op *op)
{
    return op->copy_kind == MR_COPY_H2D ? op->src : op->dst;
}

uint64_t mr_case_staging(const struct mr_case *c, const struct mr_rec_api *api)
{
    const struct mr_rec_op *op = copy_of(c->look->rec, api);
    if (!op || op->bytes <= MR_SMALL_COPY || !mr_case_crosses(op) ||
        host_memory(op) != MR_MEM_PAGEABLE)
        return 0;
    uint64_t ns = call_idle(c, api).in_ns;
    return ns > SUBMIT_NS ? ns - SUBMIT_NS : 0;
}

uint64_t mr_case_call(const struct mr_case *c, const struct mr_rec_api *api)
{
    struct mr_call_idle idle = call_idle(c, api);
    return idle.in_ns + idle.after_ns - mr_case_staging(c, api);
}

bool mr_case_crosses(const struct mr_rec_op *op)
{
    return op->kind == MR_OP_COPY && (op->copy_kind == MR_COPY_H2D || op->copy_kind == MR_COPY_D2H);
}

/* ---- whose a call is ---- */

bool mr_case_syncs(const struct mr_case *c, const struct mr_rec_api *api)
{
    const struct mr_recording *rec = c->look->rec;
    if (!mr_case_launches(c, api->thread) || c->after_copy[api - rec->apis])
        return false;
    if (api->class == MR_CALL_SYNC)
        return true;
    const struct mr_rec_op *op = copy_of(rec, api);
    if (!op)
        return false;
    if (!mr_call_named_async(rec, api))
        return true;
    return op->bytes <= MR_SMALL_COPY && mr_api_reads_back(rec, api) && mr_api_holds(rec, api);
}

bool mr_case_blocks(const struct mr_case *c, const struct mr_rec_api *api)
{
    const struct mr_recording *rec = c->look->rec;
    if (c->after_copy[api - rec->apis])
        return true;
    const struct mr_rec_op *op = copy_of(rec, api);
    if (!op || !mr_call_named_async(rec, api) || mr_case_syncs(c, api))
        return false;
    return mr_case_crosses(op) && host_memory(op) == MR_MEM_PAGEABLE && mr_api_holds(rec, api) &&
           (op->bytes > MR_SMALL_COPY || !c->many_small);
}

/* ---- copies ---- */

/* Each nanosecond in which the device copies and does not compute belongs to the copy that began
 * first. */
static int find_exposed(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    struct mr_intervals exposed = {0};
    uint64_t until = 0;
    c->exposed_own = mr_big_alloc("copies", look->n_ops + 1, sizeof *c->exposed_own);
    if (!c->exposed_own)
        return -ENOMEM;
    mr_intervals_without(&look->copy, &look->compute, &exposed);
    int rc = exposed.lost ? mr_error_nomem("intervals", exposed.n * sizeof *exposed.at) : 0;
    c->exposed_ns = mr_intervals_measure(&exposed);
    for (uint64_t i = 0; rc == 0 && i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (mr_op_computes(op) || op->end_ns <= until)
            continue;
        c->exposed_own[i] = mr_intervals_within(&exposed, MR_MAX(op->start_ns, until), op->end_ns);
        until = op->end_ns;
    }
    mr_intervals_free(&exposed);
    return rc;
}

static void count_small(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    uint64_t n = 0;
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        n += mr_case_crosses(op) && op->bytes > 0 && op->bytes <= MR_SMALL_COPY &&
             mr_case_in(c, op->start_ns);
    }
    c->many_small = n >= MR_MANY_SMALL * (look->n_steps ? look->n_steps : 1);
}

int mr_claims_make(struct mr_case *c)
{
    count_small(c);
    int rc = find_calls(c);
    return rc ? rc : find_exposed(c);
}
