/* Ops on the order of dimensions and the kind of field (layout, flatten, one_hot), and a caller's
 * own ops. */
#include "transform/transform.h"

#include <string.h>

/* layout(nchw|nhwc) */
struct layout_args {
    int to;
};

enum { TO_NONE, TO_NCHW, TO_NHWC };

static const struct mr_option layout_options[] = {
    {.name = "to",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct layout_args, to),
     .choices = mr_layout_choices,
     .help = "the output's order"},
    {0},
};

static int layout_check(const struct mr_op *op)
{
    const struct layout_args *a = op->args;
    if (a->to == TO_NONE)
        return mr_op_error(op, MR_EOPTION, "expected layout(nchw) or layout(nhwc)");
    return 0;
}

int mr_layout_source(const struct mr_op *op, int d)
{
    const struct layout_args *a = op->args;
    return a->to == TO_NCHW ? (d + 2) % 3 : (d + 1) % 3;
}

static int layout_infer(struct mr_op *op, struct mr_spec *spec)
{
    if (spec->rank != 3)
        return mr_op_misfit(op, spec, "needs 3 dimensions, not");
    uint32_t var_dims = 0;
    for (int d = 0; d < 3; d++) {
        spec->dim[d] = op->in.dim[mr_layout_source(op, d)];
        var_dims |= (op->in.var_dims >> mr_layout_source(op, d) & 1) << d;
    }
    spec->var_dims = var_dims;
    return 0;
}

static void layout_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    for (int d = 0; d < 3; d++)
        out_dim[d] = in_dim[mr_layout_source(op, d)];
}

/* Transposes [rows][columns] to [columns][rows]. 3 channels, on either side, have loops that
 * vectorise; others are processed in strips of rows that stay in the first-level cache. */
