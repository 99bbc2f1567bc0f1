/* Rules about copies between host and device. */
#include "advice/rules.h"
#include "recording/big.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef bool wants_copy(const struct mr_case *c, const struct mr_rec_op *op);

static uint8_t host_memory(const struct mr_rec_op *op)
{
    return op->copy_kind == MR_COPY_H2D ? op->src : op->dst;
}

static const struct mr_rec_op *op_at(const struct mr_case *c, uint64_t at)
{
    return &c->look->rec->ops[c->look->ops[at]];
}

static const struct mr_rec_api *call_of(const struct mr_case *c, const struct mr_rec_op *op)
{
    return op->api < c->look->rec->n_apis ? &c->look->rec->apis[op->api] : NULL;
}

static double rate_of(const struct mr_rec_op *op)
{
    return op->end_ns > op->start_ns ? (double)op->bytes / (double)(op->end_ns - op->start_ns) : 0;
}

/* [out] out->at: for the caller to mr_big_free(). */
static int choose(const struct mr_case *c, wants_copy *wants, struct mr_copies *out)
{
    out->at = mr_big_alloc("copies", c->look->n_ops + 1, sizeof *out->at);
    if (!out->at)
        return -ENOMEM;
    for (uint64_t i = 0; i < c->look->n_ops; i++)
        if (mr_case_crosses(op_at(c, i)) && mr_case_in(c, op_at(c, i)->start_ns) &&
            wants(c, op_at(c, i)))
            out->at[out->n++] = (uint32_t)i;
    return 0;
}

static int finish(const struct mr_case *c, struct mr_copies *copies, struct mr_judgement *out)
{
    int rc = out->verdict == MR_FOUND ? mr_copies_table(c, copies, &out->evidence) : 0;
    mr_big_free(copies->at);
    return rc;
}

static bool larger(const struct mr_case *c, const struct mr_rec_op *op)
{
    (void)c;
    return op->bytes > MR_SMALL_COPY;
}

/* Counts copies of more than 64 KiB and those of them whose memory is not told. */
static int count_copies(const struct mr_case *c, uint64_t *n, uint64_t *n_unknown)
{
    struct mr_copies all = {0};
    int rc = choose(c, larger, &all);
    *n = all.n;
    *n_unknown = 0;
    for (uint64_t i = 0; i < all.n; i++)
        *n_unknown += host_memory(op_at(c, all.at[i])) == MR_MEM_UNKNOWN;
    mr_big_free(all.at);
    return rc;
}

/* ---- pageable_copies ---- */

static bool pageable(const struct mr_case *c, const struct mr_rec_op *op)
{
    return larger(c, op) && host_memory(op) == MR_MEM_PAGEABLE;
}

struct pageable_sums {
    uint64_t bytes, ns, exposed_ns, held_ns;
    uint64_t n_no_rate,
        exposed_no_rate_ns; /* of those in a direction whose page-locked rate is not known */
    double saving_ns;
    int way;        /* of the others, the last one's direction: 1 from the device */
    bool estimated; /* the rate of one of them was not measured here */
};

static struct pageable_sums add_pageable(const struct mr_case *c, const struct mr_copies *copies)
{
    struct pageable_sums s = {0};
    for (uint64_t i = 0; i < copies->n; i++) {
        const struct mr_rec_op *op = op_at(c, copies->at[i]);
        const struct mr_rec_api *api = call_of(c, op);
        int way = op->copy_kind == MR_COPY_D2H;
        double pinned = c->pinned_rate[way], rate = rate_of(op);
        bool first = api && /* a call that makes several copies counts once */
                     &c->look->rec->ops[c->look->rec->op_of_api[api->first_op]] == op;
        uint64_t exposed = c->exposed_own[copies->at[i]];
        uint64_t held = first ? mr_case_staging(c, api) : 0;
        s.bytes += op->bytes;
        s.ns += op->end_ns - op->start_ns;
        s.exposed_ns += exposed;
        s.held_ns += held;
        if (pinned > 0) {
            s.way = way;
            s.estimated |= !c->rate_measured[way];
        } else {
            s.n_no_rate++;
            s.exposed_no_rate_ns += exposed;
        }
        s.saving_ns += (double)held + (pinned > rate ? (double)exposed * (1 - rate / pinned) : 0);
    }
    return s;
}

