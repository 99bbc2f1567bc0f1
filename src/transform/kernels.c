/* The arithmetic of scale and normalize: one pass from u8 or f32, and passes in place. */
#include "transform/kernels.h"

/* Elements at any address. */
typedef uint8_t u8;
typedef float f32 __attribute__((aligned(1), may_alias));
typedef double f64 __attribute__((aligned(1), may_alias));

#define STEP(k)  x = (x + a##k) * m##k;
#define STEPS_1  STEP(0)
#define STEPS_2  STEP(0) STEP(1)
#define STEPS_3  STEP(0) STEP(1) STEP(2)
#define CONST(k) float a##k = c[2 * k], m##k = c[2 * k + 1];
#define CONSTS_1 CONST(0)
#define CONSTS_2 CONST(0) CONST(1)
#define CONSTS_3 CONST(0) CONST(1) CONST(2)

#define PAIRS(type, n_pairs)                                                                       \
    MR_CLONES static void pairs_##type##_##n_pairs(const void *in, float *out, size_t n,           \
                                                   const float *c)                                 \
    {                                                                                              \
        const type *restrict p = in;                                                               \
        f32 *restrict q = (f32 *)out;                                                              \
        CONSTS_##n_pairs for (size_t i = 0; i < n; i++)                                            \
        {                                                                                          \
            float x = (float)p[i];                                                                 \
            STEPS_##n_pairs q[i] = x;                                                              \
        }                                                                                          \
    }
PAIRS(u8, 1)
PAIRS(u8, 2)
PAIRS(u8, 3)
PAIRS(f32, 1)
PAIRS(f32, 2)
PAIRS(f32, 3)

#define CYCLE_STEP(k) x = (x + c[2 * k * stride + i]) * c[(2 * k + 1) * stride + i];
#define CYCLE_STEPS_1 CYCLE_STEP(0)
#define CYCLE_STEPS_2 CYCLE_STEP(0) CYCLE_STEP(1)
#define CYCLE_STEPS_3 CYCLE_STEP(0) CYCLE_STEP(1) CYCLE_STEP(2)

#define CYCLE(type, n_pairs)                                                                       \
    MR_CLONES static void cycle_##type##_##n_pairs(const void *in, float *out, size_t n,           \
                                                   const float *restrict c, size_t stride)         \
    {                                                                                              \
        const type *restrict p = in;                                                               \
        f32 *restrict q = (f32 *)out;                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            float x = (float)p[i];                                                                 \
            CYCLE_STEPS_##n_pairs q[i] = x;                                                        \
        }                                                                                          \
    }
CYCLE(u8, 1)
CYCLE(u8, 2)
CYCLE(u8, 3)
CYCLE(f32, 1)
CYCLE(f32, 2)
CYCLE(f32, 3)

mr_pairs_f32 *mr_pairs_load_f32(enum mr_dtype from, uint32_t n_pairs)
{
    static mr_pairs_f32 *const table[2][MR_FUSED_PAIRS] = {
        {pairs_u8_1, pairs_u8_2, pairs_u8_3},
        {pairs_f32_1, pairs_f32_2, pairs_f32_3},
    };
    if (n_pairs < 1 || n_pairs > MR_FUSED_PAIRS || (from != MR_U8 && from != MR_F32))
        return NULL;
    return table[from == MR_F32][n_pairs - 1];
}

mr_cycle_f32 *mr_cycle_load_f32(enum mr_dtype from, uint32_t n_pairs)
{
    static mr_cycle_f32 *const table[2][MR_FUSED_PAIRS] = {
        {cycle_u8_1, cycle_u8_2, cycle_u8_3},
        {cycle_f32_1, cycle_f32_2, cycle_f32_3},
    };
    if (n_pairs < 1 || n_pairs > MR_FUSED_PAIRS || (from != MR_U8 && from != MR_F32))
        return NULL;
    return table[from == MR_F32][n_pairs - 1];
}

/* The clones are static: gcc exports the resolver of a global function. */
MR_CLONES static void pair_f32(float *x, size_t n, float a, float m)
{
    f32 *p = (f32 *)x;
    for (size_t i = 0; i < n; i++)
        p[i] = (p[i] + a) * m;
}

MR_CLONES static void pair_f64(double *x, size_t n, double a, double m)
{
    f64 *p = (f64 *)x;
    for (size_t i = 0; i < n; i++)
        p[i] = (p[i] + a) * m;
}

MR_CLONES static void pair_cycle_f32(float *x, size_t n, const float *restrict add,
                                     const float *restrict mul)
{
    f32 *restrict p = (f32 *)x;
    for (size_t i = 0; i < n; i++)
        p[i] = (p[i] + add[i]) * mul[i];
}

void mr_pair_f32(float *x, size_t n, const float c[2])
{
    pair_f32(x, n, c[0], c[1]);
}

void mr_pair_f64(double *x, size_t n, const double c[2])
{
    pair_f64(x, n, c[0], c[1]);
}

void mr_pair_cycle_f32(float *x, size_t n, const float *add, const float *mul)
{
    pair_cycle_f32(x, n, add, mul);
}
