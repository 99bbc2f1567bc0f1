/* What calls cost that hold up the launching thread, and rows of evidence. */
#include "advice/rules.h"
#include "recording/big.h"

#include <errno.h>
#include <string.h>

/* ---- calls that hold up ---- */

static int by_cost(const void *a, const void *b)
{
    const struct mr_held *x = a, *y = b;
    if (x->cost_ns != y->cost_ns)
        return x->cost_ns < y->cost_ns ? 1 : -1;
    return (x->api > y->api) - (x->api < y->api);
}

static int keep(struct mr_hold *hold, uint32_t api, uint64_t cost_ns)
{
    if (mr_grow("calls", &hold->worst, &hold->room, hold->n_worst + 1, sizeof *hold->worst) < 0)
        return -ENOMEM;
    hold->worst[hold->n_worst++] = (struct mr_held){api, cost_ns};
    return 0;
}

int mr_hold_measure(const struct mr_case *c,
                    bool (*wants)(const struct mr_case *, const struct mr_rec_api *),
                    struct mr_hold *out)
{
    const struct mr_look *look = c->look;
    int rc = 0;
    for (uint64_t i = 0; !rc && i < look->rec->n_apis; i++) {
        const struct mr_rec_api *api = &look->rec->apis[i];
        if (api->process != look->place.process || !wants(c, api) || !mr_case_in(c, api->start_ns))
            continue;
        uint64_t cost = mr_case_call(c, api);
        out->n++;
        out->call_ns += api->end_ns - api->start_ns;
        out->cost_ns += cost;
        rc = keep(out, (uint32_t)i, cost);
    }
    if (out->n_worst > 1)
        qsort(out->worst, out->n_worst, sizeof *out->worst, by_cost);
    out->n_worst = MR_MIN(out->n_worst, (uint64_t)MR_EVIDENCE);
    return rc;
}

void mr_hold_free(struct mr_hold *hold)
{
    free(hold->worst);
    *hold = (struct mr_hold){0};
}

/* As reports name it: without the version of its parameters, "cudaMemcpyAsync" for
 * "cudaMemcpyAsync_v3020". */
static void put_call(const struct mr_case *c, struct mr_table *table, uint32_t name)
{
    char text[128];
    const char *whole = mr_case_string(c, name);
    snprintf(text, sizeof text, "%.*s", mr_call_name_bytes(whole), whole);
    mr_table_text(table, text);
}

int mr_hold_table(const struct mr_case *c, const struct mr_hold *hold, struct mr_table **out)
{
    static const struct mr_column columns[] = {
        {"Start", MR_UNIT_NS, MR_CELL_INT},       {"Duration", MR_UNIT_NS, MR_CELL_INT},
        {"Name", MR_UNIT_NONE, MR_CELL_TEXT},     {"TID", MR_UNIT_NONE, MR_CELL_INT},
        {"Idle Caused", MR_UNIT_NS, MR_CELL_INT},
    };
    const struct mr_recording *rec = c->look->rec;
    struct mr_table *table = mr_table_create("calls", columns, MR_COUNT(columns));
    if (!table)
        return mr_error_nomem("evidence", sizeof columns);
    for (uint64_t i = 0; i < hold->n_worst; i++) {
        const struct mr_rec_api *api = &rec->apis[hold->worst[i].api];
        mr_table_row(table);
        mr_table_int(table, (int64_t)api->start_ns);
        mr_table_int(table, (int64_t)(api->end_ns - api->start_ns));
        put_call(c, table, api->name);
        mr_table_int(table, api->thread < rec->n_threads ? rec->threads[api->thread].tid : 0);
        mr_table_int(table, (int64_t)hold->worst[i].cost_ns);
    }
    return mr_table_finish(table, out);
}

/* ---- copies ---- */

struct shown {
    uint64_t exposed_ns;
    uint32_t at;
};

static int by_exposed(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;
    if (x->exposed_ns != y->exposed_ns)
        return x->exposed_ns < y->exposed_ns ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static void copy_row(const struct mr_case *c, struct mr_table *table, const struct shown *shown)
{
    const struct mr_rec_op *op = &c->look->rec->ops[c->look->ops[shown->at]];
    uint64_t ns = op->end_ns - op->start_ns;
    mr_table_row(table);
    mr_table_int(table, (int64_t)op->start_ns);
    mr_table_int(table, (int64_t)ns);
    mr_table_bytes(table, op->bytes);
    if (op->bytes && ns)
        mr_table_real(table, (double)op->bytes * 1e9 / (double)ns);
    else
        mr_table_empty(table);
    mr_table_text(table, mr_copy_kind_text(op->copy_kind));
    mr_table_text(table, mr_mem_kind_text(op->copy_kind == MR_COPY_D2H ? op->dst : op->src));
    mr_table_int(table, op->stream);
    put_call(c, table, op->api < c->look->rec->n_apis ? c->look->rec->apis[op->api].name : MR_NONE);
    mr_table_int(table, (int64_t)shown->exposed_ns);
}

int mr_copies_table(const struct mr_case *c, struct mr_copies *copies, struct mr_table **out)
{
    static const struct mr_column columns[] = {
        {"Start", MR_UNIT_NS, MR_CELL_INT},
        {"Duration", MR_UNIT_NS, MR_CELL_INT},
        {"Bytes", MR_UNIT_BYTES, MR_CELL_INT},
        {"Throughput", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
        {"Operation", MR_UNIT_NONE, MR_CELL_TEXT},
        {"Host Memory", MR_UNIT_NONE, MR_CELL_TEXT},
        {"Strm", MR_UNIT_NONE, MR_CELL_INT},
        {"Call", MR_UNIT_NONE, MR_CELL_TEXT},
        {"Exposed", MR_UNIT_NS, MR_CELL_INT},
    };
    struct shown *shown = mr_big_alloc("evidence", copies->n + 1, sizeof *shown);
    struct mr_table *table = shown ? mr_table_create("copies", columns, MR_COUNT(columns)) : NULL;
    if (!table) {
        mr_big_free(shown);
        return mr_error_nomem("evidence", copies->n * sizeof *shown);
    }
    for (uint64_t i = 0; i < copies->n; i++)
        shown[i] = (struct shown){
            mr_case_exposed(c, &c->look->rec->ops[c->look->ops[copies->at[i]]]), copies->at[i]};
    mr_big_sort(shown, copies->n, sizeof *shown, by_exposed);
    for (uint64_t i = 0; i < copies->n && i < MR_EVIDENCE; i++)
        copy_row(c, table, &shown[i]);
    mr_big_free(shown);
    return mr_table_finish(table, out);
}
