/* Rules about the device's own work: launches, tensor cores, several processes. */
#include "advice/rules.h"
#include "recording/queue.h"

#include <inttypes.h>
#include <string.h>

/* ---- launch_bound ---- */

#define LAUNCH_GAPS  10   /* a step */
#define LAUNCH_SHARE 0.05 /* of the time */
#define NODE_NS      1000 /* that remain between two nodes of a graph */

static const struct mr_rec_op *op_from(const struct mr_look *look, uint64_t time_ns)
{
    uint64_t i = mr_look_op_from(look, time_ns);
    return i < look->n_ops ? &look->rec->ops[look->ops[i]] : NULL;
}

/* Rows of kernels by name: time and count of each string. */
static int kernels_table(const struct mr_case *c, const uint64_t *ns, const uint64_t *count,
                         struct mr_table **out)
{
    static const struct mr_column columns[] = {{"Time", MR_UNIT_NS, MR_CELL_INT},
                                               {"Instances", MR_UNIT_COUNT, MR_CELL_INT},
                                               {"Name", MR_UNIT_NONE, MR_CELL_TEXT}};
    struct mr_table *table = mr_table_create("kernels", columns, MR_COUNT(columns));
    int rc = table ? 0 : mr_error_nomem("evidence", sizeof columns);
    for (uint32_t s = 1; !rc && s < c->look->rec->n_strings; s++) { /* 0: no kernels */
        if (count[s] == 0)
            continue;
        mr_table_row(table);
        mr_table_int(table, (int64_t)ns[s]);
        mr_table_int(table, (int64_t)count[s]);
        mr_table_text(table, mr_case_string(c, s));
    }
    rc = rc ? rc : mr_table_sort(table, "Time", false);
    if (rc) {
        mr_table_destroy(table);
        return rc;
    }
    mr_table_limit(table, MR_EVIDENCE);
    return mr_table_finish(table, out);
}

/* " The queue was empty 93% of the time ...", or "". */
static int tell_queue(const struct mr_case *c, char *out, size_t cap)
{
    struct mr_intervals waiting = {0};
    struct mr_queue *queues = NULL;
    uint64_t n = 0, n_empty = 0;
    out[0] = 0;
    int rc = mr_queues_find(c->look, &c->by_stream, &queues, &waiting);
    for (uint32_t s = 0; !rc && s < c->by_stream.n; s++) {
        n += queues[s].n;
        n_empty += queues[s].n_empty;
    }
    if (n > 0)
        snprintf(out, cap,
                 " The queue was empty %.0f%% of the time; %.0f%% of the launches found their "
                 "stream empty.",
                 100 - mr_case_percent(c, (double)mr_intervals_measure(&waiting)),
                 100 * (double)n_empty / (double)n);
    free(queues);
    mr_intervals_free(&waiting);
    return rc;
}