static int judge_pageable(const struct mr_case *c, struct mr_judgement *out)
{
    struct mr_copies copies = {0};
    uint64_t n, n_unknown;
    int rc = count_copies(c, &n, &n_unknown);
    rc = rc ? rc : choose(c, pageable, &copies);
    if (rc)
        return rc;
    if (copies.n == 0) {
        mr_big_free(copies.at);
        if (n_unknown > 0)
            return mr_cannot_tell(out,
                                  "the recording does not say what memory %" PRIu64 " of %" PRIu64
                                  " copies of more than 64 KiB used",
                                  n_unknown, n);
        return mr_fine(out, "none of %" PRIu64 " copies of more than 64 KiB used pageable memory",
                       n);
    }
    struct pageable_sums s = add_pageable(c, &copies);
    double rate = s.ns ? (double)s.bytes / (double)s.ns : 0;
    char untold[200] = "";
    if (s.n_no_rate > 0)
        snprintf(untold, sizeof untold,
                 " Of %" PRIu64 " of the %" PRIu64
                 " copies no rate is known: their exposed %.3f ms are not counted; "
                 "give --link-gbps.",
                 s.n_no_rate, copies.n, mr_case_ms(c, (double)s.exposed_no_rate_ns));
    snprintf(out->title, sizeof out->title,
             "%" PRIu64 " of %" PRIu64
             " copies of more than 64 KiB use pageable memory (%.1f GB/s)",
             copies.n, n, rate);
    if (s.n_no_rate == copies.n)
        snprintf(out->why, sizeof out->why,
                 "pageable copies are exposed %.3f ms%s and hold the launching thread while the "
                 "device idles for %.3f "
                 "ms; only the "
                 "latter is counted, as no rate of page-locked copies is known: give --link-gbps.",
                 mr_case_ms(c, (double)s.exposed_ns), mr_case_per(c),
                 mr_case_ms(c, (double)s.held_ns));
    else
        snprintf(out->why, sizeof out->why,
                 "exposed time %.3f ms%s x (1 - pageable %.1f GB/s / page-locked %.1f GB/s, %s), "
                 "for each copy, + %.3f "
                 "ms in "
                 "which their calls held the launching thread and the device idled (beyond 5 us a "
                 "call).%s",
                 mr_case_ms(c, (double)(s.exposed_ns - s.exposed_no_rate_ns)), mr_case_per(c), rate,
                 c->pinned_rate[s.way], c->rate_how[s.way], mr_case_ms(c, (double)s.held_ns),
                 untold);
    snprintf(out->advice, sizeof out->advice,
             "Page-lock the host memory: DataLoader(pin_memory=True) with .to(device, "
             "non_blocking=True); in CUDA "
             "cudaHostAlloc or "
             "cudaHostRegister once, before the loop, and cudaMemcpyAsync. Do not call "
             ".pin_memory() just before the "
             "copy: it "
             "copies once more in the launching thread.");
    mr_judge_saving(c, out, s.saving_ns, s.n_no_rate ? 0.5 : s.estimated ? 0.7 : 0.85);
    return finish(c, &copies, out);
}

/* ---- blocking_async ---- */

static int judge_blocking(const struct mr_case *c, struct mr_judgement *out)
{
    struct mr_hold hold = {0};
    uint64_t n_sync = 0;
    if (!c->look->has_calls)
        return mr_cannot_tell(out, "no CUDA calls of this process were recorded");
    int rc = mr_hold_measure(c, mr_case_blocks, &hold);
    if (!rc && hold.n == 0) {
        mr_hold_free(&hold);
        return mr_fine(out,
                       "no asynchronous copy blocked its thread, and none was waited for at once");
    }
    for (uint64_t i = 0; i < hold.n_worst; i++)
        n_sync += c->after_copy[hold.worst[i].api];
    if (!rc) {
        snprintf(out->title, sizeof out->title,
                 "%" PRIu64 " asynchronous copies still block the launching thread", hold.n);
        snprintf(out->why, sizeof out->why,
                 "calls of %.3f ms%s: asynchronous copies of pageable memory that did not return "
                 "before the memory was read, and waits for a page-locked copy "
                 "directly after its call (%" PRIu64 " of the %" PRIu64
                 " costliest). Counted: the device's idle time until the next "
                 "operation, at most each call's own time.",
                 mr_case_ms(c, (double)hold.call_ns), mr_case_per(c), n_sync, hold.n_worst);
        snprintf(out->advice, sizeof out->advice,
                 "non_blocking=True needs page-locked memory (pin_memory=True), and .to(device) "
                 "without it waits for "
                 "the copy: use "
                 "both, and synchronise only where a result is read.");
        mr_judge_saving(c, out, (double)hold.cost_ns, 0.75);
        if (out->verdict == MR_FOUND)
            rc = mr_hold_table(c, &hold, &out->evidence);
    }
    mr_hold_free(&hold);
    return rc;
}

