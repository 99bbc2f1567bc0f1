/*
 * Loops over elements: conversions, and the arithmetic of scale and normalize.
 *
 * A pair (a, m) means y = (x + a) * m, two rounded operations; -0 and 1 are exactly neutral for
 * every x. So x * f + o is (-0, f), (o, 1) and (x - mean) * r is (-mean, r).
 *
 * Pointers need no alignment; in and out must not overlap unless they are equal.
 */
#ifndef MR_TRANSFORM_KERNELS_H
#define MR_TRANSFORM_KERNELS_H

#include "base/base.h"

typedef void mr_convert(const void *in, void *out, size_t n);

/* C's conversion of any real dtype to f32 or f64, rounded once; NULL for complex. */
mr_convert *mr_load_f32(enum mr_dtype from);
mr_convert *mr_load_f64(enum mr_dtype from);

/* i64 or u64 to f64, rounded to odd: if the result is then rounded to 51 bits or fewer, the total
 * rounding is correct. */
mr_convert *mr_load_f64_odd(enum mr_dtype from);

/* f32 or f64 to any real dtype: floats to nearest even; integers to nearest even, saturated, NaN ->
 * 0; bool: x != 0. NULL from f32 to f64, 32-bit and 64-bit integers. */
mr_convert *mr_store_f32(enum mr_dtype to);
mr_convert *mr_store_f64(enum mr_dtype to);

/* Between i64 and u64, saturated; NULL for other dtypes. */
mr_convert *mr_convert_wide(enum mr_dtype from, enum mr_dtype to);

#define MR_FUSED_PAIRS 3

/* Loads and applies n_pairs (1..MR_FUSED_PAIRS) in one pass. c: [n_pairs][2]. Only from u8 and f32;
 * NULL for others. */
typedef void mr_pairs_f32(const void *in, float *out, size_t n, const float *c);
mr_pairs_f32 *mr_pairs_load_f32(enum mr_dtype from, uint32_t n_pairs);

/* The same with constants that differ between elements. c: [n_pairs][2][stride], stride >= n. */
typedef void mr_cycle_f32(const void *in, float *out, size_t n, const float *c, size_t stride);
mr_cycle_f32 *mr_cycle_load_f32(enum mr_dtype from, uint32_t n_pairs);

/* One pair, in place. */
void mr_pair_f32(float *x, size_t n, const float c[2]);
void mr_pair_f64(double *x, size_t n, const double c[2]);
void mr_pair_cycle_f32(float *x, size_t n, const float *add, const float *mul);

#endif