#define TILE 64
#define TRANSPOSE(bits)                                                                            \
    typedef uint##bits##_t element_##bits __attribute__((aligned(1), may_alias));                  \
    MR_CLONES static void split_##bits(const element_##bits *restrict p,                           \
                                       element_##bits *restrict q, uint64_t rows)                  \
    {                                                                                              \
        element_##bits *restrict a = q, *restrict b = q + rows, *restrict c = q + 2 * rows;        \
        for (uint64_t r = 0; r < rows; r++) {                                                      \
            a[r] = p[3 * r];                                                                       \
            b[r] = p[3 * r + 1];                                                                   \
            c[r] = p[3 * r + 2];                                                                   \
        }                                                                                          \
    }                                                                                              \
    MR_CLONES static void join_##bits(const element_##bits *restrict p,                            \
                                      element_##bits *restrict q, uint64_t columns)                \
    {                                                                                              \
        const element_##bits *restrict a = p, *restrict b = p + columns,                           \
                                       *restrict c = p + 2 * columns;                              \
        for (uint64_t i = 0; i < columns; i++) {                                                   \
            q[3 * i] = a[i];                                                                       \
            q[3 * i + 1] = b[i];                                                                   \
            q[3 * i + 2] = c[i];                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void transpose_##bits(const void *in, void *out, uint64_t rows, uint64_t columns)       \
    {                                                                                              \
        const element_##bits *restrict p = in;                                                     \
        element_##bits *restrict q = out;                                                          \
        if (columns == 3) {                                                                        \
            split_##bits(p, q, rows);                                                              \
            return;                                                                                \
        }                                                                                          \
        if (rows == 3) {                                                                           \
            join_##bits(p, q, columns);                                                            \
            return;                                                                                \
        }                                                                                          \
        for (uint64_t r0 = 0; r0 < rows; r0 += TILE)                                               \
            for (uint64_t c = 0; c < columns; c++)                                                 \
                for (uint64_t r = r0; r < MR_MIN(r0 + TILE, rows); r++)                            \
                    q[c * rows + r] = p[r * columns + c];                                          \
    }
TRANSPOSE(8)
TRANSPOSE(16)
TRANSPOSE(32)
TRANSPOSE(64)

void mr_split_u8(const void *in, void *out, uint64_t pixels)
{
    split_8(in, out, pixels);
}

static void transpose_any(const char *in, char *out, uint64_t rows, uint64_t columns,
                          size_t element)
{
    for (uint64_t c = 0; c < columns; c++)
        for (uint64_t r = 0; r < rows; r++)
            memcpy(out + (c * rows + r) * element, in + (r * columns + c) * element, element);
}

static int layout_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct layout_args *a = op->args;
    const uint64_t *d = call->in_dim;
    layout_shape(op, d, call->out_dim);
    uint64_t rows = a->to == TO_NCHW ? d[0] * d[1] : d[0],
             columns = a->to == TO_NCHW ? d[2] : d[1] * d[2];
    size_t element = mr_dtype_size(op->in.dtype);
    if (rows == 1 || columns == 1)
        memcpy(call->out, call->in, rows * columns * element);
    else if (element == 1)
        transpose_8(call->in, call->out, rows, columns);
    else if (element == 2)
        transpose_16(call->in, call->out, rows, columns);
    else if (element == 4)
        transpose_32(call->in, call->out, rows, columns);
    else if (element == 8)
        transpose_64(call->in, call->out, rows, columns);
    else
        transpose_any(call->in, call->out, rows, columns, element);
    return 0;
}

const struct mr_op_ops mr_op_layout = {
    .name = "layout",
    .several = MR_SEVERAL_ANY,
    .arguments = "nchw|nhwc",
    .summary = "reorder 3 dimensions: HWC -> CHW (nchw) or CHW -> HWC (nhwc)",
    .options = layout_options,
    .positional = (const char *const[]){"to", NULL},
    .args_bytes = sizeof(struct layout_args),
    .check = layout_check,
    .infer = layout_infer,
    .shape = layout_shape,
    .apply = layout_apply,
};

/* flatten */
static const struct mr_option no_options[] = {{0}};

static int flatten_infer(struct mr_op *op, struct mr_spec *spec)
{
    uint64_t n = 1;
    for (int d = 0; d < spec->rank; d++)
        if (!mr_mul(n, spec->dim[d], &n))
            return mr_op_misfit(op, spec, "is too much for");
    memset(spec->dim, 0, sizeof spec->dim);
    spec->dim[0] = n;
    spec->rank = 1;
    spec->var_dims = op->in.var_dims != 0;
    return 0;
}

static void flatten_shape(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim)
{
    out_dim[0] = mr_dims_after(in_dim, op->in.rank, -1);
}

const struct mr_op_ops mr_op_flatten = {
    .name = "flatten",
    .several = MR_SEVERAL_ANY,
    .arguments = "",
    .summary = "to one dimension",
    .options = no_options,
    .positional = (const char *const[]){NULL},
    .infer = flatten_infer,
    .shape = flatten_shape,
};

/* one_hot(classes[,dtype]) */
struct one_hot_args {
    uint64_t classes;
    int dtype;
};

static const struct mr_option one_hot_options[] = {
    {.name = "classes",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct one_hot_args, classes),
     .unit = "classes",
     .help = "length of the vector"},
    {.name = "dtype",
     .type = MR_OPT_DTYPE,
     .offset = offsetof(struct one_hot_args, dtype),
     .initial = "f32",
     .help = "of the vector"},
    {0},
};

static int one_hot_check(const struct mr_op *op)
{
    const struct one_hot_args *a = op->args;
    if (a->classes == 0 || a->dtype == MR_C64 || a->dtype == MR_C128)
        return mr_op_error(op, MR_EOPTION,
                           "expected one_hot(classes[,dtype]), classes above 0, a real dtype");
    return 0;
}

static int one_hot_infer(struct mr_op *op, struct mr_spec *spec)
{
    const struct one_hot_args *a = op->args;
    bool integer = spec->dtype >= MR_U8 && spec->dtype <= MR_I64;
    if (spec->rank != 0 || !integer)
        return mr_op_misfit(op, spec, "needs one integer, not");
    spec->dtype = (enum mr_dtype)a->dtype;
    spec->rank = 1;
    spec->dim[0] = a->classes;
    mr_element_from_double(spec->dtype, 1, op->bound.value);
    return 0;
}