static int judge_launches(const struct mr_case *c, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    const struct mr_recording *rec = look->rec;
    uint64_t n = 0, p = 0, n_known = 0, steps = look->n_steps ? look->n_steps : 1;
    double ns = 0;
    uint64_t *sum = calloc((size_t)rec->n_strings * 2 + 2, sizeof *sum),
             *count = sum ? sum + rec->n_strings + 1 : NULL;
    if (!sum)
        return mr_error_nomem("names of kernels", rec->n_strings * sizeof *sum);
    for (size_t i = 0; i < look->idle.n; i++) {
        const struct mr_interval *gap = &look->idle.at[i];
        const struct mr_rec_op *next = op_from(look, gap->end_ns);
        uint64_t own = 0;
        for (; p < c->idle.n && c->idle.at[p].start_ns < gap->end_ns; p++)
            if (c->idle.at[p].class == MR_IDLE_LAUNCH)
                own += c->idle.at[p].end_ns - c->idle.at[p].start_ns;
        n_known += next && next->api < rec->n_apis;
        if (own <= NODE_NS)
            continue;
        bool kernel = next && next->kind == MR_OP_KERNEL && next->name < rec->n_strings;
        uint32_t name = kernel ? next->name : 0;
        n++;
        ns += (double)(own - NODE_NS);
        sum[name] += own;
        count[name]++;
    }
    if (look->place.n_kernels == 0 || (n_known == 0 && look->idle.n > 0)) {
        free(sum);
        return mr_cannot_tell(out, look->place.n_kernels == 0
                                       ? "no kernels were recorded"
                                       : "the calls that launched the kernels were not recorded");
    }
    double each = (double)n / (double)steps;
    char queue[160] = "";
    bool enough = each >= LAUNCH_GAPS && ns >= LAUNCH_SHARE * (double)look->wall_ns;
    int rc = enough ? tell_queue(c, queue, sizeof queue) : 0;
    snprintf(out->title, sizeof out->title, "the device waits for launches: %.0f gaps%s", each,
             mr_case_per(c));
    snprintf(out->why, sizeof out->why,
             "%" PRIu64 " gaps, of any length, in which the thread was launching, or in its own "
             "code between two launches of a burst, or the device took its time after a launch: "
             "%.3f ms%s beyond 1 us each, which a graph leaves.%s Needs at least %d gaps a step "
             "and %.0f%% of the time.",
             n, mr_case_ms(c, ns), mr_case_per(c), queue, LAUNCH_GAPS, 100 * LAUNCH_SHARE);
    snprintf(out->advice, sizeof out->advice,
             "Launch less often: CUDA graphs (torch.cuda.graph, "
             "torch.compile(mode=\"reduce-overhead\"), "
             "cudaStreamBeginCapture), fused "
             "optimizers (fused=True), larger batches.");
    mr_judge_saving(c, out, ns, 0.7);
    if (!enough)
        out->verdict = MR_FINE;
    if (!rc && out->verdict == MR_FOUND)
        rc = kernels_table(c, sum, count, &out->evidence);
    free(sum);
    return rc;
}

/* ---- tensor_cores ---- */

#define TENSOR_SHARE   0.05 /* of compute time */
#define TENSOR_SPEEDUP 2    /* assumed at least */
#define TENSOR_UNUSED  1    /* percent of kernel time by counters: below it names are right */

static bool has_any(const char *name, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasestr(name, parts[i]))
            return true;
    return false;
}

/* 1: multiplies matrices without tensor cores, by its name; 0: with them, or something else. */
static bool misses_tensor_cores(const char *name)
{
    static const char *const work[] = {"gemm",     "cudnn", "_conv", "conv2d", "conv3d",
                                       "winograd", "wgrad", "dgrad", "fprop",  "implicit_con"};
    static const char *const other[] = {"gemv",         "nchwToNhwc",     "nhwcToNchw", "convert",
                                        "bn_fw",        "bn_bw",          "batch_norm", "pooling",
                                        "splitKreduce", "tensorTransform"};
    static const char *const with[] = {
        "s884",   "h884",    "s1688",    "h1688", "s16816", "h16816", "i8816", "i16832",   "i16816",
        "s16832", "h161616", "s161616",  "hmma",  "imma",   "wgmma",  "gmma",  "tensorop", "tf32",
        "s64x",   "nvjet",   "bf16gemm", "_tc_",  "h64x",   "qmma",   "dmma",  "d884"};
    /* cuBLAS' xmma kernels of f32 without TF32: "sm80_xmma_gemm_f32f32_f32f32_f32_..._ffma_..." */
    static const char *const without[] = {"simt", "_ffma_", "_hfma_", "gemm_f32f32_f32f32_f32"};
    if (!has_any(name, work, MR_COUNT(work)) || has_any(name, other, MR_COUNT(other)))
        return false;
    if (has_any(name, without, MR_COUNT(without)))
        return true;
    return !has_any(name, with, MR_COUNT(with)) && !strcasestr(name, "xmma");
}

/* "the tensor pipe was active ...", or that this was not recorded. [out] active: percent of kernel
 * time; as it was where not recorded. */
static int tell_active(const struct mr_case *c, double *active, char *out, size_t cap)
{
    int rc = mr_case_tensor_active(c, active);
    if (rc > 0)
        snprintf(out, cap, "By counters the tensor pipe was active %.1f%% of kernel time.",
                 *active);
    else
        snprintf(out, cap, "Counters of the tensor pipe were not recorded (--gpu-metrics).");
    return rc < 0 ? rc : 0;
}

