/*
 * Conversions between element types. All loops are branch-free so that they vectorise, except those
 * of 64-bit integers.
 *
 * f16 and bf16 are converted by integer arithmetic: not all machines have the instructions, but all
 * must give the same result.
 */
#include "kernels/half.h"
#include "transform/kernels.h"

#include <math.h>
#include <string.h>

/* Elements at any address, of any effective type. */
#define ELEMENT __attribute__((aligned(1), may_alias))
typedef uint8_t u8 ELEMENT;
typedef int8_t i8 ELEMENT;
typedef uint16_t u16 ELEMENT;
typedef int16_t i16 ELEMENT;
typedef uint32_t u32 ELEMENT;
typedef int32_t i32 ELEMENT;
typedef uint64_t u64 ELEMENT;
typedef int64_t i64 ELEMENT;
typedef float f32 ELEMENT;
typedef double f64 ELEMENT;

/* f64 -> f32 rounded to odd: rounding that to f16 or bf16 is rounding once. */
static inline float to_f32_odd(double d)
{
    float f = (float)d;
    uint32_t u = mr_bits_of_f32(f);
    bool inexact = (double)f != d && d == d;
    uint32_t odd = fabs(d) > fabs((double)f) ? u + 1 : u - 1;
    return mr_f32_of_bits(inexact && !(u & 1) ? odd : u);
}

/* Clamps x to [lo, hi], both of at most 16 (f32) or 32 bits (f64): then adding 1.5 * 2^23 or 2^52
 * rounds to nearest even. */
