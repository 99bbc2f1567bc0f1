/*
 * cast, scale and normalize.
 *
 * Each op's result is rounded to the op's dtype, so only ops on the dtype that a pass computes in
 * can share it: f32 or f64 in registers, other dtypes only at the pass's load and store. f16 and
 * bf16 are computed in f32 and rounded after each op.
 */
#include "transform/transform.h"

#include <math.h>
#include <string.h>

static bool is_float(enum mr_dtype d)
{
    return d == MR_F16 || d == MR_BF16 || d == MR_F32 || d == MR_F64;
}

/* All values are f32s, and so is every sum of the small integers' rounding. */
static bool is_small(enum mr_dtype d)
{
    return d == MR_BOOL || d == MR_U8 || d == MR_I8 || d == MR_U16 || d == MR_I16 || d == MR_F16 ||
           d == MR_BF16;
}

/* The dtype through which from -> to is converted with a single rounding (with mr_load_f64_odd for
 * 64-bit integers). */
static enum mr_dtype cast_through(enum mr_dtype from, enum mr_dtype to)
{
    if (to == MR_F32 || ((is_small(from) || from == MR_F32) && is_small(to)))
        return MR_F32;
    return MR_F64;
}

/* The first op of a pass, a cast, chooses how the pass computes. */
static void begin_cast(struct mr_pointwise *p, enum mr_dtype to)
{
    if (p->from == to)
        return; /* still a copy */
    bool wide = p->from == MR_I64 || p->from == MR_U64;
    p->compute = cast_through(p->from, to);
    p->direct = mr_convert_wide(p->from, to);
    p->load = wide && to != MR_F32 && to != MR_F64 ? mr_load_f64_odd(p->from) : NULL;
    p->to = to;
}

static bool cast_fuse(const struct mr_op *op, struct mr_pointwise *p, uint32_t op_in_stage)
{
    (void)op_in_stage;
    enum mr_dtype to = op->out.dtype;
    if (p->compute == MR_N_DTYPES) {
        begin_cast(p, to);
        return true;
    }
    if (p->to != p->compute || (p->compute == MR_F32 && to != MR_F32 && !is_small(to)))
        return false;
    p->to = to;
    return true;
}

/* The pass can take an arithmetic op: its elements are, or can be loaded as, the op's dtype. */
static bool computes(const struct mr_pointwise *p, uint32_t n_more)
{
    if (p->n_pairs + n_more > MR_MAX_PAIRS)
        return false;
    return p->compute == MR_N_DTYPES || p->to == p->compute;
}

static void begin_compute(struct mr_pointwise *p)
{
    if (p->compute == MR_N_DTYPES)
        p->compute = p->to == MR_F64 ? MR_F64 : MR_F32;
}

static void set_pair(struct mr_pointwise *p, uint32_t channel, uint32_t pair, double add,
                     double mul)
{
    if (p->compute == MR_F64) {
        p->c.f64[channel][pair][0] = add;
        p->c.f64[channel][pair][1] = mul;
    } else {
        p->c.f32[channel][pair][0] = (float)add;
        p->c.f32[channel][pair][1] = (float)mul;
    }
}

/* 1 -> n channels with the same constants. */
static void spread(struct mr_pointwise *p, uint32_t channels)
{
    for (uint32_t c = 1; p->channels == 1 && c < channels; c++)
        if (p->compute == MR_F64)
            memcpy(p->c.f64[c], p->c.f64[0], sizeof p->c.f64[0]);
        else
            memcpy(p->c.f32[c], p->c.f32[0], sizeof p->c.f32[0]);
    p->channels = channels;
}

/* cast(dtype) */
struct cast_args {
    int dtype;
};

static const struct mr_option cast_options[] = {
    {.name = "dtype",
     .type = MR_OPT_DTYPE,
     .offset = offsetof(struct cast_args, dtype),
     .help = "what to convert to"},
    {0},
};

static void cast_preset(void *args)
{
    ((struct cast_args *)args)->dtype = -1;
}

