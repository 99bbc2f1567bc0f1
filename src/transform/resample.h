/*
 * Resampling as in Pillow: separable, antialiased (the filter is as wide as the output's pixels if
 * these are larger), horizontally first, then vertically. u8: coefficients have 22 fractional bits
 * and each pass is rounded to u8, giving Pillow's pixels, bit for bit. (Newer versions of Pillow
 * resample vertically first where that is cheaper: their results differ by at most 1.) Other dtypes
 * are summed in f64 and rounded once.
 */
#ifndef MR_TRANSFORM_RESAMPLE_H
#define MR_TRANSFORM_RESAMPLE_H

#include "transform/transform.h"

/* Pixels to resample: a whole image, or its decoded part. */
struct mr_source {
    const unsigned char *data;
    uint64_t stride, plane;       /* bytes from row to row, image to image */
    uint64_t images;              /* of equal size, one after the other */
    uint64_t x, y, width, height; /* the available part of the scaled image */
    double scale_x, scale_y;      /* scale relative to the image that a cut refers to */
    enum mr_dtype dtype;
    uint32_t channels; /* neighbouring elements of a pixel */
};

/* Bytes of work for images of up to width x height that become out_w x out_h. */
uint64_t mr_resample_work(enum mr_dtype dtype, uint32_t channels, uint64_t width, uint64_t height,
                          uint64_t out_w, uint64_t out_h);

/* work: aligned to 64, of the size that mr_resample_work() returns for sizes at least as large as
 * this call's. */
void mr_resample(const struct mr_cut *cut, const struct mr_source *src, void *out, void *work);

/* One axis: which elements make each output, and their weights. */
struct mr_taps {
    uint64_t n;          /* outputs */
    uint32_t room;       /* weights an output, a multiple of 4; those behind count are 0 */
    uint32_t *first;     /* of the held pixels */
    uint32_t *count;     /* >= 1 */
    int16_t *high, *low; /* u8: weight = high * 2048 + low, in 2^-22 */
    double *weight;      /* other dtypes */
};

/* Kernels for u8. Rows are readable up to 64 bytes past their end. */
#define MR_ROW_PAD 64
/* 4 rows, horizontally. out needs space for 4 more bytes after its end. */
void mr_resample_across(const struct mr_taps *taps, const uint8_t *const in[4],
                        uint8_t *const out[4], uint32_t channels);
/* The weighted sum of n rows (of MR_ROW_PAD padding): out[0..bytes). */
void mr_resample_down(const uint8_t *const *row, const int16_t *high, const int16_t *low,
                      uint32_t n, uint8_t *out, uint64_t bytes);

#endif
