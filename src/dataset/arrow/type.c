/* Types of Arrow columns. */
#include "dataset/arrow/arrow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct known {
    char format[3];
    enum mr_dtype dtype;
    enum mr_arrow_layout layout;
    enum mr_kind kind;
} known[] = {
    {"b", MR_BOOL, MR_ARROW_BITS, MR_KIND_TENSOR}, {"c", MR_I8, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {"C", MR_U8, MR_ARROW_PLAIN, MR_KIND_TENSOR},  {"s", MR_I16, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {"S", MR_U16, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {"i", MR_I32, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {"I", MR_U32, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {"l", MR_I64, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {"L", MR_U64, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {"e", MR_F16, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {"f", MR_F32, MR_ARROW_PLAIN, MR_KIND_TENSOR}, {"g", MR_F64, MR_ARROW_PLAIN, MR_KIND_TENSOR},
    {"u", MR_U8, MR_ARROW_RUN32, MR_KIND_STRING},  {"U", MR_U8, MR_ARROW_RUN64, MR_KIND_STRING},
    {"z", MR_U8, MR_ARROW_RUN32, MR_KIND_BYTES},   {"Z", MR_U8, MR_ARROW_RUN64, MR_KIND_BYTES},
    {"vu", MR_U8, MR_ARROW_VIEW, MR_KIND_STRING},  {"vz", MR_U8, MR_ARROW_VIEW, MR_KIND_BYTES},
};

/* The column that is read, for errors. */
struct column {
    const char *name, *column;
};

static const struct known *find(const char *format)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i].format) == 0)
            return &known[i];
    return NULL;
}

static int unsupported(const struct column *at, const char *format)
{
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: column '%.40s': Arrow format \"%.40s\": expected numbers, booleans, "
                        "strings, binary, lists of numbers, or fixed-size lists of numbers or "
                        "booleans",
                        at->name, at->column, format);
}

static int check(const struct column *at, const struct ArrowSchema *schema)
{
    if (!schema || !schema->format)
        return mr_error_set(MR_EFORMAT, "%s: column '%.40s': a list without a type of its values",
                            at->name, at->column);
    if (!schema->release)
        return mr_error_set(MR_EMISUSE, "%s: column '%.40s': its type is released", at->name,
                            at->column);
    return 0;
}

static int append_dim(const struct column *at, const char *digits, struct mr_arrow_type *type,
                      struct mr_spec *spec)
{
    char *end;
    errno = 0;
    unsigned long long n = digits[0] >= '0' && digits[0] <= '9' ? strtoull(digits, &end, 10) : 0;
    if (n == 0 || errno || *end || n > INT32_MAX)
        return mr_error_set(MR_EFORMAT,
                            "%s: column '%.40s': size \"%.20s\" in its format: expected 1 to %d",
                            at->name, at->column, digits, INT32_MAX);
    if (spec->rank == MR_MAX_RANK || !mr_mul(type->count, n, &type->count) ||
        type->count > INT64_MAX / 16)
        return mr_error_set(MR_ELIMIT, "%s: column '%.40s': more than %d levels, or too large",
                            at->name, at->column, MR_MAX_RANK);
    spec->dim[spec->rank++] = n;
    return 0;
}

static void set_varying(struct mr_spec *spec)
{
    spec->rank = 1;
    spec->var_dims = 1;
    spec->dim[0] = 1;
}

static int read_leaf(const struct column *at, const char *format, struct mr_arrow_type *type,
                     struct mr_spec *spec)
{
    const struct known *leaf = find(format);
    if (strncmp(format, "w:", 2) == 0) {
        spec->dtype = MR_U8;
        type->width = 1;
        int rc = append_dim(at, format + 2, type, spec);
        if (rc == 0)
            type->leaf = spec->dim[spec->rank - 1];
        return rc;
    }
    if (!leaf || (leaf->kind != MR_KIND_TENSOR && spec->rank > 0))
        return unsupported(at, format);
    spec->dtype = leaf->dtype;
    spec->kind = leaf->kind;
    type->layout = leaf->layout;
    type->width = mr_dtype_size(spec->dtype);
    if (spec->kind != MR_KIND_TENSOR)
        set_varying(spec);
    return 0;
}

/* A list whose rows have as many numbers as they like. */
static int read_list(const struct column *at, const struct ArrowSchema *schema,
                     struct mr_arrow_type *type, struct mr_spec *spec)
{
    const struct ArrowSchema *item =
        schema->n_children == 1 && schema->children ? schema->children[0] : NULL;
    int rc = check(at, item);
    if (rc < 0)
        return rc;
    const struct known *leaf = find(item->format);
    if (spec->rank > 0 || item->dictionary || !leaf || leaf->layout != MR_ARROW_PLAIN) {
        char both[48];
        snprintf(both, sizeof both, "%s of %.40s", schema->format, item->format);
        return unsupported(at, both);
    }
    spec->dtype = leaf->dtype;
    type->layout = schema->format[1] == 'l' ? MR_ARROW_RUN32 : MR_ARROW_RUN64;
    type->width = mr_dtype_size(spec->dtype);
    type->list = true;
    set_varying(spec);
    return 0;
}

/* The values of a dictionary, whose indices are numbers. */
static int read_dictionary(const struct column *at, const struct ArrowSchema *schema,
                           struct mr_arrow_type *type, struct mr_spec *spec)
{
    const char *key = schema->format;
    if (spec->rank > 0 || !strchr("cCsSiIlL", key[0]) || key[1])
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: column '%.40s': a dictionary with indices of format \"%.20s\"%s: "
                            "expected integers, and no list around it",
                            at->name, at->column, key, spec->rank > 0 ? " in a list" : "");
    int rc = check(at, schema->dictionary);
    if (rc < 0)
        return rc;
    if (schema->dictionary->dictionary)
        return unsupported(at, "a dictionary of a dictionary");
    type->key = key[0];
    return read_leaf(at, schema->dictionary->format, type, spec);
}

int mr_arrow_type_read(const char *name, const char *column, const struct ArrowSchema *schema,
                       struct mr_arrow_type *type, struct mr_spec *spec)
{
    const struct column at = {name, column};
    *type = (struct mr_arrow_type){.count = 1, .leaf = 1, .member = -1};
    *spec = (struct mr_spec){.rank = 0};
    for (;;) {
        int rc = check(&at, schema);
        if (rc < 0)
            return rc;
        if (schema->dictionary)
            return read_dictionary(&at, schema, type, spec);
        if (strcmp(schema->format, "+l") == 0 || strcmp(schema->format, "+L") == 0)
            return read_list(&at, schema, type, spec);
        if (strncmp(schema->format, "+w:", 3) != 0)
            return read_leaf(&at, schema->format, type, spec);
        rc = append_dim(&at, schema->format + 3, type, spec);
        if (rc < 0)
            return rc;
        type->depth++;
        schema = schema->n_children == 1 && schema->children ? schema->children[0] : NULL;
    }
}
