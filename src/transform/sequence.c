/* Ops on sequences: the elements along the first dimension, each of any shape and dtype. */
#include "transform/transform.h"

#include <string.h>

enum { SIDE_RIGHT, SIDE_LEFT };
static const char *const sides[] = {"right", "left", NULL};

struct sequence_args {
    uint64_t length;
    int64_t by; /* shift */
    double value;
    int side;
};

#define LENGTH_OPTION(text)                                                                        \
    {                                                                                              \
        .name = "length", .type = MR_OPT_UINT, .offset = offsetof(struct sequence_args, length),   \
        .max = 0x1p40, .unit = "elements", .help = text                                            \
    }
#define SIDE_OPTION(text)                                                                          \
    {                                                                                              \
        .name = "side", .type = MR_OPT_ENUM, .offset = offsetof(struct sequence_args, side),       \
        .initial = "right", .choices = sides, .help = text                                         \
    }
#define VALUE_OPTION(text)                                                                         \
    {                                                                                              \
        .name = "value", .type = MR_OPT_DOUBLE, .offset = offsetof(struct sequence_args, value),   \
        .help = text                                                                               \
    }

static const struct mr_option truncate_options[] = {
    LENGTH_OPTION("kept at most"), SIDE_OPTION("where elements are removed"), {0}};
static const struct mr_option pad_to_options[] = {
    LENGTH_OPTION("of the result"),
    VALUE_OPTION("of the new elements"),
    SIDE_OPTION("where elements are added"),
    {0},
};
static const struct mr_option shift_options[] = {
    {.name = "by",
     .type = MR_OPT_INT,
     .offset = offsetof(struct sequence_args, by),
     .initial = "1",
     .min = -0x1p40,
     .max = 0x1p40,
     .unit = "elements",
     .help = "to the left; negative: to the right"},
    VALUE_OPTION("of the elements that nothing moves to"),
    {0},
};
static const struct mr_option random_span_options[] = {LENGTH_OPTION("of the window"), {0}};

static int length_check(const struct mr_op *op)
{
    const struct sequence_args *a = op->args;
    if (a->length == 0)
        return mr_op_error(op, MR_EOPTION, "expected %s(length), above 0", op->ops->name);
    return 0;
}

static int needs_elements(const struct mr_op *op, const struct mr_spec *spec)
{
    return spec->rank == 0 ? mr_op_misfit(op, spec, "needs a first dimension, not") : 0;
}

static bool varies(const struct mr_spec *spec)
{
    return spec->var_dims & 1;
}

/* The value becomes an element as it is, or the chain does not bind. */
static int take_value(struct mr_op *op, const struct mr_spec *spec)
{
    const struct sequence_args *a = op->args;
    if (!mr_element_holds(spec->dtype, a->value))
        return mr_op_error(op, MR_EOPTION, "value %.17g: expected a number that %s can hold",
                           a->value, mr_dtype_name(spec->dtype));
    mr_element_from_double(spec->dtype, a->value, op->bound.value);
    return 0;
}

/* Bytes of one element of the sequence. */
static uint64_t element_bytes(const struct mr_op *op, const uint64_t *dim)
{
    return mr_dims_after(dim, op->in.rank, 0) * mr_dtype_size(op->in.dtype);
}

/* What truncate and random_span leave of so many elements. */
static uint64_t at_most(const struct mr_op *op, uint64_t n)
{
    const struct sequence_args *a = op->args;
    return MR_MIN(n, a->length);
}

static void at_most_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    out_dim[0] = at_most(op, in_dim[0]);
}

/* Copies the elements [first, first + what is left). */
static int copy_part(const struct mr_op *op, struct mr_op_call *call, uint64_t first)
{
    uint64_t element = element_bytes(op, call->in_dim);
    at_most_shape(op, call->in_dim, call->out_dim);
    memcpy(call->out, (const char *)call->in + first * element, call->out_dim[0] * element);
    return 0;
}

static int truncate_infer(struct mr_op *op, struct mr_spec *spec)
{
    int rc = needs_elements(op, spec);
    if (rc < 0)
        return rc;
    spec->dim[0] = at_most(op, spec->dim[0]);
    return 0;
}

static int truncate_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct sequence_args *a = op->args;
    uint64_t n = call->in_dim[0];
    return copy_part(op, call, a->side == SIDE_LEFT ? n - at_most(op, n) : 0);
}

static int random_span_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct sequence_args *a = op->args;
    int rc = truncate_infer(op, spec);
    if (rc < 0)
        return rc;
    if (!varies(spec) && spec->dim[0] < a->length)
        return mr_op_misfit(op, spec, "does not fit");
    return 0;
}