static inline float clamp_f32(float x, float lo, float hi)
{
    x = x == x ? x : 0;
    x = x > hi ? hi : x;
    x = x < lo ? lo : x;
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

static inline double clamp_f64(double x, double lo, double hi)
{
    x = x == x ? x : 0;
    x = x > hi ? hi : x;
    x = x < lo ? lo : x;
    return (x + 0x1.8p52) - 0x1.8p52;
}

static inline int64_t to_i64(double x)
{
    if (x != x)
        return 0;
    x = rint(x);
    return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static inline uint64_t to_u64(double x)
{
    if (!(x > 0))
        return 0;
    x = rint(x);
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

/* Folds the low 11 bits of a magnitude above 2^53 into one: 53 bits are left, and the last one is
 * odd if anything was cut off. */
static inline uint64_t fold(uint64_t magnitude)
{
    uint64_t cut = (magnitude & ~0x7ffull) | (magnitude & 0x7ff ? 0x800 : 0);
    return magnitude >> 53 ? cut : magnitude;
}

static inline double from_i64_odd(int64_t v)
{
    uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    double d = (double)fold(magnitude);
    return v < 0 ? -d : d;
}

static inline double from_u64_odd(uint64_t v)
{
    return (double)fold(v);
}

#define LOOP(name, in_type, out_type, expression)                                                  \
    MR_CLONES static void name(const void *in, void *out, size_t n)                                \
    {                                                                                              \
        const in_type *restrict p = in;                                                            \
        out_type *restrict q = out;                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            in_type x = p[i];                                                                      \
            q[i] = (expression);                                                                   \
        }                                                                                          \
    }

/* bool's bytes are read as they are: 0 or 1. */
#define LOAD_TYPES(X)                                                                              \
    X(MR_BOOL, u8, (x))                                                                            \
    X(MR_U8, u8, (x))                                                                              \
    X(MR_I8, i8, (x))                                                                              \
    X(MR_U16, u16, (x))                                                                            \
    X(MR_I16, i16, (x))                                                                            \
    X(MR_U32, u32, (x))                                                                            \
    X(MR_I32, i32, (x))                                                                            \
    X(MR_U64, u64, (x))                                                                            \
    X(MR_I64, i64, (x))                                                                            \
    X(MR_F16, u16, mr_f32_of_f16(x))                                                               \
    X(MR_BF16, u16, mr_f32_of_bf16(x))                                                             \
    X(MR_F32, f32, (x))                                                                            \
    X(MR_F64, f64, (x))

#define X(id, type, value)                                                                         \
    LOOP(load_f32_##id, type, f32, (float)value)                                                   \
    LOOP(load_f64_##id, type, f64, (double)value)
LOAD_TYPES(X)
#undef X

LOOP(load_odd_i64, i64, f64, from_i64_odd(x))
LOOP(load_odd_u64, u64, f64, from_u64_odd(x))
LOOP(u64_to_i64, u64, i64, x > INT64_MAX ? INT64_MAX : (int64_t)x)
LOOP(i64_to_u64, i64, u64, x < 0 ? 0 : (uint64_t)x)

#define STORE_F32_TYPES(X)                                                                         \
    X(MR_BOOL, u8, x != 0)                                                                         \
    X(MR_U8, u8, (uint8_t)(int32_t)clamp_f32(x, 0, 255))                                           \
    X(MR_I8, i8, (int8_t)(int32_t)clamp_f32(x, -128, 127))                                         \
    X(MR_U16, u16, (uint16_t)(int32_t)clamp_f32(x, 0, 65535))                                      \
    X(MR_I16, i16, (int16_t)(int32_t)clamp_f32(x, -32768, 32767))                                  \
    X(MR_F16, u16, mr_f16_of_f32(x))                                                               \
    X(MR_BF16, u16, mr_bf16_of_f32(x))                                                             \
    X(MR_F32, f32, x)

#define STORE_F64_TYPES(X)                                                                         \
    X(MR_BOOL, u8, x != 0)                                                                         \
    X(MR_U8, u8, (uint8_t)(int32_t)clamp_f64(x, 0, 255))                                           \
    X(MR_I8, i8, (int8_t)(int32_t)clamp_f64(x, -128, 127))                                         \
    X(MR_U16, u16, (uint16_t)(int32_t)clamp_f64(x, 0, 65535))                                      \
    X(MR_I16, i16, (int16_t)(int32_t)clamp_f64(x, -32768, 32767))                                  \
    X(MR_U32, u32, (uint32_t)(int64_t)clamp_f64(x, 0, 4294967295.0))                               \
    X(MR_I32, i32, (int32_t)clamp_f64(x, -2147483648.0, 2147483647.0))                             \
    X(MR_U64, u64, to_u64(x))                                                                      \
    X(MR_I64, i64, to_i64(x))                                                                      \
    X(MR_F16, u16, mr_f16_of_f32(to_f32_odd(x)))                                                   \
    X(MR_BF16, u16, mr_bf16_of_f32(to_f32_odd(x)))                                                 \
    X(MR_F32, f32, (float)x)                                                                       \
    X(MR_F64, f64, x)

#define X(id, type, value) LOOP(store_f32_##id, f32, type, value)
STORE_F32_TYPES(X)
#undef X
#define X(id, type, value) LOOP(store_f64_##id, f64, type, value)
STORE_F64_TYPES(X)
#undef X

mr_convert *mr_load_f32(enum mr_dtype from)
{
    static mr_convert *const table[MR_N_DTYPES] = {
#define X(id, type, value) [id] = load_f32_##id,
        LOAD_TYPES(X)
#undef X
    };
    return table[from];
}

mr_convert *mr_load_f64(enum mr_dtype from)
{
    static mr_convert *const table[MR_N_DTYPES] = {
#define X(id, type, value) [id] = load_f64_##id,
        LOAD_TYPES(X)
#undef X
    };
    return table[from];
}

mr_convert *mr_load_f64_odd(enum mr_dtype from)
{
    return from == MR_I64 ? load_odd_i64 : from == MR_U64 ? load_odd_u64 : NULL;
}

mr_convert *mr_store_f32(enum mr_dtype to)
{
    static mr_convert *const table[MR_N_DTYPES] = {
#define X(id, type, value) [id] = store_f32_##id,
        STORE_F32_TYPES(X)
#undef X
    };
    return table[to];
}

mr_convert *mr_store_f64(enum mr_dtype to)
{
    static mr_convert *const table[MR_N_DTYPES] = {
#define X(id, type, value) [id] = store_f64_##id,
        STORE_F64_TYPES(X)
#undef X
    };
    return table[to];
}

mr_convert *mr_convert_wide(enum mr_dtype from, enum mr_dtype to)
{
    if (from == MR_I64 && to == MR_U64)
        return i64_to_u64;
    return from == MR_U64 && to == MR_I64 ? u64_to_i64 : NULL;
}
