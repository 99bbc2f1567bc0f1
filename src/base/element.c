/* Converts a number to an element of any dtype. */
#include "base/base.h"

#include <math.h>
#include <string.h>

/* f32 to f16 (IEEE 754 binary16) or bf16 (the upper half of an f32), rounded to nearest even on the
 * bits. */
static uint16_t half_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x47800000) /* 65536 or more: infinity */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* below 2^-14: subnormal, rounded by the addition */
        float scaled;
        memcpy(&scaled, &rest, sizeof scaled);
        scaled += 0.5f;
        memcpy(&rest, &scaled, sizeof rest);
        return (uint16_t)(sign | (rest - 0x3f000000));
    }
    rest += 0xc8000fff + (rest >> 13 & 1); /* exponent bias 127 -> 15, round to even */
    return (uint16_t)(sign | rest >> 13);
}

static uint16_t bfloat_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static int64_t clamp_int(double value, double lo, double hi)
{
    return isnan(value)  ? 0
           : value <= lo ? (int64_t)lo
           : value >= hi ? (int64_t)hi
                         : (int64_t)nearbyint(value);
}

void mr_element_from_double(enum mr_dtype dtype, double value, void *out)
{
    union {
        int64_t i;
        uint64_t u;
        uint16_t h;
        float f[2];
        double d[2];
    } e = {0};
    size_t bytes = mr_dtype_size(dtype), bits = 8 * bytes;
    switch (dtype) {
    case MR_BOOL:
        e.u = value != 0;
        break;
    case MR_U64:
        e.u = !(value > 0) ? 0 : value >= 0x1p64 ? UINT64_MAX : (uint64_t)nearbyint(value);
        break;
    case MR_U8:
    case MR_U16:
    case MR_U32:
        e.i = clamp_int(value, 0, ldexp(1, (int)bits) - 1);
        break;
    case MR_I64:
        e.i = isnan(value)       ? 0
              : value >= 0x1p63  ? INT64_MAX
              : value <= -0x1p63 ? INT64_MIN
                                 : (int64_t)nearbyint(value);
        break;
    case MR_I8:
    case MR_I16:
    case MR_I32:
        e.i = clamp_int(value, -ldexp(1, (int)bits - 1), ldexp(1, (int)bits - 1) - 1);
        break;
    case MR_F16:
        e.h = half_from_f32((float)value);
        break;
    case MR_BF16:
        e.h = bfloat_from_f32((float)value);
        break;
    case MR_F32:
    case MR_C64:
        e.f[0] = (float)value;
        break;
    default:
        e.d[0] = value;
        break;
    }
    memcpy(out, &e, bytes);
}

/* One past the largest whole number of the type. */
static double int_end(enum mr_dtype dtype, bool is_signed)
{
    int bits = 8 * (int)mr_dtype_size(dtype);
    return dtype == MR_BOOL ? 2 : ldexp(1, is_signed ? bits - 1 : bits);
}

static bool int_holds(enum mr_dtype dtype, bool is_signed, double value)
{
    double end = int_end(dtype, is_signed);
    return value >= (is_signed ? -end : 0) && value < end && value == floor(value);
}

/* Rounding is fine, but to infinity or zero it is another number. */
static bool float_holds(enum mr_dtype dtype, double value)
{
    if (!isfinite(value) || value == 0)
        return true;
    uint16_t h = dtype == MR_F16    ? half_from_f32((float)value)
                 : dtype == MR_BF16 ? bfloat_from_f32((float)value)
                                    : 1;
    uint16_t infinity = dtype == MR_F16 ? 0x7c00 : 0x7f80;
    bool wide = dtype == MR_F64 || dtype == MR_C128;
    return (h & 0x7fff) != infinity && (h & 0x7fff) != 0 &&
           (wide || (isfinite((float)value) && (float)value != 0));
}

bool mr_element_holds(enum mr_dtype dtype, double value)
{
    switch (dtype) {
    case MR_BOOL:
    case MR_U8:
    case MR_U16:
    case MR_U32:
    case MR_U64:
        return int_holds(dtype, false, value);
    case MR_I8:
    case MR_I16:
    case MR_I32:
    case MR_I64:
        return int_holds(dtype, true, value);
    default:
        return float_holds(dtype, value);
    }
}
