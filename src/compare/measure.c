/* Steps and copies of one recording, for a comparison. */
#include "compare/measure.h"

#include <string.h>

const char *mr_of_step_text(int part)
{
    static const char *const text[] = {[MR_OF_STEP] = "step",
                                       [MR_OF_COMPUTE] = "compute",
                                       [MR_OF_COPY] = "copy exposed",
                                       [MR_OF_COMMUNICATION] = "communication exposed",
                                       [MR_OF_OTHERS] = "other processes",
                                       [MR_OF_DATA] = "data wait",
                                       [MR_OF_IDLE] = "idle"};
    return part < MR_OF_CLASS ? text[part] : mr_idle_text((enum mr_idle_class)(part - MR_OF_CLASS));
}

/* What a step's time is split by, beside what the case knows. */
struct split {
    struct mr_intervals comm;
    struct mr_intervals to_device; /* copies that no compute hides */
};

static int split_make(const struct mr_look *look, struct split *out)
{
    int rc = mr_comm_exposed(look, &out->comm);
    if (rc < 0)
        return rc;
    mr_intervals_without(&look->h2d, &look->compute, &out->to_device);
    return out->to_device.lost
               ? mr_error_nomem("intervals", out->to_device.n * sizeof *out->to_device.at)
               : 0;
}

static void split_free(struct split *split)
{
    mr_intervals_free(&split->comm);
    mr_intervals_free(&split->to_device);
}

static void put_step(const struct mr_case *c, const struct split *split, uint64_t i,
                     struct mr_measured *out)
{
    const struct mr_look *look = c->look;
    const struct mr_interval *at = &look->steps.at[look->n_warm + i];
    uint64_t from = at->start_ns, to = at->end_ns, ns[MR_N_OF_STEP] = {0};
    uint64_t compute = mr_intervals_within(&look->compute, from, to);
    mr_idle_add_up(&c->idle, from, to, ns + MR_OF_CLASS);
    ns[MR_OF_STEP] = to - from;
    ns[MR_OF_COMMUNICATION] = mr_intervals_within(&split->comm, from, to);
    ns[MR_OF_COMPUTE] = compute - ns[MR_OF_COMMUNICATION];
    ns[MR_OF_COPY] = mr_intervals_within(&look->busy, from, to) - compute;
    ns[MR_OF_OTHERS] = mr_intervals_within(&look->others, from, to);
    ns[MR_OF_IDLE] = mr_intervals_within(&look->idle, from, to);
    ns[MR_OF_DATA] =
        ns[MR_OF_CLASS + MR_IDLE_LOADER] + mr_intervals_within(&split->to_device, from, to);
    for (uint64_t part = 0; part < MR_N_OF_STEP; part++)
        out->ns[part * out->n + i] = (double)ns[part];
}

static int put_steps(const struct mr_case *c, struct mr_measured *out)
{
    const struct mr_look *look = c->look;
    struct split split = {0};
    uint64_t n = look->steps.n - look->n_warm;
    out->ns = calloc(n * MR_N_OF_STEP + 1, sizeof *out->ns);
    if (!out->ns)
        return mr_error_nomem("steps", n * MR_N_OF_STEP * sizeof *out->ns);
    out->n = n;
    memcpy(out->how, look->steps.how, sizeof out->how);
    int rc = split_make(look, &split);
    for (uint64_t i = 0; i < n && rc == 0; i++)
        put_step(c, &split, i, out);
    split_free(&split);
    return rc;
}

static void put_copies(const struct mr_look *look, struct mr_measured *out)
{
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        uint32_t k = 0;
        if (op->kind != MR_OP_COPY)
            continue;
        while (k < out->n_copies &&
               (out->copies[k].kind != op->copy_kind || out->copies[k].src != op->src ||
                out->copies[k].dst != op->dst))
            k++;
        if (k == MR_KINDS_OF_COPY)
            continue;
        if (k == out->n_copies)
            out->copies[out->n_copies++] =
                (struct mr_copies_of){.kind = op->copy_kind, .src = op->src, .dst = op->dst};
        out->copies[k].n++;
        out->copies[k].bytes += op->bytes;
        out->copies[k].ns += op->end_ns - op->start_ns;
    }
}

int mr_measure(const struct mr_case *c, void *measured)
{
    struct mr_measured *out = measured;
    out->has_work = true;
    put_copies(c->look, out);
    return put_steps(c, out);
}

void mr_measured_free(struct mr_measured *measured)
{
    free(measured->ns);
    *measured = (struct mr_measured){0};
}