static int cast_check(const struct mr_op *op)
{
    const struct cast_args *a = op->args;
    if (a->dtype < 0 || a->dtype == MR_C64 || a->dtype == MR_C128)
        return mr_op_error(op, MR_EOPTION, "expected cast(dtype), a real one, e.g. cast(f32)");
    return 0;
}

static int cast_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct cast_args *a = op->args;
    if (spec->dtype == MR_C64 || spec->dtype == MR_C128)
        return mr_op_misfit(op, spec, "cannot convert complex numbers:");
    spec->dtype = (enum mr_dtype)a->dtype;
    return 0;
}

const struct mr_op_ops mr_op_cast = {
    .name = "cast",
    .arguments = "dtype",
    .summary = "convert; floats to integers: round to nearest even, saturate, NaN -> 0",
    .options = cast_options,
    .positional = (const char *const[]){"dtype", NULL},
    .args_bytes = sizeof(struct cast_args),
    .preset = cast_preset,
    .check = cast_check,
    .infer = cast_infer,
    .fuse = cast_fuse,
};

/* scale(factor[,offset]) */
struct scale_args {
    double factor, offset;
};

static const struct mr_option scale_options[] = {
    {.name = "factor",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct scale_args, factor),
     .help = "multiplies"},
    {.name = "offset",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct scale_args, offset),
     .help = "added to the product"},
    {0},
};

static void scale_preset(void *args)
{
    ((struct scale_args *)args)->factor = (double)NAN;
}

static int scale_check(const struct mr_op *op)
{
    const struct scale_args *a = op->args;
    if (isnan(a->factor))
        return mr_op_error(op, MR_EOPTION, "expected scale(factor[,offset]), e.g. scale(1/255)");
    return 0;
}

static int floats_only(const struct mr_op *op, const struct mr_spec *spec)
{
    if (!is_float(spec->dtype))
        return mr_op_misfit(op, spec, "floats only; put cast(f32) before it for");
    return 0;
}

static int scale_infer(struct mr_op *op, struct mr_spec *spec)
{
    return floats_only(op, spec);
}

static bool scale_fuse(const struct mr_op *op, struct mr_pointwise *p, uint32_t op_in_stage)
{
    (void)op_in_stage;
    const struct scale_args *a = op->args;
    uint32_t n = 1 + (a->offset != 0);
    if (!computes(p, n))
        return false;
    begin_compute(p);
    for (uint32_t c = 0; c < p->channels; c++) {
        set_pair(p, c, p->n_pairs, -0.0, a->factor);
        if (a->offset != 0)
            set_pair(p, c, p->n_pairs + 1, a->offset, 1);
    }
    p->n_pairs += n;
    return true;
}

const struct mr_op_ops mr_op_scale = {
    .name = "scale",
    .arguments = "factor[,offset]",
    .summary = "x * factor + offset; floats only",
    .options = scale_options,
    .positional = (const char *const[]){"factor", "offset", NULL},
    .args_bytes = sizeof(struct scale_args),
    .preset = scale_preset,
    .check = scale_check,
    .infer = scale_infer,
    .fuse = scale_fuse,
};

/* normalize(mean,std[,axis]) */
#define AXIS_DEFAULT INT64_MIN

struct normalize_args {
    struct mr_doubles mean, std;
    int64_t axis;
};

static const struct mr_option normalize_options[] = {
    {.name = "mean",
     .type = MR_OPT_DOUBLES,
     .offset = offsetof(struct normalize_args, mean),
     .help = "subtracted; one number, or one per channel"},
    {.name = "std",
     .type = MR_OPT_DOUBLES,
     .offset = offsetof(struct normalize_args, std),
     .help = "the result is multiplied by its reciprocal; one number, or one per channel"},
    {.name = "axis",
     .type = MR_OPT_INT,
     .offset = offsetof(struct normalize_args, axis),
     .help = "the channels' dimension; negative: from the last"},
    {0},
};

static void normalize_preset(void *args)
{
    ((struct normalize_args *)args)->axis = AXIS_DEFAULT;
}