static int judge_tensor(const struct mr_case *c, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    const struct mr_recording *rec = look->rec;
    const struct mr_rec_device *device = mr_look_device(look);
    if (look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded");
    if (mr_case_simulated(c))
        return mr_cannot_tell(out, "the device is simulated");
    if (!device || device->major == 0)
        return mr_cannot_tell(out, "the recording lacks the device's compute capability");
    if (device->major < 7)
        return mr_fine(out, "a device of compute capability %u.%u has no tensor cores",
                       device->major, device->minor);
    uint64_t *ns = calloc((size_t)rec->n_strings * 2 + 2, sizeof *ns),
             *count = ns ? ns + rec->n_strings + 1 : NULL, all = 0, sum = 0;
    signed char *known = calloc((size_t)rec->n_strings + 1, 1);
    int rc = ns && known ? 0 : mr_error_nomem("names of kernels", rec->n_strings * sizeof *ns);
    for (uint64_t i = 0; !rc && i < look->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[look->ops[i]];
        if (op->kind != MR_OP_KERNEL || op->name >= rec->n_strings || !mr_case_in(c, op->start_ns))
            continue;
        if (known[op->name] == 0)
            known[op->name] = misses_tensor_cores(mr_case_string(c, op->name)) ? 1 : -1;
        all += op->end_ns - op->start_ns;
        if (known[op->name] < 0)
            continue;
        ns[op->name] += op->end_ns - op->start_ns;
        count[op->name]++;
        sum += op->end_ns - op->start_ns;
    }
    if (!rc) {
        double share = all ? (double)sum / (double)all : 0, active = 100;
        char counters[100];
        rc = tell_active(c, &active, counters, sizeof counters);
        snprintf(out->title, sizeof out->title,
                 "by their names, %.0f%% of kernel time multiplies matrices without tensor cores",
                 100 * share);
        snprintf(out->why, sizeof out->why,
                 "kernels named as matrix products or convolutions, without a mark of tensor "
                 "cores (s16816, hmma, tensorop, ...): %.3f ms%s. Counted: that x (1 - 1/%d), "
                 "because tensor cores are at least twice as fast; needs %.0f%% of kernel time "
                 "or more. Names are only a hint. %s",
                 mr_case_ms(c, (double)sum), mr_case_per(c), TENSOR_SPEEDUP, 100 * TENSOR_SHARE,
                 counters);
        snprintf(out->advice, sizeof out->advice,
                 "Allow TF32 (torch.set_float32_matmul_precision(\"high\")) or train in bfloat16 "
                 "(torch.autocast); "
                 "sizes that are multiples of "
                 "8, channels_last for convolutions.");
        mr_judge_saving(c, out, (double)sum * (1 - 1.0 / TENSOR_SPEEDUP),
                        active < TENSOR_UNUSED ? 0.8 : 0.4);
        if (share < TENSOR_SHARE)
            out->verdict = MR_FINE;
        if (!rc && out->verdict == MR_FOUND)
            rc = kernels_table(c, ns, count, &out->evidence);
    }
    free(ns);
    free(known);
    return rc;
}

/* ---- context_switches ---- */

#define MANY_SWITCHES 1 /* a step */
#define SLICE_NS      2000000

/* A row for each process that runs kernels on this device in the time looked at. */
static int processes_table(const struct mr_case *c, struct mr_table **out)
{
    static const struct mr_column columns[] = {{"PID", MR_UNIT_NONE, MR_CELL_INT},
                                               {"Kernels", MR_UNIT_COUNT, MR_CELL_INT},
                                               {"Time", MR_UNIT_NS, MR_CELL_INT},
                                               {"Command", MR_UNIT_NONE, MR_CELL_TEXT}};
    const struct mr_recording *rec = c->look->rec;
    uint64_t *n = calloc((size_t)rec->n_processes * 2 + 2, sizeof *n),
             *ns = n ? n + rec->n_processes + 1 : NULL;
    struct mr_table *table = n ? mr_table_create("processes", columns, MR_COUNT(columns)) : NULL;
    if (!table) {
        free(n);
        return mr_error_nomem("evidence", rec->n_processes * sizeof *n);
    }
    for (uint64_t i = 0; i < rec->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[i];
        if (op->device != c->look->place.device || op->kind != MR_OP_KERNEL ||
            op->process >= rec->n_processes || !mr_case_in(c, op->start_ns))
            continue;
        n[op->process]++;
        ns[op->process] += op->end_ns - op->start_ns;
    }
    for (uint32_t p = 0; p < rec->n_processes; p++) {
        if (n[p] == 0)
            continue;
        mr_table_row(table);
        mr_table_int(table, rec->processes[p].pid);
        mr_table_int(table, (int64_t)n[p]);
        mr_table_int(table, (int64_t)ns[p]);
        mr_table_text(table, mr_case_string(c, rec->processes[p].command));
    }
    free(n);
    return mr_table_finish(table, out);
}

/* Kernels of all processes on this device by start: a gap before one of ours that follows another's
 * is a switch. */
static int judge_switches(const struct mr_case *c, struct mr_judgement *out)
{
    const struct mr_look *look = c->look;
    const struct mr_recording *rec = look->rec;
    uint64_t n = 0, n_mine = 0, together = 0, others = 0, n_plain = 0, ended = 0;
    double gap_ns = 0, plain_ns = 0;
    const struct mr_rec_op *before = NULL;
    for (uint64_t i = 0; i < rec->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[i];
        if (op->device != look->place.device || op->kind != MR_OP_KERNEL ||
            !mr_case_in(c, op->start_ns))
            continue;
        bool mine = op->process == look->place.process;
        double gap =
            ended < op->start_ns ? (double)MR_MIN(op->start_ns - ended, (uint64_t)SLICE_NS) : 0;
        others += !mine;
        if (before && before->process != op->process) {
            n++;
            together += ended > op->start_ns;
            n_mine += mine;
            gap_ns += mine ? gap : 0;
        } else if (before && mine) {
            n_plain++;
            plain_ns += gap;
        }
        if (!before || op->end_ns > ended)
            ended = op->end_ns;
        before = op;
    }
    if (look->place.n_kernels == 0)
        return mr_cannot_tell(out, "no kernels were recorded");
    if (others == 0)
        return mr_fine(out, "no other recorded process runs kernels on this device");
    if (together * 2 > n)
        return mr_fine(out,
                       "kernels of several processes run at the same time (%" PRIu64 " of %" PRIu64
                       " changes): probably MPS",
                       together, n);
    double plain = n_plain ? plain_ns / (double)n_plain : 0,
           steps = (double)(look->n_steps ? look->n_steps : 1);
    snprintf(out->title, sizeof out->title,
             "several processes take turns on the device: %.0f changes%s", (double)n / steps,
             mr_case_per(c));
    snprintf(
        out->why, sizeof out->why,
        "%" PRIu64 " times a kernel followed one of another process, %" PRIu64
        " times one of this process, the device idle before these for %.3f ms%s (gaps up to 2 ms); "
        "counted: that less the usual gap (%.1f us) each, where the work was given before. Device "
        "numbers of processes with "
        "CUDA_VISIBLE_DEVICES "
        "may differ.",
        n, n_mine, mr_case_ms(c, gap_ns), mr_case_per(c), plain / 1e3);
    snprintf(out->advice, sizeof out->advice,
             "Run the MPS daemon (nvidia-cuda-mps-control -d; millrace doctor shows whether it "
             "runs), give each process its own device or MIG slice, or run one process.");
    mr_judge_saving(
        c, out, MR_MIN(gap_ns - plain * (double)n_mine, (double)c->idle_ns[MR_IDLE_SWITCH]), 0.3);
    if ((double)n < MANY_SWITCHES * steps)
        out->verdict = MR_FINE;
    return out->verdict == MR_FOUND ? processes_table(c, &out->evidence) : 0;
}

const struct mr_rule mr_rules_compute[] = {
    {"launch_bound", judge_launches},
    {"tensor_cores", judge_tensor},
    {"context_switches", judge_switches},
    {NULL, NULL},
};