/* [0, n): the high word of a product. */
static uint64_t below(uint32_t high, uint32_t low, uint64_t n)
{
    return (uint64_t)((unsigned __int128)((uint64_t)high << 32 | low) * n >> 64);
}

static int random_span_apply(const struct mr_op *op, struct mr_op_call *call)
{
    uint64_t n = call->in_dim[0];
    return copy_part(op, call, below(call->random[0], call->random[1], n - at_most(op, n) + 1));
}

static int pad_to_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct sequence_args *a = op->args;
    int rc = needs_elements(op, spec);
    if (rc == 0)
        rc = take_value(op, spec);
    if (rc < 0)
        return rc;
    if (!varies(spec) && spec->dim[0] > a->length)
        return mr_op_misfit(op, spec, "is shorter than");
    spec->dim[0] = a->length;
    spec->var_dims &= ~1u;
    return 0;
}

static void pad_to_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    memcpy(out_dim, in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    out_dim[0] = ((const struct sequence_args *)op->args)->length;
}

static int pad_to_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct sequence_args *a = op->args;
    uint64_t n = call->in_dim[0], element = element_bytes(op, call->in_dim);
    size_t size = mr_dtype_size(op->in.dtype);
    if (n > a->length)
        return mr_op_error(op, MR_ESHAPE, "a sample of %llu elements: put truncate(%llu) before it",
                           (unsigned long long)n, (unsigned long long)a->length);
    pad_to_shape(op, call->in_dim, call->out_dim);
    uint64_t more = (a->length - n) * element;
    char *to = call->out;
    if (a->side == SIDE_LEFT)
        to = mr_op_fill(to, more, op->bound.value, size);
    memcpy(to, call->in, n * element);
    if (a->side == SIDE_RIGHT)
        mr_op_fill(to + n * element, more, op->bound.value, size);
    return 0;
}

static int shift_infer(struct mr_op *op, struct mr_spec *spec)
{
    int rc = needs_elements(op, spec);
    return rc < 0 ? rc : take_value(op, spec);
}

static int shift_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct sequence_args *a = op->args;
    uint64_t n = call->in_dim[0], element = element_bytes(op, call->in_dim);
    uint64_t by = MR_MIN((uint64_t)(a->by < 0 ? -a->by : a->by), n), kept = n - by;
    size_t size = mr_dtype_size(op->in.dtype);
    const char *in = call->in;
    char *out = call->out;
    memcpy(call->out_dim, call->in_dim, sizeof(uint64_t[MR_MAX_RANK]));
    if (a->by < 0)
        out = mr_op_fill(out, by * element, op->bound.value, size);
    memcpy(out, a->by < 0 ? in : in + by * element, kept * element);
    if (a->by >= 0)
        mr_op_fill(out + kept * element, by * element, op->bound.value, size);
    return 0;
}

const struct mr_op_ops mr_op_truncate = {
    .name = "truncate",
    .several = MR_SEVERAL_ANY,
    .arguments = "length[,side=]",
    .summary = "the first length elements of a sequence; side=left: the last",
    .options = truncate_options,
    .positional = (const char *const[]){"length", NULL},
    .args_bytes = sizeof(struct sequence_args),
    .check = length_check,
    .infer = truncate_infer,
    .shape = at_most_shape,
    .apply = truncate_apply,
};

const struct mr_op_ops mr_op_pad_to = {
    .name = "pad_to",
    .several = MR_SEVERAL_ANY,
    .arguments = "length[,value][,side=]",
    .summary = "add elements of value (0) until a sequence has length elements",
    .options = pad_to_options,
    .positional = (const char *const[]){"length", "value", NULL},
    .args_bytes = sizeof(struct sequence_args),
    .check = length_check,
    .infer = pad_to_infer,
    .shape = pad_to_shape,
    .apply = pad_to_apply,
};

const struct mr_op_ops mr_op_shift = {
    .name = "shift",
    .several = MR_SEVERAL_ANY,
    .arguments = "[by,value]",
    .summary = "move a sequence to the left by some elements (1), value (0) behind them",
    .options = shift_options,
    .positional = (const char *const[]){"by", "value", NULL},
    .args_bytes = sizeof(struct sequence_args),
    .infer = shift_infer,
    .apply = shift_apply,
};

const struct mr_op_ops mr_op_random_span = {
    .name = "random_span",
    .several = MR_SEVERAL_LENGTHS,
    .arguments = "length",
    .summary = "length neighbouring elements at a random place; a shorter sample stays whole",
    .options = random_span_options,
    .positional = (const char *const[]){"length", NULL},
    .args_bytes = sizeof(struct sequence_args),
    .random = true,
    .check = length_check,
    .infer = random_span_infer,
    .shape = at_most_shape,
    .apply = random_span_apply,
};
