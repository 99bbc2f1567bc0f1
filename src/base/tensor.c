/* Element types and specs. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[MR_N_DTYPES] = {
#define X(id, size, text) [id] = {text, size},
    MR_DTYPES(X)
#undef X
};

/* Names used by other tools. */
static const struct {
    const char *name;
    enum mr_dtype dtype;
} aliases[] = {
    {"uint8", MR_U8},    {"int8", MR_I8},     {"uint16", MR_U16},    {"int16", MR_I16},
    {"uint32", MR_U32},  {"int32", MR_I32},   {"uint64", MR_U64},    {"int64", MR_I64},
    {"float16", MR_F16}, {"half", MR_F16},    {"bfloat16", MR_BF16}, {"float32", MR_F32},
    {"float", MR_F32},   {"float64", MR_F64}, {"double", MR_F64},    {"byte", MR_U8},
    {"long", MR_I64},    {"int", MR_I32},     {"complex64", MR_C64}, {"complex128", MR_C128},
};

size_t mr_dtype_size(enum mr_dtype dtype)
{
    return (unsigned)dtype < MR_N_DTYPES ? dtypes[dtype].bytes : 0;
}

const char *mr_dtype_name(enum mr_dtype dtype)
{
    return (unsigned)dtype < MR_N_DTYPES ? dtypes[dtype].name : "?";
}

int mr_dtype_parse(const char *text, enum mr_dtype *out)
{
    if (!text || !out)
        return mr_error_null("mr_dtype_parse", "a text and a place for the result");
    for (int i = 0; i < MR_N_DTYPES; i++)
        if (strcmp(text, dtypes[i].name) == 0) {
            *out = (enum mr_dtype)i;
            return 0;
        }
    for (size_t i = 0; i < MR_COUNT(aliases); i++)
        if (strcmp(text, aliases[i].name) == 0) {
            *out = aliases[i].dtype;
            return 0;
        }
    return mr_error_set(
        MR_EOPTION,
        "dtype '%s': expected one of bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 c64 c128",
        text);
}

bool mr_spec_kind_fits(const struct mr_spec *spec)
{
    if (spec->kind == MR_KIND_TENSOR)
        return true;
    return spec->kind <= MR_KIND_STRING && spec->dtype == MR_U8 && spec->rank == 1 &&
           spec->var_dims == 1;
}

int mr_spec_bytes(const struct mr_spec *spec, uint64_t *out)
{
    if (!spec || !out)
        return mr_error_null("mr_spec_bytes", "a spec and a place for the result");
    uint64_t bytes = mr_dtype_size(spec->dtype);
    bool fits = true;
    for (int d = 0; d < spec->rank; d++)
        fits = fits && mr_mul(bytes, spec->dim[d], &bytes);
    if (!fits || bytes > 1ull << 62) {
        char text[160];
        return mr_error_set(MR_ELIMIT, "%s: more than 2^62 bytes",
                            mr_spec_format(spec, text, sizeof text));
    }
    *out = bytes;
    return 0;
}

static const char *element_name(const struct mr_spec *spec)
{
    return spec->kind == MR_KIND_STRING  ? "string"
           : spec->kind == MR_KIND_BYTES ? "bytes"
                                         : mr_dtype_name(spec->dtype);
}

const char *mr_spec_format(const struct mr_spec *spec, char *buf, size_t cap)
{
    if (!buf || cap == 0)
        return "";
    if (!spec) {
        *buf = 0;
        return buf;
    }
    char text[MR_NAME_BYTES + 16 + MR_MAX_RANK * 24];
    int at = snprintf(text, sizeof text, "%s%s%s", spec->name, spec->name[0] ? " " : "",
                      element_name(spec));
    for (int d = 0; d < spec->rank && d < MR_MAX_RANK; d++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s%llu", d ? "," : "[",
                       spec->var_dims >> d & 1 ? "<=" : "", (unsigned long long)spec->dim[d]);
    if (spec->rank > 0)
        snprintf(text + at, sizeof text - (size_t)at, "]");
    snprintf(buf, cap, "%s", text);
    return buf;
}
