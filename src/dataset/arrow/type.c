/* Types of Arrow columns. */
#include "dataset/arrow/arrow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    char format;
    enum mr_dtype dtype;
    enum mr_arrow_layout layout;
    enum mr_kind kind;
} known[] = {
    {'b', MR_BOOL, MR_ARROW_BITS, MR_KIND_TENSOR}, {'c', MR_I8, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {'C', MR_U8, MR_ARROW_PLAIN, MR_KIND_TENSOR},  {'s', MR_I16, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {'S', MR_U16, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {'i', MR_I32, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {'I', MR_U32, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {'l', MR_I64, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {'L', MR_U64, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {'e', MR_F16, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {'f', MR_F32, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {'g', MR_F64, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {'u', MR_U8, MR_ARROW_TEXT32, MR_KIND_STRING}, {'U', MR_U8, MR_ARROW_TEXT64, MR_KIND_STRING},
    {'z', MR_U8, MR_ARROW_TEXT32, MR_KIND_BYTES},  {'Z', MR_U8, MR_ARROW_TEXT64, MR_KIND_BYTES},
};

static int unsupported(const char *name, const struct ArrowSchema *column, const char *format)
{
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: column '%.40s': Arrow format \"%.40s\": expected numbers, booleans, "
                        "strings, binary, or fixed-size lists of numbers or booleans",
                        name, column->name ? column->name : "", format);
}

static int append_dim(const char *name, const struct ArrowSchema *column, const char *digits,
                      struct mr_arrow_type *type, struct mr_spec *spec)
{
    char *end;
    errno = 0;
    unsigned long long n = digits[0] >= '0' && digits[0] <= '9' ? strtoull(digits, &end, 10) : 0;
    if (n == 0 || errno || *end || n > INT32_MAX)
        return mr_error_set(MR_EFORMAT,
                            "%s: column '%.40s': size \"%.20s\" in its format: expected 1 to %d",
                            name, column->name ? column->name : "", digits, INT32_MAX);
    if (spec->rank == MR_MAX_RANK || !mr_mul(type->count, n, &type->count) ||
        type->count > INT64_MAX / 16)
        return mr_error_set(MR_ELIMIT, "%s: column '%.40s': more than %d levels, or too large",
                            name, column->name ? column->name : "", MR_MAX_RANK);
    spec->dim[spec->rank++] = n;
    return 0;
}

static int read_leaf(const char *name, const struct ArrowSchema *column, const char *format,
                     struct mr_arrow_type *type, struct mr_spec *spec)
{
    size_t i = 0, n = sizeof known / sizeof *known;
    if (strncmp(format, "w:", 2) == 0) {
        spec->dtype = MR_U8;
        type->width = 1;
        int rc = append_dim(name, column, format + 2, type, spec);
        if (rc == 0)
            type->leaf = spec->dim[spec->rank - 1];
        return rc;
    }
    while (i < n && (format[0] != known[i].format || format[1]))
        i++;
    if (i == n || (known[i].kind != MR_KIND_TENSOR && spec->rank > 0))
        return unsupported(name, column, format);
    spec->dtype = known[i].dtype;
    spec->kind = known[i].kind;
    type->layout = known[i].layout;
    type->width = mr_dtype_size(spec->dtype);
    if (spec->kind == MR_KIND_TENSOR)
        return 0;
    spec->rank = 1;
    spec->var_dims = 1;
    spec->dim[0] = 1;
    return 0;
}

int mr_arrow_type_read(const char *name, const struct ArrowSchema *schema,
                       struct mr_arrow_type *type, struct mr_spec *spec)
{
    const struct ArrowSchema *at = schema;
    *type = (struct mr_arrow_type){.count = 1, .leaf = 1};
    *spec = (struct mr_spec){.rank = 0};
    if (!at || !at->release)
        return mr_error_set(MR_EMISUSE, "%s: the schema of a column is NULL or released", name);
    if (!at->name || !at->name[0] || strlen(at->name) >= MR_NAME_BYTES)
        return mr_error_set(MR_ELIMIT, "%s: column '%.40s': expected a name of 1 to %d bytes", name,
                            at->name ? at->name : "", MR_NAME_BYTES - 1);
    memcpy(spec->name, at->name, strlen(at->name));
    for (;;) {
        if (!at || !at->format)
            return mr_error_set(MR_EFORMAT, "%s: column '%s': a list without a type of its values",
                                name, spec->name);
        if (!at->release)
            return mr_error_set(MR_EMISUSE, "%s: column '%s': its type is released", name,
                                spec->name);
        if (at->dictionary)
            return mr_error_set(MR_EUNSUPPORTED,
                                "%s: column '%s': dictionary-encoded (format \"%.20s\"): expected "
                                "plain values; decode it first",
                                name, spec->name, at->format);
        if (strncmp(at->format, "+w:", 3) != 0)
            return read_leaf(name, schema, at->format, type, spec);
        int rc = append_dim(name, schema, at->format + 3, type, spec);
        if (rc < 0)
            return rc;
        type->depth++;
        at = at->n_children == 1 && at->children ? at->children[0] : NULL;
    }
}
