/*
 * Resampling as Pillow does it: separable, antialiased (the filter is as wide as the output's pixels when these are larger),
 * across first, then down. u8: coefficients of 22 fractional bits, each pass rounded to u8: Pillow's pixels, bit for bit.
 * (Newer versions of Pillow go down first where that is
 * cheaper: these differ by 1 at most.) Other dtypes are summed in f64, the result rounded once.
 */
#ifndef MR_TRANSFORM_RESAMPLE_H
#define MR_TRANSFORM_RESAMPLE_H

#include "transform/transform.h"

/* Pixels to resample: all of an image, or what was decoded of it. */
struct mr_source {
    const unsigned char *data;
    uint64_t stride, plane;       /* bytes from row to row, image to image */
    uint64_t images;              /* of equal size, one after the other */
    uint64_t x, y, width, height; /* what is held, of the scaled image */
    double scale_x, scale_y;      /* of the image that a cut speaks of */
    enum mr_dtype dtype;
    uint32_t channels; /* neighbouring elements of a pixel */
};

/* Bytes of work for images of up to width x height that become out_w x out_h. */
uint64_t mr_resample_work(enum mr_dtype dtype, uint32_t channels, uint64_t width, uint64_t height,
                          uint64_t out_w, uint64_t out_h);

/* work: aligned to 64; what mr_resample_work() says for sizes not below those of this call. */
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
/* 4 rows across. out has room for 4 bytes behind its end. */
void mr_resample_across(const struct mr_taps *taps, const uint8_t *const in[4],
                        uint8_t *const out[4], uint32_t channels);
/* The weighted sum of n rows (of MR_ROW_PAD padding): out[0..bytes). */
void mr_resample_down(const uint8_t *const *row, const int16_t *high, const int16_t *low,
                      uint32_t n, uint8_t *out, uint64_t bytes);

#endif
