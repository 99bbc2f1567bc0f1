/* Elements of any type as numbers. */
#include "inspect/inspect.h"

#include <math.h>
#include <string.h>

static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double size = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                  : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                 : ldexp(mantissa, -24);
    return h >> 15 ? -size : size;
}

#define READ(type)                                                                                 \
    {                                                                                              \
        type v;                                                                                    \
        memcpy(&v, p, sizeof v);                                                                   \
        return (double)v;                                                                          \
    }

double inspect_value(enum mr_dtype dtype, const unsigned char *p)
{
    uint16_t half;
    uint32_t bits;
    float f;
    switch (dtype) {
    case MR_BOOL:
    case MR_U8:
        return *p;
    case MR_I8:
        READ(int8_t)
    case MR_U16:
        READ(uint16_t)
    case MR_I16:
        READ(int16_t)
    case MR_U32:
        READ(uint32_t)
    case MR_I32:
        READ(int32_t)
    case MR_U64:
        READ(uint64_t)
    case MR_I64:
        READ(int64_t)
    case MR_F32:
    case MR_C64:
        READ(float)
    case MR_F64:
    case MR_C128:
        READ(double)
    case MR_F16:
        memcpy(&half, p, 2);
        return half_value(half);
    case MR_BF16:
        memcpy(&half, p, 2);
        bits = (uint32_t)half << 16;
        memcpy(&f, &bits, 4);
        return (double)f;
    default:
        return NAN;
    }
}

uint64_t inspect_count(const struct mr_spec *spec, const uint64_t *dim)
{
    uint64_t n = 1;
    for (int d = 0; d < spec->rank; d++)
        n *= dim[d];
    return n;
}

bool inspect_integer(enum mr_dtype dtype)
{
    return dtype >= MR_BOOL && dtype <= MR_I64;
}