/* ---- what link_rate counts ---- */

#define SLOW 0.8

static bool large_pinned(const struct mr_case *c, const struct mr_rec_op *op)
{
    (void)c;
    return host_memory(op) == MR_MEM_PINNED && op->bytes >= MR_BIG_COPY &&
           op->end_ns > op->start_ns;
}

static double link_of(const struct mr_case *c, const struct mr_rec_op *op)
{
    return c->link_rate > 0 ? c->link_rate : c->pinned_rate[op->copy_kind == MR_COPY_D2H];
}

/* What a copy would take less at the link's rate, of the time that is its own. */
static double slow_copy_ns(const struct mr_case *c, uint64_t at)
{
    const struct mr_rec_op *op = op_at(c, at);
    double ref = link_of(c, op), rate = rate_of(op);
    if (!mr_case_crosses(op) || !large_pinned(c, op) || rate >= SLOW * ref)
        return 0;
    return (double)c->exposed_own[at] * (1 - rate / ref);
}

static double slow_link_ns(const struct mr_case *c)
{
    double ns = 0;
    for (uint64_t i = 0; i < c->look->n_ops; i++)
        if (mr_case_in(c, op_at(c, i)->start_ns))
            ns += slow_copy_ns(c, i);
    return ns;
}

/* ---- copy_on_compute_stream ---- */

static bool on_compute_stream(const struct mr_case *c, const struct mr_rec_op *op)
{
    return op->copy_kind == MR_COPY_H2D && op->src != MR_MEM_PAGEABLE &&
           op->bytes > MR_SMALL_COPY && mr_kernel_streams_has(&c->streams, op);
}