int mr_one_hot_check(const struct mr_op *op, const void *from, uint64_t *out_class)
{
    const struct one_hot_args *a = op->args;
    bool is_signed = op->in.dtype == MR_I8 || op->in.dtype == MR_I16 || op->in.dtype == MR_I32 ||
                     op->in.dtype == MR_I64;
    uint64_t bits = 0;
    memcpy(&bits, from, mr_dtype_size(op->in.dtype)); /* little-endian */
    unsigned unused = 64 - 8 * (unsigned)mr_dtype_size(op->in.dtype);
    int64_t label = (int64_t)(bits << unused) >> unused;
    if (is_signed && label < 0)
        return mr_op_error(op, MR_EFORMAT, "label %lld: expected 0..%llu", (long long)label,
                           (unsigned long long)(a->classes - 1));
    if (bits >= a->classes)
        return mr_op_error(op, MR_EFORMAT, "label %llu: expected 0..%llu", (unsigned long long)bits,
                           (unsigned long long)(a->classes - 1));
    *out_class = bits;
    return 0;
}

static int one_hot_apply(const struct mr_op *op, struct mr_op_call *call)
{
    const struct one_hot_args *a = op->args;
    size_t element = mr_dtype_size(op->out.dtype);
    uint64_t label = 0;
    int rc = mr_one_hot_check(op, call->in, &label);
    if (rc < 0)
        return rc;
    memset(call->out, 0, a->classes * element);
    memcpy((char *)call->out + label * element, op->bound.value, element);
    call->out_dim[0] = a->classes;
    return 0;
}

const struct mr_op_ops mr_op_one_hot = {
    .name = "one_hot",
    .arguments = "classes[,dtype]",
    .summary = "integer scalar -> vector of 0 and 1 (f32 by default)",
    .default_field = "label",
    .options = one_hot_options,
    .positional = (const char *const[]){"classes", "dtype", NULL},
    .args_bytes = sizeof(struct one_hot_args),
    .check = one_hot_check,
    .infer = one_hot_infer,
    .apply = one_hot_apply,
};

/* A caller's own op. */
static int custom_infer(struct mr_op *op, struct mr_spec *spec)
{
    char name[MR_NAME_BYTES];
    memcpy(name, spec->name, sizeof name);
    int rc = op->fn.infer ? op->fn.infer(op->fn.user, spec) : 0;
    memcpy(spec->name, name, sizeof name);
    if (rc > 0)
        return mr_op_error(op, MR_ECALLBACK, "infer returned %d: expected 0 or a negative error",
                           rc);
    if (rc == 0 && (spec->rank < 0 || spec->rank > MR_MAX_RANK || mr_dtype_size(spec->dtype) == 0))
        return mr_op_error(op, MR_ESHAPE,
                           "infer gave rank %d and dtype %d: expected a rank of 0..%d and a dtype",
                           spec->rank, (int)spec->dtype, MR_MAX_RANK);
    if (rc == 0 && spec->var_dims >> spec->rank)
        return mr_op_error(op, MR_ESHAPE, "infer gave rank %d and var_dims 0x%x", spec->rank,
                           spec->var_dims);
    return rc;
}

static int custom_apply(const struct mr_op *op, struct mr_op_call *call)
{
    uint64_t errors = mr_error_count();
    int rc = op->fn.apply(op->fn.user, &op->in, call->in, call->in_dim, &op->out, call->out,
                          call->out_dim, call->random);
    if (rc != 0)
        return mr_op_callback_error(op, call->at, rc, errors);
    for (int d = 0; d < op->out.rank; d++) {
        bool varies = op->out.var_dims >> d & 1;
        if (varies ? call->out_dim[d] > op->out.dim[d] : call->out_dim[d] != op->out.dim[d])
            return mr_op_error(op, MR_ECALLBACK,
                               "apply gave dimension %d the length %llu: inferred was %s%llu", d,
                               (unsigned long long)call->out_dim[d], varies ? "at most " : "",
                               (unsigned long long)op->out.dim[d]);
    }
    return 0;
}

const struct mr_op_ops mr_op_custom = {
    .name = "custom",
    .options = no_options,
    .random = true,
    .infer = custom_infer,
    .apply = custom_apply,
};
