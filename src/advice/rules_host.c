/* Rules about calls that hold up the launching thread within the loop. */
#include "advice/rules.h"

#include <inttypes.h>
#include <string.h>

struct held_rule {
    bool (*wants)(const struct mr_case *c, const struct mr_rec_api *api);
    const char *what, *advice;
    bool needs_steps; /* once before the loop they are right */
    double confidence;
};

static bool pins(const struct mr_case *c, const struct mr_rec_api *api)
{
    (void)c;
    return api->class == MR_CALL_PIN;
}

static bool allocates(const struct mr_case *c, const struct mr_rec_api *api)
{
    return api->class == MR_CALL_ALLOC && !mr_call_named_async(c->look->rec, api);
}

/* Of page-locked or managed memory, or any that the call waited for. */
static bool sets_and_waits(const struct mr_case *c, const struct mr_rec_api *api)
{
    const struct mr_recording *rec = c->look->rec;
    if (api->class != MR_CALL_SET || api->n_ops == 0 || mr_call_named_async(rec, api))
        return false;
    const struct mr_rec_op *op = &rec->ops[rec->op_of_api[api->first_op]];
    return op->dst == MR_MEM_PINNED || op->dst == MR_MEM_MANAGED ||
           op->dst == MR_MEM_MANAGED_STATIC || api->end_ns >= op->end_ns;
}

/* The names of the costliest calls, most often first would need a table: the two that head the list
 * will do. */
static void name_calls(const struct mr_case *c, const struct mr_hold *hold, char *out, size_t cap)
{
    const char *first = "", *second = NULL;
    for (uint64_t i = 0; i < hold->n_worst && !second; i++) {
        const char *name = mr_case_string(c, c->look->rec->apis[hold->worst[i].api].name);
        if (i == 0)
            first = name;
        else if (strcmp(name, first) != 0)
            second = name;
    }
    snprintf(out, cap, "%.60s%s%.60s", first, second ? ", " : "", second ? second : "");
}

static int judge(const struct mr_case *c, const struct held_rule *rule, struct mr_judgement *out)
{
    struct mr_hold hold = {0};
    char names[128];
    if (!c->look->has_calls)
        return mr_cannot_tell(out, "no CUDA calls of this process were recorded");
    if (rule->needs_steps && c->look->n_steps == 0)
        return mr_cannot_tell(out, "no steps were found, so it is unknown what is inside the loop");
    int rc = mr_hold_measure(c, rule->wants, &hold);
    if (!rc && hold.n == 0) {
        mr_hold_free(&hold);
        return mr_fine(out, "no %s in the analyzed time", rule->what);
    }
    if (!rc) {
        name_calls(c, &hold, names, sizeof names);
        snprintf(out->title, sizeof out->title, "%.1f %s%s: %s",
                 (double)hold.n / (double)(c->look->n_steps ? c->look->n_steps : 1), rule->what,
                 mr_case_per(c), names);
        snprintf(out->why, sizeof out->why,
                 "%" PRIu64
                 " calls that take %.3f ms%s. Counted for each: the device's idle time in the call "
                 "and up to 100 us after it, until the next operation, without waits for the "
                 "loader; at most the call's own time, which the thread would gain without it.",
                 hold.n, mr_case_ms(c, (double)hold.call_ns), mr_case_per(c));
        snprintf(out->advice, sizeof out->advice, "%s", rule->advice);
        mr_judge_saving(c, out, (double)hold.cost_ns, rule->confidence);
        if (out->verdict == MR_FOUND)
            rc = mr_hold_table(c, &hold, &out->evidence);
    }
    mr_hold_free(&hold);
    return rc;
}

static int judge_pins(const struct mr_case *c, struct mr_judgement *out)
{
    static const struct held_rule rule = {
        pins, "calls that page-lock or release memory",
        "Page-lock once, before the loop, and reuse the buffers (a ring of them; PyTorch's "
        "pinned allocator does once sizes are steady: keep batch shapes the same, or warm up); "
        "cudaHostRegister and cudaFreeHost stop the device.",
        true, 0.7};
    return judge(c, &rule, out);
}

static int judge_syncs(const struct mr_case *c, struct mr_judgement *out)
{
    static const struct held_rule rule = {
        mr_case_syncs, "synchronizing calls and read-backs",
        "Read results rarely and late: no loss.item(), .cpu(), print(tensor) or "
        "torch.cuda.synchronize() in each step; keep losses on the device and read them every "
        "100 steps, or copy them with non_blocking=True and read them a step later.",
        false, 0.7};
    return judge(c, &rule, out);
}

static int judge_allocs(const struct mr_case *c, struct mr_judgement *out)
{
    static const struct held_rule rule = {allocates, "calls that allocate or release device memory",
                                          "cudaMalloc and cudaFree wait for the device: allocate "
                                          "before the loop, or use cudaMallocAsync or a pool; in "
                                          "PyTorch keep "
                                          "shapes steady, do not call torch.cuda.empty_cache(), "
                                          "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
                                          true, 0.7};
    return judge(c, &rule, out);
}

static int judge_sets(const struct mr_case *c, struct mr_judgement *out)
{
    static const struct held_rule rule = {
        sets_and_waits, "memsets that wait",
        "Use cudaMemsetAsync, or a kernel, on the stream that uses the memory; "
        "cudaMemset of page-locked or managed memory waits.",
        false, 0.7};
    return judge(c, &rule, out);
}

const struct mr_rule mr_rules_host[] = {
    {"pinning_in_loop", judge_pins},
    {"sync_in_loop", judge_syncs},
    {"allocation_in_loop", judge_allocs},
    {"memset_sync", judge_sets},
    {NULL, NULL},
};