static int normalize_check(const struct mr_op *op)
{
    const struct normalize_args *a = op->args;
    if (a->mean.n == 0 || a->std.n == 0)
        return mr_op_error(op, MR_EOPTION,
                           "expected normalize(mean,std), e.g. normalize(0.1307,0.3081)");
    if (a->mean.n != a->std.n && a->mean.n != 1 && a->std.n != 1)
        return mr_op_error(op, MR_EOPTION,
                           "%d means and %d standard deviations: expected as many, or one",
                           a->mean.n, a->std.n);
    for (int i = 0; i < a->std.n; i++)
        if (!(a->std.v[i] > 0))
            return mr_op_error(op, MR_EOPTION, "std %g: expected above 0", a->std.v[i]);
    return 0;
}

/* The first of 3 dimensions when it is as long as the lists (CHW), else the last. */
static int64_t default_axis(const struct mr_spec *spec, int channels)
{
    bool first = spec->rank == 3 && !(spec->var_dims & 1) && spec->dim[0] == (uint64_t)channels;
    return first ? 0 : spec->rank - 1;
}

static int normalize_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct normalize_args *a = op->args;
    int rc = floats_only(op, spec);
    int channels = MR_MAX(a->mean.n, a->std.n);
    op->bound.axis = 0;
    if (rc || channels == 1)
        return rc;
    int64_t axis = a->axis != AXIS_DEFAULT ? a->axis : default_axis(spec, channels);
    axis += axis < 0 ? spec->rank : 0;
    if (axis < 0 || axis >= spec->rank)
        return mr_op_misfit(op, spec, "no such axis in");
    bool varies = spec->var_dims >> axis & 1;
    if (varies || spec->dim[axis] != (uint64_t)channels)
        return mr_op_misfit(
            op, spec,
            "the axis and the numbers given differ in length; name another with axis= for");
    op->bound.axis = (int)axis;
    return 0;
}

uint32_t mr_normalize_channels(const struct mr_op *op)
{
    const struct normalize_args *a = op->args;
    return (uint32_t)MR_MAX(a->mean.n, a->std.n);
}

/* 0 when a dimension behind the axis varies. */
static uint64_t fixed_inner(const struct mr_op *op)
{
    if (op->in.var_dims >> (op->bound.axis + 1))
        return 0;
    return mr_dims_after(op->in.dim, op->in.rank, op->bound.axis);
}

static bool normalize_fuse(const struct mr_op *op, struct mr_pointwise *p, uint32_t op_in_stage)
{
    const struct normalize_args *a = op->args;
    uint32_t channels = mr_normalize_channels(op);
    uint64_t inner = channels > 1 ? fixed_inner(op) : 0;
    bool same = p->channels == channels && p->inner == inner && inner > 0;
    if (!computes(p, 1) || (channels > 1 && p->channels > 1 && !same))
        return false;
    begin_compute(p);
    if (channels > 1 && p->channels == 1) {
        spread(p, channels);
        p->inner = inner;
        p->axis_op = op_in_stage;
        p->axis = op->bound.axis;
    }
    for (uint32_t c = 0; c < p->channels; c++) {
        double mean = a->mean.v[a->mean.n > 1 ? c : 0], std = a->std.v[a->std.n > 1 ? c : 0];
        /* the reciprocal in the computing dtype, of std in that dtype: any device can reproduce
         * it */
        double inverse = p->compute == MR_F64 ? 1 / std : (double)(1.0f / (float)std);
        set_pair(p, c, p->n_pairs, -mean, inverse);
    }
    p->n_pairs++;
    return true;
}

const struct mr_op_ops mr_op_normalize = {
    .name = "normalize",
    .arguments = "mean,std[,axis=]",
    .summary = "(x - mean) * (1 / std); one number each, or one per channel [a,b,c]; floats only",
    .options = normalize_options,
    .positional = (const char *const[]){"mean", "std", NULL},
    .args_bytes = sizeof(struct normalize_args),
    .preset = normalize_preset,
    .check = normalize_check,
    .infer = normalize_infer,
    .fuse = normalize_fuse,
};