static int judge_stream(const struct mr_case *c, struct mr_judgement *out)
{
    struct mr_copies copies = {0};
    uint64_t exposed = 0, alone;
    if (c->look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded");
    int rc = choose(c, on_compute_stream, &copies);
    if (rc)
        return rc;
    if (copies.n == 0) {
        mr_big_free(copies.at);
        return mr_fine(
            out,
            "no large copy to the device from page-locked memory is on a stream that runs kernels");
    }
    bool link = slow_link_ns(c) >= MR_WORTH * (double)c->look->wall_ns;
    for (uint64_t i = 0; i < copies.n; i++)
        exposed +=
            c->exposed_own[copies.at[i]] - (link ? (uint64_t)slow_copy_ns(c, copies.at[i]) : 0);
    alone = mr_intervals_measure(&c->look->compute) -
            mr_intervals_common(&c->look->compute, &c->look->copy);
    snprintf(out->title, sizeof out->title, "%" PRIu64 " copies run on the stream of the kernels",
             copies.n);
    snprintf(out->why, sizeof out->why,
             "they are exposed %.3f ms%s%s; kernels that run without a copy take %.3f ms and could "
             "hide them: the "
             "smaller of both, if "
             "the next step's data is copied during this step.",
             mr_case_ms(c, (double)exposed), mr_case_per(c),
             link ? ", without what link_rate counts" : "", mr_case_ms(c, (double)alone));
    snprintf(out->advice, sizeof out->advice,
             "Copy the next batch on a stream of its own while this one is computed "
             "(torch.cuda.Stream, wait_stream and "
             "record_stream; or a prefetching loader such as millrace's) and let an event order it "
             "before its use.");
    mr_judge_saving(c, out, (double)MR_MIN(exposed, alone), 0.7);
    return finish(c, &copies, out);
}

/* ---- small_copies ---- */

static bool small(const struct mr_case *c, const struct mr_rec_op *op)
{
    (void)c;
    return op->bytes > 0 && op->bytes <= MR_SMALL_COPY;
}

static int judge_small(const struct mr_case *c, struct mr_judgement *out)
{
    struct mr_copies copies = {0};
    double ns = 0;
    uint64_t bytes = 0, steps = c->look->n_steps ? c->look->n_steps : 1;
    int rc = choose(c, small, &copies);
    if (rc)
        return rc;
    double each = (double)copies.n / (double)steps;
    if (!c->many_small) {
        mr_big_free(copies.at);
        return mr_fine(out, "%.1f copies of at most 64 KiB%s; the threshold is %d", each,
                       mr_case_per(c), MR_MANY_SMALL);
    }
    for (uint64_t i = 0; i < copies.n; i++) {
        const struct mr_rec_op *op = op_at(c, copies.at[i]);
        const struct mr_rec_api *api = call_of(c, op);
        bytes += op->bytes;
        ns += (double)c->exposed_own[copies.at[i]];
        bool first = api && api->class == MR_CALL_COPY && /* of a batch; a graph is launched */
                     &c->look->rec->ops[c->look->rec->op_of_api[api->first_op]] == op;
        if (first && !mr_case_syncs(c, api))
            ns += (double)mr_case_call(c, api);
    }
    double moved = c->pinned_rate[0] > 0 ? (double)bytes / c->pinned_rate[0] : 0;
    snprintf(out->title, sizeof out->title, "%.0f copies of at most 64 KiB%s", each,
             mr_case_per(c));
    snprintf(out->why, sizeof out->why,
             "they and their calls take %.3f ms%s in which nothing is computed, %.1f us each, for "
             "%.1f KiB each; counted: that x (1 - 1/%.0f), because one copy replaces them all, "
             "without the bytes' own time (%.3f ms).",
             mr_case_ms(c, ns), mr_case_per(c), ns / 1e3 / (double)copies.n,
             (double)bytes / 1024 / (double)copies.n, each, mr_case_ms(c, moved));
    snprintf(
        out->advice, sizeof out->advice,
        "Collate into one page-locked buffer and copy once, or use cudaMemcpyBatchAsync (CUDA "
        "12.8); in PyTorch "
        "torch.stack on "
        "the host before .to(), and no .item() or torch.tensor(scalar, device=...) in the loop.");
    mr_judge_saving(c, out, ns * (1 - 1 / each) - moved, 0.6);
    return finish(c, &copies, out);
}

/* ---- link_rate ---- */

static int by_real(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int judge_link(const struct mr_case *c, struct mr_judgement *out)
{
    struct mr_copies copies = {0};
    double saving = 0, median, lowest_ref = INFINITY;
    if (mr_case_simulated(c))
        return mr_cannot_tell(out,
                              "the device is simulated: its link is an option, and a copy that "
                              "is slower was held up by this host, which moves the bytes");
    int rc = choose(c, large_pinned, &copies);
    double *rate = rc ? NULL : mr_big_alloc("rates", copies.n + 1, sizeof *rate);
    if (!rc && !rate)
        rc = -ENOMEM;
    if (rc || copies.n == 0) {
        mr_big_free(rate);
        mr_big_free(copies.at);
        return rc ? rc
                  : mr_cannot_tell(
                        out, "no page-locked copy of 1 MiB or more was recorded in the steps");
    }
    for (uint64_t i = 0; i < copies.n; i++) {
        const struct mr_rec_op *op = op_at(c, copies.at[i]);
        rate[i] = rate_of(op);
        lowest_ref = MR_MIN(lowest_ref, link_of(c, op));
        saving += slow_copy_ns(c, copies.at[i]);
    }
    qsort(rate, copies.n, sizeof *rate, by_real);
    median = rate[copies.n / 2];
    mr_big_free(rate);
    bool named = c->link_rate > 0 && c->opts->link_gbps <= 0;
    snprintf(out->title, sizeof out->title, "large page-locked copies reach %.1f of %.1f GB/s",
             median, lowest_ref);
    snprintf(out->why, sizeof out->why,
             "%" PRIu64 " copies of 1 MiB or more, median %.2f GB/s; the link's rate is %.1f GB/s "
             "(%s). Counted for "
             "those below %.0f%% of "
             "it: exposed time x (1 - rate / link).",
             copies.n, median, lowest_ref, c->link_rate > 0 ? c->link_how : "the fastest copy here",
             100 * SLOW);
    snprintf(out->advice, sizeof out->advice,
             "Check what the link can do (millrace bench transfer), whether the memory is on the "
             "device's NUMA node (numactl --cpunodebind, --membind; millrace doctor names it), "
             "and whether other devices share the link.");
    mr_judge_saving(c, out, saving, named ? 0.4 : c->link_rate > 0 ? 0.7 : 0.4);
    return finish(c, &copies, out);
}

const struct mr_rule mr_rules_copy[] = {
    {"pageable_copies", judge_pageable},
    {"blocking_async", judge_blocking},
    {"copy_on_compute_stream", judge_stream},
    {"small_copies", judge_small},
    {"link_rate", judge_link},
    {NULL, NULL},
};
